"""The log in parts, for many sessions that see the same rows (spec/event-log.md 12).

Sessions of SQLite cannot share a snapshot, and need none here: it takes one writer at a time, so record_ids are given
in the order of commits, and no row at or below the highest one that was seen can come later. Nobody marks rows while a
job holds the log, so its parts, which end at that row, hold the same rows N for whoever reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from sqlalchemy import URL, Connection

from eventlog.errors import DatabaseError
from eventlog.sql.bulk import arrow_batch

if TYPE_CHECKING:
    import pyarrow as pa

_LAST: Final = 2**63 - 1
_BATCH_ROWS: Final = 20_000
_PREFIX: Final = "sqlite-schema-"


def export(conn: Connection) -> str:
    """A name for what is there now: the version of the schema."""
    return _PREFIX + str(conn.exec_driver_sql("PRAGMA main.schema_version").scalar_one())


def join(conn: Connection, snapshot: str) -> None:
    """Nothing to be done but to see that tables are still what they were. Raises DatabaseError if they are not."""
    if export(conn) != snapshot:
        raise DatabaseError("the tables have changed since the job began: run the command again")


def read(url: URL, snapshot: str | None, statement: str, fields: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a statement, in one transaction of a connection of its own. Raises DatabaseError."""
    # connection loads the dialects, of which this is one.
    from eventlog.sql.connection import as_database_errors, connect

    with connect(url).connect() as conn, as_database_errors(conn):
        if snapshot is not None:
            join(conn, snapshot)
        result = conn.exec_driver_sql(statement)
        assert result.cursor is not None
        while rows := result.cursor.fetchmany(_BATCH_ROWS):
            yield arrow_batch(fields, rows)
        result.close()
