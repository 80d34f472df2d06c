"""The sink passes eventlog's conformance kit."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from eventlog_sqlite_sink import SqliteOptions, SqliteSink

from eventlog.testing.sink_kit import *  # noqa: F403
from eventlog.testing.sink_kit import SinkCase


@pytest.fixture
def sink_case(tmp_path: Path) -> SinkCase:
    file = tmp_path / "copy.db"

    def received() -> set[str]:
        with closing(sqlite3.connect(file)) as db:
            return {event_id for (event_id,) in db.execute("SELECT event_id FROM applied")}

    return SinkCase(SqliteSink, SqliteOptions(file), received)
