"""URLs of databases in the configuration: where their passwords come from, and how they are shown without."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from eventlog.config.settings import DatabaseSettings
from eventlog.errors import ConfigError
from eventlog.files.secrets import read_secret

if TYPE_CHECKING:
    from sqlalchemy import URL

DATABASE_URLS: Final = {
    ("database", "url"): "EVENTLOG_DATABASE_PASSWORD or url_file",
    ("source", "url"): "EVENTLOG_SOURCE_PASSWORD or url_file",
    ("source", "position_url"): "EVENTLOG_SOURCE_POSITION_PASSWORD or position_url_file",
}
"""Settings that may hold a password, and where it belongs."""

_FILE_URL: Final = re.compile(r"((?:sqlite(?:\+\w+)?|embedded):///)(?!/|:memory:|file:)([^?]+)(\?.*)?", re.IGNORECASE)
"""The URL of a database that is a file or a directory, by a relative path."""


def connection_url(database: DatabaseSettings) -> URL:
    """The URL to connect with, password filled in. Raises ConfigError if there is none or it is none."""
    if database.url is None:
        raise ConfigError(
            "no database is given: set url in [database] of eventlog.toml (`eventlog init` writes one), "
            "EVENTLOG_DATABASE_URL or --database-url"
        )
    url = _parse_url(database.url)
    return url if database.password is None else url.set(password=database.password)


def with_configured_password(url: str, database: DatabaseSettings) -> str:
    """The URL, with the password of the configured database where it names that one and that user, and has none.

    The password goes nowhere else: whoever answers at another URL would learn it.
    """
    if database.url is None or database.password is None:
        return url
    named, configured = _parse_url(url), _parse_url(database.url)
    if named.password is not None or _login_of(named) != _login_of(configured):
        return url
    return named.set(password=database.password).render_as_string(hide_password=False)


def _login_of(url: URL) -> tuple[Any, ...]:
    """Which database a URL names, for whom. What stands behind ? may name another host."""
    return url.get_backend_name(), url.username, url.host, url.port, url.database, dict(url.query)


def masked(url: str) -> str:
    """The URL without its password, as a part of its own and in the query."""
    parsed = _parse_url(url)
    hidden = dict.fromkeys(secrets_of(parsed), "***")
    return parsed.update_query_dict(hidden).render_as_string(hide_password=True).replace("%2A%2A%2A", "***")


def secrets_of(url: URL) -> list[str]:
    """The names in the query of a URL that stand for secrets."""
    return [key for key in url.query if "password" in key.lower() or "secret" in key.lower()]


def from_directory(url: str, directory: Path) -> str:
    """The URL of a database in a file, whose relative path is taken from a directory; any other as it is."""
    match = _FILE_URL.fullmatch(url)
    return url if match is None else f"{match[1]}{directory / match[2]}{match[3] or ''}"


def read_url(file: Path, source: str) -> str:
    """The URL that a file holds; ``source`` names the setting. Raises ConfigError."""
    return read_secret(file, source, "the database URL").strip()


def _parse_url(text: str) -> URL:
    # SQLAlchemy is heavy, and most of the command line does without.
    from eventlog.sql.connection import parse_url

    return parse_url(text)
