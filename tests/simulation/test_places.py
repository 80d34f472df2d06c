"""The places that count: each has a step that aims at it, and a floor of schedules that meet it."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from math import prod
from pathlib import Path

import pytest
from faulty import OF_SIMULATION, faults
from operators import STEPS
from places import FLOOR, PLACES, SINKS, Place, below_floor
from plans import plan_of, seeds_with_steps

HERE = Path(__file__).parent
SEEDS = range(1, 301)


@pytest.mark.parametrize("step", sorted({place.step for place in PLACES}))
def test_a_tenth_of_the_plans_has_each_step_that_aims_at_a_place(step: str) -> None:
    aims = [place for place in PLACES if place.step == step]
    without = sum(
        share * prod(1 - place.share_of(sink) for place in aims) for sink, share in SINKS.items()
    )
    assert 1 - without >= 0.0999


def test_plans_have_each_step_that_aims_at_a_place() -> None:
    drawn = Counter(kind for seed in SEEDS for _, kind, *_ in plan_of(seed)["steps"])
    for step in {place.step for place in PLACES}:
        share = sum(place.share for place in PLACES if place.step == step)
        assert drawn[step] >= 0.5 * share * len(SEEDS)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_a_place_has_a_sentence_and_a_step(place: Place) -> None:
    assert place.step in STEPS
    assert place.what.endswith(".")


def test_a_place_that_too_few_schedules_meet_is_below_its_floor() -> None:
    enough = {place.name: int(1000 * FLOOR) for place in PLACES}
    assert below_floor(enough, 1000) == []
    first, second = PLACES[:2]
    assert below_floor({**enough, first.name: enough[first.name] - 1}, 1000) == [first]
    del enough[second.name]
    assert below_floor(enough, 1000) == [second]


def test_schedules_that_do_not_meet_a_place_fail_and_name_it() -> None:
    """One schedule that meets a few places, and so does not meet all others."""
    plans = ((seed, plan_of(seed)) for seed in seeds_with_steps(["restart_with_request"], 20))
    seed = min(plans, key=lambda one: len(one[1]["steps"]))[0]
    command = [sys.executable, str(HERE / "simulate.py"), "--floors", "1", "--first", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout
    assert " 1 schedules, 0 failed" in done.stdout
    met = {place.name for place in PLACES if f"     1 100.0 % {place.name}\n" in done.stdout}
    below = {
        place.name for place in PLACES if f"\nbelow the floor of 5 %: {place.name} (" in done.stdout
    }
    assert "rows asked for by a consumer" in met
    assert below == {place.name for place in PLACES} - met


def test_seeds_for_a_place_are_those_whose_plans_have_its_step() -> None:
    seeds = seeds_with_steps(["refused rows that are skipped", "answer_fatal"], 3)
    for seed in seeds:
        assert {"skip_refused", "answer_fatal"} <= {kind for _, kind, *_ in plan_of(seed)["steps"]}
    assert len(seeds) == 3


def test_a_fault_needs_steps_and_places_that_there_are() -> None:
    known = STEPS.keys() | {place.name for place in PLACES}
    for name, fault in faults(*OF_SIMULATION).items():
        assert set(fault.needs) <= known, name
