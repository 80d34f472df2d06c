"""What tests of several folders set up, beside the fixtures of ``conftest``."""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa

from eventlog.model import Event, Op, Operation

Run = Callable[..., tuple[int, str, str]]
"""Runs a command line: exit code, standard output, standard error."""


def execute(database: sa.Engine, script: str) -> None:
    """Run statements as they stand, and commit."""
    with database.begin() as conn:
        conn.exec_driver_sql(script, execution_options={"no_parameters": True})


Objects = dict[str, dict[str, set[str]]]
"""What a receiver holds: object -> attribute -> values."""


def apply_event(objects: Objects, event: Event, key: str | None = None) -> None:
    """What a receiver does with an event; ``key``: what it calls the object, None = by its association."""
    key = event.association if key is None else key
    if event.operation == Operation.DELETE:
        objects.pop(key, None)
        return
    attributes = objects.setdefault(key, {})
    for attribute in event.attributes:
        values = attributes.setdefault(attribute.name, set())
        for op, texts in attribute.steps:
            if op == Op.REMOVE_ALL:
                values.clear()
            elif op == Op.REMOVE:
                values.difference_update(texts)
            else:
                values.update(texts)
        if not values:
            del attributes[attribute.name]


class PlainSink:
    """A sink that has nothing to make durable and nothing to close; a test's own class says what it answers."""

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass
