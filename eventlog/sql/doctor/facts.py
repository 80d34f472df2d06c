"""What a database tells ``doctor``: questions by name, answers as rows; no judgement.

The questions are the named statements of the file ``doctor.sql`` of each dialect, and beside them the functions of
``Dialect.answers`` for what its SQL alone cannot tell. A question that a database has neither for has no answer there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from sqlalchemy import Connection

from eventlog.model import LogRow
from eventlog.sql.log_table import LogTable
from eventlog.sql.statements import statements

if TYPE_CHECKING:
    from eventlog.sql.dialect import Dialect

T = TypeVar("T")

Answer = Iterable[Sequence[Any]]
"""Rows: their fields and the order of these are the same for all databases, by the names in ``doctor.sql``."""

AnswerFunction = Callable[..., Answer]
"""Answers a question. It takes the connection, and by name what the question is about: ``log``, and what is asked."""


# --- answers ----------------------------------------------------------------------------------------------------------


class IndexColumn(NamedTuple):
    """A column of an index of the log, in order; ``column`` is None for an expression.

    ``predicate`` is that of the index, as the database writes it.
    """

    name: str
    is_valid: bool
    column: str | None
    predicate: str | None


class Numbering(NamedTuple):
    """A sequence that gives record_ids. ``name`` is SQL; ``cache``: so many numbers a session keeps for itself.

    ``disorder``: why else its numbers may not rise in the order of the requests, None if they do; ``mend`` is SQL
    against that.
    """

    name: str
    cache: int
    increment: int
    cycles: bool
    disorder: str | None = None
    mend: str = ""


class OpenTransaction(NamedTuple):
    """A transaction of another session. ``seconds`` is None if this role may not see its start.

    ``writes``: it has changed something; ``wrote_log``: it has written rows to the log, which no other session sees
    yet; ``prepared``: the name of a prepared one, which no session has.
    """

    pid: int | None
    user: str | None
    application: str | None
    state: str | None
    seconds: float | None
    writes: bool
    wrote_log: bool
    prepared: str | None = None


class LogTrigger(NamedTuple):
    """A trigger that writes the log. ``table`` is ``schema.table``; ``mend`` is SQL that enables it."""

    table: str
    trigger: str
    enabled: bool
    mend: str


def row(*values: Any) -> tuple[Any, ...]:
    """An answer for whoever takes it apart at once."""
    return values


# --- questions --------------------------------------------------------------------------------------------------------


def ask(
    conn: Connection,
    dialect: Dialect,
    question: str,
    record: Callable[..., T],
    log: LogTable | None = None,
    **about: object,
) -> list[T]:
    """The database's answers to a question. ``record`` makes one of its fields; ``about``: what a statement binds or a
    function takes.
    """
    if (function := dialect.answers.get(question)) is not None:
        rows = function(conn, **(about if log is None else about | {"log": log}))
    elif (statement := statements(f"eventlog.sql.dialects.{dialect.name}", "doctor.sql").get(question)) is not None:
        names = {} if log is None else _names(dialect, log)
        values = about if log is None else about | _values(dialect, log)
        binds = {bind: values[bind] for bind in _BIND.findall(statement)}
        rows = dialect.fetch_answer(conn, statement, names, binds)
    else:
        rows = ()
    return [record(*map(_plain, fields)) for fields in rows]


def repairs(conn: Connection, dialect: Dialect, name: str, log: LogTable, **more: str) -> tuple[str, ...]:
    """Statements of ``doctor.sql`` that are shown and not run, with the names of this log and further ones."""
    if name in dialect.answers:
        return tuple(ask(conn, dialect, name, str, log))
    parts = statements(f"eventlog.sql.dialects.{dialect.name}", "doctor.sql")[name].split(";\n")
    all_names = _names(dialect, log) | more
    return tuple(sql.format(**all_names) for sql in parts if log.schema is not None or "{schema}" not in sql)


_BIND: Final = re.compile(r"(?<![:\w\\]):([a-z_]+)\b")


def _names(dialect: Dialect, log: LogTable) -> dict[str, str]:
    """What stands in braces in a statement: quoted names."""
    return {
        **dict(zip(LogRow._fields, map(dialect.quote, log.columns), strict=True)),
        "reading_index": dialect.quote(log.own_name("idx_{}_1")),
        "row_index": dialect.quote(log.own_name("idx_{}_4")),
        "schema": dialect.quote(log.schema or ""),
        "log": dialect.qualified(log.schema, log.name),
        "error": dialect.qualified(log.schema, log.error_table),
        "inflight": dialect.qualified(log.schema, log.inflight_table),
        "flights": dialect.qualified(log.schema, log.flight_sequence),
    }


def _values(dialect: Dialect, log: LogTable) -> dict[str, object]:
    """What a statement about a log binds, beside what is asked."""
    sql_name = dialect.qualified(log.schema, log.name)
    return {
        "log": sql_name,
        "log_schema": log.schema,
        "log_name": log.name,
        "record_id_column": log.column("record_id"),
        "marker": f" log {sql_name}",  # the end of the comments that our triggers have
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value
