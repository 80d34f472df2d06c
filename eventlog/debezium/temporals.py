"""Dates, times and durations of Debezium, in every form of its time precision modes
(formats/debezium.md 3, 5). Special dates and times (spec/xds.md 6.3) are texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

from eventlog.core.values import ColumnType, Kind
from eventlog.core.values.moments import (
    EPOCH,
    calendar_of,
    naive_utc,
    special_date,
    special_microseconds,
    without_zeros,
)
from eventlog.core.values.typed_values import value_reader
from eventlog.debezium.scalars import Decode, Encode, int32, int64, no, number_of, text_of
from eventlog.model import JsonObject, Value

_EPOCH_DAY: Final = EPOCH.toordinal()
_DAY: Final = 86_400_000_000
"""The number of microseconds of a day."""
_MICROSECOND: Final = timedelta(microseconds=1)
MILLI, MICRO, NANO = 1_000_000, 1_000, 1
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
of the machine. No date of PostgreSQL has these numbers.
"""

# --- numbers --------------------------------------------------------------------------------------


def write_date(value: Value) -> int:
    if isinstance(value, str):
        number = _INFINITE_DAYS.get(value)
        return special_microseconds(value) // _DAY if number is None else number
    if isinstance(value, datetime) or not isinstance(value, date):
        raise no("date that is a number of days")
    return value.toordinal() - _EPOCH_DAY


_NAMES_OF_DAYS: Final = {
    number: name for name, number in _INFINITE_DAYS.items()
} | _DAYS_OF_SNAPSHOTS


def read_date(value: Any) -> Value:
    days = int32(value)
    try:
        return date.fromordinal(days + _EPOCH_DAY)
    except (ValueError, OverflowError):
        return _NAMES_OF_DAYS.get(days) or special_date(*calendar_of(days))


