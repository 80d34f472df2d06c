"""Change tables in files: CSV, JSON lines, Parquet, whole or not at all, read back (spec/qlik.md 1.1, 3, 4)."""

from __future__ import annotations

import csv
import gzip
import io
import json
import struct
import time as time_module
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.changes.format import Report
from eventlog.errors import ConfigError, FormatError, NotExpressible, ValueRange
from eventlog.files.tabular import csv_line, csv_records
from eventlog.model import Change, ChangeOp, Row
from eventlog.qlik.change_rows import DEFAULT_HEADERS
from eventlog.qlik.change_table_format import FORMAT, read, write
from eventlog.qlik.change_table_options import ReadOptions, WriteOptions
from eventlog.qlik.errors import BadMask, MaskTooWide, MissingHeader, OperationMismatch, UnpairedBeforeImage

NOON = datetime(2024, 5, 10, 12, 0, 0, 123456, UTC)
FULL: Row = {
    "id": 7, "name": "nut, \"M3\"\nsteel", "price": Decimal("1.50"), "made": datetime(2024, 1, 2, 3, 4, 5, 6000),
    "day": date(2024, 1, 2), "at": time(3, 4, 5, 6), "raw": b"\x00\xff", "weight": 0.1, "sold": True,
}  # fmt: skip
NULLS: Row = dict.fromkeys(FULL) | {"id": 7, "name": ""}
TYPES = {
    "id": "INT4", "name": "STRING", "price": "NUMERIC", "made": "DATETIME", "day": "DATE", "at": "TIME",
    "raw": "BYTES", "weight": "REAL8", "sold": "BOOLEAN",
}  # fmt: skip
TABLES = {
    "app.item": {"columns": [{"name": name, "type": type} for name, type in TYPES.items()], "key": ["id"]},
    "app.tag": {"columns": ["id"], "key": ["id"]},
}
FILE_FORMATS = ["csv", "json", "parquet"]


def item(op: ChangeOp, before: Row | None = None, after: Row | None = None, **fields: Any) -> Change:
    image = after or before
    key = None if image is None else (("id", image["id"]),)
    fields = {"key": key, "transaction_id": "A1".zfill(32), "commit_time": NOON} | fields
    return Change("app", "item", op, before=before, after=after, **fields)


def tag(hours: int, **fields: Any) -> Change:
    time = NOON + timedelta(hours=hours)
    return Change("app", "tag", ChangeOp.INSERT, (("id", "x"),), None, {"id": "x"}, commit_time=time, **fields)


CHANGES = [
    item(ChangeOp.INSERT, after=FULL),
    item(ChangeOp.UPDATE, FULL, NULLS, changed=frozenset(FULL.keys() - {"id"})),
    tag(0),
    item(ChangeOp.UPDATE, NULLS, {**NULLS, "id": 8}, changed=frozenset({"id"})),
    item(ChangeOp.TRUNCATE, transaction_id="A2".zfill(32)),
    item(ChangeOp.DELETE, {**FULL, "id": 8}, transaction_id="A2".zfill(32)),
]
"""Every operation, every type, a key that moves, two tables."""

COUNTED = [(1, False), (2, True), (None, None), (1, True), (None, None), (1, True)]


def put(target: Path | str, changes: list[Change] = CHANGES, **options: Any) -> Report:
    report = Report(strict=True)
    write(changes, str(target), {"tables": TABLES} | options, report)
    return report


def get(source: Path | str, **options: Any) -> list[Change]:
    return list(read(str(source), {"tables": TABLES} | options, Report(strict=True)))


def expected(changes: list[Change]) -> list[Change]:
    """The changes as they are read: numbered, and with the event counters of their transactions."""
    return [
        one._replace(position=None, event_number=number, last_in_transaction=last)
        for one, (number, last) in zip(changes, COUNTED, strict=True)
    ]


def unnumbered(changes: list[Change]) -> list[Change]:
    return [one._replace(position=None) for one in changes]


