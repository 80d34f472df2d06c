"""A job is a guest in the session that it finds: nothing of it changes (docs/convert-a-backlog.md, "In a notebook")."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from backlog_job import config_of, convert, copy, documents_of, log_rows, random_rows, statuses
from pyspark.sql import DataFrame, SparkSession

from eventlog.errors import ConfigError
from spark.session import context_of, open_session, running_session


def settings_of(spark: SparkSession) -> dict[str, str]:
    return dict(spark.conf.getAll)


def test_no_setting_of_the_session_that_runs_is_changed(log: sa.Engine, spark: SparkSession, tmp_path: Path) -> None:
    log_rows(log, random_rows(500, seed=90))
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "777")
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    before, active = settings_of(spark), running_session()
    convert(config_of(log), tmp_path / "out", mark=True)
    assert settings_of(spark) == before
    assert running_session() is active
    assert "N" not in statuses(log).values()


def test_our_session_has_settings_of_its_own(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    own = open_session("local[2]")
    assert own is not spark
    assert own.conf.get("spark.sql.adaptive.enabled") == "false"
    assert spark.conf.get("spark.sql.adaptive.enabled") == "true"
    assert context_of(own) is context_of(spark)


def test_a_setting_for_a_spark_that_runs_already_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match=r"spark\.executor\.memory cannot be set: Spark runs already"):
        open_session("local[2]", conf={"spark.executor.memory": "2g"})


def test_a_pyspark_without_repartition_by_id_gives_the_same_documents(
    log: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_rows(log, random_rows(6_000, seed=91))
    copy(config_of(log), tmp_path / "new", partition_rows=900)
    for cls in {type(open_session("local[2]").range(1)), DataFrame}:
        if "repartitionById" in vars(cls):
            monkeypatch.delattr(cls, "repartitionById")
    copy(config_of(log), tmp_path / "old", partition_rows=900)
    assert documents_of(tmp_path / "old") == documents_of(tmp_path / "new")


_BY_CONNECT = """
import os, sys
from pyspark.sql import SparkSession
from eventlog.config.load import load
from spark.backlog import Request, run

spark = SparkSession.builder.remote("local[2]").getOrCreate()
settings = lambda: dict(spark.conf.getAll)
before = settings()
options = {"database.schema_name": "hr", "publisher.driver_user": "publisher"}
config = load(None, {"EVENTLOG_DATABASE_URL": os.environ["EVENTLOG_DATABASE_URL"]}, options)
run(config, Request(sys.argv[1], copy=True, partition_rows=400))
assert settings() == before
"""


@pytest.mark.soak
def test_a_session_of_spark_connect_serves_too_and_keeps_its_settings(log: sa.Engine, tmp_path: Path) -> None:
    for package in ("grpc", "grpc_status", "zstandard"):
        pytest.importorskip(package, reason="Spark Connect needs pyspark[connect]")
    log_rows(log, random_rows(1_500, seed=97))
    named = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_GATEWAY")}
    named |= {"EVENTLOG_DATABASE_URL": log.url.render_as_string(hide_password=False), "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-c", _BY_CONNECT, str(tmp_path / "out")]
    done = subprocess.run(command, env=named, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr
    copy(config_of(log), tmp_path / "classic", partition_rows=400)
    assert documents_of(tmp_path / "out") == documents_of(tmp_path / "classic")
