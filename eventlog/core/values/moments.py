"""Convert dates and times from the text of the log or the database to the text that is written
(spec/xds.md 6.3), or to a value.

Fractions keep their nine digits, more than a ``datetime`` has. ``time_syntax`` is integer,
canonical or java. Two more values of ``time_syntax`` are for internal use. ``full``, for text that
is read again, is like java, but keeps the fraction of times of day. With ``value`` a converter
returns a date, a time or a naive datetime, with six digits of the fraction. ``time_zone`` is the
name of the zone for values without a zone. With ``special`` the special times of PostgreSQL are
kept as text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo

from eventlog.errors import BadValue, ConfigError, shown

_DATE: Final = "([0-9]{4})-([0-9]{2})-([0-9]{2})"
_TIME: Final = r"([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])(?:\.([0-9]{0,9}))?"
# SQL Server writes a blank before the zone (CONVERT, style 121). Displacements are below 16 hours,
# as in PostgreSQL.
_ZONE: Final = "(?: ?(Z|[+-](?:0[0-9]|1[0-5])(?::?[0-5][0-9])?))?"

_DATE_TEXT = re.compile(rf"{_DATE}(?:[ T]00:00:00(?:\.0{{0,9}})?)?")
_TIME_TEXT = re.compile(_TIME + _ZONE)
_TIMESTAMP_TEXT = re.compile(f"{_DATE}(?:[ T]{_TIME}{_ZONE})?")

EPOCH: Final = datetime(1970, 1, 1)
EPOCH_UTC: Final = EPOCH.replace(tzinfo=UTC)
DAY: Final = 86400
"""The number of seconds of a day."""

_EPOCH_DAY: Final = EPOCH.toordinal()
_COMPACT: Final = str.maketrans("", "", "-: ")

_SPECIAL_DATE: Final = r"(-?infinity)|([0-9]{4,7})-([0-9]{2})-([0-9]{2})"
_SPECIAL_CLOCK: Final = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{0,6})?"
_SPECIAL_DATE_TEXT = re.compile(rf"(?:{_SPECIAL_DATE})()()( BC)?")
_SPECIAL_TIMESTAMP_TEXT = re.compile(rf"(?:{_SPECIAL_DATE}(?:[ T]{_SPECIAL_CLOCK}{_ZONE})?)( BC)?")
# The first and the last day of PostgreSQL; years before Christ are numbers below 1.
_FIRST_DAY: Final = (-4713, 11, 24)
_LAST_DATE: Final = (5874897, 12, 31)
_LAST_TIMESTAMP: Final = (294276, 12, 31)


def is_special_date(text: str) -> bool:
    """Return True for a special date (spec/xds.md 6.3): infinite, before Christ, or beyond the year
    9999.
    """
    return _is_special(_SPECIAL_DATE_TEXT.fullmatch(text), _LAST_DATE)


def is_special_time(text: str) -> bool:
    """Return True for the special time of day: the end of the day."""
    return text == "24:00:00"


def is_special_timestamp(text: str) -> bool:
    """Return True for a special timestamp, with or without a zone, as ``is_special_date`` does."""
    return _is_special(_SPECIAL_TIMESTAMP_TEXT.fullmatch(text), _LAST_TIMESTAMP)


def is_special(text: str) -> bool:
    """Return True for the text of a special date, time or timestamp."""
    return is_special_time(text) or is_special_date(text) or is_special_timestamp(text)


def _is_special(match: re.Match[str] | None, last: tuple[int, int, int]) -> bool:
    """Return True if PostgreSQL accepts the matched text as a special value. The check matters for
    a key, since a statement contains the text of a key unchanged.
    """
    if match is None:
        return False
    infinite, year, month, day, _, zone, before_christ = match.groups()
    if infinite:
        return before_christ is None
    if before_christ is None and len(year) == 4:
        return False
    if len(year) > 4 and year[0] == "0":
        return False
    number = 1 - int(year) if before_christ else int(year)
    try:
        # The calendar repeats itself after 400 years.
        datetime(number % 400 + 2000, int(month), int(day))
    except ValueError:
        return False
    first = _FIRST_DAY
    if zone and _utc_offset(zone):  # the conversion to UTC may lead to the day before or after
        first, last = (first[0] + 1, 1, 1), (last[0] - 1, 12, 31)
    return int(year) > 0 and first <= (number, int(month), int(day)) <= last


# --- special times as numbers: the calendar repeats itself after 400 years ---

_FINITE = re.compile(
    rf"([0-9]{{4,7}})-([0-9]{{2}})-([0-9]{{2}})"
    rf"(?:[ T]([0-9]{{2}}):([0-9]{{2}}):([0-9]{{2}})(?:\.([0-9]{{0,6}}))?{_ZONE})?( BC)?"
)
_DAYS_OF_400_YEARS: Final = 146097


def special_microseconds(text: str) -> int:
    """Return the microseconds from 1970 to a special date or timestamp. A timestamp without a zone
    is in UTC.

    Raises BadValue for an infinite time and for any other text.
    """
    match = _FINITE.fullmatch(text) if is_special_date(text) or is_special_timestamp(text) else None
    if match is None:
        raise BadValue(f"{shown(text)} is not a date or timestamp")
    year, month, day, hour, minute, second, fraction, zone, before_christ = match.groups("")
    number = 1 - int(year) if before_christ else int(year)
    cycles, in_cycle = divmod(number - 2000, 400)
    days = (
        datetime(in_cycle + 2000, int(month), int(day)).toordinal()
        - _EPOCH_DAY
        + cycles * _DAYS_OF_400_YEARS
    )
    seconds = days * DAY + int(hour or 0) * 3600 + int(minute or 0) * 60 + int(second or 0)
    return (seconds - (_utc_offset(zone) if zone else 0)) * 1_000_000 + microseconds(fraction)


def calendar_of(days: int) -> tuple[int, int, int]:
    """Return year, month and day of a day counted from 1970; 1 BC is the year 0."""
    cycles, in_cycle = divmod(days + _EPOCH_DAY - 1, _DAYS_OF_400_YEARS)
    day = datetime.fromordinal(in_cycle + 1)
    return day.year + 400 * cycles, day.month, day.day


def special_date(year: int, month: int, day: int, rest: str = "") -> str:
    """Return the text of a day outside the years 1 to 9999 as PostgreSQL writes it; ``rest`` is the
    time of day and the zone.

    Raises BadValue for a day outside PostgreSQL's range.
    """
    text = (
        f"{1 - year if year < 1 else year:04}-{month:02}-{day:02}{rest}{' BC' if year < 1 else ''}"
    )
    if not (is_special_timestamp(text) if rest else is_special_date(text)):
        raise BadValue(f"{shown(text)} is outside the range of PostgreSQL's dates")
    return text


_FRACTION = re.compile(r"\.([0-9]+)")


def fraction_of(text: str) -> str:
    """Return the digits of the fraction of a second in a text, without trailing zeros."""
    match = _FRACTION.search(text)
    return match[1].rstrip("0") if match else ""


def without_zeros(text: str) -> str:
    """Return the text of a time as Python writes it, without the trailing zeros of its fraction.
    The zone stays.
    """
    time, point, rest = text.partition(".")
    if not point:
        return text
    fraction, zone = rest[:6].rstrip("0"), rest[6:]
    return f"{time}.{fraction}{zone}" if fraction else time + zone


def naive_utc(moment: datetime) -> datetime:
    """Return a moment as UTC without a zone; a moment without a zone is returned unchanged.

    Raises OverflowError.
    """
    return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)


def aware_utc(moment: datetime) -> datetime:
    """Return a moment as UTC with the zone UTC; a moment without a zone is taken as UTC.

    Raises OverflowError.
    """
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def time_zone_named(name: str) -> tzinfo:
    """Return the zone that an option ``time_zone`` names. ``UTC`` may be in upper or lower case.

    Raises ConfigError.
    """
    if name.upper() == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ConfigError(
            f"time_zone {name!r} is unknown; use a name of the time zone database such as UTC or "
            "Europe/Berlin"
        ) from None


def microseconds(fraction: str) -> int:
    """Return the microseconds that the digits of a fraction stand for. Digits beyond the sixth are
    cut off.
    """
    return int(fraction[:6].ljust(6, "0"))


def _unknown_syntax(name: str) -> ConfigError:
    return ConfigError(
        f"time_syntax {name!r} is unknown; use integer, canonical or java (spec/event-log.md 9)"
    )


def _utc_offset(zone: str) -> int:
    """Return the seconds east of UTC of ``Z``, ``+hh``, ``+hhmm`` or ``+hh:mm``."""
    if zone == "Z":
        return 0
    seconds = (
        int(zone[1:3]) * 3600 + int(zone[-2:]) * 60 if len(zone) > 3 else int(zone[1:3]) * 3600
    )
    return -seconds if zone[0] == "-" else seconds


def _seconds_of(offset: timedelta | None) -> int:
    assert offset is not None
    return offset.days * DAY + offset.seconds


def _epoch_seconds(local: datetime, zone: tzinfo) -> int:
    # Computed from day numbers, since the calendar's first and last hours have no datetime in UTC.
    seconds = local.hour * 3600 + local.minute * 60 + local.second
    if zone is not UTC:
        seconds -= _seconds_of(zone.utcoffset(local))
    return (local.toordinal() - _EPOCH_DAY) * DAY + seconds


def _date_writer(time_syntax: str, time_zone: str) -> Callable[[datetime], Any]:
    match time_syntax:
        case "integer":
            zone = time_zone_named(time_zone)
            return lambda midnight: str(_epoch_seconds(midnight, zone))
        case "canonical":
            return lambda midnight: midnight.isoformat()[:10].translate(_COMPACT)
        case "java" | "full":
            return lambda midnight: midnight.isoformat()[:10]
        case "value":
            return datetime.date
        case _:
            raise _unknown_syntax(time_syntax)


def date_converter(
    time_syntax: str, time_zone: str, *, special: bool = False
) -> Callable[[str], Any]:
    """Return a converter from the text of a date column to its written form.

    The converter raises BadValue for other text. Raises ConfigError for an unknown option value.
    """
    write = _date_writer(time_syntax, time_zone)

    def convert(text: str) -> Any:
        match = _DATE_TEXT.fullmatch(text)
        if match is None:
            if special and is_special_date(text):
                return text
            if _TIMESTAMP_TEXT.fullmatch(text):
                raise BadValue(
                    f"{shown(text)} is not a date of the form yyyy-mm-dd: it was logged when the "
                    "column had a time of day. Run `eventlog resync` to send the object as it is "
                    "now"
                )
            raise BadValue(f"{shown(text)} is not a date of the form yyyy-mm-dd")
        year, month, day = match.groups()
        try:
            midnight = datetime(int(year), int(month), int(day))
        except ValueError:
            raise BadValue(f"{shown(text)} is not a valid date") from None
        return write(midnight)

    return convert


def _time_writer(time_syntax: str) -> Callable[[int, str], Any]:
    match time_syntax:
        case "integer":
            return lambda seconds, _: str(seconds)
        case "canonical":
            return lambda seconds, _: (
                f"{seconds // 3600:02}{seconds // 60 % 60:02}{seconds % 60:02}"
            )
        case "java":
            return lambda seconds, _: (
                f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
            )
        case "full":
            write = _time_writer("java")
            return lambda seconds, fraction: f"{write(seconds, '')}.{fraction.rstrip('0') or '0'}"
        case "value":
            return lambda seconds, fraction: (
                EPOCH + timedelta(0, seconds, microseconds(fraction))
            ).time()
        case _:
            raise _unknown_syntax(time_syntax)


def time_converter(
    time_syntax: str, time_zone: str, *, special: bool = False
) -> Callable[[str], Any]:
    """Return a converter from the text of a time column to its written form.

    The converter raises BadValue for other text. Raises ConfigError for an unknown option value.
    """
    write = _time_writer(time_syntax)
    # A time of day has no date, so it can be converted to a zone only if the zone has the same
    # displacement all year.
    own_displacement = time_zone_named(time_zone).utcoffset(None)

    def convert(text: str) -> Any:
        match = _TIME_TEXT.fullmatch(text)
        if match is None:
            if special and is_special_time(text):
                return text
            raise BadValue(f"{shown(text)} is not a time of the form hh:mm:ss[.f]")
        hour, minute, second, fraction, zone = match.groups()
        seconds = int(hour) * 3600 + int(minute) * 60 + int(second)
        if zone is not None:
            if own_displacement is None:
                raise BadValue(
                    f"{shown(text)} has a zone, but the offset of {time_zone} depends on the day"
                )
            seconds = (seconds - _utc_offset(zone) + _seconds_of(own_displacement)) % DAY
        return write(seconds, fraction or "")

    return convert


def _timestamp_writer(time_syntax: str, time_zone: str) -> Callable[[datetime, str], Any]:
    match time_syntax:
        case "integer":
            zone = time_zone_named(time_zone)
            return lambda local, fraction: str(_epoch_seconds(local, zone))
        case "canonical":
            return lambda local, fraction: (
                local.isoformat(" ").translate(_COMPACT) + fraction.ljust(9, "0")
            )
        case "java" | "full":
            return lambda local, fraction: f"{local.isoformat(' ')}.{fraction.rstrip('0') or '0'}"
        case "value":
            return lambda local, fraction: local.replace(microsecond=microseconds(fraction))
        case _:
            raise _unknown_syntax(time_syntax)


def timestamp_converter(
    time_syntax: str, time_zone: str, *, special: bool = False
) -> Callable[[str], Any]:
    """Return a converter from the text of a timestamp column, with or without a zone, to its
    written form.

    The converter raises BadValue for other text. Raises ConfigError for an unknown option value.
    """
    write = _timestamp_writer(time_syntax, time_zone)
    own_zone = time_zone_named(time_zone)

    def convert(text: str) -> Any:
        match = _TIMESTAMP_TEXT.fullmatch(text)
        if match is None:
            if special and is_special_timestamp(text):
                return text
            raise BadValue(f"{shown(text)} is not a timestamp of the form yyyy-mm-dd hh:mm:ss[.f]")
        year, month, day, hour, minute, second, fraction, zone = match.groups("")
        try:
            local = datetime(
                int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0)
            )
        except ValueError:
            raise BadValue(f"{shown(text)} is not a valid date") from None
        if zone:
            try:
                local -= timedelta(seconds=_utc_offset(zone))
                if own_zone is not UTC:
                    local = local.replace(tzinfo=UTC).astimezone(own_zone).replace(tzinfo=None)
            except OverflowError:
                raise BadValue(
                    f"{shown(text)} lies outside the years 0001 to 9999 in {time_zone}"
                ) from None
        return write(local, fraction)

    return convert
