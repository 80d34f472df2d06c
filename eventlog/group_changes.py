"""A group of log rows -> Change (spec/change-model.md 3.1).

The publisher makes events of groups without it, since a modify keeps every step of a repeated column; a Change holds
the net effect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, Final, Literal, TypeAlias

from eventlog.catalog import Attribute
from eventlog.change_keys import Key, key_of_text
from eventlog.changes import Net, net_of_many
from eventlog.checks import CheckedRow
from eventlog.errors import BadValue, FormatError
from eventlog.events import CurrentRow, Precedence
from eventlog.model import Change, ChangeOp, LogRow, Op, Value
from eventlog.typed import ReadValue, moment_reader, value_reader
from eventlog.values import ColumnType, Kind


class Unread(Enum):
    """The current row of an object that nobody has looked for, since there is no connection."""

    UNREAD = "unread"


UNREAD: Final = Unread.UNREAD
MaybeRow: TypeAlias = CurrentRow | Literal[Unread.UNREAD] | None
"""The current row of an object; None = it is gone."""


@dataclass(frozen=True, slots=True)
class GroupReading:
    """How groups are read: the ``schema`` of the log, the zone of times without one, blanks of CHAR (spec/xds.md 6).

    ``truncated`` is told the columns (``schema.table.column``) whose fraction has more than the six digits kept.
    Raises ConfigError.
    """

    schema: str | None = None
    time_zone: str = "UTC"
    char_padding: str = "trim"
    truncated: Callable[[str], None] | None = None

    def __post_init__(self) -> None:
        # Unknown values are refused before anything is read.
        moment_reader(self.time_zone)
        value_reader(ColumnType(Kind.FIXED), self.time_zone, self.char_padding)

    def value_of(self, attribute: Attribute) -> ReadValue:
        """The function that reads log text of the attribute's column."""
        read = value_reader(attribute.column.type, self.time_zone, self.char_padding)
        if self.truncated is None or attribute.column.type.kind not in _WITH_FRACTION:
            return read
        tell, table = self.truncated, f"{attribute.table}.{attribute.column.name}"
        name = table if self.schema is None else f"{self.schema}.{table}"

        def read_and_tell(text: str) -> Value:
            if _BEYOND_MICROSECONDS.search(text):
                tell(name)
            return read(text)

        return read_and_tell


_WITH_FRACTION: Final = frozenset((Kind.TIME, Kind.TIMESTAMP, Kind.TIMESTAMPTZ))
_BEYOND_MICROSECONDS = re.compile(r"\.[0-9]{6}0*[1-9]")


def group_to_change(
    precedence: Precedence, current: MaybeRow, log_rows: Mapping[int, LogRow], reading: GroupReading
) -> Change | None:
    """The change of a group after precedence, or None: the object is gone and nothing is left, or its rows say nothing.

    ``current``: what was read back, as ``build_event`` takes it, where precedence asks for it; ``UNREAD`` without a
    connection, which leaves ``after`` None, ``extras["columns"]`` naming what is to be read and ``extras["known"]``
    what the log holds. ``log_rows``: the group's rows by record_id, as the log has them. Time and user are those of
    the group's first row. Raises FormatError naming the row.
    """
    group, rows, _, query_back = precedence
    if query_back is not None and current is None:
        rows = [row for row in rows if row.event_type < 5]
    if not rows:
        return None
    first = group.rows[0].record_id
    try:
        key = key_of_text(group.key, group.object_class)
        images = _images(rows, key, query_back or (), current, log_rows, reading)
        commit_time = _commit_time(log_rows[first], reading)
    except BadValue as error:
        raise FormatError(f"the change of row {first}, {group.object_class.name!r} {group.key}: {error}") from error
    if images is None:
        return None
    extras = {
        "record_ids": [row.record_id for row in group.rows],
        "types": [row.event_type for row in group.rows],
        "status": [log_rows[row.record_id].status for row in group.rows],
        **images.extras,
    }
    return Change(
        reading.schema,
        group.object_class.name,
        images.op,
        key,
        images.before,
        images.after,
        images.changed,
        str(first),
        commit_time=commit_time,
        user=log_rows[first].perpetrator,
        extras=extras,
    )


@dataclass(slots=True)
class _Images:
    op: ChangeOp
    before: dict[str, Value] | None = None
    after: dict[str, Value] | None = None
    changed: frozenset[str] | None = None
    extras: dict[str, Any] = field(default_factory=dict)


