"""kill -9 at any moment of a publisher that follows a source and posts to a receiver over HTTP: it
gets each event, those of an object in their order, and under one event-id never two contents.

``test_follow_kill`` kills between chosen steps; here nothing is chosen.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import emulated_server
import kafka_cluster
import pytest
import sqlalchemy as sa
from lxml import etree
from processes import start
from receiver import Receiver, Request, answer, reply, status
from test_follow_kill import (
    Expected,
    Feed,
    Messages,
    Queue,
    Stream,
    events_of,
    in_file,
    in_table,
    written,
)

from eventlog.gbase.options import ReadOptions
from eventlog.gbase.reader import StreamReader
from eventlog.testing.gbase_workload import T1


class Session:
    """A session with a server, whose log is whole from the beginning."""

    def __init__(self) -> None:
        _, data = emulated_server.filled()
        reader = {"labels": {"111": T1}, "keys": {"app.t1": ["c1"]}}
        changes = list(StreamReader(ReadOptions(**reader)).feed(data))
        begin = min(int(str(change.extras["begin_seq"]), 16) for change in changes)
        self.settings: dict[str, Any] = {
            "type": "gbase",
            "connect": "emulated_server:connect",
            "server": "emulator",
            "capture": {T1: ["c1", "c2"]},
            "reader": {**reader, "restart": {"restart": f"{begin:016x}"}},
        }
        self.whole = events_of(changes)

    def reset(self) -> None:
        pass

    def fill(self) -> None:
        pass


class Inbox:
    """The script of a receiver: what came, in the order in which it did. Now and then it asks for a
    retry.

    ``kill`` is called when ``left`` more requests have come: before the last of them is answered
    with ``holds``, else a moment later.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lock = threading.Lock()
        self.came: list[tuple[str, str, bool]] = []
        self.left = 0
        self.holds = False
        self.kill: Callable[[], None] = lambda: None

    def __call__(self, request: Request) -> bytes:
        with self.lock:
            self.left -= 1
            is_last = self.left == 0
        if is_last and self.holds:
            self.kill()
            time.sleep(2)  # nobody waits for it but the one that dies
        elif is_last:
            threading.Timer(self.random.uniform(0, 0.008), self.kill).start()
        if len(request.body.encode()) < int(request.headers["Content-Length"]):
            return reply(400)  # of one that was killed while it sent
        with self.lock:
            statuses = []
            for event in etree.fromstring(request.body.encode()).iterfind("input/*"):
                again = self.random.random() < 0.02
                name = event.attrib["event-id"]
                self.came.append((name, etree.tostring(event, encoding="unicode"), not again))
                statuses.append(status("retry" if again else "success", name))
        return reply(200, answer(*statuses))

    def check(self, whole: Expected) -> None:
        meaning: dict[str, str] = {}
        for name, text, _ in self.came:
            assert meaning.setdefault(name, text) == text
        order = {name: place for place, (name, _) in enumerate(whole)}
        assert meaning.keys() == order.keys()
        places: dict[str | None, int] = {}
        taken: set[str] = set()
        for name, text, is_taken in self.came:
            if not is_taken or name in taken:
                continue
            taken.add(name)
            key = etree.fromstring(text).findtext("association")
            assert places.get(key, -1) < order[name]
            places[key] = order[name]
        assert taken == order.keys()


@dataclass
class Publisher:
    """What publishes on request, and dies on request."""

    process: subprocess.Popen[bytes]

    def tell(self, letter: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(letter)
        self.process.stdin.flush()

    def ended(self) -> str:
        """What became of it: it was killed, or done, or has failed."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()


@contextmanager
def publisher(
    feed: Feed,
    directory: Path,
    position: dict[str, Any],
    url: str,
    *,
    options: dict[str, Any] | None = None,
    timeout: float = 20,
    once: bool = True,
) -> Iterator[Publisher]:
    """A publisher with these ``options`` besides the usual ones; with ``once`` it ends at the
    present end of the source.
    """
    sections: dict[str, dict[str, Any]] = {
        "publisher": {
            "batch_size": 2,
            "mark_interval": 0,
            "concurrency": 3,
            "retry_initial": 0.005,
            "retry_max": 0.01,
            **(options or {}),
        },
        "sink": {"type": "http", "url": url, "timeout": timeout, "file_layout": "documents"},
        "source": {**feed.settings, **position},
    }
    config = written(directory, sections)
    command = [
        sys.executable,
        str(Path(__file__).with_name("follow_driver.py")),
        str(config),
        "told" if once else "endless",
    ]
    with start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield Publisher(process)
        process.communicate()


def kill_and_check(
    feed: Feed, directory: Path, position: dict[str, Any], deaths: int, seed: int
) -> None:
    chosen, inbox = random.Random(seed), Inbox(seed)
    feed.reset()
    with Receiver(inbox) as receiver, publisher(feed, directory, position, receiver.url) as own:
        inbox.kill = lambda: own.tell(b"k")
        told = []
        for death in range(deaths):
            if death == deaths // 2:
                feed.fill()
            # The first is not left to chance: with few requests to come, all the others may come
            # too late.
            inbox.left, inbox.holds = chosen.randint(1, 3) if death else 1, death % 3 == 0
            own.tell(b"r")
            told.append(own.ended())
        inbox.left = 0
        for _ in range(100):
            own.tell(b"r")
            if own.ended() == "done":  # one that is asked for a retry ends with something left
                break
        else:
            pytest.fail("it never comes to the end")
        assert "killed" in told
        inbox.check(feed.whole)


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[sa.Engine]:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'own.db'}", poolclass=sa.NullPool)
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA journal_mode = WAL")
    yield engine
    engine.dispose()


LONG = [pytest.param(40, seed, marks=pytest.mark.night) for seed in range(2, 6)]
RUNS = [(6, 1), *LONG]


@pytest.mark.parametrize(("deaths", "seed"), RUNS)
def test_a_capture_with_its_position_in_a_file(tmp_path: Path, deaths: int, seed: int) -> None:
    kill_and_check(Stream(tmp_path), tmp_path, in_file(tmp_path)[0], deaths, seed)


@pytest.mark.parametrize(("deaths", "seed"), RUNS)
def test_a_session_with_its_position_in_a_table(
    tmp_path: Path, sqlite: sa.Engine, deaths: int, seed: int
) -> None:
    kill_and_check(Session(), tmp_path, in_table(sqlite)[0], deaths, seed)


# Queues and topics are killed at their steps in CI (test_follow_kill).
@pytest.mark.parametrize(("deaths", "seed"), LONG)
def test_a_queue_with_its_position_in_a_file(
    tmp_path: Path, sqlite: sa.Engine, deaths: int, seed: int
) -> None:
    kill_and_check(Queue(sqlite), tmp_path, in_file(tmp_path)[0], deaths, seed)


@pytest.mark.parametrize(("deaths", "seed"), LONG)
def test_topics_with_their_position_in_a_table(
    tmp_path: Path, database: sa.Engine, deaths: int, seed: int
) -> None:
    with kafka_cluster.cluster() as cluster:
        kill_and_check(Messages(cluster), tmp_path, in_table(database)[0], deaths, seed)
