"""The state and the history of a running publisher or backlog job, for readers in other threads.

The publisher writes here while it works, a job is queried for its stage and its progress, and the
server reads. Single fields are replaced, never changed in place, and lists are bounded. So a reader
needs the lock only for the values that are collected between two samples.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from itertools import accumulate
from types import MappingProxyType
from typing import Final, NamedTuple

from eventlog.core.clock import unix_time
from eventlog.errors import ReceiverUnavailable, number_of
from eventlog.model import Answer, Document, Level
from eventlog.publisher.context.context import Counters
from eventlog.publisher.context.observer import (
    NO_ANSWER,
    NO_DIFFERENCES,
    QUEUE_CAP,
    Differences,
    Doing,
    JobProgress,
    Measured,
    Observer,
    Outcome,
    WaitFor,
    event_age,
)
from eventlog.publisher.ledger.delivery import DeliveryInfo
from eventlog.publisher.monitor.attempts import Attempts
from eventlog.publisher.run.health import (
    SECONDS_A_DAY,
    Facts,
    Health,
    Waiting,
    growth_in_a_day,
    judge,
)
from eventlog.publisher.run.liveness import LivenessClock
from eventlog.sql.doctor import Limits

HISTORY_SECONDS: Final = 3600
"""The time that the curves of the status page cover."""
_SENT_KEPT: Final = 2000
"""The number of documents that ``eventlog tail`` and the page can show."""
_TIMES_KEPT: Final = 10_000
"""The maximum number of times of documents that are kept between two samples, for the median of
these times. The newest times are kept.
"""
_MEASURING_SHARE: Final = 100.0
"""The pause after a measurement is at least this many times its duration, so that slow measurements
are rare.
"""
_LIMITS: Final = Limits()
_SIZE_INTERVAL: Final = 600.0
"""The seconds between two kept sizes of the log."""
_SIZES_KEPT: Final = 36
"""How many sizes of the log are kept: the sizes of six hours."""
_QUIET: Final = (Doing.RESTING, Doing.PAUSED)
"""The states in which the publisher sends nothing, and waits for nobody."""
_FIRST_CAP: Final = 10_000
"""The maximum number of rows of status N that the first measurement counts, since the measurement
happens before anything is sent.
"""


class ActivityState(NamedTuple):
    """The state of the publisher."""

    doing: Doing
    since: float
    """The time on the monotonic clock at which the state began."""
    reason: str = ""
    until: float | None = None
    """The time on the monotonic clock at which the state ends."""
    in_short: str = ""
    """The reason without the receiver's words, empty if there is no such text."""
    waits_for: WaitFor | None = None
    advice: str = ""
    """The option to correct, as in ``ReceiverUnavailable``."""


class Sample(NamedTuple):
    """A point of the curves."""

    at: float
    """The time in seconds since 1970."""
    rows_per_second: float
    events_per_second: float
    """The rates over the time since the previous sample."""
    queue_rows: int | None
    oldest_seconds: float | None = None
    send_duration_median: float | None = None
    send_duration_99: float | None = None
    """The times of documents in seconds, None if no document was answered."""
    consumers: Mapping[str, int] = MappingProxyType({})
    """The number of rows that each consumer has not done yet."""


class Sent(NamedTuple):
    """An attempt to send a document."""

    at: float
    """The time in seconds since 1970."""
    delivery: int
    document: int
    events: int
    first_id: str
    last_id: str
    """The event-ids of the document's first and last event."""
    seconds: float
    """The time until the document's answer, or until the attempt failed."""
    level: str
    """The worst level in the answer, or ``NO_ANSWER``."""
    reason: str
    """The receiver's message with this level, or why there is no answer."""


class Histogram:
    """The number of durations up to each bound, as in OpenMetrics."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Return the bounds with the number of times up to each, ``+Inf`` last."""
        names = [*(f"{bound:g}" for bound in self.bounds), "+Inf"]
        return [*zip(names, map(float, accumulate(self.counts)), strict=True)]


_SHORT: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_LONG: Final = (
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    900.0,
    3600.0,
    86400.0,
)


