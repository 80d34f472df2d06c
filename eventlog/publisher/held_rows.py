"""The in-flight lines of a log, and the rows that a line of kind ``backlog`` holds
(spec/event-log.md 8.6).

A line of kind ``backlog`` holds rows that a backlog job has converted into a finished directory and
that are not marked yet. The publisher passes over them and over all later rows of their objects. So
nothing is sent twice and nothing overtakes the documents of the directory.
"""

from __future__ import annotations

import json
import logging
from typing import Any, Final, NamedTuple

from eventlog.core.catalog import ObjectId
from eventlog.core.ranges import RecordSet, to_ranges
from eventlog.errors import DatabaseError, number_of
from eventlog.publisher.flight import LINE_FORMAT, Flight, consumer_of, decode
from eventlog.publisher.ledger import Writers
from eventlog.sql.consumers import is_of_set
from eventlog.sql.open_log import OpenLog
from eventlog.sql.purge import is_note
from eventlog.sql.rows import read_inflight

_log = logging.getLogger("eventlog.publisher")

_BACKLOG: Final = "backlog"
"""The kind of the in-flight line that holds rows."""

HOLD_WAYS_OUT: Final = (
    "eventlog backlog mark --out DIR, when the receiver has the documents",
    "or eventlog backlog abandon --out DIR: the publisher sends the rows, and the documents "
    "count no more",
)


class Hold(NamedTuple):
    """One line of kind ``backlog``."""

    number: int
    """The line's number."""
    job: str
    directory: str
    """The names of the job and of the place of its documents."""
    manifest: str
    """The SHA-256 of the directory's manifest."""
    since: str
    last: int
    """The record_id up to which rows N are held."""
    rows: int
    """The number of rows that the job has read."""
    flights: tuple[int, ...]
    """The recorded flights whose documents are in the directory, too."""
    writers: Writers
    """The transactions that had written the log and were open at the job's snapshot."""
    is_marking: bool = False
    """True if marking has begun."""

    @property
    def in_words(self) -> str:
        """The held rows as the beginning of a sentence."""
        begun = "; marking has begun" if self.is_marking else ""
        return (
            f"{number_of(self.rows, 'row')} up to record_id {self.last} held in {self.directory} "
            f"since {self.since} (backlog job {self.job}{begun}); later rows of their objects "
            "wait behind them"
        )


def encode_hold(hold: Hold) -> str:
    """Return the composition text of the line."""
    line = hold._asdict() | {"writers": None if hold.writers is None else sorted(hold.writers)}
    del line["number"]
    return json.dumps({"line_format": LINE_FORMAT, "kind": _BACKLOG, **line}, separators=(",", ":"))


def read_recorded(log: OpenLog, consumer: str = "") -> tuple[list[Flight], Hold | None]:
    """Return the contents of a log's in-flight lines: the flights that a publisher sends, oldest
    first, and the hold.

    ``consumer`` selects its own flights, which have no hold; empty = the publisher's. Raises
    DatabaseError for a line that this version does not know.
    """
    lines = [
        line
        for line in read_inflight(log)
        if consumer_of(*line) == consumer and not is_of_set(line[1]) and not is_note(line[1])
    ]
    holds = {number: hold for number, text in lines if (hold := _hold_of(number, text)) is not None}
    converted = {flight for hold in holds.values() for flight in hold.flights}
    flights = [
        decode(number, text)
        for number, text in lines
        if number not in holds and number not in converted
    ]
    return flights, next(iter(holds.values()), None)


def sent_ids(log: OpenLog, consumer: str = "") -> RecordSet:
    """Return the rows N that the receiver may have already: those in flight, and all that a
    finished directory may hold.

    ``consumer`` as in ``read_recorded``.
    """
    flights, hold = read_recorded(log, consumer)
    ids = sorted(
        record_id for flight in flights for event in flight.events() for record_id in event.ids
    )
    return RecordSet(0 if hold is None else hold.last, to_ranges(ids))


def consumer_lines(log: OpenLog, consumer: str) -> list[int]:
    """Return the numbers of a consumer's in-flight lines."""
    return [number for number, text in read_inflight(log) if consumer_of(number, text) == consumer]


def _hold_of(number: int, composition: str) -> Hold | None:
    """Return the hold in a line, None if the line is of another kind."""
    if f'"kind":"{_BACKLOG}"' not in composition[:40].replace(" ", ""):
        return None
    try:
        line: dict[str, Any] = json.loads(composition)
        if line.pop("line_format") != LINE_FORMAT or line.pop("kind") != _BACKLOG:
            return None  # ``decode`` refuses it
        writers = line.pop("writers")
        flights = tuple(line.pop("flights"))
        return Hold(
            number, flights=flights, writers=None if writers is None else frozenset(writers), **line
        )
    except (TypeError, ValueError, KeyError) as error:
        raise DatabaseError(
            f"in-flight line {number} cannot be read ({error}); was it changed by hand?"
        ) from None


_BITS: Final = 2**27
"""16 MiB.

With a million held objects one in 130 others waits without need, with ten million one in 14.
"""


class HeldObjects:
    """The objects of held rows: a bit for each, which few other objects share. Such an object waits
    without need.

    ``writers`` are transactions that may still add rows to be held. The set is complete while all
    of them are open.
    """

    __slots__ = ("_bits", "writers")

    def __init__(self, writers: Writers) -> None:
        self._bits, self.writers = bytearray(_BITS // 8), writers

    def add(self, object_id: ObjectId) -> None:
        bit = _bit_of(object_id)
        self._bits[bit >> 3] |= 1 << (bit & 7)

    def __contains__(self, object_id: object) -> bool:
        bit = _bit_of(object_id)  # type: ignore[arg-type]
        return bool(self._bits[bit >> 3] >> (bit & 7) & 1)


def _bit_of(object_id: ObjectId) -> int:
    object_class, key = object_id
    return hash((object_class.name, key)) % _BITS


def warn_of(hold: Hold | None) -> None:
    """Warn in the log that rows are held."""
    if hold is not None:
        _log.warning("%s: %s", hold.in_words, ", ".join(HOLD_WAYS_OUT))