def files(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("file_format", FILE_FORMATS)
def test_what_is_written_is_read(tmp_path: Path, file_format: str, partitioned: bool) -> None:
    report = put(tmp_path, file_format=file_format, partitioned=partitioned, close_partitions=partitioned)
    assert report.written == len(CHANGES)
    back = get(tmp_path, partitioned=partitioned)
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
        write(failing(), str(tmp_path), {"tables": TABLES}, Report())
    with pytest.raises(ValueRange, match="no INT4"):
        put(tmp_path, [tag(1), item(ChangeOp.INSERT, after={"id": "seven"})])
    assert files(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("file_format", FILE_FORMATS)
@pytest.mark.parametrize(
    ("column", "value"),
    [("id", 2**31), ("name", "\ud800"), ("price", "dear"), ("day", "2024-02-30"), ("sold", 7), ("raw", "0G")],
)
def test_a_value_that_is_not_of_its_column_is_refused(
    tmp_path: Path, file_format: str, column: str, value: Any
) -> None:
    with pytest.raises(ValueRange, match=repr(column)) as caught:
        put(tmp_path, [item(ChangeOp.INSERT, after={"id": 1, column: value})], file_format=file_format)
    assert caught.value.column == f"app.item.{column}"


def test_a_change_that_cannot_be_written_is_passed_over_and_counted(tmp_path: Path) -> None:
    report = Report()
    bad = [item(ChangeOp.INSERT, after={"id": "seven"}), item(ChangeOp.INSERT, after={"id": 1, "colour": 2})]
    write([tag(0), *bad, tag(0)], str(tmp_path), {"tables": TABLES}, report)
    assert report.counters == {"value_range app.item.id": 1, "not_expressible": 1}
    assert report.written == 2
    assert [int(one.position[-1]) for one in get(tmp_path) if one.position] == [1, 2]


def test_a_table_whose_name_is_no_text_is_passed_over(tmp_path: Path) -> None:
    report = Report()
    write([tag(0), tag(0)._replace(table="\ud800"), tag(0)], str(tmp_path), {}, report)
    assert (report.written, report.counters) == (2, {"not_expressible": 1})
    assert len(get(tmp_path, tables={})) == 2


def test_files_are_what_the_specification_says(tmp_path: Path) -> None:
    put(tmp_path, CHANGES[:2])
    (part,) = (tmp_path / "app.item__ct").iterdir()
    lines = list(csv.reader(io.StringIO(part.read_text(encoding="utf-8"), newline="")))
    assert lines[0] == [*(f"header__{name}" for name in DEFAULT_HEADERS), *FULL]
    seq = "20240510120000120000000000000000003"
    assert lines[3][:7] == [
        seq, "U", "FF00", "", "UPDATE", "A1".zfill(32), "2024-05-10 12:00:00.123456",
    ]  # fmt: skip
    assert lines[1][7:] == [
        "7", FULL["name"], "1.50", "2024-01-02 03:04:05.006000", "2024-01-02", "03:04:05.000006", "00FF", "0.1", "true",
    ]  # fmt: skip
    assert [line[2] for line in lines[1:]] == ["FF80", "00", "FF00"]


def test_json_holds_text(tmp_path: Path) -> None:
    put(tmp_path, CHANGES[:1], file_format="json")
    (part,) = (tmp_path / "app.item__ct").iterdir()
    row = json.loads(part.read_text(encoding="utf-8"))
    assert (row["header__change_mask"], row["id"], row["price"], row["header__stream_position"]) == (
        "FF80", "7", "1.50", None,
    )  # fmt: skip


def test_parquet_holds_types(tmp_path: Path) -> None:
    columns = [{"name": "id", "type": "INT8"}, {"name": "price", "type": "NUMERIC", "precision": 9, "scale": 2}]
    put(tmp_path, [item(ChangeOp.INSERT, after={"id": 1, "price": Decimal("1.5")})], file_format="parquet",
        tables={"app.item": {"columns": columns, "key": ["id"]}})  # fmt: skip
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
    with pytest.raises(ValueRange, match="'id'"):
        put(tmp_path, [item(ChangeOp.INSERT, after={"id": 2**20})], file_format="parquet", tables=tables)


# --- columns ----------------------------------------------------------------------------------------------------------


def test_columns_that_nothing_describes_are_those_that_are_seen(tmp_path: Path) -> None:
    changes = [
        item(ChangeOp.INSERT, after={"id": 1}),
        item(ChangeOp.INSERT, after={"id": 2, "name": "a"}),
        item(ChangeOp.DELETE, {"id": 1, "name": None}),
    ]
    put(tmp_path, changes, tables={})
    first, second, third = get(tmp_path, tables={})
    assert (first.after, second.after, third.before) == (
        {"id": "1", "name": None}, {"id": "2", "name": "a"}, {"id": "1"},
    )  # fmt: skip
    assert first.key == (("id", "1"),)  # as the mask of the delete tells


def test_a_catalogue_describes_tables(tmp_path: Path) -> None:
    catalog = {"dialect": "postgresql", "schema": "app", "tables": [
        {"name": "item", "kind": "table", "primary_key": ["id"],
         "columns": [{"name": "id", "type": "integer"}, {"name": "price", "type": "decimal(9,2)"}]}]}  # fmt: skip
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


def test_a_table_without_schema_has_none(tmp_path: Path) -> None:
    put(tmp_path, [Change(None, "a.b", ChangeOp.INSERT, None, None, {"id": "1"})], tables={})
    (back,) = get(tmp_path, tables={})
    assert (back.schema, back.table) == (None, "a.b")
    (back,) = get(tmp_path, tables={}, schema="other")
    assert back.schema == "other"


def test_only_the_tables_of_the_options_are_read(tmp_path: Path) -> None:
    put(tmp_path)
    assert {one.table for one in get(tmp_path, tables={"app.tag": {}})} == {"tag"}
    assert get(tmp_path, tables={"app.other": {}}) == []


def test_what_was_written_without_changes_is_read_without_changes(tmp_path: Path) -> None:
    put(tmp_path, [])
    assert get(tmp_path) == []


def test_too_many_columns_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    wide: Row = {f"c{number}": "x" for number in range(1018)}
    with pytest.raises(MaskTooWide):
        put(tmp_path, [Change("app", "wide", ChangeOp.INSERT, None, None, wide)], tables={})
    assert files(tmp_path) == []


def test_headers_can_be_left_out_and_renamed(tmp_path: Path) -> None:
    names = {"suffix": "_changes", "header_prefix": "h$"}
    put(tmp_path, CHANGES[:2], headers=["operation", "change_seq"], mask_offset=3, **names)
    first, second = get(tmp_path, **names)
    assert (first.transaction_id, first.commit_time, first.event_number) == (None, None, None)
    assert second.changed == frozenset(FULL.keys() - {"id"})  # from the images, since there is no mask


# --- sources of others ------------------------------------------------------------------------------------------------

HEAD = "header__change_seq,header__change_oper,header__change_mask,id,name\n"
LINE = "20240510120000000000000000000000{:03},{},{},{},{}\n"
ROW_1 = LINE.format(1, "I", "18", 1, "a").encode()


def table_file(directory: Path, *lines: tuple[int, str, str, Any, Any], name: str = "item__ct.csv") -> Path:
    path = directory / name
    path.write_text(HEAD + "".join(LINE.format(*line) for line in lines), encoding="utf-8")
    return path


def test_one_file_is_a_table_and_rows_may_come_in_any_order(tmp_path: Path) -> None:
    path = table_file(tmp_path, (3, "U", "10", 1, "b"), (3, "B", "00", 1, "a"), (1, "I", "18", 1, "a"))
    for source in (path, tmp_path):
        first, second = get(source, tables={})
        assert (first.op, second.op, second.before) == ("INSERT", "UPDATE", {"id": "1", "name": "a"})


def test_bad_rows_stop_the_strict_and_are_passed_over_by_others(tmp_path: Path) -> None:
    table_file(tmp_path, (1, "I", "18", 1, "a"), (2, "X", "18", 1, "a"), (3, "B", "00", 1, "a"), (4, "I", "zz", 1, "a"))
    with pytest.raises(FormatError):
        get(tmp_path, tables={})
    report = Report()
    assert len(list(read(str(tmp_path), {}, report))) == 1
    assert report.counters == {"unknown_operation": 1, "unpaired_before_image": 1, "bad_mask": 1}
    assert report.read == 1


def test_the_last_before_image_waits_unless_the_input_is_complete(tmp_path: Path) -> None:
    table_file(tmp_path, (1, "I", "18", 1, "a"), (2, "B", "00", 1, "a"))
    with pytest.raises(UnpairedBeforeImage):
        get(tmp_path, tables={})
    assert len(get(tmp_path, tables={}, input_complete=False)) == 1


def test_a_source_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="does not exist"):
        get(tmp_path / "nowhere")
    with pytest.raises(FormatError, match="no change table"):
        get(tmp_path, tables={})
    (tmp_path / "item__ct.csv").write_text("id,name\n1,a\n", encoding="utf-8")
    with pytest.raises(MissingHeader, match="header__change_seq"):
        get(tmp_path, tables={})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("item__ct.csv", HEAD + "1,2\n"),
        ("item__ct.csv", HEAD + '"1'),
        ("item__ct.csv", HEAD + 'a"b,2,3,4,5\n'),
        ("item__ct.jsonl", "{\n"),
        ("item__ct.jsonl", "[]\n"),
        ("item__ct.parquet", "PAR2"),
    ],
)
def test_a_file_that_is_not_of_its_format_is_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(FormatError, match="item__ct"):
        get(tmp_path, tables={})


