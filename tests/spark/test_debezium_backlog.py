"""A backlog as change events of Debezium: those that the publisher sends of the same log
(formats/debezium.md).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from backlog_job import (
    config_of,
    convert,
    copy,
    errors,
    log_rows,
    published_records,
    random_rows,
    statuses,
    statuses_of,
)
from shared import execute

from eventlog.changes.format import Report
from eventlog.registry import format_named

ROWS = 1_500
DEBEZIUM = {"format__type": "debezium", "sink__type": "kafka", "sink__brokers": "127.0.0.1:1"}

Told = tuple[str | None, Any, Any]


def told(topic: str | None, key: Any, value: Any) -> Told:
    """A record without the time of its writing."""
    for name in ("ts_ms", "ts_us", "ts_ns"):
        (value or {}).get("payload", {}).pop(name, None)
    return topic, key, value


def of_file(out: Path) -> list[Told]:
    lines = [
        json.loads(line)
        for path in sorted(out.glob("part-*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    return [told(line["topic"], line["key"], line["value"]) for line in lines]


def of_publisher(log: sa.Engine, **options: str) -> list[Told]:
    sent = published_records(config_of(log, **DEBEZIUM, **options))
    return [
        told(one.topic, json.loads(one.key or b"null"), json.loads(one.value or b"null"))
        for one in sent
    ]


@pytest.mark.parametrize("missing", ["read_back", "placeholder"])
def test_change_events_are_those_of_the_publisher(
    log: sa.Engine, tmp_path: Path, missing: str
) -> None:
    log_rows(log, random_rows(ROWS, seed=11))
    out = tmp_path / "out"
    options = {
        "format__debezium__missing_columns": missing,
        "format__debezium__schemas_enable": "true",
    }
    report = copy(config_of(log, **options), out, format="debezium", partition_rows=ROWS // 5)
    before = statuses(log)
    ours, sent = of_file(out), of_publisher(log, **options)
    after = statuses(log)
    assert len(sent) > ROWS / 10
    assert {value["payload"]["op"] for _, _, value in sent if value is not None} >= {"c", "d"}
    assert ours == sent
    assert statuses_of(out, report) == {
        i: after[i] for i, letter in before.items() if letter == "N"
    }


def test_a_backlog_that_is_marked_is_read_back_as_changes(log: sa.Engine, tmp_path: Path) -> None:
    log_rows(log, random_rows(ROWS, seed=12))
    report = convert(config_of(log), tmp_path / "out", format="debezium", mark=True)
    read = Report(strict=True)
    changes = list(format_named("debezium").read(str(tmp_path / "out"), {}, read))
    assert len(changes) == sum(report.manifest.totals[name] for name in ("add", "modify", "delete"))
    assert "N" not in statuses(log).values()
    assert any(code == "receiver" for _, code, _ in errors(log)) == (
        report.manifest.totals.get("rows_invalid", 0) > 0
    )


def test_a_recorded_update_of_a_deleted_object_is_a_delete_as_the_publisher_sends_it(
    log: sa.Engine, tmp_path: Path
) -> None:
    log_rows(log, [(1, 2, "app", "usr", "idu=1", "fname", "a", "b")])
    published_records(config_of(log, **DEBEZIUM), documents=0)
    execute(log, "DELETE FROM hr.usr WHERE idu = 1")
    log_rows(log, [(2, 4, "app", "usr", "idu=1", None, None, None)])
    copy(config_of(log), tmp_path / "out", format="debezium")
    ours, sent = of_file(tmp_path / "out"), of_publisher(log)
    assert ours == sent
    assert [value["payload"]["op"] for _, _, value in sent if value is not None] == ["d", "d"]
