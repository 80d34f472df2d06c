"""The command ``eventlog purge``: options and help."""

from __future__ import annotations

import click

from eventlog.cli import Command
from eventlog.cli.context import CommandContext, json_option, yes_option


@click.command(cls=Command)
@click.option(
    "--older-than",
    "age",
    metavar="AGE",
    help="Age by event_time: 30d, 12h, 90m, 45s or 2w.  [default: keep_days of [database]]",
)
@click.option("--batch", "size", type=click.IntRange(1, 1_000_000), default=10_000, metavar="ROWS",
              help="Rows that one transaction checks.")  # fmt: skip
@click.option("--pause", type=click.FloatRange(0, 3600), default=0.0, metavar="SECONDS",
              help="Pause between two transactions.")  # fmt: skip
@click.option("--finish", "table", metavar="NAME",
              help="Drop a table that was a leaf of the log and that no purge has recorded. Its "
              "unprocessed rows are put back into the log first.")  # fmt: skip
@yes_option
@click.option("--dry-run", "dry", is_flag=True, help="Count what would be removed; remove nothing.")
@json_option
@click.pass_obj
def purge(
    context: CommandContext,
    age: str | None,
    size: int,
    pause: float,
    table: str | None,
    yes: bool,
    dry: bool,
    as_json: bool,
) -> None:
    """Remove rows of status S and W that are older than AGE, and error rows whose rows are gone.

    Rows of any other status, rows being delivered and rows that a consumer has not processed stay.
    A publisher may run meanwhile, since each batch is a separate transaction. The batches of a
    purge that is stopped stay committed. On a terminal it asks first. As the owner of a partitioned
    log it removes whole leaves, and makes the next ones; while the log has more than keep_bytes of
    [database], the oldest leaf goes whatever its age.
    """
    from eventlog.cli.repair.runs.purge import run_purge

    run_purge(context, age, size, pause, table, yes=yes, dry=dry, as_json=as_json)
