"""``eventlog verify`` in the midst of a schedule: what it calls equal, different or in motion is so.

The target is what a receiver has, or a reader of files, with a few differences that the step plants
and only the verification sees. A receiver may have it in tables of SQLite, which are read by ranges
of keys. Some verifications run alone, as all other processes would be if they were slow for a
moment: then each result is compared with the tables, and an object is in motion if and only if a
row names it that is not done. Others run while somebody writes all the time, or while rows wait
that were requested again. No object may be called different without a reason, such as a refused event: its changes may
only wait.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Collection, Generator, Mapping, Sequence, Set
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

from application import KEYS, OWN_USER, SCHEMA
from plans import CONSUMERS
from ranges import REVERSING
from read_commands import undone_by
from replicas import Replica, class_of
from scheduler import BEGIN, Process

from eventlog.config.load import load
from eventlog.core import table_key
from eventlog.core.catalog import Attribute, ObjectClass
from eventlog.errors import EventlogError
from eventlog.sql.port.log_operations import KeyValues, RangeReader
from eventlog.verify import VerifyOptions, VerifyReport, session
from eventlog.verify.comparison import TargetRow
from eventlog.verify.session import run_verification
from eventlog.verify.targets import Target
from eventlog.verify.targets.table import TableTarget

if TYPE_CHECKING:
    from world import World

Key = tuple[str, str]
Values = Mapping[str, Sequence[str]]

_MAX_POINTS = 20_000
_MOST_SNAPSHOTS = 10
_WAITS = (0.0, 0.0, 5.0, 30.0)
"""The seconds that a verification waits for objects in motion."""
_BATCHES = (1, 2, 5, 100)
_WAIT_OF_SMALL_CHUNKS = 5.0
"""The seconds that one waits at most that reads few objects at a time: each round has many points."""
_BEGINS = "verifies the first objects"
"""Where a verification is that has read which rows are done, and no object."""
_MOST_COMMITS = 30
"""The transactions of a steady writer."""
_UNSTEADY = {"schema", "restores", "backlog", "clock", "loopback"}
"""The features with which objects may differ until the end of a schedule."""
_TABLES = re.sub(r",? PRIMARY KEY( \(.*?\))?| REFERENCES .*?ON DELETE CASCADE", "", SCHEMA)
"""The tables of a target: the columns of a key need not be unique in it."""
_OF_CHILDREN = "customer_tag.tag"
"""The attribute that a target of one row per object does not have."""


class _Twice(dict[str, Sequence[str]]):
    """The values of an object of which a table has two rows."""


class Content:
    """What a receiver has, with planted differences: other values, None = it lacks the object.
    Those that are ``late`` pass when somebody has read them.
    """

    def __init__(
        self,
        replica: Replica,
        planted: Mapping[Key, Values | None],
        late: Mapping[Key, Values | None] = MappingProxyType({}),
    ) -> None:
        self.replica, self.planted, self.late = replica, planted, dict(late)

    def now(self) -> dict[Key, Values]:
        """Return the objects that the target has now."""
        objects: dict[Key, Values | None] = {**self.replica.objects, **self.late, **self.planted}
        return {key: values for key, values in objects.items() if values is not None}


class RowsContent(Content):
    """What a receiver has in tables: a row holds one value of an attribute, also if an event that the
    receiver has refused was to remove the other.
    """

    def now(self) -> dict[Key, Values]:
        return {key: _row(values) for key, values in super().now().items()}


def _row(values: Values) -> Values:
    """Return the values of an object as its rows in a table have them."""
    first = {name: texts[:1] for name, texts in values.items()}
    return _Twice(first) if isinstance(values, _Twice) else first


class ReplicaTarget(Target):
    """The content of a receiver, object by object. ``begins`` is called before the first reading."""

    is_pinned = False

    def __init__(self, content: Content, begins: Callable[[], None] = lambda: None) -> None:
        self._content, self._begins = content, begins

    def __str__(self) -> str:
        return "a replica"

    def attributes(self, cls: ObjectClass) -> Sequence[Attribute]:
        return [one for one in cls.attributes if not one.is_key]

    def rows(self, cls: ObjectClass, keys: Sequence[str]) -> Mapping[str, TargetRow]:
        self._begins()
        content = self._seen()
        names = [one.name for one in self.attributes(cls)]
        found: dict[str, TargetRow] = {}
        for key in keys:
            values = content.get((class_of(cls.name), key))
            if values is not None:
                found[key] = {name: list(values.get(name, ())) for name in names}
            self._content.late.pop((class_of(cls.name), key), None)
        return found

    def other_keys(self, cls: ObjectClass, size: int) -> Generator[list[str], None, None]:
        keys = sorted(key for name, key in self._seen() if name == class_of(cls.name))
        for start in range(0, len(keys), size):
            yield keys[start : start + size]

    def _seen(self) -> Mapping[Key, Values]:
        return self._content.now()


class FilesTarget(ReplicaTarget):
    """The files that a reader has read, as a whole: it reads new ones first."""

    is_pinned = True

    def __init__(self, world: World, content: Content) -> None:
        super().__init__(content)
        self._world, self._pinned = world, dict[Key, Values]()

    def pin(self, classes: Collection[ObjectClass]) -> None:
        self._world.readers.look()
        self._pinned = {key: dict(values) for key, values in self._content.now().items()}

    def _seen(self) -> Mapping[Key, Values]:
        return self._pinned


class TablesTarget(TableTarget):
    """The content of a receiver in tables of SQLite, brought up to date before each reading."""

    def __init__(self, content: Content, path: Path) -> None:
        self._content, self._written = content, dict[Key, Values]()
        self._version = -1
        self._file = sqlite3.connect(path, isolation_level=None)
        self._file.executescript(f"PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; {_TABLES}")
        super().__init__(f"sqlite:///{path}", {})

    def rows(self, cls: ObjectClass, keys: Sequence[str]) -> Mapping[str, TargetRow]:
        self._refresh()
        return super().rows(cls, keys)

    def other_keys(self, cls: ObjectClass, size: int) -> Generator[list[str], None, None]:
        self._refresh()
        return super().other_keys(cls, size)

    def range_reader(self, cls: ObjectClass) -> RangeReader | None:
        reader = super().range_reader(cls)
        if reader is None or (present := reader.present) is None:
            return reader

        def read(*bounds: Any) -> list[tuple[Any, ...]]:
            self._refresh()
            return reader.read(*bounds)

        def find_present(keys: Sequence[KeyValues]) -> Collection[KeyValues]:
            self._refresh()
            return present(keys)

        return RangeReader(reader.orders, read, present=find_present)

    def close(self) -> None:
        super().close()
        self._file.close()

    def _refresh(self) -> None:
        """Write what the receiver has applied since."""
        if self._version == (version := len(self._content.replica.applied)):
            return
        now = {
            key: _Twice(values) if isinstance(values, _Twice) else dict(values)
            for key, values in self._content.now().items()
            if key[0] in KEYS
        }
        self._file.execute("BEGIN")
        for key in self._written.keys() | now.keys():
            if self._written.get(key) != now.get(key):
                self._write(key, now.get(key))
        self._file.execute("COMMIT")
        self._version, self._written = version, now

    def _write(self, key: Key, values: Values | None) -> None:
        table, text = key
        parts = {part.name: part.value for part in table_key.parse(text)}
        condition = " AND ".join(f"{name} = ?" for name in parts)
        self._file.execute(f"DELETE FROM {table} WHERE {condition}", list(parts.values()))
        if values is None:
            return
        row = {name: texts[0] for name, texts in values.items() if texts and "." not in name}
        row |= parts
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        for _ in range(1 + isinstance(values, _Twice)):
            self._file.execute(
                f"INSERT INTO {table} ({names}) VALUES ({marks})", list(row.values())
            )


class _Before(NamedTuple):
    """What was so when a verification began."""

    undone: Mapping[int, Key]
    """The objects of the rows that are not done, by record_id."""
    objects: Set[Key]
    """The objects of the tables."""
    top: int
    requests: int
    """How often an operator has given ``requeue``, -1 = one of these commands still ran."""
    in_flight: Set[Key]
    """The objects of a consumer's snapshot that have no answer."""


