"""Plans: what happens in a schedule, as data.

A plan is a JSON object: the world (sink, format, ...), and steps. A step is ``[gap, kind, seed]``:
after so many points, something of this kind is done with chances drawn from ``seed``. A gap may be
a place in place of a number: ``@COMMIT inflight*3`` is as soon as a process comes to it for the
third time. So a step can be left out without changing the others, and a plan that fails shrinks by
itself.

The plan of a seed has a random part of the features, weights of its own for kinds of steps, and
limits for options (*swarm testing*): what all runs do in equal parts would keep out what only one
of them shows. It also has steps that aim at some of the places that count (``places``). A step that
finds nothing to do is drawn again (``again``). What is drawn comes from a stream of chance of its name. So one more kind of step, or
another weight, leaves the other steps of old seeds as they are.

A plan that is committed as a test has in ``story`` what its story has to contain, as regular
expressions: so the test fails once the plan does not come to its place any more. A step of it may
have a fourth member, an object, which says what its seed would draw: ``{"statement": "BEGIN"}``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count, islice
from random import Random
from typing import Any

from application import KEYS
from core import DEAD
from places import PLACES
from replicas import MOODS

from eventlog.model import LOG_COLUMNS

Plan = dict[str, Any]

FEATURES: Mapping[str, Mapping[str, float]] = {
    "late": {"begin_late": 2.0, "end_late": 2.5, "go_on_late": 1.0, "late_in_a_scan": 0.3},
    "kills": {
        "kill": 1.5,
        "kill_aimed": 1.5,
        "kill_consumer": 0.4,
        "kill_command": 0.4,
        "kill_renamed": 0.3,
        "kill_resync": 0.2,
        "lose_power": 0.5,
    },
    "faults": {"fault": 1.2},
    "schema": {
        "rename_away": 0.8,
        "rename_back": 1.2,
        "kill_and_rename": 0.8,
        "add_column": 0.6,
        "change_schema": 0.7,
        "apply": 0.5,
        "come_back": 0.2,
        "fill_column": 0.3,
    },
    "operators": {
        "requeue": 0.8,
        "requeue_done": 0.3,
        "resync": 0.5,
        "deleted": 0.4,
        "restart": 0.8,
        "publish_once": 0.4,
        "second": 0.2,
        "skip": 0.2,
        "skip_parked": 0.3,
        "dry_run": 0.4,
        "restart_parked": 0.3,
        "refuse_deletes": 0.2,
        "requeue_by_time": 0.1,
        "requeue_parked": 0.3,
    },
    "consumers": {
        "consumer": 0.9,
        "consumer_at": 0.3,
        "consumer_since": 0.3,
        "requeue_consumer": 0.4,
        "drop_consumer": 0.1,
        "reset_consumer": 0.3,
        "second_consumer": 0.1,
        "kill_gapped_consumer": 0.2,
        "requeue_refused": 0.2,
        "requeue_of_consumer": 0.3,
        "refused_snapshot": 0.4,
    },
    "backlog": {"hold": 0.5, "hand_over": 0.6},
    "purge": {"purge": 0.6},
    "restores": {"copy": 0.5, "restore": 0.5, "new_epoch": 0.2},
    "clock": {"leap": 1.0},
    "looks": {"show": 2.0, "doctor": 0.2, "explain": 0.8},
    "verifies": {"verify": 1.0, "verify_beside": 0.6, "verify_in_parts": 0.4},
    "pauses": {"pause": 0.8, "resume": 0.8},
    "slow": {"slow_beside_failing": 0.8},
    "bursts": {"burst": 0.7, "parked_burst": 0.3},
    "loopback": {"own_commit": 1.5, "requeue_loopback": 0.5, "requeue_behind_own": 0.5},
    "follows": {
        "source_commit": 4.0,
        "source_mood": 1.5,
        "kill_follower": 1.5,
        "restart_follower": 0.7,
        "skip_in_source": 0.5,
        "refuse_in_source": 0.5,
        "park_in_source": 0.4,
        "truncate_source": 0.4,
        "look_at_source": 0.2,
    },
}
"""The kinds of steps that each feature adds, with their weights."""
_SHARE = 0.4
_SHARES = {
    "clock": 0.25,
    "looks": 0.25,
    "verifies": 0.2,
    "restores": 0.2,
    "loopback": 0.15,
    "pauses": 0.2,
    "follows": 0.2,
}
"""The share of the plans that have a feature; those of features that are not named have
``_SHARE``.
"""
_OPENERS = {
    "consumers": "consumer",
    "late": "begin_late",
    "restores": "copy",
    "backlog": "commit",
    "follows": "source_commit",
}
"""The step that a plan with a feature begins with, since others of the feature need it."""
_WEIGHT = 33.0
"""The weight of a plan whose steps are as many as its length."""
_FACTORS = (0.0, 0.5, 1.0, 1.0, 2.0, 3.0)
_OF_COMMITS = (0.5, 1.0, 1.0, 2.0)
"""What the weight of a kind is multiplied by in a run."""

_AIMED = {place.step for place in PLACES}
CONSUMERS = ("cons1", "cons2")
"""The names of the consumers of a run."""
_OF_CI = 1000
"""The highest seed whose plan may run in CI."""
_LAST_SEED = 20_000
"""The last seed whose plan is looked at for steps."""
_MAX_STEPS_OF_CI = 24
"""The most steps of a plan of CI. A step that aims at a place counts as ``_OF_AIMED``."""
_OF_AIMED = 14
"""How many other steps take as much time as one that aims at a place."""
_MAX_OBJECTS_OF_CI = 200
"""The most objects of a burst in CI."""
POINTS = (
    "gets", "answers", "hangs up", "BEGIN", "COMMIT", "committed", "COMMIT inflight", "committed inflight", "COMMIT log", "committed log", "COMMIT consumer",
    "committed consumer", "COMMIT resync", "committed resync", "COMMIT error", "COMMIT epoch", "wait for answers", "sleep",
)  # fmt: skip
"""The points at which a step may aim."""
_OF_SINKS = {
    "python": (),
    "files": ("send", "opened", "half", "sync", "rename", "renamed"),
    "objects": ("send", "put", "put done", "put the state", "the state is put"),
}
"""Further points, by the sink of the publisher."""


_GAPS = (0, 0, 1, 1, 2, 3, 5, 8, 13, 30)
"""The points before a step."""


def plan_of(seed: int) -> Plan:
    """Return the plan of a seed. Each part of it is drawn from a stream of chance of its own."""

    def chance(name: str) -> Random:
        return Random(f"{seed} {name}")

    features = {
        name for name in FEATURES if chance(f"feature {name}").random() < _SHARES.get(name, _SHARE)
    }
    sink = _sink_of(seed)
    format_name = chance("format").choices(["xds", "cloudevents", "debezium"], [6, 2, 2])[0]
    if sink == "python" and chance("records").random() < 0.15:
        format_name = "qlik-messages"
    return {
        "seed": seed,
        "sink": sink,
        "format": format_name,
        "source_format": _source_format(chance("source format"), format_name),
        "layout": chance("layout").choice(["lines", "documents"]) if sink == "files" else "lines",
        "size": chance("size").choice([2, 3, 5, 12]),
        "burst": _draw_burst(chance("burst"), seed) if "bursts" in features else 60,
        "has_view": chance("view").random() < 0.2,
        "row_style": "row_query_back" if chance("style").random() < 0.2 else "field",
        "is_strict": chance("strict").random() < 0.6,
        "heals": chance("heals").random() < 0.2,
        "bounds": _draw_bounds(chance("bounds")),
        "limits": {
            name: _draw_limit(chance(f"limit {name}"), name)
            for name in (*OPTIONS, *FURTHER_OPTIONS)
        },
        "moods": sorted(name for name in MOODS if chance(f"mood {name}").random() < 0.6)
        or ["good"],
        "dead": _draw_dead(chance("dead")),
        "consumers": {name: _draw_consumer(chance(name)) for name in CONSUMERS},
        "first": chance("first").randrange(2**31),
        "features": sorted(features),
        "again": _kinds_of(features),
        "steps": _draw_steps(seed, features, sink),
    }


def _source_format(chance: Random, format_name: str) -> str:
    """Return the format of a followed source: often one that has a new key in one event."""
    if format_name == "qlik-messages":  # whose records all functions get
        return format_name
    return chance.choices(["xds", "cloudevents", "debezium"], [3, 5, 2])[0]


def _sink_of(seed: int) -> str:
    return Random(f"{seed} sink").choices(["python", "files", "objects"], [6, 3, 1])[0]


def seeds_of_ci(word: str, number: int) -> list[int]:
    """Return so many seeds of CI that a word decides, such as the hash of a commit; the lowest ones
    without a word. Their plans are small."""
    chance = Random(f"seeds of CI {word}")
    seeds = (chance.randrange(10**9) for _ in count()) if word else count(1)
    small = (seed for seed in seeds if _has_few_aims(seed) and _is_small(plan_of(seed)))
    return list(islice(small, number))


def _has_few_aims(seed: int) -> bool:
    """Return True if a plan may be small: most are not, and need not be drawn as a whole."""
    too_many = islice(_aimed_steps(seed, _sink_of(seed)), _MAX_STEPS_OF_CI // _OF_AIMED, None)
    return next(too_many, None) is None


def seeds_with_steps(needs: Iterable[str], number: int) -> list[int]:
    """Return the first seeds, so many at most, whose plans have steps of these kinds, and those that
    aim at the places of these names.
    """
    aims = {place.name: place.step for place in PLACES}
    kinds = {aims.get(one, one) for one in needs}
    found = (seed for seed in range(1, _LAST_SEED) if kinds <= _kinds_in(plan_of(seed)))
    return list(islice(found, number))


def _kinds_in(plan: Plan) -> set[str]:
    return {kind for _, kind, *_ in plan["steps"]}


def _is_small(plan: Plan) -> bool:
    aimed = sum(kind in _AIMED for _, kind, *_ in plan["steps"])
    steps = len(plan["steps"]) + aimed * (_OF_AIMED - 1)
    return steps <= _MAX_STEPS_OF_CI and plan["burst"] <= _MAX_OBJECTS_OF_CI


def _kinds_of(features: Iterable[str]) -> dict[str, float]:
    """Return the kinds of steps that features add, with their weights."""
    return {kind: weight for name in sorted(features) for kind, weight in FEATURES[name].items()}


def kind_again(plan: Plan, seed: int) -> str:
    """Return the kind of step to take in place of the step with this seed, which did nothing; empty
    for a plan that was not drawn. One more kind changes it only where it is the new kind itself.
    """
    drawn = {
        kind: Random(f"{seed} again {kind}").expovariate(weight)
        for kind, weight in plan.get("again", {}).items()
    }
    return min(drawn, key=lambda kind: (drawn[kind], kind), default="")


def _draw_steps(seed: int, features: set[str], sink: str) -> list[Any]:
    """Return the steps of a plan.

    The steps of a kind are drawn from a stream of its name, and each has a place among all others.
    So one more kind only adds steps, and a kind of a greater weight has its steps and further ones.
    """
    kinds = {"commit": 10.0, "mood": 2.0, **({} if sink == "python" else {"look": 1.0})}
    kinds |= _kinds_of(features)
    length = Random(f"{seed} length").uniform(10, 60) / _WEIGHT
    placed = [
        (place, kind, step)
        for kind, weight in kinds.items()
        for place, step in _steps_of(seed, kind, weight * length, (*POINTS, *_OF_SINKS[sink]))
    ]
    for name in sorted(features & _OPENERS.keys()):
        chance = Random(f"{seed} opener {name}")
        placed.append((chance.random() / 5, "", [3, _OPENERS[name], chance.randrange(2**31)]))
    placed += _aimed_steps(seed, sink)
    return [step for _, _, step in sorted(placed)]


def _aimed_steps(seed: int, sink: str) -> Iterator[tuple[float, str, list[Any]]]:
    """Yield the steps that aim at places, with their places in the plan."""
    for aimed in PLACES:
        chance = Random(f"{seed} aims at {aimed.name}")
        if chance.random() < aimed.share_of(sink):
            step = [chance.choice(_GAPS), aimed.step, chance.randrange(2**31)]
            yield chance.random(), aimed.step, step


def _steps_of(
    seed: int, kind: str, expected: float, points: Sequence[str]
) -> Iterator[tuple[float, list[Any]]]:
    """Yield the steps of a kind with their places: a number that is ``expected`` in the mean, times
    a factor of this run. Some kinds have none. ``points`` are those at which they may aim."""
    chance = Random(f"{seed} steps {kind}")
    expected *= chance.choice(_OF_COMMITS if kind == "commit" else _FACTORS)
    until = chance.expovariate(1)
    while until < expected:
        place = chance.random()
        gap: int | str = chance.choice(_GAPS)
        if kind == "kill_aimed" or (kind != "commit" and chance.random() < 0.5):
            gap = f"@{chance.choice(points)}*{chance.choice([1, 1, 1, 2, 3, 5])}"
        yield place, [gap, kind, chance.randrange(2**31)]
        until += chance.expovariate(1)


def _draw_dead(chance: Random) -> list[str]:
    """Return who is dead before the end, in some of the plans."""
    return [one for one in DEAD if chance.random() < 0.4] if chance.random() < 0.2 else []


def _draw_consumer(chance: Random) -> Mapping[str, Any]:
    """Return what a consumer has at every start: the classes that it is limited to, and whether
    rows of the publisher's own user are its own, too."""
    is_limited, count = chance.random() < 0.25, chance.choice([1, 2, 4])
    classes = sorted(chance.sample(sorted(KEYS), k=count))
    return {"classes": classes if is_limited else None, "has_driver": chance.random() < 0.5}


