"""What an operator of a followed source sees and does: status, options without meaning, the
position file, health.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from followed_stream import ITEM, Receiver, Stream, files, following, position_at, save_at, saved_at
from test_follow_sources import ATTRS, configure

from eventlog import cli
from eventlog.changes.format import Report
from eventlog.config.load import load
from eventlog.errors import ConfigError, DatabaseError, ReceiverUnavailable
from eventlog.gbase.session import Capture
from eventlog.linter.database import create_tables, insert_attrs, insert_rows
from eventlog.linter.dispatch_tables import DispatchRow
from eventlog.linter.options import SourceOptions
from eventlog.linter.reader import ReaderOptions
from eventlog.model import Answer
from eventlog.publisher.context.context import Counters
from eventlog.publisher.context.observer import Observer
from eventlog.publisher.monitor.status import shape
from eventlog.publisher.run.liveness import liveness_of
from eventlog.publisher.run.waiting import StopRequest
from eventlog.publisher.stream import Backlog, BadToken, Mark, Read
from eventlog.publisher.stream.cdc_stream import ServerSession
from eventlog.publisher.stream.dispatch_queue import DispatchQueue
from eventlog.publisher.stream.follow import follow
from eventlog.publisher.stream.open_source import following as following_of
from eventlog.publisher.stream.open_source import ignored_options, position_of
from eventlog.publisher.stream.position import Saved, TablePosition
from eventlog.testing.linter_emulator import Workload, emulate

# --- status ---------------------------------------------------------------------------------------


def status(config: Path, capfd: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capfd.readouterr()
    assert cli.run(["-c", str(config), "status", "--json", *arguments]) == 0
    found: dict[str, Any] = json.loads(capfd.readouterr().out)
    return found


@pytest.fixture(params=["sqlite", "postgresql"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Settings of [source] that say where the position is."""
    url = f"sqlite:///{tmp_path / 'ops.db'}"
    if request.param == "postgresql":
        url = request.getfixturevalue("database").url.render_as_string(hide_password=False)
    return {"position_url": url}


