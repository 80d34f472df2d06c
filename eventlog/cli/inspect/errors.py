"""The command ``eventlog errors``: its request, with options and help."""

from __future__ import annotations

from dataclasses import dataclass

import click

from eventlog.cli import command
from eventlog.cli.command import AddressedRequest
from eventlog.cli.context import consumer_option, json_option, source_option
from eventlog.publisher.context import LINES_READ


@consumer_option
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000_000),
    default=LINES_READ,
    metavar="ROWS",
    help="How many of the newest error rows, and of the newest rows E and F, to read.",
)
@json_option
@source_option
@dataclass(frozen=True)
class Errors(AddressedRequest):
    """Show the rows of status E and F, grouped by cause, with the commands that send their objects
    again.

    Fix the cause first, or the rows are refused again. The commands are `eventlog requeue` for rows
    that may go back into the queue, and `eventlog resync` for the objects of rows whose later rows
    were sent. `eventlog explain` explains a single row, and `eventlog skip --refused` records that
    rows need nothing more.

    For a consumer it shows the rows, and the objects of its snapshot, that were refused for it.

    For a followed source it shows what was refused, by code. The source's error table has each
    event or change.
    """

    consumer: str | None
    limit: int
    source: str | None


errors = command(Errors)
