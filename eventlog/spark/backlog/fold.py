"""The first and second stage of a backlog job: rows of the log are read, checked, folded and built
into events.

Each task of the first stage does this work for one part of the log, except for the rows near the
ends of the part. The few rows near the ends go to the bucket of their object, and the second stage
folds them.

Spark passes on only the numbers of parts, and the workers read the rows themselves: Spark would
convert every row of a data source to its own form and back, which takes as long as reading it. For
the same reason the events wait in a file for the third stage, which merges these events with the
events of the second stage.
"""

from __future__ import annotations

import marshal
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack
from itertools import chain, islice
from operator import itemgetter
from typing import Any, Final
from zlib import crc32

from eventlog.core.catalog import Attribute, Catalog, ObjectClass, ObjectId
from eventlog.core.ranges import to_ranges
from eventlog.core.rows.checks import (
    DELETE_ROW,
    FIELD_TYPES,
    ROW_TYPES,
    CheckedRow,
    Texts,
    check_rows,
)
from eventlog.core.rows.events import CurrentRow, Decided, decide, ids_of
from eventlog.core.rows.fold import Group, RowFolder, first_id, open_groups, reach
from eventlog.errors import DatabaseError, number_of
from eventlog.model import ALL, QUEUE_FIELDS, LogRow, log_row, queue_rows
from eventlog.spark.backlog.job import (
    BEFORE,
    EVENTS,
    NOTHING,
    NUMBERED,
    OUTCOMES,
    ROWS,
    Blob,
    Job,
    Numbered,
    PartOutcomes,
    RowFailure,
    SnapshotSession,
    as_batch,
    before_each,
    blobs_of_batch,
    catalog,
    pack_columns,
    pack_numbered,
    snapshot_session,
    total,
    unpack_numbered,
    write_run,
)
from eventlog.spark.backlog.output import LogRows, output_format
from eventlog.spark.directory import Directory
from eventlog.spark.session.in_tasks import Batches, task_numbers, tune_collector
from eventlog.sql.port import LogPart, Window, counted_rows

# --- read a part ----------------------------------------------------------------------------------

_RECORD_ID: Final = itemgetter(0)
BATCH_ROWS: Final = 10_000
"""The number of rows that a task reads in one transaction."""


def read_parts(job: Job, batches: Batches) -> Batches:
    """Yield the blobs of the parts whose numbers are in the batches."""
    tune_collector()
    for number in task_numbers(batches):
        yield as_batch(_read_part(job, number))


def _read_part(job: Job, number: int) -> list[Blob]:
    """Return the blobs of one part: the rows near its ends, by bucket, and the file with the other
    rows.
    """
    distances = job.options.fold_distance, job.options.fold_span
    part = _Part(job, number)
    boundary = Boundary(job.parts[number - 1], *distances)
    with ExitStack() as stack:
        builder = Builder(job, stack)
        built = _built(part, boundary, builder, RowFolder(*distances))
        first = list(islice(built, 1))
        if not first:
            return []
        directory = Directory(job.output.directory)
        blobs = [write_run(directory, number, chain(first, built))]
        # Only now, after all blobs, has the boundary its rows, and the builder its numbers.
    kinds = {kind: i for i, kind in enumerate(_kinds_of(catalog(job)))}
    border = sorted(boundary.rows, key=_RECORD_ID)
    blobs += _pack_rows(border, kinds, job.buckets, part.log_rows)
    for of_part, numbered in builder.numbered.items():
        blobs.append(Blob(NUMBERED, number % job.buckets, 0, pack_numbered(of_part, numbered)))
    return blobs


def _built(part: _Part, boundary: Boundary, builder: Builder, folder: RowFolder) -> Iterator[Blob]:
    """Read a part, and yield the blobs of its final groups as soon as they are built; yield the
    outcomes of its rows at the end, if it has rows.
    """
    for good in part.good_rows(builder.session):
        yield from builder.blobs(boundary.final(folder.add(good)), part.log_rows)
        if part.log_rows:
            left = ids_of(chain(folder.rows, boundary.rows))
            part.log_rows = {record_id: part.log_rows[record_id] for record_id in left}
    yield from builder.blobs(boundary.final_at_end(folder.close(None)), part.log_rows)
    if part.ids:
        outcomes = PartOutcomes(
            part.failures, dict(part.remarks), to_ranges(part.ids), part.loopback
        )
        yield Blob(OUTCOMES, part.number, 0, outcomes.packed())


