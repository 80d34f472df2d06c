"""Autogenerate: compare the declared watches with the hashes in the database, and return the
differences as operations.

Watches are compiled for the tables as they will be: the operations that Alembic has found so far
are run in a savepoint, which is rolled back. If DDL is not transactional, a migration that changes
tables reflects them when it runs.
"""

from __future__ import annotations

import ast
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from alembic.autogenerate import comparators
from alembic.autogenerate.api import AutogenContext
from alembic.operations import MigrateOperation, Operations
from alembic.operations.ops import ModifyTableOps, UpgradeOps
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy.exc import SQLAlchemyError

from eventlog.core.catalog import Database
from eventlog.core.catalog.builder import build_catalog
from eventlog.errors import EventlogError, LogTableError, TriggerError
from eventlog.sql import migrations
from eventlog.sql.connect.locate import new_log
from eventlog.sql.migrations.operations import (
    WATCH_OPTIONS,
    CreateEventLogOp,
    UnwatchTableOp,
    WatchDefinition,
    WatchTableOp,
    compile_definition,
    from_literals,
    watch_of,
    with_facts,
    with_tables,
)
from eventlog.sql.port.driver_errors import load_dialect
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.quoted_names import quoted
from eventlog.sql.port.sql_files import quote_identifier, run_as_it_stands
from eventlog.sql.triggers import triggers_of
from eventlog.sql.triggers.watch import WatchedTable

_log = logging.getLogger("eventlog.alembic")

OPTION: Final = "eventlog"
"""The option of ``context.configure`` that holds a ``Declared``, and the key of a declaration in a
table's ``info``.
"""

_INFO: Final = tuple(name for name in WATCH_OPTIONS if name != "base")
"""The settings that a table's ``info`` may have. Settings for views are missing, since a view is
not a table of the models.
"""


@dataclass(frozen=True, slots=True)
class Declared:
    """The declared state of the database."""

    log: str = "eventlog"
    """The log, which may be in ``log_schema``."""
    log_schema: str | None = None
    schema: str | None = None
    """The schema of the watched tables, None = the connection's current schema."""
    watches: tuple[WatchedTable, ...] = ()
    """The watches in addition to the declarations in the tables' ``info``."""


@dataclass(frozen=True, slots=True)
class _Case:
    """The data of one comparison: context and log. ``before`` are the tables as they are
    now.
    """

    context: AutogenContext
    log: OpenLog
    before: Database


@dataclass(frozen=True, slots=True, eq=False)
class _Compiled:
    """A watch and the hashes of its compiled tables, by table.

    ``tables`` is empty if the tables are unknown until the migration runs.
    """

    definition: WatchDefinition
    tables: Mapping[str, str]

    def is_installed(self, digests: Mapping[str, str]) -> bool:
        """Return True if the tables are known, and their installed triggers have these hashes."""
        return bool(self.tables) and all(
            digests.get(table) == digest for table, digest in self.tables.items()
        )


def _compare_watches(
    context: AutogenContext, upgrade_ops: UpgradeOps, _schemas: Iterable[str | None]
) -> None:
    """Add the operations that bring log and triggers to the declared state.

    Raises TriggerError for an impossible watch.
    """
    declared: Declared | None = context.opts.get(OPTION)
    if declared is None:
        return
    assert context.connection is not None
    dialect = load_dialect(context.connection.dialect.name)
    db = dialect.open(context.connection)
    before = db.reflect(declared.schema)
    log = new_log(dialect, declared.log_schema or before.schema, declared.log)
    case = _Case(context, db.log(log), before)
    watches = (*declared.watches, *_watches_of_tables(case))
    changes = list(upgrade_ops.ops)
    wanted = [_compile(case, definition) for definition in _definitions(case, watches, changes)]
    _refuse_shared(wanted)
    to_drop, to_make = _differences(case, wanted)
    first = [
        *(_log_operations(case) if watches else ()),
        *(UnwatchTableOp(one.definition) for one in to_drop),
    ]
    last = [WatchTableOp(one.definition) for one in to_make]
    upgrade_ops.ops[:] = [*first, *changes, *last]
    for operation in (*first, *last):
        _log.info(
            "Detected %s",
            " ".join(str(part) for part in operation.to_diff_tuple() if part is not None),
        )


try:
    from alembic.util import DispatchPriority
except ImportError:
    # Before Alembic 1.18 comparisons run in the order of registration, Alembic's own first.
    comparators.dispatch_for("schema")(_compare_watches)
else:
    comparators.dispatch_for("schema", priority=DispatchPriority.LAST)(_compare_watches)


