"""Open a context from the configuration: connect, find the log, take its lock,
determine its epoch.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial

from eventlog.config.effective import receiver
from eventlog.config.load import Config, connection_url, with_current_secrets
from eventlog.config.post_poll import SAFE_WAYS, refused_statements
from eventlog.config.publishing import insert_query_back
from eventlog.core.catalog.filters import digest_of
from eventlog.core.options import same_fields
from eventlog.core.rows.event_ids import epoch_suffix
from eventlog.core.rows.events import EventOptions
from eventlog.errors import ConfigError, DatabaseError, first_of
from eventlog.publisher.context.context import Context, Counters, PublisherOptions, Retention, Used
from eventlog.publisher.context.used_ids import repeated_number
from eventlog.publisher.declared.configured_classes import (
    captured_tables,
    filters_of,
    masks_of,
    read_catalog,
    wanted_classes,
)
from eventlog.publisher.declared.configured_writer import event_writer
from eventlog.publisher.ledger.ledger import Ledger, SetLedger, ledger_of, lock_within
from eventlog.publisher.sinks import Owner
from eventlog.registry import sink_named
from eventlog.sql.connect.connection import connect, describe, dialect_of, parse_url, refuse_pooling
from eventlog.sql.connect.locate import locate_log
from eventlog.sql.doctor.event_times import are_utc
from eventlog.sql.log.accepted_filters import accepted_filters
from eventlog.sql.log.epoch import (
    differing,
    forget_removed,
    pass_over,
    raise_epoch,
    read_epoch,
    read_removed,
    write_epoch,
)
from eventlog.sql.log.errors import read_attempts
from eventlog.sql.log.internal_tables import next_number
from eventlog.sql.log.next_record_id import next_given
from eventlog.sql.log.recorded_masks import RecordedMasks, key_of, recorded_masks
from eventlog.sql.log.rows import refuse_large_ids
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.dialect import Dialect
from eventlog.sql.port.driver_errors import TO_THE_PRIMARY, as_database_errors, set_purpose
from eventlog.sql.port.open_database import OpenDatabase
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.rights import Addition, Part, Purpose, Right
from eventlog.sql.readers.consumers import ConsumerStart, begun_of, consumer_names, record_start

_log = logging.getLogger("eventlog.publisher")


def additions_of(config: Config) -> tuple[Addition, ...]:
    """Return the additional rights that the settings require."""
    return (
        *((Addition.DELETE_FROM_LOG,) if config.publisher.delete_from_log else ()),
        *((Addition.FILTERS,) if config.filters else ()),
    )


@contextmanager
def open_context(
    config: Config,
    counters: Counters,
    used: Used | None = None,
    purpose: Purpose | None = None,
    lock_wait: float = 0.0,
) -> Iterator[Context]:
    """Open a context under the epoch of the log. It has the lock of the log until the block ends,
    and waits up to ``lock_wait`` seconds for the lock.

    ``used`` has the numbers of the log that this process has used before, None = it has used no
    numbers. The session needs the rights of ``purpose``, None = the rights of the publisher or the
    consumer. Raises ConfigError, DatabaseError, LogTableError, and PublisherAlreadyRunning when the
    log is locked.
    """
    with open_unlocked(config, counters, purpose) as context:
        context.log.check_rights(purpose or context.ledger.purpose, *additions_of(config))
        if why := context.log.db.read_only():
            place = describe(connection_url(config.database))
            raise DatabaseError(
                f"cannot publish from {place}, because publishing marks rows: {why}; "
                f"{TO_THE_PRIMARY}"
            )
        context.log.db.begin_publishing()
        server = context.log.server_parts()
        used = used or Used()
        used.holder = lock_within(context.ledger, lock_wait, used.holder)
        refuse_pooling(
            context.log.connection, context.log.dialect, describe(connection_url(config.database))
        )
        context.log.db.prepare_log_statements()
        refuse_other_filters(config, context)
        context.ledger.masks = refuse_other_masks(context)
        context = replace(context, used=used)
        with _registered(context):
            yield under_epoch(context, settle_epoch(context.log, context.ledger, used, server))


@contextmanager
def _registered(context: Context) -> Iterator[None]:
    """Register a new consumer. If the configuration or the owner of the place of the documents
    refuses the start, the registration is undone.
    """
    context.ledger.register()
    try:
        yield
    except ConfigError:
        context.ledger.undo_registration()
        raise


@contextmanager
def open_to_publish(
    config: Config,
    counters: Counters,
    used: Used | None = None,
    lock_wait: float = 0.0,
    target: str | None = None,
) -> Iterator[Context]:
    """Open a context as ``open_context`` does, and record the log as the owner of the place of the
    sink's documents. ``target`` is the receiver in words, None = the configured sink.

    Raises the errors of ``open_context``, and ConfigError if the place belongs to another owner, or
    if a post-poll statement is refused.
    """
    with open_context(config, counters, used, lock_wait=lock_wait) as context:
        refuse_post_poll(config, context.log.table)
        log = context.log

        def owner() -> Owner:
            reader = f"/{context.ledger.consumer}" if context.ledger.consumer else ""
            name = f"the log {log}{reader} in {describe(connection_url(config.database))}"
            return Owner(log.identity() + reader, name)

        # The newest number is determined by drawing another one, which stays unused; a publisher
        # has the right to do so.
        newest_delivery = partial(pass_over, log)
        for each in filter(None, (config, config.of_letters)):
            sink_named(each.sink.type).claim(each.sink.options, owner, newest_delivery)
        if context.ledger.consumer:
            start = ConsumerStart(target or receiver(config), config.of_log.classes)
            record_consumer_start(log, context.ledger.consumer, start)
        log.commit()
        yield context


def refuse_other_filters(config: Config, context: Context) -> None:
    """Raise ConfigError if the filters differ from the filters that were accepted for this reader:
    its receiver would lack objects, or have objects that it must not have (spec/event-log.md 15.3).
    """
    filters = filters_of(config)
    ledger = context.ledger
    if not filters and context.log.lacking([(Part.STATE, Right.SELECT)]):
        return  # without this right, the consumer has never had a filter
    if accepted_filters(context.log, ledger.consumer).digest == digest_of(filters):
        return
    raise ConfigError(
        f"the [[filter]] sections are not those that were accepted for {ledger.reader} of the log "
        f"{context.log}: run `{_accept(ledger)}`, which also prints how to fill the receiver"
    )


def _accept(ledger: Ledger) -> str:
    """Return the command that accepts the filters and masks of a reader."""
    option = f" --consumer {shlex.quote(ledger.consumer)}" if ledger.consumer else ""
    return f"eventlog filter accept{option}"


def refuse_other_masks(context: Context) -> RecordedMasks | None:
    """Return the recorded masks of the reader, None = they are unknown. Raise ConfigError if the
    masks of the configuration would show a value that a recorded mask hides, or hash values under
    another secret (spec/event-log.md 15.3).
    """
    log, ledger = context.log, context.ledger
    recorded = recorded_masks(log, ledger.consumer)
    if recorded is None:
        return None
    key = key_of(log, ledger.consumer, context.masks)
    if changed := [*recorded.differences(RecordedMasks.of(context.masks, key))]:
        raise ConfigError(
            f"the [[mask]] sections are not those that {ledger.reader} of the log {log} has used: "
            f"{first_of(changed, 5)}. Undo the change; if the receiver may get the new values, run "
            f"`{_accept(ledger)}`"
        )
    return recorded


def record_consumer_start(log: OpenLog, name: str, start: ConsumerStart) -> None:
    """Record what a consumer sends from now on, and to which receiver. Warn if this differs from
    the previous record (spec/event-log.md 13.4).
    """
    if (before := record_start(log, name, start)) is not None:
        _log.warning(
            "consumer %s of the log %s now sends %s; when it last started, it sent %s. It "
            "continues where it was, so a new receiver lacks all earlier events: to fill it, stop "
            "the consumer and run `eventlog consumers reset %s --start-from snapshot`",
            name,
            log,
            start,
            before,
            name,
        )


def refuse_post_poll(config: Config, log: LogTable) -> None:
    """Raise ConfigError if a post-poll statement changes the log (spec/event-log.md 8.5)."""
    for statement, reason in refused_statements(config.publisher.post_poll_statements, log):
        raise ConfigError(
            f"{config.sources['publisher.post_poll_statements']}: {statement!r} {reason}. Remove "
            f"this statement. Safe ways to delete rows: {', '.join(SAFE_WAYS)}"
        )


@contextmanager
def open_unlocked(
    config: Config,
    counters: Counters,
    purpose: Purpose | None = None,
    *,
    shows_rows: bool = False,
) -> Iterator[Context]:
    """Open a context without the lock of the log, for reading only.

    Secrets in files are read again. ``purpose`` is as in ``open_context``: if a right is missing,
    the error names the rights for this purpose. With ``shows_rows``, messages of the database may
    quote a row although the reader has masks or filters.
    """
    config = with_current_secrets(config, "database")
    url = connection_url(config.database)
    dialect = dialect_of(url)
    if purpose is None:
        purpose = Purpose.PUBLISHER if config.of_log.consumer is None else Purpose.CONSUMER
    hides_rows = config.hides_rows and not shows_rows
    engine = set_purpose(connect(url), purpose, hides_rows=hides_rows)
    with as_database_errors(engine), engine.connect() as connection:
        db = dialect.open(connection)
        log = find_log(db, config)
        options = publisher_options(config, db.current_user(), dialect.fold_name)
        ledger = ledger_of(
            log,
            config.of_log.consumer,
            config.of_log.start_from,
            config.publisher.event_time_zone,
            by_number=not options.handle_future_events,
            skipped_user=options.skipped_user,
            durable_marks=config.publisher.durable_marks,
        )
        ledger.check_possible()
        log.check_rights_to_read(ledger.purpose, purpose)
        refuse_large_ids(log)
        catalog = read_catalog(log, config)
        options = replace(options, classes=wanted_classes(config, catalog))
        entry = read_epoch(log)
        connection.commit()
        with closing(event_writer(config, log.table, counters.count_left_out)) as writer:
            context = Context(
                log,
                catalog,
                options,
                writer,
                counters,
                ledger,
                reread=lambda: read_catalog(log, config),
                captured=partial(captured_tables, config),
                masks=masks_of(config),
            )
            yield under_epoch(context, entry.epoch)


# --- the epoch (spec/event-log.md 7.4) ------------------------------------------------------------


def settle_epoch(log: OpenLog, ledger: Ledger, used: Used, server: Mapping[str, str]) -> str:
    """Return the epoch for new event-ids. If the log was restored to an earlier state, a new epoch
    begins and is committed.

    The caller has the lock of the publisher or consumer that ``ledger`` belongs to. ``used`` has
    the numbers of the log that this process has used. ``server`` is the identification of the
    server (``OpenLog.server_parts``).
    """
    entry = read_epoch(log, is_locked=True)
    known = entry.server
    following = next_given(log)
    reasons = differing(known, server) or differing(used.server, server)
    reasons += _reused_numbers(log, used, following)
    if reasons:
        epoch, used.delivery_no = raise_epoch(log, {**known, **server}, used.delivery_no)
        used.published.forget()
        used.given_again = None
        if following is not None:
            forget_removed(log, following)
        entry = entry._replace(epoch=epoch)
        _log.warning(
            "the log %s may have been put back to an earlier state, by a failover or a restore: "
            "%s. New event-ids carry the epoch %s, so that no event-id means two sets of rows. "
            "Some events may be sent twice under different ids, and receivers keep changes that "
            "the database has lost; see docs/concepts/guarantees.md%s",
            log,
            "; ".join(reasons),
            epoch,
            advice_for_consumers(log),
        )
    elif known.items() < {**known, **server}.items():
        write_epoch(log, entry._replace(server={**known, **server}), is_raise=False)
    _compare_beginning(log, ledger.consumer, used, is_new_epoch=bool(reasons))
    log.commit()
    used.server = server
    return entry.epoch


def _reused_numbers(log: OpenLog, used: Used, following: int | None) -> list[str]:
    """Return, in words, which numbers of this process the log uses again. ``following`` is the next
    record_id, None = unknown.
    """
    found = []
    if used.delivery_no and (delivery := next_number(log)) <= used.delivery_no:
        found.append(f"delivery {delivery} is lower than {used.delivery_no}, which was used before")
    if used.given_again is not None:
        found.append(used.given_again)
    elif following is not None and following <= used.published.highest:
        found.append(repeated_number(following, used.published))
    elif following is not None and following <= (removed := read_removed(log)):
        found.append(
            f"the next record_id is {following}, and rows up to {removed} were removed before"
        )
    return found


def advice_for_consumers(log: OpenLog) -> str:
    """Return what to do about the consumers of a log that was restored to an earlier state, as a
    sentence to append. Empty if the log has no consumers.
    """
    if not (names := consumer_names(log)):
        return ""
    return (
        f". The log has the consumers {', '.join(names)}. If the database has lost the "
        "registration or a reset of a consumer, empty the receiver of this consumer and reset the "
        "consumer (docs/operate/maintain.md)"
    )


def _compare_beginning(log: OpenLog, name: str | None, used: Used, *, is_new_epoch: bool) -> None:
    """Warn if the registration of the consumer that this process has seen is no longer in the log
    (spec/event-log.md 13.4).
    """
    begun = begun_of(log, name) if name else None
    if begun is None:
        return
    if used.begun is not None and (begun < used.begun or (is_new_epoch and begun != used.begun)):
        _log.warning(
            "consumer %s of the log %s began at %s, and the database was put back to a state that "
            "does not have this beginning: its receiver may lack data. Stop the consumer, empty "
            "its receiver, and run `eventlog consumers reset %s --start-from snapshot`",
            name,
            log,
            used.begun.isoformat(" ", "seconds"),
            name,
        )
    used.begun = begun


def under_epoch(context: Context, epoch: str) -> Context:
    """Return the context with an epoch and attempt numbers for new events.

    Ends the transaction.
    """
    attempts = read_attempts(context.log, context.ledger.consumer)
    context.log.commit()
    events = replace(context.options.events, id_suffix=epoch_suffix(epoch))
    options = replace(context.options, events=events)
    return replace(context, epoch=epoch, options=options, attempts=attempts)


def for_consumer(context: Context, name: str | None) -> Context:
    """Return the context for the consumer ``name`` of the log. If ``name`` is None, or if the
    context is already for this consumer, return the same context.

    No rows are left out as loopback, since the options for loopback are in the consumer's own
    configuration. Ends the transaction.
    """
    if name is None or name == context.ledger.consumer:
        return context
    options = replace(context.options, driver_user=None)
    ledger = SetLedger(context.log, name)
    return under_epoch(replace(context, ledger=ledger, options=options), context.epoch)


def find_log(db: OpenDatabase, config: Config, *, has_internal_tables: bool = True) -> OpenLog:
    """Return the log that the configuration names, open on this database's connection. Its form is
    checked (spec/event-log.md 1.4), but not the rights.

    Without ``has_internal_tables``, the log need not have its internal tables.
    """
    settings = config.publisher
    table = locate_log(
        db,
        name=config.database.log_table,
        schema=config.database.schema_name,
        layout=settings.layout,
        column_map=settings.column_map,
        column_sort=settings.column_sort,
        sequence=config.database.record_id_sequence,
        has_internal_tables=has_internal_tables,
    )
    renamed = ((watch.name, *watch.renamed_from) for watch in config.watches if watch.renamed_from)
    # Only this option needs the answer, which costs queries of the catalogue.
    writes_utc = settings.event_time_zone == "local" and are_utc(db, table)
    readers = tuple(map(db.dialect.spelled, config.database.readers))
    return db.log(replace(table, renamed=tuple(renamed), writes_utc=writes_utc, readers=readers))


# --- the options ----------------------------------------------------------------------------------


def publisher_options(
    config: Config, current_user: str, fold_name: Callable[[str], str] = str
) -> PublisherOptions:
    """Return the options of the cycle (spec/event-log.md 9). ``current_user`` is loopback unless
    ``driver_user`` is set.

    ``fold_name`` returns ``driver_user`` in the spelling of the database (8.3).
    """
    settings = config.publisher
    user = own_user(config, current_user, fold_name)
    # A consumer has no changes of its publisher's user: rows of every perpetrator are sent unless
    # one is configured (spec/event-log.md 13.5).
    has_loopback = not settings.allow_loopback and (
        config.of_log.consumer is None or settings.driver_user is not None
    )
    changed = {
        "driver_user": user if has_loopback else None,
        "concurrency": settings.concurrency if sink_named(config.sink.type).takes_several else 1,
        "time_of_day": settings.time_of_day or (),
        "heartbeat_interval": settings.heartbeat_interval * 60.0,
    }
    return PublisherOptions(
        **{**same_fields(settings, PublisherOptions), **changed},
        leave_loopback=settings.loopback_action == "keep",
        delete_loopback=settings.loopback_action == "mark"
        and is_given(config, "publisher.loopback_action"),
        loopback_is_meant=is_given(config, "publisher.loopback_action")
        or is_given(config, "publisher.allow_loopback"),
        park=settings.on_retry == "park",
        events=EventOptions(insert_query_back(config), config.format.noop_updates),
        retention=retention_of(config),
        dead_letters=config.dead_letter.type is not None,
        needs_nonces=sink_named(config.sink.type).drops_repetitions,
        letters_need_nonces=config.dead_letter.type is not None
        and sink_named(config.dead_letter.type).drops_repetitions,
    )


def retention_of(config: Config) -> Retention:
    """Return the maximum age and size of the log's rows."""
    return Retention(config.database.keep_days, config.database.keep_bytes)


