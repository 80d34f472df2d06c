"""A publisher whose messages go to a server that is killed meanwhile, and what must be there then."""

from __future__ import annotations

import io
import json
import random
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
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


class CutAnswers:
    """A proxy before a server on ``port``. It passes everything to the server. For the first ``cuts``
    connections it passes only some bytes of the answers back: it swallows the rest, and then closes.
    """

    def __init__(self, port: int, cuts: int) -> None:
        self.cuts, self._port, self._random = cuts, port, random.Random(7)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                most = None
                if self.cuts:
                    self.cuts, most = self.cuts - 1, self._random.randrange(500, 1500)
                server = socket.create_connection(("127.0.0.1", self._port))
                for ends in ((client, server, None), (server, client, most)):
                    threading.Thread(target=self._pass, args=ends, daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, most: int | None) -> None:
        with suppress(OSError), source, target:
            while data := source.recv(4096):
                if most is not None and len(data) > most:
                    target.sendall(data[:most])
                    source.settimeout(0.2)  # swallows what comes, then both ends are closed
                    while source.recv(4096):
                        pass
                most = None if most is None else most - len(data)
                target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()


def publish_through_cuts(
    database: sa.Engine, directory: Path, sink: dict[str, Any], cuts: CutAnswers
) -> int:
    """Publish the changes of a hundred objects, four each, through a proxy that cuts answers. Return
    the most messages that may have come twice: those of the deliveries in flight.
    """
    execute(database, "CREATE TABLE usr (id int PRIMARY KEY, name text)")
    publisher = {
        "allow_loopback": True, "batch_size": 7, "delivery_rows": 20, "retry_initial": 0.05,
        "retry_max": 0.2,
    }  # fmt: skip
    path = write_config(
        directory, url_of(database), [{"table": "usr"}], sink=sink, publisher=publisher,
        format={"type": "cloudevents"},
    )  # fmt: skip
    config, number = load(path, {}), cuts.cuts
    install(config)
    execute(database, "INSERT INTO usr SELECT n, '0' FROM generate_series(1, 100) n")
    with (
        closing(cuts),
        closing(open_sink(config, io.StringIO())) as opened,
        publishing(config, opened) as running_publisher,
    ):
        for step in range(1, 4):
            execute(database, f"UPDATE usr SET name = '{step}'")
        wait_until(lambda: is_drained(database, running_publisher), "all is published")
    assert cuts.cuts < number - 1, "connections were cut"
    assert fetch(database, "SELECT DISTINCT status FROM eventlog") == [("S",)]
    return number * 20  # delivery_rows


def assert_few_copies(bodies: Sequence[bytes], most: int) -> None:
    """Assert that every CloudEvent is there, and at most so many twice, and the order of objects."""
    assert_whole_and_in_order(bodies, 100)
    ids = [json.loads(body)["id"] for body in bodies]
    assert len(ids) - len(set(ids)) <= most


def publish_beside_a_place_that_waits(
    database: sa.Engine,
    directory: Path,
    sink: dict[str, Any],
    fix: Callable[[], object] | None,
) -> None:
    """Publish the changes of the tables ``a`` and ``b`` to the places ``hr.public.a`` and
    ``hr.public.b``. The second takes nothing until ``fix`` is called, between two publishers; None =
    it never does.
    """
    execute(database, "CREATE TABLE a (id int PRIMARY KEY, n int)")
    execute(database, "CREATE TABLE b (id int PRIMARY KEY, n int)")
    publisher = {"allow_loopback": True, "retry_initial": 0.05, "retry_max": 0.2, "query_limit": 50}
    path = write_config(
        directory, url_of(database), [{"tables": ["a", "b"]}], sink=sink, publisher=publisher,
        format={"type": "debezium"},
        **{"format.debezium": {"topic_prefix": "hr", "schemas_enable": False}},
    )  # fmt: skip
    config = load(path, {})
    install(config)

    def change(table: str, step: int) -> None:
        some = "generate_series(1, 20) i ON CONFLICT (id) DO UPDATE SET n = excluded.n"
        execute(database, f"INSERT INTO {table} SELECT i, {step} FROM {some}")

    def statuses() -> set[tuple[str, str]]:
        return set(fetch(database, "SELECT DISTINCT table_name, status FROM eventlog"))

    for step in range(1, 3 if fix is None else 4):
        with (
            closing(open_sink(config, io.StringIO())) as opened,
            publishing(config, opened) as running_publisher,
        ):
            if step == 3 and fix is not None:
                fix()
            for table in ("a", "b", "b", "b", "a"):
                change(table, step)
            if step < 3:
                wait_until(lambda: statuses() == {("a", "S"), ("b", "N")}, "one place goes on")
                recorded = fetch(database, "SELECT count(*) FROM eventlog_inflight")
                assert recorded[0][0] <= 2, "rows that wait are not recorded"
            else:
                wait_until(lambda: is_drained(database, running_publisher), "all is published")
    assert statuses() == {("a", "S"), ("b", "N" if fix is None else "S")}
    assert fetch(database, "SELECT count(*) FROM eventlog_error") == [(0,)]


def assert_once_and_in_order(bodies: Sequence[bytes], last: int = 3) -> None:
    """Assert that Debezium's events of a table of ``publish_beside_a_place_that_waits`` are there once,
    those of an object in their order.
    """
    steps: dict[int, list[int]] = {}
    for event in map(json.loads, bodies):
        steps.setdefault(event["after"]["id"], []).append(event["after"]["n"])
    assert len(steps) == 20
    for of_object in steps.values():
        assert of_object == sorted(of_object)
        assert of_object[-1] == last
        assert len(of_object) <= 9, "an event is there twice"


def assert_whole_and_in_order(bodies: Sequence[bytes], count: int = 20) -> None:
    """Assert that CloudEvents of ``publish_through_kills`` are all there, and that those of an object
    are in their order, if each counts where it came first.
    """
    values: dict[str, list[str]] = {}
    seen: set[str] = set()
    for event in map(json.loads, bodies):
        if event["id"] not in seen:
            seen.add(event["id"])
            values.setdefault(event["subject"], []).append(event["data"]["columns"]["name"]["new"])
    assert len(values) == count
    assert all(of_object == sorted(of_object) for of_object in values.values()), values
    assert {of_object[-1] for of_object in values.values()} == {"3"}
