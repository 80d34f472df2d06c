"""The syntax trees of the package, parsed once in a process of tests."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import pytest

import eventlog

PACKAGE: Final = Path(eventlog.__file__).parent
READS_TREES: Final = pytest.mark.xdist_group("syntax trees")
"""The mark of tests that read all trees: one process runs them."""


@cache
def package_trees() -> Mapping[Path, ast.Module]:
    """Return the tree of each module of the package, by the path of its file."""
    return {
        path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))
    }
