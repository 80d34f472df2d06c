"""Send envelopes, judge the answers, park what is to be sent again later (spec/event-log.md 8.4), for logs and streams.

How far events are answered is kept by a ``ProgressStore``: the in-flight line of a log, or the position of a stream.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from eventlog.errors import FatalAnswer, ReceiverAway
from eventlog.model import SUCCESS, Answer, Level, Verdict
from eventlog.publisher.context import Counters, PublisherOptions
from eventlog.publisher.sinks import Document, Sink
from eventlog.publisher.waiting import Random, back_off

_log = logging.getLogger("eventlog.publisher")


class FlightResult(Enum):
    DONE = "every event was answered, or is parked"
    RETRY = "the cycle stops: the receiver asked for a retry"
    AWAY = "the cycle stops: the receiver is away"
    FATAL = "the publisher stops: the receiver answered fatal"
    STOPPED = "the publisher was told to stop"


class Delivered(NamedTuple):
    """How the sending of envelopes, or a whole cycle, ended.

    ``reason`` for people if it was stopped; ``retry_after``: how many seconds the receiver wants to be left alone, None
    if it does not say. ``more``: there is something to do at once.
    """

    result: FlightResult
    reason: str = ""
    retry_after: float | None = None
    more: bool = False


class Sendable(Protocol):
    """An event on its way. ``operation`` None = its rows make no event, and are only to be marked."""

    @property
    def sent_id(self) -> str:
        """The event-id that the document carries."""
        ...

    @property
    def object_id(self) -> Hashable: ...

    @property
    def operation(self) -> str | None: ...


E = TypeVar("E", bound=Sendable)
K = TypeVar("K", bound=Hashable)

Answered = list[tuple[Verdict, Sequence[E]]]
"""Events that are answered for good, by their verdicts."""


class Judged(NamedTuple, Generic[E]):
    """What an answer means. ``retried``: events that got retry. ``behind``: events behind a retry of their own object,
    with their verdicts: they are sent again too, under a new event-id.
    """

    answered: Answered[E]
    retried: Sequence[E] = ()
    behind: Sequence[tuple[Verdict, E]] = ()


class ProgressStore(Protocol[E]):
    """What keeps how far events are answered, and what goes with it."""

    @property
    def options(self) -> PublisherOptions: ...

    @property
    def counters(self) -> Counters: ...

    @property
    def parking(self) -> Parking[Any]: ...

    @property
    def flight(self) -> int:
        """The number that envelopes are sent under, for log lines."""
        ...

    def take(self, envelope: int, events: Sequence[E], judged: Judged[E]) -> str:
        """Take what became of the events of an envelope that were sent; why sending has to stop, empty = it need not.

        Raises ReceiverAway if answers were to be saved and the sink has lost them.
        """
        ...

    def save(self) -> None:
        """Make durable what became of the events so far. Raises ReceiverAway if the sink has lost answers."""
        ...


# --- parked objects ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Parked:
    attempts: int
    until: float
    waiting: bool
    reason: str


@dataclass(slots=True)
class Parking(Generic[K]):
    """The parked objects, in memory only: after a restart their events are sent first.

    An object waits until its back-off has passed, is then awake, and is released by an answer without retry. Waiting
    ends only between cycles, so that no later event of an object overtakes one that is still unanswered. Times are of
    one monotonic clock, in seconds.
    """

    retry_initial: float
    retry_max: float
    random: Random = random.random
    _objects: dict[K, _Parked] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, object_id: object) -> bool:
        return object_id in self._objects

    def __iter__(self) -> Iterator[K]:
        return iter(self._objects)

    def park(self, object_id: K, now: float, reason: str = "") -> None:
        """Let the object wait as of ``back_off``: ``retry_initial`` seconds at first, ``retry_max`` at most.

        ``reason``: the receiver's, for people.
        """
        attempts = self._objects[object_id].attempts + 1 if object_id in self._objects else 1
        until = now + back_off(attempts, self.retry_initial, self.retry_max, self.random)
        self._objects[object_id] = _Parked(attempts, until, True, reason)

    def objects(self) -> list[tuple[K, float, int, str]]:
        """Each parked object with when it is due, how often it was tried, and the receiver's reason."""
        return [(key, parked.until, parked.attempts, parked.reason) for key, parked in self._objects.items()]

    def release(self, object_id: K) -> None:
        """The object was answered without retry."""
        self._objects.pop(object_id, None)

    def is_waiting(self, object_id: K | None) -> bool:
        """Whether events of the object must not be sent now."""
        parked = None if object_id is None else self._objects.get(object_id)
        return parked is not None and parked.waiting

    def end_waits(self, now: float) -> None:
        """End the waiting of the objects whose back-off has passed."""
        for parked in self._objects.values():
            if parked.until <= now:
                parked.waiting = False

    def due(self, object_id: K) -> float:
        """When events of the object may be sent; 0 if it is not parked."""
        parked = self._objects.get(object_id)
        return 0.0 if parked is None else parked.until

    def next_due(self) -> float | None:
        """When the next parked object is due; None if none is parked."""
        return min((parked.until for parked in self._objects.values()), default=None)


