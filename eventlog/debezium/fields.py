"""The fields of a row: the types of Kafka Connect and Debezium's logical types, and their values in
JSON.

The mapping is that of the PostgreSQL connector, "Data type mappings"; the JSON is that of Connect's
JsonConverter (formats/debezium.md 3). A field is built once for each column type, and its functions
make no further choices.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from math import inf
from typing import Any, Final, NamedTuple

from eventlog.core.moments import (
    EPOCH,
    calendar_of,
    is_special_time,
    naive_utc,
    special_date,
    special_microseconds,
    without_zeros,
)
from eventlog.core.typed import WIDEST, decimal_text, value_reader
from eventlog.core.values import ColumnType, Kind, float_or_special, without_host_mask
from eventlog.errors import shown
from eventlog.model import Lob, Value

Encode = Callable[[Value], Any]
"""A function from a value other than NULL to its JSON.

It raises ValueError, ArithmeticError, RowError.
"""

Decode = Callable[[Any], Value]
"""A function from JSON other than null to its value.

It raises ValueError, ArithmeticError, RowError.
"""


class Field(NamedTuple):
    """The way in which the values of a column are written and read. ``schema`` is the schema of
    Connect, without ``field`` and ``optional``.
    """

    schema: Mapping[str, Any]
    encode: Encode
    decode: Decode


_EPOCH_DAY: Final = EPOCH.toordinal()
_DAY: Final = 86_400_000_000
"""The number of microseconds of a day."""
_MICROSECOND: Final = timedelta(microseconds=1)
_MILLI, _MICRO, _NANO = 1_000_000, 1_000, 1
"""The number of nanoseconds of each unit of time."""

_INFINITIES: Final = {"infinity": 9223372036825200000, "-infinity": -9223372036832400000}
"""The numbers that Debezium writes for the infinite values of TIMESTAMP ("TIMESTAMP type"), in
microseconds.
"""
_INFINITE_DAYS: Final = {"infinity": -2147472692, "-infinity": -2147472691}
"""The numbers that Debezium writes for the infinite values of DATE."""
_DAYS_OF_SNAPSHOTS: Final = {-622191234: "infinity", -622191233: "infinity",
                             -625821272: "-infinity", -625821271: "-infinity"}  # fmt: skip
"""The numbers that Debezium writes in a snapshot for infinite dates; they depend on the time zone
of the machine. No date of PostgreSQL has them.
"""


# --- by the column's type -------------------------------------------------------------------------

_DIGITS_OF_SCALE: Final = 7
_LARGEST_SCALE: Final = (
    16383  # PostgreSQL's limit; the scale in a schema from outside is checked against it
)


@lru_cache(maxsize=4096)
def field_of(type: ColumnType, decimals: str = "precise", times: str = "adaptive") -> Field:
    """Return the field of a column, under ``decimal.handling.mode`` and ``time.precision.mode``."""
    match type.kind:
        case Kind.BOOLEAN:
            return Field({"type": "boolean"}, _boolean, _boolean)
        case Kind.INTEGER if type.bits:
            whole = _integer(type.bits)
            return Field({"type": f"int{type.bits}"}, whole, whole)
        case Kind.INTEGER if not type.sizes:
            return Field({"type": "int64"}, _int64, _int64)
        case Kind.INTEGER | Kind.EXACT:
            return _decimal(type, decimals)
        case Kind.APPROXIMATE:
            return Field({"type": "float" if type.bits == 32 else "double"}, _float_json, _float)
        case Kind.BINARY:
            return Field({"type": "bytes"}, _base64, _bytes)
        case Kind.DATE | Kind.TIME | Kind.TIMESTAMP | Kind.TIMESTAMPTZ:
            return _temporal(type.kind, times, next(iter(type.sizes), 6))
        case Kind.UUID:
            return Field(_named("string", "io.debezium.data.Uuid"), _text, _text)
        case Kind.OTHER if type.sql.lower() in ("json", "jsonb"):
            return Field(_named("string", "io.debezium.data.Json"), _text, _text)
        case Kind.OTHER if type.sql.lower() == "xml":
            return Field(_named("string", "io.debezium.data.Xml"), _text, _text)
        case Kind.OTHER if type.sql.lower() == "inet":
            return Field({"type": "string"}, _address, _text)
        case _:
            return Field({"type": "string"}, _text, _text)


def _named(type: str, name: str, **parameters: str) -> dict[str, Any]:
    named: dict[str, Any] = {"type": type, "name": name, "version": 1}
    return named | {"parameters": parameters} if parameters else named


def _decimal(type: ColumnType, mode: str) -> Field:
    is_whole = type.kind is Kind.INTEGER
    if mode == "double":
        return Field({"type": "double"}, _double, _number_of(is_whole))
    if mode == "string":
        return Field({"type": "string"}, _decimal_text, _number_of(is_whole))
    if not type.sizes:
        schema = _named("struct", "io.debezium.data.VariableScaleDecimal") | {
            "fields": [
                {"type": "int32", "optional": False, "field": "scale"},
                {"type": "bytes", "optional": False, "field": "value"},
            ]
        }
        return Field(schema, _variable_scale, _read_variable_scale)
    precision, scale = (*type.sizes, 0)[:2]
    parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    schema = _named("bytes", "org.apache.kafka.connect.data.Decimal", **parameters)
    return Field(
        schema,
        lambda value: _base64(_unscaled(_exact(value), scale)),
        _decimal_decoder(scale, is_whole),
    )


def _temporal(kind: Kind, mode: str, precision: int) -> Field:
    is_coarse = mode == "connect" or precision <= 3
    package = "org.apache.kafka.connect.data" if mode == "connect" else "io.debezium.time"
    if kind is Kind.TIMESTAMPTZ:
        return Field(
            _named("string", "io.debezium.time.ZonedTimestamp"),
            _zoned(min(precision, 6)),
            _read_zoned_timestamp,
        )
    if kind is Kind.DATE:
        return Field(_named("int32", f"{package}.Date"), _days, _read_date)
    unit, size = (_MILLI, "") if is_coarse else (_MICRO, "Micro")
    if kind is Kind.TIME:
        type = "int32" if is_coarse else "int64"
        return Field(_named(type, f"{package}.{size}Time"), _time_of_day(unit), _time_decoder(unit))
    return Field(
        _named("int64", f"{package}.{size}Timestamp"), _since_epoch(unit), _timestamp_decoder(unit)
    )


# --- by the schema in an event -----------------------------------------------------------


def decoder_of(schema: Mapping[str, Any]) -> Decode:
    """Return the function that reads the values of a field with this schema of Connect. The
    schema's name takes precedence over its type.

    Raises ValueError for an invalid schema.
    """
    name, type = schema.get("name"), schema.get("type")
    if name == "org.apache.kafka.connect.data.Decimal":
        text = (schema.get("parameters") or {}).get("scale")
        scale = (
            int(text)
            if isinstance(text, str) and len(text) < _DIGITS_OF_SCALE
            else _LARGEST_SCALE + 1
        )
        if abs(scale) > _LARGEST_SCALE:
            raise ValueError(f"a decimal of scale {shown(str(text))}")
        return _decimal_decoder(scale, is_whole=scale == 0)
    decode = _BY_NAME.get(name) if isinstance(name, str) else None
    if decode is None:
        decode = _BY_TYPE.get(type) if isinstance(type, str) else None
    if decode is None:
        raise ValueError(f"{shown(str(type))} is not a type of Connect")
    return decode


def plain(value: Any) -> Value:
    """Return a JSON value whose type is unknown: objects and arrays become their JSON text."""
    if isinstance(value, dict | list):
        return _json_text(value)
    read: Value = value
    return read


# --- values ---------------------------------------------------------------------------------------


def _no(what: str) -> ValueError:
    return ValueError(f"no {what}")


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _no("truth value")
    return value


def _integer(bits: int) -> Callable[[Any], int]:
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1

    def whole(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise _no("whole number")
        if not least <= value <= most:
            raise ValueError(f"beyond {bits} bits")
        return value

    return whole


_int32, _int64 = _integer(32), _integer(64)
_FLOATS: Final = {"NaN": float("nan"), "Infinity": inf, "-Infinity": -inf}


def _number(value: Any) -> int | float | Decimal:
    if not isinstance(value, int | float | Decimal) or isinstance(value, bool):
        raise _no("number")
    return value


def _float_json(value: Value) -> Any:
    """Return a float as JsonConverter writes it: a value that JSON has no number for becomes a word
    such as NaN.
    """
    return float_or_special(float(_number(value)))


def _float(value: Any) -> float:
    return _FLOATS[value] if isinstance(value, str) and value in _FLOATS else float(_number(value))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _no("text")
    return value


def _base64(value: Value) -> str:
    data = value.data if isinstance(value, Lob) else value
    if not isinstance(data, bytes):
        raise _no("bytes")
    return b64encode(data).decode("ascii")


def _bytes(value: Any) -> bytes:
    return b64decode(_text(value), validate=True)


def _address(value: Value) -> str:
    """Return an inet address in PostgreSQL's own text."""
    return without_host_mask(_text(value))


