"""Two logs, or a log and itself made again, never share a directory of the files sink
(spec/event-log.md 10).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from publishers import write_config
from shared import execute, statuses, url_of

from eventlog import cli
from eventlog.model import LOG_COLUMNS
from eventlog.publisher.sinks.files import MARKER
from eventlog.sql import migrations
from eventlog.sql.dialects.postgresql import DIALECT
from eventlog.sql.log_table import LogTable

TABLE = "CREATE TABLE usr (idu integer PRIMARY KEY, fname text)"


@pytest.fixture
def command(database: sa.Engine, tmp_path: Path) -> Any:
    """``eventlog publish --once`` of a log with some rows, into the one directory of the test; its
    exit code.
    """
    execute(database, TABLE)

    def publish(log: str = "eventlog", key: int = 1) -> int:
        columns = "event_type, table_name, table_key, column_name, new_value"
        values = f"1, 'usr', 'idu={key}', 'fname', 'Jack'"
        execute(database, f"INSERT INTO {log} ({columns}) VALUES ({values})")
        place = tmp_path / log
        place.mkdir(exist_ok=True)
        sink = {"type": "files", "directory": str(tmp_path / "documents")}
        path = write_config(
            place, url_of(database), database={"log_table": log, "tables": ["usr"]}, sink=sink
        )
        return cli.run(["--config", str(path), "publish", "--once"])

    return publish


def documents(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "documents").glob("*.xmll"))


def test_a_second_log_is_refused_and_the_first_goes_on(
    database: sa.Engine, tmp_path: Path, command: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    for log in ("eventlog", "other"):
        migrations.upgrade(database, log_table=log)
    assert command("eventlog") == 0
    assert command("other") == 2
    told = capfd.readouterr().err
    assert "belongs to the log public.eventlog in database" in told
    assert "not to the log public.other in database" in told
    assert statuses(database, "other") == {1: "N"}
    assert command("eventlog") == 0
    assert len(documents(tmp_path)) == 2


@pytest.mark.parametrize("taken", [False, True])
def test_a_log_that_was_made_again_is_refused(
    database: sa.Engine,
    tmp_path: Path,
    command: Any,
    capfd: pytest.CaptureFixture[str],
    taken: bool,
) -> None:
    migrations.upgrade(database, log_table="eventlog")
    assert command() == 0
    migrations.downgrade(database, log_table="eventlog")
    migrations.upgrade(database, log_table="eventlog")
    for name in documents(tmp_path) if taken else ():
        (tmp_path / "documents" / name).unlink()
    assert command() == 2
    assert "if both are the same log, moved or restored" in capfd.readouterr().err
    assert documents(tmp_path) == ([] if taken else ["000000000001-000001.xmll"])


def test_a_log_whose_numbers_went_back_continues_after_what_stands_there(
    database: sa.Engine, tmp_path: Path, command: Any
) -> None:
    """As where the whole cluster was put back to where it was a day ago: no document is
    replaced.
    """
    migrations.upgrade(database, log_table="eventlog")
    assert [command(key=key) for key in (1, 2, 3)] == [0, 0, 0]
    before = documents(tmp_path)
    execute(database, "ALTER SEQUENCE eventlog_delivery RESTART")
    assert command(key=4) == 0
    after = documents(tmp_path)
    assert after[:-1] == before
    assert after[-1] > before[-1]


def test_a_directory_whose_owner_file_is_gone_is_taken_over(
    database: sa.Engine, tmp_path: Path, command: Any
) -> None:
    migrations.upgrade(database, log_table="eventlog")
    assert command() == 0
    (tmp_path / "documents" / MARKER).unlink()
    assert command() == 0
    assert len(documents(tmp_path)) == 2
    assert (tmp_path / "documents" / MARKER).exists()


def test_a_role_with_few_rights_distinguishes_its_log_from_others_too(database: sa.Engine) -> None:
    for name in ("eventlog", "other"):
        migrations.upgrade(database, log_table=name)
    logs = [LogTable(None, name, LOG_COLUMNS) for name in ("eventlog", "other")]
    role = f"publisher_{database.url.database}"
    with database.connect() as conn:
        whole = [DIALECT.open(conn).log(log).identity() for log in logs]
        conn.exec_driver_sql(f"CREATE ROLE {role}")
        conn.exec_driver_sql(f"GRANT USAGE ON SEQUENCE eventlog_delivery, other_delivery TO {role}")
        conn.exec_driver_sql(f"SET ROLE {role}")
        assert [DIALECT.open(conn).log(log).identity() for log in logs] == whole
        conn.rollback()
    assert len({*whole}) == 2
    assert all(re.fullmatch(r"postgresql/\d{15,}/\d+/\d+", one) for one in whole)
