"""Small worlds for the outbox: feeds in memory, a receiver, kills, and what must hold in every one.

A ``World`` is a feed, a receiver that fails for or refuses some events, and options. A run sends
everything; wherever the machine could behave otherwise, a ``Chooser`` decides. The first alternative is
the normal one, and each other one costs a fault: another answer, answers that are lost at a flush, or a
kill before a send, after it, or before a write that is durable. After a kill only the store and the
receiver are left. ``explore`` runs a world with every choice of up to so many faults.

A broken promise is an AssertionError with the world and the story.

    python tests/unit/outbox_worlds.py --exhaustive log --seconds 600
    python tests/unit/outbox_worlds.py --random source --seconds 600 --seed 1
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple, Protocol, Self

from eventlog.errors import ReceiverUnavailable
from eventlog.model import SUCCESS, Answer, EventResult, Level
from eventlog.publisher.send import policy
from eventlog.publisher.send.outbox import Do, Mark, Outbox, Step
from eventlog.publisher.send.policy import EVERY, Attempts, Document, Kind, Rules

Names = tuple[str, ...]
"""The objects of an event; () = all objects."""


class Event(NamedTuple):
    """``ids`` are its rows, or its number in a source or a snapshot."""

    event_id: str
    ids: tuple[int, ...]
    objects: Names
    attempt: int = 1
    is_renamed: bool = True
    """False for an event of a source, which has one event-id."""

    @property
    def sent_id(self) -> str:
        return self.event_id if self.attempt == 1 else f"{self.event_id}.{self.attempt}"

    @property
    def queues(self) -> tuple[Hashable, ...]:
        return self.objects or (EVERY,)

    def again(self) -> Self:
        return self._replace(attempt=self.attempt + 1) if self.is_renamed else self

    @property
    def places(self) -> list[int]:
        """Its places in the world."""
        return [one - 1 for one in self.ids] if self.event_id.isdigit() else list(self.ids)


class World(NamedTuple):
    objects: tuple[Names, ...]
    """The objects of each event, in order."""
    fails: frozenset[int] = frozenset()
    """The places of events for which the receiver fails, in whatever document."""
    refuses: frozenset[int] = frozenset()
    """The places of events whose documents the receiver refuses without naming an event."""
    rules: Rules = Rules()
    batch_size: int = 128
    rows: int = 6
    """The most rows that are read at a time."""
    feed: str = "log"
    at: tuple[int, ...] = ()
    """After how many documents each event appears; () = all at the start."""
    folds: bool = False
    slow: float = 1.0
    """How long a failure takes."""
    saves_late: bool = True
    """True if results are saved only when they must be."""

    def at_of(self, place: int) -> int:
        return self.at[place] if self.at else 0


def overlap(some: Names, others: Names) -> bool:
    """Return True if events of these objects must keep their order."""
    return not some or not others or not set(some).isdisjoint(others)


# --- feeds ----------------------------------------------------------------------------------------


class Entry(NamedTuple):
    """The recorded documents of a batch: the number, the events and the attempts of each."""

    documents: tuple[tuple[int, tuple[Event, ...], Attempts | None], ...]
    last_number: int
    rounds: int = 0


def recorded(
    documents: Sequence[Document[Event]], last_number: int, outbox: Outbox[Event]
) -> Entry:
    """Return an entry with what it keeps of attempts: kind, tries, answer and due time."""
    kept, rounds = [], 0
    for document in documents:
        tried = document.attempts
        if tried is not None and tried.kind in (Kind.PART, Kind.PARKED):
            tried = Attempts(tried.kind, tried.tries, tried.answer, tried.due)
        elif tried is not None and policy.is_of_doubt(document, outbox.answers) and outbox.rounds:
            tried, rounds = Attempts(Kind.SUSPECT, at=0), outbox.rounds
        else:
            tried = None
        kept.append((document.number, tuple(document.events), tried))
    return Entry(tuple(kept), last_number, rounds)


def packed(
    number: int, events: Iterable[Event], size: int, *, is_apart: bool = False
) -> list[Document[Event]]:
    """Return documents of up to ``size`` events, with ``is_apart`` and never a second event of an object in it."""
    documents: list[list[Event]] = [[]]
    for event in events:
        last = documents[-1]
        if len(last) == size or (
            is_apart and any(overlap(one.objects, event.objects) for one in last)
        ):
            documents.append([])
        documents[-1].append(event)
    return [
        Document((number, at), tuple(own), 0 if is_apart else at + 1)
        for at, own in enumerate(documents)
        if own
    ]


@dataclass
class Store:
    """What outlives a kill."""

    documents: int = 0
    """The time: how many documents were sent."""
    numbers: int = 0
    entries: dict[int, Entry] = field(default_factory=dict)
    statuses: dict[int, str] = field(default_factory=dict)
    errors: list[tuple[str, str]] = field(default_factory=list)
    position: int = 0
    settled: set[int] = field(default_factory=set)
    """The events after the position of a source that are not sent again."""

    def number_of(self, row: int) -> int:
        """Return the number of the event-id of a row, which survives a refusal (7.4)."""
        ids = (sent_id.split(".") for sent_id, _ in self.errors)
        return max((int(one[1]) for one in ids if one[0] == str(row) and len(one) > 1), default=1)

    def note(self, marks: Iterable[Mark[Event]]) -> None:
        for result, events, _ in marks:
            for event in events:
                self.statuses.update(dict.fromkeys(event.ids, result.level.name[0]))
                if result.level >= Level.ERROR:
                    self.errors.append((event.sent_id, result.message))


class Feed(Protocol):
    """What differs between a log, the snapshot of a consumer, and a followed source."""

    store: Store

    def next(self, outbox: Outbox[Event]) -> list[Document[Event]]: ...
    def rebuild(self, event: Event) -> Event | None: ...
    def save(self, outbox: Outbox[Event], marks: Sequence[Mark[Event]]) -> None: ...


@dataclass
class LogFeed:
    """The rows of objects that wait stay in the queue."""

    world: World
    store: Store

    def next(self, outbox: Outbox[Event]) -> list[Document[Event]]:
        taken = {row for event in outbox.events() for row in event.ids} | set(self.store.statuses)
        events: dict[int, Event] = {}
        last: dict[Names, int] = {}
        left_out: set[str] = set()
        for place, objects in enumerate(self.world.objects):
            row = place + 1
            if row in taken or self.world.at_of(place) > self.store.documents:
                continue
            if sum(len(event.ids) for event in events.values()) == self.world.rows:
                break
            named = {*objects, *map(policy.class_of, objects)}
            if any(one in outbox for one in named) or not left_out.isdisjoint(objects):
                left_out.update(objects)
            elif self.world.folds and objects in last:
                at = last[objects]
                events[at] = events[at]._replace(ids=(*events[at].ids, row))
            else:
                last[objects] = row
                events[row] = Event(str(row), (row,), objects, self.store.number_of(row))
        if not events:
            return []
        self.store.numbers += 1
        documents = packed(self.store.numbers, events.values(), self.world.batch_size)
        self.store.entries[self.store.numbers] = recorded(documents, len(documents), outbox)
        return documents

    def rebuild(self, event: Event) -> Event | None:
        return None if any(row in self.store.statuses for row in event.ids) else event

    def save(self, outbox: Outbox[Event], marks: Sequence[Mark[Event]]) -> None:
        self.store.note(marks)
        for number, (documents, last) in outbox.record().items():
            if documents:
                self.store.entries[number] = recorded(documents, last, outbox)
            else:
                self.store.entries.pop(number, None)


@dataclass
class SnapshotFeed(LogFeed):
    """Its events have no rows. The position moves when a chunk is recorded."""

    def next(self, outbox: Outbox[Event]) -> list[Document[Event]]:
        first = self.store.position
        objects = self.world.objects[first : first + self.world.rows]
        if not objects:
            return []
        self.store.position += len(objects)
        self.store.numbers += 1
        events = [Event(f"k{first + at}", (first + at,), own) for at, own in enumerate(objects)]
        documents = packed(self.store.numbers, events, self.world.batch_size)
        self.store.entries[self.store.numbers] = recorded(documents, len(documents), outbox)
        return documents

    def rebuild(self, event: Event) -> Event | None:
        return event


@dataclass
class SourceFeed:
    """What follows an object that waits joins the outbox unsent. The position moves when everything
    before it is settled or recorded.
    """

    world: World
    store: Store
    most: int = 10_000

    def __post_init__(self) -> None:
        self.read = self.store.position

    def next(self, outbox: Outbox[Event]) -> list[Document[Event]]:
        events: list[Event] = []
        first = self.read
        while len(events) < min(4, self.world.rows) and self.read < len(self.world.objects):
            place = self.read
            if self.world.at_of(place) > self.store.documents or outbox.size >= self.most:
                break
            if place not in self.store.settled:
                events.append(Event(f"c{place}", (place,), self.world.objects[place], 1, False))
            self.read += 1
        return packed(first, events, self.world.batch_size, is_apart=True)

    def rebuild(self, event: Event) -> Event | None:
        return event

    def save(self, outbox: Outbox[Event], marks: Sequence[Mark[Event]]) -> None:
        store, place = self.store, self._passes(outbox)
        store.note(marks)
        for result, events, _ in marks:
            if result.level is Level.ERROR:
                store.settled.update(event.ids[0] for event in events)
        outbox.record()
        store.position = place
        store.settled = {one for one in store.settled if one >= place}
        store.entries = {}
        for document in outbox.documents():
            passed = [event for event in document.events if event.ids[0] < place]
            if passed:
                entry = recorded([document._replace(events=passed)], 0, outbox)
                store.entries[passed[0].ids[0]] = entry

    def _passes(self, outbox: Outbox[Event]) -> int:
        """Return the newest place before which every event is settled, or may be recorded."""
        if outbox.rounds > 1:
            stays = self.read
        else:
            recordable = set() if outbox.in_doubt else {one.ids for one in outbox.waiting()}
            kept = [one for one in outbox.events() if one.ids[0] >= self.store.position]
            stays = min(
                (one.ids[0] for one in kept if one.ids not in recordable), default=self.read
            )
        # A source can be read again after every second change only, if it folds.
        marks = [
            one for one in range(self.store.position, stays) if one % 2 or not self.world.folds
        ]
        return max((one + 1 for one in marks), default=self.store.position)


FEEDS: Mapping[str, Callable[[World, Store], Feed]] = {
    "log": LogFeed,
    "snapshot": SnapshotFeed,
    "source": SourceFeed,
}


def restore(world: World, feed: Feed, now: float) -> Outbox[Event]:
    """Return the outbox that the entries record. Waits end when they were due, at most ``retry_max``
    from now.
    """
    entries = sorted(feed.store.entries.items())
    is_source = world.feed == "source"
    outbox = Outbox[Event](
        world.rules,
        is_recorded=not is_source,
        keeps_fatal=is_source,
    )
    for batch, entry in entries:
        outbox.continue_rounds(entry.rounds)
        documents = []
        for at, (number, own, tried) in enumerate(entry.documents):
            retries = 0
            if tried is not None and tried.kind is not Kind.SUSPECT:
                tried = tried._replace(due=min(tried.due, now + world.rules.retry_max))
                retries = tried.tries if tried.kind is Kind.PARKED else 0
            events = [one for event in own if (one := feed.rebuild(event)) is not None]
            if events:
                documents.append(Document((batch, at), tuple(events), number, tried, retries))
        outbox.restore(batch, documents, entry.last_number)
    return outbox


# --- the derived rule -----------------------------------------------------------------------------


def derived_free(
    outbox: Outbox[Event], in_air: Iterable[tuple[int, ...]]
) -> list[tuple[Any, list[str]]]:
    """Return the free documents by the rule itself, without an index: their places, and the event-ids
    of those events that may be sent.
    """
    flying = set(in_air)
    waiting: set[Hashable] = set()
    active: set[Hashable] = set()
    found = []

    def is_blocked(event: Event, before: set[Hashable]) -> bool:
        if EVERY in before:
            return True
        return bool(before) if EVERY in event.queues else not before.isdisjoint(event.queues)

    for document in outbox.documents():
        is_in_air = document.place in flying
        is_next, behind, own = not is_in_air, set(waiting), set[Hashable]()
        sendable = []
        for event in document.events:
            is_next = is_next and not is_blocked(event, active)
            if is_blocked(event, behind):
                behind.update(event.queues)
            else:
                sendable.append(event.sent_id)
                own.update(event.queues)
        if policy.is_waiting(document) and not is_in_air:
            behind |= own
        else:
            active |= own
        waiting = behind
        if is_next and sendable:
            found.append((document.place, sendable))
    return found


# --- what must hold -------------------------------------------------------------------------------


class Killed(Exception):
    """The process was killed."""


class Chooser:
    """Decides by a list of choices, then at random, then normally."""

    def __init__(
        self,
        prefix: Sequence[int] = (),
        chance: random.Random | None = None,
        faults: int = 0,
        rate: float = 0.0,
    ) -> None:
        self.prefix, self.chance, self.faults, self.rate = prefix, chance, faults, rate
        self.taken: list[int] = []
        self.counts: list[int] = []
        self.is_open = True

    def choose(self, count: int) -> int:
        if not self.is_open:
            return 0
        at, chosen = len(self.taken), 0
        if at < len(self.prefix):
            chosen = self.prefix[at]
        elif self.chance is not None and self.faults and self.chance.random() < self.rate:
            chosen = self.chance.randrange(1, count)
            self.faults -= 1
        self.taken.append(chosen)
        self.counts.append(count)
        return chosen


ALL = ("*",)
"""The object of what concerns every object."""

ANSWERS = (
    "success",
    "error",
    "retry",
    "retry last",
    "busy",
    "unavailable",
    "failed",
    "refused",
    "fatal",
    "waits",
    "broke",
)


def behind_retry(document: Document[Event], answer: Answer) -> Iterator[Event]:
    """Yield the events that got a final answer after a retry of their object."""
    waiting: set[Hashable] = set()
    for event in document.events:
        level = answer.result(event.sent_id).level
        is_behind = level not in (Level.RETRY, Level.FATAL) and not waiting.isdisjoint(event.queues)
        if level is Level.RETRY or is_behind:
            waiting.update(event.queues)
        if is_behind:
            yield event


@dataclass
class Replica:
    """What the receiver has, which applies each event-id once, and the events of a document in order."""

    is_hasty: bool
    """True if it has applied what it fails for, and keeps what a flush has lost."""
    applied: dict[str, Event] = field(default_factory=dict)
    """By event-id, in the order in which they were applied."""
    unsafe: set[str] = field(default_factory=set)
    """The event-ids that were applied although an earlier event of the object got retry, and those that
    were refused: if nobody has recorded that, they come again, and may be applied in another order.
    """
    excused: set[str] = field(default_factory=set)
    """The objects that may have an older state (guarantees.md)."""
    unsaved: list[str] = field(default_factory=list)

    def get(self, document: Document[Event], outcome: Answer | ReceiverUnavailable) -> None:
        """Take a document to which this is the answer."""
        if isinstance(outcome, ReceiverUnavailable):
            for event in document.events:
                if self.is_hasty or event.sent_id in outcome.answered:
                    self._apply(event)
            return
        if policy.is_retry_of_all(outcome) or policy.refusal(document.events, outcome) is not None:
            return
        self.unsafe.update(event.sent_id for event in behind_retry(document, outcome))
        for event in document.events:
            level = outcome.result(event.sent_id).level
            if level < Level.ERROR:
                self._apply(event)
            elif level is not Level.RETRY:
                self.unsafe.add(event.sent_id)

    def _apply(self, event: Event) -> None:
        if event.sent_id not in self.applied:
            self.applied[event.sent_id] = event
            self.unsaved.append(event.sent_id)

    def comes_again(self, events: Iterable[Event]) -> None:
        """Note that these events come again under the event-ids that they had."""
        for event in events:
            if event.sent_id in self.unsafe:
                self.excused.update(event.objects or ALL)

    def lost(self, names: Collection[str] | None = None) -> None:
        """A flush has lost what was not saved, or these events, or has failed although nothing was
        lost.
        """
        for sent_id in self.unsaved if not self.is_hasty else ():
            if names is None or sent_id in names:
                del self.applied[sent_id]
        self.unsaved = [one for one in self.unsaved if names is not None and one not in names]

    def check(self, world: World, refused: Collection[int]) -> None:
        """Check that the last event of each object was applied last, unless it was refused."""
        if self.excused.issuperset(ALL):
            return
        for name in {name for names in world.objects for name in names} - self.excused:
            own = [one for one in self.applied.values() if overlap((name,), one.objects)]
            last = max(at for at, names in enumerate(world.objects) if overlap((name,), names))
            assert last in refused or last in own[-1].places, (
                f"{name} ends with {own[-1].sent_id} in place of event {last}: {[*self.applied]}"
            )


@dataclass
class Checker:
    """What a run has shown so far; it outlives kills."""

    world: World
    replicas: tuple[Replica, Replica] = field(
        default_factory=lambda: (Replica(False), Replica(True))
    )
    ids: dict[str, tuple[int, ...]] = field(default_factory=dict)
    numbers: dict[Any, Names] = field(default_factory=dict)
    answered: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By place, the final results that the receiver has given."""
    unsaved: list[tuple[int, str]] = field(default_factory=list)
    """Results that are not saved: a flush may lose them."""
    spoiled: dict[str, int] = field(default_factory=dict)
    """Event-ids that were answered after a retry of their object, or sent before a cut, and must not come again;
    by the number of kills at that time.
    """
    answers: int = 0
    failed_at: dict[int, int] = field(default_factory=dict)
    """By place, how many documents were answered when the receiver last failed for it among others,
    or first failed for it alone.
    """
    not_before: dict[int, tuple[float, str]] = field(default_factory=dict)
    failures: int = 0
    """How often the receiver failed, without further attempts at an event that is a part alone."""
    kills: int = 0
    in_air: dict[Any, set[int]] = field(default_factory=dict)
    sends: int = 0
    errors: set[int] = field(default_factory=set)
    """The places of the events that got an error or were given up."""
    refused: set[int] = field(default_factory=set)
    """The places of the events that were not applied in the end, or need not be."""
    sealed: set[int] = field(default_factory=set)
    """Those of them after which an event of their object was sent."""
    done: set[int] = field(default_factory=set)
    """The places of the events whose results are saved."""
    doubtful: bool = False
    """True if the receiver failed, and has answered nothing since."""
    was_doubtful: bool = False
    """The same before the last result."""
    failed_first: dict[Names, int] = field(default_factory=dict)
    """By event-ids, how many documents were answered when the receiver first failed for them."""
    story: list[str] = field(default_factory=list)

    def sent(self, key: Any, document: Document[Event], now: float, store: Store) -> None:
        world, events = self.world, document.events
        self.sends += 1
        places = [place for event in events for place in event.places]
        ids = tuple(event.sent_id for event in events)
        self.story.append(f"t={now:g} send {key} {ids}")
        for event in events:
            before = self.ids.setdefault(event.event_id, event.ids)
            assert before == event.ids, f"event-id {event.event_id} means {before} and {event.ids}"
            if event.sent_id in self.spoiled:
                # Killed before it was recorded, it may come again under its id (guarantees.md).
                late = self.spoiled[event.sent_id] < self.kills
                assert late, f"{event.sent_id} is sent again under its id"
        number = self.numbers.setdefault(key, ids)
        assert number == ids, f"document {key} means {number} and {ids}"
        if world.feed == "source":
            self._sent_of_source(places, events)
        else:
            kept = {
                (one.sent_id, one.ids)
                for entry in store.entries.values()
                for _, own, _ in entry.documents
                for one in own
            }
            for event in events:
                is_kept = (event.sent_id, event.ids) in kept
                assert is_kept, f"{event.sent_id} is sent before it is recorded"
        again = [place for place in places if place in self.done]
        assert not again, f"{again} are sent again although their results are saved"
        self._in_order(key, places)
        for place in places:
            due, why = self.not_before.get(place, (0.0, ""))
            assert now >= due, f"event {place} waits until {due:g}, sent at {now:g}: {why}"
        if self.doubtful:
            others = list(self.in_air)
            assert not others, (
                f"{key} is sent together with {others} although a failure has no answer"
            )
        self.in_air[key] = set(places)

    def _sent_of_source(self, places: Sequence[int], events: Sequence[Event]) -> None:
        assert all(event.attempt == 1 for event in events), "a source has one id per event"
        late = self.sealed.intersection(places)
        assert not late, f"{late} are sent after a later event of the object, though refused"
        for place in places:
            mine = self.world.objects[place]
            self.sealed.update(
                one for one in self.errors if one < place and overlap(mine, self.world.objects[one])
            )

    def _in_order(self, key: Any, places: Sequence[int]) -> None:
        """No event overtakes an earlier one of its object, or is in the air together with one."""
        for at, place in enumerate(places):
            mine = self.world.objects[place]
            for earlier in range(place):
                if overlap(mine, self.world.objects[earlier]):
                    is_first = earlier in places[:at] or bool(self.answered[earlier])
                    assert is_first, f"event {place} overtakes {earlier} in {key}"
            for other, own in self.in_air.items():
                for elsewhere in own:
                    is_apart = not overlap(mine, self.world.objects[elsewhere])
                    assert is_apart, (
                        f"events {place} and {elsewhere} are in the air in {key}, {other}"
                    )

    def came_back(
        self, key: Any, document: Document[Event], outcome: Answer | ReceiverUnavailable
    ) -> None:
        del self.in_air[key]
        self.story.append(f"    {key} -> {outcome}")
        for event in document.events:
            for place in event.places:
                self.not_before.pop(place, None)
        self.was_doubtful = self.doubtful
        if isinstance(outcome, ReceiverUnavailable):
            if outcome.is_suspicious:
                self._failed(document)
            elif outcome.answered:
                self._answered(document, policy.partial_answer(document.events, outcome.answered))
            return
        if policy.is_retry_of_all(outcome):
            return
        self.answers += 1
        self.doubtful = False
        if policy.refusal(document.events, outcome) is None:
            self._answered(document, outcome)

    def _failed(self, document: Document[Event]) -> None:
        kind = None if document.attempts is None else document.attempts.kind
        self.failures += not (kind is Kind.PART and len(document.events) == 1)
        names = tuple(event.event_id for event in document.events)
        self.failed_first.setdefault(names, self.answers)
        is_second = kind is Kind.SUSPECT and any(
            answers < self.answers and set(names) <= set(others)
            for others, answers in self.failed_first.items()
        )
        self.doubtful |= not (kind is Kind.PART or is_second or not self.world.rules.park)
        for place in (place for event in document.events for place in event.places):
            if len(document.events) > 1:
                self.failed_at[place] = self.answers
            else:
                self.failed_at.setdefault(place, self.answers)

    def _answered(self, document: Document[Event], answer: Answer) -> None:
        behind = {event.sent_id for event in behind_retry(document, answer)}
        self.spoiled.update(dict.fromkeys(behind, self.kills))
        for event in document.events:
            level = answer.result(event.sent_id).level
            is_kept = level is Level.FATAL and self.world.feed == "source"
            if level is not Level.RETRY and event.sent_id not in behind and not is_kept:
                self._result(event, level.name.lower(), is_error=level is Level.ERROR)

    def _result(self, event: Event, name: str, *, is_error: bool) -> None:
        for place in event.places:
            is_refused = is_error or name in ("fatal", "idle")
            (self.refused.add if is_refused else self.refused.discard)(place)
            self.answered[place].add(name)
            self.unsaved.append((place, name))
            (self.errors.add if is_error else self.errors.discard)(place)
            self.sealed.discard(place)

    def given_up(self, event: Event, name: str) -> None:
        """Check what was decided without an answer."""
        if name == "given up":
            last = self.failed_at.get(event.places[0], self.answers)
            assert self.answers > last, (
                f"{event.sent_id} is given up, and nothing was answered since"
            )
            assert not self.was_doubtful, f"{event.sent_id} is given up in doubt"
        self._result(event, name, is_error=True)

    def left_out(self, event: Event) -> None:
        """Note that documents may come without this event."""
        for names, answers in list(self.failed_first.items()):
            rest = tuple(one for one in names if one != event.event_id)
            self.failed_first.setdefault(rest, answers)

    def idle(self, event: Event) -> None:
        """Note an event that needs no answer, since its rows have lost their effect."""
        self._result(event, "idle", is_error=False)
        self.left_out(event)

    def requeued(self, place: int) -> None:
        """Note that a refused event is asked for again."""
        self.done.discard(place)
        self.answered[place].clear()
        self.errors.discard(place)
        self.failed_at.pop(place, None)
        self.failed_first = {
            names: answers
            for names, answers in self.failed_first.items()
            if str(place + 1) not in names
        }

    def isolated(self) -> None:
        assert not self.was_doubtful, "isolated while in doubt"

    def saved(self, marks: Sequence[Mark[Event]]) -> None:
        for result, events, _ in marks:
            for place in (place for event in events for place in event.places):
                if self.world.feed != "source" or result.level is Level.ERROR:
                    self.done.add(place)
                assert self.answered[place], f"{place} is marked {result} without an answer"
        self.unsaved.clear()
        for replica in self.replicas:
            replica.unsaved.clear()

    def lost(self) -> None:
        """The receiver has lost what was not saved, and what is in the air has no answer."""
        self.story.append("    the answers are lost")
        for replica in self.replicas:
            replica.lost()
        for place, name in self.unsaved:
            self.answered[place].discard(name)
            self.errors.discard(place)
        self.unsaved.clear()
        self.in_air.clear()

    def lost_in_part(self, events: Sequence[Event], confirmed: Collection[str]) -> None:
        """Note that these events come again, the ``confirmed`` ones under new event-ids."""
        names = {event.sent_id for event in events}
        self.story.append(f"    a flush puts back {names}")
        for replica in self.replicas:
            replica.lost(names - set(confirmed))
        for event in events:
            for place in event.places:
                self.unsaved = [one for one in self.unsaved if one[0] != place]
                self.answered[place].clear()
                self.errors.discard(place)
        for replica in self.replicas:
            if self.world.feed == "source":  # its event-ids are always the same
                replica.unsafe.update(names & set(confirmed))
            replica.comes_again(events)
        if self.world.feed != "source":
            self.spoiled.update(dict.fromkeys(names & set(confirmed), self.kills))

    def killed(self, store: Store, now: float) -> None:
        self.kills += 1
        self.in_air, self.doubtful, self.not_before = {}, False, {}
        self.unsaved.clear()
        self.story.append(f"t={now:g} KILL; entries {store.entries}")
        for entry in store.entries.values():
            for _, events, tried in entry.documents:
                for replica in self.replicas:
                    replica.comes_again(events)
                if tried is not None and tried.kind is not Kind.SUSPECT:
                    due = min(tried.due, now + self.world.rules.retry_max)
                    for place in (place for event in events for place in event.places):
                        self.not_before[place] = (due, str(tried))


