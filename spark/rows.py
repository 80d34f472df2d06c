"""Arrow batches of the log to rows, and rows to blobs that hold those of some objects in record_id order."""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from functools import partial
from typing import Final
from zlib import crc32

import pyarrow as pa

from eventlog.core.catalog import Attribute, Catalog, ObjectClass
from eventlog.core.checks import CheckedRow, Texts
from eventlog.model import ALL, QUEUE_FIELDS, LogRow, QueueRow, Status

FIELDS_WITH_TIME: Final = (*QUEUE_FIELDS, "event_time")
"""What formats need that say when a change was made."""

_AS_ROW: Final = partial(tuple.__new__, LogRow)  # what LogRow._make does, without a Python frame a row
Kind = tuple[int, ObjectClass, Attribute | None]
"""Event type, class and attribute: few of them, so a row carries the number of its kind."""


def queue_rows(batch: pa.RecordBatch) -> list[QueueRow]:
    """What is looked at of the rows of a batch, whose status is N."""
    return list(zip(*(batch.column(name).to_pylist() for name in QUEUE_FIELDS), strict=True))


def log_rows(rows: Iterable[QueueRow], event_times: Sequence[str | None]) -> Iterator[LogRow]:
    """The rows as the log has them."""
    for (record_id, event_type, *texts), event_time in zip(rows, event_times, strict=True):
        yield LogRow(record_id, Status.NEW, event_type, event_time, *texts)


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


def event_times(batch: pa.RecordBatch, *, is_utc: bool) -> list[str | None]:
    """The event_time of the rows of a batch as text; ``is_utc``: its column knows its zone, so it has been brought to
    UTC, which the text says.
    """
    texts: list[str | None] = batch.column("event_time").cast(pa.string()).to_pylist()
    return [None if text is None else f"{text}Z" for text in texts] if is_utc else texts
