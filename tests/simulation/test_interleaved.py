"""Schedules of real PostgreSQL sessions, by number: the same in every run.

``interleave.py`` says how a seed is told, shrunk and run again. It runs in a process of its own,
which has the machine of the simulation in place of the clock. All tests share one server. The seeds
are fixed; those that the commit decides are of the night.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from interleave import wrong_shares
from interleaved.audit import LATE
from interleaved.schedules import schedule_of, shrink
from interleaved.server import server
from interleaved.world import EARLY

PROGRAM = Path(__file__).parent / "interleave.py"
ONE_SEED = 3
"""It is the first in its process: what a process has run before decides which questions are asked again."""
SEEDS = [ONE_SEED, 1, 2, 4, 5, 9, 13, 14, 17, 20, 26, 49, 57]
"""Those of the first 60 that find each fault of ``faults/`` that one of the 60 finds first, or reach
a branch of the product that neither the others nor the schedules by hand reach.
"""
TELL = """
import logging, sys
sys.path[:0] = sys.argv[1:3]
import interleave
from interleaved.schedules import schedule_of
from interleaved.server import databases
from interleaved.world import run_schedule
logging.disable(logging.CRITICAL)
with databases(sys.argv[3]) as opened:
    for seed in sys.argv[4:]:
        world = run_schedule(schedule_of(int(seed)), opened)
        print("seed", seed)
        print(*world.story, sep="\\n")
        print(f"seed {seed}: {'failed' if world.failures else 'good'}")
"""
"""Tell the stories of seeds, each below its name, in one process."""
pytestmark = pytest.mark.xdist_group("interleaved")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The URL of the server of all schedules."""
    with server() as url:
        yield url


def interleave(url: str, *words: str) -> str:
    """Run the program, and return what it prints. Fails with it."""
    command = [sys.executable, str(PROGRAM), "--url", url, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def plain(url: str, *words: str) -> str:
    return interleave(url, *words, "--kinds", "plain")


@pytest.fixture(scope="module")
def stories(url: str) -> dict[int, str]:
    """The stories of the seeds, which one process has run."""
    paths = [PROGRAM.parent, PROGRAM.parents[1]]
    command = [sys.executable, "-c", TELL, *map(str, (*paths, url, *SEEDS))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    named = re.split(r"^seed (\d+)\n", done.stdout, flags=re.MULTILINE)[1:]
    return {int(name): story for name, story in zip(named[::2], named[1::2], strict=True)}


@pytest.mark.parametrize("seed", SEEDS)
def test_each_row_is_sent_once_and_in_order_beside_open_transactions(
    stories: dict[int, str], seed: int
) -> None:
    assert stories[seed].endswith(f"seed {seed}: good\n"), stories[seed][-4000:]


def test_no_receiver_meets_an_update_of_an_object_that_it_does_not_know(url: str) -> None:
    """Child rows come before their owners in at least 5 % of the schedules, else it fails."""
    report = interleave(url, "--seeds", "1-40", "--kinds", "families")
    assert " 40 schedules, 0 failed" in report
    assert "child rows are logged at the commit" in report


def test_a_run_fails_if_values_are_read_back_after_a_delete_too_often() -> None:
    assert not [*wrong_shares({EARLY: 200, LATE: 13}, 300, 300)]
    assert [*wrong_shares({EARLY: 200, LATE: 14}, 300, 300)]
    assert not [*wrong_shares({EARLY: 3, LATE: 3}, 39, 39)]


@pytest.mark.night
def test_the_first_schedules_and_those_that_the_commit_decides_lose_nothing(url: str) -> None:
    words = ["git", "-C", str(PROGRAM.parent), "rev-parse", "HEAD"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    first = Random(done.stdout).randrange(10**9)
    assert " 60 schedules, 0 failed" in plain(url, "--seeds", "1-60")
    assert " 30 schedules, 0 failed" in plain(url, "--seeds", f"{first}-{first + 29}")


def test_a_seed_has_the_same_story_in_every_run(url: str, stories: dict[int, str]) -> None:
    assert interleave(url, "--seed", str(ONE_SEED)) == stories[ONE_SEED]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("gaps close once they were seen empty", "has never sent"),
        pytest.param("requeue waits for no delivery", "requeue sends", marks=pytest.mark.night),
    ],
)
def test_a_fault_that_is_put_in_is_found(url: str, fault: str, said: str) -> None:
    (told,) = plain(url, "--faults", fault, "--most", "100").splitlines()
    assert said in told


def test_schedules_that_are_hardly_ever_drawn_lose_nothing(url: str) -> None:
    """In five of them the log is in leaves, and in one of the five the server crashes."""
    number = len([*(PROGRAM.parent / "interleaved" / "by_hand").glob("*.json")])
    report = interleave(url, "--by-hand")
    assert f" {number} schedules, 0 failed" in report
    for step in (
        "the open leaf is cut",
        "a leaf is removed",
        "rows are moved",
        "a step while the log is locked",
        "finish puts rows back",
        "a crash loses marks",
        "a crash loses changes",
    ):
        assert step in report


def test_a_schedule_shrinks_to_the_steps_that_its_failure_needs() -> None:
    schedule = schedule_of(1)
    needed = [schedule["steps"][2], schedule["steps"][5]]

    def failure(shrunk: dict) -> str | None:
        return (
            "cons has never sent a row" if all(one in shrunk["steps"] for one in needed) else None
        )

    assert shrink(schedule, failure)["steps"] == needed


@pytest.mark.night
@pytest.mark.timeout(7200)
def test_twenty_thousand_schedules_lose_nothing(url: str) -> None:
    assert " 20000 schedules, 0 failed" in plain(url, "--seeds", "1-20000")


@pytest.mark.night
@pytest.mark.timeout(7200)
def test_leaves_and_crashes_lose_nothing_in_two_thousand_schedules(url: str) -> None:
    words = ["--seeds", "1-1000", "--kinds", "leaves", "crash"]
    assert " 2000 schedules, 0 failed" in interleave(url, *words)


@pytest.mark.night
@pytest.mark.timeout(7200)
def test_child_rows_before_their_owners_lose_nothing_in_two_thousand_schedules(url: str) -> None:
    report = interleave(url, "--seeds", "1-2000", "--kinds", "families")
    assert " 2000 schedules, 0 failed" in report


@pytest.mark.night
@pytest.mark.parametrize("seed", ["leaves-15", "crash-18", "families-2"])
def test_a_seed_of_another_kind_has_the_same_story_in_every_run(url: str, seed: str) -> None:
    assert interleave(url, "--seed", seed) == interleave(url, "--seed", seed)


@pytest.mark.night
@pytest.mark.timeout(7200)
def test_each_fault_that_is_put_in_is_found_by_interleaving(url: str) -> None:
    print(interleave(url, "--faults", "all", "--most", "5000"))
