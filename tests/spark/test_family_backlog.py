"""A log of MariaDB or MySQL, from its triggers to Spark: its sessions cannot share a database snapshot, and
all parts see the same rows (spec/event-log.md 8.6).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import mysql_servers
import pytest
import sqlalchemy as sa
from backlog_job import convert, copy, documents_of, events_of, publish
from pyspark.sql import SparkSession
from shared import execute, fetch, statuses, url_of

from eventlog import cli
from eventlog.config.load import Config, load
from eventlog.errors import DatabaseError
from eventlog.spark import register
from eventlog.spark.backlog import backlog
from eventlog.spark.backlog.job import Job
from eventlog.spark.session.session import SparkFailed

TABLES = (
    "CREATE TABLE usr (idu int PRIMARY KEY, fname varchar(40), pay decimal(10, 2), born date, "
    "photo blob)",
    "CREATE TABLE usr_phone (idu int, phoneno varchar(20), PRIMARY KEY (idu, phoneno),"
    " FOREIGN KEY (idu) REFERENCES usr (idu) ON DELETE CASCADE)",
    "CREATE TABLE grp (idg int PRIMARY KEY, name varchar(200))",
)
CONFIG = """
[database]
url = "{url}"

[publisher]
allow_loopback = true

[[watch]]
table = "usr"

[[watch]]
table = "grp"
row_style = "row_query_back"
"""


@pytest.fixture
def database(
    spark: SparkSession, family_server: mysql_servers.Server, tmp_path: Path
) -> Iterator[sa.Engine]:
    """Tables whose changes are in a log, and the configuration."""
    with family_server.database() as url:
        engine = sa.create_engine(url, poolclass=sa.NullPool)
        execute(engine, *TABLES)
        file = tmp_path / "eventlog.toml"
        file.write_text(CONFIG.format(url=url_of(engine)), encoding="utf-8")
        for command in (["db", "upgrade"], ["triggers", "apply"]):
            assert cli.run(["--config", str(file), *command]) == 0
        yield engine


@pytest.fixture
def config(database: sa.Engine, tmp_path: Path) -> Config:
    return load(tmp_path / "eventlog.toml", {})


def change(database: sa.Engine, seed: int, number: int) -> None:
    chance = random.Random(seed)
    with database.connect() as conn:
        for n in range(number):
            key = chance.randint(1, 60)
            conn.exec_driver_sql(
                "INSERT INTO usr VALUES (%s, %s, %s, '2024-02-29', x'AAFF') ON DUPLICATE KEY "
                "UPDATE fname = VALUES(fname)",
                (key, f"<l & {n}>", n / 4),
            )
            conn.exec_driver_sql(
                "INSERT IGNORE INTO usr_phone VALUES (%s, %s)", (key, f"555-{n % 3}")
            )
            conn.exec_driver_sql(
                "INSERT INTO grp VALUES (%s, 'g') ON DUPLICATE KEY UPDATE name = CONCAT(name, 'x')",
                (key,),
            )
            if n % 20 == 0:
                conn.exec_driver_sql("DELETE FROM usr WHERE idu = %s", (chance.randint(1, 60),))
            if n % 7 == 0:
                conn.rollback()  # which leaves gaps
            elif n % 5 == 0:
                conn.commit()
        conn.commit()


def test_the_job_gives_the_events_of_the_publisher_and_marks_the_rows(
    database: sa.Engine, config: Config, tmp_path: Path
) -> None:
    change(database, seed=5, number=120)
    waiting = statuses(database)
    copied = copy(config, tmp_path / "copy", partition_rows=110)
    assert set(statuses(database).values()) == {"N"}
    report = convert(config, tmp_path / "out", mark=True, partition_rows=65)
    assert set(statuses(database).values()) == {"S"}
    execute(database, "UPDATE eventlog SET status = 'N'")
    expected = publish(config)

    assert len(report.manifest.parts) > len(copied.manifest.parts) > 1
    assert report.manifest.totals["rows_read"] == len(waiting)
    assert list(events_of(documents_of(tmp_path / "out"))) == expected
    assert list(events_of(documents_of(tmp_path / "copy"))) == expected
    assert len(expected) > 100


def test_what_is_committed_while_the_job_reads_is_in_no_part_and_is_published_later(
    database: sa.Engine, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record_ids lie in two parts, on both sides of rows that are read."""
    changes = (
        "INSERT INTO usr (idu, fname) VALUES ({}, 'new')",
        "INSERT INTO usr (idu, fname) VALUES ({}, 'later')",
        "UPDATE usr SET fname = 'changed' WHERE idu < 5",
    )
    with database.connect() as late:
        late.exec_driver_sql("INSERT INTO grp VALUES (1, 'late')")
        late.exec_driver_sql("INSERT INTO usr VALUES (1, 'late', 1, NULL, NULL)")
        for n in range(2, 30):
            execute(
                database, *(statement.format(2 * n + i) for i, statement in enumerate(changes[:2]))
            )
        late.exec_driver_sql("UPDATE usr SET fname = 'later' WHERE idu = 1")
        execute(database, "INSERT INTO usr (idu, fname) VALUES (99, 'last')")
        before = statuses(database)

        run_job = backlog.run_job

        def commit_first(spark: SparkSession, job: Job, request: backlog.Request) -> object:
            late.commit()
            execute(database, changes[2])
            return run_job(spark, job, request)

        monkeypatch.setattr(backlog, "run_job", commit_first)
        report = convert(config, tmp_path / "out", mark=True, partition_rows=20)

    assert len(report.manifest.parts) > 2
    after = statuses(database)
    assert {record_id for record_id, letter in after.items() if letter == "S"} == before.keys()
    left = after.keys() - before.keys()
    assert min(left) < min(before) < max(left)
    assert any(min(before) < record_id < max(before) for record_id in left)
    written = "".join(events_of(documents_of(tmp_path / "out")))
    assert "late" not in written.replace("later", "")
    assert "idu=1," not in written
    rest = "".join(publish(config))
    assert "late" in rest
    assert "changed" in rest
    assert set(statuses(database).values()) == {"S"}


