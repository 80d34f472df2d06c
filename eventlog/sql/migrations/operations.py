"""The operations ``op.create_event_log``, ``op.drop_event_log``, ``op.watch_table`` and
``op.unwatch_table``: how they run, and how they are written.

The operations are for users' own Alembic trees, which import ``eventlog.alembic``. A migration must
have the same effect at any later time. So a watch contains, as Python literals, its declaration and
the tables as they were when the migration was written. The same statements are run and, with
``alembic upgrade --sql``, printed. A function is created before the triggers that call it, and
dropped after them; the log exists before both.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar, Final

import sqlalchemy as sa
from alembic.autogenerate import renderers
from alembic.autogenerate.api import AutogenContext
from alembic.operations import MigrateOperation, Operations
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection

from eventlog.core.catalog import Column, Database, ForeignKey, Table, match_name
from eventlog.core.catalog.builder import build_catalog, complete_catalog
from eventlog.core.options import STYLES
from eventlog.core.values import ColumnType, Kind
from eventlog.errors import ConfigError, TriggerError
from eventlog.sql.connect.locate import new_log
from eventlog.sql.migrations import downgrade, run_or_print, upgrade
from eventlog.sql.port.dialect import Dialect
from eventlog.sql.port.driver_errors import as_database_errors, load_dialect
from eventlog.sql.triggers import FactLiterals, TableSql, triggers_of
from eventlog.sql.triggers.watch import WatchedTable

_Literals = Mapping[str, Any]

_log = logging.getLogger("eventlog.alembic")

TEMPLATE_VERSION: Final = 1
"""The version of the SQL templates. Operations name it, so a later release can add a version."""


# --- the declaration of a watch -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WatchDefinition:
    """A watch with everything that is needed to compile it."""

    watch: WatchedTable
    log: str
    log_schema: str | None
    """The name and the schema of the log."""
    schema: str | None
    """The schema of the watched tables, None if the database has no schemas."""
    tables: tuple[Table, ...] | None
    """The class's own table and its child tables or base tables, None = as the database has them
    when the migration runs.
    """
    template_version: int = TEMPLATE_VERSION
    facts: FactLiterals = field(default_factory=dict)
    """Further facts about the tables. The dialect's SQL depends on these facts."""

    def arguments(self) -> tuple[str, dict[str, Any]]:
        """Return the first argument of the operation's call in a migration, and the keywords that
        differ from their default.
        """
        keywords = {
            **_unusual(self.watch, WatchedTable(self.watch.table)),
            "log": self.log,
            "log_schema": self.log_schema,
            "schema": self.schema,
            "tables": _plain(self.tables),
            "facts": _plain(self.facts) or None,
            "template_version": self.template_version,
        }
        return self.watch.table, {
            name: value for name, value in keywords.items() if value is not None
        }


def compile_definition(definition: WatchDefinition, dialect_name: str) -> tuple[TableSql, ...]:
    """Return the SQL of a watch, table by table.

    Raises TriggerError for an impossible watch, and ConfigError for an unknown version of the
    templates.
    """
    assert definition.tables is not None
    if definition.template_version != TEMPLATE_VERSION:
        raise ConfigError(
            f"watch {definition.watch.table}: template_version {definition.template_version} is "
            f"unknown; this version supports only {TEMPLATE_VERSION}. If a newer eventlog wrote "
            "the migration, install that version"
        )
    dialect = load_dialect(dialect_name)
    log = new_log(dialect, definition.log_schema or definition.schema, definition.log)
    database = Database(dialect.name, definition.schema, definition.tables)
    catalog = complete_catalog(build_catalog(database, tables=[definition.watch.table]))
    return triggers_of(dialect).compile(
        database, catalog, log, (definition.watch,), definition.facts
    )


