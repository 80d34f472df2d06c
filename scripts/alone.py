#!/usr/bin/env python3
"""Print which lines and branches of eventlog/ a test file reaches and no other file does: what
would be lost without it.

    python scripts/alone.py --record [PYTEST ARGUMENT ...]   run tests, into .coverage-alone
    python scripts/alone.py                                  per file, how many it alone reaches
    python scripts/alone.py tests/faults/test_kill.py        these lines and branches

Processes that a test starts count for its file, except those that are killed. A recording replaces
the last one, and takes about twice the time of the tests; `-n 2` shortens it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import coverage

ROOT: Final = Path(__file__).resolve().parents[1]
DATA: Final = ROOT / ".coverage-alone"
_CONFIG: Final = """\
[run]
branch = true
source = eventlog
data_file = {data}
parallel = true
concurrency = thread
patch = subprocess, _exit
context = ${{{variable}-}}
"""
_PLUGIN: Final = "alone"
_CONTEXT: Final = "EVENTLOG_ALONE"
"""The variable that gives a process which a test starts the context of its file."""

Place = tuple[str, int, int]
"""A file of eventlog/, and two lines of which the second ran after the first."""


def pytest_runtest_setup(item: object) -> None:
    """Begin the context of the test's file: this module is also the plug-in of the recorded run."""
    file = str(getattr(item, "nodeid", "")).partition("::")[0]
    os.environ[_CONTEXT] = file
    if (running := coverage.Coverage.current()) is not None:
        running.switch_context(file)


def record(arguments: list[str]) -> int:
    """Run tests, each file under a context of its name. Return pytest's exit code."""
    for old in ROOT.glob(f"{DATA.name}*"):
        old.unlink()
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory) / "coverage.ini"
        config.write_text(_CONFIG.format(data=DATA, variable=_CONTEXT))
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "scripts")}
        program = [sys.executable, "-m", "coverage"]
        tests = ["-m", "pytest", "-p", _PLUGIN, "-m", "not night", *arguments]
        code = subprocess.run(  # noqa: S603 - pytest, with the arguments of this program
            [*program, "run", f"--rcfile={config}", *tests], cwd=ROOT, env=environment, check=False
        ).returncode
        command = [*program, "combine", "--quiet", f"--rcfile={config}"]
        subprocess.run(command, cwd=ROOT, check=True)  # noqa: S603
    return code


def reached() -> Mapping[Place, frozenset[str]]:
    """Return the test files that reach each pair of lines."""
    data = coverage.CoverageData(str(DATA))
    data.read()
    found: dict[Place, set[str]] = defaultdict(set)
    for context in data.measured_contexts():
        if not context:  # what runs when modules are imported
            continue
        data.set_query_context(context)
        for path in data.measured_files():
            name = str(Path(path).relative_to(ROOT))
            for first, last in data.arcs(path) or ():
                found[name, first, last].add(context.strip("|"))
    return {place: frozenset(files) for place, files in found.items()}


def alone(places: Mapping[Place, frozenset[str]]) -> Iterator[tuple[str, Place]]:
    """Yield each place that one test file alone reaches, with the file."""
    for place, files in places.items():
        if len(files) == 1:
            yield next(iter(files)), place


def main() -> int:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--record", nargs=argparse.REMAINDER, metavar="PYTEST ARGUMENT")
    parser.add_argument("files", nargs="*", help="of tests")
    given = parser.parse_args()
    if given.record is not None:
        return record(given.record)
    if not DATA.exists():
        parser.error("nothing is recorded yet: run it with --record")
    places = reached()
    if given.files:
        for file, (name, first, last) in sorted(alone(places)):
            if file in given.files:
                print(f"{file}: {name}:{abs(first)} -> {abs(last)}")
        return 0
    counts = Counter(file for file, _ in alone(places))
    for file in sorted({file for files in places.values() for file in files}):
        print(f"{counts[file]:6} {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
