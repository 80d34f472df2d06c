"""``doctor``: a check of the database that changes nothing and whose work is bounded
(spec/event-log.md 11).

``doctor`` consists of a table of checks. Each check has a subject. A check queries the database
(``sql.doctor``, with the SQL in each dialect's ``doctor.sql``), and a plain function in a module of
``sql.doctor`` judges the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from sqlalchemy import Connection

from eventlog.changes.publishing import Need, row_attributes
from eventlog.config.load import Config, connection_url
from eventlog.config.post_poll import SAFE_WAYS, refused_statements
from eventlog.config.publishing import chosen_format, plain_credentials
from eventlog.core.catalog import Catalog, Database, ObjectClass, match_name
from eventlog.core.clock import unix_time
from eventlog.core.ranges import to_ranges
from eventlog.core.rows.checks import check_rows
from eventlog.core.rows.event_ids import raised_at
from eventlog.errors import (
    DatabaseError,
    EventlogError,
    LogTableError,
    ServerUnavailable,
    number_of,
)
from eventlog.model import queue_rows, unpadded
from eventlog.publisher.context.context import (
    LOOPBACK_WAYS_OUT,
    NO_RETENTION,
    PublisherOptions,
    in_savepoint,
    loopback_of_tables,
    owned_tables,
    utc_anyway,
)
from eventlog.publisher.context.observer import Measured
from eventlog.publisher.declared.class_trial import unwritable_classes
from eventlog.publisher.declared.configured_classes import (
    accepted_tables,
    available_catalog,
    captured_tables,
    class_names,
    class_schema,
    classes_to_read,
    declared_tables,
    declared_watches,
    shown_by_generated,
    tables_of,
    watched_classes,
    with_tried_conditions,
)
from eventlog.publisher.declared.configured_writer import event_writer
from eventlog.publisher.declared.opening import (
    additions_of,
    find_log,
    publisher_options,
    publisher_user,
    retention_of,
)
from eventlog.publisher.declared.trigger_plan import unlike_recorded
from eventlog.publisher.inspect.consumer_status import consumer_statuses
from eventlog.publisher.inspect.grants import grants_to_read
from eventlog.publisher.inspect.refusals import refused, superseded
from eventlog.publisher.ledger.delivery import Delivery
from eventlog.publisher.ledger.in_flight import CLAIM_WAYS_OUT, read_recorded
from eventlog.publisher.ledger.ledger import is_at_work, ledger_of
from eventlog.publisher.send.cycle import recorded_ids
from eventlog.publisher.upkeep.leaves import detached_leaves
from eventlog.publisher.upkeep.retention import log_size, overdue_purge, size_in_words
from eventlog.sql import doctor, migrations, resync
from eventlog.sql.connect.connection import connect, dialect_of, is_pooled
from eventlog.sql.connect.locate import new_log
from eventlog.sql.doctor import Finding, Limits
from eventlog.sql.doctor.consumers import (
    judge_before_epoch,
    judge_beyond,
    judge_consumer,
    judge_own_consumer,
    judge_pause,
)
from eventlog.sql.doctor.event_times import are_utc
from eventlog.sql.doctor.log import (
    judge_indexes,
    judge_lock,
    judge_numberings,
    judge_revision,
    judge_storage,
    judge_wake,
)
from eventlog.sql.doctor.rights import (
    RightsOfOthers,
    judge_hidden_rights,
    judge_rights_of_others,
)
from eventlog.sql.doctor.rows import (
    at_least,
    judge_due,
    judge_gone,
    judge_in_flight,
    judge_invalid_rows,
    judge_kept,
    judge_keys,
    judge_queue,
    judge_record_ids,
    judge_statuses,
    logged_objects,
)
from eventlog.sql.doctor.triggers import (
    judge_broken,
    judge_child_values,
    judge_classes,
    judge_deferrable,
    judge_definers,
    judge_disabled,
    judge_orphans,
    judge_partitions,
    judge_plan,
    judge_recorded,
    judge_refused,
    judge_resyncs,
    judge_superusers,
    judge_untouched,
    judge_unwritable,
    judge_without_plan,
)
from eventlog.sql.log.epoch import read_epoch
from eventlog.sql.log.errors import SKIPPED
from eventlog.sql.log.next_record_id import next_unused
from eventlog.sql.log.pauses import read_pause
from eventlog.sql.log.rows import refuse_large_ids
from eventlog.sql.log_table import split_name
from eventlog.sql.port import questions
from eventlog.sql.port.dialect import Dialect
from eventlog.sql.port.driver_errors import TO_THE_PRIMARY, as_database_errors, set_purpose
from eventlog.sql.port.log_operations import Window, counted_rows
from eventlog.sql.port.open_database import OpenDatabase
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.rights import Addition, Part, Purpose, Right, grants_advice, rights_for
from eventlog.sql.readers.consumers import SNAPSHOT, check_possible, read_consumer
from eventlog.sql.triggers import TriggerPlan
from eventlog.sql.triggers.declared import declared_triggers
from eventlog.sql.triggers.watch import LOGS_VALUES

Compare = Callable[[OpenDatabase, Config], TriggerPlan]
"""A function that compares the triggers with the configuration. Raises EventlogError."""

T = TypeVar("T")

_NO_LIMITS: Final = Limits()


@dataclass(slots=True)
class Case:
    """The input of the checks, and the findings so far.

    The fields from ``log`` on are set once the log is found.
    """

    db: OpenDatabase
    config: Config
    limits: Limits
    compare: Compare
    findings: list[Finding] = field(default_factory=list)
    orphaned_logs: set[str] = field(default_factory=set)
    log: OpenLog = field(init=False)
    user: str = field(init=False)
    options: PublisherOptions = field(init=False)
    missing_rights: Sequence[str] = ()
    upgrade: str = "eventlog db upgrade, with --existing-log for a log that eventlog did not create"
    database: Database | None = None
    catalog: Catalog | None = None
    plan: TriggerPlan | None = None
    deliveries: Sequence[Delivery] = ()

    @property
    def connection(self) -> Connection:
        """The connection of the session."""
        return self.db.connection

    @property
    def dialect(self) -> Dialect:
        """The dialect of the connection."""
        return self.db.dialect

    def run(self, checks: Checks) -> None:
        """Run checks. If a check fails, that is a finding, and the other checks are still run."""
        for subject, find in checks.items():
            try:
                with in_savepoint(self.connection):
                    self.findings += find(self)
            except EventlogError as error:
                if self.connection.invalidated:
                    raise
                text = f"{subject} could not be checked: {error}"
                self.findings.append(
                    Finding(
                        "check_failed",
                        "warning",
                        text,
                        (grants_advice(self.db.current_user(), Purpose.MONITOR),),
                    )
                )

    def ask(self, question: str, record: Callable[..., T], **about: object) -> list[T]:
        """Return the database's answers to a question about the log."""
        return questions.ask(self.log, question, record, **about)

    def ask_one(self, question: str, record: Callable[..., T], **about: object) -> T:
        """Return the answer to a question that has exactly one answer."""
        (answer,) = self.ask(question, record, **about)
        return answer

    def repairs(self, name: str, **names: str) -> tuple[str, ...]:
        """Return statements that repair something; they are shown, and the user runs them."""
        return questions.repairs(self.log, name, **names)

    @property
    def consumer(self) -> str | None:
        """The consumer in the configuration, None = the publisher."""
        consumer: str | None = self.config.of_log.consumer
        return consumer

    @property
    def grants(self) -> str:
        """The command that prints all grants of the connected user, as a line of a fix."""
        return grants_advice(self.user, self.purpose)

    @property
    def purpose(self) -> Purpose:
        """The purpose of the configured reader."""
        return Purpose.PUBLISHER if self.consumer is None else Purpose.CONSUMER

    def grants_of(self, purpose: Purpose, *additions: Addition) -> Sequence[str]:
        """Return the statements that grant the connected user the rights of a purpose."""
        user = self.dialect.quote(self.user)
        return self.log.grants(rights_for(purpose, *additions), user)

    @property
    def schema(self) -> str:
        """The schema of the classes."""
        return "" if self.database is None else self.database.schema or ""

    @property
    def log_name(self) -> str:
        """The SQL name of the log."""
        return self.dialect.qualified(self.log.table.schema, self.log.table.name)

    def column(self, field_name: str) -> str:
        """Return the SQL name of the log's column for a field of ``LogRow``."""
        return self.dialect.quote(self.log.table.column(field_name))


