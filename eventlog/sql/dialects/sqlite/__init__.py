"""SQLite, which keeps the product in a file without a server: its capabilities and its log."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from eventlog.core.ranges import Ranges
from eventlog.core.values import ColumnType
from eventlog.errors import DatabaseError
from eventlog.model import LogRow
from eventlog.sql.dialects.sqlite import text
from eventlog.sql.dialects.sqlite.objects import SQLiteObjects
from eventlog.sql.dialects.sqlite.session import ANSWERS, SQLiteSessions, has_log
from eventlog.sql.dialects.sqlite.text import UTC_NOW, instant, strftime
from eventlog.sql.dialects.sqlite.triggers import SQLiteTriggers, broken_triggers
from eventlog.sql.dialects.stepwise import LOG_SQL, trigger_answers
from eventlog.sql.log_table import LogTable
from eventlog.sql.statements import statements
from eventlog.sql.windows import Window

_REMEMBERS_NUMBERS: Final = """
    SELECT count(*)
    FROM main.sqlite_schema
    WHERE type = 'table' AND name = ? AND upper(sql) LIKE '%AUTOINCREMENT%'"""
_LAST_NUMBER: Final = "SELECT max(seq) FROM main.sqlite_sequence WHERE name = ?"


class SQLite(SQLiteSessions, SQLiteObjects):
    """SQLite, through the driver in Python's standard library."""

    name = "sqlite"
    capabilities = frozenset(
        {
            "partial_indexes",
            "transactional_ddl",
            "empty_text",
            "nul_characters",
            "owner_look_up",
            "consumers",
        }
    )
    max_identifier = text.MAX_IDENTIFIER
    triggers = SQLiteTriggers()
    answers: ClassVar = {
        **ANSWERS,
        **trigger_answers(triggers, has_log),
        "broken_triggers": broken_triggers,
    }
    column_types: ClassVar = {
        "integer": sa.Integer(),
        "event_type": sa.Integer(),
        "time": sa.TIMESTAMP(),
        **dict.fromkeys(
            ("status", "event_time", "name", "key", "value", "code", "digest", "text"), sa.Text()
        ),
    }
    keys_may_be_null = True
    log_sql: ClassVar = {**LOG_SQL, **statements(__package__, "log.sql")}
    local_now = strftime("'now', 'localtime'")
    utc_now = f"({UTC_NOW})"
    value_text = staticmethod(text.value_text)

    def log_field(self, field: str, column: str, column_type: ColumnType | None) -> str:
        if field == "record_id":
            return column
        if field == "event_type":
            return (
                f"CASE typeof({column}) WHEN 'integer' THEN {column} WHEN 'null' THEN NULL ELSE 0 "
                "END"
            )
        return f"CAST({column} AS TEXT)"

    def log_times(self, column: str, *, is_zoned: bool) -> Mapping[str, str]:
        return {
            "new_time": UTC_NOW,
            "time": instant(column),
            "is_due": f"{instant(column)} <= {instant(':until')}",
            "due_order": instant(column),
            "after": instant(":after_time"),
        }

    def window_parameters(self, window: Window) -> Mapping[str, object]:
        bounds = super().window_parameters(window)
        return (
            bounds
            if window.gaps is None
            else {**bounds, "gaps": json.dumps(list(map(list, window.gaps[:-1])))}
        )

    def read_rows(self, conn: Connection, log: LogTable, ranges: Ranges) -> list[LogRow]:
        parameters = {"ranges": json.dumps(list(map(list, ranges)))}
        return self.log_rows(conn, self.log_statement(log, "read_rows"), parameters)

    def read_columns(
        self, conn: Connection, log: LogTable, ranges: Ranges, fields: Sequence[str]
    ) -> list[tuple[Any, ...]]:
        parameters = {"ranges": json.dumps(list(map(list, ranges)))}
        return self.fetch(
            conn,
            self.log_statement(log, "read_rows", fields=self.log_fields(log, fields)),
            parameters,
        )

    def open_writers(self, conn: Connection, log: LogTable) -> frozenset[str]:
        # One transaction writes at a time, and draws no record_id below the visible ones.
        return frozenset()

    def are_open(self, conn: Connection, writers: frozenset[str]) -> bool:
        return not writers

    def next_record_id(self, conn: Connection, log: LogTable) -> int | None:
        if not conn.exec_driver_sql(_REMEMBERS_NUMBERS, (log.name,)).scalar():
            return None
        return int(conn.exec_driver_sql(_LAST_NUMBER, (log.name,)).scalar() or 0) + 1

    def part_field(self, log: LogTable, field: str) -> str:
        return (
            strftime(self.quote(log.column(field)))
            if field == "event_time"
            else super().part_field(log, field)
        )

    def log_checks(self) -> Sequence[str]:
        return (f"{self.quote('status')} GLOB '[A-Za-z]'", "event_type BETWEEN 1 AND 8")

    # Flights are numbered by a table that never gives a number twice, in place of a sequence.

    def after_companions(self, log: LogTable) -> list[str]:
        return [
            f"CREATE TABLE {self.quote(log.flight_sequence)} (flight_no INTEGER PRIMARY KEY "
            "AUTOINCREMENT)"
        ]

    def drop_after_companions(self, log: LogTable) -> list[str]:
        return [f"DROP TABLE {self.quote(log.flight_sequence)}"]

    def next_flight(self, conn: Connection, log: LogTable) -> int:
        table = self.quote(log.flight_sequence)
        number = conn.exec_driver_sql(
            f"INSERT INTO {table} DEFAULT VALUES RETURNING flight_no"  # noqa: S608
        ).scalar_one()
        conn.exec_driver_sql(f"DELETE FROM {table}")  # noqa: S608 - quoted identifiers
        return int(number)

    def draw_flights(self, conn: Connection, log: LogTable, number: int) -> int:
        last = self.next_flight(conn, log) + number - 1
        conn.exec_driver_sql(
            "UPDATE sqlite_sequence SET seq = ? WHERE name = ?", (last, log.flight_sequence)
        )
        return last

    # Sessions cannot share a snapshot, and need none here: SQLite takes one writer at a time, so
    # record_ids are given in the order of commits, and no later row gets a record_id at or below
    # the highest one seen. Nobody marks rows while a job holds the log, so its parts, which end at
    # that row, hold the same rows N for every reader.

    def export_snapshot(self, conn: Connection) -> str:
        # The version of the schema.
        return "sqlite-schema-" + str(
            conn.exec_driver_sql("PRAGMA main.schema_version").scalar_one()
        )

    def join_snapshot(self, conn: Connection, snapshot: str) -> None:
        if self.export_snapshot(conn) != snapshot:
            raise DatabaseError(
                "the tables have changed since the job began: run the command again"
            )


DIALECT: Final = SQLite()
