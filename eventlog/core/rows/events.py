"""Build an event from a group of rows, and from the object's current row if values are read back
(spec/event-log.md 7, spec/xds.md 4).

This is a hot path: every event of a backlog passes through ``build_event``. Rows are tuples that
are unpacked by position, an event is made by ``tuple.__new__``, and a step is the checked row
itself. Most groups have no query-back and skip precedence. The price: ``for a, b in (row,)``
replaces an assignment inside a comprehension, and ``build_event`` repeats the order of the fields
in ``Outgoing``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from types import MappingProxyType
from typing import Final, NamedTuple, Self, TypeAlias

from eventlog.core.catalog import Attribute, ObjectClass, ObjectId
from eventlog.core.rows.checks import (
    DELETE_ROW,
    INSERT_FIELD,
    INSERT_FIELD_QUERY_BACK,
    INSERT_ROW_QUERY_BACK,
    UPDATE_FIELD_QUERY_BACK,
    UPDATE_ROW_QUERY_BACK,
    CheckedRow,
    InvalidRow,
    Texts,
)
from eventlog.core.rows.fold import Group, object_of
from eventlog.errors import RowError
from eventlog.model import ALL, AttributeSteps, Event, Op, Operation, Step

_new: Final = tuple.__new__  # takes half the time of a NamedTuple's constructor
_event_type: Final = itemgetter(1)  # of a checked row; a fast function for testing all rows

READS_ROW: Final = (INSERT_ROW_QUERY_BACK, UPDATE_ROW_QUERY_BACK)
"""The types whose rows mean the object's whole current row."""

READS_FIELD: Final = (INSERT_FIELD_QUERY_BACK, UPDATE_FIELD_QUERY_BACK)
"""The types whose rows mean the current value of one attribute."""

READS: Final = frozenset((*READS_ROW, *READS_FIELD))
"""The types whose rows have no value. The value is read back."""

_INSERTS: Final = (INSERT_ROW_QUERY_BACK, INSERT_FIELD_QUERY_BACK)
REFRESHED: Final = 0
"""The type of the steps of a refresh. No row has this type."""

# Names of the module, since looking up an enumeration's members is slow.
_ADD, _MODIFY, _DELETE = Operation

CurrentRow = Mapping[str, Sequence[str | None]]
"""The current values as log text, by attribute name: one value for a single-valued column of a
table, otherwise one value for each row.
"""

QueryBack: TypeAlias = Callable[
    [ObjectClass, Sequence[str], Sequence[Attribute]], Mapping[str, CurrentRow]
]
"""A function that returns the current rows of a class by key; deleted objects are missing. The
function's arguments are the class, the canonical keys and the attributes. The row is ``OUTSIDE``
for an object that does not match the condition of its class, and a ``FailedCondition`` for an
object for which the condition fails.
"""

OUTSIDE: Final[CurrentRow] = MappingProxyType({})
"""The current row of an object that exists, but not for the reader. Compare it by identity."""


LEFT_VIEW: Final[CurrentRow] = MappingProxyType({})
"""The current row of an object that is not in its view while the view's main table has a row for
it. Compare it by identity.
"""


class FailedCondition(dict[str, Sequence[str | None]]):
    """The current row of an object for which the condition of its class fails. ``error`` is the
    error of the database as text; unless somebody asks for it, the text quotes no row.
    """

    def __init__(self, error: str) -> None:
        super().__init__()
        self.error = error


def in_words(object_class: ObjectClass, failed: FailedCondition) -> str:
    """Return a sentence which reports that a condition fails for an object."""
    return f"the condition of [[filter]] {object_class.name} fails: {failed.error}"


def exists_for_reader(row: CurrentRow | None) -> bool:
    """Return True if the object of a current row exists for the reader (spec/event-log.md 15.2)."""
    return (
        row is not None
        and row is not OUTSIDE
        and row is not LEFT_VIEW
        and not isinstance(row, FailedCondition)
    )


