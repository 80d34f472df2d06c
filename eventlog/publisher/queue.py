"""What is read next of the queue: a scan of it, window by window, and how long that is valid
(spec/event-log.md 8.1, 8.2, where a scan is called a pass).

A window that begins at the head of the queue is one snapshot: of an object it has all rows or the first ones. A later
window begins behind what its scan has read, to spare the walk over what was just marked. Between the two a transaction
may commit whose rows lie on both sides: the later ones would overtake the earlier ones. So a scan ends when any
transaction ends that had written the log when it began, and at the highest row N that there was; what began after that
lies behind it.

With ``handle_future_events`` the order is that of event_time, and only rows that are due are read.

A window counts rows, and its memory is bounded by bytes all the same. The statement that reads it leaves the values of
large rows out. These are read by further statements, checked, and kept up to ``flight_bytes``; the values of the rest
are forgotten, and read once more when their flight is made. So folding sees every row, whatever its size.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from eventlog.changes.publishing import Need
from eventlog.core.catalog import ObjectId
from eventlog.core.checks import BadRow, CheckedRow, Remark, check_rows
from eventlog.core.events import Outgoing, QueryBack, asks_for_values, build_event, decide, ids_of
from eventlog.core.fold import Group, RowFolder, first_id
from eventlog.model import QUEUE_FIELDS, TIMED_FIELDS, LogRow, Origins, QueueRow, queue_rows
from eventlog.publisher.context import Context, PublisherOptions
from eventlog.publisher.flight import NO_ORIGINS
from eventlog.publisher.held_rows import HeldObjects, Hold
from eventlog.publisher.ledger import QueueScan, Writers
from eventlog.sql.windows import DuePlace, Window, to_ranges

_record_id, _perpetrator, _event_time = (
    itemgetter(TIMED_FIELDS.index(field)) for field in ("record_id", "perpetrator", "event_time")
)
_queue_row: Final[Callable[[tuple[Any, ...]], QueueRow]] = itemgetter(slice(len(QUEUE_FIELDS)))
_timed: Final = itemgetter(*map(LogRow._fields.index, TIMED_FIELDS))


def begin_scan(context: Context, is_long: bool) -> QueueScan | None:
    """A scan from the head of the queue on; None if the queue is empty. ``is_long``: one window will not do."""
    return context.ledger.begin_scan(context.connection, context.dialect, context.log, is_long=is_long)


def open_writers(context: Context) -> Writers:
    """Who has written the log and is open."""
    return context.dialect.open_writers(context.connection, context.log)


def is_still_valid(context: Context, writers: Writers) -> bool:
    """Whether nobody of ``writers`` has ended: nothing of theirs was to be seen in what has been read until now."""
    return writers is not None and (not writers or context.dialect.are_open(context.connection, writers))


# --- a window ---------------------------------------------------------------------------------------------------------

_UNLIMITED_WINDOW = 10_000
"""Rows of a window with ``query_limit = 0``: windows do not change the result, and memory stays bounded."""

_SMALL: Final = 1024
"""Bytes of values that a row has in a window whatever ``flight_bytes`` is."""

_EVENT_TYPES: Final = frozenset(range(1, 9))
_event_type: Final = itemgetter(QUEUE_FIELDS.index("event_type"))
_table_name: Final = itemgetter(QUEUE_FIELDS.index("table_name"))


def most_retries(options: PublisherOptions) -> int:
    """How many events that got retry a cycle sends again before it takes its window."""
    return max((options.query_limit or _UNLIMITED_WINDOW) // 2, 1)


class WindowResult(NamedTuple):
    """What one window gives. ``next_first`` is the record_id that the next window of the scan begins at, None at its
    end. ``origins``: of what was read, for a format that needs them. ``remarks`` on rows of the groups. ``sizes``: the
    bytes of large rows by record_id; ``unread``: those of them whose values are forgotten. ``past``: how many rows more
    were read past than taken. ``passed``: rows of classes that are not wanted.
    """

    groups: list[Group]
    bad: list[BadRow]
    loopback: list[int]
    next_first: int | None
    passed: Sequence[int] = ()
    origins: Origins = NO_ORIGINS
    remarks: Sequence[Remark] = ()
    sizes: Mapping[int, int] = MappingProxyType({})
    unread: AbstractSet[int] = frozenset()
    past: int = 0


class WindowReader:
    """Checks the chunks of a window and folds their good rows. Rows in flight and of parked objects are left out.

    ``used``: how many of the rows ``read`` use up the window. ``value_bytes``: a row with more bytes of values comes
    without them.
    """

    def __init__(self, context: Context, in_flight: Container[int], parked: Container[ObjectId]) -> None:
        self.context = context
        self.folder = RowFolder(context.options.fold_distance, context.options.fold_span)
        self.read = self.used = 0
        self._in_flight, self._parked = in_flight, parked
        self._bad: list[BadRow] = []
        self._loopback: list[int] = []
        self._passed: list[int] = []
        self._wanted: dict[str | None, bool] = {}
        self._origins = Origins({}, {})
        self._remarks: list[Remark] = []
        self._sizes: dict[int, int] = {}
        self._unread: set[int] = set()
        self._room = context.options.flight_bytes  # for values of large rows that are kept
        self.value_bytes = _value_bytes(context)

    def whole(self, chunk: list[LogRow]) -> list[QueueRow]:
        """What is looked at of whole rows, whose origins are kept if the format asks for them."""
        if Need.TIMES in self.context.output.needs:
            return self.timed(list(map(_timed, chunk)))
        return list(queue_rows(chunk))

    def timed(self, chunk: list[tuple[Any, ...]]) -> list[QueueRow]:
        """What is looked at of rows with ``TIMED_FIELDS``, whose origins are kept."""
        ids = list(map(_record_id, chunk))
        self._origins.event_times.update(zip(ids, map(_event_time, chunk), strict=True))
        self._origins.users.update(zip(ids, map(_perpetrator, chunk), strict=True))
        return list(map(_queue_row, chunk))

    def add(self, chunk: list[QueueRow]) -> None:
        """Check the next rows."""
        self.read += len(chunk)
        free = chunk
        if self._in_flight:
            free = [row for row in chunk for record_id, *_ in (row,) if record_id not in self._in_flight]
        if self.context.options.classes is not None:
            free = self._of_wanted_classes(free)
        if _EVENT_TYPES.issuperset(map(_event_type, free)):  # as nearly always
            self._check(free)
        else:
            for run in _whole_rows(self.context, free, self._sizes):
                self._check(run)

    def _of_wanted_classes(self, rows: list[QueueRow]) -> list[QueueRow]:
        """Those of the rows that ``classes`` asks for; the others are done."""
        wanted: list[QueueRow] = []
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

    def _check(self, rows: list[QueueRow]) -> None:
        checked = check_rows(rows, self.context.catalog, self.context.options.driver_user)
        good, bad, loopback, remarks, _ = checked  # rows of unavailable classes are read past
        if self._sizes:
            good = list(map(self._forget_beyond_room, good))
        if self._parked:
            good = [row for row in good for _, _, object_id, _, _, _ in (row,) if object_id not in self._parked]
        self.folder.rows += good
        self._bad += bad
        self._loopback += loopback
        self._remarks += remarks
        self.used += len(good) + len(bad) + len(loopback)

    def _forget_beyond_room(self, row: CheckedRow) -> CheckedRow:
        """The row, without its values if they are large and there is no room for them."""
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
        """What the window gives, with these groups."""
        remarks: Sequence[Remark] = ()
        if self._remarks:
            sent = {record_id for group in groups for record_id in ids_of(group)}
            remarks = [remark for remark in self._remarks if remark.record_id in sent]
        return WindowResult(
            groups,
            self._bad,
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
    context: Context, first: int, last: int | None, in_flight: Container[int], parked: Container[ObjectId]
) -> WindowResult:
    """Read rows N from record_id ``first`` on, and fold them into groups that may be sent now. All is of one snapshot.

    Rows in flight and rows of parked objects are read past: they do not use up the window. The window is read on
    while its very first group is open. ``last``: where the scan ends; there groups are deferred too, since a row
    behind it may be of the same transaction. None = the tail of the queue, where nothing is deferred.
    """
    options = context.options
    limit = options.query_limit or _UNLIMITED_WINDOW
    reader = WindowReader(context, in_flight, parked)
    window = context.ledger.undone(Window(first, last, limit, options.leave_user, reader.value_bytes))
    needs_times = Need.TIMES in context.output.needs
    fields = TIMED_FIELDS if needs_times else QUEUE_FIELDS
    pieces: Iterable[list[Any]] = context.dialect.read_fields(context.connection, context.log, window, fields)
    result = _read_chunks(window, [map(reader.timed, pieces) if needs_times else pieces], reader)
    if result is None:
        # Seldom: begun anew by a cursor, since what another statement reads is not of the same snapshot.
        whole = replace(window, limit=None)
        with closing(context.dialect.window_chunks(context.connection, context.log, whole, limit)) as chunks:
            reader = WindowReader(context, in_flight, parked)
            result = _read_chunks(window, ([reader.whole(chunk)] for chunk in chunks), reader)
    assert result is not None
    return result


def _read_chunks(
    window: Window, chunks: Iterable[Iterable[list[QueueRow]]], reader: WindowReader
) -> WindowResult | None:
    """What a window gives, of as many chunks as it needs, each in pieces; None if it needs more than there are."""
    wanted = limit = reader.context.options.query_limit or _UNLIMITED_WINDOW
    for chunk in chunks:
        rows, end = 0, window.first
        for piece in filter(None, chunk):
            reader.add(piece)
            rows += len(piece)
            end, *_ = piece[-1]
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


def _value_bytes(context: Context) -> int:
    """The most bytes of values that a row of a window comes with."""
    return max(context.options.flight_bytes // (context.options.query_limit or _UNLIMITED_WINDOW), _SMALL)


def _whole_rows(context: Context, rows: Sequence[QueueRow], large: dict[int, int]) -> Iterator[list[QueueRow]]:
    """The rows in runs, the large ones with their values, of which a run has at most ``flight_bytes``.

    The bytes of large rows are put into ``large``, by record_id.
    """
    run: list[QueueRow] = []
    sizes: dict[int, int] = {}
    total = 0

    def filled() -> list[QueueRow]:
        large.update(sizes)
        whole = {row[0]: row for row in _read_new(context, sizes)} if sizes else {}
        # A row that is no longer N was marked by hand meanwhile.
        return [whole.get(row[0], row) for row in run if row[0] not in sizes or row[0] in whole]

    for row in rows:
        record_id, event_type, *_ = row
        if event_type is not None and event_type < 0:
            if sizes and total - event_type > context.options.flight_bytes:
                yield filled()
                run, sizes, total = [], {}, 0
            sizes[record_id] = -event_type
            total -= event_type
        run.append(row)
    if run:
        yield filled()


def _read_new(context: Context, record_ids: Iterable[int]) -> list[QueueRow]:
    """The rows of these record_ids that still are to be done, with their values."""
    fields = (*QUEUE_FIELDS, "status")
    rows = context.dialect.read_columns(context.connection, context.log, to_ranges(sorted(record_ids)), fields)
    return [_queue_row(row) for row in rows if row[-1].rstrip(" ") in context.ledger.statuses]


def split_groups(
    groups: Sequence[Group], most_rows: int, most_bytes: int, sizes: Mapping[int, int] = MappingProxyType({})
) -> Iterator[list[Group]]:
    """Return runs of groups of at most so many rows and bytes; a larger group stands alone.

    ``sizes``: bytes of large rows by record_id; the others count nothing.
    """
    run: list[Group] = []
    rows = size = 0
    for group in groups:
        weight = sum(sizes.get(record_id, 0) for record_id in ids_of(group)) if sizes else 0
        if run and (rows + len(group) > most_rows or size + weight > most_bytes):
            yield run
            run, rows, size = [], 0, 0
        run.append(group)
        rows += len(group)
        size += weight
    if run:
        yield run


def with_values(context: Context, groups: Sequence[Group], unread: AbstractSet[int]) -> Sequence[Group]:
    """The groups with the values of their rows that a window has forgotten."""
    wanted = [record_id for group in groups for record_id in ids_of(group) if record_id in unread] if unread else []
    if not wanted:
        return groups
    checked = check_rows(_read_new(context, wanted), context.catalog, None)
    whole = dict(zip(ids_of(checked.good), checked.good, strict=True))
    # A row that is no longer N was marked by hand meanwhile.
    filled = [[whole.get(row[0], row) for row in group if row[0] not in unread or row[0] in whole] for group in groups]
    return [group for group in filled if group]


def build_events(context: Context, groups: Sequence[Group], query_back: QueryBack) -> list[Outgoing]:
    """The events of groups in their order; what their rows ask for is read back, class by class."""
    options = context.options.events
    if not asks_for_values(chain.from_iterable(groups)):  # as in most logs
        return [build_event(group, options) for group in groups]
    decided = decide(groups, query_back)
    return [build_event(group, options, decision, current) for group, decision, current in decided]


# --- in the order of event_time ---------------------------------------------------------------------------------------


class DueScan(NamedTuple):
    """The rest of a scan: rows that were due at ``until``, behind the row ``after`` (event_time, record_id).

    ``writers`` and ``past`` as of ``QueueScan``.
    """

    until: str
    writers: Writers
    after: DuePlace | None = None
    past: int = 0

    @property
    def is_begun(self) -> bool:
        """Whether a window of it has been read."""
        return self.after is not None

    @property
    def rests_on_writers(self) -> bool:
        """As of ``QueueScan``."""
        return self.is_begun


def begin_due_scan(context: Context, is_long: bool) -> DueScan:
    """A scan of all rows that are due now by the database's clock. ``is_long`` as of ``begin_scan``."""
    until = context.dialect.due_until(context.connection, context.log, context.options.event_time_zone)
    return DueScan(until, open_writers(context) if is_long else None)


