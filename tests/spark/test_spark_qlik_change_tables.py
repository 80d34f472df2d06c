"""Change tables of files as DataFrames: equal to row by row (formats/qlik.md 1, 4,
spec/change-model.md 1.2).
"""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession

from eventlog.changes.format import Report
from eventlog.changes.json_form import to_json
from eventlog.errors import ConfigError, FormatError
from eventlog.model import Change, ChangeOp
from eventlog.registry import format_named
from eventlog.spark.frames import change_tables as module
from eventlog.spark.frames.change_frame import SCHEMA, change_of
from eventlog.spark.frames.change_tables import (
    find_change_tables,
    live_view,
    read_change_table,
    read_rows,
)
from eventlog.spark.session.session import READS_TIMES

NOON = datetime(2026, 5, 10, 12, tzinfo=UTC)
AT = [{"name": "at", "type": "TIME"}] if READS_TIMES else []
ITEM = [
    {"name": "id", "type": "INT4", "pk": 1}, "name", {"name": "price", "type": "NUMERIC",
    "precision": 9, "scale": 2}, {"name": "day", "type": "DATE"}, {"name": "made",
    "type": "DATETIME"}, *AT, {"name": "photo", "type": "BYTES"}, {"name": "sold",
     "type": "BOOLEAN"}, {"name": "weight", "type": "REAL8"},
]  # fmt: skip
SHOP = [{"name": "no", "type": "INT8", "pk": 1}, "a.town"]
TABLES = {"app.item": {"columns": ITEM}, "app.shop": {"columns": SHOP}}
ROW = {
    "name": 'a "quoted", text', "price": Decimal("1.50"), "day": date(2024, 2, 29),
    "made": datetime(2024, 5, 6, 7, 8, 9, 123456), "photo": b"\0\xff", "sold": True,
    "weight": -0.25, **({"at": time(7, 8, 9, 120000)} if AT else {}),
}  # fmt: skip


def changes() -> Iterator[Change]:
    """Two tables whose transactions interleave, a TRUNCATE in the middle of one."""
    for n in range(1, 31):
        key = (("id", n % 5),)
        row = {"id": n % 5, **ROW, "name": ["", None, "text"][n % 3]}
        match n % 6:
            case 0:
                change = Change("app", "shop", ChangeOp.TRUNCATE)
            case 1 | 2:
                change = Change(
                    "app", "shop", ChangeOp.INSERT, (("no", n),), None, {"no": n, "a.town": "Ulm"}
                )
            case 3:
                change = Change("app", "item", ChangeOp.DELETE, key, {"id": n % 5})
            case _:
                change = Change(
                    "app",
                    "item",
                    ChangeOp.UPDATE,
                    key,
                    {**row, "name": "old"},
                    row,
                    frozenset({"name"}),
                )
        transaction = [None, f"{n // 4:032X}", f"{n // 7:032X}"][n % 20 // 7]
        yield change._replace(
            transaction_id=transaction, commit_time=NOON + timedelta(seconds=n * 40)
        )


def as_json(found: DataFrame) -> list[dict[str, Any]]:
    assert found.schema == SCHEMA
    return sorted(
        (to_json(change_of(row.asDict())) for row in found.collect()),
        key=lambda one: str(one["position"]),
    )


@pytest.mark.promise("spark read_change_table")
@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        pytest.param({"file_format": "parquet"}, {}, marks=pytest.mark.night),
        (
            {"file_format": "parquet", "partitioned": True},
            {"partitioned": True, "absent_nulls": "absent", "task": "t"},
        ),
        (
            {"file_format": "csv", "header_prefix": "h_", "byteorder": "big"},
            {"header_prefix": "h_", "tables": TABLES},
        ),
        ({"file_format": "json", "before_images": False, "suffix": "_log"}, {"suffix": "_log"}),
    ],
)
def test_the_same_changes_as_row_by_row(
    spark: SparkSession, tmp_path: Path, writer: dict[str, Any], reader: dict[str, Any]
) -> None:
    change_table = format_named("qlik-change-table")
    change_table.write(changes(), str(tmp_path), {"tables": TABLES, **writer}, Report(strict=True))
    expected = [
        to_json(change) for change in change_table.read(str(tmp_path), reader, Report(strict=True))
    ]
    assert as_json(read_change_table(spark, str(tmp_path), reader)) == expected


