"""A flight: envelopes that are sent together, and the line that records them (spec/event-log.md
8.4, 10).

The line is written and committed before the first envelope is sent. After a crash it tells which
rows made which event, so that an event-id never means two sets of rows.

This is a hot path: every event gets its flight here. An event is made by ``tuple.__new__``, so the
order of fields in ``Outgoing`` stands in ``placed``, too, and ``encode`` skips the search for
special events in new flights that have none.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain, count, islice
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from eventlog.core.catalog import ObjectId
from eventlog.core.event_ids import epoch_suffix
from eventlog.core.events import CurrentRow, Outgoing
from eventlog.core.ranges import ids_of, to_ranges
from eventlog.errors import DatabaseError
from eventlog.model import Origins

_new: Final = tuple.__new__  # makes a NamedTuple from its fields; _replace takes four times as long

LINE_FORMAT: Final = 1
"""The format of the lines.

Each line names it, so that an eventlog of another version refuses the line.
"""

_MOST_CHARACTERS: Final = 300
"""The most characters of a last answer that a line keeps."""

NO_ORIGINS: Final = Origins({}, {})


class FlightInfo(NamedTuple):
    """A flight whose in-flight line is still in the database."""

    number: int
    events: int
    rows: int


class Tried(NamedTuple):
    """The tries of a part of an envelope that the receiver has failed for: their number since it
    was cut, and the last answer.
    """

    tries: int = 0
    answer: str = ""


class Flight(NamedTuple):
    """The content of one in-flight line (spec/event-log.md 7.4, 8.4). The fields ``origins``,
    ``current_rows`` and ``waiting`` are not in the line.
    """

    number: int
    envelopes: Mapping[int, Sequence[Outgoing]]
    """The envelopes by their numbers from 1: up to ``batch_size`` events each, which make one
    document.
    """
    first: str = ""
    """The number of the first event, for formats that number events."""
    origins: Origins = NO_ORIGINS
    """The origins of the line's rows, for formats that need them."""
    current_rows: Mapping[ObjectId, CurrentRow] = MappingProxyType({})
    """The present rows of objects."""
    epoch: str = ""
    """The log's epoch when the line was written (spec/event-log.md 7.4)."""
    last_number: int = 0
    """The greatest number that an envelope of a flight sent in part has had, 0 before."""
    waiting: frozenset[str] = frozenset()
    """The event-ids of recorded events whose class is unavailable."""
    suspects: Mapping[int, Tried] = MappingProxyType({})
    """The tries of envelopes that are parts of one that the receiver has failed for, by their
    numbers (spec/event-log.md 8.4).
    """

    def events(self) -> Iterator[Outgoing]:
        """Return the events of all envelopes in order."""
        return chain.from_iterable(self.envelopes.values())

    def info(self) -> FlightInfo:
        """Return the facts of the flight for an observer."""
        events = sum(map(len, self.envelopes.values()))
        return FlightInfo(self.number, events, sum(len(event.ids) for event in self.events()))


def pack(
    number: int,
    events: Sequence[Outgoing],
    batch_size: int,
    first: str = "",
    origins: Origins = NO_ORIGINS,
    epoch: str = "",
) -> Flight:
    """Return a flight of envelopes of up to ``batch_size`` events, in order; with ``first`` the
    events get places.
    """
    if first:
        events = placed(events, count(1))
    starts = enumerate(range(0, len(events), batch_size), 1)
    envelopes = {each: events[start : start + batch_size] for each, start in starts}
    return Flight(number, envelopes, first, origins, epoch=epoch)


def unbuilt(flight: Flight) -> Flight:
    """Return a waiting flight without its events' values, which are read again when it is sent."""
    envelopes = {
        number: [
            event if event.steps is None else event._replace(steps=None, rows=None)
            for event in events
        ]
        for number, events in flight.envelopes.items()
    }
    return Flight(
        flight.number,
        envelopes,
        flight.first,
        epoch=flight.epoch,
        last_number=flight.last_number,
        suspects=flight.suspects,
    )


