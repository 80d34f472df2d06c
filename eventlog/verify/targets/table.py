"""Tables of a database as a target (spec/verify.md 4.1): one table per class, in any database that
eventlog supports. The values are read as the texts that a log would have, like the values of the
source.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Final

from sqlalchemy import Connection

from eventlog.changes.publishing import row_attributes
from eventlog.core import table_key
from eventlog.core.catalog import Attribute, Database, ObjectClass, Table, match_name
from eventlog.core.catalog.builder import build_catalog
from eventlog.core.options import NAMES, TEXT, TEXT_OBJECT, CheckedOptions, option, parse_options
from eventlog.core.values import ValueOptions
from eventlog.errors import BadTableKey, ConfigError, first_of
from eventlog.model import LOG_COLUMNS, EventType
from eventlog.sql.connect.connection import connect, describe, dialect_of, parse_url
from eventlog.sql.log_table import LogTable, split_name
from eventlog.sql.port.driver_errors import as_database_errors
from eventlog.sql.port.log_operations import KeyValues, RangeReader, ReadRange, Selection
from eventlog.sql.port.open_database import OpenDatabase
from eventlog.sql.port.open_log import OpenLog
from eventlog.verify.comparison import SEVERAL, SEVERAL_ROWS, RangeRow, StoredAs, TargetRow
from eventlog.verify.targets import KeyLists, Target

_VALUES: Final = ValueOptions("full", characters="unicode")
_NO_LOG: Final = LogTable(None, "eventlog", LOG_COLUMNS)
"""The name of a log for walks over tables: the target's database has no log."""


@dataclass(frozen=True, slots=True)
class TableMap(CheckedOptions):
    """The table and columns that have the objects of a class in a target database."""

    table: str | None = option(
        None,
        TEXT,
        "table or view, or schema.table; default: the name of the class",
        example="shop.item",
    )
    columns: Mapping[str, str] = option(
        {}, TEXT_OBJECT, "names of columns in the target, by the names in the source"
    )
    skip: tuple[str, ...] = option((), NAMES, "columns of the source that the target does not have")


def table_maps(content: Mapping[str, Any]) -> dict[str, TableMap]:
    """Return the maps of classes from the content of a file of ``--options``: its member
    ``tables``.

    Raises ConfigError.
    """
    tables = content.get("tables", {})
    if unknown := [name for name in content if name != "tables"]:
        raise ConfigError(
            f"--options: unknown member {unknown[0]!r}; write the maps of classes below [tables]"
        )
    if not isinstance(tables, Mapping):
        raise ConfigError("--options: `tables` must be an object with one member per class")
    return {
        str(name): parse_options(TableMap, one, f"the map of class {name}")
        for name, one in tables.items()
    }


@dataclass(slots=True)
class _ClassTable:
    """A table of the target with the rows of one class."""

    source: ObjectClass
    cls: ObjectClass
    """The table as a class of the target's database."""
    as_view: ObjectClass
    """The same class as a view, which may have several rows for one object. The table may also have
    several rows for one object, since the columns of the source's key need not be unique in the
    table.
    """
    schema: str | None
    names: Mapping[str, str]
    """The names of the target's columns by the names in the source, where the two differ."""
    attributes: Sequence[tuple[Attribute, Attribute]]
    """The attributes that are compared: each attribute of the source with its attribute of the
    target.
    """
    source_names: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.source_names = {there: here for here, there in self.names.items()}

    def target_key(self, key: str) -> str:
        """Return the target's canonical key for a canonical key of the source. Raises
        BadTableKey.
        """
        return self.cls.canonical_key(_renamed(key, self.names) if self.names else key)

    def source_key(self, key: str) -> str:
        """Return the source's canonical key for a canonical key of the target. A key that the
        source cannot have stays unchanged.
        """
        renamed = _renamed(key, self.source_names) if self.names else key
        try:
            return self.source.canonical_key(renamed)
        except BadTableKey:
            return renamed


