"""The events of a source between being read and being answered, and how far all of them have been answered.

Of an object one event at most is in the air, in whatever envelope, so that a later one is never beside an earlier one,
and each is sent under one event-id only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from eventlog.model import Event
from eventlog.publisher.wake import back_off


class Sending(NamedTuple):
    """An event on its way, with its number in the order of the source."""

    number: int
    event: Event

    @property
    def object_id(self) -> str:
        """The object that it is about."""
        return self.event.association


@dataclass(slots=True)
class _Held:
    """The events of a parked object, empty while the only one is in the air, and when the first may be sent again."""

    queue: deque[Sending] = field(default_factory=deque)
    attempts: int = 0
    until: float = 0.0


@dataclass(slots=True)
class Pending:
    """Events are added, taken by ``envelopes``, and then each is put back, parked or answered before more are taken.

    ``retry_initial``, ``retry_max``: back-off of a parked object in seconds; times are of one monotonic clock. What is
    in ``answered`` was answered since the last flush, which alone makes an answer count.
    """

    retry_initial: float
    retry_max: float
    answered: list[Sending] = field(default_factory=list)
    _next: int = 0
    _ready: deque[Sending] = field(default_factory=deque)
    _held: dict[str, _Held] = field(default_factory=dict)
    _marks: deque[tuple[int, Any]] = field(default_factory=deque)

    @property
    def ready(self) -> int:
        """How many events wait to be sent for the first time, or again without delay."""
        return len(self._ready)

    @property
    def parked(self) -> int:
        """How many objects are parked."""
        return len(self._held)

    @property
    def span(self) -> int:
        """How many events were read from the oldest one on that is not answered."""
        return self._next - self._oldest()

    def next_due(self) -> float | None:
        """When the next event of a parked object may be sent; None if none is parked."""
        return min((held.until for held in self._held.values() if held.queue), default=None)

    def add(self, event: Event) -> None:
        """An event that was read."""
        self._ready.append(Sending(self._next, event))
        self._next += 1

    def mark(self, token: Any) -> None:
        """When all that was read so far is answered, the source is to be read again from ``token``."""
        if self._marks and self._marks[-1][0] == self._next:
            self._marks.pop()
        self._marks.append((self._next, token))

    def envelopes(self, size: int, most: int, now: float) -> list[list[Sending]]:
        """The next events to send, in their order, in ``most`` envelopes at most: of parked objects whose waiting is
        over, and those that are ready.

        Those of parked objects among the latter are held on the way.
        """
        due = [held.queue for held in self._held.values() if held.queue and held.until <= now]
        taken = [queue.popleft() for queue in due[: size * most]]
        objects = {sending.object_id for sending in taken}
        while self._ready and len(taken) < size * most:
            object_id = self._ready[0].object_id
            if object_id in self._held:
                self._held[object_id].queue.append(self._ready.popleft())
                continue
            if object_id in objects:
                break
            objects.add(object_id)
            taken.append(self._ready.popleft())
        taken.sort()
        return [taken[first : first + size] for first in range(0, len(taken), size)]

    def put_back(self, sendings: Iterable[Sending]) -> None:
        """Events that were taken or answered and are to be sent again, before all that follows them."""
        ready = []
        for sending in sorted(sendings, reverse=True):
            held = self._held.get(sending.object_id)
            if held is None:
                ready.append(sending)
            else:
                held.queue.appendleft(sending)
        if ready:  # of several envelopes, between which others may have been put back before
            self._ready = deque(sorted([*ready, *self._ready]))

    def park(self, sending: Sending, now: float) -> None:
        """An event that is to be sent again later; what follows of its object waits behind it."""
        held = self._held.setdefault(sending.object_id, _Held())
        held.queue.appendleft(sending)
        held.attempts += 1
        held.until = now + back_off(held.attempts, self.retry_initial, self.retry_max)

    def answer(self, sending: Sending) -> None:
        """An event that was answered without retry."""
        self.answered.append(sending)
        held = self._held.get(sending.object_id)
        if held is None:
            return
        if held.queue:
            held.attempts, held.until = 0, 0.0
        else:
            del self._held[sending.object_id]

    def forget_answers(self) -> None:
        """The flush has failed: what was answered since the last one is to be sent again."""
        answered, self.answered = self.answered, []
        self.put_back(answered)

    def flushed(self) -> Any:
        """The answers count. The token up to which all is answered; None if there is none after the last one given."""
        self.answered = []
        oldest, token = self._oldest(), None
        while self._marks and self._marks[0][0] <= oldest:
            token = self._marks.popleft()[1]
        return token

    def _oldest(self) -> int:
        """The number of the oldest event that is not answered; of the next one if there is none."""
        first = [held.queue[0].number for held in self._held.values() if held.queue]
        if self._ready:
            first.append(self._ready[0].number)
        return min(first, default=self._next)
