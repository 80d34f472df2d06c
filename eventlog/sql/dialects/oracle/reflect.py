"""One Oracle schema as a catalog, in five statements whatever the number of its tables (spec/xds.md 5, 6.2)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection

from eventlog.core.catalog import Catalog, Column, Database, ForeignKey, Table
from eventlog.sql.dialects.oracle.session import chunks, fetch
from eventlog.sql.dialects.oracle.text import spelled
from eventlog.sql.dialects.oracle.types import column_type
from eventlog.sql.statements import missing_schema, statements

Rows = Sequence[tuple[Any, ...]]


def reflect(conn: Connection, schema: str | None) -> Database:
    """The tables and views of ``schema``, None = the connection's current schema.

    Columns of types without a text form are left out. A foreign key to a table of another schema names it
    ``schema.table``. Raises DatabaseError if the schema is missing.
    """
    name = None if schema is None else spelled(schema)
    schemas = fetch(conn, statements(__package__, "reflect.sql")["schema"], {"owner": name})
    if not schemas:
        raise missing_schema(name)
    owner = str(schemas[0][0])
    rows = {
        query: fetch(conn, statement, {"owner": owner})
        for query, statement in statements(__package__, "reflect.sql").items()
        if query != "schema"
    }
    return database(owner, rows["columns"], rows["keys"], rows["unique_indexes"], rows["foreign_keys"])


def database(owner: str, columns: Rows, keys: Rows, unique_indexes: Rows, foreign_keys: Rows) -> Database:
    """The catalog of a schema from the rows of the statements of reflect.sql."""
    by_table: defaultdict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for row in columns:
        by_table[row[0]].append(row)
    unique = _grouped(keys)
    indexes = _grouped(unique_indexes)
    foreign = _grouped(foreign_keys)
    tables = []
    for name, rows in by_table.items():
        present = _columns(rows)
        names = [column.name for column in present]
        # Keys may hold virtual columns and such of types without a text form, which are no columns here.
        of_table = _within(unique[name], 4, names)
        primary = next((key for key in of_table if key[0][2] == "P"), None)
        tables.append(
            Table(
                name=name,
                kind="view" if rows[0][1] == "view" else "table",
                columns=present,
                primary_key=() if primary is None else _names(primary, 4),
                foreign_keys=_foreign_keys(owner, _within(foreign[name], 4, names), names),
                unique_keys=tuple(
                    [_names(key, 4) for key in of_table if key[0][3] != "DEFERRABLE"]
                    + [_names(index, 2) for index in _within(indexes[name], 2, names)]
                ),
                key_deferrable=primary is not None and primary[0][3] == "DEFERRABLE",
                partitioned=rows[0][7] == "YES",
            )
        )
    return Database("oracle", owner, tuple(tables))


def fingerprint_statement(size: int) -> str:
    """SQL of a text that changes with the columns and keys of ``size`` tables: two hashes of all that tells of them."""
    names = ", ".join(f":t{n}" for n in range(size))
    return statements(__package__, "fingerprint.sql")["fingerprint"].replace("{tables}", names)


def fingerprint(conn: Connection, catalog: Catalog) -> str:
    """A text that is another one once a column or the key of a class's tables is; hashes of the data dictionary."""
    return "/".join(
        str(digest)
        for tables in chunks(sorted(catalog.log_names))
        for (digest,) in fetch(
            conn,
            fingerprint_statement(len(tables)),
            {"owner": catalog.schema, **{f"t{n}": name for n, name in enumerate(tables)}},
        )
    )


def _columns(rows: Rows) -> tuple[Column, ...]:
    columns = []
    for _, _, name, data_type, length, precision, scale, _ in rows:
        type_ = column_type(data_type, length, precision, scale)
        if type_ is not None:
            columns.append(Column(name, type_))
    return tuple(columns)


def _grouped(rows: Rows) -> defaultdict[str, list[list[tuple[Any, ...]]]]:
    """Rows by table, and by the key that they are parts of: the first two fields."""
    by_table: defaultdict[str, list[list[tuple[Any, ...]]]] = defaultdict(list)
    last = None
    for row in rows:
        if row[:2] != last:
            by_table[row[0]].append([])
            last = row[:2]
        by_table[row[0]][-1].append(row)
    return by_table


def _within(keys: Sequence[Rows], field: int, names: Collection[str]) -> list[Rows]:
    """The keys whose columns are all among the names."""
    return [key for key in keys if all(name in names for name in _names(key, field))]


def _names(rows: Rows, field: int) -> tuple[str, ...]:
    return tuple(row[field] for row in rows)


def _foreign_keys(owner: str, keys: Sequence[Rows], order: Sequence[str]) -> tuple[ForeignKey, ...]:
    foreign = [
        ForeignKey(
            columns=_names(rows, 4),
            table=rows[0][3] if rows[0][2] == owner else f"{rows[0][2]}.{rows[0][3]}",
            ref_columns=_names(rows, 5),
        )
        for rows in keys
    ]
    return tuple(sorted(foreign, key=lambda key: order.index(key.columns[0])))
