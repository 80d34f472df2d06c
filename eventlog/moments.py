"""Dates and times: text of the log or of the database to the text that is written (spec/xds.md 6.3).

Fractions keep their nine digits, which no ``datetime`` has. ``time_syntax`` is integer, canonical or java;
``time_zone`` is the name of the zone of values without one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from eventlog.errors import BadValue, ConfigError, shown

_DATE: Final = "([0-9]{4})-([0-9]{2})-([0-9]{2})"
_TIME: Final = r"([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])(?:\.([0-9]{0,9}))?"
# The blank before the zone: SQL Server writes one (CONVERT, style 121). Displacements as PostgreSQL: below 16 hours.
_ZONE: Final = "(?: ?(Z|[+-](?:0[0-9]|1[0-5])(?::?[0-5][0-9])?))?"

_DATE_TEXT = re.compile(rf"{_DATE}(?:[ T]00:00:00(?:\.0{{0,9}})?)?")
_TIME_TEXT = re.compile(_TIME + _ZONE)
_TIMESTAMP_TEXT = re.compile(f"{_DATE}(?:[ T]{_TIME}{_ZONE})?")

_DAY: Final = 86400
_EPOCH_DAY: Final = datetime(1970, 1, 1).toordinal()
_COMPACT: Final = str.maketrans("", "", "-: ")


def _time_zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ConfigError(
            f"time_zone {name!r} is unknown; use a name of the time zone database such as UTC or Europe/Berlin"
        ) from None


def _unknown_syntax(name: str) -> ConfigError:
    return ConfigError(f"time_syntax {name!r} is unknown; use integer, canonical or java (spec/event-log.md 9)")


def _displacement(zone: str) -> int:
    """Seconds east of UTC of ``Z``, ``+hh``, ``+hhmm`` or ``+hh:mm``."""
    if zone == "Z":
        return 0
    seconds = int(zone[1:3]) * 3600 + int(zone[-2:]) * 60 if len(zone) > 3 else int(zone[1:3]) * 3600
    return -seconds if zone[0] == "-" else seconds


def _seconds_of(offset: timedelta | None) -> int:
    assert offset is not None
    return offset.days * _DAY + offset.seconds


def _epoch_seconds(local: datetime, zone: tzinfo) -> int:
    # By day numbers, since the first and last hours of the calendar have no datetime in UTC.
    seconds = local.hour * 3600 + local.minute * 60 + local.second
    if zone is not UTC:
        seconds -= _seconds_of(zone.utcoffset(local))
    return (local.toordinal() - _EPOCH_DAY) * _DAY + seconds


def _date_writer(time_syntax: str, time_zone: str) -> Callable[[datetime], str]:
    match time_syntax:
        case "integer":
            zone = _time_zone(time_zone)
            return lambda midnight: str(_epoch_seconds(midnight, zone))
        case "canonical":
            return lambda midnight: midnight.isoformat()[:10].translate(_COMPACT)
        case "java":
            return lambda midnight: midnight.isoformat()[:10]
        case _:
            raise _unknown_syntax(time_syntax)


def date_converter(time_syntax: str, time_zone: str) -> Callable[[str], str]:
    """Text of a date column to its written form.

    Raises BadValue for other text, ConfigError for an unknown option value.
    """
    write = _date_writer(time_syntax, time_zone)

    def convert(text: str) -> str:
        match = _DATE_TEXT.fullmatch(text)
        if match is None:
            raise BadValue(f"{shown(text)} is not a date of the form yyyy-mm-dd")
        year, month, day = match.groups()
        try:
            midnight = datetime(int(year), int(month), int(day))
        except ValueError:
            raise BadValue(f"{shown(text)} is not a day of the calendar") from None
        return write(midnight)

    return convert


def _time_writer(time_syntax: str) -> Callable[[int], str]:
    match time_syntax:
        case "integer":
            return str
        case "canonical":
            return lambda seconds: f"{seconds // 3600:02}{seconds // 60 % 60:02}{seconds % 60:02}"
        case "java":
            return lambda seconds: f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        case _:
            raise _unknown_syntax(time_syntax)


def time_converter(time_syntax: str, time_zone: str) -> Callable[[str], str]:
    """Text of a time column to its written form.

    Raises BadValue for other text, ConfigError for an unknown option value.
    """
    write = _time_writer(time_syntax)
    # A time of day has no date, so it can be brought to a zone only if that has one displacement all the year.
    own_displacement = _time_zone(time_zone).utcoffset(None)

    def convert(text: str) -> str:
        match = _TIME_TEXT.fullmatch(text)
        if match is None:
            raise BadValue(f"{shown(text)} is not a time of the form hh:mm:ss[.f]")
        hour, minute, second, _, zone = match.groups()
        seconds = int(hour) * 3600 + int(minute) * 60 + int(second)
        if zone is not None:
            if own_displacement is None:
                raise BadValue(f"{shown(text)} has a zone, and that of {time_zone} depends on the day")
            seconds = (seconds - _displacement(zone) + _seconds_of(own_displacement)) % _DAY
        return write(seconds)

    return convert


def _timestamp_writer(time_syntax: str, time_zone: str) -> Callable[[datetime, str], str]:
    match time_syntax:
        case "integer":
            zone = _time_zone(time_zone)
            return lambda local, fraction: str(_epoch_seconds(local, zone))
        case "canonical":
            return lambda local, fraction: local.isoformat(" ").translate(_COMPACT) + fraction.ljust(9, "0")
        case "java":
            return lambda local, fraction: f"{local.isoformat(' ')}.{fraction.rstrip('0') or '0'}"
        case _:
            raise _unknown_syntax(time_syntax)


def timestamp_converter(time_syntax: str, time_zone: str) -> Callable[[str], str]:
    """Text of a timestamp column, with or without a zone, to its written form.

    Raises BadValue for other text, ConfigError for an unknown option value.
    """
    write = _timestamp_writer(time_syntax, time_zone)
    own_zone = _time_zone(time_zone)

    def convert(text: str) -> str:
        match = _TIMESTAMP_TEXT.fullmatch(text)
        if match is None:
            raise BadValue(f"{shown(text)} is not a timestamp of the form yyyy-mm-dd hh:mm:ss[.f]")
        year, month, day, hour, minute, second, fraction, zone = match.groups("")
        try:
            local = datetime(int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0))
        except ValueError:
            raise BadValue(f"{shown(text)} is not a day of the calendar") from None
        if zone:
            try:
                local -= timedelta(seconds=_displacement(zone))
                if own_zone is not UTC:
                    local = local.replace(tzinfo=UTC).astimezone(own_zone).replace(tzinfo=None)
            except OverflowError:
                raise BadValue(f"{shown(text)} lies outside the years 0001 to 9999 in {time_zone}") from None
        return write(local, fraction)

    return convert
