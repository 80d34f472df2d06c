"""PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final, LiteralString, cast

import sqlalchemy as sa
from sqlalchemy import URL, Connection

from eventlog.core.catalog import Attribute, ObjectClass
from eventlog.core.values import ColumnType, Kind
from eventlog.model import QUEUE_FIELDS, LogRow, QueueRow
from eventlog.sql.bulk import Part
from eventlog.sql.dialect import CurrentRow, Dialect, log_words
from eventlog.sql.dialects.postgresql import log as log_rows
from eventlog.sql.dialects.postgresql import query_back, resync, tables, text, wake
from eventlog.sql.dialects.postgresql import reflect as reflection
from eventlog.sql.dialects.postgresql import snapshot as snapshots
from eventlog.sql.dialects.postgresql.compile import render_quote_function
from eventlog.sql.dialects.postgresql.text import MAX_IDENTIFIER
from eventlog.sql.dialects.postgresql.triggers import PostgresTriggers
from eventlog.sql.log_table import LogTable
from eventlog.sql.statements import fetch, statements
from eventlog.sql.statements import fetch_chunks as fetch_pieces
from eventlog.sql.text import qualified
from eventlog.sql.windows import Batch, Ranges, Selection, Walk, Window

if TYPE_CHECKING:
    import pyarrow as pa

SESSION: Final = (
    # What a session can change in the text of values: pinned to what the triggers pin it to (spec/triggers.md 6).
    "SET TimeZone = 'UTC'",
    "SET DateStyle = 'ISO, YMD'",
    "SET IntervalStyle = 'postgres'",
    "SET extra_float_digits = 1",
    "SET bytea_output = 'hex'",
    "SET lc_monetary = 'C'",
    # Statements here are short, and compiling one takes longer than running it.
    "SET jit = off",
)

_AT_ONCE: Final = 1000
"""Rows of a window that are made, checked and let go together."""

_CLASS: Final = int.from_bytes(b"Elog")
"""First half of the lock's key; the second is the log's OID. Other programs keep clear of it by chance of 1 to 2^32."""

_LOCKS: Final = """
    SELECT FROM pg_catalog.pg_locks
    WHERE locktype = 'advisory'
      AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
      AND classid = CAST(:class AS bigint)::oid AND objid = CAST(CAST(:log AS text) AS regclass)::oid AND objsubid = 2
      AND granted"""
_HELD: Final = f"EXISTS ({_LOCKS} AND pid = pg_backend_pid())"
_HELD_BY_ANY: Final = f"EXISTS ({_LOCKS})"

_DATABASE_AND_FLIGHTS: Final = """
    SELECT concat_ws('/', d.oid, to_regclass(%(flights)s)::oid)
    FROM pg_catalog.pg_database AS d
    WHERE d.datname = current_database()"""
_MAY_ASK: Final = "SELECT has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE')"
_CLUSTER: Final = "SELECT system_identifier FROM pg_catalog.pg_control_system()"

_USER_ADVICE: Final = "check the user in the URL, and {secret}"
CONNECT_ADVICE: Final = {
    "password authentication failed": _USER_ADVICE,
    "no password supplied": _USER_ADVICE,
    "pg_hba.conf": "let this user in by a line in the server's pg_hba.conf, or correct the URL",
    "role ": "create the user, or correct the URL",
    "database ": "create the database, or correct the URL",
    "connection option": "correct the options behind ? in the URL",
}


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
    connect_advice: ClassVar = CONNECT_ADVICE
    session = SESSION
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
    snapshot_options: ClassVar = {"isolation_level": snapshots.ISOLATION}

    # What a module of this package has whole.

    fold_name = staticmethod(text.fold_name)
    value_text = staticmethod(text.value_text)
    reflect = staticmethod(reflection.reflect)
    fingerprint = staticmethod(reflection.fingerprint)
    choose_plans = staticmethod(log_rows.index_plans)
    fetch_chunks = staticmethod(log_rows.fetch_chunks)
    key_reader = staticmethod(query_back.key_reader)
    export_snapshot = staticmethod(snapshots.export)
    join_snapshot = staticmethod(snapshots.join)
    guard_by_index = staticmethod(tables.by_index)
    guard_by_checks = staticmethod(tables.by_checks)

    def connect_args(self, timeout: int) -> Mapping[str, object]:
        return {
            "connect_timeout": timeout,
            "application_name": "eventlog",
            "client_encoding": "UTF8",
            # No prepared statements: one reads a row or ten thousand, and its plan would be kept while the log grows.
            "prepare_threshold": None,
        }

    def begin_reading(self, conn: Connection, seconds: int) -> None:
        conn.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        conn.exec_driver_sql(f"SET LOCAL statement_timeout = '{int(seconds)}s'")

    def session_id(self, conn: Connection) -> str:
        return str(conn.execute(sa.text("SELECT pg_backend_pid()")).scalar_one())

    def current_user(self, conn: Connection) -> str:
        return str(conn.execute(sa.text("SELECT session_user")).scalar_one())

    def try_lock(self, conn: Connection, log: LogTable) -> bool:
        statement = sa.text(
            # Asked first, since a lock that is taken twice must be given back twice.
            f"SELECT CASE WHEN {_HELD} THEN true"
            " ELSE pg_try_advisory_lock(:class, CAST(CAST(:log AS text) AS regclass)::oid::integer) END"
        )
        return bool(conn.execute(statement, _lock_key(log)).scalar_one())

    def is_locked(self, conn: Connection, log: LogTable) -> bool:
        return bool(conn.execute(sa.text(f"SELECT {_HELD_BY_ANY}"), _lock_key(log)).scalar_one())

    def holds_lock(self, conn: Connection, log: LogTable) -> bool:
        return bool(conn.execute(sa.text(f"SELECT {_HELD}"), _lock_key(log)).scalar_one())

    def unlock(self, conn: Connection, log: LogTable) -> None:
        statement = sa.text(
            f"SELECT CASE WHEN {_HELD}"
            " THEN pg_advisory_unlock(:class, CAST(CAST(:log AS text) AS regclass)::oid::integer) END"
        )
        conn.execute(statement, _lock_key(log))

    def next_flight(self, conn: Connection, log: LogTable) -> int:
        name = {"name": self.qualified(log.schema, log.flight_sequence)}
        return int(conn.execute(sa.text("SELECT nextval(CAST(CAST(:name AS text) AS regclass))"), name).scalar_one())

    def identity(self, conn: Connection, log: LogTable) -> str:
        # A standby that takes over has the same; a dump that is restored has not. The cluster is left out if this role
        # may not ask for it, which a role may unless that was revoked.
        flights = self.qualified(log.schema, log.flight_sequence)
        identity = str(conn.exec_driver_sql(_DATABASE_AND_FLIGHTS, {"flights": flights}).scalar_one())
        if conn.exec_driver_sql(_MAY_ASK).scalar_one():
            identity = f"{conn.exec_driver_sql(_CLUSTER).scalar_one()}/{identity}"
        return f"postgresql/{identity}"

    def query_back(
        self,
        conn: Connection,
        schema: str | None,
        cls: ObjectClass,
        keys: Sequence[str],
        attributes: Sequence[Attribute],
    ) -> dict[str, CurrentRow]:
        # In one statement, with the child tables.
        asked = list(self.key_values(cls, keys))
        return query_back.query_back(conn, schema, cls, asked, tuple(attributes)) if asked else {}

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
            **resync.position_binds(walk.cls, position),
        }
        rows = fetch(conn, statement, parameters)
        written, last = rows[0] if rows else (0, position)
        return Batch(rows=written, missing=0, position=last, is_last=written < limit)

    def batch_statement(self, walk: Walk, *, goes_on: bool) -> str:
        """The statement of ``write_batch``."""
        return resync.batch_statement(walk, self._condition(walk, goes_on=goes_on), log_words(self, walk.log, "utc"))

    def estimate(self, conn: Connection, walk: Walk, position: str | None) -> int:
        # What the planner expects.
        ((plan,),) = self._asked(conn, walk, position, "EXPLAIN (FORMAT JSON) SELECT %(event_type)s::smallint")
        return int(plan[0]["Plan"]["Plan Rows"])

    def count(self, conn: Connection, walk: Walk, position: str | None) -> int:
        ((rows,),) = self._asked(conn, walk, position, "SELECT count(%(event_type)s::smallint)")
        return int(rows)

    def _asked(
        self, conn: Connection, walk: Walk, position: str | None, select: LiteralString
    ) -> list[tuple[Any, ...]]:
        # Every statement that holds the operator's text has a parameter: the server takes one statement, not several.
        statement = f"{select} FROM {resync.rows_of(walk)} WHERE {self._condition(walk, goes_on=position is not None)}"
        event_type = int(walk.selection.event_type)
        return fetch(conn, statement, {"event_type": event_type, **resync.position_binds(walk.cls, position)})

    def _condition(self, walk: Walk, *, goes_on: bool) -> str:
        return self.walk_condition(walk, resync.references(walk.cls), resync.behind(walk) if goes_on else None)

    def write_keys(self, conn: Connection, log: LogTable, selection: Selection, keys: Sequence[str]) -> None:
        parameters = {
            "event_type": int(selection.event_type),
            "class_name": selection.class_name,
            "keys": list(keys),
        }
        conn.exec_driver_sql(self.log_statement(log, "write_keys"), parameters)

    def missing_resync_rights(self, conn: Connection, log: LogTable, resumable: bool) -> list[str]:
        needed = [(log.name, "INSERT")]
        if resumable:
            needed += [(log.resync_table, right) for right in ("SELECT", "INSERT", "UPDATE", "DELETE")]
        return [
            f"{right} on table {table}"
            for table, right in needed
            if not _has_right(conn, "table", self.qualified(log.schema, table), right)
        ]

    def read_part(
        self, url: URL, log: LogTable, snapshot: str | None, status: str | None, part: Part, fields: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        return snapshots.read(url, self.session, log, snapshot, self.has_status(log, status), part, fields)

    def read_only(self, conn: Connection) -> str | None:
        asked = "SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on'"
        is_standby, is_read_only = conn.exec_driver_sql(asked).one()
        if is_standby:
            return "the server is a standby, which takes no writes"
        return (
            "default_transaction_read_only is on for this session, so that it writes nothing" if is_read_only else None
        )

    def bindable(self, sql: str) -> str:
        return sql.replace("%", "%%")  # the driver reads % in the text of a statement with parameters

    def log_field(self, field: str, column: str, column_type: ColumnType | None) -> str:
        if field not in ("record_id", "event_type"):
            return f"{column}::text"
        if column_type is not None and column_type.bits:
            return column
        # numeric, which is wider than bigint and knows NaN: what bigint cannot hold is no event type
        bounds = f"{column} BETWEEN {-self.last_record_id} AND {self.last_record_id}"
        return f"CASE WHEN {bounds} THEN {column}::bigint WHEN {column} IS NOT NULL THEN 0 END"

    def log_times(self, column: str, column_type: ColumnType | None, now: str) -> Mapping[str, str]:
        is_zoned = column_type is not None and column_type.kind is Kind.TIMESTAMPTZ
        return {
            "time": f"({column} AT TIME ZONE 'UTC')" if is_zoned else f"{column}::timestamp",
            "now": now,
            # As the triggers have it: a zoned column takes the moment itself.
            "new_time": "pg_catalog.clock_timestamp()" + ("" if is_zoned else " AT TIME ZONE 'UTC'"),
        }

    def read_queue(self, conn: Connection, log: LogTable, window: Window) -> Iterator[list[QueueRow]]:
        # No more is read than what is looked at, as the driver makes it, and no more at once than stays in the cache.
        statement = self.log_statement(log, window.statement, fields=self.log_fields(log, QUEUE_FIELDS))
        self.choose_plans(conn)
        pieces = fetch_pieces(conn, statement, window.parameters(self.last_record_id), _AT_ONCE)
        return cast("Iterator[list[QueueRow]]", pieces)

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

    def local_time(self, conn: Connection) -> datetime:
        return cast(datetime, conn.exec_driver_sql(f"SELECT {self.local_now}").scalar_one())

    def missing_rights(self, conn: Connection, log: LogTable, deletes: bool) -> list[str]:
        needed = [
            ("table", log.name, "SELECT"),
            *([("table", log.name, "DELETE")] if deletes else []),
            ("table", log.error_table, "INSERT"),
            *(("table", log.inflight_table, right) for right in ("SELECT", "INSERT", "UPDATE", "DELETE")),
            ("sequence", log.flight_sequence, "USAGE"),
        ]
        if log.schema is not None and not _has_right(conn, "schema", log.schema, "USAGE"):
            return [f"USAGE on schema {log.schema}"]
        missing = [
            f"{right} on {kind} {name}"
            for kind, name, right in needed
            if not _has_right(conn, kind, self.qualified(log.schema, name), right)
        ]
        status = log.column("status")
        asked = "SELECT has_column_privilege(%(name)s, %(column)s::text, 'UPDATE')"
        if not conn.exec_driver_sql(asked, {"name": self.qualified(log.schema, log.name), "column": status}).scalar():
            missing.append(f"UPDATE on column {status} of table {log.name}")
        return missing

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


def _lock_key(log: LogTable) -> dict[str, object]:
    return {"class": _CLASS, "log": qualified(log.schema, log.name)}


def _bounds(ranges: Ranges) -> dict[str, object]:
    return {"lo": [first for first, _ in ranges], "hi": [last for _, last in ranges]}


def _has_right(conn: Connection, kind: str, name: str, right: str) -> bool:
    statement = f"SELECT has_{kind}_privilege(%(name)s, %(right)s)"
    return bool(conn.exec_driver_sql(statement, {"name": name, "right": right}).scalar())


DIALECT: Final = PostgreSQL()
