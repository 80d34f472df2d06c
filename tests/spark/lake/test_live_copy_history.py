"""The history of a live copy: its versions are what happened, and the table as of a moment is the
table of then, whatever is killed in between.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

pytest.importorskip("deltalake", reason="the extra delta is not installed")

from pyspark.sql import SparkSession
from pyspark.sql import types as t
from test_live_copy import (
    INSERT,
    assert_equal,
    comparable_rows,
    installed,
    make_accounts,
    run,
    source_rows,
)
from test_live_copy_batches import (
    NAMED,
    PAY,
    A,
    Rows,
    Source,
    batch_of,
    changes_of,
    columns_of,
    delta_in,
    held_by,
    iceberg_in,
    row_of,
)

from eventlog.core.values import ColumnType, Kind
from eventlog.errors import ConfigError
from eventlog.spark import as_of, delta, history, live_copy
from eventlog.spark.changes.changes import HAS_STREAMS
from eventlog.spark.copies import copy_query
from eventlog.spark.copies.copy_history import History
from eventlog.spark.copies.copy_target import CopyBatch
from eventlog.spark.copies.copy_types import CopyError

MADE: dict[str, Callable[[Path], Any]] = {"delta": delta_in, "iceberg": iceberg_in}
WIDER = [*NAMED[:2], (PAY, t.DecimalType(12, 4), ColumnType(Kind.EXACT, 0, "numeric(12,4)"))]
Version = tuple[int, str | None, Decimal | None, dt.datetime, dt.datetime | None]
"""The key, the values, and the times of a version."""


class Killed(BaseException):
    """What ends a driver in the midst of a batch: nothing of ours catches it."""


@dataclass
class Story:
    """A class that changes, and its copy with a history. ``told`` is the expected history."""

    copy: Any
    chance: random.Random
    source: Source = field(default_factory=lambda: Source({}))
    rows: Rows = field(default_factory=Rows)
    query: str = "query"
    number: int = -1
    told: list[Version] = field(default_factory=list)
    moments: dict[dt.datetime, list[Version]] = field(default_factory=dict)

    def later(self) -> dt.datetime:
        self.source.time += dt.timedelta(seconds=self.chance.choice((1, 1, 60)))
        return self.source.time

    def put(self, changes: list[Any], kill: str | None = None) -> None:
        """Run a batch, perhaps killed before one of its steps and repeated, perhaps twice."""
        kept = History(self.source, self.copy)
        batch, rows = CopyBatch(self.query, self.number), partial(batch_of, changes[::-1])
        if kill is not None:
            with pytest.MonkeyPatch.context() as patched, suppress(Killed):
                patched.setattr(type(self.copy), kill, killed)
                copy_query.put_batch(self.source, self.copy, batch, rows, history=kept)
        for _ in range(self.chance.randint(1, 2)):
            copy_query.put_batch(self.source, self.copy, batch, rows, history=kept)

    def load(self, kill: str | None = None) -> None:
        """Begin a query with a new name: it loads the class again."""
        self.query, self.number = f"a name after {self.query}", 0
        self.source.rows = self.rows
        now = self.later()
        self.put([], kill)
        for key in [*self.open()]:
            self.end(key, now)
        for key in self.rows:
            self.begin(key, now)
        self.look()

    def change(self, kill: str | None = None) -> None:
        """Run a batch of changes of random rows."""
        told: list[Any] = []
        for _ in range(self.chance.randint(0, 4)):
            step = (
                self.chance.choice(["put", "patch", "patch", "delete", "rekey"]),
                self.chance.randint(1, 4), self.chance.choice([None, "", "x", "ü"]),
                self.chance.choice([None, Decimal("0.00"), Decimal("-99999999.99")]),
                self.chance.choice([(A,), (PAY,), (A, PAY)]), self.chance.randint(5, 7),
            )  # fmt: skip
            now = self.later()
            for change in changes_of(self.rows, [step], self.source.highest + 1):
                self.source.highest = change["position"]
                told.append(change | {"commit_time": now})
                key = int(change["key"][0][1])
                if key in self.open():
                    self.end(key, now)
                if change["operation"] != "delete":
                    self.begin(key, now)
            self.look()
        self.number += 1
        self.put(told, kill)

    def open(self) -> dict[int, Version]:
        return {one[0]: one for one in self.told if one[-1] is None}

    def end(self, key: int, now: dt.datetime) -> None:
        one = self.open()[key]
        self.told[self.told.index(one)] = (*one[:-1], now)

    def begin(self, key: int, now: dt.datetime) -> None:
        self.told.append((key, self.rows[key][A], self.rows[key][PAY], now, None))

    def look(self) -> None:
        """Note the table of a moment after the last change and before the next one."""
        self.moments[self.source.time + dt.timedelta(milliseconds=500)] = [*self.open().values()]


def killed(*_: object, **__: object) -> None:
    raise Killed


def random_story(copy: Any, seed: int) -> Story:
    """Do what can happen in a random order."""
    story = Story(copy, random.Random(seed))
    changes_of(story.rows, [("put", 1, "x", Decimal(1), (), 5)], 0)
    story.load()
    acts = ["change"] * 6 + ["killed", "killed", "load", "killed load", "wider", "change"]
    story.chance.shuffle(acts)
    for act in acts:
        if act == "wider":
            story.source.columns = columns_of(WIDER)
        elif "load" in act:
            story.load(kill="append" if "killed" in act else None)
        else:
            steps = ["append", "merge"]
            story.change(kill=story.chance.choice(steps) if act == "killed" else None)
    return story


def versions_in(frame: Any) -> list[Any]:
    rows = [
        (row["id"], row[A], row[PAY], row["valid_from"], row["valid_to"])
        for row in frame.toArrow().to_pylist()
    ]
    return sorted(rows, key=lambda row: (row[3], row[0]))


@pytest.mark.promise("spark as_of", "spark history")
@pytest.mark.parametrize(
    ("made", "seed"),
    [
        ("delta", 1),
        *(
            pytest.param(made, seed, marks=pytest.mark.night)
            for made in MADE
            for seed in range(2, 22)
        ),
    ],
)
def test_the_versions_are_what_happened_and_the_table_of_a_moment_is_that_of_then(
    spark: SparkSession, tmp_path: Path, made: str, seed: int
) -> None:
    story = random_story(MADE[made](tmp_path), seed)
    assert held_by(story.copy) == story.rows
    told = sorted(story.told, key=lambda one: (one[3], one[0]))
    assert versions_in(history(spark, story.copy)) == told
    for moment in story.chance.sample([*story.moments], 1 if seed == 1 else 3):
        then = as_of(spark, story.copy, moment).toArrow().to_pylist()
        rows = [(row["id"], row[A], row[PAY]) for row in then]
        assert sorted(rows, key=repr) == sorted(
            (one[:3] for one in story.moments[moment]), key=repr
        )


# --- a log ----------------------------------------------------------------------------------------


@pytest.fixture
def database(spark: SparkSession, filled_database: Any) -> Iterator[sa.Engine]:
    with filled_database(make_accounts) as made:
        yield made


def table_now(database: sa.Engine) -> tuple[dt.datetime, list[Any]]:
    """Return the database's time, and the table at it."""
    with database.connect() as connection:
        now = connection.exec_driver_sql("SELECT clock_timestamp()").scalar_one()
    return now, source_rows(database)