def rest_of(flight: Flight, left: Mapping[int, Sequence[Outgoing]]) -> Flight:
    """Return a flight with the events that are ``left`` of its envelopes, by their numbers.

    The rest of an envelope gets a new number once a part of it is answered, and so does each
    envelope behind it. Sinks name files by the number: under the old one the rest would replace
    what was sent (spec/event-log.md 10). New numbers are greater than every earlier one of the
    flight.
    """
    last_number = max((flight.last_number, *flight.envelopes))
    envelopes: dict[int, Sequence[Outgoing]] = {}
    suspects: dict[int, Tried] = {}
    is_sent_in_part = False
    for number, events in left.items():
        if not events:
            continue
        is_sent_in_part = is_sent_in_part or len(events) < len(flight.envelopes[number])
        new_number = number
        if is_sent_in_part:
            new_number = last_number = last_number + 1
        envelopes[new_number] = events
        if number in flight.suspects:
            suspects[new_number] = flight.suspects[number]
    return flight._replace(envelopes=envelopes, last_number=last_number, suspects=suspects)


def set_apart(flight: Flight, sent_ids: Container[str], tried: Tried | None) -> Flight:
    """Return a flight in which the halves of these events, by their event-ids in the document, are
    envelopes of their own, with these tries; None = they are envelopes as all others. An event that
    is alone stays one envelope.

    The receiver may have applied any of them. An event behind another one of its object gets a new
    event-id, since it is sent apart from that one now (spec/event-log.md 7.4). The halves and all
    envelopes behind them get new numbers, as in ``rest_of``.
    """
    last_number = before = max((flight.last_number, *flight.envelopes))
    envelopes: dict[int, Sequence[Outgoing]] = {}
    suspects: dict[int, Tried] = {}
    for number, events in flight.envelopes.items():
        chosen = [event for event in events if event.sent_id in sent_ids]
        rest = [event for event in events if event.sent_id not in sent_ids] if chosen else events
        for half in _halves(_sent_apart(chosen)):
            last_number += 1
            envelopes[last_number] = half
            if tried is not None:
                suspects[last_number] = tried._replace(answer=tried.answer[:_MOST_CHARACTERS])
        if not rest:
            continue
        new_number = number
        if last_number > before:
            new_number = last_number = last_number + 1
        envelopes[new_number] = rest
        if number in flight.suspects:
            suspects[new_number] = flight.suspects[number]
    return flight._replace(envelopes=envelopes, last_number=last_number, suspects=suspects)


def note_try(flight: Flight, sent_id: str, answer: str) -> Flight:
    """Return a flight that has one try more of the part with this event."""
    for number, tried in flight.suspects.items():
        if any(event.sent_id == sent_id for event in flight.envelopes.get(number, ())):
            suspects = {
                **flight.suspects,
                number: Tried(tried.tries + 1, answer[:_MOST_CHARACTERS]),
            }
            return flight._replace(suspects=suspects)
    return flight


def _halves(events: Sequence[Outgoing]) -> list[Sequence[Outgoing]]:
    middle = (len(events) + 1) // 2
    return [half for half in (events[:middle], events[middle:]) if half]


def _sent_apart(events: Sequence[Outgoing]) -> list[Outgoing]:
    """Return events with a new event-id for each that stands behind another one of its object."""
    objects: set[ObjectId | None] = set()
    apart = []
    for event in events:
        is_behind = event.object_id in objects
        objects.add(event.object_id)
        apart.append(event._replace(sendings=event.sendings + 1) if is_behind else event)
    return apart


def numbered(flight: Flight, first: str) -> Flight:
    """Return a recorded flight whose first event has this number, with its events' places."""
    places = count(1)
    envelopes = {number: placed(events, places) for number, events in flight.envelopes.items()}
    return flight._replace(envelopes=envelopes, first=first)


def placed(events: Iterable[Outgoing], places: Iterator[int]) -> list[Outgoing]:
    """Return events with their places in a flight whose format numbers them."""
    return [
        _new(
            Outgoing,
            (
                event_id,
                ids,
                object_id,
                operation,
                steps,
                fates,
                dropped,
                sendings,
                next(places),
                rows,
            ),
        )
        for event_id, ids, object_id, operation, steps, fates, dropped, sendings, _, rows in events
    ]


# --- the line -------------------------------------------------------------------------------------


