"""Operators: what they and their machines do beside the application. Each kind of step of a plan is a
function here, named in ``STEPS``; it takes the world and the chances of the step."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING

from application import KEYS
from replicas import MOODS

if TYPE_CHECKING:
    from scheduler import Process
    from world import World

_replace = os.replace


def _running(world: World, prefix: str) -> list[Process]:
    return [
        process
        for name, process in sorted(world.scheduler.processes.items())
        if name.startswith(prefix) and process.is_running
    ]


def _mood(world: World, chance: Random) -> None:
    """A receiver, or the disk and the store, answer otherwise from now on."""
    receiver = world.receivers[chance.choice(sorted(world.receivers))]
    mood = chance.choice(sorted(MOODS))
    receiver.mood, receiver.seed = dict(MOODS[mood]), chance.randrange(2**31)
    world.away = chance.choice([0, 0, 0.2, 0.5]) if world.plan["sink"] != "python" else 0.0
    world.tell(f"{receiver.name} is {mood}")


# --- kills and faults -----------------------------------------------------------------------------


def _kill(world: World, chance: Random) -> None:
    for process in _running(world, "publisher"):
        world.kill(process)
        if chance.random() < 0.5:
            world.readers.look()  # what a reader has read must not change when the publisher is back
        world.start("publisher", chance)


def _kill_consumer(world: World, chance: Random) -> None:
    if running := _running(world, "cons"):
        process = chance.choice(running)
        world.kill(process)
        world.start(process.name, chance)


def _kill_command(world: World, chance: Random) -> None:
    if running := _running(world, "command"):
        world.kill(chance.choice(running))


def _kill_and_rename(world: World, chance: Random) -> None:
    """The publisher is killed, and a table of what was in flight goes before it is back."""
    for process in _running(world, "publisher"):
        world.kill(process)
        _rename_away(world, chance)
        world.start("publisher", chance)


def _restart(world: World, chance: Random) -> None:
    """The publisher is stopped, and started with other options."""
    for process in _running(world, "publisher"):
        world.stop(process)
        world.start("publisher", chance)


def _second(world: World, chance: Random) -> None:
    """Somebody starts a second publisher: it is refused, unless the first one is killed meanwhile."""
    if _running(world, "publisher") and not _running(world, "second"):
        world.start("second", chance)


def _fault(world: World, chance: Random) -> None:
    """A statement of a process fails, or a commit, or the answer to a commit is lost."""
    if running := _running(world, ""):
        process = chance.choice(running)
        if chance.random() < 0.5:
            process.failing_statement = chance.randrange(30)
        else:
            process.failing_commit = chance.choice(["refused", "lost"])


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
    if "part" not in application.hidden and not application.late and len(application.columns) < 2:
        application.add_column()
        if chance.random() < 0.5:
            world.command("triggers", "apply")
            world.wait_for_commands()
            world.command("resync", "part", "--as-update", "--restart")


def _apply(world: World, chance: Random) -> None:
    if not world.application.hidden:
        world.command("triggers", "apply")


# --- commands -------------------------------------------------------------------------------------


def _requeue(world: World, chance: Random) -> None:
    world.command("requeue", "--status", chance.choice(["E,F", "E,F", "E"]))


def _requeue_done(world: World, chance: Random) -> None:
    first = chance.randint(1, max(1, world.application.top()))
    ids = f"{first}-{first + chance.randrange(5)}"
    world.command("requeue", "--status", chance.choice(["S", "W"]), "--ids", ids)


def _requeue_consumer(world: World, chance: Random) -> None:
    if running := _running(world, "cons"):
        world.command("requeue", "--consumer", chance.choice(running).name)


def _resync(world: World, chance: Random) -> None:
    options = ["--batch", str(chance.choice([1, 2, 1000])), "--restart"]
    if chance.random() < 0.3:
        options.append("--as-update")
    world.command("resync", chance.choice(sorted(KEYS)), *options)


def _deleted(world: World, chance: Random) -> None:
    world.command("resync", chance.choice(sorted(KEYS)), "--deleted", "--restart")


def _purge(world: World, chance: Random) -> None:
    world.has_removed = True
    world.command("purge", "--older-than", "0s", "--batch", str(chance.choice([1, 3, 1000])))


# --- consumers ------------------------------------------------------------------------------------


def _consumer(world: World, chance: Random) -> None:
    if free := sorted({"cons1", "cons2"} - set(world.receivers)):
        begin = "snapshot" if world.has_removed or chance.random() < 0.5 else "first"
        world.start(free[0], chance, begin=begin)


def _drop_consumer(world: World, chance: Random) -> None:
    if running := _running(world, "cons"):
        process = chance.choice(running)
        world.stop(process)
        world.command("consumers", "drop", process.name)
        world.wait_for_commands()
        del world.receivers[process.name]


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
        world.copied = application.top(), set(application.columns)
        application.session.execute("ROLLBACK")
        world.tell("the database is copied")

    application.when_free(act)


def _restore(world: World, chance: Random) -> None:
    """The machine crashes, and the older copy of the database is put back."""
    if world.copied is None or world.application.hidden:
        return
    world.tell("CRASH: the older copy of the database is put back")
    application, (top, columns) = world.application, world.copied
    lost = application.session.execute(
        "SELECT table_name, table_key FROM eventlog WHERE record_id > :top "
        "UNION SELECT table_name, table_key FROM removed_rows WHERE record_id > :top",
        {"top": top},
    ).fetchall()
    world.auditor.unsure |= {(table, key) for table, key in lost}
    names = [name for name in world.scheduler.processes if not name.startswith("command")]
    for process in list(world.scheduler.processes.values()):
        world.kill(process)
    application.late.clear()
    application.session.close()
    for ending in ("-wal", "-shm"):
        application.path.with_name(application.path.name + ending).unlink(missing_ok=True)
    shutil.copy(world.directory / "copy.db", world.directory / "new.db")
    _replace(world.directory / "new.db", application.path)
    application.connect()
    application.columns = set(columns)
    world.auditor.time_goes_back(top)
    for name in names:
        if name == "publisher" or name in world.receivers:
            world.start(name, chance)


def _new_epoch(world: World, chance: Random) -> None:
    running = [*_running(world, "publisher"), *_running(world, "cons")]
    for process in running:
        world.stop(process)
    world.command("db", "new-epoch")
    world.wait_for_commands()
    for process in running:
        world.start(process.name, chance)


STEPS: Mapping[str, Callable[[World, Random], None]] = {
    "commit": lambda world, chance: world.application.commit(chance),
    "burst": lambda world, chance: world.application.burst(chance),
    "begin_late": lambda world, chance: world.application.begin_late(chance),
    "end_late": lambda world, chance: world.application.end_late(chance),
    "look": lambda world, chance: world.readers.look(),
    "mood": _mood,
    "kill": _kill,
    "kill_consumer": _kill_consumer,
    "kill_command": _kill_command,
    "kill_and_rename": _kill_and_rename,
    "restart": _restart,
    "second": _second,
    "fault": _fault,
    "rename_away": _rename_away,
    "rename_back": _rename_back,
    "add_column": _add_column,
    "apply": _apply,
    "requeue": _requeue,
    "requeue_done": _requeue_done,
    "requeue_consumer": _requeue_consumer,
    "resync": _resync,
    "deleted": _deleted,
    "purge": _purge,
    "consumer": _consumer,
    "drop_consumer": _drop_consumer,
    "copy": _copy,
    "restore": _restore,
    "new_epoch": _new_epoch,
}
