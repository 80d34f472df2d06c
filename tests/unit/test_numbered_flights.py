"""Formats that number their output: in-flight line, events as Qlik messages (spec/event-log.md 10, spec/qlik.md 5)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import CATALOG, database, row, table

from eventlog import table_key
from eventlog.answer import Level, Verdict
from eventlog.catalog import build_catalog, database_from_json
from eventlog.checks import check_rows
from eventlog.config import load
from eventlog.errors import DatabaseError
from eventlog.event_changes import event_to_change
from eventlog.events import EventOptions, apply_precedence, build_event
from eventlog.fold import fold
from eventlog.model import AttributeSteps, Event, LogRow, Op, Operation, Step
from eventlog.publisher.context import Numbered
from eventlog.publisher.flight import Envelope, Flight, Record, Sending, decode, encode, numbered
from eventlog.publisher.opening import value_options
from eventlog.publisher.qlik_messages import NumberedMessages, class_columns
from eventlog.qlik.message_options import WriteOptions
from eventlog.values import ValueOptions

FIRST = "20240510120000000000000010000000002"
NOW = datetime(2024, 5, 10, 12, tzinfo=UTC)
EVENT = Event(
    Operation.MODIFY, "usr", "idu=7,table=usr,schema=indirect", "12",
    (AttributeSteps("fname", "string", (Step(Op.REMOVE, ("a",)), Step(Op.ADD, ("b",)))),),
)  # fmt: skip
ROW = LogRow(12, "N", 2, "2024-05-10 11:59:59.123456", "app", "usr", "idu=7", "fname", "a", "b")


def flight(*sizes: int) -> Flight:
    numbers = iter(range(1, 1000))
    return Flight(
        3,
        tuple(
            Envelope(number, tuple(Sending(Record(str(n := next(numbers)), ((n, n),)), None, None, None)
                                   for _ in range(size)))
            for number, size in enumerate(sizes, 1)
        ),
    )  # fmt: skip


def places(of: Flight) -> list[int]:
    return [sending.record.place for envelope in of.envelopes for sending in envelope.sendings]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_what_is_left_of_a_flight_keeps_its_numbers(sizes: list[int], data: st.DataObject) -> None:
    whole = numbered(flight(*sizes), FIRST)
    assert places(whole) == list(range(1, sum(sizes) + 1))
    kept = data.draw(st.sets(st.sampled_from(places(whole)), min_size=1))
    rest = whole._replace(
        envelopes=tuple(
            envelope._replace(sendings=tuple(s for s in envelope.sendings if s.record.place in kept))
            for envelope in whole.envelopes
        )
    )
    again = decode(3, encode(rest))
    assert (again, again.first, places(again)) == (rest, FIRST, sorted(kept))


ROWS = st.tuples(st.tuples(st.integers(1, 99), st.integers(1, 99)))
RECORDS = st.builds(Record, st.from_regex(r"[0-9]{1,3}(\.2)?", fullmatch=True), ROWS | st.just(((1, 2), (4, 4))),
                    st.just(()) | ROWS, st.integers(1, 3), st.integers(1, 9))  # fmt: skip


@given(st.lists(RECORDS, min_size=1, max_size=4))
def test_a_numbered_line_is_json_without_blanks(records: list[Record]) -> None:
    envelope = Envelope(1, tuple(Sending(record, None, None, None) for record in records))
    line = {"first": FIRST, "envelopes": [[1, records]]}
    assert encode(Flight(3, (envelope,), FIRST)) == json.dumps(line, separators=(",", ":"))


def test_lines_of_other_formats_are_as_they_were() -> None:
    assert encode(flight(1, 1)) == '[[1,[["1",[[1,1]]]]],[2,[["2",[[2,2]]]]]]'
    assert decode(3, encode(flight(2))).first == ""


@pytest.mark.parametrize(
    "line", ['{"first":"1"}', '{"envelopes":[]}', '{"first":"1","envelopes":[[1,[["5",[[5,5]]]]]]}', '{"first":1']
)
def test_a_numbered_line_that_is_not_ours_is_refused(line: str) -> None:
    with pytest.raises(DatabaseError, match="in-flight line 3"):
        decode(3, line)


def messages(**options: Any) -> NumberedMessages:
    return NumberedMessages(WriteOptions(**options), ValueOptions("java"), utc_now=lambda: NOW)


def payloads(made: Any) -> list[dict[str, Any]]:
    return [json.loads(record.value) for records in made for record in records]


def test_an_event_is_numbered_by_its_place_and_timed_by_its_row() -> None:
    format = messages()
    made = format.records(CATALOG, FIRST, [Numbered(EVENT, 1, ROW), Numbered(EVENT, 5, None)])
    metadata, first, fifth = payloads(made)
    assert metadata["type"] == "MD"
    assert first["message"]["headers"]["changeSequence"] == FIRST
    assert fifth["message"]["headers"]["changeSequence"] == f"{FIRST[:-2]}10"
    assert first["message"]["headers"]["timestamp"] == "2024-05-10T11:59:59.123"
    assert fifth["message"]["headers"]["timestamp"] == "1970-01-01T00:00:00.000"
    assert first["message"]["headers"]["streamPosition"] == "12"
    assert (made[0][1].topic, made[0][1].key) == ("indirect.usr", b"7")  # type: ignore[union-attr,index]


def test_metadata_come_again_where_they_may_be_lost() -> None:
    format = messages()
    kinds = []
    for forget in (False, False, True):
        if forget:
            format.forget()
        kinds.append([one["type"] for one in payloads(format.records(CATALOG, FIRST, [Numbered(EVENT, 1, ROW)]))])
    assert kinds == [["MD", "DT"], ["DT"], ["MD", "DT"]]


def test_an_event_that_a_message_cannot_hold_is_an_error() -> None:
    phones = EVENT._replace(attributes=(AttributeSteps("usr_phone.phoneno", "string", (Step(Op.ADD, ("1", "2")),)),))
    made = messages().records(CATALOG, FIRST, [Numbered(phones, 1, ROW), Numbered(EVENT, 2, ROW)])
    assert isinstance(made[0], Verdict)
    assert made[0].level is Level.ERROR
    assert [one["type"] for one in payloads(made[1:])] == ["MD", "DT"]


def test_a_preview_shows_records_as_lines() -> None:
    lines = [json.loads(line) for line in messages().preview(CATALOG, [EVENT]).splitlines()]
    assert [line["topic"] for line in lines] == ["eventlog.metadata", "indirect.usr"]


KEYED = build_catalog(
    database_from_json(
        {
            "dialect": "postgresql",
            "schema": "s",
            "tables": [
                {
                    "name": "t", "kind": "table", "primary_key": ["b", "a"],
                    "columns": [{"name": "a", "type": "integer"}, {"name": "v", "type": "text"},
                                {"name": "b", "type": "varchar(9)"}],
                },
                {
                    "name": "w", "kind": "view",
                    "columns": [{"name": "pk_id", "type": "integer"}, {"name": "sv_name", "type": "text"}],
                },
            ],
        }
    )
)  # fmt: skip


def test_columns_of_a_class_are_those_that_its_events_name() -> None:
    table, view = (class_columns(CATALOG_CLASS) for CATALOG_CLASS in KEYED.classes)
    assert [(column.name, column.type, column.pk) for column in table] == [
        ("a", "INT4", 2), ("v", "STRING", 0), ("b", "STRING", 1),
    ]  # fmt: skip
    assert [(column.name, column.pk) for column in view] == [("pk_id", 1), ("name", 0)]


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=6), st.integers(-5, 5))
def test_a_key_is_read_as_the_association_says_it(text: str, number: int) -> None:
    event = Event(Operation.DELETE, "t", f"b={table_key.quote(text)}+a={number},table=t,schema=s", "1")
    (record,) = payloads(messages(metadata="none").records(KEYED, FIRST, [Numbered(event, 1, None)]))
    change = event_to_change(event, KEYED)
    assert change.key == (("b", text), ("a", number))
    assert record["message"]["data"] == {"a": number, "v": None, "b": text}


def test_a_message_has_the_fraction_of_a_time_of_day() -> None:
    flags = {
        "database.url": "sqlite://",
        "format.type": "qlik-messages",
        "sink.type": "kafka",
        "sink.brokers": "b:9092",
    }
    values = value_options(load(None, {}, flags))
    classes = build_catalog(database(table("times", "id integer; at time", "id")), values=values)
    checked = check_rows([row(1, 2, "id=1", "at", "10:00:00.25", "10:00:00.5", table="times")], classes, None)
    assert not checked.remarks
    (group,) = fold(checked.good, 1000, 10000)
    event = build_event(apply_precedence(group, EventOptions()), None, EventOptions()).event
    assert event is not None
    format = NumberedMessages(WriteOptions(), values, utc_now=lambda: NOW)
    _, message = payloads(format.records(classes, FIRST, [Numbered(event, 1, None)]))
    assert message["message"]["beforeData"]["at"] == "10:00:00.250000"
    assert message["message"]["data"]["at"] == "10:00:00.500000"