def _json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


# decimals


def _exact(value: Value) -> Decimal:
    if not isinstance(value, int | Decimal) or isinstance(value, bool):
        raise _no("exact number; set decimal_handling_mode = string to write NaN and Infinity")
    number = Decimal(value)
    if not number.is_finite():
        raise ValueError("not finite; set decimal_handling_mode = string to write it")
    if abs(number.adjusted()) > WIDEST:
        raise ValueError("too many digits")
    return number


def _unscaled(number: Decimal, scale: int) -> bytes:
    """Return a number's unscaled value as big-endian two's complement bytes, as
    ``BigInteger.toByteArray`` does.
    """
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    shift = exponent + scale
    whole: int = int("".join(map(str, digits)) or "0")
    if shift < 0:
        whole, rest = divmod(whole, int(10**-shift))
        if rest:
            raise ValueError(f"more than {scale} digits after the point")
    else:
        whole *= int(10**shift)
    signed = -whole if sign else whole
    return signed.to_bytes((signed + (signed < 0)).bit_length() // 8 + 1, "big", signed=True)


def _decimal_decoder(scale: int, is_whole: bool) -> Decode:
    def read(value: Any) -> Value:
        whole = int.from_bytes(_bytes(value), "big", signed=True)
        return whole if is_whole else _scaled(whole, scale)

    return read


def _scaled(whole: int, scale: int) -> Decimal:
    """Return the number exactly, whatever the context's precision is."""
    digits = Decimal(whole).as_tuple()
    return Decimal((digits.sign, digits.digits, -scale))


def _variable_scale(value: Value) -> dict[str, Any]:
    number = _exact(value)
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)
    scale = max(-exponent, 0)
    return {"scale": scale, "value": _base64(_unscaled(number, scale))}


