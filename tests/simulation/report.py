"""What a run of many schedules has tried: their numbers, which features met in how many of them,
and the branches of the product that they reached."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING

from excuses import Excuse, too_often
from operators import IN_VAIN, STEPS
from places import PLACES, Place, below_floor, met_places
from plans import FEATURES

import eventlog

if TYPE_CHECKING:
    from coverage import Coverage
    from world import World

MODULES = (
    "publisher/send/cycle", "publisher/ledger/delivery", "publisher/send/marks", "publisher/feeds/snapshot",
    "publisher/send/snapshot_chunks", "publisher/feeds/queue",
    "publisher/ledger/ledger", "sql/readers/followed_set", "sql/readers/consumers", "core/ranges", "core/rows/requeue",
)  # fmt: skip
"""The modules whose branches are counted: the publisher's cycle, and the ledgers."""


_MAX_EXCUSED = 0.1
"""The greatest share of objects that may differ at the end for a reason."""
_ENOUGH = 3000
"""The objects from which on the share means something: those of a hundred schedules or so."""


class Report:
    """What has been tried so far."""

    def __init__(self) -> None:
        self._looked_at = Counter[str]()
        self._needed = Counter[Excuse]()
        """The schedules that needed each excuse."""
        self._counts, self._met = Counter[str](), Counter[tuple[str, ...]]()
        self._steps: list[int] = []
        self._taken = Counter[str]()
        """The steps of each kind, and those that found nothing to do."""
        self._places = Counter[str]()
        self._seconds: list[tuple[float, int]] = []
        """The CPU seconds of each schedule, with its seed."""

    def note(self, world: World, seconds: float) -> None:
        """Count a schedule that has ended, after so many CPU seconds."""
        self._seconds.append((seconds, world.plan["seed"]))
        self._taken.update(
            {
                kind: count
                for kind, count in world.stats.items()
                if kind in STEPS or kind.endswith(IN_VAIN)
            }
        )
        self._counts.update(
            schedules=1,
            failed=bool(world.failures),
            points=world.scheduler.points,
            kills=world.stats["kills"],
            starts=world.stats["starts"],
            checks=world.auditor.checks,
        )
        self._looked_at.update(world.auditor.looked_at)
        self._needed.update((+world.auditor.excused).keys())
        self._places.update(met_places(world.stats))
        self._counts["simulated seconds"] += int(world.scheduler.now)
        self._steps.append(len(world.plan["steps"]))
        met = sorted(_features(world))
        self._met.update((one,) for one in met)
        self._met.update(combinations(met, 2))

    @property
    def has_failed(self) -> bool:
        """True if a schedule has failed, or if too much was excused."""
        return self._counts["failed"] > 0 or self._excuses_too_much or bool(self._too_often)

    @property
    def _too_often(self) -> Mapping[Excuse, int]:
        return too_often(self._needed, self._counts["schedules"])

    @property
    def _excuses_too_much(self) -> bool:
        objects = self._looked_at["objects"]
        return objects >= _ENOUGH and self._excused > _MAX_EXCUSED * objects

    @property
    def _excused(self) -> int:
        return sum(count for what, count in self._looked_at.items() if what.startswith("excused"))

    def numbers(self) -> str:
        """Return the numbers in one line."""
        told = [f"{count:,} {what}" for what, count in self._counts.items()]
        if len(self._steps) > 1:
            middle = ", ".join(f"{step:.0f}" for step in quantiles(self._steps))
            told.append(f"steps by quartile {min(self._steps)}, {middle}, {max(self._steps)}")
        seconds, (most, seed) = (
            sum(one for one, _ in self._seconds),
            max(self._seconds, default=(0.0, 0)),
        )
        told.append(f"{len(self._seconds) / max(seconds, 0.001):.1f} schedules per CPU second")
        return f"{', '.join(told)}, the longest is seed {seed} with {most:.1f} s"

    def in_vain(self) -> Iterator[str]:
        """Yield which steps found nothing to do, those with the greatest share first."""
        shares = {
            kind: self._taken[f"{kind}{IN_VAIN}"] / count
            for kind, count in self._taken.items()
            if kind in STEPS and count
        }
        told = (
            f"{kind} {self._taken[f'{kind}{IN_VAIN}']} of {self._taken[kind]}"
            for kind in sorted(shares, key=lambda one: (-shares[one], one))
            if shares[kind]
        )
        yield f"steps that did nothing: {', '.join(told) or 'none'}"

    def looked_at(self) -> Iterator[str]:
        """Yield what the checks of the end have looked at, and the share of objects that they
        excused.
        """
        for what, count in sorted(self._looked_at.items()):
            yield f"{count:8,} {what}"
        objects = self._looked_at["objects"] or 1
        for excuse in Excuse:
            if count := self._needed[excuse]:
                much = f", FAILURE: more than {100 * excuse.share:g} %"
                told = f"{count:8,} schedules needed the excuse: {excuse.words}"
                yield f"{told}{much if excuse in self._too_often else ''}"
        share = f"{100 * self._excused / objects:.1f} % of the objects are excused"
        yield (
            f"{share}, FAILURE: more than {100 * _MAX_EXCUSED:.0f} %"
            if self._excuses_too_much
            else share
        )

    def places(self) -> Iterator[str]:
        """Yield a table: in how many schedules each place was met, and what is below the floor."""
        schedules = self._counts["schedules"]
        below = {place.name for place in self.below_floor}
        yield f"schedules that met a place, of {schedules}:"
        for place in PLACES:
            count = self._places[place.name]
            share = 100 * count / max(schedules, 1)
            yield f"{count:6} {share:5.1f} %{' BELOW' if place.name in below else ''} {place.name}"

    @property
    def below_floor(self) -> list[Place]:
        """The places that too few of the schedules have met."""
        return below_floor(self._places, self._counts["schedules"])

    def pairs(self) -> Iterator[str]:
        """Yield a table: the schedules in which two features met, and on its diagonal those of
        one.
        """
        names = sorted({name for pair in self._met for name in pair})
        yield "schedules in which features met:"
        yield " " * 12 + "".join(f"{name[:6]:>7}" for name in names)
        for one in names:
            row = (
                self._met[(one,) if one == other else (*sorted((one, other)),)] for other in names
            )
            yield f"{one:12}" + "".join(f"{count:7}" for count in row)


