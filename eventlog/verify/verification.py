"""One verification: rounds over the classes until each object is decided or the time has run out
(spec/verify.md 1.1; its proof is spec/verify.md 2).

A round reads the rows of some objects in the target, and then, on one snapshot of the source, the
rows of the same objects and the rows of the log that the reader had not done before the target was
read. Objects without such a row are decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

from eventlog.core.catalog import ObjectClass
from eventlog.core.checks import is_of
from eventlog.core.clock import monotonic, sleep
from eventlog.errors import DatabaseError
from eventlog.model import EventType, Status, unpadded
from eventlog.publisher.context import Context
from eventlog.publisher.refusals import refused
from eventlog.sql.rows import SKIPPED
from eventlog.sql.windows import (
    ANY_STATUS,
    FindKeys,
    KeyValues,
    PresentKeys,
    ReadRange,
    Selection,
    Walk,
)
from eventlog.verify.comparison import (
    SEVERAL_ROWS,
    Comparison,
    TargetRow,
    Texts,
    row_of_entries,
)
from eventlog.verify.ordered_keys import OrderedKeys, ordered_keys
from eventlog.verify.report import (
    MAX_LISTED,
    ClassReport,
    Difference,
    InMotion,
    Kind,
    VerifyReport,
)
from eventlog.verify.rule import ObjectName, UndoneRows, object_named, snapshot
from eventlog.verify.targets import Target

_REST: Final = 0.5
"""The seconds between two rounds."""
_FIELDS: Final = ("record_id", "status", "perpetrator", "table_name", "table_key")
_MAX_ROWS: Final = 5
"""The most rows of the log that the report names for one difference."""
_SEVERAL: Final = "the target has several rows of this key"


class Progress(NamedTuple):
    """The progress of a verification, from which it can continue after a stop."""

    class_name: str
    position: str | None
    """The last key of the class that was read; None = nothing of the class was read yet."""
    report: VerifyReport
    waiting: Mapping[ObjectName, Difference | None]


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """The options of a verification. Times are in seconds."""

    wait: float = 60.0
    """How long to wait for objects whose changes the reader has not done."""
    batch: int = 5_000
    """The most objects that are read at once."""
    rate: float | None = None
    """The most objects that are read per second, None = no limit."""


class _Ranges(NamedTuple):
    """The source and the target of a class whose objects can be read from both by ranges of keys.

    ``lookups`` is None if the same bounds mean the same keys on both sides.
    """

    keys: OrderedKeys
    read_source: ReadRange
    read_target: ReadRange
    names: Sequence[str]
    """The attributes, in the order of their texts in a row."""
    lookups: _Lookups | None = None


class _Lookups(NamedTuple):
    """How the objects of each side are found on the other side, if keys are sorted differently."""

    read_source_keys: ReadRange
    find_in_source: FindKeys
    present_in_target: PresentKeys


@dataclass(slots=True)
class _ClassSource:
    """A class in the source, with the attributes that are compared."""

    cls: ObjectClass
    walk: Walk
    comparison: Comparison
    report: ClassReport
    ranges: _Ranges | None


@dataclass(slots=True)
class Verification:
    """A verification of a target, on the session of a context that nobody else uses."""

    context: Context
    undone: UndoneRows
    target: Target
    options: VerifyOptions
    report: VerifyReport
    advance: Callable[[int], None] = lambda objects: None
    save: Callable[[Progress], None] = lambda progress: None
    waiting: dict[ObjectName, Difference | None] = field(default_factory=dict)
    """The objects to compare in later rounds. An object that differed in its last check has its
    difference.
    """
    _sources: dict[str, _ClassSource] = field(default_factory=dict)
    _begun: float = field(default_factory=monotonic)
    _read: int = 0

    def run(
        self, classes: Sequence[ObjectClass], place: tuple[str, str | None] | None = None
    ) -> None:
        """Compare all objects of the classes. ``place`` is the class and the key after which to
        begin; earlier classes were compared already.

        Raises DatabaseError and ConfigError.
        """
        log = self.context.log
        with snapshot(log):
            for cls in classes:
                self._sources[cls.name] = self._source(cls)
        self.target.pin(classes)
        names = [cls.name for cls in classes]
        start = names.index(place[0]) if place is not None and place[0] in names else 0
        for number, name in enumerate(names[start:]):
            position = place[1] if place is not None and number == 0 else None
            source = self._sources[name]
            if source.ranges is None:
                self._walk(source, position)
                self._find_surplus(source)
            elif (lookups := source.ranges.lookups) is None:
                self._walk_ranges(source, source.ranges, position)
            else:
                if position is None:
                    self._find_missing(source, source.ranges, lookups)
                self._walk_target(source, source.ranges, lookups, position)
        self._wait(classes)
        self._end()

    def _source(self, cls: ObjectClass) -> _ClassSource:
        selection = Selection(cls.name, EventType.INSERT_ROW_QUERY_BACK)
        walk = self.context.log.start_walk(self.context.catalog.schema, cls, selection)
        report = self.report.class_report(cls.name)
        comparison = Comparison(self.target.attributes(cls), self.target.stored_as(cls))
        for name in self.target.not_stored(cls):
            self.report.losses[f"{cls.name}.{name}"] = "the target does not have this column"
        return _ClassSource(cls, walk, comparison, report, self._ranges(cls, comparison))

    def _ranges(self, cls: ObjectClass, comparison: Comparison) -> _Ranges | None:
        names = [one.name for one in comparison.attributes]
        if any(child.attribute.name in names for child in cls.children):
            return None
        keys, target = ordered_keys(cls), self.target.range_reader(cls)
        if keys is None or target is None:
            return None
        source = self.context.log.db.range_reader(
            self.context.catalog.schema, cls, comparison.attributes
        )
        if source is None:
            return None
        ranges = _Ranges(keys, source.read, target.read, names)
        if source.orders == target.orders:
            return ranges
        of_keys = self.context.log.db.range_reader(self.context.catalog.schema, cls, ())
        if of_keys is None or source.find is None or target.present is None:
            return None
        return ranges._replace(lookups=_Lookups(of_keys.read, source.find, target.present))

    # --- the first round ---

    def _walk_ranges(self, source: _ClassSource, ranges: _Ranges, position: str | None) -> None:
        """Compare all objects of a class that the source or the target has, after a key. Both are
        read once. Only the databases compare keys, since their order may be that of a collation.
        """
        log, size, width = self.context.log, self.options.batch, ranges.keys.width
        behind = None if position is None else ranges.keys.values_of(position)
        is_end, number, earlier = False, 0, None
        while not is_end:
            # Where a range begins, no earlier one began, unless one side's index is corrupt.
            if number and behind == earlier:
                raise DatabaseError(
                    f"{log} and {self.target} sort the keys of class {source.cls.name} "
                    "differently, although their collations are the same. Rebuild the indexes of "
                    "the key in both (REINDEX)"
                )
            number += 1
            if number & (number - 1) == 0:  # finds a cycle of any length
                earlier = behind
            there: Sequence[tuple[Any, ...]] = ranges.read_target(behind, None, size)
            last = there[-1][:width] if len(there) == size else None
            is_read = False
            while not is_read:
                with snapshot(log):
                    self.undone.read_new()
                    here = ranges.read_source(behind, last, size)
                    is_last = len(here) < size or here[-1][:width] == last
                    there = self._judge_rows(source, ranges, here, there)
                    if is_last:
                        self._judge_surplus(source, ranges, there)
                    # Without rows of the target that are not compared yet, the next range may begin
                    # within this one.
                    is_read = is_last or not there
                    if is_read:
                        self._move_on()
                is_end = is_last and last is None
                behind = last if is_last else here[-1][:width]
                if is_read and behind is not None:
                    position = ranges.keys.text_of(behind)
                    self.save(Progress(source.cls.name, position, self.report, self.waiting))
                self._pace(len(here))

    def _find_missing(self, source: _ClassSource, ranges: _Ranges, lookups: _Lookups) -> None:
        """Find the objects of a class that only the source has."""
        log, size = self.context.log, self.options.batch
        with snapshot(log):
            keys = lookups.read_source_keys(None, None, size)
        while keys:
            present = lookups.present_in_target(keys)
            missing = [key for key in keys if key not in present]
            with snapshot(log):
                self.undone.read_new()
                self._wait_for_undone(source, ranges, keys)
                for row in lookups.find_in_source(missing):
                    name = source.cls.name, ranges.keys.text_of(row)
                    if name not in self.waiting:
                        found = row_of_entries(ranges.names, row[ranges.keys.width :])
                        self._judge_one(source, name, found, None)
                following = []
                if len(keys) == size:
                    following = lookups.read_source_keys(keys[-1], None, size)
                self._move_on()
            self._pace(0, keys=len(keys))
            keys = following

    def _wait_for_undone(
        self, source: _ClassSource, ranges: _Ranges, keys: Iterable[KeyValues]
    ) -> None:
        """Compare objects in motion in later rounds. A receiver may remove an object for a moment
        while it applies a change, so that ``_walk_target`` does not see it.
        """
        if not self.undone.objects:
            return
        for key in keys:
            name = source.cls.name, ranges.keys.text_of(key)
            if name in self.undone.objects:
                self.waiting.setdefault(name, None)

    def _walk_target(
        self, source: _ClassSource, ranges: _Ranges, lookups: _Lookups, position: str | None
    ) -> None:
        """Compare all objects of a class that the target has, after a key."""
        log, size, width = self.context.log, self.options.batch, ranges.keys.width
        behind = None if position is None else ranges.keys.values_of(position)
        while there := ranges.read_target(behind, None, size):
            is_last, behind = len(there) < size, there[-1][:width]
            if self.waiting:  # a later round compares these objects
                class_name, text_of = source.cls.name, ranges.keys.text_of
                there = [row for row in there if (class_name, text_of(row)) not in self.waiting]
            with snapshot(log):
                self.undone.read_new()
                here = lookups.find_in_source([row[:width] for row in there])
                self._judge_surplus(source, ranges, self._judge_rows(source, ranges, here, there))
                self._move_on()
            position = ranges.keys.text_of(behind)
            self.save(Progress(source.cls.name, position, self.report, self.waiting))
            self._pace(len(here))
            if is_last:
                return

    def _judge_rows(
        self,
        source: _ClassSource,
        ranges: _Ranges,
        here: Sequence[tuple[Any, ...]],
        there: Sequence[tuple[Any, ...]],
    ) -> Sequence[tuple[Any, ...]]:
        """Decide objects of the source, and return the rows of the target that are of none of them.
        An object is equal if its key and all texts are equal; only other objects are compared
        column by column.
        """
        if here == there and not self.undone.objects and not self.waiting:
            source.report.equal += len(here)
            return []
        width, names, class_name = ranges.keys.width, ranges.names, source.cls.name
        others = {row[:width]: row for row in there}
        is_quiet = not self.undone.objects and not self.waiting
        for row in here:
            other = others.pop(row[:width], None)
            if is_quiet and row == other:
                source.report.equal += 1
                continue
            name = class_name, ranges.keys.text_of(row)
            if row == other and name not in self.undone.objects and name not in self.waiting:
                source.report.equal += 1
            else:
                found = None if other is None else row_of_entries(names, other[width:])
                self._judge_one(source, name, row_of_entries(names, row[width:]), found)
        return list(others.values())

    def _judge_surplus(
        self, source: _ClassSource, ranges: _Ranges, rows: Iterable[tuple[Any, ...]]
    ) -> None:
        """Decide objects of the target that the source does not have."""
        for row in rows:
            name = source.cls.name, ranges.keys.text_of(row)
            found = row_of_entries(ranges.names, row[ranges.keys.width :])
            self._judge_one(source, name, None, found)

    def _walk(self, source: _ClassSource, position: str | None) -> None:
        """Compare all objects of a class that the source has, after a key."""
        log, size = self.context.log, self.options.batch
        with snapshot(log):
            keys = log.keys_after(source.walk, position, size)
        while keys:
            there = self.target.rows(source.cls, keys)
            with snapshot(log):
                here = self._read_source(source, keys)
                following = log.keys_after(source.walk, keys[-1], size)
                self._judge(source, keys, here, there)
                self._move_on()
            self.save(Progress(source.cls.name, keys[-1], self.report, self.waiting))
            self._pace(len(keys))
            keys = following

    def _find_surplus(self, source: _ClassSource) -> None:
        """Find the objects of a class that only the target has."""
        log = self.context.log
        with closing(self.target.other_keys(source.cls, self.options.batch)) as parts:
            for keys in parts:
                valid = [key for key in keys if source.cls.has_key(key)]
                with snapshot(log):
                    self.undone.read_new()
                    present = self.context.query_back(source.cls, valid, ())
                    for key in keys:
                        if key in present:
                            continue
                        name = source.cls.name, key
                        if name not in self.waiting:
                            self._judge_one(source, name, None, {})
                    self._move_on()
                self._pace(0)

    def _read_source(
        self, source: _ClassSource, keys: Sequence[str]
    ) -> Mapping[str, Mapping[str, Texts]]:
        self.undone.read_new()
        return self.context.query_back(source.cls, keys, source.comparison.attributes)

    def _judge(
        self,
        source: _ClassSource,
        keys: Iterable[str],
        here: Mapping[str, Mapping[str, Texts]],
        there: Mapping[str, TargetRow],
    ) -> None:
        for key in keys:
            self._judge_one(source, (source.cls.name, key), here.get(key), there.get(key))

    def _judge_one(
        self,
        source: _ClassSource,
        name: ObjectName,
        here: Mapping[str, Texts] | None,
        there: TargetRow | None,
    ) -> None:
        """Decide one object, if it can be decided. A difference counts only when a second check
        finds it too: a receiver may answer a little before its tables show what it was sent.
        """
        if name in self.undone.objects:
            self.waiting[name] = None
            return
        found = self._difference(source, name, here, there)
        if found is None:
            self.report.unconfirmed += self.waiting.pop(name, None) is not None
            source.report.equal += here is not None
        elif self.waiting.get(name) is not None:
            del self.waiting[name]
            self._add(found)
        elif name in self.waiting or len(self.waiting) < MAX_LISTED:
            self.waiting[name] = found
        else:
            self._add(found)

    def _difference(
        self,
        source: _ClassSource,
        name: ObjectName,
        here: Mapping[str, Texts] | None,
        there: TargetRow | None,
    ) -> Difference | None:
        if here is None and there is None:
            return None
        if there is SEVERAL_ROWS:
            return Difference(*name, Kind.SURPLUS, fault=_SEVERAL)
        if here is None or there is None:
            return Difference(*name, Kind.SURPLUS if here is None else Kind.MISSING)
        columns = source.comparison.differences(here, there)
        return Difference(*name, Kind.VALUE, columns) if columns else None

    def _add(self, found: Difference) -> None:
        if len(self.report.differences) < MAX_LISTED:
            self.report.differences.append(found)
        else:
            self.report.unlisted += 1
            self.report.classes[found.class_name].count(found.kind)

    def _move_on(self) -> None:
        """From now on, compare the target with the rows that the reader has done by now."""
        if not self.target.is_pinned:
            self.undone.forget_done()

    def _pace(self, objects: int, *, keys: int = 0) -> None:
        """End a part in which so many objects, and keys alone, were read."""
        self.undone.close_gaps()
        self._read += objects + keys
        self.advance(objects)
        if self.options.rate is not None:
            early = self._read / self.options.rate - (monotonic() - self._begun)
            if early > 0:
                sleep(early)

    # --- later rounds ---

    def _wait(self, classes: Sequence[ObjectClass]) -> None:
        """Compare again the objects that were not decided, or that differed once."""
        until = monotonic() + self.options.wait
        late_rounds = 0
        # One more round confirms the differences that the last round found.
        while self.waiting and (late_rounds == 0 or (late_rounds == 1 and self._has_differed())):
            late_rounds += monotonic() >= until
            sleep(min(_REST, self.options.wait))
            with snapshot(self.context.log):
                self.undone.read_new()
                self.undone.forget_done(at_once=True)
            self.target.pin(classes)
            for class_name, names in groupby(sorted(self.waiting), itemgetter(0)):
                keys, size = [key for _, key in names], self.options.batch
                for start in range(0, len(keys), size):
                    self._compare_again(self._sources[class_name], keys[start : start + size])
            self.undone.close_gaps()

    def _has_differed(self) -> bool:
        return any(found is not None for found in self.waiting.values())

    def _compare_again(self, source: _ClassSource, keys: Sequence[str]) -> None:
        log = self.context.log
        there = self.target.rows(source.cls, keys)
        valid = [key for key in keys if source.cls.has_key(key)]
        with snapshot(log):
            here = self._read_source(source, valid)
            self._judge(source, keys, here, there)
            if not self.target.is_pinned:
                self.undone.forget_done(at_once=True)

    # --- the end ---

    def _end(self) -> None:
        """Find the reasons why objects differ or are still changing, and add up the numbers."""
        for source in self._sources.values():
            for column in source.comparison.losses:
                self.report.losses[f"{source.cls.name}.{column}"] = (
                    "the target stores another value by design"
                )
            for key, fault in self.target.faults(source.cls).items():
                self._add(Difference(source.cls.name, key, Kind.VERSIONS, fault=fault))
        log = self.context.log
        with snapshot(log):
            self.report.in_motion = [self._in_motion(name) for name in self.waiting]
            if self.report.differences:
                self._explain()
        for moving in self.report.in_motion:
            self.report.classes[moving.class_name].in_motion += 1
        known = [one for one in self.report.differences if one.reason]
        self.report.known = known
        self.report.differences = [one for one in self.report.differences if not one.reason]
        for one in self.report.differences:
            self.report.classes[one.class_name].count(one.kind)
        for one in known:
            self.report.classes[one.class_name].known_different += 1
        self.report.seconds = monotonic() - self._begun

    def _in_motion(self, name: ObjectName) -> InMotion:
        ids = sorted(self.undone.objects.get(name, ()))
        age = None
        if ids:
            log = self.context.log
            for _, event_time in log.read_columns([(ids[0], ids[0])], ("record_id", "event_time")):
                try:
                    zone = self.context.options.event_time_zone
                    moment = None if event_time is None else datetime.fromisoformat(event_time)
                    here = datetime.fromisoformat(log.due_until(zone))
                    age = None if moment is None else max(0.0, (here - moment).total_seconds())
                except (ValueError, TypeError):
                    age = None
        return InMotion(*name, ids, age)

    def _explain(self) -> None:
        """Add to each difference the newest rows that name its object and, if the newest one shows
        why the object must differ, the reason (spec/verify.md 3.2). The log is read once.
        """
        log, catalog = self.context.log, self.context.catalog
        wanted = {one.name: one for one in self.report.differences}
        newest: dict[ObjectName, list[tuple[int, str, str | None]]] = {}
        window = ANY_STATUS.outside(type(self.undone.seen.done)(), log.dialect.last_record_id)
        for part in log.read_fields(window, _FIELDS):
            for record_id, status, perpetrator, table_name, table_key in part:
                name = object_named(catalog, table_name, table_key)
                if name in wanted:
                    assert name is not None
                    rows = newest.setdefault(name, [])
                    rows.append((int(record_id), unpadded(status), perpetrator))
                    del rows[:-_MAX_ROWS]
        lines, _ = refused(log, consumer=self.context.ledger.consumer)
        for name, rows in newest.items():
            record_id, status, perpetrator = rows[-1]
            one = wanted[name]
            one.record_ids = [number for number, _, _ in rows]
            code = lines[record_id].code if record_id in lines else ""
            if not one.fault:
                one.reason = self._reason(status, perpetrator, code)

    def _reason(self, status: str, perpetrator: str | None, code: str) -> str:
        """Return why the newest row of an object was not applied, empty if it was applied."""
        if self.target.names_done:
            return ""
        is_refused = bool(code)
        if not self.context.ledger.consumer:
            is_refused = status in (Status.ERROR, Status.FATAL)
        if is_refused and code == SKIPPED:
            return "its newest change was skipped"
        if is_refused:
            return f"its newest change was refused: {code or status}"
        if is_of(perpetrator, self.context.options.driver_user):
            return "its newest change is loopback"
        return ""
