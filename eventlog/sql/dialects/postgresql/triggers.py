"""Triggers on PostgreSQL: planned, applied and dropped (spec/triggers.md 7.1, 9, 10).

``compile`` makes the SQL of triggers, ``installed`` reads the installed triggers. The comments of
triggers and functions contain the hash of the compiled text, by which a changed declaration is
found. Changes made by hand are found by comparing each installed fragment with the compiled
fragment.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final, cast

from sqlalchemy import Connection, Row, text
from sqlalchemy.exc import DBAPIError

from eventlog.core.catalog import Database
from eventlog.core.clock import monotonic
from eventlog.errors import DatabaseError, first_of
from eventlog.sql.dialects.postgresql.compile import (
    BEFORE,
    DELETE,
    FORMER,
    INSERT,
    INSTEAD,
    ROW,
    TRUNCATE,
    UPDATE,
    CompiledFunction,
    FunctionTrigger,
    compile_triggers,
    moving_with,
    settle,
    table_sql,
)
from eventlog.sql.dialects.postgresql.installed import (
    MARKER,
    Facts,
    facts_of,
    find_log,
    former_names,
    from_literals,
    gone_logs,
    read_facts,
    sql,
    stored_triggers,
)
from eventlog.sql.dialects.postgresql.session import database_number
from eventlog.sql.dialects.postgresql.text import (
    SEARCH_PATH,
)
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.driver_errors import for_message
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.sql_files import qualified, quote_identifier, run_as_it_stands
from eventlog.sql.triggers import (
    Action,
    FactLiterals,
    InstalledTrigger,
    TableSql,
    TriggerPlan,
    by_table,
    warnings_of_lost_logs,
)
from eventlog.sql.triggers.captured import Identity, Partition
from eventlog.sql.triggers.declared import (
    ClassTriggers,
    TableName,
    TableTriggers,
    early_tables,
)
from eventlog.sql.triggers.planner import (
    Compiled,
    CompiledTrigger,
    Installed,
    PlannedTriggers,
    StoredTrigger,
    called_by,
    refuse_own_tables,
)
from eventlog.sql.triggers.uncaptured import NEW_TO_CLASS

_NOT_AVAILABLE: Final = "55P03"
_OPERATIONS: Final = {INSERT: "INSERT", UPDATE: "UPDATE", DELETE: "DELETE", TRUNCATE: "TRUNCATE"}
_NAMED: Final = 5
"""A reason lists at most this number of new partitions by name; it only counts the others."""


class PostgresTriggers(PlannedTriggers):
    """PostgreSQL's triggers. Each table has a separate trigger function, whose comment contains the
    hash of the compiled text.

    The tables of a plan are locked against writes until it is committed.
    """

    names_in_schema = False
    former_reason = FORMER
    find_log = staticmethod(find_log)
    former_names = staticmethod(former_names)
    gone = staticmethod(gone_logs)

    def facts(self, log: OpenLog, database: Database, tables: Collection[str]) -> FactLiterals:
        home = log.table.schema or database.schema or ""
        log = log.db.log(replace(log.table, schema=home))
        return facts_of(log, database, tables, self.read_installed(log))

    def stored(
        self, conn: Connection, tables: Collection[TableName] = ()
    ) -> tuple[Sequence[StoredTrigger], Sequence[StoredTrigger]]:
        return stored_triggers(conn)

    def drop_stored(self, trigger: StoredTrigger) -> Sequence[str]:
        if trigger.kind == "trigger":
            name = quote_identifier(trigger.name)
            return (f"DROP TRIGGER {name} ON {qualified(*trigger.table)}",)
        functions = (trigger, *filter(None, [trigger.helper]))
        return [f"DROP FUNCTION {qualified(*one.key)}({one.row.arguments})" for one in functions]

    def tables_sql(
        self,
        schema: str | None,
        log: LogTable,
        declared: Sequence[TableTriggers],
        facts: FactLiterals,
    ) -> list[TableSql]:
        home = schema or "public"
        known = from_literals(home, replace(log, schema=log.schema or home), facts)
        return [table_sql(of_table) for of_table in by_table(compile_triggers(known, declared))]

    def plan_declared(
        self, log: OpenLog, schema: str | None, declared: Sequence[TableTriggers]
    ) -> TriggerPlan:
        assert schema is not None
        places = {(triggers.schema or schema, triggers.table.name) for triggers in declared}
        installed = self.read_installed(log, places, places.__contains__)
        facts = read_facts(log, schema, installed, (home for home, _ in places))
        refuse_own_tables(log.table, schema, declared)
        compiled = compile_triggers(facts, declared)
        ungranted = {
            ".".join(one.place): _missing_rights(log.connection, one, facts.owners[one.place])
            for one in compiled
            if one.place in facts.owners and not one.is_copy
        }
        lacking = (*_lacking(facts, declared), *_lacking_of_owners(facts, ungranted))
        actions = self.actions(compiled, installed)
        # Some warnings concern rows that triggers owned by this role could not see.
        warnings = [*warnings_of_lost_logs(installed.lost)]
        warnings += [] if lacking else _warnings(compiled, facts, installed)
        warnings += _logged_first(log, compiled, installed)
        not_captured = _not_captured(declared, facts)
        return TriggerPlan(
            tuple(actions),
            tuple(warnings),
            not_captured,
            digests=installed.digests(),
            lacking=lacking,
            ungranted=ungranted,
        )

    def installed(self, log: OpenLog) -> list[InstalledTrigger]:
        # ``marker_of`` writes the comment, whose end names the log.
        binds = {"suffix": f" log {self.log_in_marker(log.table)}"}
        return [InstalledTrigger(*row) for row in log.connection.execute(sql("show"), binds)]

    # Comparing

    def redeclared(
        self, compiled: Compiled, stored: StoredTrigger, record: CompiledTrigger
    ) -> Iterable[str]:
        yield from super().redeclared(compiled, stored, record)
        present = {column.name for column in compiled.declared.table.columns}
        if missing := [name for name in stored.columns if name not in present]:
            names = ", ".join(missing)
            yield (
                f"the triggers still use {names}: until triggers are applied, they log rows "
                "without values, which are read back"
            )

    def further_differences(
        self,
        compiled: Sequence[Compiled],
        old: Sequence[StoredTrigger],
        superfluous: Collection[StoredTrigger],
    ) -> Iterable[str]:
        functions = cast("Sequence[CompiledFunction]", compiled)
        called = called_by(old)
        for one in functions:
            checking, name = called[one.place[0], one.function.name].helper, one.fits_function[1]
            if checking is None:
                yield (
                    f"function {name} is missing: writes to the table fail until `eventlog "
                    "triggers apply` runs"
                )
            elif checking.row.body != one.fits_body:
                yield f"function {name} was changed by hand"
            if superuser := called[one.place[0], one.function.name].row.superuser:
                yield f"function {one.function.name} belongs to {superuser}, a superuser"
        if superfluous:
            yield "fewer of its columns or changes are watched than before"
        unwatched = {one.key for one in superfluous}
        watched = [one for one in old if one.helper is None or one.helper.key not in unwatched]
        pairs = ((one, trigger) for one in functions for trigger in one.triggers)
        for _, trigger, stored, how in _differences(pairs, watched):
            yield f"trigger {(stored or trigger).name} {how}"
        if any(one.former is None for one in compiled):
            yield FORMER

    def compare_partitions(
        self, compiled: Sequence[Compiled], old: Sequence[StoredTrigger]
    ) -> tuple[Sequence[str], Sequence[str]]:
        pairs = (
            (one, trigger)
            for one in cast("Sequence[CompiledFunction]", compiled)
            for trigger in one.partitions.values()
            if trigger is not None
        )
        new: dict[str, None] = {}
        reasons: list[str] = []
        drops: list[str] = []
        creates: list[str] = []
        hand_overs: dict[str, None] = {}
        for function, trigger, stored, how in _differences(pairs, old):
            if stored is None:
                new[trigger.table[1]] = None
            else:
                reasons.append(f"trigger {stored.name} of partition {stored.table[1]} {how}")
                drops += self.drop_stored(stored)
            if function is not None:
                creates += (trigger.statement, *settle(trigger, function.marker))
                hand_overs[function.hand_over] = None
        if new:
            named = first_of(list(new), _NAMED)
            what = "partition" if len(new) == 1 else "partitions"
            reasons.insert(0, f"TRUNCATE of {what} {named} is not captured yet")
        return reasons, [*drops, *creates, *hand_overs]

    def silent(
        self,
        compiled: Compiled,
        old: Sequence[StoredTrigger],
        records: Sequence[StoredTrigger],
        has_others: bool,
    ) -> str | None:
        if not records:
            return NEW_TO_CLASS
        fired = [
            one.row.type
            for one in old
            if one.helper is not None
            and one.helper.key == records[0].key
            and one.row.enabled in {"O", "A"}
        ]
        silent = [
            word
            for operation, word in _OPERATIONS.items()
            if any(one.type & operation for one in cast("CompiledFunction", compiled).triggers)
            and not any(type_ & operation for type_ in fired)
        ]
        return f"the triggers of {', '.join(silent)} were missing or disabled" if silent else None

    def identities(
        self, conn: Connection, tables: Collection[TableName]
    ) -> dict[TableName, Identity]:
        names, database = [*tables], database_number(conn)
        rows = conn.execute(
            sql("identities"),
            {"schemas": [schema for schema, _ in names], "tables": [name for _, name in names]},
        )
        return {
            (row.schema, row.name): Identity(
                database,
                row.oid,
                row.columns or {},
                row.labels or {},
                {
                    oid: Partition(name, where, was_attached)
                    for oid, name, where, was_attached in row.partitions or ()
                },
            )
            for row in rows
        }

    # Applying triggers

    @contextmanager
    def applying(self, conn: Connection, plan: TriggerPlan, lock_timeout: float) -> Iterator[None]:
        names = ("search_path", "lock_timeout")
        with conn.begin_nested():
            shown = ", ".join(f"pg_catalog.current_setting('{name}')" for name in names)
            before = conn.exec_driver_sql(f"SELECT {shown}").one()
            for setting in self.settings(lock_timeout):
                run_as_it_stands(conn, setting)
            if _lock_tables(conn, plan, lock_timeout):
                run_as_it_stands(conn, self.settings(lock_timeout)[-1])
            yield
            for name, value in zip(names, before, strict=True):
                put_back = text("SELECT pg_catalog.set_config(:name, :value, true)")
                conn.execute(put_back, {"name": name, "value": value})

    def settings(self, lock_timeout: float) -> tuple[str, ...]:
        return (
            f"SET LOCAL search_path = {SEARCH_PATH}",
            f"SET LOCAL lock_timeout = {round(lock_timeout * 1000)}",
        )

    def locked_out(
        self,
        conn: Connection,
        plan: TriggerPlan,
        action: Action,
        error: DBAPIError,
        lock_timeout: float,
    ) -> DatabaseError | None:
        if getattr(error.orig, "sqlstate", None) != _NOT_AVAILABLE:
            return None
        ask = partial(_holders, conn, [action.table for action in plan.changes])
        who = "; ".join(for_message(conn, ask) or ())
        return DatabaseError(
            f"a table that needs triggers was locked for more than {lock_timeout:g} s"
            + (f" by {who}" if who else "")
            + (
                "; nothing was changed: run the command again when that transaction has ended, or "
                "wait longer with --lock-timeout"
            )
        )


def _holders(conn: Connection, tables: Sequence[str]) -> list[str]:
    """Return, in words, the sessions whose locks block the creation of triggers. The server shows
    the state and the start of another user's session only to roles with the right to see them.
    """
    found = []
    for row in conn.execute(sql("holders"), {"tables": list(tables)}):
        words = ", ".join(filter(None, (row.user, row.application or "unnamed", row.state)))
        since = f" since {row.since:%F %T}" if row.since else ""
        found.append(f"process {row.pid} ({words}){since}")
    return found


def _lock_tables(conn: Connection, plan: TriggerPlan, lock_timeout: float) -> bool:
    """Lock all tables of a plan, and return True if this changed the setting ``lock_timeout``.

    While the function holds a lock, it never waits long for another lock (spec/triggers.md 9.2).
    Otherwise the function could deadlock with a session that writes two of the tables in another
    order, and the server would cancel the statement of this session. So the function waits for the
    first table while it holds no lock, and for each other table less than ``deadlock_timeout``. If
    a table is not available in this time, the function releases all locks and starts again with
    this table. Scripts and migrations lock in the order of their statements.
    """
    locks = _locks(conn, plan)
    if len(locks) < 2:
        return False
    moment: float = conn.execute(sql("deadlock_timeout")).scalar_one() / 4
    end = monotonic() + lock_timeout if lock_timeout else math.inf
    while True:
        left, number = (end - monotonic() if lock_timeout else 0.0), 0
        until = math.inf
        try:
            with conn.begin_nested():
                for number, lock in enumerate(locks):
                    wait = left if number == 0 else max(until - monotonic(), 0.001)
                    conn.exec_driver_sql(
                        f"SET LOCAL lock_timeout = {max(round(wait * 1000), int(lock_timeout > 0))}"
                    )
                    run_as_it_stands(conn, lock)
                    until = min(until, monotonic() + moment)
        except DBAPIError as error:
            is_busy = getattr(error.orig, "sqlstate", None) == _NOT_AVAILABLE
            if not is_busy or number == 0 or monotonic() >= end:
                raise
            locks.insert(0, locks.pop(number))
        else:
            return True


def _locks(conn: Connection, plan: TriggerPlan) -> list[str]:
    """Return the statements that lock the tables whose triggers a plan creates or drops."""
    locks = []
    names = [action.table for action in plan.changes]
    for schema, name, kind in conn.execute(sql("to_lock"), {"tables": names}):
        table = qualified(schema, name)
        touching = [
            one for action in plan.changes for one in action.statements if f" ON {table}" in one
        ]
        if touching:
            drops = any(one.startswith("DROP TRIGGER") for one in touching)
            mode = "ACCESS" if drops else "SHARE ROW"
            only = "" if kind == "p" else "ONLY "
            locks.append(f"LOCK TABLE {only}{table} IN {mode} EXCLUSIVE MODE")
    return locks


def _lacking(facts: Facts, declared: Sequence[TableTriggers]) -> Iterator[str]:
    """Yield the reasons why triggers of this role would fail, and make the application's statements
    fail.
    """
    log = facts.log
    if not facts.log_is_writable:
        name = qualified(log.schema, log.name)
        yield (
            f"role {facts.owner} may not write to {name}: grant it INSERT, or apply as the log's "
            "owner"
        )
    for triggers in declared:
        name = facts.place_of(triggers)[1]
        for needed in sorted(facts.read_by(triggers) - facts.readable):
            yield (
                f"role {facts.owner} may not read {qualified(*needed)}, which the triggers of "
                f"{name} must read: grant it SELECT, or apply as the table's owner"
            )
        for needed in map(facts.place_of, moving_with(triggers, declared)):
            if needed not in facts.lockable:
                yield (
                    f"role {facts.owner} may not lock rows of {qualified(*needed)}, which the "
                    f"triggers of {name} must do when a row moves to another partition: grant it "
                    "UPDATE, or apply as the table's owner"
                )


def _missing_rights(conn: Connection, function: CompiledFunction, owner: str) -> tuple[str, ...]:
    """Return the statements that grant the owner of a table what its trigger function needs."""
    query = function.missing_rights(owner)
    rows = conn.exec_driver_sql(query, execution_options={"no_parameters": True})
    return tuple(rows.scalars())


def _lacking_of_owners(facts: Facts, ungranted: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the reasons why a superuser may not give triggers to the owners of their tables."""
    owners = {".".join(place): owner for place, owner in facts.owners.items()}
    for table, statements in ungranted.items():
        if facts.is_superuser and statements:
            yield (
                f"{owners[table]} owns {table} and will run its triggers, but lacks rights: "
                + "; ".join(statements)
            )


