"""Changes as Qlik messages: masks, headers, keys, topics, metadata, back (formats/qlik.md 5,
spec/change-model.md 4).
"""

from __future__ import annotations

import string
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from message_samples import (
    COLUMNS,
    NOW,
    SEQUENCE,
    UPDATE,
    MemoryRegistry,
    data_records,
    read,
    records,
    write,
)
from shared import refused

from eventlog.changes.format import Report
from eventlog.errors import ConfigError, NotExpressible
from eventlog.model import Change, ChangeOp, Lob
from eventlog.qlik.messages.envelope import open_avro
from eventlog.qlik.messages.message_records import json_key
from eventlog.qlik.messages.message_tables import (
    WriteOptions,
    avro_name,
    checked_topic,
    field_names,
    topic_of,
)

INSERT = Change("app", "item", ChangeOp.INSERT, (("id", 7),), None, {"id": 7, "name": None})
DELETE = Change("app", "item", ChangeOp.DELETE, (("id", 7),), {"id": 7})
PLAIN: dict[str, Any] = {"metadata": "none", "names": "off", "columns": COLUMNS}


def headers(change: Change, **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = data_records(write([change], **{**PLAIN, **options}))[0]["headers"]
    return found


@pytest.mark.parametrize(
    ("change", "change_mask", "column_mask"),
    [
        (INSERT, "03", "03"),
        (DELETE, "01", "01"),
        (UPDATE, "04", "07"),
        (UPDATE._replace(changed=None), "04", "07"),  # the columns that differ
        (UPDATE._replace(changed=None, before=None), "06", "07"),  # all known ones but the key
        (UPDATE._replace(changed=frozenset()), "00", "07"),
        (INSERT._replace(op=ChangeOp.REFRESH), None, None),
    ],
)
def test_masks(change: Change, change_mask: str | None, column_mask: str | None) -> None:
    found = headers(change)
    assert (found["changeMask"], found["columnMask"]) == (change_mask, column_mask)


@pytest.mark.promise("option qlik-messages.writer.columns")
def test_a_delete_without_key_marks_all_columns() -> None:
    columns = {"app.item": ["id", "name", "price"]}
    assert headers(DELETE._replace(key=None), columns=columns)["changeMask"] == "07"


def test_lobs_have_no_bit_but_are_present() -> None:
    columns = {
        "app.page": [{"name": "id", "type": "INT4", "pk": 1}, {"name": "doc", "type": "CLOB"}]
    }
    change = INSERT._replace(table="page", after={"id": 7, "doc": Lob("tëxt".encode())})
    record = data_records(write([change], **{**PLAIN, "columns": columns}))[0]
    assert record["data"]["doc"] == "tëxt"
    assert (record["headers"]["changeMask"], record["headers"]["columnMask"]) == ("01", "03")


def test_columns_that_are_not_known_are_null_without_a_bit_or_left_out() -> None:
    assert data_records(write([DELETE], **PLAIN))[0]["data"] == {
        "id": 7,
        "name": None,
        "price": None,
    }
    refresh = data_records(write([INSERT._replace(op=ChangeOp.REFRESH)], **PLAIN))[0]
    assert refresh["data"] == {"id": 7, "name": None}
    assert all(not value for value in refresh["headers"].values() if value != "REFRESH")
    partial = UPDATE._replace(before={"price": Decimal("1.50")})
    record = data_records(write([partial], **PLAIN))[0]
    assert record["beforeData"] == {"price": "1.50"}
    name = UPDATE._replace(before={"name": "nut"}, after={"id": 7, "name": "bolt"}, changed=None)
    assert data_records(write([name], **PLAIN))[0]["beforeData"] == {"name": "nut", "price": None}
    assert read(*write([partial], columns=COLUMNS)) == [partial]


@pytest.mark.promise("option qlik-messages.writer.last_sequence")
def test_a_position_that_is_a_sequence_is_kept_and_others_become_the_stream_position() -> None:
    kept, new = (headers(c) for c in (UPDATE, UPDATE._replace(position="0:7", extras={})))
    assert (kept["changeSequence"], kept["streamPosition"]) == (SEQUENCE, "p:12")
    assert (new["changeSequence"], new["streamPosition"]) == (
        "20240510120000000000000000000000002",
        "0:7",
    )
    both = data_records(
        write([UPDATE, INSERT._replace(position="x", commit_time=NOW - timedelta(days=1))], **PLAIN)
    )
    assert both[1]["headers"]["changeSequence"] == "20240510120000000000000000000000013"
    assert headers(INSERT)["changeSequence"] == "19700101000000000000000000000000001"
    assert (
        headers(INSERT, last_sequence=SEQUENCE)["changeSequence"]
        == "20240510120000000000000000000000013"
    )


@pytest.mark.promise("option qlik-messages.writer.on_truncate")
def test_skipped_changes_take_no_number() -> None:
    report = Report()
    truncate = Change("app", "item", ChangeOp.TRUNCATE)
    written = data_records(
        write([truncate, INSERT._replace(op=ChangeOp.REFRESH), INSERT], report, **PLAIN)
    )
    assert [record["headers"]["changeSequence"][-2:] for record in written] == ["", "01"]
    assert report.counters == {"truncate_skipped": 1}
    with pytest.raises(NotExpressible, match="on_truncate"):
        write([truncate], on_truncate="error")


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (None, "1970-01-01T00:00:00.000"),
        (datetime(2024, 2, 29, 23, 59, 59, 999999, UTC), "2024-02-29T23:59:59.999"),
        (datetime(2024, 3, 1, 1, tzinfo=timezone(timedelta(hours=2))), "2024-02-29T23:00:00.000"),
    ],
)
def test_timestamp_is_utc_and_truncated_to_milliseconds(moment: datetime | None, text: str) -> None:
    assert headers(UPDATE._replace(commit_time=moment))["timestamp"] == text


