"""The conversions between XDS events and changes.

``event_to_change`` reads XDS into the change model (spec/change-model.md 2, 3.2), and
``change_to_events`` writes the change model as XDS (spec/change-model.md 4).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, time
from functools import lru_cache, partial
from typing import Any, Final, TypeAlias

from eventlog.changes.format import (
    ExistingKeys,
    Key,
    class_of,
    class_of_change,
    existing_keys,
    key_reader,
    key_text,
    old_and_new_key,
    refuse_without_row,
    refused_column,
    typed_key,
    with_key,
    written_columns,
)
from eventlog.core import table_key
from eventlog.core.catalog import Attribute, Catalog, ObjectClass
from eventlog.core.checks import CheckedRow
from eventlog.core.event_ids import is_of_snapshot
from eventlog.core.events import Outgoing, association_of, by_attribute, public_steps
from eventlog.core.moments import is_special
from eventlog.core.typed import ReadValue, to_text, type_of, values_of, xds_value_reader
from eventlog.core.values import EXACT_WORDS, TEMPORAL, ValueOptions, check_xml, converter, xds_type
from eventlog.errors import BadTableKey, BadValue, FormatError, NotExpressible, RowError, shown
from eventlog.model import (
    ALL,
    AttributeSteps,
    Change,
    ChangeOp,
    Event,
    Op,
    Operation,
    Step,
    Value,
    changes_nothing,
    column_name,
)

OPERATIONS: Final = {
    Operation.ADD: ChangeOp.INSERT,
    Operation.MODIFY: ChangeOp.UPDATE,
    Operation.DELETE: ChangeOp.DELETE,
}
_DEFAULTS: Final = ValueOptions()
_MOST_CLASSES: Final = 1024
_MOST_ATTRIBUTES: Final = 4096
_ADD, _REMOVE = Op.ADD, Op.REMOVE
_IS_ADD, _IS_DELETE = Operation.ADD, Operation.DELETE
_new: Final = tuple.__new__  # a NamedTuple from its fields, in less than half the time
_NO_EXTRAS: Final[Mapping[str, Any]] = {}


def event_to_change(
    event: Event, catalog: Catalog | None = None, values: ValueOptions = _DEFAULTS
) -> Change:
    """Return the change that an event says (spec/change-model.md 3.2); a modify gives the net
    effect of its steps.

    ``catalog`` types the values further than XDS does; classes and attributes that the catalogue
    does not know are read without it. ``values`` are the ``time_syntax``, ``time_zone`` and
    ``char_padding`` that the event was written with. Before and after hold the key; before is None
    if no old value is known. Raises FormatError naming the event.
    """
    return _event_reader(catalog, values)(event)


@lru_cache(maxsize=16)
def _event_reader(catalog: Catalog | None, values: ValueOptions) -> Callable[[Event], Change]:
    """Return the function behind ``event_to_change``, which looks up each class once."""
    reader_of = lru_cache(maxsize=_MOST_CLASSES)(
        lambda name: _ClassReader(class_of(catalog, name), values)
    )

    def read(event: Event) -> Change:
        operation, class_name, association, event_id, attributes = event
        reader = reader_of(class_name)
        try:
            key_parts, _, schema = parse_association(association)
            key = typed_key(key_parts, reader.object_class)
            before, after, changed = reader.images(operation, key, attributes)
        except (BadValue, BadTableKey) as error:
            raise FormatError(
                f"{operation} of {class_name!r}, event {event_id!r}, association "
                f"{shown(association)}: {error}"
            ) from error
        # The code above makes valid changes only, so they are not checked again.
        return _new(
            Change,
            (schema, class_name, OPERATIONS[operation], key, before, after, changed,
             event_id or None, None, None, None, None, None,
             {"event_id": event_id} if event_id else _NO_EXTRAS),
        )  # fmt: skip

    return read


ReadOutgoing: TypeAlias = Callable[[Outgoing, datetime | None, str | None], Change]
"""A function from an event of a log, and the commit time and user of its first row, to its change.
The event itself holds neither time nor user.
"""


def outgoing_reader(catalog: Catalog, values: ValueOptions) -> ReadOutgoing:
    """Return a function that makes changes of a log's events, as ``event_to_change`` does, for many
    events. It uses the steps as they are and does not parse keys again.

    The position of a change is the event-id without the number of its sendings. The function raises
    FormatError.
    """
    reader_of = lru_cache(maxsize=_MOST_CLASSES)(
        lambda object_class: _ClassReader(object_class, values)
    )
    schema = catalog.schema

    def read(event: Outgoing, commit_time: datetime | None, user: str | None) -> Change:
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
        # The code above makes valid changes only, so they are not checked again.
        return _new(
            Change,
            (schema, object_class.name, operation_of(event), key, before, after, changed,
             event.event_id, None, None, None, commit_time, user, _NO_EXTRAS),
        )  # fmt: skip

    return read


def operation_of(event: Outgoing) -> ChangeOp:
    """Return the operation of the change that an event of a log makes."""
    assert event.operation is not None
    return ChangeOp.REFRESH if is_of_snapshot(event.event_id) else OPERATIONS[event.operation]


_OUTSIDE_QUOTES = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*")*', re.DOTALL)


def parse_association(text: str) -> tuple[tuple[table_key.Part, ...], str | None, str | None]:
    """Parse an association ``<table_key>,table=<class>[,schema=<schema>]`` (spec/xds.md 5.1).

    Returns the parts of the key, the table and the schema. Raises BadTableKey.
    """
    pieces: list[str] = []
    at = 0
    while True:
        match = _OUTSIDE_QUOTES.match(text, at)
        assert match is not None
        pieces.append(match[0])
        at = match.end() + 1
        if text[at - 1 : at] != ",":
            break
    if at <= len(text):
        raise BadTableKey("unterminated_quote", at - 1, text)
    named = {
        part.name.casefold(): part.value for piece in pieces[1:] for part in table_key.parse(piece)
    }
    return table_key.parse(pieces[0]), named.get("table"), named.get("schema")


_Images: TypeAlias = tuple[dict[str, Value] | None, dict[str, Value] | None, frozenset[str] | None]


class _ClassReader:
    """A reader of the attributes of a class's events.

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
        """Return the rows before and after, and the names of the changed columns."""
        after: dict[str, Value] = dict(key)
        if operation == _IS_DELETE:
            return after, None, None
        before = after.copy()
        knows_before = False
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
                knows_before = True
        if operation == _IS_ADD:
            return None, after, None
        return (before if knows_before else None), after, frozenset(changed)

    def images_of(self, event: Outgoing, key: Key) -> _Images:
        """Return the same as ``images`` for an event of a log."""
        after: dict[str, Value] = dict(key)
        if event.operation == _IS_DELETE:
            return after, None, None
        assert event.operation is not None
        assert event.steps is not None
        before = after.copy()
        knows_before = False
        changed = []
        for attribute, rows in by_attribute(event.steps):
            name = attribute.name
            reader = self._readers.get(name)
            _, read, _ = self._reader(name, attribute.value_type) if reader is None else reader
            if name not in after:
                changed.append(name)
            is_known, old, after[name] = net_of_rows(attribute, rows, event.operation, read)
            if is_known:
                before[name] = old
                knows_before = True
        if event.operation == _IS_ADD:
            return None, after, None
        return (before if knows_before else None), after, frozenset(changed)

    def _reader(self, name: str, value_type: str) -> _AttributeReader:
        attribute = self._attributes.get(name)
        multi_valued = ("." in name or None) if attribute is None else attribute.multi_valued
        if len(self._readers) >= _MOST_ATTRIBUTES:
            self._readers.clear()
        reader = self._readers[name] = (
            value_type,
            attribute_reader(value_type, attribute, self._values),
            multi_valued,
        )
        return reader