@pytest.mark.parametrize("ending", [".gz", ".zst"])
@pytest.mark.parametrize("file_format", ["csv", "json"])
def test_compressed_files_are_read_beside_others(tmp_path: Path, file_format: str, ending: str) -> None:
    put(tmp_path, file_format=file_format)
    plain = get(tmp_path)
    for part in [tmp_path / name for name in files(tmp_path) if "item__ct" in name]:
        codec = {".gz": gzip.compress, ".zst": pa.Codec("zstd").compress}[ending]
        part.with_name(part.name + ending).write_bytes(codec(part.read_bytes()))
        part.unlink()
    assert len(files(tmp_path)) == 3
    assert get(tmp_path) == plain


def test_one_compressed_file_is_a_table(tmp_path: Path) -> None:
    (tmp_path / "app.item__ct.csv.gz").write_bytes(gzip.compress(HEAD.encode() + ROW_1))
    (change,) = get(tmp_path, tables={})
    assert (change.schema, change.table) == ("app", "item")
    assert get(tmp_path / "app.item__ct.csv.gz", tables={}) == [change]


@pytest.mark.parametrize("name", ["a.csv.bz2", "a.csv.GZ", "a.parquet.gz", "b.jsonl.snappy"])
def test_a_file_of_a_compression_that_is_not_read_is_refused_beside_others(tmp_path: Path, name: str) -> None:
    table_file(tmp_path, (1, "I", "18", 1, "a"))
    (tmp_path / "item__ct").mkdir()
    (tmp_path / "item__ct" / "part.csv").write_text(HEAD, encoding="utf-8")
    (tmp_path / "item__ct" / name).write_bytes(b"")
    with pytest.raises(FormatError, match=f"{name}.*decompress it"):
        get(tmp_path, tables={})


