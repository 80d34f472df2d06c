"""Column values: for each kind of column, the functions that read and write its slot
(formats/gbase-cdc.md 3.3, spec/change-model.md 5.1).

Each reader is a hot path. ``codec`` decides once for a column and returns closures without further
choices; an integer has no reader, and dates and booleans come from dictionaries. The price: a rule
that two kinds of columns share (the charset, the length prefix) is repeated in the closures of
both.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Final, NamedTuple

from eventlog.core.values.typed_values import whole_number
from eventlog.errors import NotExpressible, shown
from eventlog.gbase.packed import (
    Qualifier,
    datetime_reader,
    decimal_reader,
    decimal_width,
    decimal_writer,
    fields_of,
    pack_fields,
)
from eventlog.gbase.records import ColumnError
from eventlog.model import Lob, Names, Value


class Encoding(Enum):
    """The encodings of formats/gbase-cdc.md 3.3: type names, the ``struct`` code of a fixed slot
    (None if the type has a size), and the greatest number of parameters.

    A start value of SERIAL and a precision of FLOAT are ignored.
    """

    SMALLINT = ("smallint",), "h", 0
    INTEGER = ("integer", "int", "serial"), "i", 0
    BIGINT = ("bigint", "bigserial"), "q", 0
    INT8 = ("int8", "serial8"), "10s", 0
    FLOAT = ("float", "double precision"), "8s", 1
    SMALLFLOAT = ("smallfloat", "real"), "4s", 0
    DATE = ("date",), "i", 0
    DECIMAL = ("decimal", "dec", "numeric", "money"), None, 2
    DATETIME = ("datetime", "interval"), None, 0
    CHAR = ("char", "nchar"), None, 1
    BOOLEAN = ("boolean",), "H", 0
    VARCHAR = ("varchar", "nvarchar"), None, 2
    LVARCHAR = ("lvarchar",), None, 1
    LOB = ("blob", "clob"), "76s", 0

    def __init__(self, names: Names, slot: str | None, parameters: int) -> None:
        self.names = names
        self.slot = slot
        self.parameters = parameters


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A column type."""

    kind: Encoding
    spelled: str
    """The type as TABSCHEM spells it."""
    size: int | None = None
    """The number of bytes of CHAR, the greatest number of bytes of VARCHAR and LVARCHAR (None = not
    given), or the number of digits of DECIMAL.
    """
    scale: int | None = None
    """The scale of DECIMAL, None = floating."""
    qualifier: Qualifier | None = None

    @property
    def variable(self) -> bool:
        """True if the values have a length prefix and an entry in the size array."""
        return self.kind in (Encoding.VARCHAR, Encoding.LVARCHAR)

    @property
    def slot(self) -> str:
        """The ``struct`` code of a fixed type's slot."""
        if self.qualifier is not None:
            return f"{self.qualifier.width}s"
        size = self.size or 0
        if self.kind is Encoding.DECIMAL:
            size = decimal_width(size, self.scale)
        return self.kind.slot or f"{size}s"

    @property
    def width(self) -> int:
        """The number of bytes of a value of a fixed type."""
        return struct.calcsize(f">{self.slot}")


class Codec(NamedTuple):
    """The functions that read and write a column's slots."""

    null: bytes
    """The bytes of a slot that contains NULL."""
    write: Callable[[Value], bytes]
    """A function that returns the slot of a value other than None. The function raises
    NotExpressible.
    """
    read: Callable[..., Value] | None
    """A function that returns the value of a slot. The function raises ColumnError.

    For a fixed slot, its argument is what ``struct`` unpacks. The field is None for an integer,
    since the unpacked number is the value itself unless it means NULL. For a variable slot, its
    arguments are the record, and the begin and end of the slot.
    """


