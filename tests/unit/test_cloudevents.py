"""CloudEvents: what an event says, how it is read, and how a log is published as such
(formats/cloudevents.md).
"""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
from fake_publisher import NO_WAIT, FakePublisher
from hypothesis import given
from hypothesis import strategies as st
from samples import CATALOG, database, row, table, usr
from shared import PlainSink
from sqlalchemy import make_url
from test_numbered_deliveries import TYPED, typed_events

from eventlog.changes.events import outgoing_reader
from eventlog.changes.format import Report
from eventlog.changes.publishing import Publishing
from eventlog.cloudevents.events import data_of, data_reader, event_writer
from eventlog.cloudevents.format import FORMAT
from eventlog.cloudevents.options import PublishOptions
from eventlog.cloudevents.publish import CloudEventWriter, source_of
from eventlog.cloudevents.reader import change_of
from eventlog.cloudevents.values import (
    DEFAULT_ENCODING,
    JsonEncoding,
    array_of,
    array_text,
    as_in_key,
    text_converter,
)
from eventlog.config.load import Config, load
from eventlog.core.catalog.builder import build_catalog
from eventlog.core.rows.event_ids import snapshot_id
from eventlog.core.rows.events import Outgoing
from eventlog.core.values import ColumnType, Kind, ValueOptions, parse_type
from eventlog.core.values.json_bytes import escaped_json_bytes, json_bytes
from eventlog.errors import ConfigError, FormatError, NotExpressible
from eventlog.model import (
    ALL,
    Answer,
    Change,
    ChangeOp,
    Document,
    EventResult,
    Level,
    Lob,
    LogRow,
    Operation,
    origins_of,
)
from eventlog.publisher.declared.configured_writer import event_writer as configured_writer
from eventlog.publisher.ledger.delivery import Delivery
from eventlog.sql.log_table import LogTable
from eventlog.verify.comparison import normalizer

ITEM = Change(
    "app",
    "item",
    ChangeOp.UPDATE,
    (("id", 7),),
    {"id": 7, "name": "nut", "price": Decimal("1.50")},
    {"id": 7, "name": "nut", "price": Decimal("1.75"), "note": None},
    frozenset({"price", "note"}),
    "12",
    commit_time=datetime(2024, 5, 10, 12, 0, 0, 15_625, tzinfo=UTC),
    user="scott",
)
EVENT = {
    "specversion": "1.0",
    "id": "12",
    "source": "/hr/app/eventlog",
    "type": "eventlog.update",
    "subject": "id=7,table=item,schema=app",
    "time": "2024-05-10T12:00:00.015625Z",
    "datacontenttype": "application/json",
    "data": {
        "operation": "update",
        "schema": "app",
        "class": "item",
        "key": {"id": 7},
        "columns": {"price": {"old": "1.50", "new": "1.75"}, "note": {"new": None}},
        "unchanged": {"name": {"old": "nut", "new": "nut"}},
        "user": "scott",
    },
}


def event_of(
    change: Change, subject: str | None = None, event_type: str = "eventlog.{operation}"
) -> dict[str, Any]:
    written = event_writer("/hr/app/eventlog", event_type)(change, change.position or "", subject)
    event: dict[str, Any] = json.loads(written.whole_bytes())
    return event


def inserted(value: Any) -> Any:
    change = Change(
        "app", "item", ChangeOp.INSERT, (("id", 7),), None, {"id": 7, "x": value}, position="1"
    )
    return event_of(change)["data"]["columns"]["x"]["new"]


# --- the event ------------------------------------------------------------------------------------


def test_an_event_shows_who_what_and_when_and_its_data_the_change() -> None:
    assert event_of(ITEM, "id=7,table=item,schema=app") == EVENT


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, None),
        (True, True),
        (2**53 - 1, 2**53 - 1),
        (2**53, 2**53),
        (-(10**30), -(10**30)),
        (1.5, 1.5),
        (nan, "NaN"),
        (-inf, "-Infinity"),
        (Decimal("1.50"), "1.50"),
        (b"\xbb\xbb", "u7s="),
        (Lob(b"\xbb"), "uw=="),
        (datetime(2024, 5, 10, 12), "2024-05-10T12:00:00"),
        (datetime(2024, 5, 10, 12, tzinfo=UTC), "2024-05-10T12:00:00+00:00"),
        (("red", "big"), ["red", "big"]),
        (("red",), ["red"]),
        ("half a pair \ud800", "half a pair \ud800"),
        (2**64, 2**64),
        (("half a pair \ud800", 2**64, nan), ["half a pair \ud800", 2**64, "NaN"]),
    ],
)
def test_a_value_is_what_json_has_or_text(value: Any, written: Any) -> None:
    assert inserted(value) == written