@dataclass
class Machine:
    """A publisher in a world, and what outlives it."""

    world: World
    chooser: Chooser
    store: Store = field(default_factory=Store)
    now: float = 0.0
    is_fixed: bool = False
    """True if the receiver fails for nothing any more."""
    session: int = 0

    def __post_init__(self) -> None:
        self.checker = Checker(self.world)
        self.start()

    def start(self) -> None:
        self.session += 1
        self.feed = FEEDS[self.world.feed](self.world, self.store)
        self.outbox = restore(self.world, self.feed, self.now)
        self.in_air: list[tuple[Any, Document[Event], Answer | ReceiverUnavailable]] = []
        self.sent_of_session = self.steps = 0
        self.is_stopped = self.is_urgent = self.part_has_failed = False

    def restart(self) -> None:
        self.checker.killed(self.store, self.now)
        self.start()

    @property
    def has_withheld(self) -> bool:
        """True if events wait for a restart."""
        attempts = (document.attempts for document in self.outbox.documents())
        return any(one is not None and one.kind is Kind.WITHHELD for one in attempts)

    # --- durable writes and kills ---

    def maybe_killed(self) -> None:
        if self.chooser.choose(2):
            raise Killed

    def save(self) -> None:
        """Write what there is to write, unless the receiver has lost it."""
        self.is_urgent = False
        if self.outbox.is_saved:
            return
        fault = self.chooser.choose(5)
        if fault == 1:
            raise Killed
        is_alone = self.world.rules.concurrency == 1  # else a flush refuses nothing
        if fault == 3 or (fault == 4 and is_alone):
            self._flush_in_part(is_lost=fault == 3)
        if fault == 2:
            self.checker.lost()
            self.in_air = []
            self.outbox.put_back()
            for replica in self.checker.replicas:
                replica.comes_again(self.outbox.events())
            self.checker.doubtful |= self.outbox.in_doubt
            self.outbox.pause(self.now)
            self.is_stopped = False  # what got fatal is sent again
            return
        marks = self.outbox.take_marks()
        self.checker.saved(marks)
        self.feed.save(self.outbox, marks)
        if fault == 3:  # what is being sent has no answer
            self.checker.lost()
            self.in_air = []
            self.outbox.put_back()
            for replica in self.checker.replicas:
                replica.comes_again(self.outbox.events())
            self.checker.doubtful |= self.outbox.in_doubt
            self.outbox.pause(self.now)
        if self.world.feed != "source":
            self._check_entries()

    def _flush_in_part(self, *, is_lost: bool) -> None:
        """The flush confirms every second event only. The connection breaks, or a place waits for the
        others.
        """
        marks = self.outbox.take_marks()
        self.outbox._marks = list(marks)
        names = [  # a flush has no result for what was refused
            event.sent_id
            for mark in marks
            for event in mark.events
            if mark.result.level is not Level.ERROR
        ]
        waits = EventResult(Level.RETRY, "full", place="queue")
        confirmed = dict.fromkeys(names[1::2], SUCCESS)
        results = confirmed if is_lost else dict.fromkeys(names[::2], waits)
        self.outbox.confirm(results, self.now, is_lost=is_lost)
        kept = {event.sent_id for mark in self.outbox._marks for event in mark.events}
        back = [event for mark in marks for event in mark.events if event.sent_id not in kept]
        self.checker.lost_in_part(back, set(confirmed))
        self.checker.doubtful |= self.outbox.in_doubt
        self.is_stopped = False

    def _check_entries(self) -> None:
        """What is saved is what a restart finds."""
        found = {
            (batch, number): own
            for batch, entry in self.store.entries.items()
            for number, own, _ in entry.documents
        }
        for document in self.outbox.documents():
            if document.number:
                own = found.get((document.place[0], document.number))
                assert own == tuple(document.events), f"recorded {own} of {document}"

    # --- the receiver ---

    def receive(self, document: Document[Event]) -> Answer | ReceiverUnavailable:
        world = self.world
        places = {place for event in document.events for place in event.places}
        refused = Answer(general=EventResult(Level.ERROR, "answers 422"), culprit_unknown=True)
        if places & world.fails and not self.is_fixed:
            return self._failure("answers 500")
        if places & world.refuses:
            return refused
        name = ANSWERS[self.chooser.choose(len(ANSWERS))]
        first, last = document.events[0].sent_id, document.events[-1].sent_id
        match name:
            case "error":
                return Answer({first: EventResult(Level.ERROR, "no")})
            case "retry":
                return Answer({first: EventResult(Level.RETRY, "later")})
            case "retry last":
                return Answer({last: EventResult(Level.RETRY, "later")})
            case "busy":
                return Answer(general=EventResult(Level.RETRY), retry_after=7.0)
            case "unavailable":
                return ReceiverUnavailable("away")
            case "failed":
                return self._failure("hangs")
            case "refused":
                return refused
            case "fatal":
                return Answer({first: EventResult(Level.FATAL, "fatal")})
            case "waits":
                return Answer({last: EventResult(Level.RETRY, "full", place="queue")})
            case "broke":
                failure = ReceiverUnavailable("the connection ended")
                failure.answered = {first: SUCCESS}
                return failure
        return Answer()

    def _failure(self, message: str) -> ReceiverUnavailable:
        failure = ReceiverUnavailable(message, is_suspicious=True)
        failure.seconds = self.world.slow
        return failure

    # --- one step ---

    def step(self) -> bool:
        """Do one thing. Return False if there is nothing to do for now."""
        self.steps += 1
        self._check_index()
        step = self.outbox.next(self.now)
        if step.do is Do.READ:
            self.save()
            if self.outbox.next(self.now).do is not Do.READ:
                return True  # the answers were lost
            documents = self.feed.next(self.outbox)
            if documents:
                self.outbox.add(documents)
                return True
            step = self.outbox.next(self.now, is_empty=True)
        match step.do:
            case Do.SAVE:
                assert not self.outbox.is_saved
                self.save()
            case Do.SEND:
                self._send(step)
            case Do.DOUBT:
                self.outbox.end_round(self.now)
            case _:
                return self._wait(step)
        return True

    def _check_index(self) -> None:
        waits = any(document.attempts is not None for document in self.outbox.documents())
        if waits:
            free = [
                (one.place, [event.sent_id for event in one.events]) for one in self.outbox.free()
            ]
            flying = [document.place for _, document, _ in self.in_air]
            assert free == derived_free(self.outbox, flying), f"the index says {free}"

    def _wait(self, step: Step[Event]) -> bool:
        if self.in_air:
            self._complete()
            return True
        self.save()
        self.outbox.rest()
        if self.is_stopped:
            return False
        arrives = self._arrives()
        if step.until is not None and step.until < inf:
            choice = self.chooser.choose(4)
            if choice == 1 and arrives is not None:
                self.store.documents = arrives
                return True
            tried = next((one for one in self.outbox.documents() if one.attempts is not None), None)
            if choice == 2 and tried is not None:
                self._skip(tried.events[0])
                return True
            if choice == 3:
                self._requeue()
            self.now = max(self.now, step.until)
            return True
        if arrives is not None:
            self.store.documents = arrives
        return arrives is not None

    def _skip(self, event: Event) -> None:
        self.checker.story.append(f"t={self.now:g} skip {event.sent_id}")
        self.outbox.skip(event.sent_id, EventResult(Level.ERROR, "by hand"))
        self.checker.given_up(event, "skipped")
        self.checker.left_out(event)
        if not self.outbox.in_doubt:  # the only document in doubt was skipped
            self.checker.doubtful = False
        self.save()

    def _requeue(self) -> None:
        """Ask for the refused rows again that no row of their object follows."""
        if self.world.feed != "log" or self.world.folds:
            return
        objects = self.world.objects
        for row, letter in list(self.store.statuses.items()):
            if letter in "EF" and objects[row - 1] not in objects[row:]:
                self.checker.story.append(f"t={self.now:g} requeue {row}")
                del self.store.statuses[row]
                self.checker.requeued(row - 1)

    def _arrives(self) -> int | None:
        """Return the time when the next event appears."""
        return min((at for at in self.world.at if at > self.store.documents), default=None)

    def _send(self, step: Step[Event]) -> None:
        chosen = step.document
        if self.part_has_failed and chosen is not None and policy.is_tried(chosen):
            fresh = [one for one in self.outbox.free() if one.attempts is None]
            assert not fresh, f"{chosen} is sent again immediately, before {fresh}"
        document = self.outbox.begin(step)
        if document is not None:
            document = self._built(document)
        if document is None:
            return  # it was divided, or has changed
        self.sent_of_session += 1
        is_source = self.world.feed == "source"
        key = (
            (self.session, self.sent_of_session)
            if is_source
            else (document.place[0], document.number)
        )
        self.maybe_killed()
        self.checker.sent(key, document, self.now, self.store)
        self.store.documents += 1
        outcome = self.receive(document)
        for replica in self.checker.replicas:
            replica.get(document, outcome)
        self.in_air.append((key, document, outcome))
        if self.world.rules.concurrency == 1:
            self._complete()

    def _built(self, document: Document[Event]) -> Document[Event] | None:
        """Build the events again. One may have lost its effect, one may have to wait for its class, and
        one may have been skipped by hand and requeued, so that it has the next event-id.
        """
        if self.world.feed == "source":
            return document
        events = list(document.events)
        idle: list[Event] = []
        withheld: list[Event] = []
        match self.chooser.choose(4):
            case 0:
                return document
            case 1:
                idle.append(events.pop(0))
            case 2:
                withheld.append(events.pop())
            case 3:
                events[0] = events[0].again()
        for event in idle:
            self.checker.idle(event)
        built = self.outbox.rebuilt(document, events, idle, withheld)
        if not self.outbox.in_doubt:
            self.checker.doubtful = False
        if idle:
            self.save()
        return built

    def _complete(self) -> None:
        at = self.chooser.choose(len(self.in_air)) if len(self.in_air) > 1 else 0
        key, document, outcome = self.in_air.pop(at)
        self.checker.came_back(key, document, outcome)
        self.maybe_killed()
        if isinstance(outcome, ReceiverUnavailable):
            self.now += outcome.seconds
        is_part = document.attempts is not None and document.attempts.kind is Kind.PART
        settled = self.outbox.settle(document, outcome, self.now)
        has_failed = isinstance(outcome, ReceiverUnavailable) and outcome.is_suspicious
        self.part_has_failed = is_part and has_failed and not self.outbox.in_doubt
        if settled.given_up:
            (event,) = document.events
            self.checker.given_up(event, "given up")
        if settled.is_isolated:
            self.checker.isolated()
        self.is_stopped |= settled.judged is not None and settled.judged.fatal is not None
        if settled.is_urgent or not self.world.saves_late:
            self.save()
        if self.is_stopped and not self.in_air:
            self.save()
            if self.is_stopped:
                self.restart()  # by somebody


