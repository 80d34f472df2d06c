"""One cycle of the publisher: first the deliveries in flight, then one window of the queue
(spec/event-log.md 8).

This module is a hot path because of its statements, not its loops: one statement reads a window,
and a delivery takes two commits, one for its entry before it is sent and one for its marks
afterwards. So the marks of rows that belong to no delivery are written in the transaction that
records the next delivery. Rows are checked in ``queue``, events are made in ``core.rows``; no loop
here visits single rows. Events with outcomes are rare; they are separated in one pass. The price:
``marks`` is passed from delivery to delivery.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import chain

from eventlog.core.catalog import ObjectId
from eventlog.core.clock import monotonic
from eventlog.core.ranges import to_ranges
from eventlog.core.rows.checks import InvalidRow
from eventlog.core.rows.events import Outgoing, RowOutcomes, ids_of
from eventlog.errors import DatabaseUnavailable
from eventlog.model import Origins, Status
from eventlog.publisher.context.context import Context, unavailable_in_words
from eventlog.publisher.feeds.queue import (
    DueScan,
    Either,
    WindowResult,
    begin_due_scan,
    begin_scan,
    is_still_valid,
    poll,
    read_claimed_objects,
    read_due_window,
    read_window,
)
from eventlog.publisher.feeds.read_back import Built, built_deliveries, with_current_rows
from eventlog.publisher.feeds.snapshot import unfinished
from eventlog.publisher.ledger.delivery import Delivery, encode, new_nonce, pack
from eventlog.publisher.ledger.ledger import QueueScan
from eventlog.publisher.send.log_feed import (
    LogFeed,
    ids_in,
    look_at_recorded,
    new_documents,
    rebuild,
)
from eventlog.publisher.send.marks import Marks
from eventlog.publisher.send.sending import Delivered, DeliveryResult
from eventlog.publisher.send.serving import Sender
from eventlog.publisher.send.session import (
    PublisherSession,
    PublisherState,
    begin_delivery,
    end_recording,
    number_went_back,
)
from eventlog.publisher.send.snapshot_chunks import record_chunk
from eventlog.publisher.send.unwritable import UnwritableClasses, class_name_of, written
from eventlog.sql.log.recorded_masks import record_masks

_log = logging.getLogger("eventlog.publisher")


def run_cycle(session: PublisherSession) -> Delivered:
    """Send the documents that are due, then read one window of the queue and send its deliveries.

    Raises DatabaseError or SQLAlchemy's errors when the database fails. The state of the open
    transaction is unknown then, and the caller connects and recovers again.
    """
    return _cycle(session, must_read=True)


def send_in_flight(session: PublisherSession) -> Delivered:
    """Send the recorded documents that are due. The errors are those of ``run_cycle``."""
    return _cycle(session, must_read=False)


def _cycle(session: PublisherSession, *, must_read: bool) -> Delivered:
    context, state = session.context, session.state
    feed = LogFeed(session)
    sender = Sender(state.outbox, feed, context.options, context.counters, session.halted)
    if state.pause is not None or state.outbox.size or state.loading is not None:
        # Otherwise nothing is sent before the next window has been read.
        session.read_pause()
        context.log.commit()
    ended = None  # an empty outbox is not asked: nearly every cycle of a quiet log begins so
    if not must_read or state.outbox.size or state.outbox.resume_at > monotonic():
        ended = sender.serve(is_empty=not must_read)
    if ended is None:
        ended = _read_and_send(session, sender)
        if ended.result is DeliveryResult.DONE and not ended.more:
            last = sender.serve(is_empty=True) if state.outbox.size else session.halted()
            if last is not None and last.result is not DeliveryResult.DONE:
                ended = last
            elif state.passed.has_free:  # rows that the scan has passed over can be sent now
                ended = ended._replace(more=True)
    if ended.result is not DeliveryResult.DONE:
        state.scan = None
    feed.end_delivery(ended.result.value)
    feed.rest()
    return ended


def _read_and_send(session: PublisherSession, sender: Sender[Outgoing]) -> Delivered:
    """Read a window, or a chunk of a snapshot, and send its deliveries."""
    context, state = session.context, session.state
    if (halted := session.halted()) is not None:
        return halted
    if state.loading is not None:
        chunk = record_chunk(session, state.loading)
        state.loading = None if chunk.is_loaded else state.loading
        if chunk.delivery is None:
            if chunk.ended.result is DeliveryResult.RETRY:
                state.outbox.pause(monotonic())
            return chunk.ended
        return _send_new(session, chunk.delivery, sender) or chunk.ended
    scan = _scan_to_read(session)
    if scan is None and (halted := session.halted()) is not None:  # it is paused
        context.log.commit()
        return halted
    if scan is None:
        state.loading = unfinished(context)
        context.log.commit()
        return Delivered(DeliveryResult.DONE, more=state.loading is not None)
    window = _valid_window(context, state, scan)
    if window is None:
        context.log.commit()
        return Delivered(DeliveryResult.DONE, more=True)
    _refuse_given_again(context, window)
    if window.invalid:
        session.check.before_invalid()
    delivered = _send_window(session, window, sender)
    more = delivered.more or state.scan is not None or scan.is_begun
    return (
        delivered if delivered.result is not DeliveryResult.DONE else delivered._replace(more=more)
    )


def _send_new(
    session: PublisherSession, delivery: Delivery, sender: Sender[Outgoing]
) -> Delivered | None:
    """Send a delivery that has just been recorded; its events are built already. Return how the
    cycle has ended, None if the next delivery may be sent.
    """
    state = session.state
    state.deliveries[delivery.number] = delivery._replace(documents={})
    state.outbox.add(new_documents(delivery, session.context.output.is_single))
    return sender.serve()


def _scan_to_read(session: PublisherSession) -> QueueScan | DueScan | None:
    """Return the present scan, or a new one, and put the objects of claimed rows into the state.
    None if the queue is empty, if the reader is paused, or if the claimed rows cannot be determined
    now.
    """
    context, state = session.context, session.state
    scan = state.scan
    # If objects have become free, a new scan begins, unless passing over parked rows again would
    # cost more than the scan has read.
    if (
        scan is None
        or (scan.past <= 0 and state.passed.has_free)
        or not is_still_valid(context, scan.writers)
    ):
        begin = begin_due_scan if context.options.handle_future_events else begin_scan
        polled = poll(context) if scan is None and state.claim is None else None
        if polled is None:
            session.read_pause()
            if state.pause is not None:
                state.scan = None
                return None
        scan = state.scan = polled or begin(context, is_long=scan is not None)
        state.begin_scan()
    if state.claim is not None and state.claimed is None:
        state.claimed = read_claimed_objects(context, state.claim)
    if state.claimed is not None and state.claimed.writers is None:
        return None
    return scan


def _valid_window(
    context: Context, state: PublisherState, scan: QueueScan | DueScan
) -> WindowResult | None:
    """Return the next window of the scan. If a transaction has ended meanwhile, and the window may
    lack its rows, the scan ends, and None is returned.
    """
    begun = monotonic()
    window, state.scan = _next_window(context, scan, state, ids_in(state.outbox.events()))
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


def _send_window(
    session: PublisherSession, window: WindowResult, sender: Sender[Outgoing]
) -> Delivered:
    """Send the deliveries of a window, and mark its rows that belong to no delivery. The errors are
    those of ``run_cycle``.
    """
    context, state = session.context, session.state
    for remark in window.remarks:
        context.counters.remark(remark)
    marks = _marks_without_group(context, window.invalid, window.loopback)
    marks.add(Status.SUCCESS, window.passed)
    more = False
    for built in built_deliveries(context, window, state.row_sizes, session.check):
        if (halted := session.halted()) is not None:
            state.scan = None
            return halted
        is_recorded, delivery = _prepare(session, built, window.origins, marks)
        if not is_recorded:
            # The requested rows may be earlier rows of objects in the next delivery. Or the reader
            # is paused.
            state.scan = None
            more = True
            break
        # Rows are counted here and not where they are read, since a row that is deferred or not
        # sent after all is read again.
        context.counters.rows_read += sum(map(len, built.groups))
        marks = Marks(context.counters)
        if delivery is not None:
            delivered = _send_new(session, delivery, sender)
            if delivered is not None:
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
    waiting: Container[ObjectId] = state.passed
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


def recorded_ids(deliveries: Iterable[Delivery]) -> frozenset[int]:
    """Return the record_ids of all rows that are in flight."""
    return ids_in(event for delivery in deliveries for event in delivery.events())


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


def _prepare(
    session: PublisherSession, built: Built, origins: Origins, marks: Marks
) -> tuple[bool, Delivery | None]:
    """Record a delivery of events and, in the same transaction, write the marks of rows that make
    no event. Return whether this was done, and the delivery, which is None without events. Nothing
    is recorded or marked if there is a request to send rows again.
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
            return False, None
        if current_rows:
            delivery = delivery._replace(current_rows=current_rows)
    elif context.ledger.is_requested():
        return False, None
    marks.add_outcomes(without_event)
    marks.write(context)
    context.log.commit()
    if delivery is not None:
        end_recording(session, delivery.number)
    return True, delivery


