"""``eventlog verify`` of files and objects: the documents of a publisher give the last state of
each object (spec/verify.md 4.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import verified
from publishers import install
from verified import load_all, publish_once, published, run, to_files, writing

from eventlog.config.load import load
from eventlog.files.compression import COMPRESSIONS
from eventlog.verify import VerifyOptions, VerifyReport, verify
from eventlog.verify.session import repair

OBJECTS = 200
NewDatabase = Callable[[], AbstractContextManager[sa.Engine]]


@pytest.fixture
def source(new_database: NewDatabase) -> Iterator[sa.Engine]:
    """The table ``item``, its log and its triggers."""
    with new_database() as engine:
        verified.fill(engine, OBJECTS)
        install(load(verified.document(engine), {}))
        yield engine


def compare(config: dict[str, Any], wait: float = 0) -> VerifyReport:
    return verify(config, environ={}, options=VerifyOptions(wait=wait))


def found(report: VerifyReport) -> list[tuple[str, str]]:
    return sorted((one.kind.value, one.key) for one in report.differences)


def changes(engine: sa.Engine) -> None:
    run(
        engine,
        "UPDATE item SET name = NULL WHERE id = 1",
        "UPDATE item SET price = price + 0.01, name = 'x' || name WHERE id BETWEEN 5 AND 9",
        "DELETE FROM item WHERE id = 3",
        "INSERT INTO item VALUES (1000, NULL, NULL, '2026-02-03 04:05:06.789')",
        "UPDATE item SET id = 2000 WHERE id = 4",
        "INSERT INTO item VALUES (3, 'again', 1, NULL)",
    )


@pytest.mark.parametrize("format", ["xds", "cloudevents", "debezium"])
def test_the_files_of_a_publisher_equal_the_source(
    source: sa.Engine, tmp_path: Path, format: str
) -> None:
    config = to_files(source, tmp_path / "documents", format)
    load_all(config)
    publish_once(config)
    changes(source)
    publish_once(config)
    report = compare(config)
    assert (found(report), report.result) == ([], "equal")
    assert report.classes["item"].equal == OBJECTS + 1
    # XDS has whole seconds by default.
    assert list(report.losses) == (["item.made"] if format == "xds" else [])


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_compressed_files_equal_the_source(
    source: sa.Engine, tmp_path: Path, compression: str
) -> None:
    directory = tmp_path / "documents"
    config = to_files(source, directory)
    load_all(config)
    publish_once(config)
    suffix, compress = COMPRESSIONS[compression]
    for path in list(directory.glob("*.xmll")):
        (directory / f"{path.name}{suffix}").write_bytes(compress(path.read_bytes()))
        path.unlink()
    assert compare(config).classes["item"].equal == OBJECTS


def test_files_that_a_publisher_still_writes_are_never_called_different(
    source: sa.Engine, tmp_path: Path
) -> None:
    config = to_files(source, tmp_path / "documents")
    load_all(config)
    publish_once(config)
    with published(config), writing(source, OBJECTS):
        reports = [compare(config, wait=20) for _ in range(3)]
    assert [(found(report), report.unconfirmed) for report in reports] == [([], 0)] * 3


def test_a_lost_file_a_wrong_value_and_a_surplus_object_are_found_and_repaired(
    source: sa.Engine, tmp_path: Path
) -> None:
    directory = tmp_path / "documents"
    config = to_files(source, directory)
    load_all(config)
    publish_once(config)
    run(source, "UPDATE item SET name = 'lost' WHERE id = 8")
    publish_once(config)
    first, lost = sorted(directory.glob("*.xmll"))
    lost.unlink()
    text = first.read_text(encoding="utf-8")
    text = text.replace(">item 9<", ">wrong<")
    text = text.replace("id=10,table=item", "id=7000,table=item")
    first.write_text(text, encoding="utf-8")
    report = compare(config)
    assert found(report) == [
        ("missing", "id=10"),
        ("surplus", "id=7000"),
        ("value", "id=8"),
        ("value", "id=9"),
    ]
    assert repair(load(config, {}), report, surplus=True) == 4
    publish_once(config)
    assert compare(config).result == "equal"


def test_the_objects_of_a_store_equal_the_source(source: sa.Engine) -> None:
    bucket = pytest.importorskip("bucket")
    store = bucket.Store()
    store.clear()
    try:
        config = verified.document(source) | {
            "format": {"type": "cloudevents"},
            "sink": store.sink(partition_by=["class", "day"])
            | {"access_key": bucket.ACCESS_KEY, "secret_key": bucket.SECRET_KEY},
        }
        load_all(config)
        publish_once(config)
        changes(source)
        publish_once(config)
        assert compare(config).result == "equal"
        lost = next(name for name in reversed(store.names()) if name.startswith("class="))
        store.client.delete_object(Bucket=bucket.BUCKET, Key=f"hr/{lost}")
        assert compare(config).classes["item"].different > 0
    finally:
        store.close()


def test_values_of_child_tables_are_compared_as_sets(
    new_database: NewDatabase, tmp_path: Path
) -> None:
    with new_database() as engine:
        run(
            engine,
            "CREATE TABLE item (id integer PRIMARY KEY, name text)",
            "CREATE TABLE tag (item_id integer REFERENCES item, tag text)",
        )
        config = to_files(engine, tmp_path / "documents")
        install(load(config, {}))
        run(
            engine,
            "INSERT INTO item VALUES (1, 'nut'), (2, 'bolt')",
            "INSERT INTO tag VALUES (1, 'b'), (1, 'a'), (2, 'c')",
            "UPDATE tag SET tag = 'd' WHERE tag = 'b'",
        )
        publish_once(config)
        assert compare(config).result == "equal"
        run(
            engine,
            "ALTER TABLE tag DISABLE TRIGGER USER",
            "INSERT INTO tag VALUES (2, 'silent')",
        )
        (one,) = compare(config).differences
        assert [(each.column, each.source, each.target) for each in one.columns] == [
            ("tag.tag", ["c", "silent"], "c")
        ]
