"""Triggers on PostgreSQL: planned, applied and dropped (spec/triggers.md 7.1, 9, 10).

``compile`` makes their SQL, ``installed`` reads what is there, ``compare`` finds the difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from eventlog.core.catalog import Catalog, Database
from eventlog.errors import DatabaseError, TriggerError, together
from eventlog.sql.connection import as_database_errors
from eventlog.sql.dialects.postgresql import doctor
from eventlog.sql.dialects.postgresql.compare import (
    by_table,
    compare_quoting,
    compare_table,
    digest_of,
    drop_all,
    table_sql,
)
from eventlog.sql.dialects.postgresql.compile import (
    BEFORE,
    SEARCH_PATH,
    TRUNCATE,
    compile_triggers,
    moving_with,
    render_quote_function,
)
from eventlog.sql.dialects.postgresql.facts import from_literals
from eventlog.sql.dialects.postgresql.installed import (
    Facts,
    Log,
    find_log,
    read_facts,
    read_installed,
    sql,
    unseen_log,
)
from eventlog.sql.dialects.postgresql.reflect import reflect
from eventlog.sql.dialects.postgresql.text import needs_quoting, qualified
from eventlog.sql.log_table import LogTable
from eventlog.sql.triggers.declared import ChildTriggers, TableTriggers, declared_triggers
from eventlog.sql.triggers.plan import LOCK_TIMEOUT, NO_LONGER_WATCHED, TableSql, TriggerPlan
from eventlog.sql.triggers.watch import Watch

_NOT_AVAILABLE: Final = "55P03"


def plan(
    conn: Connection, database: Database, catalog: Catalog, log: LogTable, watches: Sequence[Watch]
) -> TriggerPlan:
    """What brings the triggers that write ``log`` to what is declared: one action a table, with its reason.

    ``database`` is the reflected schema, ``catalog`` its classes, built with or without ``exclusions``. Triggers of the
    log that no watch declares are dropped. Nothing is changed. Raises TriggerError for a watch that cannot be compiled
    or whose triggers could not run, LogTableError if the log is missing.
    """
    assert database.schema is not None
    found = find_log(conn, log)
    schema = database.schema
    declared, warnings = declared_triggers(database, catalog, watches, lambda other: reflect(conn, other))
    facts = read_facts(conn, sorted({schema, *(triggers.schema or schema for triggers in declared)}))
    _refuse_what_cannot_run(schema, found, facts, declared)

    installed = read_installed(conn, found)
    compiled = compile_triggers(schema, found, facts, installed, declared)
    is_needed = any(needs_quoting(triggers.key) for triggers in declared)
    quoting = compare_quoting(found, installed, is_needed=is_needed)
    actions = [
        *(action for action in quoting if action.kind != "drop"),
        *(compare_table(of_table, installed, compiled) for of_table in by_table(compiled)),
        *drop_all(installed, kept=compiled, reason=NO_LONGER_WATCHED),
        *(action for action in quoting if action.kind == "drop"),
    ]
    warnings += doctor.warnings(schema, declared, compiled, facts, installed)
    return TriggerPlan(tuple(actions), tuple(warnings), doctor.not_captured(schema, declared, facts))


def compile_tables(
    database: Database,
    catalog: Catalog,
    log: LogTable,
    watches: Sequence[Watch],
    facts: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[TableSql, ...]:
    """The SQL of what is declared, from the catalogue alone, and from what ``facts_of`` once found out.

    Raises TriggerError for a watch that cannot be.
    """
    schema = database.schema or "public"
    declared, _ = declared_triggers(database, catalog, watches)
    known, taken = from_literals(schema, facts)
    compiled = compile_triggers(schema, unseen_log(log, schema), known, taken, declared)
    return tuple(table_sql(of_table) for of_table in by_table(compiled))


def digests(conn: Connection, log: LogTable) -> dict[str, str]:
    """Table -> hash of what was compiled for its triggers, as their comments have it."""
    installed = read_installed(conn, find_log(conn, log))
    # Not partitions, nor tables that were: they have triggers of TRUNCATE alone, which are no part of a hash.
    tables = {
        (schema, table)
        for schema, table, _ in installed.ours
        if any(not row.is_partition and row.type != BEFORE | TRUNCATE for row in installed.on(schema, table))
    }
    return {
        ".".join(place): digest_of(row.marker for row in installed.functions_on(*place) if row.marker)
        for place in sorted(tables)
    }


def plan_drop(conn: Connection, log: LogTable) -> TriggerPlan:
    """What takes all triggers and functions away that write ``log``, found by their comments; the log stays.

    Raises LogTableError if the log is missing.
    """
    found = find_log(conn, log)
    installed = read_installed(conn, found)
    actions = drop_all(installed, kept=(), reason="all triggers of the log go")
    return TriggerPlan((*actions, *compare_quoting(found, installed, is_needed=False)))


def apply(conn: Connection, plan: TriggerPlan, lock_timeout: float = LOCK_TIMEOUT) -> None:
    """Run the statements of a plan: all of them or none. The caller commits.

    The tables are locked against writes until then, so no change goes unlogged between an old trigger and a new one.
    ``lock_timeout``: seconds to wait for a table, 0 = without end; whoever writes it meanwhile waits behind us.
    Raises DatabaseError if the database refuses a statement, or if a table is not to be had in time.
    """
    if not plan.changes:
        return
    with as_database_errors(conn):
        try:
            with conn.begin_nested():
                settings = ("search_path", "lock_timeout")
                shown = ", ".join(f"pg_catalog.current_setting('{name}')" for name in settings)
                before = conn.exec_driver_sql(f"SELECT {shown}").one()
                for statement in _statements(plan, lock_timeout):
                    # Without parameters a percent sign is one.
                    conn.exec_driver_sql(statement, execution_options={"no_parameters": True})
                for name, value in zip(settings, before, strict=True):
                    put_back = text("SELECT pg_catalog.set_config(:name, :value, true)")
                    conn.execute(put_back, {"name": name, "value": value})
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) != _NOT_AVAILABLE:
                raise
            raise _not_available(conn, plan, lock_timeout) from error


def _not_available(conn: Connection, plan: TriggerPlan, lock_timeout: float) -> DatabaseError:
    tables = [action.table for action in plan.changes]
    who = "; ".join(
        f"process {row.pid} ({row.user}, {row.application or 'unnamed'}, {row.state}) since {row.since:%F %T}"
        for row in conn.execute(sql("holders"), {"tables": tables})
    )
    return DatabaseError(
        f"a table to get triggers was locked for more than {lock_timeout:g} s"
        + (f" by {who}" if who else "")
        + "; nothing was changed: run it again when that transaction has ended, or wait longer with --lock-timeout"
    )


def drop(conn: Connection, log: LogTable) -> TriggerPlan:
    """Take away what ``plan_drop`` names, and say what it was. The caller commits."""
    dropped = plan_drop(conn, log)
    apply(conn, dropped)
    return dropped


def to_sql(plan: TriggerPlan, lock_timeout: float = LOCK_TIMEOUT) -> str:
    """The statements of a plan as one script, a transaction; a comment alone if there is nothing to do."""
    if not plan.changes:
        return "-- Nothing to do: the triggers are as declared.\n"
    lines = ["BEGIN;", *(f"{statement};" for statement in _settings(lock_timeout)), ""]
    for action in plan.changes:
        lines.append(f"-- {action.kind} {_one_line(action.table)}: {_one_line(action.reason)}")
        lines += [f"{statement.rstrip()};" for statement in action.statements]
        lines.append("")
    return "\n".join([*lines, "COMMIT;", ""])


def _statements(plan: TriggerPlan, lock_timeout: float) -> Iterable[str]:
    yield from _settings(lock_timeout)
    for action in plan.changes:
        yield from action.statements


def _settings(lock_timeout: float) -> tuple[str, ...]:
    return (f"SET LOCAL search_path = {SEARCH_PATH}", f"SET LOCAL lock_timeout = {round(lock_timeout * 1000)}")


def _one_line(comment: str) -> str:
    # A name may hold a line break, and what follows it would be SQL.
    return " ".join(comment.split())


# --- rights -----------------------------------------------------------------------------------------------------------


def _refuse_what_cannot_run(schema: str, log: Log, facts: Facts, declared: Sequence[TableTriggers]) -> None:
    """A trigger that fails fails the application's statement, so what it needs is asked for before."""
    errors = []
    if not log.is_writable:
        errors.append(
            TriggerError(f"role {log.owner} may not write {log.table}: grant it INSERT, or apply as the log's owner")
        )
    for triggers in declared:
        place = (triggers.schema or schema, triggers.table.name)
        if place == (log.schema, log.name):
            errors.append(TriggerError(f"{place[1]} is the log: triggers on it would log their own rows without end"))
        read = {place}
        if isinstance(triggers, ChildTriggers):
            read.add((triggers.owner_schema or schema, triggers.owner.name))
        for needed in sorted(read - facts.readable):
            errors.append(
                TriggerError(
                    f"role {log.owner} may not read {qualified(*needed)}, which the triggers of {place[1]} do: "
                    "grant it SELECT, or apply as the table's owner"
                )
            )
        for child in moving_with(triggers, declared):
            needed = (child.schema or schema, child.table.name)
            if needed not in facts.lockable:
                errors.append(
                    TriggerError(
                        f"role {log.owner} may not lock rows of {qualified(*needed)}, which the triggers of {place[1]} "
                        "do when a row moves to another partition: grant it UPDATE, or apply as the table's owner"
                    )
                )
    if errors:
        raise together(errors)


__all__ = [
    "LOCK_TIMEOUT",
    "apply",
    "compile_tables",
    "digests",
    "drop",
    "plan",
    "plan_drop",
    "render_quote_function",
    "to_sql",
]
