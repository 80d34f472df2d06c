"""The publisher as a daemon: it connects, takes the lock, runs cycles, rests, and connects again
(spec/event-log.md 8.5, 12).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Final

from sqlalchemy.exc import DBAPIError

from eventlog.config.load import Config
from eventlog.core.clock import monotonic
from eventlog.errors import (
    ConsumerRuns,
    DatabaseError,
    DatabaseUnavailable,
    FatalAnswer,
    Paused,
    PublisherAlreadyRunning,
    ReceiverUnavailable,
    number_of,
)
from eventlog.model import Document
from eventlog.publisher.context.context import (
    Context,
    Counters,
    Reports,
    Used,
    summary,
    warn_at_start,
)
from eventlog.publisher.context.observer import (
    SILENT,
    Doing,
    Measured,
    Observer,
    measure_queue,
)
from eventlog.publisher.declared.capture_watcher import CaptureWatcher, CompareTriggers
from eventlog.publisher.declared.catalog_watcher import CatalogWatcher
from eventlog.publisher.declared.configured_sink import SecondSink, letters_of
from eventlog.publisher.declared.opening import open_to_publish
from eventlog.publisher.declared.trigger_plan import comparison
from eventlog.publisher.inspect.consumer_status import consumer_statuses
from eventlog.publisher.ledger.in_flight import remove_marked_claims
from eventlog.publisher.ledger.ledger import ranges_of
from eventlog.publisher.ledger.letters import waiting_letters
from eventlog.publisher.run.liveness import ReportingSink
from eventlog.publisher.run.waiting import (
    HeartbeatTimer,
    Idle,
    Stop,
    StopRequest,
    Timetable,
    begin_idle,
    keep_connected,
    soonest,
    wait_until,
)
from eventlog.publisher.send.cycle import run_cycle, send_in_flight
from eventlog.publisher.send.letter_sender import (
    LetterSender,
    LogLetters,
    letter_sender,
    warn_without_sink,
)
from eventlog.publisher.send.log_feed import events_of, info_of, recover
from eventlog.publisher.send.sending import (
    CycleRepeats,
    Delivered,
    DeliveryResult,
    StatementRefused,
    send_heartbeat,
)
from eventlog.publisher.send.serving import outbox_documents
from eventlog.publisher.send.session import PublisherSession, PublisherState, draw_delivery_no
from eventlog.publisher.sinks import Sink
from eventlog.publisher.upkeep.retention import with_retention
from eventlog.registry import as_plugin_errors
from eventlog.sql.log.pauses import seconds_of
from eventlog.sql.log_table import LogTable
from eventlog.sql.port import questions
from eventlog.sql.port.driver_errors import as_database_errors, words_of
from eventlog.sql.port.log_operations import Window
from eventlog.sql.port.sql_files import AS_WRITTEN, run_as_it_stands

_log = logging.getLogger("eventlog.publisher")

NOTHING_PUBLISHED: Final = (
    "nothing is published, because publisher_disabled is set in [publisher]; remove it to publish"
)
"""The warning of a publisher that does nothing."""

OpenLetters = Callable[[LogTable], SecondSink]
"""A function that opens the second sink of a log. Raises ConfigError."""
PAUSE_CHECKED: Final = 1.0
"""The seconds after which a paused publisher checks whether it was resumed."""

OpenContext = Callable[[], AbstractContextManager[Context]]
"""A function that connects to the database and takes the lock of the log.

