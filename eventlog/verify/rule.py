"""The rows of a log that a reader has not processed yet. These rows determine which objects can be
compared now (spec/verify.md 1).

New rows are found by the set of record_ids that were seen, never by comparing with the highest
record_id: a transaction may commit a lower number later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Final, TypeAlias

from eventlog.core.catalog import Catalog
from eventlog.core.clock import monotonic
from eventlog.core.ranges import Ranges, RecordSet, common, joined, minus, to_ranges
from eventlog.errors import BadTableKey, ConfigError, DatabaseError
from eventlog.publisher.feeds.snapshot import class_and_key
from eventlog.publisher.ledger.in_flight import read_recorded
from eventlog.sql.log.epoch import read_removed
from eventlog.sql.port.log_operations import ANY_STATUS, Window
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.readers import consumers
from eventlog.sql.readers.followed_set import FollowedSet
from eventlog.verify.motion import Motion, ObjectName

Forget: TypeAlias = Callable[[], None]
"""A function that forgets the rows that were done when they were read."""

_FIELDS: Final = ("record_id", "table_name", "table_key")
_MANY_GAPS: Final = 1_000
"""If there are more gaps than this number, neighbouring gaps are read as one gap."""
_NEAR: Final = 300
_SHARE: Final = 10.0
"""The pause between two searches for done rows lasts at least as long as this number of searches.
"""


@dataclass(slots=True)
class UndoneRows:
    """The rows of a log that its publisher, or a consumer, has not done (spec/verify.md 1.2). The
    objects that these rows name are in ``motion``.

    ``begin``, ``read_new`` and ``read_done`` are called within ``DatabaseSnapshots.read``, which
    may call them again. A database snapshot may not show all rows of the log, but each row that it
    shows exists. So rows are added immediately, but forgotten only when the snapshot is proven.
    """

    log: OpenLog
    catalog: Catalog
    motion: Motion
    consumer: str = ""
    """The reader; empty = the publisher."""
    skipped_user: str | None = None
    """The perpetrator whose rows the publisher ignores, None = it ignores no rows."""
    done_in_target: Callable[[], RecordSet | None] = lambda: None
    """A function that returns the done rows, if the target itself records them; then ``consumer``
    and ``skipped_user`` have no effect.
    """
    is_protected: bool = False
    """True if rows that this object has not seen yet cannot be removed from the log."""
    seen: FollowedSet = field(default_factory=FollowedSet)
    """The record_ids that a database snapshot has shown, or that will never be used."""
    rows: RecordSet = field(default_factory=RecordSet)
    """The rows that are not done, whether they name an object of a class or not."""
    _removed: int = 0
    _first: int = 0
    """The first row of the log when ``begin`` was called."""
    _forget_at: float = 0.0

    def begin(self) -> datetime:
        """Read which rows are done, and return the time of the database snapshot: the UTC time of
        the database's clock.

        Raises ConfigError for a consumer that does not exist, or whose snapshot is not complete.
        """
        self._keep(RecordSet(), ())
        self._removed = read_removed(self.log)
        if (done := self._done_set()) is not None:
            self.motion.keep_objects(self._objects_in_flight())
            self.seen = FollowedSet(done.copy())
        else:
            visible = consumers.visible_ids(self.log)
            self.seen = FollowedSet(RecordSet(0, visible))
            self._first = visible[0][0] if visible else 0
            for part in self._read(self._new_window()):
                self._add(part)
        self.read_new()
        return self.log.db.utc_now()

    def read_new(self) -> None:
        """Read the rows that no earlier database snapshot has shown.

        Raises DatabaseError if rows that were never seen may have been removed.
        """
        if not self.is_protected and (removed := read_removed(self.log)) != self._removed:
            if self.seen.done.gaps(removed, self._first - 1):
                raise DatabaseError(
                    f"rows of the log {self.log} up to record_id {removed} were removed during "
                    "the verification, which may not have seen some of them. Verify again while "
                    "no purge runs"
                )
            self._removed = removed
        gaps: Ranges = self.seen.done.gaps(self.log.dialect.last_record_id)
        if len(gaps) > _MANY_GAPS:
            gaps = joined(gaps, _NEAR)
        found: list[int] = []
        for part in self._read(replace(ANY_STATUS, gaps=tuple(gaps))):
            new = [row for row in part if row[0] not in self.seen.done]
            self._add(new)
            found += (record_id for record_id, _, _ in new)
        self.seen.add(to_ranges(found))

    def read_done(self, *, at_once: bool = False) -> Forget:
        """Read which rows the reader has done by now, and the rows that were queued again for the
        reader. Return a function that forgets the done rows.

        The set of undone rows may be older than the database snapshot: it may then still contain
        rows that are done by now, which does no harm. So a long search is not repeated soon, unless
        ``at_once`` is set.
        """
        if not at_once and monotonic() < self._forget_at:
            return _nothing
        begun = monotonic()
        if (done := self._done_set()) is not None:
            undone = common(done.gaps(self.seen.done.top), self.seen.done.spans)
            window = ANY_STATUS
        else:
            window = self._new_window()
            found = RecordSet()
            for part in self.log.read_fields(window, ("record_id", "event_type")):
                found.add(to_ranges([int(record_id) for record_id, _ in part]))
            undone = found.spans
        again = minus(undone, self.rows)
        if again:
            for part in self._read(replace(window, gaps=tuple(again))):
                self._add(part)
        now = monotonic()
        self._forget_at = now + _SHARE * (now - begun)
        return partial(self._keep, RecordSet(0, undone), self._objects_in_flight())

    def close_gaps(self) -> None:
        """Stop searching for rows in gaps that will never be filled. Call this function between two
        database snapshots. The call only saves time: without it each snapshot searches the gaps
        again.
        """
        if consumers.is_followable(self.log):
            self.seen.poll(self.log)
        self.log.commit()

    def _new_window(self) -> Window:
        return Window(1, None, None, self.skipped_user)

    def _done_set(self) -> RecordSet | None:
        """Return the done rows as a set, None if the statuses show which rows are done."""
        done = self.done_in_target()
        if done is not None:
            return done
        return self._done_by_consumer() if self.consumer else None

    def _done_by_consumer(self) -> RecordSet:
        entry = consumers.read_consumer(self.log, self.consumer)
        if entry is None:
            raise ConfigError(
                f"the log {self.log} has no consumer {self.consumer!r}: give the name of a "
                "consumer that `eventlog consumers list` shows"
            )
        if entry.loaded is not None:
            raise ConfigError(
                f"the snapshot of consumer {self.consumer!r} is not complete, so its target cannot "
                "equal the source: verify again when `eventlog consumers list` shows no snapshot"
            )
        entry.done.discard(entry.requeued.rows)
        return entry.done

    def _objects_in_flight(self) -> Sequence[ObjectName]:
        """Return the objects of a consumer's snapshot that have no answer yet. The rows of these
        objects count as done, but the receiver may not have applied them.
        """
        if not self.consumer or self.done_in_target() is not None:
            return ()
        deliveries, _ = read_recorded(self.log, self.consumer)
        return [
            class_and_key(self.catalog, event.event_id)
            for delivery in deliveries
            if delivery.is_of_snapshot
            for event in delivery.events()
        ]

    def _read(self, window: Window) -> Iterator[list[tuple[int, str | None, str | None]]]:
        for part in self.log.read_fields(window, _FIELDS):
            yield [(int(record_id), name, key) for record_id, name, key in part]

    def _add(self, rows: Sequence[tuple[int, str | None, str | None]]) -> None:
        self.rows.add(to_ranges([record_id for record_id, _, _ in rows]))
        named = (
            (record_id, object_named(self.catalog, table_name, table_key))
            for record_id, table_name, table_key in rows
        )
        self.motion.add_rows([(record_id, *found) for record_id, found in named if found])

    def _keep(self, rows: RecordSet, objects: Sequence[ObjectName]) -> None:
        self.rows = rows
        self.motion.keep_rows(rows)
        self.motion.keep_objects(objects)


def _nothing() -> None:
    pass


def object_named(
    catalog: Catalog, table_name: str | None, table_key: str | None
) -> ObjectName | None:
    """Return the object that a row of the log names, None if the row names no object of a class."""
    meant = None if table_name is None else catalog.log_name(table_name)
    if meant is None:
        return None
    cls = meant.object_class
    try:
        return cls.name, cls.canonical_key(table_key)
    except BadTableKey:
        return None
