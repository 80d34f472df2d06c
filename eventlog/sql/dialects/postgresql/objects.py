"""The application's tables on PostgreSQL: the catalogue of a schema, objects by their keys, resync.

The catalogue is read in four statements, whatever the number of tables (spec/xds.md 5, 6.2).
Current rows are read in one statement (spec/event-log.md 7.2, spec/xds.md 4.3). Its form, for a
table with a child table and a composite key::

    WITH k AS (SELECT n, k0::integer AS k0, k1
               FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS u (k0, k1, n))
    SELECT k.n, p.fname::text, c0.texts
    FROM k
    CROSS JOIN LATERAL (SELECT p.id, p.branch, p.fname FROM ONLY usr AS p
                        WHERE p.id = k.k0 AND p.branch = k.k1 AND p.branch COLLATE "C" = k.k1
                        OFFSET 0) AS p
    LEFT JOIN (SELECT k.n, array_agg(c.phoneno::text) AS texts
               FROM k JOIN ONLY usr_phone AS c ON c.id = k.k0 AND c.branch = k.k1
               GROUP BY k.n) AS c0 ON c0.n = k.n

The keys are bound as texts and converted in the statement, so that it can use the key's index. A
text that is not valid for its type never reaches a cast. A child table is read once for all keys,
since it may have no index on its foreign key.

A resync walks a class by keyset (spec/event-log.md 11): each batch begins after the last key of the
previous batch. This key is stored as canonical table_key text, which this module converts back into
values. The statement is in resync.sql.j2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, Final

from sqlalchemy import Row

from eventlog.core import table_key
from eventlog.core.catalog import Attribute, Column, ForeignKey, ObjectClass, Table
from eventlog.core.values import ColumnType, Kind, ValueOptions, converter
from eventlog.sql.dialects.postgresql.text import (
    bindable,
    is_one_spelling,
    key_text,
    key_value,
    relation,
    text_of_now,
    value_text,
)
from eventlog.sql.port.dialect import Dialect, NoSuchValue, child_of, log_words
from eventlog.sql.port.log_operations import Walk
from eventlog.sql.port.sql_files import Binds, field, quote_identifier, source_of, template_renderer

_rendered: Final = template_renderer(__package__)  # all inserted text is quoted or bound
_TEXT_KINDS: Final = (Kind.CHARACTER, Kind.FIXED)


class PostgresObjects(Dialect):
    """The tables, partitioned roots, views and materialized views of a schema.

    One statement reads the objects of a class, with their child tables. Another statement reads the
    keys of a resync's batch, and writes the rows of the batch.
    """

    is_not_null = "IS DISTINCT FROM NULL"  # a row of NULLs also "IS NULL"
    refusal_ends_transaction = True

    # Objects by their keys

    def key_column_reader(self, column: Column) -> Callable[[str], str]:
        # One of the possible spellings of a key, which the server certainly accepts.
        match column.type.kind:
            case Kind.APPROXIMATE | Kind.BOOLEAN:
                return converter(column.type, ValueOptions())
            case Kind.DATE | Kind.TIME | Kind.TIMESTAMP | Kind.TIMESTAMPTZ:
                return partial(_moment, converter(column.type, ValueOptions(time_syntax="full")))
            case Kind.EXACT | Kind.INTEGER if not column.type.bits:
                return _numeric
            case _:
                return str

    # Resync: objects written into the log again

    def batch_statement(
        self, walk: Walk, *, continues: bool, writes: bool = True, ends: bool = False
    ) -> str:
        """Return the statement of ``write_batch``; without ``writes`` the statement of
        ``keys_after``. With ``ends`` the statement does not return the last key.
        """
        by_value = _by_value(walk.cls)
        places = [f"k{i}" for i in range(len(walk.cls.key))]
        key_refs = self.walk_key(walk)
        return _rendered(
            "resync.sql.j2",
            **log_words(self, walk.log, "utc"),
            by_value=by_value,
            is_view=walk.cls.is_view,
            key=key_refs,
            key_text=_key_text(
                walk, [f"batch.{place}" for place in places] if by_value else key_refs
            ),
            relation=self.walk_rows(walk),
            condition=self.walk_condition(walk, continues=continues),
            order=", ".join(places),
            writes=writes,
            ends=ends,
        )

    relation = staticmethod(relation)

    def behind(self, walk: Walk) -> str:
        refs = self.walk_key(walk)
        if not _by_value(walk.cls):
            return (
                f'({_key_text(walk, refs)}) COLLATE pg_catalog."C" OPERATOR(pg_catalog.>) '
                "%(position)s::text"
            )
        values = ", ".join(
            _value(column, f"%(k{i})s::text") for i, column in enumerate(walk.cls.key)
        )
        return f"ROW({', '.join(refs)}) OPERATOR(pg_catalog.>) ROW({values})"

    def reached_binds(self, cls: ObjectClass, reached: str | None) -> Binds:
        if reached is None:
            return {}
        if not _by_value(cls):
            return {"position": reached}
        return {f"k{i}": part.value for i, part in enumerate(table_key.parse(reached))}

    def _binds(self, walk: Walk, reached: str | None) -> Binds:
        # Every statement with the operator's text has a parameter, so that the server accepts only
        # a single statement.
        return {
            "event_type": int(walk.selection.event_type),
            **self.reached_binds(walk.cls, reached),
        }


# --- the statement that reads a range of keys -----------------------------------------------------

_ORDERED: Final = {Kind.INTEGER: "int8", Kind.UUID: "uuid", Kind.CHARACTER: "text"}
"""The SQL type of a bound of a range, by the kind of its column."""


@lru_cache(maxsize=512)
def range_statement(
    schema: str | None,
    cls: ObjectClass,
    attributes: tuple[Attribute, ...],
    *,
    continues: bool,
    ends: bool,
) -> str:
    """Return the statement of ``range_reader``. With ``continues`` the key before the range is
    bound, as ``behind0`` and so on; with ``ends`` the last key is bound, as ``last0`` and so on.

    A view may have several rows for one object, so the last column is the number of rows; the texts
    are the texts of the object only if this number is 1.
    """
    refs = [bindable(field("p", column)) for column in cls.key]
    keys = [
        ref if column.type.kind is Kind.INTEGER else f"({ref})::pg_catalog.text"
        for column, ref in zip(cls.key, refs, strict=True)
    ]
    texts = [bindable(text_of_now(one.column, field("p", one.column))) for one in attributes]
    conditions = [f"{ref} IS NOT NULL" for ref in refs]
    for is_bound, operator, name in ((continues, ">", "behind"), (ends, "<=", "last")):
        if is_bound:
            bound = ", ".join(
                f"%({name}{i})s::pg_catalog.{_ORDERED[column.type.kind]}"
                for i, column in enumerate(cls.key)
            )
            conditions.append(
                f"ROW({', '.join(refs)}) OPERATOR(pg_catalog.{operator}) ROW({bound})"
            )
    order, group = ", ".join(refs), ""
    if cls.is_view:
        texts = [f'pg_catalog.min(({text}) COLLATE pg_catalog."C")' for text in texts]
        texts.append("pg_catalog.count(*)")
        group = f"GROUP BY {order}\n"
    # It consists of quoted identifiers; the keys are bound.
    return (
        f"SELECT {', '.join([*keys, *texts])}\n"
        f"FROM {bindable(relation(schema, cls.table))} AS p\n"
        f"WHERE {' AND '.join(conditions)}\n{group}ORDER BY {order}\nLIMIT %(limit)s::bigint"
    )


# --- the catalogue --------------------------------------------------------------------------------

_KINDS: Final = {
    "int2": (Kind.INTEGER, 16),
    "int4": (Kind.INTEGER, 32),
    "int8": (Kind.INTEGER, 64),
    "numeric": (Kind.EXACT, 0),
    "float4": (Kind.APPROXIMATE, 32),
    "float8": (Kind.APPROXIMATE, 64),
    "bool": (Kind.BOOLEAN, 0),
    "bpchar": (Kind.FIXED, 0),
    "varchar": (Kind.CHARACTER, 0),
    "text": (Kind.CHARACTER, 0),
    "bytea": (Kind.BINARY, 0),
    "date": (Kind.DATE, 0),
    "time": (Kind.TIME, 0),
    "timestamp": (Kind.TIMESTAMP, 0),
    "timestamptz": (Kind.TIMESTAMPTZ, 0),
    "uuid": (Kind.UUID, 0),
}

_HEADER: Final = 4  # VARHDRSZ, which numeric's typmod adds


def column_type(type_name: str | None, typmod: int, sql: str) -> ColumnType:
    """Return the column type of a base type (spec/xds.md 6.2, column PostgreSQL).

    ``type_name`` is ``pg_type.typname`` of a type of ``pg_catalog``, None for any other type;
    ``typmod`` is as in ``pg_attribute.atttypmod``, -1 for none; ``sql`` is the text of
    ``format_type``. Domains must be resolved first.
    """
    kind, bits = _KINDS.get(type_name or "", (Kind.OTHER, 0))
    if kind is Kind.EXACT and typmod >= _HEADER and _scale(typmod) == 0:
        kind = Kind.INTEGER
    return ColumnType(kind, bits, sql)


def _scale(typmod: int) -> int:
    # Eleven bits, signed: scales from -1000 on are possible since PostgreSQL 15.
    return (((typmod - _HEADER) & 0x7FF) ^ 0x400) - 0x400


def table_of(
    schema: int,
    columns: list[Row[Any]],
    names: dict[int, str],
    unique: list[Row[Any]],
    foreign: list[Row[Any]],
    point: int = 2,
) -> Table:
    first = columns[0]
    # A key cannot contain a virtual column, which reflect leaves out, since no index can contain
    # one.
    primary = next((row for row in unique if row.is_primary), None)
    return Table(
        name=first.table_name,
        kind="view" if first.kind in ("v", "m") else "table",
        columns=tuple(
            Column(
                row.column_name,
                replace(column_type(row.type_name, row.typmod, row.sql), point=point),
                row.is_deterministic,
            )
            for row in columns
            if row.column_name is not None
        ),
        primary_key=()
        if primary is None
        else tuple(names[position] for position in primary.positions),
        foreign_keys=tuple(
            ForeignKey(
                columns=tuple(names[position] for position in row.positions),
                table=row.ref_table
                if row.ref_schema == schema
                else f"{row.ref_schema_name}.{row.ref_table}",
                ref_columns=tuple(row.ref_columns),
                deferrable=row.deferrable,
            )
            for row in sorted(foreign, key=lambda row: row.positions[0])
        ),
        unique_keys=tuple(
            tuple(names[position] for position in row.positions)
            for row in unique
            if row.is_immediate
        ),
        key_deferrable=primary is not None and not primary.is_immediate,
        partitioned=first.kind == "p",
    )


# --- the statement that reads objects -------------------------------------------------------------


@lru_cache(maxsize=512)
def objects_statement(
    schema: str | None, cls: ObjectClass, attributes: tuple[Attribute, ...]
) -> str:
    arrays = ", ".join(f"%(k{i})s::text[]" for i in range(len(cls.key)))
    columns = ", ".join(f"k{i}" for i in range(len(cls.key)))
    values = ", ".join(
        f"{_as_value(column.type, f'k{i}')} AS k{i}" for i, column in enumerate(cls.key)
    )
    body = (
        _view_statement(schema, cls, attributes)
        if cls.is_view
        else _table_statement(schema, cls, attributes)
    )
    # It consists of quoted identifiers; the keys are bound.
    return (  # noqa: S608
        f"WITH k AS MATERIALIZED (SELECT n, {values} FROM unnest({arrays}) WITH ORDINALITY AS "  # noqa: S608
        f"u ({columns}, n))\n"
    ) + bindable(body)


def _table_statement(schema: str | None, cls: ObjectClass, attributes: Sequence[Attribute]) -> str:
    selected = ["k.n"]
    own = [attribute.column for attribute in attributes if child_of(cls, attribute) is None]
    joins = [_key_join(schema, cls, own)]
    for attribute in attributes:
        child = child_of(cls, attribute)
        if child is None:
            selected.append(text_of_now(attribute.column, field("p", attribute.column)))
            continue
        name = f"c{len(joins)}"
        selected.append(f"{name}.texts")
        text = text_of_now(child.attribute.column, field("c", child.attribute.column))
        # The parent is joined only if the key is compared with the parent's own value.
        parent = (
            _key_join(schema, cls)
            if any(column.type.kind is Kind.OTHER for column in cls.key)
            else ""
        )
        conditions = " AND ".join(
            _owned(column, child.table.column(owner), i)
            for i, (column, owner) in enumerate(zip(cls.key, child.owner_columns, strict=True))
        )
        joins.append(
            f"LEFT JOIN (SELECT k.n, array_agg({text}) AS texts FROM k {parent}"  # noqa: S608
            f" JOIN {relation(schema, child.table)} AS c ON {conditions}"
            f" GROUP BY k.n) AS {name} ON {name}.n = k.n"
        )
    return f"SELECT {', '.join(selected)}\nFROM k\n" + "\n".join(joins)


def _view_statement(schema: str | None, cls: ObjectClass, attributes: Sequence[Attribute]) -> str:
    texts = [
        text_of_now(attribute.column, field("p", attribute.column)) for attribute in attributes
    ]
    selected = ["k.n", *(f"array_agg({text})" for text in texts)]
    joined = _key_join(schema, cls, [attribute.column for attribute in attributes])
    return f"SELECT {', '.join(selected)}\nFROM k\n{joined}\nGROUP BY k.n"


def _key_join(schema: str | None, cls: ObjectClass, read: Sequence[Column] = ()) -> str:
    """Return the SQL that joins the keys with their rows, for a statement that reads the key
    columns and the columns in ``read``.
    """
    conditions = " AND ".join(_is_key(column, i) for i, column in enumerate(cls.key))
    source = source_of(cls, partial(relation, schema), read, quote_identifier)
    rows = f"{source} AS p"
    if not _is_indexed(cls):
        return f"JOIN {rows} ON {conditions}"
    # OFFSET 0 prevents a join that reads the whole table for a few thousand keys: the server takes
    # an index for more expensive than it is.
    columns = dict.fromkeys(field("p", column) for column in (*cls.key, *read))
    selected = f"SELECT {', '.join(columns)} FROM {rows} WHERE {conditions} OFFSET 0"  # noqa: S608
    return f"CROSS JOIN LATERAL ({selected}) AS p"


def _is_indexed(cls: ObjectClass) -> bool:
    """Return True if a unique index has the key's columns, so that an index finds each object."""
    names = {column.name for column in cls.key}
    return any(names == set(unique) for unique in cls.table.unique_keys) and not any(
        column.type.kind is Kind.OTHER for column in cls.key
    )


