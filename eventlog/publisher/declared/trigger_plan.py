"""Compare the triggers that a configuration declares with the installed triggers (spec/triggers.md
9, 9.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from eventlog.config.load import Config
from eventlog.core.catalog import Catalog, Database
from eventlog.errors import DatabaseUnavailable, EventlogError, first_of, together
from eventlog.publisher.context.context import in_savepoint
from eventlog.publisher.context.observer import Differences
from eventlog.publisher.declared.configured_classes import (
    available_catalog,
    class_schema,
    declared_tables,
    declared_watches,
    with_tried_conditions,
    without_hashes,
)
from eventlog.publisher.declared.opening import find_log
from eventlog.sql.connect.locate import new_log
from eventlog.sql.log_table import LogTable, split_name
from eventlog.sql.port.open_database import OpenDatabase
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.triggers import TriggerPlan, triggers_of, warnings_of_missing_log
from eventlog.sql.triggers.declared import declared_triggers
from eventlog.sql.triggers.watch import WatchedTable


class _Declared(NamedTuple):
    """The declarations of a configuration for the tables of a schema."""

    config: Config
    """The configuration, with one watch per table that the patterns of watches match."""
    database: Database
    catalog: Catalog
    watches: tuple[WatchedTable, ...]
    refused: dict[str, EventlogError]
    """The errors of tables that cannot be classes, and of tables whose watches are doubtful."""
    without_key: frozenset[str]
    """The tables without a primary key that patterns of watches match."""


def _declared(
    db: OpenDatabase, log: LogTable, config: Config, database: Database | None = None
) -> _Declared:
    """Return the declarations for a log in a database. ``database`` None = the tables of the
    database are read now.
    """
    if database is None:
        database = db.reflect(class_schema(config))
    # Triggers log what readers mask, and objects that do not exist for them.
    declared = declared_tables(replace(config, masks=(), filters=()), database, log)
    catalog = available_catalog(declared, database, log)
    refused = {**catalog.unavailable, **declared.doubtful}
    watches, without_key = declared_watches(declared.config), declared.without_key
    return _Declared(declared.config, database, catalog, watches, refused, without_key)


def planned_triggers(db: OpenDatabase, config: Config) -> TriggerPlan:
    """Return the plan that makes the triggers as the configuration declares them. Raises
    TriggerError, LogTableError, ConfigError.
    """
    return plan_triggers(find_log(db, config), config)[0]


def refused_watches(log: OpenLog, config: Config) -> tuple[str, ...]:
    """Return the errors of watches that no user can apply, because their tables or columns are
    missing.
    """
    declared = _declared(log.db, log.table, config)
    reflect = log.db.reflect
    return declared_triggers(
        declared.database, declared.catalog, declared.watches, reflect, declared.refused
    ).refusals


def plan_triggers(log: OpenLog, config: Config) -> tuple[TriggerPlan, Catalog]:
    """Return the plan for the triggers of a log, and the classes."""
    declared = _declared(log.db, log.table, config)
    planned = triggers_of(log.dialect).plan(
        log,
        declared.database,
        declared.catalog,
        declared.watches,
        declared.refused,
        declared.without_key,
    )
    return _with_warnings(planned, declared, config, log.db, log.table), declared.catalog


def plan_for_new_log(db: OpenDatabase, config: Config) -> tuple[TriggerPlan, Catalog]:
    """Return the plan for the triggers of a log that does not exist yet, and the classes."""
    database, triggers = db.reflect(class_schema(config)), triggers_of(db.dialect)
    schema, name = split_name(config.database.log_table)
    schema = schema or config.database.schema_name or database.schema
    log = new_log(db.dialect, schema, name)
    declared = _declared(db, log, config, database)
    if declared.refused:
        raise together(list(declared.refused.values()))
    catalog = declared.catalog
    planned = TriggerPlan.of_new(triggers.compile(database, catalog, log, declared.watches))
    tables = triggers.tables_of(db.log(log))
    planned = replace(planned, warnings=tuple(warnings_of_missing_log(log, tables)))
    return _with_warnings(planned, declared, config, db, log), catalog


def _with_warnings(
    planned: TriggerPlan, declared: _Declared, config: Config, db: OpenDatabase, log: LogTable
) -> TriggerPlan:
    found = declared.config.warnings[len(config.warnings) :]
    views = _view_references(declared.config, declared.catalog)
    of_readers = _refused_by_readers(declared, config, db, log)
    foreign = [
        f"{name} shows rows of the foreign table {first_of(list(tables), 3, 'table')}, which has "
        "no database snapshot, so `eventlog verify` and `eventlog backlog run` cannot prove "
        "which state of these rows they read"
        for name, tables in db.foreign_tables(declared.catalog).items()
    ]
    unsafe = [f"{one}; run {one.fix}" for one in db.unsafe_schemas()]
    return replace(
        planned, warnings=(*found, *planned.warnings, *views, *foreign, *of_readers, *unsafe)
    )


def _refused_by_readers(
    declared: _Declared, config: Config, db: OpenDatabase, log: LogTable
) -> Iterator[str]:
    """Yield warnings about masks and filters that make a class wait, and about what a filter does
    not do (spec/event-log.md 15). Raises ConfigError for a mask or filter of an unknown table.
    """
    if not (config.masks or config.filters):
        return
    tables = declared_tables(without_hashes(config), declared.database, log)
    seen = with_tried_conditions(db, available_catalog(tables, declared.database, log))
    for name, error in seen.unavailable.items():
        if name not in declared.catalog.unavailable:
            yield f"{name} will wait: {error}"
    for cls in seen.classes:
        if cls.condition is not None and cls.condition.changes:
            yield (
                f"{cls.name}: a [[filter]] does not hide keys: the receiver gets the key of each "
                "object that changes or is deleted. The publisher does not notice when now() or "
                "another table changes the result of the condition"
            )


def _view_references(config: Config, catalog: Catalog) -> Iterator[str]:
    """Yield warnings about views: with ``referential = "dn"``, their references are still written
    as values (spec/xds.md 6.4).
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
                f"{cls.name}: {', '.join(references)} are sent as plain values, because "
                'referential = "dn" makes associations only from the foreign keys of tables'
            )


