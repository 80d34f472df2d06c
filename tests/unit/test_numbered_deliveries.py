"""Formats that number their output: in-flight entry, events as Qlik messages (spec/event-log.md 10,
formats/qlik.md 5).
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import CATALOG, database, row, table, usr

from eventlog.changes.events import event_to_change, outgoing_reader
from eventlog.changes.json_form import database_from_json
from eventlog.changes.publishing import Publishing, time_reader
from eventlog.config.load import load
from eventlog.config.publishing import value_options
from eventlog.core import table_key
from eventlog.core.catalog import Catalog
from eventlog.core.catalog.builder import build_catalog
from eventlog.core.rows.checks import check_rows
from eventlog.core.rows.events import EventOptions, Outgoing, build_event, public_event
from eventlog.core.rows.fold import fold
from eventlog.core.values import ValueOptions
from eventlog.errors import DatabaseError, FormatError, RowError
from eventlog.model import (
    ALL,
    Document,
    EventResult,
    Level,
    LogRow,
    Operation,
    origins_of,
    queue_rows,
)
from eventlog.publisher.ledger.delivery import Delivery, decode, encode, numbered
from eventlog.qlik.messages.message_tables import WriteOptions
from eventlog.qlik.messages.message_writer import MessageWriter
from eventlog.qlik.messages.publish import QlikWriter, class_columns
from eventlog.qlik.sequence import sequences, time_prefix

FIRST = "20240510120000000000000010000000002"
NOW = datetime(2024, 5, 10, 12, tzinfo=UTC)
FNAME = next(attribute for attribute in usr().attributes if attribute.name == "fname")
PHONE = next(attribute for attribute in usr().attributes if attribute.name == "usr_phone.phoneno")
OBJECT = usr(), "idu=7"
EVENT = Outgoing("12", [12], OBJECT, Operation.MODIFY, [(12, 2, OBJECT, FNAME, "a", "b")], place=1)
ROW = LogRow(12, "N", 2, "2024-05-10 11:59:59.123456", "app", "usr", "idu=7", "fname", "a", "b")


def delivery(*sizes: int) -> Delivery:
    numbers = iter(range(1, 1000))
    return Delivery(
        3,
        {
            number: [Outgoing(str(n := next(numbers)), [n], None, None, None) for _ in range(size)]
            for number, size in enumerate(sizes, 1)
        },
    )


def places(of: Delivery) -> list[int]:
    return [event.place for event in of.events()]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_what_is_left_of_a_delivery_keeps_its_numbers(
    sizes: list[int], data: st.DataObject
) -> None:
    whole = numbered(delivery(*sizes), FIRST)
    assert places(whole) == list(range(1, sum(sizes) + 1))
    kept = data.draw(st.sets(st.sampled_from(places(whole)), min_size=1))
    left = {
        number: [event for event in events if event.place in kept]
        for number, events in whole.documents.items()
    }
    rest = whole._replace(documents={number: events for number, events in left.items() if events})
    again = decode(3, encode(rest))
    assert (list(again.documents), again.first, places(again)) == (
        list(rest.documents),
        FIRST,
        sorted(kept),
    )


def test_lines_of_other_formats_have_no_number() -> None:
    assert '"first"' not in encode(delivery(1, 1))
    assert decode(3, encode(delivery(2))).first == ""


@pytest.mark.parametrize(
    "line",
    [
        '{"first":"1"}',
        '{"documents":[]}',
        '{"line_format":1,"kind":"publisher","first":"1"}',
        '{"first":1',
    ],
)
def test_a_numbered_line_that_is_not_ours_is_refused(line: str) -> None:
    with pytest.raises(DatabaseError, match="in-flight entry 3"):
        decode(3, line)


def messages(**options: Any) -> QlikWriter:
    return QlikWriter(
        WriteOptions(**options), Publishing(ValueOptions("java"), utc_now=lambda: NOW)
    )


def document(format: QlikWriter, *events: Outgoing, of: Catalog = CATALOG) -> Document:
    return format.document(of, Delivery(3, (), FIRST, origins_of([ROW])), 1, events)


def payloads(records: Any) -> list[dict[str, Any]]:
    return [json.loads(record.value) for of_event in records for record in of_event]


def test_an_event_is_numbered_by_its_place_and_timed_by_its_row() -> None:
    later = EVENT._replace(event_id="13", ids=[13], place=5)
    records = document(messages(), EVENT, later).records
    metadata, first, fifth = payloads(records)
    assert metadata["type"] == "MD"
    assert first["message"]["headers"]["changeSequence"] == FIRST
    assert fifth["message"]["headers"]["changeSequence"] == f"{FIRST[:-2]}10"
    assert first["message"]["headers"]["timestamp"] == "2024-05-10T11:59:59.123"
    assert fifth["message"]["headers"]["timestamp"] == "1970-01-01T00:00:00.000"
    assert first["message"]["headers"]["streamPosition"] == "12"
    assert (records[0][1].topic, records[0][1].key) == ("indirect.usr", b"7")  # type: ignore[union-attr,index]


def test_an_event_that_is_built_again_is_timed_by_the_first_row_that_is_left() -> None:
    _, message = payloads(document(messages(), EVENT._replace(event_id="11", ids=[11, 12])).records)
    assert message["message"]["headers"]["timestamp"] == "2024-05-10T11:59:59.123"


TYPED = build_catalog(
    database_from_json(
        {
            "dialect": "postgresql",
            "schema": "app",
            "tables": [
                {
                    "name": "item",
                    "kind": "table",
                    "primary_key": ["id", "code"],
                    "columns": [
                        {"name": name, "type": type}
                        for name, type in (
                            ("id", "integer"),
                            ("code", "varchar(9)"),
                            ("name", "varchar(40)"),
                            ("note", "text"),
                            ("price", "numeric(10,2)"),
                            ("day", "date"),
                            ("at", "timestamp"),
                            ("clock", "time"),
                            ("is_new", "boolean"),
                            ("data", "bytea"),
                            ("ratio", "double precision"),
                            ("n", "smallint"),
                            ("part", "bigint"),
                        )
                    ],
                    "foreign_keys": [{"columns": ["part"], "table": "part", "ref_columns": ["id"]}],
                },
                {
                    "name": "part",
                    "kind": "table",
                    "primary_key": ["id"],
                    "columns": [{"name": "id", "type": "bigint"}],
                },
            ],
        }
    ),
    referential="dn",
    values=ValueOptions("full"),
)
ITEM = TYPED.class_named("item")
TEXTS = {
    "name": st.sampled_from(["a", "", 'b"\\\n%s%%', "Müller ž", "\ud800"]),
    "note": st.text(max_size=5),
    "price": st.sampled_from(["1.50", "-0", "1234567.89", "x"]),
    "day": st.sampled_from(["2024-05-10", "infinity", "x"]),
    "at": st.sampled_from(["2024-05-10 11:59:59.123456", "0001-01-01 00:00:00"]),
    "clock": st.sampled_from(["11:59:59", "11:59:59.123456"]),
    "is_new": st.sampled_from(["true", "false"]),
    "data": st.sampled_from(["AP8=", ""]),
    "ratio": st.sampled_from(["1.5", "NaN", "Infinity", "-0.0"]),
    "n": st.sampled_from(["0", "-32768", "32767", "32768"]),
    "part": st.sampled_from(["id=7,table=part", "id=9223372036854775808,table=part"]),
}


@st.composite
def typed_events(draw: st.DrawFn) -> Outgoing:
    number = draw(st.integers(1, 99))
    key = table_key.key_text(
        [("code", draw(st.sampled_from(["a", "+,", "ä"]))), ("id", str(number))]
    )
    object_id = ITEM, ITEM.canonical_key(key)
    operation = draw(st.sampled_from([Operation.ADD, Operation.MODIFY, Operation.DELETE]))
    names = (
        []
        if operation == Operation.DELETE
        else draw(st.lists(st.sampled_from(sorted(TEXTS)), max_size=4))
    )
    steps: list[Any] = []
    for attribute in sorted(
        (a for name in names for a in ITEM.attributes if a.name == name), key=lambda a: a.name
    ):
        texts = st.none() | TEXTS[attribute.name]
        old = draw(st.just(ALL) | texts) if operation == Operation.MODIFY else None
        steps.append((number, 2, object_id, attribute, old, draw(texts)))
    return Outgoing(str(number), [number], object_id, operation, steps, place=number)


MESSAGE_OPTIONS: list[dict[str, Any]] = [
    {},
    {"names": "headers", "external_schema_id": True, "key": "table"},
    {"encoding": "avro"},
    {"encoding": "avro", "metadata": "none", "logical_types": False, "key": "none"},
]


@pytest.mark.parametrize("options", MESSAGE_OPTIONS)
@given(events=st.lists(typed_events(), min_size=1, max_size=8))
def test_steps_make_the_messages_that_their_changes_make(
    options: dict[str, Any], events: list[Outgoing]
) -> None:
    columns = {
        "app.item": class_columns(ITEM),
        "app.part": class_columns(TYPED.class_named("part")),
    }
    writer = MessageWriter(WriteOptions(**options), columns=columns, utc_now=lambda: NOW)
    read_change, sequence_of = outgoing_reader(TYPED, ValueOptions("java")), sequences(FIRST)
    written = document(messages(**options), *events, of=TYPED).records
    for event, records in zip(events, written, strict=True):
        time = time_reader("UTC")(ROW.event_time) if event.ids == [12] else None
        try:
            expected = writer.messages(read_change(event, time, None), sequence_of(event.place))
        except (FormatError, RowError):  # perhaps of an old value that is not written anyway
            is_left_out = options.get("encoding") == "avro" and any(
                step[4] is ALL for step in event.steps or ()
            )
            assert is_left_out or isinstance(records, EventResult)
        else:
            assert not isinstance(records, EventResult), records.message
            assert _readable(records[-1:]) == _readable(expected[-1:])


def _readable(records: Any) -> list[Any]:
    return [
        record._replace(value=json.loads(record.value)) if record.value[:1] == b"{" else record
        for record in records
    ]


def test_of_several_steps_of_an_attribute_the_net_effect_counts() -> None:
    """A value between them need not be one that a message can hold."""
    object_id = ITEM, ITEM.canonical_key("id=7+code=a")
    day = next(attribute for attribute in ITEM.attributes if attribute.name == "day")
    texts = [("2024-05-10", "infinity"), ("infinity", "2024-05-12")]
    steps = [(number, 2, object_id, day, old, new) for number, (old, new) in enumerate(texts, 1)]
    event = Outgoing("1", [1, 2], object_id, Operation.MODIFY, steps, place=1)
    (message,) = payloads(document(messages(metadata="none"), event, of=TYPED).records)
    assert message["message"]["beforeData"]["day"] == "2024-05-10"
    assert message["message"]["data"]["day"] == "2024-05-12"


def test_metadata_come_again_where_they_may_be_lost() -> None:
    format = messages()
    kinds = []
    for forget in (False, False, True):
        if forget:
            format.forget()
        kinds.append([one["type"] for one in payloads(document(format, EVENT).records)])
    assert kinds == [["MD", "DT"], ["DT"], ["MD", "DT"]]


def test_an_event_that_a_message_cannot_hold_is_an_error() -> None:
    phones = EVENT._replace(steps=[(12, 2, OBJECT, PHONE, None, ("1", "2"))])
    records = document(messages(), phones, EVENT._replace(place=2)).records
    assert isinstance(records[0], EventResult)
    assert records[0].level is Level.ERROR
    assert [one["type"] for one in payloads(records[1:])] == ["MD", "DT"]


def test_a_preview_shows_records_as_lines() -> None:
    lines = [
        json.loads(line)
        for line in messages().preview(CATALOG, Delivery(1, {}), [EVENT]).splitlines()
    ]
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
                    "columns": [{"name": "pk_id", "type": "integer"}, {"name": "sv_name",
                    "type": "text"}],
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
def test_a_key_is_read_in_the_spelling_of_the_association(text: str, number: int) -> None:
    object_id = KEYED.class_named("t"), f"b={table_key.quote(text)}+a={number}"
    event = Outgoing("1", [1], object_id, Operation.DELETE, (), place=1)
    (record,) = payloads(document(messages(metadata="none"), event, of=KEYED).records)
    change = event_to_change(public_event(event), KEYED)
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
    checked = check_rows(
        queue_rows([row(1, 2, "id=1", "at", "10:00:00.25", "10:00:00.5", table="times")]),
        classes,
        None,
    )
    assert not checked.remarks
    (group,) = fold(checked.valid, 1000, 10000)
    event = build_event(group, EventOptions())._replace(place=1)
    format = QlikWriter(WriteOptions(), Publishing(values, utc_now=lambda: NOW))
    _, message = payloads(document(format, event, of=classes).records)
    assert message["message"]["beforeData"]["at"] == "10:00:00.250000"
    assert message["message"]["data"]["at"] == "10:00:00.500000"


def test_a_delivery_of_an_epoch_begins_not_before_the_raise_also_where_the_clock_has_gone_back() -> (
    None
):
    output = QlikWriter(
        WriteOptions(), Publishing(value_options(load(None, {})), utc_now=lambda: NOW)
    )
    raised = datetime(2024, 5, 11, tzinfo=UTC)
    assert output.first(1, "", None)[:16] == time_prefix(NOW)
    assert output.first(1, "", raised)[:16] == time_prefix(raised)
