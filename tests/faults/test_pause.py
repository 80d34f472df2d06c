"""A paused reader sends nothing, keeps what it has, and goes on where it was (spec/event-log.md
8.8).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import mysql_servers
import pytest
import sqlalchemy as sa
from conftest import FilledDatabase
from publishers import Collecting, Inbox, configuration, opened, publishing, settings, write_config
from shared import (
    PATIENCE,
    Run,
    ShortRests,
    execute,
    fetch,
    in_ci,
    met,
    refused,
    url_of,
    wait_until,
)

from eventlog.cli.context import changing_log
from eventlog.config.load import Config, load
from eventlog.errors import Paused, ReceiverUnavailable
from eventlog.model import Answer, Document, EventResult, Level
from eventlog.publisher.context.observer import Doing, Observer, WaitFor
from eventlog.publisher.inspect.pausing import pause_reader, resume_reader
from eventlog.publisher.run.daemon import publish, publish_once
from eventlog.sql import migrations
from eventlog.sql.log.pauses import Pause

READERS = ("publisher", "consumer")
DATABASES = ("postgresql", "sqlite", "family")
# The statements of a pause are asked of each reader in each database by the first test. What a reader that runs does with
# the answer depends on the reader and on how it waits for its database: each is met, and the locks of both in a file.
RUNNING = pytest.mark.parametrize(
    ("log", "reader"),
    met(DATABASES, READERS[::-1], also=[("sqlite", "publisher")]),
    indirect=["log"],
)
# Commands, and what a publisher does, for whom the database is the same.
ANY_DATABASE = pytest.mark.parametrize(
    "log", in_ci(DATABASES, "postgresql", "sqlite"), indirect=True
)


@pytest.fixture(params=DATABASES)
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sa.Engine]:
    """The class ``usr``, its log without rows."""
    if request.param == "postgresql":
        with request.getfixturevalue("filled_database")(make_log) as engine:
            yield engine
        return
    if request.param == "sqlite":
        engine = sa.create_engine(f"sqlite:///{tmp_path / 'app.db'}")
        make_log(engine)
        yield engine
        engine.dispose()
        return
    server: mysql_servers.Server = request.getfixturevalue("started_server")("mariadb")
    with server.database() as url:
        engine = sa.create_engine(server.url.set(database=url.database), poolclass=sa.NullPool)
        make_log(engine)
        yield engine


def make_log(engine: sa.Engine) -> None:
    execute(engine, "CREATE TABLE usr (idu integer PRIMARY KEY, fname varchar(10))")
    migrations.upgrade(engine, log_table="eventlog")


def write(engine: sa.Engine, *keys: int) -> None:
    row = (
        "INSERT INTO eventlog (event_type, table_name, table_key, column_name, new_value) "
        "VALUES (2, 'usr', 'idu={}', 'fname', 'Jack')"
    )
    execute(engine, *(row.format(key) for key in keys))


def config_of(engine: sa.Engine, reader: str, **options: object) -> Config:
    consumer = {"source.consumer": "search", "source.start_from": "earliest"}
    flags = settings(engine, **options) | (consumer if reader == "consumer" else {})
    return load(None, {}, flags)


def name_of(reader: str) -> str | None:
    return "search" if reader == "consumer" else None


def pause(engine: sa.Engine, reader: str, reason: str = "the index is rebuilt") -> Pause:
    with changing_log(configuration(engine)) as log:
        asked = pause_reader(log, name_of(reader), reason, "anna")
        log.commit()
    return asked


def resume(engine: sa.Engine, reader: str) -> Pause | None:
    with changing_log(configuration(engine)) as log:
        ended = resume_reader(log, name_of(reader))
        log.commit()
    return ended


def sends(engine: sa.Engine, reader: str, **options: object) -> list[str]:
    """The event-ids that one run sends."""
    sink = Collecting()
    with opened(config_of(engine, reader, **options)) as context:
        publish_once(context, sink)
    return sink.event_ids


def register(engine: sa.Engine, reader: str) -> None:
    """Let a consumer be registered: only one that exists can be paused."""
    assert sends(engine, reader) == []


@pytest.mark.parametrize("reader", READERS)
def test_a_paused_reader_sends_nothing_in_one_run_while_the_other_goes_on_and_the_rows_after_it_is_resumed(
    log: sa.Engine, reader: str
) -> None:
    register(log, "consumer")
    write(log, 1, 2)
    first = pause(log, reader)
    with refused(Paused, "the index is rebuilt"):
        sends(log, reader)
    assert fetch(log, "SELECT count(*) FROM eventlog_inflight WHERE kind = 'delivery'") == [(0,)]
    (other,) = {*READERS} - {reader}
    assert sends(log, other) == ["1", "2"]
    with refused(Paused, "by anna: the index is rebuilt"):
        pause(log, reader, "for another reason")
    assert first.by == "anna"
    assert resume(log, reader) == first
    assert resume(log, reader) is None
    assert sends(log, reader) == ["1", "2"]


@RUNNING
def test_a_running_reader_pauses_within_a_delivery_and_goes_on_with_its_next_document(
    log: sa.Engine, reader: str
) -> None:
    register(log, reader)
    write(log, 1, 2, 3)
    seen = Seen()

    def pause_at_first(document: Document) -> None:
        if document.document_no == 1:
            pause(log, reader)

    sink = Collecting(pause_at_first)
    config = config_of(log, reader, batch_size=1, mark_interval=0)
    with publishing(config, sink, ShortRests(), seen):
        seen.until(Doing.PAUSED)
        assert sink.event_ids == ["1"]  # what was in the air is answered, and marked
        left = "SELECT content FROM eventlog_inflight WHERE kind = 'delivery'"
        assert [content.count('"number"') for (content,) in fetch(log, left)] == [2]
        write(log, 4)
        resume(log, reader)
        wait_until(lambda: len(sink.event_ids) == 4)
    assert sink.event_ids == ["1", "2", "3", "4"]


@RUNNING
def test_what_is_due_and_what_is_new_waits_while_the_reader_is_paused(
    log: sa.Engine, reader: str
) -> None:
    register(log, reader)
    write(log, 1)
    seen, answers = Seen(), iter([ReceiverUnavailable("refused")])

    def fail_once(document: Document) -> Answer | None:
        for failure in answers:
            pause(log, reader)
            raise failure
        return None

    sink = Collecting(fail_once)
    config = config_of(log, reader, retry_initial=0.1, retry_max=0.1)
    with publishing(config, sink, ShortRests(), seen):
        seen.until(Doing.PAUSED)
        write(log, 2)
        seen.until(Doing.PAUSED, times=2)
        assert sink.event_ids == ["1"]
        resume(log, reader)
        wait_until(lambda: len(sink.event_ids) == 3)
    assert sink.event_ids == ["1", "1", "2"]


@ANY_DATABASE
def test_a_paused_publisher_sends_no_heartbeat(log: sa.Engine) -> None:
    pause(log, "publisher")
    seen, inbox = Seen(), Inbox()
    config = config_of(log, "publisher")
    with publishing(config, inbox, ShortRests(), seen, heartbeat_interval=0.01):
        seen.until(Doing.PAUSED, times=2)
        assert inbox.documents.empty()
        resume(log, "publisher")
        assert inbox.documents.get(timeout=PATIENCE).event_ids == ()


def test_a_paused_consumer_reads_no_chunk_of_its_snapshot(log: sa.Engine) -> None:
    execute(log, *(f"INSERT INTO usr VALUES ({key}, 'Jack')" for key in range(1, 4)))
    config = load(
        None,
        {},
        settings(log, batch_size=1, mark_interval=0)
        | {"source.consumer": "search", "source.start_from": "snapshot"},
    )
    sent = list[str]()

    def pause_at_first(document: Document) -> None:
        sent.extend(event.event_id for event in document.events)
        if len(sent) == 1:
            pause(log, "consumer")

    def run() -> None:
        with opened(config) as context:
            publish_once(context, Collecting(pause_at_first))

    with refused(Paused):
        run()
    with refused(Paused):
        run()
    assert len(sent) == 1
    resume(log, "consumer")
    run()
    assert [one[-1] for one in sent] == ["1", "2", "3"]


@RUNNING
def test_a_standby_that_takes_over_obeys_the_pause(log: sa.Engine, reader: str) -> None:
    register(log, reader)
    write(log, 1)
    pause(log, reader)
    config = config_of(log, reader)
    first, second, inbox = Seen(), Seen(), Inbox()
    stop = ShortRests()
    standby = threading.Thread(
        target=publish,
        args=(lambda: opened(config), lambda: inbox, stop, second, (0.05, 0.05), None, True),
    )
    with publishing(config, inbox, ShortRests(), first):
        first.until(Doing.PAUSED)
        standby.start()
        second.until_locked_out()
    second.until(Doing.PAUSED)
    assert inbox.documents.empty()
    resume(log, reader)
    assert inbox.take() == [1]
    stop.set()
    standby.join(PATIENCE)


@ANY_DATABASE
def test_rows_that_are_queued_again_meanwhile_come_in_their_order_after_the_pause(
    log: sa.Engine, run: Run
) -> None:
    write(log, 1)
    refuses = Collecting(lambda _: Answer({"1": EventResult(Level.ERROR, "no")}))
    with opened(config_of(log, "publisher")) as context:
        publish_once(context, refuses)
    pause(log, "publisher")
    seen, inbox = Seen(), Collecting()
    with publishing(config_of(log, "publisher"), inbox, ShortRests(), seen):
        seen.until(Doing.PAUSED)
        write(log, 2, 1)  # row 3 is a later one of the object of row 1
        code, _, error = run("--database-url", url_of(log), "requeue", "--ids", "1")
        assert code == 0, error
        resume(log, "publisher")
        wait_until(lambda: len(inbox.event_ids) == 2)
    assert inbox.event_ids == ["1", "2"]
    assert fetch(log, "SELECT DISTINCT status FROM eventlog") == [("S",)]


@ANY_DATABASE
def test_a_reset_keeps_the_pause_of_a_consumer(log: sa.Engine, run: Run) -> None:
    register(log, "consumer")
    first = pause(log, "consumer")
    reset = ("consumers", "reset", "search", "--start-from", "earliest", "--yes")
    code, _, error = run("--database-url", url_of(log), *reset)
    assert code == 0, error
    assert resume(log, "consumer") == first


def test_a_stream_in_spark_with_the_name_of_a_paused_consumer_begins_no_batch(
    filled_database: FilledDatabase, tmp_path: Path
) -> None:
    pytest.importorskip("pyspark", reason="the extra spark is not installed")
    from eventlog.spark.changes.change_log import ChangeLog

    with filled_database(make_log) as log:
        file = write_config(tmp_path, url_of(log))
        with closing(ChangeLog(str(file), "search")) as changes:
            first = changes.first()
            write(log, 1)
            pause(log, "consumer")
            assert changes.latest(first) is first
            resume(log, "consumer")
            assert changes.latest(first).rows == 1


# --- the commands ---------------------------------------------------------------------------------


def test_a_pause_stands_in_status_health_and_doctor_until_it_is_ended(
    log: sa.Engine, run: Run
) -> None:
    register(log, "consumer")
    on = ("--database-url", url_of(log), "--set", "sink.type=stdout")
    for of_consumer, reader in ((), "the publisher"), (("--consumer", "search"), "consumer search"):
        code, _, error = run(*on, "pause", *of_consumer, "--reason", "an upgrade")
        assert code == 0, error
        paused = _conditions(run, on, of_consumer)
        assert paused
        assert all(reader in one["text"] for one in paused)
        assert all("an upgrade" in one["text"] for one in paused)
        code, out, _ = run(*on, "doctor", "--json")
        assert code == 4
        texts = [one["text"] for one in json.loads(out)["findings"] if one["code"] == "paused"]
        assert len(texts) == 1
        assert texts[0].startswith(f"{reader} has been paused since ")
        code, _, error = run(*on, "pause", *of_consumer, "--reason", "twice")
        assert (code, "an upgrade [paused]" in error) == (1, True)
        code, out, _ = run(*on, "resume", *of_consumer)
        assert (code, "is resumed; it was paused by" in out) == (0, True)
        code, out, _ = run(*on, "resume", *of_consumer)
        assert (code, f"{reader} is not paused" in out) == (0, True)
        assert _conditions(run, on, of_consumer) == []


def _conditions(run: Run, on: tuple[str, ...], of_consumer: tuple[str, ...]) -> list[Any]:
    _, out, _ = run(*on, "status", "--json", *of_consumer)
    status = json.loads(out)
    found = [one for one in status["health"]["conditions"] if one["name"] == "paused"]
    if of_consumer:
        assert bool(found) == (status["paused"] is not None)
    return found


@ANY_DATABASE
def test_one_run_of_a_paused_publisher_ends_with_1(log: sa.Engine, run: Run) -> None:
    write(log, 1)
    pause(log, "publisher")
    on = ("--database-url", url_of(log), "--set", "sink.type=stdout")
    code, out, error = run(*on, "publish", "--once")
    assert (code, out, "[paused]" in error) == (1, "", True)


def test_a_user_without_a_name_is_recorded_by_number(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'app.db'}")
    make_log(engine)
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 12345)  # who has none in a container either
    on = ("--database-url", url_of(engine))
    code, _, error = run(*on, "pause", "--reason", "an upgrade")
    assert code == 0, error
    code, out, _ = run(*on, "resume")
    assert (code, "it was paused by uid 12345 on " in out) == (0, True)
    engine.dispose()


@ANY_DATABASE
def test_an_unknown_consumer_and_an_empty_reason_are_refused(log: sa.Engine, run: Run) -> None:
    on = ("--database-url", url_of(log), "pause", "--reason")
    code, _, error = run(*on, "why", "--consumer", "nobody")
    assert (code, "has no consumer 'nobody'" in error) == (2, True)
    code, _, error = run(*on, " ")
    assert (code, "give a reason" in error) == (2, True)


def test_a_followed_source_has_no_pause(run: Run) -> None:
    for command in ("pause", "--reason", "why"), ("resume",):
        code, _, error = run("--set", "source.type=gbase", *command)
        assert (code, "stop the publisher of a followed source" in error) == (2, True)


class Seen(Observer):
    """What a reader does, for a thread that waits for it."""

    def __init__(self) -> None:
        self._done: list[str] = []
        self._changed = threading.Condition()

    def does(self, doing: Doing, reason: str = "") -> None:
        self._note(doing.value)

    def waits(self, who: WaitFor, reason: str, *more: object) -> None:  # type: ignore[override]
        self._note(f"waits: {reason}")

    def _note(self, what: str) -> None:
        with self._changed:
            self._done.append(what)
            self._changed.notify_all()

    def until(self, doing: Doing, times: int = 1) -> None:
        """Wait until it does this so many times from now on."""
        self._until(lambda new: new.count(doing.value) >= times)

    def until_locked_out(self) -> None:
        self._until(lambda new: any("as its standby" in one for one in new))

    def _until(self, is_met: Callable[[list[str]], bool]) -> None:
        with self._changed:
            begun = len(self._done)
            assert self._changed.wait_for(lambda: is_met(self._done[begun:]), PATIENCE)
