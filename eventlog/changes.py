"""Event <-> Change: XDS and the change model (spec/change-model.md 2, 3.2, 4)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol

from eventlog import table_key
from eventlog.catalog import Attribute, Catalog, ObjectClass
from eventlog.change_keys import (
    Key,
    class_of,
    class_of_change,
    key_text,
    old_and_new_key,
    refuse_without_row,
    typed_key,
    with_key,
    written_columns,
)
from eventlog.errors import BadTableKey, BadValue, FormatError, NotExpressible, RowError, shown
from eventlog.model import (
    AttributeSteps,
    Change,
    ChangeOp,
    Event,
    Op,
    Operation,
    Row,
    Step,
    Value,
    changes_nothing,
    column_name,
)
from eventlog.typed import ReadValue, to_text, type_of, values_of, xds_value_reader
from eventlog.values import ValueOptions, check_xml, converter, xds_type

_OPS: Final = {
    Operation.ADD: ChangeOp.INSERT,
    Operation.MODIFY: ChangeOp.UPDATE,
    Operation.DELETE: ChangeOp.DELETE,
}
_DEFAULTS: Final = ValueOptions()
_MOST_CLASSES: Final = 1024
_MOST_ATTRIBUTES: Final = 4096
_ADD, _REMOVE = Op.ADD, Op.REMOVE
_new: Final = tuple.__new__  # a NamedTuple from its fields, in less than half the time


class Association(NamedTuple):
    """An association taken apart (spec/xds.md 5.1): the parts of its key, table and schema where they stand in it."""

    key: tuple[table_key.Part, ...]
    table: str | None
    schema: str | None


class Origin(NamedTuple):
    """What is known of a change beyond its event, in place of the event-id as its position."""

    position: str | None
    commit_time: datetime | None  # aware
    user: str | None
    extras: Mapping[str, Any]


_UNKNOWN_ORIGIN: Final = Origin(None, None, None, {})


class ReadChange(Protocol):
    """``event_to_change`` for one catalog and one kind of values. ``origin`` None = the event-id is the position."""

    def __call__(self, event: Event, key: Key | None = None, origin: Origin | None = None) -> Change: ...


def event_to_change(
    event: Event, catalog: Catalog | None = None, values: ValueOptions = _DEFAULTS, key: Key | None = None
) -> Change:
    """The change that an event says (spec/change-model.md 3.2): of a modify the net effect of its steps.

    ``catalog`` types the values further than XDS does; a class or attribute that it does not know is read without it.
    ``values``: the ``time_syntax``, ``time_zone`` and ``char_padding`` the event was written with. ``key``: that of the
    association, where it and the catalog are known, so that it is not parsed. Before and after
    hold the key; before is None where no old value is known. Raises FormatError naming the event.
    """
    return change_reader(catalog, values)(event, key)


@lru_cache(maxsize=16)
def change_reader(catalog: Catalog | None, values: ValueOptions) -> ReadChange:
    """The function behind ``event_to_change`` for many events: what follows from the classes is looked up once."""
    classes: dict[str, _ClassReader] = {}

    def read(event: Event, key: Key | None = None, origin: Origin | None = None) -> Change:
        operation, class_name, association, event_id, attributes = event
        reader = classes.get(class_name)
        if reader is None:
            if len(classes) >= _MOST_CLASSES:
                classes.clear()
            reader = classes[class_name] = _ClassReader(class_of(catalog, class_name), values)
        try:
            if key is not None and catalog is not None:
                schema = catalog.schema
            else:
                parsed = parse_association(association)
                schema, key = parsed.schema, typed_key(parsed.key, reader.object_class)
            before, after, changed = reader.images(operation, key, attributes)
        except (BadValue, BadTableKey) as error:
            raise FormatError(
                f"{operation} of {class_name!r}, event {event_id!r}, association {shown(association)}: {error}"
            ) from error
        if origin is None:
            origin = Origin(event_id, None, None, {"event_id": event_id}) if event_id else _UNKNOWN_ORIGIN
        position, commit_time, user, extras = origin
        # Valid by what has made it: not checked again.
        return _new(
            Change,
            (schema, class_name, _OPS[operation], key, before, after, changed, position,
             None, None, None, commit_time, user, extras),
        )  # fmt: skip

    return read


_OUTSIDE_QUOTES = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*")*', re.DOTALL)


def parse_association(text: str) -> Association:
    """The parts of ``<table_key>,table=<class>[,schema=<schema>]``. Raises BadTableKey."""
    pieces: list[str] = []
    at = 0
    while True:
        found = _OUTSIDE_QUOTES.match(text, at)
        assert found is not None
        pieces.append(found[0])
        at = found.end() + 1
        if text[at - 1 : at] != ",":
            break
    if at <= len(text):
        raise BadTableKey("unterminated_quote", at - 1, text)
    named = {part.name.casefold(): part.value for piece in pieces[1:] for part in table_key.parse(piece)}
    return Association(table_key.parse(pieces[0]), named.get("table"), named.get("schema"))


_Images = tuple[dict[str, Value] | None, dict[str, Value] | None, frozenset[str] | None]


class _ClassReader:
    """Reads the attributes of a class's events. ``object_class`` None = nothing is known of it."""

    __slots__ = ("_attributes", "_readers", "_values", "object_class")

    def __init__(self, object_class: ObjectClass | None, values: ValueOptions) -> None:
        self.object_class = object_class
        self._values = values
        self._attributes = {} if object_class is None else {one.name: one for one in object_class.attributes}
        self._readers: dict[tuple[str, str], tuple[ReadValue, bool | None]] = {}

    def images(self, operation: str, key: Key, attributes: Sequence[AttributeSteps]) -> _Images:
        """The rows before and after, and the columns that were changed."""
        after: dict[str, Value] = dict(key)
        if operation == Operation.DELETE:
            return after, None, None
        before = after.copy()
        knows_before = False
        changed = []
        for name, value_type, steps in attributes:
            read, multi_valued = self._readers.get((name, value_type)) or self._reader(name, value_type)
            if multi_valued is None:
                multi_valued = any(len(step.values) > 1 for step in steps)
            if name not in after:
                changed.append(name)
            is_known, old, new = _net_of_many_texts(steps, read) if multi_valued else _net_of_one(steps, read)
            after[name] = new
            if is_known:
                before[name] = old
                knows_before = True
        if operation == Operation.ADD:
            return None, after, None
        return (before if knows_before else None), after, frozenset(changed)

    def _reader(self, name: str, value_type: str) -> tuple[ReadValue, bool | None]:
        """How values of an attribute are read, and whether it has several; None: its steps show that."""
        attribute = self._attributes.get(name)
        multi_valued = ("." in name or None) if attribute is None else attribute.multi_valued
        if len(self._readers) >= _MOST_ATTRIBUTES:
            self._readers.clear()
        found = self._readers[name, value_type] = _value_reader(value_type, attribute, self._values), multi_valued
        return found


