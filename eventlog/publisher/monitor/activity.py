"""What a running publisher is doing and has done, for whoever looks at it from another thread.

The publisher writes here as it works; the server reads. Single fields are replaced, never changed in place, and lists
are bounded, so that a reader needs the lock only for what is collected between two samples.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, NamedTuple

from eventlog.model import Answer, Level, Verdict
from eventlog.publisher.context import Counters
from eventlog.publisher.monitor.look import event_age
from eventlog.publisher.observer import QUEUE_CAP, Doing, Looked, Observer, WaitFor
from eventlog.publisher.sinks import Document

HISTORY_SECONDS: Final = 3600
"""How far back the curves of the status page go."""
_SENT_KEPT: Final = 200
"""Envelopes that ``eventlog tail`` and the page can show."""
_NOTED_EVENTS: Final = 50_000
"""Events of the envelopes whose answers are kept since they are not success; the newest, if there are more."""
_TIMES_KEPT: Final = 10_000
"""Times of envelopes between two samples of which the median is taken; the newest, if there are more."""
_LOOKS_SHARE: Final = 100.0
"""A look that takes long comes seldom: its time, so many times over, passes before the next one."""
_FIRST_CAP: Final = 10_000
"""Rows N that the first look counts at most: it comes before anything is sent."""


class State(NamedTuple):
    """What the publisher does. ``since`` and ``until`` are on the monotonic clock."""

    doing: Doing
    since: float
    reason: str = ""
    until: float | None = None


class Sample(NamedTuple):
    """A point of the curves. ``at`` in seconds since 1970; rates are of the time since the sample before.

    ``envelope_median`` and ``envelope_99`` in seconds, None if no envelope was answered.
    """

    at: float
    rows_per_second: float
    events_per_second: float
    queue_rows: int | None
    oldest_seconds: float | None
    envelope_median: float | None
    envelope_99: float | None


class Sent(NamedTuple):
    """An envelope that was answered. ``at`` in seconds since 1970; ``seconds`` until its answer; ``worst`` of it.

    ``first_id``, ``last_id``: event-ids of its first and its last event.
    """

    at: float
    flight: int
    envelope: int
    events: int
    first_id: str
    last_id: str
    seconds: float
    worst: Verdict


class Noted(NamedTuple):
    """An answer that is not success for every event, with the event-ids of the envelope."""

    sent: Sent
    event_ids: Sequence[str]
    answer: Answer


class Histogram:
    """How many times lay below each bound, as OpenMetrics has it."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """One more time."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """The bounds with the number of times up to each, ``+Inf`` last."""
        reached, buckets = 0, []
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            reached += count
            buckets.append(("+Inf" if bound == float("inf") else f"{bound:g}", float(reached)))
        return buckets


_SHORT: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_LONG: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 86400.0)


@dataclass(slots=True)
class Activity(Observer):
    """The listener of one publisher. ``interval``: seconds between looks that cost a statement.

    ``patience``: seconds within which a publisher that makes any progress says so. ``clock`` and ``wall`` are the
    monotonic clock and the time since 1970.
    """

    counters: Counters
    interval: float
    patience: float
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    state: State = field(init=False)
    is_ready: bool = False
    reconnects: int = 0
    looked_at: Looked | None = None
    looked_time: float | None = None
    flights_since: Mapping[int, float] = field(default_factory=dict)
    started: float = field(init=False)
    progress_time: float = field(init=False)
    back_offs: Mapping[str, int] = field(default_factory=lambda: {who.value: 0 for who in WaitFor})
    windows: Histogram = field(default_factory=lambda: Histogram(_SHORT))
    envelopes: Histogram = field(default_factory=lambda: Histogram(_SHORT))
    delays: Histogram = field(default_factory=lambda: Histogram(_LONG))
    sent: deque[Sent] = field(default_factory=lambda: deque(maxlen=_SENT_KEPT))
    history: deque[Sample] = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _times: deque[float] = field(default_factory=lambda: deque(maxlen=_TIMES_KEPT))
    _sampled: tuple[float, int, int] = field(init=False)
    _noted: deque[Noted] = field(default_factory=deque)
    _noted_events: int = 0
    _event_times: dict[str, str | None] = field(default_factory=dict)
    _event_times_due: float = float("-inf")
    _pending: list[str | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        now = self.clock()
        self.state = State(Doing.CONNECTING, now)
        self.started = self.wall()
        self.progress_time = now
        self.history = deque(maxlen=max(1, int(HISTORY_SECONDS / self.interval)))
        self._sampled = (now, 0, 0)

    # --- what the publisher tells ---

    def does(self, doing: Doing, reason: str = "") -> None:
        # A short try between two waits is part of the waiting, and a look at an empty queue part of the rest: how long
        # these last is what people want to know.
        if doing is Doing.PUBLISHING and self.state.doing is Doing.RESTING:
            return
        if doing is Doing.RESTING or self.state.doing is not Doing.WAITING:
            self._enter(State(doing, self.clock(), reason))

    def _works(self) -> None:
        if self.state.doing is Doing.RESTING:
            self._enter(State(Doing.PUBLISHING, self.clock()))

    def waits(self, who: WaitFor, reason: str, until: float) -> None:
        self.back_offs = {**self.back_offs, who.value: self.back_offs[who.value] + 1}
        self._enter(State(Doing.WAITING, self.clock(), f"the {who.value}: {reason}", until))

    def _enter(self, state: State) -> None:
        self.state = state._replace(since=self.state.since) if self.state.doing is state.doing else state

    def connected(self, *, again: bool) -> None:
        self.is_ready = True
        self.reconnects += again
        self.progressed()

    def disconnected(self) -> None:
        self.is_ready = False

    def progressed(self) -> None:
        self.progress_time = self.clock()
        if self.state.doing is Doing.WAITING:
            self._enter(State(Doing.PUBLISHING, self.progress_time))

    def window_read(self, seconds: float, groups: int) -> None:
        self.windows.observe(seconds)
        if groups:
            self._works()

    def flight_begins(self, number: int, event_times: Mapping[str, str | None]) -> None:
        self._works()
        self._event_times = dict(event_times)
        if event_times:
            self._event_times_due = self.clock() + self.interval

    @property
    def wants_event_times(self) -> bool:
        return self.clock() >= self._event_times_due

    def answered(self, document: Document, answer: Answer, seconds: float) -> None:
        self._works()
        flight, envelope, event_ids = document[:3]
        worst, first_id = answer.worst(event_ids), event_ids[0]
        sent = Sent(self.wall(), flight, envelope, len(event_ids), first_id, event_ids[-1], seconds, worst)
        with self._lock:
            self.envelopes.observe(seconds)
            self._times.append(seconds)
            self.sent.append(sent)
            if worst.level is not Level.SUCCESS:
                self._noted.append(Noted(sent, event_ids, answer))
                self._noted_events += len(event_ids)
                while self._noted_events > _NOTED_EVENTS and len(self._noted) > 1:
                    self._noted_events -= len(self._noted.popleft().event_ids)
            if first_id in self._event_times and answer.verdict(first_id).level is not Level.RETRY:
                event_time = self._event_times.pop(first_id)
                if answer.is_pending:
                    self._pending.append(event_time)
                else:
                    self._observe_delay(event_time)

    def flushed(self) -> None:
        with self._lock:
            for event_time in self._pending:
                self._observe_delay(event_time)
            self._pending.clear()

    def _observe_delay(self, event_time: str | None) -> None:
        """One more time from an event_time until now, by the log's clock as it was read last."""
        looked = self.looked_at
        if looked is None or looked.clock is None or self.looked_time is None:
            return
        age = event_age(event_time, looked.clock + timedelta(seconds=self.clock() - self.looked_time))
        if age is not None:
            self.delays.observe(max(0.0, age))

    def look_due(self) -> float | None:
        if self.looked_at is None or self.looked_time is None:
            return 0.0
        pause = max(self.interval, _LOOKS_SHARE * self.looked_at.seconds)
        return max(0.0, self.looked_time + pause - self.clock())

    @property
    def queue_cap(self) -> int:
        # The first look is for flights and the clock: a publisher with a short queue has done it soon.
        return QUEUE_CAP if self.looked_at is not None else _FIRST_CAP

    def looked(self, looked: Looked) -> None:
        now = self.clock()
        self.flights_since = {flight.number: self.flights_since.get(flight.number, now) for flight in looked.flights}
        self.looked_at, self.looked_time = looked, now

    def flight_seconds(self, number: int) -> float:
        """For how long a flight has been seen that is not done."""
        now = self.clock()
        return now - self.flights_since.get(number, now)

    # --- what the server asks ---

    def take_sample(self) -> None:
        """Add a point to the curves, of what was done since the one before."""
        now = self.clock()
        before, rows_before, events_before = self._sampled
        rows, events = self.counters.rows_published, self.counters.events_sent
        with self._lock:
            times = sorted(self._times)
            self._times.clear()
        seconds = max(now - before, 1e-9)
        looked = self.looked_at
        self.history.append(
            Sample(
                round(self.wall(), 1),
                round((rows - rows_before) / seconds, 1),
                round((events - events_before) / seconds, 1),
                None if looked is None else looked.queue_rows,
                None if looked is None else 0.0 if looked.queue_rows == 0 else looked.oldest_seconds,
                times[len(times) // 2] if times else None,
                times[min(len(times) - 1, len(times) * 99 // 100)] if times else None,
            )
        )
        self._sampled = (now, rows, events)

    def newest_sent(self) -> list[Sent]:
        """The envelopes that were answered lately, the newest first."""
        with self._lock:
            return list(reversed(self.sent))

    def answers_to(self, event_id: str) -> list[tuple[Sent, Verdict]]:
        """What the receiver lately said of an event beside success, the newest first. ``event_id``: as the log has it,
        so that sendings under a later event-id (spec/event-log.md 7.4) are among them.
        """
        with self._lock:
            noted = list(reversed(self._noted))
        found = [
            (sent, answer.verdict(sent_id))
            for sent, event_ids, answer in noted
            for sent_id in event_ids
            if sent_id == event_id or sent_id.startswith(f"{event_id}.")
        ]
        return [(sent, verdict) for sent, verdict in found if verdict.level is not Level.SUCCESS]

    @property
    def is_alive(self) -> bool:
        """Whether there was progress within ``patience``, or the publisher waits for somebody who is away."""
        waits = self.state.doing is Doing.WAITING
        return waits or self.clock() - self.progress_time <= self.patience

    def in_words(self) -> str:
        """The state as a sentence for people."""
        now = self.clock()
        doing, since, reason, until = self.state
        words = {
            Doing.CONNECTING: "connecting to the database",
            Doing.PUBLISHING: "publishing",
            Doing.RESTING: "resting: the queue is empty",
            Doing.WAITING: f"waiting for {now - since:.0f} s",
            Doing.STOPPED: "stopped",
        }[doing]
        if reason:
            words = f"{words}, {reason}" if doing is Doing.RESTING else f"{words}: {reason}"
        if doing is Doing.WAITING and until is not None:
            words = f"{words}; next try in {max(0.0, until - now):.0f} s"
        return words
