"""The publisher for Python programs (docs/reference/api.md), on a SQLite file."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from eventlog import (
    Answer,
    Change,
    ChangeOp,
    ConfigError,
    Event,
    EventResult,
    FormatError,
    Level,
    Publisher,
    PublisherAlreadyRunning,
    ReceiverUnavailable,
    Report,
    read_changes,
    write_changes,
)
from eventlog.cli import run as eventlog


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A configuration; its database has a watched table."""
    monkeypatch.chdir(tmp_path)
    change("CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT)")
    url = ["--set", f"database.url=sqlite:///{tmp_path}/shop.db"]
    (tmp_path / "eventlog.toml").write_text('[[watch]]\ntable = "customer"\n')
    assert eventlog([*url, "db", "upgrade"]) == 0
    assert eventlog([*url, "triggers", "apply"]) == 0
    (tmp_path / "eventlog.toml").unlink()
    return {
        "database": {"url": f"sqlite:///{tmp_path}/shop.db"},
        "publisher": {"polling_interval": 1, "retry_initial": 0.1},
        "watch": [{"table": "customer"}],
    }


def change(*statements: str) -> None:
    with closing(sqlite3.connect("shop.db")) as database, database:
        for statement in statements:
            database.execute(statement)


class Received:
    """What a function was called with. ``answer`` is given to each document."""

    def __init__(self, answer: Answer | None = None) -> None:
        self.answer, self.events = answer, list[Event]()
        self.stop = threading.Event()

    def __call__(self, document: bytes, events: Sequence[Event]) -> Answer | None:
        assert document.startswith((b"<?xml", b"<nds"))
        self.events += events
        self.stop.set()
        return self.answer


def test_one_run_sends_what_waits_and_shows_what_it_did(shop: dict[str, Any]) -> None:
    change("INSERT INTO customer VALUES (1, 'Ada'), (2, 'Bob')")
    received = Received(Answer({"2": EventResult(Level.ERROR, "no")}))
    counters = Publisher.from_config(shop, sink=received, environ={}).run_once()
    assert [event.operation for event in received.events] == ["add", "add"]
    assert (counters.events_sent, counters.answers_success + counters.answers_error) == (2, 2)


def test_a_publisher_may_run_again_and_goes_on_counting(shop: dict[str, Any]) -> None:
    publisher = Publisher.from_config(shop, sink=Received(), environ={})
    for number in (1, 2):
        change(f"INSERT INTO customer VALUES ({number}, 'Ada')")
        assert publisher.run_once().events_sent == number


def test_a_daemon_runs_until_the_event_is_set(shop: dict[str, Any]) -> None:
    change("INSERT INTO customer VALUES (1, 'Ada')")
    received = Received()
    thread = threading.Thread(
        target=Publisher.from_config(shop, sink=received, environ={}).run, args=[received.stop]
    )
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert len(received.events) == 1


def test_a_log_has_one_publisher(shop: dict[str, Any]) -> None:
    change("INSERT INTO customer VALUES (1, 'Ada')")
    second = Publisher.from_config(shop, sink=Received(), environ={})
    refused = []

    def receive(document: bytes, events: Sequence[Event]) -> None:
        with pytest.raises(PublisherAlreadyRunning):
            second.run_once()
        refused.append(True)

    Publisher.from_config(shop, sink=receive, environ={}).run_once()
    assert refused == [True]


def test_what_a_function_could_not_receive_is_raised_and_sent_again(shop: dict[str, Any]) -> None:
    change("INSERT INTO customer VALUES (1, 'Ada')")

    def receive(document: bytes, events: Sequence[Event]) -> None:
        raise OSError("disk full")

    with pytest.raises(ReceiverUnavailable, match="disk full"):
        Publisher.from_config(shop, sink=receive, environ={}).run_once()
    received = Received()
    Publisher.from_config(shop, sink=received, environ={}).run_once()
    assert [event.event_id for event in received.events] == ["1"]


