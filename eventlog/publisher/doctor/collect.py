"""Gather what ``doctor`` judges by: one look at the database that changes nothing and whose work is bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import Connection

from eventlog.config.load import Config, connection_url
from eventlog.core.catalog import Catalog, Database, match_name
from eventlog.core.checks import check_rows
from eventlog.errors import DatabaseError, EventlogError
from eventlog.model import LogRow, queue_rows
from eventlog.publisher.context import PublisherOptions
from eventlog.publisher.cycle import recorded_ids
from eventlog.publisher.doctor import Finding, Limits, capture, log_table, rights, session, waiting
from eventlog.publisher.flight import decode
from eventlog.publisher.metrics import owned_tables
from eventlog.publisher.open import (
    captured_tables,
    catalog_of,
    class_names,
    class_schema,
    find_log,
    publisher_options,
    publisher_user,
    with_tables,
)
from eventlog.sql import migrations
from eventlog.sql.connection import as_database_errors, connect, is_pooled
from eventlog.sql.dialect import Dialect
from eventlog.sql.health import Health, Orphan
from eventlog.sql.log_table import LogTable, split_name
from eventlog.sql.registry import for_url
from eventlog.sql.rows import read_inflight
from eventlog.sql.triggers.plan import TriggerPlan
from eventlog.sql.windows import Window

Compare = Callable[[Connection, Dialect, Config], TriggerPlan]
"""Compares the triggers with what the configuration declares. Raises EventlogError."""

_NO_LIMITS: Final = Limits()


@dataclass(slots=True)
class _Case:
    """What is known so far, and what was found. What a check cannot ask is a finding, and not the end."""

    conn: Connection
    dialect: Dialect
    health: Health
    config: Config
    limits: Limits
    findings: list[Finding] = field(default_factory=list)

    @contextmanager
    def checking(self, what: str) -> Iterator[None]:
        try:
            with as_database_errors(self.conn), self.conn.begin_nested():
                yield
        except EventlogError as error:
            if self.conn.invalidated:
                raise
            text = f"{what} could not be checked: {error}"
            self.findings.append(Finding("check_failed", "warning", text, ("eventlog doctor, as a user who may",)))


def examine(config: Config, compare: Compare, limits: Limits = _NO_LIMITS) -> list[Finding]:
    """Everything that is worth saying about the log, its triggers and its rows, the worst first.

    Raises ConfigError, and DatabaseError when the database cannot be reached.
    """
    url = connection_url(config.database)
    dialect = for_url(url)
    health = dialect.health
    engine = connect(url)
    try:
        with engine.connect() as conn, as_database_errors(conn):
            pooled = is_pooled(conn, dialect)
            health.begin_reading(conn, limits.statement)
            case = _Case(conn, dialect, health, config, limits)
            case.findings += session.judge_pool(pooled)
            with case.checking("whether the database takes writes"):
                case.findings += session.judge_read_only(dialect.read_only(conn))
            case.findings += session.judge_clock(health.clock(conn), limits)
            _examine_log(case, compare)
    finally:
        engine.dispose()
    order = ("error", "warning", "info")
    return sorted(dict.fromkeys(case.findings), key=lambda finding: order.index(finding.severity))


def _examine_log(case: _Case, compare: Compare) -> None:
    orphans: list[Orphan] = []
    with case.checking("orphaned triggers"):
        orphans = case.health.orphans(case.conn)
        case.findings += capture.judge_orphans(orphans)
    try:
        with as_database_errors(case.conn), case.conn.begin_nested():
            log = find_log(case.conn, case.dialect, case.config)
    except EventlogError as error:
        if not _is_log_of(orphans, case):  # which is said already
            case.findings.append(Finding("log_table", "error", str(error), ("eventlog db upgrade", "eventlog config")))
        _examine_rights_on_unseen(case)
        return
    user = publisher_user(case.config, case.dialect, case.dialect.current_user(case.conn))
    options = publisher_options(case.config, user, case.dialect.fold_name)
    missing = _examine_rights(case, log)
    _examine_table(case, log)
    database, catalog = _examine_classes(case, log)
    if database is not None:
        _examine_triggers(case, log, database, catalog, compare)
    if database is not None and catalog is not None:
        with case.checking("the owner of the watched tables"):
            owned = owned_tables(
                case.conn, case.dialect, options, database.schema, captured_tables(case.config, catalog)
            )
            case.findings += waiting.judge_owner(owned, options.driver_user or "")
    if not any(right.startswith(("SELECT", "USAGE on schema")) for right in missing):
        _examine_rows(case, log, options, catalog)


def _is_log_of(orphans: Sequence[Orphan], case: _Case) -> bool:
    """Whether triggers whose log is gone wrote the configured one."""
    _, name = split_name(case.config.database.log_table)
    own = case.dialect.quote(case.dialect.spelled(name))
    return any(orphan.log == own or orphan.log.endswith(f".{own}") for orphan in orphans)


def _examine_rights(case: _Case, log: LogTable) -> list[str]:
    missing: list[str] = []
    deletes = case.config.publisher.delete_from_log
    with case.checking("the rights on the log"):
        missing = case.dialect.missing_rights(case.conn, log, deletes)
        user = case.dialect.current_user(case.conn)
        case.findings += rights.judge_rights(missing, user, case.health.grants(case.conn, log, deletes))
    return missing


def _examine_rights_on_unseen(case: _Case) -> None:
    """The rights on a log that cannot be looked at, perhaps since the right on its schema is missing."""
    settings = case.config.database
    with suppress(EventlogError), as_database_errors(case.conn), case.conn.begin_nested():
        own, name = split_name(settings.log_table)
        log = LogTable(own or settings.schema_name, name, LogRow._fields, max_identifier=case.dialect.max_identifier)
        missing = case.dialect.missing_rights(case.conn, log, case.config.publisher.delete_from_log)
        user = case.dialect.current_user(case.conn)
        case.findings += rights.judge_rights(missing, user, case.health.grants(case.conn, log, deletes=False))


def _examine_table(case: _Case, log: LogTable) -> None:
    """What does not depend on its rows."""
    conn, health = case.conn, case.health
    settings = case.config.database
    try:
        with as_database_errors(conn), conn.begin_nested():
            reached = migrations.current(conn, log_table=settings.log_table, schema=settings.schema_name)
            newest = migrations.heads()
            if old := [revision for revision in reached if revision not in newest]:
                text = f"the log is at revision {', '.join(old)}, and there are newer ones: {', '.join(newest)}"
                case.findings.append(Finding("migration", "warning", text, ("eventlog db upgrade",)))
    except DatabaseError:
        pass  # a publisher's user has no right on the version table and needs none
    with case.checking("the indexes of the log"):
        indexes = [index for index in health.indexes(conn, log) if index.is_valid]
        case.findings += log_table.judge_indexes(
            any(health.serves_reading(log, index) for index in indexes),
            any(health.serves_rows(log, index) for index in indexes),
            health.reading_index(log),
            health.row_index(log),
        )
    with case.checking("the sequence of record_id"):
        case.findings += log_table.judge_numberings(health.numberings(conn, log))
    with case.checking("dead rows"):
        case.findings += log_table.judge_storage(health.storage(conn, log), _sql_name(case, log), case.limits)
    wake = case.dialect.wake
    if wake is not None and case.config.publisher.notify:
        with case.checking("the notification of changes"):
            interval = case.config.publisher.polling_interval
            case.findings += log_table.judge_wake(wake.missing(conn, log), interval)
    with case.checking("open transactions"):
        found = health.transactions(conn, log, case.limits.shown)
        case.findings += log_table.judge_transactions(found, case.limits)


def _examine_classes(case: _Case, log: LogTable) -> tuple[Database | None, Catalog | None]:
    """The classes, without those that cannot be any, so that the rest can be examined."""
    own = log.own_tables
    database: Database | None = None
    catalog: Catalog | None = None
    listed: tuple[str, ...] | None = None
    try:
        with as_database_errors(case.conn), case.conn.begin_nested():
            database = case.dialect.reflect(case.conn, class_schema(case.config))
            chosen = with_tables(case.config, database, log)
            told, case.config = chosen.warnings[len(case.config.warnings) :], chosen
            mend = ("exclude_tables in the [[watch]], or a primary key",)
            case.findings += (Finding("class_without_key", "info", sentence, mend) for sentence in told)
            listed = class_names(case.config)[1]
            possible = None if listed is None else [name for name in listed if _can_be_class(name, database)]
            catalog = catalog_of(case.config, database, possible, log)
    except EventlogError as error:
        case.findings.append(Finding("config", "error", str(error), ("eventlog config",)))
    if database is None:
        return None, None
    quote = case.dialect.quote
    case.findings += capture.judge_classes(database, listed, catalog, own, quote)
    if catalog is not None and database.schema is not None:
        with case.checking("the right to read back"):
            columns = [
                (attribute.table, attribute.column.name) for cls in catalog.classes for attribute in cls.attributes
            ]
            user = case.dialect.current_user(case.conn)
            found = case.health.unreadable(case.conn, database.schema, columns)
            case.findings += rights.judge_unreadable(found, user, database.schema, quote)
    return database, catalog


def _can_be_class(name: str, database: Database) -> bool:
    tables = {table.name: table for table in database.tables}
    found = match_name(name, tables)
    if found is None:
        return False
    table = tables[found]
    if table.kind == "view":
        return any(column.name[:3].casefold() == "pk_" for column in table.columns)
    return bool(table.primary_key)


def _examine_triggers(
    case: _Case, log: LogTable, database: Database, catalog: Catalog | None, compare: Compare
) -> None:
    conn, health = case.conn, case.health
    schema = database.schema or ""
    plan: TriggerPlan | None = None
    reason = ""
    try:
        with as_database_errors(conn), conn.begin_nested():
            plan = compare(conn, case.dialect, case.config)
    except EventlogError as error:
        reason = str(error)
    watched = [] if catalog is None else _watched_tables(case.config, catalog)
    with case.checking("installed triggers"):
        installed = health.installed_triggers(conn, log)
        disabled: dict[str, list[str]] = {}
        for trigger in installed:
            if not trigger.enabled:
                disabled.setdefault(trigger.table, []).append(trigger.trigger)
        sees = health.sees_triggers(conn, schema)
        by_name = None if plan is not None else [f"{schema}.{table}" for table in watched if sees]
        case.findings += capture.judge_installed(installed, by_name, reason)
        if plan is not None:
            case.findings += capture.judge_plan(plan, disabled)
    with case.checking("triggers of partitions"):
        case.findings += capture.judge_partitions(health.partition_triggers(conn, log))
    if catalog is not None:
        case.findings += capture.judge_deferrable(catalog, () if plan is None else plan.warnings)
        with case.checking("tables without triggers"):
            sees = health.sees_triggers(conn, schema)
            tables = [cls.name for cls in catalog.classes if sees and not cls.is_view]
            bare = [table for table in health.without_triggers(conn, schema, tables) if table not in watched]
            case.findings += capture.judge_untouched(bare, case.config.database.tables is not None)
    if watched:
        with case.checking("the right to apply triggers"):
            missing = health.rights_to_apply(conn, log, schema, watched)
            case.findings += rights.judge_rights_to_apply(missing, case.dialect.current_user(conn))


def _watched_tables(config: Config, catalog: Catalog) -> list[str]:
    """The tables of the watches that are classes, and their child tables."""
    tables: list[str] = []
    for watch in config.watches:
        if watch.table is not None and (found := catalog.log_name(watch.table)) is not None and found.child is None:
            tables.append(found.object_class.name)
            tables += [child.table.name for child in found.object_class.children]
    return tables


def _examine_rows(case: _Case, log: LogTable, options: PublisherOptions, catalog: Catalog | None) -> None:
    conn, health, limits = case.conn, case.health, case.limits
    settings = case.config.publisher
    log_sql = _sql_name(case, log)
    status, record_id = (case.dialect.quote(_column(log, name)) for name in ("status", "record_id"))
    in_flight: frozenset[int] = frozenset()
    with case.checking("status letters"):
        case.findings += waiting.judge_statuses(health.statuses(conn, log, limits.sample), log_sql, status, limits)
    with case.checking("rows without record_id"):
        found = health.without_record_id(conn, log, limits.rows)
        case.findings += waiting.judge_record_ids(found, log_sql, record_id, limits)
    with case.checking("what is in flight"):
        runs = case.dialect.is_locked(conn, log)
        flights = [decode(number, composition) for number, composition in read_inflight(conn, log)]
        events = sum(len(envelope.events) for flight in flights for envelope in flight.envelopes)
        in_flight = recorded_ids(flights)
        seconds = health.inflight_seconds(conn, log)
        case.findings += waiting.judge_in_flight(events, len(in_flight), seconds, runs, limits)
        queue = case.dialect.queue(conn, log, settings.event_time_zone)
        case.findings += waiting.judge_queue(queue, runs, settings.publisher_disabled)
    if options.driver_user is not None:
        with case.checking("loopback rows"):
            rows = health.made_by(conn, log, options.driver_user, limits.rows)
            case.findings += waiting.judge_loopback(rows, options, limits)
    with case.checking("event_time"):
        if settings.handle_future_events:
            due = health.not_due(conn, log, settings.event_time_zone, limits.rows)
            case.findings += waiting.judge_due(due, limits)
        else:
            ahead = health.ahead(conn, log, settings.event_time_zone, limits.sample)
            case.findings += session.judge_event_time(ahead, settings.event_time_zone, limits)
    if catalog is not None:
        with case.checking("rows N"):
            leave = options.driver_user if options.leave_loopback else None
            window = case.dialect.read_window(conn, log, Window(1, None, limits.rows, leave_user=leave))
            rows_n = [row for row in window if row.record_id not in in_flight]
            bad = check_rows(queue_rows(rows_n), catalog, options.driver_user).bad
            case.findings += waiting.judge_bad(bad, len(window), len(window) == limits.rows, limits)
        with case.checking("the spelling of keys"):
            keys = health.spelled_keys(conn, log, limits.sample)
            cut = sum(key.rows for key in keys) >= limits.sample
            case.findings += log_table.judge_keys(keys, catalog, cut, limits)


def _column(log: LogTable, field_name: str) -> str:
    return log.columns[LogRow._fields.index(field_name)]


def _sql_name(case: _Case, log: LogTable) -> str:
    names: Sequence[str] = (log.name,) if log.schema is None else (log.schema, log.name)
    return ".".join(map(case.dialect.quote, names))
