"""Convert changes, and the events of a log, to CloudEvents (formats/cloudevents.md 3, 4, 5;
CloudEvents 1.0.2, JSON format 1.0.2). The results are dicts, which ``json_bytes`` writes.

This is a hot path: an event of a log is made from its steps without a Change in between
(``data_reader``); types, converters and readers are looked up once for each class; tuples are made
by ``tuple.__new__``, in less than half the time; members of enumerations are read from names of the
module. The price: a CloudEvent is made from its fields by position, and the rules of data are
written twice, for changes and for steps; test_steps_make_the_data_that_their_changes_make checks
that the two agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import lru_cache, partial
from itertools import islice
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from eventlog.changes.events import attribute_reader, operation_of, parse_association
from eventlog.changes.format import Report, written
from eventlog.changes.images import refuse_without_row, written_columns
from eventlog.changes.json_form import catalog_of, utc_text
from eventlog.changes.keys import class_of_change, key_reader, with_key
from eventlog.changes.net_effect import net_of_rows
from eventlog.changes.to_events import association_text
from eventlog.cloudevents.options import BATCHED, WriteOptions, is_text
from eventlog.cloudevents.values import (
    DEFAULT_ENCODING,
    InJson,
    JsonEncoding,
    as_in_key,
    value_converter,
)
from eventlog.core import table_key
from eventlog.core.catalog import Attribute, Catalog, ObjectClass
from eventlog.core.rows.events import Outgoing, rows_by_attribute
from eventlog.core.values import ColumnTypes, ValueOptions
from eventlog.core.values.json_bytes import escaped_json_bytes
from eventlog.core.values.typed_values import ReadValue, is_multi_valued
from eventlog.errors import BadValue, NotExpressible, shown
from eventlog.files.atomic import whole_file
from eventlog.model import Change, ChangeOp, JsonDict, JsonObject, Key, Operation, Row, Value

SPECVERSION: Final = "1.0"
DATA_TYPE: Final = "application/json"

_new: Final = tuple.__new__
_NOTHING: Final[Row] = {}
_UPDATE, _TRUNCATE = ChangeOp.UPDATE, ChangeOp.TRUNCATE


class CloudEvent(NamedTuple):
    """A CloudEvent: its attributes ("Context Attributes") and its data. An attribute that is None
    is left out.
    """

    id: str
    source: str
    type: str
    subject: str | None
    time: str | None
    data: JsonObject
    dataschema: str | None = None

    def attributes(self) -> dict[str, str]:
        """Return all attributes except ``datacontenttype``, in the order of the written event."""
        event_id, source, event_type, subject, time, _, dataschema = self
        written = {
            "specversion": SPECVERSION,
            "id": event_id,
            "source": source,
            "type": event_type,
        }
        if dataschema is not None:
            written["dataschema"] = dataschema
        if subject is not None:
            written["subject"] = subject
        if time is not None:
            written["time"] = time
        return written

    def whole(self) -> JsonDict:
        """Return the whole event in the JSON format (JSON format 1.0.2, 3)."""
        whole: JsonDict = self.attributes()
        whole["datacontenttype"], whole["data"] = DATA_TYPE, self.data
        return whole

    def data_bytes(self) -> bytes:
        """Return only the data, as binary mode sends them."""
        return escaped_json_bytes(self.data)

    def whole_bytes(self) -> bytes:
        """Return the event in the JSON format, on one line."""
        return escaped_json_bytes(self.whole())


def batch_line(events: Iterable[CloudEvent]) -> bytes:
    """Return a batch (JSON format 1.0.2, 4) as a line of a file."""
    return b"[%b]\n" % b",".join([event.whole_bytes() for event in events])


def event_writer(
    source: str,
    event_type: str,
    encoding: JsonEncoding = DEFAULT_ENCODING,
    dataschema: str | None = None,
) -> Callable[[Change, str, str | None, ObjectClass | None], CloudEvent]:
    """Return the function that makes a CloudEvent of a change. The arguments of the function are
    the change, the event's id and subject (None = no subject), and the class (None = unknown).

    ``attribute_writer`` sets the other attributes. The function raises FormatError for a change
    that does not have its row.
    """
    with_data = attribute_writer(source, event_type, dataschema)

    def write(
        change: Change, event_id: str, subject: str | None, object_class: ObjectClass | None = None
    ) -> CloudEvent:
        refuse_without_row(change)
        return with_data(
            event_id, subject, change.commit_time, data_of(change, object_class, encoding)
        )

    return write


def attribute_writer(
    source: str, event_type: str, dataschema: str | None
) -> Callable[[str, str | None, datetime | None, JsonObject], CloudEvent]:
    """Return the function that makes a CloudEvent from its id, subject (None = no subject), time
    (None = unknown) and data.

    A subject with characters that attributes must not contain is left out. The function raises
    NotExpressible for an id with characters that attributes must not contain.
    """
    type_of = type_writer(event_type)

    def with_data(
        event_id: str, subject: str | None, time: datetime | None, data: JsonObject
    ) -> CloudEvent:
        operation, schema, table = data["operation"], data.get("schema"), data["class"]
        if not event_id or not is_text(event_id):
            raise NotExpressible(
                f"{operation} of {table!r} at {shown(event_id)}: the id of a CloudEvent must not "
                "be empty or contain characters that attributes exclude, such as control "
                "characters"
            )
        named = type_of(operation, schema, table)
        uri = None if dataschema is None else schema_uri(dataschema, schema, table)
        moment = None if time is None else utc_text(time)
        if not (subject and is_text(subject)):
            # It is unknown, or has characters that attributes must not contain.
            subject = None
        return _new(CloudEvent, (event_id, source, named, subject, moment, data, uri))

    return with_data


@lru_cache(maxsize=4096)
def schema_uri(template: str, schema: str | None, table: str) -> str:
    """Return the attribute ``dataschema``: the option with percent-encoded names."""
    names = {"schema": schema or "", "class": table}
    return template.format(
        **{name: quote(text, safe="", errors="surrogatepass") for name, text in names.items()}
    )


def type_writer(template: str) -> Callable[[str, str | None, str], str]:
    """Return the function that makes the type of an event from the template in the option ``type``.

    Characters of names that attributes must not contain are percent-encoded.
    """

    @lru_cache(maxsize=4096)
    def type_of(operation: str, schema: str | None, table: str) -> str:
        text = template.format(operation=operation, schema=schema or "", **{"class": table})
        return "".join(one if is_text(one) else quote(one, errors="surrogatepass") for one in text)

    return type_of


class _Converters(dict[str, InJson]):
    """The converters of a class's columns to JSON, by the names of the columns in events.

    An unknown column has the converter of values without a type.
    """

    def __init__(self, types: ColumnTypes, encoding: JsonEncoding) -> None:
        super().__init__((name, value_converter(type, encoding)) for name, type in types.items())
        self._of_unknown = value_converter(None, encoding)

    def __missing__(self, name: str) -> InJson:
        return self._of_unknown


@lru_cache(maxsize=1024)
def _converters_of(object_class: ObjectClass | None, encoding: JsonEncoding) -> _Converters:
    return _Converters(types_of(object_class), encoding)


def types_of(object_class: ObjectClass | None) -> ColumnTypes:
    """Return the types of a class's columns by the names of the columns in events. The result is
    empty for an unknown class.
    """
    if object_class is None:
        return {}
    types = {attribute.name: attribute.column.type for attribute in object_class.attributes}
    return types | {column.name: column.type for column in object_class.key}


def data_of(change: Change, object_class: ObjectClass | None, encoding: JsonEncoding) -> JsonDict:
    """Return the data of an event (formats/cloudevents.md 4); ``object_class`` is the class of its
    table, None = unknown.
    """
    (
        schema,
        table,
        op,
        key_parts,
        before,
        after,
        _,
        _,
        transaction_id,
        number,
        is_last,
        _,
        user,
        _,
    ) = change
    converters, key = _converters_of(object_class, encoding), dict(key_parts or ())
    before, after = before or _NOTHING, after or _NOTHING
    data = _without_columns(op, schema, table, key_parts, converters)
    if op is _UPDATE:
        data |= _updated(change, key, converters)
    elif op is not _TRUNCATE:
        names = [name for name in {**after, **before} if name not in key]
        data["columns"] = _old_and_new(names, before, after, key, converters)
    if user is not None:
        data["user"] = user
    if transaction_id is not None:
        transaction = {"id": transaction_id, "number": number, "last": is_last}
        data["transaction"] = {
            name: value for name, value in transaction.items() if value is not None
        }
    return data


def _updated(change: Change, key: Row, converters: _Converters) -> JsonDict:
    """Return the members of data that hold the columns of an update: the changed columns, and the
    other columns that are not in the key.
    """
    before, after = change.before or _NOTHING, change.after or _NOTHING
    changed = dict.fromkeys((*_changed_key(change), *written_columns(change)))
    known = before
    if unknown := change.extras.get("changed_unknown"):
        known = {name: value for name, value in before.items() if name not in unknown}
    columns = _old_and_new(changed, known, after, key, converters)
    for name, values in columns.items():
        if "old" not in values and is_multi_valued(after.get(name)):
            values["whole"] = True
    unchanged = [name for name in {**after, **before} if name not in changed and name not in key]
    if not unchanged:
        return {"columns": columns}
    return {
        "columns": columns,
        "unchanged": _old_and_new(unchanged, before, after, key, converters),
    }


def _old_and_new(
    names: Iterable[str],
    before: Row,
    after: Row,
    key: Row,
    converters: _Converters,
) -> dict[str, JsonDict]:
    """Return the known values of columns in JSON. Key columns have the same form as in the key."""
    columns: dict[str, JsonDict] = {}
    for name in names:
        convert = converters[name]
        values = columns[name] = {}
        if name in before:
            values["old"] = convert(before[name])
        if name in after:
            values["new"] = convert(after[name])
        if name in key:
            rows = {"old": before, "new": after}
            columns[name] = {
                member: as_in_key(rows[member][name], value) for member, value in values.items()
            }
    return columns


def _without_columns(
    op: ChangeOp, schema: str | None, table: str, key: Key | None, converters: _Converters
) -> JsonDict:
    """Return the members of data that identify the operation and the object."""
    data: JsonDict = {"operation": op.lower()}
    if schema is not None:
        data["schema"] = schema
    data["class"] = table
    if key is not None:
        data["key"] = {name: as_in_key(value, converters[name](value)) for name, value in key}
    return data


def _changed_key(change: Change) -> list[str]:
    """Return the key columns that an update changes."""
    before, changed = change.before or _NOTHING, change.changed or ()
    return [
        name
        for name, value in change.key or ()
        if name in changed or (name in before and before[name] != value)
    ]


# --- the events of a log --------------------------------------------------------------------------


def data_reader(
    catalog: Catalog, values: ValueOptions, encoding: JsonEncoding
) -> Callable[[Outgoing, str | None, str | None], Any]:
    """Return the function that makes the data of a log's event from the event, its user and its
    transaction. These data equal the data of the event's change.

    The function makes the data directly from the steps. By way of a Change, its images and the
    differences of the images, an event would take a third more CPU from its rows to its bytes
    (bench/RESULTS.md, "One path to JSON"). ``values`` are the options with which the events were
    written. A value that Python cannot hold as its type stays text.
    """
    schema = catalog.schema
    reader_of = lru_cache(maxsize=1024)(
        lambda object_class: _ClassReader(object_class, values, encoding)
    )

    def data_of_event(event: Outgoing, user: str | None, transaction: str | None) -> JsonDict:
        assert event.object_id is not None
        assert event.operation is not None
        object_class, key_text = event.object_id
        reader: _ClassReader = reader_of(object_class)
        key = reader.key(key_text)
        data = _without_columns(
            operation_of(event), schema, object_class.name, key, reader.converters
        )
        data["columns"] = reader.columns(event, key)
        if user is not None:
            data["user"] = user
        if transaction is not None:
            data["transaction"] = {"id": transaction}
        return data

    return data_of_event


class _ClassReader:
    """A reader of the keys and steps of a class's events."""

    __slots__ = ("_class", "_reader_of", "converters")

    def __init__(
        self, object_class: ObjectClass, values: ValueOptions, encoding: JsonEncoding
    ) -> None:
        self.converters = _converters_of(object_class, encoding)
        self._class = object_class
        self._reader_of = lru_cache(maxsize=None)(partial(_text_reader, values))

    def key(self, text: str) -> Key:
        try:
            return key_reader(self._class)(text)
        except BadValue:
            return tuple((part.name, part.value) for part in table_key.parse(text))

    def columns(self, event: Outgoing, key: Key) -> dict[str, JsonDict]:
        """Return the old and new values of the columns that an event changes. A key column is
        included only if its value changes.
        """
        columns: dict[str, JsonDict] = {}
        is_add, of_key = event.operation == Operation.ADD, dict(key)
        for attribute, rows in rows_by_attribute(event):
            is_known, old, new = net_of_rows(attribute, rows, self._reader_of(attribute))
            name = attribute.name
            convert = self.converters[name]
            if name in of_key:
                if is_add or not is_known or old == of_key[name]:
                    continue
                columns[name] = {
                    "old": as_in_key(old, convert(old)),
                    "new": as_in_key(new, convert(new)),
                }
            elif is_add:
                columns[name] = {"new": convert(new)}
            elif is_known:
                columns[name] = {"old": convert(old), "new": convert(new)}
            elif attribute.multi_valued:
                columns[name] = {"new": convert(new), "whole": True}
            else:
                columns[name] = {"new": convert(new)}
        return columns