def _draw_burst(chance: Random, seed: int) -> int:
    """Return the most objects of a burst: thousands in some of the plans that are not plans of
    CI.
    """
    return chance.choice([60] * 7 + [100] + ([200, 200, 1000, 3000] if seed > _OF_CI else []))


def _draw_bounds(chance: Random) -> Mapping[str, int]:
    """Return the sizes of the product that small tables would never reach, for half of the
    plans.
    """
    if chance.random() < 0.5:
        return {}
    return {
        "keys of a chunk": chance.choice([1, 2, 5]),
        "ranges of a small set": chance.choice([0, 1, 3]),
        "rows shown at once": chance.choice([2, 5, 10_000]),
    }


# --- options --------------------------------------------------------------------------------------


OPTIONS: Mapping[str, Sequence[Any]] = {
    "batch_size": (1, 2, 3, 5, 128),
    "query_limit": (1, 2, 3, 5, 10, 10000, 10000),
    "delivery_rows": (1, 3, 10, 10000, 10000),
    "mark_interval": (0, 0.5, 1, 10),
    "fold_distance": (0, 3, 1000, 1000),
    "fold_span": (0, 5, 10000),
    "on_retry": ("park", "park", "park", "stop"),
    "max_parked": (0, 1, 2, 1000, 1000),
    "concurrency": (1, 1, 2, 4),
    "polling_interval": (1, 10),
    "retry_initial": (1, 1, 20),
    "heartbeat_interval": (0, 0, 0, 1),
    "delete_from_log": (True, *(False,) * 9),
    "handle_future_events": (True, True, *(False,) * 23),
    "isolate_after": (1, 2, 5),
    "max_attempts": (0, 0, 1, 3),
    "allow_loopback": (*(True,) * 3, *(False,) * 7),
    "loopback_action": ("mark", "mark", "keep"),
}
"""What a publisher's options may be at a start."""
FURTHER_OPTIONS: Mapping[str, Sequence[Any]] = {
    "retry_max": (60, 60, 20, 300),
    "noop_updates": ("drop", "drop", "emit"),
    "column_map": (None, None, None, {name: name for name in LOG_COLUMNS}),
    "layout": ("2.x", "2.x", "3.5"),
    "post_poll_statements": ((), (), ["UPDATE polled SET times = times + 1"]),
    "time_of_day": (
        *(None,) * 9,
        ", ".join(f"{n // 60:02}:{n % 60:02}:00" for n in range(0, 1440, 2)),
    ),
}
"""Options that only plans with limits have."""
_OF_PUBLISHERS = ("delete_from_log", "handle_future_events")
_OF_LOOPBACK = ("allow_loopback", "loopback_action")
OF_FORMATS = ("noop_updates",)
"""The options that stand in the section of the format."""
_DELIVERY_BYTES = (1200, 4000, 16 * 2**20, 16 * 2**20)


