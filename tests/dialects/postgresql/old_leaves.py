"""A log on PostgreSQL with rows that are a month old, and its leaves (spec/event-log.md 14)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from shared import execute, url_of

from eventlog import cli
from eventlog.sql import migrations
from eventlog.sql.connect.locate import locate_log
from eventlog.sql.dialects.postgresql import DIALECT
from eventlog.sql.port.leaves import Leaf
from eventlog.sql.port.open_log import OpenLog

MEANS = DIALECT.partitioning
Command = Callable[..., dict[str, Any]]
Findings = Callable[[], dict[str, str]]


def fill(database: sa.Engine) -> None:
    """A log with 100 rows S that are a month old."""
    execute(database, "CREATE SCHEMA hr; CREATE TABLE hr.usr (idu integer PRIMARY KEY, fname text)")
    migrations.upgrade(database, log_table="eventlog", schema="hr")
    write(database, 100)


def fill_with_leaves(database: sa.Engine) -> None:
    """The log in leaves of 100 numbers, with four leaves of rows: a month, a month, a month and no
    day old.
    """
    fill(database)
    partition = ("--set", "database.schema_name=hr", "db", "partition", "--leaf-size", "100")
    assert cli.run(["--database-url", url_of(database), *partition]) == 0
    with opened(database) as log:
        MEANS.cut(log, 301)
    write(database, 200)
    write(database, 50, days=0)


def write(database: sa.Engine, rows: int, status: str = "S", days: int = 31) -> None:
    execute(
        database,
        "INSERT INTO hr.eventlog (status, event_type, table_name, table_key, event_time) "
        f"SELECT '{status}', 4, 'usr', 'idu=1', now() AT TIME ZONE 'UTC' - interval '{days} days' "
        f"FROM generate_series(1, {rows})",
    )


@contextmanager
def opened(database: sa.Engine) -> Iterator[OpenLog]:
    with database.connect() as conn:
        db = DIALECT.open(conn)
        log = db.log(locate_log(db, name="eventlog", schema="hr"))
        conn.commit()
        yield log


def remove(log: OpenLog, leaf: Leaf) -> None:
    """Remove a leaf of which all rows may go."""
    MEANS.remove(log, leaf, [], lambda: None)


def known(database: sa.Engine) -> list[tuple[int | None, int | None]]:
    """The ranges of the leaves."""
    with opened(database) as log:
        return [(leaf.first, leaf.end) for leaf in MEANS.leaves(log)]
