"""The option ``--consumer`` of several commands, and the check that the consumer exists."""

from __future__ import annotations

import click

from eventlog.core.options import names_hint
from eventlog.errors import ConfigError
from eventlog.sql.consumers import ConsumerLine, has_table, read_consumer, read_consumers
from eventlog.sql.open_log import OpenLog

consumer_option = click.option(
    "--consumer",
    metavar="NAME",
    help="Work for this consumer of the log.  [default: the configured consumer]",
)


def consumer_line(log: OpenLog, name: str) -> ConsumerLine:
    """Return the line of a consumer. Raises ConfigError."""
    if has_table(log) and (line := read_consumer(log, name)) is not None:
        return line
    raise unknown_consumer(log, name)


def unknown_consumer(log: OpenLog, name: str) -> ConfigError:
    """Return the error for a consumer that the log does not have."""
    known = [one.name for one in read_consumers(log)] if has_table(log) else []
    hint = names_hint(name, known, "consumers")
    return ConfigError(f"the log {log} has no consumer {name!r}; {hint}")
