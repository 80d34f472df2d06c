"""Operators and functions of another role do not run with the rights of a session of eventlog
(spec/event-log.md 12.5).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import sqlalchemy as sa
from hostile_names import calls_of, create_hostile
from shared import Run, execute, fetch, url_of

from eventlog import cli
from eventlog.sql.connect.connection import connect
from eventlog.sql.connect.locate import locate_log
from eventlog.sql.dialects.postgresql import search_path
from eventlog.sql.dialects.postgresql.session import PostgresSessions
from eventlog.sql.port.driver_errors import load_dialect
from eventlog.sql.port.log_parts import LogPart

pytestmark = pytest.mark.xdist_group("search_path")

TABLES: Final = """
    CREATE SCHEMA hr;
    CREATE TYPE hr.place AS ENUM ('north', 'south');
    CREATE TABLE hr.usr (idu bigint PRIMARY KEY, login text, salary numeric, born date);
    CREATE TABLE hr.usr_phone (fk_idu bigint NOT NULL REFERENCES hr.usr ON DELETE CASCADE,
                               phone varchar(20) NOT NULL, UNIQUE (fk_idu, phone));
    CREATE TABLE hr.badge (place varchar(10), code char(4), made timestamptz, bits bytea,
                           PRIMARY KEY (place, code));
    CREATE TABLE hr.door (place hr.place PRIMARY KEY, is_open boolean);
    CREATE TABLE hr.door_key (place hr.place NOT NULL REFERENCES hr.door, key text,
                              UNIQUE (place, key));
    CREATE TABLE hr.copy AS SELECT * FROM hr.usr;
"""
FIRST_WRITES: Final = """
    INSERT INTO hr.usr SELECT n, 'u' || n, n * 100, '2026-01-01' FROM generate_series(1, 5) AS n;
    INSERT INTO hr.usr_phone SELECT n, '555-' || n FROM generate_series(1, 5) AS n;
    INSERT INTO hr.badge VALUES ('north', 'a1', now(), 'x'), ('south', 'b2', now(), 'y');
    INSERT INTO hr.door VALUES ('north', true), ('south', false);
    INSERT INTO hr.door_key VALUES ('north', 'k');
    UPDATE hr.usr SET salary = 7 WHERE idu = 2;
    DELETE FROM hr.usr WHERE idu = 3;
