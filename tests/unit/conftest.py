"""A publisher without a server for the test, closed after it; a stream that is followed, and its position."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_publisher import FakePublisher, NewWorld, with_options
from followed_stream import Stream

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


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    """A CDC stream in a file that grows."""
    return Stream(tmp_path / "capture.cdc")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the position is kept."""
    return tmp_path / "position.json"
