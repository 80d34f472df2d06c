"""First stage: a part of the log is read, checked row by row, and its good rows are packed by object.

A data source of its own and not a step behind ``format("eventlog")``: between the two Spark would turn every row into
its own form and back, which takes as long as reading it.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from eventlog.checks import BadRow, check_rows
from eventlog.model import LogRow, Status
from eventlog.sql.bulk import Part
from eventlog.sql.log_table import to_ranges
from eventlog.values import Kind
from spark.job import Job, catalog, tune_collector
from spark.log_source import read_batches
from spark.rows import FIELDS, FIELDS_WITH_TIME, event_times, kinds_of, log_rows, pack_log_rows, pack_rows

ROWS: Final = 0
"""A blob of good rows of some objects, for the bucket it names."""
READ: Final = 1
"""A blob that says what was read: see ``ReadRows``. It goes to the part it names."""

SCHEMA: Final = "kind int, target int, first_id bigint, blob binary"
_ARROW: Final = pa.schema(
    [("kind", pa.int32()), ("target", pa.int32()), ("first_id", pa.int64()), ("blob", pa.binary())]
)

_EVENT_TIME: Final = LogRow._fields.index("event_time")

ReadRows = tuple[list[tuple[int, int]], list[tuple[int, str, str]], int]
"""What was read: ranges of record_ids, bad rows as (record_id, code, message), the number of loopback rows."""


def checked_log(job: Job) -> type[DataSource]:
    """The data source of a job's rows: its parts, checked and packed. The job travels with the class."""

    class CheckedLog(DataSource):
        @classmethod
        def name(cls) -> str:
            return f"eventlog_checked_{job.name}"

        def __init__(self, options: MutableMapping[str, str]) -> None:
            super().__init__(options)

        def schema(self) -> str:
            return SCHEMA

        def reader(self, schema: object) -> DataSourceReader:
            return CheckedReader()

    class CheckedReader(DataSourceReader):
        def partitions(self) -> Sequence[InputPartition]:
            return [InputPartition(number) for number in range(1, len(job.parts) + 1)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            return read_part(job, partition.value)

    return CheckedLog


def read_part(job: Job, number: int) -> Iterator[pa.RecordBatch]:
    """The blobs of one part, batch by batch."""
    tune_collector()
    classes = catalog(job)
    numbers = {kind: i for i, kind in enumerate(kinds_of(classes))}
    user = job.options.driver_user
    left = user if job.options.leave_loopback else None
    part: Part = job.parts[number - 1]
    is_timed, is_raw = job.output.format != "xds", job.output.format == "qlik-change-table"
    is_utc = bool(job.place.log.types) and job.place.log.types[_EVENT_TIME].kind is Kind.TIMESTAMPTZ
    for batch in read_batches(job.place, job.snapshot, Status.NEW, part, FIELDS_WITH_TIME if is_timed else FIELDS):
        rows: Iterable[LogRow] = log_rows(batch)
        if job.in_flight or left is not None:
            rows = [row for row in rows if row[0] not in job.in_flight and not _is_of(row[4], left)]
            ids = [row[0] for row in rows]
        else:
            ids = batch.column("record_id").to_pylist()
        if is_raw:
            rows = list(rows)
        checked = check_rows(rows, classes, user)
        read: ReadRows = to_ranges(ids), [_storable(row) for row in checked.bad], len(checked.loopback)
        if is_timed:
            times = dict(zip(batch.column("record_id").to_pylist(), event_times(batch, is_utc=is_utc), strict=True))
            raw = {row[0]: row for row in rows} if is_raw else None
            packed = pack_log_rows(checked.good, numbers, job.buckets, times, raw)
        else:
            packed = pack_rows(checked.good, numbers, job.buckets)
        blobs = [(ROWS, *one) for one in packed]
        if ids:
            blobs.append((READ, number, ids[0], marshal.dumps(read)))
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(zip(*blobs, strict=True), _ARROW, strict=True)]
            if blobs
            else [pa.array([], field.type) for field in _ARROW],
            schema=_ARROW,
        )


def _is_of(perpetrator: str | None, user: str | None) -> bool:
    return user is not None and perpetrator is not None and perpetrator.rstrip(" ") == user


def _storable(row: BadRow) -> tuple[int, str, str]:
    return row.record_id, row.code, row.message
