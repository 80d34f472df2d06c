"""The current rows of many keys of one class (spec/event-log.md 7.2, spec/xds.md 4.3).

One statement for the class and one for each child attribute, for up to a thousand keys at once::

    WITH k (n, k0, k1) AS (VALUES (0, ?, ?), (1, ?, ?))
    SELECT k.n, CAST(p."fname" AS TEXT)
    FROM k CROSS JOIN "usr" AS p ON p."id" = k.k0 AND p."branch" = k.k1 AND p."branch" COLLATE BINARY = k.k1

The keys are bound as texts (numbers as numbers, binary values as bytes) and take the affinity of the column that they
are compared with, so that the key's index serves.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import Connection

from eventlog.core.catalog import Attribute, ChildTable, Column, ObjectClass
from eventlog.core.values import Kind, ValueOptions, converter
from eventlog.sql.dialects.sqlite.text import value_text
from eventlog.sql.statements import fetch
from eventlog.sql.text import field, quote_identifier

_KEYS: Final = 1000
"""Keys that one statement asks for."""


def read_objects(
    conn: Connection,
    schema: str | None,
    cls: ObjectClass,
    attributes: tuple[Attribute, ...],
    keys: Sequence[tuple[object, ...]],
) -> Iterator[tuple[int, Sequence[str | None]]]:
    """The values of ``attributes`` of the class's rows with these keys, each with its key's place."""
    for first, number, values in _chunks(keys):
        for n, *texts in fetch(conn, _rows_statement(cls, attributes, number), values):
            yield first + n, [_as_text(one.column, text) for one, text in zip(attributes, texts, strict=True)]


def read_children(
    conn: Connection, schema: str | None, cls: ObjectClass, child: ChildTable, keys: Sequence[tuple[object, ...]]
) -> Iterator[tuple[int, str | None]]:
    """The values of a child table of objects with these keys, each with its key's place."""
    for first, number, values in _chunks(keys):
        for n, text in fetch(conn, _child_statement(cls, child, number), values):
            yield first + n, _as_text(child.attribute.column, text)


def _chunks(keys: Sequence[tuple[object, ...]]) -> Iterator[tuple[int, int, tuple[object, ...]]]:
    """Each chunk of the keys: where it begins, how many keys it has, and all their values."""
    for first in range(0, len(keys), _KEYS):
        chunk = keys[first : first + _KEYS]
        yield first, len(chunk), tuple(value for key in chunk for value in key)


def _as_text(column: Column, value: Any) -> str | None:
    if value is None or column.type.kind is not Kind.BINARY:
        return None if value is None else str(value)
    return base64.b64encode(value.encode() if isinstance(value, str) else bytes(value)).decode()


# The statements


@lru_cache(maxsize=512)
def _rows_statement(cls: ObjectClass, attributes: tuple[Attribute, ...], number: int) -> str:
    selected = ["k.n", *(_selected("p", attribute.column) for attribute in attributes)]
    # CROSS JOIN keeps the order of the tables: from the keys, by the key's index, to the rows.
    return f"{_keys(cls, number)}\nSELECT {', '.join(selected)}\nFROM k\n{_class_join(cls)}"


@lru_cache(maxsize=512)
def _child_statement(cls: ObjectClass, child: ChildTable, number: int) -> str:
    # The owner's side first: by its collation a foreign key compares.
    owned = " AND ".join(
        f"{field('p', key)} = c.{quote_identifier(owner)}"
        for key, owner in zip(cls.key, child.owner_columns, strict=True)
    )
    return (
        f"{_keys(cls, number)}\nSELECT k.n, {_selected('c', child.attribute.column)}\nFROM k\n{_class_join(cls)}\n"
        f"JOIN {quote_identifier(child.table.name)} AS c ON {owned}"
    )


def _keys(cls: ObjectClass, number: int) -> str:
    columns = ", ".join(f"k{i}" for i in range(len(cls.key)))
    marks = ", ".join("?" * len(cls.key))
    return f"WITH k (n, {columns}) AS (VALUES {', '.join(f'({n}, {marks})' for n in range(number))})"


def _class_join(cls: ObjectClass) -> str:
    conditions = " AND ".join(_is_key(column, i) for i, column in enumerate(cls.key))
    return f"CROSS JOIN {quote_identifier(cls.table.name)} AS p ON {conditions}"


def _is_key(column: Column, i: int) -> str:
    ref = field("p", column)
    if column.type.kind in (Kind.CHARACTER, Kind.FIXED) and not column.deterministic:
        # The first condition finds it by index, the second one exactly.
        return f"{ref} = k.k{i} AND {ref} COLLATE BINARY = k.k{i}"
    return f"{ref} = k.k{i}"


def _selected(row: str, column: Column) -> str:
    ref = field(row, column)
    return ref if column.type.kind is Kind.BINARY else value_text(column, ref)


# The values that are bound


def key_reader(column: Column) -> Callable[[str], object]:
    """The function that turns a key value's text into what is bound; it raises BadValue for what no row can have."""
    match column.type.kind:
        case Kind.BINARY:
            return lambda text: base64.b64decode(text, validate=True)
        case Kind.APPROXIMATE:
            return float
        case Kind.BOOLEAN:
            boolean = converter(column.type, ValueOptions())
            return lambda text: int(boolean(text) in ("1", "true"))
        case _:
            return str
