"""From a group of rows, and the current row where it is asked for, to an event (spec/event-log.md 7, spec/xds.md 4)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

from eventlog.core.catalog import Attribute, ObjectClass, ObjectId
from eventlog.core.checks import (
    DELETE_ROW,
    INSERT_FIELD,
    INSERT_FIELD_QUERY_BACK,
    INSERT_ROW_QUERY_BACK,
    UPDATE_FIELD_QUERY_BACK,
    UPDATE_ROW_QUERY_BACK,
    BadRow,
    CheckedRow,
    Texts,
)
from eventlog.core.fold import Group, object_of
from eventlog.errors import RowError
from eventlog.model import ALL, AttributeSteps, Event, Op, Operation, Step

_new: Final = tuple.__new__  # a NamedTuple from a tuple of its fields, in half the time
_event_type: Final = itemgetter(1)  # of a checked row, where all rows are looked at

READS_ROW: Final = (INSERT_ROW_QUERY_BACK, UPDATE_ROW_QUERY_BACK)
"""Types whose rows stand for the object's whole current row."""

READS_FIELD: Final = (INSERT_FIELD_QUERY_BACK, UPDATE_FIELD_QUERY_BACK)
"""Types whose rows stand for the current value of one attribute."""

READS: Final = frozenset((*READS_ROW, *READS_FIELD))
"""Types whose rows hold no value: it is read back."""

_INSERTS: Final = (INSERT_ROW_QUERY_BACK, INSERT_FIELD_QUERY_BACK)

_ADD, _MODIFY, _DELETE = Operation  # bound names: an enumeration's members are looked up slowly

CurrentRow = Mapping[str, Sequence[str | None]]
"""Attribute name -> its values now as log text: one for a single-valued column of a table, one a row otherwise."""

QueryBack: TypeAlias = Callable[[ObjectClass, Sequence[str], Sequence[Attribute]], Mapping[str, CurrentRow]]
"""Class, canonical keys, attributes -> the current rows by key, without those of objects that are gone."""


@dataclass(frozen=True, slots=True)
class EventOptions:
    """The options of spec/event-log.md 9 that decide what an event holds.

    ``id_suffix``: what new event-ids have behind the record_id, that of the log's epoch (7.4).
    """

    insert_query_back: str = "modify"
    noop_updates: str = "drop"
    id_suffix: str = ""


class Decision(NamedTuple):
    """What precedence decides of a group that asks for values (spec/event-log.md 7.1).

    ``query_back``: attributes to read from the object's current row, perhaps none, when only its existence
    matters; None = nothing is read.
    """

    surviving: Sequence[CheckedRow]
    dropped: Sequence[CheckedRow]
    query_back: tuple[Attribute, ...] | None


Decided: TypeAlias = tuple[Group, Decision | None, CurrentRow | None]
"""A group, what precedence decides of it (None if it asks for no values), and its object's current row.

The row is None if nothing is asked for, or if the object is gone.
"""


class Fates(NamedTuple):
    """What becomes of the rows of a group that do not all share one fate (spec/event-log.md 7.3), by record_id.

    ``contributed`` rows get the letter of the answer, ``bad`` ones E, all others S. ``conflicts``: single-valued
    view columns that had several values.
    """

    contributed: Sequence[int] = ()
    dropped: Sequence[int] = ()
    gone: Sequence[int] = ()
    empty: Sequence[int] = ()
    bad: Sequence[BadRow] = ()
    conflicts: int = 0


class Outgoing(NamedTuple):
    """One event on its way from its rows to the answer.

    ``event_id`` as of spec/event-log.md 7.4; ``ids`` the record_ids of its group, in queue order. ``operation`` None =
    its rows make no event and are only to be marked. ``steps``: what is written, rows of one attribute side by side;
    None = the event is recorded in flight and not built yet. ``fates`` None = every row contributed. ``dropped``: what
    precedence dropped when the event was first built. ``sendings`` counts the event-ids that it has been sent under.
    ``place`` counts the events of a flight whose format numbers them, from 1.
    """

    event_id: str
    ids: Sequence[int]
    object_id: ObjectId | None
    operation: Operation | None
    steps: Sequence[CheckedRow] | None
    fates: Fates | None = None
    dropped: Sequence[int] = ()
    sendings: int = 1
    place: int = 0

    @property
    def sent_id(self) -> str:
        """The event-id that the document carries."""
        return self.event_id if self.sendings == 1 else f"{self.event_id}.{self.sendings}"

    @property
    def contributed(self) -> Sequence[int]:
        """The rows that get the letter of the answer."""
        return self.ids if self.fates is None else self.fates.contributed


