"""The rows of format ``eventlog-changes``: their schema, and Arrow batches of events
(spec/spark-changes.md 1).

Columns are built as flat lists with offsets, not as a list or a map for each row: Arrow takes a
flat list of texts five times as fast as lists of pairs. In return each loop below fills several
lists.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types as t

from eventlog.changes.events import outgoing_reader
from eventlog.changes.publishing import EventWriter, Publishing, time_reader
from eventlog.config.publishing import chosen_format, publish_options
from eventlog.core.catalog import Catalog, ObjectClass, row_of
from eventlog.core.rows.events import READS_ROW, Outgoing
from eventlog.core.values import ColumnType, Kind
from eventlog.core.values.typed_values import to_text, values_of
from eventlog.model import Change, Operation, Value
from eventlog.publisher.ledger import Delivery
from eventlog.registry import writer_of
from eventlog.spark.changes.change_log import Classes, Origins
from eventlog.spark.session.arrow_rows import arrays_of, structs_of
from eventlog.spark.session.arrow_types import arrow_schema
from eventlog.spark.session.in_tasks import Batches

_TEXTS: Final = t.MapType(t.StringType(), t.StringType())
_XDS: Final = "xds"
AT_ONCE: Final = 5_000
"""The most events in an Arrow batch."""


def schema_of(columns: t.StructType | None, *, with_document: bool) -> t.StructType:
    """Return the columns of the rows.

    ``columns`` are the columns of the requested class; None = no class was requested, and images
    are maps of texts.
    """
    image = _TEXTS if columns is None else columns
    fields = [
        t.StructField(name, kind, nullable)
        for name, kind, nullable in (
            ("position", t.LongType(), False),
            ("event_id", t.StringType(), False),
            ("record_ids", t.ArrayType(t.LongType(), False), False),
            ("class", t.StringType(), False),
            ("operation", t.StringType(), False),
            ("key", _TEXTS, False),
            ("before", image, True),
            ("after", image, True),
            ("changed", t.ArrayType(t.StringType(), False), True),
            ("commit_time", t.TimestampType(), True),
            ("perpetrator", t.StringType(), True),
        )
    ]
    if with_document:
        fields.append(t.StructField(_XDS, t.StringType(), False))
    return t.StructType(fields)


def columns_of(object_class: ObjectClass) -> t.StructType:
    """Return the columns of a class, with the catalogue's types as Spark types."""
    columns = row_of(object_class).columns
    found = [t.StructField(one.name, spark_type(one.type)) for one in columns]
    many = [one for one in object_class.attributes if one.multi_valued]
    found += [t.StructField(one.name, t.ArrayType(spark_type(one.column.type))) for one in many]
    return t.StructType(found)


def spark_type(kind: ColumnType) -> t.DataType:
    """Return the Spark type that holds the values of a column, or text if no other type does."""
    match kind.kind:
        case Kind.INTEGER:
            return t.LongType() if kind.bits else t.DecimalType(38, 0)
        case Kind.EXACT:
            precision, scale = (*kind.sizes, 0, 0)[:2]
            fits = 0 < precision <= 38 and 0 <= scale <= precision
            return t.DecimalType(precision, scale) if fits else t.StringType()
        case Kind.APPROXIMATE:
            return t.DoubleType()
        case Kind.BOOLEAN:
            return t.BooleanType()
        case Kind.BINARY:
            return t.BinaryType()
        case Kind.DATE:
            return t.DateType()
        case Kind.TIMESTAMP:
            return t.TimestampNTZType()
        case Kind.TIMESTAMPTZ:
            return t.TimestampType()
        case _:
            return t.StringType()


