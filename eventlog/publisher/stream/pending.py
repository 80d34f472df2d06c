"""The events of a followed source between reading and answer.

At most one event of an object is being sent, in whatever document, so that events of an object
never overtake each other, and each event has one event-id. An event with a new key belongs to two
objects. An event that concerns every object, such as a TRUNCATE, is sent alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from eventlog.model import Change, EventResult
from eventlog.publisher.parking import Parking
from eventlog.publisher.sending import Answered

ObjectId: TypeAlias = tuple[Any, ...]
"""The object of an event: schema, table and key of a row."""

_EVERY: Final[ObjectId] = ()
"""The object_id that stands for all objects."""


class ReadPosition(NamedTuple):
    """A place to read the source again from, and the newest number of the format up to it."""

    token: Any
    numbered: str = ""


class PendingEvent(NamedTuple):
    """An event that was read."""

    number: int
    """The event's number in the order of the source."""
    sent_id: str
    objects: tuple[ObjectId, ...]
    """The objects of the event; empty = all objects."""
    change: Change
    fragment: Any
    """The format's text or record of ``change``."""

    @property
    def object_id(self) -> ObjectId:
        """The object under which the event is parked."""
        return self.objects[0] if self.objects else _EVERY

    @property
    def queues(self) -> tuple[ObjectId, ...]:
        """The objects whose later events wait for this one."""
        return self.objects or (_EVERY,)


class Pending:
    """The events that are not answered yet. They are added, chosen by ``documents``, and then
    answered, parked or put back before more are chosen.

    ``answered`` has the events answered since the last flush; only a flush makes an answer final.
    """

    def __init__(self, parking: Parking[ObjectId]) -> None:
        self.answered: Answered[PendingEvent] = []
        self._parking = parking
        self._next = 0
        self._ready: deque[PendingEvent] = deque()
        self._in_air: dict[int, PendingEvent] = {}
        # The events of parked objects; a queue is empty while its only event is being sent. An
        # event of two objects is in both queues.
        self._parked: dict[ObjectId, deque[PendingEvent]] = {}
        self._marks: deque[tuple[int, ReadPosition]] = deque()

    @property
    def ready(self) -> int:
        """The number of events that wait for their first sending or an immediate repetition."""
        return len(self._ready)

    @property
    def parked(self) -> int:
        """The number of objects that are parked, or have events that wait for a parked one."""
        return len(self._parked)

    @property
    def span(self) -> int:
        """The number of events from the oldest unanswered one on."""
        return self._next - self._oldest()

    def next_due(self) -> float | None:
        """Return when the next event of a parked object may be sent; None if there is none."""
        return min((self._due(event) for event in self._heads()), default=None)

    def add(
        self, event_id: str, objects: tuple[ObjectId, ...], change: Change, fragment: Any
    ) -> None:
        """Add an event that was read."""
        self._ready.append(PendingEvent(self._next, event_id, objects, change, fragment))
        self._next += 1

    def mark(self, place: ReadPosition) -> None:
        """Note that the source is read again from ``place`` once all events are answered."""
        if self._marks and self._marks[-1][0] == self._next:
            self._marks.pop()
        self._marks.append((self._next, place))

    def documents(self, size: int, most: int, now: float) -> list[list[PendingEvent]]:
        """Return the next events to send, in their order, in at most ``most`` documents: events of
        parked objects whose wait is over, and ready events.

        Events of parked objects come with the longest due first. If there are ready events, the
        former take at most half of the places (at least one). Ready events of parked objects are
        parked on the way.
        """
        chosen = self._take_due(max(size * most // 2, 1) if self._ready else size * most, now)
        self._take_ready(chosen, size * most)
        chosen.sort()
        self._in_air = {each.number: each for each in chosen}
        return [chosen[first : first + size] for first in range(0, len(chosen), size)]

    def _take_due(self, most: int, now: float) -> list[PendingEvent]:
        """Take the events of parked objects whose wait is over, out of their queues."""
        self._parking.wake(self._parking.due(now))
        due = sorted(
            (each for each in self._heads() if not self._parking.is_waiting(each.object_id)),
            key=self._due,
        )
        for event in due[:most]:
            for queue in event.queues:
                self._parked[queue].popleft()
        return due[:most]

    def _take_ready(self, chosen: list[PendingEvent], most: int) -> None:
        """Add ready events to the chosen ones, up to ``most`` together: until an object comes
        twice, and an event of no single object alone.
        """
        objects = {queue for event in chosen for queue in event.queues}
        while self._ready and len(chosen) < most and _EVERY not in self._parked:
            event = self._ready[0]
            if not event.objects and (chosen or self._parked):
                return  # it is sent when all events before it are answered
            if any(queue in self._parked for queue in event.queues):
                self._park_last(self._ready.popleft())
                continue
            if not objects.isdisjoint(event.queues):
                return
            objects.update(event.queues)
            chosen.append(self._ready.popleft())
            if not event.objects:
                return

    def answer(self, verdict: EventResult, events: Sequence[PendingEvent]) -> None:
        """Note the answer to events, which is not a retry."""
        self.answered.append((verdict, events))
        for each in events:
            del self._in_air[each.number]
            for queue in each.queues:
                if queue in self._parked and not self._parked[queue]:
                    del self._parked[queue]

    def park(self, event: PendingEvent) -> None:
        """Put an event into its parked objects' queues; their later events wait for it."""
        del self._in_air[event.number]
        self._park_first(event)

    def put_back_unanswered(self) -> None:
        """Put back the events without an answer that are not parked, so that they are sent before
        all later ones.
        """
        self._put_back(self._in_air.values())
        self._in_air = {}

    def forget_answers(self) -> None:
        """Put back the events answered since the last flush, because the flush has failed."""
        self._put_back([each for _, events in self.answered for each in events])
        self.answered = []

    def flushed(self) -> ReadPosition | None:
        """Make the answers final and return the newest place with no unanswered event before it;
        None if the place has not moved.
        """
        self.answered = []
        oldest, place = self._oldest(), None
        while self._marks and self._marks[0][0] <= oldest:
            place = self._marks.popleft()[1]
        return place

    def _heads(self) -> list[PendingEvent]:
        """Return the events of parked objects that are first in the queues of all their objects."""
        heads = {queue[0].number: queue[0] for queue in self._parked.values() if queue}
        return [
            each
            for each in heads.values()
            if all(self._parked[one][0] is each for one in each.queues)
        ]

    def _park_first(self, event: PendingEvent) -> None:
        for queue in event.queues:
            self._parked.setdefault(queue, deque()).appendleft(event)

    def _park_last(self, event: PendingEvent) -> None:
        for queue in event.queues:
            self._parked.setdefault(queue, deque()).append(event)

    def _put_back(self, events: Iterable[PendingEvent]) -> None:
        back = sorted(events, reverse=True)
        if any(not each.objects for each in back):
            # Parked events of single objects came after it, and are sent again after it.
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
        if ready:  # several documents: others between them may have been put back earlier
            self._ready = deque(sorted([*ready, *self._ready]))

    def _due(self, event: PendingEvent) -> float:
        """Return when an event of a parked object may be sent."""
        parked = self._parking.get(event.object_id)
        return 0.0 if parked is None else parked.due

    def _oldest(self) -> int:
        """Return the number of the oldest unanswered event, or of the next if there is none."""
        first = [queue[0].number for queue in self._parked.values() if queue]
        if self._in_air:
            first.append(next(iter(self._in_air)))
        if self._ready:
            first.append(self._ready[0].number)
        return min(first, default=self._next)
