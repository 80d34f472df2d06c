"""Debezium events: the documented examples of the PostgreSQL connector, and ours of the same
(formats/debezium.md).

The examples stand in "Data change events" of the connector's documentation, version 3.
"""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from fuzzing import CASES, OF_A_FILE, damaged, replaced, run
from fuzzing import read as fuzzed
from hypothesis import given
from hypothesis import strategies as st
from shared import refused

from eventlog.changes.format import Report
from eventlog.changes.json_form import database_from_json
from eventlog.core.catalog import Catalog
from eventlog.core.catalog.builder import build_catalog
from eventlog.core.values import parse_type
from eventlog.debezium.fields import decoder_of, field_of
from eventlog.debezium.format import FORMAT
from eventlog.debezium.records import line_of
from eventlog.debezium.writer import PLACEHOLDER, EnvelopeWriter, Logged, WriteOptions, topic_of
from eventlog.errors import FormatError, NotExpressible
from eventlog.model import Change, ChangeOp, KafkaRecord, Row, Value

CUSTOMERS = {
    "dialect": "postgresql",
    "schema": "public",
    "tables": [
        {
            "name": "customers",
            "kind": "table",
            "columns": [{"name": "id", "type": "integer"}]
            + [
                {"name": name, "type": "varchar(255)"}
                for name in ("first_name", "last_name", "email")
            ],
            "primary_key": ["id"],
        }
    ],
}
ANNE = {"id": 1, "first_name": "Anne", "last_name": "Kretchmar", "email": "annek@noanswer.org"}
AT = datetime(2019, 5, 28, 8, 58, 24, 863123, UTC)


def catalog() -> Catalog:
    return build_catalog(database_from_json(CUSTOMERS))


def change(op: ChangeOp, **fields: Any) -> Change:
    key = None if op is ChangeOp.TRUNCATE else (("id", 1),)
    return Change("public", "customers", op, key, commit_time=AT, position="7", **fields)


def records(one: Change, complete: Row | None = None, **options: Any) -> list[KafkaRecord]:
    classes = catalog()
    chosen = WriteOptions(topic_prefix="PostgreSQL_server", database="postgres", **options)
    writer = EnvelopeWriter(chosen, classes, utc_now=lambda: AT)
    return writer.records(one, classes.classes[0], lambda: complete, Logged([7, 8], 555))


def plain(one: Change, complete: Row | None = None, **options: Any) -> dict[str, Any]:
    """The value of a change's first record, without schema."""
    (record, *_) = records(one, complete, schemas_enable=False, **options)
    assert record.value is not None
    value: dict[str, Any] = json.loads(record.value)
    return value


def source(**more: Any) -> dict[str, Any]:
    """The source of a documented example."""
    return {
        "version": "3.0.0.Final", "connector": "postgresql", "name": "PostgreSQL_server",
        "ts_ms": 1559033904863, "ts_us": 1559033904863123, "ts_ns": 1559033904863123000,
        "snapshot": False, "db": "postgres", "schema": "public", "table": "customers", "txId": 556,
        "lsn": 24023128, "xmin": None, **more,
    }  # fmt: skip


