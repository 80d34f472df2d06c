"""docs/guides/receivers.md: its example receiver, its function and its table of answers, with a publisher
and a real log.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from http.client import HTTPConnection
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import sqlalchemy as sa
from documents import ROOT, fenced
from shared import url_of
from standardwebhooks import Webhook

from eventlog import cli
from eventlog.config.load import load
from eventlog.errors import FatalAnswer, ReceiverUnavailable
from eventlog.model import Document
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.opening import open_context
from eventlog.publisher.run.daemon import publish_once
from eventlog.publisher.sinks.http import HttpOptions, HttpSink, answer_form
from eventlog.publisher.sinks.python import CallableSink
from eventlog.sql import migrations

PAGE = ROOT / "docs" / "guides" / "receivers.md"
SECRET = "whsec_" + "c2lnbmVk" * 4
CONFIG = """
[database]
schema_name = "hr"
[publisher]
allow_loopback = true
[sink]
type = "http"
[[watch]]
table = "usr"
[[watch]]
table = "grp"
row_style = "row_query_back"
"""
SCHEMA = """
CREATE SCHEMA hr;
CREATE TABLE hr.usr (idu integer PRIMARY KEY, fname text, lname text);
CREATE TABLE hr.usr_phone (idu integer REFERENCES hr.usr ON DELETE CASCADE, phoneno text, PRIMARY KEY (idu, phoneno));
CREATE TABLE hr.grp (idg integer PRIMARY KEY, name text);
"""
CHANGES = (
    "INSERT INTO hr.usr VALUES (1, 'Ada', NULL), (2, 'Bob', 'Bee'), (3, 'Eve', 'Adams')",
    "INSERT INTO hr.usr_phone VALUES (1, '555-1'), (1, '555-2'), (2, '555-3')",
    "INSERT INTO hr.grp VALUES (1, 'analysts'), (2, '<odd> & \"quoted\"')",
    "UPDATE hr.usr SET fname = 'Augusta Ada', lname = 'Lovelace' WHERE idu = 1",
    "DELETE FROM hr.usr_phone WHERE phoneno = '555-1'",
    "UPDATE hr.usr SET lname = NULL WHERE idu = 2",
    "DELETE FROM hr.usr WHERE idu = 3",
    "UPDATE hr.grp SET name = 'reckoners' WHERE idg = 1",
)


def install(engine: sa.Engine) -> None:
    """The sample with its log and triggers, as the configuration in the current directory has
    them.
    """
    run(engine, SCHEMA)
    for command in (("db", "upgrade"), ("triggers", "apply")):
        assert cli.run(["--database-url", url_of(engine), *command]) == 0


@pytest.fixture
def hr(
    filled_database: Any, empty_home: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[sa.Engine]:
    """The sample with its log and triggers, and a configuration in the current directory."""
    monkeypatch.setenv("EVENTLOG_SINK_URL", "http://localhost/")
    monkeypatch.setenv("EVENTLOG_SINK_SIGNING_SECRET", SECRET)
    Path("eventlog.toml").write_text(CONFIG, encoding="utf-8")
    with filled_database(install) as database:
        monkeypatch.setenv("EVENTLOG_DATABASE_URL", url_of(database))
        yield database


def run(engine: sa.Engine, *statements: str) -> None:
    for statement in statements:
        with engine.begin() as conn:
            conn.exec_driver_sql(statement, execution_options={"no_parameters": True})


def rows(engine: sa.Engine, statement: str) -> list[tuple[object, ...]]:
    with engine.connect() as conn:
        return [tuple(row) for row in conn.exec_driver_sql(statement)]


# The example receiver.


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The example as its own process: its URL, and the file that it writes."""
    file = tmp_path / "objects.sqlite"
    command = [sys.executable, str(ROOT / "docs/examples/receiver.py"), str(file), "0"]
    with subprocess.Popen(
        command,
        env=os.environ | {"EVENTLOG_SINK_SIGNING_SECRET": SECRET},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            port = process.stdout.readline().split()[-1]
            yield f"http://127.0.0.1:{port}/xds", file
        finally:
            process.kill()


def objects(file: Path) -> dict[str, dict[str, list[str]]]:
    with closing(sqlite3.connect(file)) as db:
        found = db.execute("SELECT key, attributes FROM object").fetchall()
    attributes = {key.partition(",")[0]: json.loads(text) for key, text in found}
    return {
        key: {name: values for name, values in found.items() if values}
        for key, found in attributes.items()
    }


EXPECTED = {
    "idu=1": {"fname": ["Augusta Ada"], "lname": ["Lovelace"], "usr_phone.phoneno": ["555-2"]},
    "idu=2": {"fname": ["Bob"], "usr_phone.phoneno": ["555-3"]},
    "idg=1": {"name": ["reckoners"]},
    "idg=2": {"name": ['<odd> & "quoted"']},
}


def test_the_example_receiver_has_what_the_database_has(
    hr: sa.Engine, receiver: tuple[str, Path]
) -> None:
    url, file = receiver
    for number, change in enumerate(CHANGES):
        run(hr, change)
        if number % 2:
            assert cli.run(["--set", f"sink.url={url}", "publish", "--once"]) == 0
    assert objects(file) == EXPECTED
    assert rows(hr, "SELECT DISTINCT status FROM hr.eventlog") == [("S",)]


def test_the_example_receiver_applies_nothing_when_the_time_of_a_request_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = spec_from_file_location("receiver_of_docs", ROOT / "docs/examples/receiver.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "SECONDS", 0)
    body = (
        b'<nds><input><delete event-id="7"><association>idu=1</association></delete></input></nds>'
    )
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(module.TABLES)
        assert b'<status level="retry" event-id="7"/>' in module.receive(db, body)
        assert db.execute("SELECT * FROM applied").fetchall() == []


def test_the_example_receiver_refuses_what_is_not_signed_or_too_long(
    receiver: tuple[str, Path],
) -> None:
    url, file = receiver
    body = b'<nds><input><add event-id="7"><association>idu=1</association></add></input></nds>'
    moment, other = datetime.now(UTC), "whsec_" + "b3RoZXJz" * 4

    def answer(signed: bytes = body, secret: str = SECRET, **headers: str) -> int:
        given = {
            "webhook-id": "msg_1", "webhook-timestamp": str(int(moment.timestamp())),
            "webhook-signature": Webhook(secret).sign("msg_1", moment, signed.decode()),
        }  # fmt: skip
        request = Request(url, body, given | {f"webhook-{k}": v for k, v in headers.items()})
        try:
            with urlopen(request, timeout=60) as response:
                return int(response.status)
        except HTTPError as error:
            with error:
                return error.code

    assert {
        answer(body + b" "), answer(secret=other), answer(id="msg_2"), answer(timestamp="now"),
        answer(timestamp="1"), answer(signature=""), answer(signature="v1,é"),
    } == {401}  # fmt: skip
    address = url.removeprefix("http://").removesuffix("/xds")
    with closing(HTTPConnection(address, timeout=60)) as connection:
        connection.putrequest("POST", "/xds")
        connection.putheader("Content-Length", str(16 * 2**20 + 1))
        connection.endheaders()
        assert connection.getresponse().status == 413
    assert objects(file) == {}
    assert answer() == 200
    assert objects(file) == {"idu=1": {}}


def test_the_example_receiver_applies_an_event_that_comes_again_once_only(
    hr: sa.Engine, receiver: tuple[str, Path]
) -> None:
    url, file = receiver
    run(
        hr,
        "INSERT INTO hr.usr VALUES (1, 'Ada', NULL)",
        "UPDATE hr.usr SET fname = 'Augusta' WHERE idu = 1",
    )
    config = load(Path("eventlog.toml"), os.environ)
    documents = []
    with closing(HttpSink(HttpOptions(url, signing_secret=SECRET), answer_form("xds"))) as sink:
        with open_context(config, Counters()) as context:
            keep = CallableSink(lambda body, events: documents.append((body, events)), "keep")
            publish_once(context, keep)
        ((body, events),) = documents
        event_ids = [event.event_id for event in events]
        for _ in range(2):  # as after a crash between the answer and the mark
            assert sink.send(Document(1, 1, event_ids, body)).results.keys() == {"1", "2"}
        applied = objects(file)
        with closing(sqlite3.connect(file)) as db, db:
            db.execute("UPDATE object SET attributes = '{}'")
        sink.send(Document(1, 1, event_ids, body))
        assert objects(file) == {"idu=1": {}}  # known ids are not applied
        sink.send(Document(1, 1, event_ids, body.replace(b'event-id="1"', b'event-id="1.2"')))
        assert objects(file) == {"idu=1": {"fname": ["Ada"]}}  # 1.2 is another id than 1
    assert applied == {"idu=1": {"fname": ["Augusta"]}}


def test_the_example_receiver_takes_a_heartbeat_and_several_documents_at_once(
    hr: sa.Engine, receiver: tuple[str, Path]
) -> None:
    url, file = receiver
    run(hr, "INSERT INTO hr.usr SELECT n, 'name ' || n FROM generate_series(1, 200) n")
    arguments = [
        "--set",
        f"sink.url={url}",
        "--set",
        "publisher.concurrency=8",
        "--set",
        "publisher.batch_size=5",
    ]
    assert cli.run([*arguments, "publish", "--once"]) == 0
    assert objects(file) == {f"idu={n}": {"fname": [f"name {n}"]} for n in range(1, 201)}
    config = load(Path("eventlog.toml"), os.environ)
    with (
        open_context(config, Counters()) as context,
        closing(HttpSink(HttpOptions(url, signing_secret=SECRET), answer_form("xds"))) as sink,
    ):
        assert sink.send(Document(2, 1, (), context.output.heartbeat)).results == {}


# The function.


def test_the_function_of_the_page_receives(
    hr: sa.Engine, capfd: pytest.CaptureFixture[str]
) -> None:
    (source,) = fenced(PAGE, "python")
    Path("receivers.py").write_text(source, encoding="utf-8")
    run(hr, "INSERT INTO hr.usr VALUES (1, 'Ada', NULL)", "DELETE FROM hr.usr")
    capfd.readouterr()
    arguments = ["--set", "sink.type=python", "--set", "sink.function=receivers:receive"]
    try:
        assert cli.run([*arguments, "publish", "--once", "--allow-refused"]) == 0
    finally:
        sys.modules.pop("receivers", None)
    assert capfd.readouterr().out.splitlines() == [
        "1 add usr idu=1,table=usr,schema=hr",
        "2 delete usr idu=1,table=usr,schema=hr",
    ]
    assert rows(hr, "SELECT record_id, status FROM hr.eventlog ORDER BY 1") == [(1, "S"), (2, "E")]
    assert rows(hr, "SELECT message FROM hr.eventlog_error") == [("nothing is deleted here",)]


# The table of answers.


def answers() -> list[tuple[str, str, str, str]]:
    """The rows of the table: answer, letters of both events, what is done then."""
    found = re.findall(
        r"^\| (\*nothing\*|`<.*?>`) \| ([A-Z]) \| ([A-Z]) \| (.*) \|$",
        PAGE.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    return [("" if text == "*nothing*" else text.strip("`"), *rest) for text, *rest in found]


FURTHER_ANSWERS = [
    ('<status level="warning"/>', "W", "W", ""),
    ('<status level="error"/><status level="success" event-id="4"/>', "E", "E", ""),
]


def test_the_page_has_every_level_of_an_answer() -> None:
    told = " ".join(text for text, *_ in answers())
    for level in ("success", "warning", "error", "retry", "fatal"):
        assert f'level="{level}"' in told
    assert len(answers()) == 12


def log_two_rows(engine: sa.Engine) -> None:
    """A log whose rows 4 and 7 wait."""
    run(engine, "CREATE TABLE usr (idu integer PRIMARY KEY, fname text)")
    migrations.upgrade(engine, log_table="eventlog")
    run(
        engine,
        "INSERT INTO eventlog (record_id, event_type, table_name, table_key) VALUES "
        "(4, 4, 'usr', 'idu=1'), (7, 4, 'usr', 'idu=2')",
    )


@pytest.fixture
def waiting(filled_database: Any) -> Iterator[sa.Engine]:
    with filled_database(log_two_rows) as database:
        yield database


@pytest.mark.parametrize(("inside", "four", "seven", "then"), answers() + FURTHER_ANSWERS)
def test_rows_get_the_letters_that_the_page_shows(
    waiting: sa.Engine, inside: str, four: str, seven: str, then: str
) -> None:
    config = load(None, {}, {"database.url": url_of(waiting)})
    answer = f'<nds dtdversion="2.0"><output>{inside}</output></nds>'
    ended = ""
    with open_context(config, Counters()) as context:
        try:
            publish_once(context, CallableSink(lambda body, events: answer, "receiver"))
        except FatalAnswer:
            ended = "the publisher stops"
        except ReceiverUnavailable as away:
            ended = "parked" if "1 object left" in str(away) else "the cycle stops"
    assert rows(waiting, "SELECT status FROM eventlog ORDER BY record_id") == [(four,), (seven,)]
    assert ended in then
    assert bool(ended) == any(
        word in then for word in ("stops, exit code 3", "parked", "the whole log waits")
    )
    messages = rows(waiting, "SELECT message FROM eventlog_error WHERE message <> ''")
    assert ("why",) in messages if "`why`" in then else ("why",) not in messages
