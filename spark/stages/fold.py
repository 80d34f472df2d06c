"""Second stage: the border rows of a bucket of objects are folded into groups, and these built into events."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pyarrow as pa

from eventlog.core.events import ids_of
from eventlog.core.fold import RowFolder
from eventlog.model import LogRow
from spark.job import (
    BEFORE,
    NOTHING,
    ROWS,
    TAKEN,
    Blob,
    Job,
    Numbered,
    as_batch,
    before_each,
    catalog,
    of_batch,
    pack_numbered,
    total,
    unpack_numbered,
)
from spark.session import tune_collector
from spark.stages.events import Builder
from spark.stages.shuffle import RowKind, kinds_of, unpack_rows


def fold_bucket(job: Job, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Blobs of one bucket, or of several one after the other, in the order of their first record_ids, to events."""
    tune_collector()
    with ExitStack() as stack:
        folding = _Folding(job, Builder(job, stack))
        for batch in batches:
            blobs = [passed_on for blob in of_batch(batch) for passed_on in folding.take(blob)]
            if blobs:
                yield as_batch(blobs)
        yield as_batch(folding.finish())
        yield as_batch(list(folding.before_parts()))


class _Folding:
    """The rows of the bucket that have been read and not yet sent on."""

    def __init__(self, job: Job, builder: Builder) -> None:
        self._job = job
        self._builder = builder
        self._kinds: list[RowKind] = kinds_of(catalog(job))
        self._bucket = -1
        self._folder = RowFolder(job.options.fold_distance, job.options.fold_span)
        self._log_rows: dict[int, LogRow] = {}
        self._taken_before: list[tuple[int, Numbered]] = []

    def take(self, blob: Blob) -> Iterator[Blob]:
        """What can be sent on, now that this blob has come."""
        if blob.kind == TAKEN:
            self._taken_before.append(unpack_numbered(blob.content))
        elif blob.kind == ROWS:
            yield from self._take_rows(blob)
        else:
            yield blob

    def _take_rows(self, blob: Blob) -> Iterator[Blob]:
        if blob.target != self._bucket:
            yield from self.finish()
            self._bucket = blob.target
        groups = self._folder.take(unpack_rows(blob.content, self._kinds, self._log_rows))
        yield from self._builder.blobs(groups, self._log_rows)
        if groups and self._log_rows:
            self._log_rows = {record_id: self._log_rows[record_id] for record_id in ids_of(self._folder.rows)}

    def finish(self) -> list[Blob]:
        """What is left at the end of a bucket."""
        blobs = list(self._builder.blobs(self._folder.close(None), self._log_rows))
        self._log_rows = {}
        self._folder = RowFolder(self._job.options.fold_distance, self._job.options.fold_span)
        return blobs

    def before_parts(self) -> Iterator[Blob]:
        """What is numbered before each part, as far as it is known here, now that all blobs are sent on."""
        taken = dict(self._builder.taken)
        for part, numbered in self._taken_before:
            taken[part] = total((taken.get(part, NOTHING), numbered))
        for part, before in before_each(taken, len(self._job.parts)):
            yield Blob(BEFORE, part, 0, pack_numbered(part, before))
