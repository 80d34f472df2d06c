"""The observer of a publisher's work. Observers are the monitor, traces, and the service manager.

If nothing observes the work, the observer is ``SILENT``, so that callers need not test for an
observer. An observer is called from the publisher's own threads, and must return immediately.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from inspect import isfunction
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from eventlog.errors import ReceiverUnavailable
from eventlog.model import Answer, Document
from eventlog.publisher.context.conditions import LINES_READ
from eventlog.publisher.ledger.delivery import DeliveryInfo
from eventlog.publisher.ledger.ledger import Ledger, count_undone, ledger_of
from eventlog.publisher.ledger.letters import waiting_letters
from eventlog.sql.doctor import HeldSnapshot, OpenTransaction, TableStorage, oldest_writer
from eventlog.sql.log.errors import count_failed
from eventlog.sql.log.verifications import LastVerification, read_verifications
from eventlog.sql.port.log_operations import Window
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.questions import ask
from eventlog.sql.port.rights import Part, Right
from eventlog.sql.readers.consumers import STREAM_OF_SPARK, ConsumerStart
from eventlog.sql.readers.superseded import waiting_rows
from eventlog.sql.resync import due_now

if TYPE_CHECKING:
    from eventlog.sql.log.pauses import Pause

QUEUE_CAP: Final = 100_000
"""The maximum number of rows of status N that a measurement counts; for a longer queue, "or more"
is reported.
"""


_MAX_TRANSACTIONS: Final = 100
"""The maximum number of open transactions that a measurement reads."""


class Doing(StrEnum):
    CONNECTING = "connecting"
    PUBLISHING = "publishing"
    RESTING = "resting"
    WAITING = "waiting"
    PAUSED = "paused"
    STOPPED = "stopped"


class WaitFor(StrEnum):
    """The party that a publisher waits for before it tries again."""

    RECEIVER = "receiver"
    DATABASE = "database"
    SOURCE = "source"


class ParkedObject(NamedTuple):
    """An object whose event the receiver wants later, or for whose event the receiver fails.

    ``due`` is the time of the next attempt, on the monotonic clock. ``event_id`` is the event-id of
    the event.
    """

    class_name: str
    key: str
    due: float
    tries: int
    reason: str
    event_id: str = ""


NO_ANSWER: Final = "no answer"
HALVES: Final = "sent in halves"
"""The level of an answer that refuses a document without naming an event."""


class Attempt(NamedTuple):
    """An attempt to send an event, and the result of the attempt."""

    at: float
    """The time in seconds since 1970."""
    seconds: float
    """How long the attempt took."""
    delivery: int
    document: int
    events: int
    """The number of events in the document."""
    event_id: str
    """The event-id in the document."""
    level: str
    """The level of the answer to the event, or ``NO_ANSWER``, or ``HALVES``."""
    message: str
    """The receiver's message to the event, or why there is no answer."""
    status: str
    """The status of the answer in its protocol, such as ``503 Service Unavailable``."""
    answer: str
    """The first kilobyte of the answer."""

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Attempt:
        """Return the attempt from its members, as JSON has them."""
        return cls(**{name: data[name] for name in cls._fields})


class Seen(NamedTuple):
    """What a running process has seen of an event."""

    attempts: Sequence[Attempt] = ()
    """The last attempts since the start of the process, the newest first."""
    waits: str = ""
    """What the event's document waits for, in words; empty if the outbox does not have it."""

    def as_data(self) -> dict[str, Any]:
        """Return what the process has seen as data for JSON."""
        return {"attempts": [one._asdict() for one in self.attempts], "waits": self.waits}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Seen:
        """Return what the process has seen from the data of ``as_data``."""
        return cls([*map(Attempt.from_data, data["attempts"])], data["waits"])


class OutboxDocument(NamedTuple):
    """A document that is not settled, as the outbox had it at a measurement."""

    delivery: int
    document: int
    """The number of the document, 0 = the document is not recorded yet."""
    event_ids: Sequence[str]
    why: str
    """What the document waits for, in words."""
    due: float | None
    """The time of the next attempt by the monotonic clock, None = there is no such time."""
    tries: int
    answer: str
    """The last answer, empty if there was none, or if it was the answer to another document."""


Outcome = Answer | ReceiverUnavailable
"""What an attempt to send a document has led to."""


