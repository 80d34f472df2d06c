"""A log is cut into parts for tasks that run at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from eventlog.model import LOG_COLUMNS
from eventlog.sql.connect.connection import connect, dialect_of
from eventlog.sql.log_table import LogTable
from eventlog.sql.migrations import upgrade

_ROWS = """
INSERT INTO eventlog (event_type, event_time, table_name, table_key)
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 90000)
SELECT 5, '2026-01-01 00:00:00', 'usr', 'idu=' || n FROM numbers"""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sa.Connection]:
    file = tmp_path_factory.mktemp("log") / "log.db"
    file.touch()
    engine = connect(f"sqlite:///{file}")
    upgrade(engine, log_table="eventlog")
    with engine.connect() as connection:
        connection.exec_driver_sql(_ROWS)
        yield connection
    engine.dispose()


@pytest.mark.parametrize(
    ("rows", "multiple", "parts"),
    [
        pytest.param(20_000, 1, 5, id="as-few-as-there-can-be"),
        pytest.param(20_000, 4, 8, id="a-multiple-so-that-tasks-end-at-once"),
        pytest.param(200_000, 4, 4, id="one-for-each-task-at-least"),
        pytest.param(200_000, 400, 9, id="but-none-smaller-than-is-worthwhile"),
        pytest.param(5_000, 4, 18, id="unless-asked-for"),
    ],
)
def test_a_log_is_cut_into(log: sa.Connection, rows: int, multiple: int, parts: int) -> None:
    dialect = dialect_of(str(log.engine.url))
    table = LogTable(None, "eventlog", LOG_COLUMNS)
    found = dialect.open(log).log(table).log_parts("N", 1, 2**62, rows, multiple)
    assert len(found) == parts
    assert sum(part.rows for part in found) == 90_000
    assert max(part.rows for part in found) <= rows