def _draw_limit(chance: Random, name: str) -> list[Any]:
    """Return the values that an option may have in a run: all, or a few of them."""
    values = list({**OPTIONS, **FURTHER_OPTIONS}[name])
    if chance.random() < 0.5:
        return values
    return [
        values[place] for place in sorted(chance.sample(range(len(values)), k=min(2, len(values))))
    ]


def draw_options(
    chance: Random,
    plan: Plan,
    sink: str,
    *,
    is_consumer: bool,
    has_own_changes: bool = False,
) -> tuple[Plan, Plan]:
    """Return options of a publisher for one start, and bounds below what an option may say.

    ``has_own_changes`` says that some rows of the log are the publisher's own."""
    left_out = {
        *(_OF_PUBLISHERS if is_consumer else ()),
        *(() if has_own_changes else _OF_LOOPBACK),
        *(() if sink == "python" else ("heartbeat_interval",)),
    }
    draw = _by_name(chance, plan["limits"]) if "limits" in plan else _in_turn(chance)
    known = {**OPTIONS, **(FURTHER_OPTIONS if "limits" in plan else {})}
    options = {name: draw(name, values) for name, values in known.items() if name not in left_out}
    bounds = {"delivery_bytes": draw("delivery_bytes", _DELIVERY_BYTES)}
    return {name: value for name, value in options.items() if value not in _UNSET}, bounds