def _differences(
    pairs: Iterable[tuple[CompiledFunction, FunctionTrigger]], old: Iterable[StoredTrigger]
) -> Iterator[tuple[CompiledFunction | None, Any, StoredTrigger | None, str]]:
    """Yield each trigger that is not as declared: the compiled function, the compiled trigger, the
    installed trigger, and the difference, in words that follow the trigger's name. For a
    superfluous trigger, the compiled function and trigger are None; for a missing trigger, the
    installed trigger is None.
    """
    unmatched = {(one.table, one.name): one for one in old}
    for function, trigger in pairs:
        stored = unmatched.pop((trigger.table, trigger.name), None)
        if stored is None:
            yield function, trigger, None, "is missing"
        elif not stored.is_enabled:
            yield function, trigger, stored, "is disabled"
        elif (
            (stored.text, stored.row.marker) != (trigger.shape, function.marker)
            or stored.helper is None
            or stored.helper.name != function.function.name
        ):
            yield function, trigger, stored, "was changed by hand"
    for stored in unmatched.values():
        yield None, None, stored, "is superfluous"


# --- warnings about declared triggers (spec/triggers.md 1, 7.1) -----------------------


def _warnings(
    compiled: Sequence[CompiledFunction], facts: Facts, installed: Installed
) -> Iterator[str]:
    for one in compiled:
        if not one.is_copy:
            yield from _keys(one)
            yield from _replicated(one)
            yield from _filtered(one, facts)
            yield from _order(one, installed)
            yield from _partitions(one, installed)


