"""Rows that were refused, E and F, in groups of one cause, each with what puts it back into the queue."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection

from eventlog.model import Status
from eventlog.sql.dialect import Dialect
from eventlog.sql.log_table import LogTable
from eventlog.sql.rows import ErrorLine, newest_errors
from eventlog.sql.windows import to_ranges

LINES_READ: Final = 10_000
"""Error lines that are looked at, the newest."""
_IDS_NAMED: Final = 20
"""Ranges of record_ids that a command line bears."""


class Refusals(NamedTuple):
    """Rows of one code, one table and one status. ``example`` is the newest of them; ``newest`` is UTC."""

    code: str
    table_name: str | None
    status: str
    rows: int
    newest: datetime
    example: int
    message: str
    command: str


def read_refusals(conn: Connection, dialect: Dialect, log: LogTable, most: int) -> list[Refusals]:
    """The rows E and F that the newest ``most`` error lines speak of, the largest group first.

    A row that was put back into the queue, published since or purged is left out.
    """
    lines: dict[int, ErrorLine] = {}
    for record_id, line in newest_errors(conn, log, most):
        lines.setdefault(record_id, line)
    groups: dict[tuple[str, str | None, str], list[int]] = {}
    for row in dialect.read_rows(conn, log, to_ranges(sorted(lines))):
        status = row.status.rstrip(" ")
        if status in (Status.ERROR, Status.FATAL):
            groups.setdefault((lines[row.record_id].code, row.table_name, status), []).append(row.record_id)
    refusals = [_refusals(*kind, ids, lines) for kind, ids in groups.items()]
    return sorted(refusals, key=lambda group: (-group.rows, group.code, group.table_name or ""))


def _refusals(code: str, table_name: str | None, status: str, ids: list[int], lines: dict[int, ErrorLine]) -> Refusals:
    newest = max(ids, key=lambda record_id: (lines[record_id].error_time, record_id))
    ranges = to_ranges(ids)
    command = f"eventlog requeue --status {status}"
    if len(ranges) <= _IDS_NAMED:
        command += " --ids " + ",".join(str(lo) if lo == hi else f"{lo}-{hi}" for lo, hi in ranges)
    line = lines[newest]
    return Refusals(code, table_name, status, len(ids), line.error_time, newest, line.message, command)


def as_data(refusals: Iterable[Refusals]) -> list[dict[str, Any]]:
    """The groups as JSON takes them."""
    return [{**group._asdict(), "newest": f"{group.newest:%Y-%m-%dT%H:%M:%SZ}"} for group in refusals]
