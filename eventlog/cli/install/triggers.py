"""The command ``eventlog triggers``: its requests, with options and help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from eventlog.cli import Group
from eventlog.cli.command import Request
from eventlog.cli.context import (
    dry_option,
    file_option,
    flag_option,
    json_option,
    sql_option,
    yes_option,
)
from eventlog.cli.install.db import dialect_option
from eventlog.exit_codes import ExitCode
from eventlog.sql import LOCK_TIMEOUT

_lock_timeout = click.option(
    "--lock-timeout",
    type=click.FloatRange(min=0, max=86400),
    default=LOCK_TIMEOUT,
    metavar="SECONDS",
    help="Maximum time to wait for a table lock; writers wait meanwhile. 0 = no limit.",
)


@click.group(cls=Group)
def triggers() -> None:
    """Compare, apply, drop or show the triggers of the watched tables."""


@sql_option
@json_option
@flag_option("--check", help=f"End with {ExitCode.NO} if there is something to do.")
@dataclass(frozen=True)
class Plan(Request):
    """Show what `triggers apply` would do, table by table, and why; nothing is changed.

    The command also works before `db upgrade` has created the log.
    """

    as_sql: bool
    check: bool


@yes_option
@dry_option("Show what would be done, as `plan` does; change nothing.")
@sql_option
@json_option
@_lock_timeout
@dataclass(frozen=True)
class Apply(Request):
    """Make the triggers as they are declared; a second run finds nothing to do.

    On a terminal it asks before it drops the triggers of a table that no [[watch]] names any
    longer. Everything runs in one transaction, except on Oracle, which commits each statement:
    there the next run completes an interrupted one. A [[watch]] that cannot be applied, for example
    because its table does not exist, is reported; the others are applied anyway.
    """

    yes: bool
    dry: bool
    as_sql: bool
    lock_timeout: float


@click.argument("tables", nargs=-1, required=True, metavar="TABLE...")
@dry_option("Show what would be accepted; change nothing.")
@json_option
@dataclass(frozen=True)
class Accept(Request):
    """Accept that each TABLE is not captured any more, which `plan --check`, `doctor` and `status`
    report as an error until then.

    This concerns a table that was captured, and that was not left out by a change of its [[watch]].
    """

    tables: tuple[str, ...]
    dry: bool


@flag_option("--drop-log", help="Also drop the log with its rows and internal tables.")
@flag_option("--force", help="With --drop-log: continue even if rows wait. They are lost.")
@yes_option
@dry_option("Show what would be dropped; drop nothing.")
@sql_option
@json_option
@_lock_timeout
@dataclass(frozen=True)
class Drop(Request):
    """Drop all triggers and functions that write to the log; without --drop-log the log stays.

    On a terminal it asks first.
    """

    drop_log: bool
    force: bool
    yes: bool
    dry: bool
    as_sql: bool
    lock_timeout: float


@flag_option("--sql", "as_sql", help="Print the full SQL of the triggers and their functions.")
@json_option
@dialect_option
@file_option(
    "--catalog",
    "catalog_file",
    help="With --sql --dialect: the tables, in JSON as for the option `catalog` of formats.",
)
@dataclass(frozen=True)
class List(Request):
    """List the triggers that are installed for the log, declared or not.

    With --sql --dialect NAME --catalog FILE it connects to no database: it prints the SQL of what
    the configuration declares for the tables of FILE, or of all its tables in the default style if
    nothing is declared.
    """

    as_sql: bool = False
    dialect_name: str | None = None
    catalog_file: Path | None = None

    def __post_init__(self) -> None:
        names = self.dialect_name, self.catalog_file
        if any(names) and not (all(names) and self.as_sql):
            raise click.UsageError("give --dialect and --catalog together, with --sql")


for request in (Plan, Apply, Accept, Drop, List):
    triggers.command()(request)
