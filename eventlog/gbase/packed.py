"""Packed base-100 numbers: DECIMAL, and DATETIME and INTERVAL, which consist of them
(formats/gbase-cdc.md 3.4, 3.5).

Decimals and timestamps are a hot path. Translation tables and ``hex()`` turn base-100 digits into
decimal digits in C. One common case of each type (a positive decimal of its declared scale, a
complete timestamp) is read without taking the number apart. The price: each reader exists twice;
the result of the fast reader must agree with the result of the general reader, ``read_any``.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Final, NamedTuple

from eventlog.core.values.moments import naive_utc
from eventlog.errors import NotExpressible, shown
from eventlog.gbase.records import ColumnError
from eventlog.model import Value

# Each base-100 digit becomes two decimal digits in one byte, so that hex() writes a number's
# decimal digits. Every other byte becomes FF, which no number contains.
_TO_DECIMAL: Final = bytes([(d // 10 << 4) + d % 10 if d < 100 else 0xFF for d in range(256)])
_TO_BASE_100: Final = bytes(
    [(b >> 4) * 10 + (b & 15) if b >> 4 < 10 and b & 15 < 10 else 0xFF for b in range(256)]
)
_NINES: Final = bytes([99 - d if d < 100 else 0xFF for d in range(256)])
_HUNDREDS: Final = bytes([100 - d if 0 < d < 100 else 0xFF for d in range(256)])

_ZERO: Final = 0x80
_EXPONENT_0: Final = 0xC0  # the first byte of a positive number below 1
# 63 is left out because the complement of its first byte means NULL, and -64 because its first byte
# means zero.
_EXPONENTS: Final = range(-63, 63)


def unpack_digits(raw: bytes) -> tuple[bool, int, str] | None:
    """Return the parts of a packed number: negative, exponent, and decimal digits. The exponent
    counts base-100 digits left of the point.

    Returns None for NULL; zero has no digits. Raises ColumnError.
    """
    first = raw[0]
    if first == 0:
        return None
    digits = raw[1:].rstrip(b"\0")
    negative = first < 0x80
    if negative:
        first ^= 0xFF
    if not digits:
        return False, 0, ""
    if first == _ZERO:
        raise ColumnError(
            f"{raw.hex().upper()} begins like the number 0, but digits follow",
            code="bad_decimal",
        )
    if negative:
        digits = digits[:-1].translate(_NINES) + digits[-1:].translate(_HUNDREDS)
    text = digits.translate(_TO_DECIMAL).hex()
    if not text.isdecimal():
        raise ColumnError(f"{raw.hex().upper()} has a base-100 digit above 99", code="bad_decimal")
    return negative, first - _EXPONENT_0, text


def _pack_digits(negative: bool, exponent: int, digits: str, width: int) -> bytes:
    """Return the packed number of ``width`` bytes. This function is the inverse of
    ``unpack_digits``; the number of ``digits`` must be even.

    Raises NotExpressible if exponent or digits do not fit.
    """
    packed = bytes.fromhex(digits).translate(_TO_BASE_100).rstrip(b"\0")
    bare = packed.lstrip(b"\0")
    exponent -= len(packed) - len(bare)
    if not bare:
        return bytes([_ZERO]).ljust(width, b"\0")
    if len(bare) >= width or exponent not in _EXPONENTS:
        raise NotExpressible(
            f"the number needs {len(bare)} base-100 digits and exponent {exponent}: too large",
            code="value_range",
        )
    first = _EXPONENT_0 + exponent
    if negative:
        first ^= 0xFF
        bare = bare[:-1].translate(_NINES) + bare[-1:].translate(_HUNDREDS)
    return (bytes([first]) + bare).ljust(width, b"\0")


def decimal_width(precision: int, scale: int | None) -> int:
    """Return the number of bytes of DECIMAL(precision, scale). A scale of None means floating, and
    is treated as the scale 255.
    """
    return (precision + (255 if scale is None else scale) % 2 + 3) // 2


def decimal_reader(precision: int, scale: int | None) -> Callable[[bytes], Decimal | None]:
    """Return a reader of packed decimals.

    If ``scale`` is given, a number has at least ``scale`` fraction digits. Otherwise the number is
    floating and has no trailing zeros.
    """
    places = scale or 0

    def read_any(raw: bytes) -> Decimal | None:
        number = unpack_digits(raw)
        if number is None:
            return None
        negative, exponent, digits = number
        point = 2 * exponent
        if point < 0:
            digits, point = "0" * -point + digits, 0
        fraction = digits[point:].rstrip("0").ljust(places, "0")
        whole = digits[:point].ljust(point, "0") or "0"
        return Decimal(f"{'-' if negative else ''}{whole}{'.' if fraction else ''}{fraction}")

    if scale is None:
        return read_any

    # The common number, positive and of the declared scale, is read without taking it apart. The
    # first byte gives where the last declared digit stands in the hex text of all bytes, and how
    # many zeros follow it.
    last = 2 * decimal_width(precision, scale)
    plans = [
        (end, "0" * (last - end)) if first > _EXPONENT_0 and end <= last else None
        for first, end in ((first, 2 * (first - _EXPONENT_0) + 2 + scale) for first in range(256))
    ]
    point = f"E-{scale}"

    def read(raw: bytes) -> Decimal | None:
        plan = plans[raw[0]]
        if plan is not None:
            end, zeros = plan
            digits = raw.translate(_TO_DECIMAL).hex()
            if digits[end:] == zeros:
                try:
                    return Decimal(digits[2:end] + point)
                except InvalidOperation:
                    pass
        return read_any(raw)

    return read


def decimal_writer(precision: int, scale: int | None) -> Callable[[Decimal], bytes]:
    """Return a writer of numbers as DECIMAL(precision, scale), scale None = floating.

    The writer raises NotExpressible for a number with more digits or a larger scale.
    """
    width = decimal_width(precision, scale)
    spelled = f"DECIMAL({precision})" if scale is None else f"DECIMAL({precision},{scale})"

    def write(value: Decimal) -> bytes:
        sign, number, exponent = value.as_tuple()
        if not isinstance(exponent, int):
            raise NotExpressible(
                f"{value} is not a number that {spelled} can hold", code="value_range"
            )
        digits = "".join(map(str, number)).lstrip("0")
        exponent += len(digits) - len(digits := digits.rstrip("0"))
        if not digits:
            return bytes([_ZERO]).ljust(width, b"\0")
        point = len(digits) + exponent
        fits = (
            len(digits) <= precision
            if scale is None
            else -exponent <= scale and point <= precision - scale
        )
        if not fits:
            raise NotExpressible(f"{value} does not fit {spelled}", code="value_range")
        lead = point % 2
        text = "0" * lead + digits
        return _pack_digits(bool(sign), (point + lead) // 2, text + "0" * (len(text) % 2), width)

    return write


FIELDS: Final = ("year", "month", "day", "hour", "minute", "second", "fraction")
YEAR, MONTH, DAY, HOUR, MINUTE, SECOND, FRACTION = range(7)
# The separators before each field except the first.
_BEFORE: Final = ("", "-", "-", " ", ":", ":", ".")
_RANGES: Final = (range(1, 10_000), range(1, 13), range(1, 32), range(24), range(60), range(60))
_DEFAULT_FRACTION: Final = 3
_DIGITS: Final = bytes(range(100))


@dataclass(frozen=True, slots=True)
class Qualifier:
    """A qualifier ``first TO last`` of a DATETIME or INTERVAL.

    ``precision`` counts the digits of the first field, ``fraction`` the digits of FRACTION (0
    without FRACTION).
    """

    interval: bool
    first: int
    last: int
    precision: int
    fraction: int

    @property
    def whole_digits(self) -> int:
        """The number of decimal digits of the fields before the point."""
        return (
            0
            if self.first == FRACTION
            else self.precision + 2 * (min(self.last, SECOND) - self.first)
        )

    @property
    def whole_bytes(self) -> int:
        """The number of base-100 digits of the fields before the point: W of the specification."""
        return (self.whole_digits + 1) // 2

    @property
    def width(self) -> int:
        """The number of bytes of a value."""
        return 1 + self.whole_bytes + (self.fraction + 1) // 2

    def __str__(self) -> str:
        kind = "INTERVAL" if self.interval else "DATETIME"
        precision = f"({self.precision})" if self.interval and self.first != FRACTION else ""
        fraction = f"({self.fraction})" if self.fraction else ""
        return (
            f"{kind} {FIELDS[self.first].upper()}{precision} TO "
            f"{FIELDS[self.last].upper()}{fraction}"
        )


_QUALIFIER: Final = re.compile(
    r"([a-z]+)\s*(?:\(\s*(\d{1,9})\s*\))?\s+to\s+([a-z]+)\s*(?:\(\s*(\d{1,9})\s*\))?", re.ASCII
)


def parse_qualifier(text: str, interval: bool) -> Qualifier | None:
    """Parse a qualifier in lower case, such as ``day(3) to second``. Return None if it is not
    valid.
    """
    match = _QUALIFIER.fullmatch(text)
    if match is None or match[1] not in FIELDS or match[3] not in FIELDS:
        return None
    first, last = FIELDS.index(match[1]), FIELDS.index(match[3])
    precision, fraction = _precision(match[2], first, interval), _fraction(match[4], last)
    if first > last or precision is None or fraction is None:
        return None
    if interval and first <= MONTH < last:  # months have no fixed number of days
        return None
    return Qualifier(interval, first, last, precision, fraction)


def _precision(digits: str | None, first: int, interval: bool) -> int | None:
    """Return the number of digits of the first field, None if the qualifier must not have a number
    of digits.
    """
    default = 4 if first == YEAR else 2
    if not interval:
        return default if digits is None else None
    precision = default if first == FRACTION else int(digits or default)
    return precision if 1 <= precision <= 9 else None


def _fraction(digits: str | None, last: int) -> int | None:
    """Return the number of digits after the point, None if the qualifier must not have a number."""
    if last != FRACTION:
        return 0 if digits is None else None
    fraction = int(digits or _DEFAULT_FRACTION)
    return fraction if 1 <= fraction <= 5 else None


class Fields(NamedTuple):
    """A DATETIME or INTERVAL by its fields. The fields from the first to the last are whole
    numbers; the fraction is a text of digits.
    """

    negative: bool
    whole: tuple[int, ...]
    fraction: str


def unpack_fields(
    raw: bytes, qualifier: Qualifier, on_lenient: Callable[[], None]
) -> Fields | None:
    """Return the fields of a packed value, None for NULL. Raises ColumnError.

    ``on_lenient`` is called for a number with more digits before the point than the qualifier has.
    The digits of a number that is too long are read left-aligned (formats/gbase-cdc.md 3.5).
    """
    number = unpack_digits(raw)
    if number is None:
        return None
    negative, exponent, digits = number
    whole = qualifier.whole_bytes
    if not digits:
        exponent = whole
    elif exponent > whole:
        on_lenient()
        exponent = whole
    digits = "00" * (whole - exponent) + digits
    digits = digits.ljust(2 * (qualifier.width - 1), "0")
    start = 2 * whole - qualifier.whole_digits
    end = 2 * whole + qualifier.fraction
    if digits[:start].strip("0") or digits[end:].strip("0"):
        raise ColumnError(
            f"{raw.hex().upper()} has more digits than {qualifier}", code="bad_datetime"
        )
    fields = []
    at = start
    for field in range(qualifier.first, min(qualifier.last, SECOND) + 1):
        size = qualifier.precision if field == qualifier.first else 2
        fields.append(int(digits[at : at + size]))
        at += size
    unpacked = Fields(negative, tuple(fields), digits[at:end])
    wrong = _out_of_range(unpacked, qualifier)
    if wrong:
        raise ColumnError(f"{raw.hex().upper()} as {qualifier} has {wrong}", code="bad_datetime")
    return unpacked


def _out_of_range(fields: Fields, qualifier: Qualifier) -> str:
    """Return a description of the first field that is out of range, or the empty string if no field
    is.

    The first field of an INTERVAL is bounded by its precision only.
    """
    if fields.negative and not qualifier.interval:
        return "a sign"
    for position, value in enumerate(fields.whole):
        field = qualifier.first + position
        if qualifier.interval and position == 0:
            if len(str(value)) > qualifier.precision:
                return f"more than {qualifier.precision} digits in {FIELDS[field]}"
        elif value not in (range(12) if qualifier.interval and field == MONTH else _RANGES[field]):
            return f"{FIELDS[field]} {value}"
    if not qualifier.interval and qualifier.first <= MONTH and qualifier.last >= DAY:
        # Without a year, every day that exists in some year is valid.
        year = fields.whole[0] if qualifier.first == YEAR else 2000
        month, day = fields.whole[MONTH - qualifier.first], fields.whole[DAY - qualifier.first]
        if day > monthrange(year, month)[1]:
            return f"day {day} in month {month}"
    return ""


def pack_fields(fields: Fields, qualifier: Qualifier) -> bytes:
    """Return the packed value of fields that are in range."""
    whole = "".join(
        str(value).rjust(qualifier.precision if position == 0 else 2, "0")
        for position, value in enumerate(fields.whole)
    )
    whole = "0" * (len(whole) % 2) + whole
    fraction = fields.fraction + "0" * (len(fields.fraction) % 2)
    return _pack_digits(fields.negative, len(whole) // 2, whole + fraction, qualifier.width)


def text_of_fields(fields: Fields, qualifier: Qualifier) -> str:
    """Return the text form of fields, as ``-123 04:05:06.789``."""
    parts = ["-" if fields.negative else ""]
    for position, value in enumerate(fields.whole):
        field = qualifier.first + position
        if position:
            parts.append(_BEFORE[field])
        size = 4 if field == YEAR else 2
        parts.append(
            str(value) if qualifier.interval and position == 0 else str(value).rjust(size, "0")
        )
    if qualifier.fraction:
        parts.append("." + fields.fraction)
    return "".join(parts)


def holds(qualifier: Qualifier) -> type[date] | type[time] | None:
    """Return the Python type that holds the values of a qualifier: date, datetime or time. Return
    None if values are text.
    """
    if qualifier.interval:
        return None
    if qualifier.first == YEAR and qualifier.last >= DAY:
        return date if qualifier.last == DAY else datetime
    return time if qualifier.first == HOUR and qualifier.last >= MINUTE else None


def value_of_fields(fields: Fields, qualifier: Qualifier) -> Value:
    """Return the fields as date, datetime, time or text."""
    kind = holds(qualifier)
    if kind is None:
        return text_of_fields(fields, qualifier)
    if kind is date:
        return date(*fields.whole)
    whole, microsecond = fields.whole, int(fields.fraction.ljust(6, "0"))
    if kind is datetime:
        year, month, day, hour, minute, second = whole + (0,) * (6 - len(whole))
        return datetime(year, month, day, hour, minute, second, microsecond)
    hour, minute, second = whole + (0,) * (3 - len(whole))
    return time(hour, minute, second, microsecond)


def datetime_reader(
    qualifier: Qualifier, on_lenient: Callable[[], None]
) -> Callable[[bytes], Value]:
    """Return a reader of packed values of a qualifier. For ``on_lenient`` see ``unpack_fields``."""

    def read_any(raw: bytes) -> Value:
        fields = unpack_fields(raw, qualifier, on_lenient)
        return None if fields is None else value_of_fields(fields, qualifier)

    if holds(qualifier) is not datetime or qualifier.last < SECOND:
        return read_any

    # The commonest value, a datetime with all its digits, is read without taking the number apart.
    head = bytes([first := 0xC0 + qualifier.whole_bytes])
    padding = bytes(10 - (qualifier.width - 1))
    step = 10 ** (6 - qualifier.fraction)

    def read(raw: bytes) -> Value:
        # After removal of all base-100 digits only the first byte is left.
        if raw[0] == first and raw.translate(None, _DIGITS) == head:
            _, century, year, month, day, hour, minute, second, first_two, next_two, last_two = (
                raw + padding if padding else raw
            )
            microsecond = first_two * 10000 + next_two * 100 + last_two
            if microsecond % step == 0:
                try:
                    return datetime(
                        century * 100 + year, month, day, hour, minute, second, microsecond
                    )
                except ValueError:
                    pass
        return read_any(raw)

    return read


def datetime_text(value: Value, qualifier: Qualifier) -> str:
    """Return the text form of a value of the qualifier (formats/gbase-cdc.md 3.5)."""
    return text_of_fields(fields_of(value, qualifier), qualifier)


def fields_of(value: Value, qualifier: Qualifier) -> Fields:
    """Return the fields of a Python value or text. Digits beyond the precision of the qualifier are
    cut off.

    Raises NotExpressible.
    """
    if isinstance(value, str):
        return _fields_of_text(value, qualifier)
    kind = holds(qualifier)
    if kind is not None and isinstance(value, time if kind is time else date):
        if isinstance(value, datetime):
            value = naive_utc(value)
        names = FIELDS[qualifier.first : min(qualifier.last, SECOND) + 1]
        fraction = f"{getattr(value, 'microsecond', 0):06}"[: qualifier.fraction]
        return Fields(False, tuple(getattr(value, name, 0) for name in names), fraction)
    raise NotExpressible(
        f"{value!r} is not {qualifier}; write it as text of that form", code="value_range"
    )


def _fields_of_text(text: str, qualifier: Qualifier) -> Fields:
    match = _pattern(qualifier).fullmatch(text.strip())
    if match is None:
        kind = holds(qualifier)
        try:
            if kind is not None and kind is not time:
                return fields_of(datetime.fromisoformat(text.strip()), qualifier)
        except ValueError:
            pass
        raise NotExpressible(f"{shown(text)} does not match {qualifier}", code="value_range")
    sign, *parts = match.groups("")
    fraction = (parts.pop() if qualifier.fraction else "")[: qualifier.fraction].ljust(
        qualifier.fraction, "0"
    )
    fields = Fields(sign == "-", tuple(map(int, parts)), fraction)
    wrong = _out_of_range(fields, qualifier)
    if wrong:
        raise NotExpressible(f"{shown(text)} as {qualifier} has {wrong}", code="value_range")
    return fields if any(fields.whole) or fraction.strip("0") else fields._replace(negative=False)


@lru_cache
def _pattern(qualifier: Qualifier) -> re.Pattern[str]:
    pattern = "(-?)"
    for field in range(qualifier.first, min(qualifier.last, SECOND) + 1):
        if field == qualifier.first:
            pattern += f"([0-9]{{1,{max(qualifier.precision, 2)}}})"
        else:
            pattern += ("[ T]" if field == HOUR else re.escape(_BEFORE[field])) + "([0-9]{1,2})"
    if qualifier.fraction:
        pattern += r"\.([0-9]+)" if qualifier.first == FRACTION else r"(?:\.([0-9]*))?"
    return re.compile(pattern, re.ASCII)


def cuts_off(value: Value, qualifier: Qualifier) -> bool:
    """Return True if a value has more precision than the qualifier, so that writing it loses
    digits.
    """
    if isinstance(value, str):
        _, dot, fraction = value.partition(".")
        return bool(dot and fraction[qualifier.fraction :].strip("0 "))
    if isinstance(value, datetime | time):
        finer = [getattr(value, name) for name in FIELDS[qualifier.last + 1 : FRACTION]]
        return any(finer) or bool(value.microsecond % 10 ** (6 - qualifier.fraction))
    return False
