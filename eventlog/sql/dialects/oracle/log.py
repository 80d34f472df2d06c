"""The event log on Oracle: read a window, mark, delete (spec/event-log.md 8.1, 8.4)."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from functools import lru_cache, partial
from typing import Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from eventlog.core.catalog import Column
from eventlog.core.values import ColumnType, Kind
from eventlog.model import LogRow, QueueRow, queue_rows
from eventlog.sql.dialect import LogRows
from eventlog.sql.dialects.oracle.ddl import flight_sequence
from eventlog.sql.dialects.oracle.session import chunks, error_code, fetch, fetch_chunks, many, statements
from eventlog.sql.dialects.oracle.text import qualified, quote_identifier, value_text
from eventlog.sql.log_table import LogTable
from eventlog.sql.windows import DueWindow, Queue, Ranges, Window

LAST: Final = 10**38 - 1
"""The greatest record_id that the log's column holds."""
_UTC_NOW: Final = "SYS_EXTRACT_UTC(SYSTIMESTAMP)"
_LOCAL_NOW: Final = "CAST(SYSTIMESTAMP AS TIMESTAMP)"  # of the server's own zone, not of the session's
_AS_ROW: Final = partial(tuple.__new__, LogRow)  # what LogRow._make does, without a Python frame a row


def read_window(conn: Connection, log: LogTable, window: Window) -> list[LogRow]:
    """The rows N of a window, in record_id order (spec/event-log.md 8.1)."""
    return _log_rows(conn, log, window.statement, window.parameters(LAST))


def read_queue(conn: Connection, log: LogTable, window: Window) -> list[QueueRow]:
    """What is looked at of the rows of ``read_window``."""
    return list(queue_rows(read_window(conn, log, window)))


def window_chunks(conn: Connection, log: LogTable, window: Window, size: int) -> LogRows:
    """The rows of a window by one statement, in lists of ``size``, the last of fewer."""
    return _chunks(conn, log, window.statement, window.parameters(LAST), size)


def open_writers(_conn: Connection, _log: LogTable) -> None:
    """Cannot be told: who looks at the transactions of others needs rights on V$ views."""


def are_open(_conn: Connection, _writers: frozenset[str]) -> bool:
    """No, for what is known of them."""
    return False


def read_rows(conn: Connection, log: LogTable, ranges: Ranges) -> list[LogRow]:
    """The rows of these record_ids, whatever their status, in record_id order.

    A statement each for the long ranges; the ids of the short ones, of which there may be thousands, in IN lists.
    """
    rows: list[LogRow] = []
    short: list[int] = []
    for first, last in ranges:
        if last - first < _SHORT:
            short += range(first, last + 1)
        else:
            rows += _log_rows(conn, log, "read_rows", {"first": first, "last": last})
    for ids in chunks(short):
        binds = {f"id{place}": record_id for place, record_id in enumerate(ids)}
        rows += _log_rows(conn, log, "read_ids", binds, ids=", ".join(f":{bind}" for bind in binds))
    return sorted(rows)


_SHORT: Final = 50
"""How many record_ids a range has that is read id by id."""


def mark(conn: Connection, log: LogTable, letter: str, ranges: Ranges) -> int:
    """Give the rows of these record_ids that still have status N another letter; how many they were."""
    rows = [{"letter": letter, "first": first, "last": last} for first, last in ranges]
    return many(conn, statement(log, "mark"), rows)


def delete(conn: Connection, log: LogTable, ranges: Ranges) -> int:
    """Delete the rows of these record_ids that still have status N; how many they were."""
    return many(conn, statement(log, "delete"), [{"first": first, "last": last} for first, last in ranges])


def queue(conn: Connection, log: LogTable, event_time_zone: str = "utc") -> Queue:
    """How many rows have status N, and the age of the oldest by the database's clock (spec/event-log.md 11).

    ``event_time_zone``: utc or local, what event_time is in.
    """
    ((rows, oldest),) = fetch(conn, statement(log, "queue", event_time_zone))
    return Queue(int(rows), None if oldest is None else float(oldest))


def due_until(conn: Connection, log: LogTable, event_time_zone: str = "utc") -> str:
    """The database's clock now, in the terms of event_time: which rows are due (spec/event-log.md 8.1)."""
    ((now,),) = fetch(conn, statement(log, "due_until", event_time_zone))
    return str(now)


def due_chunks(conn: Connection, log: LogTable, window: DueWindow, size: int) -> LogRows:
    """The rows N of a window that are due, in the order of event_time and record_id (spec/event-log.md 8.1), by one
    statement, in lists of ``size``, the last of fewer.
    """
    parameters = window.parameters(LAST)
    if window.after is not None and window.after[0] is not None:
        # Of a log whose event_time has a zone: it is compared in UTC.
        parameters["after_time"] = window.after[0].removesuffix("Z")
    return _chunks(conn, log, "read_due", parameters, size)


