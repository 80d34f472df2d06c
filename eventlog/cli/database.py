"""From the configuration to a transaction on its database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine

from eventlog.config.load import Config, connection_url
from eventlog.sql import registry
from eventlog.sql.connection import as_database_errors, connect, will_write
from eventlog.sql.dialect import Dialect


def engine_of(config: Config) -> tuple[Engine, Dialect]:
    """An engine for the configured database, and its dialect. Raises ConfigError; connecting raises DatabaseError."""
    url = connection_url(config.database)
    return connect(url), registry.for_url(url)


@contextmanager
def session(config: Config) -> Iterator[tuple[Connection, Dialect]]:
    """A session of the configured database whose transactions write; the caller commits. Raises DatabaseError."""
    engine, dialect = engine_of(config)
    with engine.connect() as conn, as_database_errors(conn):
        will_write(conn)
        yield conn, dialect


@contextmanager
def transaction(config: Config) -> Iterator[tuple[Connection, Dialect]]:
    """One transaction on the configured database that writes, committed at the end. Raises DatabaseError."""
    with session(config) as (conn, dialect), conn.begin():
        yield conn, dialect


@contextmanager
def reading(config: Config) -> Iterator[tuple[Connection, Dialect]]:
    """One transaction on the configured database that only reads. Raises DatabaseError."""
    engine, dialect = engine_of(config)
    with engine.connect() as conn, as_database_errors(conn), conn.begin():
        yield conn, dialect
