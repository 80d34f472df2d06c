"""Columns as Qlik describes them, from a catalogue, from options, from rows (formats/qlik.md
5.2).
"""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from eventlog.core.catalog import Column, Table
from eventlog.core.values import ColumnType, Kind, parse_type
from eventlog.errors import ConfigError
from eventlog.model import Change, ChangeOp, Lob, Value
from eventlog.qlik.columns import (
    ColumnsSeen,
    QlikColumn,
    columns_from_json,
    columns_of,
    key_of,
    lobs_of,
)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("smallint", ("INT2", 0, 0, 0)),
        ("integer", ("INT4", 0, 0, 0)),
        ("bigint", ("INT8", 0, 0, 0)),
        ("decimal(9,2)", ("NUMERIC", 0, 9, 2)),
        ("decimal(9)", ("NUMERIC", 0, 9, 0)),
        ("decimal", ("NUMERIC", 0, 0, 0)),
        ("real", ("REAL4", 0, 0, 0)),
        ("double", ("REAL8", 0, 0, 0)),
        ("boolean", ("BOOLEAN", 0, 0, 0)),
        ("char(3)", ("STRING", 12, 0, 0)),
        ("varchar(64)", ("STRING", 256, 0, 0)),
        ("text", ("STRING", 0, 0, 0)),
        ("clob", ("CLOB", 0, 0, 0)),
        ("varbinary(16)", ("BYTES", 16, 0, 0)),
        ("blob", ("BLOB", 0, 0, 0)),
        ("date", ("DATE", 0, 0, 0)),
        ("time", ("TIME", 0, 0, 0)),
        ("timestamp", ("DATETIME", 0, 0, 0)),
        ("timestamptz", ("DATETIME", 0, 0, 0)),
        ("uuid", ("STRING", 36, 0, 0)),
        ("json", ("STRING", 0, 0, 0)),
    ],
)
def test_types_of_a_catalogue(sql: str, expected: tuple[str, int, int, int]) -> None:
    (column,) = columns_of(Table("t", "table", (Column("c", parse_type(sql)),)))
    assert (column.type, column.length, column.precision, column.scale) == expected


@pytest.mark.parametrize(
    ("type", "expected"),
    [
        (ColumnType(Kind.CHARACTER, 0, "NVARCHAR2(10 CHAR)"), ("WSTRING", 40)),
        (ColumnType(Kind.CHARACTER, 0, "NCLOB"), ("NCLOB", 0)),
        (ColumnType(Kind.CHARACTER, 0, "character varying(5)"), ("STRING", 20)),
        (ColumnType(Kind.CHARACTER, 0, "LONGTEXT"), ("CLOB", 0)),
        (ColumnType(Kind.BINARY, 0, "bytea"), ("BYTES", 0)),
        (ColumnType(Kind.BINARY, 0, "LONGBLOB"), ("BLOB", 0)),
        (ColumnType(Kind.OTHER, 0, "long"), ("STRING", 0)),
        (ColumnType(Kind.OTHER, 0, '"national mood"'), ("STRING", 0)),
        (ColumnType(Kind.OTHER, 0, "interval(3)"), ("STRING", 0)),
    ],
)
def test_spellings_of_databases(type: ColumnType, expected: tuple[str, int]) -> None:
    (column,) = columns_of(Table("t", "table", (Column("c", type),)))
    assert (column.type, column.length) == expected


def test_the_key_is_in_its_own_order() -> None:
    integer = parse_type("integer")
    columns = columns_of(
        Table("t", "table", (Column("a", integer), Column("b", integer)), primary_key=("b", "a"))
    )
    assert key_of(columns) == ("b", "a")
    assert [column.nullable for column in columns] == [False, False]


def test_columns_of_options() -> None:
    given = [
        "a",
        {"name": "b", "type": "NUMERIC", "precision": 9, "scale": 2},
        {"name": "c", "type": "CLOB"},
    ]
    columns = columns_from_json(given, ["b", "a"], what="t")
    assert key_of(columns) == ("b", "a")
    assert lobs_of(columns) == {"c"}
    assert columns[1] == QlikColumn("b", "NUMERIC", 0, 9, 2, 1)
    assert key_of(
        columns_from_json([{"name": "a", "pk": 2}, {"name": "b", "pk": 1}], what="t")
    ) == ("b", "a")


@pytest.mark.parametrize(
    ("columns", "key", "message"),
    [
        ("a", [], "list"),
        (["a", "a"], [], "'a'"),
        (["a"], ["b"], "'b'"),
        ([{"type": "STRING"}], [], "name"),
        ([{"name": "a", "typ": "STRING"}], [], "'typ'"),
        ([{"name": "a", "type": "TEXT"}], [], "'TEXT'"),
        ([{"name": "a", "length": "9"}], [], "length"),
        ([7], [], "7"),
    ],
)
def test_wrong_columns_are_refused(columns: Any, key: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        columns_from_json(columns, key, what="app.t")


@pytest.mark.parametrize(
    ("values", "type"),
    [
        ([None, 1], "INT8"),
        ([1, Decimal("1.5")], "NUMERIC"),
        ([2**70], "NUMERIC"),
        ([1, 1.5], "REAL8"),
        ([True], "BOOLEAN"),
        ([True, 2], "STRING"),
        ([date(2024, 1, 1)], "DATE"),
        ([datetime(2024, 1, 1)], "DATETIME"),
        ([time(1)], "TIME"),
        ([b""], "BYTES"),
        ([Lob(b"")], "BLOB"),
        ([None], "STRING"),
    ],
)
def test_types_of_values(values: list[Value], type: str) -> None:
    seen = ColumnsSeen()
    for value in values:
        seen.see(Change(None, "t", ChangeOp.INSERT, (("id", 1),), None, {"c": value}))
    columns = seen.columns()
    assert [column.name for column in columns] == ["id", "c"]
    assert columns[1].type == type
    assert key_of(columns) == ("id",)


def test_a_key_counts_although_an_earlier_change_has_none() -> None:
    seen = ColumnsSeen()
    for key in (None, (("id", 1),)):
        seen.see(Change(None, "t", ChangeOp.INSERT, key, None, {"id": 1}))
    assert key_of(seen.columns()) == ("id",)
    assert seen.columns() is seen.columns()  # made again only where a change shows something new
