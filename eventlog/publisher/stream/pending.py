"""The events of a followed source between being read and being answered.

Of an object one event at most is in the air, in whatever envelope, so that a later one is never beside an earlier one,
and each is sent under one event-id only. An event that says a new key is of two objects. One that is of every object,
as a TRUNCATE, is in the air alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from eventlog.model import Change, Verdict
from eventlog.publisher.delivery import Answered, Parking

ObjectId: TypeAlias = tuple[Any, ...]
"""What an event is about: schema, table and key of a row."""

_EVERY: Final[ObjectId] = ()
"""Stands for all objects."""


class Place(NamedTuple):
    """From where a source is read again, and what had been numbered up to there."""

    token: Any
    numbered: str = ""


class PendingEvent(NamedTuple):
    """An event that was read, with its number in the order of the source.

    ``objects``: the objects that it is about, none if it is about all of them. ``piece``: what its format writes of
    ``change``.
    """

    number: int
    sent_id: str
    objects: tuple[ObjectId, ...]
    change: Change
    piece: Any

    @property
    def object_id(self) -> ObjectId:
        """What the event is parked under."""
        return self.objects[0] if self.objects else _EVERY

    @property
    def queues(self) -> tuple[ObjectId, ...]:
        """The objects whose later events wait behind this one."""
        return self.objects or (_EVERY,)


class Pending:
    """Events are added, chosen by ``envelopes``, and then answered, parked or put back before more are chosen.

    What is in ``answered`` was answered since the last flush, which alone makes an answer count.
    """

    def __init__(self, parking: Parking[ObjectId]) -> None:
        self.answered: Answered[PendingEvent] = []
        self._parking = parking
        self._next = 0
        self._ready: deque[PendingEvent] = deque()
        self._in_air: dict[int, PendingEvent] = {}
        # The events of parked objects, empty while the only one is in the air. One of two objects stands in both.
        self._parked: dict[ObjectId, deque[PendingEvent]] = {}
        self._marks: deque[tuple[int, Place]] = deque()

    @property
    def ready(self) -> int:
        """How many events wait to be sent for the first time, or again without delay."""
        return len(self._ready)

    @property
    def parked(self) -> int:
        """How many objects are parked, or have events that wait behind a parked one."""
        return len(self._parked)

    @property
    def span(self) -> int:
        """How many events were read from the oldest one on that is not answered."""
        return self._next - self._oldest()

    def next_due(self) -> float | None:
        """When the next event of a parked object may be sent; None if there is none."""
        return min((self._due(event) for event in self._heads()), default=None)

    def add(self, event_id: str, objects: tuple[ObjectId, ...], change: Change, piece: Any) -> None:
        """An event that was read."""
        self._ready.append(PendingEvent(self._next, event_id, objects, change, piece))
        self._next += 1

    def mark(self, place: Place) -> None:
        """When all that was read so far is answered, the source is to be read again from ``place``."""
        if self._marks and self._marks[-1][0] == self._next:
            self._marks.pop()
        self._marks.append((self._next, place))

    def envelopes(self, size: int, most: int, now: float) -> list[list[PendingEvent]]:
        """The next events to send, in their order, in ``most`` envelopes at most: of parked objects whose waiting is
        over, and those that are ready. The former, of which those that are due longest come first, are at most a half
        (one at least) if there are others.

        Those of parked objects among the latter are parked on the way.
        """
        self._parking.wake(self._parking.due(now))
        due = sorted((each for each in self._heads() if not self._parking.is_waiting(each.object_id)), key=self._due)
        chosen = due[: max(size * most // 2, 1) if self._ready else size * most]
        for event in chosen:
            for queue in event.queues:
                self._parked[queue].popleft()
        objects = {queue for event in chosen for queue in event.queues}
        while self._ready and len(chosen) < size * most and _EVERY not in self._parked:
            event = self._ready[0]
            if not event.objects and (chosen or self._parked):
                break  # it goes when all before it is answered
            if any(queue in self._parked for queue in event.queues):
                self._park_last(self._ready.popleft())
                continue
            if not objects.isdisjoint(event.queues):
                break
            objects.update(event.queues)
            chosen.append(self._ready.popleft())
            if not event.objects:
                break
        chosen.sort()
        self._in_air = {each.number: each for each in chosen}
        return [chosen[first : first + size] for first in range(0, len(chosen), size)]

    def answer(self, verdict: Verdict, events: Sequence[PendingEvent]) -> None:
        """Events that were answered without retry."""
        self.answered.append((verdict, events))
        for each in events:
            del self._in_air[each.number]
            for queue in each.queues:
                if queue in self._parked and not self._parked[queue]:
                    del self._parked[queue]

    def park(self, event: PendingEvent) -> None:
        """An event whose object is parked now; what follows of the object waits behind it."""
        del self._in_air[event.number]
        self._park_first(event)

    def put_back_unanswered(self) -> None:
        """What is in the air, and neither answered nor parked, is sent again before all that follows it."""
        self._put_back(self._in_air.values())
        self._in_air = {}

    def forget_answers(self) -> None:
        """The flush has failed: what was answered since the last one is to be sent again."""
        self._put_back([each for _, events in self.answered for each in events])
        self.answered = []

    def flushed(self) -> Place | None:
        """The answers count. The place up to which all is answered; None if there is none after the last one given."""
        self.answered = []
        oldest, place = self._oldest(), None
        while self._marks and self._marks[0][0] <= oldest:
            place = self._marks.popleft()[1]
        return place

    def _heads(self) -> list[PendingEvent]:
        """The events of parked objects that are behind no other one of their objects."""
        heads = {queue[0].number: queue[0] for queue in self._parked.values() if queue}
        return [each for each in heads.values() if all(self._parked[one][0] is each for one in each.queues)]

    def _park_first(self, event: PendingEvent) -> None:
        for queue in event.queues:
            self._parked.setdefault(queue, deque()).appendleft(event)

    def _park_last(self, event: PendingEvent) -> None:
        for queue in event.queues:
            self._parked.setdefault(queue, deque()).append(event)

    def _put_back(self, events: Iterable[PendingEvent]) -> None:
        back = sorted(events, reverse=True)
        if any(not each.objects for each in back):
            # What is parked of single objects came behind it, and is sent again behind it.
            waiting = {each.number: each for queue in self._parked.values() for each in queue}
            for each in waiting.values():
                self._parking.release(each.object_id)
            self._parked = {}
            back = sorted([*back, *waiting.values()], reverse=True)
        ready = []
        for each in back:
            if any(queue in self._parked for queue in each.queues):
                self._park_first(each)
            else:
                ready.append(each)
        if ready:  # of several envelopes, between which others may have been put back before
            self._ready = deque(sorted([*ready, *self._ready]))

    def _due(self, event: PendingEvent) -> float:
        """When an event of a parked object may be sent."""
        parked = self._parking.get(event.object_id)
        return 0.0 if parked is None else parked.due

    def _oldest(self) -> int:
        """The number of the oldest event that is not answered; of the next one if there is none."""
        first = [queue[0].number for queue in self._parked.values() if queue]
        if self._in_air:
            first.append(next(iter(self._in_air)))
        if self._ready:
            first.append(self._ready[0].number)
        return min(first, default=self._next)
