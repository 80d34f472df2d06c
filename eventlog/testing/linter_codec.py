"""The codec of our emulator's row images (formats/linter-queue.md 7).

The form of the image is invented. It is for tests and for users without a server. Readers and
writers of queues load the codec by its name, ``eventlog-emulator-1``.

An image is the slots of all columns in the order of ATRNUM. A slot begins with a null flag byte (00
value, 01 NULL). For a fixed type, LEN bytes follow; for NULL these bytes are zero, and decoding
ignores them. For a variable type (VARCHAR, VARBYTE, NVARCHAR), a big-endian u16 with the number of
bytes follows, and then the bytes.

- CHAR: text in ``charset``, padded with blanks, which decoding strips. LEN 1 to 4000.
- SMALLINT, INTEGER, BIGINT: two's complement, big-endian. LEN 2, 4, 8.
- REAL, DOUBLE: IEEE 754, big-endian. LEN 4, 8.
- DATE: 16 ASCII digits YYYYMMDDhhmmsscc, where cc are hundredths; finer digits are cut.
- DECIMAL: the value times 10^10 as a signed big-endian integer of 128 bits; decoding drops trailing
  zeros. It needs a decimal context of 40 digits, since Python's default of 28 rounds.
- BYTE: bytes, padded with zero bytes, which stay. LEN 1 to 4000.
- BLOB: a descriptor of LEN bytes, opaque.
- VARCHAR, VARBYTE: text, bytes. LEN is the greatest number of bytes, up to 4000.
- BOOLEAN: 0 or 1, big-endian. LEN 1 to 5.
- NCHAR, NVARCHAR: UTF-16 big-endian without surrogates; NCHAR is padded and stripped as CHAR is.
  LEN counts bytes, is even and up to 4000.

RowDecodeError names the column if a null flag or BOOLEAN is not 0 or 1, if DATE digits are no time,
if the length of an NVARCHAR is odd, if a length is above LEN, or if bytes are missing or left over.
RowEncodeError names the column if the value is too long or out of range, if the value has more than
10 fractional digits or a character above U+FFFF (NCHAR, NVARCHAR), if LEN does not fit the type, if
the type code is unknown, or if the row lacks the column. Except for padding, decoding returns the
value that was encoded.

Decoding is a hot path: ``EmulatorCodec`` prepares one ``struct`` for each run of fixed slots of a
table, so that a row takes few calls, and converts only the columns that need it. In return, an
error is first found in a run of slots, and ``decode`` reads the row a second time, slot by slot, to
name the column.
"""

from __future__ import annotations

import codecs
import struct
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from datetime import datetime
from decimal import Context, Decimal, InvalidOperation
from typing import Any, Final, NamedTuple

from eventlog.core.options import CHARSET
from eventlog.linter.codec import (
    EMULATOR_CODEC,
    LONGEST,
    RowDecodeError,
    RowEncodeError,
    Typ,
    bytes_of,
)
from eventlog.linter.dispatch_tables import ColumnAttrs, TableAttrs
from eventlog.model import Value

_VARIABLE: Final = frozenset({Typ.VARCHAR, Typ.VARBYTE, Typ.NVARCHAR})
_DECIMALS: Final = 10
_ONE: Final = 10**_DECIMALS
_CONTEXT: Final = Context(prec=40)

Convert = Callable[[Any], Any]


