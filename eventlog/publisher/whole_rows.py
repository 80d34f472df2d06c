"""The rows of events as they are now, for formats whose consumers store whole rows (spec/debezium.md 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eventlog.core.catalog import Attribute, ObjectClass, ObjectId
from eventlog.core.events import CurrentRow, Fates, Outgoing, QueryBack
from eventlog.model import Operation

CurrentRows = Mapping[ObjectId, CurrentRow]


def row_attributes(cls: ObjectClass) -> tuple[Attribute, ...]:
    """The attributes that are columns of the class's one row, without its key."""
    return tuple(
        one for one in cls.attributes if not one.is_key and not one.multi_valued and one.table == cls.table.name
    )


def read_whole_rows(events: Sequence[Outgoing], query_back: QueryBack) -> tuple[list[Outgoing], CurrentRows]:
    """Events, and the rows of those that do not say all of theirs, read by one statement a class.

    A modify whose object is gone makes no event: its rows are gone, as of spec/event-log.md 7.2.
    """
    columns: dict[ObjectClass, tuple[Attribute, ...]] = {}
    keys: dict[ObjectClass, dict[str, None]] = {}
    lacking: set[str] = set()
    for event in events:
        if event.object_id is None or event.operation not in (Operation.ADD, Operation.MODIFY):
            continue
        object_class, key = event.object_id
        if object_class not in columns:
            columns[object_class] = row_attributes(object_class)
        known = {attribute for _, _, _, attribute, _, _ in event.steps or ()}
        if not known.issuperset(columns[object_class]):
            keys.setdefault(object_class, {})[key] = None
            lacking.add(event.event_id)
    current = {
        (object_class, key): row
        for object_class, wanted in keys.items()
        for key, row in query_back(object_class, list(wanted), columns[object_class]).items()
    }
    return [
        _gone(event)
        if event.operation == Operation.MODIFY and event.event_id in lacking and event.object_id not in current
        else event
        for event in events
    ], current


def _gone(event: Outgoing) -> Outgoing:
    fates = event.fates or Fates(event.ids)
    return event._replace(
        operation=None, steps=(), fates=fates._replace(contributed=(), gone=[*fates.gone, *fates.contributed])
    )
