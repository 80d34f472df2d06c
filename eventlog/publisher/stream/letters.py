"""The dead letters of a followed source: its failures as entries, which are sent to the second sink
(spec/event-log.md 8.7).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from eventlog.changes import json_form as change_json
from eventlog.errors import DatabaseError, EventlogError, ReceiverUnavailable
from eventlog.model import Document
from eventlog.publisher.ledger.delivery import ENTRY_FORMAT, refuse_newer
from eventlog.publisher.send.letter_sender import ReadyLetter, Refused, refusal_in_words
from eventlog.publisher.sinks.letters import LetterFacts, LetterForm, letter_document, moment_text
from eventlog.publisher.stream import Failure
from eventlog.publisher.stream.failures import FailedEvent
from eventlog.publisher.stream.output import StreamOutput
from eventlog.publisher.stream.pending_event import BEFORE_ALL, PendingEvent
from eventlog.publisher.stream.position import TablePosition, moment_of
from eventlog.publisher.stream.recorded import RecordedDocument, RecordedEvent, decode, encode
from eventlog.sql.log.errors import DEAD_LETTER


def encode_letter(failed: FailedEvent, nonce: str = "") -> str:
    """Return the content of the entry of a letter: its nonce (spec/event-log.md 8.4), the member
    ``letter`` with the reason, and the members that the entry of a document with only this event
    has. If there is no event, ``letter``
    also has the content of the failure.
    """
    failure, event, attempts = failed
    letter: dict[str, object] = {
        "event_id": failure.event_id,
        "code": failure.code,
        "message": failure.message,
        "attempts": attempts,
    }
    if event is None:
        letter["content"] = failure.content
        entry: dict[str, object] = {"line_format": ENTRY_FORMAT}
        if nonce:
            entry["nonce"] = nonce
        return json.dumps({**entry, "letter": letter}, separators=(",", ":"))
    recorded = RecordedEvent(
        event.number, event.sent_id, event.change, event.numbered, event.described
    )
    entry = json.loads(encode(RecordedDocument([recorded], nonce=nonce)))
    return json.dumps({**entry, "letter": letter}, separators=(",", ":"))


class SourceLetters:
    """The letters of a followed source. ``output`` writes the events of letters; only the thread
    that sends letters uses ``output``.
    """

    def __init__(self, position: TablePosition, form: LetterForm, output: StreamOutput) -> None:
        self._position, self._form, self._output = position, form, output

    def read(self, most: int) -> Sequence[ReadyLetter]:
        """Return the first letters. Raises DatabaseError, DatabaseUnavailable."""
        return [self._ready(*entry) for entry in self._position.letters(most).items()]

    def remove(self, sent: Sequence[ReadyLetter], refused: Refused) -> None:
        """Remove letters; refused letters become failures. The errors are those of ``read``."""
        failures = [
            Failure(letter.event_id, DEAD_LETTER, refusal_in_words(letter, why))
            for letter, why in refused
        ]
        numbers = [letter.number for letter in (*sent, *(one for one, _ in refused))]
        self._position.remove_letters(numbers, failures)

    def left(self) -> int:
        """Return how many letters wait. The errors are those of ``read``."""
        return self._position.waiting_letters().entries

    def _ready(self, number: int, text: str) -> ReadyLetter:
        try:
            content = json.loads(text)
            refuse_newer(number, content)
            letter: Mapping[str, Any] = content["letter"]
            facts = LetterFacts(
                f"{letter['event_id']}/1",
                str(letter["event_id"]),
                str(letter["code"]),
                str(letter["message"]),
                "",
                int(letter["attempts"]),
                moment_text(moment_of(number)),
            )
        except (TypeError, ValueError, KeyError) as error:
            raise DatabaseError(
                f"the entry {number} of a dead letter cannot be read ({error}). If it was "
                "changed by hand, restore its content"
            ) from None
        recorded, rows = None, _rows_of(letter.get("content"))
        if "events" in content:
            (recorded,) = decode(number, text).events
            rows = [json.loads(change_json.dumps(recorded.change))]
        write = partial(self._document, facts, recorded, rows, str(content.get("nonce", "")))
        return ReadyLetter(number, facts.key, facts.event_id, 0, write)

    def _document(
        self,
        facts: LetterFacts,
        recorded: RecordedEvent | None,
        rows: Sequence[Mapping[str, object]],
        nonce: str,
        place: tuple[int, int],
    ) -> Document:
        event = None if recorded is None else self._written(recorded)
        return letter_document(self._form, facts, event, rows, place)._replace(nonce=nonce)

    def _written(self, recorded: RecordedEvent) -> Document | None:
        """Return the document of an event alone, None if the format cannot write it."""
        output = self._output
        try:
            if recorded.described is not None:
                output.describe(recorded.described)
            change, object_class = output.complete(recorded.change)
            piece_of = output.writer.piece_of
            written = output.events_of(change, object_class, recorded.sent_id, piece_of)
            events = [PendingEvent(BEFORE_ALL, *one) for one in written[:1]]
            return output.document(0, 1, events) if events else None
        except ReceiverUnavailable:
            raise
        except EventlogError:
            return None


def _rows_of(content: str | None) -> list[Mapping[str, object]]:
    """Return the content of a failure as rows: the change as JSON, or another text."""
    if content is None:
        return []
    try:
        row = json.loads(content)
    except ValueError:
        row = None
    return [row if isinstance(row, dict) else {"content": content}]
