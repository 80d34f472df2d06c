#!/usr/bin/env python3
"""What the test suite costs: wall-clock minutes, and CPU minutes of everything that runs meanwhile,
servers, browsers and Java included.

    python bench/suite.py                     `make test`, once
    python bench/suite.py --runs 3 make quick

The CPU time is that of the whole machine, from /proc/stat, so run it while nothing else works: the
part that was busy in the ten seconds before is printed, and above 5 % the figures are not worth
keeping. Servers that outlive the command count until it ends.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
_IDLE: Final = (3, 4)
"""The places of idle and iowait among the times of /proc/stat."""
_GUEST: Final = 8
"""From this place on the times are part of earlier ones."""
_QUIET_SECONDS: Final = 10


class Moment(NamedTuple):
    """Seconds since some moment, and those that the machine's cores have worked, in all."""

    wall: float
    cpu: float


def now() -> Moment:
    """Return the present moment."""
    times = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1 : _GUEST + 1]
    ticks = sum(int(time) for place, time in enumerate(times) if place not in _IDLE)
    return Moment(time.monotonic(), ticks / os.sysconf("SC_CLK_TCK"))


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
        begun = now()
        code = code or subprocess.run(command, cwd=ROOT, check=False).returncode
        ended = now()
        print(
            f"{' '.join(command)}: {(ended.wall - begun.wall) / 60:.1f} minutes, "
            f"{(ended.cpu - begun.cpu) / 60:.1f} CPU minutes",
            flush=True,
        )
    return code


if __name__ == "__main__":
    sys.exit(main())
