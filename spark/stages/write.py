"""Third stage: what is written of a part, in queue order, as files, and which letter each row that was read gets."""

from __future__ import annotations

import json
import marshal
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from eventlog.model import Status
from eventlog.sql.windows import Ranges
from spark.job import Job, Numbered, total
from spark.output.directory import TEMPORARY, Directory
from spark.output.formats import BadLine, Counts, Written, module_of
from spark.output.manifest import IDS, PartReport
from spark.session import tune_collector
from spark.stages.shuffle import BEFORE, EVENTS, FATES, READ, RUN, Blob, Fates, ReadRows, of_batch, read_run

SCHEMA: Final = "report string"

_IDS_SCHEMA: Final = pa.schema(
    [("first", pa.int64()), ("last", pa.int64()), ("status", pa.string()), ("code", pa.string()),
     ("message", pa.string())]
)  # fmt: skip


def write_part(job: Job, count: Callable[[int], None], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The blobs of a part (or of several, one after the other) to files; one ``PartReport`` a part, as JSON.

    ``count`` is told how many events were written.
    """
    tune_collector()
    directory = Directory(job.output.directory)
    parts: dict[int, _Part] = {}
    for batch in batches:
        for blob in of_batch(batch):
            parts.setdefault(blob.target, _Part(blob.target)).take(blob, directory)
    reports = []
    for number in sorted(parts):
        part = parts.pop(number)
        if not part.ranges:  # all its rows were left alone
            continue
        report = part.write(job, directory)
        count(sum(file.events for file in report.files))
        reports.append(json.dumps(asdict(report)))
    yield pa.RecordBatch.from_pydict({"report": pa.array(reports, pa.string())})


class _Part:
    """What has come of one part."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.ranges: list[tuple[int, int]] = []
        self.bad: list[BadLine] = []
        self.loopback = 0
        self.built: list[Any] = []
        self.before: list[Numbered] = []
        self.counts: Counts = {}

    def take(self, blob: Blob, directory: Directory) -> None:
        if blob.kind == RUN:
            for inner in read_run(directory, blob):
                self.take(inner, directory)
            return
        content = marshal.loads(blob.content)  # noqa: S302 - made in this job
        if blob.kind == READ:
            read = ReadRows(*content)
            self.ranges += read.ranges
            self.bad += read.bad
            self.loopback += read.loopback
            self._count(read.remarks)
        elif blob.kind == FATES:
            fates = Fates(*content)
            self.bad += fates.bad
            self._count(fates.counts)
        elif blob.kind == BEFORE:
            self.before.append(Numbered(*content))
        else:
            assert blob.kind == EVENTS
            self.built.append(content)

    def _count(self, counts: Counts) -> None:
        for name, number in counts.items():
            self.counts[name] = self.counts.get(name, 0) + number

    def write(self, job: Job, directory: Directory) -> PartReport:
        built, self.built = self.built, []
        before = total((job.before, *self.before))
        written: Written = module_of(job).write(job, directory, self.number, built, before)
        ranges = sorted(self.ranges)
        name = f"{IDS}/part-{self.number:06d}.parquet"
        write_ids(directory, name, ranges, self.bad)
        counts = dict(self.counts)
        if self.bad:
            counts["rows_bad"] = len(self.bad)
        rows = sum(last - first + 1 for first, last in ranges)
        first, last = ranges[0][0], ranges[-1][1]
        return PartReport(
            self.number, first, last, rows, self.loopback, name, tuple(written.files), counts, written.state
        )


def write_ids(directory: Directory, name: str, read: Ranges, bad: Iterable[tuple[int, str, str]]) -> None:
    """Which letter each row that was read is to get: S, and the bad ones E with code and message."""
    errors = sorted(bad)
    good = _without(read, [record_id for record_id, _, _ in errors])
    rows: list[tuple[int, int, str, str | None, str | None]] = []
    rows += [(first, last, Status.SUCCESS, None, None) for first, last in good]
    rows += [(record_id, record_id, Status.ERROR, code, message.encode("utf-8", "replace").decode())
             for record_id, code, message in errors]  # fmt: skip
    columns = list(zip(*sorted(rows, key=lambda row: row[0]), strict=True)) or [()] * len(_IDS_SCHEMA)
    table = pa.Table.from_arrays(
        [pa.array(column, kind.type) for column, kind in zip(columns, _IDS_SCHEMA, strict=True)], schema=_IDS_SCHEMA
    )
    temporary = f"{TEMPORARY}/{uuid.uuid4().hex}"
    with directory.open(temporary) as stream:
        pq.write_table(table, stream, compression="zstd")
    directory.settle(temporary, name)


def _without(ranges: Ranges, ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Ranges without some of their ids, both ascending."""
    at = 0
    for first, last in ranges:
        while at < len(ids) and ids[at] < first:
            at += 1
        while at < len(ids) and ids[at] <= last:
            if first < ids[at]:
                yield first, ids[at] - 1
            first = ids[at] + 1
            at += 1
        if first <= last:
            yield first, last
