"""Values in messages: what a column of each type is in JSON and in Avro, and back (spec/qlik.md 5.4).

Reading is tolerant, and the same for JSON and Avro: text, numbers and Avro's own types are taken wherever they can mean
the type. JSON numbers are to be parsed with ``parse_float=Decimal``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from json.encoder import encode_basestring
from math import isinf
from typing import Any, Final, TypeVar

from eventlog.core.moments import EPOCH, microseconds, naive_utc
from eventlog.core.typed import WIDEST, decimal_text, is_multi_valued, to_text, whole_number
from eventlog.core.values import float_or_word
from eventlog.errors import FormatError, NotExpressible, ValueRange, shown
from eventlog.model import Lob, Value
from eventlog.qlik.columns import CLASSES, QlikColumn


class BadMessageValue(FormatError):
    """A message holds what is no value of its column's type (spec/qlik.md 5.4)."""

    code = "bad_message_value"
    cure = "Correct the column's type in `columns` or in the catalogue."


Convert = Callable[[Any], Any]
"""What is stored or stands in a message -> value, or the other way. Never gets NULL."""

Written = TypeVar("Written")


# --- reading ----------------------------------------------------------------------------------------------------------

_ZONE: Final = r"(?: ?(Z|z|[+-][0-9]{2}:?[0-9]{2}))?"
_CLOCK: Final = r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{0,9}))?)?"
_DATE_TEXT = re.compile(rf"([0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})(?:[ T]{_CLOCK}{_ZONE})?", re.ASCII)
_TIME_TEXT = re.compile(_CLOCK + _ZONE, re.ASCII)


def read_moment(text: str) -> datetime:
    """A date and time as naive UTC: blank or ``T``, 0 to 9 digits of fraction (six are kept), a zone if there is one.

    Raises ValueError.
    """
    match = _DATE_TEXT.fullmatch(text)
    if match is None:
        raise ValueError
    day, hour, minute, second, fraction, zone = match.groups()
    moment = datetime.fromisoformat(day)
    if hour is None:
        return moment
    moment = moment.replace(
        hour=int(hour), minute=int(minute), second=int(second or 0), microsecond=microseconds(fraction or "")
    )
    return moment - _displacement(zone)


def _displacement(zone: str | None) -> timedelta:
    if zone is None or zone in "Zz":
        return timedelta(0)
    ahead = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
    return -ahead if zone[0] == "-" else ahead


def _read_datetime(value: Any) -> datetime:
    if isinstance(value, datetime):
        return naive_utc(value)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    if isinstance(value, str):
        return read_moment(value)
    raise TypeError


def _read_date(value: Any) -> date:
    return value if type(value) is date else _read_datetime(value).date()


def _read_time(value: Any) -> time:
    if isinstance(value, time):
        return value
    match = _TIME_TEXT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError
    hour, minute, second, fraction, zone = match.groups()
    clock = time(int(hour), int(minute), int(second or 0), microseconds(fraction or ""))
    return clock if zone is None else (datetime.combine(EPOCH, clock) - _displacement(zone)).time()


def _read_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Lob):
        return value.data.decode()
    return value.hex().upper() if isinstance(value, bytes) else to_text(value)


def _read_decimal(value: Any) -> Decimal:
    if isinstance(value, bool):
        raise TypeError
    number = value if isinstance(value, Decimal) else Decimal(value if isinstance(value, int) else str(value).strip())
    if not -WIDEST <= number.adjusted() < WIDEST:
        raise ValueError
    return number


_MOST_DIGITS: Final = 20
"""Digits of the largest integer of a column, a UINT8."""


def _read_integer(value: Any) -> int:
    if type(value) is int:
        return value
    number = whole_number(_read_decimal(value), _MOST_DIGITS)
    if number is None:
        raise ValueError
    return number


def _read_real(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError
    real = float(value)
    if isinf(real) and Decimal(value).is_finite():  # a number that no REAL8 holds
        raise ValueError
    return real


def _read_boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, int | Decimal) and value in (0, 1):
        return bool(value)
    if isinstance(value, str) and value.lower() in ("true", "false", "1", "0"):
        return value.lower() in ("true", "1")
    raise ValueError


def _read_bytes(value: Any) -> bytes:
    if isinstance(value, Lob):
        return value.data
    return value if isinstance(value, bytes) else bytes.fromhex(value)


_READERS: Final[Mapping[type, Convert]] = {
    date: _read_date,
    time: _read_time,
    datetime: _read_datetime,
    Decimal: _read_decimal,
    bool: _read_boolean,
    str: _read_text,
    bytes: _read_bytes,
    float: _read_real,
    int: _read_integer,
}