def is_removed(object_class: ObjectClass, row: CurrentRow | None) -> bool:
    """Return True if a group of a type other than 4 deletes its object for the reader
    (spec/event-log.md 15.2, 15.4).
    """
    condition = object_class.condition
    return row is LEFT_VIEW or (row is OUTSIDE and condition is not None and condition.changes)


@dataclass(frozen=True, slots=True)
class EventOptions:
    """The options of spec/event-log.md 9 that decide the content of an event.

    ``id_suffix`` is the text that follows the record_id in new event-ids; it names the log's epoch
    (7.4).
    """

    insert_query_back: str = "modify"
    noop_updates: str = "drop"
    id_suffix: str = ""


NO_ATTEMPTS: Final[Mapping[int, int]] = MappingProxyType({})
"""The default of ``attempts``, with which every new event is sent for the first time."""


class Decision(NamedTuple):
    """The result of precedence for a group whose values must be read (spec/event-log.md 7.1).

    ``query_back`` holds the attributes to read from the object's current row. ``query_back`` is
    empty if only the existence of the row matters, and None if nothing is read.
    """

    surviving: Sequence[CheckedRow]
    dropped: Sequence[CheckedRow]
    query_back: tuple[Attribute, ...] | None


Decided: TypeAlias = tuple[Group, Decision | None, CurrentRow | None]
"""A group, its decision by precedence (None if the group needs no values), and the current row of
its object.

The row is None if nothing is read, or if the object is deleted.
"""


class RowOutcomes(NamedTuple):
    """The outcomes of a group's rows by record_id, if the rows do not all have the same outcome
    (spec/event-log.md 7.3).

    Rows that are neither ``contributed`` nor ``invalid`` get S.
    """

    contributed: Sequence[int] = ()
    """The rows that get the status of the answer."""
    dropped: Sequence[int] = ()
    gone: Sequence[int] = ()
    noop: Sequence[int] = ()
    invalid: Sequence[InvalidRow] = ()
    """The rows that get status E."""
    conflicts: int = 0
    """The number of single-valued view columns that had several values."""


class Outgoing(NamedTuple):
    """One event on its way from its rows to the answer (spec/event-log.md 7.4)."""

    event_id: str
    """The event-id, as spec/event-log.md 7.4 defines it."""
    ids: Sequence[int]
    """The record_ids of the event's group, in queue order."""
    object_id: ObjectId | None
    operation: Operation | None
    """The operation; None = the rows make no event and are only marked."""
    steps: Sequence[CheckedRow] | None
    """The rows to write, with the rows of one attribute next to each other. None = the event was
    read from a recorded delivery and is not built yet.
    """
    outcomes: RowOutcomes | None = None
    """The outcomes of the rows; None = every row contributed."""
    dropped: Sequence[int] = ()
    """The rows that precedence dropped when the event was first built."""
    attempts: int = 1
    """The number of event-ids under which the event has been sent."""
    place: int = 0
    """The event's number in a delivery, from 1, if the format numbers events."""
    rows: Sequence[CheckedRow] | None = None
    """The steps, together with the rows of the same attributes that are not written because they
    change nothing. None = every row is a step.
    """

    @property
    def is_refresh(self) -> bool:
        """True if the change is a REFRESH: the steps are the whole current row of an object, and
        the receiver may or may not have the object (spec/event-log.md 15.2).
        """
        steps = self.steps
        return bool(steps and steps[0][1] == REFRESHED)

    @property
    def sent_id(self) -> str:
        """The event-id in the document."""
        return self.event_id if self.attempts == 1 else f"{self.event_id}.{self.attempts}"

    @property
    def queues(self) -> tuple[Hashable, ...]:
        """The object whose later events must wait for this event. For an event without a valid row
        it is the event itself, since there is no object.
        """
        return (self.event_id if self.object_id is None else self.object_id,)

    def again(self) -> Self:
        """Return the event under its next event-id, because the receiver may have applied the event
        already.
        """
        return self._replace(attempts=self.attempts + 1)

    def at_rest(self) -> Self:
        """Return the event without its values, which are read again when it is sent."""
        return self if self.steps is None else self._replace(steps=None, outcomes=None, rows=None)

    @property
    def contributed(self) -> Sequence[int]:
        """The record_ids of the rows that get the status of the answer."""
        return self.ids if self.outcomes is None else self.outcomes.contributed


