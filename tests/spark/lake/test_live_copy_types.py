"""A column gets another type under a live copy, which runs or begins again: the copy takes it over
value by value, or refuses the change, or loads the class again with ``on_type_change="reload"``.
Without Java.

All classes of the matrix are changed at once in one database and followed by one stream, whose
batches are small: rows that were logged under the old type come after the check that has found the
new type.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
import sqlalchemy as sa

pytest.importorskip("deltalake", reason="the extra delta is not installed")
pytest.importorskip(
    "pyspark.sql.streaming.datasource", reason="a stream needs PySpark 4.2 or later"
)

from stream_engine import Engine, configured, reader_of, watched
from test_live_copy import run
from test_live_copy_batches import delta_in, iceberg_in
from test_live_copy_batches import rows_of as rows_in
from test_live_copy_log import SCHEMA

from eventlog import cli
from eventlog.config.load import load
from eventlog.core.values import ColumnType, Kind
from eventlog.errors import DatabaseError
from eventlog.spark.changes.change_log import close_cached_connection
from eventlog.spark.copies.copy_query import ERROR, RELOAD, put_batch
from eventlog.spark.copies.copy_source import ClassSource
from eventlog.spark.copies.copy_target import CopyBatch
from eventlog.spark.copies.copy_types import CopyError, takes_over

pytestmark = pytest.mark.xdist_group("changes")

SAME, LOST = "each value is the same", "values may be lost"
# before, a value of it, after (perhaps with USING), a value of that, what the change means
SHORT = [
    ("integer", "7", "bigint", "5000000000", SAME),
    ("numeric(10,2)", "1.25", "numeric(10,4)", "1.2345", SAME),
    ("date", "'2026-01-02'", "timestamp", "'2026-01-02 10:20:30.5'", SAME),
    ("varchar(3)", "'abc'", "text", "'abcdefghi'", SAME),
    ("integer", "7", "text", "'x'", LOST),
    ("numeric(10,4)", "1.2345", "numeric(10,2)", "1.25", LOST),
    ("timestamp", "'2026-01-02 10:20:30'", "timestamptz", "'2026-07-02 10:20:30+02'", LOST),
]
LONG = [
    ("integer", "7", "numeric(12,2)", "1.75", SAME),
    ("integer", "7", "double precision", "1.75", SAME),
    ("real", "1.1", "double precision", "1.1", LOST),
    ("smallint", "7", "integer", "70000", SAME),
    ("numeric(10,2)", "1.25", "numeric(14,2)", "123456789012.25", SAME),
    ("timestamp(0)", "'2026-01-02 10:20:30'", "timestamp(6)", "'2026-01-02 10:20:30.123456'", SAME),
    ("varchar(3)", "'abc'", "varchar(9)", "'abcdefghi'", SAME),
    ("bigint", "7", "integer", "8", LOST),
    ("bigint", "9007199254740993", "double precision", "1.75", LOST),
    ("integer", "7", "numeric", "1.75", LOST),
    ("text", "'7'", "integer USING v::integer", "8", LOST),
    ("timestamptz", "'2026-01-02 10:20:30+02'", "timestamp", "'2026-07-02 10:20:30'", LOST),
    ("timestamp", "'2026-01-02 10:20:30'", "date", "'2026-07-02'", LOST),
    ("char(3)", "'a'", "char(5)", "'abcd'", LOST),
    ("boolean", "true", "integer USING v::integer", "2", LOST),
]
AMONG = {f"t{number}": one for number, one in enumerate([*SHORT, *LONG])}
MATRICES = {"short": list(AMONG)[: len(SHORT)], "long": list(AMONG)[len(SHORT) :]}
TOLD = {name: f"{before} to {after}" for name, (before, _, after, _, _) in AMONG.items()}


def make_tables(engine: sa.Engine, names: list[str]) -> None:
    statements = [
        f"CREATE TABLE {name} (id integer PRIMARY KEY, v {before}, w text);"
        f"INSERT INTO {name} VALUES (1, {value}, 'first'), (2, {value}, 'first'), (3, NULL, 'x')"
        for name in names
        for before, value, _, _, _ in [AMONG[name]]
    ]
    run(engine, *";".join(statements).split(";"))


MODES = ("running", "restarted")
Copy = tuple[str, str]
"""A mode, and the name of a class."""


@dataclass
class Followed:
    """The copies of all classes, and which of them refused a batch."""

    config: Path
    place: Path
    names: list[str]
    made: Callable[[Path], Any]
    engine: Engine
    sources: dict[Copy, ClassSource] = field(default_factory=dict)
    refused: dict[Copy, str] = field(default_factory=dict)

    def step(self, on_type_change: str = ERROR) -> bool:
        """Run a batch; what refuses it has it not."""

        def put(number: int, rows: list[dict[str, Any]]) -> None:
            for (mode, name), source in self.sources.items():
                told = [_pairs(row) for row in rows if row["class"] == name]
                batch, copy = CopyBatch("query", number), self.made(self.place / mode / name)
                try:
                    put_batch(source, copy, batch, partial(_table, told), on_type_change)
                except CopyError as error:
                    self.refused[mode, name] = str(error)

        return self.engine.step(put)

    def begin(self, mode: str) -> None:
        config = load(self.config, {})
        self.sources |= {(mode, name): ClassSource.of(config, name) for name in self.names}


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, SCHEMA)


def _pairs(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, **{name: row[name] and list(row[name].items()) for name in ("key", "after")}}


def rows_of(database: sa.Engine, name: str) -> list[str]:
    with database.connect() as connection:
        connection.exec_driver_sql("SET TIME ZONE 'UTC'")
        rows = connection.exec_driver_sql(f"SELECT * FROM {name}").mappings()
        return sorted(repr(_plain(row)) for row in rows)


def copied(followed: Followed, copy: Copy) -> list[str]:
    mode, name = copy
    return sorted(repr(_plain(row)) for row in rows_in(followed.made(followed.place / mode / name)))


def _plain(row: Any) -> list[Any]:
    return [_comparable(value) for _, value in sorted(row.items())]


def _comparable(value: Any) -> Any:
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, Decimal):  # a number without a size is text
        return str(value)
    return value.rstrip() if isinstance(value, str) else value


def alter(name: str) -> str:
    return f"ALTER TABLE {name} ALTER v TYPE {AMONG[name][2]}"


class Outcome(NamedTuple):
    """What became of a copy: why it refused the change, if it did, and whether it changed then all
    the same; and whether it was equal in the end.
    """

    refused: str | None
    is_changed: bool
    is_equal: bool


@pytest.fixture(scope="module")
def short(new_database: Any, tmp_path_factory: Any) -> dict[Copy, Outcome]:
    return outcomes(new_database, tmp_path_factory.mktemp("short"), MATRICES["short"])


@pytest.fixture(scope="module")
def in_iceberg(new_database: Any, tmp_path_factory: Any) -> dict[Copy, Outcome]:
    place = tmp_path_factory.mktemp("iceberg")
    return outcomes(new_database, place, MATRICES["short"], iceberg_in)


@pytest.fixture(scope="module")
def long(new_database: Any, tmp_path_factory: Any) -> dict[Copy, Outcome]:
    return outcomes(new_database, tmp_path_factory.mktemp("long"), MATRICES["long"])


def outcomes(
    new_database: Any, place: Path, names: list[str], made: Callable[[Path], Any] = delta_in
) -> dict[Copy, Outcome]:
    """Change every class under two copies, of which one begins again, and bring them to the end of
    the log: first as they are, and those that refuse it with ``reload``.
    """
    among = {name: AMONG[name] for name in names}
    with new_database() as database:
        make_tables(database, names)
        config = watched(database, place, *names)
        reader = reader_of(config=config, start_from="latest", maxRowsPerBatch=15)
        followed = Followed(config, place, names, made, Engine(reader, place / "query"))
        for mode in MODES:
            followed.begin(mode)
        assert followed.step()
        run(
            database,
            # Rows that are far apart do not fold, so that a batch may end after any of them.
            "DO $$ BEGIN EXECUTE 'ALTER SEQUENCE ' || pg_get_serial_sequence('eventlog', "
            "'record_id') || ' INCREMENT 2000'; END $$",
            *(f"INSERT INTO {name} VALUES (4, {one[1]}, 'late')" for name, one in among.items()),
            *(f"UPDATE {name} SET w = 'late' WHERE id = 2" for name in names),
            "SET TIME ZONE 'America/New_York'",
            *map(alter, names),
            "RESET TIME ZONE",
            # By triggers of before, which log rows to be read back, and by those of now.
            *(f"INSERT INTO {name} VALUES (5, {one[3]}, 'new')" for name, one in among.items()),
        )
        assert cli.run(["--config", str(config), "--quiet", "triggers", "apply"]) == 0
        run(
            database,
            *(f"UPDATE {name} SET v = {one[3]} WHERE id = 1" for name, one in among.items()),
            *(f"INSERT INTO {name} VALUES (6, {one[3]}, 'new')" for name, one in among.items()),
        )
        before = {copy: copied(followed, copy) for copy in followed.sources}
        followed.begin("restarted")
        followed.step()
        refused = followed.refused
        changed = {copy for copy in refused if copied(followed, copy) != before[copy]}
        # The batch that was refused comes again.
        (place / "query" / "commits" / str(followed.engine.number - 1)).unlink()
        followed.engine, followed.refused = Engine(reader, place / "query"), {}
        while followed.step(RELOAD):
            pass
        close_cached_connection()
        reader.stop()
        assert followed.refused == {}
        rows = {name: rows_of(database, name) for name in names}
        return {
            copy: Outcome(
                refused.get(copy), copy in changed, copied(followed, copy) == rows[copy[1]]
            )
            for copy in followed.sources
        }


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("matrix", "name"),
    [
        *(pytest.param("short", name, id=TOLD[name]) for name in MATRICES["short"]),
        *(
            pytest.param("in_iceberg", name, id=f"{TOLD[name]} in Iceberg", marks=pytest.mark.night)
            for name in MATRICES["short"]
        ),
        *(
            pytest.param("long", name, id=TOLD[name], marks=pytest.mark.night)
            for name in MATRICES["long"]
        ),
    ],
)
def test_a_type_is_taken_over_value_by_value_or_refused_with_the_fix(
    request: pytest.FixtureRequest, matrix: str, name: str, mode: str
) -> None:
    outcome: Outcome = request.getfixturevalue(matrix)[mode, name]
    if AMONG[name][-1] == SAME:
        assert outcome.refused is None
    else:
        assert outcome.refused is not None
        assert "column v was " in outcome.refused
        assert 'on_type_change="reload"' in outcome.refused
        assert not outcome.is_changed
    assert outcome.is_equal


# --- one class ------------------------------------------------------------------------------------


ONE = "CREATE TABLE one (id integer PRIMARY KEY, v integer); INSERT INTO one VALUES (1, 7), (2, 8)"


def make_one(engine: sa.Engine) -> None:
    run(engine, *ONE.split(";"))
    with TemporaryDirectory() as directory:
        watched(engine, Path(directory), "one")


@pytest.fixture
def one(filled_database: Any, tmp_path: Path) -> Iterator[tuple[sa.Engine, Path]]:
    with filled_database(make_one) as database:
        yield database, configured(database, tmp_path, "one")
    close_cached_connection()


def test_a_resync_gives_existing_rows_the_default_of_a_new_column(
    one: tuple[sa.Engine, Path], tmp_path: Path
) -> None:
    database, config = one
    engine = Engine(reader_of(config=config, start_from="latest"), tmp_path / "query")
    source, copy = ClassSource.of(load(config, {}), "one"), delta_in(tmp_path)

    def put(number: int, rows: list[dict[str, Any]]) -> None:
        put_batch(source, copy, CopyBatch("query", number), partial(_table, [*map(_pairs, rows)]))

    engine.step(put)
    run(database, "ALTER TABLE one ADD w text DEFAULT 'none'")
    assert cli.run(["--config", str(config), "--quiet", "triggers", "apply"]) == 0
    run(database, "INSERT INTO one VALUES (3, 9)")
    while engine.step(put):
        pass
    assert column_of(copy, "w") == {1: None, 2: None, 3: "none"}
    where = ["--as-update", "--where", '"w" IS NOT NULL']
    assert cli.run(["--config", str(config), "--quiet", "resync", "one", *where]) == 0
    while engine.step(put):
        pass
    assert column_of(copy, "w") == {1: "none", 2: "none", 3: "none"}


def test_another_key_is_refused_or_the_class_is_loaded_again_with_it(
    one: tuple[sa.Engine, Path], tmp_path: Path
) -> None:
    database, config = one
    engine = Engine(reader_of(config=config, start_from="latest"), tmp_path / "query")
    source, copy = ClassSource.of(load(config, {}), "one"), delta_in(tmp_path)

    def put(number: int, rows: list[dict[str, Any]], what: str = ERROR) -> None:
        put_batch(
            source, copy, CopyBatch("query", number), partial(_table, [*map(_pairs, rows)]), what
        )

    engine.step(put)
    run(
        database,
        "UPDATE one SET v = 70 WHERE id = 1",
        "ALTER TABLE one DROP CONSTRAINT one_pkey, ADD PRIMARY KEY (v, id)",
    )
    assert cli.run(["--config", str(config), "--quiet", "triggers", "apply"]) == 0
    run(database, "UPDATE one SET v = 80 WHERE id = 2")
    with pytest.raises(CopyError, match="the key was id and is v, id"):
        engine.step(put)
    while engine.step(partial(put, what=RELOAD)):
        pass
    assert column_of(copy, "v") == {1: 70, 2: 80}


def test_a_class_that_changes_while_it_is_loaded_is_not_written(
    one: tuple[sa.Engine, Path], tmp_path: Path
) -> None:
    database, config = one
    source, copy = ClassSource.of(load(config, {}), "one"), delta_in(tmp_path)
    loading = source.loading()

    def rows() -> Iterator[pa.RecordBatch]:
        for batch in loading.rows:
            yield batch
            run(database, "ALTER TABLE one ALTER v TYPE numeric(10,2)")

    with pytest.raises(DatabaseError, match="columns of one changed during the load"):
        copy.load(CopyBatch("query", 0), source.content, loading._replace(rows=rows()))
    assert copy.number_done("query", source.content) is None


def column_of(copy: Any, column: str) -> dict[int, Any]:
    read = rows_in(copy)
    assert len({row["id"] for row in read}) == len(read)
    return {row["id"]: row[column] for row in read}


@pytest.mark.parametrize(
    ("before", "after", "is_same"),
    [
        (ColumnType(Kind.INTEGER, 0, "numeric(5)"), ColumnType(Kind.INTEGER, 0, "numeric(9)"), True),
        (ColumnType(Kind.INTEGER, 0, "numeric(9)"), ColumnType(Kind.INTEGER, 0, "numeric(5)"), False),
        (ColumnType(Kind.INTEGER, 64, "bigint"), ColumnType(Kind.INTEGER, 0, "numeric(9)"), False),
        (ColumnType(Kind.EXACT, 0, "numeric(9,2)"), ColumnType(Kind.EXACT, 0, "numeric"), False),
        (ColumnType(Kind.TIMESTAMP, 0, "datetime(6)"), ColumnType(Kind.TIMESTAMP, 0, "datetime"), False),
        (ColumnType(Kind.TIMESTAMP, 0, "datetime"), ColumnType(Kind.TIMESTAMP, 0, "datetime(6)"), False),
        (ColumnType(Kind.CHARACTER, 0, "text"), ColumnType(Kind.CHARACTER, 0, "varchar(9)"), False),
    ],
)  # fmt: skip
def test_no_change_is_taken_over_if_a_type_has_no_size(
    before: ColumnType, after: ColumnType, is_same: bool
) -> None:
    assert takes_over(before, after) is is_same
