"""Filters: the objects of a class that exist for a reader (spec/event-log.md 15.2).

The condition of a filter is SQL. The database evaluates it in the statement that reads an object
back; nothing in this module parses it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from eventlog.core.catalog import Attribute, Catalog, Column, ObjectClass, match_name
from eventlog.core.values import ColumnType, Kind
from eventlog.errors import ConfigError, first_of

_MATCHES: Final = "eventlog matches"
MATCHES: Final = Attribute(
    name=_MATCHES,
    table="",
    column=Column(_MATCHES, ColumnType(Kind.INTEGER, 32, "integer")),
    multi_valued=False,
    is_key=False,
    value_type="int",
    convert=str,
    is_written=False,
)
"""The attribute that shows whether a row exists for the reader: 1 if it does; 0 if the condition of
the class is not true for the row; 2 if the row is in a view's main table (spec/event-log.md 15.4).
"""


@dataclass(frozen=True, slots=True)
class Filter:
    """A ``[[filter]]``: the condition of the objects of a table or view. ``changes`` is False if no
    column of the condition ever changes.
    """

    table: str
    where: str
    changes: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """The condition of a class. ``columns`` are the columns that it may name: the key, and the
    columns whose changes are logged.
    """

    where: str
    changes: bool
    columns: tuple[Column, ...]


def filtered_class(
    cls: ObjectClass, filters: Sequence[Filter], logged: Mapping[str, Sequence[str]]
) -> ObjectClass:
    """Return the class with the condition of its filter, unchanged if no filter names it.

    ``logged`` has, for each view, the columns that its watch logs. The logged columns of a table
    are its attributes.
    """
    own = [one for one in filters if match_name(one.table, (cls.name,)) is not None]
    if not own:
        return cls
    (chosen,) = own
    names = {column.name for column in cls.key}
    attributes = (*cls.attributes, *cls.captured)
    names |= {one.column.name for one in attributes if one.table == cls.name}
    if cls.name in logged:
        names &= {column.name for column in cls.key} | set(logged[cls.name])
    # The types of masked columns do not matter to the database.
    columns = tuple(column for column in cls.table.columns if column.name in names)
    condition = Condition(chosen.where, chosen.changes, columns)
    stored = None if cls.stored is None else replace(cls.stored, condition=condition)
    return replace(cls, condition=condition, stored=stored)


def refuse_unknown_filters(filters: Sequence[Filter], catalog: Catalog) -> None:
    """Raise ConfigError for a filter whose table is no class: without this check, a renamed table
    would be sent without its filter.
    """
    names = {cls.name for cls in catalog.classes} | catalog.unavailable.keys()
    for one in filters:
        if match_name(one.table, names) is None:
            raise ConfigError(
                f"[[filter]] {one.table}: this is not a watched table or view. A renamed "
                "table would be sent without its filter. Name one of "
                f"{first_of(sorted(names), 10) or 'the watched tables'}, or remove the filter"
            )


def digest_of(filters: Iterable[Filter]) -> str:
    """Return a text that differs for different filters. Without filters, the text is empty."""
    parts = sorted((one.table, one.where, one.changes) for one in filters)
    if not parts:
        return ""
    return hashlib.sha256(json.dumps(parts, ensure_ascii=True).encode()).hexdigest()[:32]
