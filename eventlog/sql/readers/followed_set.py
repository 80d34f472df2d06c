"""A set of record_ids that follows a log (spec/event-log.md 13.1): some of its gaps are closed,
other gaps are skipped for now.

A record_id that a database snapshot does not show belongs to a transaction that was open at the
snapshot, or will never be used. A reader that has found a gap empty has to read the gap again only
when a transaction that was open at the snapshot has ended. The reader can close the gap when all of
these transactions have ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from eventlog.core.clock import monotonic
from eventlog.core.ranges import Ranges, RecordSet, to_ranges
from eventlog.sql.port.log_operations import ANY_STATUS, Window
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.open_writers import WriterHistory
from eventlog.sql.readers.consumers import shown_ids

OLD: Final = 1.0
"""The number of seconds after which a check is old: writers that were open at the check and are
still open will probably stay open for a while.
"""
MAX_SHOWN: Final = 10_000
"""The maximum number of rows in gaps that are read before gaps are closed or skipped."""


@dataclass(slots=True)
class FollowedSet:
    """The done rows of a log, and the gaps that need not be read, as one session sees them."""

    done: RecordSet = field(default_factory=RecordSet)
    top: int = 0
    """The record_id up to which gaps are read even if the set ends below it."""
    rows: Window = ANY_STATUS
    """The window that shows which rows of a gap are not done."""
    passed: RecordSet = field(init=False)
    """The done rows and the skipped gaps. Only ``writers`` may add rows to the skipped gaps."""
    writers: frozenset[str] = frozenset()
    history: WriterHistory = field(default_factory=WriterHistory)
    shown: tuple[Sequence[int], float] = ((), 0.0)
    """The rows that were last read in the gaps, and the time of that reading."""

    def __post_init__(self) -> None:
        self.passed = self.done.copy()

    def add(self, ranges: Ranges) -> None:
        """Mark rows as done."""
        self.done.add(ranges)
        self.passed.add(ranges)

    def discard(self, ranges: Ranges) -> None:
        """Mark rows as not done."""
        self.done.discard(ranges)
        self.passed.discard(ranges)

    @property
    def has_gaps(self) -> bool:
        """True if a row may still appear below a done row."""
        return self.done.floor < max(self.done.top, self.top)

    def poll(self, log: OpenLog) -> bool:
        """Close gaps that stay empty, skip gaps that cannot be filled yet, and return whether gaps
        were closed.

        The result of a later statement that reads outside of ``passed`` is valid if ``writers``
        were still open after that statement (``are_open``). Otherwise a row of these writers may
        have appeared in a skipped gap, while the statement read a later row of the same object.
        """
        self.writers = frozenset()
        top = max(self.done.top, self.top)
        if not self.has_gaps:
            self.history = WriterHistory()
            self.passed = self.done.copy()
            return False
        for first, end in self.history.take(log, top):
            # A row may have come into a gap that was skipped.
            self.passed.discard(self.done.gaps(end, first - 1))
        last = closed = self.history.pop_ended()
        old = [poll for poll in self.history.moments if poll.since <= monotonic() - OLD]
        if old and log.db.are_open(old[-1].writers):
            last, self.writers = max(closed, old[-1].last), old[-1].writers
        else:
            self.passed = self.done.copy()
        return self._pass_over(log, last, closed) if last else False

    def _pass_over(self, log: OpenLog, last: int, closed: int) -> bool:
        """Read the rows in the gaps up to ``last``, and skip the rest of the gaps for now.
        Record_ids up to ``closed`` without a row count as done permanently.
        """
        gaps = self.passed.gaps(last)
        shown, since = self.shown
        # No new row can appear in a gap that is full of rows, but another process may have done one
        # of them.
        if gaps != to_ranges(shown) or since <= monotonic() - OLD:
            # A separate statement, so that its database snapshot postdates the transactions that
            # have ended.
            window = replace(self.rows, limit=MAX_SHOWN).outside(self.passed, last)
            shown = shown_ids(log, window) if window.gaps else []
            if len(shown) == MAX_SHOWN:
                last = shown[-1]
            shown = [one for one in shown if one not in self.passed]
            self.shown = shown, monotonic()
        self.passed.decide(last, shown)
        closed = min(closed, last)
        before = self.done.floor, len(self.done.ranges)
        self.done.decide(closed, [one for one in shown if one <= closed])
        return before != (self.done.floor, len(self.done.ranges))
