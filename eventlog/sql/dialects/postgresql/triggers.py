"""Triggers on PostgreSQL: planned, applied and dropped (spec/triggers.md 7.1, 9, 10).

``compile`` makes their SQL, ``installed`` reads the installed ones. The comments contain the hash
of the compiled text, by which a changed declaration is found. Changes made by hand are found by
comparing each installed fragment with the compiled one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection, Row, text
from sqlalchemy.exc import DBAPIError

from eventlog.core.clock import monotonic
from eventlog.errors import DatabaseError, first_of, together
from eventlog.sql.dialects.postgresql.compile import (
    ANY_BYTE,
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
    create,
    fits_name,
    moving_with,
    render_quote_function,
    settle,
    table_sql,
)
from eventlog.sql.dialects.postgresql.installed import (
    MARKER,
    Facts,
    InstalledFunctions,
    columns_of,
    digest_of_markers,
    facts_of,
    find_log,
    from_literals,
    log_of,
    marker_of,
    read_facts,
    read_installed,
    sql,
)
from eventlog.sql.dialects.postgresql.session import database_number
from eventlog.sql.dialects.postgresql.text import (
    QUOTE_FUNCTION,
    SEARCH_PATH,
    literal,
    needs_quoting,
    quote_function,
)
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.driver_errors import for_message
from eventlog.sql.port.sql_files import qualified, quote_identifier, run_as_it_stands
from eventlog.sql.triggers import (
    ALL_GO,
    NO_LONGER_WATCHED,
    Action,
    InstalledTrigger,
    TableSql,
    TriggerPlan,
    Triggers,
    by_table,
    error_for_log_table,
    made_for,
    sha256,
    warnings_of_lost_logs,
)
from eventlog.sql.triggers.captured import Identity, Partition
from eventlog.sql.triggers.declared import ClassTriggers, TableName, TableTriggers
from eventlog.sql.triggers.uncaptured import (
    ANOTHER_TABLE,
    NEW_TO_CLASS,
    Uncaptured,
    declared_otherwise,
    uncaptured_columns,
    uncaptured_table,
)

_NOT_AVAILABLE: Final = "55P03"
_NAMED: Final = 5
"""The maximum number of new partitions that a reason lists by name; it only counts the others."""


class PostgresTriggers(Triggers):
    """PostgreSQL's triggers. Each table has a separate trigger function. The comments contain the
    hash of the compiled text.

    The tables of a plan are locked against writes until it is committed.
    """

    find_log = staticmethod(find_log)
    facts = staticmethod(facts_of)

    def tables_sql(
        self,
        schema: str | None,
        log: LogTable,
        declared: Sequence[TableTriggers],
        facts: Mapping[str, Any],
    ) -> list[TableSql]:
        home = schema or "public"
        known = from_literals(home, replace(log, schema=log.schema or home), facts)
        return [table_sql(of_table) for of_table in by_table(compile_triggers(known, declared))]

    def plan_declared(
        self, conn: Connection, log: LogTable, schema: str | None, declared: Sequence[TableTriggers]
    ) -> TriggerPlan:
        assert schema is not None
        places = {(triggers.schema or schema, triggers.table.name) for triggers in declared}
        installed = read_installed(conn, log, places.__contains__)
        facts = read_facts(conn, log, schema, installed, (home for home, _ in places))
        _refuse_own_tables(facts, declared)
        lacking = tuple(_lacking(facts, declared))
        compiled = compile_triggers(facts, declared)
        is_needed = any(needs_quoting(triggers.key) for triggers in declared)
        quoting = _compare_quoting(
            log, installed, is_needed=is_needed, is_there=facts.has_quote_function
        )
        actions = [
            *(action for action in quoting if action.kind != "drop"),
            *(_compare_table(of_table, installed, compiled) for of_table in by_table(compiled)),
            *_drop_all(installed, staying=compiled, reason=NO_LONGER_WATCHED),
            *(action for action in quoting if action.kind == "drop"),
        ]
        # Some warnings concern rows that triggers owned by this role could not see.
        warnings = [*warnings_of_lost_logs(installed.lost)]
        warnings += [] if lacking else _warnings(compiled, facts, installed)
        not_captured = _not_captured(declared, facts)
        return TriggerPlan(tuple(actions), tuple(warnings), not_captured, lacking=lacking)

    def plan_drop(self, conn: Connection, log: LogTable) -> TriggerPlan:
        log = self.find_log(conn, log)
        # There is no declaration that shows which tables are meant, so the tables in the schema of
        # the log are taken.
        installed = read_installed(conn, log, lambda place: place[0] == log.schema)
        quoting = _compare_quoting(log, installed, is_needed=False, is_there=True)
        return TriggerPlan((*_drop_all(installed, staying=(), reason=ALL_GO), *quoting))

    def installed(self, conn: Connection, log: LogTable) -> list[InstalledTrigger]:
        # ``marker_of`` writes the comment, whose end names the log.
        suffix = f" log {qualified(log.schema, log.name)}"
        return [InstalledTrigger(*row) for row in conn.execute(sql("show"), {"suffix": suffix})]

    def tables_of(self, conn: Connection, log: LogTable) -> list[TableName]:
        return sorted(read_installed(conn, log).ours)

    def digests(
        self, conn: Connection, log: LogTable, tables: Collection[TableName] = ()
    ) -> dict[str, str]:
        installed = read_installed(conn, self.find_log(conn, log), tables.__contains__)
        # Partitions and former partitions are left out: they have only TRUNCATE triggers, which are
        # not in the hash.
        return {
            ".".join(table): digest_of_markers(
                row.marker for row in installed.functions_on(table) if row.marker
            )
            for table, rows in sorted(installed.ours.items())
            if any(not row.is_partition and row.type != BEFORE | TRUNCATE for row in rows)
        }

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
    """Return the sessions whose locks block the creation of triggers, in words. The server shows
    state and start of another user's session only to roles with the right.
    """
    found = []
    for row in conn.execute(sql("holders"), {"tables": list(tables)}):
        words = ", ".join(filter(None, (row.user, row.application or "unnamed", row.state)))
        since = f" since {row.since:%F %T}" if row.since else ""
        found.append(f"process {row.pid} ({words}){since}")
    return found


def _lock_tables(conn: Connection, plan: TriggerPlan, lock_timeout: float) -> bool:
    """Lock all tables of a plan, and return True if this changed the setting ``lock_timeout``.

    While it holds a lock, it never waits long for another one (spec/triggers.md 9.2). Otherwise it
    could deadlock with a session that writes two of the tables in another order, and the server
    would cancel that session's statement. So it waits for the first table while it holds no lock,
    and for the others less than ``deadlock_timeout``. If one of these is not available, it releases
    all locks and starts again with that table.
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
    """Return the statements that lock the tables of a plan whose triggers it creates or drops."""
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


def _refuse_own_tables(facts: Facts, declared: Sequence[TableTriggers]) -> None:
    """Raise TriggerError for triggers on the log or on one of its internal tables."""
    places = map(facts.place_of, declared)
    log = facts.log
    if own := [name for schema, name in places if schema == log.schema and name in log.own_tables]:
        raise together([error_for_log_table(name) for name in own])


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


# --- comparing compiled with installed triggers ---------------------------------------------------


def _compare_table(
    compiled: Sequence[CompiledFunction],
    installed: InstalledFunctions,
    every: Iterable[CompiledFunction],
) -> Action:
    """Return the action for one table. ``compiled`` is all that is declared for it, ``every`` all
    that is declared for any table.

    If another table needs the name of a function, the function is assigned to that table. This
    happens after a rename: the triggers of the renamed table still call it.
    """
    place = compiled[0].place
    name = ".".join(place)
    old = installed.on(place)
    functions = installed.functions_on(place)
    # Triggers of partitions that this role may not change stay as they are.
    partitions = [
        trigger.table
        for one in compiled
        for trigger in one.partitions.values()
        if trigger is not None
    ]
    of_partitions = [row for partition in partitions for row in installed.on(partition)]
    if not old and not {row.name for row in functions} & {one.name for one in compiled}:
        statements = (*_drop_triggers(of_partitions), *create(compiled))
        uncaptured = tuple(_uncaptured_of_new(compiled, installed, every))
        return Action("create", name, "watched, but not captured yet", statements, uncaptured)
    reasons = list(_differences(compiled, old, functions, installed))
    is_former = reasons == [FORMER]
    if not reasons:
        oids = {row.name: row.oid for row in functions}
        return _compare_partitions(name, compiled, oids, of_partitions)
    staying = {one.function for one in every}
    uncaptured = tuple(_uncaptured(compiled, old, functions))
    gone = [row for row in functions if (row.schema, row.name) not in staying]
    statements = (
        *_drop_triggers([*old, *of_partitions]),
        *create(compiled),
        *_drop_functions(gone, installed),
    )
    reason = "; ".join(dict.fromkeys(reasons))
    return Action("replace", name, reason, statements, uncaptured, is_former and not uncaptured)


