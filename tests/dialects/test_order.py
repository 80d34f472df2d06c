"""Many writers and one publisher, on every database: nothing is lost, no object's changes change
places.
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field

import pytest
import sqlalchemy as sa
from platforms import Platform
from shared import Objects, PlainSink, apply_event

from eventlog.model import Answer, Document, Event
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.opening import open_context
from eventlog.publisher.run.daemon import publish_once

WRITERS, CHANGES, OBJECTS = 4, 25, 5


@dataclass
class Receiver(PlainSink):
    """Keeps the events; ``state``: what a receiver makes of them."""

    events: list[Event] = field(default_factory=list)
    state: Objects = field(default_factory=dict)

    def send(self, document: Document) -> Answer:
        for event in document.events:
            self.events.append(event)
            apply_event(self.state, event)
        return Answer()


def write(platform: Platform, number: int, failures: list[BaseException]) -> None:
    chance = random.Random(number)
    try:
        for turn in range(CHANGES):
            key = chance.randrange(OBJECTS)
            with platform.engine.connect() as conn:
                if platform.has("concurrent_writers"):
                    conn.begin()
                else:
                    conn.exec_driver_sql("PRAGMA busy_timeout = 60000")
                conn.exec_driver_sql(
                    f"UPDATE item SET v = v + 1, w = '{number}-{turn}' WHERE k = {key}"
                )
                conn.commit()
    except BaseException as error:
        failures.append(error)


@pytest.mark.promise("guarantee The log has the changes of one object in order")
@pytest.mark.parametrize("delete", [False, True])
def test_no_change_is_lost_and_none_overtakes_another(platform: Platform, delete: bool) -> None:
    platform.run("CREATE TABLE item (k {integer} PRIMARY KEY, v {integer}, w {string})")
    platform.watch("item")
    platform.run(*(f"INSERT INTO item VALUES ({key}, 0, NULL)" for key in range(OBJECTS)))
    failures: list[BaseException] = []
    writers = [threading.Thread(target=write, args=(platform, n, failures)) for n in range(WRITERS)]
    receiver = Receiver()
    config = platform.config(
        publisher={
            "query_limit": 20,
            "batch_size": 3,
            "delete_from_log": delete,
            "allow_loopback": True,
        }
    )
    for writer in writers:
        writer.start()
    with open_context(config, Counters()) as context:
        while any(writer.is_alive() for writer in writers):
            publish_once(context, receiver)
        for writer in writers:
            writer.join()
        publish_once(context, receiver)
    assert failures == []
    with platform.engine.connect() as conn:
        rows = conn.execute(sa.text("SELECT k, v, w FROM item ORDER BY k")).all()
    assert sum(int(row[1]) for row in rows) == WRITERS * CHANGES
    upper = str.upper if platform.name == "oracle" else str
    expected = {
        f"{upper('k')}={key}": {
            upper("v"): {str(int(v))},
            **({} if w is None else {upper("w"): {w}}),
        }
        for key, v, w in rows
    }
    got = {
        association.partition(",")[0]: {name: own for name, own in values.items() if own}
        for association, values in receiver.state.items()
    }
    assert got == expected
