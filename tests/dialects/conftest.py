"""Databases with a log and tables to watch.

``platform``, ``usr_platform``: of every dialect, for the compliance suite; ``kept``: the same for
all tests of a file that change no table; ``empty``, ``usr``:
PostgreSQL, in one transaction that is never committed, for what PostgreSQL alone does;
``committed_usr``: the same for two connections.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from inspect import signature
from pathlib import Path

import mysql_servers
import oracle_server
import pytest
import sqlalchemy as sa
from platforms import Kept, Platform, opened, usr_tables
from shared import copied_log, execute, fetch
from trigger_log import LOG_DDL, USR_DDL, UncommittedIn, Watched, run

from eventlog.sql import migrations
from eventlog.sql.connect.connection import SUPPORTED
from eventlog.sql.port.driver_errors import load_dialect


def _with_log(engine: sa.Engine) -> None:
    execute(engine, *LOG_DDL)


def _with_usr(engine: sa.Engine) -> None:
    execute(engine, *LOG_DDL, *USR_DDL)


@pytest.fixture
def empty(uncommitted_in: UncommittedIn) -> Iterator[Watched]:
    with uncommitted_in(_with_log) as conn:
        yield Watched(conn)


@pytest.fixture
def usr(uncommitted_in: UncommittedIn) -> Iterator[Watched]:
    with uncommitted_in(_with_usr) as conn:
        yield Watched(conn)


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
    loadgroup``). So are the tests of a file that share databases, and the cases of a test that share
    one.
    """
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if "oracle" in (
            parameters.get("platform"),
            parameters.get("kept"),
        ) or "oracle_server_" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("oracle"))
            # The first one waits for the server, and each statement of DDL takes its time there.
            item.add_marker(pytest.mark.timeout(oracle_server.START + 600))
        elif "kept" in parameters:
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
        elif "uncommitted_in" in signature(getattr(item, "function", object)).parameters:
            # A table of each type, made once.
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("[")[0]))


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
    with _oracle(server.url) as engine, opened(load_dialect("oracle"), engine, place) as made:
        made.install()
        yield made


@pytest.fixture
def oracle(oracle_server_: oracle_server.Server, tmp_path: Path) -> Iterator[Platform]:
    """``platform`` of Oracle alone, for what only Oracle has."""
    with _oracle_platform(oracle_server_, tmp_path) as made:
        yield made


def _install(engine: sa.Engine) -> None:
    migrations.upgrade(engine, log_table="eventlog")


def _install_with_usr(engine: sa.Engine) -> None:
    _install(engine)
    execute(engine, *usr_tables("postgresql"))


def _sqlite(file: Path) -> sa.Engine:
    engine = sa.create_engine(f"sqlite:///{file}", poolclass=sa.NullPool)

    @sa.event.listens_for(engine, "connect")
    def as_an_application_does(connection: object, _record: object) -> None:
        connection.execute("PRAGMA foreign_keys = ON")  # type: ignore[attr-defined]

    return engine


@pytest.fixture(scope="session")
def _sqlite_with_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("sqlite") / "app.db"
    with opened(load_dialect("sqlite"), _sqlite(file), file.parent) as made:
        made.install()
    return file


@contextmanager
def _family_platform(
    server: mysql_servers.Server, place: Path, logs: FamilyLogs, name: str = "app"
) -> Iterator[Platform]:
    with (
        server.database(name) as url,
        opened(load_dialect(server.build.dialect), sa.create_engine(url), place) as made,
    ):
        if server not in logs:
            made.install()
            logs[server] = _as_script(made.engine)
        else:
            execute(made.engine, *logs[server])
        yield made


FamilyLogs = dict[mysql_servers.Server, list[str]]
"""What makes a log in an empty database of each server, as the migrations made the first one."""


@pytest.fixture(scope="session")
def _family_logs() -> FamilyLogs:
    return {}


