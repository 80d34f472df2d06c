"""Column values both ways, and rows that cannot be read (formats/gbase-cdc.md 3.1 to 3.5)."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal, localcontext
from typing import Any

import pytest
from gbase_layouts import decoded, layout_of
from hypothesis import given, settings
from hypothesis import strategies as st
from shared import examples, refused

from eventlog.errors import FormatError, NotExpressible
from eventlog.gbase.layout import parse_type
from eventlog.gbase.packed import (
    datetime_reader,
    decimal_reader,
    decimal_width,
    decimal_writer,
    fields_of,
    pack_fields,
    parse_qualifier,
    unpack_digits,
    unpack_fields,
    value_of_fields,
)
from eventlog.gbase.records import ColumnError
from eventlog.gbase.values import codec
from eventlog.model import Lob, Value


def read(spelled: str, slot: str, **options: Any) -> Value:
    layout = layout_of(f"c {spelled}", **options)
    data = bytes.fromhex(slot)
    return decoded(layout, data, (len(data),) if layout.columns[0].type.variable else ())["c"]


def written(spelled: str, value: Value, prefix: int = 2) -> str:
    null, write, _ = codec(parse_type(spelled, "c"), "utf-8", prefix)
    return (null if value is None else write(value)).hex().upper()


# --- one value ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spelled", "slot", "value"),
    [
        ("smallint", "7FFF", 32767),
        ("int", "FFFFFFFF", -1),
        ("INTEGER", "80000001", -2147483647),
        ("serial(100)", "00000064", 100),
        ("bigserial", "0000000000000003", 3),
        ("serial8", "0001FFFFFFFF7FFFFFFF", 2**63 - 1),
        ("double precision", "3FF8000000000000", 1.5),
        ("real", "3FC00000", 1.5),
        ("date", "0000B2AA", date(2025, 3, 23)),
        ("decimal", "C14D201E000000000000", Decimal("77.323")),
        ("dec(16)", "C21E0000000000000000", Decimal("3000")),
        ("numeric(4,2)", "3E2B16", Decimal("-56.78")),
        ("money", "C1384E000000000000", Decimal("56.78")),
        ("money(4)", "C1384E", Decimal("56.78")),
        ("decimal(4,2)", "7F0000", Decimal("0.00")),
        ("decimal(4,2)", "C1384E", Decimal("56.78")),
        ("decimal(4,0)", "C1384E", Decimal("56.78")),
        ("decimal(16,255)", "C14D201E000000000000", Decimal("77.323")),
        ("datetime year to day", "C41418031B", date(2024, 3, 27)),
        ("datetime year to hour", "C51418031B0C", datetime(2024, 3, 27, 12)),
        ("datetime year to "
"fraction", "C71418031B0C22380A32", datetime(2024, 3, 27, 12, 34, 56, 105000)),
        ("datetime year to second", "0000000000000000", None),
        ("datetime year to second", "0014C7031B0C2238", None),
        ("datetime hour to minute", "C20C22", time(12, 34)),
        ("datetime hour to second", "80000000", time(0)),
        ("datetime year to month", "C3141803", "2024-03"),
        ("datetime month to day", "C2031B", "03-27"),
        ("datetime month to minute", "C4031B0C22", "03-27 12:34"),
        ("datetime day to hour", "C21B0C", "27 12"),
        ("datetime minute to second", "C22238", "34:56"),
        ("datetime second to fraction(2)", "C1384E", "56.78"),
        ("datetime fraction to fraction(4)", "C00C22", ".1234"),
        ("datetime fraction to fraction(4)", "BF2200", ".0034"),
        ("interval day(3) to second", "3A624C5F5E5E", "-123 04:05:06"),
        ("interval year to month", "3D5E6100", "-5-03"),
        ("interval year to month", "C2050300", "5-03"),
        ("interval second(5) to fraction(2)", "C301020304", "10203.04"),
        ("interval minute to minute", "C105", "5"),
        ("char", "41", "A"),
        ("nchar(3)", "412020", "A"),
        ("char(3)", "202020", ""),
        ("boolean", "0000", False),
        ("boolean", "0100", None),
        ("nvarchar(5)", "000141", "A"),
        ("lvarchar", "00020041", "A"),
        ("blob", "00000000" + "00" * 72, None),
        ("clob", "00" * 75 + "01", Lob(bytes(75) + b"\x01")),
    ],
)  # fmt: skip
def test_value_is_read(spelled: str, slot: str, value: Value) -> None:
    found = read(spelled, slot)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("spelled", "slot", "error"),
    [
        ("int8", "00020000000000000000", "bad_value"),
        ("boolean", "0002", "bad_value"),
        ("boolean", "0200", "bad_value"),
        ("date", "7FFFFFFF", "bad_value"),
        ("lvarchar(5)", "000102", "bad_value"),
        ("decimal(4,2)", "C16400", "bad_decimal"),
        ("decimal(4,2)", "3E6416", "bad_decimal"),
        ("decimal(4,2)", "3E2B64", "bad_decimal"),
        ("decimal(4,2)", "800001", "bad_decimal"),
        ("datetime year to second", "C7141803640C2238", "bad_decimal"),
        ("datetime year to second", "384EC70602003B00", "bad_decimal"),
        ("datetime year to second", "C71418031B182238", "bad_datetime"),
        ("datetime year to second", "8000000000000000", "bad_datetime"),
        ("datetime year to day", "C41417021D", "bad_datetime"),
        ("datetime month to day", "C2021E", "bad_datetime"),
        ("datetime hour to second", "3C57412C", "bad_datetime"),
        ("datetime year to fraction", "C71418031B0C22380A05", "bad_datetime"),
        ("datetime fraction to fraction(3)", "C00C22", "bad_datetime"),
        ("interval day to second", "C401180000", "bad_datetime"),
        ("varchar(5)", "0341", "size_array"),
        ("varchar(5)", "0003" + "4141", "size_array"),
        ("lvarchar(5)", "00030041", "size_array"),
        ("char(2)", "FF41", "decode"),
        ("varchar(5)", "0002FF41", "decode"),
    ],
)
def test_value_that_is_none_names_its_place(spelled: str, slot: str, error: str) -> None:
    with refused(error) as caught:
        read(spelled, slot)
    assert (caught.value.table, caught.value.sequence, caught.value.column) == (
        "app.item",
        5,
        "app.item.c",
    )


def _outcome(read: Callable[[], Value]) -> tuple[str, str, Value]:
    """What reading gives: the value, as the type and text that make ``1.50`` differ from ``1.5``,
    or the error.
    """
    try:
        value = read()
    except FormatError as error:
        return type(error).__name__, str(error), None
    return type(value).__name__, str(value), value


_FIRST_BYTES = st.sampled_from(
    [0x00, 0x3F, 0x38, 0x40, 0x7F, 0x80, 0xBF, *range(0xC0, 0xC9)]
) | st.integers(0, 255)
_OTHER_BYTES = (
    st.integers(0, 60) | st.sampled_from([0, 0, 99, 100, 0xC7, 0xFF]) | st.integers(0, 255)
)


@st.composite
def _packed(draw: st.DrawFn, width: int, like: bytes) -> bytes:
    """Bytes of a packed number: any, or those of a good one with a few changed or two exchanged."""
    if draw(st.booleans()):
        return bytes(
            [
                draw(_FIRST_BYTES),
                *draw(st.lists(_OTHER_BYTES, min_size=width - 1, max_size=width - 1)),
            ]
        )
    raw = bytearray(like)
    for _ in range(draw(st.integers(0, 3))):
        raw[draw(st.integers(0, width - 1))] = draw(_FIRST_BYTES | _OTHER_BYTES)
    one, other = draw(st.integers(0, width - 1)), draw(st.integers(0, width - 1))
    raw[one], raw[other] = raw[other], raw[one]
    return bytes(raw)


@settings(max_examples=examples(1000))
@given(st.data(), st.sampled_from(["second", *(f"fraction({digits})" for digits in range(1, 6))]))
def test_common_datetimes_are_read_as_all_others(data: st.DataObject, last: str) -> None:
    qualifier = parse_qualifier(f"year to {last}", interval=False)
    assert qualifier is not None
    like = pack_fields(fields_of(datetime(2024, 3, 27, 12, 34, 56, 987650), qualifier), qualifier)
    raw = data.draw(_packed(qualifier.width, like))

    def one_by_one() -> Value:
        fields = unpack_fields(raw, qualifier, lambda: None)
        return None if fields is None else value_of_fields(fields, qualifier)

    assert _outcome(lambda: datetime_reader(qualifier, lambda: None)(raw)) == _outcome(one_by_one)


@settings(max_examples=examples(1000))
@given(st.data(), st.integers(1, 12), st.integers(0, 12))
def test_common_decimals_are_read_as_all_others(
    data: st.DataObject, precision: int, scale: int
) -> None:
    scale = min(scale, precision)
    width = decimal_width(precision, scale)
    like = decimal_writer(precision, scale)(Decimal("1234567890123"[:precision]).scaleb(-scale))
    raw = data.draw(_packed(width, like))

    def one_by_one() -> Value:
        number = unpack_digits(raw)
        if number is None:
            return None
        negative, exponent, digits = number
        value = Decimal(f"{'-' if negative else ''}{digits or '0'}").scaleb(
            2 * exponent - len(digits)
        )
        shown = max(scale, -int(value.normalize().as_tuple().exponent))
        return value.quantize(Decimal(1).scaleb(-shown))

    with localcontext(prec=400):
        assert _outcome(lambda: decimal_reader(precision, scale)(raw)) == _outcome(one_by_one)


@pytest.mark.promise(
    "option gbase.reader.decimal_no_scale",
    "option gbase.reader.charset_errors",
    "option gbase.reader.char_trim",
    "option gbase.reader.varchar_prefix",
)
def test_options_shape_values() -> None:
    assert read("char(4)", "41202020", char_trim=False) == "A   "
    assert read("decimal(4)", "C15000", decimal_no_scale="zero") == Decimal(80)
    assert read("char(2)", "FF41", charset_errors="replace") == "\ufffdA"
    assert read("varchar(5)", "0002D6D0", charset="gb18030") == "中"
    with refused("size_array"):
        read("varchar(5)", "000141", varchar_prefix=1)
    with refused("size_array"):
        read("varchar(5)", "0141", varchar_prefix=2)


def test_a_lenient_datetime_is_counted() -> None:
    counters: Counter[str] = Counter()
    layout = layout_of("c datetime hour to second", counters)
    assert decoded(layout, bytes.fromhex("C50C2238"))["c"] == time(12, 34, 56)
    assert counters == {"datetime_lenient": 1}


@pytest.mark.parametrize(
    ("spelled", "value", "slot"),
    [
        ("integer", "15", "0000000F"),
        ("integer", Decimal("15.0"), "0000000F"),
        ("decimal(10,2)", "10.89", "C10A59000000"),
        ("decimal(10,2)", 10, "C10A00000000"),
        ("decimal(4,2)", 0.05, "C00500"),
        ("decimal(4,2)", Decimal("-0.00"), "800000"),
        ("decimal(4,2)", Decimal("1.500"), "C10132"),
        ("float", 1, "3FF0000000000000"),
        ("float", struct.unpack(">d", b"\xff" * 8)[0], "7FF8000000000000"),
        ("date", datetime(2025, 3, 23), "0000B2AA"),
        ("date", "2025-03-23", "0000B2AA"),
        ("boolean", "true", "0001"),
        ("datetime year to second", "2024-03-27T12:34:56", "C71418031B0C2238"),
        ("datetime year to second", datetime(2024, 3, 27, 12, 34, 56, 999999), "C71418031B0C2238"),
        ("datetime year to second", date(2024, 3, 27), "C71418031B000000"),
        ("datetime year to "
"second", datetime(2024, 3, 27, 14, 34, 56, tzinfo=timezone(timedelta(hours=2))),
         "C71418031B0C2238"),
        ("datetime year to "
"fraction(5)", datetime(2023, 12, 20, 15, 20, 10, 987659, UTC), "C714170C140F140A624C32"),
        ("interval day(3) to second", "-123 04:05:06", "3A624C5F5E5E"),
        ("interval year to month", "-0-03", "3E610000"),
        ("char(3)", "A    ", "412020"),
    ],
)  # fmt: skip
def test_values_of_other_types_are_written(spelled: str, value: Value, slot: str) -> None:
    assert written(spelled, value) == slot


@pytest.mark.parametrize(
    ("spelled", "value"),
    [
        ("smallint", -32768),
        ("smallint", 32768),
        ("integer", -(2**31)),
        ("bigint", -(2**63)),
        ("int8", 2**63),
        ("integer", True),
        ("integer", Decimal("1.5")),
        ("integer", Decimal("1E+999999999")),
        ("integer", Decimal("NaN")),
        ("integer", Decimal("Infinity")),
        ("decimal(4,2)", Decimal("100")),
        ("decimal(4,2)", Decimal("0.001")),
        ("decimal(32)", Decimal("1" * 33)),
        ("decimal(16)", Decimal("1E+126")),
        ("decimal(16)", Decimal("NaN")),
        ("smallfloat", 1e300),
        ("float", Decimal("0.1234567890123456789")),
        ("date", datetime(2025, 3, 23, 1)),
        ("char(2)", "abc"),
        ("char(2)", "\0a"),
        ("varchar(2)", "\0"),
        ("varchar(2)", "abc"),
        ("varchar(2)", "数"),
        ("lvarchar(2)", "abc"),
        ("varchar(9)", 5),
        ("datetime hour to second", datetime(2024, 1, 1)),
        ("datetime year to second", time(1)),
        ("datetime year to second", "2024-13-01 00:00:00"),
        ("interval day(3) to second", "1234 00:00:00"),
        ("boolean", 1),
    ],
)
def test_value_out_of_range_is_refused(spelled: str, value: Value) -> None:
    with refused("value_range"):
        written(spelled, value)


@pytest.mark.parametrize("value", [b"ab", Lob(b"ab"), ("a", "b")])
@pytest.mark.parametrize(
    "spelled", ["varchar(9)", "integer", "datetime year to second", "decimal(5)", "blob"]
)
def test_bytes_and_several_values_cannot_be_written(spelled: str, value: Value) -> None:
    with pytest.raises(NotExpressible):
        written(spelled, value)


@settings(max_examples=examples(300), deadline=None)
@given(
    st.integers(1, 32).flatmap(lambda p: st.tuples(st.just(p), st.none() | st.integers(0, p))),
    st.data(),
)
def test_every_decimal_that_fits_reads_back(
    declared: tuple[int, int | None], data: st.DataObject
) -> None:
    precision, scale = declared
    number = data.draw(st.integers(-(10**precision) + 1, 10**precision - 1))
    exponent = -scale if scale is not None else data.draw(st.integers(-60, 60))
    value = Decimal(f"{number}E{exponent}")
    spelled = f"decimal({precision},{255 if scale is None else scale})"
    found = read(spelled, written(spelled, value))
    assert found == value
    assert isinstance(found, Decimal)
    if scale is not None:
        assert found.as_tuple().exponent == -scale
    assert written(spelled, found) == written(spelled, value)


QUALIFIERS = [
    "datetime year to year",
    "datetime year to second",
    "datetime year to fraction(4)",
    "datetime hour to fraction(1)",
    "datetime year to minute",
    "datetime day to second",
    "interval year(9) to month",
    "interval year to year",
    "interval day(7) to fraction(5)",
    "interval hour(1) to second",
    "interval second to fraction(3)",
    "interval fraction to fraction(5)",
    "interval month(3) to month",
]


@settings(max_examples=examples(200), deadline=None)
@given(st.sampled_from(QUALIFIERS), st.binary(min_size=12, max_size=12))
def test_what_reads_as_a_datetime_or_interval_is_written_alike(spelled: str, raw: bytes) -> None:
    width = parse_type(spelled, "c").width
    first = 0xC0 + (raw[0] % 8) if raw[0] % 3 else 0x3F - (raw[0] % 8)
    slot = bytes([first]) + bytes(digit % 13 for digit in raw[1:width])
    try:
        value = read(spelled, slot.hex())
    except ColumnError:
        return
    assert read(spelled, written(spelled, value)) == value
