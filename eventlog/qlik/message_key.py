"""The key of a record (spec/qlik.md 5.6)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from eventlog.model import Row
from eventlog.qlik.avro_binary import NULL
from eventlog.qlik.message_table import MessageTable
from eventlog.qlik.message_values import avro_writer, json_writer

_ENCODE: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

KeyOf = Callable[[Row], bytes | None]
"""The key of a row: the new one of an update, the deleted one of a delete. None = null."""


def key_text(values: Sequence[Any]) -> str:
    """The text of a primary key whose values are in their JSON form, in key order."""
    if len(values) == 1:
        return _text_of_one(values[0])
    return _ENCODE(values)


def _text_of_one(value: Any) -> str:
    """The text of a primary key of one column, whose value is in its JSON form."""
    if isinstance(value, str):
        return value
    return str(value) if type(value) is int else json.dumps(value)


def table_key(table: MessageTable) -> KeyOf:
    """``key = table``: the text ``<schema>+<table>``."""
    text = (table.name if table.schema is None else f"{table.schema}+{table.name}").encode()
    return lambda row: text


def primary_key(table: MessageTable) -> KeyOf:
    """``key = primary_key`` in JSON. Null without key columns, or where the row does not know them all."""
    columns = {column.name: json_writer(column) for column in table.columns}
    writers = [(name, columns[name]) for name in table.key]
    (only, write_only), *more = writers

    def key_of_one(row: Row) -> bytes | None:
        if only not in row:
            return None
        value = row[only]
        return _text_of_one(None if value is None else write_only(value)).encode()

    if not more:  # as most are
        return key_of_one

    def key_of(row: Row) -> bytes | None:
        forms = []
        for name, write in writers:
            if name not in row:
                return None
            value = row[name]
            forms.append(None if value is None else write(value))
        return key_text(forms).encode()

    return key_of


def avro_primary_key(table: MessageTable, prefix: bytes, logical_types: bool) -> KeyOf:
    """``key = primary_key`` in Avro: a ``KeyRecord`` behind a prefix, empty or of the registry."""
    columns = {column.name: avro_writer(column, logical_types) for column in table.columns}
    writers = [(name, columns[name]) for name in table.key]
    (only, write_only), *more = writers

    def key_of_one(row: Row) -> bytes | None:
        if only not in row:
            return None
        value = row[only]
        return prefix + (NULL if value is None else write_only(value))

    if not more:  # as most are
        return key_of_one

    def key_of(row: Row) -> bytes | None:
        fields = [prefix]
        for name, write in writers:
            if name not in row:
                return None
            value = row[name]
            fields.append(NULL if value is None else write(value))
        return b"".join(fields)

    return key_of


def no_key(row: Row) -> bytes | None:
    """``key = none``, and tables without key."""
    return None