def _differences(
    case: _Case, wanted: Sequence[_Compiled]
) -> tuple[list[_Compiled], list[_Compiled]]:
    """Return two lists: the watches to remove, in the form in which they were created, and the
    watches to create. A changed watch is in both lists.
    """
    installed: Mapping[str, str] = {}
    with suppress(LogTableError):
        installed = triggers_of(case.log.dialect).digests(case.log)
    history = _history(case)
    to_make = [one for one in wanted if not one.is_installed(installed)]
    declared = {table for one in wanted for table in one.tables}
    to_drop = _makers(
        case, history, to_make, [table for table in installed if table not in declared]
    )
    for one in wanted:
        # A former child table is removed together with all tables of its watch.
        if one not in to_make and any(one.tables.keys() & other.tables.keys() for other in to_drop):
            to_make.append(one)
    dropped = {table for one in to_drop for table in one.tables}
    here = {table for one in to_make for table in one.tables}
    to_drop += _makers(
        case, history, to_make, [table for table in installed if table in here - dropped]
    )
    return to_drop, to_make


# --- the declarations -----------------------------------------------------------------------------


def _watches_of_tables(case: _Case) -> Iterable[WatchedTable]:
    """Yield the watches in the ``info`` of the models' tables: ``info={"eventlog": {"row_style":
    "field"}}``, or True in place of the settings.
    """
    current = case.log.connection.dialect.default_schema_name
    for table in case.context.sorted_tables:
        declared = table.info.get(OPTION)
        if not declared or (
            case.before.schema is not None and (table.schema or current) != case.before.schema
        ):
            continue
        settings: Mapping[str, Any] = {} if declared is True else declared
        for name in settings:
            if name not in _INFO:
                raise TriggerError(
                    f"info of table {table.name}: unknown setting {name!r}; use {', '.join(_INFO)}"
                )
        yield watch_of(case.log.dialect.spelled(str(table.name)), settings)


def _definitions(
    case: _Case, watches: Sequence[WatchedTable], changes: Sequence[MigrateOperation]
) -> list[WatchDefinition]:
    """Return the watches with the tables as they are after ``changes``, or without tables if these
    cannot be determined.
    """
    if not changes:
        return [_definition(case, watch, case.before) for watch in watches]
    if "transactional_ddl" in case.log.dialect.capabilities:
        try:
            return _tried_out(case, watches, changes)
        # Alembic raises NotImplementedError for a change that the database cannot make (ALTER of
        # SQLite).
        except (SQLAlchemyError, CommandError, NotImplementedError) as error:
            _log.warning(
                "cannot run the pending operations in a trial transaction, so the migration will "
                "read the watched tables when it runs: %s",
                error,
            )
    return [_definition_by_names(case, watch, changes) for watch in watches]


def _definition(case: _Case, watch: WatchedTable, tables: Database | None) -> WatchDefinition:
    """Return a watch with its tables; without ``tables`` they are reflected at run time."""
    definition = WatchDefinition(
        watch, case.log.table.name, case.log.table.schema, case.before.schema, None
    )
    return (
        definition
        if tables is None
        else with_facts(definition, case.log.dialect, case.log.connection, tables)
    )


def _definition_by_names(
    case: _Case, watch: WatchedTable, changes: Sequence[MigrateOperation]
) -> WatchDefinition:
    """Return a watch with its present tables if no change names them; else the migration reflects
    them when it runs.
    """
    changed = {getattr(operation, "table_name", None) for operation in changes}
    with suppress(TriggerError):
        complete = _definition(case, watch, case.before)
        if not any(table.name in changed for table in complete.tables or ()):
            return complete
    return _definition(case, watch, None)


def _tried_out(
    case: _Case, watches: Sequence[WatchedTable], changes: Sequence[MigrateOperation]
) -> list[WatchDefinition]:
    """Return the watches with the tables as they are after ``changes``, which are rolled back."""
    operations = Operations(case.context.migration_context)
    savepoint = case.log.connection.begin_nested()
    try:
        # A table with triggers that name its columns cannot be changed, so the triggers are dropped
        # first, as in the migration.
        with suppress(LogTableError):
            for action in triggers_of(case.log.dialect).plan_drop(case.log).changes:
                for statement in action.statements:
                    run_as_it_stands(case.log.connection, statement)
        for change in changes:
            for operation in change.ops if isinstance(change, ModifyTableOps) else [change]:
                operations.invoke(operation)
        after = case.log.dialect.open(case.log.connection).reflect(case.before.schema)
        return [_definition(case, watch, after) for watch in watches]
    finally:
        savepoint.rollback()


def _compile(case: _Case, definition: WatchDefinition) -> _Compiled:
    if definition.tables is None:
        return _Compiled(definition, {})
    compiled = compile_definition(definition, case.log.dialect.name)
    return _Compiled(definition, {table.table: table.digest for table in compiled})


def _refuse_shared(wanted: Sequence[_Compiled]) -> None:
    owners: dict[str, str] = {}
    for one in wanted:
        watched = one.definition.watch.table
        for table in one.tables:
            if owners.setdefault(table, watched) != watched:
                raise TriggerError(
                    f"{table} feeds both {owners[table]} and {watched}, but an operation makes the "
                    "triggers of a table for only one watch; use `eventlog triggers apply` for "
                    "these watches"
                )


