"""Sessions of a SQLite file: how they begin and decode text, their lock on a log, and the answers
for ``doctor``.

Each log has one publisher. The publisher's session holds a lock file next to the database with
flock (spec/event-log.md 12).
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar, Final

from sqlalchemy import URL, Connection, PoolProxiedConnection

from eventlog.core.catalog import match_name
from eventlog.errors import ConfigError, DatabaseError
from eventlog.sql.port.database import WRITES, Answer, AnswerFunction
from eventlog.sql.port.dialect import Dialect
from eventlog.sql.port.open_database import OpenDatabase
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.sql_files import quote_identifier, statements

_MIN_VERSION: Final = (3, 38, 0)
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
"""The codes of transient errors, reduced to their lowest eight bits."""
_MOVED: Final = 8 | 4 << 8
"""The code SQLITE_READONLY_DBMOVED: a file without WAL mode was moved while the session had it
open, so the session can no longer write. The next connection opens the file that is at the path by
then.
"""


class SqliteSession(sqlite3.Connection):
    """A connection that can read any text, including text that is not UTF-8.

    A text that is not UTF-8 therefore makes only its own row invalid.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
        self.at_end = ExitStack()
        """The resources that end with the session, such as the locks of the session."""
        self.file = stat_of(Path(args[0] if args else kwargs["database"]))
        """The file that the session has open, None for a database in memory."""

    def close(self) -> None:
        self.at_end.close()
        super().close()


