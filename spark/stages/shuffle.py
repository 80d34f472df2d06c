"""What Spark carries from one stage to the next: rows of a kind, a target and a blob.

Spark moves a few large values much faster than many small ones, and needs to know no more than where each goes.
What waits in a file of the output directory is Arrow and JSON, from which nothing can be run; only ``ROWS``, which
travel with Spark alone as its tasks do, are marshalled.
"""

from __future__ import annotations

import json
import marshal
import uuid
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple
from zlib import crc32

import pyarrow as pa

from eventlog.core.catalog import Attribute, Catalog, ObjectClass
from eventlog.core.checks import FIELD_TYPES, ROW_TYPES, CheckedRow, Texts
from eventlog.errors import EventlogError
from eventlog.model import ALL, LogRow, log_row
from spark.job import Numbered
from spark.output.directory import TEMPORARY, Directory
from spark.output.formats import BadLine, Columns, Counts, arrow_bytes

ROWS: Final = 0
"""Good rows of some objects, for the bucket that is the target."""
TAKEN: Final = 1
"""What the events of a part take of the numbering, for any bucket: the part, and ``Numbered``."""
EVENTS: Final = 2
"""What is written of a part: the columns of its format. The target of this and all that follow is a part."""
FATES: Final = 3
"""What became of rows: see ``Fates``."""
BEFORE: Final = 4
"""What is numbered before the part: ``Numbered``."""
RUN: Final = 5
"""The name of a file that holds blobs of the part, and the checksum of its content."""

SCHEMA: Final = "kind int, target int, first_id bigint, blob binary"
_ARROW: Final = pa.schema(
    [("kind", pa.int32()), ("target", pa.int32()), ("first_id", pa.int64()), ("blob", pa.binary())]
)


class Blob(NamedTuple):
    """A row as Spark has it. ``first_id``: of the first row in it, where the order counts."""

    kind: int
    target: int
    first_id: int
    content: bytes


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
    """The content of a blob ``TAKEN`` or ``BEFORE``."""
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


class RunDamaged(EventlogError):
    """A file between two stages of a Spark job that is not as it was written."""

    code = "run_damaged"
    cure = "Look at the disk that holds it, and run the command again, which begins the part anew."


def as_batch(blobs: Sequence[Blob]) -> pa.RecordBatch:
    """Blobs as Spark takes them."""
    columns = zip(*blobs, strict=True) if blobs else [()] * len(_ARROW)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def of_batch(batch: pa.RecordBatch) -> list[Blob]:
    """The blobs of a batch."""
    return [Blob(*row) for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]


# --- files between stages ---------------------------------------------------------------------------------------------


def write_run(directory: Directory, part: int, blobs: Sequence[Blob]) -> Blob:
    """Put blobs of a part into a file, which ``read_run`` reads; what Spark has to carry of them."""
    name = f"{TEMPORARY}/{uuid.uuid4().hex}"
    with directory.open(name) as file:
        with pa.ipc.new_stream(file, _ARROW) as stream:
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


# --- rows -------------------------------------------------------------------------------------------------------------

RowKind = tuple[int, ObjectClass, Attribute | None]
"""Event type, class and attribute: few of them, so a row carries the number of its kind."""


def kinds_of(catalog: Catalog) -> list[RowKind]:
    """All kinds of rows, in an order that every process finds."""
    kinds: list[RowKind] = []
    for object_class in catalog.classes:
        kinds += [(event_type, object_class, None) for event_type in ROW_TYPES]
        kinds += [(event_type, object_class, a) for a in object_class.attributes for event_type in FIELD_TYPES]
    return kinds


def pack_rows(
    rows: Iterable[CheckedRow], numbers: Mapping[RowKind, int], buckets: int, log_rows: Mapping[int, LogRow]
) -> list[Blob]:
    """Rows in record_id order as blobs, one for each bucket that has rows.

    The bucket follows from the object's canonical key, in every process alike. ``log_rows``: by record_id the rows as
    the log has them, which go along, if it holds any.
    """
    packed: list[list[tuple[int, int, str, bool, Texts, Texts]]] = [[] for _ in range(buckets)]
    for record_id, event_type, (object_class, key), attribute, old, new in rows:
        goes = None if old is ALL else old
        packed[crc32(key.encode()) % buckets].append(
            (record_id, numbers[event_type, object_class, attribute], key, old is ALL, goes, new)
        )
    blobs = []
    for bucket, members in enumerate(packed):
        if members:
            as_logged = [tuple(log_rows[record_id]) for record_id, *_ in members] if log_rows else []
            first_id, *_ = members[0]
            blobs.append(Blob(ROWS, bucket, first_id, marshal.dumps((members, as_logged))))
    return blobs


def unpack_rows(content: bytes, kinds: Sequence[RowKind], log_rows: MutableMapping[int, LogRow]) -> list[CheckedRow]:
    """The rows of a blob; ``log_rows`` gets them as the log has them, if the blob tells."""
    members, as_logged = marshal.loads(content)  # noqa: S302 - made by ``pack_rows`` in this job
    for row in map(log_row, as_logged):
        log_rows[row.record_id] = row
    rows: list[CheckedRow] = []
    for record_id, number, key, all_go, old, new in members:
        event_type, object_class, attribute = kinds[number]
        rows.append((record_id, event_type, (object_class, key), attribute, ALL if all_go else old, new))
    return rows
