"""Several logs and readers send to one NATS stream or one FIFO queue: all messages arrive, and those
of a delivery that comes again are stored once (spec/event-log.md 8.4, *Repetitions*).
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cutting_tcp import answer_cutter
from message_servers import Server
from processes import EVENTLOG, start
from publishers import install, write_config
from shared import PATIENCE, wait_until
from test_follow_one_document import Objects

from eventlog import Publisher
from eventlog.config.load import load
from eventlog.errors import ReceiverUnavailable
from eventlog.model import Answer, Event, EventResult, Level
from eventlog.publisher.send import log_feed
from eventlog.publisher.stream import source_feed


class Target(NamedTuple):
    """A stream or a queue. ``sink``: the settings of [sink] for a port; ``bodies``: all messages."""

    sink: Callable[[int | None], dict[str, Any]]
    environ: dict[str, str]
    bodies: Callable[[], list[bytes]]
    port: int


@pytest.fixture(scope="module")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    pytest.importorskip("nats", reason="the package nats-py is not installed")
    import test_nats_sink

    directory = tmp_path_factory.mktemp("nats")
    (directory / "nats.conf").write_text(test_nats_sink.CONFIGURATION % (directory / "store"))
    with test_nats_sink.nats_server(directory) as server:
        yield server


@pytest.fixture
def stream(nats_server: Server) -> Target:
    import test_nats_sink

    test_nats_sink.make_stream(nats_server)
    return Target(
        lambda port: {
            "type": "nats", "nats_url": f"nats://127.0.0.1:{port or nats_server.port}", "timeout": 5,
        },
        {},
        lambda: [message.data for message in test_nats_sink.stored(nats_server)],
        nats_server.port,
    )  # fmt: skip


@pytest.fixture(scope="module")
def sqs_service() -> Iterator[Any]:
    pytest.importorskip("moto.server", reason="moto[server] is not installed")
    import test_sqs_sink

    service = test_sqs_sink.Service()
    yield service
    service.client.close()
    service.server.stop()


@pytest.fixture
def queue(sqs_service: Any) -> Target:
    import test_sqs_sink

    url, found = sqs_service.queue(), list[bytes]()

    def bodies() -> list[bytes]:
        found.extend(one["Body"].encode() for one in sqs_service.messages(url))
        return found

    return Target(
        lambda port: {
            "type": "sqs", "queue_url": url, "region": "us-east-1", "timeout": 5,
            "endpoint": f"http://127.0.0.1:{port or sqs_service.port}",
        },
        test_sqs_sink.KEYS,
        bodies,
        sqs_service.port,
    )  # fmt: skip


@pytest.fixture(params=[pytest.param("stream", marks=pytest.mark.night), "queue"])
def target(request: pytest.FixtureRequest) -> Target:
    found: Target = request.getfixturevalue(request.param)
    return found


class Log:
    """A SQLite database with the table t and its log, whose publisher sends to a target."""

    def __init__(self, directory: Path, target: Target, **sections: Any) -> None:
        directory.mkdir(exist_ok=True)
        self.file, self.target = directory / "a.db", target
        self.path = self.configure(**sections)
        self.execute("CREATE TABLE t (id integer PRIMARY KEY, v text)")
        install(self.config)

    def configure(self, *, port: int | None = None, **sections: Any) -> Path:
        sections = {"sink": self.target.sink(port), "format": {"type": "cloudevents"}, **sections}
        options = {"allow_loopback": True, "retry_initial": 0.02, "retry_max": 0.05}
        sections["publisher"] = options | sections.get("publisher", {})
        url = f"sqlite:///{self.file}"
        return write_config(self.file.parent, url, [{"table": "t"}], **sections)

    @property
    def config(self) -> Any:
        return load(self.path, self.target.environ)

    def execute(self, statement: str) -> None:
        with closing(sqlite3.connect(self.file, timeout=PATIENCE)) as conn, conn:
            conn.execute(statement)

    def select(self, statement: str) -> list[Any]:
        with closing(sqlite3.connect(self.file, timeout=PATIENCE)) as conn:
            return [row[0] for row in conn.execute(statement)]

    def publish(self) -> None:
        Publisher.from_config(self.path, environ=self.target.environ).run_once()

    def statuses(self) -> set[str]:
        return set(self.select("SELECT DISTINCT status FROM eventlog"))


def texts(bodies: Sequence[bytes]) -> list[str]:
    """The new values of v, in the order of the messages."""
    return [event["data"]["columns"]["v"]["new"] for event in map(json.loads, bodies)]


class Killed(BaseException):
    """The end of a process."""


@pytest.fixture
def dies_before_saving(monkeypatch: pytest.MonkeyPatch) -> Callable[[type], None]:
    """A function: the next publisher dies after its documents were answered, before it saves that."""

    def arrange(feed: type) -> None:
        save = feed.save  # type: ignore[attr-defined]

        def die(self: Any) -> None:
            if not self._outbox_of_test().is_saved:
                monkeypatch.setattr(feed, "save", save)
                raise Killed
            save(self)

        outbox = "_outbox" if feed is log_feed.LogFeed else "outbox"
        monkeypatch.setattr(feed, "_outbox_of_test", lambda self: getattr(self, outbox), False)
        monkeypatch.setattr(feed, "save", die)

    return arrange


def test_two_databases_send_the_same_event_ids(target: Target, tmp_path: Path) -> None:
    for name in ("one", "two"):
        log = Log(tmp_path / name, target)
        log.execute(f"INSERT INTO t VALUES (1, '{name}')")
        log.publish()
    assert sorted(texts(target.bodies())) == ["one", "two"]


def test_two_consumers_of_a_log_send_the_same_event_ids(target: Target, tmp_path: Path) -> None:
    log = Log(tmp_path / "a", target)
    log.execute("INSERT INTO t VALUES (1, 'a')")
    for name in ("one", "two"):
        log.configure(source={"type": "eventlog", "consumer": name, "start_from": "earliest"})
        log.publish()
    assert texts(target.bodies()) == ["a", "a"]


def test_a_database_that_is_copied_with_its_disk_sends_the_same_numbers(
    target: Target, tmp_path: Path
) -> None:
    log = Log(tmp_path / "a", target)
    copy = tmp_path / "copy.db"
    shutil.copyfile(log.file, copy)
    for name in ("original", "copy"):
        log.execute(f"INSERT INTO t VALUES (1, '{name}')")
        log.publish()
        # The same file, so that nothing shows the copy.
        shutil.copyfile(copy, log.file)
    assert sorted(texts(target.bodies())) == ["copy", "original"]


def test_a_row_that_is_queued_again_arrives_again(target: Target, tmp_path: Path) -> None:
    log = Log(tmp_path / "a", target)
    log.execute("INSERT INTO t VALUES (1, 'a')")
    log.publish()
    log.execute("UPDATE eventlog SET status = 'N'")
    log.publish()
    assert texts(target.bodies()) == ["a", "a"]


def test_a_delivery_of_a_process_that_died_is_stored_once(
    target: Target, tmp_path: Path, dies_before_saving: Callable[[type], None]
) -> None:
    log = Log(tmp_path / "a", target)
    log.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    dies_before_saving(log_feed.LogFeed)
    with pytest.raises(Killed):
        log.publish()
    log.publish()
    assert sorted(texts(target.bodies())) == ["a", "b"]
    assert log.statuses() == {"S"}


@pytest.mark.parametrize("is_shared", [True, False])
def test_only_the_entry_of_such_a_sink_has_a_nonce(
    is_shared: bool, queue: Target, tmp_path: Path, dies_before_saving: Callable[[type], None]
) -> None:
    files = {"type": "files", "directory": str(tmp_path / "out")}
    log = Log(tmp_path / "a", queue, sink=queue.sink(None) if is_shared else files)
    log.execute("INSERT INTO t VALUES (1, 'a')")
    dies_before_saving(log_feed.LogFeed)
    with pytest.raises(Killed):
        log.publish()
    (content,) = log.select("SELECT content FROM eventlog_inflight")
    expected = ["line_format", "nonce", "documents"] if is_shared else ["line_format", "documents"]
    assert list(json.loads(content)) == expected


def refused(_: bytes, events: Sequence[Event]) -> Answer:
    """The answer of a receiver that refuses everything."""
    return Answer({event.event_id: EventResult(Level.ERROR, "no") for event in events})


def test_dead_letters_of_two_databases_arrive(target: Target, tmp_path: Path) -> None:
    for name in ("one", "two"):
        first = {"type": "files", "directory": str(tmp_path / "out")}
        log = Log(tmp_path / name, target, sink=first, dead_letter=target.sink(None))
        log.execute(f"INSERT INTO t VALUES (1, '{name}')")

        environ = {
            name.replace("SINK", "DEAD_LETTER"): value for name, value in target.environ.items()
        }
        Publisher.from_config(log.path, sink=refused, environ=environ).run_once()
    assert sorted(texts(target.bodies())) == ["one", "two"]


def follower(place: Path, source: dict[str, Any], target: Target, **sections: Any) -> Publisher:
    return Publisher.from_config(
        {
            "source": {**source, "position_url": f"sqlite:///{place}"},
            "publisher": {"batch_size": 4, "retry_initial": 0.01},
            "format": {"type": "cloudevents"},
            "sink": target.sink(None),
            **sections,
        },
        environ=target.environ,
    )


def nonce_of(place: Path) -> str:
    """The nonce of the events after a position."""
    with closing(sqlite3.connect(place)) as conn:
        statement = "SELECT content FROM eventlog_position_inflight WHERE entry_no = -1"
        ((content,),) = conn.execute(statement)
    return str(json.loads(content)["nonce"])


def test_two_positions_of_sources_with_the_same_event_ids(target: Target, tmp_path: Path) -> None:
    source = Objects(tmp_path, 5).settings
    for name in ("one.db", "two.db"):
        follower(tmp_path / name, source, target).run_once()
    assert len(target.bodies()) == 2 * 15


def test_what_a_follower_sent_before_it_died_is_stored_once(
    target: Target, tmp_path: Path, dies_before_saving: Callable[[type], None]
) -> None:
    source, place = Objects(tmp_path, 5).settings, tmp_path / "position.db"
    nonces = []
    for _ in range(2):
        dies_before_saving(source_feed.SourceFeed)
        with pytest.raises(Killed):
            follower(place, source, target).run_once()
        nonces.append(nonce_of(place))
    follower(place, source, target).run_once()
    assert len(target.bodies()) == 15
    assert nonces[0] == nonces[1] != nonce_of(place), "a copy of the position sends other messages"


@pytest.mark.night
def test_nothing_is_marked_that_the_server_lacks_while_answers_are_swallowed(
    target: Target, tmp_path: Path
) -> None:
    with answer_cutter(target.port) as proxy:
        log = Log(tmp_path / "a", target, publisher={"batch_size": 3, "delivery_rows": 7})
        log.configure(port=proxy.port, publisher={"batch_size": 3, "delivery_rows": 7})
        for number in range(1, 16):
            log.execute(f"INSERT INTO t (v) VALUES ('{number}.0')")
            log.execute(f"UPDATE t SET v = '{number}.1' WHERE id > {number} - 5")
            proxy.left = 1 + number % 5
            while "N" in log.statuses():
                try:
                    log.publish()
                except ReceiverUnavailable:
                    continue
        assert proxy.cuts > 5
    assert log.statuses() == {"S"}
    assert_each_once_in_order(log, target.bodies())


@pytest.mark.night
def test_nothing_is_marked_that_the_server_lacks_while_the_publisher_is_killed(
    target: Target, tmp_path: Path
) -> None:
    log = Log(tmp_path / "a", target, publisher={"batch_size": 3, "delivery_rows": 7})
    environ = {**target.environ}
    for number in range(1, 16):
        log.execute(f"INSERT INTO t (v) VALUES ('{number}.0')")
        log.execute(f"UPDATE t SET v = '{number}.1' WHERE id > {number} - 5")
        before = log.select("SELECT count(*) FROM eventlog WHERE status = 'S'")
        with start([EVENTLOG, "--config", str(log.path), "publish"], env=environ) as process:
            wait_until(
                lambda before=before: (
                    log.select("SELECT count(*) FROM eventlog_inflight") != [0]
                    or log.select("SELECT count(*) FROM eventlog WHERE status = 'S'") != before
                )
            )
            process.kill()
            process.wait(PATIENCE)
    log.publish()
    assert log.statuses() == {"S"}
    assert_each_once_in_order(log, target.bodies())


def assert_each_once_in_order(log: Log, bodies: Sequence[bytes]) -> None:
    """Assert that each event came once, and those of an object in their order."""
    events = [*map(json.loads, bodies)]
    ids = [event["id"] for event in events]
    assert len(ids) == len(set(ids))
    by_object: dict[str, list[int]] = {}
    for event in events:
        by_object.setdefault(event["subject"], []).append(int(event["id"]))
    assert all(of_object == sorted(of_object) for of_object in by_object.values())
    last = {event["subject"]: event["data"]["columns"]["v"]["new"] for event in events}
    assert sorted(last.values()) == sorted(log.select("SELECT v FROM t"))
