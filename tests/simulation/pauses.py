"""Readers that are paused: what they may still send, and what may end because of it
(docs/spec/event-log.md 8.8).

The database records each pause with the newest delivery at its commit, so that a copy that is put
back has its own pauses.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scheduler import Process
    from world import World

_TABLES = """
    CREATE TABLE pauses (name text, content text, newest integer);
    CREATE TRIGGER paused_publisher AFTER INSERT ON eventlog_state WHEN NEW.kind = 'paused' BEGIN
        INSERT INTO pauses SELECT '', NEW.content, coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'eventlog_delivery';
    END;
    CREATE TRIGGER paused_consumer AFTER UPDATE OF paused ON eventlog_consumer WHEN NEW.paused IS NOT NULL BEGIN
        INSERT INTO pauses SELECT NEW.name, NEW.paused, coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'eventlog_delivery';
    END;
"""
_OF_READERS = """
    SELECT '' AS name, content FROM eventlog_state WHERE kind = 'paused'
    UNION ALL SELECT name, paused FROM eventlog_consumer WHERE paused IS NOT NULL
"""


def record(conn: sqlite3.Connection) -> None:
    """Have a database record the pauses."""
    conn.executescript(_TABLES)


def _reader(name: str) -> str:
    return name if name.startswith("cons") else ""


def paused(world: World) -> dict[str, str]:
    """Return the pauses of the readers that are paused, by the reader; empty = the publisher."""
    return dict(world.application.session.execute(_OF_READERS).fetchall())


def pause(world: World, chance: Random) -> None:
    """An operator pauses a reader, and rows are written meanwhile. Some are paused already."""
    names = [name for name in world.scheduler.processes if _may_pause(world, name)]
    if not names:
        return
    reader = _reader(chance.choice(sorted(names)))
    which = ("--consumer", reader) if reader else ()
    reason = f"{world.stats['eventlog pause']} in all"
    process = world.command("pause", *which, "--reason", reason)
    if chance.random() < 0.7:
        world.scheduler.run(2000, lambda: not process.is_running)
    world.application.commit(chance)
    world.scheduler.run_on(chance.choice([0, 30, 100]))
    if chance.random() < 0.3:
        resume(world, chance)


def _may_pause(world: World, name: str) -> bool:
    return name == "publisher" or (name in world.receivers and world.is_registered(name))


def resume(world: World, chance: Random) -> None:
    """An operator resumes a reader that is paused, or another one."""
    readers = sorted(paused(world)) or [""]
    _resume(world, chance.choice(readers))


def resume_all(world: World) -> None:
    """Resume each reader that is paused, also those that a command is about to pause."""
    if "pauses" in world.plan["features"]:
        world.wait_for_commands()
    for reader in sorted(paused(world)):
        _resume(world, reader)
        world.wait_for_commands()


def _resume(world: World, reader: str) -> None:
    world.command("resume", *(("--consumer", reader) if reader else ()))


# --- what must hold -------------------------------------------------------------------------------


def is_seen(
    process: Process, seen: Mapping[str, str], in_air: Iterable[tuple[int, int]] = ()
) -> None:
    """Note the pause under which a process starts, or has recorded answers: it sends nothing before
    it is resumed but what it has begun to send: ``in_air`` has their deliveries and documents.
    """
    process.start["paused"] = seen.get(_reader(process.name)), set(in_air)


def sends(world: World, process: Process, delivery_no: int, document_no: int) -> None:
    """Check a document that a reader sends: while it is paused the document is of a delivery that
    was recorded before, which ends with the first answers that are recorded.
    """
    reader = _reader(process.name)
    if (content := paused(world).get(reader)) is None:
        return
    ask = world.application.session.execute
    sql = "SELECT newest FROM pauses WHERE name = ? ORDER BY rowid DESC LIMIT 1"
    (newest,) = ask(sql, (reader,)).fetchone()
    world.auditor.checks += 1
    world.auditor.looked_at["documents sent after a pause"] += 1
    if delivery_no > newest:
        world.fail(f"{process.name} sends delivery {delivery_no}, and is paused since {newest}")
    known, in_air = process.start["paused"]
    if known == content and (delivery_no, document_no) not in in_air:
        world.fail(f"{process.name} sends delivery {delivery_no}, and has seen that it is paused")


def was_paused(world: World, name: str) -> bool:
    """Return True if a reader was ever paused, so that a process that publishes once may end."""
    sql = "SELECT count(*) FROM pauses WHERE name = ?"
    return bool(world.application.session.execute(sql, (_reader(name),)).fetchone()[0])


__all__ = [
    "is_seen",
    "pause",
    "paused",
    "record",
    "resume",
    "resume_all",
    "sends",
    "was_paused",
]
