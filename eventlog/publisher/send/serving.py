"""Send what is in an outbox, for logs and followed sources (spec/event-log.md 8.4).

A ``Sender`` takes documents from the outbox until its feed must be asked for more. The ``Sender``
reports the answers; the outbox decides what they mean, and the feed builds, sends and saves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from typing import Final, Generic, Protocol

from eventlog.core.clock import chance, executor, first_done, monotonic, wait_for_all
from eventlog.errors import ReceiverUnavailable, number_of
from eventlog.model import Answer
from eventlog.publisher.context.context import Counters, PublisherOptions
from eventlog.publisher.context.observer import OutboxDocument, ParkedObject
from eventlog.publisher.feeds.queue import max_retries
from eventlog.publisher.send.outbox import Do, Outbox, Settled, Step
from eventlog.publisher.send.policy import Document, E, Judged, Kind, Rules, judge, refusal
from eventlog.publisher.send.sending import CycleRepeats, Delivered, DeliveryResult, log_places

_log = logging.getLogger("eventlog.publisher")


class Feed(Protocol[E]):
    """Where the documents of an outbox come from, and where their results go."""

    def prepare(self, document: Document[E]) -> Document[E] | None:
        """Return a document that is being sent, with what is needed to send it; None if the
        document has changed, so that it is not sent now.
        """
        ...

    def send(self, document: Document[E]) -> Answer:
        """Send a document. Other threads call this. Raises ReceiverUnavailable."""
        ...

    def save(self) -> None:
        """Let the sink confirm the answers, and write the results and what is left in one
        transaction. Raises ReceiverUnavailable if the sink has lost answers.
        """
        ...

    def settled(self, settled: Settled[E]) -> None:
        """Record what the outcome of a document has led to."""
        ...

    def is_saved(self) -> bool:
        """Return True if there is nothing to write."""
        ...

    def is_save_due(self) -> bool:
        """Return True if the results are saved before the feed is asked for more."""
        ...

    def lost(self) -> None:
        """Forget what a format has recorded since the last save: the receiver is unavailable."""
        ...


class Sender(Generic[E]):
    """The sending of documents of one feed."""

    def __init__(
        self,
        outbox: Outbox[E],
        feed: Feed[E],
        options: PublisherOptions,
        counters: Counters,
        halted: Callable[[], Delivered | None],
    ) -> None:
        """``halted`` returns how the sending ends if nothing else may be begun; None = the sending
        goes on.
        """
        self._outbox, self._feed, self._options = outbox, feed, options
        self._counters, self._halted = counters, halted
        self._in_air: dict[Future[Answer | ReceiverUnavailable], Document[E]] = {}
        self._threads: Executor | None = None  # while several documents are sent at once
        self._saved_at = monotonic()
        self._ended = Delivered(DeliveryResult.DONE)

    def serve(self, *, is_empty: bool = False) -> Delivered | None:
        """Send until the feed must be asked for more (None), or until nothing can be sent now.
        ``is_empty`` is true if the feed has just had nothing.
        """
        self._ended = Delivered(DeliveryResult.DONE)
        try:
            must_read = self._serve(is_empty)
        except ReceiverUnavailable as lost:
            self._outbox.put_back()
            self._outbox.pause(monotonic())
            self._ended, must_read = Delivered.unavailable(lost), False
        except CycleRepeats:
            self._settle_in_air()
            raise
        finally:
            if self._threads is not None:
                self._lose_in_air()
                self._threads.shutdown()
                self._threads = None
        ended = self._ended
        if ended.result is DeliveryResult.UNAVAILABLE:
            self._feed.lost()
        if ended.result is not DeliveryResult.DONE or must_read:
            return None if must_read else ended
        if (halted := self._halted()) is not None:
            return halted
        if self._outbox.is_full:
            full = f"more than {number_of(self._options.max_parked, 'object')} parked"
            self._outbox.pause(monotonic())
            return Delivered(DeliveryResult.RETRY, full, in_short=full)
        return ended

    def _serve(self, is_empty: bool) -> bool:
        """Send as ``serve`` does. Return True if the feed must be asked for more."""
        while True:
            is_halted = self._ended.result is not DeliveryResult.DONE or self._halted() is not None
            step = (
                Step[E](Do.WAIT) if is_halted else self._outbox.next(monotonic(), is_empty=is_empty)
            )
            match step.do:
                case Do.SEND:
                    self._begin(step)
                case Do.SAVE:
                    self._save()
                case Do.DOUBT:
                    if self._outbox.end_round(monotonic()):
                        self._save()
                    self._pause(self._outbox.failure)
                case Do.READ if not self._in_air:
                    if self._feed.is_save_due():
                        self._save()
                    return True
                case _ if self._in_air:
                    for future in first_done(self._in_air):
                        self.settle(self._in_air.pop(future), future.result())
                case _:
                    self._save()
                    return False

    def _save(self) -> None:
        if not self._feed.is_saved():
            self._feed.save()
        self._saved_at = monotonic()

    def _begin(self, step: Step[E]) -> None:
        """Send a document; in another thread once there were several documents."""
        if self._threads is None and self._options.concurrency > 1 and self._outbox.count > 1:
            self._threads = executor(self._options.concurrency, "eventlog-send")
        document = self._outbox.begin(step)
        ready = None if document is None else self._feed.prepare(document)
        if ready is None:
            return
        if self._threads is None:
            self.settle(ready, send_document(self._feed, ready))
        else:
            self._in_air[self._threads.submit(send_document, self._feed, ready)] = ready

    def _settle_in_air(self) -> None:
        """Wait for the documents that are being sent, and save what the receiver has answered: an
        event that it may have applied must come again under a new event-id (spec/event-log.md 7.4).
        """
        wait_for_all(self._in_air)
        with suppress(ReceiverUnavailable):
            for future in list(self._in_air):
                document = self._in_air.pop(future)
                if future.exception() is None:
                    self.settle(document, future.result())
            self._save()

    def _lose_in_air(self) -> None:
        """Wait for the documents that are being sent. Their answers are counted, but have no
        effect.
        """
        wait_for_all(self._in_air)
        for future, document in self._in_air.items():
            outcome = None if future.exception() else future.result()
            if isinstance(outcome, Answer):
                self._counters.documents_sent += outcome.is_sent
                if refusal(document.events, outcome) is None:
                    self._count(judge(document.events, outcome))
        self._in_air.clear()

    # --- what came back ---

    def settle(self, document: Document[E], outcome: Answer | ReceiverUnavailable) -> None:
        """Let the outbox decide what an outcome means, report the outcome, and save if a save is
        due.
        """
        settled = self._outbox.settle(document, outcome, monotonic())
        if isinstance(outcome, ReceiverUnavailable):
            self._note_failure(document, settled, outcome)
        else:
            self._note_answer(document, settled, outcome)
        self._feed.settled(settled)
        is_due = monotonic() - self._saved_at >= self._options.mark_interval
        if settled.is_urgent or is_due:
            self._save()

    def _note_failure(
        self, document: Document[E], settled: Settled[E], failure: ReceiverUnavailable
    ) -> None:
        first = document.events[0].sent_id
        if settled.judged is not None:
            self._count(settled.judged)
            self._note_taken(document, settled.judged)
        if settled.is_isolated:
            _log.warning(
                "the receiver fails again for the document of %s from event %s on, and has "
                "answered another document. The objects of the failing document are parked, and "
                "its halves are sent separately (%s)",
                number_of(len(document.events), "event"),
                first,
                failure,
                extra={"event_id": first, "code": "suspect_parked"},
            )
        if settled.given_up:
            _log.error("event %s: %s", first, settled.given_up, extra={"code": "receiver"})
        if settled.is_pause:
            self._pause(failure)

    def _pause(self, failure: ReceiverUnavailable) -> None:
        """Record that the receiver counts as unavailable, unless it has answered fatal."""
        if self._ended.result is not DeliveryResult.FATAL:
            decides = failure.is_suspicious and self._options.park and self._outbox.may_decide
            self._ended = Delivered.unavailable(failure)._replace(is_suspicious=decides)

    def _note_answer(self, document: Document[E], settled: Settled[E], answer: Answer) -> None:
        if answer.is_sent:
            self._counters.documents_sent += 1
        where = {"delivery": document.place[0], "document": document.number}
        if answer.unknown_ids:
            _log.warning(
                "the answer names event-ids that are not in the document: %s",
                ", ".join(map(ascii, answer.unknown_ids[:10])),
                extra=where,
            )
        attempts = document.attempts
        if settled.refused and (attempts is None or attempts.kind is not Kind.HALF):
            why = settled.refused
            _log.info("document %d is sent in halves: %s", document.number, why, extra=where)
        if settled.judged is not None:
            self._count(settled.judged)
            self._note_judged(document, settled, answer, where)

    def _count(self, judged: Judged[E]) -> None:
        for result, events in judged.answered:
            self._counters.count_answers(result.level, len(events))
            self._counters.events_sent += len(events)
        for result, _ in judged.unsettled:
            self._counters.count_answers(result.level, 1)
        self._counters.events_sent += len(judged.unsettled)

    def _note_taken(self, document: Document[E], judged: Judged[E]) -> None:
        """Log how many events of a document were taken, and what waits where."""
        taken = len(document.events) - len(judged.again)
        if judged.place:
            log_places((one for one, _ in judged.retried), taken, is_news=not document.retries)
        else:
            _log.info("the receiver answered %s before it failed", number_of(taken, "event"))

    def _note_judged(
        self, document: Document[E], settled: Settled[E], answer: Answer, where: dict[str, int]
    ) -> None:
        judged = settled.judged
        assert judged is not None
        if judged.fatal is not None:
            self._ended = Delivered(DeliveryResult.FATAL, judged.fatal)
            return
        retried = judged.retried
        if settled.is_pause and self._ended.result is DeliveryResult.DONE:
            result, event = retried[0]
            again = f"event {event.sent_id} must be sent again later"
            self._ended = Delivered(
                DeliveryResult.RETRY,
                f"{again} ({result.message})" if result.message else again,
                in_short=f"{again} ({answer.in_short})" if answer.in_short else again,
            )
        if judged.place:
            self._feed.lost()  # a description of a class that the place did not take
            self._note_taken(document, judged)
        if settled.is_pause or judged.place:
            return
        known: set[object] = set()
        for result, event in retried:
            if known.isdisjoint(event.queues):
                _log.info(
                    "event %s got retry: its object is parked%s",
                    event.sent_id,
                    f" ({result.message})" if result.message else "",
                    extra={**where, "event_id": event.sent_id},
                )
            known.update(event.queues)


def send_document(feed: Feed[E], document: Document[E]) -> Answer | ReceiverUnavailable:
    """Send a document, and return the answer, or the error if there is no answer."""
    begun = monotonic()
    try:
        return feed.send(document)
    except ReceiverUnavailable as failure:
        failure.seconds = monotonic() - begun
        return failure


_MOST_SHOWN: Final = 10_000


def outbox_documents(outbox: Outbox[E]) -> list[OutboxDocument]:
    """Return the first documents of an outbox for an observer, with some 10,000 events at most."""
    shown: list[OutboxDocument] = []
    events = 0
    for document, why, due in outbox.standing():
        event_ids = [event.sent_id for event in document.events]
        tries, answer = 0, ""
        if (attempts := document.attempts) is not None:
            tries, answer = max(attempts.tries, attempts.run), attempts.answer
        which = (document.place[0], document.number, event_ids)
        shown.append(OutboxDocument(*which, why, due, tries, answer))
        events += len(event_ids)
        if events >= _MOST_SHOWN:
            break
    return shown


def parked_objects(
    outbox: Outbox[E], name_of: Callable[[E], tuple[str, str] | None]
) -> list[ParkedObject]:
    """Return the objects that wait for an attempt which is due later, or for the answer to another
    document, each with its first event. ``name_of`` returns the class and the key of an event's
    object for people, None = its object is not known yet.
    """
    found: dict[tuple[str, str], ParkedObject] = {}
    for document in outbox.parked():
        tried = document.attempts
        assert tried is not None
        due, tries, answer = tried.due, max(1, tried.tries, tried.run), tried.answer
        for event in document.events:
            if (name := name_of(event)) is not None and name not in found:
                found[name] = ParkedObject(*name, due, tries, answer, event.sent_id)
    return list(found.values())


def rules_of(options: PublisherOptions) -> Rules:
    """Return the options of the policy."""
    return Rules(
        options.concurrency,
        options.park,
        options.max_parked,
        options.isolate_after,
        options.max_attempts,
        options.retry_initial,
        options.retry_max,
        max_retries(options),
        chance,
    )