class Rows:
    """A builder of rows from events.

    ``columns`` are the columns of the requested class, None = images are maps of texts.
    """

    def __init__(
        self,
        classes: Classes,
        catalog: Catalog,
        columns: t.StructType | None,
        *,
        with_document: bool,
    ) -> None:
        config = classes.declared.config
        self._catalog, self._columns = catalog, columns
        self._schema = arrow_schema(schema_of(columns, with_document=with_document))
        self._read = outgoing_reader(catalog, classes.values)
        # The server's local zone is unknown here; ``[format] time_zone`` names it.
        zone = classes.log.zone_of_times(classes.options.event_time_zone)
        self._time_of = time_reader("UTC" if zone == "utc" else classes.values.time_zone)
        self._document: EventWriter[Any] | None = None
        if with_document:
            self._document = writer_of(
                chosen_format(config), publish_options(config), Publishing(file_layout="lines")
            )

    def batches(self, events: Sequence[Outgoing], origins: Origins) -> Batches:
        """Yield the events in batches. Every event must have an operation.

        ``origins`` has at least the origin of the first row of each event.
        """
        for start in range(0, len(events), AT_ONCE):
            yield self._batch(events[start : start + AT_ONCE], origins)

    def _batch(self, events: Sequence[Outgoing], origins: Origins) -> pa.RecordBatch:
        read = self._read
        changes = [read(event, None, None) for event in events]
        first_ids = [event.ids[0] for event in events]
        columns: dict[str, Any] = {
            "position": first_ids,
            "event_id": [event.sent_id for event in events],
            "record_ids": _lists(pa.int64(), (event.ids for event in events)),
            "class": [change.table for change in changes],
            "operation": [str(event.operation) for event in events],
            "key": _maps([dict(change.key or ()) for change in changes]),
            "changed": _lists(
                pa.string(),
                (_changed(event, change) for event, change in zip(events, changes, strict=True)),
            ),
            "commit_time": self._moments(first_ids, origins),
            "perpetrator": [origins[record_id][1] for record_id in first_ids],
            "before": self._images([change.before for change in changes], changes),
            "after": self._images([change.after for change in changes], changes),
        }
        if self._document is not None:
            columns[_XDS] = self._documents(events)
        arrays = arrays_of(columns, self._schema)
        # Arrow and Spark give the members of maps and lists different names.
        cast = [array.cast(one.type) for array, one in zip(arrays, self._schema, strict=True)]
        return pa.RecordBatch.from_arrays(cast, schema=self._schema)

    def _moments(self, record_ids: Sequence[int], origins: Origins) -> pa.Array:
        """Return the times of rows. Rows of a transaction often have the same time, so each text is
        read once.
        """
        times: dict[str | None, datetime | None] = {}
        moments = []
        for record_id in record_ids:
            text, _ = origins[record_id]
            if text not in times:
                times[text] = self._time_of(text)
            moments.append(times[text])
        return pa.array(moments, self._schema.field("commit_time").type)

    def _images(
        self, images: Sequence[Mapping[str, Value] | None], changes: Sequence[Change]
    ) -> pa.Array:
        if self._columns is None:
            return _maps(images)
        return structs_of(images, self._columns, changes[0].table)

    def _documents(self, events: Sequence[Outgoing]) -> list[str]:
        writer = self._document
        assert writer is not None
        pieces = writer.pieces(self._catalog, Delivery(0, {}), events)
        return [writer.body_of([piece]).decode().rstrip("\n") for piece in pieces]


def _changed(event: Outgoing, change: Change) -> Sequence[str] | None:
    """Return the attributes that an event writes, in ascending order; None for a delete, and for an
    add that has the whole row (spec/spark-changes.md 1).
    """
    if event.is_refresh:
        return None
    if event.operation == Operation.ADD:
        # An INSERT without values is one row without a value (spec/triggers.md 2).
        if not event.steps:
            return None
        _, event_type, _, _, _, _ = event.steps[0]
        if event_type in READS_ROW:
            return None
        assert change.after is not None
        return sorted(change.after.keys() - dict(change.key or ()).keys())
    return None if change.changed is None else sorted(change.changed)


def _lists(kind: pa.DataType, lists: Iterable[Sequence[Any] | None]) -> pa.Array:
    """Return lists as an array; None becomes NULL."""
    flat, offsets, mask = _flat(lists)
    return pa.ListArray.from_arrays(offsets, pa.array(flat, kind), mask=mask)


def _maps(images: Sequence[Mapping[str, Value] | None]) -> pa.Array:
    """Return rows as maps of texts, by column; None becomes NULL, whether it is a row
    or a value.
    """
    names, offsets, mask = _flat(images)
    texts = [
        value if value is None or value.__class__ is str else _text(value)
        for image in images
        if image is not None
        for value in image.values()
    ]
    return pa.MapArray.from_arrays(
        offsets, pa.array(names, pa.string()), pa.array(texts, pa.string()), mask=mask
    )


def _flat(lists: Iterable[Iterable[Any] | None]) -> tuple[list[Any], pa.Array, pa.Array | None]:
    """Return the members of all lists in one list, the offset at which each list begins, and which
    lists are None.
    """
    flat: list[Any] = []
    offsets: list[int] = []
    missing: list[bool] = []
    for one in lists:
        offsets.append(len(flat))
        missing.append(one is None)
        if one is not None:
            flat += one
    offsets.append(len(flat))
    return flat, pa.array(offsets, pa.int32()), pa.array(missing) if any(missing) else None


def _text(value: Value) -> str:
    """Return the text of a value, as in the log; the values of a multi-valued attribute become a
    JSON list.
    """
    if value.__class__ is tuple:
        return json.dumps(
            [None if one is None else to_text(one) for one in values_of(value)], ensure_ascii=False
        )
    assert value is not None
    return to_text(value)
