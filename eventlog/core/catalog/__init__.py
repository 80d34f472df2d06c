"""The watched classes: tables and views as the database has them, and the classes and attributes
that ``builder`` builds from them.

spec/xds.md 5 defines class, child table, attribute and association.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from eventlog.core.table_key import Canonicalizer
from eventlog.core.values import ColumnType, Converter, parse_type
from eventlog.errors import BadTableKey, EventlogError
from eventlog.model import Names

if TYPE_CHECKING:
    from eventlog.core.catalog.filters import Condition


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table or view.

    ``deterministic`` is False if ``=`` may find two texts of the column equal although their bytes
    differ.
    """

    name: str
    type: ColumnType
    deterministic: bool = True


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A foreign key: ``columns`` refer to ``ref_columns`` of ``table``, pair by pair.

    A table lists its foreign keys by the position of their first column.
    """

    columns: Names
    table: str
    ref_columns: Names
    deferrable: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table or view as the database has it."""

    name: str
    kind: Literal["table", "view"]
    columns: tuple[Column, ...]
    primary_key: Names = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    unique_keys: tuple[Names, ...] = ()
    """The columns of the unique indexes and keys that are neither deferrable nor partial,
    including the primary key.
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


def table_of_types(name: str, types: Iterable[tuple[str, str]], key: Sequence[str]) -> Table:
    """Return a table as a format describes it: ``types`` has the name and the type name of each
    column, as ``parse_type`` reads it. Raises ConfigError for an unknown type.
    """
    columns = tuple(Column(column, parse_type(type_name)) for column, type_name in types)
    return Table(name, "table", columns, tuple(key))


@dataclass(frozen=True, slots=True)
class Database:
    """The tables and views of one schema. ``schema`` is None if the database has no schemas.

    ``partitions`` has the root of each partition that the database lists as a table; only messages
    use it.
    """

    dialect: str
    schema: str | None
    tables: tuple[Table, ...] = field(default=())
    partitions: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def place(self) -> str:
        """The place of the tables, as messages name it."""
        return "the database" if self.schema is None else f"schema {self.schema}"


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
    convert: Converter
    """A function that turns log text into the text that is written. The function raises RowError.
    """
    is_written: bool = True
    """True if documents contain the attribute. Documents contain key columns only with
    ``emit_keys`` (spec/xds.md 4.2).
    """
    mask: Callable[[str], str | None] | None = None
    """A function from a text of the log to the text that the reader sees in place of it (None =
    NULL), if the attribute is masked. ``convert`` is for the masked text.
    """
    stored: Attribute | None = None
    """The attribute as the database has it, if it is masked."""


@dataclass(frozen=True, slots=True, eq=False)
class ChildTable:
    """A child table of a class. ``owner_columns`` are in the order of the owner's key columns."""

    table: Table
    owner_columns: Names
    attribute: Attribute


@dataclass(frozen=True, slots=True, eq=False)
class MainTable:
    """The base table of a view: each object of the view is a row of this table. For an object that
    is not in the view, the table shows whether the object's row exists (spec/event-log.md 15.4).
    """

    table: Table
    key: tuple[Column, ...]
    """The columns that hold the key of the view, in the order of that key."""
    membership: frozenset[str] = frozenset()
    """The columns, by their names in the log, by which an object enters or leaves the view."""


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
    canonical_key: Canonicalizer
    """A function that returns the canonical spelling of a key of this class (spec/event-log.md
    4.3). The function raises BadTableKey.
    """
    check_characters: Callable[[str], None] = field(repr=False)
    """A function that raises RowError for a key with a character that the format cannot hold."""
    association_tail: str
    """The text that follows the canonical key in an association (spec/xds.md 5.1)."""
    former: ObjectClass | None = None
    """The class with its earlier key columns, without attributes. The table no longer has objects
    under the earlier key, so they can only be deleted (spec/event-log.md 5.4).
    """
    stored: ObjectClass | None = None
    """The class as the database has it, if some of its attributes are masked."""
    condition: Condition | None = None
    """The condition of the objects that exist for the reader; None = all exist."""
    captured: tuple[Attribute, ...] = ()
    """Columns that are logged for conditions only; no document contains them."""
    main_table: MainTable | None = None
    """The main base table of a view, if this table decides whether an object that is not in the
    view is deleted.
    """

    @property
    def may_lack_objects(self) -> bool:
        """True if an object whose row exists may be absent for the reader."""
        return self.condition is not None or self.main_table is not None

    def has_key(self, text: str) -> bool:
        """Return True if a text is a canonical key of the class by its present key columns."""
        try:
            return self.canonical_key(text) == text
        except BadTableKey:
            return False

    @property
    def is_view(self) -> bool:
        """True for a view, which may have several rows for one object."""
        return self.table.kind == "view"

    @property
    def may_hide_objects(self) -> bool:
        """True for a view whose objects may leave it without a delete, and return with a change of
        some columns (spec/event-log.md 7.2, 15.4).
        """
        return (
            self.is_view
            and self.main_table is None
            and (self.condition is None or not self.condition.changes)
        )


