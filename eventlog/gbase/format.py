"""The format ``gbase``. The format reads files of concatenated records (``.cdc``) as Changes, lists
these records as text for people who inspect a dump, and writes Changes as one file of records.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from eventlog.changes.format import Block, Format, Report
from eventlog.changes.losses import Loss
from eventlog.core.catalog import Database
from eventlog.core.options import GivenOptions, parse_options
from eventlog.errors import FormatError, with_location
from eventlog.files.atomic import whole_file
from eventlog.files.text import source_files
from eventlog.gbase import records
from eventlog.gbase.layout import Layout, Layouts
from eventlog.gbase.options import ReadOptions, WriteOptions
from eventlog.gbase.packed import datetime_text
from eventlog.gbase.reader import StreamReader
from eventlog.gbase.records import ColumnError, Frame, Framer, at_offset
from eventlog.gbase.session import error_name
from eventlog.gbase.values import ColumnType
from eventlog.gbase.writer import write_stream
from eventlog.model import Change, Lob, Value

_CHUNK: Final = 1 << 18


class _Stream:
    """A stream: a file of records, or a directory whose files continue one another in the order of
    their names.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._begun: list[tuple[int, Path]] = []
        self._located: FormatError | None = None

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes of the stream in bounded fragments.

        Raises FormatError if a file cannot be read.
        """
        at = 0
        try:
            for file in source_files(Path(self._source), "file of a stream"):
                self._begun.append((at, file))
                with file.open("rb") as stream:
                    while data := stream.read(_CHUNK):
                        at += len(data)
                        yield data
        except OSError as error:
            raise FormatError(
                f"the stream {self._source} cannot be read: {error.strerror}"
            ) from error

    def with_location(self, error: FormatError) -> FormatError:
        """Return the error with the file in which its record begins. If this is not the first file,
        the offset in the file is added.
        """
        if error.offset is not None and error is not self._located:
            begin, file = next(begun for begun in reversed(self._begun) if begun[0] <= error.offset)
            with_location(error, f"{file}, offset {error.offset - begin}" if begin else file)
            self._located = error
        return error

    @contextmanager
    def locating(self) -> Iterator[None]:
        """Add the file to every error that is raised within the block."""
        try:
            yield
        except FormatError as error:
            raise self.with_location(error) from error.__cause__


class GbaseFormat(Format):
    """CDC record streams of GBase 8s (formats/gbase-cdc.md)."""

    name = "gbase"
    title = "GBase 8s CDC records"
    reader_options = (ReadOptions,)
    writer_options = (WriteOptions,)
    loses = frozenset({
        Loss.KEY, Loss.POSITION, Loss.FRACTIONS, Loss.TRANSACTION_ID, Loss.CHANGED,
        Loss.REFRESH,
    })  # fmt: skip
    is_read_once = True
    is_written_later = True

    def read_changes(self, source: str, options: ReadOptions, report: Report) -> Iterator[Change]:
        """Yield the changes of a file or directory, whose last byte is the end of the stream.

        ``report`` gets the counters of the specification. Rows that cannot be read are reported and
        skipped. Raises FormatError, ConfigError.
        """
        stream = _Stream(source)
        reader = StreamReader(
            options, on_invalid_row=lambda error: report.skip(stream.with_location(error))
        )
        try:
            with stream.locating():
                for data in stream.chunks():
                    yield from reader.feed(data)
                reader.finish()
        finally:
            reader.close()
            report.counters.update(reader.counters)

    def write_changes(
        self, changes: Iterable[Change], target: str, options: WriteOptions, report: Report
    ) -> None:
        """Write changes to a file of records, whole or not at all.

        Changes that a stream cannot hold are skipped and reported. Raises FormatError, ConfigError,
        OSError.
        """
        with whole_file(target) as file:
            for data in write_stream(changes, options, report):
                file.write(data)

    def lines(
        self, source: str, options: GivenOptions, report: Report, block: Block
    ) -> Iterator[str]:
        return listing_of(source, options, report)

    def output_place(self, name: str, options: GivenOptions) -> str:
        return f"{name}/capture.cdc"

    def options_of_catalog(self, side: str, database: Database) -> GivenOptions | None:
        if side != "reader":
            return None
        return {
            "keys": {
                table.name: list(table.primary_key)
                for table in database.tables
                if table.primary_key
            }
        }


FORMAT: Final = GbaseFormat()


# --- the listing ----------------------------------------------------------------------------------

_STRUCT_FORMATS: Final = {"seq": ">Q", "time": ">q", "code": ">i"}
_MEANINGS: Final = {"seq": "sequence", "tx": "transaction id", "os_user": "operating system user"}
_HEX_SHOWN: Final = 16  # bytes shown on a line; an ellipsis stands for the rest of a longer field
_COLUMN: Final = 2 * _HEX_SHOWN + 3


def listing_of(source: str, options: GivenOptions, report: Report) -> Iterator[str]:
    """Yield a stream as annotated text (see ``listing``). A row that cannot be read is listed
    without its values, then reported and skipped.

    Raises FormatError, ConfigError.
    """
    stream = _Stream(source)
    chosen = parse_options(ReadOptions, options, "the gbase reader")
    with stream.locating():
        yield from listing(
            stream.chunks(), chosen, lambda error: report.skip(stream.with_location(error))
        )


def listing(
    chunks: Iterable[bytes],
    options: ReadOptions | None = None,
    on_invalid_row: Callable[[ColumnError], None] | None = None,
) -> Iterator[str]:
    """Yield the lines of a listing. The lines show each field of each record with its offset, its
    bytes and its meaning.

    Transactions are identified by their BEGINTX sequence. If a record cannot be read, the listing
    ends with a line about the error, and FormatError is raised. ``on_invalid_row`` is called with
    the error of a row that cannot be read. If the function returns, the listing continues after the
    row.
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
                    if on_invalid_row is None or frame[1] not in records.ROWS:
                        raise
                    yield from _record(_read_head(frame), open_transactions)
                    yield _fault(offset, error)
                    bad_row = error
                    on_invalid_row(at_offset(error, offset))
                else:
                    yield from _record(record, open_transactions)
            offset = framer.offset
        framer.finish()
    except FormatError as error:
        if error is not bad_row:
            yield _fault(offset if error.offset is None else error.offset, error)
        raise at_offset(error, offset) from None
    yield f"{framer.offset:08x}  end of the stream, {len(open_transactions)} transactions open"


