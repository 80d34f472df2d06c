"""The session of a publisher: all that its cycles share, from its lock to the end of its
connection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eventlog.core.catalog import ObjectId
from eventlog.core.event_ids import raised_at
from eventlog.errors import DatabaseAway
from eventlog.publisher.context import UNCHECKED, CatalogCheck, Context
from eventlog.publisher.flight import Flight
from eventlog.publisher.held_rows import HeldObjects, Hold
from eventlog.publisher.ledger import QueueScan
from eventlog.publisher.parking import Parking
from eventlog.publisher.queue import DueScan
from eventlog.publisher.sinks import Sink
from eventlog.publisher.suspects import Suspects
from eventlog.sql.rows import next_flight

if TYPE_CHECKING:
    from eventlog.publisher.snapshot import Loading


@dataclass(slots=True)
class State:
    """The memory of a publisher between cycles; the database has all of it, too.

    ``flights`` are the flights in the in-flight lines, by number. ``newest`` is the first number of
    the last flight that was numbered. ``scan`` is the rest of the present scan of the queue, None
    between scans. ``hold`` describes rows that a backlog job has converted; ``held`` are their
    objects, read when they are first needed. ``row_sizes`` has the approximate bytes of an object's
    row by class, as far as rows were read back. ``freed`` are objects that are no longer parked,
    and whose rows the present scan may have passed over; these rows wait for the next scan.
    ``loading`` is a snapshot that is read before the log. ``suspects`` are the envelopes that the
    receiver fails for.
    """

    parking: Parking[ObjectId]
    flights: dict[int, Flight] = field(default_factory=dict)
    newest: str = ""
    scan: QueueScan | DueScan | None = None
    hold: Hold | None = None
    held: HeldObjects | None = None
    row_sizes: dict[str, int] = field(default_factory=dict)
    freed: set[ObjectId] = field(default_factory=set)
    loading: Loading | None = None
    suspects: Suspects = field(init=False)

    def __post_init__(self) -> None:
        self.suspects = Suspects(self.parking)


@dataclass(slots=True)
class Session:
    """A publisher at work on one connection.

    ``is_stopping`` tells whether it was told to stop. ``before_flight`` is called before the
    envelopes of a flight are sent, with no transaction open. ``check`` may end a cycle by an error:
    nothing of its rows is recorded then.
    """

    context: Context
    state: State
    sink: Sink
    is_stopping: Callable[[], bool] = lambda: False
    before_flight: Callable[[], None] = lambda: None
    check: CatalogCheck = UNCHECKED


def begin_flight(context: Context, state: State) -> tuple[int, str]:
    """Return a new flight number, and the number of the flight's first event, which is greater than
    those of earlier flights also if the clock has gone back; empty for formats without numbers.
    """
    number = draw_flight(context)
    state.newest = context.output.first(number, state.newest, raised_at(context.epoch))
    return number, state.newest


def draw_flight(context: Context) -> int:
    """Return a new flight number.

    Raises DatabaseAway if it is not greater than one that this process has used: the database was
    restored to an earlier state, and the log gets a new epoch at the next connection
    (spec/event-log.md 7.4).
    """
    number = next_flight(context.log)
    if number <= context.used.flight:
        raise DatabaseAway(
            f"flight number {number} of the log {context.log} lies behind {context.used.flight}, "
            "which was used before: the database was put back to an earlier state"
        )
    return number
