"""Rows that a test writes into the log itself, and what it looks at of them."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import Connection

from eventlog.model import LogRow
from eventlog.sql.port.log_operations import Window

EVERYTHING = Window(first=0, last=None, limit=None)


def write(conn: Connection, *rows: tuple[int, str], **fields: object) -> None:
    """Rows of the log: record_id and status each, further fields for all of them."""
    values = {"event_type": 6, "table_name": "usr", "table_key": "idu=1"} | fields
    names = ", ".join(values)
    binds = ", ".join(f":{name}" for name in values)
    statement = sa.text(
        f"INSERT INTO eventlog (record_id, status, {names}) VALUES (:id, :status, {binds})"
    )
    for record_id, status in rows:
        conn.execute(statement, {"id": record_id, "status": status} | values)


def ids(rows: list[LogRow]) -> list[int]:
    return [row.record_id for row in rows]


def statuses(conn: Connection) -> dict[int, str]:
    return {
        row[0]: row[1] for row in conn.execute(sa.text("SELECT record_id, status FROM eventlog"))
    }
