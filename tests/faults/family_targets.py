"""A receiver that applies events to a table of a MariaDB or MySQL: what ``eventlog verify`` compares
with the objects of ``family_writers``.

    python family_targets.py CONFIG URL

publishes to the table in the database of the URL, until it is killed: CONFIG is JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

sys.path.append(str(Path(__file__).parents[1]))
import verified

from eventlog import Answer, Event, Op, Operation, Publisher
from eventlog.core import table_key


@dataclass
class Table(verified.Table):
    """A receiver that applies events to ``usr`` in its own database, each call in one
    transaction.
    """

    def __post_init__(self) -> None:
        self.session = self.engine.connect()

    def __call__(self, body: bytes, events: Sequence[Event]) -> Answer | None:
        for event in events:
            self._apply(event)
        self.session.commit()
        return None

    def _apply(self, event: Event) -> None:
        key = int(table_key.parse(event.association.partition(",")[0])[0].value)
        if event.operation in (Operation.DELETE, Operation.ADD):
            self.session.exec_driver_sql("DELETE FROM usr WHERE id = %s", (key,))
        if event.operation is Operation.DELETE:
            return
        values: dict[str, str | None] = {"id": str(key)}
        for attribute in event.attributes:
            added = [v for step in attribute.steps if step.op is Op.ADD for v in step.values]
            values[attribute.name] = added[-1] if added else None
        updates = ", ".join(f"{name} = VALUES({name})" for name in values)
        self.session.exec_driver_sql(
            f"INSERT INTO usr ({', '.join(values)}) VALUES ({', '.join(['%s'] * len(values))}) "
            f"ON DUPLICATE KEY UPDATE {updates}",
            tuple(values.values()),
        )


if __name__ == "__main__":
    engine = sa.create_engine(sys.argv[2])
    Publisher.from_config(json.loads(sys.argv[1]), sink=Table(engine)).run()
