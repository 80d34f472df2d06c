"""What is compiled against what is installed, as actions: create, replace, drop (spec/triggers.md 9, 10).

The hash of what was compiled stands in the comments, so that a changed declaration shows; what somebody changed by hand
shows by comparing what is installed, piece by piece, with what was compiled.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Row

from eventlog.errors import first_of
from eventlog.sql.dialects.postgresql.compile import (
    ANY_BYTE,
    CompiledFunction,
    FunctionTrigger,
    render_partition_triggers,
    render_quote_function,
)
from eventlog.sql.dialects.postgresql.installed import MARKER, InstalledFunctions, columns_of, marker_of
from eventlog.sql.dialects.postgresql.text import QUOTE_FUNCTION, literal, quote_function
from eventlog.sql.log_table import LogTable
from eventlog.sql.statements import qualified, quote_identifier
from eventlog.sql.triggers import Action, TableName, TableSql, declared_otherwise, digest_of, sha256

_NAMED: Final = 5
"""New partitions that a reason names; the rest is counted."""


def table_sql(compiled: Sequence[CompiledFunction]) -> TableSql:
    """All that is declared for one table, as SQL for a database that has none of it, and the way back."""
    first = compiled[0]
    table = qualified(*first.place)
    triggers = [
        f"DROP TRIGGER {quote_identifier(trigger.name)} ON {table}" for one in compiled for trigger in one.triggers
    ]
    partitioned = [one for one in compiled if one.declared.table.partitioned]
    functions = [f"DROP FUNCTION {qualified(*one.function)}()" for one in compiled]
    return TableSql(
        table=".".join(first.place),
        digest=digest_of_markers(one.marker for one in compiled),
        create=(*_create(compiled), *(render_partition_triggers(one, drop=False) for one in partitioned)),
        drop=(*triggers, *(render_partition_triggers(one, drop=True) for one in partitioned), *functions),
    )


def digest_of_markers(markers: Iterable[str]) -> str:
    """One hash of those in the comments of a table's functions."""
    beginnings = filter(None, map(MARKER.match, markers))
    return digest_of(beginning[0].split()[1].removeprefix("sha256:") for beginning in beginnings)


def compare_table(
    compiled: Sequence[CompiledFunction], installed: InstalledFunctions, every: Iterable[CompiledFunction]
) -> Action:
    """What is to be done for one table, given all that is declared for it, and for ``every`` table.

    A function whose name another table needs is that table's from now on: it is what one that was renamed still calls.
    """
    place = compiled[0].place
    name = ".".join(place)
    old = installed.on(*place)
    functions = installed.functions_on(*place)
    # Those of partitions that this role may not touch are left as they are.
    partitions = [trigger.table for one in compiled for trigger in one.partitions.values() if trigger is not None]
    of_partitions = [row for partition in partitions for row in installed.on(*partition)]
    if not old and not {row.name for row in functions} & {one.name for one in compiled}:
        statements = (*_drop_triggers(of_partitions), *_create(compiled))
        return Action("create", name, "watched, and not captured yet", statements)
    reasons = list(_differences(compiled, old, functions))
    if not reasons:
        oids = {row.name: row.oid for row in functions}
        return _compare_partitions(name, compiled, oids, of_partitions)
    kept = {one.function for one in every}
    gone = [row for row in functions if (row.schema, row.name) not in kept]
    statements = (*_drop_triggers([*old, *of_partitions]), *_create(compiled), *_drop_functions(gone))
    return Action("replace", name, "; ".join(dict.fromkeys(reasons)), statements)


def _compare_partitions(
    table: str, compiled: Sequence[CompiledFunction], oids: Mapping[str, int], old: Iterable[Row[Any]]
) -> Action:
    """What is to be done for the partitions of a table whose own triggers are as declared."""
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
            statements += (trigger.statement, *_settle(trigger, one.marker))
    if new:
        named = first_of(list(new), _NAMED)
        reasons.insert(0, f"TRUNCATE of {'partition' if len(new) == 1 else 'partitions'} {named} is not captured yet")
    for row in unmatched.values():
        reasons.append(f"trigger {row.name} of partition {row.table_name} is one too many")
        gone.append(row)
    if not reasons:
        return Action("unchanged", table, "as declared")
    return Action("replace", table, "; ".join(reasons), (*_drop_triggers(gone), *statements))


def _differences(
    compiled: Sequence[CompiledFunction], old: Sequence[Row[Any]], functions: Sequence[Row[Any]]
) -> Iterable[str]:
    present = {row.name: row for row in functions}
    oids = {}
    for one in compiled:
        function = present.pop(one.name, None)
        if function is None:
            yield f"function {one.name} is missing"
            return
        if function.marker != one.function_marker:
            before, now = columns_of(function.marker), [column.name for column in one.declared.table.columns]
            yield from declared_otherwise(before, one.columns, now)
            if missing := [name for name in before if name not in now]:
                names = ", ".join(missing)
                yield f"the triggers still name {names}: writes to the table fail until they are applied"
            return
        oids[one.name] = function.oid
        if (
            function.body != one.body
            or function.language != "plpgsql"
            or not function.is_definer
            or sorted(function.settings) != sorted(one.settings)
        ):
            yield f"function {one.name} was changed by hand"
    if present:
        yield "less of it is watched than before"
    triggers = {row.name: row for row in old if row.function not in {row.oid for row in present.values()}}
    for one in compiled:
        for trigger in one.triggers:
            row = triggers.pop(trigger.name, None)
            if row is None:
                yield f"trigger {trigger.name} is missing"
            elif row.enabled == "D":
                yield f"trigger {trigger.name} is disabled"
            elif row.function != oids[one.name] or not _is_as_compiled(one, trigger, row):
                yield f"trigger {trigger.name} was changed by hand"
    for name in triggers:
        yield f"trigger {name} is one too many"


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
    """The WHEN of a trigger as we write it, or as the server shows it."""
    if definition is None:
        return None
    shown = re.search(r" WHEN \((.*)\) EXECUTE FUNCTION ", definition, re.DOTALL)
    condition = shown[1] if shown else definition
    plain = re.sub(r"OPERATOR\(pg_catalog\.(\*<>)\)", r"\1", condition)
    return ANY_BYTE if plain == "(old.* *<> new.*)" else condition


