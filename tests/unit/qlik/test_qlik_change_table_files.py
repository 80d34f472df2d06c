"""Change tables in files: CSV, JSON lines, Parquet, whole or not at all, read back (formats/qlik.md
1.1, 3, 4).
"""

from __future__ import annotations

import csv
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from change_table_files import (
    CHANGES,
    FILE_FORMATS,
    FULL,
    TABLES,
    expected,
    files,
    get,
    item,
    put,
    tag,
    unnumbered,
)
from hypothesis import given
from hypothesis import strategies as st
from shared import refused

from eventlog.changes.format import Report
from eventlog.errors import ConfigError, FormatError, NotExpressible
from eventlog.files.tabular import csv_line, csv_records
from eventlog.model import Change, ChangeOp, Row
from eventlog.qlik.tables.change_rows import DEFAULT_HEADERS
from eventlog.qlik.tables.change_table_format import FORMAT
from eventlog.qlik.tables.stored_tables import ReadOptions, WriteOptions


@pytest.mark.promise(
    "option qlik-change-table.reader.absent_nulls",
    "option qlik-change-table.writer.partitioned",
    "option qlik-change-table.writer.close_partitions",
)
@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("file_format", FILE_FORMATS)
def test_what_is_written_is_read(tmp_path: Path, file_format: str, partitioned: bool) -> None:
    report = put(
        tmp_path, file_format=file_format, partitioned=partitioned, close_partitions=partitioned
    )
    assert report.written == len(CHANGES)
    back = get(tmp_path, partitioned=partitioned, absent_nulls="null")
    assert unnumbered(back) == expected(CHANGES)
    assert [int(one.position[-3:]) for one in back if one.position] == [1, 3, 4, 6, 7, 8]


@pytest.mark.parametrize("file_format", FILE_FORMATS)
def test_numbers_go_on_where_they_ended(tmp_path: Path, file_format: str) -> None:
    put(tmp_path, file_format=file_format)
    put(tmp_path, [tag(-1), tag(1)], file_format=file_format)
    (tmp_path / "_change_sequence.json").unlink()
    put(tmp_path, [tag(0)], file_format=file_format)
    assert [one.position for one in get(tmp_path)[-3:]] == [
        "2024051012000012" + "9".zfill(19),  # the clock went back
        "2024051013000012" + "10".zfill(19),
        "2024051013000012" + "11".zfill(19),
    ]


def test_nothing_is_there_if_writing_fails(tmp_path: Path) -> None:
    put(tmp_path, [tag(0)])
    before = files(tmp_path)

    def failing() -> Any:
        yield from CHANGES
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        FORMAT.write(failing(), str(tmp_path), {"tables": TABLES}, Report())
    with refused("value_range", match="not of type INT4"):
        put(tmp_path, [tag(1), item(ChangeOp.INSERT, after={"id": "seven"})])
    assert files(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("file_format", FILE_FORMATS)
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("id", 2**31),
        ("name", "\ud800"),
        ("price", "dear"),
        ("day", "2024-02-30"),
        ("sold", 7),
        ("raw", "0G"),
    ],
)
def test_a_value_that_is_not_of_its_column_is_refused(
    tmp_path: Path, file_format: str, column: str, value: Any
) -> None:
    with refused("value_range", match=repr(column)) as caught:
        put(
            tmp_path,
            [item(ChangeOp.INSERT, after={"id": 1, column: value})],
            file_format=file_format,
        )
    assert caught.value.column == f"app.item.{column}"


def test_a_change_that_cannot_be_written_is_passed_over_and_counted(tmp_path: Path) -> None:
    report = Report()
    bad = [
        item(ChangeOp.INSERT, after={"id": "seven"}),
        item(ChangeOp.INSERT, after={"id": 1, "colour": 2}),
    ]
    FORMAT.write([tag(0), *bad, tag(0)], str(tmp_path), {"tables": TABLES}, report)
    assert report.counters == {"value_range app.item.id": 1, "not_expressible": 1}
    assert report.written == 2
    assert [int(one.position[-1]) for one in get(tmp_path) if one.position] == [1, 2]


