"""What a running publisher does besides the queue: heartbeats, post-poll statements, times of the
day, log lines.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, time, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from processes import EVENTLOG
from processes import run as run_program
from publishers import LONG, Inbox, configuration, make_log, settings, write
from shared import Run, in_ci, wait_until

from eventlog.errors import DatabaseUnavailable, EventlogError, FatalAnswer, ReceiverUnavailable
from eventlog.model import Answer, Document, EventResult, Level
from eventlog.publisher.context import context as publisher_context
from eventlog.publisher.context.context import Context, Counters, summary
from eventlog.publisher.context.observer import Measured
from eventlog.publisher.declared.opening import open_context
from eventlog.publisher.run.daemon import publish, publish_once
from eventlog.publisher.run.waiting import StopRequest
from eventlog.sql.dialects.postgresql.database import PostgresDatabase
from eventlog.xds.reader import read_events


@pytest.fixture
def log(filled_database: Any) -> Iterator[sa.Engine]:
    with filled_database(make_log) as database:
        yield database


def statuses(engine: sa.Engine) -> dict[int, str]:
    with engine.connect() as conn:
        return {
            row[0]: row[1]
            for row in conn.execute(sa.text("SELECT record_id, status FROM eventlog"))
        }


@dataclass
class Judge(Inbox):
    """Answers each document by ``judge``, and stops the publisher after ``most`` of them."""

    judge: Callable[[Document], Answer] = lambda document: Answer()
    stop: StopRequest = field(default_factory=StopRequest)
    most: int = 1_000_000
    seen: list[Document] = field(default_factory=list)

    def send(self, document: Document) -> Answer:
        self.seen.append(document)
        if len(self.seen) >= self.most:
            self.stop.set()
        return self.judge(document)


def run(
    engine: sa.Engine,
    sink: Judge,
    change: Callable[[Context], Context] = lambda c: c,
    **options: object,
) -> None:
    """Publish in this thread until the sink stops it; ``change`` what no option can say."""
    config = configuration(engine, **{"polling_interval": LONG, **options})

    @contextmanager
    def opened() -> Iterator[Context]:
        with open_context(config, Counters()) as context:
            yield change(context)

    publish(opened, lambda: sink, sink.stop)


# Heartbeats (spec/xds.md 7)


def beating(context: Context) -> Context:
    """With heartbeats that no test waits minutes for."""
    return replace(context, options=replace(context.options, heartbeat_interval=0.02))


@pytest.mark.parametrize("file_layout", ["lines", "documents"])
def test_a_heartbeat_is_sent_when_nothing_else_is(log: sa.Engine, file_layout: str) -> None:
    counted: list[Counters] = []

    def change(context: Context) -> Context:
        counted.append(context.counters)
        return beating(context)

    sink = Judge(most=3)
    run(log, sink, change, sink__file_layout=file_layout, format__xds__indent=2)
    assert [read_events(document.body).heartbeat for document in sink.seen] == [True] * 3
    assert [document.events for document in sink.seen] == [()] * 3
    assert (
        len({document.delivery_no for document in sink.seen}) == 3
    )  # so that no file replaces another one
    assert (counted[0].heartbeats_sent, counted[0].documents_sent) == (3, 0)


def test_without_an_interval_no_heartbeat_is_sent(log: sa.Engine) -> None:
    write(log, 1)
    sink = Judge(most=1)
    run(log, sink, heartbeat_interval=0)
    assert [bool(document.events) for document in sink.seen] == [True]


def test_a_format_without_a_heartbeat_sends_none(log: sa.Engine) -> None:
    sink = Judge(most=1)
    later = threading.Timer(0.5, write, (log, 1))
    later.start()
    run(log, sink, beating, format__type="cloudevents")
    later.join()
    assert [list(document.event_ids) for document in sink.seen] == [["1"]]


def general(level: Level) -> Answer:
    return Answer(general=EventResult(level, "because"))


@pytest.mark.parametrize("level", [level for level in Level if level is not Level.FATAL])
def test_an_answer_to_a_heartbeat_does_not_count(log: sa.Engine, level: Level) -> None:
    sink = Judge(judge=lambda _: general(level), most=3)
    run(log, sink, beating)
    assert len(sink.seen) == 3


def test_a_fatal_answer_to_a_heartbeat_stops_the_publisher(log: sa.Engine) -> None:
    with pytest.raises(FatalAnswer, match="fatal to a heartbeat: because"):
        run(log, Judge(judge=lambda _: general(Level.FATAL)), beating)


def test_a_receiver_that_does_not_answer_a_heartbeat_stops_nothing(
    log: sa.Engine, caplog: pytest.LogCaptureFixture
) -> None:
    def away(document: Document) -> Answer:
        if not document.events:
            raise ReceiverUnavailable("gone")
        return Answer()

    sink = Judge(judge=away, most=3)
    run(log, sink, beating)
    assert "heartbeat: gone" in caplog.text


# Post-poll statements (spec/event-log.md 8.5, 9)


def once(engine: sa.Engine, **options: object) -> None:
    with open_context(configuration(engine, **options), Counters()) as context:
        publish_once(context, Inbox())


@pytest.fixture
def notes(log: sa.Engine) -> Callable[[], list[str]]:
    with log.begin() as conn:
        conn.execute(sa.text("CREATE TABLE notes (note text)"))

    def read() -> list[str]:
        with log.connect() as conn:
            return [row[0] for row in conn.execute(sa.text("SELECT note FROM notes"))]

    return read


STATEMENTS = ["INSERT INTO notes VALUES ('a;b %s %')", "INSERT INTO notes VALUES ('second')"]


def test_post_poll_statements_run_after_a_cycle_that_sent_something(
    log: sa.Engine, notes: Any
) -> None:
    once(log, post_poll_statements=json.dumps(STATEMENTS))
    assert notes() == []
    write(log, 1)
    once(log, post_poll_statements=json.dumps(STATEMENTS))
    assert notes() == ["a;b %s %", "second"]


def test_they_run_after_each_window(log: sa.Engine, notes: Any) -> None:
    write(log, 1, 2, 3, event_type=2)
    once(log, post_poll_statements=json.dumps(STATEMENTS), query_limit=1, fold_distance=0)
    assert notes().count("second") == 3


@pytest.mark.parametrize(
    "statement", ["SELECT 1/0", "nonsense", "INSERT INTO nowhere VALUES (1)", "SELECT %s"]
)
def test_one_that_fails_undoes_them_all_and_stops_nothing(
    log: sa.Engine, notes: Any, caplog: pytest.LogCaptureFixture, statement: str
) -> None:
    write(log, 1, 2, event_type=2)
    once(
        log,
        post_poll_statements=json.dumps([*STATEMENTS, statement]),
        query_limit=1,
        fold_distance=0,
    )
    assert notes() == []
    assert statuses(log) == {1: "S", 2: "S"}
    assert caplog.text.count("post_poll_statements failed and were undone") == 2


def test_a_lost_connection_is_no_failed_statement(log: sa.Engine) -> None:
    write(log, 1)
    with pytest.raises(DatabaseUnavailable):
        once(log, post_poll_statements='["SELECT pg_terminate_backend(pg_backend_pid())"]')
    assert statuses(log) == {1: "S"}


@pytest.mark.parametrize("dry", [False, True])
def test_one_that_empties_the_log_is_refused_at_the_start(
    log: sa.Engine, run: Run, dry: bool
) -> None:
    write(log, 1)
    statement = 'DELETE FROM /* all */ "public".EventLog'
    flags = settings(log, post_poll_statements=json.dumps(["SELECT 1", statement]))
    sets = [part for name, value in flags.items() for part in ("--set", f"{name}={value}")]
    code, _, told = run(*sets, "publish", "--dry-run" if dry else "--once")
    assert code == 2
    assert "may change eventlog, the log: rows that are committed while" in told
    assert "delete_from_log = true in [publisher]" in told
    assert "eventlog purge" in told
    assert statuses(log) == {1: "N"}


@dataclass
class Thief(Inbox):
    """Deletes rows of the log while it answers."""

    engine: sa.Engine | None = None
    stolen: str = "record_id = 1"
    level: Level = Level.SUCCESS

    def send(self, document: Document) -> Answer:
        assert self.engine is not None
        with self.engine.begin() as conn:
            conn.execute(sa.text(f"DELETE FROM eventlog WHERE {self.stolen}"))
        return Answer(general=EventResult(self.level))


@pytest.mark.parametrize("deletes", [False, True])
def test_rows_that_are_gone_before_their_answer_are_reported_and_counted(
    log: sa.Engine, caplog: pytest.LogCaptureFixture, deletes: bool
) -> None:
    write(log, 1, 2, 3)
    with open_context(configuration(log, delete_from_log=deletes), Counters()) as context:
        publish_once(context, Thief(engine=log, stolen="record_id < 3"))
    assert context.counters.rows_missing == 2
    (line,) = [one for one in caplog.records if getattr(one, "code", "") == "rows_missing"]
    assert "among record_ids 1 to 3" in line.getMessage()


def test_rows_that_are_gone_while_they_wait_for_a_retry_are_reported_once(
    log: sa.Engine, caplog: pytest.LogCaptureFixture
) -> None:
    write(log, 1, 2)
    thief = Thief(engine=log, level=Level.RETRY)
    with open_context(configuration(log), Counters()) as context:
        for _ in range(2):  # the second process knows of the delivery by its entry
            with suppress(EventlogError):
                publish_once(context, thief)
        assert context.counters.rows_missing == 1
    assert statuses(log) == {2: "N"}
    found = re.findall(r"(1 row of the log \S+) was deleted before the answer", caplog.text)
    assert len(found) == 1


def test_rows_that_are_deleted_when_they_are_done_are_not_missing(log: sa.Engine) -> None:
    write(log, 1, 2, 3)
    with open_context(configuration(log, delete_from_log=True), Counters()) as context:
        publish_once(context, Inbox())
        assert statuses(log) == {}
        assert context.counters.rows_missing == 0


def test_rows_that_get_another_status_by_hand_are_not_missing(log: sa.Engine) -> None:
    write(log, 1, 2)

    def judge(document: Document) -> Answer:
        with log.begin() as conn:
            conn.execute(sa.text("UPDATE eventlog SET status = 'X' WHERE record_id = 1"))
        return Answer()

    with open_context(configuration(log), Counters()) as context:
        publish_once(context, Judge(judge=judge))
        assert context.counters.rows_missing == 0
    assert statuses(log) == {1: "X", 2: "S"}


# Times of the day


def clock(context: Context, looks: list[datetime], *times: str) -> Context:
    """The server's local time at each look, which is noted; the last one goes on by a minute."""
    last = datetime.fromisoformat(f"2026-03-02 {times[-1]}")
    local_times = itertools.chain(
        (datetime.fromisoformat(f"2026-03-02 {text}") for text in times),
        (last + timedelta(minutes=minute) for minute in itertools.count(1)),
    )

    class Clocked(PostgresDatabase):
        def local_time(self) -> datetime:
            looks.append(next(local_times))
            return looks[-1]

    db = Clocked(context.log.connection, context.log.dialect)
    return replace(context, log=replace(context.log, db=db))


