"""A session with a server, standard input and a queue as sources; a table for the position; the
command line.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from followed_stream import (
    ITEM,
    OPTIONS,
    PATIENCE,
    Receiver,
    Stream,
    files,
    following,
    position_at,
    running,
    save_at,
    saved_at,
)
from shared import wait_until

from eventlog import cli
from eventlog.changes.format import Report
from eventlog.changes.to_events import change_to_events
from eventlog.config.load import load
from eventlog.core.options import toml
from eventlog.errors import ConfigError, DatabaseError, PublisherAlreadyRunning
from eventlog.gbase.session import Capture
from eventlog.linter.database import create_tables, insert_attrs, insert_rows
from eventlog.linter.options import SourceOptions
from eventlog.linter.reader import ReaderOptions
from eventlog.model import Change, Level
from eventlog.publisher.run.waiting import StopRequest
from eventlog.publisher.stream import Failure, SourceLost, SourceUnavailable
from eventlog.publisher.stream.cdc_stream import ServerSession, StandardInput
from eventlog.publisher.stream.dispatch_queue import DispatchQueue
from eventlog.publisher.stream.follow import follow
from eventlog.publisher.stream.open_source import position_of, source_of
from eventlog.publisher.stream.position import Saved, position_ddl, position_table
from eventlog.testing.gbase_emulator import EmulatorConnection, Switches
from eventlog.testing.linter_emulator import ATTRS, Workload, emulate

# --- a session ------------------------------------------------------------------------------------


class Server:
    """The emulated server as ``source.connect`` gives it. Its next connections may fail.

    ``reads``: from the first one on a session that began now has begun.
    """

    def __init__(self, stream: Stream) -> None:
        self.server = stream.server
        self.connections = 0
        self.reads = 0
        self.refuses = 0

    def connect(self) -> tuple[Any, Any]:
        self.connections += 1
        if self.refuses:
            self.refuses -= 1
            raise RuntimeError("no server there")
        connection = EmulatorConnection(self.server)

        def read(session: int, size: int) -> bytes | int:
            self.reads += 1
            if not self.server.has_data(session):
                time.sleep(0.01)
            return connection.read(session, size)

        return connection, read

    def source(self) -> ServerSession:
        return ServerSession(
            self.connect, [Capture(ITEM, ["id", "name"], 111)], "emulator", OPTIONS
        )


@pytest.mark.promise("source gbase")
def test_a_session_is_followed_from_now_on_and_goes_on_where_it_was(
    stream: Stream, place: Path
) -> None:
    server, receiver = Server(stream), Receiver()
    stream.insert(1)
    with running(following(server.source()), position_at(place), receiver):
        wait_until(lambda: server.reads)
        stream.insert(2)
        wait_until(lambda: receiver.heard)
    stream.insert(3)
    again = Receiver()
    follow(following(server.source()), position_at(place), again.sink, StopRequest(), once=True)
    assert (receiver.heard, again.heard) == (["add 2 new"], ["add 3 new"])


def test_what_a_session_began_with_is_not_lost_if_it_is_never_answered(
    stream: Stream, place: Path
) -> None:
    server, receiver = Server(stream), Receiver(k2=[OSError("gone")] * 10_000)
    with running(following(server.source()), position_at(place), receiver):
        wait_until(lambda: server.reads)
        stream.insert(2)
        wait_until(lambda: receiver.documents)
    assert receiver.heard == []
    again = Receiver()
    follow(following(server.source()), position_at(place), again.sink, StopRequest(), once=True)
    assert again.heard == ["add 2 new"]


def test_a_session_that_dies_is_opened_again(stream: Stream, place: Path) -> None:
    server, receiver = Server(stream), Receiver()
    with running(following(server.source()), position_at(place), receiver):
        wait_until(lambda: server.reads)
        stream.insert(1)
        wait_until(lambda: len(receiver.heard) == 1)
        server.refuses = 2
        stream.server.fail("NOSESS")
        stream.insert(2)
        wait_until(lambda: len(receiver.heard) == 2)
    assert receiver.heard == ["add 1 new", "add 2 new"]
    assert server.connections >= 4


def test_a_server_that_was_never_there_is_an_error(stream: Stream, place: Path) -> None:
    server = Server(stream)
    server.refuses = 1
    with pytest.raises(SourceUnavailable, match="no server there"):
        follow(following(server.source()), position_at(place), Receiver().sink, StopRequest())


def test_a_position_older_than_the_logs_of_the_server_stops(tmp_path: Path, place: Path) -> None:
    stream = Stream(tmp_path / "capture.cdc", Switches(log_size=1 << 14, keep_logs=2))
    first = stream.server.next_sequence
    for key in range(1000):
        stream.insert(key)
    save_at(place, Saved({"restart": f"{first:016x}", "commit": None}, 1))
    with pytest.raises(SourceLost, match="LSN"):
        follow(
            following(Server(stream).source()), position_at(place), Receiver().sink, StopRequest()
        )


# --- standard input -------------------------------------------------------------------------------


def test_standard_input_is_followed_to_its_end_and_once_only(stream: Stream, place: Path) -> None:
    stream.insert(1)
    reader, writer = os.pipe()
    receiver = Receiver()
    source = StandardInput(OPTIONS, descriptor=reader)
    try:
        with running(following(source), position_at(place), receiver):
            os.write(writer, stream.path.read_bytes())
            wait_until(lambda: receiver.heard)
            os.close(writer)
    finally:
        os.close(reader)
    assert receiver.heard == ["add 1 new"]
    with pytest.raises(SourceLost):
        next(source.steps(None, once=False))


# --- a queue --------------------------------------------------------------------------------------


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sa.Engine]:
    if request.param == "postgresql":
        yield request.getfixturevalue("database")
        return
    made = sa.create_engine(
        f"sqlite:///{tmp_path / 'queue.db'}", poolclass=sa.NullPool, connect_args={"timeout": 60}
    )
    with made.connect() as connection:
        connection.exec_driver_sql("PRAGMA journal_mode = WAL")
    yield made
    made.dispose()


def url_of(engine: sa.Engine) -> str:
    return engine.url.render_as_string(hide_password=False)


def queue(engine: sa.Engine, **options: Any) -> DispatchQueue:
    reading = ReaderOptions(codec="eventlog-emulator-1", **options)
    return DispatchQueue(url_of(engine), reading, SourceOptions(), 0.01, Report())


def fill(engine: sa.Engine, workload: Workload) -> list[Change]:
    steps = list(emulate(workload))
    with engine.begin() as connection:
        table, attrs = create_tables(connection)
        insert_attrs(connection, attrs, list(ATTRS.values()))
        insert_rows(connection, table, [row for step in steps for row in step.rows])
    return [change for step in steps for change in step.changes]


NODE = next(row for step in emulate(Workload(1, transactions=1)) for row in step.rows).dbnode


def event_ids(changes: list[Change]) -> set[str]:
    return {
        event.event_id
        for change in changes
        for event in change_to_events(change, change.position or "")
    }


@pytest.mark.promise("option source.position_url", "source linter")
def test_a_queue_is_followed_with_its_position_in_the_same_database(
    engine: sa.Engine, tmp_path: Path
) -> None:
    changes = fill(engine, Workload(5, transactions=20))
    config = load(None, {}, {"source.type": "linter", "source.position_url": url_of(engine)})
    receiver, again = Receiver(), Receiver()
    with running(following(queue(engine)), position_of(config), receiver):
        wait_until(lambda: set(receiver.meanings) >= event_ids(changes))
    assert set(receiver.meanings) == event_ids(changes)
    follow(following(queue(engine)), position_of(config), again.sink, StopRequest(), once=True)
    assert again.heard == []
    with engine.connect() as connection:
        (row,) = connection.execute(sa.text("SELECT source, token FROM eventlog_position"))
    token = {"restart": max(change.position or "" for change in changes)[:16], "dbnode": NODE}
    assert (row.source, json.loads(row.token)) == ("linter", token)


def test_once_ends_after_the_last_row_though_a_transaction_is_longer_than_a_poll(
    engine: sa.Engine, place: Path
) -> None:
    changes = fill(engine, Workload(8, transactions=3, at_once=3, operations=8, rolled_back=0))
    receiver = Receiver()
    source = replace(queue(engine), place=SourceOptions(batch_rows=2))
    follow(following(source), position_at(place, "linter"), receiver.sink, StopRequest(), once=True)
    assert set(receiver.meanings) == event_ids(changes)


@pytest.mark.promise("option linter.reader.destinations")
def test_one_operation_for_several_destinations_gets_an_event_id_for_each(
    engine: sa.Engine, place: Path
) -> None:
    changes = fill(engine, Workload(6, transactions=4, servers=("A", "B")))
    receiver = Receiver()
    source = queue(engine, destinations="all")
    follow(following(source), position_at(place, "linter"), receiver.sink, StopRequest(), once=True)
    assert all(len(texts) == 1 for texts in receiver.meanings.values())
    assert {name.removesuffix(".2").removesuffix(":2") for name in receiver.meanings} == {
        name.removesuffix(".2") for name in event_ids(changes)
    }
    assert sum(":2" in name for name in receiver.meanings) * 2 == len(receiver.meanings)


@pytest.mark.promise("option linter.reader.on_row_error")
def test_a_row_that_no_codec_reads_is_passed_over_and_named(engine: sa.Engine) -> None:
    fill(engine, Workload(7, transactions=1, rolled_back=0, tables=("ITEM",)))
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE dispatch_queue SET len1 = 3 WHERE typ IN (1, 2)"))
        connection.execute(sa.text("UPDATE dispatch_queue SET len1 = 3, len2 = 3 WHERE typ = 3"))
    steps = [
        step
        for step in queue(engine, on_row_error="raw").steps(None, once=True)
        if isinstance(step, Failure)
    ]
    assert steps
    assert {step.code for step in steps} == {"needs_row_codec"}


# --- a table for the position ---------------------------------------------------------------------


def test_a_table_keeps_position_and_failures_together(engine: sa.Engine) -> None:
    failure = Failure("1:2", "receiver", "because\0of \ud800 it", "<add/>")
    with position_table(url_of(engine), "eventlog_position", "gbase") as position:
        assert position.load() == Saved()
        position.save(Saved({"restart": "a"}, 1))
        position.save(
            Saved({"restart": "b"}, 2, "0" * 35),
            [failure, failure._replace(event_id="x" * 300, content=None)],
        )
    with position_table(url_of(engine), "eventlog_position", "gbase") as position:
        assert position.load() == Saved({"restart": "b"}, 2, "0" * 35)
    with engine.connect() as connection:
        found = connection.execute(
            sa.text("SELECT event_id, code, message, content FROM eventlog_position_error")
        )
        assert [tuple(row) for row in found] == [
            ("1:2", "receiver", "because�of ? it", "<add/>"),
            ("x" * 255, "receiver", "because�of ? it", None),
        ]


def test_a_table_has_one_publisher(engine: sa.Engine) -> None:
    with (
        position_table(url_of(engine), "eventlog_position", "gbase"),
        pytest.raises(PublisherAlreadyRunning),
        position_table(url_of(engine), "eventlog_position", "gbase"),
    ):
        pass
    with position_table(url_of(engine), "other_position", "gbase") as position:
        assert position.load() == Saved()


def test_a_position_that_is_no_json_is_refused(engine: sa.Engine) -> None:
    with position_table(url_of(engine), "eventlog_position", "gbase") as position:
        position.save(Saved({}, 1))
        with engine.begin() as connection:
            connection.execute(sa.text("UPDATE eventlog_position SET token = '{'"))
        with pytest.raises(DatabaseError, match="not JSON"):
            position.load()


def test_a_table_whose_server_drops_the_session_is_opened_again(
    database: sa.Engine, stream: Stream, place: Path
) -> None:
    config = load(None, {}, {"source.type": "gbase", "source.position_url": url_of(database)})
    receiver = Receiver()
    with running(following(files(stream.path)), position_of(config), receiver):
        for key in range(1, 4):
            stream.insert(key)
            wait_until(lambda: f"add {key} new" in receiver.heard)  # noqa: B023
            with database.begin() as connection:
                connection.execute(
                    sa.text(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                    )
                )
    assert list(dict.fromkeys(receiver.heard)) == [f"add {key} new" for key in range(1, 4)]


@pytest.mark.parametrize("database", ["postgresql", "oracle", "sqlite"])
def test_the_tables_can_be_made_by_hand(database: str) -> None:
    statements = position_ddl("ops.place", database)
    assert statements.count("CREATE TABLE ops.place") == 3
    assert "ops.place_error" in statements


# --- the command line -----------------------------------------------------------------------------


def configure(directory: Path, **source: Any) -> Path:
    settings: dict[str, Any] = {
        "type": "gbase",
        "path": "capture.cdc",
        "position_url": f"sqlite:///{directory / 'position.db'}",
        "poll_interval": 0.05,
        "reader": {"labels": {"111": ITEM}, "keys": {"item": ["id"]}},
        **source,
    }
    lines = [
        "[source]",
        *(f"{name} = {toml(value)}" for name, value in settings.items() if value is not None),
    ]
    lines += [
        "[sink]",
        'type = "files"',
        'directory = "documents"',
        "[publisher]",
        'health_file = "health"',
    ]
    path = directory / "eventlog.toml"
    path.write_text("\n".join(lines))
    return path


@pytest.mark.promise("option source.path", "option publish--dry-run")
def test_the_command_publishes_a_stream(
    stream: Stream,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = configure(tmp_path, type=None)
    stream.insert(1)
    assert cli.run(["-c", str(config), "publish", "--from", "gbase", "--dry-run"]) == 0
    assert capfd.readouterr().out.count("<add ") == 1
    assert cli.run(["-c", str(config), "publish", "--from", "gbase", "--once"]) == 0
    stream.insert(2)
    assert cli.run(["-c", str(config), "publish", "--from", "gbase", "--once"]) == 0
    written = [path.read_text() for path in sorted((tmp_path / "documents").glob("0*"))]
    assert [text.count("<add ") for text in written] == [1, 1]
    assert "1 change read, 1 event in 1 document sent" in caplog.text


def test_a_following_command_ends_cleanly_at_sigterm(stream: Stream, tmp_path: Path) -> None:
    config = configure(tmp_path)
    stream.insert(1)
    command = [
        sys.executable,
        "-c",
        "from eventlog.cli import main; main()",
        "-q",
        "-c",
        str(config),
        "publish",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        wait_until(
            lambda: (tmp_path / "documents").exists() and any((tmp_path / "documents").glob("0*"))
        )
        stream.insert(2)
        wait_until(lambda: len(list((tmp_path / "documents").glob("0*"))) == 2)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said) == (0, "")
    assert saved_at(tmp_path / "position.db").token["commit"] is not None
    assert not (tmp_path / "health").exists()


def refuse(body: str, events: Any) -> Any:
    from eventlog.model import Answer, EventResult

    return Answer({events[0].event_id: EventResult(Level.FATAL, "no more")})


@pytest.mark.promise("exit publish 3", "option sink.type", "option sink.function")
def test_fatal_is_exit_code_3(
    stream: Stream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    config = configure(tmp_path)
    stream.insert(1)
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    sink = ["--set", "sink.type=python", "--set", "sink.function=test_follow_sources:refuse"]
    assert cli.run(["-c", str(config), *sink, "publish", "--once"]) == 3
    assert "no more" in capfd.readouterr().err


def connect() -> Any:
    raise RuntimeError("not called")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"path": None}, "source.path or source.connect"),
        (
            {"path": None, "connect": "nowhere:connect", "server": "s", "capture": {ITEM: ["id"]}},
            "module nowhere is neither installed",
        ),
        (
            {
                "path": None,
                "connect": "test_follow_sources:PATIENCE",
                "server": "s",
                "capture": {ITEM: ["id"]},
            },
            "called",
        ),
        ({"path": None, "connect": "test_follow_sources:connect"}, "source.server"),
        ({"reader": {"lables": {}}}, "labels"),
        ({"reader": {"properties": {}}}, "source.properties"),
        ({"type": "linter", "url": "sqlite:///x"}, "source.reader.codec"),
        ({"type": "linter", "reader": {"codec": "eventlog-emulator-1"}}, "source.url"),
        ({"type": "qlik-messages", "topics": ["t"]}, "source.brokers"),
        ({"position_url": None}, "the source needs a place for its position"),
    ],
)
def test_what_is_missing_or_wrong_is_reported(
    tmp_path: Path, source: dict[str, Any], message: str
) -> None:
    reader = {} if source.get("type", "gbase") == "gbase" else {"reader": None}
    config = load(configure(tmp_path, **{**reader, **source}), {})
    with pytest.raises(ConfigError, match=message):
        _ = source_of(config.source, Report()), position_of(config)


def test_a_position_has_one_url(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"source\.position_url and source\.position_url_file exclude each other"
    ):
        load(configure(tmp_path, position_url_file="url"), {})


@pytest.mark.promise("option source.connect", "option source.capture")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "def connect(:\n",
            r"importing broken_1 raised SyntaxError: invalid syntax \(broken_1.py, line 1\)",
        ),
        (
            "1 / 0\n",
            r"importing broken_2 raised ZeroDivisionError: division by zero \(.*broken_2.py, line "
            r"1\)",
        ),
        (
            "import no_such_module\n",
            "importing broken_3 raised ModuleNotFoundError: No module named 'no_such_module'",
        ),
        ("raise SystemExit('no licence')\n", "importing broken_4 raised SystemExit: no licence"),
        ("connect = 1\n", "is a int and cannot be called"),
        ("", r"broken_6 \(.*broken_6.py\) has no connect"),
    ],
)
def test_a_module_of_the_user_that_fails_at_its_import_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    text: str,
    message: str,
    request: pytest.FixtureRequest,
) -> None:
    number = request.node.callspec.indices["text"] + 1
    (tmp_path / f"broken_{number}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    source = {
        "path": None,
        "connect": f"broken_{number}:connect",
        "server": "s",
        "capture": {ITEM: ["id"]},
    }
    code = cli.run(["--config", str(configure(tmp_path, **source)), "publish"])
    lines = capfd.readouterr().err.splitlines()
    assert (code, len(lines)) == (2, 1)
    assert re.search(rf"source.connect 'broken_{number}:connect'.*{message}", lines[0])


def test_a_captured_table_bears_the_label_that_the_reader_gives_it(tmp_path: Path) -> None:
    config = load(
        configure(tmp_path, path=None, connect="test_follow_sources:connect", server="s",
                  capture={"d:a.b": ["x"], ITEM: ["id", "name"]}), {},
    )  # fmt: skip
    source = source_of(config.source, Report())
    assert isinstance(source, ServerSession)
    assert [(capture.table, capture.label) for capture in source.captures] == [
        ("d:a.b", 1),
        (ITEM, 111),
    ]
    assert source.options.name_of(1) == ("a", "b")


@pytest.mark.promise("option source.reader", "option source.url")
def test_secrets_of_sources_are_not_shown(tmp_path: Path) -> None:
    from eventlog.config.effective import effective

    (tmp_path / "url").write_text("postgresql://reader@h/q\n")
    environ = {"EVENTLOG_SOURCE_PASSWORD": "hush"}
    path = configure(tmp_path, type="linter", url_file="url", position_url="postgresql://u:hush@h/d",
                     reader={"codec": "eventlog-emulator-1"})  # fmt: skip
    config = load(path, environ)
    assert "hush" not in str(list(effective(config)))
    assert "hush" not in repr(config.source)
    assert len(config.warnings) == 1
    source = source_of(config.source, Report())
    assert isinstance(source, DispatchQueue)
    assert source.url == "postgresql://reader:hush@h/q"
    assert "hush" not in repr(replace(config.source.options, position_url=None))


@pytest.mark.promise("option source.catalog")
def test_a_catalog_gives_keys_and_types(tmp_path: Path, stream: Stream) -> None:
    table = {"name": "item", "kind": "table", "columns": [{"name": "id", "type": "integer"},
             {"name": "name", "type": "varchar(20)"}], "primary_key": ["id"],
              "foreign_keys": []}  # fmt: skip
    database = {"dialect": "postgresql", "schema": "app", "tables": [table]}
    (tmp_path / "catalog.json").write_text(json.dumps(database))
    config = configure(tmp_path, catalog="catalog.json", reader={"labels": {"111": ITEM}})
    stream.insert(1)
    assert cli.run(["-c", str(config), "publish", "--once"]) == 0
    (document,) = (tmp_path / "documents").glob("0*")
    assert (
        '<association>id=1,table=item,schema=app</association><add-attr attr-name="name">'
        in document.read_text()
    )


def test_a_table_without_key_stops_before_anything_of_it_is_passed_over(
    tmp_path: Path, stream: Stream, capfd: pytest.CaptureFixture[str]
) -> None:
    config = configure(tmp_path, reader={"labels": {"111": ITEM}})
    stream.insert(1)
    assert cli.run(["-c", str(config), "publish", "--once"]) == 2
    assert "has no key" in capfd.readouterr().err
    assert saved_at(tmp_path / "position.db").token["commit"] is None