def sent_ids(events: Iterable[Outgoing]) -> list[str]:
    """Return the event-ids that these events have in the document."""
    return [event.event_id if event.attempts == 1 else event.sent_id for event in events]


def ids_of(rows: Iterable[CheckedRow]) -> list[int]:
    """Return the record_ids of rows."""
    return [record_id for record_id, _, _, _, _, _ in rows]


# --- precedence -----------------------------------------------------------------------------------


def asks_for_values(rows: Iterable[CheckedRow]) -> bool:
    """Return True if values are read back for any of these rows. Precedence then applies to their
    group.
    """
    return not READS.isdisjoint(map(_event_type, rows))


def may_be_absent(group: Group) -> bool:
    """Return True if the present state of the database decides whether the group's object exists
    for the reader. A row of type 4 needs no decision: the object is deleted.
    """
    _, event_type, (object_class, _), _, _, _ = group[0]
    return object_class.may_lack_objects and event_type != DELETE_ROW


def has_whole_row(group: Group) -> bool:
    """Return True if the event of a group is the whole current row, because the object may just
    have begun to exist for the reader (spec/event-log.md 15.2, 15.4).
    """
    _, first_type, (object_class, _), _, _, _ = group[0]
    if first_type == DELETE_ROW:
        return False
    if object_class.condition is not None and object_class.condition.changes:
        return True
    main = object_class.main_table
    if main is None or not main.membership or first_type == INSERT_FIELD or first_type in _INSERTS:
        return False
    return any(
        attribute is not None and attribute.column.name in main.membership
        for _, _, _, attribute, _, _ in group
    )


def _decision(group: Group, dropped_before: Collection[int] | None = None) -> Decision:
    """Return what to read for a group. Precedence decides this, and the condition of its class."""
    if not may_be_absent(group):
        return apply_precedence(group, dropped_before)
    if has_whole_row(group):
        object_class, _ = object_of(group)
        written = tuple(one for one in object_class.attributes if one.is_written)
        return Decision(group, (), written)
    decision = apply_precedence(group, dropped_before)
    return decision if decision.query_back is not None else decision._replace(query_back=())