# --- sending ----------------------------------------------------------------------------------------------------------

Send = Callable[[int, Sequence[E]], Answer]
"""Sends the events of an envelope of this number, each of which has an operation. Raises ReceiverAway."""


class _Sent(NamedTuple, Generic[E]):
    """An envelope, those of its events that may be sent, and what came back: an answer or why there is none.

    ``is_whole``: each of these events has an operation, so that the document holds it.
    """

    envelope: int
    events: Sequence[E]
    is_whole: bool
    answer: Answer | ReceiverAway


def deliver(
    envelopes: Sequence[tuple[int, Sequence[E]]],
    send: Send[E],
    store: ProgressStore[E],
    stopping: Callable[[], bool],
    threads: Executor | None = None,
) -> Delivered:
    """Send envelopes, each a number and its events, and give what becomes of them to ``store``; return how that ended.

    Events of objects that wait are left out; they have perhaps not been built. ``stopping`` is asked before each
    envelope. ``threads``: where up to ``concurrency`` envelopes are sent at once; None = each follows the answer to the
    one before. Raises ReceiverAway as ``ProgressStore``.
    """
    result, reason = FlightResult.DONE, ""
    retry_after: float | None = None

    def halted() -> bool:
        return result is not FlightResult.DONE or stopping()

    if threads is None or len(envelopes) == 1:
        sent = _send_in_turn(envelopes, send, store.parking, halted)
    else:
        sent = _send_concurrently(envelopes, send, store, halted, threads)
    for envelope, events, is_whole, answer in _until_culprits_are_known(sent, send, store, halted):
        if isinstance(answer, ReceiverAway):
            if result is not FlightResult.FATAL:
                result, reason = FlightResult.AWAY, str(answer)
            continue
        judged = _judge(events, answer)
        settled, why = _settle(envelope, judged, answer, store, is_whole)
        if full := store.take(envelope, events, judged):
            settled, why = (FlightResult.RETRY, full) if settled is FlightResult.DONE else (settled, why)
        if settled is FlightResult.FATAL or result is FlightResult.DONE:
            result, reason, retry_after = settled, why, answer.retry_after
    if result is FlightResult.DONE and stopping():
        return Delivered(FlightResult.STOPPED, "told to stop")
    return Delivered(result, reason, retry_after)


def _send_in_turn(
    envelopes: Sequence[tuple[int, Sequence[E]]], send: Send[E], parking: Parking[Any], halted: Callable[[], bool]
) -> Iterator[_Sent[E]]:
    """Each envelope after the answer to the one before."""
    for number, events in envelopes:
        if halted():
            return
        sendable, written = _sendable(events, parking)
        yield _Sent(number, sendable, len(written) == len(sendable), _send(send, number, written))


def _send_concurrently(
    envelopes: Sequence[tuple[int, Sequence[E]]],
    send: Send[E],
    store: ProgressStore[E],
    halted: Callable[[], bool],
    threads: Executor,
) -> Iterator[_Sent[E]]:
    """Up to ``concurrency`` envelopes in the air, begun in order, never two that hold one object."""
    most = store.options.concurrency
    pending: _InAir[E] = {}
    for number, events in envelopes:
        objects = {event.object_id for event in events}
        while pending and (
            len(pending) >= most or any(event.object_id in objects for _, sent, _ in pending.values() for event in sent)
        ):
            yield from _completed(pending)
        if halted():
            break
        sendable, written = _sendable(events, store.parking)
        future = threads.submit(_send, send, number, written)
        pending[future] = number, sendable, len(written) == len(sendable)
    while pending:
        yield from _completed(pending)


