"""The questions of the status page to the database: the explanation of an event, refused rows,
lists, the findings of doctor.

The questions have a separate, read-only connection, and each statement is limited to five seconds.
So the page is answered even while a delivery hangs, and the page never delays a delivery. Values,
keys and a receiver's texts are hidden unless the configuration shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from eventlog.config.load import Config, with_current_secrets
from eventlog.core.rows.event_ids import row_or_object
from eventlog.errors import BadQuestion
from eventlog.model import Status
from eventlog.publisher.context.context import Context, Counters
from eventlog.publisher.context.observer import Seen
from eventlog.publisher.declared.opening import open_unlocked
from eventlog.publisher.inspect.doctor import Compare, examine
from eventlog.publisher.inspect.explanation import (
    Explanation,
    explain,
    explain_object,
    explanation_data,
)
from eventlog.publisher.inspect.key_explanation import explain_key
from eventlog.publisher.inspect.listing import Wanted, list_rows
from eventlog.publisher.inspect.refusals import Refusals, read_refusals, refusals_data
from eventlog.publisher.monitor.status import HIDDEN, answer_status
from eventlog.publisher.stream.explaining import nothing_waits
from eventlog.publisher.stream.open_source import explained_events, source_failures
from eventlog.sql.doctor import Limits
from eventlog.sql.log.errors import RECEIVER
from eventlog.sql.log.rows import count_newest

_QUESTION_SECONDS: Final = 5
"""The time-out of one statement, in seconds."""
_QUESTION_ROWS: Final = 10_000
"""How many of the newest rows are read."""
_QUESTION_ERRORS: Final = 2_000
"""How many of the newest error rows are read, with their rows."""
_MEANINGS: Final[Mapping[str, str]] = {
    Status.NEW: "waits",
    Status.SUCCESS: "success",
    Status.WARNING: "warning",
    Status.ERROR: "error",
    Status.FATAL: "fatal",
}
_QUOTING: Final = ("invalid_rows", "key_not_canonical", "missed_delete", "false_delete")
"""The codes of doctor's findings that quote rows."""
_PRIVATE_OF_ROW: Final = ("table_key", "old_value", "new_value")


class Questions:
    """Questions about the log of a configuration. All methods raise EventlogError.

    ``compare`` returns the differences between the triggers and the declared triggers, for doctor.
    ``seen`` returns what the process has seen of an event.
    """

    def __init__(
        self, config: Config, compare: Compare, seen: Callable[[str], Seen] = lambda _: Seen()
    ) -> None:
        self._config, self._compare, self._seen = config, compare, seen
        self._shows_values = config.monitor.show_values

    @contextmanager
    def _reading(self) -> Iterator[Context]:
        with open_unlocked(self._config, Counters()) as context:
            context.log.db.begin_reading(_QUESTION_SECONDS)
            yield context

    def explain(self, event: str) -> dict[str, Any]:
        """Return the event of a row of the log, or the event of a snapshot's object. A record_id
        names the row, and an event-id names the object. The form is as in ``eventlog explain
        --json``. Raises BadQuestion.
        """
        row = row_or_object(event)
        if row is None:
            raise BadQuestion("write a record_id, of 1 to 18 digits, or an event-id")
        with open_unlocked(self._config, Counters()) as context:
            explained = (
                explain(context, row, _QUESTION_SECONDS, _QUESTION_ROWS)
                if isinstance(row, int)
                else explain_object(context, row, _QUESTION_SECONDS)
            )
        seen = self._seen(explained.event_id or event)
        return _shown(replace(explained, seen=seen), shows_values=self._shows_values)

    def search(self, key: str) -> dict[str, Any]:
        """Return the objects with this key, as in ``eventlog explain --key --json``."""
        config = with_current_secrets(self._config, "database")
        found = [
            one.as_data()
            for one in explain_key(config, key, self._compare, seconds=_QUESTION_SECONDS)
        ]
        if not self._shows_values:  # the sentences may quote values; the key is that of the client
            found = [{**one, "sentences": []} for one in found]
        return {"objects": found}

    def rows(self, wanted: Wanted) -> dict[str, Any]:
        """Return a page of the rows of the log, the newest first."""
        with self._reading() as context:
            page = list_rows(context, wanted).as_data()
        if not self._shows_values:
            page["rows"] = [
                {
                    **one,
                    "key": one["key"] and HIDDEN,
                    "message": one["message"] and answer_status(one["message"]),
                }
                for one in page["rows"]
            ]
        return page

    def errors(self) -> dict[str, Any]:
        """Return the refused rows, as in ``eventlog errors --json``."""
        with self._reading() as context:
            consumer = context.ledger.consumer
            groups = read_refusals(
                context.log,
                _QUESTION_ERRORS,
                consumer,
                own_user=context.options.driver_user or "",
                catalog=context.catalog,
                within=_QUESTION_ROWS,
            )
        shown = refusals_data(groups if self._shows_values else map(_without_key, groups))
        searched = (
            f"the newest {_QUESTION_ERRORS:,} error rows, and the newest {_QUESTION_ROWS:,} rows "
            "of the log"
        )
        return {"errors": shown, "searched": searched}

    def queue(self) -> dict[str, Any]:
        """Return how many of the newest rows of the log have each class and status, and how many
        rows were counted in all.
        """
        with self._reading() as context:
            counts = count_newest(context.log, _QUESTION_ROWS)
        return {
            "newest": sum(rows for _, _, rows in counts),
            "most": _QUESTION_ROWS,
            "rows": [
                {
                    "class": table_name,
                    "status": status,
                    "meaning": _MEANINGS.get(status, "reserved"),
                    "rows": rows,
                }
                for table_name, status, rows in counts
            ],
        }

    def doctor(self) -> dict[str, Any]:
        """Return the findings of ``eventlog doctor``."""
        config = with_current_secrets(self._config, "database")
        findings = examine(config, self._compare, replace(Limits(), statement=_QUESTION_SECONDS))
        return {
            "findings": [
                {
                    "code": one.code,
                    "level": one.severity,
                    "message": one.text
                    if self._shows_values or one.code not in _QUOTING
                    else HIDDEN,
                    "command": "\n".join(one.fix),
                    "fix": [*one.fix],
                }
                for one in findings
            ]
        }


