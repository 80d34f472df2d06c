"""Run seeds, tell their stories, shrink what fails.

    python tests/simulation/simulate.py --seed 7          the story of one seed, or of a plan in a file
    python tests/simulation/simulate.py --seeds 1-9,23    seeds by number
    python tests/simulation/simulate.py --plans FILE ...  the stories of plans, each below its name
    python tests/simulation/simulate.py --seconds 600     fresh seeds, as many as the time allows
    python tests/simulation/simulate.py --floors 2000     so many fresh seeds, which meet the places that count
    python tests/simulation/simulate.py --shrink 7        the plan of a failing seed with fewer steps
    python tests/simulation/simulate.py --serial 1-60     plans without interleaving, on SQLite and on PostgreSQL: both end equal

``--report`` adds which features met in how many schedules, and the branches of the publisher that
were reached; it takes three times as long.

Exit code 1 if a seed failed, with ``--floors`` also if a place of ``places.py`` was met in too few
schedules. ``make simulate`` calls it. ``patches.py`` tries faults that are put
in.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

if os.environ.get("PYTHONHASHSEED") != "0":  # the order of a set is a part of the story
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "0"})

sys.path.insert(0, str(Path(__file__).parent))

from places import FLOOR
from plans import Plan, plan_of, shrink
from report import Report, branches, counting_branches
from world import World, run_plan


def _plan(named: str) -> Plan:
    return json.loads(Path(named).read_text()) if named.endswith(".json") else plan_of(int(named))


def _run(plan: Plan) -> World:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        return run_plan(plan)


_COLLECT_AFTER = 8
"""How many schedules keep their worlds in memory."""


def _tell(named: str) -> bool:
    """Print the story of a seed, or of a plan in a file; return True if it failed."""
    world = _run(_plan(named))
    print("\n".join(world.story))
    print(f"seed {named}: {'failed' if world.failures else 'good'}")
    return bool(world.failures)


def _failure(plan: Plan) -> str | None:
    return next(iter(_run(plan).failures), None)


def run_many(
    plans: Iterable[Plan],
    seconds: float = float("inf"),
    most: int = 10**9,
    kept: Path | None = None,
) -> Report:
    """Run plans until the time is over, or so many have failed. Say what failed, and count.

    ``kept`` gets the plan and the story of each that fails, under the name of its seed.
    """
    until, failed, report = time.monotonic() + seconds, 0, Report()
    gc.freeze()  # the modules stay
    for number, plan in enumerate(plans):
        if time.monotonic() > until or failed >= most:
            break
        if number % _COLLECT_AFTER == 0:
            gc.collect()  # the worlds, in which nothing is collected
        used = time.process_time()
        world = _run(plan)
        report.note(world, time.process_time() - used)
        if world.failures:
            failed += 1
            print(f"seed {plan['seed']} failed: {world.failures[0][:600]}", flush=True)
            if kept is not None:
                kept.mkdir(exist_ok=True)
                (kept / f"seed-{plan['seed']}.json").write_text(json.dumps(plan, indent=1) + "\n")
                (kept / f"seed-{plan['seed']}.txt").write_text("\n".join(world.story) + "\n")
    return report


def main(words: list[str] | None = None) -> int:
    """Do what the command line asks for, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("--seed", metavar="SEED|FILE")
    asked.add_argument("--seeds", metavar="FIRST-LAST,...")
    asked.add_argument("--plans", metavar="SEED|FILE", nargs="+")
    asked.add_argument("--seconds", type=float)
    asked.add_argument("--floors", type=int, metavar="SCHEDULES")
    asked.add_argument("--shrink", metavar="SEED|FILE")
    asked.add_argument("--serial", metavar="FIRST-LAST")
    parser.add_argument(
        "--postgres", metavar="URL", help="of a server for --serial; default: an embedded one"
    )
    parser.add_argument(
        "--first", type=int, default=None, help="the first fresh seed; default: by the clock"
    )
    parser.add_argument(
        "--report", action="store_true", help="print which features met, and the branches reached"
    )
    parser.add_argument(
        "--most",
        type=int,
        default=10**9,
        help="end after so many failures",
    )
    given = parser.parse_args(words)
    if given.seed:
        return int(_tell(given.seed))
    if given.plans:
        failed = 0
        for named in given.plans:
            print(f"plan {named}")
            failed += _tell(named)
        return int(failed > 0)
    if given.shrink:
        plan = shrink(_plan(given.shrink), _failure)
        path = Path(f"simulation-{plan['seed']}.json")
        path.write_text(json.dumps(plan, indent=1) + "\n")
        print("\n".join(_run(plan).story))
        print(f"{len(plan['steps'])} steps are left, in {path}")
        return 0
    if given.serial:
        return _run_serially(_range(given.serial), given.postgres)
    if given.seeds:
        plans, kept = map(plan_of, chain.from_iterable(map(_range, given.seeds.split(",")))), None
    else:
        kept = Path("simulation-failed")
        begin = int(time.time()) % 10**8 * 1000 if given.first is None else given.first
        plans = map(plan_of, range(begin, begin + (given.floors or 10**6)))
        print(f"fresh seeds from {begin} on", flush=True)
    began = time.monotonic()
    with counting_branches() if given.report else contextlib.nullcontext() as counted:
        report = run_many(plans, given.seconds or float("inf"), given.most, kept)
    print(f"{time.monotonic() - began:.0f} s: {report.numbers()}")
    print("\n".join([*report.looked_at(), *report.in_vain(), *report.places()]))
    if counted is not None:
        print("\n".join([*report.pairs(), *branches(counted)]))
    below = report.below_floor if given.floors else []
    for place in below:
        print(f"below the floor of {100 * FLOOR:g} %: {place.name} ({place.step}). {place.what}")
    return int(report.has_failed or bool(below))


def _range(told: str) -> range:
    first, _, last = told.partition("-")
    return range(int(first), int(last or first) + 1)


def _run_serially(seeds: Sequence[int], postgres: str | None) -> int:
    """Run plans without interleaving on SQLite and on PostgreSQL, and return 1 if they end
    differently.
    """
    from serial import two_sides

    from eventlog.sql import embedded

    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with contextlib.ExitStack() as kept:
        directory = Path(kept.enter_context(tempfile.TemporaryDirectory(prefix="sim-", dir=memory)))
        url = postgres or kept.enter_context(embedded.running(directory / "pg"))
        run = kept.enter_context(two_sides(url, directory))
        failed = 0
        for seed in seeds:
            if found := run(plan_of(seed)):
                failed += 1
                print(f"seed {seed} ends differently: {found[0][:1000]}", flush=True)
    print(f"{len(seeds)} plans ran serially on SQLite and PostgreSQL, {failed} ended differently")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
