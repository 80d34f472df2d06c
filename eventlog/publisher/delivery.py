"""Send a flight, and mark its rows by the answers (spec/event-log.md 8.4)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from eventlog.core.catalog import ObjectId
from eventlog.core.events import Fates, Outgoing
from eventlog.errors import ReceiverAway
from eventlog.model import SUCCESS, Answer, Level, Verdict
from eventlog.publisher.context import Context
from eventlog.publisher.flight import Envelope, Flight, encode
from eventlog.publisher.marks import Marks
from eventlog.publisher.sinks import Sink
from eventlog.publisher.wake import back_off
from eventlog.sql.rows import strike_inflight, update_inflight

_log = logging.getLogger("eventlog.publisher")


class FlightResult(Enum):
    """How a flight ended."""

    DONE = "every event was answered, or is parked"
    RETRY = "the cycle stops: the receiver asked for a retry"
    AWAY = "the cycle stops: the receiver is away"
    FATAL = "the publisher stops: the receiver answered fatal"
    STOPPED = "the publisher was told to stop"


class Delivered(NamedTuple):
    """How a flight ended and what is left of it: events that are still in its in-flight line. ``reason`` for people."""

    result: FlightResult
    rest: Flight
    reason: str = ""


class _Sent(NamedTuple):
    """One envelope that was sent, or would have been, and what came back: an answer or why there is none."""

    envelope: Envelope
    events: Sequence[Outgoing]
    answer: Answer | ReceiverAway


_Answered = list[tuple[Verdict, Sequence[Outgoing]]]
"""Events that are answered for good, by their verdicts."""


def deliver(context: Context, flight: Flight, sink: Sink, parking: Parking, stopping: Callable[[], bool]) -> Delivered:
    """Send the envelopes of a flight whose in-flight line is committed.

    Rows are marked and the line is struck at the end, whenever ``mark_interval`` has passed since the last time, and at
    once when an event is to be sent under a new event-id: until that is in the line a crash repeats it under the old
    one, which the receiver may know. Events of objects that wait in ``parking``, and those that have not been built,
    stay in the line. ``stopping`` is asked before each envelope.
    """
    delivered = _deliver(context, flight, sink, parking, stopping)
    if delivered.result is FlightResult.AWAY:
        context.output.forget()
    return delivered


def _deliver(context: Context, flight: Flight, sink: Sink, parking: Parking, stopping: Callable[[], bool]) -> Delivered:
    recorded = flight
    left: dict[int, Sequence[Outgoing]] = {envelope.number: envelope.events for envelope in flight.envelopes}
    unmarked: _Answered = []
    marked_at = time.monotonic()
    result, reason = FlightResult.DONE, ""

    def halted() -> bool:
        return result is not FlightResult.DONE or stopping()

    def write() -> ReceiverAway | None:
        """Make what was answered count, and mark it; why not, if the sink has lost it."""
        nonlocal recorded, unmarked, marked_at
        try:
            refused = sink.flush()
        except ReceiverAway as away:
            return away
        recorded = _write_marks(context, recorded, left, _marks(context, unmarked, refused))
        unmarked, marked_at = [], time.monotonic()
        return None

    send = _send_concurrently if context.options.concurrency > 1 else _send_in_turn
    for envelope, events, answer in send(context, flight, sink, parking, halted):
        if isinstance(answer, ReceiverAway):
            if result is not FlightResult.FATAL:
                result, reason = FlightResult.AWAY, str(answer)
            continue
        judged = _judge(events, answer)
        settled, why = _settle(context, judged, answer, parking)
        unmarked += judged.answered
        if settled is FlightResult.FATAL or result is FlightResult.DONE:
            result, reason = settled, why
        left[envelope.number] = _left_of(envelope, events, judged)
        is_time = result is FlightResult.DONE and time.monotonic() - marked_at >= context.options.mark_interval
        if (judged.is_renumbered or is_time) and (lost := write()) is not None:
            return Delivered(FlightResult.AWAY, recorded, str(lost))
    if result is FlightResult.DONE and stopping():
        result, reason = FlightResult.STOPPED, "told to stop"
    if (lost := write()) is not None:
        result, reason = FlightResult.AWAY, str(lost)
    return Delivered(result, recorded, reason)


def _send_in_turn(
    context: Context, flight: Flight, sink: Sink, parking: Parking, halted: Callable[[], bool]
) -> Iterator[_Sent]:
    """Each envelope after the answer to the one before."""
    for envelope in flight.envelopes:
        if halted():
            return
        events = _sendable(envelope, parking)
        yield _Sent(envelope, events, _send(context, flight, envelope, events, sink))


def _send_concurrently(
    context: Context, flight: Flight, sink: Sink, parking: Parking, halted: Callable[[], bool]
) -> Iterator[_Sent]:
    """Up to ``concurrency`` envelopes in the air, begun in order, never two that hold one object."""
    most = context.options.concurrency
    pending: dict[Future[Answer | ReceiverAway], tuple[Envelope, Sequence[Outgoing]]] = {}
    with ThreadPoolExecutor(most, thread_name_prefix="eventlog-send") as threads:
        for envelope in flight.envelopes:
            objects = {event.object_id for event in envelope.events}
            while pending and (
                len(pending) >= most
                or any(event.object_id in objects for _, sent in pending.values() for event in sent)
            ):
                yield from _completed(pending)
            if halted():
                break
            events = _sendable(envelope, parking)
            pending[threads.submit(_send, context, flight, envelope, events, sink)] = envelope, events
        while pending:
            yield from _completed(pending)


def _completed(pending: dict[Future[Answer | ReceiverAway], tuple[Envelope, Sequence[Outgoing]]]) -> Iterator[_Sent]:
    done, _ = wait(pending, return_when=FIRST_COMPLETED)
    for future in done:
        envelope, events = pending.pop(future)
        yield _Sent(envelope, events, future.result())


def _sendable(envelope: Envelope, parking: Parking) -> Sequence[Outgoing]:
    """The events of an envelope whose objects do not wait; the others have perhaps not been built."""
    if not parking:
        return envelope.events
    return [event for event in envelope.events if not parking.is_waiting(event.object_id)]


def _send(
    context: Context, flight: Flight, envelope: Envelope, events: Sequence[Outgoing], sink: Sink
) -> Answer | ReceiverAway:
    written = [event for event in events if event.operation is not None]
    if not written:
        return Answer()
    try:
        answer = sink.send(context.output.document(context.catalog, flight, envelope.number, written))
    except ReceiverAway as away:
        return away
    if answer.unknown_ids:
        _log.warning("the answer names event-ids that are not in the envelope: %s", ", ".join(answer.unknown_ids[:10]))
    return answer


class _Judged(NamedTuple):
    """What an answer means. ``answered``: events that are done, by their verdicts. ``again`` by event-id: events that
    are to be sent again, with their verdicts, as they are recorded from now on.
    """

    answered: _Answered
    again: Mapping[str, tuple[Verdict, Outgoing]] = MappingProxyType({})

    @property
    def is_renumbered(self) -> bool:
        """Whether an event is to be sent under a new event-id."""
        return any(verdict.level is not Level.RETRY for verdict, _ in self.again.values())


def _judge(events: Sequence[Outgoing], answer: Answer) -> _Judged:
    """What each event is to be marked with, or how it is sent again.

    An event behind a retry of its own object is sent again too, since it must not be answered for good before that
    one; the receiver may have applied it, so under a new event-id (7.4).
    """
    if not answer.verdicts and answer.general is None:  # a silent answer is one verdict for all
        return _Judged([(SUCCESS, events)])
    answered: dict[Verdict, list[Outgoing]] = {}
    again: dict[str, tuple[Verdict, Outgoing]] = {}
    retried: set[ObjectId | None] = set()
    for event in events:
        verdict = SUCCESS if event.operation is None else answer.verdict(event.sent_id)
        if verdict.level is Level.RETRY:
            retried.add(event.object_id)
            again[event.event_id] = verdict, event
        elif event.object_id in retried and verdict.level is not Level.FATAL:
            again[event.event_id] = verdict, event._replace(sendings=event.sendings + 1)
        else:
            answered.setdefault(verdict, []).append(event)
    return _Judged(list(answered.items()), again)


def _left_of(envelope: Envelope, events: Sequence[Outgoing], judged: _Judged) -> Sequence[Outgoing]:
    """What of an envelope stays in the line: what was not sent, and what is to be sent again."""
    if not judged.again and len(events) == len(envelope.events):
        return ()
    done = {event.event_id for _, answered in judged.answered for event in answered}
    left = [event for event in envelope.events if event.event_id not in done]
    return [judged.again[event.event_id][1] if event.event_id in judged.again else event for event in left]


def _settle(context: Context, judged: _Judged, answer: Answer, parking: Parking) -> tuple[FlightResult, str]:
    """Count the answers to one envelope, park what is to be sent again, and say whether to go on."""
    counters = context.counters
    result, reason = FlightResult.DONE, ""
    sent = len(judged.again)
    for verdict, events in judged.answered:
        written = len(events)
        counters.rows_published += sum([len(ids) for _, ids, _, _, _, fates, _, _, _ in events if fates is None])
        for event in [event for event in events if event.fates is not None]:
            assert event.fates is not None
            written -= event.operation is None
            counters.rows_published += len(event.fates.contributed)
            count_fates(context, event.fates)
        if parking:
            for event in events:
                if event.object_id is not None:
                    parking.release(event.object_id)
        if verdict.level is Level.FATAL:
            result, reason = FlightResult.FATAL, verdict.message or "no message"
        counters.count_answers(verdict.level, written)
        sent += written
    retried: dict[ObjectId | None, Outgoing] = {}
    for verdict, event in judged.again.values():
        counters.count_answers(verdict.level, 1)
        if verdict.level is Level.RETRY:
            retried.setdefault(event.object_id, event)
    counters.events_sent += sent
    counters.documents_sent += 1 if sent else 0
    if result is FlightResult.FATAL or not retried:
        return result, reason
    if not context.options.park or (answer.general is not None and answer.general.level is Level.RETRY):
        return FlightResult.RETRY, f"event {next(iter(retried.values())).sent_id} is to be sent again later"
    now = time.monotonic()
    for object_id, event in retried.items():  # one that got several retries in one answer was tried once
        if object_id is not None:
            parking.park(object_id, now)
            _log.info("event %s got retry: its object is parked", event.sent_id)
    if len(parking) > context.options.max_parked:
        return FlightResult.RETRY, f"more than {context.options.max_parked} objects are parked"
    return result, reason


def _marks(context: Context, answered: _Answered, refused: Mapping[str, Verdict] | None) -> Marks:
    """The marks of what was answered. ``refused``: verdicts that came with the flush, in place of the answers."""
    marks = Marks()
    for verdict, events in answered:
        if refused:
            late = [event for event in events if event.sent_id in refused]
            for event in late:
                context.counters.count_answers(verdict.level, -1)
                context.counters.count_answers(refused[event.sent_id].level, 1)
                marks.add_answered([event], refused[event.sent_id])
            events = [event for event in events if event.sent_id not in refused] if late else events
        marks.add_answered(events, verdict)
    return marks


def count_fates(context: Context, fates: Fates) -> None:
    """Count the rows of a group that got their letter without an answer of their own (spec/event-log.md 7.3)."""
    counters = context.counters
    counters.rows_dropped += len(fates.dropped)
    counters.rows_gone += len(fates.gone)
    counters.rows_empty += len(fates.empty)
    counters.rows_bad += len(fates.bad)
    counters.sv_conflicts += fates.conflicts


def _write_marks(context: Context, flight: Flight, left: Mapping[int, Sequence[Outgoing]], marks: Marks) -> Flight:
    """Write marks and what is left of the flight in one transaction; return what is left."""
    # Without the log's rows: they are read anew when it is sent again, and it may stay for long.
    envelopes = [Envelope(number, events) for number, events in left.items() if events]
    rest = Flight(flight.number, envelopes, flight.first)
    connection = context.connection
    marks.write(context)
    if rest.envelopes:
        if marks.letters or encode(rest) != encode(flight):
            update_inflight(connection, context.log, rest.number, encode(rest))
    else:
        strike_inflight(connection, context.log, flight.number)
    connection.commit()
    return rest


@dataclass(slots=True)
class _Parked:
    attempts: int
    until: float
    waiting: bool


@dataclass(slots=True)
class Parking:
    """The parked objects, in memory only: after a restart their events are sent first.

    An object waits until its back-off has passed, is then awake for one cycle, and is released by an answer without
    retry. Waiting ends only between cycles, so that no later event of an object overtakes one that is still
    unanswered. Times are of one monotonic clock, in seconds.
    """

    retry_initial: float
    retry_max: float
    _objects: dict[ObjectId, _Parked] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, object_id: object) -> bool:
        return object_id in self._objects

    def __iter__(self) -> Iterator[ObjectId]:
        return iter(self._objects)

    def park(self, object_id: ObjectId, now: float) -> None:
        """Let the object wait: ``retry_initial`` seconds at first, doubled each time up to ``retry_max``."""
        attempts = self._objects[object_id].attempts + 1 if object_id in self._objects else 1
        self._objects[object_id] = _Parked(attempts, now + back_off(attempts, self.retry_initial, self.retry_max), True)

    def release(self, object_id: ObjectId) -> None:
        """The object was answered without retry."""
        self._objects.pop(object_id, None)

    def is_waiting(self, object_id: ObjectId | None) -> bool:
        """Whether events of the object must not be sent now."""
        parked = self._objects.get(object_id) if object_id is not None else None
        return parked is not None and parked.waiting

    def wake(self, now: float) -> None:
        """End the waiting of the objects whose back-off has passed."""
        for parked in self._objects.values():
            if parked.until <= now:
                parked.waiting = False

    def next_due(self) -> float | None:
        """When the next waiting object is due."""
        return min((parked.until for parked in self._objects.values()), default=None)