_BYTES_OF_INTEGERS: Final = (1, 2, 4, 8)
_RANGES: Final = {
    **{f"INT{size}": (-(1 << 8 * size - 1), (1 << 8 * size - 1) - 1) for size in _BYTES_OF_INTEGERS},
    **{f"UINT{size}": (0, (1 << 8 * size) - 1) for size in _BYTES_OF_INTEGERS},
}


def value_reader(column: QlikColumn) -> Callable[[Any], Value]:
    """The function that reads what stands for a column in JSON or Avro. It raises BadMessageValue."""
    read, bounds = _READERS[CLASSES[column.type]], _RANGES.get(column.type)

    def checked(value: Any) -> Value:
        try:
            result: Value = read(value)
        except (ValueError, TypeError, AttributeError, InvalidOperation, OverflowError, FormatError):
            raise BadMessageValue(
                f"{shown(str(value))} is no {column.type}, the type of column {column.name!r}"
            ) from None
        return result

    if bounds is None:
        return checked
    least, most = bounds

    def in_range(value: Any) -> Value:
        number = value if type(value) is int else checked(value)
        if not least <= number <= most:  # type: ignore[operator]
            raise BadMessageValue(f"{shown(str(number))} of column {column.name!r} is outside of {least} to {most}")
        return number

    return in_range


def plain_value(value: Any) -> Value:
    """A value of a column whose type is not known, as it stands in JSON or as Avro gives it."""
    if isinstance(value, Decimal):  # of JSON: a number with a point or an exponent
        real = float(value)
        if isinf(real):
            raise BadMessageValue(f"{shown(str(value))} is larger than a number of a column without type can be")
        return real
    if isinstance(value, datetime):
        return naive_utc(value)
    if isinstance(value, Mapping | list):
        raise BadMessageValue(f"{shown(str(value))} is no value of a column: it is nested")
    plain: Value = value
    return plain


# --- writing ----------------------------------------------------------------------------------------------------------


def _as_is(value: Any) -> Any:
    return value


JSON_FORMS: Final[Mapping[str, Convert]] = {
    "DATE": date.isoformat,
    "TIME": lambda clock: clock.isoformat("microseconds"),
    "DATETIME": lambda moment: moment.isoformat(" ", "microseconds"),
    "NUMERIC": decimal_text,
    "BYTES": lambda data: data.hex().upper(),
    "BLOB": lambda data: data.hex().upper(),
    "REAL4": float_or_word,
    "REAL8": float_or_word,
    "UINT8": str,
}
_JSON_TEXTS: Final[Mapping[str, Callable[[Any], str]]] = {
    "BOOLEAN": lambda value: "true" if value else "false",
    **dict.fromkeys(("REAL4", "REAL8"), lambda form: repr(form) if type(form) is float else encode_basestring(form)),
    **dict.fromkeys(("INT1", "INT2", "INT4", "INT8", "UINT1", "UINT2", "UINT4"), int.__repr__),
}
"""The JSON text of a JSON form; those of all other types are strings."""


def json_writer(column: QlikColumn) -> Convert:
    """The function that gives the JSON form of a column's values. It raises NotExpressible, ValueRange."""
    return writer(column, JSON_FORMS.get(column.type, _as_is))


def json_text_writer(column: QlikColumn) -> Callable[[Any], str]:
    """As ``json_writer``, but the form as JSON text, in which nothing beyond ASCII is escaped."""
    text = _JSON_TEXTS.get(column.type, encode_basestring)
    form = JSON_FORMS.get(column.type)
    return writer(column, text if form is None else lambda value: text(form(value)))


def writer(column: QlikColumn, form: Callable[[Any], Written]) -> Callable[[Any], Written]:
    """Bring a value to its column's type, check its range, and give it its form."""
    value_type, bounds = CLASSES[column.type], _RANGES.get(column.type)
    read = _READERS[value_type]
    as_it_is = None if value_type is datetime else value_type  # a datetime may have a zone

    def typed(value: Value) -> Any:
        if is_multi_valued(value):
            raise NotExpressible(f"column {column.name!r} has several values, and a message has one for each column")
        try:
            return read(value)
        except (ValueError, TypeError, AttributeError, InvalidOperation, OverflowError, FormatError):
            raise ValueRange(f"{shown(str(value))} of column {column.name!r} is no {column.type}") from None

    if bounds is None:
        return lambda value: form(value if type(value) is as_it_is else typed(value))

    least, most = bounds

    def write_number(value: Any) -> Written:
        number = value if type(value) is int else typed(value)
        if not least <= number <= most:
            raise ValueRange(f"{number} of column {column.name!r} is outside of {least} to {most}")
        return form(number)

    return write_number
