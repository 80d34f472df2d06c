"""Every format sends a column of any type that PostgreSQL has or that its users make. A class that a format
cannot write is unavailable, and every other class is published (spec/event-log.md 5.1).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from publishers import Collecting, install, opened, write_config
from shared import PATIENCE, execute, statuses, url_of, wait_until

from eventlog.changes.format import Report
from eventlog.changes.json_form import database_to_json
from eventlog.changes.publishing import DeliveryState, EventWriter
from eventlog.config.load import Config, load
from eventlog.conversion import in_own_options
from eventlog.core.catalog import Catalog, Database, ObjectClass, Table
from eventlog.core.rows.events import Outgoing
from eventlog.core.values import Kind
from eventlog.errors import ConfigError
from eventlog.model import Change, EventResult
from eventlog.publisher.context.context import Context, Counters
from eventlog.publisher.declared import catalog_watcher
from eventlog.publisher.declared.opening import open_context
from eventlog.publisher.run.daemon import publish, publish_once
from eventlog.publisher.send.cycle import dry_run
from eventlog.publisher.send.unwritable import class_name_of
from eventlog.registry import FORMATS, format_named, installed
from eventlog.sql.port.driver_errors import open_database

OWN_TYPES = """
CREATE SCHEMA "Other Place";
CREATE TYPE mood AS ENUM ('1', 'a b');
CREATE TYPE number AS ENUM ('1', 'NaN');
CREATE TYPE "numeric(9,2)" AS ENUM ('1');
CREATE TYPE "x[]" AS ENUM ('1');
CREATE TYPE "Other Place"."date" AS ENUM ('1');
CREATE TYPE "Other Place"."say ""a""'" AS ENUM ('1');
CREATE TYPE pair AS (one integer, two mood[]);
CREATE TYPE span AS RANGE (subtype = text);
CREATE DOMAIN short AS smallint;
CREATE DOMAIN shorts AS smallint[];
CREATE DOMAIN moods AS mood[];
"""
A_VALUE = """
CREATE FUNCTION a_value(kind text, words text[]) RETURNS text LANGUAGE plpgsql AS $$
DECLARE word text; given text;
BEGIN
    FOREACH word IN ARRAY words LOOP
        BEGIN
            EXECUTE pg_catalog.format('SELECT CAST(%L AS %s)::text', word, kind) INTO given;
            RETURN word;
        EXCEPTION WHEN OTHERS THEN NULL;
        END;
    END LOOP;
    RETURN NULL;
END $$;
"""
WORDS = (
    "1", "2024-01-02", "10:11:12", "a", "t", "(1,2)", "((1,2),3)", "[(1,2),(3,4)]", "[1,2)", "192.0.2.1",
    "[2024-01-02,2024-02-03)", "08:00:2b:01:02:03", "08:00:2b:01:02:03:04:05", "<a/>", "1/2", "10:20:",
    "6d40a1a5-a4b8-4f6b-8a6c-1234567890ab", "$.a", "english", "=r/postgres", "(1,1),(0,0)", "pg_class", "*",
    "(1,{1})", "simple", "public",
)  # fmt: skip
RANGES = ("{[1,2)}", "{[2024-01-02,2024-02-03)}")
"""Texts, of which each type with values reads one, perhaps as the element of an array."""

TYPES = """
SELECT pg_catalog.format_type(t.oid, NULL), a_value(pg_catalog.format_type(t.oid, NULL), CAST(:words AS text[]))
FROM pg_catalog.pg_type t
LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
LEFT JOIN pg_catalog.pg_class c ON c.oid IN (t.typrelid, e.typrelid)
WHERE t.typtype <> 'p' AND coalesce(e.typtype, '') <> 'p' AND coalesce(c.relkind, 'c') = 'c'
  AND t.typnamespace <> 'information_schema'::regnamespace
