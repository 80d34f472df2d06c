"""Events for which a receiver fails for ever, and events that it is glad to have: whatever fails,
every event that follows no failing one of its object is applied, on a quiet log and a quiet source
too (spec/event-log.md 8.4, *Suspect documents*).
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fake_publisher import NewWorld
from followed_stream import following, position_at
from samples import row
from shared import PlainSink

from eventlog.changes.publishing import Publishing
from eventlog.cloudevents.options import PublishOptions
from eventlog.cloudevents.publish import CloudEventWriter
from eventlog.core.clock import Machine, simulated
from eventlog.errors import ReceiverUnavailable
from eventlog.model import Answer, Change, ChangeOp, Document, EventResult, Level
from eventlog.publisher.run.waiting import StopRequest
from eventlog.publisher.send.cycle import run_cycle
from eventlog.publisher.send.policy import back_off
from eventlog.publisher.send.sending import DeliveryResult
from eventlog.publisher.send.session import PublisherSession
from eventlog.publisher.stream import Mark, Read

EVERY: tuple[str, ...] = ()
"""The objects of an event that concerns all of them."""


class World(NamedTuple):
    """Events in their order: the objects of each, those for which the receiver fails, those that
    get retry once, and the sizes of documents and deliveries.
    """

    objects: Sequence[tuple[str, ...]]
    failing: frozenset[int]
    retried: frozenset[int] = frozenset()
    size: int = 2
    rows: int = 100
    isolate_after: int = 5

    @property
    def innocent(self) -> set[int]:
        """The events that follow no failing event of their objects."""
        held = set(self.failing)
        for place, mine in enumerate(self.objects):
            if any(
                not (mine and theirs) or not set(mine).isdisjoint(theirs)
                for earlier, theirs in enumerate(self.objects[:place])
                if earlier in held
            ):
                held.add(place)
        return set(range(len(self.objects))) - held


class Failing(PlainSink):
    """The receiver of a world. ``number_of`` gives an event's place by its event-id."""

    takes_several = False
    seconds = 1.0

    def __init__(self, world: World, first: int) -> None:
        self.failing, self.retried, self.first = world.failing, set(world.retried), first
        self.wanted = world.innocent
        self.sent: list[tuple[str, ...]] = []
        self.applied: list[int] = []

    def send(self, document: Document) -> Answer:
        ids = tuple(document.event_ids)
        self.sent.append(ids)
        places = {one: int(one.partition(".")[0]) - self.first for one in ids}
        if not self.failing.isdisjoint(places.values()):
            self.fail()
        again = [one for one in ids if places[one] in self.retried]
        self.retried -= {places[one] for one in again}
        self.applied += [places[one] for one in ids if one not in again]
        return Answer({one: EventResult(Level.RETRY, "later") for one in again})

    def fail(self) -> None:
        raise ReceiverUnavailable("answers 500", is_suspicious=True)

    @property
    def is_content(self) -> bool:
        return self.wanted <= set(self.applied)


def worlds(seed: int, number: int, *, has_several: bool) -> Iterator[World]:
    """Worlds of up to twelve events of up to six objects; some of several objects, or of all, if
    ``has_several``.
    """
    chance = random.Random(seed)
    for _ in range(number):
        length = chance.randint(2, 12)
        objects: list[tuple[str, ...]] = []
        for _ in range(length):
            draw = chance.random() if has_several else 1.0
            names = {str(chance.randrange(6)), str(chance.randrange(6))} if draw < 0.2 else ()
            objects.append(
                EVERY if draw < 0.05 else tuple(sorted(names)) or (str(chance.randrange(6)),)
            )
        failing = frozenset(chance.sample(range(length), min(length, chance.randint(1, 3))))
        retried = frozenset(chance.sample(range(length), min(length, chance.randint(0, 2))))
        sizes = chance.choice((1, 2, 4, 8)), chance.choice((2, 4, 100)), chance.choice((2, 5))
        yield World(objects, failing, retried - failing, *sizes)


# --- a log ----------------------------------------------------------------------------------------


