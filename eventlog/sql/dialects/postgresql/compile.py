"""The triggers of a table as SQL: functions and CREATE TRIGGER statements (spec/triggers.md 2, 4,
5, 6, 7.1).

This module never queries the database. The functions' texts are in the files of
``trigger_templates``, one for each operation. The statements that create and drop triggers are
written here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Final

from eventlog.core.catalog import Column
from eventlog.core.values import Kind
from eventlog.errors import TriggerError
from eventlog.sql.dialects.postgresql.installed import Facts, fits_name, marker_of
from eventlog.sql.dialects.postgresql.rights import deny_others
from eventlog.sql.dialects.postgresql.text import (
    MAX_IDENTIFIER,
    SEARCH_PATH,
    is_changed,
    is_one_spelling,
    key_text,
    key_values_by_type,
    literal,
    new_time,
    quoted,
    relation,
    session_settings,
    type_name,
    value_text,
)
from eventlog.sql.log_table import LogTable, cut_name
from eventlog.sql.port.sql_files import (
    all_there,
    field,
    fields,
    qualified,
    quote_identifier,
    template_renderer,
    trigger_words,
)
from eventlog.sql.triggers import TableSql, digest_of, first_free, sha256
from eventlog.sql.triggers.declared import (
    ChildTriggers,
    ClassTriggers,
    TableName,
    TableTriggers,
    following,
)
from eventlog.sql.triggers.planner import Compiled, CompiledTrigger

# pg_trigger.tgtype
ROW, BEFORE, INSERT, DELETE, UPDATE, TRUNCATE, INSTEAD = 1, 2, 4, 8, 16, 32, 64

_OLD, _NEW = "old_rows", "new_rows"
_NO_OPERATIONS: Final[frozenset[str]] = frozenset()
_OPERATIONS: Final[Mapping[str, tuple[int, str, Mapping[str, str]]]] = {
    "i": (INSERT, "AFTER INSERT", {"NEW": _NEW}),
    "u": (UPDATE, "AFTER UPDATE", {"OLD": _OLD, "NEW": _NEW}),
    "d": (DELETE, "AFTER DELETE", {"OLD": _OLD}),
}

# The condition compares the whole row instead of its columns: if a trigger depended on columns, the
# server would refuse the application's ALTER TABLE. The server shows it in another form.
_ANY_BYTE: Final = "OLD.* OPERATOR(pg_catalog.*<>) NEW.*"
_ANY_BYTE_SHOWN: Final = "(old.* *<> new.*)"

# These settings are for functions that process all rows of a statement. A session plans them once,
# perhaps for a statement of one row, and then uses the plan for a million rows: a look-up must use
# the key's index, and JIT compilation would take longer than the function.
_STATEMENT_SETTINGS: Final = {"enable_seqscan": "off", "jit": "off"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTrigger(CompiledTrigger):
    """A trigger that calls the function of its table."""

    table: TableName
    type: int
    """The type, as in pg_trigger.tgtype."""
    enabled: str
    """The mode, as in pg_trigger.tgenabled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledFunction(Compiled):
    """One function and its triggers on one table. A copy (``is_copy``) logs replicated changes row
    by row, while another function logs all other changes by statement.
    """

    function: CompiledTrigger
    triggers: Sequence[FunctionTrigger]
    partitions: Mapping[TableName, FunctionTrigger | None]
    former: CompiledFunction | None = None
    fits_body: str
    """The body of the second function, which checks that the table's columns have not changed."""
    fits_statement: str
    """The statement that creates the second function."""
    marker: str
    """The comment of the triggers, which contains the hash of function and triggers."""
    function_marker: str
    """The function's comment, which also lists the ``columns``."""
    by_statement: frozenset[str]
    """The operations (i, u, d) that are logged by statement instead of by row."""
    needs: Mapping[str, Any]
    """The values of missing_rights.sql.j2: what the function reads, locks, writes and calls."""

    @property
    def fits_function(self) -> TableName:
        """The schema and name of the function that checks that the table has not changed."""
        return self.place[0], fits_name(self.function.name)

    @property
    def hand_over(self) -> str:
        """The statement by which a superuser gives both functions to the owner of the table."""
        return rendered(
            "hand_over.sql.j2",
            table=qualified(*self.place),
            needs=self.needs,
            functions=[
                qualified(*self.fits_function) + FITS_ARGUMENTS,
                f"{qualified(self.place[0], self.function.name)}()",
            ],
        ).strip()

    def missing_rights(self, owner: str) -> str:
        """Return the query of the statements that grant a role what it needs to own the function
        (spec/triggers.md 7.7).
        """
        return rendered("rights_of_owner.sql.j2", owner=owner, needs=self.needs)

    def create(self) -> Iterable[str]:
        yield from self.make()
        yield self.hand_over

    def make(self) -> Iterable[str]:
        """Yield the statements of ``create`` that make functions and triggers."""
        function = f"{qualified(self.place[0], self.function.name)}()"
        fits = qualified(*self.fits_function) + FITS_ARGUMENTS
        yield self.fits_statement
        yield f"REVOKE ALL ON FUNCTION {fits} FROM PUBLIC"
        yield f"COMMENT ON FUNCTION {fits} IS {literal(self.marker)}"
        yield self.function.statement
        # A user with EXECUTE on it could use it in a trigger on another table and write anything
        # into the log.
        yield f"REVOKE ALL ON FUNCTION {function} FROM PUBLIC"
        yield deny_others(functions=[function, fits])
        yield f"COMMENT ON FUNCTION {function} IS {literal(self.function_marker)}"
        yield from (trigger.statement for trigger in self.triggers)
        for trigger in self.triggers:
            yield from settle(trigger, self.marker)
        for partition in filter(None, self.partitions.values()):
            yield partition.statement
            yield from settle(partition, self.marker)


