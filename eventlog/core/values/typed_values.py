"""Convert between typed values and their text in the event log.

The text follows spec/xds.md 6.1, 6.3 and spec/triggers.md 6, the values follow spec/change-model.md
1, 5.1.

Reading values is a hot path. A reader is built once per column type (``lru_cache``) and makes no
further choices. Python itself parses a plain timestamp, in 0.6 to 1.1 us instead of 8
(bench/RESULTS.md, "One path to JSON"). The price: readers are closures in closures, and timestamps
have two code paths; test_a_plain_moment_is_read_as_any_other checks that both have the same
results.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, TypeAlias

from eventlog.core.values import (
    TEMPORAL,
    ColumnType,
    Converter,
    Kind,
    ValueOptions,
    converter,
    float_text,
    is_money,
    money_numbers,
)
from eventlog.core.values.moments import (
    DAY,
    EPOCH,
    is_special,
    is_special_date,
    is_special_time,
    is_special_timestamp,
    naive_utc,
    time_zone_named,
    timestamp_converter,
    without_zeros,
)
from eventlog.errors import BadValue, shown
from eventlog.model import Lob, Value

ReadValue = Callable[[str], Value]
"""A function from text to value; it raises BadValue, BadXmlChar."""


@lru_cache(maxsize=4096)
def value_reader(type: ColumnType, time_zone: str = "UTC", char_padding: str = "trim") -> ReadValue:
    """Return the function that turns log text of a column into its value.

    ``time_zone`` is the zone of times without a zone. Timestamps keep six digits of their fraction;
    timestamps of a column with a zone are aware and in UTC. Special times stay text
    (spec/change-model.md 1). Raises ConfigError for an unknown option value; the function raises
    BadValue.
    """
    if type.special and type.kind is Kind.TIMESTAMPTZ:
        return _or_special(
            value_reader(replace(type, special=False), time_zone, char_padding),
            is_special_timestamp,
        )
    check: Callable[[str], Any] = converter(type, ValueOptions("value", time_zone, char_padding))
    match type.kind:
        case Kind.INTEGER:
            return _integer_reader(check)
        case Kind.EXACT:
            return lambda text: Decimal(check(text))
        case Kind.APPROXIMATE:
            return lambda text: float(check(text))
        case Kind.BOOLEAN:
            return lambda text: check(text) == "true"
        case Kind.BINARY:
            return lambda text: b64decode(check(text))
        case Kind.DATE | Kind.TIME:
            return check
        case Kind.TIMESTAMP:
            return _timestamp_reader(check)
        case Kind.TIMESTAMPTZ:
            return _in_utc(_timestamp_reader(check), time_zone)
        case Kind.FIXED if char_padding == "trim":
            return lambda text: text.rstrip(" ")
        case Kind.OTHER if is_money(type):
            return lambda text: money_numbers(text, type.point)
        case _:
            return str


_SPECIAL_TEXTS: Final = {
    Kind.DATE: is_special_date,
    Kind.TIME: is_special_time,
    Kind.TIMESTAMP: is_special_timestamp,
    Kind.TIMESTAMPTZ: is_special_timestamp,
}


def _or_special(read: ReadValue, is_text: Callable[[str], bool]) -> ReadValue:
    def read_any(text: str) -> Value:
        try:
            return read(text)
        except BadValue:
            if is_text(text):
                return text
            raise

    return read_any


def whole_number(value: object, digits: int = 20) -> int | None:
    """Return a whole number of at most ``digits`` digits as int, None for any other value.

    The exponent of a Decimal is checked before its digits are written out, since a few bytes may
    stand for gigabytes of digits.
    """
    if isinstance(value, int):
        return value if abs(value) < 10**digits else None
    # Infinity and NaN of JSON are floats.
    if not isinstance(value, Decimal) or not value.is_finite():
        return None
    if not value:
        return 0
    return int(value) if value.adjusted() < digits and value == value.to_integral_value() else None


_LONGEST_INT: Final = 10**4300
"""The first whole number with more digits than Python converts from and to text."""


def whole_value(number: int) -> int | Decimal:
    """Return a whole number as the value of a column: an int, or a Decimal if Python cannot write
    that many digits of an int.
    """
    return number if abs(number) < _LONGEST_INT else Decimal(number)


def unscaled_bytes(number: Decimal, scale: int) -> bytes:
    """Return the unscaled value of a finite number as big-endian two's complement bytes, as Java's
    ``BigInteger.toByteArray`` does. The number may have any number of digits.

    Raises ValueError for more than ``scale`` digits after the point.
    """
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    shift = exponent + scale
    whole = int(Decimal((0, digits, 0)))
    if shift < 0:
        whole, rest = divmod(whole, int(10**-shift))
        if rest:
            raise ValueError(f"more than {scale} digits after the point")
    else:
        whole *= int(10**shift)
    signed = -whole if sign else whole
    return signed.to_bytes((signed + (signed < 0)).bit_length() // 8 + 1, "big", signed=True)


WIDEST: Final = 2**17
"""The most digits before or after the point of a number, as in PostgreSQL's numeric."""