def test_a_change_without_its_row_is_refused_by_what_it_needs() -> None:
    with refused("needs_query_back"):
        write([Change("app", "item", ChangeOp.INSERT, extras={"query_back": "row"})])
    with refused("needs_row_codec"):
        write([Change("app", "item", ChangeOp.UPDATE, extras={"part1": b"x"})])
    with refused("needs_row_codec"):
        write([Change("app", "item", ChangeOp.DELETE, extras={"part1": b"x"})])


@pytest.mark.promise("option qlik-messages.writer.names")
@pytest.mark.parametrize("names", ["message", "headers", "off"])
def test_names_are_written_where_the_option_requires(names: str) -> None:
    (record,) = data_records(write([UPDATE], metadata="none", names=names))
    assert ("table" in record, "table" in record["headers"]) == (
        names == "message",
        names == "headers",
    )
    for encoding in ("json", "avro"):
        assert read(*write([UPDATE], encoding=encoding, names=names, columns=COLUMNS)) == [UPDATE]


@pytest.mark.promise("option qlik-messages.writer.external_schema_id")
def test_external_schema_id_changes_with_the_structure() -> None:
    assert "externalSchemaId" not in headers(UPDATE)
    wider = {"app.item": [*COLUMNS["app.item"], {"name": "more", "type": "STRING"}]}
    ids = {
        headers(UPDATE, external_schema_id=True, columns=columns)["externalSchemaId"]
        for columns in (COLUMNS, wider)
    }
    assert len(ids) == 2
    assert (
        headers(INSERT._replace(op=ChangeOp.REFRESH), external_schema_id=True)["externalSchemaId"]
        is None
    )


# Keys and topics.


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([7], "7"),
        (["A-7"], "A-7"),
        (['say "ü" \\ \n'], 'say "ü" \\ \n'),
        ([True], "true"),
        ([None], "null"),
        (["A-7", 12], '["A-7",12]'),
        (['say "ü" \\ \n', None], '["say \\"ü\\" \\\\ \\n",null]'),
        (["1.50", False, 1.5], '["1.50",false,1.5]'),
    ],
)
def test_key_in_json(values: list[Any], text: str) -> None:
    assert json_key(values) == text.encode()


