"""The rows of a history in the order of the versions, and the faults of the versions
(spec/verify.md 4.4). The rows are kept in a temporary SQLite database, so that memory does not grow
with the number of rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import accumulate, groupby
from typing import Final, NamedTuple, TypeAlias

from eventlog.model import Operation
from eventlog.spark.copies.copy_history import LOADED
from eventlog.verify.private_database import private_database, write_rows
from eventlog.verify.targets.states import State

_TABLE: Final = (
    "CREATE TABLE history (key TEXT, load INTEGER, batch INTEGER, position INTEGER, operation TEXT,"
    " time REAL, content TEXT)"
)
_ORDERED: Final = "SELECT * FROM history WHERE key IS NOT NULL ORDER BY key, load, batch, position"
_LOADS: Final = "SELECT load, time FROM history WHERE key IS NULL ORDER BY load, time"


class HistoryRow(NamedTuple):
    """A row of a history; ``key`` is the canonical key, None for the row that begins a load."""

    key: str | None
    load: int
    batch: int
    position: int | None
    operation: str
    time: datetime | None
    state: State


_Stored: TypeAlias = tuple[str, int, int, int | None, str, float | None, str]


class HistoryRows:
    """The rows of one state of a history."""

    def __init__(self) -> None:
        self._database = private_database(65_536, _TABLE)

    def add(self, rows: Iterable[HistoryRow]) -> None:
        """Add rows, in any order."""
        write_rows(
            self._database,
            "INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                (
                    *one[:5],
                    None if one.time is None else one.time.timestamp(),
                    json.dumps(one.state, ensure_ascii=False),
                )
                for one in rows
            ),
        )

    def objects(self) -> Iterator[tuple[str, State | None, str]]:
        """Yield each object: its canonical key, the state of its newest version (None = the object
        does not exist now), and the fault of its versions, empty if there is none.
        """
        loads: list[tuple[int, float]] = self._database.execute(_LOADS).fetchall()
        times = accumulate((time for _, time in loads), max)
        begins = {load: time for (load, _), time in zip(loads, times, strict=True)}
        last = max(begins, default=0)
        for key, rows in groupby(self._database.execute(_ORDERED), lambda row: str(row[0])):
            yield (key, *_folded(rows, begins, last))

    def close(self) -> None:
        """Remove the database."""
        self._database.close()


def _folded(
    rows: Iterable[_Stored], begins: Mapping[int, float], last: int
) -> tuple[State | None, str]:
    """Return the state of an object after its rows, and the first fault of its versions."""
    content: str | None = None
    fault = ""
    place: tuple[int, int, int | None] | None = None
    for _, load, batch, position, operation, time, state in rows:
        if place is None or place[0] != load:
            content = None  # no object exists when a load begins
        found = ""
        if load not in begins:
            found = "the row that begins its load is missing"
        elif place == (load, batch, position) or (operation == LOADED and content is not None):
            found = "two versions begin at the same position, so they overlap"
        elif (
            operation == Operation.MODIFY
            and content is None
            and time is not None
            and time > begins[load]
        ):
            found = "the object did not exist before, so an earlier version is missing"
        if found and not fault:
            where = "" if position is None else f", _position {position}"
            fault = f"{operation} at _load {load}, _batch {batch}{where}: {found}"
        content = None if operation == Operation.DELETE else state
        place = load, batch, position
    is_there = content is not None and place is not None and place[0] == last
    return (json.loads(content) if is_there and content is not None else None), fault
