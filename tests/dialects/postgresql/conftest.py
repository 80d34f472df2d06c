"""What the tests of PostgreSQL alone share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, Engine
from trigger_log import Watched, run

from eventlog.sql import migrations
from eventlog.sql.connection import connect
from eventlog.sql.dialects.postgresql import DIALECT
from eventlog.sql.locate import locate_log
from eventlog.sql.log_table import LogTable


def _install(engine: Engine) -> None:
    migrations.upgrade(engine, log_table="eventlog")


@pytest.fixture
def engine(filled_database: Any) -> Iterator[Engine]:
    """An engine as the publisher makes it, on a new database with a log."""
    with filled_database(_install) as database:
        yield connect(database.url)


@pytest.fixture
def conn(engine: Engine) -> Iterator[Connection]:
    with engine.connect() as conn:
        yield conn


@pytest.fixture
def opened(conn: Connection) -> LogTable:
    return locate_log(conn, DIALECT, name="eventlog")


@pytest.fixture
def writer(usr: Watched) -> Iterator[str]:
    name = "eventlog_test_writer"
    run(usr.conn, f"DROP ROLE IF EXISTS {name}", f"CREATE ROLE {name}", f"GRANT ALL ON usr, usr_phone TO {name}")
    yield name
    usr.conn.rollback()