def test_an_old_value_that_is_not_known_is_left_out() -> None:
    change = ITEM._replace(before=None)
    assert event_of(change)["data"]["columns"] == {"price": {"new": "1.75"}, "note": {"new": None}}
    assert event_of(change)["data"]["unchanged"] == {"name": {"new": "nut"}}


def test_a_deleted_row_has_old_values_alone() -> None:
    change = Change(
        "app", "item", ChangeOp.DELETE, (("id", 7),), {"id": 7, "name": "nut"}, None, position="3"
    )
    assert event_of(change)["data"] == {
        "operation": "delete", "schema": "app", "class": "item", "key": {"id": 7},
        "columns": {"name": {"old": "nut"}},
    }  # fmt: skip


def test_a_key_that_changes_stands_among_the_columns() -> None:
    change = ITEM._replace(
        key=(("id", 8),), after={"id": 8, "price": Decimal(2)}, changed=frozenset({"id", "price"})
    )
    data = event_of(change)["data"]
    assert (data["key"], data["columns"]["id"]) == ({"id": 8}, {"old": 7, "new": 8})


def test_a_truncate_has_neither_key_nor_columns() -> None:
    change = Change("app", "item", ChangeOp.TRUNCATE, position="4")
    assert event_of(change)["data"] == {"operation": "truncate", "schema": "app", "class": "item"}


def test_a_transaction_is_reported_where_the_source_contains_it() -> None:
    change = ITEM._replace(transaction_id="A1", event_number=2, last_in_transaction=False)
    assert event_of(change)["data"]["transaction"] == {"id": "A1", "number": 2, "last": False}


def test_what_is_not_known_is_left_out_of_the_attributes() -> None:
    event = event_of(ITEM._replace(commit_time=None))
    assert "time" not in event
    assert "subject" not in event


def test_the_type_names_operation_schema_and_class() -> None:
    assert event_of(ITEM, event_type="com.example.{schema}.{class}.{operation}.v1")["type"] == (
        "com.example.app.item.update.v1"
    )


@pytest.mark.parametrize("character", ["\n", "\x7f", "\x85", "\ufffe", "\ud800", "\U0010ffff"])
def test_a_character_that_attributes_may_not_hold_is_in_none(character: str) -> None:
    assert "subject" not in event_of(ITEM, f'id="a{character}",table=item')
    with pytest.raises(NotExpressible, match="the id of a CloudEvent must not be empty"):
        event_of(ITEM._replace(position=f"a{character}"))


def test_a_character_of_a_name_that_attributes_may_not_hold_is_percent_encoded_in_the_type() -> (
    None
):
    change = ITEM._replace(table="it\nem")
    assert event_of(change, event_type="{class}.{operation}")["type"] == "it%0Aem.update"


# --- reading --------------------------------------------------------------------------------------


@pytest.mark.promise("format cloudevents")
def test_an_event_is_read_as_the_change_that_it_contains() -> None:
    change = change_of(EVENT)
    assert change == ITEM._replace(
        before={"id": 7, "name": "nut", "price": "1.50"},
        after={"id": 7, "name": "nut", "price": "1.75", "note": None},
    )
    assert change is not None
    assert change.extras == {"source": "/hr/app/eventlog", "type": "eventlog.update"}


@pytest.mark.parametrize("content", [
    json.dumps(EVENT),
    f"{json.dumps(EVENT)}\n\n{json.dumps([EVENT])}\n",
    json.dumps([EVENT, EVENT]),
    json.dumps([EVENT, EVENT], indent=1),
    json.dumps(EVENT, indent=1),
    f"[{json.dumps(EVENT)},\n{json.dumps(EVENT)}]\n",
    f"\ufeff{json.dumps(EVENT)}\n",
])  # fmt: skip
def test_files_hold_events_and_arrays_a_line_or_one_of_them(tmp_path: Path, content: str) -> None:
    path = tmp_path / "events.json"
    path.write_text(content)
    changes = list(FORMAT.read(str(path), {}, Report(strict=True)))
    assert [change.position for change in changes] == ["12"] * content.count('"specversion"')


def test_files_of_a_directory_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    for number in (10, 9):
        (tmp_path / f"{number}.jsonl").write_text(json.dumps({**EVENT, "id": str(number)}))
    assert [change.position for change in FORMAT.read(str(tmp_path), {}, Report(strict=True))] == [
        "9",
        "10",
    ]