class _Part:
    """A part of the log, and the rows read from it: the record_ids, the invalid rows, the number of
    loopback rows, and the counters of valid rows. For formats that need it, the part also has the
    rows as they are in the log.
    """

    def __init__(self, job: Job, number: int) -> None:
        self.number = number
        self.ids: list[int] = []
        self.failures: list[RowFailure] = []
        self.loopback = 0
        self.log_rows: dict[int, LogRow] = {}
        self.remarks: Counter[str] = Counter()
        self._job, self._range = job, job.parts[number - 1]

    def good_rows(self, session: SnapshotSession) -> Iterator[list[CheckedRow]]:
        """Yield the valid rows of the part in queue order, in chunks."""
        job = self._job
        user = job.options.driver_user
        left = user if job.options.leave_loopback else None
        needs_rows = output_format(job.output.format).needs_log_rows(job)
        fields = LogRow._fields if needs_rows else QUEUE_FIELDS
        read = 0
        for rows in self._range.only_own(read_batches(session, self._range, fields)):
            read += len(rows)
            if needs_rows:
                whole = list(map(log_row, rows))
                self.log_rows.update(zip(map(_RECORD_ID, whole), whole, strict=True))
                rows = list(queue_rows(whole))
            rows = counted_rows(rows, job.in_flight, left)
            self.ids += map(_RECORD_ID, rows)
            checked = check_rows(rows, catalog(job), user)
            self.failures += [(row.record_id, row.code, row.message) for row in checked.invalid]
            self.loopback += len(checked.loopback)
            self.remarks.update(remark.counter for remark in checked.remarks)
            yield checked.valid
        if self._range.ids is not None and read != self._range.rows:
            raise DatabaseError(
                f"{number_of(self._range.rows - read, 'row')} from record_id {self._range.first} "
                f"to {self._range.last} had status N when the job began, but now have another "
                "status or are missing: the log was changed, or executors read another server "
                "than the driver. Run the command again, and check the URL that executors use"
            )


def read_batches(
    session: SnapshotSession, part: LogPart, fields: Sequence[str]
) -> Iterator[list[tuple[Any, ...]]]:
    """Yield lists of the rows of status N in a part's range, each row with these fields. The first
    field is record_id. Between two batches the log is not locked.
    """
    last: int | None = part.first - 1
    while last is not None:
        window = Window(last + 1, part.last, BATCH_ROWS)
        with session.batch() as context:
            fragments = [one for one in context.log.read_fields(window, fields) if one]
        yield from fragments
        is_full = sum(map(len, fragments)) == BATCH_ROWS
        last = _RECORD_ID(fragments[-1][-1]) if is_full else None


class Boundary:
    """The boundary of a part: it separates the groups that may fold with rows of other parts.
    ``rows`` are the rows of these groups.

    Rows fold only within a distance of record_ids (spec/event-log.md 6). Rows farther from both
    ends of a part fold the same way whatever the other parts contain. Only the rows near the ends,
    usually few, must be folded with the rows of other parts.

    The ``rows`` of all parts, folded together, give exactly the missing groups: ``rows`` begin and
    end at the bounds of groups. If rows of an object are left out between two of its ``rows``, the
    two rows are too far apart to fold.
    """

    def __init__(self, part: LogPart, fold_distance: int, fold_span: int) -> None:
        self.rows: list[CheckedRow] = []
        self._distances, self._reach = (fold_distance, fold_span), reach(fold_distance)
        self._before, self._last = part.first - 1, part.last
        self._run_ends: dict[ObjectId, int] = {}
        self._run_end = self._before

    def final(self, groups: Sequence[Group]) -> list[Group]:
        """Return the groups that are final. The caller passes all groups of the part in queue
        order, each group when no later row of the part can join it.
        """
        final: list[Group] = []
        for index, group in enumerate(groups):
            if first_id(group) - self._run_end > self._reach:  # true for every later group, too
                return [*final, *groups[index:]]
            if not self._may_begin_before(group):
                final.append(group)
        return final

    def final_at_end(self, groups: Sequence[Group]) -> list[Group]:
        """Return the groups at the end of the part that are final."""
        still_open = set(open_groups(groups, self._last, *self._distances))
        for index in still_open:
            self.rows += groups[index]
        return self.final([group for index, group in enumerate(groups) if index not in still_open])

    def _may_begin_before(self, group: Group) -> bool:
        """Return True if the group may continue a run of rows that began in an earlier part. Groups
        that may continue an earlier run are built in the second stage, which has the whole run.

        In a run each row is close enough to the next to fold, and the content of the run determines
        how it is cut into groups.
        """
        first, _, object_id, _, _, _ = group[0]
        if first - self._run_ends.get(object_id, self._before) > self._reach:
            return False
        last, *_ = group[-1]
        self._run_ends[object_id] = last
        self._run_end = max(self._run_end, last)
        self.rows += group
        return True


