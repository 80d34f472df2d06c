"""The command ``eventlog skip``: options and help."""

from __future__ import annotations

import click

from eventlog.cli import Command
from eventlog.cli.consumer_option import consumer_option
from eventlog.cli.context import CommandContext, json_option, source_option, yes_option


@click.command(cls=Command)
@click.argument("event_ids", metavar="[EVENT_ID]...", nargs=-1)
@click.option(
    "--reason", required=True, metavar="REASON", help="Reason for the error row, with your name."
)
@click.option("--parked", is_flag=True, help="Give up all events that are parked.")
@click.option(
    "--refused", "of_refused", is_flag=True, help="Skip refused rows; they are not sent again."
)
@click.option("--ids", metavar="IDS", help="With --refused: only these record_ids, such as 1,5-9.")
@click.option(
    "--class", "class_name", metavar="CLASS", help="With --parked or --refused: only this class."
)
@consumer_option
@yes_option
@click.option("--dry-run", "dry", is_flag=True, help="Show what would be skipped; change nothing.")
@json_option
@source_option
@click.pass_obj
def skip(
    context: CommandContext,
    event_ids: tuple[str, ...],
    reason: str,
    parked: bool,
    of_refused: bool,
    ids: str | None,
    class_name: str | None,
    consumer: str | None,
    yes: bool,
    dry: bool,
    as_json: bool,
    source: str | None,
) -> None:
    """Give up the events EVENT_ID, which are parked: the receiver fails for them, or asks for them
    later. With --refused, record that refused rows need nothing more.

    The rows of an event get E, each with an error row that records who gave it up, the reason, and
    the receiver's last answer to a parked event. A running publisher notices it at its next attempt
    to send the event; then the later events of the object are sent. `eventlog status` shows which
    events are being delivered. Skipped rows are no condition of the health. `eventlog errors` lists
    them with the commands that send their objects again.

    --parked stands for the ids of all parked events. --refused is for rows that have E or F
    already: they keep their status, and get the same error row. On a terminal both ask first.

    With --consumer and events the consumer must not run, and with --from the source's publisher
    must not run. An event of a followed source has no rows: the source's error table gets the
    change.
    """
    from eventlog.cli.repair.runs.skip import run_skip

    run_skip(
        context,
        event_ids,
        reason,
        ids,
        class_name,
        consumer,
        source,
        parked=parked,
        of_refused=of_refused,
        yes=yes,
        dry=dry,
        as_json=as_json,
    )
