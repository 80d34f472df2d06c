"""What a dialect is asked for of a log, and answers, as values (spec/event-log.md 8.1, 11)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from eventlog.core.catalog import ObjectClass
from eventlog.model import EventType
from eventlog.sql.log_table import LogTable

Ranges = Sequence[tuple[int, int]]
"""record_ids as [first, last] of consecutive integers that were all read."""


DuePlace = tuple[str | None, int]
"""event_time, as text of the log's clock, and record_id of a row: where it stands among those that are due."""


@dataclass(frozen=True, slots=True)
class Window:
    """Which rows N to read, in record_id order: ids ``first`` to ``last`` at most ``limit`` (None = no limit).

    ``leave_user``: rows of this perpetrator are left alone (``loopback_rows = leave``); None = none are.
    ``value_bytes``: a row whose values have more bytes comes without them, its event_type the number of these bytes
    with a minus; None = all rows come whole. ``gaps``: not rows N but those of these ranges, in ascending order,
    whatever their letter of N, S, W, E, F; ``first``, ``last`` and ``leave_user`` do not count then.
    """

    first: int
    last: int | None
    limit: int | None
    leave_user: str | None = None
    value_bytes: int | None = None
    gaps: Ranges | None = None

    def parameters(self, greatest: int) -> dict[str, object]:
        """What the statement of a window binds: ``first`` (rows without a positive record_id never count), ``last``,
        ``limit``; and ``perpetrator`` where one is left alone. ``greatest``: the record_id that there can be at most.
        Of ``gaps`` these are the bounds of the last one; the others are bound as the dialect binds ranges.
        """
        if self.gaps is not None:
            first, last = self.gaps[-1] if self.gaps else (1, 0)
            return {"first": first, "last": last, "limit": greatest if self.limit is None else self.limit}
        bounds: dict[str, object] = {
            "first": max(self.first, 1),
            "last": greatest if self.last is None else min(self.last, greatest),
            "limit": greatest if self.limit is None else self.limit,
        }
        return bounds if self.leave_user is None else bounds | {"perpetrator": self.leave_user.rstrip(" ")}

    @property
    def statement(self) -> str:
        """The name of the statement that reads it, in a dialect's ``log.sql``."""
        if self.gaps is not None:
            return "read_gaps"
        return "read_window" if self.leave_user is None else "read_window_left"


class Queue(NamedTuple):
    """How much waits: rows with status N, and the age in seconds of the oldest by event_time, None if there is none."""

    rows: int
    oldest_seconds: float | None


def to_ranges(ids: Sequence[int]) -> list[tuple[int, int]]:
    """record_ids as ranges of consecutive integers, in their order."""
    if not ids:
        return []
    if ids[-1] - ids[0] + 1 == len(ids) and ids == list(range(ids[0], ids[-1] + 1)):  # as most are
        return [(ids[0], ids[-1])]
    ranges: list[tuple[int, int]] = []
    first = last = ids[0]
    for record_id in islice(ids, 1, None):
        if record_id != last + 1:
            ranges.append((first, last))
            first = record_id
        last = record_id
    ranges.append((first, last))
    return ranges


@dataclass(frozen=True, slots=True)
class Selection:
    """What is written again. ``event_type``: 5, or 6; 4: the objects that are gone.

    ``where``: SQL of the operator that holds for the rows; ``keys``: what tells the file of keys apart, such as its
    hash; neither = the whole class.
    """

    class_name: str
    event_type: EventType
    where: str | None = None
    keys: str | None = None

    def __str__(self) -> str:
        what = "whole class" if self.where is None and self.keys is None else "keys of a file"
        if self.where is not None:
            what = f"where {self.where}"
        if self.event_type is EventType.DELETE_ROW:
            what = "objects that are gone"
        return f"{what}, as type {int(self.event_type)}"

    @property
    def digest(self) -> str:
        """What its line is found by, 64 hex digits."""
        parts = (self.class_name, str(int(self.event_type)), self.where or "", self.keys or "")
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


class Batch(NamedTuple):
    """What one batch did: rows written, keys that have no object, and the position behind it.

    ``position`` is the last key as canonical table_key text, or for a file of keys the number of its last line; for
    objects that are gone the record_id of the last row by which one is known. ``present``: those that are there.
    """

    rows: int
    missing: int
    position: str | None
    is_last: bool
    present: int = 0


@dataclass(frozen=True, slots=True)
class Walk:
    """A class whose objects are written again, in the order of their keys.

    ``quote_function``: SQL name of the function that quotes a text in a key, if the dialect needs one.
    """

    log: LogTable
    schema: str | None
    cls: ObjectClass
    selection: Selection
    quote_function: str = ""
