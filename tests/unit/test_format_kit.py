"""Our own formats pass the kit that others test theirs with."""

from __future__ import annotations

from typing import Final

import pytest

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
