"""Databases with a log and tables to watch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from watched import LOG, LOG_DDL, Watched, run

from eventlog.sql.dialects.postgresql import triggers


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