# --- the present state ----------------------------------------------------------------------------


def _log_operations(case: _Case) -> Iterable[MigrateOperation]:
    """Yield the operation that makes the log, or that brings a log of eventlog up to date."""
    name = (
        quote_identifier(case.log.table.name)
        if set('."') & set(case.log.table.name)
        else case.log.table.name
    )
    reached = migrations.current(case.log.connection, log_table=name, schema=case.log.table.schema)
    newest = migrations.heads()
    migrations.refuse_unknown(case.log.table, reached)
    exists = sa.inspect(case.log.connection).has_table(
        quoted(case.log.table.name), case.log.table.schema
    )
    if not (set(reached) >= set(newest) or (exists and not reached)):
        yield CreateEventLogOp(name, case.log.table.schema, newest, reached)


def _history(case: _Case) -> list[_Compiled]:
    """Return the watches of this log, according to the migrations that the database has reached."""
    migration = case.context.migration_context
    if migration.environment_context is None or migration.script is None:
        return []
    compiled = []
    for one in _watches_in_force(migration.script, migration.get_current_heads()):
        schema = one.schema or case.before.schema
        definition = replace(one, schema=schema, log_schema=one.log_schema or schema)
        if (definition.log, definition.log_schema) != (case.log.table.name, case.log.table.schema):
            continue
        with suppress(TriggerError):  # the table is gone, and the migration does not describe it
            if definition.tables is None:
                definition = with_tables(definition, case.before)
            compiled.append(_compile(case, definition))
    return compiled


def _makers(
    case: _Case, history: Sequence[_Compiled], wanted: Sequence[_Compiled], tables: Collection[str]
) -> list[_Compiled]:
    """Return the watches that created the triggers of these tables, each with all of its tables."""
    left = set(tables)
    makers = []
    for one in history:
        if left & one.tables.keys():
            makers.append(one)
            left -= one.tables.keys()
    while left:
        one = _guessed(case, wanted, left)
        _log.warning(
            "no migration created the triggers of %s. The downgrade will create them from the "
            "watch that is declared now",
            min(left),
        )
        makers.append(one)
        left -= one.tables.keys()
    return makers


def _guessed(case: _Case, wanted: Sequence[_Compiled], tables: Collection[str]) -> _Compiled:
    """Return the likely watch of a table whose triggers `eventlog triggers apply` created, since no
    migration watches it.
    """
    classes = build_catalog(case.before, ignore=case.log.table.own_tables).classes
    declared = [one.definition.watch for one in wanted]
    for watch in (*declared, *(WatchedTable(cls.name) for cls in classes)):
        with suppress(EventlogError):
            one = _compile(case, _definition(case, watch, case.before))
            if one.tables.keys() & set(tables):
                return one
    raise TriggerError(
        f"the triggers of {min(tables)} do not belong to any class of the schema: remove them "
        "with `eventlog triggers drop`"
    )


# --- the watches that the migrations of a tree have made ------------------------------------------

# The database has only the hash of the compiled watch. The declaration is in the migrations as
# literals, and is parsed from their text without running them.

_CALLS: Final = ("watch_table", "unwatch_table")


def _watches_in_force(scripts: ScriptDirectory, heads: tuple[str, ...]) -> list[WatchDefinition]:
    """Return the watches that are in force after the upgrades up to ``heads``, oldest first; calls
    without literals are skipped.
    """
    in_force: dict[tuple[str, str | None, str], WatchDefinition] = {}
    revisions = list(scripts.iterate_revisions(heads, "base")) if heads else []
    for script in reversed(revisions):
        for name, definition in _calls(Path(script.path)):
            place = (definition.log, definition.schema, definition.watch.table)
            in_force.pop(place, None)
            if name == "watch_table":
                in_force[place] = definition
    return list(in_force.values())


def _calls(path: Path) -> Iterator[tuple[str, WatchDefinition]]:
    """Yield the calls of ``op.watch_table`` and ``op.unwatch_table`` in the upgrade of a migration,
    in their order.
    """
    module = ast.parse(path.read_text(encoding="utf-8"))
    upgrades = [
        node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == "upgrade"
    ]
    calls = [
        node for upgrade in upgrades for node in ast.walk(upgrade) if isinstance(node, ast.Call)
    ]
    for call in sorted(calls, key=lambda node: (node.lineno, node.col_offset)):
        if not (isinstance(call.func, ast.Attribute) and call.func.attr in _CALLS):
            continue
        with suppress(ValueError, TypeError, TriggerError):
            (table,) = map(ast.literal_eval, call.args)
            arguments = {
                word.arg: ast.literal_eval(word.value)
                for word in call.keywords
                if word.arg is not None
            }
            yield call.func.attr, from_literals(table, arguments)