def read_due_window(
    context: Context, due: DueScan, in_flight: Container[int], parked: Container[ObjectId]
) -> tuple[WindowResult, DueScan | None]:
    """Read a window of a scan, of one snapshot, and fold it; what is left of the scan, None at its end.

    Groups are cut at the window's end and none is deferred. Rows in flight and rows of parked objects are read past:
    they do not use up the window.
    """
    options = context.options
    limit = options.query_limit or _UNLIMITED_WINDOW
    reader = WindowReader(context, in_flight, parked)
    rest: DueScan | None = None
    with closing(
        context.dialect.due_chunks(
            context.connection, context.log, due.until, due.after, options.leave_user, limit, reader.value_bytes
        )
    ) as chunks:
        for chunk in chunks:
            reader.add(reader.whole(chunk))
            if len(chunk) == limit and reader.used >= limit:
                rest = due._replace(after=(chunk[-1].event_time, chunk[-1].record_id))
                break
    return reader.result(reader.folder.close(None)), rest


# --- rows that are held -----------------------------------------------------------------------------------------------


def read_objects(context: Context, hold: Hold) -> HeldObjects:
    """The objects of all rows N that are held. They are read once, and again when one of ``writers`` has ended."""
    open_now = open_writers(context)
    writers = None if hold.writers is None or open_now is None else hold.writers & open_now
    held = HeldObjects(writers)
    conn, log, options = context.connection, context.log, context.options
    window = Window(1, hold.last, None, options.leave_user, _value_bytes(context))
    with closing(context.dialect.window_chunks(conn, log, window, _UNLIMITED_WINDOW)) as chunks:
        for chunk in chunks:
            for rows in _whole_rows(context, list(queue_rows(chunk)), {}):
                for _, _, object_id, _, _, _ in check_rows(rows, context.catalog, None).good:
                    held.add(object_id)
    return held


@dataclass(frozen=True, slots=True)
class Either:
    """What is in one container or the other."""

    one: Container[Any]
    other: Container[Any]

    def __contains__(self, member: object) -> bool:
        return member in self.one or member in self.other
