"""Changes as rows of a DataFrame (spec/change-model.md 1.2)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from itertools import islice
from typing import Any, Final

import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t

from eventlog.changes import json_form as change_json
from eventlog.changes.format import Report
from eventlog.conversion import in_own_options, read_options
from eventlog.core.moments import aware_utc, is_special
from eventlog.core.typed import to_text, values_of
from eventlog.errors import FormatError
from eventlog.model import Change, Lob, Row, Value
from eventlog.spark.captures import captures
from eventlog.spark.session import arrow_schema, arrow_type, tune_collector
from eventlog.spark.sorting import work_on

_TEXTS: Final = t.ArrayType(t.StringType())
_BATCH: Final = 1000

SCHEMA: Final = t.StructType([
    t.StructField("schema", t.StringType()),
    t.StructField("table", t.StringType()),
    t.StructField("op", t.StringType()),
    t.StructField("key", t.StringType()),
    t.StructField("before", t.StringType()),
    t.StructField("after", t.StringType()),
    t.StructField("changed", _TEXTS),
    t.StructField("present", _TEXTS),
    t.StructField("position", t.StringType()),
    t.StructField("transaction_id", t.StringType()),
    t.StructField("event_number", t.LongType()),
    t.StructField("last_in_transaction", t.BooleanType()),
    t.StructField("commit_time", t.TimestampType()),
    t.StructField("user", t.StringType()),
    t.StructField("extras", t.StringType()),
])  # fmt: skip
"""The columns. ``key``, ``before``, ``after`` and ``extras`` are in the JSON form of
spec/change-model.md 1.1.
"""

_IMAGES: Final = ("before", "after")


def _schema_with(columns: t.StructType | None) -> t.StructType:
    """Return the columns of changes. With columns of the table ``before`` and ``after`` are structs
    of them, and ``before_present`` and ``after_present`` have the names of the known ones.
    """
    if columns is None:
        return SCHEMA
    fields = [
        t.StructField(one.name, columns) if one.name in _IMAGES else one for one in SCHEMA.fields
    ]
    return t.StructType(fields + [t.StructField(f"{name}_present", _TEXTS) for name in _IMAGES])


def read_captures(
    spark: SparkSession,
    format: str,
    source: str,
    options: Mapping[str, Any] | None = None,
    *,
    columns: t.StructType | None = None,
    strict: bool = True,
    nulled: Accumulator[int] | None = None,
) -> DataFrame:
    """Return the changes of a file or of a directory of captures (``eventlog.spark.captures``),
    each capture read by one task.

    ``options`` are the options of the format's reader, as in ``--map``. ``columns`` are the columns
    of the table, for structs in place of JSON; other columns of an image are left out. With
    ``strict`` an unreadable change fails the query, else it is skipped. ``nulled`` counts values
    that the types of a struct cannot hold and that become null: special times (spec/xds.md 6.3),
    and NaN and infinity of decimals. The rows of a capture are in its order. Over a whole source,
    order by ``position`` (of an event log as a number) and, where needed, ``event_number``. Raises
    ConfigError; a query fails with FormatError.
    """
    named = read_options({"reader": options or {}})["reader"]
    reader = in_own_options(format, "reader", named)
    frame, captures_in = work_on(
        spark,
        captures(format, source, reader),
        format,
        reader,
        strict=strict,
        catalog=named.get("catalog"),
    )
    schema = _schema_with(columns)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tune_collector()
        for _, read_capture in captures_in(batches):
            yield from batches_of(read_capture(Report(strict=strict)), columns, nulled)

    return frame.mapInArrow(read, schema)


def batches_of(
    changes: Iterable[Change],
    columns: t.StructType | None = None,
    nulled: Accumulator[int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield changes as batches of ``batch_of``, some at a time."""
    rest = iter(changes)
    while several := list(islice(rest, _BATCH)):
        yield batch_of(several, columns, nulled)


def batch_of(
    changes: Sequence[Change],
    columns: t.StructType | None = None,
    nulled: Accumulator[int] | None = None,
) -> pa.RecordBatch:
    """Return changes as a batch of rows with the columns of ``_schema_with``. ``nulled`` is as in
    ``read_captures``.

    Raises FormatError for a value that the type of its column cannot hold.
    """
    schema = arrow_schema(_schema_with(columns))
    objects = [change_json.to_json(change) for change in changes]
    data: dict[str, Any] = {name: [one.get(name) for one in objects] for name in SCHEMA.names}
    for name in ("key", *_IMAGES, "extras"):
        data[name] = [None if value is None else _text(value) for value in data[name]]
    data["present"] = [sorted(change.present) for change in changes]
    data["commit_time"] = [change.commit_time for change in changes]
    if columns is not None:
        for name in _IMAGES:
            images = [getattr(change, name) for change in changes]
            data[name] = structs_of(images, columns, changes[0].table, nulled)
            known = frozenset(columns.names)
            data[f"{name}_present"] = [
                None if image is None else sorted(known & image.keys()) for image in images
            ]
    return pa.RecordBatch.from_arrays(arrays_of(data, schema), schema=schema)


