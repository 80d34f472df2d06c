"""A database and a log as one session sees them: a connection, its dialect, and the log's table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection

from eventlog.core.ranges import Ranges
from eventlog.errors import LogTableError
from eventlog.model import LogRow
from eventlog.sql.dialect import Dialect, RowChunks
from eventlog.sql.log_table import LogTable
from eventlog.sql.windows import Window


class OpenDatabase(NamedTuple):
    """A database that is open: a connection and its dialect. It is made once, where a session
    begins.
    """

    connection: Connection
    dialect: Dialect


@dataclass(frozen=True, slots=True)
class OpenLog:
    """A log that is open: its connection, its dialect and its table. It is made once, where the
    log is found.
    """

    connection: Connection
    dialect: Dialect
    table: LogTable

    def __str__(self) -> str:
        return str(self.table)

    @property
    def db(self) -> OpenDatabase:
        """The open database of the log."""
        return OpenDatabase(self.connection, self.dialect)

    def on(self, connection: Connection) -> OpenLog:
        """Return the log as another session sees it."""
        return OpenLog(connection, self.dialect, self.table)

    def commit(self) -> None:
        """Commit the transaction of the session."""
        self.connection.commit()

    def read_window(self, window: Window) -> list[LogRow]:
        """Return the rows N of a window, as ``Dialect.read_window`` does."""
        return self.dialect.read_window(self.connection, self.table, window)

    def window_chunks(self, window: Window, fields: Sequence[str], size: int) -> RowChunks:
        """Yield these fields of the rows of a window, as ``Dialect.window_chunks`` does."""
        return self.dialect.window_chunks(self.connection, self.table, window, fields, size)

    def read_fields(self, window: Window, fields: Sequence[str]) -> Iterator[list[tuple[Any, ...]]]:
        """Yield these fields of the rows of a window, as ``Dialect.read_fields`` does."""
        return self.dialect.read_fields(self.connection, self.table, window, fields)

    def read_rows(self, ranges: Ranges) -> list[LogRow]:
        """Return the rows of these record_ids, as ``Dialect.read_rows`` does."""
        return self.dialect.read_rows(self.connection, self.table, ranges)

    def read_columns(self, ranges: Ranges, fields: Sequence[str]) -> list[tuple[Any, ...]]:
        """Return these fields of the rows of these record_ids, as ``Dialect.read_columns`` does."""
        return self.dialect.read_columns(self.connection, self.table, ranges, fields)

    def due_until(self, event_time_zone: str = "utc") -> str:
        """Return the database's clock now, as ``Dialect.due_until`` does."""
        return self.dialect.due_until(self.connection, self.table, event_time_zone)

    def mark(self, letter: str, ranges: Ranges) -> int:
        """Give rows N another letter, as ``Dialect.mark`` does, and return their number."""
        return self.dialect.mark(self.connection, self.table, letter, ranges)

    def delete(self, ranges: Ranges) -> int:
        """Delete rows N, as ``Dialect.delete`` does, and return their number."""
        return self.dialect.delete(self.connection, self.table, ranges)

    def open_writers(self) -> frozenset[str] | None:
        """Return the open transactions of others that have written the log, as
        ``Dialect.open_writers`` does.
        """
        return self.dialect.open_writers(self.connection, self.table)

    def check_rights(self, *, delete: bool = False, missing: Sequence[str] | None = None) -> None:
        """Raise LogTableError that names the rights which this session lacks to publish the log.

        ``delete`` says that rows will be deleted (``delete_from_log``). ``missing`` are the rights
        that it lacks for another purpose.
        """
        if missing is None:
            missing = self.dialect.missing_rights(self.connection, self.table, delete)
        if missing:
            raise LogTableError(
                f"user {self.dialect.current_user(self.connection)} lacks rights on the log "
                f"{self}: {'; '.join(missing)}; have its owner grant them"
            )