def decimal_text(number: Decimal) -> str:
    """Return a number without an exponent.

    Raises BadValue for a number with more than ``WIDEST`` digits before or after its point.
    """
    if not -WIDEST <= number.adjusted() < WIDEST:
        raise BadValue(
            f"{shown(number)} has more than {WIDEST} digits before or after the decimal point"
        )
    return format(number, "f")


def to_text(value: Value) -> str:
    """Return the text that the log has for a value other than NULL (spec/change-model.md 5.1). A
    value with a zone is written in UTC.

    Raises BadValue for the tuple of a multi-valued attribute, whose values are separate rows in the
    log, and for a time outside the years 1 to 9999 in UTC.
    """
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case Decimal():
            return decimal_text(value)
        case float():
            return float_text(value)
        case bytes(data) | Lob(data):
            return b64encode(data).decode("ascii")
        case datetime():
            try:
                text = without_zeros(naive_utc(value).isoformat(" "))
            except OverflowError:
                raise BadValue(f"{value} lies outside the years 0001 to 9999 in UTC") from None
            return text if value.tzinfo is None else f"{text}Z"
        case time():
            return without_zeros(value.isoformat())
        case date():
            return value.isoformat()
        case _:
            raise BadValue(
                f"{shown(repr(value))} is not a single value; a row of a log contains one value"
            )


def typed_by(type: ColumnType, value: Value) -> Value:
    """Return a value with the type of its column, if it has lost this type, for example in JSON.

    A datetime that has lost its zone is in UTC, as in formats without zones. Raises BadValue.
    """
    if is_multi_valued(value):
        return tuple(typed_by(type, one) for one in values_of(value))
    if isinstance(value, str):
        # Dates and times are in their ISO form, and values with a zone in UTC.
        return value_reader(type)(value)
    if isinstance(value, int) and not isinstance(value, bool):
        if type.kind is Kind.EXACT:
            return Decimal(value)
        if type.kind is Kind.APPROXIMATE:
            return float(value)
    if type.kind is Kind.TIMESTAMPTZ and isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    return value


def is_multi_valued(value: Value) -> bool:
    """Return True for the tuple of values of a multi-valued attribute."""
    return isinstance(value, tuple) and not isinstance(value, Lob)


def values_of(value: Value) -> tuple[Value, ...]:
    """Return the values of a column or attribute as a tuple, empty for NULL."""
    if value is None:
        return ()
    return value if isinstance(value, tuple) and not isinstance(value, Lob) else (value,)


def type_of(value: Value) -> ColumnType:
    """Return the column type that fits a value whose column has an unknown type."""
    match value:
        case bool():
            return ColumnType(Kind.BOOLEAN)
        case int():
            return ColumnType(Kind.INTEGER)
        case Decimal():
            return ColumnType(Kind.EXACT, special=True)
        case float():
            return ColumnType(Kind.APPROXIMATE, 64)
        case bytes() | Lob():
            return ColumnType(Kind.BINARY)
        case datetime():
            return ColumnType(Kind.TIMESTAMP if value.tzinfo is None else Kind.TIMESTAMPTZ)
        case date():
            return ColumnType(Kind.DATE)
        case time():
            return ColumnType(Kind.TIME)
        case _:
            return ColumnType(Kind.CHARACTER)


def _integer_reader(check: Converter) -> ReadValue:
    def read(text: str) -> int | Decimal:
        normal = check(text)
        try:
            return int(normal)
        except ValueError:
            # NaN or Infinity in a numeric(p,0), or more digits than Python converts to an int
            return Decimal(normal)

    return read


_is_plain_moment: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?"
).fullmatch
"""Matches the timestamps that Python parses by itself. These timestamps have no zone; Python cuts
off the digits of the fraction beyond the sixth.

Nearly all timestamps match.
"""


_ReadMoment: TypeAlias = Callable[[str], datetime]


def _timestamp_reader(read_any: _ReadMoment) -> _ReadMoment:
    def read(text: str) -> datetime:
        if _is_plain_moment(text):
            try:
                return datetime.fromisoformat(text)
            except ValueError:  # not a valid date; read_any reports it
                pass
        return read_any(text)

    return read


