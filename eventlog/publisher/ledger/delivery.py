"""A delivery: documents that are sent together, and the in-flight entry that records them
(spec/event-log.md 8.4, 10).

The entry is written and committed before the first document is sent. After a crash it shows which
rows made which event, so that an event-id never stands for two sets of rows.

This is a hot path: every event gets its delivery here. An event is made by ``tuple.__new__``, so
``placed`` repeats the order of fields in ``Outgoing``. For a new delivery without special events,
``encode`` skips the search for them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import chain, count, islice
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from eventlog.core.catalog import ObjectId
from eventlog.core.clock import random_hex
from eventlog.core.ranges import ids_of, to_ranges
from eventlog.core.rows.event_ids import begun_of, epoch_suffix, object_id_of, object_text
from eventlog.core.rows.events import CurrentRow, Outgoing
from eventlog.errors import DatabaseError, number_of
from eventlog.model import Origins

_new: Final = tuple.__new__  # makes a NamedTuple from its fields; _replace takes four times as long

ENTRY_FORMAT: Final = 1
"""The format of the entries.

Each entry names its format, so that another version of eventlog refuses the entry.
"""

_MAX_CHARACTERS: Final = 300
"""The maximum number of characters of the last answer that an entry keeps."""

NO_ORIGINS: Final = Origins({}, {}, {})


class DeliveryInfo(NamedTuple):
    """A delivery whose in-flight entry is still in the database."""

    number: int
    events: int
    rows: int
    first_id: str = ""
    """The event-id of its first event."""


class TriedKind(StrEnum):
    """Why something is sent again (spec/event-log.md 8.4). The values are names of members of
    entries.
    """

    PART = "suspect"
    """It is part of an isolated document: the receiver failed for the isolated document alone."""
    FAILURES = "failures"
    """The receiver failed for the document, and has answered no document since. ``tries`` counts
    the rounds since the doubt about the receiver began.
    """
    PARKED = "parked"
    """The receiver answered the event with *retry*."""


class Tried(NamedTuple):
    """The attempts that an entry records: their number, the last answer, and the time when the next
    attempt is due.
    """

    tries: int = 0
    answer: str = ""
    due: str = ""
    """The database's time in UTC (ISO 8601); empty = due when the publisher starts."""
    kind: TriedKind = TriedKind.PART

    def as_member(self) -> dict[str, object]:
        """Return the attempts as a member of an entry's JSON."""
        data = {"tries": self.tries, "answer": self.answer[:_MAX_CHARACTERS]}
        return {self.kind.value: {**data, "due": self.due} if self.due else data}

    @property
    def is_parked(self) -> bool:
        """True if the objects of the events are parked. While the receiver is in doubt, a failure
        parks nothing (spec/event-log.md 8.4).
        """
        return self.kind is not TriedKind.FAILURES

    def state_in_words(self, events: int, max_attempts: int, *, runs: bool) -> str:
        """Return for people why a document of this number of events is sent again. ``runs`` is true
        if a publisher runs. Not every attempt is recorded.
        """
        one_of = "it"
        if events > 1:
            one_of = f"a document of {number_of(events, 'event')} that it is part of"
        times = "once" if self.tries == 1 else f"{self.tries:,} times"
        match self.kind:
            case TriedKind.PARKED:
                why = f"the receiver answered retry at least {times}"
            case TriedKind.FAILURES:
                pauses = number_of(self.tries, "pause")
                why = (
                    f"the receiver failed for {one_of} and has answered no document since, for at "
                    f"least {pauses}"
                )
            case TriedKind.PART:
                why = f"the receiver fails for {one_of}"
                if events == 1 and self.tries:
                    why += f": it was sent alone at least {times}"
        limit = self.limit_in_words(max_attempts)
        return "; ".join(filter(None, (why, limit, "" if runs else "no publisher runs")))

    def limit_in_words(self, max_attempts: int) -> str:
        """Return why an event that is tried alone is not given up although it has had
        ``max_attempts`` attempts (spec/event-log.md 8.4). Empty if it has had fewer attempts, or if
        there is no limit (0).
        """
        if self.kind is not TriedKind.PART or not 0 < max_attempts <= self.tries:
            return ""
        return f"limit {max_attempts}: waits until another document is answered"


def read_tried(data: Mapping[str, Any]) -> Tried | None:
    """Return the attempts of a document or an event from an entry's JSON, None = no attempts."""
    return next(
        (Tried(**data[kind.value], kind=kind) for kind in TriedKind if kind.value in data), None
    )


