"""Send documents, judge the answers, park objects whose events are sent again later
(spec/event-log.md 8.4), for logs and streams.

A ``DocumentSender`` sends the documents and records the answers: the in-flight entry of a log, or
the position of a stream.

This is a hot path: every event passes through ``_judge``. An answer without statuses, the most
frequent one, is one result for a whole list of events, and events are counted by the length of such
lists. So a single event is examined only if the answer has a result for it. The price: answers are
passed on as ``Answered``, pairs of a result and its events, and all code that reads them has two
loops.
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
from eventlog.publisher.context.context import Context, Counters, PublisherOptions
from eventlog.publisher.ledger.delivery import Tried, TriedKind
from eventlog.publisher.send.parking import Parking
from eventlog.publisher.send.suspects import Doubt, Suspects
from eventlog.publisher.sinks import Sink

_log = logging.getLogger("eventlog.publisher")


class DeliveryResult(Enum):
    DONE = "every event was answered, or is parked"
    RETRY = "the cycle stops: the receiver asked for a retry, or too many objects wait for one"
    UNAVAILABLE = "the cycle stops: the receiver is unavailable"
    FATAL = "the publisher stops: the receiver answered fatal"
    STOPPED = "the publisher was asked to stop"


class Delivered(NamedTuple):
    """How an attempt to send documents, or a whole cycle, has ended."""

    result: DeliveryResult
    reason: str = ""
    """The reason for a stop, for people."""
    retry_after: float | None = None
    """The seconds that the receiver asks the publisher to wait, None if it names none."""
    more: bool = False
    """True if there is more to do immediately."""
    in_short: str = ""
    """The reason without the receiver's words, empty if there is no such text."""
    is_suspicious: bool = False
    """True if the receiver counts as unavailable because of a failure that the document may have
    caused.
    """

    @classmethod
    def unavailable(cls, lost: ReceiverUnavailable) -> Delivered:
        """Return the end of an attempt for a receiver that is unavailable."""
        return cls(DeliveryResult.UNAVAILABLE, str(lost), in_short=lost.in_short)


class Sendable(Protocol):
    """An event that can be sent in a document."""

    @property
    def sent_id(self) -> str:
        """The event-id in the document."""
        ...

    @property
    def object_id(self) -> Hashable: ...


E = TypeVar("E", bound=Sendable)

NumberedEvents = tuple[int, Sequence[E]]
"""A number, and the events that are sent under it."""

Answered = list[tuple[EventResult, Sequence[E]]]
"""The events with a final answer, by their results."""


class Judged(NamedTuple, Generic[E]):
    """The meaning of an answer."""

    answered: Answered[E]
    retried: Sequence[E] = ()
    """The events that got retry."""
    behind: Sequence[tuple[EventResult, E]] = ()
    """The events that follow an event of the same object that got retry, with their results. They
    are sent again, too, under a new event-id.
    """
    given_up: Sequence[tuple[EventResult, E]] = ()
    """The events without an answer that are not sent again. The receiver may have applied them."""
    failed: Tried | None = None
    """The attempts at the document, if the receiver has failed for it and is available: it is
    isolated, or it is a part of such a document. None of its events is answered.
    """


class DocumentSender(Protocol[E]):
    """The sender of documents of events, which also records the answers.

    ``delivery_no`` is the number of the delivery of the documents, for log lines. Other threads
    call ``send``; all other members are used only by the delivering thread.
    """

    @property
    def options(self) -> PublisherOptions: ...

    @property
    def counters(self) -> Counters: ...

    @property
    def parking(self) -> Parking[Any]: ...

    @property
    def suspects(self) -> Suspects | None:
        """The documents that the receiver fails for; None = each failure means that it is
        unavailable.
        """
        ...

    @property
    def delivery_no(self) -> int: ...

    def tried(self, document_no: int) -> Tried | None:
        """Return the recorded attempts at a document that is a part of a document for which the
        receiver has failed; None for any other document.
        """
        ...

    def send(self, document_no: int, events: Sequence[E]) -> Answer:
        """Send the document of events under its number. Raises
        ReceiverUnavailable.
        """
        ...

    def cut(self, document_no: int, events: Sequence[E]) -> list[NumberedEvents[E]]:
        """Make the halves of a document that was refused separate documents, and return these
        (spec/event-log.md 8.4, *Cutting*).

        Raises ReceiverUnavailable if the halves must be saved first, and the sink has lost answers.
        """
        ...

    def settle(self, document_no: int, events: Sequence[E], judged: Judged[E]) -> str:
        """Settle the results of a document's events that were sent. Return the reason why sending
        must stop, empty = it may continue.

        Raises ReceiverUnavailable if answers must be saved and the sink has lost them.
        """
        ...

    def save(self) -> None:
        """Make the results so far durable. Raises ReceiverUnavailable if the sink has lost
        answers.
        """
        ...


