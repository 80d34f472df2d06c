"""Values of change events: those that Debezium itself writes, both ways, and records that Kafka
Connect reads (formats/debezium.md 3).

``debezium_values.jsonl`` holds what Debezium 3.1.1 wrote of PostgreSQL 15, a column of a row a
line, beside the text that the log has of the value.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest
from connect_records import check, missing_converter, read_by_connect
from hypothesis import given
from hypothesis import strategies as st

from eventlog.changes.format import NothingWritten, Report
from eventlog.changes.json_form import database_from_json
from eventlog.core.catalog import Catalog
from eventlog.core.catalog.builder import build_catalog
from eventlog.core.values import ColumnType, ValueOptions, parse_type, with_special_values
from eventlog.core.values.moments import calendar_of, special_date, special_microseconds
from eventlog.core.values.typed_values import value_reader
from eventlog.debezium import temporals
from eventlog.debezium.fields import decoder_of, field_of
from eventlog.debezium.format import FORMAT
from eventlog.debezium.temporals import MICRO
from eventlog.debezium.writer import EnvelopeWriter, Logged, WriteOptions
from eventlog.model import Change, ChangeOp, KafkaRecord, Value
from eventlog.registry import format_named

OF_DEBEZIUM: Final = [
    json.loads(line)
    for line in Path(__file__).with_name("debezium_values.jsonl").read_text().splitlines()
]
NOT_IN_PYTHON: Final = ("NaN", "Infinity", "-Infinity")


def type_named(name: str) -> ColumnType:
    return with_special_values(parse_type(name, "postgresql"), "postgresql", ValueOptions())


def same(value: Value, other: Value) -> bool:
    return value == other or (value != value and other != other)  # NaN


@pytest.mark.parametrize(
    "case", OF_DEBEZIUM, ids=lambda case: f"{case['type']}-{case['decimals']}-{case['log']}"
)
def test_a_value_of_the_log_is_written_as_debezium_writes_it(case: dict[str, Any]) -> None:
    type = type_named(case["type"])
    field = field_of(type, case["decimals"], case["times"])
    assert field.schema == case["schema"]
    assert field.encode(value_reader(type)(case["log"])) == case["value"]


@pytest.mark.parametrize(
    "case", OF_DEBEZIUM, ids=lambda case: f"{case['type']}-{case['decimals']}-{case['log']}"
)
def test_what_debezium_writes_is_read_as_the_log_has_it(case: dict[str, Any]) -> None:
    type = type_named(case["type"])
    expected = value_reader(type)(case["log"])
    if case["times"] == "connect" and isinstance(expected, datetime | time):  # to the millisecond
        expected = expected.replace(microsecond=expected.microsecond // 1000 * 1000)
    if case["times"] == "connect" and case["log"] == "12024-02-29 01:02:03.456789":
        expected = "12024-02-29 01:02:03.456"
    if case["type"] == "inet":
        expected = str(expected).partition("/32")[0].partition("/128")[0]
    stored = json.loads(json.dumps(case["value"]), parse_float=Decimal)
    read = field_of(type, case["decimals"], case["times"]).decode(stored)
    assert same(read, expected)
    if case["decimals"] == "precise":  # else the schema does not say that it is a decimal
        assert same(decoder_of(case["schema"])(stored), expected)


@pytest.mark.parametrize("days", [-622191234, -622191233])
def test_an_infinite_date_of_a_snapshot_is_read(days: int) -> None:
    assert decoder_of({"type": "int32", "name": "io.debezium.time.Date"})(days) == "infinity"


@given(st.integers(-2_440_588, 2_145_042_905))
def test_every_day_of_postgresql_comes_back(day: int) -> None:
    field = field_of(type_named("date"))
    assert field.encode(field.decode(day)) == day
    year, month, of_month = calendar_of(day)
    if not 0 < year < 10_000:
        assert special_microseconds(special_date(year, month, of_month)) == day * 86_400_000_000


@given(st.integers(-210_866_803_200_000_000, 2**63 - 1 - 10**14))
def test_every_moment_of_postgresql_comes_back(microseconds: int) -> None:
    stamp, zoned = field_of(type_named("timestamp")), field_of(type_named("timestamptz"))
    if stamp.decode(microseconds) in ("infinity", "-infinity"):
        return
    assert stamp.encode(stamp.decode(microseconds)) == microseconds
    text = str(stamp.decode(microseconds))
    if isinstance(stamp.decode(microseconds), str):
        with_zone = text.replace(" BC", "Z BC") if "BC" in text else f"{text}Z"
        assert zoned.decode(zoned.encode(with_zone)) == with_zone


# --- records, read by Connect ---------------------------------------------------------------------

COLUMNS: Final = {
    "id": "integer",
    "small": "smallint",
    "big": "bigint",
    "single": "real",
    "whole": "numeric(5,0)",
    "double": "double precision",
    "exact": "numeric(9,2)",
    "any": "numeric",
    "flag": "boolean",
    "name": "varchar(9)",
    "bytes": "bytea",
    "day": "date",
    "clock": "time",
    "clock3": "time(3)",
    "at": "timestamp",
    "at3": "timestamp(3)",
    "moment": "timestamptz",
    "code": "uuid",
    "doc": "jsonb",
    "host": "inet",
}
ROW: Final[dict[str, Value]] = {
    "id": 1,
    "small": -5,
    "big": 2**62,
    "single": 1.5,
    "double": float("inf"),
    "exact": Decimal("1.50"),
    "whole": 12,
    "any": Decimal("-0.001"),
    "flag": True,
    "name": "Zoë",
    "bytes": b"\x00\xff",
    "day": date(2024, 2, 29),
    "clock": time(1, 2, 3, 4),
    "clock3": time(1, 2, 3),
    "at": datetime(2024, 5, 10, 12),
    "doc": '{"a": 1}',
    "at3": datetime(2024, 5, 10, 12),
    "moment": datetime(2024, 5, 10, 12, tzinfo=UTC),
    "host": "10.0.0.1/32",
    "code": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
}
SPECIAL: Final[dict[str, Value]] = {
    **ROW, "day": "0044-03-15 BC", "clock": "24:00:00", "clock3": "24:00:00", "at": "infinity",
    "at3": "12024-02-29 01:02:03", "moment": "0044-03-15 01:02:03Z BC", "double": float("nan"),
}  # fmt: skip


def catalog() -> Catalog:
    columns = [{"name": name, "type": type} for name, type in COLUMNS.items()]
    tables = [{"name": "t", "kind": "table", "columns": columns, "primary_key": ["id"]}]
    return build_catalog(
        database_from_json({"dialect": "postgresql", "schema": "app", "tables": tables})
    )


def all_records() -> list[KafkaRecord]:
    """Records of every operation and type under all modes."""
    classes, key = catalog(), (("id", 1),)
    changes = [
        Change("app", "t", ChangeOp.INSERT, key, after=ROW),
        Change("app", "t", ChangeOp.INSERT, key, after=SPECIAL, position="7"),
        Change("app", "t", ChangeOp.UPDATE, key, before=ROW, after={**SPECIAL, "name": None}),
        Change("app", "t", ChangeOp.UPDATE, key, before={**ROW, "id": 0}, after=ROW),
        Change("app", "t", ChangeOp.DELETE, key, before={"id": 1}),
        Change("app", "t", ChangeOp.REFRESH, key, after=ROW),
        Change("app", "t", ChangeOp.TRUNCATE),
    ]
    return [
        record
        for decimals in ("precise", "string", "double")
        for times in ("adaptive", "connect")
        for writer in (EnvelopeWriter(
            WriteOptions(decimal_handling_mode=decimals, time_precision_mode=times), classes
        ),)
        for change in changes
        for record in writer.records(change, classes.classes[0], None, Logged([7, 8], 555))
    ]  # fmt: skip


def test_every_record_has_connects_words_and_forms() -> None:
    for record in all_records():
        check(record.key)
        check(record.value)


@pytest.mark.skipif(missing_converter() is not None, reason=missing_converter() or "")
def test_connects_own_converter_reads_every_record() -> None:
    records = all_records()
    said = read_by_connect(records)
    assert len(said) == sum(
        part is not None for record in records for part in (record.key, record.value)
    )
    assert [line for line in said if line.startswith("refused: ")] == []


# --- Debezium to Debezium -------------------------------------------------------------------------


def convert(
    tmp_path: Path, changes: list[Change], first: dict[str, Any], then: dict[str, Any]
) -> list[Change]:
    """Changes written, read, written again and read again."""
    strict = Report(strict=True)
    once, twice = str(tmp_path / "once.jsonl"), str(tmp_path / "twice.jsonl")
    of_reader = {name: value for name, value in then.items() if name == "catalog"}
    FORMAT.write(iter(changes), once, first, strict)
    FORMAT.write(FORMAT.read(once, of_reader, strict), twice, then, strict)
    return list(FORMAT.read(twice, of_reader, strict))


def database(**columns: str) -> dict[str, Any]:
    named = [{"name": name, "type": type} for name, type in {"id": "integer", **columns}.items()]
    table = {"name": "t", "kind": "table", "columns": named, "primary_key": ["id"]}
    return {"dialect": "postgresql", "schema": "app", "tables": [table]}


@pytest.mark.parametrize("mode", ["string", "double", "precise"])
@pytest.mark.parametrize("then", ["string", "double", "precise"])
def test_exact_numbers_go_from_any_mode_to_any_other(tmp_path: Path, mode: str, then: str) -> None:
    content = database(price="numeric(9,2)", whole="numeric(5,0)", any="numeric")
    row: dict[str, Value] = {"id": 1, "price": Decimal("1.50"), "whole": 12, "any": Decimal("0.25")}
    one = Change(
        "app",
        "t",
        ChangeOp.UPDATE,
        (("id", 1),),
        before={**row, "price": Decimal("1.75")},
        after=row,
    )
    (back,) = convert(
        tmp_path, [one], {"catalog": content, "decimal_handling_mode": mode},
        {"catalog": content, "decimal_handling_mode": then},
    )  # fmt: skip
    assert (back.before, back.after, back.changed) == (one.before, row, {"price"})


@pytest.mark.promise("option debezium.reader.decimal_handling_mode")
@pytest.mark.parametrize("word", NOT_IN_PYTHON)
def test_the_words_of_numeric_go_through_texts(tmp_path: Path, word: str) -> None:
    content = database(any="numeric")
    one = Change("app", "t", ChangeOp.INSERT, (("id", 1),), after={"id": 1, "any": Decimal(word)})
    options = {"catalog": content, "decimal_handling_mode": "string"}
    (back,) = convert(tmp_path, [one], options, options)
    assert str((back.after or {})["any"]) == word


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (datetime(2024, 5, 10, 12), None),
        (None, datetime(2024, 5, 10, 12)),
        (datetime(2024, 5, 10, 12), "infinity"),
        (Decimal("1.50"), None),
        (b"\x00", None),
        (True, None),
        (date(2024, 5, 10), None),
    ],
)
def test_a_column_without_a_catalogue_has_the_type_of_both_images(
    tmp_path: Path, old: Value, new: Value
) -> None:
    one = Change(
        "app", "t", ChangeOp.UPDATE, (("id", 1),), before={"id": 1, "v": old}, after={"id": 1,
        "v": new}, changed=frozenset({"v"}),
    )  # fmt: skip
    (back,) = convert(tmp_path, [one], {}, {})
    assert (back.before, back.after) == (one.before, one.after)


def test_a_text_of_a_form_without_types_is_written_as_its_column(tmp_path: Path) -> None:
    content = database(price="numeric(9,2)", at="timestamp", day="date")
    row: dict[str, Value] = {
        "id": 1,
        "price": "1.50",
        "at": "2024-05-10T12:00:00",
        "day": "2024-05-10",
    }
    target = str(tmp_path / "topic.jsonl")
    FORMAT.write([Change("app", "t", ChangeOp.INSERT, (("id", 1),), after=row)], target,
                 {"catalog": content}, Report(strict=True))  # fmt: skip
    (back,) = FORMAT.read(target, {}, Report(strict=True))
    assert back.after == {
        "id": 1, "price": Decimal("1.50"), "at": datetime(2024, 5, 10, 12), "day": date(2024, 5,
        10),
    }  # fmt: skip


# --- what is filled in ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("convert", "value", "what"),
    [
        (temporals.write_date, datetime(2017, 9, 15), "date that is a number of days"),
        (temporals.time_writer(MICRO), date(2017, 9, 15), "time of day"),
        (temporals.time_writer(MICRO), "a quarter past", "time of day"),
        (temporals.time_reader(MICRO), 839 * 3600 * 10**6, "time of a day"),
        (temporals.timestamp_writer(MICRO), time(4, 5), "date and time"),
        (temporals.zoned_writer(6), time(4, 5), "date and time"),
        (temporals.read_iso_date, "15.9.2017", "date of ISO 8601"),
        (temporals.read_zoned_time, "25:00:00Z", "time of day with a zone"),
        (temporals.read_structured_date, 17_424, "object of the parts of a date or time"),
        (temporals.read_structured_date, {"specialValue": "SOON"}, "special date or time"),
        (temporals.read_structured_time, {"hour": 24, "second": 1}, "time of a day"),
        (temporals.read_structured_zoned_timestamp, {"zoneId": "Mars"}, "offset from UTC"),
        (temporals.read_structured_clock, {"hours": 1, "months": 1}, "time of day"),
        (temporals.duration_reader(MICRO), 2**63, "duration of 64 bits"),
    ],
)  # fmt: skip
def test_a_moment_in_another_form_is_refused_with_the_form_that_was_expected(
    convert: Callable[[Any], object], value: object, what: str
) -> None:
    with pytest.raises(ValueError, match=f"^no {what}$"):
        convert(value)


@pytest.mark.parametrize("infinite", ["infinity", "-infinity"])
def test_an_infinite_date_is_read_in_each_form_that_has_it(infinite: str) -> None:
    name = "POSITIVE_INFINITY" if infinite == "infinity" else "NEGATIVE_INFINITY"
    parts = {"specialValue": name}
    assert temporals.read_iso_date(infinite) == infinite
    assert temporals.read_structured_date(parts) == infinite
    assert temporals.read_structured_timestamp(parts) == infinite
    assert (
        temporals.read_structured_zoned_timestamp({**parts, "zoneId": "Z", "offsetSeconds": 0})
        == infinite
    )


def of_change_table(
    tmp_path: Path, changes: list[Change], report: Report, **options: Any
) -> list[Change]:
    """Changes by way of a change table to change events, read again."""
    content = database(name="text", note="text")
    tables, topic = str(tmp_path / "tables"), str(tmp_path / "topic.jsonl")
    table = format_named("qlik-change-table")
    table.write(iter(changes), tables, {"catalog": content}, Report(strict=True))
    FORMAT.write(
        table.read(tables, {"catalog": content}, report),
        topic,
        {"catalog": content, **options},
        report,
    )
    return list(FORMAT.read(topic, {"catalog": content}, report))


def test_a_clear_bit_of_a_change_table_makes_no_null(tmp_path: Path) -> None:
    """A column that the change table did not hold is not known: a placeholder, or the event is
    refused.
    """
    one = Change(
        "app", "t", ChangeOp.UPDATE, (("id", 1),), before={"id": 1, "name": "a"}, after={"id": 1,
        "name": None}, changed=frozenset({"name"}),
    )  # fmt: skip
    options = {"missing_columns": "placeholder", "schemas_enable": False}
    (back,) = of_change_table(tmp_path, [one], Report(strict=True), **options)
    assert (back.before, back.after) == ({"id": 1, "name": "a"}, {"id": 1, "name": None})
    refused, again = Report(), tmp_path / "again"
    again.mkdir()
    with pytest.raises(NothingWritten, match="columns note are unknown"):
        of_change_table(again, [one], refused)
    assert refused.counters == {"not_expressible": 1}


def test_a_null_that_an_insert_is_filled_with_is_counted(tmp_path: Path) -> None:
    report = Report()
    one = Change("app", "t", ChangeOp.INSERT, (("id", 1),), after={"id": 1, "name": None})
    (back,) = of_change_table(tmp_path, [one], report)
    assert back.after == {"id": 1, "name": None, "note": None}
    assert report.counters == {"filled_null app.t.note": 1}
