"""Questions to a database about a log, by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from eventlog.model import LOG_COLUMNS
from eventlog.sql.log_table import QUEUE_INDEX, LogTable

if TYPE_CHECKING:
    from eventlog.sql.port.dialect import Dialect
    from eventlog.sql.port.open_database import OpenDatabase
    from eventlog.sql.port.open_log import OpenLog


T = TypeVar("T")


class Numbering(NamedTuple):
    """A sequence that numbers the rows of the log."""

    name: str
    """The name as SQL."""
    cache: int
    """How many numbers each session caches."""
    increment: int
    cycles: bool
    disorder: str | None = None
    """A reason other than the cache why later requests may get smaller numbers; None if there is
    none.
    """
    fix: str = ""
    """SQL that fixes ``disorder``."""


def row(*values: Any) -> tuple[Any, ...]:
    """Return the fields of an answer as a tuple, for a caller that unpacks it."""
    return values


def ask(
    db: OpenDatabase,
    question: str,
    record: Callable[..., T],
    log: LogTable | None = None,
    **about: object,
) -> list[T]:
    """Ask the database a question, and return its answers as records.

    ``record`` makes a record from the fields of an answer; ``about`` has the bound values of a
    statement, or the arguments of a function.
    """
    dialect = db.dialect
    if (function := dialect.answers.get(question)) is not None:
        rows = function(db.connection, **(about if log is None else about | {"log": log}))
    elif (statement := dialect.doctor_sql.get(question)) is not None:
        names = {} if log is None else _names(dialect, log)
        values = about if log is None else about | _values(dialect, log)
        binds = {bind: values[bind] for bind in _BIND.findall(statement)}
        rows = db.fetch_answer(statement, names, binds)
    else:
        rows = ()
    return [record(*map(_plain, fields)) for fields in rows]


def ask_log(log: OpenLog, question: str, record: Callable[..., T], **about: object) -> list[T]:
    """Ask the database a question about a log, as ``ask`` does."""
    return ask(log.db, question, record, log.table, **about)


def repairs(log: OpenLog, name: str, **more: str) -> tuple[str, ...]:
    """Return statements of ``doctor.sql`` for the user to run, filled in with the names of this log
    and further names.
    """
    if name in log.dialect.answers:
        return tuple(ask_log(log, name, str))
    parts = log.dialect.doctor_sql[name].split(";\n")
    all_names = _names(log.dialect, log.table) | more
    return tuple(
        sql.format(**all_names)
        for sql in parts
        if log.table.schema is not None or "{schema}" not in sql
    )


_BIND: Final = re.compile(r"(?<![:\w\\]):([a-z_]+)\b")


def _names(dialect: Dialect, log: LogTable) -> dict[str, str]:
    """Return the quoted identifiers that replace the names in braces in a statement."""
    return {
        **dict(zip(LOG_COLUMNS, map(dialect.quote, log.columns), strict=True)),
        "reading_index": dialect.quote(log.own_name("idx_{}_1")),
        "row_index": dialect.quote(log.own_name("idx_{}_4")),
        "queue_index": dialect.quote(log.own_name(QUEUE_INDEX)),
        "schema": dialect.quote(log.schema or ""),
        "log": dialect.qualified(log.schema, log.name),
        "error": dialect.qualified(log.schema, log.error_table),
        "inflight": dialect.qualified(log.schema, log.inflight_table),
        "state": dialect.qualified(log.schema, log.state_table),
        "deliveries": dialect.qualified(log.schema, log.number_sequence),
        "epoch": dialect.qualified(log.schema, log.epoch_table),
        "consumer": dialect.qualified(log.schema, log.consumer_table),
        "captured": dialect.qualified(log.schema, log.captured_table),
        "resync": dialect.qualified(log.schema, log.resync_table),
        "version": dialect.qualified(log.schema, log.version_table),
    }


def _values(dialect: Dialect, log: LogTable) -> dict[str, object]:
    """Return the bound values of a statement about a log, in addition to the arguments of the
    question.
    """
    sql_name = dialect.qualified(log.schema, log.name)
    return {
        "log": sql_name,
        "log_schema": log.schema,
        "log_name": log.name,
        "record_id_column": log.column("record_id"),
        "error": dialect.qualified(log.schema, log.error_table),
        "inflight": dialect.qualified(log.schema, log.inflight_table),
        "state": dialect.qualified(log.schema, log.state_table),
        "consumer": dialect.qualified(log.schema, log.consumer_table),
        "epoch": dialect.qualified(log.schema, log.epoch_table),
        "captured": dialect.qualified(log.schema, log.captured_table),
        "resync": dialect.qualified(log.schema, log.resync_table),
        "numbers": None if log.sequence is None else dialect.qualified(*log.sequence),
        "marker": f" log {sql_name}",  # the end of the comments in eventlog's triggers
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value
