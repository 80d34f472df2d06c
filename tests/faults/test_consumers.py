"""Consumers of a log in addition to its publisher: each row once, in the order of its object,
whoever commits late (spec/event-log.md 13).
"""

from __future__ import annotations

import json
import re
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest
import sqlalchemy as sa
from publishers import (
    LONG,
    Collecting,
    Inbox,
    configuration,
    make_log,
    opened,
    publishing,
    session,
    write,
    write_config,
)
from shared import (
    PATIENCE,
    Run,
    copied_log,
    execute,
    fetch,
    opened_log,
    statuses,
    url_of,
    wait_until,
)

from eventlog.config.load import Config, load
from eventlog.core import clock
from eventlog.core.ranges import RecordSet
from eventlog.errors import ConfigError, ConsumerRuns, LogTableError, ReceiverUnavailable
from eventlog.model import LOG_COLUMNS, Answer, EventResult, Level, Operation
from eventlog.publisher.context.context import Context, Counters, Used
from eventlog.publisher.context.observer import Measured, Observer
from eventlog.publisher.declared.opening import open_context, open_unlocked
from eventlog.publisher.feeds.queue import WindowReader
from eventlog.publisher.inspect.skipping import skip
from eventlog.publisher.ledger import ledger
from eventlog.publisher.ledger.ledger import SetLedger, are_registered, count_undone
from eventlog.publisher.run import daemon
from eventlog.publisher.run.daemon import publish_once
from eventlog.publisher.run.liveness import liveness_of
from eventlog.publisher.run.waiting import StopRequest
from eventlog.publisher.send.cycle import dry_run, run_cycle
from eventlog.publisher.send.log_feed import recover
from eventlog.publisher.send.session import PublisherSession
from eventlog.publisher.sinks import Document
from eventlog.sql import migrations
from eventlog.sql.connect.locate import new_log
from eventlog.sql.log.epoch import note_removed
from eventlog.sql.log.requests import ResendRequest, ask_again
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.driver_errors import load_dialect
from eventlog.sql.readers import consumers, followed_set
from eventlog.sql.readers.followed_set import FollowedSet


