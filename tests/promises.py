"""The promises of eventlog, as pages and registries have them, and the tests that show each by day.

A test shows a promise by its marker ``promise("KIND NAME", ...)``. A name may contain parameters of the
test in braces, as in ``promise("type {kind} {bits}")``: each case shows its own promise. Rows of the
tables in docs/operate/security.md and docs/developers/architecture.md name their tests already.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from eventlog import registry
from eventlog.core.values import TYPE_NAMES
from eventlog.model import EventType

NIGHT: Final = "night"
"""The marker of tests that do not run by day."""

ROOT: Final = Path(__file__).parents[1]
TESTS: Final = ROOT / "tests"


@cache
def _page(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def _section(path: str, heading: str) -> str:
    """Return the text of a section, without its subsections."""
    return _page(path).partition(f"\n{heading}\n")[2].partition("\n#")[0]


def _generated(path: str, block: str) -> str:
    """Return a part of a page that `make reference` writes."""
    _, _, after = _page(path).partition(f"<!-- reference: {block} -->")
    return after.partition("<!-- end of reference -->")[0]


def _in_bold(text: str) -> list[str]:
    """Return what a text has in bold, as one line without links and without the point."""
    found = re.findall(r"(?s)\*\*(.+?)\*\*", text)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(one.split())) for one in found)
    return [one.removesuffix(".") for one in plain]


def _guarantees() -> Iterator[str]:
    """Yield what each section promises in bold, or the heading of a section without bold text."""
    path = "docs/concepts/guarantees.md"
    for heading in re.findall(r"(?m)^## .+$", _page(path)):
        if heading != "## What is not promised":
            yield from _in_bold(_section(path, heading)) or [heading.removeprefix("## ")]


def _commands() -> Iterator[str]:
    page = _generated("docs/reference/command-line.md", "commands")
    return (name for name in re.findall(r"(?m)^### (.+)$", page) if name.islower())


def _exit_codes() -> Iterator[str]:
    rows = _generated("docs/reference/command-line.md", "exit_codes")
    yield from re.findall(r"(?m)^\| (\d+) \|", rows)
    yield from (" ".join(one) for one in re.findall(r"(?m)^\| `(.+?)` \| (\d+) \|", rows))


def _anchors(*pages: str) -> list[str]:
    return [one for page in pages for one in re.findall(r'<a id="([^"]+)"></a>', _page(page))]


KINDS: Final[Mapping[str, Callable[[], Iterable[str]]]] = {
    "readme": lambda: _in_bold(_section("README.md", "## What is promised")),
    "guarantee": _guarantees,
    "specification": lambda: _in_bold(_section("docs/spec/event-log.md", "## 12 Guarantees")),
    "command": _commands,
    "exit": _exit_codes,
    "option": lambda: _anchors(
        "docs/reference/configuration.md", "docs/reference/command-line.md", "docs/guides/spark.md"
    ),
    "code": lambda: _anchors("docs/reference/codes.md"),
    "event": lambda: [f"{one.name}" for one in EventType],
    "type": lambda: [f"{kind} {bits}" for kind, bits in TYPE_NAMES],
    "sink": lambda: registry.own_names(registry.SINKS),
    "format": lambda: registry.own_names(registry.FORMATS),
    "source": lambda: registry.own_names(registry.SOURCES),
    "spark": lambda: re.findall(
        r"(?m)^### (.+)$", _generated("docs/reference/api.md", "spark")
    ),
}  # fmt: skip
"""For each kind of promise, a function that returns the names of the promises."""


OWED: Final = TESTS / "promises_owed.txt"
"""The promises for which nobody has seen a test by day fail when they are broken. The file only shrinks."""


@cache
def owed() -> frozenset[str]:
    """Return the promises that still lack a test by day."""
    return frozenset(OWED.read_text(encoding="utf-8").splitlines())


def promised(kind: str) -> list[str]:
    """Return the promises of a kind, as markers name them."""
    return [f"{kind} {name}" for name in KINDS[kind]()]


@cache
def named_by_pages() -> Mapping[str, tuple[str, ...]]:
    """Return, for each promise of the tables of security and of the publisher's invariants, the tests
    that its row names: as ``folder/file.py::test`` below ``tests``, or ``test`` alone.
    """
    security = _section("docs/operate/security.md", "## Promises")
    invariants = _section("docs/developers/architecture.md", "## Invariants of the publisher")
    rows = re.findall(r"(?m)^\| (.+?) \| .+ \| (`[^|]*`) \|$", f"{security}\n{invariants}")
    return {promise: tuple(re.findall(r"`([^`]+)`", tests)) for promise, tests in rows}


@dataclass(frozen=True, slots=True)
class ByDay:
    """What the collected tests by day show."""

    shown: frozenset[str]
    """The promises that markers name."""
    tests: frozenset[str]
    """The tests, each as ``folder/file.py::test`` and as ``test``."""
    left_out: str
    """Why tests are missing; empty if all were collected."""


COLLECTED: Final = pytest.StashKey[ByDay]()


def gather(config: pytest.Config, items: Iterable[pytest.Item]) -> None:
    """Keep what the collected items show by day, before any is left out by ``-m`` or ``-k``."""
    shown: set[str] = set()
    tests: set[str] = set()
    for item in items:
        if item.get_closest_marker(NIGHT) or item.get_closest_marker("docker"):
            continue
        file, *_, name = re.split(r"[\[@]", item.nodeid)[0].split("::")
        tests |= {name, f"{file.removeprefix('tests/')}::{name}"}
        for marker in item.iter_markers("promise"):
            parameters = item.callspec.params if hasattr(item, "callspec") else {}
            shown.update(one.format(**parameters) for one in marker.args)
    config.stash[COLLECTED] = ByDay(
        frozenset(shown),
        frozenset(tests),
        _left_out(config.args, {one.split("::")[0] for one in tests}),
    )


def _left_out(arguments: Iterable[str], files: set[str]) -> str:
    if nodes := [one for one in arguments if "::" in one]:
        return f"only {nodes[0]} was collected"
    named = {
        one.split("::")[0] for tests in named_by_pages().values() for one in tests if "::" in one
    }
    missing = (named | _files_with_markers()) - files
    return f"{min(missing)} was not collected" if missing else ""


def _files_with_markers() -> set[str]:
    return {
        path.relative_to(TESTS).as_posix()
        for path in TESTS.rglob("test_*.py")
        if "mark.promise(" in path.read_text(encoding="utf-8")
    }
