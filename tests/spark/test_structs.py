"""Rows of tables as structs of Spark's types: a value is the same there, or it is refused."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from pyspark.sql import types as t

from eventlog.errors import FormatError
from eventlog.model import Lob, Value
from eventlog.spark.session.arrow_rows import structs_of

NAIVE, AWARE = datetime(2026, 1, 2, 10, 20), datetime(2026, 1, 2, 10, 20, tzinfo=UTC)


def struct_value(value: Value, kind: t.DataType) -> object:
    columns = t.StructType([t.StructField("v", kind)])
    return structs_of([{"v": value}], columns, "t").to_pylist()[0]["v"]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (Decimal("1.75"), t.LongType()),
        (2.9, t.LongType()),
        (Decimal("NaN"), t.LongType()),
        (NAIVE, t.DateType()),
        (datetime(2026, 1, 2, tzinfo=UTC), t.DateType()),
        (20_000, t.DateType()),
        (NAIVE, t.TimestampType()),
        (AWARE, t.TimestampNTZType()),
        (20_000, t.TimestampNTZType()),
        ("zz", t.BinaryType()),
        (Decimal("1.2345"), t.DecimalType(10, 2)),
        ((1, Decimal("1.5")), t.ArrayType(t.LongType())),
    ],
)
def test_a_value_that_the_type_would_change_is_refused(value: Value, kind: t.DataType) -> None:
    with pytest.raises(FormatError, match=f"column 'v' of 't' .* {kind.simpleString()[:5]}"):
        struct_value(value, kind)


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (Decimal("2.00"), t.LongType(), 2),
        ("7", t.LongType(), 7),
        (datetime(2026, 1, 2), t.DateType(), date(2026, 1, 2)),
        (NAIVE, t.TimestampNTZType(), NAIVE),
        (AWARE, t.TimestampType(), AWARE),
        (Lob(b"\xde"), t.BinaryType(), b"\xde"),
        (7, t.DecimalType(10, 2), Decimal("7.00")),
        ("1.5", t.DoubleType(), 1.5),
        (7, t.StringType(), "7"),
        ("0044-03-15 BC", t.DateType(), None),
        (Decimal("NaN"), t.DecimalType(10, 2), None),
        ((1, None), t.ArrayType(t.LongType()), [1, None]),
    ],
)
def test_a_value_that_the_type_holds_is_the_same(
    value: Value, kind: t.DataType, expected: object
) -> None:
    assert struct_value(value, kind) == expected
