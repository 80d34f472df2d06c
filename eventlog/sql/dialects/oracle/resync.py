"""Objects written into the log once more (spec/event-log.md 11): keys are read in order, rows written in arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from eventlog.core import table_key
from eventlog.core.catalog import ObjectClass
from eventlog.core.values import Kind
from eventlog.model import LogRow
from eventlog.sql.dialects.oracle.query_back import bound, by_text, key_reader, log_text, selected
from eventlog.sql.dialects.oracle.session import fetch, lacking
from eventlog.sql.dialects.oracle.text import key_value, qualified, quote_identifier
from eventlog.sql.log_table import LogTable
from eventlog.sql.statements import run_many
from eventlog.sql.windows import Batch, Selection


@dataclass(frozen=True, slots=True)
class Walk:
    """A class to be walked."""

    log: LogTable
    schema: str | None
    cls: ObjectClass
    selection: Selection


def prepare(conn: Connection, log: LogTable, schema: str | None, cls: ObjectClass, selection: Selection) -> Walk:
    """What ``write_batch`` and ``estimate`` need."""
    return Walk(log, schema, cls, selection)


def write_batch(conn: Connection, walk: Walk, position: str | None, limit: int) -> Batch:
    """Log the next ``limit`` objects behind ``position`` (canonical table_key text, None = from the beginning)."""
    rows = fetch(
        conn, keys_statement(walk, goes_on=position is not None), {**_position(walk, position), "limit": limit}
    )
    keys = [_key_text(walk.cls, row) for row in rows]
    write_keys(conn, walk.log, walk.selection, keys)
    return Batch(rows=len(keys), missing=0, position=keys[-1] if keys else position, is_last=len(keys) < limit)


def estimate(conn: Connection, walk: Walk, position: str | None) -> int:
    """How many objects there are behind ``position``. Also tries out the operator's predicate."""
    condition = _condition(walk, goes_on=position is not None)
    statement = f"SELECT COUNT(*) FROM {_relation(walk)} p WHERE {condition}"  # noqa: S608 - the operator's own predicate
    return int(fetch(conn, statement, _position(walk, position))[0][0])


def write_keys(conn: Connection, log: LogTable, selection: Selection, keys: Sequence[str]) -> None:
    """Log the objects with these canonical keys, in their order."""
    row = {"event_type": int(selection.event_type), "class_name": selection.class_name}
    run_many(conn, insert_statement(log), [{**row, "table_key": key} for key in keys])


def missing_rights(conn: Connection, log: LogTable, resumable: bool) -> list[str]:
    """The rights that this session's user lacks for a resync, in words. ``resumable``: it keeps its position."""
    missing = lacking(conn, log, log.name, ("INSERT",), log.columns[LogRow._fields.index("status")])
    if resumable:
        missing += lacking(conn, log, log.resync_table, ("SELECT", "INSERT", "UPDATE", "DELETE"), "POSITION")
    return missing


# --- statements -------------------------------------------------------------------------------------------------------


def insert_statement(log: LogTable) -> str:
    """The statement that writes a query-back row."""
    columns = dict(zip(LogRow._fields, map(quote_identifier, log.columns), strict=True))
    is_zoned = bool(log.types) and log.types[LogRow._fields.index("event_time")].kind is Kind.TIMESTAMPTZ
    # No perpetrator: somebody else, so that the rows are never taken for loopback (spec/event-log.md 8.3).
    written = ", ".join(columns[field] for field in ("status", "event_type", "event_time", "table_name", "table_key"))
    now = "SYSTIMESTAMP" if is_zoned else "SYS_EXTRACT_UTC(SYSTIMESTAMP)"
    table = qualified(log.schema, log.name)
    return f"INSERT INTO {table} ({written}) VALUES ('N', :event_type, {now}, :class_name, :table_key)"  # noqa: S608


def keys_statement(walk: Walk, *, goes_on: bool) -> str:
    """The statement that reads the next keys. The operator's predicate stands in brackets of its own."""
    key, relation = walk.cls.key, _relation(walk)
    refs = _references(walk)
    texts = ", ".join(
        f"{selected(column, ref, is_key=True)} AS t{i}" for i, (column, ref) in enumerate(zip(key, refs, strict=True))
    )
    order = ", ".join(f"{value} AS o{i}" for i, value in enumerate(_ordered(walk)))
    places = ", ".join(f"o{i}" for i in range(len(key)))
    wanted = ", ".join(f"t{i}" for i in range(len(key)))
    distinct = "DISTINCT " if walk.cls.is_view else ""
    return (
        f"SELECT {wanted} FROM (SELECT {distinct}{texts}, {order} FROM {relation} p"  # noqa: S608 - as above
        f" WHERE {_condition(walk, goes_on=goes_on)} ORDER BY {places}) WHERE ROWNUM <= :limit"
    )


def _relation(walk: Walk) -> str:
    return qualified(walk.schema, walk.cls.table.name)


def _references(walk: Walk) -> list[str]:
    return [f"p.{quote_identifier(column.name)}" for column in walk.cls.key]


def _ordered(walk: Walk) -> list[str]:
    return [
        key_value(column, ref) if by_text(column) else ref
        for column, ref in zip(walk.cls.key, _references(walk), strict=True)
    ]


def _condition(walk: Walk, *, goes_on: bool) -> str:
    conditions = []
    if walk.selection.where is not None:
        # On lines of its own: it may end in a comment.
        conditions.append(f"(\n{walk.selection.where}\n)")
    if walk.cls.is_view:
        conditions += [f"{ref} IS NOT NULL" for ref in _references(walk)]
    if goes_on:
        conditions.append(_behind(walk))
    return " AND ".join(conditions) or "1 = 1"


def _behind(walk: Walk) -> str:
    """SQL: the row's key comes after the position, whose values are bound; Oracle orders no row values."""
    refs = _ordered(walk)
    binds = [bound(column, f":k{i}") for i, column in enumerate(walk.cls.key)]
    pairs = list(zip(refs, binds, strict=True))
    steps = [
        " AND ".join([*(f"{ref} = {bind}" for ref, bind in pairs[:i]), f"{pairs[i][0]} > {pairs[i][1]}"])
        for i in range(len(pairs))
    ]
    return "(" + " OR ".join(f"({step})" for step in steps) + ")"


def _position(walk: Walk, position: str | None) -> Mapping[str, object]:
    if position is None:
        return {}
    parts = {part.name: part.value for part in table_key.parse(position)}
    return {f"k{i}": key_reader(column)(parts[column.name]) for i, column in enumerate(walk.cls.key)}


def _key_text(cls: ObjectClass, row: Sequence[Any]) -> str:
    pairs = zip(cls.key, row, strict=True)
    return "+".join(
        f"{table_key.quote(column.name)}={table_key.quote(log_text(column, value) or '')}" for column, value in pairs
    )
