"""Write changes as Debezium records: key, envelope and tombstone (formats/debezium.md 1, 2), and
the options of writing them.

The envelope is as in the PostgreSQL connector, "Data change events", with eventlog's source block.
An option that Debezium also has carries Debezium's name, with _ in place of the dot.

``_TableRecords`` prepares everything that is the same in the records of a table: its fields, and
the bytes of its schemas, which precede each payload. The price: key and value are concatenated from
bytes, outside of the JSON that orjson writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from eventlog import __version__
from eventlog.changes.images import FILLED, Complete, Count, refuse_without_row
from eventlog.changes.json_form import CATALOG, CatalogOption
from eventlog.changes.keys import old_and_new_key, with_key
from eventlog.core.catalog import Catalog, Column, ObjectClass, Table, row_of
from eventlog.core.clock import utc_now
from eventlog.core.options import (
    FLAG,
    FUNCTION,
    CheckedOptions,
    choice,
    matching,
    option,
    shared,
)
from eventlog.core.values import ColumnType, Kind, float_text
from eventlog.core.values.json_bytes import json_bytes
from eventlog.core.values.moments import EPOCH_UTC
from eventlog.core.values.typed_values import is_multi_valued, type_of, typed_by
from eventlog.debezium.fields import Field, field_of
from eventlog.errors import NotExpressible, RowError, shown
from eventlog.model import (
    Change,
    ChangeOp,
    JsonDict,
    JsonObject,
    KafkaRecord,
    Key,
    Row,
    Value,
    column_name,
    differing,
    full_name,
)

# --- options --------------------------------------------------------------------------------------

PLACEHOLDER: Final = "__debezium_unavailable_value"
"""Debezium's default of ``unavailable.value.placeholder``."""


_TOPIC: Final = matching(
    "[A-Za-z0-9._-]{1,200}", "a text of letters of ASCII, digits, dots, hyphens and underscores"
)


@dataclass(frozen=True, slots=True)
class ConnectorOptions(CheckedOptions):
    """Options that reader and writer share, under the names that the connector has for them."""

    decimal_handling_mode: str = option(
        "precise",
        choice("precise", "double", "string"),
        "form of exact numbers (decimal.handling.mode)",
    )
    time_precision_mode: str = option(
        "adaptive",
        choice("adaptive", "connect"),
        "types of dates and times (time.precision.mode); `connect`: milliseconds",
    )
    unavailable_value_placeholder: str = option(
        PLACEHOLDER,
        matching("[!-~]+", "a text of ASCII without blanks"),
        "placeholder for an unknown value (unavailable.value.placeholder)",
    )


@dataclass(frozen=True, slots=True)
class PublishOptions(ConnectorOptions):
    """Options of a publisher's events. Raises ConfigError."""

    topic_prefix: str = option(
        "eventlog", _TOPIC, "first part of topics and name of the source (topic.prefix)"
    )
    schemas_enable: bool = option(
        True, FLAG, "key and value contain their schemas (schemas.enable of the converter)"
    )
    tombstones_on_delete: bool = option(
        True, FLAG, "on Kafka, a tombstone follows each delete (tombstones.on.delete)"
    )
    missing_columns: str = option(
        "read_back",
        choice("read_back", "placeholder", "error"),
        "for columns of `after` that are not in the log: read back, a placeholder, or an error",
    )


@dataclass(frozen=True, slots=True)
class WriteOptions(PublishOptions):
    """Options of the writer. Raises ConfigError."""

    catalog: CatalogOption = shared(CATALOG)
    complete: Complete | None = option(
        None, FUNCTION, "function that gets schema, table and key, and returns the whole row"
    )
    database: str = option(
        "", matching("[^\\ud800-\\udfff]*", "a text"), "name of the database: source.db"
    )
    lines: str = option(
        "records",
        choice("records", "values"),
        "content of a line of a file: topic, key and value of a record, or only its value",
    )
    topic: str | None = option(
        None, _TOPIC, "one topic for all tables; default: <prefix>.<schema>.<table>"
    )


# --- records --------------------------------------------------------------------------------------

