"""Objects whose events are sent again later (spec/event-log.md 8.4)."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable
from operator import itemgetter
from typing import NamedTuple, TypeVar

from eventlog.core.clock import Random, chance
from eventlog.errors import number_of

K = TypeVar("K", bound=Hashable)


class Parked(NamedTuple):
    """The state of a parked object."""

    attempts: int
    """The number of attempts with the object's event."""
    due: float
    """The time when the event is due."""
    reason: str
    """The last answer, for people."""
    event_id: str = ""
    """The event-id of the event."""
    alone: int = 0
    """The number of attempts with only this event, if ``answers`` is not None."""
    answers: int | None = None
    """The number of documents answered before, if the receiver failed for the event (``suspects``),
    else None.
    """


class Parking(dict[K, Parked]):
    """The parked objects. Their attempts are recorded (``is_recorded``), so that they continue to
    wait after a restart.

    An object waits until its back-off has passed and it is woken; an answer other than retry
    releases it. Objects are woken only between cycles. They begin to wait only when their own event
    is answered or when their next event would be sent, never while one of their events is being
    sent. So an object with an unsent recorded event is never free, and no later event overtakes an
    unanswered one.

    Times are of one monotonic clock, in seconds. No object that the receiver failed for is due
    before ``rests_until``.
    """

    def __init__(self, retry_initial: float, retry_max: float, random: Random = chance) -> None:
        super().__init__()
        self._pauses = retry_initial, retry_max
        self._random = random
        self._awake: set[K] = set()
        self.rests_until = 0.0

    def park(self, object_id: K, now: float, reason: str = "", event_id: str = "") -> None:
        """Let the object wait for its ``back_off``: ``retry_initial`` seconds at first,
        ``retry_max`` at most.
        """
        attempts = self[object_id].attempts + 1 if object_id in self else 1
        self.put(object_id, Parked(attempts, self.due_after(attempts, now), reason, event_id))

    def put(self, object_id: K, parked: Parked) -> None:
        """Let the object wait in this state."""
        self._awake.discard(object_id)
        self[object_id] = parked

    def due_after(self, attempts: int, now: float) -> float:
        """Return the time when an object is due after so many attempts with its event."""
        return now + back_off(attempts, *self._pauses, self._random)

    def is_recorded(self, attempts: int) -> bool:
        """Return True if the in-flight entry records an object after so many attempts: while the
        pauses still grow, and at the powers of two. So a receiver that refuses an event for days
        causes few writes.
        """
        is_power = attempts & (attempts - 1) == 0
        return is_power or back_off(attempts, *self._pauses) > back_off(attempts - 1, *self._pauses)

    def to_record(self, object_id: K | None, event_id: str) -> Parked | None:
        """Return the parked state of an object whose event got retry, if the in-flight entry
        records it: from the second attempt on.
        """
        parked = None if object_id is None else self.get(object_id)
        if parked is None or parked.event_id != event_id or parked.attempts < 2:
            return None
        return parked if self.is_recorded(parked.attempts) else None

    @property
    def longest_pause(self) -> float:
        """The longest pause before the next attempt, in seconds."""
        return self._pauses[1]

    def release(self, object_id: K) -> None:
        """Release an object whose event got an answer other than retry."""
        self.pop(object_id, None)

    def is_waiting(self, object_id: K | None) -> bool:
        """Return True if events of the object must not be sent now."""
        return object_id in self and object_id not in self._awake

    def due(self, now: float, besides: Container[K] = ()) -> list[K]:
        """Return the objects, without ``besides``, whose back-off has passed, those that have been
        due longest first.

        Objects that the receiver failed for come only with those that were parked together with the
        longest due of them, and not before ``rests_until``.
        """
        due = sorted(
            (
                (parked.due, object_id)
                for object_id, parked in self.items()
                if parked.due <= now and object_id not in besides
            ),
            key=itemgetter(0),
        )
        suspects = [at for at, object_id in due if self[object_id].answers is not None]
        if not suspects:
            return [object_id for _, object_id in due]
        chosen = suspects[0] if now >= self.rests_until else None
        return [one for at, one in due if self[one].answers is None or at == chosen]

    def wake(self, objects: Iterable[K]) -> None:
        """End the wait of these objects; all other parked objects wait."""
        self._awake = set(objects)

    def next_due(self) -> float | None:
        """Return the time when the next parked object is due; None if none is parked."""
        return min(
            (
                parked.due if parked.answers is None else max(parked.due, self.rests_until)
                for parked in self.values()
            ),
            default=None,
        )

    def next_untried(self) -> float | None:
        """Return the time when the next object is due for which the receiver failed and whose event
        was not tried alone yet; None if there is none.
        """
        due = [one.due for one in self.values() if one.answers is not None and not one.alone]
        return max(min(due), self.rests_until) if due else None

    def too_many(self, most: int) -> str:
        """Return a sentence if more than ``most`` objects are parked, otherwise the empty text. A
        document, or a part, that the receiver failed for counts as one object: the culprit's.
        """
        if len(self) <= most:
            return ""
        counted = {
            object_id if parked.answers is None or parked.alone else parked.due
            for object_id, parked in self.items()
        }
        return f"more than {number_of(most, 'object')} parked" if len(counted) > most else ""


def back_off(attempts: int, initial: float, maximum: float, random: Random = lambda: 1.0) -> float:
    """Return the seconds to wait after so many attempts in a row: doubling from ``initial``, at
    most ``maximum``.

    ``random`` removes up to half of it, so that processes that failed at the same time do not try
    again at the same time; the default removes nothing.
    """
    return float(min(maximum, initial * 2 ** min(attempts - 1, 62))) * (1 + random()) / 2
