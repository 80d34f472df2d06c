"""Keys by which the objects of a class can be read in ranges (spec/verify.md 1.1)."""

from __future__ import annotations

from typing import Any, Final

from eventlog.core.catalog import Column, ObjectClass
from eventlog.core.table_key import parse, quote
from eventlog.core.values import Kind
from eventlog.sql.port.log_operations import INTEGERS, UTF_8, KeyOrder, KeyValues, order_of_values

_LOWEST: Final = -(1 << 63)
# The end of a text precedes whatever else can follow, so that a text precedes those that begin with
# it.
_NUL: Final = "\x00"
_END: Final = _NUL * 2


class OrderedKeys:
    """The keys of a class, as canonical texts and as values: an integer for each integer column, a
    text for each other column.

    ``orders`` are the orders of the values in Python and SQLite.
    """

    def __init__(self, cls: ObjectClass, orders: tuple[KeyOrder, ...]) -> None:
        self.width = len(cls.key)
        self.orders = orders
        self._columns = [
            (column.name, order) for column, order in zip(cls.key, orders, strict=True)
        ]
        self._starts = [(f"{quote(name)}=", order == UTF_8) for name, order in self._columns]
        self._only = self._starts[0][0] if orders == (INTEGERS,) else None
        """The text before the value in a key of one integer column."""

    def text_of(self, values: KeyValues) -> str:
        """Return the canonical key of the values with which ``values`` begins."""
        if self._only is not None:
            return f"{self._only}{values[0]}"
        return "+".join(
            [
                # Integers and UUIDs need no quotes.
                f"{start}{quote(value) if is_text else value}"
                for (start, is_text), value in zip(self._starts, values, strict=False)
            ]
        )

    def values_of(self, key: str) -> KeyValues:
        """Return the values of a canonical key."""
        if self._only is not None:
            return (int(key[len(self._only) :]),)
        texts = {part.name: part.value for part in parse(key)}
        return tuple(
            [
                int(texts[name]) if order == INTEGERS else texts[name]
                for name, order in self._columns
            ]
        )

    def place_of(self, values: KeyValues) -> Any:
        """Return an integer or a text that sorts as ``orders`` sort the values."""
        if self.width == 1:
            return values[0]
        return "".join(
            [
                f"{value - _LOWEST:016x}"
                if order == INTEGERS
                else value.replace(_NUL, f"{_NUL}\x01") + _END
                for (_, order), value in zip(self._columns, values, strict=False)
            ]
        )


def ordered_keys(cls: ObjectClass) -> OrderedKeys | None:
    """Return the keys of a class; None if ranges of its keys are not supported."""
    orders = tuple(order for column in cls.key if (order := _order(column)) is not None)
    return OrderedKeys(cls, orders) if len(orders) == len(cls.key) else None


def _order(column: Column) -> KeyOrder | None:
    return UTF_8 if column.type.kind is Kind.CHARACTER else order_of_values(column)
