"""Each broken rule of the outbox is found by its small worlds, or by the table of its rules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from faulty import OF_OUTBOX, ROOT, Fault, copy_with, faults

UNIT = ROOT / "tests" / "unit"


@pytest.mark.night
@pytest.mark.parametrize("fault", faults(*OF_OUTBOX).values(), ids=lambda fault: fault.name)
def test_a_broken_rule_is_found(fault: Fault, tmp_path: Path) -> None:
    worlds = [UNIT / "outbox_worlds.py", "--seconds", "60", "--random"]
    for where in fault.needs:
        table = [
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "--basetemp",  # pytest takes away the rights of others above its usual one
            tmp_path / "pytest",
            "-k",
            "not world",
            UNIT / "test_outbox.py",
        ]
        tree = copy_with(fault, tmp_path / where)
        ended = subprocess.run(
            [sys.executable, *(table if where == "table" else [*worlds, where])],
            env={**os.environ, "PYTHONPATH": str(tree)},
            capture_output=True,
            text=True,
            check=False,
            cwd=tree,
        )
        assert ended.returncode, ended.stdout
        assert "AssertionError" in ended.stderr + ended.stdout, ended.stderr
