"""Give up an event of a followed source by hand, ``eventlog skip --from`` (spec/change-model.md
6.6).
"""

from __future__ import annotations

from collections.abc import Iterable

from eventlog.changes import json_form as change_json
from eventlog.errors import ConfigError, first_of
from eventlog.publisher.skipping import Skipped
from eventlog.publisher.stream import Failure
from eventlog.publisher.stream.position import Position
from eventlog.publisher.stream.recorded import RecordedDocument, decode, encode
from eventlog.sql.rows import SKIPPED


def skip_recorded(position: Position, event_id: str, why: str) -> Skipped:
    """Give up an event without an answer that the position has passed: it becomes a failure that
    shows ``why``, and the later events of its object are sent. The caller has the position's lock,
    so that no publisher runs.

    Raises ConfigError if there is no such event.
    """
    entries = dict(position.entries())
    documents = {number: decode(number, content) for number, content in entries.items()}
    for number, document in documents.items():
        for event in document.events:
            if event.sent_id != event_id:
                continue
            del entries[number]
            if rest := [each for each in document.events if each is not event]:
                entries[rest[0].number] = encode(document._replace(events=rest))
            tried = document.tried
            message = f"{why}; the last answer: {tried.answer}" if tried and tried.answer else why
            failure = Failure(event_id, SKIPPED, message, change_json.dumps(event.change))
            position.save(position.load(), [failure], entries)
            answer = "" if tried is None else tried.answer
            return Skipped(event_id, 0, 0 if tried is None else tried.tries, answer)
    raise ConfigError(f"no event {event_id} waits for an answer; {_known(documents.values())}")


def _known(documents: Iterable[RecordedDocument]) -> str:
    """Return a hint where the waiting events are listed."""
    failing = [
        event.sent_id
        for document in documents
        if document.suspect is not None
        for event in document.events
    ]
    if failing:
        return f"the receiver fails for {first_of(failing, 10)}"
    return "`eventlog status` lists the events that do"