def _renamed(key: str, names: Mapping[str, str]) -> str:
    return table_key.key_text(
        (names.get(part.name, part.name), part.value) for part in table_key.parse(key)
    )


class TableTarget(Target):
    """The tables of a database.

    Raises ConfigError for a URL of a database that is not supported, and DatabaseError if it cannot
    be reached.
    """

    is_pinned = False

    def __init__(self, url: str, maps: Mapping[str, TableMap]) -> None:
        self._maps = maps
        self._tables: dict[str, _ClassTable] = {}
        self._databases: dict[str | None, Database] = {}
        parsed = parse_url(url)
        self._place = describe(parsed)
        self._resources = ExitStack()
        engine = connect(url, secret="the URL of --target")  # noqa: S106 - the name of its place
        self._resources.callback(engine.dispose)
        self._resources.enter_context(as_database_errors(engine))
        self._connection: Connection = self._resources.enter_context(engine.connect())
        self._db: OpenDatabase = dialect_of(parsed).open(self._connection)
        # Each statement gets a database snapshot that is younger than its locks, whatever the
        # role's default is: an older one would find a table empty that was rewritten meanwhile.
        self._db.begin_publishing()
        self._connection.commit()
        self._log: OpenLog = self._db.log(_NO_LOG)

    def __str__(self) -> str:
        return self._place

    def attributes(self, cls: ObjectClass) -> Sequence[Attribute]:
        return [one for one, _ in self._table(cls).attributes]

    def stored_as(self, cls: ObjectClass) -> Mapping[str, StoredAs]:
        if "empty_text" in self._db.dialect.capabilities:
            return {}
        # The database stores an empty text as NULL (spec/change-model.md 5.1).
        return {one.name: lambda text: text or None for one in self.attributes(cls)}

    def rows(self, cls: ObjectClass, keys: Sequence[str]) -> Mapping[str, TargetRow]:
        table = self._table(cls)
        by_target_key: dict[str, str] = {}
        for key in keys:
            try:
                by_target_key[table.target_key(key)] = key
            except BadTableKey:  # the target's column cannot have this value
                continue
        attributes = [there for _, there in table.attributes]
        # Each row has a value of the key.
        counted = next(one for one in table.as_view.attributes if one.is_key)
        found = self._db.query_back(
            table.schema, table.as_view, list(by_target_key), [*attributes, counted]
        )
        self._connection.commit()
        return {
            by_target_key[key]: {here.name: row[there.name] for here, there in table.attributes}
            if len(row[counted.name]) == 1
            else SEVERAL_ROWS
            for key, row in found.items()
        }

    def other_keys(self, cls: ObjectClass, size: int) -> KeyLists:
        table = self._table(cls)
        selection = Selection(table.cls.name, EventType.INSERT_ROW_QUERY_BACK)
        walk = self._log.start_walk(table.schema, table.as_view, selection)
        reached = None
        while keys := self._log.keys_after(walk, reached, size):
            self._connection.commit()
            reached = keys[-1]
            yield [table.source_key(table.cls.canonical_key(key)) for key in keys]
        self._connection.commit()

    def range_reader(self, cls: ObjectClass) -> RangeReader | None:
        table = self._table(cls)
        reader = self._db.range_reader(
            table.schema, table.cls, [there for _, there in table.attributes]
        )
        self._connection.commit()
        if reader is None:
            return None
        read = each_key_once(reader.read, len(cls.key))

        def read_and_end(
            behind: KeyValues | None, last: KeyValues | None, limit: int
        ) -> list[RangeRow]:
            rows = read(behind, last, limit)
            self._connection.commit()
            return rows

        find_present = reader.present
        if find_present is None:
            return RangeReader(reader.orders, read_and_end)

        def present_and_end(keys: Sequence[KeyValues]) -> Collection[KeyValues]:
            present = find_present(keys)
            self._connection.commit()
            return present

        return RangeReader(reader.orders, read_and_end, present=present_and_end)

    def close(self) -> None:
        self._resources.close()

    def _table(self, cls: ObjectClass) -> _ClassTable:
        if cls.name not in self._tables:
            self._tables[cls.name] = self._found(cls, self._maps.get(cls.name, TableMap()))
        return self._tables[cls.name]

    def _found(self, cls: ObjectClass, map: TableMap) -> _ClassTable:
        """Return the table of a class. Raises ConfigError if the target has no such table, or if it
        lacks a column.
        """
        schema, name = (None, cls.name) if map.table is None else split_name(map.table)
        if schema not in self._databases:
            self._databases[schema] = self._db.reflect(schema)
            self._connection.commit()
        database = self._databases[schema]
        tables = {one.name: one for one in database.tables}
        match = match_name(name, tables)
        if match is None:
            raise ConfigError(
                f"{self._place} has no table {map.table or name!r} for class {cls.name}: name its "
                f'table in the file of --options, such as [tables.{cls.name}] table = "NAME"'
            )
        wanted = [one for one in row_attributes(cls) if one.name not in map.skip]
        names = {one.name for one in cls.key} | {one.name for one in row_attributes(cls)}
        if unknown := sorted({*map.skip, *map.columns} - names):
            raise ConfigError(
                f"the map of class {cls.name} names {unknown[0]!r}, which is not one of its "
                f"columns: {first_of(sorted(names), 20)}"
            )
        columns = self._columns(cls, tables[match], map, [one.name for one in wanted])
        there = self._as_class(database, tables[match], [columns[one.name] for one in cls.key])
        attributes = {one.name: one for one in there.attributes}
        return _ClassTable(
            cls,
            there,
            replace(there, table=replace(there.table, kind="view")),
            database.schema,
            {here: name for here, name in columns.items() if here != name},
            [(one, attributes[columns[one.name]]) for one in wanted],
        )

    def _columns(
        self, cls: ObjectClass, table: Table, map: TableMap, names: Sequence[str]
    ) -> dict[str, str]:
        """Return the columns of a table by the names of the source's columns. Raises
        ConfigError.
        """
        present: Collection[str] = [column.name for column in table.columns]
        found: dict[str, str] = {}
        for name in [*(one.name for one in cls.key), *names]:
            there = match_name(map.columns.get(name, name), present)
            if there is None:
                raise ConfigError(
                    f"table {table.name} in {self._place} has no column "
                    f"{map.columns.get(name, name)!r}. In the file of --options, set {name} below "
                    f"[tables.{cls.name}.columns] to the column of this table, or add {name} to "
                    "`skip`"
                )
            found[name] = there
        return found

    def _as_class(self, database: Database, table: Table, key: Sequence[str]) -> ObjectClass:
        """Return a table or view as a class with this key."""
        # As for a partitioned table, the rows of tables that inherit from it are read, too: whoever
        # reads the target sees them.
        alone = replace(
            table, kind="table", primary_key=tuple(key), foreign_keys=(), partitioned=True
        )
        catalog = build_catalog(
            Database(database.dialect, database.schema, (alone,)),
            tables=[table.name],
            values=_VALUES,
            meta_identifiers=False,
        )
        return catalog.class_named(table.name)


def each_key_once(read: ReadRange, width: int) -> ReadRange:
    """Return a function that reads the objects of a table in which a key may have several rows. An
    object with several rows has only the entry ``SEVERAL``. ``width`` is the number of values of a
    key.
    """

    def read_once(behind: KeyValues | None, last: KeyValues | None, limit: int) -> list[RangeRow]:
        objects: dict[KeyValues, RangeRow] = {}
        is_end = False
        while not is_end and len(objects) < limit:
            rows = read(behind, last, limit + 1)
            is_end = len(rows) <= limit
            for row in rows:
                key = row[:width]
                objects[key] = (*key, SEVERAL) if key in objects else row
            if not is_end:
                behind = rows[-1][:width]
                if rows[-2][:width] != behind:  # it may have a second row
                    del objects[behind]
                    behind = rows[-2][:width]
        return list(objects.values())[:limit]

    return read_once
