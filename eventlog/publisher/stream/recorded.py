"""The events of a followed source that its position has passed and that have no answer yet
(spec/change-model.md 6.6): the form in which they are kept with the position.

A source is read again only from its position, so a recorded event must not depend on the source. An
event is kept as its change, with all that makes it the same event again: its event-id, the
description of its table, and the newest number before it for a format that numbers changes.
Documents that the receiver failed for are recorded as in the in-flight entry of a log
(``publisher.ledger.delivery``).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final, NamedTuple, Self

from eventlog.changes.json_form import database_from_json, database_to_json
from eventlog.changes.keys import old_and_new_key
from eventlog.core.catalog import Database
from eventlog.errors import ConfigError, DatabaseError, FormatError
from eventlog.model import Change, ChangeOp, Lob
from eventlog.publisher.ledger.delivery import ENTRY_FORMAT, Tried, read_tried, refuse_newer
from eventlog.publisher.send.policy import EVERY
from eventlog.publisher.stream import Described
from eventlog.publisher.stream.pending_event import ObjectId

_DIALECT = "source"
"""The name of the database in a description; no dialect with special type names has this name."""


class RecordedEvent(NamedTuple):
    """An event without an answer."""

    number: int
    """The event's number in the order of the source."""
    sent_id: str
    change: Change
    numbered: str = ""
    """The newest number before it, for a format that numbers changes."""
    described: Described | None = None
    """The description of the change's table, None if the source gave none."""

    @property
    def objects(self) -> tuple[ObjectId, ...]:
        """The objects of the event; empty = all objects, for example for a TRUNCATE."""
        change = self.change
        if change.key is None:
            return ()
        keys = dict.fromkeys(old_and_new_key(change))
        return tuple((change.schema, change.table, key) for key in keys)

    @property
    def queues(self) -> Collection[Hashable]:
        """The objects whose later events must wait for this event."""
        return self.objects or (EVERY,)

    def again(self) -> Self:
        """Return the event itself, since the source determines the event-id."""
        return self


class SettledEvent(NamedTuple):
    """An event that was refused or given up before the position has passed it.

    ``digest`` distinguishes its change from another change under the same event-id, for example in
    a source that was replaced.
    """

    sent_id: str
    digest: str


class RecordedDocument(NamedTuple):
    """Events that are sent as one document, or, in ``settled``, events that are not sent again.

    ``tried`` are the attempts at the document, None = there was none (spec/event-log.md 8.4).
    ``nonce`` is its random text, empty if the sink needs none. A document without events has the
    nonce of the events that the position has not passed.
    """

    events: Sequence[RecordedEvent]
    tried: Tried | None = None
    settled: Sequence[SettledEvent] = ()
    nonce: str = ""


def encode(document: RecordedDocument) -> str:
    """Return the content of a document's entry.

    ``{"line_format": 1, "events": [...]}`` with ``nonce``, with ``tables``, the descriptions of the
    tables, and with ``suspect``, ``failures`` or ``parked``, which have the same form as in the
    in-flight entry of a log; or ``{"line_format": 1, "settled": [[event_id, digest], ...]}``.
    """
    entry: dict[str, Any] = {"line_format": ENTRY_FORMAT}
    if document.settled:
        return json.dumps({**entry, "settled": document.settled}, separators=(",", ":"))
    if document.nonce:
        entry["nonce"] = document.nonce
    tables = dict.fromkeys(event.described for event in document.events if event.described)
    if tables:
        entry["tables"] = [
            database_to_json(Database(_DIALECT, each.schema, (each.table,))) for each in tables
        ]
    if document.tried is not None:
        entry |= document.tried.as_member()
    entry["events"] = [
        {
            "number": event.number,
            "id": event.sent_id,
            **({"numbered": event.numbered} if event.numbered else {}),
            "change": [_to_json(field) for field in event.change],
        }
        for event in document.events
    ]
    return json.dumps(entry, separators=(",", ":"))


def decode(entry_no: int, content: str) -> RecordedDocument:
    """Return the document of an entry. Raises DatabaseError for a content that it cannot read."""
    try:
        entry = json.loads(content)
        refuse_newer(entry_no, entry)
        if "settled" in entry:
            settled = [SettledEvent(str(one), str(digest)) for one, digest in entry["settled"]]
            return RecordedDocument([], settled=settled)
        tables = {}
        for each in entry.get("tables", ()):
            database = database_from_json(each)
            (table,) = database.tables
            tables[database.schema, table.name] = Described(database.schema, table)
        events = []
        for each in entry["events"]:
            op, fields = _OP, [_from_json(field) for field in each["change"]]
            fields[op] = ChangeOp(fields[op])
            change = Change(*fields)
            events.append(
                RecordedEvent(
                    int(each["number"]),
                    str(each["id"]),
                    change,
                    str(each.get("numbered", "")),
                    tables.get((change.schema, change.table)),
                )
            )
        nonce = str(entry.get("nonce", ""))
        return RecordedDocument(events, read_tried(entry), nonce=nonce)
    except (TypeError, ValueError, KeyError, AttributeError, ConfigError, FormatError) as error:
        raise DatabaseError(
            f"the entry {entry_no} of the events without an answer cannot be read ({error}). If "
            "it was changed by hand, restore its content"
        ) from None


_OP = Change._fields.index("op")


# --- values, with their types ---------------------------------------------------------------------


class _Kind(NamedTuple):
    """A type of values, and the functions that convert a value to a text and a text to a value."""

    type: type
    to_text: Callable[[Any], str]
    from_text: Callable[[str], Any]


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


_KINDS: Final = {
    "float": _Kind(float, repr, float),
    "decimal": _Kind(Decimal, str, Decimal),
    "lob": _Kind(Lob, lambda lob: _base64(lob.data), lambda text: Lob(base64.b64decode(text))),
    "bytes": _Kind(bytes, _base64, base64.b64decode),
    "datetime": _Kind(datetime, datetime.isoformat, datetime.fromisoformat),
    "date": _Kind(date, date.isoformat, date.fromisoformat),
    "time": _Kind(time, time.isoformat, time.fromisoformat),
}
"""The kinds of values that are kept as a text, by their names. A Lob is also a tuple, and a
datetime is also a date: the first kind that fits is used.
"""


def _to_json(value: Any) -> Any:
    """Return the JSON of a field of a change, from which ``_from_json`` makes an equal value of the
    same type. The JSON form of changes (spec/change-model.md 1.1) does not distinguish all types.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    for name, kind in _KINDS.items():
        if isinstance(value, kind.type):
            return {name: kind.to_text(value)}
    match value:
        case tuple():
            return {"tuple": [_to_json(part) for part in value]}
        case list():
            return [_to_json(part) for part in value]
        case set() | frozenset():
            return {"set": [_to_json(part) for part in sorted(value)]}
        case Mapping():
            return {"object": {str(name): _to_json(part) for name, part in value.items()}}
    raise TypeError(f"a value of type {type(value).__name__} cannot be kept")


def _from_json(value: Any) -> Any:
    """Return the value of JSON that ``_to_json`` returned."""
    if isinstance(value, list):
        return [_from_json(part) for part in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind in _KINDS:
        return _KINDS[kind].from_text(content)
    match kind:
        case "tuple":
            return tuple(_from_json(part) for part in content)
        case "set":
            return frozenset(_from_json(part) for part in content)
        case "object":
            return {name: _from_json(part) for name, part in content.items()}
    raise ValueError(f"{kind!r} is not the type of a value")
