"""The event log on SQLite: read a window, mark, delete (spec/event-log.md 8.1, 8.4). The statements are in log.sql."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, Final

from sqlalchemy import Connection

from eventlog.model import LogRow, QueueRow, queue_rows
from eventlog.sql.dialect import LogRows
from eventlog.sql.dialects.sqlite.session import file_of
from eventlog.sql.dialects.sqlite.statements import read
from eventlog.sql.dialects.sqlite.text import quote_identifier
from eventlog.sql.log_table import LogTable
from eventlog.sql.windows import DueWindow, Queue, Ranges, Window

_LAST: Final = 2**63 - 1
_FORM: Final = "'%Y-%m-%d %H:%M:%f'"
UTC_NOW: Final = f"strftime({_FORM}, 'now')"
_LOCAL_NOW: Final = f"strftime({_FORM}, 'now', 'localtime')"
_AS_ROW: Final = partial(tuple.__new__, LogRow)  # what LogRow._make does, without a Python frame a row


def read_window(conn: Connection, log: LogTable, window: Window) -> list[LogRow]:
    """The rows N of a window, in record_id order (spec/event-log.md 8.1)."""
    return _log_rows(conn, log, window.statement, window.parameters(_LAST))


def read_queue(conn: Connection, log: LogTable, window: Window) -> list[QueueRow]:
    """What is looked at of the rows of ``read_window``."""
    return list(queue_rows(read_window(conn, log, window)))


def window_chunks(conn: Connection, log: LogTable, window: Window, size: int) -> LogRows:
    """The rows of a window by one statement, in lists of ``size``, the last of fewer."""
    return _chunks(conn, log, window.statement, window.parameters(_LAST), size)


def open_writers(_conn: Connection, _log: LogTable) -> frozenset[str]:
    """Nobody: one transaction writes at a time, and draws no record_id below those that can be seen."""
    return frozenset()


def are_open(_conn: Connection, writers: frozenset[str]) -> bool:
    """Whether there are none, as ``open_writers`` has it."""
    return not writers


def read_rows(conn: Connection, log: LogTable, ranges: Ranges) -> list[LogRow]:
    """The rows of these record_ids, whatever their status, in record_id order."""
    return _log_rows(conn, log, "read_rows", {"ranges": json.dumps(list(map(list, ranges)))})


def mark(conn: Connection, log: LogTable, letter: str, ranges: Ranges) -> int:
    """Give the rows of these record_ids that still have status N another letter; how many they were."""
    return _change(conn, statement(log, "mark"), ranges, letter=letter)


def delete(conn: Connection, log: LogTable, ranges: Ranges) -> int:
    """Delete the rows of these record_ids that still have status N; how many they were."""
    return _change(conn, statement(log, "delete"), ranges)


def queue(conn: Connection, log: LogTable, event_time_zone: str = "utc") -> Queue:
    """How many rows have status N, and the age of the oldest by the machine's clock (spec/event-log.md 11).

    ``event_time_zone``: utc or local, what event_time is in.
    """
    rows, oldest = conn.exec_driver_sql(statement(log, "queue", event_time_zone)).one()
    return Queue(rows, oldest)


def due_until(conn: Connection, log: LogTable, event_time_zone: str = "utc") -> str:
    """The machine's clock now, in the terms of event_time: which rows are due (spec/event-log.md 8.1)."""
    return str(conn.exec_driver_sql(statement(log, "due_until", event_time_zone)).scalar_one())


def due_chunks(conn: Connection, log: LogTable, window: DueWindow, size: int) -> LogRows:
    """The rows N of a window that are due, in the order of event_time and record_id (spec/event-log.md 8.1), by one
    statement, in lists of ``size``, the last of fewer.
    """
    return _chunks(conn, log, "read_due", window.parameters(_LAST), size)


def local_time(_conn: Connection) -> datetime:
    """The machine's local time now."""
    return datetime.now()


def missing_rights(conn: Connection, _log: LogTable, _deletes: bool) -> list[str]:
    """What the process may not write of what it must; empty if nothing."""
    file = file_of(conn)
    if file is None:
        return []
    # The directory too: SQLite keeps its journal there, and the publisher its lock.
    return [f"write access to {str(path)!r}" for path in (file, file.parent) if not os.access(path, os.W_OK)]


def next_flight(conn: Connection, log: LogTable) -> int:
    """A number that was never given before, by a table whose rows are never reused."""
    table = quote_identifier(log.flight_sequence)
    number = conn.exec_driver_sql(f"INSERT INTO {table} DEFAULT VALUES RETURNING flight_no").scalar_one()  # noqa: S608
    conn.exec_driver_sql(f"DELETE FROM {table}")  # noqa: S608 - quoted identifiers
    return int(number)


def _change(conn: Connection, sql: str, ranges: Ranges, **parameters: object) -> int:
    if not ranges:
        return 0
    bounds = [{"first": first, "last": last, **parameters} for first, last in ranges]
    return conn.exec_driver_sql(sql, bounds).rowcount


def _log_rows(conn: Connection, log: LogTable, name: str, parameters: Mapping[str, object]) -> list[LogRow]:
    return list(map(_AS_ROW, fetch(conn, statement(log, name), parameters)))


def _chunks(conn: Connection, log: LogTable, name: str, parameters: Mapping[str, object], size: int) -> LogRows:
    result = conn.exec_driver_sql(statement(log, name), dict(parameters))
    try:
        assert result.cursor is not None
        is_full = True
        while is_full:
            chunk = list(map(_AS_ROW, result.cursor.fetchmany(size)))
            is_full = len(chunk) == size
            yield chunk
    finally:
        result.close()


def fetch(conn: Connection, sql: str, parameters: Mapping[str, object] | tuple[object, ...]) -> list[tuple[Any, ...]]:
    """The rows of a statement as the driver makes them."""
    result = conn.exec_driver_sql(sql, dict(parameters) if isinstance(parameters, Mapping) else parameters)
    try:
        assert result.cursor is not None
        return list(result.cursor.fetchall())
    finally:
        result.close()


@lru_cache(maxsize=256)
def statement(log: LogTable, name: str, event_time_zone: str = "utc") -> str:
    """A statement of log.sql with the names of this log: all that is put into its text are quoted identifiers."""
    names = {field: quote_identifier(column) for field, column in zip(LogRow._fields, log.columns, strict=True)}
    return read("log.sql")[name].format(
        log=quote_identifier(log.name),
        fields=", ".join(selected(log, field) for field in LogRow._fields),
        now=_LOCAL_NOW if event_time_zone == "local" else UTC_NOW,
        time=_instant(names["event_time"]),
        until=_instant(":until"),
        after=_instant(":after_time"),
        **names,
    )


def selected(log: LogTable, field: str) -> str:
    """SQL of a field of ``LogRow``: event_type an integer, 0 for what can be none; all but record_id else text."""
    column = quote_identifier(log.columns[LogRow._fields.index(field)])
    if field == "record_id":
        return column
    if field == "event_type":
        return f"CASE typeof({column}) WHEN 'integer' THEN {column} WHEN 'null' THEN NULL ELSE 0 END"
    return f"CAST({column} AS TEXT)"


def _instant(time: str) -> str:
    """SQL of a time in one form, so that texts compare as times do; no time at all comes first."""
    return f"coalesce(strftime({_FORM}, {time}), '')"
