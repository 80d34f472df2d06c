"""Signs of life: the one clock of a publisher, and the health file, which is young while the
publisher is alive, and only then.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import sqlalchemy as sa
from shared import PlainSink, Run, wait_until

from eventlog import cli
from eventlog.config.load import Config, load
from eventlog.errors import ConfigError, ReceiverUnavailable
from eventlog.exit_codes import ExitCode
from eventlog.files.health_file import health_file, read_health
from eventlog.model import Answer, Document, EventResult, Level
from eventlog.publisher.context.conditions import Severity
from eventlog.publisher.context.context import Counters
from eventlog.publisher.context.observer import Doing, Measured, Observer, Outcome, WaitFor
from eventlog.publisher.declared.opening import open_context
from eventlog.publisher.run.daemon import publish
from eventlog.publisher.run.health import Waiting
from eventlog.publisher.run.liveness import Liveness, ReportingSink, liveness_of, reported_liveness
from eventlog.publisher.run.waiting import StopRequest
from eventlog.sql import migrations

EVENT_IDS = ("1", "2")
RETRY = EventResult(Level.RETRY)


class Scripted(PlainSink):
    """A receiver that answers as configured, or is unavailable."""

    def __init__(self, *answers: Answer | Exception) -> None:
        self.answers = list(answers)

    def send(self, document: Document) -> Answer:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


# The clock.


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def liveness(clock: Clock) -> Liveness:
    """Signs are due every 60 seconds, in addition to a rest of 10."""
    return Liveness(60, 10, clock)


SIGNS: list[Callable[[Liveness], object]] = [
    lambda liveness: liveness.does(Doing.PUBLISHING),
    lambda liveness: liveness.connected(again=True),
    lambda liveness: liveness.progressed(),
    lambda liveness: liveness.window_read(0.1, 3),
    lambda liveness: liveness.answered(Document(1, 1, EVENT_IDS, b""), Answer(general=RETRY), 0.1),
    lambda liveness: liveness.marked(0.1),
    lambda liveness: liveness.measured(Measured()),
]


@pytest.mark.parametrize("sign", SIGNS)
def test_whatever_a_publisher_reports_is_a_sign_of_life(
    liveness: Liveness, clock: Clock, sign: Callable[[Liveness], object]
) -> None:
    clock.now += 61
    assert not liveness.is_alive
    sign(liveness)
    clock.now += 59
    assert liveness.is_alive
    clock.now += 2
    assert not liveness.is_alive


def test_a_rest_is_announced(liveness: Liveness, clock: Clock) -> None:
    liveness.does(Doing.RESTING)
    clock.now += 69
    assert liveness.is_alive
    clock.now += 2
    assert not liveness.is_alive


def test_a_wait_for_a_receiver_that_is_unavailable_is_announced(
    liveness: Liveness, clock: Clock
) -> None:
    liveness.waits(WaitFor.RECEIVER, "connection refused", until=clock.now + 500)
    clock.now += 559
    assert liveness.is_alive
    clock.now += 2
    assert not liveness.is_alive


# The file.


def configured(path: Path) -> Config:
    return load(None, {}, {"publisher.health_file": str(path)})


def test_the_file_is_old_until_the_publisher_is_connected_and_gone_at_the_end(
    tmp_path: Path,
) -> None:
    path = tmp_path / "health"
    with reported_liveness(configured(path)) as liveness:
        assert (
            read_health(path, now=1e9).reason
            == "the publisher has started and is not connected yet"
        )
        liveness.connected(again=False)
        wait_until(lambda: path.stat().st_mtime > 0, "it is touched")
        touched = path.stat().st_mtime
        assert read_health(path, touched + 5) == (
            True,
            "last sign of life 5 s ago, one is due within 15 s",
            5.0,
            15.0,
            None,
        )
        assert not read_health(path, touched + 16).is_healthy
    assert read_health(path, touched).reason.startswith("there is no ")


def test_the_file_shows_what_the_publisher_waits_for_without_the_receivers_words(
    tmp_path: Path,
) -> None:
    path = tmp_path / "health"

    def waiting() -> object:
        return read_health(path, path.stat().st_mtime).waits

    with reported_liveness(configured(path)) as liveness:
        liveness.connected(again=False)
        for reason in ("Jack is locked", "Jack is gone"):
            liveness.waits(WaitFor.RECEIVER, reason, 1e9, "http://r: 401", "check sink.url")
        wait_until(lambda: waiting() is not None, "it is written")
        waits = waiting()
        assert isinstance(waits, dict)
        waited = Waiting.from_file(waits, waits["since"] + 601)
        assert waited.condition().name == "receiver_misconfigured"
        assert waited.condition().severity is Severity.ERROR
        assert "Jack" not in path.read_text()
        assert path.read_text().startswith("15\n"), "what an earlier version reads"
        liveness.progressed()
        wait_until(lambda: waiting() is None, "it is removed")
        assert path.read_text() == "15\n"


def test_the_file_of_a_standby_is_touched_once_it_sees_the_other_process_at_work(
    tmp_path: Path,
) -> None:
    path = tmp_path / "health"
    with reported_liveness(configured(path)) as liveness:
        liveness.progressed()
        wait_until(lambda: path.stat().st_mtime > 0, "it is touched")


def test_the_file_is_not_touched_while_no_sign_of_life_comes(tmp_path: Path) -> None:
    path = tmp_path / "health"
    with reported_liveness(configured(path)) as liveness:
        liveness.connected(again=False)
        liveness.sign(-3600)
        time.sleep(1.5)
        assert path.stat().st_mtime == 0


def test_a_file_with_a_time_in_the_future_does_not_show_the_present_state(tmp_path: Path) -> None:
    path = tmp_path / "health"
    path.write_text("60\n")
    assert read_health(path, path.stat().st_mtime - 30).is_healthy
    assert not read_health(path, path.stat().st_mtime - 3600).is_healthy


@pytest.mark.parametrize("content", [b"", b"soon\n", b"\xff\n"])
def test_a_file_of_somebody_else_is_not_healthy(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "health"
    path.write_bytes(content)
    assert not read_health(path, path.stat().st_mtime).is_healthy


def test_a_file_that_somebody_removed_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "health"
    with health_file(path) as file:
        path.unlink()
        file.touch()
        assert read_health(path, path.stat().st_mtime).is_healthy


def test_a_file_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigError, match=r"health_file .* cannot be written: No such file"),
        health_file(tmp_path / "nowhere" / "health"),
    ):
        pass


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("keep")
    (tmp_path / "health").symlink_to(precious)
    with pytest.raises(ConfigError), health_file(tmp_path / "health"):
        pass
    assert precious.read_text() == "keep"


def test_a_file_that_cannot_be_touched_any_more_does_not_stop_the_publisher(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "run"
    directory.mkdir()
    with health_file(directory / "health") as file:
        (directory / "health").unlink()
        directory.rmdir()
        file.touch()
    assert [record.message for record in caplog.records] == [
        f"publisher.health_file {directory / 'health'} cannot be updated: No such file or directory"
    ]


HTTP = {"sink.type": "http", "sink.url": "https://receiver/"}


@pytest.mark.promise("option publisher.polling_interval", "option monitor.liveness_timeout")
@pytest.mark.parametrize(
    ("settings", "rest", "timeout"),
    [
        ({}, 10, 30 + 60),
        ({"publisher.polling_interval": "300", **HTTP, "sink.timeout": "5"}, 300, 5 + 60),
        ({"publisher.time_of_day": "06:00:00"}, 600, 30 + 60),
        ({"monitor.liveness_timeout": "5"}, 10, 5),
    ],
)
def test_a_sign_is_due_after_a_rest_the_receivers_time_and_some_work(
    settings: dict[str, str], rest: float, timeout: float
) -> None:
    liveness = liveness_of(load(None, {}, settings))
    assert (liveness.rest, liveness.timeout) == (rest, timeout)


# What is progress.


@dataclass
class Beats(Observer):
    number: int = 0

    def progressed(self) -> None:
        self.number += 1


@pytest.mark.parametrize(
    ("answer", "beats"),
    [
        (Answer(), 1),
        (Answer({"1": RETRY}), 1),
        (Answer({"1": EventResult(Level.ERROR), "2": RETRY}), 1),
        (Answer({"1": RETRY, "2": RETRY}), 0),
        (Answer(general=RETRY), 0),
    ],
)
def test_an_answer_is_progress_unless_all_of_it_is_retry(answer: Answer, beats: int) -> None:
    counted = Beats()
    sink = ReportingSink(Scripted(answer), counted)
    assert sink.send(Document(1, 1, EVENT_IDS, b"")) is answer
    assert counted.number == beats


@dataclass
class Told(Observer):
    outcomes: list[tuple[int, Outcome]] = field(default_factory=list)

    def attempted(self, document: Document, outcome: Outcome, seconds: float) -> None:
        self.outcomes.append((document.document_no, outcome))


class Buffering(PlainSink):
    """A receiver that answers only when it is flushed."""

    def __init__(self, flushed: ReceiverUnavailable | dict[str, EventResult]) -> None:
        self.flushed = flushed

    def send(self, document: Document) -> Answer:
        return Answer(is_pending=True)

    def flush(self) -> dict[str, EventResult]:
        if isinstance(self.flushed, ReceiverUnavailable):
            raise self.flushed
        return self.flushed


def test_an_attempt_whose_answer_comes_with_the_flush_is_reported_then() -> None:
    error = EventResult(Level.ERROR, "too large")
    told = Told()
    sink = ReportingSink(Buffering({"1": error}), told)
    sink.send(Document(1, 1, ("1",), b""))
    sink.send(Document(1, 2, ("2",), b""))
    assert told.outcomes == []
    sink.flush()
    (first, refused), (second, accepted) = told.outcomes
    assert (first, second) == (1, 2)
    assert isinstance(refused, Answer)
    assert isinstance(accepted, Answer)
    assert (refused.result("1"), accepted.result("2").level) == (error, Level.SUCCESS)
    sink.flush()
    assert len(told.outcomes) == 2, "once each"


def test_a_flush_that_fails_is_no_answer_to_what_was_sent_before_it() -> None:
    gone, told = ReceiverUnavailable("gone"), Told()
    sink = ReportingSink(Buffering(gone), told)
    sink.send(Document(1, 1, ("1",), b""))
    with pytest.raises(ReceiverUnavailable):
        sink.flush()
    assert told.outcomes == [(1, gone)]


def test_a_receiver_that_is_unavailable_is_no_progress() -> None:
    counted = Beats()
    sink = ReportingSink(Scripted(ReceiverUnavailable("gone")), counted)
    with pytest.raises(ReceiverUnavailable):
        sink.send(Document(1, 1, EVENT_IDS, b""))
    assert counted.number == 0


@pytest.fixture
def log(database: sa.Engine) -> sa.Engine:
    migrations.upgrade(database, log_table="eventlog")
    with database.begin() as conn:
        conn.exec_driver_sql("CREATE TABLE usr (idu integer PRIMARY KEY, fname text)")
    return database


def write(log: sa.Engine) -> None:
    with log.begin() as conn:
        conn.exec_driver_sql(
            "INSERT INTO eventlog (event_type, perpetrator, table_name, table_key, column_name, "
            "new_value) VALUES (1, 'hr', 'usr', 'idu=1', 'fname', 'Jack')"
        )


def run_until_beat(log: sa.Engine, receiver: Scripted) -> int:
    """How many answers the receiver had left to give at the first beat."""
    config = load(
        None,
        {},
        {
            "database.url": log.url.render_as_string(hide_password=False),
            "publisher.retry_initial": "0.001",
            "publisher.retry_max": "0.001",
        },
    )
    stop, left = StopRequest(), []

    class Beat(Observer):
        def progressed(self) -> None:
            left.append(len(receiver.answers))
            stop.set()

    try:
        publish(lambda: open_context(config, Counters()), lambda: receiver, stop, Beat())
    finally:
        stop.close()
    return left[0]


def test_an_empty_queue_that_was_looked_at_is_progress(log: sa.Engine) -> None:
    assert run_until_beat(log, Scripted()) == 0


def test_cycles_that_end_because_the_receiver_is_unavailable_are_no_progress(
    log: sa.Engine,
) -> None:
    write(log)
    away = ReceiverUnavailable("gone")
    assert run_until_beat(log, Scripted(away, away, Answer(general=RETRY), Answer())) == 0


def test_a_fatal_answer_ends_the_file_with_the_publisher(
    log: sa.Engine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    write(log)
    path = tmp_path / "health"
    (tmp_path / "receiver_of_health.py").write_text(
        "def receive(document, events):\n    return '<nds><output><status "
        'level="fatal"/></output></nds>\'\n'
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVENTLOG_DATABASE_URL", log.url.render_as_string(hide_password=False))
    arguments = ["--set", "sink.type=python", "--set", "sink.function=receiver_of_health:receive"]
    assert (
        cli.run([*arguments, "--set", f"publisher.health_file={path}", "publish"]) == ExitCode.FATAL
    )
    assert not path.exists()
    assert "FatalAnswer" not in capfd.readouterr().err


# The command.


@pytest.mark.promise("command health", "option publisher.health_file", "option health--file")
def test_health_is_0_while_there_is_progress_and_1_when_there_is_none(
    run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "health"
    asked = ("--set", f"publisher.health_file={path}", "health")
    assert run(*asked) == (
        1,
        f"not healthy: there is no {path}: no publisher with this health_file runs\n",
        "",
    )
    with health_file(path) as file:
        assert run(*asked)[0] == 1
        file.touch()
        code, out, err = run(*asked)
        assert (code, err) == (0, "")
        assert out.startswith("healthy: last sign of life ")
        assert run("--quiet", "health", "--file", str(path)) == (0, "", "")
        code, out, err = run("health", "--file", str(path), "--json")
        report = json.loads(out)
        assert (code, err, report["is_healthy"], report["due"]) == (0, "", True, 15.0)
        os.utime(path, (1, 1))
        assert run(*asked)[0] == 1


def test_health_without_a_file_is_a_matter_of_configuration(run: Run) -> None:
    code, _, err = run("health")
    assert code == ExitCode.USAGE
    assert "EVENTLOG_PUBLISHER_HEALTH_FILE" in err


def test_health_asks_no_database(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "health"
    with health_file(path) as file:
        file.touch()
        url = "database.url=postgresql+psycopg://nobody@127.0.0.1:1/none"
        assert run("--set", url, "--set", f"publisher.health_file={path}", "health")[0] == 0
