"""Triggers on PostgreSQL: planned, applied and dropped (spec/triggers.md 7.1, 9, 10).

``compile`` makes their SQL, ``installed`` reads what is there, ``compare`` finds the difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from eventlog.errors import DatabaseError, TriggerError, together
from eventlog.sql.dialects.postgresql.compare import (
    compare_quoting,
    compare_table,
    digest_of_markers,
    drop_all,
    table_sql,
)
from eventlog.sql.dialects.postgresql.compile import (
    BEFORE,
    DELETE,
    INSERT,
    INSTEAD,
    ROW,
    SEARCH_PATH,
    TRUNCATE,
    UPDATE,
    CompiledFunction,
    compile_triggers,
    moving_with,
)
from eventlog.sql.dialects.postgresql.installed import (
    MARKER,
    Facts,
    InstalledFunctions,
    facts_of,
    find_log,
    from_literals,
    read_facts,
    read_installed,
    sql,
)
from eventlog.sql.dialects.postgresql.text import needs_quoting
from eventlog.sql.log_table import LogTable
from eventlog.sql.statements import qualified, run_as_it_stands
from eventlog.sql.triggers import (
    ALL_GO,
    NO_LONGER_WATCHED,
    Action,
    InstalledTrigger,
    TableSql,
    TriggerPlan,
    Triggers,
    by_table,
    of_the_log,
)
from eventlog.sql.triggers.declared import ClassTriggers, TableTriggers

_NOT_AVAILABLE: Final = "55P03"


class PostgresTriggers(Triggers):
    """A function for the triggers of each table; the hash of what was compiled stands in their comments.

    The tables of a plan are locked against writes until it is committed.
    """

    find_log = staticmethod(find_log)
    facts = staticmethod(facts_of)

    def tables_sql(
        self, schema: str | None, log: LogTable, declared: Sequence[TableTriggers], facts: Mapping[str, Any]
    ) -> list[TableSql]:
        home = schema or "public"
        known, taken = from_literals(home, replace(log, schema=log.schema or home), facts)
        compiled = compile_triggers(known, taken, declared)
        return [table_sql(of_table) for of_table in by_table(compiled)]

    def plan_declared(
        self, conn: Connection, log: LogTable, schema: str | None, declared: Sequence[TableTriggers]
    ) -> TriggerPlan:
        assert schema is not None
        facts = read_facts(conn, log, schema, (triggers.schema or schema for triggers in declared))
        _refuse_what_cannot_run(facts, declared)
        installed = read_installed(conn, log)
        compiled = compile_triggers(facts, installed, declared)
        is_needed = any(needs_quoting(triggers.key) for triggers in declared)
        quoting = compare_quoting(log, installed, is_needed=is_needed, is_there=facts.has_quote_function)
        actions = [
            *(action for action in quoting if action.kind != "drop"),
            *(compare_table(of_table, installed, compiled) for of_table in by_table(compiled)),
            *drop_all(installed, kept=compiled, reason=NO_LONGER_WATCHED),
            *(action for action in quoting if action.kind == "drop"),
        ]
        warnings = _warnings(compiled, facts, installed)
        return TriggerPlan(tuple(actions), tuple(warnings), _not_captured(declared, facts))

    def plan_drop(self, conn: Connection, log: LogTable) -> TriggerPlan:
        log = self.find_log(conn, log)
        installed = read_installed(conn, log)
        quoting = compare_quoting(log, installed, is_needed=False, is_there=True)
        return TriggerPlan((*drop_all(installed, kept=(), reason=ALL_GO), *quoting))

    def installed(self, conn: Connection, log: LogTable) -> list[InstalledTrigger]:
        # The comment is the one that ``marker_of`` writes: its end tells which log it is.
        suffix = f" log {qualified(log.schema, log.name)}"
        return [InstalledTrigger(*row) for row in conn.execute(sql("show"), {"suffix": suffix})]

    def digests(self, conn: Connection, log: LogTable) -> dict[str, str]:
        installed = read_installed(conn, self.find_log(conn, log))
        # Not partitions, nor tables that were: they have triggers of TRUNCATE alone, which are no part of a hash.
        tables = {
            (schema, table)
            for schema, table, _ in installed.ours
            if any(not row.is_partition and row.type != BEFORE | TRUNCATE for row in installed.on(schema, table))
        }
        return {
            ".".join(place): digest_of_markers(row.marker for row in installed.functions_on(*place) if row.marker)
            for place in sorted(tables)
        }

    # Applying

    @contextmanager
    def applying(self, conn: Connection, lock_timeout: float) -> Iterator[None]:
        names = ("search_path", "lock_timeout")
        with conn.begin_nested():
            shown = ", ".join(f"pg_catalog.current_setting('{name}')" for name in names)
            before = conn.exec_driver_sql(f"SELECT {shown}").one()
            for setting in self.settings(lock_timeout):
                run_as_it_stands(conn, setting)
            yield
            for name, value in zip(names, before, strict=True):
                put_back = text("SELECT pg_catalog.set_config(:name, :value, true)")
                conn.execute(put_back, {"name": name, "value": value})

    def settings(self, lock_timeout: float) -> tuple[str, ...]:
        return (f"SET LOCAL search_path = {SEARCH_PATH}", f"SET LOCAL lock_timeout = {round(lock_timeout * 1000)}")

    def locked_out(
        self, conn: Connection, plan: TriggerPlan, action: Action, error: DBAPIError, lock_timeout: float
    ) -> DatabaseError | None:
        if getattr(error.orig, "sqlstate", None) != _NOT_AVAILABLE:
            return None
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


def _refuse_what_cannot_run(facts: Facts, declared: Sequence[TableTriggers]) -> None:
    """A trigger that fails fails the application's statement, so what it needs is asked for before."""
    log, reasons = facts.log, []
    if not facts.log_is_writable:
        name = qualified(log.schema, log.name)
        reasons.append(f"role {facts.owner} may not write {name}: grant it INSERT, or apply as the log's owner")
    for triggers in declared:
        place = facts.place_of(triggers)
        if place[0] == log.schema and place[1] in log.own_tables:
            reasons.append(str(of_the_log(place[1])))
        reasons += (
            f"role {facts.owner} may not read {qualified(*needed)}, which the triggers of {place[1]} do: "
            "grant it SELECT, or apply as the table's owner"
            for needed in sorted(facts.read_by(triggers) - facts.readable)
        )
        locked = map(facts.place_of, moving_with(triggers, declared))
        reasons += (
            f"role {facts.owner} may not lock rows of {qualified(*needed)}, which the triggers of {place[1]} "
            "do when a row moves to another partition: grant it UPDATE, or apply as the table's owner"
            for needed in locked
            if needed not in facts.lockable
        )
    if reasons:
        raise together([TriggerError(reason) for reason in reasons])