FITS_ARGUMENTS: Final = (
    "(pg_catalog.regclass, pg_catalog.text, pg_catalog.text[], pg_catalog.text[], pg_catalog.text)"
)


def compile_triggers(facts: Facts, declared: Sequence[TableTriggers]) -> list[CompiledFunction]:
    """Return the SQL of the declared triggers, in the order of their declarations.

    Raises TriggerError for a declaration that cannot be implemented.
    """
    functions: set[tuple[str, ...]] = set(facts.other_functions)
    used: set[tuple[str, ...]] = set(facts.other_triggers)
    compiled = []
    for triggers in declared:
        table, by_statement = facts.place_of(triggers), _statement_operations(facts, triggers)
        parts = [((*_OPERATIONS, "t"), by_statement)]
        if triggers.watch.capture_replicated and by_statement:
            # An apply worker of logical replication fires only row triggers, but the first
            # synchronization of a table fires both kinds. So a row trigger fires for replicated
            # changes and a statement trigger for all others, and no change is logged twice.
            parts.append(
                (tuple(letter for letter in _OPERATIONS if letter in by_statement), _NO_OPERATIONS)
            )
        for operations, logged in parts:
            function = _free_name(f"proc_{table[1]}", table[:1], functions)
            names = {
                letter: _free_name(f"_tgr_{table[1]}_{letter}", table, used)
                for letter in operations
            }
            partitions = {
                partition: _free_name(f"_tgr_{partition[1]}_t", partition, used)
                for partition in (facts.partitions.get(table, ()) if "t" in names else ())
            }
            following_key = moving_with(triggers, declared)
            compiled.append(
                _compile(facts, triggers, following_key, function, names, partitions, logged)
            )
    return compiled


def _free_name(beginning: str, place: tuple[str, ...], used: set[tuple[str, ...]]) -> str:
    """Return the first free name at a place, and add it to ``used``."""
    name = first_free(
        lambda number: cut_name(f"{beginning}_{number}", MAX_IDENTIFIER),
        lambda name: (*place, name) in used,
    )
    used.add((*place, name))
    return name


def _statement_operations(facts: Facts, triggers: TableTriggers) -> frozenset[str]:
    """Return the operations of a table that are logged by statement (spec/triggers.md 7.1).

    Raises TriggerError if the declaration requires logging by statement, but the transition tables
    of a statement might not contain exactly the rows of this table.
    """
    table = triggers.table
    inherits = facts.place_of(triggers) in facts.with_heirs | facts.heirs
    if triggers.watch.trigger_level == "statement":
        if table.partitioned or inherits:
            why = (
                "partitioned, and writes to its partitions would not be captured"
                if table.partitioned
                else "in an inheritance tree"
            )
            raise TriggerError(
                f"watch {triggers.class_name}: {table.name} is {why}; use trigger_level = row"
            )
        is_early = isinstance(triggers, ChildTriggers) and triggers.may_precede_owner
        return _NO_OPERATIONS if is_early else frozenset(_OPERATIONS)
    if (
        isinstance(triggers, ClassTriggers)
        and triggers.keys_may_shift
        and not table.partitioned
        and not inherits
    ):
        return frozenset("u")
    return _NO_OPERATIONS


