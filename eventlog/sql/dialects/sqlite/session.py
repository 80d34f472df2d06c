"""Sessions of a SQLite file: how they begin and decode text, their lock on a log, and the answers
for ``doctor``.

Each log has one publisher. Its session holds a lock file beside the database with flock
(spec/event-log.md 12).
"""

from __future__ import annotations

import errno
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import IO, Any, ClassVar, Final

from sqlalchemy import URL, Connection, PoolProxiedConnection, inspect

from eventlog.core.clock import sleep
from eventlog.errors import ConfigError, DatabaseAway, DatabaseError
from eventlog.sql.database import WRITES
from eventlog.sql.dialect import Dialect
from eventlog.sql.doctor import Answer, AnswerFunction
from eventlog.sql.epoch import read_epoch, write_epoch
from eventlog.sql.log_table import LogTable
from eventlog.sql.open_log import OpenLog
from eventlog.sql.rights import Part, Right, Rights
from eventlog.sql.statements import quote_identifier, statements

_LEAST_VERSION: Final = (3, 38, 0)
"""The oldest SQLite library that has RETURNING, pragma_table_list and the JSON functions."""


_PASSING: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
    }
)
"""The lowest eight bits of the codes of temporary errors."""
_MOVED: Final = 8 | 4 << 8
"""The code SQLITE_READONLY_DBMOVED: a file without WAL mode was moved from under the session, which
may not write any more. The next connection finds what is at the path then.
"""