_UNSET = (None, (), "2.x")


_Draw = Callable[[str, Sequence[Any]], Any]


def _by_name(chance: Random, limits: Mapping[str, Sequence[Any]]) -> _Draw:
    """Draw each option from a stream of its name, so that a new one leaves the others as they
    are.
    """
    number = chance.getrandbits(32)
    return lambda name, values: Random(f"{number} {name}").choice(limits.get(name, values))


def _in_turn(chance: Random) -> _Draw:
    """Draw the options of a plan without limits: its story comes from one stream of chance."""

    def draw(name: str, values: Sequence[Any]) -> Any:
        if values[0] is True:
            return chance.random() < values.count(True) / len(values)
        return chance.choice(values)

    return draw


# --- shrinking ------------------------------------------------------------------------------------


def kind_of(failure: str) -> str:
    """Return a failure without the numbers and values that change as a plan shrinks."""
    return re.sub(r"\d+", "0", failure)[:50]


def shrink(plan: Plan, failure_of: Callable[[Plan], str | None], seconds: float = 120.0) -> Plan:
    """Return a plan with fewer steps that fails in the same way. ``failure_of`` runs one."""
    failure = failure_of(plan)
    assert failure is not None, "only a plan that fails can shrink"
    wanted, until = kind_of(failure), time.monotonic() + seconds

    def fails(steps: list[Any]) -> bool:
        told = failure_of({**plan, "steps": steps})
        return told is not None and kind_of(told) == wanted

    steps, size = plan["steps"], max(1, len(plan["steps"]) // 2)
    while size and time.monotonic() < until:
        place, has_shrunk = 0, False
        while place < len(steps) and time.monotonic() < until:
            rest = steps[place + size :]
            gap = sum(one[0] for one in steps[place : place + size] if not isinstance(one[0], str))
            candidates = [[*steps[:place], *rest]]
            if rest and gap and not isinstance(rest[0][0], str):
                candidates.append([*steps[:place], [rest[0][0] + gap, *rest[0][1:]], *rest[1:]])
            found = next((one for one in candidates if fails(one)), None)
            if found is None:
                place += size
            else:
                steps, has_shrunk = found, True
        size = size if has_shrunk and size == 1 else size // 2
    return {**plan, "steps": steps}
