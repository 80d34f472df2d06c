"""Bulk conversion (spark.convert): the same changes as row by row, each input by itself, whole or
not at all.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import loss_formats
import pytest
from loss_formats import CATALOG, LETTERS, TRIED
from loss_samples import SAMPLES
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import SparkSession
from pyspark.sql import types as t
from shared import met

from eventlog import cli
from eventlog.changes.format import Report
from eventlog.changes.json_form import dumps
from eventlog.conversion import convert as convert_row_by_row
from eventlog.conversion import in_own_options
from eventlog.errors import ConfigError
from eventlog.model import Change, LogRow
from eventlog.registry import format_named
from eventlog.spark.frames.change_frame import change_of, read_inputs
from eventlog.spark.frames.convert import InputFailed, convert
from eventlog.spark.frames.inputs import inputs

register_pickle_by_value(
    loss_formats
)  # its function complete goes to workers that do not know the module

NAMES = [*LETTERS.values(), "jsonl"]
LETTER_OF = {name: letter for letter, name in LETTERS.items()}
JOINED = [
    *(("debezium", one) for one in ("debezium", "eventlog", "qlik-change-table", "qlik-messages")),
    *(("eventlog", one) for one in ("debezium", "gbase", "linter", "qlik-change-table")),
    *(("cloudevents", one) for one in ("eventlog", "qlik-messages")),
    *(("xds", one) for one in ("debezium", "eventlog")),
    *((one, "xds") for one in ("debezium", "gbase")),
    ("qlik-messages", "linter"),
]
"""Pairs that together reach the branches that no format reaches with any other."""


def options_of(format: str, side: str) -> Any:
    if format == "jsonl":
        return {"catalog": CATALOG}
    return getattr(TRIED[LETTER_OF[format]], "completing_writer" if side == "writer" else side)


def make_captures(place: Path, format: str) -> None:
    """Two inputs of a format: directories, or files where a format's files are inputs."""
    tried = TRIED[LETTER_OF.get(format, "E")]
    for name in ("a", "b"):
        if tried.target in ("tables", "queue"):
            SAMPLES[tried.letter](place / name)
        elif format == "jsonl":
            log = place.with_name(f"{name}.rows.jsonl")
            SAMPLES["E"](log)
            (place / f"{name}.jsonl").write_text(
                "".join(dumps(change) + "\n" for change in tried.read(log))
            )
        else:
            SAMPLES[tried.letter](place / f"{name}{Path(tried.target).suffix}")


def read_row_by_row(format: str, path: Path) -> list[Change]:
    options = in_own_options(format, "reader", options_of(format, "reader"))
    return list(format_named(format).read(str(path), options, Report(strict=True)))


def with_extras(changes: Sequence[Change]) -> Counter[str]:
    return Counter(map(dumps, changes))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    place = tmp_path / "in"
    place.mkdir()
    return place


@pytest.mark.promise("spark read_inputs")
@pytest.mark.parametrize("format", NAMES)
def test_reading_gives_the_rows_of_the_row_by_row_reader(
    spark: SparkSession, source: Path, format: str
) -> None:
    make_captures(source, format)
    frame = read_inputs(spark, format, str(source), options_of(format, "reader"))
    found = [change_of(row.asDict()) for row in frame.collect()]
    expected = [
        change for path in sorted(source.iterdir()) for change in read_row_by_row(format, path)
    ]
    assert len(expected) > 4
    assert with_extras(found) == with_extras(expected)


ITEM = t.StructType([
    t.StructField("id", t.IntegerType()),
    t.StructField("name", t.StringType()),
    t.StructField("price", t.DecimalType(9, 2)),
    t.StructField("made", t.TimestampNTZType()),
])  # fmt: skip


