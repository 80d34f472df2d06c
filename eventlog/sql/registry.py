"""The databases that eventlog speaks to, by name and by URL."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from eventlog.errors import ConfigError
from eventlog.sql.dialect import Dialect

SUPPORTED: Final = ("postgresql", "oracle", "sqlite")
EMBEDDED: Final = "embedded"
"""The scheme of ``embedded:///DIRECTORY``: a PostgreSQL of its own in a directory."""

_ALIASES: Final = {"postgres": "postgresql", EMBEDDED: "postgresql"}


def load(name: str) -> Dialect:
    """The dialect of this name. Raises ConfigError that names the supported ones."""
    known = _ALIASES.get(name, name)
    if known not in SUPPORTED:
        raise ConfigError(f"database {name!r} is not supported: use one of {', '.join(SUPPORTED)}")
    dialect: Dialect = import_module(f"eventlog.sql.dialects.{known}").DIALECT
    return dialect


def for_url(url: str | URL) -> Dialect:
    """The dialect of a database URL, such as ``postgresql://user@host/db``. Raises ConfigError."""
    return load(parse_url(url).drivername.partition("+")[0])


def parse_url(url: str | URL) -> URL:
    """A URL in its parts. Raises ConfigError, without the text, which may hold a password."""
    try:
        return make_url(url)
    except (ArgumentError, ValueError):
        raise ConfigError("the database URL cannot be read: write it as postgresql://user@host:port/database") from None
