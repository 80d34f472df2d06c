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
from collections import defaultdict
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

pytestmark = pytest.mark.xdist_group("changes")  # a driver of a stream without Spark

DRIVER = ROOT / "tests" / "spark" / "changes_driver.py"
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
    """Run the driver again and again until it has ended of itself; how often it was killed."""
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


@pytest.mark.parametrize(
    "options",
    [
        ("maxRowsPerBatch=25", "partitionRows=10"),
        ("consumer=lake", "maxRowsPerBatch=60", "partitionRows=15"),
    ],
)
@pytest.mark.parametrize(
    ("batches", "kills", "writers"),
    [(20, 4, 4), pytest.param(500, 50, 8, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])],
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
