"""Change -> events: how the change model is written as XDS (spec/change-model.md 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, time
from typing import Final, NamedTuple, TypeAlias

from eventlog.changes.keys import (
    Key,
    class_of_change,
    key_text,
    old_and_new_key,
    refuse_without_row,
    refused_column,
    with_key,
    written_columns,
)
from eventlog.core import table_key
from eventlog.core.catalog import Attribute, Catalog, ObjectClass
from eventlog.core.moments import is_special
from eventlog.core.typed import to_text, type_of, values_of
from eventlog.core.values import TEMPORAL, ValueOptions, check_xml, converter, xds_type
from eventlog.errors import NotExpressible, RowError
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

_DEFAULTS: Final = ValueOptions()

ExistingKeys = Callable[[str], Iterable[Key] | None]
"""Table -> the keys of its rows, None if they are not known."""


@dataclass(frozen=True, slots=True)
class EventWriting:
    """How changes are written as events: the options of spec/event-log.md 9, ``values`` those that shape values.

    ``existing_keys`` gives the keys that a TRUNCATE deletes; without it a TRUNCATE is refused. ``truncated`` is told
    the columns (``schema.table.column``) whose fractions of a second are not written.
    """

    values: ValueOptions = _DEFAULTS
    insert_query_back: str = "modify"
    existing_keys: ExistingKeys | None = None
    truncated: Callable[[str], None] | None = None


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


def existing_keys(change: Change, keys_of: ExistingKeys | None) -> Iterable[Key]:
    """The keys that a TRUNCATE deletes. Raises NotExpressible without them (spec/change-model.md 4)."""
    keys = None if keys_of is None else keys_of(change.table)
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
    operation: Operation,
    key: Key,
    event_id: str,
    attributes: Sequence[AttributeSteps] = (),
) -> Event:
    association = association_text(change, key, object_class)
    _check_written(change, "position", event_id)
    return Event(operation, change.table, association, event_id, tuple(attributes))


def association_text(change: Change, key: Key, object_class: ObjectClass | None) -> str:
    """The association (spec/xds.md 5.1) of an object of the change's table. Raises NotExpressible as ``key_text``."""
    schema = "" if change.schema is None else f",schema={table_key.quote(change.schema)}"
    tail = f",table={table_key.quote(change.table)}{schema}"
    _check_written(change, "name", tail)
    return key_text(change, key, object_class) + tail


def _check_written(change: Change, what: str, text: str) -> None:
    try:
        check_xml(text)
    except RowError as error:
        raise NotExpressible(f"the {what} of {change.table!r} cannot be written: {error}") from error


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
        added = [self._attribute(name, ((Op.ADD, values_of(after[name])),)) for name in columns]
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
        if attribute is None:
            _check_written(self.change, f"name of the column {name!r}", name)
        values = [value for _, several in steps for value in several]
        value_type, write = _value_writer(attribute, values, self.options.values)
        try:
            written = tuple(Step(op, tuple(write(to_text(value)) for value in several)) for op, several in steps)
        except RowError as error:
            raise refused_column(self.change, name, error) from error
        if self.options.truncated is not None and any(_loses_fraction(value, value_type) for value in values):
            self.options.truncated(column_name(self.change, name))
        return AttributeSteps(name, value_type, written)


_Values: TypeAlias = tuple[Op, tuple[Value, ...]]
"""A step before its values are text."""


def _attribute_named(object_class: ObjectClass, name: str) -> Attribute | None:
    return next((attribute for attribute in object_class.attributes if attribute.name == name), None)


def _value_writer(
    attribute: Attribute | None, values: Sequence[Value], options: ValueOptions
) -> tuple[str, Callable[[str], str]]:
    """XDS type of an attribute's values, by its column or else by the values, and log text -> what is written."""
    if attribute is not None:
        return attribute.value_type, attribute.convert
    types = {type_of(value) for value in values}
    if len(types) == 2 and type_of("") in types and all(is_special(one) for one in values if isinstance(one, str)):
        # Special times beside one of the calendar.
        types = {replace(type, special=True) for type in types if type.kind in TEMPORAL} or types
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
    return ((Op.REMOVE_ALL, ()), *(((Op.ADD, values),) if values else ()))


def _from_old_to_new(old: Value, new: Value) -> tuple[_Values, ...]:
    steps = ((Op.REMOVE, values_of(old)), (Op.ADD, values_of(new)))
    return tuple((op, values) for op, values in steps if values)
