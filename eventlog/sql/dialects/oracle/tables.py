"""What the tables of a log are made of on Oracle (spec/triggers.md 7, spec/event-log.md 10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.dialects import oracle
from sqlalchemy.types import TypeEngine

from eventlog.errors import DatabaseError
from eventlog.sql.dialects.oracle.compile import render_base64_function, render_quote_function
from eventlog.sql.dialects.oracle.script import drop_trigger, made_by, unless
from eventlog.sql.dialects.oracle.session import fetch
from eventlog.sql.dialects.oracle.text import (
    base64_function,
    qualified,
    quote_function,
    quote_identifier,
    spelled,
)
from eventlog.sql.log_table import LogTable
from eventlog.sql.statements import run_as_it_stands, statements

_EXISTS: Final = -955
_NO_SEQUENCE: Final = -2289
_NO_OBJECT: Final = -4043

_number: Any = oracle.NUMBER  # which has no types
_INTEGER: Final[TypeEngine[Any]] = _number(38, 0)
_DIGIT: Final[TypeEngine[Any]] = _number(1, 0)


NUMBERS: Final = "seq_{}_1"
"""The name of the sequence that gives record_ids (``LogTable.own_name``)."""


def number_sequence(log: LogTable) -> str:
    """SQL name of the sequence that gives record_ids."""
    return qualified(log.schema, log.own_name(NUMBERS))


def create_functions(log: LogTable) -> list[str]:
    """The functions that the triggers of a log use: for the keys, and for binary values."""
    return [render_quote_function(log), render_base64_function(log)]


def drop_functions(log: LogTable) -> list[str]:
    """Drop what ``create_functions`` makes."""
    return [unless(f"DROP FUNCTION {name}", _NO_OBJECT) for name in (quote_function(log), base64_function(log))]


def _create_sequence(name: str) -> str:
    # The cache is the instance's, so numbers rise in the order of the requests; ORDER: among the instances of a cluster
    # too. NOCACHE would update the dictionary with every number (spec/triggers.md 7).
    return unless(f"CREATE SEQUENCE {name} CACHE 1000 ORDER", _EXISTS)


def _drop_sequence(name: str) -> str:
    return unless(f"DROP SEQUENCE {name}", _NO_SEQUENCE)


def flight_sequence(log: LogTable) -> str:
    """SQL name of the sequence of flight numbers."""
    return qualified(log.schema, log.flight_sequence)


def record_id(log: LogTable, comment: str) -> sa.Column[Any]:
    """record_id, numbered by the log's sequence."""
    numbers = sa.text(f"{number_sequence(log)}.NEXTVAL")
    return sa.Column(
        "record_id", _INTEGER, server_default=numbers, primary_key=True, autoincrement=False, comment=comment
    )


def half_made(conn: Connection, log: LogTable) -> bool:
    """Whether a table of the log's name is there from a migration of ours that broke off: its sequence is there too."""
    binds = {"owner": log.schema, "name": log.own_name(NUMBERS)}
    return bool(fetch(conn, statements(__package__, "installed.sql")["sequence"], binds))


def is_letter(column: str) -> str:
    """SQL: the column holds a letter of ASCII."""
    code = f"ASCII({quote_identifier(spelled(column))})"
    return f"{code} BETWEEN 65 AND 90 OR {code} BETWEEN 97 AND 122"


def next_flight(conn: Connection, log: LogTable) -> int:
    """The sequence's next number."""
    result = conn.exec_driver_sql(f"SELECT {flight_sequence(log)}.NEXTVAL FROM DUAL")  # noqa: S608 - a quoted name
    return int(result.scalar_one())


def create_numbers(log: LogTable) -> list[str]:
    """The sequence that gives record_ids."""
    return [_create_sequence(number_sequence(log))]


def drop_numbers(log: LogTable) -> list[str]:
    """Drop what ``create_numbers`` makes."""
    return [_drop_sequence(number_sequence(log))]


def create_flights(log: LogTable) -> list[str]:
    """The sequence of flight numbers."""
    return [_create_sequence(flight_sequence(log))]


def drop_flights(log: LogTable) -> list[str]:
    """Drop what ``create_flights`` makes."""
    return [_drop_sequence(flight_sequence(log))]


TYPES: Final[Mapping[str, TypeEngine[Any]]] = {
    "integer": _INTEGER,
    "status": sa.CHAR(1),
    "event_type": _DIGIT,
    "event_time": oracle.TIMESTAMP(),
    "time": oracle.TIMESTAMP(),
    "digest": sa.CHAR(64),
    "name": oracle.VARCHAR2(261),
    "key": oracle.VARCHAR2(4000),
    "code": oracle.VARCHAR2(64),
    "value": sa.CLOB(),
    "text": sa.CLOB(),
}


# --- statements run one by one: Oracle takes for a success what does not compile --------------------------------------


def run(conn: Connection, statement: str) -> None:
    """Run a statement as it stands; it is committed.

    Raises DatabaseError if it makes a trigger or function that does not compile. A trigger is dropped then, since the
    application's statements would fail by it.
    """
    run_as_it_stands(conn, statement)
    compiled = made_by(statement)
    if compiled is not None:
        _check(conn, *compiled)


def _check(conn: Connection, type_: str, schema: str | None, name: str) -> None:
    binds = {"owner": schema, "name": name, "object_type": type_}
    errors = fetch(conn, statements(__package__, "installed.sql")["errors"], binds)
    if not errors:
        return
    line, position, text = errors[0]
    what = f"{type_.lower()} {name if schema is None else f'{schema}.{name}'}"
    consequence = "grant its schema the rights on what it names, and run it again"
    if type_ == "TRIGGER":
        run_as_it_stands(conn, drop_trigger(schema, name))
        consequence = (
            "it was dropped, since the application's statements would fail by it, and nothing of its is captured: "
            "grant its schema the rights that `eventlog triggers plan` names"
        )
    raise DatabaseError(
        f"{what} does not compile: line {line}, column {position}: {' '.join(str(text).split())}; {consequence}"
    )
