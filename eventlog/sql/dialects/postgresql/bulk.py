"""One snapshot of the log for many sessions, and the log in parts of equal size (spec/event-log.md 12).

One session exports its snapshot and stays in its transaction; the others adopt it and see exactly the same rows,
whatever is committed in between.

Spark's data source reads the log as Arrow batches by ADBC, which makes no Python object a row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from sqlalchemy import URL, Connection

from eventlog.errors import ConfigError, DatabaseError
from eventlog.sql.bulk import Part, arrow_schema
from eventlog.sql.dialects.postgresql.log import log_field
from eventlog.sql.log_table import LogTable
from eventlog.sql.registry import reason_of
from eventlog.sql.text import qualified, quote_identifier

if TYPE_CHECKING:
    import pyarrow as pa


ISOLATION: Final = "REPEATABLE READ"

_SNAPSHOT: Final = re.compile(r"[0-9A-Fa-f-]{1,64}")
_TIMEOUTS: Final = "idle_in_transaction_session_timeout", "transaction_timeout", "statement_timeout"


def export(conn: Connection) -> str:
    """The name of this transaction's snapshot, which others can adopt until the transaction ends.

    The connection is of isolation level ``ISOLATION``, and this is its transaction's first statement. No time-out of
    the session ends it.
    """
    snapshot = str(conn.exec_driver_sql("SELECT pg_catalog.pg_export_snapshot()").scalar_one())
    conn.exec_driver_sql(
        "SELECT set_config(name, '0', true) FROM pg_catalog.pg_settings WHERE name = ANY (%(names)s)",
        {"names": list(_TIMEOUTS)},
    )
    return snapshot


def adopt(snapshot: str) -> str:
    """The statement that adopts a snapshot: the first one of a transaction of isolation level ``ISOLATION``.

    Raises DatabaseError for a text that is no name of a snapshot.
    """
    if _SNAPSHOT.fullmatch(snapshot) is None:
        raise DatabaseError(f"{snapshot!r} is no name of a snapshot: give what pg_export_snapshot() returned")
    return f"SET TRANSACTION SNAPSHOT '{snapshot}'"


def join(conn: Connection, snapshot: str) -> None:
    """Adopt a snapshot as the first thing in a transaction. Raises DatabaseError for what is no name of one."""
    conn.exec_driver_sql(adopt(snapshot))


def begin(snapshot: str | None) -> Sequence[str]:
    """The statements that begin a transaction for reading, of the snapshot if there is one, that walks the index."""
    plans = [f"SET LOCAL {name} = off" for name in ("enable_seqscan", "enable_bitmapscan", "enable_sort")]
    adopted = [] if snapshot is None else [adopt(snapshot)]
    return [f"BEGIN ISOLATION LEVEL {ISOLATION} READ ONLY", *adopted, *plans]


def select_rows(log: LogTable, has_status: str, part: Part, fields: Sequence[str]) -> str:
    """The statement that reads fields of ``LogRow`` of a part's rows in record_id order.

    record_id and event_type are bigint, event_time is timestamp (in UTC if the column knows its zone, NULL if it is not
    finite), all others are text.
    """
    selected = ", ".join(f"{_typed(log, field)} AS {field}" for field in fields)
    record_id = quote_identifier(log.column("record_id"))
    return (
        f"SELECT {selected} FROM {qualified(log.schema, log.name)} WHERE {has_status}"  # noqa: S608 - quoted names, integers
        f" AND {record_id} BETWEEN {part.first:d} AND {part.last:d} ORDER BY {record_id}"
    )


def _typed(log: LogTable, field: str) -> str:
    column = quote_identifier(log.column(field))
    match field:
        case "event_time":
            time = f"({column} AT TIME ZONE 'UTC')" if log.has_zoned_time else f"{column}::timestamp"
            return f"CASE WHEN isfinite({column}) THEN {time} END"
        case "record_id" | "event_type":
            return f"({log_field(field, column, log.type_of(field))})::bigint"
        case "status":
            return f"rtrim({column}::text, ' ')"
        case _:
            return f"{column}::text"


_BATCH_BYTES: Final = 8 * 2**20
_ARGUMENTS: Final = {"connect_timeout": "10", "application_name": "eventlog", "client_encoding": "UTF8"}


def read(
    url: URL,
    session: Sequence[str],
    log: LogTable,
    snapshot: str | None,
    has_status: str,
    part: Part,
    fields: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """The rows of a part in record_id order; one connection, open while the batches are taken. Raises DatabaseError."""
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
            for statement in (*session, *begin(snapshot)):
                cursor.execute(statement)
            cursor.execute(select_rows(log, has_status, part, fields))
            schema = arrow_schema(fields)
            for batch in cursor.fetch_record_batch():
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
    except Error as error:
        raise DatabaseError(
            f"rows {part.first} to {part.last} of the log {log} cannot be read from database {url.database!r} at "
            f"{url.host or 'the local socket'}: {reason_of(error, url)}"
        ) from None
