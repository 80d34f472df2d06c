"""A real PostgreSQL for the tests, and an empty database of it for each test that asks.

``postgres_url``     the server: EVENTLOG_TEST_POSTGRES_URL, else Docker through testcontainers,
                     else the embedded one.
``database``         an engine on a new, empty database, dropped after the test.
``uncommitted``      a connection to an empty database, where a test commits nothing: a tenth of
                     the cost.
``filled_database``  the same with a content that many tests begin with; it is made once.
``brokers``          brokers of Kafka.
``site``             the documentation, built as a site, once for all whose group is "site"; that of
                     EVENTLOG_TEST_SITE if `make test` has just built it.

And a place for the command line: ``empty_home``, its own directory without settings; ``run``, a
command there.
"""

from __future__ import annotations

import gc
import itertools
import os
import shlex
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import hypothesis
import mysql_servers
import promises
import pytest
import sqlalchemy as sa
from compiled_statements import compile_once
from shared import Run, examples, memory, temporary_servers

from eventlog import cli
from eventlog.sql import embedded

if TYPE_CHECKING:
    from kafka_cluster import Cluster

# How long an example takes shows how busy the machine is, not whether the code is right.
hypothesis.settings.register_profile(
    "eventlog",
    max_examples=examples(100),
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("eventlog")

_numbers = itertools.count(1)
_uses = itertools.count(1)


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C reach the commands that tests start: a shell that starts the tests in the background
    has it ignored, and every process of theirs would inherit that.

    Temporary directories are memory: a file of SQLite waits for the disk at each commit. Those of the
    night may be too large for it.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    compile_once()
    place = memory()
    if place is not None and "not night" in config.option.markexpr:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(place))


@pytest.hookimpl(tryfirst=True)  # before that of xdist, which is the last that is called
def pytest_collection() -> None:
    """Twenty thousand tests and their modules are not garbage: to look for some among them takes a
    twentieth of the time of all tests. What enables the collector meanwhile, as the import of a
    command does, changes nothing.
    """
    gc.set_threshold(0)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the properties: the night tries more examples of each. Keep which promises are
    shown by day.
    """
    for item in items:
        if hypothesis.is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker("property")
    promises.gather(config, items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to a failure the command that repeats it."""
    report = yield
    if report.failed:
        report.sections.append(("repeat it", f".venv/bin/pytest {shlex.quote(item.nodeid)}"))
    return report


_CHEAP: Final = ("tests/conformance/", "tests/unit/", "tests/dialects/oracle/")
"""Where the cases of a test cost less than to hand them to workers one by one."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand all cases of a cheap test to one worker at once: for each test, xdist looks through all
    that it has handed to the worker.
    """
    from xdist.scheduler import LoadGroupScheduling

    class CasesTogether(LoadGroupScheduling):
        def _split_scope(self, nodeid: str) -> str:
            scope = super()._split_scope(nodeid)
            is_cheap = scope == nodeid and scope.startswith(_CHEAP)
            return scope.partition("[")[0] if is_cheap else scope

    return CasesTogether(config, log) if config.getvalue("dist") == "loadgroup" else None


def pytest_collection_finish() -> None:
    """Look for garbage among what the tests make, and often enough that few descriptors wait for it.
    A command that a test runs in this process leaves the collector as it is.
    """
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)
    patch = pytest.MonkeyPatch()
    for name in ("freeze", "set_threshold"):
        patch.setattr(gc, name, lambda *_: None)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the documentation's site, built with all warnings as errors."""
    root = Path(__file__).parents[1]
    if given := os.environ.get("EVENTLOG_TEST_SITE"):
        return root / given
    directory = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(directory)]
    built = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return directory


def _docker_answers() -> bool:
    try:
        return subprocess.run(["docker", "info"], capture_output=True, timeout=10).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


@contextmanager
def _container() -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from testcontainers.postgres import PostgresContainer

        container = PostgresContainer("postgres:17-alpine", driver="psycopg")
        container.start()
    try:
        yield container.get_connection_url()
    finally:
        container.stop()