class Delivery(NamedTuple):
    """The content of one in-flight entry (spec/event-log.md 7.4, 8.4). The fields ``origins`` and
    ``current_rows`` are not in the entry.
    """

    number: int
    documents: Mapping[int, Sequence[Outgoing]]
    """The documents by their numbers from 1; each consists of up to ``batch_size`` events."""
    first: str = ""
    """The number of the first event, for formats that number events."""
    origins: Origins = NO_ORIGINS
    """The origins of the delivery's rows, for formats that need them."""
    current_rows: Mapping[ObjectId, CurrentRow] = MappingProxyType({})
    """The present rows of objects."""
    epoch: str = ""
    """The log's epoch, a part of event-ids (spec/event-log.md 7.4), when the entry was written."""
    last_number: int = 0
    """The highest document number that a partly answered delivery has used, 0 = no document is
    answered yet.
    """
    tried: Mapping[int, Tried] = MappingProxyType({})
    """The attempts to send documents for which the receiver has failed, by document number."""
    parked: Mapping[str, Tried] = MappingProxyType({})
    """The attempts to send events that were answered with retry, by event-id."""
    nonce: str = ""
    """A random text by which a server distinguishes the events of the delivery from events of other
    deliveries with the same event-ids (spec/event-log.md 8.4); empty if the sink needs none.
    """

    def events(self) -> Iterator[Outgoing]:
        """Return the events of all documents in order."""
        return chain.from_iterable(self.documents.values())

    def attempts_at(self, document_no: int, event: Outgoing) -> Tried | None:
        """Return the recorded attempts to send an event of a document: of a parked event, or of a
        document for which the receiver has failed. None if there are no attempts.
        """
        return self.parked.get(event.event_id) or self.tried.get(document_no)

    @property
    def is_of_snapshot(self) -> bool:
        """True if the events are objects of a consumer's snapshot (spec/event-log.md 13.3). These
        events have no rows.
        """
        return any(not event.ids for event in islice(self.events(), 1))


def pack(
    number: int,
    events: Sequence[Outgoing],
    batch_size: int,
    first: str = "",
    origins: Origins = NO_ORIGINS,
    epoch: str = "",
    nonce: str = "",
) -> Delivery:
    """Return a delivery with the events in documents of up to ``batch_size`` events, in order. With
    ``first`` the events are numbered (``place``).
    """
    if first:
        events = placed(events, count(1))
    starts = enumerate(range(0, len(events), batch_size), 1)
    documents = {each: events[start : start + batch_size] for each, start in starts}
    return Delivery(number, documents, first, origins, epoch=epoch, nonce=nonce)


def new_nonce(*, is_needed: bool) -> str:
    """Return a random text for a new entry; empty unless it is needed."""
    return random_hex(8) if is_needed else ""


def numbered(delivery: Delivery, first: str) -> Delivery:
    """Return a recorded delivery with its events numbered. ``first`` is the number of the first
    event.
    """
    places = count(1)
    documents = {number: placed(events, places) for number, events in delivery.documents.items()}
    return delivery._replace(documents=documents, first=first)


def placed(events: Iterable[Outgoing], places: Iterator[int]) -> list[Outgoing]:
    """Return events with their places in a delivery whose format numbers them."""
    return [
        _new(
            Outgoing,
            (
                event_id,
                ids,
                object_id,
                operation,
                steps,
                outcomes,
                dropped,
                attempts,
                next(places),
                rows,
            ),
        )
        for (
            event_id,
            ids,
            object_id,
            operation,
            steps,
            outcomes,
            dropped,
            attempts,
            _,
            rows,
        ) in events
    ]


# --- the entry ------------------------------------------------------------------------------------


def encode(delivery: Delivery, *, is_plain: bool = False) -> str:
    """Return the content of the entry of kind ``delivery``.

    The content is ``{"line_format": 1, "documents": [...]}``, with ``"first"`` in a numbered
    delivery, with ``"epoch"`` if the log has an epoch, with ``"nonce"`` if the sink needs one, and
    with ``"last_number"`` if a finished document had a higher number than the remaining documents.
    A document has its ``number``, the record_ids of its events one after the other as ranges
    (``rows``), the number of ids of each event (``counts``), and in a numbered delivery the
    ``place`` of its first event. ``events`` has the exceptions, by the index of the event: an
    ``id`` other than the first record_id and the epoch; rows that were ``dropped`` because other
    rows of the event take precedence (7.1); the number of ``attempts``; a ``place`` that does not
    follow the previous one; the attempts of an event that is ``parked``. A delivery of a snapshot
    has ``"snapshot"``, the time when the snapshot was begun, and each of its documents has
    ``objects`` in place of rows and counts. A document that was ``tried`` has ``"suspect"`` or
    ``"failures"``, by the kind: ``{"tries": 2, "answer": "...", "due": "..."}``. ``is_plain`` means
    that no event has an exception, as in nearly all new deliveries, so that no search for
    exceptions is needed.
    """
    entry: dict[str, object] = {"line_format": ENTRY_FORMAT}
    if delivery.epoch:
        entry["epoch"] = delivery.epoch
    if delivery.first:
        entry["first"] = delivery.first
    if delivery.nonce:
        entry["nonce"] = delivery.nonce
    if delivery.last_number > max(delivery.documents, default=0):
        entry["last_number"] = delivery.last_number
    suffix = epoch_suffix(delivery.epoch)
    is_of_snapshot = delivery.is_of_snapshot
    if is_of_snapshot:
        entry["snapshot"] = begun_of(next(delivery.events()).event_id)
    documents = []
    for number, events in delivery.documents.items():
        document: dict[str, object] = {"number": number}
        if is_of_snapshot:
            document["objects"] = [object_text(event.event_id) for event in events]
        else:
            all_ids = [event.ids for event in events]
            document["rows"] = to_ranges(list(chain.from_iterable(all_ids)))
            document["counts"] = list(map(len, all_ids))
        if delivery.first:
            document["place"] = events[0].place
        if number in delivery.tried:
            document |= delivery.tried[number].as_member()
        if not is_plain and (
            special := _special(events, bool(delivery.first), suffix, delivery.parked)
        ):
            document["events"] = special
        documents.append(document)
    return json.dumps(entry | {"documents": documents}, separators=(",", ":"))


