"""The command ``eventlog consumers``: its requests, with options and help."""

from __future__ import annotations

from dataclasses import dataclass

import click

from eventlog.cli import Group
from eventlog.cli.command import Request
from eventlog.cli.context import dry_option, json_option, yes_option
from eventlog.core.start_time import EXAMPLE


@click.group(cls=Group)
def consumers() -> None:
    """List, reset or drop the consumers, which read the log independently of its publisher."""


@consumers.command("list")
@json_option
class List(Request):
    """Show each consumer: whether it runs, how many rows it has to process, the state of its set of
    done rows, and the classes and the sink of its last start.
    """


@click.argument("name")
@click.option(
    "--start-from",
    default="latest",
    metavar="WHERE",
    help=f"Where it starts: latest, earliest, snapshot, a record_id or a time such as {EXAMPLE}.",
)
@yes_option
@dry_option("Show where it would start; change nothing.")
@json_option
@dataclass(frozen=True)
class Reset(Request):
    """Reset the consumer NAME to a new start. Its set of done rows and its unfinished
    deliveries are deleted.
    """

    name: str
    start_from: str
    yes: bool
    dry: bool


@click.argument("name")
@yes_option
@dry_option("Show what would be deleted; delete nothing.")
@json_option
@dataclass(frozen=True)
class Drop(Request):
    """Delete the consumer NAME and its unfinished deliveries.

    Purge then no longer keeps rows for it.
    """

    name: str
    yes: bool
    dry: bool


consumers.command()(Reset)
consumers.command()(Drop)
