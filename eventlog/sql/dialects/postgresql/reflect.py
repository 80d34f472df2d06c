"""One PostgreSQL schema as a catalog, in four statements whatever the number of its tables (spec/xds.md 5, 6.2)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Any

from sqlalchemy import Connection, Row, TextClause, text

from eventlog.core.catalog import Column, Database, ForeignKey, Table
from eventlog.errors import DatabaseError
from eventlog.sql.dialects.postgresql.types import column_type


def reflect(conn: Connection, schema: str | None) -> Database:
    """The tables and views of ``schema``, None = the connection's current schema.

    A foreign key to a table of another schema names it ``schema.table``. Raises DatabaseError if the schema is missing.
    """
    oid, name = _find_schema(conn, schema)
    rows = {which: conn.execute(statement, {"schema": oid}).all() for which, statement in _statements().items()}
    names: dict[int, dict[int, str]] = defaultdict(dict)
    for row in rows["columns"]:
        names[row.relation][row.position] = row.column_name

    columns = _by_relation(rows["columns"])
    unique_keys = _by_relation(rows["unique_keys"])
    foreign_keys = _by_relation(rows["foreign_keys"])
    return Database(
        dialect="postgresql",
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


def _find_schema(conn: Connection, schema: str | None) -> tuple[int, str]:
    found = conn.execute(
        text(
            "SELECT oid, nspname FROM pg_catalog.pg_namespace"
            " WHERE nspname = coalesce(CAST(:schema AS pg_catalog.text), current_schema())"
        ),
        {"schema": schema},
    ).first()
    if found is None:
        what = "the connection has no current schema" if schema is None else f"there is no schema {schema!r}"
        raise DatabaseError(f"{what} in this database; set schema_name to one that exists")
    return found.oid, found.nspname


def _by_relation(rows: Iterable[Row[Any]]) -> defaultdict[int, list[Row[Any]]]:
    grouped: defaultdict[int, list[Row[Any]]] = defaultdict(list)
    for row in rows:
        grouped[row.relation].append(row)
    return grouped


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


@cache
def _statements() -> dict[str, TextClause]:
    script = resources.files(__package__).joinpath("reflect.sql").read_text(encoding="utf-8")
    _, *parts = re.split(r"^-- name: (\w+)$", script, flags=re.MULTILINE)
    return {name: text(statement) for name, statement in zip(parts[::2], parts[1::2], strict=True)}