class CycleEnd(NamedTuple):
    """The end of a cycle, once it is decided what happens to a suspect document."""

    cycle: Delivered
    freed: Sequence[Any] = ()
    """The objects that waited only until the end of the cycle."""
    failed: frozenset[str] = frozenset()
    """The event-ids of the document whose ``tried`` is recorded, empty = nothing is recorded."""
    tried: Tried = Tried()
    """The number of consecutive cycles without an answer."""
    is_cut: bool = False
    """True if the document is divided into halves, which have not failed yet."""


def end_cycle(
    cycle: Delivered, suspects: Suspects, parking: Parking[Any], isolate_after: int
) -> CycleEnd:
    """Return the result of a cycle. If no other document was answered, the receiver counts as
    unavailable; a document for which it keeps failing is finally divided into halves
    (spec/event-log.md 8.4, *Suspect documents*).
    """
    freed, suspected = suspects.end()
    if suspected and cycle.result is DeliveryResult.DONE:
        cycle = Delivered.unavailable(suspected[0].failure)._replace(is_suspicious=True)
    if not suspected or not cycle.is_suspicious:
        return CycleEnd(cycle, freed)
    to_cut = suspects.to_cut(suspected, isolate_after)
    answer = str(suspected[0].failure)
    tried = Tried(suspects.failure_streak, answer, kind=TriedKind.FAILURES)
    if to_cut:
        if any(event.sent_id in to_cut for one in suspected for event in one.events):
            cycle = cycle._replace(retry_after=0.0)
        else:
            # A receiver that is unavailable for long costs no more than a cut after each back-off.
            cycle = cycle._replace(is_suspicious=False)
        return CycleEnd(cycle, freed, to_cut, tried, is_cut=True)
    failed: frozenset[str] = frozenset()
    if to_cut is not None and tried.tries > 1 and parking.is_recorded(tried.tries):
        failed = frozenset(event.sent_id for event in suspected[0].events)
    return CycleEnd(cycle._replace(is_suspicious=to_cut is not None), freed, failed, tried)


# --- sending --------------------------------------------------------------------------------------


def send_delivery(
    context: Context,
    documents: Iterable[NumberedEvents[E]],
    document_count: int,
    sender: DocumentSender[E],
    stopping: Callable[[], bool],
) -> Delivered:
    """Send the ``document_count`` documents of a delivery, as many at a time as
    ``concurrency`` allows, and save the results. Return how the sending ended.
    """
    most = min(context.options.concurrency, document_count)
    with executor(most, "eventlog-send") if most > 1 else nullcontext() as threads:
        try:
            ended = deliver(documents, sender, stopping, threads)
            sender.save()
        except ReceiverUnavailable as lost:
            ended = Delivered.unavailable(lost)
    if ended.result is DeliveryResult.UNAVAILABLE:
        context.output.forget()
    return ended