@pytest.mark.parametrize("name", ["part.txt", "part.dfm", "_SUCCESS", "part.csv.bak", None])
def test_a_table_of_which_no_file_is_read_is_an_error(tmp_path: Path, name: str | None) -> None:
    (tmp_path / "app.item__ct").mkdir()
    if name is not None:
        (tmp_path / "app.item__ct" / name).write_text("", encoding="utf-8")
    with pytest.raises(FormatError, match=r"app\.item has no file that is read: looked for csv, json, parquet"):
        get(tmp_path, tables={})


def test_a_compressed_file_that_is_cut_is_refused(tmp_path: Path) -> None:
    content = gzip.compress(HEAD.encode() + ROW_1 * 500)
    for cut in (content[:-9], content[:12], b"\x1f\x8b" + content[5:]):
        (tmp_path / "item__ct.csv.gz").write_bytes(cut)
        with pytest.raises(FormatError, match="item__ct"):
            get(tmp_path, tables={})


def test_a_record_that_is_none_is_passed_over_and_what_stands_behind_it_is_read(tmp_path: Path) -> None:
    rows = f'{HEAD}1,2\n{ROW_1.decode()}a"b",2,3,4,5\n{ROW_1.decode()}"'
    (tmp_path / "item__ct.csv").write_text(rows, encoding="utf-8")
    report = Report()
    assert len(list(read(str(tmp_path), {}, report))) == 2
    assert (report.counters, "item__ct.csv, line 2" in report.problems[0]) == ({"format": 3}, True)


def json_table(directory: Path, *rows: Any, **more: Any) -> Path:
    """A table of JSON lines: rows are those of a good one with other members, or text."""
    good = dict(zip(HEAD.strip().split(","), ROW_1.decode().strip().split(","), strict=True))
    lines = [row if isinstance(row, str) else json.dumps(good | row) for row in rows]
    path = directory / "item__ct.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize("mask", [768, -1, 1.5, 2**63, True, [7], {"a": 1}, 0])
