"""The round trips of a session of PostgreSQL, counted by what libpq itself reports of its messages:
the server ends each by one ReadyForQuery.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from psycopg import pq
from sqlalchemy import Connection

_TRIP = re.compile(r"^B\t\d+\tReadyForQuery\b")


@dataclass
class Trips:
    """What a session has sent and received, in libpq's own words."""

    messages: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        """The number of round trips."""
        return sum(1 for message in self.messages if _TRIP.match(message))


@contextmanager
def traced(connection: Connection) -> Iterator[Trips]:
    """Yield the messages of a session in the block; they are there at its end."""
    driver: Any = connection.connection.driver_connection
    trips = Trips()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as file:
        driver.pgconn.trace(file.fileno())
        driver.pgconn.set_trace_flags(pq.Trace.SUPPRESS_TIMESTAMPS)
        try:
            yield trips
        finally:
            driver.pgconn.untrace()
            file.seek(0)
            trips.messages += file.read().splitlines()
