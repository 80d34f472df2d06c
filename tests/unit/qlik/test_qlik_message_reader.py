"""Reading Qlik messages in every shape that is met (formats/qlik.md 5.1, 5.7, spec/change-model.md
2).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from time import process_time
from typing import Any

import pytest
from message_samples import (
    BEFORE,
    COLUMNS,
    DATA,
    HEADERS,
    SEQUENCE,
    UPDATE,
    envelope,
    read,
    read_item,
    records,
    write,
)
from shared import refused

from eventlog.changes.format import Report
from eventlog.errors import ConfigError, EventlogError, FormatError, InvalidChange
from eventlog.model import ChangeOp
from eventlog.qlik.messages.envelope import BadEnvelope, Message, UnknownSchema, avro_envelope
from eventlog.qlik.messages.message_reader import MessageReader
from eventlog.qlik.messages.message_tables import ReadOptions, WriteOptions

ROWS = {"data": DATA, "beforeData": BEFORE}
INSERT = {**HEADERS, "operation": "INSERT", "changeMask": None, "columnMask": None}
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
            {
                **ROWS,
                "headers": {
                    "operation": "update",
                    **{n: v for n, v in HEADERS.items() if n != "operation"},
                },
            }
        ),
        envelope({**ROWS, "headers": {"operation": "UPDATE"}, **HEADERS}),  # header by header
        envelope({**ROWS, "headers": HEADERS, "unknown": {"a": 1}}, unknown=1),
        envelope({**ROWS, "headers": {**HEADERS, "columnMask": None}}),
        envelope({**ROWS, "headers": {**HEADERS, "changeMask": "0x4", "columnMask": "0X0007"}}),
        envelope(
            {**ROWS, "headers": {**HEADERS, "timestamp": "2024-05-10 14:00:00.000000001+02:00"}}
        ),
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
    (change,) = read_item(
        envelope({**ROWS, "headers": headers, "streamPosition": "p:12", "transactionId": "A1"})
    )
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
        (
            {"externalSchemaId": "x"},
            "extras",
            {"stream_position": "p:12", "external_schema_id": "x"},
        ),
        ({"changeMask": None}, "changed", {"price"}),  # the columns that differ
        ({"changeMask": "00"}, "changed", set()),
        ({"changeMask": ""}, "changed", set()),
        ({"changeMask": "FF"}, "changed", {"id", "name", "price"}),
    ],
)
def test_headers_that_are_not_known(change: dict[str, Any], field: str, expected: Any) -> None:
    assert (
        getattr(read_item(envelope({**ROWS, "headers": {**HEADERS, **change}}))[0], field)
        == expected
    )


@pytest.mark.parametrize(
    "name", ["transactionEventCounter", "transactionLastEvent", "streamPosition", "timestamp"]
)
def test_optional_headers_may_be_missing(name: str) -> None:
    headers = {key: value for key, value in HEADERS.items() if key != name}
    assert read_item(envelope({**ROWS, "headers": headers}))[0].after == UPDATE.after


@pytest.mark.parametrize(
    ("headers", "error"),
    [
        ({"operation": "UPSERT"}, "unknown_operation"),
        ({"operation": None}, "unknown_operation"),
        ({"changeSequence": ""}, "bad_sequence"),
        ({"changeSequence": None}, "bad_sequence"),
        ({"changeSequence": "1" * 34}, "bad_sequence"),
        ({"changeSequence": "20241310120000000000000000000000012"}, "bad_sequence"),
        ({"changeMask": "0G"}, "bad_mask"),
        ({"columnMask": "-1"}, "bad_mask"),
        ({"timestamp": "yesterday"}, BadEnvelope),
        ({"timestamp": "0001-01-01T00:00:00+14:00"}, BadEnvelope),
        ({"transactionEventCounter": "one"}, BadEnvelope),
        ({"transactionEventCounter": Decimal("1e99999")}, BadEnvelope),
        ({"transactionEventCounter": Decimal("1e9999999")}, BadEnvelope),
        ({"transactionEventCounter": Decimal("1.5")}, BadEnvelope),
        ({"transactionEventCounter": float("inf")}, BadEnvelope),
        ({"transactionEventCounter": float("nan")}, BadEnvelope),
        ({"transactionEventCounter": 2**63}, BadEnvelope),
        ({"transactionEventCounter": -1}, BadEnvelope),
        ({"transactionEventCounter": True}, BadEnvelope),
        ({"transactionEventCounter": [1]}, BadEnvelope),
        ({"changeMask": 4}, "bad_mask"),
        ({"columnMask": [7]}, "bad_mask"),
        ({"transactionId": {"a": 1}}, BadEnvelope),
        ({"timestamp": 20240510}, BadEnvelope),
        ({"transactionLastEvent": "maybe"}, BadEnvelope),
    ],
)
def test_headers_that_cannot_be_read_are_errors_by_their_names(
    headers: dict[str, Any], error: str | type[EventlogError]
) -> None:
    with refused(error):
        read_item(envelope({**ROWS, "headers": {**HEADERS, **headers}}))


@pytest.mark.parametrize(
    ("record", "error"),
    [
        (envelope({**ROWS, "headers": HEADERS}, magic="xxMSG"), "bad_magic"),
        (envelope({**ROWS, "headers": HEADERS}, magic=None), "bad_magic"),
        ({"message": {**ROWS, "headers": HEADERS}}, "bad_magic"),
        (envelope({**ROWS, "headers": HEADERS}, type="XX"), BadEnvelope),
        (envelope([1]), BadEnvelope),  # type: ignore[arg-type]
        (envelope({"data": [1], "headers": HEADERS}), BadEnvelope),
        ([1], BadEnvelope),
        (envelope({**ROWS, "headers": HEADERS}, messageSchemaId=["A"]), BadEnvelope),
        (envelope({**ROWS, "headers": HEADERS}, messageSchemaId=7), BadEnvelope),
        (envelope({**ROWS, "headers": HEADERS}, messageSchema={"type": "record"}), BadEnvelope),
        (envelope({**ROWS, "headers": {**HEADERS, "table": ["item"]}}), BadEnvelope),
        (b"[" * 2000, "bad_magic"),
        (b'{"message":' + b"[" * 2000 + b"]" * 2000 + b"}", BadEnvelope),
        (b'{"data":' + b"[" * 200 + b"]" * 200 + b"}", BadEnvelope),
        (b'{"data":{"id":1e99999999999999999999}}', BadEnvelope),
        (b"{", BadEnvelope),
        (b"xxMSG\x04DT\x00", "bad_magic"),
        (b"", "bad_magic"),
        (envelope({"data": None, "beforeData": None, "headers": HEADERS}), InvalidChange),
    ],
)
def test_records_that_are_no_messages(record: Any, error: str | type[EventlogError]) -> None:
    with refused(error):
        read_item(record)


@pytest.mark.parametrize("operation", ["READ", "read", "Refresh"])
def test_read_is_refresh_and_has_no_sequence(operation: str) -> None:
    (change,) = read_item(
        envelope({"data": DATA, "headers": {"operation": operation, "changeSequence": ""}})
    )
    assert (change.op, change.position, change.after) == (ChangeOp.REFRESH, None, UPDATE.after)


def test_the_row_of_a_delete_is_data_before_before_data() -> None:
    headers = {**HEADERS, "operation": "DELETE"}
    for rows in (
        {"data": DATA, "beforeData": BEFORE},
        {"data": None, "beforeData": DATA},
        {"beforeData": DATA},
    ):
        (change,) = read_item(envelope({**rows, "headers": headers}))
        assert (change.before, change.after) == (UPDATE.after, None)


def test_column_mask_distinguishes_null_from_not_known() -> None:
    report = Report()
    rows = {"data": {"id": 7, "name": None, "price": None}, "beforeData": {"id": 7, "name": "nut"}}
    (change,) = read_item(
        envelope({**rows, "headers": {**HEADERS, "columnMask": "04"}}), report=report
    )
    assert change.after == {"id": 7, "price": None}
    assert change.before == {"id": 7, "name": "nut"}
    assert report.counters == {"mask_contradictions": 3}


def test_bits_beyond_the_last_column_and_fields_beyond_the_columns_are_counted() -> None:
    report = Report()
    rows = {"data": {**DATA, "more": 1}, "beforeData": None}
    (change,) = read_item(
        envelope({**rows, "headers": {**HEADERS, "columnMask": "1F"}}), report=report
    )
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
    with pytest.raises(FormatError, match="set the option table"):
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
def test_a_message_waits_for_its_metadata_and_holds_what_is_after_it(encoding: str) -> None:
    metadata, data = written(encoding)
    later = envelope({**ROWS, "headers": {**HEADERS, "schema": "x", "table": "y"}})
    reader = MessageReader(ReadOptions())
    assert list(reader.changes(Message(*data[:3]))) == []
    assert list(reader.changes(Message(None, None, later))) == []
    assert [change.table for change in reader.changes(Message(*metadata[:3]))] == ["item", "y"]
    assert not reader.is_waiting


@pytest.mark.parametrize("encoding", ["json", "avro"])
def test_a_message_whose_metadata_do_not_come_in_time_has_an_unknown_schema(encoding: str) -> None:
    _, data = written(encoding)
    now = 0.0
    reader = MessageReader(
        ReadOptions(columns={"app.other": ["id"]}, metadata_wait=30), clock=lambda: now
    )
    assert list(reader.changes(Message(*data[:3]))) == []
    now = 29.9
    assert list(reader.overdue()) == []
    now = 30.0
    with pytest.raises(UnknownSchema, match="metadata_wait"):
        list(reader.overdue())
    with pytest.raises(UnknownSchema, match="end of the input"):
        read(data)


def test_avro_without_a_schema_is_unknown_at_once() -> None:
    with pytest.raises(UnknownSchema):
        read(avro_envelope("DT", None, None)(b"\x00"), table="t")


def test_avro_may_bring_its_schema_along() -> None:
    metadata, data = written("avro")
    from eventlog.qlik.messages.avro import from_bytes
    from eventlog.qlik.messages.envelope import open_avro
    from eventlog.qlik.messages.message_tables import read_metadata

    about = open_avro(metadata.value)
    assert about.schema is not None
    _, schema = read_metadata(from_bytes(about.schema, about.message))
    (change,) = read(
        avro_envelope("DT", None, schema)(open_avro(data.value).message), columns=COLUMNS
    )
    assert change == UPDATE


def test_json_without_id_takes_the_columns_of_the_newest_metadata() -> None:
    metadata, _ = written("json")
    (change,) = read(metadata, envelope({**ROWS, "headers": HEADERS}), schema="app", table="item")
    assert change == UPDATE


def test_columns_get_the_names_back_that_avro_does_not_know() -> None:
    columns = {
        "app.item": [
            {"name": "the id", "type": "INT4", "pk": 1},
            {"name": "größe", "type": "STRING"},
        ]
    }
    change = UPDATE._replace(
        key=(("the id", 1),),
        before=None,
        after={"the id": 1, "größe": "x"},
        changed=frozenset({"größe"}),
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
        lambda message: message["lineage"].update(table=["item"]),
        lambda message: message["lineage"].update(schema={"a": 1}),
        lambda message: message["lineage"].update(tableVersion=float("inf")),
        lambda message: message["lineage"].update(tableVersion=Decimal("1e9999999")),
        lambda message: message.update(schemaId=["A"]),
        lambda message: message.update(dataSchema={"type": "record"}),
        lambda message: message["tableStructure"]["tableColumns"]["id"].update(
            ordinal=float("inf")
        ),
        lambda message: message["tableStructure"]["tableColumns"]["id"].update(length=float("nan")),
        lambda message: message["tableStructure"]["tableColumns"]["id"].update(
            primaryKeyPosition=[1]
        ),
    ],
)
def test_metadata_that_cannot_be_read_are_an_error(spoil: Callable[[dict[str, Any]], Any]) -> None:
    record = records([written("json")[0]])[0]
    spoil(record["message"])
    with pytest.raises(FormatError):
        read(record)


def number_columns(*types: str) -> dict[str, Any]:
    return {"app.item": [{"name": type.lower(), "type": type} for type in types]}


MIN_AND_MOST = {
    "INT1": (-(2**7), 2**7 - 1), "INT2": (-(2**15), 2**15 - 1), "INT4": (-(2**31), 2**31 - 1),
    "INT8": (-(2**63), 2**63 - 1), "UINT1": (0, 2**8 - 1), "UINT2": (0, 2**16 - 1), "UINT4": (0,
    2**32 - 1), "UINT8": (0, 2**64 - 1),
}  # fmt: skip


@pytest.mark.promise("code error-bad_message_value")
@pytest.mark.parametrize("type", MIN_AND_MOST)
def test_integers_are_read_within_the_range_of_their_column(type: str) -> None:
    def value(text: str) -> Any:
        data = f'{{"data":{{"{type.lower()}":{text}}},"headers":{json.dumps(INSERT)}}}'.encode()
        (change,) = read(data, schema="app", table="item", columns=number_columns(type))
        return None if change.after is None else change.after[type.lower()]

    least, most = MIN_AND_MOST[type]
    for number in (least, most):
        assert [value(text) for text in (str(number), f'"{number}"', f"{number}.0")] == [number] * 3
    assert [value(text) for text in ("0e99", "1e2", '"1E+2"')] == [0, 100, 100]
    for text in (
        least - 1,
        most + 1,
        "1e99999",
        "1e9999999",
        '"1e9999999"',
        "-1e9999999",
        "1e-9999999",
        "Infinity",
    ):
        begun = process_time()
        with refused("bad_message_value"):
            value(str(text))
        assert process_time() - begun < 2  # an exponent of seven digits took ten minutes


@pytest.mark.parametrize(
    "number", ["1e300000000", "-1e300000000", "1e-300000000", '"1e300000000"', "0e300000000"]
)
def test_a_numeric_whose_exponent_is_out_of_all_reason_is_refused(number: str) -> None:
    data = f'{{"data":{{"numeric":{number}}},"headers":{json.dumps(INSERT)}}}'.encode()
    with refused("bad_message_value", match="not NUMERIC"):
        read(data, schema="app", table="item", columns=number_columns("NUMERIC"))


def test_a_number_that_no_real_holds_is_not_infinite() -> None:
    for columns, text in (
        (number_columns("REAL8"), "1e400"),
        (number_columns("REAL8"), '"1e400"'),
        ({}, "1e400"),
    ):
        data = f'{{"data":{{"real8":{text}}},"headers":{json.dumps(INSERT)}}}'.encode()
        with refused("bad_message_value"):
            read(data, schema="app", table="item", columns=columns)
    (change,) = read({"data": {"real8": "Infinity"}, "headers": INSERT}, schema="app", table="item",
                     columns=number_columns("REAL8"))  # fmt: skip
    assert change.after == {"real8": float("inf")}


def test_columns_of_the_options_are_enough_for_messages_whose_metadata_do_not_come() -> None:
    record = envelope({**ROWS, "headers": HEADERS}, messageSchemaId="AB" * 16)
    (change,) = read_item(record)
    assert (change, change.extras["schema_id"]) == (UPDATE, "AB" * 16)
    with pytest.raises(
        UnknownSchema,
        match=r"or, for messages in JSON, .* option columns = .* schema and table",
    ):
        read(record, schema="app", table="item")


def test_a_new_version_of_a_table_that_was_described_waits_for_its_metadata() -> None:
    metadata, _ = written("json")
    record = envelope({**ROWS, "headers": HEADERS}, messageSchemaId="AB" * 16)
    with pytest.raises(UnknownSchema):
        read_item(metadata, record)


def test_options_are_checked() -> None:
    for options in (
        {"byteorder": "middle"},
        {"columns": ["id"]},
        {"columns": {"t": [{"name": "a", "type": "INT3"}]}},
    ):
        with pytest.raises(ConfigError):
            ReadOptions(**options)  # type: ignore[arg-type]


WRONG: list[Any] = [7, 1.5, True, "text", [1], {"a": 1}, [[]], None, float("nan"), -1]


@pytest.mark.parametrize("kind", [ReadOptions, WriteOptions])
def test_options_of_wrong_types_are_named(kind: type[Any]) -> None:
    good = kind()
    for name in kind.__dataclass_fields__:
        for value in WRONG:
            try:
                kind(**{name: value})
            except ConfigError as error:
                assert name in str(error) or name == "columns"  # noqa: PT017 - whether it is raised is left open
            else:
                default = getattr(good, name)
                fits = isinstance(value, type(default)) or (
                    default is None and isinstance(value, str | None)
                )
                optional = value is None and name == "metadata_topic" and kind is ReadOptions
                assert fits or optional or (name == "metadata_wait" and value == 7), (name, value)


@pytest.mark.parametrize(
    "column",
    [{"name": "a", "type": 7}, {"name": "a", "type": []}, {"name": "a", "precision": -1},
     {"name": "a", "pk": 1.0}, {"name": "a", "precision": 10**9}, {"name": "a", "nullable": "no"},
     {"name": 7}, 7, [], None],
)  # fmt: skip
def test_columns_of_wrong_types_are_refused(column: Any) -> None:
    for kind in (ReadOptions, WriteOptions):
        with pytest.raises(ConfigError):
            kind(columns={"t": [column]})


def test_sequence_is_the_position() -> None:
    assert read_item(envelope({**ROWS, "headers": HEADERS}))[0].position == SEQUENCE
