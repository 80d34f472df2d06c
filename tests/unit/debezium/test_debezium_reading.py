"""Events of other connectors under other settings: decimal.format, the time precision modes, nested
values, MySQL's TIME; and a column that cannot be read (formats/debezium.md 5).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest
from shared import refused

from eventlog.changes.format import Report
from eventlog.conversion import convert
from eventlog.core.values import parse_type
from eventlog.debezium.fields import column_decoder, decoder_of
from eventlog.debezium.format import FORMAT
from eventlog.model import Change, Value

DECIMAL: Final = {
    "type": "bytes",
    "name": "org.apache.kafka.connect.data.Decimal",
    "parameters": {"scale": "2", "connect.decimal.precision": "9"},
}


def of(name: str, type: str = "string", **more: Any) -> dict[str, Any]:
    """The schema of a field with a logical name of Debezium."""
    return {"type": type, "name": f"io.debezium.{name}", "version": 1, **more}


def struct(name: str) -> dict[str, Any]:
    return of(f"time.Structured{name}", "struct", fields=[])


def as_read(value: Any) -> Any:
    """A value as the reader of lines has it: numbers with a point are decimals."""
    return json.loads(json.dumps(value), parse_float=Decimal)


BITS: Final = of("data.Bits", "bytes", parameters={"length": "12"})
DAY: Final = {"year": 2024, "month": 5, "day": 6}
CLOCK: Final = {"hour": 7, "minute": 8, "second": 9, "precision": 6}
AN_HOUR_BACK: Final = {"hours": -1, "minutes": 0, "seconds": 0, "nanos": 0}
BY_SCHEMA: Final[list[tuple[dict[str, Any], Any, Value]]] = [
    # decimal.format = NUMERIC
    (DECIMAL, 12.5, Decimal("12.50")),
    ({**DECIMAL, "parameters": {"scale": "0"}}, 12345678901234567890, 12345678901234567890),
    ({**DECIMAL, "parameters": {"scale": "-2"}}, 1200, Decimal("12E+2")),
    # TIME of MySQL
    (of("time.MicroTime", "int64"), -3600000000, "-01:00:00"),
    (of("time.MicroTime", "int64"), 3020399000000, "838:59:59"),
    (of("time.MicroTime", "int64"), -500000, "-00:00:00.5"),
    (of("time.Time", "int32"), 86400000, "24:00:00"),
    # isostring
    (of("time.IsoDate"), "2017-09-15Z", date(2017, 9, 15)),
    (of("time.IsoDate"), "-0043-03-15Z", "0044-03-15 BC"),
    (of("time.IsoTime"), "04:05:11.789Z", time(4, 5, 11, 789000)),
    (of("time.IsoTime"), "13:37Z", time(13, 37)),
    (of("time.IsoTimestamp"), "2019-07-09T02:28:57.123456Z", datetime(2019, 7, 9, 2, 28, 57, 123456)),
    (of("time.IsoTimestamp"), "+12024-05-06T07:08Z", "12024-05-06 07:08:00"),
    # texts that Java writes without seconds
    (of("time.ZonedTimestamp"), "2018-06-20T13:37Z", datetime(2018, 6, 20, 13, 37, tzinfo=UTC)),
    (of("time.ZonedTime"), "10:34:56.5Z", "10:34:56.5+00"),
    (of("time.ZonedTime"), "10:34+05:30", "10:34:00+05:30"),
    # structured
    (struct("Date"), DAY, date(2024, 5, 6)),
    (struct("Date"), {"specialValue": "NEGATIVE_INFINITY"}, "-infinity"),
    (struct("Date"), {"year": 0, "month": 0, "day": 0}, "0000-00-00"),
    (struct("Date"), {"year": -43, "month": 3, "day": 15}, "0044-03-15 BC"),
    (struct("Time"), {**CLOCK, "nanos": 123456789}, time(7, 8, 9, 123456)),
    (struct("Time"), {"hour": 24, "minute": 0, "second": 0, "nanos": 0}, "24:00:00"),
    (struct("TimestampPrecision6"), {**DAY, **CLOCK, "picoseconds": 5 * 10**11},
     datetime(2024, 5, 6, 7, 8, 9, 500000)),
    (struct("TimestampSourceColumn6e"), {**DAY, **CLOCK, "year": 12024, "nanos": 0},
     "12024-05-06 07:08:09"),
    (struct("ZonedTimestamp"), {**DAY, **CLOCK, "nanos": 0, "offsetSeconds": 7200},
     datetime(2024, 5, 6, 5, 8, 9, tzinfo=UTC)),
    (struct("ZonedTime"), {"hour": 24, "minute": 0, "second": 0, "offsetSeconds": 19800},
     "24:00:00+05:30"),
    (struct("Duration"), {"years": 1, "months": 2, "days": -3, "hours": 4, "nanos": 5 * 10**8},
     "1 year 2 mons -3 days +04:00:00.5"),
    ({**struct("Duration"), "parameters": {"io.debezium.time.duration.kind": "elapsed-time"}},
     {"hours": 12, "minutes": 30, "seconds": 0, "picoseconds": 0}, time(12, 30)),
    # arrays, structs and maps
    ({"type": "array", "items": {"type": "float"}}, [1.5, None], "[1.5,null]"),
    ({"type": "array", "items": DECIMAL}, ["BOI=", None, 0.5], "[12.50,null,0.50]"),
    ({"type": "array", "items": of("time.Date", "int32")}, [19853, None], '["2024-05-10",null]'),
    ({"type": "array", "items": {"type": "array", "items": of("time.MicroTime", "int64")}},
     [[1000000], None], '[["00:00:01"],null]'),
    ({"type": "map", "keys": {"type": "string"}, "values": DECIMAL}, {"a": "BOI="}, '{"a":12.50}'),
    ({"type": "map", "keys": {"type": "int32"}, "values": of("time.Date", "int32")}, [[1, 19853]],
     '[[1,"2024-05-10"]]'),
    ({"type": "struct", "fields": [{**DECIMAL, "field": "n"}]}, {"n": "BOI=", "m": 1.50},
     '{"n":12.50,"m":1.5}'),
    (of("data.geometry.Point", "struct", fields=[{"field": "x", "type": "double"}]),
     {"x": 2.25, "wkb": "AQE="}, '{"x":2.25,"wkb":"AQE="}'),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value", "expected"), BY_SCHEMA, ids=lambda one: str(one)[-40:])
def test_a_value_is_read_by_its_schema(schema: Any, value: Any, expected: Value) -> None:
    read = decoder_of(schema)(as_read(value))
    assert (read, type(read)) == (expected, type(expected))


IN_COLUMNS: Final[list[tuple[str, str, dict[str, Any] | None, Any, Value]]] = [
    ("postgresql", "bit(12)", BITS, "AQI=", "001000000001"),
    ("postgresql", "bit(12)", None, "AQI=", "001000000001"),
    ("postgresql", "bit(12)", None, "001000000001", "001000000001"),
    ("postgresql", "bit(1)", {"type": "boolean"}, True, "1"),
    ("mysql", "bit(12)", BITS, "AQI=", b"\x02\x01"),
    ("mysql", "bit(12)", None, "AQ==", b"\x00\x01"),
    ("mysql", "bit(1)", {"type": "boolean"}, True, True),
    ("postgresql", "interval", of("time.MicroDuration", "int64"), 93784500000, "26:03:04.5"),
    ("postgresql", "interval", of("time.NanoDuration", "int64"), -10**9, "-00:00:01"),
    ("postgresql", "interval", None, 93784500000, "26:03:04.5"),
    ("postgresql", "interval", of("time.Interval"), "P1Y2M-3DT4H5M6.78S",
     "1 year 2 mons -3 days +04:05:06.78"),
    ("postgresql", "interval(3)", {"type": "string"}, "1 day", "1 day"),
    ("postgresql", "timetz", of("time.ZonedTime"), "10:34:56.5Z", "10:34:56.5+00"),
    ("postgresql", "time(3) with time zone", None, "10:34:56.5Z", "10:34:56.5+00"),
    ("postgresql", "oid", {"type": "int64"}, 4294967295, "4294967295"),
    ("postgresql", "money", DECIMAL, "BOI=", "12.50"),
    ("postgresql", "date", None, "2017-09-15Z", date(2017, 9, 15)),
    ("postgresql", "timestamp", None, {**DAY, **CLOCK}, datetime(2024, 5, 6, 7, 8, 9)),
    ("postgresql", "timestamptz", None, "2018-06-20T13:37Z",
     datetime(2018, 6, 20, 13, 37, tzinfo=UTC)),
    ("postgresql", "numeric(9,2)", None, 12.5, Decimal("12.50")),
    ("postgresql", "numeric", None, 12.5, Decimal("12.5")),
    ("postgresql", "numeric(9,2)[]", None, ["BOI=", 1.5, None], "[12.50,1.50,null]"),
    ("postgresql", "date[]", None, [[19853], [None]], '[["2024-05-10"],[null]]'),
    ("postgresql", "mood[]", None, ["a", 1.50], '["a",1.5]'),
    ("postgresql", "integer[]", None, "{1,2}", "{1,2}"),
    ("mysql", "time", None, -3600000000, "-01:00:00"),
    ("mysql", "time", struct("Duration"), AN_HOUR_BACK, "-01:00:00"),
    ("mysql", "time", struct("Duration"), {**AN_HOUR_BACK, "hours": 12}, time(12)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("dialect", "type", "schema", "value", "expected"),
    IN_COLUMNS,
    ids=lambda one: str(one)[-30:],
)
def test_a_value_is_read_as_the_log_has_those_of_its_column(
    dialect: str, type: str, schema: dict[str, Any] | None, value: Any, expected: Value
) -> None:
    column = parse_type(type, dialect)
    decode = (
        column_decoder(column, "precise", "adaptive")
        if schema is None
        else decoder_of(schema, column)
    )
    assert decode(as_read(value)) == expected


# --- a column that cannot be read ---

ROW: Final = {"id": 1, "n": -1, "v": "kept"}
"""A row whose ``n`` is no number of base64."""
SOURCE: Final = {"connector": "postgresql", "schema": "app", "table": "t", "lsn": 7}


def event(
    after: Mapping[str, Any] | None, before: Mapping[str, Any] | None = None, op: str = "c"
) -> dict[str, Any]:
    fields = [
        {"field": "id", "type": "int32"},
        {"field": "n", "type": "bytes"},
        {"field": "v", "type": "string"},
    ]
    rows = [{"field": name, "type": "struct", "fields": fields} for name in ("before", "after")]
    payload = {"before": before, "after": after, "source": SOURCE, "op": op}
    return {"schema": {"type": "struct", "fields": rows}, "payload": payload}


def read(
    tmp_path: Path, value: Any, *, strict: bool = False, key: Any = None, **options: Any
) -> tuple[list[Change], Report]:
    path = tmp_path / "topic.jsonl"
    path.write_text(json.dumps({"key": key, "value": value}) + "\n")
    report = Report(strict=strict)
    return list(FORMAT.read(str(path), options, report)), report


@pytest.mark.promise("code error-unreadable_value")
def test_a_column_that_cannot_be_read_is_not_known_and_is_counted_and_named(tmp_path: Path) -> None:
    ((change,), report) = read(tmp_path, event(ROW), key={"id": 1})
    assert change.after == {"id": 1, "v": "kept"}
    assert dict(report.counters) == {"unreadable_value app.t.n": 1}
    (problem,) = report.problems
    assert "topic.jsonl, line 1: column 'n': '-1': no text" in problem
    assert (report.read, report.passed_over) == (1, 0)


def test_null_in_a_column_of_an_unreadable_type_is_null(tmp_path: Path) -> None:
    value = event({**ROW, "n": None})
    value["schema"]["fields"][1]["fields"][1]["type"] = "complex128"
    ((change,), report) = read(tmp_path, value)
    assert (change.after, report.counters) == ({**ROW, "n": None}, {})


def test_a_column_whose_schema_cannot_be_read_is_not_known(tmp_path: Path) -> None:
    value = event({**ROW, "n": "AQ=="})
    value["schema"]["fields"][1]["fields"][1]["type"] = "complex128"
    ((change,), report) = read(tmp_path, value)
    assert change.after == {"id": 1, "v": "kept"}
    assert "'complex128' is not a type of Connect" in report.problems[0]


def test_a_column_that_cannot_be_read_in_one_image_is_known_in_the_other(tmp_path: Path) -> None:
    ((change,), report) = read(tmp_path, event(ROW, {**ROW, "n": "AQ=="}, "u"))
    assert (change.after, change.before) == (
        {"id": 1, "v": "kept"},
        {"id": 1, "n": b"\x01", "v": "kept"},
    )
    assert report.counters == {"unreadable_value app.t.n": 1}


@pytest.mark.promise("option debezium.reader.keys")
@pytest.mark.parametrize(
    ("key", "options"),
    [({"n": -1}, {}), (None, {"keys": {"t": ["n"]}}), ({"n": "AQ=="}, {})],
    ids=["record", "option", "image"],
)
def test_a_key_column_that_cannot_be_read_refuses_the_change(
    tmp_path: Path, key: Any, options: Any
) -> None:
    if key is not None:
        fields = [{"field": "n", "type": "bytes"}]
        key = {"schema": {"type": "struct", "fields": fields}, "payload": key}
    changes, report = read(tmp_path, event(ROW), key=key, **options)
    assert (changes, dict(report.counters)) == ([], {"invalid_format": 1})
    assert "column 'n': '-1': no text; a change needs its key" in report.problems[0]


def test_a_column_that_cannot_be_read_stops_a_strict_conversion(tmp_path: Path) -> None:
    with refused("unreadable_value", match="line 1: column 'n'"):
        read(tmp_path, event(ROW), strict=True)


def test_a_column_that_cannot_be_read_is_missing_in_what_is_written(tmp_path: Path) -> None:
    source, target = tmp_path / "topic.jsonl", tmp_path / "log.jsonl"
    source.write_text(json.dumps({"key": {"id": 1}, "value": event(ROW)}) + "\n")
    convert("debezium", "eventlog", str(source), str(target))
    rows = [json.loads(line) for line in target.read_text().splitlines()]
    assert [(row["column_name"], row["new_value"]) for row in rows] == [("v", "kept")]


# --- what is no change of a row ---


@pytest.mark.parametrize(
    "value",
    [
        {"ts_ms": 1778414400000},
        {"ts_ms": 1778414400000, "ts_us": 1778414400000000, "ts_ns": 1778414400000000000},
        {"schema": {"type": "struct", "name": "io.debezium.connector.common.Heartbeat",
                    "fields": [{"field": "ts_ms", "type": "int64"}]}, "payload": {"ts_ms": 1}},
        {"id": "x", "type": "COMPLETED", "aggregate_type": "Incremental Snapshot"},
    ],
    ids=["heartbeat", "of 2.5", "with schema", "notification"],
)  # fmt: skip
def test_a_heartbeat_and_a_notification_are_counted_as_other_events(
    tmp_path: Path, value: Any
) -> None:
    changes, report = read(tmp_path, value)
    assert (changes, report.problems, dict(report.counters)) == ([], [], {"other_events": 1})


@pytest.mark.promise("code error-unknown_operation")
def test_a_row_without_an_operation_is_no_heartbeat(tmp_path: Path) -> None:
    _, report = read(tmp_path, {"id": 1, "ts_ms": 5})
    assert dict(report.counters) == {"unknown_operation": 1}