# --- rows for a bucket ----------------------------------------------------------------------------

_RowKind = tuple[int, ObjectClass, Attribute | None]
"""The event type, class and attribute of a row.

There are few kinds, so a row carries the number of its kind.
"""


def _kinds_of(catalog: Catalog) -> list[_RowKind]:
    """Return all kinds of rows, in the same order in every process."""
    kinds: list[_RowKind] = []
    for object_class in catalog.classes:
        kinds += [(event_type, object_class, None) for event_type in ROW_TYPES]
        kinds += [
            (event_type, object_class, a)
            for a in object_class.attributes
            for event_type in FIELD_TYPES
        ]
        if object_class.former is not None:
            kinds.append((DELETE_ROW, object_class.former, None))
    return kinds


def _pack_rows(
    rows: Iterable[CheckedRow],
    numbers: Mapping[_RowKind, int],
    buckets: int,
    log_rows: LogRows,
) -> list[Blob]:
    """Pack rows in record_id order into blobs, one for each bucket that has rows. Marshalling is
    safe, since only Spark transports these rows, and it transports tasks, too.

    The object's canonical key determines the bucket, in the same way in every process. ``log_rows``
    has the rows as they are in the log, by record_id; they are packed, too.
    """
    packed: list[list[tuple[int, int, str, bool, Texts, Texts]]] = [[] for _ in range(buckets)]
    for record_id, event_type, (object_class, key), attribute, old, new in rows:
        goes = None if old is ALL else old
        packed[crc32(key.encode()) % buckets].append(
            (record_id, numbers[event_type, object_class, attribute], key, old is ALL, goes, new)
        )
    blobs = []
    for bucket, members in enumerate(packed):
        if members:
            as_logged = (
                [tuple(log_rows[record_id]) for record_id, *_ in members] if log_rows else []
            )
            first_id, *_ = members[0]
            blobs.append(Blob(ROWS, bucket, first_id, marshal.dumps((members, as_logged))))
    return blobs


def _unpack_rows(
    content: bytes, kinds: Sequence[_RowKind], log_rows: MutableMapping[int, LogRow]
) -> list[CheckedRow]:
    """Return the rows of a blob.

    The rows as they are in the log, if the blob has them, are added to ``log_rows``.
    """
    members, as_logged = marshal.loads(content)  # noqa: S302 - made by ``_pack_rows`` in this job
    for row in map(log_row, as_logged):
        log_rows[row.record_id] = row
    rows: list[CheckedRow] = []
    for record_id, number, key, all_go, old, new in members:
        event_type, object_class, attribute = kinds[number]
        rows.append(
            (record_id, event_type, (object_class, key), attribute, ALL if all_go else old, new)
        )
    return rows


# --- fold a bucket --------------------------------------------------------------------------------


def fold_bucket(job: Job, batches: Batches) -> Batches:
    """Fold the blobs of one bucket, or of several buckets in turn, into events. The blobs are in
    the order of their first record_ids.
    """
    tune_collector()
    with ExitStack() as stack:
        folding = _Folding(job, Builder(job, stack))
        for batch in batches:
            blobs = [passed_on for blob in blobs_of_batch(batch) for passed_on in folding.add(blob)]
            if blobs:
                yield as_batch(blobs)
        yield as_batch(folding.finish())
        yield as_batch(list(folding.before_parts()))


