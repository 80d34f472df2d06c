"""The log in parts of one moment, as Arrow batches by python-oracledb's data frames (spec/event-log.md 12).

The moment is a system change number: every session reads the log AS OF it, as long as the database keeps the undo.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import URL, Connection

from eventlog.errors import ConfigError, DatabaseError
from eventlog.sql.bulk import Part, arrow_schema
from eventlog.sql.dialects.oracle.session import SESSION, fetch
from eventlog.sql.dialects.oracle.text import qualified, quote_identifier
from eventlog.sql.log_table import LogTable
from eventlog.sql.registry import reason_of

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_ROWS: Final = 20_000
_SCN: Final = re.compile("[0-9]{1,20}")


def export(conn: Connection) -> str:
    """The system change number of now: what others read the log as of. Needs EXECUTE on DBMS_FLASHBACK."""
    return str(fetch(conn, "SELECT TO_CHAR(SYS.DBMS_FLASHBACK.GET_SYSTEM_CHANGE_NUMBER) FROM DUAL")[0][0])


def join(conn: Connection, snapshot: str) -> None:
    """Make this session see everything as of a system change number, before its transaction begins.

    Raises DatabaseError for a text that is none.
    """
    conn.exec_driver_sql(
        "BEGIN\n    SYS.DBMS_FLASHBACK.ENABLE_AT_SYSTEM_CHANGE_NUMBER(:scn);\nEND;", {"scn": int(_scn(snapshot))}
    )


def _scn(snapshot: str) -> str:
    if _SCN.fullmatch(snapshot) is None:
        raise DatabaseError(f"{snapshot!r} is no system change number: give what `export` returned")
    return snapshot


def read(
    url: URL, log: LogTable, snapshot: str | None, has_status: str, part: Part, fields: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of a part in record_id order; one connection, open while the batches are taken.

    Raises DatabaseError, ConfigError where pyarrow or the driver is not installed.
    """
    try:
        import oracledb
        import pyarrow as pa
    except ImportError as error:
        raise ConfigError(
            f"Arrow or the driver is not installed ({error}): install eventlog-publisher[oracle,spark]"
        ) from error
    schema = arrow_schema(fields)
    dialect: Any = url.get_dialect()
    _, arguments = dialect(dbapi=oracledb).create_connect_args(url)
    try:
        with oracledb.connect(**arguments) as connection:
            with connection.cursor() as cursor:
                for statement in SESSION:
                    cursor.execute(statement)
            frames = connection.fetch_df_batches(
                select_rows(log, snapshot, has_status, fields),
                {"first": part.first, "last": part.last},
                size=_BATCH_ROWS,
            )
            for frame in frames:
                yield from typed(pa.table(frame), schema).to_batches()
    except (oracledb.Error, OSError) as error:  # OSError: the thin mode lets errors of the socket through
        raise DatabaseError(
            f"rows {part.first} to {part.last} of the log {log} cannot be read from database at {url.host}: "
            f"{reason_of(error, url)}"
        ) from None


def typed(table: Any, schema: Any) -> Any:
    """The columns of a data frame with the names and types of the schema: the driver makes them wider."""
    return table.rename_columns(schema.names).cast(schema, safe=False)


def select_rows(log: LogTable, snapshot: str | None, has_status: str, fields: Sequence[str]) -> str:
    """The statement that reads fields of ``LogRow`` of the rows from ``:first`` to ``:last`` in record_id order.

    Numbers have eighteen digits, so that they come as integers; event_time is a timestamp in UTC.
    """
    selected = ", ".join(f"{_selected(log, field)} AS {quote_identifier(field)}" for field in fields)
    as_of = "" if snapshot is None else f" AS OF SCN {_scn(snapshot)}"
    record_id = quote_identifier(log.column("record_id"))
    return (
        f"SELECT {selected} FROM {qualified(log.schema, log.name)}{as_of}"  # noqa: S608 - quoted names, digits
        f" WHERE {has_status} AND {record_id} BETWEEN :first AND :last ORDER BY {record_id}"
    )


def _selected(log: LogTable, field: str) -> str:
    column = quote_identifier(log.column(field))
    match field:
        case "record_id":
            return f"CAST({column} AS NUMBER(18))"
        case "event_type":
            return (
                f"CAST(CASE WHEN ABS({column}) < 1000 THEN {column} WHEN {column} IS NOT NULL THEN 0 END AS NUMBER(18))"
            )
        case "event_time":
            return f"CAST({f'SYS_EXTRACT_UTC({column})' if log.has_zoned_time else column} AS TIMESTAMP(6))"
        case "status":
            return f"RTRIM({column}, ' ')"
        case _:
            return column
