"""Faults that an ordinary test finds: each names a test that is there, and that fails with the fault."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from faulty import BY_TESTS, ROOT, Fault, copy_with, faults

FAULTS = faults(*BY_TESTS).values()


def test_each_fault_names_a_test_that_is_there() -> None:
    missing = []
    for fault in FAULTS:
        path, _, name = fault.found_by.partition("::")
        tree = ast.parse((ROOT / path).read_text())
        if not any(isinstance(one, ast.FunctionDef) and one.name == name for one in tree.body):
            missing.append((fault.name, fault.found_by))
    assert missing == []


@pytest.mark.night
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_named_test_fails_with_the_fault(fault: Fault, tmp_path: Path) -> None:
    tree = copy_with(fault, tmp_path / "product")
    # Pytest takes away the rights of others above its usual directory.
    own = ["-p", "no:cacheprovider", "--basetemp", tmp_path / "pytest", "-rfE"]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *own, ROOT / fault.found_by],
        env={**os.environ, "PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    name = fault.found_by.partition("::")[2]
    assert f"::{name}" in ended.stdout, ended.stdout + ended.stderr
    assert "FAILED" in ended.stdout, ended.stdout + ended.stderr
