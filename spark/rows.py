"""Arrow batches of the log to rows, and rows to small blobs that Spark carries from one stage to the next.

Spark moves a few large values much faster than many small ones, and needs to know no more of a row than which object
it is of and where it stands. So a blob holds the rows of some objects in record_id order.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Final, cast
from zlib import crc32

import pyarrow as pa

from eventlog.catalog import Attribute, Catalog, ObjectClass
from eventlog.checks import CheckedRow
from eventlog.model import LogRow, Status

FIELDS: Final = (
    "record_id",
    "event_type",
    "perpetrator",
    "table_name",
    "table_key",
    "column_name",
    "old_value",
    "new_value",
)
"""What checking and folding need of a row."""

_new: Final = tuple.__new__
Kind = tuple[int, ObjectClass, Attribute | None]
"""Event type, class and attribute: few of them, so a row carries the number of its kind."""


def log_rows(batch: pa.RecordBatch) -> Iterator[LogRow]:
    """The rows of a batch with ``FIELDS``. Their status is N and their event_time is not known."""
    record_id, event_type, *texts = (batch.column(name).to_pylist() for name in FIELDS)
    # Tuples in the order of LogRow's fields, which is all that the checks look at.
    return cast("Iterator[LogRow]", zip(record_id, repeat(Status.NEW), event_type, repeat(None), *texts, strict=False))


def kinds_of(catalog: Catalog) -> list[Kind]:
    """All kinds of rows, in an order that every process finds."""
    kinds: list[Kind] = []
    for object_class in catalog.classes:
        kinds += [(event_type, object_class, None) for event_type in (4, 5, 6)]
        kinds += [(event_type, object_class, a) for a in object_class.attributes for event_type in (1, 2, 3, 7, 8)]
    return kinds


def pack_rows(rows: Iterable[CheckedRow], numbers: dict[Kind, int], buckets: int) -> list[tuple[int, int, bytes]]:
    """Rows in record_id order as (bucket, first record_id, blob), one for each bucket that has rows.

    The bucket follows from the object's canonical key, in every process alike.
    """
    packed: list[list[tuple[int, int, str, str | None, str | None]]] = [[] for _ in range(buckets)]
    for record_id, event_type, object_class, key, attribute, old, new in rows:
        packed[crc32(key.encode()) % buckets].append(
            (record_id, numbers[event_type, object_class, attribute], key, old, new)
        )
    return [(bucket, members[0][0], marshal.dumps(members)) for bucket, members in enumerate(packed) if members]


def unpack_rows(blob: bytes, kinds: Sequence[Kind]) -> list[CheckedRow]:
    """The rows of a blob."""
    rows: list[CheckedRow] = []
    add = rows.append
    for record_id, number, key, old, new in marshal.loads(blob):  # noqa: S302 - made by ``pack_rows`` in this job
        event_type, object_class, attribute = kinds[number]
        add(_new(CheckedRow, (record_id, event_type, object_class, key, attribute, old, new)))
    return rows
