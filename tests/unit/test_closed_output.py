"""A query with a LIMIT closes the output of a Python worker early, which prints nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

WORKER = """
import socket, sys
from types import SimpleNamespace
from pyspark import daemon

def main(infile, outfile):
    if sys.argv.pop() == "expected":
        from eventlog.spark.session.closed_output import expect_closed_output
        expect_closed_output()
    print("of the worker", file=sys.stderr)
    try:
        while True:
            outfile.write(bytes(1000))
    except OSError:
        sys.exit(-1)

sys.modules["pyspark_worker"] = SimpleNamespace(main=main)
sys.argv = ["daemon", "pyspark_worker", sys.argv[1]]
ours, sparks = socket.socketpair()
sparks.close()
daemon.worker(ours, True)
print("afterwards", file=sys.stderr)
"""


@pytest.mark.parametrize("case", ["expected", "unexpected"])
def test_a_worker_whose_output_is_closed_prints_no_traceback(case: str) -> None:
    done = subprocess.run([sys.executable, "-c", WORKER, case], capture_output=True, text=True)
    if case == "unexpected":
        assert "BrokenPipeError" in done.stderr  # what PySpark prints without eventlog
    else:
        assert done.stderr == "of the worker\nafterwards\n"
