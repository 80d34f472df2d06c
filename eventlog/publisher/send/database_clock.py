"""The clock of the database, by which in-flight entries record when attempts are due
(spec/event-log.md 10).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import Connection

from eventlog.core.clock import monotonic
from eventlog.publisher.ledger.delivery import Tried, TriedKind
from eventlog.publisher.send.outbox import Outbox
from eventlog.publisher.send.policy import Attempts, Document, E, Kind, is_of_doubt
from eventlog.sql.port.dialect import Dialect


class DatabaseClock:
    """The clock of a database, read once, when it is first needed. Moments are times of
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
        half = timedelta(microseconds=500)  # so that a time which is read and written again stays
        return (begun + timedelta(seconds=moment - self._started) + half).isoformat(
            timespec="milliseconds"
        )

    def moment_of(self, text: str) -> float:
        """Return the moment of a time of the database. Raises ValueError for a text of another
        form.
        """
        begun = self._begin()
        return self._started + (datetime.fromisoformat(text) - begun).total_seconds()

    def _begin(self) -> datetime:
        if self._begun is None:
            self._begun = self._dialect.open(self._connection).utc_now().replace(tzinfo=None)
            self._started = monotonic()
        return self._begun


_RECORDED: Final = {
    Kind.SUSPECT: TriedKind.FAILURES,
    Kind.PART: TriedKind.PART,
    Kind.PARKED: TriedKind.PARKED,
}
"""The members of an entry by the kinds of attempts that it records."""
_KINDS: Final = {recorded: kind for kind, recorded in _RECORDED.items()}


def resumed(
    document: Document[E], tried: Tried | None, clock: DatabaseClock, longest: float
) -> Document[E]:
    """Return a document with its recorded attempts as they continue after a restart: it waits until
    it is due, at most ``longest`` seconds from now (spec/event-log.md 8.4, *Progress*).
    """
    if tried is None:
        return document
    kind = _KINDS[tried.kind]
    if kind is Kind.SUSPECT:
        return document._replace(attempts=Attempts(kind, answer=tried.answer, at=0))
    now = monotonic()
    due = min(clock.moment_of(tried.due), now + longest) if tried.due else now
    attempts = Attempts(kind, tried.tries, tried.answer, due)
    return document._replace(attempts=attempts, retries=tried.tries if kind is Kind.PARKED else 0)


def rounds_of(several: Iterable[Tried]) -> int:
    """Return the number of rounds since the doubt about the receiver began (spec/event-log.md 8.4),
    as documents record it.
    """
    return max((one.tries for one in several if one.kind is TriedKind.FAILURES), default=0)


def tried_of(document: Document[E], outbox: Outbox[E], clock: DatabaseClock) -> Tried | None:
    """Return the attempts at a document as its entry records them, None if it records no attempts.
    For a document that has failed since the last answer, the entry records the number of rounds
    since the doubt about the receiver began.
    """
    attempts = document.attempts
    kind = None if attempts is None else _RECORDED.get(attempts.kind)
    if attempts is None or kind is None:
        return None
    if kind is not TriedKind.FAILURES:
        return Tried(attempts.tries, attempts.answer, clock.text_of(attempts.due), kind)
    if not outbox.rounds or not is_of_doubt(document, outbox.answers):
        return None
    return Tried(outbox.rounds, attempts.answer, kind=kind)