@pytest.fixture(params=["postgresql", "sqlite"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sa.Engine]:
    """The class ``usr`` and its log, on each database that can have consumers."""
    if request.param == "postgresql":
        yield request.getfixturevalue("pg_log")
        return
    template = request.getfixturevalue("sqlite_log")
    engine = sa.create_engine(f"sqlite:///{copied_log(template, tmp_path / 'app.db')}")
    yield engine
    engine.dispose()


ON_ONE = pytest.mark.parametrize("log", ["sqlite"], indirect=True)
"""For rules whose code is the same on each database."""
SOAKED_ON_POSTGRESQL = pytest.mark.parametrize(
    "log", ["sqlite", pytest.param("postgresql", marks=pytest.mark.night)], indirect=True
)
"""For rules that reach no branch on PostgreSQL that others do not reach there."""


@pytest.fixture(scope="module")
def sqlite_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the class ``usr`` and its log."""
    file = tmp_path_factory.mktemp("log") / "app.db"
    engine = sa.create_engine(f"sqlite:///{file}", poolclass=sa.NullPool)
    execute(engine, "CREATE TABLE usr (idu integer PRIMARY KEY, fname text)")
    migrations.upgrade(engine, log_table="eventlog")
    return file


@pytest.fixture
def pg_log(filled_database: Any) -> Iterator[sa.Engine]:
    with filled_database(make_log) as engine:
        yield engine


@pytest.fixture
def writer(pg_log: sa.Engine) -> Iterator[Callable[[], psycopg.Connection[Any]]]:
    with ExitStack() as stack:
        yield lambda: stack.enter_context(session(pg_log))


ROW = "INSERT INTO eventlog (event_type, table_name, table_key, column_name, new_value) VALUES (1, 'usr', 'idu={}', 'fname', '{}')"
CHANGED = ROW.replace("(1,", "(2,")


def consumer(
    engine: sa.Engine, name: str = "search", start_from: str = "earliest", **options: object
) -> Config:
    source = {
        "source__type": "eventlog",
        "source__consumer": name,
        "source__start_from": start_from,
    }
    return configuration(engine, **source, **options)


def consume(
    config: Config,
    on_send: Callable[[Document], Answer | None] = lambda document: None,
    **options: Any,
) -> list[str]:
    """The event-ids that one run sends."""
    sink = Collecting(on_send)
    with opened(config, **options) as context:
        publish_once(context, sink)
    return sink.event_ids


def the_set(engine: sa.Engine, name: str = "search") -> tuple[int, list[tuple[int, int]]]:
    with engine.connect() as conn:
        dialect = load_dialect(engine.dialect.name)
        entry = consumers.read_consumer(opened_log(conn, new_log(dialect, None, "eventlog")), name)
    assert entry is not None
    return entry.done.floor, entry.done.ranges


def written_sets(engine: sa.Engine) -> list[dict[str, str]]:
    """The lines of sets: ``whole``, then what has joined it since."""
    lines = fetch(engine, "SELECT content FROM eventlog_inflight ORDER BY entry_no")
    return [{line["set"]: line["rows"]} for (text,) in lines if "set" in (line := json.loads(text))]


def written_deliveries(engine: sa.Engine) -> int:
    """The number of deliveries in flight, of the publisher and of consumers."""
    lines = fetch(engine, "SELECT content FROM eventlog_inflight WHERE kind = 'delivery'")
    return sum("documents" in json.loads(content) for (content,) in lines)


@pytest.mark.promise("guarantee Consumers", "source eventlog")
def test_consumers_and_the_publisher_each_send_every_row(log: sa.Engine) -> None:
    write(log, 1, 2, 3)
    assert consume(consumer(log)) == ["1", "2", "3"]
    assert set(statuses(log).values()) == {"N"}
    assert consume(configuration(log)) == ["1", "2", "3"]
    assert set(statuses(log).values()) == {"S"}
    assert consume(consumer(log, "audit")) == ["1", "2", "3"]
    write(log, 4)
    assert [consume(consumer(log, name)) for name in ("search", "audit", "search")] == [
        ["4"],
        ["4"],
        [],
    ]
    assert the_set(log) == (4, [])


@SOAKED_ON_POSTGRESQL
def test_a_consumer_that_begins_now_sends_what_comes_later(log: sa.Engine) -> None:
    write(log, 1, 2)
    assert consume(consumer(log, start_from="latest")) == []
    write(log, 3)
    assert consume(consumer(log, start_from="earliest")) == [
        "3"
    ]  # where it begins was reported when it was registered


@SOAKED_ON_POSTGRESQL
def test_a_request_to_send_again_is_cleared_and_taken_up_in_one_transaction(log: sa.Engine) -> None:
    write(log, 1, 2)
    consume(consumer(log))
    with opened(consumer(log)) as context:
        conn, ledger = context.log.connection, context.ledger
        recover(context)
        ask_again(context.log.on(conn), ResendRequest([(1, 1)]), "search")
        ledger.begin_scan(is_long=False)
        conn.commit()  # as a cycle ends whose window does not count
    assert the_set(log) == (0, [(2, 2)])
    assert consume(consumer(log)) == ["1"]


@SOAKED_ON_POSTGRESQL
def test_a_consumer_begins_at_a_record_id(log: sa.Engine) -> None:
    write(log, 1, 2, 3)
    assert consume(consumer(log, start_from="2")) == ["2", "3"]


@SOAKED_ON_POSTGRESQL
def test_a_begin_below_what_was_removed_is_refused(log: sa.Engine) -> None:
    write(log, 1, 2, 3)
    execute(log, "UPDATE eventlog_epoch SET removed = 2")
    with pytest.raises(ConfigError, match="up to record_id 2 were removed"):
        consume(consumer(log, start_from="2"))
    assert consume(consumer(log, start_from="3")) == ["3"]


@SOAKED_ON_POSTGRESQL
def test_a_begin_above_the_next_record_id_is_refused(log: sa.Engine) -> None:
    write(log, 1, 2, 3)
    with pytest.raises(ConfigError, match=r"start_from = 5: the next record_id .* is 4"):
        consume(consumer(log, start_from="5"))
    assert consume(consumer(log, start_from="4")) == []
    write(log, 4)
    assert consume(consumer(log, start_from="5")) == ["4"]  # counts for a new consumer alone


@SOAKED_ON_POSTGRESQL
def test_a_begin_counts_from_what_the_sequence_has_given_though_the_rows_are_gone(
    log: sa.Engine,
) -> None:
    write(log, 1, 2, 3)
    execute(log, "DELETE FROM eventlog")
    assert consume(consumer(log, start_from="4")) == []


def test_where_the_next_record_id_is_unknown_a_begin_is_taken_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'app.db'}")
    migrations.upgrade(engine, log_table="eventlog")
    execute(
        engine,
        "DROP TABLE eventlog",
        "CREATE TABLE eventlog (record_id integer PRIMARY KEY, status char(1) DEFAULT 'N', event_type "
        "integer, event_time timestamp, perpetrator varchar(32), table_name varchar(64), table_key "
        "varchar(4000), column_name varchar(64), old_value text, new_value text)",
    )
    assert consume(consumer(engine, start_from="500")) == []
    assert "start_from = 500 cannot be compared" in caplog.text
    engine.dispose()


def test_what_was_open_when_a_consumer_began_now_is_sent_when_it_commits(
    pg_log: sa.Engine, writer: Callable[[], Any]
) -> None:
    write(pg_log, 1)
    late = writer()
    late.execute(ROW.format(2, "late"))
    write(pg_log, 3)
    config = consumer(pg_log, start_from="latest")
    assert consume(config) == []
    assert the_set(pg_log) == (1, [(3, 3)])
    late.commit()
    assert consume(config) == ["2"]
    assert the_set(pg_log) == (3, [])


def test_rows_that_commit_late_are_sent_and_nobody_waits_for_them(
    pg_log: sa.Engine, writer: Callable[[], Any]
) -> None:
    late, undone, prepared = writer(), writer(), writer()
    late.execute(ROW.format(1, "late"))
    undone.execute(ROW.format(2, "undone"))
    write(pg_log, 3)
    prepared.execute(ROW.format(4, "open"))
    write(pg_log, 5)
    config = consumer(pg_log)
    assert consume(config) == ["3", "5"]
    undone.rollback()
    assert consume(config) == []
    assert the_set(pg_log) == (0, [(3, 3), (5, 5)])
    late.commit()
    assert consume(config) == ["1"]
    prepared.commit()
    assert consume(config) == ["4"]
    with opened(config) as context:
        state = recover(context)
        for _ in range(3):
            run_cycle(PublisherSession(context, state, Collecting()))
    assert the_set(pg_log) == (5, [])


def values_of(sink: Collecting, key: int) -> list[str]:
    """The values that come to an object, in the order in which they were sent."""
    return [
        text
        for document in sink.documents
        for event in document.events
        if event.association.startswith(f"idu={key},")
        for attribute in event.attributes
        for _, texts in attribute.steps
        for text in texts
    ]


def test_every_window_begins_at_the_head_so_that_no_row_overtakes_one_of_its_object(
    pg_log: sa.Engine, writer: Callable[[], Any]
) -> None:
    long = writer()
    long.execute(CHANGED.format(1, "a"))
    write(pg_log, *range(100, 110), event_type=2)
    long.execute(CHANGED.format(1, "b"))
    write(pg_log, *range(200, 205), event_type=2)
    sink = Collecting()
    with opened(consumer(pg_log), query_limit=4, fold_distance=2) as context:
        state = recover(context)
        assert run_cycle(PublisherSession(context, state, sink)).more
        long.commit()
        while run_cycle(PublisherSession(context, state, sink)).more:
            pass
    assert values_of(sink, 1) == ["a", "b"]
    assert len(set(sink.event_ids)) == len(sink.event_ids) == 17


@pytest.fixture
def relied_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers that were open at one look are relied on at the next."""
    monkeypatch.setattr(followed_set, "OLD", 0.0)


def sets_of(context: Context) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """What is done, and what is passed over too."""
    followed = cast(SetLedger, context.ledger).followed
    return followed.done.spans, followed.passed.spans


@pytest.mark.usefixtures("relied_on")
def test_gaps_are_passed_over_while_nobody_has_ended_who_may_fill_them(
    pg_log: sa.Engine, writer: Callable[[], Any]
) -> None:
    late, undone = writer(), writer()
    late.execute(ROW.format(1, "late"))
    write(pg_log, 2)
    undone.execute(ROW.format(3, "undone"))
    write(pg_log, 4)
    sink = Collecting()
    with opened(consumer(pg_log)) as context:
        state = recover(context)
        for _ in range(3):
            run_cycle(PublisherSession(context, state, sink))
        assert sets_of(context) == ([(2, 2), (4, 4)], [(1, 4)])
        undone.rollback()
        run_cycle(PublisherSession(context, state, sink))
        assert sets_of(context) == ([(2, 2), (4, 4)], [(1, 4)])
        assert sink.event_ids == ["2", "4"]
        late.commit()
        for _ in range(2):
            run_cycle(PublisherSession(context, state, sink))
    assert sink.event_ids == ["2", "4", "1"]
    assert the_set(pg_log) == (4, [])


@pytest.mark.usefixtures("relied_on")
def test_a_row_that_fills_a_gap_after_the_check_is_not_overtaken_by_the_next_row_of_its_object(
    pg_log: sa.Engine, writer: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    late = writer()
    late.execute(CHANGED.format(1, "a"))
    write(pg_log, 2)
    sink = Collecting()
    with opened(consumer(pg_log), fold_distance=1) as context:
        state = recover(context)
        for _ in range(3):
            run_cycle(PublisherSession(context, state, sink))
        look = FollowedSet.poll

        def look_before_a_commit(*arguments: Any) -> bool:
            is_changed = look(*arguments)
            late.commit()
            execute(pg_log, CHANGED.format(1, "b"))
            monkeypatch.setattr(FollowedSet, "poll", look)
            return is_changed

        monkeypatch.setattr(FollowedSet, "poll", look_before_a_commit)
        assert run_cycle(PublisherSession(context, state, sink)).more
        assert sink.event_ids == ["2"]
        run_cycle(PublisherSession(context, state, sink))
    assert values_of(sink, 1) == ["a", "b"]
    assert the_set(pg_log)[0] == 3


@pytest.mark.usefixtures("relied_on")
def test_who_holds_the_lock_and_has_written_nothing_yet_is_not_relied_on(
    pg_log: sa.Engine, writer: Callable[[], Any]
) -> None:
    late = writer()
    late.execute("UPDATE eventlog SET status = 'N' WHERE false")
    execute(pg_log, "SELECT nextval('eventlog_record_id_seq')")
    write(pg_log, 2)
    with opened(consumer(pg_log)) as context:
        state = recover(context)
        for _ in range(3):
            run_cycle(PublisherSession(context, state, Collecting()))
        assert sets_of(context) == ([(2, 2)], [(2, 2)])
        late.commit()
        run_cycle(PublisherSession(context, state, Collecting()))
        assert sets_of(context) == ([(1, 2)], [(1, 2)])


def test_of_a_set_of_many_ranges_what_has_joined_it_is_written(
    pg_log: sa.Engine, writer: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventlog.publisher.ledger.ledger.SMALL", 2)
    late, sink, entries = writer(), Collecting(), []
    with opened(consumer(pg_log)) as context:
        state = recover(context)
        for number in range(7):
            late.execute(ROW.format(1, f"late {number}"))
            write(pg_log, 2)
            run_cycle(PublisherSession(context, state, sink))
            entries.append(written_sets(pg_log))
            with pg_log.connect() as conn:
                entry = consumers.read_consumer(context.log.on(conn), "search")
            assert entry is not None
            assert entry.done.spans == [(one, one) for one in range(2, 2 * number + 3, 2)]
    assert entries[2:] == [
        [{"whole": "[0,2,0,2,0]"}, {"recent": "[0,6,0]"}],
        [{"whole": "[0,2,0,2,0]"}, {"recent": "[0,6,0,2,0]"}],
        [{"whole": "[0,2,0,2,0,2,0,2,0,2,0]"}],
        [{"whole": "[0,2,0,2,0,2,0,2,0,2,0]"}, {"recent": "[0,12,0]"}],
        [{"whole": "[0,2,0,2,0,2,0,2,0,2,0]"}, {"recent": "[0,12,0,2,0]"}],
    ]
    assert len(sink.event_ids) == 7
    assert consume(consumer(pg_log)) == []
    late.commit()
    assert len(consume(consumer(pg_log))) == 1  # its rows are one event's


@SOAKED_ON_POSTGRESQL
def test_the_set_stays_if_each_answer_is_marked_at_once(log: sa.Engine) -> None:
    write(log, 1, 2)
    assert consume(consumer(log), mark_interval=0.0, batch_size=1) == ["1", "2"]
    assert written_sets(log) == [{"whole": "[2]"}]
    assert consume(consumer(log)) == []


@SOAKED_ON_POSTGRESQL
def test_a_consumer_whose_line_was_deleted_begins_again_without_its_former_set(
    log: sa.Engine,
) -> None:
    write(log, 1, 2)
    assert consume(consumer(log)) == ["1", "2"]
    execute(log, "DELETE FROM eventlog_consumer")
    assert consume(consumer(log)) == ["1", "2"]
    assert written_sets(log) == [{"whole": "[2]"}]


@SOAKED_ON_POSTGRESQL
def test_an_event_that_a_crash_left_is_sent_under_its_id_with_its_rows(log: sa.Engine) -> None:
    write(log, 1)

    class Killed(BaseException):
        pass

    def die(document: Document) -> Answer:
        raise Killed

    with pytest.raises(Killed):
        consume(consumer(log), die)
    assert fetch(log, "SELECT kind, owner FROM eventlog_inflight") == [("delivery", "search")]
    execute(log, ROW.format(1, "Jim"))
    assert consume(configuration(log)) == [
        "1"
    ]  # it is not a delivery of the publisher: both rows in one event
    sent: list[Document] = []
    assert consume(consumer(log), lambda document: sent.append(document)) == ["1", "2"]
    assert [[len(event.attributes) for event in document.events] for document in sent] == [[1], [1]]
    assert fetch(log, "SELECT count(*) FROM eventlog_inflight") == [(1,)]
    assert written_sets(log) == [{"whole": "[2]"}]


@ON_ONE
def test_a_refused_event_is_an_error_of_this_consumer_alone(log: sa.Engine) -> None:
    write(log, 1, 2)

    def refuse(document: Document) -> Answer:
        return Answer(results={"1": EventResult(Level.ERROR, "no")})

    assert consume(consumer(log), refuse) == ["1", "2"]
    assert consume(consumer(log)) == []
    lines = fetch(log, "SELECT record_id, code, message, consumer FROM eventlog_error")
    assert lines == [(1, "receiver", "no", "search")]
    assert set(statuses(log).values()) == {"N"}
    assert consume(configuration(log)) == ["1", "2"]


@ON_ONE
def test_an_event_that_is_refused_at_a_flush_is_an_error_of_its_consumer(log: sa.Engine) -> None:
    write(log, 1)
    told = [{"1": EventResult(Level.ERROR, "no")}]

    class Late(Collecting):
        def flush(self) -> dict[str, EventResult]:
            return told.pop() if self.documents and told else {}

    with opened(consumer(log)) as context:
        publish_once(context, Late())
    assert fetch(log, "SELECT record_id, code FROM eventlog_error") == [(1, "receiver")]


@ON_ONE
def test_a_retry_parks_its_object_and_the_others_go_on(log: sa.Engine) -> None:
    write(log, 1, 2)
    tries: list[str] = []

    def later(document: Document) -> Answer | None:
        tries.extend(event.event_id for event in document.events)
        return (
            Answer(results={"1": EventResult(Level.RETRY, "later")})
            if tries.count("1") == 1
            else None
        )

    with opened(consumer(log), retry_initial=0, retry_max=0) as context:
        state, sink = recover(context), Collecting(later)
        run_cycle(PublisherSession(context, state, sink))
        assert the_set(log) == (0, [(2, 2)])
        write(log, 1)
        run_cycle(PublisherSession(context, state, sink))
        run_cycle(PublisherSession(context, state, sink))
    assert tries == ["1", "2", "1", "3"]
    assert the_set(log) == (3, [])


@SOAKED_ON_POSTGRESQL
def test_rows_taken_out_of_the_set_are_sent_again(log: sa.Engine) -> None:
    write(log, 1, 2, 3)
    config = consumer(log)
    consume(config)
    with opened(config) as context:
        ask_again(context.log, ResendRequest([(2, 2)]), "search")
        context.log.connection.commit()
    assert consume(config) == ["2"]
    assert the_set(log) == (3, [])


@ON_ONE
def test_only_the_classes_asked_for_are_sent(log: sa.Engine, tmp_path: Path) -> None:
    execute(log, "CREATE TABLE item (id integer PRIMARY KEY, name text)")
    write(log, 1)
    execute(
        log,
        ROW.replace("usr", "item").replace("fname", "name").replace("idu", "id").format(1, "x"),
        ROW.replace("usr", "gone").format(1, "x"),
    )
    assert consume(consumer(log, source__classes="ITEM")) == ["2"]
    assert the_set(log) == (3, [])
    with pytest.raises(ConfigError, match="nothing is not a class"):
        consume(consumer(log, "other", source__classes="nothing"))


@ON_ONE
def test_rows_of_a_reserved_status_are_passed_over(log: sa.Engine) -> None:
    write(log, 1, 2, 3)
    execute(log, "UPDATE eventlog SET status = 'x' WHERE record_id = 2")
    assert consume(consumer(log)) == ["1", "3"]
    with opened(consumer(log)) as context:
        state = recover(context)
        run_cycle(PublisherSession(context, state, Collecting()))
    assert the_set(log) == (3, [])


@SOAKED_ON_POSTGRESQL
def test_a_second_process_of_a_consumer_reports_that_the_consumer_runs(log: sa.Engine) -> None:
    with (
        opened(consumer(log)),
        pytest.raises(ConsumerRuns, match="'search'"),
        opened(consumer(log)),
    ):
        pass
    with opened(consumer(log)), opened(consumer(log, "audit")), opened(configuration(log)):
        pass


@pytest.fixture
def numbered_log(pg_log: sa.Engine) -> sa.Engine:
    """A log whose triggers draw record_ids themselves, by a sequence of which a session keeps 20
    numbers.
    """
    execute(
        pg_log,
        "ALTER TABLE eventlog ALTER record_id DROP IDENTITY; CREATE SEQUENCE ids CACHE 20",
    )
    return pg_log


def draw(connection: sa.Connection, key: int) -> None:
    """A row as the vendor's triggers write it."""
    connection.exec_driver_sql(
        "INSERT INTO eventlog (record_id, event_type, table_name, table_key) "
        f"VALUES (nextval('ids'), 4, 'usr', 'idu={key}')"
    )
    connection.commit()


def test_a_log_whose_numbering_is_not_known_is_refused(numbered_log: sa.Engine) -> None:
    with (
        pytest.raises(
            LogTableError, match=r"Set record_id_sequence in \[database\] to their sequence"
        ),
        opened(consumer(numbered_log)),
    ):
        pass


def test_the_sequence_that_is_named_is_looked_at_and_loses_no_row(numbered_log: sa.Engine) -> None:
    config = consumer(numbered_log, database__record_id_sequence="IDS")
    with pytest.raises(LogTableError, match="caches 20 numbers per session"), opened(config):
        pass
    execute(numbered_log, "ALTER SEQUENCE ids CACHE 1")
    sink = Collecting()
    with opened(config) as context, numbered_log.connect() as a, numbered_log.connect() as b:
        for session, key in ((a, 1), (b, 2), (a, 3)):
            draw(session, key)
            publish_once(context, sink)
    assert len(sink.event_ids) == len(set(sink.event_ids)) == 3


@pytest.mark.parametrize(
    ("ddl", "name", "why"),
    [
        ("SELECT 1", "nowhere.ids", "there is no such sequence in schema 'nowhere'"),
        ("DROP SEQUENCE ids", "ids", "there is no such sequence in schema 'public'"),
        (
            "ALTER TABLE eventlog ALTER record_id ADD GENERATED ALWAYS AS IDENTITY",
            "ids",
            "accepts no other numbers",
        ),
    ],
)
def test_a_sequence_that_is_named_has_to_number_the_rows(
    numbered_log: sa.Engine, ddl: str, name: str, why: str
) -> None:
    execute(numbered_log, ddl)
    with (
        pytest.raises(LogTableError, match=why),
        opened(configuration(numbered_log, database__record_id_sequence=name)),
    ):
        pass


def test_a_sequence_with_a_cache_is_refused(pg_log: sa.Engine) -> None:
    execute(pg_log, "ALTER TABLE eventlog ALTER record_id SET CACHE 20")
    with (
        pytest.raises(LogTableError, match="caches 20 numbers per session"),
        opened(consumer(pg_log)),
    ):
        pass


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            {"handle_future_events": "yes"},
            "handle_future_events cannot be used with source.consumer",
        ),
        ({"loopback_action": "keep"}, "cannot be used with source.consumer"),
        ({"source__start_from": "yesterday"}, "latest | earliest | snapshot | a record_id"),
        ({"source__consumer": "a b"}, "source.consumer"),
    ],
)
def test_what_a_consumer_cannot_have_is_refused(options: dict[str, str], why: str) -> None:
    flags = {"source.type": "eventlog", "source.consumer": "search"}
    flags |= {
        name.replace("__", ".") if "__" in name else f"publisher.{name}": text
        for name, text in options.items()
    }
    with pytest.raises(ConfigError) as refused:
        load(None, {}, flags)
    assert why in str(refused.value)


