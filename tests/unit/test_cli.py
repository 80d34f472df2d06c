"""The command line: exit codes, one clear line for what is wrong, nothing imported that is not
needed.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from shared import Run

from eventlog import __version__, cli
from eventlog.cli.context import TextLines
from eventlog.cli.inspect.runs.monitor import read_monitor
from eventlog.errors import (
    ConfigError,
    DatabaseError,
    EventlogError,
    FatalAnswer,
    MonitorUnavailable,
    first_of,
    number_of,
)

LINES_AND_IMPORTS = """
import contextlib, io, json, sys
from eventlog.cli import run

HEAVY = {"sqlalchemy", "alembic", "lxml", "rich", "psycopg", "pyspark", "oracledb", "confluent_kafka"}
found = []
for arguments in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        run(arguments)
    loaded = [
        name for name in sys.modules
        if name.startswith("eventlog.spark") or name.partition(".")[0] in HEAVY
    ]
    found.append((printed.getvalue().splitlines(), loaded))
print(json.dumps(found))
"""
"""A program that runs command lines one after another: what each of them prints, and which of the
heavy modules are loaded after it.
"""


def test_help_and_a_probe_of_the_health_file_load_nothing_that_speaks_to_a_database(
    tmp_path: Path,
) -> None:
    config = tmp_path / "eventlog.toml"
    source = '[source]\ntype = "eventlog"\nconsumer = "search"\n'
    config.write_text(
        f'[database]\nurl = "postgresql+psycopg://app@db.example:5432/hr"\n{source}',
        encoding="utf-8",
    )
    probe = ["health", "--file", str(tmp_path / "none")]
    commands = [["--help"], probe, ["--config", str(config), *probe]]
    done = subprocess.run(
        [sys.executable, "-c", LINES_AND_IMPORTS, json.dumps(commands)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    (help, *loaded_by_help), *probed = json.loads(done.stdout)
    assert loaded_by_help == [[]]
    for command in cli.COMMANDS:
        assert any(line.strip().startswith(command) for line in help)
    for lines, loaded in probed:
        assert "not healthy" in lines[0]
        assert loaded == []


@pytest.mark.parametrize(
    ("count", "noun", "said"),
    [(1, "row", "1 row"), (0, "row", "0 rows"), (1203, "error row", "1,203 error rows")],
)
def test_messages_count_their_nouns(count: int, noun: str, said: str) -> None:
    assert number_of(count, noun) == said


def test_of_many_texts_the_first_are_shown_and_the_others_counted() -> None:
    assert first_of(["a", "b"], 2, "key") == "a, b"
    assert first_of(["a", "b"], 1, "key") == "a and 1 more key"
    assert first_of(["a", "b", "c"], 1) == "a and 2 more"


@pytest.mark.promise("exit 0", "option eventlog--version")
def test_version_is_printed(run: Run) -> None:
    assert run("--version") == (0, f"eventlog {__version__}\n", "")


@pytest.mark.promise("command config", "option eventlog--config")
@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["nonsense"], "there is no command 'nonsense'; the commands are init, config"),
        (["publsh"], "there is no command 'publsh'; the nearest is publish"),
        (["config", "--nonsense"], "--nonsense"),
        (["--config", "nowhere.toml", "config"], "nowhere.toml: there is no such file"),
        (["--set", "publisher.batch_size", "config"], "SECTION.KEY=VALUE"),
        (["--set", "publisher.batch_size=0", "config"], "legal: 1..128"),
        (["--set", "publisher.batchsize=1", "config"], "publisher.batch_size"),
        (["--database-url", "nonsense", "config"], "the database URL cannot be read"),
        (["status"], "no database is given"),
        (["status", "--config", "e.toml"], "e.toml: there is no such file"),
        (["status", "--set", "publisher.batch_size=0"], "legal: 1..128"),
    ],
)
def test_usage_and_configuration_errors_are_one_line_and_exit_2(
    run: Run, arguments: list[str], part: str
) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("eventlog: ")
    assert err.count("\n") == 1
    assert part in err


@pytest.mark.promise("command db current")
def test_options_of_all_commands_stand_on_either_side_of_the_command(
    run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "e.toml"
    file.write_text("[publisher]\nbatch_size = 7\n")
    before = run("-c", str(file), "--set", "log.level=error", "-q", "config", "--json")
    assert before == run("config", "-c", str(file), "--json", "--set", "log.level=error", "-q")
    assert before == run("-c", "none", "config", "-c", str(file), "--set=log.level=error", "--json")
    in_group = run("db", "-c", str(file), "current", "--database-url", "nonsense")
    assert in_group == run("-c", str(file), "--database-url", "nonsense", "db", "current")
    assert in_group[0] == 2


@pytest.mark.promise("code error-config")
def test_the_line_of_an_error_ends_with_its_code(run: Run) -> None:
    assert run("--config", "nowhere.toml", "config")[2].endswith(" [config]\n")
    assert run("status")[2].endswith(" [config]\n")
    assert run("publsh")[2].endswith("see `eventlog --help`\n")


def test_a_log_line_for_people_ends_with_the_code_of_its_error() -> None:
    made = {
        "name": "eventlog",
        "levelname": "ERROR",
        "msg": "no answer",
        "code": "receiver_unavailable",
    }
    line = TextLines("%(levelname)s %(message)s").format(logging.makeLogRecord(made))
    assert line == "ERROR no answer [receiver_unavailable]"


@pytest.mark.parametrize("arguments", [[], ["db"], ["triggers"]])
def test_without_a_command_the_help_is_shown_as_it_is(run: Run, arguments: list[str]) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err == run(*arguments, "--help")[1]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (EventlogError("no"), 1),
        (DatabaseError("no"), 1),
        (ConfigError("no"), 2),
        (FatalAnswer("no"), 3),
        (KeyboardInterrupt(), 130),
        (BrokenPipeError(), 1),
        (PermissionError(13, "Permission denied", "file"), 1),
    ],
)
def test_each_kind_of_failure_has_its_exit_code(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("eventlog.cli.context.load", fail)
    monkeypatch.setattr(os, "dup2", lambda *_: None)
    got, out, err = run("config")
    assert (got, out) == (code, "")
    assert "Traceback" not in err


def test_a_traceback_is_shown_when_asked_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Traceback" in run("-vv", "--config", "nowhere.toml", "config")[2]
    monkeypatch.setenv("EVENTLOG_TRACEBACK", "1")
    assert "Traceback" in run("--config", "nowhere.toml", "config")[2]


@pytest.mark.promise("option eventlog--database-url")
def test_a_table_goes_to_standard_output_and_warnings_go_to_standard_error(run: Run) -> None:
    code, out, err = run("config")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split() == ["setting", "value", "from"]
    assert any(
        line.split() == ["publisher.batch_size", "128", "default"] for line in out.splitlines()
    )
    code, warned, err = run("--database-url", "postgresql://me:secret@nowhere/db", "config")
    assert (code, len(warned.splitlines())) == (0, len(out.splitlines()))
    assert err.startswith("warning: flag database.url holds a password")


ENCODED = """
from eventlog.cli import main, run
run(["config"])
main()
"""
"""One command for people, and the same for programs; the second as the console script runs it."""


def test_what_standard_output_cannot_encode_is_escaped(tmp_path: Path) -> None:
    (tmp_path / "eventlog.toml").write_text('[database]\nlog_table = "журнал"\n', encoding="utf-8")
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("EVENTLOG_")
    }
    done = subprocess.run(
        [sys.executable, "-c", ENCODED, "config", "--json"],
        cwd=tmp_path, env=environment | {"PYTHONIOENCODING": "ascii"}, capture_output=True,
        text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    for_people, _, for_programs = done.stdout.partition("\n[")
    assert for_programs
    for said in (for_people, for_programs):
        assert "\\u0436\\u0443\\u0440\\u043d\\u0430\\u043b" in said


CLOSED = """
import json, os, sys
from eventlog.__main__ import main
from eventlog import cli
import alembic.migration, rich.table, eventlog.registry, eventlog.sql.dialects.sqlite.database

