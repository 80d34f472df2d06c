"""Keys that every database and Python sort alike, so that the objects of a class can be read by
ranges of keys (spec/verify.md 1.1).
"""

from __future__ import annotations

from typing import Any, Final

from eventlog.core.catalog import ObjectClass
from eventlog.core.table_key import parse, quote
from eventlog.core.values import Kind
from eventlog.sql.windows import KeyValues, is_ordered

_LOWEST: Final = -(1 << 63)


class OrderedKeys:
    """The keys of a class, as texts and as values: an integer for each integer column, the text of
    a UUID for each other column.
    """

    def __init__(self, cls: ObjectClass) -> None:
        self.width = len(cls.key)
        self._columns = [(column.name, column.type.kind is Kind.INTEGER) for column in cls.key]
        # The values are integers and UUIDs, which need no quotes.
        self._starts = [f"{quote(column.name)}=" for column in cls.key]
        is_single = len(self._columns) == 1 and self._columns[0][1]
        self._only = self._starts[0] if is_single else None
        """What precedes the value in a key of one integer column."""

    def text_of(self, values: KeyValues) -> str:
        """Return the canonical key of values, which may be followed by others."""
        if self._only is not None:
            return f"{self._only}{values[0]}"
        return "+".join(
            [f"{start}{value}" for start, value in zip(self._starts, values, strict=False)]
        )

    def values_of(self, key: str) -> KeyValues:
        """Return the values of a canonical key."""
        if self._only is not None:
            return (int(key[len(self._only) :]),)
        texts = {part.name: part.value for part in parse(key)}
        return tuple(
            [int(texts[name]) if is_number else texts[name] for name, is_number in self._columns]
        )

    def place_of(self, values: KeyValues) -> Any:
        """Return an integer or a text that is sorted like the values."""
        if self._only is not None:
            return values[0]
        return "".join(
            [f"{v - _LOWEST:016x}" if isinstance(v, int) else v for v in values[: self.width]]
        )


def ordered_keys(cls: ObjectClass) -> OrderedKeys | None:
    """Return the keys of a class; None if they have no order that is the same everywhere."""
    return OrderedKeys(cls) if all(map(is_ordered, cls.key)) else None
