"""One verification: rounds over the classes until each object is decided or the time has run out
(spec/verify.md 1.1; its proof is spec/verify.md 2).

A round reads the rows of some objects in the target. Then, on one database snapshot of the source,
it reads the rows of the same objects, and the rows of the log that the reader had not done before
the target was read. An object is decided if none of these rows of the log names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import groupby, islice
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias, TypeVar

from eventlog.core.catalog import Attribute, ObjectClass
from eventlog.core.clock import monotonic, sleep
from eventlog.core.ranges import to_ranges
from eventlog.core.rows.checks import is_of
from eventlog.errors import DatabaseError, SnapshotOutdated
from eventlog.model import EventType, Status, unpadded
from eventlog.publisher.context.context import Context
from eventlog.publisher.inspect.refusals import refused
from eventlog.sql.log.database_snapshots import REST, DatabaseSnapshots, database_snapshot
from eventlog.sql.log.errors import SKIPPED, SUPERSEDED
from eventlog.sql.log.rows import extent
from eventlog.sql.port.log_operations import (
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
    RangeRow,
    TargetRow,
    Texts,
    row_of_entries,
)
from eventlog.verify.motion import Motion, ObjectName
from eventlog.verify.ordered_keys import OrderedKeys, ordered_keys
from eventlog.verify.report import (
    MAX_LISTED,
    ClassReport,
    Difference,
    InMotion,
    Kind,
    Unproven,
    VerifyReport,
)
from eventlog.verify.rule import Forget, UndoneRows, object_named
from eventlog.verify.targets import Target

_FIELDS: Final = ("record_id", "status", "perpetrator", "table_name", "table_key")
_MAX_ROWS: Final = 5
"""The maximum number of rows of the log that the report names for one difference."""
_AT_ONCE: Final = 1_000
"""The maximum number of rows of the log whose times are read with one statement."""
_EXPLAINED: Final = 500_000
"""The maximum number of record_ids that are read in one database snapshot to explain differences.
"""
_SEVERAL: Final = "the target has several rows of this key"
_BEFORE_ALL: Final[ObjectName] = ("", "")

_Read: TypeAlias = tuple[str, Mapping[str, Texts] | None, TargetRow | None]
"""An object as it was read: its key, its values in the source, and its values in the target. None
in place of values = the object does not exist there.
"""


_Rows: TypeAlias = Sequence[RangeRow]
"""Objects: the values of the key, then the texts of the attributes (``ReadRange``)."""
_NO_ROWS: Final[_Rows] = ()

K = TypeVar("K")
R = TypeVar("R")


def _always(_: object) -> bool:
    return True


class Progress(NamedTuple):
    """The progress of a verification, from which it can continue after a stop."""

    class_name: str
    reached: str | None
    """The last key of the class that was read; None = nothing of the class was read yet."""
    report: VerifyReport
    waiting: Callable[[], Iterator[ObjectName]]
    """A function that yields the objects that wait for a later round."""


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """The options of a verification. Times are in seconds."""

    wait: float = 60.0
    """How long to wait for objects whose changes the reader has not done."""
    batch: int = 5_000
    """The maximum number of objects read at once."""
    rate: float | None = None
    """The maximum number of objects read per second, None = no limit."""


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

    def text_of(self, key: KeyValues | None) -> str | None:
        """Return the canonical key of a bound; None = no bound."""
        return None if key is None else self.keys.text_of(key)

    def source_reader(
        self, behind: KeyValues | None, last: KeyValues | None, size: int, there: _Rows
    ) -> Callable[[], _Rows]:
        """Return the function that reads objects of the source: the objects between two keys or,
        with ``lookups``, the objects that the target's rows ``there`` name.
        """
        if self.lookups is None:
            return partial(self.read_source, behind, last, size)
        return partial(self.lookups.find_in_source, [row[: self.keys.width] for row in there])

    def ends(self, last: KeyValues | None, size: int, here: _Rows) -> bool:
        """Return True if these objects of the source are the last ones up to a key."""
        return len(here) < size or here[-1][: self.keys.width] == last


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
    snapshots: DatabaseSnapshots
    undone: UndoneRows
    motion: Motion
    target: Target
    options: VerifyOptions
    report: VerifyReport
    advance: Callable[[int], None] = lambda objects: None
    save: Callable[[Progress], None] = lambda progress: None
    differed: dict[ObjectName, Difference | None] = field(default_factory=dict)
    """The objects that differed in an earlier check and wait, with the difference that the last
    check found; None = the last check found no difference.
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
        with database_snapshot(log):
            for cls in classes:
                self._sources[cls.name] = self._source(cls)
        self.target.pin(classes)
        names = [cls.name for cls in classes]
        start = names.index(place[0]) if place is not None and place[0] in names else 0
        for number, name in enumerate(names[start:]):
            reached = place[1] if place is not None and number == 0 else None
            source = self._sources[name]
            if source.ranges is None:
                self.walk(source, reached)
                self._find_surplus(source)
            else:
                if source.ranges.lookups is not None and reached is None:
                    self._find_missing(source, source.ranges, source.ranges.lookups)
                self._walk_ranges(source, source.ranges, reached)
        self.wait(classes)
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
        if cls.condition is not None:
            return None  # a range has all objects, whether they exist for the reader or not
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

    def _walk_ranges(self, source: _ClassSource, ranges: _Ranges, reached: str | None) -> None:
        """Compare the objects of a class after a key: all objects that the target has and, without
        ``lookups``, also the objects that only the source has. Only the databases compare keys,
        since a collation may define their order.
        """
        log, size, width = self.context.log, self.options.batch, ranges.keys.width
        behind = None if reached is None else ranges.keys.values_of(reached)
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
            there: _Rows = ranges.read_target(behind, None, size)
            last = there[-1][:width] if len(there) == size else None
            if ranges.lookups is not None and self.motion.has_waiting:
                there = [row for _, row in self._not_waiting(source, ranges, there)]
            is_read = False
            while not is_read:
                here, is_last, is_read = _NO_ROWS, True, True
                read = ranges.source_reader(behind, last, size, there)
                ends = partial(ranges.ends, last, size)
                bounds = ranges.text_of(behind), ranges.text_of(last)
                if (found := self._read_source(source, bounds, read, ends)) is not None:
                    here, forget = found
                    is_last = ends(here)
                    there = self._judge_rows(source, ranges, here, there)
                    if is_last:  # what is left has no object in the source
                        surplus = [
                            (
                                ranges.keys.text_of(row),
                                None,
                                row_of_entries(ranges.names, row[width:]),
                            )
                            for row in there
                        ]
                        self._judge(source, surplus)
                    forget()
                    # Without rows of the target that are not compared yet, the next range may begin
                    # within this one.
                    is_read = is_last or not there
                is_end = is_last and last is None
                behind = last if is_last else here[-1][:width]
                if is_read and behind is not None:
                    self._save(source, ranges.keys.text_of(behind))
                self._pace(len(here))

    def _find_missing(self, source: _ClassSource, ranges: _Ranges, lookups: _Lookups) -> None:
        """Find the objects of a class that only the source has."""
        size, width, behind, is_last = self.options.batch, ranges.keys.width, None, False
        while not is_last:
            page = partial(lookups.read_source_keys, behind, None, size)
            keys = self._read_keys(source, ranges.text_of(behind), page)
            if not keys:
                return
            is_last, before, behind = len(keys) < size, behind, keys[-1]
            present = lookups.present_in_target(keys)
            missing = [key for key in keys if key not in present]
            bounds = ranges.text_of(before), ranges.text_of(behind)
            read = partial(lookups.find_in_source, missing)
            if (found := self._read_source(source, bounds, read)) is not None:
                rows, forget = found
                # A receiver may remove an object for a moment while it applies a change, so that
                # ``_walk_ranges`` does not see it.
                self._held(source.cls.name, list(map(ranges.keys.text_of, keys)))
                self._judge(
                    source,
                    [
                        (key, row_of_entries(ranges.names, row[width:]), None)
                        for key, row in self._not_waiting(source, ranges, rows)
                    ],
                )
                forget()
            self._pace(0, keys=len(keys))

    def _not_waiting(
        self, source: _ClassSource, ranges: _Ranges, rows: _Rows
    ) -> list[tuple[str, RangeRow]]:
        """Return the given rows, each with its key, except rows of objects that a later round
        compares.
        """
        named = [(ranges.keys.text_of(row), row) for row in rows]
        waiting = self.motion.waiting(source.cls.name, [key for key, _ in named])
        return [(key, row) for key, row in named if key not in waiting]

    def _judge_rows(
        self,
        source: _ClassSource,
        ranges: _Ranges,
        here: _Rows,
        there: _Rows,
    ) -> _Rows:
        """Decide objects of the source, and return the rows of the target that belong to none of
        these objects. An object is equal if its key and all texts are equal; only other objects are
        compared column by column.
        """
        is_quiet = not self.motion.has_rows and not self.motion.has_waiting
        if is_quiet and here == there:
            source.report.equal += len(here)
            return []
        width, names, class_name = ranges.keys.width, ranges.names, source.cls.name
        others = {row[:width]: row for row in there}
        moving: set[str] = set()
        waiting: set[str] = set()
        if not is_quiet:
            keys = list(map(ranges.keys.text_of, here))
            moving = self._held(class_name, keys)
            waiting = self.motion.waiting(class_name, keys)
        judged: list[_Read] = []
        for row in here:
            other = others.pop(row[:width], None)
            if row == other and is_quiet:
                source.report.equal += 1
                continue
            key = ranges.keys.text_of(row)
            if key in moving:
                continue
            if row == other and key not in waiting:
                source.report.equal += 1
            else:
                found = None if other is None else row_of_entries(names, other[width:])
                judged.append((key, row_of_entries(names, row[width:]), found))
        self._judge(source, judged)
        return list(others.values())

    def walk(self, source: _ClassSource, reached: str | None) -> None:
        """Compare the objects of a class after a key: all objects that the source has."""
        log, size, is_last = self.context.log, self.options.batch, False
        while not is_last:
            page = partial(log.keys_after, source.walk, reached, size)
            keys = self._read_keys(source, reached, page)
            if not keys:
                return
            is_last = len(keys) < size
            there = self.target.rows(source.cls, keys)
            read = self._reader_of(source, keys, source.comparison.attributes)
            if (found := self._read_source(source, (reached, keys[-1]), read)) is not None:
                here, forget = found
                self._judge(source, [(key, here.get(key), there.get(key)) for key in keys])
                forget()
            reached = keys[-1]
            self._save(source, reached)
            self._pace(len(keys))

    def _find_surplus(self, source: _ClassSource) -> None:
        """Find the objects of a class that only the target has."""
        before = None
        with closing(self.target.other_keys(source.cls, self.options.batch)) as parts:
            for keys in parts:
                read = self._reader_of(source, keys, ())
                if (found := self._read_source(source, (before, keys[-1]), read)) is not None:
                    here, forget = found
                    waiting = self.motion.waiting(source.cls.name, keys)
                    surplus = [key for key in keys if key not in here and key not in waiting]
                    self._judge(source, [(key, None, {}) for key in surplus])
                    forget()
                before = keys[-1]
                self._pace(0)

    def _reader_of(
        self, source: _ClassSource, keys: Sequence[str], attributes: Sequence[Attribute]
    ) -> Callable[[], Mapping[str, Mapping[str, Texts]]]:
        """Return the function that reads objects of the source by their keys, and returns the
        objects by key.
        """
        valid = [key for key in keys if source.cls.has_key(key)]
        return partial(self.context.existing, source.cls, valid, attributes)

    def _read_keys(
        self, source: _ClassSource, after: str | None, read: Callable[[], list[K]]
    ) -> list[K]:
        """Return the next keys of the source; none if there is no further key, or if the database
        snapshot was not proven. In the second case the keys after the key ``after`` are not
        compared.
        """
        try:
            return self.snapshots.read(read)
        except SnapshotOutdated as error:
            self._leave_out(source, error, after, None)
            return []

    def _read_source(
        self,
        source: _ClassSource,
        bounds: tuple[str | None, str | None],
        read: Callable[[], R],
        is_whole: Callable[[R], bool] = _always,
    ) -> tuple[R, Forget] | None:
        """Read objects of the source, and the log rows that the reader had not done, on one
        database snapshot. Return the objects, and a function that forgets the rows that the reader
        has done at that time. Return None if the snapshot was not proven. Then the keys after the
        first of the ``bounds``, up to and including the second, are not compared.

        ``is_whole`` returns True if all objects that were read from the target at the same time
        have now been read from the source. Otherwise no row is forgotten: the remaining objects
        need the rows that were not done when the target was read.
        """
        try:
            return self.snapshots.read(partial(self._read_with_rows, read, is_whole))
        except SnapshotOutdated as error:
            self._leave_out(source, error, *bounds)
            return None

    def _read_with_rows(
        self, read: Callable[[], R], is_whole: Callable[[R], bool]
    ) -> tuple[R, Forget]:
        self.undone.read_new()
        here = read()
        # A pinned target is compared with the rows that were done when it was pinned.
        if self.target.is_pinned or not is_whole(here):
            return here, _nothing
        return here, self.undone.read_done()

    def _judge(self, source: _ClassSource, objects: Sequence[_Read]) -> None:
        """Decide objects that can be decided. A difference counts only when a second check finds
        it, too: a receiver may answer a little before its tables show the changes. For the same
        reason an object that differed counts as equal only when two checks find it equal.
        """
        class_name, keys = source.cls.name, [key for key, _, _ in objects]
        moving = self._held(class_name, keys)
        waiting = self.motion.waiting(class_name, keys)
        undecided: list[str] = []
        for key, here, there in objects:
            name = class_name, key
            if key in moving:
                continue
            found = self._difference(source, name, here, there)
            has_differed = name in self.differed
            if self.differed.get(name) is not None:  # the check before
                if found is not None:
                    del self.differed[name]
                    self._add(found)
                else:
                    self.differed[name] = None
                    undecided.append(key)
            elif found is None:
                source.report.equal += here is not None
                self.report.unconfirmed += has_differed
                self.differed.pop(name, None)
            elif has_differed or len(self.differed) < MAX_LISTED:
                self.differed[name] = found
                undecided.append(key)
            else:
                self._add(found)
        self.motion.wait_for(class_name, undecided)
        self.motion.decide(class_name, waiting.difference(undecided, moving))

    def _held(self, class_name: str, keys: Sequence[str]) -> set[str]:
        """Return the given keys whose objects are in motion, and compare these objects later."""
        moving = self.motion.moving(class_name, keys)
        for key in moving:
            self.differed.pop((class_name, key), None)
        self.motion.wait_for(class_name, moving)
        return moving

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

    def _leave_out(
        self, source: _ClassSource, error: SnapshotOutdated, after: str | None, through: str | None
    ) -> None:
        """Report a range of keys whose database snapshots were not proven (spec/verify.md 1.4)."""
        self.report.leave_out(Unproven(source.cls.name, after, through, str(error)))

    def _save(self, source: _ClassSource, reached: str) -> None:
        self.save(Progress(source.cls.name, reached, self.report, self.motion.all_waiting))

    def _pace(self, objects: int, *, keys: int = 0) -> None:
        """End a part in which this number of whole objects, and this number of keys without values,
        were read.
        """
        self.undone.close_gaps()
        self._read += objects + keys
        self.advance(objects)
        if self.options.rate is not None:
            early = self._read / self.options.rate - (monotonic() - self._begun)
            if early > 0:
                sleep(early)

    # --- later rounds ---

    def wait(self, classes: Sequence[ObjectClass]) -> None:
        """Compare again the objects that were not decided, or that differed once."""
        until = monotonic() + self.options.wait
        late_rounds = 0
        # One more round confirms what the last round found of objects that have differed.
        while self.motion.has_waiting and (
            late_rounds == 0 or (late_rounds == 1 and self.differed)
        ):
            late_rounds += monotonic() >= until
            sleep(min(REST, self.options.wait))
            with suppress(SnapshotOutdated):
                self._compare_waiting(classes, until)
            self.undone.close_gaps()

    def _compare_waiting(self, classes: Sequence[ObjectClass], until: float) -> None:
        """Compare the objects that wait and are not in motion, until the time has run out. Objects
        that have differed, and some other objects, are compared even after the time has run out.
        """

        def read() -> Forget:
            self.undone.read_new()
            return self.undone.read_done(at_once=True)

        self.snapshots.read(read)()
        if self.motion.to_compare(_BEFORE_ALL, 1) is None:
            return
        self.target.pin(classes)
        size = self.options.batch
        for class_name, names in groupby(sorted(self.differed), itemgetter(0)):
            keys = [key for _, key in names]
            for start in range(0, len(keys), size):
                self._compare_again(class_name, keys[start : start + size])
        place, compared = _BEFORE_ALL, 0
        while (part := self.motion.to_compare(place, size)) and (
            monotonic() < until or compared < MAX_LISTED
        ):
            class_name, keys = part
            place, compared = (class_name, keys[-1]), compared + len(keys)
            others = [key for key in keys if (class_name, key) not in self.differed]
            if others:
                self._compare_again(class_name, others)

    def _compare_again(self, class_name: str, keys: Sequence[str]) -> None:
        source = self._sources[class_name]
        there = self.target.rows(source.cls, keys)
        read = self._reader_of(source, keys, source.comparison.attributes)
        here, forget = self.snapshots.read(partial(self._read_with_rows, read, _always))
        self._judge(source, [(key, here.get(key), there.get(key)) for key in keys])
        forget()

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
        for class_name, waiting in self.motion.count_waiting().items():
            self.report.classes[class_name].in_motion += waiting
        self.report.in_motion = self._in_motion(islice(self.motion.all_waiting(), MAX_LISTED))
        self.report.foreign = list(self.snapshots.foreign)
        if self.report.differences:
            self._explain()
        known = [one for one in self.report.differences if one.reason]
        self.report.known = known
        self.report.differences = [one for one in self.report.differences if not one.reason]
        for one in self.report.differences:
            self.report.classes[one.class_name].count(one.kind)
        for one in known:
            self.report.classes[one.class_name].known_different += 1
        self.report.seconds = monotonic() - self._begun

    def _in_motion(self, names: Iterable[ObjectName]) -> list[InMotion]:
        found = [InMotion(*name, self.motion.rows_of(name, _MAX_ROWS)) for name in names]
        log, zone = self.context.log, self.context.options.event_time_zone
        now = _moment(log.due_until(zone))
        firsts = sorted({one.record_ids[0] for one in found if one.record_ids})
        times: dict[int, str | None] = {}
        for start in range(0, len(firsts), _AT_ONCE):
            ranges = to_ranges(firsts[start : start + _AT_ONCE])
            times |= dict(log.read_columns(ranges, ("record_id", "event_time")))
            log.commit()
        for one in found:
            moment = _moment(times.get(one.record_ids[0])) if one.record_ids else None
            with suppress(TypeError):  # only one of them has a time zone
                if moment is not None and now is not None:
                    one.age = max(0.0, (now - moment).total_seconds())
        return found

    def _explain(self) -> None:
        """Add to each difference the newest rows that name its object. If the newest row shows why
        the object must differ, also add the reason (spec/verify.md 3.2). The log is read once, in
        parts, so that no database snapshot stays open for long.
        """
        log, catalog = self.context.log, self.context.catalog
        wanted = {one.name: one for one in self.report.differences}
        newest: dict[ObjectName, list[tuple[int, str, str | None]]] = {}
        first, last = extent(log) or (1, 0)
        for start in range(first, last + 1, _EXPLAINED):
            window = replace(ANY_STATUS, gaps=((start, min(last, start + _EXPLAINED - 1)),))
            with database_snapshot(log):
                for part in log.read_fields(window, _FIELDS):
                    for record_id, status, perpetrator, table_name, table_key in part:
                        name = object_named(catalog, table_name, table_key)
                        if name in wanted:
                            assert name is not None
                            rows = newest.setdefault(name, [])
                            rows.append((int(record_id), unpadded(status), perpetrator))
                            del rows[:-_MAX_ROWS]
        entries, _ = refused(log, consumer=self.context.ledger.consumer)
        log.commit()
        for name, rows in newest.items():
            record_id, status, perpetrator = rows[-1]
            one = wanted[name]
            one.record_ids = [number for number, _, _ in rows]
            code = entries[record_id].code if record_id in entries else ""
            if not one.fault:
                one.reason = self._reason(status, perpetrator, code)

    def _reason(self, status: str, perpetrator: str | None, code: str) -> str:
        """Return why the newest row of an object was not applied, empty if it was applied."""
        if self.target.names_done:
            return ""
        if code == SUPERSEDED:  # the new row is no longer in the log: it was done
            return ""
        is_refused = bool(code)
        if not self.context.ledger.consumer:
            is_refused = status in (Status.ERROR, Status.FATAL)
        if is_refused and code == SKIPPED:
            return "its newest change was skipped"
        if is_refused:
            return f"its newest change was refused: {code or status}"
        if is_of(perpetrator, self.context.options.driver_user):
            return "its newest change was made by the publisher's own user"
        return ""


def _moment(text: str | None) -> datetime | None:
    try:
        return None if text is None else datetime.fromisoformat(text)
    except (ValueError, TypeError):
        return None


def _nothing() -> None:
    pass
