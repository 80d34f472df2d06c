"""Values in Avro's binary encoding, as bytes that are put together to records (Avro specification, Binary encoding).

Data messages and keys are written with it: their schemas are our own, so that the order and type of each value is
known beforehand. What it writes is what fastavro writes under those schemas.
"""

from __future__ import annotations

from math import copysign, inf
from struct import pack
from typing import Final

from eventlog.errors import NotExpressible

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
