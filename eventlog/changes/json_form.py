"""A Change as JSON and back (spec/change-model.md 1.1): the form of vectors, logs and the format ``jsonl``."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final, TypeVar

from eventlog.changes.keys import class_of_change
from eventlog.core.catalog import Catalog, ObjectClass
from eventlog.core.moments import aware_utc, naive_utc, without_zeros
from eventlog.core.typed import decimal_text, typed_by
from eventlog.core.values import ColumnType, float_or_word
from eventlog.errors import FormatError, RowError
from eventlog.model import Change, ChangeOp, Lob, Row, Value

_EXACT: Final = 2**53 - 1
"""The greatest integer that every reader of JSON keeps exactly (RFC 8259 6)."""

Of = TypeVar("Of")


def to_json(change: Change) -> dict[str, Any]:
    """The JSON object of a change: all its fields in order, what JSON has no type for as text."""
    return {
        "schema": change.schema,
        "table": change.table,
        "op": change.op.value,
        "key": None if change.key is None else [[name, value_to_json(value)] for name, value in change.key],
        "before": _row_to_json(change.before),
        "after": _row_to_json(change.after),
        "changed": None if change.changed is None else sorted(change.changed),
        "position": change.position,
        "transaction_id": change.transaction_id,
        "event_number": change.event_number,
        "last_in_transaction": change.last_in_transaction,
        "commit_time": None if change.commit_time is None else utc_text(change.commit_time),
        "user": change.user,
        "extras": {name: _extra_to_json(value) for name, value in change.extras.items()},
    }


def dumps(change: Change) -> str:
    """A change as one line of JSON, without the line break."""
    return json.dumps(to_json(change), ensure_ascii=False, separators=(",", ":"))


def from_json(value: Mapping[str, Any]) -> Change:
    """The change of a JSON object: members that are missing are None, unknown ones are ignored.

    Text stays text: JSON does not say whether it was a date or a decimal. Raises FormatError, InvalidChange.
    """
    if not isinstance(value, Mapping):
        raise FormatError(f"a change is a JSON object, not {type(value).__name__}")
    table, op, commit_time = value.get("table"), value.get("op"), value.get("commit_time")
    if not isinstance(table, str):
        raise FormatError(f"a change needs the name of its table as text, not {table!r}")
    if not isinstance(op, str) or op not in ChangeOp.__members__:
        raise FormatError(f"op {op!r} of a change of {table!r} is none of {', '.join(ChangeOp.__members__)}")
    try:
        key, changed = member(value, "key", list), member(value, "changed", list)
        return Change(
            member(value, "schema", str),
            table,
            ChangeOp(op),
            None if key is None else tuple(_key_part(part) for part in key),
            _row_from_json(member(value, "before", dict)),
            _row_from_json(member(value, "after", dict)),
            None if changed is None else frozenset(changed),
            member(value, "position", str),
            member(value, "transaction_id", str),
            member(value, "event_number", int),
            member(value, "last_in_transaction", bool),
            None if commit_time is None else aware_utc(datetime.fromisoformat(commit_time)),
            member(value, "user", str),
            {name: _extra_from_json(part) for name, part in (member(value, "extras", dict) or {}).items()},
        )
    except (TypeError, ValueError, OverflowError) as error:
        raise FormatError(f"the change of {table!r} cannot be read: {error}") from error


def loads(line: str | bytes) -> Change:
    """The change of one line of JSON. Raises FormatError."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"the line is no JSON: {error}") from None
    return from_json(value)


def typed_change(change: Change, catalog: Catalog | None) -> Change:
    """A change out of JSON, its values typed by the columns of the catalogue. Raises FormatError."""
    object_class = class_of_change(catalog, change)
    if object_class is None:
        return change
    types = _types(object_class)
    try:
        return change._replace(
            key=None if change.key is None else tuple((name, _typed(types, name, value)) for name, value in change.key),
            before=None if change.before is None else _image(types, change.before),
            after=None if change.after is None else _image(types, change.after),
        )
    except RowError as error:
        raise FormatError(f"{change.op} of {change.table!r} at {change.position}: {error}") from error


