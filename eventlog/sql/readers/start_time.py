"""The row at which reading from a time begins (spec/event-log.md 13.2).

Record_ids ascend, but the event_times of neighbouring rows may not: all rows of a long statement
have the time of its beginning, but draw their record_ids later. So a binary search only finds a row
that is old enough to prove that all rows before it are older than the time. From this row on, the
first row of the time or later is searched row by row.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from eventlog.errors import ConfigError
from eventlog.sql.log.epoch import read_removed
from eventlog.sql.log.errors import TICK
from eventlog.sql.log.rows import extent
from eventlog.sql.port.open_log import OpenLog

LONGEST_STATEMENT: Final = timedelta(days=1)
"""The longest time between the event_time of a row and the moment when it gets its record_id."""
_SUMMER_TIME: Final = timedelta(hours=1)


def first_row_from(log: OpenLog, time: datetime, event_time_zone: str) -> int | None:
    """Return the lowest record_id of the rows whose event_time is ``time`` or later, or is
    missing; None if all rows are earlier.

    ``time`` is naive UTC, ``event_time_zone`` is the option of ``[publisher]``. Raises ConfigError
    if the time is in the future, or if a row that was removed from the log may be of this time or
    later.
    """
    now = log.db.utc_now().replace(tzinfo=None)
    if time > now:
        raise ConfigError(
            f"start_from = {_shown(time)} is in the future: the database's time is {_shown(now)}. "
            'Use an earlier time, or "latest"'
        )
    offset = _offset(log, now, event_time_zone)
    removed = read_removed(log)
    found = extent(log)
    lowest, highest = found or (1, 0)
    proof = _row_before(
        log, _text(time, offset, LONGEST_STATEMENT), max(lowest, removed + 1), highest
    )
    if removed and proof is None:
        raise ConfigError(_refusal(log, time, offset, removed, highest))
    first = lowest if proof is None else proof + 1
    return log.next_not_before(_text(time, offset), first, highest)


def _row_before(log: OpenLog, until: str, low: int, high: int) -> int | None:
    """Return the highest record_id between two record_ids for which a binary search finds a row
    that is not later than ``until``; None if it finds no row.
    """
    found = None
    while low <= high:
        middle = (low + high) // 2
        row = log.next_row(until, middle, high)
        if row is not None and row.is_before:
            found, low = row.record_id, row.record_id + 1
        else:
            high = middle - 1
    return found


def _offset(log: OpenLog, now: datetime, event_time_zone: str) -> timedelta:
    """Return an offset that converts UTC to the time that the log's clock showed at that moment, or
    to an earlier time.
    """
    if log.table.zone_of_times(event_time_zone) == "utc":
        return timedelta()
    here = datetime.fromisoformat(log.due_until(event_time_zone)[:26]).replace(tzinfo=None)
    minutes = round((here - now).total_seconds() / 60)
    # It is unknown whether summer time was in force at that time.
    return timedelta(minutes=minutes) - _SUMMER_TIME


def _text(time: datetime, offset: timedelta, before: timedelta = TICK) -> str:
    """Return a time of the log's clock as text. Rows up to this text are before ``time``."""
    try:
        return (time + offset - before).isoformat(" ", "milliseconds")
    except OverflowError:
        return datetime.min.isoformat(" ", "milliseconds")


def _refusal(log: OpenLog, time: datetime, offset: timedelta, removed: int, highest: int) -> str:
    said = (
        f"start_from = {_shown(time)}: rows up to record_id {removed} were removed from the log "
        f"{log}, and some of them may be of this time or later, so a reader that starts there "
        "could miss them. "
    )
    earliest = _earliest_start(log, offset, removed, highest)
    if earliest is not None:
        said += f"The earliest possible time is {_shown(earliest)}. Use this or a later time"
    else:
        said += (
            "No time is possible yet: all rows that the log still has are less than a day old. "
            f"Use the record_id {removed + 1}"
        )
    return f'{said}, or "earliest" (the rows that the log still has)'


def _earliest_start(log: OpenLog, offset: timedelta, removed: int, highest: int) -> datetime | None:
    """Return the earliest time that would not be refused, None if there is no such time up to the
    present.
    """
    row = log.next_row(_text(datetime.max, timedelta()), removed + 1, highest)
    if row is None or not row.is_before:
        return None
    ((_, text),) = log.read_columns([(row.record_id, row.record_id)], ("record_id", "event_time"))
    try:
        moment = datetime.fromisoformat(str(text)[:26]).replace(tzinfo=None)
    except ValueError:
        return None
    # The search finds this row first only if no later row is older.
    earliest = moment - offset + LONGEST_STATEMENT + timedelta(seconds=1)
    earliest = earliest.replace(microsecond=0)
    return earliest if earliest <= log.db.utc_now().replace(tzinfo=None) else None


def _shown(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds").removesuffix(".000") + "Z"
