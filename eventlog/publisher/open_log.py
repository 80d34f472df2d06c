"""From the configuration to a context: connect, find the log, take its lock, build the classes.

A publisher reads its catalogue at the start, and the tables may change while it runs (spec/event-log.md 5). A column
that comes later would make its rows ``unknown_column``, another type would make them ``bad_value``, and a column that
is gone would fail the statement that reads back. So ``CatalogWatcher`` compares the catalogue every few seconds by one
statement, and at once where rows are about to become E or the database refuses a statement. What has changed is said
once, and publishing goes on with the catalogue that is there now. A column that is gone is still known in rows that
were logged before; it is read back no more.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from sqlalchemy import Connection

from eventlog.config.load import Config, connection_url, with_secrets_of_now
from eventlog.config.publishing import insert_query_back, value_options
from eventlog.config.settings import WatchSettings
from eventlog.core.catalog import (
    Attribute,
    Catalog,
    Database,
    LogName,
    ObjectClass,
    build_catalog,
    complete_catalog,
    match_name,
)
from eventlog.core.event_ids import epoch_suffix
from eventlog.core.events import EventOptions
from eventlog.core.options import same_fields
from eventlog.errors import (
    ConfigError,
    DatabaseError,
    EventlogError,
    TriggerError,
    first_of,
    together,
)
from eventlog.publisher.context import Context, Counters, PublisherOptions, Used, unavailable_in_words
from eventlog.publisher.ledger import ledger_of
from eventlog.publisher.output import event_writer
from eventlog.publisher.sinks import Owner
from eventlog.registry import sink_named
from eventlog.sql.connection import (
    TO_THE_PRIMARY,
    as_database_errors,
    connect,
    describe,
    dialect_of,
    parse_url,
    refuse_pooling,
)
from eventlog.sql.dialect import Dialect
from eventlog.sql.epoch import differing, pass_over, raise_epoch, read_epoch, write_epoch
from eventlog.sql.log_table import LogTable, locate_log, split_name
from eventlog.sql.rows import extent
from eventlog.sql.triggers import column_changes, key_change
from eventlog.sql.triggers.watch import (
    WatchedTable,
    attribute_names,
    choose_tables,
    excluded_columns,
    internal_tables,
    matching_tables,
)

_log = logging.getLogger("eventlog.publisher")


@contextmanager
def open_context(config: Config, counters: Counters, used: Used | None = None) -> Iterator[Context]:
    """A context that holds the lock of the log until it is left, under an epoch that nobody else has published under.

    ``used``: what this process has used of the log before, None = nothing. Raises ConfigError, DatabaseError,
    LogTableError, and AnotherPublisher when the log is held.
    """
    with open_unlocked(config, counters) as context:
        if why := context.dialect.read_only(context.connection):
            place = describe(connection_url(config.database))
            raise DatabaseError(f"{place} cannot be published from, since rows are marked: {why}; {TO_THE_PRIMARY}")
        context.dialect.begin_publishing(context.connection)
        server = context.dialect.server_parts(context.connection, context.log)
        context.ledger.lock(context.connection, context.dialect, context.log)
        refuse_pooling(context.connection, context.dialect, describe(connection_url(config.database)))
        context = replace(context, used=used or Used())
        yield under_epoch(context, settle_epoch(context, server))


@contextmanager
def open_to_publish(config: Config, counters: Counters, used: Used | None = None) -> Iterator[Context]:
    """``open_context``, with the place where the sink keeps documents, if it does, made the log's.

    Raises as ``open_context``, and ConfigError for a place that is another's.
    """
    with open_context(config, counters, used) as context:
        connection, log = context.connection, context.log

        def owner() -> Owner:
            reader = f"/{context.ledger.consumer}" if context.ledger.consumer else ""
            name = f"the log {log}{reader} in {describe(connection_url(config.database))}"
            return Owner(context.dialect.identity(connection, log) + reader, name)

        # The newest number is had by drawing one more, which is left out: who may publish may do that.
        newest_flight = partial(pass_over, connection, context.dialect, log)
        sink_named(config.sink.type).claim(config.sink.options, owner, newest_flight)
        connection.commit()
        yield context


@contextmanager
def open_unlocked(config: Config, counters: Counters) -> Iterator[Context]:
    """A context without the lock of the log: for reading only. Secrets in files are read anew."""
    config = with_secrets_of_now(config, "database")
    url = connection_url(config.database)
    dialect = dialect_of(url)
    with as_database_errors(engine := connect(url)), engine.connect() as connection:
        log = find_log(connection, dialect, config)
        ledger = ledger_of(config.of_log.consumer, config.of_log.begin)
        ledger.check_rights(connection, dialect, log, deletes=config.publisher.delete_from_log)
        catalog = read_catalog(connection, dialect, config, log)
        options = publisher_options(config, dialect.current_user(connection), dialect.fold_name)
        options = replace(options, classes=wanted_classes(config, catalog))
        line = read_epoch(connection, log)
        connection.commit()
        with closing(event_writer(config, log)) as writer:
            context = Context(
                connection,
                dialect,
                log,
                catalog,
                options,
                writer,
                counters,
                reread=lambda: read_catalog(connection, dialect, config, log),
                captured=captured_tables(config, catalog),
                ledger=ledger,
            )
            yield under_epoch(context, line.epoch)


# --- the epoch (spec/event-log.md 7.4) --------------------------------------------------------------------------------


def settle_epoch(context: Context, server: Mapping[str, str]) -> str:
    """The epoch that new event-ids carry: a new one, committed, if the log was put back to an earlier state.

    To be called under the lock of the log, or of a consumer. ``server``: what the server says of itself.
    """
    conn, dialect, log, used = context.connection, context.dialect, context.log, context.used
    line = read_epoch(conn, log, is_locked=True)
    known = line.server
    reasons = differing(known, server) or differing(used.server, server)
    if used.flight and (flight := dialect.next_flight(conn, log)) <= used.flight:
        reasons.append(f"flight number {flight} lies behind {used.flight}, which was used before")
    # Rows that are deleted are no sign.
    if used.record_id and not context.options.delete_from_log:
        _, newest = extent(conn, log) or (0, used.record_id)
        if newest < used.record_id:
            reasons.append(f"record_id {newest} lies behind {used.record_id}, which was published before")
    if reasons:
        epoch, used.flight = raise_epoch(conn, dialect, log, {**known, **server}, used.flight)
        used.record_id = 0
        line = line._replace(epoch=epoch)
        _log.warning(
            "the log %s may have been put back to an earlier state: %s. New event-ids carry the epoch %s, so that none "
            "means two sets of rows. What was sent and is not known here any more comes again under another id, and "
            "what the database has lost stays with the receiver: see docs/guarantees.md",
            log,
            "; ".join(reasons),
            epoch,
        )
    elif known.items() < {**known, **server}.items():
        write_epoch(conn, dialect, log, line._replace(server={**known, **server}), is_raise=False)
    conn.commit()
    used.server = server
    return line.epoch


def under_epoch(context: Context, epoch: str) -> Context:
    """The context, whose new events carry an epoch."""
    events = replace(context.options.events, id_suffix=epoch_suffix(epoch))
    return replace(context, epoch=epoch, options=replace(context.options, events=events))


def find_log(connection: Connection, dialect: Dialect, config: Config) -> LogTable:
    """The log that the configuration names, its form checked (spec/event-log.md 1.4); the rights are not."""
    settings = config.publisher
    return locate_log(
        connection,
        dialect,
        name=config.database.log_table,
        schema=config.database.schema_name,
        layout=settings.layout,
        column_map=settings.column_map,
        column_sort=settings.column_sort,
    )


# --- the classes ------------------------------------------------------------------------------------------------------


def read_catalog(connection: Connection, dialect: Dialect, config: Config, log: LogTable) -> Catalog:
    """Return the classes that the configuration names, as the database has them now; some may be unavailable."""
    database = dialect.reflect(connection, class_schema(config))
    return available_catalog(declared_tables(config, database, log), database, log)


def class_schema(config: Config) -> str | None:
    """The schema of the classes, None = the current one. Raises ConfigError if they are of several schemas."""
    return class_names(config)[0]


class DeclaredTables(NamedTuple):
    """The configuration with a watch for each table that its watches mean, and what is wrong with them.

    ``refused``: names and patterns that give no class now, with the reason. ``doubtful``: tables of watches by pattern
    that leave out what is not there. They are published, and their triggers stay as they are.
    """

    config: Config
    refused: Mapping[str, EventlogError]
    doubtful: Mapping[str, EventlogError]


def with_tables(config: Config, database: Database, log: LogTable) -> Config:
    """Return the configuration of ``declared_tables``. Raises ConfigError that says everything that is wrong."""
    config, refused, doubtful = declared_tables(config, database, log)
    if errors := [*refused.values(), *doubtful.values()]:
        raise together(errors)
    return config


def declared_tables(config: Config, database: Database, log: LogTable) -> DeclaredTables:
    """Return the configuration with a watch for each table that patterns of its watches mean (spec/triggers.md 1).

    Its warnings name tables that match and can be no class.
    """
    if all(watch.tables is None for watch in config.watches):
        return DeclaredTables(config, {}, {})
    tables = {table.name: table for table in database.tables}
    named = {name for watch in config.watches if watch.table and (name := match_name(watch.table, tables))}
    ignore = internal_tables(database, log)
    if config.database.tables is not None:  # what is no class cannot be watched
        listed = [split_name(name)[1] for name in config.database.tables]
        ignore |= {name for name in tables if match_name(name, listed) is None}
    others = {
        name
        for watch in config.watches
        for name in matching_tables(database, watch.tables or (), watch.exclude_tables, ignore)
    }
    watches: list[WatchSettings] = []
    warnings = list(config.warnings)
    refused: dict[str, EventlogError] = {}
    doubtful: dict[str, EventlogError] = {}
    for watch in config.watches:
        if watch.tables is None:
            watches.append(watch)
            continue
        choice = choose_tables(
            database, watch.tables, watch.exclude_tables, watched=named, others=others, ignore=ignore
        )
        named |= set(choice.tables)  # a table is of the first watch that it matches
        warnings += (
            f"{name} matches the watch {watch.name} and has no primary key: it is no class, and nothing of it is "
            "captured; exclude_tables takes it out"
            for name in choice.without_key
        )
        unknown = set(watch.exclude)
        for name in choice.tables:
            known = attribute_names(database, tables[name], named)
            exclude = tuple(column for column in watch.exclude if match_name(column, known) is not None)
            unknown -= set(exclude)
            exclude += tuple(column for column in choice.left_out.get(name, ()) if column not in exclude)
            watches.append(replace(watch, table=name, tables=None, exclude_tables=(), exclude=exclude))
        wrong: list[EventlogError] = [
            ConfigError(f"watch {watch.name}, exclude: {one!r} is an attribute of none of its tables")
            for one in sorted(unknown)
        ]
        for name, error in choice.refused.items():
            located = ConfigError(f"watch {watch.name}: {error}")
            if name in watch.exclude_tables:
                wrong.append(located)
            else:
                refused[name] = located
        if wrong:
            doubtful |= dict.fromkeys(choice.tables or watch.tables, together(wrong))
    return DeclaredTables(replace(config, watches=tuple(watches), warnings=tuple(warnings)), refused, doubtful)


def class_names(config: Config) -> tuple[str | None, tuple[str, ...] | None]:
    """The schema of the classes (None = the current one) and their names (None = all of the schema).

    Classes are what ``tables`` lists, else what is watched; what patterns of watches mean is what ``with_tables`` has
    put in their place. Raises ConfigError if they are of several schemas.
    """
    listed = config.database.tables or tuple(watch.name for watch in config.watches)
    if not listed:
        return config.database.schema_name, None
    parts = [split_name(name) if config.database.tables else (None, name) for name in listed]
    schemas = {schema for schema, _ in parts if schema is not None}
    if len(schemas) > 1:
        raise ConfigError(f"tables of several schemas ({', '.join(sorted(schemas))}) need a publisher for each schema")
    return next(iter(schemas), config.database.schema_name), tuple(name for _, name in parts)


def catalog_of(config: Config, database: Database, tables: Sequence[str] | None, log: LogTable) -> Catalog:
    """Return the classes of a database under the configuration's options; the log and its companions are none.

    Raises ConfigError or TriggerError that says everything that is wrong.
    """
    return complete_catalog(_catalog_of(config, database, tables, log, {}))


def available_catalog(declared: DeclaredTables, database: Database, log: LogTable) -> Catalog:
    """Return the classes of a database as ``catalog_of`` does; those that cannot be any are ``unavailable``."""
    return _catalog_of(declared.config, database, class_names(declared.config)[1], log, declared.refused)


def _catalog_of(
    config: Config,
    database: Database,
    tables: Sequence[str] | None,
    log: LogTable,
    refused: Mapping[str, EventlogError],
) -> Catalog:
    settings, present = config.format, [table.name for table in database.tables]
    unavailable = dict(refused)
    exclude: defaultdict[str, set[str]] = defaultdict(set)
    for watch in declared_watches(config):
        try:
            for table, columns in excluded_columns(database, watch, tables).items():
                exclude[table] |= set(columns)
        except TriggerError as error:
            unavailable[match_name(watch.table, present) or watch.table] = error
    return build_catalog(
        database,
        tables=tables,
        values=value_options(config),
        meta_identifiers=settings.meta_identifiers,
        referential=settings.referential,
        emit_keys=settings.emit_keys,
        exclude=exclude,
        ignore=log.own_tables,
        refused=unavailable,
        was={watch.name: watch.was for watch in config.watches if watch.was},
        was_key={watch.name: watch.was_key for watch in config.watches if watch.was_key},
    )


def captured_tables(config: Config, catalog: Catalog) -> tuple[str, ...]:
    """The tables whose triggers fill the log: those of the watches, or of all classes where nothing is watched."""
    watched = [catalog.log_name(watch.table) for watch in config.watches if watch.table is not None]
    classes = [log_name.object_class for log_name in watched if log_name is not None and log_name.child is None]
    if not config.watches or any(watch.tables is not None for watch in config.watches):
        classes = [cls for cls in catalog.classes if not cls.is_view]
    bases = [table for watch in config.watches for table in watch.base or ()]
    tables = [table for cls in classes for table in (cls.name, *(child.table.name for child in cls.children))]
    return tuple(dict.fromkeys([*tables, *bases]))


def declared_watches(config: Config) -> tuple[WatchedTable, ...]:
    """The watches of the configuration, as the triggers are compiled from them."""
    return tuple(WatchedTable(**{**same_fields(watch, WatchedTable), "table": watch.name}) for watch in config.watches)


# --- the options ------------------------------------------------------------------------------------------------------


def publisher_options(config: Config, current_user: str, fold_name: Callable[[str], str] = str) -> PublisherOptions:
    """The options of the cycle (spec/event-log.md 9). ``current_user`` is loopback unless ``driver_user`` is set.

    ``fold_name`` gives ``driver_user`` as the database spells a name that is written so (8.3).
    """
    settings = config.publisher
    user = own_user(config, current_user, fold_name)
    # A consumer has no changes of its own: every perpetrator is sent unless it names one (spec/event-log.md 13.5).
    has_loopback = not settings.allow_loopback and (config.of_log.consumer is None or settings.driver_user is not None)
    changed = {
        "driver_user": user if has_loopback else None,
        "concurrency": settings.concurrency if sink_named(config.sink.type).takes_several else 1,
        "time_of_day": settings.time_of_day or (),
        "heartbeat_interval": settings.heartbeat_interval * 60.0,
    }
    return PublisherOptions(
        **{**same_fields(settings, PublisherOptions), **changed},
        leave_loopback=settings.loopback_rows == "leave",
        delete_loopback=settings.loopback_rows == "consume" and is_given(config, "publisher.loopback_rows"),
        loopback_is_meant=is_given(config, "publisher.loopback_rows") or is_given(config, "publisher.allow_loopback"),
        park=settings.on_retry == "park",
        events=EventOptions(insert_query_back(config), config.format.noop_updates),
    )


def wanted_classes(config: Config, catalog: Catalog) -> frozenset[str] | None:
    """The names of the classes that ``source.classes`` asks for, None = all. Raises ConfigError for what is none."""
    wanted = config.of_log.classes
    if wanted is None:
        return None
    names = [*(cls.name for cls in catalog.classes), *catalog.unavailable]
    found = {name: match_name(name, names) for name in wanted}
    if unknown := [name for name, match in found.items() if match is None]:
        raise ConfigError(
            f"{config.sources['source.classes']}: {first_of(unknown, 3)} is no class that the configuration names; "
            f"there are {first_of(sorted(names), 10)}"
        )
    return frozenset(match for match in found.values() if match is not None)


def own_user(config: Config, current_user: str, fold_name: Callable[[str], str]) -> str:
    """The user whose rows are loopback (spec/event-log.md 8.3), whether they are published or not."""
    named = config.publisher.driver_user
    return (current_user if named is None else fold_name(named.strip())).rstrip(" ")


def publisher_user(config: Config, dialect: Dialect, current_user: str) -> str:
    """The database user that publishes, before ``driver_user``, for commands that others run too.

    Who installs overrides the URL of the file; that one is the publisher's.
    """
    if config.url_of_file is None or config.url_of_file == config.database.url:
        return current_user
    try:
        name = parse_url(config.url_of_file).username
    except ConfigError:  # it is not in use
        return current_user
    return current_user if name is None or not current_user else dialect.spelled(name)


def is_given(config: Config, name: str) -> bool:
    """Whether an option, ``section.key``, was set, in whatever way."""
    return config.sources.get(name, "default") not in ("default", "profile idm")


# --- the tables change while a publisher runs -------------------------------------------------------------------------

CATALOG_INTERVAL: Final = 10.0
"""Seconds between two looks at the tables of a publisher that has no reason to suspect anything."""


class CatalogDrifted(Exception):
    """A window holds rows that are bad by a catalogue that is no longer that of the database. Nothing was recorded."""


class CatalogWatcher:
    """Which catalogue the publisher works with: that of ``context``."""

    __slots__ = ("_fingerprint", "_last_warning", "_next_refresh", "context")

    def __init__(self, context: Context) -> None:
        self.context = context
        self._fingerprint: str | None = None  # of the tables, when they were last compared
        self._next_refresh = 0.0
        self._last_warning = ""

    def refresh_if_due(self) -> bool:
        """``refresh``, if the last one was ``CATALOG_INTERVAL`` seconds ago."""
        return time.monotonic() >= self._next_refresh and self.refresh()

    def refresh(self) -> bool:
        """Compare the tables with the catalogue; whether there is another one in ``context`` now. Ends a transaction.

        What has changed is logged as a warning, once. A catalogue that cannot be read leaves the old one in force, and
        that is said once too.
        """
        self._next_refresh = time.monotonic() + CATALOG_INTERVAL
        context = self.context
        if context.reread is None:
            return False
        # Before the catalogue: what changes in between is seen the next time.
        fingerprint = context.dialect.fingerprint(context.connection, context.catalog)
        if fingerprint is not None and fingerprint == self._fingerprint:
            context.connection.commit()
            return False
        self._fingerprint = fingerprint
        try:
            fresh = context.reread()
        except EventlogError as error:
            context.connection.rollback()
            if str(error) != self._last_warning:
                what = "the tables have changed, and the publisher goes on with what it knows of them: %s"
                _log.warning(what, error, extra={"code": error.code})
            self._last_warning = str(error)
            return False
        context.connection.commit()
        sentences = list(_changes(context.catalog, fresh))
        if not sentences:
            return False
        for sentence in sentences:
            _log.warning("%s; see `eventlog triggers plan`, then `eventlog triggers apply`", sentence)
        self.context = replace(context, catalog=_with_lost(fresh, context.catalog))
        return True

    def check_bad(self) -> None:
        """To be called before rows are marked bad: raises CatalogDrifted if the catalogue was to blame."""
        if self.refresh():
            raise CatalogDrifted

    def explains(self, error: Exception) -> bool:
        """Whether an error that ended a cycle came of the old catalogue, and another one is in ``context`` now."""
        if isinstance(error, CatalogDrifted):
            return True
        if self.context.connection.invalidated:
            return False
        self.context.connection.rollback()
        return self.refresh()


def _changes(before: Catalog, now: Catalog) -> Iterator[str]:
    """What became of the classes' tables, in sentences, one a table."""
    classes = {cls.name: cls for cls in now.classes}
    for name, error in now.unavailable.items():
        if str(before.unavailable.get(name, "")) != str(error):
            yield unavailable_in_words(name, error)
    for old in before.classes:
        new = classes.pop(old.name, None)
        if new is None:
            if old.name not in now.unavailable:
                yield f"{old.name} is no class any more"
            continue
        tables = _columns(new)
        for table, columns in _columns(old).items():
            if table not in tables:
                why = f": {now.no_children[table]}" if table in now.no_children else ""
                yield f"{table} is no child table of {old.name} any more{why}; its values are not captured"
                continue
            words = column_changes(columns, tables.pop(table))
            if table == old.name:
                words = (*words, *key_change(*([column.name for column in cls.key] for cls in (old, new))))
            if words:
                yield f"{table}: {'; '.join(words)}"
        yield from (f"{table} is a child table of {old.name} now" for table in tables)
    yield from (f"{name} is a class now" for name in classes)


def _columns(cls: ObjectClass) -> dict[str, dict[str, str]]:
    """The columns of a class that are attributes, by table, its own table first."""
    tables: dict[str, dict[str, str]] = {cls.table.name: {}}
    for attribute in cls.attributes:
        tables.setdefault(attribute.table, {})[attribute.column.name] = attribute.column.type.sql
    return tables


def _with_lost(now: Catalog, before: Catalog) -> Catalog:
    """The catalogue, in which the log's rows may still name what only the catalogue before had."""
    names: dict[str, LogName] = {}
    for name, log_name in now.log_names.items():
        old = before.log_names.get(name)
        lost = {} if old is None else _lost(old, log_name)
        # Last of all: a name that the class has now means what it means now.
        names[name] = replace(log_name, by_spelling=(*log_name.by_spelling, lost)) if lost else log_name
    return replace(now, log_names=names)


def _lost(old: LogName, new: LogName) -> dict[str, Attribute]:
    return {
        name: attribute for names in old.by_spelling for name, attribute in names.items() if new.attribute(name) is None
    }
