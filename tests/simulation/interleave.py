"""Sessions of PostgreSQL, interleaved: run schedules, tell the story of one, leave out what does
not matter to a failure, or put faults into the product.

    python tests/simulation/interleave.py --seed leaves-7      the story of a seed, or of a schedule in a file
    python tests/simulation/interleave.py --seeds 1-300        at most --seconds, of all --kinds
    python tests/simulation/interleave.py --seconds 60         fresh seeds
    python tests/simulation/interleave.py --shrink 7
    python tests/simulation/interleave.py --faults all         or parts of their names, with | between

A seed has a schedule of each kind: ``plain`` (7), ``leaves`` (leaves-7), ``crash`` (crash-7) and
``families`` (families-7). After the schedules it prints in how many of them, and how often, a step of
the last three did something. It fails if child rows came before their owners too seldom, or a value was read back after a delete too often. A fault is put into a copy of the product, which another process imports. Each runs an embedded PostgreSQL, or uses a running one of this kind with ``--url``. Schedules that fail are kept in ``simulation-failed/``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from excuses import most_of
from faulty import INTERLEAVED, copy_with, faults
from interleaved.audit import LATE
from interleaved.schedules import (
    KINDS,
    PLAIN,
    Schedule,
    has_families,
    has_leaves,
    schedule_of,
    shrink,
)
from interleaved.server import Databases, databases, server
from interleaved.world import EARLY, World, run_schedule

_KEPT = Path("simulation-failed")
_BY_HAND = Path(__file__).parent / "interleaved" / "by_hand"
"""Schedules that were written for an order of statements that is hardly ever drawn."""
_FLOOR = 0.05
"""The least share of the schedules, if some have families, in which child rows come before owners."""
_LATE_SHARE = 0.02
"""The share of the schedules with families that may need the excuse ``LATE``: 3 of 300 needed it."""
_ENOUGH = 40
"""The number of schedules from which on a share means something."""


def _schedule(named: str) -> Schedule:
    if named.endswith(".json"):
        schedule: Schedule = json.loads(Path(named).read_text())
        return schedule
    kind, _, seed = named.rpartition("-")
    return schedule_of(int(seed), kind or PLAIN)


def _drawn(named: str | None, kinds: Sequence[str]) -> Iterable[Schedule]:
    """Return the schedules of the seeds from one to another, or fresh ones without an end."""
    if named is not None:
        first, _, last = named.partition("-")
        seeds: Iterable[int] = range(int(first), int(last or first) + 1)
    else:
        begin = int(time.time()) % 10**8 * 1000
        print(f"fresh seeds from {begin} on", flush=True)
        seeds = itertools.count(begin)
    return (schedule_of(seed, kind) for seed in seeds for kind in kinds)


def _failure(schedule: Schedule, opened: Databases) -> str | None:
    return next(iter(run_schedule(schedule, opened).failures), None)


def _keep(world: World) -> None:
    _KEPT.mkdir(exist_ok=True)
    name = f"interleaved-{world.schedule['seed']}"
    (_KEPT / f"{name}.json").write_text(json.dumps(world.schedule, indent=1) + "\n")
    (_KEPT / f"{name}.txt").write_text("\n".join(world.story) + "\n")


def _by_hand(kinds: Sequence[str]) -> Iterable[Schedule]:
    """Return the schedules by hand, those with leaves only if one of the kinds has leaves."""
    schedules = (_schedule(str(path)) for path in sorted(_BY_HAND.glob("*.json")))
    return (one for one in schedules if not has_leaves(one) or {*kinds} != {PLAIN})


def _run_many(schedules: Iterable[Schedule], opened: Databases, seconds: float, most: int) -> int:
    """Run schedules until the time is over, or so many have failed; return 1 if one has, or if a
    share is wrong.
    """
    until, number, failed, families = time.monotonic() + seconds, 0, 0, 0
    counts, did = Counter[str](), Counter[str]()
    begun, used = time.monotonic(), time.process_time()
    for schedule in schedules:
        if time.monotonic() > until or failed >= most:
            break
        world = run_schedule(schedule, opened)
        number += 1
        families += has_families(schedule)
        counts.update(world.counts)
        did.update(what for what, times in world.counts.items() if times)
        if world.failures:
            failed += 1
            _keep(world)
            print(f"seed {schedule['seed']} failed: {world.failures[0][:600]}", flush=True)
    spent = time.process_time() - used
    for what, schedules_with in did.most_common():
        print(f"{schedules_with:6} schedules, {counts[what]:6} times: {what}")
    print(
        f"{time.monotonic() - begun:.0f} s: {number} schedules, {failed} failed, "
        f"{number / max(spent, 0.001):.0f} in each second of CPU beside that of the server"
    )
    wrong = list(wrong_shares(did, number, families))
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return int(bool(failed or wrong))


def wrong_shares(did: Mapping[str, int], number: int, families: int) -> Iterator[str]:
    """Complain if too few of the schedules have child rows before their owners, or if too many of
    those with families need the excuse ``LATE``.
    """
    if families and number >= _ENOUGH and did[EARLY] < _FLOOR * number:
        yield f"{EARLY} in fewer than {_FLOOR:.0%} of the schedules"
    if families >= _ENOUGH and did[LATE] > most_of(families, _LATE_SHARE):
        yield f"{LATE} in more than {_LATE_SHARE:.0%} of the schedules"


def _first_failure(opened: Databases, most: int, kinds: Sequence[str]) -> int:
    """Run the schedules written by hand and those of ``most`` seeds up to the first failure, and
    return 1 if there is none.
    """
    drawn = _drawn(f"1-{most}", kinds)
    for number, schedule in enumerate(itertools.chain(_by_hand(kinds), drawn), 1):
        if failure := _failure(schedule, opened):
            print(f"{number:4} schedules, {schedule['seed']}: {failure[:100]}")
            return 0
    print(f"NOT FOUND in {number} schedules")
    return 1


def _in_copy(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run this program with a copy of the product that has a fault."""
    with tempfile.TemporaryDirectory(prefix="faulty-") as made:
        tree = copy_with(faults(*INTERLEAVED)[name], Path(made))
        command = [sys.executable, __file__, *words]
        environment = {**os.environ, "PYTHONPATH": str(tree)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def _try_faults(url: str, named: str, most: int, kinds: Sequence[str]) -> int:
    """Try each fault, print after how many schedules it is found, and return 1 if one is not that
    has to be.
    """
    missed = 0
    for name, fault in faults(*INTERLEAVED).items():
        if named != "all" and not any(part in name for part in named.split("|")):
            continue
        begun = time.monotonic()
        words = ["--first-failure", "--most", str(most), "--kinds", *kinds]
        done = _in_copy(name, "--url", url, *words)
        found = done.stdout.strip() or f"wrong: {done.stderr.strip()[-300:]}"
        missed += bool(done.returncode) and not fault.unseen
        print(f"{name:52} | {time.monotonic() - begun:4.0f} s | {found}", flush=True)
    return int(bool(missed))


def main() -> int:
    """Do what the command line asks for, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    asked = parser.add_mutually_exclusive_group()
    asked.add_argument("--seed", metavar="SEED|FILE")
    asked.add_argument("--seeds", metavar="FIRST-LAST")
    asked.add_argument("--shrink", metavar="SEED|FILE")
    asked.add_argument("--by-hand", action="store_true", help="those of interleaved/by_hand")
    asked.add_argument("--faults", metavar="all|PART OF A NAME|...")
    asked.add_argument(
        "--first-failure", action="store_true", help="of those by hand and of --most seeds"
    )
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="of schedules")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--url", help="of a server that interleaved.server has started")
    parser.add_argument("--fault", help="of the interleaved faults, for --seed and --shrink")
    parser.add_argument("--most", type=int, default=1000, help="failures, or seeds for a fault")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with nullcontext(given.url) if given.url else server() as url:
        if given.faults:
            return _try_faults(url, given.faults, given.most, given.kinds)
        if given.fault:
            named = ("--seed", given.seed) if given.seed else ("--shrink", given.shrink)
            done = _in_copy(given.fault, "--url", url, *named)
            print(done.stdout, done.stderr, sep="", end="")
            return done.returncode
        with databases(url) as opened:
            if given.first_failure:
                return _first_failure(opened, given.most, given.kinds)
            if not (given.seed or given.shrink):
                drawn = _by_hand(given.kinds) if given.by_hand else _drawn(given.seeds, given.kinds)
                return _run_many(drawn, opened, given.seconds, given.most)
            schedule = _schedule(given.seed or given.shrink)
            if given.shrink:
                schedule = shrink(schedule, lambda one: _failure(one, opened))
                print(json.dumps(schedule))
            world = run_schedule(schedule, opened)
            print("\n".join(world.story))
            print(f"seed {schedule['seed']}: {'failed' if world.failures else 'good'}")
            return int(bool(world.failures))


if __name__ == "__main__":
    sys.exit(main())
