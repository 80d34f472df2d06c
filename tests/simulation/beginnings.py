"""Consumers that begin at a time: where the log's rows of this time begin, although the times of
neighbouring rows do not ascend, and rows were removed (docs/spec/event-log.md 13.2).
"""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING

from directed import reset
from entries import Rows
from plans import CONSUMERS
from scheduler import BEGIN

if TYPE_CHECKING:
    from world import World

_TABLES = """
    CREATE TABLE removed_times (record_id integer, event_time text);
    CREATE TRIGGER removed_time AFTER DELETE ON eventlog BEGIN
        INSERT INTO removed_times VALUES (OLD.record_id, OLD.event_time);
    END;
    CREATE TABLE begun_at_times (name text, begins text, done text, first integer, before integer, last integer, missed integer);
    CREATE TRIGGER begun_at_time AFTER INSERT ON eventlog_consumer WHEN NEW.begins LIKE '%Z' BEGIN
        INSERT INTO begun_at_times SELECT NEW.name, NEW.begins, NEW.done, first,
            (SELECT max(record_id) FROM eventlog WHERE record_id < coalesce(first, record_id + 1)),
            (SELECT max(record_id) FROM eventlog WHERE record_id >= first),
            (SELECT count(*) FROM removed_times WHERE event_time >= replace(rtrim(NEW.begins, 'Z'), 'T', ' '))
        FROM (SELECT min(record_id) AS first FROM eventlog
              WHERE event_time IS NULL OR event_time >= replace(rtrim(NEW.begins, 'Z'), 'T', ' '));
    END;
"""
"""What the database records of each consumer that begins at a time: the first row of this time or later, the row before it,
the newest row, and how many rows of this time or later were removed.
"""


def record(conn: sqlite3.Connection) -> None:
    """Have a database record what ``audit`` needs."""
    conn.executescript(_TABLES)


def since(world: World, chance: Random) -> None:
    """A consumer begins at a time, mostly that of a row that older rows follow; or one that
    runs is taken back to it, with a receiver that has nothing.
    """
    application = world.application
    if chance.random() < 0.7 and not application.hidden:
        while application.late:
            application.end_late(chance)
        application.begin_late(chance)
        for _ in range(chance.choice([1, 3])):
            application.commit(chance)
            world.scheduler.now += chance.choice([0.2, 1.0, 5.0])
        application.end_late(chance)
    if world.has_removed and "clock" in world.plan["features"] and chance.random() < 0.5:
        world.scheduler.leap += 2 * 86_400.0
        world.tell("nobody writes for two days")
        application.commit(chance)
    times = application.session.execute("SELECT event_time FROM eventlog ORDER BY record_id")
    moments = [datetime.fromisoformat(text) for (text,) in times if text]
    if not moments:
        return
    moment = chance.choice([*moments[-30:], *moments[-6:]])
    moment += timedelta(milliseconds=chance.choice([0, 0, 0, -1, 1]))
    now = datetime.fromtimestamp(BEGIN + world.scheduler.now + world.scheduler.leap, UTC)
    moment = min(moment, now.replace(tzinfo=None))
    start_from = f"{moment.isoformat(timespec='milliseconds')}Z"
    running = [name for name in sorted(world.receivers) if name in world.scheduler.processes]
    if free := sorted(set(CONSUMERS) - set(world.receivers)):
        name = free[0]
        world.start(name, chance, start_from=start_from)
        world.begins[name] = "snapshot"  # for a start that is refused
        world.scheduler.run(200, lambda: world.is_registered(name))
    elif consumers := [name for name in running if name != "receiver"]:
        name = chance.choice(consumers)
        world.stop(world.scheduler.processes[name])
        reset(world, name, start_from)
        world.start(name, chance)


def audit(world: World) -> None:
    """Check that each consumer which began at a time had all rows before the first one of this time
    as done, and no other.
    """
    rows = world.application.session.execute("SELECT * FROM begun_at_times").fetchall()
    for name, begins, done, first, before, last, missed in rows:
        begun = Rows.of(done)
        world.auditor.checks += 1
        world.stats["began at a time"] += 1
        if missed:
            world.fail(f"{name} begins at {begins}, and {missed} rows of then were removed")
        is_from_first = first is None or (first not in begun and last not in begun)
        if not is_from_first or (before is not None and before not in begun):
            world.fail(
                f"{name} begins at {begins}: the first row of then is {first}, the one before it is "
                f"{before}, and it has done {done}"
            )


__all__ = ["audit", "record", "since"]
