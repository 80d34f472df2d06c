"""PostgreSQL, through psycopg: its capabilities and its log.

The log's statements run for every published row, on a table whose statistics are always wrong: most
rows were done long ago, and the few rows of status N change faster than ANALYZE runs. So the
planner may only use an index (spec/event-log.md 8.1, 8.4).

A row whose status is not a letter would never be read. The index of the rows of status N refuses a
status that is not a letter (spec/triggers.md 7): the condition of the index also checks the status
of every row that does not have status N. A CHECK would be read from the catalogue and compiled for
each statement that writes the log, which costs the writer 3 to 4 us. Each statement maintains the
index anyway, and for a row of status N the check costs nothing.

For a bulk job one session exports its database snapshot and stays in its transaction. The other
sessions adopt the snapshot and see exactly the same rows, whatever is committed in between
(spec/event-log.md 12). Spark's data source reads the log as Arrow batches by ADBC, which makes no
Python object for a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Final

import sqlalchemy as sa
from sqlalchemy import URL, Connection

from eventlog.core.extras import install_command
from eventlog.core.values import ColumnType
from eventlog.errors import ConfigError
from eventlog.sql.connect.connection import connect, unreadable_part
from eventlog.sql.dialects.postgresql import text, transaction_ids
from eventlog.sql.dialects.postgresql.compile import rendered
from eventlog.sql.dialects.postgresql.database import PROOF, PostgresDatabase
from eventlog.sql.dialects.postgresql.deferred import (
    create_deferred,
    deferred_function,
    drop_deferred,
)
from eventlog.sql.dialects.postgresql.log_session import OTHER_PLANS
from eventlog.sql.dialects.postgresql.objects import PostgresObjects
from eventlog.sql.dialects.postgresql.partitions.leaf_sql import LOG_STORAGE, storage_parameters
from eventlog.sql.dialects.postgresql.partitions.leaves import PostgresPartitioning
from eventlog.sql.dialects.postgresql.qualify import with_schemas
from eventlog.sql.dialects.postgresql.rights import deny_others
from eventlog.sql.dialects.postgresql.search_path import unsafe_schemas
from eventlog.sql.dialects.postgresql.session import WAKE, PostgresSessions, wake_function
from eventlog.sql.dialects.postgresql.text import adopt, bounds, literal, new_time
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.database import CAPABILITIES
from eventlog.sql.port.log_operations import Window
from eventlog.sql.port.log_parts import LogPart, arrow_schema
from eventlog.sql.port.rights import Part, name_of
from eventlog.sql.port.snapshot_proof import proof_of
from eventlog.sql.port.sql_files import (
    Binds,
    log_statements,
    qualified,
    quote_identifier,
    with_format_binds,
)

if TYPE_CHECKING:
    import pyarrow as pa


_LAST: Final = 2**63 - 1


_ISOLATION: Final = "REPEATABLE READ"


_BATCH_BYTES: Final = 8 * 2**20
_ARGUMENTS: Final = {
    "connect_timeout": "10",
    "application_name": "eventlog",
    "client_encoding": "UTF8",
}

_INFLIGHT: Final = {
    # It has a few rows, rewritten every second. By default autovacuum would wait for fifty dead
    # rows, and their texts (in TOAST) are large.
    "autovacuum_vacuum_scale_factor": "0",
    "toast.autovacuum_vacuum_scale_factor": "0",
}
_STORAGE: Final[Mapping[Part, Mapping[str, str]]] = {
    # The next poll deletes a request, and the end of a job deletes its claim.
    Part.STATE: _INFLIGHT,
    # It has one row, rewritten with every batch.
    Part.RESYNC: {"autovacuum_vacuum_scale_factor": "0", "fillfactor": "50"},
    # It has a few rows, each rewritten with every delivery.
    Part.CONSUMER: {
        "autovacuum_vacuum_scale_factor": "0",
        "fillfactor": "50",
        "toast.autovacuum_vacuum_scale_factor": "0",
    },
}
"""The storage parameters of internal tables that are rewritten often."""


class PostgreSQL(PostgresSessions, PostgresObjects):
    """PostgreSQL, through psycopg."""

    name = "postgresql"
    capabilities = frozenset(CAPABILITIES) - {"nul_characters"}
    max_identifier = text.MAX_IDENTIFIER
    wake = WAKE
    partitioning = PostgresPartitioning()
    fold_name = staticmethod(text.fold_name)
    bindable = staticmethod(text.bindable)
    condition_token = text.CONDITION_TOKEN
    value_text = staticmethod(text.value_text)
    column_types: ClassVar = {
        "integer": sa.BigInteger(),
        "status": sa.CHAR(1),
        "event_type": sa.SmallInteger(),
        "event_time": sa.TIMESTAMP(),
        "time": sa.TIMESTAMP(),
        "digest": sa.CHAR(64),
        **dict.fromkeys(("name", "key", "value", "code", "text"), sa.Text()),
    }
    # Otherwise SQLAlchemy looks for the type hstore by a statement that has no schemas.
    engine_options: ClassVar = {"use_native_hstore": False}
    log_sql = log_statements(__package__, with_format_binds)
    bigint = "::bigint"
    # Our sessions use UTC, whatever the server's zone is. This expression uses the default zone of
    # a session, which the application's sessions have.
    local_now = (
        "(clock_timestamp() AT TIME ZONE (SELECT reset_val FROM pg_catalog.pg_settings WHERE name "
        "= 'TimeZone'))"
    )
    utc_now = "(clock_timestamp() AT TIME ZONE 'UTC')"
    snapshot_options: ClassVar = {"isolation_level": _ISOLATION}

    def open(self, connection: Connection) -> PostgresDatabase:
        return PostgresDatabase(connection, self)

    def log_field(self, field: str, column: str, column_type: ColumnType | None) -> str:
        if field not in ("record_id", "event_type"):
            return f"{column}::text"
        if column_type is not None and column_type.bits:
            return column
        # a numeric column is wider than bigint and may contain NaN: a number outside of bigint is
        # not an event type
        bounds = f"{column} BETWEEN {-_LAST} AND {_LAST}"
        return f"CASE WHEN {bounds} THEN {column}::bigint WHEN {column} IS NOT NULL THEN 0 END"

    def transaction_id_statements(self, log: LogTable) -> tuple[str, ...]:
        return transaction_ids.statements(self.qualified(log.schema, log.name))

    def within(self, log: LogTable, record_id: str) -> str:
        # The server can skip leaves only by values that are known before the rows are read, and not
        # by an array from a sub-select.
        first = "(SELECT min(lo) FROM unnest(%(lo)s::bigint[]) AS bounds (lo))"
        last = "(SELECT max(hi) FROM unnest(%(hi)s::bigint[]) AS bounds (hi))"
        return f"\n  AND {record_id} >= {first} AND {record_id} <= {last}"

    def log_times(self, column: str, *, is_zoned: bool) -> Mapping[str, str]:
        time = f"({column} AT TIME ZONE 'UTC')" if is_zoned else f"{column}::timestamp"
        order = f"coalesce({time}, '-infinity')"
        return {
            "new_time": new_time(is_zoned=is_zoned),
            "time": time,
            "is_due": f"{order} <= %(until)s::timestamp",
            "due_order": order,
        }

    def window_parameters(self, window: Window) -> Binds:
        parameters = super().window_parameters(window)
        return parameters if window.gaps is None else {**parameters, **bounds(window.gaps[:-1])}

    def value_size(self, text: str) -> str:
        return f"octet_length({text})"  # this does not fetch values from TOAST

    # The tables of the log

    def log_checks(self) -> Sequence[str]:
        # Each CHECK is read from the catalogue and compiled for every statement that writes the
        # log. The queue's index guards status. event_type needs no guard, since a row of another
        # type is read, and marked E.
        return ()

    def before_log(self, log: LogTable) -> list[str]:
        return [_create_status_function(log)]

    def drop_before_log(self, log: LogTable) -> list[str]:
        # The index of a detached leaf that somebody keeps goes with it.
        return [f"DROP FUNCTION IF EXISTS {_status_function(log)}(pg_catalog.bpchar) CASCADE"]

    def create_queue_index(self, log: LogTable) -> str:
        # The guard of status is made of conditions instead of one function, so that marking needs
        # no call. It tests S, which nearly all marked rows get, before the regular expression. It
        # is joined by OR, so that status = 'N' implies the whole condition. Its operators have
        # their schema, since `--sql` prints it for a session with any search path.
        is_other = "status OPERATOR(pg_catalog.<>) 'S'"
        is_bad = "status OPERATOR(pg_catalog.!~) '^[A-Za-z]$'"
        guard = f"{is_other} AND {is_bad} AND {_status_function(log)}(status)"
        return f"{super().create_queue_index(log)} OR ({guard})"

    def after_log(self, log: LogTable) -> list[str]:
        return [_set(log, log.name, LOG_STORAGE)]

    def after_internal_tables(self, log: LogTable) -> list[str]:
        # This is a sequence, not an identity column, since the number is needed before the row is
        # written.
        sequence = qualified(log.schema, log.number_sequence)
        return [
            _set(log, log.inflight_table, _INFLIGHT),
            f"CREATE SEQUENCE {sequence} AS BIGINT CACHE 1",
        ]

    def next_number(self, schema: str | None, sequence: str) -> str:
        return f"nextval({literal(qualified(schema, sequence))}::pg_catalog.regclass)"

    def after_table(self, log: LogTable, part: Part, index: str = "") -> list[str]:
        # A row identity lets the table be replicated.
        name = name_of(log, part)
        identity = f"USING INDEX {quote_identifier(index)}" if index else "FULL"
        return [
            *([_set(log, name, _STORAGE[part])] if part in _STORAGE else []),
            f"ALTER TABLE {qualified(log.schema, name)} REPLICA IDENTITY {identity}",
        ]

    def deny_others(self, log: LogTable, tables: Sequence[str]) -> list[str]:
        # The function that refuses a status stays open: whoever writes the log calls it, and it
        # reads and writes nothing.
        names = [qualified(log.schema, name) for name in tables]
        functions = [f"{wake_function(log)}()", f"{deferred_function(log)}()"]
        return [deny_others(names, functions, log.readers)]

    def create_deferred(self, log: LogTable) -> list[str]:
        return create_deferred(log)

    def drop_deferred(self, log: LogTable) -> list[str]:
        return drop_deferred(log)

    def after_upgrade(self, log: LogTable) -> list[str]:
        functions = [f"{one}()" for one in (wake_function(log), deferred_function(log))]
        functions.append(f"{_status_function(log)}(pg_catalog.bpchar)")
        tables = [qualified(log.schema, name) for name in log.own_tables if name != log.name]
        home = qualified(log.schema, log.name)
        written = [home, qualified(log.schema, log.deferred_table)]
        words = {"log": home, "written": written, "tables": tables, "functions": functions}
        return [rendered("hand_over_log.sql.j2", **words).strip()]

    # The log in parts, as Arrow batches

    def part_field(self, log: LogTable, field: str) -> str:
        column = self.quote(log.column(field))
        if field == "event_time":
            time = self.log_times(column, is_zoned=log.has_zoned_time)["time"]
            return f"CASE WHEN isfinite({column}) THEN {time} END"
        text = super().part_field(log, field)
        return f"({text})::bigint" if field in ("record_id", "event_type") else text

    def read_part(
        self,
        url: URL,
        log: LogTable,
        snapshot: str | None,
        status: str | None,
        part: LogPart,
        fields: Sequence[str],
    ) -> Iterator[pa.RecordBatch]:
        try:
            import pyarrow as pa
            from adbc_driver_manager import Error
            from adbc_driver_postgresql import StatementOptions, dbapi
        except ImportError as error:
            raise ConfigError(
                f"Arrow is not installed ({error}): {install_command('spark')}"
            ) from error

        def opened(url: URL) -> dbapi.Connection:
            uri = url.set(drivername="postgresql").update_query_dict(_ARGUMENTS)
            text = uri.render_as_string(hide_password=False)
            # libpq refuses blanks, for example in a password.
            return dbapi.connect(text.replace(" ", "%20"), autocommit=True)

        try:
            try:
                session = opened(_with_safe_path(url))
            except Error:  # a pool refuses the option
                session = opened(url)
            with session as connection, connection.cursor() as cursor:
                cursor.adbc_statement.set_options(
                    **{StatementOptions.BATCH_SIZE_HINT_BYTES.value: str(_BATCH_BYTES)}
                )
                adopted = [] if snapshot is None else [adopt(snapshot)]
                plans = [f"SET LOCAL {name} = off" for name in OTHER_PLANS]
                begin = f"BEGIN ISOLATION LEVEL {_ISOLATION} READ ONLY"
                for statement in (*self.session, begin, *adopted, *plans):
                    cursor.execute(statement)
                rows = self.part_statement(log, status, fields, f"{part.first:d} AND {part.last:d}")
                cursor.execute(with_schemas(rows))
                schema = arrow_schema(fields)
                for batch in cursor.fetch_record_batch():
                    yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
                # Spark discards the rows of a task that fails.
                cursor.execute(with_schemas(PROOF))
                proof_of(cursor.fetchall()).refuse_changed()
        except Error as error:
            raise unreadable_part(log, part, url, error) from None


@lru_cache(maxsize=8)
def _with_safe_path(url: URL) -> URL:
    """Return the URL for sessions of ADBC: if the search path is unsafe, with another one. When
    ADBC connects, it reads the types by statements whose names have no schemas.
    """
    with connect(url).connect() as conn:
        if not unsafe_schemas(conn):
            return url
    given = url.query.get("options", "")
    options = given if isinstance(given, str) else " ".join(given)
    return url.update_query_dict({"options": f"{options} -csearch_path=pg_catalog".strip()})


# --- the statements that create the log
# -------------------------------------------------------------


def _set(log: LogTable, table: str, parameters: Mapping[str, str]) -> str:
    return f"ALTER TABLE {qualified(log.schema, table)} SET ({storage_parameters(parameters)})"


def _status_function(log: LogTable) -> str:
    """Return the quoted name of the function that refuses an invalid status."""
    return qualified(log.schema, log.own_name("proc_{}_status"))


def _create_status_function(log: LogTable) -> str:
    message = (
        f"the status of a row of {log.name} must be a letter, A to Z or a to z: "
        "any other is never read"
    )
    return f"""\
CREATE OR REPLACE FUNCTION {_status_function(log)}(status pg_catalog.bpchar) RETURNS pg_catalog.bool
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $eventlog$
BEGIN
    RAISE check_violation USING MESSAGE = {literal(message)},
        DETAIL = pg_catalog.concat(
            'It is ', pg_catalog.quote_nullable(status::pg_catalog.text), '.');
END
$eventlog$"""


DIALECT: Final = PostgreSQL()