def deliver(
    documents: Iterable[NumberedEvents[E]],
    sender: DocumentSender[E],
    stopping: Callable[[], bool],
    threads: Executor | None = None,
) -> Delivered:
    """Send documents, let ``sending`` settle the results, and return how the sending ended.

    Events of waiting objects are left out; they may not have been built. Each document is requested
    from the iterator at its turn, after a call of ``stopping``. With ``threads`` up to
    ``concurrency`` documents are sent at the same time; None = each one follows the answer to the
    previous one. Raises ReceiverUnavailable if the sink has lost answers: no result can be saved
    any more.
    """
    ended = Delivered(DeliveryResult.DONE)

    def halted() -> bool:
        return ended.result is not DeliveryResult.DONE or stopping()

    def settle(document_no: int, events: Sequence[E], answer: Answer | ReceiverUnavailable) -> None:
        nonlocal ended
        if isinstance(answer, ReceiverUnavailable):
            if _continues_after_failure(document_no, events, answer, sender):
                if why := sender.parking.too_many(sender.options.max_parked):
                    ended = Delivered(DeliveryResult.RETRY, why, in_short=why)
                return
            if ended.result is not DeliveryResult.FATAL:
                ended = ended._replace(
                    result=DeliveryResult.UNAVAILABLE,
                    reason=str(answer),
                    in_short=answer.in_short,
                    is_suspicious=_is_suspicious(answer, sender),
                )
            return
        judged = _judge(events, answer)
        if sender.suspects is not None and not _is_retry_of_all(answer):
            sender.suspects.answered(events)
        settled = settle_answer(document_no, judged, answer, sender)
        if (
            why := sender.settle(document_no, events, judged)
        ) and settled.result is DeliveryResult.DONE:
            settled = settled._replace(result=DeliveryResult.RETRY, reason=why, in_short=why)
        if settled.result is DeliveryResult.FATAL or ended.result is DeliveryResult.DONE:
            ended = settled

    with closing(_returned(documents, sender, halted, threads)) as returned:
        for document_no, events, answer in returned:
            _count_sent(sender.counters, answer)
            if (why := _refusal(events, answer)) is None:
                settle(document_no, events, answer)
                continue
            if sender.suspects is not None:
                sender.suspects.answered(events)
            where = {"delivery": sender.delivery_no, "document": document_no}
            _log.info("document %d is sent in halves: %s", document_no, why, extra=where)
            _send_halves(document_no, events, sender, settle, halted)
    if ended.result is DeliveryResult.DONE and stopping():
        return Delivered(DeliveryResult.STOPPED, "asked to stop")
    return ended


def _send_halves(
    document_no: int,
    events: Sequence[E],
    sender: DocumentSender[E],
    settle: Callable[[int, Sequence[E], Answer | ReceiverUnavailable], None],
    halted: Callable[[], bool],
) -> None:
    """Send the halves of a document that got an error which does not name its event, and so on
    until such an event is alone: one culprit among n events costs at most 2 log2 n further
    requests.

    A half is sent once the earlier results are in the entry, so that a crash repeats only the rest.
    The first half is settled before the second is sent: the events of an object keep their order,
    and those of an object that begins to wait are not sent with the other halves.
    """
    parts = sender.cut(document_no, events)
    while parts and not halted():
        number, part = parts.pop(0)
        part = _to_send_now(sender, number, part)
        if not part:
            continue
        answer = send_document(sender, number, part)
        _count_sent(sender.counters, answer)
        if _refusal(part, answer) is not None:
            parts[:0] = sender.cut(number, part)
            continue
        settle(number, part, answer)
        if parts and not halted():
            sender.save()


_Returned = tuple[int, Sequence[E], Answer | ReceiverUnavailable]
"""The number of a document, its events that were sent, and the result: an answer, or the error
without one.
"""


def _returned(
    documents: Iterable[NumberedEvents[E]],
    sender: DocumentSender[E],
    halted: Callable[[], bool],
    threads: Executor | None,
) -> Generator[_Returned[E]]:
    """Send the documents and yield each with its answer before sending the next. With ``threads``
    up to ``concurrency`` documents are sent at the same time; they are begun in order, and two
    documents with a common object never overlap.
    """
    most = sender.options.concurrency
    in_progress: dict[Future[Answer | ReceiverUnavailable], NumberedEvents[E]] = {}
    try:
        for number, events in documents:
            if in_progress:
                objects = {event.object_id for event in events}
                while (
                    len(in_progress) >= most
                    or any(
                        event.object_id in objects
                        for _, sent in in_progress.values()
                        for event in sent
                    )
                    or (in_progress and _is_probing(sender))
                ):
                    yield from _completed_sends(in_progress)
            if halted():
                break
            events = _to_send_now(sender, number, events)
            if not events:
                continue
            if threads is None:
                yield number, events, send_document(sender, number, events)
            else:
                in_progress[threads.submit(send_document, sender, number, events)] = number, events
        while in_progress:
            yield from _completed_sends(in_progress)
    finally:
        wait_for_all(in_progress)


