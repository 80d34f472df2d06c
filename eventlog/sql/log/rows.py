"""Find the rows of a log by their record_ids, and count them (spec/event-log.md 10, 11).

Every database understands the statements of this module. The statements of reading, marking and
other hot paths are in the dialect.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from eventlog.core.ranges import Ranges, to_ranges
from eventlog.errors import LogTableError
from eventlog.model import Status, unpadded
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.quoted_names import quoted, schema_of
from eventlog.sql.port.sql_files import in_parts

Condition = sa.ColumnElement[bool]
"""A condition of a statement."""
Expression = sa.ColumnElement[Any]
"""A column of a statement, or an expression in its place."""

STATUS_NEW: Final[sa.ColumnElement[str]] = sa.literal_column(f"'{Status.NEW}'")
ONE, ZERO = sa.literal_column("1", sa.Integer()), sa.literal_column("0", sa.Integer())
NEVER: Final[Condition] = ONE == ZERO
"""A condition that is never true, in a form that every database accepts: Oracle does not accept a
plain number as a condition.
"""
APPLIED: Final = (Status.SUCCESS, Status.WARNING)
FAILED: Final = (Status.ERROR, Status.FATAL)


@lru_cache(maxsize=32)
def rows_of(log: LogTable) -> sa.TableClause:
    """Return the log with its columns for a statement."""
    own = () if log.transaction_column is None else (log.transaction_column,)
    return sa.table(
        quoted(log.name),
        *(sa.column(quoted(column)) for column in (*log.columns, *own)),
        schema=schema_of(log),
    )


def column_of(log: LogTable, field: str) -> Expression:
    """Return the column of ``rows_of`` that holds a field of ``LogRow``."""
    return rows_of(log).c[log.column(field)]


def tail(log: OpenLog) -> int | None:
    """Return the highest record_id with status N, None if there is none."""
    place, is_new = _queued(log)
    statement = sa.select(place).where(*is_new, place > 0).order_by(place.desc()).limit(1)
    highest = log.connection.execute(statement).scalar()
    return None if highest is None else readable_id(int(highest), log)


def refuse_large_ids(log: OpenLog) -> None:
    """Raise LogTableError if the log has a row whose record_id is too large to be read
    (spec/event-log.md 1.4). Nothing is read if the column's type cannot hold a number that is too
    large.
    """
    column_type = log.table.type_of("record_id")
    if column_type is None or (column_type.bits and "unsigned" not in column_type.sql):
        return
    highest = log.connection.execute(
        sa.select(sa.func.max(column_of(log.table, "record_id")))
    ).scalar()
    if highest is not None:
        readable_id(int(highest), log)


def readable_id(record_id: int, log: OpenLog) -> int:
    """Return ``record_id`` unchanged. Raises LogTableError if it is too large to be read."""
    last = log.dialect.last_record_id
    if record_id > last:
        raise LogTableError(
            f"the log {log} has a row with {log.table.column('record_id')} = {record_id}, above "
            f"{last} (2^63 - 1), the greatest possible record_id: restart the sequence of its rows "
            "below this number, and delete or renumber the rows above it"
        )
    return record_id


def extent(log: OpenLog) -> tuple[int, int] | None:
    """Return the lowest and the highest positive record_id, None if there is none."""
    record_id = column_of(log.table, "record_id")
    lowest, highest = log.connection.execute(
        sa.select(sa.func.min(record_id), sa.func.max(record_id)).where(record_id > 0)
    ).one()
    return None if lowest is None else (int(lowest), int(highest))


def count_queue(log: OpenLog, most: int) -> int:
    """Count the rows of status N with the queue's index, up to ``most``."""
    place, is_new = _queued(log)
    first = sa.select(place.label("place")).where(*is_new).order_by(place).limit(most)
    return count(log.connection, first.subquery())


def _queued(log: OpenLog) -> tuple[Expression, list[Condition]]:
    """Return the record_id in the form in which the queue's index contains it, and the conditions
    that select rows of status N.
    """
    record_id, status = column_of(log.table, "record_id"), column_of(log.table, "status")
    if log.dialect.queue_by_expression:
        place = sa.case((STATUS_NEW, record_id), value=status)
        return place, [place.is_not(None)]
    return record_id, [status == STATUS_NEW]


def count(conn: Connection, table: sa.FromClause, conditions: Iterable[Condition] = ()) -> int:
    """Return the number of rows of a table."""
    return int(
        conn.execute(sa.select(sa.func.count()).select_from(table).where(*conditions)).scalar_one()
    )


def count_by_status(log: OpenLog) -> dict[str, int]:
    """Return the number of rows of each status, without trailing blanks.

    Reads the whole log.
    """
    status = column_of(log.table, "status")
    counts: Counter[str] = Counter()
    for value, number in log.connection.execute(
        sa.select(status, sa.func.count()).group_by(status)
    ):
        counts[unpadded(value)] += number
    return dict(counts)


def count_newest(log: OpenLog, most: int) -> list[tuple[str | None, str, int]]:
    """Count the newest ``most`` rows of the log by table_name and status.

    Return table_name, status without trailing blanks, and number, sorted in this order.
    """
    record_id = column_of(log.table, "record_id")
    newest = (
        sa.select(
            column_of(log.table, "table_name").label("table_name"),
            column_of(log.table, "status").label("status"),
        )
        .where(record_id.is_not(None))
        .order_by(record_id.desc())
        .limit(most)
        .subquery()
    )
    counted = sa.select(newest.c.table_name, newest.c.status, sa.func.count()).group_by(*newest.c)
    counts: Counter[tuple[str | None, str]] = Counter()
    for table_name, status, number in log.connection.execute(counted):
        counts[table_name, unpadded(status)] += number
    return sorted(
        ((*kind, number) for kind, number in counts.items()), key=lambda one: (one[0] or "", one[1])
    )


def is_in(log: LogTable, ids: Ranges) -> Condition:
    """Return the condition that a row's record_id is in one of the ranges."""
    return is_within(column_of(log, "record_id"), ids) if ids else NEVER


def is_within(column: Expression, ranges: Ranges) -> Condition:
    """Return the condition that a column is in one of the ranges; at least one range is needed."""
    return sa.or_(*(column.between(first, last) for first, last in ranges))


def flag(condition: Condition) -> sa.ColumnElement[int]:
    """Return a condition as a column, 1 or 0: Oracle before 23 accepts no condition as a column."""
    return sa.case((condition, ONE), else_=ZERO)


MAX_RANGES: Final = 500
"""The number of ranges of record_ids in one statement: SQLite accepts expressions of at most a
thousand parts.
"""


def runs_of_ranges(ids: Sequence[int]) -> Iterator[Ranges]:
    """Return lists of ranges from ascending record_ids, each list as long as one
    statement accepts.
    """
    return in_parts(to_ranges(ids), MAX_RANGES)


def newest_failed_rows(log: OpenLog, most: int, after: int = 0) -> list[int]:
    """Return the record_ids of the newest rows E and F after a record_id, in ascending order. At
    most ``most`` record_ids are returned.
    """
    record_id, status = column_of(log.table, "record_id"), column_of(log.table, "status")
    newest = (
        sa.select(record_id)
        .where(status.in_(FAILED), record_id > after)
        .order_by(record_id.desc())
        .limit(most)
    )
    return sorted(int(row) for row in log.connection.execute(newest).scalars())
