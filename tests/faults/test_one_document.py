"""Promise test: a receiver that fails for 1 of 1,000 objects in each way that it can, together with
kills of the publisher (spec/event-log.md 8.4, *Suspect documents*).

All other objects arrive, the events of each in their order; the culprits are parked, or E after
``max_attempts``; nothing is lost. How long an object waits has a bound: an object in no document
with a culprit waits two failures for each document with one, and one that shares a
document with a culprit for the tries of halves too.
"""

from __future__ import annotations

import math
import random
import re
import time
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from threading import Lock

import pytest
import sqlalchemy as sa
from publishers import install, process, write_config
from receiver import CUT, Receiver, Request, answer, reply
from replay import Replay
from shared import execute, fetch, url_of

from eventlog.config.load import load

TIMEOUT, RETRY_MAX, FAILURES = 0.4, 0.2, 2
LATE = 300.0
"""Seconds that a loaded machine may take for a start and for everything that does not fail."""

Response = bytes | Iterable[bytes]
WAYS: list[Callable[[Receiver], Response]] = [
    lambda _: reply(500, b"no such container"),
    lambda receiver: receiver.silence(),
    lambda _: [CUT],
    lambda _: [b"HTTP/1.1 200 OK\\r\\nContent-Length: 99\\r\\n\\r\\n<nds>", CUT],
    lambda _: reply(400),
    lambda _: reply(409),
    lambda _: reply(413),
    lambda _: reply(422),
    lambda _: reply(200, b"<nds><output>"),
]


class Failing:
    """Fails for documents with an object of ``culprits``, by way, and applies all others once.

    ``failures`` are the seconds of each failure, ``arrived`` when each object came first.
    """

    def __init__(self, culprits: dict[int, int]) -> None:
        self.culprits, self.replay = culprits, Replay(strict=frozenset({"usr"}))
        self.arrived: dict[int, float] = {}
        self.failures: list[float] = []
        self.receiver: Receiver | None = None
        self._lock = Lock()

    def __call__(self, request: Request) -> Response:
        keys = [int(key) for key in re.findall("<association>id=([0-9]+)", request.body)]
        found = [key for key in keys if key in self.culprits]
        with self._lock:
            if found:
                self.failures.append(time.monotonic())
            else:
                self.replay.documents([request.raw])
                for key in keys:
                    self.arrived.setdefault(key, time.monotonic())
        assert self.receiver is not None
        return WAYS[self.culprits[found[0]]](self.receiver) if found else reply(200, answer())


