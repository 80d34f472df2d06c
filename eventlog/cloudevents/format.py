"""A change as a CloudEvent, and back; the format ``cloudevents`` of the converter (spec/cloudevents.md 3, 4, 5;
CloudEvents 1.0.2, JSON format 1.0.2).

The data of a log's event are written straight from its steps, since millions pass through. A file holds an event a
line, or JSON arrays of events: a batch a line, or the whole file one array or one event, as printed for people.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from itertools import islice
from json.encoder import encode_basestring
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, TypeAlias
from urllib.parse import quote

from eventlog.changes.events import OPERATIONS, association_text, attribute_reader
from eventlog.changes.format import (
    Format,
    Report,
    class_of_change,
    key_reader,
    refuse_without_row,
    with_key,
    written,
    written_columns,
)
from eventlog.changes.json_form import catalog_of, member, typed_change, utc_text, value_to_plain_json
from eventlog.cloudevents.options import BATCHED, ReadOptions, WriteOptions, is_no_text
from eventlog.core.catalog import Attribute, Catalog, ObjectClass
from eventlog.core.events import Outgoing
from eventlog.core.typed import is_multi_valued
from eventlog.core.values import ValueOptions
from eventlog.errors import FormatError, NotExpressible, shown, with_location
from eventlog.files.atomic import whole_file
from eventlog.files.text import LONGEST, numbered_lines, parsed_json, source_files, text_of
from eventlog.model import ALL, Change, ChangeOp, Operation, Row, Value

_SPECVERSION: Final = "1.0"
DATA_TYPE: Final = "application/json"

_OPERATION_NAMES: Final = {op: op.value.lower() for op in ChangeOp}
_OPS: Final = {name: op for op, name in _OPERATION_NAMES.items()}
_NOTHING: Final[Mapping[str, Value]] = {}


class CloudEvent(NamedTuple):
    """An event: its attributes (CloudEvents 1.0.2, "Context Attributes"), None = left out, and its data in JSON."""

    id: str
    source: str
    type: str
    subject: str | None
    time: str | None
    data: str

    def attributes(self) -> dict[str, str]:
        """All attributes but ``datacontenttype``, in the order in which they are written."""
        event_id, source, event_type, subject, time, _ = self
        written = {"specversion": _SPECVERSION, "id": event_id, "source": source, "type": event_type}
        if subject is not None:
            written["subject"] = subject
        if time is not None:
            written["time"] = time
        return written

    def text(self) -> str:
        """The event in the JSON format (JSON format 1.0.2, 3), on one line."""
        event_id, source, event_type, subject, time, data = self
        subject_text = "" if subject is None else f',"subject":{_string(subject)}'
        time_text = "" if time is None else f',"time":"{time}"'
        return (
            f'{{"specversion":"{_SPECVERSION}","id":{_string(event_id)},"source":{_string(source)},'
            f'"type":{_string(event_type)}{subject_text}{time_text},"datacontenttype":"{DATA_TYPE}","data":{data}}}'
        )


_string: Final = encode_basestring
_encode: Final = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode


def as_text(value: Any) -> str:
    """JSON on one line, which UTF-8 holds: half a surrogate pair is written as an escape."""
    text = _encode(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"))
    return text


def event_writer(source: str, event_type: str) -> Callable[[Change, str, str | None], CloudEvent]:
    """The function that makes the event of a change, its id and subject given; a subject that no attribute may hold is
    left out. Raises NotExpressible for such an id, NeedsQueryBack and NeedsRowCodec for a change without its row.
    """
    type_of = type_writer(event_type)

    def write(change: Change, event_id: str, subject: str | None) -> CloudEvent:
        if not event_id or is_no_text(event_id):
            raise NotExpressible(
                f"{change.op} of {change.table!r} at {shown(event_id)}: no CloudEvent has such an id: it is empty or "
                "holds a character that attributes may not hold"
            )
        refuse_without_row(change)
        time = None if change.commit_time is None else utc_text(change.commit_time)
        named = type_of(change.op, change.schema, change.table)
        return CloudEvent(event_id, source, named, subject_of(subject), time, as_text(data_of(change)))

    return write


def subject_of(text: str | None) -> str | None:
    """The subject, None for one that no attribute may hold."""
    return None if not text or is_no_text(text) else text


def type_writer(template: str) -> Callable[[ChangeOp, str | None, str], str]:
    """The function that gives the type of events; of names a character that attributes may not hold stands there
    percent-encoded.
    """

    @lru_cache(maxsize=4096)
    def type_of(op: ChangeOp, schema: str | None, table: str) -> str:
        text = template.format(operation=_OPERATION_NAMES[op], schema=schema or "", **{"class": table})
        return "".join(quote(one, errors="surrogatepass") if is_no_text(one) else one for one in text)

    return type_of


def data_of(change: Change) -> dict[str, Any]:
    """The data of an event (spec/cloudevents.md 4)."""
    op, key = change.op, change.key
    data: dict[str, Any] = {"operation": _OPERATION_NAMES[op]}
    if change.schema is not None:
        data["schema"] = change.schema
    data["class"] = change.table
    if key is not None:
        data["key"] = {name: value_to_plain_json(value) for name, value in key}
    if op is not ChangeOp.TRUNCATE:
        before, after = change.before or _NOTHING, change.after or _NOTHING
        names = dict(key or ())
        others = [name for name in (*after, *(name for name in before if name not in after)) if name not in names]
        if op is ChangeOp.UPDATE:
            changed = [*_changed_key(change), *written_columns(change)]
            unknown = frozenset(change.extras.get("changed_unknown") or ())
            known = {name: value for name, value in before.items() if name not in unknown} if unknown else before
            data["columns"] = columns = _old_and_new(changed, known, after)
            for name, column in columns.items():
                if "old" not in column and is_multi_valued(after.get(name)):
                    column["whole"] = True
            if unchanged := _old_and_new([name for name in others if name not in data["columns"]], before, after):
                data["unchanged"] = unchanged
        else:
            data["columns"] = _old_and_new(others, before, after)
    if change.user is not None:
        data["user"] = change.user
    if change.transaction_id is not None:
        transaction = {"id": change.transaction_id, "number": change.event_number, "last": change.last_in_transaction}
        data["transaction"] = {name: value for name, value in transaction.items() if value is not None}
    return data


def _old_and_new(names: list[str], before: Row, after: Row) -> dict[str, dict[str, Any]]:
    """What is known of columns, old and new."""
    values: dict[str, dict[str, Any]] = {}
    for name in names:
        values[name] = value = {}
        if name in before:
            value["old"] = value_to_plain_json(before[name])
        if name in after:
            value["new"] = value_to_plain_json(after[name])
    return values


def _changed_key(change: Change) -> list[str]:
    """The key columns that an update changes."""
    before, changed = change.before or _NOTHING, change.changed or ()
    return [name for name, value in change.key or () if name in changed or (name in before and before[name] != value)]


# --- a log's events, from their steps ---------------------------------------------------------------------------------

DataOf = Callable[[Outgoing, str | None], str | None]
"""An event and its user -> its data in JSON; None for an event that has to go by way of a Change."""

_AttributeWriter: TypeAlias = tuple[str, Callable[[str], str]]
"""The name of an attribute as JSON, and how its values are written."""


def data_writer(catalog: Catalog, values: ValueOptions) -> DataOf:
    """The function that writes what ``data_of`` gives of the change of an event; it raises BadValue.

    ``values``: what the events were written with. Attributes with several values or steps go by way of a Change.
    """
    classes: dict[ObjectClass, _ClassWriter] = {}

    def write(event: Outgoing, user: str | None) -> str | None:
        assert event.object_id is not None
        object_class, _ = event.object_id
        writer = classes.get(object_class)
        if writer is None:
            writer = classes[object_class] = _ClassWriter(object_class, catalog.schema, values)
        return writer.data(event, user)

    return write


class _ClassWriter:
    """Writes the events of a class."""

    __slots__ = ("_attributes", "_heads", "_key_names", "_read_key", "_values")

    def __init__(self, object_class: ObjectClass, schema: str | None, values: ValueOptions) -> None:
        named = "" if schema is None else f'"schema":{_string(schema)},'
        rest = f'{named}"class":{_string(object_class.name)},"key":{{'
        self._heads = {
            operation: f'{{"operation":"{_OPERATION_NAMES[op]}",{rest}' for operation, op in OPERATIONS.items()
        }
        self._read_key, self._values = key_reader(object_class), values
        self._key_names = {column.name: f"{_string(column.name)}:" for column in object_class.key}
        self._attributes: dict[Attribute, _AttributeWriter | None] = {}

    def data(self, event: Outgoing, user: str | None) -> str | None:
        assert event.object_id is not None
        assert event.operation is not None
        assert event.steps is not None
        is_add = event.operation == Operation.ADD
        columns = []
        previous = None
        for _, _, _, attribute, old, new in event.steps:
            assert attribute is not None
            if attribute is previous or isinstance(old, tuple) or isinstance(new, tuple):
                return None
            previous = attribute
            writer = self._attributes[attribute] if attribute in self._attributes else self._writer(attribute)
            if writer is None:
                return None
            name, write = writer
            value = "null" if new is None else write(new)
            if is_add or old is ALL:
                columns.append(f'{name}:{{"new":{value}}}')
            else:
                columns.append(f'{name}:{{"old":{"null" if old is None else write(old)},"new":{value}}}')
        names, (_, key_text) = self._key_names, event.object_id
        key = ",".join([names[name] + _json(value) for name, value in self._read_key(key_text)])
        tail = "" if user is None else f',"user":{_string(user)}'
        return f'{self._heads[event.operation]}{key}}},"columns":{{{",".join(columns)}}}{tail}}}'

    def _writer(self, attribute: Attribute) -> _AttributeWriter | None:
        writer = None
        if not attribute.multi_valued and attribute.name not in self._key_names:
            read = attribute_reader(attribute.value_type, attribute, self._values)
            writer = _string(attribute.name), _string if read is str else lambda text: _json(read(text))
        self._attributes[attribute] = writer
        return writer


def _json(value: Value) -> str:
    """A value as JSON; of those that are no plain text."""
    plain = value_to_plain_json(value)
    if isinstance(plain, str):
        return _string(plain)
    return str(plain) if type(plain) is int else as_text(plain)


# --- events to changes ------------------------------------------------------------------------------------------------


def change_of(event: Any) -> Change | None:
    """The change of an event in the JSON format; None if its data are none of ours. Text stays text.

    Raises FormatError for what is no CloudEvent, or whose data are not as spec/cloudevents.md 4 says.
    """
    if not isinstance(event, dict):
        raise FormatError(f"a CloudEvent is a JSON object, not {type(event).__name__}")
    for name in ("specversion", "id", "source", "type"):
        if not isinstance(event.get(name), str) or not event[name]:
            raise FormatError(f"{name} of a CloudEvent is a text that is not empty, not {shown(repr(event.get(name)))}")
    if event["specversion"] != _SPECVERSION:
        raise FormatError(f"specversion {shown(event['specversion'])} is not {_SPECVERSION}, which is read")
    data = event.get("data")
    if not isinstance(data, dict) or "operation" not in data or "class" not in data:
        return None
    try:
        return _change(event, data)
    except (FormatError, TypeError, ValueError, OverflowError) as error:
        raise FormatError(f"event {shown(event['id'])} cannot be read: {error}") from error


def _change(event: Mapping[str, Any], data: Mapping[str, Any]) -> Change:
    operation, table = data["operation"], data["class"]
    if not isinstance(operation, str) or operation not in _OPS:
        raise FormatError(f"operation {shown(repr(operation))} is none of {', '.join(_OPS)}")
    if not isinstance(table, str):
        raise FormatError(f"class is {shown(repr(table))}, which is no text")
    op = _OPS[operation]
    key = member(data, "key", dict)
    new_key = {} if key is None else {name: _value(value) for name, value in key.items()}
    columns, unchanged = _cells(data, "columns"), _cells(data, "unchanged")
    known = [*columns.items(), *unchanged.items()]
    olds = {name: _value(cell["old"]) for name, cell in known if "old" in cell}
    news = {name: _value(cell["new"]) for name, cell in known if "new" in cell}
    before: Row | None = None
    after: Row | None = None
    match op:
        case ChangeOp.INSERT | ChangeOp.REFRESH:
            after = {**new_key, **news}
        case ChangeOp.UPDATE:
            before, after = {**new_key, **olds} if olds else None, {**news, **new_key}
        case ChangeOp.DELETE:
            before = {**new_key, **olds} if olds or key is not None else None
    transaction = member(data, "transaction", dict) or {}
    time = member(event, "time", str)
    return Change(
        member(data, "schema", str),
        table,
        op,
        None if key is None else tuple(new_key.items()),
        before,
        after,
        frozenset(columns) if op is ChangeOp.UPDATE else None,
        event["id"],
        member(transaction, "id", str),
        member(transaction, "number", int),
        member(transaction, "last", bool),
        None if time is None else _moment(time),
        member(data, "user", str),
        {"source": event["source"], "type": event["type"]},
    )


def _cells(data: Mapping[str, Any], name: str) -> Mapping[str, Mapping[str, Any]]:
    cells = member(data, name, dict) or {}
    for column, cell in cells.items():
        if not isinstance(cell, dict):
            raise FormatError(f'{name}: {shown(column)} is no object such as {{"old": 1, "new": 2}}')
    return cells


def _value(value: Any) -> Value:
    """A value out of JSON, as ``parsed_json`` gives it."""
    match value:
        case list():
            return tuple(_value(one) for one in value)
        case dict():
            raise FormatError(f"an object of {', '.join(map(shown, value)) or 'nothing'} is no value of a column")
        case Decimal():
            return float(value)
        case _:
            plain: Value = value
            return plain


def _moment(text: str) -> datetime:
    """The moment of ``time`` (RFC 3339)."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise FormatError(f"time {shown(text)} says no zone, as RFC 3339 has it")
    return moment.astimezone(UTC)


