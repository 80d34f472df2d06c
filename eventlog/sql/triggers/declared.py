"""The declarations of triggers: which rows the tables of watched classes log (spec/triggers.md 1,
2, 3).

This module contains no SQL text: a dialect renders ``ClassTriggers`` and ``ChildTriggers`` to SQL.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, NamedTuple

from eventlog.core.catalog import (
    Catalog,
    Column,
    Database,
    ForeignKey,
    MainTable,
    ObjectClass,
    Table,
    match_name,
)
from eventlog.core.catalog.builder import missing_table
from eventlog.core.options import STYLES
from eventlog.errors import EventlogError, TriggerError, first_of
from eventlog.model import EventType
from eventlog.sql.log_table import split_name
from eventlog.sql.triggers.watch import (
    LOGS_VALUES,
    WatchedTable,
    excluded_columns,
)

TableName = tuple[str, str]
"""A schema and a table. The schema is empty if the database has no schemas, or if it is the
session's current schema.
"""

_BaseTable = tuple[Table, str | None]
"""A table beneath a view, and its schema."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Declared:
    """The declaration for one table: which class the logged rows belong to, and by which key. The
    columns of the key are in key order.

    ``names`` maps columns to their names in the log if the names differ; ``schema`` is the schema
    of the table, None = the schema of the class. ``refusing`` are further columns because of which
    the database may refuse a row, besides the columns of the table's keys and foreign keys.
    """

    watch: WatchedTable
    class_name: str
    table: Table
    key: tuple[Column, ...]
    names: Mapping[str, str] = field(default_factory=dict)
    schema: str | None = None
    refusing: tuple[str, ...] = ()

    @property
    def log_key(self) -> tuple[Column, ...]:
        """The columns of ``key`` under their names in the log."""
        return tuple(
            Column(self.names.get(column.name, column.name), column.type, column.deterministic)
            for column in self.key
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ClassTriggers(_Declared):
    """The triggers of a class's own table, or of a base table whose rows are objects of a view.

    Without ``columns``, an INSERT is logged as one row of type 5.
    """

    columns: tuple[Column, ...]
    """The logged non-key columns."""
    insert_type: EventType
    """The event type of INSERT."""
    update_type: EventType
    """The event type of UPDATE."""
    decides: bool = False
    """True if the table only determines whether an object is in the view. Its columns are watched
    for changes, but not logged.
    """

    deciding: frozenset[str] = frozenset()
    """The names in the log of the columns that the class does not have. They are columns of a
    view's base table that only decide which objects the view has.
    """

    @property
    def log_names(self) -> dict[str, str]:
        """The name in the log of each of ``columns``."""
        return {column.name: self.names.get(column.name, column.name) for column in self.columns}

    def logged_columns(self) -> dict[str, str]:
        """Return the columns of the table that the triggers are compiled for, name -> type."""
        return _sql_types(self.table, (*self.key, *self.columns))

    @property
    def keys_may_shift(self) -> bool:
        """True if several rows may exchange their keys within one statement
        (spec/triggers.md 7.1).
        """
        return self.may_repeat and not self.decides

    @property
    def is_nullable(self) -> bool:
        """True if rows without a key are possible. Rows without a key are not objects."""
        return not {column.name for column in self.key} <= set(self.table.primary_key)

    @property
    def may_repeat(self) -> bool:
        """True if two rows may have the same key, at least until the constraint is checked."""
        return not _is_unique(self.table, self.key)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ChildTriggers(_Declared):
    """The triggers of a child table.

    The rows that they log have the class and the key of the owner, and are for ``attribute``.
    """

    owner: Table
    owner_columns: tuple[Column, ...]
    """The columns of the child table that refer to the owner's ``key``, in the order of the key.
    ``names`` maps the key's columns to their names in the log.
    """
    column: Column
    attribute: str
    event_type: EventType
    """2 = the logged row contains the value, 8 = the value is read back."""
    owner_schema: str | None = None
    """The schema of the owner, None = the schema of the class."""

    @property
    def by_value(self) -> bool:
        """True if the logged rows contain the values (``event_type`` 2)."""
        return self.event_type is EventType.UPDATE_FIELD

    def read_back_unless(self, is_loggable: bool) -> ChildTriggers:
        """Return these triggers; if the database cannot log the values of ``column``
        (``is_loggable``), return triggers that log query-back rows.
        """
        return self if is_loggable else replace(self, event_type=EventType.UPDATE_FIELD_QUERY_BACK)

    @property
    def own_key(self) -> tuple[Column, ...]:
        """The columns of ``log_key`` with the types of ``owner_columns``, which are columns of the
        child table.
        """
        pairs = zip(self.log_key, self.owner_columns, strict=True)
        return tuple(Column(key.name, column.type, column.deterministic) for key, column in pairs)

    @property
    def refers_to_owner(self) -> bool:
        """True if a foreign key ensures that a row's owner exists."""
        return bool(self._keys_of_owner())

    @property
    def may_precede_owner(self) -> bool:
        """True if a transaction may insert a row before its owner (spec/triggers.md 2)."""
        keys = self._keys_of_owner()
        return bool(keys) and all(key.deferrable for key in keys)

    def _keys_of_owner(self) -> list[ForeignKey]:
        wanted = {
            (own.name, owner.name) for own, owner in zip(self.owner_columns, self.key, strict=True)
        }
        return [
            key
            for key in self.table.foreign_keys
            if key.table in (self.owner.name, f"{self.owner_schema}.{self.owner.name}")
            and set(zip(key.columns, key.ref_columns, strict=True)) == wanted
        ]

    def is_spelled_alike(self, is_one_spelling: Callable[[Column], bool]) -> bool:
        """Return True if owner and child write the same text for equal values of the key."""
        pairs = list(zip(self.key, self.owner_columns, strict=True))
        return all(
            a.type.kind is b.type.kind and is_one_spelling(a) and is_one_spelling(b)
            for a, b in pairs
        )

    def logged_columns(self) -> dict[str, str]:
        """Return the columns of the table that the triggers are compiled for, name -> type."""
        return _sql_types(self.table, (*self.owner_columns, self.column))


TableTriggers = ClassTriggers | ChildTriggers


def _sql_types(table: Table, shown: Collection[Column]) -> dict[str, str]:
    return {column.name: column.type.sql for column in table.columns if column in shown}


def early_tables(declared: Iterable[TableTriggers]) -> dict[str, None]:
    """Return the names of the child tables whose rows may be inserted before their owners."""
    return dict.fromkeys(
        one.table.name
        for one in declared
        if isinstance(one, ChildTriggers) and one.may_precede_owner
    )


def following(triggers: ClassTriggers, declared: Iterable[TableTriggers]) -> list[ChildTriggers]:
    """Return the child tables whose rows a foreign key may update when the owner's key changes."""
    return [
        one
        for one in declared
        if isinstance(one, ChildTriggers)
        and (one.class_name, one.owner.name) == (triggers.class_name, triggers.table.name)
        and any(key.table == one.owner.name for key in one.table.foreign_keys)
    ]


class DeclaredTriggers(NamedTuple):
    """The declared triggers of watches, table by table, and warnings about changes that these
    triggers do not capture.

    ``refused`` maps the table of an impossible watch to the reason.
    """

    tables: list[TableTriggers]
    warnings: list[str]
    refused: Mapping[str, EventlogError]

    @property
    def refusals(self) -> tuple[str, ...]:
        """The reasons of refused watches, in sentences."""
        return tuple(
            dict.fromkeys(
                one for error in self.refused.values() for one in error.refusals or (str(error),)
            )
        )


def declared_triggers(
    database: Database,
    catalog: Catalog,
    watches: Sequence[WatchedTable],
    reflect: Callable[[str | None], Database] | None = None,
    refused: Mapping[str, EventlogError] = MappingProxyType({}),
) -> DeclaredTriggers:
    """Return the triggers that watches declare, table by table.

    ``database`` is the schema of the classes, ``catalog`` its classes, built with or without
    ``excluded_columns``. ``reflect`` returns another schema, for base tables of views; None = the
    database has only one schema. ``refused`` are tables whose watches are left out, with the
    reason.
    """
    warnings: list[str] = []
    declared: list[TableTriggers] = []
    watches = [watch for watch in watches if match_name(watch.table, refused) is None]
    refused = dict(refused)
    tables = {table.name: table for table in database.tables}
    classes = {cls.name: cls for cls in catalog.classes}
    watched: set[str] = set()
    for watch in watches:
        try:
            table = _watched_table(watch, database, tables)
            if table.kind == "table" and not table.primary_key:
                warnings.append(
                    f"{table.name} has no primary key: it is not a class, and its changes are not "
                    "captured"
                )
                continue
            excluded = excluded_columns(database, watch, classes)
            cls = _class_of(watch, table.name, classes, watched)
            watched.add(cls.name)
            compiled = compile_watch(cls, watch, excluded, _base_tables(database, watch, reflect))
            declared += compiled
        except TriggerError as error:
            refused[watch.table] = error
            continue
        if cls.is_view:
            warnings += _warnings_of_view(cls, watch, compiled)
            fed = {name for columns in (watch.base or {}).values() for name in columns.values()}
            columns = (attribute.column.name for attribute in cls.attributes)
            warnings += (
                f"no base table feeds {cls.name}.{column}: its changes are not logged"
                for column in columns
                if match_name(column, fed) is None
            )
    return DeclaredTriggers(declared, warnings, refused)


LEAVES_VIEW: Final = "stays at the receiver"
"""Part of the warning about objects that leave a view."""


def _warnings_of_view(
    cls: ObjectClass, watch: WatchedTable, declared: Sequence[TableTriggers]
) -> Iterable[str]:
    """Yield warnings about rows of base tables that enter or leave the view, or are not in the view
    (spec/triggers.md 3).
    """
    resync = f"eventlog resync {shlex.quote(cls.name)}"
    if cls.main_table is None:
        yield (
            f"{cls.name} is a view: an object that leaves the view, but whose row remains in the "
            f"base table, {LEAVES_VIEW}. For example, an UPDATE of a column in the WHERE of the "
            f"view does this: run `{resync} --deletes` every day"
        )
        if watch.row_style in LOGS_VALUES:
            yield (
                f"{cls.name} is a view, and row_style = {watch.row_style} logs the values of all "
                "rows of its base tables, even of rows that are not in the view: use row_style = "
                "row_query_back if the receiver must not get them"
            )
        yield from _undecided_views(declared)
        return
    main = cls.main_table.table
    of_main = [one for one in declared if isinstance(one, ClassTriggers) and one.table is main]
    logged = {column.name for one in of_main for column in (*one.key, *one.columns)}
    others = [column.name for column in main.columns if column.name not in logged]
    if others:
        yield (
            f"{cls.name} is a view, and an UPDATE of {first_of(others, 5)} of {main.name} is not "
            "logged: an object that leaves or enters the view by such an UPDATE "
            f"{LEAVES_VIEW} as it was. Name the columns of the view's WHERE in membership, or run "
            f"`{resync} --deletes` every day"
        )
    if watch.row_style != "row_query_back" and not watch.membership:
        yield (
            f"{cls.name} is a view: an object that enters the view by an UPDATE is sent with the "
            "changed columns only. Name the columns of the view's WHERE in membership, or use "
            "row_style = row_query_back"
        )


def _watched_table(watch: WatchedTable, database: Database, tables: Mapping[str, Table]) -> Table:
    name = match_name(watch.table, tables)
    if name is not None:
        return tables[name]
    partition = match_name(watch.table, database.partitions)
    where = "" if database.schema is None else f" in schema {database.schema}"
    reason = (
        f"there is no such table{where}"
        if partition is None
        else missing_table(database, watch.table)
    )
    raise TriggerError(f"watch {watch.table}: {reason}")


def _class_of(
    watch: WatchedTable, name: str, classes: Mapping[str, ObjectClass], watched: Collection[str]
) -> ObjectClass:
    if name not in classes:
        raise TriggerError(f"watch {watch.table}: {name} is not a class; add it to `tables`")
    if name in watched:
        raise TriggerError(f"watch {watch.table}: {name} is watched twice")
    return classes[name]


def _base_tables(
    home: Database, watch: WatchedTable, reflect: Callable[[str | None], Database] | None
) -> dict[str, _BaseTable]:
    """Return the base tables of a view's watch, by their names in the watch. Raises TriggerError
    for a missing table.
    """
    tables = {}
    for name in watch.base or ():
        base = _base_table(home, name)
        if base is None and "." in name:
            schema, plain = split_name(name)
            if schema in (None, home.schema):
                base = _base_table(home, plain)
            elif reflect is not None:
                base = _base_table(reflect(schema), plain)
        if base is None:
            where = (
                f" in schema {home.schema}; a table of another schema must be named schema.table"
            )
            raise TriggerError(
                f"watch {watch.table}: there is no base table "
                f"{name!r}{'' if home.schema is None else where}"
            )
        tables[name] = base
    return tables


def _base_table(database: Database, name: str) -> _BaseTable | None:
    tables = {table.name: table for table in database.tables if table.kind == "table"}
    exact = match_name(name, tables)
    return None if exact is None else (tables[exact], database.schema)


# --- one watch ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Source:
    """A table, its key columns in the order of a class's key, and its columns for attributes.

    ``names`` maps columns to attributes. For a class's own table, ``names`` contains only the
    columns whose attributes have other names.
    """

    table: Table
    schema: str | None
    key: tuple[Column, ...]
    columns: tuple[Column, ...]
    names: Mapping[str, str]

    @property
    def makes_objects(self) -> bool:
        """True if each row of the table is one object, identified by a key of the table."""
        columns = {column.name for column in self.key}
        return _is_unique(self.table, self.key) or columns == set(self.table.primary_key)


def compile_watch(
    cls: ObjectClass,
    watch: WatchedTable,
    excluded: Mapping[str, Collection[str]] = MappingProxyType({}),
    base: Mapping[str, _BaseTable] = MappingProxyType({}),
) -> tuple[TableTriggers, ...]:
    """Return the triggers of a watch: the class's own table first, then its child tables
    (spec/triggers.md 1, 2, 3).

    ``excluded`` is the result of ``excluded_columns``, if the class was built without this result.
    ``base`` holds, for a view, the tables that ``watch.base`` names. Raises TriggerError for a view
    whose base tables do not make its objects.
    """
    places = {column.name: place for place, column in enumerate(cls.table.columns)}
    attributes = sorted(
        (
            a
            for a in (*cls.attributes, *cls.captured)
            if not a.is_key and a.column.name not in excluded.get(a.table, ())
        ),
        # Rows are in column order, and those of child tables come last.
        key=lambda a: places.get(a.column.name, 0) if a.table == cls.name else len(places),
    )
    if cls.is_view:
        return _view(cls, watch, {attribute.column.name for attribute in attributes}, base)
    if watch.base is not None:
        raise TriggerError(
            f"watch {watch.table}: {cls.name} is a table, and only a view can have `base`; remove "
            "it"
        )
    columns = tuple(
        attribute.column for attribute in attributes if attribute.table == cls.table.name
    )
    own = _Source(cls.table, None, cls.key, columns, {})
    triggers: list[TableTriggers] = [_object_source(cls, watch, own, columns)]
    for child in cls.children:
        if child.attribute in attributes:
            column = child.attribute.column
            key = tuple(map(child.table.column, child.owner_columns))
            source = _Source(child.table, None, key, (column,), {column.name: child.attribute.name})
            triggers.append(_value_source(cls, watch, source, column, own))
    return tuple(triggers)


def _is_unique(table: Table, columns: Iterable[Column]) -> bool:
    """Return True if a key over exactly these columns is unique at any time. A DEFERRABLE key is
    not unique at any time.
    """
    names = {column.name for column in columns}
    is_key = names == set(table.primary_key) and not table.key_deferrable
    return is_key or any(set(unique) == names for unique in table.unique_keys)


# --- views ----------------------------------------------------------------------------------------


def main_table(
    cls: ObjectClass, watch: WatchedTable, database: Database
) -> tuple[MainTable, Sequence[Column]] | None:
    """Return the base table whose rows are the objects of a view, and its columns that are logged
    only because ``membership`` names them. None if there is no such base table, or if a base table
    is in another schema than the view. Raises TriggerError for an unknown column in ``membership``.
    """
    try:
        tables = _base_tables(database, watch, None)
        sources = [
            _source(cls, watch, tables[name], names) for name, names in (watch.base or {}).items()
        ]
        owner = _owner(cls, watch, sources)
    except TriggerError:
        return None
    members, unmapped = _members(cls, watch, owner)
    return MainTable(owner.table, owner.key, members), unmapped


def _members(
    cls: ObjectClass, watch: WatchedTable, owner: _Source
) -> tuple[frozenset[str], tuple[Column, ...]]:
    """Return the columns that ``membership`` names, by their names in the log. Also return the
    named columns that the main table has, but that feed no column of the view.
    """
    of_view = [column.name for column in cls.table.columns]
    of_table = {column.name: column for column in owner.table.columns}
    members: set[str] = set()
    unmapped: list[Column] = []
    for name in watch.membership:
        found, own = match_name(name, of_view), match_name(name, of_table)
        if found is None and own is None:
            raise TriggerError(
                f"watch {watch.table}, membership: {name!r} is neither a column of the view nor of "
                f"{owner.table.name}, which have {', '.join(dict.fromkeys([*of_view, *of_table]))}"
            )
        if found is None and own is not None and own not in owner.names and owner.columns:
            unmapped.append(of_table[own])
        members.add(found or owner.names.get(own or "", own or ""))
    return frozenset(members), tuple(unmapped)


def _view(
    cls: ObjectClass, watch: WatchedTable, logged: Collection[str], base: Mapping[str, _BaseTable]
) -> tuple[TableTriggers, ...]:
    if not watch.base:
        raise TriggerError(
            f"watch {watch.table}: {cls.name} is a view: name its base tables with base = {{ table "
            '= { column = "view column", ... }, ... }}'
        )
    sources = [_source(cls, watch, base[name], columns) for name, columns in watch.base.items()]
    main = _owner(cls, watch, sources)
    _, unmapped = _members(cls, watch, main)
    owner = replace(
        main,
        columns=(*main.columns, *unmapped),
        names={**main.names, **{column.name: column.name for column in unmapped}},
    )
    logged = {*logged, *(column.name for column in unmapped)}
    triggers: list[TableTriggers] = []
    for source in (owner if one is main else one for one in sources):
        columns = tuple(column for column in source.columns if source.names[column.name] in logged)
        if not source.columns or source is owner:
            triggers.append(_object_source(cls, watch, source, columns, decides=not source.columns))
        else:
            triggers += (_value_source(cls, watch, source, column, owner) for column in columns)
    return tuple(triggers)


def _source(
    cls: ObjectClass, watch: WatchedTable, base: _BaseTable, columns: Mapping[str, str]
) -> _Source:
    table, schema = base
    where = f"watch {watch.table}, base {table.name}"
    by_name = {column.name: column for column in table.columns}
    order = {column.name: place for place, column in enumerate(cls.table.columns)}
    by_view: dict[str, Column] = {}
    for base_name, wanted in columns.items():
        name, view_name = match_name(base_name, by_name), match_name(wanted, order)
        if name is None:
            raise TriggerError(
                f"{where}: the table has no column {base_name!r}; it has {', '.join(by_name)}"
            )
        if view_name is None:
            raise TriggerError(
                f"{where}: the view has no column {wanted!r}; it has {', '.join(order)}"
            )
        if view_name in by_view:
            raise TriggerError(
                f"{where}: two columns are mapped to {view_name!r} of the view; map only one"
            )
        by_view[view_name] = by_name[name]
    missing = [column.name for column in cls.key if column.name not in by_view]
    if missing:
        raise TriggerError(
            f"{where}: no column is mapped to {missing[0]!r}. A base table must supply every key "
            f"column of the view: {', '.join(column.name for column in cls.key)}"
        )
    keys = {column.name for column in cls.key}
    return _Source(
        table=table,
        schema=schema,
        key=tuple(by_view[column.name] for column in cls.key),
        columns=tuple(
            by_view[name] for name in sorted(by_view, key=order.__getitem__) if name not in keys
        ),
        names={column.name: name for name, column in by_view.items()},
    )


def _owner(cls: ObjectClass, watch: WatchedTable, sources: Sequence[_Source]) -> _Source:
    """Return the base table whose rows are the view's objects. It is the first base table with a
    key and values, otherwise the first base table with a key.
    """
    able = [source for source in sources if source.makes_objects]
    for source in sorted(able, key=lambda source: not source.columns):
        return source
    raise TriggerError(
        f"watch {watch.table}: the key columns ({', '.join(column.name for column in cls.key)}) "
        "are not a primary or unique key of any base table, so no base table has one row per "
        "object of the view. Add a base table whose primary or unique key has these columns"
    )


def _object_source(
    cls: ObjectClass,
    watch: WatchedTable,
    source: _Source,
    columns: tuple[Column, ...],
    *,
    decides: bool = False,
) -> ClassTriggers:
    keys = {column.name for column in source.key}
    others = tuple(column for column in source.table.columns if column.name not in keys)
    logged = {source.names.get(column.name, column.name) for column in columns}
    deciding = {column.name for column in others} if decides else logged
    if not decides:
        deciding -= {column.name for column in cls.table.columns}
    return ClassTriggers(
        watch=watch,
        class_name=cls.name,
        table=source.table,
        key=source.key,
        columns=others if decides else columns,
        insert_type=STYLES[watch.row_style][0] if columns else EventType.INSERT_ROW_QUERY_BACK,
        update_type=EventType.UPDATE_ROW_QUERY_BACK if decides else STYLES[watch.row_style][1],
        names=source.names,
        schema=source.schema,
        decides=decides,
        deciding=frozenset(deciding),
    )


def _value_source(
    cls: ObjectClass, watch: WatchedTable, source: _Source, column: Column, owner: _Source
) -> ChildTriggers:
    by_value = _is_unique(source.table, (*source.key, column)) and watch.row_style in (
        "field",
        "remove_all",
    )
    return ChildTriggers(
        watch=watch,
        class_name=cls.name,
        table=source.table,
        owner=owner.table,
        key=owner.key,
        owner_columns=source.key,
        column=column,
        attribute=source.names[column.name],
        # If one of two equal rows is removed, the value stays. So the values are read back.
        event_type=EventType.UPDATE_FIELD if by_value else EventType.UPDATE_FIELD_QUERY_BACK,
        names=owner.names,
        schema=source.schema,
        owner_schema=owner.schema,
    )


# --- warnings for people --------------------------------------------------------------------------


_SECRET: Final = re.compile(
    "password|passwd|pwd|passphrase|crypt|secret|token|hash|salt", re.IGNORECASE
)
_NO_SECRET: Final = re.compile(
    "(content|file|path|image|document|commit|row|check|url)_?\\w*hash$"
    "|_(expires?|expiry|expiration|at|on|date|time|count|changed|required|length)$",
    re.IGNORECASE,
)
"""Hashes of what is no secret, and columns about a secret, such as ``password_reset_expire``."""


def looks_secret(name: str) -> bool:
    """Return True if a column's name looks like the name of a secret."""
    return _SECRET.search(name) is not None and _NO_SECRET.search(name) is None


def secret_names(triggers: TableTriggers) -> tuple[str, ...]:
    """Return the names of logged columns that look like secrets. The column's own name, or the name
    of the view's column, looks like a secret.
    """
    if isinstance(triggers, ChildTriggers):
        return (
            (triggers.column.name,)
            if looks_secret(triggers.column.name) or looks_secret(triggers.attribute)
            else ()
        )
    if triggers.decides:
        return ()
    named = [(column.name, triggers.names.get(column.name, "")) for column in triggers.columns]
    return tuple(name for name, other in named if looks_secret(name) or looks_secret(other))


def warnings_of(declared: Sequence[TableTriggers]) -> Iterable[str]:
    """Yield the warnings about the declared triggers that every database has in common."""
    for triggers in declared:
        for column in secret_names(triggers):
            where = f"{triggers.table.name}.{column}"
            yield (
                f"{where} looks like a secret and is logged in plain text: exclude it if it is not "
                "needed"
            )
        if isinstance(triggers, ChildTriggers) and not triggers.refers_to_owner:
            mapped = " and ".join(
                f"{triggers.table.name}.{column.name}" for column in triggers.owner_columns
            )
            yield (
                f"no foreign key joins {mapped} to {triggers.owner.name}: if a row has no owner "
                f"there, its changes are logged for an object of {triggers.class_name} that does "
                "not exist. Add the foreign key, or make sure that each row has its owner"
            )


def _undecided_views(declared: Sequence[TableTriggers]) -> Iterable[str]:
    """Yield warnings for a view if rows that are not in the view are logged and read back."""
    of_classes = [one for one in declared if isinstance(one, ClassTriggers)]
    for triggers in of_classes:
        for other in of_classes:
            if (
                triggers.decides
                and not other.decides
                and other.insert_type is EventType.INSERT_FIELD_QUERY_BACK
            ):
                yield (
                    f"{triggers.table.name} decides which rows are in {triggers.class_name}, but "
                    f"the style of its watch logs every row of {other.table.name}, even if it is "
                    "not in the view: use row_style = row_query_back"
                )
