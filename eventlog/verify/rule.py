"""The rows of a log that a reader has not processed yet. They determine which objects can be
compared now (spec/verify.md 1).

New rows are found by the set of record_ids that were seen, never by comparing with the highest
record_id: a transaction may commit a lower number later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, TypeAlias

from eventlog.core.catalog import Catalog
from eventlog.core.clock import monotonic
from eventlog.core.ranges import Ranges, RecordSet, common, joined, minus, to_ranges
from eventlog.errors import BadTableKey, ConfigError, DatabaseError
from eventlog.sql import consumers
from eventlog.sql.epoch import read_removed
from eventlog.sql.followed_set import FollowedSet
from eventlog.sql.open_log import OpenLog
from eventlog.sql.purge import utc_now
from eventlog.sql.windows import ANY_STATUS, Window

ObjectName: TypeAlias = tuple[str, str]
"""The name of a class, and the canonical key of one of its objects."""

_SECONDS: Final = 600
"""The time-out of one statement, in seconds."""
_FIELDS: Final = ("record_id", "table_name", "table_key")
_MANY_GAPS: Final = 1_000
"""If there are more gaps than this, neighbouring gaps are read as one."""
_NEAR: Final = 300
_SHARE: Final = 10.0
"""The pause between two searches for done rows is at least this many times as long as a search."""


@contextmanager
def snapshot(log: OpenLog) -> Iterator[None]:
    """Run the statements of a block on one snapshot of the database, in a read-only transaction.

    The transaction before the block is ended first.
    """
    log.commit()
    log.db.begin_reading(_SECONDS)
    try:
        yield
    except BaseException:
        log.connection.rollback()
        raise
    log.commit()


@dataclass(slots=True)
class UndoneRows:
    """The rows of a log that its publisher, or a consumer, has not done (spec/verify.md 1.2).

    ``begin``, ``read_new`` and ``forget_done`` run within a ``snapshot`` block of the caller.
    """

    log: OpenLog
    catalog: Catalog
    consumer: str = ""
    """The reader; empty = the publisher."""
    skipped_user: str | None = None
    """The perpetrator whose rows the publisher ignores, None = nobody's."""
    done_in_target: Callable[[], RecordSet | None] = lambda: None
    """A function that returns the done rows, if the target itself records them; then ``consumer``
    and ``skipped_user`` have no effect.
    """
    is_protected: bool = False
    """True if rows that this object has not seen yet cannot be removed from the log."""
    seen: FollowedSet = field(default_factory=FollowedSet)
    """The record_ids that a snapshot has shown, or that will never be used."""
    rows: dict[int, ObjectName | None] = field(default_factory=dict)
    """The rows that are not done, with their objects; None = the row names no object of a class."""
    objects: dict[ObjectName, set[int]] = field(default_factory=dict)
    """The same rows by object."""
    _removed: int = 0
    _first: int = 0
    """The first row of the log when ``begin`` was called."""
    _forget_at: float = 0.0

    def begin(self) -> datetime:
        """Read which rows are done, and return the time of the snapshot by the database's clock,
        UTC.

        Raises ConfigError for a consumer that does not exist, or whose snapshot is not complete.
        """
        self._removed = read_removed(self.log)
        if (done := self._done_set()) is not None:
            self.seen = FollowedSet(done.copy())
        else:
            visible = consumers.visible_ids(self.log)
            self.seen = FollowedSet(RecordSet(0, visible))
            self._first = visible[0][0] if visible else 0
            for part in self._read(self._new_window()):
                self._add(part)
        self.read_new()
        return utc_now(self.log.connection, self.log.dialect)

    def read_new(self) -> None:
        """Read the rows that this snapshot is the first to show.

        Raises DatabaseError if rows may have been removed that were never seen.
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

    def forget_done(self, *, at_once: bool = False) -> None:
        """Forget the rows that the reader has done by now, and find rows that were queued for it
        again.

        The set of undone rows may be older than the snapshot: it may then still contain rows that
        are done by now, which does no harm. So a long search is not repeated soon, unless
        ``at_once`` is set.
        """
        if not at_once and monotonic() < self._forget_at:
            return
        begun = monotonic()
        if (done := self._done_set()) is not None:
            left = [record_id for record_id in self.rows if record_id not in done]
            known = common(done.gaps(self.seen.done.top), self.seen.done.spans)
            again = minus(known, RecordSet(0, to_ranges(sorted(left))))
            window = replace(ANY_STATUS, gaps=tuple(again))
        else:
            new = consumers.shown_ids(self.log, self._new_window())
            left = [record_id for record_id in new if record_id in self.rows]
            again = to_ranges([one for one in new if one not in self.rows])
            window = replace(self._new_window(), gaps=tuple(again))
        self._keep(left)
        if again:
            for part in self._read(window):
                self._add(part)
        now = monotonic()
        self._forget_at = now + _SHARE * (now - begun)

    def close_gaps(self) -> None:
        """Stop searching for rows in gaps that will never be filled. Call it between two snapshots.
        It only saves time: otherwise each snapshot searches these gaps again.
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
        line = consumers.read_consumer(self.log, self.consumer)
        if line is None:
            raise ConfigError(
                f"the log {self.log} has no consumer {self.consumer!r}: give the name of a "
                "consumer that `eventlog consumers list` shows"
            )
        if line.loaded is not None:
            raise ConfigError(
                f"the snapshot of consumer {self.consumer!r} is not complete, so its target cannot "
                "equal the source: verify again when `eventlog consumers list` shows no snapshot"
            )
        line.done.discard(line.requeued.rows)
        return line.done

    def _read(self, window: Window) -> Iterator[list[tuple[int, str | None, str | None]]]:
        for part in self.log.read_fields(window, _FIELDS):
            yield [(int(record_id), name, key) for record_id, name, key in part]

    def _add(self, rows: Iterable[tuple[int, str | None, str | None]]) -> None:
        for record_id, table_name, table_key in rows:
            found = object_named(self.catalog, table_name, table_key)
            self.rows[record_id] = found
            if found is not None:
                self.objects.setdefault(found, set()).add(record_id)

    def _keep(self, record_ids: Iterable[int]) -> None:
        self.rows = {record_id: self.rows[record_id] for record_id in record_ids}
        self.objects = {}
        for record_id, found in self.rows.items():
            if found is not None:
                self.objects.setdefault(found, set()).add(record_id)


def object_named(
    catalog: Catalog, table_name: str | None, table_key: str | None
) -> ObjectName | None:
    """Return the object that a row of the log names, None if it names no object of a class."""
    meant = None if table_name is None else catalog.log_name(table_name)
    if meant is None:
        return None
    cls = meant.object_class
    try:
        return cls.name, cls.canonical_key(table_key)
    except BadTableKey:
        return None
