"""What happens to an event, or to an object, of a followed source: ``eventlog explain --from``
(spec/change-model.md 6.6).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from eventlog.changes import json_form as change_json
from eventlog.changes.json_form import value_to_json
from eventlog.changes.keys import old_and_new_key
from eventlog.errors import number_of
from eventlog.model import full_name
from eventlog.publisher.ledger.delivery import Tried, TriedKind
from eventlog.publisher.stream import Failure
from eventlog.publisher.stream.pending_event import ObjectId
from eventlog.publisher.stream.position import SourceRecords, key_in_words
from eventlog.publisher.stream.recorded import RecordedDocument, RecordedEvent


@dataclass(frozen=True, slots=True)
class EventExplanation:
    """The explanation of one event of a source."""

    event_id: str
    state: str
    """The state as a sentence."""
    document: int | None = None
    """The number of its entry, None if it does not wait."""
    table: str | None = None
    key: str | None = None
    attempts: int | None = None
    """The recorded attempts, None if there are none; ``answer`` is the last answer."""
    answer: str | None = None
    due: str | None = None
    """When the next attempt is due, in UTC by the clock of the position's database."""
    waits_for: str | None = None
    """The event-id of an earlier event of its object that has no answer."""
    change: Mapping[str, Any] | None = None
    """The change in its JSON form (spec/change-model.md 1.1)."""
    failures: Sequence[tuple[datetime, Failure]] = ()


def event_data(explanation: EventExplanation) -> dict[str, Any]:
    """Return the explanation as data for JSON."""
    return {
        **{name: getattr(explanation, name) for name in EventExplanation.__dataclass_fields__},
        "failures": [
            {"time": at, "code": one.code, "message": one.message}
            for at, one in explanation.failures
        ],
    }


def explain_event(records: SourceRecords, event_id: str) -> EventExplanation:
    """Explain the event of this event-id; ``records`` are those of this event."""
    for number, document, event in _events(records):
        if event.sent_id == event_id:
            return _waiting(records, number, document, event)
    if records.failures:
        _, last = records.failures[-1]
        state = (
            f"it failed ({last.code}): {last.message}; it is not tried again. To send it again, "
            "change the row at the source"
        )
        return EventExplanation(event_id, state, failures=records.failures)
    state = (
        "it does not wait, and it did not fail. If it is before the position, it was answered or "
        "has no event; if it is after the position, it is read from there"
    )
    return EventExplanation(event_id, state)


def explain_key(records: SourceRecords, text: str) -> list[EventExplanation]:
    """Explain the events without an answer of the objects with a key: ``id=7``, or with the table
    before it, ``item.id=7``.
    """
    return [
        _waiting(records, number, document, event)
        for number, document, event in _events(records)
        if text in _names(event)
    ]


def _events(records: SourceRecords) -> Iterator[tuple[int, RecordedDocument, RecordedEvent]]:
    """Yield the events that wait, with their documents and the numbers of these."""
    for number, document in records.documents.items():
        for event in document.events:
            yield number, document, event


def _waiting(
    records: SourceRecords, number: int, document: RecordedDocument, event: RecordedEvent
) -> EventExplanation:
    ahead = _event_ahead(records, event)
    tried = document.tried
    return EventExplanation(
        event.sent_id,
        _state(records, document, ahead),
        number,
        full_name(event.change.schema, event.change.table),
        key_in_words(event.change),
        None if tried is None else tried.tries,
        None if tried is None else tried.answer,
        None if tried is None else tried.due or None,
        ahead,
        change_json.to_json(event.change),
    )


def _state(records: SourceRecords, document: RecordedDocument, ahead: str | None) -> str:
    if ahead is not None:
        return f"it waits for event {ahead} of its object, which has no answer"
    then = "" if records.publisher_runs else "; no publisher runs"
    one_of = "it"
    if len(document.events) > 1:
        one_of = f"a document of {number_of(len(document.events), 'event')} that it is part of"
    match document:
        case RecordedDocument(tried=Tried(tries=tries, kind=TriedKind.PART) as tried, events=[_]):
            limit = tried.limit_in_words(records.max_attempts)
            why = f"; {limit}" if limit else ""
            return f"the receiver fails for it: it was tried {_times(tries)} alone{why}{then}"
        case RecordedDocument(tried=Tried(kind=TriedKind.PART)):
            return f"the receiver fails for {one_of}{then}"
        case RecordedDocument(tried=Tried(tries=tries, kind=TriedKind.FAILURES)):
            return (
                f"the receiver failed {_times(tries)} for {one_of}, and answered no other "
                f"document{then}"
            )
        case RecordedDocument(tried=Tried(tries=tries, kind=TriedKind.PARKED)):
            return f"the receiver asked for it later {_times(tries)}{then}"
    if records.publisher_runs:
        return "it waits for its answer, or for its next attempt"
    return "it has no answer, and is sent first when a publisher starts"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times"


def _event_ahead(records: SourceRecords, event: RecordedEvent) -> str | None:
    """Return the event-id of the first event of the same object before an event, None if it is the
    first.
    """
    objects = set(_objects(event))
    earlier = [
        (other.number, other.sent_id)
        for _, _, other in _events(records)
        if other.number < event.number and (not _objects(other) or objects & set(_objects(other)))
    ]
    return min(earlier)[1] if earlier else None


def _objects(event: RecordedEvent) -> tuple[ObjectId, ...]:
    """Return the objects of an event; empty = all objects, as of a TRUNCATE."""
    change = event.change
    if change.key is None:
        return ()
    return tuple(
        (change.schema, change.table, key) for key in dict.fromkeys(old_and_new_key(change))
    )


def _names(event: RecordedEvent) -> set[str]:
    """Return the texts that name the objects of an event."""
    names = set()
    for schema, table, key in _objects(event):
        parts = [f"{name}={value_to_json(value)}" for name, value in key]
        for text in (",".join(parts), "+".join(parts)):
            names |= {text, f"{table}.{text}", f"{full_name(schema, table)}.{text}"}
    return names
