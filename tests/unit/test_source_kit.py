"""Our own source of files passes the kit that others test theirs with."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import followed_stream
import pytest

from eventlog.publisher.stream.gbase import Gbase, GbaseOptions
from eventlog.testing.source_kit import *  # noqa: F403
from eventlog.testing.source_kit import SourceCase


@pytest.fixture
def source_case(tmp_path: Path) -> SourceCase:
    stream, keys = followed_stream.Stream(tmp_path / "capture.cdc"), count(1)

    def feed(number: int) -> None:
        for _ in range(number):
            stream.insert(next(keys))

    def lose() -> None:
        stream.path.write_bytes(b"")

    return SourceCase(
        Gbase,
        GbaseOptions(path=stream.path),
        feed,
        lose,
        reader={"labels": {111: followed_stream.ITEM}, "keys": {"app.item": ["id"]}},
    )
