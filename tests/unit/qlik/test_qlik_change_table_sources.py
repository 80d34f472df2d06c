"""Change tables in files as others write them: what is read of them, and what is refused
(formats/qlik.md 1.1, 1.3, 4).
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import struct
import time as time_module
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from change_table_files import TABLES, files, get, put, tag
from shared import refused

from eventlog.changes.format import Report
from eventlog.errors import FormatError
from eventlog.files.tabular import csv_line, csv_records
from eventlog.qlik.tables.change_table_format import FORMAT

HEAD = "header__change_seq,header__change_oper,header__change_mask,id,name\n"
LINE = "20240510120000000000000000000000{:03},{},{},{},{}\n"
ROW_1 = LINE.format(1, "I", "18", 1, "a").encode()


def table_file(
    directory: Path, *lines: tuple[int, str, str, Any, Any], name: str = "item__ct.csv"
) -> Path:
    path = directory / name
    path.write_text(HEAD + "".join(LINE.format(*line) for line in lines), encoding="utf-8")
    return path


def test_one_file_is_a_table_and_rows_may_come_in_any_order(tmp_path: Path) -> None:
    path = table_file(
        tmp_path, (3, "U", "10", 1, "b"), (3, "B", "00", 1, "a"), (1, "I", "18", 1, "a")
    )
    for source in (path, tmp_path):
        first, second = get(source, tables={})
        assert (first.op, second.op, second.before) == (
            "INSERT",
            "UPDATE",
            {"id": "1", "name": "a"},
        )


def test_invalid_rows_stop_the_strict_and_are_passed_over_by_others(tmp_path: Path) -> None:
    table_file(
        tmp_path,
        (1, "I", "18", 1, "a"),
        (2, "X", "18", 1, "a"),
        (3, "B", "00", 1, "a"),
        (4, "I", "zz", 1, "a"),
    )
    with pytest.raises(FormatError):
        get(tmp_path, tables={})
    report = Report()
    assert len(list(FORMAT.read(str(tmp_path), {}, report))) == 1
    assert report.counters == {"unknown_operation": 1, "unpaired_before_image": 1, "bad_mask": 1}
    assert report.read == 1


@pytest.mark.promise("option qlik-change-table.reader.input_complete")
def test_the_last_before_image_waits_unless_the_input_is_complete(tmp_path: Path) -> None:
    table_file(tmp_path, (1, "I", "18", 1, "a"), (2, "B", "00", 1, "a"))
    with refused("unpaired_before_image"):
        get(tmp_path, tables={})
    assert len(get(tmp_path, tables={}, input_complete=False)) == 1


def test_a_source_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="does not exist"):
        get(tmp_path / "nowhere")
    with pytest.raises(FormatError, match="no change table"):
        get(tmp_path, tables={})
    (tmp_path / "item__ct.csv").write_text("id,name\n1,a\n", encoding="utf-8")
    with refused("missing_header", match="header__change_seq"):
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
def test_compressed_files_are_read_next_to_others(
    tmp_path: Path, file_format: str, ending: str
) -> None:
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
def test_a_file_of_a_compression_that_is_not_read_is_refused_next_to_others(
    tmp_path: Path, name: str
) -> None:
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
    why = r"app\.item has no file whose name shows one of the formats csv, json, parquet"
    with pytest.raises(FormatError, match=why):
        get(tmp_path, tables={})


def test_a_compressed_file_that_is_cut_is_refused(tmp_path: Path) -> None:
    content = gzip.compress(HEAD.encode() + ROW_1 * 500)
    for cut in (content[:-9], content[:12], b"\x1f\x8b" + content[5:]):
        (tmp_path / "item__ct.csv.gz").write_bytes(cut)
        with pytest.raises(FormatError, match="item__ct"):
            get(tmp_path, tables={})


def test_a_record_that_is_none_is_passed_over_and_what_stands_after_it_is_read(
    tmp_path: Path,
) -> None:
    rows = f'{HEAD}1,2\n{ROW_1.decode()}a"b",2,3,4,5\n{ROW_1.decode()}"'
    (tmp_path / "item__ct.csv").write_text(rows, encoding="utf-8")
    report = Report()
    assert len(list(FORMAT.read(str(tmp_path), {}, report))) == 2
    assert (report.counters, "item__ct.csv, line 2" in report.problems[0]) == (
        {"invalid_format": 3},
        True,
    )


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
    with refused("bad_mask", match="hex text"):
        get(tmp_path, tables={})


@pytest.mark.parametrize(
    "moment", [1, 1.5, True, ["2024-01-01"], {"a": 1}, "0001-01-01T00:00:00+14:00", 2**63]
)
def test_a_timestamp_that_is_no_text_is_refused(tmp_path: Path, moment: Any) -> None:
    json_table(tmp_path, {"header__timestamp": moment})
    with pytest.raises(FormatError, match="timestamp"):
        get(tmp_path, tables={})


@pytest.mark.parametrize(
    "value", [-1, 1.5, 2**63, True, [7], "1e9999999", "Infinity", "1e99999999999999999999"]
)
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
    assert [one.after["name"] for one in get(tmp_path, tables=columns) if one.after] == [
        Decimal(number)
    ]
    assert [one.after["name"] for one in get(tmp_path, tables={}) if one.after] == [float(number)]


def test_values_that_python_does_not_have_cost_their_rows_of_parquet_alone(tmp_path: Path) -> None:
    seq = ["2024051012000000" + f"{n:019}" for n in range(1, 5)]
    day = pa.array([1, 2**31 - 1, 3, 4], pa.int32()).cast(pa.date32())
    offsets = pa.py_buffer(struct.pack("<5i", 0, 1, 2, 3, 4))
    text = pa.StringArray.from_buffers(4, offsets, pa.py_buffer(b"ab\xffd"))
    columns = {
        "header__change_seq": seq,
        "header__change_oper": ["I"] * 4,
        "day": day,
        "name": text,
    }
    pq.write_table(pa.table(columns), tmp_path / "item__ct.parquet")
    report = Report()
    found = [one.after for one in FORMAT.read(str(tmp_path), {}, report)]
    assert found == [{"day": date(1970, 1, 2), "name": "a"}, {"day": date(1970, 1, 5), "name": "d"}]
    problems = [problem.split("item__ct.parquet: ")[1] for problem in report.problems]
    assert [problem.partition(" cannot be read: ")[0] for problem in problems] == [
        "record 2: the value of column 'day'", "record 3: the value of column 'name'",
    ]  # fmt: skip


def test_the_time_of_a_field_grows_with_its_lines(tmp_path: Path) -> None:
    record = ["1", "line\n" * 320_000]
    begun = time_module.process_time()
    assert list(csv_records(io.StringIO(csv_line(record), newline=""), "x")) == [(1, record)]
    assert time_module.process_time() - begun < 2  # it was 8 s; now a tenth of one


def metadata_file(version: int = 1, **types: str) -> str:
    """What Qlik Replicate writes next to a data file, of the columns of HEAD; the first two are the
    key, id last.
    """
    types = {"id": "INT4", "name": "NUMERIC"} | types
    headers = [{"name": name, "type": "STRING", "primaryKeyPos": 0} for name in HEAD.split(",")[:3]]
    data = [{"name": name, "type": types[name], "precision": 9, "scale": 2, "primaryKeyPos": place}
            for name, place in (("id", 2), ("name", 1))]  # fmt: skip
    columns = [
        {"ordinal": ordinal, "length": 10, **one}
        for ordinal, one in enumerate([*headers, *data], 1)
    ]
    about = {
        "sourceSchema": "app",
        "sourceTable": "item",
        "tableVersion": version,
        "columns": columns[::-1],
    }
    return json.dumps(
        {"dfmVersion": "1.1", "fileInfo": {"name": "1", "extension": "csv"}, "dataInfo": about},
        indent=4,
    )


@pytest.mark.parametrize("name", ["1.csv", "1.csv.gz"])
def test_metadata_next_to_the_data_give_types_and_key(tmp_path: Path, name: str) -> None:
    place = tmp_path / "app.item__ct"
    place.mkdir()
    content = (HEAD + LINE.format(1, "U", "18", 1, "1.50")).encode()
    (place / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    assert [one.after for one in get(tmp_path, tables={})] == [{"id": "1", "name": "1.50"}]
    (place / "1.dfm").write_text(metadata_file(), encoding="utf-8")
    (change,) = get(tmp_path, tables={})
    assert (change.after, change.key) == (
        {"id": 1, "name": Decimal("1.50")},
        (("name", Decimal("1.50")), ("id", 1)),
    )
    (change,) = get(
        tmp_path, tables={"app.item": {"columns": ["id", "name"], "key": ["id"]}}
    )  # which come first
    assert (change.after, change.key) == ({"id": "1", "name": "1.50"}, (("id", "1"),))
    (change,) = get(tmp_path, tables={"app.item": {"key": ["id"]}})
    assert (change.after, change.key) == ({"id": 1, "name": Decimal("1.50")}, (("id", 1),))


def test_the_metadata_of_the_latest_version_of_a_table_count(tmp_path: Path) -> None:
    place = tmp_path / "app.item__ct"
    place.mkdir()
    for number, version, type in (
        (1, 2, "INT8"),
        (2, 1, "INT2"),
    ):  # written in another order than their names
        (place / f"{number}.dfm").write_text(
            metadata_file(version, id=type, name="STRING"), encoding="utf-8"
        )
        (place / f"{number}.csv").write_text(
            HEAD + LINE.format(number, "I", "18", 2**40, "a"), encoding="utf-8"
        )
    assert [one.after for one in get(tmp_path, tables={})] == [{"id": 2**40, "name": "a"}] * 2


@pytest.mark.promise("code error-bad_metadata")
@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "{}",
     '{"dataInfo":7}', '{"dataInfo":{"columns":7}}', '{"dataInfo":{"columns":[{"ordinal":1}]}}',
     '{"dataInfo":{"columns":[{"ordinal":1e9999999,"name":"id"}]}}',
     '{"dataInfo":{"columns":[{"ordinal":1,"name":[]}]}}',
     "[" * 2000],
)  # fmt: skip
def test_metadata_that_are_none_are_passed_over_and_the_data_read(
    tmp_path: Path, content: str
) -> None:
    table_file(tmp_path, (1, "I", "18", 1, "a"))
    (tmp_path / "item__ct.dfm").write_text(content, encoding="utf-8")
    report = Report()
    assert [one.after for one in FORMAT.read(str(tmp_path), {}, report)] == [
        {"id": "1", "name": "a"}
    ]
    assert report.counters == {"bad_metadata": 1}
    with pytest.raises(FormatError, match=r"item__ct\.dfm"):
        get(tmp_path, tables={})


def test_operations_that_disagree_are_refused(tmp_path: Path) -> None:
    text = "header__change_seq,header__change_oper,header__operation,id\n20240510120000000000000000000000001,I,DELETE,1\n"
    (tmp_path / "item__ct.csv").write_text(text, encoding="utf-8")
    with refused("operation_mismatch", match="000001"):
        get(tmp_path, tables={})


@pytest.mark.promise("option qlik-change-table.reader.ddl_history")
def test_masks_are_read_with_the_column_list_of_their_time(tmp_path: Path) -> None:
    table_file(tmp_path, (1, "I", "08", 1, ""), (5, "U", "08", 1, "a"), (6, "U", "10", 1, "b"))
    details = json.dumps({"columns": {"id": {"action": "ADD", "ordinal": 1}}})
    history = {
        "CHANGE_SEQ": "20240510120000000000000000000000006",
        "TABLE_NAME": "item",
        "DETAILS": details,
    }
    (tmp_path / "attrep_ddl_history.jsonl").write_text(json.dumps(history), encoding="utf-8")
    assert [one.changed for one in get(tmp_path, tables={})[1:]] == [{"id"}, {"name"}]
    assert [one.changed for one in get(tmp_path, tables={}, ddl_history=True)[1:]] == [
        {"name"},
        {"name"},
    ]


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
    listed = [
        path.read_text().splitlines()[1:] for path in (tmp_path / "attrep_cdc_partitions").iterdir()
    ]
    rows = list(csv.reader(line for lines in listed for line in lines))
    assert sorted(row[2:] for row in rows)[0] == [
        "20240510T120000_20240510T130000",
        "2024-05-10 12:00:00.000000",
        "2024-05-10 13:00:00.000000",
        "app",
        "tag",
    ]
    assert len(rows) == 3


@pytest.mark.parametrize("column", ["partition_name", "header__partition_name"])
def test_folders_of_partitions_may_stand_for_the_column(tmp_path: Path, column: str) -> None:
    """As Spark writes: the column is in the folder's name alone, marker files beside."""
    for number, name in enumerate(
        ["20240510T120000_20240510T130000", "20240510T130000_20240510T140000"], 1
    ):
        folder = tmp_path / "item__ct" / f"{column}={name}"
        folder.mkdir(parents=True)
        table_file(folder, (number, "I", "18", 1, "a"), name="part-0.csv")
        (folder / "_SUCCESS").touch()
    for source in (tmp_path, tmp_path / "item__ct"):
        assert [one.extras["partition_name"][9:15] for one in get(source, tables={})] == [
            "120000",
            "130000",
        ]
    listed = {
        "PARTITION_NAME": "20240510T130000_20240510T140000",
        "TABLE_OWNER": None,
        "TABLE_NAME": "item",
    }
    (tmp_path / "attrep_cdc_partitions.jsonl").write_text(json.dumps(listed), encoding="utf-8")
    for source in (tmp_path, tmp_path / "item__ct"):
        assert [(one.position or "")[-1] for one in get(source, tables={}, partitioned=True)] == [
            "2"
        ]