Raises DatabaseError, PublisherAlreadyRunning.
"""


def publish(
    open_context: OpenContext,
    open_sink: Callable[[], Sink],
    stop: Stop | None = None,
    observer: Observer = SILENT,
    retry: tuple[float, float] = (1.0, 60.0),
    compare: CompareTriggers | None = None,
    standby: bool = False,
    open_letters: OpenLetters | None = None,
) -> None:
    """Publish until ``stop`` is set. A lost database connection is opened again with a back-off;
    ``retry`` has the first and the longest pause of the back-off in seconds.

    ``observer`` is called with the progress. ``compare`` compares the triggers with the declared
    triggers, None = no comparison. With ``standby`` the publisher waits while another publisher has
    locked the log; a consumer always waits. ``open_letters`` opens the sink of dead letters, None =
    there are none. Raises FatalAnswer when the receiver answers fatal, PublisherAlreadyRunning when
    the log is locked, DatabaseError when the first connection fails.
    """
    stop = stop or StopRequest()
    timetable = Timetable()
    reports: Reports | None = None
    captures = CaptureWatcher(compare)

    def publish_connected(connected: Callable[[], bool]) -> None:
        nonlocal reports
        with (
            open_context() as opened,
            as_database_errors(opened.log.connection),
            as_plugin_errors(),
            closing(open_sink()) as sink,
            _letters(opened, open_letters) as letters,
        ):
            context = replace(opened, observer=observer)
            if connected():
                warn_at_start(context)
                _warn_of_letters(context)
            reports = reports or Reports(context.counters)
            try:
                _serve(
                    context,
                    ReportingSink(sink, observer),
                    stop,
                    timetable,
                    reports,
                    captures,
                    letters,
                )
            finally:
                reports.warn_of_loopback(context, at_end=True)

    stands_by_for = PublisherAlreadyRunning if standby else ConsumerRuns
    keep_connected(publish_connected, stop, (DatabaseUnavailable,), *retry, observer, stands_by_for)


def publish_log(
    config: Config,
    counters: Counters,
    used: Used,
    open_sink: Callable[[], Sink],
    stop: Stop,
    observer: Observer,
    target: str | None = None,
) -> None:
    """Publish the log of a configuration until ``stop`` is set, as ``publish`` does.

    ``used`` has the numbers that this process has used before, such as the highest delivery number.
    ``target`` is the receiver in words, None = the configured sink. Raises the errors of
    ``publish``, and ConfigError.
    """
    publish(
        partial(open_to_publish, config, counters, used, target=target),
        open_sink,
        stop,
        observer,
        (config.publisher.retry_initial, config.publisher.retry_max),
        comparison(config),
        config.publisher.standby,
        letters_of(config),
    )


def publish_once(
    context: Context,
    sink: Sink,
    stop: Stop | None = None,
    observer: Observer = SILENT,
    compare: CompareTriggers | None = None,
    open_letters: OpenLetters | None = None,
) -> Collection[str]:
    """Send the recorded deliveries, then the present queue, then dead letters. Return the names of
    the classes that were unavailable at the end. The arguments are as in ``publish``.

    Raises FatalAnswer, ReceiverUnavailable when the receiver stopped the cycle, and Paused.
    """
    stop = stop or threading.Event()
    reports = Reports(context.counters)
    if observer is not SILENT:
        context = replace(context, observer=observer)
        sink = ReportingSink(sink, observer)
        observer.connected(again=False)
        observer.does(Doing.PUBLISHING)
    try:
        with as_database_errors(context.log.connection), as_plugin_errors():
            warn_at_start(context)
            _warn_of_letters(context)
            CaptureWatcher(compare).compare_if_due(context)
            with _letters(context, open_letters) as letters:
                return _publish_once(context, sink, stop, letters)
    finally:
        reports.warn_of_loopback(context, at_end=True)


def _letters(
    context: Context, open_letters: OpenLetters | None
) -> AbstractContextManager[LetterSender | None]:
    """Open the sink of dead letters until the block ends; None if there is none."""
    opened = None if open_letters is None else partial(open_letters, context.log.table)
    return letter_sender(opened, context.options, context.counters)


def _warn_of_letters(context: Context) -> None:
    """Warn about letters that an earlier start recorded, if no sink takes them now."""
    if context.options.dead_letters:
        return
    waiting = waiting_letters(context.log, context.ledger.consumer).entries
    context.log.commit()
    warn_without_sink(waiting)


def _publish_once(
    context: Context, sink: Sink, stop: Stop, letters: LetterSender | None
) -> Collection[str]:
    watcher = CatalogWatcher(context)

    def begin_session() -> PublisherSession:
        begun = _begin_session(watcher, sink, stop, letters)
        begun.state.outbox.retry_now()  # each parked event is tried now, due or not
        return begun

    session = begin_session()
    last = context.ledger.tail()
    while True:
        state = session.state
        is_loading = state.loading is not None
        cycle = _cycle(run_cycle, session, watcher)
        if cycle is None:
            session = begin_session()
            continue
        if cycle.is_suspicious and not stop.is_set():
            # One document may be the cause; further attempts show whether it is.
            _wait_for_receiver(session, stop, cycle)
            continue
        if cycle.result is not DeliveryResult.DONE:
            break
        if is_loading and state.loading is None:
            # Rows up to here may be newer than the values that a chunk of the snapshot has read.
            last = context.ledger.tail()
        if not cycle.more:
            due = state.outbox.untried_due()
            if due is None or stop.wait(max(0.0, due - monotonic())):
                break
            continue  # a part of a document that the receiver fails for: the culprit is unknown
        if state.loading is None and state.scan is None and not _is_waiting(context, last):
            break  # the remaining rows are newer than the start of this run
    _report_left(context, state)
    if cycle.result is DeliveryResult.PAUSED:
        raise Paused(f"the queue was not published: {cycle.reason}")
    if letters is not None and state.pause is None:
        letters.drain(stop.is_set)
    if cycle.result is DeliveryResult.FATAL:
        raise FatalAnswer(f"the receiver answered fatal: {cycle.reason}")
    if cycle.result in (DeliveryResult.UNAVAILABLE, DeliveryResult.RETRY):
        raise ReceiverUnavailable(f"the rest of the queue was not published: {cycle.reason}")
    if parked := state.parked_objects():
        raise ReceiverUnavailable(
            f"{number_of(len(parked), 'object')} left: the receiver asked to send again later, or "
            "fails"
        )
    return watcher.context.catalog.unavailable


def _is_waiting(context: Context, last: int | None) -> bool:
    """Return True if the queue has rows up to this record_id."""
    window = context.ledger.undone(Window(1, last, 1))
    return last is not None and bool(context.log.read_window(window))


def _serve(
    context: Context,
    sink: Sink,
    stop: Stop,
    timetable: Timetable,
    reports: Reports,
    captures: CaptureWatcher,
    letters: LetterSender | None,
) -> None:
    options = context.options
    idle = begin_idle(context)
    watcher = CatalogWatcher(context)
    begin_session = partial(_begin_session, watcher, sink, stop, letters, idle)
    session = begin_session()
    heartbeat = _heartbeat_timer(context)
    while not stop.is_set():
        context.observer.does(Doing.PUBLISHING)
        if heartbeat.is_due(monotonic()) and not _is_paused(session):
            _beat(context, sink)
            heartbeat.last = monotonic()
        if watcher.refresh_if_due():
            session = begin_session()
        captures.compare_if_due(watcher.context)
        started = _local_time(context)
        is_due = started is None or timetable.is_due(options.time_of_day, started)
        sent_before, was_paused = context.counters.documents_sent, session.state.pause is not None
        cycle = _cycle(run_cycle if is_due else send_in_flight, session, watcher)
        if cycle is None:
            session = begin_session()
            continue
        state = session.state
        if was_paused is not (state.pause is not None):
            measure(session)  # so that health shows it
        if context.counters.documents_sent > sent_before:
            heartbeat.last = monotonic()
        _report(context, state, reports)
        _report_left(context, state)
        if not cycle.more:
            _measure_if_due(session)
        if cycle.result is DeliveryResult.FATAL:
            raise FatalAnswer(f"the receiver answered fatal: {cycle.reason}")
        if cycle.result in (DeliveryResult.UNAVAILABLE, DeliveryResult.RETRY):
            idle.wake_up()
            _wait_for_receiver(session, stop, cycle)
            continue
        context.observer.progressed()
        if cycle.result is DeliveryResult.PAUSED:
            context.observer.does(Doing.PAUSED, _why_paused(state))
            idle.wake_up()
            stop.wait(PAUSE_CHECKED)
            continue
        if cycle.more:
            continue
        if started is not None and is_due and cycle.result is DeliveryResult.DONE:
            timetable.finish(started)
        left = _seconds_left(context, state, heartbeat, timetable)
        idle.wait(stop, soonest(left, session.send_letters()))
    if letters is not None:
        letters.finish()


def _begin_session(
    watcher: CatalogWatcher,
    sink: Sink,
    stop: Stop,
    letters: LetterSender | None,
    idle: Idle | None = None,
) -> PublisherSession:
    """Return a session with the watcher's present catalogue and the state that the database has
    recorded.
    """

    def before_delivery() -> None:
        if idle is not None:
            idle.wake_up()
        _measure_if_due(session)

    context = watcher.context
    if not context.ledger.consumer:
        remove_marked_claims(context.log)
    if letters is not None:
        letters.letters = LogLetters(context, letters.form)
    session = PublisherSession(
        context, recover(context), sink, stop.is_set, before_delivery, watcher, letters
    )
    return session


def _heartbeat_timer(context: Context) -> HeartbeatTimer:
    # Some formats have no heartbeat, and a receiver could not read an empty document.
    interval = context.options.heartbeat_interval if context.output.heartbeat else 0.0
    return HeartbeatTimer(interval, monotonic())


def _why_paused(state: PublisherState) -> str:
    pause = state.pause
    return "" if pause is None else f"{pause.reason} ({pause.by})"


def _is_paused(session: PublisherSession) -> bool:
    session.read_pause()
    session.context.log.commit()
    return session.state.pause is not None


def _beat(context: Context, sink: Sink) -> None:
    """Send a heartbeat. A heartbeat has a delivery number but no in-flight entry, since it is never
    sent again.
    """
    number = context.used.delivery_no = draw_delivery_no(context)
    context.log.commit()
    send_heartbeat(sink, Document(number, 1, (), context.output.heartbeat), context.counters)


def _report_left(context: Context, state: PublisherState) -> None:
    """Report to the observer what is parked and in flight."""
    rows = sum(len(one.ids) for one in state.outbox.events())
    context.observer.left(len(state.parked_objects()), rows)


def _report(context: Context, state: PublisherState, reports: Reports) -> None:
    """Log the summary and the warning about loopback rows if they are due."""
    if (before := reports.due()) is not None:
        queue = measure_queue(context.log, context.options.event_time_zone, ledger=context.ledger)
        context.log.commit()
        _log.info("%s", summary(before, context.counters, queue, len(state.parked_objects())))
    reports.warn_of_loopback(context)


def _wait_for_receiver(session: PublisherSession, stop: Stop, cycle: Delivered) -> None:
    """Wait until the receiver is tried again (spec/event-log.md 8.4)."""
    measure(session)
    until, observer = session.state.outbox.resume_at, session.context.observer
    wait_until(until, stop, cycle, observer, partial(measure, session), session.send_letters)


def _cycle(
    run: Callable[[PublisherSession], Delivered], session: PublisherSession, watcher: CatalogWatcher
) -> Delivered | None:
    """Run a cycle, and the post-poll statements if it sent documents. Return None if the cycle must
    run again, because a table had changed or a class could not be written.
    """
    context = session.context
    context.log.db.refuse_replaced()
    sent_before = context.counters.documents_sent
    try:
        cycle = run(session)
    except (CycleRepeats, DBAPIError) as ended:
        error = ended.error if isinstance(ended, StatementRefused) else ended
        if not watcher.explains(error):
            raise error from error.__cause__
        # Sent documents that are not marked are sent again. If later documents were added to the
        # same file or object, the repetition would replace it without them.
        with suppress(ReceiverUnavailable):
            session.sink.flush()
        return None
    watcher.cycle_ended()
    if context.options.post_poll_statements and context.counters.documents_sent > sent_before:
        run_post_poll(context)
    return cycle


def _local_time(context: Context) -> datetime | None:
    """Return the server's local time if times of day are configured, otherwise None."""
    if not context.options.time_of_day:
        return None
    now = context.log.db.local_time()
    context.log.commit()
    return now


