"""The log of a stream of changes: the queries of its driver, and the rows that its tasks read
(spec/spark-changes.md).

The driver queries ranges of record_ids, and counts. Tasks read the rows, each with a connection
that its worker keeps open, so that a small batch does not need a new connection.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from eventlog.config.load import Config, connection_url, load
from eventlog.config.publishing import value_options
from eventlog.config.settings import DEFAULT_FORMAT
from eventlog.core.catalog import Catalog, Database
from eventlog.core.catalog.filters import digest_of
from eventlog.core.clock import monotonic
from eventlog.core.ranges import Range, RecordSet, between, common, length, minus, within
from eventlog.core.rows.checks import CheckedRow, check_rows
from eventlog.core.rows.event_ids import epoch_suffix
from eventlog.core.start_time import start_time_of
from eventlog.core.values import ValueOptions
from eventlog.errors import (
    ConfigError,
    DatabaseError,
    DatabaseUnavailable,
    LogTableError,
    first_of,
    number_of,
    together,
)
from eventlog.model import QUEUE_FIELDS, TIMED_FIELDS, QueueRow
from eventlog.publisher.context import PublisherOptions, Used
from eventlog.publisher.declared import (
    DeclaredTables,
    available_catalog,
    class_schema,
    declared_tables,
    filters_of,
    find_log,
    judge_shown,
    masks_of,
    publisher_options,
    record_consumer_start,
    settle_epoch,
    unreadable_main_tables,
    wrong_conditions,
)
from eventlog.publisher.ledger import SetLedger
from eventlog.spark.changes.change_offsets import Offset
from eventlog.spark.changes.change_parts import Folding, held_back
from eventlog.spark.log_source import with_mask_secret, without_foreign_settings
from eventlog.sql.connect import connect, describe, dialect_of, refuse_pooling
from eventlog.sql.log import (
    NO_MASKS,
    RecordedMasks,
    count_rows,
    differing,
    key_of,
    read_epoch,
    read_pause,
    read_removed,
    shown_ranges,
    take_requests,
)
from eventlog.sql.log_table import LogTable
from eventlog.sql.port import (
    ANY_STATUS,
    OpenDatabase,
    OpenLog,
    Purpose,
    WriterHistory,
    as_database_errors,
    set_purpose,
)
from eventlog.sql.readers import consumers

_log = logging.getLogger("eventlog.changes")

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
LATEST_OF_EPOCH: Final = "latest_of_epoch"
"""The beginning of the query of a live copy, if the copy loads its class again in each epoch of the
log. No other stream may have this beginning: the stream would pass over the rows between its
position and the new beginning.
"""
_BEGINS: Final = {
    EARLIEST: consumers.EARLIEST,
    LATEST: consumers.LATEST,
    LATEST_OF_EPOCH: consumers.LATEST,
}
_FLAGS: Final = {"format.type": DEFAULT_FORMAT}
"""The options with which events are folded and shown: the options of the default format, whatever
format a publisher sends.
"""


class RowsRemoved(DatabaseError):
    """Rows that a stream has not read were removed from the log."""

    code = "rows_removed"


class OtherEpoch(DatabaseError):
    """A checkpoint contains record_ids of another epoch of the log (spec/event-log.md 7.4)."""

    code = "other_epoch"


class ColumnsChanged(DatabaseError):
    """The types of columns have changed since a query with structs of their class began."""

    code = "columns_changed"


def read_config(file: str | None) -> Config:
    """Return this process's configuration: from the file, if it exists, and the environment."""
    path = None if file is None else Path(file)
    return load(path if path is not None and path.exists() else None, os.environ, _FLAGS)


def values_of(config: Config, *, with_document: bool) -> ValueOptions:
    """Return the options for converting values to texts. Documents have the texts of XDS; otherwise
    values are converted in full.

    Only XDS drops the fraction of a second, and only XML lacks some characters.
    """
    values = value_options(config)
    return values if with_document else replace(values, time_syntax="full", characters="unicode")


# --- shared by driver and tasks
# --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Classes:
    """The information that tasks need to read rows, in the form that is sent to tasks: without
    secrets.
    """

    declared: DeclaredTables
    database: Database
    log: LogTable
    options: PublisherOptions
    values: ValueOptions

    def catalog(self) -> Catalog:
        """Build the catalog of the classes."""
        declared = self.declared._replace(config=with_mask_secret(self.declared.config))
        return available_catalog(declared, self.database, self.log, self.values)