class EmulatorCodec:
    """The codec ``eventlog-emulator-1``; ``charset`` is the charset of CHAR and VARCHAR.

    Raises ConfigError.
    """

    name = EMULATOR_CODEC

    def __init__(self, charset: str = "utf-8") -> None:
        CHARSET.parse(charset)
        self._charset = codecs.lookup(charset).name
        self._segments: dict[TableAttrs, list[_Segment]] = {}
        self._writers: dict[TableAttrs, list[tuple[ColumnAttrs, bytes, Convert]]] = {}

    def decode(self, table: TableAttrs, image: bytes) -> dict[str, Value]:
        """Return the row of an image. Raises RowDecodeError with the first column that is wrong."""
        segments = self._segments.get(table)
        if segments is None:
            segments = self._segments[table] = [
                _segment(run, self._charset) for run in _runs(table.columns)
            ]
        try:
            return _decoded(segments, image)
        except RowDecodeError:
            # A segment may have several columns.
            # Decoding slot by slot finds the first one that is wrong.
            _decoded([_segment((column,), self._charset) for column in table.columns], image)
            raise

    def encode(self, table: TableAttrs, row: Mapping[str, Value]) -> bytes:
        """Return the image of a row. Raises RowEncodeError with the column."""
        writers = self._writers.get(table)
        if writers is None:
            writers = self._writers[table] = [
                _writer(column, self._charset) for column in table.columns
            ]
        slots = []
        for column, null, convert in writers:
            if column.name not in row:
                raise RowEncodeError(
                    f"column {column.name!r} is missing in the row. Give None for NULL", column.name
                )
            value = row[column.name]
            if value is None:
                slots.append(null)
                continue
            try:
                slots.append(convert(value))
            except (ValueError, OverflowError, struct.error, InvalidOperation) as error:
                raise RowEncodeError(
                    f"column {column.name!r} cannot hold {value!r:.60}: {error}", column.name
                ) from None
            except (TypeError, AttributeError):
                kind = type(value).__name__
                raise RowEncodeError(
                    f"column {column.name!r} of type code {column.typ} cannot hold a "
                    f"value of type {kind}",
                    column.name,
                ) from None
        return b"".join(slots)


# --- the types ------------------------------------------------------------------------------------


_LENGTHS: Final[Mapping[int, Container[int]]] = {
    Typ.CHAR: range(1, LONGEST + 1),
    Typ.INTEGER: (2, 4, 8),
    Typ.REAL: (4, 8),
    Typ.DATE: (16,),
    Typ.DECIMAL: (16,),
    Typ.BYTE: range(1, LONGEST + 1),
    Typ.BLOB: range(0x10000),
    Typ.VARCHAR: range(LONGEST + 1),
    Typ.VARBYTE: range(LONGEST + 1),
    Typ.BOOLEAN: range(1, 6),
    Typ.NCHAR: range(2, LONGEST + 1, 2),
    Typ.NVARCHAR: range(0, LONGEST + 1, 2),
}
"""The values of LEN that each type code allows."""


def _slot(
    column: ColumnAttrs, charset: str, refused: type[RowDecodeError | RowEncodeError]
) -> tuple[Convert | None, Convert]:
    """Return two functions for a column's slot. The first converts the raw value to the Python
    value (None if they are equal). The second converts the Python value to the raw value.

    The first function raises ValueError. The second function raises the errors that ``encode``
    handles. Raises ``refused`` for an unknown type code or LEN.
    """
    length, lengths = column.length, _LENGTHS.get(column.typ)
    if lengths is None:
        raise refused(f"column {column.name!r} has the unknown type code {column.typ}", column.name)
    if length not in lengths:
        raise refused(
            f"column {column.name!r} of type code {column.typ} cannot have LEN {length}",
            column.name,
        )
    match column.typ:
        case Typ.CHAR:
            return (
                lambda raw: raw.decode(charset).rstrip(" "),
                lambda value: _padded(value.encode(charset), length, b" "),
            )
        case Typ.VARCHAR:
            return lambda raw: raw.decode(charset), lambda value: value.encode(charset)
        case Typ.NCHAR:
            return (
                lambda raw: _utf16(raw).rstrip(" "),
                lambda value: _padded(_to_utf16(value), length, b"\0 "),
            )
        case Typ.NVARCHAR:
            return _utf16, _to_utf16
        case Typ.BYTE:
            return None, lambda value: _padded(bytes_of(value), length, b"\0")
        case Typ.VARBYTE:
            return None, bytes_of
        case Typ.BLOB:
            return None, lambda value: _exactly(bytes_of(value), length)
        case Typ.DATE:
            return _date, _to_date
        case Typ.DECIMAL:
            return _decimal, _to_decimal
        case Typ.BOOLEAN:
            return _boolean, lambda value: _to_boolean(value, length)
        case _:
            return None, struct.Struct(f">{_struct_format(column)}").pack