def apply_precedence(group: Group, dropped_before: Collection[int] | None = None) -> Decision:
    """Decide which rows of a group contribute to its event, and which attributes are read back.

    ``dropped_before`` are the rows that precedence dropped when the event was first built.
    ``dropped_before`` is given if the event is rebuilt from a recorded delivery. The first decision
    then still applies, whichever rows are left.
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
    asking = [
        (event_type, attribute)
        for _, event_type, _, attribute, _, _ in surviving
        if event_type in READS
    ]
    if not asking:
        return Decision(surviving, dropped, None)
    object_class, _ = object_of(group)
    asked: Iterable[Attribute | None] = dict.fromkeys(attribute for _, attribute in asking)
    if any(event_type in READS_ROW for event_type, _ in asking):
        asked = object_class.attributes
    return Decision(
        surviving, dropped, tuple(each for each in asked if each is not None and each.is_written)
    )


def decide(
    groups: Sequence[Group],
    query_back: QueryBack,
    dropped_before: Sequence[Collection[int] | None] | None = None,
) -> list[Decided]:
    """Return groups with their decisions by precedence and the current rows that they need. One
    statement per class reads these rows.

    ``dropped_before`` has an entry for each group, as in ``apply_precedence``. If it is given,
    every non-empty group is decided; otherwise only groups that need values are decided.
    """
    if dropped_before is not None:
        decisions = [
            _decision(group, before) if group else None
            for group, before in zip(groups, dropped_before, strict=True)
        ]
    elif needs_reading(groups):
        decisions = [
            _decision(group) if asks_for_values(group) or may_be_absent(group) else None
            for group in groups
        ]
    else:  # most logs need no values
        return [(group, None, None) for group in groups]
    current = _read_current(_asked_by_class(groups, decisions), query_back)
    return [
        (
            group,
            decision,
            None
            if decision is None or decision.query_back is None
            else current.get(object_of(group)),
        )
        for group, decision in zip(groups, decisions, strict=True)
    ]


def needs_reading(groups: Iterable[Group]) -> bool:
    """Return True if something is read back for any of these groups."""
    groups = list(groups)
    return asks_for_values(chain.from_iterable(groups)) or any(map(may_be_absent, groups))


_Asked: TypeAlias = dict[ObjectClass, tuple[dict[str, None], dict[Attribute, None]]]
"""The keys and the attributes to read back for each class, in the order of the groups."""


def _asked_by_class(groups: Sequence[Group], decisions: Sequence[Decision | None]) -> _Asked:
    asked: _Asked = {}
    for group, decision in zip(groups, decisions, strict=True):
        if decision is not None and decision.query_back is not None:
            object_class, key = object_of(group)
            keys, attributes = asked.setdefault(object_class, ({}, {}))
            keys[key] = None
            attributes.update(dict.fromkeys(decision.query_back))
    return asked


def _read_current(asked: _Asked, query_back: QueryBack) -> dict[ObjectId, CurrentRow]:
    """Return the current rows of the objects that exist. One statement per class reads them."""
    current: dict[ObjectId, CurrentRow] = {}
    for object_class, (keys, attributes) in asked.items():
        known = [attribute for attribute in object_class.attributes if attribute in attributes]
        rows = query_back(object_class, list(keys), known)
        # An attribute that the class has lost (drift) has no value.
        lost: CurrentRow = {
            attribute.name: [] for attribute in attributes if attribute not in known
        }
        current.update(
            ((object_class, key), {**lost, **row} if lost and exists_for_reader(row) else row)
            for key, row in rows.items()
        )
    return current


# --- events ---------------------------------------------------------------------------------------


def build_event(
    group: Group,
    options: EventOptions,
    decision: Decision | None = None,
    current: CurrentRow | None = None,
    event_id: str | None = None,
    attempts: Mapping[int, int] = NO_ATTEMPTS,
) -> Outgoing:
    """Build the event of a group (spec/xds.md 4.1) with the outcomes of its rows.

    ``decision`` is the result of precedence, None if the group reads nothing back. ``current`` is
    the object's current row, None if the object is deleted or nothing was read. ``event_id`` is the
    recorded event-id if the event is rebuilt; None = a new event-id by spec/event-log.md 7.4.
    ``attempts`` maps the record_id of a new event's first row to the attempt number of the event,
    if this number is not 1. An attempt number is not 1 if the rows were rejected earlier, since the
    receiver may remember the earlier event-ids.
    """
    if decision is not None:
        return _build_decided(group, options, decision, current, event_id, attempts)
    _, _, object_id, _, _, _ = group[0]
    ids = [record_id for record_id, _, _, _, _, _ in group]
    operation, steps, all_rows = _content(group, None, options)
    outcomes = None if operation is not None else RowOutcomes(noop=ids)
    event_id = event_id or str(ids[0]) + options.id_suffix
    attempt = attempts.get(ids[0], 1) if attempts else 1
    return _new(
        Outgoing, (event_id, ids, object_id, operation, steps, outcomes, (), attempt, 0, all_rows)
    )


def _build_decided(
    group: Group,
    options: EventOptions,
    decision: Decision,
    current: CurrentRow | None,
    event_id: str | None,
    attempts: Mapping[int, int],
) -> Outgoing:
    """Build the event of a group that precedence has decided. The arguments are as for
    ``build_event``.
    """
    rows, dropped_rows, query_back = decision
    values: Mapping[Attribute, Texts] | None = None
    gone: Sequence[int] = ()
    invalid: Sequence[InvalidRow] = ()
    conflicts = 0
    object_class, _ = object_of(group)
    is_whole = is_deleted = False
    if may_lack := object_class.may_lack_objects:
        is_whole, is_deleted = has_whole_row(group), is_removed(object_class, current)
    if isinstance(current, FailedCondition):
        message = in_words(object_class, current)
        rows, invalid = [], [InvalidRow(one, "bad_filter", message) for one in ids_of(rows)]
    elif may_lack and may_be_absent(group) and not exists_for_reader(current):
        if not is_deleted:
            gone, rows = ids_of(rows), []
    elif query_back is not None and current is None:
        gone = [record_id for record_id, event_type, _, _, _, _ in rows if event_type in READS]
        rows = [
            row for row in rows for _, event_type, _, _, _, _ in (row,) if event_type not in READS
        ]
    elif query_back is not None and current is not None:
        values, failed, conflicts = _read(query_back, current)
        if failed and is_whole:
            error = next(iter(failed.values()))
            message = f"value read back: {error}"
            rows, invalid = [], [InvalidRow(one, error.code, message) for one in ids_of(rows)]
        elif failed:
            rows, invalid = _without_unreadable(rows, failed)
    operation: Operation | None
    steps: Sequence[CheckedRow]
    all_rows: Sequence[CheckedRow] | None
    if is_deleted:
        operation, steps, all_rows = _DELETE, (), None
    elif is_whole and rows:
        assert values is not None
        operation, steps, all_rows = *_whole_row(rows, values, options), None
    else:
        operation, steps, all_rows = _content(rows, values, options)
    ids = ids_of(group)
    attempt = 1
    if event_id is None:
        failed_ids = {row.record_id for row in invalid}
        first = next((record_id for record_id in ids if record_id not in failed_ids), ids[0])
        event_id = str(first) + options.id_suffix
        attempt = attempts.get(first, 1)
    dropped, kept = ids_of(dropped_rows), ids_of(rows)
    contributed, empty = ((), kept) if operation is None else (kept, ())
    is_plain = conflicts == 0 and len(contributed) == len(ids)
    outcomes = (
        None if is_plain else RowOutcomes(contributed, dropped, gone, empty, invalid, conflicts)
    )
    return Outgoing(
        event_id,
        ids,
        object_of(group),
        operation,
        steps,
        outcomes,
        dropped,
        attempt,
        rows=all_rows,
    )


def sent_again(event: Outgoing) -> Outgoing:
    """Return a recorded event that was built again as it is sent: a delete if there is no event
    because its object is gone or outside (spec/event-log.md 8.4, *Built again*).

    A request with the recorded event may still be on its way. The receiver ignores that request
    only if it has applied something under the event-id.
    """
    if event.operation is not None or event.steps is None or event.object_id is None:
        return event
    object_class, _ = event.object_id
    outcomes = event.outcomes  # None here for an object of a snapshot, which has no rows
    if object_class.may_hide_objects or (outcomes is not None and not outcomes.gone):
        return event
    if outcomes is not None:
        outcomes = outcomes._replace(contributed=outcomes.gone, gone=())
    return event._replace(operation=_DELETE, outcomes=outcomes, rows=None)


def _whole_row(
    rows: Sequence[CheckedRow], values: Mapping[Attribute, Texts], options: EventOptions
) -> tuple[Operation, Sequence[CheckedRow]]:
    """Return the operation and the steps of an event with the whole current row, which is written
    as for a row of type 5. Unless the rows insert the object, the object may have existed for the
    reader before; the steps then show that the event is a refresh (spec/event-log.md 15.2).
    """
    record_id, kind, object_id, _, _, _ = rows[0]
    is_insert = kind == INSERT_FIELD or kind in _INSERTS
    is_add = kind == INSERT_FIELD or _becomes_add(rows, options)
    whole = [(record_id, INSERT_ROW_QUERY_BACK, object_id, None, None, None)]
    steps = _steps_of(_with_values(whole, values, is_add), is_add, options)
    if not is_insert:
        steps = [
            (one, REFRESHED, of_object, attribute, old, new)
            for one, _, of_object, attribute, old, new in steps
        ]
    return _ADD if is_add or not steps else _MODIFY, steps


def _content(
    rows: Sequence[CheckedRow], values: Mapping[Attribute, Texts] | None, options: EventOptions
) -> tuple[Operation | None, Sequence[CheckedRow], Sequence[CheckedRow] | None]:
    """Return the operation, the steps and ``Outgoing.rows`` of an event with these rows
    (spec/xds.md 4.1). The operation is None if the rows have no effect.

    ``values`` are the values that were read back, None if nothing was read.
    """
    if not rows:
        return None, (), None
    _, kind, _, _, _, _ = rows[0]
    if kind == DELETE_ROW:
        return _DELETE, (), None
    is_add = kind == INSERT_FIELD or (kind in _INSERTS and _becomes_add(rows, options))
    filled = rows if values is None else _with_values(rows, values, is_add)
    steps = _steps_of(filled, is_add, options)
    # An insert without any value still makes an event.
    if is_add or (not steps and kind in _INSERTS):
        return _ADD, steps, None
    if not steps:
        return None, steps, None
    return _MODIFY, steps, None if len(steps) == len(filled) else _all_rows(filled, steps)


def _all_rows(
    filled: Sequence[CheckedRow], steps: Sequence[CheckedRow]
) -> Sequence[CheckedRow] | None:
    """Return all rows of the attributes that the steps write, None if there are no more rows than
    steps.

    Rows that change nothing are included: if an earlier row of the column was set apart, a row that
    changes nothing may be the only row with the column's value.
    """
    written = {attribute for _, _, _, attribute, _, _ in steps}
    rows = [row for row in filled for _, _, _, attribute, _, _ in (row,) if attribute in written]
    return rows if len(rows) > len(steps) else None


def _becomes_add(rows: Sequence[CheckedRow], options: EventOptions) -> bool:
    """Return True if a group whose first row is an insert with query-back becomes an add, not a
    modify.
    """
    return options.insert_query_back == "add" or any(
        event_type == INSERT_FIELD for _, event_type, _, _, _, _ in rows
    )


def _steps_of(
    rows: Sequence[CheckedRow], is_add: bool, options: EventOptions
) -> Sequence[CheckedRow]:
    """Return the rows that are written, in their order (spec/xds.md 4.2, 4.3).

    The rows of a repeated attribute are moved to the place of its first row. In an add, only the
    last row of a single-valued attribute is kept. Then rows that change nothing are dropped; with
    ``noop_updates = emit``, only rows whose old and new values are NULL are dropped.
    """
    if len(rows) > 1 and len({attribute for _, _, _, attribute, _, _ in rows}) < len(rows):
        rows = _side_by_side(rows, is_add)
    for _, _, _, _, old, new in rows:
        if old == new:
            break
    else:  # nearly always
        return rows
    if options.noop_updates == "emit":
        return [
            row
            for row in rows
            for _, _, _, _, old, new in (row,)
            if old is not None or new is not None
        ]
    return [row for row in rows for _, _, _, _, old, new in (row,) if old != new]


def _side_by_side(rows: Sequence[CheckedRow], is_add: bool) -> list[CheckedRow]:
    """Return the rows in an order in which all rows of a repeated attribute are at the place of its
    first row.
    """
    by_attribute: dict[Attribute | None, list[CheckedRow]] = {}
    for row in rows:
        _, _, _, attribute, _, _ = row
        by_attribute.setdefault(attribute, []).append(row)
    return [
        row
        for attribute, several in by_attribute.items()
        for row in (
            several[-1:]
            if is_add and attribute is not None and not attribute.multi_valued
            else several
        )
    ]


# --- values that were read back -------------------------------------------------------------------


def _with_values(
    rows: Sequence[CheckedRow], values: Mapping[Attribute, Texts], is_add: bool
) -> list[CheckedRow]:
    """Return the rows with the values that were read back.

    A row of type 5 or 6 is replaced by one row for every attribute. A row of type 7 or 8 gets the
    value of its attribute, unless an earlier row has written this value.
    """
    goes = None if is_add else ALL
    filled: list[CheckedRow] = []
    written: set[Attribute | None] = set()
    for row in rows:
        record_id, event_type, object_id, attribute, _, _ = row
        if event_type in READS_ROW:
            return [
                (record_id, event_type, object_id, each, goes, value)
                for each, value in values.items()
            ]
        if event_type not in READS_FIELD:
            filled.append(row)
        elif attribute is not None and attribute in values and attribute not in written:
            written.add(attribute)
            filled.append((record_id, event_type, object_id, attribute, goes, values[attribute]))
    return filled


def _read(
    attributes: Sequence[Attribute], current: CurrentRow
) -> tuple[dict[Attribute, Texts], dict[Attribute, RowError], int]:
    """Convert the values that were read back.

    Returns the values, the errors of the attributes that cannot be written, and the number of
    single-valued attributes that had several values (``sv_conflicts``).
    """
    values: dict[Attribute, Texts] = {}
    failed: dict[Attribute, RowError] = {}
    conflicts = 0
    for attribute in attributes:
        try:
            # Values are sorted by code points, without duplicates (spec/xds.md 4.3);
            # a table's own column has just one.
            texts = sorted(
                {attribute.convert(text) for text in current[attribute.name] if text is not None}
            )
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
) -> tuple[list[CheckedRow], list[InvalidRow]]:
    """Separate the query-back rows whose values cannot be written (spec/event-log.md 7.3) from the
    other rows.
    """
    good: list[CheckedRow] = []
    invalid: list[InvalidRow] = []
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
            invalid.append(InvalidRow(record_id, error.code, f"value read back: {error}"))
    return good, invalid


# --- the public form ------------------------------------------------------------------------------


def association_of(outgoing: Outgoing) -> str:
    """Return the association of an event's object (spec/xds.md 5.1)."""
    assert outgoing.object_id is not None
    object_class, key = outgoing.object_id
    return key + object_class.association_tail