OPERATIONS: Final[Mapping[ChangeOp, str]] = {
    ChangeOp.INSERT: "c",
    ChangeOp.UPDATE: "u",
    ChangeOp.DELETE: "d",
    ChangeOp.REFRESH: "r",
    ChangeOp.TRUNCATE: "t",
}

_MICROSECOND: Final = timedelta(microseconds=1)
_NOT_OF_TOPICS: Final = re.compile(r"[^A-Za-z0-9._-]")


def topic_of(prefix: str, schema: str | None, table: str) -> str:
    """Return ``<prefix>.<schema>.<table>``; characters that the name of a topic cannot hold become
    ``_`` ("Topic names").
    """
    return _NOT_OF_TOPICS.sub("_", f"{prefix}.{full_name(schema, table)}")


class Logged(NamedTuple):
    """The rows of a log that became an event, as its envelope shows them."""

    record_ids: Sequence[int] | None = None
    transaction: int | None = None
    """The number of the transaction that wrote the last row."""


NOT_LOGGED: Final = Logged()
"""The ``Logged`` of an event that is not from a log, or whose rows are unknown."""


class EnvelopeWriter:
    """A writer of changes as records.

    ``utc_now`` returns the time of processing, ``ts_ms`` of an envelope. ``count`` is called, with
    a reason of a report, for each column that is filled with NULL although its value is unknown,
    and for each column whose old value cannot be written. The columns of a table come from its
    class in ``catalog``. For a table that is not in ``catalog``, the columns come from each change,
    and their types from the values.
    """

    def __init__(
        self,
        options: WriteOptions,
        catalog: Catalog | None = None,
        utc_now: Callable[[], datetime] = utc_now,
        count: Count = lambda reason: None,
    ) -> None:
        self.options = options
        self._catalog, self._utc_now, self._count = catalog, utc_now, count
        self._records_of: dict[ObjectClass, _TableRecords] = {}

    def records(
        self,
        change: Change,
        object_class: ObjectClass | None,
        whole_row: Callable[[], Row | None] | None = None,
        logged: Logged = NOT_LOGGED,
    ) -> list[KafkaRecord]:
        """Return the records of a change, usually one. A delete has a second record, the tombstone.
        A change of the key has a delete, its tombstone, and then an insert.

        ``object_class`` is the class of the table, None = unknown. ``whole_row`` reads the present
        row; it is called if columns of ``after`` are unknown. ``logged`` are the rows of the log.
        Raises NotExpressible, FormatError.
        """
        table = self._table(change, object_class)
        if change.op is ChangeOp.TRUNCATE:
            return [
                KafkaRecord(
                    table.topic, None, table.value(None, None, self._rest(change, "t", logged))
                )
            ]
        refuse_without_row(change)
        change = with_key(_without_child_attributes(change), object_class)
        old, new = old_and_new_key(change)
        if change.op is ChangeOp.DELETE:
            return self._deleted(table, change, old, logged)
        after, unknown = self._after(table, change, new, whole_row)
        operation = OPERATIONS[change.op]
        before = _before(change, after) if change.op is ChangeOp.UPDATE else None
        moved: list[KafkaRecord] = []
        # A delete and a create ("Primary key updates").
        if change.op is ChangeOp.UPDATE and old != new:
            was = change._replace(before=before or change.before)
            moved = self._deleted(table, was, old, logged, unknown)
            operation = "c"
            before = None
        value = table.value(before, after, self._rest(change, operation, logged), unknown)
        return [*moved, KafkaRecord(table.topic, table.key(new), value)]

    def _table(self, change: Change, object_class: ObjectClass | None) -> _TableRecords:
        if object_class is None:
            return _TableRecords(self.options, change.schema, _table_of(change), self._count)
        table = self._records_of.get(object_class)
        if table is None:
            schema = change.schema
            if schema is None and self._catalog is not None:
                schema = self._catalog.schema
            table = self._records_of[object_class] = _TableRecords(
                self.options, schema, row_of(object_class), self._count
            )
        return table

    def _deleted(
        self,
        table: _TableRecords,
        change: Change,
        key: Key,
        logged: Logged,
        unknown: frozenset[str] = frozenset(),
    ) -> list[KafkaRecord]:
        """Return the records of a delete, with the known columns of the row: at least the key."""
        before = {**(change.before or {}), **dict(key)}
        value = table.value(before, None, self._rest(change, "d", logged), unknown)
        deleted = KafkaRecord(table.topic, table.key(key), value)
        return (
            [deleted, deleted._replace(value=None)]
            if self.options.tombstones_on_delete
            else [deleted]
        )

    def _after(
        self,
        table: _TableRecords,
        change: Change,
        key: Key,
        whole_row: Callable[[], Row | None] | None,
    ) -> tuple[Row, frozenset[str]]:
        """Return the whole row after a change, and the columns that get a placeholder
        (formats/debezium.md 4).
        """
        after = {**(change.after or {}), **dict(key)}
        missing = [name for name in table.fields if name not in after]
        if not missing:
            return after, frozenset()
        row = (
            whole_row()
            if whole_row is not None and self.options.missing_columns == "read_back"
            else None
        )
        if row is not None:
            after |= {name: row[name] for name in missing if name in row}
            missing = [name for name in missing if name not in row]
        if change.op is not ChangeOp.UPDATE:
            # An insert in a log leaves out NULL (spec/triggers.md 2).
            if "record_ids" not in change.extras:
                for name in missing:
                    self._count(f"{FILLED} {column_name(change, name)}")
            return {**dict.fromkeys(missing), **after}, frozenset()
        if missing and self.options.missing_columns != "placeholder":
            raise NotExpressible(
                f"{change.op} of {change.table!r} at {change.position}: columns "
                f"{', '.join(missing)} are unknown, but `after` must be the whole row: read it "
                "back from the database, give the writer the option complete, or set "
                "missing_columns = placeholder; for change tables with whole rows, set "
                "absent_nulls = null for the reader"
            )
        return {**dict.fromkeys(missing), **after}, frozenset(missing)

    def _rest(self, change: Change, operation: str, logged: Logged) -> JsonDict:
        """Return the members of an envelope after the images (formats/debezium.md 2)."""
        moment = change.commit_time
        microseconds = 0 if moment is None else (moment - EPOCH_UTC) // _MICROSECOND
        now = (self._utc_now() - EPOCH_UTC) // _MICROSECOND
        source = {
            "version": __version__,
            "connector": "eventlog",
            "name": self.options.topic_prefix,
            "ts_ms": microseconds // 1000,
            "ts_us": microseconds,
            "ts_ns": microseconds * 1000,
            "snapshot": "true" if change.op is ChangeOp.REFRESH else "false",
            "db": self.options.database,
            "sequence": None,
            "schema": change.schema or "",
            "table": change.table,
            "event_id": change.position,
            "record_ids": None if logged.record_ids is None else list(logged.record_ids),
            "txId": logged.transaction,
        }
        return {
            "source": source,
            "op": operation,
            "ts_ms": now // 1000,
            "ts_us": now,
            "ts_ns": now * 1000,
            "transaction": None,
        }