_STRUCT_FORMATS: Final = {
    (Typ.INTEGER, 2): "h",
    (Typ.INTEGER, 4): "i",
    (Typ.INTEGER, 8): "q",
    (Typ.REAL, 4): "f",
    (Typ.REAL, 8): "d",
}


def _struct_format(column: ColumnAttrs) -> str:
    if column.typ in _VARIABLE:
        return "H"
    return _STRUCT_FORMATS.get((column.typ, column.length), f"{column.length}s")


# --- decoding -------------------------------------------------------------------------------------


class _Segment(NamedTuple):
    """A run of fixed slots. If a variable slot follows, the segment includes its null flag and
    length.

    ``longest`` is the greatest length of the variable slot, None if there is no variable slot.
    """

    names: tuple[str, ...]
    unpack: Callable[[bytes, int], tuple[Any, ...]]
    size: int
    no_nulls: tuple[int, ...]
    longest: int | None
    conversions: tuple[tuple[str, Convert], ...]


def _decoded(segments: list[_Segment], image: bytes) -> dict[str, Value]:
    row: dict[str, Value] = {}
    offset, end = 0, len(image)
    for segment in segments:
        names, unpack, size, no_nulls, longest, conversions = segment
        try:
            slots = unpack(image, offset)
        except struct.error:
            missing = f"{offset + size - end} bytes of it are missing"
            raise _invalid_slot(names[-1], missing) from None
        offset += size
        flags, values = slots[::2], slots[1::2]
        if longest is not None:
            start, offset = offset, offset + values[-1]
            if values[-1] > longest:
                raise _invalid_slot(names[-1], f"its length {values[-1]} is more than {longest}")
            if offset > end:
                raise _invalid_slot(names[-1], f"{offset - end} bytes of it are missing")
            values = (*values[:-1], image[start:offset])
        if flags != no_nulls:
            values = _with_nulls(segment, flags, values)
        row.update(zip(names, values))  # noqa: B905 - as many by construction
        name = ""
        try:
            for name, convert in conversions:
                value = row[name]
                if value is not None:
                    row[name] = convert(value)
        except ValueError as error:
            raise _invalid_slot(name, str(error)) from None
    if offset != len(image):
        raise RowDecodeError(f"{len(image) - offset} bytes are left over after the last column")
    return row


def _runs(columns: Iterable[ColumnAttrs]) -> Iterator[tuple[ColumnAttrs, ...]]:
    """Yield the columns of each segment: a variable column ends a segment."""
    run: list[ColumnAttrs] = []
    for column in columns:
        run.append(column)
        if column.typ in _VARIABLE:
            yield tuple(run)
            run = []
    if run:
        yield tuple(run)


def _segment(columns: tuple[ColumnAttrs, ...], charset: str) -> _Segment:
    conversions = [(column.name, _slot(column, charset, RowDecodeError)[0]) for column in columns]
    last = columns[-1]
    structure = struct.Struct(">" + "".join("B" + _struct_format(column) for column in columns))
    return _Segment(
        tuple(column.name for column in columns),
        structure.unpack_from,
        structure.size,
        (0,) * len(columns),
        last.length if last.typ in _VARIABLE else None,
        tuple((name, convert) for name, convert in conversions if convert is not None),
    )


def _with_nulls(
    segment: _Segment, flags: tuple[int, ...], values: tuple[Any, ...]
) -> tuple[Any, ...]:
    for name, flag in zip(segment.names, flags, strict=True):
        if flag > 1:
            raise _invalid_slot(name, f"its null flag is {flag:02X}, neither 00 nor 01")
    if segment.longest is not None and flags[-1] and values[-1]:
        raise _invalid_slot(segment.names[-1], f"it is NULL with a length of {len(values[-1])}")
    return tuple([None if flag else value for flag, value in zip(flags, values, strict=True)])


