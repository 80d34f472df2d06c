"""A cluster that tests copy to begin with: to make one takes longer than what most of them do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from postgres_clusters import Server, primary, servers
from publishers import install

from eventlog.config.load import load


@pytest.fixture(scope="session")
def watched_cluster() -> Iterator[Path]:
    """The files of a server whose table ``usr`` is watched."""
    with primary() as server:
        server.execute("CREATE TABLE usr (idu int PRIMARY KEY, fname text)")
        install(load({"database": {"url": server.url}, "watch": [{"table": "usr"}]}, {}))
        server.stop_cleanly()
        yield server.data


@pytest.fixture
def watched_server(watched_cluster: Path) -> Iterator[Server]:
    """A server whose table ``usr`` is watched."""
    with servers(watched_cluster) as server:
        yield server
