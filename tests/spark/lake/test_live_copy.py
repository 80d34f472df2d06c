"""A Delta table that follows a table: value by value what the table holds, whatever is killed in
between.
"""

from __future__ import annotations

import datetime as dt
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

pytest.importorskip("deltalake", reason="the extra delta is not installed")

from deltalake import DeltaTable
from killed_query import command_of, run_until_killed
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from shared import PATIENCE

from eventlog import cli
from eventlog.errors import ConfigError
from eventlog.spark import delta, history, iceberg, live_copy, verify
from eventlog.spark.changes.changes import HAS_STREAMS

pytestmark = pytest.mark.skipif(not HAS_STREAMS, reason="streams need PySpark 4.2")

TABLES = """
CREATE TABLE acct (
    branch char(3), no integer, owner text, pay numeric(12, 2), born date, at timestamp, seen timestamptz,
    open boolean, photo bytea, score double precision, PRIMARY KEY (branch, no)
);
CREATE TABLE acct_phone (branch char(3), no integer, phone text, FOREIGN KEY (branch, no) REFERENCES acct
    ON UPDATE CASCADE ON DELETE CASCADE);
CREATE TABLE other (id integer PRIMARY KEY, name text);
CREATE VIEW shown AS SELECT no AS pk_no, owner AS sv_owner FROM acct;
"""
CONFIG = """
[database]
url = "{url}"

[[watch]]
table = "acct"
row_style = "{row_style}"

[[watch]]
table = "other"
"""
INSERT = """
INSERT INTO acct SELECT 'b' || i % 3, i, 'owner <' || i || '>', i / 4.0, date '2000-01-01' + i,
    timestamp '2001-02-03 04:05:06.789' + i * interval '1 day',
    timestamptz '2001-02-03 04:05:06+02' + i * interval '1 h', i % 2 = 0,
    decode('00ff', 'hex'), i / 7.0 FROM generate_series({first}, {last}) AS i
"""


def make_accounts(engine: sa.Engine) -> None:
    run(engine, *TABLES.split(";"))


@pytest.fixture
def database(spark: SparkSession, filled_database: Any) -> Iterator[sa.Engine]:
    with filled_database(make_accounts) as made:
        yield made


def run(database: sa.Engine, *statements: str) -> None:
    with database.connect() as connection:
        for statement in filter(str.strip, statements):
            connection.exec_driver_sql(statement.replace("%", "%%"))
        connection.commit()


def configured(database: sa.Engine, directory: Path, row_style: str = "field") -> Path:
    file = directory / "eventlog.toml"
    file.write_text(
        CONFIG.format(url=database.url.render_as_string(hide_password=False), row_style=row_style)
    )
    return file


def installed(database: sa.Engine, directory: Path, row_style: str = "field") -> Path:
    file = configured(database, directory, row_style)
    for command in (["db", "upgrade"], ["triggers", "apply"]):
        assert cli.run(["--config", str(file), "--quiet", *command]) == 0
    return file


def source_rows(database: sa.Engine, where: str = "true") -> list[dict[str, Any]]:
    with database.connect() as connection:
        connection.exec_driver_sql("SET TIME ZONE 'UTC'")
        rows = connection.exec_driver_sql(f"SELECT * FROM acct WHERE {where}").mappings()
        return comparable_rows(rows)


def copied_rows(place: Path) -> list[dict[str, Any]]:
    return comparable_rows(DeltaTable(place).to_pyarrow_table().to_pylist())