def _logged_first(
    log: OpenLog, compiled: Sequence[CompiledFunction], installed: Installed
) -> Iterator[str]:
    """Yield the child tables whose rows are logged before their owners, because the triggers cannot
    write ``<log>_deferred`` (spec/triggers.md 7.1).
    """
    early = {one.place for one in compiled if early_tables([one.declared])}
    functions = called_by(one for place in early for one in installed.on(place)).values()
    if not functions:
        return
    binds = {
        "functions": [one.row.oid for one in functions],
        "schema": log.table.schema,
        "name": log.table.deferred_table,
    }
    table = qualified(log.table.schema, log.table.deferred_table)
    for row in log.connection.execute(sql("logged_first"), binds):
        fix = f"GRANT INSERT ON {table} TO {row.owner}" if row.is_there else "eventlog db upgrade"
        yield (
            f"child rows of {row.tables} that are inserted before their owners are logged before "
            f"them, since {row.owner} cannot write {table}: {fix}"
        )


def _keys(compiled: CompiledFunction) -> Iterable[str]:
    triggers = compiled.declared
    if not (isinstance(triggers, ClassTriggers) and triggers.keys_may_shift):
        return
    how = (
        "logged by statement"
        if "u" in compiled.by_statement
        else "still logged row by row, since the table is "
        + ("partitioned" if triggers.table.partitioned else "in an inheritance tree")
    )
    yield (
        f"the primary key of {triggers.table.name} is DEFERRABLE: an UPDATE is {how}; if the check "
        "is deferred to commit, two sessions' changes of one key may be sent in the wrong order"
    )


