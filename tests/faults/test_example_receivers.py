"""examples/receivers: each started as its first lines say, asked, killed, and asked again; each
event is kept once.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import sqlalchemy as sa
from processes import start
from publishers import make_log, process, write
from shared import execute, statuses, wait_until
from standardwebhooks import Webhook

EXAMPLES = Path(__file__).parents[2] / "examples" / "receivers"
SOURCE = "/hr/public/eventlog"
SECRET, OTHER = "whsec_" + "c2lnbmVk" * 4, "whsec_" + "b3RoZXJz" * 4
LIMIT = 16 * 2**20


def of_sqlite(file: Path) -> list[str]:
    with closing(sqlite3.connect(file)) as db:
        return [event_id for (event_id,) in db.execute("SELECT id FROM event ORDER BY rowid")]


def of_lines(file: Path) -> list[str]:
    return [json.loads(line)["id"] for line in file.read_text().splitlines()]


def of_tabs(file: Path) -> list[str]:
    return [line.split("\t")[1] for line in file.read_text().splitlines()]


class Language(NamedTuple):
    """``command`` starts a receiver; ``kept`` reads the ids of its file, in the order in which they
    were kept.

    ``is_single``: it takes one event per request.
    """

    command: Sequence[str]
    kept: Callable[[Path], list[str]]
    is_single: bool = False


PYTHON = Language((sys.executable, str(EXAMPLES / "python" / "receiver.py")), of_sqlite)
NODE = Language(("node", str(EXAMPLES / "node" / "receiver.mjs")), of_lines)
JAVA = Language(("java", str(EXAMPLES / "java" / "Receiver.java")), of_tabs, is_single=True)
LANGUAGES = [
    pytest.param(
        PYTHON,
        id="python",
        marks=pytest.mark.skipif(find_spec("fastapi") is None, reason="no FastAPI here"),
    ),
    pytest.param(
        NODE,
        id="node",
        marks=pytest.mark.skipif(shutil.which("node") is None, reason="no node here"),
    ),
    pytest.param(
        JAVA,
        id="java",
        marks=pytest.mark.skipif(shutil.which("java") is None, reason="no java here"),
    ),
]


@contextmanager
def started(
    language: Language, file: Path, port: int = 0, seconds: float = 20
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A receiver and its port; killed at the end."""
    command = [*language.command, str(file), str(port), str(seconds)]
    # A virtual machine that compiles and collects little starts in less time.
    lean = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    given = os.environ | lean | {"EVENTLOG_SINK_SIGNING_SECRET": SECRET}
    with start(command, env=given, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            yield running, int(running.stdout.readline().split()[-1])
        finally:
            running.kill()


def post(language: Language, port: int, *events: dict[str, object]) -> list[int]:
    """Post events as the publisher does, the statuses of the responses."""
    bodies = [json.dumps(one).encode() for one in (events if language.is_single else [events])]
    return [post_body(port, body, signed(body)) for body in bodies]


def signed(body: bytes, secret: str = SECRET, age: timedelta = timedelta(0)) -> dict[str, str]:
    """The headers of a signature."""
    moment = datetime.now(UTC) - age
    return {
        "webhook-id": "msg_1", "webhook-timestamp": str(int(moment.timestamp())),
        "webhook-signature": Webhook(secret).sign("msg_1", moment, body.decode()),
    }  # fmt: skip


def post_body(port: int, body: bytes, headers: dict[str, str]) -> int:
    url = f"http://127.0.0.1:{port}/events"
    request = urllib.request.Request(url, body, headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            code: int = response.status
    except urllib.error.HTTPError as error:
        with error:
            code = error.code
    return code


def event(number: int) -> dict[str, object]:
    return {"specversion": "1.0", "id": str(number), "source": SOURCE, "type": "t", "subject": "s",
            "data": {"text": "a\tb\nc ü"}}  # fmt: skip


@pytest.mark.parametrize("language", LANGUAGES)
def test_event_is_kept_once_also_after_a_kill_in_the_middle_of_a_line_and_refused_if_it_is_none(
    language: Language, tmp_path: Path
) -> None:
    file = tmp_path / "kept"
    with started(language, file) as (_, port):
        assert set(post(language, port, event(1), event(2))) == {204}
        assert set(post(language, port, event(2), event(3))) == {204}
    if language is not PYTHON:
        with file.open("a") as torn:
            torn.write('{"specversion": "1.0", "id": "4", "sou')
    with started(language, file) as (_, port):
        assert set(post(language, port, event(1), event(4), event(5))) == {204}
        without_id = {name: value for name, value in event(1).items() if name != "id"}
        assert post(language, port, without_id, event(6))[0] == 422  # a batch is refused whole
        assert set(post(language, port, event(7))) == {204}
    kept = ["6"] if language.is_single else []
    assert language.kept(file) == ["1", "2", "3", "4", "5", *kept, "7"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_request_is_dropped_when_its_time_is_over(language: Language, tmp_path: Path) -> None:
    """The publisher may have sent newer events of the same objects by then."""
    file = tmp_path / "kept"
    with started(language, file, seconds=0) as (_, port):
        assert set(post(language, port, event(1))) == {503}
    assert language.kept(file) == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_body_without_the_publishers_signature_or_over_the_limit_is_refused(
    language: Language, tmp_path: Path
) -> None:
    file, old = tmp_path / "kept", timedelta(minutes=6)
    events = [event(1) | {"data": "x" * 100}]
    body = json.dumps(events[0] if language.is_single else events).encode()
    large = body.replace(b"x" * 100, b"x" * LIMIT)
    with started(language, file) as (_, port):
        for headers in (
            {}, signed(body, OTHER), signed(body + b" "), signed(body, age=old), signed(body, age=-old),
            signed(body) | {"webhook-id": "msg_2"}, signed(body) | {"webhook-timestamp": "now"},
            signed(body) | {"webhook-signature": "v1, v1,é"},
        ):  # fmt: skip
            assert post_body(port, body, headers) == 401
        assert post_body(port, large, signed(large)) == 413
        assert language.kept(file) == []
        two = f"{signed(body, OTHER)['webhook-signature']} {signed(body)['webhook-signature']}"
        assert post_body(port, body, signed(body) | {"webhook-signature": two}) == 204


@pytest.fixture
def log(filled_database: Any) -> Iterator[sa.Engine]:
    with filled_database(make_log) as database:
        yield database


FIRST, *OTHERS = LANGUAGES


@pytest.mark.parametrize(
    "language",
    [
        FIRST,
        *(
            pytest.param(*one.values, id=one.id, marks=[*one.marks, pytest.mark.night])
            for one in OTHERS
        ),
    ],
)
def test_each_event_of_a_publisher_is_kept_once_though_the_receiver_is_killed_and_all_comes_again(
    language: Language, log: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, most = tmp_path / "kept", 60

    def is_published() -> bool:
        return set(statuses(log).values()) == {"S"}

    write(log, *range(1, 31))
    with started(language, file) as (receiver, port):
        options = {
            "sink__type": "http",
            "sink__url": f"http://127.0.0.1:{port}/events",
            "format__type": "cloudevents",
            **({"format__cloudevents__mode": "structured"} if language.is_single else {}),
        }
        monkeypatch.setenv("EVENTLOG_SINK_SIGNING_SECRET", SECRET)
        often = {"batch_size": 3, "retry_initial": 0.05, "retry_max": 0.5, "polling_interval": 1}
        with process(log, tmp_path, **often, **options) as publisher:
            wait_until(lambda: len(language.kept(file)) > 5, "some events are kept")
            receiver.kill()
            receiver.wait()
            write(log, *range(31, most + 1))
            with started(language, file, port):
                wait_until(is_published, "the rest is published")
                publisher.kill()
                publisher.wait()
                # As after a crash of the publisher between the answers and the marks.
                execute(log, "UPDATE eventlog SET status = 'N' WHERE record_id % 3 = 0")
                with process(log, tmp_path, **often, **options):
                    wait_until(is_published, "what came again is published")
    # Each event is of another object, so that their order depends on what the kill cut off.
    kept = sorted(language.kept(file), key=int)
    assert kept == [str(number) for number in range(1, most + 1)]
