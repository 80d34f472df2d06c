"""The live view on Spark is that of the function that goes row by row (formats/qlik.md 6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from qlik_layouts import new_layout, row_writer

from eventlog.qlik.tables.change_rows import ChangeRow
from eventlog.qlik.tables.change_tables import live_view as row_by_row
from eventlog.spark.frames.change_tables import live_view

NOON = datetime(2024, 5, 10, 12, tzinfo=UTC)
DATA = {
    "shop": pa.string(),
    "id": pa.int32(),
    "name": pa.string(),
    "price": pa.decimal128(9, 2),
    "day": pa.date32(),
}
KEY = ("shop", "id")
NOTHING: Mapping[str, Any] = dict.fromkeys(DATA)


def frame(
    spark: SparkSession,
    columns: Sequence[str],
    types: Mapping[str, pa.DataType],
    rows: Sequence[Any],
) -> DataFrame:
    schema = pa.schema([(name, types.get(name, pa.string())) for name in columns])
    arrays = [pa.array([row[n] for row in rows], field.type) for n, field in enumerate(schema)]
    table = pa.Table.from_arrays(arrays, schema=schema)
    return spark.createDataFrame(table, from_arrow_schema(schema))


def stored(spark: SparkSession, rows: Sequence[ChangeRow], mask_form: str = "binary") -> DataFrame:
    layout = new_layout(list(DATA), what="item")
    write = row_writer(layout, mask_form=mask_form, what="item")  # type: ignore[arg-type]
    types = {**DATA, "header__timestamp": pa.timestamp("us", "UTC")}
    if mask_form == "binary":
        types["header__change_mask"] = pa.binary()
    values = [write(row) for row in rows]
    place = layout.headers["timestamp"]
    for each in values:
        each[place] = each[place].replace(tzinfo=UTC)
    return frame(spark, layout.columns, types, values)


def of_base(spark: SparkSession, base: Sequence[Mapping[str, Any]]) -> DataFrame:
    return frame(spark, list(DATA), DATA, [[row.get(name) for name in DATA] for row in base])


def view(found: DataFrame) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row) for row in found.collect())


def expected(
    base: Sequence[Any], rows: Sequence[ChangeRow], as_of: datetime | None = None
) -> Counter[tuple[Any, ...]]:
    state = row_by_row(base, rows, as_of, key=KEY)
    return Counter(tuple(row.get(name) for name in DATA) for row in state.values())


KEYS = st.fixed_dictionaries(
    {"shop": st.sampled_from("abcdefgh"), "id": st.sampled_from([1, 2, 3, None])}
)
VALUES = st.fixed_dictionaries({
    "name": st.sampled_from([None, "", "nut", "bolt"]),
    "price": st.sampled_from([None, Decimal("1.50"), Decimal("-2.00")]),
    "day": st.sampled_from([None, date(2024, 2, 29)]),
})  # fmt: skip
MASKS = st.sets(st.sampled_from(list(DATA))).map(frozenset)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[ChangeRow]]:
    """A base, and rows whose updates move keys, onto others too, and say more or less of what they
    changed.
    """
    base = {
        tuple(key.values()): {**key, **draw(VALUES)} for key in draw(st.lists(KEYS, max_size=12))
    }
    rows: list[ChangeRow] = []
    steps = draw(
        st.lists(
            st.tuples(st.sampled_from("IUUUUDBM" * 9 + "T"), KEYS, VALUES, MASKS),
            min_size=30,
            max_size=150,
        )
    )
    for number, (letter, key, values, mask) in enumerate(steps, 1):
        moment = NOON + timedelta(seconds=number // 10)
        sequence = f"{moment:%Y%m%d%H%M%S}00{number:019}"

        def add(oper: str, data: Mapping[str, Any], bits: frozenset[str]) -> None:
            rows.append(ChangeRow(sequence, oper, bits, None, None, NOON, None, data))  # noqa: B023

        if letter == "M":  # an update with its before image
            old = {**draw(KEYS), "shop": key["shop"]} if draw(st.booleans()) else draw(KEYS)
            add("B", {**old, **draw(VALUES)}, frozenset())
            letter = "U"
        data = (
            NOTHING
            if letter == "T"
            else {**key, **(dict.fromkeys(values) if letter == "D" else values)}
        )
        add(letter, data, mask if letter in "IU" else frozenset())
    return list(base.values()), draw(st.permutations(rows)) if len(rows) < 20 else rows[::-1]


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(histories(), st.sampled_from([None, 0, 3]), st.sampled_from(["binary", "text"]))
def test_the_same_as_row_by_row(
    spark: SparkSession,
    history: tuple[list[Any], list[ChangeRow]],
    seconds: int | None,
    mask_form: str,
) -> None:
    base, rows = history
    as_of = None if seconds is None else NOON + timedelta(seconds=seconds)
    found = live_view(of_base(spark, base), stored(spark, rows, mask_form), as_of, key=KEY)
    assert view(found) == expected(base, rows, as_of)
