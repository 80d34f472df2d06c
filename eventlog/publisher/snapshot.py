"""The snapshot at the beginning of a consumer: the objects of its classes in chunks by key
(spec/event-log.md 13.3).

A chunk is the next keys of a class and the present values of its objects, each read by separate
statements. It is sent until all of its events are answered for good, and then the position moves
after it. A chunk that a crash interrupts is sent again with the same event-ids and the values of
that time. So are refused objects, when ``eventlog requeue`` asks for them.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, NamedTuple

from eventlog.core.catalog import ObjectClass, ObjectId
from eventlog.core.checks import INSERT_ROW_QUERY_BACK
from eventlog.core.event_ids import object_text, raised_at, snapshot_id
from eventlog.core.events import EventOptions, Outgoing
from eventlog.core.fold import Group
from eventlog.errors import BadTableKey, number_of
from eventlog.model import Answer, EventType, Origins
from eventlog.publisher.context import (
    UNCHECKED,
    CatalogCheck,
    Context,
    Counters,
    PublisherOptions,
)
from eventlog.publisher.delivery import Delivery, DeliveryInfo, pack, rest_of
from eventlog.publisher.marks import send_document
from eventlog.publisher.observer import SnapshotProgress
from eventlog.publisher.parking import Parking
from eventlog.publisher.queue import WindowResult
from eventlog.publisher.read_back import Built, built_deliveries
from eventlog.publisher.sending import (
    Answered,
    Delivered,
    DeliveryResult,
    Judged,
    as_flushed,
    send_delivery,
    why_refused,
)
from eventlog.publisher.session import PublisherSession, begin_delivery
from eventlog.publisher.sinks import Sink
from eventlog.sql.consumers import write_loaded
from eventlog.sql.rows import add_object_errors
from eventlog.sql.triggers import triggers_of
from eventlog.sql.windows import Selection

_log = logging.getLogger("eventlog.publisher")

_MOST_KEYS: Final = 1000
"""The most objects of a chunk."""
_MORE: Final = Delivered(DeliveryResult.DONE, more=True)


@dataclass(slots=True)
class UnfinishedSnapshot:
    """A snapshot that has not ended, in memory and in the line of the consumer."""

    begun: datetime
    """The time when the consumer was registered."""
    done: list[str] = field(default_factory=list)
    """The finished classes."""
    class_name: str | None = None
    """The class that is being read."""
    position: str | None = None
    """The key up to which the class is read, None = from its beginning."""
    objects: int = 0
    """The number of objects that were answered."""
    expected: int = 0
    """The approximate number of objects to be answered in all."""
    again: list[str] | None = None
    """The event-ids of objects to send again, in place of a snapshot."""
    keys: Sequence[str] = ()
    """The keys of the last chunk."""
    left: Delivery | None = None
    """The events of the last chunk to send again."""

    @classmethod
    def of_line(cls, begun: datetime, told: dict[str, Any]) -> UnfinishedSnapshot:
        """Return the snapshot in the line of the consumer."""
        if "again" in told:
            return cls(begun, again=list(told["again"]))
        place = (
            told.get("class"),
            told.get("position"),
            told.get("objects", 0),
            told.get("expected", 0),
        )
        return cls(begun, list(told.get("done", ())), *place)

    def told(self) -> dict[str, Any] | None:
        """Return the content of the consumer's line, None if the snapshot has ended."""
        if self.again is not None:
            return {"again": self.again} if self.again else None
        return {
            "done": self.done,
            "class": self.class_name,
            "position": self.position,
            "objects": self.objects,
            "expected": self.expected,
        }

    def progress(self) -> SnapshotProgress:
        """Return the progress, without a key."""
        left = 0 if self.again is None else len(self.again)
        return SnapshotProgress(
            self.class_name, self.objects, max(self.expected, self.objects + left), self.done
        )


