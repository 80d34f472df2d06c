"""Schedules of a simulated publisher, by number: the same in every run, to the byte.

``simulate.py`` says what is simulated and how a seed is told, shrunk and run again. It runs in
processes of their own, since the order of a set is a part of the story; a process runs many plans,
since its start takes as long as three of them. The seeds are fixed; those that the commit decides
are of the night.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from plans import plan_of, seeds_of_ci, shrink

HERE = Path(__file__).parent
PLANS = sorted((HERE / "plans").glob("*.json"))
ONE_SEED = "6570"
SEEDS = [
    12, 102, 167, 785, 1225, 1345, 1492, 1590, 1827, 2299, 2336, 2604, 3135, 3342, 3422, 3572, 3622, 4186, 4385,
    4390, 4684, 5131, 5249, 5548, 5604, 5694, 5788, 6055,
]  # fmt: skip
"""Those of the 34 lowest small seeds, but 3078, without which a branch of the product, a place of ``places.py``
or a kind of step is missing that neither the others nor the plans and ``ONE_SEED`` have.
"""


def simulate(*words: str, script: str = "simulate.py") -> str:
    """Run the simulator, and return what it prints. Fails with it if a seed failed."""
    done = run(*words, script=script)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def run(*words: str, script: str = "simulate.py") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(HERE / script), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def commit() -> str:
    """Return the hash of the commit that is tested; another word where there is no repository."""
    words = ["git", "-C", str(HERE), "rev-parse", "HEAD"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "no commit"


@cache
def stories() -> dict[str, str]:
    """Return the stories of one seed and of all plans in files, which one process has run."""
    told = run("--plans", ONE_SEED, *map(str, PLANS)).stdout
    named = (one.partition("\n") for one in re.split(r"^plan ", told, flags=re.MULTILINE)[1:])
    return {name: story for name, _, story in named}


def lose_nothing(seeds: Sequence[int]) -> None:
    assert f" {len(seeds)} schedules" in simulate("--seeds", ",".join(map(str, seeds)))


def test_nothing_is_lost_in_the_schedules_that_reach_all_that_others_reach() -> None:
    lose_nothing(SEEDS)


@pytest.mark.night
@pytest.mark.parametrize(
    ("word", "number"), [("", 34), (commit(), 16)], ids=["fixed", "of the commit"]
)
def test_nothing_is_lost_in_any_schedule(word: str, number: int) -> None:
    lose_nothing(seeds_of_ci(word, number))


@pytest.mark.xdist_group("plans")
@pytest.mark.parametrize("plan", PLANS, ids=lambda path: path.stem)
def test_what_was_found_once_stays_fixed(plan: Path) -> None:
    story = stories()[str(plan)]
    assert story.endswith(": good\n"), story[-4000:]
    for place in json.loads(plan.read_text())["story"]:
        assert re.search(place, story, re.DOTALL), f"the plan does not come to {place!r} any more"


@pytest.mark.xdist_group("plans")
def test_a_seed_tells_the_same_story_to_the_byte() -> None:
    assert simulate("--seed", ONE_SEED) == stories()[ONE_SEED]


def test_a_plan_that_fails_shrinks_to_the_steps_that_matter() -> None:
    plan = plan_of(2)
    kept = plan["steps"][3], plan["steps"][7]

    def failure(shrunk: dict) -> str | None:
        return "row 12 is lost" if all(step in shrunk["steps"] for step in kept) else None

    assert shrink(plan, failure)["steps"] == list(kept)


@pytest.mark.night
@pytest.mark.timeout(3600)
def test_each_fault_that_is_put_in_is_found() -> None:
    print(simulate("--faults", "all", script="patches.py"))


@pytest.mark.night
@pytest.mark.timeout(1800)
def test_the_same_plans_run_serially_end_equal_on_sqlite_and_postgresql(postgres_url: str) -> None:
    assert "60 plans" in simulate("--serial", "1-60", "--postgres", postgres_url)
