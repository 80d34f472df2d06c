"""The watched classes: tables and views as the database has them, and the classes and attributes
built from them.

spec/xds.md 5 defines class, child table, attribute and association.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from types import MappingProxyType
from typing import Literal, TypeAlias

from eventlog.core import table_key
from eventlog.core.values import (
    ColumnType,
    Kind,
    ValueOptions,
    character_check,
    converter,
    key_normalizer,
    with_special_values,
    xds_type,
)
from eventlog.errors import BadTableKey, ConfigError, EventlogError, RowError, together


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table or view.

    ``deterministic`` is False for text whose ``=`` is coarser than its bytes.
    """

    name: str
    type: ColumnType
    deterministic: bool = True


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A foreign key with its columns in pairs.

    A table orders them by the position of their first column.
    """

    columns: tuple[str, ...]
    table: str
    ref_columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table or view as the database has it."""

    name: str
    kind: Literal["table", "view"]
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    unique_keys: tuple[tuple[str, ...], ...] = ()
    """The columns of the unique indexes and keys that are neither deferrable nor partial, the
    primary key among them.
    """
    key_deferrable: bool = False
    """True if the primary key is DEFERRABLE."""
    partitioned: bool = False
    """True if the table is the root of partitions."""

    def column(self, name: str) -> Column:
        """Return the column of exactly this name. Raises KeyError."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class Database:
    """The tables and views of one schema. ``schema`` is None if the database has no schemas.

    ``partitions`` maps partitions that the database lists as tables to their root; messages alone
    use it.
    """

    dialect: str
    schema: str | None
    tables: tuple[Table, ...] = field(default=())
    partitions: Mapping[str, str] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True, eq=False)
class Attribute:
    """An attribute of a class: a parent column, or the value column of a child table (spec/xds.md
    4.2).
    """

    name: str
    """The attr-name in documents, without view prefixes; ``child.column`` for a child table's
    value.
    """
    table: str
    """The table or view that holds ``column``."""
    column: Column
    multi_valued: bool
    is_key: bool
    value_type: str
    """The XDS type."""
    convert: Callable[[str], str]
    """A function that turns log text into the text that is written. It raises RowError."""
    is_written: bool = True
    """True if documents hold the attribute. They leave out a key column without ``emit_keys``
    (spec/xds.md 4.2).
    """


@dataclass(frozen=True, slots=True, eq=False)
class ChildTable:
    """A child table of a class. ``owner_columns`` are in the order of the owner's key columns."""

    table: Table
    owner_columns: tuple[str, ...]
    attribute: Attribute


@dataclass(frozen=True, slots=True, eq=False)
class ObjectClass:
    """A class of objects: a parent table with a primary key, or a view with ``pk_`` columns
    (spec/event-log.md 4.3, 5.4, spec/xds.md 5.1).
    """

    name: str
    table: Table
    key: tuple[Column, ...]
    attributes: tuple[Attribute, ...]
    """The attributes in the order in which a whole row is written: parent columns in table order,
    then child attributes by the names of the child tables.
    """
    children: tuple[ChildTable, ...]
    canonical_key: Callable[[str | None], str]
    """A function that applies spec/event-log.md 4.3 for this class. It raises BadTableKey."""
    check_characters: Callable[[str], None] = field(repr=False)
    """A function that raises RowError for a key with a character that the format cannot hold."""
    association_tail: str
    """The text that follows the canonical key in an association (spec/xds.md 5.1)."""
    former: ObjectClass | None = None
    """The class by its earlier key, without attributes. Objects under that key have left the table
    and can only be deleted (spec/event-log.md 5.4).
    """

    def has_key(self, text: str) -> bool:
        """Return True if a text is a canonical key of the class, as its key columns are now."""
        try:
            return self.canonical_key(text) == text
        except BadTableKey:
            return False

    @property
    def is_view(self) -> bool:
        """True for a view, which may have several rows for one object."""
        return self.table.kind == "view"