def sent_ids(events: Iterable[Outgoing]) -> list[str]:
    """The event-ids that the document of events carries."""
    return [event.event_id if event.sendings == 1 else event.sent_id for event in events]


def ids_of(rows: Iterable[CheckedRow]) -> list[int]:
    """The record_ids of rows."""
    return [record_id for record_id, _, _, _, _, _ in rows]


# --- precedence -------------------------------------------------------------------------------------------------------


def asks_for_values(rows: Iterable[CheckedRow]) -> bool:
    """Whether values are read back for any of these rows, so that precedence is to be applied to their group."""
    return not READS.isdisjoint(map(_event_type, rows))


def apply_precedence(group: Group, dropped_before: Collection[int] | None = None) -> Decision:
    """Decide which rows of a group count, and what has to be read back.

    ``dropped_before``: the rows that precedence dropped when the event was first built, on rebuilding it from the in-
    flight line; the decision then stands, whatever rows are left.
    """
    kinds = {event_type for _, event_type, _, _, _, _ in group}
    reads_rows = not kinds.isdisjoint(READS_ROW)
    read = {attribute for _, event_type, _, attribute, _, _ in group if event_type in READS_FIELD}
    surviving: list[CheckedRow] = []
    dropped: list[CheckedRow] = []
    for row in group:
        record_id, event_type, _, attribute, _, _ = row
        if dropped_before is not None:
            is_dropped = record_id in dropped_before
        elif reads_rows:
            is_dropped = event_type not in READS_ROW
        else:
            is_dropped = event_type < DELETE_ROW and attribute in read
        (dropped if is_dropped else surviving).append(row)
    asking = [(event_type, attribute) for _, event_type, _, attribute, _, _ in surviving if event_type in READS]
    if not asking:
        return Decision(surviving, dropped, None)
    object_class, _ = object_of(group)
    asked: Iterable[Attribute | None] = dict.fromkeys(attribute for _, attribute in asking)
    if any(event_type in READS_ROW for event_type, _ in asking):
        asked = object_class.attributes
    return Decision(surviving, dropped, tuple(each for each in asked if each is not None and each.is_written))


def decide(
    groups: Sequence[Group], query_back: QueryBack, dropped_before: Sequence[Collection[int] | None] | None = None
) -> list[Decided]:
    """Groups, what precedence decides of them, and the current rows that they ask for, read by one statement a class.

    ``dropped_before``: for each group as of ``apply_precedence``, which is applied to all of them then; None = it is
    applied to those that ask for values.
    """
    if dropped_before is not None:
        decisions = [
            apply_precedence(group, before) if group else None
            for group, before in zip(groups, dropped_before, strict=True)
        ]
    elif asks_for_values(chain.from_iterable(groups)):
        decisions = [apply_precedence(group) if asks_for_values(group) else None for group in groups]
    else:  # as in most logs
        return [(group, None, None) for group in groups]
    asked: dict[ObjectClass, tuple[dict[str, None], dict[Attribute, None]]] = {}
    for group, decision in zip(groups, decisions, strict=True):
        if decision is not None and decision.query_back is not None:
            object_class, key = object_of(group)
            keys, attributes = asked.setdefault(object_class, ({}, {}))
            keys[key] = None
            attributes.update(dict.fromkeys(decision.query_back))
    current: dict[ObjectId, CurrentRow] = {}
    for object_class, (keys, attributes) in asked.items():
        known = [attribute for attribute in object_class.attributes if attribute in attributes]
        rows = query_back(object_class, list(keys), known)
        # An attribute that the class has no more (drift) has no value any more.
        lost: CurrentRow = {attribute.name: [] for attribute in attributes if attribute not in known}
        current.update(((object_class, key), {**lost, **row} if lost else row) for key, row in rows.items())
    return [
        (group, decision, None if decision is None or decision.query_back is None else current.get(object_of(group)))
        for group, decision in zip(groups, decisions, strict=True)
    ]


# --- events -----------------------------------------------------------------------------------------------------------