def examine(config: Config, compare: Compare, limits: Limits = _NO_LIMITS) -> list[Finding]:
    """Return the findings about the log, its triggers and its rows, the most severe first.

    Raises ConfigError, and DatabaseError if the database cannot be reached.
    """
    url = connection_url(config.database)
    dialect = dialect_of(url)
    engine = set_purpose(connect(url), Purpose.MONITOR, hides_rows=config.hides_rows)
    with as_database_errors(engine), engine.connect() as conn:
        pooled = is_pooled(conn, dialect)
        db = dialect.open(conn)
        db.begin_reading(limits.statement)
        case = Case(db, config, limits, compare)
        case.findings += doctor.judge_pool(pooled)
        case.run(SESSION_CHECKS)
        if _find_log(case):
            case.run(LOG_CHECKS)
            if not any(
                right.startswith(("SELECT", "USAGE on schema")) for right in case.missing_rights
            ):
                case.run(ROW_CHECKS)
    order = ("error", "warning", "info")
    return sorted(dict.fromkeys(case.findings), key=lambda finding: order.index(finding.severity))


# --- the session, and the place of the log --------------------------------------------------------


def _credentials(case: Case) -> Iterator[Finding]:
    for what, to_do in plain_credentials(case.config):
        yield doctor.warning("plain_credentials", what, to_do)
    yield from doctor.judge_wire(case.db.unverified())