def test_all_that_is_wrong_with_a_mapping_is_named_without_a_file(shop: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as error:
        Publisher.from_config(
            {**shop, "publisher": {"batch_size": 0, "batchsize": 1}, "sink": 7}, environ={}
        )
    assert "the configuration: publisher.batch_size" in str(error.value)
    assert "the configuration: publisher.batchsize is not known" in str(error.value)
    assert "the configuration: sink must be a section" in str(error.value)


def test_a_mapping_may_hold_secrets_and_paths(shop: dict[str, Any], tmp_path: Path) -> None:
    secret = {**shop, "sink": {"token": "s3cret", "ca_file": tmp_path / "ca.pem"}}
    assert Publisher.from_config(secret, sink=Received(), environ={})
    file = tmp_path / "eventlog.toml"
    file.write_text('[sink]\ntoken = "s3cret"\n')
    with pytest.raises(ConfigError, match="a secret does not belong in this file"):
        Publisher.from_config(file, environ={})


def test_the_environment_overrides_a_mapping(shop: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="EVENTLOG_PUBLISHER_BATCH_SIZE"):
        Publisher.from_config(shop, environ={"EVENTLOG_PUBLISHER_BATCH_SIZE": "none"})


def test_messages_go_to_no_function(shop: dict[str, Any]) -> None:
    kafka = {"type": "kafka", "brokers": "localhost:1"}
    with pytest.raises(ConfigError, match="qlik-messages"):
        Publisher.from_config(
            {**shop, "format": {"type": "qlik-messages"}, "sink": kafka},
            sink=Received(),
            environ={},
        )


def test_a_source_that_is_no_log_is_followed_to_where_it_ends(tmp_path: Path) -> None:
    options: dict[str, Any] = {"labels": {"111": "shop:app.item"}}
    row = {"id": 1, "name": "nut"}
    change = Change("app", "item", ChangeOp.INSERT, (("id", 1),), after=row, transaction_id="7")
    tables = {"app.item": "id integer, name varchar(40,0)"}
    write_changes("gbase", [change], tmp_path / "capture", tables=tables, **options)
    options["keys"] = {"app.item": ["id"]}
    source = {
        "type": "gbase",
        "path": tmp_path / "capture",
        "position_url": f"sqlite:///{tmp_path}/position.db",
        "reader": options,
    }
    received = Received()
    counters = Publisher.from_config({"source": source}, sink=received, environ={}).run_once()
    assert [event.operation for event in received.events] == ["add"]
    assert counters.events_sent == 1


def test_changes_are_read_filtered_and_written(shop: dict[str, Any], tmp_path: Path) -> None:
    change(
        "INSERT INTO customer VALUES (1, 'Ada')",
        "UPDATE customer SET name = 'Eve'",
        "DELETE FROM customer",
    )
    changes = list(read_changes("eventlog", shop["database"]["url"]))
    assert [one.op for one in changes] == ["INSERT", "UPDATE", "DELETE"]
    report = write_changes("jsonl", iter(changes[1:]), tmp_path / "out.jsonl")
    assert report.written == 2
    assert list(read_changes("jsonl", tmp_path / "out.jsonl")) == changes[1:]


def test_what_cannot_be_read_is_counted_or_raised(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text("{}\n")
    report = Report()
    assert list(read_changes("jsonl", tmp_path / "bad.jsonl", report=report)) == []
    assert len(report.problems) == 1
    with pytest.raises(FormatError):
        list(read_changes("jsonl", tmp_path / "bad.jsonl", report=Report(strict=True)))


def test_formats_and_options_that_are_not_known_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="jsonl"):
        read_changes("json", tmp_path / "x")
    with pytest.raises(ConfigError, match="odd"):
        list(read_changes("jsonl", tmp_path / "x", odd=1))
    with pytest.raises(ConfigError, match="odd"):
        write_changes("jsonl", [], tmp_path / "x", odd=1)