@SOAKED_ON_POSTGRESQL
def test_every_perpetrator_is_sent_unless_the_consumer_sets_a_user(log: sa.Engine) -> None:
    write(log, 1)
    with opened(configuration(log)) as context:
        user = context.log.db.current_user()
    execute(log, f"UPDATE eventlog SET perpetrator = '{user or 'me'}'")
    assert consume(consumer(log)) == ["1"]
    assert consume(consumer(log, "audit", driver_user=user or "me")) == []
    assert the_set(log, "audit") == (1, [])


@SOAKED_ON_POSTGRESQL
def test_a_consumer_counts_what_it_has_not_done(log: sa.Engine) -> None:
    write(log, 1, 2, 3)
    with opened(consumer(log, start_from="2")) as context:
        state = recover(context)
        ledger = context.ledger
        assert count_undone(ledger, 100) == 2
        assert count_undone(ledger, 1) == 1
        run_cycle(PublisherSession(context, state, Collecting()))
        assert count_undone(ledger, 100) == 0


# --- the commands ---------------------------------------------------------------------------------


@pytest.fixture
def command(log: sa.Engine, run: Run) -> Callable[..., tuple[int, str, str]]:
    return lambda *arguments: run("--database-url", url_of(log), *arguments)


def test_consumers_are_listed_reset_and_dropped(
    log: sa.Engine, command: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "LOCK_WAIT", 0.1)
    write(log, 1, 2, 3)
    consume(consumer(log))
    consume(consumer(log, "audit", start_from="latest"))
    write(log, 4)
    listed = json.loads(command("consumers", "list", "--json")[1])["consumers"]
    assert [
        (one["name"], one["runs"], one["rows_behind"], one["done_up_to"]) for one in listed
    ] == [
        ("audit", False, 1, 3),
        ("search", False, 1, 3),
    ]
    assert "audit" in command("consumers", "list")[1]
    with opened(consumer(log)):
        code, _, said = command("consumers", "drop", "search", "--yes")
    assert (code, "is running; stop it first" in said) == (1, True)
    assert command("consumers", "reset", "search", "--start-from", "2", "--yes")[0] == 0
    assert consume(consumer(log)) == ["2", "3", "4"]
    assert command("consumers", "drop", "audit", "--yes")[0] == 0
    assert fetch(log, "SELECT name FROM eventlog_consumer") == [("search",)]
    code, _, said = command("consumers", "drop", "audit", "--yes")
    assert (code, "has no consumer 'audit'; the consumers are: search" in said) == (2, True)


