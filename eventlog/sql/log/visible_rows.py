"""The visible record_ids of a log, as ranges and counts, for a reader that has another way to read
the rows themselves (spec/spark-changes.md 3).

No function commits. Rows of reserved statuses are skipped, as consumers skip them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from eventlog.core.ranges import Ranges
from eventlog.sql.port.log_operations import ANY_STATUS
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.sql_files import OF_LOG

_RECORD_ID = ("record_id",)


def _fetch(log: OpenLog, ranges: Ranges, limit: int | None, statement: str) -> list[Any]:
    """Run a ``statement`` over ranges of record_ids, and return its rows. ``{rows}`` in the
    statement stands for a SELECT of the record_ids that the database shows in the ranges, and
    ``{name}`` for the column of this SELECT.
    """
    window = replace(ANY_STATUS, limit=limit, gaps=tuple(ranges))
    rows = log.dialect.window_statement(log.table, window, _RECORD_ID)
    name = log.dialect.quote(log.table.column("record_id"))
    log.db.choose_plans()
    parameters = log.dialect.window_parameters(window)
    return log.db.fetch(statement.format(rows=rows, name=name), parameters, OF_LOG)


def count_rows(log: OpenLog, ranges: Ranges, limit: int | None = None) -> tuple[int, int]:
    """Return the number of rows in the ranges, and the record_id of the last counted row. At most
    ``limit`` rows are counted, the lowest first.
    """
    if not ranges:
        return 0, 0
    ((number, last),) = _fetch(
        log, ranges, limit, "SELECT COUNT(*), MAX({name}) FROM ({rows}) AS shown"
    )
    return int(number), int(last or 0)


def shown_ranges(log: OpenLog, ranges: Ranges, limit: int | None = None) -> list[tuple[int, int]]:
    """Return, as ranges, the rows that one statement sees in the given ranges: at most ``limit``
    rows, the lowest first.
    """
    if not ranges:
        return []
    statement = (
        "SELECT MIN({name}), MAX({name}) FROM ("
        "SELECT {name}, {name} - ROW_NUMBER() OVER (ORDER BY {name}) AS island "
        "FROM ({rows}) AS shown) AS numbered GROUP BY island ORDER BY 1"
    )
    found = _fetch(log, ranges, limit, statement)
    return [(int(first), int(last)) for first, last in found]