def _create(compiled: Iterable[CompiledFunction]) -> Iterable[str]:
    for one in compiled:
        function = f"{qualified(*one.function)}()"
        yield one.statement
        # Whoever may execute it could put it on a table of his own and write what he likes into the log.
        yield f"REVOKE ALL ON FUNCTION {function} FROM PUBLIC"
        yield f"COMMENT ON FUNCTION {function} IS {literal(one.function_marker)}"
        yield from (trigger.statement for trigger in one.triggers)
        for trigger in one.triggers:
            yield from _settle(trigger, one.marker)
        for partition in filter(None, one.partitions.values()):
            yield partition.statement
            yield from _settle(partition, one.marker)


def _settle(trigger: FunctionTrigger, marker: str) -> Iterable[str]:
    """The statements that say which log a new trigger writes, and when it fires."""
    name, table = quote_identifier(trigger.name), qualified(*trigger.table)
    yield f"COMMENT ON TRIGGER {name} ON {table} IS {literal(marker)}"
    if trigger.enabled != "O":
        when = {"A": "ALWAYS", "R": "REPLICA"}[trigger.enabled]
        yield f"ALTER TABLE {table} ENABLE {when} TRIGGER {name}"


def _drop_triggers(rows: Iterable[Row[Any]]) -> list[str]:
    return [f"DROP TRIGGER {quote_identifier(row.name)} ON {qualified(row.schema, row.table_name)}" for row in rows]


def _drop_functions(rows: Iterable[Row[Any]]) -> list[str]:
    return [f"DROP FUNCTION {qualified(row.schema, row.name)}({row.arguments})" for row in rows]


def drop_all(installed: InstalledFunctions, *, kept: Iterable[CompiledFunction], reason: str) -> list[Action]:
    """What takes our triggers and functions away, but for those of the tables of ``kept`` and its functions."""
    actions = []
    kept = tuple(kept)
    tables = {place for one in kept for place in (one.place, *one.partitions)}
    functions_kept = {one.function for one in kept}
    used = {row.function for rows in installed.triggers.values() for row in rows}
    doomed = _with_partitions(installed, {(schema, table) for schema, table, _ in installed.ours} - tables)
    last = {row.function: place for place, rows in doomed.items() for row in rows}
    for place, rows in doomed.items():
        functions = [
            row
            for oid, row in installed.functions.items()
            if last.get(oid) == place and (row.schema, row.name) not in functions_kept
        ]
        statements = _drop_triggers(rows) + _drop_functions(functions)
        actions.append(Action("drop", ".".join(place), reason, tuple(statements)))
    for oid, row in installed.functions.items():
        if oid not in used and (row.schema, row.name) not in functions_kept:
            name = f"{row.schema}.{row.name}"
            actions.append(Action("drop", name, "a function without triggers", tuple(_drop_functions([row]))))
    return actions


def _with_partitions(installed: InstalledFunctions, tables: Iterable[TableName]) -> dict[TableName, list[Row[Any]]]:
    """Our triggers on these tables, by table; those of partitions with the table whose function they call."""
    rows = [row for table in sorted(tables) for row in installed.on(*table)]
    roots = {row.function: (row.schema, row.table_name) for row in reversed(rows) if not row.is_partition}
    by_root: dict[TableName, list[Row[Any]]] = {}
    for row in rows:
        place = (row.schema, row.table_name)
        by_root.setdefault(roots.get(row.function, place) if row.is_partition else place, []).append(row)
    return by_root


def compare_quoting(log: LogTable, installed: InstalledFunctions, *, is_needed: bool, is_there: bool) -> list[Action]:
    """What is to be done for the key quoting function of a log that somebody else made.

    In a log of ours it belongs to the log (`eventlog db upgrade`), and nothing is done here.
    """
    name = f"{log.schema}.{log.own_name(QUOTE_FUNCTION)}"
    row = installed.quoting
    if not is_needed:
        return [] if row is None else [Action("drop", name, "no key needs it", tuple(_drop_functions([row])))]
    statement = render_quote_function(log)
    marker = marker_of(log, sha256(statement))
    statements = (statement, f"COMMENT ON FUNCTION {quote_function(log)}(pg_catalog.text) IS {literal(marker)}")
    if not is_there:
        return [Action("create", name, "quotes the keys, and is missing", statements)]
    if row is not None and row.marker != marker:
        return [Action("replace", name, "the templates have changed", statements)]
    return []