def test_times_of_the_day_replace_the_interval(log: sa.Engine) -> None:
    """Not at the start, nor when a row comes, but at the time, and then again at the next one."""
    write(log, 1)
    looks: list[datetime] = []

    def change(context: Context) -> Context:
        return clock(
            context,
            looks,
            "05:59:59.98",
            "05:59:59.99",
            "06:00:00.01",
            "11:59:59.98",
            "11:59:59.99",
        )

    def judge(document: Document) -> Answer:
        if len(sink.seen) == 1:
            assert looks[-1].time() == time(6, 0, 0, 10_000)
            write(log, 2)
        else:
            assert looks[-1].time() > time(12)
        return Answer()

    sink = Judge(judge=judge, most=2)
    run(log, sink, change, time_of_day="06:00:00, 12:00:00", polling_interval=1)
    assert len(sink.seen) == 2
    assert statuses(log) == {1: "S", 2: "S"}


def test_the_servers_local_time_is_that_of_its_default_zone(log: sa.Engine) -> None:
    with log.begin() as conn:
        conn.execute(sa.text(f"ALTER DATABASE {log.url.database} SET timezone = 'Asia/Tokyo'"))
    log.dispose()
    with open_context(configuration(log), Counters()) as context:
        local = context.log.db.local_time()
        utc = context.log.connection.exec_driver_sql(
            "SELECT clock_timestamp() AT TIME ZONE 'UTC'"
        ).scalar_one()
        assert timedelta(hours=8.9) < local - utc <= timedelta(hours=9)


