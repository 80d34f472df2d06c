"""What a backlog job is doing, for whoever looks at it from another thread: its stage, how far it is, how fast."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Protocol

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from eventlog.publisher.monitor.activity import Watched
from eventlog.publisher.monitor.openmetrics import Labels, build_info, counter, gauge, state
from eventlog.publisher.monitor.status import status_of

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


class JobActivity(Watched):
    """What the monitor of a backlog job shows. Progress is asked for every ``interval`` seconds, never for a scrape.

    It is ready when Spark and the database are there, and the work has begun.
    """

    def __init__(self, interval: float, patience: float, **clocks: Callable[[], float]) -> None:
        """``clocks``: others than those of ``Watched``."""
        super().__init__(interval, patience, **clocks)
        self.stage, self.seen = STARTING, _Seen()
        self.begun = self.progress_time
        self.rows, self.events = dict.fromkeys(STAGES, 0), 0
        self._progress: Callable[[], JobProgress] | None = None

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
            self._progress, self.stage, self.seen, self.is_ready = progress, stage, _Seen(), True
            self.begun = self.progress_time = self.clock()
            self._sampled = (self.begun, 0, self.events)

    def take_sample(self) -> None:
        with self._lock:
            if self._progress is None:
                return
            try:
                progress = self._progress()
            except Exception:  # of a Spark that is gone, whose caller says so; the monitor goes on
                return
            seen = _Seen(progress.share, progress.rows, progress.events, progress.total, progress.parts)
            if (seen.share, seen.rows, seen.events) != (self.seen.share, self.seen.rows, self.seen.events):
                self.progress_time = self.clock()
            self.seen = seen
            self.rows[self.stage] = max(self.rows[self.stage], seen.rows)
            self.events = max(self.events, seen.events)
            self._add_sample(seen.rows, self.events, max(0, seen.total - seen.rows) if seen.total else None)

    def in_words(self) -> str:
        seen, seconds = self.seen, self.clock() - self.begun
        if self.stage in (STARTING, ENDING):
            return {STARTING: "starting Spark and reading the classes", ENDING: "putting together what was done"}[
                self.stage
            ]
        left = f", about {seconds / seen.share - seconds:,.0f} s left" if seen.share > 0.01 else ""
        return f"{self.stage}: {seen.share:.0%}{left}"

    def status(self, log: str, directory: str, form: str) -> dict[str, Any]:
        """The status of the job in the shape of all of them; ``job`` is its own part."""
        seen, seconds = self.seen, self.clock() - self.begun
        left = round(seconds / seen.share - seconds, 1) if seen.share > 0.01 else None
        job = {"stage": self.stage, **seen._asdict(), "seconds_left": left}
        return status_of(self, self.stage, seconds, log=log, sink=directory, format=form, job=job)


class JobMetrics(Collector):
    def __init__(self, activity: JobActivity, labels: Labels) -> None:
        self._activity, self._labels = activity, labels

    def collect(self) -> Iterable[Metric]:
        activity, labels = self._activity, self._labels
        yield build_info(labels)
        for name, text, number in (
            ("eventlog_backlog_rows_read", "Rows that a backlog job has read.", activity.rows["converting"]),
            ("eventlog_backlog_rows_marked", "Rows that a backlog job has marked.", activity.rows["marking"]),
            ("eventlog_backlog_events_written", "Events that a backlog job has written.", activity.events),
        ):
            yield counter(name, text, labels, number, activity.started)
        yield state("eventlog_backlog_stage", "1 for what the job does now.", labels, "stage", STAGES, activity.stage)
        for name, text, figure in (
            ("eventlog_backlog_stage_ratio", "How much of the stage is done, 0 to 1.", activity.seen.share),
            ("eventlog_backlog_rows", "Rows that the stage has to do in all; 0 = not known.", activity.seen.total),
            (
                "eventlog_last_progress_timestamp_seconds",
                "When the job last got on.",
                activity.progress_wall,
            ),
        ):
            yield gauge(name, text, labels, figure)
