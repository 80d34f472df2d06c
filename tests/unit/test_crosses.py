"""Which cases of a cross run by day."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from crosses import of_the_day
from documents import ROOT

SIZES = [(7,), (2, 3), (9, 6, 5), (30, 20)]


@pytest.mark.parametrize("sizes", SIZES)
def test_each_value_of_each_axis_runs_by_day(sizes: tuple[int, ...]) -> None:
    values = {pair for case in of_the_day(sizes, b"commit") for pair in enumerate(case)}
    assert values == {(axis, one) for axis, size in enumerate(sizes) for one in range(size)}


def test_a_twentieth_of_a_large_cross_runs_and_what_single_values_need() -> None:
    assert 30 <= len(of_the_day((30, 20), b"commit")) < 45


def test_the_same_tree_has_the_same_cases_and_another_one_others() -> None:
    assert of_the_day((30, 20), b"one") == of_the_day((30, 20), b"one")
    assert of_the_day((30, 20), b"one") != of_the_day((30, 20), b"two")


def test_a_failure_prints_the_command_that_repeats_it(tmp_path: Path) -> None:
    failing = """
import pytest

@pytest.mark.parametrize("word", ["a b"])
def test_fails(word):
    assert not word
"""
    place = tmp_path / "test_failing.py"
    place.write_text(failing, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "conftest"]
    command += ["-c", ROOT / "pyproject.toml", "--rootdir", tmp_path, place]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ".venv/bin/pytest 'test_failing.py::test_fails[a b]'" in ran.stdout
