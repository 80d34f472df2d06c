"""``eventlog purge`` of a partitioned log, ``purge --finish``, and somebody who detaches a leaf by
hand.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import TransactionStatus

from eventlog.errors import ConfigError, DatabaseError, LogInUse
from eventlog.publisher.context.context import Context
from eventlog.publisher.upkeep.leaves import (
    cut_ahead,
    detached_leaves,
    finish_leaf,
    in_turn,
    purge_leaves,
)
from eventlog.publisher.upkeep.purge import extent_of, purge_batches
from interleaved.audit import Row
from interleaved.readers import Process
from interleaved.server import DETACHED

if TYPE_CHECKING:
    from interleaved.world import World

_FAR = datetime(2200, 1, 1)
"""All rows are old: whether a row is old enough is nothing to other sessions."""
_BATCH = 2
_LEAVES = """
    SELECT c.relname, pg_get_expr(c.relpartbound, c.oid) FROM pg_inherits i
    JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'eventlog'::regclass"""
_BOUND = re.compile(r"FROM \('(\d+)'\) TO \('(\d+)'\)")
_WAIT = "2ms"


class Purge(Process):
    """``eventlog purge``, and ``eventlog purge --finish``."""

    def __init__(self, kept: Context, world: World) -> None:
        super().__init__("purge", kept, world)
        self.holds_log = False
        """True if nobody else can read the log."""
        self.before: Sequence[Row] = ()
        """The rows before the log was locked, or before the last transaction committed."""
        self.judged: Sequence[Row] = ()
        """The rows when the purge has last read a whole leaf."""

    def start(self, what: str) -> None:
        if not self.is_running:
            self.world.tell(f"purge: {what}")
            self._start(self._finish if what == "finish" else self._purge)

    def lose(self) -> None:
        self.holds_log = False
        super().lose()

    def _will_run(self, place: str) -> None:
        if not self.holds_log and place.startswith(("take <", "COMMIT")):
            self.before = self.world.audit.rows()

    def _has_run(self, place: str) -> None:
        if place.startswith("take <"):
            self.holds_log = True
        elif place.startswith("_judge <"):
            self.judged = self.world.audit.rows()
        driver: Any = self.kept.log.connection.connection.driver_connection
        if driver.info.transaction_status == TransactionStatus.IDLE:
            self.holds_log = False
            if place.startswith("COMMIT"):
                self.world.audit.removes(self.before, self.judged)
                self.world.hand.judge()

    def _purge(self) -> None:
        log = self.kept.log
        means = log.dialect.partitioning
        assert means is not None
        to_check = extent_of(log)
        log.commit()
        try:
            in_turn(log, lambda: self.world.count("a purge finishes a leaf", means.finish(log)))
            self.world.count("the open leaf is cut", len(cut_ahead(log, means)))
        except LogInUse:
            log.connection.rollback()
            self.world.tell("purge: the log is in use")
            self.world.count("a purge gives up")
        for one in purge_leaves(log, means, _FAR, dry=False):
            if one.why_kept:
                self.world.tell(f"purge: {one.leaf.name} stays")
                self.world.count("a leaf stays")
            else:
                self.world.tell(f"purge: {one.leaf.name} is removed, {one.moved} rows are moved")
                self.world.count("a leaf is removed")
                self._audit_newest(one.leaf.end)
                self.world.count("rows are moved", one.moved)
        last = (means.leaves(log)[0].end or 1) - 1
        log.commit()
        batches = purge_batches(
            log, to_check._replace(last=last), _BATCH, _FAR, to_the_end=True, dry=False
        )
        for batch in batches:
            log.commit()
            self.world.count("rows of the lowest leaf are removed", batch.removed)
        log.commit()

    def _audit_newest(self, end: int | None) -> None:
        """Check that the log has a row above a leaf that was removed: the next record_id of a log
        without one may be found to be that of a removed row (spec/event-log.md 14.3).
        """
        highest = max((row.record_id for row in self.world.audit.rows()), default=0)
        if end is None or highest < end:
            self.world.fail(f"a leaf up to {end} is removed, and the newest row is {highest}")

    def _finish(self) -> None:
        log = self.kept.log
        means = log.dialect.partitioning
        assert means is not None
        found = detached_leaves(log)
        log.commit()
        for one in found:
            try:
                put_back = in_turn(log, partial(finish_leaf, log, means, one.name))
            except (ConfigError, DatabaseError) as error:
                log.connection.rollback()
                self.world.tell(f"purge --finish {one.name}: {type(error).__name__}")
                self.world.count("finish is refused")
                if not isinstance(error, LogInUse):
                    self.world.hand.is_refused = True
                continue
            self.world.tell(f"purge --finish {one.name}: {put_back} rows are put back")
            self.world.count("finish puts rows back", put_back)


class Hand:
    """An administrator who detaches a leaf by hand, and attaches it if it cannot be finished."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._detached: dict[str, tuple[int, int]] = {}
        self._hidden: dict[str, Sequence[Row]] = {}
        """The rows of each table that is detached."""
        self.is_refused = False
        """True if a table was not finished, with the advice to attach it."""

    def detach(self, refused: str) -> None:
        """Detach the leaf above the lowest one. Its numbers are all drawn, and nobody reads it.
        Its refused rows have the status ``refused``, as after an error or a fatal answer.
        """
        rows = self._world.audit.rows()
        highest = max((row.record_id for row in rows), default=0)
        found = [
            (name, int(match[1]), int(match[2]))
            for name, bound in self._world.control.execute(_LEAVES).fetchall()
            if (match := _BOUND.search(bound)) and int(match[2]) <= highest
        ]
        if not found or self._world.audit.are_in_flight():
            return
        name, first, end = min(found, key=lambda leaf: leaf[1])
        if not self._change(
            f"UPDATE {name} SET status = '{refused}' WHERE status = 'E'; "
            f"ALTER TABLE eventlog DETACH PARTITION {name}"
        ):
            return
        self._detached[name] = first, end
        hidden = [row for row in rows if first <= row.record_id < end]
        self._world.tell(
            f"{name} is detached by hand, with {len(hidden)} rows from {first} to {end - 1}"
        )
        self._world.count("a leaf is detached by hand")
        self._world.audit.hides(hidden)
        self._hidden[name] = hidden

    def judge(self) -> None:
        """Judge the rows of tables that somebody has just finished: those that were not put back
        are removed.
        """
        if not self._hidden:
            return
        present = {name for (name,) in self._world.control.execute(DETACHED).fetchall()}
        for name in [*self._hidden.keys() - present]:
            hidden = self._hidden.pop(name)
            self._world.audit.removes(hidden, hidden)

    def set_back(self) -> None:
        """Set the first row of a removed leaf back to N, of which a purge has not dropped the table."""
        for (name,) in self._world.control.execute(DETACHED).fetchall():
            found = self._world.control.execute(
                f"UPDATE {name} SET status = 'N' WHERE record_id = (SELECT min(record_id) FROM {name}) "
                "AND status = 'S' RETURNING record_id, status, table_key, new_value"
            ).fetchall()
            self._world.tell(f"{len(found)} rows of {name} are set back by hand")
            self._world.count("a row of a removed leaf is set back by hand", len(found))
            self._world.audit.set_back(found)

    def attach(self) -> None:
        """Attach the tables that cannot be finished, unless their numbers have another leaf now."""
        self.is_refused = False
        present = {name for (name,) in self._world.control.execute(DETACHED).fetchall()}
        for name, (first, end) in self._detached.items():
            if name in present and self._change(
                f"ALTER TABLE eventlog ATTACH PARTITION {name} FOR VALUES FROM ({first}) TO ({end})"
            ):
                self._world.tell(f"{name} is attached by hand")
                self._world.count("a leaf is attached by hand")

    def _change(self, statement: str) -> bool:
        control = self._world.control
        try:
            with control.transaction():
                control.execute(f"SET LOCAL lock_timeout = '{_WAIT}'")
                control.execute(statement)
        except psycopg.Error as error:
            self._world.tell(f"by hand: {type(error).__name__}")
            return False
        return True
