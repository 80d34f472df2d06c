"""Who is told of the publisher's work while it works: the monitor, traces, the service manager.

Without a listener that is ``SILENT``, so that nothing asks whether somebody listens. An observer is
called from the publisher's own threads, and must return at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection

from eventlog.model import Answer, Document
from eventlog.publisher.flight import FlightInfo
from eventlog.publisher.ledger import LETTERS, Ledger
from eventlog.sql.dialect import Dialect
from eventlog.sql.log_table import LogTable
from eventlog.sql.windows import Window

QUEUE_CAP: Final = 100_000
"""Rows N that a look counts at most; a longer queue is said to hold so many or more."""


class Doing(StrEnum):
    CONNECTING = "connecting"
    PUBLISHING = "publishing"
    RESTING = "resting"
    WAITING = "waiting"
    STOPPED = "stopped"


class WaitFor(StrEnum):
    """Whom a publisher waits for before it tries again."""

    RECEIVER = "receiver"
    DATABASE = "database"
    SOURCE = "source"


class ParkedObject(NamedTuple):
    """An object whose event the receiver asked for later. ``due``: the next try, on the monotonic clock.

    ``class_name`` is empty for an object of a stream, whose ``key`` is its association.
    """

    class_name: str
    key: str
    due: float
    tries: int
    reason: str


class SnapshotProgress(NamedTuple):
    """How far a consumer's snapshot is.

    ``objects`` of ``class_name``, the class that is being read, were answered, of about ``expected``; ``done``: the
    classes before it.
    """

    class_name: str | None
    objects: int
    expected: int
    done: Sequence[str]

    @property
    def in_words(self) -> str:
        if self.class_name is None:
            return "between two classes" if self.done else "at its beginning"
        return f"{self.objects:,} of about {self.expected:,} objects of {self.class_name}"

    def as_data(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
        return {"class": self.class_name, "objects": self.objects, "expected": self.expected, "done": list(self.done)}

    @classmethod
    def of_data(cls, data: Mapping[str, Any]) -> SnapshotProgress:
        """Return what ``as_data`` told."""
        return cls(data["class"], data["objects"], data["expected"], data["done"])


@dataclass(frozen=True, slots=True)
class Looked:
    """What costs a statement to know, as the publisher's own session saw it between two flights.

    ``queue_rows`` is at most ``cap``, and then there may be more; None for a stream, which has no queue.
    ``oldest_seconds``: age of the first row N by event_time, None without one; ``oldest_writer_seconds``: that of the
    oldest open transaction that has written the log, None if there is none or if it cannot be known, and
    ``oldest_writer`` whose it is;
    ``oldest_flight_seconds``: that of the first of ``flights``, as its line says, None if it is not known. ``clock``:
    the time that event_time is compared with, None for a stream. ``seconds``: how long the look took. ``behind``: how
    many ``behind_unit``s a followed source holds behind its position, None for a log or if that cannot be told.
    ``ranges``: of a consumer's set; ``snapshot``: how far its first load is, None = it has none, or none any more.
    """

    queue_rows: int | None = None
    cap: int | None = None
    oldest_seconds: float | None = None
    oldest_writer_seconds: float | None = None
    parked: Sequence[ParkedObject] = ()
    flights: Sequence[FlightInfo] = ()
    clock: datetime | None = None
    seconds: float = 0.0
    oldest_flight_seconds: float | None = None
    ranges: int | None = None
    snapshot: SnapshotProgress | None = None
    behind: int | None = None
    behind_unit: str | None = None
    oldest_writer: str | None = None


def look_at_queue(
    conn: Connection,
    dialect: Dialect,
    log: LogTable,
    event_time_zone: str,
    cap: int = QUEUE_CAP,
    ledger: Ledger = LETTERS,
) -> Looked:
    """What waits in a log, without counting more than ``cap`` rows. The clock is read last."""
    rows = ledger.count(conn, dialect, log, cap)
    head = dialect.read_window(conn, log, ledger.undone(Window(1, None, 1))) if rows else []
    clock = _moment(dialect.due_until(conn, log, event_time_zone))
    return Looked(rows, cap, event_age(head[0].event_time, clock) if head else None, clock=clock)


def event_age(event_time: str | None, clock: datetime) -> float | None:
    """Seconds from an event_time, as its text, to the log's clock; None if the text is no usual time."""
    try:
        return (clock - _moment(event_time or "")).total_seconds()
    except (ValueError, OverflowError):
        return None


