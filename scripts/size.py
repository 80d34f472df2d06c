#!/usr/bin/env python3
"""Print how large eventlog is: a row for each package, and the sums.

    python scripts/size.py          this tree
    python scripts/size.py DIR      another one, such as a worktree of an older commit

The sources are parsed and not imported, so that any commit can be counted. There is no target: the
figures show which packages are large.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]

_MANY_BRANCHES: Final = 15
_BRANCHES: Final = (
    ast.If, ast.For, ast.While, ast.ExceptHandler, ast.IfExp, ast.comprehension, ast.match_case,
    ast.AsyncFor,
)  # fmt: skip

_OF_CONFIGURATION: Final = ("config", "publisher")
"""Packages whose declared options are those of the configuration; others' are of readers and
writers.
"""
_OF_CATALOG: Final = ("changes",)
"""Packages that declare the members of a catalogue's JSON in the way of options."""

_LEGEND: Final = """\
lines       all lines of the Python files; code: neither blank nor comment nor docstring
nodes       nodes of the syntax trees, and how many there are for each line of code
comments    lines that are a comment
branchy     functions with 15 or more branches
config      options of the configuration; formats: options of readers and writers
flags       options of commands
errors      classes below EventlogError, and itself"""


@dataclass
class Counts:
    """The figures of one package."""

    files: int = 0
    lines: int = 0
    code: int = 0
    nodes: int = 0
    comments: int = 0
    branchy: int = 0
    config: int = 0
    formats: int = 0
    flags: int = 0
    errors: int = 0

    def add(self, other: Counts) -> None:
        """Add the figures of another file or package."""
        for one in fields(Counts):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))

    def cells(self) -> list[str]:
        """Return the figures as text, with the nodes per line of code after the nodes."""
        cells = [f"{value:,}" for value in astuple(self)]
        cells.insert(4, f"{self.nodes / self.code:.1f}" if self.code else "")
        return cells


def main() -> None:
    tree = Path(sys.argv[1]).resolve() if sys.argv[1:] else ROOT
    eventlog = tree / "eventlog"
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(eventlog.rglob("*.py"))}
    modules = {path: ast.parse(source) for path, source in sources.items()}
    errors = _error_names(modules.values())
    packages: dict[str, Counts] = {}
    total = Counts()
    for path, source in sources.items():
        inside = path.relative_to(eventlog).parts
        package = inside[0] if len(inside) > 1 else "(modules)"
        counts = _count(package, source, modules[path], errors)
        packages.setdefault(package, Counts()).add(counts)
        total.add(counts)
    head = [one.name for one in fields(Counts)]
    head.insert(4, "a line")
    rows = [["package", *head]]
    rows += [[name, *counts.cells()] for name, counts in sorted(packages.items())]
    rows.append(["eventlog", *total.cells()])
    print("\n".join(_table(rows)))
    sql = [path for path in eventlog.rglob("*") if path.suffix in {".sql", ".j2"}]
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in sql)
    print(f"\n{len(sql)} files of SQL and templates, {lines:,} lines\n\n{_LEGEND}")


def _table(rows: list[list[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        numbers = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        yield "  ".join([row[0].ljust(widths[0]), *numbers])


def _count(package: str, source: str, module: ast.Module, errors: set[str]) -> Counts:
    lines = source.splitlines()
    nodes = list(ast.walk(module))
    comments = {
        token.start[0]
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT and token.line.lstrip().startswith("#")
    }
    filled = {number for number, line in enumerate(lines, 1) if line.strip()}
    options = sum(_is_declared_option(node) for node in nodes)
    is_configuration = package in _OF_CONFIGURATION
    is_of_format = not is_configuration and package not in _OF_CATALOG
    return Counts(
        files=1,
        lines=len(lines),
        code=len(filled - comments - _docstring_lines(nodes)),
        nodes=len(nodes),
        comments=len(comments),
        branchy=sum(_branches(node) >= _MANY_BRANCHES for node in nodes),
        config=options if is_configuration else 0,
        formats=options if is_of_format else 0,
        flags=_flags(nodes),
        errors=sum(isinstance(node, ast.ClassDef) and node.name in errors for node in nodes),
    )


def _docstring_lines(nodes: Iterable[ast.AST]) -> set[int]:
    """Return the lines of docstrings, including those of constants."""
    return {
        number
        for node in nodes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def _branches(node: ast.AST) -> int:
    """Return the number of branches of a function, those of functions inside it among them."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return 0
    inside = list(ast.walk(node))
    alternatives = sum(len(one.values) - 1 for one in inside if isinstance(one, ast.BoolOp))
    return sum(isinstance(one, _BRANCHES) for one in inside) + alternatives


def _called(node: ast.AST | None) -> str:
    """Return the name of the function that a call calls, empty for anything else."""
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""


def _is_declared_option(node: ast.AST) -> bool:
    return isinstance(node, ast.AnnAssign) and _called(node.value) in {"option", "shared"}


def _flags(nodes: Iterable[ast.AST]) -> int:
    """Return the number of flags: decorators that make one, and those that have a name."""
    made = [_called(call) for node in nodes for call in getattr(node, "decorator_list", ())]
    named = [_called(node.value) for node in nodes if isinstance(node, ast.Assign)]
    return sum(one == "click.option" or one.endswith("_option") for one in made) + sum(
        one == "click.option" for one in named
    )


def _error_names(modules: Iterable[ast.Module]) -> set[str]:
    """Return the names of EventlogError and of all classes below it."""
    classes = [node for module in modules for node in module.body if isinstance(node, ast.ClassDef)]
    names = {"EventlogError"}
    while True:
        below = {
            one.name
            for one in classes
            if any(ast.unparse(base).split(".")[-1] in names for base in one.bases)
        }
        if below <= names:
            return names
        names |= below


if __name__ == "__main__":
    main()
