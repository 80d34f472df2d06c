"""What a driver raises, as errors of ours: one line, and whether trying again can help."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from eventlog.errors import DatabaseAway, DatabaseError
from eventlog.sql.dialects import load


@contextmanager
def as_database_errors(connection: Connection) -> Iterator[None]:
    """Turn errors of SQLAlchemy and of the bare driver into DatabaseAway (worth trying again) or DatabaseError."""
    driver: Any = connection.dialect.loaded_dbapi
    refuses = load(connection.dialect.name).refuses
    try:
        yield
    except DBAPIError as error:
        raise _translated(driver, refuses, error.orig or error, error.connection_invalidated) from error
    except driver.Error as error:
        raise _translated(driver, refuses, error, invalidated=False) from error


def _translated(
    driver: Any, refuses: Callable[[BaseException], bool], error: BaseException, invalidated: bool
) -> DatabaseError:
    line = next(iter(str(error).splitlines()), type(error).__name__)
    # Deadlocks, cancelled statements, a full disk and shutdowns are operational errors too, and pass.
    is_away = isinstance(error, driver.OperationalError | driver.InterfaceError) and not refuses(error)
    if invalidated or is_away:
        return DatabaseAway(f"the database failed or is gone: {line}")
    return DatabaseError(f"the database refused a statement: {line}")
