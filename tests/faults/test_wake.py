"""A sleeping publisher is woken by the database; no wake-up is lost (spec/triggers.md 8,
spec/event-log.md 8.5).
"""

from __future__ import annotations

import logging
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from publishers import (
    LONG,
    ROW,
    Inbox,
    backend,
    configuration,
    make_log,
    process,
    publishing,
    runs,
    sleeps,
    write,
)
from shared import PATIENCE, wait_until

from eventlog.model import Answer, Document, EventResult, Level
from eventlog.publisher.run import waiting
from eventlog.publisher.run.waiting import StopRequest


@pytest.fixture
def log(filled_database: Any) -> Iterator[sa.Engine]:
    with filled_database(make_log) as database:
        yield database


@pytest.fixture
def listener(log: sa.Engine) -> Iterator[sa.PoolProxiedConnection]:
    """Somebody else who hears what the publisher of the log hears."""
    connection = log.raw_connection()
    driver = connection.driver_connection
    assert driver is not None
    driver.set_autocommit(True)
    driver.execute("LISTEN eventlog_eventlog")
    try:
        yield connection
    finally:
        connection.invalidate()


def heard(listener: sa.PoolProxiedConnection) -> int:
    driver = listener.driver_connection
    assert driver is not None
    driver.execute("SELECT")  # whatever was committed before has been sent by now
    return len(list(driver.notifies(timeout=0)))


def test_each_row_wakes_a_publisher_that_sleeps(log: sa.Engine) -> None:
    inbox = Inbox()
    with publishing(configuration(log, polling_interval=LONG), inbox):
        for key in range(1, 31):
            write(log, key)
            assert inbox.take() == [key]
        wait_until(lambda: sleeps(log), "the publisher sleeps")


@pytest.mark.parametrize("each", [15, pytest.param(400, marks=pytest.mark.night)])
def test_no_wake_up_is_lost_under_load(log: sa.Engine, each: int) -> None:
    """Many short transactions that begin and end at any moment of the publisher's falling asleep
    and waking up.
    """
    writers = 6
    keys = [range(writer * each + 1, (writer + 1) * each + 1) for writer in range(writers)]

    def run(own: range) -> None:
        dice = random.Random(own.start)
        with log.connect() as conn:
            for key in own:
                conn.execute(sa.text(ROW), {"idu": key})
                time.sleep(dice.choice((0, 0, 0.001, 0.01, 0.06)))
                conn.commit()
                time.sleep(dice.choice((0, 0.001, 0.01, 0.06)))

    inbox = Inbox()
    threads = [threading.Thread(target=run, args=(own,)) for own in keys]
    with publishing(configuration(log, polling_interval=LONG), inbox):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(inbox.take_all(writers * each)) == list(range(1, writers * each + 1))
        wait_until(lambda: sleeps(log), "the publisher sleeps")


def test_the_publisher_does_not_sleep_while_a_writer_is_open_that_will_not_notify(
    log: sa.Engine,
) -> None:
    inbox = Inbox()
    with log.connect() as conn:
        conn.execute(sa.text(ROW), {"idu": 1})
        with publishing(configuration(log, polling_interval=LONG), inbox):
            write(log, 2)
            assert inbox.take() == [2]
            assert not sleeps(log)
            conn.commit()
            assert inbox.take() == [1]
            wait_until(lambda: sleeps(log), "the publisher sleeps")


def test_a_row_that_is_written_during_sleep_wakes_at_commit(log: sa.Engine) -> None:
    inbox = Inbox()
    with publishing(configuration(log, polling_interval=LONG), inbox):
        wait_until(lambda: sleeps(log), "the publisher sleeps")
        with log.connect() as conn:
            conn.execute(sa.text(ROW), {"idu": 1})
            with conn.begin_nested() as undone:
                conn.execute(sa.text(ROW), {"idu": 2})
                undone.rollback()
            assert sleeps(log)
            conn.commit()
        assert inbox.take() == [1]