def test_a_mask_that_is_no_text_is_a_bad_mask(tmp_path: Path, mask: Any) -> None:
    json_table(tmp_path, {"header__change_mask": mask})
    with pytest.raises(BadMask, match="hex text"):
        get(tmp_path, tables={})


@pytest.mark.parametrize("moment", [1, 1.5, True, ["2024-01-01"], {"a": 1}, "0001-01-01T00:00:00+14:00", 2**63])
def test_a_timestamp_that_is_no_text_is_refused(tmp_path: Path, moment: Any) -> None:
    json_table(tmp_path, {"header__timestamp": moment})
    with pytest.raises(FormatError, match="timestamp"):
        get(tmp_path, tables={})


@pytest.mark.parametrize("value", [-1, 1.5, 2**63, True, [7], "1e9999999", "Infinity", "1e99999999999999999999"])
def test_a_change_seq_that_is_no_sequence_is_refused_at_once(tmp_path: Path, value: Any) -> None:
    path = json_table(tmp_path, {"header__change_seq": "SEQ"})
    text = value if isinstance(value, str) else json.dumps(value)
    path.write_text(path.read_text(encoding="utf-8").replace('"SEQ"', text), encoding="utf-8")
    with pytest.raises(FormatError):
        get(tmp_path, tables={})


def test_numbers_of_json_are_exact_where_their_columns_say_so(tmp_path: Path) -> None:
    path = json_table(tmp_path, {"name": "VALUE"})
    number = "12345678901234567890.12"
    path.write_text(path.read_text(encoding="utf-8").replace('"VALUE"', number), encoding="utf-8")
    columns = {"item": {"columns": ["id", {"name": "name", "type": "NUMERIC"}]}}
    assert [one.after["name"] for one in get(tmp_path, tables=columns) if one.after] == [Decimal(number)]
    assert [one.after["name"] for one in get(tmp_path, tables={}) if one.after] == [float(number)]


def test_values_that_python_does_not_have_cost_their_rows_of_parquet_alone(tmp_path: Path) -> None:
    seq = ["2024051012000000" + f"{n:019}" for n in range(1, 5)]
    day = pa.array([1, 2**31 - 1, 3, 4], pa.int32()).cast(pa.date32())
    offsets = pa.py_buffer(struct.pack("<5i", 0, 1, 2, 3, 4))
    text = pa.StringArray.from_buffers(4, offsets, pa.py_buffer(b"ab\xffd"))
    columns = {"header__change_seq": seq, "header__change_oper": ["I"] * 4, "day": day, "name": text}
    pq.write_table(pa.table(columns), tmp_path / "item__ct.parquet")
    report = Report()
    found = [one.after for one in read(str(tmp_path), {}, report)]
    assert found == [{"day": date(1970, 1, 2), "name": "a"}, {"day": date(1970, 1, 5), "name": "d"}]
    assert [problem.split("item__ct.parquet: ")[1][:23] for problem in report.problems] == [
        "record 2: column 'day' ", "record 3: column 'name'",
    ]  # fmt: skip


def test_the_time_of_a_field_grows_with_its_lines(tmp_path: Path) -> None:
    record = ["1", "line\n" * 320_000]
    begun = time_module.process_time()
    assert list(csv_records(io.StringIO(csv_line(record), newline=""), "x")) == [(1, record)]
    assert time_module.process_time() - begun < 2  # it was 8 s; now a tenth of one


def metadata_file(version: int = 1, **types: str) -> str:
    """What Qlik Replicate writes beside a data file, of the columns of HEAD; the first two are the key, id last."""
    types = {"id": "INT4", "name": "NUMERIC"} | types
    headers = [{"name": name, "type": "STRING", "primaryKeyPos": 0} for name in HEAD.split(",")[:3]]
    data = [{"name": name, "type": types[name], "precision": 9, "scale": 2, "primaryKeyPos": place}
            for name, place in (("id", 2), ("name", 1))]  # fmt: skip
    columns = [{"ordinal": ordinal, "length": 10, **one} for ordinal, one in enumerate([*headers, *data], 1)]
    about = {"sourceSchema": "app", "sourceTable": "item", "tableVersion": version, "columns": columns[::-1]}
    return json.dumps({"dfmVersion": "1.1", "fileInfo": {"name": "1", "extension": "csv"}, "dataInfo": about}, indent=4)