def _images(
    rows: Sequence[CheckedRow],
    key: Key,
    query_back: Sequence[Attribute],
    current: MaybeRow,
    log_rows: Mapping[int, LogRow],
    reading: GroupReading,
) -> _Images | None:
    kind = rows[0].event_type
    if kind == 4:
        return _Images(ChangeOp.DELETE, before=dict(key))
    op = ChangeOp.INSERT if kind in (1, 5, 7) else ChangeOp.UPDATE
    known: dict[str, Value] = dict(key)
    unread: list[str] = []
    if current is UNREAD:
        unread = [attribute.name for attribute in query_back]
    elif current is not None:
        known.update((attribute.name, _read_back(attribute, current, reading)) for attribute in query_back)
    if kind in (5, 6):
        if current is UNREAD:
            return _Images(op, extras={"query_back": "row"})
        return _Images(op, after=known, extras={"query_back": "row"})
    before, after, changed = _logged(rows, log_rows, reading)
    extras: dict[str, Any] = {}
    if any(row.event_type in (7, 8) for row in rows):
        extras["query_back"] = "field"
    image: dict[str, Value] | None = {**known, **after}
    if unread:
        extras |= {"columns": unread, "known": after}
        image = None
    if op is ChangeOp.INSERT:
        return _Images(op, after=image, extras=extras)
    if not changed:
        return None
    return _Images(op, {**dict(key), **before} if before else None, image, frozenset(changed), extras)


_Columns: TypeAlias = dict[str, Value]


def _logged(
    rows: Sequence[CheckedRow], log_rows: Mapping[int, LogRow], reading: GroupReading
) -> tuple[_Columns, _Columns, list[str]]:
    """Old and new values that the rows hold, and the columns they name; key columns say nothing (spec/xds.md 4.2)."""
    by_attribute: dict[Attribute, list[CheckedRow]] = {}
    for row in rows:
        if row.attribute is not None and not row.attribute.is_key:
            by_attribute.setdefault(row.attribute, []).append(row)
    before: _Columns = {}
    after: _Columns = {}
    for attribute, own in by_attribute.items():
        if own[0].event_type in (7, 8):
            continue
        read = reading.value_of(attribute)
        if len(own) == 1 and not attribute.multi_valued:  # as nearly always
            event_type, old, new = _values(own[0], log_rows[own[0].record_id], read)
            after[attribute.name] = new
            if event_type == 2:
                before[attribute.name] = old
            continue
        values = [_values(row, log_rows[row.record_id], read) for row in own]
        if attribute.multi_valued:
            net = net_of_many(step for one in values for step in _steps(*one))
        else:
            net = Net(own[0].event_type == 2, values[0][1], values[-1][2])
        after[attribute.name] = net.new
        if net.is_known:
            before[attribute.name] = net.old
    return before, after, [attribute.name for attribute in by_attribute]


def _values(row: CheckedRow, log_row: LogRow, read: ReadValue) -> tuple[int, Value, Value]:
    """Type, old and new value of a row, each only where its type uses it."""
    old = None if row.event_type != 2 or log_row.old_value is None else read(log_row.old_value)
    return row.event_type, old, None if log_row.new_value is None else read(log_row.new_value)


def _steps(event_type: int, old: Value, new: Value) -> list[tuple[Op, tuple[Value, ...]]]:
    """The steps of a row of a multi-valued attribute."""
    steps: list[tuple[Op, tuple[Value, ...]]] = [(Op.REMOVE_ALL, ())] if event_type == 3 else []
    if old is not None:
        steps.append((Op.REMOVE, (old,)))
    if new is not None:
        steps.append((Op.ADD, (new,)))
    return steps


def _read_back(attribute: Attribute, current: CurrentRow, reading: GroupReading) -> Value:
    """The value read back: of several in a single-valued column the first by its text (spec/xds.md 4.3)."""
    texts = sorted({text for text in current[attribute.name] if text is not None})
    read = reading.value_of(attribute)
    if attribute.multi_valued:
        return tuple(dict.fromkeys(map(read, texts)))
    return read(texts[0]) if texts else None


def _commit_time(row: LogRow, reading: GroupReading) -> datetime | None:
    return None if row.event_time is None else moment_reader(reading.time_zone)(row.event_time)