def test_a_table_whose_name_is_no_text_is_passed_over(tmp_path: Path) -> None:
    report = Report()
    FORMAT.write([tag(0), tag(0)._replace(table="\ud800"), tag(0)], str(tmp_path), {}, report)
    assert (report.written, report.counters) == (2, {"not_expressible": 1})
    assert len(get(tmp_path, tables={})) == 2


def test_a_table_whose_name_is_too_long_for_a_directory_is_passed_over(tmp_path: Path) -> None:
    report = Report()
    FORMAT.write([tag(0), tag(0)._replace(table="n" * 300), tag(0)], str(tmp_path), {}, report)
    assert (report.written, report.counters) == (2, {"not_expressible": 1})
    assert len(get(tmp_path, tables={})) == 2


def test_files_are_as_the_specification_requires(tmp_path: Path) -> None:
    put(tmp_path, CHANGES[:2])
    (part,) = (tmp_path / "app.item__ct").iterdir()
    lines = list(csv.reader(io.StringIO(part.read_text(encoding="utf-8"), newline="")))
    assert lines[0] == [*(f"header__{name}" for name in DEFAULT_HEADERS), *FULL]
    seq = "20240510120000120000000000000000003"
    assert lines[3][:7] == [
        seq, "U", "FF00", "", "UPDATE", "A1".zfill(32), "2024-05-10 12:00:00.123456",
    ]  # fmt: skip
    assert lines[1][7:] == [
        "7",
        FULL["name"],
        "1.50",
        "2024-01-02 03:04:05.006000",
        "2024-01-02",
        "03:04:05.000006",
        "00FF",
        "0.1",
        "true",
    ]
    assert [line[2] for line in lines[1:]] == ["FF80", "00", "FF00"]


@pytest.mark.promise("option qlik-change-table.writer.file_format")
def test_json_holds_text(tmp_path: Path) -> None:
    put(tmp_path, CHANGES[:1], file_format="json")
    (part,) = (tmp_path / "app.item__ct").iterdir()
    row = json.loads(part.read_text(encoding="utf-8"))
    assert (row["header__change_mask"], row["id"], row["price"],
        row["header__stream_position"]) == (
        "FF80", "7", "1.50", None,
    )  # fmt: skip


def test_parquet_holds_types(tmp_path: Path) -> None:
    columns = [
        {"name": "id", "type": "INT8"},
        {"name": "price", "type": "NUMERIC", "precision": 9, "scale": 2},
    ]
    put(tmp_path, [item(ChangeOp.INSERT, after={"id": 1, "price": Decimal("1.5")})],
        file_format="parquet", tables={"app.item": {"columns": columns,
        "key": ["id"]}})  # fmt: skip
    (part,) = (tmp_path / "app.item__ct").iterdir()
    table = pq.read_table(part)
    types = dict(zip(table.column_names, table.schema.types, strict=True))
    assert types["header__change_mask"] == pa.binary()
    assert types["header__timestamp"] == pa.timestamp("us", tz="UTC")
    assert (types["id"], types["price"]) == (pa.int64(), pa.decimal128(9, 2))
    assert table["header__change_mask"].to_pylist() == [b"\x80\x01"]
    (back,) = get(tmp_path, tables={})
    assert back.after == {"id": 1, "price": Decimal("1.50")}


def test_a_value_that_parquet_cannot_hold_is_refused(tmp_path: Path) -> None:
    tables = {"app.item": {"columns": [{"name": "id", "type": "INT2"}]}}
    with refused("value_range", match="'id'"):
        put(
            tmp_path,
            [item(ChangeOp.INSERT, after={"id": 2**20})],
            file_format="parquet",
            tables=tables,
        )


# --- columns --------------------------------------------------------------------------------------


