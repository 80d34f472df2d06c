"""scripts/lowest.py tries the floor of each package that eventlog installs."""

from __future__ import annotations

import runpy
import tomllib

from documents import ROOT
from packaging.version import Version

LOWEST = runpy.run_path(str(ROOT / "scripts" / "lowest.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_each_package_has_a_floor_and_tests_that_run_with_it() -> None:
    tests = LOWEST["TESTS"]
    assert sorted(tests) == sorted(LOWEST["floors"]())
    files = {file for some in tests.values() for file in some.split()}
    assert [file for file in sorted(files) if not (ROOT / "tests" / file).exists()] == []


def test_each_extra_without_spark_is_tried() -> None:
    (everything,) = PROJECT["optional-dependencies"]["all"]
    listed = set(everything.partition("[")[2].rstrip("]").split(","))
    assert listed - set(LOWEST["extras"]()) == {"spark", "delta", "iceberg"}


def test_no_version_with_a_known_hole_is_allowed() -> None:
    """A Host header opens the monitor; certificates of other hosts; CR LF in a subject."""
    first = {"starlette": "1.0.1", "redis": "6", "nats-py": "2.16"}
    floors = LOWEST["floors"]()
    assert [name for name, version in first.items() if floors[name] < Version(version)] == []
