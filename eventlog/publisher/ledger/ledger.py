"""The ledger of a log's done rows. A log's publisher and its consumers differ only in their
ledgers.

The publisher's ledger consists of the statuses of the rows (spec/event-log.md 2). A consumer's
ledger is a set of record_ids (spec/event-log.md 13.1). A ledger selects the rows to read next,
records done rows, and names the owner of in-flight entries. Only the thread that works with the
connection may use it. Only ``lock``, ``register`` and ``undo_registration`` end a transaction.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import datetime
from itertools import chain
from typing import Any, ClassVar, Final, NamedTuple

from eventlog.core.clock import monotonic, sleep
from eventlog.core.ranges import Ranges, RecordSet, length, to_ranges
from eventlog.errors import ConsumerRuns, LostSession, PublisherAlreadyRunning
from eventlog.model import Status, unpadded
from eventlog.sql.log.epoch import note_removed
from eventlog.sql.log.internal_tables import (
    EntryKind,
    delete_entry,
    record_delivery,
    sees_requests,
)
from eventlog.sql.log.pauses import Pause, read_pause
from eventlog.sql.log.recorded_masks import NO_MASKS, RecordedMasks
from eventlog.sql.log.requests import ask_again, is_requested, take_requests
from eventlog.sql.log.rows import count_queue, tail
from eventlog.sql.port.database import LockHolder
from eventlog.sql.port.dialect import Dialect
from eventlog.sql.port.log_operations import Window
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.open_writers import WritersHidden
from eventlog.sql.port.rights import Purpose
from eventlog.sql.readers import consumers
from eventlog.sql.readers.followed_set import FollowedSet

_log = logging.getLogger("eventlog.publisher")

Writers = frozenset[str] | None
"""The open transactions of other sessions that have written to the log; None = unknown, so that a
scan must not be continued.
"""


class QueueScan(NamedTuple):
    """The rest of a scan."""

    first: int
    last: int | None
    """The last record_id of the rest, None = up to the tail of the queue. ``first`` is the first
    record_id of the rest.
    """
    writers: Writers
    """The writers when the scan began."""
    past: int = 0
    """The number of rows that were passed over, minus the number of rows that were used."""
    passes: bool = False
    """True if the scan leaves out gaps that ``writers`` may fill."""
    rows: Iterator[list[tuple[Any, ...]]] | None = None
    """The rows of the first window, if they have been read already."""

    @property
    def is_begun(self) -> bool:
        """True if a window of the scan has been read."""
        return self.first > 1

    @property
    def rests_on_writers(self) -> bool:
        """True if the next window is valid only while all of ``writers`` are open."""
        return self.is_begun or self.passes


class Unmarked(NamedTuple):
    """The rows that a mark did not change."""

    gone: int = 0
    """The number of unchanged rows that no longer exist in the log."""
    taken: frozenset[int] = frozenset()
    """The unchanged rows whose status was not N, because somebody had set it by hand. If somebody
    may have set the status that the mark sets, ``taken`` has all rows that still exist.
    """


@dataclass(slots=True, eq=False)
class Ledger(ABC):
    """The done rows of a log."""

    log: OpenLog
    consumer: str = ""
    """The owner of the in-flight entries that belong to the ledger, empty = the publisher."""
    _: KW_ONLY
    durable_marks: bool = True
    """If False, the marks that end a delivery do not wait for the disk (spec/event-log.md 8.4)."""
    has_taken_requests: bool = False
    """True if the last scan began with rows that were queued again."""
    masks: RecordedMasks | None = NO_MASKS
    """The recorded masks of the reader, None = they are unknown (spec/event-log.md 15.3)."""

    statuses: ClassVar[frozenset[str]]
    """The statuses of rows that may still have to be processed."""
    purpose: ClassVar[Purpose]
    """The purpose that determines which rights are needed to work with the ledger
    (spec/event-log.md 11.1).
    """

    @property
    def reader(self) -> str:
        """The reader in words."""
        return f"consumer {self.consumer}" if self.consumer else "the publisher"

    @abstractmethod
    def lock(self, lost: LockHolder | None = None) -> LockHolder | None:
        """Lock this ledger until the session ends. Ends the transaction.

        ``lost`` is the session in which this process had the lock before. Returns the session that
        has the lock now, None if the database does not show it. Raises LostSession if ``lost`` has
        the lock, and PublisherAlreadyRunning if another session has the lock.
        """

    def register(self) -> None:  # noqa: B027 - a publisher is not registered
        """Register the reader if it is a new consumer. The caller has locked the ledger. Ends the
        transaction.
        """

    def undo_registration(self) -> None:  # noqa: B027
        """Delete what ``register`` has written, unless the consumer has begun to work. Ends the
        transaction.
        """

    def check_possible(self) -> None:  # noqa: B027 - every database has statuses
        """Raise ConfigError if the database has no such ledger."""

    @abstractmethod
    def recover(self) -> None:
        """Read the done rows when a connection was opened, or to replace the rows in memory."""

    def loading(self) -> tuple[datetime, dict[str, Any]] | None:
        """Return the time when the consumer was registered with a snapshot, and the progress of the
        snapshot. None = there is no snapshot to send before the log is read.
        """
        return None

    def is_requested(self) -> bool:
        """Return True if rows must be sent again before the rest of the present window, or if the
        reader is paused. For a consumer, no other session can request this until the transaction
        ends.
        """
        return is_requested(self.log, self.consumer) or self.read_pause() is not None

    def read_pause(self) -> Pause | None:
        """Return why nothing may be sent now, None = the reader is not paused."""
        return read_pause(self.log, self.consumer)

    def pass_requests(self) -> None:  # noqa: B027 - a consumer remembers its done rows
        """Delete the requests if this is a publisher that remembers no done rows. Requests are not
        needed then, since each scan reads all rows with status N.
        """

    @abstractmethod
    def begin_scan(self, *, is_long: bool) -> QueueScan | None:
        """Return a scan that begins at the head of the queue; None if there is nothing to do, or if
        a snapshot (``loading``) comes first.

        ``is_long`` means that the scan needs more than one window.
        """

    @abstractmethod
    def poll(self, window: Window, fields: Sequence[str]) -> QueueScan | None:
        """Return a scan that begins at the head of the queue. It has the rows of its first window,
        which one statement has read. None if one statement is not enough, or if the reader is
        paused; then call ``read_pause`` and ``begin_scan``.

        ``window`` has the bounds of the first window, and ``fields`` are the fields to read.
        """

    def _polled(
        self, followed: FollowedSet, window: Window, fields: Sequence[str]
    ) -> QueueScan | None:
        """Return the scan of ``poll``. ``followed`` is a set of done rows without gaps."""
        followed.poll(self.log)  # without gaps this runs no statement
        rows = self.log.poll(self.undone(window), fields, self.consumer)
        return None if rows is None else QueueScan(1, followed.done.top, frozenset(), rows=rows)

    @abstractmethod
    def record(
        self, content: str, number: int | None = None, above: int = 0, *, alone: bool
    ) -> int | None:
        """Record a delivery with this ``content`` of its entry under ``number`` (None = a new
        number), and return the number.

        Returns None, and records nothing, if there is a request (``is_requested``), or if the
        number is not above ``above``. ``alone`` is true if nothing else belongs to the transaction.
        """

    @abstractmethod
    def rest(self, scan: QueueScan, next_first: int, past: int) -> QueueScan:
        """Return the rest of a scan whose next window would begin at ``next_first``."""

    @abstractmethod
    def leave_out(self, scan: QueueScan, shown: Sequence[int]) -> frozenset[int]:
        """Let the rest of a scan leave out rows that stay undone. Return the rows that the caller
        must leave out itself.

        ``shown`` are the rows of the previous window, ascending. Nothing is written.
        """

    @abstractmethod
    def undone(self, window: Window) -> Window:
        """Return the window without the rows that are done."""

    def tail(self) -> int | None:
        """Return the highest record_id that may still have to be processed, None if there is no
        such record_id.
        """
        return consumers.highest_row(self.log)

    @abstractmethod
    def write(
        self,
        statuses: Mapping[Status, Sequence[int]],
        retained: Sequence[int] = (),
        *,
        deletes: bool = False,
        ended: int | None = None,
        alone: bool = False,
    ) -> Unmarked:
        """Record that rows are done, by their statuses. Return the rows that were not changed, if
        the ledger checks this.

        With ``deletes``, rows that get S or W are deleted. ``retained`` are rows that become S and
        are not deleted. ``ended`` is the number of a delivery that is done; its entry is deleted.
        ``alone`` is true if nothing else belongs to the transaction.
        """


def refused_lock(
    what: str,
    state: str,
    way_out: str,
    holder: LockHolder | None,
    lost: LockHolder | None = None,
    error: type[PublisherAlreadyRunning] = PublisherAlreadyRunning,
) -> PublisherAlreadyRunning:
    """Return the error for a lock that another session has.

    ``what`` is locked and therefore in this ``state``. ``way_out`` is the advice, except if another
    program has the lock. ``holder`` is the session with the lock, None if the database does not
    show it. ``lost`` is the session that this process has lost.
    """
    if holder is not None and holder == lost:
        return LostSession(
            f"{what} is still locked by the session that this process lost ({holder}); the server "
            "has not noticed yet that the connection is closed. Wait, or end that session"
        )
    if holder is not None and holder.is_other:
        return error(
            f"{what} {state}, or another program keeps its lock: {holder}; end that session, or "
            "let it release the lock"
        )
    who = f"by {holder}" if holder else "(the database does not show by which session)"
    return error(f"{what} {state} {who}; {way_out}")


# --- the publisher's ------------------------------------------------------------------------------

_MIN_REST: Final = 60.0
_SHARE: Final = 100.0
"""After a search for rows that were set to N by hand, the next search waits at least ``_MIN_REST``
seconds, and at least ``_SHARE`` times the duration of the search.
"""
MAX_FOUND: Final = 10_000
"""The maximum number of rows that a search removes from the set. If there may be more rows, the
whole set is forgotten. This bounds memory. It also prevents that an insert with rows on both sides
of the last removed row becomes two events.
"""


def _rest(dialect: Dialect) -> float:
    """Return the least number of seconds between two searches. The number is zero in databases with
    one writer at a time. In these databases, dead entries never slow down a search, and only a
    search notices that the database file was replaced.
    """
    return _MIN_REST if "concurrent_writers" in dialect.capabilities else 0.0


LOCK_WAIT: Final = 2.0
"""The seconds that a command waits for a lock: the server may still be ending the session of the
previous command (spec/event-log.md 12.2).
"""
_LOCK_POLL: Final = 0.1


def lock_within(
    ledger: Ledger, seconds: float, lost: LockHolder | None = None
) -> LockHolder | None:
    """Lock a ledger as its method ``lock`` does, and try again for some seconds while another
    session has the lock.
    """
    end = monotonic() + seconds
    while True:
        try:
            return ledger.lock(lost)
        except PublisherAlreadyRunning:
            if monotonic() >= end:
                raise
        sleep(_LOCK_POLL)


def try_within(try_lock: Callable[[], bool], log: OpenLog) -> bool:
    """Take a lock of a log for this session, and try again for ``LOCK_WAIT`` seconds while another
    session has the lock. Return True if this session now has the lock. Ends the transaction.
    """
    end = monotonic() + LOCK_WAIT
    while not (is_ours := try_lock()) and monotonic() < end:
        log.commit()
        sleep(_LOCK_POLL)
    log.commit()
    return is_ours


@dataclass(slots=True, eq=False)
class StatusLedger(Ledger):
    """The publisher's ledger: the statuses of the rows. A row with status N is not done.

    If a publisher reads rows ``by_number`` and has ``locked`` the log, it remembers which rows are
    done, so that no statement has to pass over them (spec/event-log.md 8.1).
    """

    by_number: bool = False
    skipped_user: str | None = None
    """The perpetrator whose rows are treated as done."""
    followed: FollowedSet | None = None
    """The rows that are done. None = the publisher does not remember done rows, or cannot remember
    them for this log.
    """
    search_at: float = 0.0
    """The time of ``monotonic`` at which the log is searched for rows that were set to N by
    hand.
    """
    writers: Writers = None
    """All writers that were open when the present scan began."""
    highest: int = 0
    """The highest record_id at the last search, 0 = this ledger has deleted rows after it."""
    locked: bool = False

    statuses = frozenset({Status.NEW.value})
    purpose = Purpose.PUBLISHER

    def lock(self, lost: LockHolder | None = None) -> LockHolder | None:
        log = self.log
        is_ours = log.try_lock()
        log.commit()  # from here on the session writes
        self.locked = is_ours and log.claim()
        holder = log.lock_holder()
        log.commit()
        if self.locked:
            return holder
        way_out = (
            "stop the other publisher (or the Spark job that marks), wait for it with [publisher] "
            "standby = true (without --once), or give this one another log"
        )
        raise refused_lock(f"the log {log}", "is already being published", way_out, holder, lost)

    def recover(self) -> None:
        # What this object remembers may be wrong: a rollback or a failover loses marks.
        self.followed = None
        if not self.locked:
            return
        take_requests(self.log)
        if self.by_number and consumers.is_followable(self.log):
            top = consumers.highest_row(self.log) or 0
            self.followed = FollowedSet(top=top, rows=Window(1, None, None, self.skipped_user))
            self.search_at, self.highest = monotonic() + _rest(self.log.dialect), top

    def is_requested(self) -> bool:
        is_asked = self.followed is not None and is_requested(self.log)
        return is_asked or self.read_pause() is not None

    def pass_requests(self) -> None:
        if self.locked and "consumers" in self.log.dialect.capabilities:
            take_requests(self.log)

    def begin_scan(self, *, is_long: bool) -> QueueScan | None:
        self.has_taken_requests = False
        if self.followed is not None and monotonic() >= self.search_at:
            self._search(self.followed)
        followed = self.followed
        if followed is None:
            self.pass_requests()
            last = tail(self.log)
            # The order matters: once the tail has been read, a transaction with a lower record_id
            # is either among the writers or visible.
            self.writers = self.log.open_writers() if is_long and last else None
            return None if last is None else QueueScan(1, last, self.writers)
        requested = take_requests(self.log)
        self.has_taken_requests = bool(requested.rows)
        followed.discard(requested.rows)
        last = consumers.highest_row(self.log) if is_long else followed.done.top
        try:
            followed.poll(self.log)
        except WritersHidden as error:
            # The statuses show which rows are done, so that the set only saves time.
            _log.warning("the publisher reads the queue from its head from now on: %s", error)
            self.followed = None
            return self.begin_scan(is_long=is_long)
        self.writers = self.log.open_writers() if is_long else None
        return QueueScan(1, last, followed.writers, passes=True)

    def poll(self, window: Window, fields: Sequence[str]) -> QueueScan | None:
        followed = self.followed
        if followed is None or followed.has_gaps or monotonic() >= self.search_at:
            return None
        self.writers = None
        return self._polled(followed, window, fields)

    def record(
        self, content: str, number: int | None = None, above: int = 0, *, alone: bool
    ) -> int | None:
        # Without a set of done rows, the queue is read from its head, so requests need no special
        # handling, except that to pause.
        waits = self.followed is not None
        if not waits or not sees_requests(self.log):
            self.log.lock_recording()
            if self.is_requested():
                return None
        return record_delivery(self.log, content, "", number, above, waits=waits, alone=alone)

    def _search(self, followed: FollowedSet) -> None:
        """Search the log for done rows that have status N because somebody has set them back by
        hand.
        """
        begun = monotonic()
        highest = consumers.highest_row(self.log) or 0
        window = replace(followed.rows, limit=MAX_FOUND, gaps=tuple(followed.done.spans))
        if (
            # Somebody has removed rows or restored the database, so record_ids may be used again.
            highest < self.highest
            or len(found := consumers.shown_ids(self.log, window)) == MAX_FOUND
        ):
            self.recover()
        else:
            followed.discard(to_ranges(found))
        now, self.highest = monotonic(), highest
        self.search_at = now + max(_rest(self.log.dialect), _SHARE * (now - begun))

    def rest(self, scan: QueueScan, next_first: int, past: int) -> QueueScan:
        # The writers of the set are among the transactions that were open when the scan began.
        return scan._replace(
            first=next_first, past=scan.past + past, writers=self.writers, rows=None
        )

    def leave_out(self, scan: QueueScan, shown: Sequence[int]) -> frozenset[int]:
        return frozenset(shown[bisect_left(shown, scan.first) :])

    def undone(self, window: Window) -> Window:
        if self.followed is None:
            return window
        last = Dialect.last_record_id if window.last is None else window.last
        return window.outside(self.followed.passed, last)

    def tail(self) -> int | None:
        return tail(self.log) if self.followed is None else consumers.highest_row(self.log)

    def write(
        self,
        statuses: Mapping[Status, Sequence[int]],
        retained: Sequence[int] = (),
        *,
        deletes: bool = False,
        ended: int | None = None,
        alone: bool = False,
    ) -> Unmarked:
        """Run one statement per status, and another statement if that statement changed fewer rows
        than it was given. The first statement also ends the delivery, if the database has a
        statement that does both.
        """
        if ended is None and not retained and not any(statuses.values()):
            return Unmarked()
        # A consumer that has not read the row yet would lose it (spec/event-log.md 13.4).
        deletes = deletes and not are_registered(self.log)
        changes: list[tuple[str | None, Ranges]] = [
            (
                None if deletes and status in (Status.SUCCESS, Status.WARNING) else status,
                to_ranges(sorted(record_ids)),
            )
            for status, record_ids in statuses.items()
            if record_ids
        ]
        if retained:
            changes.append((Status.SUCCESS, to_ranges(sorted(retained))))
        removed = max((ranges[-1][1] for status, ranges in changes if status is None), default=0)
        alone = alone and len(changes) == 1 and not removed
        deleted = 0
        unmarked: list[Unmarked] = []
        for status, ranges in changes:
            if ended is not None and self.log.has_statement("mark_ending"):
                changed = self.log.end_delivery(
                    status, ranges, ended, durable=self.durable_marks, alone=alone
                )
                ended = None
            elif status is None:
                changed = self.log.delete(ranges)
            else:
                changed = self.log.mark(status, ranges)
            deleted += changed if status is None else 0
            unmarked.append(_unmarked(self.log, ranges, changed, status))
        if deleted:
            note_removed(self.log, removed)
            self.highest = 0
        if ended is not None:
            delete_entry(self.log, EntryKind.DELIVERY, ended)
        if self.followed is not None:
            self.followed.add(to_ranges(sorted(chain(retained, *statuses.values()))))
        taken = (one.taken for one in unmarked)
        return Unmarked(sum(one.gone for one in unmarked), frozenset().union(*taken))


def _unmarked(
    log: OpenLog, ranges: Ranges, changed: int, new_status: str | None = None
) -> Unmarked:
    """Return the rows of the ranges that a statement did not change. ``changed`` is the number of
    rows that the statement changed; ``new_status`` is the status that it set, None = the statement
    deleted the rows.
    """
    rows = length(ranges)
    if changed >= rows:
        return Unmarked()
    present = log.read_columns(ranges, ("record_id", "status"))
    taken = frozenset(int(row) for row, status in present if unpadded(status) != new_status)
    if len(present) - len(taken) > changed:
        # Some rows had this status before, and it is unknown which ones.
        taken = frozenset(int(row) for row, _ in present)
    return Unmarked(rows - len(present) - (changed if new_status is None else 0), taken)


def are_registered(log: OpenLog) -> bool:
    """Lock out new consumers until the transaction ends. Return True if the log has consumers."""
    if not consumers.has_table(log):
        return False
    log.lock_removing()
    return consumers.has_consumers(log)


# --- a consumer's ---------------------------------------------------------------------------------

SMALL: Final = 1_000
"""A set with at most this many ranges is written as a whole whenever rows are added."""


@dataclass(slots=True)
class SetLedger(Ledger):
    """A consumer's ledger: a set of record_ids, kept in memory and in the consumer's entries."""

    begins: str = consumers.LATEST
    """The place where a new consumer begins."""
    event_time_zone: str = "utc"
    """The option of ``[publisher]``, for a consumer that begins at a time."""
    followed: FollowedSet = field(default_factory=FollowedSet)
    recent: RecordSet | None = None
    """The rows that were added after the whole set was written; None = this session has not written
    the whole set yet.
    """
    is_changed: bool = False
    """True if the set was changed in another way than by adding rows."""
    entries: tuple[int, ...] = ()
    """The numbers of the entries that contain the set."""
    is_new: bool = False
    """True if this session has registered the consumer, which has not begun to work."""

    statuses = frozenset(status.value for status in Status)
    purpose = Purpose.CONSUMER

    def lock(self, lost: LockHolder | None = None) -> LockHolder | None:
        log = self.log
        is_ours = log.try_consumer_lock(self.consumer)
        holder = log.consumer_holder(self.consumer)
        log.commit()  # from here on the session writes
        if not is_ours:
            what = f"consumer {self.consumer!r} of the log {log}"
            way_out = "stop that process, or give this consumer another name"
            raise refused_lock(
                what, "is already being run", way_out, holder, lost, error=ConsumerRuns
            )
        return holder

    def register(self) -> None:
        if consumers.read_consumer(self.log, self.consumer) is None:
            consumers.register(self.log, self.consumer, self.begins, self.event_time_zone)
            self.is_new = True
        self.log.commit()

    def undo_registration(self) -> None:
        if self.is_new:
            self.log.connection.rollback()
            consumers.forget(self.log, self.consumer)
            self.log.commit()

    def check_possible(self) -> None:
        consumers.check_possible(self.log)

    def recover(self) -> None:
        entry = consumers.read_consumer(self.log, self.consumer)
        # The known writers are forgotten: after a restart of the server a prepared transaction has
        # another name.
        self.followed = FollowedSet(
            consumers.set_of_start(self.log, self.begins, self.event_time_zone)
            if entry is None
            else entry.done
        )
        self.recent, self.is_changed, self.is_new = None, False, False
        self.entries = () if entry is None else entry.entries

    def loading(self) -> tuple[datetime, dict[str, Any]] | None:
        return consumers.loading(self.log, self.consumer)

    def begin_scan(self, *, is_long: bool) -> QueueScan | None:
        again = take_requests(self.log, self.consumer)
        self.has_taken_requests = bool(again.rows)
        if again.rows:
            # This must happen in the transaction that clears the request. Otherwise a crash in
            # between would lose the rows, and a purge would remove them.
            self.followed.discard(again.rows)
            self.is_changed = True
            self.write({})
        if again.objects:
            if again.classes:  # these come next
                ask_again(self.log, again._replace(rows=(), objects=()), self.consumer)
            loaded: dict[str, Any] = {"again": again.objects}
        else:
            loaded = {"classes": again.classes, "begun": again.begun}
        if again.objects or again.classes:
            consumers.write_loaded(self.log, self.consumer, loaded)
            self.write({})
            return None
        self.is_changed = self.followed.poll(self.log) or self.is_changed
        return QueueScan(1, self.followed.done.top, self.followed.writers, passes=True)

    def poll(self, window: Window, fields: Sequence[str]) -> QueueScan | None:
        return None if self.followed.has_gaps else self._polled(self.followed, window, fields)

    def record(
        self, content: str, number: int | None = None, above: int = 0, *, alone: bool
    ) -> int | None:
        if not sees_requests(self.log) and self.is_requested():
            return None
        return record_delivery(self.log, content, self.consumer, number, above, alone=alone)

    def rest(self, scan: QueueScan, next_first: int, past: int) -> QueueScan:
        # If the writers are unknown, every window begins at the head of the queue, as a new scan.
        return QueueScan(1, scan.last, None)

    def leave_out(self, scan: QueueScan, shown: Sequence[int]) -> frozenset[int]:
        self.followed.passed.add(to_ranges(shown))
        return frozenset()

    def undone(self, window: Window) -> Window:
        last = Dialect.last_record_id if window.last is None else window.last
        return replace(window, first=1, any_status=True).outside(self.followed.passed, last)

    def write(
        self,
        statuses: Mapping[Status, Sequence[int]],
        retained: Sequence[int] = (),
        *,
        deletes: bool = False,
        ended: int | None = None,
        alone: bool = False,
    ) -> Unmarked:
        """Write the set if it has changed, either in the entry of the delivery that has ``ended``
        or in a new entry. The log itself is not read.

        After a failure the caller calls ``recover``.
        """
        ranges = to_ranges(sorted(chain(retained, *statuses.values())))
        if not ranges and not self.is_changed:
            if ended is not None:
                delete_entry(self.log, EntryKind.DELIVERY, ended)
            return Unmarked()
        self.followed.add(ranges)
        done, recent = self.followed.done, self.recent
        if recent is not None:
            recent.add(ranges)
        entry = consumers.SetEntries(self.consumer, self.entries)
        ending = consumers.Ending(self.durable_marks, alone)
        if (
            recent is None
            or self.is_changed
            or len(done.ranges) <= SMALL
            or len(recent.ranges) > SMALL
        ):
            self.entries = consumers.write_done(self.log, entry, done, ended, ending)
            self.recent, self.is_changed = RecordSet(), False
        else:
            self.entries = consumers.write_recent(self.log, entry, recent, ended, ending)
        return Unmarked()


def ledger_of(
    log: OpenLog,
    consumer: str | None = None,
    begins: str = consumers.LATEST,
    event_time_zone: str = "utc",
    *,
    by_number: bool = False,
    skipped_user: str | None = None,
    durable_marks: bool = True,
) -> Ledger:
    """Return the ledger of a consumer; ``consumer`` None = the ledger of the publisher.

    ``begins`` is the place where a new consumer begins. ``event_time_zone`` is the zone of the
    log's times. ``by_number``, ``skipped_user`` and ``durable_marks`` are as for ``StatusLedger``.
    """
    if consumer is not None:
        return SetLedger(log, consumer, begins, event_time_zone, durable_marks=durable_marks)
    return StatusLedger(
        log, by_number=by_number, skipped_user=skipped_user, durable_marks=durable_marks
    )


# --- reports about a ledger ---------------------------------------------------------------------


def is_at_work(log: OpenLog, consumer: str) -> bool:
    """Return True if a session is running as this consumer (empty = as the publisher)."""
    if consumer:
        return log.is_consumer_locked(consumer)
    return log.is_locked()


def status_of(ledger: Ledger, record_id: int, status: str) -> str:
    """Return N if the row is not done, otherwise the result that the ledger has for the row."""
    status = unpadded(status)
    if not isinstance(ledger, SetLedger) or status not in ledger.statuses:
        return status
    return (Status.SUCCESS if record_id in ledger.followed.done else Status.NEW).value


def count_undone(ledger: Ledger, most: int) -> int:
    """Return the number of rows that are not done, counted up to ``most``."""
    if isinstance(ledger, StatusLedger) and ledger.followed is None:
        return count_queue(ledger.log, most)
    return consumers.count_rows(ledger.log, ledger.undone(Window(1, None, most)))


def ranges_of(ledger: Ledger) -> int | None:
    """Return the number of ranges in a consumer's set, None for the publisher."""
    return len(ledger.followed.done.ranges) if isinstance(ledger, SetLedger) else None
