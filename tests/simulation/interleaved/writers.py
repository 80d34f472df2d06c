"""A session of the application: transactions with savepoints, prepared ones, and one that only has
the lock of who writes.

A transaction changes objects in ascending order, so that two never wait for each other. A statement
that waits for another transaction ends when that one has ended.

In schedules with families, a transaction also inserts, changes, moves and deletes owners (``usr``)
and child rows (``usr_phone``), whose foreign key is checked at the commit. The server may refuse such
a transaction, which is then rolled back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from psycopg.pq import TransactionStatus

from interleaved.stepping import Task

if TYPE_CHECKING:
    from interleaved.world import World

_TOUCH = """
    INSERT INTO eventlog (status, event_type, table_name, table_key)
    SELECT 'N', 5, 'part', 'id=1' WHERE false"""


_BURST = 4
"""The changes of one statement."""
_REFUSALS = (psycopg.IntegrityError, psycopg.OperationalError)
"""Violated keys, and transactions that cannot be serialized or would wait for each other."""
_OF_FAMILIES = {
    "owner": "INSERT INTO usr VALUES ({key}, '{value}')",
    "child": "INSERT INTO usr_phone VALUES ({key}, '{value}')",
    "change owner": "UPDATE usr SET fname = '{value}' WHERE idu = {key}",
    "change child": "UPDATE usr_phone SET phoneno = phoneno || '{value}' WHERE idu = {key}",
    "move owner": "UPDATE usr SET idu = {other} WHERE idu = {key}",
    "move child": "UPDATE usr_phone SET idu = {other} WHERE idu = {key}",
    "delete": "DELETE FROM usr WHERE idu = {key}",
}
"""What a statement does to the owner, or to the child rows, with the key ``key``."""


class Change(NamedTuple):
    """A value that an object has got. No other change has the same value."""

    key: int
    value: str


class Writer:
    """A session of the application."""

    def __init__(self, name: str, place: int, world: World) -> None:
        self.name, self._place, self._world = name, place, world
        self._task: Task | None = None
        self._then: Callable[[], None] = lambda: None
        self._changes: list[Change] = []
        self._families: set[int] = set()
        """The keys of the owners that the transaction may have locked."""
        self._saved: int | None = None
        self._has_waited = self.is_open = False
        self._number = 0
        self.prepared: dict[str, list[Change]] = {}
        self._acts: dict[str, Callable[..., None]] = {
            "start_from": self._begin,
            "write": self._write,
            "burst": self._burst,
            "update": self._update,
            "touch": self._touch,
            "savepoint": self._savepoint,
            "back": self._back,
            "commit": self._commit,
            "rollback": self._rollback,
            "prepare": self._prepare,
            **{act: partial(self._change_family, act) for act in _OF_FAMILIES},
        }

    @property
    def _session(self) -> psycopg.Connection[Any]:
        return self._world.sessions.writers[self._place]

    def locks(self, key: int, *, against: Writer) -> bool:
        """Return True if another session has to wait for this one to change an object, or the same
        session for a transaction that it has prepared.
        """
        own = [] if against is self else [self._changes]
        if key in self._families and against is not self:
            return True
        return any(
            key == change.key for changes in (*own, *self.prepared.values()) for change in changes
        )

    @property
    def is_waiting(self) -> bool:
        """True if a statement waits for another transaction."""
        return self._task is not None

    def act(self, act: str, *given: Any) -> None:
        """Run one statement. Nothing happens while the one before waits, or without its
        transaction.
        """
        if self.is_waiting:
            self._world.tell(f"{self.name} still waits")
        elif given and self._world.would_wait_beside_another(self, given[0]):
            # Which of the two goes on first is not up to the schedule.
            self._world.tell(f"{self.name} does not wait beside another")
        else:
            self._acts[act](*given)

    def go_on(self) -> None:
        """Let a statement end that has waited."""
        if self._task is None:
            return
        self._task.resume()
        if self._task.is_done:
            task, self._task = self._task, None
            if self._has_waited:
                self._world.tell(f"{self.name} goes on")
            if task.error is None:
                self._then()
            else:
                self._refused(task.error)
        elif not self._task.is_blocked:
            raise AssertionError(f"{self.name} stands at {self._task.at}")

    def _refused(self, error: BaseException) -> None:
        """Roll back a transaction that the server refuses. Raises every other error."""
        if not (self._world.has_families and isinstance(error, _REFUSALS)):
            raise error
        self._world.tell(f"{self.name} is refused: {type(error).__name__}")
        self._world.count("a transaction is refused")
        self._take()
        if self._session.info.transaction_status is not TransactionStatus.IDLE:
            self._session.execute("ROLLBACK")

    def _run(self, sql: str, told: str, then: Callable[[], None]) -> None:
        task = Task(self.name, lambda: self._session.execute(sql), self._world.stepper)
        self._task, self._then, self._has_waited = task, then, False
        self._world.tell(f"{self.name} {told}")
        self.go_on()
        if self.is_waiting:
            self._has_waited = True
            self._world.tell(f"{self.name} waits for another transaction")

    # --- statements ---

    def _begin(self) -> None:
        if not self.is_open:
            self._session.execute("BEGIN")
            self.is_open, self._changes, self._saved = True, [], None
            self._families = set()

    def _write(self, key: int) -> None:
        """Change an object and commit, in one statement."""
        if self.is_open:
            return
        change = self._world.new_change(key)
        self._run(_update(change), f"commits {change.key} = {change.value!r}", lambda: self._commits([change]))  # fmt: skip

    def _burst(self, key: int) -> None:
        """Change an object several times, and commit."""
        if self.is_open:
            return
        changes = [self._world.new_change(key) for _ in range(_BURST)]
        told = ", ".join(repr(change.value) for change in changes)
        self._run("; ".join(map(_update, changes)), f"commits {key} = {told}", lambda: self._commits(changes))  # fmt: skip

    def _commits(self, changes: Sequence[Change]) -> None:
        self._world.audit.commits(changes, self.name)

    def _update(self, key: int) -> None:
        self._begin()
        change = self._world.new_change(key)
        self._run(_update(change), f"sets {change.key} = {change.value!r}", lambda: self._changes.append(change))  # fmt: skip

    def _change_family(self, act: str, key: int, other: int = 0) -> None:
        self._begin()
        value = self._world.new_change(key).value
        self._families |= {key, other}
        sql = _OF_FAMILIES[act].format(key=key, other=other, value=value)
        self._run(sql, sql, lambda: None)

    def _touch(self) -> None:
        """Take the lock that an INSERT takes, and no number."""
        self._begin()
        self._run(_TOUCH, "writes no row", lambda: None)

    def _savepoint(self) -> None:
        if self.is_open and self._saved is None:
            self._saved = len(self._changes)
            self._run("SAVEPOINT s", "SAVEPOINT", lambda: None)

    def _back(self) -> None:
        """Roll back to the savepoint."""
        if self.is_open and self._saved is not None:
            del self._changes[self._saved :]
            self._run("ROLLBACK TO SAVEPOINT s", "ROLLBACK TO SAVEPOINT", lambda: None)

    def _commit(self) -> None:
        if self.is_open:
            changes = self._take()
            self._run("COMMIT", "COMMIT", lambda: self._commits(changes))

    def _rollback(self) -> None:
        if self.is_open:
            self._take()
            self._run("ROLLBACK", "ROLLBACK", lambda: None)

    def _prepare(self) -> None:
        if self.is_open:
            self._number += 1
            name = f"{self.name}-{self._number}"
            prepared = {name: self._take()}
            self._run(f"PREPARE TRANSACTION '{name}'", f"PREPARE TRANSACTION {name}", lambda: self.prepared.update(prepared))  # fmt: skip

    def _take(self) -> list[Change]:
        """Return the changes of the transaction, which ends."""
        changes, self._changes, self.is_open = self._changes, [], False
        return changes

    def end_prepared(self, *, commits: bool) -> None:
        """End the oldest prepared transaction, from another session."""
        if self.prepared:
            name = next(iter(self.prepared))
            changes = self.prepared.pop(name)
            word = "COMMIT" if commits else "ROLLBACK"
            self._world.tell(f"{word} PREPARED {name}")
            self._world.control.execute(f"{word} PREPARED '{name}'")
            if commits:
                self._world.audit.commits(changes, "control")

    def end(self, *, commits: bool) -> None:
        """End everything that can be ended now."""
        while self.prepared:
            self.end_prepared(commits=commits)
        if not self.is_waiting:
            self.act("commit" if commits else "rollback")

    def lose(self) -> None:
        """Lose the open transaction with the session. Prepared ones stay."""
        if self._task is not None:
            self._task.kill()
            self._task = None
        self._take()

    def leave(self) -> None:
        """End what is open at the end of a schedule that has failed."""
        if self._task is not None:
            self._task.kill()
            self._task = None
        if self._session.info.transaction_status is not TransactionStatus.IDLE:
            self._session.execute("ROLLBACK")


def _update(change: Change) -> str:
    return f"UPDATE part SET v = '{change.value}' WHERE id = {change.key}"
