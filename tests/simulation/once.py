"""``eventlog publish --once``: a publisher, a consumer or who follows a source sends what waits at
its start, and ends (docs/reference/cli.md). The supervisor starts the daemon after it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from random import Random
from typing import TYPE_CHECKING, Any

import pauses
from at_sending import FOLLOWER
from replicas import MOODS

from eventlog.errors import EventlogError, Paused, ReceiverUnavailable
from eventlog.publisher.stream import SourceUnavailable

if TYPE_CHECKING:
    from scheduler import Process
    from world import World

_UNSTEADY = {"restores", "backlog", "loopback"}
"""The features with which rows may wait for something else than a receiver."""

_SCHEMA = "schema changes"
_BESIDE = ("eventlog requeue", _SCHEMA)
"""What is counted, and may leave rows if it happens during the run: a table may have another name for a while."""


def publish_once(world: World, chance: Random) -> None:
    """An operator stops a publisher, a consumer or who follows a source, and has it send what waits:
    while rows are requested, with a receiver that refuses, or up to a kill.
    """
    names = [
        name
        for name, process in sorted(world.scheduler.processes.items())
        if process.is_running and (name in ("publisher", FOLLOWER) or name in world.receivers)
    ]
    if not names:
        return
    name = chance.choice(names)
    receiver = _receiver_of(world, name)
    if chance.random() < 0.5:
        receiver.mood = dict(MOODS[chance.choice(["good", "retry", "stumbles", "errors", "away"])])
        receiver.seed = chance.randrange(2**31)
    world.stop(world.scheduler.processes[name])
    for _ in range(2):
        if name == FOLLOWER:
            world.followed.commit(chance)
        else:
            world.application.commit(chance)
    if name in world.scheduler.processes:  # a source that has changes is followed
        world.stop(world.scheduler.processes[name])
    if name != FOLLOWER and chance.random() < 0.4:
        is_publisher = name == "publisher"
        which = ("--status", "E,F") if is_publisher else ("--consumer", name)
        world.command("requeue", *which)
    world.start(name, chance, is_once=True)
    if chance.random() < 0.3:
        place = chance.choice(["gets", "answers", "committed", "COMMIT", "send"])
        world.scheduler.run_to(place, chance.choice([1, 2, 3]), 60)
        process = world.scheduler.aimed
        if process is not None and process.name == name and process.is_running:
            world.kill(process)
            world.start(name, chance, is_once=chance.random() < 0.5)
    world.scheduler.run_on(chance.choice([0, 30, 100]))


def run(
    world: World, process: Process, publisher: Any, undone: Callable[[], Collection[Any]]
) -> None:
    """Have a publisher send what waits. Unless it ends by an error, nothing is left of what
    ``undone`` returns at its start."""
    receiver = _receiver_of(world, process.name)
    process.start["mood"] = bool(receiver.mood) or world.away > 0
    process.start["failures"] = receiver.failures
    before, is_steady = set(undone()), _is_steady(world)
    process.start["steady"] = is_steady
    beside = {one: world.stats[one] for one in _BESIDE}
    world.stats["once"] += 1
    try:
        publisher.run_once(world.stop_of(process))
    except EventlogError:  # all may be well again before the supervisor sees it
        process.start["mood"] |= bool(receiver.mood) or world.away > 0
        # A table may have its name again.
        has_changed = world.stats[_SCHEMA] != beside[_SCHEMA]
        process.start["steady"] &= _is_steady(world) and not has_changed
        raise
    if process.is_stopping:
        return
    world.stats["once, all sent"] += 1
    world.auditor.audit_counters(process)
    world.auditor.checks += 1
    left = before.intersection(undone())
    is_alone = beside == {one: world.stats[one] for one in _BESIDE}
    if left and is_steady and _is_steady(world) and is_alone:
        world.fail(f"{process.name} has published once, and has left {sorted(left)[:10]}")


def may_end(world: World, process: Process, error: EventlogError) -> bool:
    """Return True if a process that publishes once may end by an error: the receiver does not take
    everything, or the source cannot be read.
    """
    if not process.start.get("once"):
        return False
    if isinstance(error, SourceUnavailable):
        return bool(process.start.get("was_away"))
    if isinstance(error, ReceiverUnavailable) and "the snapshot waits for class" in str(error):
        # Its table is gone, or was when the class was looked at.
        return not (process.start["steady"] and _is_steady(world))
    if isinstance(error, Paused):
        return pauses.was_paused(world, process.name)
    receiver = _receiver_of(world, process.name)
    is_moody = process.start["mood"] or bool(receiver.mood) or world.away > 0
    has_failed = receiver.failures > process.start["failures"] or process.answers["retry"] > 0
    return isinstance(error, ReceiverUnavailable) and (is_moody or has_failed)


def _is_steady(world: World) -> bool:
    application = world.application
    return (
        not application.hidden
        and application.shape == application.configured
        and not _UNSTEADY.intersection(world.plan["features"])
    )


def _receiver_of(world: World, name: str) -> Any:
    if name == FOLLOWER:
        return world.followed.receiver
    return world.receivers["receiver" if name == "publisher" else name]


__all__ = ["may_end", "publish_once", "run"]
