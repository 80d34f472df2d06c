"""A consumer's events go to the receiver of the consumer's configuration, which the log records."""

from __future__ import annotations

import json
import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from shared import Run

from eventlog import Publisher
from eventlog.sql import migrations

BASE = '[database]\nurl = "sqlite:///shop.db"\n[[watch]]\ntable = "item"\n'


@pytest.fixture
def shop(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Configurations of the publisher and of the consumer search, each with its own sink. The
    consumer has processed one row of two.
    """
    monkeypatch.chdir(tmp_path)
    write("eventlog", BASE, sink("main"))
    write("search", BASE, source("search", start_from="earliest"), sink("index"))
    change("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT)")
    assert run("db", "upgrade")[0] == 0
    assert run("triggers", "apply")[0] == 0
    change("INSERT INTO item VALUES (1, 'a')")
    assert run("-c", "search.toml", "publish", "--once")[0] == 0
    change("INSERT INTO item VALUES (2, 'b')")
    return run


def write(name: str, *parts: str) -> None:
    Path(f"{name}.toml").write_text("".join(parts))


def sink(directory: str) -> str:
    return f'[sink]\ntype = "files"\ndirectory = "{directory}"\n'


def source(consumer: str, **options: Any) -> str:
    lines = {"consumer": consumer, **options}
    return "[source]\n" + "".join(f"{key} = {json.dumps(one)}\n" for key, one in lines.items())


def change(statement: str) -> list[Any]:
    with closing(sqlite3.connect("shop.db")) as db, db:
        return db.execute(statement).fetchall()


def listed(run: Run) -> dict[str, Any]:
    (consumer,) = json.loads(run("consumers", "list", "--json")[1])["consumers"]
    return dict(consumer)


def files(directory: str) -> str:
    """How the log names the sink that writes to a directory."""
    return f'files, directory = "{Path(directory).absolute()}"'


def names(directory: str) -> list[str]:
    """Which objects the receiver with this directory got."""
    files = sorted(Path(directory).glob("[!.]*")) if Path(directory).exists() else []
    text = "".join(one.read_text() for one in files)
    return [name for name in ("a", "b", "c") if f">{name}<" in text]


@pytest.mark.parametrize(
    "named",
    [
        ("publish", "--once", "--consumer", "search"),
        ("--set", "source.consumer=search", "publish", "--once"),
        ("--set", "source.consumer=search", "publish", "--once", "--consumer", "search"),
        ("publish", "--dry-run", "--consumer", "search"),
    ],
    ids=" ".join,
)
def test_a_consumers_events_are_not_sent_to_the_sink_of_the_publishers_configuration(
    shop: Run, named: tuple[str, ...]
) -> None:
    code, _, err = shop(*named)
    assert code == 2
    assert "nothing is sent for the consumer search: eventlog.toml names no consumer" in err
    assert f"its sink ({files('main')})" in err
    assert "EVENTLOG_SOURCE_CONSUMER=search" in err
    assert (names("main"), listed(shop)["rows_behind"]) == ([], 1)


def test_a_reader_can_be_configured_by_the_command_line_alone(shop: Run) -> None:
    sink = ("--set", "sink.type=files", "--set", "sink.directory=index")
    assert shop("--set", "source.consumer=search", *sink, "publish", "--once")[0] == 0
    assert names("index") == ["a", "b"]


def test_the_message_names_the_consumer_of_the_configuration(shop: Run) -> None:
    code, _, err = shop("-c", "search.toml", "publish", "--once", "--consumer", "audit")
    assert (code, "search.toml is for the consumer search" in err) == (2, True)
    assert listed(shop)["name"] == "search"


def test_the_option_is_accepted_with_the_consumers_own_file(shop: Run) -> None:
    assert shop("-c", "search.toml", "publish", "--once", "--consumer", "search")[0] == 0
    assert (names("index"), listed(shop)["rows_behind"]) == (["a", "b"], 0)


def test_one_file_serves_several_consumers_by_the_environment(
    shop: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENTLOG_SOURCE_CONSUMER", "audit")
    monkeypatch.setenv("EVENTLOG_SOURCE_START_FROM", "earliest")
    monkeypatch.setenv("EVENTLOG_SINK_DIRECTORY", "audit")
    assert shop("-c", "search.toml", "publish", "--once", "--consumer", "audit")[0] == 0
    assert names("audit") == ["a", "b"]
    code, _, err = shop("-c", "search.toml", "publish", "--once", "--consumer", "search")
    assert (code, "is for the consumer audit" in err) == (2, True)


def test_the_start_and_the_list_of_consumers_show_sink_and_classes(
    shop: Run, caplog: pytest.LogCaptureFixture
) -> None:
    write("search", BASE, source("search", classes=["item"]), sink("index"))
    assert shop("-c", "search.toml", "publish", "--once")[0] == 0
    said = f"publishing the log eventlog as consumer search: item to {files('index')}"
    assert said in caplog.text
    assert (listed(shop)["sink"], listed(shop)["classes"]) == (files("index"), ["item"])
    headings, line = shop("consumers", "list")[1].splitlines()
    assert headings.split()[-3:] == ["classes", "sink", "paused"]
    assert line.endswith(f"item     {files('index')}  -")


def test_a_change_of_sink_or_classes_is_reported_and_the_place_stays(
    shop: Run, caplog: pytest.LogCaptureFixture
) -> None:
    write("search", BASE, source("search", classes=["item"]), sink("new"))
    assert shop("-c", "search.toml", "publish", "--once")[0] == 0
    assert (
        f"consumer search of the log eventlog now sends item to {files('new')}; when it last "
        f"started, it sent all classes to {files('index')}"
    ) in caplog.text
    assert names("new") == ["b"]
    caplog.clear()
    assert shop("-c", "search.toml", "publish", "--once")[0] == 0
    assert "when it last started" not in caplog.text


def test_the_same_directory_by_another_path_is_no_change(
    shop: Run, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    assert shop("-c", str(tmp_path / "search.toml"), "publish", "--once")[0] == 0
    assert "when it last started" not in caplog.text


def test_a_reset_keeps_what_the_last_start_recorded(shop: Run) -> None:
    assert shop("consumers", "reset", "search", "--start-from", "earliest", "--yes")[0] == 0
    assert listed(shop)["sink"] == files("index")


def test_no_secret_of_the_sink_is_recorded_or_logged(
    shop: Run, caplog: pytest.LogCaptureFixture
) -> None:
    url = "http://me:pass@127.0.0.1:1/in?key=hidden"
    write("search", BASE, source("search"), f'[sink]\ntype = "http"\nurl = "{url}"\n')
    err = shop("-c", "search.toml", "publish", "--once")[2]
    assert 'all classes to http, url = "http://***@127.0.0.1:1/in"' in caplog.text
    assert listed(shop)["sink"] == 'http, url = "http://***@127.0.0.1:1/in"'
    for secret in ("me:pass", "hidden"):
        assert secret not in caplog.text + err


def test_a_program_records_its_function(shop: Run, caplog: pytest.LogCaptureFixture) -> None:
    def receive(document: str, events: object) -> None: ...

    with caplog.at_level(logging.WARNING, "eventlog.publisher"):
        Publisher.from_config("search.toml", sink=receive).run_once()
    assert listed(shop)["sink"] == f"the function {receive.__qualname__}"
    assert f"it sent all classes to {files('index')}" in caplog.text


def test_a_program_that_publishes_many_times_keeps_no_descriptor(shop: Run) -> None:
    publisher = Publisher.from_config("search.toml")
    publisher.run_once()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        publisher.run_once()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


@pytest.fixture
def earlier(shop: Run) -> Run:
    """The log of an eventlog that did not record what consumers send."""
    engine = sa.create_engine("sqlite:///shop.db")
    migrations.downgrade(engine, log_table="eventlog", revision="internal@internal_2")
    engine.dispose()
    return shop


def test_with_the_tables_of_an_earlier_version_a_consumer_asks_for_the_upgrade(
    earlier: Run,
) -> None:
    code, _, err = earlier("-c", "search.toml", "publish", "--once")
    assert (code, "lacks one of the columns sink, classes, paused" in err) == (1, True)
    assert "add it with `eventlog db upgrade`" in err
    assert earlier("db", "upgrade")[0] == 0
    assert earlier("-c", "search.toml", "publish", "--once")[0] == 0
    assert names("index") == ["a", "b"]


def test_with_the_tables_of_an_earlier_version_the_publisher_and_the_list_work(
    earlier: Run,
) -> None:
    assert earlier("publish", "--once")[0] == 0
    assert earlier("purge", "--older-than", "0s", "--yes")[0] == 0
    assert change("SELECT record_id FROM eventlog") == [(2,)]  # search has not processed it
    assert (listed(earlier)["name"], listed(earlier)["sink"]) == ("search", None)
