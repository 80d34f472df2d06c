"""How long events wait for others that the receiver hangs for, in virtual time: the outbox with a
receiver that answers a document after 8 ms, but hangs for documents with events of some objects.

    python bench/culprits.py                       12 culprits of 500 objects, 150 events a second
    python bench/culprits.py --rate 3 --culprits 3

Nothing sleeps and nothing is sent, so every machine prints the same. The events stop after
a minute; a run ends when all innocent events have arrived.
"""

from __future__ import annotations

import argparse
import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from eventlog.errors import ReceiverUnavailable
from eventlog.model import Answer
from eventlog.publisher.send.outbox import Do, Outbox, Step
from eventlog.publisher.send.policy import Document, Rules

_ANSWER, _HANG, _READ = 0.008, 2.0, 0.005
"""Seconds until an answer, until a time-out, and for a look into the log."""
_MINUTE = 60.0


class _Event(NamedTuple):
    number: int
    object: int
    attempt: int = 1

    @property
    def sent_id(self) -> str:
        return f"{self.number}.{self.attempt}"

    @property
    def queues(self) -> tuple[int]:
        return (self.object,)

    def again(self) -> Self:
        return self._replace(attempt=self.attempt + 1)


class Figures(NamedTuple):
    """What came of a run: failures, and after how many seconds innocent events arrived."""

    failures: int
    delays: Sequence[float]

    def __str__(self) -> str:
        shown = (self.delays[int(len(self.delays) * share)] for share in (0.5, 0.9, 0.99))
        times = " | ".join(f"{delay:.1f}" for delay in (*shown, self.delays[-1]))
        return f"{self.failures} | {times}"


@dataclass
class _Run:
    """A publisher with its log and its receiver."""

    objects: int
    culprits: frozenset[int]
    times: Sequence[float]
    """When each event is logged; its number is its place."""
    outbox: Outbox[_Event]
    batch_size: int
    chance: random.Random
    now: float = 0.0
    failures: int = 0
    delays: list[float] = field(default_factory=list)
    read: int = 0
    waiting: dict[int, list[int]] = field(default_factory=dict)
    """The events of each object that were logged and not taken yet."""
    folded: dict[int, list[int]] = field(default_factory=dict)
    """The events that are sent as one, by the first of them."""
    in_air: list[tuple[float, int, Document[_Event]]] = field(default_factory=list)
    batches: int = 0
    sent: int = 0

    def take(self) -> bool:
        """Add what the log has to the outbox, but for objects that wait. Return True if there was
        something."""
        while self.read < len(self.times) and self.times[self.read] <= self.now:
            one = self.chance.randint(1, self.objects)
            self.waiting.setdefault(one, []).append(self.read)
            self.read += 1
        free = [one for one in self.waiting if one not in self.outbox]
        events = []
        for one in free:
            numbers = self.waiting.pop(one)
            self.folded[numbers[0]] = numbers
            events.append(_Event(numbers[0], one))
        events.sort()
        self.batches += bool(events)
        for first in range(0, len(events), self.batch_size):
            part = events[first : first + self.batch_size]
            self.outbox.add([Document((self.batches, first), part, first + 1)])
        return bool(events)

    def begin(self, step: Step[_Event]) -> None:
        if (document := self.outbox.begin(step)) is not None:
            seconds = _HANG if self.hangs(document) else _ANSWER
            self.sent += 1
            heapq.heappush(self.in_air, (self.now + seconds, self.sent, document))

    def hangs(self, document: Document[_Event]) -> bool:
        return not self.culprits.isdisjoint(document.objects)

    def settle(self) -> None:
        ended, _, document = heapq.heappop(self.in_air)
        self.now = max(self.now, ended)
        if self.hangs(document):
            failure = ReceiverUnavailable("no answer", is_suspicious=True)
            failure.seconds = _HANG
            self.failures += 1
            self.outbox.settle(document, failure, self.now)
            return
        for event in document.events:
            numbers = self.folded[event.number]
            self.delays += [self.now - self.times[number] for number in numbers]
        self.outbox.settle(document, Answer(), self.now)

    def cycle(self) -> None:
        """Send until nothing can be sent now."""
        is_empty = False
        while True:
            step = self.outbox.next(self.now, is_empty=is_empty)
            if step.do is Do.SEND:
                self.begin(step)
            elif step.do is Do.SAVE:
                self.outbox.record()
            elif step.do is Do.DOUBT:
                self.outbox.end_round(self.now)
            elif step.do is Do.READ and not self.in_air:
                self.now += _READ
                is_empty = not self.take()
            elif self.in_air:
                self.settle()
            else:
                self.outbox.take_marks()
                self.outbox.record()
                self.outbox.rest()
                return

    def sleep(self) -> None:
        """Let time pass until something can be done."""
        due = self.outbox.next_due(self.now)
        logged = self.times[self.read : self.read + 1]
        found = [*logged, *([] if due is None else [due])]
        self.now = max(self.now, self.outbox.resume_at, min(found, default=self.now))


def measured(seed: int, options: argparse.Namespace) -> Figures:
    """Return the figures of a run."""
    chance = random.Random(seed)
    times, now = [], chance.expovariate(options.rate)
    while now < _MINUTE:
        times.append(now)
        now += chance.expovariate(options.rate)
    culprits = frozenset(chance.sample(range(1, options.objects + 1), options.culprits))
    rules = Rules(options.concurrency, retry_initial=0.2, retry_max=4.0, random=chance.random)
    run = _Run(options.objects, culprits, times, Outbox(rules), options.batch_size, chance)
    while run.read < len(times) or run.now < _MINUTE or _has_innocents(run):
        run.cycle()
        run.sleep()
    return Figures(run.failures, sorted(run.delays))


def _has_innocents(run: _Run) -> bool:
    """Return True if an innocent event waits."""
    left = {*run.waiting, *(event.object for event in run.outbox.events())}
    return not left <= run.culprits


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--culprits", type=int, default=12)
    parser.add_argument("--objects", type=int, default=500)
    parser.add_argument("--rate", type=float, default=150.0, help="events per second")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    print("| run | failures | 50 % after, s | 90 % | 99 % | the last |\n|---|---|---|---|---|---|")
    for seed in range(1, options.rounds + 1):
        print(f"| {seed} | {measured(seed, options)} |", flush=True)


if __name__ == "__main__":
    main()
