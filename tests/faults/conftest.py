"""What tests copy to begin with, since to make it takes longer than what most of them do: a cluster,
and a database with a log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import sqlalchemy as sa
from postgres_clusters import Server, primary, servers
from publishers import install

from eventlog.config.load import load
from eventlog.sql import migrations

FilledDatabase = Callable[[Callable[[sa.Engine], None]], AbstractContextManager[sa.Engine]]


def make_log_alone(engine: sa.Engine) -> None:
    migrations.upgrade(engine, log_table="eventlog")


@pytest.fixture
def logged(filled_database: FilledDatabase) -> Iterator[sa.Engine]:
    """A database with the tables of a log alone: what ``install`` adds are triggers."""
    with filled_database(make_log_alone) as engine:
        yield engine


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