@pytest.mark.parametrize(
    ("change", "option", "key"),
    [
        (
            UPDATE._replace(key=(("id", 8),), after={"id": 8, "name": "x"}, changed=None),
            "primary_key",
            b"8",
        ),
        (DELETE, "primary_key", b"7"),
        (UPDATE, "table", b"app+item"),
        (UPDATE._replace(schema=None), "table", b"item"),
        (UPDATE, "none", None),
        (UPDATE._replace(key=None), "primary_key", b"7"),  # by the columns
        (UPDATE._replace(key=None, table="free"), "primary_key", None),
    ],
)
def test_key_of_a_record(change: Change, option: str, key: bytes | None) -> None:
    assert write([change], metadata="none", columns=COLUMNS, key=option)[0].key == key


@pytest.mark.parametrize(
    ("schema", "table", "topic"),
    [
        ("app", "item", "app.item"),
        (None, "item", "item"),
        ("a b", "ü/x-1", "a_b.__x-1"),
        ("s", "t" * 247, "s." + "t" * 247),
    ],
)
def test_topic_of_a_table(schema: str | None, table: str, topic: str) -> None:
    assert topic_of(schema, table) == topic


@pytest.mark.promise("option qlik-messages.writer.topic")
def test_a_topic_longer_than_kafka_takes_is_an_error() -> None:
    with pytest.raises(NotExpressible, match="option topic"):
        checked_topic("t" * 250)
    assert write([UPDATE], topic="all tables", metadata="none")[0].topic == "all_tables"


@pytest.mark.parametrize(
    ("name", "made"), [("a", "a"), ("a-b c", "a_b_c"), ("1a", "_a"), ("größe", "gr__e"), ("_", "_")]
)
def test_names_as_avro_takes_them(name: str, made: str) -> None:
    assert avro_name(name) == made


def test_two_columns_of_one_name_clash() -> None:
    with pytest.raises(NotExpressible, match="both become 'a_b'"):
        field_names(["a b", "a-b"], "t")


# Metadata.


def test_metadata_come_before_the_first_message_of_each_structure() -> None:
    wider = INSERT._replace(after={"id": 8, "name": "nut", "size": 3})
    written = write([INSERT, INSERT, wider, INSERT])
    assert [message.topic for message in written] == [
        "eventlog.metadata", "app.item", "app.item", "eventlog.metadata", "app.item", "app.item",
    ]  # fmt: skip
    metadata = [record["message"] for record in records(written) if record["type"] == "MD"]
    assert [one["lineage"]["tableVersion"] for one in metadata] == [1, 2]
    assert metadata[0]["lineage"] == {
        "server": "eventlog", "task": "eventlog", "schema": "app", "table": "item",
        "tableVersion": 1, "timestamp": "2024-05-10T12:00:00.000",
    }  # fmt: skip
    assert metadata[1]["tableStructure"]["tableColumns"]["size"] == {
        "ordinal": 3, "type": "INT8", "length": 0, "precision": 0, "scale": 0,
        "primaryKeyPosition": 0, "nullable": True,
    }  # fmt: skip
    ids = [record["messageSchemaId"] for record in records(written) if record["type"] == "DT"]
    assert ids == [metadata[0]["schemaId"]] * 2 + [metadata[1]["schemaId"]] * 2
    assert read(*written)[2].after == wider.after


def test_a_change_that_is_refused_takes_no_number_and_leaves_the_metadata_to_the_next() -> None:
    from eventlog.qlik.messages.message_writer import MessageWriter

    writer = MessageWriter(WriteOptions(columns=COLUMNS))
    with refused("value_range"):
        list(writer.messages(INSERT._replace(after={"id": "seven"}, key=None)))
    metadata, data = records(list(writer.messages(INSERT)))
    assert (metadata["type"], data["message"]["headers"]["changeSequence"][-2:]) == ("MD", "01")


def test_schema_id_is_the_hash_of_the_specification() -> None:
    import hashlib

    metadata = records(write([UPDATE], columns=COLUMNS))[0]["message"]
    text = "\0".join(("app", "item", "1", metadata["dataSchema"]))
    assert metadata["schemaId"] == hashlib.sha256(text.encode()).digest()[:16].hex().upper()


def test_an_avro_message_begins_as_the_specification_requires() -> None:
    (message,) = write([UPDATE], encoding="avro", metadata="none")
    assert message.value.hex(" ").upper().startswith("61 74 4D 53 47 04 44 54 00")
    assert open_avro(message.value)[:3] == ("DT", None, None)


