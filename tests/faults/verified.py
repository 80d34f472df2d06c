"""A source, writers that never rest, and a receiver that applies events to a table of another
database: what ``eventlog verify`` compares.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from publishers import install, session, unless_refused
from shared import url_of

from eventlog import Answer, Event, Op, Operation, Publisher
from eventlog.cli.context import transaction
from eventlog.config.load import load
from eventlog.core import table_key
from eventlog.core.catalog import ObjectClass
from eventlog.sql.log import database_snapshots
from eventlog.sql.port.log_operations import RangeReader
from eventlog.verify import VerifyReport, verification
from eventlog.verify.targets import Target

TABLE = (
    "CREATE TABLE item (id integer PRIMARY KEY, name text, price numeric(12, 2), made timestamp)"
)
COLUMNS = ("name", "price", "made")


def fill(engine: sa.Engine, objects: int) -> None:
    """The table ``item`` with so many rows."""
    run(
        engine,
        TABLE,
        "INSERT INTO item SELECT n, 'item ' || n, n * 1.25, timestamp '2026-01-01 12:00:00' + n * "
        f"interval '1 s' FROM generate_series(1, {objects}) AS n",
    )


def fill_source(engine: sa.Engine, objects: int) -> None:
    """The table ``item`` with so many rows, its log and its triggers."""
    fill(engine, objects)
    install(load(document(engine), {}))


def run(engine: sa.Engine, *statements: str) -> None:
    """Run each statement in a separate transaction."""
    for statement in statements:
        with engine.begin() as conn:
            conn.exec_driver_sql(statement)


def content(engine: sa.Engine, columns: str = "*", table: str = "item") -> list[tuple[Any, ...]]:
    with engine.connect() as conn:
        rows = conn.exec_driver_sql(f"SELECT {columns} FROM {table} ORDER BY 1")
        return [tuple(row) for row in rows]


def document(engine: sa.Engine, **publisher: Any) -> dict[str, Any]:
    """A configuration whose publisher sends whole times."""
    return {
        "database": {"url": url_of(engine)},
        "publisher": {"polling_interval": 1, "allow_loopback": True, **publisher},
        "format": {"type": "xds", "xds": {"time_syntax": "java", "insert_query_back": "add"}},
        "watch": [{"table": "item"}],
    }


@dataclass
class Table:
    """A receiver that applies events to ``item`` in its own database, each call in one
    transaction. ``names`` maps columns to those of the table.
    """

    engine: sa.Engine
    names: dict[str, str] = field(default_factory=dict)
    session: Any = field(init=False)

    def __post_init__(self) -> None:
        self.session = session(self.engine)

    def __call__(self, body: bytes, events: Sequence[Event]) -> Answer | None:
        for event in events:
            self._apply(event)
        self.session.commit()
        return None

    def _apply(self, event: Event) -> None:
        key = event.association.partition(",")[0]
        number = int(table_key.parse(key)[0].value)
        if event.operation is Operation.DELETE:
            self.session.execute("DELETE FROM item WHERE id = %s", (number,))
            return
        values: dict[str, str | None] = {}
        for attribute in event.attributes:
            added = [v for step in attribute.steps if step.op is Op.ADD for v in step.values]
            values[attribute.name] = added[-1] if added else None
        if event.operation is Operation.ADD:
            self.session.execute("DELETE FROM item WHERE id = %s", (number,))
        names = ["id", *(self.names.get(name, name) for name in values)]
        updates = ", ".join(f"{name} = EXCLUDED.{name}" for name in names[1:])
        self.session.execute(
            f"INSERT INTO item ({', '.join(names)}) VALUES ({', '.join(['%s'] * len(names))}) "
            f"ON CONFLICT (id) DO {f'UPDATE SET {updates}' if updates else 'NOTHING'}",
            (number, *values.values()),
        )


WAYS = ("ranges", "lookups", "keys")
"""The ways to read the objects of a class: by ranges of keys that both sides sort alike, by ranges
of each side's keys, which are looked up on the other side, and by the texts of keys.
"""


def read_by(monkeypatch: pytest.MonkeyPatch, target: type[Target], way: str) -> None:
    """Read the targets of a class in one of these ways."""
    real = target.range_reader

    def range_reader(self: Target, cls: ObjectClass) -> RangeReader | None:
        reader = real(self, cls)
        assert reader is not None
        return reader._replace(orders=("another",)) if way == "lookups" else None

    if way != "ranges":
        monkeypatch.setattr(target, "range_reader", range_reader)


def rest_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a verification rest for a tenth of a second before it reads something again."""
    for module in (verification, database_snapshots):
        monkeypatch.setattr(module, "REST", 0.1)