class Packed(NamedTuple):
    """Classes as bytes with their digest.

    A task unpacks the classes only if its worker has not unpacked classes with this digest yet.
    """

    digest: str
    content: bytes


def pack(classes: Classes) -> Packed:
    """Return the classes for tasks."""
    content = pickle.dumps(classes)
    return Packed(hashlib.sha256(content).hexdigest(), content)


_known: dict[str, tuple[Classes, Catalog]] = {}


def unpack(packed: Packed) -> tuple[Classes, Catalog]:
    """Return the classes from ``pack``, built once per process."""
    if packed.digest not in _known:
        _known.clear()
        classes: Classes = pickle.loads(packed.content)  # noqa: S301 - sent by our driver, as tasks are
        _known[packed.digest] = classes, classes.catalog()
    return _known[packed.digest]


# --- rows -----------------------------------------------------------------------------------------

_queue_row: Final[Callable[[tuple[Any, ...]], QueueRow]] = itemgetter(slice(len(QUEUE_FIELDS)))
_PERPETRATOR: Final = TIMED_FIELDS.index("perpetrator")
_EVENT_TIME: Final = TIMED_FIELDS.index("event_time")


Origins: TypeAlias = dict[int, tuple[str | None, str | None]]
"""The event_time and the perpetrator of rows, by record_id."""


class RowReader:
    """A reader of the valid rows of a batch. ``rows`` are the batch's ranges of record_ids.

    ``counted`` is the number of rows read within the task's part, including invalid rows.
    ``origins`` are the origins of the rows read; None = the origins are not needed.
    """

    def __init__(
        self,
        log: OpenLog,
        classes: Classes,
        catalog: Catalog,
        rows: Sequence[Range],
        part: Range,
        *,
        with_origins: bool,
    ) -> None:
        self.rows, self.counted = rows, 0
        self.origins: Origins | None = {} if with_origins else None
        self._log, self._catalog, self._part = log, catalog, part
        self._user = classes.options.driver_user

    def __call__(self, first: int, last: int) -> Iterator[list[CheckedRow]]:
        """Yield the valid rows from one record_id to another, in chunks."""
        ranges = within(self.rows, first, last)
        if not ranges:
            return
        is_own = self._part[0] <= first and last <= self._part[1]
        fields = QUEUE_FIELDS if self.origins is None else TIMED_FIELDS
        window = replace(ANY_STATUS, gaps=ranges)
        for rows in self._log.read_fields(window, fields):
            if is_own:
                self.counted += len(rows)
            queue_rows: Any = rows
            if self.origins is not None:
                self.origins.update((row[0], (row[_EVENT_TIME], row[_PERPETRATOR])) for row in rows)
                queue_rows = map(_queue_row, rows)
            yield check_rows(queue_rows, self._catalog, self._user).valid


# --- a task's connection --------------------------------------------------------------------------

_IDLE_SECONDS: Final = 2.0
"""The seconds after which an unused connection is tested before its next use."""


class _Cached:
    """The connection that this process keeps open. ``file`` is its configuration file."""

    def __init__(self, file: str | None) -> None:
        self.file, self.pid, self.used = file, os.getpid(), monotonic()
        config = read_config(file)
        url, hides_rows = connection_url(config.database), config.hides_rows
        self.engine = set_purpose(connect(url), Purpose.STREAM, hides_rows=hides_rows)
        with as_database_errors(self.engine):
            self.connection = self.engine.connect()
            self.db = dialect_of(url).open(self.connection)
            self.db.begin_publishing()
            self.connection.commit()

    def is_usable(self, file: str | None) -> bool:
        """Return True if the connection was opened by this process with the same configuration, and
        is still open on the server.
        """
        if self.file != file or self.pid != os.getpid():
            return False
        if monotonic() - self.used < _IDLE_SECONDS:
            return True
        try:
            self.connection.exec_driver_sql("SELECT 1")
            self.connection.rollback()
        except SQLAlchemyError:
            return False
        return True

    def close(self) -> None:
        """Close the connection, whatever its state."""
        if self.pid == os.getpid():
            with suppress(SQLAlchemyError):
                self.connection.close()


_cache: list[_Cached] = []


@contextmanager
def cached_connection(file: str | None) -> Iterator[OpenDatabase]:
    """Yield the connection that this process keeps open. The connection is closed if the block
    fails.

    Raises DatabaseError, also for errors of the block.
    """
    if not (_cache and _cache[0].is_usable(file)):
        close_cached_connection()
        _cache.append(_Cached(file))
    cached = _cache[0]
    try:
        with as_database_errors(cached.connection):
            yield cached.db
            cached.connection.rollback()
    except BaseException:
        close_cached_connection()
        raise
    cached.used = monotonic()


