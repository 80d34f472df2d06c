"""Sessions that take turns: each task stops before each of its statements, and one task runs at a
time.

A task is a greenlet. Its sessions are connections of psycopg which hand control back before a
statement is sent, and again while the server has the statement wait for a lock of another session,
which the server itself reports (``pg_blocking_pids``). So a schedule is a function of its steps.
"""

from __future__ import annotations

import re
import select
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import psycopg
from greenlet import getcurrent, greenlet

_PATIENCE = 15
"""Milliseconds after which a statement without an answer may wait for a lock."""
_BLOCKED = "SELECT cardinality(pg_blocking_pids(%s)) > 0"
_WRITES = re.compile(
    r'\s*(?:INSERT INTO|UPDATE|DELETE FROM)\s+(?:"?public"?\.)?"?(?:eventlog_(\w+)|(eventlog)\b)'
)
_WAITS_BRIEFLY = "SET LOCAL lock_timeout"
_PASSED_OVER = ("fetch", "fetch_fragments", "fetch_chunks", "fetchall", "wrapped")
_SENDS_FOR_OTHERS = "eventlog.sql.dialects.postgresql.log_session"
"""The module that hands the statements of a publisher's session to the driver."""
_OF_LEAVES = ("ask", "run", "value_of", "run_as_it_stands")
"""They send the statements of others, which change the leaves."""
_MODULES_OF_LEAVES = (
    "eventlog.sql.dialects.postgresql.partitions.leaf_sql",
    "eventlog.sql.port.sql_files",
)


class Killed(BaseException):
    """The process of the task was killed: nothing of it runs any more."""


class Task:
    """The work of one session."""

    def __init__(self, name: str, run: Callable[[], None], stepper: Stepper) -> None:
        self.name, self._run, self._stepper = name, run, stepper
        self.at = "start"
        """The statement or the place before which the task stands."""
        self.is_blocked = self.is_done = self.is_killed = False
        self.error: BaseException | None = None
        self._blocking_pid = 0
        self._greenlet = greenlet(self._main, stepper.main)

    def _main(self) -> None:
        try:
            if not self.is_killed:
                self._run()
        except Killed:
            pass
        except BaseException as error:
            self.error = error
        self.is_done = True

    def resume(self) -> None:
        """Run to the next point, or until the task waits for a lock."""
        stepper = self._stepper
        if self.is_blocked and stepper.is_blocked(self._blocking_pid):
            return
        stepper.current = self
        self._greenlet.switch()
        stepper.current = None

    def stop(self, at: str) -> None:
        """Stand before a statement until the next turn."""
        self.at = at
        self._stepper.main.switch()
        if self.is_killed:
            raise Killed

    def wait_for_lock(self, pid: int) -> None:
        self.is_blocked, self._blocking_pid = True, pid
        self._stepper.main.switch()
        self.is_blocked = False

    def kill(self) -> None:
        """End the task where it stands."""
        self.is_killed = True
        while not self.is_done:
            if self.is_blocked:
                self._stepper.cancel(self._blocking_pid)
            self.resume()


class Stepper:
    """All tasks of a schedule. ``control`` is a session that never waits."""

    def __init__(self, control: psycopg.Connection[Any]) -> None:
        self.control, self.main = control, getcurrent()
        self.current: Task | None = None

    def point(self, at: str | None = None) -> None:
        """Hand control back; the place is found in the product's code if none is given."""
        if self.current is None or self.current.is_killed:
            return
        self.current.stop(at or _place())

    def is_blocked(self, pid: int) -> bool:
        row = self.control.execute(_BLOCKED, (pid,)).fetchone()
        return bool(row and row[0])

    def cancel(self, pid: int) -> None:
        self.control.execute("SELECT pg_cancel_backend(%s)", (pid,))


def _place() -> str:
    """Return the function of the product that sends the present statement, and its caller."""
    names: list[str] = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and len(names) < 2:
        code = frame.f_code
        if (name := _named.get(code)) is None:
            name = _named[code] = _name_of(code, frame.f_globals.get("__name__", ""))
        if name and name not in names:
            names.append(name)
        frame = frame.f_back
    return " < ".join(names) or "statement"


_named: dict[CodeType, str] = {}
"""The names of functions, by their code; empty = it is no part of the name of a place."""


def _name_of(code: CodeType, module: str) -> str:
    name = code.co_name
    if name in _OF_LEAVES and module in _MODULES_OF_LEAVES:
        return ""
    if module == _SENDS_FOR_OTHERS:
        return ""
    is_ours = module.startswith("eventlog.") and name not in _PASSED_OVER
    return name if is_ours and not name.startswith("<") else ""


def sessions_of(stepper: Stepper) -> type[psycopg.Connection[Any]]:
    """Return the class of sessions whose statements are points of the stepper."""

    class Cursor(psycopg.Cursor[Any]):
        def execute(self, query: Any, *args: Any, **kwargs: Any) -> Any:
            self.connection.before(query)  # type: ignore[attr-defined]
            return super().execute(query, *args, **kwargs)

        def executemany(self, query: Any, *args: Any, **kwargs: Any) -> None:
            self.connection.before(query)  # type: ignore[attr-defined]
            super().executemany(query, *args, **kwargs)

    class Session(psycopg.Connection[Any]):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.cursor_factory = Cursor
            self._written: set[str] = set()
            self._waits_briefly = False
            """True if the server ends a statement that waits for a lock: all others stand still."""
            self.has_points = True

        def before(self, query: Any) -> None:
            if found := _WRITES.match(str(query)):
                self._written.add(found[1] or "log")
            self._waits_briefly |= str(query).startswith(_WAITS_BRIEFLY)
            if self.has_points and not str(query).startswith("RELEASE"):
                stepper.point()

        def commit(self) -> None:
            if self._written:  # else nobody sees a difference
                stepper.point(f"COMMIT {' '.join(sorted(self._written))}")
                self._written.clear()
            self._waits_briefly = False
            super().commit()

        def rollback(self) -> None:
            self._written.clear()
            self._waits_briefly = False
            super().rollback()

        def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
            task = stepper.current
            if task is None or self._waits_briefly:
                return super().wait(gen, *args, **kwargs)
            poll = select.poll()
            try:
                wants = next(gen)
                while True:
                    poll.register(self.pgconn.socket, _EVENTS[int(wants)])
                    while not (ready := poll.poll(_PATIENCE)):
                        if stepper.is_blocked(self.info.backend_pid):
                            task.wait_for_lock(self.info.backend_pid)
                    wants = gen.send(_ready(ready[0][1]))
            except StopIteration as ended:
                return ended.value

    return Session


_EVENTS = {1: select.POLLIN, 2: select.POLLOUT, 3: select.POLLIN | select.POLLOUT}


def _ready(events: int) -> int:
    readable = bool(events & ~select.POLLOUT)
    return readable + 2 * bool(events & select.POLLOUT)
