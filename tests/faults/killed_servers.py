"""A publisher whose messages go to a server that is killed meanwhile, and what must be there then."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from message_servers import Server
from publishers import install, is_drained, publishing, write_config
from shared import execute, fetch, url_of, wait_until

from eventlog.config.load import load
from eventlog.publisher.declared.configured_sink import open_sink


def publish_through_kills(
    database: sa.Engine, directory: Path, sink: dict[str, Any], server: Server
) -> None:
    """Publish the changes of twenty objects, four each, while the server is killed twice."""
    execute(database, "CREATE TABLE usr (id int PRIMARY KEY, name text)")
    publisher = {
        "allow_loopback": True, "batch_size": 7, "delivery_rows": 20, "retry_initial": 0.05,
        "retry_max": 0.2,
    }  # fmt: skip
    path = write_config(
        directory, url_of(database), [{"table": "usr"}], sink=sink, publisher=publisher,
        format={"type": "cloudevents"},
    )  # fmt: skip
    config = load(path, {})
    install(config)
    execute(database, "INSERT INTO usr SELECT n, '0' FROM generate_series(1, 20) n")
    with (
        closing(open_sink(config, io.StringIO())) as opened,
        publishing(config, opened) as running_publisher,
    ):
        for step in range(1, 4):
            execute(database, f"UPDATE usr SET name = '{step}'")
            if step > 1:
                with server.killed():
                    pass
        wait_until(lambda: is_drained(database, running_publisher), "all is published")
    assert fetch(database, "SELECT DISTINCT status FROM eventlog") == [("S",)]


def assert_whole_and_in_order(bodies: Sequence[bytes]) -> None:
    """Assert that CloudEvents of ``publish_through_kills`` are all there, and that those of an object
    are in their order, if each counts where it came first.
    """
    values: dict[str, list[str]] = {}
    seen: set[str] = set()
    for event in map(json.loads, bodies):
        if event["id"] not in seen:
            seen.add(event["id"])
            values.setdefault(event["subject"], []).append(event["data"]["columns"]["name"]["new"])
    assert len(values) == 20
    assert all(of_object == sorted(of_object) for of_object in values.values()), values
    assert {of_object[-1] for of_object in values.values()} == {"3"}
