"""A real server: late commits, lost sessions, a second publisher, signals (spec/event-log.md 8, 10,
12).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import processes
import pytest
import sqlalchemy as sa
from processes import EVENTLOG
from publishers import (
    Collecting,
    install,
    is_drained,
    opened,
    process,
    publishing,
    session,
    write_config,
)
from replay import Replay
from shared import PATIENCE, Run, execute, fetch, statuses, url_of, wait_until
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from eventlog.cli.publish.runs import publish as publish_command
from eventlog.config.load import Config, load
from eventlog.errors import (
    DatabaseUnavailable,
    FatalAnswer,
    LostSession,
    PublisherAlreadyRunning,
    ReceiverUnavailable,
)
from eventlog.model import Answer, Document, EventResult, Level
from eventlog.publisher.context.context import Context, Counters, Used
from eventlog.publisher.declared.opening import open_context
from eventlog.publisher.ledger.delivery import decode
from eventlog.publisher.run import waiting
from eventlog.publisher.run.daemon import publish, publish_once
from eventlog.publisher.run.waiting import StopRequest

USR = "CREATE TABLE usr (id integer PRIMARY KEY, name text)"
FAST = {"retry_initial": 0.01, "retry_max": 0.02}
QUICK = (0.05, 0.05)


def install_usr(database: sa.Engine) -> None:
    execute(database, USR)
    install(load({"database": {"url": url_of(database)}, "watch": [{"table": "usr"}]}, {}))


@pytest.fixture
def database(filled_database: Any) -> Iterator[sa.Engine]:
    """A watched table usr, and a log whose rows the tests may write themselves."""
    with filled_database(install_usr) as database:
        yield database


def configured(database: sa.Engine, directory: Path, **settings: dict[str, Any]) -> Config:
    """The configuration of a publisher."""
    settings["publisher"] = {
        "allow_loopback": True,
        "polling_interval": 1,
        **settings.get("publisher", {}),
    }
    return load(write_config(directory, url_of(database), [{"table": "usr"}], **settings), {})


def insert(database: sa.Engine, *ids: int) -> None:
    execute(
        database,
        f"INSERT INTO usr VALUES {', '.join(f'({i}, {chr(39)}n{i}{chr(39)})' for i in ids)}",
    )


def publish_all(config: Config, sink: Collecting) -> None:
    with opened(config, **FAST) as context:
        publish_once(context, sink)


def names_of(sink: Collecting) -> dict[str, list[str]]:
    """The names by key, as a receiver has them."""
    replay = Replay(strict=frozenset({"usr"}))
    replay.documents(sink.bodies)
    return {
        association.partition(",")[0]: values["name"]
        for association, values in replay.objects.items()
    }


# --- late commits ---------------------------------------------------------------------------------


@pytest.mark.promise("guarantee Every committed row is published")
def test_a_row_committed_late_into_the_middle_of_a_marked_range_is_published(
    database: sa.Engine, tmp_path: Path
) -> None:
    config = configured(database, tmp_path)
    sink = Collecting()
    with session(database) as late:
        insert(database, 1)
        late.execute("INSERT INTO usr VALUES (2, 'n2')")  # record_id 2, not committed
        insert(database, 3)
        publish_all(config, sink)
        assert statuses(database) == {1: "S", 3: "S"}
        late.commit()
    assert statuses(database) == {1: "S", 2: "N", 3: "S"}
    publish_all(config, sink)
    assert statuses(database) == {1: "S", 2: "S", 3: "S"}
    assert sink.event_ids == ["1", "3", "2"]


def test_a_row_that_is_committed_while_its_neighbours_are_sent_is_not_marked_unread(
    database: sa.Engine, tmp_path: Path
) -> None:
    config = configured(database, tmp_path, publisher={"batch_size": 1, "mark_interval": 0})
    with session(database) as late:
        insert(database, 1)
        late.execute("INSERT INTO usr VALUES (2, 'n2')")
        # Of one object with 1: the group {1, 3} has a gap where 2 will be.
        execute(
            database, "UPDATE usr SET name = 'n1b' WHERE id = 1", "INSERT INTO usr VALUES (4, 'n4')"
        )

        def commit_now(document: Document) -> None:
            if not late.closed:
                late.commit()

        publish_all(config, sink := Collecting(commit_now))
    publish_all(config, sink)
    assert set(statuses(database).values()) == {"S"}
    assert names_of(sink) == {"id=1": ["n1b"], "id=2": ["n2"], "id=4": ["n4"]}


def test_rows_of_one_event_with_a_gap_are_recorded_and_marked_without_it(
    database: sa.Engine, tmp_path: Path
) -> None:
    config = configured(database, tmp_path)
    values = "('N', 2, 'usr', 'id=1', 'name', 'a', 'b')"
    columns = "status, event_type, table_name, table_key, column_name, old_value, new_value"
    with session(database) as late:
        execute(database, f"INSERT INTO eventlog ({columns}) VALUES {values}")
        late.execute(f"INSERT INTO eventlog ({columns}) VALUES {values}".encode())
        execute(database, f"INSERT INTO eventlog ({columns}) VALUES {values}")
        seen: list[str] = []

        def look(document: Document) -> None:
            seen.extend(
                text for (text,) in fetch(database, "SELECT content FROM eventlog_inflight")
            )
            late.commit()

        publish_all(config, Collecting(look))
    assert [list(event.ids) for line in seen for event in decode(1, line).events()] == [[1, 3]]
    assert statuses(database) == {1: "S", 2: "N", 3: "S"}


# --- in flight ------------------------------------------------------------------------------------


def test_a_row_that_arrives_between_send_and_mark_makes_its_own_event(
    database: sa.Engine, tmp_path: Path
) -> None:
    config = configured(database, tmp_path)
    insert(database, 1)
    execute(database, "DELETE FROM eventlog")
    execute(database, *(f"UPDATE usr SET name = '{name}' WHERE id = 1" for name in ("a", "b")))
    first, second = (record_id for record_id in statuses(database))

    class Died(BaseException):
        pass

    def die(document: Document) -> None:
        raise Died

    sink = Collecting(die)
    with pytest.raises(Died):
        publish_all(config, sink)
    execute(database, "UPDATE usr SET name = 'c' WHERE id = 1")
    sink.on_send = lambda document: None
    publish_all(config, sink)
    assert sink.event_ids == [str(first), str(first), str(second + 1)]
    assert sink.bodies[0] == sink.bodies[1]


# --- retry ----------------------------------------------------------------------------------------


def test_only_the_object_that_got_retry_waits(database: sa.Engine, tmp_path: Path) -> None:
    config = configured(database, tmp_path, publisher={"batch_size": 4})
    insert(database, 1, 2)
    refused, other = threading.Event(), threading.Event()

    def judge(document: Document) -> Answer:
        ids = [event.event_id for event in document.events]
        if "1" in ids and not other.is_set():
            refused.set()
            return Answer({"1": EventResult(Level.RETRY)})
        if any(event.association.startswith("id=3") for event in document.events):
            other.set()
        return Answer()

    sink = Collecting(judge)
    with publishing(config, sink, **FAST) as running:
        wait_until(refused.is_set, "the object is refused")
        # Its later event must not overtake; that of another object must not wait.
        execute(database, "DELETE FROM usr WHERE id = 1", "INSERT INTO usr VALUES (3, 'n3')")
        wait_until(lambda: is_drained(database, running), "the queue is drained")
    assert sink.event_ids.index("3") > max(
        i for i, event_id in enumerate(sink.event_ids) if event_id == "1"
    )
    assert names_of(sink) == {"id=2": ["n2"], "id=3": ["n3"]}


@pytest.mark.promise(
    "readme Events of one object stay in order",
    "guarantee Events of one object are sent in the order of the log",
)
def test_a_retried_object_with_more_events_ends_in_their_order(
    database: sa.Engine, tmp_path: Path
) -> None:
    config = configured(database, tmp_path)
    insert(database, 1)
    execute(
        database,
        "DELETE FROM usr",
        "INSERT INTO usr VALUES (1, 'again')",
        "UPDATE usr SET name = 'last'",
    )
    answers = [Answer({"1": EventResult(Level.RETRY)}), Answer({"1": EventResult(Level.RETRY)})]
    sink = Collecting(lambda document: answers.pop() if answers else None)
    with publishing(config, sink, **FAST) as running:
        wait_until(lambda: is_drained(database, running), "the queue is drained")
    assert sink.event_ids == [
        "1",
        "2",
        "3",
        "4",
        "1",
        "2.2",
        "3.2",
        "4.2",
        "1",
        "2.3",
        "3.3",
        "4.3",
    ]


def test_while_the_receiver_is_unavailable_all_rows_stay_new(
    database: sa.Engine, tmp_path: Path
) -> None:
    config = configured(database, tmp_path, publisher={"batch_size": 1})
    insert(database, 1, 2, 3)

    def away(document: Document) -> None:
        raise ReceiverUnavailable("nobody there")

    sink = Collecting(away)
    with pytest.raises(ReceiverUnavailable, match="nobody there"):
        publish_all(config, sink)
    assert set(statuses(database).values()) == {"N"}
    assert sink.event_ids == ["1"]
    with publishing(config, sink, **FAST) as running:
        wait_until(lambda: len(sink.documents) > 3, "it has been tried again")
        sink.on_send = lambda document: None
        wait_until(lambda: is_drained(database, running), "the queue is drained")
    assert sink.event_ids[-3:] == ["1", "2", "3"]


def test_fatal_marks_f_and_stops_the_daemon(database: sa.Engine, tmp_path: Path) -> None:
    config = configured(database, tmp_path, publisher={"batch_size": 2})
    insert(database, 1, 2, 3)
    sink = Collecting(lambda document: Answer({"2": EventResult(Level.FATAL, "no more")}))
    with pytest.raises(FatalAnswer, match="no more"):
        publish(lambda: opened(config), lambda: sink)
    assert statuses(database) == {1: "S", 2: "F", 3: "N"}
    assert fetch(database, "SELECT record_id, code, message FROM eventlog_error") == [
        (2, "receiver", "no more")
    ]


# --- one publisher --------------------------------------------------------------------------------


@pytest.mark.promise("guarantee One publisher per log", "specification One publisher per log")
def test_a_second_publisher_is_refused_and_the_first_goes_on(
    database: sa.Engine, tmp_path: Path
) -> None:
    config = configured(database, tmp_path)
    insert(database, 1)
    with opened(config) as first:
        with (
            pytest.raises(PublisherAlreadyRunning, match="already being published"),
            opened(config),
        ):
            pass
        with pytest.raises(PublisherAlreadyRunning):
            publish(lambda: opened(config), Collecting)
        publish_once(first, Collecting())
    with opened(config):
        pass
    assert statuses(database) == {1: "S"}


def test_who_keeps_the_publisher_out_is_named_and_doctor_warns_of_another_program(
    database: sa.Engine, tmp_path: Path
) -> None:
    config = configured(database, tmp_path)
    key = f"{int.from_bytes(b'Elog')}, 'eventlog'::regclass::oid::integer"
    with database.connect() as other:
        other.exec_driver_sql("SET application_name = 'psql'")
        other.exec_driver_sql(f"SELECT pg_advisory_lock({key})")
        (session,) = other.exec_driver_sql("SELECT pg_backend_pid()").one()
        who = f"session {session}, user postgres, application 'psql'"
        with pytest.raises(PublisherAlreadyRunning, match=f"another program keeps its lock: {who}"):
            publish(lambda: opened(config), Collecting)
        told = command(tmp_path, "doctor").stdout
        assert "[lock_of_another]" in told
        assert f"SELECT pg_terminate_backend({session})" in told
        assert "(default" not in told, "nothing of what is at its default"


def test_a_second_publisher_has_one_clear_line_and_exit_code_1(
    database: sa.Engine, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish_command, "LOCK_WAIT", 0.1)
    config = configured(database, tmp_path)
    with opened(config):
        code, _, errors = run("publish", "--once")
    assert code == 1
    assert errors.strip().splitlines()[-1].count("is already being published") == 1


def test_a_standby_takes_over_when_the_other_publisher_ends(
    database: sa.Engine, tmp_path: Path
) -> None:
    config = configured(database, tmp_path)
    with (
        opened(config) as first,
        process(
            database, tmp_path / "out", stderr=subprocess.PIPE, standby=True, allow_loopback=True
        ) as second,
    ):
        assert second.stderr is not None
        waits = next(line for line in second.stderr if b"waiting as its standby" in line).decode()
        session = first.log.db.session_id()
        assert f"by session {session}, user postgres, application 'eventlog'" in waits
        assert re.search(r"since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", waits)
        insert(database, 1)
        assert set(statuses(database).values()) == {"N"}
        first.log.connection.close()
        wait_until(lambda: is_drained(database), "the second one publishes")


def test_a_publisher_whose_lost_session_still_has_the_lock_reports_it(
    database: sa.Engine, tmp_path: Path
) -> None:
    config = configured(database, tmp_path)
    used = Used()
    with open_context(config, Counters(), used):
        with (
            pytest.raises(LostSession, match="still locked by the session that this process lost"),
            open_context(config, Counters(), used),
        ):
            pass
        with (
            pytest.raises(PublisherAlreadyRunning, match=r"already being published by session \d+"),
            open_context(config, Counters(), Used()),
        ):
            pass


def test_a_publisher_names_the_one_that_has_taken_over(
    database: sa.Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = configured(database, tmp_path)
    used, stop = Used(), StopRequest()
    ended, taken = threading.Event(), threading.Event()

    @contextmanager
    def connect() -> Iterator[Context]:
        if ended.is_set():
            taken.wait(PATIENCE)
        with open_context(config, Counters(), used) as context:
            yield context

    def serve() -> None:
        publish(connect, Collecting, stop, retry=QUICK)

    serving = threading.Thread(target=serve)
    serving.start()
    insert(database, 1)
    wait_until(lambda: is_drained(database), "it publishes")
    ended.set()
    fetch(database, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {PUBLISHERS}")
    with opened(config) as second:
        session = second.log.db.session_id()
        second.log.commit()
        taken.set()
        wait_until(
            lambda: f"is already being published by session {session}, " in caplog.text,
            "it names the holder",
        )
    assert "that this process lost" not in caplog.text
    stop.set()
    serving.join(PATIENCE)
    stop.close()


# --- lost sessions --------------------------------------------------------------------------------

PUBLISHERS = (
    "application_name = 'eventlog' AND datname = current_database() AND pid <> pg_backend_pid()"
)


def test_a_publisher_whose_session_is_ended_connects_again_and_loses_nothing(
    database: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "back_off", lambda *_: 0.01)
    config = configured(database, tmp_path, publisher={"batch_size": 1, "mark_interval": 0})
    insert(database, *range(1, 9))
    ends = [3, 6]

    def end_session(document: Document) -> None:
        if ends and document.events[0].event_id == str(ends[0]):
            ends.pop(0)
            fetch(
                database,
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {PUBLISHERS}",
            )

    sink = Collecting(end_session)
    with publishing(config, sink) as running:
        wait_until(lambda: is_drained(database, running), "the queue is drained")
        assert running.error is None
        with pytest.raises(PublisherAlreadyRunning), opened(config):
            pass
    assert set(statuses(database).values()) == {"S"}
    # What was sent but not marked is sent again as it was.
    assert sorted(map(int, sink.event_ids)) == [1, 2, 3, 3, 4, 5, 6, 6, 7, 8]
    assert names_of(sink) == {f"id={i}": [f"n{i}"] for i in range(1, 9)}


def test_a_session_that_is_ended_while_it_is_set_up_is_worth_another_try(
    database: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configured(database, tmp_path)
    ask_version = PGDialect_psycopg._get_server_version_info

    def version_of(dialect: Any, conn: Any) -> Any:
        monkeypatch.setattr(PGDialect_psycopg, "_get_server_version_info", ask_version)
        execute(
            database,
            "SELECT "
            f"pg_terminate_backend({conn.exec_driver_sql('SELECT pg_backend_pid()').scalar_one()})",
        )
        return ask_version(dialect, conn)

    monkeypatch.setattr(PGDialect_psycopg, "_get_server_version_info", version_of)
    with pytest.raises(DatabaseUnavailable), opened(config):
        pass
    with opened(config):
        pass


def test_no_session_is_idle_in_a_transaction_while_the_receiver_is_slow(
    database: sa.Engine, tmp_path: Path
) -> None:
    config = configured(
        database,
        tmp_path,
        publisher={"batch_size": 1, "delivery_rows": 2, "query_limit": 4, "mark_interval": 0},
    )
    execute(database, "INSERT INTO usr VALUES (9, 'n9')", "UPDATE eventlog SET status = 'S'")
    columns = "status, event_type, table_name, table_key, column_name"
    execute(
        database,
        f"INSERT INTO eventlog ({columns}) SELECT 'N', 8, 'usr', 'id=9', 'name' FROM "
        "generate_series(1, 3)",
    )
    insert(database, *range(1, 7))
    states: list[str] = []

    def look(document: Document) -> Answer | None:
        states.extend(
            state
            for (state,) in fetch(
                database, f"SELECT state FROM pg_stat_activity WHERE {PUBLISHERS}"
            )
        )
        return Answer({"5": EventResult(Level.RETRY)}) if len(states) < 5 else None

    with publishing(config, Collecting(look), **FAST) as running:
        wait_until(lambda: is_drained(database, running), "the queue is drained")
    assert len(states) >= 7
    assert set(states) == {"idle"}


# --- signals, through the command line ------------------------------------------------------------

RECEIVER = """
import pathlib, time

