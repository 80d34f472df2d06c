"""Sessions of a SQLite file: how they begin, what they read text as, which files they are."""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, Connection

from eventlog.errors import ConfigError, DatabaseError
from eventlog.sql.dialect import WRITES

LEAST_VERSION: Final = (3, 38, 0)
"""Of the SQLite library: RETURNING, pragma_table_list, JSON functions."""


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
"""Codes of errors that pass; the lowest eight bits tell them."""


class Session(sqlite3.Connection):
    """A connection that reads every text, also one that is no UTF-8: what cannot be written is then one bad row."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
        self.at_end = ExitStack()
        """What ends with the session, such as its locks."""

    def close(self) -> None:
        self.at_end.close()
        super().close()


def connect_args(timeout: int) -> dict[str, object]:
    """What the driver is given: it waits ``timeout`` seconds for another writer, and begins no transaction itself."""
    return {"timeout": timeout, "isolation_level": None, "factory": Session, "check_same_thread": False}


def begin(conn: Connection) -> None:
    """Begin a transaction: one that writes takes its turn now, one that reads sees one moment."""
    conn.exec_driver_sql("BEGIN IMMEDIATE" if conn.info.get(WRITES) else "BEGIN")


def check_url(url: URL) -> None:
    """Raise ConfigError for a database in memory, which no application shares, and DatabaseError for a missing file."""
    path = _path(url)
    if not path.exists():
        raise DatabaseError(
            f"there is no database file {str(path)!r}: correct the database URL, or make it with `eventlog db upgrade`"
        )


def prepare(url: URL) -> None:
    """Make the file if it is missing, and let readers and the writer work side by side (WAL mode, which stays)."""
    path = _path(url)
    try:
        conn = sqlite3.connect(path, timeout=10)
        try:
            conn.execute("PRAGMA journal_mode = WAL")
        finally:
            conn.close()
    except sqlite3.Error as error:
        raise DatabaseError(
            f"the database file {str(path)!r} cannot be prepared: {error}; is it a database of SQLite, in a directory "
            "that is there and may be written?"
        ) from error


def file_of(conn: Connection) -> Path | None:
    """The database file of a session, None in memory."""
    path = conn.engine.url.database
    return Path(path).resolve() if path and path != ":memory:" else None


def refuses(error: BaseException) -> bool:
    """Whether an error of the driver is the statement's own fault, so that trying again cannot help."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF not in _PASSING


def _path(url: URL) -> Path:
    if sqlite3.sqlite_version_info < LEAST_VERSION:
        needed = ".".join(map(str, LEAST_VERSION))
        raise ConfigError(f"SQLite {sqlite3.sqlite_version} is too old: {needed} or later is needed")
    if not url.database or url.database == ":memory:" or url.database.startswith("file:"):
        raise ConfigError("the database URL names no file: write it as sqlite:///relative/path or sqlite:////path")
    return Path(url.database)
