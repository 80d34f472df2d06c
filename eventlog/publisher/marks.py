"""What is written to the log about rows that are done (spec/event-log.md 7.3, 8.4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

from eventlog.core.checks import BadRow
from eventlog.core.events import Fates, Outgoing
from eventlog.model import Level, Status, Verdict
from eventlog.publisher.context import Context
from eventlog.sql.rows import add_errors
from eventlog.sql.windows import to_ranges

_LETTERS = {
    Level.SUCCESS: Status.SUCCESS,
    Level.WARNING: Status.WARNING,
    Level.ERROR: Status.ERROR,
    Level.FATAL: Status.FATAL,
}


@dataclass(slots=True)
class Marks:
    """Marks and error lines that are collected and then written together. Each use begins with a new one.

    ``kept``: rows to be marked S that ``delete_from_log`` does not delete.
    """

    letters: dict[str, list[int]] = field(default_factory=dict)
    kept: list[int] = field(default_factory=list)
    errors: list[BadRow] = field(default_factory=list)

    def add(self, letter: str, record_ids: Iterable[int]) -> None:
        self.letters.setdefault(letter, []).extend(record_ids)

    def add_bad(self, bad: Iterable[BadRow]) -> None:
        """Rows that failed a check or whose value read back cannot be written: E, with a line each."""
        for row in bad:
            self.add(Status.ERROR, (row.record_id,))
            self.errors.append(row)

    def add_answered(self, events: Sequence[Outgoing], verdict: Verdict) -> None:
        """The rows of events that got an answer other than retry; what precedence dropped is S whatever it says."""
        record_ids = list(chain.from_iterable([event.contributed for event in events]))
        self.add(_LETTERS[verdict.level], record_ids)
        if verdict.level in (Level.ERROR, Level.FATAL):
            message = verdict.message or f"the receiver answered {verdict.level.name.lower()}"
            self.errors.extend(BadRow(record_id, "receiver", message) for record_id in record_ids)
        for event in events:
            if event.fates is not None:
                self.add_fates(event.fates)

    def add_fates(self, fates: Fates) -> None:
        """The rows of a group that do not depend on an answer."""
        for record_ids in (fates.dropped, fates.gone, fates.empty):
            if record_ids:
                self.add(Status.SUCCESS, record_ids)
        self.add_bad(fates.bad)

    def write(self, context: Context) -> None:
        """Write them in the current transaction: one statement a letter, one for the error lines."""
        for letter, record_ids in self.letters.items():
            ranges = to_ranges(sorted(record_ids))
            if not ranges:
                continue
            if context.options.delete_from_log and letter in (Status.SUCCESS, Status.WARNING):
                context.dialect.delete(context.connection, context.log, ranges)
            else:
                context.dialect.mark(context.connection, context.log, letter, ranges)
        if self.kept:
            kept = to_ranges(sorted(self.kept))
            context.dialect.mark(context.connection, context.log, Status.SUCCESS, kept)
        if self.errors:
            add_errors(context.connection, context.log, self.errors)
