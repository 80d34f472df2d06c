"""The check that the consumer of the option ``--consumer`` exists."""

from __future__ import annotations

from eventlog.cli.context import reading_log
from eventlog.config.load import Config
from eventlog.sql.readers import consumer_row


def check_consumer(config: Config, consumer: str | None) -> None:
    """Raise ConfigError if the log does not have the consumer of the option, unless it is None."""
    if consumer is not None:
        with reading_log(config) as log:
            consumer_row(log, consumer)
