"""The tables of docs/operate/security.md: each promise and each bound names tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent.parent
PAGE = TESTS.parent / "docs/operate/security.md"
PROMISES = "| promise | against whom | outside | shown by |\n|---|---|---|---|\n"
BOUNDS = "| border | largest input | memory | depth and time | shown by |\n|---|---|---|---|---|\n"


def promises(head: str = PROMISES) -> list[list[str]]:
    """Return the cells of each line of the table with this head."""
    _, _, after = PAGE.read_text(encoding="utf-8").partition(head)
    lines = after.partition("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


@cache
def functions_of(file: Path) -> set[str]:
    """Return the names of the functions of a file, and of the methods of its classes."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {one.name for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)}


def test_each_promise_names_its_attacker_what_lies_outside_and_its_tests() -> None:
    assert promises()
    assert [line for line in promises() if len(line) != 4 or not all(line)] == []


def test_each_border_has_its_bounds_and_its_test() -> None:
    assert promises(BOUNDS)
    assert [line for line in promises(BOUNDS) if len(line) != 5 or not all(line)] == []


def test_each_generator_of_hostile_input_stands_in_the_table_of_bounds() -> None:
    shown = " ".join(cell for *_, cell in promises(BOUNDS))
    generators = {
        name
        for file in sorted((TESTS / "security").glob("test_hostile_*.py"))
        for name in functions_of(file)
        if name.startswith("test_no_") and name.endswith("_ends_the_process")
    }
    assert {name for name in generators if f"::{name}`" not in shown} == set()


def test_each_test_that_a_promise_names_exists() -> None:
    lines = [*promises(), *promises(BOUNDS)]
    named = [one for *_, cell in lines for one in cell.split(", ")]
    wrong = []
    for one in named:
        found = re.fullmatch(r"`([\w/]+\.py)::(test_\w+)`", one)
        file = TESTS / (found[1] if found else "")
        if not found or not file.is_file() or found[2] not in functions_of(file):
            wrong.append(one)
    assert wrong == []


def test_no_promise_stands_there_twice() -> None:
    texts = [promise for promise, *_ in promises()]
    assert sorted(set(texts)) == sorted(texts)
