"""The tables that the configuration watches, and their classes (spec/triggers.md 1, spec/xds.md
5).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from eventlog.config.load import Config
from eventlog.config.publishing import value_options
from eventlog.config.settings import WatchSettings
from eventlog.core.catalog import (
    Catalog,
    Database,
    MainTable,
    ObjectClass,
    logged_only,
    match_name,
)
from eventlog.core.catalog.builder import build_catalog, complete_catalog
from eventlog.core.catalog.filters import Filter
from eventlog.core.catalog.masks import NULL, MaskedColumns, Shown, shown_columns
from eventlog.core.options import names_hint, same_fields, toml
from eventlog.core.values import ValueOptions
from eventlog.errors import ConfigError, EventlogError, TriggerError, first_of, together
from eventlog.publisher.context.context import in_savepoint
from eventlog.sql.log.accepted_filters import accepted_filters
from eventlog.sql.log.recorded_masks import RecordedMasks, recorded_masks
from eventlog.sql.log_table import LogTable, split_name
from eventlog.sql.port.filtered import may_read_main_table, why_refused
from eventlog.sql.port.open_database import OpenDatabase
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.questions import ask, row
from eventlog.sql.port.rights import Part, Right
from eventlog.sql.readers.consumers import has_later_columns
from eventlog.sql.triggers.declared import main_table
from eventlog.sql.triggers.watch import (
    TableChoice,
    WatchedTable,
    attribute_names,
    choose_tables,
    columns_named,
    excluded_columns,
    internal_tables,
    matching_tables,
)

_log = logging.getLogger("eventlog.publisher")


def without_hashes(config: Config) -> Config:
    """Return the configuration for a command that reads the names of classes and columns and none
    of their values. It needs no key of the hashes: a value would become NULL.
    """
    masks = [replace(one, how=NULL, salt_by_column=False) for one in config.masks]
    return replace(config, masks=tuple(masks))


def read_catalog(log: OpenLog, config: Config) -> Catalog:
    """Return the classes that the configuration names, in their present form in the database. Some
    of them may be unavailable.
    """
    catalog = tried_catalog(log, config)
    refused, known = shown_by_generated(log, config, catalog, config.of_log.consumer)
    for shown in known:
        _log.warning("%s", shown)
    return catalog.without(refused) if refused else catalog


def tried_catalog(log: OpenLog, config: Config) -> Catalog:
    """Return the classes as ``read_catalog`` does, without the check of generated columns."""
    database = log.db.reflect(class_schema(config))
    declared = declared_tables(config, database, log.table)
    catalog = available_catalog(declared, database, log.table)
    return with_tried_conditions(log.db, catalog, partial(accepted_tables, log, config))


def accepted_tables(log: OpenLog, config: Config) -> Collection[str]:
    """Return the tables of the configured filters that were accepted for the configured reader."""
    if log.lacking([(Part.STATE, Right.SELECT)]):
        return ()
    filters = filters_of(config)
    changed = accepted_filters(log, config.of_log.consumer).changed(filters)
    return () if changed is None else {one.table for one in filters}.difference(changed)


def shown_by_generated(
    log: OpenLog, config: Config, catalog: Catalog, consumer: str | None
) -> tuple[dict[str, EventlogError], list[Shown]]:
    """Return the classes that are unavailable because a generated column shows what a new mask
    hides, with the reasons, and the generated columns that show what other masks hide
    (spec/event-log.md 15.1). ``consumer`` None = the publisher.
    """

    def read_before() -> RecordedMasks | None:
        part = Part.CONSUMER if consumer else Part.INFLIGHT
        is_unseen = log.lacking([(part, Right.SELECT)]) or not has_later_columns(log)
        return None if is_unseen else recorded_masks(log, consumer or "")

    return judge_shown(log.db, config, catalog, read_before)


def judge_shown(
    db: OpenDatabase,
    config: Config,
    catalog: Catalog,
    read_before: Callable[[], RecordedMasks | None],
) -> tuple[dict[str, EventlogError], list[Shown]]:
    """Return what ``shown_by_generated`` returns. ``read_before`` returns the recorded masks, None
    = they are unknown; it is called only if a generated column shows a masked value.
    """
    masks = masks_of(config)
    generated = ask(db, "generated_columns", row, schema=catalog.schema) if masks else ()
    shown = shown_columns(catalog, masks, generated)
    before = read_before() if shown else None
    refused: dict[str, EventlogError] = {}
    known: list[Shown] = []
    for name, several in shown.items():
        new = [
            one
            for one in several
            if before is not None and not before.has(one.table, one.masked, one.form)
        ]
        if new:
            refused[name] = together([ConfigError(str(one)) for one in new])
        known += several if not new else ()
    return refused, known


def with_tried_conditions(
    db: OpenDatabase, catalog: Catalog, read_accepted: Callable[[], Collection[str]] = tuple
) -> Catalog:
    """Return the catalogue with two changes. A class is unavailable if its condition is not one
    expression, or if the database refuses the condition (spec/event-log.md 15.2). A view has no
    main table if this role may not read that table (15.4).

    ``read_accepted`` returns the tables whose filters were accepted. If the condition of such a
    table is not one expression, a warning is logged. The function is called only then.
    """
    wrong: dict[str, EventlogError] = {
        cls.name: error
        for cls in catalog.classes
        if cls.condition is not None
        and (error := wrong_condition(db, cls.name, cls.condition.where)) is not None
    }
    accepted = read_accepted() if wrong else ()
    is_used = {name: match_name(name, accepted) is not None for name in wrong}
    catalog = catalog.without({name: wrong[name] for name in wrong if not is_used[name]})
    catalog = without_main_tables(catalog, unreadable_main_tables(db, catalog))
    refused: dict[str, EventlogError] = {
        cls.name: ConfigError(f"[[filter]] {cls.name}: the database refuses its condition: {why}")
        for cls in catalog.classes
        if (why := why_refused(db, catalog.schema, cls)) is not None
    }
    for name in wrong:
        if is_used[name] and name not in refused:
            _log.warning("%s. It is used because it was accepted before", wrong[name])
    return catalog.without(refused) if refused else catalog


def wrong_condition(db: OpenDatabase, table: str, where: str) -> ConfigError | None:
    """Return the error of a filter whose condition is not one expression; None if it is one."""
    if (why := db.why_not_one(where)) is None:
        return None
    return ConfigError(f"[[filter]] {table}: where = {toml(where)} is not one condition: {why}")


def wrong_conditions(db: OpenDatabase, filters: Iterable[Filter]) -> list[ConfigError]:
    """Return the errors of the filters whose condition is not one expression."""
    found = (wrong_condition(db, one.table, one.where) for one in filters)
    return [error for error in found if error is not None]


def unreadable_main_tables(db: OpenDatabase, catalog: Catalog) -> frozenset[str]:
    """Return the views whose main table this role may not read, with a warning for each."""
    unreadable = frozenset(
        cls.name
        for cls in catalog.classes
        if cls.main_table is not None and not may_read_main_table(db, catalog.schema, cls)
    )
    for cls in catalog.classes:
        if cls.name in unreadable and cls.main_table is not None:
            _log.warning(
                "%s is a view, and this role may not read its base table %s: an object that leaves "
                "the view is not deleted; `eventlog grants` prints the needed GRANT",
                cls.name,
                cls.main_table.table.name,
            )
    return unreadable


def without_main_tables(catalog: Catalog, names: Collection[str]) -> Catalog:
    """Return the catalogue without the main tables of these views."""
    return catalog.with_classes(
        {cls.name: _with_main_table(cls, None) for cls in catalog.classes if cls.name in names}
    )


def _with_main_table(cls: ObjectClass, main: MainTable | None) -> ObjectClass:
    stored = None if cls.stored is None else replace(cls.stored, main_table=main)
    return replace(cls, main_table=main, stored=stored)


def catalog_if_readable(log: OpenLog, config: Config) -> Catalog | None:
    """Return the classes. None if they cannot be read; objects then have the names that the log
    has.
    """
    try:
        with in_savepoint(log.connection):
            return read_catalog(log, config)
    except EventlogError:
        if log.connection.invalidated:
            raise
        return None


def class_named(catalog: Catalog, name: str) -> ObjectClass:
    """Return the class whose name matches this name exactly or case-insensitively.

    Raises ConfigError, which names the class with the most similar name, or the class of a child
    table.
    """
    meaning = catalog.log_name(name)
    if meaning is None:
        hint = names_hint(name, [cls.name for cls in catalog.classes], "classes")
        raise ConfigError(f"{name!r} is not a class; {hint}")
    if meaning.child is not None:
        owner = meaning.object_class.name
        raise ConfigError(f"{name!r} is a child table of {owner}. Name {owner} instead")
    return meaning.object_class


def class_schema(config: Config) -> str | None:
    """Return the schema of the classes, None = the current schema.

    Raises ConfigError for several schemas.
    """
    return class_names(config)[0]


class DeclaredTables(NamedTuple):
    """The configuration, changed so that it has one watch per table that its watches match, and the
    errors of the watches.

    ``refused`` maps names and patterns without a class to the reason. ``doubtful`` maps the tables
    of a watch with patterns to the watch's error, such as a name in its ``exclude`` that none of
    its tables has. These tables are published, and their triggers stay unchanged. ``unreadable``
    are the views whose main table this role may not read, and ``without_key`` the tables that
    patterns match and that have no primary key.
    """

    config: Config
    refused: Mapping[str, EventlogError]
    doubtful: Mapping[str, EventlogError]
    unreadable: frozenset[str] = frozenset()
    without_key: frozenset[str] = frozenset()


def with_tables(config: Config, database: Database, log: LogTable) -> Config:
    """Return the configuration of ``declared_tables``. Raises one ConfigError for all problems."""
    config, refused, doubtful, *_ = declared_tables(config, database, log)
    if errors := [*refused.values(), *doubtful.values()]:
        raise together(errors)
    return config


def declared_tables(config: Config, database: Database, log: LogTable) -> DeclaredTables:
    """Return the configuration with a watch for each table that patterns of its watches match
    (docs/guides/choose-tables.md).

    The warnings of the configuration list tables that match but cannot be classes.
    """
    if all(watch.tables is None for watch in config.watches):
        return DeclaredTables(config, {}, {})
    tables = {table.name: table for table in database.tables}
    named = {
        name
        for watch in config.watches
        if watch.table and (name := match_name(watch.table, tables))
    }
    ignore = internal_tables(database, log) | _tables_without_class(config, tables)
    others = {
        name
        for watch in config.watches
        for name in matching_tables(database, watch.tables or (), watch.exclude_tables, ignore)
    }
    watches: list[WatchSettings] = []
    warnings = list(config.warnings)
    refused: dict[str, EventlogError] = {}
    doubtful: dict[str, EventlogError] = {}
    without_key: set[str] = set()
    for watch in config.watches:
        if watch.tables is None:
            watches.append(watch)
            continue
        choice = choose_tables(
            database,
            watch.tables,
            watch.exclude_tables,
            watched=named,
            others=others,
            ignore=ignore,
        )
        named |= set(choice.tables)  # the first watch that matches a table gets it
        without_key |= set(choice.without_key)
        warnings += (
            (
                f"{name} matches the watch {watch.name} and has no primary key, so it is not a "
                "class and its changes are not captured. Give it a primary key, or name it in "
                "exclude_tables"
            )
            for name in choice.without_key
        )
        own, unknown = _watches_of(watch, choice, database, named)
        watches += own
        wrong, no_class = _errors_of(watch, choice, unknown)
        refused |= no_class
        if wrong:
            doubtful |= dict.fromkeys(choice.tables or watch.tables, together(wrong))
    return DeclaredTables(
        replace(config, watches=tuple(watches), warnings=tuple(warnings)),
        refused,
        doubtful,
        without_key=frozenset(without_key),
    )


def _tables_without_class(config: Config, tables: Iterable[str]) -> set[str]:
    """Return the tables that the option ``database.tables`` does not list, so that they cannot be
    watched.
    """
    if config.database.tables is None:
        return set()
    listed = [split_name(name)[1] for name in config.database.tables]
    return {name for name in tables if match_name(name, listed) is None}


def _watches_of(
    watch: WatchSettings, choice: TableChoice, database: Database, named: Collection[str]
) -> tuple[list[WatchSettings], set[str]]:
    """Return a watch for each table that the patterns of a watch choose, and the names in the
    ``exclude`` of that watch that none of these tables has. Each new watch excludes the columns of
    ``exclude`` that its table has, and columns that cannot be attributes.
    """
    tables = {table.name: table for table in database.tables}
    watches: list[WatchSettings] = []
    unknown = set(watch.exclude)
    for name in choice.tables:
        known = attribute_names(database, tables[name], named)
        exclude = tuple(column for column in watch.exclude if match_name(column, known) is not None)
        unknown -= set(exclude)
        exclude += tuple(
            column for column in choice.left_out.get(name, ()) if column not in exclude
        )
        watches.append(replace(watch, table=name, tables=None, exclude_tables=(), exclude=exclude))
    return watches, unknown


def _errors_of(
    watch: WatchSettings, choice: TableChoice, unknown: Iterable[str]
) -> tuple[list[EventlogError], dict[str, EventlogError]]:
    """Return the errors about a whole watch, and the errors about single tables."""
    of_watch: list[EventlogError] = [
        ConfigError(f"watch {watch.name}, exclude: {one!r} is an attribute of none of its tables")
        for one in sorted(unknown)
    ]
    of_table: dict[str, EventlogError] = {}
    for name, error in choice.refused.items():
        located = ConfigError(f"watch {watch.name}: {error}")
        if name in watch.exclude_tables:
            of_watch.append(located)
        else:
            of_table[name] = located
    return of_watch, of_table


def class_names(config: Config) -> tuple[str | None, tuple[str, ...] | None]:
    """Return the schema of the classes (None = the current schema) and the names of the classes
    (None = all classes of the schema).

    Classes are the tables in ``database.tables``, or, without this option, the watched tables.
    ``with_tables`` has replaced the patterns of watches by tables. Raises ConfigError for several
    schemas.
    """
    listed = config.database.tables or tuple(watch.name for watch in config.watches)
    if not listed:
        return config.database.schema_name, None
    parts = [split_name(name) if config.database.tables else (None, name) for name in listed]
    schemas = {schema for schema, _ in parts if schema is not None}
    if len(schemas) > 1:
        raise ConfigError(
            f"the watched tables are in several schemas ({', '.join(sorted(schemas))}); run one "
            "publisher per schema, each with its own configuration"
        )
    return next(iter(schemas), config.database.schema_name), tuple(name for _, name in parts)


def catalog_of(
    config: Config, database: Database, tables: Sequence[str] | None, log: LogTable
) -> Catalog:
    """Return the classes of a database under the configuration's options, without the log and its
    internal tables.

    Raises ConfigError or TriggerError with all problems.
    """
    return complete_catalog(_catalog_of(config, database, tables, log, {}))


def available_catalog(
    declared: DeclaredTables, database: Database, log: LogTable, values: ValueOptions | None = None
) -> Catalog:
    """Return the classes of a database as ``catalog_of`` does. Tables that cannot be classes are
    ``unavailable``.

    ``values`` are the options for converting values to text, None = the options of the format.
    """
    catalog = _catalog_of(
        declared.config, database, class_names(declared.config)[1], log, declared.refused, values
    )
    return without_main_tables(catalog, declared.unreadable)


def _catalog_of(
    config: Config,
    database: Database,
    tables: Sequence[str] | None,
    log: LogTable,
    refused: Mapping[str, EventlogError],
    values: ValueOptions | None = None,
) -> Catalog:
    settings, present = config.format, [table.name for table in database.tables]
    unavailable = dict(refused)
    exclude: defaultdict[str, set[str]] = defaultdict(set)
    captured: dict[str, frozenset[str]] = {}
    watches = declared_watches(config)
    by_name = {table.name: table for table in database.tables}
    for watch in watches:
        name = match_name(watch.table, present)
        try:
            for table, columns in excluded_columns(database, watch, tables).items():
                exclude[table] |= set(columns)
            if name is not None and watch.capture:
                captured[name] = columns_named(by_name[name], watch.capture)
        except TriggerError as error:
            unavailable[name or watch.table] = error
    catalog = build_catalog(
        database,
        tables=tables,
        values=values or value_options(config),
        meta_identifiers=settings.meta_identifiers,
        referential=settings.referential,
        emit_keys=settings.emit_keys,
        exclude=exclude,
        ignore=log.own_tables,
        refused=unavailable,
        renamed_from={
            watch.name: watch.renamed_from for watch in config.watches if watch.renamed_from
        },
        previous_key={
            watch.name: watch.previous_key for watch in config.watches if watch.previous_key
        },
        masks=masks_of(config),
        filters=filters_of(config),
        logged={
            watch.name: [name for columns in watch.base.values() for name in columns.values()]
            for watch in config.watches
            if watch.base is not None
        },
        captured=captured,
    )
    if config.publisher.profile == "idm":  # there 7.2 holds
        return catalog
    views: dict[str, ObjectClass] = {}
    refused_views: dict[str, EventlogError] = {}
    for watch in watches:
        meant = None if watch.base is None else catalog.log_name(watch.table)
        if meant is not None and meant.object_class.is_view:
            cls = meant.object_class
            try:
                found = main_table(cls, watch, database)
            except TriggerError as error:
                refused_views[cls.name] = error
                continue
            if found is not None:
                main, unmapped = found
                captured_too = (logged_only(main.table.name, column) for column in unmapped)
                views[cls.name] = replace(
                    _with_main_table(cls, main), captured=(*cls.captured, *captured_too)
                )
    catalog = catalog.with_classes(views)
    return catalog.without(refused_views) if refused_views else catalog


def masks_of(config: Config) -> list[MaskedColumns]:
    """Return the masks of the configuration."""
    secret = config.format.mask_secret or ""
    return [
        MaskedColumns(one.table, one.columns, one.how, secret, one.salt_by_column, one.plain)
        for one in config.masks
    ]


def filters_of(config: Config) -> list[Filter]:
    """Return the filters of the configuration."""
    return [Filter(one.table, one.where, one.changes) for one in config.filters]


def captured_tables(config: Config, catalog: Catalog) -> tuple[str, ...]:
    """Return the tables whose triggers fill the log: the watched tables, or the tables of all
    classes if there is no watch or if a watch has patterns.
    """
    classes = watched_classes(config, catalog)
    if not config.watches or any(watch.tables is not None for watch in config.watches):
        classes = [cls for cls in catalog.classes if not cls.is_view]
    bases = [table for watch in config.watches for table in watch.base or ()]
    tables = [table for cls in classes for table in tables_of(cls)]
    return tuple(dict.fromkeys([*tables, *bases]))


def watched_classes(config: Config, catalog: Catalog) -> list[ObjectClass]:
    """Return the classes of the watches that name a table instead of patterns."""
    watched = [catalog.log_name(watch.table) for watch in config.watches if watch.table is not None]
    return [one.object_class for one in watched if one is not None and one.child is None]


def tables_of(cls: ObjectClass) -> tuple[str, ...]:
    """Return the names of a class's table and of its child tables."""
    return cls.name, *(child.table.name for child in cls.children)


