"""Operators: what they and their machines do beside the application. Each kind of step of a plan is
a function here, named in ``STEPS``; it takes the world, the chances of the step, and what a plan by
hand says in place of chances."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Any

import beginnings
import once
import pauses
import read_commands
import verification
from application import KEYS, VIEW
from backlog import Directory
from directed import DIRECTED, free_names, refuse_rows, reset, running
from followed import NAME as FOLLOWER
from plans import kind_again
from replicas import MOODS, class_of
from scheduler import Failing

if TYPE_CHECKING:
    from world import World

_replace = os.replace


def _mood(
    world: World,
    chance: Random,
    receiver: str = "",
    answers: Mapping[str, float] | None = None,
) -> None:
    """A receiver, or the disk and the store, answer otherwise from now on. A plan may say who
    answers what with which probability."""
    one = world.receivers[receiver or chance.choice(sorted(world.receivers))]
    mood = chance.choice(world.plan.get("moods", sorted(MOODS)))
    one.mood, one.seed = dict(MOODS[mood] if answers is None else answers), chance.randrange(2**31)
    world.away = chance.choice([0, 0, 0.2, 0.5]) if world.plan["sink"] != "python" else 0.0
    world.tell(f"{one.name} is {mood if answers is None else answers}")


def _burst(world: World, chance: Random, count: int = 0) -> None:
    """Many objects change. A plan may say how many: they are inserted and updated, or updated."""
    if count:
        world.application.burst_of(count)
    else:
        world.application.burst(chance)


# --- kills and faults -----------------------------------------------------------------------------


def _kill(world: World, chance: Random) -> None:
    for process in running(world, "publisher"):
        world.kill(process)
        if chance.random() < 0.5:
            world.readers.look()  # what a reader has read must not change when the publisher is back
        world.start("publisher", chance)


def _kill_aimed(world: World, chance: Random) -> None:
    """The process that has come to the place of the step is killed, whichever it is. An operator
    whose command was killed gives it again, half of the time."""
    process = world.scheduler.aimed
    if process is None or not process.is_running:
        return
    world.kill(process)
    world.readers.look()
    if not process.name.startswith("command"):
        if process.name != "second":
            world.start(process.name, chance)
    elif chance.random() < 0.5:
        words = [word for word in process.start["words"] if word != "--restart"]
        world.command(*words, *(["--resume"] if words[0] == "resync" else []))


def _kill_consumer(world: World, chance: Random) -> None:
    if several := running(world, "cons"):
        process = chance.choice(several)
        world.kill(process)
        world.start(process.name, chance)


def _kill_command(world: World, chance: Random) -> None:
    if several := running(world, "command"):
        world.kill(chance.choice(several))


def _lose_power(world: World, chance: Random) -> None:
    """The machine loses power: all processes end where they are, and the disk keeps what was
    synced. What was committed is safe, since a database syncs it."""
    if world.plan["sink"] == "files" and running(world, "publisher"):
        world.application.commit(chance)
        world.scheduler.run_to(
            chance.choice(["half", "sync", "rename", "renamed", "send"]), chance.choice([1, 2]), 60
        )
    world.tell("POWER is lost")
    if chance.random() < 0.5:
        world.readers.look()
    several = [process for process in world.scheduler.processes.values() if process.is_running]
    for process in several:
        world.kill(process)
    for change in world.disk.lose_power(chance, several):
        world.tell(f"  {change}")
    for process in several:
        if process.name in ("publisher", FOLLOWER) or process.name in world.receivers:
            world.start(process.name, chance)


def _kill_and_rename(world: World, chance: Random) -> None:
    """The publisher is killed, mostly with something in flight, and a table of it goes before it is
    back."""
    if running(world, "publisher"):
        for _ in range(2):
            world.application.commit(chance)
        world.scheduler.run_to(chance.choice(["committed inflight", "send", "gets"]), 1, 40)
    for process in running(world, "publisher"):
        world.kill(process)
        _rename_away(world, chance)
        world.start("publisher", chance)


def _kill_renamed(world: World, chance: Random) -> None:
    """The publisher is killed when a file or an object has its name and no row is marked; somebody
    reads it, and the next publisher marks more at once."""
    if world.plan["sink"] == "python" or not running(world, "publisher"):
        return
    world.stop(world.scheduler.processes["publisher"])
    few = {"batch_size": chance.choice([1, 2]), "delivery_rows": 10_000, "query_limit": 10_000}
    world.start("publisher", chance, given={**few, "mark_interval": 0})
    for _ in range(3):
        world.application.commit(chance)
    world.scheduler.run_to(
        chance.choice(["renamed", "put done", "COMMIT inflight"]), chance.choice([1, 2]), 60
    )
    process = world.scheduler.aimed
    if process is not None and process.name == "publisher" and process.is_running:
        world.kill(process)
        world.readers.look()
        world.start("publisher", chance, given={**few, "mark_interval": 10})


def _kill_resync(world: World, chance: Random) -> None:
    """Somebody gives a table a column and values in it; the resync of it is killed on its way, and
    nobody goes on with it."""
    application = world.application
    if not _is_stable(world) or len(application.shape.columns) >= 2 or world.has_commands():
        return
    application.add_column()
    application.fill_column(chance)
    world.command("triggers", "apply")
    world.wait_for_commands()
    table = application.shape.table("part")
    world.command("resync", table, "--as-update", "--restart", "--batch", "1")
    world.scheduler.run_to("COMMIT resync", chance.randint(1, 3), 80)
    process = world.scheduler.aimed
    if process is not None and process.name.startswith("command") and process.is_running:
        world.kill(process)


def _restart_parked(world: World, chance: Random) -> None:
    """The publisher is restarted while objects are parked whose later events were sent with the
    first.
    """
    if world.plan["sink"] != "python" or not running(world, "publisher"):
        return
    unfolded = {"fold_distance": 0, "batch_size": chance.choice([5, 128]), "on_retry": "park"}
    world.stop(world.scheduler.processes["publisher"])
    world.start("publisher", chance, given=unfolded)
    receiver = world.receivers["receiver"]
    receiver.mood, receiver.seed = {"retry": 0.3}, chance.randrange(2**31)
    world.application.burst_of(6)
    world.application.commit(chance)
    world.scheduler.run(chance.choice([15, 30, 50]))
    _restart(world, chance)


def _parked_burst(world: World, chance: Random) -> None:
    """Many objects change several times while some of them are parked for a second or two, and a
    scan takes longer."""
    if world.plan["sink"] != "python" or not running(world, "publisher"):
        return
    world.stop(world.scheduler.processes["publisher"])
    small = {"query_limit": chance.choice([2, 5]), "fold_distance": 0, "retry_initial": 1}
    world.start("publisher", chance, given={**small, "on_retry": "park", "max_parked": 1000})
    receiver = world.receivers["receiver"]
    receiver.mood, receiver.seed = dict(MOODS["slow retry"]), chance.randrange(2**31)
    for _ in range(3):
        world.application.burst_of(12)
        world.scheduler.run(chance.choice([10, 30, 60]))
    world.scheduler.run(60)
    receiver.mood = {}


def _slow_beside_failing(world: World, chance: Random) -> None:
    """A receiver fails for some objects and is slow for others, with several documents in the air;
    the objects change meanwhile."""
    name = chance.choice(["publisher", *(one.name for one in running(world, "cons"))])
    if not running(world, name) or (name == "publisher" and world.plan["sink"] != "python"):
        return
    several = {"concurrency": chance.choice([2, 4]), "batch_size": chance.choice([2, 3, 5])}
    given = {**several, "isolate_after": chance.choice([1, 2, 5]), "on_retry": "park"}
    given |= {"query_limit": 10_000, "delivery_rows": chance.choice([10, 10_000])}
    given["fold_distance"] = chance.choice([0, 0, 1000])
    world.stop(world.scheduler.processes[name])
    for _ in range(3):  # so that a delivery has several events of an object
        world.application.burst_of(chance.choice([2, 5]))
    world.start(name, chance, given=given)
    receiver = world.receivers["receiver" if name == "publisher" else name]
    receiver.mood = dict(MOODS[chance.choice(["slow stumbles", "slow errors", "slow losses"])])
    receiver.seed = chance.randrange(2**31)
    for _ in range(chance.choice([4, 8])):
        world.application.commit(chance)
        if chance.random() < 0.7:  # the same few objects change repeatedly
            world.application.burst_of(chance.choice([2, 5]))
        world.scheduler.run(chance.choice([0, 5, 15, 40]))


def _late_in_a_scan(world: World, chance: Random) -> None:
    """A transaction that is open writes twice, with others between, and commits while a scan goes
    on.
    """
    if not running(world, "publisher") or world.application.hidden:
        return
    world.stop(world.scheduler.processes["publisher"])
    application = world.application
    while application.late:
        application.end_late(chance)
    application.begin_late_of_one()
    application.burst_of(chance.choice([10, 20]))
    application.change_held()
    application.burst_of(10)
    world.receivers["receiver"].mood = {}
    few = {"query_limit": chance.choice([3, 5, 10]), "delete_from_log": False}
    world.start("publisher", chance, given={**few, "handle_future_events": False})
    place = "gets receiver" if world.plan["sink"] == "python" else "committed inflight"
    world.scheduler.run_to(place, chance.choice([2, 3, 4]), 150)
    application.end_late(chance)


def _refuse_deletes(world: World, chance: Random) -> None:
    """Objects are deleted, and the receiver refuses what it gets then."""
    if world.plan["sink"] != "python" or not running(world, "publisher"):
        return
    receiver = world.receivers["receiver"]
    receiver.mood = {}
    world.scheduler.run_on(60)
    receiver.mood, receiver.seed = {"error": 0.8}, chance.randrange(2**31)
    world.application.delete_some(chance)
    world.scheduler.run_on(60)
    receiver.mood = {}


def _requeue_by_time(world: World, chance: Random) -> None:
    """What is refused is requeued, and a publisher that takes rows by their time comes behind the
    one that was told."""
    if world.plan["sink"] != "python" or not running(world, "publisher"):
        return
    _restart(world, chance, handle_future_events=False)
    receiver = world.receivers["receiver"]
    receiver.mood, receiver.seed = {"error": 0.8}, chance.randrange(2**31)
    for _ in range(2):
        world.application.commit(chance)
    world.scheduler.run_on(60)
    receiver.mood = {}
    world.command("requeue", "--status", "E,F")
    world.scheduler.run_to("committed inflight log", 1, 60)
    _restart(world, chance, handle_future_events=True)


def _kill_gapped_consumer(world: World, chance: Random) -> None:
    """A consumer whose set has gaps, since some objects are parked, is killed; objects whose events
    it has sent change again before it is back."""
    if not (several := running(world, "cons")) or "part" in world.application.hidden:
        return
    if not world.plan["is_strict"]:
        return
    name = chance.choice(several).name
    whole = {"query_limit": 10_000, "delivery_rows": 10_000, "batch_size": 5, "fold_distance": 1000}
    given = {
        **whole,
        "fold_span": 10_000,
        "on_retry": "park",
        "max_parked": 1000,
        "max_attempts": 0,
    }
    world.stop(world.scheduler.processes[name])
    world.start(name, chance, given={**given, "mark_interval": 0})
    receiver = world.receivers[name]
    receiver.mood, receiver.seed = {"retry one": 1.0}, chance.randrange(2**31)
    for _ in range(3):
        world.application.burst_of(20)
        world.scheduler.run(60)
    if (process := world.scheduler.processes.get(name)) is not None and process.is_running:
        world.kill(process)
        world.application.burst_of(20)
        world.start(name, chance, given={**given, "mark_interval": 0})


def _requeue_refused(world: World, chance: Random) -> None:
    """A consumer's receiver refuses events of objects, takes later ones, and the refused ones are
    asked for again, which may be stale by now. The consumer may be killed as it reads the request.
    """
    if not (several := running(world, "cons")):
        return
    name = chance.choice(several).name
    receiver = world.receivers[name]
    receiver.mood, receiver.seed = {"error": 0.5}, chance.randrange(2**31)
    for _ in range(2):
        world.application.burst_of(6)
        world.application.commit(chance)
        world.scheduler.run(60)
        receiver.mood = {}
    world.command("requeue", "--consumer", name)
    if world.plan["is_strict"] and chance.random() < 0.7:
        world.scheduler.run_to("committed consumer", 2, 60)
        process = world.scheduler.aimed
        if process is not None and process.name == name and process.is_running:
            world.kill(process)
            world.start(name, chance)


def _come_back(world: World, chance: Random) -> None:
    """The publisher is killed with two documents in flight, and their classes are unavailable when
    it is back; they come back one after the other, those of the second document first."""
    if world.plan["sink"] == "python" or not running(world, "publisher"):
        return
    application = world.application
    if not _is_stable(world):
        return
    world.stop(world.scheduler.processes["publisher"])
    application.write_all_classes()
    given = {"batch_size": 3, "delivery_rows": 10_000, "query_limit": 10_000, "mark_interval": 0}
    world.start("publisher", chance, given=given)
    world.scheduler.run_to("committed inflight", 1, 60)
    for process in running(world, "publisher"):
        world.kill(process)
    for table in ("doc", "part", "orders"):
        application.rename_away(table)
    world.start("publisher", chance, given=given)
    for table in ("orders", "doc", "part"):
        _rest(world, 15)
        world.readers.look()
        application.rename_back(table)
    _rest(world, 15)


def _rest(world: World, seconds: float) -> None:
    """Let so much simulated time pass, or a hundred points."""
    until = world.scheduler.now + seconds
    world.scheduler.run(100, lambda: world.scheduler.now > until)


def _restart(world: World, chance: Random, **given: Any) -> None:
    """The publisher is stopped, and started with other options; a plan may say which."""
    for process in running(world, "publisher"):
        world.stop(process)
        world.start("publisher", chance, given=given)


def _second(world: World, chance: Random) -> None:
    """Somebody starts a second publisher: it is refused, unless the first one is killed
    meanwhile.
    """
    if running(world, "publisher") and "second" not in world.scheduler.processes:
        world.start("second", chance)


def _fault(
    world: World, chance: Random, process: str = "", statement: str = "", within: str = ""
) -> None:
    """A statement of a process fails, or a commit, or the answer to a commit is lost.

    A plan may say whose, by how the process's name begins, and which: how the statement begins, and
    within which function of the product it is asked for."""
    if several := running(world, process):
        one = chance.choice(several)
        if statement:
            one.failing = Failing(1, statement, within)
        elif chance.random() < 0.5:
            one.failing = Failing(1 + chance.randrange(30))
        else:
            one.failing_commit = chance.choice(["refused", "lost"])


# --- the schema -----------------------------------------------------------------------------------


def _rename_away(world: World, chance: Random) -> None:
    table = chance.choice([name for name in sorted(KEYS) if name != "customer"])
    if table not in world.application.hidden and not world.application.late:
        world.application.rename_away(table)


def _rename_back(world: World, chance: Random) -> None:
    if hidden := sorted(world.application.hidden):
        world.application.rename_back(chance.choice(hidden))


def _add_column(world: World, chance: Random) -> None:
    application = world.application
    if _is_stable(world) and len(application.shape.columns) < 2:
        application.add_column()
        if chance.random() < 0.5:
            world.command("triggers", "apply")
            world.wait_for_commands()
            world.command("resync", application.shape.table("part"), "--as-update", "--restart")


def _fill_column(world: World, chance: Random) -> None:
    """A table gets a column and values in it, and they are resynced while the publisher knows the
    table without it."""
    application = world.application
    if not _is_stable(world) or len(application.shape.columns) >= 2 or world.has_commands():
        return
    application.burst_of(3)
    application.add_column()
    application.fill_column(chance)
    world.command("triggers", "apply")
    world.wait_for_commands()
    world.command("resync", application.shape.table("part"), "--as-update", "--restart")
    world.wait_for_commands()


def _change_schema(world: World, chance: Random, change: str = "") -> None:
    """A column is renamed or dropped, or has another type; a table or a key gets another name. Half
    of the time the configuration follows at once. A plan may name the change, which nobody follows.
    """
    application = world.application
    if not _is_stable(world):
        return
    if change:
        getattr(application, change)()
        return
    shape = application.shape
    changes: list[Callable[[], None]] = [application.change_type]
    if shape.columns:
        column = chance.choice(shape.columns)
        changes += [
            lambda: application.rename_column(column),
            lambda: application.drop_column(column),
        ]
    if len(shape.names) < 3:
        changes.append(application.rename_part)
    if len(shape.keys) < 2:
        changes.append(application.rename_key)
    chance.choice(changes)()
    if chance.random() < 0.5:
        world.follow_schema(chance)


def _is_stable(world: World) -> bool:
    """Return True if no table is unavailable and no transaction is open, so that the schema can
    change.
    """
    return not world.application.hidden and not world.application.late


def _apply(world: World, chance: Random) -> None:
    if world.application.hidden:
        return
    if chance.random() < 0.5:
        world.follow_schema(chance)
    else:
        world.command("triggers", "apply")


# --- commands -------------------------------------------------------------------------------------


def _requeue(world: World, chance: Random) -> None:
    world.command("requeue", "--status", chance.choice(["E,F", "E,F", "E"]))


def _requeue_done(world: World, chance: Random) -> None:
    first = chance.randint(1, max(1, world.application.top()))
    ids = f"{first}-{first + chance.randrange(5)}"
    world.command("requeue", "--status", chance.choice(["S", "W"]), "--ids", ids)


def _requeue_parked(world: World, chance: Random) -> None:
    """Objects have changed several times, and their last changes wait, since the receiver asks for
    later of some of them. An operator has rows sent again: published ones of objects of which a row
    waits, or refused ones."""
    if world.plan["sink"] != "python" or not running(world, "publisher"):
        return
    receiver = world.receivers["receiver"]
    receiver.mood = {}
    world.application.burst_of(4)
    world.scheduler.run_on(60)
    receiver.mood, receiver.seed = {"retry one": 1.0, "error": 0.2}, chance.randrange(2**31)
    for _ in range(2):
        world.application.burst_of(4)
        world.application.commit(chance)
    world.scheduler.run_on(chance.choice([30, 60]))
    status = chance.choice(["S", "S", "E,F", "S,E,F"])
    ids = [
        row
        for (row,) in world.application.session.execute(
            "SELECT record_id FROM eventlog AS done WHERE EXISTS (SELECT 1 FROM eventlog AS waiting "
            "WHERE waiting.status = 'N' AND waiting.table_name = done.table_name "
            "AND waiting.table_key = done.table_key AND waiting.record_id > done.record_id)"
        )
    ]
    several = chance.sample(ids, k=min(len(ids), chance.choice([1, 3, 20])))
    which = ["--ids", ",".join(map(str, sorted(several)))] if several else []
    if which or "S" not in status:
        world.command("requeue", "--status", status, *which)
    world.scheduler.run_on(chance.choice([0, 40]))
    receiver.mood = {}


def _requeue_of_consumer(world: World, chance: Random) -> None:
    """An operator has one of the refused rows sent to a consumer again, and then another one."""
    if not (several := running(world, "cons")):
        return
    name = chance.choice(several).name
    rows = refuse_rows(world, chance, name)
    for row in chance.sample(rows, k=min(2, len(rows))):
        world.command("requeue", "--consumer", name, "--ids", str(row))
        world.scheduler.run(chance.choice([0, 0, 5]))


def _requeue_consumer(world: World, chance: Random) -> None:
    if several := running(world, "cons"):
        world.command("requeue", "--consumer", chance.choice(several).name)


def _requeue_loopback(world: World, chance: Random) -> None:
    world.command("requeue", "--loopback")


def _skip(world: World, chance: Random, of: str | None = None) -> None:
    """An operator gives up an event in flight, of the publisher or ``of`` a consumer, which is
    stopped for it."""
    several = [
        one
        for one in (None, *running(world, "cons"))
        if of is None or of == (one.name if one else "")
    ]
    consumer = chance.choice(several)
    name = "" if consumer is None else consumer.name
    if not (in_flight := world.auditor.in_flight(name)):
        return
    event_id, rows = chance.choice(in_flight)
    if consumer is not None:
        world.stop(consumer)
    world.auditor.skips(name, rows)
    world.command("skip", event_id, "--reason", "no need", *(["--consumer", name] if name else []))
    if consumer is not None:
        world.wait_for_commands()
        world.start(name, chance)


def _skip_parked(world: World, chance: Random) -> None:
    """A receiver answers retry for some objects for as long as it takes, and an operator gives up
    an event of one."""
    names = [process.name for process in running(world, "cons")]
    if world.plan["sink"] == "python" and running(world, "publisher"):
        names.append("publisher")
    if not names:
        return
    name = chance.choice(names)
    receiver = world.receivers["receiver" if name == "publisher" else name]
    mood = chance.choice([{"retry one": 1.0}, {"fail one": 1.0}, {"fail one": 1.0, "applies": 1.0}])
    receiver.mood, receiver.seed = mood, chance.randrange(2**31)
    world.application.burst_of(8)
    world.application.commit(chance)
    world.scheduler.run_on(chance.choice([60, 150]))
    if running(world, name):
        _skip(world, chance, "" if name == "publisher" else name)
    world.scheduler.run_on(chance.choice([0, 40]))
    receiver.mood = {}


def _requeue_behind_own(world: World, chance: Random) -> None:
    """The receiver refuses changes of objects that the publisher's own user then changes, in rows
    that stay N; an operator has the refused ones sent again."""
    if world.plan["sink"] != "python" or not running(world, "publisher"):
        return
    receiver = world.receivers["receiver"]
    kept = {"allow_loopback": False, "loopback_action": "keep", "handle_future_events": False}
    world.application.burst_of(4)
    world.scheduler.run_on(60)
    _restart(world, chance, **kept)
    receiver.mood, receiver.seed = {"error": 0.6}, chance.randrange(2**31)
    world.application.burst_of(4)
    world.scheduler.run_on(60)
    receiver.mood = {}
    world.application.burst_of(4, is_own=True)
    world.command("requeue", "--status", "E,F")
    world.wait_for_commands()
    world.scheduler.run_on(chance.choice([0, 60]))


def _dry_run(world: World, chance: Random) -> None:
    """An operator looks what would be sent, put back or written: nothing changes."""
    consumers = [process.name for process in running(world, "cons")]
    match chance.randrange(4):
        case 0:
            world.command("requeue", "--status", "E,F,S,W", "--dry-run")
        case 1:
            world.command("resync", _class(world, chance), "--dry-run")
        case _:
            world.command("publish", "--dry-run", of=chance.choice([None, *consumers]))


def _resync(world: World, chance: Random) -> None:
    options = ["--batch", str(chance.choice([1, 2, 1000])), "--restart"]
    if chance.random() < 0.3:
        options.append("--as-update")
    world.command("resync", _class(world, chance), *options)


def _deleted(world: World, chance: Random) -> None:
    world.command("resync", _class(world, chance), "--deletes", "--restart")


def _class(world: World, chance: Random) -> str:
    shape = world.application.configured
    return shape.table(chance.choice([*sorted(KEYS), *([VIEW] if shape.has_view else [])]))


def _purge(world: World, chance: Random) -> None:
    world.has_removed = True
    world.command("purge", "--older-than", "0s", "--batch", str(chance.choice([1, 3, 1000])))


# --- consumers ------------------------------------------------------------------------------------


def _consumer(world: World, chance: Random, start_from: str = "") -> None:
    if free := free_names(world):
        start_from = start_from or chance.choices(["snapshot", "earliest", "latest"], [5, 4, 1])[0]
        if start_from == "earliest" and world.has_removed:
            start_from = "snapshot"
        world.start(free[0], chance, start_from=start_from)
        if "kills" in world.plan["features"] and chance.random() < 0.4:
            # In its snapshot, if it has one.
            world.scheduler.run(chance.randrange(10, 80))
            _kill_consumer(world, chance)


def _consumer_at(world: World, chance: Random) -> None:
    """A consumer begins at a record_id behind which nothing was removed. Or one that runs is taken
    back to what was removed, which is refused."""
    (removed,) = world.application.session.execute(
        "SELECT coalesce(max(removed), 0) FROM eventlog_epoch"
    ).fetchone()
    top = world.application.top()
    if free := free_names(world):
        world.start(
            free[0], chance, start_from=str(chance.randint(removed + 1, max(removed + 1, top)))
        )
        world.begins[free[0]] = "snapshot"  # for a start that a purge or a restore comes before
        world.scheduler.run(200, lambda: world.is_registered(free[0]))
    elif removed and (several := running(world, "cons")):
        process = chance.choice(several)
        world.stop(process)
        start_from = str(chance.randint(1, removed))
        command = world.command(
            "consumers", "reset", process.name, "--start-from", start_from, "--yes"
        )
        world.wait_for_commands()
        if command.exit_code == 0:
            world.fail(
                f"{process.name} may begin at {start_from}, and rows up to {removed} are removed"
            )
        world.start(process.name, chance)


def _refused_snapshot(world: World, chance: Random) -> None:
    """The receiver of a consumer refuses objects of its snapshot, and gets them again; a class may
    be unavailable meanwhile."""
    if not (free := free_names(world)):
        return
    name = free[0]
    world.start(name, chance, start_from="snapshot")
    receiver = world.receivers[name]
    receiver.mood, receiver.seed = {"error": 0.4, "retry": 0.1}, chance.randrange(2**31)
    world.scheduler.run(chance.choice([20, 60, 120]))
    receiver.mood = {}
    if chance.random() < 0.4:
        _rename_away(world, chance)
    world.command("requeue", "--consumer", name)
    world.scheduler.run(chance.choice([0, 10, 40]))
    if chance.random() < 0.5:
        _rename_back(world, chance)


def _drop_consumer(world: World, chance: Random) -> None:
    if several := running(world, "cons"):
        process = chance.choice(several)
        world.stop(process)
        command = world.command("consumers", "drop", process.name)
        world.wait_for_commands()
        if command.exit_code == 0:
            del world.receivers[process.name]
            world.auditor.begins_anew(process.name)
        else:  # the database was locked for too long
            world.start(process.name, chance)


def _reset_consumer(world: World, chance: Random) -> None:
    """A consumer is taken back to a beginning, with a receiver that has nothing."""
    if several := running(world, "cons"):
        process = chance.choice(several)
        world.stop(process)
        reset(
            world,
            process.name,
            "snapshot" if world.has_removed or chance.random() < 0.6 else "earliest",
        )
        world.start(process.name, chance)


def _second_consumer(world: World, chance: Random) -> None:
    """Somebody starts a second process of a consumer: it waits as a standby, and is ended again."""
    if several := running(world, "cons"):
        world.start_standby(chance.choice(several).name, chance)


# --- a backlog job --------------------------------------------------------------------------------


def _hold(world: World, chance: Random) -> None:
    """A backlog job converts what waits into a directory, whose rows are held from then on."""
    application = world.application
    if world.backlog is not None or world.plan["sink"] != "python":
        return
    if application.hidden or application.shape != application.configured:
        return  # a job is refused while a class is unavailable
    if not world.has_settled_epoch():
        return  # a job begins the new epoch, which the one of the simulation does not
    for name in ("second", "publisher"):
        for process in running(world, name):
            world.stop(process)
    world.backlog = Directory.made(world)
    if "publisher" not in world.scheduler.processes:  # the supervisor starts one that has ended
        world.start("publisher", chance)


def _hand_over(world: World, chance: Random) -> None:
    """The receiver gets the directory, and its rows are marked; the job may be killed meanwhile. Or
    the directory is given up. If there is none, a job makes one."""
    if world.backlog is None:
        _hold(world, chance)
        return
    for name in ("second", "publisher"):
        for process in running(world, name):
            world.stop(process)
    if chance.random() < 0.2 and not world.backlog.is_marking:
        world.backlog.abandon()
        world.backlog = None
    else:
        world.backlog.hand_over()
        if world.backlog.mark(None if chance.random() < 0.7 else chance.randrange(5)):
            world.backlog = None
    world.start("publisher", chance)


def _leap(world: World, chance: Random) -> None:
    """Somebody sets the clock on the wall, back or forth. The time that has passed is another one.

    Rows that a publisher takes by their time come in another order than that of their numbers if
    the clock goes back, so the two never meet."""
    seconds = chance.choice([-300.0, -61.0, -1.5, -0.3, 0.4, 61.0, 3600.0, 40 * 86400.0])
    if seconds < 0:
        if not world.is_ordered:
            return
        world.has_gone_back = True
    world.scheduler.leap += seconds
    world.tell(f"the clock on the wall leaps by {seconds:g} s")


# --- copies that are put back ---------------------------------------------------------------------


def _copy(world: World, chance: Random) -> None:
    """Copy the database, once a publisher has noted which file it is."""
    application = world.application
    noted = application.session.execute("SELECT server FROM eventlog_epoch").fetchone()
    if application.late or application.hidden or not noted or '"file"' not in (noted[0] or ""):
        return

    def act() -> None:
        application.session.execute("BEGIN IMMEDIATE")
        copy = sqlite3.connect(world.directory / "copy.db")
        with sqlite3.connect(application.path) as reader:
            reader.backup(copy)
        copy.close()
        reader.close()
        world.auditor.is_copied()
        world.copied = (
            application.top(),
            application.shape,
            application.configured,
            world.backlog,
        )
        application.session.execute("ROLLBACK")
        world.tell("the database is copied")

    application.when_free(act)


def _restore(world: World, chance: Random) -> None:
    """The machine crashes, and the older copy of the database is put back. Or it is put back under
    the processes that run: nothing tells them."""
    if world.copied is None or world.application.hidden:
        return
    application, (top, shape, configured, backlog) = world.application, world.copied
    world.stats["restored"] += 1
    is_crash = chance.random() < 0.6 or shape != application.shape
    told = "CRASH: the" if is_crash else "under running processes the"
    world.tell(f"{told} older copy of the database is put back")
    lost = application.session.execute(
        "SELECT table_name, table_key FROM eventlog WHERE record_id > :top "
        "UNION SELECT table_name, table_key FROM removed_rows WHERE record_id > :top",
        {"top": top},
    ).fetchall()
    world.auditor.unsure |= {(class_of(table), key) for table, key in lost}
    names = [name for name in world.scheduler.processes if not name.startswith("command")]
    for process in list(world.scheduler.processes.values()):
        if is_crash or process.name.startswith("command"):
            world.kill(process)
    application.late.clear()
    (epoch,) = application.epoch()
    application.session.close()
    shutil.copy(world.directory / "copy.db", world.directory / "new.db")
    for ending in ("-wal", "-shm"):
        application.path.with_name(application.path.name + ending).unlink(missing_ok=True)
    _replace(world.directory / "new.db", application.path)
    application.connect()
    application.shape, application.configured, world.backlog = shape, configured, backlog
    world.unsettled_epoch = application.epoch()
    world.auditor.time_goes_back(top, epoch or "")
    for receiver in world.receivers.values():
        # A snapshot may have read what was written while there were no triggers.
        world.auditor.unsure |= world.auditor.unknown_objects(receiver.replica.objects)
    registered = application.session.execute("SELECT name FROM eventlog_consumer").fetchall()
    for name in world.receivers.keys() - {"receiver", *(one for (one,) in registered)}:
        # It registers again, and its receiver keeps what was deleted meanwhile.
        world.auditor.unsure |= world.receivers[name].replica.objects.keys()
    for name in names if is_crash else ():
        if name in ("publisher", FOLLOWER) or name in world.receivers:
            world.start(name, chance)


def _new_epoch(world: World, chance: Random) -> None:
    several = [*running(world, "publisher"), *running(world, "cons")]
    for process in several:
        world.stop(process)
    world.command("db", "start-epoch")
    world.wait_for_commands()
    for process in several:
        world.start(process.name, chance)


STEPS: Mapping[str, Callable[..., None]] = {
    "commit": lambda world, chance: world.application.commit(chance),
    "burst": _burst,
    "own_commit": lambda world, chance: world.application.commit_own(chance),
    "begin_late": lambda world, chance: world.application.begin_late(chance),
    "go_on_late": lambda world, chance: world.application.go_on_late(chance),
    "late_in_a_scan": _late_in_a_scan,
    "slow_beside_failing": _slow_beside_failing,
    "parked_burst": _parked_burst,
    "refuse_deletes": _refuse_deletes,
    "requeue_by_time": _requeue_by_time,
    "kill_gapped_consumer": _kill_gapped_consumer,
    "come_back": _come_back,
    "requeue_refused": _requeue_refused,
    "restart_parked": _restart_parked,
    "kill_renamed": _kill_renamed,
    "lose_power": _lose_power,
    "kill_resync": _kill_resync,
    "end_late": lambda world, chance: world.application.end_late(chance),
    "look": lambda world, chance: world.readers.look(),
    "mood": _mood,
    "kill": _kill,
    "kill_consumer": _kill_consumer,
    "kill_command": _kill_command,
    "kill_aimed": _kill_aimed,
    "kill_and_rename": _kill_and_rename,
    "restart": _restart,
    "publish_once": once.publish_once,
    "second": _second,
    "fault": _fault,
    "rename_away": _rename_away,
    "rename_back": _rename_back,
    "add_column": _add_column,
    "fill_column": _fill_column,
    "change_schema": _change_schema,
    "apply": _apply,
    "requeue": _requeue,
    "requeue_done": _requeue_done,
    "requeue_loopback": _requeue_loopback,
    "requeue_parked": _requeue_parked,
    "requeue_of_consumer": _requeue_of_consumer,
    "requeue_behind_own": _requeue_behind_own,
    "skip": _skip,
    "skip_parked": _skip_parked,
    "dry_run": _dry_run,
    "refused_snapshot": _refused_snapshot,
    "requeue_consumer": _requeue_consumer,
    "resync": _resync,
    "deleted": _deleted,
    "purge": _purge,
    "consumer": _consumer,
    "consumer_at": _consumer_at,
    "consumer_since": beginnings.since,
    "drop_consumer": _drop_consumer,
    "reset_consumer": _reset_consumer,
    "second_consumer": _second_consumer,
    "hold": _hold,
    "hand_over": _hand_over,
    "copy": _copy,
    "restore": _restore,
    "new_epoch": _new_epoch,
    "leap": _leap,
    "pause": pauses.pause,
    "resume": pauses.resume,
    "show": read_commands.show,
    "doctor": read_commands.doctor,
    "explain": read_commands.explain,
    "verify": verification.verify,
    "verify_beside": verification.verify_beside,
    "verify_in_parts": verification.verify_in_parts,
    "source_commit": lambda world, chance, **given: world.followed.commit(chance, **given),
    "source_mood": lambda world, chance, **given: world.followed.change_mood(chance, **given),
    "kill_follower": lambda world, chance, **given: world.followed.kill(chance, **given),
    "restart_follower": lambda world, chance, **given: world.followed.restart(chance, **given),
    "refuse_in_source": lambda world, chance: world.followed.refuse(chance),
    "park_in_source": lambda world, chance: world.followed.park(chance),
    "truncate_source": lambda world, chance: world.followed.truncate(chance),
    "move_keys_in_source": lambda world, chance: world.followed.move_keys(chance),
    "refuse_unnamed_in_source": lambda world, chance: world.followed.refuse_unnamed(chance),
    "lose_at_flush_of_source": lambda world, chance: world.followed.lose_at_flush(chance),
    "skip_in_source": lambda world, chance: world.followed.skip(chance),
    "look_at_source": lambda world, chance: world.followed.look(chance),
    **DIRECTED,
}


IN_VAIN = " did nothing"
"""A step that found nothing to do is counted under its kind and this text."""


def done_in(stats: Mapping[str, int]) -> set[str]:
    """Return the kinds of steps of a schedule that found something to do."""
    return {kind for kind in STEPS if stats.get(kind, 0) > stats.get(f"{kind}{IN_VAIN}", 0)}


def take(world: World, kind: str, seed: int, given: Mapping[str, Any]) -> None:
    """Take a step. One that finds nothing to do is drawn again: another kind of step of the plan is
    taken in its place.
    """
    if _finds_nothing(world, kind, Random(seed), given) and (again := kind_again(world.plan, seed)):
        _finds_nothing(world, again, Random(seed), {})


def _finds_nothing(world: World, kind: str, chance: Random, given: Mapping[str, Any]) -> bool:
    """Take a step, and count it; under its kind and ``IN_VAIN`` too if it finds nothing to do."""
    before = _traces(world)
    STEPS[kind](world, chance, **given)
    is_in_vain = _traces(world) == before
    world.stats[kind] += 1
    world.stats[f"{kind}{IN_VAIN}"] += is_in_vain
    return is_in_vain


def _traces(world: World) -> tuple[Any, ...]:
    """Return what is different after a step that has done something."""
    faults = [
        (process.failing, process.failing_commit) for process in world.scheduler.processes.values()
    ]
    return len(world.story), world.scheduler.points, faults
