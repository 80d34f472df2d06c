"""From the configuration to a transaction on its database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType

from sqlalchemy import Connection, Engine

from eventlog.config import Config, connection_url
from eventlog.sql import dialects
from eventlog.sql.connect import connect
from eventlog.sql.dialect import Dialect
from eventlog.sql.failures import as_database_errors


def engine_of(config: Config) -> tuple[Engine, Dialect]:
    """An engine for the configured database, and its dialect. Raises ConfigError; connecting raises DatabaseError."""
    url = connection_url(config.database)
    return connect(url), dialects.for_url(url)


@contextmanager
def transaction(config: Config) -> Iterator[tuple[Connection, Dialect]]:
    """One transaction on the configured database, committed at the end of the block. Raises DatabaseError."""
    engine, dialect = engine_of(config)
    with engine.connect() as conn, as_database_errors(conn), conn.begin():
        yield conn, dialect


def trigger_functions(dialect: Dialect, module: str = "triggers") -> ModuleType:
    """A module of the dialect's package; every database has the same ones (design.md)."""
    return import_module(f"eventlog.sql.dialects.{dialect.name}.{module}")
