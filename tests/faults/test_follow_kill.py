"""kill -9 of a publisher that follows a source, between any two steps: what was collected, each
event-id taken once, is the whole, and no event-id has two meanings.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import kafka_cluster
import pytest
import sqlalchemy as sa
from kafka_cluster import Cluster
from lxml import etree
from processes import start
from shared import each_step, execute, one_of_each, url_of

from eventlog.changes.format import Report
from eventlog.changes.to_events import change_to_events
from eventlog.core.options import toml
from eventlog.gbase import format
from eventlog.linter.database import create_tables, insert_attrs, insert_rows
from eventlog.linter.dispatch_tables import DispatchRow
from eventlog.model import Change, ChangeOp
from eventlog.qlik.messages import message_format
from eventlog.testing.gbase_workload import T1, drain, new_server, open_session
from eventlog.testing.linter_emulator import ATTRS, Workload, emulate
from eventlog.xds.writer import write_event

Expected = list[tuple[str, str]]
"""Event-ids and events, in the order of the source."""


class Feed(Protocol):
    """A source that is filled in two parts. ``settings`` of [source]; ``whole``: all events of both
    parts.
    """

    settings: dict[str, Any]
    whole: Expected

    def reset(self) -> None:
        """Only the first part is there."""

    def fill(self) -> None:
        """The second part comes."""


def events_of(changes: Sequence[Change], names: Sequence[str] = ()) -> Expected:
    return [
        (event.event_id, write_event(event))
        for number, change in enumerate(changes)
        for event in change_to_events(change, change.position or names[number])
    ]


class Stream:
    """A CDC stream in a file: interleaved transactions, one of them open from the first part into
    the second.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / "capture.cdc"
        server = new_server()
        session = open_session(server)
        long = server.begin(1)
        self._row(long, 100)
        parts = []
        for part in range(2):
            for number in range(1, 5):
                work = server.begin(2)
                self._row(work, part * 10 + number)
                work.update(T1, {"c1": number, "c2": "a"}, {"c1": number, "c2": f"b{part}"})
                (work.rollback if number == 3 else work.commit)()
                self._row(long, 100 + part * 10 + number)
            if part == 1:
                long.commit()
            parts.append(b"".join(drain(server, session)))
        self.first, self.second = parts
        reader = {"labels": {"111": T1}, "keys": {"app.t1": ["c1"]}}
        self.settings = {"type": "gbase", "path": str(self.path), "reader": reader}
        self.path.write_bytes(b"".join(parts))
        self.whole = events_of(list(format.FORMAT.read(str(self.path), reader, Report())))

    @staticmethod
    def _row(work: Any, number: int) -> None:
        work.insert(T1, {"c1": number, "c2": "new"})

    def reset(self) -> None:
        # A part of a record too: its rest comes with the second part.
        self.path.write_bytes(self.first + self.second[:50])

    def fill(self) -> None:
        self.path.write_bytes(self.first + self.second)