def verify(world: World, chance: Random) -> None:
    """An operator verifies what a receiver has."""
    if world.refuses_values or world.application.hidden:
        return
    name = chance.choice([world.auditor.reader, *_consumers(world)])
    is_alone = chance.random() < 0.5
    wait, batch = 0.0 if is_alone else chance.choice(_WAITS), chance.choice(_BATCHES)
    wait = wait if batch == max(_BATCHES) else min(wait, _WAIT_OF_SMALL_CHUNKS)
    _verify(world, chance, name, VerifyOptions(wait, batch), is_alone=is_alone)


def verify_beside(world: World, chance: Random) -> None:
    """An operator verifies what a receiver has while rows wait that were requested again, or while
    others write the same few objects all the time.
    """
    if world.refuses_values:
        return
    if not _consumers(world) and chance.random() < 0.7:
        start_from = "snapshot" if world.has_removed else "earliest"
        world.start(CONSUMERS[0], chance, start_from=start_from)
        world.scheduler.run_on(60)
    running = [name for name in _consumers(world) if name in world.scheduler.processes]
    if not running and world.plan["sink"] == "python" and "publisher" in world.scheduler.processes:
        running.append("receiver")
    for table in sorted(world.application.hidden):
        world.application.rename_back(table)
    name = chance.choice(running or [world.auditor.reader])
    has_request, is_stopped = name in world.receivers and chance.random() < 0.6, False
    requested: tuple[str, ...] = ()
    receiver = world.receivers.get(name, world.receivers["receiver"])
    if has_request:
        receiver.mood, receiver.seed = {"error": 0.5}, chance.randrange(2**31)
        for _ in range(3):
            world.application.commit(chance)
        world.scheduler.run_on(60)
        receiver.mood = chance.choice([{}, {"slow": 1.0}, {"away": 1.0}, {"away": 1.0}])
        of_consumer = ("--consumer", name)
        which = ("--status", "E,F") if name == "receiver" else of_consumer
        process = world.scheduler.processes.get(name)
        if is_stopped := process is not None and chance.random() < 0.5:
            world.stop(process)
        if is_stopped and chance.random() < 0.5:
            requested = which
        else:
            command = world.command("requeue", *which)
            if chance.random() < 0.5:  # nobody else has read the request yet
                world.scheduler.run_alone(command, _MAX_POINTS)
            else:
                world.wait_for_commands()
    world.stats["a verification while rows are asked for"] += has_request
    is_alone = has_request and chance.random() < 0.7
    how = VerifyOptions(0.0 if is_alone else chance.choice([0.0, 5.0]), chance.choice(_BATCHES))
    _verify(
        world,
        chance,
        name,
        how,
        is_alone=is_alone,
        is_beside_writer=not is_alone,
        requested=requested,
    )
    receiver.mood = {}
    if is_stopped:
        world.start(name, chance)


