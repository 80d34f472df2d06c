"""The messages of a table: changes as plain dicts, and their records (formats/qlik.md 5.1, 5.3,
5.6). orjson writes JSON, ``eventlog.qlik.messages.avro`` writes Avro.

``TableRecords.draft`` and ``record`` are a hot path. The columns, names and schema of a table are
prepared once. Masks are cached by the columns that make them. Tuples are made by ``tuple.__new__``.
Names of the module stand for members of enumerations, whose look-up is slow. A time is formatted by
``%``, in half the time of ``isoformat``. The price: a Draft and a KafkaRecord are made from their
fields by position.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from eventlog.core.values.json_bytes import json_bytes
from eventlog.errors import NotExpressible
from eventlog.model import ChangeOp, JsonDict, JsonObject, KafkaRecord, Names, Row
from eventlog.qlik import masks
from eventlog.qlik.columns import TEXT_TYPES, QlikColumn, QlikColumns
from eventlog.qlik.messages.avro import avro_writer, bytes_writer, parsed, record_writer
from eventlog.qlik.messages.envelope import (
    DATA,
    METADATA,
    HttpRegistry,
    avro_envelope,
    json_envelope,
    prefix_of,
)
from eventlog.qlik.messages.message_tables import (
    MessageTable,
    WriteOptions,
    checked_topic,
    data_schema,
    id_of_schema,
    key_schema,
    metadata_message,
    metadata_schema,
    topic_of,
)
from eventlog.qlik.sequence import UNKNOWN_TRANSACTION
from eventlog.qlik.values import Convert, json_writer

_MAX_MASKS: Final = 1024

_OPERATIONS: Final = {op: op.value for op in ChangeOp}
"""The text of the operation for each ChangeOp."""

_REFRESH: Final = ChangeOp.REFRESH
_NO_TRANSACTION: Final = (UNKNOWN_TRANSACTION, None, None)
_new: Final = tuple.__new__

UNKNOWN_TIMESTAMP: Final = "1970-01-01T00:00:00.000"


def timestamp_of(moment: datetime | None) -> str:
    """Return an aware moment as ``YYYY-MM-DDTHH:MM:SS.mmm`` in UTC, and an unknown moment as the
    epoch.
    """
    if moment is None:
        return UNKNOWN_TIMESTAMP
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    return "%04d-%02d-%02dT%02d:%02d:%02d.%03d" % (  # noqa: UP031
        moment.year, moment.month, moment.day, moment.hour, moment.minute, moment.second,
        moment.microsecond // 1000,
    )  # fmt: skip


MessageRow: TypeAlias = dict[str, Any]
"""The fields of a row in a message, with the values as they are written. The value of an unknown
column is None.
"""


class Images(NamedTuple):
    """The rows of a change, as its message has them."""

    data: MessageRow
    """The row after the change; for a DELETE, the row before it."""
    before: MessageRow | None
    """The row before an update, without the columns whose old values are unknown. None if the row
    before the update is unknown.
    """
    known: Names
    """The known fields of the row."""
    changed: Names | None
    """The changed fields, None if unknown."""


class Draft(NamedTuple):
    """A message that has no change sequence yet."""

    records: TableRecords
    """The records of the message's table."""
    key: bytes | None
    body: Any
    """The part before the headers: a dict in JSON, bytes in Avro."""
    headers: JsonDict
    """The headers in their JSON form, with an empty change sequence."""
    with_before: bool
    """True if the message uses two numbers (formats/qlik.md 3)."""


