"""``eventlog verify`` in the midst of a schedule: what it calls equal, the auditor calls equal, and
what it calls different is different.

The target is what a receiver has, or a reader of files, with a few differences that the step plants
and only the verification sees. Half of the verifications run alone, as all other processes would be
if they were slow for a moment: then each result is compared with the tables. And no object may be
called different without a reason, such as a refused event: its changes may only wait.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from application import OWN_USER
from replicas import Replica, class_of
from scheduler import Process

from eventlog.config.load import load
from eventlog.core.catalog import Attribute, ObjectClass
from eventlog.errors import EventlogError
from eventlog.verify import VerifyOptions, VerifyReport
from eventlog.verify.comparison import TargetRow
from eventlog.verify.session import run_verification
from eventlog.verify.targets import Target

if TYPE_CHECKING:
    from world import World

Key = tuple[str, str]
Values = Mapping[str, Sequence[str]]

_MAX_POINTS = 20_000
_WAITS = (0.0, 0.0, 5.0, 30.0)
"""The seconds that a verification waits for objects in motion."""
_BATCHES = (1, 2, 5, 100)
_WAIT_OF_SMALL_CHUNKS = 5.0
"""The seconds that one waits at most that reads few objects at a time: each round has many points."""
_UNSTEADY = {"schema", "restores", "backlog", "clock", "loopback"}
"""The features with which objects may differ until the end of a schedule."""


class ReplicaTarget(Target):
    """What a receiver has, with planted differences: other values, None = it lacks the object."""

    is_pinned = False

    def __init__(self, replica: Replica, planted: Mapping[Key, Values | None]) -> None:
        self._replica, self._planted = replica, planted

    def __str__(self) -> str:
        return "a replica"

    def content(self) -> dict[Key, Values]:
        """Return the objects that the target has now."""
        objects: dict[Key, Values | None] = {**self._replica.objects, **self._planted}
        return {key: values for key, values in objects.items() if values is not None}

    def attributes(self, cls: ObjectClass) -> Sequence[Attribute]:
        return [one for one in cls.attributes if not one.is_key]

    def rows(self, cls: ObjectClass, keys: Sequence[str]) -> Mapping[str, TargetRow]:
        content = self._seen()
        names = [one.name for one in self.attributes(cls)]
        found: dict[str, TargetRow] = {}
        for key in keys:
            values = content.get((class_of(cls.name), key))
            if values is not None:
                found[key] = {name: list(values.get(name, ())) for name in names}
        return found

    def other_keys(self, cls: ObjectClass, size: int) -> Generator[list[str], None, None]:
        keys = sorted(key for name, key in self._seen() if name == class_of(cls.name))
        for start in range(0, len(keys), size):
            yield keys[start : start + size]

    def _seen(self) -> Mapping[Key, Values]:
        return self.content()


class FilesTarget(ReplicaTarget):
    """The files that a reader has read, as a whole: it reads new ones first."""

    is_pinned = True

    def __init__(self, world: World, planted: Mapping[Key, Values | None]) -> None:
        super().__init__(world.readers.remembering, planted)
        self._world, self._pinned = world, dict[Key, Values]()

    def pin(self, classes: Collection[ObjectClass]) -> None:
        self._world.readers.look()
        self._pinned = {key: dict(values) for key, values in self.content().items()}

    def _seen(self) -> Mapping[Key, Values]:
        return self._pinned


def verify(world: World, chance: Random) -> None:
    """An operator verifies what a receiver has."""
    if world.refuses_values or world.application.hidden:
        return
    reader = world.auditor.reader
    consumers = [name for name in world.receivers if name != "receiver"]
    name = chance.choice([reader, *sorted(consumers)])
    planted = _planted(world, chance, name)
    target = (
        FilesTarget(world, planted)
        if name == "reader"
        else ReplicaTarget(world.receivers[name].replica, planted)
    )
    consumer = name if name in consumers else None
    options: dict[str, Any] = {"allow_loopback": True}
    if "loopback" in world.plan["features"]:
        options |= {"driver_user": OWN_USER, "allow_loopback": False}
    config = load(world.config_of(options, world.plan["sink"], consumer), {})
    is_alone = chance.random() < 0.5
    wait, batch = 0.0 if is_alone else chance.choice(_WAITS), chance.choice(_BATCHES)
    how = VerifyOptions(wait if batch == max(_BATCHES) else min(wait, _WAIT_OF_SMALL_CHUNKS), batch)
    process = Process(f"command that verifies at {world.scheduler.points}", {"words": ("verify",)})
    reports: list[VerifyReport] = []

    def run() -> None:
        try:
            reports.append(run_verification(config, target, (), how))
        except EventlogError as error:
            world.tell(f"verify of {name} ends: {error}")

    world.tell(f"verify {name} {how} {'alone' if is_alone else ''}, planted {sorted(planted)}")
    world.scheduler.spawn(process, run)
    if is_alone:
        world.scheduler.run_alone(process, _MAX_POINTS)
        is_alone = not process.is_running
    world.scheduler.run(_MAX_POINTS * (1 + int(how.wait)), lambda: not process.is_running)
    if process.is_running:
        world.fail(f"verify of {name} does not end: it is at {', '.join(process.places)}")
    if not reports:
        return
    (report,) = reports
    world.tell(f"verify of {name}: {report.result}, {sorted(_called(report).items())[:20]}")
    world.auditor.checks += 1
    world.stats[f"verified {'alone' if is_alone else 'among others'}"] += 1
    if is_alone:
        _compare_all(world, target, report)
    # Triggers do not see what a statement of a schema change writes.
    has_changed = world.application.shape.has_changed
    if not has_changed and not _UNSTEADY.intersection(world.plan["features"]):
        _ask_for_reasons(world, name, report, planted)


def _planted(world: World, chance: Random, name: str) -> dict[Key, Values | None]:
    """Return a few differences to plant: in objects that exist, and a surplus object."""
    there = sorted(world.replica_of(name).objects.items())
    planted: dict[Key, Values | None] = {}
    for key, values in chance.sample(there, k=min(len(there), chance.choice([0, 0, 1, 2]))):
        others = {one: [*texts[1:], "planted"] for one, texts in values.items()}
        planted[key] = chance.choice([None, others])
    if chance.random() < 0.3:
        planted["orders", f"id={chance.choice([0, 999_999])}"] = {"note": ["planted"]}
    return planted


def _called(report: VerifyReport) -> dict[Key, str]:
    """Return what a verification calls the objects that are not equal."""
    return {
        **{(class_of(one.class_name), one.key): one.kind.value for one in report.differences},
        **{(class_of(one.class_name), one.key): f"known {one.kind}" for one in report.known},
        **{(class_of(one.class_name), one.key): "in motion" for one in report.in_motion},
    }


def _compare_all(world: World, target: ReplicaTarget, report: VerifyReport) -> None:
    """Compare each object with the tables: nothing has changed since."""
    called, columns = _called(report), world.application.shape.columns
    tables, there = world.application.objects(), target.content()
    classes = {class_of(name) for name in report.classes}

    def values(key: Key, objects: Mapping[Key, Values]) -> dict[str, list[str]] | None:
        if key not in objects:
            return None
        return {
            name: sorted(set(texts))
            for name, texts in objects[key].items()
            if texts and (not name.startswith("extra") or name in columns)
        }

    for key in sorted(set(tables) | set(there)):
        what = called.get(key, "equal")
        if key[0] not in classes or what == "in motion":
            continue
        has, should = values(key, there), values(key, tables)
        if (has == should) != (what == "equal"):
            world.fail(f"verify calls {key} {what}: it is {has}, and the table has {should}")
            return


def _ask_for_reasons(
    world: World, name: str, report: VerifyReport, planted: Mapping[Key, Any]
) -> None:
    """Check that the auditor has a reason for each object that differs."""
    excuses = world.auditor.reasons_to_differ(name)
    if excuses is None:
        return
    for key, what in _called(report).items():
        if what in ("value", "missing", "surplus") and key not in excuses and key not in planted:
            world.fail(f"verify of {name} calls {key} {what}, and nothing has gone wrong with it")
            return


__all__ = ["verify"]