class SnapshotProgress(NamedTuple):
    """The progress of a consumer's snapshot."""

    class_name: str | None
    """The class that is being read."""
    objects: int
    """The number of objects that were answered."""
    expected: int
    """The approximate total number of objects to be answered."""
    done: Sequence[str]
    """The finished classes."""

    @property
    def in_words(self) -> str:
        if self.class_name is None:
            return "between two classes" if self.done else "at its beginning"
        return f"{self.objects:,} of about {self.expected:,} objects of {self.class_name}"

    def as_data(self) -> dict[str, Any]:
        """Return the progress as data for JSON."""
        return {
            "class": self.class_name,
            "objects": self.objects,
            "expected": self.expected,
            "done": list(self.done),
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> SnapshotProgress:
        """Return the progress from the data of ``as_data``."""
        return cls(data["class"], data["objects"], data["expected"], data["done"])


class ConsumerStatus(NamedTuple):
    """The status of a consumer. Times are UTC."""

    name: str
    runs: bool
    begins: str
    begun: datetime
    rows_behind: int
    """The number of rows that are not done by the consumer, at most ``MAX_ROWS_BEHIND``."""
    oldest_seconds: float | None
    """The age, by event_time, of the first row that is not done by the consumer."""
    ranges: int
    """The number of ranges in the consumer's set above ``done_up_to``."""
    done_up_to: int
    """The record_id up to which all rows are done."""
    done_top: int
    """The highest record_id of the consumer's set."""
    moved: datetime | None
    still_seconds: float
    """The seconds since the set last changed, or since the consumer was registered."""
    events_in_flight: int
    """The number of events that were sent or are parked, without a final answer."""
    snapshot: SnapshotProgress | None
    """The progress of the consumer's first load, None = there is no first load, or it has ended."""
    oldest_row: int | None = None
    """The record_id of the first row that is not done by the consumer."""
    start: ConsumerStart | None = None
    """What the consumer has sent since its last start, and to which receiver; None = unknown."""
    pause: Pause | None = None
    """Why the consumer sends nothing, None = the consumer is not paused."""
    paused_seconds: float = 0.0

    @property
    def rests(self) -> bool:
        """True if the consumer sends nothing on purpose: it is paused, or it runs and has nothing
        in flight, as between two times of day. A consumer that waits for its receiver has recorded
        what it sends; a stream in Spark records nothing.
        """
        records = self.start is None or self.start.sink != STREAM_OF_SPARK
        is_idle = self.runs and records and not self.events_in_flight
        return self.pause is not None or is_idle

    def as_data(self) -> dict[str, Any]:
        """Return the status as data for JSON."""
        data = self._asdict()
        start, pause = data.pop("start"), data.pop("pause")
        del data["paused_seconds"]
        return {
            **data,
            "paused": None if pause is None else pause.as_data(),
            "begun": self.begun.isoformat(),
            "moved": None if self.moved is None else self.moved.isoformat(),
            "snapshot": None if self.snapshot is None else self.snapshot.as_data(),
            "sink": None if start is None else start.sink,
            "classes": None if start is None else start.classes,
        }


class JobProgress(NamedTuple):
    """The progress of a stage of a backlog job."""

    share: float = 0.0
    """The part that is done, 0 to 1."""
    rows: int = 0
    """The number of rows that were read or marked."""
    events: int = 0
    """The number of events that were written."""
    name: str = "rows"
    """The words that describe the rows."""
    parts: str = ""
    """The number of the stage's finished parts, in words."""
    total: int = 0
    """The total number of rows to read or mark, 0 = unknown."""


class OverduePurge(NamedTuple):
    """What a purge should have done at least half of ``keep_days`` ago; empty = nothing."""

    what: str = ""
    reason: str = ""
    """What holds the purge back, and since when."""


NOTHING_OVERDUE: Final = OverduePurge()


class Differences(NamedTuple):
    """The sentences on captured tables that are not as declared, and on impossible watches.

    ``uncaptured`` are the sentences of ``tables`` about triggers that do not log as declared.
    ``otherwise`` are the sentences of ``uncaptured`` about triggers that log every declared column
    and operation, but not as declared: another configuration was applied, or somebody changed the
    triggers.
    """

    tables: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    uncaptured: tuple[str, ...] = ()
    otherwise: tuple[str, ...] = ()

    @property
    def sentences(self) -> list[str]:
        """All sentences: the sentences on tables, then the sentences on watches."""
        return [*self.tables, *self.refused]


NO_DIFFERENCES: Final = Differences()


@dataclass(frozen=True, slots=True)
class Measured:
    """The last measurement of figures that need a query. The publisher's own session measures them
    between two deliveries.
    """

    queue_rows: int | None = None
    """The number of rows in the queue. If it is ``cap``, there may be more rows. None for a stream,
    which has no queue.
    """
    cap: int | None = None
    oldest_seconds: float | None = None
    """The age, by event_time, of the first row of status N, None if there is no such row."""
    oldest_open_transaction_age_seconds: float | None = None
    """The age of the oldest open transaction that has written to the log, None if there is no such
    transaction or if it is unknown.
    """
    parked: Sequence[ParkedObject] = ()
    deliveries: Sequence[DeliveryInfo] = ()
    outbox: Sequence[OutboxDocument] = ()
    """The first documents of the outbox."""
    clock: datetime | None = None
    """The time to compare event_time with, None for a stream."""
    seconds: float = 0.0
    """The duration of the measurement."""
    oldest_delivery_age_seconds: float | None = None
    """The age of the first delivery of ``deliveries`` according to its entry, None if unknown."""
    ranges: int | None = None
    """The number of ranges in a consumer's set."""
    snapshot: SnapshotProgress | None = None
    """The progress of the consumer's first load, None = there is no first load, or it has ended."""
    behind: int | None = None
    """How far a followed source is ahead of its position, as a number of ``behind_unit``s. None for
    a log, or if the number is unknown.
    """
    behind_unit: str | None = None
    oldest_open_transaction: str | None = None
    """The session of the oldest open transaction that has written to the log."""
    oldest_snapshot: HeldSnapshot | None = None
    """The snapshot that prevents the removal of dead rows of the log, None if there is no such
    snapshot or if it is unknown.
    """
    tables: Sequence[TableStorage] = ()
    """The log and its internal tables, empty if unknown."""
    verified: Sequence[LastVerification] = ()
    """The last verifications of targets, newest first; empty for a consumer."""
    refused_rows: int = 0
    """The rows, and objects of a snapshot, that the receiver has finally refused. After a resync,
    these rows are counted until the new rows are done.
    """
    invalid_rows: int = 0
    """The rows, and objects of a snapshot, that failed a check."""
    due_resyncs: Sequence[str] = ()
    """The commands of the resyncs that are due; empty for a consumer, or if this role may not read
    the resyncs.
    """
    unavailable: Sequence[str] = ()
    """The names of the classes that cannot be published."""
    consumers: Sequence[ConsumerStatus] = ()
    """The consumers of the log; empty if the reader is a consumer."""
    overdue_purge: OverduePurge = NOTHING_OVERDUE
    """What a purge of the log should have done; empty if the reader is a consumer."""
    oldest_row: int | None = None
    """The record_id of the first row of status N, None if there is no such row."""
    keep_bytes: int | None = None
    """The maximum size of the log in bytes, None = no limit, or the reader is a consumer."""
    letters: int = 0
    """The dead letters that wait for the second sink."""
    oldest_letter_seconds: float | None = None
    """The age of the first letter that waits, None if no letter waits."""
    pause: Pause | None = None
    """Why the reader sends nothing, None = the reader is not paused."""
    paused_seconds: float = 0.0

    @classmethod
    def read(cls, log: OpenLog, consumer: str = "") -> Measured:
        """Return what the database shows of a log, such as its oldest writer, its oldest snapshot
        and its tables. Without a ``consumer``, this includes the verifications of targets.
        """
        writer = oldest_writer(ask(log, "transactions", OpenTransaction, limit=_MAX_TRANSACTIONS))
        snapshots = ask(log, "snapshots", HeldSnapshot, limit=1)
        failed = count_failed(log, LINES_READ, consumer)
        waiting = waiting_rows(log, failed.new_rows, consumer)
        letters = waiting_letters(log, consumer)
        return cls(
            oldest_open_transaction_age_seconds=None if writer is None else writer.seconds,
            oldest_open_transaction=None if writer is None else writer.who,
            oldest_snapshot=snapshots[0] if snapshots else None,
            tables=ask(log, "storage", TableStorage),
            verified=() if consumer else read_verifications(log),
            refused_rows=failed.refused + sum(row in waiting for row in failed.new_rows),
            invalid_rows=failed.invalid,
            due_resyncs=() if consumer else _due_resyncs(log),
            letters=letters.entries,
            oldest_letter_seconds=letters.seconds,
        )

    @property
    def dead_rows(self) -> Mapping[str, int]:
        """The dead rows by part of the log. Parts with an unknown number are left out."""
        return {table.part: table.dead for table in self.tables if table.dead is not None}

    @property
    def log_bytes(self) -> int:
        """The bytes of the log on disk, with its indexes, without its internal tables."""
        return sum(table.bytes for table in self.tables if table.part == "log")

    @property
    def table_bytes(self) -> Mapping[str, int]:
        """The bytes on disk by part of the log, with indexes."""
        return {table.part: table.bytes for table in self.tables}

    def as_data(self) -> dict[str, Any]:
        """Return the figures as data for JSON, under the names that a status has
        (docs/operate/monitor.md).
        """
        snapshot = self.oldest_snapshot
        return {
            "queue_rows": self.queue_rows,
            "queue_cap": self.cap,
            "oldest_seconds": self.oldest_seconds,
            "refused_rows": self.refused_rows,
            "invalid_rows": self.invalid_rows,
            "dead_letters": self.letters,
            "oldest_dead_letter_age_seconds": self.oldest_letter_seconds,
            "oldest_open_transaction": self.oldest_open_transaction,
            "oldest_open_transaction_age_seconds": self.oldest_open_transaction_age_seconds,
            "oldest_snapshot": None if snapshot is None else snapshot.who,
            "oldest_snapshot_age_seconds": None if snapshot is None else snapshot.seconds,
            "dead_rows": dict(self.dead_rows) or None,
            "table_bytes": dict(self.table_bytes) or None,
            "keep_bytes": self.keep_bytes,
            "ranges": self.ranges,
            "snapshot": None if self.snapshot is None else self.snapshot.as_data(),
            "paused": None if self.pause is None else self.pause.as_data(),
            "source_lag": self.behind,
            "source_lag_unit": self.behind_unit,
            "consumers": [one.as_data() for one in self.consumers],
            "verified": [one.as_data() for one in self.verified],
        }


NOT_MEASURED: Final = Measured()


def _due_resyncs(log: OpenLog) -> list[str]:
    """Return the commands of the due resyncs, empty if this role may not read the resyncs."""
    if not log.may_have(log.table.resync_table) or log.lacking([(Part.RESYNC, Right.SELECT)]):
        return []
    return [one.command for one in due_now(log)]


def measure_queue(
    log: OpenLog,
    event_time_zone: str,
    cap: int = QUEUE_CAP,
    ledger: Ledger | None = None,
    measured: Measured | None = None,
) -> Measured:
    """Measure the queue of a log, and count at most ``cap`` rows. The database's clock is read
    last.

    ``ledger`` None = a new ledger of the publisher. ``measured`` has earlier figures, which are
    copied to the result.
    """
    ledger = ledger or ledger_of(log)
    rows = count_undone(ledger, cap)
    head = log.read_window(ledger.undone(Window(1, None, 1))) if rows else []
    clock = moment_of(log.due_until(event_time_zone))
    return replace(
        measured or Measured(),
        queue_rows=rows,
        cap=cap,
        oldest_seconds=event_age(head[0].event_time, clock) if head else None,
        oldest_row=head[0].record_id if head else None,
        clock=clock,
    )


def event_age(event_time: str | None, clock: datetime) -> float | None:
    """Return the seconds from ``event_time``, a text, to ``clock``, the time of the log's clock.
    None if the text is not a usual time.
    """
    try:
        return (clock - moment_of(event_time or "")).total_seconds()
    except (ValueError, OverflowError):
        return None


def moment_of(text: str) -> datetime:
    """Return a time of the log's clock without its zone. Fractions below microseconds are cut off.

    Raises ValueError.
    """
    whole, dot, fraction = text.strip().partition(".")
    return datetime.fromisoformat(whole + dot + fraction[:6]).replace(tzinfo=None)


class Observer:
    """An observer that does nothing.

    A listener extends it and overrides the methods that it needs. Times are seconds.
    """

    @property
    def wants_deliveries(self) -> bool:
        """True if ``delivery_begins`` must be called. The call is optional, since counting the rows
        of a delivery takes time.
        """
        return type(self).delivery_begins is not Observer.delivery_begins

    @property
    def wants_event_times(self) -> bool:
        """True if event_times that are not known must be read for ``delivery_begins``."""
        return False

    def does(self, doing: Doing, reason: str = "") -> None:
        """Record the publisher's present activity."""

    def waits(
        self, who: WaitFor, reason: str, until: float, in_short: str = "", advice: str = ""
    ) -> None:
        """Record that the publisher waits until ``until``, the monotonic time of its next attempt.

        ``in_short`` is the reason without the text that the receiver sent. It is empty if the
        reason has no such text.
        ``advice`` names the option to correct, as in ``ReceiverUnavailable``.
        """

    def connected(self, *, again: bool) -> None:
        """Record that the connection is open, the lock is held and the classes have been read."""

    def disconnected(self) -> None: ...

    def progressed(self) -> None:
        """Record that a cycle ended well, or that an answer other than *retry* has arrived."""

    def window_read(self, seconds: float, groups: int) -> None:
        """Record that a window of the queue was read, and its number of groups to publish."""

    def delivery_begins(
        self, delivery: DeliveryInfo, event_times: Mapping[str, str | None]
    ) -> None:
        """Record that a delivery is about to be sent. ``event_times`` has the event_time of each
        document's first row, by the event-id in the document.
        """

    def delivery_ended(self, number: int, result: str, left: DeliveryInfo | None = None) -> None:
        """Record that a delivery has ended and its answered events are marked. ``result`` is for
        people.

        ``left`` is the recorded rest, which is sent again; None = the delivery is done.
        """

    def compared(self, differences: Differences) -> None:
        """Record the differences between the installed triggers and the declared triggers."""

    def loads(self, snapshot: SnapshotProgress | None) -> None:
        """Record the progress of a consumer's snapshot, None = the snapshot has ended."""

    def marked(self, seconds: float) -> None:
        """Record that answered events are marked, or that the position is now after them."""

    def answered(self, document: Document, answer: Answer, seconds: float) -> None:
        """Record the answer to a document, and after how many seconds it came."""

    def attempted(self, document: Document, outcome: Outcome, seconds: float) -> None:
        """Record an attempt to send a document, its outcome, and after how many seconds it came."""

    def flushed(self) -> None:
        """Record that the receiver has answered all pending documents."""

    def left(self, parked: int, rows: int) -> None:
        """Record how many objects are parked, and how many rows are in flight, after a cycle."""

    def measure_due(self) -> float | None:
        """Return the seconds until the next call of ``measured``, 0 = now, None = never."""
        return None

    @property
    def queue_cap(self) -> int:
        """The maximum number of rows of status N that the next measurement counts."""
        return QUEUE_CAP

    def measured(self, measured: Measured) -> None: ...


SILENT: Final = Observer()


_NOTES: Final = tuple(name for name, method in vars(Observer).items() if isfunction(method))


class _Several(Observer):
    """Several observers as one observer: each call is passed on to all of the observers that have
    a method for it.
    """

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers
        for note in _NOTES:
            if note not in vars(_Several):
                called = [getattr(one, note) for one in observers if _overrides(one, note)]
                setattr(self, note, called[0] if len(called) == 1 else _each_of(called))

    @property
    def wants_deliveries(self) -> bool:
        return any(one.wants_deliveries for one in self._observers)

    @property
    def wants_event_times(self) -> bool:
        return any(one.wants_event_times for one in self._observers)

    def measure_due(self) -> float | None:
        return min(
            (due for one in self._observers if (due := one.measure_due()) is not None), default=None
        )

    @property
    def queue_cap(self) -> int:
        return min(one.queue_cap for one in self._observers)


def _overrides(observer: Observer, note: str) -> bool:
    # What several observers have for it stands in the object.
    return getattr(getattr(observer, note), "__func__", None) is not vars(Observer)[note]


def _each_of(called: Sequence[Callable[..., None]]) -> Callable[..., None]:
    def call(*arguments: Any, **named: Any) -> None:
        for each in called:
            each(*arguments, **named)

    return call


def join_observers(*observers: Observer) -> Observer:
    """Return one observer that combines several; ``SILENT`` if all of them are ``SILENT``."""
    listening = [observer for observer in observers if observer is not SILENT]
    return listening[0] if len(listening) == 1 else _Several(listening) if listening else SILENT
