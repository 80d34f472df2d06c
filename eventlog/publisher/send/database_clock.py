"""The clock of the database, which gives the times in in-flight entries at which attempts are due
(spec/event-log.md 10).
"""

from __future__ import annotations

from collections.abc import Hashable
from datetime import datetime, timedelta
from typing import TypeVar

from sqlalchemy import Connection

from eventlog.core.clock import monotonic
from eventlog.publisher.ledger.delivery import Tried
from eventlog.publisher.send.parking import Parked, Parking
from eventlog.sql.log.purge import utc_now
from eventlog.sql.port.dialect import Dialect

K = TypeVar("K", bound=Hashable)


class DatabaseClock:
    """The clock of a database, read once, when it is first needed. Moments are of
    ``core.clock.monotonic``, in seconds.
    """

    __slots__ = ("_begun", "_connection", "_dialect", "_started")

    def __init__(self, connection: Connection, dialect: Dialect) -> None:
        self._connection, self._dialect = connection, dialect
        self._begun: datetime | None = None
        self._started = 0.0

    def start(self) -> None:
        """Read the clock, if it was not read yet, in the present transaction."""
        self._begin()

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
            self._begun = utc_now(self._connection, self._dialect).replace(tzinfo=None)
            self._started = monotonic()
        return self._begun


def park_again(
    parking: Parking[K],
    clock: DatabaseClock,
    object_id: K,
    sent_id: str,
    tried: Tried,
    alone: int | None,
) -> None:
    """Park an object as it was before a restart: until its event is due, at most
    ``parking.longest_pause`` from now. ``alone`` is the number of attempts with only its event,
    None if the receiver has answered retry (spec/event-log.md 8.4, *Progress*).
    """
    now = monotonic()
    due = min(clock.moment_of(tried.due), now + parking.longest_pause) if tried.due else now
    answers = None if alone is None else 0
    parking.put(object_id, Parked(tried.tries, due, tried.answer, sent_id, alone or 0, answers))
