"""The event log on PostgreSQL: read a window, mark, delete (spec/event-log.md 8.1, 8.4).

These statements run for every row that is published, on a table whose statistics are always wrong: it is mostly long
done, and its few rows N come and go faster than ANALYZE. So the planner is given an index and no other choice.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import lru_cache, partial
from importlib import resources
from typing import Any, Final, NamedTuple, cast

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from eventlog.core.values import ColumnType, Kind
from eventlog.errors import DatabaseError
from eventlog.model import QUEUE_FIELDS, LogRow, QueueRow
from eventlog.sql.dialect import LogRows
from eventlog.sql.dialects.postgresql.text import qualified, quote_identifier
from eventlog.sql.log_table import LogTable
from eventlog.sql.windows import DueWindow, Queue, Ranges, Window

_LAST: Final = 2**63 - 1
_UTC_NOW: Final = "(clock_timestamp() AT TIME ZONE 'UTC')"
# The session's own zone is UTC, whatever the server's is: where a session would begin, and the application's do.
_LOCAL_NOW: Final = (
    "(clock_timestamp() AT TIME ZONE (SELECT reset_val FROM pg_catalog.pg_settings WHERE name = 'TimeZone'))"
)
_AS_ROW: Final = partial(tuple.__new__, LogRow)  # what LogRow._make does, without a Python frame a row


def read_window(conn: Connection, log: LogTable, window: Window) -> list[LogRow]:
    """The rows N of a window, in record_id order (spec/event-log.md 8.1)."""
    return _log_rows(conn, log, window.statement, window.parameters(_LAST))


def read_queue(conn: Connection, log: LogTable, window: Window) -> list[QueueRow]:
    """As ``read_window``, of which no more than what is looked at is read, as the driver makes it."""
    _by_index(conn)
    with _without_collector():
        statement = _statement(log, window.statement, QUEUE_FIELDS)
        return cast("list[QueueRow]", fetch(conn, statement, window.parameters(_LAST)))


def window_chunks(conn: Connection, log: LogTable, window: Window, size: int) -> LogRows:
    """The rows of a window by one statement, in lists of ``size``, the last of fewer."""
    return _chunks(conn, log, window.statement, window.parameters(_LAST), size)


def open_writers(conn: Connection, log: LogTable) -> frozenset[str]:
    """The other sessions' transactions that have written the log and are open."""
    found = fetch(conn, _statement(log, "open_writers"), {"log": qualified(log.schema, log.name)})
    return frozenset(name for (name,) in found)


def are_open(conn: Connection, writers: frozenset[str]) -> bool:
    """Whether none of these transactions could be seen by any statement until now."""
    found = fetch(conn, _templates()["are_open"], {"writers": list(writers)})
    return writers <= {name for (name,) in found}


def read_rows(conn: Connection, log: LogTable, ranges: Ranges) -> list[LogRow]:
    """The rows of these record_ids, whatever their status, in record_id order."""
    return _log_rows(conn, log, "read_rows", _bounds(ranges))


def mark(conn: Connection, log: LogTable, letter: str, ranges: Ranges) -> int:
    """Give the rows of these record_ids that still have status N another letter; how many they were."""
    _by_index(conn)
    return conn.exec_driver_sql(_statement(log, "mark"), {**_bounds(ranges), "letter": letter}).rowcount


def delete(conn: Connection, log: LogTable, ranges: Ranges) -> int:
    """Delete the rows of these record_ids that still have status N; how many they were."""
    _by_index(conn)
    return conn.exec_driver_sql(_statement(log, "delete"), _bounds(ranges)).rowcount


def queue(conn: Connection, log: LogTable, event_time_zone: str = "utc") -> Queue:
    """How many rows have status N, and the age of the oldest by the database's clock (spec/event-log.md 11).

    ``event_time_zone``: utc or local, what event_time is in.
    """
    name = "queue_local" if event_time_zone == "local" else "queue"
    rows, oldest = conn.exec_driver_sql(_statement(log, name)).one()
    return Queue(rows, oldest)


