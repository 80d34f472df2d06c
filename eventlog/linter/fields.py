"""Values of single columns of the queue (spec/linter-queue.md 2)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from eventlog.errors import ConfigError, ValueRange
from eventlog.linter.errors import BadColumnValue, BadOperDate

DATA_SIZE: Final = 3400
"""Bytes of DATA in one row."""

MASK_64: Final = (1 << 64) - 1

NO_DATE: Final = bytes(6)
"""OPER_DATE of a commit whose time is not known."""

_EPOCH: Final = datetime(1990, 1, 1)
_MICROSECONDS: Final = 1_000_000


class SyslogAddr(NamedTuple):
    """A place in the system log: number of the file and address in it, both unsigned 32-bit."""

    file: int
    address: int


class BlobAttr(NamedTuple):
    """BLOBATR: number of the BLOB's column in its table (ATRNUM), and the type of the BLOB."""

    column: int
    blob_type: int


def oper_date_bytes(value: Any) -> bytes:
    """OPER_DATE as its six bytes, given as bytes or as twelve hex digits. Raises BadOperDate."""
    if isinstance(value, str):
        text = value.strip()
        if len(text) == 12:
            try:
                return bytes.fromhex(text) if text.isalnum() else _bad_oper_date(value)
            except ValueError:
                pass
    elif isinstance(value, bytes | bytearray | memoryview) and len(value) == 6:
        return bytes(value)
    return _bad_oper_date(value)


def _bad_oper_date(value: Any) -> bytes:
    shown = value.hex() if isinstance(value, bytes | bytearray | memoryview) else repr(value)
    raise BadOperDate(f"OPER_DATE {shown[:60]} is neither six bytes nor twelve hex digits")


def decode_oper_date(value: bytes) -> datetime:
    """The local time of the server, naive, to the microsecond (half up), of six bytes."""
    number = int.from_bytes(value, "big")
    seconds, fraction = number >> 16, number & 0xFFFF
    return _EPOCH + timedelta(0, seconds, (fraction * _MICROSECONDS + 0x8000) >> 16)


def encode_oper_date(local: datetime) -> bytes:
    """The six bytes of a local time, naive. Raises ValueRange outside 1990-01-01 to 2126-02-07."""
    since = local - _EPOCH
    seconds = since.days * 86400 + since.seconds
    if not 0 <= seconds < 1 << 32:
        raise ValueRange(f"{local} cannot be an OPER_DATE, which counts seconds from 1990-01-01 in 32 bits")
    fraction = min((since.microseconds * 65536 + 500_000) // _MICROSECONDS, 0xFFFF)
    return (seconds << 16 | fraction).to_bytes(6, "big")


def server_zone(name: str) -> tzinfo:
    """The zone that the server's clock runs in: ``UTC`` or an IANA name. Raises ConfigError."""
    if name.upper() == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError, TypeError):
        raise ConfigError(
            f"timezone {name!r} is unknown; use a name of the time zone database such as UTC or Europe/Moscow"
        ) from None


def to_utc(oper_date: bytes, zone: tzinfo) -> datetime | None:
    """The moment of an OPER_DATE in UTC, of two equal local times the first; None for six zero bytes."""
    if oper_date == NO_DATE:
        return None
    return decode_oper_date(oper_date).replace(tzinfo=zone).astimezone(UTC)


def from_utc(moment: datetime | None, zone: tzinfo) -> bytes:
    """The OPER_DATE of a moment; six zero bytes for None. Raises ValueRange."""
    return NO_DATE if moment is None else encode_oper_date(moment.astimezone(zone).replace(tzinfo=None))


def syslog_addr(value: int) -> SyslogAddr:
    """File and address of SYSLOG_ADDR, which SQL may return negative."""
    value &= MASK_64
    return SyslogAddr(value >> 32, value & 0xFFFFFFFF)


def blob_attr(value: int) -> BlobAttr:
    """Column and BLOB type of BLOBATR, which SQL may return negative."""
    value &= 0xFFFF
    return BlobAttr(value & 0xFF, value >> 8)


def signed(value: int, bits: int) -> int:
    """An unsigned number as a signed column of SQL holds it."""
    return value - (1 << bits) if value >> (bits - 1) else value


def stripped(value: Any) -> str:
    """A CHAR column without its trailing blanks and NUL bytes; NULL is empty. Raises BadColumnValue."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError as error:
            raise BadColumnValue(f"a CHAR column holds bytes that are no UTF-8: {error}") from None
    if not isinstance(value, str):
        raise BadColumnValue(f"a CHAR column holds {value!r:.60}, which is no text")
    return value.rstrip(" \0")


def data_bytes(value: Any) -> bytes:
    """DATA as bytes, given as bytes or as hex digits; NULL is empty. Raises BadColumnValue."""
    if value is None:
        return b""
    if isinstance(value, str):
        try:
            return bytes.fromhex(value)
        except ValueError as error:
            raise BadColumnValue(f"DATA given as text is no hex digits: {error}") from None
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise BadColumnValue(f"DATA holds {value!r:.60}, which is neither bytes nor hex digits")


def integer(name: str, value: Any) -> int:
    """A whole number, given as such or as decimal text. Raises BadColumnValue naming the column."""
    try:
        number = int(value)
        if isinstance(value, str | int) or number == value:
            return number
    except (TypeError, ValueError, OverflowError, ArithmeticError):
        pass
    raise BadColumnValue(f"column {name} holds {value!r:.60}, which is no whole number")
