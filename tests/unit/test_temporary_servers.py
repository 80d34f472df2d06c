"""What a test run that is killed leaves behind: no PostgreSQL, and no half-made suite of Debian
that another run takes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
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


SUITE = """
import sys
sys.path.insert(0, sys.argv[1])
from suites import suite
print((suite("forky", "test", "none") / "whole").exists())
"""
MMDEBSTRAP = """#!/bin/sh
# The last arguments: a suite, the folder to make, and a mirror.
while [ $# -gt 3 ]; do shift; done
mkdir "$TRIAL/busy" || touch "$TRIAL/two at once"
mkdir "$2"
touch "$TRIAL/begun"
while [ ! -e "$TRIAL/go" ]; do sleep 0.02; done
touch "$2/whole"
rmdir "$TRIAL/busy"
"""


@pytest.mark.skipif(os.getuid() != 0, reason="a suite in a folder is made by root alone")
def test_a_suite_that_a_killed_process_has_begun_is_waited_for(tmp_path: Path) -> None:
    program = tmp_path / "mmdebstrap"
    program.write_text(MMDEBSTRAP)
    program.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "TRIAL": str(tmp_path),
        "EVENTLOG_TEST_SUITES": str(tmp_path / "suites"),
    }
    command = [sys.executable, "-c", SUITE, str(Path(__file__).parents[1])]
    with subprocess.Popen(command, env=environment) as killed:
        wait_until((tmp_path / "begun").exists, "mmdebstrap is at work")
        killed.kill()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as run:
        waiting = f"-> FLOCK  ADVISORY  WRITE {run.pid} "
        both = tmp_path / "two at once"
        wait_until(lambda: waiting in Path("/proc/locks").read_text() or both.exists(), "it waits")
        (tmp_path / "go").touch()
        assert run.communicate()[0] == "True\n"
    assert not both.exists()