class Monitored(ABC):
    """A process that the monitor watches: a publisher, or a job.

    ``interval`` is the seconds between the samples in ``history``. ``liveness`` shows whether the
    process is alive, and has the monotonic clock; ``wall`` is the time since 1970. ``is_ready`` is
    True once the process has the log, the source or Spark that it works on.
    """

    def __init__(
        self,
        interval: float,
        liveness: LivenessClock,
        wall: Callable[[], float] = unix_time,
    ) -> None:
        self.interval, self.liveness, self.clock, self.wall = (
            interval,
            liveness,
            liveness.clock,
            wall,
        )
        self.started, self.progress_time = wall(), liveness.clock()
        self.is_ready = False
        self.history: deque[Sample] = deque(maxlen=max(1, int(HISTORY_SECONDS / interval)))
        self._lock = threading.Lock()
        self._sampled = (self.progress_time, 0, 0)

    @property
    def progress_wall(self) -> float:
        """The time of the last progress, in seconds since 1970."""
        return self.wall() - (self.clock() - self.progress_time)

    @abstractmethod
    def in_words(self, *, quotes: bool = True) -> str:
        """Return the state as a sentence for people. With ``quotes`` the sentence includes the
        receiver's words, which may contain values.
        """

    @abstractmethod
    def health(self, *, quotes: bool = True) -> Health:
        """Return the health (spec/event-log.md 11.2). ``quotes`` is as in ``in_words``."""

    @abstractmethod
    def add_sample(self) -> None:
        """Add a point to the curves for the work since the previous sample."""

    def _add_sample(
        self,
        rows: int,
        events: int,
        queue_rows: int | None,
        oldest_seconds: float | None = None,
        median: float | None = None,
        most: float | None = None,
        consumers: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Add a point. ``rows`` and ``events`` are totals; the other arguments are the fields of
        ``Sample``.
        """
        now, (before, rows_before, events_before) = self.clock(), self._sampled
        seconds = max(now - before, 1e-9)
        rates = (
            round((rows - rows_before) / seconds, 1),
            round((events - events_before) / seconds, 1),
        )
        times = (oldest_seconds, median, most)
        self.history.append(Sample(round(self.wall(), 1), *rates, queue_rows, *times, consumers))
        self._sampled = (now, rows, events)


# --- a publisher ----------------------------------------------------------------------------------


class Activity(Monitored, Observer):
    """The observer of one publisher. The observer requests figures for which a query is needed:
    every ``interval`` seconds, or less often if the query is slow. ``has_times`` means that the
    publisher rests until a time of day.
    """

    def __init__(
        self,
        counters: Counters,
        interval: float,
        liveness: LivenessClock,
        wall: Callable[[], float] = unix_time,
        *,
        has_times: bool = False,
    ) -> None:
        super().__init__(interval, liveness, wall)
        self.counters, self._has_times = counters, has_times
        self.state = ActivityState(Doing.CONNECTING, self.progress_time)
        self.reconnects = 0
        self.backoffs: Mapping[str, int] = {who.value: 0 for who in WaitFor}
        self.measurement: Measured | None = None
        self.measured_time: float | None = None
        self._snapshot_seen: tuple[tuple[object, ...], float] = ((), 0.0)
        self.deliveries: Mapping[int, tuple[DeliveryInfo, float]] = {}
        """The deliveries and the times when each was first seen. The mapping is replaced as a
        whole, since the server reads it at the same time.
        """
        self.differences: Differences | None = None
        self._dead_since: float | None = None
        self._sizes: deque[tuple[float, int]] = deque(maxlen=_SIZES_KEPT)
        self._parked = 0
        self.windows = Histogram(_SHORT)
        self.document_seconds = Histogram(_SHORT)
        self.delays = Histogram(_LONG)
        self.sent: deque[Sent] = deque(maxlen=_SENT_KEPT)
        self._times: deque[float] = deque(maxlen=_TIMES_KEPT)
        self.attempts = Attempts()
        self._event_times: dict[str, str | None] = {}
        self._event_times_due = float("-inf")
        self._pending: list[str | None] = []

    # --- the publisher's reports ---

    def does(self, doing: Doing, reason: str = "") -> None:
        # A short attempt between two waits counts as waiting, and a check of an empty queue or of
        # a pause counts as rest or pause, since users need to see how long these states last.
        if doing is Doing.PUBLISHING and self.state.doing in _QUIET:
            return
        if doing in _QUIET or self.state.doing is not Doing.WAITING:
            self._enter(ActivityState(doing, self.clock(), reason, None, reason))

    def _works(self) -> None:
        if self.state.doing in _QUIET:
            self._enter(ActivityState(Doing.PUBLISHING, self.clock()))

    def waits(
        self, who: WaitFor, reason: str, until: float, in_short: str = "", advice: str = ""
    ) -> None:
        self.backoffs = {**self.backoffs, who.value: self.backoffs[who.value] + 1}
        waiting = (Doing.WAITING, self.clock(), reason, until, in_short, who, advice)
        self._enter(ActivityState(*waiting))

    def _enter(self, state: ActivityState) -> None:
        before = self.state
        is_same = (before.doing, before.waits_for) == (state.doing, state.waits_for)
        self.state = state._replace(since=before.since) if is_same else state

    def connected(self, *, again: bool) -> None:
        self.is_ready = True
        self.reconnects += again
        self.progressed()

    def disconnected(self) -> None:
        self.is_ready = False

    def progressed(self) -> None:
        self.progress_time = self.clock()
        if self.state.doing is Doing.WAITING:
            self._enter(ActivityState(Doing.PUBLISHING, self.progress_time))

    def window_read(self, seconds: float, groups: int) -> None:
        self.windows.observe(seconds)
        if groups:
            self._works()

    def delivery_begins(
        self, delivery: DeliveryInfo, event_times: Mapping[str, str | None]
    ) -> None:
        # The next measurement is not enough: if this delivery hangs, the measurement comes only
        # after it. A delivery that is sent again keeps its age.
        _, since = self.deliveries.get(delivery.number, (delivery, self.clock()))
        self.deliveries = {**self.deliveries, delivery.number: (delivery, since)}
        self._works()
        self._event_times = dict(event_times)
        if event_times:
            self._event_times_due = self.clock() + self.interval

    @property
    def wants_event_times(self) -> bool:
        return self.clock() >= self._event_times_due

    def delivery_ended(self, number: int, result: str, left: DeliveryInfo | None = None) -> None:
        _, since = self.deliveries.get(number, (left, self.clock()))
        others = {each: seen for each, seen in self.deliveries.items() if each != number}
        self.deliveries = others if left is None else {**others, number: (left, since)}

    def attempted(self, document: Document, outcome: Outcome, seconds: float) -> None:
        self.attempts.add(self.wall(), seconds, document, outcome)
        if isinstance(outcome, ReceiverUnavailable):
            sent = self._sent(document, seconds, NO_ANSWER, str(outcome))
            with self._lock:
                self.sent.append(sent)

    def answered(self, document: Document, answer: Answer, seconds: float) -> None:
        self._works()
        event_ids = document.event_ids
        (level, message, *_), first_id = answer.worst(event_ids), event_ids[0]
        sent = self._sent(document, seconds, level.name.lower(), message)
        with self._lock:
            self.document_seconds.observe(seconds)
            self._times.append(seconds)
            self.sent.append(sent)
            if first_id in self._event_times and answer.result(first_id).level is not Level.RETRY:
                event_time = self._event_times.pop(first_id)
                if answer.is_pending:
                    self._pending.append(event_time)
                else:
                    self._observe_delay(event_time)

    def _sent(self, document: Document, seconds: float, level: str, reason: str) -> Sent:
        delivery, document_no, event_ids = document[:3]
        first_and_last = event_ids[0], event_ids[-1]
        at, events = round(self.wall(), 3), len(event_ids)
        return Sent(at, delivery, document_no, events, *first_and_last, seconds, level, reason)

    def flushed(self) -> None:
        with self._lock:
            for event_time in self._pending:
                self._observe_delay(event_time)
            self._pending.clear()

    def _observe_delay(self, event_time: str | None) -> None:
        """Add the time from an event_time until now to the histogram. The present time is the log's
        clock at the last measurement plus the time since then.
        """
        measured = self.measurement
        if measured is None or measured.clock is None or self.measured_time is None:
            return
        age = event_age(
            event_time, measured.clock + timedelta(seconds=self.clock() - self.measured_time)
        )
        if age is not None:
            self.delays.observe(max(0.0, age))

    def compared(self, differences: Differences) -> None:
        self.differences = differences

    def left(self, parked: int, rows: int) -> None:
        self._parked = parked

    def measure_due(self) -> float | None:
        if self.measurement is None or self.measured_time is None:
            return 0.0
        pause = max(self.interval, _MEASURING_SHARE * self.measurement.seconds)
        return max(0.0, self.measured_time + pause - self.clock())

    @property
    def queue_cap(self) -> int:
        # The first measurement is for deliveries and the clock:
        # a publisher with a short queue soon has its answer.
        return QUEUE_CAP if self.measurement is not None else _FIRST_CAP

    def measured(self, measured: Measured) -> None:
        now = self.clock()
        # The entry of the oldest delivery shows its age; this process may have started later than
        # the delivery.
        oldest = min((delivery.number for delivery in measured.deliveries), default=None)
        begun = {oldest: now - (measured.oldest_delivery_age_seconds or 0.0)}
        self.deliveries = {
            delivery.number: (
                delivery,
                self.deliveries.get(delivery.number, (delivery, begun.get(delivery.number, now)))[
                    1
                ],
            )
            for delivery in measured.deliveries
        }
        if (snapshot := measured.oldest_snapshot) is not None:
            seen = (snapshot.kind, snapshot.name, snapshot.pid, snapshot.xmin)
            if seen != self._snapshot_seen[0]:
                self._snapshot_seen = seen, now
        self.measurement, self.measured_time, self._parked = measured, now, len(measured.parked)
        has_many_dead = any(table.slows_reading(_LIMITS) for table in measured.tables)
        self._dead_since = (self._dead_since or now) if has_many_dead else None
        size = sum(measured.table_bytes.values())
        if size and (not self._sizes or now - self._sizes[-1][0] >= _SIZE_INTERVAL):
            self._sizes.append((now, size))

    # --- answers to the server ---

    @property
    def oldest_seconds(self) -> float | None:
        """The age of the first row of status N; None if the last measurement found no such row, or
        if there was no measurement.

        After the last measurement the age grows as long as the row cannot have been answered. A row
        cannot have been answered while the publisher waits, or while a delivery from before the
        measurement has not ended.
        """
        measured, measured_time = self.measurement, self.measured_time
        if measured is None or measured.oldest_seconds is None or measured_time is None:
            return None
        is_held = self.state.doing is Doing.WAITING or any(
            since <= measured_time for _, since in self.deliveries.values()
        )
        return measured.oldest_seconds + (self.clock() - measured_time if is_held else 0.0)

    @property
    def oldest_snapshot_age_seconds(self) -> float | None:
        """The age, at the last measurement, of the oldest database snapshot that keeps dead rows
        from being removed; None if there was no such snapshot.

        If the database shows no age, the age is the time between the first measurement that saw the
        snapshot and the last measurement.
        """
        measured, measured_time = self.measurement, self.measured_time
        if measured is None or measured.oldest_snapshot is None or measured_time is None:
            return None
        seconds = measured.oldest_snapshot.seconds
        return measured_time - self._snapshot_seen[1] if seconds is None else seconds

    def add_sample(self) -> None:
        with self._lock:
            times = sorted(self._times)
            self._times.clear()
        measured = self.measurement or Measured()
        self._add_sample(
            self.counters.rows_published,
            self.counters.events_answered,
            measured.queue_rows,
            0.0 if measured.queue_rows == 0 else self.oldest_seconds,
            times[len(times) // 2] if times else None,
            times[min(len(times) - 1, len(times) * 99 // 100)] if times else None,
            {one.name: one.rows_behind for one in measured.consumers},
        )

    def newest_sent(self) -> list[Sent]:
        """Return the newest attempts to send documents, the newest first."""
        with self._lock:
            return list(reversed(self.sent))

    def health(self, *, quotes: bool = True) -> Health:
        measured, state, counters = self.measurement or Measured(), self.state, self.counters
        is_stream = measured.behind_unit is not None
        return judge(
            Facts(
                state=self.in_words(quotes=quotes),
                doing=state.doing,
                waits=self.waiting(quotes=quotes),
                is_alive=self.liveness.is_alive,
                progress_seconds=self.clock() - self.progress_time,
                measured=measured,
                oldest_seconds=self.oldest_seconds,
                snapshot_seconds=self.oldest_snapshot_age_seconds,
                differences=self.differences or NO_DIFFERENCES,
                consumers=measured.consumers,
                parked=self._parked,
                refused=counters.answers_error + counters.answers_fatal if is_stream else 0,
                invalid=counters.rows_invalid if is_stream else 0,
                rows_missing=counters.rows_missing,
                dead_seconds=0.0 if self._dead_since is None else self.clock() - self._dead_since,
                bytes_in_a_day=self.bytes_in_a_day,
                awaits_time=self._has_times and state.doing is Doing.RESTING,
            )
        )

    @property
    def bytes_in_a_day(self) -> float | None:
        """The bytes by which the log and its internal tables grow in a day, None if unknown."""
        return growth_in_a_day(self._sizes[0], self._sizes[-1]) if self._sizes else None

    @property
    def keep_bytes_reached_seconds(self) -> float | None:
        """The seconds until the log has ``keep_bytes`` if it grows as before, 0 = it has more; None
        without ``keep_bytes``, or if the log does not grow.
        """
        measured, grown = self.measurement or Measured(), self.bytes_in_a_day
        if measured.keep_bytes is None or not measured.tables:
            return None
        left = measured.keep_bytes - measured.log_bytes
        if left <= 0:
            return 0.0
        return left / grown * SECONDS_A_DAY if grown is not None and grown > 0 else None

    @property
    def _resting(self) -> str:
        """Return the state of rest in words, with the number of parked objects or waiting rows."""
        if self._parked:
            return f"resting: {number_of(self._parked, 'object')} parked"
        rows = (self.measurement or Measured()).queue_rows
        if not rows:
            return "resting: the queue is empty"
        if (self.measured_time or 0.0) < self.state.since:  # they may be published since
            return "resting"
        return f"resting: {number_of(rows, 'row')} {'waits' if rows == 1 else 'wait'}"

    def in_words(self, *, quotes: bool = True) -> str:
        if (waiting := self.waiting(quotes=quotes)) is not None:
            return waiting.in_words
        doing, _, reason, _, in_short, _, _ = self.state
        reason = reason if quotes else in_short
        words = {
            Doing.CONNECTING: "connecting to the database",
            Doing.PUBLISHING: "publishing",
            Doing.RESTING: self._resting,
            Doing.WAITING: "waiting",
            Doing.PAUSED: "paused",
            Doing.STOPPED: "stopped",
        }[doing]
        if reason:
            words = f"{words}, {reason}" if doing is Doing.RESTING else f"{words}: {reason}"
        return words

    def waiting(self, *, quotes: bool = True) -> Waiting | None:
        """Return what the publisher waits for before it tries again, None if it does not wait.
        ``quotes`` is as in ``in_words``.
        """
        now, state = self.clock(), self.state
        if state.doing is not Doing.WAITING or state.waits_for is None:
            return None
        reason = state.reason if quotes else state.in_short
        left = None if state.until is None else max(0.0, state.until - now)
        return Waiting(state.waits_for, now - state.since, reason, state.advice, left)


# --- a backlog job --------------------------------------------------------------------------------

STARTING: Final = "starting"
ENDING: Final = "ending"
STAGES: Final = (STARTING, "converting", "marking", ENDING)


class JobActivity(Monitored):
    """The state of a backlog job for its monitor. Progress is queried every ``interval`` seconds,
    never because of a scrape.

    The job is ready when it has Spark and the database and the work has begun.
    """

    def __init__(
        self, interval: float, liveness: LivenessClock, wall: Callable[[], float] = unix_time
    ) -> None:
        super().__init__(interval, liveness, wall)
        self.stage, self.seen = STARTING, JobProgress()
        self.begun = self.progress_time
        self.rows, self.events = dict.fromkeys(STAGES, 0), 0
        self._progress: Callable[[], JobProgress] | None = None

    @contextmanager
    def during(self, stage: str, progress: Callable[[], JobProgress]) -> Iterator[None]:
        """Show this stage, one of ``STAGES``, while the block runs."""
        self._enter(stage, progress)
        try:
            yield
            self.add_sample()
        finally:
            self._enter(ENDING, None)

    def _enter(self, stage: str, progress: Callable[[], JobProgress] | None) -> None:
        with self._lock:
            self._progress, self.stage = progress, stage
            self.seen, self.is_ready = JobProgress(), True
            self.begun = self._progressed()
            self._sampled = (self.begun, 0, self.events)

    def _progressed(self) -> float:
        """Record progress, which is a sign of life, and return the time of the progress."""
        self.progress_time = self.clock()
        self.liveness.sign()
        return self.progress_time

    def add_sample(self) -> None:
        with self._lock:
            if self._progress is None:
                return
            try:
                seen = self._progress()
            except Exception:  # Spark has ended; the caller reports that, and the monitor continues
                return
            if (seen.share, seen.rows, seen.events) != (
                self.seen.share,
                self.seen.rows,
                self.seen.events,
            ):
                self._progressed()
            self.seen = seen
            self.rows[self.stage] = max(self.rows[self.stage], seen.rows)
            self.events = max(self.events, seen.events)
            self._add_sample(
                seen.rows, self.events, max(0, seen.total - seen.rows) if seen.total else None
            )

    def health(self, *, quotes: bool = True) -> Health:
        return judge(
            Facts(
                state=self.in_words(quotes=quotes),
                is_alive=self.liveness.is_alive,
                progress_seconds=self.clock() - self.progress_time,
            )
        )

    @property
    def seconds_left(self) -> float | None:
        """The seconds until the end of the stage at its speed so far; None if too little is done
        for an estimate.
        """
        seconds, share = self.clock() - self.begun, self.seen.share
        return seconds / share - seconds if share > 0.01 else None

    def in_words(self, *, quotes: bool = True) -> str:
        if self.stage == STARTING:
            return "starting Spark and reading the classes"
        if self.stage == ENDING:
            return "summing up what was done"
        left = "" if self.seconds_left is None else f", about {self.seconds_left:,.0f} s left"
        return f"{self.stage}: {self.seen.share:.0%}{left}"
