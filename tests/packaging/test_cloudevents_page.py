"""docs/formats/cloudevents.md: its example receiver takes what a publisher of a real log sends;
other modes reach a server.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import closing, suppress
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.request import urlopen

import pytest
import sqlalchemy as sa
from documents import ROOT, fenced
from shared import execute, fetch, free_port, statuses, url_of, wait_until

from eventlog import cli

PAGE = ROOT / "docs" / "formats" / "cloudevents.md"
CHANGES = (
    "INSERT INTO usr VALUES (7, 'Ada', 12345678901234567890.50, 'Byron')",
    "UPDATE usr SET lname = 'Lovelace', price = NULL WHERE idu = 7",
    "UPDATE usr SET idu = 8 WHERE idu = 7",
    "DELETE FROM usr",
)


@pytest.fixture
def watched(database: sa.Engine, empty_home: Path, monkeypatch: pytest.MonkeyPatch) -> sa.Engine:
    """A watched table, and in the current directory the configuration of the page."""
    monkeypatch.setenv("EVENTLOG_DATABASE_URL", url_of(database))
    (settings,) = fenced(PAGE, "toml")
    assert tomllib.loads(settings)["format"] == {"type": "cloudevents"}
    Path("eventlog.toml").write_text(
        f'{settings}\n[publisher]\nallow_loopback = true\n[[watch]]\ntable = "usr"\n'
    )
    execute(
        database,
        "CREATE TABLE usr (idu integer PRIMARY KEY, fname text, price numeric, lname text)",
    )
    assert cli.run(["db", "upgrade"]) == 0
    assert cli.run(["triggers", "apply"]) == 0
    return database


@pytest.fixture
def receiver(empty_home: Path) -> Iterator[str]:
    """The receiver of the page as its own process: its URL."""
    pytest.importorskip("fastapi", reason="fastapi is not installed")
    (source,) = fenced(PAGE, "python")
    Path("receiver.py").write_text(source)
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "receiver:app",
        "--port",
        str(port),
        "--log-level",
        "warning",
    ]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": "."}) as process:
        try:
            wait_until(lambda: is_served(f"http://127.0.0.1:{port}/openapi.json"), "it answers")
            yield f"http://127.0.0.1:{port}/events"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(20)


def is_served(url: str) -> bool:
    """Return True if the receiver itself answers: somebody else may listen there for a moment."""
    with suppress(OSError, HTTPException), urlopen(url, timeout=5) as answer:
        return bool(answer.status == 200)
    return False


def received() -> list[tuple[str, str, str, dict[str, Any]]]:
    with closing(sqlite3.connect("events.sqlite")) as db:
        rows = db.execute("SELECT source, id, type, data FROM event ORDER BY rowid").fetchall()
    return [
        (source, event_id, event_type, json.loads(data))
        for source, event_id, event_type, data in rows
    ]


def test_the_receiver_of_the_page_has_each_committed_change_once(
    watched: sa.Engine, receiver: str
) -> None:
    for change in CHANGES:
        execute(watched, change)
    publish = ["--set", f"sink.url={receiver}", "publish", "--once"]
    assert cli.run(publish) == 0
    assert set(statuses(watched).values()) == {"S"}
    events = received()
    assert {source for source, *_ in events} == {f"/{watched.url.database}/public/eventlog"}
    assert [event_type for _, _, event_type, _ in events] == [
        "eventlog.insert", "eventlog.update", "eventlog.delete", "eventlog.insert",
        "eventlog.delete",
    ]  # fmt: skip
    insert, update, *_ = [data for *_, data in events]
    assert insert["columns"]["price"] == {"new": "12345678901234567890.50"}
    assert (update["key"], update["columns"]) == (
        {"idu": 7},
        {
            "price": {"old": "12345678901234567890.50", "new": None},
            "lname": {"old": "Byron", "new": "Lovelace"},
        },
    )
    execute(
        watched, "UPDATE eventlog SET status = 'N'"
    )  # as after a crash between the answer and the mark
    assert cli.run(publish) == 0
    assert received() == events


class _Server(BaseHTTPRequestHandler):
    """Keeps requests, and answers 204."""

    got: list[tuple[dict[str, str], bytes]]
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[tuple[str, list[tuple[dict[str, str], bytes]]]]:
    got: list[tuple[dict[str, str], bytes]] = []
    handler = type("Handler", (_Server,), {"got": got})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as listening:
        thread = Thread(target=listening.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}/", got
        listening.shutdown()
        thread.join()


def send(server: str, mode: str) -> None:
    assert (
        cli.run(
            [
                "--set",
                f"sink.url={server}",
                "--set",
                f"format.cloudevents.mode={mode}",
                "publish",
                "--once",
            ]
        )
        == 0
    )


def test_in_structured_mode_an_event_is_a_request(watched: sa.Engine, server: Any) -> None:
    url, got = server
    execute(watched, *CHANGES)
    send(url, "structured")
    assert {headers["content-type"] for headers, _ in got} == {
        "application/cloudevents+json; charset=utf-8"
    }
    assert [json.loads(body)["data"]["operation"] for _, body in got] == [
        "insert", "update", "delete", "insert", "delete",
    ]  # fmt: skip
    assert set(statuses(watched).values()) == {"S"}


def test_in_binary_mode_the_attributes_are_headers(watched: sa.Engine, server: Any) -> None:
    url, got = server
    execute(watched, "INSERT INTO usr VALUES (7, 'Ada')")
    send(url, "binary")
    ((headers, body),) = got
    assert headers["content-type"] == "application/json"
    named = {name: value for name, value in headers.items() if name.startswith("ce-")}
    time = named.pop("ce-time")
    assert named == {
        "ce-specversion": "1.0",
        "ce-id": "1",
        "ce-source": f"/{watched.url.database}/public/eventlog",
        "ce-type": "eventlog.insert",
        "ce-subject": "idu=7,table=usr,schema=public",
    }
    assert time.endswith("Z")
    assert json.loads(body)["columns"] == {"fname": {"new": "Ada"}}


def test_a_document_that_was_recorded_as_a_batch_is_sent_event_by_event(
    watched: sa.Engine, server: Any
) -> None:
    url, got = server
    execute(watched, "INSERT INTO usr VALUES (1, 'Ada'), (2, 'Bob')")
    assert (
        cli.run(["--set", "sink.url=http://127.0.0.1:9/", "publish", "--once"]) == 1
    )  # nobody is there
    assert fetch(watched, "SELECT count(*) FROM eventlog_inflight") == [(1,)]
    send(url, "binary")
    assert [headers["ce-id"] for headers, _ in got] == ["1", "2"]
