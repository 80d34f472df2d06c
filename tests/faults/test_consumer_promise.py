"""Promise test of consumers: writers that commit late, roll back, prepare; a publisher and three
consumers with different formats and sinks (HTTP, files, Kafka), all killed at random; a server that
is restarted (spec/event-log.md 13).

For each of them: what a receiver makes of the events equals the tables, each committed row is in
exactly one event-id's set, and every update finds the value that it says goes: so the order of
every object was kept. What came by HTTP and to Kafka has these event-ids, all of them.
"""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from kafka_cluster import Cluster
from postgres_clusters import Server, primary, programs
from processes import start
from publishers import install, write_config
from receiver import Receiver, Script, reply
from shared import PATIENCE, wait_until

from eventlog.config.load import load
from eventlog.sql.readers.consumers import decode

pytestmark = pytest.mark.skipif(
    programs() is None, reason="no programs of PostgreSQL: initdb, pg_ctl"
)

DRIVER = Path(__file__).with_name("consumer_driver.py")
WATCHES = [{"table": "usr"}]
KEYS = 40
Sections = dict[str, dict[str, Any]]
PLAIN: Sections = {"format": {"type": "cloudevents"}, "sink": {"type": "stdout"}}


def sections_of(http: str, brokers: str) -> dict[str, Sections]:
    """How each reader publishes, by its name."""
    return {
        "publisher": {"sink": {"type": "stdout"}},
        "search": {
            "format": {"type": "cloudevents"},
            "sink": {"type": "http", "url": http, "response_format": "status"},
        },
        "audit": {"sink": {"type": "files"}},
        "cache": {
            "format": {"type": "cloudevents", "cloudevents": {"mode": "structured"}},
            "sink": {"type": "kafka", "brokers": brokers, "topic": "cache", "timeout": 20},
        },
    }


def mostly_content() -> Script:
    """A receiver that now and then is unavailable for a moment."""
    numbers = itertools.count(1)
    return lambda request: reply(503 if next(numbers) % 40 == 0 else 204)


def ids_in(texts: Iterable[str]) -> set[str]:
    """The ids of CloudEvents, alone or in batches."""
    read = map(json.loads, texts)
    return {event["id"] for one in read for event in (one if isinstance(one, list) else [one])}


class Reader:
    """A publisher or consumer in its own process."""

    def __init__(
        self, directory: Path, url: str, name: str, sections: Sections, start_from: str
    ) -> None:
        place = directory / name
        place.mkdir()
        chosen = {section: dict(options) for section, options in sections.items()}
        if chosen["sink"]["type"] == "files":
            chosen["sink"]["directory"] = str(place / "sent")
        chosen["publisher"] = {
            "allow_loopback": True,
            "polling_interval": 1,
            "retry_max": 1,
            "delivery_rows": 50,
        }
        if name != "publisher":
            chosen["source"] = {"type": "eventlog", "consumer": name, "start_from": start_from}
        self.name, self.out = name, place / "events"
        self.config = write_config(place, url, WATCHES, **chosen)
        self.errors = (place / "errors").open("ab")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, str(DRIVER), str(self.config), str(self.out)]
        self.process = start(command, stdout=subprocess.DEVNULL, stderr=self.errors)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(PATIENCE)

    def events(self) -> list[list[Any]]:
        if not self.out.exists():
            return []
        lines = self.out.read_text(encoding="utf-8").splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]


