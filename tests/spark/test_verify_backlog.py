"""``eventlog verify`` of the files of a backlog job (spec/verify.md 4.2)."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import sqlalchemy as sa
from backlog_job import LOG, SCHEMA, config_of, convert

from eventlog.config.load import Config
from eventlog.verify import VerifyOptions, VerifyReport
from eventlog.verify.session import open_target, run_verification


def compare(config: Config, directory: Path) -> VerifyReport:
    with closing(open_target(config, str(directory))) as target:
        return run_verification(config, target, ["usr"], VerifyOptions(wait=0))


def found(report: VerifyReport) -> list[tuple[str, str]]:
    return sorted((one.kind.value, one.key) for one in report.differences)


def test_the_files_of_a_backlog_job_equal_the_source_and_each_fault_is_found(
    log: sa.Engine, tmp_path: Path
) -> None:
    config = config_of(log)
    with log.begin() as conn:
        conn.exec_driver_sql(
            f"INSERT INTO {LOG} (event_type, table_name, table_key) "
            f"SELECT 5, 'usr', 'idu=' || idu FROM {SCHEMA}.usr ORDER BY idu"
        )
    directory = tmp_path / "out"
    convert(config, directory, mark=True, max_file_bytes=400_000)
    report = compare(config, directory)
    assert (found(report), report.result) == ([], "equal")
    # Some values have characters that XML cannot have.
    refused = {one.reason for one in report.known}
    assert len(refused) == 1
    assert "its newest change was refused" in refused.pop()
    assert report.classes["usr"].equal > 2_000
    with log.begin() as conn:
        conn.exec_driver_sql(f"UPDATE {SCHEMA}.usr SET age = -1 WHERE idu = 8")
        conn.exec_driver_sql(f"DELETE FROM {SCHEMA}.usr_phone WHERE idu = 12")
        conn.exec_driver_sql(f"DELETE FROM {SCHEMA}.usr WHERE idu = 9")
        conn.exec_driver_sql(f"INSERT INTO {SCHEMA}.usr VALUES (9001)")
    assert found(compare(config, directory)) == [
        ("missing", "idu=9001"),
        ("surplus", "idu=9"),
        ("value", "idu=12"),
        ("value", "idu=8"),
    ]
    first, *_ = sorted(directory.glob("part-*.xmll"))
    first.unlink()
    assert compare(config, directory).classes["usr"].missing > 1
