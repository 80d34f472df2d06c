"""A set of record_ids that follows a log (spec/event-log.md 13.1): some of its gaps are closed,
others skipped for now.

A number that a snapshot does not show belongs to a transaction that was open before the snapshot,
or is never given. A reader that has found a gap empty has to read it again only when one of the
transactions that were open then has ended. The gap can be closed when all of them have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from sqlalchemy import Connection

from eventlog.core.clock import monotonic
from eventlog.core.ranges import Ranges, RecordSet, to_ranges
from eventlog.errors import LogTableError
from eventlog.sql.consumers import shown_ids
from eventlog.sql.dialect import Dialect
from eventlog.sql.log_table import LogTable
from eventlog.sql.windows import ANY_LETTER, Window

OLD: Final = 1.0
"""The number of seconds after which a look is old: writers that were open then and still are will
probably stay open for a while.
"""
_MOST_LOOKS: Final = 64
_MOST_SHOWN: Final = 10_000
"""The number of rows in gaps that are read before gaps are closed or skipped."""


class Look(NamedTuple):
    """The open writers at a moment.

    ``last`` is the record_id up to which the set went right before. ``writers`` are the
    transactions that had written the log then and are still open: numbers up to ``last`` that no
    snapshot has shown are theirs, or are never given. ``since`` is the moment by the monotonic
    clock.
    """

    last: int
    writers: frozenset[str]
    since: float


@dataclass(slots=True)
class FollowedSet:
    """The rows of a log that are done, and those that need not be read, as one session knows them.

    ``top`` is the record_id up to which gaps are looked into at least, if the set ends below it.
    ``rows`` says which rows of a gap are not done. ``passed`` are the done rows and the skipped
    gaps, in which only rows of ``writers`` may appear. ``looks`` ascend in all their fields, since
    a writer that was open at one look and still is was open at all later ones. ``shown`` are the
    rows that were last read in the gaps, and when.
    """

    done: RecordSet = field(default_factory=RecordSet)
    top: int = 0
    rows: Window = ANY_LETTER
    passed: RecordSet = field(init=False)
    writers: frozenset[str] = frozenset()
    looks: list[Look] = field(default_factory=list)
    shown: tuple[Sequence[int], float] = ((), 0.0)

    def __post_init__(self) -> None:
        self.passed = self.done.copy()

    def add(self, ranges: Ranges) -> None:
        """Add rows to the done ones."""
        self.done.add(ranges)
        self.passed.add(ranges)

    def discard(self, ranges: Ranges) -> None:
        """Remove rows from the done ones."""
        self.done.discard(ranges)
        self.passed.discard(ranges)

    def look(self, conn: Connection, dialect: Dialect, log: LogTable) -> bool:
        """Close gaps that stay empty, skip gaps that cannot be filled yet, and return whether some
        were closed.

        A statement that then reads outside of ``passed`` counts if ``writers`` were still open
        after it (``Dialect.are_open``). Else one of their rows may be in a gap, and the statement
        may have read a later one.
        """
        self.writers = frozenset()
        top = max(self.done.top, self.top)
        if self.done.floor >= top:
            self.looks.clear()
            self.passed = self.done.copy()
            return False
        # The writers are read after the highest record_id.
        writers = dialect.open_writers(conn, log)
        if writers is None:
            raise LogTableError(
                f"the database does not tell any more who has written the log {log}"
            )
        now = monotonic()
        self._follow(writers)
        self._add_look(Look(top, writers, now))
        closed = max((look.last for look in self.looks if not look.writers), default=0)
        self.looks = [look for look in self.looks if look.writers]
        last = closed
        old = [look for look in self.looks if look.since <= now - OLD]
        if old and dialect.are_open(conn, old[-1].writers):
            last, self.writers = max(closed, old[-1].last), old[-1].writers
        else:
            self.passed = self.done.copy()
        return self._pass_over(conn, dialect, log, last, closed) if last else False

    def _follow(self, writers: frozenset[str]) -> None:
        """Let gaps be read again that may have new rows, and forget writers that have ended."""
        followed: list[Look] = []
        before = self.done.floor
        for look in self.looks:
            still = look.writers & writers
            if still != look.writers:
                self.passed.discard(self.done.gaps(look.last, before))
            before = look.last
            if followed and followed[-1].writers == still:
                look = look._replace(since=followed.pop().since)
            followed.append(look._replace(writers=still))
        self.looks = followed

    def _add_look(self, look: Look) -> None:
        if all(one.last < look.last for one in self.looks):
            self.looks.append(look)
        if len(self.looks) > _MOST_LOOKS:
            # The looks behind one know all of its writers. The first look stays,
            # so that it comes to its end.
            del self.looks[1:-1:2]

    def _pass_over(
        self, conn: Connection, dialect: Dialect, log: LogTable, last: int, closed: int
    ) -> bool:
        """Read the rows in the gaps up to ``last``, and skip the rest of the gaps; up to ``closed``
        the rest is done.
        """
        gaps = self.passed.gaps(last)
        shown, since = self.shown
        # A gap that is full of rows has no room for one that was not seen; a row may be done by
        # another hand.
        if gaps != to_ranges(shown) or since <= monotonic() - OLD:
            # A statement of its own: its snapshot is taken after the end of the transactions that
            # are missing among the writers.
            window = replace(self.rows, limit=_MOST_SHOWN).outside(self.passed, last)
            shown = shown_ids(conn, dialect, log, window) if window.gaps else []
            if len(shown) == _MOST_SHOWN:
                last = shown[-1]
            shown = [one for one in shown if one not in self.passed]
            self.shown = shown, monotonic()
        self.passed.decide(last, shown)
        closed = min(closed, last)
        before = self.done.floor, len(self.done.ranges)
        self.done.decide(closed, [one for one in shown if one <= closed])
        return before != (self.done.floor, len(self.done.ranges))
