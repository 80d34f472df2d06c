"""``new_world``: a publisher without a server for the test, closed after it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fake_publisher import FakePublisher, NewWorld, with_options

from eventlog.model import LogRow


@pytest.fixture
def new_world() -> Iterator[NewWorld]:
    worlds: list[FakePublisher] = []

    def new(rows: list[LogRow], **options: Any) -> FakePublisher:
        worlds.append(FakePublisher(with_options(**options)))
        worlds[-1].log(rows)
        return worlds[-1]

    yield new
    for fake in worlds:
        fake.close()
