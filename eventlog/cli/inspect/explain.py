"""The command ``eventlog explain``: its requests, with options and help, and the whole of
``explain CODE``.
"""

from __future__ import annotations

from dataclasses import dataclass

import click

from eventlog.cli import Command
from eventlog.cli.command import AddressedRequest, CommandResult, Request
from eventlog.cli.context import (
    CommandContext,
    consumer_option,
    flag_option,
    json_option,
    source_option,
)
from eventlog.cli.inspect.explain_code import code_lines, explained_code, is_code


@click.command(cls=Command)
@click.argument("row", metavar="[RECORD_ID|EVENT_ID|CODE]", required=False)
@click.option(
    "--key",
    metavar="KEY",
    help="Explain why the change of this object was not sent: idu=7 or usr.idu=7.",
)
@flag_option(
    "--show-values",
    help="Show the database's message about an error in reading the object, also if it may quote a "
    "value that a [[mask]] or [[filter]] hides.",
)
@consumer_option
@json_option
@source_option
def explain(
    row: str | None, key: str | None, show_values: bool, consumer: str | None, source: str | None
) -> ExplainCode | Explain:
    """Explain the row RECORD_ID of the log: its checks, its group, how precedence applied, its
    outcome, and what can be done. If a publisher runs with a monitor, it is asked what the event
    waits for, and for the attempts to send it.

    The last part is the document of the row's event, as it was made or would be made now. What was
    sent for a processed row is shown only if it is known. Nothing is marked or sent. RECORD_ID may
    also be an event-id: of the row's event or, for a consumer, of an object in its snapshot.

    With --key in place of RECORD_ID it explains what happens to the change of one object: the
    status of its row, who wrote it and when, its class, what is being delivered or parked before
    it, and open transactions that hide rows.

    With --from it explains an event of a followed source in the same way: RECORD_ID is its
    event-id, and --key KEY is the key of its row, such as id=7 or item.id=7.

    With CODE, a code of an error, of a finding of doctor or of a condition of health, it shows what
    the code means and what to do. It needs no configuration.
    """
    if row is None or key is not None or not is_code(row):
        return Explain(row, key, show_values, consumer, source)
    if consumer is not None or source is not None or show_values:
        raise click.UsageError("a code is explained without --consumer, --from and --show-values")
    return ExplainCode(row)


@dataclass(frozen=True)
class ExplainCode(Request):
    """The request to explain what a code means."""

    code: str

    def run(self, context: CommandContext) -> CommandResult:
        """Explain the code, with one entry for each kind of message that can have it."""
        entries = explained_code(self.code)
        return CommandResult(
            {"code": entries[0].code, "entries": [one.data() for one in entries]},
            "\n".join(code_lines(entries)),
        )


@dataclass(frozen=True)
class Explain(AddressedRequest):
    """The request to explain a row, or what happens to the change of an object."""

    overriding = ("source",)
    row: str | None
    key: str | None
    show_values: bool
    consumer: str | None
    source: str | None

    def __post_init__(self) -> None:
        if (self.row is None) == (self.key is None):
            raise click.UsageError("give either RECORD_ID or CODE, or --key KEY")