def test_a_writer_that_is_undone_wakes_nobody(
    log: sa.Engine, listener: sa.PoolProxiedConnection
) -> None:
    with publishing(configuration(log, polling_interval=LONG), Inbox()):
        wait_until(lambda: sleeps(log), "the publisher sleeps")
        with log.connect() as conn:
            conn.execute(sa.text(ROW), {"idu": 1})
            conn.rollback()
        assert heard(listener) == 0
        assert sleeps(log)


def test_nobody_notifies_while_no_publisher_sleeps(
    log: sa.Engine, listener: sa.PoolProxiedConnection
) -> None:
    write(log, 1, 2)
    write(log, 3)
    assert heard(listener) == 0


def test_nobody_notifies_while_changes_flow(
    log: sa.Engine, listener: sa.PoolProxiedConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "FLOWING", LONG)
    inbox = Inbox()
    with publishing(configuration(log, polling_interval=LONG), inbox):
        wait_until(lambda: sleeps(log), "the publisher sleeps")
        write(log, 1)
        assert inbox.take() == [1]
        assert heard(listener) == 1
        for key in range(2, 10):
            write(log, key)
            assert inbox.take() == [key]
        assert heard(listener) == 0


def test_a_statement_that_writes_nothing_to_the_log_fails_nobody(log: sa.Engine) -> None:
    """The trigger is one of the statement: it fires without rows as well."""
    with log.begin() as conn:
        conn.execute(
            sa.text(
                "INSERT INTO eventlog (event_type, table_name, table_key) SELECT 5, 'usr', "
                "'idu=1' LIMIT 0"
            )
        )


def test_who_may_not_notify_writes_the_log_all_the_same(log: sa.Engine) -> None:
    """The function runs with its owner's rights (spec/triggers.md 7.1)."""
    role = f"writer_{log.url.database}"
    with log.begin() as conn:
        conn.execute(sa.text(f"CREATE ROLE {role}"))
        conn.execute(sa.text(f"GRANT INSERT ON eventlog TO {role}"))
        conn.execute(sa.text("REVOKE EXECUTE ON FUNCTION pg_notify(text, text) FROM PUBLIC"))
        conn.execute(
            sa.text(
                "REVOKE EXECUTE ON FUNCTION pg_try_advisory_xact_lock_shared(int, int) FROM PUBLIC"
            )
        )
    inbox = Inbox()
    try:
        with publishing(configuration(log, polling_interval=LONG), inbox):
            wait_until(lambda: sleeps(log), "the publisher sleeps")
            with log.begin() as conn:
                conn.execute(sa.text(f"SET LOCAL ROLE {role}"))
                conn.execute(sa.text(ROW), {"idu": 1})
            assert inbox.take() == [1]
    finally:
        with log.begin() as conn:
            conn.execute(sa.text(f"DROP OWNED BY {role}"))
            conn.execute(sa.text(f"DROP ROLE {role}"))


def test_a_row_of_a_replication_role_wakes_too(log: sa.Engine) -> None:
    inbox = Inbox()
    with publishing(configuration(log, polling_interval=LONG), inbox):
        wait_until(lambda: sleeps(log), "the publisher sleeps")
        with log.begin() as conn:
            conn.execute(sa.text("SET LOCAL session_replication_role = replica"))
            conn.execute(sa.text(ROW), {"idu": 1})
        assert inbox.take() == [1]


def test_a_sleeping_publisher_is_in_no_transaction(log: sa.Engine) -> None:
    with publishing(configuration(log, polling_interval=LONG), Inbox()):
        wait_until(lambda: sleeps(log), "the publisher sleeps")
        wait_until(
            lambda: backend(log)[1:] == ("idle", False), "its session is idle, in no transaction"
        )


def test_a_publisher_whose_session_ends_in_its_sleep_goes_on(log: sa.Engine) -> None:
    inbox = Inbox()
    with publishing(configuration(log, polling_interval=LONG), inbox):
        wait_until(lambda: sleeps(log), "the publisher sleeps")
        with log.begin() as conn:
            conn.execute(sa.text("SELECT pg_terminate_backend(:pid)"), {"pid": backend(log)[0]})
        write(log, 1)
        assert inbox.take() == [1]