def moving_with(triggers: TableTriggers, declared: Iterable[TableTriggers]) -> list[ChildTriggers]:
    """Return the child tables whose rows change if their owner moves to another partition."""
    if isinstance(triggers, ChildTriggers) or not triggers.table.partitioned:
        return []
    return following(triggers, declared)


def _compile(
    facts: Facts,
    triggers: TableTriggers,
    moving: Sequence[ChildTriggers],
    function: str,
    names: Mapping[str, str],
    partitions: Mapping[TableName, str],
    by_statement: frozenset[str],
) -> CompiledFunction:
    """Compile one function and its triggers. ``names`` are the names of the triggers by operation
    (t is TRUNCATE), ``partitions`` the names of the partitions' triggers.
    """
    if isinstance(triggers, ClassTriggers):
        body = _class_body(facts, triggers, moving, function, by_statement)
        shown = (*triggers.key, *triggers.columns)
        # If a column is excluded, the function itself compares the rows: a condition on the whole
        # row would fetch the large values of the excluded column.
        is_whole = len(shown) == len(triggers.table.columns)
    else:
        body = _child_body(facts, triggers, function, by_statement)
        shown = (*triggers.key, *triggers.owner_columns, triggers.column)
        is_whole = True
    table = facts.place_of(triggers)
    settings = session_settings(shown, facts.enums) | (_STATEMENT_SETTINGS if by_statement else {})
    sql_name = qualified(table[0], function)
    statement = rendered("function.sql.j2", function=sql_name, settings=settings, body=body)
    fits_statement = rendered(
        "fits_function.sql.j2", function=qualified(table[0], fits_name(function))
    )
    is_replicated = "t" not in names

    def enabled(operation: str) -> str:
        """Return when a trigger fires, as in pg_trigger.tgenabled: for application changes (O), for
        replicated changes (R), or for both (A).
        """
        if is_replicated:
            return "R"
        return "A" if triggers.watch.capture_replicated and operation not in by_statement else "O"

    compiled = [
        _truncate_trigger(name, table, sql_name, enabled(operation))
        if operation == "t"
        else _trigger(
            name,
            table,
            sql_name,
            operation,
            enabled(operation),
            operation in by_statement,
            is_whole,
        )
        for operation, name in names.items()
    ]
    columns = {column.name: column.type.sql for column in triggers.table.columns if column in shown}
    always = ["always"] if triggers.watch.capture_replicated else []
    if triggers.watch.capture_replicated and by_statement:
        always.append("what is replicated by row")
    # The types are in the hash, too: a publisher reads the values by them, even if the SQL is
    # equal.
    rest = [*(trigger.statement for trigger in compiled), *always, repr(columns)]
    every = (f"search_path={SEARCH_PATH}", *(f"{name}={value}" for name, value in settings.items()))

    def made(
        statement: str,
        fits_statement: str,
        settings: Iterable[str],
        former: CompiledFunction | None,
    ) -> CompiledFunction:
        digest = sha256("\n".join([statement, fits_statement, *rest]))
        return CompiledFunction(
            schema=table[0],
            declared=triggers,
            triggers=compiled,
            columns=columns,
            function=CompiledTrigger(
                function,
                "",
                statement,
                digest,
                "function",
                "\n".join(["plpgsql", "SECURITY DEFINER", *sorted(settings), body]),
            ),
            partitions={
                partition: _truncate_trigger(name, partition, sql_name, enabled("t"))
                if facts.partitions[table][partition]
                else None
                for partition, name in partitions.items()
            },
            is_copy=is_replicated,
            former=former,
            fits_body=fits_statement.split("$eventlog$")[-2],
            fits_statement=fits_statement,
            marker=marker_of(facts.log, digest),
            function_marker=marker_of(facts.log, digest, columns),
            by_statement=by_statement,
            needs=needs,
        )

    needs = _needs(facts, triggers, moving, function)
    settings_before = [one for one in every if not one.startswith(_LATER)]
    former = made(as_formerly(statement), as_formerly(fits_statement), settings_before, None)
    return made(statement, fits_statement, every, former)


FORMER: Final = (
    "because a session with quote_all_identifiers = on logs quoted names, or logs rows without "
    "values, which must be read back"
)
"""Why functions of earlier versions are replaced. Until they are replaced, they log as before."""
_LATER: Final = "quote_all_identifiers"
_LATER_SETTING: Final = re.compile(f'^SET "{_LATER}" = .*\n', re.MULTILINE)