def _as_script(engine: sa.Engine) -> list[str]:
    """All tables of a database of MySQL's family, and their rows: nobody copies a database there."""
    script = []
    for name, kind in fetch(engine, "SHOW FULL TABLES"):
        word = "SEQUENCE" if kind == "SEQUENCE" else "TABLE"
        script.append(fetch(engine, f"SHOW CREATE {word} {name}")[0][1])
        if kind != "SEQUENCE":
            script += [
                f"INSERT INTO {name} VALUES ({', '.join(map(_literal, row))})"
                for row in fetch(engine, f"SELECT * FROM {name}")
            ]
    return script


def _literal(value: object) -> str:
    return "NULL" if value is None else f"'{value}'"


@pytest.fixture
def family(
    family_server: mysql_servers.Server, tmp_path: Path, _family_logs: FamilyLogs
) -> Iterator[Platform]:
    """``platform`` of MySQL's family alone, for what only its servers have."""
    with _family_platform(family_server, tmp_path, _family_logs) as made:
        yield made


_PLATFORMS = [name for name in SUPPORTED if name not in mysql_servers.BUILDS]


@contextmanager
def _platform(
    request: pytest.FixtureRequest, name: str, place: Path, database: str = "app"
) -> Iterator[Platform]:
    """The platform of a name, with a log: a copy where databases can be copied. ``database`` is its
    name in MySQL's family.
    """
    value = request.getfixturevalue
    if name in mysql_servers.BUILDS:
        server, logs = value("started_server")(name), value("_family_logs")
        with _family_platform(server, place, logs, database) as made:
            yield made
    elif name == "postgresql":
        # What usr_platform adds is in its template already.
        fill = _install_with_usr if "usr_platform" in request.fixturenames else _install
        with (
            value("filled_database")(fill) as engine,
            opened(load_dialect(name), engine, place) as made,
        ):
            yield made
    elif name == "sqlite":
        copy = copied_log(value("_sqlite_with_log"), place / "app.db")
        with opened(load_dialect(name), _sqlite(copy), place) as made:
            yield made
    else:
        with _oracle_platform(value("oracle_server_"), place) as made:
            yield made


@pytest.fixture(params=[*_PLATFORMS, *mysql_servers.params()])
def platform(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Platform]:
    """An application's engine on a database of each dialect, with a log."""
    with _platform(request, request.param, tmp_path) as made:
        yield made


class _KeptPlatforms:
    """Platforms by how they were filled, until the end of a file."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack
        self.made: dict[Hashable, tuple[Platform, Sequence[str]]] = {}


@pytest.fixture(scope="module")
def _kept_platforms() -> Iterator[_KeptPlatforms]:
    with ExitStack() as stack:
        yield _KeptPlatforms(stack)


@pytest.fixture(params=[*_PLATFORMS, *mysql_servers.params()])
def kept(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    _kept_platforms: _KeptPlatforms,
) -> Iterator[Kept]:
    """Platforms that the tests of a file share."""
    name, platforms = request.param, _kept_platforms.made
    with ExitStack() as own:

        def filled(fill: Callable[..., Sequence[str]], *arguments: Hashable) -> Platform:
            if name == "oracle":  # which has one user, who is emptied for each test
                made = own.enter_context(_platform(request, name, tmp_path))
                fill(made, *arguments)
                return made
            key = (name, fill, *arguments)
            if key not in platforms:
                place, database = tmp_path_factory.mktemp("kept"), f"app{len(platforms)}"
                made = _kept_platforms.stack.enter_context(
                    _platform(request, name, place, database)
                )
                platforms[key] = made, fill(made, *arguments)
            made, tables = platforms[key]
            made.run(*(f"DELETE FROM {table}" for table in tables))
            made.rows()
            return made

        build = mysql_servers.BUILDS.get(name)
        yield Kept(load_dialect(name if build is None else build.dialect), filled)


@pytest.fixture
def usr_platform(platform: Platform) -> Platform:
    """The same with the class of spec/triggers.md 2, its child, and a class of key columns
    alone.
    """
    if platform.name != "postgresql":
        platform.run(*usr_tables(platform.name))
    return platform


@pytest.fixture(params=["row", "statement"])
def captured(usr_platform: Platform, request: pytest.FixtureRequest) -> Platform:
    """The same under each kind of capture; both log the same rows."""
    if request.param == "statement":
        usr_platform.needs("statement_capture")
    usr_platform.trigger_level = request.param
    return usr_platform