# --- files ------------------------------------------------------------------------------------------------------------

_ENDINGS: Final = (".json", ".jsonl", ".ndjson")


def read(source: str, options: ReadOptions, report: Report) -> Iterator[Change]:
    """The changes of the events of a file, or of the files of a directory in the order of their names.

    What cannot be read is passed over; events whose data are none of ours are counted as ``other_events``.
    """
    catalog = catalog_of(options.catalog)
    for path in source_files(Path(source), f"{', '.join(_ENDINGS)} file", _ENDINGS):
        with path.open("rb") as file:
            for place, value in _values(file, path, report):
                events = enumerate(value, 1) if isinstance(value, list) else ((0, value),)
                for number, event in events:
                    try:
                        change = change_of(event)
                        if change is None:
                            report.pass_over("other_events")
                            continue
                        change = typed_change(change, catalog)
                    except FormatError as error:
                        report.skip(with_location(error, f"{place}, event {number}" if number else place))
                        continue
                    yield change


def _values(file: BinaryIO, path: Path, report: Report) -> Iterator[tuple[str, Any]]:
    """The values of a file with their places: one a line, or, if its first line goes on, the file is one."""
    is_first = True
    for number, line in numbered_lines(file, path):
        place = f"{path}, line {number}"
        if is_first and _goes_on(line):
            place = str(path)
            line += file.read(LONGEST + 1 - len(line))
            if len(line) > LONGEST:
                raise FormatError(f"{path}: longer than {LONGEST} bytes: write an event, or an array of some, a line")
        is_first = False
        try:
            value = parsed_json(text_of(line))
        except FormatError as error:
            report.skip(with_location(error, place))
            continue
        yield place, value


