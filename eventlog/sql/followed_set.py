"""A set of record_ids that follows a log (spec/event-log.md 13.1): which of its gaps are closed, which are passed over.

A number that a snapshot does not show is of a transaction that was open before the snapshot, or is never given. So who
has seen that nothing stands in a gap needs to read it again only when one of the transactions has ended that were open
then, and it can be closed when all of them have.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sqlalchemy import Connection

from eventlog.core.record_set import RecordSet
from eventlog.errors import LogTableError
from eventlog.sql.consumers import behind, shown_ids
from eventlog.sql.dialect import Dialect
from eventlog.sql.log_table import LogTable
from eventlog.sql.windows import Ranges

OLD: Final = 1.0
"""Seconds after which a look is old: who was open then and is open still will probably be for a while."""
_MOST_LOOKS: Final = 64
_MOST_SHOWN: Final = 10_000
"""Rows in gaps that are looked at before gaps are closed, or passed over."""


class Look(NamedTuple):
    """The open writers at a moment. ``last``: the highest record_id of the set right before. ``writers``: those that
    had written the log then and are open still: the numbers up to ``last`` that no snapshot has shown are theirs, or
    are never given. ``since``: the moment, by the monotonic clock.
    """

    last: int
    writers: frozenset[str]
    since: float


@dataclass(slots=True)
class FollowedSet:
    """What is done of a log, and what need not be read of it, as one session knows it.

    ``passed``: what is done, and the gaps that are passed over: rows of ``writers`` alone may come to them. ``looks``:
    ascending in all they say, since who was open at one and is open still was open at all later ones.
    """

    done: RecordSet = field(default_factory=RecordSet)
    passed: RecordSet = field(init=False)
    writers: frozenset[str] = frozenset()
    looks: list[Look] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.passed = self.done.copy()

    def add(self, ranges: Ranges) -> None:
        """Take rows for done."""
        self.done.add(ranges)
        self.passed.add(ranges)

    def discard(self, ranges: Ranges) -> None:
        """Take rows for not done."""
        self.done.discard(ranges)
        self.passed.discard(ranges)

    def look(self, conn: Connection, dialect: Dialect, log: LogTable) -> bool:
        """Close gaps that stay gaps, and pass over those that cannot be filled yet; whether some were closed.

        What a statement then reads outside of ``passed`` counts if ``writers`` still were open after it
        (``Dialect.are_open``): else a row of theirs may stand in a gap, and what was read be of a later one.
        """
        self.writers = frozenset()
        if not self.done.ranges:
            self.looks.clear()
            self.passed = self.done.copy()
            return False
        top = self.done.top
        # After the highest record_id was seen.
        writers = dialect.open_writers(conn, log)
        if writers is None:
            raise LogTableError(f"the database does not tell any more who has written the log {log}")
        now = time.monotonic()
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
        """Have the gaps read again that rows may have come to, and forget who has ended."""
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
            # What follows a look knows all of its writers. The first one stays, so that it comes to its end.
            del self.looks[1:-1:2]

    def _pass_over(self, conn: Connection, dialect: Dialect, log: LogTable, last: int, closed: int) -> bool:
        """Look what stands in the gaps up to ``last``; pass over the rest of them, which up to ``closed`` is done."""
        # By a statement of its own: its snapshot is taken after those have ended that are missing among the writers.
        gaps = behind(self.passed, dialect, last, _MOST_SHOWN)
        shown = shown_ids(conn, dialect, log, gaps) if gaps.gaps else []
        if len(shown) == _MOST_SHOWN:
            last = shown[-1]
        self.passed.decide(last, shown)
        closed = min(closed, last)
        before = self.done.floor, len(self.done.ranges)
        self.done.decide(closed, [one for one in shown if one <= closed])
        return before != (self.done.floor, len(self.done.ranges))
