"""How long a reader rests while changes flow (spec/event-log.md 8.1)."""

from __future__ import annotations

import pytest

from eventlog.publisher.waiting import rest_after


@pytest.mark.parametrize(
    ("worked", "rest"), [(0.0, 0.003), (0.0005, 0.003), (0.002, 0.006), (0.005, 0.015), (1.0, 0.03)]
)
def test_a_rest_is_three_times_as_long_as_the_work_and_three_to_thirty_milliseconds(
    worked: float, rest: float
) -> None:
    assert rest_after(worked) == pytest.approx(rest)