@contextmanager
def _embedded() -> Iterator[str]:
    # Not pytest's own temporary directory: its path is too long for a socket, and closed to the
    # server's user.
    with (
        temporary_servers("el-", memory()) as directory,
        embedded.running(directory / "pg") as url,
    ):
        yield url


def _server() -> Iterator[str]:
    given = os.environ.get("EVENTLOG_TEST_POSTGRES_URL")
    if given:
        yield (
            sa.make_url(given)
            .set(drivername="postgresql+psycopg")
            .render_as_string(hide_password=False)
        )
        return
    with _container() if _docker_answers() else _embedded() as url:
        # Nothing here outlives the machine, so that no test needs its data on the disk; and a worker
        # that looks through each of the many databases once a minute finds nothing to do.
        with _admin(url) as conn:
            for setting in ("fsync", "full_page_writes", "synchronous_commit"):
                conn.execute(sa.text(f"ALTER SYSTEM SET {setting} = off"))
            conn.execute(sa.text("ALTER SYSTEM SET autovacuum_naptime = '1h'"))
            conn.execute(sa.text("SELECT pg_reload_conf()"))
        yield url


@contextmanager
def _admin(url: str) -> Iterator[sa.Connection]:
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    try:
        with engine.connect() as conn:
            yield conn
    finally:
        engine.dispose()


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """URL of a PostgreSQL where tests may make databases and roles
    (``postgresql+psycopg://...``).
    """
    yield from _server()


@pytest.fixture(scope="session")
def _postgres_admin(postgres_url: str) -> Iterator[sa.Connection]:
    with _admin(postgres_url) as conn:
        yield conn


NewDatabase = Callable[..., AbstractContextManager[sa.Engine]]
FilledDatabase = Callable[[Callable[[sa.Engine], None]], AbstractContextManager[sa.Engine]]
UncommittedIn = Callable[[Callable[[sa.Engine], None]], AbstractContextManager[sa.Connection]]


def _wait_for_last_session(admin: sa.Connection, database: str) -> None:
    """Give the sessions of a database, which their clients have closed, a moment to end: DROP
    DATABASE waits a tenth of a second for a session that has not ended yet.
    """
    asked = sa.text("SELECT count(*) FROM pg_stat_activity WHERE datname = :name")
    for _ in range(50):
        if admin.execute(asked, {"name": database}).scalar_one() == 0:
            return
        time.sleep(0.002)


@pytest.fixture(scope="session")
def new_database(postgres_url: str, _postgres_admin: sa.Connection) -> Iterator[NewDatabase]:
    """``with new_database() as engine``: a new and empty database, or a copy of the database named
    ``template``, or an empty one of another ``encoding``.
    """
    # Files are copied, not written through the log page by page: a fifth of the time. Older servers
    # know no other way.
    strategy = "STRATEGY FILE_COPY" if _postgres_admin.dialect.server_version_info >= (15,) else ""

    @contextmanager
    def made(template: str = "", encoding: str = "") -> Iterator[sa.Engine]:
        name = f"eventlog_test_{os.getpid()}_{next(_numbers)}"
        template, in_encoding = template or empty, "ENCODING 'UTF8'"
        if encoding:
            # Only an empty database can have another encoding, and only C fits each of them.
            template = "template0"
            in_encoding = f"ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'"
        _postgres_admin.execute(
            sa.text(f"CREATE DATABASE {name} TEMPLATE {template} {in_encoding} {strategy}")
        )
        # Without it, the client would have the encoding of the database.
        options = {"client_encoding": "UTF8"}
        url = sa.make_url(postgres_url).set(database=name)
        engine = sa.create_engine(url, connect_args=options)
        try:
            yield engine
        finally:
            engine.dispose()
            _wait_for_last_session(_postgres_admin, name)
            _postgres_admin.execute(sa.text(f"DROP DATABASE {name} WITH (FORCE)"))

    # The first session of a database writes the file that later ones read the catalogue from. A
    # copy has it, and so takes a third of the time. Before PostgreSQL 15 the schema public is open to
    # every role, which doctor reports.
    with made("template0") as engine:
        with engine.begin() as conn:
            conn.execute(sa.text("REVOKE CREATE ON SCHEMA public FROM PUBLIC"))
        engine.dispose()  # a database that somebody is connected to cannot be copied
        empty = str(engine.url.database)
        yield made