def verify_in_parts(world: World, chance: Random) -> None:
    """An operator stops a verification, writes come meanwhile, and another process continues it: the
    report holds from the beginning of the first one on.
    """
    if world.refuses_values or world.application.hidden:
        return
    name = chance.choice([world.auditor.reader, *_consumers(world)])
    if name == "reader":
        world.readers.look()
    world.application.burst_of(5)
    world.scheduler.run_on(chance.choice([60, 150]))
    consumer = name if name in _consumers(world) else None
    options = {"allow_loopback": True, **world.own_user_of(consumer or "")}
    config = load(world.config_of(options, world.plan["sink"], consumer), {})
    content = Content(world.replica_of(name), {("orders", "id=999999"): {"note": ["planted"]}})
    state = world.directory / f"verification{world.scheduler.points}.json"
    reports: list[VerifyReport] = []

    def run() -> None:
        how = VerifyOptions(0.0, 1)
        try:
            # The progress is saved after each part: no time passes while one runs alone.
            with (
                closing(ReplicaTarget(content)) as target,
                patch.object(session, "SAVED_EACH", -1.0),
            ):
                reports.append(run_verification(config, target, (), how, state=state))
        except EventlogError as error:
            world.tell(f"verify of {name} ends: {error}")

    began = _moment(world)
    for part in (1, 2):
        here = f"command that verifies at {world.scheduler.points} part {part}"
        process = Process(here, {"words": ("verify",)})
        world.tell(f"verify of {name}, part {part}")
        world.scheduler.spawn(process, run)
        if part == 1:
            world.scheduler.run_alone(process, _MAX_POINTS, state.exists)
            if process.is_running:
                world.kill(process)
            if not state.exists():
                return
            world.application.commit(chance)
            world.scheduler.run(60)
            world.scheduler.now += 5
        else:
            world.scheduler.run_alone(process, _MAX_POINTS)
            if process.is_running:
                world.kill(process)
    if not reports:
        return
    (report,) = reports
    world.stats["a verification that continues"] += 1
    world.auditor.checks += 1
    world.tell(f"verify of {name}: {report.result}, begun {report.begun}")
    late = (report.begun.replace(tzinfo=UTC) - began).total_seconds()
    if late > 1 and not world.has_gone_back:
        world.fail(f"a verification that was continued began {late:g} s after its first part")
    planted = {(one.class_name, one.key) for one in report.differences}
    if not planted.issuperset(content.planted) and not world.application.shape.has_changed:
        world.fail(f"a verification in parts finds {sorted(planted)}, and not {content.planted}")


