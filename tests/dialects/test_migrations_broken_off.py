"""Migrations where DDL is not part of a transaction, as on Oracle: what breaks off stays, and the
next run ends it.

On a real database that commits every statement by itself: SQLite in autocommit, with guards of its
own kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
import sqlalchemy as sa
from shared import each_step, one_of_each
from trigger_log import BrokenOff, broken_off, downgrade, upgrade

from eventlog.errors import LogTableError
from eventlog.sql import migrations
from eventlog.sql.connect import connection
from eventlog.sql.dialects.sqlite import SQLite
from eventlog.sql.dialects.sqlite.database import SQLiteDatabase
from eventlog.sql.dialects.sqlite.log import SQLiteLog
from eventlog.sql.log_table import LogTable

ENDINGS = (
    "",
    "_captured",
    "_consumer",
    "_epoch",
    "_error",
    "_delivery",
    "_inflight",
    "_resync",
    "_state",
    "_version",
)
NAMES = sorted(f"eventlog{ending}" for ending in ENDINGS)


class CommittingLog(SQLiteLog):
    def is_half_made(self) -> bool:
        return "record_id" in {
            column["name"] for column in sa.inspect(self.connection).get_columns("eventlog")
        }


class CommittingDatabase(SQLiteDatabase):
    """SQLite that commits every statement, in its words for what the blocks of Oracle do."""

    def log(self, table: LogTable) -> CommittingLog:
        return CommittingLog(self, table)

    def guarded(self, statement: str) -> str:
        made = re.sub(
            r"\A\s*(CREATE (?:TABLE|INDEX|UNIQUE INDEX)) ", r"\1 IF NOT EXISTS ", statement
        )
        return re.sub(r"\A\s*DROP TABLE ", "DROP TABLE IF EXISTS ", made)


class CommittingSQLite(SQLite):
    def open(self, connection: sa.Connection) -> CommittingDatabase:
        return CommittingDatabase(connection, self)


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> sa.Engine:
    for module in (connection, migrations):
        monkeypatch.setattr(module, "load_dialect", lambda _name: CommittingSQLite())
    made = sa.create_engine(
        f"sqlite:///{tmp_path / 'app.db'}", isolation_level="AUTOCOMMIT", poolclass=sa.NullPool
    )
    sa.event.listen(made, "connect", lambda driver, _: driver.execute("PRAGMA synchronous = OFF"))
    return made


def tables(engine: sa.Engine) -> list[str]:
    return sorted(sa.inspect(engine).get_table_names())


def runs(engine: sa.Engine, work: Callable[[sa.Connection], None], after: int = 1_000_000) -> bool:
    """Whether some work comes to its end, if the session fails after so many statements that change
    something.
    """
    with suppress(BrokenOff), engine.connect() as conn, broken_off(conn, after):
        work(conn)
        return True
    return False


def statements(engine: sa.Engine, work: Callable[[sa.Connection], None]) -> list[str]:
    """The first two words of each statement of some work that changes something."""
    with engine.connect() as conn, broken_off(conn, 1_000_000) as done:
        work(conn)
    assert len(done) > 9
    return [" ".join(statement.split()[:2]) for statement in done]


CHOSEN = pytest.mark.parametrize(
    "chosen", [one_of_each, pytest.param(each_step, marks=pytest.mark.night)]
)
Chosen = Callable[[Sequence[str]], list[int]]


@CHOSEN
def test_an_upgrade_that_broke_off_anywhere_is_ended_by_the_next(
    engine: sa.Engine, chosen: Chosen
) -> None:
    steps = chosen(statements(engine, upgrade))
    for step in steps:
        assert runs(engine, downgrade)
        assert tables(engine) == []
        assert not runs(engine, upgrade, step - 1)
        assert runs(engine, upgrade)
        assert tables(engine) == NAMES
        assert migrations.current(engine, log_table="eventlog") == migrations.heads()


@CHOSEN
def test_a_downgrade_that_broke_off_anywhere_is_ended_by_the_next(
    engine: sa.Engine, chosen: Chosen
) -> None:
    assert runs(engine, upgrade)
    steps = chosen(statements(engine, downgrade))
    for step in steps:
        assert runs(engine, upgrade)
        assert not runs(engine, downgrade, step - 1)
        assert runs(engine, downgrade)
        assert tables(engine) == []


def test_an_upgrade_that_breaks_off_repeatedly_comes_to_its_end(engine: sa.Engine) -> None:
    attempts = next(attempt for attempt in range(1, 100) if runs(engine, upgrade, attempt))
    assert attempts > 2  # not at once
    assert tables(engine) == NAMES


def test_a_log_that_somebody_else_made_is_refused_still(engine: sa.Engine) -> None:
    with engine.connect() as conn:
        conn.exec_driver_sql("CREATE TABLE eventlog (x)")
        with pytest.raises(LogTableError, match="was not created by"):
            upgrade(conn)
    assert tables(engine) == ["eventlog"]


def test_a_log_without_a_version_table_is_no_half_made_one(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CommittingLog, "is_half_made", lambda *asked: True)
    with engine.connect() as conn:
        conn.exec_driver_sql("CREATE TABLE eventlog (x)")
        with pytest.raises(LogTableError, match="was not created by"):
            upgrade(conn)
    assert tables(engine) == ["eventlog"]