def _is_probing(sender: DocumentSender[E]) -> bool:
    return sender.suspects is not None and sender.suspects.is_probing


def _to_send_now(sender: DocumentSender[E], number: int, events: Sequence[E]) -> Sequence[E]:
    """Return the events whose objects do not wait; none if the document itself must wait. Then
    ``put_off`` or ``chosen`` lets its objects wait, too; ``chosen`` also elects the one suspected
    document that is sent alone. No event of these objects is being sent, so an object that begins
    to wait here waits with all its events.
    """
    parking, suspects = sender.parking, sender.suspects
    if parking:
        events = [event for event in events if not parking.is_waiting(event.object_id)]
    if not events or suspects is None:
        return events
    tried = sender.tried(number) if sender.options.park else None
    if tried is not None and not suspects.may_try:
        suspects.put_off(events, tried.tries, tried.answer)
        return ()
    return events if suspects.chosen(events) else ()


def _completed_sends(
    in_progress: dict[Future[Answer | ReceiverUnavailable], NumberedEvents[E]],
) -> Iterator[_Returned[E]]:
    for future in first_done(in_progress):
        yield *in_progress.pop(future), future.result()


def send_document(
    sender: DocumentSender[E], number: int, events: Sequence[E]
) -> Answer | ReceiverUnavailable:
    begun = monotonic()
    try:
        answer = sender.send(number, events)
    except ReceiverUnavailable as failure:
        failure.seconds = monotonic() - begun
        return failure
    if answer.unknown_ids:
        _log.warning(
            "the answer names event-ids that are not in the document: %s",
            ", ".join(map(ascii, answer.unknown_ids[:10])),
            extra={"document": number},
        )
    return answer


def _count_sent(counters: Counters, answer: Answer | ReceiverUnavailable) -> None:
    """Count a document that got any answer. Only the delivering thread calls this."""
    if not isinstance(answer, ReceiverUnavailable) and answer.is_sent:
        counters.documents_sent += 1


def _refusal(events: Sequence[E], answer: Answer | ReceiverUnavailable) -> str | None:
    """Return the reason if a document of several events was refused without naming an event;
    otherwise None.

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


def send_heartbeat(sink: Sink, document: Document, counters: Counters) -> bool:
    """Send the heartbeat (spec/xds.md 7), and return True if it was received. It is never sent
    again.

    Raises FatalAnswer; any other answer, or none, has no effect.
    """
    try:
        answer = sink.send(document)
        sink.flush()
    except ReceiverUnavailable as failure:
        _log.warning("heartbeat: %s", failure, extra={"code": failure.code})
        return False
    counters.heartbeats_sent += 1
    if answer.general is not None and answer.general.level is Level.FATAL:
        raise FatalAnswer(
            f"the receiver answered fatal to a heartbeat: {answer.general.message or 'no message'}"
        )
    return True


# --- answers --------------------------------------------------------------------------------------


def why_refused(result: EventResult) -> str:
    """Return the receiver's answer if it finally refused events, otherwise the empty text."""
    if result.level not in (Level.ERROR, Level.FATAL):
        return ""
    return result.message or f"the receiver answered {result.level.name.lower()}"


def _judge(events: Sequence[E], answer: Answer) -> Judged[E]:
    """Decide for each event its result, or that it is sent again.

    An event after a retry of its object is sent again, too, since it must not get a final answer
    before the earlier event. The receiver may have applied it, so it gets a new event-id (7.4).
    """
    if (
        not answer.results and answer.general is None
    ):  # a silent answer is one result for all events
        return Judged([(SUCCESS, events)])
    answered: dict[EventResult, list[E]] = {}
    retried: list[E] = []
    behind: list[tuple[EventResult, E]] = []
    objects: set[Hashable] = set()
    for event in events:
        result = answer.result(event.sent_id)
        if result.level is Level.RETRY:
            objects.add(event.object_id)
            retried.append(event)
        elif event.object_id in objects and result.level is not Level.FATAL:
            behind.append((result, event))
        else:
            answered.setdefault(result, []).append(event)
    return Judged(list(answered.items()), retried, behind)


