"""Triggers on Oracle: planned, applied and dropped (spec/triggers.md 7.2, 9, 10).

``compile`` makes their SQL, ``installed`` reads what is there, ``compare`` finds the difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from eventlog.core.catalog import Catalog, Database
from eventlog.errors import DatabaseError, TriggerError
from eventlog.sql.connection import as_database_errors
from eventlog.sql.dialects.oracle import doctor
from eventlog.sql.dialects.oracle.compare import by_table, claims, compare_table, digest_of, drop_all, table_sql
from eventlog.sql.dialects.oracle.compile import Compiled, Taken, compile_triggers
from eventlog.sql.dialects.oracle.ddl import create_functions
from eventlog.sql.dialects.oracle.installed import (
    Installed,
    find_log,
    missing_functions,
    read_installed,
    shows_triggers,
)
from eventlog.sql.dialects.oracle.lock import current_user
from eventlog.sql.dialects.oracle.reflect import reflect
from eventlog.sql.dialects.oracle.running import run
from eventlog.sql.dialects.oracle.script import ddl_lock_timeout
from eventlog.sql.dialects.oracle.session import error_code
from eventlog.sql.log_table import LogTable
from eventlog.sql.statements import run_as_it_stands
from eventlog.sql.triggers.declared import TableTriggers, declared_triggers
from eventlog.sql.triggers.plan import NO_LONGER_WATCHED, Action, InstalledTrigger, TableSql, TriggerPlan
from eventlog.sql.triggers.watch import Watch

_BUSY = frozenset({54, 4021})  # resource busy; time-out while waiting to lock an object


def compile_tables(
    database: Database, catalog: Catalog, log: LogTable, watches: Sequence[Watch]
) -> tuple[TableSql, ...]:
    """The SQL of what is declared, from the catalogue alone. Raises TriggerError for a watch that cannot be."""
    declared, _ = declared_triggers(database, catalog, watches)
    return tuple(table_sql(of_table) for of_table in by_table(compile_triggers(database.schema, log, declared)))


def plan(
    conn: Connection, database: Database, catalog: Catalog, log: LogTable, watches: Sequence[Watch]
) -> TriggerPlan:
    """What brings the triggers that write ``log`` to what is declared: one action a table, with its reason.

    ``database`` is the reflected schema, ``catalog`` its classes. Triggers of the log that no watch declares are
    dropped. Nothing is changed. Raises TriggerError for a watch that cannot be compiled, LogTableError if the log is
    missing, DatabaseError if this user is not shown the triggers of a table.
    """
    found = find_log(conn, log)
    declared, warnings = declared_triggers(database, catalog, watches, lambda other: reflect(conn, other))
    _refuse_the_log(database.schema, found, declared)
    for schema in sorted({one.schema or database.schema or "" for one in declared}):
        if not shows_triggers(conn, schema):
            raise DatabaseError(
                f"the database shows user {current_user(conn)} no trigger of schema {schema}, so nobody can tell which "
                f"are missing: run it as {schema}, or as a user with CREATE ANY TRIGGER"
            )
    installed = read_installed(conn, found)
    compiled = compile_triggers(database.schema, found, declared, _is_taken(installed))
    functions = missing_functions(conn, found) if declared else []
    made = [Action("create", str(found), "its functions are missing", tuple(create_functions(found)))]
    warnings += doctor.warnings(found, declared, compiled, installed)
    claimed = claims(compiled)
    warnings += doctor.left_invalid(
        installed,
        (
            trigger
            for table in installed.tables
            for trigger in installed.on(table)
            if claimed.get((trigger.schema, trigger.name)) != table
        ),
    )
    return TriggerPlan(
        (*(made if functions else []), *actions(compiled, installed)), tuple(warnings), doctor.not_captured(declared)
    )


def actions(compiled: Sequence[Compiled], installed: Installed) -> list[Action]:
    """What brings the triggers of a log to all that is declared, as it is compiled: one action a table."""
    claimed = claims(compiled)
    kept = [(one.schema or "", one.table) for one in compiled]
    return [
        # First, since a table that was renamed keeps the names that the new one of its name needs.
        *drop_all(installed, kept=kept, reason=NO_LONGER_WATCHED),
        *(compare_table(of_table, installed, claimed) for of_table in by_table(compiled)),
    ]


def plan_drop(conn: Connection, log: LogTable) -> TriggerPlan:
    """What takes all triggers away that write ``log``, found by their sources; the log and its functions stay.

    Raises LogTableError if the log is missing.
    """
    installed = read_installed(conn, find_log(conn, log))
    ours = [trigger for table in installed.tables for trigger in installed.on(table)]
    return TriggerPlan(
        tuple(drop_all(installed, kept=(), reason="all triggers of the log go")),
        tuple(doctor.left_invalid(installed, ours)),
    )


def apply(conn: Connection, plan: TriggerPlan, lock_timeout: float) -> None:
    """Run the statements of a plan. Oracle commits each: what is done before an error stays, and a new plan goes on.

    ``lock_timeout``: seconds to wait for a table, 0 = without end. A trigger that does not compile is dropped, since
    the application's statements would fail by it. Raises DatabaseError if the database refuses a statement, if a
    trigger does not compile, or if a table is not to be had in time.
    """
    if not plan.changes:
        return
    with as_database_errors(conn):
        run_as_it_stands(conn, ddl_lock_timeout(lock_timeout))
        for action in plan.changes:
            for statement in action.statements:
                _run(conn, action, statement, lock_timeout)


def _run(conn: Connection, action: Action, statement: str, lock_timeout: float) -> None:
    try:
        run(conn, statement)
    except DBAPIError as error:
        if error_code(error) not in _BUSY:
            raise
        raise DatabaseError(
            f"{action.table} was locked for more than {lock_timeout:g} s by another transaction: run it again when "
            "that has ended, or wait longer with --lock-timeout; what was done before stays"
        ) from error


def _is_taken(installed: Installed) -> Taken:
    others = {
        (trigger.schema, trigger.name)
        for triggers in installed.triggers.values()
        for trigger in triggers
        if not installed.owns(trigger)
    }
    return lambda schema, name: (schema, name) in others


def _refuse_the_log(schema: str | None, log: LogTable, declared: Iterable[TableTriggers]) -> None:
    for triggers in declared:
        if (triggers.schema or schema, triggers.table.name) == (log.schema, log.name):
            raise TriggerError(f"{log.name} is the log: triggers on it would log their own rows without end")


# --- what is installed ------------------------------------------------------------------------------------------------


def installed(conn: Connection, log: LogTable) -> list[InstalledTrigger]:
    """The triggers that write ``log``, in the order of tables and names. Nothing is changed."""
    there = read_installed(conn, find_log(conn, log))
    return [
        InstalledTrigger(
            table=".".join(table),
            trigger=trigger.name,
            function=None,
            enabled=trigger.is_enabled,
            trigger_sql=f"CREATE OR REPLACE {trigger.source}",
            function_sql=None,
        )
        for table in there.tables
        for trigger in there.on(table)
    ]


def digests(conn: Connection, log: LogTable) -> dict[str, str]:
    """Table -> hash of what was compiled for its triggers, as their sources have it."""
    there = read_installed(conn, find_log(conn, log))
    return {".".join(table): digest_of(trigger.digest for trigger in there.on(table)) for table in there.tables}
