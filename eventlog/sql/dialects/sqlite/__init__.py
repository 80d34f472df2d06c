"""SQLite: the whole product on a file, without a server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final

import sqlalchemy as sa
from sqlalchemy import URL, Connection

from eventlog.core.catalog import Attribute, Catalog, Column, Database, ObjectClass
from eventlog.model import LogRow
from eventlog.sql.bulk import Part
from eventlog.sql.dialect import CurrentRow, Dialect, LogRows, Triggers
from eventlog.sql.dialects.sqlite import doctor, lock, resync, session, triggers
from eventlog.sql.dialects.sqlite import log as log_rows
from eventlog.sql.dialects.sqlite import snapshot as snapshots
from eventlog.sql.dialects.sqlite.identity import identity
from eventlog.sql.dialects.sqlite.query_back import query_back
from eventlog.sql.dialects.sqlite.reflect import fingerprint, reflect
from eventlog.sql.dialects.sqlite.text import MAX_IDENTIFIER, value_text
from eventlog.sql.log_table import LogTable
from eventlog.sql.windows import Batch, DueWindow, Queue, Ranges, Selection, Window

if TYPE_CHECKING:
    import pyarrow as pa


class SQLite(Dialect):
    """SQLite by the driver of Python's library."""

    name = "sqlite"
    capabilities = frozenset({"partial_indexes", "transactional_ddl", "empty_text", "owner_look_up"})
    driver = "sqlite+pysqlite"
    connect_advice: ClassVar = {
        "not a database": "correct the database URL",
        "unable to open": "correct the database URL",
    }
    max_identifier = MAX_IDENTIFIER
    triggers = Triggers(
        compile=triggers.compile_tables,
        plan=triggers.plan,
        plan_drop=triggers.plan_drop,
        apply=triggers.apply,
        script=triggers.script,
        installed=triggers.installed,
        digests=triggers.digests,
    )
    answers: ClassVar = doctor.ANSWERS
    column_types: ClassVar = {
        "integer": sa.Integer(),
        "event_type": sa.Integer(),
        "time": sa.TIMESTAMP(),
        **dict.fromkeys(("status", "event_time", "name", "key", "value", "code", "digest", "text"), sa.Text()),
    }
    utc_now = f"({log_rows.UTC_NOW})"

    def connect_args(self, timeout: int) -> Mapping[str, object]:
        return session.connect_args(timeout)

    def begin_reading(self, conn: Connection, seconds: int) -> None:
        conn.exec_driver_sql("PRAGMA query_only = ON")
        # A statement waits so long for a lock.
        conn.exec_driver_sql(f"PRAGMA busy_timeout = {int(seconds) * 1000}")

    def session_id(self, conn: Connection) -> str:
        return lock.session_id(conn)

    def current_user(self, conn: Connection) -> str:
        return lock.current_user(conn)

    def local_time(self, conn: Connection) -> datetime:
        return log_rows.local_time(conn)

    def value_text(self, column: Column, ref: str) -> str:
        return value_text(column, ref)

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
        return log_rows.next_flight(conn, log)

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
        return snapshots.export(conn)

    def join_snapshot(self, conn: Connection, snapshot: str) -> None:
        snapshots.join(conn, snapshot)

    def log_parts(
        self, conn: Connection, log: LogTable, status: str | None, first: int, last: int, rows: int, at_least: int
    ) -> list[Part]:
        return snapshots.parts(conn, log, status, first, last, rows, at_least)

    def read_part(
        self, url: URL, log: LogTable, snapshot: str | None, status: str | None, part: Part, fields: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        return snapshots.read(url, log, snapshot, status, part, fields)

    def begin(self, conn: Connection) -> None:
        session.begin(conn)

    def check_url(self, url: URL) -> None:
        session.check_url(url)

    def prepare(self, url: URL) -> None:
        session.prepare(url)

    def refuses(self, error: BaseException) -> bool:
        return session.refuses(error)

    def open_writers(self, conn: Connection, log: LogTable) -> frozenset[str]:
        return log_rows.open_writers(conn, log)

    def are_open(self, conn: Connection, writers: frozenset[str]) -> bool:
        return log_rows.are_open(conn, writers)

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