def test_a_column_named_as_a_record_of_the_metadata_is_written() -> None:
    rows = [
        {
            "Lineage": 1,
            "Lineage_": 2,
            "TableColumns": None,
            "Data": "x",
            "Headers": 1.5,
            "operation": True,
        }
    ]
    changes = [INSERT._replace(key=None, after=row) for row in rows]
    for encoding in ("json", "avro"):
        assert [change.after for change in read(*write(changes, encoding=encoding))] == rows


def test_a_catalog_that_changes_raises_the_version() -> None:
    from eventlog.qlik.columns import columns_from_json
    from eventlog.qlik.messages.message_writer import MessageWriter

    writer = MessageWriter(WriteOptions())
    versions = []
    for columns in (["id", "name"], ["id", "name"], ["id", "name", "size"]):
        writer.columns = {"app.item": columns_from_json(columns, what="item")}
        versions += [record["message"]["lineage"]["tableVersion"] for record in records(list(writer.messages(INSERT)))
                     if record["type"] == "MD"]  # fmt: skip
    assert versions == [1, 2]


# Avro.


def test_before_rows_in_avro_are_whole_or_not_there() -> None:
    report = Report()
    partial = UPDATE._replace(before={"price": Decimal("1.50")})
    (change,) = read(*write([partial], encoding="avro", columns=COLUMNS), columns=COLUMNS)
    assert change.before == UPDATE.before  # what did not change was the same
    unknown = UPDATE._replace(before={"name": "nut"})
    (change,) = read(*write([unknown], report, encoding="avro", columns=COLUMNS))
    assert (change.before, change.changed) == (None, {"price"})
    assert report.counters == {"before_image_dropped app.item": 1}


def test_registry_form() -> None:
    registry = MemoryRegistry()
    options = {"encoding": "avro", "metadata": "registry", "columns": COLUMNS}
    (message,) = write([UPDATE], registry=registry, **options)
    assert registry.subjects.keys() == {"app.item-value", "app.item-key"}
    assert message.value[:1] == b"\0"
    schema = registry.schema(int.from_bytes(message.value[1:5], "big"))
    assert '"namespace":"com.attunity.queue.msg.eventlog.app.item"' in schema
    assert message.key is not None
    assert message.key[5:] == b"\x02\x0e"  # the second of null and int: 7
    assert read(message, registry=registry, columns=COLUMNS) == [UPDATE]
    (change,) = read(message, registry=registry)  # key columns from the key's schema
    assert (change.key, change.changed, change.after) == (UPDATE.key, UPDATE.changed, UPDATE.after)


def test_registry_form_is_for_avro_only() -> None:
    with pytest.raises(ConfigError, match="encoding = avro"):
        WriteOptions(metadata="registry")


def test_half_a_character_is_refused() -> None:
    for encoding in ("json", "avro"):
        with pytest.raises(NotExpressible, match=r"unpaired surrogate|surrogates"):
            write(
                [INSERT._replace(after={"id": 7, "name": "\ud800"})],
                encoding=encoding,
                columns=COLUMNS,
            )


@pytest.mark.promise("option qlik-messages.writer.logical_types")
def test_times_keep_milliseconds_in_avro_which_is_counted() -> None:
    report = Report()
    columns = {"app.item": [{"name": "at", "type": "TIME"}]}
    change = INSERT._replace(key=None, after={"at": time(12, 34, 56, 789012)})
    (read_back,) = read(*write([change], report, encoding="avro", columns=columns))
    assert read_back.after == {"at": time(12, 34, 56, 789000)}
    assert report.counters == {"truncated app.item.at": 1}
    for options in ({"encoding": "avro", "logical_types": False}, {"encoding": "json"}):
        assert read(*write([change], columns=columns, **options))[0].after == change.after


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "DATE": st.dates(),
    "TIME": st.times().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
    "DATETIME": st.datetimes(),
    "STRING": st.text(),
    "WSTRING": st.text(),
    "CLOB": st.text(),
    "NUMERIC": st.decimals(-9999999, 9999999, places=2),
    "BYTES": st.binary(),
    "BLOB": st.binary(),
    "REAL4": st.floats(width=32, allow_nan=False),
    "REAL8": st.floats(allow_nan=False),
    "BOOLEAN": st.booleans(),
    **{f"INT{n}": st.integers(-(2 ** (8 * n - 1)), 2 ** (8 * n - 1) - 1) for n in (1, 2, 4, 8)},
    **{f"UINT{n}": st.integers(0, 2 ** (8 * n) - 1) for n in (1, 2, 4, 8)},
}
WIDE = [{"name": kind.lower(), "type": kind, "precision": 9 * (kind == "NUMERIC"),
        "scale": 2 * (kind == "NUMERIC")}
        for kind in VALUES]  # fmt: skip