def _special(
    events: Sequence[Outgoing], is_numbered: bool, suffix: str, parked: Mapping[str, Tried]
) -> dict[str, dict[str, object]]:
    special: dict[str, dict[str, object]] = {}
    place = events[0].place
    for index, (event_id, ids, _, _, _, _, dropped, attempts, own_place, _) in enumerate(events):
        what: dict[str, object] = {}
        if ids and event_id != f"{ids[0]}{suffix}":
            what["id"] = event_id
        if dropped:
            what["dropped"] = to_ranges(dropped)
        if attempts != 1:
            what["attempts"] = attempts
        if is_numbered and own_place != place:
            what["place"] = own_place
        if event_id in parked:
            what |= parked[event_id].as_member()
        place = own_place + 1
        if what:
            special[str(index)] = what
    return special


def refuse_newer(number: int, entry: Mapping[str, Any]) -> None:
    """Raise DatabaseError for the content of an entry that a newer version wrote, KeyError for an
    entry without a format.
    """
    if entry["line_format"] != ENTRY_FORMAT:
        raise DatabaseError(
            f"in-flight entry {number} is of format {entry['line_format']}: a newer version of "
            "eventlog wrote it. Run the newer version until the entry is processed"
        )


def decode(number: int, content: str) -> Delivery:
    """Return a delivery from its entry. Its events are not built yet.

    Raises DatabaseError for an entry that cannot be read.
    """
    try:
        entry = json.loads(content)
        refuse_newer(number, entry)
        epoch = str(entry.get("epoch", ""))
        suffix = epoch_suffix(epoch)
        begun = entry.get("snapshot")
        documents = {
            int(document["number"]): _read(document, suffix, begun)
            for document in entry["documents"]
        }
        return Delivery(
            number,
            documents,
            str(entry.get("first", "")),
            epoch=epoch,
            last_number=int(entry.get("last_number", 0)),
            tried={
                int(document["number"]): tried
                for document in entry["documents"]
                if (tried := read_tried(document)) is not None
            },
            parked={
                documents[int(document["number"])][int(index)].event_id: tried
                for document in entry["documents"]
                for index, what in document.get("events", {}).items()
                if (tried := read_tried(what)) is not None
            },
            nonce=str(entry.get("nonce", "")),
        )
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise DatabaseError(
            f"in-flight entry {number} cannot be read ({error}). If it was changed by hand, "
            "restore its content"
        ) from None


def _read(document: Mapping[str, Any], suffix: str, begun: Any) -> list[Outgoing]:
    """Return the events of a document. Its events have rows, or are objects of a snapshot that was
    ``begun``.
    """
    special = document.get("events", {})
    place = document.get("place", 0)
    events: list[Outgoing] = []
    named = (
        _rows_of(document, suffix)
        if begun is None
        else ((object_id_of(str(begun), str(text)), ()) for text in document["objects"])
    )
    for index, (event_id, ids) in enumerate(named):
        what = special.get(str(index), {})
        place = what.get("place", place)
        event_id, dropped = str(what.get("id", event_id)), tuple(_ids(what.get("dropped", ())))
        attempts = int(what.get("attempts", 1))
        events.append(
            Outgoing(event_id, ids, None, None, None, None, dropped, attempts, int(place))
        )
        place += "place" in document
    return events


def _rows_of(document: Mapping[str, Any], suffix: str) -> Iterator[tuple[str, Sequence[int]]]:
    """Yield the usual event-id and the rows of each event. Raises ValueError."""
    ids = _ids(document["rows"])
    for index, size in enumerate(document["counts"]):
        row_ids = list(islice(ids, size))
        if not row_ids or len(row_ids) != size:
            raise ValueError(f"event {index} of document {document['number']} lacks rows")
        yield f"{row_ids[0]}{suffix}", row_ids
    if next(ids, None) is not None:
        raise ValueError(f"document {document['number']} has more rows than its events")


def _ids(ranges: Iterable[Sequence[int]]) -> Iterator[int]:
    return ids_of((int(first), int(last)) for first, last in ranges)
