"""Steps that aim at the places of ``places``: each looks at the world, and does what is needed so
that the place is met.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from entries import rows_in_flight
from followed import JOINS_NEW_KEY
from plans import CONSUMERS
from read_commands import done_of_consumers, explain
from replicas import Replica

if TYPE_CHECKING:
    from scheduler import Process
    from world import World

_MANY = {"query_limit": 10_000, "delivery_rows": 10_000}
_POINTS = 60
"""The points within which a process mostly sends what a transaction has written."""
_LONG = 600
"""The points within which a receiver gets waiting events a few times."""


def free_names(world: World) -> list[str]:
    """Return the names of consumers that nobody has."""
    return sorted(set(CONSUMERS) - set(world.receivers))


def running(world: World, prefix: str) -> list[Process]:
    """Return the processes that run and whose name begins so."""
    return [
        process
        for name, process in sorted(world.scheduler.processes.items())
        if name.startswith(prefix) and process.is_running
    ]


# --- the situations that steps need ---------------------------------------------------------------


def _consumer(world: World, chance: Random) -> str:
    """Return a consumer that runs, and start one if there is none; empty if that is not possible."""
    if several := running(world, "cons"):
        return chance.choice(several).name
    if not (free := free_names(world)):
        return ""
    start_from = "snapshot" if world.has_removed else chance.choice(["snapshot", "earliest"])
    world.start(free[0], chance, start_from=start_from)
    world.scheduler.run(200, lambda: world.is_registered(free[0]))
    return free[0]


def _sender(world: World, chance: Random, *, is_often_consumer: bool = False) -> str:
    """Return a process that runs and sends to a receiver: the publisher or a consumer."""
    has_publisher = world.plan["sink"] == "python" and running(world, "publisher")
    if has_publisher and chance.random() < (0.3 if is_often_consumer else 0.6):
        return "publisher"
    return _consumer(world, chance) or ("publisher" if has_publisher else "")


def _mood(world: World, name: str, chance: Random, **mood: float) -> None:
    """Have the receiver of a process answer so, with the names of moods with _ for blanks."""
    receiver = world.receivers["receiver" if name == "publisher" else name]
    receiver.mood = {what.replace("_", " "): probability for what, probability in mood.items()}
    receiver.seed = chance.randrange(2**31)


def _restart(world: World, name: str, chance: Random, given: Mapping[str, Any]) -> None:
    if (process := world.scheduler.processes.get(name)) is not None:
        world.stop(process)
    world.start(name, chance, given=given)


def _write(world: World, chance: Random, objects: int = 3) -> None:
    """Write objects of several classes."""
    if not world.application.hidden:
        world.application.write_all_classes()
    world.application.burst_of(objects)
    world.application.commit(chance)


def _ask(world: World, sql: str, *values: Any) -> list[Any]:
    found: list[Any] = world.application.session.execute(sql, values).fetchall()
    return found


def _refused_rows(world: World, name: str) -> list[int]:
    """Return the rows that a receiver has refused, in their order."""
    consumer = None if name == "publisher" else name
    sql = (
        "SELECT DISTINCT record_id FROM eventlog_error WHERE consumer IS ? AND record_id > 0 "
        "AND code = 'receiver' AND record_id IN (SELECT record_id FROM eventlog) ORDER BY 1"
    )
    return [row for (row,) in _ask(world, sql, consumer)]


def refuse_rows(world: World, chance: Random, name: str) -> list[int]:
    """Have the receiver of a process refuse rows; return those that it has refused by now."""
    before = _refused_rows(world, name)
    for _ in range(3):
        _mood(world, name, chance, error=0.6)
        _write(world, chance)
        world.scheduler.run_on(_POINTS, lambda: len(_refused_rows(world, name)) > len(before))
        world.scheduler.run_on(chance.choice([0, 20]))
        if (rows := _refused_rows(world, name)) != before:
            break
    _mood(world, name, chance)
    return rows


def _has_request(world: World, name: str) -> bool:
    sql = "SELECT 1 FROM eventlog_consumer WHERE name = ? AND requeued IS NOT NULL"
    return bool(_ask(world, sql, name))


def _request(world: World, name: str, rows: Sequence[int]) -> bool:
    """Ask for rows of a consumer that is stopped, all of them or one that is accepted; return
    whether it has a request now.
    """
    for several in (rows, rows[-1:], rows[:1]):
        if several and not _has_request(world, name):
            ids = ",".join(map(str, several))
            world.command("requeue", "--consumer", name, "--ids", ids)
            world.wait_for_commands()
    return _has_request(world, name)


def _begin_snapshot(world: World, chance: Random, given: Mapping[str, Any]) -> str:
    """Have a consumer begin with a snapshot: a new one, or one that is reset."""
    if free := free_names(world):
        world.start(free[0], chance, start_from="snapshot", given=given)
        return free[0]
    if several := running(world, "cons"):
        name = chance.choice(several).name
        world.stop(world.scheduler.processes[name])
        reset(world, name, "snapshot")
        world.start(name, chance, given=given)
        return name
    return ""


def reset(world: World, name: str, start_from: str) -> None:
    """Take a consumer that is stopped back to a beginning, with a receiver that has nothing. Both
    stay as they are if the command is refused, or the database is locked for too long.
    """
    command = world.command("consumers", "reset", name, "--start-from", start_from, "--yes")
    world.wait_for_commands()
    if command.exit_code == 0:
        world.auditor.begins_anew(name)
        world.receivers[name].replica = Replica()
        world.receivers[name].unfinished.clear()


def _run_for(world: World, seconds: float, until: Callable[[], bool]) -> None:
    """Let so much simulated time pass, in which receivers get waiting events again, until something
    holds.
    """
    last = world.scheduler.now + seconds
    world.scheduler.run(_LONG, lambda: world.scheduler.now > last or until())


# --- requests of consumers ------------------------------------------------------------------------


def ask_for_rows(world: World, chance: Random) -> None:
    """A consumer is asked for rows that its receiver has refused."""
    if not (name := _consumer(world, chance)):
        return
    rows = refuse_rows(world, chance, name)
    if chance.random() < 0.5:
        world.stop(world.scheduler.processes[name])
        _request(world, name, rows[-3:])
        world.start(name, chance)
    else:
        world.command("requeue", "--consumer", name, "--ids", ",".join(map(str, rows[-1:])) or "1")
    world.scheduler.run_on(
        _POINTS, lambda: not world.has_commands() and not _has_request(world, name)
    )


def ask_for_objects(world: World, chance: Random) -> None:
    """The receiver of a consumer refuses objects of its snapshot, and they are asked for; their
    class may be unavailable by then.
    """
    for _ in range(2):
        _write(world, chance)
    if not (name := _begin_snapshot(world, chance, {})):
        return
    _mood(world, name, chance, error=0.5)
    sql = "SELECT 1 FROM eventlog_error WHERE consumer = ? AND record_id = 0 AND code = 'receiver'"
    world.scheduler.run_on(150, lambda: bool(_ask(world, sql, name)))
    world.scheduler.run_on(chance.choice([0, 20, 60]))
    _mood(world, name, chance)
    application = world.application
    table = chance.choice(["part", "doc", "item", "orders"])
    is_away = chance.random() < 0.3 and not application.hidden and not application.late
    if is_away:
        application.rename_away(table)
    world.command("requeue", "--consumer", name)
    world.scheduler.run_on(
        2 * _POINTS, lambda: not world.has_commands() and not _has_request(world, name)
    )
    if is_away:
        world.scheduler.run_on(chance.choice([0, 30]))
        application.rename_back(table)


def purge_beside_request(world: World, chance: Random) -> None:
    """A consumer that does not run is asked for rows, then a purge runs, and the consumer is killed
    as it takes the request up.
    """
    if not (name := _consumer(world, chance)):
        return
    rows = refuse_rows(world, chance, name)
    world.scheduler.run_on(_POINTS)
    if name not in world.scheduler.processes:
        return
    world.stop(world.scheduler.processes[name])
    is_asked = _request(world, name, rows[-3:])
    world.scheduler.now += 3
    world.has_removed = True
    world.command("purge", "--older-than", "0s", "--batch", str(chance.choice([1, 3, 1000])))
    world.wait_for_commands()
    world.start(name, chance)
    world.scheduler.run(2 * _POINTS, lambda: not _has_request(world, name))
    world.scheduler.run_on(chance.choice([0, 0, 1, 2, 4]))
    if (process := world.scheduler.processes.get(name)) is not None and process.is_running:
        world.kill(process)
        world.stats["a request that outlasts a purge and a kill"] += is_asked
        world.start(name, chance)


def restart_with_request(world: World, chance: Random) -> None:
    """A consumer that does not run is asked for rows that its receiver has applied, and starts."""
    if not (name := _consumer(world, chance)):
        return
    _mood(world, name, chance)
    for _ in range(chance.choice([1, 1, 2])):
        top = world.application.top()
        _write(world, chance, 1)
        world.scheduler.run_on(2 * _POINTS, lambda: not world.undone_rows(name))
        if (process := world.scheduler.processes.get(name)) is None:
            return
        world.stop(process)
        done = done_of_consumers(world).get(name, ())
        new = [
            row for (row,) in _ask(world, "SELECT record_id FROM eventlog WHERE record_id > ?", top)
        ]
        if _request(world, name, [row for row in new if row in done]):
            world.stats["a restart before a request is taken up"] += 1
        world.start(name, chance)
        world.scheduler.run_on(_POINTS, lambda: not _has_request(world, name))


def reset_in_flight(world: World, chance: Random) -> None:
    """A consumer is stopped or killed with something in flight, and is reset."""
    if not (name := _consumer(world, chance)):
        return
    one = chance.choice(["away", "lost", "half", "retry one"])
    _mood(world, name, chance, **{one.replace(" ", "_"): 1.0})
    sql = "SELECT 1 FROM eventlog_inflight WHERE kind = 'delivery' AND owner = ?"
    for _ in range(3):
        _write(world, chance, 8)
        world.scheduler.run_on(_POINTS, lambda: bool(_ask(world, sql, name)))
        world.scheduler.run_on(chance.choice([0, 5, 20]))
        if _ask(world, sql, name):
            break
    if (process := world.scheduler.processes.get(name)) is None:
        return
    (world.stop if chance.random() < 0.5 else world.kill)(process)
    world.stats["a reset with something in flight"] += bool(_ask(world, sql, name))
    _mood(world, name, chance)
    reset(world, name, "snapshot" if world.has_removed or chance.random() < 0.6 else "earliest")
    world.start(name, chance)


def delete_beside_consumers(world: World, chance: Random) -> None:
    """The publisher deletes the rows that it has sent, and a consumer has not read them yet."""
    name = _consumer(world, chance)
    if not name or not running(world, "publisher"):
        return
    _mood(world, name, chance, slow=0.6, retry=0.2)
    _restart(world, "publisher", chance, {"delete_from_log": True})
    for _ in range(3):
        _write(world, chance)
        world.scheduler.run_on(chance.choice([10, 30, _POINTS]))
    _mood(world, name, chance)


def unavailable_in_snapshot(world: World, chance: Random) -> None:
    """A table is not there when a snapshot comes to its class."""
    application = world.application
    while application.late and not application.hidden:
        application.end_late(chance)
    if application.hidden:
        return
    _write(world, chance)
    wanted = {world.classes_of(name) for name in (*free_names(world), *CONSUMERS)} - {None}
    tables = ["part", "doc", "item", "orders"]
    common = [one for one in tables if all(one in classes for classes in wanted if classes)]
    table = chance.choice(common or tables)
    application.rename_away(table)
    name = _begin_snapshot(world, chance, {})
    if name:
        place = "a class that is unavailable within a snapshot"
        before = world.stats[place]
        world.scheduler.run_on(200, lambda: world.stats[place] > before)
        world.scheduler.run_on(chance.choice([0, 20]))
    if chance.random() < 0.7:
        application.rename_back(table)


# --- what an operator stops and asks ---


def _with_in_flight(world: World, chance: Random, *moods: str) -> str:
    """Return a process that has events in flight, and whose objects have changed since; empty if
    there is none.
    """
    if not (name := _sender(world, chance)):
        return ""
    world.application.burst_of(3)
    world.scheduler.run_on(_POINTS)
    _mood(world, name, chance, **{chance.choice(moods): 1.0})
    for _ in range(2):
        world.application.burst_of(3)
        world.scheduler.run_on(_POINTS, lambda: bool(_recorded(world, name)))
    return name if _recorded(world, name) and name in world.scheduler.processes else ""


def pause_in_flight(world: World, chance: Random) -> None:
    """An operator pauses a reader that has something in flight, and resumes it later."""
    if not (name := _with_in_flight(world, chance, "retry", "retry_one", "fail_one")):
        return
    which = ("--consumer", name) if name != "publisher" else ()
    process = world.command("pause", *which, "--reason", "in flight")
    world.wait_for_commands()
    is_paused = process.exit_code == 0
    world.stats["a reader that is paused with something in flight"] += is_paused
    _write(world, chance)
    world.scheduler.run_on(chance.choice([20, _POINTS]))
    _mood(world, name, chance)
    world.scheduler.run_on(chance.choice([0, _POINTS]))
    world.command("resume", *which)
    world.wait_for_commands()


def explain_in_flight(world: World, chance: Random) -> None:
    """An operator asks why rows wait whose objects have events in flight."""
    if not (name := _with_in_flight(world, chance, "retry")):
        return
    world.application.burst_of(3)
    explain(world, chance, None if name == "publisher" else name)
    world.stats["a row that is explained with one in flight"] += 1
    _mood(world, name, chance)


# --- what an operator gives up --------------------------------------------------------------------


def skip_of_consumer(world: World, chance: Random) -> None:
    """An operator gives up an event of a consumer that its receiver asks for later."""
    if not (name := _consumer(world, chance)):
        return
    world.scheduler.run_on(_POINTS, lambda: not _is_loading(world, name))
    one = chance.choice(["retry", "retry_one", "lost", "fail_one"])
    _mood(world, name, chance, **{one: 1.0})
    for _ in range(3):
        _write(world, chance, 8)
        world.scheduler.run_on(_POINTS, lambda: bool(_recorded(world, name)))
        world.scheduler.run_on(chance.choice([0, 20]))
        if _recorded(world, name):
            break
    if (process := world.scheduler.processes.get(name)) is None:
        return
    world.stop(process)
    if recorded := _recorded(world, name):
        event_id, rows = chance.choice(recorded)
        world.auditor.skips(name, rows)
        world.command("skip", event_id, "--reason", "no need", "--consumer", name)
        world.wait_for_commands()
    world.start(name, chance)
    world.scheduler.run_on(chance.choice([0, 40]))
    _mood(world, name, chance)


def _is_loading(world: World, name: str) -> bool:
    return bool(
        _ask(world, "SELECT 1 FROM eventlog_consumer WHERE name = ? AND loaded IS NOT NULL", name)
    )


def _recorded(world: World, name: str) -> list[tuple[str, tuple[int, ...]]]:
    """Return the events of rows that were sent, have no answer, and stand in an entry in flight."""
    owner = None if name == "publisher" else name
    sql = "SELECT content FROM eventlog_inflight WHERE kind = 'delivery' AND owner IS ?"
    there = {row for (content,) in _ask(world, sql, owner) for row in rows_in_flight(content)}
    return [
        (event_id, rows)
        for event_id, rows in world.auditor.in_flight("" if name == "publisher" else name)
        if rows and rows[0] in there
    ]


def skip_refused(world: World, chance: Random) -> None:
    """An operator records that refused rows need nothing more: all, or one of them."""
    if not (name := _sender(world, chance)):
        return
    rows = refuse_rows(world, chance, name)
    words = ["skip", "--refused", "--reason", "no need", "--yes", "--json"]
    if rows and chance.random() < 0.5:
        words += ["--ids", str(chance.choice(rows))]
    skipped = world.command(*words, *_of(name))
    world.wait_for_commands()
    if skipped.exit_code == 0:
        told = json.loads("".join(skipped.stdout))
        world.auditor.need_nothing_more("" if name == "publisher" else name, told["rows"])


def _of(name: str) -> list[str]:
    return [] if name == "publisher" else ["--consumer", name]


def skip_all_parked(world: World, chance: Random) -> None:
    """An operator gives up all events that are parked."""
    if not (name := _sender(world, chance)):
        return
    given = {**_MANY, "on_retry": "park", "max_parked": 1000, "retry_initial": 1, "retry_max": 20}
    _restart(world, name, chance, {**given, "mark_interval": 0, "max_attempts": 0})
    _mood(world, name, chance, **chance.choice([{"retry_one": 1.0}, {"fail_one": 1.0}]))
    for _ in range(2):
        _write(world, chance, 8)
        _run_for(world, 20, lambda: _has_parked(world, name))
    if (process := world.scheduler.processes.get(name)) is None:
        return
    world.stop(process)
    words = ("skip", "--parked", "--reason", "no need", "--yes", *_of(name))
    told = world.command(*words, "--dry-run", "--json")
    world.wait_for_commands()
    if told.exit_code == 0:
        parked = {one["event_id"] for one in json.loads("".join(told.stdout))["skipped"]}
        firsts = {one.partition(".")[0] for one in parked}
        for one in parked:
            if one.startswith("snapshot."):
                world.auditor.skips_object(name, one)
        consumer = "" if name == "publisher" else name
        given_up = {
            rows
            for event_id, rows in _recorded(world, name)
            if event_id.partition(".")[0] in firsts
        }
        # An event that follows one which got retry comes again with it, whatever it was answered.
        for one in parked:
            if not one.startswith("snapshot.") and not any(
                int(one.partition(".")[0]) in rows for rows in given_up
            ):
                given_up.add(world.auditor.rows_of(consumer, one))
        for rows in sorted(given_up):
            world.auditor.skips(consumer, rows)
        world.command(*words)
        world.wait_for_commands()
    world.start(name, chance)
    _mood(world, name, chance)


def _has_parked(world: World, name: str) -> bool:
    owner = None if name == "publisher" else name
    sql = "SELECT content FROM eventlog_inflight WHERE kind = 'delivery' AND owner IS ?"
    told = " ".join(text for (text,) in _ask(world, sql, owner))
    return '"parked"' in told or '"suspect"' in told


# --- receivers that fail --------------------------------------------------------------------------


def _fail_for_one(world: World, chance: Random, max_attempts: Sequence[int], place: str) -> None:
    if not (name := _sender(world, chance)):
        return
    given = {**_MANY, "on_retry": "park", "max_parked": 1000, "retry_initial": 1, "retry_max": 20}
    given |= {"isolate_after": 1, "batch_size": chance.choice([3, 5, 12]), "concurrency": 1}
    given |= {
        "max_attempts": chance.choice(max_attempts),
        "fold_distance": chance.choice([0, 1000]),
    }
    given |= {"polling_interval": 1, "mark_interval": chance.choice([0, 1])}
    _restart(world, name, chance, given)
    _mood(world, name, chance, fail_one=1.0, applies=chance.choice([0.0, 0.5]))
    before = world.stats[place]
    for _ in range(2):
        _write(world, chance, 8)
        _run_for(world, 20, lambda: world.stats[place] > before)
    if chance.random() < 0.3 and (process := world.scheduler.processes.get(name)) is not None:
        world.kill(process)
        world.start(name, chance, given=given)
        world.scheduler.run(chance.choice([10, 60]))
    _mood(world, name, chance)


def fail_for_one(world: World, chance: Random) -> None:
    """A receiver fails for some objects and answers others, until their events are alone."""
    places = [
        "a part that is put off",
        "a part that is cut again",
        "a part of one event that fails again",
    ]
    _fail_for_one(world, chance, [0, 0, 3], chance.choice(places))


def give_up(world: World, chance: Random) -> None:
    """A receiver fails for some objects until their events are given up."""
    _fail_for_one(world, chance, [1, 1, 2], "an event that is given up")


def refuse_unnamed(world: World, chance: Random) -> None:
    """A receiver refuses documents of several events, and does not name the events."""
    if not (name := _sender(world, chance)):
        return
    _restart(
        world,
        name,
        chance,
        {**_MANY, "batch_size": chance.choice([5, 12, 128]), "fold_distance": 0},
    )
    _mood(world, name, chance, error=0.3, unnamed=1.0, applies_a_part=chance.choice([0.0, 0.5]))
    place = "a half that is refused and cut again"
    before = world.stats[place]
    for _ in range(3):
        _write(world, chance, 8)
        world.scheduler.run_on(_POINTS, lambda: world.stats[place] > before)
    _mood(world, name, chance)


def finish_late(world: World, chance: Random) -> None:
    """A receiver goes on with requests that the publisher has given up, while their objects are
    deleted, the publisher may be killed, and the requests are sent again.
    """
    _finish_late(world, chance, "a late request whose object is deleted", [1, 3, 128])


def finish_late_in_parts(world: World, chance: Random) -> None:
    """The same for documents that have two events of an object, and are cut meanwhile."""
    _finish_late(world, chance, "a late request under an id that was replaced", [5, 128])


def _finish_late(world: World, chance: Random, place: str, sizes: Sequence[int]) -> None:
    if not (name := _sender(world, chance)):
        return
    is_cut = min(sizes) > 1
    given = {**_MANY, "batch_size": chance.choice(sizes), "polling_interval": 1, "max_attempts": 0}
    given |= {"isolate_after": 1, "retry_initial": 1, "retry_max": 20, "on_retry": "park"}
    given |= {"fold_distance": 0 if is_cut else chance.choice([0, 1000])}
    _restart(world, name, chance, given)
    before = world.stats[place]
    receiver = world.receivers["receiver" if name == "publisher" else name]
    for _ in range(2):
        _mood(world, name, chance, late=1.0 if is_cut else chance.choice([0.5, 1.0]))
        _write(world, chance)
        world.scheduler.run_on(_POINTS, lambda: bool(receiver.unfinished))
        if is_cut:  # after a round in which nothing is answered
            _run_for(world, chance.choice([2, 5]), lambda: False)
        else:
            world.scheduler.run_on(chance.choice([0, 10, 40]))
        world.application.delete_burst()
        world.application.delete_some(chance)
        process = world.scheduler.processes.get(name)
        if chance.random() < 0.4 and process is not None:
            world.kill(process)
            world.start(name, chance, given=given)
        _mood(world, name, chance)
        _run_for(world, 45, lambda: world.stats[place] > before)
        if world.stats[place] > before:
            break


def tear_file(world: World, chance: Random) -> None:
    """The publisher is killed while it writes a file."""
    if world.plan["sink"] != "files" or not running(world, "publisher"):
        return
    for _ in range(3):
        _write(world, chance)
        world.scheduler.run_to(chance.choice(["opened", "half", "half", "sync"]), 1, _POINTS)
        process = world.scheduler.aimed
        if process is not None and process.name == "publisher" and process.is_running:
            world.kill(process)
            world.stats["a torn file"] += 1
            world.start("publisher", chance)
            break


def refuse_at_flush(world: World, chance: Random) -> None:
    """A receiver accepts events, and refuses them at the flush, as a broker does."""
    if not (name := _sender(world, chance)):
        return
    _restart(world, name, chance, {"concurrency": 1})
    _mood(world, name, chance, refuses_late=0.3, retry=chance.choice([0.0, 0.2]))
    place = "a refusal at a flush"
    before = world.stats[place]
    for _ in range(3):
        _write(world, chance)
        world.scheduler.run_on(_POINTS, lambda: world.stats[place] > before)
    world.scheduler.run_on(chance.choice([0, 20]))
    _mood(world, name, chance)


def refuse_at_flush_of_source(world: World, chance: Random) -> None:
    """The receiver of a followed source accepts events, and refuses them at the flush."""
    if world.followed.format in JOINS_NEW_KEY:  # a function gets two events for one of the source
        return
    receiver = world.followed.receiver
    receiver.mood = {"refuses late": 0.3, "retry": chance.choice([0.0, 0.2])}
    receiver.seed = chance.randrange(2**31)
    world.followed.feed.away = 0.0
    place = "a refusal at a flush of a stream"
    before = world.stats[place]
    for _ in range(3):
        world.followed.commit(chance)
        world.scheduler.run_on(_POINTS, lambda: world.stats[place] > before)
    # A kill before the flush would bring an event that is not recorded as refused after later ones.
    receiver.mood = {}
    world.scheduler.run(_LONG, lambda: not receiver.has_late)
    world.scheduler.run_on(_POINTS)


def answer_fatal(world: World, chance: Random) -> None:
    """A receiver answers fatal, and the process that gets the answer ends."""
    if not (name := _sender(world, chance)):
        return
    _mood(world, name, chance, fatal=0.5, retry=0.1)
    place = "a fatal answer"
    before = world.stats[place]
    for _ in range(3):
        _write(world, chance)
        world.scheduler.run_on(_POINTS, lambda: world.stats[place] > before)
    world.scheduler.run_on(chance.choice([0, 20]))
    _mood(world, name, chance)


def resync_deletes(world: World, chance: Random) -> None:
    """A receiver refuses deletes, and a resync sends them again."""
    application = world.application
    if "part" in application.hidden or application.shape != application.configured:
        return
    if not (name := _sender(world, chance)):
        return
    _mood(world, name, chance)
    application.burst_of(chance.choice([2, 5]))
    world.scheduler.run_on(_POINTS)
    _mood(world, name, chance, error=0.9)
    top = application.top()
    application.delete_burst()
    world.scheduler.run_on(
        2 * _POINTS, lambda: any(row > top for row in _refused_rows(world, name))
    )
    _mood(world, name, chance)
    batch = str(chance.choice([1, 2, 1000]))
    world.command(
        "resync", application.shape.table("part"), "--deletes", "--restart", "--batch", batch
    )
    world.wait_for_commands()


DIRECTED: Mapping[str, Callable[..., None]] = {
    one.__name__: one
    for one in (
        ask_for_rows,
        ask_for_objects,
        purge_beside_request,
        restart_with_request,
        reset_in_flight,
        delete_beside_consumers,
        unavailable_in_snapshot,
        skip_of_consumer,
        skip_refused,
        skip_all_parked,
        fail_for_one,
        give_up,
        refuse_unnamed,
        finish_late,
        finish_late_in_parts,
        tear_file,
        refuse_at_flush,
        refuse_at_flush_of_source,
        answer_fatal,
        resync_deletes,
        pause_in_flight,
        explain_in_flight,
    )
}
"""The kinds of steps that aim at a place."""