@pytest.mark.promise("option publish--allow-refused")
def test_status_shows_position_backlog_failures_and_who_runs(
    stream: Stream, tmp_path: Path, kept: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    config = configure(tmp_path, type=None, **kept)
    stream.insert(1)
    before = status(config, capfd, "--from", "gbase")
    assert (before["position"], before["moved"], before["source_lag"]) == (
        None,
        None,
        stream.path.stat().st_size,
    )
    assert not list(tmp_path.glob("*lock*"))  # looking leaves nothing behind
    assert cli.run(["-c", str(config), "publish", "--from", "gbase", "--once"]) == 0
    read = stream.path.stat().st_size
    stream.insert(2, name="bell \x07")
    after = status(config, capfd, "--from", "gbase")
    assert after["position"]["commit"] is not None
    assert (after["source_lag"], after["source_lag_unit"]) == (
        stream.path.stat().st_size - read,
        "bytes",
    )
    assert 0 <= after["moved_seconds"] < 600
    assert (after["publisher_runs"], after["failures"]) == (False, 0)
    assert (
        cli.run(["-c", str(config), "publish", "--from", "gbase", "--once", "--allow-refused"]) == 0
    )
    with position_of(load(config, {}, {"source.type": "gbase"}))():
        held = status(config, capfd, "--from", "gbase")
    assert held["publisher_runs"]
    assert held["failures"] == 1
    assert held["newest_failures"][0]["code"] == "not_expressible"


def test_status_shows_when_the_position_moved_and_not_when_it_was_written(
    stream: Stream, tmp_path: Path, kept: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    config = configure(tmp_path, **kept)
    stream.insert(1)
    assert cli.run(["-c", str(config), "publish", "--once"]) == 0
    moved = status(config, capfd)["moved"]
    time.sleep(1.1)  # it is reported in seconds
    assert cli.run(["-c", str(config), "publish", "--once"]) == 0
    again = status(config, capfd)
    assert again["moved"] == moved
    stream.insert(2)
    assert cli.run(["-c", str(config), "publish", "--once"]) == 0
    assert status(config, capfd)["moved"] > moved
    assert status(config, capfd)["delivery"] > again["delivery"]


def test_the_status_of_a_source_has_the_members_of_the_status_of_a_log(
    stream: Stream, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stream.insert(1)
    found = status(configure(tmp_path), capfd)
    assert found.keys() == shape().keys()
    assert (found["log"], found["source"], found["rows"]) == ("source gbase", "gbase", None)


@pytest.mark.promise("command doctor")
def test_doctor_reports_that_it_is_about_logs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["-c", str(configure(tmp_path)), "doctor"]) == 2
    assert "eventlog status" in capfd.readouterr().err


@pytest.mark.parametrize("command", [["requeue"]])
def test_a_command_that_needs_a_queue_shows_what_a_followed_source_has_instead(
    stream: Stream, tmp_path: Path, capfd: pytest.CaptureFixture[str], command: list[str]
) -> None:
    assert cli.run(["-c", str(configure(tmp_path)), *command]) == 2
    assert (
        "eventlog_position_error has what was refused, and `eventlog errors` shows it"
        in capfd.readouterr().err
    )


def test_status_speaks_to_people(
    stream: Stream, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = configure(tmp_path)
    stream.insert(1, name="bell \x07")
    assert cli.run(["-c", str(config), "publish", "--once", "--allow-refused"]) == 0
    capfd.readouterr()
    assert cli.run(["-c", str(config), "status"]) == 0
    said, err = capfd.readouterr()
    assert err == ""
    for part in (
        "source gbase: no publisher runs",
        f"byte {stream.path.stat().st_size} of capture.cdc",
        "after the position: 0 bytes",
        "1 failure",
        "not_expressible",
    ):
        assert part in said


@pytest.mark.parametrize("token", ["x", {"capture": {}}, [1]])
def test_status_shows_a_position_that_was_damaged_as_it_is(
    stream: Stream, tmp_path: Path, place: Path, token: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    save_at(place, Saved(token, 3))
    assert cli.run(["-c", str(configure(tmp_path)), "status"]) == 0
    assert f"position: {json.dumps(token)}" in capfd.readouterr().out


@pytest.mark.promise("option publish--once")
def test_status_of_a_source_that_cannot_be_asked_shows_the_rest(
    stream: Stream, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = configure(tmp_path)
    stream.insert(1)
    assert cli.run(["-c", str(config), "publish", "--once"]) == 0
    stream.path.unlink()
    found = status(config, capfd)
    assert found["source_lag"] is None
    assert "is not there" in found["source_lag_unknown"]
    assert found["position"]["commit"] is not None


def queue_of(directory: Path, rows: Sequence[DispatchRow]) -> DispatchQueue:
    """A queue in a database, as a source."""
    url = f"sqlite:///{directory / 'queue.db'}"
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        table, attrs = create_tables(connection)
        insert_attrs(connection, attrs, list(ATTRS.values()))
        insert_rows(connection, table, rows)
    engine.dispose()
    options = ReaderOptions(codec="eventlog-emulator-1")
    return DispatchQueue(url, options, SourceOptions(), 0.01, Report())


def test_the_backlog_of_a_queue_is_what_lies_after_the_position(tmp_path: Path) -> None:
    rows = [row for step in emulate(Workload(5, transactions=6)) for row in step.rows]
    source = queue_of(tmp_path, [*rows, rows[-1]._replace(syslog_addr=(1 << 64) - 5)])
    middle = rows[len(rows) // 2].syslog_addr
    later = sum(row.syslog_addr > middle for row in rows) + 1
    assert source.backlog(None) == Backlog(len(rows) + 1, "rows")
    assert source.backlog(f"{middle:016x}") == Backlog(later, "rows")
    assert source.backlog(f"{(1 << 64) - 6:016x}") == Backlog(1, "rows")
    assert source.backlog({"restart": f"{(1 << 64) - 5:016x}", "dbnode": "x"}) == Backlog(0, "rows")


def test_a_position_of_another_source_database_is_refused(tmp_path: Path) -> None:
    rows = [row for step in emulate(Workload(5, transactions=6)) for row in step.rows]
    source = queue_of(tmp_path, rows)
    own = {"restart": "0" * 16, "dbnode": rows[0].dbnode}
    assert any(isinstance(step, Read) for step in source.steps(own, once=True))
    for options in ({}, {"dbnode": rows[0].dbnode}):
        changed = replace(source, options=replace(source.options, **options))
        with pytest.raises(BadToken, match="belongs to the source database 'OTHER'"):
            next(changed.steps({**own, "dbnode": "OTHER"}, once=True))


@pytest.mark.promise("command top")
def test_errors_and_top_know_a_followed_source(
    stream: Stream, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = configure(tmp_path, type=None)
    arguments = ["-c", str(config)]
    assert cli.run([*arguments, "errors", "--from", "gbase"]) == 0
    assert "source gbase: nothing was refused" in capfd.readouterr().out
    stream.insert(1, name="bell \x07")
    stream.insert(2, name="bell \x07")
    assert cli.run([*arguments, "publish", "--from", "gbase", "--once", "--allow-refused"]) == 0
    stream.insert(3)
    capfd.readouterr()
    assert cli.run([*arguments, "errors", "--from", "gbase", "--json"]) == 0
    (group,) = json.loads(capfd.readouterr().out)["errors"]
    assert (group["code"], group["number"]) == ("not_expressible", 2)
    assert cli.run([*arguments, "errors", "--from", "gbase"]) == 0
    assert "not_expressible" in capfd.readouterr().out
    assert cli.run([*arguments, "top", "--from", "gbase"]) == 0
    said = capfd.readouterr().out
    assert "source gbase: no publisher runs" in said
    assert "bytes after the position" in said


# --- options --------------------------------------------------------------------------------------


def opened(config: Path, **flags: str) -> Any:
    loaded = load(config, {}, {name.replace("__", "."): value for name, value in flags.items()})
    return following_of(loaded, Counters(), Report())


@pytest.mark.promise("option format.emit_keys")
@pytest.mark.parametrize(
    ("source", "flags", "message"),
    [
        ({"brokers": "b:1"}, {}, r"source\.brokers has no effect for a stream in files"),
        ({"server": "s"}, {}, r"source\.server has no effect"),
        (
            {"path": "-", "poll_interval": 1},
            {},
            r"poll_interval has no effect for a stream on standard input",
        ),
        ({}, {"publisher__time_of_day": "06:00:00"}, r"time_of_day applies only to a log.*--once"),
        ({}, {"format__emit_keys": "true"}, r"format\.emit_keys = true applies only to a log"),
        ({}, {"format__noop_updates": "emit"}, r"format\.noop_updates = .*applies only to a log"),
        ({}, {"format__referential": "dn"}, r"format\.referential = .*needs source\.catalog"),
    ],
)
def test_an_option_that_would_have_no_effect_is_refused(
    tmp_path: Path, source: dict[str, Any], flags: dict[str, str], message: str
) -> None:
    config = configure(
        tmp_path, **{**({"poll_interval": None} if "path" in source else {}), **source}
    )
    with pytest.raises(ConfigError, match=message):
        opened(config, **flags)


def test_options_about_a_log_may_stand_there_and_are_named(
    stream: Stream, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = configure(tmp_path)
    with config.open("a") as file:
        file.write(
            '\npolling_interval = 60\nfold_span = 5\nbatch_size = 3\n[database]\nurl = "sqlite:///log.db"\n'
        )
    assert ignored_options(load(config, {})) == [
        "publisher.polling_interval",
        "publisher.fold_span",
    ]
    stream.insert(1)
    with caplog.at_level("INFO", "eventlog"):
        assert cli.run(["-c", str(config), "publish", "--once"]) == 0
    assert (
        "the source is not an event log: publisher.polling_interval, publisher.fold_span"
        in caplog.text
    )


def test_a_profile_sets_nothing_that_is_refused(tmp_path: Path) -> None:
    assert opened(configure(tmp_path), publisher__profile="idm").options.batch_size == 1


def test_concurrency_counts_where_the_sink_can_do_it(tmp_path: Path) -> None:
    config = configure(tmp_path)
    assert (
        opened(config, publisher__concurrency="4").options.concurrency == 1
    )  # files are written in order
    http = {"sink__type": "http", "sink__url": "http://127.0.0.1:1/"}
    assert opened(config, publisher__concurrency="4", **http).options.concurrency == 4


@pytest.mark.promise("option sink.timeout", "option sink.brokers")
def test_a_timeout_that_kafka_cannot_keep_is_refused() -> None:
    kafka = {"sink.type": "kafka", "sink.brokers": "b:1"}
    with pytest.raises(
        ConfigError, match=r"sink\.timeout = 1\.5 is too short for Kafka.*at least 2 s"
    ):
        load(None, {}, {**kafka, "sink.timeout": "1.5"})
    assert load(None, {}, {**kafka, "sink.timeout": "2"}).sink.options.timeout == 2
    http = {"sink.type": "http", "sink.url": "https://receiver/"}
    assert load(None, {}, {**http, "sink.timeout": "0.1"}).sink.options.timeout == 0.1


# --- health ---------------------------------------------------------------------------------------


@pytest.mark.promise("option source.type", "option source.poll_interval")
def test_a_sign_of_life_is_due_by_the_interval_of_the_source() -> None:
    liveness = liveness_of(load(None, {}, {"source.type": "linter", "source.poll_interval": "100"}))
    assert (liveness.rest, liveness.timeout) == (100, 30 + 60)


def test_progress_is_shown_while_a_long_transaction_is_read_and_not_for_what_is_only_handed_over(
    stream: Stream, place: Path
) -> None:
    class Handing(Receiver):
        """A sink whose receiver speaks when it is flushed, and is unavailable then."""

        def send(self, document: Any) -> Answer:
            seen.append(len(beats))
            self.receive(document.body, document.events)
            return Answer(is_pending=True)

        def flush(self) -> None:
            raise ReceiverUnavailable("away")

        def close(self) -> None:
            pass

    work = stream.begin()
    for key in range(3000):
        work.insert(ITEM, {"id": key, "name": "long"})
    stream.write()
    beats: list[None] = []

    class Beats(Observer):
        def progressed(self) -> None:
            beats.append(None)

    follow(
        following(files(stream.path)),
        position_at(place),
        Receiver().sink,
        StopRequest(),
        once=True,
        observer=Beats(),
    )
    assert len(beats) > 2
    work.rollback()
    stream.insert(1)
    seen: list[int] = []
    receiver = Handing()
    receiver.enough = lambda heard: len(seen) == 10
    follow(
        following(files(stream.path)),
        position_at(place),
        lambda: receiver,
        receiver.stop,
        observer=Beats(),
    )
    assert len(seen) == 10
    assert len(set(seen)) == 1


# --- the position ---------------------------------------------------------------------------------


def test_a_database_that_cannot_be_written_is_waited_for_and_nothing_is_sent_meanwhile(
    stream: Stream, place: Path
) -> None:
    stream.insert(1)
    receiver, failed = Receiver(), 0
    write = TablePosition.write

    def refuse(self: TablePosition, *arguments: Any) -> None:
        nonlocal failed
        if receiver.heard and failed < 3:
            failed += 1
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise sa.exc.OperationalError("UPDATE", {}, error)
        write(self, *arguments)

    receiver.enough = lambda heard: len(heard.heard) == 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TablePosition, "write", refuse)
        follow(following(files(stream.path)), position_at(place), receiver.sink, receiver.stop)
    assert (
        receiver.heard == ["add 1 new"] * 2
    )  # again, since that it was answered could not be kept
    assert all(len(texts) == 1 for texts in receiver.meanings.values())
    assert failed == 3


def test_a_place_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    with (
        pytest.raises(DatabaseError, match=r"cannot be prepared.*is writable"),
        position_at(tmp_path / "nowhere" / "p.db")(),
    ):
        pass


@pytest.mark.parametrize(
    ("source", "token", "message"),
    [
        ({}, "0000000b01746018", "not a position of a CDC stream"),
        ({}, {"restart": "xyz", "commit": None}, "not a position of a CDC stream"),
        ({}, {"restart": "1", "commit": "1", "capture": {}}, "names no place in a stream"),
        (
            {"type": "linter", "url": "sqlite:///q.db"},
            {"restart": None},
            "does not match order_by = syslog",
        ),
        (
            {"type": "qlik-messages", "brokers": "b:1", "topics": ["t"]},
            ["t"],
            "not a position of topics",
        ),
        (
            {"type": "qlik-messages", "brokers": "b:1", "topics": ["t"]},
            {"t": {"x": 1}},
            "not a position of topics",
        ),
        (
            {"type": "qlik-messages", "brokers": "b:1", "topics": ["t"]},
            {"u": {"0": 1}},
            "belongs to u, not to t",
        ),
    ],
)
def test_a_position_that_the_source_cannot_read_is_reported_with_its_place(
    stream: Stream, tmp_path: Path, place: Path, source: dict[str, Any], token: Any, message: str
) -> None:
    kind = source.get("type", "gbase")
    if kind != "gbase":
        reader = {"codec": "eventlog-emulator-1"} if kind == "linter" else None
        source = {"path": None, "poll_interval": None, "reader": reader, **source}
    save_at(place, Saved(token, 3), kind)
    config = load(configure(tmp_path, **source), {})
    followed = following_of(config, Counters(), Report())
    with pytest.raises(ConfigError, match="position_table eventlog_position: .*" + message):
        follow(followed, position_of(config), Receiver().sink, StopRequest(), once=True)


def test_a_position_of_another_server_is_refused(stream: Stream, place: Path) -> None:
    source = ServerSession(
        lambda: pytest.fail("not opened"), [Capture(ITEM, ["id"], 111)], "b", files(place).options
    )
    token = {"restart": "000000000000000b", "commit": None, "server": "a"}
    with pytest.raises(BadToken, match="belongs to the server a, not b"):
        next(source.steps(token, once=True))


def test_a_position_without_its_place_in_the_files_is_gone_on_with(
    stream: Stream, place: Path
) -> None:
    stream.insert(1)
    once = files(stream.path)
    follow(following(once), position_at(place), Receiver().sink, StopRequest(), once=True)
    saved = saved_at(place)
    save_at(
        place, saved._replace(token={name: saved.token[name] for name in ("restart", "commit")})
    )
    stream.insert(2)
    receiver = Receiver()
    follow(following(once), position_at(place), receiver.sink, StopRequest(), once=True)
    assert receiver.heard == ["add 2 new"]
    assert "capture" in saved_at(place).token


def test_what_was_handed_to_a_reader_in_the_midst_is_a_mark_like_others(stream: Stream) -> None:
    stream.insert(1)
    *_, last = files(stream.path).steps(None, once=True)
    assert isinstance(last, Mark)
    assert list(replace(files(stream.path), rest=0).steps(last.token, once=True)) == []