def as_formerly(statement: str) -> str:
    """Return a statement that creates a function, in the form that earlier versions created."""
    return _LATER_SETTING.sub("", statement)


def _truncate_trigger(name: str, table: TableName, function: str, enabled: str) -> FunctionTrigger:
    statement = (
        f"CREATE TRIGGER {quote_identifier(name)}\nBEFORE TRUNCATE ON {qualified(*table)} FOR "
        f"EACH STATEMENT\nEXECUTE FUNCTION {function}()"
    )
    type_ = BEFORE | TRUNCATE
    return FunctionTrigger(
        name,
        "t",
        statement,
        None,
        shape=f"{type_} {enabled}",
        table=table,
        type=type_,
        enabled=enabled,
    )


def _trigger(
    name: str,
    table: TableName,
    function: str,
    operation: str,
    enabled: str,
    by_statement: bool,
    is_whole: bool,
) -> FunctionTrigger:
    type_, when, transition = _OPERATIONS[operation]
    if not by_statement:
        type_, transition = type_ | ROW, {}
    condition = _ANY_BYTE if operation == "u" and is_whole and not by_statement else None
    referencing = " ".join(f"{row} TABLE AS {rows}" for row, rows in transition.items())
    lines = [
        f"CREATE TRIGGER {quote_identifier(name)}",
        f"{when} ON {qualified(*table)}",
        *([f"REFERENCING {referencing}"] if transition else []),
        f"FOR EACH {'STATEMENT' if by_statement else 'ROW'}",
        *([f"WHEN ({condition})"] if condition else []),
        f"EXECUTE FUNCTION {function}()",
    ]
    shown = [_ANY_BYTE_SHOWN] if condition else []
    return FunctionTrigger(
        name,
        operation,
        "\n".join(lines),
        None,
        table=table,
        type=type_,
        enabled=enabled,
        shape=" ".join([str(type_), enabled, *transition.values(), *shown]),
    )


# --- SQL statements -------------------------------------------------------------------------------


def table_sql(compiled: Sequence[CompiledFunction]) -> TableSql:
    """Return the SQL that creates all declared triggers of one table in a database without
    triggers, and the SQL that drops them.
    """
    first = compiled[0]
    table = qualified(*first.place)
    triggers = [
        f"DROP TRIGGER {quote_identifier(trigger.name)} ON {table}"
        for one in compiled
        for trigger in one.triggers
    ]
    partitioned = [one for one in compiled if one.declared.table.partitioned]
    functions = [
        statement
        for one in compiled
        for statement in (
            f"DROP FUNCTION {qualified(one.place[0], one.function.name)}()",
            f"DROP FUNCTION {qualified(*one.fits_function)}{FITS_ARGUMENTS}",
        )
    ]
    return TableSql(
        table=".".join(first.place),
        digest=digest_of(str(one.function.digest) for one in compiled),
        create=(
            *chain.from_iterable(one.make() for one in compiled),
            *(_partition_triggers(one, drop=False) for one in partitioned),
            *(one.hand_over for one in compiled),
        ),
        drop=(*triggers, *(_partition_triggers(one, drop=True) for one in partitioned), *functions),
    )


def settle(trigger: FunctionTrigger, marker: str) -> Iterable[str]:
    """Yield the statements that write the name of the log into a new trigger's comment, and that
    choose the sessions in which the trigger fires.
    """
    name, table = quote_identifier(trigger.name), qualified(*trigger.table)
    yield f"COMMENT ON TRIGGER {name} ON {table} IS {literal(marker)}"
    if trigger.enabled != "O":
        when = {"A": "ALWAYS", "R": "REPLICA"}[trigger.enabled]
        yield f"ALTER TABLE {table} ENABLE {when} TRIGGER {name}"


def _partition_triggers(compiled: CompiledFunction, *, drop: bool) -> str:
    """Return the statement that creates or drops the TRUNCATE triggers of present partitions."""
    return rendered(
        "partition_triggers.sql.j2",
        drop=drop,
        table=qualified(*compiled.place),
        function=qualified(compiled.place[0], compiled.function.name),
        marker=compiled.marker,
        always=any(
            trigger.type & TRUNCATE and trigger.enabled == "A" for trigger in compiled.triggers
        ),
        max_identifier=MAX_IDENTIFIER,
    ).rstrip()


_OPERATOR: Final = re.compile(r"OPERATOR\((.+)\.([^.]+)\)")


