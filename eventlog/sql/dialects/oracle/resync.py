"""Objects written into the log once more (spec/event-log.md 11): how their keys are read in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eventlog.core import table_key
from eventlog.core.catalog import ObjectClass
from eventlog.sql.dialects.oracle.query_back import bound, by_text, log_text, selected
from eventlog.sql.dialects.oracle.text import key_value, qualified, quote_identifier
from eventlog.sql.windows import Walk


def keys_statement(walk: Walk, condition: str) -> str:
    """The statement that reads the next keys."""
    key, refs = walk.cls.key, references(walk)
    texts = ", ".join(
        f"{selected(column, ref, is_key=True)} AS t{i}" for i, (column, ref) in enumerate(zip(key, refs, strict=True))
    )
    order = ", ".join(f"{value} AS o{i}" for i, value in enumerate(_ordered(walk)))
    places = ", ".join(f"o{i}" for i in range(len(key)))
    wanted = ", ".join(f"t{i}" for i in range(len(key)))
    distinct = "DISTINCT " if walk.cls.is_view else ""
    return (
        f"SELECT {wanted} FROM (SELECT {distinct}{texts}, {order} FROM {qualified(walk.schema, walk.cls.table.name)} p"  # noqa: S608
        f" WHERE {condition} ORDER BY {places}) WHERE ROWNUM <= :limit"
    )


def references(walk: Walk) -> list[str]:
    """SQL of the key columns."""
    return [f"p.{quote_identifier(column.name)}" for column in walk.cls.key]


def _ordered(walk: Walk) -> list[str]:
    return [
        key_value(column, ref) if by_text(column) else ref
        for column, ref in zip(walk.cls.key, references(walk), strict=True)
    ]


def behind(walk: Walk) -> str:
    """SQL: the row's key comes after the position, whose values are bound; Oracle orders no row values."""
    refs = _ordered(walk)
    binds = [bound(column, f":k{i}") for i, column in enumerate(walk.cls.key)]
    pairs = list(zip(refs, binds, strict=True))
    steps = [
        " AND ".join([*(f"{ref} = {bind}" for ref, bind in pairs[:i]), f"{pairs[i][0]} > {pairs[i][1]}"])
        for i in range(len(pairs))
    ]
    return "(" + " OR ".join(f"({step})" for step in steps) + ")"


def key_text(cls: ObjectClass, row: Sequence[Any]) -> str:
    """The canonical key of a row that ``keys_statement`` reads."""
    pairs = zip(cls.key, row, strict=True)
    return "+".join(
        f"{table_key.quote(column.name)}={table_key.quote(log_text(column, value) or '')}" for column, value in pairs
    )
