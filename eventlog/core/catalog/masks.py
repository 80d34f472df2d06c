"""Masks: columns whose values a reader sees in another form (spec/event-log.md 15.1).

A mask acts on the text of the log and returns the text that stands for it, or None for NULL. Values
enter a reader in two places, with a row of the log (``rows.checks``) and with the current row of an
object (``OpenDatabase.query_back``). In both places they are masked, so all later code has masked
texts only: no format, message or report needs a rule about masks.
"""

from __future__ import annotations

import hmac
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple, TypeAlias

from eventlog.core.catalog import (
    Attribute,
    Catalog,
    ChildTable,
    Column,
    ObjectClass,
    Table,
    match_name,
)
from eventlog.core.values import ColumnType, Kind
from eventlog.errors import BadValue, ConfigError, first_of
from eventlog.model import ALL, All, LogRow, Names

Mask: TypeAlias = Callable[[str], str | None]
"""A function from the text of a value to the text that stands for it; None = NULL."""

HASH: Final = "hash"
REDACT: Final = "redact"
NULL: Final = "null"
LAST: Final = "last"

REDACTED: Final = "***"
"""The text of ``redact``, and the beginning of the texts of ``last``."""
_KEPT: Final = 4
_SHORT: Final = 8
"""``last`` keeps ``_KEPT`` characters of texts with more than ``_SHORT``."""
_TEXT: Final = ColumnType(Kind.CHARACTER, 0, "text")
"""The type of a masked column, as formats see it."""


@dataclass(frozen=True, slots=True)
class MaskedColumns:
    """A ``[[mask]]``: how columns of a table, of a child table or of a view are masked. ``secret``
    is the key of ``hash``. With ``salt_by_column`` each column has a key that is derived from it.
    ``plain`` are generated columns that may show the masked values.
    """

    table: str
    columns: Names
    how: str
    secret: str = ""
    salt_by_column: bool = False
    plain: Names = ()

    @property
    def form(self) -> str:
        """The form of the masked values, as the record of the reader has it."""
        return f"{self.how} salt_by_column" if self.salt_by_column else self.how

    def mask_of(self, attribute: Attribute) -> Mask:
        """Return the function that masks the values of an attribute."""
        if self.how != HASH:
            return {REDACT: _redact, NULL: _null, LAST: _last}[self.how]
        key = self.secret.encode()
        if self.salt_by_column:
            column = f"{attribute.table}\0{attribute.column.name}"
            key = hmac.digest(key, column.encode(), "sha256")
        return _hash_under(key)


def _hash_under(key: bytes) -> Mask:

    def mask(text: str) -> str:
        # A byte that is no character of the database's encoding is an unpaired surrogate.
        return hmac.digest(key, text.encode("utf-8", "surrogatepass"), "sha256").hex()

    return mask


def _redact(text: str) -> str:
    return REDACTED


def _null(text: str) -> None:
    return None


def _last(text: str) -> str:
    kept = text[-_KEPT:] if len(text) > _SHORT else ""
    # Every format can hold printable characters, so no mask can fail.
    return REDACTED + (kept if kept.isprintable() else "")


# --- classes --------------------------------------------------------------------------------------


def masked_class(cls: ObjectClass, masks: Sequence[MaskedColumns]) -> ObjectClass:
    """Return the class as formats see it, in which masked attributes are texts. Raises ConfigError
    for a column that does not exist or that cannot be masked.
    """
    changed: dict[Attribute, Attribute] = {}
    for one in masks:
        for table in _tables_of(cls):
            if match_name(one.table, (table,)) is not None:
                changed |= {
                    attribute: _masked(cls, attribute, one)
                    for attribute in _attributes(cls, table, one.columns)
                }
    if not changed:
        return cls
    columns = {(attribute.table, attribute.column.name) for attribute in changed}
    return replace(
        cls,
        table=_with_texts(cls.table, columns),
        attributes=tuple(changed.get(one, one) for one in cls.attributes),
        children=tuple(
            ChildTable(
                _with_texts(child.table, columns),
                child.owner_columns,
                changed.get(child.attribute, child.attribute),
            )
            for child in cls.children
        ),
        stored=cls,
    )


