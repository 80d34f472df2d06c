"""Our own formats pass the kit that others test theirs with."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest

from eventlog.changes.format import Report
from eventlog.conversion import JsonLinesFormat
from eventlog.model import Change
from eventlog.registry import format_named
from eventlog.testing.format_kit import *  # noqa: F403
from eventlog.testing.format_kit import FormatCase

CASES: Final = {
    "xds": {},
    "cloudevents": {},
    "jsonl": {},
    "debezium": {"publish": {"missing_columns": "placeholder"}},
    "qlik-messages": {"in_records": True},
}


@pytest.fixture(params=CASES)
def format_case(request: pytest.FixtureRequest) -> FormatCase:
    return FormatCase(format_named(request.param), **CASES[request.param])


def test_a_format_that_drops_the_user_silently_fails(tmp_path: Path) -> None:
    class Forgetful(JsonLinesFormat):
        """A format that says of no change who made it."""

        def write_changes(
            self, changes: Iterable[Change], target: str, options: Any, report: Report
        ) -> None:
            nobody = (change._replace(user=None) for change in changes)
            super().write_changes(nobody, target, options, report)

    with pytest.raises(AssertionError, match="jsonl drops user silently"):
        test_a_field_of_a_change_that_is_not_read_back_is_declared_as_a_loss(  # noqa: F405
            FormatCase(Forgetful()), tmp_path
        )
