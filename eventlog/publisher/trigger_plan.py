"""The triggers that a configuration declares, compared with those that are installed
(spec/triggers.md 9, 9.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from sqlalchemy import Connection

from eventlog.config.load import Config
from eventlog.core.catalog import Catalog
from eventlog.errors import DatabaseAway, EventlogError, together
from eventlog.publisher.configured_classes import (
    available_catalog,
    class_schema,
    declared_tables,
    declared_watches,
)
from eventlog.publisher.open_context import find_log
from eventlog.sql.connection import as_database_errors
from eventlog.sql.dialect import Dialect
from eventlog.sql.log_table import LogTable, new_log, split_name
from eventlog.sql.triggers import TriggerPlan, of_missing_log
from eventlog.sql.triggers.declared import declared_triggers


def planned_triggers(conn: Connection, dialect: Dialect, config: Config) -> TriggerPlan:
    """Return the plan that makes the triggers as the configuration declares them. Raises
    TriggerError, LogTableError, ConfigError.
    """
    return plan_triggers(conn, dialect, config, find_log(conn, dialect, config).table)[0]


def refused_watches(conn: Connection, dialect: Dialect, config: Config) -> tuple[str, ...]:
    """Return the errors of watches that no user can follow: their tables or columns are missing."""
    log = find_log(conn, dialect, config).table
    database = dialect.reflect(conn, class_schema(config))
    declared = declared_tables(config, database, log)
    catalog = available_catalog(declared, database, log)
    refused, reflect = {**catalog.unavailable, **declared.doubtful}, partial(dialect.reflect, conn)
    return declared_triggers(
        database, catalog, declared_watches(declared.config), reflect, refused
    ).refusals


def plan_triggers(
    conn: Connection, dialect: Dialect, config: Config, found: LogTable | None
) -> tuple[TriggerPlan, Catalog]:
    """Return the plan and the classes. ``found`` is the log, None if it does not exist yet."""
    database = dialect.reflect(conn, class_schema(config))
    schema, name = split_name(config.database.log_table)
    log = found or new_log(dialect, schema or config.database.schema_name or database.schema, name)
    declared = declared_tables(config, database, log)
    catalog = available_catalog(declared, database, log)
    watches = declared_watches(declared.config)
    refused = {**catalog.unavailable, **declared.doubtful}
    if found is not None:
        planned = dialect.triggers.plan(conn, database, catalog, log, watches, refused)
    elif refused:
        raise together(list(refused.values()))
    else:
        planned = TriggerPlan.of_new(dialect.triggers.compile(database, catalog, log, watches))
        tables = dialect.triggers.tables_of(conn, log)
        planned = replace(planned, warnings=tuple(of_missing_log(log, tables)))
    said = declared.config.warnings[len(config.warnings) :]
    warnings = (*said, *planned.warnings, *_view_references(declared.config, catalog))
    return replace(planned, warnings=warnings), catalog


def _view_references(config: Config, catalog: Catalog) -> Iterator[str]:
    """Yield warnings about references in views that stay values with ``referential = "dn"``
    (spec/xds.md 6.4).
    """
    if config.format.referential != "dn":
        return
    for cls in catalog.classes:
        references = [
            one.column.name
            for one in cls.attributes
            if cls.is_view and one.name[:3].casefold() == "fk_"
        ]
        if references:
            yield (
                f'{cls.name}: {", ".join(references)} stay values with referential = "dn": it '
                "makes associations of foreign keys of tables, and a view has none"
            )


class Differences(NamedTuple):
    """The sentences on captured tables that are not as declared, and on impossible watches.

    ``uncaptured`` are those of ``tables`` that name what no trigger logs.
    """

    tables: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    uncaptured: tuple[str, ...] = ()


def differences(conn: Connection, dialect: Dialect, config: Config) -> Differences:
    """Return what `eventlog triggers apply` would change, for a role that may read the tables.

    A role that the database shows no triggers gets what is known by the record of the last apply.
    """
    if not config.watches:
        return Differences()
    try:
        with as_database_errors(conn), conn.begin_nested():
            planned = planned_triggers(conn, dialect, config)
    except DatabaseAway:
        raise
    except EventlogError:
        refused: tuple[str, ...] = ()
        recorded: tuple[str, ...] = ()
        with suppress(EventlogError), as_database_errors(conn), conn.begin_nested():
            refused = refused_watches(conn, dialect, config)
        with suppress(EventlogError), as_database_errors(conn), conn.begin_nested():
            recorded = unlike_recorded(conn, dialect, config)
        return Differences(recorded, refused, recorded)
    tables = [(action.kind, f"{action.table}: {action.reason}") for action in planned.differences]
    return Differences(
        tuple(sentence for _, sentence in tables),
        planned.refused,
        tuple(sentence for kind, sentence in tables if kind != "drop"),
    )


def unlike_recorded(conn: Connection, dialect: Dialect, config: Config) -> tuple[str, ...]:
    """Return sentences on watched tables that are not as `eventlog triggers apply` has recorded
    them, for a role that sees no triggers.
    """
    log = find_log(conn, dialect, config).table
    database = dialect.reflect(conn, class_schema(config))
    declared = declared_tables(config, database, log)
    catalog = available_catalog(declared, database, log)
    refused = {**catalog.unavailable, **declared.doubtful}
    watches = declared_watches(declared.config)
    return dialect.triggers.unlike_recorded(conn, database, catalog, log, watches, refused)


def comparison(config: Config) -> Callable[[Connection, Dialect], tuple[str, ...]]:
    """Return the function by which a publisher learns of tables that are not captured as they are
    declared.
    """

    def uncaptured(conn: Connection, dialect: Dialect) -> tuple[str, ...]:
        return differences(conn, dialect, config).uncaptured

    return uncaptured
