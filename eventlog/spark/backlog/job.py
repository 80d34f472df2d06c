"""The messages between driver and workers of a backlog job: the job, the data between its stages,
the reports.

Spark moves a few large values much faster than many small values, and needs only the destination of
each value: stages exchange rows of (kind, target, blob). The files that wait in the output
directory are Arrow and JSON, from which nothing can be executed.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from operator import attrgetter
from typing import Any, Final, NamedTuple

import pyarrow as pa
from sqlalchemy import Connection

from eventlog.changes.publishing import NoWriter
from eventlog.config.load import Config
from eventlog.core.catalog import Catalog, Database
from eventlog.core.clock import random_hex
from eventlog.core.ranges import Ranges
from eventlog.errors import EventlogError
from eventlog.publisher.context import Context, Counters, PublisherOptions
from eventlog.publisher.declared import catalog_of, without_main_tables
from eventlog.publisher.ledger import ledger_of
from eventlog.qlik.sequence import WriterState
from eventlog.spark.directory import TEMPORARY, Directory
from eventlog.spark.log_source import LogLocation, with_mask_secret, worker_url
from eventlog.spark.session.in_tasks import rows_of_batch
from eventlog.sql.connect import connect, dialect_of
from eventlog.sql.port import LogPart, as_database_errors, hide_rows

# --- numbering ------------------------------------------------------------------------------------


class Numbered(NamedTuple):
    """A summary of the numbers that changes use: their count, the greatest time prefix, and the
    tables of the changes.
    """

    number: int = 0
    prefix: str = ""
    tables: frozenset[str] = frozenset()

    @property
    def state(self) -> WriterState:
        """The state of a sequence writer that has numbered these changes."""
        return WriterState(self.prefix, self.number)


NOTHING = Numbered()


def total(several: Iterable[Numbered]) -> Numbered:
    """Return the sum of several ``Numbered``."""
    number, prefix = 0, ""
    tables: set[str] = set()
    for one in several:
        number += one.number
        prefix = max(prefix, one.prefix)
        tables |= one.tables
    return Numbered(number, prefix, frozenset(tables))


def before_each(numbered: dict[int, Numbered], parts: int) -> Iterator[tuple[int, Numbered]]:
    """Yield for every part, from 1 to ``parts``, the numbers used by the parts before it. A part is
    left out if the parts before it use no numbers.
    """
    before = NOTHING
    for part in range(1, parts + 1):
        if before is not NOTHING:
            yield part, before
        if part in numbered:
            before = total((before, numbered[part]))


# --- the job --------------------------------------------------------------------------------------


_NO_WRITER: Final = NoWriter()
"""Tasks write no documents: their context only reads rows back."""


@dataclass(frozen=True, slots=True)
class Output:
    """The location of the output, and the form of its files."""

    directory: str
    """A path or a URI that driver and all workers reach."""
    file_layout: str
    """lines, documents or parquet; for change tables parquet, csv or json."""
    compression: str
    """none, gzip or zstd."""
    max_bytes: int
    """The most bytes of a file."""
    batch_size: int
    """The most events in a document."""
    format: str = "xds"
    """A format of ``eventlog.spark.backlog.output``."""
    options: Any = None
    """The options of the format's writer."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it is sent to the workers."""

    name: str
    """The unique name of the run."""
    place: LogLocation
    snapshot: str
    config: Config
    """The configuration, without secrets."""
    database: Database
    tables: tuple[str, ...] | None
    unreadable: frozenset[str]
    """The views whose main table this role may not read."""
    options: PublisherOptions
    parts: tuple[LogPart, ...]
    """The ranges of record_ids, ascending. Output part ``n`` has the events whose first row is in
    ``parts[n - 1]``.
    """
    in_flight: frozenset[int]
    """The rows of recorded deliveries, which are not folded."""
    buckets: int
    """The number of buckets for the objects of border rows."""
    output: Output
    started: datetime
    """The creation time that all output carries."""
    before: Numbered = NOTHING
    """The numbers used before the first part."""

    def part_of(self, record_id: int) -> int:
        """Return the number, from 1, of the part that contains a row."""
        return bisect_right(self.parts, record_id, key=_FIRST)


_FIRST: Final = attrgetter("first")


_catalogs: dict[str, Catalog] = {}


