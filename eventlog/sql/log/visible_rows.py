"""The visible record_ids of a log, as ranges and counts, for a reader that has another way to read
the rows themselves (spec/spark-changes.md 3).

No function commits. Rows of reserved statuses are skipped, as consumers do.
"""

from __future__ import annotations

from dataclasses import replace

from eventlog.core.ranges import Ranges
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.dialect import Dialect
from eventlog.sql.port.log_operations import ANY_STATUS, Window
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.sql_files import OF_LOG

_RECORD_ID = ("record_id",)


def _of(dialect: Dialect, log: LogTable, ranges: Ranges, limit: int | None) -> tuple[str, Window]:
    """Return the statement that reads the record_ids of ranges, and its window."""
    window = replace(ANY_STATUS, limit=limit, gaps=tuple(ranges))
    return dialect.window_statement(log, window, _RECORD_ID), window


def count_rows(log: OpenLog, ranges: Ranges, limit: int | None = None) -> tuple[int, int]:
    """Return the number of rows in the ranges, the lowest first, at most ``limit``, and the
    record_id of the last.
    """
    if not ranges:
        return 0, 0
    rows, window = _of(log.dialect, log.table, ranges, limit)
    name = log.dialect.quote(log.table.column("record_id"))
    log.db.choose_plans()
    counted = f"SELECT COUNT(*), MAX({name}) FROM ({rows}) AS shown"  # noqa: S608 - a statement of the dialect
    ((number, last),) = log.db.fetch(counted, log.dialect.window_parameters(window), OF_LOG)
    return int(number), int(last or 0)


def shown_ranges(log: OpenLog, ranges: Ranges, limit: int | None = None) -> list[tuple[int, int]]:
    """Return the rows that one statement sees in the ranges, the lowest first and at most
    ``limit``, as ranges.
    """
    if not ranges:
        return []
    rows, window = _of(log.dialect, log.table, ranges, limit)
    name = log.dialect.quote(log.table.column("record_id"))
    log.db.choose_plans()
    statement = (
        f"SELECT MIN({name}), MAX({name}) FROM ("  # noqa: S608
        f"SELECT {name}, {name} - ROW_NUMBER() OVER (ORDER BY {name}) AS island "
        f"FROM ({rows}) AS shown) AS numbered GROUP BY island ORDER BY 1"
    )
    found = log.db.fetch(statement, log.dialect.window_parameters(window), OF_LOG)
    return [(int(first), int(last)) for first, last in found]
