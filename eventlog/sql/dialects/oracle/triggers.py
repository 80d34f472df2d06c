"""Triggers on Oracle: what is there, and what is Oracle's own in planning and applying (spec/triggers.md 7.2, 9, 10).

Oracle keeps no comment on a trigger, so the hash of what was compiled stands in its source; what somebody changed by
hand shows by comparing the rest of the source.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from eventlog.errors import DatabaseError
from eventlog.sql.dialects.oracle.compile import OPERATIONS, trigger_texts
from eventlog.sql.dialects.oracle.script import PROLOGUE, ddl_lock_timeout, drop_trigger, terminated
from eventlog.sql.dialects.oracle.session import current_user, error_code, fetch
from eventlog.sql.dialects.oracle.tables import create_functions, number_sequence
from eventlog.sql.dialects.oracle.text import (
    BASE64_FUNCTION,
    QUOTE_FUNCTION,
    base64_function,
    qualified,
    quote_function,
    quote_identifier,
)
from eventlog.sql.dialects.oracle.types import Family, family
from eventlog.sql.log_table import LogTable
from eventlog.sql.statements import run_as_it_stands, statements
from eventlog.sql.triggers.base import MarkedTriggers, missing_log
from eventlog.sql.triggers.compare import (
    Compiled,
    CompiledTrigger,
    Installed,
    StoredTrigger,
    TableName,
    behind_marker,
    by_table,
)
from eventlog.sql.triggers.declared import ChildTriggers, ClassTriggers, TableTriggers
from eventlog.sql.triggers.plan import Action, InstalledTrigger, TriggerPlan

_SQL: Final = statements(__package__, "installed.sql")

_BUSY: Final = frozenset({54, 4021})
"""Resource busy; time-out while waiting to lock an object."""


class OracleTriggers(MarkedTriggers):
    """Oracle commits every statement of a plan: what is done before an error stays, and a new plan goes on."""

    replaces = True
    blank_digest = "0" * 64
    texts = staticmethod(trigger_texts)
    drop_trigger = staticmethod(drop_trigger)
    ended = staticmethod(terminated)
    script_head = (*PROLOGUE, "")
    script_end = ()

    def find_log(self, conn: Connection, log: LogTable) -> LogTable:
        rows = fetch(conn, _SQL["log"], {"owner": log.schema, "name": log.name})
        if not rows:
            raise missing_log(log)
        return replace(log, schema=rows[0][0], name=rows[0][1])

    def all_triggers(self, conn: Connection) -> list[StoredTrigger]:
        sources: defaultdict[TableName, str] = defaultdict(str)
        for schema, name, type_, line in fetch(conn, _SQL["sources"]):
            if type_ == "TRIGGER":
                sources[schema, name] += line or ""
        rows = fetch(conn, _SQL["triggers"])
        follows: defaultdict[TableName, set[TableName]] = defaultdict(set)
        for schema, name, other_schema, other in fetch(conn, _SQL["ordering"]):
            follows[schema, name].add((other_schema, other))
        return [
            StoredTrigger(
                schema,
                name,
                table=(owner, table),
                text=sources.get((schema, name), ""),
                is_enabled=status == "ENABLED",
                is_valid=validity == "VALID",
                type=type_,
                event=event,
                follows=frozenset(follows.get((schema, name), ())),
            )
            for schema, name, owner, table, type_, event, status, validity in rows
        ]

    def enable(self, trigger: StoredTrigger) -> list[str]:
        return [] if trigger.is_enabled else [f"ALTER TRIGGER {qualified(trigger.schema, trigger.name)} ENABLE"]

    def difference(self, stored: StoredTrigger, compiled: CompiledTrigger) -> str | None:
        # What is before the marker the database writes in its own way.
        if behind_marker(stored.text) != behind_marker(compiled.statement):
            return "was changed by hand"
        if not stored.is_enabled:
            return "is disabled"
        return None if stored.is_valid else "is invalid"

    def refuse(self, conn: Connection, log: LogTable, schema: str | None, declared: Sequence[TableTriggers]) -> None:
        super().refuse(conn, log, schema, declared)
        for home in sorted({one.schema or schema or "" for one in declared}):
            if not shows_triggers(conn, home):
                raise DatabaseError(
                    f"the database shows user {current_user(conn)} no trigger of schema {home}, so nobody can tell "
                    f"which are missing: run it as {home}, or as a user with CREATE ANY TRIGGER"
                )

    def first_actions(self, conn: Connection, log: LogTable) -> list[Action]:
        # A log that somebody else made has no functions.
        names = {"quote": log.own_name(QUOTE_FUNCTION), "base64": log.own_name(BASE64_FUNCTION)}
        rows = fetch(conn, _SQL["functions"], {"owner": log.schema, **names})
        if {row[0] for row in rows} >= set(names.values()):
            return []
        return [Action("create", str(log), "its functions are missing", tuple(create_functions(log)))]

    def warnings(self, log: LogTable, compiled: Sequence[Compiled], installed: Installed) -> Iterable[str]:
        for one in compiled:
            yield from _deferrable(one.declared)
            yield from _always(one.declared)
            yield from _grants(log, one)
        for of_table in by_table(compiled):
            yield from _order([trigger for one in of_table for trigger in one.triggers], of_table[0], installed)

    def drop_warnings(self, installed: Installed, dropped: Sequence[StoredTrigger]) -> Iterable[str]:
        # A trigger that FOLLOWS one which goes fails the writes to its table from then on.
        gone = {(trigger.schema, trigger.name) for trigger in dropped}
        for trigger in (one for of_table in installed.triggers.values() for one in of_table):
            named = sorted(gone & trigger.follows)
            if trigger.digest is None and named:
                names = ", ".join(name for _, name in named)
                yield (
                    f"trigger {trigger.name} of {'.'.join(trigger.table)} FOLLOWS {names}, which goes: it is invalid "
                    "then, and every write to its table that fires it fails (ORA-04098); first make it without that"
                )

    def not_captured(self, declared: Sequence[TableTriggers]) -> tuple[str, ...]:
        lobs = dict.fromkeys(
            f"{triggers.table.name}.{column.name}"
            for triggers in declared
            for column in ([triggers.column] if isinstance(triggers, ChildTriggers) else triggers.columns)
            if family(column) in (Family.CLOB, Family.NCLOB, Family.UNREADABLE)
        )
        partitioned = dict.fromkeys(triggers.table.name for triggers in declared if triggers.table.partitioned)
        return (
            "TRUNCATE",
            "direct-path loads of SQL*Loader, and Data Pump imports in the direct path",
            "FLASHBACK TABLE without ENABLE TRIGGERS",
            "what GoldenGate or another apply process writes",
            *(f"{table}: EXCHANGE, DROP and TRUNCATE of a partition" for table in partitioned),
            *([f"writes through a locator (DBMS_LOB, OCI) to {', '.join(lobs)}"] if lobs else []),
        )

    # Applying

    @contextmanager
    def applying(self, conn: Connection, lock_timeout: float) -> Iterator[None]:
        for setting in self.settings(lock_timeout):
            run_as_it_stands(conn, setting)
        yield

    def locked_out(
        self, conn: Connection, plan: TriggerPlan, action: Action, error: DBAPIError, lock_timeout: float
    ) -> DatabaseError | None:
        if error_code(error) not in _BUSY:
            return None
        return DatabaseError(
            f"{action.table} was locked for more than {lock_timeout:g} s by another transaction: run it again when "
            "that has ended, or wait longer with --lock-timeout; what was done before stays"
        )

    def settings(self, lock_timeout: float) -> list[str]:
        return [ddl_lock_timeout(lock_timeout)]

    def installed(self, conn: Connection, log: LogTable) -> list[InstalledTrigger]:
        triggers = super().installed(conn, log)
        return [one._replace(trigger_sql=f"CREATE OR REPLACE {one.trigger_sql}") for one in triggers]


def shows_triggers(conn: Connection, schema: str) -> bool:
    """Whether this session is shown the triggers on a schema's tables: where it is not, none of them is missing."""
    return bool(fetch(conn, _SQL["sees_triggers"], {"owner": schema}))