@ON_ONE
def test_a_reset_forgets_what_was_in_flight(log: sa.Engine, command: Run) -> None:
    write(log, 1, 2)
    with pytest.raises(ReceiverUnavailable):
        consume(consumer(log), lambda _: Answer(general=EventResult(Level.RETRY, "later")))
    assert written_deliveries(log) == 1
    command("consumers", "reset", "search", "--start-from", "2", "--yes")
    assert written_deliveries(log) == 0
    assert consume(consumer(log)) == ["2"]
    assert the_set(log) == (2, [])


@SOAKED_ON_POSTGRESQL
def test_a_reset_to_above_the_next_record_id_is_refused_and_changes_nothing(
    log: sa.Engine, command: Run
) -> None:
    write(log, 1, 2)
    consume(consumer(log))
    code, _, said = command("consumers", "reset", "search", "--start-from", "999999999", "--yes")
    assert (code, "the next record_id of the log" in said) == (2, True)
    assert the_set(log) == (2, [])


def test_doctor_names_a_consumer_whose_set_lies_above_the_next_record_id(
    log: sa.Engine, command: Run
) -> None:
    write(log, 1, 2)
    consume(consumer(log))
    assert "consumer_beyond" not in command("doctor", "--json")[1]
    execute(log, "UPDATE eventlog_inflight SET content = REPLACE(content, '[2]', '[900]')")
    assert the_set(log) == (900, [])
    (finding,) = (
        one
        for one in json.loads(command("doctor", "--json")[1])["findings"]
        if one["code"] == "consumer_beyond"
    )
    assert finding["severity"] == "error"
    assert "consumer search" in finding["text"]
    assert "up to 900" in finding["text"]
    assert consume(consumer(log)) == []  # a start is not refused


def test_what_was_refused_for_a_consumer_is_shown_and_put_back_for_it_alone(
    log: sa.Engine, command: Run
) -> None:
    write(log, 1, 2)
    consume(consumer(log), lambda document: Answer(results={"2": EventResult(Level.ERROR, "no")}))
    assert "no row of status E or F" in command("errors")[1]
    said = command("errors", "--consumer", "search")
    assert "receiver" in said[1]
    assert "eventlog requeue --consumer search --ids 2" in said[2]
    assert "the receiver answered error: no" in command("explain", "2", "--consumer", "search")[1]
    assert "done" in command("explain", "1", "--consumer", "search")[1].splitlines()[0]
    assert "waits to be published" in command("explain", "2")[1]
    assert "1 row sent again to consumer search" in command("requeue", "--consumer", "search")[1]
    assert "nothing was refused for consumer search" in command("errors", "--consumer", "search")[1]
    assert consume(consumer(log)) == ["2"]
    assert set(statuses(log).values()) == {"N"}


@ON_ONE
@pytest.mark.parametrize(("answer", "again"), [(Level.ERROR, "2.2"), (Level.SUCCESS, "2.3")])
def test_what_was_refused_under_a_later_number_goes_again_under_it_and_what_was_applied_under_the_next(
    log: sa.Engine, command: Run, answer: Level, again: str
) -> None:
    delete = "INSERT INTO eventlog (event_type, table_name, table_key) VALUES (4, 'usr', 'idu=1')"
    execute(log, delete, delete)
    told = iter(({"1": Level.RETRY}, {"2.2": answer}))

    def judge(_: Document) -> Answer:
        return Answer({one: EventResult(level, "no") for one, level in next(told, {}).items()})

    with pytest.raises(ReceiverUnavailable):
        consume(consumer(log), judge)
    assert consume(consumer(log), judge) == ["1", "2.2"]
    command("requeue", "--consumer", "search", "--ids", "2")
    assert consume(consumer(log)) == [again]


@ON_ONE
def test_what_was_refused_before_a_consumer_was_reset_is_refused_no_longer(
    log: sa.Engine, command: Run
) -> None:
    write(log, 1)
    consume(consumer(log), lambda document: Answer(results={"1": EventResult(Level.ERROR, "no")}))
    # The clock has been set back by years since then.
    execute(log, "UPDATE eventlog_error SET error_time = '2090-01-01 00:00:00'")
    command("consumers", "reset", "search", "--start-from", "earliest", "--yes")
    assert consume(consumer(log)) == ["1"]
    assert "nothing was refused" in command("errors", "--consumer", "search")[1]
    assert "done" in command("explain", "1", "--consumer", "search")[1].splitlines()[0]


@ON_ONE
def test_what_is_refused_for_a_consumer_is_known_though_the_clock_is_set_back(
    log: sa.Engine, command: Run
) -> None:
    consume(consumer(log))
    execute(log, "UPDATE eventlog_consumer SET begun = '2090-01-01 00:00:00'")
    write(log, 1)
    consume(consumer(log), lambda document: Answer(results={"1": EventResult(Level.ERROR, "no")}))
    assert "receiver" in command("errors", "--consumer", "search")[1]
    command("requeue", "--consumer", "search")
    assert consume(consumer(log)) == ["1"]
    # The request is an error row, too: the row that the receiver has applied gets its next number.
    command("requeue", "--consumer", "search", "--ids", "1")
    assert consume(consumer(log)) == ["1.2"]


@ON_ONE
def test_objects_of_a_snapshot_after_a_reset_have_other_event_ids(
    log: sa.Engine, command: Run
) -> None:
    execute(log, "INSERT INTO usr VALUES (1, 'Ada')")
    first = consume(consumer(log, start_from="snapshot"))
    command("consumers", "reset", "search", "--start-from", "snapshot", "--yes")  # within a second
    second = consume(consumer(log))
    assert [one.split(".")[2:] for one in first + second] == 2 * [["usr", "idu=1"]]
    assert first != second


@ON_ONE
def test_the_commands_are_of_the_consumer_that_the_configuration_names(
    log: sa.Engine, run: Run
) -> None:
    write(log, 1, 2)
    consume(consumer(log), lambda document: Answer(results={"2": EventResult(Level.ERROR, "no")}))
    flags = ("--set", "source.type=eventlog", "--set", "source.consumer=search")

    def command(*arguments: str) -> tuple[int, str, str]:
        return run("--database-url", url_of(log), *flags, *arguments)

    assert "eventlog requeue --consumer search --ids 2" in command("errors")[2]
    assert "the receiver answered error: no" in command("explain", "2")[1]
    assert "1 row sent again to consumer search" in command("requeue")[1]


@ON_ONE
def test_a_row_that_would_bring_an_old_value_back_is_not_sent_again(
    log: sa.Engine, command: Run
) -> None:
    write(log, 1, 1, event_type=2)
    consume(consumer(log), fold_distance=0)
    code, said, _ = command("requeue", "--consumer", "search", "--ids", "1")
    assert (code, "0 rows sent again" in said) == (1, True)
    assert command("requeue", "--consumer", "search", "--ids", "1", "--force")[0] == 0
    assert consume(consumer(log)) == ["1.2"]


@ON_ONE
def test_a_row_that_the_receiver_has_applied_goes_again_under_the_next_number(
    log: sa.Engine, command: Run
) -> None:
    write(log, 1, event_type=2)
    assert consume(consumer(log)) == ["1"]
    assert command("requeue", "--consumer", "search", "--ids", "1")[0] == 0
    write(log, 1, event_type=2)
    # The event may have later rows now: the receiver would pass over an id of an earlier event.
    assert consume(consumer(log)) == ["1.2"]


@SOAKED_ON_POSTGRESQL
def test_a_requeued_row_is_sent_before_a_later_row_of_its_object_that_was_only_read(
    log: sa.Engine, command: Run
) -> None:
    write(log, 1, event_type=2)
    consume(consumer(log), lambda document: Answer(results={"1": EventResult(Level.ERROR, "no")}))
    write(log, 2, 1, event_type=2)
    codes: list[int] = []

    def requeue(document: Document) -> None:
        if not codes:  # row 3 was read together with row 2, and is not in flight yet
            codes.append(command("requeue", "--consumer", "search")[0])

    sent = consume(consumer(log), requeue, delivery_rows=1, fold_distance=0)
    assert sent == ["2", "1", "3"]
    assert codes == [0]


def test_a_row_that_is_put_back_is_sent_before_a_later_row_of_its_object_that_was_only_read(
    log: sa.Engine, command: Run
) -> None:
    """The same for the publisher."""
    write(log, 1, event_type=2)
    refused = {"1": EventResult(Level.ERROR, "no")}
    consume(configuration(log), lambda document: Answer(results=refused))
    write(log, 2, 1, event_type=2)
    codes: list[int] = []

    def requeue(document: Document) -> None:
        if not codes:  # row 3 was read together with row 2, and is not in flight yet
            codes.append(command("requeue")[0])

    sent = consume(configuration(log), requeue, delivery_rows=1, fold_distance=0)
    assert sent == ["2", "1", "3"]
    assert codes == [0]