def _clock(case: Case) -> Iterator[Finding]:
    before = unix_time()
    answers = questions.ask(case.db, "clock", float)
    after = unix_time()
    for database_time in answers:
        yield from doctor.judge_clock(
            database_time - (before + after) / 2, (after - before) / 2, case.limits
        )


def _orphans(case: Case) -> Iterator[Finding]:
    orphans = questions.ask(case.db, "orphans", questions.row)
    case.orphaned_logs = {log for _, _, log, _ in orphans}
    yield from judge_orphans(orphans)


def _find_log(case: Case) -> bool:
    """Find the log, and return True if it exists; otherwise add a finding."""
    dialect, config = case.dialect, case.config
    try:
        with in_savepoint(case.connection):
            case.log = find_log(case.db, config)
    except EventlogError as error:
        _, name = split_name(config.database.log_table)
        log_name = dialect.quote(dialect.spelled(name))
        _rights_on_unseen(case)
        # Without USAGE it is unknown whether there is a log: the grants alone are the fix.
        is_hidden = any(right.startswith("USAGE on schema") for right in case.missing_rights)
        if not is_hidden and not any(
            log == log_name or log.endswith(f".{log_name}") for log in case.orphaned_logs
        ):
            fix = getattr(error, "commands", ("eventlog config",))
            case.findings.append(Finding("log_table", "error", str(error), fix))
        return False
    case.user = case.db.current_user()
    case.options = publisher_options(
        config, publisher_user(config, dialect, case.user), dialect.fold_name
    )
    return True


def _rights_on_unseen(case: Case) -> None:
    """Check the rights on a log that cannot be read, perhaps because the right on its schema is
    missing.
    """
    settings = case.config.database
    with (
        suppress(EventlogError),
        in_savepoint(case.connection),
    ):
        schema, name = split_name(settings.log_table)
        table = new_log(case.dialect, schema or settings.schema_name, name)
        case.log = case.db.log(table)
        case.user = case.db.current_user()
        case.findings += _rights(case)


# --- the log --------------------------------------------------------------------------------------


def _rights(case: Case) -> Iterator[Finding]:
    purpose = case.purpose
    additions = additions_of(case.config)
    case.missing_rights = case.log.missing_rights(purpose, *additions)
    grants = case.grants_of(purpose, *additions) if case.missing_rights else ()
    yield from doctor.judge_rights(case.missing_rights, case.user, grants, case.grants)
    if case.consumer is None and not case.missing_rights:
        unseen = case.log.lacking([(Part.RESYNC, Right.SELECT)])
        if unseen and case.log.may_have(case.log.table.resync_table):
            grants = case.log.grants(
                {Part.RESYNC: frozenset({Right.SELECT})}, case.dialect.quote(case.user)
            )
            to_do = grants_advice(case.user, Purpose.MONITOR)
            yield from doctor.judge_rights_to_resyncs(unseen, case.user, grants, to_do)
    if case.consumer is not None and not case.missing_rights:
        missing = case.log.missing_rights(Purpose.RESET)
        grants = case.grants_of(Purpose.RESET) if missing else ()
        yield from doctor.judge_rights_to_reset(missing, case.user, grants)


def _rights_of_others(case: Case) -> Iterator[Finding]:
    visible = all(case.ask("sees_rights", bool))
    yield from judge_hidden_rights(visible=visible, user=case.user)
    yield from judge_rights_of_others(RightsOfOthers.read(case.log), case.log.table, case.dialect)