@pytest.mark.skipif(not HAS_STREAMS, reason="streams need PySpark 4.2")
def test_a_copy_that_gets_a_history_has_its_first_state_and_then_each_change_of_a_statement(
    spark: SparkSession, database: sa.Engine, tmp_path: Path
) -> None:
    """Also where one batch has the changes of several statements."""
    run(database, INSERT.format(first=1, last=5))
    config, copy = installed(database, tmp_path), delta(tmp_path / "acct")
    follow = partial(
        live_copy, spark, config, "acct", copy, checkpoint=tmp_path / "checkpoint",
        trigger={"availableNow": True},
    )  # fmt: skip
    follow().awaitTermination()
    query = follow(history=True)
    first = versions_of(spark, copy)
    query.awaitTermination()
    assert len(first) == 5
    assert versions_of(spark, copy) == first

    moments = [table_now(database)]
    for statements in (
        ["UPDATE acct SET pay = 7, photo = NULL WHERE no < 3", "UPDATE acct SET pay = 8"],
        ["UPDATE acct SET no = 1003, owner = 'moved' WHERE no = 3", INSERT.format(first=9, last=9)],
        ["DELETE FROM acct WHERE no < 3"],
        [INSERT.format(first=1, last=1), "UPDATE acct SET owner = 'again' WHERE no = 1"],
    ):
        for statement in statements:
            run(database, statement)
            moments.append(table_now(database))
    follow(history=True).awaitTermination()
    assert_equal(database, tmp_path)
    versions = history(spark, copy).toArrow().to_pylist()
    for moment, rows in moments:
        valid = [one for one in versions if one["valid_from"] <= moment]
        then = [one for one in valid if one["valid_to"] is None or one["valid_to"] > moment]
        assert comparable_rows({name: one[name] for name in rows[0]} for one in then) == rows


