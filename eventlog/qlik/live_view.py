"""The live view: the state of a table as of a moment, from a base and the rows of its change table (spec/qlik.md 6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

from eventlog.errors import FormatError
from eventlog.model import Row, Value
from eventlog.qlik.change_rows import ChangeRow, row_order
from eventlog.qlik.change_tables import key_from_deletes
from eventlog.qlik.sequence import last_sequence_of

Key: TypeAlias = tuple[Value, ...]

_NO_ROW: Row = {}


def live_view(
    base: Iterable[Row],
    changes: Iterable[ChangeRow],
    as_of: datetime | None = None,
    *,
    key: Sequence[str] | None = None,
) -> dict[Key, Row]:
    """The rows by key after the changes up to and with ``as_of`` (UTC where naive; None = all), put on ``base``.

    ``changes`` may come in any order. ``key``: the key columns, else those that the mask of the first DELETE tells.
    Raises FormatError where neither gives a key.
    """
    rows = sorted(changes, key=row_order)
    names = tuple(key) if key is not None else key_from_deletes(rows)
    if not names:
        raise FormatError("the key of the change table is not known and no DELETE tells it; name the key columns")
    state: dict[Key, Row] = {_key(row, names): row for row in base}
    bound = None if as_of is None else last_sequence_of(as_of)
    before: ChangeRow | None = None
    for row in rows:
        if bound is not None and row.change_seq > bound:
            break
        match row.change_oper:
            case "B":
                before = row
                continue
            case "I":
                state[_key(row.data, names)] = row.data
            case "U":
                new = _key(row.data, names)
                old = new
                if before is not None and before.change_seq == row.change_seq:
                    old = _key(before.data, names)
                previous = state.get(old, _NO_ROW)
                if old != new:
                    state.pop(old, None)
                state[new] = _updated(row, previous)
            case "D":
                state.pop(_key(row.data, names), None)
            case _:
                state.clear()
        before = None
    return state


def _key(row: Mapping[str, Value], names: Sequence[str]) -> Key:
    return tuple(row.get(name) for name in names)


def _updated(row: ChangeRow, previous: Row) -> Row:
    """A NULL under a clear bit was not captured: the value stays as it was."""
    mask = row.mask or frozenset()
    updated = {**previous, **dict.fromkeys(mask)}
    for name, value in row.data.items():
        if value is not None:
            updated[name] = value
        else:
            updated.setdefault(name, None)
    return updated
