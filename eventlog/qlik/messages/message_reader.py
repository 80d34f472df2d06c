"""Read Qlik messages, in every form that occurs, and return changes (formats/qlik.md 5.1, 5.7;
spec/change-model.md 2).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast

from eventlog.changes.format import Report
from eventlog.changes.keys import key_in
from eventlog.core.clock import monotonic
from eventlog.core.values.moments import EPOCH
from eventlog.core.values.typed_values import whole_number
from eventlog.errors import FormatError, shown
from eventlog.model import (
    Change,
    ChangeOp,
    JsonObject,
    Key,
    Names,
    Row,
    RowDict,
    TableName,
    Value,
    differing,
    full_name,
)
from eventlog.qlik import masks
from eventlog.qlik.columns import QlikColumn
from eventlog.qlik.masks import ByteOrder
from eventlog.qlik.messages import avro
from eventlog.qlik.messages.envelope import (
    DATA,
    MAGIC,
    METADATA,
    BadEnvelope,
    Envelope,
    HttpRegistry,
    Message,
    UnknownSchema,
    open_avro,
    open_json,
    open_text,
    split,
)
from eventlog.qlik.messages.message_tables import (
    MessageTable,
    ReadOptions,
    avro_name,
    read_metadata,
)
from eventlog.qlik.sequence import check as check_sequence
from eventlog.qlik.sequence import transaction_from_text
from eventlog.qlik.values import plain_value, read_moment, value_reader

_OPERATIONS: Final = {
    "INSERT": ChangeOp.INSERT,
    "UPDATE": ChangeOp.UPDATE,
    "DELETE": ChangeOp.DELETE,
    "REFRESH": ChangeOp.REFRESH,
    "READ": ChangeOp.REFRESH,
}
_ABSENT: Final = object()
_MAX_SEEN: Final = 4096

_Find = Callable[[str], Any]
"""A function from the name of a header to its value, ``_ABSENT`` if the header is missing."""

_Image = JsonObject
_Readers = Mapping[str, tuple[str, Callable[[Any], Value]]]


class _Known(NamedTuple):
    """A table and its readers. For each field of the table's rows, ``readers`` has the name of the
    column and the function that reads its values.

    ``is_described`` is True if types and key come from a description, not from the table's
    messages.
    """

    table: MessageTable
    readers: _Readers
    is_described: bool = False


class MessageReader:
    """Reads messages in the order in which they arrive. MD messages describe the tables of later
    messages.

    A message whose MD has not arrived waits for up to ``metadata_wait`` seconds. Later messages
    wait for this message, so that the order is kept. ``described`` is the table of the last change,
    None if it has no description.

    ``clock`` returns seconds. The report counts skipped or unusual messages: ``tombstones``,
    ``mask_extra_bits``, ``mask_contradictions``, ``unknown_fields``, ``metadata_messages``.
    """

    def __init__(
        self,
        options: ReadOptions,
        report: Report | None = None,
        registry: HttpRegistry | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._options = options
        self._report = Report() if report is None else report
        self._registry = registry
        self._clock = clock
        self._by_id: dict[str, tuple[_Known, str]] = {}
        self._seen: dict[tuple[str | None, str, Names | None], _Known] = {}
        self._newest: dict[TableName, MessageTable] = {}
        self._waiting: deque[tuple[float, Message, Envelope]] = deque()
        self._given_up: set[str] = set()
        self.described: MessageTable | None = None

    def changes(self, message: Message) -> Iterator[Change]:
        """Yield the changes that this message makes available.

        Raises FormatError, BadEnvelope and UnknownSchema, perhaps after it has yielded some of the
        changes.
        """
        if message.value is None:
            self._report.count("tombstones")
            return
        envelope = self._open(message)
        if _is_metadata(envelope):
            self._take_metadata(envelope)
        else:
            self._waiting.append((self._clock() + self._options.metadata_wait, message, envelope))
        yield from self.overdue()

    @property
    def is_waiting(self) -> bool:
        """True if a message waits for its metadata."""
        return bool(self._waiting)

    def finish(self) -> None:
        """End the input. Raises UnknownSchema if a message still waits, and drops that message."""
        if self._waiting:
            waiting = len(self._waiting)
            _, _, envelope = self._waiting.popleft()
            raise _unknown_schema(envelope.schema_id, "by the end of the input", waiting)

    def overdue(self) -> Iterator[Change]:
        """Yield the changes of the messages that are now ready. Raises UnknownSchema for a message
        that has waited too long.
        """
        while self._waiting:
            deadline, message, envelope = self._waiting[0]
            if (
                envelope.schema is None
                and envelope.schema_id is not None
                and envelope.schema_id not in self._by_id
                and not self._is_given(message, envelope)
            ):
                # Each id waits once: messages of an id that never comes do not each wait in turn.
                if self._clock() >= deadline or envelope.schema_id in self._given_up:
                    waiting = len(self._waiting)
                    self._waiting.popleft()
                    self._given_up.add(envelope.schema_id)
                    wait = f"within {self._options.metadata_wait:g} s (metadata_wait)"
                    raise _unknown_schema(envelope.schema_id, wait, waiting)
                return
            self._waiting.popleft()
            yield self._change(message, envelope)

    def _is_given(self, message: Message, envelope: Envelope) -> bool:
        """Return True if the option ``columns`` describes a JSON message whose metadata are
        missing, and no metadata of its table have arrived (formats/qlik.md 5.1).
        """
        if not self._options.columns or isinstance(envelope.message, bytes):
            return False
        try:
            name = self._names(_finder(envelope.message, has_envelope=True), None, message.topic)
        except BadEnvelope:
            return False
        return name not in self._newest and full_name(*name) in self._options.columns

    # --- metadata ---

    def _open(self, message: Message) -> Envelope:
        value = message.value
        if not isinstance(value, bytes):
            return open_json(value)
        first = value[:1]
        if first == b"\0":
            schema_id, body = split(value)
            if self._registry is None:
                raise UnknownSchema(
                    "a message has the prefix of a registry, but no registry is configured; set "
                    "the option registry"
                )
            return Envelope(None, None, self._registry.schema(schema_id), body)
        if first == MAGIC[:1].encode():
            return open_avro(value)
        return (
            open_text(value)
            if value.lstrip(b" \t\r\n\xef\xbb\xbf")[:1] == b"{"
            else open_avro(value)
        )

    def _take_metadata(self, envelope: Envelope) -> None:
        message = envelope.message
        if isinstance(message, bytes):
            if envelope.schema is None:
                raise UnknownSchema(
                    f"metadata message {envelope.schema_id} does not contain its schema"
                )
            message = avro.from_bytes(envelope.schema, message)
        table, schema = read_metadata(message)
        source_columns = self._options.columns_of(table.full_name)
        if source_columns is not None:  # columns get the names that they have in the source
            names = {avro_name(column.name): column.name for column in source_columns}
            columns = tuple(
                replace(column, name=names.get(column.name, column.name))
                for column in table.columns
            )
            table = replace(table, columns=columns)
        self._report.count("metadata_messages")
        self._by_id[str(table.schema_id)] = _described(table), schema
        self._newest[table.schema, table.name] = table
        self._seen = {
            key: seen for key, seen in self._seen.items() if key[:2] != (table.schema, table.name)
        }

    # --- data ---

    def _change(self, message: Message, envelope: Envelope) -> Change:
        payload, schema, known = envelope.message, envelope.schema, None
        if schema is None and envelope.schema_id is not None:
            known, schema = self._by_id.get(envelope.schema_id, (None, None))
        if isinstance(payload, bytes):
            if not schema:
                raise UnknownSchema(
                    "a message in Avro names no schema, so it cannot be read without its metadata "
                    "message"
                )
            payload = avro.from_bytes(schema, payload)
        find = _finder(payload, has_envelope=envelope.type is not None)
        rows = _image(payload, "data"), _image(payload, "beforeData")
        names = self._names(find, None if known is None else known.table, message.topic)
        if known is None:
            fields = (
                _data_fields(schema)
                if schema
                else tuple(next((row for row in rows if row is not None), ()))
            )
            known = self._table(*names, fields, has_schema=bool(schema))
            if (
                not known.table.key
                and self._registry is not None
                and message.key
                and message.key[0] == 0
            ):
                known = _with_key(known, _key_fields(self._registry.schema(split(message.key)[0])))
        self.described = known.table if known.is_described else None
        return self._read(find, known, names, rows, envelope.schema_id)

    def _names(self, find: _Find, described: MessageTable | None, topic: str | None) -> TableName:
        """Return schema and table: from the headers, the metadata, the topic or the options, in
        this order (spec/change-model.md 2).
        """
        options = self._options
        schema, table = _text(find("schema")), _text(find("table"))
        if described is not None:
            schema, table = schema or described.schema, table or described.name
        if table is None and topic is not None and topic != options.topic:
            before_dot, dot, behind_dot = topic.partition(".")
            if dot and before_dot and behind_dot:
                schema, table = schema or before_dot, behind_dot
            elif options.table is None:
                table = topic
        table = table or options.table
        if table is None:
            raise BadEnvelope(
                "a message does not name its table; set the option table (and schema)"
            )
        return schema or options.schema, table

    def _table(self, schema: str | None, name: str, fields: Names, *, has_schema: bool) -> _Known:
        """Return the table of a message that names no metadata (formats/qlik.md 5.1).

        The columns and their order come from the Avro schema of the message; without a schema, from
        the option ``columns``, the newest MD, or the fields of the row.
        """
        key = schema, name, fields if has_schema or (schema, name) not in self._newest else None
        known = self._seen.get(key)
        if known is None:
            option_columns = self._options.columns_of(full_name(*key[:2]))
            if option_columns is not None and not has_schema:
                known = _described(MessageTable(schema, name, option_columns))
            elif option_columns is None and key[2] is None:
                known = _described(replace(self._newest[schema, name], schema_id=None))
            else:
                known = _undescribed(schema, name, fields, option_columns or ())
            if len(self._seen) >= _MAX_SEEN:
                self._seen.clear()
            self._seen[key] = known
        return known

    def _read(
        self,
        find: _Find,
        known: _Known,
        names: TableName,
        rows: tuple[_Image | None, _Image | None],
        schema_id: str | None,
    ) -> Change:
        table, readers, _ = known
        op = _operation(find, names)
        position = _sequence(find, op, names)
        present = self._mask(find("columnMask"), table)
        data, before = (None if row is None else self._row(row, readers, present) for row in rows)
        if op is ChangeOp.DELETE:
            before, after = (data if data is not None else before), None
        else:
            after, before = data, (before if op is ChangeOp.UPDATE else None)
        extras: dict[str, Any] = {
            "stream_position": _text(find("streamPosition")),
            "external_schema_id": _text(find("externalSchemaId")),
            "schema_id": schema_id,
            "table_version": table.version if table.schema_id is not None else None,
        }
        changed = None
        # A malformed mask is refused for every operation.
        change_mask = self._mask(find("changeMask"), table)
        if op is ChangeOp.UPDATE and after is not None:
            if change_mask is not None:
                changed = change_mask.intersection(after) - table.lobs
                extras["changed_unknown"] = sorted(table.lobs & after.keys()) or None
            elif before is not None:
                changed = differing(before, after)
        return Change(
            *names,
            op,
            _key(table.key, after, before),
            before,
            after,
            changed,
            position,
            transaction_from_text(_text(find("transactionId"))),
            _counter(find("transactionEventCounter")),
            _flag(find("transactionLastEvent")),
            _moment(_text(find("timestamp")), names),
            None,
            {name: value for name, value in extras.items() if value is not None},
        )

    def _mask(self, value: Any, table: MessageTable) -> frozenset[str] | None:
        """Return the columns of a mask that is hex text or bytes of Avro, None for null."""
        if value is None or value is _ABSENT:
            return None
        columns, extra_bits = masks.read(
            table.layout, value, cast("ByteOrder", self._options.byteorder)
        )
        if extra_bits:
            self._report.count("mask_extra_bits", extra_bits)
        return columns

    def _row(self, row: _Image, readers: _Readers, present: frozenset[str] | None) -> Row:
        """Return the known columns of a row (formats/qlik.md 2.4). ``present`` holds the columns of
        the columnMask, None without a columnMask.
        """
        image: RowDict = {}
        for field, value in row.items():
            reader = readers.get(field)
            if reader is None:
                self._report.count("unknown_fields")
                continue
            name, read = reader
            if value is not None:
                if present is not None and name not in present:
                    self._report.count("mask_contradictions")
                image[name] = read(value)
            elif present is None or name in present:
                image[name] = None
        return image


# --- tables ---------------------------------------------------------------------------------------


def _described(table: MessageTable) -> _Known:
    """Return a table whose columns have types."""
    return _Known(
        table,
        _readers((column, value_reader(column)) for column in table.columns),
        is_described=True,
    )


def _undescribed(
    schema: str | None, name: str, fields: Iterable[str], option_columns: Iterable[QlikColumn]
) -> _Known:
    """Return a table whose columns are the fields of a message, in their order. ``option_columns``
    has the types and the key of columns, if the options describe them.
    """
    typed = {
        field: column
        for column in option_columns
        for field in (avro_name(column.name), column.name)
    }
    columns = [
        (typed.get(field) or QlikColumn(field, "STRING"), field in typed) for field in fields
    ]
    readers = _readers(
        (column, value_reader(column) if is_typed else plain_value) for column, is_typed in columns
    )
    return _Known(MessageTable(schema, name, tuple(column for column, _ in columns)), readers)


def _readers(columns: Iterable[tuple[QlikColumn, Callable[[Any], Value]]]) -> _Readers:
    """Return the readers of columns, both by the names and by the Avro names of the columns."""
    exact = {column.name: (column.name, read) for column, read in columns}
    return {avro_name(name): reader for name, reader in exact.items()} | exact


def _with_key(known: _Known, key: Sequence[str]) -> _Known:
    places = {name: place for place, name in enumerate(key, 1)}
    columns = tuple(
        replace(column, pk=places.get(avro_name(column.name), 0)) for column in known.table.columns
    )
    return _Known(replace(known.table, columns=columns), known.readers)


@lru_cache(maxsize=1024)
def _data_fields(schema: str) -> Names:
    """Return the fields of ``Data`` in the schema of a payload. Raises FormatError."""
    record = avro.record_in(schema, "data") or avro.record_in(schema, "beforeData")
    return () if record is None else tuple(field["name"] for field in record["fields"])


@lru_cache(maxsize=1024)
def _key_fields(schema: str) -> Names:
    """Return the fields of ``KeyRecord``. Raises FormatError."""
    return tuple(str(field["name"]) for field in avro.parsed(schema).get("fields", ()))


# --- headers --------------------------------------------------------------------------------------


def _is_metadata(envelope: Envelope) -> bool:
    if envelope.type is None:
        return isinstance(envelope.message, Mapping) and "tableStructure" in envelope.message
    if envelope.type not in (METADATA, DATA):
        raise BadEnvelope(
            f"the type of an envelope is {shown(envelope.type)}; expected {METADATA} or {DATA}"
        )
    return envelope.type == METADATA


def _finder(payload: JsonObject, *, has_envelope: bool) -> _Find:
    """Return a function that finds a header by its name. The function returns the header from the
    first place that has it, even if it is null in this place (formats/qlik.md 5.7).
    """
    headers = payload.get("headers")
    inner = headers if isinstance(headers, Mapping) else {}

    def find(name: str) -> Any:
        if name in inner:
            return inner[name]
        if name in payload and (has_envelope or name in ("schema", "table")):
            return payload[name]
        return payload.get(f"headers_{name}", _ABSENT)

    return find


def _image(payload: JsonObject, name: str) -> _Image | None:
    row = payload.get(name)
    if row is not None and not isinstance(row, Mapping):
        raise BadEnvelope(f"{name} of a message must be a record, not {shown(row)}")
    return row


def _operation(find: _Find, names: TableName) -> ChangeOp:
    value = find("operation")
    op = _OPERATIONS.get(value.upper()) if isinstance(value, str) else None
    if op is None:
        stands = "no operation" if value is _ABSENT else f"operation {shown(value)}"
        raise FormatError(
            f"a message of {names[1]!r} has {stands}; expected one of {', '.join(_OPERATIONS)}",
            code="unknown_operation",
        )
    return op


def _sequence(find: _Find, op: ChangeOp, names: TableName) -> str | None:
    text = _text(find("changeSequence"))
    if text is not None:
        return check_sequence(text)
    if op is not ChangeOp.REFRESH:
        raise FormatError(f"an {op} of {names[1]!r} has no changeSequence", code="bad_sequence")
    return None


def _text(value: Any) -> str | None:
    """Return the text of a header, None if it is empty, null or missing."""
    if isinstance(value, Mapping | list):
        raise BadEnvelope(f"a header is {shown(value)}; expected a single value")
    return None if value is None or value is _ABSENT or value == "" else str(value)


_LARGEST_COUNTER: Final = 2**63 - 1


def _counter(value: Any) -> int | None:
    if value is None or value is _ABSENT:
        return None
    if isinstance(value, str) and value.isdecimal() and len(value) < 20:
        value = int(value)
    number = None if isinstance(value, bool) else whole_number(value, 20)
    if number is None or not 0 <= number <= _LARGEST_COUNTER:
        raise BadEnvelope(f"transactionEventCounter {shown(value)} is not a number of events")
    return number


def _flag(value: Any) -> bool | None:
    if value is None or value is _ABSENT:
        return None
    if str(value).lower() not in ("true", "false"):
        raise BadEnvelope(f"transactionLastEvent {shown(value)} is neither true nor false")
    return str(value).lower() == "true"


def _moment(text: str | None, names: TableName) -> datetime | None:
    if text is None:
        return None
    try:
        moment = read_moment(text)
    except (ValueError, OverflowError):
        raise BadEnvelope(
            f"timestamp {shown(text)} of a message of {names[1]!r} is not a date and time"
        ) from None
    return None if moment == EPOCH else moment.replace(tzinfo=UTC)


def _key(key: Sequence[str], after: Row | None, before: Row | None) -> Key | None:
    """Return the key columns of the new row, or of the old row if the new row lacks key columns."""
    for image in (after, before):
        known = key_in(image, key) if key and image is not None else None
        if known is not None:
            return known
    return None


def _unknown_schema(schema_id: str | None, when: str, waiting: int) -> UnknownSchema:
    return UnknownSchema(
        f"no metadata message with schema id {schema_id} has arrived {when}, and {waiting} "
        "messages wait for it; read the metadata topic too (metadata_topic), or, for messages in "
        "JSON, set the reader's option columns = "
        '{"<schema>.<table>": [{"name": ..., "type": ..., "pk": 1}, ...]}. If the messages do not '
        "name schema and table, set these options too"
    )