def _text_reader(values: ValueOptions, attribute: Attribute) -> ReadValue:
    """Return the function that reads the texts of an attribute.

    Text that Python cannot hold as a value stays text.
    """
    read = attribute_reader(attribute.value_type, attribute, values)
    if read is str:
        return read

    def read_or_keep(text: str) -> Value:
        try:
            return read(text)
        except BadValue:
            return referenced_key(text) if attribute.value_type == "dn" else text

    return read_or_keep


def referenced_key(association: str) -> str:
    """Return the text of the key value in a reference. This text replaces the column's value
    (spec/xds.md 6.4).
    """
    return parse_association(association)[0][0].value


# --- files ----------------------------------------------------------------------------------------


def write(changes: Iterable[Change], target: str, options: WriteOptions, report: Report) -> None:
    """Write changes as events to a file, whole or not at all.

    A change that no event can hold is reported and skipped.
    """
    catalog = catalog_of(options.catalog)
    encoding = JsonEncoding(options.integers, options.nested_values)
    event_of = event_writer(options.source, options.event_type, encoding, options.dataschema)

    def event_of_change(change: Change, event_id: str) -> tuple[CloudEvent]:
        change, subject = _named(change, catalog)
        return (event_of(change, event_id, subject, class_of_change(catalog, change)),)

    events = written(changes, event_of_change, report)
    with whole_file(target) as file:
        if options.mode != BATCHED:
            file.writelines(event.whole_bytes() + b"\n" for event in events)
            return
        while batch := list(islice(events, options.batch_size)):
            file.write(batch_line(batch))


def _named(change: Change, catalog: Catalog | None) -> tuple[Change, str | None]:
    """Return the change with the key columns that the catalogue has for its class, and the
    association of its object. The association is None if the object has none.
    """
    object_class = class_of_change(catalog, change)
    if change.op is ChangeOp.TRUNCATE:
        return change, None
    if object_class is not None:
        if change.schema is None and catalog is not None:
            change = change._replace(schema=catalog.schema)
        change = with_key(change, object_class)
    if change.key is None:
        return change, None
    try:
        return change, association_text(change, change.key, object_class)
    except NotExpressible:
        # A key with NULL, or with characters that no association can contain, is only in the data.
        return change, None