class TableRecords:
    """The records of one table version: its metadata message, and the records of its changes.

    ``described`` holds the columns that the options describe, None if they do not describe the
    table. ``columns`` maps the name of a column to its field and to the function that writes its
    values. ``nothing`` is a row whose columns are all unknown. ``rounded`` holds the columns that
    keep milliseconds only. ``is_whole`` is True if the row before an update must have all columns.
    ``now`` is the time in the metadata message. Raises NotExpressible, FormatError, RegistryError.
    """

    def __init__(
        self,
        table: MessageTable,
        described: QlikColumns | None,
        options: WriteOptions,
        registry: HttpRegistry | None,
        now: datetime,
    ) -> None:
        masks.check_capacity(table.layout)
        self.topic = (
            topic_of(table.schema, table.name)
            if options.topic is None
            else checked_topic(options.topic)
        )
        schema = data_schema(table, options)
        if options.metadata == "publish" or options.external_schema_id:
            table = replace(table, schema_id=id_of_schema(table, schema))
        self.table, self.described, self.full_name = table, described, table.full_name
        self.is_whole = options.encoding == "avro"
        times = table.columns if self.is_whole and options.logical_types else ()
        self.rounded = tuple(column.name for column in times if column.type == "TIME")
        self.announcement = (
            _announcement(table, schema, options, now) if options.metadata == "publish" else None
        )
        self._encoding = (
            _Avro(table, schema, options, registry, self.topic)
            if self.is_whole
            else _Json(table, options)
        )
        self.columns = {
            column.name: (table.fields[column.name], self._encoding.writer(column))
            for column in table.columns
        }
        self._texts = {
            table.fields[column.name] for column in table.columns if column.type in TEXT_TYPES
        }
        self.nothing: MessageRow = dict.fromkeys(table.fields.values())
        self._key_fields, self._constant_key = _key_of_records(table, options.key)
        names = {"schema": table.schema or "", "table": table.name}
        self._names = names if options.names == "message" else {}
        self._header_names = names if options.names == "headers" else {}
        self._schema_id = (
            {"externalSchemaId": table.schema_id} if options.external_schema_id else {}
        )
        self._masks = lru_cache(maxsize=_MAX_MASKS)(self._masks_of)

    def column(self, name: str, *, multi_valued: bool = False) -> tuple[str, Convert]:
        """Return a column's field, and the function that writes its values in a message.

        Raises NotExpressible.
        """
        column = self.columns.get(name)
        if column is not None:
            return column
        if multi_valued:
            raise NotExpressible(
                f"{name!r} of {self.full_name!r} has several values, but a message has only one "
                "per column"
            )
        raise NotExpressible(
            f"the columns of {self.full_name!r} have no {name!r}: add it to the option columns"
        )

    def takes_text(self, field: str) -> bool:
        """Return True if the text of this field's column is written unchanged in a message."""
        return field in self._texts

    def images(self, row: Row, before: Row | None, changed: Collection[str] | None) -> Images:
        """Return the images that are made of a row, the row before the change, and the names of the
        changed columns.

        Raises NotExpressible.
        """
        if not row.keys() <= self.columns.keys():
            name = min(row.keys() - self.columns.keys())
            self.column(name, multi_valued=isinstance(row[name], tuple))
        fields, data = self.table.fields, self._message_row(row)
        row_before = None
        if before is not None:
            known_before = self._message_row(before)
            row_before = {**self.nothing, **known_before}
            for field in data.keys() - known_before.keys():
                del row_before[field]
        of_changed = None if changed is None else tuple(fields[name] for name in changed)
        return Images({**self.nothing, **data}, row_before, tuple(data), of_changed)

    def _message_row(self, row: Row) -> MessageRow:
        return {
            field: None if (value := row[name]) is None else write(value)
            for name, (field, write) in self.columns.items()
            if name in row
        }

    def draft(
        self,
        op: ChangeOp,
        images: Images,
        timestamp: str,
        stream_position: str,
        transaction: tuple[str, int | None, bool | None] = _NO_TRANSACTION,
    ) -> Draft:
        """Return the message of a change. ``transaction`` holds the text of the transaction, the
        number of the change in this transaction, and whether the change is its last. Raises
        NotExpressible.
        """
        data, before, known, changed = images
        transaction_id, number, is_last = transaction
        of_masks: tuple[str | None, str | None]
        if op is _REFRESH:
            if not self.is_whole:
                data = {field: value for field, value in data.items() if field in known}
            # It belongs to no transaction, and has no masks.
            timestamp = stream_position = transaction_id = ""
            before = number = is_last = None
            of_masks, schema_id = (None, None), dict.fromkeys(self._schema_id)
        else:
            of_masks, schema_id = self._masks(op, known, changed), self._schema_id
        body = self._encoding.body({**self._names, "data": data, "beforeData": before})
        change_mask, column_mask = of_masks
        headers = {
            **self._header_names,
            "operation": _OPERATIONS[op],
            "changeSequence": "",
            "timestamp": timestamp,
            "streamPosition": stream_position,
            "transactionId": transaction_id,
            "changeMask": change_mask,
            "columnMask": column_mask,
            **schema_id,
            "transactionEventCounter": number,
            "transactionLastEvent": is_last,
        }
        return _new(Draft, (self, self._key_of(data, known), body, headers, before is not None))

    def record(self, draft: Draft, sequence: str) -> KafkaRecord:
        """Return the record of a message. ``sequence`` is the change sequence of the message;
        ``draft`` stores it.

        Raises NotExpressible.
        """
        _, key, body, headers, _ = draft
        headers["changeSequence"] = sequence
        return _new(KafkaRecord, (self.topic, key, self._encoding.value(body, headers), ()))

    def _key_of(self, data: MessageRow, known: Collection[str]) -> bytes | None:
        """Return the key of a record, None if the record has no key or a part of the key is
        unknown.
        """
        if not self._key_fields:
            return self._constant_key
        for field in self._key_fields:
            if field not in known:
                return None
        return self._encoding.key(data)

    def _masks_of(
        self, op: ChangeOp, known_fields: Names, changed_fields: Names | None
    ) -> tuple[str, str]:
        """Return changeMask and columnMask (formats/qlik.md 5.3)."""
        table, layout = self.table, self.table.layout
        names = {field: name for name, field in table.fields.items()}
        known = {names[field] for field in known_fields}
        if op is ChangeOp.DELETE:
            changed = set(table.key or table.fields)
        elif changed_fields is not None:
            changed = {names[field] for field in changed_fields} - table.lobs
        else:
            changed = known - table.lobs - set(table.key if op is ChangeOp.UPDATE else ())
        return masks.message_text(layout, layout.bits(changed)), masks.message_text(
            layout, layout.bits(known)
        )


