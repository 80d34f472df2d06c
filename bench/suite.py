#!/usr/bin/env python3
"""What the test suite costs: wall-clock minutes, and CPU minutes of everything that it starts, servers,
browsers and Java included.

    python bench/suite.py                     `make test`, once
    python bench/suite.py --runs 3 make quick

The CPU time is what the kernel has counted for the processes of the command (RUSAGE_CHILDREN). This
process adopts those whose parents end, such as a server in the background (PR_SET_CHILD_SUBREAPER),
and waits for them, so that they count too; only a process whose parent ignores the end of its
children is missing. What else works on the machine does not count, but it makes the wall-clock time
longer: the part of the cores that was busy in the ten seconds before is printed.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
_IDLE: Final = (3, 4)
"""The places of idle and iowait among the times of /proc/stat."""
_GUEST: Final = 8
"""From this place on the times are part of earlier ones."""
_QUIET_SECONDS: Final = 10
_SUBREAPER: Final = 36
"""PR_SET_CHILD_SUBREAPER of prctl."""
_LAST_SECONDS: Final = 60
"""How long a server may take to end once the command has ended."""


class Moment(NamedTuple):
    """Seconds since some moment, and those that the machine's cores have worked, in all."""

    wall: float
    cpu: float


def now() -> Moment:
    """Return the present moment."""
    times = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1 : _GUEST + 1]
    ticks = sum(int(time) for place, time in enumerate(times) if place not in _IDLE)
    return Moment(time.monotonic(), ticks / os.sysconf("SC_CLK_TCK"))


def run(command: Sequence[str]) -> tuple[int, Moment]:
    """Run a command. Return its exit code, and what it and all that it has started cost."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    begun, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    wall = time.monotonic() - begun
    left = time.monotonic() + _LAST_SECONDS
    with suppress(ChildProcessError):  # none is left
        while time.monotonic() < left:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.05)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return code, Moment(wall, cpu)


def main() -> int:
    """Run the command, print what it cost, and return its exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="make test, if none is given")
    given = parser.parse_args()
    command = given.command or ["make", "test"]
    cores = os.cpu_count() or 1
    before = now()
    time.sleep(_QUIET_SECONDS)
    after = now()
    busy = (after.cpu - before.cpu) / (after.wall - before.wall) / cores
    print(f"{cores} cores, {busy:.0%} busy before", flush=True)
    code = 0
    for _ in range(given.runs):
        failed, cost = run(command)
        code = code or failed
        print(
            f"{' '.join(command)}: {cost.wall / 60:.1f} minutes, {cost.cpu / 60:.1f} CPU minutes",
            flush=True,
        )
    return code


if __name__ == "__main__":
    sys.exit(main())
