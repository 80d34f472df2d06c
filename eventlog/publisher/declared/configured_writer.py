"""Make the writer of a log's events from the configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from eventlog.changes.publishing import EventWriter, NoWriter, Publishing
from eventlog.config.load import Config, connection_url
from eventlog.config.publishing import chosen_format, publish_options, taken_by_sink, value_options
from eventlog.registry import writer_of
from eventlog.sql.connect.connection import parse_url
from eventlog.sql.log_table import LogTable


def event_writer(
    config: Config, log: LogTable, count: Callable[[str], None] | None = None
) -> EventWriter[Any]:
    """Return the writer of a log's events; ``count`` is ``Publishing.count``. Raises ConfigError.

    If the format of a backlog job has only tables, the job uses the writer to read the log, and
    writes no documents with it.
    """
    if not chosen_format(config).can("publish"):
        return NoWriter()
    publishing = publishing_of(config, log)
    if count is not None:
        publishing = replace(publishing, count=count)
    return writer_of(chosen_format(config), publish_options(config), publishing)


def publishing_of(config: Config, log: LogTable) -> Publishing:
    """Return the ``Publishing`` of a log's events: their source, and what the sink can do."""
    named = config.database.url is not None
    url = parse_url(connection_url(config.database) if named else "sqlite://")
    return replace(
        taken_by_sink(config),
        values=value_options(config),
        database=url.database or url.username or "",
        schema=log.schema,
        log=log.name,
    )
