"""How a session comes to the log: the Python of its workers, tables of its catalogue, Spark
Connect.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from backlog_job import log_rows, random_rows
from backlog_page import skip_without_index
from pyspark.sql import SparkSession

from eventlog.errors import ConfigError
from eventlog.spark import data_sources as sources
from eventlog.spark import delta, live_copy, register
from eventlog.spark.session.spark_context import worker_python


@pytest.fixture
def config(log: sa.Engine, tmp_path: Path) -> Path:
    log_rows(log, random_rows(300, seed=410))
    return configured(log, tmp_path)


def configured(log: sa.Engine, directory: Path) -> Path:
    file = directory / "eventlog.toml"
    url = log.url.render_as_string(hide_password=False)
    file.write_text(f'[database]\nurl = "{url}"\nschema_name = "hr"\n')
    return file


def test_workers_of_another_python_are_refused_with_the_variable_to_set(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    another = tmp_path / "python3"
    another.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    another.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(another))
    with pytest.raises(ConfigError, match="PYSPARK_PYTHON=") as refused:
        register(spark)
    said = str(refused.value)
    assert said.startswith(f"the workers of this session run {another}, which cannot read the log")
    assert "ModuleNotFoundError" in said
    assert "\n" not in said


def test_workers_of_another_python_that_has_eventlog_serve(
    spark: SparkSession, tmp_path: Path
) -> None:
    another = tmp_path / "python3"
    another.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    another.chmod(0o755)
    workers = worker_python(spark)
    assert workers is not None
    sources.check_python(str(another), workers[1])


@pytest.mark.promise("spark register")
def test_a_log_is_a_table_of_the_catalogue(
    spark: SparkSession, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(spark)
    given = {"config": str(config), "class": "usr"}
    try:
        spark.sql(
            "CREATE TABLE changes USING `eventlog-changes` "
            f"OPTIONS (config '{config}', class 'usr', partitionRows 100)"
        )
        read = spark.read.format("eventlog-changes").options(**given).load()
        rows = "position", "operation", "after.lname"
        assert spark.table("changes").select(*rows).collect() == read.select(*rows).collect() != []
    finally:
        spark.sql("DROP TABLE IF EXISTS changes")


def test_a_reader_of_the_log_loads_what_it_needs() -> None:
    """Each query of a small log starts a Python that imports the source: its seconds count."""
    unused = (
        "eventlog.qlik.",
        "eventlog.gbase.",
        "eventlog.spark.frames.sorting",
        "eventlog.spark.backlog.job",
    )
    program = "import sys, eventlog.spark.changes.changes; print(*sys.modules, sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert [name for name in done.stdout.split() if name.startswith(unused)] == []


# --- Spark Connect --------------------------------------------------------------------------------

IMPORTS = "from eventlog.spark import data_sources, register; print(register.__module__)"


def imported(program: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_register_needs_nothing_that_the_client_of_spark_connect_lacks() -> None:
    without_java = "import sys; sys.modules |= dict.fromkeys(('py4j', 'pyspark.core')); "
    assert imported(without_java + IMPORTS) == "eventlog.spark.data_sources"


@pytest.mark.night
def test_register_is_there_with_the_client_of_spark_connect_alone(tmp_path: Path) -> None:
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--target", str(tmp_path)]
    done = subprocess.run([*install, "pyspark-client==4.*"], capture_output=True, text=True)
    skip_without_index(done.stderr)
    assert done.returncode == 0, done.stderr
    whose = "import sys, pyspark; sys.modules['py4j'] = None; print(pyspark.__file__); "
    said = imported(whose + IMPORTS, PYTHONPATH=str(tmp_path))
    assert said.split() == [
        str(tmp_path / "pyspark" / "__init__.py"),
        "eventlog.spark.data_sources",
    ]


BY_CONNECT = """
import sys
from pyspark.sql import SparkSession
from eventlog.errors import ConfigError
from eventlog.spark import delta, live_copy, register

config, place = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
register(spark)
options = {"config": config, "class": "usr"}
rows = spark.read.format("eventlog-changes").options(**options).load()
positions = {row.position for row in rows.select("position").collect()}
query = (
    spark.readStream.format("eventlog-changes").options(**options).load()
    .writeStream.format("parquet").option("path", place + "/rows")
    .option("checkpointLocation", place + "/checkpoint").trigger(availableNow=True).start()
)
query.awaitTermination()
followed = {row.position for row in spark.read.parquet(place + "/rows").collect()}
assert positions == followed != set()
try:
    live_copy(spark, config, "usr", delta(place + "/usr"), checkpoint=place + "/c")
except ConfigError as error:
    print(error)
"""


@pytest.mark.night
@pytest.mark.xdist_group("own Java")
def test_a_session_of_spark_connect_reads_and_follows_the_log_and_no_live_copy_starts_there(
    java: None, log_alone: sa.Engine, tmp_path: Path
) -> None:
    for package in ("grpc", "grpc_status", "zstandard"):
        pytest.importorskip(package, reason="Spark Connect needs pyspark[connect]")
    log_rows(log_alone, random_rows(200, seed=411))
    named = {
        name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_GATEWAY")
    }
    # Its second compiler takes more time than it gives back to so short a life.
    named |= {"PYSPARK_PYTHON": sys.executable, "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}
    command = [
        sys.executable,
        "-c",
        BY_CONNECT,
        str(configured(log_alone, tmp_path)),
        str(tmp_path),
    ]
    done = subprocess.run(command, env=named, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("live_copy cannot run in a session of Spark Connect")


def test_a_live_copy_is_refused_in_one_line_where_the_session_has_no_context(
    tmp_path: Path,
) -> None:
    connected: Any = SimpleNamespace(createDataFrame=None)
    with pytest.raises(ConfigError, match=r"^live_copy cannot run in a session of Spark Connect"):
        live_copy(connected, tmp_path / "none", "usr", delta(tmp_path), checkpoint=tmp_path)
