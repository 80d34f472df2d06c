"""The command ``eventlog tail``: its request, with options and help."""

from __future__ import annotations

from dataclasses import dataclass

import click

from eventlog.cli import command
from eventlog.cli.command import Request
from eventlog.cli.context import json_option, limit_option
from eventlog.cli.inspect.top import url_option


@url_option
@limit_option("of the newest documents to begin with", 10, "-n")
@click.option(
    "--follow/--no-follow", default=True, help="Wait for further documents and show each, or end."
)
@click.option("--interval", type=click.FloatRange(min=0.2), default=1.0, metavar="SECONDS",
              help="Refresh interval.")  # fmt: skip
@json_option
@dataclass(frozen=True)
class Tail(Request):
    """Show the documents that were sent recently, with their answers, and those that follow until
    Ctrl-C.

    Only the publisher's monitor has them. `eventlog explain` explains a row from the database
    alone.
    """

    url: str | None
    limit: int
    follow: bool
    interval: float


tail = command(Tail)