_AttributeReader: TypeAlias = tuple[str, ReadValue, bool | None]
"""The XDS type of an attribute, the function that reads its values, and whether it is multi-valued.
None = its steps show whether it is.
"""


def attribute_reader(
    value_type: str, attribute: Attribute | None, values: ValueOptions
) -> ReadValue:
    """Return the function that reads the texts of an attribute of this XDS type.

    ``attribute`` is None if it is unknown.
    """
    if attribute is None:
        return xds_value_reader(value_type, None, values)
    if value_type != "dn":
        return xds_value_reader(value_type, attribute.column.type, values)
    # The column of a reference holds the only key value of its target. The text is the target's
    # association (spec/xds.md 6.4).
    read = xds_value_reader("string", attribute.column.type, values)
    return lambda text: read(parse_association(text)[0][0].value)


_Net: TypeAlias = tuple[bool, Value, Value]
"""The net effect on an attribute: whether its old value is known, the old value and the new one.
For a multi-valued attribute these are tuples of the removed and of the added values.
"""


def net_of_rows(
    attribute: Attribute, rows: Sequence[CheckedRow], operation: Operation, read: ReadValue
) -> _Net:
    """Return the net effect of the rows of one attribute in an event of a log."""
    # Nearly all attributes have one row of one value, so the row itself gives the net effect: 0.4
    # us instead of 1.8 us a column (bench/RESULTS.md, "One path to JSON").
    # test_the_change_of_an_event_on_its_way_is_that_of_its_public_form holds both equal.
    if len(rows) == 1 and not attribute.multi_valued:
        ((_, _, _, _, old, new),) = rows
        assert not isinstance(old, tuple)
        assert not isinstance(new, tuple)
        is_known = old is not ALL
        return (
            is_known,
            None if old is None or old is ALL else read(old),
            None if new is None else read(new),
        )
    steps = public_steps(rows, operation)
    if attribute.multi_valued:
        return net_of_many((op, tuple(map(read, texts))) for op, texts in steps)
    return _net_of_one(steps, read)


