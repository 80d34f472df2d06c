"""The log as Arrow batches by ADBC, which makes no Python object a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from sqlalchemy import URL

from eventlog.errors import ConfigError, DatabaseError
from eventlog.sql.bulk import Part, arrow_schema
from eventlog.sql.dialects.postgresql import snapshot as snapshots
from eventlog.sql.dialects.postgresql.session import SESSION
from eventlog.sql.log_table import LogTable

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_BYTES: Final = 8 * 2**20
_ARGUMENTS: Final = {"connect_timeout": "10", "application_name": "eventlog", "client_encoding": "UTF8"}


def read(
    url: URL, log: LogTable, snapshot: str | None, has_status: str, part: Part, fields: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of a part in record_id order; one connection, open while the batches are taken. Raises DatabaseError."""
    try:
        import pyarrow as pa
        from adbc_driver_manager import Error
        from adbc_driver_postgresql import StatementOptions, dbapi
    except ImportError as error:
        raise ConfigError(f"Arrow is not installed ({error}): install eventlog-publisher[spark]") from error

    uri = url.set(drivername="postgresql").update_query_dict(_ARGUMENTS).render_as_string(hide_password=False)
    try:
        with dbapi.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.adbc_statement.set_options(**{StatementOptions.BATCH_SIZE_HINT_BYTES.value: str(_BATCH_BYTES)})
            for statement in (*SESSION, *snapshots.begin(snapshot)):
                cursor.execute(statement)
            cursor.execute(snapshots.select_rows(log, has_status, part, fields))
            schema = arrow_schema(fields)
            for batch in cursor.fetch_record_batch():
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
    except Error as error:
        reason = " ".join(str(error).split())
        if url.password:
            reason = reason.replace(str(url.password), "***")
        raise DatabaseError(
            f"rows {part.first} to {part.last} of the log {log} cannot be read from database {url.database!r} at "
            f"{url.host or 'the local socket'}: {reason}"
        ) from None
