"""How the messages of a table are written, its record keys among them (spec/qlik.md 5.1, 5.3, 5.6): data messages as
templates, since all messages of one shape are the same but for the values.

Tables are written by few statements, so few shapes come again and again: what follows from a shape, such as its masks
and its NULLs, is put together once, as text for JSON and as bytes for Avro.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any, Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from eventlog.model import ChangeOp, KafkaRecord
from eventlog.qlik import avro, masks
from eventlog.qlik.avro import NULL, VALUE, avro_writer
from eventlog.qlik.columns import QlikColumn
from eventlog.qlik.envelope import (
    DATA,
    METADATA,
    Registry,
    avro_envelope,
    avro_envelope_start,
    json_envelope,
    json_envelope_start,
    prefix_of,
)
from eventlog.qlik.message_tables import (
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
from eventlog.qlik.values import json_text_writer

Form = TypeVar("Form", str, bytes)

_MOST_MASKS: Final = 1024


Shape: TypeAlias = tuple[ChangeOp, tuple[str, ...], tuple[str, ...] | None]
"""What is known of a row and its change, without the values: the operation, the columns of the row, and those of the
row before an update, None = it is not known.
"""

Columns = tuple[tuple[str, Callable[[Any], Form]], ...]
"""Columns and how their values are written, in the order in which they stand in the message."""


Fragments = list[Form | None]
"""Pieces of a message in order; None is a value."""


class Template(NamedTuple, Generic[Form]):
    """The parts of a message: what is the same in every one, at odd places the values.

    These are those of ``data``, of ``before``, the four texts and the changeMask of a header that is not of a REFRESH,
    counter and last flag. ``change_mask`` is that of a change that does not say what it changed, None = of a REFRESH.
    ``key``: where the values of the key columns stand among those of ``data``, None = not all of them are known.
    """

    parts: list[Form]
    data: Columns[Form]
    before: Columns[Form]
    change_mask: Form | None
    key: tuple[int, ...] | None


def _parts(fragments: Fragments[Form], nothing: Form) -> list[Form]:
    parts: list[Form] = []
    constant: list[Form] = []
    for fragment in fragments:
        if fragment is None:
            parts += (nothing.join(constant), nothing)
            constant = []
        else:
            constant.append(fragment)
    parts.append(nothing.join(constant))
    return parts


def with_values(template: Template[Form], values: Sequence[Form | None]) -> list[Form]:
    """The parts of a template with what is known beforehand of its values; None = it is not."""
    parts = template.parts
    fragments: Fragments[Form] = [parts[0]]
    for value, constant in zip(values, parts[2::2], strict=True):
        fragments += (value, constant)
    return _parts(fragments, parts[0][:0])


@dataclass(frozen=True, slots=True)
class Coding(Generic[Form]):
    """JSON or Avro: how the messages of a table are written.

    ``writers`` are those of the columns' values; ``template`` makes one; ``mask``, ``text``, ``number``, ``flag`` write
    headers, ``digits`` the texts of ``_TEXTS`` whose length is known; ``string`` writes the values of text columns,
    ``null`` is none; ``wrap`` makes the joined parts a record's value. ``has_text_numbers``: an integer is written as
    its text.
    """

    writers: Mapping[str, Callable[[Any], Form]]
    template: Callable[[Shape], Template[Form]]
    mask: Callable[[frozenset[str]], Form]
    text: Callable[[str], Form]
    digits: Callable[[str], Form]
    string: Callable[[str], Form]
    number: Callable[[int], Form]
    flag: Callable[[bool], Form]
    null: Form
    wrap: Callable[[Iterable[Form]], bytes]
    has_text_numbers: bool


_TEXTS: Final = {"changeSequence": 35, "timestamp": 23, "streamPosition": None, "transactionId": 32}
"""The texts of a header. Those whose length is known are of digits and signs that stand as they are."""


UNKNOWN_TIMESTAMP: Final = "1970-01-01T00:00:00.000"


def timestamp_of(moment: datetime | None) -> str:
    """``YYYY-MM-DDTHH:MM:SS.mmm`` of an aware moment, in UTC; the epoch if it is not known."""
    if moment is None:
        return UNKNOWN_TIMESTAMP
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    # Half the time of isoformat, which asks for the zone once more, and of an f-string.
    return "%04d-%02d-%02dT%02d:%02d:%02d.%03d" % (  # noqa: UP031
        moment.year, moment.month, moment.day, moment.hour, moment.minute, moment.second, moment.microsecond // 1000,
    )  # fmt: skip


# --- what both say ----------------------------------------------------------------------------------------------------


def _template(
    table: MessageTable,
    shape: Shape,
    writers: Mapping[str, Callable[[Any], Form]],
    parts: list[Form],
    mask: Callable[[frozenset[str]], Form],
) -> Template[Form]:
    op, columns, columns_before = shape
    known = frozenset(columns)
    data = [name for name in writers if name in known]
    return Template(
        parts,
        tuple((name, writers[name]) for name in data),
        tuple((name, write) for name, write in writers.items() if name in (columns_before or ())),
        None if op is ChangeOp.REFRESH else mask(_may_have_changed(table, op, known)),
        tuple(map(data.index, table.key)) if known.issuperset(table.key) else None,
    )


def _mask(table: MessageTable, names: frozenset[str]) -> int:
    return table.layout.bits(names & table.fields.keys())


def _may_have_changed(table: MessageTable, op: ChangeOp, known: frozenset[str]) -> frozenset[str]:
    """The columns of the changeMask where a change does not say what it changed (spec/qlik.md 5.3)."""
    if op is ChangeOp.DELETE:
        return frozenset(table.key or table.fields)
    known -= table.lobs
    return known if op is ChangeOp.INSERT else known - frozenset(table.key)


def _kept_masks(table: MessageTable, mask: Callable[[frozenset[str]], Form]) -> Callable[[frozenset[str]], Form]:
    """The changeMask of columns that were changed, LOBs left out; few sets of them come again and again."""
    return lru_cache(maxsize=_MOST_MASKS)(lambda changed: mask(changed - table.lobs))


def _names(table: MessageTable) -> dict[str, str]:
    return {"schema": table.schema or "", "table": table.name}


# --- the form of a table ----------------------------------------------------------------------------------------------


MOST_TEMPLATES: Final = 256


@dataclass(frozen=True, slots=True)
class TableForm:
    """How the messages of one table version are written: what only depends on the table, and what was made of it.

    ``columns``: those that the options give it, None = they do not. ``rounded``: columns that keep milliseconds only.
    ``is_whole``: a row before can leave nothing out.
    """

    table: MessageTable
    columns: tuple[QlikColumn, ...] | None
    full_name: str
    topic: str
    coding: Coding[Any]
    key_of: KeyOf
    announcement: KafkaRecord | None
    rounded: tuple[str, ...]
    is_whole: bool
    templates: dict[Shape, Template[Any]] = field(default_factory=dict)

    def new_template(self, shape: Shape) -> Template[Any]:
        """The template of a shape that has none yet, which is kept."""
        if len(self.templates) >= MOST_TEMPLATES:
            self.templates.clear()
        template = self.templates[shape] = self.coding.template(shape)
        return template


def new_form(
    table: MessageTable,
    described: tuple[QlikColumn, ...] | None,
    options: WriteOptions,
    registry: Registry | None,
    now: datetime,
) -> TableForm:
    """The form of a table whose columns are ``described`` by the options, None = they are not. ``now`` stamps its MD.

    Raises NotExpressible, MaskTooWide, BadAvro, RegistryError.
    """
    masks.check_capacity(table.layout)
    topic = topic_of(table.schema, table.name) if options.topic is None else checked_topic(options.topic)
    schema = data_schema(table, options)
    if options.metadata == "publish" or options.external_schema_id:
        table = replace(table, schema_id=id_of_schema(table, schema))
    is_avro = options.encoding == "avro"
    times = table.columns if is_avro and options.logical_types else ()
    rounded = tuple(column.name for column in times if column.type == "TIME")
    key_of = _key_of(table, topic, options, registry)
    coding = _coding(table, topic, schema, options, registry)
    announcement = _announcement(table, schema, options, now) if options.metadata == "publish" else None
    return TableForm(table, described, table.full_name, topic, coding, key_of, announcement, rounded, is_avro)


def _coding(
    table: MessageTable, topic: str, schema: str, options: WriteOptions, registry: Registry | None
) -> Coding[Any]:
    schema_id = table.schema_id if options.metadata == "publish" else None
    if options.encoding == "json":
        return _json_coding(table, options, json_envelope_start(DATA, schema_id, None))
    avro.parsed(schema)  # columns that no schema can describe are refused here
    if registry is not None:
        prefix = prefix_of(registry.register(f"{topic}-value", schema))
        return _avro_coding(table, options, lambda record: prefix + record)
    start = avro_envelope_start(DATA, schema_id, None)
    return _avro_coding(table, options, lambda record: start + avro.data(record))


def _announcement(table: MessageTable, schema: str, options: WriteOptions, now: datetime) -> KafkaRecord:
    """The metadata message of a table."""
    message = metadata_message(table, schema, options, now)
    own_schema = metadata_schema(table)
    own_id = id_of_schema(table, own_schema)
    if options.encoding == "json":
        value = json_envelope(METADATA, own_id, own_schema, message)
    else:
        value = avro_envelope(METADATA, own_id, own_schema, avro.to_bytes(own_schema, message))
    return KafkaRecord(checked_topic(options.metadata_topic), (table.schema_id or "").encode(), value)


# --- JSON -------------------------------------------------------------------------------------------------------------


def _json_coding(table: MessageTable, options: WriteOptions, start: str) -> Coding[str]:
    """Messages in JSON. ``start`` is what stands before the payload in the envelope."""
    writers = {column.name: json_text_writer(column) for column in table.columns}
    prefixes = {name: f"{encode_basestring(field)}:" for name, field in table.fields.items()}

    def template(shape: Shape) -> Template[str]:
        op, columns, columns_before = shape
        known, before = frozenset(columns), frozenset(columns_before or ())
        payload: dict[str, Fragments[str]] = {}
        if options.names == "message":
            payload |= _json_texts(_names(table))
        payload["data"] = row(known, table.fields.keys() - known if op is ChangeOp.REFRESH else ())
        payload["beforeData"] = ["null"] if columns_before is None else row(before, known - before)
        payload["headers"] = _json_object(headers(op, known))
        return _template(table, shape, writers, _parts([start, *_json_object(payload), "}"], ""), mask)

    def row(known: Collection[str], absent: Collection[str]) -> Fragments[str]:
        """The object of a row: columns that are neither known nor absent are null."""
        fragments: Fragments[str] = []
        for name, prefix in prefixes.items():
            separator = "," if fragments else "{"
            if name in known:
                fragments += (separator + prefix, None)
            elif name not in absent:
                fragments.append(f"{separator}{prefix}null")
        return [*(fragments or ["{"]), "}"]

    def headers(op: ChangeOp, known: frozenset[str]) -> dict[str, Fragments[str]]:
        is_refresh = op is ChangeOp.REFRESH
        members: dict[str, Fragments[str]] = _json_texts(_names(table)) if options.names == "headers" else {}
        members |= _json_texts({"operation": op.value})
        for name, length in _TEXTS.items():
            members[name] = ['""'] if is_refresh else [None] if length is None else ['"', None, '"']
        members["changeMask"] = ["null" if is_refresh else None]
        members["columnMask"] = ["null" if is_refresh else mask(known)]
        if options.external_schema_id:
            members |= _json_texts({"externalSchemaId": None if is_refresh else table.schema_id})
        return members | {"transactionEventCounter": [None], "transactionLastEvent": [None]}

    def mask(names: frozenset[str]) -> str:
        return f'"{masks.message_text(table.layout, _mask(table, names))}"'

    return Coding(
        writers, template, _kept_masks(table, mask), encode_basestring, str, encode_basestring, str, _json_flag, "null",
        lambda parts: "".join(parts).encode(), True,
    )  # fmt: skip


def _json_texts(members: Mapping[str, str | None]) -> dict[str, Fragments[str]]:
    return {name: ["null" if text is None else encode_basestring(text)] for name, text in members.items()}


def _json_object(members: Mapping[str, Fragments[str]]) -> Fragments[str]:
    fragments: Fragments[str] = []
    for name, value in members.items():
        fragments += ["," if fragments else "{", encode_basestring(name), ":", *value]
    return [*(fragments or ["{"]), "}"]


def _json_flag(value: bool) -> str:
    return "true" if value else "false"


# --- Avro -------------------------------------------------------------------------------------------------------------

_OPERATIONS: Final = (ChangeOp.INSERT, ChangeOp.UPDATE, ChangeOp.DELETE, ChangeOp.REFRESH)
_EMPTY: Final = avro.text("")


def _avro_coding(table: MessageTable, options: WriteOptions, wrap: Callable[[bytes], bytes]) -> Coding[bytes]:
    """Messages in Avro, by the schema of ``data_schema``. ``wrap`` makes a payload a record's value."""
    writers = {column.name: avro_writer(column, options.logical_types) for column in table.columns}
    order: Literal["big", "little"] = "big" if options.byteorder == "big" else "little"
    names = b"".join(map(avro.text, _names(table).values()))

    def template(shape: Shape) -> Template[bytes]:
        op, columns, columns_before = shape
        known, before = frozenset(columns), frozenset(columns_before or ())
        fragments = [names if options.names == "message" else b"", *row(known)]
        fragments += [NULL] if columns_before is None else [VALUE, *row(before)]
        fragments += [names if options.names == "headers" else b"", *headers(op, known)]
        return _template(table, shape, writers, _parts(fragments, b""), mask)

    def row(known: Collection[str]) -> Fragments[bytes]:
        return [None if name in known else NULL for name in writers]

    def headers(op: ChangeOp, known: frozenset[str]) -> Fragments[bytes]:
        is_refresh = op is ChangeOp.REFRESH
        fragments: Fragments[bytes] = [avro.long(_OPERATIONS.index(op))]
        for length in _TEXTS.values():
            fragments += [_EMPTY] if is_refresh else [None] if length is None else [avro.long(length), None]
        fragments += [NULL] * 2 if is_refresh else [None, mask(known)]
        if options.external_schema_id:
            known_id = None if is_refresh else table.schema_id
            fragments.append(NULL if known_id is None else VALUE + avro.text(known_id))
        return [*fragments, None, None]

    def mask(columns: frozenset[str]) -> bytes:
        return VALUE + avro.data(masks.message_bytes(table.layout, _mask(table, columns), order))

    return Coding(
        writers, template, _kept_masks(table, mask), avro.text, str.encode, avro.text_value, _avro_number, _avro_flag,
        NULL, lambda parts: wrap(b"".join(parts)), False,
    )  # fmt: skip


