"""Send a flight, and mark its rows by the answers (spec/event-log.md 8.4)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from enum import Enum
from typing import NamedTuple

from eventlog.answer import SUCCESS, Answer, Level, Verdict
from eventlog.errors import ReceiverAway
from eventlog.events import Outcome
from eventlog.publisher.context import Context, Numbered
from eventlog.publisher.flight import Envelope, Flight, ObjectId, Sending, encode
from eventlog.publisher.marks import Marks
from eventlog.publisher.parking import Parking
from eventlog.publisher.sinks import Document, Sink
from eventlog.sql.companions import strike_inflight, update_inflight

_log = logging.getLogger("eventlog.publisher")


class Landing(Enum):
    """How a flight ended."""

    DONE = "every event was answered, or is parked"
    RETRY = "the cycle stops: the receiver asked for a retry"
    AWAY = "the cycle stops: the receiver is away"
    FATAL = "the publisher stops: the receiver answered fatal"
    STOPPED = "the publisher was told to stop"


class Delivered(NamedTuple):
    """How a flight ended and what is left of it: events that are still in its in-flight line. ``reason`` for people."""

    landing: Landing
    rest: Flight
    reason: str = ""


class _Sent(NamedTuple):
    """One envelope that was sent, or would have been, and what came back: an answer or why there is none."""

    envelope: Envelope
    sendings: Sequence[Sending]
    answer: Answer | ReceiverAway


def deliver(context: Context, flight: Flight, sink: Sink, parking: Parking, stopping: Callable[[], bool]) -> Delivered:
    """Send the envelopes of a flight whose in-flight line is committed.

    Rows are marked and the line is struck at the end, whenever ``mark_interval`` has passed since the last time, and at
    once when an event is to be sent under a new event-id: until that is in the line a crash repeats it under the old
    one, which the receiver may know. Events of objects that wait in ``parking``, and those that have not been built,
    stay in the line. ``stopping`` is asked before each envelope.
    """
    delivered = _deliver(context, flight, sink, parking, stopping)
    if delivered.landing is Landing.AWAY and context.numbered is not None:
        context.numbered.forget()
    return delivered


def _deliver(context: Context, flight: Flight, sink: Sink, parking: Parking, stopping: Callable[[], bool]) -> Delivered:
    recorded = flight
    left: dict[int, tuple[Sending, ...]] = {envelope.number: envelope.sendings for envelope in flight.envelopes}
    unmarked: _Judged = []
    marked_at = time.monotonic()
    landing, reason = Landing.DONE, ""

    def halted() -> bool:
        return landing is not Landing.DONE or stopping()

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
    for envelope, sendings, answer in send(context, flight, sink, parking, halted):
        if isinstance(answer, ReceiverAway):
            if landing is not Landing.FATAL:
                landing, reason = Landing.AWAY, str(answer)
            continue
        judged = _judge(sendings, answer)
        settled, why = _settle(context, judged, answer, parking)
        unmarked += judged
        if settled is Landing.FATAL or landing is Landing.DONE:
            landing, reason = settled, why
        kept = {id(sending): again for sending, _, again in judged}
        left[envelope.number] = tuple(
            again for sending in envelope.sendings if (again := kept.get(id(sending), sending)) is not None
        )
        is_renumbered = any(again is not None and again is not sending for sending, _, again in judged)
        is_time = landing is Landing.DONE and time.monotonic() - marked_at >= context.options.mark_interval
        if (is_renumbered or is_time) and (lost := write()) is not None:
            return Delivered(Landing.AWAY, recorded, str(lost))
    if landing is Landing.DONE and stopping():
        landing, reason = Landing.STOPPED, "told to stop"
    if (lost := write()) is not None:
        landing, reason = Landing.AWAY, str(lost)
    return Delivered(landing, recorded, reason)


def _send_in_turn(
    context: Context, flight: Flight, sink: Sink, parking: Parking, halted: Callable[[], bool]
) -> Iterator[_Sent]:
    """Each envelope after the answer to the one before."""
    for envelope in flight.envelopes:
        if halted():
            return
        sendings = _sendable(envelope, parking)
        yield _Sent(envelope, sendings, _send(context, flight, envelope, sendings, sink))


def _send_concurrently(
    context: Context, flight: Flight, sink: Sink, parking: Parking, halted: Callable[[], bool]
) -> Iterator[_Sent]:
    """Up to ``concurrency`` envelopes in the air, begun in order, never two that hold one object."""
    most = context.options.concurrency
    in_air: dict[Future[Answer | ReceiverAway], tuple[Envelope, Sequence[Sending]]] = {}
    with ThreadPoolExecutor(most, thread_name_prefix="eventlog-send") as threads:
        for envelope in flight.envelopes:
            objects = {sending.object_id for sending in envelope.sendings}
            while in_air and (
                len(in_air) >= most
                or any(sending.object_id in objects for _, sendings in in_air.values() for sending in sendings)
            ):
                yield from _landed(in_air)
            if halted():
                break
            sendings = _sendable(envelope, parking)
            in_air[threads.submit(_send, context, flight, envelope, sendings, sink)] = envelope, sendings
        while in_air:
            yield from _landed(in_air)


def _landed(in_air: dict[Future[Answer | ReceiverAway], tuple[Envelope, Sequence[Sending]]]) -> Iterator[_Sent]:
    done, _ = wait(in_air, return_when=FIRST_COMPLETED)
    for future in done:
        envelope, sendings = in_air.pop(future)
        yield _Sent(envelope, sendings, future.result())


def _sendable(envelope: Envelope, parking: Parking) -> list[Sending]:
    return [s for s in envelope.sendings if s.outcome is not None and not parking.is_waiting(s.object_id)]


def _send(
    context: Context, flight: Flight, envelope: Envelope, sendings: Sequence[Sending], sink: Sink
) -> Answer | ReceiverAway:
    events = tuple(sending.event for sending in sendings if sending.event is not None)
    if not events:
        return Answer()
    try:
        if context.numbered is None:
            document = Document(flight.number, envelope.number, events, context.render(events))
        else:
            numbered = [Numbered(s.event, s.record.place, s.origin) for s in sendings if s.event is not None]
            records = context.numbered.records(context.catalog, flight.first, numbered)
            document = Document(flight.number, envelope.number, events, "", records)
        answer = sink.send(document)
    except ReceiverAway as away:
        return away
    if answer.unknown_ids:
        _log.warning("the answer names event-ids that are not in the envelope: %s", ", ".join(answer.unknown_ids[:10]))
    return answer


_Judged = list[tuple[Sending, Verdict, Sending | None]]
"""A sending, its verdict, and what of it is to be sent again, if it is."""


def _judge(sendings: Sequence[Sending], answer: Answer) -> _Judged:
    """What each event is to be marked with, or how it is sent again.

    An event behind a retry of its own object is sent again too, since it must not be answered for good before that
    one; the receiver may have applied it, so under a new event-id (7.4).
    """
    if not answer.verdicts and answer.general is None:
        return [(sending, SUCCESS, None) for sending in sendings]
    judged: _Judged = []
    retried: set[ObjectId | None] = set()
    for sending in sendings:
        verdict = SUCCESS if sending.event is None else answer.verdict(sending.event.event_id)
        if verdict.level is Level.RETRY:
            retried.add(sending.object_id)
            judged.append((sending, verdict, sending))
        elif sending.object_id in retried and verdict.level is not Level.FATAL:
            judged.append((sending, verdict, _renumbered(sending)))
        else:
            judged.append((sending, verdict, None))
    return judged


def _renumbered(sending: Sending) -> Sending:
    record = sending.record._replace(sendings=sending.record.sendings + 1)
    return sending._replace(record=record)


def _settle(context: Context, judged: _Judged, answer: Answer, parking: Parking) -> tuple[Landing, str]:
    """Count the answers to one envelope, park what is to be sent again, and say whether to go on."""
    counters = context.counters
    answered = [0] * len(Level)
    landing, reason = Landing.DONE, ""
    retried = None
    for sending, verdict, again in judged:
        _, object_id, event, outcome, _ = sending
        level = verdict.level
        if event is not None:
            answered[level] += 1
        if level is Level.FATAL:
            landing, reason = Landing.FATAL, verdict.message or "no message"
        if again is not None:
            if level is Level.RETRY and retried is None:
                retried = sending
            continue
        if outcome is not None:
            if event is not None:
                counters.rows_published += len(outcome.contributed)
            count_fates(context, outcome)
        if object_id is not None and parking:
            parking.release(object_id)
    counters.events_sent += sum(answered)
    counters.documents_sent += 1 if any(answered) else 0
    for level, count in zip(Level, answered, strict=True):
        counters.count_answers(level, count)
    if landing is Landing.FATAL or retried is None:
        return landing, reason
    if not context.options.park or (answer.general is not None and answer.general.level is Level.RETRY):
        return Landing.RETRY, f"event {retried.record.sent_id} is to be sent again later"
    now = time.monotonic()
    # An object that got several retries in one answer was tried once.
    again_later = {
        sending.object_id: sending.record.sent_id
        for sending, verdict, again in reversed(judged)
        if again is not None and verdict.level is Level.RETRY and sending.object_id is not None
    }
    for object_id, sent_id in again_later.items():
        parking.park(object_id, now)
        _log.info("event %s got retry: its object is parked", sent_id)
    if len(parking) > context.options.max_parked:
        return Landing.RETRY, f"more than {context.options.max_parked} objects are parked"
    return landing, reason


def _marks(context: Context, judged: _Judged, refused: Mapping[str, Verdict] | None) -> Marks:
    """The marks of what was answered. ``refused``: verdicts that came with the flush, in place of the answers."""
    marks = Marks()
    for sending, verdict, again in judged:
        outcome = sending.outcome
        if again is not None or outcome is None:
            continue
        if sending.event is None:
            marks.add_without_event(outcome)
            continue
        late = refused.get(sending.event.event_id) if refused else None
        if late is not None:
            context.counters.count_answers(verdict.level, -1)
            context.counters.count_answers(late.level, 1)
        marks.add_answered(outcome, verdict if late is None else late)
    return marks


def count_fates(context: Context, outcome: Outcome) -> None:
    """Count the rows of a group that got their letter without an answer of their own (spec/event-log.md 7.3)."""
    _, _, dropped, gone, empty, bad, conflicts = outcome
    if not (dropped or gone or empty or bad or conflicts):  # as most are
        return
    counters = context.counters
    counters.rows_dropped += len(dropped)
    counters.rows_gone += len(gone)
    counters.rows_empty += len(empty)
    counters.rows_bad += len(bad)
    counters.sv_conflicts += conflicts


def _write_marks(context: Context, flight: Flight, left: dict[int, tuple[Sending, ...]], marks: Marks) -> Flight:
    """Write marks and what is left of the flight in one transaction; return what is left."""
    rest = Flight(flight.number, tuple(_still(left)), flight.first)
    connection = context.connection
    marks.write(context)
    if rest.envelopes:
        if marks.letters or encode(rest) != encode(flight):
            update_inflight(connection, context.log, rest.number, encode(rest))
    else:
        strike_inflight(connection, context.log, flight.number)
    connection.commit()
    return rest


def _still(left: dict[int, tuple[Sending, ...]]) -> Iterator[Envelope]:
    for number, sendings in left.items():
        if sendings:
            yield Envelope(number, sendings)