def own_user(config: Config, current_user: str, fold_name: Callable[[str], str]) -> str:
    """Return the user whose rows are loopback (spec/event-log.md 8.3), even if loopback rows are
    published.
    """
    named = config.publisher.driver_user
    return (current_user if named is None else fold_name(named.strip())).rstrip(" ")


def publisher_user(config: Config, dialect: Dialect, current_user: str) -> str:
    """Return the database user that publishes, regardless of ``driver_user``, for commands that
    other users run.

    A user who installs overrides the URL of the file, which contains the publisher's user.
    """
    if config.url_of_file is None or config.url_of_file == config.database.url:
        return current_user
    try:
        name = parse_url(config.url_of_file).username
    except ConfigError:  # it is not in use
        return current_user
    return current_user if name is None or not current_user else dialect.spelled(name)


def loopback_user_of(db: OpenDatabase, config: Config) -> str:
    """Return the user whose rows the publisher does not publish, empty if it publishes all rows."""
    user = publisher_user(config, db.dialect, db.current_user())
    return publisher_options(config, user, db.dialect.fold_name).driver_user or ""


def is_given(config: Config, name: str) -> bool:
    """Return True if an option, ``section.key``, was set in any way."""
    return config.sources.get(name, "default") not in ("default", "profile idm")
