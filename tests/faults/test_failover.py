"""After a failover no event-id means two sets of rows (spec/event-log.md 7.4, 12): real servers
that follow each other.

The receiver remembers the ids that it has applied, as docs/guides/receivers.md asks, and drops what comes
under them again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from postgres_clusters import Server, programs, url_of_all
from publishers import in_background, make_log
from shared import Run, url_of, wait_until

from eventlog.config.load import load
from eventlog.core.rows.event_ids import raised_at
from eventlog.errors import ReceiverUnavailable
from eventlog.model import Event
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.opening import open_context
from eventlog.publisher.publisher import Publisher

pytestmark = pytest.mark.skipif(
    programs() is None,
    reason="no programs of PostgreSQL that can stream: initdb, pg_ctl, pg_basebackup",
)
SETTINGS = {
    "allow_loopback": True,
    "polling_interval": 1,
    "retry_initial": 0.1,
    "retry_max": 0.2,
}


class Receiver:
    """Applies each event-id once. ``rows``: keys and names that it has; ``ids``: what it
    remembers.
    """

    def __init__(self) -> None:
        self.rows: dict[str, str | None] = {}
        self.ids: list[str] = []

    def __call__(self, _document: str, events: Sequence[Event]) -> None:
        for event in events:
            if event.event_id not in self.ids:
                self.ids.append(event.event_id)
                key = event.association.partition(",")[0]
                if event.operation == "delete":
                    self.rows.pop(key)
                else:
                    self.rows[key] = event.association


def configuration(url: str) -> dict[str, object]:
    return {"database": {"url": url}, "publisher": SETTINGS, "watch": [{"table": "usr"}]}


def publisher(url: str, receiver: Receiver) -> Publisher:
    return Publisher.from_config(configuration(url), sink=receiver, environ={})


@contextmanager
def publishing(url: str, receiver: Receiver) -> Iterator[None]:
    """A publisher that runs meanwhile, and connects again by itself."""
    with in_background(publisher(url, receiver)):
        yield


@pytest.fixture
def first(watched_server: Server) -> Server:
    """A primary whose table ``usr`` is watched."""
    return watched_server


def insert(server: Server, keys: range) -> None:
    server.execute(*(f"INSERT INTO usr VALUES ({key}, 'name {key}')" for key in keys))


def keys(receiver: Receiver) -> set[int]:
    return {int(key.removeprefix("idu=")) for key in receiver.rows}


def has(receiver: Receiver, wanted: range) -> None:
    """Wait until the receiver has these objects."""
    wait_until(lambda: keys(receiver) >= set(wanted), f"objects {wanted} are there")


def record_ids(ids: Sequence[str]) -> list[int]:
    return [int(event_id.partition(".")[0]) for event_id in ids]


def epochs(ids: Sequence[str]) -> list[str]:
    """The epochs of event-ids, each once, in their order."""
    parts = (event_id.split(".") for event_id in ids)
    found = (next((part[1:] for part in more if part.startswith("e")), "") for _, *more in parts)
    return list(dict.fromkeys(found))


def raises(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        one.getMessage() for one in caplog.records if "may have been put back" in one.getMessage()
    ]


@pytest.mark.promise("guarantee After a failover no event-id gets a second meaning")
def test_a_standby_that_lacks_rows_gives_no_event_id_a_second_meaning(
    first: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    second, receiver = first.standby("b"), Receiver()
    with publishing(url_of_all(first, second), receiver):
        insert(first, range(1, 11))
        has(receiver, range(1, 11))
        first.catch_up(second)
        second.cut()
        insert(first, range(101, 181))
        has(receiver, range(101, 181))
        first.stop()
        second.promote()
        known = list(receiver.ids)
        insert(second, range(201, 281))
        has(receiver, range(201, 281))
    new = receiver.ids[len(known) :]
    assert set(record_ids(new)) & set(record_ids(known)), "the same record_ids were given out again"
    assert epochs(known) == [""]
    (epoch,) = epochs(new)
    assert raised_at(epoch)
    assert len(raises(caplog)) == 1
    assert "timeline is 00000002, was 00000001" in raises(caplog)[0]
    assert second.value("SELECT epoch FROM eventlog_epoch") == epoch
    assert second.value("SELECT count(*) FROM eventlog WHERE status = 'N'") == 0


def test_a_failover_that_loses_nothing_sends_nothing_twice(
    first: Server, caplog: pytest.LogCaptureFixture
) -> None:
    second, receiver = first.standby("b"), Receiver()
    with publishing(url_of_all(first, second), receiver):
        insert(first, range(1, 11))
        has(receiver, range(1, 11))
        wait_until(
            lambda: not first.value("SELECT count(*) FROM eventlog WHERE status = 'N'"),
            "all is marked",
        )
        first.catch_up(second)
        first.stop()
        second.promote()
        insert(second, range(11, 21))
        has(receiver, range(1, 21))
    assert len(receiver.ids) == 20
    assert len(raises(caplog)) == 1


def test_a_raise_that_is_lost_itself_is_not_repeated_by_the_third_server(
    first: Server, caplog: pytest.LogCaptureFixture
) -> None:
    receiver, second = Receiver(), first.standby("b")
    insert(first, range(1, 6))
    publisher(first.url, receiver).run_once()
    first.catch_up(second)
    second.cut()
    first.stop()
    second.promote()
    third = second.standby("c")
    second.catch_up(third)
    third.cut()
    with publishing(url_of_all(second, third), receiver):
        insert(second, range(101, 141))
        has(receiver, range(101, 141))
        second.stop()
        third.promote()
        insert(third, range(201, 241))
        has(receiver, range(201, 241))
    assert (
        third.value("SELECT substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)")
        == "00000003"
    )
    assert len(raises(caplog)) == 2
    of_second, of_third = receiver.ids[-80:-40], receiver.ids[-40:]
    assert set(record_ids(of_second)) & set(record_ids(of_third)), (
        "the same record_ids were given out again"
    )
    assert len({*epochs(of_second), *epochs(of_third)}) == 2


def test_two_standbys_of_one_primary_that_are_promoted_one_after_the_other_share_no_epoch(
    first: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Both begin timeline 2, since neither knows of the other."""
    receiver, second, third = Receiver(), first.standby("b"), first.standby("c")
    with publishing(url_of_all(first, second, third), receiver):
        insert(first, range(1, 6))
        has(receiver, range(1, 6))
        first.catch_up(second)
        first.catch_up(third)
        third.cut()
        first.stop()
        second.promote()
        insert(second, range(101, 141))
        has(receiver, range(101, 141))
        before = len(receiver.ids)
        second.stop()
        third.promote()
        insert(third, range(201, 241))
        has(receiver, range(201, 241))
    one, two = receiver.ids[before - 40 : before], receiver.ids[before:]
    assert set(record_ids(one)) & set(record_ids(two)), "the same record_ids were given out again"
    assert len({*epochs(one), *epochs(two)}) == 2
    assert third.value("SELECT server::json ->> 'timeline' FROM eventlog_epoch") == "00000002"
    assert len(raises(caplog)) == 2


