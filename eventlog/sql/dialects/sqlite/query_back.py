"""The current rows of many keys of one class (spec/event-log.md 7.2, spec/xds.md 4.3).

One statement for the class and one for each child attribute, for up to a thousand keys at once::

    WITH k (n, k0, k1) AS (VALUES (0, ?, ?), (1, ?, ?))
    SELECT k.n, CAST(p."fname" AS TEXT)
    FROM k CROSS JOIN "usr" AS p ON p."id" = k.k0 AND p."branch" = k.k1 AND p."branch" COLLATE BINARY = k.k1

The keys are bound as texts (numbers as numbers, binary values as bytes) and take the affinity of the column that they
are compared with, so that the key's index serves.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import Connection

from eventlog.core.catalog import ChildTable, Column, ObjectClass
from eventlog.core.values import Kind, ValueOptions, converter
from eventlog.sql.dialects.sqlite.text import key_text, value_text
from eventlog.sql.dialects.stepwise import StepwiseDialect
from eventlog.sql.statements import fetch
from eventlog.sql.text import field, quote_identifier
from eventlog.sql.windows import Walk

_KEYS: Final = 1000
"""Keys that one statement asks for."""


class SQLiteQueryBack(StepwiseDialect):
    """A class is walked by its key's values; a view, whose rows may have one key, by the canonical text itself."""

    def read_values(
        self,
        conn: Connection,
        schema: str | None,
        cls: ObjectClass,
        child: ChildTable | None,
        columns: tuple[Column, ...],
        keys: Sequence[tuple[Any, ...]],
    ) -> Iterator[tuple[int, Sequence[Any]]]:
        for first in range(0, len(keys), _KEYS):
            chunk = keys[first : first + _KEYS]
            binds = tuple(value for key in chunk for value in key)
            for n, *values in fetch(conn, _statement(cls, child, columns, len(chunk)), binds):
                yield first + n, values

    def key_reader(self, column: Column) -> Callable[[str], object]:
        match column.type.kind:
            case Kind.BINARY:
                return lambda text: b64decode(text, validate=True)
            case Kind.APPROXIMATE:
                return float
            case Kind.BOOLEAN:
                boolean = converter(column.type, ValueOptions())
                return lambda text: int(boolean(text) in ("1", "true"))
            case _:
                return str

    def keys_behind(self, conn: Connection, walk: Walk, position: str | None, limit: int) -> list[str]:
        refs = self.walk_key(walk)
        distinct, order = ("DISTINCT ", "1") if walk.cls.is_view else ("", ", ".join(refs))
        statement = (
            f"SELECT {distinct}{key_text(walk.cls.key, refs)} FROM {self.walk_rows(walk)}"  # noqa: S608 - quoted
            f" WHERE {self.walk_condition(walk, goes_on=position is not None)} ORDER BY {order} LIMIT :limit"
        )
        return [key for (key,) in fetch(conn, statement, {**self.position_binds(walk.cls, position), "limit": limit})]

    def behind(self, walk: Walk) -> str:
        return (
            f"{key_text(walk.cls.key, self.walk_key(walk))} > :position" if walk.cls.is_view else super().behind(walk)
        )

    def position_binds(self, cls: ObjectClass, position: str | None) -> Mapping[str, object]:
        return {"position": position} if cls.is_view and position is not None else super().position_binds(cls, position)


# The statements


@lru_cache(maxsize=512)
def _statement(cls: ObjectClass, child: ChildTable | None, columns: tuple[Column, ...], number: int) -> str:
    row, join = "p", ""
    if child is not None:
        # The owner's side first: by its collation a foreign key compares.
        owned = " AND ".join(
            f"{field('p', key)} = c.{quote_identifier(owner)}"
            for key, owner in zip(cls.key, child.owner_columns, strict=True)
        )
        row, join = "c", f"\nJOIN {quote_identifier(child.table.name)} AS c ON {owned}"
    selected = ", ".join(["k.n", *(_selected(row, column) for column in columns)])
    found = " AND ".join(_is_key(column, i) for i, column in enumerate(cls.key))
    # CROSS JOIN keeps the order of the tables: from the keys, by the key's index, to the rows.
    return (
        f"{_keys(cls, number)}\nSELECT {selected}\nFROM k\n"
        f"CROSS JOIN {quote_identifier(cls.table.name)} AS p ON {found}{join}"
    )


def _keys(cls: ObjectClass, number: int) -> str:
    columns = ", ".join(f"k{i}" for i in range(len(cls.key)))
    marks = ", ".join("?" * len(cls.key))
    return f"WITH k (n, {columns}) AS (VALUES {', '.join(f'({n}, {marks})' for n in range(number))})"


def _is_key(column: Column, i: int) -> str:
    ref = field("p", column)
    if column.type.kind in (Kind.CHARACTER, Kind.FIXED) and not column.deterministic:
        # The first condition finds it by index, the second one exactly.
        return f"{ref} = k.k{i} AND {ref} COLLATE BINARY = k.k{i}"
    return f"{ref} = k.k{i}"


def _selected(row: str, column: Column) -> str:
    ref = field(row, column)
    # A binary column may hold numbers and texts too.
    return f"CAST({ref} AS BLOB)" if column.type.kind is Kind.BINARY else value_text(column, ref)