def read(tmp_path: Path, *lines: Any, **options: Any) -> list[Change]:
    path = tmp_path / "topic.jsonl"
    path.write_text(
        "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    )
    return list(FORMAT.read(str(path), options, Report(strict=True)))


# --- ours, field by field against the documented examples -----------------------------------------


@pytest.mark.promise("format debezium")
def test_a_create_has_the_documented_form() -> None:
    (record,) = records(change(ChangeOp.INSERT, after=ANNE))
    assert record.topic == "PostgreSQL_server.public.customers"
    assert json.loads(record.key or b"") == {
        "schema": {
            "type": "struct",
            "name": "PostgreSQL_server.public.customers.Key",
            "optional": False,
            "fields": [{"field": "id", "type": "int32", "optional": False}],
        },
        "payload": {"id": 1},
    }
    value = json.loads(record.value or b"")
    assert value.keys() == {"schema", "payload"}
    payload = value["payload"]
    assert (payload["before"], payload["after"], payload["op"]) == (None, ANNE, "c")
    assert [payload[name] for name in ("ts_ms", "ts_us", "ts_ns")] == [
        1559033904863, 1559033904863123, 1559033904863123000,
    ]  # fmt: skip
    assert payload["transaction"] is None
    documented = source()
    own = {"version", "connector", "snapshot"}
    for name in ("name", "ts_ms", "ts_us", "ts_ns", "db", "schema", "table"):
        assert payload["source"][name] == documented[name], name
    assert payload["source"].keys() - documented.keys() == {"sequence", "event_id", "record_ids"}
    assert documented.keys() - payload["source"].keys() == {"lsn", "xmin"}
    assert {name: payload["source"][name] for name in own - {"version"}} == {
        "connector": "eventlog", "snapshot": "false",
    }  # fmt: skip
    shown = [payload["source"][name] for name in ("event_id", "record_ids", "txId")]
    assert shown == ["7", [7, 8], 555]


def test_the_schema_names_and_types_are_the_documented_ones() -> None:
    (record,) = records(change(ChangeOp.INSERT, after=ANNE))
    schema = json.loads(record.value or b"")["schema"]
    assert (schema["type"], schema["optional"], schema["name"]) == (
        "struct", False, "PostgreSQL_server.public.customers.Envelope",
    )  # fmt: skip
    fields = {field["field"]: field for field in schema["fields"]}
    assert list(fields) == [
        "before",
        "after",
        "source",
        "op",
        "ts_ms",
        "ts_us",
        "ts_ns",
        "transaction",
    ]
    for name in ("before", "after"):
        assert (fields[name]["type"], fields[name]["optional"]) == ("struct", True)
        assert fields[name]["name"] == "PostgreSQL_server.public.customers.Value"
        assert [(one["field"], one["type"], one["optional"]) for one in fields[name]["fields"]] == [
            ("id", "int32", False), ("first_name", "string", True), ("last_name", "string", True),
            ("email", "string", True),
        ]  # fmt: skip
    of_source = [(one["field"], one["type"], one["optional"]) for one in fields["source"]["fields"]]
    assert of_source[:6] == [
        ("version", "string", False), ("connector", "string", False), ("name", "string", False),
        ("ts_ms", "int64", False), ("ts_us", "int64", False), ("ts_ns", "int64", False),
    ]  # fmt: skip
    assert {
        ("db", "string", False),
        ("schema", "string", False),
        ("table", "string", False),
        ("txId", "int64", True),
    } <= set(of_source)
    assert (fields["op"]["type"], fields["op"]["optional"]) == ("string", False)
    assert [
        (fields[name]["type"], fields[name]["optional"]) for name in ("ts_ms", "ts_us", "ts_ns")
    ] == ([("int64", True)] * 3)


def test_every_value_has_a_field_in_its_schema() -> None:
    """JsonConverter takes the payload apart by the schema: what this does not name is lost, what it
    names is there.
    """
    for one in (change(ChangeOp.INSERT, after=ANNE), change(ChangeOp.DELETE, before=ANNE)):
        value = json.loads(records(one)[0].value or b"")

        def compare(schema: Any, payload: Any) -> None:
            if payload is None:
                assert schema["optional"], schema.get("field")
            elif schema["type"] == "struct":
                assert payload.keys() == {field["field"] for field in schema["fields"]}
                for field in schema["fields"]:
                    compare(field, payload[field["field"]])

        compare(value["schema"], value["payload"])


@pytest.mark.promise(
    "option debezium.writer.schemas_enable",
    "option debezium.writer.tombstones_on_delete",
)
def test_a_delete_contains_the_key_and_is_followed_by_a_tombstone() -> None:
    deleted, tombstone = records(change(ChangeOp.DELETE, before={"id": 1}), schemas_enable=False)
    value = json.loads(deleted.value or b"")
    assert (value["before"], value["after"], value["op"]) == ({"id": 1}, None, "d")
    assert tombstone == KafkaRecord(deleted.topic, deleted.key, None)
    assert deleted.key == b'{"id":1}'
    assert len(records(change(ChangeOp.DELETE, before={"id": 1}), tombstones_on_delete=False)) == 1


def test_a_truncate_has_no_key() -> None:
    (record,) = records(change(ChangeOp.TRUNCATE), schemas_enable=False)
    assert record.key is None
    assert json.loads(record.value or b"")["op"] == "t"


def test_a_row_of_an_initial_load_is_read() -> None:
    value = plain(change(ChangeOp.REFRESH, after=ANNE))
    assert (value["op"], value["source"]["snapshot"]) == ("r", "true")


def test_a_new_key_is_a_delete_a_tombstone_and_a_create() -> None:
    moved = change(ChangeOp.UPDATE, before={**ANNE, "id": 0}, after=ANNE)
    deleted, tombstone, created = records(moved, schemas_enable=False)
    assert (deleted.key, tombstone.value, created.key) == (b'{"id":0}', None, b'{"id":1}')
    assert [json.loads(one.value or b"")["op"] for one in (deleted, created)] == ["d", "c"]


# --- the whole row --------------------------------------------------------------------------------

RENAMED = {
    "before": {"id": 1, "first_name": "Anne"},
    "after": {"id": 1, "first_name": "Anne Marie"},
    "changed": frozenset({"first_name"}),
}


def test_what_an_update_does_not_know_is_read_and_is_in_both_images() -> None:
    value = plain(change(ChangeOp.UPDATE, **RENAMED), {**ANNE, "first_name": "later"})
    assert value["after"] == {**ANNE, "first_name": "Anne Marie"}
    assert value["before"] == ANNE


def test_before_is_null_where_an_old_value_is_not_known() -> None:
    value = plain(change(ChangeOp.UPDATE, **{**RENAMED, "before": None}), ANNE)
    assert (value["before"], value["after"]["first_name"]) == (None, "Anne Marie")


@pytest.mark.parametrize("options", [{}, {"missing_columns": "error"}])
def test_an_update_without_its_row_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(NotExpressible, match="columns last_name, email are unknown"):
        plain(change(ChangeOp.UPDATE, **RENAMED), **options)


@pytest.mark.promise("option debezium.writer.missing_columns")
def test_a_placeholder_stands_for_what_is_not_known() -> None:
    value = plain(change(ChangeOp.UPDATE, **RENAMED), ANNE, missing_columns="placeholder")
    assert value["after"] == {
        "id": 1, "first_name": "Anne Marie", "last_name": PLACEHOLDER, "email": PLACEHOLDER,
    }  # fmt: skip


def test_what_an_insert_does_not_say_is_null_unless_it_is_read() -> None:
    one = change(ChangeOp.INSERT, after={"id": 1, "first_name": "Anne"})
    assert plain(one)["after"] == {"id": 1, "first_name": "Anne", "last_name": None, "email": None}
    assert plain(one, ANNE)["after"] == ANNE


def test_several_values_are_refused() -> None:
    with pytest.raises(
        NotExpressible, match=r"'tag\.name' has several values.*watch\]\] of its own"
    ):
        plain(change(ChangeOp.UPDATE, after={"id": 1, "tag.name": ("red",)}), ANNE)


# --- what Debezium writes is read -----------------------------------------------------------------


def test_the_documented_examples_are_read(tmp_path: Path) -> None:
    key = {"id": 1}
    marie = {**ANNE, "first_name": "Anne Marie"}
    created, updated, deleted, truncated = read(
        tmp_path,
        {"key": key, "value": {"before": None, "after": ANNE, "source": source(), "op": "c"}},
        {
            "key": key,
            "value": {"before": {"id": 1}, "after": marie, "source": source(txId=557), "op": "u"},
        },
        {"key": key, "value": {"before": {"id": 1}, "after": None, "source": source(), "op": "d"}},
        {"key": key, "value": None},
        {"key": None, "value": {"source": source(), "op": "t"}},
        {
            "key": {"prefix": "foo"},
            "value": {"source": source(table="", schema=""), "op": "m", "message": {}},
        },
        {"key": {"id": "571"}, "value": {"status": "BEGIN", "id": "571", "event_count": None}},
    )
    assert created == Change(
        "public", "customers", ChangeOp.INSERT, (("id", 1),), after=ANNE, position="24023128",
        transaction_id="556".zfill(32), commit_time=AT,
    )  # fmt: skip
    assert (updated.before, updated.after, updated.changed) == ({"id": 1}, marie, None)
    assert (deleted.op, deleted.before, deleted.after) == (ChangeOp.DELETE, {"id": 1}, None)
    assert (truncated.op, truncated.key) == (ChangeOp.TRUNCATE, None)


@pytest.mark.parametrize("form", ["value", "record", "text", "tab"])
@pytest.mark.parametrize("schemas", [True, False])
def test_a_line_is_one_value_per_record_or_what_tools_print(
    tmp_path: Path, form: str, schemas: bool
) -> None:
    (record,) = records(change(ChangeOp.INSERT, after=ANNE), schemas_enable=schemas)
    key, value = (record.key or b"").decode(), (record.value or b"").decode()
    line = {
        "value": value,
        "record": f'{{"key":{key},"value":{value}}}',
        "text": json.dumps({"topic": record.topic, "partition": 0, "key": key, "payload": value}),
        "tab": f"{key}\t{value}",
    }[form]
    (one,) = read(tmp_path, line, keys={"customers": ["id"]})
    assert one == change(ChangeOp.INSERT, after=ANNE, transaction_id=f"{555:032}")


def test_a_placeholder_is_a_column_that_is_not_known(tmp_path: Path) -> None:
    value = {"after": {**ANNE, "email": PLACEHOLDER}, "source": source(), "op": "u"}
    (one,) = read(tmp_path, value)
    assert (one.after or {}).keys() == {"id", "first_name", "last_name"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"op": "x", "source": source()}, "unknown op 'x'; expected one of c, u, d, r, t"),
        ({"op": "c", "after": ANNE}, "source.table"),
        ({"op": "c", "after": [], "source": source()}, "after must be an object, not list"),
        (
            {"schema": {"fields": []}, "payload": {"op": "c", "after": ANNE, "source": source()}},
            "no field after",
        ),
        ("[1]", "a change event must be an object"),
    ],
)
def test_what_is_no_event_is_named(tmp_path: Path, line: Any, said: str) -> None:
    with pytest.raises(FormatError, match=f"topic.jsonl, line 1: .*{said}"):
        read(tmp_path, line)


