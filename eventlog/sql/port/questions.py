"""Questions to a database about a log, by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple, TypeVar

from eventlog.model import LOG_COLUMNS
from eventlog.sql.log_table import QUEUE_INDEX
from eventlog.sql.port.database import Answer
from eventlog.sql.port.open_database import OpenDatabase
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.rights import NAMES, name_of

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
    """A reason other than the cache why later requests may get smaller numbers; None if there is no
    such reason.
    """
    fix: str = ""
    """SQL that fixes ``disorder``."""


def row(*values: Any) -> tuple[Any, ...]:
    """Return the fields of an answer as a tuple, for a caller that unpacks it."""
    return values


def ask(
    asked: OpenDatabase | OpenLog, question: str, record: Callable[..., T], **about: object
) -> list[T]:
    """Ask a database or a log a question, and return the answers as records.

    ``record`` makes a record from the fields of an answer; ``about`` has the bound values of a
    statement, or the arguments of a function.
    """
    rows: Answer = ()
    if (function := asked.dialect.answers.get(question)) is not None:
        rows = function(asked, **about)
    elif (statement := asked.dialect.doctor_sql.get(question)) is not None:
        names, values = dict[str, str](), about
        if isinstance(asked, OpenLog):
            names, values, asked = _names(asked), _values(asked, about), asked.db
        binds = {bind: values[bind] for bind in _BIND.findall(statement)}
        rows = asked.fetch_answer(statement, names, binds)
    return [record(*map(_plain, fields)) for fields in rows]


def repairs(log: OpenLog, name: str, **more: str) -> tuple[str, ...]:
    """Return statements of ``doctor.sql`` for the user to run, filled in with the names of this log
    and further names.
    """
    if name in log.dialect.answers:
        return tuple(ask(log, name, str))
    parts = log.dialect.doctor_sql[name].split(";\n")
    all_names = _names(log) | more
    return tuple(
        sql.format(**all_names)
        for sql in parts
        if log.table.schema is not None or "{schema}" not in sql
    )


_BIND: Final = re.compile(r"(?<![:\w\\]):([a-z_]+)\b")


def _names(opened: OpenLog) -> dict[str, str]:
    """Return the quoted identifiers that replace the names in braces in a statement."""
    dialect, log = opened.dialect, opened.table
    return {
        **dict(zip(LOG_COLUMNS, map(dialect.quote, log.columns), strict=True)),
        "reading_index": dialect.quote(log.own_name("idx_{}_1")),
        "row_index": dialect.quote(log.own_name("idx_{}_4")),
        "queue_index": dialect.quote(log.own_name(QUEUE_INDEX)),
        "schema": dialect.quote(log.schema or ""),
        "deliveries": dialect.qualified(log.schema, log.number_sequence),
        **{part.value: dialect.qualified(log.schema, name_of(log, part)) for part in NAMES},
    }


def _values(log: OpenLog, about: Mapping[str, object]) -> dict[str, object]:
    """Return the bound values of a statement about a log, with the arguments of the question."""
    table, names = log.table, _names(log)
    return {
        **names,
        **about,
        "log_schema": table.schema,
        "log_name": table.name,
        "record_id_column": table.column("record_id"),
        "numbers": None if table.sequence is None else log.dialect.qualified(*table.sequence),
        "marker": f" log {names['log']}",  # the end of the comments in eventlog's triggers
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value
