"""What the functions of the publisher work with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from sqlalchemy import Connection

from eventlog.answer import Verdict
from eventlog.catalog import Catalog
from eventlog.model import Event, LogRow
from eventlog.publisher.metrics import Counters
from eventlog.publisher.options import PublisherOptions
from eventlog.publisher.sinks import Record
from eventlog.sql.dialect import Dialect
from eventlog.sql.log_table import LogTable

Render = Callable[[Sequence[Event]], str]
"""Events of one envelope -> the document. The publisher knows no format."""


class Numbered(NamedTuple):
    """An event of a numbered flight: its place among the flight's events, from 1, and the first row it was made of."""

    event: Event
    place: int
    origin: LogRow | None


class NumberedFormat(Protocol):
    """A format that numbers its output, such as Qlik messages: the in-flight line keeps a flight's first number.

    ``first``: flight number and the number that the flight before began with (empty: none is known) -> that of its
    first event (spec/event-log.md 10). ``records``: those of each event, or the verdict, error, of one that the format
    cannot hold; raises ReceiverAway. ``forget``: what was given since the last flush may not have come to the receiver.
    """

    def first(self, flight: int, before: str) -> str: ...

    def records(
        self, catalog: Catalog, first: str, events: Sequence[Numbered]
    ) -> tuple[tuple[Record, ...] | Verdict, ...]: ...

    def forget(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Context:
    """One connection, one log, the classes, and what to do with their events. ``heartbeat`` is a document too.

    ``reread`` reads the classes as the database has them now, None = they do not change. Raises ConfigError,
    TriggerError, DatabaseError. ``numbered`` is given for a format that numbers its output. ``captured``: the tables
    whose triggers fill the log.
    """

    connection: Connection
    dialect: Dialect
    log: LogTable
    catalog: Catalog
    options: PublisherOptions
    render: Render
    counters: Counters
    heartbeat: str = ""
    reread: Callable[[], Catalog] | None = None
    numbered: NumberedFormat | None = None
    captured: tuple[str, ...] = ()
