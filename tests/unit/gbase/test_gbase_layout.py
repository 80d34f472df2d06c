"""Rows by their layouts: size arrays, TABSCHEM, options (formats/gbase-cdc.md 3.1, 3.2)."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from gbase_layouts import decoded, layout_of
from shared import refused

from eventlog.errors import ConfigError
from eventlog.gbase import records
from eventlog.gbase.layout import (
    Column,
    Layouts,
    parse_columns,
    parse_type,
    row_writer,
    split_columns,
)
from eventlog.gbase.options import ReadOptions, parse_table_name
from eventlog.model import Value
from eventlog.testing.gbase_workload import ALL_TYPES, extreme_row, null_row, random_value

# --- rows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", [1, 2])
@pytest.mark.parametrize("order", ["little", "big"])
def test_every_type_reads_back_in_both_size_orders_and_prefixes(prefix: int, order: str) -> None:
    columns = parse_columns(ALL_TYPES)
    layout = layout_of(ALL_TYPES)
    write = row_writer("item", layout.columns, "utf-8", prefix, lambda column: None)
    rnd = random.Random(5)
    rows: list[dict[str, Value]] = [
        extreme_row(highest=True),
        extreme_row(highest=False),
        null_row(),
    ]
    rows += [{column.name: random_value(rnd, column) for column in columns} for _ in range(60)]
    for row in rows:
        sizes, payload = write(row)
        found = decoded(layout, payload, tuple(sizes), order)
        assert found == row
        assert write(found) == (sizes, payload)


@pytest.mark.promise("code error-row_length")
@pytest.mark.parametrize(
    ("sizes", "payload", "error", "column"),
    [
        ((4,), "0000000F0002" + "4142" + "43", "row_length", "v"),
        ((5,), "0000000F0002" + "4142", "row_length", "v"),
        ((0,), "0000000F", "size_array", "v"),
        ((3,), "0000000F0002" + "4142", "row_length", "v"),
        ((4,), "0000000F0005" + "4142", "size_array", "v"),
    ],
)
def test_row_of_the_wrong_length_names_its_column(
    sizes: tuple[int, ...], payload: str, error: str, column: str
) -> None:
    data = bytes.fromhex(payload)
    with refused(error) as caught:
        decoded(layout_of("i integer, v varchar(9)"), data, sizes)
    assert caught.value.name == column
    assert caught.value.sequence == 5


def test_a_payload_without_variable_columns_is_used_up() -> None:
    layout = layout_of("i integer, s smallint")
    assert decoded(layout, bytes.fromhex("0000000F0001")) == {"i": 15, "s": 1}
    for payload in ("0000000F", "0000000F000100"):
        with refused("row_length"):
            decoded(layout, bytes.fromhex(payload))


def test_a_size_array_that_fits_in_both_orders_goes_by_what_the_stream_showed() -> None:
    # 256 and 65536 are each other's bytes turned round; a payload of 66 046 bytes fits both.
    layout = layout_of("a lvarchar, b lvarchar, c lvarchar")
    slots = [
        (size - 2).to_bytes(2, "big") + b"\0" + b"x" * (size - 3) for size in (256, 254, 65536)
    ]
    sizes = tuple(map(len, slots))
    assert [len(v or "") for v in decoded(layout, b"".join(slots), sizes, "little").values()] == [
        253,
        251,
        65533,
    ]
    for order in ("little", "big"):
        ambiguous = layout_of("a lvarchar, b lvarchar")
        pair = tuple(sizes[::2])
        data = slots[0] + slots[2]
        small = b"\0\2\0x"
        decoded(ambiguous, small + small, (4, 4), order)
        found = decoded(ambiguous, data, pair, order)
        assert [len(v or "") for v in found.values()] == [253, 65533]


@pytest.mark.promise("option gbase.reader.size_order")
def test_explicit_size_order_is_not_guessed() -> None:
    slot = bytes.fromhex("000141")
    assert decoded(layout_of("v varchar(9)", size_order="big"), slot, (3,), "big") == {"v": "A"}
    with refused("size_array"):
        decoded(layout_of("v varchar(9)", size_order="big"), slot, (3,), "little")


# --- TABSCHEM -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("c1 integer, c2 varchar(20,0)", [("c1", "integer"), ("c2", "varchar(20,0)")]),
        ('"a, ""b" DECIMAL (10 , 2),c DATETIME YEAR TO FRACTION(5)',
         [('a, "b', "DECIMAL (10 , 2)"), ("c", "DATETIME YEAR TO FRACTION(5)")]),
        ("列 nchar(3)", [("列", "nchar(3)")]),
        ("", []),
    ],
)  # fmt: skip
def test_columns_are_split(text: str, columns: list[tuple[str, str]]) -> None:
    assert list(split_columns(text)) == columns
    parse_columns(text)


@pytest.mark.promise("code error-unknown_type")
@pytest.mark.parametrize(
    "spelled",
    ["text", "byte", "set(integer not "
"null)", "decimal(33,2)", "decimal(4,5)", "char(0)", "integer(4)", "datetime",
     "datetime day "
"to year", "interval month "
"to day", "datetime year to "
"fraction(6)", "interval day(10) "
"to day", "",
     "datetime year(4) to day", "varchar(3,0,1)"],
)  # fmt: skip
def test_unknown_type_names_its_column(spelled: str) -> None:
    with refused("unknown_type", match="'c'"):
        parse_columns(f"c {spelled}")


@pytest.mark.promise("code error-schema_mismatch")
def test_counts_that_disagree_and_names_that_come_twice_are_refused() -> None:
    layouts = Layouts(ReadOptions(), Counter())
    with refused("schema_mismatch", match="counts 2 fixed"):
        layouts.define(records.tab_schem(1, "a integer, b varchar(9)", 4, 2, 0), 36)
    with refused("schema_mismatch", match="twice"):
        layouts.define(records.tab_schem(1, "a integer, a integer", 8, 2, 0), 36)


def test_fixed_columns_come_first_regardless_of_the_text() -> None:
    layout = layout_of("v varchar(9), i integer")
    assert decoded(layout, bytes.fromhex("0000000F000141"), (3,)) == {"i": 15, "v": "A"}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("db:owner.table", ("db", "owner", "table")),
        ("db:table", ("db", None, "table")),
        ("owner.table", ("", "owner", "table")),
        ('db@server:"Own.er".t', ("db@server", "Own.er", "t")),
    ],
)
def test_table_names_are_taken_apart(text: str, parts: tuple[str, str | None, str]) -> None:
    assert parse_table_name(text) == parts


@pytest.mark.parametrize(
    "options",
    [
        {"charset": "klingon"}, {"charset_errors": "ignore"}, {"size_order": "middle"},
        {"varchar_prefix": 3}, {"labels": {"x": "db:t"}}, {"labels": {-1: "db:t"}},
        {"keys": {"t": "id"}}, {"max_record": 0}, {"restart": {"start_from": "00"}},
        {"restart": {"restart": "zz"}}, {"orphans": True}, {"char_trim": "no"},
        {"labels": ["db:t"]}, {"keys": ["id"]}, {"labels": {None: "db:t"}},
    ],
)  # fmt: skip
def test_wrong_option_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ReadOptions(**options)


def test_key_column_that_is_not_captured_is_refused() -> None:
    with pytest.raises(ConfigError, match="id"):
        layout_of("c integer", keys={"app.item": ["id"]})


def test_columns_are_values() -> None:
    assert parse_columns("c integer") == (Column("c", parse_type("integer", "c")),)
