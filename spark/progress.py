"""How far a job is: rows read, events written, rows a second, time left."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread
from typing import Final

from pyspark import SparkContext
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

_log = logging.getLogger("eventlog.backlog")

_LINE_SECONDS: Final = 10.0
_STAGE_WEIGHTS: Final = (0.85, 0.05, 0.1)
"""How much of the time reading, folding and writing take, roughly."""


@dataclass(frozen=True, slots=True)
class Done:
    """``share`` of the whole, 0 to 1; ``rows`` read (or marked) and ``events`` written so far; ``name`` is what
    the rows are; ``parts``: how many of its parts are done, in words.
    """

    share: float
    rows: int
    events: int
    name: str = "rows"
    parts: str = ""


def spark_progress(context: SparkContext, group: str, rows: int, events: Callable[[], int]) -> Callable[[], Done]:
    """A function that tells how far the stages of a job group are. ``rows``: how many there are to be read."""

    def now() -> Done:
        tracker = context.statusTracker()
        shares = []
        for job in tracker.getJobIdsForGroup(group):
            info = tracker.getJobInfo(job)
            for stage in sorted(info.stageIds) if info is not None else ():
                found = tracker.getStageInfo(stage)
                if found is not None:
                    shares.append(found.numCompletedTasks / max(1, found.numTasks))
        done = sum(weight * share for weight, share in zip(_STAGE_WEIGHTS, shares, strict=False))
        return Done(done, round(rows * shares[0]) if shares else 0, events())

    return now


@contextmanager
def shown(what: str, done: Callable[[], Done], quiet: bool) -> Iterator[None]:
    """Show progress on standard error until the end of the block: a bar on a terminal, else now and then a line."""
    console = Console(stderr=True)
    if quiet:
        yield
        return
    stop = Event()
    began = time.monotonic()
    watch = _bar if console.is_terminal else _lines
    thread = Thread(target=watch, args=(console, what, done, stop, began), name="eventlog-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(5)


def _bar(console: Console, what: str, done: Callable[[], Done], stop: Event, began: float) -> None:
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[told]}")
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=1.0, told="")
        while not stop.wait(0.5):
            at = done()
            bar.update(task, completed=at.share, told=_told(at, began))


def _lines(_console: Console, what: str, done: Callable[[], Done], stop: Event, began: float) -> None:
    while not stop.wait(_LINE_SECONDS):
        _log.info("%s: %s", what, _told(done(), began))


def _told(at: Done, began: float) -> str:
    seconds = max(time.monotonic() - began, 0.001)
    left = f"{seconds / at.share - seconds:,.0f} s left" if at.share > 0.01 else "time left unknown"
    events = f", {at.events:,} events" if at.events else ""
    parts = f", {at.parts}" if at.parts else ""
    return f"{at.share:.0%}{parts}, {at.rows:,} {at.name}{events}, {at.rows / seconds:,.0f} {at.name}/s, {left}"