def row_of(cls: ObjectClass) -> Table:
    """Return the class as a table of its rows, with the names that its events have.

    The table has the key and the single-valued attributes of the class's own table, in the class's
    order. Values of child tables are left out.
    """
    keys = {column.name for column in cls.key}
    attributes = [
        a
        for a in cls.attributes
        if a.name not in keys and not a.is_key and a.table == cls.table.name
    ]
    columns = {column.name: column for column in cls.key} | {
        attribute.name: Column(attribute.name, attribute.column.type) for attribute in attributes
    }
    places = {column.name: place for place, column in enumerate(cls.table.columns)}
    order = sorted(columns, key=lambda name: places.get(name, len(places)))
    key = tuple(column.name for column in cls.key)
    return Table(cls.name, "table", tuple(columns[name] for name in order), key)


ObjectId: TypeAlias = tuple[ObjectClass, str]
"""The object of an event: its class and its canonical table_key."""


@dataclass(frozen=True, slots=True, eq=False)
class LogName:
    """The meaning of a table_name in the log: a class, named by itself or by a child table."""

    object_class: ObjectClass
    child: ChildTable | None
    by_spelling: tuple[Mapping[str, Attribute], ...]

    def attribute(self, column_name: str) -> Attribute | None:
        """Return the attribute that a column_name of the log means, or None (spec/xds.md 5)."""
        for names in self.by_spelling:
            match = match_name(column_name, names)
            if match is not None:
                return names[match]
        return None


@dataclass(frozen=True, slots=True, eq=False)
class Catalog:
    """The classes of one schema, built once at start (spec/event-log.md 5.1)."""

    schema: str | None
    classes: tuple[ObjectClass, ...]
    log_names: Mapping[str, LogName]
    """The meanings of table_names in the log, by name. Earlier names of available classes are among
    them.
    """
    unavailable: Mapping[str, EventlogError] = field(default_factory=dict)
    """The classes that the configuration names and the database does not provide now, with the
    reason. Their rows wait (spec/event-log.md 5.1).
    """
    former: Mapping[str, str] = field(default_factory=dict)
    """The classes in ``unavailable``, by their earlier names."""
    no_children: Mapping[str, str] = field(default_factory=dict)
    """The tables that refer to a class as child tables do, but are none, with the reason."""

    @property
    def table_names(self) -> list[str]:
        """The tables and views of classes and their child tables, and the unavailable classes."""
        return [*self.log_names, *self.unavailable]

    def former_names(self) -> dict[str, list[str]]:
        """Return the names that available classes and their child tables may have had, by class."""
        names: dict[str, list[str]] = {}
        for name, meant in self.log_names.items():
            if meant.child is None and name != meant.object_class.name:
                names.setdefault(meant.object_class.name, []).append(name)
        return names

    def class_named(self, name: str) -> ObjectClass:
        """Return the class of exactly this name. Raises KeyError."""
        for cls in self.classes:
            if cls.name == name:
                return cls
        raise KeyError(name)

    def log_name(self, table_name: str) -> LogName | None:
        """Return the meaning of a table_name in the log, or None.

        A name matches exactly, or without case if exactly one candidate does. ``schema.table``
        matches, too.
        """
        match = self._meant(table_name, self.log_names)
        return None if match is None else self.log_names[match]

    def unavailable_class(self, table_name: str) -> str | None:
        """Return the unavailable class that a table_name of the log means, matched as in
        ``log_name``; None if it means none.
        """
        if not self.unavailable:
            return None
        match = self._meant(table_name, self.unavailable)
        if match is None and (former := self._meant(table_name, self.former)) is not None:
            return self.former[former]
        return match

    def _meant(self, table_name: str, names: Collection[str]) -> str | None:
        match = match_name(table_name, names)
        if match is None and self.schema is not None:
            end = len(self.schema)  # schema and table may contain dots themselves
            if (
                table_name[end : end + 1] == "."
                and match_name(table_name[:end], (self.schema,)) is not None
            ):
                match = match_name(table_name[end + 1 :], names)
        return match


def match_name(name: str, candidates: Collection[str]) -> str | None:
    """Return the candidate that ``name`` means: the exact one, else the only one that matches
    without case (spec/event-log.md 4.2).
    """
    if name in candidates:
        return name
    folded = name.casefold()
    alike = [candidate for candidate in candidates if candidate.casefold() == folded]
    return alike[0] if len(alike) == 1 else None