"""
CONFIG: Final = """
[database]
schema_name = "hr"
[publisher]
allow_loopback = true
[[watch]]
table = "usr"
row_style = "row_query_back"
[[watch]]
table = "badge"
[[watch]]
table = "door"
row_style = "row_query_back"
"""
CONSUMER: Final = """
[source]
consumer = "part"
start_from = "snapshot"
[[filter]]
table = "usr"
where = "{where}"
"""
NOT_OURS: Final = "idu OPERATOR(pg_catalog.>) 1"
COMMANDS: Final = (
    "db upgrade",
    "triggers plan",
    "triggers apply",
    "doctor",
    "grants publisher",
    "write",
    "read a part",
    "publish --once",
    "status",
    "errors",
    "explain 1",
    "explain --key usr.idu=2",
    "resync usr",
    "--config consumer.toml filter accept",
    "write",
    "--config consumer.toml publish --once",
    "--config consumer.toml explain 1",
    "consumers list",
    "pause --reason maintenance",
    "resume",
    "catalog",
    "publish --once",
    "verify usr --options map.toml --wait 0 --target {target}",
    "verify door --options map.toml --wait 0 --target {target} --repair",
    "requeue --status S",
    "db partition --leaf-size 5",
    "publish --once",
    "--config consumer.toml publish --once",
    "purge --older-than 0s",
    "doctor",
    "db unpartition",
    "db start-epoch",
    "consumers drop part --yes",
    "triggers drop --yes",
    "db downgrade base --yes --force",
)


def _read_part(engine: sa.Engine) -> None:
    """Read rows as a task of Spark reads them."""
    dialect, url = load_dialect("postgresql"), url_of(engine)
    with connect(url).connect() as conn:
        log = locate_log(dialect.open(conn), name="eventlog", schema="hr")
    batches = dialect.read_part(engine.url, log, None, "N", LogPart(1, 2**62, 9), ("record_id",))
    assert sum(batch.num_rows for batch in batches) > 9


Commands = Callable[[sa.Engine], Iterator[tuple[str, int]]]


def _commands(
    directory: Path, patch: pytest.MonkeyPatch, engine: sa.Engine
) -> Iterator[tuple[str, int]]:
    """Run all commands in a database, and yield each with its exit code."""
    patch.chdir(directory)
    patch.setenv("EVENTLOG_DATABASE_URL", url_of(engine))
    Path("eventlog.toml").write_text(CONFIG)
    Path("consumer.toml").write_text(CONFIG + CONSUMER.format(where=NOT_OURS))
    Path("map.toml").write_text(
        '[tables.usr]\ntable = "hr.copy"\n[tables.door]\ntable = "hr.door"\n'
    )
    writes = 0
    for command in COMMANDS:
        if command == "write":
            writes += 1
            execute(engine, FIRST_WRITES if writes == 1 else "UPDATE hr.usr SET salary = 8")
        elif command == "read a part":
            _read_part(engine)
        else:
            words = [word.format(target=url_of(engine)) for word in command.split()]
            yield command, cli.run(words)


@pytest.fixture
def commands(empty_home: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    return partial(_commands, empty_home, monkeypatch)


@pytest.fixture(scope="session")
def hostile(
    new_database: Any, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[sa.Engine], None]:
    """A function that lets another role create objects for each call in the statements of all
    commands. The statements are read as they run with a safe search path.
    """
    trees: set[str] = set()

    def listening(driver: Any) -> None:
        def hear(notice: Any) -> None:
            if notice.message_primary == "parse tree:":
                trees.add(notice.message_detail)

        driver.add_notice_handler(hear)
        for setting in ("debug_print_parse = on", "debug_pretty_print = off"):
            driver.execute(f"SET {setting}")
        driver.execute("SET client_min_messages = log")
        search_path.guard_names(driver)

    with pytest.MonkeyPatch.context() as patch, new_database() as engine:
        patch.setattr(PostgresSessions, "guard_names", staticmethod(listening))
        execute(engine, "REVOKE CREATE ON SCHEMA public FROM PUBLIC", TABLES)
        codes = dict(_commands(tmp_path_factory.mktemp("recorded"), patch, engine))
        assert set(codes.values()) <= {0, 4}, codes
        with engine.connect() as conn:
            calls = calls_of(trees, conn)

    def create(engine: sa.Engine) -> None:
        execute(
            engine,
            TABLES,
            "GRANT CREATE ON SCHEMA public TO PUBLIC",
            f"ALTER DATABASE {engine.url.database} SET track_functions = 'all'",
        )
        with engine.begin() as conn:
            made = create_hostile(conn, calls)
        assert min(made.values()) > 50, made
        engine.dispose()

    return create


def _calls(engine: sa.Engine) -> list[tuple[str, int]]:
    """Return how often the objects were called, when all sessions of the commands have ended."""
    others = """SELECT FROM pg_catalog.pg_stat_activity
        WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database()::name
          AND pid OPERATOR(pg_catalog.<>) pg_catalog.pg_backend_pid()"""
    while fetch(engine, others):
        time.sleep(0.01)
    return fetch(
        engine,
        "SELECT funcid::pg_catalog.regprocedure::pg_catalog.text, calls "
        "FROM pg_catalog.pg_stat_user_functions "
        "WHERE schemaname OPERATOR(pg_catalog.=) 'public' ORDER BY funcid",
    )


def test_no_command_calls_objects_of_another_role(
    new_database: Any,
    hostile: Callable[[sa.Engine], None],
    commands: Commands,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with new_database() as engine:
        hostile(engine)
        # With this path the objects also hide those of the server that have the same types. The
        # sessions of the application, in which `write` runs, have another path.
        name = engine.url.database
        execute(engine, f"ALTER DATABASE {name} SET search_path = public, pg_catalog")
        application = sa.create_engine(
            engine.url, poolclass=sa.NullPool, connect_args={"options": "-csearch_path=pg_catalog"}
        )
        engine.dispose()
        codes = dict(commands(application))
        assert set(codes.values()) <= {0, 4}, codes
        assert _calls(application) == []
    # Each statement has a form that is recognized.
    assert "without the schemas" not in caplog.text


def test_the_objects_would_be_called_without_the_schemas_of_names(
    new_database: Any,
    hostile: Callable[[sa.Engine], None],
    commands: Commands,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PostgresSessions, "guard_names", staticmethod(lambda _: None))
    calls, silent = 0, []
    with new_database() as engine:
        hostile(engine)
        for command, _ in commands(engine):
            before, calls = calls, sum(number for _, number in _calls(engine))
            if calls == before:
                silent.append(command)
    assert silent == []


def test_sql_of_a_user_finds_what_is_on_an_unsafe_path_and_the_path_is_reported(
    database: sa.Engine, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENTLOG_DATABASE_URL", url_of(database))
    execute(
        database,
        TABLES,
        "GRANT CREATE ON SCHEMA public TO PUBLIC",
        "CREATE FUNCTION public.is_mine(idu bigint) RETURNS boolean LANGUAGE sql AS 'SELECT $1 > 3'",
        "CREATE TABLE public.polled ()",
    )
    Path("eventlog.toml").write_text(CONFIG)
    Path("consumer.toml").write_text(
        CONFIG.replace(
            "[publisher]",
            '[publisher]\npost_poll_statements = ["INSERT INTO polled DEFAULT VALUES"]',
        )
        + CONSUMER.format(where="is_mine(idu)")
    )
    fix = 'REVOKE CREATE ON SCHEMA "public" FROM PUBLIC'
    assert run("db", "upgrade")[0] == 0
    assert any(fix in str(one) for one in run("triggers", "plan"))
    run("triggers", "apply")
    execute(database, FIRST_WRITES)
    code, out, _err = run("--config", "consumer.toml", "filter", "accept")
    assert (code, fix in out) == (0, True)
    code, out, _ = run("--config", "consumer.toml", "publish", "--once")
    assert (code, "u5" in out, "u2" in out) == (0, True, False)
    assert fetch(database, "SELECT count(*) > 0 FROM polled") == [(True,)]
    code, out, _ = run("resync", "usr", "--where", "is_mine(idu)")
    assert (code, "2 rows" in out) == (0, True), out
    code, out, _ = run("doctor")
    assert fix in out
    assert "[search_path]" in out
