"""``eventlog triggers``: bring the triggers to what the [[watch]] tables of the configuration declare."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Final

import click
from sqlalchemy import Connection

from eventlog.cli.context import Context
from eventlog.cli.database import transaction, trigger_functions
from eventlog.cli.db import names, offline, refuse_to_lose_rows
from eventlog.cli.output import note, print_json, table
from eventlog.config import Config
from eventlog.publisher.opening import catalog_of, class_names, declared_watches, find_log
from eventlog.sql import migrations
from eventlog.sql.dialect import Dialect
from eventlog.sql.triggers import TriggerPlan

SIGNS: Final = {"create": ("+", "green"), "replace": ("~", "yellow"), "drop": ("-", "red"), "unchanged": ("=", None)}


_lock_timeout = click.option(
    "--lock-timeout",
    type=click.FloatRange(min=0, max=86400),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for a table that a transaction holds; writers wait behind. 0 = without end.",
)


@click.group()
def triggers() -> None:
    """Compare, apply, drop or show the triggers of the watched tables."""


@triggers.command()
@click.option("--sql", "as_sql", is_flag=True, help="Print the SQL that apply would run.")
@click.option("--json", "as_json", is_flag=True, help="For programs, on standard output.")
@click.option("--check", is_flag=True, help="Exit code 1 if something is to be done.")
@click.pass_obj
def plan(context: Context, as_sql: bool, as_json: bool, check: bool) -> int:
    """Show what apply would do, table by table, and why; nothing is changed."""
    config = context.config()
    with transaction(config) as (conn, dialect):
        planned = planned_triggers(conn, dialect, config)
    if as_sql:
        sys.stdout.write(trigger_functions(dialect).to_sql(planned))
    elif as_json:
        print_json({**asdict(planned), "changes": len(planned.changes)})
    else:
        _print(planned)
        note("Nothing to do." if not planned.changes else "`eventlog triggers apply` does this.")
    return 1 if check and planned.changes else 0


@triggers.command()
@click.option("--sql", "as_sql", is_flag=True, help="Print the SQL and run none of it.")
@click.option("--json", "as_json", is_flag=True, help="For programs, on standard output.")
@_lock_timeout
@click.pass_obj
def apply(context: Context, as_sql: bool, as_json: bool, lock_timeout: float) -> None:
    """Bring the triggers to what is declared, in one transaction; run twice it does nothing the second time."""
    config = context.config()
    with transaction(config) as (conn, dialect):
        planned = planned_triggers(conn, dialect, config)
        if not as_sql:
            trigger_functions(dialect).apply(conn, planned, lock_timeout)
    if as_sql:
        sys.stdout.write(trigger_functions(dialect).to_sql(planned, lock_timeout))
    elif as_json:
        print_json({**asdict(planned), "changes": len(planned.changes)})
    else:
        _print(planned)
        note(f"{len(planned.changes)} changes applied." if planned.changes else "Nothing to do.")


@triggers.command()
@click.option("--drop-log", is_flag=True, help="The log, its rows and companions too.")
@click.option("--force", is_flag=True, help="With --drop-log: also if rows wait to be published.")
@click.option("--sql", "as_sql", is_flag=True, help="Print the SQL and run none of it.")
@_lock_timeout
@click.pass_obj
def drop(context: Context, drop_log: bool, force: bool, as_sql: bool, lock_timeout: float) -> None:
    """Drop all triggers and functions that write the log; the log itself stays without --drop-log."""
    config = context.config()
    with transaction(config) as (conn, dialect):
        functions = trigger_functions(dialect)
        planned = functions.plan_drop(conn, find_log(conn, dialect, config))
        if as_sql:
            sys.stdout.write(functions.to_sql(planned, lock_timeout))
            if drop_log:
                migrations.downgrade(None, sql=sys.stdout, **offline(config))
            return
        if drop_log and not force:
            refuse_to_lose_rows(conn, dialect, config)
        functions.apply(conn, planned, lock_timeout)
        if drop_log:
            migrations.downgrade(conn, **names(config))
    _print(planned)
    note("Nothing to drop." if not planned.changes else f"{len(planned.changes)} tables are captured no longer.")
    if drop_log:
        note(f"The log {config.database.log_table} is dropped.")


@triggers.command()
@click.option("--sql", "as_sql", is_flag=True, help="Their full SQL, on standard output.")
@click.option("--json", "as_json", is_flag=True, help="For programs, on standard output.")
@click.pass_obj
def show(context: Context, as_sql: bool, as_json: bool) -> None:
    """Show the triggers that are installed for the log, declared or not."""
    config = context.config()
    with transaction(config) as (conn, dialect):
        installed = trigger_functions(dialect, "show").installed(conn, find_log(conn, dialect, config))
    if as_sql:
        for function in dict.fromkeys(one.function_sql for one in installed):
            sys.stdout.write(f"{function.rstrip()};\n\n")
        for one in installed:
            sys.stdout.write(f"{one.trigger_sql};\n")
    elif as_json:
        print_json([one._asdict() for one in installed])
    elif installed:
        table(
            ("table", "trigger", "function", "enabled"),
            [(one.table, one.trigger, one.function, "yes" if one.enabled else "no") for one in installed],
        )
    else:
        note("No triggers are installed; `eventlog triggers plan` shows what is declared.")


def planned_triggers(conn: Connection, dialect: Dialect, config: Config) -> TriggerPlan:
    """What brings the triggers to what the configuration declares. Raises TriggerError, LogTableError, ConfigError."""
    log = find_log(conn, dialect, config)
    schema, tables = class_names(config)
    database = dialect.reflect(conn, schema)
    catalog = catalog_of(config, database, tables, log)
    planned: TriggerPlan = trigger_functions(dialect).plan(conn, database, catalog, log, declared_watches(config))
    return planned


def _print(planned: TriggerPlan) -> None:
    for action in planned.actions:
        sign, colour = SIGNS[action.kind]
        click.secho(f"{sign} {action.table}: {action.reason}", fg=colour, err=True)
    for warning in planned.warnings:
        note(f"warning: {warning}")
    if planned.not_captured:
        note("Not captured:")
        for sentence in planned.not_captured:
            note(f"  {sentence}")
