"""The command ``eventlog resync``: its request, with options and help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from eventlog.cli import command
from eventlog.cli.command import Request
from eventlog.cli.context import dry_option, file_option, flag_option, json_option
from eventlog.errors import ConfigError
from eventlog.model import EventType


@click.argument("class_name", metavar="CLASS")
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="KEY",
    help="The object of this key, such as idu=1; repeatable.",
)
@file_option("--keys", "keys_file", help="The objects whose keys are in this file, one per line.")
@click.option(
    "--where",
    metavar="SQL",
    help="Objects whose rows meet this condition, which is used in SQL unchanged.",
)
@flag_option(
    "--deletes",
    help="Write rows of type 4 (delete) for objects that have rows in the log but no longer exist.",
)
@flag_option(
    "--as-update",
    help="Write rows of type 6 (update row) in place of 5 (insert row).",
)
@click.option(
    "--max-rows-per-second",
    "rate",
    type=click.FloatRange(0.001),
    metavar="ROWS",
    help="Maximum rows per second.",
)
@click.option("--batch", "size", type=click.IntRange(1, 1_000_000), default=1000, metavar="ROWS",
              help="Rows that one transaction writes.")  # fmt: skip
@flag_option("--resume", help="Continue where the same command stopped.")
@flag_option("--restart", help="Start over, even if the same command was interrupted.")
@dry_option("Count what would be written; write nothing.")
@json_option
@dataclass(frozen=True)
class Resync(Request):
    """Write a row for each object of CLASS to the log, or for those of --key, --keys, --where or
    --deletes.

    The publisher sends each object as it is when it is sent. Each batch is a transaction that also
    saves the key reached. After a stop or a kill, --resume continues there.

    --deletes searches the table for the keys that the log has rows of. For each key that no longer
    exists and is not logged as deleted, such as those of a dropped partition, it writes a row of
    type 4. It does the same for each former key (previous_key of the [[watch]]). It cannot find
    objects that the log has no rows of, and shows since when the log has rows of the class.
    """

    class_name: str
    keys: tuple[str, ...] = ()
    keys_file: Path | None = None
    where: str | None = None
    deletes: bool = False
    as_update: bool = False
    rate: float | None = None
    size: int = 1000
    resume: bool = False
    restart: bool = False
    dry: bool = False

    def __post_init__(self) -> None:
        if (
            sum((bool(self.keys), self.keys_file is not None, self.where is not None, self.deletes))
            > 1
        ):
            raise ConfigError("give only one of --key, --keys, --where and --deletes")
        if self.keys and (self.resume or self.restart):
            raise ConfigError(
                "--key runs in one transaction: there is nothing to resume or to restart"
            )
        if self.resume and self.restart:
            raise ConfigError("give --resume to continue or --restart to start over, not both")
        if self.deletes and self.as_update:
            raise ConfigError("--deletes writes rows of type 4: leave --as-update out")

    @property
    def event_type(self) -> EventType:
        """The type of the rows to write."""
        if self.deletes:
            return EventType.DELETE_ROW
        return (
            EventType.UPDATE_ROW_QUERY_BACK if self.as_update else EventType.INSERT_ROW_QUERY_BACK
        )


resync = command(Resync)
