"""Messages of files and topics as DataFrames of changes, and back: the same as row by row
(formats/qlik.md 5).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from eventlog.changes.format import Report
from eventlog.changes.json_form import to_json
from eventlog.errors import ConfigError
from eventlog.model import Change, ChangeOp
from eventlog.registry import format_named
from eventlog.spark.frames.change_frame import SCHEMA, batch_of, change_of
from eventlog.spark.frames.messages import read_messages, to_records, write_messages

pytest.importorskip("confluent_kafka", reason="the extra kafka is not installed")
from kafka_cluster import cluster

REFUSALS = (PySparkException, Py4JError)
"""What a query that fails raises, as the version has it: 4.0 the latter where rows go to a
function.
"""
NOON = datetime(2026, 5, 10, 12, tzinfo=UTC)
COLUMNS = {
    "app.item": [
        {"name": "id", "type": "INT4", "pk": 1},
        "name",
        {"name": "price", "type": "NUMERIC", "precision": 9, "scale": 2},
    ],
    "app.shop": [{"name": "no", "type": "INT8", "pk": 1}, "town"],
}  # fmt: skip


def changes(number: int) -> Iterator[Change]:
    for n in range(1, number + 1):
        position = f"2026051012000000{n:019}"
        change = Change(
            "app", "shop", ChangeOp.INSERT, (("no", n),), None, {"no": n, "town": "Ulm"}
        )
        if n % 3:
            before, after = (
                {"id": n, "name": None},
                {"id": n, "name": f"nut {n}", "price": Decimal("1.50")},
            )
            change = Change(
                "app", "item", ChangeOp.UPDATE, (("id", n),), before, after, frozenset({"name"})
            )
        moment = NOON + timedelta(milliseconds=n)
        yield change._replace(
            position=position, commit_time=moment, extras={"stream_position": f"p:{n}"}
        )


def frame(spark: SparkSession, several: list[Change]) -> DataFrame:
    rows = [row.values() for row in batch_of(several).to_pylist()]
    return spark.createDataFrame([tuple(row) for row in rows], SCHEMA)


def as_json(found: DataFrame) -> list[dict[str, Any]]:
    rows = [to_json(change_of(row.asDict())) for row in found.collect()]
    return sorted(rows, key=lambda change: str(change["position"]))


def row_by_row(several: list[Change], place: Path, options: dict[str, Any]) -> list[dict[str, Any]]:
    messages = format_named("qlik-messages")
    messages.write(several, str(place), options, Report(strict=True))
    return [to_json(change) for change in messages.read(str(place), {}, Report(strict=True))]


@pytest.mark.promise("spark read_messages", "spark write_messages")
@pytest.mark.parametrize("encoding", ["json", "avro"])
def test_written_and_read_back_they_are_what_the_converter_reads(
    spark: SparkSession, tmp_path: Path, encoding: str
) -> None:
    several = list(changes(40))
    options = {"columns": COLUMNS, "encoding": encoding}
    expected = row_by_row(several, tmp_path / "rows.jsonl", options)
    write_messages(frame(spark, several).repartition(3), str(tmp_path / "out"), options)
    assert as_json(read_messages(spark, str(tmp_path / "out"))) == expected
    # Metadata stand in the first file alone: those of the others are found there.
    lines = (tmp_path / "rows.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "cut").mkdir()
    for number in range(3):
        (tmp_path / "cut" / f"part-{number}.jsonl").write_bytes(
            b"".join(lines[number * 15 : number * 15 + 15])
        )
    assert as_json(read_messages(spark, str(tmp_path / "cut"))) == expected


def test_changes_without_sequences_are_numbered_in_their_order(spark: SparkSession) -> None:
    several = [change._replace(position=str(n)) for n, change in enumerate(changes(12), 1)]
    records = to_records(frame(spark, several).repartition(2), {"metadata": "none"}).collect()
    assert [row["topic"] for row in records[:3]] == ["app.item", "app.item", "app.shop"]
    assert b'"changeSequence":"20260510120000000000000000000000002"' in bytes(records[0]["value"])
    assert b'"changeSequence":"20260510120000010000000000000000020"' in bytes(records[-1]["value"])


def test_invalid_options_are_refused_immediately(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="needs the option registry"):
        to_records(frame(spark, []), {"metadata": "registry", "encoding": "avro"})


def test_topics_are_read_and_written_without_a_connector(spark: SparkSession) -> None:
    several = list(changes(30))
    large = several[0]._replace(after={"id": 1, "name": "nut" * 1000})
    with cluster() as kafka:
        url = f"kafka://{kafka.brokers}"
        write_messages(frame(spark, several), url, {"columns": COLUMNS})
        found = as_json(read_messages(spark, f"{url}/app.item,app.shop"))
        options = {"metadata": "none", "properties": {"message.max.bytes": 1000}}
        with pytest.raises(
            REFUSALS, match=r"FormatError: Kafka refuses a message for app\.item: .*too large"
        ):
            write_messages(frame(spark, [large]), url, options)
    assert [change["position"] for change in found] == [change.position for change in several]
    assert found[0]["before"] == {"id": 1, "name": None}