def stat_of(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


class SQLiteSessions(Dialect):
    """Sessions by the driver of Python's library, a lock file, and rights on the database file."""

    driver = "sqlite+pysqlite"
    connect_advice: ClassVar = dict.fromkeys(
        ("not a database", "unable to open"), "correct the database URL"
    )

    def connect_args(self, timeout: int) -> dict[str, object]:
        # The driver waits this long for another writer. It begins no transactions itself.
        return {
            "timeout": timeout,
            "isolation_level": None,
            "factory": SqliteSession,
            "check_same_thread": False,
        }

    def begin(self, connection: PoolProxiedConnection) -> None:
        # A session that will write waits for the write lock now; a session that reads gets one
        # database snapshot.
        with closing(connection.cursor()) as cursor:
            cursor.execute("BEGIN IMMEDIATE" if connection.info.get(WRITES) else "BEGIN")

    def check_url(self, url: URL) -> None:
        # A database in memory is not shared with any application.
        if not self.is_there(url):
            raise DatabaseError(
                f"there is no database file {str(_path(url))!r}: correct the database URL, or "
                "create the file with `eventlog db upgrade`"
            )

    def is_there(self, url: URL) -> bool:
        return _path(url).exists()

    def prepare(self, url: URL) -> None:
        # Create the file if it is missing, and let readers and the writer work concurrently (WAL
        # mode, which is permanent).
        path = _path(url)
        try:
            with closing(sqlite3.connect(path)) as conn:
                conn.execute("PRAGMA journal_mode = WAL")
        except sqlite3.Error as error:
            raise DatabaseError(
                f"the database file {str(path)!r} cannot be prepared: {error}; check that it is a "
                "SQLite database, and that its directory exists and is writable"
            ) from error

    def refuses(self, error: BaseException) -> bool:
        code: int | None = getattr(error, "sqlite_errorcode", None)
        return code is not None and code != _MOVED and code & 0xFF not in _PASSING

    def may_quote_rows(self, error: BaseException) -> bool:
        # The message of an error without a code quotes a text that the driver cannot decode.
        return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF not in _PASSING

    def error_name(self, error: BaseException) -> str:
        return str(getattr(error, "sqlite_errorname", type(error).__name__))


def file_of(conn: Connection) -> Path | None:
    """Return the database file of a session, None for a database in memory."""
    path = conn.engine.url.database
    return Path(path).resolve() if path and path != ":memory:" else None


def opened_file(conn: Connection) -> os.stat_result | None:
    """Return the file that a session has open, None for a database in memory. For a session that
    eventlog did not open, it is the file at the session's path.
    """
    session = conn.connection.dbapi_connection
    if isinstance(session, SqliteSession):
        return session.file
    path = file_of(conn)
    return None if path is None else stat_of(path)


def _path(url: URL) -> Path:
    if sqlite3.sqlite_version_info < _MIN_VERSION:
        needed = ".".join(map(str, _MIN_VERSION))
        raise ConfigError(
            f"SQLite {sqlite3.sqlite_version} is too old: use a Python with SQLite {needed} or "
            "later"
        )
    if not url.database or url.database == ":memory:" or url.database.startswith("file:"):
        raise ConfigError(
            "the database URL names no file: write it as sqlite:///relative/path or sqlite:////path"
        )
    return Path(url.database)


# When a database file is moved, its log moves with it, but the lock file stays. So the lock file
# names the database file that is published, and the log names its lock file: a session that opens
# the file under another name checks that lock file, too.


# --- what doctor queries in addition to doctor.sql
# --------------------------------------------------

_SQL: Final = statements(__package__, "doctor.sql")


def _indexes(log: OpenLog) -> Answer:
    """Return the indexes of the log.

    The INTEGER PRIMARY KEY of the log, which is the table itself, counts as an index.
    """
    conn, table = log.connection, log.table.name
    keys = [
        row.name
        for row in conn.exec_driver_sql("SELECT name FROM pragma_table_info(?) WHERE pk", (table,))
    ]
    if len(keys) == 1:
        yield "primary key", True, keys[0], None
    for name, column, sql in conn.exec_driver_sql(_SQL["index_columns"], {"log_name": table}):
        predicate = re.search(r"\bWHERE\b(.*)$", sql or "", re.DOTALL | re.IGNORECASE)
        yield name, True, column, predicate[1].strip() if predicate else None


def has_log(conn: Connection, name: str) -> bool:
    """Return True if a log named in the text of a trigger exists."""
    return name in {quote_identifier(row.name) for row in conn.exec_driver_sql(_SQL["tables"])}


def _rights_to_apply(log: OpenLog, **_: Any) -> Iterator[tuple[str]]:
    """Yield, in words, the rights that this process lacks for applying triggers."""
    file = file_of(log.connection)
    if file is not None and not os.access(file, os.W_OK):
        yield (f"write access to {str(file)!r}",)


_GENERATED: Final = (2, 3)
_TOKEN: Final = re.compile(
    r"""
    --[^\n]*+ | /\*.*?(?:\*/|\Z) | \s++
    | "(?P<standard>(?:[^"]|"")*+)" | `(?P<mysql>(?:[^`]|``)*+)` | \[(?P<access>[^\]]*+)\]
    | '(?P<text>(?:[^']|'')*+)' | (?P<word>[^\W\d][\w$]*+) | (?P<other>.)
    """,
    re.DOTALL | re.VERBOSE,
)


def _generated_columns(db: OpenDatabase, **_: Any) -> Iterator[tuple[str, str, str]]:
    """Yield the table and the name of each generated column with each column that its definition
    names.
    """
    rows = db.connection.exec_driver_sql(_SQL["generated_columns"]).all()
    for (relation, sql), several in groupby(rows, key=itemgetter(0, 1)):
        columns = {name: hidden for _, _, name, hidden in several}
        for first, *names in _definitions(sql):
            column = match_name(first, columns)
            if column is not None and columns[column] in _GENERATED:
                used = {match_name(name, columns) for name in names} - {None, column}
                yield from ((relation, column, name) for name in sorted(filter(None, used)))


def _definitions(sql: str) -> Iterator[list[str]]:
    """Yield the names in each definition of a CREATE TABLE, such as a column and what its
    expression names. A word of SQL counts as a name.
    """
    names: list[str] = []
    depth = 0
    for token in _TOKEN.finditer(sql):
        mark = token["other"]
        if mark in ("(", ")"):
            depth += 1 if mark == "(" else -1
        is_end = (depth, mark) in ((1, ","), (0, ")"))
        if is_end and names:
            yield names
        if is_end or (depth, mark) == (1, "("):
            names = []
        elif (kind := token.lastgroup) not in (None, "other") and (kind != "text" or not names):
            quote = {"standard": '"', "mysql": "`", "text": "'"}.get(str(kind), "\0")
            names.append(token[str(kind)].replace(quote * 2, quote))


ANSWERS: Final[Mapping[str, AnswerFunction]] = {
    "generated_columns": _generated_columns,
    "indexes": _indexes,
    "rights_to_apply": _rights_to_apply,
}