@pytest.mark.parametrize("cases", CASES)
@pytest.mark.parametrize("schemas", [True, False])
def test_no_record_stops_the_reader(tmp_path: Path, cases: int, schemas: bool) -> None:
    made = [
        *records(change(ChangeOp.INSERT, after=ANNE), schemas_enable=schemas),
        *records(change(ChangeOp.UPDATE, before=ANNE, after=ANNE), schemas_enable=schemas),
        *records(change(ChangeOp.DELETE, before=ANNE), schemas_enable=schemas),
    ]
    good = [line_of(record).rstrip() for record in made]
    path = tmp_path / "topic.jsonl"

    def case(rnd: Random) -> bytes:
        spoil = [replaced if rnd.random() < 0.7 else damaged for _ in range(OF_A_FILE)]
        return b"\n".join(one(rnd, rnd.choice(good)) for one in spoil)

    run(
        cases,
        path,
        case,
        lambda rnd: fuzzed(FORMAT, path, rnd.choice([{}, {"catalog": CUSTOMERS}])),
    )


# --- types ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type", "options", "schema", "value", "written"),
    [
        ("smallint", {}, "int16", -5, -5),
        ("bigint", {}, "int64", 2**62, 2**62),
        ("boolean", {}, "boolean", True, True),
        ("real", {}, "float", 1.5, 1.5),
        ("double", {}, "double", float("inf"), "Infinity"),
        ("varbinary(9)", {}, "bytes", b"\x00\xff", "AP8="),
        ("uuid", {}, "io.debezium.data.Uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
         "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ("json", {}, "io.debezium.data.Json", '{"a":1}', '{"a":1}'),
        ("date", {}, "io.debezium.time.Date", date(1970, 1, 11), 10),
        ("date", {"times": "connect"}, "org.apache.kafka.connect.data.Date", date(1969, 12, 31),
        -1), ("time(3)", {}, "io.debezium.time.Time", time(0, 0, 1, 2000), 1002),
        ("time", {}, "io.debezium.time.MicroTime", time(0, 0, 1, 2), 1000002),
        ("timestamp(3)", {}, "io.debezium.time.Timestamp", datetime(2018, 6, 20, 15, 13, 16,
         945000), 1529507596945),
        # the example of "TIMESTAMP type"
        ("timestamp", {}, "io.debezium.time.MicroTimestamp", datetime(2018, 6, 20, 15, 13, 16,
         945104), 1529507596945104),
        ("timestamp", {"times": "connect"}, "org.apache.kafka.connect.data.Timestamp",
         datetime(2018, 6, 20, 15, 13, 16, 945000), 1529507596945),
        ("timestamp", {}, "io.debezium.time.MicroTimestamp", "infinity", 9223372036825200000),
        ("timestamptz", {}, "io.debezium.time.ZonedTimestamp", datetime(2018, 6, 20, 13, 37, 3,
         120000, UTC), "2018-06-20T13:37:03.120000Z"),
        ("decimal(9,2)", {}, "org.apache.kafka.connect.data.Decimal", Decimal("1.50"), "AJY="),
        ("decimal(9,2)", {}, "org.apache.kafka.connect.data.Decimal", Decimal("-0.01"), "/w=="),
        ("decimal(9,2)", {"decimals": "string"}, "string", Decimal("1.50"), "1.50"),
        ("decimal(9,2)", {"decimals": "double"}, "double", Decimal("1.5"), 1.5),
        ("decimal(9)", {}, "org.apache.kafka.connect.data.Decimal", 150, "AJY="),
        ("decimal", {}, "io.debezium.data.VariableScaleDecimal", Decimal("1.50"), {"scale": 2,
         "value": "AJY="}),
    ],
)  # fmt: skip
def test_a_column_has_the_documented_type(
    type: str, options: Any, schema: str, value: Value, written: Any
) -> None:
    field = field_of(parse_type(type), **options)
    assert field.schema.get("name", field.schema["type"]) == schema
    assert field.encode(value) == written
    assert field.decode(json.loads(json.dumps(written), parse_float=Decimal)) == value
    if "decimals" not in options:  # whose schema does not say that it is a decimal
        assert (
            decoder_of(field.schema)(json.loads(json.dumps(written), parse_float=Decimal)) == value
        )