def due_until(conn: Connection, log: LogTable, event_time_zone: str = "utc") -> str:
    """The database's clock now, in the terms of event_time: which rows are due (spec/event-log.md 8.1)."""
    name = "due_until_local" if event_time_zone == "local" else "due_until"
    return str(conn.exec_driver_sql(_statement(log, name)).scalar_one())


def due_chunks(conn: Connection, log: LogTable, window: DueWindow, size: int) -> LogRows:
    """The rows N of a window that are due, in the order of event_time and record_id (spec/event-log.md 8.1), by one
    statement, in lists of ``size``, the last of fewer.
    """
    return _chunks(conn, log, "read_due", window.parameters(_LAST), size)


def local_time(conn: Connection) -> datetime:
    """The server's local time now: that of its default time zone, not of the session's."""
    found = conn.exec_driver_sql(f"SELECT {_LOCAL_NOW}").scalar_one()
    assert isinstance(found, datetime)
    return found


def missing_rights(conn: Connection, log: LogTable, deletes: bool) -> list[str]:
    """The rights that this session's role lacks to publish the log, in words; empty if it has them all."""
    needed = [
        ("table", log.name, "SELECT"),
        *([("table", log.name, "DELETE")] if deletes else []),
        ("table", log.error_table, "INSERT"),
        *(("table", log.inflight_table, right) for right in ("SELECT", "INSERT", "UPDATE", "DELETE")),
        ("sequence", log.flight_sequence, "USAGE"),
    ]
    if log.schema is not None and not _has_right(conn, "schema", log.schema, "USAGE"):
        return [f"USAGE on schema {log.schema}"]
    missing = [
        f"{right} on {kind} {name}"
        for kind, name, right in needed
        if not _has_right(conn, kind, qualified(log.schema, name), right)
    ]
    status = log.columns[LogRow._fields.index("status")]
    asked = "SELECT has_column_privilege(%(name)s, %(column)s::text, 'UPDATE')"
    if not conn.exec_driver_sql(asked, {"name": qualified(log.schema, log.name), "column": status}).scalar():
        missing.append(f"UPDATE on column {status} of table {log.name}")
    return missing


def _has_right(conn: Connection, kind: str, name: str, right: str) -> bool:
    statement = f"SELECT has_{kind}_privilege(%(name)s, %(right)s)"
    return bool(conn.exec_driver_sql(statement, {"name": name, "right": right}).scalar())


def _bounds(ranges: Ranges) -> dict[str, Sequence[int]]:
    return {"lo": [first for first, _ in ranges], "hi": [last for _, last in ranges]}


def _log_rows(conn: Connection, log: LogTable, name: str, parameters: Mapping[str, object]) -> list[LogRow]:
    _by_index(conn)
    with _without_collector():
        return list(map(_AS_ROW, fetch(conn, _statement(log, name), parameters)))


def _chunks(conn: Connection, log: LogTable, name: str, parameters: Mapping[str, object], size: int) -> LogRows:
    # A cursor of the server: what comes later is of the same snapshot, and not in memory before it is wanted.
    _by_index(conn)
    statement = f"DECLARE eventlog_rows NO SCROLL CURSOR FOR {_statement(log, name)}"
    conn.exec_driver_sql(statement, dict(parameters))
    is_full = True
    try:
        while is_full:
            with _without_collector():
                chunk = list(map(_AS_ROW, fetch(conn, f"FETCH {size} FROM eventlog_rows", {})))
            is_full = len(chunk) == size
            yield chunk
    except GeneratorExit:
        # Perhaps left by an error, after which the transaction takes no statement and its cursors go with it.
        with suppress(SQLAlchemyError, DatabaseError):
            conn.exec_driver_sql(_CLOSE)
        raise
    # Not in a finally: what fails in the cursor's own statements is the error.
    conn.exec_driver_sql(_CLOSE)


_CLOSE: Final = "CLOSE eventlog_rows"


# What a window would be read by instead: all its rows, sorted, of which the limit then takes the first.
_OTHER_PLANS: Final = ("enable_seqscan", "enable_bitmapscan", "enable_sort")
_BY_INDEX: Final = "eventlog_by_index"


