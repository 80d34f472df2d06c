"""bench/suite.py counts what a command starts, and nothing else."""

from __future__ import annotations

import subprocess
import sys

from documents import ROOT

_COUNT = """
import sys
sys.path.insert(0, "bench")
import suite
print(suite.run(["sh", "-c", sys.argv[1]])[1].cpu)
"""
_WORK = f"{sys.executable} -c 'import time\nwhile time.process_time() < 0.6: pass'"


def counted(command: str) -> float:
    """Return the seconds of the processor that bench/suite.py counts for a command."""
    words = [sys.executable, "-c", _COUNT, command]
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    return float(ran.stdout)


def test_a_server_that_outlives_the_process_that_started_it_counts() -> None:
    assert counted(f"(setsid {_WORK} &)") > 0.6


def test_what_else_works_on_the_machine_does_not_count() -> None:
    with subprocess.Popen(["sh", "-c", "while :; do :; done"]) as other:
        assert counted("sleep 0.5") < 0.3
        other.kill()
