"""Run seeds, tell their stories, shrink what fails.

    python tests/simulation/simulate.py --seed 7          the story of one seed, or of a plan in a file
    python tests/simulation/simulate.py --seeds 1-150     seeds by number
    python tests/simulation/simulate.py --seconds 600     fresh seeds, as many as the time allows
    python tests/simulation/simulate.py --shrink 7        the plan of a failing seed with fewer steps

Exit code 1 if a seed failed. ``make simulate`` calls it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

if os.environ.get("PYTHONHASHSEED") != "0":  # the order of a set is a part of the story
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "0"})

sys.path.insert(0, str(Path(__file__).parent))

from mutations import MUTATIONS, mutated
from plans import Plan, plan_of, shrink
from world import World, run_plan


def _plan(named: str) -> Plan:
    return json.loads(Path(named).read_text()) if named.endswith(".json") else plan_of(int(named))


def _run(plan: Plan) -> World:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return run_plan(plan)


def _failure(plan: Plan) -> str | None:
    return next(iter(_run(plan).failures), None)


def run_many(
    plans: Iterable[Plan], seconds: float = float("inf"), most: int = 10**9
) -> Counter[str]:
    """Run plans until the time is over, or so many have failed. Say what failed, and count."""
    until, counted = time.monotonic() + seconds, Counter[str]()
    for plan in plans:
        if time.monotonic() > until or counted["failed"] >= most:
            break
        world = _run(plan)
        counted.update(world.stats)
        counted["schedules"] += 1
        counted["points"] += world.scheduler.points
        counted["simulated seconds"] += int(world.scheduler.now)
        counted["checks"] += world.auditor.checks
        if world.failures:
            counted["failed"] += 1
            print(f"seed {plan['seed']} failed: {world.failures[0][:600]}", flush=True)
    return counted


def main(words: list[str] | None = None) -> int:
    """Do what the command line asks for, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("--seed", metavar="SEED|FILE")
    asked.add_argument("--seeds", metavar="FIRST-LAST")
    asked.add_argument("--seconds", type=float)
    asked.add_argument("--shrink", metavar="SEED|FILE")
    asked.add_argument("--mutations", metavar="NAME|all")
    parser.add_argument(
        "--first", type=int, default=None, help="the first fresh seed; default: by the clock"
    )
    parser.add_argument("--most", type=int, default=10**9, help="end after so many failures")
    given = parser.parse_args(words)
    if given.seed:
        world = _run(_plan(given.seed))
        print("\n".join(world.story))
        print(f"seed {given.seed}: {'failed' if world.failures else 'good'}")
        return int(bool(world.failures))
    if given.shrink:
        plan = shrink(_plan(given.shrink), _failure)
        path = Path(f"simulation-{plan['seed']}.json")
        path.write_text(json.dumps(plan, indent=1) + "\n")
        print("\n".join(_run(plan).story))
        print(f"{len(plan['steps'])} steps are left, in {path}")
        return 0
    if given.mutations:
        return _try_mutations(given.mutations)
    if given.seeds:
        first, _, last = given.seeds.partition("-")
        seeds = range(int(first), int(last or first) + 1)
    else:
        begin = int(time.time()) % 10**8 * 1000 if given.first is None else given.first
        seeds = range(begin, begin + 10**6)
        print(f"fresh seeds from {begin} on", flush=True)
    began = time.monotonic()
    counted = run_many(map(plan_of, seeds), given.seconds or float("inf"), given.most)
    told = ", ".join(f"{count:,} {what}" for what, count in sorted(counted.items()))
    print(f"{time.monotonic() - began:.0f} s: {told}")
    return int(bool(counted["failed"]))


def _try_mutations(named: str) -> int:
    """Put each fault into the product, and say after how many schedules it is found."""
    missed = 0
    for name, mutation in MUTATIONS.items():
        if named not in ("all", name):
            continue
        plans = (plan for plan in map(plan_of, range(1, 10**6)) if mutation.suits(plan))
        for number, plan in enumerate(plans, 1):
            with mutated(mutation):
                failure = _failure(plan)
            if failure is not None or number >= mutation.most:
                break
        missed += failure is None
        found = (
            f"found by schedule {number}, seed {plan['seed']}: {failure[:100]}"
            if failure
            else f"NOT found in {number}"
        )
        print(f"{name}: {found}", flush=True)
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