def test_a_publisher_that_was_dead_meanwhile_sees_the_failover(
    first: Server, caplog: pytest.LogCaptureFixture
) -> None:
    receiver, second = Receiver(), first.standby("b")
    insert(first, range(1, 6))
    publisher(first.url, receiver).run_once()
    first.catch_up(second)
    second.cut()
    insert(first, range(101, 141))
    publisher(first.url, receiver).run_once()
    first.stop()
    second.promote()
    insert(second, range(201, 241))
    publisher(second.url, receiver).run_once()
    assert keys(receiver) >= set(range(201, 241))
    assert len(raises(caplog)) == 1
    publisher(second.url, receiver).run_once()
    assert len(raises(caplog)) == 1, "said once"


def test_a_tail_that_is_lost_before_the_first_connection_is_recorded_is_seen_too(
    first: Server,
) -> None:
    """What the migration has noted of the server is all that the standby has."""
    receiver, second = Receiver(), first.standby("b")
    first.catch_up(second)
    second.cut()
    insert(first, range(101, 141))
    publisher(first.url, receiver).run_once()
    first.stop()
    second.promote()
    insert(second, range(201, 241))
    publisher(second.url, receiver).run_once()
    assert keys(receiver) >= set(range(201, 241))


def test_a_recovery_to_a_point_in_time_begins_a_new_epoch(first: Server) -> None:
    receiver = Receiver()
    insert(first, range(1, 6))
    publisher(first.url, receiver).run_once()
    restored = Server(first.data.parent / "restored")
    first.run("pg_basebackup", "-h", "127.0.0.1", "-p", str(first.port), "-U", "postgres", "-D",
        str(restored.data), "-X", "fetch", "-c", "fast")  # fmt: skip
    insert(first, range(101, 141))
    publisher(first.url, receiver).run_once()
    first.stop()
    with (restored.data / "postgresql.auto.conf").open("a") as file:
        file.write(
            "restore_command = 'false'\nrecovery_target = 'immediate'\nrecovery_target_action = "
            "'promote'\n"
        )
    (restored.data / "recovery.signal").touch()
    restored.start()
    wait_until(lambda: not restored.value("SELECT pg_is_in_recovery()"), "the recovery has ended")
    insert(restored, range(201, 241))
    publisher(restored.url, receiver).run_once()
    assert keys(receiver) >= set(range(201, 241))
    assert len(epochs(receiver.ids)) == 2


def snapshot(server: Server) -> Server:
    """A copy of the files of a server that stands still, as a snapshot of its disk; it begins no
    timeline.
    """
    server.stop_cleanly()
    copy = Server(server.data.parent / "copy")
    server.run_plainly("cp", "-a", str(server.data), str(copy.data))
    server.start()
    copy.port = server.port
    return copy


