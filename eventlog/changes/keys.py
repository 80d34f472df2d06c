"""The class and the key of a change: how readers determine the types of a key, and how writers
write a key (spec/change-model.md 1, 4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias

from eventlog.core import table_key
from eventlog.core.catalog import Catalog, ObjectClass
from eventlog.core.options import ANY, Option
from eventlog.core.values import key_normalizer
from eventlog.core.values.typed_values import to_text, type_of, value_reader
from eventlog.errors import ConfigError, NotExpressible, RowError
from eventlog.model import Change, ChangeOp, Key, Row, Value, old_key


def class_of(catalog: Catalog | None, table: str) -> ObjectClass | None:
    """Return the class of exactly this name; None if there is no such class, or no catalogue."""
    log_name = None if catalog is None else catalog.log_names.get(table)
    return None if log_name is None or log_name.child is not None else log_name.object_class


def may_be_one(schema: str | None, other: str | None) -> bool:
    """Return True if two schemas may be the same; None is an unknown schema."""
    return schema is None or other is None or schema == other


def class_of_change(catalog: Catalog | None, change: Change) -> ObjectClass | None:
    """Return the class of a change's table, None if the catalogue describes another schema."""
    if catalog is None or not may_be_one(change.schema, catalog.schema):
        return None
    return class_of(catalog, change.table)


def typed_key(text: str, object_class: ObjectClass | None) -> Key:
    """Return the key of a table_key: typed and in key order, or with texts if the class is unknown.

    Raises BadTableKey if the text is not a key of the class.
    """
    if object_class is None:
        return tuple((part.name, part.value) for part in table_key.parse(text))
    return key_reader(object_class)(object_class.canonical_key(text))


@lru_cache(maxsize=1024)
def key_reader(object_class: ObjectClass) -> Callable[[str], Key]:
    """Return the function that makes typed keys of canonical table_keys. The function raises
    BadValue.
    """
    columns = [
        (column.name, len(column.name) + 1, value_reader(column.type))
        for column in object_class.key
    ]
    (first, start_of_first, read_first), *more = columns

    def read(text: str) -> Key:
        if '"' in text:
            texts = {part.name: part.value for part in table_key.parse(text)}
            return tuple([(name, read_value(texts[name])) for name, _, read_value in columns])
        # Nearly all canonical texts have no quotes, so their names and values need no parsing.
        if not more:
            return ((first, read_first(text[start_of_first:])),)
        parts = zip(columns, text.split("+"), strict=True)
        return tuple(
            [(name, read_value(part[start:])) for (name, start, read_value), part in parts]
        )

    return read


def with_key(change: Change, object_class: ObjectClass | None) -> Change:
    """Return the change with its key. A missing key is taken from the class's key columns in the
    change's images.

    Raises NotExpressible if the key cannot be determined.
    """
    if change.key is not None:
        return change
    image = change.before if change.op is ChangeOp.DELETE else change.after
    key = None
    if object_class is not None and image is not None:
        key = key_in(image, [column.name for column in object_class.key])
    if key is None:
        raise NotExpressible(
            f"{change.op} of {change.table!r} at {change.position} has no key, which is needed to "
            "identify its row. Name the key columns in the option of its reader, or in a catalog"
        )
    return change._replace(key=key)


def key_in(row: Row, names: Iterable[str]) -> Key | None:
    """Return the key that a row has in these columns; None if the row lacks one of the columns."""
    try:
        return tuple([(name, row[name]) for name in names])
    except KeyError:
        return None


def old_and_new_key(change: Change) -> tuple[Key, Key]:
    """Return the key before and after a change that has a key.

    The two keys are equal if the key did not change.
    """
    assert change.key is not None
    old = old_key(change) if change.op is ChangeOp.UPDATE else change.key
    assert old is not None
    return old, change.key


def key_text(change: Change, key: Key, object_class: ObjectClass | None) -> str:
    """Return the canonical table_key (spec/event-log.md 4.3) of ``key``, a key of the change's
    table.

    Raises NotExpressible for a NULL and for a value that the class's key column cannot hold.
    """
    try:
        parts = [(name, _normal_text(change, name, value)) for name, value in key]
        text = table_key.key_text(parts)
        if object_class is not None:
            text = object_class.canonical_key(text)
    except RowError as error:
        raise NotExpressible(
            f"the key of {change.op} of {change.table!r} at {change.position}: {error}"
        ) from error
    return text


def _normal_text(change: Change, name: str, value: Value) -> str:
    if value is None:
        raise NotExpressible(
            f"key column {name!r} of {change.op} of {change.table!r} at {change.position} is NULL"
        )
    if type(value) is int or type(value) is str:  # most keys, which are in normal form
        return str(value)
    return key_normalizer(type_of(value))(to_text(value))


EXISTING_KEYS: Final = Option(
    None, ANY, "keys that a TRUNCATE deletes, by table, or a function of the table"
)


ExistingKeys: TypeAlias = Callable[[str], Iterable[Key] | None]
"""A function that returns the keys of a table's rows, None if the keys are unknown."""


def keys_of(option: Any, catalog: Catalog | None) -> ExistingKeys | None:
    """Return the option ``existing_keys`` as a function of the table.

    The option is already a function, or it maps each table to the list of its keys. A key is an
    object with the key columns in key order. Raises ConfigError.
    """
    if option is None:
        return None
    if callable(option):
        function: ExistingKeys = option
        return function
    if not isinstance(option, Mapping):
        raise ConfigError(
            'existing_keys must map each table to a list of keys, for example {"item": [{"id": 7}]}'
        )
    return {table: _keys(table, keys, catalog) for table, keys in option.items()}.get


def _keys(table: str, keys: Any, catalog: Catalog | None) -> list[Key]:
    if not isinstance(keys, list | tuple):
        raise ConfigError(
            f'the keys of {table!r} in existing_keys must be a list, for example [{{"id": 7}}]'
        )
    return [_key(table, key, catalog) for key in keys]


def _key(table: str, key: Any, catalog: Catalog | None) -> Key:
    if not isinstance(key, Mapping):
        raise ConfigError(
            f"a key of {table!r} in existing_keys must be an object of its columns, for example "
            '{"id": 7}'
        )
    object_class = class_of(catalog, table)
    types = (
        {} if object_class is None else {column.name: column.type for column in object_class.key}
    )
    return tuple(
        (
            name,
            value_reader(types[name])(value) if isinstance(value, str) and name in types else value,
        )
        for name, value in key.items()
    )


def existing_keys(change: Change, keys_of: ExistingKeys | None) -> Iterable[Key]:
    """Return the keys that a TRUNCATE deletes. Raises NotExpressible if the keys are unknown
    (spec/change-model.md 4).
    """
    keys = None if keys_of is None else keys_of(change.table)
    if keys is None:
        raise NotExpressible(
            f"TRUNCATE of {change.table!r} at {change.position} is written as one delete per key, "
            "but the keys are not known; pass them in existing_keys"
        )
    return keys
