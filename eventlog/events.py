"""From a group of rows, and the current row where it is asked for, to an event (spec/event-log.md 7, spec/xds.md 4)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from eventlog.catalog import Attribute, ObjectClass
from eventlog.checks import BadRow, CheckedRow
from eventlog.errors import RowError
from eventlog.fold import Group
from eventlog.model import AttributeSteps, Event, Op, Operation, Step

_new: Final = tuple.__new__  # a NamedTuple from a tuple of its fields, in half the time: an event needs a dozen

CurrentRow = Mapping[str, Sequence[str | None]]
"""Attribute name -> its values now as log text: one for a single-valued column of a table, one a row otherwise."""


@dataclass(frozen=True, slots=True)
class EventOptions:
    """The options of spec/event-log.md 9 that decide what an event holds."""

    insert_query_back: str = "modify"
    noop_updates: str = "drop"
    emit_keys: bool = False


class Precedence(NamedTuple):
    """A group after the precedence rules (spec/event-log.md 7.1).

    ``query_back``: attributes to read from the object's current row, perhaps none, when only its existence
    matters; None = nothing is read.
    """

    group: Group
    surviving: list[CheckedRow]
    dropped: list[CheckedRow]
    query_back: tuple[Attribute, ...] | None


class Outcome(NamedTuple):
    """What becomes of a group: at most one event, and of each of its rows (spec/event-log.md 7.3).

    ``contributed`` rows get the letter of the answer, ``bad`` ones E, all others S. ``conflicts``: single-valued
    view columns that had several values.
    """

    event: Event | None
    contributed: list[int]
    dropped: list[int]
    gone: list[int]
    empty: list[int]
    bad: list[BadRow]
    conflicts: int


_REMOVE, _ADD = Op.REMOVE, Op.ADD
_REMOVE_ALL = Step(Op.REMOVE_ALL, ())


def apply_precedence(group: Group, options: EventOptions, dropped_before: Collection[int] | None = None) -> Precedence:
    """Decide which rows of a group count, and what has to be read back.

    ``dropped_before``: the rows that precedence dropped when the event was first built, on rebuilding it from the in-
    flight record; the decision then stands, whatever rows are left.
    """
    rows = group.rows
    if dropped_before is None and max([row.event_type for row in rows]) <= 4:
        return _new(Precedence, (group, rows, [], None))
    kinds = {row.event_type for row in rows}
    if dropped_before is not None:
        surviving = [row for row in rows if row.record_id not in dropped_before]
        dropped = [row for row in rows if row.record_id in dropped_before]
    elif kinds & {5, 6}:
        surviving = [row for row in rows if row.event_type in (5, 6)]
        dropped = [row for row in rows if row.event_type not in (5, 6)]
    elif kinds & {7, 8} and kinds & {1, 2, 3}:
        read = {row.attribute for row in rows if row.event_type in (7, 8)}
        surviving = [row for row in rows if row.event_type in (7, 8) or row.attribute not in read]
        dropped = [row for row in rows if row.event_type in (1, 2, 3) and row.attribute in read]
    else:
        surviving, dropped = rows, []
    query_back: tuple[Attribute, ...] | None = None
    if kinds & {5, 6, 7, 8}:
        if any(row.event_type in (5, 6) for row in surviving):
            query_back = _written(group.object_class.attributes, options)
        elif any(row.event_type in (7, 8) for row in surviving):
            named = dict.fromkeys(row.attribute for row in surviving if row.event_type in (7, 8))
            query_back = _written([attribute for attribute in named if attribute is not None], options)
    return Precedence(group, surviving, dropped, query_back)


def build_event(
    precedence: Precedence, current: CurrentRow | None, options: EventOptions, event_id: str | None = None
) -> Outcome:
    """The event of a group and the fate of its rows.

    ``current``: the object's current row, None if it is gone (or nothing was asked for). ``event_id``: the
    recorded one on rebuilding; None = by spec/event-log.md 7.4.
    """
    group, surviving, dropped, query_back = precedence
    values: Mapping[Attribute, tuple[str, ...]] = {}
    gone: list[int] = []
    bad: list[BadRow] = []
    conflicts = 0
    if query_back is not None:
        if current is None:
            gone = [row.record_id for row in surviving if row.event_type >= 5]
            surviving = [row for row in surviving if row.event_type < 5]
        else:
            values, failed, conflicts = _read(query_back, current)
            if failed:
                surviving, bad = _without_unreadable(surviving, failed)
    ids = [row.record_id for row in surviving]
    dropped_ids = [row.record_id for row in dropped] if dropped else []
    operation = _operation(surviving, options)
    if operation is None:
        return Outcome(None, [], dropped_ids, gone, [], bad, conflicts)
    attributes: tuple[AttributeSteps, ...] = ()
    if operation == Operation.ADD:
        attributes = _add_attributes(surviving, group.object_class, values, options)
    elif operation == Operation.MODIFY:
        attributes = _modify_attributes(surviving, group.object_class, values, options)
        if not attributes:
            if surviving[0].event_type not in (5, 7):
                return Outcome(None, [], dropped_ids, gone, ids, bad, conflicts)
            operation = Operation.ADD  # an insert without anything to carry is not lost (spec/xds.md 4.1)
    if event_id is None:
        event_id = str(_first_id(group, bad))
    association = group.key + group.object_class.association_tail
    event = _new(Event, (operation, group.object_class.name, association, event_id, attributes))
    return _new(Outcome, (event, ids, dropped_ids, gone, [], bad, conflicts))


def _first_id(group: Group, bad: Sequence[BadRow]) -> int:
    if not bad:
        return group.rows[0].record_id
    failed = {row.record_id for row in bad}
    return next(row.record_id for row in group.rows if row.record_id not in failed)


def _written(attributes: Sequence[Attribute], options: EventOptions) -> tuple[Attribute, ...]:
    return tuple(attribute for attribute in attributes if options.emit_keys or not attribute.is_key)


def _operation(surviving: Sequence[CheckedRow], options: EventOptions) -> str | None:
    """spec/xds.md 4.1."""
    if not surviving:
        return None
    kind = surviving[0].event_type
    if kind == 4:
        return Operation.DELETE
    if kind in (2, 3, 6, 8):
        return Operation.MODIFY
    if kind == 1 or options.insert_query_back == "add" or any(row.event_type == 1 for row in surviving):
        return Operation.ADD
    return Operation.MODIFY


def _read(
    attributes: Sequence[Attribute], current: CurrentRow
) -> tuple[dict[Attribute, tuple[str, ...]], dict[Attribute, RowError], int]:
    """Values read back, converted; the attributes whose values cannot be written; the number of ``sv_conflicts``."""
    values: dict[Attribute, tuple[str, ...]] = {}
    failed: dict[Attribute, RowError] = {}
    conflicts = 0
    for attribute in attributes:
        try:
            # Sorted by code points, each value once (spec/xds.md 4.3); a table's own column has just one.
            found = sorted({attribute.convert(text) for text in current[attribute.name] if text is not None})
        except RowError as error:
            failed[attribute] = error
            continue
        if len(found) > 1 and not attribute.multi_valued:
            conflicts += 1
            del found[1:]
        values[attribute] = tuple(found)
    return values, failed, conflicts


def _without_unreadable(
    surviving: Sequence[CheckedRow], failed: Mapping[Attribute, RowError]
) -> tuple[list[CheckedRow], list[BadRow]]:
    """Set the query-back rows apart whose values cannot be written (spec/event-log.md 7.3)."""
    good: list[CheckedRow] = []
    bad: list[BadRow] = []
    for row in surviving:
        error = None
        if row.event_type in (5, 6):
            error = next(iter(failed.values()))
        elif row.event_type in (7, 8) and row.attribute is not None:
            error = failed.get(row.attribute)
        if error is None:
            good.append(row)
        else:
            bad.append(BadRow(row.record_id, error.row_code, f"value read back: {error}"))
    return good, bad


def _add_attributes(
    surviving: Sequence[CheckedRow],
    object_class: ObjectClass,
    current: Mapping[Attribute, tuple[str, ...]],
    options: EventOptions,
) -> tuple[AttributeSteps, ...]:
    values: dict[Attribute, tuple[str, ...]] = {}
    if surviving[0].event_type == 5:
        values = {attribute: current[attribute] for attribute in _written(object_class.attributes, options)}
    else:
        for row in surviving:
            attribute = row.attribute
            if attribute is None or (attribute.is_key and not options.emit_keys):
                continue
            if row.event_type == 7:
                values[attribute] = current[attribute]
            else:
                new = () if row.new is None else (row.new,)
                values[attribute] = values.get(attribute, ()) + new if attribute.multi_valued else new
    return tuple(
        [
            _new(AttributeSteps, (attribute.name, attribute.value_type, (_new(Step, (_ADD, texts)),)))
            for attribute, texts in values.items()
            if texts
        ]
    )


def _modify_attributes(
    surviving: Sequence[CheckedRow],
    object_class: ObjectClass,
    current: Mapping[Attribute, tuple[str, ...]],
    options: EventOptions,
) -> tuple[AttributeSteps, ...]:
    if surviving[0].event_type in (5, 6):
        attributes = _written(object_class.attributes, options)
        return tuple(
            AttributeSteps(attribute.name, attribute.value_type, _replace(current[attribute]))
            for attribute in attributes
        )
    steps: dict[Attribute, tuple[Step, ...]] = {}
    for row in surviving:
        attribute = row.attribute
        if attribute is None or (attribute.is_key and not options.emit_keys):
            continue
        if row.event_type == 2:
            steps[attribute] = steps.get(attribute, ()) + _update(row.old, row.new, options)
        elif row.event_type == 3:
            steps[attribute] = steps.get(attribute, ()) + _replace(() if row.new is None else (row.new,))
        else:
            steps[attribute] = _replace(current[attribute])
    return tuple(
        [
            _new(AttributeSteps, (attribute.name, attribute.value_type, taken))
            for attribute, taken in steps.items()
            if taken
        ]
    )


def _replace(values: tuple[str, ...]) -> tuple[Step, ...]:
    return (_REMOVE_ALL, Step(_ADD, values)) if values else (_REMOVE_ALL,)


def _update(old: str | None, new: str | None, options: EventOptions) -> tuple[Step, ...]:
    """The steps of one type 2 row (spec/xds.md 4.3)."""
    if old == new and (old is None or options.noop_updates == "drop"):
        return ()
    if old is None:
        return (Step(_ADD, (new,)),) if new is not None else ()
    if new is None:
        return (Step(_REMOVE, (old,)),)
    return (_new(Step, (_REMOVE, (old,))), _new(Step, (_ADD, (new,))))
