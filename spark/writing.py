"""Third stage: the events of a part in queue order, as files, and which letter each row that was read is to get."""

from __future__ import annotations

import json
import marshal
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from eventlog.model import Status
from eventlog.sql.log_table import Ranges
from spark.directory import TEMPORARY, Directory
from spark.documents import About, OutputFile, write_documents
from spark.folding import EVENTS, FATES, Counts, Events, Fates
from spark.job import Job, tune_collector
from spark.reading import READ, ReadRows

IDS: Final = "_ids"
"""The folder of the files that name every row that was read."""

SCHEMA: Final = "report string"

_IDS_SCHEMA: Final = pa.schema(
    [("first", pa.int64()), ("last", pa.int64()), ("status", pa.string()), ("code", pa.string()),
     ("message", pa.string())]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PartReport:
    """What a part became. ``first`` and ``last`` record_id that were read; ``ids``: the file that names all of them."""

    part: int
    first: int
    last: int
    rows_read: int
    rows_loopback: int
    ids: str
    files: tuple[OutputFile, ...]
    counts: Counts = field(default_factory=dict)


def write_part(job: Job, count: Callable[[int], None], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The blobs of a part (or of several, one after the other) to files; one ``PartReport`` a part, as JSON.

    ``count`` is told how many events were written.
    """
    tune_collector()
    parts: dict[int, _Part] = {}
    for batch in batches:
        for kind, part, blob in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            parts.setdefault(part, _Part(part)).take(kind, blob)
    reports = []
    directory = Directory(job.output.directory)
    for number in sorted(parts):
        report = parts.pop(number).write(job, directory)
        count(sum(file.events for file in report.files))
        reports.append(json.dumps(asdict(report)))
    yield pa.RecordBatch.from_pydict({"report": pa.array(reports, pa.string())})


class _Part:
    """What has come of one part."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.ranges: list[tuple[int, int]] = []
        self.bad: list[tuple[int, str, str]] = []
        self.loopback = 0
        self.ids: list[int] = []
        self.texts: list[str] = []
        self.about: list[About] = []
        self.counts: Counts = {}

    def take(self, kind: int, blob: bytes) -> None:
        content = marshal.loads(blob)  # noqa: S302 - made in this job
        if kind == READ:
            read: ReadRows = content
            self.ranges += read[0]
            self.bad += read[1]
            self.loopback += read[2]
        elif kind == FATES:
            fates: Fates = content
            self.bad += fates[0]
            for name, number in fates[1].items():
                self.counts[name] = self.counts.get(name, 0) + number
        else:
            assert kind == EVENTS
            events: Events = content
            self.ids += events[0]
            self.texts += events[1]
            self.about += events[2]

    def write(self, job: Job, directory: Directory) -> PartReport:
        order = sorted(range(len(self.ids)), key=self.ids.__getitem__)
        ids = [self.ids[i] for i in order]
        texts = [self.texts[i] for i in order]
        about = [self.about[i] for i in order] if self.about else []
        self.texts, self.about = [], []
        size = job.output.batch_size
        envelopes = [texts[start : start + size] for start in range(0, len(texts), size)]
        files = write_documents(directory, job.output, job.config, self.number, envelopes, ids, about)
        ranges = sorted(self.ranges)
        name = f"{IDS}/part-{self.number:06d}.parquet"
        write_ids(directory, name, ranges, self.bad)
        counts = dict(self.counts)
        if self.bad:
            counts["rows_bad"] = len(self.bad)
        rows = sum(last - first + 1 for first, last in ranges)
        return PartReport(self.number, ranges[0][0], ranges[-1][1], rows, self.loopback, name, tuple(files), counts)


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