@given(
    st.decimals(
        allow_nan=False, allow_infinity=False, places=4, min_value=-(10**20), max_value=10**20
    )
)
def test_a_decimal_comes_back_exactly(number: Decimal) -> None:
    for type in ("decimal(30,4)", "decimal"):
        field = field_of(parse_type(type))
        assert field.decode(field.encode(number)) == number


@pytest.mark.promise("code error-value_range")
@pytest.mark.parametrize(
    ("type", "value", "said"),
    [
        ("decimal(9,2)", Decimal("NaN"), "decimal_handling_mode = string"),
        ("decimal(9,2)", Decimal("1.234"), "more than 2 digits"),
        ("date", "tomorrow", "tomorrow"),
        ("timestamp", "294276-12-31 23:59:59.999999", "beyond 64 bits"),
        ("integer", 2**31, "beyond 32 bits"),
    ],
)
def test_a_value_that_a_type_does_not_hold_is_refused_by_its_column(
    type: str, value: Value, said: str
) -> None:
    table = {"name": "t", "kind": "table", "columns": [{"name": "id", "type": "integer"},
             {"name": "v", "type": type}], "primary_key": ["id"]}  # fmt: skip
    classes = build_catalog(
        database_from_json({"dialect": "postgresql", "schema": "app", "tables": [table]})
    )
    one = Change("app", "t", ChangeOp.INSERT, (("id", 1),), after={"id": 1, "v": value})
    with refused("value_range", match=f"column 'v' of app.t as .*{said}") as raised:
        EnvelopeWriter(WriteOptions(), classes).records(one, classes.classes[0])
    assert raised.value.column == "app.t.v"


