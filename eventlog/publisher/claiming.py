"""The directory of the files sink is one log's, or one source's, alone (spec/event-log.md 10)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from eventlog.config.load import Config, SourceSettings, connection_url
from eventlog.publisher.context import Context
from eventlog.publisher.follow_run import OpenPosition, Position
from eventlog.publisher.metrics import Counters
from eventlog.publisher.opening import open_context
from eventlog.publisher.sinks.directory import Owner, claim
from eventlog.sql.companions import next_flight
from eventlog.sql.connect import describe
from eventlog.sql.registry import parse_url


@contextmanager
def open_to_publish(config: Config, counters: Counters) -> Iterator[Context]:
    """``open_context``, with the directory of the files sink, if it is that, made the log's.

    Raises as ``open_context``, and ConfigError for a directory that is another's.
    """
    with open_context(config, counters) as context:
        _claim_for_log(config, context)
        yield context


def _claim_for_log(config: Config, context: Context) -> None:
    """Make the directory of the files sink the log's. Raises ConfigError, DatabaseError."""
    if config.sink.type != "files" or config.sink.directory is None:
        return
    connection, log = context.connection, context.log
    name = f"the log {log} in {describe(connection_url(config.database))}"
    # The newest number is had by drawing one more, which is left out: no right is needed for that but those to publish.
    claim(
        config.sink.directory,
        Owner(context.dialect.identity(connection, log), name),
        lambda: next_flight(connection, log),
    )
    connection.commit()


def claiming(config: Config, open_position: OpenPosition) -> OpenPosition:
    """The same position, opened with the directory of the files sink, if it is that, made the source's."""
    directory = config.sink.directory
    if config.sink.type != "files" or directory is None:
        return open_position
    place = _place(config.source)
    owner = Owner(f"{config.source.type}/{place}", f"the source {config.source.type} with its position in {place}")

    @contextmanager
    def opened() -> Iterator[Position]:
        with open_position() as position:
            claim(directory, owner, lambda: position.load().flight)
            yield position

    return opened


def _place(settings: SourceSettings) -> str:
    """Where the position is kept, without secrets."""
    if settings.position_file is not None:
        return str(settings.position_file.resolve())
    from eventlog.publisher.follow_opening import position_url  # it reads files of URLs; a log needs none of it

    return f"{settings.position_table} of {describe(parse_url(position_url(settings)))}"
