"""``eventlog.spark.verify``: a live copy compared with its class, without Java (spec/verify.md
4.3).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pytest
import sqlalchemy as sa

pytest.importorskip("deltalake", reason="the extra delta is not installed")
pytest.importorskip(
    "pyspark.sql.streaming.datasource", reason="a stream needs PySpark 4.2 or later"
)

from deltalake import DeltaTable, write_deltalake
from stream_engine import Engine, reader_of
from test_live_copy import INSERT, configured, installed, make_accounts, run
from test_live_copy_batches import delta_in, iceberg_in
from test_live_copy_log import SCHEMA

from eventlog.config.load import load
from eventlog.errors import ConfigError
from eventlog.spark import verify, verify_history
from eventlog.spark.changes.change_log import close_cached_connection
from eventlog.spark.changes.changes import STATEMENT
from eventlog.spark.copies.copy_history import History
from eventlog.spark.copies.copy_query import put_batch
from eventlog.spark.copies.copy_source import ClassSource
from eventlog.spark.copies.copy_target import CopyBatch
from eventlog.verify import VerifyOptions, VerifyReport

pytestmark = pytest.mark.xdist_group("changes")  # without Java: in another worker


def make_logged_accounts(database: sa.Engine) -> None:
    """Make tables with rows, and then a log and triggers."""
    make_accounts(database)
    run(database, INSERT.format(first=1, last=60))
    with TemporaryDirectory() as directory:
        installed(database, Path(directory))


@pytest.fixture
def accounts(filled_database: Any) -> Iterator[sa.Engine]:
    with filled_database(make_logged_accounts) as database:
        yield database
    close_cached_connection()


class Query:
    """A live copy of ``acct`` and the stream that feeds it."""

    def __init__(
        self,
        database: sa.Engine,
        directory: Path,
        copy_in: Callable[[Path], Any] = delta_in,
        fold: str = "batch",
    ) -> None:
        self.config = configured(database, directory)
        self.copy = copy_in(directory / "lake")
        self.engine = Engine(
            reader_of(config=self.config, start_from="latest", fold=fold), directory / "query"
        )
        self.source = ClassSource.of(load(self.config, {}), "acct")
        self.history = History(self.source, self.copy) if fold == STATEMENT else None
        self.follow()

    def follow(self) -> None:
        """Run batches until the copy has all changes."""
        while self.engine.step(self.put):
            pass

    def put(self, number: int, rows: list[dict[str, Any]]) -> None:
        pairs = [
            {**row, **{name: row[name] and list(row[name].items()) for name in ("key", "after")}}
            for row in rows
        ]
        done = json.loads((self.engine.offsets / str(number)).read_text())["done"]
        put_batch(
            self.source,
            self.copy,
            CopyBatch("query", number, done),
            lambda: pa.Table.from_pylist(pairs, SCHEMA),
            history=self.history,
        )

    def verify_history(self, wait: float = 0) -> VerifyReport:
        return verify_history(self.config, "acct", self.copy, options=VerifyOptions(wait=wait))

    def verify(self, wait: float = 0) -> VerifyReport:
        return verify(self.config, "acct", self.copy, options=VerifyOptions(wait=wait))


def found(report: VerifyReport) -> list[tuple[str, str]]:
    return sorted((one.kind.value, one.key) for one in report.differences)


def change_silently(accounts: sa.Engine) -> None:
    """Change a value, remove a row and add one, without a row of the log."""
    run(
        accounts,
        "ALTER TABLE acct DISABLE TRIGGER USER",
        "UPDATE acct SET owner = 'silent' WHERE no = 1",
        "DELETE FROM acct WHERE no = 6",
        INSERT.format(first=80, last=80),
    )


@pytest.mark.promise("spark verify")
@pytest.mark.parametrize("copy_in", [delta_in, iceberg_in])
def test_a_copy_equals_its_class_but_for_what_is_in_motion_and_what_no_trigger_saw(
    accounts: sa.Engine, tmp_path: Path, copy_in: Callable[[Path], Any]
) -> None:
    query = Query(accounts, tmp_path, copy_in)
    report = query.verify()
    assert (report.result, report.classes["acct"].equal) == ("equal", 60)
    run(accounts, "UPDATE acct SET owner = 'later' WHERE no = 7", INSERT.format(first=70, last=70))
    report = query.verify()
    assert report.result == "undecided"
    assert len(report.in_motion) == 2
    query.follow()
    assert query.verify().result == "equal"
    change_silently(accounts)
    assert [kind for kind, _ in found(query.verify())] == ["missing", "surplus", "value"]


def test_a_write_to_the_copy_is_found(accounts: sa.Engine, tmp_path: Path) -> None:
    query = Query(accounts, tmp_path)
    table = DeltaTable(query.copy.uri)
    table.update(updates={"owner": "'planted'"}, predicate="no = 9")
    DeltaTable(query.copy.uri).delete("no = 10")
    report = query.verify()
    assert [kind for kind, _ in found(report)] == ["missing", "value"]
    (changed,) = [one for one in report.differences if one.columns]
    assert [(one.column, one.target) for one in changed.columns] == [("owner", "planted")]


def append_to_delta(query: Query, keys: list[int]) -> None:
    table = DeltaTable(query.copy.uri)
    rows = [row for row in table.to_pyarrow_table().to_pylist() if row["no"] in keys]
    schema = pa.schema(table.schema().to_arrow())
    write_deltalake(table, pa.Table.from_pylist(rows, schema=schema), mode="append")


def append_to_iceberg(query: Query, keys: list[int]) -> None:
    table = query.copy.catalog.load_table(query.copy.name)
    rows = table.scan().to_arrow()
    table.append(rows.filter(pa.compute.is_in(rows["no"], pa.array(keys, rows["no"].type))))


@pytest.mark.parametrize(
    ("copy_in", "append"),
    [
        (delta_in, append_to_delta),
        pytest.param(iceberg_in, append_to_iceberg, marks=pytest.mark.night),
    ],
)
def test_a_second_row_of_a_key_in_a_copy_is_a_surplus(
    accounts: sa.Engine,
    tmp_path: Path,
    copy_in: Callable[[Path], Any],
    append: Callable[[Query, list[int]], None],
) -> None:
    query = Query(accounts, tmp_path, copy_in)
    append(query, [9, 10])
    append(query, [10])
    report = query.verify()
    assert {(kind, key.split("+")[-1]) for kind, key in found(report)} == {
        ("surplus", "no=9"),
        ("surplus", "no=10"),
    }
    assert {one.fault for one in report.differences} == {"the target has several rows of this key"}
    assert report.classes["acct"].equal == 58


@pytest.mark.parametrize("seconds", [1, pytest.param(20, marks=pytest.mark.night)])
def test_a_copy_that_a_query_writes_is_never_called_different(
    accounts: sa.Engine, tmp_path: Path, seconds: int
) -> None:
    query = Query(accounts, tmp_path)
    stop = threading.Event()

    def write() -> None:
        number = 100
        while not stop.is_set():
            number += 1
            run(
                accounts,
                INSERT.format(first=number, last=number),
                f"UPDATE acct SET owner = 'n{number}' WHERE no % 20 = {number % 20}",
                f"DELETE FROM acct WHERE no = {number - 30}",
            )

    reports: list[VerifyReport] = []

    def look() -> None:
        while not stop.is_set():
            reports.append(query.verify(wait=5))

    threads = [threading.Thread(target=one) for one in (write, look)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        query.engine.step(query.put)
    stop.set()
    while any(thread.is_alive() for thread in threads):  # a comparison waits for what is in motion
        query.engine.step(query.put)
        time.sleep(0.1)
    assert reports
    assert [(found(report), report.unconfirmed) for report in reports] == [([], 0)] * len(reports)


def test_a_batch_that_is_committed_while_the_history_is_read_belongs_to_the_version_compared(
    accounts: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(accounts, tmp_path)
    run(accounts, "UPDATE acct SET owner = 'later' WHERE no = 7")
    history = DeltaTable.history

    def read_late(table: DeltaTable, *args: Any) -> Any:
        monkeypatch.undo()
        while query.engine.step(query.put):
            pass
        return history(table, *args)

    monkeypatch.setattr(DeltaTable, "history", read_late)
    report = query.verify()
    assert (report.result, report.unconfirmed) == ("equal", 0)


def test_a_copy_without_the_rows_that_it_holds_is_refused(
    accounts: sa.Engine, tmp_path: Path
) -> None:
    query = Query(accounts, tmp_path)
    put_batch(
        query.source, copy := delta_in(tmp_path / "other"), CopyBatch("query", 1), lambda: None
    )
    with pytest.raises(ConfigError, match="does not record which rows"):
        verify(query.config, "acct", copy)


# --- the history of a copy ------------------------------------------------------------------------


def changed_often(accounts: sa.Engine, query: Query) -> None:
    """Objects with several versions, in several batches; 61 is deleted and comes again."""
    for number in range(2):
        run(
            accounts,
            INSERT.format(first=61 + number, last=61 + number),
            f"UPDATE acct SET owner = 'version {number}' WHERE no IN (1, 2, 3, 61)",
            f"UPDATE acct SET owner = 'later {number}' WHERE no = 1",
            f"DELETE FROM acct WHERE no = {40 + number}",
        )
        query.follow()
    run(accounts, "DELETE FROM acct WHERE no = 61", INSERT.format(first=61, last=61))
    query.follow()


@pytest.mark.promise("spark verify_history")
@pytest.mark.parametrize("copy_in", [delta_in, iceberg_in])
def test_a_history_equals_its_class_but_for_what_is_in_motion_and_what_no_trigger_saw(
    accounts: sa.Engine, tmp_path: Path, copy_in: Callable[[Path], Any]
) -> None:
    query = Query(accounts, tmp_path, copy_in, STATEMENT)
    # A history that holds nothing but its load names the rows that it holds, too.
    assert query.verify_history().classes["acct"].equal == 60
    changed_often(accounts, query)
    report = query.verify_history()
    assert (report.result, report.classes["acct"].equal) == ("equal", 60)
    run(accounts, "UPDATE acct SET owner = 'later' WHERE no = 7")
    report = query.verify_history()
    assert (report.result, len(report.in_motion)) == ("undecided", 1)
    query.follow()
    assert query.verify_history().result == "equal"
    change_silently(accounts)
    assert [kind for kind, _ in found(query.verify_history())] == ["missing", "surplus", "value"]


LOST = {
    "an insert": ("_operation = 'add' AND no = 62", ("missing", "no=62")),
    "a delete": ("_operation = 'delete' AND no = 40", ("surplus", "no=40")),
    "the first version": ("_operation = 'add' AND no = 61 AND _batch < 3", ("versions", "no=61")),
    "a row of the load": ("_operation = 'load' AND no = 2", ("versions", "no=2")),
}


def test_a_row_that_a_history_has_lost_or_has_twice_is_found(
    accounts: sa.Engine, tmp_path: Path
) -> None:
    query = Query(accounts, tmp_path, fold=STATEMENT)
    changed_often(accounts, query)
    uri = query.copy.sibling("_history").uri
    complete = DeltaTable(uri).version()
    for name, (lost, expected) in LOST.items():
        DeltaTable(uri).delete(lost)
        shown = [(kind, key.split("+")[-1]) for kind, key in found(query.verify_history())]
        assert shown == [expected], name
        DeltaTable(uri).restore(complete)

    table = DeltaTable(uri)
    twice = table.to_pyarrow_dataset().to_table().to_pylist()
    kept = [row for row in twice if row["no"] == 3 and row["_operation"] == "modify"][:1]
    schema = pa.schema(table.schema().to_arrow())
    write_deltalake(table, pa.Table.from_pylist(kept, schema=schema), mode="append")
    (one,) = query.verify_history().differences
    assert one.kind == "versions"
    assert "two versions begin at the same position" in one.fault


def test_the_versions_of_a_class_that_was_loaded_again_are_right(
    accounts: sa.Engine, tmp_path: Path
) -> None:
    query = Query(accounts, tmp_path, fold=STATEMENT)
    changed_often(accounts, query)
    run(accounts, "DELETE FROM acct WHERE no = 5")
    put_batch(
        query.source,
        query.copy,
        CopyBatch("another query", 0),
        lambda: pa.Table.from_pylist([], SCHEMA),
        history=query.history,
    )
    report = query.verify_history()
    assert (report.result, report.classes["acct"].equal) == ("equal", 59)