def _moment(world: World) -> datetime:
    return datetime.fromtimestamp(BEGIN + world.scheduler.now + world.scheduler.leap, UTC)


def _consumers(world: World) -> list[str]:
    return sorted(name for name in world.receivers if name != "receiver")


def _verify(
    world: World,
    chance: Random,
    name: str,
    how: VerifyOptions,
    *,
    is_alone: bool,
    is_beside_writer: bool = False,
    requested: Sequence[str] = (),
) -> None:
    """Verify what a receiver has, and check what is reported. ``requested`` are the words with which
    an operator requests rows again when the verification has begun.
    """
    shape = world.application.shape
    may_have_tables = name != "reader" and not shape.has_changed and not requested
    has_tables = may_have_tables and chance.random() < 0.6
    planted = _planted(world, chance, name, has_tables=has_tables)
    late = {} if has_tables or name == "reader" else _late(world, chance, name)
    content = (RowsContent if has_tables else Content)(world.replica_of(name), planted, late)
    order = chance.choice(["", REVERSING])
    path = world.directory / f"target{world.scheduler.points}{order}.db"
    consumer = name if name in _consumers(world) else None
    options: dict[str, Any] = {"allow_loopback": True}
    if "loopback" in world.plan["features"]:
        options |= {"driver_user": OWN_USER, "allow_loopback": False}
    config = load(world.config_of(options, world.plan["sink"], consumer), {})
    limited = world.classes_of(consumer or "")
    classes = sorted(KEYS.keys() if limited is None else limited) if has_tables else []
    process = Process(f"command that verifies at {world.scheduler.points}", {"words": ("verify",)})
    reports: list[VerifyReport] = []
    requests: list[Mapping[int, Key]] = []
    """The rows that were not done when the operator had requested some again."""

    def begins() -> None:
        if requested and not requests:
            requests.append({})
            world.scheduler.point(_BEGINS)

    def opened() -> Target:
        if has_tables:
            return TablesTarget(content, path)
        return FilesTarget(world, content) if name == "reader" else ReplicaTarget(content, begins)

    def run() -> None:
        try:
            with closing(opened()) as target:
                reports.append(run_verification(config, target, classes, how))
        except EventlogError as error:
            world.tell(f"verify of {name} ends: {error}")

    before = _Before(
        undone_by(world, consumer or ""),
        world.application.objects().keys(),
        world.application.top(),
        -1 if _is_requesting(world) else world.stats["eventlog requeue"],
        _objects_in_flight(world, consumer or ""),
    )
    kind = f"{order} tables of " if has_tables else ""
    beside = "alone" if is_alone else "beside a writer" if is_beside_writer else ""
    world.tell(f"verify {kind}{name} {how} {beside}, planted {sorted(content.planted)}")
    world.scheduler.spawn(process, run)
    if requested:
        world.scheduler.run_alone(process, _MAX_POINTS, lambda: _BEGINS in process.places)
        if _BEGINS in process.places:
            world.scheduler.run_alone(world.command("requeue", *requested), _MAX_POINTS)
            requests[:] = [undone_by(world, consumer or "")]
    if is_alone:
        world.scheduler.run_alone(process, _MAX_POINTS)
        is_alone = not process.is_running
    for _ in range(_MOST_COMMITS if is_beside_writer else 0):
        world.scheduler.run(chance.choice([1, 2, 5, 10]), lambda: not process.is_running)
        if process.is_running:
            world.application.commit(chance)
    began = world.scheduler.now
    for _ in range(_MOST_SNAPSHOTS):  # no time passes while a large one is sent
        world.scheduler.run(_MAX_POINTS * (1 + int(how.wait)), lambda: not process.is_running)
        if not process.is_running or world.scheduler.now > began:
            break
    if process.is_running:
        world.fail(f"verify of {name} does not end: it is at {', '.join(process.places)}")
    if not reports:
        return
    (report,) = reports
    called = _called(report)
    world.tell(f"verify of {name}: {report.result}, {sorted(called.items())[:20]}")
    world.auditor.checks += 1
    world.stats[f"verified {'alone' if is_alone else 'among others'}"] += 1
    world.stats["verified in motion"] += bool(report.in_motion)
    world.stats["verified ranges"] += has_tables
    if is_alone:
        lacks = {_OF_CHILDREN} if has_tables else set[str]()
        _compare_all(world, content, report, lacks)
    # Triggers do not see what a statement of a schema change writes.
    if shape.has_changed or "restores" in world.plan["features"]:
        return
    if not _UNSTEADY.intersection(world.plan["features"]):
        _ask_for_reasons(world, name, report, content.planted)
    if requests:
        _compare_requested(world, consumer or "", report, requests[0], before)
    elif before.requests == world.stats["eventlog requeue"]:
        _compare_motion(world, consumer or "", report, before, is_alone=is_alone)
        _find_planted(world, report, content.planted, before)


