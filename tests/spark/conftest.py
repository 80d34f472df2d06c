"""Real Spark on two cores, one session for all tests of a worker process, and a log to convert."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

pytest.importorskip("pyspark", reason="the extra spark is not installed")

from backlog_job import make_tables
from pyspark.sql import SparkSession

from eventlog.errors import ConfigError
from eventlog.spark.session.session import check_java, open_session


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # One session, so one JVM, for all of them: they run in one worker of pytest-xdist (--dist
    # loadgroup), except tests with another group, which start a separate Java or none. A time limit
    # that interrupts a call to Java leaves its answer unread, and every later call gets the answer
    # to an earlier call, so the limit is high.
    here = f"{Path(__file__).parent}/"
    for item in items:
        if str(item.path).startswith(here):
            if item.get_closest_marker("xdist_group") is None:
                item.add_marker(pytest.mark.xdist_group("spark"))
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def java() -> None:
    """A Java that Spark runs on."""
    try:
        check_java()
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def spark(java: None) -> Iterator[SparkSession]:
    partitions = "spark.sql.shuffle.partitions"
    session = open_session("local[2]", conf={partitions: "2"})  # by default 200, whatever the data
    yield session
    # A test that unsets it gives the default to all tests after it.
    kept = session.conf.get(partitions)
    session.stop()
    assert kept == "2"


@pytest.fixture
def log_alone(filled_database: Any) -> Iterator[sa.Engine]:
    """A database with tables, a view and an empty log, for tests that do not take the session."""
    with filled_database(make_tables) as database:
        yield database


@pytest.fixture
def log(spark: SparkSession, log_alone: sa.Engine) -> sa.Engine:
    """A database with tables, a view and an empty log, for jobs in the session."""
    return log_alone
