"""Rows of tables as Arrow columns with Spark types.

Each task that reads the log imports this module, so it contains only what these tasks need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final, Protocol

import pyarrow as pa
from pyspark.sql import types as t

from eventlog.core.values.moments import is_special
from eventlog.core.values.typed_values import to_text, values_of
from eventlog.errors import FormatError
from eventlog.model import Lob, Row, Value
from eventlog.spark.session.arrow_types import arrow_type


class Counter(Protocol):
    """A counter, such as a Spark accumulator."""

    def add(self, number: int, /) -> None:
        """Add a number to the count."""


def arrays_of(columns: Mapping[str, Any], schema: pa.Schema) -> list[pa.Array]:
    """Return columns as arrays in the order of a schema. A column that is an array is unchanged."""
    given = (columns[name] for name in schema.names)
    return [
        column if isinstance(column, pa.Array) else pa.array(column, type)
        for column, type in zip(given, schema.types, strict=True)
    ]


def structs_of(
    images: Sequence[Row | None],
    columns: t.StructType,
    table: str | None,
    nulled: Counter | None = None,
) -> pa.StructArray:
    """Return rows of a table as structs of columns. ``nulled`` is as in ``read_inputs``.

    Raises FormatError for a value that the type of its column cannot hold unchanged.
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
                f"{field.dataType.simpleString()} cannot hold: {error}. Give the reader a "
                "catalog, or give the column another type"
            ) from None
        arrays.append(array)
        fields.append(pa.field(field.name, kind, field.nullable))
    return pa.StructArray.from_arrays(
        arrays, fields=fields, mask=pa.array([image is None for image in images], pa.bool_())
    )


_REFUSED: Final = (pa.ArrowException, ValueError, TypeError, ArithmeticError)


def _array(values: Sequence[Value], kind: t.DataType, arrow_kind: pa.DataType) -> pa.Array:
    convert = _converter(kind)
    return pa.array([None if value is None else convert(value) for value in values], arrow_kind)


def _without_special(value: Value, kind: t.DataType, nulled: Counter | None) -> Value:
    """Return the value. If the Spark type cannot hold the value, count it and return NULL."""
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


# --- values ---------------------------------------------------------------------------------------

# Arrow converts a value of the wrong kind silently: 1.75 becomes 1, a timestamp becomes a date, and
# a time gains or loses its zone. The functions below raise ValueError instead.


def _converter(kind: t.DataType) -> Callable[[Any], Any]:
    """Return the function that converts a value other than NULL to the value that Arrow needs for a
    Spark type. The function raises ValueError for a value that would change.
    """
    if isinstance(kind, t.ArrayType):
        of_member = _converter(kind.elementType)
        return lambda value: [None if one is None else of_member(one) for one in values_of(value)]
    for known, convert in _CONVERTERS:
        if isinstance(kind, known):
            return convert
    return _bare


def _bare(value: Any) -> Any:
    return value.data if value.__class__ is Lob else value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else to_text(_bare(value))


def _decimal(value: Any) -> Any:
    return Decimal(value) if isinstance(value, int | str) else value


def _integer(value: Any) -> Any:
    if isinstance(value, str):
        return int(value)
    if isinstance(value, Decimal | float) and value != int(value):
        raise _changed(value)
    return value


def _float(value: Any) -> Any:
    return float(value) if isinstance(value, str) else value


def _date(value: Any) -> date:
    if isinstance(value, datetime) and value == datetime.combine(value, time.min):
        return value.date()
    if value.__class__ is not date:
        raise _changed(value)
    return value


def _moment(value: Any) -> datetime:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise _changed(value)
    return value


def _time_without_zone(value: Any) -> datetime:
    if not isinstance(value, datetime) or value.tzinfo is not None:
        raise _changed(value)
    return value


def _binary(value: Any) -> Any:
    if isinstance(value, str):
        raise _changed(value)
    return _bare(value)


def _changed(value: Any) -> ValueError:
    return ValueError(f"{value!s:.40} would become another value")


_CONVERTERS: Final[Sequence[tuple[type[t.DataType], Callable[[Any], Any]]]] = (
    (t.StringType, _text),
    (t.DecimalType, _decimal),
    (t.IntegralType, _integer),
    (t.FractionalType, _float),
    (t.DateType, _date),
    (t.TimestampType, _moment),
    (t.TimestampNTZType, _time_without_zone),
    (t.BinaryType, _binary),
)