def _read_variable_scale(value: Any) -> Decimal:
    if not isinstance(value, dict):
        raise _no("object of scale and value")
    scale = value.get("scale")
    if not isinstance(scale, int) or abs(scale) > _LARGEST_SCALE:
        raise _no("scale")
    return _scaled(int.from_bytes(_bytes(value.get("value")), "big", signed=True), scale)


_WORDS: Final = {"NaN": "NAN", "Infinity": "POSITIVE_INFINITY", "-Infinity": "NEGATIVE_INFINITY"}
"""The words for NaN and the infinities in the mode ``string`` ("Decimal types"; those for the
infinities are from Debezium's code).
"""
_DECIMALS: Final = {
    text: word for word, of_debezium in _WORDS.items() for text in (word, of_debezium)
}


def _double(value: Value) -> Any:
    return _float_json(_FLOATS.get(value, value) if isinstance(value, str) else value)


def _decimal_text(value: Value) -> str:
    if isinstance(value, str) and value in _WORDS:
        return _WORDS[value]
    if not isinstance(value, int | Decimal) or isinstance(value, bool):
        raise _no("exact number")
    text = decimal_text(Decimal(value))
    return _WORDS.get(text, text)


def _number_of(is_whole: bool) -> Decode:
    """Return the reader of exact numbers of the modes double and string."""
    read_text = value_reader(ColumnType(Kind.INTEGER if is_whole else Kind.EXACT))

    def read(value: Any) -> Value:
        if isinstance(value, str):
            return Decimal(_DECIMALS[value]) if value in _DECIMALS else read_text(value)
        number = _exact(Decimal(_number(value)))
        return int(number) if is_whole and number == number.to_integral_value() else number

    return read