@pytest.mark.parametrize(
    ("op", "after", "before"),
    [
        (ChangeOp.UPDATE, {"id": 1, "v": Decimal("1.50"), "w": 2}, None),
        (ChangeOp.DELETE, None, {"id": 1, "w": 2}),
    ],
)
def test_an_old_value_that_a_type_does_not_hold_is_left_out_and_counted(
    op: ChangeOp, after: Row | None, before: Row | None
) -> None:
    columns = [
        {"name": "id", "type": "integer"},
        {"name": "v", "type": "decimal(9,2)"},
        {"name": "w", "type": "integer"},
    ]
    table = {"name": "t", "kind": "table", "columns": columns, "primary_key": ["id"]}
    classes = build_catalog(
        database_from_json({"dialect": "postgresql", "schema": "app", "tables": [table]})
    )
    old = {"id": 1, "v": Decimal("NaN"), "w": 2}
    changed = frozenset({"v"}) if op is ChangeOp.UPDATE else None
    one = Change("app", "t", op, (("id", 1),), old, after, changed)
    counted: list[str] = []
    writer = EnvelopeWriter(WriteOptions(schemas_enable=False), classes, count=counted.append)
    value = json.loads(writer.records(one, classes.classes[0])[0].value or b"")
    assert (value["before"], value["op"]) == (before, "u" if changed else "d")
    assert (value["after"] is None) == (after is None)
    assert counted == ["old_unreadable app.t.v"]


