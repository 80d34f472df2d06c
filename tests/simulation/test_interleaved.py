"""Schedules of real PostgreSQL sessions, by number: the same in every run.

``interleave.py`` says how a seed is told, shrunk and run again. It runs in a process of its own,
which has the machine of the simulation in place of the clock.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from interleaved.schedules import schedule_of, shrink

PROGRAM = Path(__file__).parent / "interleave.py"


def interleave(*words: str, fails: bool = False) -> str:
    """Run the program, and return what it prints. Fails with it, unless a failure is expected."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == int(fails), done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def test_each_row_is_sent_once_and_in_order_beside_open_transactions() -> None:
    assert " 300 schedules, 0 failed" in interleave("--seeds", "1-300")


def test_a_seed_has_the_same_story_in_every_run() -> None:
    assert interleave("--seed", "3") == interleave("--seed", "3")


def test_a_gap_that_is_closed_too_early_is_found() -> None:
    found = interleave("--faults", "gaps close once they were seen empty", "--most", "100")
    assert "has never sent" in found


def test_a_schedule_shrinks_to_the_steps_that_its_failure_needs() -> None:
    schedule = schedule_of(1)
    needed = [schedule["steps"][2], schedule["steps"][5]]

    def failure(shrunk: dict) -> str | None:
        return (
            "cons has never sent a row" if all(one in shrunk["steps"] for one in needed) else None
        )

    assert shrink(schedule, failure)["steps"] == needed


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_twenty_thousand_schedules_lose_nothing() -> None:
    assert " 20000 schedules, 0 failed" in interleave("--seeds", "1-20000")


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_each_fault_that_is_put_in_is_found_by_interleaving() -> None:
    print(interleave("--faults", "all", "--most", "5000"))
