"""The commands ``eventlog status`` and ``eventlog doctor``: options and help."""

from __future__ import annotations

import click

from eventlog.cli import Command
from eventlog.cli.consumer_option import consumer_option
from eventlog.cli.context import CommandContext, json_option, limit_option, source_option
from eventlog.cli.inspect.health_lines import SHOWN
from eventlog.exit_codes import ExitCode
from eventlog.sql.doctor import Limits


@click.command(cls=Command)
@json_option
@source_option
@click.option("--watch", type=click.FloatRange(min=0.2), is_flag=False, flag_value=2.0,
              metavar="[SECONDS]", help="Refresh every SECONDS, 2 if no number is given, until "
              "Ctrl-C.")  # fmt: skip
@consumer_option
@limit_option("events being delivered to list", SHOWN)
@click.pass_obj
def status(
    context: CommandContext,
    as_json: bool,
    source: str | None,
    watch: float | None,
    consumer: str | None,
    limit: int,
) -> None:
    """Show rows by status, what is being delivered or parked, and whether a publisher runs.

    With --from: the position in the source, when it was saved, how many changes follow it, and what
    failed.
    """
    from eventlog.cli.inspect.runs.status import run_status

    run_status(context, source, watch, consumer, limit, as_json=as_json)


# --- doctor ---------------------------------------------------------------------------------------


@click.command(cls=Command)
@click.option("--sample", type=click.IntRange(min=1), default=Limits().sample, metavar="ROWS",
              help="How many of the newest rows to check for their status and key.")  # fmt: skip
@click.option(
    "--ignore", multiple=True, metavar="CODE", help="Leave out findings with this code; repeatable."
)
@click.option("--receiver", is_flag=True,
              help="Only check that the receiver is reachable; no change is sent.")  # fmt: skip
@consumer_option
@json_option
@click.pass_obj
def doctor(
    context: CommandContext,
    sample: int,
    ignore: tuple[str, ...],
    receiver: bool,
    consumer: str | None,
    as_json: bool,
) -> ExitCode:
    """Check the log, its triggers and its rows for problems, and show how to fix them. Nothing is
    changed.

    With --receiver it only checks the receiver, without sending a change: name, port, TLS and
    credentials, by OPTIONS over HTTP, metadata of Kafka, or a file or object that is written and
    removed.

    A finding is an error (changes are lost, or nothing is published), a warning (something needs
    fixing) or an info (good to know).
    """
    from eventlog.cli.inspect.runs.status import run_doctor

    return run_doctor(context, sample, ignore, consumer, receiver=receiver, as_json=as_json)
