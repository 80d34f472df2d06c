"""Commands that look: ``status``, ``errors``, ``consumers list``, ``explain`` and ``doctor``.

They write nothing, end by an exit code that their pages name, and say what the database has. Half
of them run alone, as all other processes would be if they were slow for a moment: then what they
say can be compared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from random import Random
from typing import TYPE_CHECKING, Any

import laws
from entries import Request
from pauses import paused
from replicas import Key, class_of

from eventlog.core.ranges import RecordSet, decode
from eventlog.exit_codes import ExitCode

if TYPE_CHECKING:
    from world import World

_MAX_POINTS = 2000
_EXPECTED = {"doctor": ExitCode.NO, "explain": ExitCode.FAILED}
"""How a command may end, apart from 0."""


def show(world: World, chance: Random) -> None:
    """An operator looks, with a command that changes nothing."""
    application = world.application
    row = str(chance.randint(1, max(1, application.top())))
    consumers = sorted(set(world.receivers) - {"receiver"})
    words = chance.choice(
        [
            ("status", "--json"),
            ("status",),
            ("errors", "--json"),
            ("consumers", "list", "--json"),
            ("explain", row, "--json"),
            ("explain", row),
            *(
                (("status", "--consumer", name),)
                if (name := chance.choice([*consumers, ""]))
                else ()
            ),
        ]
    )
    _run(world, chance, words)


def explain(world: World, chance: Random, of: str | None = "") -> None:
    """An operator asks why rows were sent or not: those of which there is most to report. ``of`` is
    the reader, None = the publisher, empty = any.
    """
    consumers = [name for name in sorted(world.receivers) if world.is_registered(name)]
    of = chance.choice([None, *consumers]) if of == "" else of
    for row in laws.telling_rows(world):
        _run(world, chance, ("explain", row, "--json"), of=of, is_alone=True)
        world.stats["rows that are explained"] += 1


def doctor(world: World, chance: Random) -> None:
    """An operator has everything examined."""
    _run(world, chance, ("doctor", "--json"))


def _run(
    world: World,
    chance: Random,
    words: tuple[str, ...],
    of: str | None = None,
    *,
    is_alone: bool = False,
) -> None:
    if words[1:2] == ("--consumer",):
        words, of = ("status", "--json"), words[2]
    process = world.command(*words, of=of)
    is_alone |= chance.random() < 0.5
    if is_alone:
        world.scheduler.run_alone(process, _MAX_POINTS)
    else:
        world.scheduler.run(_MAX_POINTS, lambda: not process.is_running)
    if process.is_running or process.is_dead:
        return
    said = "".join(process.stdout)
    for days in re.findall(r"the oldest for (\d+) days", said):
        leap = max(0.0, world.scheduler.leap)
        if int(days) > (world.scheduler.now + leap) / 86_400 + 1:
            world.fail(f"eventlog {' '.join(words)} reads another clock: {said[-2000:]}")
    if process.exit_code not in (ExitCode.DONE, _EXPECTED.get(words[0])):
        world.fail(f"eventlog {' '.join(words)} ends with {process.exit_code}: {said[-300:]}")
    elif is_alone and words[-1] == "--json" and (words[0] == "doctor" or not process.exit_code):
        _compare(world, words[0], json.loads(said), of)


def _compare(world: World, command: str, said: Mapping[str, Any], of: str | None) -> None:
    """Check what a command has said against the database as it is."""
    if command == "status":
        wanted: dict[str, Any] = {"consumers": _behind(world), "backlog": False}
        has: dict[str, Any] = {
            "consumers": {one["name"]: one["rows_behind"] for one in said["consumers"]},
            "backlog": said["backlog"] is not None,
        }
        wanted["paused"] = _pauses(world).get(of or "")
        has["paused"] = said["paused"] and said["paused"]["reason"]
        if of is None:  # claimed rows do not concern a consumer (docs/spec/event-log.md 13.5)
            wanted["backlog"] = world.backlog is not None
            wanted["rows"] = dict(
                _ask(world, "SELECT status, count(*) FROM eventlog GROUP BY status")
            )
            has["rows"] = dict(said["rows"])
    elif command == "errors":
        (wanted,) = _ask(
            world,
            # A row that was sent again in its place counts instead, once it has an answer.
            "SELECT count(*) FROM eventlog WHERE status IN ('E', 'F') AND record_id NOT IN ("
            "SELECT record_id FROM eventlog_error AS old WHERE code = 'superseded' "
            "AND rowid = (SELECT max(rowid) FROM eventlog_error "
            "WHERE record_id = old.record_id AND consumer IS NULL) "
            "AND superseded_by NOT IN (SELECT record_id FROM eventlog WHERE status = 'N'))",
        )
        has = (sum(one["rows"] for one in said["errors"]),)
    elif command == "consumers":
        wanted, has = (
            _behind(world),
            {one["name"]: one["rows_behind"] for one in said["consumers"]},
        )
    elif command == "doctor":
        pauses = [one["text"] for one in said["findings"] if one["code"] == "paused"]
        reasons = _pauses(world).values()
        wanted, has = (
            sorted(reasons),
            sorted(one for one in reasons if any(text.endswith(one) for text in pauses)),
        )
    else:
        if command == "explain":
            laws.audit_explanation(world, said, of or "")
        return
    world.auditor.checks += 1
    if wanted != has:
        world.fail(f"eventlog {command} says {has}, and the database has {wanted}")


def _pauses(world: World) -> dict[str, str]:
    """Return the reason of each reader that is paused; empty = the publisher."""
    return {name: json.loads(text)["reason"] for name, text in paused(world).items()}


def _behind(world: World) -> dict[str, int]:
    """Return how many rows of the log each consumer has not done, or is asked to send again."""
    rows = [row for (row,) in _ask(world, "SELECT record_id FROM eventlog")]
    asked = {
        name: Request.of(told).rows
        for name, told in _ask(
            world, "SELECT name, requeued FROM eventlog_consumer WHERE requeued IS NOT NULL"
        )
    }
    return {
        name: sum(row not in done or row in asked.get(name, ()) for row in rows)
        for name, done in done_of_consumers(world).items()
    }


def done_of_consumers(world: World) -> dict[str, RecordSet]:
    """Return the set of each consumer, with the parts that stand in lines in flight."""
    done = {
        name: decode(first)
        for name, first in _ask(world, "SELECT name, done FROM eventlog_consumer")
    }
    entries = _ask(world, "SELECT owner, content FROM eventlog_inflight WHERE kind = 'done'")
    sets = [(name, json.loads(content)) for name, content in entries]
    for name, content in sorted(sets, key=lambda one: one[1]["set"] != "whole"):
        if content["set"] == "whole":
            done[name] = RecordSet()
        done[name].add(decode(content["rows"]).spans)
    return done


def undone_by(world: World, consumer: str) -> dict[int, Key]:
    """Return the rows that a reader has not done, or is asked to send again, with their objects."""
    rows = {
        row: (class_of(table), key)
        for row, table, key, status in world.application.session.execute(
            "SELECT record_id, table_name, table_key, status FROM eventlog"
        )
        if consumer or status == "N"
    }
    if not consumer:
        return rows
    done = done_of_consumers(world).get(consumer, ())
    sql = "SELECT requeued FROM eventlog_consumer WHERE name = ? AND requeued IS NOT NULL"
    told = world.application.session.execute(sql, (consumer,)).fetchone()
    asked = Request.of(told[0]).rows if told else ()
    return {row: key for row, key in rows.items() if row not in done or row in asked}


def _ask(world: World, sql: str) -> list[Any]:
    found: list[Any] = world.application.session.execute(sql).fetchall()
    return found


__all__ = ["doctor", "done_of_consumers", "explain", "show", "undone_by"]
