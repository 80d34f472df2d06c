"""Send envelopes, judge the answers, park objects whose events are sent again later
(spec/event-log.md 8.4), for logs and streams.

A ``Sending`` sends the documents and records the answers: the in-flight line of a log, or the
position of a stream.

This is a hot path: every event passes through ``_judge``. A silent answer, the most frequent one,
is one verdict for a whole list of events, and events are counted by the length of such lists. So an
event is looked at only if its answer says something. In return answers travel as ``Answered``,
pairs of a verdict and its events, and every reader of them has two loops.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import closing, nullcontext
from enum import Enum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from eventlog.core.clock import executor, first_done, monotonic, wait_for_all
from eventlog.errors import FatalAnswer, ReceiverUnavailable
from eventlog.model import SUCCESS, Answer, Document, EventResult, Level
from eventlog.publisher.context import Context, Counters, PublisherOptions
from eventlog.publisher.flight import Tried
from eventlog.publisher.parking import Parking
from eventlog.publisher.sinks import Sink
from eventlog.publisher.suspects import Suspects

_log = logging.getLogger("eventlog.publisher")


class FlightResult(Enum):
    DONE = "every event was answered, or is parked"
    RETRY = "the cycle stops: the receiver asked for a retry, or too many objects wait for one"
    AWAY = "the cycle stops: the receiver is away"
    FATAL = "the publisher stops: the receiver answered fatal"
    STOPPED = "the publisher was told to stop"


class Delivered(NamedTuple):
    """The end of a sending of envelopes, or of a whole cycle."""

    result: FlightResult
    reason: str = ""
    """The explanation of a stop, for people."""
    retry_after: float | None = None
    """The seconds that the receiver asks to be left alone, None if it names none."""
    more: bool = False
    """True if there is something to do at once."""
    in_short: str = ""
    """The explanation without the receiver's words, empty if there is no such text."""
    is_suspicious: bool = False
    """True if the receiver is away by a failure whose cause may be the document."""

    @classmethod
    def away(cls, lost: ReceiverUnavailable) -> Delivered:
        """Return the end of a sending whose receiver is away."""
        return cls(FlightResult.AWAY, str(lost), in_short=lost.in_short)


class Sendable(Protocol):
    """An event that a document can carry."""

    @property
    def sent_id(self) -> str:
        """The event-id in the document."""
        ...

    @property
    def object_id(self) -> Hashable: ...


E = TypeVar("E", bound=Sendable)

Envelope = tuple[int, Sequence[E]]
"""A number, and the events that are sent under it."""

Answered = list[tuple[EventResult, Sequence[E]]]
"""The events that are answered for good, by their verdicts."""


class Judged(NamedTuple, Generic[E]):
    """The meaning of an answer."""

    answered: Answered[E]
    retried: Sequence[E] = ()
    """The events that got retry."""
    behind: Sequence[tuple[EventResult, E]] = ()
    """The events behind a retry of their own object, with their verdicts. They are sent again, too,
    under a new event-id.
    """
    given_up: Sequence[tuple[EventResult, E]] = ()
    """The events without an answer that are not sent again. The receiver may have applied them."""


class Sending(Protocol[E]):
    """The sender of documents of events, which also records the answers.

    ``flight`` is the flight number of the envelopes, for log lines. Other threads call ``send``;
    all other members are used by the one delivering thread.
    """

    @property
    def options(self) -> PublisherOptions: ...

    @property
    def counters(self) -> Counters: ...

    @property
    def parking(self) -> Parking[Any]: ...

    @property
    def suspects(self) -> Suspects | None:
        """The envelopes that the receiver fails for; None = each failure means that it is away."""
        ...

    @property
    def flight(self) -> int: ...

    def tried(self, envelope: int) -> Tried | None:
        """Return the recorded tries of an envelope that is a part of one that the receiver has
        failed for; None for any other envelope.
        """
        ...

    def send(self, envelope: int, events: Sequence[E]) -> Answer:
        """Send the document of events under the number of an envelope. Raises
        ReceiverUnavailable.
        """
        ...

    def settle(self, envelope: int, events: Sequence[E], judged: Judged[E]) -> str:
        """Settle the results of an envelope's events that were sent. Return why sending must stop,
        empty = it may go on.

        Raises ReceiverUnavailable if answers were to be saved and the sink has lost them.
        """
        ...

    def save(self) -> None:
        """Make the results so far durable. Raises ReceiverUnavailable if the sink has lost
        answers.
        """
        ...


# --- sending --------------------------------------------------------------------------------------