def comparable_rows(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return sorted(map(_comparable, rows), key=_place)


def _comparable(row: Mapping[str, Any]) -> dict[str, Any]:
    seen = row["seen"] and row["seen"].astimezone(dt.UTC)
    return {**row, "branch": row["branch"].rstrip(), "seen": seen}


def assert_equal(database: sa.Engine, directory: Path, name: str = "acct") -> None:
    copied, rows = copied_rows(directory / name), source_rows(database)
    assert [_place(row) for row in copied] == [_place(row) for row in rows]
    for one, other in zip(copied, rows, strict=True):
        assert repr(one) == repr(other)  # as NaN equals nothing


def _place(row: dict[str, Any]) -> tuple[Any, Any]:
    return row["branch"], row["no"]


def follow(spark: SparkSession, config: Path, directory: Path, **options: str) -> None:
    """Bring the copy to what the log holds now."""
    query = live_copy(
        spark, config, "acct", delta(directory / "acct"), checkpoint=directory / "checkpoint",
        trigger={"availableNow": True}, **options,
    )  # fmt: skip
    query.awaitTermination()


@pytest.mark.skipif(not HAS_STREAMS, reason="streams need PySpark 4.2")
def test_a_copy_loads_its_class_again_in_another_epoch_and_keeps_its_history(
    spark: SparkSession, database: sa.Engine, tmp_path: Path
) -> None:
    run(database, INSERT.format(first=1, last=3))
    config, copy = installed(database, tmp_path), delta(tmp_path / "acct")

    def follow_on(**options: Any) -> None:
        live_copy(
            spark, config, "acct", copy, checkpoint=tmp_path / "checkpoint", history=True,
            trigger={"availableNow": True}, **options,
        ).awaitTermination()  # fmt: skip

    follow_on()
    run(database, "UPDATE acct SET owner = 'known' WHERE no = 1")
    follow_on()
    # What a restore does: changes that the copy has are gone, others are there without a row.
    run(
        database,
        "ALTER TABLE acct DISABLE TRIGGER USER",
        "UPDATE acct SET owner = 'restored' WHERE no < 3",
        "ALTER TABLE acct ENABLE TRIGGER USER",
    )
    assert cli.run(["--config", str(config), "--quiet", "db", "start-epoch"]) == 0
    with pytest.raises(StreamingQueryException, match='on_epoch="reload"'):
        follow_on()
    follow_on(on_epoch="reload")
    assert_equal(database, tmp_path)
    run(database, "UPDATE acct SET owner = 'after' WHERE no = 2")
    follow_on(on_epoch="reload")
    assert_equal(database, tmp_path)
    found = history(spark, copy).where("no < 3").orderBy("valid_from").collect()
    versions: dict[int, list[Any]] = {}
    for row in found:
        versions.setdefault(row.no, []).append(row)
    assert [row.owner for row in versions[1]][1:] == ["known", "restored"]
    assert [row.owner for row in versions[2]][1:] == ["restored", "after"]
    assert versions[1][1].valid_to == versions[1][2].valid_from


@pytest.mark.parametrize(
    "row_style",  # test_live_copy_log has them all, without Java
    [
        pytest.param("field", marks=pytest.mark.night),  # test_live_copy_history has it in CI
        pytest.param("remove_all", marks=pytest.mark.night),
        pytest.param("row_query_back", marks=pytest.mark.night),
    ],
)
def test_the_copy_begins_with_the_table_and_follows_all_that_happens_to_it(
    spark: SparkSession, database: sa.Engine, tmp_path: Path, row_style: str
) -> None:
    run(database, INSERT.format(first=1, last=30))
    config = installed(database, tmp_path, row_style)
    run(database, "DELETE FROM acct WHERE no = 30", "INSERT INTO other VALUES (1, 'x')")
    follow(spark, config, tmp_path)
    assert copied_rows(tmp_path / "acct") == source_rows(database)
    run(
        database,
        INSERT.format(first=100, last=104),
        "UPDATE acct SET owner = NULL, pay = 7 WHERE no = 1",
        "UPDATE acct SET score = 'NaN' WHERE no = 2",
        "UPDATE acct SET no = 1003, owner = 'moved' WHERE no = 3",
        "DELETE FROM acct WHERE no IN (4, 101)",
        INSERT.format(first=4, last=4),
        "INSERT INTO acct_phone VALUES ('b2', 5, '555')",
        "UPDATE acct SET photo = NULL, seen = NULL, open = NOT open WHERE no BETWEEN 5 AND 9",
    )
    follow(spark, config, tmp_path, maxRowsPerBatch="7")
    assert_equal(database, tmp_path)
    follow(spark, config, tmp_path)
    assert_equal(database, tmp_path)
    # Each commit names the rows of the log that the copy holds, so that it can be verified.
    assert verify(config, "acct", delta(tmp_path / "acct")).result == "equal"


@pytest.mark.promise("spark delta", "spark live_copy")
def test_a_copy_with_a_filter_has_what_matches_while_its_query_runs(
    spark: SparkSession, database: sa.Engine, tmp_path: Path
) -> None:
    where = "pay < 10 AND owner <> 'hidden'"
    run(database, INSERT.format(first=1, last=60))
    config = installed(database, tmp_path)
    with config.open("a") as file:
        file.write(f'[[filter]]\ntable = "acct"\nwhere = "{where}"\n')
    query = live_copy(
        spark, config, "acct", delta(tmp_path / "acct"), checkpoint=tmp_path / "checkpoint"
    )

    def is_as_selected() -> bool:
        table = DeltaTable(tmp_path / "acct")
        matching = source_rows(database, where)
        return comparable_rows(table.to_pyarrow_table().to_pylist()) == matching

    try:
        wait_until(lambda: (tmp_path / "acct" / "_delta_log").exists() and is_as_selected())
        # Each step waits for a batch, so a step has all changes that need none of another's.
        for statements in (
            (
                "UPDATE acct SET pay = 100 WHERE no BETWEEN 1 AND 9",
                "UPDATE acct SET owner = 'hidden' WHERE no = 10",
                "DELETE FROM acct WHERE no IN (11, 55)",
            ),
            (
                "UPDATE acct SET pay = 1, owner = 'back' WHERE no IN (2, 10, 50)",
                INSERT.format(first=100, last=101),
            ),
            ("UPDATE acct SET no = 1002, owner = 'moved' WHERE no = 2",),
        ):
            run(database, *statements)
            wait_until(is_as_selected)
    finally:
        query.stop()
    follow(spark, config, tmp_path)
    assert verify(config, "acct", delta(tmp_path / "acct")).result == "equal"


@pytest.mark.night
def test_an_iceberg_table_follows_the_table_too(
    spark: SparkSession, database: sa.Engine, tmp_path: Path
) -> None:
    pytest.importorskip("pyiceberg", reason="the extra iceberg is not installed")
    run(database, INSERT.format(first=1, last=30))
    config = installed(database, tmp_path)
    copy = iceberg(
        "lake", "hr.acct", type="sql", uri=f"sqlite:///{tmp_path}/catalogue.db",
        warehouse=f"file://{tmp_path}/lake",
    )  # fmt: skip
    for statements in (
        (),
        (
            "UPDATE acct SET owner = NULL, pay = 7 WHERE no = 1",
            "UPDATE acct SET no = 1003, owner = 'moved' WHERE no = 3",
            "DELETE FROM acct WHERE no = 4",
            INSERT.format(first=100, last=104),
        ),
    ):
        run(database, *statements)
        live_copy(
            spark, config, "acct", copy, checkpoint=tmp_path / "checkpoint",
            trigger={"availableNow": True},
        ).awaitTermination()  # fmt: skip
    rows = copy.catalog.load_table("hr.acct").scan().to_arrow().to_pylist()
    assert comparable_rows(rows) == source_rows(database)


@pytest.mark.night
def test_new_columns_and_wider_types_come_into_the_copy_while_the_query_runs(
    spark: SparkSession, database: sa.Engine, tmp_path: Path
) -> None:
    config = installed(database, tmp_path)
    run(database, INSERT.format(first=1, last=3))
    query = live_copy(spark, config, "acct", delta(tmp_path / "acct"),
                      checkpoint=tmp_path / "checkpoint",
                      trigger={"processingTime": "200 milliseconds"})  # fmt: skip
    try:
        wait_until(
            lambda: (
                (tmp_path / "acct" / "_delta_log").exists() and copied_rows(tmp_path / "acct") != []
            )
        )
        run(database, "ALTER TABLE acct ADD COLUMN mail text")
        assert cli.run(["--config", str(config), "--quiet", "triggers", "apply"]) == 0
        run(database, "UPDATE acct SET mail = 'm@x' WHERE no = 2", INSERT.format(first=7, last=7))
        wait_until(lambda: copied_rows(tmp_path / "acct") == source_rows(database))
        run(
            database,
            "ALTER TABLE acct ALTER born TYPE timestamp, ALTER pay TYPE numeric(14, 4)",
            "UPDATE acct SET born = '2026-01-02 03:04:05', pay = 1.2345 WHERE no = 2",
        )
        wait_until(lambda: copied_rows(tmp_path / "acct") == source_rows(database))
        run(database, "ALTER TABLE acct ALTER score TYPE text", "UPDATE acct SET score = 'x'")
        with pytest.raises(StreamingQueryException, match="column score was double precision and"):
            query.awaitTermination(int(PATIENCE))
    finally:
        query.stop()
    follow(spark, config, tmp_path, on_type_change="reload")
    assert_equal(database, tmp_path)


def wait_until(is_so: Callable[[], bool], seconds: float = PATIENCE) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.05)