class Writers:
    """Transactions of all kinds on the rows of ``usr``, until they are asked to stop."""

    def __init__(self, server: Server, seed: int) -> None:
        self.server, self.stop = server, threading.Event()
        self.threads = [
            threading.Thread(target=self._write, args=(seed * 100 + one,)) for one in range(8)
        ]
        self.threads.append(threading.Thread(target=self._stay_open))
        self.commits = 0

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.server.url.replace("+psycopg", ""))

    def _write(self, seed: int) -> None:
        chance = random.Random(seed)
        while not self.stop.is_set():
            # The server is unavailable for a moment: the transaction that was open is lost.
            with suppress(psycopg.Error), closing(self.connect()) as conn:
                conn.execute("SET lock_timeout = '1s'")
                conn.commit()
                while not self.stop.is_set():
                    try:
                        self._transaction(conn, chance)
                    except psycopg.errors.OperationalError:
                        conn.rollback()

    def _transaction(self, conn: psycopg.Connection[Any], chance: random.Random) -> None:
        for key in sorted(chance.sample(range(KEYS), chance.randint(1, 4))):
            if chance.random() < 0.2:
                conn.execute("SAVEPOINT s")
                conn.execute("UPDATE usr SET num = -1 WHERE id = %s", (key,))
                conn.execute("ROLLBACK TO s")
            if chance.random() < 0.1:
                conn.execute("DELETE FROM usr WHERE id = %s", (key,))
            else:
                conn.execute(
                    "INSERT INTO usr VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET num = "
                    "excluded.num",
                    (key, chance.randint(1, 10**9)),
                )
            time.sleep(chance.random() * 0.01)
        if chance.random() < 0.05:
            time.sleep(chance.random())
        how = chance.random()
        if how < 0.15:
            conn.rollback()
        elif how < 0.25:
            name = f"t{chance.randint(0, 10**12)}"
            conn.execute(f"PREPARE TRANSACTION '{name}'")
            conn.commit()
            time.sleep(chance.random() * 0.1)
            conn.autocommit = True
            conn.execute(f"{'COMMIT' if chance.random() < 0.8 else 'ROLLBACK'} PREPARED '{name}'")
            conn.autocommit = False
        else:
            conn.commit()
        self.commits += 1

    def _stay_open(self) -> None:
        """One transaction is open at any time, for seconds."""
        while not self.stop.is_set():
            with suppress(psycopg.Error), closing(self.connect()) as conn:
                conn.execute(
                    "INSERT INTO usr VALUES (1000, 0) ON CONFLICT (id) DO UPDATE SET num = "
                    "usr.num + 1"
                )
                self.stop.wait(3)
                conn.commit()

    def end(self) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join(PATIENCE)


@pytest.fixture
def server() -> Iterator[Server]:
    with primary() as started:
        started.execute("ALTER SYSTEM SET max_prepared_transactions = 20")
        started.stop()
        yield started.start()


def replay(reader: Reader) -> tuple[dict[str, str | None], dict[str, frozenset[int]]]:
    """What a receiver makes of the events that applies each id once, and the rows of each id."""
    objects: dict[str, str | None] = {}
    rows: dict[str, frozenset[int]] = {}
    for event_id, ids, _, key, operation, steps in reader.events():
        if event_id in rows:
            assert rows[event_id] == frozenset(ids), (
                f"{reader.name}: {event_id} means two sets of rows"
            )
            continue
        rows[event_id] = frozenset(ids)
        if operation == "delete":
            assert key in objects, f"{reader.name}: {event_id} deletes {key}, which is not there"
            del objects[key]
            continue
        assert (key in objects) == (operation == "modify"), (
            f"{reader.name}: {event_id}, {operation} of {key}"
        )
        for _, goes, comes in steps:
            if operation == "modify":
                assert goes in ("*", objects[key]), (
                    f"{reader.name}: {event_id} finds another value of {key}"
                )
            objects[key] = comes
        objects.setdefault(key, None)
    return objects, rows


def check(server: Server, reader: Reader) -> set[str]:
    """Check what a reader has sent; the event-ids."""
    objects, rows = replay(reader)
    assert objects == {f"id={key}": str(num) for key, num in server.rows("SELECT id, num FROM usr")}
    sent = sorted(record_id for ids in rows.values() for record_id in ids)
    assert sent == [
        record_id
        for (record_id,) in server.rows("SELECT record_id FROM eventlog ORDER BY record_id")
    ]
    return set(rows)