class Clock(Machine):
    """A clock that only the test and the receiver move."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def chance(self) -> float:
        return 1.0


class OfLog(Failing):
    def __init__(self, world: World, clock: Clock) -> None:
        super().__init__(world, first=1)
        self.clock, self.cycles = clock, 0

    def fail(self) -> None:
        self.clock.now += 1.0
        super().fail()


def publish_log(world: World, new_world: NewWorld, most: int = 200) -> OfLog:
    """Publish a log without new rows, until the receiver is content or has had enough."""
    clock = Clock()
    receiver, stops = OfLog(world, clock), 0
    fake = new_world(
        [row(at, 4, f"idu={name}") for at, (name,) in enumerate(world.objects, 1)],
        batch_size=world.size,
        delivery_rows=world.rows,
        isolate_after=world.isolate_after,
        mark_interval=100_000,
        retry_initial=1.0,
        retry_max=60.0,
    )
    with simulated(clock), fake.numbering_deliveries():
        state = fake.start()
        while not receiver.is_content and len(receiver.sent) < most:
            ended = run_cycle(PublisherSession(fake.context(), state, receiver, lambda: False))
            receiver.cycles += 1
            if ended.result is not DeliveryResult.DONE:
                stops += 1
                clock.now += back_off(stops, 1.0, 60.0)
            elif not ended.more:
                stops = 0
                clock.now = max(clock.now + 0.001, state.outbox.next_due(clock.now) or 0)
    fake.close()
    return receiver


def of_letters(letters: str) -> list[tuple[str, ...]]:
    return [(one,) for one in letters]


def test_of_three_events_that_fail_on_a_quiet_log_the_third_is_tried_although_two_take_turns(
    new_world: NewWorld,
) -> None:
    world = World(of_letters("23143233"), frozenset({0, 3, 4}), size=3, rows=2)
    assert publish_log(world, new_world).is_content


@pytest.mark.parametrize("seed", range(4))
def test_no_event_of_a_log_waits_for_ever_for_one_that_fails(
    new_world: NewWorld, seed: int
) -> None:
    for world in worlds(seed, 60, has_several=False):
        receiver = publish_log(world, new_world)
        assert receiver.is_content, world
        assert receiver.cycles <= len(receiver.sent), f"cycles that send nothing: {world}"


# --- a followed source ----------------------------------------------------------------------------


class Listed:
    """A source of these changes and no others."""

    def __init__(self, changes: Sequence[Change]) -> None:
        self.changes = changes

    def steps(self, token: Any, *, once: bool) -> Iterator[Read | Mark]:
        while True:
            for number in range(token or 0, len(self.changes)):
                yield Read(self.changes[number], f"{number}.")
                yield Mark(number + 1)
            token = len(self.changes)
            yield Mark(token, is_idle=True, rest=0.001)

    def backlog(self, token: Any) -> None:
        return None


class OfSource(Failing):
    def __init__(self, world: World, most: int) -> None:
        super().__init__(world, first=0)
        self.stop, self.most = StopRequest(), most

    def send(self, document: Document) -> Answer:
        try:
            return super().send(document)
        finally:
            if self.is_content or len(self.sent) >= self.most:
                self.stop.set()

    def fail(self) -> None:
        time.sleep(0.001)
        super().fail()


def change_of(objects: tuple[str, ...], place: int) -> Change:
    if not objects:
        return Change("s", "t", ChangeOp.TRUNCATE)
    old, new = objects[0], objects[-1]
    if old == new:
        return Change("s", "t", ChangeOp.INSERT, (("id", new),), None, {"id": new, "v": place})
    before, after = {"id": old, "v": place}, {"id": new, "v": place}
    return Change("s", "t", ChangeOp.UPDATE, (("id", new),), before, after)


def follow_source(world: World, directory: Path, most: int = 200) -> OfSource:
    """Follow a source without new changes, until the receiver is content or has had enough."""
    from eventlog.publisher.stream.follow import follow

    receiver = OfSource(world, most)
    changes = [change_of(objects, place) for place, objects in enumerate(world.objects)]
    followed = following(
        Listed(changes),
        CloudEventWriter(PublishOptions(), Publishing()),
        batch_size=world.size,
        isolate_after=world.isolate_after,
        retry_initial=0.004,
        retry_max=0.016,
        mark_interval=0,
    )
    place = directory / f"{len(list(directory.iterdir()))}.db"
    follow(followed, position_at(place, "s"), lambda: receiver, receiver.stop)
    return receiver


@pytest.mark.parametrize(
    "world",
    [
        pytest.param(
            World(of_letters("20"), frozenset({1}), retried=frozenset({0}), isolate_after=2),
            id="an event that got retry once",
        ),
        pytest.param(
            World(of_letters("1253"), frozenset({1, 3}), size=8, isolate_after=2),
            id="an event that was in a document with one that fails",
        ),
    ],
)
def test_of_a_quiet_source_another_event_is_sent_although_one_fails(
    world: World, tmp_path: Path
) -> None:
    assert follow_source(world, tmp_path).is_content


@pytest.mark.parametrize("seed", range(2))
def test_no_event_of_a_source_waits_for_ever_for_one_that_fails(seed: int, tmp_path: Path) -> None:
    for world in worlds(seed, 20, has_several=True):
        assert follow_source(world, tmp_path).is_content, world
