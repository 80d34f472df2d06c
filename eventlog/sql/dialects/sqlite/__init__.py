"""SQLite: the whole product on a file, without a server."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import ClassVar, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from eventlog.core.catalog import ObjectClass
from eventlog.core.values import ColumnType
from eventlog.model import LogRow
from eventlog.sql.dialects.sqlite import doctor, query_back, session, text
from eventlog.sql.dialects.sqlite import reflect as reflection
from eventlog.sql.dialects.sqlite.text import MAX_IDENTIFIER, UTC_NOW, instant, key_text, strftime
from eventlog.sql.dialects.sqlite.triggers import SQLiteTriggers
from eventlog.sql.dialects.stepwise import StepwiseDialect
from eventlog.sql.log_table import LogTable
from eventlog.sql.statements import fetch, statements
from eventlog.sql.windows import Ranges, Walk


class SQLite(StepwiseDialect):
    """SQLite by the driver of Python's library."""

    name = "sqlite"
    capabilities = frozenset({"partial_indexes", "transactional_ddl", "empty_text", "owner_look_up"})
    driver = "sqlite+pysqlite"
    connect_advice: ClassVar = {
        "not a database": "correct the database URL",
        "unable to open": "correct the database URL",
    }
    max_identifier = MAX_IDENTIFIER
    triggers = SQLiteTriggers()
    answers: ClassVar = doctor.ANSWERS
    column_types: ClassVar = {
        "integer": sa.Integer(),
        "event_type": sa.Integer(),
        "time": sa.TIMESTAMP(),
        **dict.fromkeys(("status", "event_time", "name", "key", "value", "code", "digest", "text"), sa.Text()),
    }
    keys_may_be_null = True
    log_sql = statements(__package__, "log.sql")
    local_now = strftime("'now', 'localtime'")
    utc_now = f"({UTC_NOW})"

    # Functions of the modules of this package.

    connect_args = staticmethod(session.connect_args)
    begin = staticmethod(session.begin)
    check_url = staticmethod(session.check_url)
    prepare = staticmethod(session.prepare)
    refuses = staticmethod(session.refuses)
    value_text = staticmethod(text.value_text)
    reflect = staticmethod(reflection.reflect)
    fingerprint = staticmethod(reflection.fingerprint)
    try_lock = staticmethod(session.try_lock)
    is_locked = staticmethod(session.is_locked)
    holds_lock = staticmethod(session.holds_lock)
    unlock = staticmethod(session.unlock)
    identity = staticmethod(session.identity)
    key_reader = staticmethod(query_back.key_reader)
    read_objects = staticmethod(query_back.read_objects)
    read_children = staticmethod(query_back.read_children)
    export_snapshot = staticmethod(session.export_snapshot)
    join_snapshot = staticmethod(session.join_snapshot)

    def begin_reading(self, conn: Connection, seconds: int) -> None:
        conn.exec_driver_sql("PRAGMA query_only = ON")
        # A statement waits so long for a lock.
        conn.exec_driver_sql(f"PRAGMA busy_timeout = {int(seconds) * 1000}")

    # A class is walked by its key's values; a view, whose rows may have one key, by the canonical text itself.

    def keys_behind(self, conn: Connection, walk: Walk, position: str | None, limit: int) -> list[str]:
        refs = self.walk_key(walk)
        distinct, order = ("DISTINCT ", "1") if walk.cls.is_view else ("", ", ".join(refs))
        statement = (
            f"SELECT {distinct}{key_text(walk.cls.key, refs)} FROM {self.walk_rows(walk)}"  # noqa: S608 - quoted
            f" WHERE {self.walk_condition(walk, goes_on=position is not None)} ORDER BY {order} LIMIT :limit"
        )
        return [key for (key,) in fetch(conn, statement, {**self.position_binds(walk.cls, position), "limit": limit})]

    def behind(self, walk: Walk) -> str:
        return (
            f"{key_text(walk.cls.key, self.walk_key(walk))} > :position" if walk.cls.is_view else super().behind(walk)
        )

    def position_binds(self, cls: ObjectClass, position: str | None) -> Mapping[str, object]:
        return {"position": position} if cls.is_view and position is not None else super().position_binds(cls, position)

    def missing_resync_rights(self, conn: Connection, log: LogTable, resumable: bool) -> list[str]:
        return self.missing_rights(conn, log, False)

    def session_id(self, conn: Connection) -> str:
        return f"{os.getpid()}-{id(conn.connection.dbapi_connection)}"

    def log_field(self, field: str, column: str, column_type: ColumnType | None) -> str:
        if field == "record_id":
            return column
        if field == "event_type":
            return f"CASE typeof({column}) WHEN 'integer' THEN {column} WHEN 'null' THEN NULL ELSE 0 END"
        return f"CAST({column} AS TEXT)"

    def log_times(self, column: str, now: str, *, is_zoned: bool) -> Mapping[str, str]:
        return {
            "now": now,
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

    def missing_rights(self, conn: Connection, log: LogTable, deletes: bool) -> list[str]:
        file = session.file_of(conn)
        if file is None:
            return []
        # The directory too: SQLite keeps its journal there, and the publisher its lock.
        return [f"write access to {str(path)!r}" for path in (file, file.parent) if not os.access(path, os.W_OK)]

    def next_flight(self, conn: Connection, log: LogTable) -> int:
        # By a table whose numbers are never used again.
        table = self.quote(log.flight_sequence)
        number = conn.exec_driver_sql(f"INSERT INTO {table} DEFAULT VALUES RETURNING flight_no").scalar_one()  # noqa: S608
        conn.exec_driver_sql(f"DELETE FROM {table}")  # noqa: S608 - quoted identifiers
        return int(number)

    def part_field(self, field: str, column: str, column_type: ColumnType | None) -> str:
        return strftime(column) if field == "event_time" else super().part_field(field, column, column_type)

    def is_letter(self, column: str) -> str:
        return f"{self.quote(column)} GLOB '[A-Za-z]'"

    def record_id(self, log: LogTable, comment: str) -> sa.Column[int]:
        # The rowid; the table is made with AUTOINCREMENT.
        return sa.Column("record_id", sa.Integer, primary_key=True, comment=comment)

    def after_companions(self, log: LogTable) -> list[str]:
        # A table whose numbers are never given twice, in place of a sequence.
        return [f"CREATE TABLE {self.quote(log.flight_sequence)} (flight_no INTEGER PRIMARY KEY AUTOINCREMENT)"]

    def drop_after_companions(self, log: LogTable) -> list[str]:
        return [f"DROP TABLE {self.quote(log.flight_sequence)}"]


DIALECT: Final = SQLite()