class SourceQuestions:
    """Questions about the source that a configuration follows. The class is used as ``Questions``
    is.
    """

    def __init__(self, config: Config, seen: Callable[[str], Seen]) -> None:
        self._config, self._seen = config, seen
        self._shows_values = config.monitor.show_values

    def explain(self, event: str) -> dict[str, Any]:
        """Return the event of this event-id, as in ``eventlog explain --from --json``."""
        _, (explained,) = explained_events(self._current(), event)
        return _shown(replace(explained, seen=self._seen(event)), shows_values=self._shows_values)

    def search(self, key: str) -> dict[str, Any]:
        """Return the objects with this key that have waiting events, in the form of
        ``Questions.search``.
        """
        _, explained = explained_events(self._current(), None, key)
        by_object: dict[tuple[str | None, str | None], list[Explanation]] = {}
        for one in explained:
            by_object.setdefault((one.class_name, one.key), []).append(one)
        found = [_waiting(*named, events) for named, events in by_object.items()]
        return {"objects": found or [_waiting(None, key, [])]}

    def errors(self) -> dict[str, Any]:
        """Return what was refused, as ``Questions.errors`` does."""
        return {
            "errors": [
                {
                    "table_name": None,
                    "code": one.code,
                    "status": None,
                    "rows": one.number,
                    "newest": f"{one.newest:%Y-%m-%dT%H:%M:%SZ}",
                    "example": one.example,
                    "message": one.message
                    if self._shows_values
                    else _refusal_status(one.code, one.message),
                    "commands": [],
                }
                for one in source_failures(self._current(), _QUESTION_ROWS)
            ],
            "searched": f"the newest {_QUESTION_ROWS:,} failures",
        }

    def _current(self) -> Config:
        return with_current_secrets(self._config)


def _waiting(
    class_name: str | None, key: str | None, explained: Sequence[Explanation]
) -> dict[str, Any]:
    """Return an object of a source with its events that wait."""
    return {
        "class_name": class_name,
        "key": key,
        "record_id": None,
        "sentences": [] if explained else [nothing_waits(key or "")],
        "searched": "the unanswered events that the position has passed",
        "rows": [],
        "events": [{"event_id": one.event_id, "state": one.state} for one in explained],
    }


def _shown(explained: Explanation, *, shows_values: bool) -> dict[str, Any]:
    """Return an explanation as data for JSON."""
    explanation = explanation_data(explained)
    explanation["errors"] = [
        {**entry, "error_time": str(entry["error_time"])} for entry in explanation["errors"]
    ]
    return explanation if shows_values else _without_values(explanation)


def _without_values(explanation: Mapping[str, Any]) -> dict[str, Any]:
    """Return an explanation with hidden values, keys, document, messages and answers."""

    def hide(value: Any) -> Any:
        return None if value is None else HIDDEN

    return {
        **explanation,
        "row": explanation["row"]
        and {
            name: hide(value) if name in _PRIVATE_OF_ROW else value
            for name, value in explanation["row"].items()
        },
        # The event-id of an object in a snapshot contains its key.
        "event_id": HIDDEN if explanation["kind"] == "object" else explanation["event_id"],
        "key": hide(explanation["key"]),
        "state": _without_message(explanation["state"]),
        "in_flight": explanation["in_flight"]
        and {
            **explanation["in_flight"],
            "last_answer": answer_status(explanation["in_flight"]["last_answer"]),
        },
        "problem": explanation["problem"] and {**explanation["problem"], "message": HIDDEN},
        "members": [
            {
                **member,
                "old": hide(member["old"]),
                "new": hide(member["new"]),
                "outcome": _without_message(member["outcome"]),
            }
            for member in explanation["members"]
        ],
        "errors": [{**entry, "message": HIDDEN} for entry in explanation["errors"]],
        "remedies": [*map(_without_key_in, explanation["remedies"])],
        "notes": [],
        "document": hide(explanation["document"]),
        "change": None,
    }


def _without_key_in(remedy: Mapping[str, Any]) -> dict[str, Any]:
    """Return a remedy without a command that contains a key."""
    has_key = any(option in remedy["command"] for option in (" --key ", " --event-id "))
    return {**remedy, "command": "" if has_key else remedy["command"]}


def _without_key(refusals: Refusals) -> Refusals:
    """Return refusals with only the status of the answer, and without the key in an event-id of a
    snapshot. `eventlog errors` prints the commands that name keys.
    """
    shown = refusals._replace(message=_refusal_status(refusals.code, refusals.message))
    if isinstance(refusals.example, int):
        keyless = ("eventlog errors" if " --key " in one else one for one in refusals.commands)
    else:
        shown = shown._replace(example=HIDDEN)
        keyless = (one.partition(" --event-id ")[0] for one in refusals.commands)
    return shown._replace(commands=tuple(dict.fromkeys(keyless)))


def _refusal_status(code: str, message: str) -> str:
    """Return only the status of the answer, from the message of a refusal."""
    return answer_status(message) if code == RECEIVER else HIDDEN


def _without_message(sentence: str) -> str:
    """Return a sentence without the message after its colon, which may contain values."""
    return sentence.partition(": ")[0]
