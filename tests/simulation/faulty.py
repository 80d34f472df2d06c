"""Faults as texts, and copies of the product that have one.

A fault of ``faults/*.toml`` names the definition that it changes, and the text there that is replaced.
Neither a path nor a line is named, so that a fault outlives a move of its function.
"""

from __future__ import annotations

import ast
import re
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
OF_SIMULATION = ("own", "strangers", "streams", "verify")
"""The files with faults of the simulation of one process."""
INTERLEAVED = ("interleaved", "leaves")
"""The files with faults of the interleaved simulation."""
OF_OUTBOX = ("outbox",)
"""The files with faults that small worlds of the outbox find."""
BY_TESTS = ("by_tests",)
"""The files with faults that no simulation looks for: each names the test that finds it."""

_STATEMENT = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


class Change(NamedTuple):
    """A text of the product, and the one in its place.

    ``inside`` is the definition that has the text once: ``function``, ``Class.method``, ``Class``,
    ``CONSTANT``, the name of a statement in a file of SQL, or that of a template without its ending.
    """

    inside: str
    text: str
    by: str


class Fault(NamedTuple):
    """``unseen`` is why no schedule has shown the fault: it is equivalent, nobody looks at what it
    changes, or no schedule comes to it; empty = it has to be found. ``needs`` are the kinds of steps
    and the places (``places.py``) that a schedule needs to show it; none = any may. ``found_by`` is
    the test that fails with the fault, as ``FILE::TEST`` below the root; empty = none is named.
    """

    name: str
    changes: tuple[Change, ...]
    unseen: str = ""
    needs: tuple[str, ...] = ()
    found_by: str = ""


class DoesNotApply(ValueError):
    """No definition of the name has the text, or several have it."""


@cache
def faults(*files: str) -> Mapping[str, Fault]:
    """Return the faults of these files by name."""
    found: dict[str, Fault] = {}
    for file in files:
        path = Path(__file__).with_name("faults") / f"{file}.toml"
        for one in tomllib.loads(path.read_text())["fault"]:
            changes = tuple(Change(**change) for change in one["change"])
            assert one["name"] not in found, f"two faults are called {one['name']!r}"
            needs = tuple(one.get("needs", ()))
            unseen, found_by = one.get("unseen", ""), one.get("found_by", "")
            found[one["name"]] = Fault(one["name"], changes, unseen, needs, found_by)
    return found


def copy_with(fault: Fault, directory: Path) -> Path:
    """Return a new tree in ``directory`` with a copy of the product that has the fault. Raises
    DoesNotApply.
    """
    tree = directory / re.sub(r"\W+", "_", fault.name)
    shutil.copytree(ROOT / "eventlog", tree / "eventlog")
    for path, text in changed_files(fault).items():
        (tree / path).write_text(text)
    return tree


def changed_files(fault: Fault) -> Mapping[Path, str]:
    """Return the files that a fault changes, below the root, with their new texts. Raises
    DoesNotApply.
    """
    changed: dict[Path, str] = {}
    for change in fault.changes:
        places = [
            (path, text, start, end)
            for path, text in _files_with(change.text, changed)
            for start, end in _definitions(path, text, change.inside)
            if text.count(change.text, start, end) == 1
        ]
        if len(places) != 1:
            raise DoesNotApply(
                f"{fault.name!r}: {len(places)} definitions {change.inside} have the text "
                f"{change.text.strip()!r} once"
            )
        path, text, start, end = places[0]
        inside = text[start:end].replace(change.text, change.by)
        changed[path] = text[:start] + inside + text[end:]
    return changed


def _files_with(part: str, changed: Mapping[Path, str]) -> Iterator[tuple[Path, str]]:
    for path, text in _product().items():
        text = changed.get(path, text)
        if part in text:
            yield path, text


@cache
def _product() -> Mapping[Path, str]:
    return {
        path.relative_to(ROOT): path.read_text()
        for ending in ("py", "sql", "sql.j2")
        for path in sorted((ROOT / "eventlog").rglob(f"*.{ending}"))
    }


def _definitions(path: Path, text: str, name: str) -> Iterator[tuple[int, int]]:
    """Yield where definitions of this name begin and end in a text."""
    if path.suffix == ".j2":
        if path.name == f"{name}.sql.j2":
            yield 0, len(text)
        return
    if path.suffix == ".sql":
        found = list(_STATEMENT.finditer(text))
        ends = [*(one.start() for one in found[1:]), len(text)]
        yield from (
            (one.start(), end) for one, end in zip(found, ends, strict=True) if one[1] == name
        )
        return
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in _defined(ast.parse(text), name.split(".")):
        yield starts[node.lineno - 1], starts[node.end_lineno or node.lineno]


def _defined(within: ast.Module | ast.ClassDef, names: list[str]) -> Iterator[ast.stmt]:
    for node in within.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                pass
            case ast.ClassDef(name=name) if len(names) > 1 and name == names[0]:
                yield from _defined(node, names[1:])
                continue
            case ast.ClassDef(name=name):
                pass
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                pass
            case _:
                continue
        if names == [name]:
            yield node
