"""Processes that take turns in virtual time.

A *process* is a publisher, a consumer or a command: tasks that die together. A *task* is a
greenlet: of all of them one runs at a time, and hands control back at a *point*. Which one goes on
is drawn from the seed; when none can, the clock goes on to the next one that wakes up. So a
schedule is a function of its seed, to the byte.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

from greenlet import getcurrent, greenlet

BEGIN = 1_700_000_000.0
"""The second since 1970 at which every simulation begins."""


_RESTING = ("BEGIN", "rest")
_MAX_IDLE = 10
"""The most points in turn at which a process finds nothing to do: three looks at the queue."""


class Killed(BaseException):
    """The process was killed: nothing of it runs any more, not even what handles exceptions."""


class Deadlock(Exception):
    """Every process waits for something that will never come."""


class BusyLoop(Exception):
    """A process takes more points within a simulated second than its work can need."""


@dataclass
class Failing:
    """A statement that is to fail: the ``number``-th one that begins with these words, of those
    that a function of this name has asked for."""

    number: int
    words: str = ""
    within: str = ""

    def comes(self, sql: str) -> bool:
        """Note a statement; return True if it is the one."""
        if not sql.startswith(self.words) or (self.within and not _is_within(self.within)):
            return False
        self.number -= 1
        return self.number == 0


def _is_within(name: str) -> bool:
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_name != name:
        frame = frame.f_back
    return frame is not None


class Process:
    """Tasks that die together, with the sessions and the faults of their process."""

    def __init__(self, name: str, start: dict[str, Any]) -> None:
        self.name, self.start = name, start
        self.tasks: list[Task] = []
        self.sessions: list[Any] = []
        self.error: BaseException | None = None
        self.is_dead = self.is_stopping = False
        self.exit_code: int | None = None
        self.stdout: list[str] = []
        self.stderr: list[str] = []
        """What it printed."""
        self.in_the_air = 0
        """The documents that it has sent and that are not answered."""
        self.answers = Counter[str]()
        """How many events were answered with each level."""
        self.counters: Callable[[], Any] | None = None
        """What it has counted itself."""
        self.failing: Failing | None = None
        self.has_failed = False
        """True once a statement or a commit of it failed, as that of a table which is gone: answers
        to documents that were sent meanwhile may be lost, and these are sent again.
        """
        self.had_no_room = False
        """True once it could not write to a disk that was full, or to a store that was unavailable."""
        self.second, self.points = 0, 0
        """The simulated second in which it last ran, and its points in that second."""
        self.failing_commit = (
            ""  # "lost": it takes effect, and its answer is lost; "refused": it does not
        )

    @property
    def is_running(self) -> bool:
        return any(not task.is_done for task in self.tasks)

    @property
    def places(self) -> list[str]:
        """Where its tasks are."""
        return [task.at for task in self.tasks if not task.is_done]


class Task:
    """One line of work of a process."""

    def __init__(self, process: Process, run: Callable[[], None], scheduler: Scheduler) -> None:
        self.process, self.scheduler, self._run = process, scheduler, run
        self.at, self.wake_at, self.is_ready = "start", 0.0, None
        self.is_done = False
        self._greenlet = greenlet(self._main, scheduler.main)
        process.tasks.append(self)

    is_ready: Callable[[], bool] | None

    def _main(self) -> None:
        try:
            if not self.process.is_dead:
                self._run()
        except Killed:
            pass
        except BaseException as error:
            self.process.error = error
        self.is_done = True

    @property
    def can_run(self) -> bool:
        if self.is_done:
            return False
        if self.process.is_dead:
            return True
        return (self.is_ready is None or self.is_ready()) and self.wake_at <= self.scheduler.now

    def resume(self) -> None:
        self.scheduler.current = self
        self._greenlet.switch()
        self.scheduler.current = None

    def pause(self, at: str, wake_at: float, is_ready: Callable[[], bool] | None) -> None:
        self.at, self.wake_at, self.is_ready = at, wake_at, is_ready
        self.scheduler.arrives(self)
        self.scheduler.main.switch()
        self.wake_at, self.is_ready = 0.0, None


def is_place(name: str, at: str) -> bool:
    """Return True if a place has a name: it begins with its first word and has all the others."""
    wanted, words = name.split(), at.split()
    return words[:1] == wanted[:1] and set(wanted) <= set(words)


class Scheduler:
    """The processes and their clock. ``supervise`` is called before every choice."""

    def __init__(self, seed: int, supervise: Callable[[], None]) -> None:
        self.now, self.points = 0.0, 0
        self.leap = 0.0
        """How far the clock on the wall is ahead of ``BEGIN + now``; it may leap, back and
        forth.
        """
        self.processes: dict[str, Process] = {}
        self.current: Task | None = None
        self.main = getcurrent()
        self._supervise, self._random = supervise, random.Random(seed)
        self._aim: tuple[str, int] | None = None
        self._idle = 0
        self.aimed: Process | None = None
        """The process whose arrival at a place was waited for last, None if it did not come."""
        self.most_points: Callable[[], int] = lambda: sys.maxsize
        """How many points a process may take within a simulated second."""

    def spawn(self, process: Process, run: Callable[[], None]) -> Task:
        assert process.name not in self.processes, f"{process.name} runs already"
        self.processes[process.name] = process
        return Task(process, run, self)

    def point(
        self, at: str, seconds: float = 0.0, is_ready: Callable[[], bool] | None = None
    ) -> None:
        """Hand control over: others may run here, and the process may be killed here."""
        task = self.current
        if task is None:
            return
        if task.process.is_dead:
            raise Killed
        task.pause(at, self.now + seconds, is_ready)
        if task.process.is_dead:
            raise Killed

    def run_to(self, place: str, number: int, most: int) -> None:
        """Let processes run until one arrives for the ``number``-th time at a place that has this
        name (``is_place``), over so many points at most, or until all have rested for a while.
        ``aimed`` is the process then."""
        self._aim, self.aimed = (place, number), None
        self.run_on(most, lambda: self._aim is None)
        self._aim = None

    def run_on(self, most: int, until: Callable[[], bool] = lambda: False) -> None:
        """Let processes run over so many points at most, until something holds, or until all have
        rested for a while: more looks at an empty queue would find nothing."""
        self._idle = 0
        self.run(most, lambda: until() or self._idle > _MAX_IDLE * len(self.processes))

    def arrives(self, task: Task) -> None:
        """Note that a task arrives at its place."""
        self._idle = self._idle + 1 if task.at.startswith(_RESTING) else 0
        if self._aim is not None and is_place(self._aim[0], task.at):
            place, number = self._aim
            if number > 1:
                self._aim = place, number - 1
            else:
                self._aim, self.aimed = None, task.process

    def run(self, most: int, until: Callable[[], bool] = lambda: False) -> bool:
        """Let processes run over so many points, or until something holds; return whether it
        does.
        """
        for _ in range(most):
            if until():
                return True
            self._supervise()
            live = [
                task
                for process in self.processes.values()
                for task in process.tasks
                if not task.is_done
            ]
            ready = [task for task in live if task.can_run]
            if ready:
                self.points += 1
                task = ready[0] if len(ready) == 1 else self._random.choice(ready)
                self._count(task)
                task.resume()
                continue
            asleep = [
                task.wake_at
                for task in live
                if task.wake_at > self.now and (task.is_ready is None or task.is_ready())
            ]
            if asleep:
                self.now = min(asleep)
            elif live:
                where = "; ".join(f"{task.process.name} at {task.at}" for task in live)
                raise Deadlock(where)
            else:
                return until()
        return until()

    def _count(self, task: Task) -> None:
        """Count a point of a process. Raises BusyLoop."""
        process = task.process
        if process.second != int(self.now):
            process.second, process.points = int(self.now), 0
        process.points += 1
        if process.points % 500 == 0 and process.points > self.most_points():
            raise BusyLoop(
                f"{process.name} takes {process.points} points in a second; it is at {task.at}"
            )

    def run_alone(
        self, process: Process, most: int, until: Callable[[], bool] = lambda: False
    ) -> None:
        """Let one process run over so many points, or until something holds, while all others are
        slow."""
        for _ in range(most):
            if until():
                return
            ready = [task for task in process.tasks if not task.is_done and task.can_run]
            if not ready:
                return
            self.points += 1
            ready[0].resume()

    def end(self, process: Process) -> None:
        """End a process where it is, as kill -9 does: its sessions are gone."""
        process.is_dead = True
        for task in process.tasks:
            while not task.is_done:
                task.resume()
        for session in process.sessions:
            session.close()
        process.sessions.clear()
