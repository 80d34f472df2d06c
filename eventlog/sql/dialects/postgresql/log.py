"""Reading and marking the event log on PostgreSQL (spec/event-log.md 8.1, 8.4).

The log's statements run for every row that is published, on a table whose statistics are always wrong: it is mostly
long done, and its few rows N come and go faster than ANALYZE. So the planner is given an index and no other choice.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from eventlog.core.values import ColumnType
from eventlog.errors import DatabaseError
from eventlog.model import LogRow
from eventlog.sql.dialect import Dialect
from eventlog.sql.dialects.postgresql.text import new_time
from eventlog.sql.log_table import LogTable
from eventlog.sql.statements import fetch, statements, without_collector
from eventlog.sql.statements import fetch_chunks as fetch_pieces
from eventlog.sql.windows import Ranges, Window

_CLOSE: Final = "CLOSE eventlog_rows"
_LAST: Final = 2**63 - 1
_AT_ONCE: Final = 1000
"""Rows of a window that are made, checked and let go together."""


class PostgresLog(Dialect):
    """The log is read by cursors of the server, and marked by arrays of ranges."""

    log_sql = statements(__package__, "log.sql")
    # The session's own zone is UTC, whatever the server's is: where a session would begin, and the application's do.
    local_now = (
        "(clock_timestamp() AT TIME ZONE (SELECT reset_val FROM pg_catalog.pg_settings WHERE name = 'TimeZone'))"
    )
    utc_now = "(clock_timestamp() AT TIME ZONE 'UTC')"

    def log_field(self, field: str, column: str, column_type: ColumnType | None) -> str:
        if field not in ("record_id", "event_type"):
            return f"{column}::text"
        if column_type is not None and column_type.bits:
            return column
        # numeric, which is wider than bigint and knows NaN: what bigint cannot hold is no event type
        bounds = f"{column} BETWEEN {-_LAST} AND {_LAST}"
        return f"CASE WHEN {bounds} THEN {column}::bigint WHEN {column} IS NOT NULL THEN 0 END"

    def log_times(self, column: str, *, is_zoned: bool) -> Mapping[str, str]:
        time = f"({column} AT TIME ZONE 'UTC')" if is_zoned else f"{column}::timestamp"
        return {"time": time, "new_time": new_time(is_zoned=is_zoned)}

    def choose_plans(self, conn: Connection) -> None:
        """Allow only plans that walk an index, if there is one, to the end of the transaction or to ``usual_plans``.

        That is said once a transaction, since each time is a round trip.
        """
        if _is_said(conn):
            return
        read = ", ".join(f"current_setting('{name}')" for name in _OTHER_PLANS)
        row = conn.exec_driver_sql(f"SELECT {read}, {_written()}", dict.fromkeys(_OTHER_PLANS, "off")).one()
        conn.info[_BY_INDEX] = conn.get_nested_transaction() or conn.get_transaction(), row[: len(_OTHER_PLANS)]

    def fetch_chunks(
        self, conn: Connection, statement: str, parameters: Mapping[str, object], size: int
    ) -> Generator[list[tuple[Any, ...]], None, None]:
        # By a cursor of the server: what comes later is of the same snapshot, and not in memory before it is wanted.
        conn.exec_driver_sql(f"DECLARE eventlog_rows NO SCROLL CURSOR FOR {statement}", dict(parameters))
        is_full = True
        try:
            while is_full:
                with without_collector():
                    rows = fetch(conn, f"FETCH {size} FROM eventlog_rows", {})
                is_full = len(rows) == size
                yield rows
        except GeneratorExit:
            # Perhaps left by an error, after which the transaction takes no statement and its cursors go with it.
            with suppress(SQLAlchemyError, DatabaseError):
                conn.exec_driver_sql(_CLOSE)
            raise
        # Not in a finally: what fails in the cursor's own statements is the error.
        conn.exec_driver_sql(_CLOSE)

    def read_fields(
        self, conn: Connection, log: LogTable, window: Window, fields: Sequence[str]
    ) -> Iterator[list[tuple[Any, ...]]]:
        # As the driver makes them, and no more at once than stays in the cache.
        statement = self.log_statement(log, window.statement, fields=self.log_fields(log, fields))
        self.choose_plans(conn)
        return fetch_pieces(conn, statement, window.parameters(self.last_record_id), _AT_ONCE)

    def read_rows(self, conn: Connection, log: LogTable, ranges: Ranges) -> list[LogRow]:
        return self.log_rows(conn, self.log_statement(log, "read_rows"), _bounds(ranges))

    def change_rows(self, conn: Connection, statement: str, ranges: Ranges, **values: object) -> int:
        self.choose_plans(conn)
        return conn.exec_driver_sql(statement, {**_bounds(ranges), **values}).rowcount

    def open_writers(self, conn: Connection, log: LogTable) -> frozenset[str]:
        statement = self.log_statement(log, "open_writers")
        return frozenset(name for (name,) in fetch(conn, statement, {"table": self.qualified(log.schema, log.name)}))

    def are_open(self, conn: Connection, writers: frozenset[str]) -> bool:
        return writers <= {name for (name,) in fetch(conn, self.log_sql["are_open"], {"writers": list(writers)})}


def _bounds(ranges: Ranges) -> dict[str, object]:
    return {"lo": [first for first, _ in ranges], "hi": [last for _, last in ranges]}


# What a window would be read by instead: all its rows, sorted, of which the limit then takes the first.
_OTHER_PLANS: Final = ("enable_seqscan", "enable_bitmapscan", "enable_sort")
_BY_INDEX: Final = "eventlog_by_index"
"""Key of ``Connection.info``: the transaction or savepoint in which they were switched off, and the settings before."""


def usual_plans(conn: Connection) -> None:
    """Put back what the log's statements have switched off in this transaction: other tables have other plans."""
    if _is_said(conn):
        _, before = conn.info.pop(_BY_INDEX)
        conn.exec_driver_sql(f"SELECT {_written()}", dict(zip(_OTHER_PLANS, before, strict=True)))


def _is_said(conn: Connection) -> bool:
    transaction, _ = conn.info.get(_BY_INDEX, (None, ()))
    return transaction is not None and transaction in (conn.get_transaction(), conn.get_nested_transaction())


def _written() -> str:
    return ", ".join(f"set_config('{name}', %({name})s, true)" for name in _OTHER_PLANS)
