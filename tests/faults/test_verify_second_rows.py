"""``eventlog verify`` finds each object of which the target has several rows (spec/verify.md 3.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import sqlalchemy as sa
import verified
from publishers import install
from shared import Run, met, url_of
from verified import WAYS, document, read_by, run

from eventlog.config.load import load
from eventlog.verify import VerifyOptions, VerifyReport, verify
from eventlog.verify.targets.table import TableTarget

NewDatabase = Callable[[], AbstractContextManager[sa.Engine]]
OBJECTS = 20
SECOND_ROWS = (
    "INSERT INTO item VALUES (6, 'old version', 7.5, NULL)",
    "INSERT INTO item SELECT * FROM item WHERE id = 7",  # the same row twice
    "INSERT INTO item SELECT * FROM item WHERE id IN (14, 15)",
    "INSERT INTO item SELECT * FROM item WHERE id = 14",  # three rows and more
    "INSERT INTO item SELECT * FROM item WHERE id = 15",
    "INSERT INTO item SELECT * FROM item WHERE id = 20",
    "DELETE FROM item WHERE id = 3",
    "UPDATE item SET id = 30 WHERE id = 4",
    "INSERT INTO item VALUES (30, NULL, 5, NULL)",  # twice, and only in the target
)
EXPECTED = [
    ("missing", "id=3", ""),
    ("missing", "id=4", ""),
    *(
        ("surplus", f"id={key}", "the target has several rows of this key")
        for key in (6, 7, 14, 15, 20, 30)
    ),
]


@pytest.fixture(scope="module")
def source(new_database: NewDatabase) -> Iterator[sa.Engine]:
    with new_database() as engine:
        verified.fill(engine, OBJECTS)
        install(load(document(engine), {}))
        yield engine


@pytest.fixture(scope="module")
def copy(new_database: NewDatabase) -> Iterator[sa.Engine]:
    """A table without a unique key, with second rows."""
    with new_database() as engine:
        verified.fill(engine, OBJECTS)
        run(engine, "ALTER TABLE item DROP CONSTRAINT item_pkey", *SECOND_ROWS)
        yield engine


def compared(source: sa.Engine, target: str, batch: int = 5000) -> VerifyReport:
    return verify(document(source), target, environ={}, options=VerifyOptions(wait=0, batch=batch))


def found(report: VerifyReport) -> list[tuple[str, str, str]]:
    order = sorted(report.differences, key=lambda one: int(one.key.partition("=")[2]))
    return [(one.kind.value, one.key, one.fault) for one in order]


@pytest.mark.parametrize(("way", "size"), met(WAYS, [1, 2, 7, 1000]))
def test_a_second_row_of_a_key_is_a_surplus_however_the_table_is_read(
    source: sa.Engine, copy: sa.Engine, monkeypatch: pytest.MonkeyPatch, way: str, size: int
) -> None:
    read_by(monkeypatch, TableTarget, way)
    report = compared(source, url_of(copy), size)
    assert found(report) == EXPECTED
    numbers = report.classes["item"]
    assert (numbers.equal, numbers.missing, numbers.surplus) == (OBJECTS - 7, 2, 6)


def test_a_second_row_in_sqlite_is_a_surplus(source: sa.Engine, tmp_path: Path) -> None:
    file = f"sqlite:///{tmp_path / 'copy.db'}"
    engine = sa.create_engine(file)
    run(engine, "CREATE TABLE item (id integer, name text, price numeric, made text)")
    with engine.begin() as conn:
        for row in verified.content(source, "id, name, price::text, made::text"):
            conn.exec_driver_sql("INSERT INTO item VALUES (?, ?, ?, ?)", row)
    run(engine, *SECOND_ROWS)
    assert found(compared(source, file)) == EXPECTED


def test_the_rows_of_a_child_by_inheritance_are_second_rows(
    source: sa.Engine, new_database: NewDatabase
) -> None:
    # The primary key of the parent does not hold for the child.
    with new_database() as engine:
        verified.fill(engine, OBJECTS)
        run(
            engine,
            "CREATE TABLE late () INHERITS (item)",
            "INSERT INTO late SELECT * FROM ONLY item WHERE id = 8",
        )
        report = compared(source, url_of(engine))
    assert [(kind, key) for kind, key, _ in found(report)] == [("surplus", "id=8")]


def test_repair_leaves_the_rows_of_an_object_that_the_source_has(
    source: sa.Engine, copy: sa.Engine, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "eventlog.toml"
    file.write_text(f'[database]\nurl = "{url_of(source)}"\n[[watch]]\ntable = "item"\n')
    code, out, _ = run(
        "--config", str(file), "verify", "--wait", "0", "--repair=surplus", "--target",
        url_of(copy),
    )  # fmt: skip
    logged = verified.content(source, "event_type, table_key", "eventlog")
    verified.run(source, "DELETE FROM eventlog")
    assert code == 4
    assert logged == [(4, "id=30"), (5, "id=3"), (5, "id=4")]
    assert "surplus rows: item id=6" in out
    assert "6 objects with several rows left: delete the surplus rows in the target" in out
