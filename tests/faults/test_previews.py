"""What ``publish --dry-run`` and ``explain`` print is what is sent, time and user included."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from publishers import Collecting, configuration, make_log
from shared import execute

from eventlog.config.load import Config
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.opening import open_context, open_unlocked
from eventlog.publisher.inspect.explanation import explain
from eventlog.publisher.run.daemon import publish_once
from eventlog.publisher.send.cycle import dry_run, run_cycle
from eventlog.publisher.send.log_feed import recover
from eventlog.publisher.send.session import PublisherSession

WRITTEN = """INSERT INTO eventlog (event_type, event_time, perpetrator, table_name, table_key, column_name, new_value)
VALUES (1, '2026-03-01 12:00:00.25', 'alice', 'usr', 'idu=1', 'fname', 'Jack'),
       (1, '2026-03-02 13:00:00', 'bob', 'usr', 'idu=2', 'fname', 'Jill')"""


@pytest.fixture
def log(filled_database: Any) -> Iterator[sa.Engine]:
    with filled_database(make_log) as database:
        execute(database, WRITTEN)
        yield database


def previews(config: Config) -> tuple[list[Any], list[Any]]:
    """The documents of a dry run, and those of ``explain``, as JSON a line."""
    with open_unlocked(config, Counters()) as context:
        dry = [json.loads(line) for document in dry_run(context) for line in document.splitlines()]
    with open_unlocked(config, Counters()) as context:
        shown = [explain(context, record_id).document or "" for record_id in (1, 2)]
    return dry, [json.loads(line) for document in shown for line in document.splitlines()]


def sent(config: Config) -> list[Any]:
    sink = Collecting()
    with open_context(config, Counters()) as context:
        publish_once(context, sink)
    return [json.loads(line) for body in sink.bodies for line in body.splitlines()]


def test_cloudevents_are_printed_with_their_time_and_user(log: sa.Engine) -> None:
    config = configuration(
        log, format__type="cloudevents", sink__type="files", sink__directory="/nowhere"
    )
    dry, shown = previews(config)
    assert [event["time"] for event in dry] == ["2026-03-01T12:00:00.25Z", "2026-03-02T13:00:00Z"]
    assert [event["data"]["user"] for event in dry] == ["alice", "bob"]
    assert dry == shown == sent(config)
    assert previews(config)[1] == dry, "of rows that are done too"


def test_debeziums_events_are_printed_with_the_time_of_the_change(log: sa.Engine) -> None:
    execute(log, "INSERT INTO usr VALUES (1, 'Jack'), (2, 'Jill')")
    config = configuration(
        log,
        format__type="debezium",
        format__debezium__schemas_enable=False,
        sink__type="files",
        sink__directory="/nowhere",
    )
    dry, shown = previews(config)
    assert [event["source"]["ts_ms"] for event in dry] == [1772366400250, 1772456400000]
    for events in (dry, shown, made := sent(config)):
        for event in events:
            for name in [name for name in event if name.startswith("ts_")]:  # when it was written
                del event[name]
    assert dry == shown == made


def test_rows_in_delivery_are_printed_as_they_will_be_sent(log: sa.Engine) -> None:
    config = configuration(
        log, format__type="cloudevents", sink__type="files", sink__directory="/nowhere"
    )
    expected = previews(config)[0]
    with open_context(config, Counters()) as context:
        stopping = iter([False, True, True, True]).__next__
        run_cycle(PublisherSession(context, recover(context), Collecting(), stopping))
    dry, shown = previews(config)
    assert dry == shown == expected == sent(config)
