"""The application's tables in a SQLite file: the catalogue, objects by their keys, and the keys
after a given key.

The catalogue is read in three statements, whatever the number of tables (spec/xds.md 5, 6.2).
Current rows (spec/event-log.md 7.2, spec/xds.md 4.3) are read by one statement for the class and
one for each child attribute, for up to a thousand keys at once::

    WITH k (n, k0, k1) AS (VALUES (0, ?, ?), (1, ?, ?))
    SELECT k.n, CAST(p."fname" AS TEXT)
    FROM k CROSS JOIN "usr" AS p ON p."id" = k.k0 AND p."branch" = k.k1
         AND p."branch" COLLATE BINARY = k.k1

The keys are bound as texts (numbers as numbers, binary values as bytes) and get the affinity of the
column that they are compared with, so that the key's index can be used.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from sqlalchemy import Connection, Row
from sqlalchemy.exc import DBAPIError

from eventlog.core.catalog import ChildTable, Column, ForeignKey, ObjectClass, Table, match_name
from eventlog.core.values import ColumnType, Kind, ValueOptions, converter
from eventlog.errors import BadValue
from eventlog.sql.dialects.sqlite.text import key_text, value_text, with_strict_names
from eventlog.sql.dialects.stepwise import StepwiseDialect
from eventlog.sql.port.log_operations import Walk
from eventlog.sql.port.sql_files import (
    PlainRows,
    equal,
    fetch,
    field,
    fields,
    grouped,
    quote_identifier,
    source_of,
)


class SQLiteObjects(StepwiseDialect):
    """The tables and views of the file. SQLite has no schemas, so ``schema`` is None. Tables of
    attached files are left out.

    A walk over a table is ordered by the values of its key. A walk over a view, in which several
    rows may have one key, is ordered by the canonical text of the key.
    """

    # Objects by their keys, and keys after the key reached

    walks_views_by_text = True

    def strict(self, sql: str) -> str:
        return with_strict_names(sql)

    def key_column_reader(self, column: Column) -> Callable[[str], object]:
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

    def behind(self, walk: Walk) -> str:
        if walk.cls.is_view:
            return f"{self.walked(walk, self.walk_key(walk))} > :position"
        return super().behind(walk)

    def walked(self, walk: Walk, refs: Sequence[str]) -> str:
        return key_text(walk.cls.key, refs)


# --- the catalogue --------------------------------------------------------------------------------

_RULES: Final = (
    (("BOOL",), Kind.BOOLEAN, 0),
    (("DATETIME", "TIMESTAMP"), Kind.TIMESTAMP, 0),
    (("DATE",), Kind.DATE, 0),
    (("TIME",), Kind.TIME, 0),
    (("INT",), Kind.INTEGER, 64),
    (("CHAR", "CLOB", "TEXT"), Kind.CHARACTER, 0),
    (("BLOB",), Kind.BINARY, 0),
    (("REAL", "FLOA", "DOUB"), Kind.APPROXIMATE, 64),
)

_NAMES: Final = re.compile(r"\b(?:JSON|UUID|ANY)\b")
"""The names of text types, as SQLAlchemy declares them.