def codec(
    type: ColumnType,
    charset: str = "utf-8",
    varchar_prefix: int | None = None,
    charset_errors: str = "strict",
    char_trim: bool = True,
    on_lenient: Callable[[], None] = lambda: None,
) -> Codec:
    """Return the codec of a type.

    ``varchar_prefix`` is the number of bytes that hold the length of a VARCHAR. None = a slot that
    is read shows this number, and 2 bytes are written. ``charset_errors`` is the error handler of
    Python's codecs. With ``char_trim``, a CHAR loses its trailing blanks. ``on_lenient`` is called
    for each DATETIME that was read leniently.
    """
    match type.kind:
        case Encoding.SMALLINT | Encoding.INTEGER | Encoding.BIGINT:
            return _integer_codec(struct.Struct(f">{type.slot}"), type.spelled)
        case Encoding.INT8:
            return Codec(bytes(10), _write_int8, _read_int8)
        case Encoding.FLOAT | Encoding.SMALLFLOAT:
            return _float_codec(
                struct.Struct(">d" if type.kind is Encoding.FLOAT else ">f"), type.spelled
            )
        case Encoding.DATE:
            return Codec(_DATE.pack(_NULL_DATE), _write_date, _read_date)
        case Encoding.BOOLEAN:
            return Codec(b"\1\0", _write_boolean, _read_boolean)
        case Encoding.DECIMAL:
            return _decimal_codec(type)
        case Encoding.DATETIME:
            return _datetime_codec(type, on_lenient)
        case Encoding.CHAR:
            return _char_codec(type, charset, charset_errors, char_trim)
        case Encoding.VARCHAR:
            return _varchar_codec(type, charset, charset_errors, varchar_prefix)
        case Encoding.LVARCHAR:
            return _lvarchar_codec(type, charset, charset_errors)
        case Encoding.LOB:
            return Codec(bytes(type.width), _refuse_lob, _read_lob)


def _refused(value: Value, what: str) -> NotExpressible:
    match value:
        case bytes() | Lob():
            return NotExpressible(
                f"bytes cannot be written to a CDC stream; remove the column (its type is {what})"
            )
        case tuple():
            return NotExpressible(f"several values of one attribute cannot be written as {what}")
        case _:
            return NotExpressible(
                f"{shown(value if isinstance(value, str) else repr(value))} is not {what}",
                code="value_range",
            )


# --- numbers --------------------------------------------------------------------------------------


def _integer_codec(structure: struct.Struct, spelled: str) -> Codec:
    null = -(1 << 8 * structure.size - 1)

    def write(value: Value) -> bytes:
        number = _integer(value, spelled)
        if not null < number < -null:
            raise NotExpressible(
                f"{number} does not fit {spelled}, which reserves its lowest value for NULL",
                code="value_range",
            )
        return structure.pack(number)

    return Codec(structure.pack(null), write, None)


