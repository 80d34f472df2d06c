"""The command ``eventlog db``: its requests, with options and help."""

from __future__ import annotations

from dataclasses import dataclass

import click

from eventlog.cli import Group
from eventlog.cli.command import Request
from eventlog.cli.context import dry_option, flag_option, json_option, sql_option, yes_option
from eventlog.sql import SUPPORTED

dialect_option = click.option("--dialect", "dialect_name", type=click.Choice(SUPPORTED),
    help="With --sql: the database to write it for; needs neither a connection nor a URL.",
)  # fmt: skip


@click.group(cls=Group)
def db() -> None:
    """Create, upgrade or remove the log, its internal tables and functions."""


class _SqlRequest(Request):
    """A request that has --sql and --dialect."""

    as_sql: bool
    dialect_name: str | None

    def __post_init__(self) -> None:
        if self.dialect_name is not None and not self.as_sql:
            raise click.UsageError(
                "--dialect needs --sql, which prints the statements without running them"
            )


@click.argument("revision", default="head")
@flag_option(
    "--existing-log",
    help="Create only the internal tables, for a log that exists already.",
)
@click.option("--tablespace", metavar="NAME", help="Oracle: tablespace of the tables.")
@click.option("--index-tablespace", metavar="NAME", help="Oracle: tablespace of the indexes.")
@click.option("--name", "renamed", multiple=True, metavar="NAME=OTHER",
              help="Oracle: another name for an index or a constraint; repeatable.")  # fmt: skip
@sql_option
@json_option
@dialect_option
@dataclass(frozen=True)
class Upgrade(_SqlRequest):
    """Create the log and its internal tables, or upgrade them to REVISION, by default the newest
    (head).

    On Oracle names are folded as in SQL: to upper case unless they are quoted.
    """

    revision: str
    existing_log: bool
    tablespace: str | None
    index_tablespace: str | None
    renamed: tuple[str, ...]
    as_sql: bool
    dialect_name: str | None


db.command()(Upgrade)


@db.command()
@json_option
class Current(Request):
    """Show the revision that the log has reached, and the newer ones."""


@db.command("start-epoch")
@json_option
class Epoch(Request):
    """Start a new epoch for event-ids, after the database was put back to an earlier state.

    A database that lost its newest rows assigns their numbers again, and a receiver ignores new
    events whose numbers it has seen before. The publisher detects a failover and a recovery by
    itself. Use this command after a snapshot or a file of SQLite was restored, or where the server
    does not report its recovery. Stop the publisher and the consumers first.
    """


@click.option("--leaf-size", metavar="NUMBER", type=click.IntRange(min=1),
              help="Record_ids per leaf, by default a quarter of those that the log has now, and "
              "at least 100000.")  # fmt: skip
@json_option
@dataclass(frozen=True)
class Partition(Request):
    """PostgreSQL: partition the log by record_id, so that `eventlog purge` drops whole leaves
    (partitions) of old rows.

    The present table becomes the first leaf, and no row is copied. First the table is read once,
    while others write it; then the log is locked for some milliseconds. Run it as the owner of the
    log, while neither the publisher nor a consumer runs. `eventlog db unpartition` reverses it.
    """

    leaf_size: int | None


db.command()(Partition)


@click.option("--max-copied", metavar="ROWS", default=100_000, show_default=True,
              type=click.IntRange(min=0),
              help="Refuse to copy more rows than this: every writer waits meanwhile.")  # fmt: skip
@json_option
@dataclass(frozen=True)
class Unpartition(Request):
    """PostgreSQL: make a partitioned log one table again.

    The largest leaf becomes the table, and the rows of all other leaves are copied into it, while
    every writer waits. Run it as the owner of the log, while neither the publisher nor a consumer
    runs.
    """

    max_copied: int


db.command()(Unpartition)


@click.argument("revision")
@flag_option("--existing-log", help="With --sql: keep a log that eventlog did not create.")
@flag_option("--force", help="Continue even if rows wait to be published. They are lost.")
@yes_option
@dry_option("Show what would be dropped; drop nothing.")
@sql_option
@json_option
@dialect_option
@dataclass(frozen=True)
class Downgrade(_SqlRequest):
    """Go back to REVISION; `base` drops the log with its rows and internal tables, each only if
    eventlog created it.

    Drop the triggers first: without a log they make the application's statements fail, so the
    command refuses while there are any. On a terminal it asks first.
    """

    revision: str
    existing_log: bool
    force: bool
    yes: bool
    dry: bool
    as_sql: bool
    dialect_name: str | None


db.command()(Downgrade)
