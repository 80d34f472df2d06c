"""Oracle, 12.2 and later, by python-oracledb in its thin mode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from sqlalchemy import URL, Connection

from eventlog.core.catalog import Column
from eventlog.core.values import ColumnType, Kind
from eventlog.model import LogRow
from eventlog.sql.bulk import Part
from eventlog.sql.dialect import LogRows
from eventlog.sql.dialects.oracle import bulk, doctor, query_back, script, tables, text
from eventlog.sql.dialects.oracle import reflect as reflection
from eventlog.sql.dialects.oracle import session as sessions
from eventlog.sql.dialects.oracle.triggers import OracleTriggers, shows_triggers
from eventlog.sql.dialects.stepwise import StepwiseDialect
from eventlog.sql.doctor.facts import Answer
from eventlog.sql.log_table import LogTable
from eventlog.sql.statements import statements
from eventlog.sql.windows import Ranges, Walk

if TYPE_CHECKING:
    import pyarrow as pa


_SHORT: Final = 50
"""How many record_ids a range has that is read id by id."""


class Oracle(StepwiseDialect):
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
    connect_advice: ClassVar = sessions.CONNECT_ADVICE
    session = sessions.SESSION
    max_identifier = text.MAX_IDENTIFIER
    lacks = frozenset({Kind.TIME, Kind.UUID})
    triggers = OracleTriggers()
    answers: ClassVar = doctor.ANSWERS
    column_types: ClassVar = tables.TYPES
    queue_index = ("status", "record_id")
    log_sql = statements(__package__, "log.sql")
    last_record_id = 10**38 - 1
    local_now = "CAST(SYSTIMESTAMP AS TIMESTAMP)"  # of the server's own zone, not of the session's
    utc_now = "SYS_EXTRACT_UTC(SYSTIMESTAMP)"
    prologue = script.PROLOGUE
    epilogue = ("COMMIT;",)

    # Functions of the modules of this package.

    connect_args = staticmethod(sessions.connect_args)
    begin_publishing = staticmethod(sessions.begin_publishing)
    passes = staticmethod(sessions.passes)
    session_id = staticmethod(sessions.session_id)
    current_user = staticmethod(sessions.current_user)
    fetch = staticmethod(sessions.fetch)
    fetch_chunks = staticmethod(sessions.fetch_chunks)
    quote = staticmethod(text.quote_identifier)
    fold_name = staticmethod(text.fold_name)
    spelled = staticmethod(text.spelled)
    value_text = staticmethod(text.value_text)
    reflect = staticmethod(reflection.reflect)
    fingerprint = staticmethod(reflection.fingerprint)
    try_lock = staticmethod(sessions.try_lock)
    holds_lock = staticmethod(sessions.holds_lock)
    unlock = staticmethod(sessions.unlock)
    identity = staticmethod(sessions.identity)
    missing_rights = staticmethod(sessions.missing_rights)
    key_reader = staticmethod(query_back.key_reader)
    walk_key = staticmethod(query_back.walk_key)
    behind = staticmethod(query_back.behind)
    read_objects = staticmethod(query_back.read_objects)
    read_children = staticmethod(query_back.read_children)
    export_snapshot = staticmethod(bulk.export)
    join_snapshot = staticmethod(bulk.join)
    sees_triggers = staticmethod(shows_triggers)
    record_id = staticmethod(tables.record_id)
    is_letter = staticmethod(tables.is_letter)
    before_log = staticmethod(tables.create_numbers)
    drop_before_log = staticmethod(tables.drop_numbers)
    after_log = staticmethod(tables.create_functions)
    drop_after_log = staticmethod(tables.drop_functions)
    after_companions = staticmethod(tables.create_flights)
    drop_after_companions = staticmethod(tables.drop_flights)
    next_flight = staticmethod(tables.next_flight)
    run = staticmethod(tables.run)
    half_made = staticmethod(tables.half_made)
    as_script = staticmethod(script.rerunnable)
    guarded = staticmethod(script.guarded)

    def begin_reading(self, conn: Connection, seconds: int) -> None:
        driver: Any = conn.connection.driver_connection
        driver.call_timeout = seconds * 1000
        conn.exec_driver_sql("SET TRANSACTION READ ONLY")

    def fetch_answer(
        self, conn: Connection, statement: str, names: Mapping[str, str], binds: Mapping[str, object]
    ) -> Answer:
        return sessions.fetch(conn, statement.format(**names), binds)

    def keys_behind(self, conn: Connection, walk: Walk, position: str | None, limit: int) -> list[str]:
        statement = self.keys_statement(walk, goes_on=position is not None)
        rows = sessions.fetch(conn, statement, {**self.position_binds(walk.cls, position), "limit": limit})
        return [query_back.key_text(walk.cls, row) for row in rows]

    def keys_statement(self, walk: Walk, *, goes_on: bool) -> str:
        """The statement of ``keys_behind``."""
        return query_back.keys_statement(walk, self.walk_condition(walk, goes_on=goes_on))

    def walk_rows(self, walk: Walk) -> str:
        return f"{super().walk_rows(walk)} p"

    def missing_resync_rights(self, conn: Connection, log: LogTable, resumable: bool) -> list[str]:
        missing = sessions.lacking(conn, log, log.name, ("INSERT",), log.column("status"))
        if resumable:
            needed = ("SELECT", "INSERT", "UPDATE", "DELETE")
            missing += sessions.lacking(conn, log, log.resync_table, needed, "POSITION")
        return missing

    def read_part(
        self, url: URL, log: LogTable, snapshot: str | None, status: str | None, part: Part, fields: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        return bulk.read(url, log, snapshot, self.has_status(log, status), part, fields)

    def log_field(self, field: str, column: str, column_type: ColumnType | None) -> str:
        if field == "event_time":
            return self.value_text(Column(field, column_type or ColumnType(Kind.TIMESTAMP)), column)
        if field == "event_type":
            # Of a scale, so that the driver makes an integer of it.
            number = f"CASE WHEN ABS({column}) < 1000 THEN {column} WHEN {column} IS NOT NULL THEN 0 END"
            return f"CAST({number} AS NUMBER(4))"
        return column

    def log_times(self, column: str, now: str, *, is_zoned: bool) -> Mapping[str, str]:
        # The moment itself, whatever zone it is told in; texts of it are in UTC.
        return {
            "time": f"SYS_EXTRACT_UTC({column})" if is_zoned else column,
            "now": now,
            "new_time": "SYSTIMESTAMP" if is_zoned else self.utc_now,
        }

    def due_chunks(
        self,
        conn: Connection,
        log: LogTable,
        until: str,
        after: tuple[str | None, int] | None,
        leave_user: str | None,
        size: int,
    ) -> LogRows:
        if after is not None and after[0] is not None:
            # Of a log whose event_time has a zone: it is compared in UTC.
            after = (after[0].removesuffix("Z"), after[1])
        return super().due_chunks(conn, log, until, after, leave_user, size)

    def read_rows(self, conn: Connection, log: LogTable, ranges: Ranges) -> list[LogRow]:
        # A statement each for the long ranges; the ids of the short ones, of which there may be thousands, in IN lists.
        rows: list[LogRow] = []
        short: list[int] = []
        for first, last in ranges:
            if last - first < _SHORT:
                short += range(first, last + 1)
            else:
                rows += self.log_rows(conn, self.log_statement(log, "read_rows"), {"first": first, "last": last})
        for ids in sessions.chunks(short):
            binds = {f"id{place}": record_id for place, record_id in enumerate(ids)}
            statement = self.log_statement(log, "read_ids", ids=", ".join(f":{bind}" for bind in binds))
            rows += self.log_rows(conn, statement, binds)
        return sorted(rows)


DIALECT: Final = Oracle()
