"""Which lines of the product each seed reaches, and whether it reaches those that a patch changes.

``touched_spans`` compares two trees, so that a patch may apply at other line numbers than its own.
A changed line counts as reached if a schedule runs any line of its statement. For a definition that
is the body; for a constant, or a field of a class, it is every statement that reads the name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import SequenceMatcher
from pathlib import Path

Span = tuple[str, int, int]
"""A module's path below the tree, and the first and the last of some lines of it."""
Lines = Mapping[str, int]
"""The lines that a schedule ran: by module, a bit for each line."""
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Tracer:
    """It records the lines of a tree's product that run."""

    def __init__(self, tree: Path) -> None:
        from coverage import Coverage

        self._tree = tree
        self._counted = Coverage(
            data_file=None,
            concurrency=["greenlet"],
            include=[str(tree / "eventlog" / "*")],
            config_file=False,
        )

    @contextmanager
    def recording(self) -> Iterator[dict[str, int]]:
        """Yield a mapping that has the lines which ran once the block is over."""
        lines: dict[str, int] = {}
        self._counted.erase()
        self._counted.start()
        try:
            yield lines
        finally:
            self._counted.stop()
        data = self._counted.get_data()
        for path in data.measured_files():
            name = str(Path(path).relative_to(self._tree))
            lines[name] = sum(1 << line for line in data.lines(path) or ())


def is_reached(spans: list[Span], lines: Lines) -> bool:
    """Return True if a schedule that ran ``lines`` ran a line of one of the spans."""
    return any(
        lines.get(name, 0) >> first & ((1 << (last - first + 1)) - 1) for name, first, last in spans
    )


def touched_spans(before: Path, after: Path) -> list[Span]:
    """Return the statements of the tree ``before`` that differ in the tree ``after``."""
    return [
        span
        for path in sorted((before / "eventlog").rglob("*.py"))
        for span in _touched_in(before, path.relative_to(before), after)
    ]


def _touched_in(before: Path, name: Path, after: Path) -> list[Span]:
    old, new = (before / name).read_text(), (after / name).read_text()
    if old == new:
        return []
    lines = old.splitlines()
    matcher = SequenceMatcher(None, lines, new.splitlines(), autojunk=False)
    changed: set[int] = set()
    for kind, first, last, _, _ in matcher.get_opcodes():
        if kind == "insert":
            changed.update(_beside(lines, first))
        elif kind != "equal":
            changed.update(range(first + 1, last + 1))
    module = ast.parse(old)
    return [
        span
        for line in sorted(changed)
        if _is_code(lines[line - 1])
        for span in _spans_of(before, name, module, line)
    ]


def _beside(lines: list[str], place: int) -> Iterator[int]:
    """Yield the numbers of the lines of code before and behind a place between lines."""
    for several in (range(place, 0, -1), range(place + 1, len(lines) + 1)):
        if (found := next((one for one in several if _is_code(lines[one - 1])), None)) is not None:
            yield found


def _is_code(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _spans_of(tree: Path, name: Path, module: ast.Module, line: int) -> list[Span]:
    """Return what has to run so that a line of a module takes part."""
    within = _statements_around(module, line)
    if not within:
        return []
    innermost = within[-1]
    body = getattr(innermost, "body", None)
    first, last = innermost.lineno, innermost.end_lineno or innermost.lineno
    if isinstance(innermost, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return [(str(name), innermost.body[0].lineno, last)]
    is_in_function = any(isinstance(one, _DEFINITIONS[:2]) for one in within)
    if not is_in_function:
        return _uses(tree, _names_of(innermost))
    return [(str(name), first, body[0].lineno - 1 if body else last)]


def _statements_around(module: ast.Module, line: int) -> list[ast.stmt]:
    """Return the statements that a line belongs to, from the outermost to the innermost."""
    found: list[ast.stmt] = []
    around: ast.AST | None = module
    while around is not None:
        around = next(
            (
                one
                for one in ast.walk(around)
                if isinstance(one, ast.stmt)
                and one is not around
                and one not in found
                and one.lineno <= line <= (one.end_lineno or one.lineno)
            ),
            None,
        )
        if around is not None:
            found.append(around)
    return found


def _names_of(statement: ast.stmt) -> set[str]:
    """Return the names that a statement of a module or a class defines."""
    if isinstance(statement, _DEFINITIONS):
        return {statement.name}
    targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
    return {one.id for one in targets if isinstance(one, ast.Name)}


def _uses(tree: Path, names: set[str]) -> list[Span]:
    """Return the statements of functions that read one of these names, also as an attribute."""
    found: list[Span] = []
    for path in sorted((tree / "eventlog").rglob("*.py")):
        text = path.read_text()
        if not any(name in text for name in names):
            continue
        for function in ast.walk(ast.parse(text)):
            if not isinstance(function, _DEFINITIONS[:2]):
                continue
            for one in ast.walk(function):
                read = getattr(one, "id", None) or getattr(one, "attr", None)
                if isinstance(one, (ast.Name, ast.Attribute)) and read in names:
                    last = one.end_lineno or one.lineno
                    found.append((str(path.relative_to(tree)), one.lineno, last))
    return found