@pytest.mark.parametrize("file_format", ["csv", pytest.param("json", marks=pytest.mark.night)])
def test_compressed_files_are_read_together_with_others(
    spark: SparkSession, tmp_path: Path, file_format: str
) -> None:
    change_table = format_named("qlik-change-table")
    for _ in range(2):
        change_table.write(
            changes(), str(tmp_path), {"tables": TABLES, "file_format": file_format}, Report()
        )
    first = [min((tmp_path / f"app.{table}__ct").iterdir()) for table in ("item", "shop")]
    for part in first:
        part.with_name(f"{part.name}.gz").write_bytes(gzip.compress(part.read_bytes()))
        part.unlink()
    expected = [
        to_json(change)
        for change in change_table.read(str(tmp_path), {"tables": TABLES}, Report(strict=True))
    ]
    assert len(expected) == 60
    assert as_json(read_change_table(spark, str(tmp_path), {"tables": TABLES})) == expected
    part = part.with_name(f"{part.name}.gz")
    part.rename(part.with_suffix(".zst"))
    with pytest.raises(FormatError, match=r"cannot read \.zst"):
        read_change_table(spark, str(tmp_path))


def test_a_table_of_which_no_file_is_read_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "app.item__ct").mkdir()
    (tmp_path / "app.item__ct" / "part.dfm").write_text("{}", encoding="utf-8")
    with pytest.raises(FormatError, match="has no"):
        read_change_table(spark, str(tmp_path))
    (tmp_path / "app.item__ct" / "part.csv.bz2").write_bytes(b"")
    with pytest.raises(FormatError, match="decompress it"):
        read_change_table(spark, str(tmp_path))


@pytest.mark.parametrize(
    ("member", "code"),
    [
        ({"header__change_mask": 768}, "FormatError"),
        pytest.param({"header__timestamp": 20240510}, "FormatError", marks=pytest.mark.night),
        ({"id": [1]}, "Error"),
    ],
)
def test_json_that_would_pass_for_text_is_refused(
    spark: SparkSession, tmp_path: Path, member: dict[str, Any], code: str
) -> None:
    row = {
        "header__change_seq": f"2024051012000000{1:019}",
        "header__change_oper": "I",
        "header__change_mask": "10",
    }
    place = tmp_path / "item__ct" / "part.json"
    place.parent.mkdir()
    place.write_text(
        json.dumps({**row, "id": 1}) + "\n" + json.dumps({**row, **member}) + "\n", encoding="utf-8"
    )
    with pytest.raises(PythonException, match=f"{code}: part.json: "):
        read_change_table(spark, str(tmp_path)).collect()


def test_metadata_next_to_the_data_give_types_and_key(spark: SparkSession, tmp_path: Path) -> None:
    options = {"tables": TABLES, "file_format": "csv"}
    change_table = format_named("qlik-change-table")
    change_table.write(changes(), str(tmp_path), options, Report(strict=True))
    for table in ("item", "shop"):
        (part,) = (tmp_path / f"app.{table}__ct").iterdir()
        given = [
            {"name": one} if isinstance(one, str) else one
            for one in TABLES[f"app.{table}"]["columns"]
        ]
        columns = [
            {"ordinal": ordinal, "primaryKeyPos": one.get("pk", 0), "type": "STRING", **one}
            for ordinal, one in enumerate(given, 1)
        ]
        part.with_suffix(".dfm").write_text(
            json.dumps({"dataInfo": {"columns": columns}}), encoding="utf-8"
        )
    expected = [
        to_json(change)
        for change in change_table.read(str(tmp_path), {"tables": TABLES}, Report(strict=True))
    ]
    assert [
        to_json(change) for change in change_table.read(str(tmp_path), {}, Report(strict=True))
    ] == expected
    assert as_json(read_change_table(spark, str(tmp_path))) == expected


