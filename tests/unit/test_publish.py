"""The daemon: how long it rests after what, and what ends it (spec/event-log.md 8.4, 8.5)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import time
from pathlib import Path
from typing import Any

import pytest
from fake_publisher import FakePublisher, Receiver, with_options
from samples import row
from test_sending import deletes, judge

from eventlog.config.load import load
from eventlog.core.clock import Machine, simulated
from eventlog.errors import (
    DatabaseError,
    DatabaseUnavailable,
    FatalAnswer,
    PublisherAlreadyRunning,
    ReceiverUnavailable,
)
from eventlog.publisher.context.context import Context
from eventlog.publisher.declared.opening import publisher_options
from eventlog.publisher.run.daemon import publish, publish_once


class Later(Machine):
    """A clock that only a rest moves on."""

    later = 0.0

    def monotonic(self) -> float:
        return self.later


class Stop:
    """Told to stop when it has rested so often; remembers for how long, and ``machine`` has the time
    after it.
    """

    def __init__(self, rests: int) -> None:
        self.left = rests
        self.rests: list[float] = []
        self.machine = Later()

    def is_set(self) -> bool:
        return self.left <= 0

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.rests.append(timeout)
        self.machine.later += timeout
        self.left -= 1
        return self.is_set()


@contextmanager
def world_of(rows: list[Any], **options: Any) -> Iterator[FakePublisher]:
    fake = FakePublisher(
        with_options(**{"retry_initial": 1, "retry_max": 60, "polling_interval": 7, **options})
    )
    fake.log(rows)
    try:
        with fake.numbering_deliveries():
            yield fake
    finally:
        fake.close()


def rests(fake: FakePublisher, receiver: Receiver, count: int) -> list[float]:
    stop = Stop(count)
    with simulated(stop.machine):
        publish(lambda: nullcontext(fake.context()), lambda: receiver, stop)
    return stop.rests


def test_it_rests_for_the_polling_interval_when_the_queue_is_empty() -> None:
    with world_of([]) as fake:
        assert rests(fake, Receiver(), 2) == [7, 7]


def test_where_nobody_notifies_it_rests_as_long_as_the_queue_was_empty_before() -> None:
    with world_of(deletes("1", "2")) as fake:
        found = rests(fake, Receiver(), 11)
        assert found == pytest.approx([0.05, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 7, 7])
        assert set(fake.statuses().values()) == {"S"}


def test_times_of_the_day_are_waited_for_whatever_was_sent() -> None:
    with world_of(deletes("1"), time_of_day=(time(0, 0),)) as fake:
        assert all(rest > 1 for rest in rests(fake, Receiver(), 2))


def test_it_goes_on_at_once_while_windows_are_full() -> None:
    with world_of(deletes(*map(str, range(10))), query_limit=3) as fake:
        assert rests(fake, Receiver(), 1) == [0.05]
        assert set(fake.statuses().values()) == {"S"}


def are_pauses(found: list[float], longest: list[float]) -> bool:
    """Whether chance has left at least the half of each."""
    return all(most / 2 <= pause <= most for pause, most in zip(found, longest, strict=True))


def test_a_receiver_that_stays_away_is_tried_at_doubling_intervals() -> None:
    with world_of(deletes("1")) as fake:
        found = rests(fake, Receiver(lambda event: "away"), 8)
        assert are_pauses(found, [1, 2, 4, 8, 16, 32, 60, 60])


def test_an_answer_without_retry_resets_the_back_off() -> None:
    with world_of(deletes("1", "2", "3"), batch_size=1, park=False) as fake:
        receiver = Receiver(judge(e1="retry retry", e2="retry retry", e3="retry"))
        *pauses, rest = rests(fake, receiver, 6)
        assert are_pauses(pauses, [1, 2, 1, 2, 1])
        assert rest == 0.05
        assert receiver.sent == [["1"], ["1"], ["1"], ["2"], ["2"], ["2"], ["3"], ["3"]]


def test_it_wakes_when_a_parked_object_is_due() -> None:
    with world_of(deletes("1", "2"), batch_size=1) as fake:
        (rest,) = rests(fake, Receiver(judge(e1="retry")), 1)
        assert 0 < rest <= 1


@pytest.mark.parametrize(
    ("error", "match"),
    [
        (DatabaseUnavailable("nobody there"), "nobody there"),
        (DatabaseError("no right"), "no right"),
        (PublisherAlreadyRunning("held"), "held"),
    ],
)
def test_what_is_wrong_at_the_start_ends_it(error: DatabaseError, match: str) -> None:
    def refuse() -> Any:
        raise error

    with pytest.raises(type(error), match=match):
        publish(refuse, Receiver, Stop(3))


@pytest.mark.parametrize(
    "then",
    [
        DatabaseUnavailable("down"),
        PublisherAlreadyRunning("our own session"),
        DatabaseError("starting"),
    ],
)
def test_once_it_has_begun_it_connects_again(then: DatabaseError) -> None:
    with world_of(deletes("1", "2"), batch_size=1) as fake:
        tried: list[int] = []
        lost = [DatabaseUnavailable("connection lost")]

        def step(name: str) -> None:
            if name == "mark" and lost:
                fake.connection.rollback()
                raise lost.pop()

        fake.step = step

        @contextmanager
        def connect() -> Iterator[Context]:
            tried.append(len(tried))
            if len(tried) in (2, 3):
                raise then
            yield fake.context()

        receiver, stop = Receiver(), Stop(4)
        publish(connect, lambda: receiver, stop)
        assert len(tried) == 4
        *pauses, rest = stop.rests
        assert are_pauses(pauses, [1, 2, 4])
        assert rest == 0.05
        assert set(fake.statuses().values()) == {"S"}
        assert receiver.sent == [["1"], ["2"], ["1"], ["2"]]


@pytest.mark.parametrize(
    ("sink", "concurrency"),
    [("stdout", 1), ("files", 1), ("http", 8), ("python", 8)],
)
def test_files_and_streams_are_written_by_one_thread(
    tmp_path: Path, sink: str, concurrency: int
) -> None:
    settings = 'directory = "d"\nurl = "http://localhost"\nfunction = "a:b"'
    file = tmp_path / "eventlog.toml"
    file.write_text(f'[publisher]\nconcurrency = 8\n[sink]\ntype = "{sink}"\n{settings}')
    assert publisher_options(load(file, {}), "me").concurrency == concurrency


def test_fatal_ends_it() -> None:
    with world_of(deletes("1")) as fake, pytest.raises(FatalAnswer, match="fatal of 1"):
        rests(fake, Receiver(judge(e1="fatal")), 5)


ONCE = [
    ("success", None, ""),
    ("fatal", FatalAnswer, "fatal of 1"),
    ("away", ReceiverUnavailable, "away"),
    ("retry", ReceiverUnavailable, "1 object left"),
]


@pytest.mark.parametrize(("level", "error", "match"), ONCE)
def test_one_run_reports_how_it_ended(
    level: str, error: type[Exception] | None, match: str
) -> None:
    with (
        world_of([*deletes("1"), row(2, 9)]) as fake,
        pytest.raises(error, match=match) if error else nullcontext(),
    ):
        publish_once(fake.context(), Receiver(judge(e1=level)))


def test_one_run_goes_to_the_end_of_the_queue() -> None:
    with world_of(deletes(*map(str, range(20))), query_limit=3) as fake:
        publish_once(fake.context(), Receiver())
        assert set(fake.statuses().values()) == {"S"}