def local_time(conn: Connection) -> datetime:
    """The server's local time now: that of its own zone, not of the session's."""
    ((found,),) = fetch(conn, f"SELECT {_LOCAL_NOW} FROM DUAL")  # noqa: S608 - a constant
    assert isinstance(found, datetime)
    return found


def missing_rights(conn: Connection, log: LogTable, deletes: bool) -> list[str]:
    """The rights that this session's user lacks to publish the log, in words; empty if it has them all.

    Each is tried by a statement that changes nothing: rights come by roles and by system privileges as well.
    """
    status = log.columns[LogRow._fields.index("status")]
    inflight = ("SELECT", "INSERT", "UPDATE", "DELETE")
    missing = lacking(conn, log, log.name, ("SELECT", "UPDATE", *(["DELETE"] if deletes else [])), status)
    missing += lacking(conn, log, log.error_table, ("INSERT",), "RECORD_ID")
    missing += lacking(conn, log, log.inflight_table, inflight, "FLIGHT_NO")
    if not may_run(conn, f"SELECT {flight_sequence(log)}.NEXTVAL FROM DUAL WHERE 1 = 0"):  # noqa: S608 - a quoted name
        missing.append(f"SELECT on sequence {log.flight_sequence}")
    return missing


_TRIED: Final = {
    "SELECT": "SELECT 1 FROM {table} WHERE 1 = 0",
    "INSERT": "INSERT INTO {table} ({column}) SELECT NULL FROM DUAL WHERE 1 = 0",
    "UPDATE": "UPDATE {table} SET {column} = {column} WHERE 1 = 0",
    "DELETE": "DELETE FROM {table} WHERE 1 = 0",
}


def lacking(conn: Connection, log: LogTable, table: str, rights: Sequence[str], column: str) -> list[str]:
    """Which of the rights on a table of a log this session lacks, in words. ``column``: one to try them on."""
    names = {"table": qualified(log.schema, table), "column": quote_identifier(column)}
    return [f"{right} on table {table}" for right in rights if not may_run(conn, _TRIED[right].format(**names))]


_NO_RIGHT: Final = frozenset({942, 1031, 2289, 41900})  # no such table (or no right to see it), no right, no sequence
_READ_ONLY: Final = 1456  # found when the statement runs, as in doctor's transaction: the rights are looked at before


def may_run(conn: Connection, statement: str) -> bool:
    """Whether this session has the rights to run a statement that changes nothing."""
    try:
        conn.exec_driver_sql(statement, execution_options={"no_parameters": True}).close()
    except DBAPIError as error:
        code = error_code(error)
        if code not in _NO_RIGHT and code != _READ_ONLY:
            raise
        return code == _READ_ONLY
    return True


def _log_rows(
    conn: Connection, log: LogTable, name: str, parameters: Mapping[str, object], ids: str = ""
) -> list[LogRow]:
    with _without_collector():
        return list(map(_AS_ROW, fetch(conn, statement(log, name, ids=ids), parameters)))


def _chunks(conn: Connection, log: LogTable, name: str, parameters: Mapping[str, object], size: int) -> LogRows:
    with closing(fetch_chunks(conn, statement(log, name), parameters, size)) as found:
        for rows in found:
            yield list(map(_AS_ROW, rows))


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


# --- statements -------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def statement(log: LogTable, name: str, event_time_zone: str = "utc", ids: str = ":id0") -> str:
    """A statement of log.sql with the names of this log: what is put into its text are quoted identifiers and binds.

    ``event_time_zone``: utc or local; ``ids``: the binds of an IN list.
    """
    names = dict(zip(LogRow._fields, map(quote_identifier, log.columns), strict=True))
    types = dict(zip(LogRow._fields, log.types, strict=False))
    fields = ", ".join(_selected(field, column, types.get(field)) for field, column in names.items())
    now = _LOCAL_NOW if event_time_zone == "local" else _UTC_NOW
    time_type = types.get("event_time")
    if time_type is not None and time_type.kind is Kind.TIMESTAMPTZ:
        # The moment itself, whatever zone it is told in; texts of it are in UTC.
        now = _UTC_NOW
        names["event_time"] = f"SYS_EXTRACT_UTC({names['event_time']})"
    return statements("log.sql")[name].format(
        log=qualified(log.schema, log.name), fields=fields, now=now, ids=ids, **names
    )


def _selected(field: str, column: str, column_type: ColumnType | None) -> str:
    if field == "event_time":
        return value_text(Column(field, column_type or ColumnType(Kind.TIMESTAMP)), column)
    if field == "event_type":
        # Of a scale, so that the driver makes an integer of it.
        return f"CAST(CASE WHEN ABS({column}) < 1000 THEN {column} WHEN {column} IS NOT NULL THEN 0 END AS NUMBER(4))"
    return column
