"""The option ``--consumer`` of several commands."""

from __future__ import annotations

import click

from eventlog.cli.context import CommandContext
from eventlog.config.load import Config
from eventlog.errors import ConfigError

consumer_option = click.option(
    "--consumer",
    metavar="NAME",
    help="Work for this consumer of the log.  [default: the configured consumer]",
)


def config_for(context: CommandContext, consumer: str | None, **flags: str | None) -> Config:
    """Return the configuration of a command that works for ``consumer``, None = the configured one.
    ``flags`` are as in ``CommandContext.config``.

    Raises ConfigError, also for a followed source, which has no consumers.
    """
    config = context.config(source__consumer=consumer, **flags)
    if consumer is not None and config.follows:
        raise ConfigError("--consumer is for a log; a followed source has no consumers")
    return config