def _revision(case: Case) -> Iterator[Finding]:
    settings = case.config.database
    try:
        with in_savepoint(case.connection):
            reached = migrations.current(
                case.connection, log_table=settings.log_table, schema=settings.schema_name
            )
    except DatabaseError:
        return  # a publisher's user has no right on the version table and needs none
    unknown = migrations.unknown(reached)
    case.upgrade = migrations.upgrade_command(reached)
    yield from judge_revision(
        reached, migrations.heads(), unknown, migrations.OTHER_EVENTLOG, case.upgrade
    )


def _indexes(case: Case) -> Iterator[Finding]:
    fixes = case.repairs("reading_index"), case.repairs("row_index")
    columns = case.ask("indexes", questions.row)
    by_expression = case.dialect.queue_by_expression
    yield from judge_indexes(
        columns, case.log.table, case.dialect.quote, *fixes, by_expression=by_expression
    )


def _post_poll(case: Case) -> Iterator[Finding]:
    statements = case.config.publisher.post_poll_statements
    for statement, reason in refused_statements(statements, case.log.table):
        text = f"post_poll_statements: {statement!r} {reason}; `publish` refuses to start"
        yield doctor.error("post_poll", text, "take it out", *SAFE_WAYS)


def _snapshots(case: Case) -> list[doctor.HeldSnapshot]:
    return case.ask("snapshots", doctor.HeldSnapshot, limit=case.limits.shown)


def _wake(case: Case) -> Iterator[Finding]:
    wake, settings = case.dialect.wake, case.config.publisher
    if wake is not None and settings.notify:
        missing = wake.missing(case.log)
        yield from judge_wake(missing, settings.polling_interval, case.upgrade)


# --- the capture ----------------------------------------------------------------------------------


def _classes(case: Case) -> Iterator[Finding]:
    """Read the classes. Leave out tables that cannot be classes, so that later checks can run."""
    listed: Sequence[str] | None = None
    try:
        with in_savepoint(case.connection):
            case.database = database = case.db.reflect(class_schema(case.config))
            before = len(case.config.warnings)
            declared = declared_tables(case.config, database, case.log.table)
            case.config = declared.config
            for warning in case.config.warnings[before:]:
                fix = (
                    "give the table a primary key, or name it in exclude_tables of the [[watch]]",
                )
                yield Finding("class_without_key", "info", warning, fix)
            listed = class_names(case.config)[1]
            catalog = available_catalog(declared, database, case.log.table)
            accepted = partial(accepted_tables, case.log, case.config)
            catalog = with_tried_conditions(case.db, catalog, accepted)
            refused, known = shown_by_generated(case.log, case.config, catalog, case.consumer)
            case.catalog = catalog.without(refused) if refused else catalog
            for shown in known:
                to_do = "mask or exclude the column, or name it in plain of the [[mask]]"
                yield doctor.error("mask_bypassed", str(shown), to_do)
    except EventlogError as error:
        yield Finding("config", "error", str(error), ("eventlog config",))
    if case.database is not None:
        ignore, quote = case.log.table.own_tables, case.dialect.quote
        yield from judge_classes(case.database, listed, case.catalog, ignore, quote)
        if case.catalog is not None and chosen_format(case.config).is_of_rows:
            yield from judge_child_values(case.catalog, case.config.format.type)


def _unwritable(case: Case) -> Iterator[Finding]:
    if case.catalog is not None:
        yield from judge_unwritable(unwritable_classes(case.config, case.catalog, case.log.table))


def _unreadable(case: Case) -> Iterator[Finding]:
    if case.catalog is None:
        return
    whole_rows = Need.WHOLE_ROWS in event_writer(case.config, case.log.table).needs
    classes = classes_to_read(case.config, case.catalog)
    needed = {pair for cls in classes for pair in _columns_read_back(case, cls, whole_rows)}
    perhaps: set[tuple[str, str]] = set()
    if "altered_tables" in case.dialect.capabilities:
        # With any style, values may be read back: those of a table that was altered, and those too
        # large for the log.
        for cls in classes:
            perhaps |= {(one.table, one.column.name) for one in cls.attributes}
            perhaps |= {(cls.table.name, column.name) for column in cls.key}
        if _has_snapshot_to_send(case):
            needed |= perhaps  # a snapshot reads each object as a whole
        perhaps -= needed
    for columns, judge in (
        (sorted(needed), doctor.judge_unreadable),
        (sorted(perhaps), doctor.judge_unreadable_later),
    ):
        if columns:
            tables, names = ([*texts] for texts in zip(*columns, strict=True))
            answer = case.ask(
                "unreadable", questions.row, schema=case.schema, tables=tables, columns=names
            )
            user = case.dialect.quote(case.user)
            unread = [table for table, _ in answer]
            grants = grants_to_read(case.log, case.schema or None, unread, user)
            yield from judge(answer, case.user, grants, case.grants)


