"""A real PostgreSQL for the tests, and an empty database of it for each test that asks.

``postgres_url``  the server: EVENTLOG_TEST_POSTGRES_URL, else Docker through testcontainers, else the embedded one.
``database``      an engine on a new, empty database, dropped after the test.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from eventlog.sql import embedded

_numbers = itertools.count(1)


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
    # Not pytest's own temporary directory: its path is too long for a socket, and closed to the server's user.
    directory = Path(tempfile.mkdtemp(prefix="el-", dir="/tmp"))
    try:
        with embedded.running(directory / "pg") as url:
            yield url
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _server() -> Iterator[str]:
    given = os.environ.get("EVENTLOG_TEST_POSTGRES_URL")
    if given:
        yield sa.make_url(given).set(drivername="postgresql+psycopg").render_as_string(hide_password=False)
        return
    with _container() if _docker_answers() else _embedded() as url:
        # Nothing here outlives the machine: no test needs its data on the disk.
        with _admin(url) as conn:
            for setting in ("fsync", "full_page_writes", "synchronous_commit"):
                conn.execute(sa.text(f"ALTER SYSTEM SET {setting} = off"))
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
    """URL of a PostgreSQL where tests may make databases and roles (``postgresql+psycopg://...``)."""
    yield from _server()


@pytest.fixture(scope="session")
def _postgres_admin(postgres_url: str) -> Iterator[sa.Connection]:
    with _admin(postgres_url) as conn:
        yield conn


@pytest.fixture
def database(postgres_url: str, _postgres_admin: sa.Connection) -> Iterator[sa.Engine]:
    """An engine on a new and empty database."""
    name = f"eventlog_test_{os.getpid()}_{next(_numbers)}"
    _postgres_admin.execute(sa.text(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'"))
    engine = sa.create_engine(sa.make_url(postgres_url).set(database=name))
    try:
        yield engine
    finally:
        engine.dispose()
        _postgres_admin.execute(sa.text(f"DROP DATABASE {name} WITH (FORCE)"))
