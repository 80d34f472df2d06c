"""What a new session is set to."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

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


def read_only(conn: Connection) -> str | None:
    """Why this session can write nothing, in words; None if it can."""
    asked = "SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on'"
    is_standby, is_read_only = conn.exec_driver_sql(asked).one()
    if is_standby:
        return "the server is a standby, which takes no writes"
    return "default_transaction_read_only is on for this session, so that it writes nothing" if is_read_only else None
