"""Resync on PostgreSQL: a batch of a class, or keys that are given, as query-back rows (spec/event-log.md 11).

A class is walked by keyset: each batch begins behind the last key of the one before, which is kept as canonical
table_key text, and turned back into values here. The statement is resync.sql.j2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from sqlalchemy import Connection

from eventlog.core import table_key
from eventlog.core.catalog import Column, ObjectClass
from eventlog.core.values import Kind
from eventlog.sql.dialects.postgresql.compile import render_quote_function
from eventlog.sql.dialects.postgresql.text import (
    bindable,
    is_one_spelling,
    key_text,
    needs_quoting,
    quote_function,
    relation,
)
from eventlog.sql.statements import run_as_it_stands
from eventlog.sql.text import quote_identifier
from eventlog.sql.triggers.templates import Templates
from eventlog.sql.windows import Walk


def with_quote_function(conn: Connection, walk: Walk) -> Walk:
    """The walk with the function that quotes its keys.

    A log that somebody else made has none; then the session gets one of its own.
    """
    log = walk.log
    signature = {"function": f"{quote_function(log)}(text)"}
    if (
        needs_quoting(walk.cls.key)
        and conn.exec_driver_sql("SELECT to_regprocedure(%(function)s)", signature).scalar() is None
    ):
        log = replace(log, schema="pg_temp")
        run_as_it_stands(conn, render_quote_function(log))
    return replace(walk, quote_function=quote_function(log))


def batch_statement(walk: Walk, condition: str, words: Mapping[str, str]) -> str:
    """The statement that writes the next objects for which a condition holds. ``words``: those of ``log_sql``."""
    by_value = _by_value(walk.cls)
    places = [f"k{i}" for i in range(len(walk.cls.key))]
    key_refs = _key_refs(walk)
    return _TEMPLATES.render(
        "resync.sql.j2",
        **words,
        by_value=by_value,
        is_view=walk.cls.is_view,
        key=key_refs,
        key_text=_key_text(walk, [f"batch.{place}" for place in places] if by_value else key_refs),
        relation=walk_rows(walk),
        condition=condition,
        order=", ".join(places),
    )


def walk_rows(walk: Walk) -> str:
    """SQL of the relation that is walked."""
    return bindable(relation(walk.schema, walk.cls.table))


def behind(walk: Walk) -> str:
    """SQL: the row's key comes after the position, whose values are bound."""
    refs = _key_refs(walk)
    if not _by_value(walk.cls):
        return f'({_key_text(walk, refs)}) COLLATE pg_catalog."C" OPERATOR(pg_catalog.>) %(position)s::text'
    values = ", ".join(_value(column, f"%(k{i})s::text") for i, column in enumerate(walk.cls.key))
    return f"ROW({', '.join(refs)}) OPERATOR(pg_catalog.>) ROW({values})"


def position_binds(cls: ObjectClass, position: str | None) -> dict[str, object]:
    """What ``behind`` binds: the texts of the key's values, or the key's canonical text."""
    if position is None:
        return {}
    if not _by_value(cls):
        return {"position": position}
    return {f"k{i}": part.value for i, part in enumerate(table_key.parse(position))}


def _key_refs(walk: Walk) -> list[str]:
    return [bindable(quote_identifier(column.name)) for column in walk.cls.key]


def _by_value(cls: ObjectClass) -> bool:
    return all(map(is_one_spelling, cls.key))


def _key_text(walk: Walk, refs: Sequence[str]) -> str:
    plain = [ref.replace("%%", "%") for ref in refs]
    return bindable(key_text(walk.cls.key, plain, walk.quote_function))


def _value(column: Column, text: str) -> str:
    """SQL of a key value from its text in a table_key."""
    if column.type.kind is Kind.BINARY:
        return f"pg_catalog.decode({text}, 'base64')"
    return f"CAST({text} AS {column.type.sql})"


_TEMPLATES: Final = Templates(__package__)  # what is put in is quoted or bound
