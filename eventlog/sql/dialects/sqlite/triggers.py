"""Triggers on SQLite: planned, applied and dropped (spec/triggers.md 7.5, 9, 10).

``compile`` makes their SQL, ``installed`` reads what is there, ``compare`` finds the difference.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from eventlog.core.catalog import Catalog, Database
from eventlog.errors import TriggerError
from eventlog.sql.connection import as_database_errors
from eventlog.sql.dialects.sqlite import doctor
from eventlog.sql.dialects.sqlite.compare import compare_table, digest_of, drop_all, table_sql
from eventlog.sql.dialects.sqlite.compile import compile_triggers
from eventlog.sql.dialects.sqlite.installed import read_installed
from eventlog.sql.log_table import LogTable
from eventlog.sql.triggers.declared import declared_triggers
from eventlog.sql.triggers.plan import NO_LONGER_WATCHED, InstalledTrigger, TableSql, TriggerPlan
from eventlog.sql.triggers.watch import Watch


def compile_tables(
    database: Database, catalog: Catalog, log: LogTable, watches: Sequence[Watch]
) -> tuple[TableSql, ...]:
    """The SQL of what is declared, from the catalogue alone. Raises TriggerError for a watch that cannot be."""
    declared, _ = declared_triggers(database, catalog, watches)
    return tuple(table_sql(table, compiled) for table, compiled in compile_triggers(log, declared))


def plan(
    conn: Connection, database: Database, catalog: Catalog, log: LogTable, watches: Sequence[Watch]
) -> TriggerPlan:
    """What brings the triggers that write ``log`` to what is declared: one action a table, with its reason.

    ``database`` is the reflected file, ``catalog`` its classes, built with or without ``exclusions``. Triggers of the
    log that no watch declares are dropped. Nothing is changed. Raises TriggerError for a watch that cannot be compiled,
    LogTableError if the log is missing.
    """
    installed = read_installed(conn, log)
    declared, warnings = declared_triggers(database, catalog, watches)
    for triggers in declared:
        if triggers.table.name in log.own_tables:
            raise TriggerError(f"{triggers.table.name} is the log's own: triggers on it would log their own rows")
    tables = compile_triggers(log, declared, [trigger.name for trigger in installed.others])
    claimed = {one.name: table for table, compiled in tables for one in compiled}
    actions = [
        # First, since a table that was renamed keeps the names that the new one of its name needs.
        *drop_all(installed, kept={table for table, _ in tables}, reason=NO_LONGER_WATCHED),
        *(compare_table(table, compiled, installed, claimed) for table, compiled in tables),
    ]
    warnings += doctor.warnings(declared, installed)
    return TriggerPlan(tuple(actions), tuple(warnings), doctor.not_captured(declared))


def plan_drop(conn: Connection, log: LogTable) -> TriggerPlan:
    """What takes all triggers away that write ``log``, found by their text; the log stays. Raises LogTableError."""
    installed = read_installed(conn, log)
    return TriggerPlan(tuple(drop_all(installed, kept=(), reason="all triggers of the log go")))


def apply(conn: Connection, plan: TriggerPlan, _lock_timeout: float = 0) -> None:
    """Run the statements of a plan: all of them or none. The caller commits.

    The transaction has the whole file for itself, so no change goes unlogged between an old trigger and a new one.
    Raises DatabaseError.
    """
    if plan.changes:
        with as_database_errors(conn), conn.begin_nested():
            for action in plan.changes:
                for statement in action.statements:
                    conn.exec_driver_sql(statement)


def script(plan: TriggerPlan, _lock_timeout: float = 0) -> str:
    """The statements of a plan as one script for the ``sqlite3`` shell, a transaction."""
    if not plan.changes:
        return "-- Nothing to do: the triggers are as declared.\n"
    lines = ["-- sqlite3 -bail FILE < this script", "BEGIN IMMEDIATE;", ""]
    for action in plan.changes:
        lines.append(f"-- {action.kind} {_one_line(action.table)}: {_one_line(action.reason)}")
        lines += [f"{statement};" for statement in action.statements]
        lines.append("")
    return "\n".join([*lines, "COMMIT;", ""])


def installed(conn: Connection, log: LogTable) -> list[InstalledTrigger]:
    """The triggers that write ``log``, in the order of tables and names. Nothing is changed."""
    return [InstalledTrigger(one.table, one.name, None, True, one.sql, None) for one in read_installed(conn, log).ours]


def digests(conn: Connection, log: LogTable) -> dict[str, str]:
    """Table -> hash of what was compiled for its triggers, as their text has it."""
    ours = read_installed(conn, log)
    tables = dict.fromkeys(trigger.table for trigger in ours.ours)
    return {table: digest_of(one.digest for one in ours.on(table) if one.digest) for table in tables}


def _one_line(comment: str) -> str:
    # A name may hold a line break, and what follows it would be SQL.
    return " ".join(comment.split())
