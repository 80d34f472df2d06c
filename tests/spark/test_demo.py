"""``eventlog demo`` to its end: Spark and the publisher send the same events of one backlog."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.night
@pytest.mark.xdist_group("own Java")
def test_the_demo_ends_with_a_backlog_whose_events_are_equal(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("eventlog")), "demo"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=170
    )
    assert done.returncode == 0, done.stderr
    assert "byte for byte, in the same order" in done.stdout
    # Java and Spark speak for themselves.
    assert re.findall(r"(?m)^\d{4}-\d\d-\d\dT.*", done.stderr) == []