def told(report: VerifyReport, class_name: str) -> tuple[Any, ...]:
    """Return the results for the objects of a class, sorted."""
    return (
        sorted((*one.name, one.kind, str(one.columns)) for one in report.differences),
        sorted((one.key, one.record_ids) for one in report.in_motion),
        report.classes[class_name].as_data(),
    )


def to_files(engine: sa.Engine, directory: Path, format: str = "xds") -> dict[str, Any]:
    """A configuration whose publisher writes files of a directory."""
    return document(engine) | {
        "format": {"type": format},
        "sink": {"type": "files", "directory": str(directory)},
    }


@contextmanager
def published(config: dict[str, Any], receiver: Table | None = None) -> Iterator[Publisher]:
    """A publisher in a thread. Without a receiver its sink is the configured one."""
    stop = threading.Event()
    publisher = Publisher.from_config(config, sink=receiver)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            publisher.run(stop)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield publisher
    finally:
        stop.set()
        thread.join(60)
        if receiver is not None:
            receiver.session.close()
    if failed:
        raise failed[0]


def publish_once(config: dict[str, Any], receiver: Table | None = None) -> None:
    Publisher.from_config(config, sink=receiver).run_once()
    if receiver is not None:
        receiver.session.close()


def load_all(config: dict[str, Any], *classes: str) -> None:
    """Write all objects to the log again."""
    with transaction(load(config, {})) as db:
        for name in classes or ("item",):
            db.connection.exec_driver_sql(
                "INSERT INTO eventlog (event_type, table_name, table_key) "
                f"SELECT 5, '{name}', 'id=' || id FROM {name}"
            )


@contextmanager
def writing(engine: sa.Engine, objects: int, writers: int = 4) -> Iterator[None]:
    """Writers with hot keys, rollbacks, and transactions that commit late."""
    stop = threading.Event()
    threads = [
        threading.Thread(target=_write, args=(engine, objects, number, stop))
        for number in range(writers)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)


def _write(engine: sa.Engine, objects: int, seed: int, stop: threading.Event) -> None:
    chance = random.Random(seed)
    with session(engine) as own:
        while not stop.is_set():
            with unless_refused(own):
                for _ in range(chance.randrange(1, 6)):
                    _change(own, chance, objects)
                if chance.random() < 0.15:
                    stop.wait(chance.random() * 0.3)
                if chance.random() < 0.2:
                    own.rollback()
                else:
                    own.commit()
            stop.wait(chance.random() * 0.01)


def _change(own: psycopg.Connection[Any], chance: random.Random, objects: int) -> None:
    is_hot = chance.random() < 0.3
    key = chance.randrange(1, 20 if is_hot else objects * 2)
    match chance.randrange(4):
        case 0:
            own.execute("DELETE FROM item WHERE id = %s", (key,))
        case 1:
            own.execute(
                "INSERT INTO item VALUES (%s, %s, %s, now()) ON CONFLICT (id) DO NOTHING",
                (key, f"new {chance.random()}", chance.randrange(1000) / 100),
            )
        case 2:
            own.execute(
                "UPDATE item SET name = %s, made = NULL WHERE id = %s",
                (f"name {chance.random()}", key),
            )
        case _:
            own.execute("UPDATE item SET price = price + 1 WHERE id = %s", (key,))
