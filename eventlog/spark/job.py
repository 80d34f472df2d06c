"""What driver and workers of a backlog job tell each other: the job, what goes from stage to stage, the reports.

Spark moves a few large values much faster than many small ones, and needs to know no more than where each goes: between
stages go rows of a kind, a target and a blob. What waits in a file of the output directory is Arrow and JSON, from
which nothing can be run.
"""

from __future__ import annotations

import json
import uuid
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from operator import attrgetter
from typing import Any, Final, NamedTuple

import pyarrow as pa
from sqlalchemy import Connection

from eventlog.changes.publishing import NoWriter
from eventlog.config.load import Config
from eventlog.config.settings import MonitorSettings, SinkSettings, SourceSettings
from eventlog.core.catalog import Catalog, Database
from eventlog.errors import EventlogError
from eventlog.publisher.configured_classes import catalog_of
from eventlog.publisher.context import Context, Counters, PublisherOptions
from eventlog.qlik.sequence import WriterState
from eventlog.spark.directory import TEMPORARY, Directory
from eventlog.spark.log_source import Place, worker_url
from eventlog.sql.connection import as_database_errors, connect, dialect_of
from eventlog.sql.dialect import Part

# --- numbering --------------------------------------------------------------------------------------------------------


class Numbered(NamedTuple):
    """What some changes use of a numbering: how many numbers, the greatest time prefix, and the tables they are of."""

    number: int = 0
    prefix: str = ""
    tables: frozenset[str] = frozenset()

    @property
    def state(self) -> WriterState:
        """The state of a sequence writer that has numbered them."""
        return WriterState(self.prefix, self.number)


NOTHING = Numbered()


def total(several: Iterable[Numbered]) -> Numbered:
    """Return what several use together."""
    number, prefix = 0, ""
    tables: set[str] = set()
    for one in several:
        number += one.number
        prefix = max(prefix, one.prefix)
        tables |= one.tables
    return Numbered(number, prefix, frozenset(tables))


def before_each(numbered: dict[int, Numbered], parts: int) -> Iterator[tuple[int, Numbered]]:
    """For every part, from 1 to ``parts``, what the parts before it use; parts that nothing precedes are left out."""
    before = NOTHING
    for part in range(1, parts + 1):
        if before is not NOTHING:
            yield part, before
        if part in numbered:
            before = total((before, numbered[part]))


# --- the job ----------------------------------------------------------------------------------------------------------


_NO_WRITER: Final = NoWriter()
"""The context of a task reads rows back, and sends nothing."""


@dataclass(frozen=True, slots=True)
class Output:
    """Where the output goes and how files hold it.

    ``directory``: a path or a URI that driver and workers all reach. ``file_layout``: lines,
    documents or parquet, of change tables parquet, csv or json; ``compression``: none, gzip or
    zstd; ``max_bytes`` of a file; ``batch_size`` events an envelope. ``format``: one of
    ``eventlog.spark.output``; ``options``: its writer's.
    """

    directory: str
    file_layout: str
    compression: str
    max_bytes: int
    batch_size: int
    format: str = "xds"
    options: Any = None


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it travels to the workers. ``name``: no other run has it; ``config`` without secrets.

    ``parts``: the ranges of record_ids, ascending; output part ``n`` holds the events whose first row is in
    ``parts[n - 1]``. ``in_flight``: rows that are recorded in flight and so are not folded. ``buckets``: into how many
    the objects of border rows are divided. ``started`` is the time in all that says when it was made. ``before``: what
    was numbered before the first part.
    """

    name: str
    place: Place
    snapshot: str
    config: Config
    database: Database
    tables: tuple[str, ...] | None
    options: PublisherOptions
    parts: tuple[Part, ...]
    in_flight: frozenset[int]
    buckets: int
    output: Output
    started: datetime
    before: Numbered = NOTHING

    def part_of(self, record_id: int) -> int:
        """The number, from 1, of the part that a row was read in."""
        return bisect_right(self.parts, record_id, key=_FIRST)


_FIRST: Final = attrgetter("first")


def without_settings_of_others(config: Config) -> Config:
    """The configuration as workers get it: without sinks, sources and secrets."""
    database = replace(config.database, url=None, url_file=None, password=None)
    config = replace(config, sink=SinkSettings(), source=SourceSettings(), monitor=MonitorSettings())
    return replace(config, database=database, sources={}, warnings=(), url_of_file=None)


_catalogs: dict[str, Catalog] = {}


def catalog(job: Job) -> Catalog:
    """The classes of the job, built once a process."""
    if job.name not in _catalogs:
        _catalogs.clear()
        _catalogs[job.name] = catalog_of(job.config, job.database, job.tables, job.place.log)
    return _catalogs[job.name]


@contextmanager
def snapshot_context(job: Job) -> Iterator[Context]:
    """A context whose connection sees the job's snapshot, for reading; its transaction ends with the block.

    Raises DatabaseError for what fails in the block too.
    """
    url = worker_url(job.place.url, job.place.url_file)
    dialect = dialect_of(url)
    with connect(url).connect() as connection:
        conn: Connection = connection.execution_options(**dialect.snapshot_options)
        with as_database_errors(conn):
            dialect.join_snapshot(conn, job.snapshot)
            yield Context(conn, dialect, job.place.log, catalog(job), job.options, _NO_WRITER, Counters())


# --- blobs ------------------------------------------------------------------------------------------------------------

ROWS: Final = 0
"""Good rows of some objects, for the bucket that is the target."""
NUMBERED: Final = 1
"""What the events of a part use of the numbering, for any bucket: the part, and ``Numbered``."""
EVENTS: Final = 2
"""What is written of a part: the columns of its format. The target of this and all that follow is a part."""
FATES: Final = 3
"""What became of rows: see ``Fates``."""
BEFORE: Final = 4
"""What is numbered before the part: ``Numbered``."""
RUN: Final = 5
"""The name of a file that holds blobs of the part, and the checksum of its content."""

BLOB_SCHEMA: Final = "kind int, target int, first_id bigint, blob binary"
_BLOB_ARROW: Final = pa.schema(
    [("kind", pa.int32()), ("target", pa.int32()), ("first_id", pa.int64()), ("blob", pa.binary())]
)

BadLine = tuple[int, str, str]
"""record_id, code and message of a row that gets E."""

Counts = dict[str, int]

Columns = Mapping[str, Sequence[Any]]
"""What is to be written, as columns of equal length of numbers, texts and bytes. It waits for the third stage as an
Arrow stream, which tells whoever reads it nothing to do: the storage it waits on may be shared with others.
"""


class Blob(NamedTuple):
    """A row as Spark has it. ``first_id``: of the first row in it, where the order counts."""

    kind: int
    target: int
    first_id: int
    content: bytes


def as_batch(blobs: Sequence[Blob]) -> pa.RecordBatch:
    """Blobs as Spark takes them."""
    columns = zip(*blobs, strict=True) if blobs else [()] * len(_BLOB_ARROW)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _BLOB_ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_BLOB_ARROW)


def of_batch(batch: pa.RecordBatch) -> list[Blob]:
    """The blobs of a batch."""
    return [Blob(*row) for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]


class Fates(NamedTuple):
    """What became of rows: those that get E, and how many had which fate.

    Where they are read, also ``ranges`` of all record_ids that were read, and how many ``loopback`` rows there were.
    """

    bad: list[BadLine]
    counts: Counts
    ranges: Sequence[tuple[int, int]] = ()
    loopback: int = 0

    def packed(self) -> bytes:
        """The content of their blob."""
        return json.dumps(self).encode()

    @classmethod
    def unpacked(cls, content: bytes) -> Fates:
        """Of the content of a blob."""
        bad, counts, ranges, loopback = json.loads(content)
        return cls(
            [(record_id, code, text) for record_id, code, text in bad], counts, list(map(tuple, ranges)), loopback
        )


def pack_numbered(part: int, numbered: Numbered) -> bytes:
    """The content of a blob ``NUMBERED`` or ``BEFORE``."""
    return json.dumps((part, numbered.number, numbered.prefix, sorted(numbered.tables))).encode()


def unpack_numbered(content: bytes) -> tuple[int, Numbered]:
    """The part, and what is numbered."""
    part, number, prefix, tables = json.loads(content)
    return part, Numbered(number, prefix, frozenset(tables))


def pack_columns(columns: Columns) -> bytes:
    """The content of a blob ``EVENTS``."""
    batch = pa.RecordBatch.from_pydict({name: pa.array(column) for name, column in columns.items()})
    return arrow_bytes(batch)


def unpack_columns(content: bytes) -> Columns:
    """The columns of a blob."""
    columns: dict[str, list[Any]] = pa.ipc.open_stream(content).read_all().to_pydict()
    return columns


def arrow_bytes(batch: pa.RecordBatch) -> bytes:
    """A batch as bytes of an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


