"""Read the next rows of the queue: scan it window by window, as long as the scan is valid
(spec/event-log.md 8.1, 8.2).

A window that begins at the head of the queue is one database snapshot: it contains all rows of an
object, or the first ones. A later window begins after the rows that its scan has read, so that it
need not pass over rows that were just marked. But a transaction with rows on both sides of the
window's beginning may commit between two windows, and its later rows would overtake its earlier
rows. So a scan begins with a list of the open transactions that have written to the log, and ends
when one of these transactions ends. It also ends at the row that was the highest of status N when
the scan began; rows of later transactions come after that row.

With ``handle_future_events`` the order is by event_time, and only due rows are read.

A window is limited by rows, and its memory by bytes. The statement that reads it leaves out the
values of large rows. Further statements read these values; they are checked, and kept up to
``delivery_bytes``. The other values are dropped, and read again when their delivery is made. So
rows of any size are folded.

This is a hot path: every row passes through ``WindowReader.add``. Rows are tuples, read by position
with ``itemgetter`` and comprehensions over a whole chunk, and the rare cases (rows in flight, large
values, parked objects) are tested once for a chunk. In return, this module depends on the order of
``QUEUE_FIELDS``, and ``for a, *_ in (row,)`` replaces an assignment inside a comprehension.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from eventlog.changes.publishing import Need
from eventlog.core.catalog import ObjectId
from eventlog.core.ranges import to_ranges
from eventlog.core.rows.checks import CheckedRow, InvalidRow, Remark, check_rows
from eventlog.core.rows.events import (
    Outgoing,
    QueryBack,
    asks_for_values,
    build_event,
    decide,
    ids_of,
    needs_reading,
)
from eventlog.core.rows.fold import (
    Group,
    RowFolder,
    first_id,
    fold,
    is_rest_of_insert,
    object_of,
    reach,
    reach_of_span,
)
from eventlog.model import (
    QUEUE_FIELDS,
    TIMED_FIELDS,
    TRACED_FIELDS,
    EventType,
    Origins,
    QueueRow,
)
from eventlog.publisher.context.context import (
    UNLIMITED_WINDOW,
    Context,
    PublisherOptions,
    report_missing,
)
from eventlog.publisher.ledger.delivery import NO_ORIGINS
from eventlog.publisher.ledger.in_flight import BacklogClaim, ClaimedObjects
from eventlog.publisher.ledger.ledger import QueueScan, Writers
from eventlog.sql.log.errors import read_attempts
from eventlog.sql.log.rows import refuse_large_ids
from eventlog.sql.port.log_operations import DuePlace, Window, counted_rows

_record_id, _perpetrator, _event_time, _transaction_id = (
    itemgetter(TRACED_FIELDS.index(field))
    for field in ("record_id", "perpetrator", "event_time", "transaction_id")
)
_queue_row: Final[Callable[[tuple[Any, ...]], QueueRow]] = itemgetter(slice(len(QUEUE_FIELDS)))
_left_out: Final = itemgetter(-1)

BoundedRow: TypeAlias = tuple[Any, ...]
"""The fields of a row of a window with ``value_bytes``: ``QUEUE_FIELDS``, ``TIMED_FIELDS`` or
``TRACED_FIELDS``, and ``left_out``. It is the number of bytes of the values that were left out,
None if the row has its values.
"""


def begin_scan(context: Context, is_long: bool) -> QueueScan | None:
    """Return a scan that begins at the head of the queue, None if the queue is empty. ``is_long``
    means that the scan needs more than one window.
    """
    ledger = context.ledger
    scan = ledger.begin_scan(is_long=is_long)
    if ledger.has_taken_requests:
        # The command that queued rows again may have raised their attempt numbers.
        known = read_attempts(context.log, ledger.consumer)
        for row, number in known.items():
            context.attempts[row] = max(context.attempts.get(row, 1), number)
    return scan


def poll(context: Context) -> QueueScan | None:
    """Return a scan with the rows of its first window, which the single statement of a poll has
    read. None if the database has no such statement, or if ``begin_scan`` must be called.
    """
    options = context.options
    if options.handle_future_events:
        return None
    limit = options.window_rows
    window = Window(1, None, limit, options.skipped_user, _value_bytes(context))
    return context.ledger.poll(window, _fields(context))


def is_still_valid(context: Context, writers: Writers) -> bool:
    """Return True if all of ``writers`` are still open, so that the rows read so far lack no row of
    these transactions.
    """
    return writers is not None and (not writers or context.log.db.are_open(writers))


# --- a window -------------------------------------------------------------------------------------

_SMALL: Final = 1024
"""The window's statement limits the values of a row to at least this many bytes, whatever
``delivery_bytes`` is.
"""

_table_name: Final = itemgetter(QUEUE_FIELDS.index("table_name"))


def max_retries(options: PublisherOptions) -> int:
    """Return the maximum number of parked events that a cycle sends before it reads its window."""
    return max(options.window_rows // 2, 1)


class WindowResult(NamedTuple):
    """The result of one window."""

    groups: list[Group]
    invalid: list[InvalidRow]
    loopback: list[int]
    next_first: int | None
    """The record_id at which the next window of the scan begins, None at the end of the scan."""
    passed: Sequence[int] = ()
    """The rows of unwanted classes."""
    origins: Origins = NO_ORIGINS
    """The origins of the rows, for a format that needs them."""
    remarks: Sequence[Remark] = ()
    """The remarks on rows of the groups."""
    sizes: Mapping[int, int] = MappingProxyType({})
    """The bytes of large rows by record_id."""
    unread: AbstractSet[int] = frozenset()
    """The large rows whose values were dropped."""
    past: int = 0
    """The number of rows that were passed over, minus the number of rows that were used."""


class WindowReader:
    """A reader that checks the chunks of a window and folds their valid rows. Rows in flight and
    rows of parked objects are left out.

    ``read`` is the number of rows that were read. ``used`` is the number of these rows that count
    against the window's limit. A row whose values have more than ``value_bytes`` bytes is read
    without its values.
    """

    def __init__(
        self, context: Context, in_flight: Container[int], parked: Container[ObjectId]
    ) -> None:
        self.context = context
        self.folder = RowFolder(context.options.fold_distance, context.options.fold_span)
        self.read = self.used = 0
        self._in_flight, self._parked = in_flight, parked
        self._invalid: list[InvalidRow] = []
        self._loopback: list[int] = []
        self._passed: list[int] = []
        self._wanted: dict[str | None, bool] = {}
        self._origins = Origins({}, {}, {})
        self._remarks: list[Remark] = []
        self._sizes: dict[int, int] = {}
        self._unread: set[int] = set()
        self._room = context.options.delivery_bytes  # for values of large rows that stay in memory
        self.value_bytes = _value_bytes(context)
        self.fields = _fields(context)
        self._needs_times = Need.TIMES in context.output.needs
        self._is_traced = self.fields is TRACED_FIELDS

    def add(self, chunk: list[BoundedRow]) -> None:
        """Check the next rows."""
        self.read += len(chunk)
        free = self._free(chunk)
        if self.context.options.classes is not None:
            free = self._rows_of_wanted_classes(free)
        for run in _whole_rows(self.context, free, self._sizes):
            self._check(run)

    def _free(self, chunk: list[BoundedRow]) -> Sequence[BoundedRow]:
        """Return the rows of a chunk that are not in flight. Keep the origins of all rows if the
        format needs origins.
        """
        if self._needs_times:
            ids = list(map(_record_id, chunk))
            self._origins.event_times.update(zip(ids, map(_event_time, chunk), strict=True))
            self._origins.users.update(zip(ids, map(_perpetrator, chunk), strict=True))
            if self._is_traced:
                traced = zip(ids, map(_transaction_id, chunk), strict=True)
                self._origins.transactions.update(traced)
        return counted_rows(chunk, self._in_flight)

    def _rows_of_wanted_classes(self, rows: Sequence[BoundedRow]) -> list[BoundedRow]:
        """Return the rows of the classes in ``classes``; the other rows are done."""
        wanted: list[BoundedRow] = []
        for row in rows:
            name = _table_name(row)
            is_wanted = self._wanted.get(name)
            if is_wanted is None:
                is_wanted = self._wanted[name] = self.context.wants(name)
            if is_wanted:
                wanted.append(row)
            else:
                self._passed.append(row[0])
        self.used += len(rows) - len(wanted)
        return wanted

    def _check(self, rows: Sequence[QueueRow]) -> None:
        checked = check_rows(rows, self.context.catalog, self.context.options.driver_user)
        # Rows of unavailable classes are passed over.
        valid, invalid, loopback, remarks, _ = checked
        if self._sizes:
            valid = list(map(self._drop_large_values, valid))
        if self._parked:
            valid = [
                row
                for row in valid
                for _, _, object_id, _, _, _ in (row,)
                if object_id not in self._parked
            ]
        self.folder.rows += valid
        self._invalid += invalid
        self._loopback += loopback
        self._remarks += remarks
        self.used += len(valid) + len(invalid) + len(loopback)

    def examine(self, chunk: list[BoundedRow]) -> list[CheckedRow]:
        """Return the valid rows of a chunk after the window. They are not added to the window."""
        valid: list[CheckedRow] = []
        for run in _whole_rows(self.context, self._free(chunk), {}):
            valid += check_rows(run, self.context.catalog, self.context.options.driver_user).valid
        return valid

    def take(self, row: CheckedRow) -> None:
        """Add a row from after the window."""
        self.folder.rows.append(row)
        self.read += 1
        self.used += 1

    def _drop_large_values(self, row: CheckedRow) -> CheckedRow:
        """Return the row. If its values are large and there is no room for them, return it without
        its values.
        """
        record_id, event_type, object_id, attribute, _, _ = row
        size = self._sizes.get(record_id)
        if size is None:
            return row
        if size <= self._room:
            self._room -= size
            return row
        self._unread.add(record_id)
        return record_id, event_type, object_id, attribute, None, None

    def result(self, groups: list[Group], next_first: int | None = None) -> WindowResult:
        """Return the result of the window with these groups."""
        remarks: Sequence[Remark] = ()
        if self._remarks:
            sent = {record_id for group in groups for record_id in ids_of(group)}
            remarks = [remark for remark in self._remarks if remark.record_id in sent]
        return WindowResult(
            groups,
            self._invalid,
            self._loopback,
            next_first,
            self._passed or (),
            self._origins,
            remarks,
            self._sizes,
            self._unread,
            self.read - 2 * self.used,
        )


def read_window(
    context: Context,
    first: int,
    last: int | None,
    in_flight: Container[int],
    parked: Container[ObjectId],
    polled: Iterator[list[BoundedRow]] | None = None,
) -> WindowResult:
    """Read rows of status N from record_id ``first`` on, and fold them into groups that may be sent
    now. All rows are of one database snapshot.

    Rows in flight and rows of parked objects are passed over: they do not count against the
    window's limit. Reading continues as long as the first group is open. ``last`` is the end of the
    scan. Groups at that end are also deferred, since a row after the end may belong to the same
    transaction. ``last`` None = the scan ends with the queue, and no group is deferred. ``polled``
    are the rows of the window, if they have been read already.
    """
    options = context.options
    limit = options.window_rows
    reader = WindowReader(context, in_flight, parked)
    window = context.ledger.undone(
        Window(first, last, limit, options.skipped_user, reader.value_bytes)
    )
    rows = context.log.read_fields(window, reader.fields) if polled is None else polled
    result = _read_chunks(window, [rows], reader)
    if result is None:
        # In this rare case a new cursor reads from the beginning, since another statement would see
        # another database snapshot.
        whole = replace(window, limit=None)
        with closing(context.log.window_chunks(whole, reader.fields, limit)) as chunks:
            reader = WindowReader(context, in_flight, parked)
            result = _read_chunks(window, ([chunk] for chunk in chunks), reader)
    assert result is not None
    return result


def _read_chunks(
    window: Window, chunks: Iterable[Iterable[list[BoundedRow]]], reader: WindowReader
) -> WindowResult | None:
    """Return the result of a window from as many chunks as the window needs. A chunk consists of
    fragments. None if the window needs more chunks than there are.
    """
    wanted = limit = reader.context.options.window_rows
    for chunk in chunks:
        rows, end = 0, window.first
        for fragment in filter(None, chunk):
            reader.add(fragment)
            rows += len(fragment)
            end, *_ = fragment[-1]
        if rows < limit:
            return reader.result(reader.folder.close(window.last))
        if reader.used < wanted:
            continue
        groups = reader.folder.close(end)
        deferred = reader.folder.rows
        if groups or not deferred:
            return reader.result(groups, first_id(deferred) if deferred else end + 1)
        wanted += limit
    return None


def _fields(context: Context) -> Sequence[str]:
    """Return the fields to read of each row."""
    if Need.TIMES not in context.output.needs:
        return QUEUE_FIELDS
    return TIMED_FIELDS if context.log.table.transaction_column is None else TRACED_FIELDS


def _value_bytes(context: Context) -> int:
    """Return the maximum bytes of values that the window's statement returns for a row."""
    return max(context.options.delivery_bytes // context.options.window_rows, _SMALL)


def _whole_rows(
    context: Context, rows: Sequence[BoundedRow], large: dict[int, int]
) -> Iterator[list[QueueRow]]:
    """Yield the rows in runs. Large rows get their values, at most ``delivery_bytes`` in a run.

    The bytes of large rows are added to ``large`` by record_id.
    """
    if not any(map(_left_out, rows)):  # as nearly always
        yield list(map(_queue_row, rows))
        return
    run: list[QueueRow] = []
    sizes: dict[int, int] = {}
    total = 0

    def filled() -> list[QueueRow]:
        large.update(sizes)
        whole = {row[0]: row for row in _read_new(context, sizes)} if sizes else {}
        # A row that is no longer N was marked by hand in the meantime.
        return [whole.get(row[0], row) for row in run if row[0] not in sizes or row[0] in whole]

    for row in rows:
        if size := _left_out(row):
            if sizes and total + size > context.options.delivery_bytes:
                yield filled()
                run, sizes, total = [], {}, 0
            sizes[_record_id(row)] = size
            total += size
        run.append(_queue_row(row))
    if run:
        yield filled()


def _read_new(context: Context, record_ids: Iterable[int]) -> list[QueueRow]:
    """Return the rows of these record_ids that are not done yet, with their values."""
    fields = (*QUEUE_FIELDS, "status")
    ids = sorted(record_ids)
    rows = context.log.read_columns(to_ranges(ids), fields)
    if len(rows) < len(ids):
        report_missing(context, len(ids) - len(rows), ids[0], ids[-1])
    return [_queue_row(row) for row in rows if row[-1].rstrip(" ") in context.ledger.statuses]


def split_groups(
    groups: Sequence[Group],
    max_rows: int,
    max_bytes: int,
    sizes: Mapping[int, int] = MappingProxyType({}),
) -> Iterator[list[Group]]:
    """Yield runs of groups up to ``max_rows`` and ``max_bytes``; a larger group is a separate run.

    ``sizes`` has the bytes of large rows by record_id; the size of other rows is counted as zero.
    """
    run: list[Group] = []
    rows = size = 0
    for group in groups:
        weight = sum(sizes.get(record_id, 0) for record_id in ids_of(group)) if sizes else 0
        if run and (rows + len(group) > max_rows or size + weight > max_bytes):
            yield run
            run, rows, size = [], 0, 0
        run.append(group)
        rows += len(group)
        size += weight
    if run:
        yield run


def with_values(
    context: Context, groups: Sequence[Group], unread: AbstractSet[int]
) -> Sequence[Group]:
    """Return the groups with all values, including the values that the window has dropped."""
    wanted = (
        [record_id for group in groups for record_id in ids_of(group) if record_id in unread]
        if unread
        else []
    )
    if not wanted:
        return groups
    checked = check_rows(_read_new(context, wanted), context.catalog, None)
    whole = dict(zip(ids_of(checked.valid), checked.valid, strict=True))
    # A row that is no longer N was marked by hand in the meantime.
    filled = [
        [whole.get(row[0], row) for row in group if row[0] not in unread or row[0] in whole]
        for group in groups
    ]
    return [group for group in filled if group]


def build_events(
    context: Context, groups: Sequence[Group], query_back: QueryBack
) -> list[Outgoing]:
    """Build the events of groups in the order of the groups. Values that rows of the groups need
    are read back class by class.
    """
    options, attempts = context.options.events, context.attempts
    is_read = context.catalog.may_lack_objects and needs_reading(groups)
    if not is_read and not asks_for_values(chain.from_iterable(groups)):  # as in most logs
        return [build_event(group, options, attempts=attempts) for group in groups]
    decided = decide(groups, query_back)
    return [
        build_event(group, options, decision, current, attempts=attempts)
        for group, decision, current in decided
    ]


# --- in the order of event_time -------------------------------------------------------------------


class DueScan(NamedTuple):
    """The rest of a scan of due rows."""

    until: str
    """The time at which the rows were due."""
    writers: Writers
    """The writers as in ``QueueScan``."""
    after: DuePlace | None = None
    """The row after which the rest begins (event_time, record_id)."""
    past: int = 0
    """The number of rows passed over minus the number of rows used, as in ``QueueScan``."""

    @property
    def is_begun(self) -> bool:
        """True if a window of the scan has been read."""
        return self.after is not None

    @property
    def rests_on_writers(self) -> bool:
        """True if the next window is valid only while ``writers`` are open, as in ``QueueScan``."""
        return self.is_begun


def begin_due_scan(context: Context, is_long: bool) -> DueScan:
    """Return a scan of all rows that are due now according to the database's clock.

    ``is_long`` as in ``begin_scan``.
    """
    refuse_large_ids(context.log)
    context.ledger.pass_requests()
    until = context.log.due_until(context.options.event_time_zone)
    return DueScan(until, context.log.open_writers() if is_long else None)


def read_due_window(
    context: Context, due: DueScan, in_flight: Container[int], parked: Container[ObjectId]
) -> tuple[WindowResult, DueScan | None]:
    """Read a window of a scan in one database snapshot, and fold its rows. Return the result with
    the rest of the scan, None = the scan has ended.

    Groups end at the window's end, and no group is deferred. But if an insert continues after the
    end, its further rows are read, since as a separate add they would replace the object. Rows in
    flight and rows of parked objects are passed over: they do not count against the window's limit.
    """
    options = context.options
    limit = options.window_rows
    reader = WindowReader(context, in_flight, parked)
    rest: DueScan | None = None
    with closing(
        context.log.due_chunks(
            due.until,
            due.after,
            options.skipped_user,
            # Without a format that needs times, the order does.
            TIMED_FIELDS if reader.fields is QUEUE_FIELDS else reader.fields,
            limit,
            reader.value_bytes,
        )
    ) as chunks:
        for chunk in chunks:
            reader.add(chunk)
            if len(chunk) == limit and reader.used >= limit:
                rest = due._replace(after=(_event_time(chunk[-1]), _record_id(chunk[-1])))
                break
        if rest is not None:
            _complete_inserts(reader, chunks)
    return reader.result(reader.folder.close(None)), rest


def _complete_inserts(reader: WindowReader, chunks: Iterable[list[BoundedRow]]) -> None:
    """Add to a window the rows after its end that belong to an insert with rows on both sides of
    the end.

    The search ends after ``farthest`` rows that belong to no such insert: rows with the same time
    are in the order of record_ids, and rows of an insert are at most ``farthest`` record_ids apart.
    """
    options = reader.context.options
    farthest = reach(options.fold_distance)
    most = reach_of_span(options.fold_span) or UNLIMITED_WINDOW
    folded = fold(reader.folder.rows, options.fold_distance, options.fold_span)
    unfinished = {object_of(group): group for group in folded}
    rows_checked = found_at = 0
    for chunk in chunks:
        for row in reader.examine(chunk):
            group = unfinished.get(object_of([row]))
            if group is None:
                continue
            if is_rest_of_insert(group, row, options.fold_distance, options.fold_span):
                reader.take(row)
                group.append(row)
                found_at = rows_checked + len(chunk)
            else:
                del unfinished[object_of([row])]
        rows_checked += len(chunk)
        if rows_checked - found_at > farthest or rows_checked >= most:
            return


# --- claimed rows ---------------------------------------------------------------------------


def read_claimed_objects(context: Context, claim: BacklogClaim) -> ClaimedObjects:
    """Read the objects of all claimed rows of status N.

    The objects are read once, and again when one of ``writers`` has ended.
    """
    open_now = context.log.open_writers()
    writers = None if claim.writers is None or open_now is None else claim.writers & open_now
    claimed = ClaimedObjects(writers)
    options = context.options
    window = Window(1, claim.last, None, options.skipped_user, _value_bytes(context))
    with closing(context.log.window_chunks(window, QUEUE_FIELDS, UNLIMITED_WINDOW)) as chunks:
        for chunk in chunks:
            for rows in _whole_rows(context, chunk, {}):
                checked = check_rows(rows, context.catalog, None)
                invalid = {row.record_id for row in checked.invalid}
                # By an earlier key only deletes are valid now, but the job may have an add.
                by_former_key = [
                    (number, EventType.DELETE_ROW, user, table, key, None, None, None)
                    for number, _, user, table, key, *_ in rows
                    if number in invalid
                ]
                deletes = check_rows(by_former_key, context.catalog, None)
                for _, _, object_id, _, _, _ in (*checked.valid, *deletes.valid):
                    claimed.add(object_id)
    return claimed


@dataclass(frozen=True, slots=True)
class Either:
    """A container that has the members of two containers."""

    one: Container[Any]
    other: Container[Any]

    def __contains__(self, member: object) -> bool:
        return member in self.one or member in self.other
