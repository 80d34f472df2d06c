"""A stream as annotated text, for people who look into a dump (issue 7, 3)."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from eventlog.errors import FormatError
from eventlog.gbase.column_types import ColumnType
from eventlog.gbase.errors import ColumnError, at_offset, error_name
from eventlog.gbase.layout import Layout, Layouts
from eventlog.gbase.options import ReadOptions
from eventlog.gbase.packed import datetime_text
from eventlog.gbase.records import (
    BEGINTX,
    COMMTX,
    DISCARD,
    ERROR,
    FIELD_NAMES,
    FIELDS,
    HEADER,
    RBTX,
    RECORD_NAMES,
    ROWS,
    SIZES_AT,
    TABSCHEM,
    TIMEOUT,
    Frame,
    Framer,
    fields_of,
    moment,
)
from eventlog.model import Lob, Value

_FORMS: Final = {"seq": ">Q", "time": ">q", "code": ">i"}
_MEANINGS: Final = {"seq": "sequence", "tx": "transaction id", "os_user": "operating system user"}
_HEX_SHOWN: Final = 16  # bytes of a line; longer fields go on in an ellipsis


class Record(NamedTuple):
    """One record read, ``data`` are its bytes.

    ``fields`` by the names of FIELD_NAMES, none of a record that is not known; a TABSCHEM has ``layout`` beside them,
    a row record also ``sizes`` and ``values`` in the order of ``layout.names``.
    """

    offset: int
    number: int
    header_size: int
    data: bytes
    fields: Mapping[str, int]
    layout: Layout | None = None
    sizes: Sequence[int] = ()
    values: Sequence[Value] = ()


def read_record(frame: Frame, layouts: Layouts) -> Record:
    """A record with all that is in it; a TABSCHEM record is taken up in ``layouts``.

    Raises FormatError: SchemaMissing for a row without TABSCHEM, a ColumnError for a row that cannot be read.
    """
    record = read_head(frame)
    _, number, header_size, data = frame
    if number == TABSCHEM:
        return record._replace(layout=layouts.define(data, header_size))
    if number not in ROWS:
        return record
    layout = layouts[record.fields["label"]]
    layout.check_header(header_size, record.offset)
    sizes = layout.sizes(data, header_size)
    return record._replace(layout=layout, sizes=sizes, values=layout.decode(data, header_size))


def read_head(frame: Frame) -> Record:
    """A record without what a TABSCHEM is needed for."""
    number, data = frame[1], frame[3]
    fields = zip(FIELD_NAMES[number], fields_of(number, data), strict=True) if number in FIELDS else ()
    return Record(*frame, dict(fields))


def listing(
    chunks: Iterable[bytes],
    options: ReadOptions | None = None,
    on_bad_row: Callable[[ColumnError], None] | None = None,
) -> Iterator[str]:
    """The lines of a stream: every field of every record with its offset, its bytes and what they mean.

    A transaction is named by its BEGINTX sequence. What cannot be read ends the listing with a line that says so, and
    its error is raised then: FormatError. ``on_bad_row`` is called with what is wrong with a row, which the listing
    goes on behind if that returns.
    """
    options = options or ReadOptions()
    framer, layouts = Framer(options.max_record), Layouts(options, Counter())
    open_transactions: dict[int, int] = {}
    offset = 0
    bad_row: FormatError | None = None
    try:
        for chunk in chunks:
            for frame in framer.feed(chunk):
                offset = frame[0]
                try:
                    record = read_record(frame, layouts)
                except ColumnError as error:
                    if on_bad_row is None or frame[1] not in ROWS:
                        raise
                    yield from _record(read_head(frame), open_transactions)
                    yield _fault(offset, error)
                    bad_row = error
                    on_bad_row(at_offset(error, offset))
                else:
                    yield from _record(record, open_transactions)
            offset = framer.offset
        framer.finish()
    except FormatError as error:
        if error is not bad_row:
            yield _fault(offset if error.offset is None else error.offset, error)
        raise at_offset(error, offset) from None
    yield f"{framer.offset:08x}  end of the stream, {len(open_transactions)} transactions open"


def _fault(offset: int, error: FormatError) -> str:
    return f"{offset:08x}  !! {type(error).__name__}: {error}"


def _record(record: Record, open_transactions: dict[int, int]) -> Iterator[str]:
    data = record.data
    name = RECORD_NAMES.get(record.number, f"unknown record {record.number}")
    yield f"{record.offset:08x}  {name}{_of_transaction(record, open_transactions)}"
    common = zip(
        ("header size", "payload size", "packet scheme", "record number"), HEADER.unpack_from(data), strict=True
    )
    for place, (field, number) in enumerate(common):
        meaning = f"{number} = {name}" if place == 3 else str(number)
        yield _line(record, 4 * place, data[4 * place : 4 * place + 4], field, meaning)
    at = HEADER.size
    for field, number in record.fields.items():
        size = struct.calcsize(_FORMS.get(field, ">I"))
        meaning = _meaning(record, field, number)
        yield _line(record, at, data[at : at + size], _MEANINGS.get(field, field.replace("_", " ")), meaning)
        at += size
    if record.layout is not None and record.number != TABSCHEM:
        for place, size in enumerate(record.sizes):
            begin = SIZES_AT + 4 * place
            variable = [column.name for column in record.layout.columns if column.type.variable]
            yield _line(record, begin, data[begin : begin + 4], f"size of {variable[place]}", f"{size} bytes")
        at += 4 * len(record.sizes)
    elif record.number in ROWS:
        yield _line(record, at, data[at : record.header_size], "size array", "not read")
        at = record.header_size
    if at < record.header_size:
        yield _line(record, at, data[at : record.header_size], "unknown header", "skipped")
    yield from _payload(record)
    if record.number in (COMMTX, RBTX):
        open_transactions.pop(record.fields["tx"], None)


def _of_transaction(record: Record, open_transactions: dict[int, int]) -> str:
    tx = record.fields.get("tx")
    if tx is None:
        return ""
    if record.number == BEGINTX:
        open_transactions[tx] = record.fields["seq"]
        return f"  transaction {record.fields['seq']:016x} begins"
    if tx not in open_transactions:
        return "  of a transaction that did not begin here"
    ends = {COMMTX: " is committed", RBTX: " is rolled back"}.get(record.number, "")
    table = "" if record.layout is None else f" of {record.layout.qualified}"
    return f"{table}  transaction {open_transactions[tx]:016x}{ends}"


def _meaning(record: Record, field: str, number: int) -> str:
    match field:
        case "seq":
            discarded = " and above are discarded" if record.number == DISCARD else ""
            return f"{number:016x}{discarded}" if number or record.number != TIMEOUT else "no data yet"
        case "time":
            time = moment(number, record.offset)
            return "not known" if time is None else f"{number} = {time:%Y-%m-%dT%H:%M:%SZ}"
        case "label":
            return str(number) if record.layout is None else f"{number} = {record.layout.qualified}"
        case "code":
            return f"{number} = {error_name(number)}"
        case "flags" if record.number == ERROR:
            return f"{number}, the session is dead" if number & 1 else str(number)
        case _:
            return str(number)


def _payload(record: Record) -> Iterator[str]:
    at, data = record.header_size, record.data
    if record.number == TABSCHEM and record.layout is not None:
        text = data[at:].split(b"\0", 1)[0].decode()
        yield _line(record, at, data[at:], "columns", repr(text))
        for column in record.layout.columns:
            yield f"{'':10}  {'':{_COLUMN}}  {column.name}  {column.type.spelled}"
    elif record.layout is not None:
        sizes = iter(record.sizes)
        for column, value in zip(record.layout.columns, record.values, strict=True):
            size = next(sizes) if column.type.variable else column.type.width
            yield _line(
                record, at, data[at : at + size], f"{column.name} {column.type.spelled}", _shown(value, column.type)
            )
            at += size
    elif at < len(data):
        yield _line(record, at, data[at:], "payload", "not read" if record.number in ROWS else "skipped")


def _shown(value: Value, column_type: ColumnType) -> str:
    if value is None:
        return "NULL"
    if column_type.qualifier is not None:
        return datetime_text(value, column_type.qualifier)
    if isinstance(value, Lob):
        return "locator"
    return repr(value) if isinstance(value, str) else str(value)


_COLUMN: Final = 2 * _HEX_SHOWN + 3


def _line(record: Record, at: int, data: bytes, field: str, meaning: str) -> str:
    shown = data[:_HEX_SHOWN].hex().upper() + ("..." if len(data) > _HEX_SHOWN else "")
    return f"  {record.offset + at:08x}  {shown:{_COLUMN}}  {field}: {meaning}"
