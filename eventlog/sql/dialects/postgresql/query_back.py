"""The current rows of many keys of one class, in one statement (spec/event-log.md 7.2, spec/xds.md 4.3).

The statement's form, for a table with a child table and a composite key::

    WITH k AS (SELECT n, k0::integer AS k0, k1 FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS u (k0, k1, n))
    SELECT k.n, p.fname::text, c0.texts
    FROM k
    JOIN ONLY usr AS p ON p.id = k.k0 AND p.branch = k.k1 AND p.branch COLLATE "C" = k.k1
    LEFT JOIN (SELECT k.n, array_agg(c.phoneno::text) AS texts
               FROM k JOIN ONLY usr_phone AS c ON c.id = k.k0 AND c.branch = k.k1 GROUP BY k.n) AS c0 ON c0.n = k.n

The keys travel as texts and become values here, so that the key's index serves, and no value that its type cannot
take gets as far as a cast. A child table is read once for all keys, since it may have no index on its foreign key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

from sqlalchemy import Connection

from eventlog.core.catalog import Attribute, Column, ObjectClass
from eventlog.core.values import ColumnType, Kind, ValueOptions, converter
from eventlog.sql.dialect import CurrentRow, Dialect, NoSuchValue, child_of
from eventlog.sql.dialects.postgresql.log import usual_plans
from eventlog.sql.dialects.postgresql.text import bindable, key_value, relation, value_text
from eventlog.sql.statements import fetch, field

_TEXT_KINDS: Final = (Kind.CHARACTER, Kind.FIXED)


class PostgresQueryBack(Dialect):
    """One statement reads the objects of a class, with their child tables."""

    def query_back(
        self,
        conn: Connection,
        schema: str | None,
        cls: ObjectClass,
        keys: Sequence[str],
        attributes: Sequence[Attribute],
    ) -> dict[str, CurrentRow]:
        keys_and_texts = list(self.key_values(cls, keys))
        if not keys_and_texts:
            return {}
        usual_plans(conn)
        columns = zip(*(texts for _, texts in keys_and_texts), strict=True)
        parameters = {f"k{i}": list(column) for i, column in enumerate(columns)}
        names = [attribute.name for attribute in attributes]
        lists = [cls.is_view or child_of(cls, attribute) is not None for attribute in attributes]
        rows: dict[str, CurrentRow] = {}
        for n, *values in fetch(conn, _statement(schema, cls, tuple(attributes)), parameters):
            rows[keys_and_texts[n - 1][0]] = {
                name: (value or []) if is_list else [value]
                for name, value, is_list in zip(names, values, lists, strict=True)
            }
        return rows

    def key_reader(self, column: Column) -> Callable[[str], str]:
        # Of what a key may be written as, one form that the server is sure to take.
        match column.type.kind:
            case Kind.APPROXIMATE | Kind.BOOLEAN:
                return converter(column.type, ValueOptions())
            case Kind.DATE | Kind.TIMESTAMP | Kind.TIMESTAMPTZ:
                return _instant(converter(column.type, ValueOptions(time_syntax="canonical")))
            case Kind.TIME:
                return _time(converter(column.type, ValueOptions(time_syntax="canonical")))
            case Kind.EXACT | Kind.INTEGER if not column.type.bits:
                return _numeric
            case _:
                return str


# The statement


@lru_cache(maxsize=512)
def _statement(schema: str | None, cls: ObjectClass, attributes: tuple[Attribute, ...]) -> str:
    arrays = ", ".join(f"%(k{i})s::text[]" for i in range(len(cls.key)))
    columns = ", ".join(f"k{i}" for i in range(len(cls.key)))
    values = ", ".join(f"{_as_value(column.type, f'k{i}')} AS k{i}" for i, column in enumerate(cls.key))
    body = _view(schema, cls, attributes) if cls.is_view else _table(schema, cls, attributes)
    # Put together of quoted identifiers; the keys are bound.
    return (
        f"WITH k AS MATERIALIZED (SELECT n, {values} FROM unnest({arrays}) WITH ORDINALITY AS u ({columns}, n))\n"  # noqa: S608
        + bindable(body)
    )


def _table(schema: str | None, cls: ObjectClass, attributes: Sequence[Attribute]) -> str:
    selected = ["k.n"]
    joins = [_key_join(schema, cls)]
    for attribute in attributes:
        child = child_of(cls, attribute)
        if child is None:
            selected.append(value_text(attribute.column, field("p", attribute.column)))
            continue
        name = f"c{len(joins)}"
        selected.append(f"{name}.texts")
        text = value_text(child.attribute.column, field("c", child.attribute.column))
        # Joined with the parent only where the key is compared with the parent's own value.
        parent = _key_join(schema, cls) if any(_by_parent(column) for column in cls.key) else ""
        conditions = " AND ".join(
            _owned(column, child.table.column(owner), i)
            for i, (column, owner) in enumerate(zip(cls.key, child.owner_columns, strict=True))
        )
        joins.append(
            f"LEFT JOIN (SELECT k.n, array_agg({text}) AS texts FROM k {parent}"  # noqa: S608
            f" JOIN {relation(schema, child.table)} AS c ON {conditions} GROUP BY k.n) AS {name} ON {name}.n = k.n"
        )
    return f"SELECT {', '.join(selected)}\nFROM k\n" + "\n".join(joins)


def _view(schema: str | None, cls: ObjectClass, attributes: Sequence[Attribute]) -> str:
    texts = [value_text(attribute.column, field("p", attribute.column)) for attribute in attributes]
    selected = ["k.n", *(f"array_agg({text})" for text in texts)]
    return f"SELECT {', '.join(selected)}\nFROM k\n{_key_join(schema, cls)}\nGROUP BY k.n"


def _key_join(schema: str | None, cls: ObjectClass) -> str:
    conditions = " AND ".join(_is_key(column, i) for i, column in enumerate(cls.key))
    return f"JOIN {relation(schema, cls.table)} AS p ON {conditions}"


def _is_key(column: Column, i: int) -> str:
    """SQL: the row of the class has this key value."""
    ref = field("p", column)
    if column.type.kind is Kind.OTHER:
        # No cast of a text to such a type is sure to succeed, and its "=" may be coarser than its text.
        return f'({key_value(column, ref)}) COLLATE "C" = k.k{i}'
    if column.type.kind in _TEXT_KINDS:
        # The first condition finds it by index, the second one exactly.
        return f'{ref} = k.k{i} AND {ref}::text COLLATE "C" = k.k{i}::text'
    return f"{ref} = k.k{i}"


def _by_parent(column: Column) -> bool:
    return column.type.kind is Kind.OTHER


def _owned(column: Column, owner: Column, i: int) -> str:
    """SQL: the child's row belongs to this key, as the foreign key has it: its "=" may be coarser than the text."""
    ref = field("c", owner)
    if not _by_parent(column):
        key = f"k.k{i}"
        if column.type.kind in _TEXT_KINDS and owner.type.kind is not column.type.kind:
            key += "::bpchar" if owner.type.kind is Kind.FIXED else "::text"
        return f"{ref} = {key}"
    parent = field("p", column)
    if column.type.sql == owner.type.sql:
        # As records: by the type's own "=", which need not be on the search path.
        return f"ROW({ref})::pg_catalog.record OPERATOR(pg_catalog.=) ROW({parent})::pg_catalog.record"
    return f'({value_text(owner, ref)}) COLLATE "C" = ({value_text(column, parent)}) COLLATE "C"'