def test_with_the_columns_of_the_table_images_are_structs(
    spark: SparkSession, source: Path
) -> None:
    make_captures(source, "qlik-messages")
    frame = read_inputs(
        spark, "qlik-messages", str(source / "a.jsonl"), {"catalog": CATALOG}, columns=ITEM
    )
    assert frame.schema["before"].dataType == ITEM
    native = read_row_by_row("qlik-messages", source / "a.jsonl")
    rows = frame.collect()
    assert len(rows) == len(native)
    for row, change in zip(rows, native, strict=True):
        assert (row.op, row.position, row.commit_time is None) == (
            change.op.value, change.position, change.commit_time is None,
        )  # fmt: skip
        assert row.changed == (None if change.changed is None else sorted(change.changed))
        for image, struct, present in (
            (change.before, row.before, row.before_present),
            (change.after, row.after, row.after_present),
        ):
            if image is None:
                assert (struct, present) == (None, None)
                continue
            known = {name: image[name] for name in ITEM.names if name in image}
            assert present == sorted(known)
            assert {name: struct[name] for name in known} == known
            assert all(struct[name] is None for name in ITEM.names if name not in known)
    assert rows[0].after.made is None
    dear = [
        change
        for change in native
        if change.after is not None and (change.after.get("price") or 0) > 1.9
    ]
    assert frame.where("after.price > 1.9").count() == len(dear) > 0


def test_a_value_that_a_struct_type_cannot_hold_is_null_and_counted(
    spark: SparkSession, tmp_path: Path
) -> None:
    types = {"id": "integer", "price": "decimal(9,2)", "made": "timestamp"}
    columns = [{"name": name, "type": type} for name, type in types.items()]
    item = {"name": "item", "kind": "table", "columns": columns, "primary_key": ["id"]}
    catalog = {"dialect": "postgresql", "schema": "app", "tables": [item]}
    made = [
        ("1", "infinity"),
        ("2", "2024-02-29 01:02:03"),
        ("3", "0044-03-15 10:00:00 BC"),
        ("4", None),
    ]
    rows = [
        LogRow(number, "N", 1, None, "app", "item", f"id={number}", column, None, text)
        for number, column, text in [(int(key), "made", text) for key, text in made]
        + [(5, "price", "NaN")]
    ]
    with (tmp_path / "log.jsonl").open("w") as file:
        file.writelines(json.dumps(row._asdict()) + "\n" for row in rows)
    nulled = spark.sparkContext.accumulator(0)
    frame = read_inputs(
        spark,
        "eventlog",
        str(tmp_path / "log.jsonl"),
        {"catalog": catalog},
        columns=ITEM,
        nulled=nulled,
    )
    found = {row.after.id: (row.after.made, row.after_present) for row in frame.collect()}
    assert found == {
        1: (None, ["id", "made"]),
        2: (datetime(2024, 2, 29, 1, 2, 3), ["id", "made"]),
        3: (None, ["id", "made"]),
        4: (None, ["id", "made"]),
        5: (None, ["id", "price"]),
    }
    assert nulled.value == 3


@pytest.mark.promise("spark convert_inputs")
@pytest.mark.parametrize(("source_format", "target_format"), met(NAMES, NAMES, also=JOINED))
def test_each_capture_is_written_as_row_by_row(
    spark: SparkSession, source: Path, tmp_path: Path, source_format: str, target_format: str
) -> None:
    make_captures(source, source_format)
    map = {
        "reader": options_of(source_format, "reader"),
        "writer": options_of(target_format, "writer"),
    }
    done = convert(
        source_format, target_format, str(source), str(tmp_path / "out"), map, spark=spark
    )
    assert [one.name for one in done.inputs] == ["a", "b"]
    alone = tmp_path / ("alone.xmll" if target_format == "xds" else "alone.jsonl")
    if target_format in ("linter", "qlik-change-table"):
        alone = tmp_path / "alone"
    for path, one in zip(sorted(source.iterdir()), done.inputs, strict=True):
        report = convert_row_by_row(
            source_format, target_format, str(path), str(alone), map, report=True
        )
        written = tmp_path / "out" / one.output
        if written.is_dir() and target_format in ("eventlog", "qlik-messages", "gbase"):
            (written,) = written.iterdir()
        back = read_row_by_row(target_format, written)
        expected = read_row_by_row(target_format, alone)
        assert [change._replace(commit_time=None) for change in back] == [
            change._replace(commit_time=None) for change in expected
        ]
        assert (one.read, one.written, one.counters) == (
            report.read,
            report.written,
            dict(report.counters),
        )
        shutil.rmtree(alone) if alone.is_dir() else alone.unlink()
    assert done.report().read == sum(one.read for one in done.inputs)
    assert sorted(entry.name for entry in (tmp_path / "out").iterdir()) == sorted(
        ["_SUCCESS", "_manifest.json", *(one.output for one in done.inputs)]
    )


