"""The attempts that a process keeps for the page of an event."""

from __future__ import annotations

import pytest

from eventlog.core.rows.event_ids import row_or_object
from eventlog.errors import ReceiverUnavailable, Reply
from eventlog.model import Answer, Document, EventResult, Level
from eventlog.publisher.context.observer import Outcome
from eventlog.publisher.monitor.attempts import Attempts

REFUSED = EventResult(Level.ERROR, "no such user")


def document(number: int, *event_ids: str) -> Document:
    return Document(7, number, event_ids, b"<nds/>")


def added(*kept: tuple[Document, Outcome]) -> Attempts:
    attempts = Attempts()
    for at, (one, outcome) in enumerate(kept):
        attempts.add(float(at), 0.5, one, outcome)
    return attempts


def test_an_attempt_shows_when_how_long_and_what_came_back_the_newest_first() -> None:
    unavailable = ReceiverUnavailable("http://r: the receiver answers 500; oops")
    unavailable.reply = Reply("500 Internal Server Error", b"oops\n", lambda body: body.decode())
    accepted = Answer(reply=Reply("200 OK", b"fine", lambda body: body.decode()))
    attempts = added((document(1, "3", "4"), unavailable), (document(2, "4"), accepted))
    newest, oldest = attempts.of("4")
    assert newest._asdict() == {
        "at": 1.0, "seconds": 0.5, "delivery": 7, "document": 2, "events": 1, "event_id": "4",
        "level": "success", "message": "", "status": "200 OK", "answer": "fine",
    }  # fmt: skip
    assert (oldest.events, oldest.level, oldest.status, oldest.answer) == (
        2, "no answer", "500 Internal Server Error", "oops\n",
    )  # fmt: skip
    assert oldest.message.endswith("oops")
    assert attempts.of("5") == []


def test_an_event_is_found_under_all_its_event_ids_and_by_its_record_id() -> None:
    kept = [(document(number, sent), Answer()) for number, sent in enumerate(("4", "4.2", "41"))]
    attempts = added(*kept)
    assert [one.event_id for one in attempts.of("4")] == ["4.2", "4"]
    assert [one.event_id for one in attempts.of("4.3")] == ["4.2", "4"]
    snapshot = "snapshot.20260301120000.usr.idu=7"
    assert [one.event_id for one in added((document(1, snapshot), Answer())).of(snapshot)] == [
        snapshot
    ]


def test_a_document_that_is_refused_without_naming_an_event_is_not_an_answer_to_each() -> None:
    whole = Answer(general=REFUSED, culprit_unknown=True)
    attempts = added((document(1, "3", "4"), whole), (document(2, "4"), whole))
    assert [one.level for one in attempts.of("4")] == ["error", "sent in halves"]


def test_many_successes_do_not_displace_a_failure_and_all_are_bounded() -> None:
    attempts = added((document(1, "1"), Answer({"1": REFUSED})))
    for number in range(60):
        ids = [str(number * 1000 + place + 2) for place in range(1000)]
        attempts.add(1.0, 0.1, document(number, *ids), Answer())
    assert [one.level for one in attempts.of("1")] == ["error"]
    assert attempts.of("2") == [], "the oldest of more than 50,000 events"
    assert len(attempts.of("59002")) == 1


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("17", 17),
        ("0017", 17),
        ("17.3", 17),
        ("17.e20260301120000ab12cd34", 17),
        ("17.e20260301120000ab12cd34.2", 17),
        ("snapshot.20260301120000.usr.idu=7", "snapshot.20260301120000.usr.idu=7"),
        ("0", None),
        ("x", None),
        ("17.x", None),
        ("1" * 19, None),
        ("", None),
    ],
)
def test_an_event_is_named_by_its_record_id_or_its_event_id(
    text: str, named: int | str | None
) -> None:
    assert row_or_object(text) == named
