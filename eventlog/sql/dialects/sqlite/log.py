"""A log on SQLite in a session: its statements and its lock."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from sqlalchemy import Connection, inspect

from eventlog.core.clock import sleep
from eventlog.core.ranges import Ranges
from eventlog.errors import ConfigError, DatabaseError
from eventlog.model import LogRow
from eventlog.sql.dialects.sqlite.session import file_of, opened_file
from eventlog.sql.dialects.stepwise import StepwiseLog
from eventlog.sql.log.epoch import read_epoch, write_epoch
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.database import WRITES
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.rights import NeededRights, Rights
from eventlog.sql.port.sql_files import PlainRows

if TYPE_CHECKING:
    from eventlog.sql.dialects.sqlite import SQLite
    from eventlog.sql.dialects.sqlite.database import SQLiteDatabase

_REMEMBERS_NUMBERS: Final = """
    SELECT count(*)
    FROM main.sqlite_schema
    WHERE type = 'table' AND name = ? AND upper(sql) LIKE '%AUTOINCREMENT%'"""
_LAST_NUMBER: Final = "SELECT max(seq) FROM main.sqlite_sequence WHERE name = ?"
_LOCK_FILES: Final = "eventlog_locks"
_ATTEMPTS: Final = 5
"""The number of attempts to get a lock: even a check of the lock locks the file for a moment."""
_PART: Final = "lock"
"""The key of the lock in ``<log>_epoch.server``.

