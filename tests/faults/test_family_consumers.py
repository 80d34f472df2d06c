"""Promise test of readers on MariaDB and MySQL: writers of all kinds; a publisher, two consumers
and a stream, all killed at random; sessions that are ended, a server that is killed
(spec/event-log.md 13.6).

For each reader: each committed row is in exactly one event-id's set, and so all readers have the
same rows.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import family_writers
import mysql_servers
import pytest
import sqlalchemy as sa
from documents import ROOT
from family_writers import CHANGES, WATCHES, Writers, changing, end_prepared, filled, rows
from processes import start
from publishers import Collecting, opened, write_config
from shared import PATIENCE, Unhesitating, execute, fetch, in_ci, url_of

from eventlog.config.load import load
from eventlog.core import clock
from eventlog.core.rows.events import Outgoing
from eventlog.errors import ConsumerRuns
from eventlog.model import Answer
from eventlog.publisher.declared.opening import find_log
from eventlog.publisher.ledger.ledger import StatusLedger
from eventlog.publisher.run.daemon import publish_once
from eventlog.publisher.send.cycle import run_cycle
from eventlog.publisher.send.log_feed import LogFeed, recover
from eventlog.publisher.send.policy import Document
from eventlog.publisher.send.session import PublisherSession
from eventlog.sql.connect.connection import connect
from eventlog.sql.dialects.mysql_family.log import MySQLFamilyLog
from eventlog.sql.port.driver_errors import load_dialect
from eventlog.sql.readers.consumers import (
    LATEST,
    decode,
    done_by_consumers,
    first_set,
    read_consumers,
    register,
)

DRIVER = Path(__file__).with_name("consumer_driver.py")
INSERT = "INSERT INTO usr (name) VALUES ('x')"
KILLED = 9
"""The exit code of a stream that has killed itself."""
SOAKED = int(os.environ.get("EVENTLOG_FAMILY_TRANSACTIONS", "100000"))
"""The number of transactions at night."""
DURABLE = ("--innodb-flush-log-at-trx-commit=1",)
"""What a server that is killed must not lose."""


@pytest.fixture(autouse=True)
def _unhesitating() -> Iterator[None]:
    with clock.simulated(Unhesitating()):
        yield


@pytest.fixture
def log(family_server: mysql_servers.Server, tmp_path: Path) -> Iterator[sa.Engine]:
    with filled(family_server, tmp_path) as root:
        yield root


def wait_for_no_lock(conn: sa.Connection) -> None:
    """Let a statement that would wait for the lock of a row fail: immediately on MariaDB, after a
    second on MySQL, whose shortest time this is.
    """
    seconds = 0 if conn.dialect.name == "mariadb" else 1
    conn.exec_driver_sql(f"SET SESSION innodb_lock_wait_timeout = {seconds}")


def consumer(log: sa.Engine, directory: Path, begin: str = "earliest", name: str = "search") -> Any:
    return load(
        write_config(
            directory,
            url_of(log),
            WATCHES,
            source={"type": "eventlog", "consumer": name, "start_from": begin},
            publisher={"allow_loopback": True},
        ),
        {},
        {},
    )


def test_a_consumer_sends_a_row_that_commits_late_and_leaves_the_rows_to_the_publisher(
    log: sa.Engine, family_server: mysql_servers.Server, tmp_path: Path
) -> None:
    with contextlib.closing(family_writers.session(family_server)) as late:
        family_writers.run(late, "BEGIN", INSERT)
        execute(log, INSERT)
        sink = Collecting()
        with opened(consumer(log, tmp_path)) as context:
            publish_once(context, sink)
        before = fetch(log, "SELECT COUNT(*) FROM eventlog")[0][0]
        family_writers.run(late, "COMMIT")
    again = Collecting()
    with opened(consumer(log, tmp_path)) as context:
        publish_once(context, again)
    assert sum(len(one.events) for one in sink.documents) > 0
    assert len(again.documents) == 1
    assert fetch(log, "SELECT COUNT(*) FROM eventlog")[0][0] > before
    assert fetch(log, "SELECT DISTINCT status FROM eventlog") == [("N",)]


@pytest.mark.parametrize("deletes", [False, True])
def test_a_publisher_marks_and_deletes_rows_next_to_those_of_an_open_transaction(
    log: sa.Engine, family_server: mysql_servers.Server, tmp_path: Path, deletes: bool
) -> None:
    """A server that finds rows by a range locks the one after it, too."""
    section = {"allow_loopback": True, "delete_from_log": deletes}
    config = load(write_config(tmp_path, url_of(log), WATCHES, publisher=section), {}, {})
    many = "INSERT INTO usr (num) SELECT a.n FROM numbers AS a, numbers AS b LIMIT 100"
    with contextlib.closing(family_writers.session(family_server)) as late:
        family_writers.run(late, "BEGIN", INSERT)
        execute(log, many)
        family_writers.run(late, INSERT)
        execute(log, INSERT)
        family_writers.run(late, INSERT)
        sink = Collecting()
        with opened(config) as context:
            wait_for_no_lock(context.log.connection)
            publish_once(context, sink)
        left = fetch(log, "SELECT status, COUNT(*) FROM eventlog GROUP BY status")
        assert [status for status, _ in left] == ([] if deletes else ["S"])
        family_writers.run(late, "COMMIT")


@pytest.mark.parametrize("begin", ["latest", "snapshot"])
def test_a_consumer_that_begins_while_a_writer_is_open_gets_its_rows(
    log: sa.Engine, family_server: mysql_servers.Server, tmp_path: Path, begin: str
) -> None:
    with contextlib.closing(family_writers.session(family_server)) as late:
        family_writers.run(late, "BEGIN", "UPDATE usr SET name = 'late' WHERE id = 3")
        execute(log, INSERT)
        first = Collecting()
        with opened(consumer(log, tmp_path, begin)) as context:
            publish_once(context, first)
        family_writers.run(late, "COMMIT")
    sink = Collecting()
    with opened(consumer(log, tmp_path, begin)) as context:
        publish_once(context, sink)
    assert sum(len(one.events) for one in first.documents) == (
        0 if begin == "latest" else family_writers.KEYS + 1
    )
    (event,) = [event for one in sink.documents for event in one.events]
    assert "id=3" in event.association


@pytest.mark.parametrize("begins_first", [True, False], ids=["before", "after"])
def test_a_transaction_that_begins_while_latest_is_determined_is_not_in_the_first_set(
    log: sa.Engine,
    family_server: mysql_servers.Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    begins_first: bool,
) -> None:
    """The highest row is read before the open writers, not after them."""
    real = MySQLFamilyLog.open_writers
    with (
        contextlib.closing(family_writers.session(family_server)) as late,
        connect(log.url).connect() as conn,
    ):
        of_log = find_log(load_dialect(log.dialect.name).open(conn), consumer(log, tmp_path))
        assert of_log.open_writers() == frozenset()

        def open_writers(followed: MySQLFamilyLog) -> frozenset[str] | None:
            found = None if begins_first else real(followed)
            family_writers.run(late, "BEGIN", INSERT)
            execute(log, INSERT)
            return real(followed) if begins_first else found

        monkeypatch.setattr(MySQLFamilyLog, "open_writers", open_writers)
        begun = first_set(of_log, LATEST)
        conn.rollback()
        family_writers.run(late, "COMMIT")
        late_row = rows(conn)[-2][0]
    assert late_row not in begun


@pytest.mark.parametrize("number", in_ci([400, 1_200], 400))
def test_consumers_that_begin_at_latest_while_the_log_is_changed_get_each_row_that_commits_later(
    log: sa.Engine,
    family_server: mysql_servers.Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    sent: list[int] = []
    send = LogFeed.send

    def recorded(feed: LogFeed, document: Document[Outgoing]) -> Answer:
        sent.extend(record_id for event in document.events for record_id in event.ids)
        return send(feed, document)

    monkeypatch.setattr(LogFeed, "send", recorded)
    config = consumer(log, tmp_path)
    begun: dict[str, set[int]] = {}
    """For each consumer the rows that were committed before the end of its registration."""
    with changing(family_server) as changes:
        writers = Writers(
            family_server,
            number,
            seed=9,
            rest=0.03,  # at times no writer is open
            enough=lambda: changes.number >= len(CHANGES) and len(begun) >= 20,
        )
        writers.start()
        while writers.are_writing:
            # MySQL may end a session as the victim of a deadlock with the change.
            with (
                contextlib.suppress(sa.exc.OperationalError),
                connect(log.url).connect() as conn,
            ):
                of_log = find_log(load_dialect(log.dialect.name).open(conn), config)
                while writers.are_writing:
                    name = f"reader{len(begun)}"
                    register(of_log, name, LATEST)
                    conn.commit()
                    begun[name] = {record_id for record_id, _ in rows(conn)}
                    time.sleep(0.02)
    writers.join()
    end_prepared(family_server)
    assert not writers.errors
    assert changes.number >= len(CHANGES)
    with log.connect() as conn:
        there = {record_id for record_id, _ in rows(conn)}
        of_log = find_log(load_dialect(log.dialect.name).open(conn), config)
        done = {one.name: one.done for one in read_consumers(of_log)}
    for name, before in begun.items():
        assert {row for row in there - before if row in done[name]} == set()
    for name in list(begun)[:: len(begun) // 4]:
        sent.clear()
        with opened(consumer(log, tmp_path, LATEST, name)) as context:
            publish_once(context, Collecting())
        assert sorted(sent) == sorted(row for row in there if row not in done[name])


def test_readers_that_draw_numbers_of_deliveries_at_once_never_wait_for_one_another(
    log: sa.Engine, tmp_path: Path
) -> None:
    config = consumer(log, tmp_path)
    with ExitStack() as stack:
        logs = [
            find_log(
                load_dialect(log.dialect.name).open(
                    stack.enter_context(connect(log.url).connect())
                ),
                config,
            )
            for _ in range(3)
        ]
        for one in logs:
            wait_for_no_lock(one.connection)
        drawn = [one.next_number() for _ in range(3) for one in logs]
        assert drawn == sorted(set(drawn))
        for one in logs:
            one.commit()
            assert one.next_number() not in drawn
            one.commit()
        if log.dialect.name == "mysql":  # a table numbers deliveries, and keeps the last number
            assert fetch(log, "SELECT COUNT(*) FROM eventlog_delivery") == [(1,)]


def test_rows_are_not_removed_while_a_consumer_is_registered(
    log: sa.Engine, tmp_path: Path
) -> None:
    config = consumer(log, tmp_path)
    with opened(config) as context:
        publish_once(context, Collecting())
    with connect(log.url).connect() as one, connect(log.url).connect() as other:
        of_one, of_other = (
            find_log(load_dialect(log.dialect.name).open(conn), config) for conn in (one, other)
        )
        wait_for_no_lock(other)
        register(of_one, "late", "3")
        with pytest.raises(sa.exc.OperationalError, match="1205"):
            done_by_consumers(of_other)
        other.rollback()
        register(of_other, "as well", "earliest")  # others may register
        other.rollback()
        one.commit()
        assert sorted(done_by_consumers(of_other)) == ["late", "search"]
        wait_for_no_lock(one)
        with pytest.raises(sa.exc.OperationalError, match="1205"):
            register(of_one, "too late", "3")
        one.rollback()
        other.rollback()


def test_a_second_process_of_a_consumer_is_refused_and_named(
    log: sa.Engine, tmp_path: Path
) -> None:
    config = consumer(log, tmp_path)
    with opened(config) as context:
        first = context.log.db.session_id()
        with pytest.raises(ConsumerRuns, match=f"session {first}|{first}"), opened(config):
            pass
        with opened(consumer(log, tmp_path, name="audit")):
            pass
    with opened(config):
        pass


def test_a_publisher_remembers_what_is_done_and_goes_on_when_the_server_hides_writers(
    log: sa.Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sections = {"publisher": {"allow_loopback": True}}
    config = load(write_config(tmp_path, url_of(log), WATCHES, **sections), {}, {})
    switch = (
        "UPDATE performance_schema.setup_instruments SET enabled = '{}' "
        "WHERE name = 'wait/lock/metadata/sql/mdl'"
    )
    sink = Collecting()
    with opened(config) as context:
        state = recover(context)
        ledger = context.ledger
        assert isinstance(ledger, StatusLedger)

        def drain() -> None:
            while run_cycle(PublisherSession(context, state, sink)).more:
                pass
            context.log.connection.commit()

        drain()
        assert ledger.followed is not None
        last = fetch(log, "SELECT MAX(record_id) FROM eventlog")[0][0]
        assert ledger.followed.done.top == last
        execute(log, switch.format("NO"))
        try:
            with log.connect() as conn:  # whose numbers nobody gets
                conn.exec_driver_sql(INSERT)
            execute(log, INSERT)
            drain()
            drain()
        finally:
            execute(log, switch.format("YES"))
        assert ledger.followed is None
    assert fetch(log, "SELECT COUNT(*) FROM eventlog WHERE status = 'N'") == [(0,)]
    assert "from its head" in caplog.text


class Reader:
    """A publisher, a consumer or a stream in its own process, which writes the rows of its
    events to files.
    """

    def __init__(self, name: str, url: str, directory: Path) -> None:
        self.name, self.place = name, directory / name
        self.place.mkdir()
        sections: dict[str, dict[str, Any]] = {
            "sink": {"type": "stdout"},
            "publisher": {
                "allow_loopback": True,
                "polling_interval": 1,
                "delivery_rows": 200,
                "retry_initial": 0.1,
            },
        }
        if name != "publisher":
            sections["source"] = {"type": "eventlog", "consumer": name, "start_from": "earliest"}
        if name == "lake":
            sections = {}
        config = write_config(self.place, url, WATCHES, **sections)
        self.out = self.place / "out"
        self.command = [sys.executable, str(DRIVER), str(config), str(self.out)]
        if name == "lake":
            options = [f"config={config}", "consumer=lake", "maxRowsPerBatch=2000"]
            stream = str(ROOT / "tests" / "spark" / "changes_driver.py")
            self.command = [sys.executable, stream, str(self.out), "1", "0.002", *options]
        paths = [ROOT, ROOT / "tests", ROOT / "tests" / "spark"]
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
        self.process: subprocess.Popen[bytes] | None = None
        self.has_lost_server = False
        """Whether the server was killed since the process has started."""

    def start(self) -> None:
        """Start the process unless it runs. Fails if it has ended by itself."""
        if self.process is not None and not self._has_ended(self.process):
            return
        self.has_lost_server = False
        with (self.place / "errors").open("wb") as errors:
            self.process = start(
                self.command, stdout=subprocess.DEVNULL, stderr=errors, env=self.environment
            )

    def _has_ended(self, process: subprocess.Popen[bytes]) -> bool:
        code = process.poll()
        if code is None:
            return False
        # A stream kills itself at random, and ends with its connection, as any query of Spark does.
        if self.name == "lake" and (code in (0, KILLED) or self.has_lost_server):
            return True
        lines = (self.place / "errors").read_text(errors="replace").splitlines()
        pytest.fail("\n".join([f"{self.name} has ended by itself: {code}", *lines[-20:]]))

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(PATIENCE)
            self.process = None

    def ids(self) -> list[int]:
        """The rows of all events, each event once; an event-id means one set of rows."""
        events: dict[str, list[int]] = {}
        for event_id, ids in self._events():
            assert events.setdefault(event_id, ids) == ids, f"{event_id} means two sets of rows"
        return sorted(record_id for ids in events.values() for record_id in ids)

    def _events(self) -> Iterator[tuple[str, list[int]]]:
        files = sorted(self.out.glob("batch-*")) if self.out.is_dir() else [self.out]
        for file in files:
            for line in file.read_text().splitlines(keepends=True) if file.exists() else ():
                if line.endswith("\n"):
                    event = json.loads(line)
                    is_batch = isinstance(event, dict)
                    yield (
                        (event["event_id"], event["record_ids"]) if is_batch else tuple(event[:2])
                    )


def has_done_all(log: sa.Engine, name: str, last: int) -> bool:
    if name == "publisher":
        return fetch(log, "SELECT COUNT(*) FROM eventlog WHERE status = 'N'") == [(0,)]
    lines = fetch(
        log,
        "SELECT content FROM eventlog_inflight WHERE kind = 'done' "
        f"AND owner = '{name}' AND content LIKE '%whole%'",
    )
    sets = [decode(str(json.loads(text)["rows"])) for (text,) in lines]
    return any(one.floor >= last and not one.ranges for one in sets)


def are_registered(log: sa.Engine) -> bool:
    found = fetch(log, "SELECT COUNT(*) FROM eventlog_consumer WHERE name IN ('search', 'audit')")
    return found == [(2,)]


@pytest.mark.parametrize(
    ("transactions", "kills", "crashes"),
    [
        pytest.param(200, 2, 1, id="short", marks=pytest.mark.timeout(1_800)),
        pytest.param(
            SOAKED, 40, 3, id="long", marks=[pytest.mark.night, pytest.mark.timeout(4 * 3_600)]
        ),
    ],
)
@pytest.mark.parametrize("build", mysql_servers.params())
def test_each_committed_row_is_in_one_event_of_each_reader_whatever_is_killed(
    tmp_path: Path, build: str, transactions: int, kills: int, crashes: int
) -> None:
    pytest.importorskip("pyspark", reason="the extra spark is not installed")
    chance = random.Random(transactions)
    with (
        mysql_servers.server(*DURABLE, build=mysql_servers.BUILDS[build]) as server,
        filled(server, tmp_path) as log,
    ):
        readers = [
            Reader(name, url_of(log), tmp_path) for name in ("publisher", "search", "audit", "lake")
        ]
        writers = Writers(server, transactions)

        def wait(holds: Callable[[], object], what: str) -> None:
            """Wait for something, and start a stream again that has killed itself."""
            deadline = time.monotonic() + 600 + transactions / 50
            while not holds():
                assert time.monotonic() < deadline, what
                for reader in readers:
                    reader.start()
                time.sleep(0.1)

        try:
            for reader in readers:
                reader.start()
            if transactions < 1_000:  # so that they read while the writers write
                wait(lambda: are_registered(log), "the consumers")
            writers.start()
            steps = [*["reader"] * kills, *["server"] * crashes]
            chance.shuffle(steps)
            for step, done in enumerate(steps):
                left = transactions * (1 - (step + 1) / (len(steps) + 1))
                wait(lambda left=left: writers.left <= left, "some transactions")
                if done == "server":
                    for reader in readers:
                        reader.has_lost_server = True
                    server.stop(kill=True)
                    server.start(*DURABLE)
                else:
                    chance.choice(readers).kill()
                for reader in readers:
                    reader.start()
            wait(lambda: not writers.are_writing, "the end of the writers")
            end_prepared(server)
            with log.connect() as conn:
                there = [record_id for record_id, _ in rows(conn)]
            for reader in readers[:3]:
                name = reader.name
                wait(lambda name=name: has_done_all(log, name, there[-1]), name)
            lake = readers[3]
            lake.out.mkdir(exist_ok=True)
            (lake.out / "stop").write_text("")
            wait(lambda: lake.process is not None and lake.process.poll() == 0, lake.name)
        finally:
            writers.stop.set()
            for reader in readers:
                reader.kill()
        assert not writers.errors
        for reader in readers:
            assert reader.ids() == there, reader.name
