"""Transactions that commit in the middle of a scan: no row overtakes another of its object
(spec/event-log.md 8.1).

Each transaction of a test is a separate session, and commits between two steps of one cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from publishers import Collecting, install, opened, session, write_config
from shared import execute, met, statuses, url_of

from eventlog.config.load import Config, load
from eventlog.model import Document
from eventlog.publisher.context.context import Context
from eventlog.publisher.feeds import queue
from eventlog.publisher.ledger.ledger import QueueScan
from eventlog.publisher.run import daemon
from eventlog.publisher.send import cycle
from eventlog.publisher.send.cycle import run_cycle
from eventlog.publisher.send.log_feed import recover
from eventlog.publisher.send.session import PublisherSession

OTHERS = "UPDATE usr SET num = 1 WHERE id BETWEEN {} AND {}"


@pytest.fixture
def database(logged: sa.Engine) -> sa.Engine:
    return logged


@pytest.fixture
def config(database: sa.Engine, tmp_path: Path) -> Config:
    execute(
        database,
        "CREATE TABLE usr (id integer PRIMARY KEY, num integer, name text)",
        "INSERT INTO usr VALUES (1, 0), (2, 0)",
        "INSERT INTO usr SELECT n, 0 FROM generate_series(100, 10000) AS n",
    )
    config = load(
        write_config(
            tmp_path, url_of(database), [{"table": "usr"}], publisher={"allow_loopback": True}
        ),
        {},
    )
    install(config)
    return config


@pytest.fixture
def writer(database: sa.Engine) -> Iterator[Callable[[], psycopg.Connection[Any]]]:
    with ExitStack() as stack:
        yield lambda: stack.enter_context(session(database))


def sent_of(sink: Collecting, key: int) -> list[list[str]]:
    """The values in each event of an object."""
    return [
        [text for attribute in event.attributes for _, texts in attribute.steps for text in texts]
        for document in sink.documents
        for event in document.events
        if event.association.startswith(f"id={key},")
    ]


def after_begin(monkeypatch: pytest.MonkeyPatch, step: Callable[[bool], object]) -> None:
    """Call ``step`` with ``is_long`` after a scan has found the tail of the queue and before it
    reads its first window.
    """
    original = queue.begin_scan

    def begin(context: Context, is_long: bool) -> QueueScan | None:
        begun = original(context, is_long)
        step(is_long)
        return begun

    monkeypatch.setattr(cycle, "begin_scan", begin)


def test_an_insert_that_commits_while_a_window_begins_is_one_event(
    database: sa.Engine, config: Config, writer: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What can be seen at first is a row between those that its two columns make."""
    inserting = writer()
    logged = (
        "INSERT INTO eventlog (event_type, table_name, table_key, column_name, new_value) VALUES "
        "(1, 'usr', 'id=9', "
    )
    inserting.execute(logged + "'name', 'a')")
    execute(database, "UPDATE usr SET num = 6 WHERE id = 1")
    inserting.execute(logged + "'num', '5')")
    after_begin(monkeypatch, lambda _: inserting.commit())
    sink = Collecting()
    with opened(config) as context:
        daemon.publish_once(context, sink)
    assert sent_of(sink, 9) == [["a", "5"]]


@pytest.mark.parametrize(("by_time", "savepoint"), met([False, True], [False, True]))
def test_rows_of_a_transaction_that_ends_between_two_windows_stay_in_order(
    database: sa.Engine, config: Config, writer: Callable[[], Any], savepoint: bool, by_time: bool
) -> None:
    long = writer()
    if savepoint:
        long.execute("SAVEPOINT s")
    long.execute("UPDATE usr SET num = 10 WHERE id = 1")
    execute(database, OTHERS.format(100, 109))
    if savepoint:
        long.execute("RELEASE s")
    long.execute("UPDATE usr SET num = 11 WHERE id = 1")
    execute(database, OTHERS.format(200, 204))
    sink = Collecting()
    with opened(config, query_limit=4, fold_distance=2, handle_future_events=by_time) as context:
        state = recover(context)
        assert run_cycle(PublisherSession(context, state, sink)).more
        long.commit()
        while run_cycle(PublisherSession(context, state, sink)).more:
            pass
    assert sent_of(sink, 1) == [["0", "10"], ["10", "11"]]
    assert len(set(sink.event_ids)) == len(sink.event_ids) == 17


def test_a_scan_continues_after_the_rows_that_it_has_read_while_no_writer_ends(
    database: sa.Engine, config: Config, writer: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer().execute("UPDATE usr SET num = 10 WHERE id = 1")
    execute(database, OTHERS.format(100, 129))
    begun: list[bool] = []
    after_begin(monkeypatch, begun.append)
    sink = Collecting()
    with opened(config, query_limit=4, fold_distance=0) as context:
        daemon.publish_once(context, sink)
    assert len(sink.event_ids) == 30
    # Only when the first window has been read is it known that one is not enough.
    assert begun == [False, True]


def test_one_run_ends_although_more_comes_than_it_can_send(
    database: sa.Engine, config: Config
) -> None:
    numbers = iter(range(1000, 100_000, 100))

    def add(_: Document) -> None:
        first = next(numbers)
        execute(database, OTHERS.format(first, first + 9))

    execute(database, OTHERS.format(100, 119))
    sink = Collecting(add)
    with opened(config, query_limit=4, batch_size=1, fold_distance=2) as context:
        daemon.publish_once(context, sink)
    assert [key for key in range(100, 120) if not sent_of(sink, key)] == []
    assert {"N", "S"} == set(statuses(database).values())


def test_a_session_that_has_written_only_other_tables_is_no_writer(
    database: sa.Engine, config: Config, writer: Callable[[], Any]
) -> None:
    execute(database, "CREATE TABLE unwatched (id integer)")
    reading, writing, elsewhere = writer(), writer(), writer()
    reading.execute("SELECT count(*) FROM eventlog")
    elsewhere.execute("INSERT INTO unwatched VALUES (1)")
    with opened(config) as context:
        assert context.log.open_writers() == frozenset()
        writing.execute("UPDATE usr SET num = 1 WHERE id = 1")
        found = context.log.open_writers()
        assert found is not None
        assert len(found) == 1
        assert queue.is_still_valid(context, found)
        writing.rollback()
        assert not queue.is_still_valid(context, found)
        assert queue.is_still_valid(context, frozenset())
        assert not queue.is_still_valid(context, None)