def _invalid_slot(name: str, reason: str) -> RowDecodeError:
    return RowDecodeError(f"column {name!r}: {reason}", name)


def _utf16(raw: bytes) -> str:
    text = raw.decode("utf-16-be")
    if 2 * len(text) != len(raw):
        raise ValueError("it contains surrogates")
    return text


def _date(raw: bytes) -> datetime:
    if not raw.isdigit() or raw[8:10] > b"23":
        raise ValueError(f"{raw!r} is not a time YYYYMMDDhhmmsscc")
    text = raw.decode("ascii")
    return datetime.fromisoformat(f"{text[:8]}T{text[8:14]}.{text[14:]}")


def _decimal(raw: bytes) -> Decimal:
    number = int.from_bytes(raw, "big", signed=True)
    if number % _ONE == 0:
        return Decimal(number // _ONE)
    return Decimal(number).scaleb(-_DECIMALS, _CONTEXT).normalize(_CONTEXT)


def _boolean(raw: bytes) -> bool:
    number = int.from_bytes(raw, "big")
    if number > 1:
        raise ValueError(f"{number} is neither 0 nor 1")
    return bool(number)


# --- encoding -------------------------------------------------------------------------------------


def _writer(column: ColumnAttrs, charset: str) -> tuple[ColumnAttrs, bytes, Convert]:
    """Return the column, its slot for NULL, and the function that makes any other slot."""
    _, raw = _slot(column, charset, RowEncodeError)
    if column.typ in _VARIABLE:
        return column, b"\1\0\0", lambda value: _variable(raw(value), column.length)
    return column, b"\1" + bytes(column.length), lambda value: b"\0" + raw(value)


def _room(raw: bytes, longest: int) -> int:
    """Return the number of bytes that fit after these bytes. Raises ValueError if these are too
    many.
    """
    if len(raw) > longest:
        raise ValueError(f"it has {len(raw)} bytes, more than {longest}")
    return longest - len(raw)


def _variable(raw: bytes, longest: int) -> bytes:
    _room(raw, longest)
    return b"\0" + len(raw).to_bytes(2, "big") + raw


def _padded(raw: bytes, length: int, filler: bytes) -> bytes:
    return raw + filler * (_room(raw, length) // len(filler))


def _exactly(raw: bytes, length: int) -> bytes:
    if len(raw) != length:
        raise ValueError(f"a BLOB descriptor has {length} bytes, not {len(raw)}")
    return raw


def _to_utf16(value: str) -> bytes:
    if value and max(value) > "\uffff":
        raise ValueError("it contains a character beyond U+FFFF")
    return value.encode("utf-16-be")


def _to_date(value: datetime) -> bytes:
    if value.tzinfo is not None:
        raise ValueError("a DATE has no time zone")
    digits = (
        f"{value.year:04}{value.month:02}{value.day:02}"
        f"{value.hour:02}{value.minute:02}{value.second:02}"
    )
    return f"{digits}{value.microsecond // 10_000:02}".encode("ascii")


def _to_decimal(value: Decimal | int) -> bytes:
    if not isinstance(value, Decimal | int):
        raise TypeError
    number = Decimal(value)
    if not number.is_finite():
        raise ValueError("it is not a number")
    if number and number.adjusted() >= 20:
        raise ValueError("it has more than 20 digits before the point")
    scaled = number.scaleb(_DECIMALS, Context(prec=max(40, len(number.as_tuple().digits))))
    if scaled != scaled.to_integral_value():
        raise ValueError(f"it has more than {_DECIMALS} fraction digits")
    return int(scaled).to_bytes(16, "big", signed=True)


def _to_boolean(value: bool, length: int) -> bytes:
    if value not in (0, 1):
        raise ValueError("it is neither true nor false")
    return int(value).to_bytes(length, "big")