@given(
    row=st.fixed_dictionaries(
        {kind.lower(): st.none() | values for kind, values in VALUES.items()}
    ),
    known=st.sets(st.sampled_from([kind.lower() for kind in VALUES]), min_size=1),
    op=st.sampled_from([ChangeOp.INSERT, ChangeOp.DELETE]),
    encoding=st.sampled_from(["json", "avro"]),
)
def test_rows_of_every_type_come_back(
    row: dict[str, Any], known: set[str], op: ChangeOp, encoding: str
) -> None:
    image = {name: value for name, value in row.items() if name in known}
    change = Change(
        "s",
        "t",
        op,
        None,
        *((None, image) if op is ChangeOp.INSERT else (image, None)),
        position=SEQUENCE,
    )
    assert read(*write([change], encoding=encoding, columns={"s.t": WIDE})) == [change]


@given(
    row=st.fixed_dictionaries(
        {kind.lower(): st.none() | values for kind, values in VALUES.items() if kind != "UINT8"}
    )
)
def test_rows_of_every_type_come_back_without_logical_types(row: dict[str, Any]) -> None:
    change = INSERT._replace(schema="s", table="t", key=None, after=row, position=SEQUENCE)
    assert read(*write([change], encoding="avro", logical_types=False, columns={"s.t": WIDE})) == [
        change
    ]


NAMES = st.text(string.ascii_letters, min_size=1, max_size=3)
SCALARS = (
    st.none() | st.integers(-(2**62), 2**62) | st.text() | st.booleans() | st.dates() | st.binary()
)


@given(
    st.lists(st.dictionaries(NAMES, SCALARS, min_size=1), min_size=1, max_size=5),
    st.sampled_from(["json", "avro"]),
)
def test_tables_that_nothing_describes_come_back_by_their_metadata(
    rows: list[dict[str, Any]], encoding: str
) -> None:
    changes = [
        INSERT._replace(key=None, after=row, position=f"{SEQUENCE[:-1]}{n}")
        for n, row in enumerate(rows)
    ]
    kinds: dict[str, set[type]] = {}
    for row in rows:
        for name, value in row.items():
            kinds.setdefault(name, set()).update(() if value is None else (type(value),))
    if all(len(types) <= 1 for types in kinds.values()):
        assert read(*write(changes, encoding=encoding)) == changes
    else:
        assert [change.present for change in read(*write(changes, encoding=encoding))] == [
            c.present for c in changes
        ]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("INT1", 128), ("UINT1", -1), ("INT4", 2**31), ("UINT8", 2**64), ("INT4", "seven"), ("INT4",
        Decimal("1.5")), ("BOOLEAN", "yes"), ("DATE", "2024-02-30"), ("TIME", "25:00:00"), ("BYTES",
        "0G"), ("REAL8", "x"), ("REAL8", True), ("NUMERIC", "1,5"), ("DATETIME", 1),
    ],
)  # fmt: skip
def test_values_that_are_not_of_their_type_are_refused(kind: str, value: Any) -> None:
    with refused("value_range", match=r"INSERT of 'item', position None: .*'c'"):
        write(
            [INSERT._replace(key=None, after={"c": value})],
            columns={"app.item": [{"name": "c", "type": kind}]},
        )


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ({"type": "NUMERIC", "precision": 4, "scale": 2}, Decimal("100.00")),
        ({"type": "NUMERIC", "precision": 4, "scale": 2}, Decimal("0.001")),
        ({"type": "NUMERIC", "precision": 4, "scale": 2}, Decimal("NaN")),
    ],
)
def test_numbers_that_an_avro_decimal_cannot_hold_are_refused(
    column: dict[str, Any], value: Any
) -> None:
    change = INSERT._replace(key=None, after={"c": value})
    with refused("value_range"):
        write([change], encoding="avro", columns={"app.item": [{"name": "c", **column}]})