def _has_snapshot_to_send(case: Case) -> bool:
    """Return True if the configured consumer sends a snapshot, or will send one when it is
    registered.
    """
    if case.consumer is None:
        return False
    entry = None if case.missing_rights else read_consumer(case.log, case.consumer)
    return case.config.of_log.start_from == SNAPSHOT if entry is None else entry.loaded is not None


def _columns_read_back(case: Case, cls: ObjectClass, whole_rows: bool) -> Iterator[tuple[str, str]]:
    """Yield each column that the publisher reads back for a class, as its table and its name
    (spec/event-log.md 7.1).

    ``whole_rows`` means that the format sends the object's row even if the log has the values
    (formats/debezium.md 4).
    """
    watches = [
        watch for watch in case.config.watches if match_name(watch.name, (cls.name,)) is not None
    ]
    # Triggers of another product may log rows of any type.
    by_value = (
        bool(watches)
        and all(watch.row_style in LOGS_VALUES for watch in watches)
        and not cls.is_view
    )
    children = [child.attribute for child in cls.children]
    read = [
        one
        for one in cls.attributes
        if not by_value or one in children or case.dialect.is_read_back(one.column)
    ]
    if whole_rows:
        read += row_attributes(cls)
    yield from ((one.table, one.column.name) for one in read)
    if read:
        yield from ((cls.table.name, column.name) for column in cls.key)
    yield from (
        (child.table.name, column) for child in cls.children for column in child.owner_columns
    )


def _plan(case: Case) -> Iterator[Finding]:
    """Compare the triggers with the declared triggers, or judge only the installed triggers if the
    comparison fails.
    """
    if case.database is None:
        return
    reason = ""
    try:
        with in_savepoint(case.connection):
            case.plan = case.compare(case.db, case.config)
    except EventlogError as error:
        reason = str(error)
        yield from _refused_watches(case)
    installed = case.ask("installed_triggers", doctor.LogTrigger)
    yield from judge_disabled(installed)
    if case.plan is None:
        watched = (
            [".".join(filter(None, (case.schema, table))) for table in _watched(case)]
            if _sees_triggers(case)
            else []
        )
        yield from judge_without_plan(installed, watched, reason)
        with (
            suppress(EventlogError),
            in_savepoint(case.connection),
        ):
            recorded = unlike_recorded(case.log, case.config)
            yield from judge_recorded(recorded)
    else:
        yield from judge_plan(case.plan, installed)


def _superusers(case: Case) -> Iterator[Finding]:
    functions = case.ask("superuser_functions", questions.row)
    ungranted = {} if case.plan is None else case.plan.ungranted
    yield from judge_superusers(functions, ungranted, case.plan is not None)


def _due(case: Case) -> Iterator[Finding]:
    """Judge the resyncs that `triggers apply` found to be due and that were not run
    (spec/triggers.md 9.1).
    """
    if case.catalog is None or not case.log.may_have(case.log.table.resync_table):
        return
    if not case.log.lacking([(Part.RESYNC, Right.SELECT)]):
        names = {cls.name for cls in case.catalog.classes}
        due = [one for one in resync.due_now(case.log) if one.selection.class_name in names]
        yield from judge_resyncs(due)


def _refused_watches(case: Case) -> Iterator[Finding]:
    """Judge watches whose triggers no user can create, because a column of a view's base table is
    missing.
    """
    if case.database is None or case.catalog is None:
        return
    watches, reflect = declared_watches(case.config), case.db.reflect
    declared = declared_triggers(
        case.database, case.catalog, watches, reflect, case.catalog.unavailable
    )
    yield from judge_refused(declared.refusals)


def _sees_triggers(case: Case) -> bool:
    return case.db.sees_triggers(case.schema)


def _watched(case: Case) -> list[str]:
    """Return the watched tables that are classes, and the child tables of these classes."""
    if case.catalog is None:
        return []
    watched = watched_classes(case.config, case.catalog)
    return [table for cls in watched for table in tables_of(cls)]


def _deferrable(case: Case) -> Iterator[Finding]:
    if case.catalog is not None:
        yield from judge_deferrable(case.catalog, case.plan)


