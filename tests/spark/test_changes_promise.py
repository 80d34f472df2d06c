"""The promise of a stream of changes: each committed row in one event, every attempt of a batch
alike, the order of every object kept, whatever is killed and however late writers commit
(spec/spark-changes.md).
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import sqlalchemy as sa

pytest.importorskip(
    "pyspark.sql.streaming.datasource", reason="a stream needs PySpark 4.2 or later"
)

from backlog_job import LOG, SCHEMA, fetch
from documents import ROOT
from pyspark.sql import SparkSession
from spark_stream import follow as follow_by_spark
from spark_stream import is_in_a_batch
from spark_workers import kill_worker

DRIVER = ROOT / "tests" / "spark" / "changes_driver.py"
SPARK_DRIVER = ROOT / "tests" / "spark" / "spark_stream.py"
SPARK_BATCHES, SPARK_KILLS = 500, 50
_ROW = (
    f"INSERT INTO {LOG} (event_type, table_name, table_key, column_name, new_value) "
    "VALUES (2, 'usr', %(key)s, 'fname', %(value)s)"
)


def write(log: sa.Engine, number: int, stopped: Event) -> None:
    """Short and long transactions, some rolled back; who writes an object waits for who wrote it
    before.
    """
    chance = random.Random(number)
    with log.connect() as connection:
        while not stopped.is_set():
            for key in sorted(chance.sample(range(40), chance.randint(1, 4))):
                connection.exec_driver_sql(
                    "SELECT pg_advisory_xact_lock(77, %(key)s)", {"key": key}
                )
                for _ in range(chance.randint(1, 3)):
                    connection.exec_driver_sql(
                        _ROW, {"key": f"idu={key}", "value": f"{number} {chance.random()}"}
                    )
            time.sleep(chance.choice([0, 0, 0.01, 0.3 if number == 0 else 0.03]))
            if chance.random() < 0.2:
                connection.rollback()
            else:
                connection.commit()
            time.sleep(chance.choice([0.01, 0.05, 0.1]))
        connection.rollback()


@pytest.fixture
def log(log_alone: sa.Engine) -> sa.Engine:
    return log_alone


@pytest.fixture
def config(log: sa.Engine, tmp_path: Path) -> Path:
    url = tmp_path / "url"
    url.write_text(log.url.render_as_string(hide_password=False))
    file = tmp_path / "eventlog.toml"
    file.write_text(
        f'[database]\nschema_name = "{SCHEMA}"\nurl_file = "{url}"\n[publisher]\nfold_distance = '
        "8\nfold_span = 30\n"
    )
    return file


def follow(config: Path, out: Path, until: Any, kill: float, *options: str) -> int:
    """Run the driver until it ends without being killed; return how often it was killed."""
    paths = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "spark")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    kills = 0
    while True:
        driver = subprocess.Popen(
            [sys.executable, DRIVER, out, str(kills), str(kill), f"config={config}", *options],
            env=environment,
        )
        while driver.poll() is None:
            time.sleep(0.05)
            until(kills)
        if driver.returncode == 0:
            return kills
        assert driver.returncode == 9
        kills += 1


@pytest.mark.xdist_group("changes")  # its driver of a stream is without Spark
@pytest.mark.parametrize(
    "options",
    [
        # More can go wrong with a consumer, so the form without one is only in the test at night.
        pytest.param(("maxRowsPerBatch=25", "partitionRows=10"), marks=pytest.mark.night),
        ("consumer=lake", "maxRowsPerBatch=60", "partitionRows=15"),
    ],
)
@pytest.mark.parametrize(
    ("batches", "kills", "writers"),
    [(8, 2, 4), pytest.param(500, 50, 8, marks=[pytest.mark.night, pytest.mark.timeout(3600)])],
)
def test_each_committed_row_is_in_one_event_however_queries_and_tasks_are_killed(
    log: sa.Engine,
    config: Path,
    tmp_path: Path,
    batches: int,
    kills: int,
    writers: int,
    options: tuple[str, ...],
) -> None:
    out = tmp_path / "out"
    stopped = Event()
    threads = [Thread(target=write, args=(log, number, stopped)) for number in range(writers)]
    for thread in threads:
        thread.start()

    def until(killed: int) -> None:
        if len(list(out.glob("batch-*"))) >= batches and killed >= kills and not stopped.is_set():
            stopped.set()
            for thread in threads:
                thread.join()
            (out / "stop").write_text("")

    try:
        follow(config, out, until, 0.03, *options)
    finally:
        stopped.set()
        for thread in threads:
            thread.join()
    assert_promise(log, out)


def assert_promise(log: sa.Engine, out: Path) -> None:
    attempts: defaultdict[str, set[str]] = defaultdict(set)
    for line in (out / "attempts").read_text().splitlines():
        number, digest = line.split()
        attempts[number].add(digest)
    assert [number for number, digests in attempts.items() if len(digests) > 1] == []
    events = [
        json.loads(line)
        for file in sorted(out.glob("batch-*"))
        for line in file.read_text().splitlines()
    ]
    read = [record_id for event in events for record_id in event["record_ids"]]
    there = fetch(log, f"SELECT record_id, table_key, new_value FROM {LOG} ORDER BY record_id")
    assert sorted(read) == [record_id for record_id, _, _ in there]
    last = {str(key).removeprefix("idu="): value for _, key, value in there}
    order: defaultdict[str, list[int]] = defaultdict(list)
    for event in events:
        order[event["key"]["idu"]] += event["record_ids"]
    assert [key for key, ids in order.items() if ids != sorted(ids)] == []
    assert {event["key"]["idu"]: event["after"]["fname"] for event in events} == last


# --- Spark ----------------------------------------------------------------------------------------


class Storm:
    """Writers, and somebody who kills processes inside batches, until there are enough of both."""

    def __init__(self, log: sa.Engine, out: Path, writers: int, seed: int) -> None:
        self.out, self.chance, self.stopped = out, random.Random(seed), Event()
        self.kills: Counter[str] = Counter()
        self.threads = [
            Thread(target=write, args=(log, one, self.stopped)) for one in range(writers)
        ]

    def __enter__(self) -> Storm:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        for thread in self.threads:
            thread.join()
        (self.out / "stop").write_text("")

    @property
    def batches(self) -> int:
        return len(list(self.out.glob("batch-*")))

    def kill_in_a_batch(self, kill: Callable[[], str | None], seconds: float = 60) -> None:
        """Wait for a batch, and kill somewhere in it."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if is_in_a_batch(self.out):
                time.sleep(self.chance.random() * 0.1)
                if is_in_a_batch(self.out) and (kind := kill()) is not None:
                    self.kills[kind] += 1
                    return
            time.sleep(0.005)
        pytest.fail("there was no batch in which anybody could be killed")


