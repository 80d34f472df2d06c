"""A schedule that is run: its sessions take their steps one after the other, all of them come to
their end, and the auditor judges.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import psycopg

from eventlog.core import clock
from eventlog.model import Level
from interleaved.audit import PUBLISHER, Audit
from interleaved.leaves import Hand, Purge
from interleaved.readers import Operator, Process, Reader
from interleaved.schedules import Schedule, has_families, has_leaves
from interleaved.server import CONSUMER, DETACHED, FAMILIES, LEAVES, PLAIN, Databases
from interleaved.writers import Change, Writer

_RESTS = 6
"""The rests of each reader, after all others have ended, within which it has sent everything."""
_SEARCH = 61
"""The seconds after which the publisher searches for rows that were set to N by hand."""

EARLY = "child rows are logged at the commit"
_RECORDED = "SELECT FROM eventlog_state WHERE kind = 'detached'"


class World(clock.Machine):
    """What a schedule is run in: the sessions, the clock and the story."""

    def __init__(self, schedule: Schedule, databases: Databases) -> None:
        self.schedule, self._databases = schedule, databases
        self.has_families = has_families(schedule)
        kind = FAMILIES if self.has_families else LEAVES if has_leaves(schedule) else PLAIN
        self.sessions = sessions = databases.of(kind)
        self.stepper = sessions.stepper
        self.hasty = frozenset(schedule.get("hasty", ()))
        """The writers whose commits do not wait for the disk."""
        self.counts = Counter[str]()
        """How often a step of leaves or a crash did something."""
        self.story: list[str] = []
        self.failures: list[str] = []
        self.now = 0.0
        self.audit = Audit(self)
        self._chance = Random(schedule["seed"])
        self._changes = 0
        self._tries: dict[tuple[str, Change], int] = {}
        options, begins = schedule["options"], schedule["begins"]
        self.writers = {
            f"w{place + 1}": Writer(f"w{place + 1}", place, self)
            for place in range(len(sessions.writers))
        }
        kept = {PUBLISHER: sessions.publisher, CONSUMER: sessions.consumer}
        self.readers = {
            name: Reader(
                name, kept[name], self, options, begins if name == CONSUMER else "earliest"
            )
            for name in schedule["readers"]
        }
        self.operator = Operator("requeue", sessions.operator, self)
        self.purge = Purge(sessions.purge, self) if sessions.is_partitioned else None
        self.hand = Hand(self)

    @property
    def control(self) -> psycopg.Connection[Any]:
        return self.sessions.control

    @property
    def _commands(self) -> Sequence[Process]:
        purge = () if self.purge is None else (self.purge,)
        return self.operator, *purge

    @property
    def _processes(self) -> Sequence[Process]:
        return *self.readers.values(), *self._commands

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

    def count(self, what: str, number: int = 1) -> None:
        """Count what a step did."""
        self.counts[what] += number

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
        self.sessions.empty()
        if self.sessions.is_partitioned:
            self.sessions.begin_at(self.schedule["first"])
            self._set_durability()
        if self.has_families:
            self._set_isolation()
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

    def _set_durability(self) -> None:
        for name, session in zip(self.writers, self.sessions.writers, strict=True):
            session.execute(f"SET synchronous_commit = {'off' if name in self.hasty else 'on'}")

    def _set_isolation(self) -> None:
        for session, level in zip(self.sessions.writers, self.schedule["isolation"], strict=True):
            session.execute(f"SET default_transaction_isolation = '{level}'")

    def _step(self, who: str, what: str, *given: Any) -> None:
        if self._would_wait_beside_another(who, what):
            # Which of them goes on first is not up to the schedule.
            self.tell(f"{who} does not wait for the log, since another one waits")
            return
        match who, what:
            case "server", _:
                self._crash()
            case "hand", "set back":
                self.hand.set_back()
            case "hand", _:
                self.hand.detach(*given)
            case "purge", "start":
                assert self.purge is not None
                self.purge.start(*given)
            case "purge", _:
                assert self.purge is not None
                self._run(self.purge, what, *given)
            case "prepared", _:
                for writer in self.writers.values():
                    if writer.prepared:
                        writer.end_prepared(commits=what == "commit")
                        break
            case "requeue", "start":
                self.operator.start(*given)
            case ("requeue", _) | (
                _,
                "run" | "rare" | "before" | "to commit" | "poll" | "start" | "kill",
            ):
                self._run(self.readers.get(who, self.operator), what, *given)
            case _:
                self.writers[who].act(what, *given)
        self._go_on()

    def _would_wait_beside_another(self, who: str, what: str) -> bool:
        """Return True if a session might wait for the purge that has locked the log, and another one
        waits already.
        """
        purge = self.purge
        if purge is None or not purge.holds_log or who in ("purge", "server") or what == "kill":
            return False
        waiting = any(one.is_waiting for one in self.writers.values())
        if waiting or any(one.task and one.task.is_blocked for one in self._processes):
            return True
        self.count("a step while the log is locked")
        return False

    def _crash(self) -> None:
        """Crash the server, and with it all sessions."""
        self.tell("the server crashes")
        self.count("a crash")
        before, done = self.audit.rows(), self.audit.done_by_consumer()
        self._databases.crash(self.sessions)
        for one in (*self._processes, *self.writers.values()):
            one.lose()
        self.sessions.lose()
        self._set_durability()
        self.audit.crashed(before, done)

    def _run(self, process: Process, what: str, *given: Any) -> None:
        if what == "start" and isinstance(process, Reader):
            process.start()
        elif what == "kill":
            process.kill()
        elif what == "run":
            process.run(*given)
        elif what == "rare":
            process.run_to_rare(*given)
        elif what == "before":
            process.run_before(*given)
        elif what == "to commit":
            process.run_to_commit(*given)
        else:
            for _ in range(*given):
                process.run_to_rest()

    def _go_on(self) -> None:
        """Let statements end whose locks have come free."""
        for writer in self.writers.values():
            writer.go_on()
        for process in self._processes:
            process.go_on()

    def _end(self) -> None:
        """End all transactions and the operator, and let the readers send what is left."""
        self.tell("--- the end")
        while self.purge is not None and self.purge.holds_log:
            self.purge.run_to_rest()
            self._go_on()
        while any(one.is_open or one.is_waiting or one.prepared for one in self.writers.values()):
            for writer in self.writers.values():
                writer.end(commits=self._chance.random() < 0.6)
                self._go_on()
        for reader in self.readers.values():
            reader.start()
        complaints: list[str] = []
        for _ in range(_RESTS):
            for process in (*self._commands, *self.readers.values()):
                process.run_to_rest()
                self._go_on()
            self._end_purge()
            complaints = list(self.audit.complaints())
            if self.failures or not (complaints or any(one.is_running for one in self._commands)):
                self.count(EARLY, self.audit.early_rows())
                return
        for command in self._commands:
            if command.is_running:
                self.fail(f"{command.name} does not end: it is at {command.place}")
        for complaint in complaints:
            self.fail(complaint)

    def _end_purge(self) -> None:
        """Finish what was detached by hand, and let the publisher search for what has come back."""
        if self.purge is not None and not self.purge.is_running:
            if self.hand.is_refused:
                self.hand.attach()
            elif self.control.execute(_RECORDED).fetchone() is not None:
                self.purge.start("purge")
            elif self.control.execute(DETACHED).fetchone() is not None:
                self.purge.start("finish")
        if self.purge is not None:
            self.now += _SEARCH

    def _leave(self) -> None:
        """Leave the sessions as they were found."""
        for process in self._processes:
            process.leave()
        for writer in self.writers.values():
            writer.leave()


def run_schedule(schedule: Schedule, databases: Databases) -> World:
    """Run a schedule, and return its world."""
    world = World(schedule, databases)
    world.run()
    return world