The lock is not one of the ``server_parts``, so it does not affect the epoch.
"""


class SQLiteLog(StepwiseLog):
    """A log on SQLite."""

    db: SQLiteDatabase
    dialect: SQLite

    def identity(self) -> str:
        # A log that is created again in the same place has the same identity.
        return f"sqlite/{file_of(self.connection)}/{self.table.name}"

    def server_parts(self) -> dict[str, str]:
        # Only the inode is used, since the number of the device may change when the machine
        # restarts.
        opened = opened_file(self.connection)
        return {} if opened is None else {"file": str(opened.st_ino)}

    def try_lock(self) -> bool:
        # From the next transaction on, the session writes.
        path = self._lock_path()
        if path is None or self.holds_lock():
            return True
        for attempt in range(_ATTEMPTS):
            file = _lock_file(path)
            if file is not None:
                session: Any = self.connection.connection.dbapi_connection
                _name_published(file, opened_file(self.connection))
                _lock_files(self.connection)[self.table] = file
                self.connection.info[WRITES] = True
                session.at_end.callback(_give_back, file, path)
                return True
            if attempt + 1 < _ATTEMPTS:
                sleep(0.02)
        return False

    def claim(self) -> bool:
        path, entry = (
            self._lock_path(),
            read_epoch(self),
        )
        if path is None or entry.server.get(_PART) == str(path):
            return True
        if _holder_elsewhere(self, path) is not None:
            return False
        write_epoch(
            self,
            entry._replace(server={**entry.server, _PART: str(path)}),
            is_raise=False,
        )
        return True

    def is_locked(self) -> bool:
        path = self._lock_path()
        if path is None:
            return False
        if self.holds_lock() or _holder_elsewhere(self, path) is not None:
            return True
        return _is_locked(path)

    def try_consumer_lock(self, consumer: str) -> bool:
        # From the next transaction on, the session writes.
        if (path := self._lock_path(consumer)) is not None:
            file = _lock_file(path)
            if file is None:
                return False
            session: Any = self.connection.connection.dbapi_connection
            session.at_end.callback(_give_back, file, path)
        self.connection.info[WRITES] = True
        return True

    def is_consumer_locked(self, consumer: str) -> bool:
        path = self._lock_path(consumer)
        return path is not None and _is_locked(path)

    def holds_lock(self) -> bool:
        # The locked file must also still be the file that other sessions would find.
        file = _lock_files(self.connection).get(self.table)
        path = self._lock_path()
        return path is None or (file is not None and _is_at(file, path))

    def unlock(self) -> None:
        file, path = (
            _lock_files(self.connection).pop(self.table, None),
            self._lock_path(),
        )
        if file is not None and path is not None:
            _give_back(file, path)

    def grants(self, rights: Rights, user: str) -> list[str]:
        # This is a shell command in place of a GRANT. It lets this process write to the file and
        # its directory.
        file = file_of(self.connection)
        return [] if file is None else [f"chmod u+rw {file} && chmod u+rwx {file.parent}"]

    def lacking(self, needed: NeededRights) -> list[str]:
        file = file_of(self.connection)
        if file is None:
            return []
        # The directory must be writable, too: SQLite creates its journal there, and the publisher
        # its lock file.
        return [
            f"write access to {str(path)!r}"
            for path in (file, file.parent)
            if not os.access(path, os.W_OK)
        ]

    def read_rows(self, ranges: Ranges) -> list[LogRow]:
        parameters = {"ranges": json.dumps(list(map(list, ranges)))}
        return self.log_rows(self.statement("read_rows"), parameters)

    def read_columns(self, ranges: Ranges, fields: Sequence[str]) -> PlainRows:
        parameters = {"ranges": json.dumps(list(map(list, ranges)))}
        return self.db.fetch(
            self.statement("read_rows", fields=self.dialect.log_fields(self.table, fields)),
            parameters,
        )

    def open_writers(self) -> frozenset[str]:
        # Only one transaction writes at a time, and the record_ids that it draws are above all
        # visible ones.
        return frozenset()

    def next_record_id(self) -> int | None:
        if not self.connection.exec_driver_sql(_REMEMBERS_NUMBERS, (self.table.name,)).scalar():
            return None
        return (
            int(self.connection.exec_driver_sql(_LAST_NUMBER, (self.table.name,)).scalar() or 0) + 1
        )

    def next_number(self) -> int:
        table = self.dialect.quote(self.table.number_sequence)
        number = self.db.scalar(
            f"INSERT INTO {table} DEFAULT VALUES RETURNING delivery_no"  # noqa: S608 - quoted names
        )
        self.connection.exec_driver_sql(f"DELETE FROM {table}")  # noqa: S608 - quoted names
        return int(number)

    def draw_numbers(self, number: int) -> int:
        last = self.next_number() + number - 1
        self.connection.exec_driver_sql(
            "UPDATE sqlite_sequence SET seq = ? WHERE name = ?", (last, self.table.number_sequence)
        )
        return last

    def _lock_path(self, consumer: str = "") -> Path | None:
        """Return a lock file in the directory of the database: ``FILE-LOG.lock`` for the log,
        ``FILE-LOG-CONSUMER.lock`` for a consumer. Return None for a database in memory.
        """
        file = file_of(self.connection)
        name = "-".join(filter(None, (self.table.name, consumer))).replace("/", "_")
        return None if file is None else file.with_name(f"{file.name}-{name}.lock")


def _is_locked(path: Path) -> bool:
    """Return True if a session holds a lock file."""
    if not path.exists():
        return False
    try:
        with path.open("rb") as file:
            return not _flock(file, shared=True)
    except FileNotFoundError:
        return False
    except PermissionError as error:
        raise DatabaseError(
            f"the lock file {str(path)!r} cannot be read: {error.strerror}"
        ) from error


def _give_back(file: IO[Any], path: Path) -> None:
    """Delete the lock file while it is still locked, then release the lock."""
    if not file.closed:
        with file:
            if _is_at(file, path):
                path.unlink()


def _lock_files(conn: Connection) -> dict[LogTable, IO[Any]]:
    files: dict[LogTable, IO[Any]] = conn.info.setdefault(_LOCK_FILES, {})
    return files


def _lock_file(path: Path) -> IO[Any] | None:
    """Lock a file and return it; None if another session has locked it."""
    try:
        file = path.open("ab")
    except OSError as error:
        raise DatabaseError(
            f"the lock file {str(path)!r} cannot be written: {error.strerror}; the publisher "
            "needs the right to write the database's directory"
        ) from error
    # A session that releases the log deletes the file: a lock on a deleted file would not stop any
    # other session.
    if _flock(file, shared=False) and _is_at(file, path):
        return file
    file.close()
    return None


def _holder_elsewhere(log: OpenLog, path: Path) -> Path | None:
    """Return the lock file of a publisher that has opened this database file under another name;
    None if there is none.
    """
    if not inspect(log.connection).has_table(log.table.epoch_table):
        return None  # the table with the position of a source, which is locked like a log
    opened, other = opened_file(log.connection), read_epoch(log).server.get(_PART)
    if other is None or other == str(path) or opened is None:
        return None
    try:
        with Path(other).open("rb") as file:
            if _flock(file, shared=True):
                return None  # that publisher has ended
            return Path(other) if file.read().decode(errors="replace") == _name_of(opened) else None
    except OSError:
        return None


def _name_published(file: IO[Any], published: os.stat_result | None) -> None:
    if published is not None:
        file.truncate(0)
        file.write(_name_of(published).encode())
        file.flush()


def _name_of(file: os.stat_result) -> str:
    return f"{file.st_dev}:{file.st_ino}"


def _flock(file: IO[Any], *, shared: bool) -> bool:
    try:
        import fcntl
    except ImportError as error:
        raise ConfigError(
            "this operating system has no flock, by which eventlog locks a SQLite log against a "
            "second publisher; use another system or database"
        ) from error
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise DatabaseError(
            f"the lock file {file.name!r} cannot be locked: {error.strerror}"
        ) from error
    return True


def _is_at(file: IO[Any], path: Path) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False
