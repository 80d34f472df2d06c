"""SQLite, the whole product on a file without a server: what it is, its log, what doctor asks beside doctor.sql."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from eventlog.core.values import ColumnType
from eventlog.errors import DatabaseError
from eventlog.model import LogRow
from eventlog.sql.dialects.sqlite import text
from eventlog.sql.dialects.sqlite.objects import SQLiteObjects
from eventlog.sql.dialects.sqlite.session import SQLiteSessions, file_of
from eventlog.sql.dialects.sqlite.text import UTC_NOW, instant, strftime
from eventlog.sql.dialects.sqlite.triggers import SQLiteTriggers
from eventlog.sql.dialects.stepwise import LOG_SQL, trigger_answers
from eventlog.sql.doctor.facts import IndexColumn
from eventlog.sql.log_table import LogTable
from eventlog.sql.statements import quote_identifier, statements
from eventlog.sql.windows import Ranges

# --- doctor -----------------------------------------------------------------------------------------------------------

_DOCTOR_SQL: Final = statements(__package__, "doctor.sql")


def _indexes(conn: Connection, log: LogTable) -> Iterator[IndexColumn]:
    """The indexes of the log; its INTEGER PRIMARY KEY, which is the table itself, counts as one."""
    keys = [row.name for row in conn.exec_driver_sql("SELECT name FROM pragma_table_info(?) WHERE pk", (log.name,))]
    if len(keys) == 1:
        yield IndexColumn("primary key", True, keys[0], None)
    for name, column, sql in conn.exec_driver_sql(_DOCTOR_SQL["index_columns"], {"log_name": log.name}):
        predicate = re.search(r"\bWHERE\b(.*)$", sql or "", re.DOTALL | re.IGNORECASE)
        yield IndexColumn(name, True, column, predicate[1].strip() if predicate else None)


def _has_log(conn: Connection, log: str) -> bool:
    return log in {quote_identifier(row.name) for row in conn.exec_driver_sql(_DOCTOR_SQL["tables"])}


def _rights_to_apply(conn: Connection, **_: Any) -> Iterator[tuple[str]]:
    """What this process lacks to apply triggers, in words."""
    file = file_of(conn)
    if file is not None and not os.access(file, os.W_OK):
        yield (f"write access to {str(file)!r}",)


def _grants(conn: Connection, **_: Any) -> Iterator[tuple[str]]:
    """What lets this process publish: the right to write the file and its directory."""
    file = file_of(conn)
    if file is not None:
        yield (f"chmod u+rw {file} && chmod u+rwx {file.parent}",)


# --- the dialect ------------------------------------------------------------------------------------------------------


class SQLite(SQLiteSessions, SQLiteObjects):
    """SQLite by the driver of Python's library."""

    name = "sqlite"
    capabilities = frozenset({"partial_indexes", "transactional_ddl", "empty_text", "owner_look_up"})
    max_identifier = text.MAX_IDENTIFIER
    triggers = SQLiteTriggers()
    answers: ClassVar = {
        "grants": _grants,
        "indexes": _indexes,
        **trigger_answers(triggers, _has_log),
        "rights_to_apply": _rights_to_apply,
    }
    column_types: ClassVar = {
        "integer": sa.Integer(),
        "event_type": sa.Integer(),
        "time": sa.TIMESTAMP(),
        **dict.fromkeys(("status", "event_time", "name", "key", "value", "code", "digest", "text"), sa.Text()),
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
            return f"CASE typeof({column}) WHEN 'integer' THEN {column} WHEN 'null' THEN NULL ELSE 0 END"
        return f"CAST({column} AS TEXT)"

    def log_times(self, column: str, *, is_zoned: bool) -> Mapping[str, str]:
        return {
            "new_time": UTC_NOW,
            "time": instant(column),
            "until": instant(":until"),
            "after": instant(":after_time"),
        }

    def read_rows(self, conn: Connection, log: LogTable, ranges: Ranges) -> list[LogRow]:
        parameters = {"ranges": json.dumps(list(map(list, ranges)))}
        return self.log_rows(conn, self.log_statement(log, "read_rows"), parameters)

    def open_writers(self, conn: Connection, log: LogTable) -> frozenset[str]:
        return frozenset()  # one transaction writes at a time, and draws no record_id below those that can be seen

    def are_open(self, conn: Connection, writers: frozenset[str]) -> bool:
        return not writers

    def part_field(self, log: LogTable, field: str) -> str:
        return strftime(self.quote(log.column(field))) if field == "event_time" else super().part_field(log, field)

    def is_letter(self, column: str) -> str:
        return f"{self.quote(column)} GLOB '[A-Za-z]'"

    # Flights are numbered by a table whose numbers are never given twice, in place of a sequence.

    def after_companions(self, log: LogTable) -> list[str]:
        return [f"CREATE TABLE {self.quote(log.flight_sequence)} (flight_no INTEGER PRIMARY KEY AUTOINCREMENT)"]

    def drop_after_companions(self, log: LogTable) -> list[str]:
        return [f"DROP TABLE {self.quote(log.flight_sequence)}"]

    def next_flight(self, conn: Connection, log: LogTable) -> int:
        table = self.quote(log.flight_sequence)
        number = conn.exec_driver_sql(f"INSERT INTO {table} DEFAULT VALUES RETURNING flight_no").scalar_one()  # noqa: S608
        conn.exec_driver_sql(f"DELETE FROM {table}")  # noqa: S608 - quoted identifiers
        return int(number)

    # Sessions cannot share a snapshot, and need none here: SQLite takes one writer at a time, so record_ids are given
    # in the order of commits, and no row at or below the highest one that was seen can come later. Nobody marks rows
    # while a job holds the log, so its parts, which end at that row, hold the same rows N for whoever reads them.

    def export_snapshot(self, conn: Connection) -> str:
        # The version of the schema.
        return "sqlite-schema-" + str(conn.exec_driver_sql("PRAGMA main.schema_version").scalar_one())

    def join_snapshot(self, conn: Connection, snapshot: str) -> None:
        if self.export_snapshot(conn) != snapshot:
            raise DatabaseError("the tables have changed since the job began: run the command again")


DIALECT: Final = SQLite()
