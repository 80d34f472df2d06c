"""Column values: how each type is read from its slot (spec/gbase-cdc.md 3.3)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Final, NamedTuple

from eventlog.gbase.column_types import ColumnType, Kind
from eventlog.gbase.datetimes import datetime_reader
from eventlog.gbase.decimals import decimal_reader
from eventlog.gbase.encodings import (
    DAY_0,
    FLOAT,
    INT8,
    INTEGERS,
    LOB_SIZE,
    NULL_DATE,
    NULL_FLOAT,
    NULL_SMALLFLOAT,
    NULL_TEXT,
    SMALLFLOAT,
    TextOptions,
    null_integer,
)
from eventlog.gbase.errors import BadValue, DecodeError, SizeArrayError
from eventlog.model import Lob, Value

_LOCATOR: Final = 4  # where the locator of a large object begins


class FixedReader(NamedTuple):
    """A column of fixed length: its ``struct`` code, the number that is NULL (integers), and what makes its value."""

    code: str
    null: int | None = None
    convert: Callable[..., Value] | None = None


VariableReader = Callable[[bytes, int, int], Value]
"""Reads the slot of a variable column: record, where the slot begins, where it ends."""


def fixed_reader(type: ColumnType, text: TextOptions, on_lenient: Callable[[], None]) -> FixedReader:
    """The reader of a fixed type. ``on_lenient`` is called for DATETIMEs that were read leniently."""
    match type.kind:
        case Kind.SMALLINT | Kind.INTEGER | Kind.BIGINT:
            form = INTEGERS[type.kind]
            return FixedReader(form.format[1:], null_integer(form))
        case Kind.INT8:
            return FixedReader("10s", convert=_read_int8)
        case Kind.FLOAT:
            return FixedReader("8s", convert=_read_float)
        case Kind.SMALLFLOAT:
            return FixedReader("4s", convert=_read_smallfloat)
        case Kind.DATE:
            return FixedReader("i", convert=_read_date)
        case Kind.BOOLEAN:
            return FixedReader("H", convert=_read_boolean)
        case Kind.DECIMAL:
            assert type.size is not None
            return FixedReader(f"{type.width}s", convert=decimal_reader(type.size, type.scale))
        case Kind.DATETIME:
            assert type.qualifier is not None
            return FixedReader(f"{type.width}s", convert=datetime_reader(type.qualifier, on_lenient))
        case Kind.CHAR:
            return FixedReader(f"{type.width}s", convert=_char_reader(text))
        case _:
            return FixedReader(f"{LOB_SIZE}s", convert=_read_lob)


def variable_reader(type: ColumnType, text: TextOptions, prefix: int | None) -> VariableReader:
    """The reader of a variable type; ``prefix`` is the width of VARCHAR's length, None = found by the slot."""
    return _lvarchar_reader(text) if type.kind is Kind.LVARCHAR else _varchar_reader(text, prefix)


def _read_int8(raw: bytes) -> Value:
    sign, low, high = INT8.unpack(raw)
    if sign == 0:
        return None
    if sign not in (1, -1):
        raise BadValue(f"INT8 {raw.hex().upper()} has the sign {sign}; 1, 0 and -1 are known")
    return sign * (high << 32 | low)  # type: ignore[no-any-return]


def _read_float(raw: bytes) -> Value:
    return None if raw == NULL_FLOAT else FLOAT.unpack(raw)[0]


def _read_smallfloat(raw: bytes) -> Value:
    return None if raw == NULL_SMALLFLOAT else SMALLFLOAT.unpack(raw)[0]


class _Days(dict[int, Value]):
    """Dates by their day numbers: few days fill a stream, so each is made once; more than a few are not kept."""

    def __missing__(self, days: int) -> Value:
        if days == NULL_DATE:
            return None
        try:
            day = date.fromordinal(days + DAY_0)
        except (ValueError, OverflowError):
            raise BadValue(f"day number {days} lies outside the years 1 to 9999") from None
        if len(self) < _DAYS_KEPT:
            self[days] = day
        return day


class _Booleans(dict[int, Value]):
    """Values of BOOLEAN by null flag and value as one number; the value does not count beside the flag."""

    def __missing__(self, flags: int) -> Value:
        raise BadValue(f"BOOLEAN {flags:04X} has bytes other than 0 and 1")


_DAYS_KEPT: Final = 50_000
_read_date: Final = _Days().__getitem__
_read_boolean: Final = _Booleans({0x0000: False, 0x0001: True, 0x0100: None, 0x0101: None}).__getitem__


def _read_lob(raw: bytes) -> Value:
    return Lob(raw) if any(raw[_LOCATOR:]) else None


def _char_reader(text: TextOptions) -> Callable[[bytes], Value]:
    charset, errors, trim = text

    def read(raw: bytes) -> Value:
        if raw[0] == 0:
            return None
        try:
            value = raw.decode(charset, errors)
        except UnicodeError as error:
            raise _undecodable(raw, error) from None
        return value.rstrip(" ") if trim else value

    return read


def _varchar_reader(text: TextOptions, prefix: int | None) -> VariableReader:
    charset, errors, _ = text
    one, two = prefix in (None, 1), prefix in (None, 2)
    null = NULL_TEXT

    def read(record: bytes, at: int, end: int) -> Value:
        size = end - at
        first = record[at]
        # By the slot's size, one width at most can be right (spec/gbase-cdc.md 3.3).
        if first == size - 1 and one:
            raw = record[at + 1 : end]
        elif two and size > 1 and first << 8 | record[at + 1] == size - 2:
            raw = record[at + 2 : end]
        else:
            raise _disagreeing(size, record[at : at + 2])
        if raw == null:
            return None
        try:
            return raw.decode(charset, errors)
        except UnicodeError as error:
            raise _undecodable(raw, error) from None

    return read


def _lvarchar_reader(text: TextOptions) -> VariableReader:
    charset, errors, _ = text

    def read(record: bytes, at: int, end: int) -> Value:
        size = end - at
        if size < 3 or record[at] << 8 | record[at + 1] != size - 2:
            raise _disagreeing(size, record[at : at + 2])
        if record[at + 2]:
            if record[at + 2] == 1:
                return None
            raise BadValue(f"LVARCHAR has the null flag {record[at + 2]}; 0 and 1 are known")
        raw = record[at + 3 : end]
        try:
            return raw.decode(charset, errors)
        except UnicodeError as error:
            raise _undecodable(raw, error) from None

    return read


def _disagreeing(size: int, prefix: bytes) -> SizeArrayError:
    return SizeArrayError(f"the size array says {size} bytes, its length prefix is {prefix.hex().upper()}")


def _undecodable(raw: bytes, error: UnicodeError) -> DecodeError:
    return DecodeError(f"{raw[:32].hex().upper()} is not of the charset ({error}); set the option charset")
