"""The events of a followed source from reading to answer.

At most one event of an object is being sent, in whatever document, so that events of an object
never overtake each other, and each event has one event-id. An event with a new key belongs to two
objects. An event that concerns every object, such as a TRUNCATE, is sent alone.

A document that the receiver has failed for stays one document: it is sent again unchanged until it
is answered or divided into halves (spec/event-log.md 8.4, *Suspect documents*).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

from eventlog.model import Change, EventResult
from eventlog.publisher.ledger.delivery import Tried, is_part
from eventlog.publisher.send.parking import Parking
from eventlog.publisher.send.sending import Answered
from eventlog.publisher.stream import Described

ObjectId: TypeAlias = tuple[Any, ...]
"""The object of an event: schema, table and key of a row."""

_EVERY: Final[ObjectId] = ()
"""The object_id that stands for all objects."""

BEFORE_ALL: Final = -1
"""A number that every position has passed."""

_STEP: Final = 2
"""The distance between the numbers of two events: a recorded event may become two events in another
format.
"""


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
    piece: Any
    """The format's text or record of ``change``."""
    numbered: str = ""
    """The newest number before the event, for a format that numbers changes."""
    described: Described | None = None
    """The source's description of the change's table, None if it gave none."""

    @property
    def object_id(self) -> ObjectId:
        """The object under which the event is parked."""
        return self.objects[0] if self.objects else _EVERY

    @property
    def queues(self) -> tuple[ObjectId, ...]:
        """The objects whose later events must wait for this event."""
        return self.objects or (_EVERY,)


class FailedDocument(NamedTuple):
    """A document that the receiver has failed for: those of its events that have no answer yet."""

    events: Sequence[PendingEvent]
    tried: Tried | None = None
    """The attempts, None = they are not recorded yet."""


class Passes(Enum):
    """The events that the position may pass before they are answered, because they are recorded."""

    ANSWERED = "none: it stays before every event without an answer"
    PARKED = "those of parked objects, and all later events of these objects"
    ALL = "all: the receiver fails for a document, and answers no other one"


