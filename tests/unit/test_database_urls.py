"""What a database URL needs to be there: a driver, a file, its own directory."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy import make_url

from eventlog.errors import ConfigError, DatabaseError, DatabaseUnavailable
from eventlog.publisher.stream.position import POSITION_SECRET
from eventlog.sql.connect import connection
from eventlog.sql.connect.connection import connect, connect_any
from eventlog.sql.port.driver_errors import load_dialect

SQLITE = load_dialect("sqlite")


@pytest.mark.parametrize(
    ("place", "part"),
    [
        ("", "names no directory"),
        ("mine", "mine does not contain a PostgreSQL server: use a directory"),
        ("mine/notes.txt", "notes.txt does not contain a PostgreSQL"),
        ("nowhere/pg", "the directory nowhere does not exist"),
    ],
)
def test_nothing_is_made_in_a_directory_that_is_somebody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, part: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match=part):
        connect(f"embedded:///{place}")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["mine", "notes.txt"]


def test_a_missing_driver_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "oracledb", None)
    with pytest.raises(ConfigError, match=r"oracledb.* pip install .*\[oracle\]"):
        connect("oracle://ann@h:1521/?service_name=HR")


@pytest.mark.parametrize("place", ["notes.txt", "nowhere/app.db"])
def test_a_file_of_sqlite_that_cannot_be_made_is_named_with_what_it_may_be(
    tmp_path: Path, place: str
) -> None:
    (tmp_path / "notes.txt").write_text(
        "no database, but a text that is long enough to be looked at" * 10
    )
    with pytest.raises(DatabaseError, match=rf"{place}.* check that it is a SQLite database"):
        SQLITE.prepare(make_url(f"sqlite:///{tmp_path / place}"))


ORACLE = "oracle://ann:hunter2@db.example/?service_name=HR"


def nobody_knows(*_: object, **__: object) -> None:
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


def test_an_unknown_host_is_unavailable_whatever_the_driver_raises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # python-oracledb lets the socket's own error through.
    monkeypatch.setattr(socket, "getaddrinfo", nobody_knows)
    with pytest.raises(DatabaseUnavailable) as refused:
        connect(ORACLE).connect()
    assert (
        "cannot connect to database 'ann' at db.example: [Errno -2] Name or service not known"
        in str(refused.value)
    )
    assert "check host and port" in str(refused.value)


def test_an_unknown_host_is_unavailable_for_the_tables_of_other_formats_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", nobody_knows)
    with pytest.raises(
        DatabaseUnavailable,
        match=r"database at db\.example: .*Name or service not known; check host",
    ) as refused:
        connect_any(ORACLE).connect()
    assert "hunter2" not in str(refused.value)


def test_an_error_of_the_socket_in_the_middle_of_a_statement_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "app.db").touch()
    engine = connect(f"sqlite:///{tmp_path / 'app.db'}")

    @sa.event.listens_for(engine, "do_execute")
    def no_route(*_: object) -> None:
        raise OSError(113, "No route to host")

    with (
        engine.connect() as conn,
        pytest.raises(DatabaseUnavailable, match=r"was lost: .*No route to host"),
    ):
        conn.exec_driver_sql("SELECT 1")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("postgresql", "fe_sendauth: no password supplied"),
        ("postgresql", 'FATAL: password authentication failed for user "a"'),
        ("oracle", "ORA-01017: invalid credential"),
        ("oracle", "DPY-4001: no credentials specified"),
    ],
)
@pytest.mark.parametrize("secret", [connection.SECRET, POSITION_SECRET])
def test_advice_names_the_variable_of_the_connection_that_failed(
    name: str, reason: str, secret: str
) -> None:
    url = make_url(f"{name}://a@h/d")
    text = str(connection.not_connected(load_dialect(name), url, Exception(reason), secret))
    assert secret in text
    assert "{" not in text


def test_a_password_that_is_part_of_a_drivers_words_does_not_hide_the_advice() -> None:
    url = make_url("postgresql://a:pass@h/d")
    refused = Exception('FATAL: password authentication failed for user "a"')
    error = connection.not_connected(load_dialect("postgresql"), url, refused, connection.SECRET)
    assert "***word authentication failed" in str(error)
    assert connection.SECRET in str(error)
