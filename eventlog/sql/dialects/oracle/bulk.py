"""The log in parts of one moment, as Arrow batches by python-oracledb's data frames (spec/event-log.md 12).

The moment is a system change number: every session reads the log AS OF it, as long as the database keeps the undo.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import URL, Connection

from eventlog.errors import ConfigError, DatabaseError
from eventlog.sql.connection import describe, reason_of
from eventlog.sql.dialect import Dialect, Part, arrow_schema
from eventlog.sql.dialects.oracle.session import fetch
from eventlog.sql.dialects.oracle.text import short_integer
from eventlog.sql.dialects.stepwise import BATCH_ROWS
from eventlog.sql.log_table import LogTable

if TYPE_CHECKING:
    import pyarrow as pa

_SCN: Final = re.compile("[0-9]{1,20}")


class OracleBulk(Dialect):
    """A snapshot is named by its system change number. Exporting one needs EXECUTE on DBMS_FLASHBACK."""

    def export_snapshot(self, conn: Connection) -> str:
        return str(fetch(conn, "SELECT TO_CHAR(SYS.DBMS_FLASHBACK.GET_SYSTEM_CHANGE_NUMBER) FROM DUAL")[0][0])

    def join_snapshot(self, conn: Connection, snapshot: str) -> None:
        # Before the transaction begins.
        conn.exec_driver_sql(
            "BEGIN\n    SYS.DBMS_FLASHBACK.ENABLE_AT_SYSTEM_CHANGE_NUMBER(:scn);\nEND;", {"scn": int(_scn(snapshot))}
        )

    def read_part(
        self, url: URL, log: LogTable, snapshot: str | None, status: str | None, part: Part, fields: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
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
        statement, bounds = self.part_as_of(log, snapshot, status, fields), {"first": part.first, "last": part.last}
        try:
            with oracledb.connect(**arguments) as connection:
                with connection.cursor() as cursor:
                    for setting in self.session:
                        cursor.execute(setting)
                for frame in connection.fetch_df_batches(statement, bounds, size=BATCH_ROWS):
                    yield from typed(pa.table(frame), schema).to_batches()
        except (oracledb.Error, OSError) as error:  # OSError: the thin mode lets errors of the socket through
            rows = f"rows {part.first} to {part.last} of the log {log}"
            raise DatabaseError(f"{rows} cannot be read from {describe(url)}: {reason_of(error, url)}") from None

    def part_as_of(self, log: LogTable, snapshot: str | None, status: str | None, fields: Sequence[str]) -> str:
        """The statement that reads a part as it was at a snapshot."""
        as_of = "" if snapshot is None else f" AS OF SCN {_scn(snapshot)}"
        return self.part_statement(log, status, fields, as_of=as_of)

    def part_field(self, log: LogTable, field: str) -> str:
        column = self.quote(log.column(field))
        match field:
            case "record_id":
                return f"CAST({column} AS NUMBER(18))"  # so many digits, so that it comes as an integer
            case "event_type":
                return short_integer(column, 18)
            case "event_time":
                return f"CAST({self.log_times(column, is_zoned=log.has_zoned_time)['time']} AS TIMESTAMP(6))"
            case _:
                return super().part_field(log, field)


def _scn(snapshot: str) -> str:
    """The system change number itself. Raises DatabaseError for a text that is none."""
    if _SCN.fullmatch(snapshot) is None:
        raise DatabaseError(f"{snapshot!r} is no system change number: give what `export_snapshot` returned")
    return snapshot


def typed(table: Any, schema: Any) -> Any:
    """The columns of a data frame with the names and types of the schema: the driver makes them wider."""
    return table.rename_columns(schema.names).cast(schema, safe=False)
