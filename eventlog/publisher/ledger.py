"""Where it is written down which rows of a log are done: the one difference between its publisher and its consumers.

The publisher's ledger is the letters of the rows (spec/event-log.md 2), that of a consumer a set of record_ids
(spec/event-log.md 13.1). A ledger says what is read next, writes what is done, and whose lines in flight a crash left.
It is asked by the one thread that works with the connection. No method but ``lock`` ends a transaction.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from typing import Any, Final, NamedTuple, Protocol

from sqlalchemy import Connection

from eventlog.core.record_set import RecordSet
from eventlog.errors import AnotherPublisher, ConsumerRuns
from eventlog.model import Status
from eventlog.sql import consumers
from eventlog.sql.dialect import Dialect
from eventlog.sql.epoch import note_removed
from eventlog.sql.followed_set import FollowedSet
from eventlog.sql.log_table import LogTable, check_rights
from eventlog.sql.rows import count_queue, tail
from eventlog.sql.windows import Queue, Window, to_ranges

Writers = frozenset[str] | None
"""Transactions of others that had written the log and were open; None = not known, and nobody may go on."""


class QueueScan(NamedTuple):
    """The rest of a scan: record_ids ``first`` to ``last``, None = to the tail; ``writers`` when it began.

    ``past``: how many rows more it has read past than taken. ``passes``: it leaves gaps out that ``writers`` may fill.
    """

    first: int
    last: int | None
    writers: Writers
    past: int = 0
    passes: bool = False

    @property
    def is_begun(self) -> bool:
        """Whether a window of it has been read."""
        return self.first > 1

    @property
    def rests_on_writers(self) -> bool:
        """Whether its next window counts only if nobody of ``writers`` has ended."""
        return self.is_begun or self.passes


class Ledger(Protocol):
    """Which rows of a log are done.

    ``consumer``: whose lines in flight are its own, by the consumer's name; empty = the publisher's. ``statuses``: the
    letters of rows that can be something to do.
    """

    @property
    def consumer(self) -> str: ...

    @property
    def statuses(self) -> frozenset[str]: ...

    @property
    def ranges(self) -> int | None:
        """How many ranges the set of a consumer has, None for the publisher."""
        ...

    def lock(self, conn: Connection, dialect: Dialect, log: LogTable) -> None:
        """Keep others from working with this ledger until the session ends. Ends the transaction.

        Raises AnotherPublisher.
        """
        ...

    def check_rights(self, conn: Connection, dialect: Dialect, log: LogTable, *, deletes: bool) -> None:
        """Raise LogTableError that names the rights which this session lacks."""
        ...

    def recover(self, conn: Connection, dialect: Dialect, log: LogTable) -> None:
        """Read what is done, after a connection was made or what was in memory is to be dropped."""
        ...

    def loading(self, conn: Connection, log: LogTable) -> tuple[datetime, dict[str, Any]] | None:
        """What is sent before the log is read: when the snapshot was asked for, and how far it is; None = nothing."""
        ...

    def begin_scan(self, conn: Connection, dialect: Dialect, log: LogTable, *, is_long: bool) -> QueueScan | None:
        """A scan from the head on; None if there is nothing to do, or if what ``loading`` says comes first.

        ``is_long``: one window will not do.
        """
        ...

    def rest(self, scan: QueueScan, next_first: int, past: int) -> QueueScan:
        """What is left of a scan whose next window would begin at ``next_first``."""
        ...

    def leave_out(self, scan: QueueScan, shown: Sequence[int]) -> frozenset[int]:
        """Have what is left of a scan leave out rows that stay undone; those that its reader has to leave out itself.

        ``shown``: those of the window before, ascending. Nothing is written.
        """
        ...

    def runs(self, conn: Connection, dialect: Dialect, log: LogTable) -> bool:
        """Whether any session works with this ledger."""
        ...

    def letter(self, record_id: int, status: str) -> str:
        """N if the row is to be done, else what became of it as far as the ledger tells."""
        ...

    def undone(self, window: Window) -> Window:
        """The window, of those of its rows that are not done."""
        ...

    def queue(self, conn: Connection, dialect: Dialect, log: LogTable, event_time_zone: str) -> Queue:
        """How much waits, for a line of the log."""
        ...

    def tail(self, conn: Connection, log: LogTable) -> int | None:
        """The highest record_id that may be something to do, None if there is none."""
        ...

    def count(self, conn: Connection, dialect: Dialect, log: LogTable, most: int) -> int:
        """How many rows are not done, counted up to ``most``."""
        ...

    def write(
        self,
        conn: Connection,
        dialect: Dialect,
        log: LogTable,
        letters: Mapping[Status, Sequence[int]],
        retained: Sequence[int] = (),
        *,
        deletes: bool = False,
    ) -> None:
        """Write that rows are done, by the letters that they get.

        ``deletes``: rows S and W are deleted, but for those ``retained``, which are S.
        """
        ...


# --- the publisher's --------------------------------------------------------------------------------------------------


class StatusLedger:
    """The letters of the rows: what has N is to be done."""

    __slots__ = ()

    consumer = ""
    statuses = frozenset({Status.NEW.value})
    ranges = None

    def lock(self, conn: Connection, dialect: Dialect, log: LogTable) -> None:
        is_ours = dialect.try_lock(conn, log)
        conn.commit()  # from here on the session writes
        is_ours = is_ours and dialect.claim(conn, log)
        conn.commit()
        if not is_ours:
            raise AnotherPublisher(
                f"the log {log} is already being published; stop the other publisher (or the Spark job that marks), or "
                "give this one another log"
            )

    def check_rights(self, conn: Connection, dialect: Dialect, log: LogTable, *, deletes: bool) -> None:
        check_rights(conn, dialect, log, delete=deletes)

    def recover(self, conn: Connection, dialect: Dialect, log: LogTable) -> None:
        """Nothing is in memory."""

    def loading(self, conn: Connection, log: LogTable) -> tuple[datetime, dict[str, Any]] | None:
        return None

    def begin_scan(self, conn: Connection, dialect: Dialect, log: LogTable, *, is_long: bool) -> QueueScan | None:
        last = tail(conn, log)
        # After the tail: whoever has a record_id below it is among the writers, or can be seen by now.
        return None if last is None else QueueScan(1, last, dialect.open_writers(conn, log) if is_long else None)

    def rest(self, scan: QueueScan, next_first: int, past: int) -> QueueScan:
        return scan._replace(first=next_first, past=scan.past + past)

    def leave_out(self, scan: QueueScan, shown: Sequence[int]) -> frozenset[int]:
        return frozenset(shown[bisect_left(shown, scan.first) :])

    def runs(self, conn: Connection, dialect: Dialect, log: LogTable) -> bool:
        return dialect.is_locked(conn, log)

    def letter(self, record_id: int, status: str) -> str:
        return status.rstrip(" ")

    def undone(self, window: Window) -> Window:
        return window

    def queue(self, conn: Connection, dialect: Dialect, log: LogTable, event_time_zone: str) -> Queue:
        return dialect.queue(conn, log, event_time_zone)

    def tail(self, conn: Connection, log: LogTable) -> int | None:
        return tail(conn, log)

    def count(self, conn: Connection, dialect: Dialect, log: LogTable, most: int) -> int:
        return count_queue(conn, log, most)

    def write(
        self,
        conn: Connection,
        dialect: Dialect,
        log: LogTable,
        letters: Mapping[Status, Sequence[int]],
        retained: Sequence[int] = (),
        *,
        deletes: bool = False,
    ) -> None:
        """One statement a letter."""
        # A consumer that has not read a row yet would lose it (spec/event-log.md 13.4).
        deletes = deletes and not are_registered(conn, dialect, log)
        removed = 0
        for letter, record_ids in letters.items():
            ranges = to_ranges(sorted(record_ids))
            if ranges and deletes and letter in (Status.SUCCESS, Status.WARNING):
                dialect.delete(conn, log, ranges)
                removed = max(removed, ranges[-1][1])
            elif ranges:
                dialect.mark(conn, log, letter, ranges)
        if retained:
            dialect.mark(conn, log, Status.SUCCESS, to_ranges(sorted(retained)))
        if removed:
            note_removed(conn, log, removed)


def are_registered(conn: Connection, dialect: Dialect, log: LogTable) -> bool:
    """Whether there are consumers, under the lock that keeps new ones away to the end of the transaction."""
    if not consumers.has_table(conn, log):
        return False
    dialect.lock_removing(conn, log)
    return consumers.has_consumers(conn, log)


LETTERS: Final = StatusLedger()


# --- a consumer's -----------------------------------------------------------------------------------------------------

_SMALL: Final = 1_000
"""Ranges of a set that is written whole whenever rows join it."""
_MOST_COUNTED: Final = 10_000


@dataclass(slots=True)
class SetLedger:
    """A set of record_ids, in memory and in the line of the consumer.

    ``begins``: where the consumer begins if it is new. ``recent``: what has joined the set since the line got it whole,
    None = it has not got it from this session. ``is_changed``: the set has changed otherwise.
    """

    consumer: str
    begins: str = consumers.NOW
    followed: FollowedSet = field(default_factory=FollowedSet)
    recent: RecordSet | None = None
    is_changed: bool = False

    statuses = frozenset(status.value for status in Status)

    @property
    def ranges(self) -> int | None:
        return len(self.followed.done.ranges)

    def lock(self, conn: Connection, dialect: Dialect, log: LogTable) -> None:
        is_ours = dialect.try_consumer_lock(conn, log, self.consumer)
        conn.commit()  # from here on the session writes
        if not is_ours:
            raise ConsumerRuns(
                f"consumer {self.consumer!r} of the log {log} runs already: this process may wait until it ends, or "
                "give this one another name"
            )
        if consumers.read_consumer(conn, log, self.consumer) is None:
            consumers.register(conn, dialect, log, self.consumer, self.begins)
        conn.commit()

    def check_rights(self, conn: Connection, dialect: Dialect, log: LogTable, *, deletes: bool) -> None:
        consumers.check_possible(conn, dialect, log)
        check_rights(conn, dialect, log, missing=dialect.missing_consumer_rights(conn, log))

    def recover(self, conn: Connection, dialect: Dialect, log: LogTable) -> None:
        line = consumers.read_consumer(conn, log, self.consumer)
        # Whom it knew is forgotten: a prepared transaction has another name after a restart of the server.
        self.followed = FollowedSet(consumers.first_set(conn, dialect, log, self.begins) if line is None else line.done)
        self.recent, self.is_changed = None, False

    def loading(self, conn: Connection, log: LogTable) -> tuple[datetime, dict[str, Any]] | None:
        return consumers.loading(conn, log, self.consumer)

    def begin_scan(self, conn: Connection, dialect: Dialect, log: LogTable, *, is_long: bool) -> QueueScan | None:
        again = consumers.pop_requeued(conn, log, self.consumer)
        if again.rows:
            self.followed.discard(again.rows)
            self.is_changed = True
        if again.objects:
            consumers.write_loaded(conn, log, self.consumer, {"again": again.objects})
            self.write(conn, dialect, log, {})
            return None
        self.is_changed = self.followed.look(conn, dialect, log) or self.is_changed
        return QueueScan(1, self.followed.done.top, self.followed.writers, passes=True)

    def rest(self, scan: QueueScan, next_first: int, past: int) -> QueueScan:
        # Every window begins at the head: nobody's writers are known, so that a new scan begins.
        return QueueScan(1, scan.last, None)

    def leave_out(self, scan: QueueScan, shown: Sequence[int]) -> frozenset[int]:
        self.followed.passed.add(to_ranges(shown))
        return frozenset()

    def runs(self, conn: Connection, dialect: Dialect, log: LogTable) -> bool:
        return dialect.is_consumer_locked(conn, log, self.consumer)

    def letter(self, record_id: int, status: str) -> str:
        letter = status.rstrip(" ")
        if letter not in self.statuses:
            return letter
        return (Status.SUCCESS if record_id in self.followed.done else Status.NEW).value

    def undone(self, window: Window) -> Window:
        last = Dialect.last_record_id if window.last is None else window.last
        return replace(window, gaps=tuple(self.followed.passed.gaps(last)))

    def queue(self, conn: Connection, dialect: Dialect, log: LogTable, event_time_zone: str) -> Queue:
        return Queue(self.count(conn, dialect, log, _MOST_COUNTED), None)

    def tail(self, conn: Connection, log: LogTable) -> int | None:
        return consumers.highest_row(conn, log)

    def count(self, conn: Connection, dialect: Dialect, log: LogTable, most: int) -> int:
        return consumers.count_behind(conn, dialect, log, self.followed.passed, most)

    def write(
        self,
        conn: Connection,
        dialect: Dialect,
        log: LogTable,
        letters: Mapping[Status, Sequence[int]],
        retained: Sequence[int] = (),
        *,
        deletes: bool = False,
    ) -> None:
        """One statement, if there is something to write. What comes of a failure is that ``recover`` is called."""
        ranges = to_ranges(sorted(chain(retained, *letters.values())))
        if not ranges and not self.is_changed:
            return
        self.followed.add(ranges)
        done, recent = self.followed.done, self.recent
        if recent is not None:
            recent.add(ranges)
        if recent is None or self.is_changed or len(done.ranges) <= _SMALL or len(recent.ranges) > _SMALL:
            consumers.write_done(conn, dialect, log, self.consumer, done, moved=bool(ranges))
            self.recent, self.is_changed = RecordSet(), False
        else:
            consumers.write_recent(conn, dialect, log, self.consumer, recent)


def ledger_of(consumer: str | None, begins: str = consumers.NOW) -> Ledger:
    """The ledger of a consumer, None = of the publisher. ``begins``: where the consumer begins if it is new."""
    return LETTERS if consumer is None else SetLedger(consumer, begins)
