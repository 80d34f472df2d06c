"""What the status page asks the database: a row explained, what was refused, rows by class, the findings of doctor.

Each question has a connection of its own that only reads, and no statement of it takes longer than five seconds: the
page is answered while a flight hangs, and never holds one up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from eventlog.config.load import Config
from eventlog.model import Status
from eventlog.publisher.context import Context, Counters
from eventlog.publisher.doctor import Compare, examine
from eventlog.publisher.explain import explain, explanation_data, read_refusals, refusals_data
from eventlog.publisher.monitor.status import HIDDEN
from eventlog.publisher.open_log import open_unlocked
from eventlog.sql.doctor import Limits
from eventlog.sql.rows import count_newest

_SECONDS: Final = 5
"""That one statement may take."""
_ROWS: Final = 10_000
"""Of the newest rows and error lines that are looked at."""
_MEANINGS: Final[Mapping[str, str]] = {
    Status.NEW: "waits",
    Status.SUCCESS: "success",
    Status.WARNING: "warning",
    Status.ERROR: "error",
    Status.FATAL: "fatal",
}
_QUOTING: Final = ("bad_rows", "key_not_canonical")
"""Findings of doctor that quote rows."""
_PRIVATE_OF_ROW: Final = ("table_key", "old_value", "new_value")


class Questions:
    """Questions about the log of a configuration. All raise EventlogError.

    ``compare``: what tells doctor how triggers differ from what is declared. ``answers_to``: what the receiver lately
    said of an event. Values, keys and a receiver's texts are hidden unless the configuration shows them.
    """

    def __init__(
        self,
        config: Config,
        compare: Compare,
        answers_to: Callable[[str | None], list[dict[str, Any]]] = lambda _event_id: [],
    ) -> None:
        self._config, self._compare, self._answers_to = config, compare, answers_to
        self._shows_values = config.monitor.values

    @contextmanager
    def _reading(self) -> Iterator[Context]:
        with open_unlocked(self._config, Counters()) as context:
            context.dialect.begin_reading(context.connection, _SECONDS)
            yield context

    def explain(self, record_id: int) -> dict[str, Any]:
        """A row of the log, as ``eventlog show --json`` has it, and the ``answers`` to its event."""
        with open_unlocked(self._config, Counters()) as context:
            explanation = explanation_data(explain(context, record_id, _SECONDS))
        explanation["errors"] = [{**line, "error_time": str(line["error_time"])} for line in explanation["errors"]]
        explanation["answers"] = self._answers_to(explanation["event_id"])
        return explanation if self._shows_values else _without_values(explanation)

    def errors(self) -> dict[str, Any]:
        """What was refused, as ``eventlog errors --json`` has it."""
        with self._reading() as context:
            groups = read_refusals(context.connection, context.dialect, context.log, _ROWS)
        shown = refusals_data(groups if self._shows_values else [group._replace(message=HIDDEN) for group in groups])
        return {"errors": shown}

    def queue(self) -> dict[str, Any]:
        """The newest rows of the log by class and status."""
        with self._reading() as context:
            counts = count_newest(context.connection, context.log, _ROWS)
        return {
            "rows": [
                {"class": table_name, "status": status, "meaning": _MEANINGS.get(status, "reserved"), "rows": rows}
                for table_name, status, rows in counts
            ]
        }

    def doctor(self) -> dict[str, Any]:
        """What ``eventlog doctor`` finds."""
        findings = examine(self._config, self._compare, replace(Limits(), statement=_SECONDS))
        return {
            "findings": [
                {
                    "code": one.code,
                    "level": one.severity,
                    "message": one.text if self._shows_values or one.code not in _QUOTING else HIDDEN,
                    "command": "\n".join(one.mend),
                }
                for one in findings
            ]
        }


def _without_values(explanation: Mapping[str, Any]) -> dict[str, Any]:
    """An explanation whose values, keys, document and messages are hidden."""

    def hide(value: Any) -> Any:
        return None if value is None else HIDDEN

    return {
        **explanation,
        "row": {name: hide(value) if name in _PRIVATE_OF_ROW else value for name, value in explanation["row"].items()},
        "key": hide(explanation["key"]),
        "state": _without_message(explanation["state"]),
        "problem": explanation["problem"] and {**explanation["problem"], "message": HIDDEN},
        "members": [
            {
                **member,
                "old": hide(member["old"]),
                "new": hide(member["new"]),
                "fate": _without_message(member["fate"]),
            }
            for member in explanation["members"]
        ],
        "errors": [{**line, "message": HIDDEN} for line in explanation["errors"]],
        "notes": [],
        "document": hide(explanation["document"]),
    }


def _without_message(sentence: str) -> str:
    """A sentence up to the message that it quotes, which stands behind a colon and may bear values."""
    return sentence.partition(": ")[0]
