"""Second stage: the rows of a bucket of objects are folded into groups, which become events and their documents' text.

The rows come in record_id order. Groups leave as soon as no later row can join them, as from the publisher's windows
(spec/event-log.md 8.2), so that a worker holds few of them.
"""

from __future__ import annotations

import marshal
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from operator import itemgetter
from typing import Final, cast

import pyarrow as pa
from sqlalchemy import Connection

from eventlog.checks import CheckedRow
from eventlog.events import Outcome
from eventlog.fold import Group, first_open, fold
from eventlog.publisher.context import Context
from eventlog.publisher.metrics import Counters
from eventlog.publisher.opening import renderer
from eventlog.publisher.window import build_outcomes
from eventlog.sql.dialects import for_url
from eventlog.sql.failures import as_database_errors
from eventlog.xds.writer import write_event
from spark.job import Job, catalog, snapshot_context, tune_collector
from spark.reading import READ, ROWS
from spark.rows import Kind, kinds_of, unpack_rows

EVENTS: Final = 2
"""A blob of events of one part: see ``Events``."""
FATES: Final = 3
"""A blob that says what became of rows: see ``Fates``."""

SCHEMA: Final = "kind int, part int, blob binary"
_ARROW: Final = pa.schema([("kind", pa.int32()), ("part", pa.int32()), ("blob", pa.binary())])

Events = tuple[list[int], list[str], list[tuple[str, str, str, str]]]
"""Events in queue order: first record_ids, texts, and for Parquet event_id, class, operation and association."""

Counts = dict[str, int]
Fates = tuple[list[tuple[int, str, str]], Counts]
"""Rows whose value read back cannot be written as (record_id, code, message), and how many rows had which fate."""

_RUN_ROWS: Final = 20_000
"""Rows that are folded at a time; those of open groups are folded again with the next ones."""
_BLOB_EVENTS: Final = 2_000

_Blob = tuple[int, int, bytes]


def fold_bucket(job: Job, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Blobs of one bucket, or of several one after the other, in the order of their first record_ids, to events."""
    tune_collector()
    with ExitStack() as stack:
        folding = _Folding(job, stack)
        for batch in batches:
            blobs = [blob for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
                     for blob in folding.take(*row)]  # fmt: skip
            if blobs:
                yield _as_batch(blobs)
        yield _as_batch(folding.finish())


def _as_batch(blobs: Sequence[_Blob]) -> pa.RecordBatch:
    columns = zip(*blobs, strict=True) if blobs else [()] * len(_ARROW)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


class _Folding:
    """The rows of the bucket that have been read and not yet sent on."""

    def __init__(self, job: Job, stack: ExitStack) -> None:
        self._job = job
        self._stack = stack
        self._kinds: list[Kind] = kinds_of(catalog(job))
        self._context: Context | None = None
        self._bucket = -1
        self._rows: list[CheckedRow] = []
        self._enough = _RUN_ROWS

    def take(self, kind: int, target: int, _first_id: int, blob: bytes) -> Iterator[_Blob]:
        """What can be sent on, now that this blob has come."""
        if kind == READ:
            yield READ, target, blob
            return
        assert kind == ROWS
        if target != self._bucket:
            yield from self.finish()
            self._bucket = target
        self._rows += unpack_rows(blob, self._kinds)
        if len(self._rows) < self._enough:
            return
        distance, span = self._job.options.fold_distance, self._job.options.fold_span
        groups = fold(self._rows, distance, span)
        closed = first_open(groups, self._rows[-1].record_id, distance, span)
        self._rows = sorted(chain.from_iterable(group.rows for group in groups[closed:]), key=itemgetter(0))
        # Where groups stay open for long, not every blob is worth folding all of them again.
        self._enough = max(_RUN_ROWS, 2 * len(self._rows))
        yield from self._blobs(groups[:closed])

    def finish(self) -> list[_Blob]:
        """What is left at the end of a bucket."""
        groups = fold(self._rows, self._job.options.fold_distance, self._job.options.fold_span)
        self._rows, self._enough = [], _RUN_ROWS
        return list(self._blobs(groups))

    def _blobs(self, groups: Sequence[Group]) -> Iterator[_Blob]:
        if not groups:
            return
        outcomes = self._outcomes(groups)
        part_of = self._job.part_of
        start, part = 0, part_of(groups[0].rows[0].record_id)
        for at, group in enumerate(groups):
            first = group.rows[0].record_id
            if at - start >= _BLOB_EVENTS or first > self._job.parts[part - 1].last:
                yield from self._part_blobs(part, groups[start:at], outcomes[start:at])
                start, part = at, part_of(first)
        yield from self._part_blobs(part, groups[start:], outcomes[start:])

    def _part_blobs(self, part: int, groups: Sequence[Group], outcomes: Sequence[Outcome]) -> Iterator[_Blob]:
        built = [
            (group.rows[0].record_id, outcome.event)
            for group, outcome in zip(groups, outcomes, strict=True)
            if outcome.event is not None
        ]
        counts = _counts(outcomes)
        bad = [row for outcome in outcomes if outcome.bad for row in outcome.bad]
        if built:
            told = self._job.output.form == "parquet"
            about = [(e.event_id, e.class_name, e.operation, e.association) for _, e in built] if told else []
            events: Events = [first for first, _ in built], [write_event(event) for _, event in built], about
            yield EVENTS, part, marshal.dumps(events)
        by_part: dict[int, list[tuple[int, str, str]]] = {part: []}
        for row in bad:
            by_part.setdefault(self._job.part_of(row.record_id), []).append((row.record_id, row.code, row.message))
        for number, lines in by_part.items():
            fates: Fates = lines, counts if number == part else {}
            yield FATES, number, marshal.dumps(fates)

    def _outcomes(self, groups: Sequence[Group]) -> list[Outcome]:
        if self._context is None:
            self._context = self._new_context(reads=False)
        if any(row.event_type > 4 for group in groups for row in group.rows):
            if self._context.connection is None:
                self._context = self._new_context(reads=True)
            with as_database_errors(self._context.connection):
                return build_outcomes(self._context, groups)
        return build_outcomes(self._context, groups)

    def _new_context(self, *, reads: bool) -> Context:
        job = self._job
        if reads:
            return self._stack.enter_context(snapshot_context(job))
        # Nothing is queried back, so nothing is connected to.
        nowhere = cast("Connection", None)
        dialect = for_url(job.place.url)
        return Context(nowhere, dialect, job.place.log, catalog(job), job.options, renderer(job.config), Counters())


def _counts(outcomes: Sequence[Outcome]) -> Counts:
    counts = Counter([outcome.event.operation for outcome in outcomes if outcome.event is not None])
    published = 0
    for _, contributed, dropped, gone, empty, bad, conflicts in outcomes:
        published += len(contributed)
        if dropped or gone or empty or bad or conflicts:  # of few groups
            counts["rows_dropped"] += len(dropped)
            counts["rows_gone"] += len(gone)
            counts["rows_empty"] += len(empty)
            counts["sv_conflicts"] += conflicts
    counts["rows_published"] = published
    return dict(counts)
