"""Record the snapshot at the beginning of a consumer, chunk by chunk (spec/event-log.md 13.3).

A chunk becomes a delivery, which is recorded before it is sent like any other, but whose events
name objects instead of rows. The same transaction records the key reached. After a crash
the recorded events are sent again, with the same event-ids and numbers and the present values. When
``eventlog requeue`` requests refused objects, they are sent again in the same way.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping, Sequence
from typing import Final, NamedTuple

from eventlog.core.catalog import ObjectClass
from eventlog.core.values import check_unicode, without_surrogates
from eventlog.errors import BadValue, number_of
from eventlog.model import EventType
from eventlog.publisher.context.context import Context
from eventlog.publisher.feeds.snapshot import (
    UnfinishedSnapshot,
    as_built,
    build_present,
    class_and_key,
    packed,
    why_unreadable,
)
from eventlog.publisher.ledger.delivery import Delivery
from eventlog.publisher.ledger.in_flight import add_delivery
from eventlog.publisher.send.marks import Marks, refuse_objects
from eventlog.publisher.send.sending import Delivered, DeliveryResult
from eventlog.publisher.send.session import PublisherSession, begin_delivery, end_recording
from eventlog.sql.log.recorded_masks import record_masks
from eventlog.sql.port.log_operations import Selection, WalkedKeys
from eventlog.sql.readers.consumers import write_loaded
from eventlog.sql.triggers import triggers_of

_log = logging.getLogger("eventlog.publisher")


MAX_KEYS: Final = 1000
"""The maximum number of objects in a chunk."""


_MORE: Final = Delivered(DeliveryResult.DONE, more=True)


class Chunk(NamedTuple):
    """The next step of a snapshot."""

    delivery: Delivery | None
    """A recorded delivery to be sent, None = there is nothing to send now."""
    ended: Delivered
    """The end of the cycle if there is nothing to send."""
    is_loaded: bool = False
    """True if the snapshot has ended."""


def record_chunk(session: PublisherSession, loading: UnfinishedSnapshot) -> Chunk:
    """Record the next chunk, and the key reached.

    Ends the transaction. The errors are those of ``run_cycle``.
    """
    context = session.context
    other_keys = _keys_of_other_names(context, loading)
    object_class = _class_to_read(context, loading, other_keys)
    if loading.class_name in other_keys:
        return wait_for_class(context, loading, other_keys[loading.class_name])
    if object_class is None:
        return _without_class(context, loading)
    asked = _asked(context, loading, object_class)
    keys, unreadable = (
        _keys(context, loading, object_class)
        if asked is None
        else WalkedKeys(list(asked)[:MAX_KEYS])
    )
    if not keys:
        _add_unreadable(context, loading, object_class, [key for _, key in unreadable])
        loading.done.append(object_class.name)
        loading.class_name = loading.reached = None
        _save(context, loading)
        return Chunk(None, _MORE)
    marks = Marks(context.counters)
    event_ids = asked or {key: loading.event_id(object_class.name, key) for key in keys}
    built, delivery = _build(session, object_class, {key: event_ids[key] for key in keys}, marks)
    if delivery is not None and (halted := _halted(session)) is not None:
        context.log.commit()
        return Chunk(None, halted)
    keys = list(built)
    passed = [key for place, key in unreadable if place < len(keys)]
    _add_unreadable(context, loading, object_class, passed)
    loading.reached, loading.objects = keys[-1], loading.objects + len(keys)
    if loading.again is not None:
        sent = {event_ids[key] for key in keys}
        loading.again = [one for one in loading.again if one not in sent]
    if delivery is not None:
        add_delivery(context.log, delivery, context.ledger.consumer)
        if session.state.masks is not None:
            record_masks(context.log, context.ledger.consumer, session.state.masks)
    marks.write(context)
    _save(context, loading)
    if delivery is not None:
        end_recording(session, delivery.number)
    return Chunk(delivery, _MORE)


def _halted(session: PublisherSession) -> Delivered | None:
    """Return how the cycle ends if no delivery may be recorded now. Until the transaction ends, no
    other session can commit a pause.
    """
    session.context.ledger.is_requested()  # locks the consumer's row
    session.read_pause()
    return session.halted()


def _add_unreadable(
    context: Context, loading: UnfinishedSnapshot, object_class: ObjectClass, keys: Sequence[str]
) -> None:
    """Add an error row for each of these objects, whose keys cannot be read."""
    entries = []
    for key in keys:
        try:
            check_unicode(key)
        except BadValue as error:
            event_id = loading.event_id(object_class.name, key)
            entries.append((without_surrogates(event_id), error.code, str(error)))
    refuse_objects(context, entries)


def _save(context: Context, loading: UnfinishedSnapshot) -> None:
    """Write the progress of the snapshot, and commit."""
    write_loaded(context.log, context.ledger.consumer, loading.content())
    context.log.commit()
    context.observer.loads(loading.progress())


def _keys_of_other_names(context: Context, loading: UnfinishedSnapshot) -> dict[str, str]:
    """Return the classes whose triggers log another key than the class has now, each with the
    reason why it cannot be read (spec/event-log.md 13.3). The keys are checked before a class is
    begun. A class whose key has changed while it was read is begun again.
    """
    classes = {cls.name: cls for cls in context.catalog.classes}
    current = classes.get(loading.class_name or "")
    if loading.reached is not None and current is not None:
        if current.has_key(loading.reached):
            return {}
        # A key column was renamed, or another column is the key, so the objects are in another
        # order now.
        _log.warning(
            "the snapshot reads class %s from its beginning: its key has changed", current.name
        )
        loading.reached, loading.objects = None, 0
    reasons = {}
    triggers = triggers_of(context.log.dialect)
    recorded = triggers.recorded_keys(context.log, context.captured(context.catalog))
    for name, logged in recorded.items():
        found = context.catalog.log_name(name)
        if found is None or found.child is not None:
            continue
        key = [column.name for column in found.object_class.key]
        if sorted(key) != sorted(logged):
            reasons[found.object_class.name] = (
                f"its triggers log the key {', '.join(logged)}, and its key is {', '.join(key)} "
                "now: set previous_key in its [[watch]] and run `eventlog triggers apply`"
            )
    return reasons


def _class_to_read(
    context: Context, loading: UnfinishedSnapshot, waiting: Container[str]
) -> ObjectClass | None:
    """Return the next class to read; None if there is none, or if it is unavailable. ``waiting``
    are classes that cannot be read yet.
    """
    names = sorted(cls.name for cls in context.catalog.classes)
    if loading.again is None:
        # Classes that wait come last, so that no other class waits for them.
        names.sort(key=lambda name: name in waiting)
        names += sorted(context.catalog.unavailable)
        wanted = [
            name
            for name in names
            if context.wants(name)
            and name not in loading.done
            and (loading.classes is None or name in loading.classes)
        ]
    else:
        _refuse_unknown(context, loading.again)
        wanted = [class_and_key(context.catalog, one)[0] for one in loading.again[:1]]
    if loading.class_name not in wanted:
        loading.class_name = next(iter(wanted), None)
        loading.reached, loading.objects, loading.expected = None, 0, 0
    return next((cls for cls in context.catalog.classes if cls.name == loading.class_name), None)


def _without_class(context: Context, loading: UnfinishedSnapshot) -> Chunk:
    """Wait for an unavailable class, or end the snapshot."""
    if loading.class_name is not None:
        return wait_for_class(
            context, loading, str(context.catalog.unavailable[loading.class_name])
        )
    if loading.again is None:
        _log.info("the snapshot has ended; classes: %s", ", ".join(loading.done) or "none")
    write_loaded(context.log, context.ledger.consumer, None)
    context.log.commit()
    context.observer.loads(None)
    return Chunk(None, _MORE, is_loaded=True)


def wait_for_class(context: Context, loading: UnfinishedSnapshot, reason: str) -> Chunk:
    """Wait for a class that cannot be read yet."""
    context.log.commit()
    why = f"the snapshot waits for class {loading.class_name}: {reason}"
    return Chunk(None, Delivered(DeliveryResult.RETRY, why, in_short=why))


def _refuse_unknown(context: Context, again: list[str]) -> None:
    """Remove objects without a class or a key from ``again``, so that no other object waits for
    them. Each removed object gets an error row.
    """
    unavailable: Mapping[str, object] = context.catalog.unavailable
    refused: dict[str, tuple[str, str]] = {}
    for event_id in again:
        if reason := why_unreadable(context, event_id):
            refused[event_id] = reason
        elif (name := class_and_key(context.catalog, event_id)[0]) in unavailable:
            refused[event_id] = "unknown_table", str(unavailable[name])
    if refused:
        again[:] = [one for one in again if one not in refused]
        refuse_objects(context, [(event_id, *why) for event_id, why in refused.items()])


def _asked(
    context: Context, loading: UnfinishedSnapshot, object_class: ObjectClass
) -> dict[str, str] | None:
    """Return the event-ids of objects of this class to send again, by their keys; None if a
    snapshot is read.
    """
    if loading.again is None:
        return None
    asked: dict[str, str] = {}
    for event_id in loading.again:
        name, key = class_and_key(context.catalog, event_id)
        if name == object_class.name:
            asked.setdefault(key, event_id)
    return asked


def _keys(context: Context, loading: UnfinishedSnapshot, object_class: ObjectClass) -> WalkedKeys:
    """Return the keys of the next chunk."""
    log, selection = context.log, Selection(object_class.name, EventType.INSERT_ROW_QUERY_BACK)
    walk = log.start_walk(context.catalog.schema, object_class, selection)
    if loading.reached is None:
        loading.expected = log.estimate(walk, None)
        about = number_of(loading.expected, "object")
        _log.info("the snapshot reads class %s, of about %s", object_class.name, about)
    return log.walked_keys(walk, loading.reached, MAX_KEYS)


def _build(
    session: PublisherSession,
    object_class: ObjectClass,
    event_ids: Mapping[str, str],
    marks: Marks,
) -> tuple[Sequence[str], Delivery | None]:
    """Build the events of a chunk, for as many keys as a delivery has room for. ``event_ids`` maps
    keys to event-ids. Return the keys that were built, and the delivery, which is None if none of
    the objects exists.
    """
    context, state, keys = session.context, session.state, list(event_ids)
    built = build_present(context, object_class, keys, state.row_sizes, session.check)
    if any(event.outcomes is not None and event.outcomes.invalid for event in built.events):
        session.check.before_invalid()
    events = []
    for event, key in zip(built.events, keys, strict=False):
        event_id = event_ids[key]
        of_object = as_built(event, event._replace(event_id=event_id, ids=()))
        if of_object.operation is not None:
            events.append(of_object)
        elif of_object.outcomes is not None:
            marks.add_invalid_object(event_id, of_object.outcomes.invalid)
    delivery = None
    if events:
        number, first = begin_delivery(context, state)
        delivery = packed(context, number, first, events, built.current_rows)
    return keys[: len(built.groups)], delivery
