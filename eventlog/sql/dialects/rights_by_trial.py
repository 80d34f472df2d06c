"""Test rights by running statements. Rights also come from roles and system privileges, so this is
the most reliable check.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from eventlog.sql.port.database import Answer
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.rights import NeededRights, name_of, tried_columns
from eventlog.sql.port.sql_files import grouped


@dataclass(frozen=True, slots=True)
class TriedRights:
    """The statements that test whether a session has a right; they change nothing.

    ``statements`` has one statement for each of SELECT, INSERT, UPDATE, DELETE, with ``{table}``
    and ``{column}``. ``no_right`` are the codes of errors for a missing right.
    ``otherwise_refused`` are the codes of errors that come only after the rights were checked.
    """

    statements: Mapping[str, str]
    no_right: frozenset[int]
    otherwise_refused: frozenset[int]
    error_code: Callable[[DBAPIError], int]

    def may_run(self, conn: Connection, statement: str) -> bool:
        """Return True if this session has the rights for a statement that changes nothing."""
        try:
            conn.exec_driver_sql(statement, execution_options={"no_parameters": True}).close()
        except DBAPIError as error:
            code = self.error_code(error)
            if code not in self.no_right | self.otherwise_refused:
                raise
            return code in self.otherwise_refused
        return True

    def unreadable(
        self,
        log: OpenLog,
        tables: Sequence[str],
        columns: Sequence[str],
        read: Callable[[str, Sequence[str]], str],
    ) -> Answer:
        """Yield each table that has columns which this session may not read, with these columns.
        ``read`` returns a statement that needs the right to read columns of a table.
        """
        for table, names in grouped(zip(tables, columns, strict=True)).items():
            if not self.may_run(log.connection, read(table, names)):
                yield table, names

    def lacking(self, log: OpenLog, needed: NeededRights) -> list[str]:
        """Return, in words, the rights on tables of a log that this session lacks."""
        table, dialect = log.table, log.dialect
        missing = [
            f"{right.statement} on table {name_of(table, part)}"
            for part, right in needed
            for column in tried_columns(table, part, right, dialect.spelled)
            if not self.may_run(
                log.connection,
                self.statements[right.statement].format(
                    table=dialect.qualified(table.schema, name_of(table, part)),
                    column=dialect.quote(column),
                ),
            )
        ]
        return list(dict.fromkeys(missing))
