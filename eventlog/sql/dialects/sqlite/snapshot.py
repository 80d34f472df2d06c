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
from eventlog.model import LogRow
from eventlog.sql.bulk import Part, arrow_batch, check_letter, cut
from eventlog.sql.dialects.sqlite.log import selected
from eventlog.sql.dialects.sqlite.text import quote_identifier
from eventlog.sql.log_table import LogTable

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


def parts(
    conn: Connection, log: LogTable, status: str | None, first: int, last: int, rows: int, at_least: int
) -> list[Part]:
    """Ranges of record_ids that hold about equal numbers of rows of a status, at most ``rows``, in ascending order.

    ``status`` None: whatever their status. ``at_least``: so many parts, if there are enough rows for it to be worth it.
    The ranges cover all record_ids from ``first`` (1 or more) to the last row that is there now.
    """
    record_id = _column(log, "record_id")
    first, last = max(first, 1), min(last, _LAST)
    chosen = f"{_has_status(log, status)} AND {record_id} BETWEEN {first:d} AND {last:d}"
    where = f"FROM {quote_identifier(log.name)} WHERE {chosen}"
    total, greatest = conn.exec_driver_sql(f"SELECT count(*), max({record_id}) {where}").one()
    if not total:
        return []
    size = cut(total, rows, at_least)
    numbered = f"SELECT {record_id} AS record_id, row_number() OVER (ORDER BY {record_id}) AS n {where}"
    found = conn.exec_driver_sql(f"SELECT record_id FROM ({numbered}) WHERE (n - 1) % {size:d} = 0 ORDER BY 1")  # noqa: S608
    firsts = [int(record_id) for (record_id,) in found]
    firsts[0] = first
    lasts = [*(after - 1 for after in firsts[1:]), int(greatest)]
    sizes = [size] * (len(firsts) - 1) + [total - size * (len(firsts) - 1)]
    return list(map(Part, firsts, lasts, sizes))


def read(
    url: URL, log: LogTable, snapshot: str | None, status: str | None, part: Part, fields: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of a part in record_id order, in one transaction of a connection of its own. Raises DatabaseError."""
    # connect loads the dialects, of which this is one.
    from eventlog.sql.connection import as_database_errors, connect

    record_id = _column(log, "record_id")
    statement = (
        f"SELECT {', '.join(_typed(log, field) for field in fields)} FROM {quote_identifier(log.name)}"  # noqa: S608
        f" WHERE {_has_status(log, status)} AND {record_id} BETWEEN {part.first:d} AND {part.last:d}"
        f" ORDER BY {record_id}"
    )
    with connect(url).connect() as conn, as_database_errors(conn):
        if snapshot is not None:
            join(conn, snapshot)
        result = conn.exec_driver_sql(statement)
        assert result.cursor is not None
        while rows := result.cursor.fetchmany(_BATCH_ROWS):
            yield arrow_batch(fields, rows)
        result.close()


def _has_status(log: LogTable, status: str | None) -> str:
    """SQL: the row has this status letter, as a literal, so that the partial index of the rows N serves."""
    return "1" if status is None else f"{_column(log, 'status')} = '{check_letter(status)}'"


def _typed(log: LogTable, field: str) -> str:
    if field == "event_time":
        # What is no time is none.
        return f"strftime('%Y-%m-%d %H:%M:%f', {_column(log, field)})"
    if field == "status":
        return f"rtrim({_column(log, field)}, ' ')"
    return selected(log, field)


def _column(log: LogTable, field: str) -> str:
    return quote_identifier(log.columns[LogRow._fields.index(field)])
