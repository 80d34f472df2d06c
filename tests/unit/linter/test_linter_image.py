"""The emulator's row image: what survives, and what is refused with the column's name
(formats/linter-queue.md 7).
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared import examples

from eventlog.errors import ConfigError
from eventlog.linter.codec import RowDecodeError, RowEncodeError, Typ
from eventlog.linter.dispatch_tables import ColumnAttrs, TableAttrs, attrs_of_rows, table_attrs
from eventlog.model import Lob
from eventlog.testing.linter_codec import EmulatorCodec

CODEC = EmulatorCodec()


def one(typ: int, length: int) -> TableAttrs:
    return table_attrs(1, [ColumnAttrs("C", 1, typ, 0, length)])


def characters(length: int, encoding: str) -> st.SearchStrategy[str]:
    alphabet = st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"])
    return st.text(alphabet, max_size=length).filter(
        lambda text: len(text.encode(encoding)) <= length
    )


def values(column: ColumnAttrs) -> st.SearchStrategy[Any]:
    length = column.length
    match column.typ:
        case Typ.CHAR:
            return characters(length, "utf-8").map(lambda text: text.rstrip(" "))
        case Typ.VARCHAR:
            return characters(length, "utf-8")
        case Typ.NCHAR:
            return characters(length, "utf-16-be").map(lambda text: text.rstrip(" "))
        case Typ.NVARCHAR:
            return characters(length, "utf-16-be")
        case Typ.INTEGER:
            return st.integers(-(1 << 8 * length - 1), (1 << 8 * length - 1) - 1)
        case Typ.REAL:
            return st.floats(width=32 if length == 4 else 64, allow_nan=False)
        case Typ.DATE:
            moments = st.datetimes(min_value=datetime(1, 1, 1))
            return moments.map(
                lambda moment: moment.replace(microsecond=moment.microsecond // 10_000 * 10_000)
            )
        case Typ.DECIMAL:
            return st.integers(-(10**30) + 1, 10**30 - 1).map(
                lambda number: Decimal(f"{number}E-10")
            )
        case Typ.BOOLEAN:
            return st.booleans()
        case Typ.VARBYTE:
            return st.binary(max_size=length)
        case _:
            return st.binary(min_size=length, max_size=length)


LENGTHS = {
    Typ.CHAR: [1, 7], Typ.INTEGER: [2, 4, 8], Typ.REAL: [4, 8], Typ.DATE: [16], Typ.DECIMAL: [16],
    Typ.BYTE: [1, 5], Typ.BLOB: [0, 8], Typ.VARCHAR: [0, 9], Typ.VARBYTE: [0, 9], Typ.BOOLEAN: [1,
    5], Typ.NCHAR: [2, 8], Typ.NVARCHAR: [0, 8],
}  # fmt: skip


@st.composite
def tables_and_rows(draw: st.DrawFn) -> tuple[TableAttrs, dict[str, Any]]:
    kinds = [(typ, length) for typ, lengths in LENGTHS.items() for length in lengths]
    chosen = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=6))
    columns = [
        ColumnAttrs(f"C{number}", number, typ, 0, length)
        for number, (typ, length) in enumerate(chosen)
    ]
    return table_attrs(1, columns), {
        column.name: draw(st.none() | values(column)) for column in columns
    }


@given(tables_and_rows())
@settings(max_examples=examples(150))
def test_every_row_survives_its_image(case: tuple[TableAttrs, dict[str, Any]]) -> None:
    table, row = case
    image = CODEC.encode(table, row)
    assert CODEC.decode(table, image) == row
    with pytest.raises(RowDecodeError):
        CODEC.decode(table, image[:-1])
    with pytest.raises(RowDecodeError, match="left over"):
        CODEC.decode(table, image + b"\0")


@given(tables_and_rows(), st.binary(max_size=80))
@settings(max_examples=examples(150))
def test_any_bytes_give_a_row_or_a_clear_error(
    case: tuple[TableAttrs, dict[str, Any]], image: bytes
) -> None:
    try:
        row = CODEC.decode(case[0], image)
    except RowDecodeError:
        return
    assert list(row) == [column.name for column in case[0].columns]


@pytest.mark.parametrize(
    ("typ", "length", "value", "decoded"),
    [
        (Typ.CHAR, 5, "ab  ", "ab"),
        (Typ.NCHAR, 8, "ab ", "ab"),
        (Typ.BYTE, 4, b"ab", b"ab\0\0"),
        (
            Typ.DATE,
            16,
            datetime(2024, 2, 29, 1, 2, 3, 789_999),
            datetime(2024, 2, 29, 1, 2, 3, 780_000),
        ),
        (Typ.DECIMAL, 16, 100, Decimal(100)),
        (Typ.DECIMAL, 16, Decimal("0E+50"), Decimal(0)),
        (
            Typ.DECIMAL,
            16,
            Decimal("99999999999999999999.9999999999"),
            Decimal("99999999999999999999.9999999999"),
        ),
        (Typ.DECIMAL, 16, Decimal("1.500000000000"), Decimal("1.5")),
        (Typ.BLOB, 2, Lob(b"ab"), b"ab"),
        (Typ.REAL, 8, 1, 1.0),
    ],
)
def test_values_that_are_padded_truncated_or_normalised(
    typ: int, length: int, value: Any, decoded: Any
) -> None:
    table = one(typ, length)
    assert CODEC.decode(table, CODEC.encode(table, {"C": value})) == {"C": decoded}


def test_a_nan_survives() -> None:
    table = one(Typ.REAL, 8)
    assert math.isnan(CODEC.decode(table, CODEC.encode(table, {"C": math.nan}))["C"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("typ", "length", "value"),
    [
        (Typ.CHAR, 2, "abc"), (Typ.CHAR, 2, "ää"), (Typ.CHAR, 2, 1), (Typ.CHAR, 0, ""), (Typ.CHAR,
        4001, ""), (Typ.VARCHAR, 2, "abc"), (Typ.VARCHAR, 4001, ""), (Typ.VARBYTE, 2, b"abc"),
        (Typ.BYTE, 2, b"abc"), (Typ.BYTE, 2, "ab"), (Typ.BLOB, 2, b"a"), (Typ.INTEGER, 2, 32768),
        (Typ.INTEGER, 4, "1"), (Typ.INTEGER, 3, 1), (Typ.REAL, 4, 1e39), (Typ.REAL, 4, "x"),
        (Typ.DATE, 16, "x"), (Typ.DATE, 8, None), (Typ.DATE, 16, datetime(2024, 1, 1, tzinfo=UTC)),
        (Typ.DECIMAL, 16, Decimal("0.00000000001")), (Typ.DECIMAL, 16, Decimal("1E20")),
        (Typ.DECIMAL, 16, Decimal("NaN")), (Typ.DECIMAL, 16, Decimal("Infinity")), (Typ.DECIMAL, 16,
        1.5), (Typ.DECIMAL, 16, Decimal("1E-999999")), (Typ.DECIMAL, 16,
        Decimal("1." + "0" * 60 + "1")), (Typ.BOOLEAN, 1, 2), (Typ.BOOLEAN, 6, True), (Typ.NCHAR, 8,
        "\U0001f600"), (Typ.NCHAR, 7, ""), (Typ.NVARCHAR, 8, "\ud800"), (Typ.NVARCHAR, 3, ""), (13,
        4, 1), (0, 4, 1),
    ],
)  # fmt: skip
def test_what_the_image_cannot_hold_is_refused_with_its_column(
    typ: int, length: int, value: Any
) -> None:
    with pytest.raises(RowEncodeError, match="'C'") as caught:
        CODEC.encode(one(typ, length), {"C": value})
    assert caught.value.column == "C"


def test_null_has_to_be_given() -> None:
    with pytest.raises(RowEncodeError, match="'C' is missing in the row"):
        CODEC.encode(one(Typ.CHAR, 1), {})


@pytest.mark.parametrize(
    ("typ", "length", "image"),
    [
        (Typ.INTEGER, 2, "020000"), (Typ.INTEGER, 2, "ff0000"), (Typ.INTEGER, 2, "0000"),
        (Typ.INTEGER, 2, ""), (Typ.VARCHAR, 2, "000003616263"), (Typ.VARCHAR, 4, "00000361"),
        (Typ.VARCHAR, 4, "0000"), (Typ.VARCHAR, 4, "000001ff"), (Typ.VARCHAR, 4, "01000161"),
        (Typ.NVARCHAR, 4, "000001" "61"), (Typ.NVARCHAR, 4, "000004d83dde00"), (Typ.NVARCHAR, 4,
        "000002d83d"), (Typ.BOOLEAN, 2, "000002"), (Typ.DATE, 16, "00" + b"2024022912345x00".hex()),
        (Typ.DATE, 16, "00" + b"2024023012345600".hex()), (Typ.DATE, 16,
        "00" + b"2024022924000000".hex()), (Typ.DATE, 16, "00" + b"0000010100000000".hex()), (13, 1,
        "0000"), (Typ.INTEGER, 3, "00000000"),
    ],
)  # fmt: skip
def test_an_image_that_is_wrong_is_refused_with_its_column(
    typ: int, length: int, image: str
) -> None:
    with pytest.raises(RowDecodeError) as caught:
        CODEC.decode(one(typ, length), bytes.fromhex(image))
    assert caught.value.column == "C"


def test_filler_of_a_null_fixed_slot_is_not_looked_at() -> None:
    assert CODEC.decode(one(Typ.DATE, 16), b"\1" + b"x" * 16) == {"C": None}


def test_charset_is_that_of_char_and_varchar() -> None:
    codec, table = EmulatorCodec("cp1251"), one(Typ.VARCHAR, 4)
    assert codec.encode(table, {"C": "дом"}) == b"\0\0\3\xe4\xee\xec"
    assert codec.decode(table, b"\0\0\3\xe4\xee\xec") == {"C": "дом"}
    with pytest.raises(RowEncodeError):
        codec.encode(table, {"C": "漢"})
    with pytest.raises(ConfigError):
        EmulatorCodec("klingon")


@pytest.mark.parametrize(
    ("pkeys", "key"),
    [
        ((2, 1, 0), ("B", "A")),
        ((1, 0, 1), ("A", "C")),
        ((0, 0, 0), ()),
        ((3, 2, 1), ("C", "B", "A")),
    ],
)
def test_key_order_is_pkey_or_the_order_of_columns(
    pkeys: tuple[int, ...], key: tuple[str, ...]
) -> None:
    rows = [
        (7, name.ljust(66), number, 2, pkey, 4)
        for number, (name, pkey) in enumerate(zip("ABC", pkeys, strict=True))
    ]
    attrs = attrs_of_rows(["tabnum_src", "Name", "ATRNUM", "TYP", "PKEY", "LEN"], reversed(rows))
    assert attrs[7].key == key
