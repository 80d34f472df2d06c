"""The companions of the log: error lines, in-flight lines, flight numbers (spec/event-log.md 10).

No function commits: the caller decides what belongs to one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection

from eventlog.sql.log_table import LogTable
from eventlog.sql.quoting import quoted, schema_of
from eventlog.sql.registry import load


@lru_cache(maxsize=32)
def _errors(log: LogTable) -> sa.TableClause:
    columns = ("record_id", "code", "message")
    return sa.table(quoted(log.error_table), *map(sa.column, columns), schema=schema_of(log))


@lru_cache(maxsize=32)
def _inflight(log: LogTable) -> sa.TableClause:
    columns = ("flight_no", "composition")
    return sa.table(quoted(log.inflight_table), *map(sa.column, columns), schema=schema_of(log))


def add_errors(conn: Connection, log: LogTable, lines: Sequence[tuple[int, str, str]]) -> None:
    """Write lines (record_id, code, message) to ``<log>_error``; what no text column takes in a message is replaced."""
    if lines:
        rows = [
            {"record_id": record_id, "code": code, "message": _storable(message)} for record_id, code, message in lines
        ]
        conn.execute(sa.insert(_errors(log)), rows)


def _storable(message: str) -> str:
    """Without NUL, which no text column takes, and without lone surrogates, which no encoding takes."""
    return message.replace("\0", "�").encode("utf-8", "replace").decode()


def next_flight(conn: Connection, log: LogTable) -> int:
    """A flight number that was never given before."""
    return load(conn.dialect.name).next_flight(conn, log)


def write_inflight(conn: Connection, log: LogTable, flight_no: int, composition: str) -> None:
    """Write the line of a flight. ``composition`` is JSON."""
    conn.execute(sa.insert(_inflight(log)).values(flight_no=flight_no, composition=composition))


def update_inflight(conn: Connection, log: LogTable, flight_no: int, composition: str) -> None:
    """Write what is left of a flight over its line."""
    inflight = _inflight(log)
    conn.execute(sa.update(inflight).where(inflight.c.flight_no == flight_no).values(composition=composition))


def strike_inflight(conn: Connection, log: LogTable, flight_no: int) -> None:
    """Take away the line of a flight that is done."""
    inflight = _inflight(log)
    conn.execute(sa.delete(inflight).where(inflight.c.flight_no == flight_no))


def read_inflight(conn: Connection, log: LogTable) -> list[tuple[int, str]]:
    """The lines (flight_no, composition) of all flights that are not done, oldest first."""
    inflight = _inflight(log)
    statement = sa.select(inflight.c.flight_no, inflight.c.composition).order_by(inflight.c.flight_no)
    return [(int(flight_no), str(composition)) for flight_no, composition in conn.execute(statement)]


class ErrorLine(NamedTuple):
    """A line of ``<log>_error``; ``error_time`` is UTC."""

    error_time: datetime
    code: str
    message: str


def read_errors(conn: Connection, log: LogTable, record_id: int) -> list[ErrorLine]:
    """The error lines of a row, the oldest first."""
    columns = [sa.column("error_time", sa.TIMESTAMP()), *map(sa.column, ("record_id", "code", "message"))]
    errors = sa.table(quoted(log.error_table), *columns, schema=schema_of(log))
    found = sa.select(errors.c.error_time, errors.c.code, errors.c.message).where(errors.c.record_id == record_id)
    return [ErrorLine(*row) for row in conn.execute(found.order_by(errors.c.error_time))]
