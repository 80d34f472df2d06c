"""``doctor`` on MariaDB and MySQL reports rights on the database of the log (spec/event-log.md 11.1)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import mysql_servers
import pytest
import sqlalchemy as sa
from sqlalchemy import URL

from eventlog import cli
from eventlog.publisher.inspect import doctor as publisher_doctor
from eventlog.sql.port.rights import Purpose

CONFIG = """
[publisher]
loopback_action = "mark"
[[watch]]
table = "usr"
"""
Findings = Callable[..., Sequence[Mapping[str, Any]]]


@pytest.fixture
def shop(
    family_server: mysql_servers.Server, empty_home: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[mysql_servers.Server, URL]]:
    """A server, and the URL of the owner of a log. Other users are worker@localhost."""
    for checks in ("SESSION_CHECKS", "LOG_CHECKS", "ROW_CHECKS"):
        present = getattr(publisher_doctor, checks)
        only = {one: present[one] for one in present if one == "the rights of others on the log"}
        monkeypatch.setattr(publisher_doctor, checks, only)
    Path("eventlog.toml").write_text(CONFIG)
    with family_server.database() as url:
        engine = sa.create_engine(url, poolclass=sa.NullPool)
        with engine.connect() as conn:
            conn.exec_driver_sql("CREATE TABLE usr (idu integer PRIMARY KEY, salary varchar(40))")
        owner = url.render_as_string(hide_password=False)
        for arguments in (("db", "upgrade"), ("triggers", "apply")):
            assert cli.run(["--quiet", "--database-url", owner, *arguments]) == 0
        family_server.run("CREATE USER worker@localhost")
        try:
            yield family_server, url
        finally:
            family_server.run("DROP USER worker@localhost")


@pytest.fixture
def unexpected(
    shop: tuple[mysql_servers.Server, URL], capfd: pytest.CaptureFixture[str]
) -> Findings:
    def asked(url: URL | None = None, *flags: str) -> Sequence[Mapping[str, Any]]:
        server, owner = shop
        capfd.readouterr()
        asking = (url or server.url.set(database=owner.database)).render_as_string(
            hide_password=False
        )
        cli.run(["--database-url", asking, *flags, "doctor", "--json"])
        findings = json.loads(capfd.readouterr().out)["findings"]
        # Other tests leave users with rights on a database of this name.
        return [one for one in findings if one["severity"] == "info" or "worker" in one["text"]]

    return asked


def test_a_right_on_the_whole_database_is_reported(
    shop: tuple[mysql_servers.Server, URL], unexpected: Findings
) -> None:
    server, _ = shop
    assert unexpected() == []
    server.run("GRANT ALL ON app.* TO worker@localhost")
    (found,) = unexpected()
    assert found["severity"] == "warning"
    assert found["text"] == (
        "the role worker@localhost has rights on the log that its work with eventlog does not need: "
        "reads all values, forges events, hides changes, "
        "lets its own code run with the rights of the triggers' owner"
    )
    assert "REVOKE ALL PRIVILEGES ON `app`.* FROM `worker`@`localhost`" in found["fix"][0]
    server.run("REVOKE ALL PRIVILEGES ON `app`.* FROM `worker`@`localhost`")
    server.run("GRANT ALL ON app.usr TO worker@localhost")
    assert unexpected() == []


def test_rights_on_tables_of_the_log_are_reported_and_revoked(
    shop: tuple[mysql_servers.Server, URL], unexpected: Findings
) -> None:
    server, _ = shop
    server.run(
        "GRANT INSERT, SELECT (new_value) ON app.eventlog TO worker@localhost",
        "GRANT DELETE ON app.eventlog_state TO worker@localhost",
    )
    (found,) = unexpected()
    assert found["text"].endswith(
        "does not need: reads all values, forges events, "
        "changes the state of the publisher and the consumers"
    )
    database = server.url.set(database="app")
    with sa.create_engine(database, poolclass=sa.NullPool).connect() as conn:
        for statement in found["fix"]:
            if statement.startswith("REVOKE"):
                conn.exec_driver_sql(statement)
    assert unexpected() == []


def test_the_rights_of_each_purpose_are_expected(
    shop: tuple[mysql_servers.Server, URL], unexpected: Findings, capfd: pytest.CaptureFixture[str]
) -> None:
    server, url = shop
    owner = url.render_as_string(hide_password=False)
    server.run("CREATE USER worker")
    for purpose in Purpose:
        capfd.readouterr()
        assert (
            cli.run(["--database-url", owner, "grants", "worker", "--purpose", purpose.value]) == 0
        )
        statements = [one.rstrip(";") for one in capfd.readouterr().out.splitlines()]
        with sa.create_engine(
            server.url.set(database="app"), poolclass=sa.NullPool
        ).connect() as conn:
            for statement in statements:
                conn.exec_driver_sql(statement)
        assert (purpose, unexpected()) == (purpose, [])
        server.run("DROP USER worker", "CREATE USER worker")
    server.run("DROP USER worker")


def test_a_reader_may_read_the_whole_database(
    shop: tuple[mysql_servers.Server, URL], unexpected: Findings
) -> None:
    server, _ = shop
    server.run("GRANT SELECT ON app.* TO worker@localhost")
    assert len(unexpected()) == 1
    Path("readers.toml").write_text(CONFIG + '[database]\nreaders = ["worker"]\n')
    assert unexpected(None, "--config", "readers.toml") == []


def test_what_a_user_cannot_see_is_not_visible(
    shop: tuple[mysql_servers.Server, URL], unexpected: Findings
) -> None:
    server, url = shop
    server.run("GRANT ALL ON app.* TO worker@localhost")
    (found,) = unexpected(url)
    assert found["severity"] == "info"
    assert found["text"].startswith("the rights of other users on the log are not visible to app, ")
    server.run("GRANT SELECT ON mysql.* TO app@localhost")
    assert [one["severity"] for one in unexpected(url)] == ["warning"]