def with_facts(
    definition: WatchDefinition, dialect: Dialect, conn: Connection, database: Database
) -> WatchDefinition:
    """Return the definition, with its tables and facts read from the database.

    Raises TriggerError as ``with_tables`` does.
    """
    definition = with_tables(definition, database)
    log = new_log(dialect, definition.log_schema or definition.schema, definition.log)
    tables = [table.name for table in definition.tables or ()]
    facts = triggers_of(dialect).facts(dialect.open(conn).log(log), database, tables)
    return replace(definition, facts=facts)


def with_tables(definition: WatchDefinition, database: Database) -> WatchDefinition:
    """Return the definition with the tables that its watch needs, as ``database`` has them.

    Raises TriggerError if the table is missing or cannot be a class.
    """
    present = {table.name: table for table in database.tables}
    name = match_name(definition.watch.table, present)
    if name is None:
        raise TriggerError(
            f"watch {definition.watch.table}: there is no such table; create it before it is "
            "watched"
        )
    try:
        cls = complete_catalog(build_catalog(database, tables=[name])).classes[0]
    except ConfigError as error:
        raise TriggerError(f"watch {name}: {error}") from error
    needed = [present[name], *(child.table for child in cls.children)]
    for base in definition.watch.base or ():
        base_name = match_name(base, present)
        if base_name is None:
            raise TriggerError(
                f"watch {name}: there is no base table {base!r} in the schema of the view"
            )
        needed.append(present[base_name])
    return replace(definition, schema=database.schema, tables=tuple(needed))


# --- definitions as literals ----------------------------------------------------------------------

WATCH_OPTIONS: Final = tuple(one.name for one in fields(WatchedTable) if one.name != "table")
"""The options of a watch besides its table."""


def from_literals(table: str, arguments: _Literals) -> WatchDefinition:
    """Return the definition that ``op.watch_table(table, **arguments)`` declares. Raises
    TriggerError for an unknown argument.
    """
    others = dict(arguments)
    tables = others.pop("tables", None)
    definition = WatchDefinition(
        watch=watch_of(table, {name: others.pop(name) for name in WATCH_OPTIONS if name in others}),
        log=others.pop("log", "eventlog"),
        log_schema=others.pop("log_schema", None),
        schema=others.pop("schema", None),
        tables=None if tables is None else tuple(map(_table_from_literals, tables)),
        template_version=others.pop("template_version", TEMPLATE_VERSION),
        facts=others.pop("facts", {}),
    )
    if others:
        raise TriggerError(f"watch_table({table!r}): unknown argument {min(others)!r}")
    return definition


def watch_of(table: str, options: _Literals) -> WatchedTable:
    """Return a watch with these options. The options are some of ``WATCH_OPTIONS``, as a migration
    contains them: with lists in place of tuples. Raises TriggerError for an unknown style.
    """
    legal = {"row_style": tuple(STYLES), "trigger_level": ("row", "statement")}
    for name, values in legal.items():
        if options.get(name, values[0]) not in values:
            raise TriggerError(
                f"watch {table}: {name} {options[name]!r} is not one of {', '.join(values)}"
            )
    arguments: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in options.items()
    }
    return WatchedTable(table, **arguments)


def _plain(value: Any) -> Any:
    """Return a value in a form that consists of Python literals."""
    match value:
        case Table():
            return {
                "name": value.name,
                "columns": [],
                **_unusual(value, Table(value.name, "table", ())),
            }
        case Column(name, column_type):
            is_coarse = {} if value.deterministic else {"deterministic": False}
            bits = {"bits": column_type.bits} if column_type.bits else {}
            return {
                "name": name,
                "type": column_type.sql,
                "kind": column_type.kind.value,
                **bits,
                **is_coarse,
            }
        case ForeignKey():
            literals = _plain(asdict(value))
            return {name: one for name, one in literals.items() if one is not False}
        case Mapping():
            return {str(key): _plain(one) for key, one in value.items()}
        case tuple() | list():
            return [_plain(one) for one in value]
    return value