# What the publisher tells


@pytest.mark.parametrize(
    ("now", "queue", "parked", "line"),
    [
        ({"rows_success": 7, "answers_success": 5, "documents_sent": 2}, Measured(0), 0,
         "5 rows published; 4 events in 1 document; queue: 0 rows"),
        # An event that is sent again is not another event.
        ({"rows_success": 2, "answers_success": 1, "answers_retry": 3, "events_sent": 4, "documents_sent": 4},
         Measured(1), 1, "0 rows published; 0 events and 3 to send again in 3 documents; queue: 1 row; 1 object parked"),
        ({"rows_success": 2, "answers_success": 1, "documents_sent": 1, "rows_invalid": 3, "rows_error": 1},
         Measured(9, 9, 1.25), 2,
         "0 rows published; 0 events in 0 documents; 3 rows invalid; 1 row refused; queue: 9 rows or more, "
"oldest 1.2 s; 2 objects parked"),
    ],
)  # fmt: skip
def test_a_line_shows_what_was_done(
    now: dict[str, int], queue: Measured, parked: int, line: str
) -> None:
    before = Counters(rows_success=2, events_sent=1, answers_success=1, documents_sent=1)
    assert summary(before, Counters(**now), queue, parked) == line


def test_it_is_written_while_something_happens(
    log: sa.Engine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_context, "REPORT_INTERVAL", 0.0)
    write(log, 1)
    with caplog.at_level(logging.INFO, "eventlog"):
        run(log, Judge(most=1))
    lines = [record.message for record in caplog.records if " published; " in record.message]
    assert lines == ["1 row published; 1 event in 1 document; queue: 0 rows"]