class Pending:
    """The events that are not answered yet. They are added, selected by ``documents``, and then
    answered, parked or put back before more are selected.

    ``answered`` has the events answered since the last flush; only a flush makes an answer final.
    ``size`` is the number of events without an answer. The saved position has passed the events
    with numbers below ``passed``: those of them that have no answer are recorded with it.
    """

    def __init__(self, parking: Parking[ObjectId]) -> None:
        self.answered: Answered[PendingEvent] = []
        self.size = self.passed = 0
        self._parking = parking
        self._next = 0
        self._ready: deque[PendingEvent] = deque()
        self._in_progress: dict[int, PendingEvent] = {}
        # The later events of parked objects and failed documents; a queue is empty while its only
        # event is being sent or is in a failed document. An event of two objects is in both queues.
        self._parked: dict[ObjectId, deque[PendingEvent]] = {}
        self._failed: dict[int, FailedDocument] = {}  # by the number of the first event
        self._marks: deque[tuple[int, ReadPosition]] = deque()

    @property
    def ready(self) -> int:
        """The number of events that wait for their first attempt or for an immediate repetition."""
        return len(self._ready)

    @property
    def parked(self) -> int:
        """The number of objects that are parked, or have events that wait for a parked object."""
        return len(self._parked)

    def next_due(self) -> float | None:
        """Return when the next event of a parked object may be sent; None if there is none."""
        failed = (document.events[0] for document in self._failed.values())
        if any(each.object_id not in self._parking for each in (*self._heads(), *failed)):
            return 0.0
        return self._parking.next_due()

    @property
    def next_number(self) -> int:
        """The number of the next event that is read."""
        return self._next

    def take_number(self) -> int:
        """Return the number of a change that makes no event."""
        number = self._next
        self._next += _STEP
        return number

    def add(
        self,
        event_id: str,
        objects: tuple[ObjectId, ...],
        change: Change,
        piece: Any,
        numbered: str = "",
        described: Described | None = None,
    ) -> None:
        """Add an event that was read."""
        number = self.take_number()
        self._ready.append(
            PendingEvent(number, event_id, objects, change, piece, numbered, described)
        )
        self.size += 1

    def mark(self, place: ReadPosition) -> None:
        """Record that the source can be read again from ``place`` once all events so far are
        answered.
        """
        if self._marks and self._marks[-1][0] == self._next:
            self._marks.pop()
        self._marks.append((self._next, place))

    def documents(
        self, size: int, most: int, due: Iterable[ObjectId], *, may_try: bool = True
    ) -> list[list[PendingEvent]]:
        """Return the next events to send in at most ``most`` documents: failed documents and events
        of parked objects whose wait is over, and ready events, in their order.

        Events that are sent again are ordered by how long they have been due. If there are ready
        events, they take at most half of the places (at least one). Ready events of parked objects
        are parked. The waits of the objects ``due`` end now. Without ``may_try`` no part of a
        failed document is selected.
        """
        self._parking.wake(due)
        again = max(most // 2, 1) if self._ready else most
        failed = [each for each in self._failed_due() if may_try or not is_part(each.tried)]
        documents = [list(each.events) for each in failed[:again]]
        left = size * (most - len(documents))
        chosen: list[PendingEvent] = []
        if left:
            again = size * most - left
            chosen = self._take_due(max(size * most // 2 - again, 1) if self._ready else left)
            self._take_ready(chosen, left)
            chosen.sort()
        documents += [chosen[first : first + size] for first in range(0, len(chosen), size)]
        self._in_progress = {each.number: each for each in chosen}
        self._in_progress |= {each.number: each for events in documents for each in events}
        return documents

    def _failed_due(self) -> list[FailedDocument]:
        """Return the failed documents none of whose objects wait, the longest due first."""
        waits = self._parking.is_waiting
        return sorted(
            (
                document
                for document in self._failed.values()
                if not any(waits(event.object_id) for event in document.events)
            ),
            key=lambda document: self._due(document.events[0]),
        )

    def _take_due(self, most: int) -> list[PendingEvent]:
        """Take the events of parked objects whose wait is over, out of their queues."""
        due = sorted(
            (each for each in self._heads() if not self._parking.is_waiting(each.object_id)),
            key=self._due,
        )
        for event in due[:most]:
            for queue in event.queues:
                self._parked[queue].popleft()
        return due[:most]

    def _take_ready(self, chosen: list[PendingEvent], most: int) -> None:
        """Add ready events to the selected ones, up to ``most`` in all. Stop before an object would
        occur twice; an event without a single object is selected alone.
        """
        objects = {queue for event in chosen for queue in event.queues}
        while self._ready and len(chosen) < most and _EVERY not in self._parked:
            event = self._ready[0]
            if not event.objects and (chosen or self._parked):
                return  # it is sent when all earlier events are answered
            waits = self._parking.is_waiting(event.object_id)  # as it was before a restart
            if waits or any(queue in self._parked for queue in event.queues):
                self.park_last(self._ready.popleft())
                continue
            if not objects.isdisjoint(event.queues):
                return
            objects.update(event.queues)
            chosen.append(self._ready.popleft())
            if not event.objects:
                return

    # --- after a document was sent ---

    def attempts_at(self, events: Sequence[PendingEvent]) -> Tried | None:
        """Return the attempts at a document that is a part of a failed one, None for another."""
        document = self._failed.get(events[0].number)
        return document.tried if document is not None and is_part(document.tried) else None

    def answer(self, result: EventResult, events: Sequence[PendingEvent]) -> None:
        """Record a final answer to events."""
        self.answered.append((result, events))
        self._done(events)

    def give_up(self, event: PendingEvent) -> None:
        """Record that an event is not sent again although it has no answer."""
        self._done([event])

    def _done(self, events: Sequence[PendingEvent]) -> None:
        self.size -= len(events)
        self._leave_failed(events)
        for each in events:
            del self._in_progress[each.number]
            for queue in each.queues:
                if queue in self._parked and not self._parked[queue]:
                    del self._parked[queue]

    def park(self, event: PendingEvent) -> None:
        """Put an event into its parked objects' queues; their later events wait for it."""
        del self._in_progress[event.number]
        self._leave_failed([event])
        self._park_first(event)

    def fail(
        self,
        events: Sequence[PendingEvent],
        tried: Tried | None = None,
    ) -> None:
        """Keep events as one document that the receiver has failed for, with these attempts.

        Events that are answered or parked are left out.
        """
        failed = {each.number for document in self._failed.values() for each in document.events}
        events = [
            each for each in events if each.number in self._in_progress or each.number in failed
        ]
        if not events:
            return
        self._leave_failed(events)
        self._failed[events[0].number] = FailedDocument(events, tried)
        for each in events:
            self._in_progress.pop(each.number, None)
            for queue in each.queues:
                self._parked.setdefault(queue, deque())

    def keep_failed(self, events: Sequence[PendingEvent]) -> None:
        """Keep events as one document that the receiver has failed for, unless they are such a
        document already, or are in parts of one.
        """
        failed = {each.number for document in self._failed.values() for each in document.events}
        if failed.isdisjoint(each.number for each in events):
            self.fail(events)

    def is_set_aside(self, events: Sequence[PendingEvent]) -> bool:
        """Return True if selected events were not sent because another document must be answered
        first.
        """
        return any(
            each.number in self._in_progress and self._parking.is_waiting(each.object_id)
            for each in events
        )

    def failed_with(self, sent_ids: frozenset[str]) -> Sequence[PendingEvent]:
        """Return the events of the failed document that has these event-ids."""
        for document in self._failed.values():
            if any(each.sent_id in sent_ids for each in document.events):
                return document.events
        return ()

    def _leave_failed(self, events: Sequence[PendingEvent]) -> None:
        """Take events out of their failed documents."""
        if not self._failed:
            return
        gone = {each.number for each in events}
        for number, document in list(self._failed.items()):
            rest = [each for each in document.events if each.number not in gone]
            if len(rest) < len(document.events):
                del self._failed[number]
                if rest:
                    self._failed[rest[0].number] = document._replace(events=rest)

    def put_back_unanswered(self) -> None:
        """Put back the events without an answer that are not parked, so that they are sent before
        all later ones.
        """
        failed = {each.number for document in self._failed.values() for each in document.events}
        self._put_back([each for each in self._in_progress.values() if each.number not in failed])
        self._in_progress = {}

    def forget_answers(self) -> None:
        """Put back the events answered since the last flush, because the flush has failed."""
        again = [each for _, events in self.answered for each in events]
        self.answered = []
        self.size += len(again)
        self._put_back(again)

    # --- the position ---

    def flushed(self, passes: Passes = Passes.ANSWERED) -> ReadPosition | None:
        """Make the answers final, and return the newest place to which the position may move; None
        if it stays.

        Every event before this place is answered, or may be passed (``passes``) and is recorded
        with the position (``recorded``).
        """
        self.answered = []
        first, place = self._first_not_passed(passes), None
        while self._marks and self._marks[0][0] <= first:
            self.passed, place = self._marks.popleft()
        return place

    def recorded(self) -> Iterator[FailedDocument]:
        """Yield the events without an answer that the position has passed: failed documents, and
        every other event as a separate document.
        """
        failed: set[int] = set()
        for document in self._failed.values():
            failed.update(each.number for each in document.events)
            events = [each for each in document.events if each.number < self.passed]
            if events:
                yield document._replace(events=events)
        for each in self._unanswered():
            if each.number < self.passed and each.number not in failed:
                yield FailedDocument([each])

    def restore(self, document: FailedDocument) -> None:
        """Add a document that was recorded, before events are read. Its events are in the order of
        the source.
        """
        self.pass_over(document.events[-1].number)
        self.size += len(document.events)
        if document.tried is None:
            self._ready.extend(document.events)
            return
        self._in_progress = {each.number: each for each in document.events}
        self.fail(document.events, document.tried)

    def pass_over(self, number: int) -> None:
        """Give greater numbers than this one to the events that are read from now on."""
        self._next = self.passed = max(self._next, number + _STEP)

    def _first_not_passed(self, passes: Passes) -> int:
        """Return the number of the oldest unanswered event that the position cannot pass, or of the
        next event if there is none.
        """
        if passes is Passes.ALL:
            return self._next
        waiting: set[int] = set()
        if passes is Passes.PARKED:
            waiting = {each.number for queue in self._parked.values() for each in queue}
            for document in self._failed.values():
                if is_part(document.tried) or document.events[0].object_id in self._parking:
                    waiting.update(each.number for each in document.events)
        return min(
            (
                each.number
                for each in self._unanswered()
                if each.number >= self.passed and each.number not in waiting
            ),
            default=self._next,
        )

    def _unanswered(self) -> Iterator[PendingEvent]:
        """Yield each event without an answer once."""
        failed: set[int] = set()
        for document in self._failed.values():
            failed.update(each.number for each in document.events)
            yield from document.events
        yield from (each for each in self._in_progress.values() if each.number not in failed)
        for one, queue in self._parked.items():
            yield from (each for each in queue if each.queues[0] == one)
        yield from self._ready

    # --- queues of parked objects ---

    def _heads(self) -> list[PendingEvent]:
        """Return the events of parked objects that are first in the queues of all their objects."""
        failed = {
            queue
            for document in self._failed.values()
            for each in document.events
            for queue in each.queues
        }
        heads = {queue[0].number: queue[0] for queue in self._parked.values() if queue}
        return [
            each
            for each in heads.values()
            if failed.isdisjoint(each.queues)
            and all(self._parked[one][0] is each for one in each.queues)
        ]

    def _park_first(self, event: PendingEvent) -> None:
        for queue in event.queues:
            self._parked.setdefault(queue, deque()).appendleft(event)

    def park_last(self, event: PendingEvent) -> None:
        for queue in event.queues:
            self._parked.setdefault(queue, deque()).append(event)

    def _put_back(self, events: Sequence[PendingEvent]) -> None:
        if not events:
            return
        queues = {queue for each in events for queue in each.queues}
        later = [
            each
            for document in self._failed.values()
            for each in document.events
            if not each.objects or not queues.isdisjoint(each.queues)
        ]
        self._leave_failed(later)  # they follow the events that are put back
        later += self._parked.pop(_EVERY, ())
        back = sorted([*events, *later], reverse=True)
        if any(not each.objects for each in back):
            # Parked events of single objects came after it, and are sent again after it.
            waiting = {each.number: each for queue in self._parked.values() for each in queue}
            waiting |= {
                each.number: each for document in self._failed.values() for each in document.events
            }
            for each in waiting.values():
                self._parking.release(each.object_id)
            self._parked, self._failed = {}, {}
            back = sorted([*back, *waiting.values()], reverse=True)
        ready = []
        for each in back:
            if any(queue in self._parked for queue in each.queues):
                self._park_first(each)
            else:
                ready.append(each)
        if ready:  # several documents: others in between may have been put back earlier
            self._ready = deque(sorted([*ready, *self._ready]))

    def _due(self, event: PendingEvent) -> float:
        """Return when an event of a parked object may be sent."""
        parked = self._parking.get(event.object_id)
        return 0.0 if parked is None else parked.due