_INTEGERS: Final = {16: "smallint", 32: "integer", 64: "bigint"}
_CASTS: Final = {
    Kind.EXACT: "numeric",
    Kind.BOOLEAN: "boolean",
    Kind.FIXED: "bpchar",
    Kind.DATE: "date",
    Kind.TIME: "time",
    Kind.TIMESTAMP: "timestamp",
    Kind.TIMESTAMPTZ: "timestamptz",
    Kind.UUID: "uuid",
}


def _as_value(column_type: ColumnType, ref: str) -> str:
    """SQL of a key value from its text: of the column's type, but without length or precision, which would cut it."""
    match column_type.kind:
        case Kind.INTEGER:
            return f"{ref}::{_INTEGERS.get(column_type.bits, 'numeric')}"
        case Kind.APPROXIMATE:
            return f"{ref}::{'real' if column_type.bits == 32 else 'double precision'}"
        case Kind.BINARY:
            return f"decode({ref}, 'base64')"
        case Kind.CHARACTER | Kind.OTHER:
            return ref
        case kind:
            return f"{ref}::{_CASTS[kind]}"


# The texts that are sent


def _numeric(text: str) -> str:
    whole, _, fraction = text.partition(".")
    if len(whole) > 131072 or len(fraction) > 16383:
        raise NoSuchValue
    return text


def _instant(canonical: Callable[[str], str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        digits = canonical(text)
        if not digits.isdigit():  # a special time, which the server takes as it is; the session's zone is UTC
            return text
        date = f"{digits[:4]}-{digits[4:6]}-{digits[6:8]}"
        if len(digits) == 8:
            return date
        return f"{date} {digits[8:10]}:{digits[10:12]}:{digits[12:14]}.{_microseconds(digits[14:])}+00"

    return read


def _time(canonical: Callable[[str], str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        digits = canonical(text)
        if not digits.isdigit():
            return text
        fraction = re.search(r"\.([0-9]+)", text)
        microseconds = _microseconds(fraction[1].ljust(9, "0")) if fraction else "0"
        return f"{digits[:2]}:{digits[2:4]}:{digits[4:6]}.{microseconds}"

    return read


def _microseconds(nanoseconds: str) -> str:
    if nanoseconds[6:].strip("0"):
        raise NoSuchValue
    return nanoseconds[:6]