def encode(flight: Flight, *, is_plain: bool = False) -> str:
    """Return the content of the entry of kind ``delivery``.

    ``{"line_format": 1, "envelopes": [...]}``, with ``"first"`` in a numbered
    flight, with ``"epoch"`` under one, and with ``"last_number"`` if an envelope that is gone had a
    greater number than those that are left. An envelope has its ``number``, the record_ids of its
    events one after the other as ranges (``rows``), the number of ids of each event (``counts``),
    and in a numbered flight the ``place`` of its first event. ``events`` has the exceptions by the
    event's index: an ``id`` other than the first record_id and the epoch, rows that precedence
    ``dropped``, the number of ``sendings``, a ``place`` that does not follow the previous one. An
    envelope of ``suspects`` has ``"suspect": {"tries": 2, "answer": "..."}``.
    ``is_plain`` says that no event
    has an exception, as in nearly all new flights, and skips the search.
    """
    line: dict[str, object] = {"line_format": LINE_FORMAT}
    if flight.epoch:
        line["epoch"] = flight.epoch
    if flight.first:
        line["first"] = flight.first
    if flight.last_number > max(flight.envelopes, default=0):
        line["last_number"] = flight.last_number
    suffix = epoch_suffix(flight.epoch)
    envelopes = []
    for number, events in flight.envelopes.items():
        all_ids = [event.ids for event in events]
        rows, counts = to_ranges(list(chain.from_iterable(all_ids))), list(map(len, all_ids))
        envelope: dict[str, object] = {"number": number, "rows": rows, "counts": counts}
        if flight.first:
            envelope["place"] = events[0].place
        if number in flight.suspects:
            envelope["suspect"] = flight.suspects[number]._asdict()
        if not is_plain and (special := _special(events, bool(flight.first), suffix)):
            envelope["events"] = special
        envelopes.append(envelope)
    return json.dumps(line | {"envelopes": envelopes}, separators=(",", ":"))


def _special(
    events: Sequence[Outgoing], is_numbered: bool, suffix: str
) -> dict[str, dict[str, object]]:
    special: dict[str, dict[str, object]] = {}
    place = events[0].place
    for index, (event_id, ids, _, _, _, _, dropped, sendings, own_place, _) in enumerate(events):
        what: dict[str, object] = {}
        if event_id != f"{ids[0]}{suffix}":
            what["id"] = event_id
        if dropped:
            what["dropped"] = to_ranges(dropped)
        if sendings != 1:
            what["sendings"] = sendings
        if is_numbered and own_place != place:
            what["place"] = own_place
        place = own_place + 1
        if what:
            special[str(index)] = what
    return special


def refuse_newer(number: int, line: Mapping[str, Any]) -> None:
    """Raise DatabaseError for the content of an entry that a newer version wrote, KeyError for one
    without a format.
    """
    if line["line_format"] != LINE_FORMAT:
        raise DatabaseError(
            f"in-flight line {number} is of format {line['line_format']}: a newer version of "
            "eventlog wrote it. Start that version until the entry is processed"
        )


def decode(number: int, content: str) -> Flight:
    """Return a flight from its entry; its events have to be built.

    Raises DatabaseError for an unknown line.
    """
    try:
        line = json.loads(content)
        refuse_newer(number, line)
        epoch = str(line.get("epoch", ""))
        suffix = epoch_suffix(epoch)
        envelopes = {
            int(envelope["number"]): _read(envelope, suffix) for envelope in line["envelopes"]
        }
        return Flight(
            number,
            envelopes,
            str(line.get("first", "")),
            epoch=epoch,
            last_number=int(line.get("last_number", 0)),
            suspects={
                int(envelope["number"]): Tried(**envelope["suspect"])
                for envelope in line["envelopes"]
                if "suspect" in envelope
            },
        )
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise DatabaseError(
            f"in-flight line {number} cannot be read ({error}); was it changed by hand?"
        ) from None


def _read(envelope: Mapping[str, Any], suffix: str) -> list[Outgoing]:
    ids = _ids(envelope["rows"])
    place = envelope.get("place", 0)
    special = envelope.get("events", {})
    events: list[Outgoing] = []
    for index, size in enumerate(envelope["counts"]):
        row_ids = list(islice(ids, size))
        if not row_ids or len(row_ids) != size:
            raise ValueError(f"event {index} of envelope {envelope['number']} lacks rows")
        what = special.get(str(index), {})
        place, event_id = what.get("place", place), what.get("id", f"{row_ids[0]}{suffix}")
        events.append(
            _recorded(event_id, row_ids, what.get("dropped", ()), what.get("sendings", 1), place)
        )
        place += "place" in envelope
    if next(ids, None) is not None:
        raise ValueError(f"envelope {envelope['number']} has more rows than its events")
    return events


def _recorded(
    event_id: Any,
    ids: list[int],
    dropped: Iterable[Sequence[int]] = (),
    sendings: int = 1,
    place: int = 0,
) -> Outgoing:
    return Outgoing(
        str(event_id), ids, None, None, None, None, tuple(_ids(dropped)), int(sendings), int(place)
    )


def _ids(ranges: Iterable[Sequence[int]]) -> Iterator[int]:
    return ids_of((int(first), int(last)) for first, last in ranges)
