"""Counters and gauges of a publisher (spec/event-log.md 11)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from eventlog.answer import Level
from eventlog.checks import Remark

if TYPE_CHECKING:
    from eventlog.publisher.context import Context


@dataclass(slots=True)
class Counters:
    """Counted since the start of the process; never reset."""

    rows_read: int = 0
    rows_published: int = 0
    rows_dropped: int = 0
    rows_gone: int = 0
    rows_empty: int = 0
    rows_loopback: int = 0
    rows_bad: int = 0
    events_sent: int = 0
    documents_sent: int = 0
    answers_success: int = 0
    answers_warning: int = 0
    answers_error: int = 0
    answers_retry: int = 0
    answers_fatal: int = 0
    heartbeats_sent: int = 0
    sv_conflicts: int = 0
    old_unreadable: int = 0

    def remark(self, remark: Remark) -> None:
        """Count what was remarked on a row."""
        setattr(self, remark.counter, getattr(self, remark.counter) + 1)

    def count_answers(self, level: Level, number: int) -> None:
        """So many more events were answered with this level; fewer, if the number is negative."""
        name = f"answers_{level.name.lower()}"
        setattr(self, name, getattr(self, name) + number)


class Gauges(NamedTuple):
    """What waits now. ``queue_oldest_seconds``: age of the oldest row N by event_time, None without one."""

    queue_rows: int
    queue_oldest_seconds: float | None
    objects_parked: int


def read_gauges(context: Context, objects_parked: int) -> Gauges:
    """The gauges of a publisher, the queue's by one statement that counts its rows."""
    options = context.options
    queue = context.dialect.queue(context.connection, context.log, options.event_time_zone)
    context.connection.commit()
    return Gauges(queue.rows, queue.oldest_seconds, objects_parked)


def summary(before: Counters, now: Counters, gauges: Gauges) -> str:
    """One line for people: what was done between two looks at the counters, and what waits."""
    refused = now.answers_error - before.answers_error
    unreadable = now.old_unreadable - before.old_unreadable
    parts = [
        f"{now.rows_published - before.rows_published} rows published",
        f"{now.events_sent - before.events_sent} events in {now.documents_sent - before.documents_sent} documents",
        f"{now.rows_bad - before.rows_bad} rows bad" if now.rows_bad > before.rows_bad else "",
        f"{unreadable} old values unreadable" if unreadable else "",
        f"{refused} answers error" if refused else "",
        f"queue: {gauges.queue_rows} rows"
        + (f", oldest {gauges.queue_oldest_seconds:.1f} s" if gauges.queue_oldest_seconds is not None else ""),
        f"{gauges.objects_parked} objects parked" if gauges.objects_parked else "",
    ]
    return "; ".join(filter(None, parts))
