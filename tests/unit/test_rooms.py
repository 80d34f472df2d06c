"""The folders of eventlog: how many rooms a package has, what rooms export and to whom, and the names
that programs of others import (docs/developers/architecture.md, docs/developers/extend.md).
"""

from __future__ import annotations

import ast
import importlib
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest
from source_trees import PACKAGE, READS_TREES, package_trees

ROOT: Final = Path(__file__).parents[2]
MOST_ROOMS: Final = 12
ONE_FILE_PER_THING: Final = ("sinks", "stream", "monitor", "triggers", "migrations", "dialects")
"""Rooms whose ``__init__`` holds what their modules implement or plan: their modules are imported."""

ROOMS: Final = sorted(
    path.parent.relative_to(ROOT).as_posix().replace("/", ".")
    for package in ("publisher", "sql")
    for path in (PACKAGE / package).glob("*/__init__.pyi")
)


@cache
def imported_by_cli_and_spark() -> frozenset[tuple[str, str]]:
    """Each name that a module of these imports, with the module that it names."""
    return frozenset(
        (node.module or "", alias.name)
        for path, tree in package_trees().items()
        if path.relative_to(PACKAGE).parts[0] in ("cli", "spark")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    )


@pytest.mark.parametrize("package", ["publisher", "sql", "spark", "cli", "core", "qlik"])
def test_a_package_has_at_most_twelve_modules_and_rooms(package: str) -> None:
    inside = {path.stem for path in (PACKAGE / package).glob("[a-z]*.py")}
    inside |= {path.parent.name for path in (PACKAGE / package).glob("[a-z]*/__init__.py")}
    assert len(inside) <= MOST_ROOMS, sorted(inside)


@READS_TREES
@pytest.mark.parametrize("package", ["publisher", "sql"])
def test_cli_and_spark_import_from_a_room_what_it_exports(package: str) -> None:
    rooms = {path.parent.name for path in (PACKAGE / package).glob("[a-z]*/__init__.py")}
    inner = re.compile(
        rf"eventlog\.{package}\.({'|'.join(sorted(rooms - {*ONE_FILE_PER_THING, 'doctor'}))})\."
    )
    assert [one for one in sorted(imported_by_cli_and_spark()) if inner.match(one[0])] == []


@READS_TREES
@pytest.mark.parametrize("room", ROOMS)
def test_a_room_exports_what_cli_and_spark_use_and_nothing_else(room: str) -> None:
    module = importlib.import_module(room)
    used = {name for place, name in imported_by_cli_and_spark() if place == room}
    assert sorted(module.__all__) == sorted(used)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


def public_imports() -> list[str]:
    """The imports of programs of others, as the page about extensions lists them."""
    page = (ROOT / "docs" / "developers" / "extend.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"(?s)<!-- what others import -->\n+```python\n(.*?)```", page)
    return block.splitlines()


@pytest.mark.parametrize("line", public_imports())
def test_what_others_import_stays_where_it_is(line: str) -> None:
    exec(line, {})


@pytest.mark.parametrize("name", ["eventlog.sql.embedded", "eventlog.spark.class_archive"])
def test_what_others_run_stays_where_it_is(name: str) -> None:
    assert callable(importlib.import_module(name).main)


def test_the_workers_of_spark_are_started_by_a_module_of_the_old_name() -> None:
    assert find_spec("eventlog.spark.worker_daemon") is not None