def deliver_flight(
    context: Context,
    envelopes: Iterable[Envelope[E]],
    documents: int,
    sending: Sending[E],
    stopping: Callable[[], bool],
) -> Delivered:
    """Send the envelopes of a flight, of so many ``documents``, as many at a time as
    ``concurrency`` allows, and save the results. Return how the sending ended.
    """
    most = min(context.options.concurrency, documents)
    with executor(most, "eventlog-send") if most > 1 else nullcontext() as threads:
        try:
            ended = deliver(envelopes, sending, stopping, threads)
            sending.save()
        except ReceiverUnavailable as lost:
            ended = Delivered.away(lost)
    if ended.result is FlightResult.AWAY:
        context.output.forget()
    return ended


def deliver(
    envelopes: Iterable[Envelope[E]],
    sending: Sending[E],
    stopping: Callable[[], bool],
    threads: Executor | None = None,
) -> Delivered:
    """Send envelopes, let ``sending`` settle the results, and return how the sending ended.

    Events of waiting objects are left out; they may not have been built. Each envelope is asked for
    at its turn, after a call of ``stopping``. With ``threads`` up to ``concurrency`` envelopes are
    sent at the same time; None = each one follows the answer to the previous one. Raises
    ReceiverUnavailable if the sink has lost answers: no result can be saved any more.
    """
    ended = Delivered(FlightResult.DONE)

    def halted() -> bool:
        return ended.result is not FlightResult.DONE or stopping()

    def settle(
        envelope: int, events: Sequence[E], answer: Answer | ReceiverUnavailable
    ) -> set[Hashable]:
        """Settle an answer; return the objects of events that are sent again later."""
        nonlocal ended
        if isinstance(answer, ReceiverUnavailable):
            if _goes_on_without(envelope, events, answer, sending):
                if why := sending.parking.too_many(sending.options.max_parked):
                    ended = Delivered(FlightResult.RETRY, why, in_short=why)
                return {event.object_id for event in events}
            if ended.result is not FlightResult.FATAL:
                ended = ended._replace(
                    result=FlightResult.AWAY,
                    reason=str(answer),
                    in_short=answer.in_short,
                    is_suspicious=_is_suspicious(answer, sending),
                )
            return set()
        judged = _judge(events, answer)
        if sending.suspects is not None and not _is_retry_of_all(answer):
            sending.suspects.answered(events)
        settled = _settle(envelope, judged, answer, sending)
        if (
            why := sending.settle(envelope, events, judged)
        ) and settled.result is FlightResult.DONE:
            settled = settled._replace(result=FlightResult.RETRY, reason=why, in_short=why)
        if settled.result is FlightResult.FATAL or ended.result is FlightResult.DONE:
            ended = settled
        return {event.object_id for event in judged.retried} if answer.verdicts else set()

    with closing(_returned(envelopes, sending, halted, threads)) as returned:
        for envelope, events, answer in returned:
            _count_sent(sending.counters, answer)
            if (why := _refusal(events, answer)) is None:
                settle(envelope, events, answer)
                continue
            where = {"delivery": sending.flight, "document": envelope}
            _log.info("envelope %d is sent in halves: %s", envelope, why, extra=where)
            _send_halves(envelope, events, sending, settle, halted)
    if ended.result is FlightResult.DONE and stopping():
        return Delivered(FlightResult.STOPPED, "told to stop")
    return ended


def _send_halves(
    envelope: int,
    events: Sequence[E],
    sending: Sending[E],
    settle: Callable[[int, Sequence[E], Answer | ReceiverUnavailable], set[Hashable]],
    halted: Callable[[], bool],
) -> None:
    """Send the halves of an envelope that got an error for an unnamed event, until such an event is
    alone: one culprit among n events costs at most 2 log2 n further requests.

    A half is sent under the number of its envelope once the earlier results are in the line, so
    that a crash repeats only the rest. The first half is settled before the second is sent: the
    events of an object keep their order.
    """
    parts = _halves(events)
    while parts and not halted():
        part = _to_send_now(sending, envelope, parts.pop(0))
        if not part:
            continue
        answer = _send(sending, envelope, part)
        _count_sent(sending.counters, answer)
        if _refusal(part, answer) is not None:
            parts[:0] = _halves(part)
            continue
        retried = settle(envelope, part, answer)
        # These events were in the envelope,
        # and the receiver may have applied them before it refused it.
        behind = [
            (SUCCESS, event) for left in parts for event in left if event.object_id in retried
        ]
        if behind:
            sending.settle(envelope, [event for _, event in behind], Judged([], (), behind))
            parts = [
                rest
                for left in parts
                if (rest := [event for event in left if event.object_id not in retried])
            ]
        if parts and not halted():
            sending.save()


_Returned = tuple[int, Sequence[E], Answer | ReceiverUnavailable]
"""The number of an envelope, its events that were sent, and the result: an answer, or the error
without one.
"""