def _goes_on(line: bytes) -> bool:
    """Whether a line begins a value that goes on behind it."""
    text = line.strip().removeprefix(b"\xef\xbb\xbf")
    return text[:1] in (b"{", b"[") and text[-1:] not in (b"}", b"]")


def write(changes: Iterable[Change], target: str, options: WriteOptions, report: Report) -> None:
    """Changes as events in a file, whole or not at all. One that no event can hold is passed over."""
    catalog = catalog_of(options.catalog)
    event_of = event_writer(options.source, options.event_type)

    def text_of_event(change: Change, event_id: str) -> tuple[str]:
        change, subject = _named(change, catalog)
        return (event_of(change, event_id, subject).text(),)

    texts = written(changes, text_of_event, report)
    with whole_file(target) as file:
        if options.mode != BATCHED:
            file.writelines(f"{text}\n".encode() for text in texts)
            return
        while batch := list(islice(texts, options.batch_size)):
            file.write(f"[{','.join(batch)}]\n".encode())


def _named(change: Change, catalog: Catalog | None) -> tuple[Change, str | None]:
    """The change with the key that the catalogue knows, and the association of its object; None if there is none."""
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
    except NotExpressible:  # a key with NULL, or with characters that no association holds: the data have it
        return change, None


FORMAT: Final = Format("cloudevents", read, write, (ReadOptions,), (WriteOptions,))
