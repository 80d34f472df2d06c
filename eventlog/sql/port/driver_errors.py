"""Find the dialect of a session, and turn errors of drivers into eventlog's own errors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from eventlog.errors import ConfigError, DatabaseError, DatabaseUnavailable, ServerUnavailable
from eventlog.sql import SUPPORTED
from eventlog.sql.port.dialect import Dialect
from eventlog.sql.port.open_database import OpenDatabase
from eventlog.sql.port.rights import Purpose, grants_advice

T = TypeVar("T")

_logger = logging.getLogger(__name__)

EMBEDDED: Final = "embedded"
"""The scheme of ``embedded:///DIRECTORY``: a PostgreSQL with its data in that directory."""


_ALIASES: Final = {"postgres": "postgresql", EMBEDDED: "postgresql"}


def load_dialect(name: str) -> Dialect:
    """Return the dialect of this name. Raises ConfigError, which names the supported dialects."""
    known = _ALIASES.get(name, name)
    if known not in SUPPORTED:
        raise ConfigError(f"database {name!r} is not supported: use one of {', '.join(SUPPORTED)}")
    dialect: Dialect = import_module(f"eventlog.sql.dialects.{known}").DIALECT
    return dialect


def open_database(conn: Connection) -> OpenDatabase:
    """Return the database of a connection."""
    return load_dialect(conn.dialect.name).open(conn)


def unavailable(dialect: Dialect, message: str) -> DatabaseUnavailable:
    """Return the error of a database that may work later."""
    return (ServerUnavailable if "server" in dialect.capabilities else DatabaseUnavailable)(message)


_READ_ONLY: Final = "25006"


TO_THE_PRIMARY: Final = (
    "change the database URL to the primary's "
    "(?target_session_attrs=read-write finds it among several hosts)"
)
"""The advice if a session cannot write."""


_PURPOSE: Final = "eventlog_purpose"
"""The execution option of an engine with the purpose of its sessions."""


AS_OWNER: Final = "run this as the owner"
"""The advice if a command of the owner lacks a right.

The publisher must connect as another user.
"""


_HIDES: Final = "eventlog_hides_rows"
"""The execution option of an engine that is true if no message may quote a row."""


def set_purpose(engine: Engine, purpose: Purpose, *, hides_rows: bool) -> Engine:
    """Give the sessions of an engine a purpose, and return the engine. If a session lacks a right,
    the message advises to grant the rights for this purpose. ``hides_rows`` is as in ``hide_rows``.
    """
    engine.update_execution_options(**{_PURPOSE: purpose})
    return hide_rows(engine, hides_rows)


def hide_rows(engine: Engine, hides: bool) -> Engine:
    """Let no message about the sessions of an engine quote a row, or let every message quote the
    database (``words_of``). Return the engine.
    """
    engine.update_execution_options(**{_HIDES: hides})
    return engine


def words_of(source: Connection | Engine, error: BaseException, *, otherwise: bool = False) -> str:
    """Return the text about an error of the database for messages, error rows and log lines
    (spec/event-log.md 15.5): the first line of the database's message or, if the message may quote
    a row and the engine hides rows, the name of the error. No other function decides this.

    ``otherwise`` is True if an engine hides rows for which ``hide_rows`` was not called.
    """
    dialect = load_dialect(source.dialect.name)
    cause = getattr(error, "orig", None) or error
    is_named = _hides(source, otherwise) and dialect.may_quote_rows(cause)
    notes = "".join(f", {note}" for note in getattr(error, "__notes__", ()))
    return (dialect.error_name(cause) if is_named else first_line(cause)) + notes


def _hides(source: Connection | Engine, otherwise: bool = False) -> bool:
    return bool(source.engine.get_execution_options().get(_HIDES, otherwise))


def right_advice(source: Connection | Engine, otherwise: Purpose | None = None) -> str:
    """Return the advice for a session that lacks a right. It depends on the purpose of the
    session's engine; ``otherwise`` is the purpose if the engine has none.
    """
    engine = source.engine
    purpose = engine.get_execution_options().get(_PURPOSE, otherwise)
    if not isinstance(purpose, Purpose):
        return "let the owner grant the right"
    changes_role = "role" in str(engine.url.query.get("options", ""))
    return grants_advice(None if changes_role else engine.url.username, purpose)


def owner_advice(source: Connection | Engine) -> str:
    """Return what to do if a command of the owner lacks a right; ``right_advice`` if the engine has
    a purpose.
    """
    has_purpose = _PURPOSE in source.engine.get_execution_options()
    return right_advice(source) if has_purpose else AS_OWNER


@contextmanager
def as_database_errors(source: Connection | Engine, advice: str | None = None) -> Iterator[None]:
    """Turn errors of SQLAlchemy and of the bare driver into DatabaseUnavailable (trying again may
    help) or DatabaseError.

    ``advice`` is the advice if a right is missing, by default ``right_advice``. Open a connection
    within the block: SQLAlchemy asks the server for its version then, and an error of that query
    must be translated, too.
    """
    driver: Any = source.dialect.loaded_dbapi
    try:
        yield
    except (DBAPIError, driver.Error) as error:
        to_do = right_advice(source) if advice is None else advice
        # A traceback quotes the cause.
        raise _translated(source, error, to_do) from (None if _hides(source) else error)


def for_message(conn: Connection, ask: Callable[[], T]) -> T | None:
    """Ask the database something that only the text of a message needs: who has a lock, what a name
    may mean.

    Returns the answer, None if the database refuses the question: a message without the answer is
    more useful than an error about the question. The transaction continues. Raises
    DatabaseUnavailable if the connection is lost.
    """
    try:
        with as_database_errors(conn), conn.begin_nested():
            return ask()
    except (DatabaseError, UnicodeError) as error:
        if conn.invalidated:
            raise
        _logger.debug("a message lacks what the database refused to show: %s", error)
        return None


def is_refused(conn: Connection, error: DBAPIError) -> bool:
    """Return True if the database refused only this statement, and can still run others.

    After another error the connection may be lost.
    """
    return not isinstance(_translated(conn, error, ""), DatabaseUnavailable)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the error's class if the message is empty."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def refused_between(dialect: Dialect, error: BaseException) -> DatabaseError | None:
    """Return the error if a cause outside the database has refused a statement, otherwise None."""
    line = first_line(error)
    for sign, cause in dialect.refused_by.items():
        if sign in line:
            return DatabaseError(
                f"the database must be reached directly, not through {cause} ({line})"
            )
    return None


def _translated(source: Connection | Engine, error: BaseException, advice: str) -> DatabaseError:
    driver: Any = source.dialect.loaded_dbapi
    dialect = load_dialect(source.dialect.name)
    words, cause = words_of(source, error), getattr(error, "orig", None) or error
    if refused := refused_between(dialect, cause):
        return refused
    # Deadlocks, cancelled statements, a full disk and shutdowns are operational errors, too, and
    # are transient.
    is_operational = isinstance(cause, driver.OperationalError | driver.InterfaceError)
    is_lost = getattr(error, "connection_invalidated", False)
    if is_lost or (is_operational and not dialect.refuses(cause)) or dialect.passes(cause):
        return unavailable(dialect, f"the database failed or became unavailable: {words}")
    to_do = f"; {advice}" if dialect.lacks_right(cause) else ""
    if getattr(cause, "sqlstate", None) == _READ_ONLY:
        to_do = f"; this is a standby, or a read-only session: {TO_THE_PRIMARY}"
    return DatabaseError(f"the database refused a statement: {words}{to_do}")
