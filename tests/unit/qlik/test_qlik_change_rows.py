"""Rows of change tables as they are stored, and the layouts of the tables (formats/qlik.md 1.1,
2.1).
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from qlik_layouts import new_layout, read_layout, row_writer
from shared import refused

from eventlog.errors import EventlogError, FormatError, NotExpressible
from eventlog.model import Lob, Row
from eventlog.qlik.tables.change_rows import DEFAULT_HEADERS, ChangeRow, row_reader

SEQ = "20240510120000000000000000000000012"
NOON = datetime(2024, 5, 10, 12, tzinfo=UTC)
A1 = "000000000000000000000000000000A1"
DEARER: Row = {"id": 7, "name": "nut", "price": Decimal("1.75")}
COLUMNS = [*(f"header__{name}" for name in DEFAULT_HEADERS), "id", "name", "price"]


# --- stored values --------------------------------------------------------------------------------


def stored(row: ChangeRow, **options: Any) -> list[Any]:
    layout = new_layout(
        ["id", "name", "price"], what="item", partitioned=bool(options.pop("partitioned", False))
    )
    return row_writer(layout, what="app.item", **{"mask_form": "binary"} | options)(row)


U_ROW = ChangeRow(SEQ, "U", frozenset({"price"}), "p:12", "a1", NOON, "P", DEARER)


@pytest.mark.promise("option qlik-change-table.writer.byteorder")
@pytest.mark.parametrize(
    ("options", "mask"),
    [
        ({}, b"\x00\x02"),
        ({"byteorder": "big"}, b"\x02\x00"),
        ({"mask_form": "text"}, "0200"),
        ({"empty_mask": "null"}, b"\x00\x02"),
    ],
)
def test_a_row_as_it_is_stored(options: dict[str, Any], mask: Any) -> None:
    moment = datetime(2024, 5, 10, 12)
    assert stored(U_ROW, **options) == [
        SEQ,
        "U",
        mask,
        "p:12",
        "UPDATE",
        A1,
        moment,
        7,
        "nut",
        Decimal("1.75"),
    ]


@pytest.mark.promise("option qlik-change-table.writer.empty_mask")
def test_what_is_not_known_is_stored_in_its_own_forms() -> None:
    row = ChangeRow(SEQ, "T", frozenset(), None, None, None, None, {})
    epoch = datetime(1970, 1, 1)
    assert stored(row) == [SEQ, "T", b"", None, "TRUNCATE", "0" * 32, epoch, None, None, None]
    assert stored(row, empty_mask="null")[2] is None
    assert stored(row, mask_form="text")[2] == "00"
    back = row_reader(read_layout(COLUMNS, what="item"), counters=Counter(), what="item")(
        stored(row)
    )
    assert back == row._replace(data={"id": None, "name": None, "price": None})


def test_partition_name_is_the_last_column() -> None:
    assert stored(U_ROW, partitioned=True)[-1] == "P"


def test_a_table_that_is_there_keeps_its_own_order() -> None:
    columns = [
        "id",
        "HEADER__CHANGE_SEQ",
        "price",
        "Header__Change_Oper",
        "header__change_mask",
        "name",
    ]
    layout = read_layout(columns, what="item")
    write = row_writer(layout, mask_form="binary", what="item")
    # place 2 of the real column list is price
    assert write(U_ROW) == [7, SEQ, Decimal("1.75"), "U", b"\x04", "nut"]
    read = row_reader(layout, counters=Counter(), what="item")
    assert read(write(U_ROW))[:3] == (SEQ, "U", {"price"})


def test_lobs_are_stored_as_bytes_and_several_values_not_at_all() -> None:
    assert stored(U_ROW._replace(data={"id": 1, "name": Lob(b"x")}))[-2] == b"x"
    with pytest.raises(NotExpressible, match="'name'"):
        stored(U_ROW._replace(data={"name": ("a", "b")}))


def test_a_long_stream_position_is_refused() -> None:
    assert stored(U_ROW._replace(stream_position="p" * 128))[3] == "p" * 128
    with refused("value_range", match="129"):
        stored(U_ROW._replace(stream_position="p" * 129))


def read_stored(**given: Any) -> ChangeRow:
    values = dict(zip(COLUMNS, stored(U_ROW), strict=True)) | {
        f"header__{name}": v for name, v in given.items()
    }
    counters: Counter[str] = Counter()
    row = row_reader(read_layout(COLUMNS, what="item"), counters=counters, what="app.item")(
        list(values.values())
    )
    assert not counters
    return row


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"change_seq": int(SEQ)}, "change_seq", SEQ),
        ({"change_seq": Decimal(SEQ)}, "change_seq", SEQ),
        ({"change_mask": "0x200"}, "mask", {"price"}),
        ({"change_mask": memoryview(b"\x00\x02\x00")}, "mask", {"price"}),
        ({"change_mask": None}, "mask", set()),
        ({"change_oper": None}, "change_oper", "U"),
        ({"operation": None}, "change_oper", "U"),
        ({"change_oper": "u ", "operation": "update"}, "change_oper", "U"),
        ({"timestamp": "2024-05-10 12:00:00.000000"}, "timestamp", NOON),
        ({"timestamp": "2024-05-10T14:00:00+02:00"}, "timestamp", NOON),
        ({"timestamp": datetime(1970, 1, 1)}, "timestamp", None),
        ({"timestamp": None}, "timestamp", None),
        ({"transaction_id": "0" * 32}, "transaction_id", None),
        ({"transaction_id": ""}, "transaction_id", None),
    ],
)
def test_headers_are_read_as_they_are_met(given: dict[str, Any], field: str, value: Any) -> None:
    assert getattr(read_stored(**given), field) == value


@pytest.mark.promise("code error-operation_mismatch")
@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"operation": "DELETE"}, "operation_mismatch"),
        ({"change_oper": "X", "operation": None}, "unknown_operation"),
        ({"change_oper": None, "operation": None}, "unknown_operation"),
        ({"change_seq": None}, "bad_sequence"),
        ({"change_seq": "1"}, "bad_sequence"),
        ({"change_seq": 1.5}, FormatError),
        ({"change_mask": "xy"}, "bad_mask"),
        ({"timestamp": "yesterday"}, FormatError),
    ],
)
def test_bad_headers_are_refused(given: dict[str, Any], error: str | type[EventlogError]) -> None:
    with refused(error):
        read_stored(**given)


def test_an_operation_that_is_not_the_letters_names_the_sequence() -> None:
    with refused("operation_mismatch", match=SEQ):
        read_stored(operation="INSERT")


# --- layouts --------------------------------------------------------------------------------------


@pytest.mark.promise("code error-missing_header")
@pytest.mark.parametrize(
    ("columns", "missing"),
    [
        (["id", "header__change_oper"], "header__change_seq"),
        (["id", "header__change_seq"], "header__change_oper or header__operation"),
    ],
)
def test_a_table_without_a_needed_header_is_refused(columns: list[str], missing: str) -> None:
    with refused("missing_header", match=missing):
        read_layout(columns, what="item")


@pytest.mark.promise("option qlik-change-table.reader.header_prefix")
def test_only_the_eight_names_are_headers() -> None:
    layout = read_layout(
        ["header__change_seq", "header__operation", "header__colour", "timestamp"], what="item"
    )
    assert layout.names == ("header__colour", "timestamp")
    bare = read_layout(
        ["change_seq", "change_oper", "timestamp", "id"], header_prefix="", what="item"
    )
    assert bare.names == ("id",)


def test_a_header_may_not_stand_twice() -> None:
    with pytest.raises(FormatError, match="twice"):
        read_layout(["header__change_seq", "HEADER__CHANGE_SEQ", "header__operation"], what="item")


@pytest.mark.promise("option qlik-change-table.reader.mask_offset")
def test_headers_prefix_and_offset_can_be_chosen() -> None:
    layout = new_layout(
        ["id", "name"], headers=["change_oper", "change_seq"], header_prefix="h_", mask_offset=5,
        partitioned=True, what="item",
    )  # fmt: skip
    assert layout.columns == ("h_change_oper", "h_change_seq", "id", "name", "h_partition_name")
    assert layout.masks.bits({"id"}) == 1 << 5
    again = read_layout(layout.columns, header_prefix="h_", mask_offset=5, what="item")
    assert again.masks.bits({"name"}) == 1 << 6


def test_a_column_that_would_be_read_as_a_header_is_refused() -> None:
    with pytest.raises(FormatError, match="'Timestamp'"):
        new_layout(["id", "Timestamp"], header_prefix="", what="item")


def test_a_table_with_too_many_columns_is_refused_before_anything_is_written() -> None:
    columns = [f"c{number}" for number in range(1018)]
    new_layout(columns[:-1], partitioned=True, what="wide")
    with refused("mask_too_wide"):
        new_layout(columns, what="wide")
