"""The table that every form of the loss matrix knows: its columns, its key, and rows to complete changes from."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from eventlog.model import Row, Value

COLUMNS: Final = {
    "id": "integer",
    "code": "varchar(9)",
    "name": "varchar(64)",
    "price": "decimal(9,2)",
    "made": "timestamp",
    "note": "varchar(64)",
}
"""Types that all six formats hold (spec/change-model.md 5.1): what a type loses is no matter of the matrix."""

KEY: Final = ("id", "code")

CATALOG: Final = {
    "dialect": "postgresql",
    "schema": "app",
    "tables": [
        {
            "name": "item",
            "kind": "table",
            "columns": [{"name": name, "type": type} for name, type in COLUMNS.items()],
            "primary_key": list(KEY),
        },
        {
            "name": "item_tag",
            "kind": "table",
            "columns": [{"name": name, "type": COLUMNS[name]} for name in KEY]
            + [{"name": "tag", "type": "varchar(9)"}],
            "primary_key": None,
            "foreign_keys": [{"columns": list(KEY), "table": "item", "ref_columns": list(KEY)}],
        },
    ],
}
"""A table with a key of two columns, and its child table."""

TAGS: Final = "item_tag.tag"
"""The multi-valued attribute that the child table makes."""

LABELS: Final = {"1": "shop:app.item"}
"""What a CDC stream calls the table."""


def complete(schema: str | None, table: str, key: Sequence[tuple[str, Value]] | None) -> Row:
    """The row of a key as it is now: the option ``complete`` of the writers that need whole rows."""
    now: dict[str, Any] = {"name": "now", "price": Decimal("9.99"), "made": datetime(2001, 2, 3), "note": None}
    return {**dict(key or ()), **now}