class Queue:
    """A Linter queue in a database."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        with engine.begin() as connection:
            self.table, attrs = create_tables(connection)
            insert_attrs(connection, attrs, list(ATTRS.values()))
        steps = list(emulate(Workload(3, transactions=5, operations=4)))
        rows = [row for step in steps for row in step.rows]
        self.first, self.second = rows[: len(rows) // 2], rows[len(rows) // 2 :]
        reader = {"codec": "eventlog-emulator-1"}
        self.settings = {"type": "linter", "url": url_of(engine), "reader": reader}
        self.whole = events_of([change for step in steps for change in step.changes])

    def _put(self, rows: list[DispatchRow]) -> None:
        with self.engine.begin() as connection:
            insert_rows(connection, self.table, rows)

    def reset(self) -> None:
        execute(self.engine, f"DELETE FROM {self.table.name}")
        self._put(self.first)

    def fill(self) -> None:
        self._put(self.second)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """In memory where the machine has such a place: on some disks each of the many renames takes
    milliseconds.
    """
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as made:
        yield Path(made)


@dataclass
class Killed:
    """The driver, where its documents go, and all that was ever seen of an event-id."""

    feed: Feed
    directory: Path
    process: subprocess.Popen[str]
    forget: Callable[[], None]

    def publish(self, last_step: int = 0) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{last_step}\n")
        self.process.stdin.flush()
        told = self.process.stdout.readline().strip()
        assert last_step < 0 or told == "done" or told.startswith("killed: "), told
        return told.removeprefix("killed: ")

    def reset(self) -> None:
        for path in (self.directory / "documents").glob("*"):
            path.unlink()
        self.forget()
        self.feed.reset()

    def collected(self) -> Expected:
        """What lies in the documents in the order of their names, each event-id once; it has one
        meaning.
        """
        meaning: dict[str, str] = {}
        for path in sorted((self.directory / "documents").glob("[!.]*")):
            for line in path.read_bytes().splitlines():
                for event in etree.fromstring(line).iterfind("input/*"):
                    text = etree.tostring(event, encoding="unicode")
                    assert meaning.setdefault(event.attrib["event-id"], text) == text
        return list(meaning.items())

    def check(self) -> None:
        collected = self.collected()
        assert dict(collected) == {name: _parsed(text) for name, text in self.feed.whole}
        # Within one object nothing has overtaken anything.
        order = {name: place for place, (name, _) in enumerate(self.feed.whole)}
        places: dict[str | None, int] = {}
        for name, text in collected:
            key = etree.fromstring(text).findtext("association")
            assert places.get(key, -1) < order[name]
            places[key] = order[name]


def _parsed(text: str) -> str:
    return etree.tostring(etree.fromstring(text), encoding="unicode")


def written(directory: Path, sections: dict[str, dict[str, Any]]) -> Path:
    """The configuration as a file."""
    lines = []
    for section, settings in sections.items():
        lines += [f"[{section}]", *(f"{name} = {toml(value)}" for name, value in settings.items())]
    config = directory / "eventlog.toml"
    config.write_text("\n".join(lines))
    return config


@contextmanager
def killed(
    feed: Feed, directory: Path, position: dict[str, Any], forget: Callable[[], None]
) -> Iterator[Killed]:
    sections: dict[str, dict[str, Any]] = {
        "publisher": {"batch_size": 4, "mark_interval": 0},
        "sink": {"type": "files", "directory": "documents"},
        "source": {**feed.settings, **position},
    }
    config = written(directory, sections)
    command = [sys.executable, str(Path(__file__).with_name("follow_driver.py")), str(config)]
    with start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Killed(feed, directory, process, forget)
        process.communicate()


def in_file(directory: Path) -> tuple[dict[str, Any], Callable[[], None]]:
    path = directory / "position.db"

    def forget() -> None:
        for each in directory.glob("position.db*"):
            each.unlink()

    return {"position_url": f"sqlite:///{path}"}, forget


def in_table(engine: sa.Engine) -> tuple[dict[str, Any], Callable[[], None]]:
    def forget() -> None:
        with engine.connect() as connection:
            there = sa.inspect(connection).has_table("eventlog_position")
        if there:
            execute(engine, "DELETE FROM eventlog_position", "DELETE FROM eventlog_position_error")

    return {"position_url": url_of(engine)}, forget


STEPS = {
    "the delivery number is saved",
    "before a document is sent",
    "after a document is answered",
    "after documents are fsynced",
    "the documents are there",
    "before the position is saved",
    "after the position is saved",
}
IN_TABLE = {"before the position is written", "before the position is committed"}


CHOSEN = [one_of_each, pytest.param(each_step, marks=pytest.mark.night)]
"""At which steps of a run to die: in CI at one of each name."""


def kill_at(each: Killed, chosen: Callable[[Sequence[str]], list[int]]) -> set[str]:
    """Kill it at the chosen steps, and publish to the end after each death; the names of the
    steps.
    """
    each.reset()
    each.publish()  # the first one makes the directory
    each.reset()
    names = each.publish(-1).split("; ")
    for step in chosen(names):
        each.reset()
        assert each.publish(step) != "done"
        each.feed.fill()
        assert each.publish() == "done"
        each.check()
    return set(names)


@pytest.mark.parametrize("chosen", CHOSEN)
def test_a_stream_in_a_file_with_its_position_in_a_file(
    directory: Path, chosen: Callable[[Sequence[str]], list[int]]
) -> None:
    with killed(Stream(directory), directory, *in_file(directory)) as each:
        assert kill_at(each, chosen) >= STEPS | IN_TABLE


@pytest.fixture
def sqlite(directory: Path) -> Iterator[sa.Engine]:
    engine = sa.create_engine(f"sqlite:///{directory / 'own.db'}", poolclass=sa.NullPool)
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA journal_mode = WAL")
    yield engine
    engine.dispose()


def some(names: Sequence[str]) -> list[int]:
    """Every third of those that the stream above dies at: what differs is the source."""
    return one_of_each(names)[::3]


@pytest.mark.parametrize("chosen", [some, CHOSEN[1]])
def test_a_queue_in_sqlite_with_its_position_in_a_table(
    directory: Path, sqlite: sa.Engine, chosen: Callable[[Sequence[str]], list[int]]
) -> None:
    with killed(Queue(sqlite), directory, *in_table(sqlite)) as each:
        assert kill_at(each, chosen) >= STEPS | IN_TABLE


def test_a_queue_in_postgresql_with_its_position_in_a_table(
    directory: Path, database: sa.Engine
) -> None:
    with killed(Queue(database), directory, *in_table(database)) as each:
        kill_at(each, some)


# CI kills a stream at six random moments (test_follow_random_kill).
@pytest.mark.night
def test_a_stream_is_killed_repeatedly(directory: Path, sqlite: sa.Engine) -> None:
    with killed(Stream(directory), directory, *in_table(sqlite)) as each:
        each.reset()
        for step in (9, 4, 14, 3, 11, 6):
            each.publish(step)
        each.feed.fill()
        for step in (5, 12, 4, 20):
            each.publish(step)
        assert each.publish() == "done"
        each.check()


class Messages:
    """Topics of Qlik messages. A part is added once only: where it was answered is the position's
    business.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        changes = [
            Change("app", "t", ChangeOp.UPDATE, (("id", number % 5),), {"id": number % 5,
                   "v": str(number)}, {"id": number % 5, "v": str(number + 1)}, None,
                   f"2024051012000000{number:019}")
            for number in range(24)
        ]  # fmt: skip
        self.parts = changes[:12], changes[12:]
        self.settings = {
            "type": "qlik-messages",
            "brokers": cluster.brokers,
            "topics": ["app.t"],
            "reader": {"schema": "app"},
        }
        self.whole = events_of([self._as_read(change) for change in changes])

    @staticmethod
    def _as_read(change: Change) -> Change:
        return change._replace(changed=frozenset({"v"}))

    def reset(self) -> None:
        message_format.FORMAT.write(
            self.parts[0], f"kafka://{self.cluster.brokers}", {"columns": COLUMNS}, Report()
        )

    def fill(self) -> None:
        message_format.FORMAT.write(
            self.parts[1], f"kafka://{self.cluster.brokers}", {"columns": COLUMNS}, Report()
        )


COLUMNS = {"app.t": [{"name": "id", "type": "INT4", "pk": 1}, {"name": "v", "type": "STRING"}]}


def test_topics_with_their_position_in_a_file(directory: Path) -> None:
    with (
        kafka_cluster.cluster() as cluster,
        killed(Messages(cluster), directory, *in_file(directory)) as each,
    ):
        each.reset()
        for step in (5, 9, 14, 7):
            each.publish(step)
        each.feed.fill()
        for step in (11, 4, 8):
            each.publish(step)
        assert each.publish() == "done"
        each.check()
