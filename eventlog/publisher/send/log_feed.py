"""The feed of a log: its documents are recorded in entries before they are sent, and the results
become marks of rows (spec/event-log.md 7.3, 8.4, 10).

Together with the marks, this module writes what is left of a delivery into the entry of the
delivery. After a restart, this module makes the documents from the entry.

This module is a hot path: every event passes through ``save``, but no loop here visits single
events, except for documents that are sent again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby
from operator import attrgetter, itemgetter
from typing import NamedTuple

from sqlalchemy.exc import DBAPIError

from eventlog.changes.publishing import CurrentRows
from eventlog.core.catalog import ObjectId
from eventlog.core.clock import monotonic
from eventlog.core.ranges import to_ranges
from eventlog.core.rows.checks import InvalidRow, Remark, check_rows
from eventlog.core.rows.event_ids import raised_at, record_id_of
from eventlog.core.rows.events import (
    Decided,
    Outgoing,
    RowOutcomes,
    build_event,
    decide,
    ids_of,
    sent_again,
)
from eventlog.errors import number_of
from eventlog.model import Answer, LogRow, Status, origins_of, queue_rows, unpadded
from eventlog.publisher.context.context import Context, report_missing
from eventlog.publisher.feeds.read_back import with_current_rows
from eventlog.publisher.feeds.snapshot import (
    build_objects,
    object_of,
    origins_of_objects,
    unfinished,
)
from eventlog.publisher.ledger.delivery import (
    NO_ORIGINS,
    Delivery,
    DeliveryInfo,
    Tried,
    TriedKind,
    numbered,
)
from eventlog.publisher.ledger.in_flight import (
    BacklogClaim,
    read_recorded,
    renumber,
    warn_of,
    write_entry,
)
from eventlog.publisher.send.database_clock import DatabaseClock, resumed, rounds_of, tried_of
from eventlog.publisher.send.marks import Marks, keep_next_attempts
from eventlog.publisher.send.outbox import Outbox, Place, Settled
from eventlog.publisher.send.policy import Document
from eventlog.publisher.send.sending import StatementRefused, as_flushed, flush
from eventlog.publisher.send.serving import rules_of
from eventlog.publisher.send.session import (
    PublisherSession,
    PublisherState,
    draw_delivery_no,
    new_masks,
)
from eventlog.publisher.send.unwritable import written
from eventlog.publisher.sinks import Sink
from eventlog.sql.log.errors import read_attempts
from eventlog.sql.port.driver_errors import is_refused

_log = logging.getLogger("eventlog.publisher")
_ids = attrgetter("ids")


# --- what is recorded -----------------------------------------------------------------------------


def recover(context: Context) -> PublisherState:
    """Return the state of a publisher that has just got its lock, with the recorded deliveries,
    which are sent first.
    """
    context.ledger.recover()
    recorded, claim = read_recorded(context.log, context.ledger.consumer)
    recorded = [_of_epoch(context, delivery) for delivery in recorded]
    state = _state_of(context, recorded, claim)
    numbers = [delivery.number for delivery in recorded]
    context.used.delivery_no = max(context.used.delivery_no, *numbers, 0)
    return state


def look_at_recorded(context: Context) -> PublisherState:
    """Return the same state for a dry run, which writes nothing."""
    context.ledger.recover()
    return _state_of(context, *read_recorded(context.log, context.ledger.consumer))


def _of_epoch(context: Context, delivery: Delivery) -> Delivery:
    """Return a recorded delivery, under a new number if it is of an earlier epoch: the state that
    the database has lost may have sent other events under the next document numbers of the
    delivery, and a sink may have these numbers in names (spec/event-log.md 7.4).
    """
    if delivery.epoch == context.epoch:
        return delivery
    number = draw_delivery_no(context)
    return renumber(context.log, delivery, number, context.epoch, context.ledger.consumer)


def _state_of(
    context: Context, recorded: Sequence[Delivery], claim: BacklogClaim | None
) -> PublisherState:
    """Return the state with these deliveries and this claim. Ends the transaction."""
    recorded = [_numbered(context, delivery) for delivery in recorded]
    loading = unfinished(context)
    objects = _objects_of(context, recorded)
    context.log.commit()
    warn_of(claim)
    clock = DatabaseClock(context.log.connection, context.log.dialect)
    outbox = Outbox[Outgoing](rules_of(context.options), at_rest=Outgoing.at_rest)
    newest = max((delivery.first for delivery in recorded), default="")
    masks = new_masks(context)
    state = PublisherState(outbox, clock, newest, claim=claim, loading=loading, masks=masks)
    for delivery in recorded:
        longest, is_single = context.options.retry_max, context.output.is_single
        add_recorded(outbox, delivery, objects, clock, longest, is_single=is_single)
        state.deliveries[delivery.number] = delivery._replace(documents={})
    context.log.commit()
    return state


def add_recorded(
    outbox: Outbox[Outgoing],
    delivery: Delivery,
    objects: Mapping[str, ObjectId],
    clock: DatabaseClock,
    longest: float,
    *,
    is_single: bool = False,
) -> None:
    """Add the documents of a recorded delivery to an outbox, with what the entry records about the
    receiver. The other arguments are as in ``restored``.
    """
    documents = restored(delivery, objects, clock, longest, is_single)
    last_number = max((delivery.last_number, *delivery.documents))
    outbox.restore(delivery.number, documents, last_number)
    outbox.continue_rounds(rounds_of(delivery.tried.values()))


def _numbered(context: Context, delivery: Delivery) -> Delivery:
    """Return a recorded delivery, with numbers if the format numbers events: a publisher with
    another format may have recorded the delivery without numbers.
    """
    if not delivery.first and (
        first := context.output.first(delivery.number, "", raised_at(context.epoch))
    ):
        return numbered(delivery, first)
    return delivery


def _objects_of(context: Context, recorded: Sequence[Delivery]) -> Mapping[str, ObjectId]:
    """Return, by event-id, the objects of those recorded events that have a valid row. Rows of the
    same event that have become invalid do not count.
    """
    events = list(chain.from_iterable(delivery.events() for delivery in recorded))
    found = {}
    for event in events:
        if not event.ids and (object_id := object_of(context, event.event_id)) is not None:
            found[event.event_id] = object_id
    ranges = sorted(chain.from_iterable(to_ranges(event.ids) for event in events))
    rows = context.log.read_rows(ranges) if ranges else []
    good = check_rows(queue_rows(rows), context.catalog, None).valid
    objects = dict(zip(ids_of(good), map(itemgetter(2), good), strict=True))
    for event in events:
        object_id = next((objects[one] for one in event.ids if one in objects), None)
        if object_id is not None:
            found[event.event_id] = object_id
    return found


def restored(
    delivery: Delivery,
    objects: Mapping[str, ObjectId],
    clock: DatabaseClock,
    longest: float,
    is_single: bool,
) -> Iterator[Document[Outgoing]]:
    """Yield the documents of a recorded delivery. A document that waited before the restart waits
    until it is due, at most ``longest`` seconds from now (spec/event-log.md 8.4, *Progress*).

    The order is that of the entry, not that of the numbers: a document that was being sent kept its
    number while earlier ones got greater numbers. Events that got *retry* at different times are
    separate documents. With ``is_single`` each event is a separate document.
    """
    for position, (number, own) in enumerate(delivery.documents.items()):
        events = [
            event._replace(object_id=objects.get(event.event_id, event.object_id)) for event in own
        ]
        parts = [
            (tried, list(part))
            for tried, part in groupby(events, lambda event: delivery.parked.get(event.event_id))
        ]
        if is_single:
            parts = [(tried, [event]) for tried, part in parts for event in part]
        is_whole = len(parts) == 1 or is_single
        for at, (of_events, part) in enumerate(parts):
            tried = _later(delivery.tried.get(number), of_events)
            place = (delivery.number, position, at)
            document = Document(place, part, number if is_whole else 0)
            yield resumed(document, tried, clock, longest)


def new_documents(delivery: Delivery, is_single: bool) -> Iterator[Document[Outgoing]]:
    """Yield the documents of a delivery that has just been recorded. With ``is_single`` each event
    is a document, under the number of the recorded document that it belongs to.
    """
    for number, events in delivery.documents.items():
        if is_single:
            for at, event in enumerate(events):
                yield Document((delivery.number, number, at), [event], number)
        else:
            yield Document((delivery.number, number), events, number)


def _later(one: Tried | None, other: Tried | None) -> Tried | None:
    """Return the attempts at a document or at its events, whichever are due later."""
    return max((tried for tried in (one, other) if tried), key=lambda each: each.due, default=None)


def entry_of(
    delivery: Delivery,
    documents: Sequence[Document[Outgoing]],
    last_number: int,
    outbox: Outbox[Outgoing],
    clock: DatabaseClock,
) -> Delivery:
    """Return a delivery as its entry records it: with what is left of its documents, and with the
    attempts at them.
    """
    left: dict[int, Sequence[Outgoing]] = {}
    tried: dict[int, Tried] = {}
    parked: dict[str, Tried] = {}
    for document in documents:
        number = document.number
        left[number] = [*left[number], *document.events] if number in left else document.events
        if (one := tried_of(document, outbox, clock)) is None:
            continue
        if one.kind is TriedKind.PARKED:
            parked.update((event.event_id, one) for event in document.events)
        else:
            tried[number] = one
    return delivery._replace(documents=left, last_number=last_number, tried=tried, parked=parked)


# --- recorded events, built again -----------------------------------------------------------------


class Rebuilt(NamedTuple):
    """Recorded events, rebuilt from their rows that are not done, and the parts of these events."""

    events: list[Outgoing]
    decided: list[Decided]
    """The rows of each event (its group), with the decision of the first build about which rows
    take precedence (7.1); an empty group and no decision if no valid row is left.
    """
    invalid: dict[int, InvalidRow]
    """The rows that fail the checks now, by record_id."""
    log_rows: dict[int, LogRow]
    """All rows read, by record_id."""
    remarks: Sequence[Remark]
    waiting: frozenset[int]
    """The record_ids of rows whose class is unavailable."""
    current_rows: CurrentRows
    """The current rows of the objects, if the format needs them."""
    missing: frozenset[int] = frozenset()
    """The record_ids of rows that are no longer in the log."""


def build_recorded(context: Context, recorded: Sequence[Outgoing]) -> Rebuilt:
    """Rebuild events of in-flight entries under their event-ids, with values read back again
    (spec/event-log.md 8.4, *Built again*, 10).
    """
    ranges = sorted(pair for event in recorded for pair in to_ranges(event.ids))
    present = context.log.read_rows(ranges)
    missing = ids_in(recorded).difference(map(itemgetter(0), present))
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
    read, current_rows = with_current_rows(context, events)
    return Rebuilt(
        [*map(sent_again, read)],
        decided,
        invalid,
        log_rows,
        checked.remarks,
        frozenset(checked.waiting),
        current_rows,
        missing,
    )


class RebuiltDocument(NamedTuple):
    """Events of a recorded document with their values, and what else a format needs."""

    delivery: Delivery
    events: Sequence[Outgoing]
    waiting: frozenset[str]
    """The event-ids of those events whose class is unavailable."""


def rebuild(context: Context, delivery: Delivery, recorded: Sequence[Outgoing]) -> RebuiltDocument:
    """Build recorded events again: the same rows and event-ids, with values read back again."""
    events: Sequence[Outgoing]
    if not recorded[0].ids:
        present, waiting = build_objects(context, recorded)
        read, current_rows = with_current_rows(context, present)
        events, origins = [*map(sent_again, read)], origins_of_objects(context)
    else:
        rebuilt = build_recorded(context, recorded)
        if gone := context.counters.note_missing(rebuilt.missing):
            report_missing(context, len(gone), gone[0], gone[-1])
        events, current_rows = rebuilt.events, rebuilt.current_rows
        origins = origins_of(rebuilt.log_rows.values())
        waiting = frozenset(
            event.event_id for event in recorded if not rebuilt.waiting.isdisjoint(event.ids)
        )
    built = delivery._replace(origins=origins, current_rows=current_rows)
    return RebuiltDocument(built, events, waiting)


def ids_in(events: Iterable[Outgoing]) -> frozenset[int]:
    """Return the record_ids of events."""
    return frozenset(record_id for event in events for record_id in event.ids)


# --- the feed -------------------------------------------------------------------------------------


class LogFeed:
    """The documents of one cycle of a publisher: built, sent and saved."""

    def __init__(self, session: PublisherSession) -> None:
        self.session, self.context, self._state = session, session.context, session.state
        self._outbox = session.state.outbox
        self._built: dict[Place, Delivery] = {}
        self._announced: int | None = None
        self._count = 0
        self._begun = 0.0
        self._is_checked = False

    # --- before a document is sent ---

    def prepare(self, document: Document[Outgoing]) -> Document[Outgoing] | None:
        """Return a document that is being sent, with the values of its events; None if the document
        has changed, so that it is not sent now.
        """
        if None in [event.steps for event in document.events]:
            built = self._build(document)
            if built is None:
                return None
            document = built
        self._announce(document)
        return document

    def _build(self, document: Document[Outgoing]) -> Document[Outgoing] | None:
        """Build the events of a recorded document: the same rows and event-ids, with values read
        back again.

        A row that is missing or no longer has status N counts as done; a row that fails the checks
        now becomes E.
        """
        context, session = self.context, self.session
        if not self._is_checked:
            self._save_before(session.check.before_read_back)
            self._is_checked = True
        recorded = self.put_back(document.events)
        try:
            built = rebuild(context, self._state.deliveries[document.place[0]], recorded)
        except DBAPIError as error:
            if not is_refused(context.log.connection, error):
                raise
            context.log.connection.rollback()
            raise StatementRefused(error) from error
        if any(one.outcomes is not None and one.outcomes.invalid for one in built.events):
            self._save_before(session.check.before_invalid)
        context.log.commit()
        self._built[document.place] = built.delivery
        withheld = [event.at_rest() for event in built.events if event.event_id in built.waiting]
        rest = [event for event in built.events if event.event_id not in built.waiting]
        idle = [event for event in rest if event.operation is None]
        ready = [event for event in rest if event.operation is not None]
        left = self._outbox.rebuilt(document, ready, idle, withheld)
        if idle:  # after a restart they might need an answer, and come after later events
            self.save()
        return left

    def _save_before(self, check: Callable[[], None]) -> None:
        """Save the answers, then call a check that may end the cycle with an error."""
        if not self._outbox.is_saved:
            self.save()
        check()

    def put_back(self, events: Sequence[Outgoing]) -> Sequence[Outgoing]:
        """Return recorded events. An event that an operator has skipped, and whose rows were set
        back to N before its next attempt, gets a new attempt number. The receiver may have applied
        the event under the previous number, and the event may have fewer rows now
        (spec/event-log.md 7.4).
        """
        if self.context.ledger.consumer:  # ``skip`` removes its events from the entry
            return events
        firsts = sorted({record_id_of(event.event_id) for event in events})
        known = read_attempts(self.context.log, ids=firsts)
        return [
            event._replace(attempts=max(event.attempts, known.get(record_id_of(event.event_id), 1)))
            for event in events
        ]

    def _announce(self, document: Document[Outgoing]) -> None:
        """Report to the observer that a delivery begins, unless the previous document was of the
        same delivery.
        """
        number = document.place[0]
        if self._announced == number:
            return
        self.end_delivery("another delivery is sent")
        self._announced, self._begun = number, monotonic()
        self._count = sum(1 for _ in self._outbox.batch(number))
        self.session.before_delivery()
        context, events = self.context, list(events_of(self._outbox, number))
        if document.events[0].ids:
            context.used.published.add(max(map(max, map(_ids, events))))
        if not context.observer.wants_deliveries:
            return
        firsts = [one.events[0] for one in self._outbox.batch(number)]
        times = self._delivery(document).origins.event_times
        if context.observer.wants_event_times and not times and firsts[0].ids:
            ids = sorted(event.ids[0] for event in firsts)
            times = dict(context.log.read_columns(to_ranges(ids), ("record_id", "event_time")))
            context.log.commit()
        event_times = {
            event.sent_id: times[event.ids[0]]
            for event in firsts
            if event.ids and event.ids[0] in times
        }
        context.observer.delivery_begins(info_of(number, events), event_times)

    def end_delivery(self, result: str) -> None:
        """Report to the observer that the announced delivery is not sent any more."""
        number, self._announced = self._announced, None
        if number is None:
            return
        events = list(events_of(self._outbox, number))
        left = info_of(number, events) if events else None
        self.context.observer.delivery_ended(number, result, left)
        seconds = monotonic() - self._begun
        where = {"delivery": number}
        _log.debug(
            "delivery %d of %s ended after %.3f s: %s",
            number,
            number_of(self._count, "document"),
            seconds,
            result,
            extra=where,
        )

    # --- sending and saving ---

    def _delivery(self, document: Document[Outgoing]) -> Delivery:
        """Return the delivery of a document, with the origins and rows of its events."""
        place = document.place
        while place:
            if (built := self._built.get(place)) is not None:
                return built
            place = place[:-1]
        return self._state.deliveries[document.place[0]]

    def send(self, document: Document[Outgoing]) -> Answer:
        """Send a document. Raises ReceiverUnavailable, and UnwritableClasses before anything is
        sent.
        """
        return send_events(
            self.context,
            self.session.sink,
            self._delivery(document),
            document.number,
            document.events,
        )

    def save(self) -> None:
        """Let the sink confirm the answers; then mark their rows, and write what is left of their
        deliveries, in one transaction.

        Raises ReceiverUnavailable if the sink has lost answers.
        """
        context = self.context
        counters = context.counters
        refused, lost = flush(self.session.sink, self._outbox)
        begun = monotonic()
        by_batch: dict[int, Marks] = {}
        for result, events, document in as_flushed(self._outbox.take_marks(), refused, counters):
            marks = by_batch.setdefault(document.place[0], Marks(counters))
            marks.add_answered(events, result, document)
            self._forget_built(document.place)
        left = self._outbox.record()
        for number in sorted({*by_batch, *left}):
            documents, last_number = left.get(number, (None, 0))
            # This happens only once: the entry of a finished delivery may contain a consumer's set
            # by now.
            is_over = documents is not None and not documents
            by_batch.get(number, Marks(counters)).write(context, number if is_over else None)
            if is_over:
                self._state.deliveries.pop(number, None)
            elif documents:
                delivery = self._state.deliveries[number]
                clock = self._state.clock
                entry = entry_of(delivery, documents, last_number, self._outbox, clock)
                write_entry(context.log, entry)
        if self._outbox.count:  # documents of other deliveries may be sent next, too
            self.session.read_pause()
        context.log.commit()
        context.observer.marked(monotonic() - begun)
        if lost is not None:
            raise lost
        self.session.send_letters()

    def _forget_built(self, place: Place) -> None:
        """Release the values of a document if nothing is left of the document."""
        if place in self._built and not any(
            one.place[: len(place)] == place for one in self._outbox.batch(place[0])
        ):
            del self._built[place]

    def settled(self, settled: Settled[Outgoing]) -> None:
        """Do nothing: for a log, ``save`` handles all outcomes."""

    def is_saved(self) -> bool:
        """Return True if every answer is marked."""
        return self._outbox.is_saved

    def is_save_due(self) -> bool:
        """Return True: the marks are written before the next window is read."""
        return True

    def lost(self) -> None:
        """Forget what the format has recorded since the last save: the receiver is unavailable."""
        self.context.output.forget()

    def rest(self) -> None:
        """Release the values of events. The values are read again when the events are sent."""
        self._outbox.rest()
        self._built.clear()
        deliveries = self._state.deliveries
        for number, delivery in deliveries.items():
            deliveries[number] = delivery._replace(origins=NO_ORIGINS, current_rows={})


def events_of(outbox: Outbox[Outgoing], number: int) -> Iterator[Outgoing]:
    """Yield the events of a delivery that are not settled."""
    return chain.from_iterable(document.events for document in outbox.batch(number))


def info_of(number: int, events: Sequence[Outgoing]) -> DeliveryInfo:
    """Return the facts of a delivery for an observer."""
    first = events[0].sent_id if events else ""
    return DeliveryInfo(number, len(events), sum(len(event.ids) for event in events), first)


def send_events(
    context: Context, sink: Sink, delivery: Delivery, document_no: int, events: Sequence[Outgoing]
) -> Answer:
    """Send the document with these events of a delivery. Raises ReceiverUnavailable, and
    UnwritableClasses before anything is sent.
    """
    document = written(
        lambda some: context.output.document(context.catalog, delivery, document_no, some), events
    )
    if delivery.nonce:
        document = document._replace(nonce=delivery.nonce)
    if not document.refused:
        return sink.send(document)
    # The format has refused some events of the document; these already have errors.
    is_sent = len(document.refused) < len(document.event_ids)
    answer = sink.send(document) if is_sent else Answer(is_sent=False)
    return replace(answer, results={**answer.results, **document.refused})
