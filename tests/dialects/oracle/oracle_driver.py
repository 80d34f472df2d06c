"""What stands for python-oracledb: SQLAlchemy compiles for a server of a version, and every
statement is kept, not run.

The engine is the product's own, so that what is kept is what a server of that version would be
sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import sqlalchemy as sa

from eventlog.sql.connect.connection import connect

URL = "oracle://ann:secret@db.example/?service_name=HR"
VERSIONS = ("12.2.0.1.0", "19.3.0.0.0", "23.4.0.0.0")
"""Before 19, at 19, and the first that has booleans."""

_OF_SQLALCHEMY = {
    "SELECT 1.1 FROM DUAL": "1.1",  # the decimal point
    "select sys_context( 'userenv', 'current_schema' ) from dual": "ANN",
}
"""What SQLAlchemy asks of a new session."""

Answer = Callable[[str], "Sequence[Sequence[Any]] | None"]
"""The rows of a statement; None = one row of numbers."""


class Server:
    """A server of a version: it keeps the statements, and returns what their rows are."""

    def __init__(self, version: str, answer: Answer = lambda _: None) -> None:
        self.version, self.answer = version, answer
        self.sent: list[str] = []
        self.arguments: dict[str, Any] = {}
        self.sessions: list[Session] = []

    def connect(self, *arguments: Any, **options: Any) -> Session:
        self.arguments = {**dict(zip(("dsn",), arguments, strict=False)), **options}
        self.sessions.append(Session(self))
        return self.sessions[-1]


class Session:
    """A connection of the driver."""

    thin = True
    autocommit = False
    max_identifier_length = 128

    def __init__(self, server: Server) -> None:
        self.server, self.version = server, server.version
        self.outputtypehandler = self.inputtypehandler = None
        self.call_timeout = 0
        self.module = self.action = ""

    def cursor(self) -> Cursor:
        return Cursor(self.server)

    def commit(self) -> None:
        pass

    rollback = close = commit


class Cursor:
    """A cursor of the driver."""

    arraysize = 100
    outputtypehandler = None
    columns: Sequence[str] = ()

    def __init__(self, server: Server) -> None:
        self.server = server
        self.rows: list[Sequence[Any]] = []
        self.description: list[tuple[Any, ...]] | None = None
        self.rowcount = 0

    def execute(self, statement: str, parameters: Any = None) -> Any:
        self.server.sent.append(statement)
        if statement in _OF_SQLALCHEMY:
            self.rows, self.description = [(_OF_SQLALCHEMY[statement],)], [("X", *[None] * 6)]
        elif "v$transaction" in statement:
            self.rows, self.description = [("READ COMMITTED",)], [("X", *[None] * 6)]
        elif statement.lstrip("( \n").upper().startswith(("SELECT", "WITH")):
            found = self.server.answer(statement)
            names = self.columns or ["X"] * (len(found[0]) if found else 1)
            self.rows = [tuple(range(1, len(names) + 1))] if found is None else list(found)
            self.description = [(name, *[None] * 6) for name in names]
        else:
            self.description, self.rowcount = None, 1

    def executemany(self, statement: str, parameters: Sequence[Any]) -> None:
        self.server.sent.append(statement)
        self.rowcount = len(parameters)

    def fetchall(self) -> list[Sequence[Any]]:
        rows, self.rows = self.rows, []
        return rows

    def fetchmany(self, size: int | None = None) -> list[Sequence[Any]]:
        rows, self.rows = self.rows[:size], self.rows[size or len(self.rows) :]
        return rows

    def fetchone(self) -> Sequence[Any] | None:
        return self.rows.pop(0) if self.rows else None

    def setinputsizes(self, *_: Any, **__: Any) -> None:
        pass

    def var(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(getvalue=lambda: 0)

    def close(self) -> None:
        pass

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@contextmanager
def engine_of(server: Server, url: str = URL) -> Iterator[sa.Engine]:
    """The product's engine for a URL, whose sessions are those of the server."""
    with mock.patch("oracledb.connect", server.connect):
        engine = connect(url)

        @sa.event.listens_for(engine, "before_cursor_execute")
        def tell_the_columns(
            _conn: Any, cursor: Any, _text: Any, _values: Any, context: Any, _many: Any
        ) -> None:
            compiled = context.compiled
            cursor.columns = (
                [] if compiled is None else [one.keyname for one in compiled._result_columns]
            )

        yield engine
        engine.dispose()


@contextmanager
def session_on(server: Server) -> Iterator[sa.Connection]:
    """A session of the product on the server; what the session begins with is forgotten."""
    with engine_of(server) as engine, engine.connect() as conn:
        server.sent.clear()
        yield conn
