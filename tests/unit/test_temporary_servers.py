"""A test run that is killed leaves no PostgreSQL behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from shared import wait_until

KILLED = """
import sys
sys.path.insert(0, sys.argv[1])
from shared import temporary_servers
from eventlog.sql import embedded
with temporary_servers("el-", None) as directory, embedded.running(directory / "pg"):
    print((directory / "pg" / "postmaster.pid").read_text().split()[0], directory, flush=True)
    sys.stdin.read()
"""


def test_a_process_that_is_killed_leaves_no_server_and_no_directory() -> None:
    command = [sys.executable, "-c", KILLED, str(Path(__file__).parents[1])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        server, directory = run.stdout.readline().split()
        os.kill(run.pid, signal.SIGKILL)
    wait_until(lambda: not Path(directory).exists(), "the directory is gone")
    wait_until(lambda: not Path("/proc", server).exists(), "the server is gone")