def load_chunk(session: PublisherSession, loading: UnfinishedSnapshot) -> tuple[Delivered, bool]:
    """Send the next chunk, or the rest of the last one; return the end of the sending, and True if
    the snapshot has ended.

    Ends the transaction. Errors as for ``run_cycle``.
    """
    context = session.context
    if loading.left is None:
        other_keys = _keys_of_other_names(context, loading)
        object_class = _class_to_read(context, loading, other_keys)
        if loading.class_name in other_keys:
            return _wait(context, loading, other_keys[loading.class_name])
        if object_class is None:
            return _without_class(context, loading)
        keys = _keys(context, loading, object_class)
        if not keys:
            loading.done.append(object_class.name)
            loading.class_name = loading.position = None
            _save(context, loading)
            return _MORE, False
        _build(session, loading, object_class, keys)
    if loading.left is not None:
        context.log.commit()
        ended = _send(session, loading)
        if ended.result is not DeliveryResult.DONE:
            return ended, False
    loading.position, loading.objects = loading.keys[-1], loading.objects + len(loading.keys)
    if loading.again is not None:
        sent = {f"{loading.class_name}.{key}" for key in loading.keys}
        loading.again = [one for one in loading.again if object_text(one) not in sent]
    _save(context, loading)
    return _MORE, False


def _save(context: Context, loading: UnfinishedSnapshot) -> None:
    """Write the progress of the snapshot, and commit."""
    write_loaded(context.log, context.ledger.consumer, loading.told())
    context.log.commit()
    context.observer.loads(loading.progress())


def _keys_of_other_names(context: Context, loading: UnfinishedSnapshot) -> dict[str, str]:
    """Return the classes whose triggers log another key than the class has now, each with the
    reason why it cannot be read (spec/event-log.md 13.3). It is asked before a class is begun.
    """
    classes = {cls.name: cls for cls in context.catalog.classes}
    current = classes.get(loading.class_name or "")
    if loading.position is not None and current is not None:
        if current.has_key(loading.position):
            return {}
        # A key column was renamed, or another one is the key: the walk is another one, too.
        _log.warning(
            "the snapshot reads class %s from its beginning: its key has changed", current.name
        )
        loading.position, loading.objects = None, 0
    reasons = {}
    triggers = triggers_of(context.log.dialect)
    recorded = triggers.recorded_keys(context.log.connection, context.log.table, context.captured)
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
        wanted = [name for name in names if context.wants(name) and name not in loading.done]
    else:
        _refuse_unknown(context, loading.again)
        wanted = [_class_of(one, names) for one in loading.again[:1]]
    if loading.class_name not in wanted:
        loading.class_name = next(iter(wanted), None)
        loading.position, loading.objects, loading.expected = None, 0, 0
    return next((cls for cls in context.catalog.classes if cls.name == loading.class_name), None)


def _without_class(context: Context, loading: UnfinishedSnapshot) -> tuple[Delivered, bool]:
    """Wait for an unavailable class, or end the snapshot."""
    if loading.class_name is not None:
        return _wait(context, loading, str(context.catalog.unavailable[loading.class_name]))
    if loading.again is None:
        _log.info("the snapshot has ended; classes: %s", ", ".join(loading.done) or "none")
    write_loaded(context.log, context.ledger.consumer, None)
    context.log.commit()
    context.observer.loads(None)
    return _MORE, True


def _wait(context: Context, loading: UnfinishedSnapshot, reason: str) -> tuple[Delivered, bool]:
    """Wait for a class that cannot be read yet."""
    context.log.commit()
    why = f"the snapshot waits for class {loading.class_name}: {reason}"
    return Delivered(DeliveryResult.RETRY, why, in_short=why), False