def _table_of(change: Change) -> Table:
    """Return a table with the columns of a change. The types come from the values of both images; a
    column with only NULLs is text.
    """
    key = dict(change.key or ())
    images = (key, change.after or {}, change.before or {})
    names = {**key, **(change.after or change.before or {})}
    columns = tuple(Column(name, _type_in([image.get(name) for image in images])) for name in names)
    return Table(change.table, "table", columns, tuple(key))


def _type_in(values: Iterable[Value]) -> ColumnType:
    """Return the type of a column with these values.

    If there is a number or a time, a word such as NaN is ignored. If there are other values, whole
    numbers are ignored.
    """
    types = {type_of(value) for value in values if value is not None}
    for kind in (Kind.CHARACTER, Kind.INTEGER):
        if len(types) > 1:
            types = {type for type in types if type.kind is not kind}
    return types.pop() if len(types) == 1 else type_of("")


def _without_child_attributes(change: Change) -> Change:
    """Return a change without the attributes of child tables, which have no values after
    query-back.

    Raises NotExpressible for an attribute that has values.
    """
    several: set[str] = set()
    for image in (change.before, change.after):
        for name, value in (image or {}).items():
            if not is_multi_valued(value):
                continue
            several.add(name)
            if value != ():
                raise NotExpressible(
                    f"{change.op} of {change.table!r} at {change.position}: {name!r} has several "
                    "values, but a column of a row has one. Give the child table a primary key "
                    "and its own [[watch]], then run eventlog triggers apply; or exclude the "
                    "attribute in the [[watch]] of its owner",
                    column_name(change, name),
                )
    if not several:
        return change
    return change._replace(
        before=_without(change.before, several),
        after=_without(change.after, several),
        changed=None if change.changed is None else change.changed - several,
    )


