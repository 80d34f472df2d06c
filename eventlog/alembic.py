"""Alembic support for users' own migration trees, imported by an ``env.py``
(docs/guides/change-a-schema.md).

Importing this module adds the operations ``op.create_event_log``, ``op.drop_event_log``,
``op.watch_table`` and ``op.unwatch_table``, and lets ``alembic revision --autogenerate`` and
``alembic check`` see the watches::

    import eventlog.alembic

    context.configure(connection=connection, target_metadata=metadata,
    **eventlog.alembic.options("eventlog.toml"))
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eventlog.config.load import load
from eventlog.errors import ConfigError
from eventlog.model import LOG_COLUMNS
from eventlog.publisher.declared.configured_classes import declared_watches
from eventlog.sql.log_table import LogTable, split_name
from eventlog.sql.migrations.autogenerate import OPTION, Declared
from eventlog.sql.triggers.watch import WatchedTable

__all__ = ["hides", "options"]

IncludeObject = Callable[[Any, "str | None", str, bool, Any], bool]
"""The type of ``include_object`` of ``context.configure``. The arguments of the function are an
object, its name, its kind, whether it was reflected, and the object it is compared with.
"""


def options(
    config: str | os.PathLike[str] | None = None,
    *,
    log_table: str = "eventlog",
    schema: str | None = None,
    include_object: IncludeObject | None = None,
) -> dict[str, Any]:
    """Return keyword arguments for ``context.configure``: the watches, and an ``include_object``
    that hides the log.

    ``config`` is the path of an eventlog.toml. The ``[[watch]]`` sections of the file apply, and
    its names of the log and the schema. With None, the watches come from the tables'
    ``info={"eventlog": ...}``; ``log_table`` is then the name of the log, and ``schema`` the schema
    of the watched tables (None = the connection's current schema). ``include_object`` is your own
    function; objects that it excludes stay excluded. Raises ConfigError.
    """
    watches: tuple[WatchedTable, ...] = ()
    if config is not None:
        loaded = load(Path(config), os.environ)
        if patterns := [watch.name for watch in loaded.watches if watch.tables is not None]:
            raise ConfigError(
                f"{config}: watch {patterns[0]}: a migration cannot use patterns, because they "
                "could match different tables later. Write one [[watch]] per table (`eventlog "
                "init --tables` does this)"
            )
        log_table = loaded.database.log_table
        schema = loaded.database.schema_name
        watches = declared_watches(loaded)
    log_schema, log = split_name(log_table)
    keep = hides(log_table)

    def include(item: Any, name: str | None, kind: str, reflected: bool, compare_to: Any) -> bool:
        return keep(item, name, kind, reflected, compare_to) and (
            include_object is None or include_object(item, name, kind, reflected, compare_to)
        )

    return {OPTION: Declared(log, log_schema, schema, watches), "include_object": include}


def hides(log_table: str = "eventlog") -> IncludeObject:
    """Return an ``include_object`` that keeps Alembic from dropping the log and its internal
    tables, which are not in the models.
    """
    _, name = split_name(log_table)
    log_tables = {table.casefold() for table in LogTable(None, name, LOG_COLUMNS).own_tables}

    def include(_item: Any, name: str | None, kind: str, reflected: bool, _compare_to: Any) -> bool:
        return not (
            reflected and kind == "table" and name is not None and name.casefold() in log_tables
        )

    return include