def _types(object_class: ObjectClass) -> dict[str, ColumnType]:
    types = {column.name: column.type for column in object_class.table.columns}
    types.update((attribute.name, attribute.column.type) for attribute in object_class.attributes)
    return types


def _image(types: Mapping[str, ColumnType], row: Mapping[str, Value]) -> dict[str, Value]:
    return {name: _typed(types, name, value) for name, value in row.items()}


def _typed(types: Mapping[str, ColumnType], name: str, value: Value) -> Value:
    type = types.get(name)
    return value if type is None else typed_by(type, value)


def value_to_json(value: Value) -> Any:
    """A value of a column: Decimal, date and time as text, bytes as ``{"hex": "00FF"}``, several values as array.

    The floats that JSON has no number for are the texts NaN, Infinity, -Infinity (spec/xds.md 6.1).
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return float_or_word(value)
        case Decimal():
            return decimal_text(value)
        case bytes(data) | Lob(data):
            return {"hex": data.hex().upper()}
        case datetime() | time():
            return without_zeros(value.isoformat())
        case date():
            return value.isoformat()
        case tuple():
            return [value_to_json(part) for part in value]


def value_to_plain_json(value: Value) -> Any:
    """A value of a column for receivers that know JSON alone: as ``value_to_json``, bytes in base64, and as text also
    the integers beyond 2^53, which readers of JSON round.
    """
    match value:
        case bool():
            return value
        case int():
            return value if -_EXACT <= value <= _EXACT else str(value)
        case bytes(data) | Lob(data):
            return b64encode(data).decode()
        case tuple():
            return [value_to_plain_json(part) for part in value]
        case _:
            return value_to_json(value)


def value_from_json(value: Any) -> Value:
    """The value of ``value_to_json``; text stays text."""
    if isinstance(value, dict):
        if value.keys() != {"hex"}:
            raise ValueError(f'an object of {", ".join(value) or "nothing"} is no value: bytes are {{"hex": ...}}')
        return bytes.fromhex(value["hex"])
    if isinstance(value, list):
        return tuple(value_from_json(part) for part in value)
    plain: Value = value
    return plain


def member(value: Mapping[str, Any], name: str, kind: type[Of]) -> Of | None:
    """A member of this type, None where it is missing or null. Raises TypeError."""
    part = value.get(name)
    if part is None or (isinstance(part, kind) and (kind is bool or not isinstance(part, bool))):
        return part
    raise TypeError(f"{name} is {part!r:.60}, which is no {kind.__name__}")


def _key_part(part: Any) -> tuple[str, Value]:
    if not isinstance(part, list) or len(part) != 2 or not isinstance(part[0], str):
        raise TypeError(f"{part!r} is no [column, value] of a key")
    return part[0], value_from_json(part[1])


def _row_to_json(row: Row | None) -> dict[str, Any] | None:
    return None if row is None else {name: value_to_json(value) for name, value in row.items()}


def _row_from_json(row: Mapping[str, Any] | None) -> Row | None:
    return None if row is None else {name: value_from_json(value) for name, value in row.items()}


def _extra_to_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _extra_to_json(part) for name, part in value.items()}
    if isinstance(value, list | tuple) and not isinstance(value, Lob):
        return [_extra_to_json(part) for part in value]
    if isinstance(value, set | frozenset):
        return sorted(value)
    return value_to_json(value)


def _extra_from_json(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"hex"}:
            return bytes.fromhex(value["hex"])
        return {name: _extra_from_json(part) for name, part in value.items()}
    return [_extra_from_json(part) for part in value] if isinstance(value, list) else value


def utc_text(moment: datetime) -> str:
    """A moment in UTC (RFC 3339 5.6), the fraction of a second without trailing zeros."""
    return without_zeros(naive_utc(moment).isoformat()) + "Z"