def innocents(world: World) -> set[int]:
    """Return the places of the events that no failing event holds up."""
    held: set[int] = set(world.fails)
    if world.folds and world.feed == "log":  # an earlier row of the object may be in its event
        bad = {world.objects[place] for place in world.fails}
        held.update(place for place, objects in enumerate(world.objects) if objects in bad)
    for place, objects in enumerate(world.objects):
        for earlier in range(place):
            if earlier in held and overlap(objects, world.objects[earlier]):
                held.add(place)
    return set(range(len(world.objects))) - held


def settled(machine: Machine) -> set[int]:
    """Return the places of the events that need nothing more."""
    if machine.world.feed == "log":
        return {row - 1 for row in machine.store.statuses}
    left = {place for event in machine.outbox.events() for place in event.places}
    if isinstance(machine.feed, SourceFeed):
        return set(range(machine.feed.read)) - left
    return set(machine.store.statuses) - left


class Report(NamedTuple):
    machine: Machine
    failures: int
    """How many failures there were until every innocent event was settled."""


MOST_STEPS = 600


def run(world: World, chooser: Chooser) -> Report:
    """Send everything of a world. Raises AssertionError with the story if a promise is broken."""
    machine = Machine(world, chooser)
    checker = machine.checker
    try:
        failures = _until(machine, innocents(world))
        machine.is_fixed, chooser.is_open = True, False
        everything = set(range(len(world.objects)))
        _until(machine, everything)
        machine.save()
        for _ in range(20):
            if not machine.step():
                break
        lost = [place for place in everything if not checker.answered[place]]
        assert not lost, f"never answered: {lost}"
        assert not machine.outbox.size, f"left: {list(machine.outbox.documents())}"
        assert not machine.store.entries, f"entries left: {machine.store.entries}"
        for replica in checker.replicas:
            replica.check(world, checker.refused)
    except AssertionError as error:
        story = checker.story
        told = "\n".join(story if len(story) < 70 else [*story[:45], "...", *story[-12:]])
        raise AssertionError(f"{error}\n{world}\n{told}") from None
    return Report(machine, failures)