def _uncaptured_of_new(
    compiled: Sequence[CompiledFunction],
    installed: InstalledFunctions,
    every: Iterable[CompiledFunction],
) -> Iterator[Uncaptured]:
    """Yield the uncaptured changes of a table without triggers. ``compiled`` is all that is
    declared for it, ``every`` all that is declared for any table.
    """
    known = {(row.schema, row.name) for row in installed.functions.values()}
    captured = {one.declared.class_name for one in every if installed.on(one.place)}
    for one in compiled:
        if one.is_replicated:
            continue
        if one.function in known:
            yield uncaptured_table(one.declared, ANOTHER_TABLE)
        elif one.declared.class_name in captured:
            yield uncaptured_table(one.declared, NEW_TO_CLASS)


def _uncaptured(
    compiled: Sequence[CompiledFunction], old: Sequence[Row[Any]], functions: Sequence[Row[Any]]
) -> Iterator[Uncaptured]:
    """Yield the uncaptured changes of a table with triggers: columns that they were not compiled
    for, and operations for which no trigger fires.
    """
    present = {row.name: row for row in functions}
    pairs = [(one, present.pop(one.name, None)) for one in compiled if not one.is_replicated]
    # The functions of a renamed table have the names of the former table.
    left = iter(present.values())
    for one, named in pairs:
        function = named or next(left, None)
        if function is None:
            yield uncaptured_table(one.declared, NEW_TO_CLASS)
            continue
        yield from uncaptured_columns(one.declared, columns_of(function.marker), one.columns)
        fired = [
            row.type for row in old if row.function == function.oid and row.enabled in {"O", "A"}
        ]
        silent = [
            word
            for operation, word in (
                (INSERT, "INSERT"),
                (UPDATE, "UPDATE"),
                (DELETE, "DELETE"),
                (TRUNCATE, "TRUNCATE"),
            )
            if any(trigger.type & operation for trigger in one.triggers)
            and not any(type_ & operation for type_ in fired)
        ]
        if silent:
            yield uncaptured_table(
                one.declared, f"the triggers of {', '.join(silent)} were missing or disabled"
            )


def _compare_partitions(
    table: str,
    compiled: Sequence[CompiledFunction],
    oids: Mapping[str, int],
    old: Iterable[Row[Any]],
) -> Action:
    """Return the action for the partitions of a table whose own triggers match the declaration."""
    unmatched = {(row.schema, row.table_name, row.name): row for row in old}
    new: dict[str, None] = {}
    reasons: list[str] = []
    gone: list[Row[Any]] = []
    statements: list[str] = []
    for one in compiled:
        for trigger in filter(None, one.partitions.values()):
            row = unmatched.pop((*trigger.table, trigger.name), None)
            if row is None:
                new[trigger.table[1]] = None
            elif row.function == oids[one.name] and _is_as_compiled(one, trigger, row):
                continue
            else:
                how = "is disabled" if row.enabled == "D" else "was changed by hand"
                reasons.append(f"trigger {row.name} of partition {row.table_name} {how}")
                gone.append(row)
            statements += (trigger.statement, *settle(trigger, one.marker))
    if new:
        named = first_of(list(new), _NAMED)
        reasons.insert(
            0,
            f"TRUNCATE of {'partition' if len(new) == 1 else 'partitions'} {named} is not "
            "captured yet",
        )
    for row in unmatched.values():
        reasons.append(f"trigger {row.name} of partition {row.table_name} is superfluous")
        gone.append(row)
    if not reasons:
        return Action("unchanged", table, "as declared")
    return Action("replace", table, "; ".join(reasons), (*_drop_triggers(gone), *statements))


def _differences(
    compiled: Sequence[CompiledFunction],
    old: Sequence[Row[Any]],
    functions: Sequence[Row[Any]],
    installed: InstalledFunctions,
) -> Iterable[str]:
    present = {row.name: row for row in functions}
    own = log_of(compiled[0].marker)
    if former := {log_of(row.marker) for row in functions} - {own, None}:
        yield made_for(", ".join(sorted(map(str, former))))
        return
    if present and not present.keys() & {one.name for one in compiled}:
        names = ", ".join(sorted(present))
        yield (
            f"its triggers call {names}, made for the former name of the table, and log that name "
            "until they are replaced"
        )
        return
    oids = {}
    as_installed = []
    for one in compiled:
        function = present.pop(one.name, None)
        if function is None:
            yield f"function {one.name} is missing"
            return
        if one.former is not None and function.marker == one.former.function_marker:
            one = one.former
        as_installed.append(one)
        if function.marker != one.function_marker:
            yield from _redeclared(one, function)
            return
        oids[one.name] = function.oid
        yield from _function_differences(one, function, installed)
    if present:
        yield "fewer of its columns or changes are watched than before"
    unwatched = {row.oid for row in present.values()}
    yield from _trigger_differences(
        as_installed, oids, {row.name: row for row in old if row.function not in unwatched}
    )
    if any(one.former is None for one in as_installed):
        yield FORMER


