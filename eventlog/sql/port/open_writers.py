"""The open transactions that have written to a log. These transactions determine up to which
record_id no further row can appear (spec/event-log.md 13.1). Commands can wait for them
(spec/event-log.md 11).

What a command decides from the rows that it sees may be wrong once other transactions have
committed. So the command writes first, then waits for the transactions that had written to the log
before, and checks again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from eventlog.core.clock import monotonic, sleep
from eventlog.core.ranges import Range
from eventlog.errors import DatabaseError, LogTableError
from eventlog.sql.port.open_log import OpenLog

PATIENCE: Final = 60.0
"""The number of seconds that a command waits for open writers."""
MAX_MOMENTS: Final = 64


class WritersHidden(LogTableError):
    """The database no longer shows which transactions have written to a log."""


class OpenWriters(NamedTuple):
    """The writers that were open at one moment."""

    last: int
    """The highest record_id, read before that moment."""
    writers: frozenset[str]
    """The transactions that had written to the log by that moment and are still open. If no
    database snapshot has shown a record_id up to ``last``, it belongs to one of these transactions
    or will never be used.
    """
    since: float
    """The moment, by the monotonic clock."""


@dataclass(slots=True)
class WriterHistory:
    """The checks of one session for the open writers of a log. The fields of ``moments`` ascend
    from check to check: ``writers`` does so because a writer that was open at one check and is
    still open was open at all checks in between.
    """

    moments: list[OpenWriters] = field(default_factory=list)

    def take(self, log: OpenLog, last: int) -> list[Range]:
        """Check the writers. Return the ranges in which writers that have ended since the last
        check may have added rows. ``last`` is the highest record_id, read before this call.

        Raises WritersHidden if the database no longer shows the writers.
        """
        writers = log.open_writers()
        if writers is None:
            # The next check may then show other names.
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
        """Return the record_id up to which no further row can appear, 0 = unknown, and forget the
        checks that showed it.
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
        if len(self.moments) > MAX_MOMENTS:
            # Later checks include all writers of a dropped check. The first check stays, so that
            # its writers can still end.
            del self.moments[1:-1:2]


def writers_to_await(log: OpenLog) -> frozenset[str] | None:
    """Return the open transactions that have written to the log. None if waiting for them is
    impossible: the database does not show them, or this transaction would not see what they commit.
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

    ``why`` is for the message: what may go wrong because of them, and what to do once they have
    ended. Raises DatabaseError after ``PATIENCE`` seconds.
    """
    until, rest = monotonic() + PATIENCE, 0.01
    while writers := writers & (log.open_writers() or frozenset()):
        if monotonic() > until:
            raise DatabaseError(
                f"a transaction that has written to the log {log} has been open for more than "
                f"{PATIENCE:g} s, and {why}"
            )
        sleep(rest)
        rest = min(1.0, rest * 2)
