"""The names of options are no part of the triggers: a database whose triggers were installed before
the options got their names of today shows no drift (spec/triggers.md 10).
"""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from eventlog.core.values import parse_type
from eventlog.sql.migrations.operations import compile_definition, from_literals


def item(large: str) -> list[dict[str, Any]]:
    """A table of a number, a text and a large value, as a migration writes it."""
    types = {"id": "integer", "name": "varchar(40)", "data": large}
    columns: list[dict[str, Any]] = [
        {"name": name, "type": type, "kind": parse_type(type).kind.value}
        for name, type in types.items()
    ]
    columns[0]["bits"] = parse_type("integer").bits
    return [{"name": "item", "columns": columns, "primary_key": ["id"]}]


LARGE = {
    "postgresql": "bytea",
    "sqlite": "blob",
    "mariadb": "blob",
    "mysql": "blob",
    "oracle": "clob",
}
STYLES = ("field", "remove_all", "field_query_back", "row_query_back")
CASES: list[tuple[str, dict[str, Any]]] = [
    *((dialect, {"row_style": row_style}) for dialect in LARGE for row_style in STYLES),
    ("postgresql", {"trigger_level": "statement"}),
    ("postgresql", {"capture_replicated": True}),
    ("postgresql", {"capture_replicated": True, "trigger_level": "statement"}),
    ("postgresql", {"max_binary_bytes": 1000}),
    ("oracle", {"trigger_level": "statement"}),
    ("oracle", {"lob_capture_always": True}),
]
DIGESTS: dict[tuple[Any, ...], str] = {
    ("postgresql", ("row_style", "field")): "c02470cb045ceada",
    ("postgresql", ("row_style", "remove_all")): "9df19714163639d6",
    ("postgresql", ("row_style", "field_query_back")): "c5bceb633e4f3f01",
    ("postgresql", ("row_style", "row_query_back")): "900cf71770928c53",
    ("sqlite", ("row_style", "field")): "a66a21332f529431",
    ("sqlite", ("row_style", "remove_all")): "38aa67761d80784e",
    ("sqlite", ("row_style", "field_query_back")): "2412564e7896e387",
    ("sqlite", ("row_style", "row_query_back")): "850c48995a511650",
    ("mariadb", ("row_style", "field")): "a3b9d93f159eb1c0",
    ("mariadb", ("row_style", "remove_all")): "46a115d76aac8b8f",
    ("mariadb", ("row_style", "field_query_back")): "6b4007abd2eb2f85",
    ("mariadb", ("row_style", "row_query_back")): "237d38486c0d54e4",
    ("mysql", ("row_style", "field")): "c61da22cb626b575",
    ("mysql", ("row_style", "remove_all")): "beb9229eaf979113",
    ("mysql", ("row_style", "field_query_back")): "3061f76a05cdd233",
    ("mysql", ("row_style", "row_query_back")): "fa7f4d168a2eba78",
    ("oracle", ("row_style", "field")): "84f08c192f6b5ecb",
    ("oracle", ("row_style", "remove_all")): "e85e72c6e4344792",
    ("oracle", ("row_style", "field_query_back")): "09ddd14ef45ba5d6",
    ("oracle", ("row_style", "row_query_back")): "44871114b86bfe85",
    ("postgresql", ("trigger_level", "statement")): "1eee112e5ae51cb7",
    ("postgresql", ("capture_replicated", True)): "af83bbfef1649de9",
    (
        "postgresql",
        ("capture_replicated", True),
        ("trigger_level", "statement"),
    ): "22539e7614d94563",
    ("postgresql", ("max_binary_bytes", 1000)): "7fee73bbf488c266",
    ("oracle", ("trigger_level", "statement")): "29f0e26ba62fa315",
    ("oracle", ("lob_capture_always", True)): "06b44623bd059a61",
}
"""The hashes of before the options were renamed: they change with the text of triggers alone. Since
then quote_all_identifiers is pinned on PostgreSQL, and on MariaDB an update that IGNORE passes over is
not logged.
"""


def digest_of(dialect: str, options: dict[str, Any]) -> str:
    """Return a hash of the hashes that the installed triggers of a watch would have."""
    definition = from_literals("item", {**options, "schema": "hr", "tables": item(LARGE[dialect])})
    digests = [one.digest for one in compile_definition(definition, dialect)]
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()[:16]


@pytest.mark.parametrize(("dialect", "options"), CASES, ids=lambda one: str(one))
def test_triggers_have_the_hashes_that_they_had_before_the_options_were_renamed(
    dialect: str, options: dict[str, Any]
) -> None:
    assert digest_of(dialect, options) == DIGESTS[dialect, *options.items()]
