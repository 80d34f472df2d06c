"""Rows near the ends of parts on their way to the bucket of their object, which travel with Spark alone."""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from zlib import crc32

from eventlog.core.catalog import Attribute, Catalog, ObjectClass
from eventlog.core.checks import FIELD_TYPES, ROW_TYPES, CheckedRow, Texts
from eventlog.model import ALL, LogRow, log_row
from spark.job import ROWS, Blob

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
