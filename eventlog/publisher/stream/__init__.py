"""Sources that a publisher follows in place of a log: a stream of changes, and from where to read it again; and their
events between being read and being answered.

Of an object one event at most is in the air, in whatever envelope, so that a later one is never beside an earlier one,
and each is sent under one event-id only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from eventlog.errors import ConfigError, EventlogError
from eventlog.model import Change, Event, Verdict
from eventlog.publisher.delivery import Answered, Parking


class SourceAway(EventlogError):
    """The source cannot be read now."""

    code = "source_away"
    cure = "Wait: the publisher opens it again by itself. If it lasts, check the source and [source]."


class SourceLost(EventlogError):
    """The source no longer holds what follows the position, so that to go on would lose changes."""

    code = "source_lost"
    cure = "Put the files back as they were read. If they are gone, load the tables anew and begin at a new position."


class BadToken(ConfigError):
    """A position that is not of this source."""


class Failure(NamedTuple):
    """Something of a source that did not reach the receiver and will not be tried again.

    ``code``: ``receiver``, or that of the error that stood against reading or writing it. ``content``: the event as XDS
    element, or the change as JSON; None where it could not be read.
    """

    event_id: str
    code: str
    message: str
    content: str | None = None


class Read(NamedTuple):
    """A change that was read. ``event_id``: what its events are named after, always the same for the same change."""

    change: Change
    event_id: str


class Mark(NamedTuple):
    """All that came so far need not be read again from ``token`` on (in JSON's terms; None: no place is known yet).

    ``is_idle``: there is no more at the moment; ``rest``: seconds to wait before the next step is asked for.
    """

    token: Any
    is_idle: bool = False
    rest: float = 0.0


Step: TypeAlias = Read | Failure | Mark
"""A failure is a change that cannot be read; the stream goes on behind it."""


class Backlog(NamedTuple):
    """How much a source holds behind a position: so many ``unit``s."""

    number: int
    unit: str


class Source(Protocol):
    """A source of changes.

    ``steps`` reads from behind ``token``, None = from where the source begins, until it is closed; with ``once`` it
    ends where the source ends now. It never blocks for more than some seconds without a step. A step is asked for when
    the one before has been taken, not when it has been answered. Raises SourceAway and DatabaseAway, after which it may
    be called again, SourceLost, FormatError, DatabaseError, ConfigError, of these BadToken for the position.
    """

    def steps(self, token: Any, *, once: bool) -> Generator[Step, None, None]: ...

    def backlog(self, token: Any) -> Backlog | None:
        """What lies behind ``token`` now, None if the source cannot tell. Raises as ``steps``."""
        ...


# --- the events of a source, until they are answered ------------------------------------------------------------------


class PendingEvent(NamedTuple):
    """An event that was read, with its number in the order of the source."""

    number: int
    event: Event

    @property
    def sent_id(self) -> str:
        return self.event.event_id

    @property
    def object_id(self) -> str:
        return self.event.association


class Pending:
    """Events are added, taken by ``envelopes``, and then answered, held or put back before more are taken.

    What is in ``answered`` was answered since the last flush, which alone makes an answer count.
    """

    def __init__(self, parking: Parking[str]) -> None:
        self.answered: Answered[PendingEvent] = []
        self._parking = parking
        self._next = 0
        self._ready: deque[PendingEvent] = deque()
        self._in_air: dict[int, PendingEvent] = {}
        # The events of parked objects, empty while the only one is in the air.
        self._held: dict[str, deque[PendingEvent]] = {}
        self._marks: deque[tuple[int, Any]] = deque()

    @property
    def ready(self) -> int:
        """How many events wait to be sent for the first time, or again without delay."""
        return len(self._ready)

    @property
    def parked(self) -> int:
        """How many objects are parked, or have events that were held back behind a parked one."""
        return len(self._held)

    @property
    def span(self) -> int:
        """How many events were read from the oldest one on that is not answered."""
        return self._next - self._oldest()

    def next_due(self) -> float | None:
        """When the next event that is held may be sent; None if none is held."""
        return min((self._due(object_id) for object_id, queue in self._held.items() if queue), default=None)

    def add(self, event: Event) -> None:
        """An event that was read."""
        self._ready.append(PendingEvent(self._next, event))
        self._next += 1

    def mark(self, token: Any) -> None:
        """When all that was read so far is answered, the source is to be read again from ``token``."""
        if self._marks and self._marks[-1][0] == self._next:
            self._marks.pop()
        self._marks.append((self._next, token))

    def envelopes(self, size: int, most: int, now: float) -> list[list[PendingEvent]]:
        """The next events to send, in their order, in ``most`` envelopes at most: of parked objects whose waiting is
        over, and those that are ready. The former, of which those that are due longest come first, are at most a half
        (one at least) if there are others.

        Those of parked objects among the latter are held on the way.
        """
        self._parking.wake(self._parking.due(now))
        held = [object_id for object_id, queue in self._held.items() if queue]
        due = sorted((each for each in held if not self._parking.is_waiting(each)), key=self._due)
        most_due = max(size * most // 2, 1) if self._ready else size * most
        taken = [self._held[object_id].popleft() for object_id in due[:most_due]]
        objects = {each.object_id for each in taken}
        while self._ready and len(taken) < size * most:
            object_id = self._ready[0].object_id
            if object_id in self._held:
                self._held[object_id].append(self._ready.popleft())
                continue
            if object_id in objects:
                break
            objects.add(object_id)
            taken.append(self._ready.popleft())
        taken.sort()
        self._in_air = {each.number: each for each in taken}
        return [taken[first : first + size] for first in range(0, len(taken), size)]

    def answer(self, verdict: Verdict, events: Sequence[PendingEvent]) -> None:
        """Events that were answered without retry."""
        self.answered.append((verdict, events))
        for each in events:
            del self._in_air[each.number]
            if each.object_id in self._held and not self._held[each.object_id]:
                del self._held[each.object_id]

    def hold(self, event: PendingEvent) -> None:
        """An event whose object is parked now; what follows of the object waits behind it."""
        del self._in_air[event.number]
        self._held.setdefault(event.object_id, deque()).appendleft(event)

    def put_back_unanswered(self) -> None:
        """What was taken, and neither answered nor held, is sent again before all that follows it."""
        self._put_back(self._in_air.values())
        self._in_air = {}

    def forget_answers(self) -> None:
        """The flush has failed: what was answered since the last one is to be sent again."""
        self._put_back([each for _, events in self.answered for each in events])
        self.answered = []

    def flushed(self) -> Any:
        """The answers count. The token up to which all is answered; None if there is none after the last one given."""
        self.answered = []
        oldest, token = self._oldest(), None
        while self._marks and self._marks[0][0] <= oldest:
            token = self._marks.popleft()[1]
        return token

    def _put_back(self, events: Iterable[PendingEvent]) -> None:
        ready = []
        for each in sorted(events, reverse=True):
            if each.object_id in self._held:
                self._held[each.object_id].appendleft(each)
            else:
                ready.append(each)
        if ready:  # of several envelopes, between which others may have been put back before
            self._ready = deque(sorted([*ready, *self._ready]))

    def _due(self, object_id: str) -> float:
        """When the events of an object that are held may be sent."""
        return self._parking[object_id].due if object_id in self._parking else 0.0

    def _oldest(self) -> int:
        """The number of the oldest event that is not answered; of the next one if there is none."""
        first = [queue[0].number for queue in self._held.values() if queue]
        if self._in_air:
            first.append(next(iter(self._in_air)))
        if self._ready:
            first.append(self._ready[0].number)
        return min(first, default=self._next)