def test_a_row_changed_by_hand_during_a_job_ends_the_job_and_nothing_is_marked(
    database: sa.Engine, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(database, seed=7, number=40)
    run_job = backlog.run_job

    def mark_one(spark: SparkSession, job: Job, request: backlog.Request) -> object:
        execute(database, "UPDATE eventlog SET status = 'S' ORDER BY record_id LIMIT 1")
        return run_job(spark, job, request)

    monkeypatch.setattr(backlog, "run_job", mark_one)
    with pytest.raises(
        (SparkFailed, DatabaseError),
        match=r"1 row from record_id 1 to .* had status N when the job",
    ):
        convert(config, tmp_path / "out", mark=True)
    assert sorted(letter for letter in statuses(database).values())[-1] == "S"
    assert list(statuses(database).values()).count("S") == 1


def test_an_estimate_counts_what_the_job_reads(
    database: sa.Engine, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    change(database, seed=8, number=20)
    command = [
        "--config",
        str(tmp_path / "eventlog.toml"),
        "backlog",
        "estimate",
        "--json",
    ]
    capfd.readouterr()
    assert cli.run(command) == 0
    assert f'"rows": {len(statuses(database))}' in capfd.readouterr().out


@pytest.mark.night
def test_the_log_is_a_data_source_whose_partitions_see_the_same_rows(
    spark: SparkSession, database: sa.Engine, tmp_path: Path
) -> None:
    change(database, seed=9, number=200)
    url_file = tmp_path / "url"
    url_file.write_text(url_of(database))
    register(spark)
    reader = (
        spark.read.format("eventlog")
        .option("url_file", str(url_file))
        .option("partition_rows", "100")
    )
    frame = reader.option("status", "N").load()
    there = fetch(
        database,
        "SELECT record_id, status, event_type, event_time, perpetrator, table_name, table_key, "
        "column_name, old_value, new_value FROM eventlog ORDER BY record_id",
    )
    assert [tuple(row) for row in frame.collect()] == there
    assert frame.rdd.getNumPartitions() > 3
    execute(database, "UPDATE eventlog SET status = 'E' WHERE record_id < 50")
    assert frame.count() == len([row for row in there if int(row[0]) >= 50])
    with pytest.raises(
        Exception, match=r"sessions of (mariadb|mysql) cannot share a database snapshot"
    ):
        reader.option("snapshot", "mariadb-now").load().count()