@pytest.mark.night
def test_each_committed_row_is_in_one_event_though_workers_of_spark_are_killed(
    spark: SparkSession, log: sa.Engine, config: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    java = spark._jvm.java.lang.ProcessHandle.current().pid()
    options = {"config": str(config), "partitionRows": "10"}
    query = Thread(target=follow_by_spark, args=(spark, out), kwargs=options)
    with Storm(log, out, 2, seed=1) as storm:
        query.start()
        for _ in range(2):
            storm.kill_in_a_batch(lambda: kill_worker(java, storm.chance))
    query.join()
    assert_promise(log, out)


@pytest.mark.night
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("options", [(), ("consumer=lake",)], ids=["unnamed", "consumer"])
def test_each_committed_row_is_in_one_event_however_drivers_and_workers_of_spark_are_killed(
    log: sa.Engine, config: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    out = tmp_path / "out"
    paths = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "spark")]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_GATEWAY")
    } | {"PYTHONPATH": os.pathsep.join(paths)}
    given = [f"config={config}", "maxRowsPerBatch=60", "partitionRows=15", *options]
    command = [sys.executable, str(SPARK_DRIVER), str(out), *given]
    with (tmp_path / "said").open("w") as said:
        driver = subprocess.Popen(command, env=environment, stdout=said, stderr=said)

        def kill() -> str | None:
            if storm.chance.random() < 0.2:
                driver.kill()
                driver.wait()
                return "driver"
            return kill_worker(driver.pid, storm.chance)

        try:
            with Storm(log, out, 8, seed=2) as storm:
                while storm.batches < SPARK_BATCHES or storm.kills.total() < SPARK_KILLS:
                    due = storm.batches * SPARK_KILLS // SPARK_BATCHES + 1
                    if storm.kills.total() < min(due, SPARK_KILLS):
                        storm.kill_in_a_batch(kill, 300)
                    if driver.poll() is not None:
                        assert driver.returncode == -9, (tmp_path / "said").read_text()
                        driver = subprocess.Popen(
                            command, env=environment, stdout=said, stderr=said
                        )
                    time.sleep(0.1)
            assert driver.wait(600) == 0, (tmp_path / "said").read_text()
        finally:
            driver.kill()
    path = out / "failures"
    failures = path.read_text().splitlines() if path.exists() else []
    print(
        f"{storm.batches} batches, {dict(storm.kills)} killed, {len(failures)} failures of queries"
    )
    # A query fails as its processes are killed, or as Spark waits too long for one. It loses no
    # row.
    assert [one for one in failures if "rows_removed" in one or "were removed" in one] == []
    assert_promise(log, out)
