"""The data of an event (spec/cloudevents.md 4) straight from the steps of a log's event: millions pass through."""

from __future__ import annotations

from collections.abc import Callable
from json.encoder import encode_basestring
from typing import Final, TypeAlias

from eventlog.changes.from_events import OPERATIONS, attribute_reader
from eventlog.changes.json_form import value_to_plain_json
from eventlog.changes.keys import key_reader
from eventlog.cloudevents.event import OPERATION_NAMES, as_text
from eventlog.core.catalog import Attribute, Catalog, ObjectClass
from eventlog.core.events import Outgoing
from eventlog.core.values import ValueOptions
from eventlog.model import ALL, Operation, Value

DataOf = Callable[[Outgoing, str | None], str | None]
"""An event and its user -> its data in JSON; None for an event that has to go by way of a Change."""

_AttributeWriter: TypeAlias = tuple[str, Callable[[str], str]]
"""The name of an attribute as JSON, and how its values are written."""


def data_writer(catalog: Catalog, values: ValueOptions) -> DataOf:
    """The function that writes what ``data_of`` gives of the change of an event; it raises BadValue.

    ``values``: what the events were written with. Attributes with several values or steps go by way of a Change.
    """
    classes: dict[ObjectClass, _ClassWriter] = {}

    def write(event: Outgoing, user: str | None) -> str | None:
        assert event.object_id is not None
        object_class, _ = event.object_id
        writer = classes.get(object_class)
        if writer is None:
            writer = classes[object_class] = _ClassWriter(object_class, catalog.schema, values)
        return writer.data(event, user)

    return write


class _ClassWriter:
    """Writes the events of a class."""

    __slots__ = ("_attributes", "_heads", "_key_names", "_read_key", "_values")

    def __init__(self, object_class: ObjectClass, schema: str | None, values: ValueOptions) -> None:
        named = "" if schema is None else f'"schema":{_text(schema)},'
        rest = f'{named}"class":{_text(object_class.name)},"key":{{'
        self._heads = {
            operation: f'{{"operation":"{OPERATION_NAMES[op]}",{rest}' for operation, op in OPERATIONS.items()
        }
        self._read_key, self._values = key_reader(object_class), values
        self._key_names = {column.name: f"{_text(column.name)}:" for column in object_class.key}
        self._attributes: dict[Attribute, _AttributeWriter | None] = {}

    def data(self, event: Outgoing, user: str | None) -> str | None:
        assert event.object_id is not None
        assert event.operation is not None
        assert event.steps is not None
        is_add = event.operation == Operation.ADD
        columns = []
        previous = None
        for _, _, _, attribute, old, new in event.steps:
            assert attribute is not None
            if attribute is previous or isinstance(old, tuple) or isinstance(new, tuple):
                return None
            previous = attribute
            writer = self._attributes[attribute] if attribute in self._attributes else self._writer(attribute)
            if writer is None:
                return None
            name, write = writer
            value = "null" if new is None else write(new)
            if is_add or old is ALL:
                columns.append(f'{name}:{{"new":{value}}}')
            else:
                columns.append(f'{name}:{{"old":{"null" if old is None else write(old)},"new":{value}}}')
        names, (_, key_text) = self._key_names, event.object_id
        key = ",".join([names[name] + _json(value) for name, value in self._read_key(key_text)])
        tail = "" if user is None else f',"user":{_text(user)}'
        return f'{self._heads[event.operation]}{key}}},"columns":{{{",".join(columns)}}}{tail}}}'

    def _writer(self, attribute: Attribute) -> _AttributeWriter | None:
        writer = None
        if not attribute.multi_valued and attribute.name not in self._key_names:
            read = attribute_reader(attribute.value_type, attribute, self._values)
            writer = _text(attribute.name), _text if read is str else lambda text: _json(read(text))
        self._attributes[attribute] = writer
        return writer


_text: Final = encode_basestring


def _json(value: Value) -> str:
    """A value as JSON; of those that are no plain text."""
    plain = value_to_plain_json(value)
    if isinstance(plain, str):
        return _text(plain)
    return str(plain) if type(plain) is int else as_text(plain)