class Session(sqlite3.Connection):
    """A connection that reads every text, also text that is not UTF-8.

    Text that cannot be written then makes one bad row.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
        self.at_end = ExitStack()
        """The resources that end with the session, such as its locks."""
        self.file = _stat(Path(args[0] if args else kwargs["database"]))
        """The file that the session has open, None for a database in memory."""

    def close(self) -> None:
        self.at_end.close()
        super().close()


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


_HELD: Final = "eventlog_locks"
_ATTEMPTS: Final = 5
"""The number of attempts at a lock, since a session that only reads holds the file for a moment."""


class SQLiteSessions(Dialect):
    """The driver of Python's library, the lock file, and the rights on the database file."""

    driver = "sqlite+pysqlite"
    connect_advice: ClassVar = dict.fromkeys(
        ("not a database", "unable to open"), "correct the database URL"
    )

    def connect_args(self, timeout: int) -> dict[str, object]:
        # The driver waits this long for another writer, and begins no transaction itself.
        return {
            "timeout": timeout,
            "isolation_level": None,
            "factory": Session,
            "check_same_thread": False,
        }

    def begin(self, connection: PoolProxiedConnection) -> None:
        # A writing session takes its turn now; a reading one sees one moment.
        with closing(connection.cursor()) as cursor:
            cursor.execute("BEGIN IMMEDIATE" if connection.info.get(WRITES) else "BEGIN")

    def begin_reading(self, conn: Connection, seconds: int) -> None:
        conn.exec_driver_sql("PRAGMA query_only = ON")
        # A statement waits this long for a lock.
        conn.exec_driver_sql(f"PRAGMA busy_timeout = {int(seconds) * 1000}")

    def check_url(self, url: URL) -> None:
        # A database in memory is shared with no application.
        if not self.is_there(url):
            raise DatabaseError(
                f"there is no database file {str(_path(url))!r}: correct the database URL, or "
                "make it with `eventlog db upgrade`"
            )

    def is_there(self, url: URL) -> bool:
        return _path(url).exists()

    def prepare(self, url: URL) -> None:
        # Make the file if it is missing, and let readers and the writer work side by side (WAL
        # mode, which stays).
        path = _path(url)
        try:
            with closing(sqlite3.connect(path)) as conn:
                conn.execute("PRAGMA journal_mode = WAL")
        except sqlite3.Error as error:
            raise DatabaseError(
                f"the database file {str(path)!r} cannot be prepared: {error}; is it a database "
                "of SQLite, in a directory that is there and may be written?"
            ) from error

    def refuses(self, error: BaseException) -> bool:
        code: int | None = getattr(error, "sqlite_errorcode", None)
        return code is not None and code != _MOVED and code & 0xFF not in _PASSING

    def session_id(self, conn: Connection) -> str:
        return f"{os.getpid()}-{id(conn.connection.dbapi_connection)}"

    def identity(self, conn: Connection, log: LogTable) -> str:
        # A log that is created again in the same place has the same identity.
        return f"sqlite/{_file_of(conn)}/{log.name}"

    def server_parts(self, conn: Connection, log: LogTable) -> dict[str, str]:
        # The device may have another number after a restart of the machine.
        opened = _opened(conn)
        return {} if opened is None else {"file": str(opened.st_ino)}

    def refuse_replaced(self, conn: Connection) -> None:
        path, opened = conn.engine.url.database, _opened(conn)
        if not path or opened is None:
            return
        now = _stat(Path(path))
        if now is not None and os.path.samestat(now, opened):
            return
        file = str(_file_of(conn))
        if now is None:
            raise DatabaseAway(f"the database file {file!r} is gone: it was moved or removed")
        raise DatabaseAway(
            f"the database file {file!r} was replaced by another one, which is opened now"
        )

    def try_lock(self, conn: Connection, log: LogTable) -> bool:
        # From the next transaction on, the session writes.
        path = _lock_path(conn, log)
        if path is None or self.holds_lock(conn, log):
            return True
        for attempt in range(_ATTEMPTS):
            file = _lock_file(path)
            if file is not None:
                session: Any = conn.connection.dbapi_connection
                _name_published(file, _opened(conn))
                _held(conn)[log] = file
                conn.info[WRITES] = True
                session.at_end.callback(_give_back, file, path)
                return True
            if attempt + 1 < _ATTEMPTS:
                sleep(0.02)
        return False

    def claim(self, conn: Connection, log: LogTable) -> bool:
        path, line = _lock_path(conn, log), read_epoch(OpenLog(conn, self, log))
        if path is None or line.server.get(_PART) == str(path):
            return True
        if _holder_elsewhere(OpenLog(conn, self, log), path) is not None:
            return False
        write_epoch(
            OpenLog(conn, self, log),
            line._replace(server={**line.server, _PART: str(path)}),
            is_raise=False,
        )
        return True

    def is_locked(self, conn: Connection, log: LogTable) -> bool:
        path = _lock_path(conn, log)
        if path is None:
            return False
        if (
            self.holds_lock(conn, log)
            or _holder_elsewhere(OpenLog(conn, self, log), path) is not None
        ):
            return True
        return _is_locked(path)

    def try_consumer_lock(self, conn: Connection, log: LogTable, consumer: str) -> bool:
        # From the next transaction on, the session writes.
        if (path := _consumer_lock_path(conn, log, consumer)) is not None:
            file = _lock_file(path)
            if file is None:
                return False
            session: Any = conn.connection.dbapi_connection
            session.at_end.callback(_give_back, file, path)
        conn.info[WRITES] = True
        return True

    def is_consumer_locked(self, conn: Connection, log: LogTable, consumer: str) -> bool:
        path = _consumer_lock_path(conn, log, consumer)
        return path is not None and _is_locked(path)

    def holds_lock(self, conn: Connection, log: LogTable) -> bool:
        # The file must also still be the one that other sessions would find.
        file = _held(conn).get(log)
        path = _lock_path(conn, log)
        return path is None or (file is not None and _is_at(file, path))

    def unlock(self, conn: Connection, log: LogTable) -> None:
        file, path = _held(conn).pop(log, None), _lock_path(conn, log)
        if file is not None and path is not None:
            _give_back(file, path)

    def grants(self, conn: Connection, log: LogTable, rights: Rights, user: str) -> list[str]:
        # A command in place of a GRANT: it lets this process write the file and its directory.
        file = _file_of(conn)
        return [] if file is None else [f"chmod u+rw {file} && chmod u+rwx {file.parent}"]

    def lacking(
        self, conn: Connection, log: LogTable, needed: Iterable[tuple[Part, Right]]
    ) -> list[str]:
        file = _file_of(conn)
        if file is None:
            return []
        # The directory must be writable, too: SQLite keeps its journal there,
        # and the publisher its lock.
        return [
            f"write access to {str(path)!r}"
            for path in (file, file.parent)
            if not os.access(path, os.W_OK)
        ]


def _file_of(conn: Connection) -> Path | None:
    """Return the database file of a session, None for a database in memory."""
    path = conn.engine.url.database
    return Path(path).resolve() if path and path != ":memory:" else None


def _opened(conn: Connection) -> os.stat_result | None:
    """Return the file that a session has open, None for a database in memory. For a session of
    another maker it is the file at the session's path.
    """
    session = conn.connection.dbapi_connection
    if isinstance(session, Session):
        return session.file
    path = _file_of(conn)
    return None if path is None else _stat(path)


