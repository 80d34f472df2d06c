"""Avro as bare binary: values and records to bytes, and bytes back to records (Avro specification, Binary encoding).

Data messages and keys are put together from the bytes of their values: their schemas are ours, so that the order and
type of each value is known beforehand, and what is written is what fastavro writes under those schemas. All else goes
through fastavro, the extra ``avro``, which is imported only where it is used.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from datetime import time, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import lru_cache
from math import copysign, inf
from struct import pack
from typing import Any, Final

from eventlog.core.moments import EPOCH
from eventlog.errors import ConfigError, FormatError, NotExpressible, ValueRange
from eventlog.files.text import parsed_json
from eventlog.qlik.columns import QlikColumn
from eventlog.qlik.values import JSON_FORMS, writer


class BadAvro(FormatError):
    """Bytes that are not of their Avro schema, or a schema that cannot be read."""

    code = "bad_avro"
    cure = "Give the reader the schema that the messages are written in, by their metadata or by `registry`."


NULL: Final = b"\0"
"""The null of a union of null and a type."""
VALUE: Final = b"\2"
"""What stands before the value of such a union."""

_LONGEST: Final = 2**63


def _encoded(number: int) -> bytes:
    zigzag = number << 1 if number >= 0 else (-number << 1) - 1
    if zigzag < 1 << 28:  # as nearly all are: of four bytes at most
        if zigzag < 1 << 7:
            return bytes((zigzag,))
        if zigzag < 1 << 14:
            return bytes((zigzag & 127 | 128, zigzag >> 7))
        if zigzag < 1 << 21:
            return bytes((zigzag & 127 | 128, zigzag >> 7 & 127 | 128, zigzag >> 14))
        return bytes((zigzag & 127 | 128, zigzag >> 7 & 127 | 128, zigzag >> 14 & 127 | 128, zigzag >> 21))
    digits = bytearray()
    while zigzag > 127:
        digits.append(zigzag & 127 | 128)
        zigzag >>= 7
    digits.append(zigzag)
    return bytes(digits)


_SHORT: Final = tuple(_encoded(number) for number in range(4096))  # lengths and small numbers, as most are
_SHORT_VALUE: Final = tuple(VALUE + encoded for encoded in _SHORT)


def long(number: int) -> bytes:
    """An int or long. Raises NotExpressible for a number of more than 64 bits."""
    if 0 <= number < 4096:
        return _SHORT[number]
    if not -_LONGEST <= number < _LONGEST:
        raise NotExpressible(f"{number} does not fit into the 64 bits of a long")
    return _encoded(number)


def data(content: bytes) -> bytes:
    """Bytes, behind their length."""
    return long(len(content)) + content


def text(content: str) -> bytes:
    """A string. Raises UnicodeEncodeError for half a character."""
    encoded = content.encode()
    length = len(encoded)
    return (_SHORT[length] if length < 4096 else long(length)) + encoded


def text_value(content: str) -> bytes:
    """``VALUE`` and a string, in half the time of making both. Raises UnicodeEncodeError for half a character."""
    encoded = content.encode()
    length = len(encoded)
    return (_SHORT_VALUE[length] if length < 4096 else VALUE + long(length)) + encoded


def single(number: float) -> bytes:
    """A float; what is too large for one is infinite."""
    try:
        return pack("<f", number)
    except OverflowError:
        return pack("<f", copysign(inf, number))


def double(number: float) -> bytes:
    """A double."""
    return pack("<d", number)


def boolean(value: bool) -> bytes:
    """A boolean."""
    return b"\1" if value else b"\0"


def decimal(unscaled: int) -> bytes:
    """A decimal by its digits as a number: bytes, big-endian, of two's complement."""
    return data(unscaled.to_bytes((abs(unscaled).bit_length() + 8) // 8, "big", signed=True))


# --- values of columns ------------------------------------------------------------------------------------------------


def avro_writer(column: QlikColumn, logical_types: bool) -> Callable[[Any], bytes]:
    """The function that gives the Avro bytes of a column's values, as the second branch of a union with null.

    It raises NotExpressible, ValueRange, and UnicodeEncodeError for text with half a character.
    """
    form = _avro_form(column, logical_types)
    if form is text:
        return writer(column, text_value)
    return writer(column, lambda value: VALUE + form(value))


def _avro_form(column: QlikColumn, logical_types: bool) -> Callable[[Any], bytes]:
    is_logical = column.type in ("DATE", "TIME", "DATETIME", "NUMERIC")
    if is_logical and (not logical_types or (column.type == "NUMERIC" and not column.precision)):
        as_json = JSON_FORMS[column.type]
        return lambda value: text(as_json(value))
    match column.type:
        case "DATE":
            return lambda day: long(day.toordinal() - _FIRST_DAY)
        case "TIME":
            return lambda clock: long(_milliseconds(clock))
        case "DATETIME":
            return lambda moment: long((moment - EPOCH) // _MICROSECOND)
        case "NUMERIC":
            unscaled = _unscaled(column)
            return lambda number: decimal(unscaled(number))
        case "UINT8":
            return decimal if logical_types else _in_long
        case "REAL4":
            return single
        case "REAL8":
            return double
        case "BOOLEAN":
            return boolean
        case "BYTES" | "BLOB":
            return data
        case "STRING" | "WSTRING" | "CLOB" | "NCLOB":
            return text
        case _:
            return long


_FIRST_DAY: Final = EPOCH.toordinal()
_MICROSECOND: Final = timedelta(microseconds=1)


def _milliseconds(clock: time) -> int:
    return ((clock.hour * 60 + clock.minute) * 60 + clock.second) * 1000 + clock.microsecond // 1000


def _unscaled(column: QlikColumn) -> Callable[[Decimal], int]:
    """A number as that of its last digits, by the column's precision and scale. The function raises ValueRange."""
    exactly = Context(prec=column.precision, traps=[InvalidOperation, Inexact])
    unit = Decimal(1).scaleb(-column.scale)

    def unscaled(number: Decimal) -> int:
        try:
            exact = exactly.quantize(number, unit)
        except (InvalidOperation, Inexact):
            exact = Decimal("NaN")
        if not exact.is_finite():
            raise ValueRange(f"{number} of column {column.name!r} is no NUMERIC({column.precision}, {column.scale})")
        return int(exact.scaleb(column.scale, exactly))

    return unscaled


def _in_long(number: int) -> bytes:
    if number > 2**63 - 1:
        raise ValueRange(f"{number} does not fit into the long of UINT8; turn logical_types on")
    return long(number)


# --- records by their schemas -----------------------------------------------------------------------------------------


def _fastavro() -> Any:
    """Fastavro. Raises ConfigError if it is not installed."""
    try:
        import fastavro
    except ModuleNotFoundError:
        raise ConfigError(
            "messages in Avro need the package fastavro; install eventlog-publisher[avro], or use encoding = json"
        ) from None
    return fastavro


@lru_cache(maxsize=1024)
def parsed(schema: str) -> Any:
    """The schema of a JSON text as fastavro takes it, illegal names and all. Raises BadAvro."""
    fastavro = _fastavro()
    try:
        return fastavro.parse_schema(parsed_json(schema))
    except (
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        FormatError,
        fastavro.schema.SchemaParseException,
    ) as error:
        raise BadAvro(f"an Avro schema cannot be read: {type(error).__name__}: {error}") from None


def to_bytes(schema: str, record: Mapping[str, Any]) -> bytes:
    """A record as bare Avro binary. Raises NotExpressible for a value that the schema does not take."""
    buffer = io.BytesIO()
    try:
        _fastavro().schemaless_writer(buffer, parsed(schema), record)
    except (ValueError, TypeError, OverflowError, AttributeError) as error:
        raise NotExpressible(f"a record does not fit its Avro schema: {error}") from None
    return buffer.getvalue()


def from_bytes(schema: str, data: bytes) -> dict[str, Any]:
    """The record of bare Avro binary. Raises BadAvro if the bytes are cut short, too many, or none of the schema."""
    buffer = io.BytesIO(data)
    try:
        record = _fastavro().schemaless_reader(buffer, parsed(schema), None)
    except (EOFError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError, MemoryError) as error:
        raise BadAvro(f"{len(data)} bytes are no Avro of their schema: {type(error).__name__}: {error}") from None
    if buffer.tell() != len(data):
        raise BadAvro(f"{len(data) - buffer.tell()} bytes follow behind an Avro record of {buffer.tell()} bytes")
    if not isinstance(record, dict):
        raise BadAvro(f"a record is needed, and the Avro schema gives {type(record).__name__}")
    return record


def record_in(schema: str, field: str) -> dict[str, Any] | None:
    """The record type of a field of a record, None if there is no such field or it is no record. Raises BadAvro."""
    parsed(schema)
    record = parsed_json(schema)
    for one in record.get("fields", ()) if isinstance(record, dict) else ():
        if one["name"] == field:
            kinds = one["type"] if isinstance(one["type"], list) else [one["type"]]
            return next((kind for kind in kinds if isinstance(kind, dict) and kind.get("type") == "record"), None)
    return None
