"""MySQL is refused by its name until this passes: the log, its triggers and the publisher on a real
MySQL, by Docker.

It is expected to fail (MySQL has no sequences and no CREATE OR REPLACE TRIGGER), and fails if it
does not: then the refusal in ``eventlog.sql.connection`` and in ``session.refuse_server`` can go,
and ``platforms`` gets a name more.
"""

from __future__ import annotations

import shutil
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from platforms import Platform
from shared import Run
from sqlalchemy.dialects.mysql.base import MySQLDialect

from eventlog.sql.connection import load_dialect
from eventlog.sql.dialects.mariadb import session

IMAGE = "mysql:8.4"


@pytest.fixture
def mysql() -> Iterator[sa.URL]:
    """The URL of an empty database of a MySQL."""
    docker = shutil.which("docker")
    if (
        docker is None
        or subprocess.run([docker, "info"], capture_output=True, timeout=30).returncode
    ):
        pytest.skip("no MySQL: it is run by Docker, and Docker does not answer here")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library's own
        from testcontainers.mysql import MySqlContainer

        container = MySqlContainer(IMAGE, username="app", password="app", dbname="app")
        container.with_command("--log-bin-trust-function-creators=1")
        try:
            container.start()
        except Exception as error:
            pytest.skip(f"no MySQL: Docker does not run {IMAGE}: {error}")
    try:
        yield sa.make_url(container.get_connection_url()).set(drivername="mariadb+pymysql")
    finally:
        container.stop()


@pytest.mark.timeout(600)
@pytest.mark.xfail(strict=True, reason="MySQL has no sequences and no CREATE OR REPLACE TRIGGER")
def test_mysql_does_what_mariadb_does(
    mysql: sa.URL, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "refuse_server", lambda _version: None)
    # SQLAlchemy refuses a URL of MariaDB on a MySQL, so that no statement of the test would be run.
    monkeypatch.setattr(MySQLDialect, "_set_mariadb", lambda *_: None)
    platform = Platform(
        load_dialect("mariadb"), sa.create_engine(mysql, poolclass=sa.NullPool), tmp_path
    )
    platform.settings = {"publisher": {"allow_loopback": True}}
    platform.install()
    platform.run(
        "CREATE TABLE usr (id int PRIMARY KEY, name varchar(20))",
        "CREATE TABLE usr_phone (id int, no varchar(20), UNIQUE (id, no),"
        " FOREIGN KEY (id) REFERENCES usr (id) ON DELETE CASCADE)",
    )
    platform.watch("usr")
    rows = platform.logged(
        "INSERT INTO usr VALUES (1, 'a')",
        "INSERT INTO usr_phone VALUES (1, '555')",
        "UPDATE usr SET name = 'b'",
    )
    assert rows == [
        (1, "id=1", "name", None, "a"),
        (2, "id=1", "usr_phone.no", None, "555"),
        (2, "id=1", "name", "a", "b"),
    ]
    assert platform.logged("DELETE FROM usr") == [(4, "id=1", None, None, None)]
    file = str(tmp_path / "eventlog.toml")
    code, out, error = run("-c", file, "--set", "sink.type=stdout", "publish", "--once")
    assert code == 0, error
    assert out.count("event-id") == 2