def _objects_in_flight(world: World, consumer: str) -> set[Key]:
    contents = world.application.session.execute(
        "SELECT content FROM eventlog_inflight WHERE kind = 'delivery' AND owner = ?", (consumer,)
    )
    texts = {
        text
        for (content,) in contents
        for document in json.loads(content)["documents"]
        for text in document.get("objects", ())
    }
    return {(name, key) for name, _, key in (text.partition(".") for text in texts)}


def _is_requesting(world: World) -> bool:
    return any(
        process.is_running and "requeue" in process.start.get("words", ())
        for process in world.scheduler.processes.values()
    )


def _planted(
    world: World, chance: Random, name: str, *, has_tables: bool
) -> dict[Key, Values | None]:
    """Return a few differences to plant: in objects that exist, and a surplus object."""
    there = sorted(world.replica_of(name).objects.items())
    planted: dict[Key, Values | None] = {}
    for key, values in chance.sample(there, k=min(len(there), chance.choice([0, 0, 1, 2]))):
        if has_tables:
            values = _row(values)
        others = {one: [*texts[1:], "planted"] for one, texts in values.items()}
        planted[key] = chance.choice([None, others])
        if has_tables and chance.random() < 0.3:
            planted[key] = _Twice(values)
    if chance.random() < 0.3:
        planted["orders", f"id={chance.choice([0, 999_999])}"] = {"note": ["planted"]}
    return planted


def _late(world: World, chance: Random, name: str) -> dict[Key, Values | None]:
    """Return what a target shows of a few objects until it is read for the first time: a receiver
    may answer a little before its tables show what it was sent.
    """
    there = sorted(world.replica_of(name).objects.items())
    return {
        key: chance.choice([None, {one: [*texts, "late"] for one, texts in values.items()}])
        for key, values in chance.sample(there, k=min(len(there), chance.choice([0, 1, 2])))
    }


def _called(report: VerifyReport) -> dict[Key, str]:
    """Return what a verification calls the objects that are not equal."""
    return {
        **{(class_of(one.class_name), one.key): one.kind.value for one in report.differences},
        **{(class_of(one.class_name), one.key): f"known {one.kind}" for one in report.known},
        **{(class_of(one.class_name), one.key): "in motion" for one in report.in_motion},
    }


