"""A change as a CloudEvent, and back; the format ``cloudevents`` of the converter (spec/cloudevents.md 3, 4, 5;
CloudEvents 1.0.2, JSON format 1.0.2).

The data of a log's event are written straight from its steps, since millions pass through. A file holds an event a
line, or JSON arrays of events: a batch a line, or the whole file one array or one event, as printed for people.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from json.encoder import encode_basestring
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, TypeAlias
from urllib.parse import quote

from eventlog.changes.events import OPERATIONS, association_text, attribute_reader, parse_association
from eventlog.changes.format import (
    Format,
    Report,
    class_of,
    class_of_change,
    may_be_one,
    refuse_without_row,
    with_key,
    written,
    written_columns,
)
from eventlog.changes.json_form import catalog_of, member, typed_change, utc_text
from eventlog.cloudevents.options import BATCHED, ReadOptions, WriteOptions, is_no_text
from eventlog.cloudevents.values import (
    JSON_FORM,
    JsonForm,
    WriteText,
    json_string,
    key_json,
    read_json,
    text_writer,
    value_json,
)
from eventlog.core import table_key
from eventlog.core.catalog import Attribute, Catalog, ObjectClass
from eventlog.core.events import Outgoing
from eventlog.core.typed import ReadValue, is_multi_valued
from eventlog.core.values import ColumnType, ValueOptions
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
    dataschema: str | None = None

    def attributes(self) -> dict[str, str]:
        """All attributes but ``datacontenttype``, in the order in which they are written."""
        event_id, source, event_type, subject, time, _, dataschema = self
        written = {"specversion": _SPECVERSION, "id": event_id, "source": source, "type": event_type}
        if dataschema is not None:
            written["dataschema"] = dataschema
        if subject is not None:
            written["subject"] = subject
        if time is not None:
            written["time"] = time
        return written

    def text(self) -> str:
        """The event in the JSON format (JSON format 1.0.2, 3), on one line."""
        event_id, source, event_type, subject, time, data, dataschema = self
        subject_text = "" if subject is None else f',"subject":{_string(subject)}'
        time_text = "" if time is None else f',"time":"{time}"'
        schema_text = "" if dataschema is None else f',"dataschema":"{dataschema}"'
        return (
            f'{{"specversion":"{_SPECVERSION}","id":{_string(event_id)},"source":{_string(source)},'
            f'"type":{_string(event_type)}{subject_text}{time_text},"datacontenttype":"{DATA_TYPE}"{schema_text},'
            f'"data":{data}}}'
        )


_string: Final = encode_basestring


def event_writer(
    source: str, event_type: str, form: JsonForm = JSON_FORM, dataschema: str | None = None
) -> Callable[[Change, str, str | None, ObjectClass | None], CloudEvent]:
    """The function that makes the event of a change, its id, subject and class given, None = not known; a subject that
    no attribute may hold is left out. Raises NotExpressible for such an id, NeedsQueryBack and NeedsRowCodec for a
    change without its row.
    """
    type_of = type_writer(event_type)

    def write(
        change: Change, event_id: str, subject: str | None, object_class: ObjectClass | None = None
    ) -> CloudEvent:
        if not event_id or is_no_text(event_id):
            raise NotExpressible(
                f"{change.op} of {change.table!r} at {shown(event_id)}: no CloudEvent has such an id: it is empty or "
                "holds a character that attributes may not hold"
            )
        refuse_without_row(change)
        time = None if change.commit_time is None else utc_text(change.commit_time)
        named = type_of(change.op, change.schema, change.table)
        data = data_text(change, types_of(object_class), form)
        schema = schema_uri(dataschema, change.schema, change.table)
        return CloudEvent(event_id, source, named, subject_of(subject), time, data, schema)

    return write


def subject_of(text: str | None) -> str | None:
    """The subject, None for one that no attribute may hold."""
    return None if not text or is_no_text(text) else text


@lru_cache(maxsize=4096)
def schema_uri(template: str | None, schema: str | None, table: str) -> str | None:
    """The attribute ``dataschema``: the option, its names percent-encoded; None without it."""
    if template is None:
        return None
    names = {"schema": schema or "", "class": table}
    return template.format(**{name: quote(text, safe="", errors="surrogatepass") for name, text in names.items()})


def type_writer(template: str) -> Callable[[ChangeOp, str | None, str], str]:
    """The function that gives the type of events; of names a character that attributes may not hold stands there
    percent-encoded.
    """

    @lru_cache(maxsize=4096)
    def type_of(op: ChangeOp, schema: str | None, table: str) -> str:
        text = template.format(operation=_OPERATION_NAMES[op], schema=schema or "", **{"class": table})
        return "".join(quote(one, errors="surrogatepass") if is_no_text(one) else one for one in text)

    return type_of


Types: TypeAlias = Mapping[str, ColumnType]
"""Types of columns by the names that events have for them."""


@lru_cache(maxsize=1024)
def types_of(object_class: ObjectClass | None) -> Types:
    """The types of the columns of a class, none of one that is not known."""
    if object_class is None:
        return {}
    types = {attribute.name: attribute.column.type for attribute in object_class.attributes}
    return types | {column.name: column.type for column in object_class.key}


def data_text(change: Change, types: Types, form: JsonForm) -> str:
    """The data of an event (spec/cloudevents.md 4)."""
    op, key = change.op, dict(change.key or ())

    def value_of(name: str, value: Value) -> str:
        return (key_json if name in key else value_json)(value, types.get(name), form)

    def old_and_new(names: Iterable[str], before: Row, after: Row) -> str:
        columns = []
        for name in names:
            members = []
            if name in before:
                members.append(f'"old":{value_of(name, before[name])}')
            if name in after:
                members.append(f'"new":{value_of(name, after[name])}')
            if op is ChangeOp.UPDATE and name not in before and name in changed and is_multi_valued(after.get(name)):
                members.append('"whole":true')
            columns.append(f"{json_string(name)}:{{{','.join(members)}}}")
        return f"{{{','.join(columns)}}}"

    parts = [f'"operation":"{_OPERATION_NAMES[op]}"']
    if change.schema is not None:
        parts.append(f'"schema":{json_string(change.schema)}')
    parts.append(f'"class":{json_string(change.table)}')
    if change.key is not None:
        values = ",".join(f"{json_string(name)}:{value_of(name, value)}" for name, value in key.items())
        parts.append(f'"key":{{{values}}}')
    changed: dict[str, None] = {}
    if op is not ChangeOp.TRUNCATE:
        before, after = change.before or _NOTHING, change.after or _NOTHING
        others = [name for name in (*after, *(name for name in before if name not in after)) if name not in key]
        if op is ChangeOp.UPDATE:
            changed = dict.fromkeys((*_changed_key(change), *written_columns(change)))
            unknown = frozenset(change.extras.get("changed_unknown") or ())
            known = {name: value for name, value in before.items() if name not in unknown} if unknown else before
            parts.append(f'"columns":{old_and_new(changed, known, after)}')
            if unchanged := [name for name in others if name not in changed]:
                parts.append(f'"unchanged":{old_and_new(unchanged, before, after)}')
        else:
            parts.append(f'"columns":{old_and_new(others, before, after)}')
    if change.user is not None:
        parts.append(f'"user":{json_string(change.user)}')
    if change.transaction_id is not None:
        transaction = {"id": change.transaction_id, "number": change.event_number, "last": change.last_in_transaction}
        told = {name: value for name, value in transaction.items() if value is not None}
        parts.append(f'"transaction":{json.dumps(told, separators=(",", ":"))}')
    return f"{{{','.join(parts)}}}"


def _changed_key(change: Change) -> list[str]:
    """The key columns that an update changes."""
    before, changed = change.before or _NOTHING, change.changed or ()
    return [name for name, value in change.key or () if name in changed or (name in before and before[name] != value)]


# --- a log's events, from their steps ---------------------------------------------------------------------------------

DataOf = Callable[[Outgoing, str | None], str | None]
"""An event and its user -> its data in JSON; None for an event that has to go by way of a Change."""

_AttributeWriter: TypeAlias = tuple[str, WriteText]
"""The name of an attribute as JSON, and how its values are written."""


def data_writer(catalog: Catalog, values: ValueOptions, form: JsonForm) -> DataOf:
    """The function that writes what ``data_text`` gives of the change of an event.

    ``values``: what the events were written with. Attributes with several values or steps go by way of a Change.
    """
    classes: dict[ObjectClass, _ClassWriter] = {}

    def write(event: Outgoing, user: str | None) -> str | None:
        assert event.object_id is not None
        object_class, _ = event.object_id
        writer = classes.get(object_class)
        if writer is None:
            writer = classes[object_class] = _ClassWriter(object_class, catalog.schema, values, form)
        return writer.data(event, user)

    return write


class _ClassWriter:
    """Writes the events of a class."""

    __slots__ = ("_attributes", "_form", "_heads", "_key", "_key_names", "_values")

    def __init__(self, object_class: ObjectClass, schema: str | None, values: ValueOptions, form: JsonForm) -> None:
        named = "" if schema is None else f'"schema":{_string(schema)},'
        rest = f'{named}"class":{_string(object_class.name)},"key":{{'
        self._heads = {
            operation: f'{{"operation":"{_OPERATION_NAMES[op]}",{rest}' for operation, op in OPERATIONS.items()
        }
        self._values, self._form = values, form
        self._key_names = frozenset(column.name for column in object_class.key)
        self._key = [
            (column.name, f"{_string(column.name)}:", len(column.name) + 1, text_writer(column.type, form))
            for column in object_class.key
        ]
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
        _, key_text = event.object_id
        tail = "" if user is None else f',"user":{_string(user)}'
        key = self._key_of(key_text)
        return f'{self._heads[event.operation]}{key}}},"columns":{{{",".join(columns)}}}{tail}}}'

    def _key_of(self, text: str) -> str:
        """The members of a canonical table_key, as ``key_reader`` takes it apart."""
        if '"' in text:
            texts = {part.name: part.value for part in table_key.parse(text)}
            return ",".join([member + write(texts[name]) for name, member, _, write in self._key])
        if len(self._key) == 1:
            ((_, member, start, write),) = self._key
            return member + write(text[start:])
        parts = zip(self._key, text.split("+"), strict=True)
        return ",".join([member + write(part[start:]) for (_, member, start, write), part in parts])

    def _writer(self, attribute: Attribute) -> _AttributeWriter | None:
        writer = None
        if not attribute.multi_valued and attribute.name not in self._key_names:
            read = attribute_reader(attribute.value_type, attribute, self._values)
            writer = _string(attribute.name), attribute_writer(attribute, read, self._form)
        self._attributes[attribute] = writer
        return writer


def attribute_writer(attribute: Attribute, read: ReadValue, form: JsonForm) -> WriteText:
    """The function that writes the texts of an attribute as JSON; ``read`` reads them."""
    type = attribute.column.type
    if attribute.value_type != "dn":
        return text_writer(type, form, read)
    write = text_writer(type, form)
    return lambda text: write(referenced_key(text))


def referenced_key(association: str) -> str:
    """The text of the key value that a reference holds in place of its column's (spec/xds.md 6.4)."""
    return parse_association(association)[0][0].value


