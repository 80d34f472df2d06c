"""The clock of the database, by which the lines record when an attempt is due (spec/event-log.md
10).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from eventlog.core.clock import monotonic
from eventlog.sql.open_log import OpenLog
from eventlog.sql.purge import utc_now


class DatabaseClock:
    """The clock of a log's database, read once, when it is first needed. Moments are of
    ``core.clock.monotonic``, in seconds.
    """

    __slots__ = ("_begun", "_log", "_started")

    def __init__(self, log: OpenLog) -> None:
        self._log = log
        self._begun: datetime | None = None
        self._started = 0.0

    def text_of(self, moment: float) -> str:
        """Return the database's time at a moment, in UTC (ISO 8601)."""
        begun = self._begin()
        return (begun + timedelta(seconds=moment - self._started)).isoformat(
            timespec="milliseconds"
        )

    def moment_of(self, text: str) -> float:
        """Return the moment of a time of the database. Raises ValueError for another text."""
        begun = self._begin()
        return self._started + (datetime.fromisoformat(text) - begun).total_seconds()

    def _begin(self) -> datetime:
        if self._begun is None:
            self._begun = utc_now(self._log.connection, self._log.dialect).replace(tzinfo=None)
            self._started = monotonic()
        return self._begun
