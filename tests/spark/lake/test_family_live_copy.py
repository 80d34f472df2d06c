"""A live copy of a table of MariaDB or MySQL: it begins with the table, and follows the log by its
open writers (spec/event-log.md 13.6).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="the extra delta is not installed")
pytest.importorskip(
    "pyspark.sql.streaming.datasource", reason="a stream needs PySpark 4.2 or later"
)

import mysql_servers
import sqlalchemy as sa
from deltalake import DeltaTable
from shared import execute
from stream_engine import Engine, reader_of, watched
from test_live_copy_log import copied

from eventlog.spark import delta, verify
from eventlog.spark.changes.change_log import close_cached_connection
from eventlog.verify import VerifyOptions, VerifyReport

ACCOUNTS = (
    "CREATE TABLE acct (id int PRIMARY KEY, owner varchar(40), amount decimal(10, 2))",
    "INSERT INTO acct VALUES (1, 'a', 1.5), (2, 'b', 2.5)",
)


@pytest.fixture
def accounts(family_server: mysql_servers.Server) -> Iterator[sa.Engine]:
    with family_server.database() as url:
        root = sa.create_engine(family_server.url.set(database=url.database), poolclass=sa.NullPool)
        execute(root, *ACCOUNTS)
        yield root
        close_cached_connection()


def test_a_live_copy_gets_the_rows_of_a_transaction_that_commits_late(
    accounts: sa.Engine, tmp_path: Path
) -> None:
    config = watched(accounts, tmp_path, "acct")
    engine = Engine(reader_of(config=config, start_from="latest"), tmp_path / "query")
    put = copied(config, tmp_path)

    def copy() -> list[tuple[Any, ...]]:
        while engine.step(put):
            pass
        table = DeltaTable(tmp_path / "acct").to_pyarrow_table()
        return sorted(tuple(row.values()) for row in table.to_pylist())

    def source() -> list[tuple[Any, ...]]:
        with accounts.connect() as conn:
            return sorted(map(tuple, conn.exec_driver_sql("SELECT * FROM acct").all()))

    assert copy() == source()
    with accounts.connect() as late:
        late.exec_driver_sql("UPDATE acct SET owner = 'late' WHERE id = 1")
        execute(
            accounts,
            "UPDATE acct SET amount = 9 WHERE id = 2",
            "INSERT INTO acct VALUES (3, 'c', 3)",
        )
        assert copy() == source()
        late.commit()
    execute(accounts, "DELETE FROM acct WHERE id = 3")
    assert copy() == source()


def test_a_live_copy_equals_its_table_once_a_late_transaction_has_come_and_a_fault_is_found(
    accounts: sa.Engine, tmp_path: Path
) -> None:
    config = watched(accounts, tmp_path, "acct")
    engine = Engine(reader_of(config=config, start_from="latest"), tmp_path / "query")
    lake = delta(tmp_path / "acct")
    put = copied(config, tmp_path, lake, engine.offsets)

    def verified() -> VerifyReport:
        return verify(config, "acct", lake, options=VerifyOptions(wait=0))

    def follow() -> None:
        while engine.step(put):
            pass

    with accounts.connect() as late:
        late.exec_driver_sql("UPDATE acct SET owner = 'late' WHERE id = 1")
        execute(accounts, "INSERT INTO acct VALUES (3, 'c', 3)")
        follow()
        assert verified().result == "equal"
        late.commit()
    assert [one.key for one in verified().in_motion] == ["id=1"]
    follow()
    assert (verified().result, verified().classes["acct"].equal) == ("equal", 3)
    DeltaTable(lake.uri).delete("id = 2")
    assert [(one.kind.value, one.key) for one in verified().differences] == [("missing", "id=2")]
