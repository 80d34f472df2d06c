"""Convert changes to XDS events (spec/change-model.md 4); ``events`` is the reverse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, time
from functools import partial
from typing import Final

from eventlog.changes.images import Count, refuse_without_row, refused_column, written_columns
from eventlog.changes.keys import (
    ExistingKeys,
    class_of_change,
    existing_keys,
    key_text,
    old_and_new_key,
    with_key,
)
from eventlog.changes.net_effect import ValueStep
from eventlog.core import table_key
from eventlog.core.catalog import Attribute, Catalog, ObjectClass
from eventlog.core.values import (
    EXACT_WORDS,
    TEMPORAL,
    Converter,
    ValueOptions,
    check_xml,
    converter,
    is_xml,
    xds_type,
)
from eventlog.core.values.moments import is_special
from eventlog.core.values.typed_values import is_multi_valued, to_text, type_of, values_of
from eventlog.errors import NotExpressible, RowError
from eventlog.model import (
    AttributeSteps,
    Change,
    ChangeOp,
    Event,
    Key,
    Op,
    Operation,
    Step,
    Value,
    changes_nothing,
    column_name,
)

_DEFAULTS: Final = ValueOptions()


@dataclass(frozen=True, slots=True)
class EventWriting:
    """The options of spec/event-log.md 9 by which changes are written as events."""

    values: ValueOptions = _DEFAULTS
    """The options by which values become texts."""
    insert_query_back: str = "modify"
    existing_keys: ExistingKeys | None = None
    """A function that returns the keys that a TRUNCATE deletes; None = a TRUNCATE is refused."""
    truncated: Count | None = None
    """A function that is called with each column (``schema.table.column``) that loses fractions of
    a second.
    """
    null_unchanged: Count | None = None
    """A function that is called with each column that is marked as changed but is NULL before and
    after the change. A modify cannot express this.
    """
    old_unreadable: Count | None = None
    """A function that is called with each column whose old value XML cannot hold, so that it was
    never sent.
    """


_DEFAULT_WRITING: Final = EventWriting()


def change_to_events(
    change: Change,
    event_id: str,
    catalog: Catalog | None = None,
    options: EventWriting = _DEFAULT_WRITING,
) -> list[Event]:
    """Return the events that describe a change (spec/change-model.md 4).

    A change without effect has no event. A new key and a TRUNCATE may have several events, with the
    ids ``event_id``, ``event_id.2``, ``event_id.3``, ... ``catalog`` provides the key columns that
    the change lacks, and the types of values. Raises NotExpressible (no key, a value that XDS
    cannot hold, TRUNCATE without ``existing_keys``), FormatError.
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
    """Return the add of an inserted row. If the row was read back and ``insert_query_back`` is
    ``modify``, return a modify, unless the row has no columns to write (spec/xds.md 4.1, 4.3).
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
    """Return the steps of each changed attribute (spec/xds.md 4.3): remove the old value, or all
    values if the old value is unknown, then add the new value.
    """
    before, after = change.before or {}, change.after or {}
    unknown = change.extras.get("changed_unknown") or ()
    attributes = []
    for name in written_columns(change):
        old = values_of(before.get(name))
        sendable = tuple(one for one in old if not isinstance(one, str) or is_xml(one))
        if len(sendable) < len(old) and name not in unknown:
            if options.old_unreadable is not None:
                options.old_unreadable(column_name(change, name))
            added = values_of(after[name])
            steps = (
                tuple(one for one in ((Op.REMOVE, sendable), (Op.ADD, added)) if one[1])
                if _is_multi_valued(object_class, name, before[name])
                else _replaced(after[name])
            )
        elif name in before and name not in unknown:
            both = ((Op.REMOVE, values_of(before[name])), (Op.ADD, values_of(after[name])))
            steps = tuple((op, values) for op, values in both if values)
        else:
            steps = _replaced(after[name])
        if not steps and options.null_unchanged is not None and name in (change.changed or ()):
            options.null_unchanged(column_name(change, name))
        attributes.append(_attribute(change, object_class, options, name, steps))
    return [attribute for attribute in attributes if attribute.steps]


def _is_multi_valued(object_class: ObjectClass | None, name: str, value: Value) -> bool:
    attributes = () if object_class is None else object_class.attributes
    return is_multi_valued(value) or any(one.multi_valued for one in attributes if one.name == name)


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
        written = tuple(
            Step(op, tuple(write(to_text(value)) for value in several)) for op, several in steps
        )
    except RowError as error:
        raise refused_column(change, name, error) from error
    if value_type == "int" and _has_exact_word(written):
        value_type = "string"
    if options.truncated is not None and any(
        _loses_fraction(value, value_type) for value in values
    ):
        options.truncated(column_name(change, name))
    return AttributeSteps(name, value_type, written)


def _has_exact_word(steps: Iterable[Step]) -> bool:
    """Return True if one of the values is a word such as NaN, which an integer column cannot
    hold.
    """
    return any(text in EXACT_WORDS for _, several in steps for text in several)


def _value_writer(
    attribute: Attribute | None, values: Sequence[Value], options: ValueOptions
) -> tuple[str, Converter]:
    """Return the XDS type of an attribute's values, and the function that converts the log's text
    of a value to the written text. The column determines the type; if the attribute is unknown, the
    values determine it.
    """
    if attribute is not None:
        return attribute.value_type, attribute.convert
    types = {type_of(value) for value in values}
    if (
        len(types) == 2
        and type_of("") in types
        and all(is_special(one) for one in values if isinstance(one, str))
    ):
        # Special times such as infinity are texts; among values of one temporal type they take
        # that type.
        types = {replace(type, special=True) for type in types if type.kind in TEMPORAL} or types
    if len(types) == 1:
        (type,) = types
        return xds_type(type, options), converter(type, options)
    return "string", converter(type_of(""), options)


def _loses_fraction(value: Value, value_type: str) -> bool:
    """Return True if the output loses a fraction of a second. A time always loses its fraction; a
    datetime loses it if its XDS type holds whole seconds.
    """
    if isinstance(value, time):
        return value.microsecond != 0
    return value_type == "time" and isinstance(value, datetime) and value.microsecond != 0
