"""The operations as Python code in a migration, and back: what is rendered means the same when it is run."""

from __future__ import annotations

from typing import Any

from alembic.autogenerate import renderers
from alembic.autogenerate.api import AutogenContext

from eventlog.sql.alembic.definition import LogDefinition, WatchDefinition, to_literals
from eventlog.sql.alembic.operations import CreateEventLogOp, DropEventLogOp, UnwatchTableOp, WatchTableOp

_WIDTH = 100


@renderers.dispatch_for(CreateEventLogOp)
def _create_event_log(context: AutogenContext, operation: CreateEventLogOp) -> str:
    return _log_call(context, "create_event_log", operation.definition)


@renderers.dispatch_for(DropEventLogOp)
def _drop_event_log(context: AutogenContext, operation: DropEventLogOp) -> str:
    return _log_call(context, "drop_event_log", operation.definition)


@renderers.dispatch_for(WatchTableOp)
def _watch_table(context: AutogenContext, operation: WatchTableOp) -> str:
    return _watch_call(context, "watch_table", operation.definition)


@renderers.dispatch_for(UnwatchTableOp)
def _unwatch_table(context: AutogenContext, operation: UnwatchTableOp) -> str:
    return _watch_call(context, "unwatch_table", operation.definition)


def _log_call(context: AutogenContext, name: str, log: LogDefinition) -> str:
    arguments = {"schema": log.schema, "revisions": list(log.revisions), "before": list(log.before)}
    return _call(context, name, log.log, {key: value for key, value in arguments.items() if value})


def _watch_call(context: AutogenContext, name: str, definition: WatchDefinition) -> str:
    return _call(context, name, definition.watch.table, to_literals(definition))


def _call(context: AutogenContext, name: str, first: str, arguments: dict[str, Any]) -> str:
    context.imports.add("import eventlog.alembic  # noqa: F401 - its operations")
    prefix = context.opts.get("alembic_module_prefix") or ""
    lines = [f"{prefix}{name}(", f"    {first!r},"]
    for key, value in arguments.items():
        lines += _literal(f"{key}=", value, "    ")
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
