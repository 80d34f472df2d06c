"""Column values: how each type is read from its slot and written into it (spec/gbase-cdc.md 3.3)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Final, NamedTuple

from eventlog.errors import NotExpressible, ValueRange, shown
from eventlog.gbase.column_types import ColumnType, Kind
from eventlog.gbase.errors import BadValue, DecodeError, SizeArrayError
from eventlog.gbase.packed import cuts_off, datetime_reader, decimal_reader, decimal_writer, fields_of, pack_fields
from eventlog.model import Lob, Value


class TextOptions(NamedTuple):
    """How text is read and written: a Python codec, its error handler, and whether CHAR loses trailing blanks."""

    charset: str = "utf-8"
    errors: str = "strict"
    trim: bool = True


INTEGERS: Final = {
    Kind.SMALLINT: struct.Struct(">h"),
    Kind.INTEGER: struct.Struct(">i"),
    Kind.BIGINT: struct.Struct(">q"),
}
INT8: Final = struct.Struct(">hII")  # sign, low word, high word
FLOAT: Final = struct.Struct(">d")
SMALLFLOAT: Final = struct.Struct(">f")
NULL_FLOAT: Final = b"\xff" * FLOAT.size
NULL_SMALLFLOAT: Final = b"\xff" * SMALLFLOAT.size
DATE: Final = struct.Struct(">i")  # days since DAY_0
DAY_0: Final = date(1899, 12, 31).toordinal()
NULL_TEXT: Final = b"\0"  # the one byte of a VARCHAR
LOB_SIZE: Final = 76


def null_integer(form: struct.Struct) -> int:
    """The lowest number of a form, which is NULL."""
    return -(1 << 8 * form.size - 1)


NULL_DATE: Final = null_integer(DATE)


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


Writer = Callable[[Value], bytes]
"""Writes the slot of a value, None as NULL. Raises ValueRange, NotExpressible."""


def writer(type: ColumnType, text: TextOptions, prefix: int) -> Writer:
    """The writer of a type; ``prefix`` is the width of VARCHAR's length, 1 or 2."""
    match type.kind:
        case Kind.SMALLINT | Kind.INTEGER | Kind.BIGINT:
            return _integer_writer(INTEGERS[type.kind], type.spelled)
        case Kind.INT8:
            return _write_int8
        case Kind.FLOAT:
            return _write_float
        case Kind.SMALLFLOAT:
            return _write_smallfloat
        case Kind.DATE:
            return _write_date
        case Kind.BOOLEAN:
            return _write_boolean
        case Kind.DECIMAL:
            return _decimal_value_writer(type)
        case Kind.DATETIME:
            return _datetime_writer(type)
        case Kind.CHAR:
            return _char_writer(type, text)
        case Kind.VARCHAR:
            return _varchar_writer(type, text, prefix)
        case Kind.LVARCHAR:
            return _lvarchar_writer(type, text)
        case Kind.LOB:
            return _write_lob


def cut_off(type: ColumnType, value: Value) -> bool:
    """Whether writing loses a part of the value that the type cannot hold: the end of a fraction of a second."""
    return type.qualifier is not None and cuts_off(value, type.qualifier)


def _refused(value: Value, what: str) -> NotExpressible:
    match value:
        case bytes() | Lob():
            return NotExpressible(f"bytes cannot be written to a CDC stream, here as {what}; leave the column out")
        case tuple():
            return NotExpressible(f"several values of one attribute cannot be written as {what}")
        case _:
            return ValueRange(f"{shown(value if isinstance(value, str) else repr(value))} is no {what}")