def _refuse_unknown(context: Context, again: list[str]) -> None:
    """Remove objects without a class or a key from ``again``; each gets an error line, so that no
    other object waits.
    """
    classes = {cls.name: cls for cls in context.catalog.classes}
    unavailable: Mapping[str, object] = context.catalog.unavailable
    refused: dict[str, tuple[str, str]] = {}
    for event_id in again:
        name = _class_of(event_id, (*classes, *unavailable))
        if name in classes:
            try:
                classes[name].canonical_key(_key_of(event_id, name))
            except BadTableKey as error:
                refused[event_id] = error.code, str(error)
        else:
            refused[event_id] = (
                "unknown_table",
                str(unavailable.get(name, "this object is of no class any more")),
            )
    if refused:
        again[:] = [one for one in again if one not in refused]
        context.counters.rows_invalid += len(refused)
        lines = [(event_id, *why) for event_id, why in refused.items()]
        add_object_errors(context.log, lines, context.ledger.consumer)


def _class_of(event_id: str, names: Iterable[str]) -> str:
    """Return the name of the class in a snapshot's event-id, empty if it is none of these."""
    text = object_text(event_id)
    return max((name for name in names if text.startswith(f"{name}.")), key=len, default="")


def _key_of(event_id: str, class_name: str) -> str:
    return object_text(event_id).removeprefix(f"{class_name}.")


def _keys(
    context: Context, loading: UnfinishedSnapshot, object_class: ObjectClass
) -> Sequence[str]:
    """Return the keys of the next chunk."""
    conn, dialect = context.log.connection, context.log.dialect
    if loading.again is not None:
        name, names = object_class.name, [cls.name for cls in context.catalog.classes]
        return [_key_of(one, name) for one in loading.again if _class_of(one, names) == name][
            :_MOST_KEYS
        ]
    selection = Selection(object_class.name, EventType.INSERT_ROW_QUERY_BACK)
    walk = (
        dialect.open(conn)
        .log(context.log.table)
        .start_walk(context.catalog.schema, object_class, selection)
    )
    if loading.position is None:
        loading.expected = dialect.open(conn).log(walk.log).estimate(walk, None)
        about = number_of(loading.expected, "object")
        _log.info("the snapshot reads class %s, of about %s", object_class.name, about)
    return dialect.open(conn).log(walk.log).keys_behind(walk, loading.position, _MOST_KEYS)


def _build(
    session: PublisherSession,
    loading: UnfinishedSnapshot,
    object_class: ObjectClass,
    keys: Sequence[str],
) -> None:
    """Build the events of a chunk, for as many keys as a delivery has room for.

    An object without an event is done.
    """
    context, state = session.context, session.state
    built = _build_now(context, object_class, keys, state.row_sizes, session.check)
    loading.keys = keys[: len(built.groups)]
    if any(event.outcomes is not None and event.outcomes.invalid for event in built.events):
        session.check.before_bad()
    events = []
    for event, key in zip(built.events, keys, strict=False):
        event_id = snapshot_id(loading.begun, object_class.name, key)
        if event.outcomes is not None and event.outcomes.invalid:
            context.counters.rows_invalid += len(event.outcomes.invalid)
            lines = [(event_id, one.code, one.message) for one in event.outcomes.invalid]
            add_object_errors(context.log, lines, context.ledger.consumer)
        if event.operation is not None:
            events.append(event._replace(event_id=event_id, outcomes=None))
    if not events:
        return
    number, first = begin_delivery(context, state)
    context.used.delivery_no = number
    loading.left = _packed(context, number, first, events, built)


def _build_now(
    context: Context,
    object_class: ObjectClass,
    keys: Sequence[str],
    row_sizes: dict[str, int],
    check: CatalogCheck = UNCHECKED,
) -> Built:
    """Build adds of the present objects with these keys, for as many as a delivery has room for.

    The adds come from rows of type 5 that exist in no log: the number of such a row is its object's
    place in the chunk.
    """
    groups: list[Group] = [
        [(number, INSERT_ROW_QUERY_BACK, (object_class, key), None, None, None)]
        for number, key in enumerate(keys, 1)
    ]
    options = replace(
        context.options, events=EventOptions(insert_query_back="add"), delivery_rows=len(groups)
    )
    return next(
        built_deliveries(
            replace(context, options=options, attempts={}),
            WindowResult(groups, [], [], None),
            row_sizes,
            check,
        )
    )