def _needs(
    facts: Facts, triggers: TableTriggers, moving: Iterable[ChildTriggers], function: str
) -> Mapping[str, Any]:
    """Return what a trigger function needs: relations with the right on each, operators outside of
    ``pg_catalog`` as schema and name, and the sequence that the configuration names.
    """
    place, log = facts.place_of(triggers), facts.log
    locked = [facts.place_of(child) for child in moving]
    read = sorted({*facts.read_by(triggers), *locked})
    written = [log.name]
    if isinstance(triggers, ChildTriggers):
        written += [log.deferred_table] if triggers.may_precede_owner else []
        pairs = _pairs(facts, facts.owner_of(triggers), triggers)
        operators = {operator for _, _, operator in pairs if operator is not None}
    else:
        operators = {_equality(facts, place, column) for column in triggers.key}
    names = [found.groups() for one in sorted(operators) if (found := _OPERATOR.fullmatch(one))]
    return {
        "function": (place[0], function),
        "relations": [
            *((log.schema, name, "INSERT") for name in written),
            *((*table, "SELECT") for table in read),
            *((*table, "UPDATE") for table in locked),
        ],
        "operators": [
            (schema[1:-1].replace('""', '"') if schema[0] == '"' else schema, name)
            for schema, name in names
            if schema != "pg_catalog"
        ],
        "sequence": None if log.sequence is None else qualified(*log.sequence),
    }


# --- bodies ---------------------------------------------------------------------------------------


def _guard(
    facts: Facts,
    triggers: TableTriggers,
    function: str,
    own: Sequence[Column],
    key: Sequence[Column],
    others: Iterable[tuple[TableName, Sequence[Column]]],
    *,
    reads_rows: bool,
) -> dict[str, object]:
    """Return the values of drifted.sql.j2: the facts on which the function relies, and how the
    function finds the key if these facts have changed.

    ``own`` are the columns of the table, ``key`` the columns that make the key of an object.
    ``others`` are further tables that the function reads, with their columns. ``reads_rows`` means
    that the function reads fields of OLD and NEW.
    """
    place, others = facts.place_of(triggers), list(others)
    is_child = isinstance(triggers, ChildTriggers)
    may_repeat = isinstance(triggers, ClassTriggers) and triggers.may_repeat
    fits_function = qualified(place[0], fits_name(function))
    values_by_type, value_of_others = key_values_by_type("changed_row.<column>")
    return {
        "table": qualified(*place),
        "schema": place[0],
        "name": place[1],
        "owner": qualified(*facts.owner_of(triggers))
        if isinstance(triggers, ChildTriggers)
        else "",
        "is_partitioned": triggers.table.partitioned,
        "may_repeat": may_repeat,
        "has_view_names": any(
            one.name != two.name for one, two in zip(triggers.key, triggers.log_key, strict=True)
        ),
        "fits_function": fits_function,
        "fits_signature": fits_function + FITS_ARGUMENTS,
        # A partition has the trigger of its root. So the check also receives the trigger function,
        # since the name of the root does not identify the partition.
        "caller": f"{qualified(place[0], function)}()",
        "names_itself": may_repeat or is_child or triggers.table.partitioned or bool(others),
        "reads_rows": reads_rows,
        "own": own,
        "key": key,
        "log_key": triggers.log_key,
        "others": [(qualified(*table), columns) for table, columns in others],
        "values_by_type": values_by_type,
        "value_of_others": value_of_others,
    }


def _class_body(
    facts: Facts,
    triggers: ClassTriggers,
    moving: Sequence[ChildTriggers],
    function: str,
    by_statement: frozenset[str],
) -> str:
    place = facts.place_of(triggers)
    return rendered(
        "class_body.sql.j2",
        log=_log_for(facts.log, triggers.class_name),
        guard=_guard(
            facts,
            triggers,
            function,
            (*triggers.key, *triggers.columns),
            triggers.key,
            [(facts.place_of(child), child.owner_columns) for child in moving],
            reads_rows=by_statement != frozenset(_OPERATIONS),
        ),
        table=relation(place[0], triggers.table),
        moving=[
            (relation(facts.place_of(child)[0], child.table), _pairs(facts, place, child))
            for child in moving
        ],
        columns=triggers.columns,
        names=triggers.log_names,
        insert_type=int(triggers.insert_type),
        update_type=int(triggers.update_type),
        by_row=triggers.insert_type == 5,
        by_value=triggers.insert_type == 1,
        by_statement=by_statement,
        may_repeat=triggers.may_repeat,
        is_partitioned=triggers.table.partitioned,
        # The columns of a primary key determine the partition.
        may_stand_elsewhere=triggers.may_repeat
        and {column.name for column in triggers.key} != set(triggers.table.primary_key),
        is_nullable=triggers.is_nullable,
        key=triggers.key,
        log_key=triggers.log_key,
        equality=[_equality(facts, place, column) for column in triggers.key],
        is_one_spelling=all(map(is_one_spelling, triggers.key)),
        is_there=all_there,
        large=[
            number
            for number, column in enumerate(triggers.columns)
            if triggers.insert_type == 1 and column.type.kind is Kind.BINARY
        ],
        max_bytes=triggers.watch.max_binary_bytes,
    )


