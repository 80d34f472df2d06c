"""A backlog as CloudEvents: the events that the publisher sends, in its order
(formats/cloudevents.md).
"""

from __future__ import annotations

import json
import random
from contextlib import closing
from pathlib import Path

import sqlalchemy as sa
from backlog_job import (
    LOG,
    SCHEMA,
    Collector,
    config_of,
    convert,
    copy,
    fetch,
    files_of,
    leave_in_flight,
    log_rows,
    random_rows,
    statuses,
    statuses_of,
)
from shared import execute

from eventlog.changes.format import Report
from eventlog.changes.json_form import to_json
from eventlog.config.load import Config
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.opening import open_context
from eventlog.publisher.run.daemon import publish_once
from eventlog.registry import format_named
from eventlog.spark.frames.convert import convert as convert_on_spark

ROWS = 6_000
TIMES = f"""
ALTER TABLE {LOG} ALTER COLUMN event_time DROP NOT NULL;
UPDATE {LOG} SET event_time = CASE WHEN record_id % 50 = 0 THEN NULL ELSE
    timestamp '2026-01-01 23:58:00' + record_id * interval '37.123456 ms' END"""
EVENTS = {
    "format__type": "cloudevents",
    "format__cloudevents__event_type": "hr.{class}.{operation}",
}


def publish(config: Config) -> list[str]:
    """The events that the publisher sends, all of the queue."""
    sink = Collector([])
    with open_context(config, Counters()) as context, closing(sink):
        publish_once(context, sink)
    return [line for document in sink.documents for line in document.splitlines()]


def lines_of(out: Path) -> list[str]:
    return [line for file in files_of(out) for line in file.read_text().splitlines()]


def test_a_job_and_the_publisher_send_the_same_events_byte_for_byte(
    log: sa.Engine, tmp_path: Path
) -> None:
    rows = random_rows(ROWS, seed=41)
    log_rows(log, [next(rows) for _ in range(ROWS // 10)])
    execute(log, TIMES)
    leave_in_flight(config_of(log, publisher__batch_size="10"), documents=3)
    log_rows(log, rows)
    execute(log, TIMES)
    config, out, chance = config_of(log, **EVENTS), tmp_path / "out", random.Random(8)
    report = copy(
        config, out, format="cloudevents", partition_rows=chance.randint(ROWS // 9, ROWS // 3)
    )
    before = statuses(log)
    sent = publish(config)
    after = statuses(log)

    assert len(sent) > ROWS / 4
    assert lines_of(out) == sent
    assert statuses_of(out, report) == {
        record_id: after[record_id] for record_id, letter in before.items() if letter == "N"
    }
    events = [json.loads(line) for line in sent]
    assert {event["source"] for event in events} == {f"/{log.url.database}/{SCHEMA}/eventlog"}
    assert {event["type"] for event in events} >= {
        "hr.usr.insert",
        "hr.usr.update",
        "hr.grp.delete",
    }
    assert 0 < sum("time" not in event for event in events) < len(events) / 10


def test_events_keep_the_ids_that_they_were_sent_under(log: sa.Engine, tmp_path: Path) -> None:
    log_rows(
        log, [(number, 4, "app", "usr", f"idu={number}", None, None, None) for number in (1, 2, 3)]
    )
    leave_in_flight(config_of(log), documents=0)
    ((content,),) = fetch(log, f"SELECT content FROM {LOG}_inflight")
    line = json.loads(str(content))
    line["documents"][0]["events"] = {"1": {"attempts": 2}}
    execute(log, f"UPDATE {LOG}_inflight SET content = '{json.dumps(line)}'")
    convert(
        config_of(log),
        tmp_path / "out",
        format="cloudevents",
        options={"source": "urn:hr"},
        mark=True,
    )
    events = [json.loads(line) for line in lines_of(tmp_path / "out")]
    assert [(event["id"], event["source"]) for event in events] == [
        ("1", "urn:hr"),
        ("2.2", "urn:hr"),
        ("3", "urn:hr"),
    ]
    assert set(statuses(log).values()) == {"S"}


def test_captures_are_converted_from_and_to_events(log: sa.Engine, tmp_path: Path) -> None:
    log_rows(log, random_rows(500, seed=42))
    copy(config_of(log), tmp_path / "events", format="cloudevents")
    (file,) = files_of(tmp_path / "events")
    (tmp_path / "in").mkdir()
    file.rename(tmp_path / "in" / "hr.jsonl")
    done = convert_on_spark(
        "cloudevents", "cloudevents", str(tmp_path / "in"), str(tmp_path / "out"), {}, quiet=True
    )
    assert done.report().counters == {}
    read = format_named("cloudevents").read
    before, after = (
        [
            to_json(change)
            for change in read(str(tmp_path / place / "hr.jsonl"), {}, Report(strict=True))
        ]
        for place in ("in", "out")
    )
    assert [{**change, "extras": {}} for change in after] == [
        {**change, "extras": {}} for change in before
    ]
