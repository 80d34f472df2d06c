"""``op.create_event_log``, ``op.drop_event_log``, ``op.watch_table``, ``op.unwatch_table``, as run and as written.

A function is made before the triggers that call it, and goes after them; the log is there before all of them. The same
statements are run and, with ``alembic upgrade --sql``, printed.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar, Final, Generic, TypeVar

import sqlalchemy as sa
from alembic.autogenerate import renderers
from alembic.autogenerate.api import AutogenContext
from alembic.operations import MigrateOperation, Operations
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection

from eventlog.errors import ConfigError, TriggerError
from eventlog.sql import migrations
from eventlog.sql.alembic.definition import (
    LogDefinition,
    WatchDefinition,
    compile_definition,
    from_literals,
    with_facts,
)
from eventlog.sql.connection import as_database_errors, load_dialect
from eventlog.sql.migrations import run_or_print

Definition = TypeVar("Definition", LogDefinition, WatchDefinition)


class _Operation(MigrateOperation, Generic[Definition]):
    """An operation on a log, or on the triggers of a class.

    Its way back holds the same definition, so that it can be turned round again.
    """

    name: ClassVar[str]

    def __init__(self, definition: Definition) -> None:
        self.definition: Definition = definition

    def to_diff_tuple(self) -> tuple[Any, ...]:
        return (self.name, *self.definition.label)


@Operations.register_operation("create_event_log")
class CreateEventLogOp(_Operation[LogDefinition]):
    """The log with its companions, as far as its ``revisions``."""

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
        """Make the log and its companion tables (spec/event-log.md 1, 10), or bring them up to ``revisions``.

        ``schema`` None: the connection's current one. ``revisions``: of eventlog's own migrations, one a branch; name
        them, as autogenerate does, so that the migration does the same with a later eventlog; none = the newest.
        ``before``: what the log had reached, for the way back. Raises LogTableError, DatabaseError.
        """
        operations.invoke(cls(LogDefinition(log, schema, tuple(revisions), tuple(before))))

    def reverse(self) -> DropEventLogOp:
        return DropEventLogOp(self.definition)


@Operations.register_operation("drop_event_log")
class DropEventLogOp(_Operation[LogDefinition]):
    """The way back of ``CreateEventLogOp``."""

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
        """Drop the log with its rows and companions; with ``before`` only take it back to these revisions.

        Unwatch its tables first: triggers without a log fail the application's statements. Arguments as of
        ``create_event_log``.
        """
        operations.invoke(cls(LogDefinition(log, schema, tuple(revisions), tuple(before))))

    def reverse(self) -> CreateEventLogOp:
        return CreateEventLogOp(self.definition)


@Operations.register_operation("watch_table")
class WatchTableOp(_Operation[WatchDefinition]):
    """The triggers of a class and of its child tables or base tables."""

    name = "watch_table"

    @classmethod
    def watch_table(cls, operations: Operations, table: str, **definition: Any) -> None:
        """Make the triggers that log a table, its child tables, or a view's base tables (spec/triggers.md 1 to 3).

        ``style``, ``capture``, ``columns``, ``exclude``, ``base`` and the others as in ``[[watch]]``;
        ``log``, ``log_schema``: where they write, by default ``eventlog`` in the watched table's schema; ``schema`` of
        the table, None = the connection's current one. ``tables``: the tables as they are at this place in the
        migrations, None = they are reflected when it runs; ``facts``: what else the database's SQL depends on;
        ``template_version``: of the SQL templates. Autogenerate writes these, and with them the SQL is the same for
        ever. Raises TriggerError, ConfigError, DatabaseError.
        """
        operations.invoke(cls(from_literals(table, definition)))

    def reverse(self) -> UnwatchTableOp:
        return UnwatchTableOp(self.definition)


@Operations.register_operation("unwatch_table")
class UnwatchTableOp(_Operation[WatchDefinition]):
    """The way back of ``WatchTableOp``."""

    name = "unwatch_table"

    @classmethod
    def unwatch_table(cls, operations: Operations, table: str, **definition: Any) -> None:
        """Take away the triggers that ``watch_table`` made with the same arguments."""
        operations.invoke(cls(from_literals(table, definition)))

    def reverse(self) -> WatchTableOp:
        return WatchTableOp(self.definition)


# --- what they do -----------------------------------------------------------------------------------------------------


@Operations.implementation_for(WatchTableOp)
def _watch_table(operations: Operations, operation: WatchTableOp) -> None:
    context = operations.migration_context
    for table in compile_definition(complete(context, operation.definition), context.dialect.name):
        run_or_print(context, table.create)


@Operations.implementation_for(UnwatchTableOp)
def _unwatch_table(operations: Operations, operation: UnwatchTableOp) -> None:
    context = operations.migration_context
    for table in reversed(compile_definition(complete(context, operation.definition), context.dialect.name)):
        run_or_print(context, table.drop)


@Operations.implementation_for(CreateEventLogOp)
def _create_event_log(operations: Operations, operation: CreateEventLogOp) -> None:
    context, log = operations.migration_context, operation.definition
    with _own_migrations(operations) as printed:
        migrations.upgrade(
            context.bind,
            log_table=log.log,
            schema=log.schema,
            revision=log.revisions or "head",
            sql=printed,
            dialect_name=context.dialect.name,
        )


@Operations.implementation_for(DropEventLogOp)
def _drop_event_log(operations: Operations, operation: DropEventLogOp) -> None:
    context, log = operations.migration_context, operation.definition
    if log.before and context.as_sql:
        raise ConfigError(f"drop_event_log({log.log!r}) with before = cannot be printed: run it against the database")
    with _own_migrations(operations) as printed:
        for revision in log.before or ("base",):
            migrations.downgrade(
                context.bind,
                log_table=log.log,
                schema=log.schema,
                revision=revision,
                sql=printed,
                dialect_name=context.dialect.name,
            )


def complete(context: MigrationContext, definition: WatchDefinition) -> WatchDefinition:
    """The definition with its schemas and tables, those that it lacks as the database has them now.

    Raises TriggerError if no database can be asked.
    """
    dialect = load_dialect(context.dialect.name)
    if definition.tables is None:
        if context.as_sql:
            raise TriggerError(
                f"watch_table({definition.watch.table!r}) without tables reads them from the database, and there is "
                "none with --sql: let autogenerate write them"
            )
        with as_database_errors(_bind(context)):
            database = dialect.reflect(_bind(context), definition.schema)
        definition = with_facts(definition, dialect, _bind(context), database)
    if definition.schema is None and "schemas" in dialect.capabilities:
        current = None if context.as_sql else sa.inspect(_bind(context)).default_schema_name
        if current is None:
            raise TriggerError(f"watch_table({definition.watch.table!r}) needs schema = with --sql")
        definition = replace(definition, schema=current)
    return definition


# --- how --------------------------------------------------------------------------------------------------------------


def _bind(context: MigrationContext) -> Connection:
    assert context.bind is not None
    return context.bind


@contextmanager
def _own_migrations(operations: Operations) -> Iterator[io.StringIO | None]:
    """Let eventlog's migrations run within one; what ``alembic.op`` and ``alembic.context`` stand for is put back then.

    Gives what they are to be printed to, None = they run.
    """
    context = operations.migration_context
    environment, printed = context.environment_context, io.StringIO() if context.as_sql else None
    try:
        yield printed
    finally:
        operations._install_proxy()
        if environment is not None:
            environment._install_proxy()
    if printed is not None:  # a script within a script, whose transaction it is part of
        lines = [line for line in printed.getvalue().splitlines() if line.rstrip() not in ("BEGIN;", "COMMIT;")]
        context.impl.static_output("\n".join(lines).strip())


# --- as code in a migration: what is rendered means the same when it is run -------------------------------------------

_WIDTH: Final = 100


@renderers.dispatch_for(CreateEventLogOp)
@renderers.dispatch_for(DropEventLogOp)
@renderers.dispatch_for(WatchTableOp)
@renderers.dispatch_for(UnwatchTableOp)
def _render(context: AutogenContext, operation: _Operation[LogDefinition] | _Operation[WatchDefinition]) -> str:
    context.imports.add("import eventlog.alembic  # noqa: F401 - its operations")
    first, keywords = operation.definition.arguments()
    lines = [f"{context.opts.get('alembic_module_prefix') or ''}{operation.name}(", f"    {first!r},"]
    for name, value in keywords.items():
        lines += _literal(f"{name}=", value, "    ")
    return "\n".join([*lines, ")"])


def _literal(beginning: str, value: Any, indent: str) -> list[str]:
    """A value as lines of Python, each of at most ``_WIDTH`` characters as far as it can be broken."""
    whole = f"{indent}{beginning}{value!r},"
    if len(whole) <= _WIDTH or not isinstance(value, list | dict) or not value:
        return [whole]
    deeper = indent + "    "
    if isinstance(value, dict):
        inner = [line for key, one in value.items() for line in _literal(f"{key!r}: ", one, deeper)]
        return [f"{indent}{beginning}{{", *inner, f"{indent}}},"]
    inner = [line for one in value for line in _literal("", one, deeper)]
    return [f"{indent}{beginning}[", *inner, f"{indent}],"]
