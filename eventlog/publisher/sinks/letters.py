"""Dead letters as documents of a sink: the event, and why it was refused (spec/event-log.md 8.7).

The facts about the letter are in headers if the sink has headers, otherwise in a line of JSON.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from eventlog.changes.publishing import EventWriter
from eventlog.model import Document, Event, EventResult, KafkaRecord
from eventlog.publisher.sinks import Sink
from eventlog.publisher.sinks.messages import header_text

_LONGEST: Final = 1000
"""The maximum number of characters of a value in a header, or of a sentence in a chat."""
_JSON: Final = "application/json"


class LetterFacts(NamedTuple):
    """The facts about a letter. The fields have the same names as the members of the JSON."""

    key: str
    event_id: str
    code: str
    message: str
    record_ids: str
    attempts: int
    moment: str

    @property
    def in_words(self) -> str:
        """The letter as a sentence for a chat. Its markup is escaped: as markup, a text such as
        ``<!channel>`` in the message would notify everybody.
        """
        where = f" (record_ids {self.record_ids})" if self.record_ids else ""
        sentence = f"Event {self.event_id}{where} was not accepted: {self.code}: {self.message}"
        return html.escape(_cut(sentence), quote=False)

    def headers(self) -> Iterator[tuple[str, str]]:
        """Yield the values as headers of HTTP."""
        for name, value in self._asdict().items():
            text = header_text(_cut(str(value)).encode("utf-8", "replace"))
            yield f"Dead-Letter-{name.replace('_', '-').title()}", text

    def attributes(self) -> Iterator[tuple[str, bytes]]:
        """Yield the values as headers of Kafka, or as attributes of a message."""
        for name, value in self._asdict().items():
            yield f"dead_letter_{name}", _cut(str(value)).encode("utf-8", "replace")


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def moment_text(moment: datetime | None) -> str:
    """Return the time when a row or event became E, in UTC, as text; empty if it is unknown."""
    return "" if moment is None else f"{moment:%Y-%m-%dT%H:%M:%S.%fZ}"


class LetterForm(NamedTuple):
    """How the sink takes letters."""

    sink: type[Sink]
    writer: EventWriter[Any]
    """The writer of the reader's format for this sink."""
    chat_member: str | None = None
    """The member of JSON that has the letter as a sentence, in place of the event."""


def letter_document(
    form: LetterForm,
    facts: LetterFacts,
    event: Document | None,
    rows: Sequence[Mapping[str, object]],
    place: tuple[int, int],
) -> Document:
    """Return a letter as a document with the numbers of ``place``. ``event`` is the document with
    only the event of the letter. If ``event`` is None, the letter has ``rows`` in place of the
    event.
    """
    if event is not None and _is_refused(event):
        event = None
    make_events: Callable[[], tuple[Event, ...]] = tuple if event is None else event.make_events
    of_rows = json.dumps({"rows": rows}, default=str).encode()
    if form.sink.takes_records:
        record = KafkaRecord(None, None, of_rows) if event is None else _last_record(event)
        letter = KafkaRecord(
            None, facts.key.encode(), record.value, (*facts.attributes(), *record.headers)
        )
        return Document(*place, (facts.key,), b"", [(letter,)], make_events)
    body, media_type = of_rows, _JSON
    headers = tuple(facts.headers()) if form.sink.has_headers else ()
    if not form.sink.has_headers:
        content: dict[str, object] = facts._asdict()
        content |= {"rows": rows} if event is None else _member(form.writer, event.body)
        body = json.dumps(content, default=str).encode() + b"\n"
    elif form.chat_member is not None:
        body = json.dumps({form.chat_member: facts.in_words}).encode()
    elif event is not None:
        body, media_type, headers = event.body, event.media_type, (*headers, *event.headers)
    return Document(*place, (facts.key,), body, (), make_events, media_type, headers)


def _is_refused(event: Document) -> bool:
    """Return True if the format cannot hold the event."""
    if event.records:
        (records,) = event.records
        return isinstance(records, EventResult) or all(one.value is None for one in records)
    return bool(event.refused)


def _last_record(event: Document) -> KafkaRecord:
    """Return the record with the event itself: the last record that has a value. Earlier records
    describe the table, and a tombstone, for Kafka's compaction, has no value.
    """
    (records,) = event.records
    assert not isinstance(records, EventResult)
    return [one for one in records if one.value is not None][-1]


def _member(writer: EventWriter[Any], body: bytes) -> dict[str, str]:
    if writer.is_text:
        return {"event": body.decode("utf-8", "replace").rstrip("\n")}
    return {"event_base64": base64.b64encode(body).decode()}