def build_event(
    group: Group,
    options: EventOptions,
    decision: Decision | None = None,
    current: CurrentRow | None = None,
    event_id: str | None = None,
) -> Outgoing:
    """The event of a group (spec/xds.md 4.1) and the fate of its rows.

    ``decision``: that of precedence, None if the group holds nothing to read back. ``current``: the object's current
    row, None if it is gone (or nothing was asked for). ``event_id``: the recorded one on rebuilding; None = by
    spec/event-log.md 7.4.
    """
    _, _, object_id, _, _, _ = group[0]
    ids = [record_id for record_id, _, _, _, _, _ in group]
    rows: Sequence[CheckedRow] = group
    values: Mapping[Attribute, Texts] | None = None
    gone: Sequence[int] = ()
    bad: Sequence[BadRow] = ()
    conflicts = 0
    if decision is not None:
        rows, _, query_back = decision
        if query_back is not None and current is None:
            gone = [record_id for record_id, event_type, _, _, _, _ in rows if event_type in READS]
            rows = [row for row in rows for _, event_type, _, _, _, _ in (row,) if event_type not in READS]
        elif query_back is not None and current is not None:
            values, failed, conflicts = _read(query_back, current)
            if failed:
                rows, bad = _without_unreadable(rows, failed)
    operation: Operation | None = None
    steps: Sequence[CheckedRow] = ()
    if rows:
        _, kind, _, _, _, _ = rows[0]
        if kind == DELETE_ROW:
            operation = _DELETE
        else:
            is_add = kind == INSERT_FIELD or (kind in _INSERTS and _becomes_add(rows, options))
            steps = rows if values is None else _with_values(rows, values, is_add)
            steps = _steps_of(steps, is_add, options)
            if is_add or (not steps and kind in _INSERTS):  # an insert without anything to carry is not lost
                operation = _ADD
            elif steps:
                operation = _MODIFY
    if decision is None:
        fates = None if operation is not None else Fates(empty=ids)
        event_id = event_id or str(ids[0]) + options.id_suffix
        return _new(Outgoing, (event_id, ids, object_id, operation, steps, fates, (), 1, 0))
    if event_id is None:
        failed_ids = {row.record_id for row in bad}
        first = next((record_id for record_id in ids if record_id not in failed_ids), ids[0])
        event_id = str(first) + options.id_suffix
    dropped, kept = ids_of(decision.dropped), ids_of(rows)
    contributed, empty = ((), kept) if operation is None else (kept, ())
    fates = Fates(contributed, dropped, gone, empty, bad, conflicts)
    if conflicts == 0 and len(contributed) == len(ids):
        fates = None
    return Outgoing(event_id, ids, object_id, operation, steps, fates, dropped)


def _becomes_add(rows: Sequence[CheckedRow], options: EventOptions) -> bool:
    """Whether rows that begin with an insert whose values are read back are an add."""
    return options.insert_query_back == "add" or any(event_type == INSERT_FIELD for _, event_type, _, _, _, _ in rows)


def _steps_of(rows: Sequence[CheckedRow], is_add: bool, options: EventOptions) -> Sequence[CheckedRow]:
    """What is written of rows (spec/xds.md 4.2, 4.3).

    The rows of a repeated attribute stand side by side at the place of the first; of a single-valued one only the last
    counts in an add. Then rows that change nothing are dropped; with noop ``emit`` only those of two NULLs.
    """
    if len(rows) > 1 and len({attribute for _, _, _, attribute, _, _ in rows}) < len(rows):
        by_attribute: dict[Attribute | None, list[CheckedRow]] = {}
        for row in rows:
            _, _, _, attribute, _, _ = row
            by_attribute.setdefault(attribute, []).append(row)
        rows = [
            row
            for attribute, several in by_attribute.items()
            for row in (several[-1:] if is_add and attribute is not None and not attribute.multi_valued else several)
        ]
    for _, _, _, _, old, new in rows:
        if old == new:
            break
    else:  # as nearly always
        return rows
    if options.noop_updates == "emit":
        return [row for row in rows for _, _, _, _, old, new in (row,) if old is not None or new is not None]
    return [row for row in rows for _, _, _, _, old, new in (row,) if old != new]


# --- values read back -------------------------------------------------------------------------------------------------


