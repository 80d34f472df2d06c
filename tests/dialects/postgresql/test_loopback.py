"""One database user for all: what it changes is never dropped without a word (spec/event-log.md
8.3).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import sqlalchemy as sa
from shared import PlainSink, Run, execute

from eventlog import cli
from eventlog.config.load import load
from eventlog.model import Document
from eventlog.publisher.context import context as publisher_context
from eventlog.publisher.context.context import REPORT_INTERVAL, Context, Counters
from eventlog.publisher.context.observer import Observer
from eventlog.publisher.declared.opening import open_context
from eventlog.publisher.run.daemon import publish
from eventlog.publisher.run.waiting import StopRequest

CONFIG = """
[database]
schema_name = "hr"
[[watch]]
table = "usr"
"""
GIVEN = ['loopback_action = "mark"', "allow_loopback = false"]
"""Settings that say what happens to such rows, as they are by default too."""


def fill(database: sa.Engine) -> None:
    execute(database, "CREATE SCHEMA hr; CREATE TABLE hr.usr (idu integer PRIMARY KEY, fname text)")
    url = database.url.render_as_string(hide_password=False)
    with TemporaryDirectory() as directory:
        file = Path(directory, "eventlog.toml")
        file.write_text(CONFIG)
        for command in (("db", "upgrade"), ("triggers", "apply")):
            assert cli.run(["--quiet", "--config", str(file), "--database-url", url, *command]) == 0


@pytest.fixture
def home(filled_database: Any, empty_home: Path) -> Iterator[sa.Engine]:
    """A database with a log that one user owns, changes and publishes, and a directory with its
    configuration.
    """
    with filled_database(fill) as database:
        configure(database)
        yield database


def configure(database: sa.Engine, *publisher: str, user: str = "") -> None:
    """Write eventlog.toml with these lines of [publisher]; ``user``: the URL names another one than
    the session's.
    """
    url = database.url.set(username=user or database.url.username).render_as_string(
        hide_password=False
    )
    lines = "\n".join(publisher)
    Path("eventlog.toml").write_text(
        f"{CONFIG}\n[publisher]\n{lines}\n".replace("[database]", f'[database]\nurl = "{url}"')
    )


@pytest.fixture
def run(
    home: sa.Engine, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> Run:
    """A command: its exit code, standard output, and what it wrote and logged for people."""

    def run(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        caplog.clear()
        code = cli.run(list(arguments))
        out, err = capfd.readouterr()
        return (
            code,
            out,
            "\n".join([err, *(record.message for record in caplog.records if record.levelno > 20)]),
        )

    return run


def statuses(database: sa.Engine) -> dict[int, str]:
    with database.connect() as conn:
        return {
            row[0]: row[1]
            for row in conn.execute(sa.text("SELECT record_id, status FROM hr.eventlog"))
        }


def user_of(database: sa.Engine) -> str:
    with database.connect() as conn:
        return str(conn.execute(sa.text("SELECT session_user")).scalar_one())


def findings(run: Run, *arguments: str) -> list[dict[str, Any]]:
    """The findings of ``doctor`` about loopback."""
    found = json.loads(run(*arguments, "doctor", "--json")[1])["findings"]
    return [finding for finding in found if finding["code"] == "loopback"]


# --- publishing -----------------------------------------------------------------------------------


def test_publish_once_ends_with_a_warning_of_user_count_and_ways_out(
    home: sa.Engine, run: Run
) -> None:
    execute(home, "INSERT INTO hr.usr VALUES (1, 'Jack'), (2, 'Jill')")
    consumed = len(statuses(home))
    code, out, err = run("publish", "--once")
    assert (code, out) == (0, "")
    assert set(statuses(home).values()) == {"S"}
    (line,) = [line for line in err.splitlines() if "without being published" in line]
    assert (
        f"{consumed} rows marked S without being published, because {user_of(home)!r}, the "
        "publisher's own database user, made the changes"
    ) in line
    for way in (
        "its own database user",
        "allow_loopback = true",
        "loopback_action = ",
        "requeue --loopback",
    ):
        assert way in line


def test_publish_warns_at_the_start_where_its_user_owns_watched_tables(
    home: sa.Engine, run: Run
) -> None:
    err = run("publish", "--once")[2]
    assert (
        f"{user_of(home)!r}, the publisher's database user, owns usr: its changes there are "
        "loopback"
    ) in err


@pytest.mark.parametrize("given", GIVEN)
def test_a_configuration_that_sets_loopback_action_causes_no_warning(
    home: sa.Engine, run: Run, given: str
) -> None:
    configure(home, given)
    execute(home, "INSERT INTO hr.usr VALUES (1, 'Jack')")
    assert "loopback_action" not in "".join(run("triggers", "plan")[1:])
    assert [finding["severity"] for finding in findings(run)] == ["info"]
    assert run("publish", "--once")[2].strip() == ""
    assert set(statuses(home).values()) == {"S"}


def test_a_dry_run_shows_what_would_not_be_published(home: sa.Engine, run: Run) -> None:
    execute(home, "INSERT INTO hr.usr VALUES (1, 'Jack')")
    code, out, err = run("publish", "--dry-run")
    assert (code, out) == (0, "")
    assert f"{len(statuses(home))} row" in err
    assert "would be marked S without being published" in err
    assert set(statuses(home).values()) == {"N"}


class Heard(PlainSink):
    """Takes everything."""

    def send(self, document: Document) -> Any:
        raise AssertionError("nothing is published here")


class Once(Observer):
    """Stops the publisher after its first cycle."""

    def __init__(self, stop: StopRequest) -> None:
        self._stop = stop

    def progressed(self) -> None:
        self._stop.set()


def test_a_publisher_that_runs_again_warns_of_the_rows_of_that_run_alone(
    home: sa.Engine, caplog: pytest.LogCaptureFixture
) -> None:
    config, counters = load(Path("eventlog.toml"), {}), Counters()
    execute(home, "INSERT INTO hr.usr VALUES (1, NULL)")
    for _ in range(2):
        stop = StopRequest()
        publish(lambda: open_context(config, counters), Heard, stop, Once(stop))
    assert counters.rows_loopback == len(statuses(home)) > 0
    assert sum("without being published" in record.message for record in caplog.records) == 1


def test_a_running_publisher_warns_at_most_once_a_minute(
    home: sa.Engine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(publisher_context, "monotonic", lambda: clock[0])
    warned: list[int] = []
    stop, counters = StopRequest(), Counters()
    config = load(Path("eventlog.toml"), {})
    changes = [(1, 0.0), (2, REPORT_INTERVAL / 2), (3, REPORT_INTERVAL), (4, REPORT_INTERVAL + 1)]
    beats = 0

    class Beats(Observer):
        def progressed(self) -> None:
            # After each cycle: how many warnings there are, and the next change at its time.
            nonlocal beats
            warned.append(
                sum("without being published" in record.message for record in caplog.records)
            )
            if beats == len(changes):
                stop.set()
                return
            key, clock[0] = changes[beats]
            execute(home, f"INSERT INTO hr.usr VALUES ({key}, NULL)")
            beats += 1

    @contextmanager
    def opened() -> Iterator[Context]:
        with open_context(config, counters) as context:
            yield replace(
                context, options=replace(context.options, polling_interval=0.01, notify=False)
            )

    with caplog.at_level(logging.WARNING):
        publish(opened, Heard, stop, Beats())
    # None before the first row, at once after it, none within the minute, one after it, none within
    # the next.
    assert warned == [0, 1, 1, 2, 2]
    # And at its end it tells of what it had not told yet.
    assert sum("without being published" in record.message for record in caplog.records) == 3
    assert counters.rows_loopback == len(statuses(home))


# --- before it happens ----------------------------------------------------------------------------


def test_plan_and_doctor_warn_where_the_publishers_user_owns_watched_tables(
    home: sa.Engine, run: Run
) -> None:
    code, out, err = run("triggers", "plan")
    assert code == 0
    assert f"warning: {user_of(home)!r}, the publisher's database user, owns usr" in out + err
    (finding,) = findings(run)
    assert finding["severity"] == "warning"
    assert "owns usr" in finding["text"]
    assert "allow_loopback = true" in " ".join(finding["fix"])


def test_an_installation_for_a_publisher_with_its_own_user_causes_no_warning(
    home: sa.Engine, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(home, user="publisher")
    monkeypatch.setenv("EVENTLOG_DATABASE_URL", home.url.render_as_string(hide_password=False))
    execute(home, "INSERT INTO hr.usr VALUES (1, 'Jack')")
    assert "loopback" not in "".join(run("triggers", "plan")[1:])
    assert findings(run) == []


def test_doctor_warns_of_rows_that_are_about_to_be_consumed(home: sa.Engine, run: Run) -> None:
    execute(home, "INSERT INTO hr.usr VALUES (1, 'Jack')")
    assert [finding["severity"] for finding in findings(run)] == ["warning", "warning"]


# --- afterwards -----------------------------------------------------------------------------------


def test_requeue_loopback_brings_consumed_rows_back(home: sa.Engine, run: Run) -> None:
    execute(home, "INSERT INTO hr.usr VALUES (1, 'Jack'); UPDATE hr.usr SET fname = 'John'")
    execute(home, "INSERT INTO hr.usr VALUES (2, 'Jill'); DELETE FROM hr.usr WHERE idu = 2")
    assert run("publish", "--once")[1] == ""
    consumed = statuses(home)
    for dry in (["--dry-run"], []):
        code, out, _ = run("requeue", "--loopback", "--json", *dry)
        assert (code, json.loads(out)["copied"], json.loads(out)["refused"]) == (
            0,
            len(consumed),
            [],
        )
    # Nothing else is changed, and yet they are published now, in their order.
    out = run("publish", "--once")[1]
    assert "John" in out
    assert out.index("idu=1,") < out.index("<delete")
    assert set(statuses(home).values()) == {"S"}


def test_requeue_loopback_refuses_what_later_changes_have_overtaken(
    home: sa.Engine, run: Run
) -> None:
    insert = (
        "INSERT INTO hr.eventlog (status, event_type, table_name, table_key, column_name, "
        "new_value, perpetrator)"
    )
    own, other = "session_user", "'app'"
    for values in (
        f"('S', 2, 'usr', 'idu=1', 'fname', 'a', {own})",
        f"('S', 2, 'usr', 'idu=1', 'fname', 'b', {other})",  # published since
        f"('S', 4, 'usr', 'idu=2', NULL, NULL, {own})",
        f"('N', 5, 'usr', 'idu=2', NULL, NULL, {other})",  # waits
        f"('S', 6, 'usr', 'idu=1', NULL, NULL, {own})",  # brings the present value: good
        f"('S', 2, 'usr', 'idu=3', 'fname', 'a', {own})",
        f"('S', 2, 'usr', 'idu=3', 'fname', 'b', {own})",  # was not published either
        f"('E', 2, 'usr', 'idu=4', 'fname', 'a', {own})",
    ):
        execute(home, f"{insert} VALUES {values}")
    before = statuses(home)
    code, out, _ = run("requeue", "--loopback", "--json")
    first = min(before)
    done = json.loads(out)
    assert (code, done["copied"], done["set_back"]) == (1, 3, 0)
    assert [row["record_id"] for row in done["refused"]] == [first, first + 2]
    assert (
        json.loads(run("requeue", "--loopback", "--ids", str(first), "--force", "--json")[1])[
            "copied"
        ]
        == 1
    )


def test_requeue_loopback_takes_the_rows_of_the_user_that_is_named(
    home: sa.Engine, run: Run
) -> None:
    execute(home, "INSERT INTO hr.eventlog (status, event_type, table_name, table_key, perpetrator)"
                  " VALUES ('S', 4, 'usr', 'idu=1', 'former  ')")  # fmt: skip
    code, out, err = run("requeue", "--loopback", "--json")
    assert json.loads(out)["copied"] == 0
    assert "the log has no such row of" in err
    assert "name this user by --set publisher.driver_user=USER" in err
    named = ("--set", "publisher.driver_user=Former")
    assert json.loads(run(*named, "requeue", "--loopback", "--json")[1])["copied"] == 1
    code, _, err = run("requeue", "--loopback", "--status", "S")
    assert (code, "--loopback takes rows of status S" in err) == (2, True)


@pytest.mark.parametrize(("given", "left"), [("", {"S"}), (GIVEN[0], set()), (GIVEN[1], {"S"})])
def test_delete_from_log_deletes_loopback_rows_only_where_consume_is_set(
    home: sa.Engine, run: Run, given: str, left: set[str]
) -> None:
    configure(home, "delete_from_log = true", given)
    execute(home, "INSERT INTO hr.usr VALUES (1, 'Jack')")
    execute(
        home,
        "INSERT INTO hr.eventlog (event_type, table_name, table_key, perpetrator) VALUES (4, "
        "'usr', 'idu=9', 'x')",
    )
    assert "idu=9" in run("publish", "--once")[1]
    assert set(statuses(home).values()) == left