# --- what people should know of declared triggers (spec/triggers.md 1, 7.1) -------------------------------------------


def _warnings(compiled: Sequence[CompiledFunction], facts: Facts, installed: InstalledFunctions) -> Iterator[str]:
    for one in compiled:
        if not one.is_replicated:
            yield from _keys(one)
            yield from _replicated(one)
            yield from _filtered(one, facts)
            yield from _order(one, installed)
            yield from _partitions(one, installed)


def _keys(compiled: CompiledFunction) -> Iterable[str]:
    triggers = compiled.declared
    if not (isinstance(triggers, ClassTriggers) and triggers.keys_may_shift):
        return
    how = (
        "logged a statement"
        if "u" in compiled.by_statement
        else "still logged row by row, since the table is "
        + ("partitioned" if triggers.table.partitioned else "in an inheritance tree")
    )
    yield (
        f"the primary key of {triggers.table.name} is DEFERRABLE: an UPDATE is {how}; with the check deferred to "
        "commit the order of two sessions' changes of one key is not promised"
    )


def _replicated(compiled: CompiledFunction) -> Iterable[str]:
    if compiled.declared.watch.always and compiled.by_statement:
        what = "changes" if len(compiled.by_statement) > 1 else "UPDATEs"
        yield (
            f"{compiled.place[1]}: {what} are logged a statement, but what a replication applies is logged row by "
            "row, since an apply worker fires row triggers only"
        )


def _filtered(compiled: CompiledFunction, facts: Facts) -> Iterable[str]:
    for place in sorted(facts.read_by(compiled.declared) & facts.filtered):
        yield (
            f"row level security filters {'.'.join(place)} for the role that applies the triggers, and they do not see "
            "all of its rows: apply as its owner, or as a role with BYPASSRLS"
        )


def _order(compiled: CompiledFunction, installed: InstalledFunctions) -> Iterable[str]:
    first = min(trigger.name.encode() for trigger in compiled.triggers)
    for row in installed.triggers.get(compiled.place, ()):
        is_after = not row.type & (BEFORE | INSTEAD)
        is_foreign = row.marker is None or not MARKER.match(row.marker)
        if not is_after or row.enabled == "D" or not is_foreign:
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
                f"trigger {row.name} of {compiled.place[1]} fires for each row, before ours for the statement: what it "
                "writes is logged before the change it answers"
            )
        elif row.name.encode() < first and (is_row or by_statement) and meets:
            yield (
                f"trigger {row.name} of {compiled.place[1]} fires before ours: what it writes is logged before the "
                "change it answers; give it a name that sorts behind _tgr_"
            )


def _partitions(compiled: CompiledFunction, installed: InstalledFunctions) -> Iterable[str]:
    for partition, trigger in compiled.partitions.items():
        if trigger is None and not installed.on(*partition):
            yield (
                f"TRUNCATE of partition {'.'.join(partition)} of {compiled.place[1]} is not captured: the role that "
                "applies the triggers does not own it, or may not read all of its rows; apply as its owner"
            )


def _not_captured(declared: Sequence[TableTriggers], facts: Facts) -> tuple[str, ...]:
    """Sentences on what the declared triggers do not see."""
    if not declared:
        return ()
    places = {facts.place_of(triggers): triggers.table for triggers in declared}
    return (
        *(
            f"{table.name}: DETACH and DROP of a partition; TRUNCATE of a partition alone, or of several by a cascade, "
            "if they came after triggers apply"
            for table in places.values()
            if table.partitioned
        ),
        *(
            f"{table.name}: writes to the tables that inherit from it"
            for place, table in places.items()
            if place in facts.with_heirs
        ),
        *(
            ["writes of a replication apply worker or with session_replication_role = replica"]
            if not all(triggers.watch.always for triggers in declared)
            else []
        ),
        "rows that TRUNCATE removes and a repeatable read snapshot does not see",
    )