def _avro_number(number: int) -> bytes:
    return VALUE + avro.long(number)


def _avro_flag(value: bool) -> bytes:
    return VALUE + avro.boolean(value)


# --- keys -------------------------------------------------------------------------------------------------------------


KeyOf = Callable[[Sequence[Any] | None], bytes | None]
"""What stands for the key columns in a message, in key order, None = not all are known -> the record's key, None =
null. It is of the new row of an update, of the deleted one of a delete.
"""


def _key_of(table: MessageTable, topic: str, options: WriteOptions, registry: Registry | None) -> KeyOf:
    constant = None
    if options.key == "table":
        constant = (table.name if table.schema is None else f"{table.schema}+{table.name}").encode()
    if options.key != "primary_key" or not table.key:
        return lambda forms: constant
    if options.encoding == "json":
        return _json_key
    prefix = b"" if registry is None else prefix_of(registry.register(f"{topic}-key", key_schema(table, options)))
    return lambda forms: None if forms is None else prefix + b"".join(forms)


def _json_key(forms: Sequence[str] | None) -> bytes | None:
    """``key = primary_key`` in JSON: a string alone stands without quotes, with nothing escaped."""
    if forms is None:
        return None
    if len(forms) != 1:
        return f"[{','.join(forms)}]".encode()
    (form,) = forms
    if form[0] != '"':
        return form.encode()
    return (json.loads(form) if "\\" in form else form[1:-1]).encode()