def _replicated(compiled: CompiledFunction) -> Iterable[str]:
    if compiled.declared.watch.capture_replicated and compiled.by_statement:
        what = "changes" if len(compiled.by_statement) > 1 else "UPDATEs"
        yield (
            f"{compiled.place[1]}: {what} are logged by statement, but replicated changes are "
            "logged row by row, since an apply worker fires only row triggers"
        )


def _filtered(compiled: CompiledFunction, facts: Facts) -> Iterable[str]:
    for place in sorted(facts.read_by(compiled.declared) & facts.filtered):
        yield (
            f"row level security filters {'.'.join(place)} for the role that applies the triggers, "
            "so the triggers do not see all of its rows: apply as its owner, or as a role with "
            "BYPASSRLS"
        )


def _order(compiled: CompiledFunction, installed: Installed) -> Iterable[str]:
    first = min(trigger.name.encode() for trigger in compiled.triggers)
    for row in (stored.row for stored in installed.others.get(compiled.place, ())):
        if not _fires_after_a_change(row):
            continue
        meets = [
            trigger
            for trigger in compiled.triggers
            if not trigger.type & BEFORE and row.type & trigger.type & (INSERT | DELETE | UPDATE)
        ]
        by_statement = [trigger for trigger in meets if not trigger.type & ROW]
        is_row = bool(row.type & ROW)
        if is_row and by_statement:
            yield (
                f"trigger {row.name} of {compiled.place[1]} fires for each row, before eventlog's "
                "trigger fires for the statement: its writes are logged before the change that "
                "caused them"
            )
        elif row.name.encode() < first and (is_row or by_statement) and meets:
            yield (
                f"trigger {row.name} of {compiled.place[1]} fires before eventlog's trigger: its "
                "writes are logged before the change that caused them; give it a name that sorts "
                "after _tgr_"
            )


