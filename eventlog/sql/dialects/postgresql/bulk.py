"""One snapshot of the log for many sessions, and the log in parts of equal size (spec/event-log.md 12).

One session exports its snapshot and stays in its transaction; the others adopt it and see exactly the same rows,
whatever is committed in between.

Spark's data source reads the log as Arrow batches by ADBC, which makes no Python object a row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from sqlalchemy import URL, Connection

from eventlog.errors import ConfigError, DatabaseError
from eventlog.sql.connection import describe, reason_of
from eventlog.sql.dialect import Dialect, Part, arrow_schema
from eventlog.sql.log_table import LogTable

if TYPE_CHECKING:
    import pyarrow as pa

_ISOLATION: Final = "REPEATABLE READ"
_SNAPSHOT: Final = re.compile(r"[0-9A-Fa-f-]{1,64}")
_TIMEOUTS: Final = "idle_in_transaction_session_timeout", "transaction_timeout", "statement_timeout"
_BATCH_BYTES: Final = 8 * 2**20
_ARGUMENTS: Final = {"connect_timeout": "10", "application_name": "eventlog", "client_encoding": "UTF8"}


class PostgresBulk(Dialect):
    """A snapshot lives as long as the transaction that exported it, whatever the time-outs of its session."""

    snapshot_options: ClassVar = {"isolation_level": _ISOLATION}

    def export_snapshot(self, conn: Connection) -> str:
        snapshot = str(conn.exec_driver_sql("SELECT pg_catalog.pg_export_snapshot()").scalar_one())
        conn.exec_driver_sql(
            "SELECT set_config(name, '0', true) FROM pg_catalog.pg_settings WHERE name = ANY (%(names)s)",
            {"names": list(_TIMEOUTS)},
        )
        return snapshot

    def join_snapshot(self, conn: Connection, snapshot: str) -> None:
        conn.exec_driver_sql(_adopt(snapshot))

    def part_field(self, log: LogTable, field: str) -> str:
        column = self.quote(log.column(field))
        if field == "event_time":
            time = self.log_times(column, is_zoned=log.has_zoned_time)["time"]
            return f"CASE WHEN isfinite({column}) THEN {time} END"
        text = super().part_field(log, field)
        return f"({text})::bigint" if field in ("record_id", "event_type") else text

    def read_part(
        self, url: URL, log: LogTable, snapshot: str | None, status: str | None, part: Part, fields: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        try:
            import pyarrow as pa
            from adbc_driver_manager import Error
            from adbc_driver_postgresql import StatementOptions, dbapi
        except ImportError as error:
            raise ConfigError(f"Arrow is not installed ({error}): install eventlog-publisher[spark]") from error

        uri = url.set(drivername="postgresql").update_query_dict(_ARGUMENTS).render_as_string(hide_password=False)
        uri = uri.replace(" ", "%20")  # of a password, say: libpq refuses them
        try:
            with dbapi.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:
                cursor.adbc_statement.set_options(**{StatementOptions.BATCH_SIZE_HINT_BYTES.value: str(_BATCH_BYTES)})
                for statement in (*self.session, *_begin(snapshot)):
                    cursor.execute(statement)
                cursor.execute(self.part_statement(log, status, fields, f"{part.first:d} AND {part.last:d}"))
                schema = arrow_schema(fields)
                for batch in cursor.fetch_record_batch():
                    yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
        except Error as error:
            rows = f"rows {part.first} to {part.last} of the log {log}"
            raise DatabaseError(f"{rows} cannot be read from {describe(url)}: {reason_of(error, url)}") from None


def _adopt(snapshot: str) -> str:
    """The statement that adopts a snapshot: the first one of a transaction of isolation level ``_ISOLATION``.

    Raises DatabaseError for a text that is no name of a snapshot.
    """
    if _SNAPSHOT.fullmatch(snapshot) is None:
        raise DatabaseError(f"{snapshot!r} is no name of a snapshot: give what pg_export_snapshot() returned")
    return f"SET TRANSACTION SNAPSHOT '{snapshot}'"


def _begin(snapshot: str | None) -> Sequence[str]:
    """The statements that begin a transaction for reading, of the snapshot if there is one, that walks the index."""
    plans = [f"SET LOCAL {name} = off" for name in ("enable_seqscan", "enable_bitmapscan", "enable_sort")]
    adopted = [] if snapshot is None else [_adopt(snapshot)]
    return [f"BEGIN ISOLATION LEVEL {_ISOLATION} READ ONLY", *adopted, *plans]