def test_a_publisher_that_is_killed_in_its_sleep_leaves_nothing(
    log: sa.Engine, listener: sa.PoolProxiedConnection, tmp_path: Path
) -> None:
    with process(log, tmp_path, polling_interval=LONG) as running:
        wait_until(lambda: sleeps(log), "the publisher sleeps")
        running.kill()
        running.wait(PATIENCE)
        wait_until(lambda: not runs(log) and not sleeps(log), "its session has ended")
    write(log, 1)
    assert heard(listener) == 0
    inbox = Inbox()
    with publishing(configuration(log, polling_interval=LONG), inbox):
        assert inbox.take() == [1]


@pytest.mark.parametrize(
    "options", [{"notify": "yes"}, {"notify": "no"}, {"time_of_day": "00:00:00"}]
)
def test_sigterm_ends_the_sleep_at_once(
    log: sa.Engine, tmp_path: Path, options: dict[str, str]
) -> None:
    with process(log, tmp_path, polling_interval=LONG, **options) as running:
        asleep = sleeps if options == {"notify": "yes"} else runs
        wait_until(lambda: asleep(log), "the publisher sleeps")
        wait_until(lambda: backend(log)[1] == "idle", "it does")
        running.send_signal(signal.SIGTERM)
        assert running.wait(PATIENCE) == 0  # far less than the interval


def test_a_plain_event_stops_a_publisher_that_sleeps(log: sa.Engine) -> None:
    stop = threading.Event()
    with publishing(configuration(log, polling_interval=LONG), Inbox(), stop) as running:
        wait_until(lambda: sleeps(log), "the publisher sleeps")
        stop.set()
        running.thread.join(PATIENCE)
        assert not running.thread.is_alive()


def test_a_parked_object_ends_the_sleep_when_it_is_due(log: sa.Engine) -> None:
    class Busy(Inbox):
        answers = iter((Level.RETRY, Level.RETRY, Level.SUCCESS))

        def send(self, document: Document) -> Answer:
            super().send(document)
            return Answer(
                {event.event_id: EventResult(next(self.answers)) for event in document.events}
            )

    inbox = Busy()
    with publishing(configuration(log, polling_interval=LONG, retry_initial=0.3), inbox):
        write(log, 1)
        assert inbox.take() == [1]
        wait_until(lambda: sleeps(log), "the publisher sleeps")
        assert inbox.take() == [1]
        assert inbox.take() == [1]


def test_without_notify_the_queue_is_polled(
    log: sa.Engine, listener: sa.PoolProxiedConnection
) -> None:
    inbox = Inbox()
    with publishing(configuration(log, polling_interval=1, notify="no"), inbox):
        for key in (1, 2):
            wait_until(lambda: runs(log) and backend(log)[1] == "idle", "the publisher rests")
            write(log, key)
            assert inbox.take() == [key]
            assert not sleeps(log)
    assert heard(listener) == 0


@pytest.mark.parametrize(
    "change",
    [
        "DROP TRIGGER _tgr_eventlog_i_1 ON eventlog",
        "ALTER TABLE eventlog DISABLE TRIGGER _tgr_eventlog_i_1",
    ],
)
def test_a_log_that_does_not_notify_is_polled_and_that_is_logged(
    log: sa.Engine, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    with log.begin() as conn:
        conn.execute(sa.text(change))
    inbox = Inbox()
    with (
        caplog.at_level(logging.INFO, "eventlog"),
        publishing(configuration(log, polling_interval=1), inbox),
    ):
        wait_until(lambda: runs(log) and backend(log)[1] == "idle", "the publisher rests")
        write(log, 1)
        assert inbox.take() == [1]
        assert not sleeps(log)
    said = (
        "the queue is read at least every 1 s: the log has no trigger that notifies, or it is "
        "disabled"
    )
    assert said in caplog.text


def test_a_stop_request_is_waited_for_without_a_look() -> None:
    stop = StopRequest()
    assert not stop.wait(0)
    assert not stop.is_set()
    setting = threading.Timer(0.05, stop.set)
    setting.start()
    assert stop.wait(PATIENCE)
    setting.join()
    stop.set()
    assert stop.is_set()
    assert stop.wait()
    stop.close()
    stop.set()  # a signal that comes late