assert sys.stdout is None
for command in json.loads(sys.argv[1]):
    if not os.fork():
        sys.argv[1:] = command
        main()
    print("ended with", os.waitstatus_to_exitcode(os.wait()[1]), file=sys.stderr)
"""
"""A program whose standard output is closed, which becomes each of the commands in a process: none
of them loads again what all need.
"""


@pytest.mark.promise("command consumers list")
def test_a_command_with_a_closed_standard_output_ends_as_it_does_otherwise(
    run: Run, tmp_path: Path
) -> None:
    url = ["--database-url", f"sqlite:///{tmp_path}/shop.db"]
    assert run("--quiet", *url, "db", "upgrade")[0] == 0
    commands = [
        [*url, *command.split()]
        for command in ("status", "errors", "doctor", "config", "consumers list")
    ]
    line = [sys.executable, "-c", CLOSED, json.dumps(commands)]
    closed = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *line], stderr=subprocess.PIPE, text=True
    )
    expected = ""
    for command in commands:
        code, said, err = run(*command)
        assert said
        expected += f"{err}ended with {int(code)}\n"
    assert (closed.returncode, closed.stderr) == (0, expected)


@pytest.mark.promise("command init", "option init--force")
def test_init_writes_a_file_once(run: Run) -> None:
    assert run("init")[0] == 0
    before = Path("eventlog.toml").read_text()
    Path("eventlog.toml").write_text(before + "# mine\n")
    assert run("init")[0] == 2
    assert Path("eventlog.toml").read_text().endswith("# mine\n")
    assert run("init", "--force")[0] == 0
    assert Path("eventlog.toml").read_text() == before
    assert run("config")[0] == 0


def test_config_shows_where_each_setting_came_from(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("eventlog.toml").write_text("[publisher]\nbatch_size = 5\n[[watch]]\ntable = 'usr'\n")
    monkeypatch.setenv("EVENTLOG_PUBLISHER_QUERY_LIMIT", "6")
    monkeypatch.setenv("EVENTLOG_DATABASE_PASSWORD", "geheim")
    code, out, err = run(
        "--log-table", "mylog", "--database-url", "postgresql://u:geheim@h/d", "config", "--json"
    )
    settings = {
        f"{one['section']}.{one['key']}": (one["value"], one["source"]) for one in json.loads(out)
    }
    assert code == 0
    assert settings["publisher.batch_size"] == (5, "eventlog.toml: publisher.batch_size")
    assert settings["publisher.query_limit"] == (
        6,
        "environment variable EVENTLOG_PUBLISHER_QUERY_LIMIT",
    )
    assert settings["database.log_table"] == ("mylog", "flag database.log_table")
    assert settings["publisher.delivery_rows"] == (10000, "default")
    assert settings["watch usr.table"] == ("usr", "eventlog.toml")
    assert "geheim" not in out + err + run("config")[2]


@pytest.mark.promise("option eventlog--set")
def test_a_flag_of_another_section_is_refused_with_the_options_own(run: Run) -> None:
    code, _, err = run("--set", "publisher.log_table=b", "config")
    assert code == 2
    assert "flag publisher.log_table is not known; use database.log_table" in err


def test_every_command_has_its_module() -> None:
    for name in cli.COMMANDS:
        result = CliRunner().invoke(cli.cli, [name, "--help"])
        assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("said", "part"),
    [
        (
            b"SSH-2.0-OpenSSH_9.6\r\n",
            "does not answer: the server's answer is not an HTTP response",
        ),
        (
            b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere.example/\r\nContent-Length: "
            b"0\r\n\r\n",
            "returned 302",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno", "does not answer"),
    ],
)
def test_what_is_no_monitor_is_one_line_and_gets_no_token_elsewhere(said: bytes, part: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as answering:
        read = read_monitor(f"http://127.0.0.1:{server.getsockname()[1]}/", "t0ken")
        answering.submit(_answer, server, said)
        with pytest.raises(MonitorUnavailable, match=part):
            read()


def _answer(server: socket.socket, said: bytes) -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(65536)
        connection.sendall(said)


@pytest.mark.promise("option triggers-drop--dry-run")
def test_commands_that_change_the_database_report_to_programs_what_they_did(
    run: Run, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as db:
        db.execute("CREATE TABLE customer (id INTEGER PRIMARY KEY)")
    config = tmp_path / "e.toml"
    config.write_text('[database]\nurl = "sqlite:///shop.db"\n[[watch]]\ntable = "customer"\n')

    def told(*arguments: str) -> dict[str, Any]:
        code, out, err = run(*arguments, "--json", "-c", str(config))
        assert code == 0, err
        found: dict[str, Any] = json.loads(out)
        return found

    upgraded = told("db", "upgrade")
    assert (upgraded["before"], bool(upgraded["current"])) == ([], True)
    told("triggers", "apply")
    dropped = {"tables": ["customer"], "log": None, "dry_run": False}
    assert told("triggers", "drop", "--dry-run") == {**dropped, "dry_run": True}
    assert told("triggers", "drop", "--yes") == dropped
    downgraded = told("db", "downgrade", "base", "--yes")
    assert (downgraded["before"], downgraded["current"]) == (upgraded["current"], [])
