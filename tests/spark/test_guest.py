"""A job is a guest in the session that it finds: nothing of it changes (docs/guides/convert-a-backlog.md,
"In a notebook").
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import sqlalchemy as sa
from backlog_job import config_of, convert, copy, documents_of, log_rows, random_rows
from pyspark.sql import DataFrame, SparkSession
from shared import url_of

from eventlog.errors import ConfigError
from eventlog.spark import register
from eventlog.spark.frames import change_frame, change_tables
from eventlog.spark.frames.convert import convert as convert_inputs
from eventlog.spark.frames.inputs import inputs
from eventlog.spark.frames.messages import read_messages, write_messages
from eventlog.spark.session.in_tasks import tune_collector
from eventlog.spark.session.session import open_session, running_session
from eventlog.spark.session.spark_context import context_of


def settings_of(spark: SparkSession) -> dict[str, str]:
    return dict(spark.conf.getAll)


# Each differs from what eventlog gives its own sessions.
USER_SETTINGS = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "777",
}


@pytest.fixture
def user_settings(spark: SparkSession) -> Iterator[None]:
    """Settings of a user in the session, which all tests share: it has its own again afterwards."""
    before = {name: str(spark.conf.get(name)) for name in USER_SETTINGS}
    for name, value in USER_SETTINGS.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.mark.usefixtures("user_settings")
def test_no_function_that_takes_a_session_changes_a_setting_of_it_or_the_job_group_of_the_thread(
    log: sa.Engine, spark: SparkSession, tmp_path: Path
) -> None:
    log_rows(log, random_rows(100, seed=98))
    config, tables, messages = config_of(log), tmp_path / "tables", str(tmp_path / "messages")
    url_file, converted = tmp_path / "url", str(tmp_path / "converted")
    url_file.write_text(url_of(log))
    options = {"url_file": str(url_file), "schema_name": "hr"}

    def users() -> DataFrame:
        (table,) = (
            each for each in change_tables.find_change_tables(str(tables)) if each.table == "usr"
        )
        return change_tables.read_rows(spark, table)

    calls: list[tuple[str, Callable[[], object]]] = [
        ("log_source.register", lambda: register(spark)),
        (
            "the log as a source",
            lambda: spark.read.format("eventlog").options(**options).load().collect(),
        ),
        ("backlog.run", lambda: convert(config, tables, format="qlik-change-table", mark=True)),
        ("captures", lambda: inputs("qlik-change-table", str(tables), {})),
        (
            "convert",
            lambda: convert_inputs(
                "qlik-change-table", "jsonl", str(tables), converted, spark=spark
            ),
        ),
        (
            "change_frame.read_inputs",
            lambda: change_frame.read_inputs(spark, "jsonl", converted).collect(),
        ),
        (
            "change_tables.read_change_table",
            lambda: change_tables.read_change_table(spark, str(tables)).collect(),
        ),
        (
            "live_view",
            lambda: change_tables.live_view(
                users().select("idu").limit(0), users(), key=["idu"]
            ).collect(),
        ),
        (
            "write_messages",
            lambda: write_messages(change_frame.read_inputs(spark, "jsonl", converted), messages),
        ),
        ("read_messages", lambda: read_messages(spark, messages).collect()),
    ]
    spark.sparkContext.setJobGroup("the user's", "of the notebook")
    before, active, group = settings_of(spark), running_session(), group_of(spark)
    for name, call in calls:
        call()
        assert settings_of(spark) == before, name
        assert running_session() is active, name
        assert group_of(spark) == group, name


def group_of(spark: SparkSession) -> list[str | None]:
    names = (
        "spark.jobGroup.id",
        "spark.job.description",
        "spark.job.interruptOnCancel",
    )
    return [spark.sparkContext.getLocalProperty(name) for name in names]


@pytest.mark.usefixtures("user_settings")
def test_our_session_has_its_own_settings(spark: SparkSession) -> None:
    own = open_session("local[2]")
    assert own is not spark
    assert own.conf.get("spark.sql.adaptive.enabled") == "false"
    assert spark.conf.get("spark.sql.adaptive.enabled") == "true"
    assert context_of(own) is context_of(spark)


def test_the_modules_of_a_worker_are_not_examined_after_every_task(spark: SparkSession) -> None:
    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tune_collector()
        list(batches)
        yield pa.RecordBatch.from_pydict(
            {"frozen": [gc.get_freeze_count()], "others": [len(gc.get_objects())]}
        )

    looks = spark.range(0, 4, 1, 4).mapInArrow(look, "frozen long, others long").collect()
    assert all(frozen > 50_000 and frozen > others for frozen, others in looks), looks


def test_a_setting_for_a_spark_that_runs_already_is_refused(spark: SparkSession) -> None:
    with pytest.raises(
        ConfigError, match=r"spark\.executor\.memory cannot be set, since Spark runs already"
    ):
        open_session("local[2]", conf={"spark.executor.memory": "2g"})


def test_a_pyspark_without_repartition_by_id_gives_the_same_documents(
    log: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_rows(log, random_rows(600, seed=91))
    copy(config_of(log), tmp_path / "new", partition_rows=100)
    for cls in {type(open_session("local[2]").range(1)), DataFrame}:
        if "repartitionById" in vars(cls):
            monkeypatch.delattr(cls, "repartitionById")
    copy(config_of(log), tmp_path / "old", partition_rows=100)
    assert documents_of(tmp_path / "old") == documents_of(tmp_path / "new")


_BY_CONNECT = """
import os, sys
from pyspark.sql import SparkSession
from eventlog.config.load import load
from eventlog.spark.backlog.backlog import Request, run
from eventlog.spark import register

spark = SparkSession.builder.remote("local[2]").getOrCreate()
settings = lambda: dict(spark.conf.getAll)
before = settings()
options = {"database.schema_name": "hr", "publisher.driver_user": "publisher"}
config = load(None, {"EVENTLOG_DATABASE_URL": os.environ["EVENTLOG_DATABASE_URL"]}, options)
register(spark)
run(config, Request(sys.argv[1], no_claim=True, partition_rows=400))
assert (settings(), spark.getTags()) == (before, set())
"""


@pytest.mark.night
def test_a_session_of_spark_connect_works_and_keeps_its_settings(
    log: sa.Engine, tmp_path: Path
) -> None:
    for package in ("grpc", "grpc_status", "zstandard"):
        pytest.importorskip(package, reason="Spark Connect needs pyspark[connect]")
    log_rows(log, random_rows(1_500, seed=97))
    named = {
        name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_GATEWAY")
    }
    named |= {
        "EVENTLOG_DATABASE_URL": log.url.render_as_string(hide_password=False),
        "PYSPARK_PYTHON": sys.executable,
    }
    command = [sys.executable, "-c", _BY_CONNECT, str(tmp_path / "out")]
    done = subprocess.run(command, env=named, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr
    copy(config_of(log), tmp_path / "classic", partition_rows=400)
    assert documents_of(tmp_path / "out") == documents_of(tmp_path / "classic")