def test_files_that_continue_one_another_are_one_capture(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    SAMPLES["G"](tmp_path / "whole.cdc")
    data = (tmp_path / "whole.cdc").read_bytes()
    for number, start in enumerate(
        range(0, len(data), 101), 8
    ):  # cut within records; 10 comes after 9
        (source / f"shop.{number}.cdc").write_bytes(data[start : start + 101])
    SAMPLES["G"](source / "hr.cdc")
    (input, other) = inputs("gbase", str(source), {})
    assert (input.name, other.name) == ("hr", "shop")
    frame = read_inputs(spark, "gbase", str(source), TRIED["G"].reader)
    found = with_extras([change_of(row.asDict()) for row in frame.collect()])
    whole = with_extras(TRIED["G"].read(tmp_path / "whole.cdc"))
    assert found == whole + whole


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_the_export_of_a_queue_may_be_in_several_files(
    spark: SparkSession, source: Path, tmp_path: Path, suffix: str
) -> None:
    SAMPLES["L"](tmp_path / "queue")
    native = TRIED["L"].read(tmp_path / "queue")
    files = {"files": suffix[1:], **TRIED["L"].writer}
    format_named("linter").write(native, str(source), files, Report(strict=True))
    queue = source / f"dispatch_queue{suffix}"
    queue.rename(source / f"export-1{suffix}")
    (input,) = inputs("linter", str(source), {})
    assert [path.name for path in input.descriptions] == [f"dispatch_attrs{suffix}"]
    frame = read_inputs(spark, "linter", str(source), TRIED["L"].reader)
    assert frame.count() == len(native)


def xds_to_jsonl(spark: SparkSession, source: Path, target: Path, **more: Any) -> Any:
    return convert(
        "xds", "jsonl", str(source), str(target), {"catalog": CATALOG}, spark=spark, **more
    )


def test_a_finished_target_is_not_changed_and_an_unfinished_one_is_replaced(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    make_captures(source, "xds")
    out = tmp_path / "out"
    first = xds_to_jsonl(spark, source, out)
    again = xds_to_jsonl(spark, source, out)
    assert (first.resumed, again.resumed) == (False, True)
    assert again.report() == first.report()
    # As a run leaves it that was killed.
    (out / "_SUCCESS").unlink()
    manifest = json.loads((out / "_manifest.json").read_text())
    (out / "_STARTED").write_text(json.dumps({**manifest, "outputs": ["a.jsonl"]}))
    (out / "a.jsonl").write_text("half")
    (out / "_temporary").mkdir()
    assert not xds_to_jsonl(spark, source, out).resumed
    assert (out / "a.jsonl").read_text().count("\n") == 6
    with pytest.raises(
        ConfigError,
        match=r" from xds to jsonl\): the source, a format or an option differs\. Give another",
    ):
        convert("jsonl", "xds", str(source), str(out), spark=spark)
    with pytest.raises(ConfigError, match="an option differs"):
        xds_to_jsonl(spark, source, out, strict=True)


def test_directories_of_others_are_not_changed(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    make_captures(source, "xds")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="not the output of a conversion"):
        xds_to_jsonl(spark, source, tmp_path / "out")
    assert (tmp_path / "out" / "mine.txt").read_text() == "mine"
    with (source / "b.xmll").open("a") as file:
        file.write("<nds>\n")
    unfinished = tmp_path / "unfinished"
    with pytest.raises(InputFailed):
        xds_to_jsonl(spark, source, unfinished, strict=True)
    (unfinished / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"contains mine\.txt"):
        xds_to_jsonl(spark, source, unfinished, strict=True)
    assert (unfinished / "mine.txt").read_text() == "mine"


def test_an_unconvertible_change_is_skipped_or_stops_the_conversion(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    make_captures(source, "xds")
    with (source / "b.xmll").open("a") as file:
        file.write("<nds>\n")
    done = xds_to_jsonl(spark, source, tmp_path / "lenient").report()
    assert (done.read, done.counters) == (12, {"xds": 1})
    assert done.problems[0].startswith("b: ")
    with pytest.raises(InputFailed, match=r"b: .*b\.xmll, line 7"):
        xds_to_jsonl(spark, source, tmp_path / "strict", strict=True)
    assert not (tmp_path / "strict" / "_SUCCESS").exists()
    with pytest.raises(
        ConfigError, match="a: the xds reader: limits is not known; the nearest known one is limit"
    ):
        convert("xds", "jsonl", str(source), str(tmp_path / "wrong"), {"limits": 1}, spark=spark)


def test_the_command_converts_in_bulk(
    spark: SparkSession, source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    make_captures(source, "xds")
    command = [
        "convert",
        "--spark",
        "--from",
        "xds",
        "--to",
        "eventlog",
        "--json",
        str(source),
        str(tmp_path / "out"),
    ]
    assert cli.run(command) == 0
    report = json.loads(capfd.readouterr().out)
    assert (report["read"], report["written"]) == (12, 12)
    assert [one["output"] for one in report["captures"]] == ["a", "b"]
    assert (tmp_path / "out" / "b" / "rows.jsonl").exists()
    assert cli.run([one for one in command if one != "--json"]) == 0
    assert "is already complete" in capfd.readouterr().out
    for wrong, message in (
        (["--spark", str(source), "-"], "IN and OUT are directories"),
        (
            ["--master", "local[1]", str(source), str(tmp_path / "x")],
            "--master needs --spark",
        ),
        (["--spark", "kafka://host/topic", str(tmp_path / "x")], "Spark converts only"),
        (["--spark", str(tmp_path / "none"), str(tmp_path / "x")], "there is no file or directory"),
    ):
        assert cli.run(["convert", "--from", "xds", "--to", "jsonl", *wrong]) == 2
        assert message in capfd.readouterr().err


def test_a_worker_that_is_killed_leaves_nothing_and_its_capture_is_converted_again(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    make_captures(source, "qlik-messages")
    dead = tmp_path / "dead"

    def complete(schema: str | None, table: str, key: Any) -> Any:
        if not dead.exists():
            dead.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return loss_formats.complete(schema, table, key)

    map = {"reader": TRIED["K"].reader, "writer": {**TRIED["G"].writer, "complete": complete}}
    done = convert("qlik-messages", "gbase", str(source), str(tmp_path / "out"), map, spark=spark)
    assert dead.exists()
    assert [one.written for one in done.inputs] == [10, 10]
    assert sorted(path.name for path in (tmp_path / "out").rglob("*") if path.is_file()) == [
        "_SUCCESS", "_manifest.json", "capture.cdc", "capture.cdc",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ([], "contains no files of the format eventlog"),
        (["a.csv", "a.parquet"], "would both be written as 'a'"),
    ],
)
def test_captures_are_named_by_their_files(source: Path, made: list[str], message: str) -> None:
    for name in made:
        (source / name).touch()
    with pytest.raises(ConfigError, match=message):
        inputs("eventlog", str(source), {})


def test_numbers_at_the_end_of_names_order_the_files_of_a_capture(source: Path) -> None:
    names = [
        "db1-9",
        "db1-10",
        "db2-1",
        "log.2024-05-10T12",
        "log.2024-05-10T9",
        "3",
        "20",
        "hr",
        "v2",
    ]
    for name in names:
        (source / f"{name}.cdc").touch()
    found = {
        one.name: [path.stem for path in one.paths] for one in inputs("gbase", str(source), {})
    }
    assert found == {
        "3": ["3", "20"],
        "db1": ["db1-9", "db1-10"],
        "db2-1": ["db2-1"],
        "hr": ["hr"],
        "log": ["log.2024-05-10T9", "log.2024-05-10T12"],
        "v2": ["v2"],
    }


def test_documents_with_numbers_in_their_names_do_not_continue_one_another(source: Path) -> None:
    (source / "later").mkdir()
    for name in (
        "1.xml",
        "2.xml",
        "_SUCCESS",
        ".hidden.xml",
        "notes.txt",
        "later/3.xml",
        "later/4.xml",
    ):
        (source / name).touch()
    found = inputs("xds", str(source), {})
    assert [(one.name, len(one.paths)) for one in found] == [("1", 1), ("2", 1), ("later", 2)]
