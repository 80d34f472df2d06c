"""A live copy of a table of MariaDB or MySQL ends equal to the table, whatever is killed: tasks and
the driver of Spark, and the server (spec/event-log.md 13.6, spec/spark-changes.md).
"""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the extra delta is not installed")
pytest.importorskip(
    "pyspark.sql.streaming.datasource", reason="a stream needs PySpark 4.2 or later"
)

import family_writers
import mysql_servers
from deltalake import DeltaTable
from family_writers import Writers, end_prepared, filled
from killed_query import TO_THE_END, command_of, environment, run_until_killed
from verified import content

from eventlog.errors import ConfigError
from eventlog.spark import delta, verify
from eventlog.spark.session.session import check_java
from eventlog.verify import VerifyOptions

DURABLE = "--innodb-flush-log-at-trx-commit=1"
"""What a server that is killed must not lose."""
KILLS, CRASHES = 12, 3
"""How often the driver is killed, and how often the server is killed before it."""


@pytest.fixture
def java() -> None:
    """A Java that Spark runs on."""
    try:
        check_java()
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.mark.night
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("build", mysql_servers.params())
def test_a_live_copy_that_is_killed_often_ends_equal_to_its_table(
    java: None, tmp_path: Path, build: str
) -> None:
    chance = random.Random(3)
    with (
        mysql_servers.server(DURABLE, build=mysql_servers.BUILDS[build]) as server,
        filled(server, tmp_path) as root,
    ):
        config = tmp_path / "eventlog.toml"
        command = command_of(config, tmp_path, "usr", 500)
        writers = Writers(server, 1_000_000, rest=0.2)
        steps = [*["server"] * CRASHES, *["worker"] * (KILLS - CRASHES)]
        chance.shuffle(steps)
        writers.start()
        try:
            for step in steps:
                log, later = tmp_path / "usr" / "_delta_log", chance.random() * 0.5
                if step == "server":
                    run_until_killed(command, log, later, lambda *_: server.stop(kill=True))
                    server.start(DURABLE)
                else:
                    run_until_killed(command, log, later)
        finally:
            writers.stop.set()
            writers.join()
        assert not writers.errors
        end_prepared(server)
        subprocess.run([*command, TO_THE_END], env=environment(), check=True)
        copy = delta(tmp_path / "usr")
        table = DeltaTable(copy.uri).to_pyarrow_table(columns=["id", "name", "num"])
        copied = sorted(tuple(row.values()) for row in table.to_pylist())
        assert len(copied) > family_writers.KEYS
        assert copied == content(root, table="usr")
        report = verify(config, "usr", copy, options=VerifyOptions(wait=0))
        assert report.result == "equal"