def test_columns_that_nothing_describes_are_those_that_are_seen(tmp_path: Path) -> None:
    changes = [
        item(ChangeOp.INSERT, after={"id": 1}),
        item(ChangeOp.INSERT, after={"id": 2, "name": "a"}),
        item(ChangeOp.DELETE, {"id": 1, "name": None}),
    ]
    put(tmp_path, changes, tables={})
    first, second, third = get(tmp_path, tables={})
    assert (first.after, second.after, third.before) == (
        {"id": "1"}, {"id": "2", "name": "a"}, {"id": "1"},
    )  # fmt: skip
    assert first.key == (("id", "1"),)  # as the mask of the delete tells


@pytest.mark.promise("option qlik-change-table.reader.catalog")
def test_a_catalogue_describes_tables(tmp_path: Path) -> None:
    catalog = {"dialect": "postgresql", "schema": "app", "tables": [
        {"name": "item", "kind": "table", "primary_key": ["id"],
         "columns": [{"name": "id", "type": "integer"}, {"name": "price",
         "type": "decimal(9,2)"}]}]}  # fmt: skip
    changes = [item(ChangeOp.INSERT, after={"id": 1, "price": Decimal("1.50")})]
    put(tmp_path, changes, tables={}, catalog=catalog)
    (back,) = get(tmp_path, tables={}, catalog=catalog)
    assert (back.key, back.after) == (changes[0].key, changes[0].after)


@pytest.mark.parametrize("name", ["a.b", "a/b", "..", "a%2Eb", "Größe", "tag__ct", ".x", "_y"])
def test_names_of_tables_are_kept(tmp_path: Path, name: str) -> None:
    change = Change(name, name, ChangeOp.INSERT, None, None, {"id": "1"})
    put(tmp_path, [change], tables={})
    (back,) = get(tmp_path, tables={})
    assert (back.schema, back.table) == (name, name)


@pytest.mark.promise("option qlik-change-table.reader.schema")
def test_a_table_without_schema_has_none(tmp_path: Path) -> None:
    put(tmp_path, [Change(None, "a.b", ChangeOp.INSERT, None, None, {"id": "1"})], tables={})
    (back,) = get(tmp_path, tables={})
    assert (back.schema, back.table) == (None, "a.b")
    (back,) = get(tmp_path, tables={}, schema="other")
    assert back.schema == "other"


@pytest.mark.promise("option qlik-change-table.reader.tables")
def test_only_the_tables_of_the_options_are_read(tmp_path: Path) -> None:
    put(tmp_path)
    assert {one.table for one in get(tmp_path, tables={"app.tag": {}})} == {"tag"}
    assert get(tmp_path, tables={"app.other": {}}) == []


def test_what_was_written_without_changes_is_read_without_changes(tmp_path: Path) -> None:
    put(tmp_path, [])
    assert get(tmp_path) == []


@pytest.mark.promise("code error-mask_too_wide")
def test_too_many_columns_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    wide: Row = {f"c{number}": "x" for number in range(1018)}
    with refused("mask_too_wide"):
        put(tmp_path, [Change("app", "wide", ChangeOp.INSERT, None, None, wide)], tables={})
    assert files(tmp_path) == []


@pytest.mark.promise("option qlik-change-table.writer.headers")
def test_headers_can_be_left_out_and_renamed(tmp_path: Path) -> None:
    names = {"suffix": "_changes", "header_prefix": "h$"}
    put(tmp_path, CHANGES[:2], headers=["operation", "change_seq"], mask_offset=3, **names)
    first, second = get(tmp_path, **names)
    assert (first.transaction_id, first.commit_time, first.event_number) == (None, None, None)
    assert second.changed == frozenset(
        FULL.keys() - {"id"}
    )  # from the images, since there is no mask


