"""What happens to an event, or to an object, of a followed source: ``eventlog explain --from`` and
the page of an event (spec/change-model.md 6.6).
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator

from eventlog.changes import json_form as change_json
from eventlog.changes.json_form import value_to_json
from eventlog.errors import EventlogError
from eventlog.model import full_name
from eventlog.publisher.inspect.explanation import Explanation, in_flight_of
from eventlog.publisher.inspect.remedies import remedy
from eventlog.publisher.ledger.in_flight import WaitingEvent
from eventlog.publisher.stream.position import SourceRecords, waiting_event
from eventlog.publisher.stream.recorded import RecordedDocument, RecordedEvent
from eventlog.sql.log.errors import ErrorRow

Write = Callable[[RecordedEvent], str]
"""A function that returns the document of an event as it would be sent now. Raises EventlogError.
"""


def explain_event(source: str, records: SourceRecords, event_id: str, write: Write) -> Explanation:
    """Explain the event of this event-id. ``source`` is the name of the source; ``records`` are the
    records of this event.
    """
    for number, document, event in _events(records):
        if event.sent_id == event_id:
            return _waiting(source, records, number, document, event, write)
    state = (
        "it does not wait, and it did not fail. A change before the position was answered or made "
        "no event; a change after the position has not been read yet"
    )
    errors = _errors(records)
    if errors:
        state = (
            f"it failed ({errors[-1].code}): {errors[-1].message}; it is not tried again. To send "
            "it again, change the row at the source"
        )
    return Explanation(f"source {source}", "event", state, event_id=event_id, errors=errors)


def explain_key(source: str, records: SourceRecords, text: str, write: Write) -> list[Explanation]:
    """Explain the unanswered events of the objects with a key: ``id=7``, or with the table before
    it, ``item.id=7``.
    """
    return [
        _waiting(source, records, number, document, event, write)
        for number, document, event in _events(records)
        if text in _names(event)
    ]


def nothing_waits(key: str) -> str:
    """Return the sentence that no event waits for the objects with a key, and why."""
    return (
        f"no event of {key} waits for an answer. Its changes before the position were answered or "
        "failed (see `eventlog errors`), or have no event"
    )


def _events(records: SourceRecords) -> Iterator[tuple[int, RecordedDocument, RecordedEvent]]:
    """Yield the events that wait, each with its document and the number of the document."""
    for number, document in records.documents.items():
        for event in document.events:
            yield number, document, event


def _errors(records: SourceRecords) -> tuple[ErrorRow, ...]:
    """Return the failures of the event, the newest last."""
    return tuple(
        ErrorRow(at.replace(tzinfo=None), one.code, one.message, one.event_id)
        for at, one in records.failures
    )


def _waiting(
    source: str,
    records: SourceRecords,
    number: int,
    document: RecordedDocument,
    event: RecordedEvent,
    write: Write,
) -> Explanation:
    change = event.change
    waiting = waiting_event(number, document, event)
    waiting = waiting._replace(delivery=records.position.delivery_no)
    written, notes = None, []
    try:
        written = write(event)
    except EventlogError as error:
        notes.append(f"its document could not be written: {error}")
    stop = "; stop the publisher first" if records.publisher_runs else ""
    skip = remedy(f"eventlog skip --from {source} {shlex.quote(event.sent_id)} --reason REASON")
    return Explanation(
        log=f"source {source}",
        kind="event",
        state=_state(records, waiting, _event_ahead(records, event)),
        class_name=waiting.table_name,
        key=waiting.table_key,
        in_flight=in_flight_of(waiting, records.max_attempts),
        event_id=event.sent_id,
        operation=change.op.value,
        document=written,
        change=change_json.to_json(change),
        errors=_errors(records),
        notes=tuple(notes),
        remedies=(skip._replace(text=skip.text + stop),),
    )


def _state(records: SourceRecords, waiting: WaitingEvent, ahead: str | None) -> str:
    if ahead is not None:
        return f"it waits for event {ahead} of its object, which has no answer"
    runs = records.publisher_runs
    if waiting.tried is not None:
        return waiting.tried.state_in_words(waiting.events, records.max_attempts, runs=runs)
    if runs:
        return "it waits for its answer, or for its next attempt"
    return "it has no answer, and is sent first when a publisher starts"


def _event_ahead(records: SourceRecords, event: RecordedEvent) -> str | None:
    """Return the event-id of the first event of the same object before an event, None if it is the
    first.
    """
    objects = set(event.objects)
    earlier = [
        (other.number, other.sent_id)
        for _, _, other in _events(records)
        if other.number < event.number
        and (not other.objects or objects.intersection(other.objects))
    ]
    return min(earlier)[1] if earlier else None


def _names(event: RecordedEvent) -> set[str]:
    """Return the texts that name the objects of an event."""
    names = set()
    for schema, table, key in event.objects:
        parts = [f"{name}={value_to_json(value)}" for name, value in key]
        for text in (",".join(parts), "+".join(parts)):
            names |= {text, f"{table}.{text}", f"{full_name(schema, table)}.{text}"}
    return names
