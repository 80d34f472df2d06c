"""Where a worker finds the log: a URL without secrets in what Spark shows and logs, the secrets beside it.

Options, plans and the Spark UI never hold a password. On this machine the workers read the whole URL from a file that
only this user can read; on a cluster they take it from their own environment (docs/convert-a-backlog.md).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL

from eventlog.config.load import load, masked
from eventlog.errors import ConfigError
from eventlog.sql.log_table import LogTable
from eventlog.sql.registry import parse_url


@dataclass(frozen=True, slots=True)
class Place:
    """A log for workers. ``url`` without secrets; ``url_file``: a file with the whole URL, None = the environment."""

    url: str
    url_file: str | None
    log: LogTable


@contextmanager
def place_for(url: URL, log: LogTable, *, on_this_machine: bool) -> Iterator[Place]:
    """The place of a log that this process reaches by ``url``, until the end of the block."""
    shown = without_secrets(url)
    if not on_this_machine:
        yield Place(shown, None, log)
        return
    with tempfile.NamedTemporaryFile("w", prefix="eventlog-url-", encoding="utf-8") as file:  # mode 0600
        file.write(url.render_as_string(hide_password=False))
        file.flush()
        yield Place(shown, file.name, log)


def without_secrets(url: URL) -> str:
    """The URL without its password, wherever it stands."""
    secret = [key for key in url.query if "password" in key.lower() or "secret" in key.lower()]
    bare = url.difference_update_query(secret)
    return URL.create(
        bare.drivername, bare.username, None, bare.host, bare.port, bare.database, bare.query
    ).render_as_string()


def worker_url(url: str, url_file: str | None) -> URL:
    """The URL to connect with, as this process knows it.

    ``url_file``, else EVENTLOG_DATABASE_URL or EVENTLOG_DATABASE_URL_FILE, else ``url``; with
    EVENTLOG_DATABASE_PASSWORD. Raises ConfigError.
    """
    if url_file is not None:
        try:
            return parse_url(Path(url_file).read_text(encoding="utf-8").strip())
        except OSError as error:
            raise ConfigError(f"{url_file}: the file with the database URL cannot be read: {error.strerror}") from None
    names = ("EVENTLOG_DATABASE_URL", "EVENTLOG_DATABASE_URL_FILE", "EVENTLOG_DATABASE_PASSWORD")
    database = load(None, {name: os.environ[name] for name in names if name in os.environ}).database
    found = parse_url(database.url or url)
    return found if database.password is None else found.set(password=database.password)


def refuse_secrets(url: str) -> str:
    """The URL, if it may be shown. Raises ConfigError if it holds a secret."""
    if url and "***" in masked(url):
        raise ConfigError(
            "the option url holds a password, which Spark would show: give url_file, or leave the password to "
            "EVENTLOG_DATABASE_PASSWORD in the environment of driver and executors"
        )
    return url
