"""``requeue`` while a publisher has read the later rows of an object, and has not recorded
them yet (spec/event-log.md 8.1): each of the two waits for the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mysql_servers
import pytest
import sqlalchemy as sa
from publishers import Collecting, configuration, opened
from shared import PATIENCE, Run, execute, fetch, url_of, wait_until

from eventlog.model import Answer, Document, EventResult, Level
from eventlog.publisher.ledger import ledger
from eventlog.publisher.run.daemon import publish_once
from eventlog.sql import migrations
from eventlog.sql.log import requeue
from eventlog.sql.log.requests import ask_again

PAUSE = 1.0
"""The seconds for which ``requeue`` stands before its commit, in which a publisher that does not
wait goes on.
"""
WAITS = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
FIRST_IS_REFUSED = {"1": EventResult(Level.ERROR, "no")}


@pytest.fixture(params=["postgresql", "sqlite"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sa.Engine]:
    """The class ``usr`` and its log, whose row 1 was refused. Row 3 is a later one of its object,
    row 2 is of another object.
    """
    if request.param == "postgresql":
        yield request.getfixturevalue("pg_log")
        return
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'app.db'}")
    make_log(engine)
    refuse_the_first_row(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def pg_log(filled_database: Any) -> Iterator[sa.Engine]:
    with filled_database(make_log) as engine:
        refuse_the_first_row(engine)
        yield engine


@pytest.fixture
def family_log(family_server: mysql_servers.Server) -> Iterator[sa.Engine]:
    with family_server.database() as url:
        engine = sa.create_engine(
            family_server.url.set(database=url.database), poolclass=sa.NullPool
        )
        make_log(engine)
        refuse_the_first_row(engine)
        yield engine


def make_log(engine: sa.Engine) -> None:
    execute(engine, "CREATE TABLE usr (idu integer PRIMARY KEY, fname varchar(10))")
    migrations.upgrade(engine, log_table="eventlog")


def refuse_the_first_row(engine: sa.Engine) -> None:
    write(engine, 1)
    sends(engine, lambda _: Answer(FIRST_IS_REFUSED))
    write(engine, 2, 1)


def write(engine: sa.Engine, *keys: int) -> None:
    row = (
        "INSERT INTO eventlog (event_type, table_name, table_key, column_name, new_value) "
        "VALUES (2, 'usr', 'idu={}', 'fname', 'Jack')"
    )
    execute(engine, *(row.format(key) for key in keys))


def sends(
    engine: sa.Engine, on_send: Callable[[Document], Answer | None], **options: object
) -> list[str]:
    """The event-ids that one run sends."""
    sink = Collecting(on_send)
    with opened(configuration(engine, **options)) as context:
        publish_once(context, sink)
    return sink.event_ids


def test_a_publisher_that_reads_by_time_leaves_no_request(log: sa.Engine, run: Run) -> None:
    refused = EventResult(Level.ERROR, "no")
    with opened(configuration(log, handle_future_events=True)) as context:
        publish_once(
            context, Collecting(lambda sent: Answer(dict.fromkeys(sent.event_ids, refused)))
        )
        assert run("--database-url", url_of(log), "requeue")[0] == 0
        sink = Collecting()
        publish_once(context, sink)
    assert sink.event_ids == ["1", "2"]
    assert fetch(log, "SELECT kind FROM eventlog_state WHERE kind = 'request'") == []


class Requeuing:
    """``eventlog requeue`` in a thread."""

    def __init__(self, log: sa.Engine, run: Run) -> None:
        self._codes: list[int] = []
        self._thread = threading.Thread(
            target=lambda: self._codes.append(run("--database-url", url_of(log), "requeue")[0])
        )
        self.has_begun = False

    def start(self) -> None:
        self.has_begun = True
        self._thread.start()

    def code(self) -> int:
        """The exit code, once the command has ended."""
        self._thread.join(PATIENCE)
        (code,) = self._codes
        return code


@pytest.fixture
def sends_beside_a_late_requeue(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> Callable[[sa.Engine], list[str]]:
    """What a publisher sends while ``requeue`` judges the rows before row 3 is recorded, and
    commits a second later.
    """
    has_judged, may_commit = threading.Event(), threading.Event()

    def request_late(*given: Any) -> None:
        ask_again(*given)
        has_judged.set()
        may_commit.wait(PATIENCE)

    monkeypatch.setattr(requeue, "ask_again", request_late)

    def sent(log: sa.Engine) -> list[str]:
        requeuing = Requeuing(log, run)

        def begin_requeue(_: Document) -> None:
            if not has_judged.is_set():  # row 3 was read together with row 2
                requeuing.start()
                assert has_judged.wait(PATIENCE)
                threading.Timer(PAUSE, may_commit.set).start()

        found = sends(log, begin_requeue, delivery_rows=1, fold_distance=0)
        assert requeuing.code() == 0
        return found

    return sent


def test_what_requeue_sets_back_is_sent_before_later_rows_although_it_commits_late(
    log: sa.Engine, sends_beside_a_late_requeue: Callable[[sa.Engine], list[str]]
) -> None:
    assert sends_beside_a_late_requeue(log) == ["2", "1", "3"]


def test_what_requeue_sets_back_on_mariadb_is_sent_before_later_rows_although_it_commits_late(
    family_log: sa.Engine, sends_beside_a_late_requeue: Callable[[sa.Engine], list[str]]
) -> None:
    assert sends_beside_a_late_requeue(family_log) == ["2", "1", "3"]


def test_requeue_refuses_a_row_whose_later_row_is_being_recorded(
    pg_log: sa.Engine, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The publisher has recorded row 3, and has not committed that yet: ``requeue`` waits."""
    requeuing = Requeuing(pg_log, run)
    record_delivery = ledger.record_delivery

    def record_slowly(*given: Any, **more: Any) -> int | None:
        number = record_delivery(*given, **{**more, "alone": False})
        if not requeuing.has_begun:
            requeuing.start()
            wait_until(lambda: fetch(pg_log, WAITS))
        return number

    monkeypatch.setattr(ledger, "record_delivery", record_slowly)
    assert sends(pg_log, lambda _: None, fold_distance=0) == ["2", "3"]
    assert requeuing.code() == 1
