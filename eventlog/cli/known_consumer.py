"""The check that the consumer of the option ``--consumer`` exists."""

from __future__ import annotations

from eventlog.cli.context import reading_log
from eventlog.config.load import Config
from eventlog.core.options import names_hint
from eventlog.errors import ConfigError
from eventlog.sql.port import OpenLog
from eventlog.sql.readers import ConsumerRow, has_table, read_consumer, read_consumers


def check_consumer(config: Config, consumer: str | None) -> None:
    """Raise ConfigError if the log does not have the consumer of the option, unless it is None."""
    if consumer is not None:
        with reading_log(config) as log:
            consumer_row(log, consumer)


def consumer_row(log: OpenLog, name: str) -> ConsumerRow:
    """Return the row of a consumer in ``<log>_consumer``. Raises ConfigError."""
    if has_table(log) and (entry := read_consumer(log, name)) is not None:
        return entry
    raise unknown_consumer(log, name)


def unknown_consumer(log: OpenLog, name: str) -> ConfigError:
    """Return the error for a consumer that the log does not have."""
    known = [one.name for one in read_consumers(log)] if has_table(log) else []
    hint = names_hint(name, known, "consumers")
    return ConfigError(f"the log {log} has no consumer {name!r}; {hint}")
