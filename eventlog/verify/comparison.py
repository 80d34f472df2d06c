"""Compare two rows of one object, column by column (spec/verify.md 3).

Most values have the same text on both sides. Only values whose texts differ are parsed and
normalized, so that equal values have equal texts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from eventlog.core.catalog import Attribute
from eventlog.core.values import (
    ColumnType,
    Kind,
    is_money,
    key_normalizer,
    money_numbers,
    without_host_mask,
)
from eventlog.core.values.typed_values import to_text, value_reader
from eventlog.errors import BadValue, RowError

Texts: TypeAlias = Sequence[str | None]
"""The values of an attribute as texts of the log. An empty tuple, or None as the only value, means
NULL.
"""

TargetRow: TypeAlias = Mapping[str, Texts]
"""The values of an object in a target by attribute; the value of a missing attribute is unknown."""

UNKNOWN: Final = False
"""The entry of an attribute whose value is unknown."""

SEVERAL: Final = True
"""The only entry of an object that has several rows in the target."""

SEVERAL_ROWS: Final[TargetRow] = MappingProxyType({})
"""The row of an object that has several rows in the target. Compare this row by identity."""

Entry: TypeAlias = str | list[str | None] | bool | None
"""The value of an attribute in a sequence of an object's values: its text, None for NULL, a list of
several values, ``UNKNOWN`` or ``SEVERAL``.
"""


RangeRow: TypeAlias = tuple[Any, ...]
"""An object as ``ReadRange`` returns it: the values of its key, then the entries of its attributes.
"""


def row_of_entries(names: Iterable[str], entries: Sequence[Entry]) -> TargetRow:
    """Return the values of an object by attribute. ``entries`` has the values in the order of
    ``names``.
    """
    if len(entries) == 1 and entries[0] is SEVERAL:
        return SEVERAL_ROWS
    return {
        name: entry if isinstance(entry, list) else [entry]
        for name, entry in zip(names, entries, strict=True)
        if not isinstance(entry, bool)  # UNKNOWN
    }


Shown: TypeAlias = str | list[str] | None
"""A value in a report: its text, a list of texts, or None for NULL."""


class ColumnDifference(NamedTuple):
    """A column with different values."""

    column: str
    source: Shown
    target: Shown
    is_unknown: bool = False
    """True if the target does not show the value of the column."""


StoredAs: TypeAlias = Callable[[str], str | None]
"""A function from the text of a value to the text that the target stores for it; None = NULL."""


@dataclass(slots=True)
class Comparison:
    """The comparison of the objects of a class with the rows of a target.

    ``stored_as`` has a function for each attribute whose values the target may store in another
    form. ``losses`` collects the columns in which the target has changed values by design.
    """

    attributes: Sequence[Attribute]
    stored_as: Mapping[str, StoredAs] = field(default_factory=dict)
    losses: dict[str, None] = field(default_factory=dict)

    def differences(self, source: Mapping[str, Texts], target: TargetRow) -> list[ColumnDifference]:
        """Return the columns of an object that have different values."""
        found = []
        for attribute in self.attributes:
            name = attribute.name
            here, there = source.get(name, ()), target.get(name)
            if there is not None and (here == there or self._are_equal(attribute, here, there)):
                continue
            found.append(
                ColumnDifference(name, _shown(here), _shown(there or ()), is_unknown=there is None)
            )
        return found

    def _are_equal(self, attribute: Attribute, here: Texts, there: Texts) -> bool:
        name = attribute.name
        as_stored = self.stored_as.get(name)
        if as_stored is not None and name in self.losses and len(here) == len(there) == 1:
            # Nearly all values of the column are stored in another form, and it is listed already.
            (text,) = here
            if text is not None and [as_stored(text)] == list(there):
                return True
        normal = normalizer(attribute.column.type)
        wanted, there_normal = _normalized(here, normal), _normalized(there, normal)
        if not attribute.multi_valued and len(wanted) > 1:
            # A view may have several rows for one object: the first value counts
            # (spec/xds.md 4.3).
            wanted = wanted[:1]
        if wanted == there_normal:
            return True
        if as_stored is None:
            return False
        can_be = [text for one in here if one is not None if (text := as_stored(one)) is not None]
        if _normalized(can_be, normal) != there_normal:
            return False
        self.losses[name] = None
        return True


def _normalized(texts: Texts, normal: Callable[[str], str]) -> list[str]:
    return sorted({normal(text) for text in texts if text is not None})


def _shown(texts: Texts) -> Shown:
    values = sorted({text for text in texts if text is not None})
    if len(values) > 1:
        return values
    return values[0] if values else None


@lru_cache(maxsize=4096)
def normalizer(type: ColumnType) -> Callable[[str], str]:
    """Return the function that normalizes the text of a column's value, so that equal values have
    equal texts (spec/verify.md 3.1).

    A text that is not a value of the type stays unchanged.
    """
    normal = _normalizer(type)

    def normalize(text: str) -> str:
        try:
            return normal(text)
        except (RowError, ValueError, ArithmeticError):
            return text

    return normalize


def _normalizer(type: ColumnType) -> Callable[[str], str]:
    if type.kind in (Kind.INTEGER, Kind.EXACT):
        of_number = key_normalizer(ColumnType(Kind.EXACT, special=True))

        def number(text: str) -> str:
            try:
                return of_number(text)
            except BadValue:  # an exponent follows
                return of_number(format(Decimal(text), "f"))

        return number
    if type.kind is Kind.OTHER and type.sql.lower() in ("json", "jsonb"):
        return _json_text
    if type.sql.lower() == "inet":
        return without_host_mask
    if is_money(type):
        return lambda text: money_numbers(text, type.point)
    if type.kind in (Kind.CHARACTER, Kind.OTHER):
        return str
    if type.kind is Kind.UUID:
        return key_normalizer(type)
    read = value_reader(type)
    return lambda text: to_text(read(text))


def _json_text(text: str) -> str:
    value = json.loads(text, parse_float=Decimal)
    return json.dumps(value, sort_keys=True, default=lambda one: format(one.normalize(), "f"))
