"""Settings that an administrator makes for all sessions: the commands set for their own sessions
what their transactions and answers rest on (spec/event-log.md 12.4).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import mysql_servers
import pytest
import sqlalchemy as sa
from shared import execute, url_of

from eventlog import cli
from eventlog.sql.connect.connection import connect_any

OBJECTS = 3
ROW = "(id integer primary key, name varchar(20))"
CREATED, INSERTED = (
    f"CREATE TABLE usr {ROW}",
    r"INSERT INTO usr VALUES (1, 'a\b'), (2, 'b'), (3, '')",
)
FAMILY_SETTINGS = (
    (
        "completion_type = 'RELEASE'", "sql_select_limit = 1", "sql_big_selects = 0",
        "max_join_size = 1", "sql_quote_show_create = 0",
    ),
    ("completion_type = 'CHAIN'",),
)  # fmt: skip
"""Each setting breaks a session that leaves it as it is."""


@contextmanager
def set_globally(server: mysql_servers.Server, settings: Sequence[str]) -> Iterator[None]:
    """Set settings for all new sessions of a server, as one who is connected already."""
    names = [setting.partition(" = ")[0] for setting in settings]
    engine = sa.create_engine(server.url, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as conn:
        before = conn.exec_driver_sql(
            "SELECT " + ", ".join(f"@@GLOBAL.{one}" for one in names)
        ).one()
        try:
            for setting in settings:
                conn.exec_driver_sql(f"SET GLOBAL {setting}")
            yield
        finally:
            for name, value in zip(names, before, strict=True):
                conn.exec_driver_sql(f"SET GLOBAL {name} = %s", (value,))


@pytest.fixture
def command(
    empty_home: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    def command(*arguments: str) -> str:
        """A command that succeeds, and what it wrote to standard output."""
        capfd.readouterr()
        code = cli.run([*arguments])
        out, error = capfd.readouterr()
        assert code == 0, (arguments, out, error)
        return out

    return command


def answers(command: Callable[..., str], url: str, write: Callable[[], None]) -> None:
    """Run the commands from the creation to the end of a log whose table ``usr`` gets ``OBJECTS`` rows."""
    Path("eventlog.toml").write_text(
        f"[database]\nurl = '{url}'\n[publisher]\nallow_loopback = true\n[[watch]]\ntable = 'usr'\n"
    )
    command("db", "upgrade")
    command("triggers", "apply")
    write()
    assert command("publish", "--once").count("<add ") == OBJECTS
    with closing(sqlite3.connect("copy.db")) as copy:
        copy.executescript(f"{CREATED};{INSERTED}")
    report = json.loads(command("verify", "--target", "sqlite:///copy.db", "--wait", "0", "--json"))
    assert (report["result"], report["classes"][0]["equal"]) == ("equal", OBJECTS), report
    assert json.loads(command("doctor", "--json"))["errors"] == 0
    assert "status S" in command("explain", "--key", "id=1")
    assert f"{OBJECTS} rows of type 5" in command("resync", "usr")
    assert command("publish", "--once").count("<modify ") == OBJECTS
    assert " rows removed" in command("purge", "--older-than", "0s", "--yes")
    command("triggers", "drop", "--yes")
    command("db", "downgrade", "base", "--yes")


@pytest.mark.parametrize("settings", FAMILY_SETTINGS, ids=lambda settings: settings[0])
def test_no_setting_of_a_server_changes_an_answer(
    family_server: mysql_servers.Server, command: Callable[..., str], settings: tuple[str, ...]
) -> None:
    with family_server.database() as url:
        application = sa.create_engine(url, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT")
        with application.connect() as conn:
            conn.exec_driver_sql(CREATED)
            with set_globally(family_server, settings):
                inserted = INSERTED.replace("\\", "\\\\")
                answers(command, url_of(application), lambda: conn.exec_driver_sql(inserted))


def test_no_setting_of_a_database_changes_an_answer(
    database: sa.Engine, command: Callable[..., str]
) -> None:
    execute(database, CREATED)
    execute(database, f'ALTER DATABASE "{database.url.database}" SET quote_all_identifiers = on')
    answers(command, url_of(database), lambda: execute(database, INSERTED))


def test_tables_of_another_format_are_read_whole_whatever_limit_a_server_has(
    family_server: mysql_servers.Server,
) -> None:
    with family_server.database() as url:
        with sa.create_engine(url, poolclass=sa.NullPool).begin() as conn:
            conn.exec_driver_sql(CREATED)
            conn.exec_driver_sql(INSERTED)
        with (
            set_globally(family_server, ("sql_select_limit = 1", "completion_type = 'RELEASE'")),
            connect_any(url.render_as_string(hide_password=False)).connect() as conn,
        ):
            for _ in range(2):
                assert len(conn.exec_driver_sql("SELECT * FROM usr").all()) == OBJECTS
                conn.commit()
