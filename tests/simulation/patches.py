"""Try faults of the product: which of them does the simulation find?

    python tests/simulation/patches.py FILE.patch ...         patches of the product
    python tests/simulation/patches.py --faults all|PART      those of faults/own.toml and strangers.toml

Each is applied to a copy of the product, and a child of this process imports that copy. The child
runs seeds that reach the changed lines, and stops at the first failure. They are taken from
``--seeds``. A fault whose text has ``needs``, and a patch with ``--needs``, takes the first seeds
whose plans have these steps (kinds of steps, or places of ``places.py``), and begins with those
whose schedules have met them. ``--most`` limits the schedules per fault.

A plan in ``plans/`` names the faults that it ``finds``. These are tried with the plan first, and
with ``--most 0`` no seeds are run.

The first run of a state of the sources records which lines each seed reaches, and keeps it in
``simulation-reach/`` (``--cache``). That takes twice the time of the schedules.

A row of the table has the verdict, the schedules that ran, those that reach the lines, those whose
story differs from the story without the fault, and the CPU seconds. A story that does not differ is
no test of a fault: if none differs, the verdict is ``untested``, and the fault needs other steps.
``not found`` is a fault that the auditor does not see, or a difference that harms nobody.

Exit code 1 if a fault was not found that has to be. ``make simulate MUTATION=FILE.patch`` calls it.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import functools
import hashlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__" and os.environ.get("PYTHONHASHSEED") != "0":
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "0"})

sys.path.insert(0, str(Path(__file__).parent))

import coverage  # noqa: F401 - children inherit what is imported here; the product is not
import greenlet  # noqa: F401
import sqlalchemy  # noqa: F401
from faulty import OF_SIMULATION, copy_with, faults
from reach import Lines, Span, Tracer, is_reached, touched_spans

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
_BESIDE = {
    "auditor.py", "exit_codes.py", "faulty.py", "patches.py", "reach.py", "report.py", "serial.py", "simulate.py",
    "test_patches.py", "test_simulation.py",
}  # fmt: skip
"""The modules of the simulation that have no part in what a schedule reaches."""
_SHARE = 20
"""The seeds that a child records."""
_MAX_SECONDS = 60.0
"""The CPU seconds that a schedule may take."""


class Schedule(NamedTuple):
    """What became of a seed without a patch. ``failure`` is empty if it was good."""

    seed: int
    failure: str
    story: str
    lines: Lines
    met: frozenset[str]
    """The kinds of steps that did something, and the places that were met."""


class Trial(NamedTuple):
    """A copy of the product to try. ``unseen`` is why its fault need not be found, ``needs`` the
    kinds of steps and the places that show it.
    """

    name: str
    tree: Path
    spans: list[Span]
    unseen: str = ""
    needs: frozenset[str] = frozenset()
    plans: tuple[Path, ...] = ()
    """The plans in files that find the fault."""


class Result(NamedTuple):
    """What became of a fault. ``found_by`` is the seed or plan that failed first."""

    name: str
    ran: int
    reaching: int
    differing: int
    seconds: float
    found_by: str = ""
    told: str = ""

    @property
    def verdict(self) -> str:
        if self.found_by or self.told:
            return "found" if self.found_by else "wrong"
        if not self.reaching:
            return "unreached"
        return "not found" if self.differing else "untested"


class DoesNotEnd(BaseException):
    """A schedule took more than ``_MAX_SECONDS`` of CPU."""


# --- one schedule, in a child
# -----------------------------------------------------------------------


def _run(plan: int | Path) -> tuple[str, str, list[str]]:
    """Run a seed, or the plan of a file; return its failure, a digest of its story, and what it has
    met."""
    from operators import done_in
    from places import met_places
    from plans import plan_of
    from world import run_plan

    expired = 0

    def expire(*_: object) -> None:
        nonlocal expired
        expired += 1
        if expired > 1:
            os.kill(os.getpid(), signal.SIGKILL)
        raise DoesNotEnd(f"more than {_MAX_SECONDS:g} CPU seconds")

    signal.signal(signal.SIGPROF, expire)
    signal.setitimer(signal.ITIMER_PROF, _MAX_SECONDS, _MAX_SECONDS)
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            world = run_plan(
                plan_of(plan) if isinstance(plan, int) else json.loads(plan.read_text())
            )
    except BaseException as error:
        return f"{type(error).__name__}: {error}", "", []
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    story = hashlib.blake2b("\n".join(world.story).encode(), digest_size=8).hexdigest()
    met = sorted({*done_in(world.stats), *met_places(world.stats)})
    return next(iter(world.failures), ""), story, met


class _Child(NamedTuple):
    name: str
    output: Path


def _fork(
    name: str, tree: Path, directory: Path, work: Callable[[Callable[[Any], None]], None]
) -> tuple[int, _Child]:
    """Start a child that imports the product of ``tree``, and does ``work`` with a function that
    hands an object to the parent."""
    assert "eventlog" not in sys.modules, "the product has to come from the tree of the child"
    output = directory / f"{re.sub('[^A-Za-z0-9]', '_', name)}.jsonl"
    if pid := os.fork():
        return pid, _Child(name, output)
    code = 1
    atexit._clear()  # what the parent removes at its end
    try:
        sys.path.insert(0, str(tree))
        with output.open("w") as file:

            def hand_over(what: Any) -> None:
                file.write(json.dumps(what) + "\n")
                file.flush()

            try:
                work(hand_over)
                code = 0
            except BaseException as error:
                hand_over({"error": f"{type(error).__name__}: {error}"})
    finally:
        atexit._run_exitfuncs()
        os._exit(code)


def _in_children(
    jobs: int, starts: Iterable[Callable[[], tuple[int, _Child]]]
) -> Iterator[tuple[_Child, list[Any], float]]:
    """Run children, so many at a time; yield each as it ends, with what it handed over and its CPU
    seconds."""
    waiting, running = list(starts), dict[int, _Child]()
    while waiting or running:
        while waiting and len(running) < jobs:
            pid, child = waiting.pop(0)()
            running[pid] = child
        pid, status, usage = os.wait4(-1, 0)
        child = running.pop(pid)
        told = [json.loads(line) for line in child.output.read_text().splitlines()]
        if os.WIFSIGNALED(status):
            told.append({"error": f"ended by signal {os.WTERMSIG(status)}"})
        yield child, told, usage.ru_utime + usage.ru_stime


# --- what each seed reaches
# -------------------------------------------------------------------------


def _state() -> str:
    """Return a digest of the sources that decide what a schedule does."""
    digest = hashlib.blake2b(digest_size=10)
    own = (path for path in HERE.glob("*.py") if path.name not in _BESIDE)
    for path in sorted([*(ROOT / "eventlog").rglob("*.py"), *own]):
        digest.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def schedules(seeds: Sequence[int], jobs: int, directory: Path, cache: Path) -> list[Schedule]:
    """Return what became of these seeds without a fault, from the file of this state of the sources
    in ``cache`` or by running them."""
    kept = cache / f"{_state()}.jsonl"
    known = dict(_kept_in(kept))
    missing = [seed for seed in seeds if seed not in known]
    if missing:
        print(f"recording which lines {len(missing)} seeds reach", flush=True)
        shares = [missing[first : first + _SHARE] for first in range(0, len(missing), _SHARE)]
        starts = [
            functools.partial(
                _fork, f"share{number}", ROOT, directory, functools.partial(_record, share)
            )
            for number, share in enumerate(shares)
        ]
        kept.parent.mkdir(exist_ok=True)
        for other in kept.parent.glob("*.jsonl"):
            if other != kept:
                other.unlink()
        with kept.open("a") as file:
            for _, told, _ in _in_children(jobs, starts):
                for one in told:
                    assert "error" not in one, one["error"]
                    file.write(json.dumps(one) + "\n")
                file.flush()
        known = dict(_kept_in(kept))
    return [known[seed] for seed in seeds]


def _kept_in(path: Path) -> Iterator[tuple[int, Schedule]]:
    for line in path.read_text().splitlines() if path.exists() else ():
        one = json.loads(line)
        lines = {name: int(bits, 16) for name, bits in one.pop("lines").items()}
        met = frozenset(one.pop("met"))
        yield one["seed"], Schedule(**one, lines=lines, met=met)


def _record(seeds: Iterable[int], hand_over: Callable[[Any], None]) -> None:
    tracer = Tracer(ROOT)
    for seed in seeds:
        with tracer.recording() as lines:
            failure, story, met = _run(seed)
        hand_over(
            {
                "seed": seed,
                "failure": failure,
                "story": story,
                "met": met,
                "lines": {name: f"{bits:x}" for name, bits in lines.items()},
            }
        )


# --- faults
# -----------------------------------------------------------------------------------------


def _patched_copy(patch: Path, directory: Path) -> Path:
    """Return a copy of the product with a patch. Raises CalledProcessError if it does not apply."""
    tree = directory / patch.stem
    shutil.copytree(ROOT / "eventlog", tree / "eventlog")
    subprocess.run(
        ["git", "apply", "--recount", str(patch.resolve())],
        cwd=tree,
        env={**os.environ, "GIT_DIR": os.devnull},
        check=True,
        capture_output=True,
        text=True,
    )
    return tree


def of_patches(
    patches: Sequence[Path], needs: Iterable[str], directory: Path
) -> Iterator[Trial | Result]:
    """Yield a trial of each patch, and a result for each that does not apply."""
    for patch in patches:
        try:
            tree = _patched_copy(patch, directory)
        except subprocess.CalledProcessError as error:
            yield Result(patch.stem, 0, 0, 0, 0.0, told=f"does not apply: {error.stderr.strip()}")
        else:
            yield Trial(patch.stem, tree, touched_spans(ROOT, tree), needs=frozenset(needs))


def of_faults(part: str, directory: Path) -> Iterator[Trial]:
    """Yield a trial of each fault with a part in its name. Raises DoesNotApply."""
    plans = [(path, json.loads(path.read_text())) for path in sorted((HERE / "plans").iterdir())]
    for name, fault in faults(*OF_SIMULATION).items():
        if part == "all" or part in name:
            tree = copy_with(fault, directory)
            spans = touched_spans(ROOT, tree)
            finds = tuple(path for path, plan in plans if name in plan.get("finds", ()))
            yield Trial(name, tree, spans, fault.unseen, frozenset(fault.needs), finds)


def seeds_with(needs: Iterable[str], most: int, directory: Path) -> list[int]:
    """Return the first seeds whose plans have the steps of these kinds, and those that aim at these
    places."""

    def choose(hand_over: Callable[[Any], None]) -> None:
        from plans import seeds_with_steps

        hand_over(seeds_with_steps(needs, most))

    start = functools.partial(_fork, "seeds", ROOT, directory, choose)
    ((_, ((seeds),), _),) = _in_children(1, [start])
    assert isinstance(seeds, list), seeds
    return seeds


def _try(plans: Iterable[int | Path], hand_over: Callable[[Any], None]) -> None:
    """Run plans in files and of seeds up to the first that fails."""
    for plan in plans:
        failure, story, _ = _run(plan)
        name = f"seed {plan}" if isinstance(plan, int) else plan.stem
        hand_over({"plan": name, "failure": failure, "story": story})
        if failure:
            break


def reached(trial: Trial, good: Iterable[Schedule]) -> list[int]:
    """Return the seeds whose schedules reach the changed lines. Those that met what the fault needs
    come first."""
    reaching = [one for one in good if is_reached(trial.spans, one.lines)]
    return [one.seed for one in sorted(reaching, key=lambda one: not trial.needs <= one.met)]


def try_copies(
    trials: Mapping[str, tuple[Trial, Sequence[int | Path]]],
    stories: Mapping[str, str],
    jobs: int,
    directory: Path,
) -> Iterator[Result]:
    """Yield what became of each trial with its plans, as it ends."""
    starts = [
        functools.partial(_fork, trial.name, trial.tree, directory, functools.partial(_try, plans))
        for trial, plans in trials.values()
    ]
    for child, told, seconds in _in_children(jobs, starts):
        yield _result(child.name, told, seconds, stories)


def _result(name: str, told: Sequence[Any], seconds: float, stories: Mapping[str, str]) -> Result:
    ran = [one for one in told if "plan" in one]
    differing = sum(one["story"] != stories.get(one["plan"]) for one in ran)
    result = Result(name, len(ran), len(ran), differing, seconds)
    if told and "error" in told[-1]:
        return result._replace(told=told[-1]["error"])
    if ran and ran[-1]["failure"]:
        return result._replace(found_by=ran[-1]["plan"], told=ran[-1]["failure"])
    return result


def main() -> int:
    """Do what the command line asks for, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("patches", nargs="*", type=Path, metavar="FILE.patch")
    parser.add_argument("--faults", metavar="all|PART")
    parser.add_argument("--seeds", default="1-300", metavar="FIRST-LAST")
    parser.add_argument(
        "--needs", default="", metavar="STEP,PLACE,...", help="what shows the patches"
    )
    parser.add_argument("--most", type=int, default=100, help="of the schedules per fault")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--cache", type=Path, default=ROOT / "simulation-reach", metavar="DIRECTORY"
    )
    given = parser.parse_args()
    first, _, last = given.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    with tempfile.TemporaryDirectory(prefix="patches-") as made:
        directory = Path(made)
        needs = [one for one in given.needs.split(",") if one]
        tried: list[Trial | Result] = [*of_patches(given.patches, needs, directory)]
        if given.faults:
            tried += of_faults(given.faults, directory)
        results = [one for one in tried if isinstance(one, Result)]
        trials = [one for one in tried if isinstance(one, Trial)]
        width = max((len(one.name) for one in tried), default=0)
        print(f"{'':{width}} | {'':9} | {'ran':>4} {'reach':>5} {'differ':>6} | CPU s")

        def report(one: Result) -> None:
            told = f"{one.found_by}: {one.told[:150]}" if one.found_by else one.told[:300]
            print(
                f"{one.name:{width}} | {one.verdict:9} | {one.ran:4} {one.reaching:5} "
                f"{one.differing:6} | {one.seconds:5.0f} | {told}",
                flush=True,
            )

        for one in results:
            report(one)
        with_plans = {one.name: (one, one.plans) for one in trials if one.plans}
        for one in try_copies(with_plans, {}, given.jobs, directory):
            if one.found_by or not given.most:
                results.append(one)
                report(one)
        done = {one.name for one in results}
        left = [one for one in trials if one.name not in done] if given.most else []
        chosen = {
            one.name: seeds_with(one.needs, given.most, directory) if one.needs else seeds
            for one in left
        }
        every = sorted(set(chain.from_iterable(chosen.values())))
        good = {
            one.seed: one
            for one in schedules(every, given.jobs, directory, given.cache)
            if not one.failure
        }
        reaching = {
            one.name: reached(one, [good[seed] for seed in chosen[one.name] if seed in good])
            for one in left
        }
        with_seeds = {one.name: (one, reaching[one.name][: given.most]) for one in left}
        stories = {f"seed {one.seed}": one.story for one in good.values()}
        for one in try_copies(with_seeds, stories, given.jobs, directory):
            results.append(one._replace(reaching=len(reaching[one.name])))
            report(results[-1])
    need_not = {one.name for one in trials if one.unseen}
    verdicts = Counter(one.verdict for one in results)
    others = (f", {count} {verdict}" for verdict, count in verdicts.items() if verdict != "found")
    print(f"{verdicts['found']} of {len(tried)} found{''.join(others)}")
    return int(any(one.verdict != "found" and one.name not in need_not for one in results))


if __name__ == "__main__":
    sys.exit(main())
