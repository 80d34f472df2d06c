"""The plans that seeds draw: a seed keeps its steps as kinds of steps, weights and options come."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import plans
import pytest

SEEDS = range(1, 30)


def steps_of(seed: int) -> list[Any]:
    steps: list[Any] = plans.plan_of(seed)["steps"]
    return steps


def with_weights(
    monkeypatch: pytest.MonkeyPatch, feature: str, weights: Mapping[str, float]
) -> None:
    """Let a feature have further kinds of steps, or other weights."""
    changed = {**plans.FEATURES, feature: {**plans.FEATURES[feature], **weights}}
    monkeypatch.setattr(plans, "FEATURES", changed)


def test_another_kind_of_step_leaves_the_other_steps_of_a_seed_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = {seed: steps_of(seed) for seed in SEEDS}
    with_weights(monkeypatch, "kills", {"another": 5.0})
    after = {seed: steps_of(seed) for seed in SEEDS}
    assert any(step[1] == "another" for steps in after.values() for step in steps)
    for seed in SEEDS:
        assert [step for step in after[seed] if step[1] != "another"] == before[seed]


def test_a_greater_weight_only_adds_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {seed: steps_of(seed) for seed in SEEDS}
    with_weights(monkeypatch, "kills", {"kill": plans.FEATURES["kills"]["kill"] * 3})
    after = {seed: steps_of(seed) for seed in SEEDS}
    assert sum(map(len, after.values())) > sum(map(len, before.values()))
    for seed in SEEDS:
        remaining = iter(after[seed])
        assert all(step in remaining for step in before[seed])


def test_another_option_leaves_the_other_options_of_a_start_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = plans.plan_of(1)

    def drawn() -> Any:
        options, bounds = plans.draw_options(Random(7), plan, "python", is_consumer=False)
        return {**options, **bounds}

    before = drawn()
    monkeypatch.setattr(plans, "OPTIONS", {"another": (1, 2), **plans.OPTIONS})
    assert {name: value for name, value in drawn().items() if name != "another"} == before