# Dates and times. Special ones (spec/xds.md 6.3) are texts.


def _days(value: Value) -> int:
    if isinstance(value, str):
        number = _INFINITE_DAYS.get(value)
        return special_microseconds(value) // _DAY if number is None else number
    if isinstance(value, datetime) or not isinstance(value, date):
        raise _no("date that is a number of days")
    return value.toordinal() - _EPOCH_DAY


_NAMES_OF_DAYS: Final = {
    number: name for name, number in _INFINITE_DAYS.items()
} | _DAYS_OF_SNAPSHOTS


def _read_date(value: Any) -> Value:
    days = _int32(value)
    try:
        return date.fromordinal(days + _EPOCH_DAY)
    except (ValueError, OverflowError):
        return _NAMES_OF_DAYS.get(days) or special_date(*calendar_of(days))


def _time_of_day(unit: int) -> Encode:
    def write(value: Value) -> int:
        if isinstance(value, str) and is_special_time(value):
            return _DAY * _MICRO // unit
        if not isinstance(value, time):
            raise _no("time of day")
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return (seconds * 1_000_000 + value.microsecond) * _MICRO // unit

    return write


def _time_decoder(unit: int) -> Decode:
    def read(value: Any) -> Value:
        microseconds = _int64(value) * unit // _MICRO
        if microseconds == _DAY:
            return "24:00:00"
        if not 0 <= microseconds < _DAY:
            raise _no("time of a day")
        return (EPOCH + timedelta(microseconds=microseconds)).time()

    return read


