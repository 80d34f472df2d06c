"""``eventlog verify`` of files and objects: the documents of a publisher give the last state of
each object (spec/verify.md 4.2).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import verified
from publishers import install
from shared import met
from verified import WAYS, load_all, publish_once, published, read_by, run, to_files, writing

from eventlog.config.load import load
from eventlog.files.compression import COMPRESSIONS
from eventlog.verify import VerifyOptions, VerifyReport, verify
from eventlog.verify.session import repair
from eventlog.verify.targets.files import FilesTarget

OBJECTS = 200
NewDatabase = Callable[[], AbstractContextManager[sa.Engine]]
FilledDatabase = Callable[[Callable[[sa.Engine], None]], AbstractContextManager[sa.Engine]]


def fill_source(engine: sa.Engine) -> None:
    verified.fill_source(engine, OBJECTS)


@pytest.fixture
def source(filled_database: FilledDatabase) -> Iterator[sa.Engine]:
    """The table ``item``, its log and its triggers."""
    with filled_database(fill_source) as engine:
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


PLAIN = "(id integer PRIMARY KEY, name text, price numeric(12, 2), made timestamp)"
COMPOSITE = "(area bigint, code uuid, name text, price real, photo bytea, PRIMARY KEY (area, code))"
OBJECTS_OF = {
    PLAIN: "SELECT n, NULLIF('x & <' || n, 'x & <3'), n * 1.25, '2026-02-03 04:05:06.789' FROM generate_series(1, 60) AS n",
    COMPOSITE: "SELECT mod(n, 5) - 2, CAST(md5(n::text) AS uuid), 'p' || n, n * 0.1, '\\xaabb' "
    "FROM generate_series(1, 60) AS n",
}


@pytest.mark.parametrize(
    ("format", "columns"), met(["xds", "cloudevents", "debezium"], [PLAIN, COMPOSITE])
)
def test_reading_files_by_ranges_finds_what_reading_by_keys_finds(
    new_database: NewDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    format: str,
    columns: str,
) -> None:
    with new_database() as engine:
        run(engine, f"CREATE TABLE item {columns}")
        config = to_files(engine, tmp_path / "documents", format)
        install(load(config, {}))
        run(engine, f"INSERT INTO item {OBJECTS_OF[columns]}")
        publish_once(config)
        run(
            engine,
            "UPDATE item SET name = 'again' WHERE right(name, 1) = '1'",
            "DELETE FROM item WHERE right(name, 1) = '2'",
        )
        publish_once(config)
        run(engine, "UPDATE item SET name = 'waits' WHERE right(name, 2) = '44'")
        run(
            engine,
            "ALTER TABLE item DISABLE TRIGGER USER",
            "UPDATE item SET name = NULL WHERE right(name, 1) = '8'",
            "DELETE FROM item WHERE right(name, 1) = '9'",
            f"INSERT INTO item {OBJECTS_OF[columns].replace('60', '70')} ON CONFLICT DO NOTHING",
        )
        reports = []
        for size, way in itertools.product((7, 1000), WAYS):
            with monkeypatch.context() as patched:
                read_by(patched, FilesTarget, way)
                options = VerifyOptions(wait=0, batch=size)
                reports.append(verify(config, environ={}, options=options))
    told = [verified.told(report, "item") for report in reports]
    assert told == [told[0]] * len(told)
    # The last statement inserts the objects whose numbers end in 9 as they were, those whose numbers
    # end in 2, and ten others.
    assert told[0][2] == {
        "class": "item", "equal": 47, "different": 6, "missing": 16, "surplus": 0,
        "known_different": 0, "in_motion": 1,
    }  # fmt: skip
    assert [report.losses for report in reports] == [reports[0].losses] * len(reports)


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
    source: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified.rest_briefly(monkeypatch)
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


@pytest.mark.parametrize("format", ["xds", "cloudevents"])
def test_a_value_that_was_written_before_the_insert_of_its_object_is_unknown(
    new_database: NewDatabase, tmp_path: Path, format: str
) -> None:
    with new_database() as engine:
        run(
            engine,
            "CREATE TABLE item (id integer PRIMARY KEY, name text, price integer)",
            "CREATE TABLE tag (item_id integer REFERENCES item, tag text, UNIQUE (item_id, tag))",
        )
        config = to_files(engine, tmp_path / "documents", format)
        install(load(config, {}))
        run(
            engine,
            "INSERT INTO item VALUES (1, 'nut', 5); INSERT INTO tag VALUES (1, 'b')",
            # The order in which a database without deferred rows logs a tag before its item.
            "INSERT INTO eventlog (event_type, event_time, perpetrator, table_name, table_key, column_name, new_value) "
            "SELECT event_type, event_time, perpetrator, table_name, table_key, column_name, new_value FROM eventlog "
            "ORDER BY event_type DESC, record_id",
            "DELETE FROM eventlog WHERE record_id <= 3",
        )
        publish_once(config)
        (one,) = compare(config).differences
        assert [(each.column, each.source, each.is_unknown) for each in one.columns] == [
            ("tag.tag", "b", True)
        ]
