"""Remove processed rows by age, batch by batch: S and W, and no other letter (spec/event-log.md 2).

A batch looks at a bounded number of rows in record_id order, from where the one before ended, so that its work does not
grow with the log. No function commits.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection

from eventlog.errors import DatabaseAway, DatabaseError
from eventlog.model import Status
from eventlog.sql.connection import TO_THE_PRIMARY, as_database_errors
from eventlog.sql.dialect import Dialect
from eventlog.sql.log_table import LogTable
from eventlog.sql.rows import column_of, count, errors_of, rows_of

REMOVED: Final = (Status.SUCCESS, Status.WARNING)
"""The letters of rows that are done for good."""


class Purged(NamedTuple):
    """What one batch did: the highest record_id it looked at, how many lines, and how many of them went (or would)."""

    last: int
    looked_at: int
    removed: int


def cutoff(
    conn: Connection, dialect: Dialect, log: LogTable, event_time_zone: str, age: timedelta
) -> tuple[datetime, datetime]:
    """The moments before which rows and error lines are older than ``age``: in the terms of event_time, and in UTC."""
    here = datetime.fromisoformat(dialect.due_until(conn, log, event_time_zone))
    utc = conn.execute(sa.select(sa.literal_column(dialect.utc_now, sa.TIMESTAMP()))).scalar_one()
    return _before(here, age), _before(utc, age)


def _before(now: datetime, age: timedelta) -> datetime:
    earliest = now.replace(year=1, month=1, day=1)
    return now - age if now - earliest > age else earliest


def check_rights(conn: Connection, dialect: Dialect, log: LogTable) -> None:
    """Raise DatabaseError that names the table from which this session may not delete, or why it can write nothing."""
    if why := dialect.read_only(conn):
        raise DatabaseError(f"the log {log} cannot be purged here: {why}; {TO_THE_PRIMARY}")
    for table in (rows_of(log), errors_of(log)):
        try:
            with as_database_errors(conn), conn.begin_nested():
                conn.execute(sa.delete(table).where(sa.false()))
        except DatabaseAway:
            raise
        except DatabaseError as error:
            raise DatabaseError(
                f"user {dialect.current_user(conn)} lacks the right DELETE on {table.name} ({error}): purge as its "
                "owner, or have it granted"
            ) from error


def extent(conn: Connection, log: LogTable) -> tuple[int, int] | None:
    """The lowest and the highest positive record_id; None if there is none."""
    record_id = column_of(log, "record_id")
    lowest, highest = conn.execute(sa.select(sa.func.min(record_id), sa.func.max(record_id)).where(record_id > 0)).one()
    return None if lowest is None else (int(lowest), int(highest))


def purge_rows(
    conn: Connection, log: LogTable, after: int, size: int, older_than: datetime, kept: Collection[int], *, dry: bool
) -> Purged | None:
    """One batch of the log behind record_id ``after``; None at its end.

    Removes rows S and W whose event_time lies before ``older_than``, but for the record_ids ``kept``. ``dry``: counts
    them only.
    """
    record_id = column_of(log, "record_id")
    batch = _next(conn, record_id, record_id > after, size)
    if batch is None:
        return None
    number, last = batch
    old = [record_id.between(after + 1, last), *_is_old(log, older_than)]
    if spared := [one for one in kept if after < one <= last]:
        old.append(record_id.not_in(spared))
    return Purged(last, number, _remove(conn, rows_of(log), old, dry))


def purge_errors(
    conn: Connection,
    log: LogTable,
    after: int | None,
    size: int,
    event_time: datetime,
    error_time: datetime,
    *,
    dry: bool,
) -> Purged | None:
    """One batch of the error table behind record_id ``after``; None at its end.

    Removes lines older than ``error_time`` whose rows are gone, or go as well since they are older than ``event_time``.
    """
    errors = errors_of(log)
    record_id = errors.c.record_id
    behind = sa.true() if after is None else record_id > after
    batch = _next(conn, record_id, behind, size)
    if batch is None:
        return None
    number, last = batch
    stays = sa.not_(sa.and_(*_is_old(log, event_time)))
    row = sa.select(sa.literal(1)).select_from(rows_of(log)).where(column_of(log, "record_id") == record_id, stays)
    old = [behind, record_id <= last, errors.c.error_time < error_time, ~sa.exists(row)]
    return Purged(last, number, _remove(conn, errors, old, dry))


def _is_old(log: LogTable, older_than: datetime) -> list[sa.ColumnElement[bool]]:
    return [column_of(log, "status").in_(REMOVED), column_of(log, "event_time") < older_than]


def _next(
    conn: Connection, record_id: sa.ColumnElement[Any], behind: sa.ColumnElement[bool], size: int
) -> tuple[int, int] | None:
    """How many lines the next batch has, and its highest record_id."""
    ids = sa.select(record_id.label("record_id")).where(behind).order_by(record_id).limit(size).subquery()
    number, last = conn.execute(sa.select(sa.func.count(), sa.func.max(ids.c.record_id)).select_from(ids)).one()
    return (int(number), int(last)) if number else None


def _remove(conn: Connection, table: sa.TableClause, old: list[sa.ColumnElement[bool]], dry: bool) -> int:
    if dry:
        return count(conn, table, old)
    return conn.execute(sa.delete(table).where(*old)).rowcount
