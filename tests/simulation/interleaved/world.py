"""A schedule that is run: its sessions take their steps one after the other, all of them come to
their end, and the auditor judges.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from random import Random
from typing import Any

from eventlog.core import clock
from eventlog.model import Level
from interleaved.audit import PUBLISHER, Audit
from interleaved.readers import Operator, Process, Reader
from interleaved.schedules import Schedule
from interleaved.server import CONSUMER, Sessions
from interleaved.writers import Change, Writer

_RESTS = 6
"""The rests of each reader, after all others have ended, within which it has sent everything."""


class World(clock.Machine):
    """What a schedule is run in: the sessions, the clock and the story."""

    def __init__(self, schedule: Schedule, sessions: Sessions) -> None:
        self.schedule, self._sessions = schedule, sessions
        self.stepper, self.control = sessions.stepper, sessions.control
        self.story: list[str] = []
        self.failures: list[str] = []
        self.now = 0.0
        self.audit = Audit(self)
        self._chance = Random(schedule["seed"])
        self._changes = 0
        self._tries: dict[tuple[str, Change], int] = {}
        options, begins = schedule["options"], schedule["begins"]
        self.writers = {
            f"w{number}": Writer(f"w{number}", session, self)
            for number, session in enumerate(sessions.writers, 1)
        }
        kept = {PUBLISHER: sessions.publisher, CONSUMER: sessions.consumer}
        self.readers = {
            name: Reader(
                name, kept[name], self, options, begins if name == CONSUMER else "earliest"
            )
            for name in schedule["readers"]
        }
        self.operator = Operator("requeue", sessions.operator, self)

    # --- the machine ---

    def monotonic(self) -> float:
        return self.now

    def unix_time(self) -> float:
        return 1_700_000_000.0 + self.now

    def sleep(self, seconds: float) -> None:
        self.stepper.point("sleep")
        self.now += seconds

    def chance(self) -> float:
        return self._chance.random()

    def random_hex(self, count: int) -> str:
        return self._chance.randbytes(count).hex()

    # --- what the sessions ask ---

    def tell(self, what: str) -> None:
        """Add a line to the story."""
        self.story.append(f"{self.now:5.1f} {what}")

    def fail(self, why: str) -> None:
        """Note a failure."""
        self.tell(f"FAILURE: {why}")
        self.failures.append(why)

    def new_change(self, key: int) -> Change:
        """Return a change that no other one is like."""
        self._changes += 1
        return Change(key, f"v{self._changes}")

    def would_wait_beside_another(self, writer: Writer, key: int) -> bool:
        """Return True if a session would wait to change an object, and another waits already."""
        writers = self.writers.values()
        return any(one.is_waiting for one in writers) and any(
            one.locks(key, against=writer) for one in writers
        )

    def answer(self, reader: str, changes: Sequence[Change]) -> Level:
        """Return the answer to an event: the same for the same sending of the same changes."""
        told = reader, changes[-1]
        self._tries[told] = tries = self._tries.get(told, 0) + 1
        if tries > 2:
            return Level.SUCCESS
        text = f"{self.schedule['seed']} {told} {tries}"
        drawn = hashlib.blake2b(text.encode(), digest_size=4).digest()
        refuses = int.from_bytes(drawn, "big") / 2**32 < self.schedule["errors"]
        return Level.ERROR if refuses else Level.SUCCESS

    # --- the schedule ---

    def run(self) -> None:
        """Take the steps, end everything, and have the auditor judge."""
        self._sessions.empty()
        with clock.simulated(self):
            try:
                for name in self.schedule["running"]:
                    self.readers[name].start()
                    self.readers[name].run_to_rest()
                for who, what, *given in self.schedule["steps"]:
                    self._step(who, what, *given)
                    if self.failures:
                        break
                else:
                    self._end()
            finally:
                self._leave()

    def _step(self, who: str, what: str, *given: Any) -> None:
        match who, what:
            case "prepared", _:
                for writer in self.writers.values():
                    if writer.prepared:
                        writer.end_prepared(commits=what == "commit")
                        break
            case "requeue", "start":
                self.operator.start(*given)
            case ("requeue", _) | (_, "run" | "rare" | "poll" | "start" | "kill"):
                self._run(self.readers.get(who, self.operator), what, *given)
            case _:
                self.writers[who].act(what, *given)
        self._go_on()

    def _run(self, process: Process, what: str, *given: Any) -> None:
        if what == "start" and isinstance(process, Reader):
            process.start()
        elif what == "kill":
            process.kill()
        elif what == "run":
            process.run(*given)
        elif what == "rare":
            process.run_to_rare(*given)
        else:
            for _ in range(*given):
                process.run_to_rest()

    def _go_on(self) -> None:
        """Let statements end whose locks have come free."""
        for writer in self.writers.values():
            writer.go_on()
        for process in (*self.readers.values(), self.operator):
            process.go_on()

    def _end(self) -> None:
        """End all transactions and the operator, and let the readers send what is left."""
        self.tell("--- the end")
        while any(one.is_open or one.is_waiting or one.prepared for one in self.writers.values()):
            for writer in self.writers.values():
                writer.end(commits=self._chance.random() < 0.6)
                self._go_on()
        for reader in self.readers.values():
            reader.start()
        complaints: list[str] = []
        for _ in range(_RESTS):
            for process in (self.operator, *self.readers.values()):
                process.run_to_rest()
                self._go_on()
            complaints = list(self.audit.complaints())
            if self.failures or not (complaints or self.operator.is_running):
                return
        if self.operator.is_running:
            self.fail(f"requeue does not end: it is at {self.operator.place}")
        for complaint in complaints:
            self.fail(complaint)

    def _leave(self) -> None:
        """Leave the sessions as they were found."""
        for process in (*self.readers.values(), self.operator):
            process.leave()
        for writer in self.writers.values():
            writer.leave()


def run_schedule(schedule: Schedule, sessions: Sessions) -> World:
    """Run a schedule, and return its world."""
    world = World(schedule, sessions)
    world.run()
    return world
