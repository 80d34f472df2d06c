"""The databases that eventlog speaks to, by name and by URL."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Final

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from eventlog.errors import ConfigError
from eventlog.sql.dialect import Dialect

SUPPORTED: Final = ("postgresql", "oracle", "sqlite")
EMBEDDED: Final = "embedded"
"""The scheme of ``embedded:///DIRECTORY``: a PostgreSQL of its own in a directory."""

CAPABILITIES: Final[Mapping[str, str]] = {
    "server": "the database is a server, not a file",
    "schemas": "tables stand in schemas",
    "roles": "sessions have users, with rights; triggers log them as perpetrator",
    "sequences": "numbers come from sequences",
    "partial_indexes": "an index can hold the rows N alone",
    "transactional_ddl": "DDL is part of a transaction and goes back with it",
    "concurrent_writers": "several transactions write at the same time",
    "statement_capture": "capture = statement",
    "truncate": "TRUNCATE is captured",
    "partitions": "partitioned tables",
    "deferrable_keys": "primary keys that are checked later than row by row",
    "fixed_char": "CHAR(n) values are padded with blanks",
    "boolean": "a boolean type whose text is true and false",
    "single_precision": "a type of approximate numbers of 32 bits",
    "exact_decimals": "exact numbers keep all their digits",
    "time_types": "types of dates and times",
    "time_zones": "a timestamp type that knows its zone",
    "empty_text": "'' is a value of its own, not NULL",
    "binary_values": "binary columns are logged by value (spec/triggers.md 6.1)",
    "owner_look_up": "a child row's DELETE looks whether its owner is still there (spec/triggers.md 2)",
    "key_cascades": "child rows that follow their owner's new key log that themselves, after it (spec/triggers.md 2)",
    "upsert_captured": "a row that INSERT replaces is logged as gone",
    "wake": "a writer wakes a publisher that sleeps (spec/triggers.md 8)",
}
"""What a database may be able to do: names for ``Dialect.capabilities``, and what each means."""

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


def reason_of(error: BaseException, url: URL) -> str:
    """What a driver's error says, on one line and without the password of the URL."""
    reason = " ".join(str(error).split())
    return reason.replace(str(url.password), "***") if url.password else reason
