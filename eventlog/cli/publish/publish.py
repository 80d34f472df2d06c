"""The command ``eventlog publish``: its request, with options and help."""

from __future__ import annotations

from dataclasses import dataclass

import click

from eventlog.cli import command
from eventlog.cli.command import AddressedRequest
from eventlog.cli.context import (
    consumer_option,
    dry_option,
    flag_option,
    name_option,
    source_option,
)
from eventlog.registry import FORMATS


@flag_option("--once", help="Send what the queue holds now, then end.")
@dry_option("Print the documents; record, mark and send nothing.")
@flag_option(
    "--allow-refused",
    help="With --once, end with 0 although rows were refused or invalid, or a class is "
    "not published.",
)
@name_option("--format", "format_name", group=FORMATS, can=("publish",), metavar="FORMAT",
             help="The format to send: {names}. Overrides format.type.")  # fmt: skip
@source_option
@consumer_option
@dataclass(frozen=True)
class Publish(AddressedRequest):
    """Read the log, send its events to the receiver, and mark the rows by the answers.

    Runs until SIGTERM or SIGINT, then waits for the answers to what was sent, and marks the rows. A
    log has one publisher at a time.

    --consumer NAME is refused unless the file or the environment names the same consumer: the sink
    would be that of another reader.

    With --from it follows another source, whose position is stored in a file or a table.

    There is no --json: --set log.format=json makes each log line a JSON object, and standard output
    is for the documents of the sink stdout.
    """

    once: bool = False
    dry: bool = False
    allow_refused: bool = False
    format_name: str | None = None
    source: str | None = None
    consumer: str | None = None

    def __post_init__(self) -> None:
        if self.allow_refused and not self.once:
            raise click.UsageError("--allow-refused goes with --once")


publish = command(Publish)