def _utc_reader(read_local: _ReadMoment) -> _ReadMoment:
    def read(text: str) -> datetime:
        if _is_plain_moment(text):
            try:
                return datetime.fromisoformat(f"{text}Z")
            except ValueError:  # not a valid date; read_local reports it
                pass
        return read_local(text).replace(tzinfo=UTC)

    return read


def _in_utc(read_local: _ReadMoment, time_zone: str) -> _ReadMoment:
    zone = time_zone_named(time_zone)
    if zone is UTC:
        return _utc_reader(read_local)

    def read(text: str) -> datetime:
        try:
            return read_local(text).replace(tzinfo=zone).astimezone(UTC)
        except OverflowError:
            raise BadValue(f"{shown(text)} lies outside the years 0001 to 9999 in UTC") from None

    return read


@lru_cache(maxsize=16)
def moment_reader(time_zone: str) -> _ReadMoment:
    """Return the function that turns a timestamp of the log (event_time) into an aware datetime in
    UTC; the function raises BadValue.
    """
    return _in_utc(_timestamp_reader(timestamp_converter("value", time_zone)), time_zone)


# --- XDS ------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def xds_value_reader(value_type: str, type: ColumnType | None, options: ValueOptions) -> ReadValue:
    """Return the function that turns the text of an XDS value into its value (spec/change-model.md
    3.2, spec/xds.md 6).

    ``value_type`` is the XDS type; ``type`` is the column's type, None = unknown. If the column is
    unknown, a time is a naive datetime in UTC. ``options`` are the options with which the value was
    written. The function raises BadValue.
    """
    if type is None:
        match value_type:
            case "time":  # the time may come from any database, and from a column of any kind
                return _or_special(_seconds_reader(None, options.time_zone), is_special)
            case "octet":
                return value_reader(ColumnType(Kind.BINARY))
            case "int":
                return value_reader(ColumnType(Kind.INTEGER, special=True))
            case "state":
                return value_reader(ColumnType(Kind.BOOLEAN))
            case _:
                return str
    if value_type == "time":
        read = _seconds_reader(type.kind, options.time_zone)
    else:
        read = value_reader(type, options.time_zone, options.char_padding)
        if type.kind not in TEMPORAL or options.time_syntax != "canonical":
            return read
        read = _from_canonical(read)
    return (
        _or_special(read, _SPECIAL_TEXTS[type.kind])
        if type.special and type.kind in TEMPORAL
        else read
    )


_SECONDS = re.compile(r"-?[0-9]{1,15}")
_CANONICAL = re.compile(
    r"(?:([0-9]{4})([0-9]{2})([0-9]{2}))?(?:([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{9})?)?"
)


def _seconds_reader(kind: Kind | None, time_zone: str) -> ReadValue:
    """Return a reader of the seconds that ``time_syntax = integer`` writes. The reader returns a
    date, a time or a datetime, by the column's kind.
    """
    zone = time_zone_named(time_zone)

    def read(text: str) -> Value:
        if _SECONDS.fullmatch(text) is None:
            raise BadValue(f"{shown(text)} is not a number of seconds")
        seconds = int(text)
        if kind is Kind.TIME:
            return (EPOCH + timedelta(seconds=seconds % DAY)).time()
        try:
            moment = EPOCH + timedelta(seconds=seconds)
            if kind is Kind.TIMESTAMPTZ:
                return moment.replace(tzinfo=UTC)
            if zone is not UTC:
                moment = moment.replace(tzinfo=UTC).astimezone(zone).replace(tzinfo=None)
        except OverflowError:
            raise BadValue(f"{shown(text)} seconds lie outside the years 0001 to 9999") from None
        return moment.date() if kind is Kind.DATE else moment

    return read


def _from_canonical(read: ReadValue) -> ReadValue:
    """Return a reader of ``time_syntax = canonical``: CCYYMMDD, HHMMSS or both with nine digits of
    fraction.
    """

    def read_canonical(text: str) -> Value:
        match = _CANONICAL.fullmatch(text)
        if match is None or not text:
            raise BadValue(
                f"{shown(text)} is not a date or time of the form CCYYMMDD, HHMMSS or both"
            )
        year, month, day, hour, minute, second, fraction = match.groups()
        parts = [] if year is None else [f"{year}-{month}-{day}"]
        if hour is not None:
            parts.append(f"{hour}:{minute}:{second}" + ("" if fraction is None else f".{fraction}"))
        return read(" ".join(parts))

    return read_canonical
