"""The format ``debezium`` of the converter: files of JSON, one record on each line; and the reader
of records of any connector, with and without schema, with and without key (formats/debezium.md 5).

A line is one of three forms. The first is the value of a record. The second is ``{"topic": ...,
"key": ..., "value": ...}``, as kcat writes it, where key and value are JSON or texts that hold
JSON, and ``value`` may be called ``payload``. The third is a key and a value with a tab between
them, as kafka-console-consumer prints them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

from eventlog.changes.format import Report, written
from eventlog.changes.images import Count
from eventlog.changes.json_form import CATALOG, CatalogOption, catalog_of
from eventlog.changes.keys import class_of_change, key_in, may_be_one
from eventlog.core.catalog import Catalog, ObjectClass, match_name
from eventlog.core.options import LIST_OBJECT, option, shared
from eventlog.core.values import ColumnTypes, Kind
from eventlog.core.values.json_bytes import json_bytes
from eventlog.core.values.moments import EPOCH_UTC
from eventlog.debezium.fields import column_decoder, decoder_of, field_of, plain
from eventlog.debezium.scalars import Decode, Decoders
from eventlog.debezium.writer import (
    OPERATIONS,
    ConnectorOptions,
    EnvelopeWriter,
    Logged,
    WriteOptions,
)
from eventlog.errors import FormatError, RowError, shown, with_location
from eventlog.files.atomic import whole_file
from eventlog.files.text import parsed_json, parsed_lines, text_of
from eventlog.model import (
    Change,
    ChangeOp,
    JsonObject,
    KafkaRecord,
    Key,
    Row,
    RowDict,
    TableName,
    Value,
    differing,
    full_name,
)


@dataclass(frozen=True, slots=True)
class ReadOptions(ConnectorOptions):
    """Options of the reader. The two options for modes apply to events without schema. Raises
    ConfigError.
    """

    catalog: CatalogOption = shared(CATALOG)
    keys: Mapping[str, Sequence[str]] = option(
        {}, LIST_OBJECT, "key columns by schema.table or table, for events without key"
    )


def read(source: str, options: ReadOptions, report: Report) -> Iterator[Change]:
    """Yield the changes of a file, or of the files of a directory in the order of their names
    (``ReadOptions``).

    A line that cannot be read is reported and skipped. A value that cannot be read is also reported
    and skipped, and its column is unknown in the change. Tombstones and events that are not a
    change of a row are counted.
    """
    reader = _EnvelopeReader(options, catalog_of(options.catalog), report.pass_over)

    def change_of(line: bytes) -> tuple[Change | None, list[FormatError]]:
        return reader.change(*_record(line))

    lines = parsed_lines(Path(source), "file of records", change_of, report.skip)
    for place, (change, unreadable) in lines:
        for error in unreadable:
            report.leave_out(with_location(error, place))
        if change is not None:
            yield change


def _record(line: bytes) -> tuple[Any, Any]:
    """Return key and value of a line. Raises FormatError."""
    if b"\t" in line:  # JSON on one line contains no tab
        key, _, value = text_of(line).partition("\t")
        return parsed_json(key), parsed_json(value)
    value = parsed_json(text_of(line))
    if (
        not isinstance(value, dict)
        or "op" in value
        or "schema" in value
        or not value.keys() & {"value", "payload"}
    ):
        return None, value
    name = "value" if "value" in value else "payload"
    return _json_of(value.get("key")), _json_of(value[name])


def _json_of(value: Any) -> Any:
    """Return the parsed value if a tool wrote JSON as a text; return other values unchanged."""
    return parsed_json(value) if isinstance(value, str) else value


# --- from records to changes
# ---------------------------------------------------------------------------

_OPERATIONS: Final = {letter: op for op, letter in OPERATIONS.items()}
_MESSAGE: Final = "m"
_TRANSACTION_DIGITS: Final = 32  # operations as in the change model


class _EnvelopeReader:
    """A reader of records, given their key and value as parsed JSON. ``count`` is called with the
    counter of each skipped record.
    """

    def __init__(self, options: ReadOptions, catalog: Catalog | None, count: Count) -> None:
        self._options, self._catalog, self._count = options, catalog, count
        self._decoders = lru_cache(maxsize=None)(self._decoders_of)

    def change(self, key: Any, value: Any) -> tuple[Change | None, list[FormatError]]:
        """Return the change of a record, and the errors of the columns that the change lacks
        because they cannot be read. The change is None for a tombstone and for an event that is not
        a change of a row.

        Raises FormatError.
        """
        payload, schema = _taken_apart(value)
        if payload is None:
            self._count("tombstones")
            return None, []
        if not isinstance(payload, Mapping):
            raise FormatError(
                f"a change event must be an object with op, before and after, not {_kind(payload)}"
            )
        operation = payload.get("op")
        if operation == _MESSAGE or (operation is None and _is_of_no_row(payload)):
            self._count("other_events")
            return None, []
        op = _OPERATIONS.get(operation) if isinstance(operation, str) else None
        if op is None:
            raise FormatError(
                f"unknown op {shown(operation)}; expected one of {', '.join(_OPERATIONS)}",
                code="unknown_operation",
            )
        source = payload.get("source") or {}
        if not isinstance(source, Mapping):
            raise FormatError(f"source must be an object, not {_kind(source)}")
        return self._row_change(op, payload, source, key, schema)

    def _row_change(
        self,
        op: ChangeOp,
        payload: JsonObject,
        source: JsonObject,
        key: Any,
        schema: Any,
    ) -> tuple[Change, list[FormatError]]:
        owner, table = _names_of(source)
        object_class = self._class_of(owner, table)
        known = self._decoders(object_class)
        unreadable: dict[str, str] = {}
        before, after = _images_of(
            op,
            self._image("before", payload, schema, known, object_class, unreadable),
            self._image("after", payload, schema, known, object_class, unreadable),
        )
        own_key = None
        if op is not ChangeOp.TRUNCATE:
            own_key = self._key(owner, table, key, before, after, object_class, unreadable)
        if op is ChangeOp.DELETE and before is None and own_key is not None:
            before = dict(own_key)
        changed = None if before is None or after is None else differing(before, after)
        errors = [
            FormatError(
                f"{problem}; the change is kept without this column",
                f"{full_name(owner, table)}.{name}",
                code="unreadable_value",
            )
            for name, problem in unreadable.items()
        ]
        if (
            op is ChangeOp.REFRESH
        ):  # in a snapshot, position and time belong to the reading of the row, not to a change
            refreshed = Change(owner, table, op, own_key, None, after, extras=_extras(source))
            return refreshed, errors
        block = payload.get("transaction")
        transaction = block if isinstance(block, Mapping) else {}
        identity = transaction.get("id", source.get("txId"))
        change = Change(
            schema=owner,
            table=table,
            op=op,
            key=own_key,
            before=before,
            after=after,
            changed=changed,
            position=_position(source),
            transaction_id=None if identity is None else str(identity).zfill(_TRANSACTION_DIGITS),
            event_number=_number(transaction.get("total_order")),
            commit_time=_moment(source),
            extras=_extras(source),
        )
        return change, errors

    def _class_of(self, schema: str | None, table: str) -> ObjectClass | None:
        catalog = self._catalog
        if catalog is None or not may_be_one(schema, catalog.schema):
            return None
        name = match_name(table, [one.name for one in catalog.classes])
        return None if name is None else catalog.class_named(name)

    def _decoders_of(self, object_class: ObjectClass | None) -> Decoders:
        """Return the decoders of the columns in the catalogue, for events without schema."""
        if object_class is None:
            return {}
        options = self._options
        return {
            column.name: column_decoder(
                column.type, options.decimal_handling_mode, options.time_precision_mode
            )
            for column in object_class.table.columns
        }

    def _image(
        self,
        name: str,
        payload: JsonObject,
        schema: Any,
        known: Decoders,
        object_class: ObjectClass | None,
        unreadable: dict[str, str],
    ) -> RowDict | None:
        image = payload.get(name)
        if image is None:
            return None
        if not isinstance(image, Mapping):
            raise FormatError(f"{name} must be an object, not {_kind(image)}")
        decoders = _fields_of(_field_named(schema, name), object_class) or known
        return self._row(image, decoders, unreadable)

    def _row(
        self,
        image: JsonObject,
        decoders: Decoders,
        unreadable: dict[str, str],
    ) -> RowDict:
        """Return the columns of an image. A column with the placeholder is unknown and left out. A
        column that cannot be read is left out, too, and its problem is added to ``unreadable``.
        """
        row: RowDict = {}
        placeholder = self._options.unavailable_value_placeholder
        for name, value in image.items():
            if value == placeholder:
                continue
            decode = decoders.get(name, plain)
            try:
                read = None if value is None else decode(value)
            except (ValueError, ArithmeticError, RowError) as error:
                unreadable[name] = f"column {name!r}: {_shown(value)}: {error}"
                continue
            if read != placeholder.encode():
                row[name] = read
        return row

    def _key(
        self,
        schema: str | None,
        table: str,
        key: Any,
        before: Row | None,
        after: Row | None,
        object_class: ObjectClass | None,
        unreadable: Mapping[str, str],
    ) -> Key | None:
        """Return the key of the row: the record's key if it has one, otherwise the values of the
        key columns that the options or the catalogue name.

        Raises FormatError if a column of the key cannot be read.
        """
        image = (before if after is None else after) or {}
        if key is not None:
            payload, own_schema = _taken_apart(key)
            if not isinstance(payload, Mapping):
                raise FormatError(f"the key must be an object of its columns, not {_kind(payload)}")
            decoders = _fields_of(own_schema, object_class) or self._decoders(object_class)
            of_key: dict[str, str] = {}
            own_key = tuple(self._row(payload, decoders, of_key).items())
            _refuse_in_key(payload, {**unreadable, **of_key})
            return own_key
        names = self._options.keys.get(full_name(schema, table)) or self._options.keys.get(table)
        if names is None and object_class is not None:
            names = [column.name for column in object_class.key]
        _refuse_in_key(names or (), unreadable)
        return None if names is None else key_in(image, names)


def _refuse_in_key(names: Iterable[str], unreadable: Mapping[str, str]) -> None:
    """Raise FormatError for a column of the key that cannot be read."""
    for name in names:
        if name in unreadable:
            raise FormatError(f"{unreadable[name]}; a change needs its key")


def _is_of_no_row(payload: JsonObject) -> bool:
    """Return True if an event of Debezium that has no operation is not a change of a row. An event
    of this kind is the begin or end of a transaction, a change of the schema, a heartbeat, or a
    notification.
    """
    return (
        "status" in payload
        or "ddl" in payload
        or (bool(payload) and payload.keys() <= _OF_HEARTBEATS)
        or payload.keys() >= _OF_NOTIFICATIONS
    )


_OF_HEARTBEATS: Final = frozenset({"ts_ms", "ts_us", "ts_ns"})
_OF_NOTIFICATIONS: Final = frozenset({"id", "type", "aggregate_type"})


def _shown(value: Any) -> str:
    return shown(value if isinstance(value, str) else str(plain(value)))


def _names_of(source: JsonObject) -> TableName:
    """Return schema and table of a change. Raises FormatError."""
    table = source.get("table")
    if not isinstance(table, str) or not table:
        raise FormatError("source.table, the name of the table, is missing")
    # MySQL has databases in place of schemas.
    owner = source.get("schema") or source.get("db") or None
    if not isinstance(owner, str | None):
        raise FormatError(f"source.schema must be text, not {_kind(owner)}")
    return owner, table


def _images_of(
    op: ChangeOp, before: Row | None, after: Row | None
) -> tuple[Row | None, Row | None]:
    """Return the row before and the row after the change, each None if a change of this operation
    does not have it.
    """
    match op:
        case ChangeOp.INSERT | ChangeOp.REFRESH:
            return None, after
        case ChangeOp.DELETE:
            return before, None
        case ChangeOp.TRUNCATE:
            return None, None
        case _:
            return before, after


def _taken_apart(value: Any) -> tuple[Any, Any]:
    """Return the payload and the schema of a key or value. The schema is None if it is missing."""
    if isinstance(value, Mapping) and value.keys() == {"schema", "payload"}:
        return value["payload"], value["schema"]
    return value, None


def _field_named(schema: Any, name: str) -> Any:
    if schema is None:
        return None
    fields = schema.get("fields") if isinstance(schema, Mapping) else None
    for field in fields if isinstance(fields, list) else ():
        if isinstance(field, Mapping) and field.get("field") == name:
            return field
    raise FormatError(f"the schema has no field {name}")


def _fields_of(schema: Any, object_class: ObjectClass | None) -> dict[str, Decode] | None:
    """Return the decoders of a struct's fields, None if there is no schema.

    With ``decimal.handling.mode`` string or double, only the class shows that a text or a double is
    an exact number.
    """
    if schema is None:
        return None
    fields = schema.get("fields") if isinstance(schema, Mapping) else None
    if not isinstance(fields, list):
        raise FormatError("the schema of a row has no fields")
    exact = {} if object_class is None else _exact_columns(object_class)
    types = {} if object_class is None else _types_of(object_class)
    decoders: dict[str, Decode] = {}
    for field in fields:
        name = field.get("field") if isinstance(field, Mapping) else None
        if not isinstance(name, str):
            raise FormatError("the schema has a field without name")
        try:
            decoders[name] = decoder_of(field, types.get(name))
        except ValueError as error:
            decoders[name] = _refusing(f"its schema cannot be read: {error}")
        if name in exact and field.get("name") is None and field.get("type") in _OF_DECIMALS:
            decoders[name] = exact[name]
    return decoders


def _refusing(problem: str) -> Decode:
    def refuse(value: Any) -> Value:
        raise ValueError(problem)

    return refuse


@lru_cache(maxsize=1024)
def _types_of(object_class: ObjectClass) -> ColumnTypes:
    return {column.name: column.type for column in object_class.table.columns}


_OF_DECIMALS: Final = frozenset({"string", "double", "float64"})


@lru_cache(maxsize=1024)
def _exact_columns(object_class: ObjectClass) -> Decoders:
    """Return the decoders of a class's exact-number columns, for schemas that do not identify exact
    numbers.
    """
    exact = (
        one
        for one in object_class.table.columns
        if one.type.kind is Kind.EXACT or (one.type.kind is Kind.INTEGER and one.type.sizes)
    )
    return {column.name: field_of(column.type, "string").decode for column in exact}


def _extras(source: JsonObject) -> dict[str, Any]:
    # Without txId: another log's number of a transaction would pass for one of ours.
    return {
        name: source[name]
        for name in ("connector", "lsn", "record_ids")
        if source.get(name) is not None
    }


def _logged(extras: Mapping[str, Any]) -> Logged:
    """Return the rows of a log that a change was made of. A member with a value of the wrong type
    is ignored, since the file may come from another program.
    """
    ids, transaction = extras.get("record_ids"), extras.get("txId")
    is_list = isinstance(ids, list | tuple) and all(type(one) is int for one in ids)
    return Logged(ids if is_list else None, transaction if type(transaction) is int else None)


def _position(source: JsonObject) -> str | None:
    """Return the position of the change in its source: our event-id, PostgreSQL's LSN, or MySQL's
    file and offset.
    """
    if source.get("event_id") is not None:
        return str(source["event_id"])
    if source.get("lsn") is not None:
        return str(source["lsn"])
    if source.get("file") is not None:
        return f"{source['file']}:{source.get('pos')}"
    number = source.get("change_lsn", source.get("scn"))
    return None if number is None else str(number)


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _moment(source: JsonObject) -> datetime | None:
    """Return the time of the change in the best available precision, 0 if there is none."""
    microseconds = _number(source.get("ts_us"))
    if microseconds is None:
        microseconds = (_number(source.get("ts_ms")) or 0) * 1000
    if microseconds == 0:
        return None
    try:
        return EPOCH_UTC + timedelta(microseconds=microseconds)
    except OverflowError:
        raise FormatError(
            f"source.ts_ms lies beyond the years 1 to 9999: {microseconds} us"
        ) from None


def _kind(value: Any) -> str:
    return "null" if value is None else type(value).__name__


# --- writing --------------------------------------------------------------------------------------


def write(changes: Iterable[Change], target: str, options: WriteOptions, report: Report) -> None:
    """Write changes to a file, whole or not at all (``WriteOptions``). A change that a record
    cannot hold is reported and skipped.
    """
    catalog = catalog_of(options.catalog)
    writer = EnvelopeWriter(options, catalog, count=report.count)

    def records_of(change: Change, _: str) -> list[KafkaRecord]:
        complete = options.complete
        whole_row = (
            None if complete is None else partial(complete, change.schema, change.table, change.key)
        )
        return writer.records(
            change, class_of_change(catalog, change), whole_row, _logged(change.extras)
        )

    with whole_file(target) as file:
        file.writelines(
            line_of(record, options.lines) for record in written(changes, records_of, report)
        )


def line_of(record: KafkaRecord, lines: str = "records") -> bytes:
    """Return a record as a line with its line break. With ``lines`` = values, the line of a
    tombstone is empty.
    """
    if lines == "values":
        return b"" if record.value is None else record.value + b"\n"
    topic = json_bytes(record.topic or "")
    return b'{"topic":%b,"key":%b,"value":%b}\n' % (
        topic,
        record.key or b"null",
        record.value or b"null",
    )