def _is_key(column: Column, i: int) -> str:
    """Return an SQL condition that is true if the row of the class has this key value."""
    ref = field("p", column)
    if column.type.kind is Kind.OTHER:
        # A cast of a text to such a type may fail, and its "=" may treat different texts as equal.
        return f'({key_value(column, ref)}) COLLATE "C" = k.k{i}'
    if column.type.kind in _TEXT_KINDS:
        # The first condition finds the row by index, the second one compares exactly.
        return f'{ref} = k.k{i} AND {ref}::text COLLATE "C" = k.k{i}::text'
    return f"{ref} = k.k{i}"


def _owned(column: Column, owner: Column, i: int) -> str:
    """Return an SQL condition that is true if the child's row belongs to this key. The condition
    compares as the foreign key does, whose "=" may treat different texts as equal.
    """
    ref = field("c", owner)
    if column.type.kind is not Kind.OTHER:
        key = f"k.k{i}"
        if column.type.kind in _TEXT_KINDS and owner.type.kind is not column.type.kind:
            key += "::bpchar" if owner.type.kind is Kind.FIXED else "::text"
        return f"{ref} = {key}"
    parent = field("p", column)
    if column.type.sql == owner.type.sql:
        # They are compared as records: these use the type's "=" even if it is not on the search
        # path.
        return (
            f"ROW({ref})::pg_catalog.record OPERATOR(pg_catalog.=) ROW({parent})::pg_catalog.record"
        )
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
    """Return SQL that converts the text of a key value to the column's type. The type has no length
    or precision, which would truncate the value.
    """
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


# --- the texts of keys that are bound
# --------------------------------------------------------------


def _numeric(text: str) -> str:
    whole, _, fraction = text.partition(".")
    if len(whole) > 131072 or len(fraction) > 16383:
        raise NoSuchValue
    return text


def _moment(convert: Callable[[str], str], text: str) -> str:
    moment = convert(text)
    # A special time, which the server accepts unchanged; the session's zone is UTC.
    if moment is text:
        return text
    if len(moment.partition(".")[2]) > 6:
        raise NoSuchValue
    return f"{moment}+00" if " " in moment else moment


# --- the walk over a class in a resync
# --------------------------------------------------------------


def _by_value(cls: ObjectClass) -> bool:
    return all(map(is_one_spelling, cls.key))


def _key_text(walk: Walk, refs: Sequence[str]) -> str:
    plain = [ref.replace("%%", "%") for ref in refs]
    return bindable(key_text(walk.cls.key, plain))


def _value(column: Column, text: str) -> str:
    """Return SQL that converts a text in a table_key to a key value."""
    if column.type.kind is Kind.BINARY:
        return f"pg_catalog.decode({text}, 'base64')"
    return f"CAST({text} AS {column.type.sql})"