class Record(NamedTuple):
    """A record that has been read."""

    offset: int
    number: int
    header_size: int
    data: bytes
    """The bytes of the record."""
    fields: Mapping[str, int]
    """The values of the header fields by the names in FIELD_NAMES, empty for an unknown record."""
    layout: Layout | None = None
    """The layout of a TABSCHEM record or a row record, None for other records."""
    sizes: Sequence[int] = ()
    values: Sequence[Value] = ()
    """The values of a row record, in the order of ``layout.names``. ``sizes`` are the sizes of the
    variable columns, in the same order. ``sizes`` and ``values`` are empty for other records.
    """


def read_record(frame: Frame, layouts: Layouts) -> Record:
    """Read a record with all its parts. A TABSCHEM record adds its layout to ``layouts``.

    Raises FormatError for a row whose label has no TABSCHEM, and ColumnError, a FormatError, for a
    row that cannot be read.
    """
    record = _read_head(frame)
    _, number, header_size, data = frame
    if number == records.TABSCHEM:
        return record._replace(layout=layouts.define(data, header_size))
    if number not in records.ROWS:
        return record
    layout = layouts[record.fields["label"]]
    layout.check_header(header_size, record.offset)
    sizes = layout.sizes(data, header_size)
    return record._replace(layout=layout, sizes=sizes, values=layout.decode(data, header_size))


def _read_head(frame: Frame) -> Record:
    """Read the parts of a record for which no TABSCHEM is needed."""
    number, data = frame[1], frame[3]
    fields = records.fields_of(number, data) if number in records.FIELDS else ()
    return Record(*frame, dict(zip(records.FIELD_NAMES.get(number, ()), fields, strict=True)))


def _fault(offset: int, error: FormatError) -> str:
    return f"{offset:08x}  !! {error.code}: {error}"