def public_event(outgoing: Outgoing) -> Event:
    """Return the event in the form for receivers in Python and for people.

    ``outgoing`` must have an operation.
    """
    assert outgoing.operation is not None
    assert outgoing.object_id is not None
    assert outgoing.steps is not None
    object_class, _ = outgoing.object_id
    attributes = tuple(
        AttributeSteps(
            attribute.name, attribute.value_type, tuple(public_steps(rows, outgoing.operation))
        )
        for attribute, rows in by_attribute(outgoing.steps)
    )
    return Event(
        outgoing.operation,
        object_class.name,
        association_of(outgoing),
        outgoing.sent_id,
        attributes,
    )


def by_attribute(rows: Iterable[CheckedRow]) -> Iterable[tuple[Attribute, Sequence[CheckedRow]]]:
    """Return the attributes of rows, in the order of their first rows. Each attribute comes with
    its rows.
    """
    grouped: dict[Attribute, list[CheckedRow]] = {}
    for row in rows:
        _, _, _, attribute, _, _ = row
        assert attribute is not None
        grouped.setdefault(attribute, []).append(row)
    return grouped.items()


def rows_by_attribute(
    outgoing: Outgoing,
) -> Iterable[tuple[Attribute, Sequence[CheckedRow]]]:
    """Return the attributes of a built event with all their rows, including rows that change
    nothing. The net effect is computed from all of these rows (spec/change-model.md 3.1).
    """
    rows = outgoing.steps if outgoing.rows is None else outgoing.rows
    assert rows is not None
    return by_attribute(rows)


def public_steps(rows: Sequence[CheckedRow], operation: Operation) -> list[Step]:
    """Return the steps of one attribute from its rows."""
    steps: list[Step] = []
    for _, _, _, _, old, new in rows:
        if old is ALL:
            steps.append(Step(Op.REMOVE_ALL, ()))
        elif old is not None:
            steps.append(Step(Op.REMOVE, _tuple(old)))
        if new is not None and operation == _ADD and steps:  # all values of an add are one step
            steps[0] = Step(Op.ADD, steps[0].values + _tuple(new))
        elif new is not None:
            steps.append(Step(Op.ADD, _tuple(new)))
    return steps


def _tuple(texts: str | tuple[str, ...]) -> tuple[str, ...]:
    return texts if isinstance(texts, tuple) else (texts,)