def _without(row: Row | None, names: set[str]) -> Row | None:
    return (
        None if row is None else {name: value for name, value in row.items() if name not in names}
    )


def _before(change: Change, after: Row) -> Row | None:
    """Return the whole row before an update. Unchanged columns get their values from the row after
    the update.

    None = unknown.
    """
    before, changed = change.before, change.changed
    if before is None or change.extras.get("changed_unknown"):
        return None
    if changed is None:
        changed = differing(before, change.after or {})
    if changed is None or not before.keys() >= changed:
        return None
    return {**after, **before}


class _TableRecords:
    """The parts that all records of a table share: topic, fields, and the schemas as JSON."""

    def __init__(
        self,
        options: WriteOptions,
        schema: str | None,
        table: Table,
        count: Count,
    ) -> None:
        self._count = count
        self._types = {column.name: column.type for column in table.columns}
        self.fields: dict[str, Field] = {
            column.name: field_of(
                column.type, options.decimal_handling_mode, options.time_precision_mode
            )
            for column in table.columns
        }
        name = topic_of(options.topic_prefix, schema, table.name)
        self.topic = options.topic or name
        self._what = full_name(schema, table.name)
        self._placeholder = options.unavailable_value_placeholder
        self._has_schema = options.schemas_enable
        key = set(table.primary_key)
        self._key_head = self._value_head = b""
        if options.schemas_enable:
            keys = [_column(one, self.fields[one], optional=False) for one in table.primary_key]
            # The catalog does not have which columns accept NULL.
            columns = [
                _column(one, field, optional=one not in key) for one, field in self.fields.items()
            ]
            self._key_head = b'{"schema":%b,"payload":' % json_bytes(_struct(f"{name}.Key", keys))
            self._value_head = b'{"schema":%b,"payload":' % json_bytes(_envelope(name, columns))

    def key(self, key: Key) -> bytes:
        """Return the key of a record."""
        return self._bytes(
            self._key_head, {name: self._encoded(name, value) for name, value in key}
        )

    def value(
        self,
        before: Row | None,
        after: Row | None,
        rest: JsonObject,
        unknown: frozenset[str] = frozenset(),
    ) -> bytes:
        """Return the value of a record; ``unknown`` are the columns that get the placeholder."""
        new = self._image(after, unknown)
        try:
            old = self._image(before, unknown)
        except NotExpressible as error:
            if error.code != "value_range" or before is None:
                raise
            old = self._old_image(before, unknown, has_after=after is not None)
        return self._bytes(self._value_head, {"before": old, "after": new, **rest})

    def _old_image(self, row: Row, unknown: frozenset[str], *, has_after: bool) -> JsonDict | None:
        """Return the image that replaces the values before a change if some of them cannot be
        written (formats/debezium.md 2). The image is None if the event has the row after the
        change. Otherwise it lacks the values that cannot be written.

        The row was deleted or has another value by now, so nobody could fix a refused event. Each
        column whose value cannot be written is counted. Raises NotExpressible for a value of the
        key.
        """
        image: JsonDict = {}
        for name, value in row.items():
            try:
                image |= self._image({name: value}, unknown) or {}
            except NotExpressible as error:
                if error.code != "value_range":
                    raise
                self._count(f"old_unreadable {error.column}")
        return None if has_after else {name: image[name] for name in self.fields if name in image}

    def _image(self, row: Row | None, unknown: frozenset[str]) -> JsonDict | None:
        if row is None:
            return None
        for name in row:
            if name not in self.fields:
                message = f"{name!r} is not a column of {self._what} in the catalog"
                raise NotExpressible(message, f"{self._what}.{name}")
        return {
            name: self._unavailable(name) if name in unknown else self._encoded(name, row[name])
            for name in self.fields
            if name in row
        }

    def _encoded(self, name: str, value: Value) -> Any:
        if value is None:
            return None
        field = self.fields[name]
        try:
            try:
                return field.encode(value)
            except (ValueError, ArithmeticError, RowError):
                return field.encode(_typed_value(self._types[name], value))
        except (ValueError, ArithmeticError, RowError) as error:
            type = field.schema.get("name", field.schema["type"])
            message = f"column {name!r} of {self._what} as {type}: {shown(value)}: {error}"
            raise NotExpressible(message, f"{self._what}.{name}", code="value_range") from None

    def _unavailable(self, name: str) -> str:
        """Return the placeholder of a column.

        With a schema, only columns of text and bytes can hold the placeholder, as in Debezium
        ("Toasted values"). Raises NotExpressible for other columns.
        """
        type = self.fields[name].schema["type"]
        if type == "bytes" and "name" not in self.fields[name].schema:
            return str(self.fields[name].encode(self._placeholder.encode()))
        if type != "string" and self._has_schema:
            raise NotExpressible(
                f"column {name!r} of {self._what} is unknown, and its type in the schema, {type}, "
                "cannot hold a placeholder: set schemas_enable = false, or missing_columns = "
                "read_back",
                f"{self._what}.{name}",
            )
        return self._placeholder

    def _bytes(self, head: bytes, payload: JsonObject) -> bytes:
        """Return the bytes of a payload, preceded by its schema. The schema is the same in all
        records of the table.
        """
        try:
            return head + json_bytes(payload) + (b"}" if head else b"")
        except UnicodeEncodeError as error:
            raise NotExpressible(
                f"a value of {self._what} has an unpaired surrogate at {error.start}"
            ) from None


