"""PostgreSQL."""

from __future__ import annotations

from typing import Final

from eventlog.sql.dialect import Dialect
from eventlog.sql.dialects.postgresql import lock, log, wake
from eventlog.sql.dialects.postgresql.query_back import query_back
from eventlog.sql.dialects.postgresql.reflect import reflect
from eventlog.sql.dialects.postgresql.text import MAX_IDENTIFIER, fold_name, qualified, quote_identifier, value_text
from eventlog.sql.dialects.postgresql.triggers import render_quote_function
from eventlog.sql.log_table import LogTable, cut_name

SESSION: Final = (
    # What a session can change in the text of values: pinned to what the triggers pin it to (spec/triggers.md 6).
    "SET TimeZone = 'UTC'",
    "SET DateStyle = 'ISO, YMD'",
    "SET IntervalStyle = 'postgres'",
    "SET extra_float_digits = 1",
    "SET bytea_output = 'hex'",
    "SET lc_monetary = 'C'",
    # Statements here are short, and compiling one takes longer than running it.
    "SET jit = off",
)


_USER_ADVICE: Final = "check the user in the URL, and EVENTLOG_DATABASE_PASSWORD or url_file"
CONNECT_ADVICE: Final = {
    "password authentication failed": _USER_ADVICE,
    "no password supplied": _USER_ADVICE,
    "pg_hba.conf": "let this user in by a line in the server's pg_hba.conf, or correct the URL",
    "role ": "create the user, or correct the URL",
    "database ": "create the database, or correct the URL",
    "connection option": "correct the options behind ? in the URL",
}


def connect_args(timeout: int) -> dict[str, object]:
    """What psycopg is given to connect within ``timeout`` seconds."""
    return {
        "connect_timeout": timeout,
        "application_name": "eventlog",
        "client_encoding": "UTF8",
        # No prepared statements: one reads a row or ten thousand, and its plan would be kept while the log grows.
        "prepare_threshold": None,
    }


def is_letter(column: str) -> str:
    """SQL: the column holds a letter of ASCII."""
    return f"{quote_identifier(column)} ~ '^[A-Za-z]$'"


def create_functions(of: LogTable) -> list[str]:
    """The functions that the triggers of a log use."""
    return [render_quote_function(of)]


def drop_functions(of: LogTable) -> list[str]:
    """Away with what ``create_functions`` made."""
    name = qualified(of.schema, cut_name(f"proc_{of.name}_quote", of.max_identifier))
    return [f"DROP FUNCTION IF EXISTS {name}(text)"]


DIALECT: Final = Dialect(
    name="postgresql",
    driver="postgresql+psycopg",
    connect_args=connect_args,
    connect_advice=CONNECT_ADVICE,
    session=SESSION,
    max_identifier=MAX_IDENTIFIER,
    numbers_columns=True,
    quote=quote_identifier,
    value_text=value_text,
    reflect=reflect,
    read_window=log.read_window,
    read_rows=log.read_rows,
    mark=log.mark,
    delete=log.delete,
    queue=log.queue,
    missing_rights=log.missing_rights,
    utc_now="(clock_timestamp() AT TIME ZONE 'UTC')",
    is_letter=is_letter,
    create_functions=create_functions,
    drop_functions=drop_functions,
    query_back=query_back,
    current_user=lock.current_user,
    try_lock=lock.try_lock,
    is_locked=lock.is_locked,
    holds_lock=lock.holds_lock,
    unlock=lock.unlock,
    read_due=log.read_due,
    due_until=log.due_until,
    wake=wake.WAKE,
    session_id=lock.session_id,
    local_time=log.local_time,
    fold_name=fold_name,
)