# --- what people should know of declared triggers (spec/triggers.md 1, 7) ---------------------------------------------


def _deferrable(triggers: TableTriggers) -> Iterable[str]:
    if isinstance(triggers, ClassTriggers) and triggers.keys_may_shift:
        yield (
            f"the primary key of {triggers.table.name} is DEFERRABLE: keys that several statements of one transaction "
            "exchange are logged in the order of the statements, and a key that two rows share for a while as if each "
            "were the object"
        )


def _always(triggers: TableTriggers) -> Iterable[str]:
    if triggers.watch.always:
        yield (
            f"always has no effect on {triggers.table.name}: whether triggers fire for what an apply process writes is "
            "set by DBMS_DDL.SET_TRIGGER_FIRING_PROPERTY"
        )


def _order(ours: Sequence[CompiledTrigger], compiled: Compiled, installed: Installed) -> Iterable[str]:
    for trigger in installed.triggers.get(compiled.place, ()):
        if trigger.digest is not None or not trigger.is_enabled or trigger.type not in ("AFTER EACH ROW", "COMPOUND"):
            continue
        before = [
            qualified(compiled.schema if compiled.schema != trigger.schema else None, one.name)
            for one in ours
            if OPERATIONS[one.operation] in trigger.event and (compiled.schema or "", one.name) not in trigger.follows
        ]
        if before:
            yield (
                f"trigger {trigger.name} of {trigger.table[1]} fires before or after ours, as Oracle likes: what it "
                "writes to watched tables may be logged before the change it answers; give it FOLLOWS "
                + ", ".join(before)
            )


def _grants(log: LogTable, compiled: Compiled) -> Iterable[str]:
    if compiled.schema in (None, log.schema):
        return
    owner = quote_identifier(compiled.schema or "")
    wanted = (
        f"GRANT INSERT ON {qualified(log.schema, log.name)} TO {owner}",
        f"GRANT SELECT ON {number_sequence(log)} TO {owner}",
        f"GRANT EXECUTE ON {quote_function(log)} TO {owner}",
        f"GRANT EXECUTE ON {base64_function(log)} TO {owner}",
    )
    yield (
        f"the triggers in schema {compiled.schema} write the log with the rights of that user, which must be granted "
        f"to it itself and not to a role: {'; '.join(wanted)}"
    )