class _ByIndex(NamedTuple):
    """In which transaction or savepoint other plans were switched off, and how these settings were before."""

    transaction: object
    before: Sequence[str]


def _by_index(conn: Connection) -> None:
    """Only plans that walk an index, where there is one: from here on to the end of the transaction, or to
    ``usual_plans``. Said once a transaction, since each time is a round trip.
    """
    if _is_said(conn):
        return
    read = ", ".join(f"current_setting('{name}')" for name in _OTHER_PLANS)
    found = conn.exec_driver_sql(f"SELECT {read}, {_written()}", dict.fromkeys(_OTHER_PLANS, "off")).one()
    conn.info[_BY_INDEX] = _ByIndex(conn.get_nested_transaction() or conn.get_transaction(), found[: len(_OTHER_PLANS)])


def usual_plans(conn: Connection) -> None:
    """Put back what the log's statements have switched off in this transaction: other tables have other plans."""
    if _is_said(conn):
        before = conn.info.pop(_BY_INDEX).before
        conn.exec_driver_sql(f"SELECT {_written()}", dict(zip(_OTHER_PLANS, before, strict=True)))


def _is_said(conn: Connection) -> bool:
    said: _ByIndex | None = conn.info.get(_BY_INDEX)
    if said is None or said.transaction is None:
        return False
    return said.transaction in (conn.get_transaction(), conn.get_nested_transaction())


def _written() -> str:
    return ", ".join(f"set_config('{name}', %({name})s, true)" for name in _OTHER_PLANS)


@contextmanager
def _without_collector() -> Iterator[None]:
    """The garbage collector stands still: a million new tuples make it search all the others, again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def fetch(conn: Connection, statement: str, parameters: Mapping[str, object]) -> list[tuple[Any, ...]]:
    """The rows of a statement as the driver makes them: half the time of SQLAlchemy's, and millions are read."""
    result = conn.exec_driver_sql(statement, dict(parameters))
    try:
        assert result.cursor is not None
        return list(result.cursor.fetchall())
    finally:
        result.close()


@lru_cache(maxsize=1)
def _templates() -> Mapping[str, str]:
    """The statements of log.sql by name."""
    text = resources.files(__package__).joinpath("log.sql").read_text(encoding="utf-8")
    named = (part.partition("\n") for part in text.split("-- name: ")[1:])
    return {name.strip(): statement.strip() for name, _, statement in named}


@lru_cache(maxsize=256)
def _statement(log: LogTable, name: str, read: tuple[str, ...] = LogRow._fields) -> str:
    """A statement of log.sql with the names of this log: all that is put into its text are quoted identifiers."""
    names = {
        field: _escaped(quote_identifier(column)) for field, column in zip(LogRow._fields, log.columns, strict=True)
    }
    types = dict(zip(LogRow._fields, log.types, strict=False))
    fields = ", ".join(_selected(field, names[field], types.get(field)) for field in read)
    time_type = types.get("event_time")
    zoned = time_type is not None and time_type.kind is Kind.TIMESTAMPTZ
    clocks = {
        "time": f"({names['event_time']} AT TIME ZONE 'UTC')" if zoned else f"{names['event_time']}::timestamp",
        "utc_now": _UTC_NOW,
        "local_now": _UTC_NOW if zoned else _LOCAL_NOW,
    }
    return _templates()[name].format(log=_escaped(qualified(log.schema, log.name)), fields=fields, **names, **clocks)


def _escaped(sql: str) -> str:
    """Text of a statement with parameters, where the driver reads ``%``."""
    return sql.replace("%", "%%")


def _selected(field: str, column: str, column_type: ColumnType | None) -> str:
    if field not in ("record_id", "event_type"):
        return f"{column}::text"
    if column_type is not None and column_type.bits:
        return column
    # numeric, which is wider than bigint and knows NaN: what bigint cannot hold is no event type
    return f"CASE WHEN {column} BETWEEN {-_LAST} AND {_LAST} THEN {column}::bigint WHEN {column} IS NOT NULL THEN 0 END"