def close_cached_connection() -> None:
    """Close the connection that this process keeps open, if there is one."""
    while _cache:
        _cache.pop().close()


# --- the driver -----------------------------------------------------------------------------------


@dataclass(slots=True)
class ChangeLog:
    """The log of a stream, for the driver's queries, on one connection."""

    file: str | None
    consumer: str | None = None
    start_from: str = EARLIEST
    with_document: bool = False
    history: WriterHistory = field(default_factory=WriterHistory)
    """The checks for open transactions. The checks show up to which record_id no further row can
    appear. The checks are discarded with the connection.
    """
    unused: RecordSet = field(default_factory=RecordSet)
    """The record_ids that were never used, up to the record_id that the checks for open
    transactions show.
    """
    recorded: RecordSet | None = None
    """The done rows that the consumer's entries in the log record; None without a consumer."""
    begun: str = ""
    """The time when the consumer was registered, empty without a consumer."""
    entries: tuple[int, ...] = ()
    """The numbers of the entries in which the consumer's done rows are recorded."""
    epoch: str = ""
    _open: tuple[Engine, OpenLog] | None = None
    _config: Config | None = None
    _classes: tuple[Classes, Catalog, Packed] | None = None
    _fingerprint: str | None = None
    _has_warned: bool = False
    """True if the generated columns that show what masks hide were reported."""

    # the connection

    @contextmanager
    def _session(self) -> Iterator[OpenLog]:
        """Yield the open log, and commit at the end of the block. The log is opened if it is
        closed, and closed if the block fails.
        """
        if self._open is None:
            self._connect()
        assert self._open is not None
        engine, log = self._open
        try:
            with as_database_errors(engine):
                yield log
                log.commit()
        except BaseException:
            self.close()
            raise

    def _connect(self) -> None:
        config = self._config = read_config(self.file)
        if config.publisher.handle_future_events:
            raise ConfigError(
                "publisher.handle_future_events cannot be used with format eventlog-changes, which "
                "reads rows in the order of record_id. Give it a configuration without that option"
            )
        url = connection_url(config.database)
        dialect = dialect_of(url)
        engine = set_purpose(connect(url), Purpose.STREAM, hides_rows=config.hides_rows)
        with ExitStack() as stack, as_database_errors(engine):
            conn = stack.enter_context(engine.connect())
            log = find_log(dialect.open(conn), config)
            self.history = WriterHistory()
            self.unused = RecordSet()
            if self.consumer is None:
                self._enter_unnamed(log)
            else:
                self._enter_as_consumer(log, config, self.consumer)
            # The lock, the snapshots and the durability of a stream belong to its session.
            refuse_pooling(conn, dialect, describe(url))
            conn.commit()
            stack.pop_all()
        self._open = engine, log

    def _enter_unnamed(self, log: OpenLog) -> None:
        consumers.check_possible(log)
        if log.open_writers() is None:
            raise LogTableError(
                f"the changes of the log {log} cannot be read from a standby server, which does "
                "not show the open transactions. Read from its primary"
            )
        log.db.begin_publishing()
        log.check_rights(Purpose.STREAM)
        entry = read_epoch(log)
        if reasons := differing(entry.server, log.server_parts()):
            raise OtherEpoch(
                f"the database of the log {log} may have lost recent transactions (failover or "
                f"restore): {'; '.join(reasons)}. Begin a new epoch of the log first: start its "
                "publisher or a consumer; if the log has neither, run `eventlog db start-epoch`"
            )
        self.epoch = entry.epoch

    def _enter_as_consumer(self, log: OpenLog, config: Config, consumer: str) -> None:
        begins = _BEGINS.get(self.start_from, self.start_from)
        ledger = SetLedger(log, consumer, begins, config.publisher.event_time_zone)
        ledger.check_possible()
        log.check_rights(Purpose.CONSUMER)
        log.db.begin_publishing()
        server = log.server_parts()
        ledger.lock()
        ledger.register()
        self.epoch = settle_epoch(log, ledger, Used(), server)
        record_consumer_start(log, consumer, consumers.ConsumerStart(consumers.STREAM_OF_SPARK))
        entry = consumers.read_consumer(log, consumer)
        assert entry is not None  # the consumer was registered under the lock
        self.recorded, self.begun = entry.done, entry.begun.isoformat()
        self.entries = entry.entries

    def close(self) -> None:
        """Close the connection, and so release the consumer."""
        if self._open is not None:
            _, log = self._open
            self._open = None
            with suppress(SQLAlchemyError):
                log.connection.close()

    # the classes

    def classes(self) -> tuple[Classes, Catalog, Packed]:
        """Return the information needed to read rows, from the tables as they are now, so that no
        row that is already in the log has an unknown column.
        """
        with self._session() as log:
            self._read_classes(log)
        assert self._classes is not None
        return self._classes

    def _read_classes(self, log: OpenLog) -> None:
        # Taken before the classes are read, so that a change in between is noticed the next time.
        known = None if self._classes is None else log.db.fingerprint(self._classes[1])
        if known is not None and known == self._fingerprint:
            return
        assert self._config is not None
        database = log.db.reflect(class_schema(self._config))
        declared = declared_tables(self._config, database, log.table)
        values = values_of(self._config, with_document=self.with_document)
        # Before the secret of masks is taken out, which workers read from its file.
        catalog = available_catalog(declared, database, log.table, values)
        declared = declared._replace(
            config=without_foreign_settings(declared.config),
            unreadable=unreadable_main_tables(log.db, catalog),
        )
        options = publisher_options(self._config, log.db.current_user(), log.dialect.fold_name)
        # As for every consumer, no rows are loopback unless a user is configured (spec/event-log.md
        # 13.5).
        if self._config.publisher.driver_user is None:
            options = replace(options, driver_user=None)
        options = replace(
            options, events=replace(options.events, id_suffix=epoch_suffix(self.epoch))
        )
        classes = Classes(
            declared,
            database,
            log.table,
            options,
            values,
        )
        for wrong in wrong_conditions(log.db, filters_of(self._config)) if known is None else ():
            _log.warning("%s. It is used if the checkpoint has it", wrong)
        self._classes = classes, classes.catalog(), pack(classes)
        self._fingerprint = known

    # the beginning

    def first(self) -> Offset:
        """Return the offset of a query that has read nothing.

        Raises ConfigError if rows were removed.
        """
        with self._session() as log:
            return self._first(log)

    def _first(self, log: OpenLog) -> Offset:
        done = self._first_set(log)
        removed = read_removed(log)
        # An open transaction may have drawn such a number; its row is read when the transaction
        # commits. Whether the number belonged to a removed row cannot be determined.
        absent = RecordSet(removed)
        absent.discard(done.spans)
        if removed:
            absent.discard(shown_ranges(log, [(1, removed)]))
        log.db.make_durable()
        self._refuse_shown(log, NO_MASKS)
        assert self._config is not None  # the log is open
        if wrong := wrong_conditions(log.db, filters_of(self._config)):
            raise together(wrong)
        return self._offset(log, done, None, absent)

    def _first_set(self, log: OpenLog) -> RecordSet:
        """Return the rows that a new query counts as read."""
        if self.recorded is not None:
            return self.recorded.copy()
        if self.start_from in _BEGINS:
            return consumers.first_set(log, _BEGINS[self.start_from])
        if start_time_of(self.start_from) is not None:
            assert self._config is not None  # the log is open
            zone = self._config.publisher.event_time_zone
            return consumers.set_of_start(log, self.start_from, zone)
        first = int(self.start_from)
        if (removed := read_removed(log)) >= first:
            raise ConfigError(
                f"start_from = {first}: rows up to record_id {removed} have been purged from the "
                "log "
                f'{log}. Start after {removed}, or use "earliest" (what the log still has)'
            )
        return RecordSet(first - 1)

    # the end of a batch

    def latest(
        self, start: Offset, max_rows: int | None = None, target: Offset | None = None
    ) -> Offset:
        """Return the end of the next batch; ``start`` itself if there is nothing to read, or if the
        consumer is paused (spec/event-log.md 8.8).

        ``max_rows`` limits the rows of the batch; then groups that are still open at the end of the
        batch are held back. The stream ends at ``target``. Raises RowsRemoved, OtherEpoch.
        """
        try:
            return self._latest(start, max_rows, target)
        except DatabaseUnavailable:
            return self._latest(start, max_rows, target)  # it runs on another connection

    def _latest(self, start: Offset, max_rows: int | None, target: Offset | None) -> Offset:
        with self._session() as log:
            if self._begins_again(start):
                return self._first(log)._replace(rows=0)
            self._check_epoch(start)
            self._refuse_shown(log, start.masks)
            if self.consumer is not None and read_pause(log, self.consumer) is not None:
                return start
            self._check_removed(log, start)
            decided = target.done if target is not None else self._decided(log, start.done)
            if decided is None:
                return start
            limit = max_rows
            while True:
                end = decided
                if target is None:
                    # While transactions are open, only the rows that one statement sees are read.
                    end = decided.copy()
                    end.add(shown_ranges(log, decided.gaps(log.dialect.last_record_id), limit))
                rows = between(start.done, end)
                number, last = count_rows(log, rows, limit)
                if not number:
                    if target is None:
                        self._record_unused(log, between(start.done, decided))
                    return start
                if max_rows is not None and limit is not None and number == limit:
                    rows = self.without_open(log, rows, last)
                    number, _ = count_rows(log, rows)
                    if not number:  # the first group is open: the batch reads on
                        limit *= 2
                        continue
                # Rows that were removed since the first check are not counted.
                self._check_removed(log, start)
                done = start.done.copy()
                done.add(rows)
                # Then a crash of the server cannot undo a row of the batch.
                log.db.make_durable()
                absent = start.absent.copy()
                absent.discard(done.spans)
                return self._offset(log, done, number, absent)

    def _decided(self, log: OpenLog, done: RecordSet) -> RecordSet | None:
        """Return ``done`` and, in addition, all record_ids up to which no further row can appear;
        None if all rows are in ``done``.
        """
        top = consumers.highest_row(log) or 0
        if not done.ranges and top <= done.floor:
            self.history = WriterHistory()
            return None
        self.history.take(log, top)
        ended = self.history.pop_ended()
        decided = done.copy()
        if ended:
            decided.add([(1, ended)])
        return decided

    def _record_unused(self, log: OpenLog, gaps: Sequence[Range]) -> None:
        """Record the decided record_ids for which a statement found no row: their transactions were
        rolled back, or their rows were removed.

        The offset does not change while there is no new row. Without this record, a later purge
        would make these numbers look like removed rows that the stream has not read.
        """
        new = minus(gaps, self.unused)
        if new:
            self.unused.add(within(new, read_removed(log) + 1, new[-1][1]))

    def without_open(self, log: OpenLog, rows: Sequence[Range], last: int) -> list[Range]:
        """Return the rows of a full window that ends at ``last``, without the groups that are still
        open at this end, and without the groups that begin after the first open group.
        """
        if self._classes is None:
            self._read_classes(log)
        assert self._classes is not None
        classes, catalog, _ = self._classes
        options = classes.options
        kept = within(rows, 1, last)
        read = RowReader(log, classes, catalog, kept, (1, 0), with_origins=False)
        stored = held_back(
            read, last, Folding(options.fold_distance, options.fold_span, rows[0][0], last)
        )
        if stored is None:
            return kept
        return [*within(rows, 1, stored.first - 1), *((one, one) for one in stored.ids)]

    def _begins_again(self, offset: Offset) -> bool:
        """Return True if the offset is of another epoch, and the query loads its class again in the
        present epoch (spec/spark-changes.md 6).
        """
        is_of_another = offset.epoch != self.epoch and offset.filters == self._filters()
        return (
            is_of_another and self.start_from == LATEST_OF_EPOCH and not self._mask_changes(offset)
        )

    def _check_epoch(self, offset: Offset) -> None:
        if offset.epoch != self.epoch:
            raise OtherEpoch(
                f"the checkpoint is from epoch {offset.epoch or 'none'} of the log, but the log "
                f"is now in epoch {self.epoch or 'none'}, so the record_ids in the checkpoint may "
                "belong to other rows. Give the query a new checkpoint, or pass "
                'on_epoch="reload" to live_copy'
            )
        if offset.filters != self._filters():
            raise ConfigError(
                "the checkpoint was written with other [[filter]] sections than the configuration "
                "has, so what the query wrote may lack objects, or have too many. Give the query a "
                "new checkpoint and an empty target, or undo the change"
            )
        if changed := self._mask_changes(offset):
            raise ConfigError(
                "the checkpoint was written with other [[mask]] sections than the configuration "
                f"has: {first_of(changed, 5)}. Give the query a new checkpoint and an empty "
                "target, or undo the change"
            )

    def _offset(self, log: OpenLog, done: RecordSet, rows: int | None, absent: RecordSet) -> Offset:
        """Return an offset with the filters and masks of the configuration."""
        return Offset(self.epoch, done, rows, absent, self.begun, self._filters(), self._masks(log))

    def _masks(self, log: OpenLog) -> RecordedMasks:
        """Return the configured masks."""
        assert self._config is not None  # the log is open
        masks = masks_of(self._config)
        return RecordedMasks.of(masks, key_of(log, self.consumer or "", masks))

    def _mask_changes(self, offset: Offset) -> list[str]:
        """Return, in words, which masks of the checkpoint the configuration lacks or changes."""
        assert self._open is not None
        now = self._masks(self._open[1])
        return [] if offset.masks is None else [*offset.masks.differences(now)]

    def _refuse_shown(self, log: OpenLog, before: RecordedMasks | None) -> None:
        """Raise ConfigError if a generated column shows what a mask hides that the checkpoint does
        not have, and warn if it has the mask (spec/event-log.md 15.1).
        """
        assert self._config is not None  # the log is open
        masks = self._masks(log)
        if not masks.tables or (self._has_warned and before == masks):
            return
        if self._classes is None:
            self._read_classes(log)
        assert self._classes is not None
        refused, known = judge_shown(log.db, self._config, self._classes[1], lambda: before)
        if refused:
            raise together(list(refused.values()))
        for shown in known if not self._has_warned else ():
            _log.warning("%s", shown)
        self._has_warned = True

    def _filters(self) -> str:
        """Return the digest of the configured filters."""
        assert self._config is not None  # the log is open
        return digest_of(filters_of(self._config))

    def _check_removed(self, log: OpenLog, start: Offset) -> None:
        """Raise RowsRemoved if unread rows that no consumer protected were removed."""
        removed = read_removed(log)
        bare = minus(minus(start.done.gaps(removed), start.absent), self.unused)
        # A consumer registered after the checkpoint does not protect the rows the checkpoint still
        # needs.
        if self.recorded is not None and start.begun == self.begun:
            bare = common(bare, self.recorded.spans)
        if bare and count_rows(log, bare)[0] < length(bare):
            raise RowsRemoved(
                f"rows of the log {log} up to record_id {removed} have been purged, and the stream "
                f"had read only up to {bare[0][0] - 1}: it may have missed the rows in between. "
                "Give the query a new checkpoint"
            )

    # a batch

    def parts(self, start: Offset, end: Offset, max_rows: int) -> list[tuple[Range, int]]:
        """Return the parts of a batch, each with its number of rows.

        Raises RowsRemoved, OtherEpoch.
        """
        with self._session() as log:
            if self._begins_again(end):
                return []  # the batch was planned before the epoch; the next one loads the class
            self._check_epoch(end)
            if not end.rows:
                return []
            rows = between(start.done, end.done)
            first, last = rows[0][0], rows[-1][1]
            cuts = [(first, last)]
            if length(rows) > max_rows:
                found = log.log_parts(None, first, last, max_rows, 1)
                begins = [first, *(part.first for part in found[1:])]
                cuts = list(zip(begins, [*(begin - 1 for begin in begins[1:]), last], strict=True))
            parts = [(cut, count_rows(log, within(rows, *cut))[0]) for cut in cuts]
            number = sum(count for _, count in parts)
            if number != end.rows:
                raise RowsRemoved(
                    f"{number_of(end.rows - number, 'row')} of {end.rows:,} between record_id "
                    f"{first} and {last} of the log {log} were removed before the stream read them"
                )
            return [(cut, count) for cut, count in parts if count]

    def move(self, end: Offset) -> None:
        """Record the rows up to an offset as done by the consumer. A done row never becomes undone
        (spec/spark-changes.md 4).
        """
        if self.consumer is None:
            return
        with self._session() as log:
            if self._begins_again(end):
                return
            self._check_epoch(end)
            assert self.recorded is not None
            done = self.recorded.copy()
            done.add(end.done.spans)
            # Rows that were requeued are not read again: a checkpoint only grows.
            take_requests(log, self.consumer)
            if done.encode() != self.recorded.encode():
                written = consumers.SetEntries(self.consumer, self.entries)
                self.entries = consumers.write_done(log, written, done)
            self.recorded = done


def check_counted(counted: int, expected: int, part: Range) -> None:
    """Raise RowsRemoved if a part has another number of rows than when the batch was planned."""
    if counted != expected:
        raise RowsRemoved(
            f"record_ids {part[0]} to {part[1]} have {number_of(counted, 'row')} but had "
            f"{expected:,} when the batch was planned: rows were removed while the stream read them"
        )
