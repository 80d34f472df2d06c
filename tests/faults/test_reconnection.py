"""A database that becomes unavailable, at whatever point: the publisher connects again, and reports
it on a line (spec/event-log.md 8.4, 12).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
import sqlalchemy as sa
from cutting_proxy import cutting_proxy
from postgres_clusters import Server, programs
from publishers import (
    LONG,
    Collecting,
    backend,
    configuration,
    is_drained,
    make_log,
    opened,
    process,
    publishing,
    runs,
    write,
)
from shared import PATIENCE, execute, statuses, wait_until

from eventlog.errors import (
    ConsumerRuns,
    DatabaseError,
    DatabaseUnavailable,
    LostSession,
    PublisherAlreadyRunning,
    ServerUnavailable,
)
from eventlog.publisher.context.observer import SILENT
from eventlog.publisher.run import waiting
from eventlog.publisher.run.waiting import StopRequest, keep_connected
from eventlog.sql.dialects.postgresql.database import PostgresDatabase


@pytest.mark.timeout(900)
@pytest.mark.parametrize("step", [20, pytest.param(1, marks=pytest.mark.night)])
def test_a_reconnection_that_is_cut_after_any_message_is_made_again(
    database: sa.Engine, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """``step``: 1 = after each message, else after every so many."""
    monkeypatch.setattr(waiting, "back_off", lambda *_: 0.01)
    make_log(database)
    sink = Collecting()
    with cutting_proxy(database.url) as (proxy, url):
        proxied = sa.create_engine(url)
        with publishing(configuration(proxied, polling_interval=LONG), sink) as running:
            write(database, 0)
            wait_until(lambda: is_drained(database, running), "it has connected")
            message = 0
            while not message or proxy.has_cut:
                message += step
                proxy.cut_now(again_after=message)
                write(database, message)
                wait_until(
                    lambda: is_drained(database, running),
                    f"it goes on, cut after message {message}",
                )
        proxied.dispose()
    assert message > 50  # as many are needed until it publishes
    assert set(statuses(database).values()) == {"S"}


@pytest.mark.skipif(programs() is None, reason="no programs of PostgreSQL: initdb, pg_ctl")
def test_a_database_that_is_killed_is_a_line_without_a_traceback(
    watched_server: Server, tmp_path: Path
) -> None:
    database = sa.create_engine(watched_server.url, poolclass=sa.NullPool)
    write(database, 1)
    with process(
        database, tmp_path / "out", stderr=PIPE, polling_interval=1, retry_initial=0.1
    ) as running:
        wait_until(lambda: is_drained(database), "it publishes")
        wait_until(lambda: runs(database), "it rests")
        watched_server.stop()
        watched_server.start()
        write(database, 2)
        wait_until(lambda: is_drained(database), "it goes on")
        execute(database, f"SELECT pg_terminate_backend({backend(database)[0]})")
        write(database, 3)
        wait_until(lambda: is_drained(database), "it goes on again")
        running.terminate()
        _, lines = running.communicate(timeout=PATIENCE)
    assert lines.count(b"connecting again") >= 2
    assert b"Traceback" not in lines, lines.decode()


def test_a_connection_that_is_lost_while_the_log_is_read_is_no_lack_of_rights(
    database: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_log(database)
    read: Callable[..., Any] = PostgresDatabase.columns

    def read_columns(db: PostgresDatabase, *rest: Any) -> Any:
        execute(database, f"SELECT pg_terminate_backend({db.session_id()})")
        return read(db, *rest)

    monkeypatch.setattr(PostgresDatabase, "columns", read_columns)
    with pytest.raises(DatabaseUnavailable) as raised, opened(configuration(database)):
        pytest.fail("it was opened")
    assert "grant" not in str(raised.value).lower()


def keep(outcomes: list[Exception | None], **more: Any) -> None:
    """Work with these outcomes, one after the other: errors before it is connected, except for a
    lost connection, and None for an end.
    """

    def work(connected: Callable[[], bool]) -> None:
        outcome = outcomes.pop(0)
        if outcome is None or type(outcome) is DatabaseUnavailable:
            connected()
        if outcome is not None:
            raise outcome

    keep_connected(work, StopRequest(), (DatabaseUnavailable,), 1.0, 60.0, SILENT, **more)
    assert not outcomes


def test_whoever_has_the_lock_after_a_connection_was_lost_is_named_once_each(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(waiting, "back_off", lambda *_: 0.0)
    lost, other = LostSession("still locked by session 7"), PublisherAlreadyRunning("by session 8")
    keep([DatabaseUnavailable("gone"), lost, lost, other, other, None])
    assert caplog.text.count("still locked by session 7") == 1
    assert caplog.text.count("by session 8; trying again for 60 s") == 1


def test_the_own_lost_session_is_waited_for_as_long_as_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiting, "back_off", lambda *_: 0.0)
    now = iter(range(0, 100_000, 1000))
    monkeypatch.setattr(waiting, "monotonic", lambda: float(next(now)))
    keep(
        [
            DatabaseUnavailable("gone"),
            LostSession("by session 7"),
            LostSession("by session 7"),
            None,
        ]
    )
    with pytest.raises(PublisherAlreadyRunning, match="by session 8"):
        keep([DatabaseUnavailable("gone"), PublisherAlreadyRunning("by session 8")])


def test_a_publisher_that_is_a_standby_waits_for_any_other_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(waiting, "back_off", lambda *_: 0.0)
    held = PublisherAlreadyRunning("by session 8")
    keep([held, held, None], stands_by_for=PublisherAlreadyRunning)
    assert caplog.text.count("by session 8; waiting as its standby until it ends") == 1
    with pytest.raises(PublisherAlreadyRunning):
        keep([held])


def test_a_standby_waits_for_a_server_that_is_unavailable_at_the_start_and_then_for_its_turn(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(waiting, "back_off", lambda *_: 0.0)
    outcomes: list[Exception | None] = [
        ServerUnavailable("no server"), ServerUnavailable("no server"), ConsumerRuns("it runs"),
        ServerUnavailable("no server"), ConsumerRuns("it runs"), None,
    ]  # fmt: skip

    def work(connected: Callable[[], bool]) -> None:
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome
        connected()

    keep_connected(work, StopRequest(), (DatabaseUnavailable,), 1.0, 60.0, SILENT)
    assert not outcomes
    assert caplog.text.count("no server; waiting for it") == 1
    assert caplog.text.count("waiting as its standby") == 1


@pytest.mark.parametrize("after", [[], [ServerUnavailable("no server")]])
def test_a_database_that_refuses_at_the_start_ends_the_publisher_also_after_a_wait(
    monkeypatch: pytest.MonkeyPatch, after: list[Exception]
) -> None:
    monkeypatch.setattr(waiting, "back_off", lambda *_: 0.0)
    outcomes = [*after, DatabaseError("wrong password")]

    def work(_connected: Callable[[], bool]) -> None:
        raise outcomes.pop(0)

    with pytest.raises(DatabaseError, match="wrong password"):
        keep_connected(work, StopRequest(), (DatabaseUnavailable,), 1.0, 60.0, SILENT)
