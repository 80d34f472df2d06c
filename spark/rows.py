"""Arrow batches of the log to rows, and rows to small blobs that Spark carries from one stage to the next.

Spark moves a few large values much faster than many small ones, and needs to know no more of a row than which object
it is of and where it stands. So a blob holds the rows of some objects in record_id order.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
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

FIELDS_WITH_TIME: Final = (*FIELDS, "event_time")
"""What formats need that say when a change was made."""

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


def pack_log_rows(
    rows: Iterable[CheckedRow],
    numbers: dict[Kind, int],
    buckets: int,
    times: Mapping[int, str | None],
    raw: Mapping[int, LogRow] | None,
) -> list[tuple[int, int, bytes]]:
    """As ``pack_rows``, each row with its event_time of ``times``; with old and new value as the log has them, of
    ``raw``, if that is given, in place of those that XDS writes.
    """
    packed: list[list[tuple[int, int, str, str | None, str | None, str | None]]] = [[] for _ in range(buckets)]
    for record_id, event_type, object_class, key, attribute, old, new in rows:
        if raw is not None and event_type < 4:
            old, new = raw[record_id][8:10]
        packed[crc32(key.encode()) % buckets].append(
            (record_id, numbers[event_type, object_class, attribute], key, old, new, times[record_id])
        )
    return [(bucket, members[0][0], marshal.dumps(members)) for bucket, members in enumerate(packed) if members]


def unpack_log_rows(blob: bytes, kinds: Sequence[Kind], log_rows: MutableMapping[int, LogRow]) -> list[CheckedRow]:
    """The rows of a blob of ``pack_log_rows``; ``log_rows`` gets them as far as the log's own fields are known."""
    rows: list[CheckedRow] = []
    add = rows.append
    for record_id, number, key, old, new, time in marshal.loads(blob):  # noqa: S302 - made by ``pack_log_rows``
        event_type, object_class, attribute = kinds[number]
        add(_new(CheckedRow, (record_id, event_type, object_class, key, attribute, old, new)))
        log_rows[record_id] = _new(LogRow, (record_id, Status.NEW, event_type, time, None, None, None, None, old, new))
    return rows


def event_times(batch: pa.RecordBatch, *, is_utc: bool) -> list[str | None]:
    """The event_time of the rows of a batch as text; ``is_utc``: its column knows its zone, so it has been brought to
    UTC, which the text says.
    """
    texts: list[str | None] = batch.column("event_time").cast(pa.string()).to_pylist()
    return [None if text is None else f"{text}Z" for text in texts] if is_utc else texts
