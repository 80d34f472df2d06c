"""A live copy fed with the batches of a real log, without Java."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

pytest.importorskip("deltalake", reason="the extra delta is not installed")
pytest.importorskip(
    "pyspark.sql.streaming.datasource", reason="a stream needs PySpark 4.2 or later"
)

from deltalake import DeltaTable
from stream_engine import Engine, reader_of
from test_live_copy import INSERT, assert_equal, installed, make_accounts, run
from test_live_copy_batches import delta_in, iceberg_in

from eventlog.config.load import load
from eventlog.spark import delta
from eventlog.spark.changes.change_log import close_cached_connection
from eventlog.spark.copies.copy_query import put_batch
from eventlog.spark.copies.copy_source import ClassSource
from eventlog.spark.copies.copy_target import CopyBatch
from eventlog.sql.dialects.postgresql.log import PostgresLog

pytestmark = pytest.mark.xdist_group("changes")  # without Java: in another worker

TEXTS = pa.map_(pa.string(), pa.string())
SCHEMA = pa.schema([
    ("position", pa.int64()), ("record_ids", pa.list_(pa.int64())), ("operation", pa.string()),
    ("key", TEXTS), ("after", TEXTS), ("changed", pa.list_(pa.string())),
    ("commit_time", pa.timestamp("us", "UTC")),
])  # fmt: skip


@pytest.fixture
def accounts(filled_database: Any) -> Iterator[sa.Engine]:
    with filled_database(make_accounts) as database:
        yield database
    close_cached_connection()


def copied(
    config: Path, directory: Path, copy: Any = None, offsets: Path | None = None
) -> Callable[[int, list[dict[str, Any]]], None]:
    """Return a sink that brings the copy, in ``directory``, to the state after each batch.
    ``offsets`` has those of the batches, whose rows the commits name.
    """
    source = ClassSource.of(load(config, {}), "acct")
    copy = copy or delta(directory / "acct")

    def put(number: int, rows: list[dict[str, Any]]) -> None:
        pairs = [
            {**row, **{name: row[name] and list(row[name].items()) for name in ("key", "after")}}
            for row in rows
        ]
        done = json.loads((offsets / str(number)).read_text())["done"] if offsets else ""
        put_batch(
            source,
            copy,
            CopyBatch("query", number, done),
            lambda: pa.Table.from_pylist(pairs, SCHEMA),
        )

    return put


@pytest.mark.parametrize(
    "row_style",
    [
        "field",
        pytest.param("remove_all", marks=pytest.mark.night),
        pytest.param("field_query_back", marks=pytest.mark.night),
        "row_query_back",
    ],
)
def test_an_insert_whose_rows_come_in_two_batches_loses_no_column(
    accounts: sa.Engine, tmp_path: Path, row_style: str
) -> None:
    config = installed(accounts, tmp_path, row_style)
    # So that the rows of one INSERT lie far apart, as where many others write meanwhile.
    run(
        accounts,
        "DO $$ BEGIN EXECUTE 'ALTER SEQUENCE ' || pg_get_serial_sequence('eventlog', 'record_id') "
        "|| ' INCREMENT 2000'; END $$",
        INSERT.format(first=1, last=2),
    )
    put = copied(config, tmp_path)
    engine = Engine(
        reader_of(config=config, maxRowsPerBatch=3, start_from="latest"), tmp_path / "query"
    )
    run(accounts, INSERT.format(first=3, last=3))
    engine.step(put)  # the first load has all that is there
    run(
        accounts,
        "UPDATE acct SET owner = 'x' WHERE no = 1",
        INSERT.format(first=4, last=4),
        "UPDATE acct SET pay = NULL, owner = 'y' WHERE no = 2",
    )
    while engine.step(put):
        pass
    assert engine.number > 2
    assert_equal(accounts, tmp_path)


def test_a_copy_begins_before_the_log_has_a_row(accounts: sa.Engine, tmp_path: Path) -> None:
    run(accounts, INSERT.format(first=1, last=2))
    config = installed(accounts, tmp_path)
    engine = Engine(reader_of(config=config, start_from="latest"), tmp_path / "query")
    assert engine.step(copied(config, tmp_path))
    assert_equal(accounts, tmp_path)


def test_a_crash_of_the_server_cannot_undo_the_rows_that_a_copy_begins_with(
    accounts: sa.Engine, tmp_path: Path
) -> None:
    run(accounts, INSERT.format(first=1, last=2))
    source = ClassSource.of(load(installed(accounts, tmp_path), {}), "acct")
    with accounts.connect() as writer:
        for _ in source.objects():
            writer.exec_driver_sql("SET LOCAL synchronous_commit = off")
            writer.exec_driver_sql("UPDATE acct SET owner = 'not on the disk yet'")
            writer.commit()
            written = writer.exec_driver_sql("SELECT pg_current_wal_insert_lsn()").scalar_one()
        flushed = f"SELECT pg_current_wal_flush_lsn() >= '{written}'"
        assert writer.exec_driver_sql(flushed).scalar_one()


def test_a_load_sees_a_table_that_is_rewritten_when_it_begins(
    accounts: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if transactions of the role have one snapshot by default: it would be older than the
    table.
    """
    run(accounts, INSERT.format(first=1, last=2))
    source = ClassSource.of(load(installed(accounts, tmp_path), {}), "acct")
    name = accounts.url.database
    run(accounts, f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'")
    start_walk = PostgresLog.start_walk

    def and_rewrite(*given: Any) -> Any:
        walk = start_walk(*given)
        run(accounts, "ALTER TABLE acct ADD COLUMN added float DEFAULT random()")
        run(accounts, "ALTER TABLE acct DROP COLUMN added")
        return walk

    monkeypatch.setattr(PostgresLog, "start_walk", and_rewrite)
    source.refresh()
    assert sum(len(batch) for batch in source.objects()) == 2


def nulled_in_delta(copy: Any) -> list[str | None]:
    """Return the number that each commit with a batch, and each after a load, has."""
    found = [commit.get("nulled") for commit in DeltaTable(copy.uri).history()]
    return [one for one in reversed(found) if one is not None]


def nulled_in_iceberg(copy: Any) -> list[str | None]:
    return [copy.catalog.load_table(copy.name).properties.get("eventlog.nulled")]


@pytest.mark.parametrize(
    ("make", "nulled_in", "expected"),
    [(delta_in, nulled_in_delta, ["3", "2"]), (iceberg_in, nulled_in_iceberg, ["2"])],
)
def test_values_that_are_null_in_a_copy_are_counted_and_one_warning_is_logged(
    accounts: sa.Engine,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    make: Callable[[Path], Any],
    nulled_in: Callable[[Any], list[str | None]],
    expected: list[str],
) -> None:
    run(
        accounts,
        INSERT.format(first=1, last=3),
        "UPDATE acct SET born = '0044-03-15 BC', at = '12000-01-01', pay = 'NaN' WHERE no = 1",
    )
    config, copy = installed(accounts, tmp_path), make(tmp_path)
    put = copied(config, tmp_path, copy)
    engine = Engine(reader_of(config=config, start_from="latest"), tmp_path / "query")
    with caplog.at_level(logging.WARNING, "eventlog.live_copy"):
        engine.step(put)
        for statement in ("at = 'infinity', seen = '0044-03-15 BC'", "owner = 'x'"):
            run(accounts, f"UPDATE acct SET {statement} WHERE no = 2")
            engine.step(put)
            if "at" in statement:
                assert nulled_in(copy) == expected
    (warning,) = [one.getMessage() for one in caplog.records if one.name == "eventlog.live_copy"]
    assert warning.startswith("3 values of acct are NULL in the copy.")
