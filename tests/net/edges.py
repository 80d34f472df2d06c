"""Which comparisons with a limit no test distinguishes from those that begin one further.

    python tests/net/edges.py build/reached/reached.json [--again] [--seconds 40] [--list] [PART OF A MODULE'S PATH ...]

It finds comparisons (``<``, ``<=``, ``>``, ``>=``) with an option, a limit, a number, a size, a position or a time,
swaps each for its neighbour (``<`` for ``<=``) in a copy of the tree, and runs the tests that reach the line, the
cheapest first. ``edges.toml`` keeps what distinguished each. A run goes on where the last one stopped, and tries again
what changed: the comparison, its function, or the test that distinguished it; ``--again`` also those that no test
distinguished. ``equal_edges.toml`` has, by hand, why nobody needs to distinguish an edge.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from copies import ROOT, Copy, commit, server, toml, within
from reached import Reached

ROOMS = ("core", "publisher", "sql", "verify", "qlik", "gbase")
RESULT = Path(__file__).with_name("edges.toml")
EQUAL = Path(__file__).with_name("equal_edges.toml")
_SIGNS = {ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">")}
_NAMES = re.compile(
    r"(?:^|_)(?:max|min|most|least|low|high|limit|longest|largest|size|count|attempts?|tries|ids?|position|times?|at|until|since|seconds|now"
    r"|moment|deadline|due|age|began|begun|cutoff|older|oldest|newest|bytes|first|last|highest|lowest|top|floor|reached"
    r"|removed|window|horizon|interval|distance|patience|offset|sequence|order|epoch|precision|scale|keep)(?:_|$)"
)
"""What words a name has that is a limit, a size, a record_id, a position or a time."""
_CLOCKS = frozenset({"clock", "_clock", "monotonic"})
"""Clocks of the machine: they never show the very moment that something waits for."""
_OF_LOOPS = frozenset({"at", "place", "position", "offset"})
"""Names that are compared with the length of what a loop walks along."""


class Edge(NamedTuple):
    """A comparison of a function. ``nth`` counts comparisons of the same text in the function."""

    module: str
    function: str
    text: str
    sign: str
    nth: int
    digest: str
    """A digest of the function."""
    first: int
    last: int
    start: int
    """Where the sign stands in the module, in bytes."""

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        return self.module, self.function, self.text, self.sign, self.nth

    @property
    def other(self) -> str:
        return next(other for sign, other in _SIGNS.values() if sign == self.sign)

    def swapped(self) -> Mapping[Path, str]:
        """Return the module's text with the neighbour of the sign."""
        data = (ROOT / self.module).read_bytes()
        end = self.start + len(self.sign)
        assert data[self.start : end] == self.sign.encode(), self
        return {Path(self.module): (data[: self.start] + self.other.encode() + data[end:]).decode()}


def edges(root: Path = ROOT) -> Iterator[Edge]:
    """Yield the comparisons with a limit."""
    for room in ROOMS:
        for path in sorted((root / "eventlog" / room).rglob("*.py")):
            yield from _of_module(str(path.relative_to(root)), path.read_bytes())


def _of_module(module: str, data: bytes) -> Iterator[Edge]:
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def at(line: int | None, column: int | None) -> int:
        return starts[(line or 0) - 1] + (column or 0)

    def within_function(
        node: ast.AST, names: tuple[str, ...], around: ast.AST
    ) -> Iterator[tuple[str, ast.AST, Any]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield from within_function(child, (*names, child.name), child)
            else:
                if isinstance(child, ast.Compare):
                    yield ".".join(names), around, child
                yield from within_function(child, names, around)

    tree = ast.parse(data)
    seen = Counter[tuple[str, str, str]]()
    for function, around, compared in within_function(tree, (), tree):
        text = " ".join(
            data[
                at(compared.lineno, compared.col_offset) : at(
                    compared.end_lineno, compared.end_col_offset
                )
            ]
            .decode()
            .split()
        )
        operands = [compared.left, *compared.comparators]
        for number, operator in enumerate(compared.ops):
            before, after = operands[number : number + 2]
            if type(operator) not in _SIGNS or not _is_edge(before, after):
                continue
            sign = _SIGNS[type(operator)][0]
            start = data.index(sign.encode(), at(before.end_lineno, before.end_col_offset))
            key = function, text, sign
            seen[key] += 1
            whole = ast.dump(around) if around is not tree else text
            yield Edge(
                module, function, text, sign, seen[key],
                hashlib.blake2b(whole.encode(), digest_size=4).hexdigest(),
                before.end_lineno or 0, after.lineno, start,
            )  # fmt: skip


def _is_edge(one: ast.expr, other: ast.expr) -> bool:
    """Return True if a comparison has a limit, and is not the end of a loop over a text."""
    names = {_name(one), _name(other)}
    if names & _CLOCKS or ("len" in names and names & _OF_LOOPS):
        return False
    return _is_limit(one) or _is_limit(other)


def _is_limit(node: ast.expr) -> bool:
    """Return True for numbers above two, constants, and for what a name calls a size, a position or a time."""
    match node:
        case ast.Constant(value=int(value) | float(value)):
            return value > 2
        case ast.UnaryOp(operand=inner) | ast.NamedExpr(value=inner):
            return _is_limit(inner)
        case ast.BinOp(left=left, right=right):
            return _is_limit(left) or _is_limit(right)
    name = _name(node)
    return name != "version_info" and (
        name.lstrip("_").isupper() or _NAMES.search(name) is not None
    )


def _name(node: ast.expr) -> str:
    """Return the last name of an expression: of a call, its function."""
    match node:
        case ast.Call(func=function):
            return _name(function)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=value):
            return _name(value)
    return ""