@pytest.fixture(scope="session")
def filled_database(new_database: NewDatabase) -> Iterator[FilledDatabase]:
    """``with filled_database(fill) as engine``: a new database as the function ``fill`` leaves an
    empty one.

    It runs once in a worker, and each test has a copy.
    """
    templates: dict[Callable[[sa.Engine], None], str] = {}
    with ExitStack() as kept:

        def made(fill: Callable[[sa.Engine], None]) -> AbstractContextManager[sa.Engine]:
            if fill not in templates:
                engine = kept.enter_context(new_database())
                fill(engine)
                engine.dispose()  # a database that somebody is connected to cannot be copied
                templates[fill] = str(engine.url.database)
            return new_database(templates[fill])

        yield made


@pytest.fixture
def database(new_database: NewDatabase) -> Iterator[sa.Engine]:
    """An engine on a new and empty database."""
    with new_database() as engine:
        yield engine


@pytest.fixture(scope="session")
def never_committed(new_database: NewDatabase) -> Iterator[sa.Engine]:
    """An engine on the empty database of ``uncommitted``."""
    with new_database() as engine:
        yield engine


@contextmanager
def _rolled_back(engine: sa.Engine) -> Iterator[sa.Connection]:
    with engine.connect() as conn:
        yield conn
        if next(_uses) % 5 == 0:
            # A session keeps plans of what was rolled back. Each DDL walks over all of them, and
            # without an end of the session such tests take twice their time.
            conn.invalidate()


@pytest.fixture
def uncommitted(never_committed: sa.Engine) -> Iterator[sa.Connection]:
    """A connection to an empty database, rolled back after the test: what it makes, no other
    connection sees.
    """
    with _rolled_back(never_committed) as conn:
        yield conn


@pytest.fixture(scope="session")
def uncommitted_in(new_database: NewDatabase) -> Iterator[UncommittedIn]:
    """``with uncommitted_in(fill) as conn``: ``uncommitted`` in a database that ``fill`` has
    filled, once in a worker.
    """
    with ExitStack() as kept:

        @cache
        def filled(fill: Callable[[sa.Engine], None]) -> sa.Engine:
            engine = kept.enter_context(new_database())
            fill(engine)
            return engine

        yield lambda fill: _rolled_back(filled(fill))


@pytest.fixture
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory to work in, and no settings from the environment."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("EVENTLOG_"):
            monkeypatch.delenv(name)
    return tmp_path


@pytest.fixture
def run(empty_home: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command line in an empty directory: exit code, standard output, standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = cli.run(arguments)
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture(scope="session")
def started_server() -> Iterator[Callable[[str], mysql_servers.Server]]:
    """A server of MySQL's family by its name, each in its own directory, started once."""
    with ExitStack() as stack:
        yield cache(
            lambda name: stack.enter_context(mysql_servers.server(build=mysql_servers.BUILDS[name]))
        )


@pytest.fixture(scope="session", params=mysql_servers.params())
def family_server(
    request: pytest.FixtureRequest, started_server: Callable[[str], mysql_servers.Server]
) -> mysql_servers.Server:
    """MariaDB and, at night, further servers of MySQL's family."""
    return started_server(request.param)


@pytest.fixture
def brokers() -> Iterator[Cluster]:
    """Brokers of Kafka for one test."""
    pytest.importorskip("confluent_kafka", reason="the extra kafka is not installed")
    from kafka_cluster import cluster, quiet_clients

    quiet_clients()
    with cluster() as made:
        yield made
