"""What commands work with: the configuration that the global options give, a session of its database, Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from eventlog.cli.output import configure_logging, note
from eventlog.config.load import Config, connection_url, load
from eventlog.errors import ConfigError

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from eventlog.sql.dialect import Dialect

DEFAULT_FILE: Final = Path("eventlog.toml")


@dataclass(frozen=True, slots=True)
class Context:
    """The global options. ``config_file`` is None without --config; ``flags``: ``section.key`` -> text."""

    config_file: Path | None
    flags: Mapping[str, str]
    quiet: bool = False
    verbose: int = 0

    def config(self, **flags: str | None) -> Config:
        """The configuration, with a command's flags (``publisher__batch_size="10"``) over the global ones.

        Without --config, eventlog.toml is read if it is there. Prints warnings. Raises ConfigError.
        """
        path = self.config_file or (DEFAULT_FILE if DEFAULT_FILE.exists() else None)
        of_command = {name.replace("__", "."): value for name, value in flags.items() if value is not None}
        config = load(path, os.environ, {**self.flags, **of_command})
        configure_logging(config.log, quiet=self.quiet, verbose=self.verbose, log=config.publication)
        for warning in config.warnings:
            note(f"warning: {warning}")
        return config


# --- the database; SQLAlchemy is heavy, and `eventlog --help` does without it -----------------------------------------


def engine_of(config: Config) -> tuple[Engine, Dialect]:
    """An engine for the configured database, and its dialect. Raises ConfigError; connecting raises DatabaseError."""
    from eventlog.sql.connection import connect, dialect_of

    url = connection_url(config.database)
    return connect(url), dialect_of(url)


@contextmanager
def session(config: Config, *, writes: bool = True) -> Iterator[tuple[Connection, Dialect]]:
    """A session of the configured database; the caller commits. Raises DatabaseError."""
    from eventlog.sql.connection import as_database_errors, will_write

    engine, dialect = engine_of(config)
    with engine.connect() as conn, as_database_errors(conn):
        if writes:
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
    with session(config, writes=False) as (conn, dialect), conn.begin():
        yield conn, dialect


# --- Spark ------------------------------------------------------------------------------------------------------------


def spark_module(name: str) -> Any:
    """A module of the package ``spark``, imported by name since eventlog works without Spark. Raises ConfigError."""
    try:
        return import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"Spark is not installed ({error}): install eventlog-publisher[spark], and Java 17 or later"
        ) from error


def master_of(option: str | None) -> str | None:
    """The Spark master of a command: its option, else that of spark-submit (None), else all cores of this machine."""
    return option or (None if "PYSPARK_GATEWAY_PORT" in os.environ else "local[*]")
