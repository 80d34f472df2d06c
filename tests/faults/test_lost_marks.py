"""A crash of the server loses the marks that did not wait for the disk, and nothing else
(spec/event-log.md 8.4): the delivery is sent again under its event-ids, with its rows.

The servers here write what no commit waits for only every ten seconds, so that a crash loses it.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from postgres_clusters import Server, programs, url_of_all
from publishers import in_background
from shared import in_ci, wait_until

from eventlog.model import Event
from eventlog.publisher.publisher import Publisher

pytestmark = pytest.mark.skipif(
    programs() is None, reason="no programs of PostgreSQL: initdb, pg_ctl, pg_basebackup"
)
SETTINGS = {"allow_loopback": True, "polling_interval": 1, "retry_initial": 0.1, "retry_max": 0.2}
CONSUMER = {"type": "eventlog", "consumer": "search", "start_from": "earliest"}
READERS = {
    "publisher": ({}, {}),
    "delete_from_log": ({"delete_from_log": True, "loopback_action": "mark"}, {}),
    "consumer": ({}, CONSUMER),
}
DELIVERED = """SELECT NOT EXISTS (SELECT FROM eventlog_inflight WHERE kind = 'delivery')
    AND ({} OR NOT EXISTS (SELECT FROM eventlog WHERE status = 'N'))"""


class Receiver:
    """What came under each event-id, in order."""

    def __init__(self) -> None:
        self.came: dict[str, list[str]] = defaultdict(list)
        self.names: dict[str, str] = {}

    def __call__(self, document: bytes, events: Sequence[Event]) -> None:
        for event in events:
            # An update has the old value, and then the new one.
            name = document.decode().rpartition("name ")[2].partition("<")[0]
            self.came[event.event_id].append(f"{event.association} {event.operation} {name}")
            self.names[event.association.partition(",")[0]] = name


def config(url: str, reader: str, **options: object) -> dict[str, Any]:
    publisher, source = READERS[reader]
    of_source = {"source": source} if source else {}
    settings = {**SETTINGS, "batch_size": 1, **publisher, **options}
    return {
        "database": {"url": url},
        "publisher": settings,
        "watch": [{"table": "usr"}],
        **of_source,
    }


@pytest.fixture
def server(watched_server: Server) -> Server:
    """A server whose table ``usr`` is watched."""
    watched_server.execute("ALTER SYSTEM SET wal_writer_delay = '10s'", "SELECT pg_reload_conf()")
    return watched_server


@contextmanager
def reading(configured: dict[str, Any], receiver: Receiver) -> Iterator[None]:
    """A publisher or consumer that runs meanwhile, and connects again by itself."""
    with in_background(Publisher.from_config(configured, sink=receiver, environ={})):
        yield


def is_delivered(server: Server, reader: str) -> bool:
    return bool(server.value(DELIVERED.format("true" if reader == "consumer" else "false")))


def write(server: Server, number: int) -> None:
    server.execute(
        f"INSERT INTO usr VALUES ({number % 5}, 'name {number}') "
        f"ON CONFLICT (idu) DO UPDATE SET fname = 'name {number}'"
    )


def crash_after_marks(server: Server, reader: str, times: int, **options: object) -> Receiver:
    """Stop the server immediately after each delivery is marked, and check what the receiver got
    in the end.
    """
    receiver, dice = Receiver(), random.Random(times)
    with reading(config(server.url, reader, **options), receiver):
        for number in range(1, times + 1):
            known = len(receiver.came)
            write(server, number)
            wait_until(lambda: len(receiver.came) > known, "the change is sent")  # noqa: B023
            wait_until(lambda: is_delivered(server, reader), "it is marked")
            time.sleep(dice.choice([0.0, 0.0, 0.02]))
            server.stop()
            server.start()
        wait_until(lambda: is_delivered(server, reader), "all is marked")
        write(server, times + 1)
        wait_until(lambda: len(receiver.came) > times, "the last change is sent")
        wait_until(lambda: is_delivered(server, reader), "all is marked")
    for event_id, contents in receiver.came.items():
        assert len(set(contents)) == 1, (event_id, contents)
    present = dict(server.rows("SELECT 'idu=' || idu, fname FROM usr"))
    assert {key: f"name {name}" for key, name in receiver.names.items()} == present
    assert len(receiver.came) == times + 1
    return receiver


@pytest.mark.parametrize("reader", in_ci(READERS, "publisher", "consumer"))
def test_a_delivery_whose_marks_are_lost_is_sent_again_under_its_event_ids(
    server: Server, reader: str
) -> None:
    receiver = crash_after_marks(server, reader, 2)
    assert max(map(len, receiver.came.values())) == 2, "a crash has lost marks"


def test_durable_marks_are_not_lost(server: Server) -> None:
    receiver = crash_after_marks(server, "publisher", 2, durable_marks=True)
    assert {len(contents) for contents in receiver.came.values()} == {1}


@pytest.mark.night
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("reader", READERS)
def test_two_hundred_crashes_lose_nothing(server: Server, reader: str) -> None:
    crash_after_marks(server, reader, 200)


@pytest.mark.night
@pytest.mark.parametrize("reader", READERS)
def test_a_synchronous_standby_that_is_promoted_sends_a_delivery_again_or_not_at_all(
    server: Server, reader: str
) -> None:
    """The standby has each line that was sent, and perhaps not its marks."""
    second, receiver = server.standby("b"), Receiver()
    server.execute("ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
    wait_until(
        lambda: server.value("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"),
        "the standby is synchronous",
    )
    with reading(config(url_of_all(server, second), reader), receiver):
        for number in range(1, 11):
            known = len(receiver.came)
            write(server, number)
            wait_until(lambda: len(receiver.came) > known, "the change is sent")  # noqa: B023
        wait_until(lambda: is_delivered(server, reader), "all is marked")
        server.stop()
        second.promote()
        second.execute("ALTER SYSTEM SET synchronous_standby_names = ''", "SELECT pg_reload_conf()")
        write(second, 11)
        wait_until(lambda: "idu=1" in receiver.names and receiver.names["idu=1"] == "11", "it came")
        wait_until(lambda: is_delivered(second, reader), "all is marked")
    assert len(receiver.came) == 11
    for event_id, contents in receiver.came.items():
        assert len(set(contents)) == 1, (event_id, contents)
