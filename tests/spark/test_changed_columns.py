"""A column of a class gets another type under a reader with the option ``class``, whose structs
have the types of its beginning. Without Java.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import sqlalchemy as sa

pytest.importorskip(
    "pyspark.sql.streaming.datasource", reason="a stream needs PySpark 4.2 or later"
)

from stream_engine import Engine, configured, reader_of, rows_of, watched

from eventlog import cli
from eventlog.spark.changes.change_log import ColumnsChanged, close_cached_connection
from eventlog.spark.changes.changes import ChangesDataSource

pytestmark = pytest.mark.xdist_group("changes")

TYPES = {
    "n": "integer", "i": "integer", "r": "integer", "d": "date", "at": "timestamp",
    "seen": "timestamptz", "txt": "text", "raw": "bytea", "short": "varchar(3)", "wide": "integer",
    "f": "real",
}  # fmt: skip
CHANGED = {
    "n": "numeric(20,4)", "r": "double precision", "d": "timestamp", "at": "timestamptz",
    "seen": "timestamp", "txt": "bytea USING NULL", "raw": "text USING NULL",
}  # fmt: skip
SAME = {"short": "text", "wide": "bigint", "f": "double precision"}


def make_table(database: sa.Engine) -> None:
    run(
        database,
        f"CREATE TABLE one (id integer PRIMARY KEY, {', '.join(map(' '.join, TYPES.items()))})",
        "INSERT INTO one VALUES (1, 1)",
    )
    with TemporaryDirectory() as directory:
        watched(database, Path(directory), "one")


def run(database: sa.Engine, *statements: str) -> None:
    with database.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


@pytest.fixture
def one(filled_database: Any, tmp_path: Path) -> Iterator[tuple[sa.Engine, Path]]:
    with filled_database(make_table) as database:
        yield database, configured(database, tmp_path, "one")
    close_cached_connection()


def alter(database: sa.Engine, config: Path, column: str, kind: str) -> None:
    run(database, f"ALTER TABLE one ALTER {column} TYPE {kind}")
    assert cli.run(["--config", str(config), "--quiet", "triggers", "apply"]) == 0


def engine_of(config: Path, place: Path) -> Engine:
    return Engine(reader_of(config=config, start_from="latest", **{"class": "one"}), place)


def test_a_stream_fails_with_the_name_of_the_column_whose_type_changed(
    one: tuple[sa.Engine, Path], tmp_path: Path
) -> None:
    database, config = one
    for column, kind in CHANGED.items():
        engine = engine_of(config, tmp_path / column)
        engine.rest()
        alter(database, config, column, kind)
        run(database, f"UPDATE one SET {column} = DEFAULT, i = coalesce(i, 0) + 1")
        with pytest.raises(ColumnsChanged, match=rf"column {column} of one was .+ and is .+ now"):
            engine.rest()
        engine.reader.stop()


def test_the_same_checkpoint_takes_the_new_type_over(
    one: tuple[sa.Engine, Path], tmp_path: Path
) -> None:
    database, config = one
    engine = engine_of(config, tmp_path / "query")
    engine.rest()
    run(database, "UPDATE one SET n = 7")
    alter(database, config, "n", "numeric(20,4)")
    run(database, "UPDATE one SET n = 1.2345")
    with pytest.raises(ColumnsChanged, match=r"was bigint and is decimal\(20,4\) now"):
        engine.rest()
    engine.reader.stop()
    again = engine_of(config, tmp_path / "query")
    assert [str(row["after"]["n"]) for row in again.rest()] == ["1.2345"]
    again.reader.stop()


def test_a_stream_continues_if_the_types_of_the_struct_did_not_change(
    one: tuple[sa.Engine, Path], tmp_path: Path
) -> None:
    database, config = one
    engine = engine_of(config, tmp_path / "query")
    engine.rest()
    for column, kind in SAME.items():
        alter(database, config, column, kind)
        run(database, f"ALTER TABLE one ADD new_{column} integer", f"UPDATE one SET {column} = '5'")
        (row,) = engine.rest()
        assert row["after"][column] in (5, "5")
    run(database, "ALTER TABLE one DROP i", "UPDATE one SET short = '6'")
    (row,) = engine.rest()
    assert row["after"]["short"] == "6"
    engine.reader.stop()


def test_a_frame_that_was_made_before_the_change_is_refused(one: tuple[sa.Engine, Path]) -> None:
    database, config = one
    run(database, "UPDATE one SET n = 7")
    source = ChangesDataSource({"config": str(config), "class": "one"})
    reader = source.reader(source.schema())
    assert [row for part in reader.partitions() for row in rows_of(reader.read(part))]
    alter(database, config, "n", "numeric")
    with pytest.raises(ColumnsChanged, match="column n of one was bigint and is string now"):
        reader.partitions()