def _compare_all(
    world: World, content: Content, report: VerifyReport, lacks: Collection[str]
) -> None:
    """Compare each object with the tables: nothing has changed since."""
    called, columns = _called(report), world.application.shape.columns
    tables, there = world.application.objects(), content.now()
    classes = {class_of(name) for name in report.classes}

    def values(key: Key, objects: Mapping[Key, Values]) -> dict[str, list[str]] | None:
        if key not in objects:
            return None
        return {
            name: sorted(set(texts))
            for name, texts in objects[key].items()
            if texts and name not in lacks and (not name.startswith("extra") or name in columns)
        }

    for key in sorted(set(tables) | set(there)):
        what = called.get(key, "equal")
        if key[0] not in classes or what == "in motion":
            continue
        has, should = values(key, there), values(key, tables)
        is_equal = has == should and not isinstance(there.get(key), _Twice)
        if is_equal != (what == "equal"):
            world.fail(f"verify calls {key} {what}: it is {has}, and the table has {should}")
            return


def _compare_motion(
    world: World, consumer: str, report: VerifyReport, before: _Before, *, is_alone: bool
) -> None:
    """Check that objects are in motion for rows that were not done at some time, and that all are
    in motion that are named by a row which was never done.
    """
    undone, called = undone_by(world, consumer), _called(report)
    for one in report.in_motion:
        needless = [
            row
            for row in one.record_ids
            if row <= before.top
            and row not in before.undone
            and row not in world.application.committed_late
        ]
        has_reason = one.record_ids or (one.class_name, one.key) in before.in_flight
        if needless or (is_alone and not has_reason):
            world.fail(
                f"verify calls {one.class_name} {one.key} in motion for rows {one.record_ids}, and "
                f"{needless} were done"
            )
            return
    compared = _always_there(world, report, before)
    for row in sorted(undone.keys() & before.undone.keys()):
        key = undone[row]
        if key in compared and called.get(key) != "in motion":
            world.fail(
                f"verify calls {key} {called.get(key, 'equal')}, and row {row} of it was not done"
            )
            return


def _compare_requested(
    world: World,
    consumer: str,
    report: VerifyReport,
    requested: Mapping[int, Key],
    before: _Before,
) -> None:
    """Check that all objects are in motion of whose rows some were requested again before the first
    of them was compared, and that were not done at the end.
    """
    called, undone = _called(report), undone_by(world, consumer)
    compared = _always_there(world, report, before)
    for row in sorted(requested.keys() & undone.keys()):
        key = undone[row]
        world.auditor.looked_at["objects requested in a verification"] += key in compared
        if key in compared and called.get(key) != "in motion":
            world.fail(
                f"verify calls {key} {called.get(key, 'equal')}, and row {row} of it was requested "
                "again before it was compared"
            )
            return


def _always_there(world: World, report: VerifyReport, before: _Before) -> set[Key]:
    """Return the objects of the verified classes that were in their tables all the time: one that
    was deleted and came back may have been in neither when its keys were read.
    """
    deleted = {
        (class_of(table), key)
        for table, key in world.application.session.execute(
            "SELECT table_name, table_key FROM eventlog WHERE record_id > ? AND event_type = 4",
            (before.top,),
        )
    }
    classes = {class_of(name) for name in report.classes}
    deleted |= world.application.unlogged
    there = (before.objects & world.application.objects().keys()) - deleted
    return {key for key in there if key[0] in classes}


def _find_planted(
    world: World, report: VerifyReport, planted: Mapping[Key, Any], before: _Before
) -> None:
    """Check that no planted difference was missed whose object nobody has changed meanwhile."""
    changed = {
        (class_of(table), key)
        for table, key in world.application.session.execute(
            "SELECT table_name, table_key FROM eventlog WHERE record_id > ?", (before.top,)
        )
    }
    called, tables = _called(report), world.application.objects()
    classes = {class_of(name) for name in report.classes}
    for key in sorted(planted):
        is_different = key in tables or planted[key] is not None
        has_values = planted[key] is None or set(planted[key]) - {_OF_CHILDREN}
        if not is_different or not has_values or key[0] not in classes or key in changed:
            continue
        if key not in called:
            world.fail(f"verify calls {key} equal, and a difference was planted")
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


__all__ = ["verify", "verify_beside"]
