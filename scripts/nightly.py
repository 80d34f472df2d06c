#!/usr/bin/env python3
"""Everything that is tested, in at most ninety minutes on two cores (make nightly).

The checks and the tests by day come first, and alone: some of them measure time. Then two rows of
parts run side by side. A part that fails or takes longer than its minutes does not end the others.
What a part prints is in build/nightly/PART.txt. The last line names the parts that failed, and the
exit code is 1 if one did.

    python scripts/nightly.py              all parts
    python scripts/nightly.py lowest fuzz  these
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PYTEST: Final = (".venv/bin/pytest", "-rf", "--dist", "loadgroup")
LAST_WORDS: Final = 60.0
"""Seconds that a part has to end its servers and to report, once its minutes are over."""


@dataclass(frozen=True)
class Part:
    """A command from the root of the tree, with the minutes that it may take and variables of its
    environment.
    """

    name: str
    minutes: float
    command: Sequence[str]
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Ended:
    """A part that has run. ``failure`` is how it failed, None if it did not."""

    part: Part
    minutes: float
    failure: str | None


BY_DAY: Final = Part("day", 25, ("make", "--no-print-directory", "test"))
ROWS: Final = (
    (
        Part(
            "night", 62, (*PYTEST, "-n", "2", "-m", "night or property"),
            {"EVENTLOG_TEST_EXAMPLES": "2"},
        ),
    ),
    (
        Part("simulate", 25, ("make", "--no-print-directory", "simulate", "FLOORS=2000")),
        Part("interleave", 9, ("make", "--no-print-directory", "interleave", "SECONDS=420")),
        Part(
            "fuzz", 14, (*PYTEST, "-n", "1", "tests/security", "-k", "ends_the_process"),
            {"EVENTLOG_FUZZ_SECONDS": "30"},
        ),
        Part("lowest", 14, ("make", "--no-print-directory", "lowest")),
    ),
)  # fmt: skip
"""The parts that follow: those of a row one after another, the rows side by side."""


def run(part: Part, directory: Path, last_words: float = LAST_WORDS) -> Ended:
    """Run a part as a new process group, and stop the group when its minutes are over."""
    begun = time.monotonic()
    with (directory / f"{part.name}.txt").open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - one of the commands above
            part.command,
            cwd=ROOT,
            env={**os.environ, **part.variables},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        failure = None
        try:
            if code := process.wait(part.minutes * 60):
                failure = f"exit code {code}"
        except subprocess.TimeoutExpired:
            failure = f"stopped after {part.minutes:g} minutes"
            stop(process, last_words)
        except BaseException:
            stop(process, 0)
            raise
    ended = Ended(part, (time.monotonic() - begun) / 60, failure)
    print(f"{part.name}: {failure or 'good'}, {ended.minutes:.1f} minutes", flush=True)
    return ended


def stop(process: subprocess.Popen[bytes], last_words: float) -> None:
    """Interrupt a process group, as Ctrl-C does, and kill what is left of it after some seconds."""
    with suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(process.pid, signal.SIGINT)
        process.wait(last_words)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run_rows(rows: Sequence[Sequence[Part]], directory: Path) -> list[Ended]:
    """Run rows of parts side by side. A failure does not stop the parts after it."""
    with ThreadPoolExecutor(max(1, len(rows))) as threads:
        done = threads.map(lambda row: [run(part, directory) for part in row], rows)
        return [ended for row in done for ended in row]


def closing_line(ended: Sequence[Ended], minutes: float, commit: str) -> str:
    """Return the line that the night ends with."""
    failed = [f"{one.part.name} ({one.failure})" for one in ended if one.failure]
    outcome = f"FAILED: {', '.join(failed)}" if failed else "good"
    return f"nightly {commit}: {outcome}; {len(ended)} parts in {minutes:.0f} minutes"


def commit_of(tree: Path) -> str:
    """Return the abbreviated commit, with ``+`` if files were changed since."""
    words = ["git", "-C", str(tree), "describe", "--always", "--dirty=+", "--exclude=*"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603
    return done.stdout.strip() or "without a commit"


def main(names: Sequence[str]) -> int:
    """Run the parts of these names, or all. Return the exit code."""
    parts = [BY_DAY, *(part for row in ROWS for part in row)]
    if unknown := sorted(set(names) - {part.name for part in parts}):
        print(f"there is no part {unknown[0]}; parts are {', '.join(p.name for p in parts)}")
        return 2
    chosen = {part.name for part in parts if not names or part.name in names}
    directory = ROOT / "build" / "nightly"
    directory.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    commit = commit_of(ROOT)
    ended: list[Ended] = []
    for rows in ([[BY_DAY]], ROWS):
        kept = [[part for part in row if part.name in chosen] for row in rows]
        ended += run_rows([row for row in kept if row], directory)
    print(closing_line(ended, (time.monotonic() - begun) / 60, commit))
    return 1 if any(one.failure for one in ended) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
