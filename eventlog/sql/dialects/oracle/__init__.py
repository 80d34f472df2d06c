"""Oracle, 12.2 and later, by python-oracledb in its thin mode."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import sqlalchemy as sa
from sqlalchemy import URL, Connection

from eventlog.core.catalog import Attribute, Catalog, ChildTable, Column, Database, ObjectClass
from eventlog.core.values import ColumnType, Kind
from eventlog.model import LogRow
from eventlog.sql.bulk import Part
from eventlog.sql.dialect import Dialect, LogRows
from eventlog.sql.dialects.oracle import bulk, ddl, doctor, query_back, resync, script, session, text
from eventlog.sql.dialects.oracle.reflect import fingerprint, reflect
from eventlog.sql.dialects.oracle.session import (
    CONNECT_ADVICE,
    SESSION,
    begin_publishing,
    chunks,
    connect_args,
    fetch,
    fetch_chunks,
    missing_rights,
    passes,
)
from eventlog.sql.dialects.oracle.triggers import OracleTriggers, shows_triggers
from eventlog.sql.doctor.facts import Answer
from eventlog.sql.log_table import LogTable
from eventlog.sql.statements import statements
from eventlog.sql.windows import DueWindow, Ranges, Walk

if TYPE_CHECKING:
    import pyarrow as pa


_SHORT: Final = 50
"""How many record_ids a range has that is read id by id."""


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
    triggers = OracleTriggers()
    answers: ClassVar = doctor.ANSWERS
    column_types: ClassVar = ddl.TYPES
    queue_index = ("status", "record_id")
    log_sql = statements(__package__, "log.sql")
    last_record_id = 10**38 - 1
    local_now = "CAST(SYSTIMESTAMP AS TIMESTAMP)"  # of the server's own zone, not of the session's
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
        return session.session_id(conn)

    def current_user(self, conn: Connection) -> str:
        return session.current_user(conn)

    def value_text(self, column: Column, ref: str) -> str:
        return text.value_text(column, ref)

    def reflect(self, conn: Connection, schema: str | None) -> Database:
        return reflect(conn, schema)

    def fingerprint(self, conn: Connection, catalog: Catalog) -> str:
        return fingerprint(conn, catalog)

    def try_lock(self, conn: Connection, log: LogTable) -> bool:
        return session.try_lock(conn, log)

    def is_locked(self, conn: Connection, log: LogTable) -> bool:
        return session.is_locked(conn, log)

    def holds_lock(self, conn: Connection, log: LogTable) -> bool:
        return session.holds_lock(conn, log)

    def unlock(self, conn: Connection, log: LogTable) -> None:
        session.unlock(conn, log)

    def next_flight(self, conn: Connection, log: LogTable) -> int:
        return ddl.next_flight(conn, log)

    def identity(self, conn: Connection, log: LogTable) -> str:
        return session.identity(conn, log)

    def key_reader(self, column: Column) -> Callable[[str], object]:
        return query_back.key_reader(column)

    def read_objects(
        self,
        conn: Connection,
        schema: str | None,
        cls: ObjectClass,
        attributes: tuple[Attribute, ...],
        keys: Sequence[tuple[Any, ...]],
    ) -> Iterator[tuple[int, Sequence[str | None]]]:
        return query_back.read_objects(conn, schema, cls, attributes, keys)

    def read_children(
        self, conn: Connection, schema: str | None, cls: ObjectClass, child: ChildTable, keys: Sequence[tuple[Any, ...]]
    ) -> Iterator[tuple[int, str | None]]:
        return query_back.read_children(conn, schema, cls, child, keys)

    def keys_behind(self, conn: Connection, walk: Walk, position: str | None, limit: int) -> list[str]:
        statement = self.keys_statement(walk, goes_on=position is not None)
        rows = fetch(conn, statement, {**self.position_binds(walk.cls, position), "limit": limit})
        return [resync.key_text(walk.cls, row) for row in rows]

    def keys_statement(self, walk: Walk, *, goes_on: bool) -> str:
        """The statement of ``keys_behind``."""
        return resync.keys_statement(walk, self._condition(walk, goes_on=goes_on))

    def estimate(self, conn: Connection, walk: Walk, position: str | None) -> int:
        relation = self.qualified(walk.schema, walk.cls.table.name)
        condition = self._condition(walk, goes_on=position is not None)
        statement = f"SELECT COUNT(*) FROM {relation} p WHERE {condition}"  # noqa: S608 - the operator's own predicate
        return int(fetch(conn, statement, self.position_binds(walk.cls, position))[0][0])

    def _condition(self, walk: Walk, *, goes_on: bool) -> str:
        return self.walk_condition(walk, resync.references(walk), resync.behind(walk) if goes_on else None)

    def missing_resync_rights(self, conn: Connection, log: LogTable, resumable: bool) -> list[str]:
        missing = session.lacking(conn, log, log.name, ("INSERT",), log.columns[LogRow._fields.index("status")])
        if resumable:
            needed = ("SELECT", "INSERT", "UPDATE", "DELETE")
            missing += session.lacking(conn, log, log.resync_table, needed, "POSITION")
        return missing

    def export_snapshot(self, conn: Connection) -> str:
        return bulk.export(conn)

    def join_snapshot(self, conn: Connection, snapshot: str) -> None:
        bulk.join(conn, snapshot)

    def read_part(
        self, url: URL, log: LogTable, snapshot: str | None, status: str | None, part: Part, fields: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        return bulk.read(url, log, snapshot, self.has_status(log, status), part, fields)

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

    def log_field(self, field: str, column: str, column_type: ColumnType | None) -> str:
        if field == "event_time":
            return self.value_text(Column(field, column_type or ColumnType(Kind.TIMESTAMP)), column)
        if field == "event_type":
            # Of a scale, so that the driver makes an integer of it.
            number = f"CASE WHEN ABS({column}) < 1000 THEN {column} WHEN {column} IS NOT NULL THEN 0 END"
            return f"CAST({number} AS NUMBER(4))"
        return column

    def log_times(self, column: str, column_type: ColumnType | None, now: str) -> Mapping[str, str]:
        # The moment itself, whatever zone it is told in; texts of it are in UTC.
        is_zoned = column_type is not None and column_type.kind is Kind.TIMESTAMPTZ
        return {
            "time": f"SYS_EXTRACT_UTC({column})" if is_zoned else column,
            "now": now,
            "new_time": "SYSTIMESTAMP" if is_zoned else self.utc_now,
        }

    def fetch(self, conn: Connection, statement: str, parameters: Mapping[str, object]) -> list[tuple[Any, ...]]:
        return fetch(conn, statement, parameters)

    def fetch_chunks(
        self, conn: Connection, statement: str, parameters: Mapping[str, object], size: int
    ) -> Generator[list[tuple[Any, ...]], None, None]:
        return fetch_chunks(conn, statement, parameters, size)

    def due_chunks(self, conn: Connection, log: LogTable, window: DueWindow, size: int) -> LogRows:
        if window.after is not None and window.after[0] is not None:
            # Of a log whose event_time has a zone: it is compared in UTC.
            window = replace(window, after=(window.after[0].removesuffix("Z"), window.after[1]))
        return super().due_chunks(conn, log, window, size)

    def read_rows(self, conn: Connection, log: LogTable, ranges: Ranges) -> list[LogRow]:
        # A statement each for the long ranges; the ids of the short ones, of which there may be thousands, in IN lists.
        rows: list[LogRow] = []
        short: list[int] = []
        for first, last in ranges:
            if last - first < _SHORT:
                short += range(first, last + 1)
            else:
                rows += self.log_rows(conn, self.log_statement(log, "read_rows"), {"first": first, "last": last})
        for ids in chunks(short):
            binds = {f"id{place}": record_id for place, record_id in enumerate(ids)}
            statement = self.log_statement(log, "read_ids", ids=", ".join(f":{bind}" for bind in binds))
            rows += self.log_rows(conn, statement, binds)
        return sorted(rows)

    def local_time(self, conn: Connection) -> datetime:
        ((now,),) = fetch(conn, f"SELECT {self.local_now} FROM DUAL")  # noqa: S608 - a constant
        return cast(datetime, now)

    def missing_rights(self, conn: Connection, log: LogTable, deletes: bool) -> list[str]:
        return missing_rights(conn, log, deletes)

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
        return script.rerunnable(printed)

    def run(self, conn: Connection, statement: str) -> None:
        ddl.run(conn, statement)

    def guarded(self, statement: str) -> str:
        return script.guarded(statement)

    def half_made(self, conn: Connection, log: LogTable) -> bool:
        return ddl.half_made(conn, log)


DIALECT: Final = Oracle()