def _net_of_one(steps: Sequence[Step], read: ReadValue) -> _Net:
    """Return the net effect of steps on a single-valued attribute: the first value that was removed
    without having been added, and the value at the end.
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


ValueStep: TypeAlias = tuple[Op, tuple[Value, ...]]
"""A step of an attribute, with typed values in place of texts."""


def net_of_many(steps: Iterable[ValueStep]) -> _Net:
    """Return the net effect of steps on a multi-valued attribute.

    The values that remove-all-values removes are unknown.
    """
    removed: list[Value] = []
    added: list[Value] = []
    is_known = True
    for op, values in steps:
        if op is Op.REMOVE_ALL:
            removed, added, is_known = [], [], False
            continue
        back, forth = (removed, added) if op is Op.ADD else (added, removed)
        for value in values:
            if value in back:
                back.remove(value)
            else:
                forth.append(value)
    return is_known, tuple(removed) if is_known else None, tuple(added)


# --- Change -> events -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EventWriting:
    """The options of spec/event-log.md 9 by which changes are written as events; ``values`` shapes
    the values.

    ``existing_keys`` returns the keys that a TRUNCATE deletes; without it a TRUNCATE is refused.
    ``truncated`` is called with each column (``schema.table.column``) that loses fractions of a
    second. ``null_unchanged`` is called with each column that is marked as changed and is NULL
    before and after, which no modify can say.
    """

    values: ValueOptions = _DEFAULTS
    insert_query_back: str = "modify"
    existing_keys: ExistingKeys | None = None
    truncated: Callable[[str], None] | None = None
    null_unchanged: Callable[[str], None] | None = None


_AS_IT_COMES: Final = EventWriting()


def change_to_events(
    change: Change,
    event_id: str,
    catalog: Catalog | None = None,
    options: EventWriting = _AS_IT_COMES,
) -> list[Event]:
    """Return the events that say a change (spec/change-model.md 4).

    A change without effect has no event. A new key and a TRUNCATE may have several, with the ids
    ``event_id``, ``event_id.2``, ``event_id.3``, ... ``catalog`` provides the key columns that the
    change lacks, and the types of values. Raises NotExpressible (no key, a value that XDS cannot
    hold, TRUNCATE without ``existing_keys``), FormatError.
    """
    object_class = class_of_change(catalog, change)
    if change.schema is None and object_class is not None and catalog is not None:
        change = change._replace(schema=catalog.schema)
    if change.op is ChangeOp.TRUNCATE:
        keys = existing_keys(change, options.existing_keys)
        return [
            _event(change, object_class, Operation.DELETE, key, _numbered(event_id, number))
            for number, key in enumerate(keys, 1)
        ]
    if changes_nothing(change):
        return []
    refuse_without_row(change)
    change = with_key(change, object_class)
    old, new = old_and_new_key(change)
    if change.op is ChangeOp.DELETE:
        return [_event(change, object_class, Operation.DELETE, old, event_id)]
    if old != new:
        delete = _event(change, object_class, Operation.DELETE, old, event_id)
        return [delete, _insert(change, object_class, options, new, _numbered(event_id, 2))]
    if change.op is not ChangeOp.UPDATE:
        return [_insert(change, object_class, options, new, event_id)]
    attributes = _update(change, object_class, options)
    return (
        [_event(change, object_class, Operation.MODIFY, new, event_id, attributes)]
        if attributes
        else []
    )


def _numbered(event_id: str, number: int) -> str:
    return event_id if number == 1 else f"{event_id}.{number}"


def _event(
    change: Change,
    object_class: ObjectClass | None,
    operation: Operation,
    key: Key,
    event_id: str,
    attributes: Sequence[AttributeSteps] = (),
) -> Event:
    association = association_text(change, key, object_class)
    _check_written(change, "key or name", association)
    _check_written(change, "position", event_id)
    return Event(operation, change.table, association, event_id, tuple(attributes))


def association_text(change: Change, key: Key, object_class: ObjectClass | None) -> str:
    """Return the association (spec/xds.md 5.1) of an object of the change's table. Raises
    NotExpressible as ``key_text`` does.
    """
    schema = "" if change.schema is None else f",schema={table_key.quote(change.schema)}"
    return f"{key_text(change, key, object_class)},table={table_key.quote(change.table)}{schema}"


def _check_written(change: Change, what: str, text: str) -> None:
    try:
        check_xml(text)
    except RowError as error:
        raise NotExpressible(
            f"the {what} of {change.table!r} cannot be written: {error}"
        ) from error


def _insert(
    change: Change, object_class: ObjectClass | None, options: EventWriting, key: Key, event_id: str
) -> Event:
    """Return the add of an inserted row. A row that was queried back becomes a modify, unless it
    has no columns to write (spec/xds.md 4.1, 4.3).
    """
    write = partial(_attribute, change, object_class, options)
    of_key = dict(key)
    columns = {name: value for name, value in (change.after or {}).items() if name not in of_key}
    if columns and change.extras.get("query_back") and options.insert_query_back == "modify":
        steps = [write(name, _replaced(value)) for name, value in columns.items()]
        return _event(change, object_class, Operation.MODIFY, key, event_id, steps)
    added = [write(name, ((Op.ADD, values_of(value)),)) for name, value in columns.items()]
    attributes = [attribute for attribute in added if attribute.steps[0].values]
    return _event(change, object_class, Operation.ADD, key, event_id, attributes)


def _update(
    change: Change, object_class: ObjectClass | None, options: EventWriting
) -> list[AttributeSteps]:
    """Return the steps of each changed attribute (spec/xds.md 4.3): the old value removed and the
    new one added if the old one is known, else all values removed and the new one added.
    """
    before, after = change.before or {}, change.after or {}
    unknown = change.extras.get("changed_unknown") or ()
    attributes = []
    for name in written_columns(change):
        if name in before and name not in unknown:
            both = ((Op.REMOVE, values_of(before[name])), (Op.ADD, values_of(after[name])))
            steps = tuple((op, values) for op, values in both if values)
        else:
            steps = _replaced(after[name])
        if not steps and options.null_unchanged is not None and name in (change.changed or ()):
            options.null_unchanged(column_name(change, name))
        attributes.append(_attribute(change, object_class, options, name, steps))
    return [attribute for attribute in attributes if attribute.steps]


def _replaced(new: Value) -> tuple[ValueStep, ...]:
    values = values_of(new)
    return ((Op.REMOVE_ALL, ()), *(((Op.ADD, values),) if values else ()))


def _attribute(
    change: Change,
    object_class: ObjectClass | None,
    options: EventWriting,
    name: str,
    steps: Sequence[ValueStep],
) -> AttributeSteps:
    attributes = () if object_class is None else object_class.attributes
    attribute = next((one for one in attributes if one.name == name), None)
    if attribute is None:
        _check_written(change, f"name of the column {name!r}", name)
    values = [value for _, several in steps for value in several]
    value_type, write = _value_writer(attribute, values, options.values)
    try:
        written = _written(steps, write)
    except RowError as error:
        raise refused_column(change, name, error) from error
    if value_type == "int" and _has_exact_word(written):
        value_type = "string"
    if options.truncated is not None and any(
        _loses_fraction(value, value_type) for value in values
    ):
        options.truncated(column_name(change, name))
    return AttributeSteps(name, value_type, written)


def _written(steps: Sequence[ValueStep], write: Callable[[str], str]) -> tuple[Step, ...]:
    """Return the steps with their values as text."""
    return tuple(
        Step(op, tuple(write(to_text(value)) for value in several)) for op, several in steps
    )


def _has_exact_word(steps: Iterable[Step]) -> bool:
    """Return True if a value is a word such as NaN, which no integer is."""
    return any(text in EXACT_WORDS for _, several in steps for text in several)


def _value_writer(
    attribute: Attribute | None, values: Sequence[Value], options: ValueOptions
) -> tuple[str, Callable[[str], str]]:
    """Return the XDS type of an attribute's values, and the function from log text to written text.
    The column decides the type; without an attribute the values do.
    """
    if attribute is not None:
        return attribute.value_type, attribute.convert
    types = {type_of(value) for value in values}
    if (
        len(types) == 2
        and type_of("") in types
        and all(is_special(one) for one in values if isinstance(one, str))
    ):
        # Special times such as infinity are texts;
        # beside values of one temporal type they take that type.
        types = {replace(type, special=True) for type in types if type.kind in TEMPORAL} or types
    if len(types) == 1:
        (type,) = types
        return xds_type(type, options), converter(type, options)
    return "string", converter(type_of(""), options)


def _loses_fraction(value: Value, value_type: str) -> bool:
    """Return True if parts of a second are lost in the output. A time always loses them, a datetime
    if its XDS type holds whole seconds.
    """
    if isinstance(value, time):
        return value.microsecond != 0
    return value_type == "time" and isinstance(value, datetime) and value.microsecond != 0
