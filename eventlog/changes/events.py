"""Convert XDS events to changes (spec/change-model.md 2, 3.2); ``to_events`` is the reverse."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Final, Protocol, TypeAlias

from eventlog.changes.keys import class_of, key_reader, typed_key
from eventlog.changes.net_effect import Net, net_of_many, net_of_rows
from eventlog.core import table_key
from eventlog.core.catalog import Attribute, Catalog, ObjectClass
from eventlog.core.rows.event_ids import is_of_snapshot
from eventlog.core.rows.events import Outgoing, association_of, rows_by_attribute
from eventlog.core.values import ValueOptions
from eventlog.core.values.typed_values import ReadValue, xds_value_reader
from eventlog.errors import BadTableKey, BadValue, FormatError, shown
from eventlog.model import (
    NO_EXTRAS,
    AttributeSteps,
    Change,
    ChangeOp,
    Event,
    Key,
    Op,
    Operation,
    RowDict,
    Step,
    Value,
)

OPERATIONS: Final = {
    Operation.ADD: ChangeOp.INSERT,
    Operation.MODIFY: ChangeOp.UPDATE,
    Operation.DELETE: ChangeOp.DELETE,
}
_DEFAULTS: Final = ValueOptions()
_MAX_CLASSES: Final = 1024
_MAX_ATTRIBUTES: Final = 4096
_ADD, _REMOVE = Op.ADD, Op.REMOVE
_IS_ADD, _IS_DELETE = Operation.ADD, Operation.DELETE
_new: Final = tuple.__new__  # makes a NamedTuple from its fields in less than half the time


def event_to_change(
    event: Event, catalog: Catalog | None = None, values: ValueOptions = _DEFAULTS
) -> Change:
    """Return the change that an event describes (spec/change-model.md 3.2); a modify gives the net
    effect of its steps.

    ``catalog`` gives values more exact types than XDS has; it need not have every class and
    attribute. ``values`` are the ``time_syntax``, ``time_zone`` and ``char_padding`` with which the
    event was written. ``before`` and ``after`` include the key; ``before`` is None if no old value
    is known. Raises FormatError, which names the event.
    """
    return _event_reader(catalog, values)(event)


@lru_cache(maxsize=16)
def _event_reader(catalog: Catalog | None, values: ValueOptions) -> Callable[[Event], Change]:
    """Return the function that ``event_to_change`` calls. The function looks up each class once."""
    reader_of = lru_cache(maxsize=_MAX_CLASSES)(
        lambda name: _ClassReader(class_of(catalog, name), values)
    )

    def read(event: Event) -> Change:
        operation, class_name, association, event_id, attributes = event
        reader = reader_of(class_name)
        try:
            key_text, names = _split_association(association)
            key = typed_key(key_text, reader.object_class)
            before, after, changed = reader.images(operation, key, attributes)
        except (BadValue, BadTableKey) as error:
            raise FormatError(
                f"{operation} of {class_name!r}, event {event_id!r}, association "
                f"{shown(association)}: {error}"
            ) from error
        # The code above makes only valid changes, so they are not checked again.
        return _new(
            Change,
            (names.get("schema"), class_name, OPERATIONS[operation], key, before, after, changed,
             event_id or None, None, None, None, None, None,
             {"event_id": event_id} if event_id else NO_EXTRAS),
        )  # fmt: skip

    return read


class ReadOutgoing(Protocol):
    """A function that returns the change of a log's event. Its arguments are the event, the commit
    time and user of the event's first row, and the transaction of its last row. An event itself has
    no commit time, user or transaction.
    """

    def __call__(
        self,
        event: Outgoing,
        commit_time: datetime | None,
        user: str | None,
        transaction: str | None = None,
        /,
    ) -> Change: ...


def outgoing_reader(catalog: Catalog, values: ValueOptions) -> ReadOutgoing:
    """Return a function that makes a change of an event of a log, as ``event_to_change`` does of an
    XDS event. The function is for many events: it uses the steps as they are and does not parse
    keys again.

    The position of a change is the event-id without the attempt number. The function raises
    FormatError.
    """
    reader_of = lru_cache(maxsize=_MAX_CLASSES)(
        lambda object_class: _ClassReader(object_class, values)
    )
    schema = catalog.schema

    def read(
        event: Outgoing,
        commit_time: datetime | None,
        user: str | None,
        transaction: str | None = None,
        /,
    ) -> Change:
        assert event.object_id is not None
        assert event.operation is not None
        object_class, key_text = event.object_id
        reader = reader_of(object_class)
        try:
            key = key_reader(object_class)(key_text)
            before, after, changed = reader.images_of(event, key)
        except (BadValue, BadTableKey) as error:
            raise FormatError(
                f"{event.operation} of {object_class.name!r}, event {event.sent_id!r}, association "
                f"{shown(association_of(event))}: {error}"
            ) from error
        # The code above makes only valid changes, so they are not checked again.
        return _new(
            Change,
            (schema, object_class.name, operation_of(event), key, before, after, changed,
             event.event_id, transaction, None, None, commit_time, user, NO_EXTRAS),
        )  # fmt: skip

    return read


def operation_of(event: Outgoing) -> ChangeOp:
    """Return the operation of the change that an event of a log becomes."""
    assert event.operation is not None
    if event.operation != Operation.DELETE and (event.is_refresh or is_of_snapshot(event.event_id)):
        return ChangeOp.REFRESH
    return OPERATIONS[event.operation]


_OUTSIDE_QUOTES = re.compile(r'(?:[^,"]++|"(?:[^"\\]|\\.)*")*', re.DOTALL)


def parse_association(text: str) -> tuple[tuple[table_key.Part, ...], str | None, str | None]:
    """Parse an association ``<table_key>,table=<class>[,schema=<schema>]`` (spec/xds.md 5.1).

    Returns the parts of the key, the table and the schema. Raises BadTableKey.
    """
    key, names = _split_association(text)
    return table_key.parse(key), names.get("table"), names.get("schema")


_LINE_BREAKS_AROUND: Final = re.compile(
    r"\A[ \t]*+[\r\n][ \t\r\n]*+|(?<![ \t\r\n])[ \t]*+[\r\n][ \t\r\n]*+\Z"
)


def _split_association(text: str) -> tuple[str, dict[str, str]]:
    """Return the table_key of an association, and the values after the key by their names. Line
    breaks and blanks around the association come from an indented document, and are removed.
    """
    text = _LINE_BREAKS_AROUND.sub("", text) if "\n" in text or "\r" in text else text
    key = _OUTSIDE_QUOTES.match(text)
    assert key is not None
    names = _named_parts(text[key.end() :])
    if isinstance(names, int):
        raise BadTableKey("unterminated_quote", key.end() + names, text)
    return key[0], names


@lru_cache(maxsize=1024)
def _named_parts(text: str) -> dict[str, str] | int:
    """Return the values after the key of an association by their names. All associations of a class
    have the same text after the key.

    If a quote has no end, return its offset.
    """
    fragments: list[str] = []
    at = 0
    while text[at : at + 1] == ",":
        match = _OUTSIDE_QUOTES.match(text, at + 1)
        assert match is not None
        fragments.append(match[0])
        at = match.end()
    if at < len(text):
        return at
    return {
        part.name.casefold(): part.value
        for fragment in fragments
        for part in table_key.parse(fragment)
    }


_Images: TypeAlias = tuple[RowDict | None, RowDict | None, frozenset[str] | None]


class _ClassReader:
    """A reader of the attributes of events of one class.

    ``object_class`` is None if the class is unknown.
    """

    __slots__ = ("_attributes", "_readers", "_values", "object_class")

    def __init__(self, object_class: ObjectClass | None, values: ValueOptions) -> None:
        self.object_class = object_class
        self._values = values
        self._attributes = (
            {} if object_class is None else {one.name: one for one in object_class.attributes}
        )
        self._readers: dict[str, _AttributeReader] = {}

    def images(
        self, operation: Operation, key: Key, attributes: Sequence[AttributeSteps]
    ) -> _Images:
        """Return the rows before and after the change, and the names of the changed columns."""
        after: RowDict = dict(key)
        if operation == _IS_DELETE:
            return after, None, None
        before = after.copy()
        has_before = False
        changed = []
        readers = self._readers
        for name, value_type, steps in attributes:
            reader = readers.get(name)
            if reader is None or reader[0] != value_type:
                reader = self._reader(name, value_type)
            _, read, multi_valued = reader
            if multi_valued is None:
                multi_valued = any(len(step.values) > 1 for step in steps)
            if name not in after:
                changed.append(name)
            is_known, old, after[name] = (
                net_of_many((op, tuple(map(read, texts))) for op, texts in steps)
                if multi_valued
                else _net_of_one(steps, read)
            )
            if is_known:
                before[name] = old
                has_before = True
        if operation == _IS_ADD:
            return None, after, None
        return (before if has_before else None), after, frozenset(changed)

    def images_of(self, event: Outgoing, key: Key) -> _Images:
        """Return the same as ``images`` for an event of a log."""
        after: RowDict = dict(key)
        if event.operation == _IS_DELETE:
            return after, None, None
        before = after.copy()
        has_before = False
        changed = []
        for attribute, rows in rows_by_attribute(event):
            name = attribute.name
            reader = self._readers.get(name)
            _, read, _ = self._reader(name, attribute.value_type) if reader is None else reader
            if name not in after:
                changed.append(name)
            is_known, old, after[name] = net_of_rows(attribute, rows, read)
            if is_known:
                before[name] = old
                has_before = True
        if event.operation == _IS_ADD or event.is_refresh:
            return None, after, None
        return (before if has_before else None), after, frozenset(changed)

    def _reader(self, name: str, value_type: str) -> _AttributeReader:
        attribute = self._attributes.get(name)
        multi_valued = ("." in name or None) if attribute is None else attribute.multi_valued
        if len(self._readers) >= _MAX_ATTRIBUTES:
            self._readers.clear()
        reader = self._readers[name] = (
            value_type,
            attribute_reader(value_type, attribute, self._values),
            multi_valued,
        )
        return reader


_AttributeReader: TypeAlias = tuple[str, ReadValue, bool | None]
"""The XDS type of an attribute, the function that reads its values, and True if it is multi-valued;
None = the steps of the attribute show whether it is.
"""


def attribute_reader(
    value_type: str, attribute: Attribute | None, values: ValueOptions
) -> ReadValue:
    """Return the function that reads the texts of an attribute of this XDS type.

    ``attribute`` is None if the attribute is unknown.
    """
    if attribute is None:
        return xds_value_reader(value_type, None, values)
    if value_type != "dn":
        return xds_value_reader(value_type, attribute.column.type, values)
    # The column of a reference holds the single key value of its target; the text is the target's
    # association (spec/xds.md 6.4).
    read = xds_value_reader("string", attribute.column.type, values)
    return lambda text: read(parse_association(text)[0][0].value)


def _net_of_one(steps: Sequence[Step], read: ReadValue) -> Net:
    """Return the net effect of a document's steps on a single-valued attribute: the first value
    that was removed without having been added, and the value at the end.

    A document from another program may add a value before it removes the old one, so its steps are
    applied one by one (spec/change-model.md 3.2). For the rows of a log, ``net_of_rows`` returns
    the net effect.
    """
    is_known, old, current = False, None, None
    added: list[Value] = []
    is_first = True
    for op, texts in steps:
        value = read(texts[-1]) if texts else None
        if op is _ADD:
            is_known = is_known or is_first
            current = value
            added.append(value)
        elif op is _REMOVE:
            if value not in added and (is_first or (is_known and old is None)):
                is_known, old = True, value
            if value == current:
                current = None
        else:
            current = None
        is_first = False
    return is_known, old, current