def _typed_value(type: ColumnType, value: Value) -> Value:
    """Return a value as the column's type has it, if a format without types has given it as a text
    or a double. Raises BadValue.
    """
    if isinstance(value, float) and type.kind in (Kind.EXACT, Kind.INTEGER):
        value = float_text(value)
    return typed_by(type, value)


# --- schemas --------------------------------------------------------------------------------------


def _struct(name: str, fields: Iterable[JsonObject], **more: Any) -> JsonDict:
    return {"type": "struct", "fields": list(fields), "optional": False, "name": name, **more}


def _column(name: str, field: Field, *, optional: bool) -> JsonDict:
    return {**field.schema, "optional": optional, "field": name}


def _plain(name: str, type: str, *, optional: bool = False) -> JsonDict:
    return {"type": type, "optional": optional, "field": name}


def _envelope(name: str, columns: Sequence[JsonObject]) -> JsonDict:
    row = _struct(f"{name}.Value", columns, optional=True)
    places = [
        _plain("id", "string"),
        _plain("total_order", "int64"),
        _plain("data_collection_order", "int64"),
    ]
    fields = [
        {**row, "field": "before"},
        {**row, "field": "after"},
        {**_struct("eventlog.Source", _source()), "field": "source"},
        _plain("op", "string"),
        *(_plain(one, "int64", optional=True) for one in _TIMES),
        {**_struct("event.block", places, optional=True, version=1), "field": "transaction"},
    ]
    return _struct(f"{name}.Envelope", fields, version=2)


_TIMES: Final = ("ts_ms", "ts_us", "ts_ns")


def _source() -> Iterator[JsonDict]:
    allowed = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
    yield from (_plain(name, "string") for name in ("version", "connector", "name"))
    yield from (_plain(name, "int64") for name in _TIMES)
    yield {
        "type": "string", "optional": True, "name": "io.debezium.data.Enum", "version": 1,
        "parameters": {"allowed": allowed}, "default": "false", "field": "snapshot",
    }  # fmt: skip
    yield _plain("db", "string")
    yield _plain("sequence", "string", optional=True)
    yield from (_plain(name, "string") for name in ("schema", "table"))
    yield _plain("event_id", "string", optional=True)
    yield {
        "type": "array",
        "items": {"type": "int64", "optional": False},
        "optional": True,
        "field": "record_ids",
    }
    yield _plain("txId", "int64", optional=True)