def known(path: Path) -> dict[tuple[str, str, str, str, int], dict[str, Any]]:
    """Return the results of edges in a file."""
    results = tomllib.loads(path.read_text()).get("edge", []) if path.exists() else []
    return {
        (one["module"], one["function"], one["text"], one["sign"], one.get("nth", 1)): one
        for one in results
    }


def _is_done(edge: Edge, results: Mapping[str, Any] | None, reached: Reached, again: bool) -> bool:
    if results is None or results["digest"] != edge.digest:
        return False
    if "found_by" in results:
        return results["found_by"] in reached.seconds or not reached.of(
            edge.module, edge.first, edge.last
        )
    return not again


def write(
    found: Sequence[Edge],
    results: Mapping[tuple[str, str, str, str, int], Mapping[str, Any]],
    reached: Reached,
) -> None:
    """Write what is known of the edges that are there."""
    results = {edge.key: results[edge.key] for edge in found if edge.key in results}
    distinguished = sum("found_by" in one for one in results.values())
    reasons = known(EQUAL)
    head: dict[str, str | int] = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        "commit": commit(),
        "tests": len(reached.seconds),
        "folders": reached.folders,
        "edges": len(found),
        "tried": len(results),
        "distinguished": distinguished,
        "with_a_reason": sum(
            "found_by" not in one and key in reasons for key, one in results.items()
        ),
    }
    lines = [f"# tests/net/edges.py writes this file.\n{toml(head)}"]
    lines += [f"[[edge]]\n{toml(one)}" for one in results.values()]
    RESULT.write_text("\n".join(lines))


def main() -> int:
    """Try the edges that are not done."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reached", type=Path)
    parser.add_argument("parts", nargs="*")
    parser.add_argument("--again", action="store_true", help="also what no test distinguished")
    parser.add_argument("--seconds", type=float, default=40.0, help="CPU seconds per edge")
    parser.add_argument("--list", action="store_true", help="print the comparisons alone")
    given = parser.parse_intermixed_args()
    found = list(edges())
    if given.list:
        for edge in found:
            print(f"{edge.module}:{edge.first} {edge.function}: {edge.text}   {edge.sign}")
        print(len(found))
        return 0
    reached, results, reasons = Reached.read(given.reached), known(RESULT), known(EQUAL)
    left = [
        edge
        for edge in found
        if not _is_done(edge, results.get(edge.key), reached, given.again)
        and (not given.parts or any(part in edge.module for part in given.parts))
        and edge.key not in reasons
    ]
    copy = Copy(ROOT / "build" / "net" / "edges")
    with server():
        for number, edge in enumerate(left, 1):
            tests = reached.of(edge.module, edge.first, edge.last)
            verdict = copy.judge(
                edge.swapped(), within(tests, reached, given.seconds), given.seconds
            )
            one: dict[str, Any] = dict(
                zip(("module", "function", "text", "sign"), edge.key, strict=False)
            )
            if edge.nth > 1:
                one["nth"] = edge.nth
            one |= {"digest": edge.digest, "reaching": len(tests)}
            one |= {"found_by": verdict.found_by} if verdict.found_by else {"tried": verdict.tried}
            results[edge.key] = one
            write(found, results, reached)
            outcome = verdict.found_by or f"NOTHING of {verdict.tried} of {len(tests)} tests"
            print(
                f"{number}/{len(left)} {edge.module} {edge.function}: {edge.text}: {outcome} ({verdict.seconds:.0f} s)",
                flush=True,
            )
    write(found, results, reached)
    missing = [
        edge
        for edge in found
        if "found_by" not in results.get(edge.key, {}) and edge.key not in reasons
    ]
    print(f"{len(missing)} of {len(found)} edges have neither a test nor a reason")
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main())