def _record(record: Record, open_transactions: dict[int, int]) -> Iterator[str]:
    yield f"{record.offset:08x}  {_name(record)}{_transaction_note(record, open_transactions)}"
    at = 0
    for size, field, meaning in chain(_header(record), _payload(record)):
        shown = record.data[at : at + min(size, _HEX_SHOWN)].hex().upper() + (
            "..." if size > _HEX_SHOWN else ""
        )
        yield f"  {record.offset + at:08x}  {shown:{_COLUMN}}  {field}: {meaning}"
        at += size
    if record.number == records.TABSCHEM and record.layout is not None:
        for column in record.layout.columns:
            yield f"{'':10}  {'':{_COLUMN}}  {column.name}  {column.type.spelled}"
    if record.number in (records.COMMTX, records.RBTX):
        open_transactions.pop(record.fields["tx"], None)


def _name(record: Record) -> str:
    return records.RECORD_NAMES.get(record.number, f"unknown record {record.number}")


def _transaction_note(record: Record, open_transactions: dict[int, int]) -> str:
    tx = record.fields.get("tx")
    if tx is None:
        return ""
    if record.number == records.BEGINTX:
        open_transactions[tx] = record.fields["seq"]
        return f"  transaction {record.fields['seq']:016x} begins"
    if tx not in open_transactions:
        return "  of a transaction that did not begin here"
    ends = {records.COMMTX: " is committed", records.RBTX: " is rolled back"}.get(record.number, "")
    table = "" if record.layout is None else f" of {record.layout.qualified}"
    return f"{table}  transaction {open_transactions[tx]:016x}{ends}"


def _meaning(record: Record, field: str, number: int) -> str:
    match field:
        case "seq":
            discarded = "and above are discarded" if record.number == records.DISCARD else ""
            return (
                f"{number:016x}{discarded}"
                if number or record.number != records.TIMEOUT
                else "no data yet"
            )
        case "time":
            time = records.moment(number, record.offset)
            return "not known" if time is None else f"{number} = {time:%Y-%m-%dT%H:%M:%SZ}"
        case "label":
            return str(number) if record.layout is None else f"{number} = {record.layout.qualified}"
        case "code":
            return f"{number} = {error_name(number)}"
        case "flags" if record.number == records.ERROR:
            return (
                f"{number}, the session is dead" if number & records.SESSION_DEAD else str(number)
            )
        case _:
            return str(number)


_Part = tuple[int, str, str]
"""Consecutive bytes of a record: their number, the name of the field, and its meaning."""


def _header(record: Record) -> Iterator[_Part]:
    header_size, payload_size, scheme, number = records.HEADER.unpack_from(record.data)
    yield 4, "header size", str(header_size)
    yield 4, "payload size", str(payload_size)
    yield 4, "packet scheme", str(scheme)
    yield 4, "record number", f"{number} = {_name(record)}"
    for field, value in record.fields.items():
        size = struct.calcsize(_STRUCT_FORMATS.get(field, ">I"))
        yield size, _MEANINGS.get(field, field.replace("_", " ")), _meaning(record, field, value)
    left = header_size - records.HEADER_SIZES.get(number, records.HEADER.size)
    if number in records.ROWS and record.layout is not None:
        variable = (column.name for column in record.layout.columns if column.type.variable)
        for name, size in zip(variable, record.sizes, strict=True):
            yield 4, f"size of {name}", f"{size} bytes"
            left -= 4
    elif number in records.ROWS:
        yield left, "size array", "not read"
        left = 0
    if left:
        yield left, "unknown header", "skipped"


def _payload(record: Record) -> Iterator[_Part]:
    data = record.data[record.header_size :]
    if record.layout is None:
        if data:
            yield len(data), "payload", "not read" if record.number in records.ROWS else "skipped"
    elif record.number == records.TABSCHEM:
        yield len(data), "columns", repr(data.split(b"\0", 1)[0].decode())
    else:
        sizes = iter(record.sizes)
        for column, value in zip(record.layout.columns, record.values, strict=True):
            size = next(sizes) if column.type.variable else column.type.width
            yield size, f"{column.name} {column.type.spelled}", _shown(value, column.type)


def _shown(value: Value, column_type: ColumnType) -> str:
    if value is None:
        return "NULL"
    if column_type.qualifier is not None:
        return datetime_text(value, column_type.qualifier)
    if isinstance(value, Lob):
        return "locator"
    return repr(value) if isinstance(value, str) else str(value)