def refuse_impossible(
    masks: Sequence[MaskedColumns], catalog: Catalog, present: Sequence[str]
) -> None:
    """Raise ConfigError for a hash without a key, and for a mask whose table is neither a class nor
    a child table: without this check, a renamed table would be sent without its mask. ``present``
    are the tables of the database. While a class is unavailable, any of these tables may be its
    child table.
    """
    known = [*catalog.log_names, *catalog.unavailable]
    if catalog.unavailable:
        known += present
    for one in masks:
        if one.how == HASH and not one.secret:
            raise ConfigError(
                f'[[mask]] {one.table} with how = "hash" needs a key: set '
                "EVENTLOG_FORMAT_MASK_SECRET, or mask_secret_file in [format]"
            )
        if match_name(one.table, known) is None:
            classes = first_of(sorted({*catalog.log_names, *catalog.unavailable}), 10)
            raise ConfigError(
                f"[[mask]] {one.table}: this is neither a watched table or view nor a child table "
                f"of one. A renamed table would be sent without its mask. Name one of "
                f"{classes or 'the watched tables'}, or remove the mask"
            )


def _tables_of(cls: ObjectClass) -> list[str]:
    return [cls.name, *(child.table.name for child in cls.children)]


def _attributes(cls: ObjectClass, table: str, columns: Sequence[str]) -> list[Attribute]:
    """Return the attributes that these columns of a table have in the class. Raises ConfigError."""
    by_name = {one.name: one for one in cls.attributes if one.table == table}
    by_name |= {one.column.name: one for one in by_name.values()}
    keys = [column.name for column in cls.key]
    found = []
    for name in columns:
        match = match_name(name, by_name)
        if match is None and table == cls.name and match_name(name, keys) is None:
            raise ConfigError(
                f"[[mask]] {table}: {name!r} is not a column that is published. A renamed column "
                "would be sent without its mask. Correct the name, or remove it from the mask"
            )
        if match is None:
            raise ConfigError(
                f"[[mask]] {table}: {name!r} is not the column with the values of this child table"
            )
        found.append(by_name[match])
    return found


def _masked(cls: ObjectClass, attribute: Attribute, one: MaskedColumns) -> Attribute:
    place = f"[[mask]] {attribute.table}: {attribute.column.name!r}"
    if attribute.is_key or attribute.column.name in (column.name for column in cls.key):
        raise ConfigError(f"{place} is part of the object's key; remove the column from the mask")
    if attribute.value_type == "dn":
        raise ConfigError(
            f'{place} is sent as the key of another object (referential = "dn"). Remove the '
            'column from the mask, or set referential = "value" in [format]'
        )
    if attribute.multi_valued and one.how in (REDACT, LAST):
        raise ConfigError(
            f"{place} has several values for one object, and how = {one.how!r} makes different "
            "values alike, so that removing one would remove the others. Use hash or null"
        )
    return replace(
        attribute,
        column=Column(attribute.column.name, _TEXT),
        value_type="string",
        convert=str,
        mask=one.mask_of(attribute),
        stored=attribute,
    )


def _with_texts(table: Table, columns: set[tuple[str, str]]) -> Table:
    return replace(
        table,
        columns=tuple(
            Column(column.name, _TEXT) if (table.name, column.name) in columns else column
            for column in table.columns
        ),
    )


# --- generated columns ----------------------------------------------------------------------------


class Shown(NamedTuple):
    """A generated column that shows a masked value (spec/event-log.md 15.1)."""

    table: str
    column: str
    masked: str
    """The masked column, as the database spells it. ``form`` is the form of its mask."""
    form: str

    def __str__(self) -> str:
        return (
            f"[[mask]] {self.table}: the generated column {self.column!r} shows what the mask of "
            f"{self.masked!r} hides. Mask it too, or exclude it in the [[watch]]; if the receiver "
            "may see it, name it in plain of the mask"
        )


