"""What a driver raises, as errors of ours: one line, and whether trying again can help."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from eventlog.errors import DatabaseAway, DatabaseError
from eventlog.sql.dialect import Dialect
from eventlog.sql.registry import load

_INSUFFICIENT_PRIVILEGE: Final = "42501"
_READ_ONLY: Final = "25006"
TO_THE_PRIMARY: Final = (
    "let the database URL lead to the primary (?target_session_attrs=read-write finds it among several hosts)"
)
"""What to do where nothing can be written."""
_RIGHT_ADVICE: Final = "; run this as the owner, or have the right granted: `eventlog doctor` names what is missing"


@contextmanager
def as_database_errors(connection: Connection) -> Iterator[None]:
    """Turn errors of SQLAlchemy and of the bare driver into DatabaseAway (worth trying again) or DatabaseError."""
    driver: Any = connection.dialect.loaded_dbapi
    dialect = load(connection.dialect.name)
    try:
        yield
    except DBAPIError as error:
        raise _translated(driver, dialect, error.orig or error, error.connection_invalidated) from error
    except driver.Error as error:
        raise _translated(driver, dialect, error, invalidated=False) from error


def _translated(driver: Any, dialect: Dialect, error: BaseException, invalidated: bool) -> DatabaseError:
    line = next(iter(str(error).splitlines()), type(error).__name__)
    # Deadlocks, cancelled statements, a full disk and shutdowns are operational errors too, and pass.
    is_operational = isinstance(error, driver.OperationalError | driver.InterfaceError)
    if invalidated or (is_operational and not dialect.refuses(error)) or dialect.passes(error):
        return DatabaseAway(f"the database failed or is gone: {line}")
    sqlstate = getattr(error, "sqlstate", None)
    advice = _RIGHT_ADVICE if sqlstate == _INSUFFICIENT_PRIVILEGE else ""
    if sqlstate == _READ_ONLY:
        advice = f"; this is a standby, or a session that may write nothing: {TO_THE_PRIMARY}"
    return DatabaseError(f"the database refused a statement: {line}{advice}")
