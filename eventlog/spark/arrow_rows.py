"""Rows of tables as columns of Arrow, with the types of Spark.

A reader of the log imports this module and few others: what it does not need is not here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.sql import types as t

from eventlog.core.moments import is_special
from eventlog.core.typed import to_text, values_of
from eventlog.errors import FormatError
from eventlog.model import Lob, Row, Value
from eventlog.spark.session import arrow_type


def arrays_of(columns: Mapping[str, Any], schema: pa.Schema) -> list[pa.Array]:
    """Return columns as arrays in the order of a schema; one that is an array stays as it is."""
    given = (columns[name] for name in schema.names)
    return [
        column if isinstance(column, pa.Array) else pa.array(column, type)
        for column, type in zip(given, schema.types, strict=True)
    ]


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
