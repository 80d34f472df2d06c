"""Resync on PostgreSQL: a batch of a class, or keys that are given, as query-back rows (spec/event-log.md 11).

A class is walked by keyset: each batch begins behind the last key of the one before, which is kept as canonical
table_key text, and turned back into values here. The statement is resync.sql.j2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final, LiteralString

from sqlalchemy import Connection

from eventlog.core import table_key
from eventlog.core.catalog import Column, ObjectClass
from eventlog.core.values import Kind
from eventlog.model import LogRow
from eventlog.sql.dialects.postgresql.compile import render_quote_function
from eventlog.sql.dialects.postgresql.text import (
    is_one_spelling,
    key_text,
    needs_quoting,
    qualified,
    quote_identifier,
    relation,
)
from eventlog.sql.log_table import LogTable, cut_name
from eventlog.sql.statements import fetch
from eventlog.sql.windows import Batch, Selection

if TYPE_CHECKING:
    import jinja2

_WRITTEN: Final = ("status", "event_type", "event_time", "perpetrator", "table_name", "table_key")


@dataclass(frozen=True, slots=True)
class Walk:
    """A class to be walked. ``quote_function`` is the SQL name of the function that quotes a text in a key."""

    log: LogTable
    schema: str | None
    cls: ObjectClass
    selection: Selection
    quote_function: str


def prepare(conn: Connection, log: LogTable, schema: str | None, cls: ObjectClass, selection: Selection) -> Walk:
    """What ``write_batch`` and ``estimate`` need. The caller commits, and goes on in the same session.

    A log that somebody else made has no function that quotes keys; then the session gets one of its own.
    """
    function = cut_name(f"proc_{log.name}_quote", log.max_identifier)
    name = qualified(log.schema, function)
    asked = {"function": f"{name}(text)"}
    if needs_quoting(cls.key) and conn.exec_driver_sql("SELECT to_regprocedure(%(function)s)", asked).scalar() is None:
        own = LogTable("pg_temp", log.name, log.columns, log.types, log.max_identifier)
        conn.exec_driver_sql(render_quote_function(own), execution_options={"no_parameters": True})
        name = qualified("pg_temp", function)
    return Walk(log, schema, cls, selection, name)


def write_batch(conn: Connection, walk: Walk, position: str | None, limit: int) -> Batch:
    """Log the next ``limit`` objects behind ``position`` (canonical table_key text, None = from the beginning)."""
    parameters: dict[str, object] = {
        "limit": limit,
        "event_type": int(walk.selection.event_type),
        "class_name": walk.cls.name,
        **_position_values(walk.cls, position),
    }
    rows = fetch(conn, _batch_statement(walk, position is not None), parameters)
    written, last = rows[0] if rows else (0, position)
    return Batch(rows=written, missing=0, position=last, is_last=written < limit)


def estimate(conn: Connection, walk: Walk, position: str | None) -> int:
    """How many rows the planner expects behind ``position``. Also tries out the operator's predicate."""
    ((plan,),) = _asked(conn, walk, position, "EXPLAIN (FORMAT JSON) SELECT %(event_type)s::smallint")
    return int(plan[0]["Plan"]["Plan Rows"])


def count(conn: Connection, walk: Walk, position: str | None) -> int:
    """How many rows there are behind ``position``."""
    ((rows,),) = _asked(conn, walk, position, "SELECT count(%(event_type)s::smallint)")
    return int(rows)


def _asked(conn: Connection, walk: Walk, position: str | None, select: LiteralString) -> Sequence[Sequence[Any]]:
    # Every statement that holds the operator's text has a parameter: so the server takes one statement, not several.
    statement = f"{select} FROM {_rows_of(walk)} WHERE {_condition(walk, position is not None)}"
    parameters = {"event_type": int(walk.selection.event_type), **_position_values(walk.cls, position)}
    return fetch(conn, statement, parameters)


def write_keys(conn: Connection, log: LogTable, selection: Selection, keys: Sequence[str]) -> None:
    """Log the objects with these canonical keys, in their order."""
    statement = (
        f"INSERT INTO {_escaped(qualified(log.schema, log.name))} ({_columns(log)})"  # noqa: S608 - quoted and bound
        f" SELECT 'N', %(event_type)s::smallint, {_now(log)}, NULL, %(class_name)s::text, k.table_key"
        " FROM unnest(%(keys)s::text[]) WITH ORDINALITY AS k (table_key, n) ORDER BY k.n"
    )
    parameters = {
        "event_type": int(selection.event_type),
        "class_name": selection.class_name,
        "keys": list(keys),
    }
    conn.exec_driver_sql(statement, parameters)


