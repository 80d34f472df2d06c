"""Rows that a backlog job has converted into a finished directory and nobody has marked yet (spec/event-log.md 8.6).

They are held by an in-flight line of kind ``backlog``: the publisher reads past them and past all later rows of their
objects, so that nothing is sent twice and nothing overtakes the documents of the directory.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Container
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection

from eventlog.core.catalog import ObjectId
from eventlog.core.checks import check_rows
from eventlog.errors import DatabaseError, number_of
from eventlog.model import queue_rows
from eventlog.publisher.context import Context
from eventlog.publisher.flight import FORM, Flight, decode
from eventlog.publisher.queue import UNLIMITED_WINDOW, Writers, open_writers
from eventlog.sql.log_table import LogTable
from eventlog.sql.rows import read_inflight
from eventlog.sql.windows import Window

_log = logging.getLogger("eventlog.publisher")

KIND: Final = "backlog"
"""The kind of the line."""

WAYS_OUT: Final = (
    "eventlog backlog --out DIR --mark, when the receiver has the documents",
    "or eventlog backlog --out DIR --abandon: the publisher sends the rows, and the documents count no more",
)


class Hold(NamedTuple):
    """One line of kind ``backlog``. ``number``: the line's; ``job`` and ``directory``: whose documents wait there.

    ``manifest``: SHA-256 of the directory's manifest. ``last``: rows N up to this record_id are held; ``rows``: how
    many the job has read. ``flights``: recorded flights that stand in the directory too. ``writers``: transactions
    that had written the log and were open at the job's snapshot. ``is_marking``: marking has begun.
    """

    number: int
    job: str
    directory: str
    manifest: str
    since: str
    last: int
    rows: int
    flights: tuple[int, ...]
    writers: Writers
    is_marking: bool = False


def encode_hold(hold: Hold) -> str:
    """The composition text of the line."""
    line = hold._asdict() | {"writers": None if hold.writers is None else sorted(hold.writers)}
    del line["number"]
    return json.dumps({"form": FORM, "kind": KIND, **line}, separators=(",", ":"))


def read_recorded(conn: Connection, log: LogTable) -> tuple[list[Flight], Hold | None]:
    """What the in-flight lines of a log say: the flights that a publisher sends, oldest first, and what is held.

    Raises DatabaseError for a line that this version does not know.
    """
    lines = read_inflight(conn, log)
    holds = {number: hold for number, text in lines if (hold := _hold_of(number, text)) is not None}
    converted = {flight for hold in holds.values() for flight in hold.flights}
    flights = [decode(number, text) for number, text in lines if number not in holds and number not in converted]
    return flights, next(iter(holds.values()), None)


def _hold_of(number: int, composition: str) -> Hold | None:
    """What a line holds, None if it is of another kind."""
    if f'"kind":"{KIND}"' not in composition[:40].replace(" ", ""):
        return None
    try:
        line: dict[str, Any] = json.loads(composition)
        if line.pop("form") != FORM or line.pop("kind") != KIND:
            return None  # ``decode`` refuses it
        writers = line.pop("writers")
        flights = tuple(line.pop("flights"))
        return Hold(number, flights=flights, writers=None if writers is None else frozenset(writers), **line)
    except (TypeError, ValueError, KeyError) as error:
        raise DatabaseError(f"in-flight line {number} cannot be read ({error}); was it changed by hand?") from None


def in_words(hold: Hold) -> str:
    """What is held, as a sentence's beginning."""
    begun = "; marking has begun" if hold.is_marking else ""
    return (
        f"{number_of(hold.rows, 'row')} up to record_id {hold.last} held in {hold.directory} since {hold.since} "
        f"(backlog job {hold.job}{begun}); later rows of their objects wait behind them"
    )


# --- what the publisher reads past ------------------------------------------------------------------------------------

_BITS: Final = 2**27
"""16 MiB. Of a million held objects one in 130 others waits without need, of ten million one in 14."""


@dataclass(frozen=True, slots=True)
class HeldObjects:
    """The objects of held rows: a bit for each, which few others share. An object that does waits without need.

    ``writers``: transactions that may still bring rows to be held; what is here is whole while all of them are open.
    """

    bits: bytearray
    writers: Writers

    def add(self, object_id: ObjectId) -> None:
        bit = _bit_of(object_id)
        self.bits[bit >> 3] |= 1 << (bit & 7)

    def __contains__(self, object_id: object) -> bool:
        bit = _bit_of(object_id)  # type: ignore[arg-type]
        return bool(self.bits[bit >> 3] >> (bit & 7) & 1)


def _bit_of(object_id: ObjectId) -> int:
    object_class, key = object_id
    return hash((object_class.name, key)) % _BITS


def read_objects(context: Context, hold: Hold) -> HeldObjects:
    """The objects of all rows N that are held. They are read once, and again when one of ``writers`` has ended."""
    open_now = open_writers(context)
    writers = None if hold.writers is None or open_now is None else hold.writers & open_now
    held = HeldObjects(bytearray(_BITS // 8), writers)
    conn, log, options = context.connection, context.log, context.options
    window = Window(1, hold.last, None, leave_user=options.driver_user if options.leave_loopback else None)
    with closing(context.dialect.window_chunks(conn, log, window, UNLIMITED_WINDOW)) as chunks:
        for chunk in chunks:
            for _, _, object_id, _, _, _ in check_rows(list(queue_rows(chunk)), context.catalog, None).good:
                held.add(object_id)
    return held


@dataclass(frozen=True, slots=True)
class Either:
    """What is in one container or the other."""

    one: Container[Any]
    other: Container[Any]

    def __contains__(self, member: object) -> bool:
        return member in self.one or member in self.other


def warn_of(hold: Hold | None) -> None:
    """Say in the log that rows are held."""
    if hold is not None:
        _log.warning("%s: %s", in_words(hold), ", ".join(WAYS_OUT))