def has_done_all(server: Server, name: str) -> bool:
    if name == "publisher":
        return server.value("SELECT count(*) FROM eventlog WHERE status = 'N'") == 0
    lines = server.rows(
        "SELECT content::json->>'rows' FROM eventlog_inflight WHERE kind = 'done' "
        f"AND owner = '{name}' AND content::json->>'set' = 'whole'"
    )
    done = [decode(str(text)) for (text,) in lines]
    last = server.value("SELECT max(record_id) FROM eventlog")
    return bool(done) and (done[0].floor, done[0].ranges) >= (last, [])  # type: ignore[operator]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver(mostly_content()) as listening:
        yield listening


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("seed", "seconds"),
    [(1, 3), *(pytest.param(seed, 60, marks=pytest.mark.night) for seed in range(2, 6))],
)
def test_every_reader_gets_every_committed_row_once_and_in_order(
    server: Server, receiver: Receiver, brokers: Cluster, tmp_path: Path, seed: int, seconds: float
) -> None:
    server.execute("CREATE TABLE usr (id integer PRIMARY KEY, num integer)")
    install(load(write_config(tmp_path, server.url, WATCHES), {}))
    all_sections = sections_of(receiver.url, brokers.brokers)
    readers = [
        Reader(tmp_path, server.url, name, sections, "earliest")
        for name, sections in all_sections.items()
    ]
    chance, writers = random.Random(seed), Writers(server, seed)
    for reader in readers:
        reader.start()
    for thread in writers.threads:
        thread.start()
    for reader in readers:
        wait_until(reader.events, f"{reader.name} sends while others write")
    end, restart = time.monotonic() + seconds, time.monotonic() + seconds / 2
    while time.monotonic() < end:
        # So that most of them are at work at any time.
        time.sleep((1 + chance.random() * 2) * min(1, seconds / 5))
        victim = chance.choice(readers)
        victim.kill()
        victim.start()
        if restart and time.monotonic() > restart:
            restart = 0
            server.stop()
            server.start()
    writers.end()
    for (name,) in server.rows(
        "SELECT gid FROM pg_prepared_xacts"
    ):  # of writers that the restart took away
        server.execute(f"COMMIT PREPARED '{name}'")
    for reader in readers:
        if reader.process is None or reader.process.poll() is not None:
            reader.start()
    try:
        for reader in readers:
            wait_until(
                lambda name=reader.name: has_done_all(server, name), f"{reader.name} has done all"
            )  # type: ignore[misc]
        sent = {reader.name: check(server, reader) for reader in readers}
        assert ids_in(request.body for request in receiver.requests) == sent["search"]
        assert (
            ids_in(record.value.decode() for record in brokers.records("cache") if record.value)
            == sent["cache"]
        )
        again = Reader(tmp_path, server.url, "replay", PLAIN, "earliest")
        again.start()
        readers.append(again)
        wait_until(lambda: has_done_all(server, "replay"), "the replay has done all")
        check(server, again)
    finally:
        for reader in readers:
            reader.kill()
            reader.errors.close()
    assert writers.commits > 50


@pytest.mark.timeout(300)
@pytest.mark.night
def test_a_prepared_transaction_is_sent_when_the_server_has_been_restarted_between(
    server: Server, tmp_path: Path
) -> None:
    """PREPARE between two looks at the writers, restart, COMMIT PREPARED: its name is another one
    after the restart.
    """
    server.execute("CREATE TABLE usr (id integer PRIMARY KEY, num integer)")
    install(load(write_config(tmp_path, server.url, WATCHES), {}))
    reader = Reader(tmp_path, server.url, "search", PLAIN, "earliest")
    reader.start()
    try:
        with closing(psycopg.connect(server.url.replace("+psycopg", ""))) as conn:
            conn.execute("INSERT INTO usr VALUES (1, 1)")
            server.execute("INSERT INTO usr VALUES (2, 2)")
            wait_until(lambda: len(reader.events()) == 1, "the row after it is sent")
            time.sleep(2.5)  # it has looked at the writers
            conn.execute("PREPARE TRANSACTION 'late'")
            conn.commit()
        time.sleep(2.5)
        server.stop()
        server.start()
        server.execute("INSERT INTO usr VALUES (3, 3)")
        wait_until(lambda: len(reader.events()) == 2, "it goes on after the restart")
        time.sleep(2.5)
        server.execute("COMMIT PREPARED 'late'")
        wait_until(lambda: len(reader.events()) == 3, "the prepared row is sent")
        wait_until(lambda: has_done_all(server, "search"), "its gap is closed")
        check(server, reader)
    finally:
        reader.kill()
        reader.errors.close()