def missing_rights(conn: Connection, log: LogTable, resumable: bool) -> list[str]:
    """The rights that this session's role lacks for a resync, in words. ``resumable``: it keeps its position."""
    needed = [(log.name, "INSERT")]
    if resumable:
        needed += [(log.resync_table, right) for right in ("SELECT", "INSERT", "UPDATE", "DELETE")]
    asked = "SELECT has_table_privilege(%(name)s, %(right)s)"
    return [
        f"{right} on table {table}"
        for table, right in needed
        if not conn.exec_driver_sql(asked, {"name": qualified(log.schema, table), "right": right}).scalar()
    ]


def table_options(log: LogTable, index: str) -> list[str]:
    """What the table of positions needs beyond its columns: a row identity, so that it can be replicated."""
    table = qualified(log.schema, log.resync_table)
    return [f"ALTER TABLE {table} REPLICA IDENTITY USING INDEX {quote_identifier(index)}"]


# The statement


def _batch_statement(walk: Walk, goes_on: bool) -> str:
    by_value = _by_value(walk.cls)
    places = [f"k{i}" for i in range(len(walk.cls.key))]
    refs = [f"batch.{place}" for place in places] if by_value else _references(walk.cls)
    return _template().render(
        by_value=by_value,
        is_view=walk.cls.is_view,
        key=[_escaped(ref) for ref in _references(walk.cls)],
        key_text=_escaped(key_text(walk.cls.key, refs, walk.quote_function)),
        relation=_rows_of(walk),
        condition=_condition(walk, goes_on),
        order=", ".join(places),
        log=_escaped(qualified(walk.log.schema, walk.log.name)),
        columns=_columns(walk.log),
        now=_now(walk.log),
    )


def _by_value(cls: ObjectClass) -> bool:
    return all(map(is_one_spelling, cls.key))


def _rows_of(walk: Walk) -> str:
    return _escaped(relation(walk.schema, walk.cls.table))


def _condition(walk: Walk, goes_on: bool) -> str:
    conditions = []
    if walk.selection.where is not None:
        # On lines of its own: it may end in a comment.
        conditions.append(f"(\n{_escaped(walk.selection.where)}\n)")
    if walk.cls.is_view:
        conditions += [f"{_escaped(ref)} IS DISTINCT FROM NULL" for ref in _references(walk.cls)]
    if goes_on:
        conditions.append(_behind(walk))
    return " AND ".join(conditions) or "true"


def _behind(walk: Walk) -> str:
    """SQL: the row's key comes after the position, whose values are bound."""
    if not _by_value(walk.cls):
        text = _escaped(key_text(walk.cls.key, _references(walk.cls), walk.quote_function))
        return f'({text}) COLLATE pg_catalog."C" OPERATOR(pg_catalog.>) %(position)s::text'
    refs = ", ".join(map(_escaped, _references(walk.cls)))
    values = ", ".join(_value(column, f"%(k{i})s::text") for i, column in enumerate(walk.cls.key))
    return f"ROW({refs}) OPERATOR(pg_catalog.>) ROW({values})"


def _value(column: Column, text: str) -> str:
    """SQL of a key value from its text in a table_key."""
    if column.type.kind is Kind.BINARY:
        return f"pg_catalog.decode({text}, 'base64')"
    return f"CAST({text} AS {column.type.sql})"


def _position_values(cls: ObjectClass, position: str | None) -> Mapping[str, object]:
    if position is None:
        return {}
    if not _by_value(cls):
        return {"position": position}
    return {f"k{i}": part.value for i, part in enumerate(table_key.parse(position))}


def _references(cls: ObjectClass) -> list[str]:
    return [quote_identifier(column.name) for column in cls.key]


def _columns(log: LogTable) -> str:
    names = dict(zip(LogRow._fields, log.columns, strict=True))
    return ", ".join(_escaped(quote_identifier(names[field])) for field in _WRITTEN)


def _now(log: LogTable) -> str:
    # As the triggers have it: a zoned column takes the moment itself.
    is_zoned = bool(log.types) and log.types[LogRow._fields.index("event_time")].kind is Kind.TIMESTAMPTZ
    return "pg_catalog.clock_timestamp()" + ("" if is_zoned else " AT TIME ZONE 'UTC'")


def _escaped(sql: str) -> str:
    """Text of a statement with parameters, where the driver reads ``%``."""
    return sql.replace("%", "%%")


@cache
def _template() -> jinja2.Template:
    import jinja2  # seldom needed, and slow to load

    source = resources.files(__package__).joinpath("resync.sql.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(  # noqa: S701 - SQL: what is put in is quoted or bound
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(source)