def _since_epoch(unit: int) -> Encode:
    infinities = _infinities(unit)

    def write(value: Value) -> int:
        if isinstance(value, str):
            if value in infinities:
                return infinities[value]
            return _int64(special_microseconds(value) * _MICRO // unit)
        if not isinstance(value, datetime):
            raise _no("date and time")
        return (naive_utc(value) - EPOCH) // _MICROSECOND * _MICRO // unit

    return write


def _infinities(unit: int) -> dict[str, int]:
    """Return the infinite values in a unit that PostgreSQL's connector writes."""
    return (
        {}
        if unit == _NANO
        else {name: number * _MICRO // unit for name, number in _INFINITIES.items()}
    )


def _timestamp_decoder(unit: int) -> Decode:
    names = {number: name for name, number in _infinities(unit).items()}

    def read(value: Any) -> Value:
        number = _int64(value)
        if number in names:
            return names[number]
        microseconds = number * unit // _MICRO
        try:
            return EPOCH + timedelta(microseconds=microseconds)
        except OverflowError:
            days, of_day = divmod(microseconds, _DAY)
            return special_date(*calendar_of(days), f" {_clock(of_day, '')}")

    return read


def _clock(of_day: int, rest: str, digits: int = 0) -> str:
    """Return the text of a time of day in microseconds, with ``digits`` of the fraction and further
    digits other than zero.
    """
    seconds, fraction = divmod(of_day, 1_000_000)
    minutes, second = divmod(seconds, 60)
    text = f"{fraction:06}"
    kept = max(digits, len(text.rstrip("0")))
    return (
        f"{minutes // 60:02}:{minutes % 60:02}:{second:02}{'.' if kept else ''}{text[:kept]}{rest}"
    )


def _zoned(digits: int) -> Encode:
    """Return a writer of ``2018-06-20T13:37:03.120000Z``: in GMT, with as many digits of the
    fraction as the column's type has.
    """
    spare = "0" * (6 - digits)

    def write(value: Value) -> str:
        if isinstance(value, str):
            return value if value in _INFINITIES else _zoned_special(value, digits)
        if not isinstance(value, datetime):
            raise _no("date and time")
        text = naive_utc(value).isoformat(timespec="microseconds")
        if spare:
            text = (
                text.removesuffix(spare).removesuffix(".")
                if text.endswith(spare)
                else without_zeros(text)
            )
        return f"{text}Z"

    return write


def _zoned_special(text: str, digits: int) -> str:
    """Return a moment outside the years 1 to 9999 as Java writes it: the year 44 BC is -0043, and a
    year of five digits begins with a plus.
    """
    days, of_day = divmod(special_microseconds(text), _DAY)
    year, month, day = calendar_of(days)
    sign = "+" if year > _LAST_YEAR else "-" if year < 0 else ""
    return f"{sign}{abs(year):04}-{month:02}-{day:02}T{_clock(of_day, 'Z', digits)}"


_LAST_YEAR: Final = 9999
_ZONED_SPECIAL: Final = re.compile(
    r"([+-]?[0-9]{4,6})-([0-9]{2})-([0-9]{2})T([0-9:]{8})(?:\.([0-9]{1,6}))?(Z|[+-].{5})"
)


def _read_zoned_timestamp(value: Any) -> Value:
    """Return a moment as PostgreSQL's triggers log it: a special one is text, with its zone."""
    text = _text(value)
    if text in _INFINITIES:
        return text
    match = _ZONED_SPECIAL.fullmatch(text)
    if match is None or 0 < int(match[1]) <= _LAST_YEAR:
        return _read_zoned(text)
    year, month, day, clock, fraction, zone = match.groups("")
    fraction = fraction.rstrip("0")
    return special_date(
        int(year), int(month), int(day), f" {clock}{'.' if fraction else ''}{fraction}{zone}"
    )


def _text_decoder(kind: Kind) -> Decode:
    read = value_reader(ColumnType(kind))
    return lambda value: read(_text(value))


_read_zoned: Final = value_reader(ColumnType(Kind.TIMESTAMPTZ))

_BY_NAME: Final[Mapping[str, Decode]] = {
    "io.debezium.data.VariableScaleDecimal": _read_variable_scale,
    "io.debezium.time.Date": _read_date,
    "io.debezium.time.MicroTime": _time_decoder(_MICRO),
    "io.debezium.time.MicroTimestamp": _timestamp_decoder(_MICRO),
    "io.debezium.time.NanoTime": _time_decoder(_NANO),
    "io.debezium.time.NanoTimestamp": _timestamp_decoder(_NANO),
    "io.debezium.time.Time": _time_decoder(_MILLI),
    "io.debezium.time.Timestamp": _timestamp_decoder(_MILLI),
    "io.debezium.time.ZonedTime": _text_decoder(Kind.TIME),
    "io.debezium.time.ZonedTimestamp": _read_zoned_timestamp,
    "org.apache.kafka.connect.data.Date": _read_date,
    "org.apache.kafka.connect.data.Time": _time_decoder(_MILLI),
    "org.apache.kafka.connect.data.Timestamp": _timestamp_decoder(_MILLI),
}

_BY_TYPE: Final[Mapping[str, Decode]] = {
    "boolean": _boolean,
    **{f"int{bits}": _integer(bits) for bits in (8, 16, 32, 64)},
    **dict.fromkeys(("float32", "float64", "float", "double"), _float),
    **dict.fromkeys(("array", "map", "struct"), _json_text),
    "string": _text,
    "bytes": _bytes,
}
