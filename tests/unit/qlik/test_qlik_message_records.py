"""What libraries write of messages is what was meant, whatever came before them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from message_samples import NOW, SEQUENCE, MemoryRegistry, write
from shared import examples

from eventlog.model import Change, ChangeOp, Value
from eventlog.qlik.columns import QlikColumn, columns_from_json
from eventlog.qlik.messages import avro
from eventlog.qlik.messages.envelope import ENVELOPE_SCHEMA, MAGIC, open_avro
from eventlog.qlik.messages.message_tables import (
    MessageTable,
    WriteOptions,
    data_schema,
    key_schema,
)
from eventlog.qlik.messages.message_writer import MessageWriter

COLUMNS = (
    {"name": "id", "type": "INT8", "pk": 2}, {"name": "100%", "type": "STRING", "pk": 1},
    {"name": "%s", "type": "WSTRING"}, {"name": "small", "type": "UINT1"}, {"name": "huge",
    "type": "UINT8"}, {"name": "price", "type": "NUMERIC", "precision": 9, "scale": 2},
    {"name": "any", "type": "NUMERIC"}, {"name": "day", "type": "DATE"}, {"name": "clock",
    "type": "TIME"}, {"name": "moment", "type": "DATETIME"}, {"name": "single", "type": "REAL4"},
    {"name": "double", "type": "REAL8"}, {"name": "flag", "type": "BOOLEAN"}, {"name": "raw",
    "type": "BYTES"}, {"name": "doc", "type": "CLOB"},
)  # fmt: skip
VALUES: dict[str, st.SearchStrategy[Value]] = {
    "id": st.integers(-(2**63), 2**63 - 1),
    "100%": st.text(max_size=5),
    "%s": st.text(max_size=70),
    "small": st.integers(0, 255),
    "huge": st.integers(0, 2**63 - 1),
    "price": st.decimals(-9999999, 9999999, places=2),
    "any": st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9),
    "day": st.dates(),
    "clock": st.times(),
    "moment": st.datetimes(),
    "single": st.floats(width=32),
    "double": st.floats(),
    "flag": st.booleans(),
    "raw": st.binary(max_size=200),
    "doc": st.text(max_size=9),
}
NAMES = tuple(VALUES)


@st.composite
def rows(draw: st.DrawFn) -> dict[str, Value]:
    """A row that has its key, and some other columns."""
    others = draw(st.sets(st.sampled_from(NAMES[2:]), max_size=6))
    nullable = {name: st.none() | VALUES[name] for name in NAMES[2:] if name in others}
    return draw(st.fixed_dictionaries({"100%": VALUES["100%"], "id": VALUES["id"], **nullable}))


@st.composite
def changes(draw: st.DrawFn) -> Change:
    op = draw(
        st.sampled_from([ChangeOp.INSERT, ChangeOp.UPDATE, ChangeOp.DELETE, ChangeOp.REFRESH])
    )
    row = draw(rows())
    before = draw(st.none() | rows()) if op is ChangeOp.UPDATE else None
    changed = (
        draw(st.none() | st.sets(st.sampled_from(sorted(row)))) if op is ChangeOp.UPDATE else None
    )
    is_delete = op is ChangeOp.DELETE
    return Change(
        draw(st.sampled_from(["app", None])), "item", op,
        tuple((name, row[name]) for name in NAMES[1::-1]),
        row if is_delete else before, None if is_delete else row,
        None if changed is None else frozenset(changed), SEQUENCE,
        draw(st.none() | st.text("0123456789abcdefxyz", min_size=1)),
        draw(st.none() | st.integers(1, 2**40)), draw(st.none() | st.booleans()),
        draw(st.none() | st.datetimes(timezones=st.just(UTC))),
        extras={"stream_position": draw(st.text(max_size=3))},
    )  # fmt: skip


def given_columns() -> dict[str, Any]:
    return {"app.item": COLUMNS, "item": COLUMNS}


SHAPES = [
    {},
    {"names": "headers", "external_schema_id": True},
    {"names": "off", "metadata": "none", "byteorder": "big"},
    {"logical_types": False},
]


@pytest.mark.parametrize("encoding", ["json", "avro"])
@settings(max_examples=15, deadline=None)
@given(st.lists(changes(), min_size=2, max_size=5))
def test_a_message_does_not_depend_on_those_before_it(
    encoding: str, given_changes: list[Change]
) -> None:
    options = WriteOptions(columns=given_columns(), encoding=encoding, metadata="none")
    writer = MessageWriter(options)
    together = [message for change in given_changes * 2 for message in writer.messages(change)]
    alone = [
        message for change in given_changes for message in MessageWriter(options).messages(change)
    ]
    assert together == alone * 2


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=examples(25), deadline=None)
@given(changes())
def test_avro_messages_are_whole_records_of_their_schemas(
    shape: dict[str, Any], change: Change
) -> None:
    options = WriteOptions(columns=given_columns(), encoding="avro", **shape)
    message = write([change], columns=given_columns(), encoding="avro", **shape)[-1]
    table = MessageTable(change.schema, "item", columns_from_json(COLUMNS, what="item"))
    opened = open_avro(message.value)
    envelope = {"magic": MAGIC.encode(), "type": "DT", "headers": None,
                "messageSchemaId": opened.schema_id, "messageSchema": None,
                "message": opened.message}  # fmt: skip
    assert avro.bytes_writer(ENVELOPE_SCHEMA)(envelope) == message.value
    assert message.key is not None
    for schema, data in (
        (data_schema(table, options), opened.message),
        (key_schema(table, options), message.key),
    ):
        record = avro.from_bytes(schema, data)
        again = avro.bytes_writer(schema)(record)
        # fastavro writes two bytes of -1.28, where one holds the number.
        is_shorter = len(data) < len(again) and avro.from_bytes(schema, again) == record
        assert again == data or is_shorter


def union(kind: str) -> list[str]:
    return ["null", kind]


@given(
    st.fixed_dictionaries(
        {
            "op": st.sampled_from(["INSERT", "REFRESH"]),
            "text": st.text(max_size=200),
            "data": st.none() | st.binary(max_size=9000),
            "small": st.integers(-(2**31), 2**31 - 1),
            "large": st.none() | st.integers(-(2**63), 2**63 - 1),
            "name": st.none() | st.text(max_size=70),
            "flag": st.none() | st.booleans(),
            "real": st.none() | st.floats(allow_nan=False),
        }
    )
)
def test_a_record_is_written_as_fastavro_writes_it(record: dict[str, Any]) -> None:
    fields = [
        {"name": "op", "type": {"type": "enum", "name": "operation", "symbols": ["INSERT",
        "REFRESH"]}}, {"name": "text", "type": "string"}, {"name": "data", "type": union("bytes")},
        {"name": "small", "type": "int"}, {"name": "large", "type": union("long")}, {"name": "name",
        "type": union("string")}, {"name": "flag", "type": union("boolean")}, {"name": "real",
        "type": union("double")},
    ]  # fmt: skip
    schema = json.dumps({"type": "record", "name": "R", "fields": fields})
    assert avro.record_writer(fields)(record) == avro.bytes_writer(schema)(record)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_float_that_json_has_no_number_for_is_a_word(number: float) -> None:
    row: dict[str, Value] = {"100%": "a", "id": 1, "single": number, "double": number}
    change = Change("app", "item", ChangeOp.UPDATE, None, row, row, frozenset())
    value = write([change], columns=given_columns(), metadata="none")[-1].value
    message = json.loads(value)["message"]
    word = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(number)]
    for image in (message["data"], message["beforeData"]):
        assert (image["single"], image["double"]) == (word, word)


def test_integers_beyond_64_bits_keep_their_digits() -> None:
    row: dict[str, Value] = {"100%": "a", "id": 2**63 - 1, "huge": 2**64 - 1, "any": Decimal(2**64)}
    value = write([Change("app", "item", ChangeOp.INSERT, after=row)], columns=given_columns())[
        -1
    ].value
    data = json.loads(value)["message"]["data"]
    assert (data["id"], data["huge"], data["any"]) == (2**63 - 1, str(2**64 - 1), str(2**64))


@settings(max_examples=20, deadline=None)
@given(changes())
def test_the_prefix_of_a_registry_is_followed_by_the_same_record(change: Change) -> None:
    bare = write([change], columns=given_columns(), encoding="avro", metadata="none")[-1]
    registered = write(
        [change],
        registry=MemoryRegistry(),
        columns=given_columns(),
        encoding="avro",
        metadata="registry",
    )[-1]
    assert registered.value[5:] == open_avro(bare.value).message
    assert registered.key is not None
    assert registered.key[5:] == bare.key


def test_more_shapes_than_are_kept_are_written_all_the_same() -> None:
    columns = [QlikColumn("id", "INT4", pk=1), *(QlikColumn(f"c{n}", "DATE") for n in range(10))]
    writer = MessageWriter(
        WriteOptions(metadata="none"), columns={"item": tuple(columns)}, utc_now=lambda: NOW
    )
    for number in range(600):
        known = {f"c{bit}": date(2024, 1, 2) for bit in range(10) if number >> bit & 1}
        change = Change(
            None, "item", ChangeOp.INSERT, (("id", number),), after={"id": number, **known}
        )
        (message,) = writer.messages(change)
        data = json.loads(message.value)["message"]["data"]
        assert {name for name, value in data.items() if value is not None} == {"id", *known}


def test_what_is_written_is_the_type_of_the_column_not_of_the_value() -> None:
    row: dict[str, Any] = {
        "id": "7",
        "100%": 5,
        "price": 1,
        "flag": 1,
        "day": datetime(2024, 1, 2),
        "clock": "01:02",
    }
    change = Change("app", "item", ChangeOp.INSERT, after=row)
    data = json.loads(write([change], columns=given_columns())[-1].value)["message"]["data"]
    assert {name: value for name, value in data.items() if value is not None} == {
        "id": 7, "_00_": "5", "price": "1", "flag": True, "day": "2024-01-02",
        "clock": "01:02:00.000000",
    }  # fmt: skip
    typed = row | {
        "id": 7,
        "100%": "5",
        "price": Decimal(1),
        "flag": True,
        "day": date(2024, 1, 2),
        "clock": time(1, 2),
    }
    assert write([change._replace(after=typed)], columns=given_columns()) == write(
        [change], columns=given_columns()
    )