def _integer(value: Value, what: str) -> int:
    try:
        if isinstance(value, str):
            return int(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    except ValueError:
        pass
    number = whole_number(value) if isinstance(value, Decimal) else None
    if number is None:
        raise _refused(value, what)
    return number


_INT8: Final = struct.Struct(">hII")  # sign, low word, high word


def _read_int8(raw: bytes) -> Value:
    sign, low, high = _INT8.unpack(raw)
    if sign == 0:
        return None
    if sign not in (1, -1):
        raise ColumnError(
            f"INT8 {raw.hex().upper()} has the sign {sign}; expected 1, 0 or -1", code="bad_value"
        )
    return sign * (high << 32 | low)  # type: ignore[no-any-return]


def _write_int8(value: Value) -> bytes:
    number = _integer(value, "int8")
    magnitude = abs(number)
    if magnitude >= 1 << 63:
        raise NotExpressible(
            f"{number} does not fit int8, whose lowest value is NULL", code="value_range"
        )
    return _INT8.pack(-1 if number < 0 else 1, magnitude & 0xFFFFFFFF, magnitude >> 32)


def _float_codec(structure: struct.Struct, name: str) -> Codec:
    null, unpack = b"\xff" * structure.size, structure.unpack

    def read(raw: bytes) -> Value:
        return None if raw == null else unpack(raw)[0]

    def write(value: Value) -> bytes:
        number = _float(value, name)
        try:
            # One of the NaNs means NULL, so every NaN is written as the plain NaN.
            return structure.pack(number if number == number else float("nan"))
        except OverflowError:
            raise NotExpressible(f"{number} does not fit {name}", code="value_range") from None

    return Codec(null, write, read)


def _float(value: Value, what: str) -> float:
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


def _decimal_codec(type: ColumnType) -> Codec:
    assert type.size is not None
    write_decimal = decimal_writer(type.size, type.scale)

    def write(value: Value) -> bytes:
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

    return Codec(bytes(type.width), write, decimal_reader(type.size, type.scale))


# --- booleans and times ---------------------------------------------------------------------------


class _Booleans(dict[int, Value]):
    """The values of BOOLEAN. A key combines the null flag and the value in one number. If the null
    flag is set, the value is ignored.
    """

    def __missing__(self, flags: int) -> Value:
        raise ColumnError(f"BOOLEAN {flags:04X} has bytes other than 0 and 1", code="bad_value")


_read_boolean: Final = _Booleans(
    {0x0000: False, 0x0001: True, 0x0100: None, 0x0101: None}
).__getitem__
_BOOLEAN_TEXTS: Final = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


def _write_boolean(value: Value) -> bytes:
    known = _BOOLEAN_TEXTS.get(value.lower()) if isinstance(value, str) else value
    if not isinstance(known, bool):
        raise _refused(value, "boolean")
    return b"\0\1" if known else b"\0\0"


_DATE: Final = struct.Struct(">i")  # days since _DAY_0
_DAY_0: Final = date(1899, 12, 31).toordinal()
_NULL_DATE: Final = -(1 << 31)
_DAYS_KEPT: Final = 50_000


class _Days(dict[int, Value]):
    """The dates by their day numbers. A stream has few different days, so each date is made only
    once. The number of dates that are kept is limited.
    """

    def __missing__(self, days: int) -> Value:
        if days == _NULL_DATE:
            return None
        try:
            day = date.fromordinal(days + _DAY_0)
        except (ValueError, OverflowError):
            raise ColumnError(
                f"day number {days} lies outside the years 1 to 9999", code="bad_value"
            ) from None
        if len(self) < _DAYS_KEPT:
            self[days] = day
        return day


_read_date: Final = _Days().__getitem__


def _write_date(value: Value) -> bytes:
    day = value
    if isinstance(value, str):
        try:
            day = datetime.fromisoformat(value.strip())
        except ValueError:
            raise _refused(value, "date") from None
    if isinstance(day, datetime):
        if day.time() != time():
            raise NotExpressible(
                f"{day.isoformat()} has a time of day, which a date cannot hold", code="value_range"
            )
        day = day.date()
    if not isinstance(day, date):
        raise _refused(value, "date")
    return _DATE.pack(day.toordinal() - _DAY_0)


def _datetime_codec(type: ColumnType, on_lenient: Callable[[], None]) -> Codec:
    qualifier = type.qualifier
    assert qualifier is not None

    def write(value: Value) -> bytes:
        if isinstance(value, bytes | Lob | tuple):
            raise _refused(value, type.spelled)
        return pack_fields(fields_of(value, qualifier), qualifier)

    return Codec(bytes(type.width), write, datetime_reader(qualifier, on_lenient))


# --- text and large objects -----------------------------------------------------------------------

_NULL_TEXT: Final = b"\0"  # the only byte of a NULL VARCHAR


def _char_codec(type: ColumnType, charset: str, errors: str, trim: bool) -> Codec:
    width = type.width

    def read(raw: bytes) -> Value:
        if raw[0] == 0:
            return None
        try:
            value = raw.decode(charset, errors)
        except UnicodeError as error:
            raise _undecodable(raw, error) from None
        return value.rstrip(" ") if trim else value

    def write(value: Value) -> bytes:
        raw = _encoded(value, charset, width, type.spelled, is_padded=True)
        if raw[:1] == b"\0":
            raise NotExpressible(
                f"{shown(value)} begins with U+0000, which would be read as NULL in {type.spelled}",
                code="value_range",
            )
        return raw.ljust(width)

    return Codec(bytes(width), write, read)


def _varchar_codec(type: ColumnType, charset: str, errors: str, prefix: int | None) -> Codec:
    one, two = prefix in (None, 1), prefix in (None, 2)
    null, size_bytes = _NULL_TEXT, prefix or 2
    longest = min(type.size or 0xFFFF, (1 << 8 * size_bytes) - 1)

    def read(record: bytes, at: int, end: int) -> Value:
        size = end - at
        first = record[at]
        # The slot's size fits at most one width of the prefix (formats/gbase-cdc.md 3.3).
        if first == size - 1 and one:
            raw = record[at + 1 : end]
        elif two and size > 1 and first << 8 | record[at + 1] == size - 2:
            raw = record[at + 2 : end]
        else:
            raise _sizes_disagree(size, record[at : at + 2])
        if raw == null:
            return None
        try:
            return raw.decode(charset, errors)
        except UnicodeError as error:
            raise _undecodable(raw, error) from None

    def write(value: Value) -> bytes:
        raw = _encoded(value, charset, longest, type.spelled)
        if raw == null:
            raise NotExpressible(
                f"a single U+0000 would be read as NULL in {type.spelled}", code="value_range"
            )
        return len(raw).to_bytes(size_bytes, "big") + raw

    return Codec(len(null).to_bytes(size_bytes, "big") + null, write, read)


def _lvarchar_codec(type: ColumnType, charset: str, errors: str) -> Codec:
    longest = min(type.size or 0xFFFE, 0xFFFE)

    def read(record: bytes, at: int, end: int) -> Value:
        size = end - at
        if size < 3 or record[at] << 8 | record[at + 1] != size - 2:
            raise _sizes_disagree(size, record[at : at + 2])
        if record[at + 2]:
            if record[at + 2] == 1:
                return None
            raise ColumnError(
                f"LVARCHAR null flag is {record[at + 2]}; expected 0 or 1", code="bad_value"
            )
        raw = record[at + 3 : end]
        try:
            return raw.decode(charset, errors)
        except UnicodeError as error:
            raise _undecodable(raw, error) from None

    def write(value: Value) -> bytes:
        raw = _encoded(value, charset, longest, type.spelled)
        return (len(raw) + 1).to_bytes(2, "big") + b"\0" + raw

    return Codec(b"\0\1\1", write, read)


def _sizes_disagree(size: int, prefix: bytes) -> ColumnError:
    return ColumnError(
        f"the size array gives {size} bytes, but the length prefix is {prefix.hex().upper()}",
        code="size_array",
    )


def _undecodable(raw: bytes, error: UnicodeError) -> ColumnError:
    return ColumnError(
        f"{raw[:32].hex().upper()} is not valid in the charset ({error}); set the option charset",
        code="decode",
    )


def _encoded(
    value: Value, charset: str, longest: int, spelled: str, *, is_padded: bool = False
) -> bytes:
    """Return the bytes of a text. Raises NotExpressible.

    With ``is_padded`` a text that is too long loses its trailing blanks first.
    """
    if not isinstance(value, str):
        raise _refused(value, spelled)
    try:
        raw = value.encode(charset)
        if is_padded and len(raw) > longest:
            raw = value.rstrip(" ").encode(charset)
    except UnicodeError as error:
        raise NotExpressible(
            f"{shown(value)} cannot be written in {charset}: {error}", code="value_range"
        ) from None
    if len(raw) > longest:
        raise NotExpressible(
            f"{shown(value)} takes {len(raw)} bytes, too many for {spelled}", code="value_range"
        )
    return raw


_LOCATOR: Final = 4  # offset of the locator in a large object


def _read_lob(raw: bytes) -> Value:
    return Lob(raw) if any(raw[_LOCATOR:]) else None


def _refuse_lob(value: Value) -> bytes:
    raise _refused(value, "large object")