def _value_reader(value_type: str, attribute: Attribute | None, values: ValueOptions) -> ReadValue:
    if attribute is None:
        return xds_value_reader(value_type, None, values)
    if value_type != "dn":
        return xds_value_reader(value_type, attribute.column.type, values)
    # A reference: the association of the target, whose one key value the column holds (spec/xds.md 6.4).
    read = xds_value_reader("string", attribute.column.type, values)
    return lambda text: read(parse_association(text).key[0].value)


class Net(NamedTuple):
    """The net effect on an attribute: ``old`` counts where it ``is_known``; of a multi-valued one tuples of what was
    removed and added.
    """

    is_known: bool
    old: Value
    new: Value


def _net_of_one(steps: Sequence[Step], read: ReadValue) -> tuple[bool, Value, Value]:
    """Of a single-valued attribute: the first value removed that was not added before, and what is there at the end."""
    if len(steps) == 2:  # from old to new, as nearly all are
        (first, removed), (second, new) = steps
        if first is _REMOVE and second is _ADD and len(removed) == 1 and len(new) == 1:
            return True, read(removed[0]), read(new[0])
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


def _net_of_many_texts(steps: Sequence[Step], read: ReadValue) -> Net:
    return net_of_many((op, tuple(map(read, texts))) for op, texts in steps)