def settle_answer(
    document_no: int, judged: Judged[E], answer: Answer, sender: DocumentSender[E]
) -> Delivered:
    """Count the answers to one document, park the objects of events that got retry, and return how
    sending continues.
    """
    counters, parking = sender.counters, sender.parking
    ended = Delivered(DeliveryResult.DONE, "", answer.retry_after)
    for result, events in judged.answered:
        counters.count_answers(result.level, len(events))
        counters.events_sent += len(events)
        if parking:
            for event in events:
                parking.release(event.object_id)
        if result.level is Level.FATAL:
            ended = ended._replace(
                result=DeliveryResult.FATAL, reason=result.message or "no message"
            )
    counters.count_answers(Level.RETRY, len(judged.retried))
    counters.events_sent += len(judged.retried) + len(judged.behind)
    for result, _ in judged.behind:
        counters.count_answers(result.level, 1)
    if ended.result is DeliveryResult.FATAL or not judged.retried:
        return ended
    if sender.options.park and not _is_retry_of_all(answer):
        _park(document_no, judged.retried, answer, sender)
        return ended
    sent_id = judged.retried[0].sent_id
    message = answer.result(sent_id).message
    again = f"event {sent_id} must be sent again later"
    return ended._replace(
        result=DeliveryResult.RETRY,
        reason=f"{again} ({message})" if message else again,
        in_short=f"{again} ({answer.in_short})" if answer.in_short else again,
    )


def _continues_after_failure(
    document_no: int, events: Sequence[E], failure: ReceiverUnavailable, sender: DocumentSender[E]
) -> bool:
    """Return True if sending continues although the receiver has failed for these events: their
    objects wait, or the only event is given up. Return False if the receiver counts as unavailable.
    """
    suspects, options = sender.suspects, sender.options
    if suspects is None or not _is_suspicious(failure, sender):
        return False
    tried = sender.tried(document_no)
    if tried is None:
        doubt = suspects.failed(events, failure)
        if doubt is Doubt.ISOLATED:
            sender.settle(document_no, events, Judged([], failed=Tried(0, str(failure))))
        return doubt is not Doubt.UNAVAILABLE
    if why := suspects.tried(events, failure, options.max_attempts, tried.tries):
        _log.error("event %s: %s", events[0].sent_id, why, extra={"code": "receiver"})
        sender.parking.release(events[0].object_id)
        given_up = [(EventResult(Level.ERROR, why), event) for event in events]
        sender.settle(document_no, events, Judged([], given_up=given_up))
        return True
    tries = sender.parking[events[0].object_id].alone
    sender.settle(document_no, events, Judged([], failed=Tried(tries, str(failure))))
    return True


def _is_suspicious(failure: ReceiverUnavailable, sender: DocumentSender[E]) -> bool:
    return sender.suspects is not None and sender.options.park and failure.is_suspicious


def _is_retry_of_all(answer: Answer) -> bool:
    return answer.general is not None and answer.general.level is Level.RETRY


def _park(
    document_no: int, retried: Sequence[E], answer: Answer, sender: DocumentSender[E]
) -> None:
    """Park the objects of the events that got retry, each with the reason of its first event."""
    now = monotonic()
    first: dict[Hashable, E] = {}
    for event in retried:
        first.setdefault(event.object_id, event)
    for object_id, event in first.items():
        reason = answer.result(event.sent_id).message
        sender.parking.park(object_id, now, reason, event.sent_id)
        _log.info(
            "event %s got retry: its object is parked%s",
            event.sent_id,
            f" ({reason})" if reason else "",
            extra={
                "delivery": sender.delivery_no,
                "document": document_no,
                "event_id": event.sent_id,
            },
        )


def as_flushed(
    answered: Answered[E], refused: Mapping[str, EventResult] | None, counters: Counters
) -> Answered[E]:
    """Return the answers after a flush.

    ``refused`` has results of the flush that replace answers.
    """
    if not refused:
        return answered
    flushed: Answered[E] = []
    for result, events in answered:
        late = [event for event in events if event.sent_id in refused]
        for event in late:
            counters.count_answers(result.level, -1)
            counters.count_answers(refused[event.sent_id].level, 1)
            flushed.append((refused[event.sent_id], [event]))
        flushed.append(
            (
                result,
                [event for event in events if event.sent_id not in refused] if late else events,
            )
        )
    return flushed