def test_a_row_that_is_done_while_a_requeue_reads_outdates_what_is_asked_for(
    pg_log: sa.Engine, run: Run
) -> None:
    write(pg_log, 1, event_type=2)
    consume(
        consumer(pg_log), lambda document: Answer(results={"1": EventResult(Level.ERROR, "no")})
    )
    write(pg_log, 1, event_type=2)
    codes: list[int] = []
    waits = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'eventlog_error'::regclass"

    def requeue() -> None:
        command = ("requeue", "--consumer", "search")
        codes.append(run("--database-url", url_of(pg_log), *command)[0])

    with session(pg_log) as holder:
        thread = threading.Thread(target=requeue)

        def begin_requeue(document: Document) -> None:
            holder.execute("LOCK TABLE eventlog_error")
            thread.start()
            wait_until(lambda: fetch(pg_log, waits))

        assert consume(consumer(pg_log), begin_requeue) == ["2"]
        holder.commit()
        thread.join(PATIENCE)
    assert codes == [1]
    assert consume(consumer(pg_log)) == []


def test_a_consumer_gets_again_what_no_later_row_outdates_and_inserts_as_a_whole(
    log: sa.Engine, command: Run
) -> None:
    row = (
        "INSERT INTO eventlog (event_type, table_name, table_key, column_name, new_value) "
        "VALUES ({}, 'usr', 'idu={}', {}, 'x')"
    )
    rows = [(4, 1), (1, 1), (2, 2), (2, 2), (1, 3), (1, 3)]
    execute(log, *(row.format(*one, "NULL" if one[0] == 4 else "'fname'") for one in rows))
    execute(log, "UPDATE eventlog SET column_name = 'lname' WHERE record_id IN (4, 6)")
    execute(log, "UPDATE eventlog SET column_name = 'gone' WHERE record_id = 6")
    failing = {event: EventResult(Level.ERROR, "no") for event in ("1", "3")}
    assert consume(consumer(log), lambda _: Answer(failing)) == ["1", "2", "3", "5"]
    execute(log, "UPDATE eventlog SET column_name = 'lname' WHERE record_id = 6")
    code, said, _ = command("requeue", "--consumer", "search", "--json")
    told = json.loads(said)
    # The object of row 1 is there again; both rows 3 and 4 were refused; row 6 alone would be an
    # add that replaces what row 5 has brought.
    assert (code, [one["record_id"] for one in told["refused"]]) == (1, [1, 6])
    assert consume(consumer(log)) == ["3"]
    command("requeue", "--consumer", "search", "--ids", "2")
    assert consume(consumer(log)) == ["2.2"]


@ON_ONE
def test_of_a_set_of_many_ranges_only_later_rows_that_are_done_count(
    log: sa.Engine, command: Run
) -> None:
    write(log, 1, 1, 2, 2)
    with opened(consumer(log)) as context:
        done = RecordSet(0, [(1, 1), (3, 4), *((one, one) for one in range(6, 6006, 2))])
        entry = consumers.SetEntries("search")
        consumers.write_done(context.log, entry, done)
        context.log.connection.commit()
    code, said, _ = command("requeue", "--consumer", "search", "--ids", "1-4", "--json")
    told = json.loads(said)
    assert (code, told["set_back"], [row["record_id"] for row in told["refused"]]) == (1, 2, [3])
    many = ",".join(str(one) for one in range(1, 3001, 2))
    code, said, _ = command(
        "requeue", "--consumer", "search", "--ids", f"{many},1,4", "--force", "--json"
    )
    assert (code, json.loads(said)["set_back"]) == (0, 3)


