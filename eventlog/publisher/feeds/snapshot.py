"""The snapshot at the beginning of a consumer: its progress, and the present state of its objects
(spec/event-log.md 13.3). ``snapshot_chunks`` records the objects to be sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from eventlog.core.catalog import Catalog, ObjectClass, ObjectId
from eventlog.core.rows.checks import INSERT_ROW_QUERY_BACK, InvalidRow
from eventlog.core.rows.event_ids import (
    may_delete,
    object_id_of,
    object_text,
    raised_at,
    registered,
)
from eventlog.core.rows.events import CurrentRow, EventOptions, Outgoing, RowOutcomes
from eventlog.core.rows.fold import Group
from eventlog.errors import BadTableKey
from eventlog.model import Operation, Origins
from eventlog.publisher.context.context import UNCHECKED, CatalogCheck, Context
from eventlog.publisher.context.observer import SnapshotProgress
from eventlog.publisher.feeds.queue import WindowResult, build_events
from eventlog.publisher.feeds.read_back import Built, built_deliveries
from eventlog.publisher.ledger.delivery import Delivery, new_nonce, pack


@dataclass(slots=True)
class UnfinishedSnapshot:
    """A snapshot that has not ended, in memory and in the consumer's row."""

    begun: datetime
    """The time when the consumer was registered."""
    done: list[str] = field(default_factory=list)
    """The finished classes."""
    class_name: str | None = None
    """The class that is being read."""
    reached: str | None = None
    """The key up to which the class is read, None = from its beginning."""
    objects: int = 0
    """The number of objects that were recorded to be sent."""
    expected: int = 0
    """The approximate number of objects of the class."""
    again: list[str] | None = None
    """The event-ids of objects to send again; they are sent in place of a snapshot."""
    classes: list[str] | None = None
    """The classes to send again as a whole, in place of a snapshot of all classes."""
    resent: str = ""
    """The time in the event-ids of ``classes``."""

    def event_id(self, class_name: str, key: str) -> str:
        """Return the event-id of an object."""
        return object_id_of(self.resent or registered(self.begun), f"{class_name}.{key}")

    @classmethod
    def from_row(cls, begun: datetime, content: dict[str, Any]) -> UnfinishedSnapshot:
        """Return the snapshot that is recorded in the consumer's row."""
        if "again" in content:
            return cls(begun, again=list(content["again"]))
        place = (
            content.get("class"),
            content.get("position"),
            content.get("objects", 0),
            content.get("expected", 0),
        )
        return cls(
            begun,
            list(content.get("done", ())),
            *place,
            classes=content.get("classes"),
            resent=content.get("begun", ""),
        )

    def content(self) -> dict[str, Any] | None:
        """Return the content for the consumer's row, None if the snapshot has ended."""
        if self.again is not None:
            return {"again": self.again} if self.again else None
        whole = {} if self.classes is None else {"classes": self.classes, "begun": self.resent}
        return {
            **whole,
            "done": self.done,
            "class": self.class_name,
            "position": self.reached,
            "objects": self.objects,
            "expected": self.expected,
        }

    def progress(self) -> SnapshotProgress:
        """Return the progress, which does not contain a key."""
        left = 0 if self.again is None else len(self.again)
        return SnapshotProgress(
            self.class_name, self.objects, max(self.expected, self.objects + left), self.done
        )


def class_and_key(catalog: Catalog, event_id: str) -> tuple[str, str]:
    """Return the class and the key in a snapshot's event-id. The class has its present name, even
    if its table was renamed after the event-id was made (spec/event-log.md 5.2). The name is empty
    if there is no such class.
    """
    text = object_text(event_id)
    stops = [place for place, character in enumerate(text) if character == "."]
    for place in reversed(stops):  # names and keys may have full stops, too
        name, key = text[:place], text[place + 1 :]
        meant = catalog.log_name(name)
        if meant is not None and meant.child is None:
            return meant.object_class.name, key
        if (unavailable := catalog.unavailable_class(name)) is not None:
            return unavailable, key
    return "", text


def as_built(built: Outgoing, event: Outgoing) -> Outgoing:
    """Return an event of a snapshot as it was built. Its outcomes contain only invalid values. An
    object that does not exist for the reader has no event, unless its class is sent again as a
    whole (``may_delete``).
    """
    invalid = [] if built.outcomes is None else built.outcomes.invalid
    return event._replace(
        object_id=built.object_id,
        operation=None
        if built.operation == Operation.DELETE and not may_delete(event.event_id)
        else built.operation,
        steps=built.steps,
        rows=built.rows,
        outcomes=RowOutcomes(invalid=invalid) if invalid else None,
    )