def net_of_many(steps: Iterable[tuple[Op, tuple[Value, ...]]]) -> Net:
    """The net effect of steps on a multi-valued attribute; what remove-all-values removes is not known."""
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
    return Net(is_known, tuple(removed) if is_known else None, tuple(added))


# --- Change -> Event --------------------------------------------------------------------------------------------------

ExistingKeys = Callable[[str], Iterable[Key] | None]
"""Table -> the keys of its rows, None if they are not known."""


@dataclass(frozen=True, slots=True)
class EventWriting:
    """How changes are written as events: the options of spec/event-log.md 9 under their names.

    ``existing_keys`` gives the keys that a TRUNCATE deletes; without it a TRUNCATE is refused. ``truncated`` is told
    the columns (``schema.table.column``) whose fractions of a second are not written.
    """

    time_syntax: str = "integer"
    time_zone: str = "UTC"
    char_padding: str = "trim"
    insert_query_back: str = "modify"
    existing_keys: ExistingKeys | None = None
    truncated: Callable[[str], None] | None = None

    @property
    def values(self) -> ValueOptions:
        """Those that shape values."""
        return ValueOptions(self.time_syntax, self.time_zone, self.char_padding)


_AS_IT_COMES: Final = EventWriting()


def change_to_events(
    change: Change, event_id: str, catalog: Catalog | None = None, options: EventWriting = _AS_IT_COMES
) -> list[Event]:
    """The events that say a change (spec/change-model.md 4): none if it changes nothing, several for a new key and for
    TRUNCATE, whose ids are ``event_id``, ``event_id.2``, ``event_id.3``, ...

    ``catalog`` gives keys that the change does not know, and the types that values are written as. Raises
    NotExpressible (no key, a value that XDS cannot hold, TRUNCATE without ``existing_keys``), NeedsQueryBack and
    NeedsRowCodec.
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
    after = change.after or {}
    write = _Writer(change, object_class, options)
    if change.op is not ChangeOp.UPDATE or old != new:
        add = write.insert(after, new, event_id if old == new else _numbered(event_id, 2))
        return [add] if old == new else [_event(change, object_class, Operation.DELETE, old, event_id), add]
    attributes = write.update(after)
    if not attributes:
        return []
    return [_event(change, object_class, Operation.MODIFY, new, event_id, attributes)]


def existing_keys(change: Change, given: ExistingKeys | None) -> Iterable[Key]:
    """The keys that a TRUNCATE deletes. Raises NotExpressible without them (spec/change-model.md 4)."""
    keys = None if given is None else given(change.table)
    if keys is None:
        raise NotExpressible(
            f"TRUNCATE of {change.table!r} at {change.position}: one delete a key is written, and its keys are not "
            "known; give them by existing_keys"
        )
    return keys


def _numbered(event_id: str, number: int) -> str:
    return event_id if number == 1 else f"{event_id}.{number}"


def _event(
    change: Change,
    object_class: ObjectClass | None,
    operation: str,
    key: Key,
    event_id: str,
    attributes: Sequence[AttributeSteps] = (),
) -> Event:
    association = key_text(change, key, object_class) + _association_tail(change)
    return Event(operation, change.table, association, event_id, tuple(attributes))


def _association_tail(change: Change) -> str:
    schema = "" if change.schema is None else f",schema={table_key.quote(change.schema)}"
    tail = f",table={table_key.quote(change.table)}{schema}"
    try:
        check_xml(tail)
    except RowError as error:
        raise NotExpressible(f"the name of {change.table!r} cannot be written: {error}") from error
    return tail


class _Writer(NamedTuple):
    """What the attributes of one change are written with."""

    change: Change
    object_class: ObjectClass | None
    options: EventWriting

    def insert(self, after: Row, key: Key, event_id: str) -> Event:
        """add; what was queried back as a modify, unless it has nothing to carry (spec/xds.md 4.1, 4.3)."""
        columns = [name for name in after if name not in dict(key)]
        if self.change.extras.get("query_back") and self.options.insert_query_back == "modify":
            steps = [self._attribute(name, _replaced(after[name])) for name in columns]
            if steps:
                return _event(self.change, self.object_class, Operation.MODIFY, key, event_id, steps)
        added = [self._attribute(name, (_Values(Op.ADD, values_of(after[name])),)) for name in columns]
        attributes = [attribute for attribute in added if attribute.steps[0].values]
        return _event(self.change, self.object_class, Operation.ADD, key, event_id, attributes)

    def update(self, after: Row) -> list[AttributeSteps]:
        """Old value and new value where the old one is known, else all removed and the new one (spec/xds.md 4.3)."""
        before = self.change.before or {}
        unknown = self.change.extras.get("changed_unknown") or ()
        attributes = []
        for name in written_columns(self.change):
            new = after[name]
            if name in before and name not in unknown:
                attributes.append(self._attribute(name, _from_old_to_new(before[name], new)))
            else:
                attributes.append(self._attribute(name, _replaced(new)))
        return [attribute for attribute in attributes if attribute.steps]

    def _attribute(self, name: str, steps: Sequence[_Values]) -> AttributeSteps:
        attribute = None if self.object_class is None else _attribute_named(self.object_class, name)
        values = [value for step in steps for value in step.values]
        value_type, write = _value_writer(attribute, values, self.options.values)
        try:
            written = tuple(Step(step.op, tuple(write(to_text(value)) for value in step.values)) for step in steps)
        except RowError as error:
            refused = NotExpressible(f"{self.change.op} of {self.change.table!r}, column {name!r}: {error}")
            refused.column = column_name(self.change, name)
            raise refused from error
        if self.options.truncated is not None and any(_loses_fraction(value, value_type) for value in values):
            self.options.truncated(column_name(self.change, name))
        return AttributeSteps(name, value_type, written)


class _Values(NamedTuple):
    """A step before its values are text."""

    op: Op
    values: tuple[Value, ...]


def _attribute_named(object_class: ObjectClass, name: str) -> Attribute | None:
    return next((attribute for attribute in object_class.attributes if attribute.name == name), None)


def _value_writer(
    attribute: Attribute | None, values: Sequence[Value], options: ValueOptions
) -> tuple[str, Callable[[str], str]]:
    """XDS type of an attribute's values, by its column or else by the values, and log text -> what is written."""
    if attribute is not None:
        return attribute.value_type, attribute.convert
    types = {type_of(value) for value in values}
    if len(types) == 1:
        (type,) = types
        return xds_type(type, options), converter(type, options)
    return "string", converter(type_of(""), options)


def _loses_fraction(value: Value, value_type: str) -> bool:
    """Whether parts of a second are not written: of a time never, of a datetime not in whole seconds."""
    if isinstance(value, time):
        return value.microsecond != 0
    return value_type == "time" and isinstance(value, datetime) and value.microsecond != 0


def _replaced(new: Value) -> tuple[_Values, ...]:
    values = values_of(new)
    return (_Values(Op.REMOVE_ALL, ()), *((_Values(Op.ADD, values),) if values else ()))


def _from_old_to_new(old: Value, new: Value) -> tuple[_Values, ...]:
    steps = (_Values(Op.REMOVE, values_of(old)), _Values(Op.ADD, values_of(new)))
    return tuple(step for step in steps if step.values)
