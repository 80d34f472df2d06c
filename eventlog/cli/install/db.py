"""The command ``eventlog db``: options and help."""

from __future__ import annotations

import click

from eventlog.cli import Group
from eventlog.cli.context import CommandContext, json_option, sql_option, yes_option
from eventlog.sql import SUPPORTED

dialect_option = click.option("--dialect", "dialect_name", type=click.Choice(SUPPORTED),
    help="With --sql: the database to write it for; needs neither a connection nor a URL.",
)  # fmt: skip


@click.group(cls=Group)
def db() -> None:
    """Create, upgrade or remove the log, its internal tables and functions."""


@db.command()
@click.argument("revision", default="head")
@click.option(
    "--existing-log",
    is_flag=True,
    help="Create only the internal tables, for a log that exists already.",
)
@click.option("--tablespace", metavar="NAME", help="Oracle: tablespace of the tables.")
@click.option("--index-tablespace", metavar="NAME", help="Oracle: tablespace of the indexes.")
@click.option("--name", "renamed", multiple=True, metavar="NAME=OTHER",
              help="Oracle: another name for an index or a constraint; repeatable.")  # fmt: skip
@sql_option
@json_option
@dialect_option
@click.pass_obj
def upgrade(
    context: CommandContext,
    revision: str,
    existing_log: bool,
    tablespace: str | None,
    index_tablespace: str | None,
    renamed: tuple[str, ...],
    as_sql: bool,
    as_json: bool,
    dialect_name: str | None,
) -> None:
    """Create the log and its internal tables, or upgrade them to REVISION, by default the newest
    (head).

    On Oracle names are folded as in SQL: to upper case unless they are quoted.
    """
    from eventlog.cli.install.runs.db import run_db_upgrade

    run_db_upgrade(
        context,
        revision,
        tablespace,
        index_tablespace,
        renamed,
        dialect_name,
        existing_log=existing_log,
        as_sql=as_sql,
        as_json=as_json,
    )


@db.command()
@json_option
@click.pass_obj
def current(context: CommandContext, as_json: bool) -> None:
    """Show the revision that the log has reached, and the newer ones."""
    from eventlog.cli.install.runs.db import run_db_current

    run_db_current(context, as_json=as_json)


@db.command("start-epoch")
@json_option
@click.pass_obj
def start_epoch(context: CommandContext, as_json: bool) -> None:
    """Start a new epoch for event-ids, after the database was put back to an earlier state.

    A database that lost its newest rows assigns their numbers again, and a receiver ignores new
    events whose numbers it has seen before. The publisher detects a failover and a recovery by
    itself. Use this command after a snapshot or a file of SQLite was restored, or where the server
    does not report its recovery. Stop the publisher and the consumers first.
    """
    from eventlog.cli.install.runs.db import run_db_start_epoch

    run_db_start_epoch(context, as_json=as_json)


@db.command()
@click.option("--leaf-size", metavar="NUMBER", type=click.IntRange(min=1),
              help="Record_ids per leaf, by default a quarter of those that the log has now, and "
              "at least 100000.")  # fmt: skip
@json_option
@click.pass_obj
def partition(context: CommandContext, leaf_size: int | None, as_json: bool) -> None:
    """PostgreSQL: partition the log by record_id, so that `eventlog purge` removes old rows with
    their leaf.

    The present table becomes the first leaf, and no row is copied. The table is read once before,
    while others write it; then the log is locked for some milliseconds. Run it as the owner of the
    log, while neither the publisher nor a consumer runs. `eventlog db unpartition` takes it back.
    """
    from eventlog.cli.install.runs.db import run_db_partition

    run_db_partition(context, leaf_size, as_json=as_json)


@db.command()
@click.option("--max-copied", metavar="ROWS", default=100_000, show_default=True,
              type=click.IntRange(min=0),
              help="Refuse to copy more rows than this: every writer waits meanwhile.")  # fmt: skip
@json_option
@click.pass_obj
def unpartition(context: CommandContext, max_copied: int, as_json: bool) -> None:
    """PostgreSQL: make a partitioned log one table again.

    The largest leaf becomes the table, and the rows of all other leaves are copied into it, while
    every writer waits. Run it as the owner of the log, while neither the publisher nor a consumer
    runs.
    """
    from eventlog.cli.install.runs.db import run_db_unpartition

    run_db_unpartition(context, max_copied, as_json=as_json)


@db.command()
@click.argument("revision")
@click.option(
    "--existing-log", is_flag=True, help="With --sql: keep a log that eventlog did not create."
)
@click.option(
    "--force", is_flag=True, help="Continue even if rows wait to be published. They are lost."
)
@yes_option
@click.option("--dry-run", "dry", is_flag=True, help="Show what would be dropped; drop nothing.")
@sql_option
@json_option
@dialect_option
@click.pass_obj
def downgrade(
    context: CommandContext,
    revision: str,
    existing_log: bool,
    force: bool,
    yes: bool,
    dry: bool,
    as_sql: bool,
    as_json: bool,
    dialect_name: str | None,
) -> None:
    """Go back to REVISION; `base` drops the log with its rows and internal tables, each only if
    eventlog created it.

    Drop the triggers first: without a log they make the application's statements fail, so the
    command refuses while there are any. On a terminal it asks first.
    """
    from eventlog.cli.install.runs.db import run_db_downgrade

    run_db_downgrade(
        context,
        revision,
        dialect_name,
        existing_log=existing_log,
        force=force,
        yes=yes,
        dry=dry,
        as_sql=as_sql,
        as_json=as_json,
    )
