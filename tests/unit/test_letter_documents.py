"""Letters as documents of each kind of sink, and when the second sink gets them (spec/event-log.md
8.7).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fake_publisher import OUTPUT
from shared import PlainSink

from eventlog.model import Answer, Document, EventResult, KafkaRecord, Level
from eventlog.publisher.context.context import Counters, PublisherOptions
from eventlog.publisher.send.letter_sender import LetterSender, ReadyLetter, Refused
from eventlog.publisher.sinks import Sink
from eventlog.publisher.sinks.letters import LetterFacts, LetterForm, letter_document
from eventlog.publisher.stream import Failure
from eventlog.publisher.stream.failures import FailedEvent
from eventlog.publisher.stream.letters import SourceLetters, encode_letter

FACTS = LetterFacts("17.2/3", "17.2", "receiver", "größer", "17,19-20", 4, "2026-03-01T12:00:00Z")
ROWS = [{"record_id": 17, "table_key": "id=1"}]
HEADERS = (
    ("Dead-Letter-Key", "17.2/3"),
    ("Dead-Letter-Event-Id", "17.2"),
    ("Dead-Letter-Code", "receiver"),
    ("Dead-Letter-Message", "gr%C3%B6%C3%9Fer"),
    ("Dead-Letter-Record-Ids", "17,19-20"),
    ("Dead-Letter-Attempts", "4"),
    ("Dead-Letter-Moment", "2026-03-01T12:00:00Z"),
)
ATTRIBUTES = (
    ("dead_letter_key", b"17.2/3"),
    ("dead_letter_event_id", b"17.2"),
    ("dead_letter_code", b"receiver"),
    ("dead_letter_message", "größer".encode()),
    ("dead_letter_record_ids", b"17,19-20"),
    ("dead_letter_attempts", b"4"),
    ("dead_letter_moment", b"2026-03-01T12:00:00Z"),
)


def form(*, records: bool = False, headers: bool = False, chat: str | None = None) -> LetterForm:
    kind = SimpleNamespace(takes_records=records, has_headers=headers)
    return LetterForm(cast(type[Sink], kind), OUTPUT, chat)


def test_a_letter_over_http_has_body_media_type_and_headers_of_its_event() -> None:
    event = Document(
        9, 1, ["17.2"], b"\xffevent", (), tuple, "application/avro", (("ce-id", "17.2"),)
    )
    assert letter_document(form(headers=True), FACTS, event, [], (7, 2)) == Document(
        7, 2, ("17.2/3",), b"\xffevent", (), tuple, "application/avro",
        (*HEADERS, ("ce-id", "17.2")),
    )  # fmt: skip


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_letter_over_http_has_its_rows_as_json_in_place_of_an_event(is_refused: bool) -> None:
    refused = {"17.2": EventResult(Level.ERROR, "not expressible")}
    event = Document(9, 1, ["17.2"], b"", (), tuple, "application/avro", (), refused)
    made = letter_document(form(headers=True), FACTS, event if is_refused else None, ROWS, (7, 2))
    assert made == Document(
        7, 2, ("17.2/3",), json.dumps({"rows": ROWS}).encode(), (), tuple, "application/json",
        HEADERS,
    )  # fmt: skip


def test_a_letter_in_a_topic_is_the_event_alone_with_its_headers() -> None:
    records = (
        KafkaRecord("meta", b"table", b"description", (("of", b"meta"),)),
        KafkaRecord("hr.usr", b"k", b"event", (("ce_id", b"17.2"),)),
        KafkaRecord("hr.usr", b"k", None),
    )
    event = Document(9, 1, ["17.2"], b"", [records])
    letter = KafkaRecord(None, b"17.2/3", b"event", (*ATTRIBUTES, ("ce_id", b"17.2")))
    assert letter_document(form(records=True), FACTS, event, ROWS, (7, 2)) == Document(
        7, 2, ("17.2/3",), b"", [(letter,)]
    )


def test_a_letter_in_a_topic_has_its_rows_in_place_of_an_event() -> None:
    value = json.dumps({"rows": ROWS}).encode()
    letter = KafkaRecord(None, b"17.2/3", value, ATTRIBUTES)
    assert letter_document(form(records=True), FACTS, None, ROWS, (7, 2)) == Document(
        7, 2, ("17.2/3",), b"", [(letter,)]
    )


def test_a_letter_in_a_file_is_a_line_with_all_members() -> None:
    event = Document(9, 1, ["17.2"], "<nds>ü</nds>\n".encode())
    made = letter_document(form(), FACTS, event, ROWS, (7, 2))
    assert json.loads(made.body) == {**FACTS._asdict(), "event": "<nds>ü</nds>"}
    assert made.body.endswith(b"}\n")
    without = letter_document(form(), FACTS, None, ROWS, (7, 2))
    assert json.loads(without.body) == {**FACTS._asdict(), "rows": ROWS}


@pytest.mark.parametrize("size", [999, 1000, 1001])
def test_a_message_of_more_than_1000_characters_is_cut_in_a_header(size: int) -> None:
    message = dict(FACTS._replace(message="a" * size).attributes())["dead_letter_message"]
    assert message == (b"a" * size if size <= 1000 else b"a" * 997 + b"...")


# --- when a letter is sent again ------------------------------------------------------------------


class Waiting:
    """Letters that wait."""

    def __init__(self, *keys: str) -> None:
        self.keys = list(keys)
        self.refused: list[tuple[str, str]] = []

    def read(self, most: int) -> Sequence[ReadyLetter]:
        def write(place: tuple[int, int], key: str) -> Document:
            return Document(*place, (key,), b"")

        return [
            ReadyLetter(at, key, key, 0, lambda place, key=key: write(place, key))  # type: ignore[misc]
            for at, key in enumerate(self.keys[:most], 1)
        ]

    def remove(self, sent: Sequence[ReadyLetter], refused: Refused) -> None:
        self.refused += [(letter.key, why) for letter, why in refused]
        gone = {letter.key for letter in (*sent, *(one for one, _ in refused))}
        self.keys = [key for key in self.keys if key not in gone]

    def left(self) -> int:
        return len(self.keys)


class Second(PlainSink):
    """A second sink with an answer for each letter."""

    def __init__(self, **answers: Answer) -> None:
        self.answers, self.sent = answers, list[tuple[int, int, str]]()

    def send(self, document: Document) -> Answer:
        (key,) = document.event_ids
        self.sent.append((document.delivery_no, document.document_no, key))
        return self.answers.get(key, Answer())


def drained(
    sink: Second, letters: Waiting, counters: Counters | None = None, **options: Any
) -> float | None:
    """Send the letters, and return the seconds until the next attempt."""
    counters = counters or Counters(letters_written=1)
    sender = LetterSender(cast(Any, sink), form(), PublisherOptions(**options), counters)
    sender.letters = letters
    sender.drain(lambda: False)
    try:
        return sender.step()
    finally:
        sender.close()


@pytest.mark.parametrize(("asked", "seconds"), [(0, 1), (17, 17), (600, 60)])
def test_letters_wait_as_long_as_the_second_sink_asks_within_the_bounds(
    asked: float, seconds: float
) -> None:
    busy = Answer(general=EventResult(Level.RETRY, "busy"), retry_after=asked)
    sink, letters = Second(b=busy), Waiting("a", "b", "c")
    due = drained(sink, letters, retry_initial=1, retry_max=60)
    assert due == pytest.approx(seconds, abs=0.5)
    assert sink.sent == [(1, 1, "a"), (1, 2, "b")]
    assert (letters.keys, letters.refused) == (["b", "c"], [])


def test_a_refused_letter_ends_with_its_reason_and_the_next_is_sent() -> None:
    sink = Second(a=Answer({"a": EventResult(Level.ERROR, "no")}))
    letters, counters = Waiting("a", "b", "c"), Counters(letters_written=3)
    assert drained(sink, letters, counters) is None
    assert sink.sent == [(1, 1, "a"), (1, 2, "b"), (1, 3, "c")]
    assert (letters.keys, letters.refused) == ([], [("a", "no")])
    assert (counters.letters_sent, counters.letters_refused) == (2, 1)


# --- letters of a source --------------------------------------------------------------------------


def test_a_letter_of_a_source_has_what_its_failure_had() -> None:
    failure = Failure("0:7", "receiver", "no", '{"after": {"c1": 2}}')
    entry = encode_letter(FailedEvent(failure, None, 3), "5f0c")
    position = SimpleNamespace(letters=lambda most: {1_772_366_400_000_001: entry})
    (ready,) = SourceLetters(cast(Any, position), form(), cast(Any, None)).read(100)
    assert ready[:4] == (1_772_366_400_000_001, "0:7/1", "0:7", 0)
    made = ready.write((7, 2))
    assert (made.delivery_no, made.document_no, made.event_ids, made.nonce) == (
        7, 2, ("0:7/1",), "5f0c",
    )  # fmt: skip
    assert json.loads(made.body) == {
        "key": "0:7/1",
        "event_id": "0:7",
        "code": "receiver",
        "message": "no",
        "record_ids": "",
        "attempts": 3,
        "moment": "2026-03-01T12:00:00.000001Z",
        "rows": [{"after": {"c1": 2}}],
    }
