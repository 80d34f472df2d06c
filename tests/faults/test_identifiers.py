"""Names of any kind, from the trigger to the document: mixed case, reserved, quoted, Unicode, 63
bytes long.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from publishers import Collecting, install, opened, write_config
from replay import Replay
from shared import execute, fetch, url_of

from eventlog.config.load import load
from eventlog.core.table_key import key_text, quote
from eventlog.publisher.run.daemon import publish_once

LONG_A, LONG_B = "t" * 62 + "a", "t" * 62 + "b"
LONG_UNICODE = "é" * 31 + "x"
assert {len(name.encode()) for name in (LONG_A, LONG_B, LONG_UNICODE)} == {63}

NAMES = [
    "MixedCase",
    "select",
    "two words",
    'quo"ted',
    "apo'strophe",
    "per%cent",
    "%(first)s",
    ":bound",
    "{brace}",
    "back\\slash",
    "semi;colon",
    "dot.ted",
    "plus+equals=",
    "<angle>&",
    "日本語",
    "𐀀",
    "two  blanks",
    "tab\there",
    "$1",
    "--comment",
    LONG_A,
    LONG_B,
    LONG_UNICODE,
]


@pytest.fixture
def database(logged: sa.Engine) -> sa.Engine:
    return logged


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def watched(
    database: sa.Engine, directory: Path, schema: str, tables: list[str], **settings: Any
) -> Any:
    watches = [{"table": name, **settings} for name in tables]
    config = load(
        write_config(
            directory,
            url_of(database),
            watches,
            database={"schema_name": schema, "log_table": quoted("The.Log")},
            publisher={"allow_loopback": True},
        ),
        {},
    )
    install(config)
    return config


def published(config: Any) -> Replay:
    sink = Collecting()
    with opened(config) as context:
        publish_once(context, sink)
    replay = Replay()
    replay.documents(sink.bodies)
    return replay


@pytest.mark.parametrize("row_style", ["field", "row_query_back"])
def test_any_name_of_a_table_and_of_its_columns_goes_all_the_way(
    database: sa.Engine, tmp_path: Path, row_style: str
) -> None:
    schema = 'Odd "schema".%s'
    execute(database, f"CREATE SCHEMA {quoted(schema)}")
    expected: dict[str, dict[str, list[str]]] = {}
    for name in NAMES:
        table = f"{quoted(schema)}.{quoted(name)}"
        others = [other for other in NAMES if other != name][:3]
        columns = ", ".join(f"{quoted(other)} text" for other in [*others, "id"])
        execute(
            database,
            f"CREATE TABLE {table} ({quoted(name)} text, {columns}, PRIMARY KEY ({quoted(name)}, "
            "id))",
        )
        child = cut(f"{name}/c")
        execute(
            database,
            f"CREATE TABLE {quoted(schema)}.{quoted(child)} (own text, num text, {quoted(name)} "
            f"text, UNIQUE (own, num, {quoted(name)}), FOREIGN KEY (own, num) REFERENCES {table} "
            "ON DELETE CASCADE)",
        )
        association = (
            f"{key_text([(name, name), ('id', '1')])},table={quote(name)},schema={quote(schema)}"
        )
        expected[association] = {other: [f"new {other}"] for other in others} | {
            f"{child}.{name}": ["v"]
        }
    config = watched(database, tmp_path, schema, NAMES, row_style=row_style)

    for name in NAMES:
        table = f"{quoted(schema)}.{quoted(name)}"
        others = [other for other in NAMES if other != name][:3]
        old = ", ".join(literal(f"old {other}") for other in others)
        new = ", ".join(f"{quoted(other)} = {literal(f'new {other}')}" for other in others)
        child = f"{quoted(schema)}.{quoted(cut(f'{name}/c'))}"
        execute(
            database,
            f"INSERT INTO {table} VALUES ({literal(name)}, {old}, '1'), ({literal(name)}, {old}, "
            "'2')",
            f"UPDATE {table} SET {new} WHERE id = '1'",
            f"INSERT INTO {child} VALUES ({literal(name)}, '1', 'v'), ({literal(name)}, '2', 'w')",
            f"DELETE FROM {table} WHERE id = '2'",
        )
    replay = published(config)
    assert replay.objects == expected
    assert set(replay.classes.values()) == set(NAMES)
    log = f"{quoted(schema)}.{quoted('The.Log')}"
    assert fetch(database, f"SELECT DISTINCT status FROM {log}") == [("S",)]


def cut(name: str) -> str:
    """At most 63 bytes, and still a name of its own."""
    return name if len(name.encode()) <= 63 else "c" + name[-30:]


def test_tables_whose_shortened_trigger_names_would_collide_have_their_own_triggers(
    database: sa.Engine, tmp_path: Path
) -> None:
    for name in (LONG_A, LONG_B):
        execute(database, f"CREATE TABLE {quoted(name)} (id integer PRIMARY KEY, v text)")
    config = watched(database, tmp_path, "public", [LONG_A, LONG_B])
    functions = fetch(
        database,
        "SELECT DISTINCT tgfoid FROM pg_trigger WHERE NOT tgisinternal AND tgname LIKE '%tgr%tt%'",
    )
    assert len(functions) == 2
    execute(
        database,
        f"INSERT INTO {quoted(LONG_A)} VALUES (1, 'a')",
        f"INSERT INTO {quoted(LONG_B)} VALUES (1, 'b')",
        f"UPDATE {quoted(LONG_A)} SET v = 'aa'",
    )
    assert published(config).objects == {
        f"id=1,table={LONG_A},schema=public": {"v": ["aa"]},
        f"id=1,table={LONG_B},schema=public": {"v": ["b"]},
    }


def test_names_that_differ_in_case_only_are_different_tables(
    database: sa.Engine, tmp_path: Path
) -> None:
    execute(
        database,
        'CREATE TABLE "Usr" ("ID" integer PRIMARY KEY, id text, "Id" text)',
        "CREATE TABLE usr (id integer PRIMARY KEY, v text)",
    )
    config = watched(database, tmp_path, "public", ["Usr", "usr"])
    execute(
        database,
        """INSERT INTO "Usr" VALUES (1, 'lower', 'mixed')""",
        "INSERT INTO usr VALUES (2, 'v')",
    )
    assert published(config).objects == {
        "ID=1,table=Usr,schema=public": {"id": ["lower"], "Id": ["mixed"]},
        "id=2,table=usr,schema=public": {"v": ["v"]},
    }
