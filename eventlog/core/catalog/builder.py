"""Build the catalogue of watched classes from the tables and views of a database
(spec/xds.md 5, 6.4).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from types import MappingProxyType
from typing import TypeAlias

from eventlog.core import table_key
from eventlog.core.catalog import (
    Attribute,
    Catalog,
    ChildTable,
    Column,
    Database,
    LogName,
    ObjectClass,
    Table,
    logged_only,
    match_name,
)
from eventlog.core.catalog.filters import Filter, filtered_class, refuse_unknown_filters
from eventlog.core.catalog.masks import MaskedColumns, masked_class, refuse_impossible
from eventlog.core.table_key import Canonicalizer
from eventlog.core.values import (
    ColumnType,
    Converter,
    Kind,
    ValueOptions,
    character_check,
    converter,
    key_normalizer,
    with_special_values,
    xds_type,
)
from eventlog.errors import ConfigError, EventlogError, RowError, together

NamesByTable: TypeAlias = Mapping[str, Collection[str]]
"""For each table, names of its columns, or former names of the table itself."""


def build_catalog(
    database: Database,
    *,
    tables: Sequence[str] | None = None,
    values: ValueOptions = ValueOptions(),  # noqa: B008 - frozen
    meta_identifiers: bool = True,
    referential: str = "value",
    emit_keys: bool = False,
    exclude: NamesByTable | None = None,
    ignore: Collection[str] = (),
    refused: Mapping[str, EventlogError] = MappingProxyType({}),
    renamed_from: NamesByTable = MappingProxyType({}),
    previous_key: Mapping[str, Sequence[str]] = MappingProxyType({}),
    masks: Sequence[MaskedColumns] = (),
    filters: Sequence[Filter] = (),
    logged: Mapping[str, Sequence[str]] = MappingProxyType({}),
    captured: NamesByTable = MappingProxyType({}),
) -> Catalog:
    """Return the classes of a database (spec/xds.md 5). Tables that cannot be classes are
    ``unavailable``.

    ``tables`` lists exactly the tables and views that are classes; None = all that have a key. With
    ``emit_keys``, key columns are written, so their values are checked like the values of other
    columns. ``exclude`` holds, by table, column names that are not attributes (spec/triggers.md 1).
    ``ignore`` holds tables to leave out, such as the log itself. ``refused`` holds names that must
    not become classes, with the reason.

    A listed table that is missing or has no key is unavailable, too, and a table whose names clash
    is also unavailable. ``renamed_from`` holds, by class, the earlier names of its table or child
    tables, which rows have that were logged before a rename (spec/event-log.md 5.2).
    ``previous_key`` holds, by class, the columns of its earlier key (5.4). ``masks`` are the masked
    columns; a class is unavailable if one of its masked columns cannot be masked. ``filters`` are
    the conditions of classes; ``logged`` has the logged columns of views (15.2), and ``captured``
    the columns that are logged for conditions only. Raises ConfigError for a mask or a filter of a
    table that does not exist.
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
        previous_key,
        captured,
    )
    classes: list[ObjectClass] = []
    for table in parents.values():
        try:
            built = builder.object_class(table, _children(table, able, parents))
            classes.append(filtered_class(masked_class(built, masks), filters, logged))
        except ConfigError as error:
            unavailable[table.name] = error
    former = _former_names(renamed_from, classes, unavailable)
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
    catalog = Catalog(
        database.schema, available, log_names, unavailable, waiting, no_children, bool(masks)
    )
    refuse_unknown_filters(filters, catalog)
    refuse_impossible(masks, catalog, [table.name for table in present])
    return catalog


def _log_names(
    cls: ObjectClass, former: Sequence[str], meta_identifiers: bool
) -> dict[str, LogName]:
    """Return the meanings of the names that rows of the log may have for a class: its name, its
    former names, and the names of its child tables.
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
    renamed_from: NamesByTable,
    classes: Sequence[ObjectClass],
    unavailable: dict[str, EventlogError],
) -> dict[str, str]:
    """Return the class of each former name. Add the classes whose rows cannot be distinguished to
    ``unavailable``.

    If another class or child table has a former name now, a row with this name could belong to
    either class, so both classes wait.
    """
    owners = {name: name for name in (*(cls.name for cls in classes), *unavailable)}
    owners |= {child.table.name: cls.name for cls in classes for child in cls.children}
    former: dict[str, str] = {}
    for name, old_names in renamed_from.items():
        owner = match_name(name, owners) or name
        for old in old_names:
            other = owners.get(old, owner)
            if other != owner:
                clash = ConfigError(
                    f"[[watch]] {owner} has renamed_from = {old!r}, but {old!r} is now a table of "
                    f"the class {other}, so rows of that name may belong to either class. Remove "
                    f"renamed_from once the rows of {owner} under its old name are published, or "
                    "do not watch the other table until then"
                )
                unavailable |= {owner: clash, other: clash}
            else:
                former[old] = owner
    return former


def _former_attributes(cls: ObjectClass, names: Collection[str]) -> dict[str, Attribute]:
    """Return the child attributes by the names that they had before the table of their class was
    renamed. Attributes whose names are not unique are left out.
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
    """Return the tables that are classes, by their names. Add the listed tables that are no classes
    to ``unavailable``.
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
                else f"; if it was renamed, add renamed_from = {name!r} to its [[watch]]"
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
        return (
            f"there is no table or view {name!r} in {database.place}, the only schema that the log "
            f"watches{hint}; correct the name in the configuration{spelled}, or remove "
            "its [[watch]] if the table was dropped"
        )
    root = database.partitions[partition]
    return (
        f"{name!r} is a partition of {root}. Name {root}, "
        "which covers the rows of all its partitions"
    )


def key_columns(table: Table) -> tuple[Column, ...]:
    """Return the key of a table or view (spec/xds.md 5). The key is empty if the table or view
    cannot be a class.
    """
    if table.kind == "view":
        return tuple(column for column in table.columns if column.name[:3].casefold() == "pk_")
    return tuple(table.column(name) for name in table.primary_key)


def _children(
    owner: Table, present: Sequence[Table], parents: Mapping[str, Table]
) -> list[tuple[Table, Column]]:
    """Return the child tables of ``owner`` with their value columns, in code point order of the
    tables' names (spec/xds.md 4.2, 5).
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
    """Return why a table is not a child table although its first foreign key suggests that it is a
    child table. Return None if the foreign key does not suggest this.
    """
    first = table.foreign_keys[0] if table.foreign_keys else None
    owner = None if first is None else parents.get(first.table)
    if first is None or owner is None or set(first.ref_columns) != set(owner.primary_key):
        return None
    values = [column.name for column in table.columns if column.name not in first.columns]
    if len(values) == 1:
        return None
    has = f"columns {', '.join(values)}" if values else "no column"
    return (
        f"it has {has} in addition to its foreign key to {owner.name}; a child table has exactly "
        "one"
    )