def arrays_of(columns: Mapping[str, Any], schema: pa.Schema) -> list[pa.Array]:
    """Return columns as arrays in the order of a schema; one that is an array stays as it is."""
    given = (columns[name] for name in schema.names)
    return [
        column if isinstance(column, pa.Array) else pa.array(column, type)
        for column, type in zip(given, schema.types, strict=True)
    ]


def change_of(row: Mapping[str, Any]) -> Change:
    """Return the change of a row in the JSON form (``Row.asDict()``). Raises FormatError."""
    members = dict(row)
    for name in ("key", *_IMAGES, "extras"):
        members[name] = None if row[name] is None else json.loads(row[name])
    moment: datetime | None = members.pop("commit_time")
    change = change_json.from_json(members)
    if moment is None:
        return change
    return change._replace(commit_time=aware_utc(moment))


def _text(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    has_half_characters = any("\ud800" <= character <= "\udfff" for character in text)
    return json.dumps(value) if has_half_characters else text  # a string of Spark cannot hold them


def structs_of(
    images: Sequence[Row | None],
    columns: t.StructType,
    table: str | None,
    nulled: Accumulator[int] | None = None,
) -> pa.StructArray:
    """Return rows of a table as structs of columns. ``nulled`` is as in ``read_captures``.

    Raises FormatError for a value that the type of its column cannot hold.
    """
    arrays, fields = [], []
    for field in columns.fields:
        kind = arrow_type(field.dataType)
        values = [None if image is None else image.get(field.name) for image in images]
        try:
            try:
                array = _array(values, field.dataType, kind)
            except _REFUSED:
                array = _array(
                    [_without_special(value, field.dataType, nulled) for value in values],
                    field.dataType,
                    kind,
                )
        except _REFUSED as error:
            raise FormatError(
                f"column {field.name!r} of {table!r} has a value that "
                f"{field.dataType.simpleString()} does not hold: {error}; give the reader a "
                "catalog, or the column another type"
            ) from None
        arrays.append(array)
        fields.append(pa.field(field.name, kind, field.nullable))
    return pa.StructArray.from_arrays(
        arrays, fields=fields, mask=pa.array([image is None for image in images])
    )


_REFUSED: Final = (pa.ArrowException, ValueError, TypeError, ArithmeticError)


def _array(values: Sequence[Value], kind: t.DataType, arrow_kind: pa.DataType) -> pa.Array:
    return pa.array([_plain(value, kind) for value in values], arrow_kind)


def _without_special(value: Value, kind: t.DataType, nulled: Accumulator[int] | None) -> Value:
    """Return the value, or NULL, which is counted, if the type of Spark has no such value."""
    if value is not None and isinstance(kind, t.ArrayType):
        return tuple(_without_special(one, kind.elementType, nulled) for one in values_of(value))
    is_time = isinstance(kind, t.DateType | t.TimestampType | t.TimestampNTZType)
    is_lost = (is_time and isinstance(value, str) and is_special(value)) or (
        isinstance(kind, t.DecimalType) and isinstance(value, Decimal) and not value.is_finite()
    )
    if not is_lost:
        return value
    if nulled is not None:
        nulled.add(1)
    return None


def _plain(value: Value, kind: t.DataType) -> Any:
    """Return a value as Arrow takes it for a type of Spark."""
    if value is None:
        return None
    if isinstance(kind, t.ArrayType):
        values = value if isinstance(value, tuple) and not isinstance(value, Lob) else (value,)
        return [_plain(one, kind.elementType) for one in values]
    if isinstance(value, Lob):
        value = value.data
    if isinstance(kind, t.StringType):
        return value if isinstance(value, str) else to_text(value)
    if isinstance(kind, t.DecimalType) and isinstance(value, int | str):
        return Decimal(value)
    if isinstance(kind, t.IntegralType | t.FractionalType) and isinstance(value, str):
        return float(value) if isinstance(kind, t.FractionalType) else int(value)
    return value