def _integer(value: Value, what: str) -> int:
    try:
        if isinstance(value, str):
            return int(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        # Beyond 20 digits it fits no type, and int() of an exponent takes time and room.
        if isinstance(value, Decimal) and value.adjusted() < 20 and value == int(value):
            return int(value)
    except (ValueError, OverflowError, InvalidOperation):
        pass
    raise _refused(value, what)


def _integer_writer(form: struct.Struct, spelled: str) -> Writer:
    null = null_integer(form)

    def write(value: Value) -> bytes:
        number = null if value is None else _integer(value, spelled)
        if value is not None and not null < number < -null:
            raise ValueRange(f"{number} does not fit {spelled}, whose lowest value is NULL")
        return form.pack(number)

    return write


def _write_int8(value: Value) -> bytes:
    if value is None:
        return bytes(10)
    number = _integer(value, "int8")
    magnitude = abs(number)
    if magnitude >= 1 << 63:
        raise ValueRange(f"{number} does not fit int8, whose lowest value is NULL")
    return INT8.pack(-1 if number < 0 else 1, magnitude & 0xFFFFFFFF, magnitude >> 32)


def _number(value: Value, what: str) -> float:
    try:
        if isinstance(value, str):
            return float(value)
        if isinstance(value, float):
            return value
        if isinstance(value, int | Decimal) and not isinstance(value, bool):
            number = float(value)
            if Decimal(repr(number)) == value:
                return number
    except (ValueError, OverflowError):
        pass
    raise _refused(value, what)


def _write_float(value: Value) -> bytes:
    if value is None:
        return NULL_FLOAT
    number = _number(value, "float")
    # Of the NaNs, one is NULL: they are all written as the plain one.
    return FLOAT.pack(number if number == number else float("nan"))


def _write_smallfloat(value: Value) -> bytes:
    if value is None:
        return NULL_SMALLFLOAT
    number = _number(value, "smallfloat")
    try:
        return SMALLFLOAT.pack(number if number == number else float("nan"))
    except OverflowError:
        raise ValueRange(f"{number} does not fit smallfloat") from None


def _write_date(value: Value) -> bytes:
    if value is None:
        return DATE.pack(NULL_DATE)
    day = value
    if isinstance(value, str):
        try:
            day = datetime.fromisoformat(value.strip())
        except ValueError:
            raise _refused(value, "date") from None
    if isinstance(day, datetime):
        if day.time() != time():
            raise ValueRange(f"{day.isoformat()} has a time of day, which date does not hold")
        day = day.date()
    if not isinstance(day, date):
        raise _refused(value, "date")
    return DATE.pack(day.toordinal() - DAY_0)


_BOOLEAN_TEXTS: Final = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


def _write_boolean(value: Value) -> bytes:
    if value is None:
        return b"\1\0"
    known = _BOOLEAN_TEXTS.get(value.lower()) if isinstance(value, str) else value
    if not isinstance(known, bool):
        raise _refused(value, "boolean")
    return b"\0\1" if known else b"\0\0"


def _decimal_value_writer(type: ColumnType) -> Writer:
    assert type.size is not None
    write_decimal = decimal_writer(type.size, type.scale)
    null = bytes(type.width)

    def write(value: Value) -> bytes:
        if value is None:
            return null
        number = value
        if isinstance(value, str | int) and not isinstance(value, bool):
            try:
                number = Decimal(value)
            except InvalidOperation:
                raise _refused(value, type.spelled) from None
        elif isinstance(value, float):
            number = Decimal(repr(value))
        if not isinstance(number, Decimal):
            raise _refused(value, type.spelled)
        return write_decimal(number)

    return write


def _datetime_writer(type: ColumnType) -> Writer:
    qualifier = type.qualifier
    assert qualifier is not None
    null = bytes(type.width)

    def write(value: Value) -> bytes:
        if value is None:
            return null
        if isinstance(value, bytes | Lob | tuple):
            raise _refused(value, type.spelled)
        return pack_fields(fields_of(value, qualifier), qualifier)

    return write


def _encoded(value: Value, text: TextOptions, spelled: str) -> bytes:
    if not isinstance(value, str):
        raise _refused(value, spelled)
    try:
        raw = value.encode(text.charset)
    except UnicodeError as error:
        raise ValueRange(f"{shown(value)} cannot be written in {text.charset}: {error}") from None
    return raw


def _too_long(value: Value, raw: bytes, spelled: str) -> ValueRange:
    return ValueRange(f"{shown(str(value))} takes {len(raw)} bytes, too many for {spelled}")


def _char_writer(type: ColumnType, text: TextOptions) -> Writer:
    def write(value: Value) -> bytes:
        if value is None:
            return bytes(type.width)
        raw = _encoded(value, text, type.spelled)
        if len(raw) > type.width:
            raw = _encoded(str(value).rstrip(" "), text, type.spelled)
        if len(raw) > type.width:
            raise _too_long(value, raw, type.spelled)
        if raw[:1] == b"\0":
            raise ValueRange(f"{shown(str(value))} begins with U+0000, which reads as NULL in {type.spelled}")
        return raw.ljust(type.width)

    return write


def _varchar_writer(type: ColumnType, text: TextOptions, prefix: int) -> Writer:
    longest = min(type.size or 0xFFFF, 0xFF if prefix == 1 else 0xFFFF)

    def write(value: Value) -> bytes:
        raw = NULL_TEXT if value is None else _encoded(value, text, type.spelled)
        if len(raw) > longest:
            raise _too_long(value, raw, type.spelled)
        if value is not None and raw == NULL_TEXT:
            raise ValueRange(f"a lone U+0000 reads as NULL in {type.spelled}")
        return len(raw).to_bytes(prefix, "big") + raw

    return write


def _lvarchar_writer(type: ColumnType, text: TextOptions) -> Writer:
    longest = min(type.size or 0xFFFE, 0xFFFE)

    def write(value: Value) -> bytes:
        if value is None:
            return b"\0\1\1"
        raw = _encoded(value, text, type.spelled)
        if len(raw) > longest:
            raise _too_long(value, raw, type.spelled)
        return (len(raw) + 1).to_bytes(2, "big") + b"\0" + raw

    return write


def _write_lob(value: Value) -> bytes:
    if value is None:
        return bytes(LOB_SIZE)
    if not isinstance(value, Lob) or len(value.data) != LOB_SIZE:
        raise _refused(value, "large object")
    return value.data