def differences(log: OpenLog, config: Config) -> Differences:
    """Return what `eventlog triggers apply` would change; the role needs only the right to read the
    tables.

    If the database shows this role no triggers, the record of the last apply is compared instead.
    """
    if not config.watches:
        return Differences()
    try:
        with in_savepoint(log.connection):
            planned, _ = plan_triggers(log, config)
    except DatabaseUnavailable:
        raise
    except EventlogError:
        refused: tuple[str, ...] = ()
        recorded: tuple[str, ...] = ()
        with suppress(EventlogError), in_savepoint(log.connection):
            refused = refused_watches(log, config)
        with suppress(EventlogError), in_savepoint(log.connection):
            recorded = unlike_recorded(log, config)
        return Differences(recorded, refused, recorded)
    tables = [(action, f"{action.table}: {action.reason}") for action in planned.faults]
    return Differences(
        tuple(sentence for _, sentence in tables),
        planned.refused,
        tuple(sentence for action, sentence in tables if action.kind != "drop"),
        tuple(
            sentence
            for action, sentence in tables
            if action.kind == "replace" and not action.uncaptured
        ),
    )


def unlike_recorded(log: OpenLog, config: Config) -> tuple[str, ...]:
    """Return one sentence for each watched table that is no longer as `eventlog triggers apply` has
    recorded it. This serves a role that cannot see triggers.
    """
    _, database, catalog, watches, refused, _ = _declared(log.db, log.table, config)
    return triggers_of(log.dialect).unlike_recorded(log, database, catalog, watches, refused)


def comparison(config: Config) -> Callable[[OpenLog], Differences]:
    """Return the function by which a publisher finds tables that are not captured as declared."""
    return partial(differences, config=config)