class RunDamaged(EventlogError):
    """A file between two stages of a Spark job that is not as it was written."""

    code = "run_damaged"
    cure = "Look at the disk that holds it, and run the command again, which begins the part anew."


def write_run(directory: Directory, part: int, blobs: Sequence[Blob]) -> Blob:
    """Put blobs of a part into a file, which ``read_run`` reads; what Spark has to carry of them."""
    name = f"{TEMPORARY}/{uuid.uuid4().hex}"
    with directory.open(name) as file:
        with pa.ipc.new_stream(file, _BLOB_ARROW) as stream:
            for blob in blobs:
                stream.write_batch(as_batch([blob]))
        return Blob(RUN, part, 0, f"{name} {file.sha256}".encode())


def read_run(directory: Directory, run: Blob) -> Iterator[Blob]:
    """The blobs of a run in their order. Raises RunDamaged unless the file holds what was written to it."""
    name, checksum = run.content.decode().split(" ")
    content = directory.read(name)
    if sha256(content).hexdigest() != checksum:
        raise RunDamaged(
            f"{directory.location}/{name} is not what was written to it ({len(content)} bytes, another checksum): "
            "look at the disk that holds it, and run the command again, which begins the part anew"
        )
    return (blob for batch in pa.ipc.open_stream(content) for blob in of_batch(batch))


# --- reports ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file of the output. ``name`` within the directory; ``events`` it holds, in ``documents`` (documents, records of
    a topic, or rows); ``first_id`` and ``last_id``: first rows of its first and last event; ``sha256`` of its content.
    """

    name: str
    bytes: int
    events: int
    documents: int
    first_id: int
    last_id: int
    sha256: str


@dataclass(frozen=True, slots=True)
class PartReport:
    """What a part became. ``first`` and ``last`` record_id that were read; ``ids``: the file that names all of them.

    ``ids_sha256``: of that file's content. ``state``: greatest time prefix and last number of the formats that number,
    up to the end of the part.
    """

    part: int
    first: int
    last: int
    rows_read: int
    rows_loopback: int
    ids: str
    ids_sha256: str
    files: tuple[OutputFile, ...]
    counts: dict[str, int]
    state: tuple[str, int]


def part_report(value: Mapping[str, Any]) -> PartReport:
    """A report from its JSON form."""
    return PartReport(**{**value, "files": tuple(OutputFile(**file) for file in value["files"])})


@dataclass(frozen=True, slots=True)
class FlightReport:
    """A recorded flight that stands in the output: its number, the file that names its rows, its documents."""

    flight: int
    ids: str
    ids_sha256: str
    rows: int
    events: int