@pytest.mark.parametrize("name", ["1.csv", "1.csv.gz"])
def test_metadata_beside_the_data_give_types_and_key(tmp_path: Path, name: str) -> None:
    place = tmp_path / "app.item__ct"
    place.mkdir()
    content = (HEAD + LINE.format(1, "U", "18", 1, "1.50")).encode()
    (place / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    assert [one.after for one in get(tmp_path, tables={})] == [{"id": "1", "name": "1.50"}]
    (place / "1.dfm").write_text(metadata_file(), encoding="utf-8")
    (change,) = get(tmp_path, tables={})
    assert (change.after, change.key) == ({"id": 1, "name": Decimal("1.50")}, (("name", Decimal("1.50")), ("id", 1)))
    (change,) = get(tmp_path, tables={"app.item": {"columns": ["id", "name"], "key": ["id"]}})  # which come first
    assert (change.after, change.key) == ({"id": "1", "name": "1.50"}, (("id", "1"),))
    (change,) = get(tmp_path, tables={"app.item": {"key": ["id"]}})
    assert (change.after, change.key) == ({"id": 1, "name": Decimal("1.50")}, (("id", 1),))


def test_the_metadata_of_the_latest_version_of_a_table_count(tmp_path: Path) -> None:
    place = tmp_path / "app.item__ct"
    place.mkdir()
    for number, version, type in ((1, 2, "INT8"), (2, 1, "INT2")):  # written in another order than their names
        (place / f"{number}.dfm").write_text(metadata_file(version, id=type, name="STRING"), encoding="utf-8")
        (place / f"{number}.csv").write_text(HEAD + LINE.format(number, "I", "18", 2**40, "a"), encoding="utf-8")
    assert [one.after for one in get(tmp_path, tables={})] == [{"id": 2**40, "name": "a"}] * 2


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "{}",
     '{"dataInfo":7}', '{"dataInfo":{"columns":7}}', '{"dataInfo":{"columns":[{"ordinal":1}]}}',
     '{"dataInfo":{"columns":[{"ordinal":1e9999999,"name":"id"}]}}',
     '{"dataInfo":{"columns":[{"ordinal":1,"name":[]}]}}',
     "[" * 2000],
)  # fmt: skip
def test_metadata_that_are_none_are_passed_over_and_the_data_read(tmp_path: Path, content: str) -> None:
    table_file(tmp_path, (1, "I", "18", 1, "a"))
    (tmp_path / "item__ct.dfm").write_text(content, encoding="utf-8")
    report = Report()
    assert [one.after for one in read(str(tmp_path), {}, report)] == [{"id": "1", "name": "a"}]
    assert report.counters == {"bad_metadata": 1}
    with pytest.raises(FormatError, match=r"item__ct\.dfm"):
        get(tmp_path, tables={})


def test_operations_that_disagree_are_refused(tmp_path: Path) -> None:
    text = (
        "header__change_seq,header__change_oper,header__operation,id\n20240510120000000000000000000000001,I,DELETE,1\n"
    )
    (tmp_path / "item__ct.csv").write_text(text, encoding="utf-8")
    with pytest.raises(OperationMismatch, match="000001"):
        get(tmp_path, tables={})


def test_masks_are_read_with_the_column_list_of_their_time(tmp_path: Path) -> None:
    table_file(tmp_path, (1, "I", "08", 1, ""), (5, "U", "08", 1, "a"), (6, "U", "10", 1, "b"))
    details = json.dumps({"columns": {"id": {"action": "ADD", "ordinal": 1}}})
    history = {"CHANGE_SEQ": "20240510120000000000000000000000006", "TABLE_NAME": "item", "DETAILS": details}
    (tmp_path / "attrep_ddl_history.jsonl").write_text(json.dumps(history), encoding="utf-8")
    assert [one.changed for one in get(tmp_path, tables={})[1:]] == [{"id"}, {"name"}]
    assert [one.changed for one in get(tmp_path, tables={}, ddl_history=True)[1:]] == [{"name"}, {"name"}]


