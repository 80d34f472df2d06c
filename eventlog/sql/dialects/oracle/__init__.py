"""Oracle, 12.2 and later, by python-oracledb in its thin mode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final

import sqlalchemy as sa
from sqlalchemy import URL, Connection

from eventlog.core.catalog import Attribute, Catalog, Column, Database, ObjectClass
from eventlog.core.values import Kind
from eventlog.model import LogRow
from eventlog.sql.bulk import Part
from eventlog.sql.dialect import CurrentRow, Dialect, LogRows, Triggers
from eventlog.sql.dialects.oracle import bulk, ddl, doctor, lock, resync, script, text, triggers
from eventlog.sql.dialects.oracle import log as log_rows
from eventlog.sql.dialects.oracle.identity import identity
from eventlog.sql.dialects.oracle.installed import shows_triggers
from eventlog.sql.dialects.oracle.query_back import query_back
from eventlog.sql.dialects.oracle.reflect import fingerprint, reflect
from eventlog.sql.dialects.oracle.rerun import guarded, rerunnable
from eventlog.sql.dialects.oracle.running import run
from eventlog.sql.dialects.oracle.session import CONNECT_ADVICE, SESSION, begin_publishing, connect_args, fetch, passes
from eventlog.sql.doctor.facts import Answer
from eventlog.sql.log_table import LogTable
from eventlog.sql.windows import Batch, DueWindow, Queue, Ranges, Selection, Window

if TYPE_CHECKING:
    import pyarrow as pa


class Oracle(Dialect):
    """Oracle by python-oracledb in its thin mode."""

    name = "oracle"
    capabilities = frozenset(
        {
            "server",
            "schemas",
            "roles",
            "sequences",
            "concurrent_writers",
            "statement_capture",
            "partitions",
            "deferrable_keys",
            "fixed_char",
            "single_precision",
            "exact_decimals",
            "time_types",
            "time_zones",
            "binary_values",
            "upsert_captured",
        }
    )
    driver = "oracle+oracledb"
    package = "eventlog-publisher[oracle]"
    connect_advice: ClassVar = CONNECT_ADVICE
    session = SESSION
    max_identifier = text.MAX_IDENTIFIER
    lacks = frozenset({Kind.TIME, Kind.UUID})
    triggers = Triggers(
        compile=triggers.compile_tables,
        plan=triggers.plan,
        plan_drop=triggers.plan_drop,
        apply=triggers.apply,
        script=script.script,
        installed=triggers.installed,
        digests=triggers.digests,
    )
    answers: ClassVar = doctor.ANSWERS
    column_types: ClassVar = ddl.TYPES
    queue_index = ("status", "record_id")
    utc_now = "SYS_EXTRACT_UTC(SYSTIMESTAMP)"
    prologue = script.PROLOGUE
    epilogue = ("COMMIT;",)

    def connect_args(self, timeout: int) -> Mapping[str, object]:
        return connect_args(timeout)

    def begin_reading(self, conn: Connection, seconds: int) -> None:
        driver: Any = conn.connection.driver_connection
        driver.call_timeout = seconds * 1000
        conn.exec_driver_sql("SET TRANSACTION READ ONLY")

    def fetch_answer(
        self, conn: Connection, statement: str, names: Mapping[str, str], binds: Mapping[str, object]
    ) -> Answer:
        return fetch(conn, statement.format(**names), binds)

    def sees_triggers(self, conn: Connection, schema: str) -> bool:
        return shows_triggers(conn, schema)

    def session_id(self, conn: Connection) -> str:
        return lock.session_id(conn)

    def current_user(self, conn: Connection) -> str:
        return lock.current_user(conn)

    def local_time(self, conn: Connection) -> datetime:
        return log_rows.local_time(conn)

    def value_text(self, column: Column, ref: str) -> str:
        return text.value_text(column, ref)

    def reflect(self, conn: Connection, schema: str | None) -> Database:
        return reflect(conn, schema)

    def fingerprint(self, conn: Connection, catalog: Catalog) -> str:
        return fingerprint(conn, catalog)

    def read_window(self, conn: Connection, log: LogTable, window: Window) -> list[LogRow]:
        return log_rows.read_window(conn, log, window)

    def window_chunks(self, conn: Connection, log: LogTable, window: Window, size: int) -> LogRows:
        return log_rows.window_chunks(conn, log, window, size)

    def due_chunks(self, conn: Connection, log: LogTable, window: DueWindow, size: int) -> LogRows:
        return log_rows.due_chunks(conn, log, window, size)

    def due_until(self, conn: Connection, log: LogTable, event_time_zone: str = "utc") -> str:
        return log_rows.due_until(conn, log, event_time_zone)

    def read_rows(self, conn: Connection, log: LogTable, ranges: Ranges) -> list[LogRow]:
        return log_rows.read_rows(conn, log, ranges)

    def mark(self, conn: Connection, log: LogTable, letter: str, ranges: Ranges) -> int:
        return log_rows.mark(conn, log, letter, ranges)

    def delete(self, conn: Connection, log: LogTable, ranges: Ranges) -> int:
        return log_rows.delete(conn, log, ranges)

    def queue(self, conn: Connection, log: LogTable, event_time_zone: str = "utc") -> Queue:
        return log_rows.queue(conn, log, event_time_zone)

    def missing_rights(self, conn: Connection, log: LogTable, deletes: bool) -> list[str]:
        return log_rows.missing_rights(conn, log, deletes)

    def query_back(
        self,
        conn: Connection,
        schema: str | None,
        cls: ObjectClass,
        keys: Sequence[str],
        attributes: Sequence[Attribute],
    ) -> dict[str, CurrentRow]:
        return query_back(conn, schema, cls, keys, attributes)

    def try_lock(self, conn: Connection, log: LogTable) -> bool:
        return lock.try_lock(conn, log)

    def is_locked(self, conn: Connection, log: LogTable) -> bool:
        return lock.is_locked(conn, log)

    def holds_lock(self, conn: Connection, log: LogTable) -> bool:
        return lock.holds_lock(conn, log)

    def unlock(self, conn: Connection, log: LogTable) -> None:
        lock.unlock(conn, log)

    def next_flight(self, conn: Connection, log: LogTable) -> int:
        return ddl.next_flight(conn, log)

    def identity(self, conn: Connection, log: LogTable) -> str:
        return identity(conn, log)

    def start_walk(
        self, conn: Connection, log: LogTable, schema: str | None, cls: ObjectClass, selection: Selection
    ) -> Any:
        return resync.prepare(conn, log, schema, cls, selection)

    def write_batch(self, conn: Connection, walk: Any, position: str | None, limit: int) -> Batch:
        return resync.write_batch(conn, walk, position, limit)

    def estimate(self, conn: Connection, walk: Any, position: str | None) -> int:
        return resync.estimate(conn, walk, position)

    def write_keys(self, conn: Connection, log: LogTable, selection: Selection, keys: Sequence[str]) -> None:
        resync.write_keys(conn, log, selection, keys)

    def missing_resync_rights(self, conn: Connection, log: LogTable, resumable: bool) -> list[str]:
        return resync.missing_rights(conn, log, resumable)

    def export_snapshot(self, conn: Connection) -> str:
        return bulk.export(conn)

    def join_snapshot(self, conn: Connection, snapshot: str) -> None:
        bulk.join(conn, snapshot)

    def log_parts(
        self, conn: Connection, log: LogTable, status: str | None, first: int, last: int, rows: int, at_least: int
    ) -> list[Part]:
        return bulk.parts(conn, log, status, first, last, rows, at_least)

    def read_part(
        self, url: URL, log: LogTable, snapshot: str | None, status: str | None, part: Part, fields: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        return bulk.read(url, log, snapshot, status, part, fields)

    def begin_publishing(self, conn: Connection) -> None:
        begin_publishing(conn)

    def passes(self, error: BaseException) -> bool:
        return passes(error)

    def quote(self, name: str) -> str:
        return text.quote_identifier(name)

    def fold_name(self, name: str) -> str:
        return text.fold_name(name)

    def spelled(self, name: str) -> str:
        return text.spelled(name)

    def is_letter(self, column: str) -> str:
        return ddl.is_letter(column)

    def record_id(self, log: LogTable, comment: str) -> sa.Column[Any]:
        return ddl.record_id(log, comment)

    def before_log(self, log: LogTable) -> list[str]:
        return ddl.create_numbers(log)

    def drop_before_log(self, log: LogTable) -> list[str]:
        return ddl.drop_numbers(log)

    def after_log(self, log: LogTable) -> list[str]:
        return ddl.create_functions(log)

    def drop_after_log(self, log: LogTable) -> list[str]:
        return ddl.drop_functions(log)

    def after_companions(self, log: LogTable) -> list[str]:
        return ddl.create_flights(log)

    def drop_after_companions(self, log: LogTable) -> list[str]:
        return ddl.drop_flights(log)

    def as_script(self, printed: str) -> str:
        return rerunnable(printed)

    def run(self, conn: Connection, statement: str) -> None:
        run(conn, statement)

    def guarded(self, statement: str) -> str:
        return guarded(statement)

    def half_made(self, conn: Connection, log: LogTable) -> bool:
        return ddl.half_made(conn, log)


DIALECT: Final = Oracle()
