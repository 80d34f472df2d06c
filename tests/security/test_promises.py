"""The table of docs/operate/security.md: each promise names tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent.parent
PAGE = TESTS.parent / "docs/operate/security.md"
HEAD = "| promise | against whom | outside | shown by |\n|---|---|---|---|\n"


def promises() -> list[list[str]]:
    """Return the cells of each line of the table."""
    _, _, after = PAGE.read_text(encoding="utf-8").partition(HEAD)
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


def test_each_test_that_a_promise_names_exists() -> None:
    named = [one for *_, cell in promises() for one in cell.split(", ")]
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
