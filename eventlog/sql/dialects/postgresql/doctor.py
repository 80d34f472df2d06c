"""What ``doctor`` asks of PostgreSQL: all of it in doctor.sql."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlalchemy import Connection, text

from eventlog.sql.doctor.facts import Answer, AnswerFunction

ANSWERS: Final[Mapping[str, AnswerFunction]] = {}


def begin_reading(conn: Connection, seconds: int) -> None:
    """Make the transaction that begins see one moment and change nothing; a statement takes so many seconds at most."""
    conn.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    conn.exec_driver_sql(f"SET LOCAL statement_timeout = '{int(seconds)}s'")


def fetch(conn: Connection, statement: str, names: Mapping[str, str], binds: Mapping[str, object]) -> Answer:
    """Run a statement of doctor.sql."""
    # A colon in a name must not begin a parameter.
    escaped = {key: name.replace(":", "\\:") for key, name in names.items()}
    return conn.execute(text(statement.format(**escaped)), binds).all()


def sees_triggers(conn: Connection, schema: str) -> bool:
    """Yes: the catalogue is everybody's."""
    return True
