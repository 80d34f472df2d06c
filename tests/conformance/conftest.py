"""The vectors: which directories, which files they hold, and a case for each test.

``vectors/`` are those given with the specification, ``own/`` those that reviews of ours have added.
``--vectors DIR`` takes another directory of the same form in their place. A file that nothing here
knows is an error, so that nothing is passed over silently; a directory may hold some of the files
only.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from functools import partial
from pathlib import Path

import pytest
from old_names import in_new_names

OUR_VECTORS = [Path(__file__).parent / name for name in ("vectors", "own")]
FORMATS = ("gbase", "linter", "qlik")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--vectors", metavar="DIR", help="directory of conformance vectors (default: our own)"
    )


def pytest_configure(config: pytest.Config) -> None:
    vectors(config)


def vectors(config: pytest.Config) -> list[Path]:
    # Not there if this file is loaded only while tests are collected: plain `pytest` from the root.
    given = config.getoption("--vectors", default=None)
    directories = OUR_VECTORS if given is None else [config.invocation_params.dir / given]
    for directory in directories:
        if not directory.is_dir():
            raise pytest.UsageError(f"--vectors {given}: there is no directory {directory}")
    return directories


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    directories = vectors(metafunc.config)
    for name, find in (
        ("vector_file", _files),
        (
            "xds_case_file",
            lambda directory: {path.stem: path for path in sorted(directory.glob("xds/*.json"))},
        ),
        ("valid_key", lambda directory: _cases(directory, "table_key.json", "valid")),
        ("invalid_key", lambda directory: _cases(directory, "table_key.json", "invalid")),
        *(
            # an argument qlik_masks: each case of the member masks of qlik.json
            (name, partial(_cases, file=f"{file}.json", member=name.removeprefix(f"{file}_")))
            for file in FORMATS
            for name in metafunc.fixturenames
            if name.startswith(f"{file}_")
        ),
    ):
        if name in metafunc.fixturenames:
            found = {
                _name(directory, name): one
                for directory in directories
                for name, one in find(directory).items()
            }
            metafunc.parametrize(name, list(found.values()), ids=list(found))


DIFFER = re.compile(
    "answers|child_table|composite_key|layout|nulls|number_edges|query_back|reference_as_dn|"
    "time_syntax|type[568]|value_types|view|xml"
)
"""The cases that reach what differs by a database: the types of columns and their texts, keys of
several columns, views, layouts, and reading rows and their children back."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A case of DIFFER runs on every database, any other on PostgreSQL and SQLite, and at night on
    the others.
    """
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        case, target = parameters.get("xds_case_file"), parameters.get("target")
        if not isinstance(case, Path):  # a directory without such a case has a placeholder
            continue
        if target not in (None, "postgresql", "sqlite") and not DIFFER.match(case.stem):
            item.add_marker(pytest.mark.night)


def _name(directory: Path, name: str) -> str:
    return f"own-{name}" if directory == OUR_VECTORS[1] else name


def _files(directory: Path) -> dict[str, Path]:
    return {
        str(path.relative_to(directory)): path
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def _cases(directory: Path, file: str, member: str) -> dict[str, dict[str, object]]:
    """The cases by name; numbers with a fraction as Decimal, since a message's are not rounded to
    binary.
    """
    path = directory / file
    text = path.read_text(encoding="utf-8") if path.exists() else "{}"
    cases = json.loads(text, parse_float=Decimal if member == "messages" else None).get(member, [])
    for case in cases:
        if "options" in case:
            case["options"] = in_new_names(case["options"])
    return {f"{member}-{number}": case for number, case in enumerate(cases)}
