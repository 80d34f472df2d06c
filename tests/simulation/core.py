"""Liveness with a core: some stay dead for ever, and all others have to get on.

At the end of a schedule everything is well, so that it shows only that nothing waits for what comes
back. Here a receiver, the publisher, a consumer or a transaction is dead, and nobody looks after
it. All others drain within the time that they have when all is well, and a purge removes what
nobody needs any more (docs/spec/event-log.md 11).
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from application import OWN_USER
from entries import Request
from read_commands import done_of_consumers

from eventlog.publisher.ledger.delivery import decode
from eventlog.publisher.send.cycle import recorded_ids

if TYPE_CHECKING:
    from world import World

DEAD = ("receiver", "publisher", "consumer", "transaction")
"""Who may be dead."""
_SECONDS = 1200.0
_DONE_AND_OLD = """SELECT record_id FROM eventlog
WHERE status IN ('S', 'W') AND event_time < strftime('%Y-%m-%d %H:%M:%S', 'now', '-2 seconds')"""


def live_with_a_core(world: World) -> None:
    """Let those be dead that the plan names, check that all others get on, and bring the dead
    back.
    """
    application = world.application
    dead = set(world.plan.get("dead", ()))
    if not dead or application.shape != application.configured:
        return
    world.tell(f"--- a core: all is well but for {', '.join(sorted(dead))}")
    lost = _bury(world, dead)
    _drain(world, dead, lost)
    if not world.failures:
        _purge(world)
    if lost and not world.failures:
        world.start(lost, None)
    if "publisher" in dead and not world.failures:
        world.start("publisher", None)


def _bury(world: World, dead: set[str]) -> str:
    """End all faults but those of the dead; return the name of the consumer that is dead."""
    application, processes = world.application, world.scheduler.processes
    for receiver in world.receivers.values():
        receiver.mood = {}
    world.away = 0.0
    for process in processes.values():
        process.failing, process.failing_commit = None, ""
    for table in sorted(application.hidden):
        application.rename_back(table)
    if "transaction" in dead and not application.late:
        application.begin_late_of_one()
    while len(application.late) > ("transaction" in dead):
        application.end_late(Random(0))
    if (second := processes.get("second")) is not None:
        world.kill(second)
    world.wait_for_commands()
    world.hand_over_backlog()
    if "publisher" in dead:
        for process in [processes[name] for name in ("publisher",) if name in processes]:
            world.kill(process)
    elif "publisher" not in processes:
        world.start("publisher", None)
    if "receiver" in dead:
        world.receivers["receiver"].mood, world.away = {"away": 1.0}, 1.0
    consumers = sorted(name for name in processes if name in world.receivers)
    if "consumer" not in dead or not consumers:
        return ""
    world.kill(processes[consumers[0]])
    return consumers[0]


def _drain(world: World, dead: set[str], lost: str) -> None:
    """Let time pass until all that live have nothing left to do."""
    until = world.scheduler.now + _SECONDS
    world.scheduler.run(
        200_000, lambda: world.scheduler.now > until or not _undone(world, dead, lost)
    )
    world.auditor.checks += 1
    if left := _undone(world, dead, lost):
        world.fail(
            f"with {', '.join(sorted(dead))} dead there is left after {_SECONDS:g} s: {left}"
        )


def _undone(world: World, dead: set[str], lost: str) -> str:
    """Return what those that live have not done."""
    if not dead & {"receiver", "publisher"} and (
        rows := _rows(
            world,
            f"SELECT record_id FROM eventlog WHERE status = 'N' AND perpetrator IS NOT '{OWN_USER}'",
        )
    ):
        return f"rows {rows[:10]} of the publisher"
    done, rows = done_of_consumers(world), _rows(world, "SELECT record_id FROM eventlog")
    for name in sorted(world.receivers.keys() - {"receiver", lost}):
        if name not in done:
            return f"{name} is not registered yet"
        if left := [row for row in rows if row not in done[name]]:
            return f"rows {left[:10]} of {name}"
    return ""


def _purge(world: World) -> None:
    """Purge, and check that nothing is left that nobody needs. What was committed late may lie
    below what an earlier purge has looked at."""
    world.has_removed = True
    world.scheduler.now += 5
    several, kept = (
        done_of_consumers(world).values(),
        _in_flight(world) | world.application.committed_late,
    )
    needless = {
        row
        for row in _rows(world, _DONE_AND_OLD)
        if row not in kept and all(row in done for done in several)
    }
    for (asked,) in world.application.session.execute(
        "SELECT requeued FROM eventlog_consumer WHERE requeued IS NOT NULL"
    ):  # a dead consumer has not taken up what it was asked for
        needless -= set(Request.of(asked).rows)
    command = world.command("purge", "--older-than", "0s")
    world.wait_for_commands()
    left = needless.intersection(_rows(world, "SELECT record_id FROM eventlog"))
    world.auditor.checks += 1
    if command.exit_code or left:
        world.fail(
            f"purge ends with {command.exit_code}, and nobody needs rows {sorted(left)[:10]}"
        )


def _in_flight(world: World) -> set[int]:
    """Return the rows of the publisher's documents that have no answer yet."""
    lines = world.application.session.execute(
        "SELECT entry_no, content FROM eventlog_inflight WHERE kind = 'delivery' AND owner IS NULL"
    ).fetchall()
    return set(recorded_ids([decode(number, text) for number, text in lines]))


def _rows(world: World, sql: str) -> list[Any]:
    return [row for (row,) in world.application.session.execute(sql)]


__all__ = ["DEAD", "live_with_a_core"]
