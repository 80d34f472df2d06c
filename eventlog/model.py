"""What everything else speaks of: a row of the log, its status and type, and the event that rows become."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple


class EventType(IntEnum):
    """The eight event types of spec/event-log.md 3."""

    INSERT_FIELD = 1
    UPDATE_FIELD = 2
    UPDATE_FIELD_REMOVE_ALL = 3
    DELETE_ROW = 4
    INSERT_ROW_QUERY_BACK = 5
    UPDATE_ROW_QUERY_BACK = 6
    INSERT_FIELD_QUERY_BACK = 7
    UPDATE_FIELD_QUERY_BACK = 8


class Status:
    """The status letters of spec/event-log.md 2. Any other letter is reserved and left alone."""

    NEW: Final = "N"
    SUCCESS: Final = "S"
    WARNING: Final = "W"
    ERROR: Final = "E"
    FATAL: Final = "F"


class LogRow(NamedTuple):
    """One row of the event log, fields in the order of layout 2.x (spec/event-log.md 1).

    Cheap on purpose: millions pass through. ``event_time`` is the database's text
    (``yyyy-mm-dd hh:mm:ss[.f]``); the publisher orders by it in SQL and never parses it.
    """

    record_id: int
    status: str
    event_type: int | None
    event_time: str | None
    perpetrator: str | None
    table_name: str | None
    table_key: str | None
    column_name: str | None
    old_value: str | None
    new_value: str | None


class Op(IntEnum):
    """What a step of a modify does to its attribute; a modify keeps the steps in order (spec/xds.md 4.3)."""

    REMOVE = 0
    REMOVE_ALL = 1
    ADD = 2


class Step(NamedTuple):
    """One step of an attribute: remove-value, remove-all-values (no values) or add-value."""

    op: Op
    values: tuple[str, ...]


class AttributeSteps(NamedTuple):
    """An attribute of an event with its steps in order. For an add: one ``Op.ADD`` step.

    ``value_type`` is the XDS type of its values: string, int, state, octet, time or dn.
    """

    name: str
    value_type: str
    steps: tuple[Step, ...]


class Operation:
    """The three operations of an event."""

    ADD: Final = "add"
    MODIFY: Final = "modify"
    DELETE: Final = "delete"


class Event(NamedTuple):
    """Add, modify or delete of one object: what a document is written from (spec/xds.md 3, 4).

    ``class_name`` as the database spells it, ``association`` as spec/xds.md 5.1, ``event_id`` as
    spec/event-log.md 7.4 (with ``.2`` and so on when sent again).
    """

    operation: str
    class_name: str
    association: str
    event_id: str
    attributes: tuple[AttributeSteps, ...] = ()