@ON_ONE
def test_a_dry_run_reads_each_row_once(log: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    write(log, *range(1, 41), event_type=2)
    execute(log, "UPDATE eventlog SET table_name = 'nowhere' WHERE record_id % 4 = 0")
    read: list[int] = []
    original = WindowReader.add

    def add(reader: WindowReader, rows: Any) -> None:
        read.extend(record_id for record_id, *_ in rows)
        original(reader, rows)

    monkeypatch.setattr(WindowReader, "add", add)
    with opened(consumer(log), query_limit=5, fold_distance=1) as context:
        assert len(list(dry_run(context))) > 5
    assert (len(set(read)), len(read) < 60) == (
        40,
        True,
    )  # those that are deferred are read by the next window
    assert len(consume(consumer(log))) == 30


def test_purge_keeps_what_a_consumer_has_not_done_and_names_the_consumers(
    log: sa.Engine, command: Run
) -> None:
    write(log, 1, 2)
    consume(consumer(log))
    consume(consumer(log, "audit", start_from="3"))
    write(log, 3)
    consume(configuration(log))
    execute(log, "UPDATE eventlog SET event_time = '2020-01-01 00:00:00'")
    said = command("purge", "--older-than", "1d", "--yes")[1]
    assert "1 row kept, not yet processed by consumer audit" in said
    assert list(statuses(log)) == [3]
    assert fetch(log, "SELECT removed FROM eventlog_epoch") == [(2,)]
    consume(consumer(log))
    consume(consumer(log, "audit"))
    command("purge", "--older-than", "1d", "--yes")
    assert statuses(log) == {}
    assert fetch(log, "SELECT removed FROM eventlog_epoch") == [(3,)]


@SOAKED_ON_POSTGRESQL
def test_purge_keeps_what_a_consumer_was_asked_to_send_again(log: sa.Engine, command: Run) -> None:
    write(log, 1, 2)
    consume(consumer(log))
    consume(configuration(log))
    execute(log, "UPDATE eventlog SET event_time = '2020-01-01 00:00:00'")
    assert command("requeue", "--consumer", "search", "--ids", "1")[0] == 0
    command("purge", "--older-than", "1d", "--yes")
    assert list(statuses(log)) == [1]
    assert consume(consumer(log)) == ["1.2"]
    command("purge", "--older-than", "1d", "--yes")
    assert statuses(log) == {}


@ON_ONE
def test_purge_keeps_the_error_of_a_row_that_stays_for_another_consumer(
    log: sa.Engine, command: Run
) -> None:
    consume(consumer(log, "audit", start_from="earliest"))
    write(log, 1)
    consume(consumer(log), lambda document: Answer(results={"1": EventResult(Level.ERROR, "no")}))
    consume(configuration(log))
    execute(log, "UPDATE eventlog SET event_time = '2020-01-01 00:00:00'")
    for options in (["--dry-run"], ["--yes"]):
        assert "0 error rows" in command("purge", "--older-than", "0s", *options)[1]
    assert "1 row sent again to consumer search" in command("requeue", "--consumer", "search")[1]
    assert consume(consumer(log)) == ["1"]


def test_a_publisher_that_deletes_marks_while_there_are_consumers(
    log: sa.Engine, command: Run
) -> None:
    write(log, 1)
    consume(configuration(log, delete_from_log="yes"))
    assert statuses(log) == {}
    consume(consumer(log))
    write(log, 2)
    consume(configuration(log, delete_from_log="yes"))
    assert statuses(log) == {2: "S"}
    assert consume(consumer(log)) == ["2"]


def test_status_and_doctor_name_a_consumer_that_has_not_moved(log: sa.Engine, command: Run) -> None:
    write(log, 1)
    consume(consumer(log, start_from="earliest", source__classes="usr"))
    write(log, 2)
    assert "consumer search does not run: 1 row behind" in command("status")[1]
    execute(log, "UPDATE eventlog_inflight SET started = '2020-01-01 00:00:00'")
    assert "consumer search has at least 1 row to do" in command("doctor")[1]


def test_a_new_epoch_is_not_drawn_by_hand_while_a_consumer_runs(
    log: sa.Engine, command: Run
) -> None:
    with opened(consumer(log)):
        code, _, said = command("db", "start-epoch")
    assert (code, "search of the log" in said) == (1, True)
    write(log, 1)
    assert command("db", "start-epoch")[0] == 0
    (event_id,) = consume(consumer(log))
    assert event_id.startswith("1.e")


# --- a log that was put back to an earlier state --------------------------------------------------


def lines_of(log: sa.Engine) -> list[tuple[Any, ...]]:
    """What a copy of the database has of its consumers."""
    return fetch(log, "SELECT name, begun, begins, done FROM eventlog_consumer")


def put_back(log: sa.Engine, lines: list[tuple[Any, ...]]) -> None:
    """Give the log the consumers of an earlier state, on a server that presents itself as another
    one.
    """
    execute(
        log,
        "DELETE FROM eventlog_consumer",
        'UPDATE eventlog_epoch SET server = \'{"database": "x", "file": "x"}\'',
    )
    for name, begun, begins, done in lines:
        execute(
            log,
            "INSERT INTO eventlog_consumer (name, begun, begins, done) VALUES "
            f"('{name}', '{begun}', '{begins}', '{done}')",
        )


@SOAKED_ON_POSTGRESQL
def test_a_new_epoch_names_the_consumers_and_so_does_doctor_until_they_are_reset(
    log: sa.Engine, command: Run, caplog: pytest.LogCaptureFixture
) -> None:
    write(log, 1)
    consume(consumer(log))
    consume(consumer(log, "audit"))
    execute(log, "UPDATE eventlog_consumer SET begun = '2020-01-01 00:00:00'")
    assert "consumer_before_epoch" not in command("doctor")[1]
    put_back(log, lines_of(log))
    consume(configuration(log))
    (warning,) = (text for text in caplog.messages if "New event-ids carry the epoch" in text)
    assert "the consumers audit, search. If" in warning
    told = json.loads(command("doctor", "--json")[1])["findings"]
    named = [one["text"] for one in told if one["code"] == "consumer_before_epoch"]
    assert ["consumer audit" in named[0], "consumer search" in named[1]] == [True, True]
    execute(log, "UPDATE eventlog_epoch SET epoch = '2021' || SUBSTR(epoch, 5)")
    command("consumers", "reset", "search", "--start-from", "earliest", "--yes")
    told = json.loads(command("doctor", "--json")[1])["findings"]
    assert [one["text"].split()[1] for one in told if one["code"] == "consumer_before_epoch"] == [
        "audit"
    ]


@ON_ONE
def test_an_epoch_that_is_drawn_by_hand_names_the_consumers(log: sa.Engine, command: Run) -> None:
    consume(consumer(log))
    assert "the consumers search. If" in command("db", "start-epoch")[1]


@pytest.mark.parametrize("before", ["its reset", "its registration"])
@SOAKED_ON_POSTGRESQL
def test_a_consumer_that_remembers_a_later_beginning_warns_that_its_receiver_lacks_data(
    log: sa.Engine, command: Run, caplog: pytest.LogCaptureFixture, before: str
) -> None:
    used = Used()
    consume(consumer(log))
    execute(log, "UPDATE eventlog_consumer SET begun = '2020-01-01 00:00:00'")
    copy = lines_of(log) if before == "its reset" else []
    command("consumers", "reset", "search", "--start-from", "snapshot", "--yes")
    execute(log, "UPDATE eventlog_consumer SET begun = '2021-01-01 00:00:00'")
    with open_context(consumer(log), Counters(), used):
        pass
    put_back(log, copy)
    for _ in range(2):
        with open_context(consumer(log), Counters(), used):
            pass
    (warning,) = (text for text in caplog.messages if "its receiver may lack data" in text)
    assert "eventlog consumers reset search --start-from snapshot" in warning


# --- what a consumer sees and what it does not ----------------------------------------------------


def test_copies_and_rows_of_resync_are_new_rows_for_every_consumer(
    log: sa.Engine, command: Run
) -> None:
    names = ("search", "audit")
    write(log, 1)
    with opened(configuration(log)) as context:
        user = context.log.db.current_user() or "me"
    execute(log, f"UPDATE eventlog SET perpetrator = '{user}'", "INSERT INTO usr VALUES (1, 'Jim')")
    assert [consume(consumer(log, name)) for name in names] == [["1"], ["1"]]
    consume(configuration(log, driver_user=user))  # its own row, which it does not publish
    assert command("--set", f"publisher.driver_user={user}", "requeue", "--loopback")[0] == 0
    assert [consume(consumer(log, name)) for name in names] == [["2"], ["2"]]
    consume(configuration(log))
    command("requeue", "--status", "S", "--ids", "2", "--force")
    assert [consume(consumer(log, name)) for name in names] == [["3"], ["3"]]
    assert command("resync", "usr")[0] == 0
    assert [consume(consumer(log, name)) for name in names] == [["4"], ["4"]]


def test_resync_logs_a_delete_again_that_a_consumer_has_refused(
    log: sa.Engine, command: Run
) -> None:
    delete = "INSERT INTO eventlog (event_type, table_name, table_key) VALUES (4, 'usr', 'idu=1')"
    execute(log, delete)
    consume(configuration(log))
    consume(consumer(log), lambda document: Answer(results={"1": EventResult(Level.ERROR, "no")}))
    assert command("resync", "usr", "--deletes")[0] == 0
    assert consume(consumer(log)) == ["2"]
    assert command("resync", "usr", "--deletes")[0] == 0
    assert consume(consumer(log)) == []


@ON_ONE
def test_rows_e_that_the_publisher_puts_back_are_unseen_by_consumers(
    log: sa.Engine, command: Run
) -> None:
    write(log, 1)
    assert consume(consumer(log)) == ["1"]
    consume(
        configuration(log), lambda document: Answer(results={"1": EventResult(Level.ERROR, "no")})
    )
    assert command("requeue")[0] == 0
    assert statuses(log) == {1: "N"}
    assert consume(consumer(log)) == []
    assert consume(configuration(log)) == ["1"]


def test_rows_that_a_finished_directory_holds_concern_no_consumer(log: sa.Engine) -> None:
    write(log, 1, 2)
    line = {
        "line_format": 1, "job": "b", "directory": "out", "manifest": "0" * 64,
        "last": 1, "rows": 1, "since": "2026-11-22 00:00:00", "deliveries": [], "writers": [],
        "is_marking": False,
    }  # fmt: skip
    with log.begin() as conn:
        held = sa.text(
            "INSERT INTO eventlog_state (entry_no, kind, content) VALUES (1000, 'claim', :line)"
        )
        conn.execute(held, {"line": json.dumps(line)})
    assert consume(configuration(log)) == ["2"]
    assert consume(consumer(log)) == ["1", "2"]


@SOAKED_ON_POSTGRESQL
def test_rows_deleted_or_inserted_by_hand_below_what_is_done_are_unseen(log: sa.Engine) -> None:
    write(log, 1, 2, 3)
    assert consume(consumer(log, start_from="2")) == ["2", "3"]
    overriding = "OVERRIDING SYSTEM VALUE " if log.dialect.name == "postgresql" else ""
    execute(
        log,
        "DELETE FROM eventlog WHERE record_id = 2",
        ROW.replace("(event_type", "(record_id, event_type")
        .replace("VALUES (1", f"{overriding}VALUES (2, 1")
        .format(2, "again"),
    )
    assert consume(consumer(log)) == []


@ON_ONE
def test_a_reserved_status_that_becomes_n_below_what_is_done_is_unseen(log: sa.Engine) -> None:
    write(log, 1, 2, 3)
    execute(log, "UPDATE eventlog SET status = 'x' WHERE record_id = 2")
    with opened(consumer(log)) as context:
        state = recover(context)
        for _ in range(3):
            run_cycle(PublisherSession(context, state, Collecting()))
    assert the_set(log) == (3, [])
    execute(log, "UPDATE eventlog SET status = 'N' WHERE record_id = 2")
    assert consume(consumer(log)) == []


# --- the snapshot ---------------------------------------------------------------------------------


def names_of(documents: list[Document]) -> dict[str, str]:
    return {
        event.event_id: text
        for document in documents
        for event in document.events
        for attribute in event.attributes
        for _, texts in attribute.steps
        for text in texts
    }


def fill(log: sa.Engine, last: int) -> None:
    execute(log, *(f"INSERT INTO usr VALUES ({key}, 'n{key}')" for key in range(1, last + 1)))


def without_begun(event_ids: list[str]) -> list[str]:
    return [event_id.partition(".")[2].partition(".")[2] or event_id for event_id in event_ids]


@SOAKED_ON_POSTGRESQL
def test_a_snapshot_is_every_object_and_then_the_log(log: sa.Engine) -> None:
    write(log, 1)
    fill(log, 3)
    config = consumer(log, start_from="snapshot")
    sent: list[Document] = []

    def change(document: Document) -> None:
        sent.append(document)
        if len(sent) == 1:
            write(log, 2)

    assert without_begun(consume(config, change)) == ["usr.idu=1", "usr.idu=2", "usr.idu=3", "2"]
    assert all(event.event_id.startswith("snapshot.2") for event in sent[0].events)
    assert {event.operation for event in sent[0].events} == {"add"}
    assert sorted(names_of(sent[:1]).values()) == ["n1", "n2", "n3"]
    assert fetch(log, "SELECT loaded FROM eventlog_consumer") == [(None,)]
    assert consume(config) == []


@SOAKED_ON_POSTGRESQL
def test_as_many_documents_of_a_snapshot_as_concurrency_allows_are_sent_at_the_same_time(
    log: sa.Engine,
) -> None:
    fill(log, 6)
    both = threading.Barrier(2, timeout=PATIENCE)

    def meet(_document: Document) -> None:
        both.wait()  # each document waits for another one

    config = consumer(log, start_from="snapshot")
    sent = consume(config, meet, concurrency=2, batch_size=1)
    assert sorted(without_begun(sent)) == [f"usr.idu={key}" for key in range(1, 7)]


@SOAKED_ON_POSTGRESQL
def test_a_snapshot_that_was_cut_off_continues_after_its_last_chunk(
    log: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventlog.publisher.send.snapshot_chunks.MAX_KEYS", 2)
    fill(log, 5)
    config = consumer(log, start_from="snapshot")
    seen: list[str] = []

    class Killed(BaseException):
        pass

    def die(document: Document) -> None:
        seen.extend(event.event_id for event in document.events)
        if len(seen) > 2:
            raise Killed

    with pytest.raises(Killed):
        consume(config, die)
    execute(log, "UPDATE usr SET fname = 'new' WHERE idu = 3", "DELETE FROM usr WHERE idu = 4")
    sent: list[Document] = []
    again = consume(config, lambda document: sent.append(document))
    assert without_begun(again) == ["usr.idu=3", "usr.idu=4", "usr.idu=5"]
    assert again[0] == seen[2]  # a repeated chunk has the same ids and today's values
    assert names_of(sent)[again[0]] == "new"
    gone = [event for document in sent for event in document.events if event.event_id == again[1]]
    assert [event.operation for event in gone] == [Operation.DELETE]


@SOAKED_ON_POSTGRESQL
def test_a_snapshot_whose_class_has_got_another_key_begins_the_class_again(
    log: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventlog.publisher.send.snapshot_chunks.MAX_KEYS", 2)
    fill(log, 3)
    config = consumer(log, start_from="snapshot")
    seen: list[str] = []

    def hang_up(document: Document) -> None:
        seen.extend(event.event_id for event in document.events)
        if len(seen) > 2:
            raise ReceiverUnavailable("gone")

    with pytest.raises(ReceiverUnavailable):
        consume(config, hang_up)
    execute(log, "ALTER TABLE usr RENAME COLUMN idu TO id")
    assert without_begun(consume(config)) == ["usr.id=1", "usr.id=2", "usr.id=3"]


@ON_ONE
def test_an_object_of_a_snapshot_that_gets_retry_waits_alone_and_its_changes_wait_for_it(
    log: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventlog.publisher.send.snapshot_chunks.MAX_KEYS", 2)
    fill(log, 3)
    tries: list[str] = []
    refuses = True

    def later(document: Document) -> Answer | None:
        ids = [event.event_id for event in document.events]
        tries.extend(ids)
        if refuses and ids[0].endswith("idu=1"):
            return Answer(
                {ids[0]: EventResult(Level.RETRY, "later"), ids[1]: EventResult(Level.ERROR, "no")}
            )
        return None

    config = consumer(log, start_from="snapshot")
    with opened(config, retry_initial=3600, retry_max=3600) as context:
        state, sink = recover(context), Collecting(later)
        write(log, 1)
        write(log, 3)
        while run_cycle(PublisherSession(context, state, sink)).more:
            pass
    assert without_begun(tries) == ["usr.idu=1", "usr.idu=2", "usr.idu=3", "2"]
    refuses = False
    assert without_begun(consume(config, later)) == ["usr.idu=1", "1"]
    lines = fetch(
        log, "SELECT record_id, event_id, message FROM eventlog_error WHERE consumer = 'search'"
    )
    assert lines == [(0, tries[1], "no")]


@pytest.mark.parametrize("max_attempts", [0, 2])
@ON_ONE
def test_an_object_that_the_receiver_fails_for_does_not_hold_a_snapshot(
    log: sa.Engine, monkeypatch: pytest.MonkeyPatch, max_attempts: int
) -> None:
    """Also where the consumer is killed all the time."""
    monkeypatch.setattr("eventlog.publisher.send.snapshot_chunks.MAX_KEYS", 8)
    fill(log, 24)
    arrived: dict[str, str] = {}
    culprit = ""

    def fail(document: Document) -> None:
        nonlocal culprit
        ids = [event.event_id for event in document.events]
        if found := [one for one in ids if one.endswith(".usr.idu=11")]:
            culprit = found[0]
            raise ReceiverUnavailable("answers 500", is_suspicious=True)
        arrived.update(dict.fromkeys(ids, ""))

    config = consumer(log, start_from="snapshot")
    no_wait = {"retry_initial": 0, "retry_max": 0, "batch_size": 4, "max_attempts": max_attempts}
    refusals = "SELECT code, event_id FROM eventlog_error WHERE consumer = 'search'"
    for number in range(1, 31):
        write(log, number)  # without another document nobody is given up
        with opened(config, **no_wait) as context:
            state = recover(context)
            for _ in range(3):
                state.outbox.rests_until = 0.0
                run_cycle(PublisherSession(context, state, Collecting(fail)))
        has_others = sum(one.startswith("snapshot.") for one in arrived) == 23
        if has_others and (not max_attempts or fetch(log, refusals)):
            break
    assert sum(one.startswith("snapshot.") for one in arrived) == 23
    assert fetch(log, refusals) == ([("receiver", culprit)] if max_attempts else [])
    if not max_attempts:
        with opened(config) as context:
            skip(context.log, context.ledger, [culprit], "the mailbox is gone")
            context.log.commit()
        assert fetch(log, "SELECT code, event_id, message FROM eventlog_error") == [
            ("skipped", culprit, "the mailbox is gone; the last answer: answers 500")
        ]
    assert fetch(log, "SELECT loaded FROM eventlog_consumer") == [(None,)]
    assert fetch(log, "SELECT count(*) FROM eventlog_inflight WHERE kind = 'delivery'") == [(0,)]


@ON_ONE
def test_an_object_of_a_snapshot_that_is_repeated_after_a_kill_has_the_same_number(
    log: sa.Engine,
) -> None:
    fill(log, 3)
    numbers: list[list[tuple[str, str]]] = []

    class Killed(BaseException):
        pass

    def note(document: Document) -> None:
        seen = []
        for event_id, records in zip(document.event_ids, document.records, strict=True):
            assert not isinstance(records, EventResult)
            messages = [json.loads(record.value or b"")["message"] for record in records]
            seen += [
                (event_id, one["headers"]["changeSequence"]) for one in messages if "headers" in one
            ]
        numbers.append(seen)
        if len(numbers) == 1:
            raise Killed

    sink = {"sink__type": "kafka", "sink__brokers": "localhost:1"}
    config = consumer(log, start_from="snapshot", format__type="qlik-messages", **sink)
    with pytest.raises(Killed):
        consume(config, note)
    execute(log, "UPDATE usr SET fname = 'new' WHERE idu = 2")
    consume(config, note)
    assert len(numbers[0]) == 3
    assert numbers[1] == numbers[0]


@pytest.fixture
def refused(log: sa.Engine) -> str:
    """The event-id of an object that was refused in the snapshot of ``search``; its key has blanks
    and quotes.
    """
    execute(log, "CREATE TABLE page (title varchar(20) PRIMARY KEY, num integer)")
    execute(log, "INSERT INTO page VALUES ('It''s, a', 1), ('b', 2)")
    refuse = lambda document: Answer(  # noqa: E731
        results={
            one.event_id: EventResult(Level.ERROR, "no")
            for one in document.events
            if "It" in one.event_id
        }
    )
    event_id, _ = consume(consumer(log, start_from="snapshot"), refuse)
    return event_id


def test_an_object_that_was_refused_in_a_snapshot_is_shown_with_the_command_that_sends_it_again(
    log: sa.Engine, refused: str, command: Run
) -> None:
    (group,) = json.loads(command("errors", "--consumer", "search", "--json")[1])["errors"]
    assert (group["code"], group["table_name"], group["rows"], group["example"]) == (
        "receiver",
        "page",
        1,
        refused,
    )
    said = command("explain", refused, "--consumer", "search")[1]
    assert "the receiver answered error: no" in said.splitlines()[0]
    assert 'object title="It\'s, a" of class page' in said
    assert f"it makes the event {refused} (add):" in said
    assert shlex.split(group["commands"][0])[1:] == [
        "requeue",
        "--consumer",
        "search",
        "--event-id",
        refused,
    ]


@SOAKED_ON_POSTGRESQL
def test_an_object_of_a_snapshot_is_sent_again_as_it_is_then_to_its_consumer_alone(
    log: sa.Engine, refused: str, command: Run
) -> None:
    config = consumer(log)
    assert consume(config) == []
    said = command("requeue", "--consumer", "search", "--dry-run")[1]
    assert "0 rows and 1 object of its snapshot would be sent again" in said
    command("requeue", "--consumer", "search", "--event-id", refused)
    assert "nothing was refused" in command("errors", "--consumer", "search")[1]
    assert "queued again" in command("explain", refused, "--consumer", "search")[1]
    write(log, 1)
    execute(log, "UPDATE page SET num = 7 WHERE num = 1")
    sent: list[Document] = []
    assert consume(config, lambda document: sent.append(document)) == [refused, "1"]
    assert names_of(sent[:1])[refused] == "7"
    assert fetch(log, "SELECT requeued, loaded FROM eventlog_consumer") == [(None, None)]
    assert consume(config) == []


@ON_ONE
def test_an_object_that_is_sent_again_survives_a_crash(
    log: sa.Engine, refused: str, command: Run
) -> None:
    class Killed(BaseException):
        pass

    def die(document: Document) -> Answer:
        raise Killed

    write(log, 1)
    command("requeue", "--consumer", "search")
    with pytest.raises(Killed):
        consume(consumer(log), die)
    assert consume(consumer(log)) == [refused, "1"]


@SOAKED_ON_POSTGRESQL
def test_objects_of_a_table_that_is_renamed_are_sent_under_its_new_name(
    log: sa.Engine, refused: str, command: Run, tmp_path: Path
) -> None:
    command("requeue", "--consumer", "search")
    execute(log, "ALTER TABLE page RENAME TO sheet")
    file = write_config(tmp_path, url_of(log), [{"table": "sheet", "renamed_from": "page"}])
    config = replace(consumer(log), watches=load(file, {}).watches)
    sent: list[Document] = []
    assert consume(config, lambda document: sent.append(document)) == [refused]
    assert "table=sheet" in str(sent[0].body)


@ON_ONE
def test_an_object_whose_class_is_gone_gets_another_line_and_holds_nobody_up(
    log: sa.Engine, refused: str, command: Run
) -> None:
    command("requeue", "--consumer", "search")
    execute(log, "DROP TABLE page")
    write(log, 1)
    assert consume(consumer(log)) == ["1"]
    (group,) = json.loads(command("errors", "--consumer", "search", "--json")[1])["errors"]
    assert (group["code"], group["example"]) == ("unknown_table", refused)
    assert (
        "it belongs to no published class" in command("explain", refused, "--consumer", "search")[1]
    )


@ON_ONE
def test_only_an_object_that_was_refused_is_asked_for_again(
    log: sa.Engine, refused: str, command: Run
) -> None:
    code, _, said = command(
        "requeue", "--consumer", "search", "--event-id", refused.replace("It", "Id")
    )
    assert (code, "no such object was refused for consumer search" in said) == (2, True)
    assert command("requeue", "--event-id", refused)[0] == 2
    assert command("explain", refused)[0] == 1


@ON_ONE
def test_a_snapshot_is_of_the_classes_asked_for_one_after_the_other(log: sa.Engine) -> None:
    execute(
        log,
        "CREATE TABLE item (id integer PRIMARY KEY, name text)",
        "INSERT INTO item VALUES (7, 'x')",
    )
    fill(log, 2)
    assert without_begun(consume(consumer(log, start_from="snapshot"))) == [
        "item.id=7",
        "usr.idu=1",
        "usr.idu=2",
    ]
    only = consumer(log, "audit", start_from="snapshot", source__classes="item")
    assert without_begun(consume(only)) == ["item.id=7"]


@ON_ONE
def test_an_object_of_a_snapshot_is_a_read_for_debezium(log: sa.Engine) -> None:
    fill(log, 1)
    write(log, 1)
    bodies: list[str] = []
    consume(
        consumer(log, start_from="snapshot", format__type="debezium"),
        lambda document: bodies.append(bytes(document.body).decode()),
    )
    write(log, 1)
    consume(
        consumer(log, format__type="debezium"),
        lambda document: bodies.append(bytes(document.body).decode()),
    )
    assert ['"op":"r"' in body for body in bodies] == [True, False]


def test_numbers_grow_from_chunk_to_chunk_and_to_the_log_though_the_clock_goes_back(
    log: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventlog.publisher.send.snapshot_chunks.MAX_KEYS", 1)
    fill(log, 2)
    numbers: list[str] = []

    class GoingBack(clock.Machine):
        def unix_time(self) -> float:
            return super().unix_time() - 60 * len(numbers)

    def note(document: Document) -> None:
        for records in document.records:
            assert not isinstance(records, EventResult)
            messages = [json.loads(record.value or b"")["message"] for record in records]
            numbers.extend(one["headers"]["changeSequence"] for one in messages if "headers" in one)
        if len(numbers) == 1:
            write(log, 1)

    sink = {"sink__type": "kafka", "sink__brokers": "localhost:1"}
    config = consumer(log, start_from="snapshot", format__type="qlik-messages", **sink)
    with clock.simulated(GoingBack()):
        consume(config, note)
    assert len(numbers) == 3
    assert numbers == sorted(set(numbers))


# --- where it shows -------------------------------------------------------------------------------


@SOAKED_ON_POSTGRESQL
def test_the_monitor_reports_the_rows_to_process_the_ranges_and_the_snapshot(
    log: sa.Engine,
) -> None:
    seen: list[Measured] = []

    class Listening(Observer):
        def measure_due(self) -> float:
            return 0.0

        def measured(self, measured: Measured) -> None:
            seen.append(measured)

    fill(log, 2)
    with opened(consumer(log, start_from="snapshot")) as context:
        publish_once(context, Collecting(), observer=Listening())
    # A table that was never analysed is counted, if it is small.
    told = [measured.snapshot and measured.snapshot[0::2] for measured in seen]
    assert told == [("usr", 2)]
    assert fetch(log, "SELECT moved IS NOT NULL FROM eventlog_consumer") == [(True,)]
    write(log, 1, 2)
    with opened(consumer(log)) as context:
        publish_once(context, Collecting(), observer=Listening())
    assert (seen[-1].queue_rows, seen[-1].ranges, seen[-1].snapshot) == (2, 0, None)


def test_a_database_that_does_not_tell_open_writers_has_no_consumers() -> None:
    with pytest.raises(LogTableError, match="oracle does not show which open transactions"):
        consumers.check_possible(
            load_dialect("oracle")
            .open(cast("Any", None))
            .log(LogTable(None, "eventlog", LOG_COLUMNS))
        )


def test_a_daemon_that_waits_as_the_standby_of_its_consumer_names_the_process_and_is_healthy(
    log: sa.Engine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    write(log, 1)
    stop, sink = StopRequest(), Collecting()
    config = consumer(log, polling_interval=1)
    liveness = liveness_of(config)
    with opened(config):
        thread = threading.Thread(
            target=daemon.publish,
            args=(lambda: opened(config), lambda: sink, stop, liveness),
            kwargs={"retry": (0.1, 0.2)},
        )
        thread.start()
        try:
            wait_until(lambda: liveness.is_connected, "the standby is well")
            assert sink.documents == []
            whom = r"by session \d+, .*" if log.dialect.name == "postgresql" else r"\(.*\)"
            said = re.compile(f"is already being run {whom}; .*; waiting as its standby")
            wait_until(lambda: said.search(caplog.text), "the standby names the process")
        except BaseException:
            stop.set()
            raise
    try:
        wait_until(lambda: sink.event_ids == ["1"], "the standby takes over")
    finally:
        stop.set()
        thread.join(PATIENCE)


def waits_for_a_lock(log: sa.Engine) -> bool:
    """Whether a session of the log's database waits for a lock."""
    waits = "wait_event_type = 'Lock' AND datname = current_database()"
    return bool(fetch(log, f"SELECT 1 FROM pg_stat_activity WHERE {waits}"))


def test_a_consumer_is_registered_when_who_deletes_has_committed(pg_log: sa.Engine) -> None:
    write(pg_log, 1)

    def register() -> None:
        with opened(consumer(pg_log)):
            pass

    with open_unlocked(configuration(pg_log), Counters()) as context:
        assert not are_registered(context.log)
        thread = threading.Thread(target=register)
        thread.start()
        wait_until(lambda: waits_for_a_lock(pg_log), "it waits")
        assert fetch(pg_log, "SELECT name FROM eventlog_consumer") == []
        context.log.connection.commit()
    thread.join(PATIENCE)
    assert fetch(pg_log, "SELECT name FROM eventlog_consumer") == [("search",)]


def test_a_consumer_is_registered_when_a_batch_of_purge_has_committed(pg_log: sa.Engine) -> None:
    write(pg_log, 1, 2)
    ended: list[str] = []

    def register() -> None:
        try:
            with opened(consumer(pg_log, start_from="1")):
                ended.append("registered")
        except ConfigError as refused:
            ended.append(str(refused))

    with open_unlocked(configuration(pg_log), Counters()) as context:
        assert consumers.done_by_consumers(context.log) == {}
        thread = threading.Thread(target=register)
        thread.start()
        wait_until(lambda: waits_for_a_lock(pg_log), "it waits")
        assert ended == []
        note_removed(context.log, 1)
        context.log.connection.commit()
    thread.join(PATIENCE)
    assert ["up to record_id 1 were removed" in one for one in ended] == [True]


def test_a_row_that_a_purge_removes_meanwhile_is_not_asked_for_again(pg_log: sa.Engine) -> None:
    write(pg_log, 1, 2)
    with opened(consumer(pg_log, start_from="earliest")) as context:
        publish_once(context, Collecting())
    asked: list[int] = []

    def requeue() -> None:
        with open_unlocked(configuration(pg_log), Counters()) as context:
            (entry,) = consumers.read_consumers(context.log)
            asked.append(consumers.requeue_for(context.log, entry, [(1, 2)]).set_back)
            context.log.commit()

    with open_unlocked(configuration(pg_log), Counters()) as purging:
        consumers.done_by_consumers(purging.log)
        thread = threading.Thread(target=requeue)
        thread.start()
        wait_until(lambda: waits_for_a_lock(pg_log), "it waits")
        assert asked == []
        purging.log.connection.execute(sa.text("DELETE FROM eventlog WHERE record_id = 1"))
        purging.log.connection.commit()
    thread.join(PATIENCE)
    assert asked == [1]


def test_a_writer_wakes_the_publisher_and_a_consumer_that_sleep(pg_log: sa.Engine) -> None:
    inboxes = [Inbox(), Inbox()]
    with (
        publishing(configuration(pg_log, polling_interval=LONG), inboxes[0]),
        publishing(consumer(pg_log, polling_interval=LONG), inboxes[1]),
    ):
        for key in range(1, 4):
            write(pg_log, key)
            assert [inbox.take() for inbox in inboxes] == [[key], [key]]
            time.sleep(0.3)