def _until(machine: Machine, wanted: set[int]) -> int:
    for _ in range(MOST_STEPS):
        if wanted <= settled(machine):
            return machine.checker.failures
        try:
            can_go_on = machine.step()
        except Killed:
            machine.restart()
            continue
        if machine.has_withheld and (machine.steps > 50 or not can_go_on):
            machine.restart()
        else:
            done = wanted <= settled(machine)
            assert can_go_on or done, "nothing to do, and not everything is settled"
    raise AssertionError(f"not settled after {MOST_STEPS} steps")


def explore(world: World, faults: int) -> Iterator[Report]:
    """Run a world with every choice of up to so many faults."""
    stack: list[tuple[tuple[int, ...], int]] = [((), 0)]
    while stack:
        prefix, used = stack.pop()
        chooser = Chooser(prefix)
        yield run(world, chooser)
        if used < faults:
            for at in range(len(prefix), len(chooser.taken)):
                for other in range(1, chooser.counts[at]):
                    stack.append(((*chooser.taken[:at], other), used + 1))


# --- worlds ---------------------------------------------------------------------------------------


def colourings(length: int, most: int) -> Iterator[tuple[int, ...]]:
    """Yield each way to give ``length`` events one of ``most`` objects, up to their names."""

    def extend(prefix: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(prefix) == length:
            yield prefix
            return
        for one in range(min(most, max(prefix, default=-1) + 2)):
            yield from extend((*prefix, one))

    yield from extend(())


def every_world(length: int, feed: str) -> Iterator[World]:
    """Yield every world of so many events of up to three objects, up to two of them bad."""
    colours = colourings(length, 3) if feed != "snapshot" else iter([tuple(range(length))])
    options = list(itertools.product(sorted({1, 2, length}), sorted({2, length}), (1, 2), (0, 2)))
    for objects in colours:
        named = tuple(("abcdef"[one],) for one in objects)
        for count in range(3):
            for bad in itertools.combinations(range(length), count):
                for split in range(2**count):
                    fails = frozenset(one for at, one in enumerate(bad) if split >> at & 1)
                    for size, rows, concurrency, attempts in options:
                        if fails or not attempts:
                            rules = Rules(concurrency, max_attempts=attempts)
                            refuses = frozenset(bad) - fails
                            yield World(named, fails, refuses, rules, size, rows, feed)


def random_world(chance: random.Random, feed: str) -> World:
    length = chance.randint(1, 9)
    names = "abcd"[: chance.randint(1, 4)]
    objects: list[Names] = []
    for place in range(length):
        draw = chance.random()
        if feed == "snapshot":
            objects.append((f"k{place}",))
        elif feed == "source" and draw < 0.07:
            objects.append(())
        elif feed == "source" and draw < 0.25:
            objects.append(tuple(sorted({chance.choice(names), chance.choice(names)})))
        else:
            objects.append((chance.choice(names),))
    bad = chance.sample(range(length), min(length, chance.choice((0, 1, 1, 2, 2, 3))))
    fails = frozenset(one for one in bad if chance.random() < 0.7)
    max_parked = chance.choice((1000, 1000, 2))
    rules = Rules(
        chance.choice((1, 1, 2, 3)),
        park=bool(fails) or chance.random() < 0.7,
        max_parked=1000 if len(fails) > max_parked else max_parked,
        isolate_after=chance.choice((1, 2, 5)),
        max_attempts=chance.choice((0, 0, 1, 2, 3)),
        retry_initial=chance.choice((0.0, 1.0)),
    )
    times = sorted(chance.choice((0, 0, chance.randint(0, 12))) for _ in range(length))
    return World(
        tuple(objects),
        fails,
        frozenset(bad) - fails,
        rules,
        chance.choice((1, 2, 3, 4, 8)),
        chance.choice((1, 2, 3, 4, 9)),
        feed,
        tuple(times) if feed != "snapshot" else (),
        chance.random() < 0.4,
        chance.choice((0.0, 1.0, 30.0)),
        chance.random() < 0.7,
    )


def bound(world: World) -> int:
    """Return how many failures come at most before all innocent events are out, without attempts at
    events that are parts alone, of which there is at most one per other document.

    With k events for which the receiver fails, documents of up to m events, and L = the binary logarithm
    of m, rounded up: k (L + 2). If no other document decides, 2 isolate_after + 2 (k - 1) come before the
    first cut that decides.
    """
    count, levels = len(world.fails), (world.batch_size - 1).bit_length()
    return count * (levels + 2) + 2 * world.rules.isolate_after + 2 * max(0, count - 1)


def run_random(feed: str, chance: random.Random) -> Report:
    """Run a random world with random faults, and compare its failures with the bound."""
    world = random_world(chance, feed)
    chooser = Chooser((), chance, chance.randint(0, 8), chance.choice((0.05, 0.2, 0.5)))
    report = run(world, chooser)
    is_plain = feed == "log" and world.rules.max_parked == 1000 and not any(world.at)
    if is_plain and not any(chooser.taken):
        assert report.failures <= bound(world), f"{report.failures} failures: {world}"
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description="Send everything of small worlds.")
    parser.add_argument("--exhaustive", choices=FEEDS, help="every world of up to five events")
    parser.add_argument("--random", choices=FEEDS, help="random worlds with random faults")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    begun, counted, chance = time.monotonic(), Counter[str](), random.Random(options.seed)
    while options.random and time.monotonic() - begun < options.seconds:
        report = run_random(options.random, chance)
        counted["runs"] += 1
        counted["kills"] += report.machine.checker.kills
        counted["documents"] += report.machine.checker.sends
    plan = [(1, 0), (2, 0), (3, 0), (1, 3), (2, 1), (2, 2), (3, 1), (4, 0), (5, 0)]
    for length, faults in plan if options.exhaustive else []:
        worlds = list(every_world(length, options.exhaustive))
        chance.shuffle(worlds)
        for at, world in enumerate(worlds):
            if time.monotonic() - begun > options.seconds:
                print(
                    f"{length} events, {faults} faults: stopped after {at} of {len(worlds)} worlds"
                )
                break
            counted["runs"] += sum(1 for _ in explore(world, faults))
        else:
            print(f"{length} events, {faults} faults: all {len(worlds)} worlds", flush=True)
    print(dict(counted))


if __name__ == "__main__":
    sys.exit(main())