def versions_of(spark: SparkSession, copy: Any) -> list[Any]:
    rows = history(spark, copy).select("no", "valid_from", "valid_to").collect()
    return sorted(tuple(row) for row in rows)


def test_a_history_that_cannot_begin_ends_the_query_at_once(
    spark: SparkSession, database: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, copy = installed(database, tmp_path), delta(tmp_path / "acct")

    def refuse(*_: object) -> None:
        raise CopyError("another table stands there")

    monkeypatch.setattr(History, "begin", refuse)
    with pytest.raises(CopyError, match="another table"):
        live_copy(spark, config, "acct", copy, checkpoint=tmp_path / "checkpoint", history=True)
    assert not [one for one in spark.streams.active if one.isActive]


@pytest.mark.parametrize("made", MADE)
def test_a_row_is_whole_also_where_the_key_is_a_text_of_a_file_that_was_merged(
    tmp_path: Path, made: str
) -> None:
    named = [("id", t.StringType(), ColumnType(Kind.CHARACTER)), *NAMED[1:]]
    source = Source({}, named)
    copy = MADE[made](tmp_path)
    kept = History(source, copy)
    put = partial(copy_query.put_batch, source, copy, history=kept)
    put(CopyBatch("query", 0), lambda: batch_of([]))
    for number, told in enumerate(({A: "x", PAY: "1"}, {PAY: "2"}, {A: None}), 1):
        changes = batch_of([row_of(number, "modify", 7, told)])
        put(CopyBatch("query", number), lambda changes=changes: changes)  # type: ignore[misc]
    files: Any = kept.table.files()
    rows = [row for part in files.rows(range(files.count)) for row in part.to_pylist()]
    said = {row["_batch"]: (row["id"], row[A], row[PAY]) for row in rows if row["_batch"]}
    assert said == {
        1: ("7", "x", Decimal(1)),
        2: ("7", "x", Decimal(2)),
        3: ("7", None, Decimal(2)),
    }


@pytest.mark.parametrize("made", MADE)
def test_a_row_is_whole_also_where_the_key_has_another_type_than_before(
    tmp_path: Path, made: str
) -> None:
    day: Any = dt.date(2026, 1, 2)
    source = Source(
        {day: {A: "x", PAY: None}}, [("id", t.DateType(), ColumnType(Kind.DATE)), *NAMED[1:]]
    )
    copy = MADE[made](tmp_path)
    kept = History(source, copy)
    put = partial(copy_query.put_batch, source, copy, history=kept)
    put(CopyBatch("query", 0), lambda: batch_of([]))
    moment = ("id", t.TimestampNTZType(), ColumnType(Kind.TIMESTAMP))
    source.columns = columns_of([moment, *NAMED[1:]])
    told: Any = row_of(1, "modify", 0, {PAY: 2}) | {"key": [("id", "2026-01-02T00:00:00")]}
    put(CopyBatch("query", 1), lambda: batch_of([told]))
    rows = [row for part in kept.table.rows() for row in part.to_pylist()]
    (said,) = (row for row in rows if row["_operation"] == "modify")
    assert (said["id"], said[A], said[PAY]) == (dt.datetime(2026, 1, 2), "x", 2)


@pytest.mark.promise("spark iceberg")
def test_a_driver_that_ends_between_making_an_iceberg_table_and_its_first_commit_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, copy = Source({1: {A: "x", PAY: None}}), iceberg_in(tmp_path)
    kept = History(source, copy)
    put = partial(copy_query.put_batch, source, copy, CopyBatch("query", 0), lambda: batch_of([]))
    put()
    with monkeypatch.context() as patched, suppress(Killed):
        patched.setattr(type(copy), "with_new_columns", killed)
        put(history=kept)
    put(history=kept)
    rows = [row for part in kept.table.rows() for row in part.to_pylist()]
    assert [(row["_operation"], row[A]) for row in rows] == [("truncate", None), ("load", "x")]


# --- what is refused ------------------------------------------------------------------------------


def test_a_history_that_cannot_be_kept_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    source, copy = (
        Source({}, [*NAMED, ("_Load", t.LongType(), ColumnType(Kind.INTEGER, 64))]),
        delta_in(tmp_path),
    )
    with pytest.raises(CopyError, match="acct has a column _Load, a name that every history"):
        copy_query.put_batch(
            source, copy, CopyBatch("query", 0), lambda: batch_of([]), history=History(source, copy)
        )
    with pytest.raises(ConfigError, match="cannot be used with history=True"):
        live_copy(
            spark, tmp_path, "acct", copy, checkpoint=tmp_path, history=True,
            on_type_change="reload",
        )  # fmt: skip


@pytest.mark.parametrize("made", MADE)
def test_a_history_refuses_another_type_and_stays_as_it_is(tmp_path: Path, made: str) -> None:
    source, copy = Source({1: {A: "x", PAY: None}}), MADE[made](tmp_path)
    kept = History(source, copy)
    put = partial(copy_query.put_batch, source, copy, history=kept)
    put(CopyBatch("query", 0), lambda: batch_of([]))
    before = [part.to_pylist() for part in kept.table.rows()]
    source.columns = columns_of([*NAMED[:2], (PAY, t.StringType(), ColumnType(Kind.CHARACTER))])
    told = batch_of([row_of(1, "modify", 1, {PAY: "x"})])
    for batch in (CopyBatch("query", 1), CopyBatch("another", 0)):
        with pytest.raises(CopyError, match=r"column Pay was .* another table and a new"):
            put(batch, lambda: told)
    assert [part.to_pylist() for part in kept.table.rows()] == before


def test_what_a_history_does_not_know_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    named = [*NAMED, ("valid_to", t.DateType(), ColumnType(Kind.DATE))]
    source, copy = Source({}, named), delta_in(tmp_path)
    with pytest.raises(ConfigError, match=r"no history\. Start live_copy with history=True"):
        history(spark, copy)
    copy_query.put_batch(
        source, copy, CopyBatch("query", 0), lambda: batch_of([]), history=History(source, copy)
    )
    with pytest.raises(ConfigError, match=r"is not known: its history begins at 2026-01-01T00:00"):
        as_of(spark, copy, dt.datetime(2025, 12, 31, tzinfo=dt.UTC))
    with pytest.raises(
        ConfigError, match=r"the argument time is .*give a datetime\.datetime with its zone"
    ):
        as_of(spark, copy, dt.datetime(2026, 12, 31))
    with pytest.raises(ConfigError, match=r"the class has a column valid_to\. Call history"):
        history(spark, copy)
    assert history(spark, copy, valid_from="begins", valid_to="ends").columns[-2:] == [
        "begins",
        "ends",
    ]


@pytest.mark.parametrize("made", MADE)
def test_only_one_of_two_drivers_of_a_query_writes_a_batch_into_the_history(
    tmp_path: Path, made: str
) -> None:
    source, copy = Source({}), MADE[made](tmp_path)
    kept = History(source, copy)
    put = partial(copy_query.put_batch, source, copy, history=kept)
    put(CopyBatch("query", 0), lambda: batch_of([]))
    told = [row_of(1, "add", 1, {A: "x"})]

    def behind_another() -> Any:
        put(CopyBatch("query", 1), lambda: batch_of(told))
        return batch_of(told)

    with suppress(Exception):  # which of its steps fails is the table's
        put(CopyBatch("query", 1), behind_another)
    assert [row["_operation"] for part in kept.table.rows() for row in part.to_pylist()].count(
        "add"
    ) == 1
    assert held_by(copy) == {1: {A: "x", PAY: None}}
