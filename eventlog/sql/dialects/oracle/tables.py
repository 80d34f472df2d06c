"""What the tables of a log are made of on Oracle (spec/triggers.md 7, spec/event-log.md 10)."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.dialects import oracle
from sqlalchemy.types import TypeEngine

from eventlog.errors import DatabaseError
from eventlog.sql.dialect import Dialect
from eventlog.sql.dialects.oracle import script
from eventlog.sql.dialects.oracle.compile import render_base64_function, render_quote_function
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


class OracleTables(Dialect):
    """record_ids and flights are numbered by sequences; the triggers of a log use functions of its own."""

    column_types: ClassVar = {
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
    queue_index = ("status", "record_id")
    prologue = script.PROLOGUE
    epilogue = ("COMMIT;",)

    def record_id(self, log: LogTable, comment: str) -> sa.Column[Any]:
        numbers = sa.text(f"{number_sequence(log)}.NEXTVAL")
        return sa.Column(
            "record_id", _INTEGER, server_default=numbers, primary_key=True, autoincrement=False, comment=comment
        )

    def is_letter(self, column: str) -> str:
        code = f"ASCII({quote_identifier(spelled(column))})"
        return f"{code} BETWEEN 65 AND 90 OR {code} BETWEEN 97 AND 122"

    def before_log(self, log: LogTable) -> list[str]:
        return [_create_sequence(number_sequence(log))]

    def drop_before_log(self, log: LogTable) -> list[str]:
        return [_drop_sequence(number_sequence(log))]

    def after_log(self, log: LogTable) -> list[str]:
        return create_functions(log)

    def drop_after_log(self, log: LogTable) -> list[str]:
        functions = (quote_function(log), base64_function(log))
        return [script.unless(f"DROP FUNCTION {name}", _NO_OBJECT) for name in functions]

    def after_companions(self, log: LogTable) -> list[str]:
        return [_create_sequence(qualified(log.schema, log.flight_sequence))]

    def drop_after_companions(self, log: LogTable) -> list[str]:
        return [_drop_sequence(qualified(log.schema, log.flight_sequence))]

    def next_flight(self, conn: Connection, log: LogTable) -> int:
        sequence = qualified(log.schema, log.flight_sequence)
        return int(conn.exec_driver_sql(f"SELECT {sequence}.NEXTVAL FROM DUAL").scalar_one())  # noqa: S608 - quoted

    def half_made(self, conn: Connection, log: LogTable) -> bool:
        # The sequence of record_ids is there too.
        binds = {"owner": log.schema, "name": log.own_name(NUMBERS)}
        return bool(fetch(conn, statements(__package__, "installed.sql")["sequence"], binds))

    def run(self, conn: Connection, statement: str) -> None:
        # It is committed, and what does not compile is a success for Oracle.
        run_as_it_stands(conn, statement)
        compiled = script.made_by(statement)
        if compiled is not None:
            _check(conn, *compiled)

    def as_script(self, printed: str) -> str:
        return script.rerunnable(printed)

    def guarded(self, statement: str) -> str:
        return script.guarded(statement)


def create_functions(log: LogTable) -> list[str]:
    """The functions that the triggers of a log use: for the keys, and for binary values."""
    return [render_quote_function(log), render_base64_function(log)]


def _create_sequence(name: str) -> str:
    # The cache is the instance's, so numbers rise in the order of the requests; ORDER: among the instances of a cluster
    # too. NOCACHE would update the dictionary with every number (spec/triggers.md 7).
    return script.unless(f"CREATE SEQUENCE {name} CACHE 1000 ORDER", _EXISTS)


def _drop_sequence(name: str) -> str:
    return script.unless(f"DROP SEQUENCE {name}", _NO_SEQUENCE)


def _check(conn: Connection, type_: str, schema: str | None, name: str) -> None:
    """Raise DatabaseError if a trigger or function does not compile.

    A trigger is dropped then, since the application's statements would fail by it.
    """
    binds = {"owner": schema, "name": name, "object_type": type_}
    errors = fetch(conn, statements(__package__, "installed.sql")["errors"], binds)
    if not errors:
        return
    line, position, text = errors[0]
    what = f"{type_.lower()} {name if schema is None else f'{schema}.{name}'}"
    consequence = "grant its schema the rights on what it names, and run it again"
    if type_ == "TRIGGER":
        run_as_it_stands(conn, script.drop_trigger(schema, name))
        consequence = (
            "it was dropped, since the application's statements would fail by it, and nothing of its is captured: "
            "grant its schema the rights that `eventlog triggers plan` names"
        )
    raise DatabaseError(
        f"{what} does not compile: line {line}, column {position}: {' '.join(str(text).split())}; {consequence}"
    )
