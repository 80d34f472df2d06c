"""A database and a log as one session sees them: a connection, its dialect, and the log's table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection

from eventlog.core.ranges import Ranges
from eventlog.errors import LogTableError
from eventlog.model import LogRow
from eventlog.sql.dialect import Dialect, RowChunks
from eventlog.sql.log_table import LogTable, quoted
from eventlog.sql.rights import Addition, Part, Purpose, Right, demanded, name_of
from eventlog.sql.windows import Window

_LATER: Final = frozenset({Part.CONSUMER, Part.CAPTURED, Part.RESYNC, Part.VERSION})
"""The parts that a log may lack: whoever needs them asks for them first."""


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

    def lacking(self, needed: Iterable[tuple[Part, Right]]) -> list[str]:
        """Return which of these rights on parts of the log this session lacks, in words."""
        return self.dialect.lacking(self.connection, self.table, needed)

    def missing_rights(self, purpose: Purpose, *additions: Addition) -> list[str]:
        """Return the rights without which this session cannot do the work of a purpose, in words.

        A table that an older log lacks is not asked for.
        """
        return self.lacking(self._present(demanded(purpose, *additions)))

    def _present(self, needed: Iterable[tuple[Part, Right]]) -> Iterator[tuple[Part, Right]]:
        has_table = sa.inspect(self.connection).has_table
        for part, right in needed:
            name, schema = quoted(name_of(self.table, part)), self.table.schema
            if part not in _LATER or has_table(name, schema):
                yield part, right

    def check_rights(self, purpose: Purpose, *additions: Addition) -> None:
        """Raise LogTableError that names the rights which this session lacks for a purpose."""
        self._refuse_without(demanded(purpose, *additions), purpose)

    def check_rights_to_read(self, purpose: Purpose) -> None:
        """Raise LogTableError that names what this session may not read and a purpose reads."""
        needed = demanded(purpose)
        self._refuse_without([one for one in needed if one[1] is Right.SELECT], purpose)

    def _refuse_without(self, needed: Iterable[tuple[Part, Right]], purpose: Purpose) -> None:
        if missing := self.lacking(self._present(needed)):
            raise LogTableError(
                f"user {self.dialect.current_user(self.connection)} lacks rights on the log "
                f"{self}: {'; '.join(missing)}; have its owner grant them, as `eventlog grants "
                f"--for {purpose}` prints them"
            )