def _packed(
    context: Context, number: int, first: str, events: Sequence[Outgoing], built: Built
) -> Delivery:
    """Return the delivery of the events of a chunk; ``first`` is the number of its first event."""
    clock = context.log.due_until(context.options.event_time_zone)
    origins = Origins(dict.fromkeys((event.ids[0] for event in events), clock), {})
    delivery = pack(number, events, context.options.batch_size, first, origins)
    return delivery._replace(current_rows=built.current_rows)


class Present(NamedTuple):
    """An object of a snapshot at present.

    ``event`` is the event that would be sent, and ``delivery`` its delivery.
    """

    object_id: ObjectId
    event: Outgoing
    delivery: Delivery


def read_object(context: Context, event_id: str) -> Present | None:
    """Return the object of a snapshot's event-id; None if no class has it. Nothing is recorded."""
    classes = {cls.name: cls for cls in context.catalog.classes}
    name = _class_of(event_id, classes)
    if not name:
        return None
    key = _key_of(event_id, name)
    built = _build_now(context, classes[name], [key], {})
    event = built.events[0]._replace(event_id=event_id)
    first = context.output.first(0, "", raised_at(context.epoch))
    return Present((classes[name], key), event, _packed(context, 0, first, [event], built))


class _ChunkSender:
    """The sending of a chunk's events. It remembers those answered for good."""

    def __init__(self, context: Context, delivery: Delivery, sink: Sink) -> None:
        self.options: PublisherOptions = context.options
        self.counters: Counters = context.counters
        self.parking: Parking[ObjectId] = Parking(
            context.options.retry_initial, context.options.retry_max
        )
        self.delivery_no: int = delivery.number
        self.done: set[str] = set()
        self._context, self._delivery, self._sink = context, delivery, sink
        self._answered: Answered[Outgoing] = []

    @property
    def suspects(self) -> None:
        """None: each failure of the receiver means that it is unavailable."""
        return

    def tried(self, document_no: int) -> None:
        return

    def send(self, document_no: int, events: Sequence[Outgoing]) -> Answer:
        return send_document(self._context, self._sink, self._delivery, document_no, events)

    def settle(self, document_no: int, events: Sequence[Outgoing], judged: Judged[Outgoing]) -> str:
        self._answered += judged.answered
        return ""

    def save(self) -> None:
        """Make the answers count; errors get lines."""
        refused = self._sink.flush()
        log = self._context.log
        consumer = self._context.ledger.consumer
        for verdict, events in as_flushed(self._answered, refused, self.counters):
            self.done.update(event.event_id for event in events)
            if why := why_refused(verdict):
                add_object_errors(
                    log, [(event.event_id, "receiver", why) for event in events], consumer
                )
                log.commit()
        self._answered = []


def _send(session: PublisherSession, loading: UnfinishedSnapshot) -> Delivered:
    """Send the rest of a chunk; events to send again stay in ``left``."""
    context, delivery = session.context, loading.left
    assert delivery is not None
    session.before_delivery()
    context.observer.delivery_begins(
        DeliveryInfo(delivery.number, sum(map(len, delivery.documents.values())), 0), {}
    )
    sender = _ChunkSender(context, delivery, session.sink)
    documents = [
        (number, part)
        for number, events in delivery.documents.items()
        for part in ([[event] for event in events] if context.output.is_single else [events])
    ]
    ended = send_delivery(context, documents, len(documents), sender, session.is_stopping)
    left = {
        number: rest
        for number, events in delivery.documents.items()
        if (rest := [event for event in events if event.event_id not in sender.done])
    }
    loading.left = rest_of(delivery, left) if left else None
    info = DeliveryInfo(delivery.number, sum(map(len, left.values())), 0) if left else None
    context.observer.delivery_ended(delivery.number, ended.result.value, info)
    if left and ended.result is DeliveryResult.DONE:
        why = (
            f"{number_of(sum(map(len, left.values())), 'object')} of the snapshot to be sent again"
        )
        return Delivered(DeliveryResult.RETRY, why, ended.retry_after, in_short=why)
    return ended
