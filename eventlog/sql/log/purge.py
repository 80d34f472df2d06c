"""Remove old rows of a log, and old rows of its error table (spec/event-log.md 10, 11).

An entry of ``<log>_state`` records what was removed, so that the next purge does not read the
removed ranges again: while an old database snapshot is open, the dead rows are still in the table
and its index.

No function commits: the caller decides what belongs to one transaction.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from eventlog.core.ranges import Range, RecordSet, decode
from eventlog.errors import DatabaseError
from eventlog.sql.log.epoch import note_removed
from eventlog.sql.log.errors import errors_of
from eventlog.sql.log.internal_tables import (
    EntryKind,
    add_entry,
    delete_entry,
    next_number,
    read_entries,
    unreadable,
)
from eventlog.sql.log.rows import (
    APPLIED,
    Condition,
    column_of,
    flag,
    is_in,
    rows_of,
    runs_of_ranges,
)
from eventlog.sql.port.driver_errors import TO_THE_PRIMARY, is_refused
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.rights import Purpose

_MAX_PURGED: Final = 1000
"""The maximum number of ranges in the entry. The next purge reads further ranges again."""


class Purged(NamedTuple):
    """The result of purging one batch."""

    last: int
    """The highest record_id that the batch has read."""
    rows_checked: int
    """The number of rows read."""
    removed: int
    """The number of rows that were removed, or that would be removed."""
    kept: Mapping[str, int] = MappingProxyType({})
    """By consumer, the number of rows that are kept because the consumer has not done them."""
    young: int = 0
    """The number of rows at the end of the batch that are too young."""
    gone: Sequence[Range] = ()
    """The ranges of record_ids in which the batch left no row."""


class PurgedRows(NamedTuple):
    """The ranges of record_ids that earlier purges have emptied since ``whole``. This is the time
    (UTC) when a purge last began with the first row.
    """

    rows: RecordSet
    whole: datetime


def purge_cutoff(log: OpenLog, event_time_zone: str, age: timedelta) -> tuple[datetime, datetime]:
    """Return two moments: rows from before the first moment, and error rows from before the second,
    are older than ``age``. The first moment is in the form of event_time, the second in UTC.
    """
    here = datetime.fromisoformat(log.due_until(event_time_zone))
    return _before(here, age), _before(log.db.utc_now(), age)


def highest_id(log: OpenLog) -> int:
    """Return the highest record_id, 0 if there is no row."""
    return int(
        log.connection.execute(sa.select(sa.func.max(column_of(log.table, "record_id")))).scalar()
        or 0
    )


def _before(now: datetime, age: timedelta) -> datetime:
    earliest = now.replace(year=1, month=1, day=1)
    return now - age if now - earliest > age else earliest


def check_purge_rights(log: OpenLog) -> None:
    """Raise DatabaseError if the database cannot be written, and LogTableError if this session
    lacks rights for a purge. The LogTableError names the missing rights.
    """
    if why := log.db.read_only():
        raise DatabaseError(
            f"the log {log} cannot be purged on this server: {why}; {TO_THE_PRIMARY}"
        )
    log.check_rights(Purpose.PURGE)


def purge_rows(
    log: OpenLog,
    between: Range,
    size: int,
    older_than: datetime,
    kept: Collection[int],
    done: Mapping[str, RecordSet] = MappingProxyType({}),
    *,
    dry: bool,
) -> Purged | None:
    """Purge one batch of the rows between two record_ids; return None if there is no row
    (spec/event-log.md 2).

    The function removes only rows of status S and W whose event_time is before ``older_than``. Rows
    stay if their record_ids are in ``kept``, or if a consumer has not ``done`` them. The batch has
    at most ``size`` rows, so the work does not grow with the log. With ``dry`` the function only
    counts the rows.
    """
    record_id = column_of(log.table, "record_id")
    is_old = column_of(log.table, "event_time") < older_than
    is_done = column_of(log.table, "status").in_(APPLIED)
    read = log.connection.execute(
        sa.select(record_id, flag(is_old), flag(sa.and_(is_old, is_done)))
        .where(record_id.between(*between))
        .order_by(record_id)
        .limit(size)
    ).all()
    if not read:
        return None
    old = [int(number) for number, _, may_go in read if may_go and number not in kept]
    for_whom: dict[str, int] = {}
    for name, record_set in done.items():
        ready = [number for number in old if number in record_set]
        if len(ready) < len(old):
            for_whom[name], old = len(old) - len(ready), ready
    last = int(read[-1][0])
    young = next((place for place, row in enumerate(reversed(read)) if row[1]), len(read))
    if dry or not old:
        return Purged(last, len(read), len(old), for_whom, young)
    # Only these rows are removed, and only if they still have the status that was read: there may
    # be new rows or other statuses by now.
    removed = sum(
        _deleted(log.connection, rows_of(log.table), [is_in(log.table, ranges), is_done, is_old])
        for ranges in runs_of_ranges(old)
    )
    if removed:
        note_removed(log, old[-1])
    stayed = sorted({int(row[0]) for row in read}.difference(old))
    gone = _holding(old, between[0], last, stayed) if removed == len(old) else ()
    return Purged(last, len(read), removed, for_whom, young, gone)


def _holding(removed: Sequence[int], first: int, last: int, stayed: Sequence[int]) -> list[Range]:
    """Divide the range from ``first`` to ``last`` at the rows that ``stayed``, and return the parts
    that contain a removed row. Arguments and result are in ascending order.
    """
    begins, ends = [first, *(one + 1 for one in stayed)], [*(one - 1 for one in stayed), last]
    return [
        (begin, end)
        for begin, end in zip(begins, ends, strict=True)
        if bisect_left(removed, begin) < bisect_right(removed, end)
    ]


def purge_errors(
    log: OpenLog,
    after: int | None,
    size: int,
    event_time: datetime,
    error_time: datetime,
    is_needed: Callable[[int], bool] = lambda _: False,
    *,
    dry: bool,
) -> Purged | None:
    """Purge one batch of the error table after record_id ``after``; return None at the table's end.

    The function removes error rows that are older than ``error_time`` and whose log rows no longer
    exist. With ``dry`` the function only counts error rows, including the error rows of the log
    rows that a purge would remove first: rows of status S and W older than ``event_time`` whose
    record_ids are not needed.
    """
    errors = errors_of(log.table)
    record_id = errors.c.record_id
    behind = [] if after is None else [record_id > after]
    ids = sa.select(record_id.label("record_id")).where(*behind).order_by(record_id).limit(size)
    batch = ids.subquery()
    number, last = log.connection.execute(
        sa.select(sa.func.count(), sa.func.max(batch.c.record_id)).select_from(batch)
    ).one()
    if not number:
        return None
    row_id = column_of(log.table, "record_id")
    row = sa.select(sa.literal(1)).select_from(rows_of(log.table)).where(row_id == record_id)
    old = [*behind, record_id <= last, errors.c.error_time < error_time]
    if not dry:
        # A done row is kept as long as a consumer needs it, and so are its error rows: the receiver
        # of another consumer may have refused the row, and requeue may request to send it again.
        removed = _deleted(log.connection, errors, [*old, ~sa.exists(row)])
        return Purged(int(last), int(number), removed)
    is_done = column_of(log.table, "status").in_(APPLIED)
    is_removed = sa.and_(is_done, column_of(log.table, "event_time") < event_time)
    # A row without a time is never removed, and the condition is unknown for it.
    stays = sa.case((is_removed, 0), else_=1) == 1
    read = log.connection.execute(sa.select(record_id).where(*old, ~sa.exists(row.where(stays))))
    return Purged(int(last), int(number), sum(not is_needed(int(one)) for (one,) in read))


def _deleted(conn: Connection, table: sa.TableClause, conditions: Sequence[Condition]) -> int:
    return conn.execute(sa.delete(table).where(*conditions)).rowcount


# --- the record of what was removed --------------------------------------------------------


def read_purged(log: OpenLog) -> PurgedRows | None:
    """Return the ranges that earlier purges have removed, None if there is no record of them.

    Raises DatabaseError for an unreadable entry.
    """
    entries = read_entries(log, EntryKind.REMOVED)
    if not entries:
        return None
    newest = entries[-1]
    try:
        content = json.loads(newest.content)
        return PurgedRows(decode(str(content["rows"])), datetime.fromisoformat(content["whole"]))
    except (TypeError, ValueError, KeyError) as error:
        raise unreadable(log, EntryKind.REMOVED, newest.number, error) from None


def write_purged(log: OpenLog, purged: PurgedRows) -> None:
    """Record what purges have removed, in place of the earlier record.

    A role that may not write the entry records nothing; the next purge then reads more.
    """
    known = RecordSet(purged.rows.floor, purged.rows.ranges[:_MAX_PURGED])
    content = {"rows": known.encode(), "whole": purged.whole.isoformat()}
    try:
        with log.connection.begin_nested():
            for former in read_entries(log, EntryKind.REMOVED):
                delete_entry(log, EntryKind.REMOVED, former.number)
            text = json.dumps(content, separators=(",", ":"))
            add_entry(log, EntryKind.REMOVED, next_number(log), text)
    except DBAPIError as error:
        if not is_refused(log.connection, error):
            raise
