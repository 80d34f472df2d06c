"""Packed decimals: a sign and exponent byte, then base-100 digits (spec/gbase-cdc.md 3.4)."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Final

from eventlog.errors import ValueRange
from eventlog.gbase.errors import BadDecimal

# A base-100 digit as two decimal ones in a byte, so that hex() writes a number's decimal digits. What is no digit
# becomes FF, which no number is made of.
TO_DECIMAL: Final = bytes([(d // 10 << 4) + d % 10 if d < 100 else 0xFF for d in range(256)])
_TO_BASE_100: Final = bytes([(b >> 4) * 10 + (b & 15) if b >> 4 < 10 and b & 15 < 10 else 0xFF for b in range(256)])
_NINES: Final = bytes([99 - d if d < 100 else 0xFF for d in range(256)])
_HUNDREDS: Final = bytes([100 - d if 0 < d < 100 else 0xFF for d in range(256)])

_ZERO: Final = 0x80
_EXPONENT_0: Final = 0xC0  # positive, no digit left of the point
# 63 is left out: the complement of its first byte is that of NULL; -64, since its first byte is that of zero.
_EXPONENTS: Final = range(-63, 63)


def unpack_digits(raw: bytes) -> tuple[bool, int, str] | None:
    """A packed number as (negative, exponent, decimal digits): exponent counts base-100 digits left of the point.

    None for NULL, no digits for zero. Raises BadDecimal.
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
        raise BadDecimal(f"{raw.hex().upper()} begins like zero and has digits")
    if negative:
        digits = digits[:-1].translate(_NINES) + digits[-1:].translate(_HUNDREDS)
    text = digits.translate(TO_DECIMAL).hex()
    if not text.isdecimal():
        raise BadDecimal(f"{raw.hex().upper()} has a base-100 digit above 99")
    return negative, first - _EXPONENT_0, text


def pack_digits(negative: bool, exponent: int, digits: str, width: int) -> bytes:
    """The packed number of ``width`` bytes: the inverse of ``unpack_digits``; ``digits`` are of even number.

    Raises ValueRange if exponent or digits do not fit.
    """
    packed = bytes.fromhex(digits).translate(_TO_BASE_100).rstrip(b"\0")
    bare = packed.lstrip(b"\0")
    exponent -= len(packed) - len(bare)
    if not bare:
        return bytes([_ZERO]).ljust(width, b"\0")
    if len(bare) >= width or exponent not in _EXPONENTS:
        raise ValueRange(f"the number needs {len(bare)} base-100 digits and exponent {exponent}: too large")
    first = _EXPONENT_0 + exponent
    if negative:
        first ^= 0xFF
        bare = bare[:-1].translate(_NINES) + bare[-1:].translate(_HUNDREDS)
    return (bytes([first]) + bare).ljust(width, b"\0")


def decimal_width(precision: int, scale: int | None) -> int:
    """Bytes of DECIMAL(precision, scale); scale None is floating, which counts as 255."""
    return (precision + (255 if scale is None else scale) % 2 + 3) // 2


def decimal_reader(precision: int, scale: int | None) -> Callable[[bytes], Decimal | None]:
    """Reads packed decimals: with a declared scale at least that many fraction digits, floating (None) no zeros."""
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

    # The common case, positive and of the declared scale, without taking the number apart: by the first byte, where in
    # the hex text of all its bytes the last declared digit is, and the zeros behind that.
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
            digits = raw.translate(TO_DECIMAL).hex()
            if digits[end:] == zeros:
                try:
                    return Decimal(digits[2:end] + point)
                except InvalidOperation:
                    pass
        return read_any(raw)

    return read


def decimal_writer(precision: int, scale: int | None) -> Callable[[Decimal], bytes]:
    """Writes numbers as DECIMAL(precision, scale), None = floating. Raises ValueRange for more digits or scale."""
    width = decimal_width(precision, scale)
    spelled = f"DECIMAL({precision})" if scale is None else f"DECIMAL({precision},{scale})"

    def write(value: Decimal) -> bytes:
        sign, number, exponent = value.as_tuple()
        if not isinstance(exponent, int):
            raise ValueRange(f"{value} is no number that {spelled} holds")
        digits = "".join(map(str, number)).lstrip("0")
        exponent += len(digits) - len(digits := digits.rstrip("0"))
        if not digits:
            return bytes([_ZERO]).ljust(width, b"\0")
        point = len(digits) + exponent
        fits = len(digits) <= precision if scale is None else -exponent <= scale and point <= precision - scale
        if not fits:
            raise ValueRange(f"{value} does not fit {spelled}")
        lead = point % 2
        text = "0" * lead + digits
        return pack_digits(bool(sign), (point + lead) // 2, text + "0" * (len(text) % 2), width)

    return write