ORDER BY t.oid
"""


@pytest.fixture
def database(logged: sa.Engine) -> sa.Engine:
    return logged


@pytest.fixture
def typed_log(database: sa.Engine, tmp_path: Path) -> sa.Engine:
    execute(database, OWN_TYPES, A_VALUE)
    words = [
        text
        for some in (WORDS, RANGES)
        for form in ("%s", '{"%s"}')
        for text in map(form.__mod__, some)
    ]
    with database.begin() as conn:
        types = conn.execute(sa.text(TYPES), {"words": words}).all()
    columns = ", ".join(f"c{number} {name}" for number, (name, _) in enumerate(types))
    execute(database, f"CREATE TABLE usr (id integer PRIMARY KEY, {columns})")
    install(load(write_config(tmp_path, url_of(database), [{"table": "usr"}]), {}))
    values = ", ".join("NULL" if value is None else f"'{value}'" for _, value in types)
    execute(database, f"INSERT INTO usr VALUES (1, {values})")
    return database


def _previews(log: sa.Engine, directory: Path, format: str) -> str:
    """The documents that a publisher of a format would send."""
    path = write_config(
        directory, url_of(log), [{"table": "usr"}], publisher={"allow_loopback": True},
        format={"type": format}, sink={"type": "kafka", "brokers": "127.0.0.1:1", "topic": "t"},
    )  # fmt: skip
    with open_context(load(path, {}), Counters()) as context:
        return "".join(dry_run(context))


def _of_unknown_types(log: sa.Engine) -> Table:
    """The table without the columns of types in the table of spec/xds.md 6.2."""
    with log.connect() as conn:
        database = open_database(conn).reflect(None)
    (table,) = (table for table in database.tables if table.name == "usr")
    columns = [one for one in table.columns if one.name == "id" or one.type.kind is Kind.OTHER]
    return replace(table, columns=tuple(columns))


def test_every_format_takes_a_column_of_each_type(typed_log: sa.Engine, tmp_path: Path) -> None:
    sent = {
        name: _previews(typed_log, tmp_path, name)
        for name, format in installed(FORMATS)
        if format.can("publish")
    }
    assert all("#" not in text and "(1,{1})" in text for text in sent.values())
    (tmp_path / "sent.jsonl").write_text(sent["cloudevents"])
    table = _of_unknown_types(typed_log)
    catalog = database_to_json(Database("postgresql", "public", (table,)))
    (change,) = format_named("cloudevents").read(
        str(tmp_path / "sent.jsonl"), {"catalog": catalog}, Report(strict=True)
    )
    assert change.after is not None
    row = {column.name: change.after.get(column.name) for column in table.columns}
    assert {type(value) for name, value in row.items() if name != "id"} == {str, type(None)}
    for name, format in installed(FORMATS):
        if format.can("write_changes"):
            options = in_own_options(name, "writer", {"catalog": catalog})
            target = str(tmp_path / f"{name}.jsonl")
            format.write(iter([change._replace(after=row)]), target, options, Report(strict=True))


class Failing(EventWriter[bytes]):
    """A format that fails for the events of some classes."""

    def __init__(self, error: Exception, *broken: str) -> None:
        self.error, self.broken = error, set(broken)

    def write(
        self, catalog: Catalog, delivery: DeliveryState, events: Sequence[Outgoing]
    ) -> list[bytes | EventResult]:
        if any(class_name_of(event) in self.broken for event in events):
            raise self.error
        return [f"{class_name_of(event)} {event.event_id}\n".encode() for event in events]

    def body(self, pieces: Sequence[bytes]) -> bytes:
        return b"".join(pieces)

    def piece_of(self, change: Change, event_id: str, object_class: ObjectClass | None) -> bytes:
        raise NotImplementedError


@pytest.fixture
def three_classes(database: sa.Engine, tmp_path: Path) -> Config:
    """A log with a row of each of the tables a, b, c, where b has a child table with a row."""
    tables = [f"CREATE TABLE {name} (id integer PRIMARY KEY, v text)" for name in "abc"]
    child = "CREATE TABLE b_tag (id integer REFERENCES b, tag text, PRIMARY KEY (id, tag))"
    execute(database, *tables, child)
    path = write_config(
        tmp_path, url_of(database), [{"table": name} for name in "abc"],
        publisher={"allow_loopback": True},
    )  # fmt: skip
    config = load(path, {})
    install(config)
    execute(database, *(f"INSERT INTO {name} VALUES (1, 'x')" for name in "abc"))
    execute(database, "INSERT INTO b_tag VALUES (1, 'y')")
    return config


@pytest.mark.parametrize("error", [ConfigError("b has a type that is not known"), KeyError("b")])
def test_a_class_that_a_format_fails_to_write_waits_and_the_others_are_published(
    three_classes: Config, database: sa.Engine, error: Exception
) -> None:
    sink, output = Collecting(), Failing(error, "b")
    with opened(three_classes) as context:
        failing = replace(context, output=output)
        assert list(publish_once(failing, sink)) == ["b"]
        assert statuses(database) == {1: "S", 2: "N", 3: "S", 4: "N"}
        assert set("".join(sink.bodies).splitlines()) == {"a 1", "c 3"}
        assert str(error) in "".join(dry_run(failing))
        output.broken.clear()
        assert not publish_once(failing, sink)
    assert set(statuses(database).values()) == {"S"}
    assert sorted("".join(sink.bodies).split()) == sorted(["a", "1", "c", "3", "b", "2", "b", "4"])


def test_a_class_that_could_not_be_written_is_tried_again_after_its_table_has_changed(
    three_classes: Config, database: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_watcher, "CATALOG_INTERVAL", 0.1)
    sink, output = Collecting(), Failing(ConfigError("b has a type that is not known"), "b")

    @contextmanager
    def opening() -> Iterator[Context]:
        with opened(three_classes, polling_interval=0.01) as context:
            yield replace(context, output=output)

    stop = threading.Event()
    thread = threading.Thread(target=publish, args=(opening, lambda: sink, stop))
    thread.start()
    try:
        wait_until(lambda: statuses(database)[3] == "S")
        output.broken.clear()
        execute(database, "ALTER TABLE b ADD w text")
        wait_until(lambda: set(statuses(database).values()) == {"S"})
    finally:
        stop.set()
        thread.join(PATIENCE)
    assert sorted("".join(sink.bodies).split()) == sorted(["a", "1", "c", "3", "b", "2", "b", "4"])
