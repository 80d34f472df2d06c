"""The outbox: the only state between reading a feed and marking its events.

The outbox consists of documents in the order of the feed. An event may be sent if no earlier event
of its objects is in another document. Three things follow from this rule. The events of an object
are sent in order. An object waits as long as its first event. Two documents with events of the same
object are never being sent at the same time. A document has no number until it is recorded, and
only a document with a number is sent.

``next`` selects a document, ``begin`` takes it, ``settle`` applies the policy to its outcome. The
feed writes what ``take_marks`` and ``record`` return in one transaction.

The rule uses an index of the first document of each object. The index exists only while a document
waits or has failed, so a feed without trouble pays nothing for it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import chain
from math import inf
from operator import attrgetter
from typing import Any, Final, Generic, NamedTuple

from eventlog.errors import ReceiverUnavailable
from eventlog.model import SUCCESS, Answer, EventResult, Level
from eventlog.publisher.send import policy
from eventlog.publisher.send.policy import (
    EVERY,
    LOST,
    Attempts,
    Document,
    E,
    Judged,
    Kind,
    Rules,
)

_QUIET: Final = 0.25
"""The share of the time of a failed attempt after which, if no other document was answered in it,
documents that have failed are sent again.
"""
Place = tuple[int, ...]
_events = attrgetter("events")


class Do(Enum):
    """What the sender does next."""

    SEND = "send a document"
    SAVE = "save: the next document has no number yet, since it is not recorded"
    READ = "ask the feed for more"
    WAIT = "wait: for an answer, or until a time"
    DOUBT = "nothing else can be sent: the receiver counts as unavailable"


class Step(NamedTuple, Generic[E]):
    """What the sender does next, and with which document. ``until`` is the time when a document
    will be due, None = only an answer or new events change anything.
    """

    do: Do
    document: Document[E] | None = None
    until: float | None = None


class Mark(NamedTuple, Generic[E]):
    """Events of one document that need nothing more, and their result."""

    result: EventResult
    events: Sequence[E]
    document: Document[E]
    """The document as it was sent, for the case that its answer is lost."""


class Settled(NamedTuple, Generic[E]):
    """What the outcome of a document has led to, for log lines and counters."""

    judged: Judged[E] | None = None
    refused: str = ""
    """Why the receiver refused the document, if the document is sent in halves for this reason."""
    given_up: str = ""
    """Why the only event of the document is given up, empty if it is not."""
    is_isolated: bool = False
    """True if the objects of the document are parked: the receiver fails for the document, and
    answers other documents.
    """
    is_pause: bool = False
    """True if everything pauses because of the outcome."""
    is_urgent: bool = False
    """True if nothing may be sent before the results are written."""


class Standing(NamedTuple, Generic[E]):
    """A document that is not settled, and what it waits for, for people."""

    document: Document[E]
    why: str
    due: float | None = None
    """The time of the next attempt by the monotonic clock, None = it waits for no time."""


class Outbox(Generic[E]):
    """The documents of a feed that are not settled, and what is known about the receiver.

    ``is_recorded`` is true if a document gets its number when it is recorded (a log); otherwise the
    feed numbers what it sends, and event-ids come from the source. ``keeps_fatal`` is true if an
    event that got *fatal* stays, since the feed cannot queue it again. ``at_rest`` returns an event
    without its values, for an event that is sent again later.
    """

    def __init__(
        self,
        rules: Rules,
        *,
        is_recorded: bool = True,
        keeps_fatal: bool = False,
        at_rest: Callable[[E], E] = lambda event: event,
    ) -> None:
        self.rules = rules
        self.answers = 0
        """How many documents were answered."""
        self.in_doubt = False
        """True if the receiver has failed for a document and has answered no document since."""
        self.rounds = 0
        """How many successive pauses followed a failure, without an answer between them."""
        self.stops = 0
        """How many successive pauses there were, for any reason."""
        self.failure = ReceiverUnavailable("")
        """The last failure that a document may have caused."""
        self.may_decide = True
        """True if further attempts may show for which document the receiver fails. False after
        ``isolate_after`` pauses without an answer, once the first halves have failed too.
        """
        self.resume_at = 0.0
        """The end of the present pause of everything."""
        self.rests_until = 0.0
        """Documents that have failed wait until this time: for as long as the failure took, other
        documents are sent. It is earlier if there are no others (``_QUIET``).
        """
        self.size = 0
        """The number of events."""
        self._is_recorded, self._keeps_fatal, self._at_rest = is_recorded, keeps_fatal, at_rest
        self._batches: dict[int, dict[Place, Document[E]]] = {}
        self._last_numbers: dict[int, int] = {}
        self._in_air: dict[Place, Document[E]] = {}
        self._objects: dict[Place, frozenset[Hashable]] = {}  # of documents in the air, or next
        # The documents that were sent since the last rest, and how many events were sent again.
        self._had_turn: set[Place] = set()
        self._again = 0
        # The documents that may have been sent, also before a restart.
        self._sent: set[Place] = set()
        self._shared_until = 0.0  # the latest possible ``rests_until``
        self._failed_in_a_row = 0  # the documents that failed since the last pause or answer
        self._has_tried = False  # a further attempt has just failed: another document has its turn
        self._marks: list[Mark[E]] = []
        self._changed: set[int] = set()
        self._special = 0  # the number of documents with attempts
        # The documents of each object in order, None while there are no attempts; the documents
        # that are first for an object, in order, and for how many.
        self._queues: dict[Hashable, list[Place]] | None = None
        self._heads: list[Place] = []
        self._head_counts: dict[Place, int] = {}

    # --- what it has ------------------------------------------------------------------------------

    def documents(self) -> Iterator[Document[E]]:
        """Yield the documents in order."""
        return chain.from_iterable(map(dict.values, self._batches.values()))

    def events(self) -> Iterator[E]:
        """Yield the events without a result, in order."""
        return chain.from_iterable(map(_events, self.documents()))

    @property
    def in_air(self) -> int:
        """How many documents are being sent."""
        return len(self._in_air)

    @property
    def count(self) -> int:
        """The number of documents."""
        return sum(map(len, self._batches.values()))

    @property
    def is_saved(self) -> bool:
        """True if there is nothing to write."""
        return not self._marks and not self._changed

    def parked(self) -> Iterator[Document[E]]:
        """Yield the documents that wait for an attempt that is due later, including documents that
        failed before the last answer.
        """
        return (
            one
            for one in (() if self._queues is None else self.documents())
            if one.place not in self._in_air
            and policy.is_waiting(one)
            and one.attempts is not None
            and one.attempts.kind is not Kind.WITHHELD
            and not policy.is_of_doubt(one, self.answers)
        )

    def standing(self) -> Iterator[Standing[E]]:
        """Yield the documents in order, each with what it waits for."""
        for document in self.documents():
            attempts, due = document.attempts, policy.due_of(document, self.rests_until)
            if document.place in self._in_air:
                yield Standing(document, "it is being sent")
            elif attempts is not None and policy.is_waiting(document):
                why = f"it is sent again later: {attempts.kind.value}"
                yield Standing(document, why, None if due == inf else due)
            elif self._follows(document):
                yield Standing(document, "it follows an event of its object that is not answered")
            elif self.in_doubt:
                yield Standing(document, "the receiver answers no document", self.resume_at)
            else:
                yield Standing(document, "it is sent at its turn")

    def _follows(self, document: Document[E]) -> bool:
        """Return True if an event of a document follows an event in another document."""
        if self._queues is None:
            return False
        return any(any(self._before(document.place, event)) for event in document.events)

    def next_due(self, now: float) -> float | None:
        """Return the time when a document can be sent although the feed has nothing; None if only
        new events change anything.
        """
        step = self.next(now, is_empty=True)
        return step.until if step.do is Do.WAIT else now

    def untried_due(self) -> float | None:
        """Return the time when the next untried document is due; None if there is none. A document
        is untried if the receiver failed for it, its events have not been tried alone, and no
        waiting document holds all of them up.
        """
        return min(
            (
                policy.due_of(one, self.rests_until)
                for one in self.parked()
                if policy.is_tried(one) and one.attempts is not None and not one.attempts.tries
                if self._sendable(one) is not None
            ),
            default=None,
        )

    def batch(self, number: int) -> Iterator[Document[E]]:
        """Yield the documents of a batch."""
        return iter(self._batches.get(number, {}).values())

    @property
    def batches(self) -> Collection[int]:
        """The numbers of the batches with documents, ascending."""
        return self._batches.keys()

    @property
    def has_waiting(self) -> bool:
        """True if documents have attempts, so that objects may wait."""
        return self._queues is not None

    def __contains__(self, one: object) -> bool:
        """Return True if events of an object wait, so that its later events stay in the feed. Use
        the result only when the feed is asked for more.
        """
        return self._queues is not None and (one in self._queues or EVERY in self._queues)

    # --- what is next -----------------------------------------------------------------------------

    def next(self, now: float, *, is_empty: bool = False) -> Step[E]:
        """Return what to do next. ``is_empty`` is true if the feed has just had nothing."""
        step = self._chosen(now, is_empty)
        if step.document is not None and self._is_recorded and not step.document.number:
            return Step(Do.SAVE)
        return step

    def _chosen(self, now: float, is_empty: bool) -> Step[E]:
        if self._in_air and (self.in_doubt or len(self._in_air) >= self.rules.concurrency):
            return Step(Do.WAIT)  # one document is in the air while the last result was a failure
        if now < self.resume_at:
            return Step(Do.WAIT, until=self.resume_at)
        if self._queues is None:
            return self._next_of_plain(is_empty)
        # While nothing else decides, no other document needs the time that the last failure took.
        rests_until = 0.0 if self.in_doubt else self.rests_until
        found = _Found[E]()
        for place in self._heads:
            document = self._document(place)
            is_tried = policy.is_tried(document)
            is_doubtful = is_tried and policy.is_of_doubt(document, self.answers)
            due = 0.0 if is_doubtful else policy.due_of(document, rests_until)
            is_over = place in self._had_turn or self._again >= self.rules.most_again
            if due > now or (is_over and policy.is_waiting(document) and not self.in_doubt):
                found.later.append(max(due, now))
            elif is_tried:
                (found.doubtful if is_doubtful else found.tried).append(document)
            else:
                (found.parked if policy.is_waiting(document) else found.fresh).append(document)
        return self._preferred(found, is_empty) or Step(
            Do.WAIT, until=min(found.later, default=None)
        )

    def _next_of_plain(self, is_empty: bool) -> Step[E]:
        """Return the next step while nothing waits: the documents are begun in order."""
        for batch in self._batches.values():
            for place, document in batch.items():
                if place in self._in_air:
                    continue
                if self._in_air and self._overlaps(document):
                    return Step(Do.WAIT)
                return Step(Do.SEND, document)
        return Step(Do.WAIT if self._in_air or is_empty else Do.READ)

    def _overlaps(self, document: Document[E]) -> bool:
        """Return True if an event of an object of this document is in the air."""
        objects = self._objects_of(document)
        in_air = map(self._objects_of, self._in_air.values())
        return any(policy.overlap(objects, others) for others in in_air)

    def _objects_of(self, document: Document[E]) -> frozenset[Hashable]:
        """Return the objects of a document. The objects are determined once: a document with other
        events has another place.
        """
        if (known := self._objects.get(document.place)) is None:
            known = self._objects[document.place] = document.objects
        return known

    def _preferred(self, found: _Found[E], is_empty: bool) -> Step[E] | None:
        """Select one of the documents that may be sent now; None = none of them.

        After a further attempt that failed again, other documents and the feed have their turn. In
        doubt, documents for which the receiver has not failed come first: parked documents that are
        due, then recorded documents, then new documents from the feed.
        """
        is_trying = any(map(policy.is_tried, self._in_air.values()))
        others_in_air = len(self._in_air) - is_trying
        may_read = not is_empty and not others_in_air and not self.is_full
        tried = [] if is_trying else sorted(found.tried, key=_least_tried)
        parked = sorted(found.parked, key=_longest_due)
        first = () if self._has_tried else (*(() if self.in_doubt else tried), *parked)
        if (document := self._first(chain(first, found.fresh))) is not None:
            return Step(Do.SEND, document)
        if may_read:
            return Step(Do.READ)
        last = parked if self.in_doubt else chain(parked, tried)
        if (document := self._first(last)) is not None:
            return Step(Do.SEND, document)
        if not self.in_doubt:
            return None
        if self._failed_in_a_row:
            return Step(Do.DOUBT)
        # The document with the fewest failures since the last answer.
        doubtful = sorted(chain(found.doubtful, tried), key=self._failures)
        document = self._first(doubtful)
        return None if document is None else Step(Do.SEND, document)

    def _first(self, documents: Iterable[Document[E]]) -> Document[E] | None:
        """Return the first of these documents that is free, with its events as in ``free``."""
        found = (self._sendable(one) for one in documents)
        return next((one for one in found if one is not None), None)

    def _failures(self, document: Document[E]) -> int:
        return 0 if document.attempts is None else document.attempts.failures(self.answers)

    @property
    def is_full(self) -> bool:
        """True if more objects are parked than allowed. A document that follows another document of
        the same object does not count.
        """
        if self.size <= self.rules.max_parked:
            return False
        found = (self._document(place) for place in self._heads)
        return sum(policy.parked_count(one, self.answers) for one in found) > self.rules.max_parked

    def free(self) -> Iterator[Document[E]]:
        """Yield the documents that no other document holds up; they may still have to wait for
        their own back-off. Each document is yielded with only those of its events that follow no
        unsettled event in another document. Only documents with attempts hold up other documents
        for long: if no document has attempts, nothing is yielded.

        A document is left out if it follows a document that is being sent or about to be sent: it
        can be sent whole soon.
        """
        found = (self._sendable(self._document(place)) for place in self._heads)
        return (one for one in found if one is not None)

    def _sendable(self, document: Document[E]) -> Document[E] | None:
        """Return a document with those of its events that may be sent now, as in ``free``; None if
        there are none.
        """
        if document.place in self._in_air:
            return None
        blocked = [self._blocked(document, event) for event in document.events]
        if any(one.is_active for one in blocked) or all(one.is_waiting for one in blocked):
            return None
        if not any(one.is_waiting for one in blocked):
            return document
        pairs = zip(document.events, blocked, strict=True)
        return document._replace(events=[event for event, by in pairs if not by.is_waiting])

    def waiting(self, batch: int | None = None) -> Iterator[E]:
        """Yield the events that wait for an attempt that is due later, and the events that follow
        them; only those of a batch, if it is given.
        """
        if self._queues is None:
            return
        for document in self.documents() if batch is None else self.batch(batch):
            if document.place not in self._in_air:
                is_waiting = policy.is_waiting(document)
                for event in document.events:
                    if is_waiting or self._blocked(document, event).is_waiting:
                        yield event

    def _blocked(self, document: Document[E], event: E) -> _Blocked:
        """Return what holds up an event of a document. An event that follows a waiting event waits
        too, with all its objects.
        """
        is_waiting = is_active = False
        for one in self._before(document.place, event):
            earlier = self._document(one.place)
            if one.place in self._in_air:
                is_active = True
            elif policy.is_waiting(earlier) or self._follows_waiting(earlier, one.objects):
                is_waiting = True
            else:
                is_active = True
        return _Blocked(is_waiting, is_active)

    def _follows_waiting(self, document: Document[E], objects: frozenset[Hashable]) -> bool:
        return any(
            self._blocked(document, event).is_waiting
            for event in document.events
            if not objects or not objects.isdisjoint(event.queues)
        )

    def _before(self, place: Place, event: E) -> Iterator[_Before]:
        """Yield the other documents that an event follows: the first document of each object of the
        event.
        """
        assert self._queues is not None
        if EVERY in event.queues:
            for one in self.documents():
                if one.place >= place:
                    return
                yield _Before(one.place, frozenset())
            return
        if EVERY in self._queues and (first := self._queues[EVERY][0]) < place:
            yield _Before(first, frozenset())
        for name in event.queues:
            if (first := self._queues[name][0]) != place:
                yield _Before(first, frozenset((name,)))
            # Only a document that waits for a place is in the queue of its classes.
            of_class = self._queues.get(policy.class_of(name), ())
            if of_class and of_class[0] < place:
                yield _Before(of_class[0], frozenset())

    # --- what changes it --------------------------------------------------------------------------

    def add(self, documents: Iterable[Document[E]]) -> None:
        """Add documents, which are sent after all earlier documents of the same objects."""
        for document in documents:
            batch = document.place[0]
            self._batches.setdefault(batch, {})[document.place] = document
            self._last_numbers[batch] = max(self._last_numbers.get(batch, 0), document.number)
            self._enter(document)
            self._count_special(_special([document]))

    def restore(self, batch: int, documents: Iterable[Document[E]], last_number: int) -> None:
        """Add the recorded documents of a batch, which may have been sent before a restart.
        ``last_number`` is the highest number that a document of the batch has had.

        A document whose number is not above those of the documents before it gets another one
        before it is sent.
        """
        self._last_numbers[batch] = last_number
        least = 1
        for document in documents:
            if document.number < least:
                document = document._replace(number=0)
                self._changed.add(batch)
            least = max(least, document.number)
            self.add([document])
            self._sent.add(document.place)

    def rebuilt(
        self,
        document: Document[E],
        events: Sequence[E],
        idle: Sequence[E] = (),
        withheld: Sequence[E] = (),
    ) -> Document[E] | None:
        """Replace the events of a document that is being sent by the same events with their values.
        Return the document if nothing else has changed. Otherwise the document gets a new place and
        is not sent now.

        The ``idle`` events are settled, since their rows have lost their effect and need no answer.
        The ``withheld`` events wait for as long as the outbox lives, because their classes are
        unavailable: they become a separate document.
        """
        if idle:
            self._marks.append(Mark(SUCCESS, idle, document))
        if [one.sent_id for one in events] == [one.sent_id for one in document.events]:
            document = document._replace(events=events)
            self._batches[document.place[0]][document.place] = document
            self._in_air[document.place] = document
            return document
        del self._in_air[document.place]
        if policy.is_waiting(document):
            self._again -= len(document.events)
        waits = Attempts(Kind.WITHHELD, due=inf)
        self._replace(
            document,
            [document._replace(events=events), document._replace(events=withheld, attempts=waits)],
        )
        self._end_doubt_without_cause()
        return None

    def _end_doubt_without_cause(self) -> None:
        if self.in_doubt and not self._has_doubtful:
            self.in_doubt, self.rounds = False, 0

    @property
    def _has_doubtful(self) -> bool:
        return any(policy.is_of_doubt(one, self.answers) for one in self.documents())

    def begin(self, step: Step[E]) -> Document[E] | None:
        """Take a document to send it. If some of its events wait, divide the document instead, so
        that the same number never stands for different events; then return None.
        """
        chosen = step.document
        assert chosen is not None
        whole = self._document(chosen.place)
        if len(chosen.events) == len(whole.events):
            self._in_air[whole.place] = whole
            if policy.is_waiting(whole):
                self._again += len(whole.events)
            return whole
        names = {event.sent_id for event in chosen.events}
        rest = [event for event in whole.events if event.sent_id not in names]
        self._replace(whole, [chosen, whole._replace(events=rest)])
        return None

    def settle(
        self, document: Document[E], outcome: Answer | ReceiverUnavailable, now: float
    ) -> Settled[E]:
        """Apply the outcome of sending a document."""
        del self._in_air[document.place]
        self._sent.add(document.place)
        self._has_tried = False
        if now < self._shared_until and not policy.is_tried(document):
            self.rests_until = min(self._shared_until, now + self.failure.seconds * _QUIET)
        if isinstance(outcome, ReceiverUnavailable):
            if outcome.is_suspicious and self.rules.park:
                return self._failed(document, outcome, now)
            self.pause(now)
            return self._answered_in_part(document, outcome)
        if policy.is_retry_of_all(outcome):
            judged = policy.judge(document.events, outcome)
            if not judged.answered:
                self.pause(now, outcome.retry_after)
                return Settled(judged, is_pause=True)
        self.answers += 1
        self.rounds = self._failed_in_a_row = 0
        self.in_doubt = False
        if (why := policy.refusal(document.events, outcome)) is not None:
            self.stops = 0
            parts = policy.halves(document, Attempts(Kind.HALF))
            self._replace(document, parts)
            return Settled(refused=why, is_urgent=_renames(document, parts))
        return self._answered(document, outcome, now)

    def _answered_in_part(self, document: Document[E], failure: ReceiverUnavailable) -> Settled[E]:
        """Apply the results of the events that the receiver had answered before it failed."""
        if not failure.answered:
            return Settled(is_pause=True)
        answer = policy.partial_answer(document.events, failure.answered)
        judged = policy.judge(document.events, answer)
        self._marks += [Mark(result, events, document) for result, events in judged.answered]
        rest = list(map(self._at_rest, judged.again))
        self._replace(document, [document._replace(events=rest)])
        return Settled(judged, is_pause=True, is_urgent=True)

    def _answered(self, document: Document[E], answer: Answer, now: float) -> Settled[E]:
        judged = policy.judge(document.events, answer)
        again, is_fatal = judged.again, judged.fatal is not None
        if is_fatal and self._keeps_fatal:
            kept = {event.sent_id for _, event in judged.unsettled}
            fatal = [
                one for result, own in judged.answered if result.level is Level.FATAL for one in own
            ]
            kept.update(event.sent_id for event in fatal)
            again = [event for event in document.events if event.sent_id in kept]
        for result, events in judged.answered:
            if not (self._keeps_fatal and result.level is Level.FATAL):
                self._marks.append(Mark(result, events, document))
        # A half is settled before anything else is sent, so that a crash repeats only the rest; an
        # event of a source that got an error would be sent again after a crash.
        is_half = document.attempts is not None and document.attempts.kind is Kind.HALF
        is_urgent = is_half or (
            not self._is_recorded and any(one.level is Level.ERROR for one, _ in judged.answered)
        )
        is_urgent |= len(judged.unsettled) > len(judged.retried)
        is_pause = bool(again) and not is_fatal and not self.rules.park
        if not is_pause:
            self.stops = 0
        if not again:
            self._remove(document)
            return Settled(judged, is_urgent=is_urgent)
        self._had_turn.add(document.place)
        at_rest = list(map(self._at_rest, again))
        if self.rules.park and not is_fatal:
            rest = policy.parked(document, judged._replace(again=at_rest), now, self.rules)
            self._has_tried = document.retries > 0
        else:
            rest = document._replace(events=at_rest, attempts=None)
        if is_pause:
            self.pause(now, answer.retry_after)
        is_same = [one.sent_id for one in again] == [one.sent_id for one in document.events]
        if is_same:
            self._put(rest)
            is_part = document.attempts is not None and document.attempts.kind is Kind.PART
            is_counted = rest.retries > 1 and not judged.place
            if is_part or (is_counted and self.rules.is_recorded(rest.retries)):
                self._changed.add(document.place[0])
        else:
            self._replace(document, [rest])
        return Settled(judged, is_pause=is_pause, is_urgent=is_urgent and not is_same)

    def _failed(
        self, document: Document[E], failure: ReceiverUnavailable, now: float
    ) -> Settled[E]:
        self._had_turn.add(document.place)
        ended = policy.failed(
            document, failure, self.answers, now, self.rules, in_doubt=self.in_doubt
        )
        kept = [
            one._replace(events=list(map(self._at_rest, one.events))) for one in ended.documents
        ]
        if ended.given_up:
            given_up = [event.again() for event in document.events]
            result = EventResult(Level.ERROR, ended.given_up)
            self._marks.append(Mark(result, given_up, document))
        if len(kept) == 1 and kept[0].number:
            self._put(kept[0])
        else:
            self._replace(document, kept)
        if ended.is_recorded:
            self._changed.add(document.place[0])
        self.failure = failure
        self._has_tried = not ended.is_doubt
        self.rests_until = now + failure.seconds * _QUIET
        self._shared_until = now + failure.seconds
        self._failed_in_a_row += ended.is_doubt
        self.in_doubt |= ended.is_doubt
        is_pause = self._failed_in_a_row > 1 and not self._in_air
        is_urgent = is_pause and self.end_round(now)
        return Settled(
            given_up=ended.given_up,
            is_isolated=ended.is_isolated,
            is_pause=is_pause,
            is_urgent=is_urgent
            or _renames(document, kept)
            # Later events are sent now: after a crash the receiver might apply it after them.
            or bool(ended.given_up),
        )

    def end_round(self, now: float) -> bool:
        """Pause because the receiver fails and answers nothing. From the pause number
        ``isolate_after`` on, one document is cut each time, if no other document can be sent: the
        outcomes of its halves may show the cause.

        Return True if nothing may be sent before the halves are written.
        """
        self.pause(now)
        self.rounds += 1
        self.may_decide = self.rounds < self.rules.isolate_after
        doubtful = (one for one in self.documents() if policy.is_of_doubt(one, self.answers))
        if self.rounds > 1 and self.rules.is_recorded(self.rounds):
            self._changed.update(one.place[0] for one in list(doubtful)[:1])
        if self.rounds < self.rules.isolate_after or self._has_fresh(now):
            return False
        if (suspect := policy.to_cut(self.documents(), self.answers)) is None:
            return False
        parts = policy.cut_in_doubt(suspect, self.answers)
        self._replace(suspect, parts)
        if self.rounds == self.rules.isolate_after:  # one of them may decide at once
            self.resume_at, self.may_decide = now, True
        return _renames(suspect, parts)

    def _has_fresh(self, now: float) -> bool:
        """Return True if a document for which the receiver has not failed can be sent now."""
        return any(
            not policy.is_tried(one) and policy.due_of(one, 0.0) <= now for one in self.free()
        )

    def skip(self, sent_id: str, result: EventResult) -> E | None:
        """Give an event up by hand, and return it; None if the outbox does not have it. It is
        unknown whether the receiver has applied the event.
        """
        for document in self.documents():
            for event in document.events:
                if event.sent_id == sent_id:
                    left = [one for one in document.events if one is not event]
                    self._marks.append(Mark(result, [event.again()], document))
                    self._replace(document, [document._replace(events=left)])
                    self._end_doubt_without_cause()
                    # The rounds may have been recorded with the document of this event.
                    doubtful = (
                        one.place[0]
                        for one in self.documents()
                        if policy.is_of_doubt(one, self.answers)
                    )
                    self._changed.update(list(doubtful)[:1])
                    return event
        return None

    def pause(self, now: float, retry_after: float | None = None) -> None:
        """Let everything wait for the back-off, or for as long as the receiver asks."""
        self.stops += 1
        self._failed_in_a_row = 0
        self.resume_at = now + self.rules.pause(self.stops, retry_after)

    def continue_rounds(self, rounds: int) -> None:
        """Continue the pauses without an answer that were recorded before a restart."""
        self.rounds = max(self.rounds, rounds)
        self.in_doubt = self.rounds > 0

    def retry_now(self) -> None:
        """Make each waiting document due now, and give each a turn, however many there are."""
        for document in list(self.parked()):
            assert document.attempts is not None
            self._put(document._replace(attempts=document.attempts._replace(due=0.0)))
        self._had_turn.clear()
        self._again = -self.size

    def rest(self) -> None:
        """End a cycle, in which a document is sent again once at most: release the values of all
        events.
        """
        self._had_turn.clear()
        self._again = min(self._again, 0)
        for batch in self._batches.values():
            for place, document in batch.items():
                batch[place] = document._replace(events=list(map(self._at_rest, document.events)))

    # --- saving -----------------------------------------------------------------------------------

    def take_marks(self) -> list[Mark[E]]:
        """Return the events that have got their results since the last call, to be written. If the
        results cannot be written, call ``put_back`` instead.
        """
        marks, self._marks = self._marks, []
        return marks

    def put_back(self) -> None:
        """Put back the events whose results are not written, since the receiver has lost these
        events. These events are sent again, and so are the documents that are being sent. A
        document that was answered whole keeps its number.
        """
        self._sent.update(self._in_air)
        self._in_air.clear()
        self.confirm({}, 0.0, is_lost=True)

    def confirm(
        self, results: Mapping[str, EventResult], now: float, *, is_lost: bool = False
    ) -> int:
        """Apply the results of a flush, by event-id: put the events back that got *retry* and, if
        ``is_lost``, the events without a result. Later events of their objects are put back too.
        Return how many events are confirmed.

        An event that got *retry* without a place gets a new event-id, since the receiver has it,
        but must apply it again after an earlier event.
        """
        renewed = {
            name for name, one in results.items() if one.level is Level.RETRY and not one.place
        }
        sent: dict[Place, tuple[Document[E], dict[str, Mark[E]]]] = {}
        for mark in self.take_marks():
            _, own = sent.setdefault(mark.document.place, (mark.document, {}))
            own.update((event.sent_id, mark._replace(events=[event])) for event in mark.events)
        waiting, renamed = set[Hashable](), set[Hashable]()
        for document, own in sent.values():
            marks: dict[str, tuple[E, Mark[E]]] = {}
            for event in document.events:
                # An event that was given up is marked under its next event-id.
                marked = own.get(event.sent_id) or own.get(event.again().sent_id)
                if marked is not None:
                    marks[event.sent_id] = event, marked
            found = {
                name: result if result.level is Level.RETRY else mark.result
                for name, (_, mark) in marks.items()
                for result in (results.get(name, LOST if is_lost else SUCCESS),)
            }
            judged = policy.judge([event for event, _ in marks.values()], Answer(found), waiting)
            for _, events in judged.answered:
                self._marks += [marks[event.sent_id][1] for event in events]
            if judged.again:
                again = [one.again() if one.sent_id in renewed else one for one in judged.again]
                again = list(policy.renamed(again, _ids_of(document), renamed))
                at_rest = list(map(self._at_rest, again))
                self._put_back(document, judged._replace(again=at_rest), now)
                if renamed:
                    self._rename_later(document.place, renamed)
        self.in_doubt |= self._has_doubtful
        return len(self._marks)

    def _put_back(self, document: Document[E], judged: Judged[E], now: float) -> None:
        again = judged.again
        if [one.sent_id for one in again] != [one.sent_id for one in document.events]:
            document = Document((*document.place, -1), (), retries=document.retries)
        if judged.place:
            document = policy.parked(document, judged, now, self.rules)
        self._insert(document._replace(events=again))

    def record(self) -> dict[int, tuple[Sequence[Document[E]], int]]:
        """Return, by number, the batches whose entries differ from what is recorded: the documents
        of the batch, and the highest number that a document of it has had. No document means that
        nothing is left. Each document gets a greater number than the document before it; a document
        that is being sent keeps its number.
        """
        changed, self._changed = sorted(self._changed), set()
        return {batch: self._numbered(batch) for batch in changed}

    def _numbered(self, batch: int) -> tuple[Sequence[Document[E]], int]:
        documents = self._batches.get(batch)
        if not documents:
            return (), self._last_numbers.pop(batch, 0)
        before, highest = 0, self._last_numbers[batch]
        shared = 0  # single events of a document may have its number
        for place, document in documents.items():
            number = document.number
            is_kept = number > before or (0 < number == shared and document.attempts is None)
            if not is_kept and place not in self._in_air:
                number = highest = highest + 1
                documents[place] = document._replace(number=number)
            before = max(before, number)
            shared = number if document.attempts is None else 0
        self._last_numbers[batch] = highest
        return list(documents.values()), highest

    # --- documents and their index ----------------------------------------------------------------

    def _document(self, place: Place) -> Document[E]:
        return self._batches[place[0]][place]

    def _put(self, document: Document[E]) -> None:
        """Replace a document by one with the same events and place, but with other attempts."""
        before = self._document(document.place)
        has_other_objects = (Kind.PLACE in map(_kind_of, (before, document))) and (
            _kind_of(before) is not _kind_of(document)
        )
        if self._queues is not None and has_other_objects:
            self._unindex(before)
            self._index(document)
        self._batches[document.place[0]][document.place] = document
        self._count_special(_special([document]) - _special([before]))

    def _replace(self, document: Document[E], parts: Iterable[Document[E]]) -> None:
        """Replace a document by ``parts``, which have other events and get new numbers later."""
        number = document.place[0]
        batch = self._batches[number]
        document = batch[document.place]
        known = _ids_of(document)
        objects: set[Hashable] = set()  # of the events with new event-ids
        own = [
            part._replace(
                place=(*document.place, at),
                events=policy.renamed(part.events, known, objects),
                number=0,
            )
            for at, part in enumerate(parts)
            if part.events
        ]
        if not own:
            self._remove(document)
            return
        if document.place in self._had_turn:
            self._had_turn.update(one.place for one in own)
        if document.place in self._sent:
            self._sent.update(one.place for one in own if not known.isdisjoint(_ids_of(one)))
        self._leave(document)
        old = list(batch.values())
        batch.clear()
        for one in old:
            for each in own if one is document else (one,):
                batch[each.place] = each
        for each in own:
            self._enter(each)
        self._count_special(_special(own) - _special([document]))
        self._changed.add(number)
        if objects:
            self._rename_later(document.place, objects)

    def _rename_later(self, place: Place, objects: set[Hashable]) -> None:
        """Give new event-ids to the events of these objects in later documents that may have been
        sent.
        """
        after = (*place, inf)  # not the parts of the document itself
        queues = self._queues
        if queues is not None and all(queues[one][-1] < after for one in objects if one in queues):
            return
        for later in [one for one in self.documents() if one.place > after]:
            if later.place in self._sent:
                events = policy.renamed(later.events, _ids_of(later), objects)
                again = later._replace(events=events)
                if _renames(later, [again]):
                    self._replace(later, [again])

    def _remove(self, document: Document[E]) -> None:
        """Remove a document of which nothing is left."""
        number = document.place[0]
        batch = self._batches[number]
        document = batch.pop(document.place)
        if not batch:
            del self._batches[number]
        self._leave(document)
        self._count_special(-(document.attempts is not None))
        self._changed.add(number)

    def _insert(self, document: Document[E]) -> None:
        """Add a document at its place, in whatever batch."""
        number = document.place[0]
        batch = self._batches.get(number, {})
        batch[document.place] = document
        self._batches[number] = dict(sorted(batch.items()))
        self._batches = dict(sorted(self._batches.items()))
        self._sent.add(document.place)
        self._enter(document)
        self._count_special(_special([document]))
        self._changed.add(number)

    def _enter(self, document: Document[E]) -> None:
        self.size += len(document.events)
        if self._queues is not None:
            self._index(document)

    def _leave(self, document: Document[E]) -> None:
        self.size -= len(document.events)
        self._objects.pop(document.place, None)
        self._sent.discard(document.place)
        if self._queues is not None:
            self._unindex(document)

    def _count_special(self, more: int) -> None:
        """Make the index when the first document gets attempts; remove it when no document has
        attempts.
        """
        self._special += more
        if self._special and self._queues is None:
            self._queues = {}
            for document in self.documents():
                self._index(document)
        elif not self._special and self._queues is not None:
            self._queues, self._heads, self._head_counts = None, [], {}

    def _index(self, document: Document[E]) -> None:
        assert self._queues is not None
        for one in document.objects:
            queue = self._queues.setdefault(one, [])
            if not queue or document.place < queue[0]:
                if queue:
                    self._count_head(queue[0], -1)
                self._count_head(document.place, 1)
            insort(queue, document.place)

    def _unindex(self, document: Document[E]) -> None:
        assert self._queues is not None
        for one in document.objects:
            queue = self._queues[one]
            at = bisect_left(queue, document.place)
            del queue[at]
            if not at:
                self._count_head(document.place, -1)
                if queue:
                    self._count_head(queue[0], 1)
            if not queue:
                del self._queues[one]

    def _count_head(self, place: Place, more: int) -> None:
        """Count for how many objects a document is the first."""
        count = self._head_counts.get(place, 0) + more
        if count:
            if place not in self._head_counts:
                insort(self._heads, place)
            self._head_counts[place] = count
        else:
            del self._head_counts[place]
            del self._heads[bisect_left(self._heads, place)]


class _Found(Generic[E]):
    """The documents that may be sent now if they are free, by the reason why they are sent, and the
    times when other documents are due.
    """

    def __init__(self) -> None:
        self.fresh: list[Document[E]] = []
        self.parked: list[Document[E]] = []
        self.tried: list[Document[E]] = []  # failed before the last answer, or parts
        self.doubtful: list[Document[E]] = []
        self.later: list[float] = []


def _ids_of(document: Document[E]) -> set[str]:
    return {event.sent_id for event in document.events}


def _renames(document: Document[E], parts: Iterable[Document[E]]) -> bool:
    """Return True if an event of the parts has another event-id than in the document: until the new
    event-id is recorded, a crash would repeat the event under the old event-id, which the receiver
    may remember.
    """
    known = _ids_of(document)
    return any(event.sent_id not in known for part in parts for event in part.events)


def _kind_of(document: Document[Any]) -> Kind | None:
    return None if document.attempts is None else document.attempts.kind


def _special(documents: Iterable[Document[E]]) -> int:
    """Return how many of these documents have attempts."""
    count = 0
    for one in documents:
        count += one.attempts is not None
    return count


def _least_tried(document: Document[E]) -> tuple[bool, float]:
    """Return a key that puts documents whose events were not tried alone first, since these may
    have innocent events.
    """
    assert document.attempts is not None
    return document.attempts.tries > 0, document.attempts.due


def _longest_due(document: Document[E]) -> tuple[float, int]:
    assert document.attempts is not None
    return document.attempts.due, document.attempts.tries


class _Blocked(NamedTuple):
    """Whether an event follows an event that waits, or an event that is being sent or about to be
    sent.
    """

    is_waiting: bool
    is_active: bool


class _Before(NamedTuple):
    """A document that an event follows because of these objects; no objects = because of all
    objects.
    """

    place: Place
    objects: frozenset[Hashable]