def test_text_that_is_not_utf_8_is_an_error_of_its_row(spark: SparkSession, tmp_path: Path) -> None:
    half = pa.StringArray.from_buffers(
        1, pa.py_buffer(struct.pack("<2i", 0, 1)), pa.py_buffer(b"\xff")
    )
    columns = {
        "header__change_seq": [f"2024051012000000{1:019}"],
        "header__change_oper": ["I"],
        "name": half,
    }
    (tmp_path / "item__ct").mkdir()
    pq.write_table(pa.table(columns), tmp_path / "item__ct" / "1.parquet")
    with pytest.raises(
        PythonException, match="FormatError: a batch of item: record 1: the value of column 'c2'"
    ):
        read_change_table(spark, str(tmp_path)).collect()


def test_a_time_of_day_that_this_spark_does_not_read_is_named(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {
        "header__change_seq": [f"2024051012000000{1:019}"],
        "header__change_oper": ["I"],
        "at": [time(7, 8)],
    }
    (tmp_path / "item__ct").mkdir()
    pq.write_table(pa.table(columns), tmp_path / "item__ct" / "1.parquet")
    monkeypatch.setattr(module, "READS_TIMES", False)
    with pytest.raises(
        FormatError,
        match=r"1\.parquet: column 'at' is a time of day, which Spark reads from 4\.1 on",
    ):
        read_change_table(spark, str(tmp_path))


def test_csv_files_with_other_columns_are_not_read_by_position(
    spark: SparkSession, tmp_path: Path
) -> None:
    head = "header__change_seq,header__change_oper"
    (tmp_path / "item__ct").mkdir()
    for number, names in ((1, "id,name"), (2, "name,id")):
        row = f"2024051012000000{number:019},I,1,a"
        (tmp_path / "item__ct" / f"{number}.csv").write_text(
            f"{head},{names}\n{row}\n", encoding="utf-8"
        )
    with pytest.raises(Exception, match="CSV header does not conform to the schema"):
        read_change_table(spark, str(tmp_path)).collect()


def test_members_that_only_later_objects_of_json_have_are_not_lost(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = tmp_path / "item__ct" / "part.json"
    place.parent.mkdir()
    rows = [
        {"header__change_seq": f"2024051012000000{n:019}", "header__change_oper": "I", "id": n}
        for n in (1, 2)
    ]
    place.write_text(
        "".join(json.dumps(row) + "\n" for row in (rows[0], {**rows[1], "name": "a"})),
        encoding="utf-8",
    )
    found = as_json(read_change_table(spark, str(tmp_path)))
    assert [one["after"] for one in found] == [{"id": "1", "name": None}, {"id": "2", "name": "a"}]


@pytest.mark.promise("spark find_change_tables", "spark live_view", "spark read_rows")
def test_rows_are_as_they_are_stored_and_the_live_view_takes_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    options = {"tables": TABLES, "file_format": "parquet"}
    format_named("qlik-change-table").write(changes(), str(tmp_path), options, Report(strict=True))
    item, shop = find_change_tables(str(tmp_path))
    assert [(table.schema, table.table) for table in (item, shop)] == [
        ("app", "item"),
        ("app", "shop"),
    ]
    rows = read_rows(spark, shop)
    assert rows.columns[-2:] == ["no", "a.town"]
    base = spark.createDataFrame([(1, "Bonn")], "no long, `a.town` string")
    assert sorted(live_view(base, rows, NOON + timedelta(minutes=3), key=["no"]).collect()) == [
        (1, "Ulm"),
        (2, "Ulm"),
    ]


def test_what_is_no_directory_of_change_tables_is_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(FormatError, match="not a directory of change tables"):
        read_change_table(spark, str(tmp_path / "nowhere"))
    with pytest.raises(FormatError, match="the names of change tables end in __ct"):
        read_change_table(spark, str(tmp_path))
    with pytest.raises(ConfigError, match="nearest known one is suffix"):
        read_change_table(spark, str(tmp_path), {"sufix": "_x"})
