"""A start that is refused registers no consumer, for which `purge` would keep rows (spec/event-log.md
13.2).
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from publishers import install

from eventlog import Publisher
from eventlog.config.load import load
from eventlog.errors import ConfigError, ReceiverUnavailable
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.opening import open_to_publish
from eventlog.publisher.send.log_feed import recover


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    file = tmp_path / "app.db"
    with closing(sqlite3.connect(file)) as conn:
        conn.execute("CREATE TABLE customer (id integer PRIMARY KEY, email text)")
    return f"sqlite:///{file}"


def configuration(url: str, consumer: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "database": {"url": url},
        "publisher": {"allow_loopback": True},
        "watch": [{"table": "customer"}],
        **({"source": {"consumer": consumer, "start_from": "earliest"}} if consumer else {}),
        **more,
    }


def start(config: dict[str, Any]) -> None:
    Publisher.from_config(config, environ={}).run_once()


def consumers(url: str) -> list[str]:
    engine = sa.create_engine(url)
    with engine.connect() as conn:
        names = [*conn.exec_driver_sql("SELECT name FROM eventlog_consumer").scalars()]
    engine.dispose()
    return names


class TestAStartThatIsRefused:
    """A consumer that was not registered is not registered by the start."""

    def test_by_its_filters_registers_no_consumer(self, sqlite: str) -> None:
        of_objects = [{"table": "customer", "where": "id > 0"}]
        config = configuration(sqlite, "copy", filter=of_objects)
        install(load(config, {}))
        with pytest.raises(ConfigError, match="filter accept"):
            start(config)
        assert consumers(sqlite) == []

    @pytest.mark.parametrize(
        "what",
        [
            {"publisher": {"post_poll_statements": ["DELETE FROM eventlog"]}},
            {"sink": {"type": "python", "function": "no_module_of_this_name:f"}},
            {"sink": {"type": "files", "directory": "taken"}},
        ],
        ids=["configuration", "sink", "owner"],
    )
    def test_by_its_configuration_or_place_registers_no_consumer(
        self,
        sqlite: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        what: dict[str, Any],
    ) -> None:
        monkeypatch.chdir(tmp_path)
        files = {"sink": {"type": "files", "directory": "taken"}}
        install(load(configuration(sqlite), {}))
        start(configuration(sqlite, **files))
        config = configuration(sqlite, "copy", **what)
        with pytest.raises(ConfigError):
            start(config)
        assert consumers(sqlite) == []

    def test_after_it_has_begun_to_work_keeps_the_registration(self, sqlite: str) -> None:
        config = load(configuration(sqlite, "copy"), {})
        install(config)
        with suppress(ConfigError), open_to_publish(config, Counters()) as context:
            recover(context)
            raise ConfigError("a table was renamed")
        assert consumers(sqlite) == ["copy"]

    def test_by_a_receiver_that_does_not_answer_keeps_the_registration(self, sqlite: str) -> None:
        http = {"sink": {"type": "http", "url": "http://127.0.0.1:9/"}}
        config = configuration(sqlite, "copy", **http)
        install(load(config, {}))
        engine = sa.create_engine(sqlite)
        with engine.begin() as conn:
            conn.exec_driver_sql("INSERT INTO customer (id) VALUES (1)")
        engine.dispose()
        with pytest.raises(ReceiverUnavailable):
            start(config)
        assert consumers(sqlite) == ["copy"]
