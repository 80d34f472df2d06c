"""A backlog as Qlik change tables and messages: what the converter and the publisher make of the
same log.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from backlog_job import (
    LOG,
    SCHEMA,
    config_of,
    convert,
    copy,
    errors,
    fetch,
    leave_in_flight,
    log_rows,
    published_records,
    random_rows,
    statuses,
    statuses_of,
)
from pyspark.sql import DataFrame, SparkSession
from shared import execute

from eventlog import cli
from eventlog.changes.format import Report
from eventlog.changes.json_form import to_json
from eventlog.conversion import convert as convert_row_by_row
from eventlog.errors import ConfigError
from eventlog.model import ChangeOp
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.opening import open_unlocked
from eventlog.publisher.ledger.delivery import decode
from eventlog.qlik.messages.envelope import Message
from eventlog.qlik.messages.message_files import read_lines
from eventlog.qlik.messages.publish import class_columns
from eventlog.qlik.sequence import WriterState, next_sequence, sequence_at, time_prefix
from eventlog.qlik.tables.change_tables import refuse
from eventlog.registry import format_named
from eventlog.spark.backlog.backlog import Report as BacklogReport
from eventlog.spark.directory import JobDirectory
from eventlog.spark.frames.change_frame import change_of
from eventlog.spark.frames.change_tables import read_change_table
from eventlog.spark.frames.messages import read_messages
from eventlog.sql.dialects.postgresql import transaction_ids

ROWS = 900

TIMES = f"""
UPDATE {LOG} SET event_time = CASE WHEN record_id % 50 = 0 THEN NULL ELSE
    timestamp '2026-01-01 23:58:00' + record_id * interval '37.123456 ms' - (record_id % 11) * interval '1.5 s' END"""


@pytest.fixture
def full_log(log: sa.Engine) -> sa.Engine:
    """A log of transactions of three rows; every fourth row is of an unknown one."""
    log_rows(log, random_rows(ROWS, seed=11))
    set_times(log)
    with log.connect() as connection:
        for statement in transaction_ids.statements(LOG):
            connection.exec_driver_sql(statement)
        connection.exec_driver_sql(
            f"UPDATE {LOG} SET transaction_id = record_id / 3 WHERE record_id % 4 <> 0".replace(
                "%", "%%"
            )
        )
        connection.commit()
    return log


def set_times(log: sa.Engine) -> None:
    with log.connect() as connection:
        connection.exec_driver_sql(f"ALTER TABLE {LOG} ALTER COLUMN event_time DROP NOT NULL")
        connection.exec_driver_sql(TIMES.replace("%", "%%"))
        connection.commit()


def columns_of(log: sa.Engine) -> dict[str, dict[str, object]]:
    with open_unlocked(config_of(log), Counters()) as context:
        return {
            f"{SCHEMA}.{cls.name}": {"columns": [asdict(column) for column in class_columns(cls)]}
            for cls in context.catalog.classes
        }


def row_by_row(log: sa.Engine, out: Path, **options: object) -> Report:
    """The same log by ``eventlog convert``."""
    reader = {"schema_name": SCHEMA, "driver_user": "publisher", "status": "N"}
    writer = {"tables": columns_of(log), "file_format": "parquet", **options}
    url = log.url.render_as_string(hide_password=False)
    return convert_row_by_row(
        "eventlog", "qlik-change-table", url, str(out), {"reader": reader, "writer": writer}
    )


def changes_of(out: Path, **options: object) -> list[dict[str, object]]:
    """All changes of a directory of change tables, extras too."""
    return [
        to_json(change)
        for change in format_named("qlik-change-table").read(str(out), options, Report())
    ]


def of_frame(changes: DataFrame) -> list[dict[str, object]]:
    """The changes of a DataFrame in the order of their positions."""
    found = [to_json(change_of(row.asDict())) for row in changes.collect()]
    return sorted(found, key=lambda change: str(change["position"]))


def test_change_tables_are_those_of_the_converter_number_by_number(
    spark: SparkSession, full_log: sa.Engine, tmp_path: Path
) -> None:
    row_by_row(full_log, tmp_path / "rows")
    expected = changes_of(tmp_path / "rows")
    assert len(expected) > ROWS / 3
    assert {change["op"] for change in expected} == {"INSERT", "UPDATE", "DELETE"}
    transactions = {change["transaction_id"] for change in expected}
    assert None in transactions
    assert f"{ROWS // 6:032X}" in transactions
    chance = random.Random(3)
    out = tmp_path / "out"
    report = copy(
        config_of(full_log),
        out,
        format="qlik-change-table",
        partition_rows=chance.randint(ROWS // 9, ROWS // 3),
    )
    assert changes_of(out) == expected
    assert of_frame(read_change_table(spark, str(out))) == expected
    assert report.manifest.last_sequence == expected[-1]["position"]
    assert (out / "_change_sequence.json").read_text() == (
        tmp_path / "rows" / "_change_sequence.json"
    ).read_text()


# Messages

QLIK = {"format__type": "qlik-messages", "sink__type": "kafka", "sink__brokers": "127.0.0.1:1"}


def messages_of(out: Path) -> list[Message]:
    return [
        message for path in sorted(out.glob("part-*.jsonl")) for message in read_lines(path, refuse)
    ]


Told = tuple[str | None, bytes | None, object]
_STAMP = re.compile(rb'"lineage":\{[^}]*\}')


def told(topic: str | None, key: bytes | None, value: object) -> Told:
    """A record without what may differ: its number, and when metadata were written."""
    record = (
        json.loads(value)
        if isinstance(value, bytes)
        else json.loads(json.dumps(value, default=str))
    )
    if record["type"] == "DT":
        del record["message"]["headers"]["changeSequence"]
    else:
        del record["message"]["lineage"]["timestamp"]
    return topic, key, record


def sequences(messages: Iterable[Message]) -> list[str]:
    return [
        m.value["message"]["headers"]["changeSequence"] for m in messages if m.value["type"] == "DT"
    ]  # type: ignore[index,call-overload]


def test_messages_are_those_of_the_publisher(full_log: sa.Engine, tmp_path: Path) -> None:
    out = tmp_path / "out"
    report = copy(config_of(full_log), out, format="qlik-messages", partition_rows=ROWS // 5)
    ours = messages_of(out)
    before = statuses(full_log)
    sent = published_records(config_of(full_log, **QLIK))
    after = statuses(full_log)

    assert len(sent) > ROWS / 3
    assert any(f'"transactionId":"{ROWS // 6:032X}"'.encode() in (one.value or b"") for one in sent)
    assert [told(*message) for message in ours] == [
        told(record.topic, record.key, record.value) for record in sent
    ]
    assert statuses_of(out, report) == {
        i: after[i] for i, letter in before.items() if letter == "N"
    }
    assert [_without_position(line) for line in errors(full_log)] == sorted(
        map(_without_position, bad_rows(out, report))
    )


def _without_position(line: tuple[object, ...]) -> tuple[object, ...]:
    return *line[:2], re.sub(r"position \d+", "", str(line[2]))


def bad_rows(out: Path, report: BacklogReport) -> Iterator[tuple[object, ...]]:
    for part in report.manifest.parts:
        for row in pq.read_table(out / part.ids).to_pylist():
            if row["status"] == "E":
                yield row["first"], row["code"], row["message"]


def test_messages_are_numbered_as_the_writer_numbers_them(
    spark: SparkSession, full_log: sa.Engine, tmp_path: Path
) -> None:
    files = {}
    for rows in (ROWS, 300):
        copy(config_of(full_log), tmp_path / str(rows), format="qlik-messages", partition_rows=rows)
        files[rows] = b"".join(
            path.read_bytes() for path in sorted((tmp_path / str(rows)).glob("part-*.jsonl"))
        )
    assert _STAMP.sub(b"", files[ROWS]) == _STAMP.sub(b"", files[300])
    read = list(format_named("qlik-messages").read(str(tmp_path / "300"), {}, Report(strict=True)))
    assert of_frame(read_messages(spark, str(tmp_path / "300"))) == [
        to_json(change) for change in read
    ]
    state = WriterState()
    for change in read:
        with_before = change.before is not None and change.op is ChangeOp.UPDATE
        state, sequence = next_sequence(
            state, time_prefix(change.commit_time), with_before=with_before
        )
        assert change.position == sequence


def test_recorded_messages_come_first_with_the_sequences_they_were_sent_with(
    log: sa.Engine, tmp_path: Path
) -> None:
    log_rows(log, random_rows(600, seed=21))
    set_times(log)
    published_records(
        config_of(log, publisher__batch_size="10", publisher__mark_interval="0", **QLIK),
        documents=5,
    )
    log_rows(log, random_rows(100, seed=22, first=10_000))
    [(line,)] = fetch(log, f"SELECT content FROM {LOG}_inflight")
    delivery = decode(1, str(line))
    recorded = list(delivery.events())
    out = tmp_path / "out"
    report = convert(config_of(log), out, format="qlik-messages", mark=True)

    written = [m for m in messages_of(out) if m.value["type"] == "DT"]  # type: ignore[index,call-overload]
    first = {m.value["message"]["headers"]["streamPosition"]: n for n, m in enumerate(written)}  # type: ignore[index,call-overload]
    numbers = sequences(messages_of(out))
    assert numbers == sorted(numbers)
    sent_before = [record for record in recorded if record.event_id in first]
    assert sent_before  # an event that a message cannot hold has none
    for record in sent_before:
        assert numbers[first[record.event_id]] == sequence_at(delivery.first, record.place)
        assert first[record.event_id] < len(recorded)
    assert report.manifest.totals["rows_in_flight"] > 0
    assert "N" not in statuses(log).values()


def test_a_recorded_message_of_a_deleted_object_is_a_delete_as_the_publisher_sends_it(
    log: sa.Engine, tmp_path: Path
) -> None:
    log_rows(log, [(1, 6, "app", "usr", "idu=1", None, None, None)])
    set_times(log)
    published_records(config_of(log, **QLIK), documents=0)
    execute(log, "DELETE FROM hr.usr WHERE idu = 1")
    log_rows(log, [(2, 4, "app", "usr", "idu=1", None, None, None)])
    set_times(log)
    copy(config_of(log), tmp_path / "out", format="qlik-messages")
    sent = published_records(config_of(log, **QLIK))
    ours = messages_of(tmp_path / "out")
    assert [told(*message) for message in ours] == [
        told(record.topic, record.key, record.value) for record in sent
    ]
    headers = [m.value["message"]["headers"] for m in ours if m.value["type"] == "DT"]  # type: ignore[index,call-overload]
    assert [one["operation"] for one in headers] == ["DELETE", "DELETE"]


# Restarts, forms


def test_an_unfinished_job_starts_over_and_a_finished_job_only_marks(
    log: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_rows(log, random_rows(500, seed=23))
    leave_in_flight(config_of(log, publisher__batch_size="10"), documents=2)
    before = statuses(log)
    out = tmp_path / "out"
    partitioned = {"partitioned": True, "partition_seconds": 60}

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(JobDirectory, "finish", die)
        with pytest.raises(KeyboardInterrupt):
            convert(config_of(log), out, format="qlik-change-table", options=partitioned, mark=True)
    assert not (out / "_SUCCESS").exists()
    assert statuses(log) == before

    report = convert(config_of(log), out, format="qlik-change-table", mark=True)
    assert not report.resumed
    assert report.manifest.totals["rows_in_flight"] > 0
    folders = {file.name.split("/")[0] for file in report.manifest.files}
    assert folders == {"hr.usr__ct", "hr.grp__ct", "hr.view_emp__ct"}
    assert not list(out.glob("*__ct/partition_name=*"))
    assert "N" not in statuses(log).values()
    assert convert(config_of(log), out, format="qlik-change-table", mark=True).marked == 0
    assert len(changes_of(out)) == report.manifest.totals["events"]
    with pytest.raises(ConfigError, match=r'format\.type is "xds", was "qlik-change-table"'):
        convert(config_of(log), out)


@pytest.mark.parametrize(
    "file_layout",
    ["csv", *(pytest.param(layout, marks=pytest.mark.night) for layout in ("json", "parquet"))],
)
def test_forms_partitions_and_sizes(
    spark: SparkSession, log: sa.Engine, tmp_path: Path, file_layout: str
) -> None:
    log_rows(log, random_rows(1_500, seed=24))
    set_times(log)
    options = {"partitioned": True, "partition_seconds": 20}
    row_by_row(log, tmp_path / "rows", **{**options, "file_format": file_layout})
    out, most = tmp_path / "out", 128 * 1024
    config = config_of(log)
    report = copy(
        config,
        out,
        format="qlik-change-table",
        file_layout=file_layout,
        options=options,
        max_file_bytes=most,
    )
    assert max(file.bytes for file in report.manifest.files) <= most
    listed = changes_of(tmp_path / "rows", partitioned=True)
    assert changes_of(out, partitioned=True) == listed
    assert changes_of(out) == changes_of(tmp_path / "rows") != listed
    assert of_frame(read_change_table(spark, str(out), {"partitioned": True})) == listed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "csv"}, "format 'csv' is not known"),
        (
            {"format": "qlik-messages", "file_layout": "parquet"},
            "with format qlik-messages use one of",
        ),
        (
            {"format": "qlik-change-table", "options": {"sufix": "_x"}},
            "nearest known one is suffix",
        ),
        ({"format": "xds", "options": {"key": "none"}}, "takes no options"),
    ],
)
def test_invalid_options_are_named(
    log: sa.Engine, tmp_path: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        convert(config_of(log), tmp_path / "out", **options)


def test_the_command_line_takes_the_writers_options(
    log: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_rows(log, random_rows(200, seed=25))
    (tmp_path / "eventlog.toml").write_text('[database]\nschema_name = "hr"\n')
    (tmp_path / "map.toml").write_text(
        'before_images = false\nheaders = ["change_seq", "change_oper"]\n'
    )
    monkeypatch.setenv("EVENTLOG_DATABASE_URL", log.url.render_as_string(hide_password=False))
    last = "2031010100000000" + "7".zfill(19)
    done = cli.run([
        "--quiet", "backlog", "run", "--config", str(tmp_path / "eventlog.toml"), "--format",
        "qlik-change-table", "--options", str(tmp_path / "map.toml"), "--last-sequence", last, "--out",
        str(tmp_path / "out"),
    ])  # fmt: skip
    assert done == 0
    rows = [
        row
        for path in (tmp_path / "out").glob("*__ct/*.parquet")
        for row in pq.read_table(path).to_pylist()
    ]
    assert {row["header__change_oper"] for row in rows} <= {"I", "U", "D"}
    assert min(row["header__change_seq"] for row in rows) == "2031010100000000" + "8".zfill(19)
    assert "header__change_mask" not in rows[0]
