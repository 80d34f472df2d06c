"""The changes of a followed source in an output format: a change becomes events, and events become
documents (spec/change-model.md 6.2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

from eventlog.changes.images import with_zones
from eventlog.changes.keys import class_of_change, old_and_new_key, with_key
from eventlog.changes.publishing import EventWriter
from eventlog.changes.to_events import association_text, change_to_events
from eventlog.core.catalog import Catalog, Database, ObjectClass
from eventlog.core.catalog.builder import build_catalog
from eventlog.core.values import ValueOptions
from eventlog.errors import ConfigError, FormatError, NotExpressible, RowError
from eventlog.model import Change, ChangeOp, Document, Event, differing
from eventlog.publisher.stream import Described
from eventlog.publisher.stream.pending_event import ObjectId, PendingEvent
from eventlog.publisher.stream.recorded import RecordedEvent

Written: TypeAlias = tuple[
    str, tuple[ObjectId, ...], Change, Any, str, Described | None
]  # the fields of PendingEvent after the number


class StreamOutput:
    """Writes the changes of a source in a format. The catalogue has the classes; None = the
    source's own descriptions of its tables are used.
    """

    def __init__(
        self, writer: EventWriter[Any], catalog: Catalog | None, values: ValueOptions
    ) -> None:
        self.writer = writer
        self._catalog, self._values = catalog, values
        self._described: dict[tuple[str | None, str], ObjectClass] = {}
        self._descriptions: dict[tuple[str | None, str], Described] = {}

    def describe(self, described: Described) -> None:
        """Store the source's description of a table. A table without a key is not a class."""
        schema, table = described
        database = Database("", schema, (table,))
        classes = build_catalog(database, values=self._values).classes
        self._described.pop((schema, table.name), None)
        self._described.update({(schema, one.name): one for one in classes})
        self._descriptions[schema, table.name] = described

    def resume(self, event: RecordedEvent) -> None:
        """Continue with the description and the number that a recorded event had before it."""
        if event.described is not None:
            self.describe(event.described)
        self.writer.resume(event.numbered)

    def shown(self, event: RecordedEvent) -> str:
        """Return the document of a recorded event for people, as it would be sent now.

        Raises the errors of ``complete`` and ``events_of``, ReceiverUnavailable for a registry that
        does not answer.
        """
        self.resume(event)
        change, object_class = self.complete(event.change)
        written = self.events_of(change, object_class, event.sent_id, self.writer.piece_of)
        return "".join(self.writer.shown(piece) for _, _, _, piece, *_ in written)

    def class_of(self, change: Change) -> ObjectClass | None:
        """Return the class of a change's table, from the catalogue or else from the source's
        description; None = unknown.
        """
        if self._catalog is not None:
            return class_of_change(self._catalog, change)
        return self._described.get((change.schema, change.table))

    def complete(self, change: Change) -> tuple[Change, ObjectClass | None]:
        """Return a change with the schema and the zones of its class, and the class. Raises
        ConfigError for a table without a key.
        """
        object_class = self.class_of(change)
        if change.key is None and change.op is not ChangeOp.TRUNCATE and object_class is None:
            # This is not only a failure of one change: the whole table would be skipped.
            raise ConfigError(
                f"{change.table!r} has no key that identifies its rows; name its key columns in "
                "source.catalog, or for a CDC stream in source.reader.keys"
            )
        if change.schema is None and object_class is not None and self._catalog is not None:
            change = change._replace(schema=self._catalog.schema)
        return with_zones(change, object_class), object_class

    def events_of(
        self,
        change: Change,
        object_class: ObjectClass | None,
        event_id: str,
        piece_of: Callable[[Change, str, ObjectClass | None], Any],
    ) -> list[Written]:
        """Return the events of a change that ``complete`` has returned. ``piece_of`` returns the
        format's piece of an event, None if the format writes nothing for it.

        Raises FormatError or RowError for a change that the format cannot hold.
        """
        described = None
        if self._catalog is None:
            described = self._descriptions.get((change.schema, change.table))
        written: list[Written] = []
        for sent_id, objects, part in _parts(self.writer, change, event_id, object_class):
            numbered = self.writer.numbered
            piece = piece_of(part, sent_id, object_class)
            if piece is not None:
                written.append((sent_id, objects, part, piece, numbered, described))
        return written

    def document(
        self, delivery_no: int, document_no: int, events: Sequence[PendingEvent]
    ) -> Document:
        """Return the document of events."""
        writer, ids = self.writer, [each.sent_id for each in events]
        pieces = [each.piece for each in events]
        make_events = partial(_public_events, self._catalog, events)
        if writer.in_records:
            catalog = self._catalog
            records = writer.records_of(
                pieces,
                lambda: [
                    _record_key(each, class_of_change(catalog, each.change)) for each in events
                ],
            )
            return Document(delivery_no, document_no, ids, b"", records, make_events)
        media_type, headers = writer.media_type_of(pieces), writer.headers_of(pieces)
        return Document(
            delivery_no,
            document_no,
            ids,
            writer.body_of(pieces),
            (),
            make_events,
            media_type,
            headers,
        )


def _public_events(catalog: Catalog | None, events: Sequence[PendingEvent]) -> tuple[Event, ...]:
    """Return the events in their public form, for sinks that read them.

    A change without this form is left out.
    """
    public: list[Event] = []
    for each in events:
        with suppress(FormatError, RowError):
            public += change_to_events(each.change, each.sent_id, catalog)
    return tuple(public)


def _record_key(event: PendingEvent, object_class: ObjectClass | None) -> bytes:
    """Return the key of an event's record: the association of the event's object. If the event
    changes the key of the object, the association has the new key.
    """
    if not event.objects:
        return b""
    *_, key = event.objects[-1]
    return association_text(event.change, key, object_class).encode()


def _parts(
    writer: EventWriter[Any], change: Change, event_id: str, object_class: ObjectClass | None
) -> list[tuple[str, tuple[ObjectId, ...], Change]]:
    """Return the changes that become one event each, with their event-ids and objects. An update of
    the key becomes a delete and an insert, unless the format writes a change of the key as one
    event (spec/change-model.md 6.2).

    A TRUNCATE has no single object. Raises NotExpressible for an unknown key.
    """
    if change.op is ChangeOp.TRUNCATE:
        return [(event_id, (), change)]
    change = with_key(change, object_class)
    old, new = old_and_new_key(change)
    if any(value is None for _, value in (*old, *new)):
        raise NotExpressible(
            f"the key of {change.op} of {change.table!r} at {change.position} has a NULL"
        )
    schema, table = change.schema, change.table
    if old == new:
        return [(event_id, ((schema, table, new),), change)]
    if writer.joins_new_key:
        return [(event_id, ((schema, table, old), (schema, table, new)), change)]
    before, after = change.before or {}, change.after or {}
    changed = differing(before, after) if change.changed is None else change.changed
    if (
        changed is not None
        and before.keys() >= changed
        and not change.extras.get("changed_unknown")
    ):
        before = {**after, **before}  # values that did not change are the old values, too
    delete = change._replace(
        op=ChangeOp.DELETE, key=old, before={**before, **dict(old)}, after=None, changed=None
    )
    insert = change._replace(op=ChangeOp.INSERT, before=None, changed=None)
    return [
        (event_id, ((schema, table, old),), delete),
        (f"{event_id}.2", ((schema, table, new),), insert),
    ]