def shown_columns(
    catalog: Catalog, masks: Sequence[MaskedColumns], generated: Iterable[tuple[str, str, str]]
) -> dict[str, list[Shown]]:
    """Return, by class, the generated columns that show masked values. ``generated`` has the table
    and name of each generated column with a column that its expression names.
    """
    sources: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for table, column, source in generated:
        sources[table, column].add(source)
    plain = {
        (table, match)
        for one in masks
        for table in {table for table, _ in sources}
        if match_name(one.table, (table,)) is not None
        for name in one.plain
        if (match := match_name(name, [column for of, column in sources if of == table]))
    }
    found: defaultdict[str, list[Shown]] = defaultdict(list)
    for cls in catalog.classes:
        masked = {
            (one.table, one.column.name): _form_of(masks, one)
            for one in cls.attributes
            if one.mask is not None
        }
        for one in cls.attributes:
            place = one.table, one.column.name
            if place in sources and place not in masked and place not in plain:
                found[cls.name] += (
                    Shown(*place, name, masked[one.table, name])
                    for name in sorted(_all_sources(place, sources))
                    if (one.table, name) in masked
                )
    return {name: shown for name, shown in found.items() if shown}


def _form_of(masks: Sequence[MaskedColumns], column: Attribute) -> str:
    """Return the form of the mask of a masked column."""
    names = (column.column.name, column.name)
    for one in masks:
        if match_name(one.table, (column.table,)) is not None and any(
            match_name(name, names) is not None for name in one.columns
        ):
            return one.form
    return ""


def _all_sources(place: tuple[str, str], sources: Mapping[tuple[str, str], set[str]]) -> set[str]:
    """Return the columns from whose values a generated column is computed, also by others."""
    table, column = place
    found, rest = set[str](), [column]
    while rest:
        new = sources.get((table, rest.pop()), set()) - found
        found |= new
        rest += new
    return found


# --- values ---------------------------------------------------------------------------------------


def told_apart(removed: str | None) -> tuple[str] | Literal[All.ALL]:
    """Return what replaces the old value of a change if the masked texts of both values are equal,
    so that the change is not ignored: a tuple with the masked text, or ``ALL`` for NULL.
    """
    return ALL if removed is None else (removed,)


def masked_rows(
    rows: Mapping[str, Mapping[str, Sequence[str | None]]], attributes: Sequence[Attribute]
) -> dict[str, dict[str, Sequence[str | None]]]:
    """Return current rows by key, in which these attributes are masked."""
    masks = {one.name: one.mask for one in attributes if one.mask is not None}
    return {
        key: {
            name: _masked_texts(masks[name], texts) if name in masks else texts
            for name, texts in row.items()
        }
        for key, row in rows.items()
    }


def _masked_texts(mask: Mask, texts: Sequence[str | None]) -> Sequence[str | None]:
    try:
        return [None if text is None else mask(text) for text in texts]
    except BadValue:  # values that could not be read, which raise whenever they are used
        return texts


def shown_row(row: LogRow, catalog: Catalog) -> LogRow:
    """Return a row of the log as this reader may show it. If the catalogue has masks, ``REDACTED``
    replaces the values of a row that cannot be assigned to a column.
    """
    if row.old_value is None and row.new_value is None:
        return row
    name = catalog.log_name(row.table_name) if row.table_name else None
    attribute = name.attribute(row.column_name) if name and row.column_name else None
    unknown = _redact if catalog.has_masks else None
    mask = unknown if attribute is None else attribute.mask
    if mask is None:
        return row
    old, new = (None if one is None else mask(one) for one in (row.old_value, row.new_value))
    return row._replace(old_value=old, new_value=new)