class _Folding:
    """The rows of a bucket that have been read and not yet folded and passed on."""

    def __init__(self, job: Job, builder: Builder) -> None:
        self._job = job
        self._builder = builder
        self._kinds: list[_RowKind] = _kinds_of(catalog(job))
        self._bucket = -1
        self._folder = RowFolder(job.options.fold_distance, job.options.fold_span)
        self._log_rows: dict[int, LogRow] = {}
        self._numbered_by_parts: list[tuple[int, Numbered]] = []

    def add(self, blob: Blob) -> Iterator[Blob]:
        """Add a blob, and yield the blobs that can be passed on now."""
        if blob.kind == NUMBERED:
            self._numbered_by_parts.append(unpack_numbered(blob.content))
        elif blob.kind == ROWS:
            yield from self._add_rows(blob)
        else:
            yield blob

    def _add_rows(self, blob: Blob) -> Iterator[Blob]:
        if blob.target != self._bucket:
            yield from self.finish()
            self._bucket = blob.target
        groups = self._folder.add(_unpack_rows(blob.content, self._kinds, self._log_rows))
        yield from self._builder.blobs(groups, self._log_rows)
        if groups and self._log_rows:
            self._log_rows = {
                record_id: self._log_rows[record_id] for record_id in ids_of(self._folder.rows)
            }

    def finish(self) -> list[Blob]:
        """Return the remaining blobs at the end of a bucket."""
        blobs = list(self._builder.blobs(self._folder.close(None), self._log_rows))
        self._log_rows = {}
        self._folder = RowFolder(self._job.options.fold_distance, self._job.options.fold_span)
        return blobs

    def before_parts(self) -> Iterator[Blob]:
        """Yield, for each part, how many numbers the parts before it use: the sum that this task
        has seen. ``write.py`` adds up the sums of all tasks. Call this function after all blobs.
        """
        by_part = dict(self._builder.numbered)
        for part, numbered in self._numbered_by_parts:
            by_part[part] = total((by_part.get(part, NOTHING), numbered))
        for part, before in before_each(by_part, len(self._job.parts)):
            yield Blob(BEFORE, part, 0, pack_numbered(part, before))


# --- groups to events -----------------------------------------------------------------------------

_BLOB_EVENTS: Final = 2_000


class Builder:
    """A builder of events from groups.

    ``numbered`` has the numbers that events use, by part.
    """

    def __init__(self, job: Job, stack: ExitStack) -> None:
        self.numbered: dict[int, Numbered] = {}
        self._job = job
        self._stack = stack
        self._render = output_format(job.output.format).renderer(job)
        self._session: SnapshotSession | None = None

    @property
    def session(self) -> SnapshotSession:
        """A session that reads the database snapshot. The session is opened at first use."""
        if self._session is None:
            self._session = self._stack.enter_context(snapshot_session(self._job))
        return self._session

    def blobs(self, groups: Sequence[Group], log_rows: LogRows) -> Iterator[Blob]:
        """Yield, part by part, the output of groups in queue order and the outcomes of their rows.

        ``log_rows`` has the rows of the groups as they are in the log, for formats that need them.
        """
        decided = decide(groups, self._query_back)
        places = list(map(first_id, groups))
        start = 0
        while start < len(places):
            part = self._job.part_of(places[start])
            last = self._job.parts[part - 1].last
            end = bisect_right(places, last, start, min(start + _BLOB_EVENTS, len(places)))
            yield from self._part_blobs(part, decided[start:end], places[start:end], log_rows)
            start = end

    def _part_blobs(
        self,
        part: int,
        decided: Sequence[Decided],
        places: Sequence[int],
        log_rows: LogRows,
    ) -> Iterator[Blob]:
        blob, failures, counts, numbered = self._render(decided, places, log_rows, self._query_back)
        if blob is not None:
            yield Blob(EVENTS, part, places[0], pack_columns(blob))
        if numbered is not NOTHING:
            self.numbered[part] = total((self.numbered.get(part, NOTHING), numbered))
        by_part: dict[int, list[RowFailure]] = {part: []}
        for failure in failures:
            by_part.setdefault(self._job.part_of(failure[0]), []).append(failure)
        for number, several in by_part.items():
            outcomes = PartOutcomes(several, dict(counts) if number == part else {})
            yield Blob(OUTCOMES, number, places[0], outcomes.packed())

    def _query_back(
        self, object_class: ObjectClass, keys: Sequence[str], attributes: Sequence[Attribute]
    ) -> Mapping[str, CurrentRow]:
        """Return the rows of objects in the database snapshot."""
        with self.session.batch() as context:
            return context.query_back(object_class, keys, attributes)