def build_present(
    context: Context,
    object_class: ObjectClass,
    keys: Sequence[str],
    row_sizes: dict[str, int],
    check: CatalogCheck = UNCHECKED,
) -> Built:
    """Build adds of the present objects with these keys, as many as a delivery has room for.

    The adds are built from rows of type 5 that do not exist in the log: the record_id of such a row
    is the object's place in the chunk.
    """
    groups = _groups((object_class, key) for key in keys)
    return next(
        built_deliveries(
            _context_for_adds(context, len(groups)),
            WindowResult(groups, [], [], None),
            row_sizes,
            check,
        )
    )


def _groups(objects: Iterable[ObjectId]) -> list[Group]:
    """Return a row of type 5 for each object."""
    return [
        [(number, INSERT_ROW_QUERY_BACK, object_id, None, None, None)]
        for number, object_id in enumerate(objects, 1)
    ]


def _context_for_adds(context: Context, rows: int) -> Context:
    """Return a context in which rows of type 5 become adds, and a delivery has room for ``rows``
    rows.
    """
    events = EventOptions(insert_query_back="add")
    options = replace(context.options, events=events, delivery_rows=rows)
    return replace(context, options=options, attempts={})


def unfinished(context: Context) -> UnfinishedSnapshot | None:
    """Return the snapshot that must be sent before the log is read, None if there is none."""
    progress = context.ledger.loading()
    return None if progress is None else UnfinishedSnapshot.from_row(*progress)


def object_of(context: Context, event_id: str) -> ObjectId | None:
    """Return the object of a snapshot's event-id, None if its class cannot be read, or if its key
    is not a key of the class.
    """
    _, key, cls = _named(context, event_id)
    return None if cls is None or why_unreadable(context, event_id) else (cls, key)


def _named(context: Context, event_id: str) -> tuple[str, str, ObjectClass | None]:
    """Return the class name and the key of a snapshot's event-id, and the class if it can be
    read.
    """
    name, key = class_and_key(context.catalog, event_id)
    return name, key, next((cls for cls in context.catalog.classes if cls.name == name), None)


def build_objects(
    context: Context, recorded: Sequence[Outgoing]
) -> tuple[list[Outgoing], frozenset[str]]:
    """Build recorded events of a snapshot with the present values of their objects. Also return the
    event-ids of the events whose class is unavailable.
    """
    objects = {event.event_id: object_of(context, event.event_id) for event in recorded}
    present = [one for one in objects.values() if one is not None]
    built = iter(
        build_events(_context_for_adds(context, len(present)), _groups(present), context.query_back)
    )
    events, waiting = [], set()
    for event in recorded:
        if objects[event.event_id] is not None:
            events.append(as_built(next(built), event))
            continue
        reason = why_unreadable(context, event.event_id)
        if reason is None:
            waiting.add(event.event_id)
            events.append(event)
        else:
            invalid = [InvalidRow(0, *reason)]
            events.append(
                event._replace(operation=None, steps=(), outcomes=RowOutcomes(invalid=invalid))
            )
    return events, frozenset(waiting)


def why_unreadable(context: Context, event_id: str) -> tuple[str, str] | None:
    """Return the code and the message for an object whose class or key is not valid. None if both
    are valid, or if the class is only unavailable.
    """
    name, key, cls = _named(context, event_id)
    if not name:
        return (
            "unknown_table",
            "the class of this object is no longer configured, or no longer exists",
        )
    if cls is not None:
        try:
            cls.canonical_key(key)
        except BadTableKey as error:
            return error.code, str(error)
    return None


def packed(
    context: Context,
    number: int,
    first: str,
    events: Sequence[Outgoing],
    current_rows: Mapping[ObjectId, CurrentRow],
) -> Delivery:
    """Return the delivery of the events of a chunk; ``first`` is the number of its first event."""
    origins = origins_of_objects(context)
    delivery = pack(number, events, context.options.batch_size, first, origins, context.epoch)
    nonce = new_nonce(is_needed=context.options.needs_nonces)
    return delivery._replace(current_rows=current_rows, nonce=nonce)


def origins_of_objects(context: Context) -> Origins:
    """Return the origins of a snapshot's objects. The time in the origins is the present time."""
    return Origins({0: context.log.due_until(context.options.event_time_zone)}, {}, {})


class Present(NamedTuple):
    """An object of a snapshot at present.

    ``event`` is the event that would be sent, and ``delivery`` is the delivery of this event.
    """

    object_id: ObjectId
    event: Outgoing
    delivery: Delivery


def read_object(context: Context, event_id: str) -> Present | None:
    """Return the object of a snapshot's event-id; None if no class has the object. Nothing is
    recorded.
    """
    _, key, cls = _named(context, event_id)
    if cls is None:
        return None
    built = build_present(context, cls, [key], {})
    event = built.events[0]._replace(event_id=event_id, ids=())
    first = context.output.first(0, "", raised_at(context.epoch))
    return Present((cls, key), event, packed(context, 0, first, [event], built.current_rows))
