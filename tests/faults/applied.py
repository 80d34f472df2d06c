"""A receiver that applies events to objects, and a publisher that is killed while it sends to it."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from applied_driver import KILLED
from processes import start
from shared import PATIENCE, execute

from eventlog import Event, Op, Operation, Publisher
from eventlog.core import table_key
from eventlog.errors import ReceiverUnavailable
from eventlog.model import AttributeSteps, Step

Objects = dict[int, dict[str, Any]]


def change(url: str, *statements: str) -> None:
    """Run each statement in a transaction."""
    engine = sa.create_engine(url)
    for statement in statements:
        execute(engine, statement)
    engine.dispose()


def select(url: str, statement: str) -> list[tuple[Any, ...]]:
    engine = sa.create_engine(url)
    with engine.connect() as conn:
        rows = [tuple(row) for row in conn.exec_driver_sql(statement)]
    engine.dispose()
    return rows


class Receiver:
    """A receiver that applies events. ``failing`` is the chance that it hangs up after a document
    that it has applied.
    """

    def __init__(self, chance: random.Random | None = None, failing: float = 0) -> None:
        self.objects: Objects = {}
        self.events: list[Event] = []
        self._chance, self._failing = chance or random.Random(0), failing

    def __call__(self, body: bytes, events: Sequence[Event]) -> None:
        for event in events:
            self.events.append(event)
            self._apply(event)
        if self._chance.random() < self._failing:
            raise ReceiverUnavailable("hung up")

    def _apply(self, event: Event) -> None:
        (part, *_) = table_key.parse(event.association.partition(",")[0])
        key = int(part.value)
        if event.operation is Operation.DELETE:
            self.objects.pop(key, None)
            return
        if event.operation is Operation.ADD:
            self.objects[key] = {}
        values = self.objects.setdefault(key, {})
        for attribute in event.attributes:
            held = list(values.get(attribute.name, ()))
            for step in attribute.steps:
                if step.op is Op.REMOVE_ALL:
                    held = []
                elif step.op is Op.REMOVE:
                    held = [one for one in held if one not in step.values]
                else:
                    held += [one for one in step.values if one not in held]
            values[attribute.name] = held

    def run(self, config: dict[str, Any]) -> None:
        """Publish until nothing waits."""
        publisher = Publisher.from_config(config, sink=self, environ={})
        for _ in range(200):
            try:
                publisher.run_once()
            except ReceiverUnavailable:
                continue
            return
        raise AssertionError("the receiver hung up each time")


DRIVER: Final = Path(__file__).with_name("applied_driver.py")


class Killed:
    """A publisher whose process ends now and then after a document was applied and before its rows
    are marked. ``kills`` counts how often.
    """

    def __init__(self, config: dict[str, Any], journal: Path) -> None:
        self.config, self.journal, self.kills, self._starts = config, journal, 0, 0

    def run(self, seed: int) -> Receiver:
        """Publish until nothing waits, and return a receiver of all that was sent so far."""
        while True:
            self._starts += 1
            seed_of_run = str(seed + self._starts)
            command = [sys.executable, str(DRIVER), json.dumps(self.config), str(self.journal)]
            code = start([*command, seed_of_run]).wait(PATIENCE)
            if code != KILLED:
                break
            self.kills += 1
        assert code == 0
        receiver = Receiver()
        for line in self.journal.read_text().splitlines():
            receiver(b"", [_event(*one) for one in json.loads(line)])
        return receiver


def _event(association: str, operation: str, event_id: str, attributes: Any) -> Event:
    return Event(
        Operation(operation),
        "",
        association,
        event_id,
        tuple(
            AttributeSteps(name, kind, tuple(Step(Op(op), tuple(texts)) for op, texts in steps))
            for name, kind, steps in attributes
        ),
    )