def row_of(cls: ObjectClass) -> Table:
    """Return the class as the description of a table. The table has one column per single-valued
    attribute, with the name of the attribute.

    The columns are the key and the single-valued attributes of the class's own table, in the
    class's order. Values of child tables are left out.
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


def logged_only(table: str, column: Column) -> Attribute:
    """Return the attribute of a column that is logged, but that no document contains."""
    return Attribute(
        name=column.name,
        table=table,
        column=column,
        multi_valued=False,
        is_key=False,
        value_type="",
        convert=str,
        is_written=False,
    )


ObjectId: TypeAlias = tuple[ObjectClass, str]
"""The object of an event: its class and its canonical table_key."""


@dataclass(frozen=True, slots=True, eq=False)
class LogName:
    """The meaning of a table_name in the log: a class, or one of its child tables."""

    object_class: ObjectClass
    child: ChildTable | None
    by_spelling: tuple[Mapping[str, Attribute], ...]

    def of_class(self, changed: ObjectClass) -> LogName:
        """Return the meaning that the same name has in another class of the same table."""
        if changed is self.object_class:
            return self
        captured = {one.column.name: one for one in changed.captured}
        of_child = self.child is not None
        by_spelling = self.by_spelling if of_child else (captured, *self.by_spelling)
        return replace(self, object_class=changed, by_spelling=by_spelling)

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
    """The meanings of table_names in the log, by name, including earlier names of available
    classes.
    """
    unavailable: Mapping[str, EventlogError] = field(default_factory=dict)
    """The configured classes that the database does not provide now, with the reason. The rows of
    these classes wait (spec/event-log.md 5.1).
    """
    former: Mapping[str, str] = field(default_factory=dict)
    """The classes in ``unavailable``, by the other names that rows of these classes may have:
    earlier names, and the known names of their child tables.
    """
    no_children: Mapping[str, str] = field(default_factory=dict)
    """The tables that have a foreign key to a class but are not its child tables, with the reason.
    """
    has_masks: bool = False
    """True if the configuration masks any columns, including columns of unavailable classes."""

    @property
    def may_lack_objects(self) -> bool:
        """True if an object of a class may be absent for the reader although its row exists."""
        return any(cls.may_lack_objects for cls in self.classes)

    @property
    def table_names(self) -> list[str]:
        """The names in ``log_names``, and the names of the unavailable classes."""
        return [*self.log_names, *self.unavailable]

    def former_names(self) -> dict[str, list[str]]:
        """Return, for each available class, the names that the class and its child tables may have
        had.
        """
        names: dict[str, list[str]] = {}
        for name, meant in self.log_names.items():
            if meant.child is None and name != meant.object_class.name:
                names.setdefault(meant.object_class.name, []).append(name)
        return names

    def with_classes(self, changed: Mapping[str, ObjectClass]) -> Catalog:
        """Return the catalogue in which the ``changed`` classes replace the classes with the same
        names. In this catalogue, rows may also name columns that a changed class logs for
        conditions only.
        """
        if not changed:
            return self
        return replace(
            self,
            classes=tuple(changed.get(cls.name, cls) for cls in self.classes),
            log_names={
                name: one.of_class(changed.get(one.object_class.name, one.object_class))
                for name, one in self.log_names.items()
            },
        )

    def without(self, refused: Mapping[str, EventlogError]) -> Catalog:
        """Return the catalogue in which the classes in ``refused`` are unavailable. The errors in
        ``refused`` are the reasons.
        """
        lost = {
            name: meant.object_class.name
            for name, meant in self.log_names.items()
            if meant.object_class.name in refused
        }
        others = {name: owner for name, owner in lost.items() if name != owner}
        return replace(
            self,
            classes=tuple(cls for cls in self.classes if cls.name not in refused),
            log_names={name: one for name, one in self.log_names.items() if name not in lost},
            unavailable={**self.unavailable, **refused},
            former={**self.former, **others},
        )

    def class_named(self, name: str) -> ObjectClass:
        """Return the class of exactly this name. Raises KeyError."""
        for cls in self.classes:
            if cls.name == name:
                return cls
        raise KeyError(name)

    def log_name(self, table_name: str) -> LogName | None:
        """Return the meaning of a table_name in the log, or None.

        A name matches exactly, or without case if exactly one candidate matches without case.
        ``schema.table`` matches, too.
        """
        match = self._match_name(table_name, self.log_names)
        return None if match is None else self.log_names[match]

    def unavailable_class(self, table_name: str) -> str | None:
        """Return the unavailable class that a table_name of the log means, or None. The table_name
        is matched as in ``log_name``.
        """
        if not self.unavailable:
            return None
        match = self._match_name(table_name, self.unavailable)
        if match is None and (former := self._match_name(table_name, self.former)) is not None:
            return self.former[former]
        return match

    def _match_name(self, table_name: str, names: Collection[str]) -> str | None:
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
    """Return the candidate that ``name`` means: the candidate of exactly this name, otherwise the
    only candidate that matches without case (spec/event-log.md 4.2).
    """
    if name in candidates:
        return name
    folded = name.casefold()
    alike = [candidate for candidate in candidates if candidate.casefold() == folded]
    return alike[0] if len(alike) == 1 else None
