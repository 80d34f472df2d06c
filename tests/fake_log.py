"""The one fake of a log: its rows in memory, and objects in memory in place of tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from eventlog.core.catalog import Attribute, ObjectClass
from eventlog.core.ranges import Ranges
from eventlog.model import LogRow
from eventlog.sql.dialects.sqlite import DIALECT
from eventlog.sql.dialects.sqlite.database import SQLiteDatabase
from eventlog.sql.dialects.sqlite.log import SQLiteLog
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.dialect import CurrentRow
from eventlog.sql.port.log_operations import Window
from eventlog.sql.port.sql_files import RowChunks

ReadBack = Callable[[ObjectClass, Sequence[str], Sequence[Attribute]], dict[str, CurrentRow]]


def nothing(
    _cls: ObjectClass, _keys: Sequence[str], _attributes: Sequence[Attribute]
) -> dict[str, CurrentRow]:
    """No object is there."""
    return {}


@dataclass(frozen=True)
class FakeDatabase(SQLiteDatabase):
    """A session of SQLite whose current rows are those of ``read_back``."""

    read_back: ReadBack = nothing

    def query_back(
        self,
        schema: str | None,
        cls: ObjectClass,
        keys: Sequence[str],
        attributes: Sequence[Attribute],
    ) -> dict[str, CurrentRow]:
        return self.read_back(cls, keys, attributes)


@dataclass(frozen=True)
class FakeLog(SQLiteLog):
    """A log that asks no database for its rows.

    ``waiting`` gives the rows N in record_id order; ``reads`` are the windows so far.
    """

    waiting: Callable[[], Iterable[LogRow]] = list
    reads: list[Window] = field(default_factory=list)

    def read_window(self, window: Window) -> list[LogRow]:
        self.reads.append(window)
        rows = [
            row
            for row in self.waiting()
            if row.record_id >= max(1, window.first)
            and (window.last is None or row.record_id <= window.last)
            and (
                window.skipped_user is None
                or (row.perpetrator or "").rstrip(" ") != window.skipped_user
            )
        ]
        return rows[: window.limit]

    def read_columns(self, ranges: Ranges, fields: Sequence[str]) -> list[tuple[Any, ...]]:
        ids = {record_id for first, last in ranges for record_id in range(first, last + 1)}
        pick = itemgetter(*map(LogRow._fields.index, fields))
        return [pick(row) for row in self.waiting() if row.record_id in ids]

    def window_chunks(self, window: Window, fields: Sequence[str], size: int) -> RowChunks:
        pick = itemgetter(*map(LogRow._fields.index, fields))

        def bounded(row: LogRow) -> tuple[Any, ...]:
            if window.value_bytes is None:
                return pick(row)
            values = len(row.old_value or "") + len(row.new_value or "")
            if values <= window.value_bytes:
                return (*pick(row), None)
            return (*pick(row._replace(old_value=None, new_value=None)), values)

        return in_chunks(list(map(bounded, self.read_window(window))), size)


def fake_log(
    table: LogTable, waiting: Callable[[], Iterable[LogRow]], read_back: ReadBack = nothing
) -> FakeLog:
    """A log without a connection."""
    return FakeLog(FakeDatabase(None, DIALECT, read_back), table, waiting)  # type: ignore[arg-type]


def in_chunks(rows: Sequence[tuple[Any, ...]], size: int) -> RowChunks:
    """Rows as ``OpenLog.window_chunks`` gives them: the last list has fewer."""
    yield from (list(rows[start : start + size]) for start in range(0, len(rows) + 1, size))
