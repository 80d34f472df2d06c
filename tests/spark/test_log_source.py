"""The log as ``spark.read.format("eventlog")``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from backlog_job import LOG, fetch, log_rows, random_rows
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession, datasource
from pyspark.sql.functions import udf

from eventlog.errors import SnapshotOutdated
from eventlog.model import LOG_COLUMNS
from eventlog.spark import register
from eventlog.spark.log_source import LogLocation, place_for, without_secrets, worker_url
from eventlog.sql.connect.connection import connect
from eventlog.sql.connect.locate import locate_log
from eventlog.sql.dialects.postgresql import DIALECT
from eventlog.sql.port.driver_errors import open_database
from eventlog.sql.port.log_parts import LogPart


@pytest.fixture
def url_file(log: sa.Engine, tmp_path: Path) -> Path:
    file = tmp_path / "url"
    file.write_text(log.url.render_as_string(hide_password=False))
    return file


def load(spark: SparkSession, url_file: Path, **options: object) -> DataFrame:
    register(spark)
    return (
        spark.read.format("eventlog")
        .option("url_file", str(url_file))
        .option("schema_name", "hr")
        .options(**{name: str(value) for name, value in options.items()})
        .load()
    )


def test_the_columns_are_typed_and_equal_partitions_hold_what_the_table_holds(
    spark: SparkSession, log: sa.Engine, url_file: Path
) -> None:
    log_rows(log, random_rows(400, seed=41))
    log_rows(log, random_rows(400, seed=42, first=9_000_000_000))
    frame = load(spark, url_file, partition_rows=100)
    assert tuple(frame.columns) == LOG_COLUMNS
    assert dict(frame.dtypes)["record_id"] == dict(frame.dtypes)["event_type"] == "bigint"
    assert dict(frame.dtypes)["event_time"] == "timestamp_ntz"
    there = fetch(log, f"SELECT {', '.join(LOG_COLUMNS)} FROM {LOG} ORDER BY record_id")
    parts = frame.rdd.glom().collect()
    assert [len(part) for part in parts] == [100] * 8
    assert [tuple(row) for part in parts for row in part] == there


def test_options_reach_the_database(spark: SparkSession, log: sa.Engine, url_file: Path) -> None:
    log_rows(log, random_rows(1_000, seed=47))
    with log.begin() as connection:
        connection.exec_driver_sql(f"UPDATE {LOG} SET status = 'E' WHERE record_id <= 20")
    some = load(spark, url_file, status="E", first=5, last=500)
    assert [row["record_id"] for row in some.collect()] == [
        i
        for (i,) in fetch(
            log, f"SELECT record_id FROM {LOG} WHERE status = 'E' AND record_id >= 5 ORDER BY 1"
        )
    ]
    assert some.where("status = 'N'").count() == 0
    with pytest.raises(Exception, match="option status = 'new' of format eventlog is not a status"):
        load(spark, url_file, status="new").count()


def test_without_its_setting_spark_applies_the_filters(
    spark: SparkSession, log: sa.Engine, url_file: Path
) -> None:
    log_rows(log, random_rows(500, seed=48))
    condition = "record_id >= 100 AND record_id < 200 AND status = 'N'"
    assert fetch(log, f"SELECT count(*) FROM {LOG} WHERE {condition}") == [
        (load(spark, url_file).where(condition).count(),)
    ]


@pytest.fixture
def pushes_filters(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    register(spark)


@pytest.mark.skipif(
    not hasattr(datasource, "Filter"), reason="PySpark 4.0 hands sources no filters"
)
@pytest.mark.usefixtures("pushes_filters")
def test_filters_reach_the_database_if_the_session_pushes_them_down(
    spark: SparkSession, log: sa.Engine, url_file: Path
) -> None:
    log_rows(log, random_rows(1_000, seed=43))
    with log.begin() as connection:
        connection.exec_driver_sql(f"UPDATE {LOG} SET status = 'E' WHERE record_id <= 20")
    marked = load(spark, url_file).where("status = 'E'")
    assert fetch(log, f"SELECT count(*) FROM {LOG} WHERE status = 'E'") == [(marked.count(),)]
    assert load(spark, url_file).where("status IN ('N', 'E')").count() == 1_000
    condition = "record_id >= 100 AND record_id < 200 AND table_name = 'usr'"
    some = load(spark, url_file).where(condition)
    assert fetch(log, f"SELECT count(*) FROM {LOG} WHERE {condition}") == [(some.count(),)]
    # What was pushed down is not done again by Spark.
    filters = [
        line
        for line in some._jdf.queryExecution().executedPlan().toString().splitlines()
        if "Filter (" in line
    ]
    assert all(">=" not in line for line in filters), filters


def test_one_snapshot_is_seen_by_all_partitions(
    spark: SparkSession, log: sa.Engine, url_file: Path
) -> None:
    log_rows(log, random_rows(1_000, seed=44))
    with log.connect().execution_options(**DIALECT.snapshot_options) as holder:
        name = DIALECT.open(holder).export_snapshot()
        frame = load(spark, url_file, partition_rows=300, snapshot=name)
        with log.begin() as connection:
            connection.exec_driver_sql(f"UPDATE {LOG} SET status = 'S'")
        assert frame.where("status = 'N'").count() == 1_000
    assert load(spark, url_file).where("status = 'N'").count() == 0


REWRITE = f"ALTER TABLE {LOG} ADD COLUMN x float DEFAULT random()"


def test_a_partition_of_a_log_that_was_rewritten_after_the_snapshot_is_refused(
    log: sa.Engine,
) -> None:
    """It would appear empty."""
    log_rows(log, random_rows(20, seed=45))
    with log.connect().execution_options(**DIALECT.snapshot_options) as holder:
        snapshot = DIALECT.open(holder).export_snapshot()
        with log.begin() as connection:
            table = locate_log(open_database(connection), name="eventlog", schema="hr")
            connection.exec_driver_sql(REWRITE)
        rows = DIALECT.read_part(
            log.url, table, snapshot, "N", LogPart(1, 2**62, 20), ("record_id",)
        )
        with pytest.raises(SnapshotOutdated, match=rf"{LOG} was rewritten"):
            list(rows)


def test_the_partitions_of_a_log_that_was_rewritten_after_the_snapshot_are_refused(
    spark: SparkSession, log: sa.Engine, url_file: Path
) -> None:
    log_rows(log, random_rows(20, seed=46))
    with log.connect().execution_options(**DIALECT.snapshot_options) as holder:
        name = DIALECT.open(holder).export_snapshot()
        with log.begin() as connection:
            connection.exec_driver_sql(REWRITE)
        with pytest.raises(Exception, match=rf"{LOG} was rewritten"):
            load(spark, url_file, snapshot=name).count()


def test_an_empty_log_is_an_empty_frame(spark: SparkSession, url_file: Path) -> None:
    assert load(spark, url_file).count() == 0


def test_a_password_is_refused_where_spark_would_show_it(spark: SparkSession) -> None:
    register(spark)
    with pytest.raises(Exception, match="the option url contains a password"):
        spark.read.format("eventlog").option("url", "postgresql://u:secret1@h/d").load().count()
    with pytest.raises(Exception, match="option 'lgo_table' of format eventlog is unknown"):
        spark.read.format("eventlog").option("lgo_table", "x").load().count()


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("eventlog", {"lgo_table": "x"}, "option 'lgo_table' of format eventlog is unknown"),
        ("eventlog", {"status": "new"}, "option status = 'new' of format eventlog is not a status"),
        ("eventlog-changes", {"config": "/nowhere.toml"}, "/nowhere.toml"),
    ],
)
def test_a_wrong_option_is_refused_in_one_line_without_the_frames_of_a_worker(
    spark: SparkSession, source: str, options: dict[str, str], message: str
) -> None:
    register(spark)
    with pytest.raises(AnalysisException) as raised:
        spark.read.format(source).options(**options).load().count()
    (line,) = (line for line in str(raised.value).splitlines() if message in line)
    assert "ConfigError: " in line
    assert "Traceback" not in str(raised.value)
    assert "File " not in str(raised.value)


def test_other_errors_of_a_worker_keep_their_frames(spark: SparkSession) -> None:
    register(spark)
    with pytest.raises(AnalysisException):
        spark.read.format("eventlog").option("lgo_table", "x").load()
    fails = udf(lambda number: number // 0, "long")
    with pytest.raises(PythonException, match="Traceback"):
        spark.range(1).select(fails("id")).collect()


def test_the_plan_shows_no_password(spark: SparkSession, log: sa.Engine, url_file: Path) -> None:
    url_file.write_text(log.url.set(password="secret2").render_as_string(hide_password=False))
    plan = load(spark, url_file)._jdf.queryExecution().toString()
    assert "secret2" not in plan


def place_of(log: sa.Engine, url_file: Path) -> LogLocation:
    engine = connect(log.url)
    with engine.connect() as connection:
        return LogLocation(
            "",
            str(url_file),
            locate_log(open_database(connection), name="eventlog", schema="hr"),
        )


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:pw@h:5/d", "postgresql://u@h:5/d"),
        ("postgresql://u@/d?host=/tmp&sslpassword=x", "postgresql://u@/d?host=%2Ftmp"),
        ("postgresql://u@/d?password=x", "postgresql://u@/d"),
    ],
)
def test_secrets_do_not_leave_in_the_url(url: str, shown: str) -> None:
    assert without_secrets(sa.make_url(url)) == shown


def test_workers_take_the_password_from_a_file_or_from_their_environment(
    log: sa.Engine, url_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = sa.make_url("postgresql://u:pw@h/d")
    table = place_of(log, url_file).log
    with place_for(url, table, on_this_machine=True) as place:
        assert place.url_file is not None
        assert Path(place.url_file).stat().st_mode & 0o77 == 0
        assert worker_url(place.url, place.url_file) == url
    assert not Path(place.url_file).exists()
    with place_for(url, table, on_this_machine=False) as place:
        assert place.url_file is None
        monkeypatch.setenv("EVENTLOG_DATABASE_PASSWORD", "pw")
        assert worker_url(place.url, None) == url
