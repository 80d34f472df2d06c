"""The key of a record (spec/qlik.md 5.6)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from eventlog.model import Row, Value
from eventlog.qlik.message_table import MessageTable
from eventlog.qlik.message_values import avro_writer, json_writer

KeyOf = Callable[[Row], bytes | None]
"""The key of a row: the new one of an update, the deleted one of a delete. None = null."""


def key_text(values: Sequence[Any]) -> str:
    """The text of a primary key whose values are in their JSON form, in key order."""
    if len(values) == 1 and isinstance(values[0], str):
        return values[0]
    if len(values) == 1 and type(values[0]) is int:  # as most are
        return str(values[0])
    return json.dumps(values[0] if len(values) == 1 else list(values), ensure_ascii=False, separators=(",", ":"))


def table_key(table: MessageTable) -> KeyOf:
    """``key = table``: the text ``<schema>+<table>``."""
    text = (table.name if table.schema is None else f"{table.schema}+{table.name}").encode()
    return lambda row: text


def primary_key(table: MessageTable) -> KeyOf:
    """``key = primary_key`` in JSON. Null without key columns, or where the row does not know them all."""
    columns = {column.name: json_writer(column) for column in table.columns}
    writers = [(name, columns[name]) for name in table.key]

    def key_of(row: Row) -> bytes | None:
        values = _values(row, table.key)
        if values is None:
            return None
        formed = [None if value is None else write(value) for value, (_, write) in zip(values, writers, strict=True)]
        return key_text(formed).encode()

    return key_of


def avro_primary_key(table: MessageTable, schema: str, prefix: bytes, logical_types: bool) -> KeyOf:
    """``key = primary_key`` in Avro: a ``KeyRecord`` of this schema behind a prefix, empty or of the registry."""
    from eventlog.qlik import avro

    columns = {column.name: avro_writer(column, logical_types) for column in table.columns}

    def key_of(row: Row) -> bytes | None:
        values = _values(row, table.key)
        if values is None:
            return None
        record = {
            table.fields[name]: None if value is None else columns[name](value)
            for name, value in zip(table.key, values, strict=True)
        }
        return prefix + avro.to_bytes(schema, record)

    return key_of


def no_key(row: Row) -> bytes | None:
    """``key = none``, and tables without key."""
    return None


def _values(row: Row, key: Sequence[str]) -> list[Value] | None:
    return [row[name] for name in key] if all(name in row for name in key) else None
