"""A group of log rows -> Change (spec/change-model.md 3.1).

The publisher makes events of groups without it, since a modify keeps every step of a repeated column; a Change holds
the net effect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

from eventlog.changes.events import net_of_many
from eventlog.changes.format import Key, key_reader
from eventlog.core.catalog import Attribute
from eventlog.core.checks import (
    DELETE_ROW,
    INSERT_FIELD,
    INSERT_FIELD_QUERY_BACK,
    INSERT_ROW_QUERY_BACK,
    UPDATE_FIELD,
    UPDATE_FIELD_REMOVE_ALL,
    UPDATE_ROW_QUERY_BACK,
    CheckedRow,
)
from eventlog.core.events import READS, READS_ROW, CurrentRow, Decision, ids_of
from eventlog.core.fold import Group
from eventlog.core.typed import ReadValue, moment_reader, value_reader
from eventlog.core.values import Kind
from eventlog.errors import BadValue, FormatError
from eventlog.model import ALL, Change, ChangeOp, LogRow, Op, Value, full_name

# Bound names: an enumeration's members are looked up slowly.
_INSERT, _UPDATE, _DELETE = ChangeOp.INSERT, ChangeOp.UPDATE, ChangeOp.DELETE
_INSERTS: Final = frozenset((INSERT_FIELD, INSERT_ROW_QUERY_BACK, INSERT_FIELD_QUERY_BACK))
_NO_EXTRAS: Final[Mapping[str, Any]] = {}
_MOST_ATTRIBUTES: Final = 4096
_new: Final = tuple.__new__  # a NamedTuple from its fields, in less than half the time


UNREAD: Final[CurrentRow] = {}
"""In place of the current row of an object that nobody has looked for, since there is no connection."""


_WITH_FRACTION: Final = frozenset((Kind.TIME, Kind.TIMESTAMP, Kind.TIMESTAMPTZ))
_BEYOND_MICROSECONDS = re.compile(r"\.[0-9]{6}0*[1-9]")


ReadGroup: TypeAlias = Callable[[Group, Decision | None, CurrentRow | None, Mapping[int, LogRow]], Change | None]
"""A group, what precedence decides of it, its current row (None = it is gone), and its rows by record_id as the log has
them -> its change.
"""


def group_reader(
    schema: str | None = None,
    time_zone: str = "UTC",
    char_padding: str = "trim",
    truncated: Callable[[str], None] | None = None,
) -> ReadGroup:
    """The function that gives the changes of groups; what follows from their classes is looked up once.

    ``schema``: that of the log. ``time_zone``: of times without one; ``char_padding``: blanks of CHAR (spec/xds.md 6).
    ``truncated`` is told the columns (``schema.table.column``) whose fraction has more than the six digits kept. Raises
    ConfigError.

    None: the object is gone and nothing is left, or its rows say nothing. The current row is what was read back, as
    ``build_event`` takes it, where precedence asks for it; ``UNREAD`` without a connection, which leaves ``after``
    None, ``extras["columns"]`` naming what is to be read and ``extras["known"]`` what the log holds. Time and user are
    those of the group's first row. The function raises FormatError naming that row.
    """
    read_moment = moment_reader(time_zone)

    @lru_cache(maxsize=_MOST_ATTRIBUTES)
    def value_of(attribute: Attribute) -> ReadValue:
        read = value_reader(attribute.column.type, time_zone, char_padding)
        if truncated is None or attribute.column.type.kind not in _WITH_FRACTION:
            return read
        name = f"{full_name(schema, attribute.table)}.{attribute.column.name}"

        def read_and_tell(text: str) -> Value:
            if _BEYOND_MICROSECONDS.search(text):
                truncated(name)
            return read(text)

        return read_and_tell

    def read(
        group: Group, decision: Decision | None, current: CurrentRow | None, log_rows: Mapping[int, LogRow]
    ) -> Change | None:
        rows: Sequence[CheckedRow] = group
        query_back = None
        if decision is not None:
            rows, _, query_back = decision
            if query_back is not None and current is None:
                rows = [row for row in rows for _, event_type, _, _, _, _ in (row,) if event_type not in READS]
        if not rows:
            return None
        first, _, (object_class, key_text), _, _, _ = group[0]
        first_row = log_rows[first]
        event_time = first_row.event_time
        try:
            key = key_reader(object_class)(key_text)
            images = _images(rows, key, query_back, current, log_rows, value_of)
            commit_time = None if event_time is None else read_moment(event_time)
        except BadValue as error:
            raise FormatError(f"the change of row {first}, {object_class.name!r} {key_text}: {error}") from error
        if images is None:
            return None
        op, before, after, changed, extras = images
        # Valid by what has made it: not checked again.
        return _new(
            Change,
            (schema, object_class.name, op, key, before, after, changed, str(first),
             None, None, None, commit_time, first_row.perpetrator, extras),
        )  # fmt: skip

    return read


def with_rows(change: Change, group: Group, log_rows: Mapping[int, LogRow]) -> Change:
    """The change of a group, its ``extras`` telling of the group's rows: record_ids, types, status."""
    rows = {
        "record_ids": ids_of(group),
        "types": [event_type for _, event_type, _, _, _, _ in group],
        "status": [log_rows[record_id].status for record_id in ids_of(group)],
    }
    return change._replace(extras={**rows, **change.extras})