_InAir = dict[Future[Answer | ReceiverAway], tuple[int, Sequence[E], bool]]


def _completed(pending: _InAir[E]) -> Iterator[_Sent[E]]:
    done, _ = wait(pending, return_when=FIRST_COMPLETED)
    for future in done:
        yield _Sent(*pending.pop(future), future.result())


def _until_culprits_are_known(
    sent: Iterable[_Sent[E]], send: Send[E], store: ProgressStore[E], halted: Callable[[], bool]
) -> Iterator[_Sent[E]]:
    """What came back. In place of an envelope that got an error without saying for which event, its halves, until an
    event that gets one is alone: one culprit among n events costs 2 log2 n further requests at most.

    A half goes under the number of its envelope when what was decided before is struck off, so that a crash repeats
    only the rest. The first half is decided before the second is sent: the events of an object keep their order.
    """
    for whole in sent:
        why = _refusal(whole)
        if why is None:
            yield whole
            continue
        where = {"flight": store.flight, "envelope": whole.envelope}
        _log.info("envelope %d is sent in halves: %s", whole.envelope, why, extra=where)
        halves = _halves(whole.events)
        while halves and not halted():
            events = halves.pop(0)
            written = [event for event in events if event.operation is not None]
            half = _Sent(whole.envelope, events, len(written) == len(events), _send(send, whole.envelope, written))
            if _refusal(half) is not None:
                halves[:0] = _halves(events)
                continue
            yield half
            if retried := _retried_objects(half):
                # They were in the envelope, and the receiver may have applied them before it refused it.
                behind = [(SUCCESS, event) for events in halves for event in events if event.object_id in retried]
                if behind:
                    store.take(whole.envelope, [event for _, event in behind], Judged([], (), behind))
                halves = [[event for event in events if event.object_id not in retried] for events in halves]
            if halves and not halted():
                try:
                    store.save()
                except ReceiverAway as lost:
                    yield _Sent(whole.envelope, (), True, lost)


def _refusal(sent: _Sent[E]) -> str | None:
    """Why an envelope of several events was refused without saying which; None if it was not."""
    answer = sent.answer
    if isinstance(answer, ReceiverAway) or not answer.culprit_unknown or answer.general is None:
        return None
    is_alone = sum([event.operation is not None for event in sent.events]) == 1
    return None if is_alone else answer.general.message


