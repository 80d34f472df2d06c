"""The one fake of a dialect: a log of rows in memory, and objects in memory in place of tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection

from eventlog.core.catalog import Attribute, ObjectClass
from eventlog.core.ranges import Ranges
from eventlog.model import LogRow
from eventlog.sql.dialect import CurrentRow, LogRows
from eventlog.sql.dialects.sqlite import SQLite
from eventlog.sql.log_table import LogTable
from eventlog.sql.windows import Window

ReadBack = Callable[[ObjectClass, Sequence[str], Sequence[Attribute]], dict[str, CurrentRow]]


def nothing(
    _cls: ObjectClass, _keys: Sequence[str], _attributes: Sequence[Attribute]
) -> dict[str, CurrentRow]:
    """No object is there."""
    return {}


class FakeDialect(SQLite):
    """A dialect that asks no database for what the publisher reads.

    ``waiting`` gives the rows N in record_id order, ``read_back`` the current rows; ``reads`` are
    the windows so far.
    """

    def __init__(
        self, waiting: Callable[[], Iterable[LogRow]], read_back: ReadBack = nothing
    ) -> None:
        self.waiting, self.read_back = waiting, read_back
        self.reads: list[Window] = []

    def read_window(self, conn: Connection, log: LogTable, window: Window) -> list[LogRow]:
        self.reads.append(window)
        rows = [
            row
            for row in self.waiting()
            if row.record_id >= max(1, window.first)
            and (window.last is None or row.record_id <= window.last)
            and (
                window.leave_user is None
                or (row.perpetrator or "").rstrip(" ") != window.leave_user
            )
        ]
        return [_bounded(row, window.value_bytes) for row in rows[: window.limit]]

    def read_columns(
        self, conn: Connection, log: LogTable, ranges: Ranges, fields: Sequence[str]
    ) -> list[tuple[Any, ...]]:
        ids = {record_id for first, last in ranges for record_id in range(first, last + 1)}
        pick = itemgetter(*map(LogRow._fields.index, fields))
        return [pick(row) for row in self.waiting() if row.record_id in ids]

    def window_chunks(self, conn: Connection, log: LogTable, window: Window, size: int) -> LogRows:
        return in_chunks(self.read_window(conn, log, window), size)

    def query_back(
        self,
        conn: Connection,
        schema: str | None,
        cls: ObjectClass,
        keys: Sequence[str],
        attributes: Sequence[Attribute],
    ) -> dict[str, CurrentRow]:
        return self.read_back(cls, keys, attributes)


def _bounded(row: LogRow, value_bytes: int | None) -> LogRow:
    """The row as ``Window.value_bytes`` has it."""
    size = len(row.old_value or "") + len(row.new_value or "")
    if value_bytes is None or size <= value_bytes:
        return row
    return row._replace(event_type=-size, old_value=None, new_value=None)


def in_chunks(rows: Sequence[LogRow], size: int) -> LogRows:
    """Rows as ``Dialect.window_chunks`` gives them: the last list has fewer."""
    yield from (list(rows[start : start + size]) for start in range(0, len(rows) + 1, size))
