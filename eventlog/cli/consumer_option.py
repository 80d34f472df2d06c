"""The option ``--consumer`` of several commands."""

from __future__ import annotations

import click

consumer_option = click.option(
    "--consumer",
    metavar="NAME",
    help="Work for this consumer of the log.  [default: the configured consumer]",
)
