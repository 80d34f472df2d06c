"""SQLite, a database in a file without a server: its capabilities and its log."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from eventlog.core.values import ColumnType
from eventlog.sql.dialects.sqlite import text
from eventlog.sql.dialects.sqlite.database import SQLiteDatabase
from eventlog.sql.dialects.sqlite.objects import SQLiteObjects
from eventlog.sql.dialects.sqlite.session import ANSWERS, SQLiteSessions, has_log
from eventlog.sql.dialects.sqlite.text import UTC_NOW, instant, strftime
from eventlog.sql.dialects.sqlite.triggers import TRIGGERS, broken_triggers
from eventlog.sql.dialects.stepwise import trigger_answers
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.log_operations import Window
from eventlog.sql.port.sql_files import Binds, log_statements


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
    answers: ClassVar = {
        **ANSWERS,
        **trigger_answers(TRIGGERS, has_log),
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
    error_number = "rowid"  # times have milliseconds, and two processes write in one of them
    log_sql = log_statements(__package__)
    local_now = strftime("'now', 'localtime'")
    utc_now = f"({UTC_NOW})"
    value_text = staticmethod(text.value_text)
    condition_token = text.CONDITION_TOKEN

    def open(self, connection: Connection) -> SQLiteDatabase:
        return SQLiteDatabase(connection, self)

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

    def window_parameters(self, window: Window) -> Binds:
        bounds = super().window_parameters(window)
        return (
            bounds
            if window.gaps is None
            else {**bounds, "gaps": json.dumps(list(map(list, window.gaps[:-1])))}
        )

    def part_field(self, log: LogTable, field: str) -> str:
        return (
            strftime(self.quote(log.column(field)))
            if field == "event_time"
            else super().part_field(log, field)
        )

    def log_checks(self) -> Sequence[str]:
        return (f"{self.quote('status')} GLOB '[A-Za-z]'", "event_type BETWEEN 1 AND 8")

    # In place of a sequence, a table that never uses a number twice numbers the deliveries.

    def after_internal_tables(self, log: LogTable) -> list[str]:
        return [
            f"CREATE TABLE {self.quote(log.number_sequence)} (delivery_no INTEGER PRIMARY KEY "
            "AUTOINCREMENT)"
        ]

    def drop_after_internal_tables(self, log: LogTable) -> list[str]:
        return [f"DROP TABLE {self.quote(log.number_sequence)}"]


DIALECT: Final = SQLite()
