"""Ranges of keys in SQLite, which the product reads in other databases only: so that a verification
with ranges can be simulated.

The statement of the keys is of this module; their values are read as the product reads them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from eventlog.core.catalog import Attribute, ObjectClass
from eventlog.sql.dialects.sqlite.database import SQLiteDatabase
from eventlog.sql.port.log_operations import UTF_8, KeyOrder, KeyValues, RangeReader
from eventlog.verify.ordered_keys import ordered_keys

REVERSED: KeyOrder = "bytes of UTF-8, the last first"
"""The order of texts in a database that sorts them otherwise than the log's."""

REVERSING = "reversed"
"""What the file of such a database has in its name."""


class WithRanges(SQLiteDatabase):
    """A database whose objects can be read by ranges of keys."""

    @property
    def order_of_texts(self) -> KeyOrder:
        """The order of texts, by the name of the file."""
        return REVERSED if REVERSING in str(self.connection.engine.url.database) else UTF_8

    def read_ranges(
        self, schema: str | None, cls: ObjectClass, attributes: Sequence[Attribute]
    ) -> RangeReader | None:
        keys = ordered_keys(cls)
        if keys is None or cls.is_view:
            return None
        orders = tuple(self.order_of_texts if one == UTF_8 else one for one in keys.orders)
        is_reversed = orders == (REVERSED,)
        if REVERSED in orders and not is_reversed:
            return None  # a key of several columns has one direction in this module

        def find(wanted: Sequence[KeyValues]) -> list[tuple[Any, ...]]:
            texts = list(map(keys.text_of, wanted))
            found = self.query_back(schema, cls, texts, attributes)
            return [
                (*key, *(found[text][one.name][0] for one in attributes))
                for key, text in zip(wanted, texts, strict=True)
                if text in found
            ]

        def read(
            behind: KeyValues | None, last: KeyValues | None, limit: int
        ) -> list[tuple[Any, ...]]:
            columns = ", ".join(f'"{column.name}"' for column in cls.key)
            marks = ", ".join("?" for _ in cls.key)
            later, until, way = ("<", ">=", " DESC") if is_reversed else (">", "<=", "")
            conditions = [
                f"({columns}) {operator} ({marks})"
                for operator, bound in ((later, behind), (until, last))
                if bound is not None
            ]
            rows = self.connection.exec_driver_sql(
                f'SELECT {columns} FROM "{cls.table.name}" WHERE {" AND ".join(conditions) or "1"} '
                f"ORDER BY {', '.join(f'{one}{way}' for one in columns.split(', '))} LIMIT {limit}",
                (*(behind or ()), *(last or ())),
            ).all()
            there = [tuple(row) for row in rows]
            by_key = {row[: keys.width]: row for row in find(list(dict.fromkeys(there)))}
            return [by_key[key] for key in there]

        def present(wanted: Sequence[KeyValues]) -> Collection[KeyValues]:
            texts = {keys.text_of(key): key for key in wanted}
            return [texts[text] for text in self.query_back(schema, cls, list(texts), ())]

        return RangeReader(orders, read, find, present)


__all__ = ["REVERSING", "WithRanges"]
