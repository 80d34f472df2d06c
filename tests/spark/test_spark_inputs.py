"""The inputs of a directory, and the errors for inputs that cannot be converted."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
from loss_formats import TRIED
from loss_samples import SAMPLES
from pyspark.sql import SparkSession

from eventlog import cli
from eventlog.conversion import convert as convert_alone
from eventlog.errors import ConfigError
from eventlog.spark.frames.convert import Conversion, InputFailed, convert
from eventlog.spark.frames.inputs import inputs

MAP = {"reader": TRIED["G"].reader}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    place = tmp_path / "in"
    place.mkdir()
    return place


def to_lines(
    spark: SparkSession, source: Path, target: Path, *, strict: bool = False
) -> Conversion:
    return convert("gbase", "jsonl", str(source), str(target), MAP, spark=spark, strict=strict)


@pytest.mark.parametrize(
    ("names", "in_order"),
    [
        (["input.1", "input.10", "input.2"], ["input.1", "input.2", "input.10"]),
        (["shop.cdc.01", "shop.cdc.02"], ["shop.cdc.01", "shop.cdc.02"]),
        (
            ["input.1.cdc", "input.10.cdc", "input.2.cdc"],
            ["input.1.cdc", "input.2.cdc", "input.10.cdc"],
        ),
        (
            ["shop_007.cdc", "shop_010.cdc", "shop_0009.cdc"],
            ["shop_007.cdc", "shop_0009.cdc", "shop_010.cdc"],
        ),
        (
            ["shop.20240510T235959.cdc", "shop.20240511T000000.cdc", "shop.20240510T9.cdc"],
            ["shop.20240510T9.cdc", "shop.20240510T235959.cdc", "shop.20240511T000000.cdc"],
        ),
        (
            ["shop-2024-05-10.cdc", "shop-2024-4-30.cdc"],
            ["shop-2024-4-30.cdc", "shop-2024-05-10.cdc"],
        ),
        (
            ["_SUCCESS", ".shop-1.cdc.crc", "_temporary", "shop-1.cdc", "shop-2.cdc"],
            ["shop-1.cdc", "shop-2.cdc"],
        ),
    ],
)
def test_files_continue_one_another_in_the_order_of_their_numbers(
    source: Path, names: list[str], in_order: list[str]
) -> None:
    for name in names:
        (source / name).touch()
    (source / ".hidden").mkdir()
    (input,) = inputs("gbase", str(source), {})
    assert [path.name for path in input.paths] == in_order


@pytest.mark.parametrize(
    "name", ["item__ct.csv", "item__ct.csv.gz", "item__CT.jsonl.gz", "item__ct.csv.bz2"]
)
def test_a_file_that_is_a_change_table_is_one_of_a_capture(source: Path, name: str) -> None:
    (source / name).touch()
    (input,) = inputs("qlik-change-table", str(source), {})
    assert input.paths == (source,)


def test_compressed_change_tables_with_metadata_are_converted_by_spark_as_without(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    (source / "app.item__ct").mkdir()
    head = "header__change_seq,header__change_oper,header__change_mask,id,name"
    rows = [f"2024051012000000{number:019},I,18,{number},a" for number in range(1, 4)]
    part = source / "app.item__ct" / "1.csv.gz"
    part.write_bytes(gzip.compress("\n".join([head, *rows]).encode()))
    columns = [{"ordinal": 1, "name": "id", "type": "INT4", "primaryKeyPos": 1}]
    (source / "app.item__ct" / "1.dfm").write_text(
        json.dumps({"dataInfo": {"columns": columns}}), encoding="utf-8"
    )
    convert(
        "qlik-change-table",
        "jsonl",
        str(source),
        str(tmp_path / "out"),
        {},
        spark=spark,
        strict=True,
    )
    convert_alone("qlik-change-table", "jsonl", str(source), str(tmp_path / "alone.jsonl"), {})
    (written,) = (tmp_path / "out").glob("*.jsonl")
    assert written.read_bytes() == (tmp_path / "alone.jsonl").read_bytes()
    assert b'"key":[["id",3]]' in written.read_bytes()
    part.rename(part.with_name("1.csv.bz2"))
    with pytest.raises(InputFailed, match="decompress it"):
        convert(
            "qlik-change-table",
            "jsonl",
            str(source),
            str(tmp_path / "bad"),
            {},
            spark=spark,
            strict=True,
        )


@pytest.mark.parametrize(
    ("names", "gaps"),
    [
        (["shop-1", "shop-2", "shop-3"], []),
        (["shop-7", "shop-8"], []),
        (["shop-1", "shop-2", "shop-4"], ["3 is missing between"]),
        (
            ["shop-0001", "shop-0005", "shop-0007"],
            ["2 to 4 are missing between", "6 is missing between"],
        ),
        (["shop-10", "shop-20", "shop-40"], []),  # not counted one by one
        (["shop-2024-05-10", "shop-2024-05-12"], []),
        (["shop-20240510", "shop-20240511", "shop-20240513"], []),
        (["shop-1-1", "shop-1-3"], []),
    ],
)
def test_a_file_that_is_missing_in_between_is_named(
    source: Path, names: list[str], gaps: list[str]
) -> None:
    for name in names:
        (source / f"{name}.cdc").touch()
    (input,) = inputs("gbase", str(source), {})
    assert [gap.partition(f" {source}")[0] for gap in input.missing] == gaps


def test_a_missing_file_is_counted_or_stops_it(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    for number in (1, 2, 4):
        SAMPLES["G"](source / f"shop-{number}.cdc")
    done = to_lines(spark, source, tmp_path / "out").report()
    assert done.counters["missing_file"] == 1
    message = (
        "3 is missing between {0}/shop-2.cdc and shop-4.cdc, whose names are numbered in sequence"
    )
    assert f"shop: {message.format(source)} [missing_file]" in done.problems
    with pytest.raises(InputFailed, match="shop: 3 is missing between"):
        to_lines(spark, source, tmp_path / "strict", strict=True)


def test_the_files_of_a_directory_continue_one_another(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    SAMPLES["G"](tmp_path / "whole.cdc")
    data = (tmp_path / "whole.cdc").read_bytes()
    (source / "shop").mkdir()
    for number, start in enumerate(range(0, len(data), 101), 8):  # 10 comes after 9
        (source / "shop" / f"{number}.cdc").write_bytes(data[start : start + 101])
    for name in ("_SUCCESS", ".8.cdc.crc"):
        (source / "shop" / name).write_bytes(b"other")
    (done,) = to_lines(spark, source, tmp_path / "out", strict=True).inputs
    assert (done.name, done.read) == ("shop", len(TRIED["G"].read(tmp_path / "whole.cdc")))


def test_an_unreadable_capture_is_named_and_the_others_are_converted(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    SAMPLES["G"](source / "good.cdc")
    data = (source / "good.cdc").read_bytes()
    (source / "bad-1.cdc").write_bytes(data[:150])
    (source / "bad-2.cdc").write_bytes(data[170:])
    (source / "empty.cdc").touch()
    (source / "gone.cdc").symlink_to(tmp_path / "nowhere")
    (source / "packed.cdc.gz").write_bytes(b"\x1f\x8b")
    out = tmp_path / "out"
    done = to_lines(spark, source, out)
    found = {one.name: one.failed for one in done.inputs}
    assert {name for name, failed in found.items() if failed is None} == {"good", "empty"}
    assert found["packed.cdc"] == f"{source}/packed.cdc.gz is compressed. Decompress it first"
    assert f"{source}/bad-" in str(found["bad"])
    assert (
        found["gone"] == f"the stream {source}/gone.cdc cannot be read: No such file or directory"
    )
    assert done.report().counters["captures_failed"] == 3
    assert sorted(entry.name for entry in out.iterdir()) == [
        "_SUCCESS", "_manifest.json", "empty.jsonl", "good.jsonl",
    ]  # fmt: skip
    with pytest.raises(InputFailed, match="bad: "):
        to_lines(spark, source, tmp_path / "strict", strict=True)
    assert not (tmp_path / "strict" / "_SUCCESS").exists()

    # The same command again tries those again that failed, and leaves the others.
    (out / "good.jsonl").write_text("as it was\n")
    (source / "bad-2.cdc").write_bytes(data[150:])
    again = to_lines(spark, source, out)
    assert [one.name for one in again.inputs if one.failed is not None] == ["gone", "packed.cdc"]
    assert (out / "good.jsonl").read_text() == "as it was\n"
    assert (out / "bad.jsonl").read_text().count("\n") == len(TRIED["G"].read(source / "good.cdc"))
    for name in ("gone.cdc", "packed.cdc.gz"):
        (source / name).unlink()
    last = to_lines(spark, source, out)
    assert (last.resumed, last.report().counters["captures_failed"]) == (True, 2)


def test_a_capture_that_does_not_fit_the_options_does_not_stop_the_others(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    for name in ("a", "b", "c"):
        SAMPLES["E"](source / f"{name}.jsonl")
    (source / "b.jsonl").write_text('{"no": 1}\n')
    done = convert("eventlog", "jsonl", str(source), str(tmp_path / "out"), spark=spark)
    assert [one.failed is None for one in done.inputs] == [True, False, True]
    assert "has no columns record_id" in str(done.inputs[1].failed)
    with pytest.raises(
        ConfigError, match=r"attrs names one file, but each input needs a separate file"
    ):
        convert(
            "eventlog",
            "linter",
            str(source),
            str(tmp_path / "x"),
            {"reader": {}, "writer": {"attrs": "a.csv"}},
        )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read_is_named(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        SAMPLES["G"](source / f"{name}.cdc")
    (source / "b.cdc").chmod(0)
    done = to_lines(spark, source, tmp_path / "out")
    assert done.inputs[1].failed == f"the stream {source}/b.cdc cannot be read: Permission denied"


def test_two_captures_with_the_same_table_are_two_outputs(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    for name in ("monday", "tuesday"):
        SAMPLES["G"](source / f"{name}.cdc")
    convert("gbase", "qlik-change-table", str(source), str(tmp_path / "out"), MAP, spark=spark)
    for name in ("monday", "tuesday"):
        assert (tmp_path / "out" / name / "app.item__ct").is_dir()


def test_if_no_capture_can_be_converted_nothing_is_finished(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    (source / "bad.cdc").write_bytes(b"no stream, by any means: " * 9)
    with pytest.raises(InputFailed, match=r"bad: .*bad\.cdc"):
        to_lines(spark, source, tmp_path / "out")
    assert not (tmp_path / "out" / "_SUCCESS").exists()


def test_invalid_options_leave_an_empty_directory(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    SAMPLES["G"](source / "a.cdc")
    out = str(tmp_path / "out")
    for map, message in (
        ({"reader": {"lables": {}}}, "lables is not known; the nearest known one is labels"),
        ({**MAP, "writer": {"form": "lines"}}, "form is not known; "),
    ):
        with pytest.raises(ConfigError, match=message):
            convert("gbase", "jsonl", str(source), out, map, spark=spark)
    assert to_lines(spark, source, tmp_path / "out").inputs[0].written > 5
    with pytest.raises(ConfigError, match="is inside IN"):
        to_lines(spark, source, source / "out")


def test_the_command_prints_what_was_not_converted(
    spark: SparkSession, source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    SAMPLES["G"](source / "good.cdc")
    (source / "bad.cdc").write_bytes((source / "good.cdc").read_bytes()[9:])
    map = tmp_path / "map.json"
    map.write_text('{"reader": {"labels": {"1": "shop:app.item"}}}')
    out = tmp_path / "out"
    assert (
        cli.run(
            [
                "convert",
                "--spark",
                "--from",
                "gbase",
                "--to",
                "jsonl",
                "--options",
                str(map),
                str(source),
                str(out),
            ]
        )
        == 0
    )
    said, err = capfd.readouterr()
    assert "skipped: bad, not converted: " in err
    assert f"1 input in {out}, 1 not converted" in said
