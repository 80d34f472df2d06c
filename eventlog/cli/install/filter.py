"""The command ``eventlog filter``: its request, with options and help."""

from __future__ import annotations

from dataclasses import dataclass

import click

from eventlog.cli import Group
from eventlog.cli.command import Request
from eventlog.cli.consumer_option import consumer_option
from eventlog.cli.context import dry_option, json_option


@click.group("filter", cls=Group)
def filters() -> None:
    """Accept the filters of a reader, which decide which objects its receiver gets."""


@consumer_option
@dry_option("Show what would be accepted; change nothing.")
@json_option
@dataclass(frozen=True)
class Accept(Request):
    """Accept the [[filter]] sections of the configuration for the publisher or a consumer, which
    otherwise refuses to start with them.

    The receiver keeps what it has until it is filled again: the command prints how.
    """

    consumer: str | None
    dry: bool


filters.command()(Accept)

filter = filters