def record_new(
    session: PublisherSession,
    events: Sequence[Outgoing],
    origins: Origins,
    *,
    is_plain: bool,
    alone: bool,
) -> Delivery | None:
    """Record a delivery of new events, and return it. Return None if there is a request to send
    rows again or to pause: this request must be read first.

    ``is_plain`` is as in ``encode``; ``alone`` is true if nothing else belongs to the transaction.
    """
    context, state = session.context, session.state
    # If the format has no numbers, the delivery number is not needed before the entry is written.
    number, first = begin_delivery(context, state) if context.output.is_numbered else (None, "")
    # Without outcomes every row of a new event contributes, including the first row, which gives
    # the event its id.
    nonce = new_nonce(is_needed=context.options.needs_nonces)
    size, epoch = context.options.batch_size, context.epoch
    delivery = pack(number or 0, events, size, first, origins, epoch, nonce)
    if context.observer.wants_event_times and not origins.event_times:
        # The first rows are enough, since event_time only serves to measure the latency.
        firsts = sorted(own[0].ids[0] for own in delivery.documents.values())
        delivery = delivery._replace(origins=Origins(_event_times(context, firsts), {}, {}))
    content = encode(delivery, is_plain=is_plain)
    above, masks = context.used.delivery_no, state.masks
    alone = alone and masks is None
    recorded = context.ledger.record(content, number, above, alone=alone)
    if recorded is not None:
        if masks is not None:
            record_masks(context.log, context.ledger.consumer, masks)
        return delivery._replace(number=recorded)
    if not context.ledger.is_requested():
        raise number_went_back(context, "a delivery number")
    return None


def _event_times(context: Context, record_ids: Sequence[int]) -> dict[int, str | None]:
    """Return the event_time of rows."""
    fields = ("record_id", "event_time")
    return dict(context.log.read_columns(to_ranges(record_ids), fields))


# --- dry run --------------------------------------------------------------------------------------


def dry_run(context: Context) -> Iterator[str]:
    """Yield the documents of one scan: first the recorded deliveries, then the queue."""
    state = look_at_recorded(context)
    for document in state.outbox.documents():
        built = rebuild(context, state.deliveries[document.place[0]], document.events)
        yield preview(context, built.delivery, built.events)
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
    in_flight = ids_in(state.outbox.events())
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
    objects exists any more. In place of events that the format fails to write, the preview has the
    reason.
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
