"""The transactions that have written a log and are open: up to which number they leave no row to
come (spec/event-log.md 13.1), and how a command waits for them (11).

What a command decides by the rows that it sees may be wrong by those that are still to commit. So
it writes first, then waits for whoever had written before, and looks again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from eventlog.core.clock import monotonic, sleep
from eventlog.core.ranges import Range
from eventlog.errors import DatabaseError, LogTableError
from eventlog.sql.open_log import OpenLog

PATIENCE: Final = 60.0
"""The number of seconds that a command waits for the transactions that had written the log before.
"""
_MOST_MOMENTS: Final = 64


class WritersHidden(LogTableError):
    """The database no longer shows which transactions have written a log."""


class OpenWriters(NamedTuple):
    """The open writers at a moment."""

    last: int
    """The highest record_id before the moment."""
    writers: frozenset[str]
    """The transactions that had written the log then and are still open. Numbers up to ``last``
    that no snapshot has shown are theirs, or are never given.
    """
    since: float
    """The moment by the monotonic clock."""


@dataclass(slots=True)
class WriterHistory:
    """The looks that one session has had at the writers of a log. They ascend in all their fields,
    since a writer that was open at one look and still is was open at all later ones.
    """

    moments: list[OpenWriters] = field(default_factory=list)

    def take(self, log: OpenLog, last: int) -> list[Range]:
        """Look at the writers. Return the ranges in which writers that have ended since the look
        before may have brought rows. ``last`` is the highest record_id, read before.

        Raises WritersHidden if the database does not show the writers any more.
        """
        writers = log.open_writers()
        if writers is None:
            # The names of the next check may be others.
            self.moments = []
            reason = log.hidden_writers()
            raise WritersHidden(
                "the database no longer shows which transactions have written the log "
                f"{log}{f': {reason}' if reason else ''}"
            )
        ranges = self._follow(writers)
        self._add(OpenWriters(last, writers, monotonic()))
        return ranges

    def pop_ended(self) -> int:
        """Return the record_id up to which no row can appear any more, 0 = none is known, and
        forget the moments that showed it.
        """
        ended = max((seen.last for seen in self.moments if not seen.writers), default=0)
        self.moments = [seen for seen in self.moments if seen.writers]
        return ended

    def _follow(self, writers: frozenset[str]) -> list[Range]:
        followed: list[OpenWriters] = []
        ranges: list[Range] = []
        before = 0
        for seen in self.moments:
            still = seen.writers & writers
            if still != seen.writers:
                ranges.append((before + 1, seen.last))
            before = seen.last
            if followed and followed[-1].writers == still:
                seen = seen._replace(since=followed.pop().since)
            followed.append(seen._replace(writers=still))
        self.moments = followed
        return ranges

    def _add(self, seen: OpenWriters) -> None:
        if all(one.last < seen.last for one in self.moments):
            self.moments.append(seen)
        if len(self.moments) > _MOST_MOMENTS:
            # The looks after one know all of its writers. The first look stays,
            # so that it comes to its end.
            del self.moments[1:-1:2]


def writers_to_await(log: OpenLog) -> frozenset[str] | None:
    """Return the open transactions that have written the log, None if they cannot be awaited: the
    database does not tell them, or this transaction does not see what they commit.
    """
    writers = log.open_writers()
    if writers is None:
        return None
    sees_what_commits = (
        "concurrent_writers" not in log.dialect.capabilities
        or log.connection.get_isolation_level() == "READ COMMITTED"
    )
    return writers if sees_what_commits else None


def wait_for(log: OpenLog, writers: frozenset[str], why: str) -> None:
    """Wait until none of these transactions is open.

    ``why`` shows what may come of them, and what to do once they have ended. Raises DatabaseError
    after ``PATIENCE`` seconds.
    """
    until, rest = monotonic() + PATIENCE, 0.01
    while writers := writers & (log.open_writers() or frozenset()):
        if monotonic() > until:
            raise DatabaseError(
                f"a transaction that has written the log {log} is open for more than {PATIENCE:g} "
                f"s, and {why}"
            )
        sleep(rest)
        rest = min(1.0, rest * 2)
