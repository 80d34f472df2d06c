"""The command ``eventlog filter``: its request, with options and help."""

from __future__ import annotations

from dataclasses import dataclass

import click

from eventlog.cli import Group
from eventlog.cli.command import Request
from eventlog.cli.context import consumer_option, dry_option, flag_option, json_option


@click.group("filter", cls=Group)
def filters() -> None:
    """Accept changed filters and masks, which decide what a receiver gets."""


@consumer_option
@flag_option(
    "--resend",
    help="Also send all objects of the classes whose filter or mask has changed. For the publisher "
    "they are written to the log (`eventlog resync CLASS`).",
)
@dry_option("Show what would be accepted; change nothing.")
@json_option
@dataclass(frozen=True)
class Accept(Request):
    """Accept the [[filter]] and [[mask]] sections of the configuration for the publisher or a
    consumer, which otherwise refuses to start with them.

    The receiver keeps what it has until the objects are sent again: with --resend, which sends a
    delete for each object that exists and does not match, or later by the command that is printed.
    """

    consumer: str | None
    resend: bool
    dry: bool


filters.command()(Accept)

filter = filters
