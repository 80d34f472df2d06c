"""Tests take what eventlog's modules offer, not their private names (CONTRIBUTING.md)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
OF_TUPLES = {"_replace", "_fields", "_asdict", "_make"}
"""What named tuples offer under names that begin with an underscore."""
MENTIONED = re.compile(
    rf"""[."']_(?!_)(?!(?:{"|".join(one[1:] for one in OF_TUPLES)})\b)\w"""
    r"""|^[ \t]*from eventlog[\w.]* import (?:\([^)]*|.*)(?<!\w)_(?!_)\w""",
    re.MULTILINE,
)
"""A text without it has no private name of eventlog, and need not be parsed: a parse of all tests takes
seconds. It is there for other reasons too.
"""
DOTTED = re.compile(r"eventlog(\.\w+)*\.(_[a-z]\w*|_[A-Z]\w*)(\.\w+)*")


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in OF_TUPLES


def root_of(node: ast.expr) -> str:
    """Return the name at the beginning of ``a.b.c``, empty for another expression."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def of_eventlog(tree: ast.Module) -> set[str]:
    """Return the names of a module that are eventlog's: what it imports, what is made by a class that
    it imports, and parameters of such a class.
    """
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and re.match(r"eventlog\b", node.module or "")
        for alias in node.names
    } | {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if re.match(r"eventlog\b", alias.name)
    }
    known = set(imported)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            if root_of(node.value.func) in imported and re.search(
                r"\b[A-Z]\w*$", ast.unparse(node.value.func)
            ):
                known |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif (
            isinstance(node, ast.arg)
            and node.annotation is not None
            and root_of(node.annotation) in imported
        ):
            known.add(node.arg)
    return known - {"self", "cls"}


def private_names(tree: ast.Module) -> Iterator[str]:
    """Yield the private names of eventlog that a module imports, uses, or patches by a text."""
    ours = of_eventlog(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and re.match(r"eventlog\b", node.module or ""):
            yield from (
                f"{node.module}.{alias.name}" for alias in node.names if is_private(alias.name)
            )
        elif isinstance(node, ast.Attribute) and is_private(node.attr):
            if root_of(node.value) in ours:
                yield ast.unparse(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if DOTTED.fullmatch(node.value):
                yield node.value
        elif isinstance(node, ast.Call | ast.Tuple):
            values = node.args if isinstance(node, ast.Call) else node.elts
            for what, name in pairwise(values):
                if (
                    isinstance(name, ast.Constant)
                    and isinstance(name.value, str)
                    and name.value.isidentifier()
                    and is_private(name.value)
                    and root_of(what) in ours
                ):
                    yield f"{ast.unparse(what)}, {name.value!r}"


@pytest.mark.parametrize(
    "text",
    [
        "from eventlog.core.fold import _fold",
        "from eventlog.core import fold\nfold._LIMIT",
        "from eventlog.core.fold import Fold\nFold(1)\nfold = Fold(2)\nfold._limit",
        "from eventlog.core.fold import Fold\ndef limit(fold: Fold):\n    return fold._limit",
        "from eventlog.core import fold\npatch(fold, '_LIMIT', 3)",
        "from eventlog.core import fold\nBOUNDS = {'limit': (fold, '_LIMIT')}",
        "patch('eventlog.core.fold._LIMIT', 3)",
        "from eventlog.core.fold import (\n    Fold,\n    _fold,\n)",
    ],
)
def test_a_private_name_is_found(text: str) -> None:
    assert MENTIONED.search(text)
    assert len(list(private_names(ast.parse(text)))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "from eventlog.model import Change\nchange = Change(1)\nchange._replace(position='1')",
        "from other import fold\nfold._LIMIT",
        "from eventlog.core.fold import LIMIT as _LIMIT\nclass Own:\n    def get(self):\n        self._own",
    ],
)
def test_other_names_are_no_private_names_of_eventlog(text: str) -> None:
    assert list(private_names(ast.parse(text))) == []


def test_no_test_takes_a_private_name_of_eventlog() -> None:
    found = {}
    for path in sorted(TESTS.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "eventlog" in text and MENTIONED.search(text):
            found[str(path.relative_to(ROOT))] = sorted(set(private_names(ast.parse(text))))
    assert {path: names for path, names in found.items() if names} == {}
