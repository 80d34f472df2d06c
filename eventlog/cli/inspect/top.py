"""The command ``eventlog top``: its request, with options and help."""

from __future__ import annotations

from dataclasses import dataclass

import click

from eventlog.cli import command
from eventlog.cli.command import AddressedRequest
from eventlog.cli.context import consumer_option, flag_option, source_option

url_option = click.option(
    "--url", metavar="URL", help="The monitor of a publisher.  [default: that of monitor.listen]"
)


@url_option
@flag_option(
    "--database",
    "from_database",
    help="Read from the database even if a monitor is configured.",
)
@click.option("--interval", type=click.FloatRange(min=0.2), default=2.0, metavar="SECONDS",
              help="Refresh interval.")  # fmt: skip
@source_option
@consumer_option
@dataclass(frozen=True)
class Top(AddressedRequest):
    """Show live what a publisher does, until q or Ctrl-C: its state, the queue, rates, parked
    objects, the newest documents. The arrows select an event, and Enter opens it, as `eventlog
    explain` shows it.

    The publisher's monitor has all of it. Without the monitor, the database shows the queue and
    what is being delivered, or for a followed source how many changes follow its position; with
    --consumer the database is read unless --url names the monitor of the consumer's process. If
    standard output is not a terminal, the command prints the state once. Programs read `eventlog
    status --json` and the monitor's /metrics.
    """

    url: str | None
    from_database: bool
    interval: float
    source: str | None
    consumer: str | None


top = command(Top)