def test_a_long_that_is_no_long_needs_logical_types() -> None:
    change = INSERT._replace(key=None, after={"c": 2**63})
    columns = {"app.item": [{"name": "c", "type": "UINT8"}]}
    assert read(*write([change], encoding="avro", columns=columns))[0].after == {"c": 2**63}
    with refused("value_range", match="logical_types"):
        write([change], encoding="avro", logical_types=False, columns=columns)


@pytest.mark.parametrize(
    ("kind", "value", "written"),
    [
        ("DATE", date(2024, 2, 29), "2024-02-29"),
        ("TIME", time(1, 2, 3), "01:02:03.000000"),
        ("DATETIME", datetime(2024, 2, 29, 1, 2, 3, 4), "2024-02-29 01:02:03.000004"),
        (
            "DATETIME",
            datetime(2024, 2, 29, 1, tzinfo=timezone(timedelta(hours=1))),
            "2024-02-29 00:00:00.000000",
        ),
        ("NUMERIC", Decimal("1E+3"), "1000"),
        ("NUMERIC", 7, "7"),
        ("BYTES", b"\x00\xff", "00FF"),
        ("BLOB", Lob(b"\x00\xff"), "00FF"),
        ("REAL8", float("nan"), "NaN"),
        ("REAL8", float("inf"), "Infinity"),
        ("REAL4", float("-inf"), "-Infinity"),
        ("REAL8", Decimal("1.5"), 1.5),
        ("UINT8", 5, "5"),
        ("UINT4", 5, 5),
        ("STRING", 5, "5"),
        ("STRING", True, "true"),
        ("BOOLEAN", "true", True),
    ],
)
def test_json_forms(kind: str, value: Any, written: Any) -> None:
    change = INSERT._replace(key=None, after={"c": value})
    columns = {"app.item": [{"name": "c", "type": kind}]}
    assert data_records(write([change], columns=columns))[0]["data"] == {"c": written}


@pytest.mark.parametrize(
    ("kind", "written", "value"),
    [
        ("DATE", "2024-02-29", date(2024, 2, 29)),
        ("TIME", "01:02", time(1, 2)),
        ("TIME", "01:02:03.1234567+01:00", time(0, 2, 3, 123456)),
        ("DATETIME", "2024-02-29T01:02:03.123456789Z", datetime(2024, 2, 29, 1, 2, 3, 123456)),
        ("DATETIME", "2024-02-29 01:02:03-0130", datetime(2024, 2, 29, 2, 32, 3)),
        ("DATETIME", "2024-02-29 01:02:03.", datetime(2024, 2, 29, 1, 2, 3)),
        ("NUMERIC", Decimal("12345678901234567.89"), Decimal("12345678901234567.89")),
        ("NUMERIC", 5, Decimal(5)),
        ("NUMERIC", "1E2", Decimal(100)),
        ("BYTES", "00ff", b"\x00\xff"),
        ("REAL8", "Infinity", float("inf")),
        ("REAL8", Decimal("0.1"), 0.1),
        ("UINT8", 18446744073709551615, 18446744073709551615),
        ("INT4", "7", 7),
        ("BOOLEAN", 1, True),
        ("STRING", 5, "5"),
    ],
)
def test_values_that_are_read(kind: str, written: Any, value: Any) -> None:
    columns = {"t": [{"name": "c", "type": kind}]}
    record = {"data": {"c": written}, "headers": {"operation": "READ"}}
    assert read(record, table="t", columns=columns)[0].after == {"c": value}


@pytest.mark.parametrize("encoding", ["json", "avro"])
def test_a_refresh_carries_no_counters(encoding: str) -> None:
    change = Change(
        "app",
        "item",
        ChangeOp.REFRESH,
        (("id", 7),),
        None,
        {"id": 7},
        event_number=3,
        last_in_transaction=True,
    )
    (back,) = read(*write([change], encoding=encoding, columns=COLUMNS))
    assert (back.event_number, back.last_in_transaction) == (None, None)
