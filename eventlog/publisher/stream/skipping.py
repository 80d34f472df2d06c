"""Give up an event of a followed source by hand, ``eventlog skip --from`` (spec/change-model.md
6.6).
"""

from __future__ import annotations

from collections.abc import Iterable

from eventlog.changes import json_form as change_json
from eventlog.errors import ConfigError, first_of
from eventlog.publisher.inspect.skipping import Skipped
from eventlog.publisher.ledger.delivery import Tried, is_part
from eventlog.publisher.stream import Failure
from eventlog.publisher.stream.position import TablePosition
from eventlog.publisher.stream.recorded import RecordedDocument, decode, encode
from eventlog.sql.log.errors import SKIPPED


def skip_recorded(position: TablePosition, event_ids: Iterable[str], why: str) -> list[Skipped]:
    """Give up events without an answer that the position has passed: each becomes a failure that
    shows ``why``, and the later events of its object are sent. The caller has the position's lock,
    so that no publisher runs.

    Raises ConfigError if there is no such event; then no event is given up.
    """
    entries = dict(position.entries())
    documents = {number: decode(number, content) for number, content in entries.items()}
    waiting = {
        event.sent_id: (number, event)
        for number, document in documents.items()
        for event in document.events
    }
    skipped: list[Skipped] = []
    failures: list[Failure] = []
    for event_id in dict.fromkeys(event_ids):
        if event_id not in waiting:
            hint = _known(documents.values())
            raise ConfigError(f"no event {event_id} waits for an answer; {hint}")
        number, event = waiting[event_id]
        tried = documents[number].tried or Tried()
        message = f"{why}; the last answer: {tried.answer}" if tried.answer else why
        failures.append(Failure(event_id, SKIPPED, message, change_json.dumps(event.change)))
        skipped.append(Skipped(event_id, 0, tried.tries, tried.answer))
    gone = {one.event_id for one in skipped}
    for number in {waiting[event_id][0] for event_id in gone}:
        del entries[number]
        document = documents[number]
        if rest := [event for event in document.events if event.sent_id not in gone]:
            entries[rest[0].number] = encode(document._replace(events=rest))
    if skipped:
        position.save(position.load(), failures, entries)
    return skipped


def _known(documents: Iterable[RecordedDocument]) -> str:
    """Return the events that the receiver fails for, or else a hint where the waiting events are
    listed.
    """
    failing = [
        event.sent_id
        for document in documents
        if is_part(document.tried)
        for event in document.events
    ]
    if failing:
        return f"the receiver fails for {first_of(failing, 10)}"
    return "`eventlog status` lists the events that do"