def test_a_snapshot_that_is_put_back_is_seen_by_a_publisher_that_lives(
    first: Server, caplog: pytest.LogCaptureFixture
) -> None:
    receiver = Receiver()
    copy = snapshot(first)
    with publishing(first.url, receiver):
        insert(first, range(101, 141))
        has(receiver, range(101, 141))
        first.stop()
        copy.start()
        insert(copy, range(201, 241))
        has(receiver, range(201, 241))
    assert len(raises(caplog)) == 1
    assert "is lower than" in raises(caplog)[0]


def test_a_snapshot_that_was_put_back_while_the_publisher_was_dead_needs_a_new_epoch_by_hand(
    first: Server, run: Run, empty_home: Path
) -> None:
    receiver = Receiver()
    copy = snapshot(first)
    insert(first, range(101, 141))
    publisher(first.url, receiver).run_once()
    first.stop()
    copy.start()
    code, out, _ = run("--database-url", copy.url, "db", "start-epoch")
    assert code == 0
    assert "new event-ids carry the epoch" in out
    insert(copy, range(201, 241))
    publisher(copy.url, receiver).run_once()
    assert keys(receiver) >= set(range(201, 241))


def test_what_is_recorded_in_delivery_keeps_its_id_over_a_failover(first: Server) -> None:
    """Its rows were there when its entry was written: the receiver may know it."""
    receiver, second = Receiver(), first.standby("b")
    sent: list[str] = []

    def lose_the_answer(document: str, events: Sequence[Event]) -> None:
        sent.extend(event.event_id for event in events)
        receiver(document, events)
        raise ConnectionError("the answer is lost")

    insert(first, range(1, 6))
    with pytest.raises(ReceiverUnavailable):
        Publisher.from_config(configuration(first.url), sink=lose_the_answer, environ={}).run_once()
    first.catch_up(second)
    first.stop()
    second.promote()
    insert(second, range(6, 8))
    publisher(second.url, receiver).run_once()
    assert receiver.ids[:5] == sent[:5]
    assert set(sent) == set(receiver.ids[:5])
    assert len(receiver.ids) == 7, "what the receiver has applied is known to it"
    assert ["e" in event_id for event_id in receiver.ids] == [False] * 5 + [True] * 2


@pytest.mark.promise("guarantee A crash of the database takes back nothing that was sent")
def test_a_crash_takes_back_nothing_that_was_sent(first: Server) -> None:
    """The application's transactions do not wait for the disk; the publisher's do, and with them
    all before.
    """
    first.execute(
        "ALTER DATABASE hr SET synchronous_commit = off",
        "ALTER SYSTEM SET wal_writer_delay = '10s'",
        "SELECT pg_reload_conf()",
    )
    receiver = Receiver()
    for number in range(1, 4):
        publisher(first.url, receiver).run_once()  # what it writes itself wakes nobody later
        insert(first, range(number * 100, number * 100 + 20))
        publisher(first.url, receiver).run_once()
        first.stop()
        first.start()
        there = {int(key) for (key,) in first.rows("SELECT idu FROM usr")}
        assert keys(receiver) <= there
    assert len(receiver.rows) == 60


def test_a_server_that_is_restarted_in_the_middle_costs_nothing_but_time(first: Server) -> None:
    restarts: list[str] = []

    def restart(document: str, events: Sequence[Event]) -> None:
        if not restarts:
            first.restart()
            restarts.append(document)
        receiver(document, events)

    receiver = Receiver()
    insert(first, range(1, 7))
    settings = configuration(first.url)
    settings["publisher"] = {**SETTINGS, "batch_size": 1}
    with in_background(Publisher.from_config(settings, sink=restart, environ={})):
        wait_until(lambda: bool(restarts), "the server is restarted")
        has(receiver, range(1, 7))
        wait_until(
            lambda: not first.value("SELECT count(*) FROM eventlog WHERE status = 'N'"),
            "all is marked",
        )
    assert first.rows("SELECT DISTINCT trim(status) FROM eventlog") == [("S",)]
    assert receiver.rows.keys() == {f"idu={key}" for key in range(1, 7)}


@pytest.mark.parametrize(
    ("configured", "used"), [("off", "on"), ("local", "on"), ("remote_apply", "remote_apply")]
)
def test_the_session_of_the_publisher_waits_for_the_disk(
    database: sa.Engine, configured: str, used: str
) -> None:
    make_log(database)
    with database.begin() as conn:
        conn.exec_driver_sql(
            f'ALTER DATABASE "{database.url.database}" SET synchronous_commit = {configured}'
        )
    config = load({"database": {"url": url_of(database)}, "publisher": SETTINGS}, {})
    shown = "SHOW synchronous_commit"
    with open_context(config, Counters()) as context:
        log = context.log
        assert log.connection.exec_driver_sql(shown).scalar() == used
        # A mark does not wait, and what follows it does.
        log.end_delivery("S", [(1, 1)], 1, durable=False, alone=False)
        assert log.connection.exec_driver_sql(shown).scalar() == "off"
        log.commit()
        assert log.connection.exec_driver_sql(shown).scalar() == used