def _key_of_records(table: MessageTable, option: str) -> tuple[list[str], bytes | None]:
    """Return the fields that make the key of a table's records, and the key that all of these
    records share, None if they share no key (formats/qlik.md 5.6).
    """
    if option == "primary_key":
        return [table.fields[name] for name in table.key], None
    if option == "table":
        return [], (table.name if table.schema is None else f"{table.schema}+{table.name}").encode()
    return [], None


def _announcement(
    table: MessageTable, schema: str, options: WriteOptions, now: datetime
) -> KafkaRecord:
    """Return the metadata message of a table."""
    message = metadata_message(table, schema, options, now)
    own_schema = metadata_schema(table)
    own_id = id_of_schema(table, own_schema)
    try:
        if options.encoding == "json":
            value = json_bytes(json_envelope(METADATA, own_id, own_schema, message))
        else:
            value = avro_envelope(METADATA, own_id, own_schema)(bytes_writer(own_schema)(message))
    except UnicodeEncodeError as error:
        # A name, or the option server or task, has an unpaired surrogate.
        raise _unpaired_surrogate(error) from None
    return KafkaRecord(
        checked_topic(options.metadata_topic), (table.schema_id or "").encode(), value
    )


# --- JSON and Avro: how the values of columns, bodies, records and their keys are written ---------


class _Json:
    def __init__(self, table: MessageTable, options: WriteOptions) -> None:
        self._envelope = json_envelope(
            DATA, table.schema_id if options.metadata == "publish" else None, None, {}
        )
        self._key_fields = [table.fields[name] for name in table.key]

    def writer(self, column: QlikColumn) -> Convert:
        return json_writer(column)

    def body(self, members: Mapping[str, Any]) -> Any:
        return members

    def value(self, body: JsonDict, headers: JsonObject) -> bytes:
        try:
            body["headers"] = headers
            return json_bytes({**self._envelope, "message": body})
        except UnicodeEncodeError as error:
            raise _unpaired_surrogate(error) from None

    def key(self, data: MessageRow) -> bytes:
        try:
            return json_key([data[field] for field in self._key_fields])
        except UnicodeEncodeError as error:
            raise _unpaired_surrogate(error) from None


def _unpaired_surrogate(error: UnicodeEncodeError) -> NotExpressible:
    return NotExpressible(f"a text has an unpaired surrogate: {error.reason}")


def json_key(values: list[Any]) -> bytes:
    """Return the key of a record from the values of the key columns.

    A single string has no quotes and no escapes.
    """
    if len(values) > 1:
        return json_bytes(values)
    (value,) = values
    return value.encode() if isinstance(value, str) else json_bytes(value)


class _Avro:
    """The Avro encoding under the schema of ``data_schema``. The last field of this schema is the
    headers. First the other fields and then the headers are written, as Avro writes the fields of a
    record. Raises FormatError, RegistryError.
    """

    def __init__(
        self,
        table: MessageTable,
        schema: str,
        options: WriteOptions,
        registry: HttpRegistry | None,
        topic: str,
    ) -> None:
        self._logical_types = options.logical_types
        parsed(schema)  # parsing refuses columns that no schema can describe
        *fields, headers = json.loads(schema)["fields"]
        names, (data, _) = fields[:-2], fields[-2:]
        self._start = record_writer(names)({"schema": table.schema or "", "table": table.name})
        self._write_row = record_writer(data["type"]["fields"])
        order: Literal["big", "little"] = "big" if options.byteorder == "big" else "little"

        def mask_of(text: str | None) -> bytes | None:
            return (
                None
                if text is None
                else masks.message_bytes(table.layout, masks.parse_text(text), order)
            )

        self._write_headers = record_writer(
            headers["type"]["fields"], {"changeMask": mask_of, "columnMask": mask_of}
        )
        own_schema = key_schema(table, options)
        self._write_key = record_writer(json.loads(own_schema)["fields"])
        self._key_prefix = b""
        if registry is None:
            self._wrap = avro_envelope(
                DATA, table.schema_id if options.metadata == "publish" else None, None
            )
        else:
            self._wrap = prefix_of(registry.register(f"{topic}-value", schema)).__add__
            if options.key == "primary_key" and table.key:
                self._key_prefix = prefix_of(registry.register(f"{topic}-key", own_schema))

    def writer(self, column: QlikColumn) -> Convert:
        return avro_writer(column, self._logical_types)

    def body(self, members: Mapping[str, Any]) -> Any:
        """Return the fields before the headers.

        The type of the row before the change is a union of null and the row.
        """
        before = members["beforeData"]
        row = self._start + self._write_row(members["data"])
        return row + b"\0" if before is None else b"%b\2%b" % (row, self._write_row(before))

    def value(self, body: bytes, headers: JsonObject) -> bytes:
        return self._wrap(body + self._write_headers(headers))

    def key(self, data: MessageRow) -> bytes:
        return self._key_prefix + self._write_key(data)