def build_catalog(
    database: Database,
    *,
    tables: Sequence[str] | None = None,
    values: ValueOptions = ValueOptions(),  # noqa: B008 - frozen
    meta_identifiers: bool = True,
    referential: str = "value",
    emit_keys: bool = False,
    exclude: Mapping[str, Collection[str]] | None = None,
    ignore: Collection[str] = (),
    refused: Mapping[str, EventlogError] = MappingProxyType({}),
    was: Mapping[str, Collection[str]] = MappingProxyType({}),
    was_key: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Catalog:
    """Return the classes of a database (spec/xds.md 5). Tables that cannot be classes are
    ``unavailable``.

    ``tables`` lists exactly the tables and views that are classes; None = all with a key. With
    ``emit_keys`` key columns are written, so their values are checked like others. ``exclude``
    holds, by table, column names that are not attributes (spec/triggers.md 1). ``ignore`` holds
    tables to leave out, such as the log itself. ``refused`` holds names that must not become
    classes, with the reason.

    A listed table that is missing or has no key is unavailable, too, and so is a table whose names
    clash. ``was`` holds, by class, the names that rows of the log may have for it, or in the names
    of its child attributes, from before a table was renamed (spec/event-log.md 5.2). ``was_key``
    holds, by class, the columns of its earlier key (5.4).
    """
    present = tuple(
        _typed(table, database.dialect, values)
        for table in database.tables
        if table.name not in ignore
    )
    unavailable = dict(refused)
    parents = _parents(database, present, tables, unavailable)
    able = [table for table in present if table.name not in unavailable]
    builder = _Builder(
        database.schema,
        parents,
        values,
        meta_identifiers,
        referential,
        emit_keys,
        exclude or {},
        was_key,
    )
    classes: list[ObjectClass] = []
    for table in parents.values():
        try:
            classes.append(builder.object_class(table, _children(table, able, parents)))
        except ConfigError as error:
            unavailable[table.name] = error
    former = _former_names(was, classes, unavailable)
    available = tuple(cls for cls in classes if cls.name not in unavailable)
    log_names: dict[str, LogName] = {}
    for cls in available:
        names = [name for name, owner in former.items() if owner == cls.name]
        log_names |= _log_names(cls, names, meta_identifiers)
    waiting = {name: owner for name, owner in former.items() if owner in unavailable}
    no_children = {
        table.name: why
        for table in able
        if table.name not in log_names and (why := _no_child(table, parents))
    }
    return Catalog(database.schema, available, log_names, unavailable, waiting, no_children)


def _log_names(
    cls: ObjectClass, former: Sequence[str], meta_identifiers: bool
) -> dict[str, LogName]:
    """Return the meanings of the names that rows of the log may have for a class: its own, those of
    its child tables, and its former ones.
    """
    by_spelling = _attributes_by_spelling(cls, meta_identifiers)
    if renamed := _former_attributes(cls, former):
        by_spelling = (*by_spelling, renamed)
    own = LogName(cls, None, by_spelling)
    children = {
        child.table.name: LogName(cls, child, ({child.attribute.column.name: child.attribute},))
        for child in cls.children
    }
    return {cls.name: own} | children | dict.fromkeys(former, own)


def _former_names(
    was: Mapping[str, Collection[str]],
    classes: Sequence[ObjectClass],
    unavailable: dict[str, EventlogError],
) -> dict[str, str]:
    """Return the class of each former name, and add classes to ``unavailable`` whose rows cannot
    be distinguished.

    A former name that another class or its child table has now could mean either: both classes
    wait.
    """
    owners = {name: name for name in (*(cls.name for cls in classes), *unavailable)}
    owners |= {child.table.name: cls.name for cls in classes for child in cls.children}
    former: dict[str, str] = {}
    for name, old_names in was.items():
        owner = match_name(name, owners) or name
        for old in old_names:
            other = owners.get(old, owner)
            if other != owner:
                clash = ConfigError(
                    f"[[watch]] {owner} says was = {old!r}, and {old!r} is a table of the class "
                    f"{other} now: rows of that name may be of either. Take was out once the rows "
                    f"of {owner} under its old name are published, or do not watch the other "
                    "table until then"
                )
                unavailable |= {owner: clash, other: clash}
            else:
                former[old] = owner
    return former


def _former_attributes(cls: ObjectClass, names: Collection[str]) -> dict[str, Attribute]:
    """Return the names that child attributes may have from before their table was renamed, if the
    name is unique.
    """
    found: dict[str, Attribute] = {}
    for column in {child.attribute.column.name for child in cls.children}:
        alike = [child.attribute for child in cls.children if child.attribute.column.name == column]
        if len(alike) == 1:
            found |= {f"{name}.{column}": alike[0] for name in names}
    return found


def complete_catalog(catalog: Catalog) -> Catalog:
    """Return the catalogue if all of its classes are available.

    Raises ConfigError or TriggerError with all problems.
    """
    if catalog.unavailable:
        raise together(list(catalog.unavailable.values()))
    return catalog


def _typed(table: Table, dialect: str, values: ValueOptions) -> Table:
    """Return the table with its columns' types under these options (spec/xds.md 6.3)."""
    types = [with_special_values(column.type, dialect, values) for column in table.columns]
    if all(type is column.type for type, column in zip(types, table.columns, strict=True)):
        return table
    return replace(
        table,
        columns=tuple(
            replace(column, type=type) for column, type in zip(table.columns, types, strict=True)
        ),
    )


def _parents(
    database: Database,
    present: Sequence[Table],
    tables: Sequence[str] | None,
    unavailable: dict[str, EventlogError],
) -> dict[str, Table]:
    """Return the tables that are classes by their names, and add the others that are listed to
    ``unavailable``.
    """
    by_name = {table.name: table for table in present if table.name not in unavailable}
    if tables is None:
        return {name: table for name, table in by_name.items() if key_columns(table)}
    parents: dict[str, Table] = {}
    for name in tables:
        match = match_name(name, by_name)
        if match_name(name, unavailable) is not None:
            continue
        if match is None:
            renamed = (
                ""
                if name in database.partitions
                else f"; if it was renamed, add was = {name!r} to its [[watch]]"
            )
            unavailable[name] = ConfigError(missing_table(database, name) + renamed)
        elif not key_columns(by_name[match]):
            wanted = (
                "column whose name begins with pk_"
                if by_name[match].kind == "view"
                else "primary key"
            )
            unavailable[match] = ConfigError(f"{match!r} cannot be a class: it has no {wanted}")
        else:
            parents[match] = by_name[match]
    return parents


def missing_table(database: Database, name: str) -> str:
    """Explain why a name in the configuration is not a table or view, and how to correct it."""
    partition = match_name(name, database.partitions)
    if partition is None:
        near = get_close_matches(name, [table.name for table in database.tables], n=1)
        hint = f": the nearest is {near[0]!r}" if near else ""
        spelled = ", without schema and quotes" if "." in name or '"' in name else ""
        schema = "the database" if database.schema is None else f"schema {database.schema}"
        return (
            f"there is no table or view {name!r} in {schema}, the only one that the log "
            f"watches{hint}; correct its name in the configuration{spelled}, or remove "
            "its [[watch]] if it was dropped"
        )
    root = database.partitions[partition]
    return (
        f"{name!r} is a partition of {root}: name {root}, "
        "which stands for the rows of all its partitions"
    )


def key_columns(table: Table) -> tuple[Column, ...]:
    """Return the key of a table or view (spec/xds.md 5), empty if it cannot be a class."""
    if table.kind == "view":
        return tuple(column for column in table.columns if column.name[:3].casefold() == "pk_")
    return tuple(table.column(name) for name in table.primary_key)


def _children(
    owner: Table, present: Sequence[Table], parents: Mapping[str, Table]
) -> list[tuple[Table, Column]]:
    """Return the child tables of ``owner`` with their value columns, in code point order of their
    names (spec/xds.md 4.2, 5).
    """
    if owner.kind == "view":
        return []
    others = sorted(
        (table for table in present if table.name not in parents), key=lambda table: table.name
    )
    return [(table, value) for table in others if (value := value_column(table, owner)) is not None]


def value_column(table: Table, owner: Table) -> Column | None:
    """Return the column that holds the values if ``table`` has the form of a child table of
    ``owner`` (spec/xds.md 5), else None.
    """
    if table.kind != "table" or not table.foreign_keys:
        return None
    first = table.foreign_keys[0]
    if first.table != owner.name or set(first.ref_columns) != set(owner.primary_key):
        return None
    values = [column for column in table.columns if column.name not in first.columns]
    return values[0] if len(values) == 1 else None


def _no_child(table: Table, parents: Mapping[str, Table]) -> str | None:
    """Return why a table is not a child table although its first foreign key suggests it, None if
    it does not suggest it.
    """
    first = table.foreign_keys[0] if table.foreign_keys else None
    owner = None if first is None else parents.get(first.table)
    if first is None or owner is None or set(first.ref_columns) != set(owner.primary_key):
        return None
    values = [column.name for column in table.columns if column.name not in first.columns]
    if len(values) == 1:
        return None
    has = f"columns {', '.join(values)}" if values else "no column"
    return f"it has {has} beside its foreign key to {owner.name}, and a child table has one"


@dataclass(frozen=True, slots=True)
class _Builder:
    """A builder of classes: the options and tables that all classes of one catalogue share."""

    schema: str | None
    parents: Mapping[str, Table]
    values: ValueOptions
    meta_identifiers: bool
    referential: str
    emit_keys: bool
    exclude: Mapping[str, Collection[str]]
    was_key: Mapping[str, Sequence[str]]

    def object_class(self, table: Table, children: Sequence[tuple[Table, Column]]) -> ObjectClass:
        key, excluded = key_columns(table), self._excluded(table)
        attributes = []
        for column in table.columns:
            if column.name in excluded:
                continue
            name, multi_valued = column.name, False
            if table.kind == "view" and self.meta_identifiers:
                name, _, multi_valued = view_name(name)
            attributes.append(
                self._attribute(
                    table, column, name, multi_valued=multi_valued, is_key=column in key
                )
            )
        child_tables = []
        for child, column in children:
            if column.name in self._excluded(child):
                continue
            owner = child.foreign_keys[0]
            pairs = dict(zip(owner.ref_columns, owner.columns, strict=True))
            attribute = self._attribute(
                child, column, f"{child.name}.{column.name}", multi_valued=True
            )
            child_tables.append(
                ChildTable(child, tuple(pairs[name] for name in table.primary_key), attribute)
            )
        attributes += [child.attribute for child in child_tables]
        self._check_names(table, attributes)
        return ObjectClass(
            name=table.name,
            table=table,
            key=key,
            attributes=tuple(attributes),
            children=tuple(child_tables),
            canonical_key=table_key.canonicalizer([(column.name, column.type) for column in key]),
            check_characters=character_check(self.values),
            association_tail=self._association_tail(table.name),
            former=self._former(table, key),
        )

    def _former(self, table: Table, key: Sequence[Column]) -> ObjectClass | None:
        """Return the class by its former key, None if that is unknown or equals the present key."""
        watch = match_name(table.name, self.was_key)
        present = {column.name: column for column in table.columns}
        named = () if watch is None else self.was_key[watch]
        # A column that is gone has an unknown type, so its value is text.
        columns = tuple(
            Column(name, ColumnType(Kind.OTHER))
            if (match := match_name(name, present)) is None
            else present[match]
            for name in named
        )
        if not columns or {column.name for column in columns} == {column.name for column in key}:
            return None
        return ObjectClass(
            name=table.name,
            table=table,
            key=columns,
            attributes=(),
            children=(),
            canonical_key=table_key.canonicalizer(
                [(column.name, column.type) for column in columns]
            ),
            check_characters=character_check(self.values),
            association_tail=self._association_tail(table.name),
        )

    def _check_names(self, table: Table, attributes: Sequence[Attribute]) -> None:
        """Raise ConfigError for names that clash or that documents cannot carry."""
        names: dict[str, Attribute] = {}
        for attribute in attributes:
            other = names.setdefault(attribute.name, attribute)
            if other is not attribute:
                raise ConfigError(
                    f"columns {other.column.name!r} and {attribute.column.name!r} of "
                    f"{table.name!r} are both attribute {attribute.name!r}; rename or exclude one"
                )
        check = character_check(self.values)
        for name in (table.name, self.schema or "", *names):
            try:
                check(name)
            except RowError as error:
                raise ConfigError(
                    f"{table.name!r} cannot be published: name {name!r}: {error}"
                ) from None

    def _association_tail(self, class_name: str) -> str:
        schema = "" if self.schema is None else f",schema={table_key.quote(self.schema)}"
        return f",table={table_key.quote(class_name)}{schema}"

    def _attribute(
        self,
        table: Table,
        column: Column,
        name: str,
        *,
        multi_valued: bool = False,
        is_key: bool = False,
    ) -> Attribute:
        # No output uses the value, so it is not converted (spec/event-log.md 5).
        if is_key and not self.emit_keys:
            value_type = xds_type(column.type, self.values)
            return Attribute(
                name,
                table.name,
                column,
                multi_valued,
                is_key,
                value_type,
                convert=str,
                is_written=False,
            )
        target = self._reference(table, column) if self.referential == "dn" else None
        return Attribute(
            name=name,
            table=table.name,
            column=column,
            multi_valued=multi_valued,
            is_key=is_key,
            value_type=xds_type(column.type, self.values) if target is None else "dn",
            convert=converter(column.type, self.values)
            if target is None
            else self._association_of(target),
        )

    def _reference(self, table: Table, column: Column) -> Table | None:
        """Return the class that a single-column foreign key refers to by its whole key (spec/xds.md
        6.4), else None.
        """
        for key in table.foreign_keys:
            target = self.parents.get(key.table)
            if (
                key.columns == (column.name,)
                and target is not None
                and key.ref_columns == target.primary_key
            ):
                return target
        return None

    def _association_of(self, target: Table) -> Callable[[str], str]:
        (key,) = key_columns(target)
        normal = key_normalizer(key.type)
        tail = self._association_tail(target.name)
        check = character_check(self.values)

        def association(text: str) -> str:
            written = table_key.key_text([(key.name, normal(text))]) + tail
            check(written)
            return written

        return association

    def _excluded(self, table: Table) -> frozenset[str]:
        excluded = set()
        names = [column.name for column in table.columns]
        for name in self.exclude.get(table.name, ()):
            match = match_name(name, names)
            if match is None:
                raise ConfigError(f"excluded column {name!r} is not a column of {table.name!r}")
            if (
                match in (column.name for column in key_columns(table))
                and table.name in self.parents
            ):
                raise ConfigError(f"key column {match!r} of {table.name!r} cannot be excluded")
            excluded.add(match)
        return frozenset(excluded)


_VIEW_KEY = re.compile(r"pk_(?:sv_)?(?:[0-9]+_)?(?:_(?:.+?)__)?(.+)", re.IGNORECASE | re.DOTALL)
_VIEW_REFERENCE = re.compile(r"fk_(sv_|mv_)?(?:[0-9]+_)?_(?:.+?)__(.+)", re.IGNORECASE | re.DOTALL)
_VIEW_VALUE = re.compile(r"(sv_|mv_)(.+)", re.IGNORECASE | re.DOTALL)


def view_name(column_name: str) -> tuple[str, str, bool]:
    """Split the name of a view column by its prefixes (spec/xds.md 5).

    Returns its attr-name, the bare rest without any prefix, and whether it is multi-valued.
    """
    kept = column_name[:3]  # pk_ or fk_ as the database spells it
    if match := _VIEW_KEY.fullmatch(column_name):
        return kept + match[1], match[1], False
    if match := _VIEW_REFERENCE.fullmatch(column_name):
        return kept + match[2], match[2], (match[1] or "").casefold() == "mv_"
    if match := _VIEW_VALUE.fullmatch(column_name):
        return match[2], match[2], match[1].casefold() == "mv_"
    return column_name, column_name, False


def _attributes_by_spelling(
    cls: ObjectClass, meta_identifiers: bool
) -> tuple[Mapping[str, Attribute], ...]:
    """Return the attributes by each spelling under which a column_name is looked up, in this order
    (spec/xds.md 5).
    """
    by_name = {attribute.name: attribute for attribute in cls.attributes}
    if not cls.is_view:
        return (by_name,)
    full = {attribute.column.name: attribute for attribute in cls.attributes}
    if not meta_identifiers:
        return (full,)
    bare: dict[str, Attribute] = {}
    for attribute in cls.attributes:
        _, name, _ = view_name(attribute.column.name)
        bare.setdefault(name, attribute)
    return (full, by_name, bare)