def _features(world: World) -> set[str]:
    """Return the features that were at work in a schedule, by the steps that were taken."""
    plan = world.plan
    met = {name for name, kinds in FEATURES.items() if any(world.stats[kind] for kind in kinds)}
    met |= {plan["sink"], plan["format"], "strict" if plan["is_strict"] else "lenient"}
    if world.stats["snapshots"]:
        met.add("snapshot")
    return met


# --- branches -------------------------------------------------------------------------------------


@contextmanager
def counting_branches() -> Iterator[Coverage]:
    """Count the branches of ``MODULES`` while the block runs."""
    from coverage import Coverage

    root = Path(eventlog.__file__).parent
    counted = Coverage(
        data_file=None,
        branch=True,
        concurrency=["greenlet"],
        include=[str(root / f"{module}.py") for module in MODULES],
        config_file=False,
    )
    counted.start()
    try:
        yield counted
    finally:
        counted.stop()


def branches(counted: Coverage) -> Iterator[str]:
    """Yield the branches that were reached, and those that were not by their functions."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        counted.json_report(outfile=file.name)
        files = json.loads(Path(file.name).read_text())["files"]
    for path, told in sorted(files.items()):
        summary = told["summary"]
        every, reached = summary["num_branches"], summary["covered_branches"]
        share = f"{100 * reached / every:.0f} %" if every else "none"
        module = Path(path).stem
        yield f"{module:13} {reached:3} of {every:3} branches, {share}{_missing(told['functions'])}"


def _missing(functions: dict[str, dict[str, object]]) -> str:
    missing = [
        f"{name or 'module'} {' '.join(f'{start}-{abs(end)}' for start, end in arcs)}"
        for name, told in functions.items()
        if isinstance(arcs := told["missing_branches"], Iterable) and arcs
    ]
    return f"; not reached: {', '.join(missing)}" if missing else ""
