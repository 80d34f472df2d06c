"""Time, sleep, chance and threads come from one place, which a simulation may replace."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime

from eventlog.core import clock
from eventlog.publisher.run.liveness import LivenessClock


class Still(clock.Machine):
    """A machine whose clocks stand still, and whose rest takes no time."""

    def __init__(self) -> None:
        self.at, self.rests = 100.0, list[float]()

    def monotonic(self) -> float:
        return self.at

    def unix_time(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.rests.append(seconds)


def test_another_machine_answers_while_the_block_runs() -> None:
    machine = Still()
    with clock.simulated(machine):
        assert clock.utc_now() == datetime(1970, 1, 1, 0, 1, 40, tzinfo=UTC)
        clock.sleep(3600)
    assert machine.rests == [3600]
    assert clock.unix_time() > 1.7e9


def test_a_clock_that_is_a_default_asks_the_machine_of_the_moment() -> None:
    machine = Still()
    with clock.simulated(machine):
        liveness = LivenessClock(timeout=10)
        machine.at += 9
        assert liveness.is_alive
        machine.at += 2
        assert not liveness.is_alive


def test_a_thread_is_one_of_the_machine() -> None:
    started = []

    class Threads(Still):
        def start_thread(self, run: Callable[[], object], name: str) -> threading.Thread:
            started.append(name)
            return threading.Thread(target=run)

    with clock.simulated(Threads()):
        clock.start_thread(lambda: None, "eventlog-x")
    assert started == ["eventlog-x"]
    clock.start_thread(lambda: started.append("ran"), "eventlog-y").join(5)
    assert started == ["eventlog-x", "ran"]
