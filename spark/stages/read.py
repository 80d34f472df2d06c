"""First stage: a part of the log is read, checked, folded and built into events, but for the rows near its ends.

Spark is told of parts only, and the workers read them: between a data source and a step behind it Spark would turn
every row into its own form and back, which takes as long as reading it. For the same reason the events wait in a file
for the third stage, which puts those that come from the border rows between them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain
from operator import itemgetter
from typing import Final

import pyarrow as pa

from eventlog.core.checks import CheckedRow, check_rows, is_of
from eventlog.core.events import ids_of
from eventlog.core.fold import RowFolder
from eventlog.model import QUEUE_FIELDS, LogRow, log_row, queue_rows
from eventlog.publisher.context import Context
from eventlog.sql.windows import Window, to_ranges
from spark.directory import Directory
from spark.job import FATES, TAKEN, BadLine, Blob, Fates, Job, as_batch, catalog, pack_numbered, write_run
from spark.session import task_numbers, tune_collector
from spark.stages.boundary import Boundary
from spark.stages.events import Builder
from spark.stages.shuffle import kinds_of, pack_rows

_RECORD_ID: Final = itemgetter(0)


def read_parts(job: Job, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The blobs of the parts whose numbers the batches hold."""
    tune_collector()
    for number in task_numbers(batches):
        yield as_batch(_read_part(job, number))


def _read_part(job: Job, number: int) -> list[Blob]:
    """The blobs of one part: its border rows by bucket, and the file that holds all else."""
    distances = job.options.fold_distance, job.options.fold_span
    part = _Part(job, number)
    folder, boundary = RowFolder(*distances), Boundary(job.parts[number - 1], *distances)
    with ExitStack() as stack:
        builder = Builder(job, stack)
        built: list[Blob] = []
        for good in part.good_rows(builder.context):
            built += builder.blobs(boundary.final(folder.take(good)), part.log_rows)
            if part.log_rows:
                left = ids_of(chain(folder.rows, boundary.rows))
                part.log_rows = {record_id: part.log_rows[record_id] for record_id in left}
        built += builder.blobs(boundary.final_at_end(folder.close(None)), part.log_rows)
    if not part.ids:
        return []
    fates = Fates(part.bad, dict(part.remarks), to_ranges(part.ids), part.loopback)
    run = [Blob(FATES, number, 0, fates.packed()), *built]
    blobs = [write_run(Directory(job.output.directory), number, run)]
    numbers = {kind: i for i, kind in enumerate(kinds_of(catalog(job)))}
    border = sorted(boundary.rows, key=_RECORD_ID)
    blobs += pack_rows(border, numbers, job.buckets, part.log_rows)
    for taken_of, taken in builder.taken.items():
        blobs.append(Blob(TAKEN, number % job.buckets, 0, pack_numbered(taken_of, taken)))
    return blobs


class _Part:
    """A part of the log, and what has been read of it: record_ids, bad rows, the number of loopback rows; for formats
    that need them the rows as the log has them; what was counted of good rows.
    """

    def __init__(self, job: Job, number: int) -> None:
        self.ids: list[int] = []
        self.bad: list[BadLine] = []
        self.loopback = 0
        self.log_rows: dict[int, LogRow] = {}
        self.remarks: Counter[str] = Counter()
        self._job, self._range = job, job.parts[number - 1]

    def good_rows(self, context: Context) -> Iterator[list[CheckedRow]]:
        """The good rows of the part in queue order, some at a time."""
        job, log = self._job, self._job.place.log
        user = job.options.driver_user
        left = user if job.options.leave_loopback else None
        is_timed = job.output.format != "xds"
        fields = LogRow._fields if is_timed else QUEUE_FIELDS
        window = Window(self._range.first, self._range.last, None)
        for rows in context.dialect.read_fields(context.connection, log, window, fields):
            if is_timed:
                whole = list(map(log_row, rows))
                self.log_rows.update(zip(map(_RECORD_ID, whole), whole, strict=True))
                rows = list(queue_rows(whole))
            if job.in_flight or left is not None:
                rows = [
                    row
                    for row in rows
                    for record_id, _, perpetrator, *_ in (row,)
                    if record_id not in job.in_flight and not is_of(perpetrator, left)
                ]
            self.ids += map(_RECORD_ID, rows)
            checked = check_rows(rows, context.catalog, user)
            self.bad += [(row.record_id, row.code, row.message) for row in checked.bad]
            self.loopback += len(checked.loopback)
            self.remarks.update(remark.counter for remark in checked.remarks)
            yield checked.good