def time_writer(unit: int) -> Encode:
    in_range = int32 if unit == MILLI else int64

    def write(value: Value) -> int:
        if isinstance(value, str):
            return in_range(_signed_microseconds(value) * MICRO // unit)
        if not isinstance(value, time):
            raise no("time of day")
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return (seconds * 1_000_000 + value.microsecond) * MICRO // unit

    return write


_SIGNED_CLOCK: Final = re.compile(r"(-?)([0-9]{2,3}):([0-5][0-9]):([0-5][0-9])(?:\.([0-9]{1,6}))?")
_LONGEST_TIME: Final = 839 * 3_600_000_000
"""The number of microseconds that no TIME of MySQL reaches: the greatest TIME is 838:59:59."""


def _signed_microseconds(text: str) -> int:
    """Return the microseconds of a TIME that is not a time of day, such as ``-01:00:00``."""
    match = _SIGNED_CLOCK.fullmatch(text)
    if match is None:
        raise no("time of day")
    sign, hours, minutes, seconds, fraction = match.groups("")
    whole = ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1_000_000
    whole += int(fraction.ljust(6, "0"))
    return -whole if sign else whole


def _time_of(microseconds: int) -> Value:
    """Return a time of day, or the text of a TIME of MySQL that is below 0, or 24 h or more."""
    if 0 <= microseconds < _DAY:
        return (EPOCH + timedelta(microseconds=microseconds)).time()
    if abs(microseconds) >= _LONGEST_TIME:
        raise no("time of a day")
    return interval_text(0, 0, microseconds)


def time_reader(unit: int) -> Decode:
    def read(value: Any) -> Value:
        return _time_of(int64(value) * unit // MICRO)

    return read


def timestamp_writer(unit: int) -> Encode:
    infinities = _infinities(unit)

    def write(value: Value) -> int:
        if isinstance(value, str):
            if value in infinities:
                return infinities[value]
            return int64(special_microseconds(value) * MICRO // unit)
        if not isinstance(value, datetime):
            raise no("date and time")
        return (naive_utc(value) - EPOCH) // _MICROSECOND * MICRO // unit

    return write


def _infinities(unit: int) -> dict[str, int]:
    """Return the numbers that PostgreSQL's connector writes in this unit for infinite values."""
    return (
        {}
        if unit == NANO
        else {name: number * MICRO // unit for name, number in _INFINITIES.items()}
    )


def timestamp_reader(unit: int) -> Decode:
    names = {number: name for name, number in _infinities(unit).items()}

    def read(value: Any) -> Value:
        number = int64(value)
        if number in names:
            return names[number]
        microseconds = number * unit // MICRO
        try:
            return EPOCH + timedelta(microseconds=microseconds)
        except OverflowError:
            days, of_day = divmod(microseconds, _DAY)
            return special_date(*calendar_of(days), f" {_clock(of_day, '')}")

    return read


def _clock(of_day: int, rest: str, digits: int = 0) -> str:
    """Return the text of a time of day that is given in microseconds. The fraction has at least
    ``digits`` digits, and more digits up to the last digit that is not zero.
    """
    seconds, fraction = divmod(of_day, 1_000_000)
    minutes, second = divmod(seconds, 60)
    text = f"{fraction:06}"
    kept = max(digits, len(text.rstrip("0")))
    return (
        f"{minutes // 60:02}:{minutes % 60:02}:{second:02}{'.' if kept else ''}{text[:kept]}{rest}"
    )


def zoned_writer(digits: int) -> Encode:
    """Return a writer of texts such as ``2018-06-20T13:37:03.120000Z``. The texts are in GMT, with
    as many digits of the fraction as the column's type has.
    """
    spare = "0" * (6 - digits)

    def write(value: Value) -> str:
        if isinstance(value, str):
            return value if value in _INFINITIES else _zoned_special(value, digits)
        if not isinstance(value, datetime):
            raise no("date and time")
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
    r"([+-]?[0-9]{4,6})-([0-9]{2})-([0-9]{2})T([0-9:]{8})(?:\.([0-9]{1,9}))?(Z|[+-].{5})"
)


def read_zoned_timestamp(value: Any) -> Value:
    """Return a moment as PostgreSQL's triggers log it: a special moment is text, with its zone."""
    text = _with_seconds(text_of(value))
    if text in _INFINITIES:
        return text
    match = _ZONED_SPECIAL.fullmatch(text)
    if match is None or 0 < int(match[1]) <= _LAST_YEAR:
        return _read_zoned(text)
    year, month, day, clock, fraction, zone = match.groups("")
    fraction = fraction[:6].rstrip("0")
    return special_date(
        int(year), int(month), int(day), f" {clock}{'.' if fraction else ''}{fraction}{zone}"
    )


_read_zoned: Final = value_reader(ColumnType(Kind.TIMESTAMPTZ))
_read_clock: Final = value_reader(ColumnType(Kind.TIME))

# --- texts of ISO 8601 ----------------------------------------------------------------------------

_NO_SECONDS: Final = re.compile(r"((?:^|T)[0-9]{2}:[0-9]{2})(?=Z|[+-]|$)")
_ISO_DATE: Final = re.compile(
    r"([+-]?[0-9]{4,7})-([0-9]{2})-([0-9]{2})(?:Z|[+-][0-9]{2}:[0-9]{2})?"
)
_ZONED_TIME: Final = re.compile(
    r"((?:[01][0-9]|2[0-4]):[0-5][0-9]:[0-5][0-9])(?:\.([0-9]{1,9}))?"
    r"(?:(Z)|([+-][0-9]{2})(?::?([0-9]{2}))?)"
)


def _with_seconds(text: str) -> str:
    """Return a text with the seconds that Java leaves out if they are zero: ``13:37Z``."""
    return _NO_SECONDS.sub(r"\1:00", text)


def read_iso_date(value: Any) -> Value:
    """Return the date of an IsoDate, ``2017-09-15Z``. The zone of an IsoDate is always UTC."""
    text = text_of(value)
    if text in _INFINITIES:
        return text
    match = _ISO_DATE.fullmatch(text)
    if match is None:
        raise no("date of ISO 8601")
    return _date_of(int(match[1]), int(match[2]), int(match[3]))


def read_iso_time(value: Any) -> Value:
    """Return the time of an IsoTime, ``04:05:11.789Z``."""
    return _read_clock(_with_seconds(text_of(value)))


def read_iso_timestamp(value: Any) -> Value:
    """Return the timestamp of an IsoTimestamp. The text has a zone, but the column has none."""
    read = read_zoned_timestamp(value)
    if isinstance(read, str):
        return read.replace("Z", "")
    return naive_utc(read) if isinstance(read, datetime) else read


def read_zoned_time(value: Any) -> str:
    """Return the time of a ZonedTime as PostgreSQL writes it: ``10:34:56.5+00``."""
    match = _ZONED_TIME.fullmatch(_with_seconds(text_of(value)))
    if match is None:
        raise no("time of day with a zone")
    clock, fraction, _, hours, minutes = match.groups("")
    fraction = fraction[:6].rstrip("0")
    zone = (hours or "+00") + (f":{minutes}" if minutes.strip("0") else "")
    return f"{clock}{'.' if fraction else ''}{fraction}{zone}"


# --- structs --------------------------------------------------------------------------------------

_SPECIAL: Final = {"POSITIVE_INFINITY": "infinity", "NEGATIVE_INFINITY": "-infinity"}


def _special(name: Any) -> str:
    text = _SPECIAL.get(name) if isinstance(name, str) else None
    if text is None:
        raise no("special date or time")
    return text


def _struct(value: Any) -> JsonObject:
    if not isinstance(value, Mapping):
        raise no("object of the parts of a date or time")
    return value


def _part(value: JsonObject, name: str) -> int:
    return int64(0 if value.get(name) is None else value[name])


def _fraction(value: JsonObject) -> int:
    """Return the microseconds of a struct's fraction of a second; further digits are cut off."""
    name, unit = ("picoseconds", 10**6) if "picoseconds" in value else ("nanos", 10**3)
    fraction = _part(value, name)
    return -(-fraction // unit) if fraction < 0 else fraction // unit


def _of_day(value: JsonObject) -> int:
    """Return the microseconds of a struct's time of day. 24:00 is the end of the day."""
    parts = [_part(value, name) for name in ("hour", "minute", "second")]
    microseconds = ((parts[0] * 60 + parts[1]) * 60 + parts[2]) * 1_000_000 + _fraction(value)
    if not 0 <= microseconds <= _DAY:
        raise no("time of a day")
    return microseconds


def _date_of(year: int, month: int, day: int, rest: str = "") -> Value:
    """Return a date. A special date, and a date of MySQL that has a zero in it, is returned as
    text.
    """
    if not (month and day):
        return f"{year:04}-{month:02}-{day:02}{rest}"
    return (
        date(year, month, day) if 0 < year <= _LAST_YEAR else special_date(year, month, day, rest)
    )


def read_structured_date(value: Any) -> Value:
    """Return the date of a StructuredDate."""
    parts = _struct(value)
    if parts.get("specialValue") is not None:
        return _special(parts["specialValue"])
    return _date_of(_part(parts, "year"), _part(parts, "month"), _part(parts, "day"))


def read_structured_time(value: Any) -> Value:
    """Return the time of a StructuredTime."""
    return _time_of(_of_day(_struct(value)))


def read_structured_clock(value: Any) -> Value:
    """Return the time of a StructuredTime, or of the StructuredDuration that a TIME of MySQL is."""
    return read_elapsed_time(value) if "hours" in _struct(value) else read_structured_time(value)


def read_structured_timestamp(value: Any) -> Value:
    """Return the timestamp of a StructuredTimestamp."""
    return _structured_timestamp(_struct(value), "")


def read_structured_zoned_timestamp(value: Any) -> Value:
    """Return the moment of a StructuredZonedTimestamp, in UTC."""
    parts = _struct(value)
    if parts.get("offsetSeconds") is None and parts.get("zoneId") is not None:
        raise no("offset from UTC")
    offset = _part(parts, "offsetSeconds")
    moment = _structured_timestamp(parts, _offset_text(offset) if offset else "Z")
    if not isinstance(moment, datetime):
        return moment
    return _read_zoned(f"{moment - timedelta(seconds=offset)}Z")


def _structured_timestamp(parts: JsonObject, zone: str) -> Value:
    if parts.get("specialValue") is not None:
        return _special(parts["specialValue"])
    of_day = _of_day(parts)
    year, month, day_of_month = (_part(parts, name) for name in ("year", "month", "day"))
    day = _date_of(year, month, day_of_month, f" {_clock(of_day, zone)}")
    if not isinstance(day, date):
        return day
    return datetime(day.year, day.month, day.day) + timedelta(microseconds=of_day)


def _offset_text(seconds: int) -> str:
    hours, minutes = divmod(abs(seconds) // 60, 60)
    return f"{'-' if seconds < 0 else '+'}{hours:02}{f':{minutes:02}' if minutes else ''}"


def read_structured_zoned_time(value: Any) -> str:
    """Return the time of a StructuredZonedTime as PostgreSQL writes it: ``24:00:00+05:30``."""
    parts = _struct(value)
    return _clock(_of_day(parts), _offset_text(_part(parts, "offsetSeconds")))


def read_any_zoned_time(value: Any) -> str:
    """Return a time with a zone, in any form, as PostgreSQL writes it. Another text is returned
    unchanged.
    """
    if isinstance(value, Mapping):
        return read_structured_zoned_time(value)
    text = text_of(value)
    return read_zoned_time(text) if _ZONED_TIME.fullmatch(_with_seconds(text)) else text


def _duration(value: Any) -> tuple[int, int, int]:
    """Return the months, days and microseconds of a StructuredDuration."""
    parts = _struct(value)
    minutes = _part(parts, "hours") * 60 + _part(parts, "minutes")
    microseconds = (minutes * 60 + _part(parts, "seconds")) * 1_000_000 + _fraction(parts)
    months = _part(parts, "years") * 12 + _part(parts, "months")
    return months, _part(parts, "days"), microseconds


def read_structured_duration(value: Any) -> str:
    """Return the interval of a StructuredDuration as PostgreSQL writes it."""
    return interval_text(*_duration(value))


def read_elapsed_time(value: Any) -> Value:
    """Return a StructuredDuration as the TIME of MySQL that it was made of."""
    months, days, microseconds = _duration(value)
    if months:
        raise no("time of day")
    return _time_of(days * _DAY + microseconds)


# --- intervals ------------------------------------------------------------------------------------

_ISO_INTERVAL: Final = re.compile(
    "P" + "".join(rf"(?:(-?[0-9]{{1,9}}){unit})?" for unit in "YMD")
    + r"(?:T(?:(-?[0-9]{1,9})H)?(?:(-?[0-9]{1,9})M)?(?:(-?[0-9]{1,9}(?:\.[0-9]{1,9})?)S)?)?"
)  # fmt: skip


def interval_text(months: int, days: int, microseconds: int) -> str:
    """Return an interval as PostgreSQL writes it in its own style:
    ``1 year 2 mons -3 days +04:05:06.78``.
    """
    years, rest = divmod(abs(months), 12)
    sign = -1 if months < 0 else 1
    parts: list[str] = []
    is_negative = False
    for number, unit in ((sign * years, "year"), (sign * rest, "mon"), (days, "day")):
        if number:
            plus = "+" if is_negative and number > 0 else ""
            parts.append(f"{plus}{number} {unit}{'' if number == 1 else 's'}")
            is_negative = number < 0
    if microseconds or not parts:
        before = "-" if microseconds < 0 else "+" if is_negative else ""
        parts.append(before + _clock(abs(microseconds), ""))
    return " ".join(parts)


def iso_interval_text(value: Any) -> str:
    """Return the interval of an Interval, ``P1Y2M3DT4H5M6.78S``, as PostgreSQL writes it. Another
    text is returned unchanged.
    """
    text = text_of(value)
    match = _ISO_INTERVAL.fullmatch(text)
    if match is None:
        return text
    years, months, days, hours, minutes = (int(one or 0) for one in match.groups()[:5])
    seconds = int(Decimal(match[6] or 0) * 1_000_000)
    microseconds = (hours * 60 + minutes) * 60_000_000 + seconds
    return interval_text(years * 12 + months, days, microseconds)


def duration_reader(unit: int) -> Callable[[Any], str]:
    """Return the reader of an interval that is a number of microseconds or nanoseconds. The reader
    returns PostgreSQL's text of the interval. Debezium has counted months as days, so the text has
    hours only.
    """

    def read(value: Any) -> str:
        number = number_of(value)  # early versions of Debezium write a double
        if not -(2**63) <= number < 2**63:
            raise no("duration of 64 bits")
        return interval_text(0, 0, int(number) * unit // MICRO)

    return read


def by_form(structured: Decode, iso: Decode, number: Decode) -> Decode:
    """Return a function that reads a value in any of three forms: a struct, a text, a number."""

    def read(value: Any) -> Value:
        if isinstance(value, Mapping):
            return structured(value)
        return iso(value) if isinstance(value, str) else number(value)

    return read


read_interval: Final = by_form(read_structured_duration, iso_interval_text, duration_reader(MICRO))
"""Returns an interval, in any form, as PostgreSQL writes it. Another text is returned unchanged."""