def _seconds_left(
    context: Context, state: PublisherState, heartbeat: HeartbeatTimer, timetable: Timetable
) -> float:
    """Return the seconds until the next cycle, attempt at a parked object, heartbeat or measurement
    is due.
    """
    options = context.options
    local = _local_time(context)
    now = monotonic()
    due = state.outbox.next_due(now)
    return soonest(
        options.polling_interval
        if local is None
        else timetable.seconds_left(options.time_of_day, local),
        None if due is None else max(0.0, due - now),
        heartbeat.seconds_left(now),
        context.observer.measure_due(),
    )


def run_post_poll(context: Context) -> None:
    """Run ``post_poll_statements`` in a separate transaction. If one statement fails, all
    statements are rolled back and the error is logged; the rows of the cycle are marked already,
    and publishing continues. An error of the connection is raised.
    """
    connection = context.log.connection
    try:
        for statement in context.options.post_poll_statements:
            run_as_it_stands(connection, f"{AS_WRITTEN} {statement}")
        connection.commit()
    except DBAPIError as error:
        if error.connection_invalidated:
            raise
        connection.rollback()
        _log.error(
            "post_poll_statements failed and were undone: %s",
            words_of(connection, error),
            extra={"code": DatabaseError.code},
        )


# --- figures that need a query, read between two deliveries
# ------------------------------------------