def catalog(job: Job) -> Catalog:
    """Return the classes of the job, built once per process."""
    if job.name not in _catalogs:
        _catalogs.clear()
        config = with_mask_secret(job.config)
        found = catalog_of(config, job.database, job.tables, job.place.log)
        _catalogs[job.name] = without_main_tables(found, job.unreadable)
    return _catalogs[job.name]


class SnapshotSession:
    """A session that reads the job's database snapshot."""

    def __init__(self, context: Context, snapshot: str) -> None:
        self._context, self._snapshot = context, snapshot

    @contextmanager
    def batch(self) -> Iterator[Context]:
        """Yield a context that reads the database snapshot. The context's transaction ends with the
        block (spec/event-log.md 8.6).

        Raises SnapshotOutdated, DatabaseError as ``OpenDatabase.in_snapshot`` does.
        """
        with self._context.log.db.in_snapshot(self._snapshot):
            yield self._context


@contextmanager
def snapshot_session(job: Job) -> Iterator[SnapshotSession]:
    """Open a session for the job's database snapshot. The session ends with the block.

    Raises DatabaseError, also for errors of the block.
    """
    url = worker_url(job.place.url, job.place.url_file)
    dialect = dialect_of(url)
    with hide_rows(connect(url), job.config.hides_rows).connect() as connection:
        conn: Connection = connection.execution_options(**dialect.snapshot_options)
        with as_database_errors(conn):
            log = dialect.open(conn).log(job.place.log)
            yield SnapshotSession(
                Context(log, catalog(job), job.options, _NO_WRITER, Counters(), ledger_of(log)),
                job.snapshot,
            )


# --- blobs ----------------------------------------------------------------------------------------

ROWS: Final = 0
"""Valid rows of some objects; the target is a bucket."""
NUMBERED: Final = 1
"""The numbers that the events of a part use: the part, and ``Numbered``. The target is any bucket.
"""
EVENTS: Final = 2
"""The output of a part: the columns of its format.

The target of this kind and of all kinds below is a part.
"""
OUTCOMES: Final = 3
"""The outcomes of rows: see ``PartOutcomes``."""
BEFORE: Final = 4
"""The numbers used before the part: ``Numbered``."""
RUN: Final = 5
"""The name of a file with blobs of the part, and the checksum of its content."""

BLOB_SCHEMA: Final = "kind int, target int, first_id bigint, blob binary"
_BLOB_ARROW: Final = pa.schema(
    [("kind", pa.int32()), ("target", pa.int32()), ("first_id", pa.int64()), ("blob", pa.binary())]
)

RowFailure = tuple[int, str, str]
"""record_id, code and message of a row that gets E."""

Counts = dict[str, int]

Columns = Mapping[str, Sequence[Any]]
"""The data to write, as columns of equal length with numbers, texts and bytes. Until the third
stage this data is stored as an Arrow stream, from which nothing can be executed, since other users
may have access to the storage.
"""


class Blob(NamedTuple):
    """A row of the frames between stages.

    ``first_id`` is the record_id of the blob's first row, if the order matters.
    """

    kind: int
    target: int
    first_id: int
    content: bytes


def as_batch(blobs: Sequence[Blob]) -> pa.RecordBatch:
    """Return blobs as an Arrow batch for Spark."""
    columns = zip(*blobs, strict=True) if blobs else [()] * len(_BLOB_ARROW)
    arrays = [
        pa.array(column, field.type) for column, field in zip(columns, _BLOB_ARROW, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_BLOB_ARROW)


def blobs_of_batch(batch: pa.RecordBatch) -> list[Blob]:
    """Return the blobs of a batch."""
    return [Blob(*row) for row in rows_of_batch(batch)]


class PartOutcomes(NamedTuple):
    """The outcomes of rows: the rows that get E, and the number of rows by outcome.

    If the task has read the rows, the outcomes also have the ``ranges`` of all record_ids and the
    number of ``loopback`` rows.
    """

    failures: list[RowFailure]
    counts: Counts
    ranges: Ranges = ()
    loopback: int = 0

    def packed(self) -> bytes:
        """Return the content of a blob with these outcomes."""
        return json.dumps(self).encode()

    @classmethod
    def unpacked(cls, content: bytes) -> PartOutcomes:
        """Return the outcomes from the content of a blob."""
        failures, counts, ranges, loopback = json.loads(content)
        return cls(
            [(record_id, code, text) for record_id, code, text in failures],
            counts,
            list(map(tuple, ranges)),
            loopback,
        )


def pack_numbered(part: int, numbered: Numbered) -> bytes:
    """Return the content of a ``NUMBERED`` or ``BEFORE`` blob."""
    return json.dumps((part, numbered.number, numbered.prefix, sorted(numbered.tables))).encode()


def unpack_numbered(content: bytes) -> tuple[int, Numbered]:
    """Return the part and the numbers from the content of a blob."""
    part, number, prefix, tables = json.loads(content)
    return part, Numbered(number, prefix, frozenset(tables))


def pack_columns(columns: Columns) -> bytes:
    """Return the content of an ``EVENTS`` blob."""
    batch = pa.RecordBatch.from_pydict({name: pa.array(column) for name, column in columns.items()})
    return arrow_bytes(batch)


def unpack_columns(content: bytes) -> Columns:
    """Return the columns of a blob."""
    columns: dict[str, list[Any]] = read_arrow(content).to_pydict()
    return columns


COMPRESSION: Final = "lz4"
"""The compression of data between stages. Compression costs less time than it saves in writing,
checksums and reading: it removes seven of eight bytes of the events in ``bench/backlog.py``.
"""


_IN_THIS_THREAD: Final = pa.ipc.IpcReadOptions(use_threads=False)
_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression=COMPRESSION, use_threads=False)
"""The options of Arrow streams, without Arrow's threads: other tasks use the other cores, and
passing small buffers to Arrow's threads makes a task of the first stage a tenth slower.
"""


