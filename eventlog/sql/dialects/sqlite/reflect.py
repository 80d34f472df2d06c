"""A SQLite database as a catalog, in three statements whatever the number of its tables (spec/xds.md 5, 6.2)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from sqlalchemy import Connection, Row

from eventlog.core.catalog import Catalog, Column, Database, ForeignKey, Table, match_name
from eventlog.core.values import ColumnType, Kind
from eventlog.sql.dialect import Dialect
from eventlog.sql.statements import by_relation, statements

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

_WHOLE: Final = re.compile(r"\b(?:DECIMAL|NUMERIC)\s*\(\s*[0-9]+\s*(?:,\s*[+-]?0+\s*)?\)")
"""A scale of 0, or a precision alone."""


def column_type(declared: str) -> ColumnType:
    """The column type of a declared type, such as ``VARCHAR(40)``; none at all is binary, the rest exact.

    DECIMAL and NUMERIC of scale 0 or with a precision alone are integers without a range.
    """
    upper = declared.upper()
    if not upper.strip():
        return ColumnType(Kind.BINARY, 0, "")
    for words, kind, bits in _RULES:
        if any(word in upper for word in words):
            return ColumnType(kind, bits, declared)
    if _WHOLE.search(upper):
        return ColumnType(Kind.INTEGER, 0, declared)
    return ColumnType(Kind.EXACT, 0, declared)


_STORED: Final = (0, 3)
"""What ``hidden`` is of ordinary columns, and of generated ones that are stored."""


class SQLiteCatalog(Dialect):
    """The tables and views of the file; it has no schemas, so ``schema`` is None. Tables of attached files are not."""

    def reflect(self, conn: Connection, schema: str | None) -> Database:
        by_table = {
            name: by_relation(conn.exec_driver_sql(statement).all())
            for name, statement in statements(__package__, "reflect.sql").items()
        }
        keys = {
            name: tuple(row.name for row in sorted(columns, key=lambda row: row.pk) if row.pk)
            for name, columns in by_table["columns"].items()
        }
        tables = tuple(
            _table(name, columns, keys, by_table["unique_keys"][name], by_table["foreign_keys"][name])
            for name, columns in by_table["columns"].items()
        )
        return Database(dialect=self.name, schema=None, tables=tables)

    def fingerprint(self, conn: Connection, catalog: Catalog) -> str:
        # A number that goes up with every change of the schema.
        return str(conn.exec_driver_sql("PRAGMA main.schema_version").scalar_one())


def _table(
    name: str,
    columns: list[Row[Any]],
    keys: Mapping[str, tuple[str, ...]],
    unique: list[Row[Any]],
    foreign: list[Row[Any]],
) -> Table:
    collated = {row.name for row in unique if row.coll not in (None, "BINARY")}
    positions = {row.name: position for position, row in enumerate(columns)}
    indexes: dict[str, list[str | None]] = {}
    for row in unique:
        indexes.setdefault(row.index_name, []).append(row.name)
    unique_keys = {tuple(names) for names in indexes.values() if None not in names}
    if keys[name]:
        unique_keys.add(keys[name])
    return Table(
        name=name,
        kind="view" if columns[0].kind == "view" else "table",
        columns=tuple(_column(row, collated) for row in columns if row.hidden in _STORED),
        primary_key=keys[name],
        foreign_keys=tuple(sorted(_foreign_keys(foreign, keys), key=lambda key: positions[key.columns[0]])),
        unique_keys=tuple(sorted(unique_keys)),  # type: ignore[arg-type]
    )


def _column(row: Row[Any], collated: set[str]) -> Column:
    type_ = column_type(row.type)
    return Column(row.name, type_, type_.kind is not Kind.CHARACTER or row.name not in collated)


def _foreign_keys(rows: Iterable[Row[Any]], keys: Mapping[str, tuple[str, ...]]) -> Iterable[ForeignKey]:
    for _, of_key in groupby(rows, attrgetter("id")):
        pairs = list(of_key)
        referred = pairs[0].ref_table
        table = match_name(referred, keys) or referred
        columns = tuple(row.column_name for row in pairs)
        named = tuple(row.ref_column for row in pairs)
        ref_columns = keys.get(table, ()) if None in named else named
        if len(ref_columns) == len(columns):
            yield ForeignKey(columns, table, ref_columns)
