"""The result of a batch of changes, and how it is written to a Delta table: without Spark."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("deltalake", reason="the extra delta is not installed")

from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import types as t

from eventlog.config.load import load
from eventlog.core.ranges import RecordSet
from eventlog.core.values import ColumnType, Kind
from eventlog.core.values.typed_values import value_reader
from eventlog.spark.copies import copy_query, delta_copy, iceberg_copy, iceberg_files
from eventlog.spark.copies.copy_history import Target
from eventlog.spark.copies.copy_source import ClassSource
from eventlog.spark.copies.copy_target import (
    CopyBatch,
    CopyLoad,
    LatestChange,
    Nulled,
    latest_changes,
    merge_source,
)
from eventlog.spark.copies.copy_types import Columns, CopyError, Note
from eventlog.spark.copies.delta_copy import delta
from eventlog.spark.copies.iceberg_copy import IcebergCopy, iceberg

pytestmark = pytest.mark.xdist_group("changes")  # without Java: in another worker

Named = Sequence[tuple[str, t.DataType, ColumnType]]
A, PAY = 'a "quoted" one', "Pay"
AT = ("at", t.TimestampNTZType(), ColumnType(Kind.TIMESTAMP))
NAMED: Named = [
    ("id", t.LongType(), ColumnType(Kind.INTEGER, 64)),
    (A, t.StringType(), ColumnType(Kind.CHARACTER)),
    (PAY, t.DecimalType(10, 2), ColumnType(Kind.EXACT, 0, "numeric(10,2)")),
]


def columns_of(named: Named) -> Columns:
    types = t.StructType([t.StructField(name, kind) for name, kind, _ in named])
    return Columns(
        types,
        {name: value_reader(kind) for name, _, kind in named},
        ("id",),
        {name: kind for name, _, kind in named},
    )


Rows = dict[int, dict[str, Any]]


class Source(ClassSource):
    """A class whose rows and columns a test holds, in place of a database, with its clock and the
    highest record_id of its log.
    """

    time = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    highest = 0

    def __init__(self, rows: Rows, columns_now: Named = NAMED) -> None:
        super().__init__(load(None, {}), "acct", columns_of(columns_now))
        self.rows = {key: dict(row) for key, row in rows.items()}

    def refresh(self) -> bool:
        return False

    def moment(self) -> dt.datetime:
        return self.time

    def loading(self) -> CopyLoad:
        rows = [{"id": key, **row} for key, row in self.rows.items()]
        note = Note(self.columns.key, self.columns.declared, RecordSet(self.highest))
        batch = pa.RecordBatch.from_pylist(rows, schema=self.columns.schema)
        return CopyLoad(note, self.columns, iter([batch]), Nulled())


def put_batch(
    source: ClassSource,
    copy: Target,
    query: str,
    number: int,
    rows: Any,
    on_type_change: str = "error",
) -> None:
    copy_query.put_batch(source, copy, CopyBatch(query, number), rows, on_type_change)


def row_of(position: int, operation: str, key: int, after: Mapping[str, Any] | None) -> Any:
    texts = after and [
        (name, None if value is None else str(value)) for name, value in after.items()
    ]
    changed = None if after is None else sorted(after.keys() - {"id"})
    return {
        "position": position, "record_ids": [position], "operation": operation,
        "key": [("id", str(key))], "after": texts, "changed": changed,
    }  # fmt: skip


def batch_of(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    texts = pa.map_(pa.string(), pa.string())
    schema = pa.schema([
        ("position", pa.int64()), ("record_ids", pa.list_(pa.int64())), ("operation", pa.string()),
        ("key", texts), ("after", texts), ("changed", pa.list_(pa.string())),
        ("commit_time", pa.timestamp("us", "UTC")),
    ])  # fmt: skip
    return pa.Table.from_pylist(list(rows), schema=schema)


@pytest.fixture(params=["delta", "iceberg"])
def make(request: pytest.FixtureRequest) -> Callable[[Path], Any]:
    """A function that makes the copy of a directory."""
    return {"delta": delta_in, "iceberg": iceberg_in}[request.param]


def delta_in(directory: Path) -> Any:
    return delta(directory / "t")


def iceberg_in(directory: Path) -> Any:
    pytest.importorskip("pyiceberg", reason="the extra iceberg is not installed")
    directory.mkdir(parents=True, exist_ok=True)
    return iceberg(
        "lake", "copies.t", type="sql", uri=f"sqlite:///{directory}/catalogue.db",
        warehouse=f"file://{directory}",
    )  # fmt: skip


def rows_of(copy: Any) -> list[dict[str, Any]]:
    if isinstance(copy, IcebergCopy):
        # With a reader that uses only the files.
        from pyiceberg.table import StaticTable

        place = copy.catalog.load_table(copy.name).metadata_location
        return list(StaticTable.from_metadata(place).scan().to_arrow().to_pylist())
    return list(DeltaTable(copy.uri).to_pyarrow_table().to_pylist())


def held_by(copy: Any) -> Rows:
    read = rows_of(copy)
    assert len({row["id"] for row in read}) == len(read)
    return {row["id"]: {name: value for name, value in row.items() if name != "id"} for row in read}


# --- the last change ------------------------------------------------------------------------------


def said(**values: Any) -> LatestChange:
    """The change of an event that writes these columns."""
    return LatestChange(is_gone=False, is_whole=False, values=values)


GONE = LatestChange(is_gone=True, is_whole=True, values={})


def test_a_column_that_is_set_to_null_differs_from_one_that_was_not_captured(
    make: Callable[[Path], Any], tmp_path: Path
) -> None:
    copy = make(tmp_path)
    put_batch(Source({1: {A: "x", PAY: Decimal(1)}}), copy, "query", 0, lambda: batch_of([]))
    put_batch(Source({}), copy, "query", 1, lambda: batch_of([row_of(1, "modify", 1, {A: None})]))
    assert held_by(copy) == {1: {A: None, PAY: Decimal(1)}}


def test_events_of_one_object_are_put_together() -> None:
    assert latest_changes([((1,), said(a=1)), ((1,), said(b=2))]) == {(1,): said(a=1, b=2)}


def test_what_is_deleted_and_comes_again_keeps_nothing_of_before() -> None:
    latest = latest_changes([((1,), said(b=2)), ((1,), GONE), ((1,), said(a=1))])
    assert latest == {(1,): LatestChange(is_gone=False, is_whole=True, values={"a": 1})}


def test_a_whole_row_replaces_earlier_changes() -> None:
    whole = LatestChange(is_gone=False, is_whole=True, values={"a": 1})
    assert latest_changes([((1,), said(b=2)), ((1,), whole)]) == {(1,): whole}


def test_an_insert_that_comes_in_two_batches_loses_no_column(
    make: Callable[[Path], Any], tmp_path: Path
) -> None:
    copy = make(tmp_path)
    put_batch(Source({}), copy, "query", 0, lambda: batch_of([]))
    put_batch(Source({}), copy, "query", 1, lambda: batch_of([row_of(1, "add", 1, {A: "x"})]))
    put_batch(Source({}), copy, "query", 2, lambda: batch_of([row_of(2, "add", 1, {PAY: 2})]))
    assert held_by(copy) == {1: {A: "x", PAY: Decimal(2)}}


def test_a_batch_of_deletes_of_what_the_copy_lacks_is_recorded(
    make: Callable[[Path], Any], tmp_path: Path
) -> None:
    """A filter makes such batches, and verify needs the rows that the copy has."""
    source, copy = Source({}), make(tmp_path)
    put_batch(source, copy, "query", 0, lambda: batch_of([]))
    put_batch(source, copy, "query", 1, lambda: batch_of([row_of(1, "delete", 7, None)]))
    stored = copy.number_done("query", source.content)
    assert stored is not None
    assert stored.number == 1


def test_a_row_that_was_read_back_is_taken_as_a_whole(
    make: Callable[[Path], Any], tmp_path: Path
) -> None:
    copy = make(tmp_path)
    put_batch(Source({1: {A: "x", PAY: Decimal(1)}}), copy, "query", 0, lambda: batch_of([]))
    resynced = row_of(1, "add", 1, {A: "y"}) | {"changed": None}
    put_batch(Source({}), copy, "query", 1, lambda: batch_of([resynced]))
    assert held_by(copy) == {1: {A: "y", PAY: None}}


# --- a Delta table --------------------------------------------------------------------------------

VALUES = st.sampled_from([None, "", "x", "ü"])
PAYS = st.sampled_from([None, Decimal("0.00"), Decimal("1.50"), Decimal("-99999999.99")])
STEPS = st.tuples(
    st.sampled_from(["put", "patch", "delete", "rekey"]), st.integers(1, 4), VALUES, PAYS,
    st.sampled_from([(A,), (PAY,), (A, PAY)]), st.integers(5, 7),
)  # fmt: skip


def changes_of(rows: Rows, steps: Iterable[Any], place: int) -> list[Any]:
    """Do steps to rows; the changes that a log would tell of them."""
    told: list[Any] = []

    def tell(*change: Any) -> None:
        told.append(row_of(place + len(told), *change))

    def put(key: int, row: dict[str, Any]) -> None:
        rows[key] = row
        tell("add", key, {"id": key, **row})

    for kind, key, a, pay, said, other in steps:
        if kind == "put" and key not in rows:
            put(key, {A: a, PAY: pay})
        elif kind == "patch" and key in rows:
            new = {name: value for name, value in {A: a, PAY: pay}.items() if name in said}
            rows[key] = rows[key] | new
            tell("modify", key, {"id": key, **new})
        elif kind == "delete" and key in rows:
            del rows[key]
            tell("delete", key, None)
        elif kind == "rekey" and key in rows and other not in rows:
            row = rows.pop(key)
            tell("delete", key, None)
            put(other, row)
    return told


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    before=st.lists(STEPS, max_size=8),
    batches=st.lists(
        st.tuples(st.lists(STEPS, max_size=8), st.integers(1, 2)), min_size=1, max_size=4
    ),
)
def test_the_copy_equals_the_table_after_every_batch_however_often_each_comes(
    make: Callable[[Path], Any],
    tmp_path_factory: pytest.TempPathFactory,
    before: list[Any],
    batches: list[tuple[list[Any], int]],
) -> None:
    copy, rows, place = make(tmp_path_factory.mktemp("copy")), Rows(), 1
    changes_of(rows, before, place)
    put_batch(Source(rows), copy, "query", 0, lambda: pytest.fail("a first load reads the class"))
    assert held_by(copy) == rows
    for number, (steps, times) in enumerate(batches, 1):
        changes = changes_of(rows, steps, place)
        place += len(changes)
        # Spark gives no order: the places do.
        for _ in range(times):
            put_batch(Source({}), copy, "query", number, partial(batch_of, changes[::-1]))
        assert held_by(copy) == rows


def test_what_the_first_load_has_seen_already_may_come_again(
    make: Callable[[Path], Any], tmp_path: Path
) -> None:
    copy, rows = make(tmp_path), Rows()
    early = changes_of(rows, [("put", 1, "x", None, (), 5), ("put", 2, "x", None, (), 5)], 1)
    late = changes_of(rows, [("patch", 1, "y", None, (A,), 5), ("delete", 2, "", None, (), 5)], 3)
    put_batch(Source(rows), copy, "query", 0, lambda: batch_of([]))
    put_batch(Source({}), copy, "query", 1, lambda: batch_of(early))
    put_batch(Source({}), copy, "query", 2, lambda: batch_of(late))
    assert held_by(copy) == rows == {1: {A: "y", PAY: None}}


def test_a_query_with_a_new_checkpoint_loads_again(
    make: Callable[[Path], Any], tmp_path: Path
) -> None:
    copy = make(tmp_path)
    for number in range(3):
        put_batch(Source({1: {A: "old", PAY: None}}), copy, "query", number, lambda: batch_of([]))
    put_batch(Source({2: {A: "new", PAY: None}}), copy, "another", 0, lambda: batch_of([]))
    assert held_by(copy) == {2: {A: "new", PAY: None}}
    put_batch(Source({}), copy, "another", 1, lambda: batch_of([row_of(9, "delete", 2, None)]))
    assert held_by(copy) == {}


def test_a_column_that_is_new_is_added_and_is_null_until_it_is_set(
    make: Callable[[Path], Any], tmp_path: Path
) -> None:
    copy = make(tmp_path)
    put_batch(Source({1: {A: "x", PAY: None}}), copy, "query", 0, lambda: batch_of([]))
    at = dt.datetime(2026, 1, 2, 3, 4, 5, 678901)
    changes = [
        row_of(
            1, "add", 2, {"id": 2, A: "y", "at": "2026-01-02T03:04:05.678901", "child.of it": "z"}
        )
    ]
    put_batch(Source({}, [*NAMED, AT]), copy, "query", 1, lambda: batch_of(changes))
    assert held_by(copy) == {1: {A: "x", PAY: None, "at": None}, 2: {A: "y", PAY: None, "at": at}}


def test_a_commit_records_when_the_newest_of_its_changes_was_committed(tmp_path: Path) -> None:
    copy, at = delta(tmp_path / "t"), dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    put_batch(Source({}), copy, "query", 0, lambda: batch_of([]))
    changes = [
        row_of(1, "delete", 1, None) | {"commit_time": at - dt.timedelta(1)},
        row_of(2, "add", 1, {A: "x"}),
    ]
    changes[1]["commit_time"] = at
    put_batch(Source({}), copy, "query", 1, lambda: batch_of(changes))
    newest, first = DeltaTable(copy.uri).history()
    assert (newest["batch"], newest["newest_commit_time"]) == ("1", at.isoformat())
    assert first["batch"] == "0"
    assert "newest_commit_time" not in first


def test_the_rows_that_a_copy_contains_are_found_if_newer_commits_do_not_name_them(
    tmp_path: Path,
) -> None:
    copy = delta(tmp_path / "t")
    put_batch(Source({}), copy, "query", 0, lambda: batch_of([]))
    for number in range(1, 15):
        batch = CopyBatch("query", number, RecordSet(7).encode() if number == 1 else "")
        rows = [row_of(number, "add", number, {A: "x"})]
        copy_query.put_batch(Source({}), copy, batch, lambda rows=rows: batch_of(rows))
    done, version = copy.done()
    assert done is not None
    assert done.encode() == RecordSet(7).encode()
    assert version == DeltaTable(copy.uri).version()


def test_the_rows_that_a_copy_contains_are_found_while_commits_never_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = delta(tmp_path / "t")
    put_batch(Source({}), copy, "query", 0, lambda: batch_of([]))
    number, most = count(1), 20
    history = DeltaTable.history

    def put_next() -> int:
        place = next(number)
        assert place < most
        rows = [row_of(place, "add", place, {A: "x"})]
        batch = CopyBatch("query", place, RecordSet(place).encode())
        copy_query.put_batch(Source({}), copy, batch, lambda: batch_of(rows))
        return place

    def beside_a_writer(table: DeltaTable, limit: int | None = None) -> list[dict[str, Any]]:
        for _ in range(limit or 1):
            put_next()
        return history(table, limit)

    last = put_next()
    monkeypatch.setattr(DeltaTable, "history", beside_a_writer)
    monkeypatch.setattr(delta_copy, "COMMITS", (2, 3, None))
    done, version = copy.done()
    assert done is not None
    assert done.encode() == RecordSet(last).encode()
    assert DeltaTable(copy.uri, version=version).to_pyarrow_table().num_rows == last


def test_columns_of_any_name_are_followed(make: Callable[[Path], Any], tmp_path: Path) -> None:
    flags = [
        (name, t.BooleanType(), ColumnType(Kind.BOOLEAN))
        for name in ("is gone", "sets Pay", "_is gone", "__x")
    ]
    copy, named = make(tmp_path), [*NAMED, *flags]
    row = {A: "x", PAY: Decimal(1), **{name: False for name, _, _ in flags}}
    put_batch(Source({1: row}, named), copy, "query", 0, lambda: batch_of([]))
    told = [row_of(1, "modify", 1, {name: "true" for name, _, _ in flags})]
    put_batch(Source({}, named), copy, "query", 1, lambda: batch_of(told))
    assert held_by(copy) == {1: row | {name: True for name, _, _ in flags}}


@pytest.mark.parametrize("holds", ["live copy of other, by eventlog", None])
def test_a_table_of_anything_else_is_refused_and_stays_as_it_is(
    tmp_path: Path, holds: str | None
) -> None:
    write_deltalake(tmp_path / "t", pa.table({"x": [1]}), description=holds)
    with pytest.raises(
        CopyError, match=f"contains {holds or 'no live copy'}, not live copy of acct"
    ):
        put_batch(Source({}), delta(tmp_path / "t"), "query", 0, lambda: batch_of([]))
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().to_pydict() == {"x": [1]}


# --- Iceberg --------------------------------------------------------------------------------------


class Killed(BaseException):
    """What ends a driver in the midst of a batch: nothing of ours catches it."""


def kill_at(step: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """End the writer at a step: when a file is begun, or before or after a commit. Return the list
    to which the steps are added.
    """
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.io.pyarrow import PyArrowFileIO

    steps: list[str] = []

    def at(what: str) -> None:
        steps.append(what)
        if len(steps) == step:
            raise Killed

    def wrapped(owner: Any, name: str, *, both: bool) -> None:
        original = getattr(owner, name)

        def run(*given: Any, **named: Any) -> Any:
            at(f"before {name}")
            done = original(*given, **named)
            if both:
                at(f"behind {name}")
            return done

        monkeypatch.setattr(owner, name, run)

    wrapped(PyArrowFileIO, "new_output", both=True)
    wrapped(PyArrowFileIO, "delete", both=True)
    wrapped(SqlCatalog, "create_table", both=True)
    wrapped(SqlCatalog, "commit_table", both=True)
    return steps


def run_killed(directory: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> bool:
    """Run a load, a merge and a clearing whose driver ends at a step, and repeat each that was not
    done; return True if the driver reached the step.
    """
    changes = [
        row_of(1, "modify", 1, {A: "y"}),
        row_of(2, "delete", 2, None),
        row_of(3, "add", 4, {A: "new"}),
    ]
    rows: Rows = {key: {A: "x", PAY: Decimal(key)} for key in (1, 2, 3)}
    has_come = False
    with monkeypatch.context() as patched:
        steps = kill_at(step, patched)
        for number, told in ((0, []), (1, changes), (1, changes)):
            for _ in range(2):
                copy = iceberg_in(directory)
                try:
                    put_batch(Source(rows), copy, "query", number, partial(batch_of, told))
                    copy.clear(dt.timedelta(0))
                    break
                except Killed:
                    has_come = True
    assert held_by(iceberg_in(directory)) == {
        1: {A: "y", PAY: Decimal(1)}, 3: {A: "x", PAY: Decimal(3)}, 4: {A: "new", PAY: None},
    }, steps  # fmt: skip
    return has_come


@pytest.mark.parametrize(
    "steps", [range(4, 40, 9), pytest.param(range(1, 120), marks=pytest.mark.night)]
)
def test_a_driver_that_ends_at_any_step_leaves_an_iceberg_table_that_ends_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: range
) -> None:
    assert iceberg_in(tmp_path / "none")  # skips without the extra
    come = [run_killed(tmp_path / str(step), monkeypatch, step) for step in steps]
    assert come[0]


def test_only_one_of_two_drivers_of_a_query_writes_a_batch_into_an_iceberg_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = iceberg_in(tmp_path)
    put_batch(Source({}), copy, "query", 0, lambda: batch_of([]))
    told = [row_of(1, "add", 1, {A: "x"})]
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.exceptions import CommitFailedException

    commit = SqlCatalog.commit_table

    def behind_another(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(SqlCatalog, "commit_table", commit)
        put_batch(Source({}), iceberg_in(tmp_path), "query", 1, lambda: batch_of(told))
        return commit(*given, **named)

    monkeypatch.setattr(SqlCatalog, "commit_table", behind_another)
    with pytest.raises(CommitFailedException):
        put_batch(Source({}), copy, "query", 1, lambda: batch_of(told))
    assert held_by(iceberg_in(tmp_path)) == {1: {A: "x", PAY: None}}


def test_an_iceberg_table_of_anything_else_is_refused(tmp_path: Path) -> None:
    copy = iceberg_in(tmp_path)
    copy.catalog.create_namespace("copies")
    copy.catalog.create_table("copies.t", pa.schema([("x", pa.int64())]))
    with pytest.raises(CopyError, match=r"copies\.t contains no live copy, not live copy"):
        put_batch(Source({}), copy, "query", 0, lambda: batch_of([]))


def test_another_type_of_a_column_is_taken_over_by_an_iceberg_table(tmp_path: Path) -> None:
    copy = iceberg_in(tmp_path)
    put_batch(Source({1: {A: "x", PAY: Decimal("1.25")}}), copy, "query", 0, lambda: batch_of([]))
    wider = [*NAMED[:2], (PAY, t.DecimalType(12, 4), ColumnType(Kind.EXACT, 0, "numeric(12,4)"))]
    told = [row_of(1, "add", 2, {PAY: "1.2345"})]
    source = Source({}, wider)
    held = copy.number_done("query", source.content)
    assert held is not None
    latest = latest_changes(
        (one.key, one.change) for one in source.changes(batch_of(told), RecordSet())
    )
    changed = merge_source(source.columns, latest)
    copy.merge(CopyBatch("query", 1), source.columns, held.note, changed, None)
    assert held_by(copy) == {
        1: {A: "x", PAY: Decimal("1.2500")}, 2: {A: None, PAY: Decimal("1.2345")},
    }  # fmt: skip


# --- what it costs --------------------------------------------------------------------------------


def files_in(directory: Path) -> int:
    return len(list(directory.rglob("*.parquet")))


@pytest.mark.parametrize(("keep", "left"), [(dt.timedelta(0), 1), (dt.timedelta(hours=1), 4)])
def test_files_that_no_reader_of_the_time_to_keep_needs_are_removed(
    make: Callable[[Path], Any], tmp_path: Path, keep: dt.timedelta, left: int
) -> None:
    copy = make(tmp_path)
    put_batch(Source({1: {A: "x", PAY: None}}), copy, "query", 0, lambda: batch_of([]))
    for number in (1, 2, 3):
        changed = [row_of(number, "modify", 1, {A: str(number)})]
        put_batch(Source({}), copy, "query", number, partial(batch_of, changed))
    copy.clear(keep)
    assert files_in(tmp_path) == left
    assert held_by(copy) == {1: {A: "3", PAY: None}}
    put_batch(Source({}), copy, "query", 3, lambda: pytest.fail("the batch is done"))


def test_many_small_files_become_one(
    make: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (delta_copy, iceberg_files):
        monkeypatch.setattr(module, "MANY_FILES", 4)
    copy = make(tmp_path)
    put_batch(Source({}), copy, "query", 0, lambda: batch_of([]))
    for number in range(1, 6):
        new = [row_of(number, "add", number, {A: "x"})]
        put_batch(Source({}), copy, "query", number, partial(batch_of, new))
        copy.clear(dt.timedelta(0))
    assert files_in(tmp_path) == 2
    assert held_by(copy) == {key: {A: "x", PAY: None} for key in range(1, 6)}
    put_batch(Source({}), copy, "query", 5, lambda: pytest.fail("the batch is done"))


def insert_rows(copy: Any, numbers: range) -> None:
    for number in numbers:
        new = [row_of(number, "add", number, {A: "x"})]
        put_batch(Source({}), copy, "query", number, partial(batch_of, new))


def test_a_large_file_is_not_put_together_with_small_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = iceberg_in(tmp_path)
    rows = {-key: {A: str(key) * 9, PAY: None} for key in range(1, 5000)}
    put_batch(Source(rows), copy, "query", 0, lambda: batch_of([]))
    (large,) = tmp_path.rglob("*.parquet")
    monkeypatch.setattr(iceberg_files, "MANY_FILES", 4)
    monkeypatch.setattr(iceberg_files, "SMALL_BYTES", large.stat().st_size)
    insert_rows(copy, range(1, 6))
    copy.clear(dt.timedelta(0))
    assert files_in(tmp_path) == 2
    assert large.exists()
    assert len(held_by(copy)) == len(rows) + 5


def referenced(copy: Any) -> set[str]:
    """Return the data files, manifests and manifest lists of all snapshots that a table has."""
    table = copy.catalog.load_table(copy.name)
    found = set[str]()
    for snapshot in table.snapshots():
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            found |= {manifest.manifest_path, *(one.data_file.file_path for one in entries)}
    return {path.removeprefix("file://") for path in found}


def stored(directory: Path) -> set[str]:
    return {str(path) for ending in ("parquet", "avro") for path in directory.rglob(f"*.{ending}")}


@pytest.mark.parametrize(
    "steps", [range(1, 40, 13), pytest.param(range(1, 80), marks=pytest.mark.night)]
)
def test_what_a_killed_removal_has_left_is_removed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: range
) -> None:
    come = []
    for step in steps:
        directory = tmp_path / str(step)
        copy = iceberg_in(directory)
        put_batch(Source({}), copy, "query", 0, lambda: batch_of([]))
        insert_rows(copy, range(1, 4))
        for number in (4, 5):
            changed = [row_of(number, "modify", number - 3, {A: "y"})]
            put_batch(Source({}), copy, "query", number, partial(batch_of, changed))
        with monkeypatch.context() as patched:
            kill_at(step, patched)
            try:
                copy.clear(dt.timedelta(0))
                come.append(False)
            except Killed:
                come.append(True)
        assert set(held_by(copy)) == {1, 2, 3}
        insert_rows(copy, range(6, 8))
        copy.clear(dt.timedelta(0))
        # A killed commit leaves its manifest, which no snapshot refers to.
        left = stored(directory) - referenced(copy)
        assert not left, (step, left)
        assert set(held_by(copy)) == {1, 2, 3, 6, 7}
    assert come[0]


@pytest.mark.parametrize(("days", "is_left"), [(0, True), (3, False)])
def test_files_of_a_commit_that_was_killed_are_removed_after_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int, is_left: bool
) -> None:
    copy = iceberg_in(tmp_path)
    put_batch(Source({1: {A: "x", PAY: None}}), copy, "query", 0, lambda: batch_of([]))
    with monkeypatch.context() as patched:
        patched.setattr(type(copy.catalog), "commit_table", killed)
        with pytest.raises(Killed):
            insert_rows(copy, range(1, 2))
    insert_rows(copy, range(1, 3))
    assert stored(tmp_path) > referenced(copy)
    for path in stored(tmp_path):
        written = Path(path).stat().st_mtime - days * 86_400
        os.utime(path, (written, written))
    copy.clear(dt.timedelta(hours=1))
    assert (stored(tmp_path) > referenced(copy)) is is_left
    assert referenced(copy) <= stored(tmp_path)
    assert set(held_by(copy)) == {1, 2}


def killed(*_: object, **__: object) -> None:
    raise Killed


def test_files_stay_that_only_a_tag_needs(tmp_path: Path) -> None:
    copy = iceberg_in(tmp_path)
    put_batch(Source({1: {A: "0", PAY: None}}), copy, "query", 0, lambda: batch_of([]))
    modify_row(copy, 1)
    table = copy.catalog.load_table(copy.name)
    # A merge makes two snapshots. The parent of the second one stays, too.
    for number, snapshot in enumerate(table.snapshots()[-2:]):
        table.manage_snapshots().create_tag(snapshot.snapshot_id, f"t{number}").commit()
    insert_rows(copy, range(2, 3))
    modify_row(copy, 3)
    copy.clear(dt.timedelta(0))
    table = copy.catalog.load_table(copy.name)
    tagged = table.scan(snapshot_id=table.metadata.refs["t1"].snapshot_id)
    assert [row[A] for row in tagged.to_arrow().to_pylist()] == ["1"]


def modify_row(copy: Any, number: int) -> None:
    changed = [row_of(number, "modify", 1, {A: str(number)})]
    put_batch(Source({}), copy, "query", number, partial(batch_of, changed))


def test_a_reader_keeps_a_snapshot_that_was_the_newest_when_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, keep = iceberg_in(tmp_path), dt.timedelta(hours=1)
    put_batch(Source({1: {A: "x", PAY: None}}), copy, "query", 0, lambda: batch_of([]))
    first = copy.catalog.load_table(copy.name).current_snapshot()
    written = dt.datetime.fromtimestamp((first.timestamp_ms + 1) / 1000, dt.UTC)
    changed = [row_of(1, "modify", 1, {A: "y"})]
    put_batch(Source({}), copy, "query", 1, lambda: batch_of(changed))
    # The first snapshot is older than ``keep``, and somebody may have begun to read it since.
    monkeypatch.setattr(iceberg_copy, "utc_now", lambda: written + keep)
    copy.clear(keep)
    table = copy.catalog.load_table(copy.name)
    (row,) = table.scan(snapshot_id=first.snapshot_id).to_arrow().to_pylist()
    assert row[A] == "x"


def test_a_snapshot_with_a_tag_stays(tmp_path: Path) -> None:
    copy = iceberg_in(tmp_path)
    put_batch(Source({1: {A: "x", PAY: None}}), copy, "query", 0, lambda: batch_of([]))
    table = copy.catalog.load_table(copy.name)
    first = table.current_snapshot().snapshot_id
    table.manage_snapshots().create_tag(first, "audit").commit()
    for number in (1, 2):
        changed = [row_of(number, "modify", 1, {A: str(number)})]
        put_batch(Source({}), copy, "query", number, partial(batch_of, changed))
    copy.clear(dt.timedelta(0))
    table = copy.catalog.load_table(copy.name)
    (row,) = table.scan(snapshot_id=first).to_arrow().to_pylist()
    assert row[A] == "x"
    assert files_in(tmp_path) == 2


class Clock:
    """A clock in which a batch takes ``seconds`` to write, of a table that is cleared."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        self.now, self.seconds = 0.0, seconds
        self.cleared, self.compacted = list[float](), list[float]()
        monkeypatch.setattr(copy_query, "monotonic", lambda: self.now)
        monkeypatch.setattr(copy_query, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def toArrow(self) -> pa.Table:
        self.now += 1
        return batch_of([])

    def put(self, rows: Any) -> bool:
        rows()
        self.now += self.seconds
        return True

    def clear(self, _: dt.timedelta) -> None:
        self.cleared.append(self.now)

    def compact(self) -> None:
        self.compacted.append(self.now)


def test_the_next_commit_waits_so_that_writing_takes_a_tenth_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock: Any = Clock(monkeypatch, seconds=3)
    cost = copy_query.Cost([clock], dt.timedelta(0), share=10)
    assert cost.written(clock.put, clock)
    cost.rest(lambda: True)
    assert clock.now == pytest.approx(30)
    assert cost.written(clock.put, clock)
    cost.rest(lambda: clock.now < 40)  # the query is stopped
    assert clock.now == pytest.approx(40, abs=0.3)


def test_with_a_trigger_of_the_users_nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    clock: Any = Clock(monkeypatch, seconds=3)
    cost = copy_query.Cost([clock], dt.timedelta(0), share=None)
    cost.written(clock.put, clock)
    cost.rest(lambda: True)
    assert clock.now == 4


def test_files_are_removed_after_a_tenth_of_the_time_to_keep_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock: Any = Clock(monkeypatch, seconds=9)
    cost = copy_query.Cost([clock], dt.timedelta(seconds=250), share=None)
    for _ in range(7):
        cost.written(clock.put, clock)
    assert clock.cleared == [10, 40, 70]


def test_small_files_are_put_together_at_every_tenth_commit_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock: Any = Clock(monkeypatch, seconds=0)
    cost = copy_query.Cost([clock], dt.timedelta(hours=1), share=None)
    for _ in range(25):
        cost.written(clock.put, clock)
    assert (clock.cleared, clock.compacted) == ([1], [10, 20])
