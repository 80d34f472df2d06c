"""Mark done rows in the log, and record the rest of a delivery in its entry (spec/event-log.md 7.3,
8.4).

This is a hot path: the rows of every event are marked here. ``itemgetter`` reads one field of all
events of an answer in one pass, and for an event without outcomes, which nearly all are, the rows
are its ``ids``. The price: the positions of these fields are repeated at the top of the module.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from operator import itemgetter
from typing import Final

from eventlog.core.catalog import ObjectId
from eventlog.core.clock import monotonic
from eventlog.core.rows.checks import InvalidRow
from eventlog.core.rows.event_ids import attempt_of, record_id_of
from eventlog.core.rows.events import Outgoing, RowOutcomes
from eventlog.model import SUCCESS, Answer, EventResult, Status
from eventlog.publisher.context.context import Context, Counters, report_missing
from eventlog.publisher.ledger.delivery import (
    NO_ORIGINS,
    Delivery,
    Tried,
    TriedKind,
    cut,
    encode,
    is_part,
    isolate,
    rest_of,
    with_attempts,
    with_new_numbers,
)
from eventlog.publisher.send.database_clock import DatabaseClock
from eventlog.publisher.send.parking import Parked, Parking
from eventlog.publisher.send.sending import Answered, Judged, as_flushed, why_refused
from eventlog.publisher.send.suspects import Suspects
from eventlog.publisher.send.unwritable import written
from eventlog.publisher.sinks import Sink
from eventlog.sql.log.errors import add_errors, add_object_errors
from eventlog.sql.log.internal_tables import EntryKind, replace_content

_ids_of: Final = itemgetter(Outgoing._fields.index("ids"))
_outcomes_of: Final = itemgetter(Outgoing._fields.index("outcomes"))


@dataclass(slots=True)
class Marks:
    """Marks and error rows that are collected and then written together (spec/event-log.md 7.3).
    Use a new object each time.
    """

    counters: Counters
    """The counters that count the rows (spec/event-log.md 7.3)."""
    statuses: dict[Status, list[int]] = field(default_factory=dict)
    retained: list[int] = field(default_factory=list)
    """The rows to be marked S that ``delete_from_log`` does not delete."""
    errors: list[InvalidRow] = field(default_factory=list)
    next_ids: dict[int, str] = field(default_factory=dict)
    """The event-ids with which refused events are sent again, by the record_id of their first row,
    where they differ from the first event-ids.
    """
    object_errors: list[tuple[str, str, str]] = field(default_factory=list)
    """The error rows for objects of a snapshot: event-id, code and message."""
    answered: list[Sequence[Outgoing]] = field(default_factory=list)
    """The events that were answered."""

    @property
    def has_any(self) -> bool:
        """True if there is anything to write."""
        return any(self.statuses.values()) or bool(self.retained or self.errors)

    def add(self, status: Status, record_ids: Iterable[int]) -> None:
        self.statuses.setdefault(status, []).extend(record_ids)

    def add_invalid(self, invalid: Sequence[InvalidRow]) -> None:
        """Add rows that failed a check, or whose value read back cannot be written: they get E and
        an error row each.
        """
        record_ids = [row.record_id for row in invalid]
        self.counters.rows_invalid += len(invalid)
        if self.counters.refused:
            self.counters.count_requeued(record_ids)
        self.counters.note_refused(record_ids)
        self.add(Status.ERROR, record_ids)
        self.errors += invalid

    def add_answered(self, events: Sequence[Outgoing], result: EventResult) -> None:
        """Add the rows of events that got an answer other than retry.

        Rows that precedence dropped are S with any answer. Objects of a snapshot have no rows;
        refused ones get error rows.
        """
        if events and not events[0].ids:
            self._add_objects(events, result)
            return
        self.answered.append(events)
        special = [outcomes for outcomes in map(_outcomes_of, events) if outcomes is not None]
        contributed = [event.contributed for event in events] if special else map(_ids_of, events)
        record_ids = list(chain.from_iterable(contributed))
        self.counters.count_rows(result.level, len(record_ids))
        if self.counters.refused:
            self.counters.count_requeued(record_ids)
        self.add(Status[result.level.name], record_ids)
        if message := why_refused(result):
            self.counters.note_refused(record_ids)
            self.errors.extend(
                InvalidRow(record_id, result.code, message) for record_id in record_ids
            )
            self._keep_attempts(events)
        self.add_outcomes(special)
        if any(outcomes.invalid for outcomes in special):
            self._keep_attempts(
                event for event in events if event.outcomes and event.outcomes.invalid
            )

    def _add_objects(self, events: Sequence[Outgoing], result: EventResult) -> None:
        if message := why_refused(result):
            self.object_errors += [(event.event_id, result.code, message) for event in events]
        for event in events:
            if event.outcomes is not None:
                self.add_invalid_object(event.event_id, event.outcomes.invalid)

    def add_invalid_object(self, event_id: str, invalid: Sequence[InvalidRow]) -> None:
        """Add an object of a snapshot whose values or key cannot be written."""
        self.counters.rows_invalid += len(invalid)
        self.object_errors += [(event_id, one.code, one.message) for one in invalid]

    def _keep_attempts(self, events: Iterable[Outgoing]) -> None:
        """Keep the attempt number under which the first row of a refused event is sent again
        (spec/event-log.md 7.4): the number of the refused attempt, which was not applied. A row
        that has become invalid since may have been applied in this attempt, so it is sent under the
        next number.
        """
        for event in events:
            first = record_id_of(event.event_id)
            invalid = () if event.outcomes is None else event.outcomes.invalid
            number = event.attempts + any(row.record_id == first for row in invalid)
            if number > 1:
                self.next_ids[first] = f"{event.event_id}.{number}"

    def add_outcomes(self, several: Iterable[RowOutcomes]) -> None:
        """Add the rows of events that do not depend on an answer."""
        for outcomes in several:
            self.counters.rows_dropped += len(outcomes.dropped)
            self.counters.rows_gone += len(outcomes.gone)
            self.counters.rows_noop += len(outcomes.noop)
            self.counters.sv_conflicts += outcomes.conflicts
            self.add(Status.SUCCESS, (*outcomes.dropped, *outcomes.gone, *outcomes.noop))
            self.add_invalid(outcomes.invalid)

    def write(self, context: Context, ended: int | None = None) -> None:
        """Write the marks through the ledger in the present transaction, and the error rows with
        one statement. ``ended`` is the number of a delivery that is done.
        """
        deletes = context.options.delete_from_log
        alone = ended is not None and not self.errors
        unmarked = context.ledger.write(
            self.statuses, self.retained, deletes=deletes, ended=ended, alone=alone
        )
        if unmarked.gone:
            record_ids = [*chain(self.retained, *self.statuses.values())]
            report_missing(context, unmarked.gone, min(record_ids), max(record_ids))
        if unmarked.taken:
            # An operator has skipped them while they were being sent, so the receiver may have
            # applied this attempt.
            keep_next_attempts(context, chain.from_iterable(self.answered), unmarked.taken)
        add_object_errors(context.log, self.object_errors, context.ledger.consumer)
        if self.errors:
            add_errors(context.log, self.errors, context.ledger.consumer, self.next_ids)
            known = context.attempts
            for row, event_id in self.next_ids.items():
                known[row] = max(known.get(row, 1), attempt_of(event_id))


def keep_next_attempts(
    context: Context, events: Iterable[Outgoing], given_up: Container[int]
) -> None:
    """Keep the next attempt number of events whose first rows an operator has skipped: if the rows
    are queued again, the receiver may have applied the last attempt (spec/event-log.md 7.4).
    """
    for event in events:
        if (first := record_id_of(event.event_id)) in given_up:
            context.attempts[first] = event.attempts + 1


def send_document(
    context: Context, sink: Sink, delivery: Delivery, document_no: int, events: Sequence[Outgoing]
) -> Answer:
    """Send the document with these events of a delivery. Raises ReceiverUnavailable, and
    UnwritableClasses before anything is sent.
    """
    document = written(
        lambda some: context.output.document(context.catalog, delivery, document_no, some), events
    )
    if not document.refused:
        return sink.send(document)
    # The format has refused some events of the document; these already have errors.
    is_sent = len(document.refused) < len(document.event_ids)
    answer = sink.send(document) if is_sent else Answer(is_sent=False)
    return replace(answer, results={**answer.results, **document.refused})


def all_wait(
    events: Iterable[Outgoing], unavailable: Container[str], parking: Parking[ObjectId]
) -> bool:
    """Return True if none of these recorded events may be sent now: the class of each is
    ``unavailable``, by event-id, or its object is parked.
    """
    return all(
        event.event_id in unavailable or parking.is_waiting(event.object_id) for event in events
    )


class DeliveryProgress:
    """The progress of a delivery whose in-flight entry is committed. ``recorded`` is the present
    content of the entry, which no other session writes in the meantime.

    Rows are marked and the entry is shortened every ``mark_interval``, and immediately when an
    event must be sent under a new event-id: until the entry has that id, a crash would repeat the
    event under the old one, which the receiver may remember. Events of waiting objects and unbuilt
    events stay in the entry. What the receiver failed for is recorded with the marks: the halves of
    an isolated document, and the attempts of parts and of parked events.

    ``build`` builds a part of a recorded delivery that has one document; None = the delivery is new
    and already built. ``suspects`` None = each failure of the receiver means that it is
    unavailable.
    """

    def __init__(
        self,
        context: Context,
        delivery: Delivery,
        sink: Sink,
        parking: Parking[ObjectId],
        build: Callable[[Delivery], Delivery] | None = None,
        suspects: Suspects | None = None,
        clock: DatabaseClock | None = None,
    ) -> None:
        self.suspects = suspects
        self._clock = clock or DatabaseClock(context.log.connection, context.log.dialect)
        self.options, self.counters, self.parking = context.options, context.counters, parking
        self.delivery_no, self.recorded = delivery.number, delivery
        self.context, self._sink, self._whole, self._build = context, sink, delivery, build
        self._built: dict[int, Delivery] = {}
        self._left = dict(delivery.documents)
        self._waiting = frozenset(delivery.waiting)
        self._parked = dict(delivery.parked)
        self._failed: list[tuple[frozenset[str], Tried]] = []
        self._is_changed = False  # True if the entry differs from what is recorded
        self._unmarked: Answered[Outgoing] = []
        self._marked_at = monotonic()

    def to_send(self) -> Iterator[tuple[int, Sequence[Outgoing]]]:
        """Yield the documents; if a document has one event, yield each event under its document's
        number.

        Documents of a recorded delivery are built one at a time, when they are requested. Events
        whose rows have lost their effect since they were recorded need no answer. Events whose
        class is unavailable stay in the entry.
        """
        unsent, is_renumbered = deque(self._left), False
        while unsent:
            number = unsent.popleft()
            events = self._left[number]
            if self._build is not None:
                if all_wait(events, self._waiting, self.parking):
                    continue
                events = self.rebuilt(number, self._build)
                if events and not is_renumbered and self._has_unavailable(number):
                    unsent = deque(self._renumber([number, *unsent]))
                    number, is_renumbered = unsent.popleft(), True
            if idle := [event for event in events if event.operation is None]:
                self.answer_idle(number, idle)
                events = [event for event in events if event.operation is not None]
            if self.context.output.is_single:
                yield from ((number, [event]) for event in events)
            elif events:
                yield number, events

    def tried(self, document_no: int) -> Tried | None:
        tried = self._whole.tried.get(document_no)
        return tried if is_part(tried) else None

    def rebuilt(self, number: int, build: Callable[[Delivery], Delivery]) -> Sequence[Outgoing]:
        """Build a document of the recorded delivery, and return its events of available classes
        whose objects do not wait.
        """
        part = build(self._whole._replace(documents={number: self._left[number]}))
        self._built[number] = part
        self._left[number] = part.documents[number]
        self._waiting |= part.waiting
        return [
            event
            for event in self._left[number]
            if event.event_id not in part.waiting and not self._is_waiting(event)
        ]

    def _has_unavailable(self, number: int) -> bool:
        """Return True if the class of an event of a document is unavailable."""
        return any(event.event_id in self._waiting for event in self._left[number])

    def _renumber(self, numbers: Sequence[int]) -> Sequence[int]:
        """Give documents new numbers, and record these. Under its old number the first of them, of
        which only a part can be sent now, may have been sent as a whole. The part would replace it,
        and what it lacks would follow the later documents (spec/event-log.md 10).
        """
        first = max(self._whole.last_number, *self._whole.documents) + 1
        new = dict(zip(numbers, count(first)))
        self._whole = with_new_numbers(self._whole, new)
        self._left = {new.get(number, number): own for number, own in self._left.items()}
        self._built = {new.get(number, number): own for number, own in self._built.items()}
        self._is_changed = True
        self.save()
        return list(new.values())

    def _is_waiting(self, event: Outgoing) -> bool:
        return self.parking.is_waiting(event.object_id)

    def answer_idle(self, number: int, idle: Sequence[Outgoing]) -> None:
        """Settle the events of a document whose rows have no effect: they need no answer."""
        done = {event.event_id for event in idle}
        self._left[number] = [event for event in self._left[number] if event.event_id not in done]
        self._unmarked.append((SUCCESS, idle))
        self._is_changed = True
        if self.suspects is not None:
            self.suspects.settled(idle)
        for event in idle:
            if event.object_id is not None:
                self.parking.release(event.object_id)

    def send(self, document_no: int, events: Sequence[Outgoing]) -> Answer:
        return send_document(
            self.context,
            self._sink,
            self._built.get(document_no, self._whole),
            document_no,
            events,
        )

    def cut(
        self, document_no: int, events: Sequence[Outgoing]
    ) -> list[tuple[int, Sequence[Outgoing]]]:
        """Make the halves of a document separate documents, as ``DocumentSender`` defines it. A new
        event-id is in the entry before anything is sent under it.
        """
        left, _ = cut(self._whole._replace(documents=self._left), document_no, events)
        self._left = dict(left.documents)
        self._whole, parts = cut(self._whole, document_no, events)
        if document_no in self._built:
            self._built.update(dict.fromkeys(parts, self._built[document_no]))
        self._is_changed = True
        numbered = chain.from_iterable(parts.values())
        if any(one.attempts != other.attempts for one, other in zip(numbered, events, strict=True)):
            self.save()
        return list(parts.items())

    def settle(self, document_no: int, events: Sequence[Outgoing], judged: Judged[Outgoing]) -> str:
        self._unmarked += judged.answered
        for result, event in judged.given_up:
            # If events are sent again, they must not use an id that the receiver may have applied.
            self._unmarked.append((result, [event._replace(attempts=event.attempts + 1)]))
        if judged.failed is not None:
            self._note_failure(events, judged.failed)
        else:
            if judged.retried:
                self._note_parked(judged.retried)
            before = self._left[document_no]
            self._left[document_no] = left = _left_of(before, events, judged)
            self._is_changed |= bool(judged.behind) or len(left) < len(before)
            if not left:
                self._built.pop(document_no, None)
        if judged.behind or monotonic() - self._marked_at >= self.options.mark_interval:
            self.save()
        return self.parking.too_many(self.options.max_parked)

    def _note_failure(self, events: Sequence[Outgoing], failed: Tried) -> None:
        """Record that the receiver has failed for a document that is isolated, or for a part of
        one.
        """
        parked = self._parked_of(events[0])
        if parked is not None and (len(events) > 1 or self.parking.is_recorded(failed.tries)):
            sent = frozenset(event.sent_id for event in events)
            due = self._clock.text_of(parked.due)
            self._failed.append((sent, failed._replace(due=due)))
            self._is_changed = True

    def _note_parked(self, retried: Sequence[Outgoing]) -> None:
        """Record the attempts with events that got the answer retry, from the second attempt on."""
        for event in retried:
            parked = self.parking.to_record(event.object_id, event.sent_id)
            if parked is not None:
                due = self._clock.text_of(parked.due)
                self._parked[event.event_id] = Tried(
                    parked.attempts, parked.reason, due, TriedKind.PARKED
                )
                self._is_changed = True

    def _parked_of(self, event: Outgoing) -> Parked | None:
        """Return the parked state of an event's object, None if it is not parked."""
        return None if event.object_id is None else self.parking.get(event.object_id)

    def save(self) -> None:
        """Let the sink confirm the answers, and mark their rows.

        Raises ReceiverUnavailable if the sink has lost them.
        """
        refused = self._sink.flush()
        begun = monotonic()
        marks = Marks(self.counters)
        for result, events in as_flushed(self._unmarked, refused, self.counters):
            marks.add_answered(events, result)
        self.write(marks)
        self._unmarked, self._marked_at = [], monotonic()
        self.context.observer.marked(self._marked_at - begun)

    def write(self, marks: Marks) -> None:
        """Write the marks and the rest of the delivery in one transaction."""
        # The rows of the log are dropped from memory. They are read again when the delivery is sent
        # again, which may be much later.
        whole = self._whole._replace(parked=self._parked) if self._parked else self._whole
        rest = rest_of(whole, self._left)._replace(
            origins=NO_ORIGINS, current_rows={}, waiting=self._waiting
        )
        for sent_ids, tried in self._failed:
            rest = _with_failure(rest, sent_ids, tried)
        log = self.context.log
        # This happens only once: the entry of a finished delivery may contain a consumer's set by
        # now.
        is_over = not rest.documents and bool(self.recorded.documents)
        marks.write(self.context, self.delivery_no if is_over else None)
        if rest.documents and self._is_changed:
            replace_content(log, EntryKind.DELIVERY, self.delivery_no, encode(rest))
        log.commit()
        self.recorded, self._is_changed = rest, False


def _with_failure(delivery: Delivery, sent_ids: frozenset[str], tried: Tried) -> Delivery:
    """Return a delivery in which a document or part that the receiver has failed for is divided
    into halves; for an event that was alone already, record the attempts.
    """
    if tried.tries:
        return with_attempts(delivery, sent_ids, tried)
    return isolate(delivery, sent_ids, tried)


def _left_of(
    before: Sequence[Outgoing], events: Sequence[Outgoing], judged: Judged[Outgoing]
) -> Sequence[Outgoing]:
    """Return the events of the document that stay in the in-flight entry: unsent events, and events
    to send again, which are rebuilt then.
    """
    if not judged.retried and not judged.behind and len(events) == len(before):
        return ()
    done = {event.event_id for _, answered in judged.answered for event in answered}
    done.update(event.event_id for _, event in judged.given_up)
    behind = {event.event_id for _, event in judged.behind}
    return [
        event._replace(steps=None, attempts=event.attempts + (event.event_id in behind))
        for event in before
        if event.event_id not in done
    ]
