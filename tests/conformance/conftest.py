"""The vectors: which directory, which files it holds, and a case for each test.

``--vectors DIR`` takes another directory of the form of ``vectors/``. A file that nothing here knows is an error, so
that nothing is passed over silently; a directory may hold some of the files only.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

OUR_VECTORS = Path(__file__).parent / "vectors"
FORMATS = ("gbase", "linter", "qlik")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--vectors", metavar="DIR", help="directory of conformance vectors (default: our own)")


def pytest_configure(config: pytest.Config) -> None:
    vectors(config)


def vectors(config: pytest.Config) -> Path:
    # Not there if this file is loaded only while tests are collected: plain `pytest` from the root.
    given = config.getoption("--vectors", default=None)
    directory = OUR_VECTORS if given is None else config.invocation_params.dir / given
    if not directory.is_dir():
        raise pytest.UsageError(f"--vectors {given}: there is no such directory")
    return directory


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    directory = vectors(metafunc.config)
    for name, found in (
        ("vector_file", _files(directory)),
        ("xds_case_file", {path.stem: path for path in sorted(directory.glob("xds/*.json"))}),
        ("valid_key", _cases(directory, "table_key.json", "valid")),
        ("invalid_key", _cases(directory, "table_key.json", "invalid")),
    ):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, list(found.values()), ids=list(found))
    for file in FORMATS:  # an argument qlik_masks: each case of the member masks of qlik.json
        for name in metafunc.fixturenames:
            if name.startswith(f"{file}_"):
                found = _cases(directory, f"{file}.json", name.removeprefix(f"{file}_"))
                metafunc.parametrize(name, list(found.values()), ids=list(found))


def _files(directory: Path) -> dict[str, Path]:
    return {str(path.relative_to(directory)): path for path in sorted(directory.rglob("*")) if path.is_file()}


def _cases(directory: Path, file: str, member: str) -> dict[str, dict[str, object]]:
    path = directory / file
    cases = json.loads(path.read_text(encoding="utf-8")).get(member, []) if path.exists() else []
    return {f"{member}-{number}": case for number, case in enumerate(cases)}