def _halves(events: Sequence[E]) -> list[Sequence[E]]:
    """Events in two parts, each of which holds half of those that have an operation."""
    places = [place for place, event in enumerate(events) if event.operation is not None]
    middle = places[len(places) // 2]
    return [events[:middle], events[middle:]]


def _retried_objects(sent: _Sent[E]) -> set[Hashable]:
    """The objects of events that got retry for themselves."""
    answer = sent.answer
    if isinstance(answer, ReceiverAway) or not answer.verdicts:
        return set()
    return {event.object_id for event in sent.events if answer.verdict(event.sent_id).level is Level.RETRY}


def _sendable(events: Sequence[E], parking: Parking[Any]) -> tuple[Sequence[E], Sequence[E]]:
    """The events of an envelope whose objects do not wait, and those of them that have an operation."""
    if parking:
        events = [event for event in events if not parking.is_waiting(event.object_id)]
    return events, [event for event in events if event.operation is not None]


def _send(send: Send[E], number: int, events: Sequence[E]) -> Answer | ReceiverAway:
    if not events:
        return Answer()
    try:
        answer = send(number, events)
    except ReceiverAway as away:
        return away
    if answer.unknown_ids:
        _log.warning(
            "the answer names event-ids that are not in the envelope: %s",
            ", ".join(map(ascii, answer.unknown_ids[:10])),
            extra={"envelope": number},
        )
    return answer


def send_heartbeat(sink: Sink, document: Document, counters: Counters) -> bool:
    """Send the heartbeat (spec/xds.md 7); whether it was received. It is never sent again.

    Raises FatalAnswer; any other answer, and none at all, does not count.
    """
    try:
        answer = sink.send(document)
        sink.flush()
    except ReceiverAway as away:
        _log.warning("heartbeat: %s", away, extra={"code": away.code})
        return False
    counters.heartbeats_sent += 1
    if answer.general is not None and answer.general.level is Level.FATAL:
        raise FatalAnswer(f"the receiver answered fatal to a heartbeat: {answer.general.message or 'no message'}")
    return True


# --- answers ----------------------------------------------------------------------------------------------------------


def _judge(events: Sequence[E], answer: Answer) -> Judged[E]:
    """What each event is to be marked with, or that it is sent again.

    An event behind a retry of its own object is sent again too, since it must not be answered for good before that
    one; the receiver may have applied it, so under a new event-id (7.4).
    """
    if not answer.verdicts and answer.general is None:  # a silent answer is one verdict for all
        return Judged([(SUCCESS, events)])
    answered: dict[Verdict, list[E]] = {}
    retried: list[E] = []
    behind: list[tuple[Verdict, E]] = []
    objects: set[Hashable] = set()
    for event in events:
        verdict = SUCCESS if event.operation is None else answer.verdict(event.sent_id)
        if verdict.level is Level.RETRY:
            objects.add(event.object_id)
            retried.append(event)
        elif event.object_id in objects and verdict.level is not Level.FATAL:
            behind.append((verdict, event))
        else:
            answered.setdefault(verdict, []).append(event)
    return Judged(list(answered.items()), retried, behind)


def _settle(
    envelope: int, judged: Judged[E], answer: Answer, store: ProgressStore[E], is_whole: bool
) -> tuple[FlightResult, str]:
    """Count the answers to one envelope, park the objects of what is to be sent again, and say whether to go on."""
    counters, options, parking = store.counters, store.options, store.parking
    result, reason = FlightResult.DONE, ""
    first: dict[Hashable, E] = {}  # of each object that got retry
    sent = len(judged.retried) + len(judged.behind)
    for verdict, events in judged.answered:
        written = len(events) if is_whole else sum([event.operation is not None for event in events])
        counters.count_answers(verdict.level, written)
        sent += written
        if parking:
            for event in events:
                parking.release(event.object_id)
        if verdict.level is Level.FATAL:
            result, reason = FlightResult.FATAL, verdict.message or "no message"
    for event in judged.retried:
        counters.count_answers(Level.RETRY, 1)
        first.setdefault(event.object_id, event)
    for verdict, _ in judged.behind:
        counters.count_answers(verdict.level, 1)
    counters.events_sent += sent
    counters.documents_sent += 1 if sent else 0
    if result is FlightResult.FATAL or not judged.retried:
        return result, reason
    if not options.park or (answer.general is not None and answer.general.level is Level.RETRY):
        sent_id = judged.retried[0].sent_id
        message = answer.verdict(sent_id).message
        return FlightResult.RETRY, f"event {sent_id} is to be sent again later{f' ({message})' if message else ''}"
    now = time.monotonic()
    for object_id, event in first.items():
        reason = answer.verdict(event.sent_id).message
        parking.park(object_id, now, reason or "")
        _log.info(
            "event %s got retry: its object is parked%s",
            event.sent_id,
            f" ({reason})" if reason else "",
            extra={"flight": store.flight, "envelope": envelope, "event_id": event.sent_id},
        )
    return result, reason


def as_flushed(answered: Answered[E], refused: Mapping[str, Verdict] | None, counters: Counters) -> Answered[E]:
    """What was answered, now that the sink is flushed. ``refused``: verdicts that came with it, in place of answers."""
    if not refused:
        return answered
    flushed: Answered[E] = []
    for verdict, events in answered:
        late = [event for event in events if event.sent_id in refused]
        for event in late:
            counters.count_answers(verdict.level, -1)
            counters.count_answers(refused[event.sent_id].level, 1)
            flushed.append((refused[event.sent_id], [event]))
        flushed.append((verdict, [event for event in events if event.sent_id not in refused] if late else events))
    return flushed
