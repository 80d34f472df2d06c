"""PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, LiteralString

import sqlalchemy as sa
from sqlalchemy import URL, Connection

from eventlog.core.catalog import Attribute, ObjectClass
from eventlog.model import LogRow
from eventlog.sql.bulk import Part
from eventlog.sql.dialect import CurrentRow, Dialect, log_words
from eventlog.sql.dialects.postgresql import bulk, query_back, resync, tables, text, wake
from eventlog.sql.dialects.postgresql import log as log_rows
from eventlog.sql.dialects.postgresql import reflect as reflection
from eventlog.sql.dialects.postgresql import session as sessions
from eventlog.sql.dialects.postgresql.compile import render_quote_function
from eventlog.sql.dialects.postgresql.text import MAX_IDENTIFIER
from eventlog.sql.dialects.postgresql.triggers import PostgresTriggers
from eventlog.sql.log_table import LogTable
from eventlog.sql.statements import fetch, statements
from eventlog.sql.statements import fetch_chunks as fetch_pieces
from eventlog.sql.windows import Batch, Ranges, Selection, Walk, Window

if TYPE_CHECKING:
    import pyarrow as pa

_AT_ONCE: Final = 1000
"""Rows of a window that are made, checked and let go together."""


class PostgreSQL(Dialect):
    """PostgreSQL by psycopg."""

    name = "postgresql"
    capabilities = frozenset(
        {
            "server",
            "schemas",
            "roles",
            "sequences",
            "partial_indexes",
            "transactional_ddl",
            "concurrent_writers",
            "statement_capture",
            "truncate",
            "partitions",
            "deferrable_keys",
            "fixed_char",
            "boolean",
            "single_precision",
            "exact_decimals",
            "time_types",
            "time_zones",
            "empty_text",
            "binary_values",
            "owner_look_up",
            "key_cascades",
            "upsert_captured",
            "wake",
        }
    )
    driver = "postgresql+psycopg"
    connect_advice: ClassVar = sessions.CONNECT_ADVICE
    session = sessions.SESSION
    max_identifier = MAX_IDENTIFIER
    triggers = PostgresTriggers()
    wake = wake
    column_types: ClassVar = {
        "integer": sa.BigInteger(),
        "status": sa.CHAR(1),
        "event_type": sa.SmallInteger(),
        "event_time": sa.TIMESTAMP(),
        "time": sa.TIMESTAMP(),
        "digest": sa.CHAR(64),
        **dict.fromkeys(("name", "key", "value", "code", "text"), sa.Text()),
    }
    is_not_null = "IS DISTINCT FROM NULL"  # a row of NULLs "IS NULL" as well
    log_sql = statements(__package__, "log.sql")
    # The session's own zone is UTC, whatever the server's is: where a session would begin, and the application's do.
    local_now = (
        "(clock_timestamp() AT TIME ZONE (SELECT reset_val FROM pg_catalog.pg_settings WHERE name = 'TimeZone'))"
    )
    utc_now = "(clock_timestamp() AT TIME ZONE 'UTC')"
    snapshot_options: ClassVar = {"isolation_level": bulk.ISOLATION}

    # Functions of the modules of this package.

    connect_args = staticmethod(sessions.connect_args)
    begin_reading = staticmethod(sessions.begin_reading)
    session_id = staticmethod(sessions.session_id)
    current_user = staticmethod(sessions.current_user)
    read_only = staticmethod(sessions.read_only)
    fold_name = staticmethod(text.fold_name)
    bindable = staticmethod(text.bindable)
    value_text = staticmethod(text.value_text)
    reflect = staticmethod(reflection.reflect)
    fingerprint = staticmethod(reflection.fingerprint)
    log_field = staticmethod(log_rows.log_field)
    choose_plans = staticmethod(log_rows.index_plans)
    fetch_chunks = staticmethod(log_rows.fetch_chunks)
    try_lock = staticmethod(sessions.try_lock)
    is_locked = staticmethod(sessions.is_locked)
    holds_lock = staticmethod(sessions.holds_lock)
    unlock = staticmethod(sessions.unlock)
    identity = staticmethod(sessions.identity)
    missing_rights = staticmethod(sessions.missing_rights)
    missing_resync_rights = staticmethod(sessions.missing_resync_rights)
    key_reader = staticmethod(query_back.key_reader)
    walk_rows = staticmethod(resync.walk_rows)
    behind = staticmethod(resync.behind)
    position_binds = staticmethod(resync.position_binds)
    export_snapshot = staticmethod(bulk.export)
    join_snapshot = staticmethod(bulk.join)
    guard_by_index = staticmethod(tables.by_index)
    guard_by_checks = staticmethod(tables.by_checks)

    def next_flight(self, conn: Connection, log: LogTable) -> int:
        name = {"name": self.qualified(log.schema, log.flight_sequence)}
        return int(conn.execute(sa.text("SELECT nextval(CAST(CAST(:name AS text) AS regclass))"), name).scalar_one())

    def query_back(
        self,
        conn: Connection,
        schema: str | None,
        cls: ObjectClass,
        keys: Sequence[str],
        attributes: Sequence[Attribute],
    ) -> dict[str, CurrentRow]:
        # In one statement, with the child tables.
        keys_and_texts = list(self.key_values(cls, keys))
        return query_back.query_back(conn, schema, cls, keys_and_texts, tuple(attributes)) if keys_and_texts else {}

    def start_walk(
        self, conn: Connection, log: LogTable, schema: str | None, cls: ObjectClass, selection: Selection
    ) -> Walk:
        return resync.with_quote_function(conn, super().start_walk(conn, log, schema, cls, selection))

    def write_batch(self, conn: Connection, walk: Walk, position: str | None, limit: int) -> Batch:
        # In one statement, which reads the keys and writes the rows.
        statement = self.batch_statement(walk, goes_on=position is not None)
        parameters = {
            "limit": limit,
            "event_type": int(walk.selection.event_type),
            "class_name": walk.cls.name,
            **self.position_binds(walk.cls, position),
        }
        rows = fetch(conn, statement, parameters)
        written, last = rows[0] if rows else (0, position)
        return Batch(rows=written, missing=0, position=last, is_last=written < limit)

    def batch_statement(self, walk: Walk, *, goes_on: bool) -> str:
        """The statement of ``write_batch``."""
        return resync.batch_statement(
            walk, self.walk_condition(walk, goes_on=goes_on), log_words(self, walk.log, "utc")
        )

    def estimate(self, conn: Connection, walk: Walk, position: str | None) -> int:
        # What the planner expects.
        ((plan,),) = self._of_walk(conn, walk, position, "EXPLAIN (FORMAT JSON) SELECT %(event_type)s::smallint")
        return int(plan[0]["Plan"]["Plan Rows"])

    def count(self, conn: Connection, walk: Walk, position: str | None) -> int:
        ((rows,),) = self._of_walk(conn, walk, position, "SELECT count(%(event_type)s::smallint)")
        return int(rows)

    def _of_walk(
        self, conn: Connection, walk: Walk, position: str | None, select: LiteralString
    ) -> list[tuple[Any, ...]]:
        # Every statement that holds the operator's text has a parameter: the server takes one statement, not several.
        condition = self.walk_condition(walk, goes_on=position is not None)
        parameters = {"event_type": int(walk.selection.event_type), **self.position_binds(walk.cls, position)}
        return fetch(conn, f"{select} FROM {self.walk_rows(walk)} WHERE {condition}", parameters)

    def write_keys(self, conn: Connection, log: LogTable, selection: Selection, keys: Sequence[str]) -> None:
        parameters = {
            "event_type": int(selection.event_type),
            "class_name": selection.class_name,
            "keys": list(keys),
        }
        conn.exec_driver_sql(self.log_statement(log, "write_keys"), parameters)

    def read_part(
        self, url: URL, log: LogTable, snapshot: str | None, status: str | None, part: Part, fields: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        return bulk.read(url, self.session, log, snapshot, self.has_status(log, status), part, fields)

    def log_times(self, column: str, now: str, *, is_zoned: bool) -> Mapping[str, str]:
        return {
            "time": f"({column} AT TIME ZONE 'UTC')" if is_zoned else f"{column}::timestamp",
            "now": now,
            # As the triggers have it: a zoned column takes the moment itself.
            "new_time": "pg_catalog.clock_timestamp()" + ("" if is_zoned else " AT TIME ZONE 'UTC'"),
        }

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

    def is_letter(self, column: str) -> str:
        return f"{self.quote(column)} ~ '^[A-Za-z]$'"

    def record_id(self, log: LogTable, comment: str) -> sa.Column[int]:
        # CACHE 1: with a cache the numbers of two sessions' changes of one row may stand in the wrong order.
        numbers = sa.Identity(always=False, cache=1)
        return sa.Column("record_id", sa.BigInteger, numbers, primary_key=True, comment=comment)

    def after_log(self, log: LogTable) -> list[str]:
        return [tables.of_log(log), render_quote_function(log)]

    def drop_after_log(self, log: LogTable) -> list[str]:
        return [f"DROP FUNCTION IF EXISTS {text.quote_function(log)}(text)"]

    def after_companions(self, log: LogTable) -> list[str]:
        # A sequence of its own, not an identity: the number is needed before the line that it stands in is written.
        sequence = self.qualified(log.schema, log.flight_sequence)
        return [tables.of_inflight(log), f"CREATE SEQUENCE {sequence} AS BIGINT CACHE 1"]

    def drop_after_companions(self, log: LogTable) -> list[str]:
        return [f"DROP SEQUENCE {self.qualified(log.schema, log.flight_sequence)}"]

    def after_resync(self, log: LogTable, index: str) -> list[str]:
        return [tables.of_resync(log), tables.identity_of_resync(log, index)]


def _bounds(ranges: Ranges) -> dict[str, object]:
    return {"lo": [first for first, _ in ranges], "hi": [last for _, last in ranges]}


DIALECT: Final = PostgreSQL()