def arrow_bytes(batch: pa.RecordBatch) -> bytes:
    """Return a batch as bytes of an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=_COMPRESSED) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


def read_arrow(content: bytes) -> pa.Table:
    """Return the table that is in the bytes of ``arrow_bytes``."""
    return pa.ipc.open_stream(content, options=_IN_THIS_THREAD).read_all()


class RunDamaged(EventlogError):
    """A file that one stage of a Spark job wrote for the next has changed."""

    code = "run_damaged"


def write_run(directory: Directory, part: int, blobs: Iterable[Blob]) -> Blob:
    """Write blobs of a part to a file for ``read_run``, each as soon as it is available, and return
    a blob that refers to the file.
    """
    name = f"{TEMPORARY}/{random_hex(16)}"
    with directory.open(name) as file:
        with pa.ipc.new_stream(file, _BLOB_ARROW) as stream:
            for blob in blobs:
                stream.write_batch(as_batch([blob]))
        return Blob(RUN, part, 0, f"{name} {file.sha256}".encode())


def read_run(directory: Directory, run: Blob) -> Iterator[Blob]:
    """Return the blobs of a run in order.

    Raises RunDamaged if the file has changed since it was written.
    """
    name, checksum = run.content.decode().split(" ")
    content = directory.read(name)
    if sha256(content).hexdigest() != checksum:
        raise RunDamaged(
            f"{directory.location}/{name} has changed since it was written ({len(content)} bytes, "
            "another checksum). Check the disk that it is on, and run the command again, which "
            "starts over"
        )
    return (blob for batch in pa.ipc.open_stream(content) for blob in blobs_of_batch(batch))


# --- reports --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file of the output."""

    name: str
    """The name within the directory."""
    bytes: int
    events: int
    documents: int
    """The number of documents, records of a topic, or rows that contain the events."""
    first_id: int
    last_id: int
    """The first row of the file's last event; ``first_id`` is the first row of the file's first
    event.
    """
    sha256: str
    """The SHA-256 of the content."""


@dataclass(frozen=True, slots=True)
class PartReport:
    """The report of a part."""

    part: int
    first: int
    last: int
    """The record_id of the part's last row; ``first`` is the record_id of its first row."""
    rows_read: int
    rows_loopback: int
    ids: str
    """The file that lists all record_ids of the part."""
    ids_sha256: str
    """The SHA-256 of the content of ``ids``."""
    files: tuple[OutputFile, ...]
    counts: dict[str, int]
    state: tuple[str, int]
    """The greatest time prefix and the last number up to the end of the part, for formats that
    number changes.
    """


def part_report(value: Mapping[str, Any]) -> PartReport:
    """Return a report from its JSON form."""
    return PartReport(**{**value, "files": tuple(OutputFile(**file) for file in value["files"])})


@dataclass(frozen=True, slots=True)
class DeliveryReport:
    """A recorded delivery in the output: its number, the file that lists its rows, its events."""

    delivery_no: int
    ids: str
    ids_sha256: str
    rows: int
    events: int
