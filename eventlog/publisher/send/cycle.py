"""One cycle of the publisher: first the deliveries in flight, then one window of the queue
(spec/event-log.md 8).

This is a hot path because of its statements, not its loops: one statement reads a window, and a
delivery takes two commits, one for its entry before it is sent and one for its marks afterwards. So
the marks of rows that belong to no delivery are written in the transaction that records the next
delivery. Rows are checked in ``queue``, events are made in ``core.rows``; no loop here visits
single rows, and events with outcomes, which are rare, are separated in one pass. The price:
``marks`` is passed from delivery to delivery.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

from eventlog.core.catalog import ObjectId
from eventlog.core.clock import monotonic
from eventlog.core.ranges import to_ranges
from eventlog.core.rows.checks import InvalidRow, Remark, check_rows
from eventlog.core.rows.event_ids import raised_at, record_id_of
from eventlog.core.rows.events import Decided, Outgoing, RowOutcomes, build_event, decide, ids_of
from eventlog.errors import DatabaseUnavailable, number_of
from eventlog.model import LogRow, Origins, Status, origins_of, queue_rows, unpadded
from eventlog.publisher.context.context import Context, report_missing, unavailable_in_words
from eventlog.publisher.feeds.queue import (
    DueScan,
    Either,
    WindowResult,
    begin_due_scan,
    begin_scan,
    is_still_valid,
    max_retries,
    poll,
    read_claimed_objects,
    read_due_window,
    read_window,
)
from eventlog.publisher.feeds.read_back import Built, built_deliveries, with_current_rows
from eventlog.publisher.feeds.snapshot import (
    UnfinishedSnapshot,
    build_objects,
    object_of,
    origins_of_objects,
)
from eventlog.publisher.ledger.delivery import (
    Delivery,
    Tried,
    encode,
    isolate,
    numbered,
    pack,
    unbuilt,
    with_attempts,
)
from eventlog.publisher.ledger.in_flight import read_recorded, warn_of
from eventlog.publisher.ledger.ledger import QueueScan
from eventlog.publisher.send.database_clock import DatabaseClock, park_again
from eventlog.publisher.send.marks import DeliveryProgress, Marks, all_wait, keep_next_attempts
from eventlog.publisher.send.parking import Parking
from eventlog.publisher.send.sending import Delivered, DeliveryResult, end_cycle, send_delivery
from eventlog.publisher.send.session import (
    PublisherSession,
    PublisherState,
    begin_delivery,
    number_went_back,
)
from eventlog.publisher.send.snapshot_chunks import record_chunk
from eventlog.publisher.send.unwritable import UnwritableClasses, class_name_of, written
from eventlog.sql.log.errors import read_attempts
from eventlog.sql.log.internal_tables import EntryKind, replace_content

_log = logging.getLogger("eventlog.publisher")


def recover(context: Context) -> PublisherState:
    """Return the state of a publisher that has just got its lock, with the recorded deliveries,
    which ``run_cycle`` sends first.
    """
    context.ledger.recover()
    recorded, claim = read_recorded(context.log, context.ledger.consumer)
    loading = _loading(context)
    context.log.commit()
    warn_of(claim)
    parking: Parking[ObjectId] = Parking(context.options.retry_initial, context.options.retry_max)
    clock = DatabaseClock(context.log.connection, context.log.dialect)
    deliveries = {
        delivery.number: _parked_again(context, delivery, parking, clock) for delivery in recorded
    }
    context.log.commit()
    newest = max((delivery.first for delivery in recorded), default="")
    return PublisherState(parking, clock, deliveries, newest, claim=claim, loading=loading)


def _parked_again(
    context: Context, delivery: Delivery, parking: Parking[ObjectId], clock: DatabaseClock
) -> Delivery:
    """Park the objects of recorded events again that were parked before a restart, and return the
    delivery with these objects. An event without a valid row is not parked: it is sent first, like
    all others.
    """
    parked_before: dict[str, tuple[Tried, int | None]] = {
        event_id: (tried, None) for event_id, tried in delivery.parked.items()
    }
    for number, tried in delivery.parts().items():
        events = delivery.documents[number]
        of_part = (tried, tried.tries if len(events) == 1 else 0)
        for event in events:
            # A part that was answered with retry keeps its earlier attempts: the later one counts.
            retried = delivery.parked.get(event.event_id)
            if retried is None or retried.due < tried.due:
                parked_before[event.event_id] = of_part
    if not parked_before:
        return delivery
    wanted = [event for event in delivery.events() if event.event_id in parked_before]
    objects = (
        {event.event_id: object_of(context, event.event_id) for event in wanted}
        if delivery.is_of_snapshot
        else _objects_of(context, wanted)
    )
    for event in reversed(wanted):  # the first event of an object identifies it
        object_id = objects.get(event.event_id)
        if object_id is not None:
            tried, alone = parked_before[event.event_id]
            park_again(parking, clock, object_id, event.sent_id, tried, alone)
    documents = {
        number: [
            event._replace(object_id=objects.get(event.event_id, event.object_id))
            for event in events
        ]
        for number, events in delivery.documents.items()
    }
    return delivery._replace(documents=documents)


def _objects_of(context: Context, recorded: Sequence[Outgoing]) -> dict[str, ObjectId | None]:
    """Return, by event-id, the objects of those recorded events that have a valid row."""
    rows = context.log.read_rows(sorted(chain(*(to_ranges(event.ids) for event in recorded))))
    good = check_rows(queue_rows(rows), context.catalog, None).valid
    objects = dict(zip(ids_of(good), map(itemgetter(2), good), strict=True))
    return {
        event.event_id: next((objects[one] for one in event.ids if one in objects), None)
        for event in recorded
    }


def _loading(context: Context) -> UnfinishedSnapshot | None:
    """Return the snapshot that must be sent before the log is read, None if there is none."""
    progress = context.ledger.loading()
    return None if progress is None else UnfinishedSnapshot.from_row(*progress)


def run_cycle(session: PublisherSession) -> Delivered:
    """Send the deliveries that are in flight and due, then read one window of the queue and send
    its deliveries.

    Raises DatabaseError or SQLAlchemy's errors when the database fails. The state of the open
    transaction is unknown then, and the caller connects and recovers again.
    """
    return _ended(session, _run_cycle(session))


def _run_cycle(session: PublisherSession) -> Delivered:
    """Run a cycle. The caller decides what happens to a suspect document."""
    context, state = session.context, session.state
    cycle = _send_recorded(session)
    if cycle.result is not DeliveryResult.DONE:
        return cycle
    if state.loading is not None:
        chunk = record_chunk(session, state.loading)
        state.loading = None if chunk.is_loaded else state.loading
        if chunk.delivery is None:
            return chunk.ended
        delivered = _send_new(session, chunk.delivery)
        return delivered if delivered.result is not DeliveryResult.DONE else chunk.ended
    scan = _scan_to_read(context, state)
    if scan is None:
        state.loading = _loading(context)
        context.log.commit()
        return Delivered(DeliveryResult.DONE, more=state.loading is not None)
    window = _valid_window(context, state, scan)
    if window is None:
        context.log.commit()
        return Delivered(DeliveryResult.DONE, more=True)
    _refuse_given_again(context, window)
    if window.invalid:
        session.check.before_invalid()
    delivered = _send_window(session, window)
    more = delivered.more or state.scan is not None or scan.is_begun
    return (
        delivered if delivered.result is not DeliveryResult.DONE else delivered._replace(more=more)
    )


def _ended(session: PublisherSession, cycle: Delivered) -> Delivered:
    """Decide what happens to a suspect document, and return how the cycle ended. If no other
    document was answered, the receiver counts as unavailable.
    """
    context, state = session.context, session.state
    if cycle.result is DeliveryResult.DONE and cycle.more and state.suspects.is_probing:
        return cycle  # the next window may have another one
    ended = end_cycle(cycle, state.suspects, state.parking, context.options.isolate_after)
    if state.scan is not None:
        # The scan has passed over rows of objects that have become free.
        state.freed.update(one for one in ended.freed if one not in state.parking)
    if cycle.result is not ended.cycle.result:
        state.scan = None
    if ended.failed:
        _record_failures(context, state, ended.failed, ended.tried, is_cut=ended.is_cut)
    return ended.cycle


def _scan_to_read(context: Context, state: PublisherState) -> QueueScan | DueScan | None:
    """Return the present scan, or a new one, and put the objects of claimed rows into ``state``.
    None if the queue is empty or if the claimed rows cannot be determined now.
    """
    scan = state.scan
    # If objects have become free, a new scan begins, unless passing over parked rows again would
    # cost more than the scan has read.
    if (
        scan is None
        or (state.freed and scan.past <= 0)
        or not is_still_valid(context, scan.writers)
    ):
        begin = begin_due_scan if context.options.handle_future_events else begin_scan
        polled = poll(context) if scan is None and state.claim is None else None
        scan = state.scan = polled or begin(context, is_long=scan is not None)
        state.freed.clear()
    if state.claim is not None and state.claimed is None:
        state.claimed = read_claimed_objects(context, state.claim)
    if state.claimed is not None and state.claimed.writers is None:
        return None
    return scan


def _valid_window(
    context: Context, state: PublisherState, scan: QueueScan | DueScan
) -> WindowResult | None:
    """Return the next window of the scan. If a transaction has ended meanwhile whose rows the
    window may lack, the scan ends, and None is returned.
    """
    begun = monotonic()
    window, state.scan = _next_window(context, scan, state, recorded_ids(state.deliveries.values()))
    seconds = monotonic() - begun
    context.observer.window_read(seconds, len(window.groups))
    _log.debug("a window of %d groups was read in %.3f s", len(window.groups), seconds)
    is_stale = scan.rests_on_writers and not is_still_valid(context, scan.writers)
    if state.claimed is not None and not is_still_valid(context, state.claimed.writers):
        # New rows, and later rows after them, may belong to claimed objects.
        state.claimed, is_stale = None, True
    if is_stale:
        state.scan = None
        return None
    return window


def _refuse_given_again(context: Context, window: WindowResult) -> None:
    """Raise DatabaseUnavailable if a row of a window has a record_id that was published for another
    row. The log then gets a new epoch at the next connection (spec/event-log.md 7.4).
    """
    options, used = context.options, context.used
    used.published.remember()
    rows = chain.from_iterable(map(ids_of, window.groups))
    zone = None if options.handle_future_events else options.event_time_zone
    used.given_again = used.published.given_again(context.log, rows, zone)
    if used.given_again is not None:
        raise DatabaseUnavailable(f"the log {context.log} reuses record_ids: {used.given_again}")


def _send_window(session: PublisherSession, window: WindowResult) -> Delivered:
    """Send the deliveries of a window, and mark its rows that belong to no delivery. Errors as for
    ``run_cycle``.
    """
    context, state = session.context, session.state
    for remark in window.remarks:
        context.counters.remark(remark)
    marks = _marks_without_group(context, window.invalid, window.loopback)
    marks.add(Status.SUCCESS, window.passed)
    more = False
    for built in built_deliveries(context, window, state.row_sizes, session.check):
        if session.is_stopping():
            state.scan = None
            return Delivered(DeliveryResult.STOPPED, "asked to stop")
        prepared = _prepare(session, built, window.origins, marks)
        if prepared is None:
            # The requested rows may be earlier rows of objects in the next delivery.
            state.scan = None
            more = True
            break
        # Rows are counted here and not where they are read, since a row that is deferred or not
        # sent after all is read again.
        context.counters.rows_read += sum(map(len, built.groups))
        marks = Marks(context.counters)
        if prepared.delivery is not None:
            delivered = _send_new(session, prepared.delivery)
            if delivered.result is not DeliveryResult.DONE:
                return delivered
    marks.write(context)
    context.log.commit()
    return Delivered(DeliveryResult.DONE, more=more)


def _next_window(
    context: Context, scan: QueueScan | DueScan, state: PublisherState, in_flight: frozenset[int]
) -> tuple[WindowResult, QueueScan | DueScan | None]:
    """Return the next window of a scan, and the rest of the scan (None at its end)."""
    first = 1
    left_out: Container[int] = in_flight
    waiting: Container[ObjectId] = (
        Either(state.parking, state.freed) if state.freed else state.parking
    )
    if state.claim is not None and state.claimed is not None:
        first = state.claim.last + 1
        left_out, waiting = Either(in_flight, range(first)), Either(waiting, state.claimed)
    if isinstance(scan, DueScan):
        window, rest = read_due_window(context, scan, left_out, waiting)
        return window, None if rest is None else rest._replace(past=scan.past + window.past)
    # A window from the head of the queue contains all visible rows, or the first ones.
    last = scan.last if scan.is_begun else None
    window = read_window(context, max(scan.first, first), last, left_out, waiting, scan.rows)
    if window.next_first is None:
        return window, None
    return window, context.ledger.rest(scan, window.next_first, window.past)


def send_in_flight(session: PublisherSession) -> Delivered:
    """Send the recorded deliveries whose objects do not wait. Errors as for ``run_cycle``."""
    return _ended(session, _send_recorded(session))


def _send_recorded(session: PublisherSession) -> Delivered:
    """Send the recorded deliveries, as ``send_in_flight`` does, but let the caller decide what
    happens to a suspect document.
    """
    context, state = session.context, session.state
    woken = _wake(context, state)
    for number in sorted(state.deliveries):
        delivery = state.deliveries[number]
        if all_wait(delivery.events(), delivery.waiting, state.parking):
            continue
        delivered = _send_again(session, _numbered(context, delivery))
        if delivered.result is not DeliveryResult.DONE:
            return delivered
    if state.scan is not None:
        # The scan has passed over rows of objects that have become free; these must be sent before
        # later rows.
        state.freed.update(object_id for object_id in woken if object_id not in state.parking)
    if full := state.parking.too_many(context.options.max_parked):
        return Delivered(DeliveryResult.RETRY, full, in_short=full)
    return Delivered(DeliveryResult.DONE)


def _wake(context: Context, state: PublisherState) -> list[ObjectId]:
    """End the waits of objects that are due, as long as a cycle has room for their events, and
    return these objects.

    The others wait for the next cycle, so that many parked objects leave room for all others
    (spec/event-log.md 8.4).
    """
    due = state.suspects.due(monotonic())
    woken: list[ObjectId] = []
    if due:
        events = Counter(
            event.object_id for delivery in state.deliveries.values() for event in delivery.events()
        )
        left = max_retries(context.options)
        for object_id in due:
            left -= events[object_id]
            if woken and left < 0:
                break
            woken.append(object_id)
    state.parking.wake(woken)
    return woken


def _send_new(session: PublisherSession, delivery: Delivery) -> Delivered:
    """Send a delivery that has just been recorded, so that its events are built already."""
    context, state = session.context, session.state
    state.deliveries[delivery.number] = delivery
    session.before_delivery()
    _announce(context, delivery, delivery.origins.event_times)
    progress = DeliveryProgress(
        context, delivery, session.sink, state.parking, None, state.suspects, state.clock
    )
    return deliver(session, delivery, progress)


def _send_again(session: PublisherSession, delivery: Delivery) -> Delivered:
    """Send a delivery of an earlier cycle: its events are rebuilt, a document at a time."""
    context, state = session.context, session.state
    state.deliveries[delivery.number] = delivery
    # This is done once for all documents: no answer has arrived yet that would have to be saved
    # before an error.
    session.check.before_read_back()
    delivery = put_back(session, delivery)
    context.log.commit()
    session.before_delivery()
    times = delivery.origins.event_times
    wants_times = context.observer.wants_deliveries and context.observer.wants_event_times
    if wants_times and not delivery.is_of_snapshot:
        firsts = sorted(events[0].ids[0] for events in delivery.documents.values())
        times = _event_times(context, firsts)
        context.log.commit()
    _announce(context, delivery, times)

    def build(part: Delivery) -> Delivery:
        def save_first() -> None:
            progress.save()
            session.check.before_invalid()

        return rebuild(context, part, state.parking, save_first)

    progress = DeliveryProgress(
        context, delivery, session.sink, state.parking, build, state.suspects, state.clock
    )
    return deliver(session, delivery, progress)


def put_back(session: PublisherSession, delivery: Delivery) -> Delivery:
    """Return a recorded delivery with a new attempt number for each event that an operator has
    skipped and whose rows were set back to N before its next attempt. The number is recorded,
    because the receiver may have applied the event under the previous number, and the event may
    have fewer rows now (spec/event-log.md 7.4).
    """
    context = session.context
    if context.ledger.consumer:  # ``skip`` removes the events of a consumer from the entry
        return delivery
    firsts = sorted({record_id_of(event.event_id) for event in delivery.events()})
    known = read_attempts(context.log, ids=firsts)
    documents = {
        number: [
            event._replace(attempts=max(event.attempts, known.get(record_id_of(event.event_id), 1)))
            for event in events
        ]
        for number, events in delivery.documents.items()
    }
    if all(documents[number] == [*events] for number, events in delivery.documents.items()):
        return delivery
    delivery = delivery._replace(documents=documents)
    _record(context, session.state, delivery)
    return delivery


def _announce(context: Context, delivery: Delivery, times: Mapping[int, str | None]) -> None:
    """Report to the observer that a delivery begins; ``times`` has the event_time of rows."""
    if context.observer.wants_deliveries:
        firsts = [events[0] for events in delivery.documents.values()]
        event_times = {
            event.sent_id: times[event.ids[0]]
            for event in firsts
            if event.ids and event.ids[0] in times
        }
        context.observer.delivery_begins(delivery.info(), event_times)


def deliver(session: PublisherSession, delivery: Delivery, progress: DeliveryProgress) -> Delivered:
    """Send the documents of a delivery, and keep the unanswered rest in the state."""
    context, state = session.context, session.state
    begun = monotonic()
    if not delivery.is_of_snapshot:
        context.used.published.add(max(max(event.ids) for event in delivery.events()))
    document_count = (
        sum(map(len, delivery.documents.values()))
        if context.output.is_single
        else len(delivery.documents)
    )
    delivered = send_delivery(
        context, progress.to_send(), document_count, progress, session.is_stopping
    )
    if delivered.result is not DeliveryResult.DONE:
        state.scan = None
    if progress.recorded.documents:
        state.deliveries[delivery.number] = unbuilt(progress.recorded)
    else:
        del state.deliveries[delivery.number]
    left = progress.recorded.info() if progress.recorded.documents else None
    context.observer.delivery_ended(delivery.number, delivered.result.value, left)
    _log.debug(
        "delivery %d of %s ended after %.3f s: %s",
        delivery.number,
        number_of(len(delivery.documents), "document"),
        monotonic() - begun,
        delivered.result.value,
        extra={"delivery": delivery.number},
    )
    return delivered


def _record_failures(
    context: Context, state: PublisherState, sent_ids: frozenset[str], tried: Tried, *, is_cut: bool
) -> None:
    """Record with a suspect document how many cycles had no answer, or divide it into halves, which
    are ordinary documents from then on. Commits.
    """
    for delivery in list(state.deliveries.values()):
        if any(event.sent_id in sent_ids for event in delivery.events()):
            changed = (
                isolate(delivery, sent_ids, tried)
                if is_cut
                else with_attempts(delivery, sent_ids, tried)
            )
            _record(context, state, changed)
    context.log.commit()


def _record(context: Context, state: PublisherState, delivery: Delivery) -> None:
    replace_content(context.log, EntryKind.DELIVERY, delivery.number, encode(delivery))
    state.deliveries[delivery.number] = delivery


def recorded_ids(deliveries: Iterable[Delivery]) -> frozenset[int]:
    """Return the record_ids of all rows that are in flight."""
    return _ids_in(event for delivery in deliveries for event in delivery.events())


def _ids_in(events: Iterable[Outgoing]) -> frozenset[int]:
    return frozenset(record_id for event in events for record_id in event.ids)


def _marks_without_group(
    context: Context, invalid: Sequence[InvalidRow], loopback: Sequence[int]
) -> Marks:
    marks = Marks(context.counters)
    marks.add_invalid(invalid)
    if context.options.delete_from_log and not context.options.delete_loopback:
        marks.retained.extend(loopback)
    else:
        marks.add(Status.SUCCESS, loopback)
    context.counters.rows_read += len(invalid) + len(loopback)
    context.counters.rows_loopback += len(loopback)
    return marks


class Prepared(NamedTuple):
    """Events that may be sent because their delivery is recorded; None = there are no events."""

    delivery: Delivery | None


def _prepare(
    session: PublisherSession, built: Built, origins: Origins, marks: Marks
) -> Prepared | None:
    """Record a delivery of events, and write the marks of rows that make no event in the same
    transaction. None = nothing was recorded or marked, because there is a request to send rows
    again.
    """
    context = session.context
    _, events, current_rows = built
    special = [(event.operation, event.outcomes) for event in events if event.outcomes is not None]
    without_event: list[RowOutcomes] = []
    if special:
        if any(outcomes.invalid for _, outcomes in special):
            session.check.before_invalid()
        without_event = [outcomes for operation, outcomes in special if operation is None]
        events = [event for event in events if event.operation is not None]
    delivery = None
    if events:
        is_plain = not special and not context.attempts
        alone = not without_event and not marks.has_any
        delivery = record_new(session, events, origins, is_plain=is_plain, alone=alone)
        if delivery is None:
            return None
        if current_rows:
            delivery = delivery._replace(current_rows=current_rows)
    elif context.ledger.is_requested():
        return None
    marks.add_outcomes(without_event)
    marks.write(context)
    context.log.commit()
    if delivery is not None:
        context.used.delivery_no = delivery.number
    return Prepared(delivery)


def record_new(
    session: PublisherSession,
    events: Sequence[Outgoing],
    origins: Origins,
    *,
    is_plain: bool,
    alone: bool,
) -> Delivery | None:
    """Record a delivery of new events, and return it; None if there is a request to send rows
    again, which must be read first.

    ``is_plain`` as in ``encode``; ``alone`` is true if nothing else belongs to the transaction.
    """
    context, state = session.context, session.state
    # If the format has no numbers, the delivery number is not needed before the entry is written.
    number, first = begin_delivery(context, state) if context.output.is_numbered else (None, "")
    # Without outcomes every row of a new event contributes, including the first row, which gives
    # the event its id.
    delivery = pack(number or 0, events, context.options.batch_size, first, origins, context.epoch)
    if context.observer.wants_event_times and not origins.event_times:
        # The first rows are enough, since event_time only serves to measure the latency.
        firsts = sorted(own[0].ids[0] for own in delivery.documents.values())
        delivery = delivery._replace(origins=Origins(_event_times(context, firsts), {}))
    content = encode(delivery, is_plain=is_plain)
    above = context.used.delivery_no
    recorded = context.ledger.record(content, number, above, alone=alone)
    if recorded is not None:
        return delivery._replace(number=recorded)
    if not context.ledger.is_requested():
        raise number_went_back(context, "a delivery number")
    return None


def _event_times(context: Context, record_ids: Sequence[int]) -> dict[int, str | None]:
    """Return the event_time of rows."""
    fields = ("record_id", "event_time")
    return dict(context.log.read_columns(to_ranges(record_ids), fields))


def _numbered(context: Context, delivery: Delivery) -> Delivery:
    """Return a recorded delivery, with numbers if the format numbers events: a publisher with
    another format may have recorded it without.
    """
    if not delivery.first and (
        first := context.output.first(delivery.number, "", raised_at(context.epoch))
    ):
        return numbered(delivery, first)
    return delivery


def rebuild(
    context: Context,
    delivery: Delivery,
    parking: Parking[ObjectId],
    before_invalid: Callable[[], None] = lambda: None,
) -> Delivery:
    """Return a recorded delivery with rebuilt events: the same rows, event-ids and documents, with
    values read back again.

    A row that is missing or no longer has status N counts as done; a row that fails the checks now
    becomes E. Events of objects that still wait are not rebuilt. ``before_invalid`` is called
    before events with invalid rows are returned.
    """
    delivery = _numbered(context, delivery)
    wanted = [event for event in delivery.events() if not parking.is_waiting(event.object_id)]
    events_now: Sequence[Outgoing]
    if delivery.is_of_snapshot:
        events_now, waiting = build_objects(context, wanted)
        origins = origins_of_objects(context)
    else:
        rebuilt = build_recorded(context, wanted)
        if gone := context.counters.note_missing(rebuilt.missing):
            report_missing(context, len(gone), gone[0], gone[-1])
        events_now, origins = rebuilt.events, origins_of(rebuilt.log_rows.values())
        waiting = frozenset(
            event.event_id for event in wanted if not rebuilt.waiting.isdisjoint(event.ids)
        )
    events_now, current_rows = with_current_rows(context, events_now)
    if any(event.outcomes is not None and event.outcomes.invalid for event in events_now):
        before_invalid()
    context.log.commit()
    built = iter(events_now)
    documents = {
        number: [event if parking.is_waiting(event.object_id) else next(built) for event in events]
        for number, events in delivery.documents.items()
    }
    return delivery._replace(
        documents=documents, origins=origins, current_rows=current_rows, waiting=waiting
    )


class Rebuilt(NamedTuple):
    """Recorded events, rebuilt from those of their rows that are not done, and their parts."""

    events: list[Outgoing]
    decided: list[Decided]
    """The group of each event with the decision of precedence at the first build; an empty group
    and no decision if no valid row is left.
    """
    invalid: dict[int, InvalidRow]
    """The rows that fail the checks now, by record_id."""
    log_rows: dict[int, LogRow]
    """All rows read, by record_id."""
    remarks: Sequence[Remark]
    waiting: frozenset[int]
    """The record_ids of rows whose class is unavailable."""
    missing: frozenset[int] = frozenset()
    """The record_ids of rows that are no longer in the log."""


def build_recorded(context: Context, recorded: Sequence[Outgoing]) -> Rebuilt:
    """Rebuild events of in-flight entries under their event-ids, with values read back again
    (spec/event-log.md 10).
    """
    ranges = sorted(pair for event in recorded for pair in to_ranges(event.ids))
    present = context.log.read_rows(ranges)
    missing = _ids_in(recorded).difference(map(itemgetter(0), present))
    log_rows = {
        row.record_id: row for row in present if unpadded(row.status) in context.ledger.statuses
    }
    if not context.ledger.consumer:
        refused = {row.record_id for row in present if unpadded(row.status) == Status.ERROR}
        keep_next_attempts(context, recorded, refused)
    checked = check_rows(queue_rows(log_rows.values()), context.catalog, None)
    good = dict(zip(ids_of(checked.valid), checked.valid, strict=True))
    invalid = {row.record_id: row for row in checked.invalid}
    groups = [
        [good[record_id] for record_id in event.ids if record_id in good] for event in recorded
    ]
    decided = decide(groups, context.query_back, [frozenset(event.dropped) for event in recorded])
    events = []
    for event, (group, decision, current) in zip(recorded, decided, strict=True):
        failed = [invalid[record_id] for record_id in event.ids if record_id in invalid]
        if decision is None:
            events.append(
                event._replace(operation=None, steps=(), outcomes=RowOutcomes(invalid=failed))
            )
            continue
        built = build_event(group, context.options.events, decision, current, event.event_id)
        outcomes = built.outcomes
        if outcomes is None and len(group) < len(event.ids):
            outcomes = RowOutcomes(contributed=built.ids)
        if outcomes is not None and failed:
            outcomes = outcomes._replace(invalid=[*outcomes.invalid, *failed])
        events.append(
            event._replace(
                object_id=built.object_id,
                operation=built.operation,
                steps=built.steps,
                rows=built.rows,
                outcomes=outcomes,
            )
        )
    waiting = frozenset(checked.waiting)
    return Rebuilt(events, decided, invalid, log_rows, checked.remarks, waiting, missing)


# --- dry run --------------------------------------------------------------------------------------


def dry_run(context: Context) -> Iterator[str]:
    """Yield the documents of one scan: first the recorded deliveries, then the queue."""
    state = recover(context)
    state.parking.clear()
    for number in sorted(state.deliveries):
        delivery = _numbered(context, state.deliveries[number])
        for document_no, recorded in delivery.documents.items():
            built = rebuild(
                context, delivery._replace(documents={document_no: recorded}), state.parking
            )
            for events in built.documents.values():
                yield preview(context, built, events)
    if state.claim is not None:
        state.claimed = read_claimed_objects(context, state.claim)
    for window in _windows(context, state):
        for built_now in built_deliveries(context, window, state.row_sizes):
            events = [event for event in built_now.events if event.operation is not None]
            delivery = pack(1, events, context.options.batch_size, origins=window.origins)
            for document_events in delivery.documents.values():
                yield preview(context, delivery, document_events)


def _windows(context: Context, state: PublisherState) -> Iterator[WindowResult]:
    """Yield the windows of the whole queue.

    Rows that would be marked without being published are counted for a warning.
    """
    in_flight = recorded_ids(state.deliveries.values())
    by_event_time = context.options.handle_future_events
    scan: QueueScan | DueScan | None = (
        begin_due_scan(context, is_long=False) if by_event_time else QueueScan(1, None, None)
    )
    while scan is not None:
        window, scan = _next_window(context, scan, state, in_flight)
        context.counters.rows_loopback += len(window.loopback)
        yield window
        if isinstance(scan, QueueScan):
            # Nothing is marked here, so a window that begins at a deferred row shows rows again.
            invalid = (row.record_id for row in window.invalid)
            groups = map(ids_of, window.groups)
            shown = sorted(chain(invalid, window.loopback, window.passed, *groups))
            in_flight |= context.ledger.leave_out(scan, shown)
        else:  # a window may have rows of an insert that come after the window's end
            in_flight |= frozenset(chain.from_iterable(map(ids_of, window.groups)))


def preview(context: Context, delivery: Delivery, events: Sequence[Outgoing]) -> str:
    """Return a preview of the document with these events of a delivery; empty if none of the
    objects exists any more. In place of events that the format fails to write it has the reason.
    """
    read, current_rows = with_current_rows(
        context, [event for event in events if event.operation is not None]
    )
    events = [event for event in read if event.operation is not None]
    delivery = delivery._replace(current_rows=current_rows)
    reasons = ""
    while events:
        try:
            return reasons + written(
                lambda some: context.output.preview(context.catalog, delivery, some), events
            )
        except UnwritableClasses as refused:
            for name, error in refused.errors.items():
                reasons += f"# {unavailable_in_words(name, error)}\n"
            events = [one for one in events if class_name_of(one) not in refused.errors]
    return reasons