def _untouched(case: Case) -> Iterator[Finding]:
    if case.catalog is None or not _sees_triggers(case):
        return
    tables = [cls.name for cls in case.catalog.classes if not cls.is_view]
    watched = _watched(case)
    bare = [
        table
        for table in case.ask("without_triggers", str, schema=case.schema, tables=tables)
        if table not in watched
    ]
    yield from judge_untouched(bare, case.config.database.tables is not None)


def _rights_to_apply(case: Case) -> Iterator[Finding]:
    if watched := _watched(case):
        missing = case.ask("rights_to_apply", str, schema=case.schema, tables=watched)
        yield from doctor.judge_rights_to_apply(missing, case.user)


def _owner(case: Case) -> Iterator[Finding]:
    """Judge captured tables that the publisher's own user owns (spec/event-log.md 8.3)."""
    if case.catalog is None:
        return
    captured = captured_tables(case.config, case.catalog)
    if owned := owned_tables(case.db, case.options, case.schema or None, captured):
        text = loopback_of_tables(case.options.driver_user or "", owned)
        yield Finding("loopback", "warning", text, LOOPBACK_WAYS_OUT)


# --- the rows -------------------------------------------------------------------------------------


def _without_record_id(case: Case) -> Iterator[Finding]:
    try:
        refuse_large_ids(case.log)
    except LogTableError as refused:
        yield doctor.error("record_id_range", str(refused))
    rows, _, checked = case.ask_one("without_record_id", questions.row, limit=case.limits.rows)
    yield from judge_record_ids(rows, checked, case.log_name, case.column("record_id"), case.limits)


def _in_flight(case: Case) -> Iterator[Finding]:
    ledger = ledger_of(case.log, case.consumer)
    case.deliveries, claim = read_recorded(case.log, ledger.consumer)
    if claim is not None:
        yield Finding("backlog_waits", "warning", claim.in_words, CLAIM_WAYS_OUT)
    events = sum(1 for delivery in case.deliveries for _ in delivery.events())
    oldest = min((delivery.number for delivery in case.deliveries), default=None)
    seconds = None if oldest is None else case.ask_one("inflight", float, delivery=oldest)
    rows = len(recorded_ids(case.deliveries))
    yield from judge_in_flight(
        events, rows, seconds, is_at_work(case.log, ledger.consumer), case.limits
    )


def _consumers(case: Case) -> Iterator[Finding]:
    """Judge readers that are paused (spec/event-log.md 8.8), and consumers that make no progress
    and keep rows from being purged (13.4).
    """
    zone, name = case.config.publisher.event_time_zone, case.consumer
    found = consumer_statuses(case.log, zone)
    following = next_unused(case.log) if found else None
    raised = raised_at(read_epoch(case.log).epoch) if found else None
    if name is None:
        yield from judge_pause(read_pause(case.log))
    for one in found:
        yield from judge_pause(one.pause)
        if not one.rests:
            sink = "" if one.start is None else one.start.sink
            yield from judge_consumer(
                one.name, one.rows_behind, one.still_seconds, one.runs, case.limits, sink
            )
        yield from judge_beyond(one.name, one.done_top, following)
        yield from judge_before_epoch(one.name, one.begun, raised)
    if name is None:
        return
    try:
        check_possible(case.log)
    except (LogTableError, ServerUnavailable) as refused:
        yield Finding("consumers_unsupported", "error", str(refused), ())
        return
    own = next((one for one in found if one.name == name), None)
    yield from judge_own_consumer(name, None if own is None else (own.rows_behind, own.runs))


def _queue(case: Case) -> Iterator[Finding]:
    log, settings = case.log, case.config.publisher
    if case.consumer is not None:
        return
    queue = log.queue(settings.event_time_zone)
    yield from judge_queue(queue, log.is_locked(), settings.publisher_disabled)


def _loopback(case: Case) -> Iterator[Finding]:
    """Judge rows of the publisher's own user (spec/event-log.md 8.3)."""
    user = case.options.driver_user
    if user is None or case.consumer is not None:  # a consumer passes over such rows on purpose
        return
    limit = case.limits.rows
    rows, first, checked = case.ask_one(
        "made_by", questions.row, perpetrator=user.rstrip(" "), limit=limit
    )
    if not rows:
        return
    which = f"{at_least(rows, checked, case.limits)} of status N (from record_id {first} on)"
    text = f"{which} made by {user!r}, the publisher's own user: "
    if case.options.leave_loopback:
        yield Finding(
            "loopback",
            "warning",
            f"{text}with loopback_action = keep they stay N",
            (
                'loopback_action = "mark" in [publisher]',
                f"or connect as another user than {user!r}",
            ),
        )
    else:
        yield Finding(
            "loopback",
            "info" if case.options.loopback_is_meant else "warning",
            f"{text}they will be marked S without being published",
            (
                "allow_loopback = true in [publisher], to publish them",
                *LOOPBACK_WAYS_OUT[::2],
            ),
        )