def command(
    engine: sa.Engine, *arguments: str, **options: object
) -> subprocess.CompletedProcess[str]:
    flags = settings(engine, **options)
    made = [part for name, value in flags.items() for part in ("--set", f"{name}={value}")]
    secrets = {"EVENTLOG_DATABASE_PASSWORD": "s3cret", "EVENTLOG_SINK_TOKEN": "t0ken"}
    return run_program([EVENTLOG, *made, *arguments], env=os.environ | secrets)


def test_settings_in_effect_are_reported_at_the_start_without_secrets(log: sa.Engine) -> None:
    done = command(log, "-v", "publish", "--once", profile="idm", query_limit=17)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "settings [publisher]" in line]
    assert " INFO settings [publisher]: profile = " in line
    assert "batch_size = 1," in line
    assert "query_limit = 17," in line
    assert "s3cret" not in done.stderr
    assert "t0ken" not in done.stderr


def test_a_disabled_publisher_does_nothing(log: sa.Engine) -> None:
    write(log, 1)
    done = command(log, "publish", "--once", publisher_disabled="yes")
    assert (done.returncode, done.stdout) == (0, "")
    assert "nothing is published, because publisher_disabled is set" in done.stderr
    assert statuses(log) == {1: "N"}


# delete_from_log, loopback