def test_only_partitions_that_have_ended_are_listed_and_read(tmp_path: Path) -> None:
    options = {"partitioned": True, "tables": TABLES}
    put(tmp_path, [tag(0), tag(0), tag(1)], **options)
    assert len(get(tmp_path)) == 3
    assert [one.extras["partition_name"] for one in get(tmp_path, partitioned=True)] == [
        "20240510T120000_20240510T130000", "20240510T120000_20240510T130000",
    ]  # fmt: skip
    put(tmp_path, [tag(2)], **options)
    assert len(get(tmp_path, partitioned=True)) == 3
    put(tmp_path, [], close_partitions=True, **options)
    assert len(get(tmp_path, partitioned=True)) == 4
    listed = [path.read_text().splitlines()[1:] for path in (tmp_path / "attrep_cdc_partitions").iterdir()]
    rows = list(csv.reader(line for lines in listed for line in lines))
    assert sorted(row[2:] for row in rows)[0] == [
        "20240510T120000_20240510T130000", "2024-05-10 12:00:00.000000", "2024-05-10 13:00:00.000000", "app", "tag",
    ]  # fmt: skip
    assert len(rows) == 3


@pytest.mark.parametrize("column", ["partition_name", "header__partition_name"])
def test_folders_of_partitions_may_stand_for_the_column(tmp_path: Path, column: str) -> None:
    """As Spark writes: the column is in the folder's name alone, marker files beside."""
    for number, name in enumerate(["20240510T120000_20240510T130000", "20240510T130000_20240510T140000"], 1):
        folder = tmp_path / "item__ct" / f"{column}={name}"
        folder.mkdir(parents=True)
        table_file(folder, (number, "I", "18", 1, "a"), name="part-0.csv")
        (folder / "_SUCCESS").touch()
    for source in (tmp_path, tmp_path / "item__ct"):
        assert [one.extras["partition_name"][9:15] for one in get(source, tables={})] == ["120000", "130000"]
    listed = {"PARTITION_NAME": "20240510T130000_20240510T140000", "TABLE_OWNER": None, "TABLE_NAME": "item"}
    (tmp_path / "attrep_cdc_partitions.jsonl").write_text(json.dumps(listed), encoding="utf-8")
    for source in (tmp_path, tmp_path / "item__ct"):
        assert [(one.position or "")[-1] for one in get(source, tables={}, partitioned=True)] == ["2"]


# --- options ----------------------------------------------------------------------------------------------------------


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
        ({"partition_seconds": 0}, "partition_seconds"),
        ({"partition_base": "noon"}, "partition_base"),
        ({"file_format": "xml"}, "file_format"),
        ({"tables": []}, "tables"),
        ({"tables": {"t": []}}, "'t'"),
        ({"tables": {"t": {"colums": []}}}, "colums"),
        ({"tables": {"t": {"key": "id"}}}, "key"),
        ({"task": 1}, "task"),
    ],
)
def test_wrong_options_of_the_writer_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        write([], str(tmp_path), options, Report())
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
def test_wrong_options_of_the_reader_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        list(FORMAT.read(str(tmp_path), options, Report()))


@pytest.mark.parametrize("kind", [ReadOptions, WriteOptions])
def test_options_of_wrong_types_are_named(kind: type[Any]) -> None:
    good = kind()
    for name in kind.__dataclass_fields__:
        for value in (7, 1.5, True, "text", [1], {"a": 1}, [[]], None, float("nan"), -1, {}, [], {"t": {"key": 7}}):
            try:
                kind(**{name: value})
            except ConfigError as error:
                assert name.removesuffix("s") in str(error) or name == "tables"  # noqa: PT017 - raised or not
            else:
                default = getattr(good, name)
                fits = isinstance(value, type(default)) or (default is None and isinstance(value, str | None))
                fits = fits or (name == "headers" and value == []) or (name == "mask_offset" and value == 7)
                assert fits or name == "catalog", (name, value)  # which is looked at when it is read


def test_a_damaged_state_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "_change_sequence.json").write_text("{}", encoding="utf-8")
    with pytest.raises(FormatError, match="_change_sequence"):
        put(tmp_path)


def test_a_multi_valued_attribute_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotExpressible, match="several values"):
        put(tmp_path, [item(ChangeOp.INSERT, after={"id": 1, "phone.no": ("1", "2")})], tables={})


# --- CSV --------------------------------------------------------------------------------------------------------------

TEXTS = st.none() | st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(['"', ",", "\r\n", "\n", " a "])


@given(st.lists(st.lists(TEXTS, min_size=2, max_size=4), max_size=6))
def test_csv_keeps_null_and_empty_text_apart(records: list[list[str | None]]) -> None:
    text = "".join(map(csv_line, records))
    assert [record for _, record in csv_records(io.StringIO(text, newline=""), "file")] == records
    plain = [["" if value is None else value for value in record] for record in records]
    assert list(csv.reader(io.StringIO(text, newline=""))) == plain