def _with_values(rows: Sequence[CheckedRow], values: Mapping[Attribute, Texts], is_add: bool) -> list[CheckedRow]:
    """Rows with what was read back: a row of types 5 and 6 stands for every attribute, one of 7 and 8 for its own,
    once for each.
    """
    goes = None if is_add else ALL
    filled: list[CheckedRow] = []
    written: set[Attribute | None] = set()
    for row in rows:
        record_id, event_type, object_id, attribute, _, _ = row
        if event_type in READS_ROW:
            return [(record_id, event_type, object_id, each, goes, value) for each, value in values.items()]
        if event_type not in READS_FIELD:
            filled.append(row)
        elif attribute is not None and attribute in values and attribute not in written:
            written.add(attribute)
            filled.append((record_id, event_type, object_id, attribute, goes, values[attribute]))
    return filled


def _read(
    attributes: Sequence[Attribute], current: CurrentRow
) -> tuple[dict[Attribute, Texts], dict[Attribute, RowError], int]:
    """Values read back, converted; the attributes whose values cannot be written; the number of ``sv_conflicts``."""
    values: dict[Attribute, Texts] = {}
    failed: dict[Attribute, RowError] = {}
    conflicts = 0
    for attribute in attributes:
        try:
            # Sorted by code points, each value once (spec/xds.md 4.3); a table's own column has just one.
            texts = sorted({attribute.convert(text) for text in current[attribute.name] if text is not None})
        except RowError as error:
            failed[attribute] = error
            continue
        if len(texts) > 1 and not attribute.multi_valued:
            conflicts += 1
            del texts[1:]
        values[attribute] = tuple(texts) if len(texts) > 1 else texts[0] if texts else None
    return values, failed, conflicts


def _without_unreadable(
    surviving: Sequence[CheckedRow], failed: Mapping[Attribute, RowError]
) -> tuple[list[CheckedRow], list[BadRow]]:
    """Set the query-back rows apart whose values cannot be written (spec/event-log.md 7.3)."""
    good: list[CheckedRow] = []
    bad: list[BadRow] = []
    for row in surviving:
        record_id, event_type, _, attribute, _, _ = row
        error = None
        if event_type in READS_ROW:
            error = next(iter(failed.values()))
        elif event_type in READS_FIELD and attribute is not None:
            error = failed.get(attribute)
        if error is None:
            good.append(row)
        else:
            bad.append(BadRow(record_id, error.row_code, f"value read back: {error}"))
    return good, bad


# --- the public form --------------------------------------------------------------------------------------------------


def association_of(outgoing: Outgoing) -> str:
    """The association of an event's object (spec/xds.md 5.1)."""
    assert outgoing.object_id is not None
    object_class, key = outgoing.object_id
    return key + object_class.association_tail


def public_event(outgoing: Outgoing) -> Event:
    """The event as receivers in Python and people see it. ``outgoing`` has an operation."""
    assert outgoing.operation is not None
    assert outgoing.object_id is not None
    assert outgoing.steps is not None
    object_class, _ = outgoing.object_id
    attributes = tuple(
        AttributeSteps(attribute.name, attribute.value_type, tuple(public_steps(rows, outgoing.operation)))
        for attribute, rows in by_attribute(outgoing.steps)
    )
    return Event(outgoing.operation, object_class.name, association_of(outgoing), outgoing.sent_id, attributes)


def by_attribute(rows: Iterable[CheckedRow]) -> Iterable[tuple[Attribute, Sequence[CheckedRow]]]:
    """The attributes of an event with the rows of each."""
    grouped: dict[Attribute, list[CheckedRow]] = {}
    for row in rows:
        _, _, _, attribute, _, _ = row
        assert attribute is not None
        grouped.setdefault(attribute, []).append(row)
    return grouped.items()


def public_steps(rows: Sequence[CheckedRow], operation: Operation) -> list[Step]:
    """The steps of one attribute, whose rows these are."""
    steps: list[Step] = []
    for _, _, _, _, old, new in rows:
        if old is ALL:
            steps.append(Step(Op.REMOVE_ALL, ()))
        elif old is not None:
            steps.append(Step(Op.REMOVE, _tuple(old)))
        if new is not None and operation == _ADD and steps:  # the values of an add are one step
            steps[0] = Step(Op.ADD, steps[0].values + _tuple(new))
        elif new is not None:
            steps.append(Step(Op.ADD, _tuple(new)))
    return steps


def _tuple(texts: str | tuple[str, ...]) -> tuple[str, ...]:
    return texts if isinstance(texts, tuple) else (texts,)
