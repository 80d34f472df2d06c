"""The record_ids that this process has published, and rows that get one of these record_ids a
second time (spec/event-log.md 7.4).

If a sequence is set back, it returns numbers that it has returned before, and an event-id would
stand for two sets of rows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

from eventlog.core.clock import monotonic
from eventlog.core.ranges import to_ranges
from eventlog.publisher.context.observer import event_age, moment_of
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.readers.consumers import is_followable

INTERVAL: Final = 1.0
"""The least number of seconds between two remembered moments, and between two checks of the
sequence.
"""
_MAX_MOMENTS: Final = 1_000
"""The maximum number of remembered moments."""
_MIN_SKEW: Final = 1.0
_SKEW: Final = 0.01
"""The seconds, and the share of a duration, by which the clocks of this process and of the database
may disagree. The age of a row is the age of its number, even if the row is committed hours later.
"""


@dataclass(slots=True)
class Published:
    """The highest published record_id, and the moments at which others were the highest."""

    highest: int = 0
    moments: list[tuple[int, float]] = field(default_factory=list)
    """Pairs of a record_id and a time of ``monotonic`` at which this record_id and all lower
    record_ids had been drawn. Both ascend.
    """
    checked: float = float("-inf")
    """The time of the last check of the sequence."""
    are_ordered: bool | None = None
    """True if numbers are drawn one by one, so that a lower number was drawn earlier. None = not
    determined yet. A session that caches numbers may write a row under a lower number later.
    """

    def add(self, record_id: int) -> None:
        """Add a record_id that was published."""
        self.highest = max(self.highest, record_id)
        self.remember()

    def remember(self) -> None:
        """Remember that the highest record_id had been drawn at the present time."""
        now = monotonic()
        last, since = self.moments[-1] if self.moments else (0, float("-inf"))
        if self.highest <= last or now < since + INTERVAL:
            return
        if len(self.moments) == _MAX_MOMENTS:
            del self.moments[::2]
        self.moments.append((self.highest, now))

    def forget(self) -> None:
        """Forget all record_ids, since the same numbers are used again under a new epoch."""
        self.highest = 0
        self.moments.clear()

    def given_again(
        self, log: OpenLog, record_ids: Iterable[int], event_time_zone: str | None
    ) -> str | None:
        """Return the reason if one of these rows of status N may have a record_id that was
        published for another row, otherwise None. ``event_time_zone`` None = event_time is not the
        time of the change.
        """
        low = sorted(one for one in record_ids if one <= self.highest)
        if not low:
            return None
        if self.are_ordered is None:
            self.are_ordered = is_followable(log)
        by_time = self.are_ordered and event_time_zone is not None
        return self._by_sequence(log) or (
            self.used_by_time(log, low, event_time_zone or "") if by_time else None
        )

    def _by_sequence(self, log: OpenLog) -> str | None:
        now = monotonic()
        if now < self.checked + INTERVAL:
            return None
        self.checked = now
        following = log.next_record_id()
        return (
            None
            if following is None or following > self.highest
            else repeated_number(following, self)
        )

    def used_by_time(self, log: OpenLog, low: Sequence[int], event_time_zone: str) -> str | None:
        """Find a row that is younger than the moment at which its number had been drawn."""
        now, clock = monotonic(), moment_of(log.due_until(event_time_zone))
        for record_id, event_time in log.read_columns(to_ranges(low), ("record_id", "event_time")):
            place = bisect_left(self.moments, record_id, key=itemgetter(0))
            age = event_age(event_time, clock)
            if place == len(self.moments) or age is None:
                continue
            known = now - self.moments[place][1]
            if 0 <= age < known - max(_MIN_SKEW, _SKEW * known):
                return f"record_id {record_id} was published before its row was written"
        return None


def repeated_number(following: int, published: Published) -> str:
    """Return a sentence that reports that the next record_id was published before."""
    return f"the next record_id is {following}, and {published.highest} was published before"