def _event_time(case: Case) -> Iterator[Finding]:
    settings, limits = case.config.publisher, case.limits
    now = case.log.due_until(settings.event_time_zone)
    if case.log.table.writes_utc:
        yield Finding("event_time", "warning", utc_anyway(case.log), ())
    if settings.handle_future_events:
        waiting = case.log.not_due(now, limits.rows)
        yield from judge_due(waiting, limits)
    else:
        newest = case.ask("ahead", questions.row, now=now, sample=limits.sample)
        table = case.log.table
        zone = table.zone_of_times(settings.event_time_zone)
        is_utc = table.writes_utc or are_utc(case.db, table)
        yield from doctor.judge_event_time(newest, zone, limits, is_utc=is_utc)


def _invalid_rows(case: Case) -> Iterator[Finding]:
    if case.catalog is None:
        return
    options, limit, ledger = case.options, case.limits.rows, ledger_of(case.log, case.consumer)
    ledger.recover()
    undone = ledger.undone(Window(1, None, limit, skipped_user=options.skipped_user))
    window = case.log.read_window(undone)
    rows_n = counted_rows(list(queue_rows(window)), recorded_ids(case.deliveries))
    invalid = check_rows(rows_n, case.catalog, options.driver_user).invalid
    yield from judge_invalid_rows(
        invalid, len(window), len(window) == limit, case.limits, ledger.consumer
    )


def _keys(case: Case) -> Iterator[Finding]:
    if case.catalog is not None:
        keys = case.ask("spelled_keys", questions.row, sample=case.limits.sample)
        yield from judge_keys(keys, case.catalog, case.limits)


def _gone(case: Case) -> Iterator[Finding]:
    """Judge objects that were deleted without a trigger, for example by TRUNCATE, and objects that
    were logged as deleted although they still exist.
    """
    if case.catalog is None or "truncate" in case.dialect.capabilities:
        return
    newest = max(
        (int(last) for *_, last in case.ask("statuses", questions.row, sample=1)), default=0
    )
    rows = case.log.read_columns(
        [(max(1, newest - case.limits.rows + 1), newest)],
        ("record_id", "event_type", "table_name", "table_key"),
    )
    for object_class, (existing, gone) in logged_objects(rows, case.catalog).items():
        keys = list(dict.fromkeys([*existing, *gone]))
        there = case.db.query_back(case.catalog.schema, object_class, keys, ())
        yield from judge_gone(
            object_class.name, [key for key in existing if key not in there], case.limits
        )
        yield from judge_kept(object_class.name, [key for key in gone if key in there], case.limits)


def _size(case: Case) -> Iterator[Finding]:
    """Judge whether the log is purged as ``keep_days`` and ``keep_bytes`` demand."""
    retention = retention_of(case.config)
    if case.consumer is not None or (
        retention == NO_RETENTION and not case.log.table.is_partitioned
    ):
        return
    measured = Measured.read(case.log)
    size = log_size(case.log, measured.tables)
    yield Finding("log_size", "info", size.in_words(retention), ())
    what, why = overdue_purge(case.log, retention, case.config.publisher.event_time_zone, measured)
    if what:
        yield Finding(
            "purge_overdue",
            "warning",
            f"a purge of the log is overdue, since keep_days is {retention.keep_days}: "
            f"{what} ({why})",
            ("end what holds it back, then run as the owner of the log: eventlog purge",),
        )
    if retention.keep_bytes is not None and size.bytes > retention.keep_bytes:
        how = "eventlog purge" if size.leaves else "eventlog db partition, then eventlog purge"
        yield Finding(
            "log_too_large",
            "warning",
            f"the log has {size_in_words(size.bytes)}, and keep_bytes is "
            f"{size_in_words(retention.keep_bytes)}",
            (f"run as the owner of the log: {how}",),
        )


