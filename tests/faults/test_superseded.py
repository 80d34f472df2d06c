"""Refused rows that a resync has logged again: the new row counts in their place, for each reader
by what it did with the new row (spec/event-log.md 11).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from publishers import Collecting, configuration, opened, write
from shared import Run, execute, fetch, url_of

from eventlog.config.load import Config
from eventlog.model import Answer, Document, EventResult, Level
from eventlog.publisher.context.observer import Measured
from eventlog.publisher.run.daemon import publish_once
from eventlog.sql import migrations

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[sa.Engine]:
    """A log whose class ``usr`` has the objects 1 to 3."""
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'app.db'}")
    execute(
        engine,
        "CREATE TABLE usr (idu integer PRIMARY KEY, fname text)",
        "INSERT INTO usr VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    )
    migrations.upgrade(engine, log_table="eventlog")
    yield engine
    engine.dispose()


@pytest.fixture
def command(log: sa.Engine, run: Run) -> Command:
    def command(*arguments: str) -> tuple[int, str, str]:
        return run("--database-url", url_of(log), *arguments)

    return command


def reader(log: sa.Engine, consumer: str) -> Config:
    if not consumer:
        return configuration(log)
    named = {"source__consumer": consumer, "source__start_from": "earliest"}
    return configuration(log, source__type="eventlog", **named)


def publish(log: sa.Engine, consumer: str, *refused: str) -> list[str]:
    """One run, whose receiver refuses the events of these objects; returns the event-ids."""

    def answer(document: Document) -> Answer:
        results = {
            event.event_id: EventResult(Level.ERROR, "no")
            for event in document.events
            if event.association.partition(",")[0] in refused
        }
        return Answer(results=results)

    sink = Collecting(answer)
    with opened(reader(log, consumer)) as context:
        publish_once(context, sink)
    return sink.event_ids


def of(consumer: str) -> list[str]:
    return ["--consumer", consumer] if consumer else []


def listed(command: Command, consumer: str = "") -> list[tuple[str, int, str, list[str]]]:
    """What ``errors`` lists: code, rows, message and commands of each group."""
    groups = json.loads(command("errors", *of(consumer), "--json")[1])["errors"]
    return [(one["code"], one["rows"], one["message"], one["commands"]) for one in groups]


def refused_rows(log: sa.Engine, consumer: str) -> int:
    """What the condition and the metric of an alert count."""
    with opened(reader(log, consumer)) as context:
        return Measured.read(context.log, consumer).refused_rows


WAITING = "sent again, waiting: `eventlog resync` has logged the object again"
READERS = pytest.mark.parametrize("consumer", ["", "search"])


@READERS
def test_the_command_that_errors_proposes_ends_the_alarm(
    log: sa.Engine, command: Command, consumer: str
) -> None:
    write(log, 1, 2, event_type=2)
    assert publish(log, consumer, "idu=1") == ["1", "2"]
    write(log, 1, event_type=2)
    publish(log, consumer)
    ((_, rows, message, commands),) = listed(command, consumer)
    assert (rows, message, commands) == (1, "no", ["eventlog resync usr --key idu=1"])
    code, out, err = command("resync", "usr", "--key", "idu=1")
    assert (code, "1 row was refused before" in err) == (0, True), out + err
    assert listed(command, consumer) == [("superseded", 1, WAITING, [])]
    assert refused_rows(log, consumer) == 1
    assert publish(log, consumer) == ["4"]
    assert listed(command, consumer) == []
    assert refused_rows(log, consumer) == 0
    assert "rows_failed" not in command("doctor")[1]
    assert "row 4 counts in its place" in command("explain", "1", *of(consumer))[1]


@READERS
def test_a_new_row_that_is_refused_counts_in_place_of_the_old_one(
    log: sa.Engine, command: Command, consumer: str
) -> None:
    write(log, 1, event_type=2)
    publish(log, consumer, "idu=1")
    command("resync", "usr", "--key", "idu=1")
    publish(log, consumer, "idu=1")
    requeue = f"--consumer {consumer}" if consumer else "--status E"
    assert listed(command, consumer) == [
        ("receiver", 1, "no", [f"eventlog requeue {requeue} --ids 2"])
    ]
    assert refused_rows(log, consumer) == 1
    command("resync", "usr", "--key", "idu=1")
    publish(log, consumer)
    assert (listed(command, consumer), refused_rows(log, consumer)) == ([], 0)


def test_each_reader_settles_its_own_refusal(log: sa.Engine, command: Command) -> None:
    write(log, 1, event_type=2)
    for consumer in ("", "search", "lake"):
        publish(log, consumer, *(["idu=1"] if consumer != "lake" else []))
    command("resync", "usr", "--key", "idu=1")
    entries = fetch(
        log,
        "SELECT record_id, consumer, superseded_by FROM eventlog_error WHERE code = 'superseded' "
        "ORDER BY consumer",
    )
    assert entries == [(1, None, 2), (1, "search", 2)]
    publish(log, "search")
    assert listed(command, "search") == []
    assert [code for code, *_ in listed(command)] == ["superseded"]
    assert listed(command, "lake") == []


def test_only_the_objects_that_are_logged_again_are_settled(
    log: sa.Engine, command: Command
) -> None:
    write(log, 1, 2, 3, event_type=2)
    publish(log, "", "idu=1", "idu=2", "idu=3")
    command("resync", "usr", "--where", "idu = 2", "--batch", "1")
    publish(log, "")
    assert [rows for _, rows, _, _ in listed(command)] == [2]
    command("resync", "usr", "--batch", "1")
    publish(log, "")
    assert listed(command) == []


def test_a_later_success_settles_nothing(log: sa.Engine, command: Command) -> None:
    write(log, 1, event_type=2)
    publish(log, "", "idu=1")
    write(log, 1, event_type=2)
    publish(log, "")
    assert refused_rows(log, "") == 1


@READERS
def test_a_deleted_object_is_settled_by_the_search_for_deletes(
    log: sa.Engine, command: Command, consumer: str
) -> None:
    write(log, 1, event_type=2)
    publish(log, consumer, "idu=1")
    execute(log, "DELETE FROM usr WHERE idu = 1")
    command("resync", "usr", "--deletes")
    publish(log, consumer)
    assert (listed(command, consumer), refused_rows(log, consumer)) == ([], 0)


def test_an_object_that_a_snapshot_could_not_send_is_settled(
    log: sa.Engine, command: Command
) -> None:
    named: dict[str, Any] = {"source__consumer": "search", "source__start_from": "snapshot"}
    config = configuration(log, source__type="eventlog", **named)

    def answer(document: Document) -> Answer:
        return Answer(
            results={
                one.event_id: EventResult(Level.ERROR, "no")
                for one in document.events
                if one.event_id.endswith(".usr.idu=1")
            }
        )

    with opened(config) as context:
        publish_once(context, Collecting(answer))
    ((code, *_, commands),) = listed(command, "search")
    assert (code, len(commands)) == ("receiver", 1)
    command("resync", "usr", "--key", "idu=1")
    assert listed(command, "search") == [("superseded", 1, WAITING, [])]
    publish(log, "search")
    assert listed(command, "search") == []


@READERS
def test_requeue_accepts_the_old_rows_by_its_own_rules(
    log: sa.Engine, command: Command, consumer: str
) -> None:
    """Rows of type 6 are never stale. A refusal that comes later counts again."""
    write(log, 1, event_type=6)
    publish(log, consumer, "idu=1")
    command("resync", "usr", "--key", "idu=1")
    publish(log, consumer)
    assert command("requeue", *of(consumer), "--ids", "1")[0] == 0
    assert listed(command, consumer) == []
    assert publish(log, consumer, "idu=1") == ["1"]
    assert [code for code, *_ in listed(command, consumer)] == ["receiver"]


def test_a_row_that_was_deleted_when_it_was_sent_is_done(log: sa.Engine, command: Command) -> None:
    write(log, 1, event_type=2)
    publish(log, "", "idu=1")
    command("resync", "usr", "--key", "idu=1")
    execute(log, "DELETE FROM eventlog WHERE record_id = 2")
    assert listed(command) == []


def test_a_log_of_an_earlier_revision_is_read_and_its_refusals_are_skipped_by_hand(
    log: sa.Engine, command: Command
) -> None:
    migrations.downgrade(log, log_table="eventlog", revision="internal@internal_3")
    write(log, 1, event_type=2)
    publish(log, "", "idu=1")
    write(log, 1, event_type=2)
    publish(log, "")
    ((_, _, _, commands),) = listed(command)
    assert commands == [
        "eventlog resync usr --key idu=1",
        "eventlog skip --refused --ids 1 --reason 'sent again'",
    ]
    code, _, err = command("resync", "usr", "--key", "idu=1")
    assert code == 0
    assert "no column superseded_by: add it with `eventlog db upgrade`" in err
    publish(log, "")
    assert refused_rows(log, "") == 1
    migrations.upgrade(log, log_table="eventlog")
    assert command("resync", "usr", "--key", "idu=1")[0] == 0
    publish(log, "")
    assert refused_rows(log, "") == 0
