"""The time at which a new reader of a log begins, as an option's value (spec/event-log.md 13.2)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

EXAMPLE: Final = "2026-11-20T08:00Z"


def parse_start_time(value: Any) -> str:
    """Return a time as it is recorded: in UTC, with the digits beyond milliseconds cut off.

    ``value`` is a text in ISO 8601 or a datetime. Raises ValueError for another value, and for a
    time without a zone.
    """
    # An exception without a text: the caller then names what is legal.
    try:
        time = value if isinstance(value, datetime) else datetime.fromisoformat(str(value).strip())
        utc = time.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        raise ValueError from None
    if time.tzinfo is None:
        raise ValueError
    return utc.isoformat(timespec="milliseconds").removesuffix(".000") + "Z"


def start_time_of(begins: str) -> datetime | None:
    """Return the time at which a reader begins, without a zone, in UTC. Return None if ``begins``
    is a word or a record_id.
    """
    if not begins.endswith("Z"):
        return None
    return datetime.fromisoformat(begins).replace(tzinfo=None)