def _redeclared(compiled: CompiledFunction, function: Row[Any]) -> Iterable[str]:
    """Yield the differences between the present declaration and the declaration for which the
    installed function was created.
    """
    before = columns_of(function.marker)
    now = [column.name for column in compiled.declared.table.columns]
    yield from declared_otherwise(before, compiled.columns, now)
    if missing := [name for name in before if name not in now]:
        names = ", ".join(missing)
        yield (
            f"the triggers still name {names}: they log query-back rows until triggers are applied"
        )


def _function_differences(
    compiled: CompiledFunction, function: Row[Any], installed: InstalledFunctions
) -> Iterable[str]:
    """Yield the changes made by hand in a function whose declaration has not changed, and in the
    function that checks its table.
    """
    if (
        function.body != compiled.body
        or function.language != "plpgsql"
        or not function.is_definer
        or sorted(function.settings) != sorted(compiled.settings)
    ):
        yield f"function {compiled.name} was changed by hand"
    helper = installed.helpers.get(compiled.fits_function)
    if helper is None:
        yield (
            f"function {compiled.fits_function[1]} is missing: writes to the table fail until "
            "`eventlog triggers apply` runs"
        )
    elif helper.body != compiled.fits_body:
        yield f"function {compiled.fits_function[1]} was changed by hand"


def _trigger_differences(
    compiled: Iterable[CompiledFunction], oids: Mapping[str, int], installed: dict[str, Row[Any]]
) -> Iterable[str]:
    """Yield the differences between compiled triggers and the installed ones of a table, by name.
    ``oids`` are those of the installed functions.
    """
    for one in compiled:
        for trigger in one.triggers:
            row = installed.pop(trigger.name, None)
            if row is None:
                yield f"trigger {trigger.name} is missing"
            elif row.enabled == "D":
                yield f"trigger {trigger.name} is disabled"
            elif row.function != oids[one.name] or not _is_as_compiled(one, trigger, row):
                yield f"trigger {trigger.name} was changed by hand"
    for name in installed:
        yield f"trigger {name} is superfluous"


def _is_as_compiled(compiled: CompiledFunction, trigger: FunctionTrigger, row: Row[Any]) -> bool:
    return (
        row.marker == compiled.marker
        and row.type == trigger.type
        and row.enabled == trigger.enabled
        and not row.is_constraint
        and not row.has_arguments
        and (row.old_table, row.new_table) == (trigger.old_table, trigger.new_table)
        and _condition(row.conditional) == trigger.conditional
    )


def _condition(definition: str | None) -> str | None:
    """Return the WHEN condition of a trigger in the form that eventlog writes; the server shows it
    in another form.
    """
    if definition is None:
        return None
    shown = re.search(r" WHEN \((.*)\) EXECUTE FUNCTION ", definition, re.DOTALL)
    condition = shown[1] if shown else definition
    plain = re.sub(r"OPERATOR\(pg_catalog\.(\*<>)\)", r"\1", condition)
    return ANY_BYTE if plain == "(old.* *<> new.*)" else condition


def _drop_triggers(rows: Iterable[Row[Any]]) -> list[str]:
    return [
        f"DROP TRIGGER {quote_identifier(row.name)} ON {qualified(row.schema, row.table_name)}"
        for row in rows
    ]


def _drop_functions(rows: Iterable[Row[Any]], installed: InstalledFunctions) -> list[str]:
    """Return the statements that drop functions, each with the function that checks its table."""
    helpers = installed.helpers
    found = [
        one
        for row in rows
        for one in (row, helpers.get((row.schema, fits_name(row.name))))
        if one is not None
    ]
    return [f"DROP FUNCTION {qualified(row.schema, row.name)}({row.arguments})" for row in found]


