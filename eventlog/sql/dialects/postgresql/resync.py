"""Resync on PostgreSQL: a batch of a class, or keys that are given, as query-back rows (spec/event-log.md 11).

A class is walked by keyset: each batch begins behind the last key of the one before, which is kept as canonical
table_key text, and turned back into values here. The statement is resync.sql.j2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, LiteralString

from sqlalchemy import Connection

from eventlog.core import table_key
from eventlog.core.catalog import Column, ObjectClass
from eventlog.core.values import Kind
from eventlog.sql.dialect import Dialect, log_words
from eventlog.sql.dialects.postgresql.compile import render_quote_function
from eventlog.sql.dialects.postgresql.text import (
    bindable,
    is_one_spelling,
    key_text,
    needs_quoting,
    quote_function,
    relation,
)
from eventlog.sql.log_table import LogTable
from eventlog.sql.statements import fetch, run_as_it_stands, template_renderer
from eventlog.sql.windows import Batch, Selection, Walk


class PostgresResync(Dialect):
    """One statement reads the keys of a batch and writes its rows."""

    is_not_null = "IS DISTINCT FROM NULL"  # a row of NULLs "IS NULL" as well

    def start_walk(
        self, conn: Connection, log: LogTable, schema: str | None, cls: ObjectClass, selection: Selection
    ) -> Walk:
        # A log that somebody else made has no function that quotes keys; then the session gets one of its own.
        signature = {"function": f"{quote_function(log)}(text)"}
        home = log
        if (
            needs_quoting(cls.key)
            and conn.exec_driver_sql("SELECT to_regprocedure(%(function)s)", signature).scalar() is None
        ):
            home = replace(log, schema="pg_temp")
            run_as_it_stands(conn, render_quote_function(home))
        return Walk(log, schema, cls, selection, quote_function(home))

    def write_batch(self, conn: Connection, walk: Walk, position: str | None, limit: int) -> Batch:
        statement = self.batch_statement(walk, goes_on=position is not None)
        parameters = {"limit": limit, "class_name": walk.cls.name, **self._binds(walk, position)}
        rows = fetch(conn, statement, parameters)
        written, last = rows[0] if rows else (0, position)
        return Batch(rows=written, missing=0, position=last, is_last=written < limit)

    def batch_statement(self, walk: Walk, *, goes_on: bool) -> str:
        """The statement of ``write_batch``."""
        by_value = _by_value(walk.cls)
        places = [f"k{i}" for i in range(len(walk.cls.key))]
        key_refs = self.walk_key(walk)
        return _rendered(
            "resync.sql.j2",
            **log_words(self, walk.log, "utc"),
            by_value=by_value,
            is_view=walk.cls.is_view,
            key=key_refs,
            key_text=_key_text(walk, [f"batch.{place}" for place in places] if by_value else key_refs),
            relation=self.walk_rows(walk),
            condition=self.walk_condition(walk, goes_on=goes_on),
            order=", ".join(places),
        )

    def walk_rows(self, walk: Walk) -> str:
        return bindable(relation(walk.schema, walk.cls.table))

    def behind(self, walk: Walk) -> str:
        refs = self.walk_key(walk)
        if not _by_value(walk.cls):
            return f'({_key_text(walk, refs)}) COLLATE pg_catalog."C" OPERATOR(pg_catalog.>) %(position)s::text'
        values = ", ".join(_value(column, f"%(k{i})s::text") for i, column in enumerate(walk.cls.key))
        return f"ROW({', '.join(refs)}) OPERATOR(pg_catalog.>) ROW({values})"

    def position_binds(self, cls: ObjectClass, position: str | None) -> Mapping[str, object]:
        if position is None:
            return {}
        if not _by_value(cls):
            return {"position": position}
        return {f"k{i}": part.value for i, part in enumerate(table_key.parse(position))}

    def estimate(self, conn: Connection, walk: Walk, position: str | None) -> int:
        # What the planner expects.
        ((plan,),) = self._of_walk(conn, walk, position, "EXPLAIN (FORMAT JSON) SELECT %(event_type)s::smallint")
        return int(plan[0]["Plan"]["Plan Rows"])

    def count(self, conn: Connection, walk: Walk, position: str | None) -> int:
        ((rows,),) = self._of_walk(conn, walk, position, "SELECT count(%(event_type)s::smallint)")
        return int(rows)

    def _of_walk(
        self, conn: Connection, walk: Walk, position: str | None, select: LiteralString
    ) -> list[tuple[Any, ...]]:
        condition = self.walk_condition(walk, goes_on=position is not None)
        return fetch(conn, f"{select} FROM {self.walk_rows(walk)} WHERE {condition}", self._binds(walk, position))

    def _binds(self, walk: Walk, position: str | None) -> dict[str, object]:
        # Every statement that holds the operator's text has a parameter: the server takes one statement, not several.
        return {"event_type": int(walk.selection.event_type), **self.position_binds(walk.cls, position)}

    def write_keys(self, conn: Connection, log: LogTable, selection: Selection, keys: Sequence[str]) -> None:
        parameters = {
            "event_type": int(selection.event_type),
            "class_name": selection.class_name,
            "keys": list(keys),
        }
        conn.exec_driver_sql(self.log_statement(log, "write_keys"), parameters)


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


_rendered: Final = template_renderer(__package__)  # what is put in is quoted or bound