# --- events to changes ------------------------------------------------------------------------------------------------


def change_of(event: Any, catalog: Catalog | None = None, form: JsonForm = JSON_FORM) -> Change | None:
    """The change of an event in the JSON format; None if its data are none of ours. Text stays text; by the catalogue
    JSON and arrays become the text that the database has of them.

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
        return _change(event, data, catalog, form)
    except (FormatError, TypeError, ValueError, OverflowError) as error:
        raise FormatError(f"event {shown(event['id'])} cannot be read: {error}") from error


def _change(event: Mapping[str, Any], data: Mapping[str, Any], catalog: Catalog | None, form: JsonForm) -> Change:
    operation, table = data["operation"], data["class"]
    if not isinstance(operation, str) or operation not in _OPS:
        raise FormatError(f"operation {shown(repr(operation))} is none of {', '.join(_OPS)}")
    if not isinstance(table, str):
        raise FormatError(f"class is {shown(repr(table))}, which is no text")
    op = _OPS[operation]
    key = member(data, "key", dict)
    named = catalog is not None and may_be_one(member(data, "schema", str), catalog.schema)
    types = types_of(class_of(catalog, table) if named else None)

    def value_of(name: str, value: Any) -> Value:
        return read_json(value, types.get(name), form)

    new_key = {} if key is None else {name: value_of(name, value) for name, value in key.items()}
    columns, unchanged = _cells(data, "columns"), _cells(data, "unchanged")
    known = [*columns.items(), *unchanged.items()]
    olds = {name: value_of(name, cell["old"]) for name, cell in known if "old" in cell}
    news = {name: value_of(name, cell["new"]) for name, cell in known if "new" in cell}
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
    catalog, form = catalog_of(options.catalog), JsonForm(nested_values=options.nested_values)
    for path in source_files(Path(source), f"{', '.join(_ENDINGS)} file", _ENDINGS):
        with path.open("rb") as file:
            for place, value in _values(file, path, report):
                events = enumerate(value, 1) if isinstance(value, list) else ((0, value),)
                for number, event in events:
                    try:
                        change = change_of(event, catalog, form)
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
    form = JsonForm(options.integers, options.nested_values)
    event_of = event_writer(options.source, options.event_type, form, options.dataschema)

    def text_of_event(change: Change, event_id: str) -> tuple[str]:
        change, subject = _named(change, catalog)
        return (event_of(change, event_id, subject, class_of_change(catalog, change)).text(),)

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
