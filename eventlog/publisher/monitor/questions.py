"""What the status page asks the database: a row explained, what was refused, rows by class, the findings of doctor.

Each question has a connection of its own that only reads, and no statement of it takes longer than five seconds: the
page is answered while a flight hangs, and never holds one up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from eventlog.config.load import Config
from eventlog.model import Status
from eventlog.publisher.context import Context, Counters
from eventlog.publisher.doctor import Compare, examine
from eventlog.publisher.explain import explain, explanation_data
from eventlog.publisher.monitor.status import HIDDEN
from eventlog.publisher.open import open_unlocked
from eventlog.publisher.refused import as_data, read_refusals
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


@dataclass(frozen=True, slots=True)
class Questions:
    """Questions about the log of a configuration. ``compare``: what tells doctor how triggers differ from what is
    declared. ``shows_values``: values, keys and a receiver's texts are not hidden. All raise EventlogError.
    """

    config: Config
    compare: Compare
    shows_values: bool

    @contextmanager
    def _reading(self) -> Iterator[Context]:
        with open_unlocked(self.config, Counters()) as context:
            context.dialect.begin_reading(context.connection, _SECONDS)
            yield context

    def explain(self, record_id: int) -> dict[str, Any]:
        """A row of the log, as ``eventlog show --json`` has it."""
        with open_unlocked(self.config, Counters()) as context:
            found = explanation_data(explain(context, record_id, _SECONDS))
        found["errors"] = [{**line, "error_time": str(line["error_time"])} for line in found["errors"]]
        return found if self.shows_values else _without_values(found)

    def errors(self) -> dict[str, Any]:
        """What was refused, as ``eventlog errors --json`` has it."""
        with self._reading() as context:
            groups = read_refusals(context.connection, context.dialect, context.log, _ROWS)
        shown = as_data(groups if self.shows_values else [group._replace(message=HIDDEN) for group in groups])
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
        findings = examine(self.config, self.compare, replace(Limits(), statement=_SECONDS))
        return {
            "findings": [
                {
                    "code": one.code,
                    "level": one.severity,
                    "message": one.text if self.shows_values or one.code not in _QUOTING else HIDDEN,
                    "command": "\n".join(one.mend),
                }
                for one in findings
            ]
        }


def _without_values(found: Mapping[str, Any]) -> dict[str, Any]:
    """An explanation whose values, keys, document and messages are hidden."""

    def hide(value: Any) -> Any:
        return None if value is None else HIDDEN

    return {
        **found,
        "row": {name: hide(value) if name in _PRIVATE_OF_ROW else value for name, value in found["row"].items()},
        "key": hide(found["key"]),
        "state": _without_message(found["state"]),
        "problem": found["problem"] and {**found["problem"], "message": HIDDEN},
        "members": [
            {
                **member,
                "old": hide(member["old"]),
                "new": hide(member["new"]),
                "fate": _without_message(member["fate"]),
            }
            for member in found["members"]
        ],
        "errors": [{**line, "message": HIDDEN} for line in found["errors"]],
        "notes": [],
        "document": hide(found["document"]),
    }


def _without_message(sentence: str) -> str:
    """A sentence up to the message that it quotes, which stands behind a colon and may bear values."""
    return sentence.partition(": ")[0]