def _returned(
    envelopes: Iterable[Envelope[E]],
    sending: Sending[E],
    halted: Callable[[], bool],
    threads: Executor | None,
) -> Generator[_Returned[E]]:
    """Yield each envelope with its answer before the next is sent; with ``threads`` up to
    ``concurrency`` are sent at the same time, begun in order, and two with a common object never
    overlap.
    """
    most = sending.options.concurrency
    in_air: dict[Future[Answer | ReceiverUnavailable], Envelope[E]] = {}
    try:
        for number, events in envelopes:
            if in_air:
                objects = {event.object_id for event in events}
                while (
                    len(in_air) >= most
                    or any(
                        event.object_id in objects for _, sent in in_air.values() for event in sent
                    )
                    or (in_air and _is_probing(sending))
                ):
                    yield from _landed(in_air)
            if halted():
                break
            events = _to_send_now(sending, number, events)
            if not events:
                continue
            if threads is None:
                yield number, events, _send(sending, number, events)
            else:
                in_air[threads.submit(_send, sending, number, events)] = number, events
        while in_air:
            yield from _landed(in_air)
    finally:
        wait_for_all(in_air)


def _is_probing(sending: Sending[E]) -> bool:
    return sending.suspects is not None and sending.suspects.is_probing


def _to_send_now(sending: Sending[E], number: int, events: Sequence[E]) -> Sequence[E]:
    """Return those events whose objects do not wait; none if the envelope itself has to. No event
    of these objects is in the air: an object that begins to wait here waits for all its events.
    """
    parking, suspects = sending.parking, sending.suspects
    if parking:
        events = [event for event in events if not parking.is_waiting(event.object_id)]
    if not events or suspects is None:
        return events
    tried = sending.tried(number) if sending.options.park else None
    if tried is not None and not suspects.may_try:
        suspects.put_off(events, *tried)
        return ()
    return events if suspects.chosen(events) else ()


def _landed(
    in_air: dict[Future[Answer | ReceiverUnavailable], Envelope[E]],
) -> Iterator[_Returned[E]]:
    for future in first_done(in_air):
        yield *in_air.pop(future), future.result()


def _send(sending: Sending[E], number: int, events: Sequence[E]) -> Answer | ReceiverUnavailable:
    begun = monotonic()
    try:
        answer = sending.send(number, events)
    except ReceiverUnavailable as away:
        away.seconds = monotonic() - begun
        return away
    if answer.unknown_ids:
        _log.warning(
            "the answer names event-ids that are not in the envelope: %s",
            ", ".join(map(ascii, answer.unknown_ids[:10])),
            extra={"document": number},
        )
    return answer


def _count_sent(counters: Counters, answer: Answer | ReceiverUnavailable) -> None:
    """Count a document that got any answer. Only the delivering thread calls this."""
    if not isinstance(answer, ReceiverUnavailable) and answer.is_sent:
        counters.documents_sent += 1


def _refusal(events: Sequence[E], answer: Answer | ReceiverUnavailable) -> str | None:
    """Return why an envelope of several events was refused without naming one; None if it was not.

    The receiver's own words, which may quote values, appear only with the rows that are refused in
    the end.
    """
    if (
        isinstance(answer, ReceiverUnavailable)
        or not answer.culprit_unknown
        or answer.general is None
        or len(events) == 1
    ):
        return None
    return answer.in_short or "the receiver refuses it"


def _halves(events: Sequence[E]) -> list[Sequence[E]]:
    middle = len(events) // 2
    return [events[:middle], events[middle:]]


def send_heartbeat(sink: Sink, document: Document, counters: Counters) -> bool:
    """Send the heartbeat (spec/xds.md 7), and return True if it was received. It is never sent
    again.

    Raises FatalAnswer; any other answer has no effect, and neither has a missing one.
    """
    try:
        answer = sink.send(document)
        sink.flush()
    except ReceiverUnavailable as away:
        _log.warning("heartbeat: %s", away, extra={"code": away.code})
        return False
    counters.heartbeats_sent += 1
    if answer.general is not None and answer.general.level is Level.FATAL:
        raise FatalAnswer(
            f"the receiver answered fatal to a heartbeat: {answer.general.message or 'no message'}"
        )
    return True


# --- answers --------------------------------------------------------------------------------------


def why_refused(verdict: EventResult) -> str:
    """Return what the receiver said where it refused events for good, empty if it did not."""
    if verdict.level not in (Level.ERROR, Level.FATAL):
        return ""
    return verdict.message or f"the receiver answered {verdict.level.name.lower()}"


