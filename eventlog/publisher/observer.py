"""What a publisher tells of its work while it works: to the monitor, to the log.

A publisher without a listener tells ``SILENT``, so that nothing asks whether somebody listens. Everything is called
from the publisher's own threads, and must return at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from eventlog.model import Answer
from eventlog.publisher.sinks import Document

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


class FlightInfo(NamedTuple):
    """A flight whose in-flight line is still in the database."""

    number: int
    events: int
    rows: int


@dataclass(frozen=True, slots=True)
class Looked:
    """What costs a statement to know, as the publisher's own session saw it between two flights.

    ``queue_rows`` is at most ``cap``, and then there may be more; None for a stream, which has no queue.
    ``oldest_seconds``: age of the first row N by event_time, None without one; ``oldest_writer_seconds``: that of the
    oldest open transaction that has written the log, None if there is none or if it cannot be known. ``clock``: the
    time that event_time is compared with, None for a stream. ``seconds``: how long the look took.
    """

    queue_rows: int | None = None
    cap: int | None = None
    oldest_seconds: float | None = None
    oldest_writer_seconds: float | None = None
    parked: Sequence[ParkedObject] = ()
    flights: Sequence[FlightInfo] = ()
    clock: datetime | None = None
    seconds: float = 0.0


class Observer:
    """Who is told; this one does nothing with it, and who listens to a part of it extends it. Times are seconds."""

    @property
    def wants_event_times(self) -> bool:
        """Whether event_time is to be read for ``flight_begins``, by a statement, where it is not known."""
        return False

    def does(self, doing: Doing, reason: str = "") -> None:
        """What the publisher does from now on."""

    def waits(self, who: WaitFor, reason: str, until: float) -> None:
        """The publisher backs off. ``until``: when it tries again, on the monotonic clock."""

    def connected(self, *, again: bool) -> None:
        """The connection stands, the lock is held and the classes have been read."""

    def disconnected(self) -> None: ...

    def progressed(self) -> None:
        """A cycle ended well, or the receiver answered other than retry."""

    def window_read(self, seconds: float, groups: int) -> None:
        """A window of the queue was read, with so many groups that are to be published."""

    def flight_begins(self, number: int, event_times: Mapping[str, str | None]) -> None:
        """A flight is about to be sent. ``event_times``: of the first row of each envelope, by the event-id sent."""

    def flight_ended(self, number: int, result: str) -> None:
        """A flight was sent as far as it could be, and what was answered is marked. ``result`` for people."""

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
    """Several who are told: everything goes to each of them."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers

    @property
    def wants_event_times(self) -> bool:
        return any(observer.wants_event_times for observer in self._observers)

    def look_due(self) -> float | None:
        return min((due for observer in self._observers if (due := observer.look_due()) is not None), default=None)

    @property
    def queue_cap(self) -> int:
        return min(observer.queue_cap for observer in self._observers)


def _telling_each(name: str) -> Callable[..., None]:
    def tell(self: _Several, *arguments: object, **named: object) -> None:
        for observer in self._observers:
            getattr(observer, name)(*arguments, **named)

    return tell


for _name in vars(Observer).keys() - vars(_Several).keys():
    if not _name.startswith("_"):
        setattr(_Several, _name, _telling_each(_name))


def together(*observers: Observer) -> Observer:
    """One who is told for all of them: ``SILENT`` if none of them listens."""
    listening = [observer for observer in observers if observer is not SILENT]
    return listening[0] if len(listening) == 1 else _Several(listening) if listening else SILENT
