"""What the packages of ``examples/plugins`` do by their names, where they are installed.

``test_plugins.py`` copies these tests there, and runs them with those of the packages.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from eventlog import cli

CHANGE = '{"schema":"app","table":"item","op":"INSERT","key":[["id",7]],"after":{"id":7,"name":"Ada"},"position":"12"}\n'


@pytest.fixture
def eventlog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Run a command in an empty directory, and return what it prints. Fails with it."""
    monkeypatch.chdir(tmp_path)

    def eventlog(*arguments: str) -> str:
        code = cli.run(arguments)
        printed = capfd.readouterr()
        assert code == 0, printed.err
        return printed.out

    return eventlog


def test_the_format_is_converted_to_and_from_by_its_name(eventlog: Callable[..., str]) -> None:
    Path("in.jsonl").write_text(CHANGE)
    eventlog("convert", "--from", "jsonl", "--to", "messagepack", "in.jsonl", "out.msgpack")
    eventlog("convert", "--from", "messagepack", "--to", "jsonl", "out.msgpack", "back.jsonl")
    assert '"Ada"' in Path("back.jsonl").read_text()
    assert "messagepack" in eventlog("convert", "--help")


def test_a_log_is_published_in_the_format_to_the_sink_by_their_names(
    eventlog: Callable[..., str],
) -> None:
    with closing(sqlite3.connect("shop.db")) as db:
        db.execute("CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT)")
    Path("eventlog.toml").write_text(
        '[database]\nurl = "sqlite:///shop.db"\n[sink]\ntype = "sqlite"\nfile = "copy.db"\n'
        '[[watch]]\ntable = "customer"\n'
    )
    eventlog("db", "upgrade")
    eventlog("triggers", "apply", "--yes")
    with closing(sqlite3.connect("shop.db")) as db, db:
        db.execute("INSERT INTO customer VALUES (1, 'Ada')")
    eventlog("publish", "--once")
    with closing(sqlite3.connect("shop.db")) as db, db:
        db.execute("UPDATE customer SET name = 'Augusta'")
    eventlog("publish", "--once", "--format", "messagepack")
    with closing(sqlite3.connect("copy.db")) as db:
        assert db.execute("SELECT attributes FROM object").fetchall() == [
            ('{"name": ["Augusta"]}',)
        ]


def test_the_source_is_followed_by_its_name_with_types_of_a_catalogue(
    eventlog: Callable[..., str],
) -> None:
    Path("changes.jsonl").write_text(CHANGE)
    column = {"name": "id", "type": "integer"}
    table = {
        "name": "item",
        "kind": "table",
        "columns": [column, {"name": "name", "type": "varchar(20)"}],
    }
    tables = [{**table, "primary_key": ["id"], "foreign_keys": []}]
    Path("catalog.json").write_text(
        json.dumps({"dialect": "postgresql", "schema": "app", "tables": tables})
    )
    Path("eventlog.toml").write_text(
        '[source]\ntype = "jsonl-file"\npath = "changes.jsonl"\ncatalog = "catalog.json"\n'
        f'position_url = "sqlite:///{Path("position.db").absolute()}"\n'
        '[format]\ntype = "cloudevents"\n[sink]\ntype = "stdout"\n'
    )

    def published() -> list[dict[str, Any]]:
        return [json.loads(line) for line in eventlog("publish", "--once").splitlines()]

    (event,) = published()
    assert (event["data"]["key"], event["data"]["columns"]) == ({"id": 7}, {"name": {"new": "Ada"}})
    assert published() == []
    assert f"byte {len(CHANGE)}" in eventlog("status")
