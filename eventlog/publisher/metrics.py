"""Counters and gauges of a publisher (spec/event-log.md 11)."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from eventlog.core.checks import Remark
from eventlog.core.values import Kind
from eventlog.model import Level

if TYPE_CHECKING:
    from eventlog.publisher.context import Context


OLD_UNREADABLE: Final = "old values unreadable"
TRUNCATED: Final = "changes below a second not sent"
"""The counters of remarks, for people."""

_log = logging.getLogger("eventlog.publisher")


@dataclass(slots=True)
class Counters:
    """Counted since the start of the process; never reset. ``warned``: columns whose lost fractions were warned of."""

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
    truncated: int = 0
    warned: set[str] = field(default_factory=set, compare=False)

    def remark(self, remark: Remark) -> None:
        """Count what was remarked on a row; warn of lost fractions once a column."""
        setattr(self, remark.counter, getattr(self, remark.counter) + 1)
        column = f"{remark.attribute.table}.{remark.attribute.column.name}"
        if remark.counter == "truncated" and column not in self.warned:
            self.warned.add(column)
            _log.warning("%s: %s", column, in_words(remark))

    def count_answers(self, level: Level, number: int) -> None:
        """So many more events were answered with this level; fewer, if the number is negative."""
        name = f"answers_{level.name.lower()}"
        setattr(self, name, getattr(self, name) + number)


def in_words(remark: Remark) -> str:
    """What was remarked on a row, as a sentence."""
    if remark.counter == "old_unreadable":
        return (
            f"old_value cannot be converted ({remark.reason}): the event removes all values of "
            f"{remark.attribute.name!r} before it adds the new one"
        )
    way_out = 'time_syntax = "canonical" or "java" in [format] writes fractions of timestamps'
    if remark.attribute.column.type.kind is Kind.TIME:
        way_out = "no time_syntax writes the fraction of a time of day"
    return f"an update changed nothing but the fraction of a second ({remark.reason}), which is not sent; {way_out}"


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
    cut = now.truncated - before.truncated
    parts = [
        f"{now.rows_published - before.rows_published} rows published",
        f"{now.events_sent - before.events_sent} events in {now.documents_sent - before.documents_sent} documents",
        f"{now.rows_bad - before.rows_bad} rows bad" if now.rows_bad > before.rows_bad else "",
        f"{unreadable} {OLD_UNREADABLE}" if unreadable else "",
        f"{cut} {TRUNCATED}" if cut else "",
        f"{refused} answers error" if refused else "",
        f"queue: {gauges.queue_rows} rows"
        + (f", oldest {gauges.queue_oldest_seconds:.1f} s" if gauges.queue_oldest_seconds is not None else ""),
        f"{gauges.objects_parked} objects parked" if gauges.objects_parked else "",
    ]
    return "; ".join(filter(None, parts))