def receive(body, events):
    here = pathlib.Path(__file__).parent
    with (here / "received").open("a") as file:
        file.write(events[0].event_id + "\\n")
    while (here / "gate").exists() and events[0].event_id == "2":
        time.sleep(0.01)
"""


def command(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [EVENTLOG, *arguments]
    return processes.run(command, cwd=directory, env=environment(directory), timeout=PATIENCE)


def environment(directory: Path) -> dict[str, str]:
    here = Path(__file__).parents[2]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EVENTLOG_")}
    return {**kept, "PYTHONPATH": f"{here}{os.pathsep}{directory}"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_in_the_middle_of_a_delivery_marks_what_was_answered_and_ends_well(
    database: sa.Engine, tmp_path: Path, number: int
) -> None:
    (tmp_path / "receivers.py").write_text(RECEIVER)
    (tmp_path / "gate").touch()
    configured(
        database,
        tmp_path,
        publisher={"batch_size": 1},
        sink={"type": "python", "function": "receivers:receive"},
    )
    insert(database, 1, 2, 3, 4)
    received = tmp_path / "received"
    process = processes.start(
        [EVENTLOG, "publish"],
        cwd=tmp_path, env=environment(tmp_path), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        wait_until(
            lambda: received.exists() and "2" in received.read_text(),
            "the second document is in the air",
        )
        assert process.poll() is None
        process.send_signal(number)
        (tmp_path / "gate").unlink()
        _, errors = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, errors
    assert received.read_text().split() == ["1", "2"]
    assert statuses(database) == {1: "S", 2: "S", 3: "N", 4: "N"}
    [(line,)] = fetch(database, "SELECT content FROM eventlog_inflight")
    left = [
        (number, [list(event.ids) for event in events])
        for number, events in decode(1, line).documents.items()
    ]
    assert left == [(3, [[3]]), (4, [[4]])]
    ended = command(tmp_path, "publish", "--once")
    assert ended.returncode == 0, ended.stderr
    assert received.read_text().split() == ["1", "2", "3", "4"]
    assert set(statuses(database).values()) == {"S"}


def test_fatal_through_the_command_line_is_exit_code_3(database: sa.Engine, tmp_path: Path) -> None:
    (tmp_path / "receivers.py").write_text(
        "def receive(body, events):\n"
        '    return \'<nds><output><status level="fatal" '
        'event-id="1">full</status></output></nds>\'\n'
    )
    configured(database, tmp_path, sink={"type": "python", "function": "receivers:receive"})
    insert(database, 1, 2)
    for arguments in (("publish",), ("publish", "--once")):
        execute(database, "UPDATE eventlog SET status = 'N'")
        ended = command(tmp_path, *arguments)
        assert ended.returncode == 3, ended.stderr
        assert "full" in ended.stderr.strip().splitlines()[-1]
    assert statuses(database) == {1: "F", 2: "S"}
