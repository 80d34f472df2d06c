"""What happens to a document after each outcome, and which documents wait (spec/event-log.md 8.4):
pure functions of values, without a clock, a log line or a database.

The outbox applies their results; nothing else decides anything.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Any, Final, Generic, NamedTuple, Protocol, Self, TypeVar

from eventlog.core.clock import Random
from eventlog.errors import ReceiverUnavailable
from eventlog.model import SUCCESS, Answer, EventResult, Level

LOST: Final = EventResult(Level.RETRY)
"""The result of an event that the receiver has not answered."""
EVERY: Final[Hashable] = ()
"""The object that stands for all objects: an event of it follows and precedes all other events."""


def class_of(one: Hashable) -> Hashable:
    """Return the class or table of an object, which is the object without its key."""
    return one[:-1] if isinstance(one, tuple) else one


class Sendable(Protocol):
    """An event that can be sent in a document."""

    @property
    def sent_id(self) -> str:
        """The event-id in the document."""
        ...

    @property
    def queues(self) -> Collection[Hashable]:
        """The objects whose later events must wait for this event: ``EVERY`` alone, or at least
        one.
        """
        ...

    def again(self) -> Self:
        """Return the event under its next event-id, because the receiver may have applied it."""
        ...


E = TypeVar("E", bound=Sendable)

Answered = list[tuple[EventResult, Sequence[E]]]
"""The events with a final result, by their results."""


class Kind(Enum):
    """Why a document is sent again."""

    SUSPECT = "the receiver failed for it, or for a document that it is a half of"
    PART = "it is a part of a document that the receiver failed for while it answered others"
    PARKED = "the receiver answered retry for all of its events"
    HALF = "it is a part of a refused document, and is sent at once"
    WITHHELD = "the classes of its events are unavailable"
    PLACE = "the receiver's places for the classes of its events, such as queues, take nothing"


class Attempts(NamedTuple):
    """The attempts at a document that is sent again. ``kind``, ``tries``, ``answer`` and ``due``
    are recorded; the other fields count answers of the present process.
    """

    kind: Kind
    tries: int = 0
    """For a part, the number of attempts at its only event. For a parked document, the number of
    answers *retry*. Otherwise 0.
    """
    answer: str = ""
    due: float = 0.0
    """The time of the next attempt by the monotonic clock."""
    since: int = 0
    """For a part, how many documents had been answered when the part was separated."""
    at: int = -1
    """How many documents had been answered when it last failed; -1 = not in this process."""
    run: int = 0
    """How often the document has failed without any answer in between."""

    def failures(self, answers: int) -> int:
        """Return how often the document has failed since the last answer. ``answers`` is the number
        of documents that were answered so far.
        """
        return self.run if self.at == answers else 0


class Document(NamedTuple, Generic[E]):
    """Events that are sent, answered and waited for together."""

    place: tuple[int, ...]
    """The place in the order of the feed, with the number of the batch first. A document with other
    events has another place.
    """
    events: Sequence[E]
    number: int = 0
    """The number under which the document is recorded, 0 = it is not recorded. The same number
    never stands for different events.
    """
    attempts: Attempts | None = None
    retries: int = 0
    """How often its events got *retry* in a row."""

    @property
    def objects(self) -> frozenset[Hashable]:
        """The objects of its events, and their classes if it waits for a place."""
        objects = frozenset(one for event in self.events for one in event.queues)
        if self.attempts is not None and self.attempts.kind is Kind.PLACE:
            return objects.union(map(class_of, objects))
        return objects


class Rules(NamedTuple):
    """The options of the policy, as ``PublisherOptions`` describes them; times in seconds."""

    concurrency: int = 1
    park: bool = True
    max_parked: int = 1000
    isolate_after: int = 5
    max_attempts: int = 0
    retry_initial: float = 1.0
    retry_max: float = 60.0
    most_again: int = 1_000_000_000
    """The maximum number of events that are sent again in a cycle, so that many parked objects
    leave room for all other objects. A document is sent whole.
    """
    random: Random = lambda: 1.0
    """A function that removes up to half of each pause."""

    def back_off(self, attempts: int) -> float:
        """Return the seconds to wait after this number of attempts in a row."""
        return back_off(attempts, self.retry_initial, self.retry_max, self.random)

    def pause(self, stops: int, retry_after: float | None) -> float:
        """Return the seconds that everything waits after this number of stops in a row."""
        if retry_after is None:
            return self.back_off(stops)
        return min(max(retry_after, self.retry_initial), self.retry_max)

    def is_recorded(self, tries: int) -> bool:
        """Return True if the entry is written after this number of attempts: while the pauses grow,
        and at the powers of two. So a receiver that refuses an event for days causes few writes.
        """
        is_power = tries & (tries - 1) == 0
        pauses = [back_off(one, self.retry_initial, self.retry_max) for one in (tries - 1, tries)]
        return is_power or pauses[0] < pauses[1]


def back_off(attempts: int, initial: float, maximum: float, random: Random = lambda: 1.0) -> float:
    """Return the seconds to wait after this number of attempts in a row: doubling from ``initial``,
    at most ``maximum``. ``random`` removes up to half of this time, so that processes that failed
    at the same time do not try again at the same time; the default removes nothing.
    """
    return float(min(maximum, initial * 2 ** min(attempts - 1, 62))) * (1 + random()) / 2


# --- an answer ------------------------------------------------------------------------------------


class Judged(NamedTuple, Generic[E]):
    """The meaning of an answer."""

    answered: Answered[E]
    again: Sequence[E] = ()
    """The events that are sent again, in order: the events that got *retry*, and the later events
    of their objects. The later events have new event-ids.
    """
    unsettled: Sequence[tuple[EventResult, E]] = ()
    """The events of ``again`` as they were sent, with their results."""
    retried: Sequence[tuple[EventResult, E]] = ()
    """The events of ``unsettled`` that got *retry*, with their results."""
    fatal: str | None = None
    """The message of an event that got *fatal*, None if there is none."""

    @property
    def place(self) -> str:
        """The place that an event waits for, empty if no event waits for a place."""
        return next((result.place for result, _ in self.retried if result.place), "")


def judge(events: Sequence[E], answer: Answer, waiting: set[Hashable] | None = None) -> Judged[E]:
    """Decide for each event which result it has, or that it is sent again.

    An event after a retry of its object is sent again, too, since the later event must not get a
    final answer before the earlier event. The receiver may have applied the later event, so this
    event gets a new event-id (7.4). ``waiting`` are the objects of earlier events that are sent
    again; the objects of these events are added.
    """
    if not answer.results and answer.general is None:  # one result for all events
        return Judged([(SUCCESS, events)])
    answered: dict[EventResult, list[E]] = {}
    again: list[E] = []
    unsettled: list[tuple[EventResult, E]] = []
    waiting = set() if waiting is None else waiting
    for event in events:
        result = answer.result(event.sent_id)
        is_retry = result.level is Level.RETRY
        if not is_retry and (result.level is Level.FATAL or not overlap(event.queues, waiting)):
            answered.setdefault(result, []).append(event)
            continue
        waiting.update(event.queues)
        again.append(event if is_retry else event.again())
        unsettled.append((result, event))
    retried = [one for one in unsettled if one[0].level is Level.RETRY]
    fatal = [one.message or "no message" for one in answered if one.level is Level.FATAL]
    return Judged(list(answered.items()), again, unsettled, retried, next(iter(fatal), None))


def overlap(some: Collection[Hashable], others: AbstractSet[Hashable]) -> bool:
    """Return True if events of some objects must keep their order with events of others."""
    if EVERY in some or EVERY in others:
        return bool(some and others)
    return not others.isdisjoint(some)


def partial_answer(events: Iterable[E], answered: Mapping[str, EventResult]) -> Answer:
    """Return the answer to events of which the receiver has ``answered`` some before it failed."""
    final = {name: one for name, one in answered.items() if one.level < Level.RETRY}
    return Answer({one.sent_id: final.get(one.sent_id, LOST) for one in events})


def has_letter(result: EventResult) -> bool:
    """Return True if an event that ends with this result has a dead letter (8.7): it was refused,
    is too large, or was given up. An event that was answered fatal has no dead letter, and an event
    that is skipped by hand has no result.
    """
    return result.level is Level.ERROR


def tries_at(document: Document[Any]) -> int:
    """Return how often the events of a document were sent, according to what is recorded."""
    tried = document.attempts
    return 1 + max(document.retries, 0 if tried is None else tried.tries)


def is_retry_of_all(answer: Answer) -> bool:
    """Return True for an answer that asks for everything again later."""
    return answer.general is not None and answer.general.level is Level.RETRY


def refusal(events: Sequence[Any], answer: Answer) -> str | None:
    """Return the reason if an answer refuses a document of several events and names no event;
    otherwise None.

    The receiver's own words, which may quote values, appear only with the rows that are refused in
    the end.
    """
    if not answer.culprit_unknown or answer.general is None or len(events) == 1:
        return None
    return answer.in_short or "the receiver refuses it"


def parked(document: Document[E], judged: Judged[E], now: float, rules: Rules) -> Document[E]:
    """Return what is left of a document: the events that got *retry*, which wait for the back-off.
    If these are all events of the document, it keeps its number.
    """
    retries, again = document.retries + 1, judged.again
    kind = Kind.PLACE if judged.place else Kind.PARKED
    answer = judged.unsettled[0][0].message
    attempts = Attempts(kind, retries, answer, now + rules.back_off(retries))
    return document._replace(events=again, attempts=attempts, retries=retries)


# --- halves ---------------------------------------------------------------------------------------


def halves(document: Document[E], attempts: Attempts | None) -> list[Document[E]]:
    """Return the halves of a document, the larger half first; a single event stays one document. An
    event after another event of its object gets a new event-id, since the two may be in different
    documents now (8.4, *Cutting*).
    """
    seen: set[Hashable] = set()
    events = []
    for event in document.events:
        events.append(event if seen.isdisjoint(event.queues) else event.again())
        seen.update(event.queues)
    middle = (len(events) + 1) // 2
    parts = [part for part in (events[:middle], events[middle:]) if part]
    return [document._replace(events=part, number=0, attempts=attempts) for part in parts]


def renamed(events: Sequence[E], known: Collection[str], objects: set[Hashable]) -> Sequence[E]:
    """Return events of a document, with new event-ids for those that follow an event with a new
    event-id: the receiver applies that event again, and must apply these events after it (7.4).

    ``known`` are the event-ids that the document had. ``objects`` are the objects of earlier events
    with new event-ids; the objects of these events are added.
    """
    found: list[E] = []
    for event in events:
        if event.sent_id in known and not objects.isdisjoint(event.queues):
            event = event.again()
        if event.sent_id not in known:
            objects.update(event.queues)
        found.append(event)
    return found


# --- a failure ------------------------------------------------------------------------------------


class Failed(NamedTuple, Generic[E]):
    """What becomes of a document for which the receiver failed."""

    documents: Sequence[Document[E]]
    """What replaces the document: the same document with more attempts, or its parts."""
    given_up: str = ""
    """Why the only event of the document is not sent again, otherwise empty."""
    is_doubt: bool = False
    """True if the receiver may be unavailable: another document decides."""
    is_isolated: bool = False
    """True if the document is now sent in parts, since the receiver answers other documents."""
    is_recorded: bool = False


def failed(
    document: Document[E],
    failure: ReceiverUnavailable,
    answers: int,
    now: float,
    rules: Rules,
    *,
    in_doubt: bool,
) -> Failed[E]:
    """Decide about a document for which the receiver failed suspiciously. ``answers`` is how many
    documents were answered; ``in_doubt`` is true if another document has failed since the last
    answer.

    While the receiver is in doubt nothing is isolated or given up, and no attempt counts.
    """
    before, message = document.attempts, str(failure)
    if before is not None and before.kind is Kind.PART:
        return _part_failed(document, before, message, answers, now, rules, in_doubt=in_doubt)
    if not in_doubt and before is not None and before.kind is Kind.SUSPECT:
        # It, or the document that it is a half of, has failed before and after an answer, which has
        # ended the doubt. This answer counts for a single event: the receiver refuses only it.
        since = answers - (len(document.events) == 1)
        part = Attempts(Kind.PART, 0, message, now + rules.back_off(1), since, answers)
        return Failed(halves(document, part), is_isolated=True, is_recorded=True)
    run = 0 if before is None else before.failures(answers)
    due = now + max(rules.back_off(1), failure.seconds)
    suspect = Attempts(Kind.SUSPECT, 0, message, due, answers, answers, run + 1)
    return Failed([document._replace(attempts=suspect)], is_doubt=True)


def _part_failed(
    document: Document[E],
    before: Attempts,
    message: str,
    answers: int,
    now: float,
    rules: Rules,
    *,
    in_doubt: bool,
) -> Failed[E]:
    """Cut a part that has several events; for a part with one event, count an attempt."""
    tries = before.tries + (len(document.events) == 1)
    due = now + rules.back_off(max(1, tries))
    run = before.failures(answers) + 1
    now_tried = before._replace(answer=message, due=due, at=answers, run=run)
    if in_doubt:
        return Failed([document._replace(attempts=now_tried)], is_doubt=True)
    if len(document.events) > 1:
        part = Attempts(Kind.PART, 0, message, due, answers, answers)
        return Failed(halves(document, part), is_recorded=True)
    if 0 < rules.max_attempts <= tries and answers > before.since:
        return Failed(
            [],
            f"given up after {tries} {'try' if tries == 1 else 'tries'} in its own document: "
            f"{message}",
        )
    tried = document._replace(attempts=now_tried._replace(tries=tries))
    return Failed([tried], is_recorded=rules.is_recorded(tries))


# --- which documents wait -------------------------------------------------------------------------


def is_waiting(document: Document[Any]) -> bool:
    """Return True if a document is not sent at its turn but later."""
    attempts = document.attempts
    if attempts is None or attempts.kind is Kind.HALF:
        return False
    return attempts.kind is not Kind.SUSPECT or attempts.run > 0


def is_tried(document: Document[Any]) -> bool:
    """Return True if the receiver has failed for a document, or for the document that it is a part
    of.
    """
    attempts = document.attempts
    if attempts is None or attempts.kind not in (Kind.SUSPECT, Kind.PART):
        return False
    return is_waiting(document)


def is_of_doubt(document: Document[Any], answers: int) -> bool:
    """Return True if a document shows that the receiver is in doubt: since the last answer the
    receiver has failed for it, or for the document that it is a half of.
    """
    attempts = document.attempts
    return attempts is not None and attempts.kind is Kind.SUSPECT and attempts.at == answers


def due_of(document: Document[Any], rests_until: float) -> float:
    """Return the time when a document may be sent. If the document has failed, this is not before
    ``rests_until``, so that other documents are sent first.
    """
    attempts = document.attempts
    if attempts is None or not is_waiting(document):
        return 0.0
    return max(attempts.due, rests_until) if is_tried(document) else attempts.due


def to_cut(documents: Iterable[Document[E]], answers: int) -> Document[E] | None:
    """Return the document to be cut in halves while no answer shows the cause. The document to be
    cut is the first that has several events and that the receiver has failed for since the last
    answer. None if there is none.
    """
    return next(
        (
            one
            for one in documents
            if len(one.events) > 1 and one.attempts is not None and one.attempts.failures(answers)
        ),
        None,
    )


def cut_in_doubt(document: Document[E], answers: int) -> list[Document[E]]:
    """Return the halves of a document that is cut although no answer shows that it is the cause.
    The halves have not failed yet, and nothing is isolated.
    """
    attempts = document.attempts
    if attempts is not None and attempts.kind is Kind.PART:
        return halves(document, attempts._replace(due=0.0, since=answers, at=answers, run=0))
    return halves(document, Attempts(Kind.SUSPECT, at=answers))


def parked_count(document: Document[Any], answers: int) -> int:
    """Return how many parked objects a document counts as. If the receiver fails for the document,
    the document counts as one object, since one event is the cause (8.4).
    """
    attempts = document.attempts
    if attempts is None or attempts.kind in (Kind.HALF, Kind.WITHHELD, Kind.PLACE):
        return 0
    if attempts.kind is Kind.SUSPECT:
        return int(attempts.run > 0 and attempts.at < answers)
    return len(document.objects) if attempts.kind is Kind.PARKED else 1
