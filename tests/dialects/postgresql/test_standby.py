"""What commands say on a server that takes no writes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from shared import memory, temporary_servers

from eventlog import cli
from eventlog.errors import LogTableError
from eventlog.exit_codes import ExitCode
from eventlog.sql import embedded
from eventlog.sql.connect.locate import locate_log
from eventlog.sql.dialects.postgresql import DIALECT

pytestmark = pytest.mark.xdist_group("standby")  # one server for all

CONFIG = """
[database]
schema_name = "hr"
[publisher]
loopback_action = "keep"
[[watch]]
table = "usr"
"""
SCHEMA = """
CREATE SCHEMA hr;
CREATE TABLE hr.usr (idu integer PRIMARY KEY, fname text);
"""

Run = Callable[..., tuple[int, str, str]]


def execute(url: str, script: str) -> None:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as conn:
        conn.exec_driver_sql(script, execution_options={"no_parameters": True})


@pytest.fixture(scope="module")
def standby() -> Iterator[str]:
    """The URL of a server that is a standby, with a log and one row that waits."""
    # Not pytest's own temporary directory: its path is too long for a socket, and closed to the
    # server's user.
    with temporary_servers("el-", memory()) as directory:
        place = directory / "pg"
        with embedded.running(place) as url:
            execute(url, SCHEMA)
            file = directory / "eventlog.toml"
            file.write_text(CONFIG)
            for command in (("db", "upgrade"), ("triggers", "apply")):
                assert (
                    cli.run(["--quiet", "--config", str(file), "--database-url", url, *command])
                    == 0
                )
            execute(
                url,
                "INSERT INTO hr.usr VALUES (1, 'Jack'); UPDATE hr.eventlog SET perpetrator = 'app'",
            )
        # It recovers what its own log holds, and then waits for a primary for good.
        signal = place / "standby.signal"
        signal.touch()
        owner = (place / "PG_VERSION").stat()
        os.chown(signal, owner.st_uid, owner.st_gid)
        with embedded.running(place) as url:
            yield url


@pytest.fixture
def run(
    standby: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Run:
    """A command there: its exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    Path("eventlog.toml").write_text(CONFIG)
    monkeypatch.setenv("EVENTLOG_DATABASE_URL", standby)

    def run(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = cli.run(list(arguments))
        return code, *capfd.readouterr()

    return run


def test_doctor_reports_that_the_server_is_a_standby(run: Run) -> None:
    code, out, _ = run("doctor", "--json")
    findings = json.loads(out)["findings"]
    (finding,) = [one for one in findings if one["code"] == "standby"]
    assert (code, finding["severity"]) == (ExitCode.NO, "error")
    assert finding["text"].startswith("the server is a standby")
    assert "target_session_attrs" in finding["fix"][0]
    # The rest is examined all the same.
    assert [
        one for one in findings if one["code"] in ("check_failed", "log_table", "rights_publish")
    ] == []


@pytest.mark.parametrize("command", [("publish",), ("publish", "--once")])
def test_publish_reports_that_the_server_is_a_standby(run: Run, command: tuple[str, ...]) -> None:
    code, out, err = run(*command)
    assert (code, out) == (1, "")
    (line,) = [line for line in err.splitlines() if line.startswith("eventlog: ")]
    assert "because publishing marks rows: the server is a standby" in line
    assert "change the database URL to the primary's" in line


def test_purge_reports_that_the_server_is_a_standby_and_does_not_blame_rights(run: Run) -> None:
    code, _, err = run("purge", "--older-than", "0s")
    assert code == 1
    assert "cannot be purged on this server: the server is a standby" in err
    assert "right" not in err


@pytest.mark.parametrize(
    "command", [("requeue",), ("triggers", "drop", "--yes"), ("resync", "usr")]
)
def test_other_commands_that_write_report_it_too(run: Run, command: tuple[str, ...]) -> None:
    code, _, err = run(*command)
    assert code == 1
    assert "standby" in err
    assert len(err.splitlines()) == 1


def test_status_does_not_ask_a_standby_whether_a_publisher_runs(run: Run) -> None:
    """The lock of a publisher is at the primary."""
    status = json.loads(run("status", "--json")[1])
    assert status["publisher_runs"] is None
    assert "no_publisher" not in [one["name"] for one in status["health"]["conditions"]]
    assert "only the primary shows whether a publisher runs" in run("status")[1]


def test_what_only_reads_works(run: Run) -> None:
    code, out, _ = run("publish", "--dry-run")
    assert code == 0
    assert "Jack" in out
    assert run("status", "--json")[0] == 0
    assert run("explain", "1", "--json")[0] == 0


def test_a_primary_whose_sessions_are_read_only_is_reported(uncommitted: sa.Connection) -> None:
    assert DIALECT.open(uncommitted).read_only() is None
    uncommitted.exec_driver_sql("SET default_transaction_read_only = on")
    assert "default_transaction_read_only is on" in (DIALECT.open(uncommitted).read_only() or "")


def test_a_standby_does_not_report_who_writes_the_log(standby: str) -> None:
    engine = sa.create_engine(standby, poolclass=sa.NullPool)
    with engine.connect() as conn:
        assert (
            DIALECT.open(conn)
            .log(locate_log(DIALECT.open(conn), name="eventlog", schema="hr"))
            .open_writers()
            is None
        )


def test_the_stream_of_changes_is_refused_there(standby: str, tmp_path: Path) -> None:
    change_log = pytest.importorskip(
        "eventlog.spark.changes.change_log", reason="the extra spark is not installed"
    )
    file = tmp_path / "eventlog.toml"
    file.write_text(CONFIG.replace("[database]", f'[database]\nurl = "{standby}"'))
    with pytest.raises(LogTableError, match="cannot be read from a standby server"):
        change_log.ChangeLog(str(file)).first()