def _child_body(
    facts: Facts, triggers: ChildTriggers, function: str, by_statement: frozenset[str]
) -> str:
    child = facts.place_of(triggers)
    owner_place = facts.owner_of(triggers)
    return rendered(
        "child_body.sql.j2",
        log=_log_for(facts.log, triggers.class_name),
        guard=_guard(
            facts,
            triggers,
            function,
            (*triggers.owner_columns, triggers.column),
            triggers.owner_columns,
            [(owner_place, triggers.key)],
            reads_rows=not by_statement,
        ),
        table=relation(child[0], triggers.table),
        event_type=int(triggers.event_type),
        by_value=triggers.by_value,
        attribute=triggers.attribute,
        by_statement=bool(by_statement),
        is_partitioned=triggers.table.partitioned,
        owner_columns=triggers.owner_columns,
        column=triggers.column,
        owner=relation(owner_place[0], triggers.owner),
        key=triggers.key,
        log_key=triggers.log_key,
        own_key=triggers.own_key,
        pairs=_pairs(facts, owner_place, triggers),
        is_one_spelling=triggers.is_spelled_alike(is_one_spelling),
        may_precede_owner=triggers.may_precede_owner,
        deferred=qualified(facts.log.schema, facts.log.deferred_table),
    )


def _pairs(
    facts: Facts, owner: TableName, triggers: ChildTriggers
) -> list[tuple[Column, Column, str | None]]:
    """Return each key column of an owner, the column of a child that refers to it, and the operator
    that compares the two columns; None = the texts of the columns are compared.
    """
    child = facts.place_of(triggers)

    def operator(key: Column, column: Column) -> str | None:
        by_key = facts.foreign_keys.get((*child, column.name, *owner, key.name))
        if by_key is not None:
            return by_key
        if key.type.sql == column.type.sql:
            return _equality(facts, owner, key)
        if Kind.OTHER not in (key.type.kind, column.type.kind):
            return "OPERATOR(pg_catalog.=)"
        return None

    return [
        (key, column, operator(key, column))
        for key, column in zip(triggers.key, triggers.owner_columns, strict=True)
    ]


def _equality(facts: Facts, table: TableName, column: Column) -> str:
    """Return the operator by which the key of a table compares values of one of its columns."""
    return facts.equality.get((*table, column.name), "OPERATOR(pg_catalog.=)")


def _log_for(log: LogTable, class_name: str) -> dict[str, str]:
    now_type = "pg_catalog.timestamptz" if log.has_zoned_time else "pg_catalog.timestamp"
    return {
        **trigger_words(log, class_name, new_time(is_zoned=log.has_zoned_time)),
        "now_type": now_type,
    }


# --- templates ------------------------------------------------------------------------------------


def _dollar_quoted(body: str) -> str:
    tag = first_free(lambda n: f"$eventlog{n if n > 1 else ''}$", body.__contains__)
    return f"{tag}{body}{tag}"


rendered: Final = template_renderer(
    __package__,
    "trigger_templates",
    filters={"identifier": quote_identifier, "literal": literal, "dollar_quoted": _dollar_quoted},
    globals={
        "is_changed": is_changed,
        "key_text": key_text,
        "quoted": quoted,
        "type_names": partial(map, type_name),
        "value_text": value_text,
        "field": field,
        "fields": fields,
        "numbered": lambda row, prefix, columns: [
            f"{row}.{prefix}{place}" for place, _ in enumerate(columns, 1)
        ],
        "all_null": lambda refs: (
            " AND ".join(f"{ref} IS NOT DISTINCT FROM NULL" for ref in refs) or "true"
        ),
        "leaves_here": "\0",
    },
)
