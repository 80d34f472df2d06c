"""What is declared to be watched, and what its declarations leave out (spec/triggers.md 1)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from eventlog.catalog import Database, Table, match_name
from eventlog.errors import TriggerError
from eventlog.model import EventType

Style = Literal["field", "remove_all", "field_query_back", "row_query_back"]
Capture = Literal["row", "statement"]

INSERT_TYPES: Final[Mapping[Style, EventType]] = {
    "field": EventType.INSERT_FIELD,
    "remove_all": EventType.INSERT_FIELD,
    "field_query_back": EventType.INSERT_FIELD_QUERY_BACK,
    "row_query_back": EventType.INSERT_ROW_QUERY_BACK,
}
UPDATE_TYPES: Final[Mapping[Style, EventType]] = {
    "field": EventType.UPDATE_FIELD,
    "remove_all": EventType.UPDATE_FIELD_REMOVE_ALL,
    "field_query_back": EventType.UPDATE_FIELD_QUERY_BACK,
    "row_query_back": EventType.UPDATE_ROW_QUERY_BACK,
}


@dataclass(frozen=True, slots=True)
class Watch:
    """A class whose changes are to be logged (spec/triggers.md 1, 3).

    ``table``: the table, or the view, which needs ``base``: base table -> its columns -> the view's columns. A base
    table of another schema is named ``schema.table``. ``columns``: the attributes that are logged, None = all;
    ``exclude``: attributes that are not. Child attributes are named ``child.column``. Names match exactly, else without
    case if one matches. ``always``: also what a replication applies. ``lob_values``: LOBs by value, in databases where
    a type counts as one; ``lob_always``: such a column as read back whenever another one of its row changes, since a
    write through a locator fires no trigger (spec/triggers.md 6.1).
    """

    table: str
    style: Style = "field"
    capture: Capture = "row"
    columns: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    base: Mapping[str, Mapping[str, str]] | None = None
    always: bool = False
    lob_values: bool = False
    lob_always: bool = False


def exclusions(
    database: Database, watches: Iterable[Watch], tables: Collection[str] | None = None
) -> dict[str, tuple[str, ...]]:
    """Columns by table that are no attributes because of the watches: ``exclude`` of ``catalog.build_catalog``.

    A column of a child table stands under the child table's name. ``tables`` as in ``build_catalog``: the classes,
    None = all tables with a key. Raises TriggerError for a name that is no attribute of the class and for a key column.
    """
    present = {table.name: table for table in database.tables}
    excluded: dict[str, set[str]] = {}
    for watch in watches:
        found = match_name(watch.table, present)
        if found is None:
            continue
        names = {column.name: (found, column.name) for column in present[found].columns}
        for table in database.tables:
            if not (table.primary_key if tables is None else match_name(table.name, tables)):
                names |= {f"{table.name}.{value}": (table.name, value) for value in _value_columns(table, found)}
        gone = _named(watch, "exclude", watch.exclude, names)
        keys = _key_of(present[found])
        for _, key in sorted(gone & {(found, key) for key in keys}):
            raise TriggerError(f"watch {watch.table}, exclude: {key!r} is a key column; every row needs its key")
        if watch.columns is not None:
            kept = _named(watch, "columns", watch.columns, names)
            gone |= set(names.values()) - kept - {(found, key) for key in keys}
        for owner, column in gone:
            excluded.setdefault(owner, set()).add(column)
    return {owner: tuple(sorted(columns)) for owner, columns in sorted(excluded.items())}


def _key_of(table: Table) -> frozenset[str]:
    """The names of the columns that are a key (spec/xds.md 5)."""
    if table.kind == "view":
        return frozenset(column.name for column in table.columns if column.name[:3].casefold() == "pk_")
    return frozenset(table.primary_key)


def _value_columns(child: Table, owner: str) -> tuple[str, ...]:
    """The value column of a child table of ``owner``; none if it is no child table (spec/xds.md 5)."""
    if not child.foreign_keys or child.foreign_keys[0].table != owner:
        return ()
    values = tuple(column.name for column in child.columns if column.name not in child.foreign_keys[0].columns)
    return values if len(values) == 1 else ()


def _named(
    watch: Watch, option: str, names: Iterable[str], known: Mapping[str, tuple[str, str]]
) -> set[tuple[str, str]]:
    found = set()
    for name in names:
        match = match_name(name, known)
        if match is None:
            raise TriggerError(
                f"watch {watch.table}, {option}: {name!r} is no attribute of the class; it has {', '.join(known)}"
            )
        found.add(known[match])
    return found
