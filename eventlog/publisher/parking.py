"""Objects whose events the receiver asked to send again later (spec/event-log.md 8.4, "park")."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from eventlog.core.catalog import ObjectId


@dataclass(slots=True)
class _Parked:
    attempts: int
    until: float
    waiting: bool


@dataclass(slots=True)
class Parking:
    """The parked objects, in memory only: after a restart their events are sent first.

    An object waits until its back-off has passed, is then awake for one cycle, and is released by an answer without
    retry. Waiting ends only between cycles, so that no later event of an object overtakes one that is still
    unanswered. Times are of one monotonic clock, in seconds.
    """

    retry_initial: float
    retry_max: float
    _objects: dict[ObjectId, _Parked] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, object_id: object) -> bool:
        return object_id in self._objects

    def __iter__(self) -> Iterator[ObjectId]:
        return iter(self._objects)

    def park(self, object_id: ObjectId, now: float) -> None:
        """Let the object wait: ``retry_initial`` seconds at first, doubled each time up to ``retry_max``."""
        attempts = self._objects[object_id].attempts + 1 if object_id in self._objects else 1
        self._objects[object_id] = _Parked(attempts, now + back_off(attempts, self.retry_initial, self.retry_max), True)

    def release(self, object_id: ObjectId) -> None:
        """The object was answered without retry."""
        self._objects.pop(object_id, None)

    def is_waiting(self, object_id: ObjectId | None) -> bool:
        """Whether events of the object must not be sent now."""
        parked = self._objects.get(object_id) if object_id is not None else None
        return parked is not None and parked.waiting

    def wake(self, now: float) -> None:
        """End the waiting of the objects whose back-off has passed."""
        for parked in self._objects.values():
            if parked.until <= now:
                parked.waiting = False

    def next_due(self) -> float | None:
        """When the next waiting object is due."""
        return min((parked.until for parked in self._objects.values()), default=None)


def back_off(attempts: int, initial: float, maximum: float) -> float:
    """Seconds to wait after so many attempts in a row: doubling from ``initial``, at most ``maximum``."""
    return float(min(maximum, initial * 2 ** min(attempts - 1, 62)))
