"""What Spark carries from one stage to the next: rows of a kind, a target and a blob.

Spark moves a few large values much faster than many small ones, and needs to know no more than where each goes.
"""

from __future__ import annotations

import marshal
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from functools import partial
from itertools import starmap
from typing import Final, NamedTuple
from zlib import crc32

import pyarrow as pa

from eventlog.core.catalog import Attribute, Catalog, ObjectClass
from eventlog.core.checks import CheckedRow, Texts
from eventlog.errors import EventlogError
from eventlog.model import ALL, LogRow
from spark.output.directory import TEMPORARY, Directory
from spark.output.formats import BadLine, Counts

ROWS: Final = 0
"""Good rows of some objects, for the bucket that is the target."""
TAKEN: Final = 1
"""What the events of a part take of the numbering, for any bucket: (part, the fields of ``Numbered``)."""
EVENTS: Final = 2
"""What is written of a part, in the terms of its format. The target of this and all that follow is a part."""
FATES: Final = 3
"""What became of rows: see ``Fates``."""
BEFORE: Final = 4
"""What is numbered before the part: the fields of ``Numbered``."""
RUN: Final = 5
"""The name of a file that holds blobs of the part, and the checksum of its content."""

SCHEMA: Final = "kind int, target int, first_id bigint, blob binary"
_ARROW: Final = pa.schema(
    [("kind", pa.int32()), ("target", pa.int32()), ("first_id", pa.int64()), ("blob", pa.binary())]
)


class Fates(NamedTuple):
    """What became of rows: those that get E, and how many had which fate.

    Where they are read, also ``ranges`` of all record_ids that were read, and how many ``loopback`` rows there were.
    """

    bad: list[BadLine]
    counts: Counts
    ranges: list[tuple[int, int]] | tuple[()] = ()
    loopback: int = 0


class RunDamaged(EventlogError):
    """A file between two stages of the job that is not as it was written."""

    code = "run_damaged"


class Blob(NamedTuple):
    """A row as Spark has it. ``first_id``: of the first row in it, where the order counts."""

    kind: int
    target: int
    first_id: int
    content: bytes


def as_batch(blobs: Sequence[Blob]) -> pa.RecordBatch:
    """Blobs as Spark takes them."""
    columns = zip(*blobs, strict=True) if blobs else [()] * len(_ARROW)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def of_batch(batch: pa.RecordBatch) -> list[Blob]:
    """The blobs of a batch."""
    return [Blob(*row) for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]


def write_run(directory: Directory, part: int, blobs: Iterable[Blob]) -> Blob:
    """Put blobs of a part into a file, which ``read_run`` reads; what Spark has to carry of them."""
    name = f"{TEMPORARY}/{uuid.uuid4().hex}"
    content = marshal.dumps([tuple(blob) for blob in blobs])
    with directory.open(name) as stream:
        stream.write(content)
    return Blob(RUN, part, 0, f"{name} {zlib.crc32(content):08x}".encode())


def read_run(directory: Directory, run: Blob) -> Iterator[Blob]:
    """The blobs of a run in their order. Raises RunDamaged unless the file holds what was written to it."""
    name, checksum = run.content.decode().split(" ")
    content = directory.read(name)
    if f"{zlib.crc32(content):08x}" != checksum:
        raise RunDamaged(
            f"{directory.location}/{name} is not what was written to it ({len(content)} bytes, another checksum): "
            "look at the disk that holds it, and run the command again, which begins the part anew"
        )
    return starmap(Blob, marshal.loads(content))  # noqa: S302 - made in this job, and what was made


_AS_ROW: Final = partial(tuple.__new__, LogRow)  # what LogRow._make does, without a Python frame a row
Kind = tuple[int, ObjectClass, Attribute | None]
"""Event type, class and attribute: few of them, so a row carries the number of its kind."""


def kinds_of(catalog: Catalog) -> list[Kind]:
    """All kinds of rows, in an order that every process finds."""
    kinds: list[Kind] = []
    for object_class in catalog.classes:
        kinds += [(event_type, object_class, None) for event_type in (4, 5, 6)]
        kinds += [(event_type, object_class, a) for a in object_class.attributes for event_type in (1, 2, 3, 7, 8)]
    return kinds


def pack_rows(
    rows: Iterable[CheckedRow], numbers: Mapping[Kind, int], buckets: int, log_rows: Mapping[int, LogRow]
) -> list[tuple[int, int, bytes]]:
    """Rows in record_id order as (bucket, first record_id, blob), one for each bucket that has rows.

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
            as_logged = [tuple(log_rows[member[0]]) for member in members] if log_rows else []
            blobs.append((bucket, members[0][0], marshal.dumps((members, as_logged))))
    return blobs


def unpack_rows(blob: bytes, kinds: Sequence[Kind], log_rows: MutableMapping[int, LogRow]) -> list[CheckedRow]:
    """The rows of a blob; ``log_rows`` gets them as the log has them, if the blob tells."""
    members, as_logged = marshal.loads(blob)  # noqa: S302 - made by ``pack_rows`` in this job
    log_rows.update((row[0], _AS_ROW(row)) for row in as_logged)
    rows: list[CheckedRow] = []
    for record_id, number, key, all_go, old, new in members:
        event_type, object_class, attribute = kinds[number]
        rows.append((record_id, event_type, (object_class, key), attribute, ALL if all_go else old, new))
    return rows