_Columns: TypeAlias = dict[str, Value]
_ValueOf: TypeAlias = Callable[[Attribute], ReadValue]
_Images: TypeAlias = tuple[ChangeOp, _Columns | None, _Columns | None, frozenset[str] | None, Mapping[str, Any]]
"""Operation, rows before and after, what was changed, extras."""


def _images(
    rows: Sequence[CheckedRow],
    key: Key,
    query_back: Sequence[Attribute] | None,
    current: CurrentRow | None,
    log_rows: Mapping[int, LogRow],
    value_of: _ValueOf,
) -> _Images | None:
    _, kind, _, _, _, _ = rows[0]
    if kind == DELETE_ROW:
        return _DELETE, dict(key), None, None, _NO_EXTRAS
    op = _INSERT if kind in _INSERTS else _UPDATE
    old, new = _logged(rows, log_rows, value_of)
    after: _Columns | None = {**dict(key), **new}
    changed = frozenset(new)
    extras = _NO_EXTRAS
    if query_back is not None and current is not None:
        extras = {"query_back": "row" if kind in READS_ROW else "field"}
        named = [attribute for _, _, _, attribute, _, _ in rows if attribute is not None]
        changed |= {attribute.name for attribute in named if not attribute.is_key}
        if current is not UNREAD:
            read_back = {attribute.name: _read_back(attribute, current, value_of) for attribute in query_back}
            after = {**dict(key), **read_back, **new}
        elif kind in READS_ROW:
            after = None
        elif query_back:
            after = None
            extras |= {"columns": [attribute.name for attribute in query_back], "known": new}
    if op is _INSERT or kind == UPDATE_ROW_QUERY_BACK:
        return op, None, after, None, extras
    if not changed:
        return None
    return op, {**dict(key), **old} if old else None, after, changed, extras


def _logged(
    rows: Sequence[CheckedRow], log_rows: Mapping[int, LogRow], value_of: _ValueOf
) -> tuple[_Columns, _Columns]:
    """Old and new values of the columns that rows hold a value of; key columns say nothing (spec/xds.md 4.2)."""
    before: _Columns = {}
    after: _Columns = {}
    steps: dict[str, list[_ValueStep]] = {}
    for record_id, event_type, _, attribute, goes, _ in rows:
        if attribute is None or attribute.is_key or event_type in READS:
            continue
        if goes is ALL:  # of type 3, or of type 2 with an old value that cannot be read (spec/xds.md 4.3)
            event_type = UPDATE_FIELD_REMOVE_ALL
        name, read, log_row = attribute.name, value_of(attribute), log_rows[record_id]
        old = None if event_type != UPDATE_FIELD or log_row.old_value is None else read(log_row.old_value)
        new = None if log_row.new_value is None else read(log_row.new_value)
        if attribute.multi_valued:
            steps.setdefault(name, []).extend(_steps(event_type, old, new))
            before[name] = after[name] = ()
            continue
        if event_type == UPDATE_FIELD and name not in after:
            before[name] = old
        after[name] = new
    for name, several in steps.items():
        is_known, before[name], after[name] = net_of_many(several)
        if not is_known:
            del before[name]
    return before, after


_ValueStep: TypeAlias = tuple[Op, tuple[Value, ...]]


def _steps(event_type: int, old: Value, new: Value) -> list[_ValueStep]:
    """The steps of a row of a multi-valued attribute."""
    steps: list[_ValueStep] = [(Op.REMOVE_ALL, ())] if event_type == UPDATE_FIELD_REMOVE_ALL else []
    if old is not None:
        steps.append((Op.REMOVE, (old,)))
    if new is not None:
        steps.append((Op.ADD, (new,)))
    return steps


def _read_back(attribute: Attribute, current: CurrentRow, value_of: _ValueOf) -> Value:
    """The value read back: of several in a single-valued column the first by its text (spec/xds.md 4.3)."""
    texts = sorted({text for text in current[attribute.name] if text is not None})
    read = value_of(attribute)
    if attribute.multi_valued:
        return tuple(dict.fromkeys(map(read, texts)))
    return read(texts[0]) if texts else None