def test_events_of_others_are_skipped_each_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    others = [{**EVENT, "data": data} for data in ("text", None, {"a": 1}, [1])]
    path.write_text("".join(json.dumps(event) + "\n" for event in (*others, EVENT)))
    report = Report()
    assert len(list(FORMAT.read(str(path), {}, report))) == 1
    assert report.counters == {"unknown_events": 4}
    assert report.problems == [
        f"{path}, line {line}: event '12' of type 'eventlog.update' holds no change"
        for line in (1, 2, 3, 4)
    ]


def base64_of(data: object) -> str:
    return b64encode(json.dumps(data).encode()).decode()


DATA = EVENT["data"]
WITHOUT_DATA = {name: value for name, value in EVENT.items() if name != "data"}
ROUTER = {"specversion": "1.0", "id": "r-1", "source": "/router", "type": "com.dapr.event.sent"}


@pytest.mark.parametrize(
    "event",
    [
        {**WITHOUT_DATA, "data_base64": base64_of(DATA)},
        {**WITHOUT_DATA, "data_base64": base64_of(DATA), "data": None},
        {**WITHOUT_DATA, "data_base64": base64_of(DATA).replace("J", "J\n", 1)},
        {**WITHOUT_DATA, "data_base64": base64_of(DATA), "datacontenttype": "application/x-raw"},
        {**WITHOUT_DATA, "data": json.dumps(DATA)},
        {**WITHOUT_DATA, "data": json.dumps(DATA), "datacontenttype": "text/plain"},
        {**WITHOUT_DATA, "data": DATA, "datacontenttype": "application/vnd.x+json; charset=utf-8"},
        {**ROUTER, "data": EVENT},
        {**ROUTER, "data": json.dumps(EVENT)},
        {**ROUTER, "data_base64": base64_of(EVENT)},
        {**ROUTER, "data": {**ROUTER, "data": json.dumps({**ROUTER, "data_base64": base64_of(EVENT)})}},
    ],
)  # fmt: skip
def test_the_change_is_read_however_a_router_hands_its_data_on(event: object) -> None:
    assert change_of(event) == change_of(EVENT) is not None


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ({**WITHOUT_DATA, "data_base64": "e"}, "data_base64 is not base64"),
        ({**WITHOUT_DATA, "data_base64": 5}, "data_base64 is not text"),
        ({**WITHOUT_DATA, "data_base64": base64_of(DATA)[:-8]}, "not JSON"),
        ({**EVENT, "data_base64": base64_of(DATA)}, "both data and data_base64"),
        ({**ROUTER, "data": {**EVENT, "specversion": "0.3"}}, "specversion '0.3' is not supported"),
        (DATA, "as in binary mode"),
    ],
)
def test_data_that_a_router_has_damaged_are_an_error(event: object, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        change_of(event)


@pytest.mark.parametrize("data", [{"data_base64": "//79"}, {"data": "<order/>"}, {}])
def test_data_that_are_declared_as_no_json_are_of_another_program(data: dict[str, object]) -> None:
    assert change_of({**WITHOUT_DATA, "datacontenttype": "application/xml", **data}) is None


def test_a_batch_loses_only_the_events_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "batch.json"
    path.write_text(json.dumps([EVENT, {**EVENT, "time": "x"}, {"a": 1}, {**EVENT, "id": "2"}]))
    report = Report()
    assert [one.position for one in FORMAT.read(str(path), {}, report)] == ["12", "2"]
    assert [one.split(": ")[0] for one in report.problems] == [
        f"{path}, line 1, event 2",
        f"{path}, line 1, event 3",
    ]


@pytest.mark.parametrize(
    "time", ["2026-05-10t12:00:00z", "2026-05-10T12:00:00z", "2026-05-10t14:00:00+02:00"]
)
def test_times_may_have_lower_case_letters(time: str) -> None:
    change = change_of({**EVENT, "time": time})
    assert change is not None
    assert change.commit_time == datetime(2026, 5, 10, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ([], "a CloudEvent must be a JSON object, not list"),
        ({**EVENT, "specversion": "0.3"}, "specversion '0.3' is not supported"),
        ({**EVENT, "id": ""}, "id of a CloudEvent must be a text that is not empty"),
        ({**EVENT, "source": None}, "source of a CloudEvent"),
        (
            {**EVENT, "data": {**EVENT["data"], "operation": "merge"}},
            "unknown operation .* expected one of insert, update",
        ),  # type: ignore[dict-item]
        (
            {**EVENT, "data": {**EVENT["data"], "columns": {"a": 1}}},
            'not an object such as {"old": 1, "new": 2}',
        ),  # type: ignore[dict-item]
        ({**EVENT, "time": "2024-05-10T12:00:00"}, "has no zone"),
        ({**EVENT, "time": "noon"}, "event '12' cannot be read"),
    ],
)
def test_what_is_no_event_of_ours_is_refused_with_what_is_wrong(event: Any, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        change_of(event)


def test_an_error_names_file_line_and_place_in_the_batch(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(f"{json.dumps(EVENT)}\n{json.dumps([EVENT, 7])}\n{{\n")
    report = Report()
    assert len(list(FORMAT.read(str(path), {}, report))) == 2
    assert [problem.removeprefix(str(path)) for problem in report.problems] == [
        ", line 2, event 2: a CloudEvent must be a JSON object, not int [invalid_format]",
        ", line 3: not JSON: Expecting property name enclosed in double quotes: line 2 column 1 "
        "(char 2) [invalid_format]",
    ]


@pytest.mark.promise("option cloudevents.writer.mode")
def test_a_change_without_a_position_is_named_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    FORMAT.write(
        [ITEM, ITEM._replace(position=None)],
        str(path),
        {"mode": "batched", "source": "urn:x"},
        Report(strict=True),
    )
    (batch,) = map(json.loads, path.read_text().splitlines())
    assert [(event["id"], event["source"]) for event in batch] == [("12", "urn:x"), ("2", "urn:x")]


# --- publishing -----------------------------------------------------------------------------------

FNAME, LNAME = (
    next(one for one in usr().attributes if one.name == name) for name in ("fname", "lname")
)
PHONE = next(attribute for attribute in usr().attributes if attribute.name == "usr_phone.phoneno")
OBJECT = usr(), "idu=7"
MODIFY = Outgoing("12", [12], OBJECT, Operation.MODIFY, [(12, 2, OBJECT, FNAME, "a", "é%")])
DELETE = Outgoing("13", [13], OBJECT, Operation.DELETE, (), attempts=2)
ROW = LogRow(12, "N", 2, "2024-05-10 11:59:59.5", "app", "usr", "idu=7", "fname", "a", "é%")


def writer(mode: str = "structured", in_records: bool = False, **options: Any) -> CloudEventWriter:
    chosen = PublishOptions("/db/log", "hr.{operation}", mode=mode, **options)
    return CloudEventWriter(chosen, Publishing(ValueOptions("full"), in_records=in_records))


def document(mode: str, *events: Outgoing, in_records: bool = False) -> Document:
    output = writer(mode, in_records=in_records)
    return output.document(CATALOG, Delivery(3, (), "", origins_of([ROW])), 1, events)


def test_a_structured_document_is_one_event_per_line() -> None:
    made = document("structured", MODIFY, DELETE)
    first, second = map(json.loads, made.body.splitlines())
    assert first == {
        "specversion": "1.0",
        "id": "12",
        "source": "/db/log",
        "type": "hr.update",
        "subject": "idu=7,table=usr,schema=indirect",
        "time": "2024-05-10T11:59:59.5Z",
        "datacontenttype": "application/json",
        "data": {
            "operation": "update",
            "schema": "indirect",
            "class": "usr",
            "key": {"idu": 7},
            "columns": {"fname": {"old": "a", "new": "é%"}},
            "user": "app",
        },
    }
    assert (second["id"], second["type"], second["data"]["columns"]) == ("13.2", "hr.delete", {})
    assert "time" not in second
    assert made.media_type == "application/cloudevents+json; charset=utf-8"


def test_a_batch_is_an_array_of_the_same_events() -> None:
    made = document("batched", MODIFY, DELETE)
    assert json.loads(made.body) == list(
        map(json.loads, document("structured", MODIFY, DELETE).body.splitlines())
    )
    assert made.media_type == "application/cloudevents-batch+json; charset=utf-8"


def test_in_binary_mode_the_body_is_the_data_and_headers_are_percent_encoded() -> None:
    key = usr(), 'idu="7 é"'
    made = document("binary", MODIFY._replace(object_id=key))
    assert json.loads(made.body)["columns"] == {"fname": {"old": "a", "new": "é%"}}
    assert (made.media_type, made.headers) == (
        "application/json",
        (
            ("ce-specversion", "1.0"),
            ("ce-id", "12"),
            ("ce-source", "/db/log"),
            ("ce-type", "hr.update"),
            ("ce-subject", "idu=%227%20%C3%A9%22,table=usr,schema=indirect"),
            ("ce-time", "2024-05-10T11:59:59.5Z"),
        ),
    )


def test_a_record_of_kafka_is_an_event_under_its_association() -> None:
    (binary,), (again,) = document("binary", MODIFY, DELETE, in_records=True).records
    assert (binary.key, binary.topic) == (b"idu=7,table=usr,schema=indirect", None)  # type: ignore[union-attr]
    assert dict(binary.headers)["content-type"] == b"application/json"  # type: ignore[union-attr]
    assert dict(again.headers)["ce_id"] == b"13.2"  # type: ignore[union-attr]
    (structured,), _ = document("structured", MODIFY, DELETE, in_records=True).records
    assert structured.headers == (("content-type", b"application/cloudevents+json; charset=utf-8"),)  # type: ignore[union-attr]
    event = json.loads(structured.value)  # type: ignore[union-attr]
    assert event["data"] == json.loads(binary.value)  # type: ignore[union-attr]


def test_values_that_are_removed_whatever_they_are_have_no_old_one() -> None:
    read_back = ((FNAME, "b"), (LNAME, None), (PHONE, ("1", "2")))
    steps = [(12, 6, OBJECT, attribute, ALL, value) for attribute, value in read_back]
    (event,) = map(
        json.loads, document("structured", MODIFY._replace(steps=steps)).body.splitlines()
    )
    assert event["data"]["columns"] == {
        "fname": {"new": "b"}, "lname": {"new": None}, "usr_phone.phoneno": {"new": ["1", "2"],
        "whole": True},
    }  # fmt: skip


def test_the_whole_set_of_a_child_table_is_distinguished_from_an_addition() -> None:
    """A receiver puts the one in place of what it has, and the other next to it
    (formats/cloudevents.md 4).
    """
    set_of_two = [(12, 6, OBJECT, PHONE, ALL, ("1", "2"))]
    one_more = [(12, 2, OBJECT, PHONE, None, "2")]
    inserted = [(12, 1, OBJECT, PHONE, None, "2")]
    found = [
        json.loads(document("structured", MODIFY._replace(steps=steps, operation=operation)).body)
        for steps, operation in (
            (set_of_two, Operation.MODIFY),
            (one_more, Operation.MODIFY),
            (inserted, Operation.ADD),
        )
    ]
    assert [event["data"]["columns"]["usr_phone.phoneno"] for event in found] == [
        {"new": ["1", "2"], "whole": True}, {"old": [], "new": ["2"]}, {"new": ["2"]},
    ]  # fmt: skip
    whole, added = (change_of(event) for event in found[:2])
    assert whole is not None
    assert added is not None
    assert (whole.before, whole.after) == (None, {"idu": 7, "usr_phone.phoneno": ("1", "2")})
    assert (added.before or {})["usr_phone.phoneno"] == ()


def test_a_value_that_python_cannot_hold_is_text() -> None:
    age = next(
        attribute
        for attribute in usr().attributes
        if attribute.name == "idu" or attribute.value_type == "int"
    )
    digits = "9" * 5000
    made = document("structured", MODIFY._replace(steps=[(12, 2, OBJECT, age, "1", digits)]))
    assert f'"{age.name}":{{"old":1,"new":{digits}}}'.encode() in made.body


def test_an_event_of_a_snapshot_is_a_refresh_and_one_whose_id_no_attribute_holds_an_error() -> None:
    found = MODIFY._replace(
        operation=Operation.ADD, event_id=snapshot_id(datetime(2024, 5, 10), "usr", "idu=7")
    )
    (event,) = map(json.loads, document("structured", found).body.splitlines())
    assert (event["id"], event["type"], event["data"]["operation"]) == (
        found.event_id,
        "hr.refresh",
        "refresh",
    )
    refused = document("structured", found._replace(event_id=f"{found.event_id}\x7f")).refused
    assert [one.level for one in refused.values()] == [Level.ERROR]


@given(st.lists(typed_events(), min_size=1, max_size=4), st.booleans())
def test_steps_make_the_data_that_their_changes_make(events: list[Outgoing], as_text: bool) -> None:
    encoding = JsonEncoding("text", "text") if as_text else DEFAULT_ENCODING
    of_steps = data_reader(TYPED, ValueOptions("full"), encoding)
    of_event = outgoing_reader(TYPED, ValueOptions("full"))
    for event in events:
        assert event.object_id is not None
        try:
            change = of_event(event, None, "app", "1A")
        except FormatError:  # a value that Python cannot hold, of which no change is made
            continue
        of_change = data_of(change, event.object_id[0], encoding)
        assert json.loads(escaped_json_bytes(of_steps(event, "app", "1A"))) == json.loads(
            escaped_json_bytes(of_change)
        )


def test_a_preview_shows_events_as_lines() -> None:
    output = writer("binary")
    assert [
        json.loads(line)["id"]
        for line in output.preview(CATALOG, Delivery(1, {}), [MODIFY, DELETE]).splitlines()
    ] == [
        "12",
        "13.2",
    ]


@pytest.mark.parametrize(
    ("url", "schema", "source"),
    [
        (
            "postgresql+psycopg://publisher:secret@db.example.com/hr",
            "public",
            "/hr/public/eventlog",
        ),
        ("postgresql+psycopg://publisher@/h%20r", "a/b", "/h%20r/a%2Fb/eventlog"),
        ("sqlite:////var/lib/hr.db", None, "/hr.db/eventlog"),
    ],
)
def test_the_source_names_database_schema_and_log(
    url: str, schema: str | None, source: str
) -> None:
    parsed = make_url(url)
    publishing = Publishing(
        database=parsed.database or parsed.username or "", schema=schema, log="eventlog"
    )
    assert source_of(publishing) == source


def config_of(**flags: str) -> Config:
    named = {name.replace("__", "."): value for name, value in flags.items()}
    return load(
        None, {"EVENTLOG_DATABASE_URL": "sqlite://"}, {"format.type": "cloudevents", **named}
    )


@pytest.mark.parametrize(
    ("sink", "mode", "singly"),
    [
        ({"sink__type": "http", "sink__url": "http://localhost/"}, "batched", False),
        (
            {
                "sink__type": "http",
                "sink__url": "http://localhost/",
                "format__cloudevents__mode": "structured",
            },
            "structured",
            True,
        ),
        (
            {
                "sink__type": "http",
                "sink__url": "http://localhost/",
                "format__cloudevents__mode": "binary",
            },
            "binary",
            True,
        ),
        ({"sink__type": "python", "sink__function": "m:f"}, "batched", False),
        ({"sink__type": "kafka", "sink__brokers": "b:1"}, "binary", False),
        ({"sink__type": "files", "sink__directory": "d"}, "structured", False),
        (
            {"sink__type": "files", "sink__directory": "d", "sink__file_layout": "documents"},
            "batched",
            False,
        ),
        ({}, "structured", False),
    ],
)
def test_each_sink_has_its_usual_mode(sink: dict[str, str], mode: str, singly: bool) -> None:
    config = config_of(**sink)
    output = configured_writer(config, LogTable(None, "eventlog", ()))
    assert isinstance(output, CloudEventWriter)
    assert (output.mode, output.is_single) == (mode, singly)


class Receiver(PlainSink):
    """Keeps the event-ids of documents, and answers as configured."""

    def __init__(self, **verdicts: EventResult) -> None:
        self.verdicts = {name.removeprefix("_"): verdict for name, verdict in verdicts.items()}
        self.documents: list[list[str]] = []

    def send(self, document: Document) -> Answer:
        self.documents.append(list(document.event_ids))
        return Answer(
            {one: self.verdicts[one] for one in document.event_ids if one in self.verdicts}
        )


def test_where_a_document_is_one_event_each_event_of_a_document_is_sent_by_itself() -> None:
    fake = FakePublisher(NO_WAIT, singly=True)
    fake.log([row(1, 4), row(2, 4, "idu=2"), row(3, 4, "idu=3")])
    sink = Receiver(_2=EventResult(Level.ERROR, "no"))
    fake.cycle(fake.start(), sink)
    assert sink.documents == [["1"], ["2"], ["3"]]
    assert fake.statuses() == {1: "S", 2: "E", 3: "S"}
    assert fake.in_flight() == {}


def test_what_is_sent_singly_waits_after_a_retry_of_its_object() -> None:
    fake = FakePublisher(replace(NO_WAIT, fold_distance=0), singly=True)
    fake.log([row(1, 4), row(2, 4), row(3, 4, "idu=3")])
    sink = Receiver(_1=EventResult(Level.RETRY))
    fake.cycle(fake.start(), sink)
    assert sink.documents == [["1"], ["3"]]
    assert fake.statuses() == {1: "N", 2: "N", 3: "S"}
    assert fake.in_flight() == {1: [[1, [["1", [[1, 1]]]]], [2, [["2", [[2, 2]]]]]]}


def test_the_data_are_what_the_event_carries() -> None:
    assert data_of(ITEM, None, DEFAULT_ENCODING) == EVENT["data"]


# --- values by the type of their column -----------------------------------------------------------

WIDE = parse_type("bigint")


def _json_catalog() -> dict[str, Any]:
    types = {"id": "bigint", "small": "integer", "doc": "jsonb", "tags": "text[]", "n": "integer[]"}
    columns = [{"name": name, "type": type} for name, type in types.items()]
    table = {"name": "item", "kind": "table", "primary_key": ["id"], "columns": columns}
    return {"dialect": "postgresql", "schema": "app", "tables": [table]}


def written(type: ColumnType, text: str, encoding: JsonEncoding = DEFAULT_ENCODING) -> str:
    """The JSON of a text of the log."""
    return json_bytes(text_converter(type, encoding)(text)).decode()


@pytest.mark.parametrize(
    "text", ["7", "9007199254740993", str(2**64), "-123456789012345678901234567890", "9" * 5000]
)
def test_an_integer_has_one_type_whatever_its_size(text: str) -> None:
    for type in (WIDE, parse_type("decimal(40)"), parse_type("smallint")):
        assert written(type, text) == text
    assert written(WIDE, text, JsonEncoding(integers="text")) == f'"{text}"'
    assert written(parse_type("integer"), text, JsonEncoding(integers="text")) == text


@pytest.mark.parametrize(
    ("type", "text", "expected"),
    [
        (
            "jsonb",
            '{"a": [1, 1.10, 1e400, "x\\n"], "b": null}',
            '{"a": [1, 1.10, 1e400, "x\\n"], "b": null}',
        ),
        ("json", '{\n"a":\r\n1}', '{ "a":  1}'),
        ("json", "NaN", '"NaN"'),
        ("json", "no json", '"no json"'),
        ("text[]", '{a,"b c",NULL,"NULL","q\\"\\\\"}', '["a","b c",null,"NULL","q\\"\\\\"]'),
        ("integer[]", "{{1,2},{3,NULL}}", "[[1,2],[3,null]]"),
        ("bigint[]", "[0:1]={9007199254740993,6}", "[9007199254740993,6]"),
        ("boolean[]", "{t,f}", "[true,false]"),
        ("numeric(9,2)[]", "{1.50}", '["1.50"]'),
        ("double precision[]", "{1.5,NaN}", '[1.5,"NaN"]'),
        ("date[]", "{2024-05-10}", '["2024-05-10"]'),
        ("mood[]", "{1,true}", '["1","true"]'),
        ("number[]", "{1}", '["1"]'),
        ("double[]", "{1}", '["1"]'),
        ('"Other Place"."integer"[]', "{1}", '["1"]'),
        ('"integer[]"[]', '{"{1}"}', '["{1}"]'),
        ("text[]", "{}", "[]"),
        ("text[]", "{broken", '"{broken"'),
    ],
)
def test_json_and_arrays_are_json(type: str, text: str, expected: str) -> None:
    column = ColumnType(Kind.OTHER, sql=type)
    assert written(column, text) == expected
    json.loads(expected, parse_float=str)
    assert json.loads(written(column, text, JsonEncoding(nested_values="text"))) == text


@pytest.mark.parametrize(
    ("type", "text", "expected"),
    [
        ("inet", "10.0.0.1/32", '"10.0.0.1"'),
        ("inet", "::1/128", '"::1"'),
        ("inet", "10.0.0.1/24", '"10.0.0.1/24"'),
        ("cidr", "10.0.0.1/32", '"10.0.0.1/32"'),
        ("text", "10.0.0.1/32", '"10.0.0.1/32"'),
    ],
)
def test_an_address_is_as_postgresql_prints_it(type: str, text: str, expected: str) -> None:
    column = parse_type(type)
    for nested in ("json", "text"):
        assert written(column, text, JsonEncoding(nested_values=nested)) == expected
    assert normalizer(column)(text) == normalizer(column)(json.loads(expected))
    # The key and the subject have the canonical text.
    converted = json.loads(expected)
    assert as_in_key(text, converted) == text


@given(st.lists(st.none() | st.text(st.characters(codec="utf-8")), max_size=4))
def test_an_array_is_written_and_read_back(elements: list[str | None]) -> None:
    assert array_of(array_text(elements)) == elements


@given(st.text(st.sampled_from('{}",\\ aN[]=:0'), max_size=12))
def test_any_text_is_an_array_or_stays_text(text: str) -> None:
    json.loads(written(ColumnType(Kind.OTHER, sql="text[]"), text))


@pytest.mark.promise(
    "option cloudevents.reader.catalog",
    "option cloudevents.reader.nested_values",
    "option cloudevents.writer.nested_values",
)
@pytest.mark.parametrize("nested_values", ["json", "text"])
def test_json_and_arrays_come_back_by_the_catalogue(tmp_path: Path, nested_values: str) -> None:
    row = {
        "id": 2**60,
        "small": 1,
        "doc": '{"a":[1.10,"b"]}',
        "tags": '{a,"b c",NULL}',
        "n": "{{1,2},{3,4}}",
    }
    change = Change("app", "item", ChangeOp.INSERT, (("id", 2**60),), None, row, position="1")
    path, catalog = tmp_path / "events.jsonl", _json_catalog()
    options = {"catalog": catalog, "nested_values": nested_values}
    FORMAT.write([change], str(path), options, Report(strict=True))
    columns = json.loads(path.read_text())["data"]["columns"]
    assert (columns["doc"]["new"] == {"a": [1.1, "b"]}) is (nested_values == "json")
    assert (columns["n"]["new"] == [[1, 2], [3, 4]]) is (nested_values == "json")
    (read,) = FORMAT.read(str(path), options, Report(strict=True))
    assert (read.key, read.after) == (change.key, row)


def test_json_without_a_catalogue_is_its_text(tmp_path: Path) -> None:
    event = {
        **EVENT,
        "data": {**EVENT["data"], "columns": {"doc": {"new": {"a": [1, {"b": None}]}}}},
    }  # type: ignore[dict-item]
    change = change_of(event)
    assert change is not None
    assert (change.after or {})["doc"] == '{"a":[1,{"b":null}]}'


def test_a_numeric_key_has_one_text_wherever_it_stands() -> None:
    key = (("k", Decimal("1.50")),)
    change = Change(
        "app", "item", ChangeOp.UPDATE, key, {"k": Decimal("1.40"), "p": Decimal("2.50")},
        {"k": Decimal("1.50"), "p": Decimal("2.70")}, frozenset({"k", "p"}), "1",
    )  # fmt: skip
    data = event_of(change)["data"]
    assert (data["key"], data["columns"]["k"]) == ({"k": "1.5"}, {"old": "1.4", "new": "1.5"})
    assert data["columns"]["p"] == {"old": "2.50", "new": "2.70"}


def test_a_time_beyond_the_calendar_leaves_the_other_values_as_they_are() -> None:
    classes = build_catalog(
        database(table("ev", "id bigint; at timestamp; n bigint; ok boolean", "id")),
        values=ValueOptions("full"),
    )
    cls = classes.class_named("ev")
    at, n, ok = (
        next(one for one in cls.attributes if one.name == name) for name in ("at", "n", "ok")
    )
    target = cls, "id=9007199254740993"
    steps = [
        (1, 1, target, at, None, "infinity"),
        (1, 1, target, n, None, "5"),
        (1, 1, target, ok, None, "true"),
    ]
    output = writer()
    for several in (steps, [*steps, (1, 1, target, n, None, "6")]):  # the second by way of a Change
        event = Outgoing("1", [1], target, Operation.ADD, several)
        data = json.loads(
            output.document(classes, Delivery(3, (), "", origins_of([ROW])), 1, [event]).body
        )["data"]
        assert data["key"] == {"id": 9007199254740993}
        assert (data["columns"]["at"], data["columns"]["ok"]) == (
            {"new": "infinity"},
            {"new": True},
        )


@pytest.mark.promise("option format.cloudevents.dataschema")
def test_the_schema_of_the_data_is_named_by_the_option() -> None:
    named = {"dataschema": "https://e.org/{schema}/{class}.json"}
    output = writer(**named)
    made = output.document(CATALOG, Delivery(3, (), "", origins_of([ROW])), 1, [MODIFY])
    assert json.loads(made.body)["dataschema"] == "https://e.org/indirect/usr.json"
    assert ("ce-dataschema", "https://e.org/indirect/usr.json") in writer(
        "binary", **named
    ).document(CATALOG, Delivery(3, (), "", origins_of([ROW])), 1, [MODIFY]).headers


@pytest.mark.parametrize(
    "text", ["/relative/{class}", "https://e.org/{table}", "https://e.org/a b", "https://e.org/{"]
)
def test_a_dataschema_that_is_no_uri_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="dataschema"):
        config_of(format__cloudevents__dataschema=text)
