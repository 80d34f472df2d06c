"""The command ``eventlog consumers``: options and help."""

from __future__ import annotations

import click

from eventlog.cli import Group
from eventlog.cli.context import CommandContext, json_option, yes_option
from eventlog.core.start_time import EXAMPLE


@click.group(cls=Group)
def consumers() -> None:
    """List, reset or drop the consumers, which read the log independently of its publisher."""


@consumers.command("list")
@json_option
@click.pass_obj
def show(context: CommandContext, as_json: bool) -> None:
    """Show each consumer: whether it runs, how many rows it has to process, the state of its set of
    done rows, and the classes and the sink of its last start.
    """
    from eventlog.cli.repair.runs.consumers import run_consumers_list

    run_consumers_list(context, as_json=as_json)


@consumers.command()
@click.argument("name")
@click.option(
    "--start-from",
    default="latest",
    metavar="WHERE",
    help=f"Where it starts: latest, earliest, snapshot, a record_id or a time such as {EXAMPLE}.",
)
@yes_option
@click.option("--dry-run", "dry", is_flag=True, help="Show where it would start; change nothing.")
@json_option
@click.pass_obj
def reset(
    context: CommandContext, name: str, start_from: str, yes: bool, dry: bool, as_json: bool
) -> None:
    """Reset the consumer NAME to a start position. Its set of done rows and its unfinished
    deliveries are deleted.
    """
    from eventlog.cli.repair.runs.consumers import run_consumers_reset

    run_consumers_reset(context, name, start_from, yes=yes, dry=dry, as_json=as_json)


@consumers.command()
@click.argument("name")
@yes_option
@click.option("--dry-run", "dry", is_flag=True, help="Show what would be deleted; delete nothing.")
@json_option
@click.pass_obj
def drop(context: CommandContext, name: str, yes: bool, dry: bool, as_json: bool) -> None:
    """Delete the consumer NAME and its unfinished deliveries.

    Purge then no longer keeps rows for it.
    """
    from eventlog.cli.repair.runs.consumers import run_consumers_drop

    run_consumers_drop(context, name, yes=yes, dry=dry, as_json=as_json)
