"""Data messages as templates: all messages of one shape are the same but for the values (spec/qlik.md 5.1, 5.3).

Tables are written by few statements, so few shapes come again and again: what follows from a shape, such as its masks
and its NULLs, is put together once, as text for JSON and as bytes for Avro.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

from eventlog.model import ChangeOp
from eventlog.qlik import avro_binary, masks
from eventlog.qlik.avro_binary import NULL, VALUE
from eventlog.qlik.message_options import WriteOptions
from eventlog.qlik.message_table import MessageTable
from eventlog.qlik.message_values import avro_writer, json_text_writer

Form = TypeVar("Form", str, bytes)


class Shape(NamedTuple):
    """What is known of a row and its change, without the values.

    ``known``: the columns of the row, ``before``: those of the row before an update, None = it is not known.
    ``changed``: what the change says of it, ``differing``: what the rows say where the change does not.
    """

    op: ChangeOp
    known: tuple[str, ...]
    before: tuple[str, ...] | None
    changed: frozenset[str] | None
    differing: frozenset[str] | None


Columns = tuple[tuple[str, Callable[[Any], Form]], ...]
"""Columns and how their values are written, in the order in which they stand in the message."""


class Template(NamedTuple, Generic[Form]):
    """The parts of a message: what is the same in every one, at odd places the values.

    These are those of ``data``, of ``before``, the four texts of a header that is not of a REFRESH (``has_texts``),
    counter and last flag. ``before`` is None where the message has no row before; ``takes_after``: what that does not
    know is as in the row after. ``loses_before``: it was known, but cannot be written.
    """

    parts: list[Form]
    data: Columns[Form]
    before: Columns[Form] | None
    has_texts: bool
    takes_after: bool = False
    loses_before: bool = False


Fragments = list[Form | None]
"""Pieces of a message in order; None is a value."""


def _parts(fragments: Fragments[Form], nothing: Form) -> list[Form]:
    parts = [nothing]
    for fragment in fragments:
        if fragment is None:
            parts += (nothing, nothing)
        else:
            parts[-1] += fragment
    return parts


@dataclass(frozen=True, slots=True)
class Coding(Generic[Form]):
    """JSON or Avro: how the messages of a table are written.

    ``template`` makes one; ``text``, ``number``, ``flag`` write headers, ``null`` is none; ``wrap`` makes the joined
    parts a record's value.
    """

    template: Callable[[Shape], Template[Form]]
    text: Callable[[str], Form]
    number: Callable[[int], Form]
    flag: Callable[[bool], Form]
    null: Form
    wrap: Callable[[Iterable[Form]], bytes]


# --- what both say ----------------------------------------------------------------------------------------------------


def _mask(table: MessageTable, names: Collection[str]) -> int:
    return table.layout.bits(table.fields.keys() & names)


def _change_mask(table: MessageTable, shape: Shape) -> int:
    """The columns of the changeMask (spec/qlik.md 5.3)."""
    if shape.op is ChangeOp.DELETE:
        return _mask(table, table.key or table.fields.keys())
    if shape.op is ChangeOp.INSERT:
        return _mask(table, frozenset(shape.known) - table.lobs)
    changed = shape.changed if shape.changed is not None else shape.differing
    if changed is None:
        changed = frozenset(shape.known) - frozenset(table.key)
    return _mask(table, changed - table.lobs)


def _names(table: MessageTable) -> dict[str, str]:
    return {"schema": table.schema or "", "table": table.name}


# --- JSON -------------------------------------------------------------------------------------------------------------


def json_coding(table: MessageTable, options: WriteOptions, start: str) -> Coding[str]:
    """Messages in JSON. ``start`` is what stands before the payload in the envelope."""
    writers = {column.name: json_text_writer(column) for column in table.columns}

    def template(shape: Shape) -> Template[str]:
        known = frozenset(shape.known)
        payload: dict[str, Fragments[str]] = {}
        if options.names == "message":
            payload |= _json_texts(_names(table))
        payload["data"] = row(known, table.fields.keys() - known if shape.op is ChangeOp.REFRESH else ())
        payload["beforeData"] = ["null"]
        if shape.before is not None:
            payload["beforeData"] = row(frozenset(shape.before), known.difference(shape.before))
        payload["headers"] = _json_object(headers(shape))
        return Template(
            _parts([start, *_json_object(payload), "}"], ""),
            columns(shape.known),
            None if shape.before is None else columns(shape.before),
            shape.op is not ChangeOp.REFRESH,
        )

    def row(known: Collection[str], absent: Collection[str]) -> Fragments[str]:
        """The object of a row: columns that are neither known nor absent are null."""
        return _json_object({
            field: [None if name in known else "null"] for name, field in table.fields.items() if name not in absent
        })  # fmt: skip

    def columns(known: Collection[str]) -> Columns[str]:
        return tuple((name, write) for name, write in writers.items() if name in known)

    def headers(shape: Shape) -> dict[str, Fragments[str]]:
        is_refresh = shape.op is ChangeOp.REFRESH
        members: dict[str, Fragments[str]] = _json_texts({"operation": shape.op.value})
        members |= {name: ['""' if is_refresh else None] for name in _TEXTS}
        change_mask = column_mask = schema_id = None
        if not is_refresh:
            change_mask = masks.message_text(table.layout, _change_mask(table, shape))
            column_mask = masks.message_text(table.layout, _mask(table, shape.known))
            schema_id = table.schema_id
        members |= _json_texts({"changeMask": change_mask, "columnMask": column_mask})
        if options.external_schema_id:
            members |= _json_texts({"externalSchemaId": schema_id})
        members |= {"transactionEventCounter": [None], "transactionLastEvent": [None]}
        if options.names == "headers":
            members |= _json_texts(_names(table))
        return members

    return Coding(template, encode_basestring, str, _json_flag, "null", lambda parts: "".join(parts).encode())


_TEXTS: Final = ("changeSequence", "timestamp", "streamPosition", "transactionId")


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
_EMPTY: Final = avro_binary.text("")


def avro_coding(table: MessageTable, options: WriteOptions, wrap: Callable[[bytes], bytes]) -> Coding[bytes]:
    """Messages in Avro, by the schema of ``metadata.data_schema``. ``wrap`` makes a payload a record's value."""
    writers = {column.name: avro_writer(column, options.logical_types) for column in table.columns}
    order: Literal["big", "little"] = "big" if options.byteorder == "big" else "little"
    names = b"".join(map(avro_binary.text, _names(table).values()))

    def template(shape: Shape) -> Template[bytes]:
        known_before, takes_after = _whole_before(table, shape)
        fragments = [names if options.names == "message" else b"", *row(shape.known)]
        fragments += [NULL] if known_before is None else [VALUE, *row(known_before)]
        fragments += [names if options.names == "headers" else b"", *headers(shape)]
        return Template(
            _parts(fragments, b""),
            columns(shape.known),
            None if known_before is None else columns(known_before),
            shape.op is not ChangeOp.REFRESH,
            takes_after,
            shape.before is not None and known_before is None,
        )

    def row(known: Collection[str]) -> Fragments[bytes]:
        return [None if name in known else NULL for name in writers]

    def columns(known: Collection[str]) -> Columns[bytes]:
        return tuple((name, write) for name, write in writers.items() if name in known)

    def headers(shape: Shape) -> Fragments[bytes]:
        is_refresh = shape.op is ChangeOp.REFRESH
        fragments: Fragments[bytes] = [avro_binary.long(_OPERATIONS.index(shape.op))]
        fragments += [_EMPTY if is_refresh else None] * len(_TEXTS)
        fragments += [NULL] * 2 if is_refresh else [mask(_change_mask(table, shape)), mask(_mask(table, shape.known))]
        if options.external_schema_id:
            known_id = None if is_refresh else table.schema_id
            fragments.append(NULL if known_id is None else VALUE + avro_binary.text(known_id))
        return [*fragments, None, None]

    def mask(bits: int) -> bytes:
        return VALUE + avro_binary.data(masks.message_bytes(table.layout, bits, order))

    return Coding(template, avro_binary.text, _avro_number, _avro_flag, NULL, lambda parts: wrap(b"".join(parts)))


def _whole_before(table: MessageTable, shape: Shape) -> tuple[frozenset[str] | None, bool]:
    """The columns of a row before that knows what the row after knows, and whether some are taken from that one.

    In Avro no column can be left out of it. What has not changed was the same before. None where a changed column is
    not known: what stood there would be read as NULL.
    """
    if shape.before is None:
        return None, False
    before = frozenset(shape.before)
    unknown = frozenset(shape.known) - before
    if unknown and (shape.changed is None or shape.changed & unknown or table.lobs & unknown):
        return None, False
    return before | unknown, bool(unknown)


def _avro_number(number: int) -> bytes:
    return VALUE + avro_binary.long(number)


def _avro_flag(value: bool) -> bytes:
    return VALUE + avro_binary.boolean(value)
