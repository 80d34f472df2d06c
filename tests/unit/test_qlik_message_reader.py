"""Reading Qlik messages in every shape that is met (spec/qlik.md 5.1, 5.7, spec/change-model.md 2)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from qlik_messages import BEFORE, COLUMNS, DATA, HEADERS, SEQUENCE, UPDATE, envelope, read, read_item, records, write

from eventlog.errors import FormatError, InvalidChange, UnknownOperation
from eventlog.formats import Report
from eventlog.model import ChangeOp
from eventlog.qlik.envelope import BadEnvelope, avro_envelope
from eventlog.qlik.errors import BadMagic, BadMask, BadSequence, UnknownSchema
from eventlog.qlik.message import Message
from eventlog.qlik.message_options import ReadOptions
from eventlog.qlik.message_reader import MessageReader

ROWS = {"data": DATA, "beforeData": BEFORE}
PREFIXED = {f"headers_{name}": value for name, value in HEADERS.items()}


@pytest.mark.parametrize(
    "record",
    [
        envelope({**ROWS, "headers": HEADERS}),
        envelope({**ROWS, **HEADERS}),
        envelope({**ROWS, **PREFIXED}),
        {**ROWS, "headers": HEADERS},
        {**ROWS, **PREFIXED},
        {"magic": "xxMSG", **ROWS, "headers": HEADERS},  # no message member: magic is not asked for
        envelope(
            {**ROWS, "headers": {"operation": "update", **{n: v for n, v in HEADERS.items() if n != "operation"}}}
        ),
        envelope({**ROWS, "headers": {"operation": "UPDATE"}, **HEADERS}),  # header by header
        envelope({**ROWS, "headers": HEADERS, "unknown": {"a": 1}}, unknown=1),
        envelope({**ROWS, "headers": {**HEADERS, "columnMask": None}}),
        envelope({**ROWS, "headers": {**HEADERS, "changeMask": "0x4", "columnMask": "0X0007"}}),
        envelope({**ROWS, "headers": {**HEADERS, "timestamp": "2024-05-10 14:00:00.000000001+02:00"}}),
        json.dumps(envelope({**ROWS, "headers": HEADERS})).encode(),
        b" \n" + json.dumps({**ROWS, "headers": HEADERS}).encode(),
    ],
)
def test_every_shape_is_the_same_change(record: Any) -> None:
    (change,) = read_item(record)
    assert change == UPDATE
    assert change.extras == UPDATE.extras


def test_the_first_place_wins_even_with_null() -> None:
    headers = {**HEADERS, "streamPosition": None, "transactionId": None}
    (change,) = read_item(envelope({**ROWS, "headers": headers, "streamPosition": "p:12", "transactionId": "A1"}))
    assert (change.transaction_id, change.extras) == (None, {})


@pytest.mark.parametrize(
    ("change", "field", "expected"),
    [
        ({"timestamp": None}, "commit_time", None),
        ({"timestamp": ""}, "commit_time", None),
        ({"timestamp": "1970-01-01 00:00:00"}, "commit_time", None),
        ({"timestamp": "1970-01-01T00:00:00.000"}, "commit_time", None),
        ({"transactionId": "0" * 32}, "transaction_id", None),
        ({"transactionId": ""}, "transaction_id", None),
        ({"transactionEventCounter": None, "transactionLastEvent": None}, "event_number", None),
        ({"transactionLastEvent": False}, "last_in_transaction", False),
        ({"streamPosition": ""}, "extras", {}),
        ({"externalSchemaId": "x"}, "extras", {"stream_position": "p:12", "external_schema_id": "x"}),
        ({"changeMask": None}, "changed", {"price"}),  # the columns that differ
        ({"changeMask": "00"}, "changed", set()),
        ({"changeMask": ""}, "changed", set()),
        ({"changeMask": "FF"}, "changed", {"id", "name", "price"}),
    ],
)
def test_headers_that_are_not_known(change: dict[str, Any], field: str, expected: Any) -> None:
    assert getattr(read_item(envelope({**ROWS, "headers": {**HEADERS, **change}}))[0], field) == expected


@pytest.mark.parametrize("name", ["transactionEventCounter", "transactionLastEvent", "streamPosition", "timestamp"])
def test_optional_headers_may_be_missing(name: str) -> None:
    headers = {key: value for key, value in HEADERS.items() if key != name}
    assert read_item(envelope({**ROWS, "headers": headers}))[0].after == UPDATE.after


@pytest.mark.parametrize(
    ("headers", "error"),
    [
        ({"operation": "UPSERT"}, UnknownOperation),
        ({"operation": None}, UnknownOperation),
        ({"changeSequence": ""}, BadSequence),
        ({"changeSequence": None}, BadSequence),
        ({"changeSequence": "1" * 34}, BadSequence),
        ({"changeSequence": "20241310120000000000000000000000012"}, BadSequence),
        ({"changeMask": "0G"}, BadMask),
        ({"columnMask": "-1"}, BadMask),
        ({"timestamp": "yesterday"}, BadEnvelope),
        ({"timestamp": "0001-01-01T00:00:00+14:00"}, BadEnvelope),
        ({"transactionEventCounter": "one"}, BadEnvelope),
        ({"transactionLastEvent": "maybe"}, BadEnvelope),
    ],
)
def test_headers_that_cannot_be_read_are_errors_by_their_names(headers: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        read_item(envelope({**ROWS, "headers": {**HEADERS, **headers}}))
    assert type(caught.value) is error


@pytest.mark.parametrize(
    ("record", "error"),
    [
        (envelope({**ROWS, "headers": HEADERS}, magic="xxMSG"), BadMagic),
        (envelope({**ROWS, "headers": HEADERS}, magic=None), BadMagic),
        ({"message": {**ROWS, "headers": HEADERS}}, BadMagic),
        (envelope({**ROWS, "headers": HEADERS}, type="XX"), BadEnvelope),
        (envelope([1]), BadEnvelope),  # type: ignore[arg-type]
        (envelope({"data": [1], "headers": HEADERS}), BadEnvelope),
        ([1], BadEnvelope),
        (b"{", BadEnvelope),
        (b"xxMSG\x04DT\x00", BadMagic),
        (b"", BadMagic),
        (envelope({"data": None, "beforeData": None, "headers": HEADERS}), InvalidChange),
    ],
)
def test_records_that_are_no_messages(record: Any, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        read_item(record)
    assert type(caught.value) is error


@pytest.mark.parametrize("operation", ["READ", "read", "Refresh"])
def test_read_is_refresh_and_has_no_sequence(operation: str) -> None:
    (change,) = read_item(envelope({"data": DATA, "headers": {"operation": operation, "changeSequence": ""}}))
    assert (change.op, change.position, change.after) == (ChangeOp.REFRESH, None, UPDATE.after)


def test_the_row_of_a_delete_is_data_before_before_data() -> None:
    headers = {**HEADERS, "operation": "DELETE"}
    for rows in ({"data": DATA, "beforeData": BEFORE}, {"data": None, "beforeData": DATA}, {"beforeData": DATA}):
        (change,) = read_item(envelope({**rows, "headers": headers}))
        assert (change.before, change.after) == (UPDATE.after, None)


def test_column_mask_tells_null_from_not_known() -> None:
    report = Report()
    rows = {"data": {"id": 7, "name": None, "price": None}, "beforeData": {"id": 7, "name": "nut"}}
    (change,) = read_item(envelope({**rows, "headers": {**HEADERS, "columnMask": "04"}}), report=report)
    assert change.after == {"id": 7, "price": None}
    assert change.before == {"id": 7, "name": "nut"}
    assert report.counters == {"mask_contradictions": 3}


def test_bits_beyond_the_last_column_and_fields_beyond_the_columns_are_counted() -> None:
    report = Report()
    rows = {"data": {**DATA, "more": 1}, "beforeData": None}
    (change,) = read_item(envelope({**rows, "headers": {**HEADERS, "columnMask": "1F"}}), report=report)
    assert change.after == UPDATE.after
    assert report.counters == {"mask_extra_bits": 2, "unknown_fields": 1}


def test_a_null_value_is_counted_and_skipped() -> None:
    report = Report()
    assert read_item(None, report=report) == []
    assert report.counters == {"tombstones": 1}


@pytest.mark.parametrize(
    ("message", "options", "expected"),
    [
        ({"headers": {**HEADERS, "schema": "h", "table": "t"}}, {}, ("h", "t")),
        ({"headers": HEADERS, "schema": "m", "table": "t"}, {}, ("m", "t")),
        ({"headers": HEADERS}, {"topic": "hr.emp"}, ("hr", "emp")),
        ({"headers": HEADERS, "table": "t"}, {"topic": "hr.emp"}, ("s", "t")),
        ({"headers": HEADERS}, {"topic": "changes"}, ("s", "opt")),
        ({"headers": HEADERS}, {"topic": "hr.emp", "one_topic": "hr.emp"}, ("s", "opt")),
        ({"headers": {**HEADERS, "schema": "", "table": None}}, {}, ("s", "opt")),
    ],
)
def test_schema_and_table_from_headers_topic_and_option(
    message: dict[str, Any], options: dict[str, Any], expected: tuple[str, str]
) -> None:
    reader = MessageReader(ReadOptions(schema="s", table="opt", topic=options.get("one_topic")))
    record = Message(options.get("topic"), None, envelope({**ROWS, **message}))
    (change,) = reader.changes(record)
    assert (change.schema, change.table) == expected


def test_a_message_that_names_no_table_is_refused() -> None:
    with pytest.raises(FormatError, match="set option table"):
        read(envelope({**ROWS, "headers": HEADERS}))


def test_without_columns_the_fields_of_the_row_count_in_their_order() -> None:
    (change,) = read(envelope({**ROWS, "headers": {**HEADERS, "changeMask": "05"}}), table="t")
    assert (change.key, change.changed) == (None, {"id", "price"})
    assert change.after == dict(DATA)


# Metadata.


def written(encoding: str) -> tuple[Any, Any]:
    metadata, data = write([UPDATE], encoding=encoding, columns=COLUMNS)
    return metadata, data


@pytest.mark.parametrize("encoding", ["json", "avro"])
def test_metadata_describe_the_messages_that_name_them(encoding: str) -> None:
    metadata, data = written(encoding)
    (change,) = read(metadata, data)
    assert change == UPDATE
    assert change.extras["table_version"] == 1
    assert len(change.extras["schema_id"]) == 32


@pytest.mark.parametrize("encoding", ["json", "avro"])
def test_a_message_waits_for_its_metadata_and_holds_what_is_behind_it(encoding: str) -> None:
    metadata, data = written(encoding)
    later = envelope({**ROWS, "headers": {**HEADERS, "schema": "x", "table": "y"}})
    reader = MessageReader(ReadOptions())
    assert list(reader.changes(Message(*data))) == []
    assert list(reader.changes(Message(None, None, later))) == []
    assert [change.table for change in reader.changes(Message(*metadata))] == ["item", "y"]
    assert not reader.is_waiting


@pytest.mark.parametrize("encoding", ["json", "avro"])
def test_a_message_whose_metadata_do_not_come_in_time_has_an_unknown_schema(encoding: str) -> None:
    _, data = written(encoding)
    now = 0.0
    reader = MessageReader(ReadOptions(columns=COLUMNS, metadata_wait=30), clock=lambda: now)
    assert list(reader.changes(Message(*data))) == []
    now = 29.9
    assert list(reader.overdue()) == []
    now = 30.0
    with pytest.raises(UnknownSchema, match="metadata_wait"):
        list(reader.overdue())
    with pytest.raises(UnknownSchema, match="end of the input"):
        read(data)


def test_avro_without_a_schema_is_unknown_at_once() -> None:
    with pytest.raises(UnknownSchema):
        read(avro_envelope("DT", None, None, b"\x00"), table="t")


def test_avro_may_bring_its_schema_along() -> None:
    metadata, data = written("avro")
    from eventlog.qlik.avro import from_bytes
    from eventlog.qlik.envelope import open_avro
    from eventlog.qlik.metadata import read_metadata

    about = open_avro(metadata.value)
    assert about.schema is not None
    _, schema = read_metadata(from_bytes(about.schema, about.message))
    (change,) = read(avro_envelope("DT", None, schema, open_avro(data.value).message), columns=COLUMNS)
    assert change == UPDATE


def test_json_without_id_takes_the_columns_of_the_newest_metadata() -> None:
    metadata, _ = written("json")
    (change,) = read(metadata, envelope({**ROWS, "headers": HEADERS}), schema="app", table="item")
    assert change == UPDATE


def test_columns_get_the_names_back_that_avro_does_not_know() -> None:
    columns = {"app.item": [{"name": "the id", "type": "INT4", "pk": 1}, {"name": "größe", "type": "STRING"}]}
    change = UPDATE._replace(
        key=(("the id", 1),), before=None, after={"the id": 1, "größe": "x"}, changed=frozenset({"größe"})
    )
    for encoding in ("json", "avro"):
        messages = write([change], encoding=encoding, columns=columns)
        assert read(*messages, columns=columns) == [change]
        assert read(*messages)[0].after == {"the_id": 1, "gr__e": "x"}


def test_metadata_are_counted_and_give_no_change() -> None:
    report = Report()
    assert read(written("json")[0], report=report) == []
    assert report.counters == {"metadata_messages": 1}


def test_nullable_that_is_missing_is_true_and_unknown_types_are_text() -> None:
    record = records([written("json")[0]])[0]
    about: dict[str, Any] = record["message"]["tableStructure"]["tableColumns"]
    for column in about.values():
        del column["nullable"]
    about["name"]["type"] = "GEOMETRY"
    (change,) = read(record, written("json")[1])
    assert change == UPDATE


@pytest.mark.parametrize(
    "spoil",
    [
        lambda message: message.pop("lineage"),
        lambda message: message.update(tableStructure={}),
        lambda message: message["tableStructure"]["tableColumns"]["id"].pop("ordinal"),
        lambda message: message["tableStructure"]["tableColumns"].update(id=1),
        lambda message: message["lineage"].update(table=None),
    ],
)
def test_metadata_that_cannot_be_read_are_an_error(spoil: Callable[[dict[str, Any]], Any]) -> None:
    record = records([written("json")[0]])[0]
    spoil(record["message"])
    with pytest.raises(FormatError):
        read(record)


def test_options_are_checked() -> None:
    from eventlog.errors import ConfigError

    for options in ({"byteorder": "middle"}, {"columns": ["id"]}, {"columns": {"t": [{"name": "a", "type": "INT3"}]}}):
        with pytest.raises(ConfigError):
            ReadOptions(**options)  # type: ignore[arg-type]


def test_sequence_is_the_position() -> None:
    assert read_item(envelope({**ROWS, "headers": HEADERS}))[0].position == SEQUENCE