def _detached(case: Case) -> Iterator[Finding]:
    """Judge tables that were leaves of the log, and whose removal no purge has recorded."""
    for name, unprocessed in detached_leaves(case.log):
        rows = (
            "this role may not read it to count its unprocessed rows"
            if unprocessed is None
            else f"it has {number_of(unprocessed, 'row')} that are not of status S or W"
        )
        yield Finding(
            "detached_leaf",
            "warning",
            f"the table {name} was a leaf of the log, and no purge has recorded its removal; "
            f"{rows}",
            (
                f"eventlog purge --finish {name}",
                "to keep it, give it another comment: COMMENT ON TABLE "
                f"{case.dialect.qualified(case.log.table.schema, name)} IS 'archive'",
            ),
        )


def _published(case: Case) -> Iterator[Finding]:
    """Judge publications that publish the leaves of the log: a subscriber lacks the leaves that a
    purge creates.
    """
    means = case.dialect.partitioning
    if means is None or not case.log.table.is_partitioned:
        return
    for name in means.publications(case.log):
        yield Finding(
            "published_leaves",
            "warning",
            f"publication {name} publishes the leaves (partitions) of the log {case.log_name}: a "
            "purge creates new leaves, and a subscriber without them stops",
            ("publish only the tables that the subscriber needs, without the log",),
        )


# --- the checks, in their order -------------------------------------------------------------------

Checks = Mapping[str, Callable[[Case], Iterable[Finding]]]
"""The checks by their subject, which the message names if a check fails. Each check returns
findings.
"""

SESSION_CHECKS: Final[Checks] = {
    "whether the database is writable": lambda case: doctor.judge_read_only(
        case.db.read_only(), TO_THE_PRIMARY
    ),
    "the credentials": _credentials,
    "the search path": lambda case: doctor.judge_search_path(case.db.unsafe_schemas()),
    "the clock": _clock,
    "orphaned triggers": _orphans,
}

LOG_CHECKS: Final[Checks] = {
    "the rights on the log": _rights,
    "the rights of others on the log": _rights_of_others,
    "the revision of the log": _revision,
    "the lock of the log": lambda case: judge_lock(case.log.lock_holder(), str(case.log)),
    "the indexes of the log": _indexes,
    "the sequence of record_id": lambda case: judge_numberings(
        case.ask("numberings", questions.Numbering),
        case.log.table.column("record_id"),
        must_be_known="concurrent_writers" in case.dialect.capabilities,
    ),
    "old snapshots": lambda case: doctor.judge_snapshots(_snapshots(case), case.limits),
    "dead rows": lambda case: judge_storage(
        case.ask("storage", doctor.TableStorage), _snapshots(case), case.limits
    ),
    "the size of the log": _size,
    "detached leaves": _detached,
    "the publications of the log": _published,
    "the post-poll statements": _post_poll,
    "the notification of changes": _wake,
    "open transactions": lambda case: doctor.judge_transactions(
        case.ask("transactions", doctor.OpenTransaction, limit=case.limits.shown), case.limits
    ),
    "the classes": _classes,
    "what the format can write": _unwritable,
    "the right to read back": _unreadable,
    "installed triggers": _plan,
    "the owners of functions": _superusers,
    "the definers of triggers": lambda case: judge_definers(case.ask("definers", questions.row)),
    "what the triggers have not logged": _due,
    "tables that triggers refer to": lambda case: judge_broken(
        case.ask("broken_triggers", questions.row)
    ),
    "triggers of partitions": lambda case: judge_partitions(
        case.ask("partition_triggers", questions.row)
    ),
    "keys with deferred checks": _deferrable,
    "tables without triggers": _untouched,
    "the right to apply triggers": _rights_to_apply,
    "the owner of the watched tables": _owner,
}


def _statuses(case: Case) -> Iterator[Finding]:
    statuses = case.ask("statuses", questions.row, sample=case.limits.sample)
    skipped: dict[int, str] = {}
    if not case.log.lacking([(Part.ERROR, Right.SELECT)]):
        entries, _ = refused(case.log)
        done = superseded([*entries.items()], case.log)
        ids = sorted(row for row, entry in entries.items() if entry.code == SKIPPED or row in done)
        rows = case.log.read_columns(to_ranges(ids), ("record_id", "status")) if ids else []
        skipped = {int(record_id): unpadded(status) for record_id, status in rows}
    yield from judge_statuses(statuses, case.log_name, case.column("status"), case.limits, skipped)


ROW_CHECKS: Final[Checks] = {
    "statuses": _statuses,
    "rows without record_id": _without_record_id,
    "what is in flight": _in_flight,
    "the consumers": _consumers,
    "the queue": _queue,
    "loopback rows": _loopback,
    "event_time": _event_time,
    "rows N": _invalid_rows,
    "the spelling of keys": _keys,
    "objects that no longer exist": _gone,
}
