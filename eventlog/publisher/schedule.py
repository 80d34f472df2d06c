"""When the next cycle begins, and when a heartbeat is due (spec/event-log.md 8.5, 9, spec/xds.md 7).

Times of the day are the database server's local time, as naive datetimes: one clock for the log and for its publisher.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import Final

LONGEST_REST: Final = 600.0
"""Seconds after which the server's clock is read again: it may be set, or change to summer time."""


@dataclass(slots=True)
class Timetable:
    """What has become of the times of the day. ``done``: the server's local time up to which they are past; None = it
    is not known yet. Outlives a lost connection, so that a run that was cut off goes on.
    """

    done: datetime | None = None

    def is_due(self, times: Sequence[time], now: datetime) -> bool:
        """Whether one of the times has come since the last run."""
        if self.done is None:
            self.done = now
        return next_start(times, self.done) <= now

    def finish(self, started: datetime) -> None:
        """A run that began at ``started`` is done. A time that passed while it ran is still to come."""
        # The clock may have been put back: a time of the day comes once a day.
        self.done = started if self.done is None else max(self.done, started)

    def seconds_left(self, times: Sequence[time], now: datetime) -> float:
        """Until the next run; not more than ``LONGEST_REST``."""
        left = (next_start(times, self.done or now) - now).total_seconds()
        return min(max(left, 0.0), LONGEST_REST)


def next_start(times: Sequence[time], after: datetime) -> datetime:
    """The first of these times of the day behind ``after``, today or tomorrow."""
    days = (after.date(), after.date() + timedelta(days=1))
    return min(start for day in days for at in times if (start := datetime.combine(day, at)) > after)


@dataclass(slots=True)
class HeartbeatTimer:
    """When a document was last sent, on a monotonic clock in seconds. ``interval`` 0 = no heartbeats."""

    interval: float
    last: float

    def is_due(self, now: float) -> bool:
        return self.interval > 0 and now >= self.last + self.interval

    def seconds_left(self, now: float) -> float | None:
        """Until the next heartbeat if nothing is sent before; None = never."""
        return max(0.0, self.last + self.interval - now) if self.interval > 0 else None