ANY is a type of STRICT tables.
"""

_WHOLE: Final = re.compile(r"\b(?:DECIMAL|NUMERIC)\s*\(\s*[0-9]+\s*(?:,\s*[+-]?0+\s*)?\)")
"""Matches a type with a scale of 0, or with only a precision."""


@lru_cache(1024)
def column_type(declared: str) -> ColumnType:
    """Return the column type of a declared type, such as ``VARCHAR(40)``.

    An empty type is binary. JSON, UUID and ANY are text. DECIMAL and NUMERIC with scale 0 or with
    only a precision are integers without a range. A type that matches no rule is an exact number.
    """
    upper = declared.upper()
    if not upper.strip():
        return ColumnType(Kind.BINARY, 0, "")
    for words, kind, bits in _RULES:
        if any(word in upper for word in words):
            return ColumnType(kind, bits, declared)
    if _NAMES.search(upper):
        return ColumnType(Kind.CHARACTER, 0, declared)
    if _WHOLE.search(upper):
        return ColumnType(Kind.INTEGER, 0, declared)
    return ColumnType(Kind.EXACT, 0, declared)


_KNOWN: Final = frozenset(
    {
        *(
            "INT",
            "INTEGER",
            "TINYINT",
            "SMALLINT",
            "MEDIUMINT",
            "BIGINT",
            "UNSIGNED",
            "BIG",
            "INT2",
            "INT4",
            "INT8",
        ),
        *("CHARACTER", "VARCHAR", "VARYING", "NCHAR", "NATIVE", "NVARCHAR", "CHAR", "CLOB"),
        *("TEXT", "TINYTEXT", "MEDIUMTEXT", "LONGTEXT", "JSON", "UUID", "ANY", "BLOB"),
        *("REAL", "DOUBLE", "PRECISION", "FLOAT", "NUMERIC", "DECIMAL", "BOOL", "BOOLEAN"),
        *("DATE", "DATETIME", "TIME", "TIMESTAMP", "WITH", "WITHOUT", "ZONE"),
    }
)
"""The words of declared types whose meaning is certain."""

_TAKEN_FOR: Final[Mapping[Kind, str]] = {
    Kind.BOOLEAN: "a boolean",
    Kind.TIMESTAMP: "a time with its date",
    Kind.DATE: "a date",
    Kind.TIME: "a time of day",
    Kind.INTEGER: "an integer",
    Kind.CHARACTER: "text",
    Kind.BINARY: "binary",
    Kind.APPROXIMATE: "a floating point number",
    Kind.EXACT: "an exact number",
}


def guessed_type(column: Column) -> str | None:
    """Return, in words, the kind of value that is assumed for a column whose declared type is
    unknown; None if the type is known.
    """
    words = re.findall(r"\w+", re.sub(r"\(.*?\)", " ", column.type.sql.upper()))
    return None if _KNOWN.issuperset(words) else _TAKEN_FOR[column.type.kind]


STORED: Final = (0, 3)
"""The values of ``hidden`` for ordinary columns and for stored generated columns."""


def table_of(
    name: str,
    columns: list[Row[Any]],
    keys: Mapping[str, tuple[str, ...]],
    unique: list[Row[Any]],
    foreign: list[Row[Any]],
) -> Table:
    collated = {row.name for row in unique if row.coll not in (None, "BINARY")}
    positions = {row.name: position for position, row in enumerate(columns)}
    indexes = grouped((row.index_name, row.name) for row in unique)
    unique_keys = {tuple(names) for names in indexes.values() if None not in names}
    if keys[name]:
        unique_keys.add(keys[name])
    return Table(
        name=name,
        kind="view" if columns[0].kind == "view" else "table",
        columns=tuple(_column(row, collated) for row in columns if row.hidden in STORED),
        primary_key=keys[name],
        foreign_keys=tuple(
            sorted(_foreign_keys(foreign, keys), key=lambda key: positions[key.columns[0]])
        ),
        unique_keys=tuple(sorted(unique_keys)),
    )


def _column(row: Row[Any], collated: set[str]) -> Column:
    type_ = column_type(row.type)
    return Column(row.name, type_, type_.kind is not Kind.CHARACTER or row.name not in collated)


def _foreign_keys(
    rows: Iterable[Row[Any]], keys: Mapping[str, tuple[str, ...]]
) -> Iterable[ForeignKey]:
    for _, of_key in groupby(rows, attrgetter("id")):
        pairs = list(of_key)
        referred = pairs[0].ref_table
        table = match_name(referred, keys) or referred
        columns = tuple(row.column_name for row in pairs)
        named = tuple(row.ref_column for row in pairs)
        ref_columns = keys.get(table, ()) if None in named else named
        if len(ref_columns) == len(columns):
            yield ForeignKey(columns, table, ref_columns)


# --- the statement that reads objects -------------------------------------------------------------


def lacks_collation(error: DBAPIError) -> bool:
    """Return True if a statement was refused because it compares by a collation that only the
    application registers.
    """
    return "no such collation sequence" in str(error.orig)


def fetch_objects(
    conn: Connection,
    cls: ObjectClass,
    child: ChildTable | None,
    columns: tuple[Column, ...],
    number: int,
    binds: tuple[Any, ...],
) -> PlainRows:
    """Return the rows of ``_statement``. Raises BadValue for child rows whose owner only the
    application can determine.
    """
    try:
        return fetch(conn, _statement(cls, child, columns, number), binds)
    except DBAPIError as error:
        if not lacks_collation(error):
            raise
        if child is not None:
            raise BadValue(
                f"the foreign key from {child.table.name} to {cls.name} uses a collation that only "
                f"the application registers ({error.orig})"
            ) from error
        # The key is still compared exactly, but without its index.
        return fetch(conn, _statement(cls, child, columns, number, by_scan=True), binds)


@lru_cache(maxsize=512)
def _statement(
    cls: ObjectClass,
    child: ChildTable | None,
    columns: tuple[Column, ...],
    number: int,
    *,
    by_scan: bool = False,
) -> str:
    table = quote_identifier(cls.table.name)
    # Without the keys SQLite would read the whole of a sub-select with a UNION.
    places = ", ".join(f"k{i}" for i in range(len(cls.key)))
    among = f"IN (SELECT {places} FROM k)"  # noqa: S608
    source = source_of(
        cls, lambda one: quote_identifier(one.name), columns, quote_identifier, among
    )
    if by_scan:
        selected = ", ".join(["k.n", *(_selected("p", column) for column in columns)])
        is_key = " AND ".join(
            f"k.k{i} = {field('p', column)} COLLATE BINARY" for i, column in enumerate(cls.key)
        )
        scanned = source_of(
            cls, lambda one: f"{quote_identifier(one.name)} NOT INDEXED", columns, quote_identifier
        )
        rows = f"{table} AS p NOT INDEXED" if source == table else f"{scanned} AS p"
        return with_strict_names(
            f"{_keys(cls, number)}\nSELECT {selected}\nFROM {rows}\nCROSS JOIN k ON {is_key}"
        )
    row, join = "p", ""
    if child is not None:
        # The owner's column comes first, since a foreign key compares by the owner's collation.
        owners = [f"c.{quote_identifier(owner)}" for owner in child.owner_columns]
        owned = equal(fields("p", cls.key), owners)
        row, join = "c", f"\nJOIN {quote_identifier(child.table.name)} AS c ON {owned}"
    selected = ", ".join(["k.n", *(_selected(row, column) for column in columns)])
    is_key = " AND ".join(_is_key(column, i) for i, column in enumerate(cls.key))
    # CROSS JOIN fixes the order of the tables: from the keys to the rows, by the key's index.
    return with_strict_names(
        f"{_keys(cls, number)}\nSELECT {selected}\nFROM k\n"
        f"CROSS JOIN {source} AS p ON {is_key}{join}"
    )


def _keys(cls: ObjectClass, number: int) -> str:
    columns = ", ".join(f"k{i}" for i in range(len(cls.key)))
    marks = ", ".join("?" * len(cls.key))
    return (
        f"WITH k (n, {columns}) AS (VALUES {', '.join(f'({n}, {marks})' for n in range(number))})"
    )


def _is_key(column: Column, i: int) -> str:
    ref = field("p", column)
    if column.type.kind in (Kind.CHARACTER, Kind.FIXED) and not column.deterministic:
        # The first condition finds the row by index, the second one compares exactly.
        return f"{ref} = k.k{i} AND {ref} COLLATE BINARY = k.k{i}"
    return f"{ref} = k.k{i}"


def _selected(row: str, column: Column) -> str:
    ref = field(row, column)
    # A binary column may also contain numbers and texts.
    return f"CAST({ref} AS BLOB)" if column.type.kind is Kind.BINARY else value_text(column, ref)