def test_what_no_copy_can_follow_is_refused_before_a_query_starts(
    spark: SparkSession, database: sa.Engine, tmp_path: Path
) -> None:
    config = installed(database, tmp_path)
    config.write_text(
        config.read_text()
        + '\n[[watch]]\nview = "shown"\nbase = { acct = { no = "pk_no", owner = "sv_owner" } }\n'
    )
    copy = delta(tmp_path / "t")
    with pytest.raises(ConfigError, match="class 'nobody' is unknown; the log has acct, other"):
        live_copy(spark, config, "nobody", copy, checkpoint=tmp_path / "c")
    with pytest.raises(ConfigError, match="shown is a view"):
        live_copy(spark, config, "shown", copy, checkpoint=tmp_path / "c")
    with pytest.raises(ConfigError, match="option start_from cannot be given to live_copy"):
        live_copy(spark, config, "acct", copy, checkpoint=tmp_path / "c", start_from="earliest")


class Writer(threading.Thread):
    """Changes the table until it is stopped: some transactions roll back, some commit late."""

    def __init__(self, database: sa.Engine, seed: int) -> None:
        super().__init__()
        self.database, self.chance, self.ended = database, random.Random(seed), threading.Event()
        self.commits, self.seed = 0, seed

    def run(self) -> None:
        with self.database.connect() as connection:
            while not self.ended.wait(0.05):
                try:
                    for _ in range(self.chance.randint(1, 4)):
                        connection.exec_driver_sql(self.statement().replace("%", "%%"))
                except sa.exc.IntegrityError:  # a branch that has the number
                    connection.rollback()
                    continue
                if self.chance.random() < 0.1:
                    time.sleep(0.3)
                if self.chance.random() < 0.2:
                    connection.rollback()
                else:
                    connection.commit()
                    self.commits += 1

    def statement(self) -> str:
        no = self.chance.randint(1, 40) * 10 + self.seed
        return self.chance.choice((
            INSERT.format(first=no, last=no).rstrip() + " ON CONFLICT DO NOTHING",
            f"UPDATE acct SET owner = 'o{self.commits}' WHERE no = {no}",
            f"UPDATE acct SET pay = NULL, open = NOT open WHERE no = {no}",
            f"UPDATE acct SET branch = 'z' || no % 2 WHERE no = {no}",
            f"DELETE FROM acct WHERE no = {no}",
        ))  # fmt: skip


