"""What is captured by nobody is reported by everybody: the start of a publisher, status, doctor,
the metric (spec/triggers.md 9.1).
"""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import mysql_servers
import pytest
import sqlalchemy as sa
from publishers import write_config
from shared import Run, execute, fetch, url_of

MAIL = "public.usr: column mail (text) is new in the watch and not captured yet"


def warned(caplog: pytest.LogCaptureFixture, beginning: str) -> str:
    """The one warning of a publisher that begins so."""
    (warning,) = [
        one.getMessage() for one in caplog.records if one.getMessage().startswith(beginning)
    ]
    return warning


@pytest.fixture
def config_of_publisher(database: sa.Engine, empty_home: Path, run: Run) -> Iterator[Path]:
    """A configuration for a user with the rights of a publisher alone, of a log whose triggers do
    not know the column ``mail`` of ``usr``.
    """
    execute(database, "CREATE TABLE usr (id integer PRIMARY KEY, name text)")
    of_owner = write_config(empty_home, url_of(database), ({"tables": ["*"]},))
    for words in (("db", "upgrade"), ("triggers", "apply")):
        assert run("--config", str(of_owner), *words)[0] == 0
    execute(database, "ALTER TABLE usr ADD mail text")
    role = f"publisher_{database.url.database}"
    execute(
        database,
        f"CREATE ROLE {role} LOGIN",
        f"GRANT SELECT, UPDATE (status) ON eventlog TO {role}",
        f"GRANT SELECT, INSERT ON eventlog_error TO {role}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON eventlog_inflight, eventlog_state TO {role}",
        f"GRANT SELECT, INSERT, UPDATE ON eventlog_epoch TO {role}",
        f"GRANT SELECT ON eventlog_captured, eventlog_consumer, usr TO {role}",
        f"GRANT USAGE ON SEQUENCE eventlog_delivery TO {role}",
    )
    yield write_config(
        empty_home,
        database.url.set(username=role).render_as_string(hide_password=False),
        ({"tables": ["*"]},),
    )
    execute(database, f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_a_column_that_came_while_no_publisher_ran_is_reported_to_the_publishers_role(
    config_of_publisher: Path, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    config = ("--config", str(config_of_publisher))
    assert run(*config, "publish", "--once")[0] == 0
    assert "`eventlog triggers apply`" in warned(caplog, MAIL)
    assert json.loads(run(*config, "status", "--json")[1])["drift"] == [MAIL]
    found = json.loads(run(*config, "doctor", "--json")[1])["findings"]
    assert [one["severity"] for one in found if "column mail (text)" in one["text"]] == ["warning"]


def test_a_column_that_was_dropped_is_reported_in_one_way(
    config_of_publisher: Path, database: sa.Engine, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    execute(database, "ALTER TABLE usr DROP mail", "ALTER TABLE usr DROP name")
    assert run("--config", str(config_of_publisher), "publish", "--once")[0] == 0
    assert warned(caplog, "public.usr: ") == (
        "public.usr: column name was dropped; the triggers still use name: until triggers are "
        "applied, they log rows without values, which are read back. Changes are not logged as declared: run `eventlog triggers apply`, then the "
        "`resync` commands that it prints"
    )


def test_plan_works_for_a_role_that_may_read_and_apply_shows_what_it_lacks(
    config_of_publisher: Path, run: Run
) -> None:
    config = ("--config", str(config_of_publisher))
    code, told, _ = run(*config, "triggers", "plan")
    assert code == 0
    assert f"~ {MAIL}" in told
    assert "warning: this role cannot apply the plan: role publisher_" in told
    code, _, told = run(*config, "triggers", "apply")
    assert code == 1
    assert "may not write" in told


def test_a_role_that_sees_no_triggers_compares_with_what_apply_has_recorded(
    family_server: mysql_servers.Server,
    empty_home: Path,
    run: Run,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with family_server.database() as url:
        owner = sa.create_engine(url, poolclass=sa.NullPool)
        execute(owner, "CREATE TABLE usr (id integer PRIMARY KEY, name varchar(9))")
        watches = ({"tables": ["*"]},)
        of_owner = str(write_config(empty_home, url_of(owner), watches))
        for words in (("db", "upgrade"), ("triggers", "apply")):
            assert run("--config", of_owner, *words)[0] == 0
        execute(owner, "ALTER TABLE usr ADD mail varchar(9)")
        family_server.run(
            "CREATE USER IF NOT EXISTS publisher@localhost IDENTIFIED BY 'publisher'",
            "GRANT SELECT, INSERT, UPDATE, DELETE ON app.* TO publisher@localhost",
        )
        publisher = url.set(username="publisher", password="publisher")
        place = publisher.render_as_string(hide_password=False)
        config = ("--config", str(write_config(empty_home, place, watches)))
        words = "usr: column mail (varchar(9)) is new in the watch and not captured yet"
        assert run(*config, "publish", "--once")[0] == 0
        assert "`eventlog triggers apply`" in warned(caplog, words)
        assert json.loads(run(*config, "status", "--json")[1])["drift"] == [words]
        found = json.loads(run(*config, "doctor", "--json")[1])["findings"]
        assert [one["severity"] for one in found if words in one["text"]] == ["warning"]
        family_server.run("DROP USER publisher@localhost")


_KILLED_BEFORE_CREATE = """
import os, signal, sys
import sqlalchemy as sa
from eventlog import cli

left = int(sys.argv[1])

@sa.event.listens_for(sa.Engine, "before_cursor_execute")
def count(_connection, _cursor, statement, *_):
    global left
    left -= statement.lstrip().startswith("CREATE TRIGGER")
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)

sys.exit(cli.run(sys.argv[2:]))
"""
"""``eventlog``, killed before it makes a trigger, after as many others as the first argument
specifies.
"""


@pytest.mark.night
def test_what_is_written_after_a_kill_between_drop_and_create_is_named_by_the_next_apply(
    started_server: Callable[[str], mysql_servers.Server], empty_home: Path, run: Run
) -> None:
    """MySQL alone drops a trigger before it makes it again."""
    with started_server("mysql").database() as url:
        owner = sa.create_engine(url, poolclass=sa.NullPool)
        execute(owner, "CREATE TABLE usr (id integer PRIMARY KEY, name varchar(9), num integer)")
        configs = []
        for name, options in {"all": {}, "two": {"exclude": ["num"]}}.items():
            (place := empty_home / name).mkdir()
            watches = ({"table": "usr", **options},)
            settings = {"publisher": {"allow_loopback": True}}
            configs.append(str(write_config(place, url_of(owner), watches, **settings)))
        assert run("--config", configs[0], "db", "upgrade")[0] == 0
        assert run("--config", configs[0], "triggers", "apply")[0] == 0
        kills = 0
        while True:
            execute(
                owner,
                "DELETE FROM usr",
                "INSERT INTO usr VALUES (1, 'changed', 1), (2, 'gone', 2)",
            )
            assert run("--config", configs[0], "publish", "--once")[0] == 0
            command = [sys.executable, "-c", _KILLED_BEFORE_CREATE, str(kills)]
            code = subprocess.run(
                [*command, "--config", configs[1], "triggers", "apply"], check=False
            ).returncode
            if code == 0:
                break
            assert code == -signal.SIGKILL
            kills += 1
            ((before,),) = fetch(owner, "SELECT MAX(record_id) FROM eventlog")
            execute(
                owner,
                "UPDATE usr SET name = 'new' WHERE id = 1",
                "DELETE FROM usr WHERE id = 2",
                "INSERT INTO usr VALUES (3, 'come', 3)",
            )
            code, told, _ = run("--config", configs[0], "triggers", "apply", "--json")
            assert code == 0
            for due in json.loads(told)["due"]:
                said = run("--config", configs[0], *shlex.split(due["command"])[1:])
                assert said[0] == 0, (due, said)
            asked = f"SELECT table_key FROM eventlog WHERE record_id > {before}"
            logged = {key for (key,) in fetch(owner, asked)}
            assert logged == {"id=1", "id=2", "id=3"}, f"killed before trigger {kills}"
        assert kills > 2