def _moment(text: str) -> datetime:
    """A time of the log's clock, without its zone; fractions beyond microseconds are cut off. Raises ValueError."""
    whole, dot, fraction = text.strip().partition(".")
    return datetime.fromisoformat(whole + dot + fraction[:6]).replace(tzinfo=None)


class Observer:
    """Who is told; this one does nothing with it, and who listens to a part of it extends it. Times are seconds."""

    @property
    def wants_event_times(self) -> bool:
        """Whether event_time is to be read for ``flight_begins``, by a statement, where it is not known."""
        return False

    def does(self, doing: Doing, reason: str = "") -> None:
        """What the publisher does from now on."""

    def waits(self, who: WaitFor, reason: str, until: float, in_short: str = "") -> None:
        """The publisher backs off. ``until``: when it tries again, on the monotonic clock.

        ``in_short``: the reason without words of the receiver; empty if there is no such text.
        """

    def connected(self, *, again: bool) -> None:
        """The connection stands, the lock is held and the classes have been read."""

    def disconnected(self) -> None: ...

    def progressed(self) -> None:
        """A cycle ended well, or the receiver answered other than retry."""

    def window_read(self, seconds: float, groups: int) -> None:
        """A window of the queue was read, with so many groups that are to be published."""

    def flight_begins(self, flight: FlightInfo, event_times: Mapping[str, str | None]) -> None:
        """A flight is about to be sent. ``event_times``: of the first row of each envelope, by the event-id sent."""

    def flight_ended(self, number: int, result: str, left: FlightInfo | None = None) -> None:
        """A flight was sent as far as it could be, and what was answered is marked. ``result`` for people.

        ``left``: what of it is recorded still, and is sent again; None = it is done.
        """

    def loads(self, snapshot: SnapshotProgress | None) -> None:
        """The snapshot of a consumer has come so far, None = to its end."""

    def marked(self, seconds: float) -> None:
        """What was answered has been marked, or the position moved behind it."""

    def answered(self, document: Document, answer: Answer, seconds: float) -> None:
        """An envelope was sent, and this came back after so many seconds."""

    def flushed(self) -> None:
        """The receiver has spoken of whatever was pending."""

    def look_due(self) -> float | None:
        """Seconds until ``looked`` is to be told again, 0 if it is due, None if it never is."""
        return None

    @property
    def queue_cap(self) -> int:
        """Rows N that the next look counts at most."""
        return QUEUE_CAP

    def looked(self, looked: Looked) -> None: ...


SILENT: Final = Observer()


class _Several(Observer):
    """Several observers as one: each of them is told everything."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers

    @property
    def wants_event_times(self) -> bool:
        return any(one.wants_event_times for one in self._observers)

    def does(self, doing: Doing, reason: str = "") -> None:
        for one in self._observers:
            one.does(doing, reason)

    def waits(self, who: WaitFor, reason: str, until: float, in_short: str = "") -> None:
        for one in self._observers:
            one.waits(who, reason, until, in_short)

    def connected(self, *, again: bool) -> None:
        for one in self._observers:
            one.connected(again=again)

    def disconnected(self) -> None:
        for one in self._observers:
            one.disconnected()

    def progressed(self) -> None:
        for one in self._observers:
            one.progressed()

    def window_read(self, seconds: float, groups: int) -> None:
        for one in self._observers:
            one.window_read(seconds, groups)

    def flight_begins(self, flight: FlightInfo, event_times: Mapping[str, str | None]) -> None:
        for one in self._observers:
            one.flight_begins(flight, event_times)

    def flight_ended(self, number: int, result: str, left: FlightInfo | None = None) -> None:
        for one in self._observers:
            one.flight_ended(number, result, left)

    def loads(self, snapshot: SnapshotProgress | None) -> None:
        for one in self._observers:
            one.loads(snapshot)

    def marked(self, seconds: float) -> None:
        for one in self._observers:
            one.marked(seconds)

    def answered(self, document: Document, answer: Answer, seconds: float) -> None:
        for one in self._observers:
            one.answered(document, answer, seconds)

    def flushed(self) -> None:
        for one in self._observers:
            one.flushed()

    def look_due(self) -> float | None:
        return min((due for one in self._observers if (due := one.look_due()) is not None), default=None)

    @property
    def queue_cap(self) -> int:
        return min(one.queue_cap for one in self._observers)

    def looked(self, looked: Looked) -> None:
        for one in self._observers:
            one.looked(looked)


def join_observers(*observers: Observer) -> Observer:
    """One who is told for all of them: ``SILENT`` if none of them listens."""
    listening = [observer for observer in observers if observer is not SILENT]
    return listening[0] if len(listening) == 1 else _Several(listening) if listening else SILENT
