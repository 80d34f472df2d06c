"""A flight: envelopes that are in the air together, and the line that records them (spec/event-log.md 8.4, 10).

The line is written and committed before the first envelope leaves. After a crash it says which rows made which
event, so that an event-id never means two sets of rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import NamedTuple

from eventlog.catalog import ObjectClass
from eventlog.errors import DatabaseError
from eventlog.events import Outcome
from eventlog.model import Event, LogRow
from eventlog.sql.windows import Ranges, to_ranges

ObjectId = tuple[ObjectClass, str]
"""Class and canonical table_key: what an event is about."""


class Record(NamedTuple):
    """One event in the in-flight line: the rows it was made of, and which of them precedence dropped.

    ``sendings`` counts the event-ids it has been sent under: 1 at first, n gives the event-id ``<id>.n`` (7.4).
    ``place`` counts the events of a flight whose format numbers them, from 1; 0 in other flights.
    """

    event_id: str
    rows: Ranges
    dropped: Ranges = ()
    sendings: int = 1
    place: int = 0

    @property
    def sent_id(self) -> str:
        """The event-id that the document carries."""
        return self.event_id if self.sendings == 1 else f"{self.event_id}.{self.sendings}"


class Sending(NamedTuple):
    """One event on its way. ``event`` is None when it came out empty on being rebuilt: its rows are only to be
    marked. ``origin`` is the first row of an event of a numbered flight.
    """

    record: Record
    object_id: ObjectId | None
    event: Event | None
    outcome: Outcome | None
    origin: LogRow | None = None


class Envelope(NamedTuple):
    """Up to ``batch_size`` events that make one document, with its number in the flight, from 1."""

    number: int
    sendings: tuple[Sending, ...]


class Flight(NamedTuple):
    """The envelopes of one in-flight line. ``first`` is the number of its first event, for formats that number them."""

    number: int
    envelopes: tuple[Envelope, ...]
    first: str = ""


def ids_of(ranges: Ranges) -> list[int]:
    """The record_ids of ranges, in their order."""
    return [record_id for first, last in ranges for record_id in range(first, last + 1)]


def record_of(outcome: Outcome, queue_order: Sequence[int] | None = None, place: int = 0) -> Record:
    """The in-flight record of an event that is about to be sent for the first time.

    ``queue_order``: the record_ids of its group in the order of the queue, where that is not theirs
    (``handle_future_events``); the record keeps it, so that the event is rebuilt from rows in this order. ``place`` as
    of ``Record``.
    """
    event, contributed, dropped, gone, _, bad, _ = outcome
    if event is None:
        raise ValueError("a group without an event has no record")
    if len(contributed) == 1 and not (dropped or gone or bad):  # as most are
        return Record(event.event_id, ((contributed[0], contributed[0]),), place=place)
    rows = contributed + dropped + gone + [row.record_id for row in bad]
    if queue_order is None:
        rows.sort()
    else:
        places = {record_id: place for place, record_id in enumerate(queue_order)}
        rows.sort(key=places.__getitem__)
    return Record(event.event_id, tuple(to_ranges(rows)), tuple(to_ranges(dropped)), place=place)


def pack(number: int, sendings: Sequence[Sending], batch_size: int) -> Flight:
    """A flight of envelopes of up to ``batch_size`` events, in order."""
    envelopes = [
        Envelope(index + 1, tuple(sendings[start : start + batch_size]))
        for index, start in enumerate(range(0, len(sendings), batch_size))
    ]
    return Flight(number, tuple(envelopes))


def numbered(flight: Flight, first: str) -> Flight:
    """A flight whose first event has this number, and whose events have their places."""
    places = count(1)
    envelopes = [
        Envelope(number, tuple([Sending(Record(*s.record[:-1], next(places)), *s[1:]) for s in sendings]))
        for number, sendings in flight.envelopes
    ]
    return Flight(flight.number, tuple(envelopes), first)


def encode(flight: Flight) -> str:
    """The composition text of the in-flight line.

    ``[[envelope number, [[event_id, rows, dropped, sendings], ...]], ...]``, rows and dropped as ``[first, last]``
    pairs; the last two are left out where they say nothing. A numbered flight is ``{"first": ..., "envelopes": ...}``,
    and each event has its place at its end: what is left keeps its numbers, whatever was struck off.
    """
    if flight.first:
        return f'{{"first":{json.dumps(flight.first)},"envelopes":{_envelopes(flight, _whole)}}}'
    return _envelopes(flight, _short)


def _envelopes(flight: Flight, text_of: Callable[[Record], str]) -> str:
    envelopes = [
        f"[{envelope.number},[{','.join([text_of(sending.record) for sending in envelope.sendings])}]]"
        for envelope in flight.envelopes
    ]
    return f"[{','.join(envelopes)}]"


def _whole(record: Record) -> str:
    event_id, rows, dropped, sendings, place = record
    if not dropped and len(rows) == 1 and event_id.isdecimal():  # as nearly all are
        first, last = rows[0]
        return f'["{event_id}",[[{first},{last}]],[],{sendings},{place}]'
    return json.dumps(record, separators=(",", ":"))


def _short(record: Record) -> str:
    event_id, rows, dropped, sendings, _ = record
    if sendings == 1 and not dropped and len(rows) == 1 and event_id.isdecimal():
        # As nearly all are: put together here in a third of the time.
        first, last = rows[0]
        return f'["{event_id}",[[{first},{last}]]]'
    parts: list[object] = [event_id, rows]
    if sendings != 1:
        parts += dropped, sendings
    elif dropped:
        parts.append(dropped)
    return json.dumps(parts, separators=(",", ":"))


def decode(number: int, composition: str) -> Flight:
    """A flight from its line; its events have to be rebuilt. Raises DatabaseError if the text is not ours."""
    try:
        line = json.loads(composition)
        is_numbered = isinstance(line, dict)
        first, listed, read = (line["first"], line["envelopes"], _numbered) if is_numbered else ("", line, _record)
        envelopes = [
            Envelope(int(envelope), tuple(Sending(read(*parts), None, None, None) for parts in records))
            for envelope, records in listed
        ]
    except (TypeError, ValueError, KeyError) as error:
        raise DatabaseError(f"in-flight line {number} cannot be read ({error}); was it changed by hand?") from None
    return Flight(number, tuple(envelopes), str(first))


def _record(
    event_id: str, rows: Iterable[Sequence[int]], dropped: Iterable[Sequence[int]] = (), sendings: int = 1
) -> Record:
    return Record(str(event_id), _pairs(rows), _pairs(dropped), int(sendings))


def _numbered(
    event_id: str, rows: Iterable[Sequence[int]], dropped: Iterable[Sequence[int]], sendings: int, place: int
) -> Record:
    return _record(event_id, rows, dropped, sendings)._replace(place=int(place))


def _pairs(ranges: Iterable[Sequence[int]]) -> tuple[tuple[int, int], ...]:
    return tuple((int(first), int(last)) for first, last in ranges)
