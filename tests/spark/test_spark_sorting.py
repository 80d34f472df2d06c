"""What Spark sorts (eventlog/spark/frames/sorting.py) comes in the order into which the readers bring it
in memory.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from loss_formats import TRIED
from loss_samples import SAMPLES
from pyspark.sql import SparkSession

from eventlog.changes.format import Report
from eventlog.changes.json_form import dumps
from eventlog.conversion import convert as convert_row_by_row
from eventlog.errors import ConfigError, FormatError
from eventlog.linter.format import write_export
from eventlog.model import Change, ChangeOp
from eventlog.registry import format_named
from eventlog.spark.frames.change_frame import change_of, read_inputs
from eventlog.spark.frames.convert import InputFailed, convert
from eventlog.spark.frames.inputs import inputs, read_input
from eventlog.spark.frames.sorting import sorted_format
from eventlog.testing.linter_emulator import TABLES, Workload, emulate

CODEC = {"codec": "eventlog-emulator-1"}


def export_in_disorder(directory: Path, seed: int, files: int, suffix: str) -> None:
    """An export whose rows stand in no order, over several files."""
    workload = Workload(seed=seed, transactions=40, servers=("DSTSRV", "OTHER"), unfinished=True)
    rows = [row for step in emulate(workload) for row in step.rows]
    Random(seed).shuffle(rows)
    for number in range(files):
        queue, attrs = directory / f"export-{number}{suffix}", directory / f"dispatch_attrs{suffix}"
        write_export(queue, attrs, rows[number::files], TABLES.values())


def both_ways(
    spark: SparkSession, format: str, source: Path, tmp_path: Path, options: Mapping[str, Any]
) -> tuple[list[str], list[str]]:
    """The changes of an input as lines: converted by Spark, and as the reader sorts it; the
    reports are the same.
    """
    done = convert(
        format, "jsonl", str(source), str(tmp_path / "out"), {"reader": options}, spark=spark
    )
    (converted,) = done.inputs
    (input,) = inputs(format, str(source), options)
    report = Report()
    in_memory = [dumps(change) for change in read_input(input, format, options, report)]
    assert (converted.read, converted.counters) == (report.read, dict(report.counters))
    assert sorted(converted.problems) == sorted(report.problems)
    assert converted.read > 5
    return (tmp_path / "out" / converted.output).read_text().splitlines(), in_memory


@pytest.mark.parametrize(
    "options",
    [{"order_by": "oper_date"}, {"destinations": "all"}, pytest.param({}, marks=pytest.mark.night)],
)
def test_an_export_in_any_order_is_read_in_the_order_of_the_log(
    spark: SparkSession, tmp_path: Path, options: dict[str, Any]
) -> None:
    source = tmp_path / "in"
    source.mkdir()
    export_in_disorder(source, seed=3, files=3, suffix=".parquet")
    found, in_memory = both_ways(spark, "linter", source, tmp_path, CODEC | options)
    assert found == in_memory


def test_several_exports_are_sorted_in_parallel_and_separately(
    spark: SparkSession, tmp_path: Path
) -> None:
    for name, seed in (("a", 1), ("b", 2), ("c", 1)):
        (tmp_path / "in" / name).mkdir(parents=True)
        export_in_disorder(tmp_path / "in" / name, seed, files=2, suffix=".csv")
    done = convert(
        "linter",
        "jsonl",
        str(tmp_path / "in"),
        str(tmp_path / "out"),
        {"reader": CODEC},
        spark=spark,
        strict=True,
    )
    for one in done.inputs:
        report = convert_row_by_row(
            "linter",
            "jsonl",
            str(tmp_path / "in" / one.name),
            str(tmp_path / "alone.jsonl"),
            {"reader": CODEC},
        )
        assert (tmp_path / "out" / one.output).read_bytes() == (
            tmp_path / "alone.jsonl"
        ).read_bytes()
        assert one.counters == report.counters
    assert (tmp_path / "out" / "a.jsonl").read_bytes() == (
        tmp_path / "out" / "c.jsonl"
    ).read_bytes()


def tables_in_disorder(directory: Path, file_format: str) -> None:
    """Change tables of transactions that change two tables; each of their files is read after the
    file that follows it.
    """
    changes = [
        Change("app", table, op, (("id", 1),), before, after, changed,
        transaction_id=f"{number // 4 + 1:032X}")
        for number in range(40)
        for table in ("item", "order")
        for op, before, after, changed in [
            (ChangeOp.UPDATE, {"id": 1, "n": number}, {"id": 1, "n": number + 1}, frozenset({"n"}))
            if number % 3
            else (ChangeOp.INSERT, None, {"id": 1, "n": number}, None)
        ]
    ]  # fmt: skip
    columns = [{"name": "id", "type": "INT4", "pk": 1}, {"name": "n", "type": "INT4"}]
    options = {
        "file_format": file_format,
        "tables": {f"app.{name}": {"columns": columns} for name in ("item", "order")},
    }
    for few in (changes[:30], changes[30:]):
        format_named("qlik-change-table").write(few, str(directory), options, Report(strict=True))
    for table in ("app.item__ct", "app.order__ct"):
        for number, path in enumerate(sorted((directory / table).iterdir(), reverse=True)):
            path.rename(path.with_name(f"{number}{path.suffix}"))


@pytest.mark.parametrize(
    "file_format",
    ["csv", *(pytest.param(one, marks=pytest.mark.night) for one in ("json", "parquet"))],
)
def test_change_tables_are_read_in_the_order_of_their_change_seq(
    spark: SparkSession, tmp_path: Path, file_format: str
) -> None:
    tables_in_disorder(tmp_path / "in", file_format)
    options = {"tables": {f"app.{name}": {"key": ["id"]} for name in ("item", "order")}}
    found, in_memory = both_ways(spark, "qlik-change-table", tmp_path / "in", tmp_path, options)
    assert found == in_memory
    assert [json.loads(line)["table"] for line in found[:4]] == ["item", "order", "item", "order"]
    numbers = [json.loads(line)["event_number"] for line in found]
    assert numbers == [*range(1, 9)] * 10


def test_unreadable_rows_of_change_tables_are_counted_wherever_they_are(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables_in_disorder(tmp_path / "in", "csv")
    for table in ("app.item__ct", "app.order__ct"):
        path = tmp_path / "in" / table / "0.csv"
        lines = path.read_text().splitlines()
        path.write_text("\n".join([*lines, f"x{lines[-1][1:]}"]) + "\n")
    found, in_memory = both_ways(spark, "qlik-change-table", tmp_path / "in", tmp_path, {})
    assert found == in_memory
    manifest = json.loads((tmp_path / "out" / "_manifest.json").read_text())
    assert manifest["captures"][0]["counters"] == {"bad_sequence": 2}


def test_an_input_that_is_not_complete_is_left_to_the_reader() -> None:
    assert sorted_format("qlik-change-table", {}) is not None
    assert sorted_format("qlik-change-table", {"input_complete": False}) is None


@pytest.mark.parametrize("with_catalog", [True, False])
def test_rows_of_a_log_in_any_order_are_sorted_on_request(
    spark: SparkSession, tmp_path: Path, with_catalog: bool
) -> None:
    SAMPLES["E"](tmp_path / "log.jsonl")
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    Random(5).shuffle(lines)
    (tmp_path / "in").mkdir()
    for number in range(3):
        (tmp_path / "in" / f"log-{number}.jsonl").write_text("\n".join(lines[number::3]) + "\n")
    reader = {
        name: value
        for name, value in TRIED["E"].reader.items()
        if with_catalog or name != "catalog"
    }
    found, in_memory = both_ways(
        spark, "eventlog", tmp_path / "in", tmp_path, reader | {"sort": True}
    )
    assert found == in_memory
    shutil.rmtree(tmp_path / "out")
    with pytest.raises(InputFailed, match="ascending record_id order"):
        convert(
            "eventlog", "jsonl", str(tmp_path / "in"), str(tmp_path / "out"), reader, spark=spark
        )


def test_the_frame_of_changes_is_sorted_as_well(spark: SparkSession, tmp_path: Path) -> None:
    export_in_disorder(tmp_path, seed=4, files=2, suffix=".jsonl")
    rows = read_inputs(spark, "linter", str(tmp_path), CODEC).collect()
    (input,) = inputs("linter", str(tmp_path), {})
    in_memory = list(read_input(input, "linter", CODEC, Report()))
    assert [change_of(row.asDict()).position for row in rows] == [
        change.position for change in in_memory
    ]


def test_an_unreadable_file_is_reported_for_its_capture(
    spark: SparkSession, tmp_path: Path
) -> None:
    for name in ("bad", "good"):
        (tmp_path / "in" / name).mkdir(parents=True)
        export_in_disorder(tmp_path / "in" / name, 6, files=2, suffix=".csv")
    broken = tmp_path / "in" / "bad" / "export-1.csv"
    broken.write_text(broken.read_text().replace("SYSLOG_ADDR", "ADDRESS"))
    done = convert(
        "linter",
        "jsonl",
        str(tmp_path / "in"),
        str(tmp_path / "out"),
        {"reader": CODEC},
        spark=spark,
    )
    bad, good = done.inputs
    assert bad.failed is not None
    assert "SYSLOG_ADDR" in bad.failed
    assert (good.failed, good.written > 5) == (None, True)
    with pytest.raises(ConfigError, match='order_by = "time" is not allowed'):
        convert(
            "linter",
            "jsonl",
            str(tmp_path / "in"),
            str(tmp_path / "x"),
            {"order_by": "time"},
            spark=spark,
        )
    with pytest.raises(FormatError, match="contains no"):
        list(
            read_input(
                inputs("linter", str(tmp_path / "in"), {})[0]._replace(paths=(tmp_path,)),
                "linter",
                {},
                Report(),
            )
        )
