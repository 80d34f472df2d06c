"""Databases with a log and tables to watch.

``platform``, ``usr_platform``: of every dialect, for the compliance suite; ``empty``, ``usr``:
PostgreSQL, in one transaction that is never committed, for what PostgreSQL alone does;
``committed_usr``: the same for two connections.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import mysql_servers
import oracle_server
import pytest
import sqlalchemy as sa
from platforms import Platform
from shared import copied_log
from trigger_log import LOG_DDL, USR_DDL, Watched, run

from eventlog.sql import migrations
from eventlog.sql.connection import SUPPORTED, load_dialect


@pytest.fixture
def empty(uncommitted: sa.Connection) -> Watched:
    run(uncommitted, *LOG_DDL)
    return Watched(uncommitted)


@pytest.fixture
def usr(empty: Watched) -> Watched:
    run(empty.conn, *USR_DDL)
    return empty


@pytest.fixture
def committed_usr(database: sa.Engine) -> Iterator[Watched]:
    """``usr`` in its own database, for what takes two connections."""
    with database.connect() as conn:
        run(conn, *LOG_DDL, *USR_DDL)
        conn.commit()
        yield Watched(conn)


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What runs on Oracle is one group: its user is the tests' alone, and one process's (``--dist
    loadgroup``).
    """
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if parameters.get("platform") == "oracle" or "oracle_server_" in getattr(
            item, "fixturenames", ()
        ):
            item.add_marker(pytest.mark.xdist_group("oracle"))
            # The first one waits for the server, and each statement of DDL takes its time there.
            item.add_marker(pytest.mark.timeout(oracle_server.START + 600))


@pytest.fixture(scope="session")
def oracle_server_(request: pytest.FixtureRequest) -> Iterator[oracle_server.Server]:
    """An Oracle by its variable, else by Docker."""
    if "PYTEST_XDIST_WORKER" in os.environ and not request.config.getoption(
        "loadgroup", default=False
    ):
        end = pytest.fail if oracle_server.URL_VARIABLE in os.environ else oracle_server.give_up
        end("the tests of one Oracle user run in one process: add --dist loadgroup to -n")
    try:
        with oracle_server.server() as found:
            yield found
    except oracle_server.NoServerError as error:
        oracle_server.give_up(f"no Oracle server: {error}")


@contextmanager
def _oracle(url: sa.URL) -> Iterator[sa.Engine]:
    made = sa.create_engine(url, poolclass=sa.NullPool)
    _clear(made)
    yield made
    _clear(made)


def _clear(engine: sa.Engine) -> None:
    """Away with all that the user has: it is the tests' alone."""
    kinds = ("VIEW", "TABLE", "SEQUENCE", "FUNCTION", "PROCEDURE")
    with engine.begin() as conn:
        conn.exec_driver_sql("PURGE RECYCLEBIN")
        found = conn.exec_driver_sql(
            "SELECT object_type, object_name FROM user_objects ORDER BY object_id DESC"
        ).all()
        for kind, name in found:
            if kind in kinds and not name.startswith(("ISEQ$$", "BIN$")):
                end = " CASCADE CONSTRAINTS PURGE" if kind == "TABLE" else ""
                conn.exec_driver_sql(
                    f'DROP {kind} "{name}"{end}', execution_options={"no_parameters": True}
                )


@contextmanager
def _oracle_platform(server: oracle_server.Server, place: Path) -> Iterator[Platform]:
    with _oracle(server.url) as engine:
        made = Platform(load_dialect("oracle"), engine, place)
        made.install()
        yield made


@pytest.fixture
def oracle(oracle_server_: oracle_server.Server, tmp_path: Path) -> Iterator[Platform]:
    """``platform`` of Oracle alone, for what only Oracle has."""
    with _oracle_platform(oracle_server_, tmp_path) as made:
        yield made


def _install(engine: sa.Engine) -> None:
    migrations.upgrade(engine, log_table="eventlog")


def _sqlite(file: Path) -> sa.Engine:
    engine = sa.create_engine(f"sqlite:///{file}", poolclass=sa.NullPool)

    @sa.event.listens_for(engine, "connect")
    def as_an_application_does(connection: object, _record: object) -> None:
        connection.execute("PRAGMA foreign_keys = ON")  # type: ignore[attr-defined]

    return engine


@pytest.fixture(scope="session")
def _sqlite_with_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("sqlite") / "app.db"
    Platform(load_dialect("sqlite"), _sqlite(file), file.parent).install()
    return file


@contextmanager
def _family_platform(server: mysql_servers.Server, place: Path) -> Iterator[Platform]:
    with server.database() as url:
        made = Platform(
            load_dialect(server.build.dialect), sa.create_engine(url, poolclass=sa.NullPool), place
        )
        made.install()
        yield made


@pytest.fixture
def family(family_server: mysql_servers.Server, tmp_path: Path) -> Iterator[Platform]:
    """``platform`` of MySQL's family alone, for what only its servers have."""
    with _family_platform(family_server, tmp_path) as made:
        yield made


_PLATFORMS = [name for name in SUPPORTED if name not in mysql_servers.BUILDS]


@pytest.fixture(params=[*_PLATFORMS, *mysql_servers.params()])
def platform(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Platform]:
    """An application's engine on a database of each dialect, with a log: a copy where databases can
    be copied.
    """
    if request.param in mysql_servers.BUILDS:
        server = request.getfixturevalue("started_server")(request.param)
        with _family_platform(server, tmp_path) as made:
            yield made
        return
    dialect = load_dialect(request.param)
    if request.param == "postgresql":
        with request.getfixturevalue("filled_database")(_install) as engine:
            yield Platform(dialect, engine, tmp_path)
    elif request.param == "sqlite":
        copy = copied_log(request.getfixturevalue("_sqlite_with_log"), tmp_path / "app.db")
        yield Platform(dialect, _sqlite(copy), tmp_path)
    else:
        with _oracle_platform(request.getfixturevalue("oracle_server_"), tmp_path) as made:
            yield made


@pytest.fixture
def usr_platform(platform: Platform) -> Platform:
    """The same with the class of spec/triggers.md 2, its child, and a class of key columns
    alone.
    """
    update = "" if platform.name == "oracle" else " ON UPDATE CASCADE"
    platform.run(
        "CREATE TABLE usr (idu {integer} PRIMARY KEY, fname {text}, lname {string}, photo "
        "{binary})",
        f"CREATE TABLE usr_phone (idu {{integer}} REFERENCES usr{update} ON DELETE CASCADE, "
        "phoneno {string}, UNIQUE (idu, phoneno))",
        "CREATE TABLE keyed (a {integer}, b {string}, PRIMARY KEY (b, a))",
    )
    return platform


@pytest.fixture(params=["row", "statement"])
def captured(usr_platform: Platform, request: pytest.FixtureRequest) -> Platform:
    """The same under each kind of capture; both log the same rows."""
    if request.param == "statement":
        usr_platform.needs("statement_capture")
    usr_platform.trigger_level = request.param
    return usr_platform
