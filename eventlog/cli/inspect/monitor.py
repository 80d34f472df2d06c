"""The commands ``eventlog top`` and ``tail``: options and help."""

from __future__ import annotations

import click

from eventlog.cli import Command
from eventlog.cli.consumer_option import consumer_option
from eventlog.cli.context import CommandContext, json_option, limit_option, source_option

_url_option = click.option(
    "--url", metavar="URL", help="The monitor of a publisher.  [default: that of monitor.listen]"
)


@click.command(cls=Command)
@_url_option
@click.option(
    "--database",
    "from_database",
    is_flag=True,
    help="Read from the database even if a monitor is configured.",
)
@click.option("--interval", type=click.FloatRange(min=0.2), default=2.0, metavar="SECONDS",
              help="Refresh interval.")  # fmt: skip
@source_option
@consumer_option
@click.pass_obj
def top(
    context: CommandContext,
    url: str | None,
    from_database: bool,
    interval: float,
    source: str | None,
    consumer: str | None,
) -> None:
    """Show live what a publisher does, until Ctrl-C: its state, the queue, rates, parked objects,
    the newest documents.

    The publisher's monitor has all of it. Without the monitor, the database shows the queue and
    what is being delivered, or for a followed source how many changes follow its position; with
    --consumer the database is read unless --url names the monitor of the consumer's process. If
    standard output is not a terminal, the command prints the state once and ends. There is no
    --json: programs read `eventlog status --json` and the monitor's /metrics.
    """
    from eventlog.cli.inspect.runs.top import run_top

    run_top(context, url, interval, source, consumer, from_database=from_database)


# --- tail


@click.command(cls=Command)
@_url_option
@limit_option("of the newest documents to begin with", 10, "-n")
@click.option(
    "--follow/--no-follow", default=True, help="Continue with each document that is sent, or end."
)
@click.option("--interval", type=click.FloatRange(min=0.2), default=1.0, metavar="SECONDS",
              help="Refresh interval.")  # fmt: skip
@json_option
@click.pass_obj
def tail(
    context: CommandContext,
    url: str | None,
    limit: int,
    follow: bool,
    interval: float,
    as_json: bool,
) -> None:
    """Show the documents that were sent recently, with their answers, and those that follow until
    Ctrl-C.

    Only the publisher's monitor has them: the database keeps the outcome of each row, but not what
    was sent when. `eventlog explain` explains a row from the database alone.
    """
    from eventlog.cli.inspect.runs.tail import run_tail

    run_tail(context, url, limit, interval, follow=follow, as_json=as_json)