def _path(url: URL) -> Path:
    if sqlite3.sqlite_version_info < _LEAST_VERSION:
        needed = ".".join(map(str, _LEAST_VERSION))
        raise ConfigError(
            f"SQLite {sqlite3.sqlite_version} is too old: {needed} or later is needed"
        )
    if not url.database or url.database == ":memory:" or url.database.startswith("file:"):
        raise ConfigError(
            "the database URL names no file: write it as sqlite:///relative/path or sqlite:////path"
        )
    return Path(url.database)


def _lock_path(conn: Connection, log: LogTable) -> Path | None:
    """Return the lock file of a log: ``FILE-LOG.lock`` beside the database; None for a database in
    memory.
    """
    file = _file_of(conn)
    return (
        None if file is None else file.with_name(f"{file.name}-{log.name.replace('/', '_')}.lock")
    )


def _consumer_lock_path(conn: Connection, log: LogTable, consumer: str) -> Path | None:
    """Return a consumer's lock file, ``FILE-LOG-CONSUMER.lock``; None for a database in memory."""
    file = _file_of(conn)
    name = f"{log.name}-{consumer}".replace("/", "_")
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
    """Remove the lock file while it is still locked, then release the lock."""
    if not file.closed:
        with file:
            if _is_at(file, path):
                path.unlink()


def _held(conn: Connection) -> dict[LogTable, IO[Any]]:
    held: dict[LogTable, IO[Any]] = conn.info.setdefault(_HELD, {})
    return held


def _lock_file(path: Path) -> IO[Any] | None:
    """Return the locked file; None if another session holds it."""
    try:
        file = path.open("ab")
    except OSError as error:
        raise DatabaseError(
            f"the lock file {str(path)!r} cannot be written: {error.strerror}; the publisher "
            "needs the right to write the database's directory"
        ) from error
    # A session that releases the log removes the file:
    # a lock on the removed file would keep no session away.
    if _flock(file, shared=False) and _is_at(file, path):
        return file
    file.close()
    return None


# A moved file takes its log along and leaves its lock behind. So the lock file names the database
# file that is published, and the log names its lock file: a session that opens the file under
# another name looks there, too.

_PART: Final = "lock"
"""The key of the lock in ``<log>_epoch.server``.

It is not among ``server_parts``, so it does not affect the epoch.
"""


def _holder_elsewhere(log: OpenLog, path: Path) -> Path | None:
    """Return the lock file of a publisher that has this file open by another name; None if there is
    none.
    """
    if not inspect(log.connection).has_table(log.table.epoch_table):
        return None  # the table of a source's position is locked like a log, but has no companions
    opened, other = _opened(log.connection), read_epoch(log).server.get(_PART)
    if other is None or other == str(path) or opened is None:
        return None
    try:
        with Path(other).open("rb") as file:
            if _flock(file, shared=True):
                return None  # its publisher has ended
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
            "this system has no flock, which keeps a second publisher off a SQLite log"
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


# --- what doctor asks beside doctor.sql -----------------------------------------------------------

_SQL: Final = statements(__package__, "doctor.sql")


def _indexes(conn: Connection, log: LogTable) -> Answer:
    """Return the indexes of the log.

    Its INTEGER PRIMARY KEY, which is the table itself, counts as one.
    """
    keys = [
        row.name
        for row in conn.exec_driver_sql(
            "SELECT name FROM pragma_table_info(?) WHERE pk", (log.name,)
        )
    ]
    if len(keys) == 1:
        yield "primary key", True, keys[0], None
    for name, column, sql in conn.exec_driver_sql(_SQL["index_columns"], {"log_name": log.name}):
        predicate = re.search(r"\bWHERE\b(.*)$", sql or "", re.DOTALL | re.IGNORECASE)
        yield name, True, column, predicate[1].strip() if predicate else None


def has_log(conn: Connection, log: str) -> bool:
    """Return True if the log that the text of a trigger names exists."""
    return log in {quote_identifier(row.name) for row in conn.exec_driver_sql(_SQL["tables"])}


def _rights_to_apply(conn: Connection, **_: Any) -> Iterator[tuple[str]]:
    """Yield, in words, the rights that this process lacks to apply triggers."""
    file = _file_of(conn)
    if file is not None and not os.access(file, os.W_OK):
        yield (f"write access to {str(file)!r}",)


ANSWERS: Final[Mapping[str, AnswerFunction]] = {
    "indexes": _indexes,
    "rights_to_apply": _rights_to_apply,
}