@dataclass(frozen=True, slots=True)
class _Builder:
    """Builds classes from the options and tables that all classes of one catalogue share."""

    schema: str | None
    parents: Mapping[str, Table]
    values: ValueOptions
    meta_identifiers: bool
    referential: str
    emit_keys: bool
    exclude: NamesByTable
    previous_key: Mapping[str, Sequence[str]]
    captured: NamesByTable

    def object_class(self, table: Table, children: Sequence[tuple[Table, Column]]) -> ObjectClass:
        key, excluded = key_columns(table), self._excluded(table)
        attributes = []
        only = self.captured.get(table.name, ())
        captured = tuple(logged_only(table.name, one) for one in table.columns if one.name in only)
        for column in table.columns:
            if column.name in excluded or column.name in only:
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
        built = ObjectClass(
            name=table.name,
            table=table,
            key=key,
            attributes=tuple(attributes),
            children=tuple(child_tables),
            canonical_key=_canonicalizer(key),
            check_characters=character_check(self.values),
            association_tail=self._association_tail(table.name),
            captured=captured,
        )
        return replace(built, former=self._former(built))

    def _former(self, cls: ObjectClass) -> ObjectClass | None:
        """Return the class with its former key, or None if the former key is unknown or equals the
        present key.
        """
        watch = match_name(cls.name, self.previous_key)
        present = {column.name: column for column in cls.table.columns}
        named = () if watch is None else self.previous_key[watch]
        # A dropped column has an unknown type, so its value is text.
        columns = tuple(
            Column(name, ColumnType(Kind.OTHER))
            if (match := match_name(name, present)) is None
            else present[match]
            for name in named
        )
        names = {column.name for column in columns}
        if not columns or names == {column.name for column in cls.key}:
            return None
        key = _canonicalizer(columns)
        return replace(cls, key=columns, attributes=(), children=(), captured=(), canonical_key=key)

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
                    f"{table.name!r} cannot be published because of the name {name!r}: {error}"
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
        value_type, is_written = xds_type(column.type, self.values), self.emit_keys or not is_key
        target = self._reference(table, column) if self.referential == "dn" else None
        if not is_written:
            # No output uses the value, so it is not converted (spec/event-log.md 5).
            convert: Converter = str
        elif target is None:
            convert = converter(column.type, self.values)
        else:
            value_type, convert = "dn", self._association_of(target)
        return Attribute(
            name, table.name, column, multi_valued, is_key, value_type, convert, is_written
        )

    def _reference(self, table: Table, column: Column) -> Table | None:
        """Return the class whose whole key a single-column foreign key refers to (spec/xds.md 6.4),
        otherwise None.
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

    def _association_of(self, target: Table) -> Converter:
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


def _canonicalizer(key: Sequence[Column]) -> Canonicalizer:
    return table_key.canonicalizer([(column.name, column.type) for column in key])


_VIEW_KEY = re.compile(r"pk_(?:sv_)?(?:[0-9]+_)?(?:_(?:.+?)__)?(.+)", re.IGNORECASE | re.DOTALL)
_VIEW_REFERENCE = re.compile(r"fk_(sv_|mv_)?(?:[0-9]+_)?_(?:.+?)__(.+)", re.IGNORECASE | re.DOTALL)
_VIEW_VALUE = re.compile(r"(sv_|mv_)(.+)", re.IGNORECASE | re.DOTALL)


def view_name(column_name: str) -> tuple[str, str, bool]:
    """Split the name of a view column by its prefixes (spec/xds.md 5).

    Returns the attr-name, the name without any prefix, and whether the column is multi-valued.
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
    """Return one mapping to attributes for each spelling of a column_name, in the order in which a
    column_name is looked up (spec/xds.md 5).
    """
    attributes = (*cls.attributes, *cls.captured)
    by_name = {attribute.name: attribute for attribute in attributes}
    if not cls.is_view:
        return (by_name,)
    full = {attribute.column.name: attribute for attribute in attributes}
    if not meta_identifiers:
        return (full,)
    bare: dict[str, Attribute] = {}
    for attribute in attributes:
        _, name, _ = view_name(attribute.column.name)
        bare.setdefault(name, attribute)
    return (full, by_name, bare)