def _measure_if_due(session: PublisherSession) -> None:
    """Report to the observer if that is due. No transaction may be open, and none is left open."""
    if session.context.observer.measure_due() == 0.0:
        measure(session)


def measure(session: PublisherSession) -> None:
    """Report the queue and the deliveries to the observer, unless the observer needs no
    measurements. No transaction may be open, and none is left open.
    """
    context, state = session.context, session.state
    if context.observer.measure_due() is None:
        return
    begun = monotonic()
    log = context.log
    measured = Measured.read(log, context.ledger.consumer)
    oldest_delivery = None
    if state.outbox.count:
        (oldest_delivery,) = questions.ask(
            log, "inflight", float, delivery=min(state.outbox.batches)
        ) or (None,)
    zone, ledger = context.options.event_time_zone, context.ledger
    consumers = () if ledger.consumer else consumer_statuses(log, zone, context.observer.queue_cap)
    if not ledger.consumer:
        measured = with_retention(log, context.options.retention, zone, measured)
    measured = measure_queue(log, zone, context.observer.queue_cap, ledger, measured)
    pause = context.ledger.read_pause()
    paused_seconds = seconds_of(log, pause)
    log.commit()
    parked = state.parked_objects()
    deliveries = [
        info_of(number, list(events_of(state.outbox, number))) for number in state.outbox.batches
    ]
    seconds = monotonic() - begun
    context.observer.measured(
        replace(
            measured,
            oldest_delivery_age_seconds=oldest_delivery,
            parked=parked,
            deliveries=deliveries,
            outbox=outbox_documents(state.outbox),
            seconds=seconds,
            ranges=ranges_of(ledger),
            pause=pause,
            paused_seconds=paused_seconds,
            unavailable=tuple(context.catalog.unavailable),
            consumers=consumers,
            snapshot=None if state.loading is None else state.loading.progress(),
        )
    )
