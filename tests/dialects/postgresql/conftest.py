"""What the tests of PostgreSQL alone share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from examinations import CONFIG, Doctor
from examinations import fill as fill_with_triggers
from old_leaves import Command, Findings, fill_with_leaves
from old_leaves import fill as fill_with_old_rows
from resyncs import Receiver
from resyncs import fill as fill_with_classes
from shared import Run
from sqlalchemy import Connection, Engine
from trigger_log import Watched
from trigger_log import run as run_sql

from eventlog import cli
from eventlog.publisher.upkeep import leaves as publisher_leaves
from eventlog.publisher.upkeep import retention
from eventlog.sql import migrations
from eventlog.sql.connect.connection import connect
from eventlog.sql.connect.locate import locate_log
from eventlog.sql.dialects.postgresql import DIALECT
from eventlog.sql.log_table import LogTable


def _install(engine: Engine) -> None:
    migrations.upgrade(engine, log_table="eventlog")


@pytest.fixture
def engine(filled_database: Any) -> Iterator[Engine]:
    """An engine as the publisher makes it, on a new database with a log."""
    with filled_database(_install) as database:
        yield connect(database.url)


@pytest.fixture
def conn(engine: Engine) -> Iterator[Connection]:
    with engine.connect() as conn:
        yield conn


@pytest.fixture
def opened(conn: Connection) -> LogTable:
    return locate_log(DIALECT.open(conn), name="eventlog")


@pytest.fixture
def writer(usr: Watched) -> Iterator[str]:
    name = "eventlog_test_writer"
    run_sql(
        usr.conn,
        f"DROP ROLE IF EXISTS {name}",
        f"CREATE ROLE {name}",
        f"GRANT ALL ON usr, usr_phone TO {name}",
    )
    yield name
    usr.conn.rollback()


@pytest.fixture
def hr(filled_database: Any, empty_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """A database with the schema of ``resyncs`` and its log, which command lines use."""
    with filled_database(fill_with_classes) as database:
        monkeypatch.setenv(
            "EVENTLOG_DATABASE_URL", database.url.render_as_string(hide_password=False)
        )
        monkeypatch.setenv("EVENTLOG_DATABASE_SCHEMA_NAME", "hr")
        yield database


@pytest.fixture
def publish(run: Run) -> Callable[[], Receiver]:
    """Publish what is queued to a receiver that is kept."""
    receiver = Receiver()

    def publish() -> Receiver:
        code, out, _ = run("--quiet", "publish", "--once")
        assert code == 0
        receiver.take(out)
        return receiver

    return publish


@pytest.fixture
def examined(
    filled_database: Any, empty_home: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[sa.Engine]:
    """A database as ``examinations`` fills it, and a directory with its configuration."""
    Path("eventlog.toml").write_text(CONFIG)
    with filled_database(fill_with_triggers) as database:
        monkeypatch.setenv(
            "EVENTLOG_DATABASE_URL", database.url.render_as_string(hide_password=False)
        )
        yield database


@pytest.fixture
def doctor(examined: sa.Engine, capfd: pytest.CaptureFixture[str]) -> Doctor:
    """Run ``eventlog doctor --json``: its exit code, and its findings by code."""

    def doctor(*arguments: str) -> tuple[int, dict[str, list[dict[str, Any]]]]:
        capfd.readouterr()
        code = cli.run([*arguments, "doctor", "--json"])
        found: dict[str, list[dict[str, Any]]] = {}
        for finding in json.loads(capfd.readouterr().out)["findings"]:
            found.setdefault(finding["code"], []).append(finding)
        return code, found

    return doctor


@pytest.fixture
def old_log(
    request: pytest.FixtureRequest,
    filled_database: Any,
    empty_home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[sa.Engine]:
    """The database of ``fill``, which command lines use."""
    monkeypatch.setenv("EVENTLOG_DATABASE_SCHEMA_NAME", "hr")
    # A snapshot holds a purge back after the product's time, on a slow machine as well.
    monkeypatch.setattr(retention, "PATIENCE", publisher_leaves.PATIENCE)
    monkeypatch.setattr(publisher_leaves, "PATIENCE", 0.3)
    fill = fill_with_leaves if "partitioned" in request.fixturenames else fill_with_old_rows
    with filled_database(fill) as database:
        monkeypatch.setenv(
            "EVENTLOG_DATABASE_URL", database.url.render_as_string(hide_password=False)
        )
        yield database


@pytest.fixture
def command(old_log: sa.Engine, capfd: pytest.CaptureFixture[str]) -> Command:
    """A command with --json that succeeds, as data."""

    def command(*arguments: str) -> dict[str, Any]:
        capfd.readouterr()
        assert cli.run([*arguments, "--json"]) == 0
        found: dict[str, Any] = json.loads(capfd.readouterr().out)
        return found

    return command


@pytest.fixture
def partitioned(old_log: sa.Engine) -> sa.Engine:
    """The database of ``fill_with_leaves``."""
    return old_log


@pytest.fixture
def findings(partitioned: sa.Engine, capfd: pytest.CaptureFixture[str]) -> Findings:
    """What ``doctor`` finds, by its code."""

    def findings() -> dict[str, str]:
        capfd.readouterr()
        cli.run(["doctor", "--json"])
        found = json.loads(capfd.readouterr().out)["findings"]
        return {one["code"]: one["text"] for one in found}

    return findings
