"""One PostgreSQL schema as a catalog, in four statements whatever the number of its tables (spec/xds.md 5, 6.2)."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

from sqlalchemy import Connection, Row, text

from eventlog.core.catalog import Catalog, Column, Database, ForeignKey, Table
from eventlog.core.values import ColumnType, Kind
from eventlog.sql.dialect import Dialect
from eventlog.sql.statements import by_relation, missing_schema, statements

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

_HEADER: Final = 4  # VARHDRSZ, which numeric's typmod has on top


def column_type(type_name: str | None, typmod: int, sql: str) -> ColumnType:
    """The column type of a base type (spec/xds.md 6.2, column PostgreSQL).

    ``type_name`` is ``pg_type.typname`` of a type of ``pg_catalog``, None for any other type; ``typmod`` as in
    ``pg_attribute.atttypmod``, -1 for none; ``sql`` the text of ``format_type``. Domains are to be resolved before.
    """
    kind, bits = _KINDS.get(type_name or "", (Kind.OTHER, 0))
    if kind is Kind.EXACT and typmod >= _HEADER and _scale(typmod) == 0:
        kind = Kind.INTEGER
    return ColumnType(kind, bits, sql)


def _scale(typmod: int) -> int:
    # Eleven bits, signed: scales from -1000 on are possible since PostgreSQL 15.
    return (((typmod - _HEADER) & 0x7FF) ^ 0x400) - 0x400


_SQL: Final = statements(__package__, "reflect.sql")
_QUESTIONS: Final = ("columns", "unique_keys", "foreign_keys", "partitions")


class PostgresCatalog(Dialect):
    """Tables, partitioned roots, views and materialized views."""

    def reflect(self, conn: Connection, schema: str | None) -> Database:
        row = conn.execute(text(_SQL["schema"]), {"schema": schema}).first()
        if row is None:
            raise missing_schema(schema)
        oid, name = row
        rows = {which: conn.execute(text(_SQL[which]), {"schema": oid}).all() for which in _QUESTIONS}
        names: dict[int, dict[int, str]] = defaultdict(dict)
        for row in rows["columns"]:
            names[row.relation][row.position] = row.column_name

        columns = by_relation(rows["columns"])
        unique_keys = by_relation(rows["unique_keys"])
        foreign_keys = by_relation(rows["foreign_keys"])
        return Database(
            dialect=self.name,
            schema=name,
            tables=tuple(
                _table(oid, of_table, names[relation], unique_keys[relation], foreign_keys[relation])
                for relation, of_table in columns.items()
            ),
            partitions={
                row.partition: row.root if row.root_schema == oid else f"{row.root_schema_name}.{row.root}"
                for row in rows["partitions"]
            },
        )

    def fingerprint(self, conn: Connection, catalog: Catalog) -> str:
        # What is watched may be a pattern, so a new table may be a class: the tables of the schema count too.
        parameters = {"schema": catalog.schema, "tables": list(catalog.log_names)}
        return str(conn.execute(text(_SQL["fingerprint"]), parameters).scalar_one())


def _table(
    schema: int, columns: list[Row[Any]], names: dict[int, str], unique: list[Row[Any]], foreign: list[Row[Any]]
) -> Table:
    first = columns[0]
    # A key over a virtual column, which reflect leaves out, cannot be: such columns are in no index.
    primary = next((row for row in unique if row.is_primary), None)
    return Table(
        name=first.table_name,
        kind="view" if first.kind in ("v", "m") else "table",
        columns=tuple(
            Column(row.column_name, column_type(row.type_name, row.typmod, row.sql), row.is_deterministic)
            for row in columns
            if row.column_name is not None
        ),
        primary_key=() if primary is None else tuple(names[position] for position in primary.positions),
        foreign_keys=tuple(
            ForeignKey(
                columns=tuple(names[position] for position in row.positions),
                table=row.ref_table if row.ref_schema == schema else f"{row.ref_schema_name}.{row.ref_table}",
                ref_columns=tuple(row.ref_columns),
            )
            for row in sorted(foreign, key=lambda row: row.positions[0])
        ),
        unique_keys=tuple(tuple(names[position] for position in row.positions) for row in unique if row.is_immediate),
        key_deferrable=primary is not None and not primary.is_immediate,
        partitioned=first.kind == "p",
    )
