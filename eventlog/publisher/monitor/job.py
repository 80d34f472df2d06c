"""What a backlog job is doing, for whoever looks at it from another thread: its stage, how far it is, how fast."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from eventlog.publisher.monitor.activity import HISTORY_SECONDS, Sample
from eventlog.publisher.monitor.openmetrics import build_info, unit_of
from eventlog.publisher.monitor.status import shape

STARTING: Final = "starting"
ENDING: Final = "ending"
STAGES: Final = (STARTING, "converting", "marking", ENDING)


class JobProgress(Protocol):
    """How far a stage is. ``share`` of the whole, 0 to 1; ``rows`` read or marked of ``total`` (0 = not known), and
    ``events`` written; ``parts``: how many of its parts are done, in words.
    """

    @property
    def share(self) -> float: ...
    @property
    def rows(self) -> int: ...
    @property
    def events(self) -> int: ...
    @property
    def total(self) -> int: ...
    @property
    def parts(self) -> str: ...


class _Seen(NamedTuple):
    """A progress as it was asked for last."""

    share: float = 0.0
    rows: int = 0
    events: int = 0
    total: int = 0
    parts: str = ""


class JobActivity:
    """What the monitor of a backlog job shows. Progress is asked for every ``interval`` seconds, never for a scrape.

    ``patience``: seconds within which a job that makes any progress shows it.
    """

    def __init__(
        self,
        interval: float,
        patience: float,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.interval, self.patience = interval, patience
        self.clock, self.wall = clock, wall
        self.history: deque[Sample] = deque(maxlen=max(1, int(HISTORY_SECONDS / interval)))
        self.stage, self.seen = STARTING, _Seen()
        self.begun = self.progress_time = clock()
        self.started = wall()
        self.rows, self.events = dict.fromkeys(STAGES, 0), 0
        self._progress: Callable[[], JobProgress] | None = None
        self._sampled = (self.begun, 0, 0)
        self._lock = threading.Lock()

    @property
    def is_ready(self) -> bool:
        """Whether Spark and the database are there, and the work has begun."""
        return self.stage != STARTING

    @property
    def is_alive(self) -> bool:
        """Whether there was progress within ``patience``."""
        return self.clock() - self.progress_time <= self.patience

    @contextmanager
    def during(self, stage: str, progress: Callable[[], JobProgress]) -> Iterator[None]:
        """Show this stage, one of ``STAGES``, while the block runs."""
        self._enter(stage, progress)
        try:
            yield
            self.take_sample()
        finally:
            self._enter(ENDING, None)

    def _enter(self, stage: str, progress: Callable[[], JobProgress] | None) -> None:
        with self._lock:
            self._progress, self.stage, self.seen = progress, stage, _Seen()
            self.begun = self.progress_time = self.clock()
            self._sampled = (self.begun, 0, self.events)

    def take_sample(self) -> None:
        """Ask how far the stage is, and add a point to the curves."""
        with self._lock:
            if self._progress is None:
                return
            try:
                told = self._progress()
            except Exception:  # of a Spark that is gone, whose caller says so; the monitor goes on
                return
            now, (before, rows, events) = self.clock(), self._sampled
            seen = _Seen(told.share, told.rows, told.events, told.total, told.parts)
            if (seen.share, seen.rows, seen.events) != (self.seen.share, self.seen.rows, self.seen.events):
                self.progress_time = now
            self.seen = seen
            self.rows[self.stage] = max(self.rows[self.stage], seen.rows)
            self.events = max(self.events, seen.events)
            seconds = max(now - before, 1e-9)
            rates = round((seen.rows - rows) / seconds, 1), round((self.events - events) / seconds, 1)
            left = max(0, seen.total - seen.rows) if seen.total else None
            self.history.append(Sample(round(self.wall(), 1), *rates, left, None, None, None))
            self._sampled = (now, seen.rows, self.events)

    def in_words(self) -> str:
        """The state as a sentence for people."""
        seen, seconds = self.seen, self.clock() - self.begun
        if self.stage in (STARTING, ENDING):
            return {STARTING: "starting Spark and reading the classes", ENDING: "putting together what was done"}[
                self.stage
            ]
        left = f", about {seconds / seen.share - seconds:,.0f} s left" if seen.share > 0.01 else ""
        return f"{self.stage}: {seen.share:.0%}{left}"

    def status(self, log: str, directory: str, form: str) -> dict[str, Any]:
        """The status of the job in the shape of all of them; ``job`` is its own part."""
        now, seen = self.clock(), self.seen
        seconds = now - self.begun
        return shape(
            log=log,
            sink=directory,
            format=form,
            started_at=datetime.fromtimestamp(self.started, UTC).isoformat(timespec="milliseconds"),
            publisher_runs=True,
            state={
                "name": self.stage,
                "words": self.in_words(),
                "seconds": round(seconds, 3),
                "reason": "",
                "next_try_seconds": None,
            },
            is_ready=self.is_ready,
            is_alive=self.is_alive,
            progress_seconds=round(now - self.progress_time, 3),
            patience_seconds=self.patience,
            job={
                "stage": self.stage,
                **seen._asdict(),
                "seconds_left": round(seconds / seen.share - seconds, 1) if seen.share > 0.01 else None,
            },
        )


class JobMetrics(Collector):
    """The metrics of a backlog job. ``labels``: names and values that all have."""

    def __init__(self, activity: JobActivity, labels: dict[str, str]) -> None:
        self._activity, self._labels = activity, labels

    def collect(self) -> Iterable[Metric]:
        """All metrics, made of what is known now."""
        activity, names, values = self._activity, list(self._labels), list(self._labels.values())
        yield build_info(names, values)
        for name, text, number in (
            ("eventlog_backlog_rows_read", "Rows that a backlog job has read.", activity.rows["converting"]),
            ("eventlog_backlog_rows_marked", "Rows that a backlog job has marked.", activity.rows["marking"]),
            ("eventlog_backlog_events_written", "Events that a backlog job has written.", activity.events),
        ):
            counter = CounterMetricFamily(name, text, labels=names)
            counter.add_metric(values, number, created=activity.started)
            yield counter
        stage = GaugeMetricFamily("eventlog_backlog_stage", "1 for what the job does now.", labels=[*names, "stage"])
        for each in STAGES:
            stage.add_metric([*values, each], float(activity.stage == each))
        yield stage
        for name, text, gauge in (
            ("eventlog_backlog_stage_ratio", "How much of the stage is done, 0 to 1.", activity.seen.share),
            ("eventlog_backlog_rows", "Rows that the stage has to do in all; 0 = not known.", activity.seen.total),
            (
                "eventlog_last_progress_timestamp_seconds",
                "When the job last got on.",
                activity.wall() - (activity.clock() - activity.progress_time),
            ),
        ):
            family = GaugeMetricFamily(name, text, labels=names, unit=unit_of(name))
            family.add_metric(values, gauge)
            yield family
