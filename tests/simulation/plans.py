"""Plans: what happens in a schedule, as data.

A plan is a JSON object: the world (sink, format, ...), and steps. A step is ``[gap, kind, seed]``: after
so many points, something of this kind is done with chances drawn from ``seed``. A gap may be a place in
place of a number: ``@COMMIT inflight*3`` is as soon as a process comes to it for the third time. So a
step can be left out without changing the others, and a plan that fails shrinks by itself.

A plan that is committed as a test says in ``tells`` what its story has to have, as regular expressions:
so the test fails once the plan does not come to its place any more. A step of it may have a fourth
member, an object, which says what its seed would draw: ``{"statement": "BEGIN"}``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

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
        "second": 0.2,
        "skip": 0.4,
        "dry_run": 0.4,
        "restart_parked": 0.3,
        "refuse_deletes": 0.2,
        "requeue_by_time": 0.1,
    },
    "consumers": {
        "consumer": 0.9,
        "requeue_consumer": 0.4,
        "drop_consumer": 0.1,
        "reset_consumer": 0.3,
        "second_consumer": 0.1,
        "kill_gapped_consumer": 0.2,
        "requeue_refused": 0.2,
        "refused_snapshot": 0.4,
    },
    "backlog": {"hold": 0.5, "hand_over": 0.6},
    "purge": {"purge": 0.6},
    "restores": {"copy": 0.5, "restore": 0.5, "new_epoch": 0.2},
    "bursts": {"burst": 0.7, "parked_burst": 0.3},
    "loopback": {"own_commit": 1.5, "requeue_loopback": 0.5},
}
"""The kinds of steps that each feature adds, with their weights."""

_OF_CI = 1000
"""The highest seed whose plan may run in CI."""
PLACES = (
    "send", "rename", "renamed", "put", "put done", "put the state", "the state is put", "gets", "answers", "hangs up",
    "BEGIN", "COMMIT", "committed", "COMMIT inflight", "committed inflight", "COMMIT log", "committed log", "COMMIT consumer",
    "committed consumer", "COMMIT resync", "committed resync", "COMMIT error", "COMMIT epoch", "wait for answers", "sleep",
)  # fmt: skip
"""The places at which a fault may aim."""


def plan_of(seed: int) -> Plan:
    """Return the plan of a seed."""
    chance = Random(f"plan {seed}")
    sink = chance.choices(["python", "files", "objects"], [6, 3, 1])[0]
    features = {name for name in FEATURES if chance.random() < 0.4}
    for name in ("restores", "loopback"):
        if chance.random() < 0.6:
            features.discard(name)
    kinds = {"commit": 10.0, "mood": 2.0, **({} if sink == "python" else {"look": 1.0})}
    for name in sorted(features):
        kinds |= FEATURES[name]
    steps = []
    for _ in range(chance.randrange(10, 60)):
        kind = chance.choices(list(kinds), list(kinds.values()))[0]
        gap: int | str = chance.choice([0, 0, 1, 1, 2, 3, 5, 8, 13, 30])
        if kind != "commit" and chance.random() < 0.5:
            gap = f"@{chance.choice(PLACES)}*{chance.choice([1, 1, 1, 2, 3, 5])}"
        steps.append([gap, kind, chance.randrange(2**31)])
    format_name = chance.choices(["xds", "cloudevents", "debezium"], [6, 2, 2])[0]
    if sink == "python" and Random(f"format {seed}").random() < 0.15:
        format_name = "qlik-messages"
    is_rough = bool(features & {"kills", "faults", "restores"})
    return {
        "seed": seed,
        "sink": sink,
        "format": format_name,
        "layout": chance.choice(["lines", "documents"]) if sink == "files" else "lines",
        "size": chance.choice([2, 3, 5, 12]),
        "burst": _draw_burst(chance, seed) if "bursts" in features else 60,
        "has_view": chance.random() < 0.2,
        "style": "row_query_back" if Random(f"style {seed}").random() < 0.2 else "field",
        "is_strict": is_rough or sink != "python" or chance.random() < 0.3,
        "heals": chance.random() < 0.2,
        "bounds": _draw_bounds(Random(f"bounds {seed}")),
        "first": chance.randrange(2**31),
        "features": sorted(features),
        "steps": steps,
    }


def _draw_burst(chance: Random, seed: int) -> int:
    """Return the most objects of a burst: thousands in some of the plans that are not plans of CI."""
    return chance.choice([60] * 7 + [100] + ([200, 200, 1000, 3000] if seed > _OF_CI else []))


def _draw_bounds(chance: Random) -> Mapping[str, int]:
    """Return the sizes of the product that small tables would never reach, for half of the plans."""
    if chance.random() < 0.5:
        return {}
    return {
        "keys of a chunk": chance.choice([1, 2, 5]),
        "ranges of a small set": chance.choice([0, 1, 3]),
        "rows shown at once": chance.choice([2, 5, 10_000]),
    }


def draw_options(
    chance: Random, sink: str, *, is_consumer: bool, has_own_changes: bool = False
) -> tuple[Plan, Plan]:
    """Return options of a publisher for one start, and bounds below what an option may say.

    ``has_own_changes`` says that some rows of the log are the publisher's own."""
    options = {
        "batch_size": chance.choice([1, 2, 3, 5, 128]),
        "query_limit": chance.choice([1, 2, 3, 5, 10, 10000, 10000]),
        "flight_rows": chance.choice([1, 3, 10, 10000, 10000]),
        "mark_interval": chance.choice([0, 0.5, 1, 10]),
        "fold_distance": chance.choice([0, 3, 1000, 1000]),
        "fold_span": chance.choice([0, 5, 10000]),
        "on_retry": chance.choice(["park", "park", "park", "stop"]),
        "max_parked": chance.choice([0, 1, 2, 1000, 1000]),
        "concurrency": chance.choice([1, 1, 2, 4]),
        "polling_interval": chance.choice([1, 10]),
        "retry_initial": chance.choice([1, 1, 20]),
        "heartbeat_interval": chance.choice([0, 0, 0, 1]) if sink == "python" else 0,
    }
    if not is_consumer:
        options["delete_from_log"] = chance.random() < 0.1
        if chance.random() < 0.08:
            options["handle_future_events"] = True
    options["suspect_after"] = chance.choice([1, 2, 5])
    options["max_tries"] = chance.choice([0, 0, 1, 3])
    if has_own_changes:
        options["allow_loopback"] = chance.random() < 0.3
        options["loopback_rows"] = chance.choice(["consume", "consume", "leave"])
    return options, {"flight_bytes": chance.choice([1200, 4000, 16 * 2**20, 16 * 2**20])}


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