def _drop_all(
    installed: InstalledFunctions, *, staying: Sequence[CompiledFunction], reason: str
) -> list[Action]:
    """Return the actions that drop eventlog's triggers and functions, except for the tables and
    functions of ``staying``.
    """
    actions = []
    tables = {place for one in staying for place in (one.place, *one.partitions)}
    functions_staying = {one.function for one in staying}
    used = {row.function for rows in installed.ours.values() for row in rows}
    doomed = _with_partitions(installed, installed.ours.keys() - tables)
    last = {row.function: place for place, rows in doomed.items() for row in rows}
    for place, rows in doomed.items():
        functions = [
            row
            for oid, row in installed.functions.items()
            if last.get(oid) == place and (row.schema, row.name) not in functions_staying
        ]
        statements = _drop_triggers(rows) + _drop_functions(functions, installed)
        actions.append(Action("drop", ".".join(place), reason, tuple(statements)))
    for oid, row in installed.functions.items():
        if oid not in used and (row.schema, row.name) not in functions_staying:
            name = f"{row.schema}.{row.name}"
            actions.append(
                Action(
                    "drop",
                    name,
                    "a function without triggers",
                    tuple(_drop_functions([row], installed)),
                )
            )
    return actions


def _with_partitions(
    installed: InstalledFunctions, tables: Iterable[TableName]
) -> dict[TableName, list[Row[Any]]]:
    """Return eventlog's triggers on these tables, by table. Triggers of partitions are listed with
    the table whose function they call.
    """
    rows = [row for table in sorted(tables) for row in installed.on(table)]
    roots = {
        row.function: (row.schema, row.table_name) for row in reversed(rows) if not row.is_partition
    }
    by_root: dict[TableName, list[Row[Any]]] = {}
    for row in rows:
        place = (row.schema, row.table_name)
        by_root.setdefault(
            roots.get(row.function, place) if row.is_partition else place, []
        ).append(row)
    return by_root


def _compare_quoting(
    log: LogTable, installed: InstalledFunctions, *, is_needed: bool, is_there: bool
) -> list[Action]:
    """Return the actions for the key quoting function of another program's log.

    In a log that eventlog created, the function belongs to the log (`eventlog db upgrade`), and no
    action is needed.
    """
    name = f"{log.schema}.{log.own_name(QUOTE_FUNCTION)}"
    row = installed.quoting
    if not is_needed:
        return (
            []
            if row is None
            else [Action("drop", name, "no key needs it", tuple(_drop_functions([row], installed)))]
        )
    statement = render_quote_function(log)
    marker = marker_of(log, sha256(statement))
    statements = (
        statement,
        f"COMMENT ON FUNCTION {quote_function(log)}(pg_catalog.text) IS {literal(marker)}",
    )
    if not is_there:
        return [Action("create", name, "quotes the keys, and is missing", statements)]
    if row is not None and row.marker != marker:
        return [Action("replace", name, "the templates have changed", statements)]
    return []


# --- warnings about declared triggers (spec/triggers.md 1, 7.1) -----------------------


def _warnings(
    compiled: Sequence[CompiledFunction], facts: Facts, installed: InstalledFunctions
) -> Iterator[str]:
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


def _order(compiled: CompiledFunction, installed: InstalledFunctions) -> Iterable[str]:
    first = min(trigger.name.encode() for trigger in compiled.triggers)
    for row in installed.others.get(compiled.place, ()):
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
    """Return True if another program's trigger may write after a change, in its statement. A
    constraint trigger that is initially deferred fires at the commit, after all of ours.
    """
    is_foreign = row.marker is None or not MARKER.match(row.marker)
    is_after = not row.type & (BEFORE | INSTEAD) and not row.is_deferred
    return is_after and row.enabled != "D" and is_foreign


def _partitions(compiled: CompiledFunction, installed: InstalledFunctions) -> Iterable[str]:
    for partition, trigger in compiled.partitions.items():
        if trigger is None and not installed.on(partition):
            yield (
                f"TRUNCATE of partition {'.'.join(partition)} of {compiled.place[1]} is not "
                "captured: the role that applies the triggers does not own the partition, or may "
                "not read all of its rows; apply as its owner"
            )


def _not_captured(declared: Sequence[TableTriggers], facts: Facts) -> tuple[str, ...]:
    """Return sentences on the changes that the declared triggers do not capture."""
    if not declared:
        return ()
    places = {facts.place_of(triggers): triggers.table for triggers in declared}
    return (
        *(
            (
                f"{table.name}: DETACH and DROP of a partition; TRUNCATE of only one partition, or "
                "of several by a cascade, if they were created after `triggers apply`"
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
            ["writes by a replication apply worker or with session_replication_role = replica"]
            if not all(triggers.watch.capture_replicated for triggers in declared)
            else []
        ),
        "rows that TRUNCATE removes but its repeatable read snapshot does not see",
    )


TRIGGERS: Final = PostgresTriggers()
