"""Code asks formats, sinks and sources what they can do, and compares no name of theirs: they are
open to others.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Set
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Final

from source_trees import READS_TREES, package_trees

from eventlog.registry import FORMATS, SINKS, SOURCES, own_names
from eventlog.sql import SUPPORTED

pytestmark = READS_TREES
ROOT: Final = Path(__file__).resolve().parents[2]
OWN: Final = {
    "eventlog": "eventlog/log/",
    "qlik-messages": "eventlog/qlik/",
    "qlik-change-table": "eventlog/qlik/",
    **{name: f"eventlog/publisher/sinks/{name}.py" for name in own_names(SINKS)},
}
"""Where a name is at home, unless it is that of a package ``eventlog/<name>/``."""

EXCEPTED: Final = ("eventlog/config/idm.py", "eventlog/registry.py")
OTHER_MEANINGS: Final = {
    ("eventlog/config/load.py", "eventlog"),
    ("eventlog/log/storage.py", "jsonl"),
    ("eventlog/publisher/monitor/access.py", "http"),
    ("eventlog/transport/http.py", "http"),
    ("eventlog/transport/kafka.py", "kafka"),
}
"""Comparisons with a word that is a name, and means something else: the default source, a kind of
file, the scope and the scheme of a URL.
"""


def constants(tree: ast.Module) -> dict[str, str]:
    """The names of a module that stand for a text."""
    found = {}
    for node in tree.body:
        targets = (
            node.targets
            if isinstance(node, ast.Assign)
            else [node.target]
            if isinstance(node, ast.AnnAssign)
            else []
        )
        value = getattr(node, "value", None)
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            found |= {target.id: value.value for target in targets if isinstance(target, ast.Name)}
    return found


def texts(node: ast.AST, known: Mapping[str, Set[str]]) -> Iterator[str]:
    """The texts that a side of a comparison holds."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.Name(id=name) if name in known:
            yield from known[name]
        case ast.Tuple() | ast.List() | ast.Set():
            for one in node.elts:
                yield from texts(one, known)
        case ast.Call(args=[ast.Set() | ast.Tuple() | ast.List() as inner]):
            yield from texts(inner, known)


DATABASES_ELSEWHERE: Final = {
    ("eventlog/conversion.py", "sqlite"),
    ("eventlog/core/values/__init__.py", "postgresql"),
    ("eventlog/qlik/tables/database_tables.py", "sqlite"),
}
"""Comparisons with a database's name: a URL of change tables, which may be of any database that
SQLAlchemy knows; what the types of a catalogue mean, which may be a file that names the database.
"""


@cache
def texts_compared() -> Set[tuple[str, str]]:
    """The places of code that compare a text, and the text."""
    files = {path.relative_to(ROOT).as_posix(): tree for path, tree in package_trees().items()}
    own = {place: constants(tree) for place, tree in files.items()}
    shared: dict[str, set[str]] = {}
    for name, text in chain.from_iterable(known.items() for known in own.values()):
        if name.isupper():
            shared.setdefault(name, set()).add(text)
    found = set()
    for place, tree in files.items():
        known = {**shared, **{name: {text} for name, text in own[place].items()}}
        for node in ast.walk(tree):
            sides: list[ast.AST] = []
            if isinstance(node, ast.Compare):
                sides = [node.left, *node.comparators]
            elif isinstance(node, ast.MatchValue):
                sides = [node.value]
            found |= {(place, text) for side in sides for text in texts(side, known)}
    return found


def comparisons(names: Set[str]) -> set[tuple[str, str]]:
    """The places of code that compare one of the names, and the name."""
    return {
        (place, text)
        for place, text in texts_compared()
        if text in names and not place.startswith(EXCEPTED)
    }


def test_no_name_of_a_format_or_sink_or_source_is_compared_outside_its_own_package() -> None:
    names = {name for group in (FORMATS, SINKS, SOURCES) for name in own_names(group)}
    found = {
        (place, name)
        for place, name in comparisons(names)
        if not place.startswith(OWN.get(name, f"eventlog/{name}/"))
    }
    assert found - OTHER_MEANINGS == set()


def test_no_name_of_a_database_is_compared_outside_its_own_package() -> None:
    found = {
        (place, name)
        for place, name in comparisons(set(SUPPORTED))
        if not place.startswith(f"eventlog/sql/dialects/{name}/")
    }
    assert found == DATABASES_ELSEWHERE
