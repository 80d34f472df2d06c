"""The health file: it is young while there is progress, and only then."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import sqlalchemy as sa
from shared import PlainSink, Run

from eventlog import cli
from eventlog.config.load import load
from eventlog.errors import ConfigError, ReceiverAway
from eventlog.model import Answer, Document, Level, Verdict
from eventlog.publisher.context import Counters
from eventlog.publisher.daemon import publish
from eventlog.publisher.health_file import liveness_file, read_health
from eventlog.publisher.liveness import ReportingSink, patience
from eventlog.publisher.open_context import open_context
from eventlog.publisher.waiting import StopRequest
from eventlog.sql import migrations

EVENT_IDS = ("1", "2")
RETRY = Verdict(Level.RETRY)


class Scripted(PlainSink):
    """A receiver that answers as told, or is away."""

    def __init__(self, *answers: Answer | Exception) -> None:
        self.answers = list(answers)

    def send(self, document: Document) -> Answer:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


# The file.


def test_without_a_health_file_there_is_nothing_to_touch() -> None:
    with liveness_file(None, 60) as beat:
        beat()


def test_the_file_is_old_at_first_young_after_a_beat_and_gone_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "health"
    with liveness_file(path, 120) as beat:
        assert (
            read_health(path, now=1e9).reason
            == "the publisher has started and has done nothing yet"
        )
        beat()
        touched = path.stat().st_mtime
        assert read_health(path, touched + 5) == (
            True,
            "last progress 5 s ago, a sign is due within 120 s",
            5.0,
            120.0,
        )
        assert not read_health(path, touched + 121).is_healthy
    assert read_health(path, touched).reason.startswith("there is no ")


def test_a_file_of_the_future_says_nothing_of_the_present(tmp_path: Path) -> None:
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
    with liveness_file(path, 60) as beat:
        path.unlink()
        beat()
        assert read_health(path, path.stat().st_mtime).is_healthy


def test_a_file_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigError, match=r"health_file .* cannot be written: No such file"),
        liveness_file(tmp_path / "nowhere" / "health", 60),
    ):
        pass


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("keep")
    (tmp_path / "health").symlink_to(precious)
    with pytest.raises(ConfigError), liveness_file(tmp_path / "health", 60):
        pass
    assert precious.read_text() == "keep"


def test_a_file_that_cannot_be_touched_any_more_does_not_stop_the_publisher(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "run"
    directory.mkdir()
    with liveness_file(directory / "health", 60) as beat:
        (directory / "health").unlink()
        directory.rmdir()
        beat()
    assert [record.message for record in caplog.records] == [
        f"publisher.health_file {directory / 'health'} cannot be touched: No such file or directory"
    ]


HTTP = {"sink.type": "http", "sink.url": "https://receiver/"}


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [
        ({}, 3 * 10 + 30 + 60),
        ({"publisher.polling_interval": "300", **HTTP, "sink.timeout": "5"}, 3 * 300 + 5 + 60),
        ({"publisher.time_of_day": "06:00:00"}, 3 * 600 + 30 + 60),
    ],
)
def test_a_sign_is_due_after_three_rests_the_receivers_time_and_some_work(
    settings: dict[str, str], seconds: float
) -> None:
    assert patience(load(None, {}, settings)) == seconds


# What is progress.


@pytest.mark.parametrize(
    ("answer", "beats"),
    [
        (Answer(), 1),
        (Answer({"1": RETRY}), 1),
        (Answer({"1": Verdict(Level.ERROR), "2": RETRY}), 1),
        (Answer({"1": RETRY, "2": RETRY}), 0),
        (Answer(general=RETRY), 0),
    ],
)
def test_an_answer_is_progress_unless_all_of_it_is_retry(answer: Answer, beats: int) -> None:
    counted: list[None] = []
    sink = ReportingSink(Scripted(answer), lambda: counted.append(None))
    assert sink.send(Document(1, 1, EVENT_IDS, b"")) is answer
    assert len(counted) == beats


def test_a_receiver_that_is_away_is_no_progress() -> None:
    sink = ReportingSink(Scripted(ReceiverAway("gone")), lambda: pytest.fail("a beat"))
    with pytest.raises(ReceiverAway):
        sink.send(Document(1, 1, EVENT_IDS, b""))


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

    def beat() -> None:
        left.append(len(receiver.answers))
        stop.set()

    try:
        publish(lambda: open_context(config, Counters()), lambda: receiver, stop, beat)
    finally:
        stop.close()
    return left[0]


def test_an_empty_queue_that_was_looked_at_is_progress(log: sa.Engine) -> None:
    assert run_until_beat(log, Scripted()) == 0


def test_cycles_that_end_because_the_receiver_is_away_are_no_progress(log: sa.Engine) -> None:
    write(log)
    away = ReceiverAway("gone")
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
    assert cli.run([*arguments, "--set", f"publisher.health_file={path}", "publish"]) == cli.FATAL
    assert not path.exists()
    assert "FatalAnswer" not in capfd.readouterr().err


# The command.


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
    with liveness_file(path, 60) as beat:
        assert run(*asked)[0] == 1
        beat()
        code, out, err = run(*asked)
        assert (code, err) == (0, "")
        assert out.startswith("healthy: last progress ")
        assert run("--quiet", "health", "--file", str(path)) == (0, "", "")
        code, out, err = run("health", "--file", str(path), "--json")
        report = json.loads(out)
        assert (code, err, report["is_healthy"], report["due"]) == (0, "", True, 60.0)
        os.utime(path, (1, 1))
        assert run(*asked)[0] == 1


def test_health_without_a_file_is_a_matter_of_configuration(run: Run) -> None:
    code, _, err = run("health")
    assert code == cli.USAGE
    assert "EVENTLOG_PUBLISHER_HEALTH_FILE" in err


def test_health_asks_no_database(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "health"
    with liveness_file(path, 60) as beat:
        beat()
        url = "database.url=postgresql+psycopg://nobody@127.0.0.1:1/none"
        assert run("--set", url, "--set", f"publisher.health_file={path}", "health")[0] == 0