def declared_watches(config: Config) -> tuple[WatchedTable, ...]:
    """Return the watches of the configuration in the form that triggers are compiled from."""
    return tuple(
        WatchedTable(**{**same_fields(watch, WatchedTable), "table": watch.name})
        for watch in config.watches
    )


def classes_to_read(config: Config, catalog: Catalog) -> list[ObjectClass]:
    """Return the classes that the reader wants (``wanted_classes``). Raises ConfigError."""
    wanted = wanted_classes(config, catalog)
    return [cls for cls in catalog.classes if wanted is None or cls.name in wanted]


def wanted_classes(config: Config, catalog: Catalog) -> frozenset[str] | None:
    """Return the names of the classes in ``source.classes``, None = all.

    Raises ConfigError for an unknown class.
    """
    wanted = config.of_log.classes
    if wanted is None:
        return None
    names = [*(cls.name for cls in catalog.classes), *catalog.unavailable]
    found = {name: match_name(name, names) for name in wanted}
    if unknown := [name for name, match in found.items() if match is None]:
        raise ConfigError(
            f"{config.sources['source.classes']}: {first_of(unknown, 3)} is not a class of this "
            f"configuration; {names_hint(unknown[0], names, 'classes')}"
        )
    return frozenset(match for match in found.values() if match is not None)
