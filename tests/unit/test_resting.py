"""How long a reader rests while changes flow (spec/triggers.md 8)."""

from __future__ import annotations

import pytest

from eventlog.publisher.run.waiting import rest_after


@pytest.mark.parametrize(
    ("worked", "used", "rest"),
    [(0.002, 0.0009, 0.004), (0.002, 0.0015, 0.008), (0.004, 0.003, 0.016)],
)
def test_a_reader_rests_until_its_work_has_taken_15_percent_of_a_core(
    worked: float, used: float, rest: float
) -> None:
    assert rest_after(worked, used) == pytest.approx(rest)


def test_time_in_which_a_reader_waits_for_a_disk_or_a_receiver_counts_as_rest() -> None:
    assert rest_after(0.005, 0.0015) == pytest.approx(0.005)


@pytest.mark.parametrize(
    ("worked", "used", "rest"),
    [(0.0, 0.0, 0.003), (0.0005, 0.0001, 0.003), (0.2, 0.001, 0.003), (1.0, 1.0, 0.03)],
)
def test_a_rest_lasts_from_three_to_thirty_milliseconds(
    worked: float, used: float, rest: float
) -> None:
    assert rest_after(worked, used) == pytest.approx(rest)
