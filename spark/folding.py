"""Second stage: the rows of a bucket of objects are folded into groups, which become what their format writes of them.

The rows come in record_id order. Groups leave as soon as no later row can join them, as from the publisher's windows
(spec/event-log.md 8.2), so that a worker holds few of them.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from operator import itemgetter
from typing import Final, cast

import pyarrow as pa
from sqlalchemy import Connection

from eventlog.checks import CheckedRow
from eventlog.fold import Group, first_open, fold
from eventlog.model import LogRow
from eventlog.publisher.context import Context
from eventlog.publisher.metrics import Counters
from eventlog.publisher.opening import renderer
from eventlog.sql.dialects import for_url
from eventlog.sql.failures import as_database_errors
from spark.job import Job, catalog, snapshot_context, tune_collector
from spark.numbering import NOTHING, Numbered, before_each, total
from spark.reading import READ, ROWS
from spark.rendering import BadLine, Counts, Decided, decide, module_of
from spark.rows import Kind, kinds_of, unpack_log_rows, unpack_rows

EVENTS: Final = 2
"""A blob of what is written of one part, in the terms of its format."""
FATES: Final = 3
"""A blob that says what became of rows: see ``Fates``."""
BEFORE: Final = 4
"""A blob that says what this bucket numbers before a part: the fields of ``Numbered``."""

SCHEMA: Final = "kind int, part int, blob binary"
_ARROW: Final = pa.schema([("kind", pa.int32()), ("part", pa.int32()), ("blob", pa.binary())])

Fates = tuple[list[BadLine], Counts]
"""Rows that cannot be written, and how many rows had which fate."""

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
        yield _as_batch(list(folding.before_parts()))


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
        self._render = module_of(job).renderer(job)
        self._with_log_rows = job.output.format != "xds"
        self._context: Context | None = None
        self._bucket = -1
        self._rows: list[CheckedRow] = []
        self._log_rows: dict[int, LogRow] = {}
        self._enough = _RUN_ROWS
        self._taken: dict[int, Numbered] = {}

    def take(self, kind: int, target: int, _first_id: int, blob: bytes) -> Iterator[_Blob]:
        """What can be sent on, now that this blob has come."""
        if kind == READ:
            yield READ, target, blob
            return
        assert kind == ROWS
        if target != self._bucket:
            yield from self.finish()
            self._bucket = target
        if self._with_log_rows:
            self._rows += unpack_log_rows(blob, self._kinds, self._log_rows)
        else:
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
        if self._with_log_rows:
            self._log_rows = {row.record_id: self._log_rows[row.record_id] for row in self._rows}

    def finish(self) -> list[_Blob]:
        """What is left at the end of a bucket."""
        groups = fold(self._rows, self._job.options.fold_distance, self._job.options.fold_span)
        self._rows, self._enough = [], _RUN_ROWS
        blobs = list(self._blobs(groups))
        self._log_rows = {}
        return blobs

    def before_parts(self) -> Iterator[_Blob]:
        """What all buckets have numbered before each part, now that all blobs are sent on."""
        for part, before in before_each(self._taken, len(self._job.parts)):
            yield BEFORE, part, marshal.dumps(tuple(before))

    def _blobs(self, groups: Sequence[Group]) -> Iterator[_Blob]:
        if not groups:
            return
        decided = self._decided(groups)
        part_of = self._job.part_of
        places = [group.rows[0].record_id for group in groups]
        start, part = 0, part_of(places[0])
        for at, first in enumerate(places):
            if at - start >= _BLOB_EVENTS or first > self._job.parts[part - 1].last:
                yield from self._part_blobs(part, decided[start:at], places[start:at])
                start, part = at, part_of(first)
        yield from self._part_blobs(part, decided[start:], places[start:])

    def _part_blobs(self, part: int, decided: Sequence[Decided], places: Sequence[int]) -> Iterator[_Blob]:
        blob, bad, counts, taken = self._render(decided, places, self._log_rows)
        if blob is not None:
            yield EVENTS, part, marshal.dumps(blob)
        if taken is not NOTHING:
            self._taken[part] = total((self._taken.get(part, NOTHING), taken))
        by_part: dict[int, list[BadLine]] = {part: []}
        for line in bad:
            by_part.setdefault(self._job.part_of(line[0]), []).append(line)
        for number, lines in by_part.items():
            fates: Fates = lines, dict(counts) if number == part else {}
            yield FATES, number, marshal.dumps(fates)

    def _decided(self, groups: Sequence[Group]) -> list[Decided]:
        if self._context is None:
            self._context = self._new_context(reads=False)
        if any(row.event_type > 4 for group in groups for row in group.rows):
            if self._context.connection is None:
                self._context = self._new_context(reads=True)
            with as_database_errors(self._context.connection):
                return decide(self._context, groups)
        return decide(self._context, groups)

    def _new_context(self, *, reads: bool) -> Context:
        job = self._job
        if reads:
            return self._stack.enter_context(snapshot_context(job))
        # Nothing is queried back, so nothing is connected to.
        nowhere = cast("Connection", None)
        dialect = for_url(job.place.url)
        return Context(nowhere, dialect, job.place.log, catalog(job), job.options, renderer(job.config), Counters())
