"""What is captured by nobody is told by everybody: the start of a publisher, status, doctor, the
metric (spec/triggers.md 9.1).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import mysql_servers
import pytest
import sqlalchemy as sa
from publishers import write_config
from shared import Run, execute, url_of

MAIL = "public.usr: column mail (text) is new to the watch, and not captured yet"


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
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON eventlog_inflight TO {role}",
        f"GRANT SELECT, INSERT, UPDATE ON eventlog_epoch TO {role}",
        f"GRANT SELECT ON eventlog_captured, eventlog_consumer, usr TO {role}",
        f"GRANT USAGE ON SEQUENCE eventlog_flight TO {role}",
    )
    yield write_config(
        empty_home,
        database.url.set(username=role).render_as_string(hide_password=False),
        ({"tables": ["*"]},),
    )
    execute(database, f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_a_column_that_came_while_no_publisher_ran_is_told_to_the_publishers_role(
    config_of_publisher: Path, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    config = ("--config", str(config_of_publisher))
    assert run(*config, "publish", "--once")[0] == 0
    assert "`eventlog triggers apply`" in warned(caplog, MAIL)
    assert json.loads(run(*config, "status", "--json")[1])["drift"] == [MAIL]
    found = json.loads(run(*config, "doctor", "--json")[1])["findings"]
    assert [one["severity"] for one in found if "column mail (text)" in one["text"]] == ["warning"]


def test_plan_works_for_a_role_that_may_read_and_apply_says_what_it_lacks(
    config_of_publisher: Path, run: Run
) -> None:
    config = ("--config", str(config_of_publisher))
    code, told, _ = run(*config, "triggers", "plan")
    assert code == 0
    assert f"~ {MAIL}" in told
    assert "warning: this role cannot apply it: role publisher_" in told
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
        words = "usr: column mail (varchar(9)) is new to the watch, and not captured yet"
        assert run(*config, "publish", "--once")[0] == 0
        assert "`eventlog triggers apply`" in warned(caplog, words)
        assert json.loads(run(*config, "status", "--json")[1])["drift"] == [words]
        found = json.loads(run(*config, "doctor", "--json")[1])["findings"]
        assert [one["severity"] for one in found if words in one["text"]] == ["warning"]
        family_server.run("DROP USER publisher@localhost")
