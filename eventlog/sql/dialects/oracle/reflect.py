"""One Oracle schema as a catalog, in five statements whatever the number of its tables (spec/xds.md 5, 6.2)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import Connection

from eventlog.core.catalog import Catalog, Column, Database, ForeignKey, Table
from eventlog.sql.dialect import Dialect
from eventlog.sql.dialects.oracle.session import chunks, fetch
from eventlog.sql.dialects.oracle.text import spelled
from eventlog.sql.dialects.oracle.types import column_type
from eventlog.sql.statements import missing_schema, statements

Rows = Sequence[tuple[Any, ...]]

_SQL: Final = statements(__package__, "reflect.sql")
_QUESTIONS: Final = ("columns", "keys", "unique_indexes", "foreign_keys")


class OracleCatalog(Dialect):
    """Columns of types without a text form are left out."""

    def reflect(self, conn: Connection, schema: str | None) -> Database:
        name = None if schema is None else spelled(schema)
        schemas = fetch(conn, _SQL["schema"], {"owner": name})
        if not schemas:
            raise missing_schema(name)
        owner = str(schemas[0][0])
        return database(owner, **{which: fetch(conn, _SQL[which], {"owner": owner}) for which in _QUESTIONS})

    def fingerprint(self, conn: Connection, catalog: Catalog) -> str:
        # Hashes of the data dictionary.
        return "/".join(
            str(digest)
            for tables in chunks(sorted(catalog.log_names))
            for (digest,) in fetch(
                conn,
                fingerprint_statement(len(tables)),
                {"owner": catalog.schema, **{f"t{n}": name for n, name in enumerate(tables)}},
            )
        )


def fingerprint_statement(size: int) -> str:
    """SQL of a text that changes with the columns and keys of ``size`` tables: two hashes of all that tells of them."""
    names = ", ".join(f":t{n}" for n in range(size))
    return _SQL["fingerprint"].replace("{tables}", names)


def database(owner: str, columns: Rows, keys: Rows, unique_indexes: Rows, foreign_keys: Rows) -> Database:
    """The catalog of a schema from the rows of the statements of reflect.sql."""
    unique, indexes, foreign = map(_grouped, (keys, unique_indexes, foreign_keys))
    tables = []
    for name, of_table in groupby(columns, itemgetter(0)):
        rows = list(of_table)
        present = tuple(
            Column(column, type_)
            for _, _, column, data_type, length, precision, scale, _ in rows
            if (type_ := column_type(data_type, length, precision, scale)) is not None
        )
        names = [column.name for column in present]
        # Keys may hold virtual columns and such of types without a text form, which are no columns here.
        constraints = _within(unique[name], 4, names)
        primary = next((key for key in constraints if key[0][2] == "P"), None)
        tables.append(
            Table(
                name=name,
                kind="view" if rows[0][1] == "view" else "table",
                columns=present,
                primary_key=() if primary is None else _names(primary, 4),
                foreign_keys=_foreign_keys(owner, _within(foreign[name], 4, names), names),
                unique_keys=tuple(
                    [_names(key, 4) for key in constraints if key[0][3] != "DEFERRABLE"]
                    + [_names(index, 2) for index in _within(indexes[name], 2, names)]
                ),
                key_deferrable=primary is not None and primary[0][3] == "DEFERRABLE",
                partitioned=rows[0][7] == "YES",
            )
        )
    return Database("oracle", owner, tuple(tables))


def _grouped(rows: Rows) -> defaultdict[str, list[Rows]]:
    """Rows by table, and by the key that they are parts of: the first two fields."""
    by_table: defaultdict[str, list[Rows]] = defaultdict(list)
    for (table, _), of_key in groupby(rows, itemgetter(0, 1)):
        by_table[table].append(list(of_key))
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
