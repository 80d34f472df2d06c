"""Resync on SQLite: a batch of a class, or keys that are given, as query-back rows (spec/event-log.md 11).

A class is walked by keyset: each batch begins behind the last key of the one before, which is kept as canonical
table_key text, and turned back into values here; a view, whose rows may have one key, by the text itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection

from eventlog.core.catalog import ObjectClass
from eventlog.model import LogRow
from eventlog.sql.dialects.sqlite.query_back import key_values
from eventlog.sql.dialects.sqlite.text import UTC_NOW, key_text, quote_identifier
from eventlog.sql.log_table import LogTable
from eventlog.sql.statements import fetch
from eventlog.sql.windows import Batch, Selection

_WRITTEN: Final = ("status", "event_type", "event_time", "perpetrator", "table_name", "table_key")


@dataclass(frozen=True, slots=True)
class Walk:
    """A class to be walked."""

    log: LogTable
    cls: ObjectClass
    selection: Selection


def prepare(_conn: Connection, log: LogTable, _schema: str | None, cls: ObjectClass, selection: Selection) -> Walk:
    """What ``write_batch`` and ``estimate`` need."""
    return Walk(log, cls, selection)


def write_batch(conn: Connection, walk: Walk, position: str | None, limit: int) -> Batch:
    """Log the next ``limit`` objects behind ``position`` (canonical table_key text, None = from the beginning)."""
    text = key_text(walk.cls.key, _references(walk.cls))
    order = "1" if walk.cls.is_view else ", ".join(_references(walk.cls))
    distinct = "DISTINCT " if walk.cls.is_view else ""
    condition, values = _condition(walk, position)
    statement = (
        f"SELECT {distinct}{text} FROM {quote_identifier(walk.cls.name)} WHERE {condition} ORDER BY {order} LIMIT ?"  # noqa: S608
    )
    keys = [key for (key,) in fetch(conn, statement, (*values, limit))]
    write_keys(conn, walk.log, walk.selection, keys)
    return Batch(rows=len(keys), missing=0, position=keys[-1] if keys else position, is_last=len(keys) < limit)


def estimate(conn: Connection, walk: Walk, position: str | None) -> int:
    """How many rows there are behind ``position``. Also tries out the operator's predicate."""
    condition, values = _condition(walk, position)
    statement = f"SELECT count(*) FROM {quote_identifier(walk.cls.name)} WHERE {condition}"  # noqa: S608
    ((rows,),) = fetch(conn, statement, values)
    return int(rows)


def write_keys(conn: Connection, log: LogTable, selection: Selection, keys: Sequence[str]) -> None:
    """Log the objects with these canonical keys, in their order."""
    if not keys:
        return
    names = dict(zip(LogRow._fields, log.columns, strict=True))
    columns = ", ".join(quote_identifier(names[field]) for field in _WRITTEN)
    statement = (
        f"INSERT INTO {quote_identifier(log.name)} ({columns})"  # noqa: S608 - quoted and bound
        f" VALUES ('N', ?, {UTC_NOW}, NULL, ?, ?)"
    )
    conn.exec_driver_sql(statement, [(int(selection.event_type), selection.class_name, key) for key in keys])


def missing_rights(conn: Connection, log: LogTable, _resumable: bool) -> list[str]:
    """What the process may not write, in words."""
    return []


def _condition(walk: Walk, position: str | None) -> tuple[str, tuple[object, ...]]:
    """SQL that holds for what is still to be written, and its values."""
    refs = _references(walk.cls)
    conditions = [f"{ref} IS NOT NULL" for ref in refs]
    values: tuple[object, ...] = ()
    if walk.selection.where is not None:
        # On lines of its own: it may end in a comment.
        conditions.append(f"(\n{walk.selection.where}\n)")
    if position is not None and walk.cls.is_view:
        conditions.append(f"{key_text(walk.cls.key, refs)} > ?")
        values = (position,)
    elif position is not None:
        values = tuple(key_values(walk.cls, position))
        conditions.append(f"({', '.join(refs)}) > ({', '.join('?' * len(values))})")
    return " AND ".join(conditions), values


def _references(cls: ObjectClass) -> list[str]:
    return [quote_identifier(column.name) for column in cls.key]
