"""The session of a publisher: everything that its cycles share while it has the lock and the
connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eventlog.core.rows.event_ids import raised_at
from eventlog.core.rows.events import Outgoing
from eventlog.errors import DatabaseUnavailable
from eventlog.publisher.context.context import UNCHECKED, CatalogCheck, Context
from eventlog.publisher.context.observer import ParkedObject
from eventlog.publisher.feeds.queue import DueScan
from eventlog.publisher.ledger.delivery import Delivery
from eventlog.publisher.ledger.in_flight import BacklogClaim, ClaimedObjects
from eventlog.publisher.ledger.ledger import QueueScan
from eventlog.publisher.send.database_clock import DatabaseClock
from eventlog.publisher.send.letter_sender import LetterSender
from eventlog.publisher.send.outbox import Outbox
from eventlog.publisher.send.policy import class_of
from eventlog.publisher.send.sending import STOPPED, Delivered, DeliveryResult
from eventlog.publisher.send.serving import parked_objects
from eventlog.publisher.sinks import Sink
from eventlog.sql.log.internal_tables import next_number
from eventlog.sql.log.recorded_masks import RecordedMasks, key_of, masks_to_record

if TYPE_CHECKING:
    from eventlog.publisher.feeds.snapshot import UnfinishedSnapshot
    from eventlog.sql.log.pauses import Pause


_log = logging.getLogger("eventlog.publisher")


class PassedOver:
    """The objects whose rows a scan leaves in the queue: objects that wait in the outbox, the
    objects of classes that wait there, and objects that have become free since. Earlier rows of a
    free object may be before the rest of the scan, so the object waits for the next scan.
    """

    __slots__ = ("_objects", "_outbox")

    def __init__(self, outbox: Outbox[Outgoing]) -> None:
        self._outbox = outbox
        self._objects: set[object] = set()

    def __bool__(self) -> bool:
        return bool(self._objects) or self._outbox.has_waiting

    def __contains__(self, one: Hashable) -> bool:
        # A million objects of a class that waits are one entry.
        for each in (class_of(one), one):
            if each in self._outbox:
                self._objects.add(each)
                return True
        return one in self._objects or class_of(one) in self._objects

    @property
    def has_free(self) -> bool:
        """True if an object has become free whose rows a scan has passed over."""
        return any(one not in self._outbox for one in self._objects)


@dataclass(slots=True)
class PublisherState:
    """What a publisher keeps in memory between cycles. Everything that a restart needs is in the
    database.
    """

    outbox: Outbox[Outgoing]
    clock: DatabaseClock
    newest: str = ""
    """The number of the first event in the last delivery with numbers."""
    deliveries: dict[int, Delivery] = field(default_factory=dict)
    """The facts of the deliveries in the outbox, without their documents, by number."""
    scan: QueueScan | DueScan | None = None
    """The rest of the present scan of the queue, None between scans."""
    claim: BacklogClaim | None = None
    """The rows that a backlog job has converted."""
    claimed: ClaimedObjects | None = None
    """The objects of the claimed rows, read when they are first needed."""
    row_sizes: dict[str, int] = field(default_factory=dict)
    """The approximate number of bytes of an object's row by class, for classes whose rows were read
    back.
    """
    loading: UnfinishedSnapshot | None = None
    """A snapshot that is read before the log."""
    pause: Pause | None = None
    """Why nothing is sent now, as last read; None = the reader is not paused."""
    masks: RecordedMasks | None = None
    """The masks to record with the next delivery, None = they are recorded."""
    passed: PassedOver = field(init=False)
    """The objects that the present scan has passed over."""

    def __post_init__(self) -> None:
        self.begin_scan()

    def parked_objects(self) -> list[ParkedObject]:
        """Return the objects that wait, each with its first event."""
        return parked_objects(
            self.outbox,
            lambda event: event.object_id and (event.object_id[0].name, event.object_id[1]),
        )

    def begin_scan(self) -> None:
        """Record that a scan begins at the head of the queue."""
        self.passed = PassedOver(self.outbox)


@dataclass(slots=True)
class PublisherSession:
    """A publisher working on one connection."""

    context: Context
    state: PublisherState
    sink: Sink
    is_stopping: Callable[[], bool] = lambda: False
    """A function that returns True if the publisher was asked to stop."""
    before_delivery: Callable[[], None] = lambda: None
    """A function that is called, outside of a transaction, before a delivery's documents are
    sent.
    """
    check: CatalogCheck = UNCHECKED
    """A check that may end a cycle with an error: then nothing is recorded of the cycle's rows."""
    letters: LetterSender | None = None
    """The sender of dead letters, None without a second sink."""

    def send_letters(self) -> float | None:
        """Do what can be done now about dead letters, and return the seconds until there is more to
        do, None = only a new letter changes anything. No transaction may be open, and none is left
        open.
        """
        if self.letters is None or self.state.pause is not None:
            return None  # a paused reader sends nothing
        return self.letters.step()

    def read_pause(self) -> None:
        """Read whether the reader is paused, and log a change."""
        before, pause = self.state.pause, self.context.ledger.read_pause()
        self.state.pause = pause
        if pause is not None and pause != before:
            _log.warning("%s; nothing is sent until `eventlog resume`", pause)
        elif pause is None and before is not None:
            _log.info("%s is resumed", before.reader)

    def halted(self) -> Delivered | None:
        """Return how the cycle ends if it may send nothing else; None = the cycle goes on."""
        if self.is_stopping():
            return STOPPED
        pause = self.state.pause
        return None if pause is None else Delivered(DeliveryResult.PAUSED, str(pause))


def new_masks(context: Context) -> RecordedMasks | None:
    """Return the masks to record with the next delivery, None = they are recorded already
    (spec/event-log.md 15.3).
    """
    before = context.ledger.masks
    key = key_of(context.log, context.ledger.consumer, context.masks)
    masks = masks_to_record(context.masks, before, context.catalog, key)
    return None if masks == before else masks


def end_recording(session: PublisherSession, number: int) -> None:
    """Remember that a delivery, and the masks that were new, have been recorded and committed."""
    context, state = session.context, session.state
    context.used.delivery_no = number
    if state.masks is not None:
        _log.info("the masks of %s are recorded: %s", context.ledger.reader, state.masks)
        context.ledger.masks, state.masks = state.masks, None


def begin_delivery(context: Context, state: PublisherState) -> tuple[int, str]:
    """Return a new delivery number, and the number of the delivery's first event, which is empty
    for formats without numbers. The number of the event is greater than the numbers of earlier
    deliveries, even if the clock has gone back.
    """
    number = draw_delivery_no(context)
    state.newest = context.output.first(number, state.newest, raised_at(context.epoch))
    return number, state.newest


def draw_delivery_no(context: Context) -> int:
    """Return a new delivery number.

    Raises DatabaseUnavailable if the new number is not greater than every number that this process
    has used: the database was restored to an earlier state, and the log gets a new epoch at the
    next connection (spec/event-log.md 7.4).
    """
    number = next_number(context.log)
    if number <= context.used.delivery_no:
        raise number_went_back(context, f"delivery {number}")
    return number


def number_went_back(context: Context, number: str) -> DatabaseUnavailable:
    """Return the error for a delivery number that is not greater than a number that was used
    before.
    """
    return DatabaseUnavailable(
        f"{number} of the log {context.log} is lower than {context.used.delivery_no}, "
        "which was used before: the database was put back to an earlier state"
    )
