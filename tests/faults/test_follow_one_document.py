"""Promise test: a receiver that fails over HTTP for some objects of a followed source, in each way
that it can, and a publisher that is killed meanwhile (spec/change-model.md 6.6).

All other objects arrive, the events of each in their order; an event-id has one content; nothing is
lost.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from lxml import etree
from receiver import Receiver, Request, answer, reply
from test_follow_kill import Expected, Feed, events_of, in_file
from test_follow_random_kill import publisher
from test_one_document import WAYS

from eventlog.changes.format import Report
from eventlog.gbase import format
from eventlog.testing.gbase_workload import T1, drain, new_server, open_session

PATIENCE = 120.0


class Objects:
    """A stream of ``number`` objects, each inserted and then updated twice."""

    def __init__(self, directory: Path, number: int) -> None:
        path, server = directory / "capture.cdc", new_server()
        session = open_session(server)
        for step, value in enumerate("abc"):
            for first in range(0, number, 5):
                work = server.begin(1)
                for key in range(first, min(first + 5, number)):
                    if step == 0:
                        work.insert(T1, {"c1": key, "c2": value})
                    else:
                        before = {"c1": key, "c2": "abc"[step - 1]}
                        work.update(T1, before, {"c1": key, "c2": value})
                work.commit()
        path.write_bytes(b"".join(drain(server, session)))
        reader = {"labels": {"111": T1}, "keys": {"app.t1": ["c1"]}}
        self.settings: dict[str, Any] = {"type": "gbase", "path": str(path), "reader": reader}
        self.whole: Expected = events_of(list(format.FORMAT.read(str(path), reader, Report())))

    def reset(self) -> None:
        pass

    def fill(self) -> None:
        pass


class Failing:
    """Fails for documents with an object of ``culprits``, in the way that is given by its number.
    ``came`` has the events that it has applied, by their first arrival.
    """

    def __init__(self, culprits: dict[int, int]) -> None:
        self.culprits = culprits
        self.came: dict[str, tuple[int, str]] = {}
        self.order: list[str] = []
        self.failed = 0
        self.receiver: Receiver | None = None
        self._lock = threading.Lock()

    def __call__(self, request: Request) -> bytes | Iterable[bytes]:
        if len(request.body.encode()) < int(request.headers["Content-Length"]):
            return reply(400)  # of a publisher that was killed while it sent
        keys = [int(key) for key in re.findall("<association>c1=([0-9]+)", request.body)]
        found = [key for key in keys if key in self.culprits]
        assert self.receiver is not None
        if found:
            self.failed += 1
            return WAYS[self.culprits[found[0]]](self.receiver)
        with self._lock:
            for event in etree.fromstring(request.body.encode()).iterfind("input/*"):
                name, text = event.attrib["event-id"], etree.tostring(event, encoding="unicode")
                key = int(re.findall("c1=([0-9]+)", text)[0])
                assert self.came.setdefault(name, (key, text)) == (key, text)
                if name not in self.order:
                    self.order.append(name)
        return reply(200, answer())

    def has(self, keys: set[int], events: int) -> bool:
        with self._lock:
            return sum(key in keys for key, _ in self.came.values()) == events * len(keys)


@pytest.mark.parametrize(
    ("number", "kills", "seed"),
    [
        (40, 2, 1),
        *(pytest.param(200, kills, 1 + kills, marks=pytest.mark.night) for kills in (0, 12)),
    ],
)
def test_all_other_objects_arrive_in_order_though_the_receiver_fails_for_some(
    tmp_path: Path, number: int, kills: int, seed: int
) -> None:
    chance = random.Random(seed)
    culprits = {key: way for way, key in enumerate(chance.sample(range(number), len(WAYS)))}
    feed: Feed = Objects(tmp_path, number)
    others = set(range(number)) - culprits.keys()
    failing = Failing(culprits)
    with Receiver(failing) as receiver:
        failing.receiver = receiver
        options = {"batch_size": 8, "retry_initial": 0.02, "retry_max": 0.1, "mark_interval": 0}
        position = in_file(tmp_path)[0]
        with publisher(
            feed, tmp_path, position, receiver.url, options=options, timeout=0.25, once=False
        ) as own:
            for _ in range(kills):
                more = failing.failed + chance.randrange(1, 10)
                own.tell(b"r")
                _wait_until(lambda: failing.failed >= more)  # noqa: B023
                own.tell(b"k")
                assert own.ended() == "killed"
            own.tell(b"r")
            _wait_until(lambda: failing.has(others, 3))
            assert failing.failed
            assert all(key in others for key, _ in failing.came.values())
            failing.culprits = {}
            _wait_until(lambda: failing.has(set(range(number)), 3))
            own.tell(b"k")
            own.ended()
    order = {name: place for place, (name, _) in enumerate(feed.whole)}
    assert failing.came.keys() == order.keys()
    places: dict[int, int] = {}
    for name in failing.order:
        key, _ = failing.came[name]
        assert places.get(key, -1) < order[name]
        places[key] = order[name]


def _wait_until(holds: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)