@pytest.mark.promise("guarantee One document does not stop the queue")
@pytest.mark.parametrize(
    ("objects", "batch_size", "kills", "max_attempts", "concurrency", "seed"),
    [
        pytest.param(360, 10, 0, 0, 1, 1, marks=pytest.mark.night),
        (90, 10, 2, 3, 2, 2),
        pytest.param(180, 10, 2, 3, 2, 2, marks=pytest.mark.night),
        *(
            pytest.param(9000, 128, kills, tries, concurrency, seed, marks=pytest.mark.night)
            for kills, tries, concurrency, seed in [
                (0, 0, 1, 3), (0, 2, 8, 4), (12, 0, 1, 5), (12, 2, 4, 6), (4, 1, 1, 7),
            ]
        ),
    ],
)  # fmt: skip
def test_all_other_objects_arrive_in_order_and_within_the_bound(
    database: sa.Engine,
    tmp_path: Path,
    objects: int,
    batch_size: int,
    kills: int,
    max_attempts: int,
    concurrency: int,
    seed: int,
) -> None:
    chance = random.Random(seed)
    culprits = {key: way for way, key in enumerate(chance.sample(range(objects), len(WAYS)))}
    execute(database, "CREATE TABLE usr (id integer PRIMARY KEY, num integer)")
    config = write_config(
        tmp_path, url_of(database), [{"table": "usr"}], publisher={"allow_loopback": True}
    )
    install(load(config, {}))
    execute(database, f"INSERT INTO usr SELECT n, 0 FROM generate_series(0, {objects - 1}) AS n")
    failing = Failing(culprits)
    others = set(range(objects)) - culprits.keys()

    with Receiver(failing) as receiver:
        failing.receiver = receiver
        options: dict[str, object] = {
            "allow_loopback": True,
            "batch_size": batch_size,
            "concurrency": concurrency,
            "retry_initial": 0.02,
            "retry_max": RETRY_MAX,
            "max_attempts": max_attempts,
            "polling_interval": 1,
            "sink__type": "http",
            "sink__url": receiver.url,
            "sink__timeout": TIMEOUT,
        }
        first = ["--config", str(config)]
        for _ in range(kills):
            with process(database, tmp_path, first=first, **options):
                more = len(failing.failures) + chance.randrange(1, 10)
                _wait_until(lambda: len(failing.failures) >= more, "failures", LATE)  # noqa: B023
                execute(database, "UPDATE usr SET num = num + 1 WHERE id % 7 = 0")
        begun, failed_before = time.monotonic(), len(failing.failures)
        with process(database, tmp_path, first=first, **options):
            execute(database, "UPDATE usr SET num = num + 1 WHERE id % 3 = 0")
            bound = _bound_of_sharing(len(culprits), batch_size, len(culprits), concurrency)
            _wait_until(
                lambda: _arrived(database, failing, others),
                "all other objects, up to their last change",
                LATE + bound * (TIMEOUT + RETRY_MAX),
            )
            if not kills:
                _check_bounds(failing, begun, batch_size, concurrency)
            assert len(failing.failures) > failed_before
            # Nothing of a culprit came, and its later events wait after the first.
            if max_attempts:
                new = count(objects)

                def is_given_up() -> bool:
                    # Their later events fail, too, and only other documents tell whose fault it is.
                    execute(database, f"INSERT INTO usr VALUES ({next(new)}, 0)")
                    return _letters(database, culprits) <= {"E"}

                _wait_until(is_given_up, "E", LATE)
            else:
                assert _letters(database, culprits) == {"N"}
            assert not culprits.keys() & failing.arrived.keys()
            # Fixed, the receiver gets what is parked.
            failing.culprits = {}
            if not max_attempts:
                everyone = others | culprits.keys()
                _wait_until(lambda: _arrived(database, failing, everyone), "the culprits", LATE)
    rows = fetch(database, "SELECT record_id FROM eventlog WHERE status = 'E'")
    told = fetch(database, "SELECT record_id, message FROM eventlog_error WHERE code = 'receiver'")
    assert {record_id for (record_id,) in rows} == {record_id for record_id, _ in told}
    # A try more, where nothing was answered between a restart and the last one.
    tries = [int(re.findall("given up after ([0-9]+) tr", message)[0]) for _, message in told]
    assert all(number >= max_attempts for number in tries)


def _wait_until(holds: Callable[[], bool], what: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain for {what}"
        time.sleep(0.1)


def _arrived(database: sa.Engine, failing: Failing, keys: set[int]) -> bool:
    """Whether the receiver has these objects as the table has them."""
    if not keys <= failing.arrived.keys():
        return False
    there = {
        int(name.partition(",")[0].removeprefix("id=")): attributes.get("num")
        for name, attributes in failing.replay.objects.items()
    }
    rows = fetch(database, "SELECT id, num FROM usr")
    return all(there.get(key) == [str(num)] for key, num in rows if key in keys)


def _letters(database: sa.Engine, culprits: Iterable[int]) -> set[str]:
    names = ", ".join(f"'id={key}'" for key in culprits)
    rows = fetch(database, f"SELECT status FROM eventlog WHERE table_key IN ({names})")
    return {letter.strip() for (letter,) in rows}


def _check_bounds(failing: Failing, begun: float, batch_size: int, concurrency: int) -> None:
    """Each object came after so many failures at most, and so many times the longest of them.

    A probe may be a document with a culprit, too: one more for each document with one. Tries of
    halves come between, one for each delivery of others at most, and no more than half of the time.
    """
    with_culprit = sorted({key // batch_size for key in failing.culprits})
    for key, at in failing.arrived.items():
        document = key // batch_size
        before = sum(one < document for one in with_culprit)
        if document in with_culprit:
            most = _bound_of_sharing(before + 1, batch_size, len(with_culprit), concurrency)
        else:
            most = before * FAILURES
        assert at - begun <= LATE + most * (TIMEOUT + RETRY_MAX), key
        if document not in with_culprit and concurrency == 1:
            failed = sum(one < at for one in failing.failures)
            halves = math.ceil(math.log2(batch_size)) * 2 * before
            assert failed <= before * (FAILURES + 1) + halves, (key, failed)


def _bound_of_sharing(before: int, batch_size: int, documents: int, concurrency: int) -> int:
    """The failures that an object waits for that is in a document with a culprit: those of the
    documents up to its own, and a try of each part of all of them for each time that its own part
    is cut.
    """
    cuts = math.ceil(math.log2(batch_size))
    return (before + concurrency) * (FAILURES + 1) + cuts * 2 * documents
