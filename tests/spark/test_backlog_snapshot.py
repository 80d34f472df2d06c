"""A backlog job whose snapshot becomes older than a table (spec/event-log.md 8.6, 12.3)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from backlog_job import LOG, SCHEMA, config_of, convert, fetch, statuses
from pyspark.sql import SparkSession

from eventlog.errors import SnapshotOutdated
from eventlog.spark.backlog import backlog, fold
from eventlog.spark.backlog.job import Blob, Job, PartReport, blobs_of_batch, snapshot_session
from eventlog.spark.directory import SUCCESS
from eventlog.sql.connect.connection import connect
from eventlog.sql.connect.locate import locate_log
from eventlog.sql.dialects.postgresql import DIALECT

USERS = 20

_MORE_TABLES = f"""
CREATE TABLE {SCHEMA}.other (LIKE {SCHEMA}.usr INCLUDING ALL);
CREATE TABLE {SCHEMA}.old_phone () INHERITS ({SCHEMA}.usr_phone);
CREATE TABLE {SCHEMA}.split (id integer PRIMARY KEY, name text) PARTITION BY RANGE (id);
CREATE TABLE {SCHEMA}.split_1 PARTITION OF {SCHEMA}.split FOR VALUES FROM (1) TO (10);
CREATE TABLE {SCHEMA}.split_2 PARTITION OF {SCHEMA}.split FOR VALUES FROM (10) TO (30);
INSERT INTO {SCHEMA}.split SELECT i, 's' || i FROM generate_series(1, {USERS}) i;
INSERT INTO {SCHEMA}.usr SELECT i FROM generate_series(1, {USERS}) i ON CONFLICT DO NOTHING
"""


@pytest.fixture
def waiting(log: sa.Engine) -> sa.Engine:
    """A log with rows whose values are queried back, of a table, a child table, a view and a
    partitioned table.
    """
    run(
        log,
        _MORE_TABLES,
        f"INSERT INTO {LOG} (event_type, perpetrator, table_name, table_key) "
        f"SELECT 5, 'app', name, concat(key, '=', i) FROM generate_series(1, {USERS}) i, "
        "(VALUES ('usr', 'idu'), ('view_emp', 'pk_empno'), ('split', 'id')) AS classes (name, key)",
    )
    return log


def run(log: sa.Engine, *statements: str, timeout: str = "5s") -> None:
    """Run statements in one transaction, which waits for a lock no longer than the time-out."""
    with log.begin() as conn:
        conn.exec_driver_sql(f"SET LOCAL lock_timeout = '{timeout}'")
        for statement in statements:
            conn.exec_driver_sql(statement)


def read_in_process(job: Job) -> list[Blob]:
    """The blobs of the first two stages, whose tasks run in this process: Spark would only
    distribute them.
    """
    batches = [
        batch
        for number in range(1, len(job.parts) + 1)
        for batch in fold.read_parts(job, iter([pa.RecordBatch.from_pydict({"id": [number]})]))
    ]
    passed_on = fold.fold_bucket(job, iter(batches))
    return [blob for batch in passed_on for blob in blobs_of_batch(batch)]


def instead_of_spark(monkeypatch: pytest.MonkeyPatch, tasks: Callable[[Job], object]) -> None:
    """Let a job run this in place of its tasks: it has its snapshot, and nothing was read."""

    def run_job(_spark: SparkSession, job: Job, _request: Any) -> list[PartReport]:
        tasks(job)
        return []

    monkeypatch.setattr(backlog, "run_job", run_job)


def before_spark(monkeypatch: pytest.MonkeyPatch, change: Callable[[], None]) -> None:
    """Run a change when a job has its snapshot, before its tasks."""
    run_job = backlog.run_job

    def changed(spark: SparkSession, job: Job, request: Any) -> list[PartReport]:
        change()
        return run_job(spark, job, request)

    monkeypatch.setattr(backlog, "run_job", changed)


CHANGES = {
    "a type with USING": ("usr", [f"ALTER TABLE {SCHEMA}.usr ALTER fname TYPE varchar(50) USING (fname || '')"]),
    "integer to bigint": ("usr", [f"ALTER TABLE {SCHEMA}.usr ALTER age TYPE bigint"]),
    "a volatile default": ("emp", [f"ALTER TABLE {SCHEMA}.emp ADD x float DEFAULT random()"]),
    "SET UNLOGGED": ("emp", [f"ALTER TABLE {SCHEMA}.emp SET UNLOGGED"]),
    "TRUNCATE": ("emp", [f"TRUNCATE {SCHEMA}.emp"]),
    "a swap by RENAME": ("usr", [f"ALTER TABLE {SCHEMA}.usr RENAME TO was", f"ALTER TABLE {SCHEMA}.other RENAME TO usr"]),
    "DETACH PARTITION": ("split", [f"ALTER TABLE {SCHEMA}.split DETACH PARTITION {SCHEMA}.split_1"]),
    "NO INHERIT": ("usr_phone", [f"ALTER TABLE {SCHEMA}.old_phone NO INHERIT {SCHEMA}.usr_phone"]),
    "an ALTER of the log": ("eventlog", [f"ALTER TABLE {LOG} ADD x float DEFAULT random()"]),
}  # fmt: skip


def refused(
    waiting: sa.Engine,
    out: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[], None],
    **options: object,
) -> str:
    """The message of a job that a change ends, and that has claimed and marked nothing."""

    def changed(job: Job) -> None:
        change()
        read_in_process(job)

    instead_of_spark(monkeypatch, changed)
    with pytest.raises(SnapshotOutdated) as ended:
        convert(config_of(waiting), out, mark=True, **options)
    assert not (out / SUCCESS).exists()
    assert set(statuses(waiting).values()) == {"N"}
    assert fetch(waiting, f"SELECT count(*) FROM {LOG}_state WHERE kind = 'claim'") == [(0,)]
    return str(ended.value)


@pytest.mark.parametrize("change", CHANGES)
def test_a_table_that_changes_during_the_job_ends_it_with_nothing_marked(
    waiting: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    table, statements = CHANGES[change]
    said = refused(waiting, tmp_path / "out", monkeypatch, lambda: run(waiting, *statements))
    assert f"{SCHEMA}.{table} " in said


def test_a_log_that_is_partitioned_during_the_job_ends_it(
    waiting: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock of the log prevents `db partition`, unless the job has lost it."""

    def partition() -> None:
        with connect(waiting.url).connect() as conn:
            db = DIALECT.open(conn)
            log = db.log(locate_log(db, name="eventlog", schema=SCHEMA))
            conn.commit()
            DIALECT.partitioning.prepare(log)
            DIALECT.partitioning.partition(log, 100)

    said = refused(waiting, tmp_path / "out", monkeypatch, partition)
    assert said.startswith(f"{LOG} was created, or took the name of another table")


