"""Each promise of eventlog has a test that runs by day (CONTRIBUTING.md, "What a change needs")."""

from __future__ import annotations

import pytest
from promises import COLLECTED, KINDS, ByDay, named_by_pages, owed, promised


@pytest.fixture
def by_day(request: pytest.FixtureRequest) -> ByDay:
    """What tests by day show, if all were collected."""
    found = request.config.stash[COLLECTED]
    if found.left_out:
        pytest.skip(f"{found.left_out}: promises are checked where all tests are collected")
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_each_promise_has_a_test_by_day(kind: str, by_day: ByDay) -> None:
    assert promised(kind)
    missing = [one for one in promised(kind) if one not in by_day.shown | owed()]
    assert not missing, f"no test by day has a marker for: {'; '.join(missing)}"


def test_what_is_owed_is_promised_and_not_shown(by_day: ByDay) -> None:
    known = {one for kind in KINDS for one in promised(kind)}
    assert sorted(one for one in owed() if one in by_day.shown or one not in known) == []


def test_each_test_that_a_row_names_runs_by_day(by_day: ByDay) -> None:
    assert named_by_pages()
    named = {one for tests in named_by_pages().values() for one in tests}
    assert sorted(named - by_day.tests) == []


def test_a_marker_names_a_promise(request: pytest.FixtureRequest) -> None:
    known = {one for kind in KINDS for one in promised(kind)}
    assert sorted(request.config.stash[COLLECTED].shown - known) == []