def _judge(events: Sequence[E], answer: Answer) -> Judged[E]:
    """Return the verdict on each event, or that it is sent again.

    An event behind a retry of its own object is sent again, too, since it must not be answered for
    good before that one. The receiver may have applied it, so it gets a new event-id (7.4).
    """
    if not answer.verdicts and answer.general is None:  # a silent answer is one verdict for all
        return Judged([(SUCCESS, events)])
    answered: dict[EventResult, list[E]] = {}
    retried: list[E] = []
    behind: list[tuple[EventResult, E]] = []
    objects: set[Hashable] = set()
    for event in events:
        verdict = answer.verdict(event.sent_id)
        if verdict.level is Level.RETRY:
            objects.add(event.object_id)
            retried.append(event)
        elif event.object_id in objects and verdict.level is not Level.FATAL:
            behind.append((verdict, event))
        else:
            answered.setdefault(verdict, []).append(event)
    return Judged(list(answered.items()), retried, behind)


def _settle(envelope: int, judged: Judged[E], answer: Answer, sending: Sending[E]) -> Delivered:
    """Count the answers to one envelope, park the objects of events that got retry, and return how
    to go on.
    """
    counters, parking = sending.counters, sending.parking
    ended = Delivered(FlightResult.DONE, "", answer.retry_after)
    for verdict, events in judged.answered:
        counters.count_answers(verdict.level, len(events))
        counters.events_sent += len(events)
        if parking:
            for event in events:
                parking.release(event.object_id)
        if verdict.level is Level.FATAL:
            ended = ended._replace(
                result=FlightResult.FATAL, reason=verdict.message or "no message"
            )
    counters.count_answers(Level.RETRY, len(judged.retried))
    counters.events_sent += len(judged.retried) + len(judged.behind)
    for verdict, _ in judged.behind:
        counters.count_answers(verdict.level, 1)
    if ended.result is FlightResult.FATAL or not judged.retried:
        return ended
    if sending.options.park and not _is_retry_of_all(answer):
        _park(envelope, judged.retried, answer, sending)
        return ended
    sent_id = judged.retried[0].sent_id
    message = answer.verdict(sent_id).message
    again = f"event {sent_id} must be sent again later"
    return ended._replace(
        result=FlightResult.RETRY,
        reason=f"{again} ({message})" if message else again,
        in_short=f"{again} ({answer.in_short})" if answer.in_short else again,
    )


def _goes_on_without(
    envelope: int, events: Sequence[E], away: ReceiverUnavailable, sending: Sending[E]
) -> bool:
    """Return True if sending goes on although the receiver has failed for these events: their
    objects wait, or the only event is given up. False if the receiver is away.
    """
    suspects, options = sending.suspects, sending.options
    if suspects is None or not _is_suspicious(away, sending):
        return False
    tried = sending.tried(envelope)
    if tried is None:
        return suspects.failed(events, away)
    if why := suspects.tried(events, away, options.max_attempts, tried.tries):
        _log.error("event %s: %s", events[0].sent_id, why, extra={"code": "receiver"})
        sending.parking.release(events[0].object_id)
        given_up = [(EventResult(Level.ERROR, why), event) for event in events]
        sending.settle(envelope, events, Judged([], given_up=given_up))
    return True


def _is_suspicious(away: ReceiverUnavailable, sending: Sending[E]) -> bool:
    return sending.suspects is not None and sending.options.park and away.is_suspicious


def _is_retry_of_all(answer: Answer) -> bool:
    return answer.general is not None and answer.general.level is Level.RETRY


def _park(envelope: int, retried: Sequence[E], answer: Answer, sending: Sending[E]) -> None:
    """Park the objects of the events that got retry, each with the reason of its first event."""
    now = monotonic()
    first: dict[Hashable, E] = {}
    for event in retried:
        first.setdefault(event.object_id, event)
    for object_id, event in first.items():
        reason = answer.verdict(event.sent_id).message
        sending.parking.park(object_id, now, reason, event.sent_id)
        _log.info(
            "event %s got retry: its object is parked%s",
            event.sent_id,
            f" ({reason})" if reason else "",
            extra={"delivery": sending.flight, "document": envelope, "event_id": event.sent_id},
        )


def as_flushed(
    answered: Answered[E], refused: Mapping[str, EventResult] | None, counters: Counters
) -> Answered[E]:
    """Return the answers after a flush.

    ``refused`` has verdicts of the flush that replace answers.
    """
    if not refused:
        return answered
    flushed: Answered[E] = []
    for verdict, events in answered:
        late = [event for event in events if event.sent_id in refused]
        for event in late:
            counters.count_answers(verdict.level, -1)
            counters.count_answers(refused[event.sent_id].level, 1)
            flushed.append((refused[event.sent_id], [event]))
        flushed.append(
            (
                verdict,
                [event for event in events if event.sent_id not in refused] if late else events,
            )
        )
    return flushed