def test_whole_rows_that_a_format_reads_back_are_proven(
    waiting: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debezium's events have the whole row, also if the log has the values that have changed."""
    insert = (
        f"INSERT INTO {LOG} (event_type, table_name, table_key, column_name, old_value, new_value) "
    )
    run(
        waiting,
        f"DELETE FROM {LOG}",
        f"{insert} SELECT 2, 'usr', 'idu=' || i, 'fname', 'a', 'b' FROM generate_series(1, 9) i",
    )
    alter = f"ALTER TABLE {SCHEMA}.usr ALTER age TYPE bigint"
    said = refused(
        waiting, tmp_path / "out", monkeypatch, lambda: run(waiting, alter), format="debezium"
    )
    assert f"{SCHEMA}.usr was rewritten" in said


def test_a_refused_job_reports_the_table_and_can_run_again(
    waiting: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alter = f"ALTER TABLE {SCHEMA}.usr ALTER age TYPE bigint"
    before_spark(monkeypatch, lambda: run(waiting, alter))
    out = tmp_path / "out"
    with pytest.raises(SnapshotOutdated) as refused:
        convert(config_of(waiting), out, mark=True)
    assert str(refused.value) == (
        f"{SCHEMA}.usr was rewritten or truncated after the database snapshot was taken, so the "
        "snapshot does not show all of its rows. Wait until the tables are no longer altered, and "
        "run the command again"
    )
    assert refused.value.code == "snapshot_outdated"
    assert refused.value.__notes__ == ["nothing was marked"]
    monkeypatch.undo()
    assert convert(config_of(waiting), out, mark=True).marked == 3 * USERS
    assert "N" not in statuses(waiting).values()


# An ALTER of a table that is logged already rewrites nothing, but takes the lock.
ALTER = (f"ALTER TABLE {SCHEMA}.usr SET LOGGED", f"ALTER TABLE {LOG} SET LOGGED")
UPDATE = (
    f"UPDATE {SCHEMA}.usr SET age = 1 WHERE idu = 1",
    f"INSERT INTO {LOG} (event_type, table_name, table_key) VALUES (6, 'usr', 'idu=1')",
)


def test_an_update_that_queues_after_an_alter_does_not_wait_for_the_job(
    waiting: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All the time that Spark works, the application alters a table and the log, and writes them."""
    over = threading.Event()
    waits: list[float] = []

    def alter_and_update(threads: Executor) -> float:
        began = time.monotonic()
        both = [threads.submit(run, waiting, *statements) for statements in (ALTER, UPDATE)]
        for one in both:
            one.result()
        return time.monotonic() - began

    def work() -> None:
        with ThreadPoolExecutor(2) as threads:
            while not over.is_set():
                waits.append(alter_and_update(threads))

    with ThreadPoolExecutor(2) as threads:
        alone = alter_and_update(threads)
    application = threading.Thread(target=work)
    before_spark(monkeypatch, application.start)
    try:
        convert(config_of(waiting), tmp_path / "out", no_claim=True)
    finally:
        over.set()
        application.join()
    assert max(waits) < alone + 1


def test_between_two_batches_a_task_locks_no_table(
    waiting: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = ", ".join(
        [LOG, *(f"{SCHEMA}.{name}" for name in ("usr", "usr_phone", "emp", "split"))]
    )
    blobs = fold.Builder.blobs
    calls: list[int] = []

    def unlocked(self: fold.Builder, groups: Any, log_rows: Any) -> list[Blob]:
        run(waiting, f"LOCK TABLE {tables} NOWAIT")
        built = list(blobs(self, groups, log_rows))
        run(waiting, f"LOCK TABLE {tables} NOWAIT")
        calls.append(len(built))
        return built

    monkeypatch.setattr(fold.Builder, "blobs", unlocked)
    monkeypatch.setattr(fold, "BATCH_ROWS", 7)
    instead_of_spark(monkeypatch, read_in_process)
    convert(config_of(waiting), tmp_path / "out", no_claim=True)
    assert len(calls) > 3 * USERS / 7
    assert any(calls)


@pytest.mark.parametrize("size", [1, 7, 3 * USERS, 1_000])
def test_batches_leave_out_no_row_of_a_part(
    waiting: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    read: list[int] = []

    def ids_of(job: Job) -> None:
        fields = ("record_id",)
        with snapshot_session(job) as session:
            for part in job.parts:
                rows = chain.from_iterable(fold.read_batches(session, part, fields))
                read.extend(record_id for (record_id,) in rows)

    monkeypatch.setattr(fold, "BATCH_ROWS", size)
    instead_of_spark(monkeypatch, ids_of)
    convert(config_of(waiting), tmp_path / "out", no_claim=True, partition_rows=25)
    assert read == sorted(statuses(waiting))