def storm(spark: SparkSession, database: sa.Engine, tmp_path: Path, kills: int, seed: int) -> None:
    config = installed(database, tmp_path)
    run(database, INSERT.format(first=1, last=50))
    chance = random.Random(seed)
    writers = [Writer(database, number) for number in (1, 2)]
    for writer in writers:
        writer.start()
    command = command_of(config, tmp_path, "acct", 40)
    log = tmp_path / "acct" / "_delta_log"
    try:
        for _ in range(kills):
            run_until_killed(command, log, chance.random() * 0.5)
    finally:
        for writer in writers:
            writer.ended.set()
        for writer in writers:
            writer.join()
    follow(spark, config, tmp_path)
    assert sum(writer.commits for writer in writers) > 20
    assert_equal(database, tmp_path)


@pytest.mark.night
def test_a_driver_that_is_killed_leaves_a_copy_that_ends_equal(
    spark: SparkSession, database: sa.Engine, tmp_path: Path
) -> None:
    storm(spark, database, tmp_path, kills=1, seed=1)


@pytest.mark.night
def test_a_driver_that_is_killed_often_leaves_a_copy_that_ends_equal(
    spark: SparkSession, database: sa.Engine, tmp_path: Path
) -> None:
    storm(spark, database, tmp_path, kills=20, seed=2)