@pytest.mark.parametrize(
    ("delete", "left"),
    [("no", {1: "S", 2: "W", 3: "E", 4: "N", 5: "E"}), ("yes", {3: "E", 4: "N", 5: "E"})],
)
def test_rows_with_success_or_warning_are_deleted_others_keep_their_status(
    log: sa.Engine, delete: str, left: dict[int, str]
) -> None:
    write(log, 1, 2, 3, 4)
    with log.begin() as conn:
        conn.execute(
            sa.text(
                "INSERT INTO eventlog (event_type, table_name, table_key) VALUES (4, 'nobody', "
                "'x=1')"
            )
        )
    levels = {"1": Level.SUCCESS, "2": Level.WARNING, "3": Level.ERROR, "4": Level.RETRY}
    sink = Judge(
        judge=lambda _: Answer({name: EventResult(level) for name, level in levels.items()})
    )
    with (
        open_context(configuration(log, delete_from_log=delete), Counters()) as context,
        pytest.raises(ReceiverUnavailable, match="1 object left"),
    ):
        publish_once(context, sink)
    assert statuses(log) == left


LOOPBACK: list[tuple[dict[str, str], dict[int, str]]] = [
    # the publisher's user is hr; rows 1 to 4 are by hr, HR, NULL and "hr  "
    ({"driver_user": "hr"}, {1: "consumed", 2: "sent", 3: "sent", 4: "consumed"}),
    ({"driver_user": "HR"}, {1: "consumed", 2: "sent", 3: "sent", 4: "consumed"}),
    ({"driver_user": '"HR"'}, {1: "sent", 2: "consumed", 3: "sent", 4: "sent"}),
    (
        {"driver_user": "hr", "loopback_action": "keep"},
        {1: "left", 2: "sent", 3: "sent", 4: "left"},
    ),
    ({"driver_user": "hr", "allow_loopback": "yes"}, {1: "sent", 2: "sent", 3: "sent", 4: "sent"}),
    ({}, {1: "sent", 2: "sent", 3: "sent", 4: "sent"}),  # asked from the database: not hr
]


@pytest.mark.parametrize(("options", "expected"), LOOPBACK)
@pytest.mark.parametrize("query_limit", in_ci(["1", "100"], "1"))
def test_loopback(
    log: sa.Engine, options: dict[str, str], expected: dict[int, str], query_limit: str
) -> None:
    with log.begin() as conn:
        for number, user in enumerate(("hr", "HR", None, "hr  "), 1):
            conn.execute(
                sa.text(
                    "INSERT INTO eventlog (event_type, table_name, table_key, perpetrator) VALUES "
                    "(4, 'usr', :key, :u)"
                ),
                {"key": f"idu={number}", "u": user},
            )
    sink = Judge()
    counters = Counters()
    with open_context(configuration(log, query_limit=query_limit, **options), counters) as context:
        publish_once(context, sink)
    sent = {int(event.event_id) for document in sink.seen for event in document.events}
    became = {
        number: "sent" if number in sent else "left" if status == "N" else "consumed"
        for number, status in statuses(log).items()
    }
    assert became == expected
    assert counters.rows_loopback == list(expected.values()).count("consumed")


def test_the_publishers_own_user_is_asked_from_the_database(log: sa.Engine) -> None:
    with log.begin() as conn:
        conn.execute(
            sa.text(
                "INSERT INTO eventlog (event_type, table_name, table_key, perpetrator)"
                " VALUES (4, 'usr', 'idu=1', session_user)"
            )
        )
    sink = Judge()
    with open_context(configuration(log), Counters()) as context:
        publish_once(context, sink)
    assert not sink.seen
    wait_until(lambda: statuses(log) == {1: "S"}, "the row is consumed")
