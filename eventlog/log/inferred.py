"""The tables of a log whose catalogue nobody gives: what its rows name, all of it text."""

from __future__ import annotations

from collections.abc import Iterable

from eventlog.core import table_key
from eventlog.core.catalog import Column, Database, ForeignKey, Table
from eventlog.core.values import ColumnType, Kind, check_xml
from eventlog.errors import BadTableKey, BadXmlChar
from eventlog.model import LogRow

_TEXT = ColumnType(Kind.CHARACTER)


def inferred_database(rows: Iterable[LogRow], schema: str | None) -> Database:
    """Tables by table_name, key columns by the first table_key that can be read, columns by column_name.

    ``child.column`` is taken for the value of a child table, which is multi-valued (spec/xds.md 5).
    """
    keys: dict[str, tuple[str, ...]] = {}
    columns: dict[str, dict[str, str]] = {}
    for row in rows:
        name = row.table_name
        if not name or not _is_name(name):
            continue
        if name not in keys:
            try:
                key = tuple(part.name for part in table_key.parse(row.table_key))
            except BadTableKey:
                continue
            if not all(map(_is_name, key)):
                continue
            keys[name] = key
        if row.column_name and row.event_type in (1, 2, 3, 7, 8) and _is_name(row.column_name):
            columns.setdefault(name, {}).setdefault(row.column_name.casefold(), row.column_name)
    tables: list[Table] = []
    for name, key in keys.items():
        of_key = {column.casefold() for column in key}
        own = [column for folded, column in columns.get(name, {}).items() if folded not in of_key]
        of_children = [column for column in own if "." in column and column.partition(".")[0] not in keys]
        plain = [column for column in own if column not in of_children]
        tables.append(_table(name, (*key, *plain), key))
        tables += [_child(name, key, column) for column in of_children]
    return Database("", schema, tuple(tables))


def _is_name(text: str) -> bool:
    """Whether documents can carry it: a row with another name is bad by itself, and spoils no class."""
    try:
        check_xml(text)
    except BadXmlChar:
        return False
    return True


def _table(name: str, columns: Iterable[str], key: tuple[str, ...]) -> Table:
    return Table(name, "table", tuple(Column(column, _TEXT) for column in columns), key)


def _child(owner: str, key: tuple[str, ...], name: str) -> Table:
    table, _, column = name.partition(".")
    owner_columns = tuple(f"{owner}.{one}" for one in key)
    columns = tuple(Column(one, _TEXT) for one in (*owner_columns, column))
    return Table(table, "table", columns, (), (ForeignKey(owner_columns, owner, key),))