def of_value(type: str, value: Value, commit_time: datetime | None = None) -> dict[str, Any]:
    """The change event of an insert into a table with a column of this type, as JSON without
    schema.
    """
    table = {"name": "t", "kind": "table", "columns": [{"name": "id", "type": "integer"},
             {"name": "v", "type": type}], "primary_key": ["id"]}  # fmt: skip
    classes = build_catalog(
        database_from_json({"dialect": "postgresql", "schema": "app", "tables": [table]})
    )
    one = Change(
        "app",
        "t",
        ChangeOp.INSERT,
        (("id", 1),),
        after={"id": 1, "v": value},
        commit_time=commit_time,
    )
    (record,) = EnvelopeWriter(WriteOptions(schemas_enable=False), classes).records(
        one, classes.classes[0]
    )
    assert record.value is not None
    event: dict[str, Any] = json.loads(record.value)
    return event


@pytest.mark.parametrize(
    ("type", "value", "written"),
    [
        ("double", float("nan"), "NaN"),
        ("real", float("-inf"), "-Infinity"),
        ("decimal(30)", 2**64, "AQAAAAAAAAAA"),
        ("varchar(9)", "Ünï \U0001f600", "Ünï \U0001f600"),
    ],
)
def test_what_json_has_no_number_for_is_written_and_never_null(
    type: str, value: Value, written: Any
) -> None:
    assert of_value(type, value)["after"]["v"] == written


def test_a_moment_whose_nanoseconds_go_beyond_64_bits_is_written_with_all_digits() -> None:
    written = of_value("integer", 7, datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC))["source"]
    assert written["ts_ns"] == 253402300799 * 10**9 > 2**64


def test_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(NotExpressible, match="an unpaired surrogate"):
        of_value("varchar(9)", "\ud800")


def test_a_topic_has_no_character_that_kafka_refuses() -> None:
    assert topic_of("hr", "Sales Dept", "größe/2") == "hr.Sales_Dept.gr__e_2"
    assert topic_of("hr", None, "usr") == "hr.usr"


@pytest.mark.parametrize("told", [7, "7", [7, "8"], [True], {"a": 1}])
def test_what_is_no_list_of_record_ids_is_left_out_when_a_file_is_written_again(
    tmp_path: Path, told: Any
) -> None:
    envelope = {"op": "c", "after": {"id": 1}, "source": source(record_ids=told)}
    changes = read(tmp_path, {"payload": envelope})
    options = {"catalog": CUSTOMERS, "schemas_enable": False}
    FORMAT.write(changes, str(tmp_path / "again.jsonl"), options, Report(strict=True))
    (line, *_) = (tmp_path / "again.jsonl").read_text().splitlines()
    assert '"record_ids":null' in line.replace(" ", "").replace('\\"', '"')
