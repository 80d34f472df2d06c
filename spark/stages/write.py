"""Third stage: what is written of a part, in queue order, as files, and which letter each row that was read gets."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import chain, groupby
from operator import attrgetter
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from eventlog.model import Status
from eventlog.sql.windows import Ranges
from spark.directory import Directory
from spark.job import (
    BEFORE,
    EVENTS,
    FATES,
    RUN,
    BadLine,
    Blob,
    Columns,
    Fates,
    Job,
    Numbered,
    PartReport,
    of_batch,
    read_run,
    total,
    unpack_columns,
    unpack_numbered,
)
from spark.output.formats import format_named
from spark.session import tune_collector

SCHEMA: Final = "report string"

IDS: Final = "_ids"
"""The folder of the files that name every row that was read."""

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
    for number, blobs in groupby(chain.from_iterable(map(of_batch, batches)), key=attrgetter("target")):
        part = _Part(number)
        for blob in blobs:
            part.take(blob, directory)
        if not part.ranges:  # all its rows were left alone
            continue
        report = part.write(job, directory)
        count(sum(file.events for file in report.files))
        yield pa.RecordBatch.from_pydict({"report": [json.dumps(asdict(report))]})


class _Part:
    """What has come of one part."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.ranges: list[tuple[int, int]] = []
        self.bad: list[BadLine] = []
        self.loopback = 0
        self.built: list[Columns] = []
        self.before: list[Numbered] = []
        self.counts: Counter[str] = Counter()

    def take(self, blob: Blob, directory: Directory) -> None:
        if blob.kind == RUN:
            for inner in read_run(directory, blob):
                self.take(inner, directory)
            return
        if blob.kind == FATES:
            fates = Fates.unpacked(blob.content)
            self.bad += fates.bad
            self.counts.update(fates.counts)
            self.ranges += fates.ranges
            self.loopback += fates.loopback
        elif blob.kind == BEFORE:
            self.before.append(unpack_numbered(blob.content)[1])
        else:
            assert blob.kind == EVENTS
            self.built.append(unpack_columns(blob.content))

    def write(self, job: Job, directory: Directory) -> PartReport:
        built, self.built = self.built, []
        before = total((job.before, *self.before))
        files, numbered = format_named(job.output.format).write(job, directory, self.number, built, before, {})
        ranges = sorted(self.ranges)
        name = f"{IDS}/part-{self.number:06d}-{job.name}.parquet"
        checksum = write_ids(directory, name, ranges, self.bad)
        counts = dict(self.counts)
        if self.bad:
            counts["rows_bad"] = len(self.bad)
        rows = sum(last - first + 1 for first, last in ranges)
        first, last = ranges[0][0], ranges[-1][1]
        state = numbered.state
        return PartReport(self.number, first, last, rows, self.loopback, name, checksum, tuple(files), counts, state)


def write_ids(directory: Directory, name: str, read: Ranges, bad: Iterable[tuple[int, str, str]]) -> str:
    """Which letter each row that was read is to get: S, and the bad ones E with code and message; the SHA-256."""
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
    with directory.new_file(name) as stream:
        pq.write_table(table, stream, compression="zstd")
    return stream.sha256


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
