"""Databases with a log and tables to watch.

``platform``, ``usr_platform``: of every dialect, for the compliance suite; ``empty``, ``usr``: PostgreSQL, in one
transaction that is never committed, for what PostgreSQL alone does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import oracle_server
import pytest
import sqlalchemy as sa
from platforms import Platform
from watched import LOG, LOG_DDL, Watched, run

from eventlog.sql import dialects
from eventlog.sql.dialects.postgresql import triggers

ORACLE_URL = "EVENTLOG_TEST_ORACLE_URL"


@pytest.fixture
def empty(database: sa.Engine) -> Iterator[Watched]:
    with database.connect() as conn:
        run(conn, "CREATE SCHEMA log", LOG_DDL, triggers.render_quote_function(LOG))
        yield Watched(conn)


@pytest.fixture
def usr(empty: Watched) -> Watched:
    run(
        empty.conn,
        "CREATE TABLE usr (idu integer PRIMARY KEY, fname text, lname varchar(40), photo bytea)",
        "CREATE TABLE usr_phone (idu integer REFERENCES usr ON UPDATE CASCADE ON DELETE CASCADE, phoneno text,"
        " UNIQUE (idu, phoneno))",
        "CREATE TABLE keyed (a integer, b text, PRIMARY KEY (b, a))",
    )
    return empty


@pytest.fixture(params=dialects.SUPPORTED)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sa.Engine]:
    """An application's engine on an empty database of each dialect."""
    if request.param == "postgresql":
        yield request.getfixturevalue("database")
    elif request.param == "sqlite":
        made = sa.create_engine(f"sqlite:///{tmp_path}/app.db", poolclass=sa.NullPool)

        @sa.event.listens_for(made, "connect")
        def as_an_application_does(connection: object, _record: object) -> None:
            connection.execute("PRAGMA foreign_keys = ON")  # type: ignore[attr-defined]

        yield made
    else:
        yield from _oracle(request.getfixturevalue("oracle_url"))


@pytest.fixture(scope="session")
def oracle_url() -> Iterator[str]:
    """An Oracle by its variable, else by Docker."""
    url = os.environ.get(ORACLE_URL)
    if url is not None:
        yield url
        return
    try:
        with oracle_server.container() as made:
            yield made
    except oracle_server.NoServerError as error:
        pytest.skip(
            f"no Oracle server: {error}, and {ORACLE_URL} names none (oracle://user:password@host/?service_name=)"
        )


def _oracle(url: str) -> Iterator[sa.Engine]:
    made = sa.create_engine(url, poolclass=sa.NullPool)
    _clear(made)
    yield made
    _clear(made)


def _clear(engine: sa.Engine) -> None:
    """Away with all that the user has: it is the tests' alone."""
    kinds = ("VIEW", "TABLE", "SEQUENCE", "FUNCTION", "PROCEDURE")
    with engine.begin() as conn:
        found = conn.exec_driver_sql("SELECT object_type, object_name FROM user_objects ORDER BY object_id DESC").all()
        for kind, name in found:
            if kind in kinds and not name.startswith("ISEQ$$"):
                end = " CASCADE CONSTRAINTS PURGE" if kind == "TABLE" else ""
                conn.exec_driver_sql(f'DROP {kind} "{name}"{end}')


@pytest.fixture
def platform(engine: sa.Engine, tmp_path: Path) -> Platform:
    """A database of each dialect with a log."""
    made = Platform(dialects.for_url(engine.url), engine, tmp_path)
    made.install()
    return made


@pytest.fixture
def usr_platform(platform: Platform) -> Platform:
    """The same with the class of spec/triggers.md 2, its child, and a class of key columns alone."""
    update = "" if platform.name == "oracle" else " ON UPDATE CASCADE"
    platform.run(
        "CREATE TABLE usr (idu {integer} PRIMARY KEY, fname {text}, lname {string}, photo {binary})",
        f"CREATE TABLE usr_phone (idu {{integer}} REFERENCES usr{update} ON DELETE CASCADE, phoneno {{string}},"
        " UNIQUE (idu, phoneno))",
        "CREATE TABLE keyed (a {integer}, b {string}, PRIMARY KEY (b, a))",
    )
    return platform


@pytest.fixture(params=["row", "statement"])
def captured(usr_platform: Platform, request: pytest.FixtureRequest) -> Platform:
    """The same under each kind of capture; both log the same rows."""
    if request.param == "statement":
        usr_platform.needs("statement_capture")
    usr_platform.capture = request.param
    return usr_platform