def _unusual(value: WatchedTable | Table, usual: WatchedTable | Table) -> dict[str, Any]:
    """Return the fields that differ from the fields of ``usual``, as literals."""
    names = [one.name for one in fields(value)]
    return {
        name: _plain(getattr(value, name))
        for name in names
        if getattr(value, name) != getattr(usual, name)
    }


def _table_from_literals(value: _Literals) -> Table:
    try:
        return Table(
            name=value["name"],
            kind=value.get("kind", "table"),
            columns=tuple(map(_column_from_literals, value["columns"])),
            primary_key=tuple(value.get("primary_key", ())),
            foreign_keys=tuple(
                ForeignKey(
                    tuple(key["columns"]),
                    key["table"],
                    tuple(key["ref_columns"]),
                    key.get("deferrable", False),
                )
                for key in value.get("foreign_keys", ())
            ),
            unique_keys=tuple(tuple(key) for key in value.get("unique_keys", ())),
            key_deferrable=value.get("key_deferrable", False),
            partitioned=value.get("partitioned", False),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise TriggerError(
            f"watch_table: {error} of `tables` is missing or invalid; let autogenerate write it"
        ) from error


def _column_from_literals(value: _Literals) -> Column:
    column_type = ColumnType(Kind(value["kind"]), value.get("bits", 0), value["type"])
    return Column(value["name"], column_type, value.get("deterministic", True))


# --- the operations -------------------------------------------------------------------------------


class _LogOperation(MigrateOperation):
    """An operation on a log, with all that is needed to create it or to bring it up to date.

    ``log`` has the form of ``log_table`` in the configuration; ``schema`` None is the current
    schema. ``revisions`` belong to eventlog's own migrations, one for each branch; none
    = the newest. ``before`` are the revisions that the log had reached; none = there was no log.
    """

    name: ClassVar[str]

    def __init__(
        self,
        log: str,
        schema: str | None,
        revisions: Sequence[str] = (),
        before: Sequence[str] = (),
    ) -> None:
        self.log = log
        self.schema = schema
        self.revisions = tuple(revisions)
        self.before = tuple(before)

    def to_diff_tuple(self) -> tuple[Any, ...]:
        return self.name, self.log, self.schema

    def arguments(self) -> tuple[str, dict[str, Any]]:
        """Return the first argument of the operation's call in a migration, and its keywords."""
        keywords = {
            "schema": self.schema,
            "revisions": list(self.revisions),
            "before": list(self.before),
        }
        return self.log, {name: value for name, value in keywords.items() if value}


class _WatchOperation(MigrateOperation):
    """An operation on the triggers of a class.

    The reverse of an operation holds the same definition, so that it can be reversed again.
    """

    name: ClassVar[str]

    def __init__(self, definition: WatchDefinition) -> None:
        self.definition = definition

    def to_diff_tuple(self) -> tuple[Any, ...]:
        return self.name, self.definition.watch.table, self.definition.log


@Operations.register_operation("create_event_log")
class CreateEventLogOp(_LogOperation):
    """The creation of the log with its internal tables, up to ``revisions``."""

    name = "create_event_log"

    @classmethod
    def create_event_log(
        cls,
        operations: Operations,
        log: str = "eventlog",
        *,
        schema: str | None = None,
        revisions: Sequence[str] = (),
        before: Sequence[str] = (),
    ) -> None:
        """Create the log and its internal tables (spec/event-log.md 1, 10), or bring them up to
        ``revisions``.

        ``schema`` None is the current schema. ``revisions`` belong to eventlog's own migrations,
        one for each branch. Name them, as autogenerate does, so that the migration has the same
        effect with a later eventlog; none = the newest. ``before`` are the revisions that the log
        had reached; the reverse operation restores them. Raises LogTableError, DatabaseError.
        """
        operations.invoke(cls(log, schema, revisions, before))

    def reverse(self) -> DropEventLogOp:
        return DropEventLogOp(self.log, self.schema, self.revisions, self.before)


@Operations.register_operation("drop_event_log")
class DropEventLogOp(_LogOperation):
    """The removal of the log: the reverse of ``CreateEventLogOp``."""

    name = "drop_event_log"

    @classmethod
    def drop_event_log(
        cls,
        operations: Operations,
        log: str = "eventlog",
        *,
        schema: str | None = None,
        revisions: Sequence[str] = (),
        before: Sequence[str] = (),
    ) -> None:
        """Drop the log with its rows and internal tables; with ``before`` only downgrade it to
        these revisions.

        Unwatch the watched tables first: triggers without a log make the application's statements
        fail. The arguments are as in ``create_event_log``.
        """
        operations.invoke(cls(log, schema, revisions, before))

    def reverse(self) -> CreateEventLogOp:
        return CreateEventLogOp(self.log, self.schema, self.revisions, self.before)


@Operations.register_operation("watch_table")
class WatchTableOp(_WatchOperation):
    """The creation of the triggers of a class and of its child tables or base tables."""

    name = "watch_table"

    @classmethod
    def watch_table(cls, operations: Operations, table: str, **definition: Any) -> None:
        """Create the triggers that log a table, its child tables, or a view's base tables
        (spec/triggers.md 1 to 3).

        ``row_style``, ``trigger_level``, ``columns``, ``exclude``, ``base`` and the other options
        are as in ``[[watch]]``. ``log`` and ``log_schema`` name the log, by default ``eventlog`` in
        the watched table's schema. ``schema`` is the schema of the table, None = the connection's
        current schema. ``tables`` are the tables as they are at this point of the migrations, None
        = they are reflected when the migration runs. ``facts`` has everything else on which the
        database's SQL depends. ``template_version`` is the version of the SQL templates; 1 is the
        only version. Autogenerate writes ``tables``, ``facts`` and ``template_version``, so that a
        migration does the same at any later time. Raises TriggerError, ConfigError, DatabaseError.
        """
        operations.invoke(cls(from_literals(table, definition)))

    def reverse(self) -> UnwatchTableOp:
        return UnwatchTableOp(self.definition)


@Operations.register_operation("unwatch_table")
class UnwatchTableOp(_WatchOperation):
    """The removal of the triggers of a watch: the reverse of ``WatchTableOp``."""

    name = "unwatch_table"

    @classmethod
    def unwatch_table(cls, operations: Operations, table: str, **definition: Any) -> None:
        """Remove the triggers that ``watch_table`` made with the same arguments."""
        operations.invoke(cls(from_literals(table, definition)))

    def reverse(self) -> WatchTableOp:
        return WatchTableOp(self.definition)


# --- the implementations --------------------------------------------------------------------------


@Operations.implementation_for(WatchTableOp)
def _watch_table(operations: Operations, operation: WatchTableOp) -> None:
    context = operations.migration_context
    for table in compile_definition(complete(context, operation.definition), context.dialect.name):
        run_or_print(context, table.create)


@Operations.implementation_for(UnwatchTableOp)
def _unwatch_table(operations: Operations, operation: UnwatchTableOp) -> None:
    context = operations.migration_context
    for table in reversed(
        compile_definition(complete(context, operation.definition), context.dialect.name)
    ):
        run_or_print(context, table.drop)


@Operations.implementation_for(CreateEventLogOp)
def _create_event_log(operations: Operations, operation: CreateEventLogOp) -> None:
    context = operations.migration_context
    with _own_migrations(operations) as printed:
        revoked = upgrade(
            context.bind,
            log_table=operation.log,
            schema=operation.schema,
            revision=operation.revisions or "head",
            sql=printed,
            dialect_name=context.dialect.name,
        )
    for statement in revoked:
        _log.warning("revoked what default privileges gave; to give it back: %s", statement)


@Operations.implementation_for(DropEventLogOp)
def _drop_event_log(operations: Operations, operation: DropEventLogOp) -> None:
    context = operations.migration_context
    if operation.before and context.as_sql:
        raise ConfigError(
            f"drop_event_log({operation.log!r}) with `before` cannot be printed as SQL: run the "
            "migration against the database"
        )
    with _own_migrations(operations) as printed:
        for revision in operation.before or ("base",):
            downgrade(
                context.bind,
                log_table=operation.log,
                schema=operation.schema,
                revision=revision,
                sql=printed,
                dialect_name=context.dialect.name,
                reached=operation.revisions,
            )


def complete(context: MigrationContext, definition: WatchDefinition) -> WatchDefinition:
    """Return the definition with its schemas and tables. What is missing is read from the database.

    Raises TriggerError if there is no database to read from.
    """
    dialect = load_dialect(context.dialect.name)
    if definition.tables is None:
        if context.as_sql:
            raise TriggerError(
                f"watch_table({definition.watch.table!r}) without `tables` would read them from "
                "the database, but --sql has none: let autogenerate write `tables`"
            )
        with as_database_errors(_bind(context)):
            database = dialect.open(_bind(context)).reflect(definition.schema)
        definition = with_facts(definition, dialect, _bind(context), database)
    if definition.schema is None and "schemas" in dialect.capabilities:
        current = None if context.as_sql else sa.inspect(_bind(context)).default_schema_name
        if current is None:
            raise TriggerError(f"watch_table({definition.watch.table!r}) needs `schema` with --sql")
        definition = replace(definition, schema=current)
    return definition


# --- running within a migration -------------------------------------------------------------------


def _bind(context: MigrationContext) -> Connection:
    assert context.bind is not None
    return context.bind


@contextmanager
def _own_migrations(operations: Operations) -> Iterator[io.StringIO | None]:
    """Let eventlog's own migrations run within a user's migration; ``alembic.op`` and
    ``alembic.context`` are restored at the end.

    Yields the buffer for the SQL of the migrations, None = the migrations are run.
    """
    context = operations.migration_context
    environment, printed = context.environment_context, io.StringIO() if context.as_sql else None
    try:
        yield printed
    finally:
        operations._install_proxy()
        if environment is not None:
            environment._install_proxy()
    if printed is not None:  # a script within a script: it is part of the outer one's transaction
        lines = [
            line
            for line in printed.getvalue().splitlines()
            if line.rstrip() not in ("BEGIN;", "COMMIT;")
        ]
        context.impl.static_output("\n".join(lines).strip())


# --- operations as code in a migration -----------------------

_WIDTH: Final = 100


@renderers.dispatch_for(CreateEventLogOp)
@renderers.dispatch_for(DropEventLogOp)
@renderers.dispatch_for(WatchTableOp)
@renderers.dispatch_for(UnwatchTableOp)
def _render(context: AutogenContext, operation: _LogOperation | _WatchOperation) -> str:
    context.imports.add("import eventlog.alembic  # noqa: F401 - its operations")
    described = operation if isinstance(operation, _LogOperation) else operation.definition
    first, keywords = described.arguments()
    lines = [
        f"{context.opts.get('alembic_module_prefix') or ''}{operation.name}(",
        f"    {first!r},",
    ]
    for name, value in keywords.items():
        lines += _literal(f"{name}=", value, "    ")
    return "\n".join([*lines, ")"])


def _literal(beginning: str, value: Any, indent: str) -> list[str]:
    """Return a value as lines of Python. Lines have at most ``_WIDTH`` characters, as far as the
    value can be divided.
    """
    whole = f"{indent}{beginning}{value!r},"
    if len(whole) <= _WIDTH or not isinstance(value, list | dict) or not value:
        return [whole]
    deeper = indent + "    "
    if isinstance(value, dict):
        inner = [line for key, one in value.items() for line in _literal(f"{key!r}: ", one, deeper)]
        return [f"{indent}{beginning}{{", *inner, f"{indent}}},"]
    inner = [line for one in value for line in _literal("", one, deeper)]
    return [f"{indent}{beginning}[", *inner, f"{indent}],"]
