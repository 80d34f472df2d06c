"""The command ``eventlog skip``: its request, with options and help."""

from __future__ import annotations

from dataclasses import dataclass

import click

from eventlog.cli import command
from eventlog.cli.command import AddressedRequest
from eventlog.cli.context import (
    consumer_option,
    dry_option,
    flag_option,
    json_option,
    source_option,
    yes_option,
)


@click.argument("event_ids", metavar="[EVENT_ID]...", nargs=-1)
@click.option(
    "--reason", required=True, metavar="REASON", help="Reason for the error row, with your name."
)
@flag_option("--parked", help="Give up all events that are parked.")
@flag_option("--refused", "of_refused", help="Skip refused rows; they are not sent again.")
@click.option("--ids", metavar="IDS", help="With --refused: only these record_ids, such as 1,5-9.")
@click.option(
    "--class", "class_name", metavar="CLASS", help="With --parked or --refused: only this class."
)
@consumer_option
@yes_option
@dry_option("Show what would be skipped; change nothing.")
@json_option
@source_option
@dataclass(frozen=True)
class Skip(AddressedRequest):
    """Give up the events EVENT_ID, which are parked: the receiver fails for them, or wants them
    later. With --refused, record that refused rows need nothing more.

    The rows of an event get E. An error row of each row records who gave the event up, why, and the
    receiver's last answer to the event. A running publisher notices it at its next attempt
    to send the event; then the later events of the object are sent. Skipped rows are no condition
    of the health. `eventlog errors` lists them with the commands that send their objects again.

    --parked stands for the ids of all parked events. --refused is for rows that have E or F
    already: they keep their status, and get the same error row. On a terminal the command asks
    first.

    With --consumer and events the consumer must not run, and with --from the source's publisher
    must not run. An event of a followed source has no rows: the source's error table gets the
    change.
    """

    overriding = ("source",)
    reason: str
    event_ids: tuple[str, ...] = ()
    parked: bool = False
    of_refused: bool = False
    ids: str | None = None
    class_name: str | None = None
    consumer: str | None = None
    yes: bool = False
    dry: bool = False
    source: str | None = None

    def __post_init__(self) -> None:
        if bool(self.event_ids) + self.parked + self.of_refused != 1:
            raise click.UsageError("give either EVENT_ID, --parked or --refused")
        if self.ids is not None and not self.of_refused:
            raise click.UsageError("--ids names refused rows: give --refused too")
        if self.class_name is not None and self.event_ids:
            raise click.UsageError("--class narrows --parked or --refused: leave EVENT_ID out")


skip = command(Skip)
