"""Keys, values and changes as text, whatever they hold (spec/triggers.md 4, 5, 6)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from platforms import Kept, Platform
from shared import met
from trigger_log import TEXTS

from eventlog.core import table_key

TYPES = ("integer", "number", "real", "text", "string", "binary")


def tables_of_types(platform: Platform, row_style: str = "field") -> Sequence[str]:
    """For each type a table ``v_<type>`` with a value of it, and ``k_<type>`` with a key of it."""
    keys = [type for type in TYPES if type not in ("real", "text")]
    tables = [*(f"v_{type}" for type in TYPES), *(f"k_{type}" for type in keys)]
    platform.run(
        *(f"CREATE TABLE v_{type} (k {{integer}} PRIMARY KEY, v {{{type}}})" for type in TYPES),
        *(f"CREATE TABLE k_{type} (k {{{type}}} PRIMARY KEY, v {{text}})" for type in keys),
    )
    watches = [{"table": table, "row_style": row_style} for table in tables]
    platform.apply(platform.plan(*watches))
    return tables


@pytest.fixture
def types(kept: Kept) -> Platform:
    return kept.made(tables_of_types)


def test_every_text_is_a_canonical_key(platform: Platform) -> None:
    # On Oracle a key has 4000 bytes, and a VARCHAR counts bytes; on MariaDB one has 3072.
    size = {"oracle": 900, "mariadb": 380, "mysql": 380}.get(platform.name, 1000)
    texts = [
        text
        for text in dict.fromkeys(each[:size] for each in TEXTS)
        if text or platform.has("empty_text")
    ]
    quote = platform.dialect.quote
    platform.run(f"CREATE TABLE {quote('t')} ({quote('n')} {{long}}, {quote('a b')} {{long}},"
                 f" PRIMARY KEY ({quote('n')}, {quote('a b')}))")  # fmt: skip
    platform.watch("t")
    platform.insert("t", [{"n": each, "a b": each} for each in texts])
    keys = [str(row.table_key) for row in platform.rows()]
    assert keys == [table_key.key_text([("n", each), ("a b", each)]) for each in texts]
    cls = platform.catalog().class_named("t")
    assert [cls.canonical_key(key) for key in keys] == keys
    with platform.session() as (conn, _):
        found = platform.dialect.open(conn).query_back(platform.catalog().schema, cls, keys, ())
    assert sorted(found) == sorted(keys)


KEYS = [
    ("integer", "-7", "k=-7"),
    ("number", "1.500", "k=1.5"),
    ("number", "100", "k=100"),
    ("number", "0.0", "k=0"),
    ("number", "-0.25", "k=-0.25"),
    ("binary", "{aaaa}", 'k="qqo="'),
    ("binary", "{bbbb}", 'k="u7s="'),
    ("string", "'  AB'", 'k="  AB"'),
]


@pytest.mark.parametrize(("type", "value", "key"), KEYS)
def test_keys_of_every_type_are_canonical(types: Platform, type: str, value: str, key: str) -> None:
    assert types.logged(f"INSERT INTO k_{type} VALUES ({value}, 'x')") == [(1, key, "v", None, "x")]
    catalog = types.catalog()
    cls = catalog.class_named(types.spelled(f"k_{type}"))
    own = key if types.name != "oracle" else key.replace("k=", "K=", 1)
    assert cls.canonical_key(own) == own
    with types.session() as (conn, _):
        assert own in types.dialect.open(conn).query_back(catalog.schema, cls, [own], ())


CHANGES = [
    ("text", "NULL", "NULL", False),
    ("text", "NULL", "'a'", True),
    ("text", "'a'", "NULL", True),
    ("text", "'a'", "'A'", True),
    ("text", "'a'", "'a'", False),
    ("string", "'x'", "'x '", True),
    ("integer", "1", "1", False),
    ("integer", "1", "2", True),
    ("integer", "NULL", "0", True),
    ("number", "1.5", "1.5", False),
    ("number", "1.5", "1.25", True),
    ("binary", "{aaaa}", "{bbbb}", True),
    ("binary", "{aaaa}", "{aaaa}", False),
    ("binary", "{aaaa}", "NULL", True),
]


@pytest.mark.parametrize(
    ("change", "row_style"),
    met(CHANGES, ["field", "row_query_back"], also=[(change, "field") for change in CHANGES]),
)
def test_a_change_is_a_change_of_bytes(
    kept: Kept, change: tuple[str, str, str, bool], row_style: str
) -> None:
    type, old, new, is_changed = change
    types = kept.made(tables_of_types, row_style)
    types.run(f"INSERT INTO v_{type} VALUES (1, {old})")
    assert bool(types.logged(f"UPDATE v_{type} SET v = {new}")) is is_changed


def test_an_empty_text_is_not_null(types: Platform) -> None:
    types.needs("empty_text")
    types.run("INSERT INTO v_text VALUES (1, NULL)")
    assert types.logged("UPDATE v_text SET v = ''") == [(2, "k=1", "v", None, "")]
    assert types.logged("UPDATE v_text SET v = NULL") == [(2, "k=1", "v", "", None)]


VALUES = [
    ("integer", "-7", "-7"),
    ("number", "1.5", "1.5"),
    ("real", "0.25", "0.25"),
    ("real", "-1.5", "-1.5"),
    ("text", "'O''Brien \"x\" \\ <&>'", 'O\'Brien "x" \\ <&>'),
    ("string", "'x '", "x "),
]


@pytest.mark.parametrize(("type", "value", "text"), VALUES)
def test_values_are_one_text(types: Platform, type: str, value: str, text: str) -> None:
    if types.name == "oracle":
        text = re.sub(r"^(-?)0\.", r"\1.", text)  # so TM9 writes it
    if types.is_of_family and type == "number":
        text += "0" * 9  # every decimal has a scale
    assert types.logged(f"INSERT INTO v_{type} VALUES (1, {value})") == [
        (1, "k=1", "v", None, text)
    ]
    catalog = types.catalog()
    cls = catalog.class_named(types.spelled(f"v_{type}"))
    key = "K=1" if types.name == "oracle" else "k=1"
    attributes = [attribute for attribute in cls.attributes if not attribute.is_key]
    with types.session() as (conn, _):
        found = types.dialect.open(conn).query_back(catalog.schema, cls, [key], attributes)
    assert list(found[key].values()) == [[text]]


def test_a_double_keeps_all_its_digits(types: Platform) -> None:
    ((*_, text),) = types.logged("INSERT INTO v_real VALUES (1, 0.1)")
    assert float(str(text)) == 0.1


LONG: list[Any] = ["x" * 3999, "é" * 1900, "😀" * 900]


@pytest.mark.parametrize("text", LONG, ids=["ascii", "two bytes", "four bytes"])
def test_long_values_are_not_cut(types: Platform, text: str) -> None:
    table, *names = map(types.spelled, ("v_text", "k", "v"))
    types.insert(table, [dict(zip(names, (1, text), strict=True))])
    assert [row.new_value for row in types.rows()] == [text]


def test_a_megabyte_is_not_cut(types: Platform) -> None:
    if types.name == "oracle":
        pytest.skip("oracle's VARCHAR2 ends at 4000 bytes; CLOBs are read back")
    types.insert("v_text", [{"k": 1, "v": "ä" * 500_000}])
    assert [len(str(row.new_value)) for row in types.rows()] == [500_000]


NAMES = [
    "plain",
    'a"b',
    "a'b",
    "a b",
    "%s",
    "a%b",
    ":x",
    "select",
    "Ü",
    "a.b",
    "[x]",
    "a;b",
    "{{ x }}",
    "--",
    "$$",
]


def names_of(platform: Platform) -> list[str]:
    # Oracle takes no double quote in a name.
    return [name for name in NAMES if platform.name != "oracle" or '"' not in name]


def tables_of_names(platform: Platform) -> Sequence[str]:
    """For each name a table that has it, and columns that begin with it."""
    quote = platform.dialect.quote
    for name in names_of(platform):
        table, key, value = (quote(f"{name}{end}") for end in ("", "k", "v"))
        platform.run(f"CREATE TABLE {table} ({key} INTEGER PRIMARY KEY, {value} VARCHAR(40))")
    platform.apply(platform.plan(*({"table": name} for name in names_of(platform))))
    return [quote(name) for name in names_of(platform)]


def test_any_identifier_is_a_name_and_nothing_else(kept: Kept) -> None:
    platform = kept.made(tables_of_names)
    for name in names_of(platform):
        table, value = map(platform.dialect.quote, (name, f"{name}v"))
        platform.run(
            f"INSERT INTO {table} VALUES (1, 'x')",
            f"UPDATE {table} SET {value} = 'y'",
            f"DELETE FROM {table}",
        )
        rows = platform.rows()
        assert [row.event_type for row in rows] == [1, 2, 4], name
        assert {row.table_name for row in rows} == {name}
        assert {row.table_key for row in rows} == {f"{table_key.quote(f'{name}k')}=1"}
        assert rows[0].column_name == f"{name}v"


def test_triggers_on_any_identifier_are_found_again(kept: Kept) -> None:
    platform = kept.made(tables_of_names)
    assert platform.plan(*platform.watches).changes == ()