# --- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sufix": "__ct"}, "suffix"),
        ({"suffix": ""}, "suffix"),
        ({"header_prefix": 1}, "header_prefix"),
        ({"headers": "change_seq"}, "headers"),
        ({"headers": ["change_seq", "change_seq"]}, "twice"),
        ({"headers": ["partition_name"]}, "partitioned"),
        ({"headers": ["colour"]}, "colour"),
        ({"mask_offset": -1}, "mask_offset"),
        ({"mask_offset": True}, "mask_offset"),
        ({"before_images": "no"}, "before_images"),
        ({"before_images": 1}, "before_images"),
        ({"byteorder": "auto"}, "byteorder"),
        ({"empty_mask": "none"}, "empty_mask"),
        ({"refresh": "keep"}, "refresh"),
        *(
            ({"partition_seconds": seconds}, "partition_seconds")
            for seconds in (0, -1, True, "3600")
        ),
        *(
            ({"partition_base": base}, "partition_base")
            for base in ("noon", "2017-03-13T12:30:00.5", "2017-03-13T12Z")
        ),
        ({"file_format": "xml"}, "file_format"),
        ({"tables": []}, "tables"),
        ({"tables": {"t": []}}, "'t'"),
        ({"tables": {"t": {"colums": []}}}, "colums"),
        ({"tables": {"t": {"key": "id"}}}, "key"),
        ({"task": 1}, "task"),
    ],
)
def test_wrong_options_of_the_writer_are_refused(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        FORMAT.write([], str(tmp_path), options, Report())
    assert files(tmp_path) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"absent_null": "null"}, "absent_nulls"),
        ({"absent_nulls": True}, "absent_nulls"),
        ({"byteorder": "middle"}, "byteorder"),
        ({"file_format": "orc"}, "file_format"),
        ({"input_complete": None}, "input_complete"),
        ({"schema": 1}, "schema"),
        ({"mask_offset": 1024}, "mask_offset"),
    ],
)
def test_wrong_options_of_the_reader_are_refused(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        list(FORMAT.read(str(tmp_path), options, Report()))


@pytest.mark.parametrize("kind", [ReadOptions, WriteOptions])
def test_options_of_wrong_types_are_named(kind: type[Any]) -> None:
    good = kind()
    for name in kind.__dataclass_fields__:
        for value in (
            7,
            1.5,
            True,
            "text",
            [1],
            {"a": 1},
            [[]],
            None,
            float("nan"),
            -1,
            {},
            [],
            {"t": {"key": 7}},
        ):
            try:
                kind(**{name: value})
            except ConfigError as error:
                assert name.removesuffix("s") in str(error) or name == "tables"  # noqa: PT017 - raised or not
            else:
                default = getattr(good, name)
                fits = isinstance(value, type(default)) or (
                    default is None and isinstance(value, str | None)
                )
                fits = (
                    fits
                    or (name == "headers" and value == [])
                    or (name == "mask_offset" and value == 7)
                )
                assert fits or name == "catalog", (
                    name,
                    value,
                )  # which is looked at when it is read


def test_a_damaged_state_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "_change_sequence.json").write_text("{}", encoding="utf-8")
    with pytest.raises(FormatError, match="_change_sequence"):
        put(tmp_path)


def test_a_multi_valued_attribute_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotExpressible, match="several values"):
        put(tmp_path, [item(ChangeOp.INSERT, after={"id": 1, "phone.no": ("1", "2")})], tables={})


# --- CSV ------------------------------------------------------------------------------------------

TEXTS = (
    st.none()
    | st.text(st.characters(codec="utf-8"), max_size=8)
    | st.sampled_from(['"', ",", "\r\n", "\n", " a "])
)


@given(st.lists(st.lists(TEXTS, min_size=2, max_size=4), max_size=6))
def test_csv_keeps_null_and_empty_text_apart(records: list[list[str | None]]) -> None:
    text = "".join(map(csv_line, records))
    assert [record for _, record in csv_records(io.StringIO(text, newline=""), "file")] == records
    plain = [["" if value is None else value for value in record] for record in records]
    assert list(csv.reader(io.StringIO(text, newline=""))) == plain
