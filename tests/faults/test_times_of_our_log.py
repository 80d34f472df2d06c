"""eventlog writes event_time in UTC, so ``event_time_zone = "local"`` has no effect on its logs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from shared import Run, execute, fetch, url_of

from eventlog.sql import migrations

TOKYO, NEW_YORK = "Asia/Tokyo", "America/New_York"


@dataclass
class Log:
    """A log with three rows of our triggers, in a server in another zone than UTC."""

    engine: sa.Engine
    command: Run

    def run(self, *arguments: str) -> str:
        code, out, err = self.command(*arguments)
        assert code == 0, (arguments, out, err)
        return out

    @property
    def rows(self) -> int:
        return int(fetch(self.engine, "SELECT count(*) FROM eventlog")[0][0])


NewLog = Callable[[str], Log]


def fill(database: sa.Engine) -> None:
    execute(database, "CREATE TABLE item (id integer PRIMARY KEY, name text)")
    migrations.upgrade(database, log_table="eventlog")


@pytest.fixture(params=["postgresql", "sqlite"])
def new_log(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[NewLog]:
    monkeypatch.chdir(tmp_path)
    if request.param == "sqlite":
        engine = sa.create_engine(f"sqlite:///{tmp_path / 'app.db'}")
        fill(engine)

        def in_zone(zone: str) -> None:
            monkeypatch.setenv("TZ", zone)
            time.tzset()

        yield lambda zone: log_in(engine, zone, in_zone, run)
        engine.dispose()
        monkeypatch.delenv("TZ")
        time.tzset()
        return
    with request.getfixturevalue("filled_database")(fill) as engine:
        yield lambda zone: log_in(engine, zone, lambda zone: set_zone(engine, zone), run)


def set_zone(engine: sa.Engine, zone: str) -> None:
    execute(engine, f"ALTER DATABASE {engine.url.database} SET timezone = '{zone}'")
    engine.dispose()


def log_in(engine: sa.Engine, zone: str, in_zone: Callable[[str], None], run: Run) -> Log:
    in_zone(zone)
    Path("eventlog.toml").write_text(
        f"[database]\nurl = {json.dumps(url_of(engine))}\n"
        '[[watch]]\ntable = "item"\n'
        '[publisher]\nevent_time_zone = "local"\nallow_loopback = true\n'
    )
    log = Log(engine, run)
    log.run("triggers", "apply", "--yes")
    execute(engine, "INSERT INTO item VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    return log


def test_a_purge_keeps_rows_that_are_seconds_old(new_log: NewLog) -> None:
    log = new_log(TOKYO)
    log.run("publish", "--once")
    log.run("purge", "--older-than", "8h", "--yes")
    assert log.rows == 3


def test_a_row_is_due_when_it_is_written(new_log: NewLog) -> None:
    log = new_log(NEW_YORK)
    out = log.run("--set", "publisher.handle_future_events=yes", "publish", "--once")
    assert out.count("<add ") == 3


def test_the_age_of_the_oldest_row_is_that_of_its_change(new_log: NewLog) -> None:
    known = json.loads(new_log(TOKYO).run("status", "--json"))
    assert known["oldest_seconds"] < 3600


def test_a_consumer_that_starts_from_a_time_gets_the_rows_after_it(
    new_log: NewLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = new_log(TOKYO)
    monkeypatch.setenv("EVENTLOG_SOURCE_CONSUMER", "search")
    before = time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime(time.time() - 600))
    monkeypatch.setenv("EVENTLOG_SOURCE_START_FROM", before)
    assert log.run("publish", "--once").count("<add ") == 3


def test_plan_doctor_and_the_start_of_a_publisher_name_the_option(
    new_log: NewLog, caplog: pytest.LogCaptureFixture
) -> None:
    log = new_log(TOKYO)
    (warning,) = [
        one
        for one in json.loads(log.run("triggers", "plan", "--check", "--json"))["warnings"]
        if "event_time_zone" in one
    ]
    assert "has no effect on the log" in warning
    found: list[dict[str, Any]] = json.loads(log.command("doctor", "--json")[1])["findings"]
    (finding,) = [one for one in found if one["code"] == "event_time"]
    assert (finding["severity"], "has no effect" in finding["text"]) == ("warning", True)
    log.run("publish", "--once")
    assert 'event_time_zone = "local" has no effect on the log' in caplog.text


def test_a_role_that_may_only_purge_keeps_them_too(
    filled_database: Any, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with filled_database(fill) as engine:
        log = log_in(engine, TOKYO, lambda zone: set_zone(engine, zone), run)
        log.run("publish", "--once")
        execute(engine, "CREATE ROLE purger LOGIN")
        try:
            execute(engine, *log.run("grants", "purger", "--purpose", "purge").split(";\n")[:-1])
            url = engine.url.set(username="purger").render_as_string(hide_password=False)
            log.run("--database-url", url, "purge", "--older-than", "8h", "--yes")
            assert log.rows == 3
        finally:
            execute(engine, "DROP OWNED BY purger", "DROP ROLE purger")


def test_the_log_of_another_program_with_our_triggers_counts_as_utc(
    filled_database: Any, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with filled_database(fill) as engine:
        execute(
            engine,
            "ALTER TABLE eventlog ALTER event_time SET DEFAULT localtimestamp",
            "DELETE FROM eventlog_version WHERE version_num LIKE 'log_%'",
        )
        log = log_in(engine, TOKYO, lambda zone: set_zone(engine, zone), run)
        log.run("publish", "--once")
        log.run("purge", "--older-than", "8h", "--yes")
        assert log.rows == 3


def test_the_log_of_another_program_without_our_triggers_has_local_times(
    filled_database: Any, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with filled_database(fill) as engine:
        execute(engine, "ALTER TABLE eventlog ALTER event_time SET DEFAULT localtimestamp")
        set_zone(engine, NEW_YORK)
        execute(
            engine,
            "INSERT INTO eventlog (status, event_type, table_name, table_key)"
            " VALUES ('S', 5, 'item', 'id=1')",
        )
        flags = ("--database-url", url_of(engine), "--set", "publisher.event_time_zone=local")
        assert run(*flags, "purge", "--older-than", "1h", "--yes")[0] == 0
        assert fetch(engine, "SELECT count(*) FROM eventlog") == [(1,)]