def _fires_after_a_change(row: Row[Any]) -> bool:
    """Return True if another program's trigger may write after a change, in the statement of the
    change. A constraint trigger that is initially deferred fires at the commit, after all of
    eventlog's triggers.
    """
    is_foreign = row.marker is None or not MARKER.match(row.marker)
    is_after = not row.type & (BEFORE | INSTEAD) and not row.is_deferred
    return is_after and row.enabled != "D" and is_foreign


def _partitions(compiled: CompiledFunction, installed: Installed) -> Iterable[str]:
    for partition, trigger in compiled.partitions.items():
        if trigger is None and not installed.on(partition):
            yield (
                f"TRUNCATE of partition {'.'.join(partition)} of {compiled.place[1]} is not "
                "captured: the role that applies the triggers does not own the partition, or may "
                "not read all of its rows; apply as its owner"
            )


def _not_captured(declared: Sequence[TableTriggers], facts: Facts) -> tuple[str, ...]:
    """Return, in words, the changes that the declared triggers do not capture."""
    if not declared:
        return ()
    places = {facts.place_of(triggers): triggers.table for triggers in declared}
    return (
        *(
            (
                f"{table.name}: DETACH and DROP of a partition; for partitions that were created "
                "after `triggers apply`, TRUNCATE of only one of them, or of several by a cascade"
            )
            for table in places.values()
            if table.partitioned
        ),
        *(
            f"{table.name}: writes to the tables that inherit from it"
            for place, table in places.items()
            if place in facts.with_heirs
        ),
        *(
            f"values of rows of {name} that are inserted before their owners, which its DEFERRABLE "
            "foreign key allows: they are read back"
            for name in early_tables(declared)
        ),
        *(
            ["writes by a replication apply worker or with session_replication_role = replica"]
            if not all(triggers.watch.capture_replicated for triggers in declared)
            else []
        ),
        "rows that TRUNCATE removes, but that the repeatable read snapshot of the transaction does "
        "not see",
    )


TRIGGERS: Final = PostgresTriggers()
