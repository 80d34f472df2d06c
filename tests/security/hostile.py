"""Tries the readers of bytes from outside with hostile input, each in a process with limits.

A ``Border`` is a module's constant: how an input is made, how it is read, and the bounds that hold
for any input. At a border each input gives a value or one of ``refusals``; any other exception, a
signal, and more memory or time than the bounds are failures. A failure is reported with the input as
hex and the number that makes it again:

    .venv/bin/python tests/security/hostile.py test_hostile_avro.MESSAGES --seed day --case 812

``EVENTLOG_FUZZ_SECONDS`` are the seconds of the processor that each generator gets in place of
``SECONDS``; the seed is then the date, so that each night tries other inputs.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from random import Random
from time import process_time
from typing import Final

from eventlog.errors import EventlogError

SECONDS: Final = 0.25
"""Seconds of the processor that a generator gets in an ordinary run."""

TESTS: Final = Path(__file__).parent.parent
_FOLDERS: Final = [str(TESTS / one) for one in ("security", "", "unit", "faults")]
_SHOWN: Final = 4000
"""Bytes of a failing input that a report shows."""


@dataclass(frozen=True)
class Border:
    """A place where bytes from outside become values.

    ``read`` may use at most ``limit`` bytes and ``factor`` bytes per byte of the input, and
    ``seconds`` of the processor. ``known`` are attacks by name, each tried in a new process.
    ``least`` is the share of generated inputs that must give a value: a generator whose inputs are all
    refused at their first byte tries nothing. ``prepare`` runs before anything is tried.
    """

    case: Callable[[Random], bytes]
    read: Callable[[bytes], object]
    limit: int
    factor: float
    known: Mapping[str, Callable[[], bytes]] = field(default_factory=dict)
    refusals: tuple[type[Exception], ...] = (EventlogError,)
    seconds: float = 2.0
    least: float = 0.02
    prepare: Callable[[], object] = lambda: None


def generate(border: str) -> None:
    """Try the known attacks at a border, given as ``module.CONSTANT``, and then generated inputs.
    Raises AssertionError with the first input that fails.
    """
    seconds = os.environ.get("EVENTLOG_FUZZ_SECONDS")
    seed = f"{datetime.now(UTC):%Y-%m-%d}" if seconds else "day"
    _in_process(border, "--seed", seed, "--seconds", seconds or str(SECONDS))


def attack(border: str, known: str) -> None:
    """Try one known attack alone. Raises AssertionError if it fails."""
    _in_process(border, "--known", known)


def _in_process(border: str, *arguments: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory) / "input"
        command = [sys.executable, __file__, border, *arguments, "--place", str(place)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        why = done.stdout + done.stderr
        if done.returncode < 0:
            why += f"\nthe process ended by {signal.Signals(-done.returncode).name}"
        number, _, data = place.read_bytes().partition(b"\n") if place.exists() else (b"", b"", b"")
    shown = data[:_SHOWN].hex() + ("..." if len(data) > _SHOWN else "")
    raise AssertionError(
        f"{border} {' '.join(arguments)} --case {number.decode()}: {why.strip()[-3000:]}\n"
        f"{len(data)} bytes: {shown}"
    )


# --- in the process with limits -------------------------------------------------------------------


def _memory(name: str) -> int:
    """Bytes of memory of this process: VmSize, VmRSS, or VmHWM, the most that VmRSS has been."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024


def _try(border: Border, data: bytes) -> bool:
    """Read an input within the bounds of its border. Return whether it gave a value."""
    most = int(border.limit + border.factor * len(data))
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins at VmRSS again
    before, begun = _memory("VmRSS"), process_time()
    # Twice the bound: what takes more is measured, and does not endanger the machine.
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_memory("VmSize") + 2 * most, hard))
    try:
        border.read(data)
        is_read = True
    except border.refusals:
        is_read = False
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    took, used = process_time() - begun, _memory("VmHWM") - before
    assert used <= most, f"it took {used} bytes of memory, more than the bound of {most}"
    assert took <= border.seconds, f"it took {took:.1f} s, more than {border.seconds:g} s"
    return is_read


def _cases(border: Border, seed: str, seconds: float) -> Iterator[tuple[int, bytes]]:
    number, end = 0, process_time() + seconds
    while process_time() < end:
        yield number, border.case(Random(f"{seed}/{number}"))
        number += 1


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("border")
    for name in ("--seed", "--known", "--place", "--case"):
        parser.add_argument(name)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    asked = parser.parse_args()
    sys.path[:0] = _FOLDERS
    module, _, name = asked.border.rpartition(".")
    border: Border = getattr(importlib.import_module(module), name)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    border.prepare()
    if asked.known is None and asked.case is None:
        for known in border.known:  # each in a process whose memory is as new
            if (child := os.fork()) == 0:
                asked.known = known
                break
            if status := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
                print(f"{known}: {'' if status > 0 else signal.Signals(-status).name}")
                sys.exit(1)
    _limit_time(asked.seconds + 3 * border.seconds)
    if asked.known is not None:
        _all(border, [(asked.known, border.known[asked.known]())], asked.place)
    elif asked.case is not None:
        _all(border, [(asked.case, border.case(Random(f"{asked.seed}/{asked.case}")))], asked.place)
    else:
        tried, read = _all(border, _cases(border, asked.seed, asked.seconds), asked.place)
        print(f"{tried} inputs, {read} of them read")
        if read < tried * border.least:
            sys.exit(f"fewer than {border.least:.0%} of the inputs could be read")


def _limit_time(seconds: float) -> None:
    """Let the kernel end this process if an input takes forever."""
    end = ceil(process_time() + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (end, end + 5))


def _all(
    border: Border, cases: Iterable[tuple[int | str, bytes]], place: str | None
) -> tuple[int, int]:
    """Try inputs. Return how many there were, and how many gave a value. The input that is tried
    is in the file ``place``.
    """
    tried = read = 0
    for name, data in cases:
        if place:
            Path(place).write_bytes(f"{name}\n".encode() + data)
        tried += 1
        try:
            read += _try(border, data)
        except BaseException as failure:  # whatever leaves the reader is the finding
            if not place:
                print(data[:_SHOWN].hex())
            traceback.print_exception(failure, limit=-12)
            sys.exit(1)
    return tried, read


if __name__ == "__main__":
    _main()
