"""Write changes as rows of the queue and of DISPATCH_ATTRS (spec/change-model.md 4 and 5.1, column
L; formats/linter-queue.md 8).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from eventlog.changes.format import Report
from eventlog.changes.images import Complete, transactions, whole_images
from eventlog.changes.json_form import CATALOG, CatalogOption, database_of
from eventlog.core.catalog import Column, Table
from eventlog.core.options import (
    ANY,
    FUNCTION,
    STRING,
    CheckedOptions,
    OptionKind,
    choice,
    integer,
    option,
    shared,
)
from eventlog.core.values import Kind
from eventlog.core.values.moments import naive_utc, time_zone_named
from eventlog.core.values.typed_values import decimal_text, whole_number
from eventlog.errors import BadValue, ConfigError, FormatError, NotExpressible, check_result
from eventlog.linter.codec import (
    EMULATOR_CODEC,
    LONGEST,
    RowCodec,
    RowEncodeError,
    Typ,
    bytes_of,
    row_codec,
)
from eventlog.linter.dispatch_tables import (
    DATA_SIZE,
    MASK_64,
    QUEUE_TYPES,
    ColumnAttrs,
    Destination,
    DispatchRow,
    TableAttrs,
    from_utc,
)
from eventlog.linter.operations import COMMIT, DELETE, INSERT, ROLLBACK, UPDATE
from eventlog.linter.reader import CODEC_CHARSET, DISPATCH_ATTRS, TABLES, TIME_ZONE, parse_place
from eventlog.model import (
    Change,
    ChangeOp,
    Key,
    Lob,
    Row,
    RowDict,
    TableName,
    Value,
    column_name,
    full_name,
)

_FIRST_ADDRESS: Final = 24
_HEADER: Final = 64
_FILE_SIZE: Final = 1 << 31
_FILES: Final = 1 << 32
_NOWHERE: Final = Destination("", "", "")


def first_address(file: int = 1) -> int:
    """Return the SYSLOG_ADDR of the first operation of a log file."""
    return file << 32 | _FIRST_ADDRESS


def next_address(address: int, used: int) -> int:
    """Return the address that follows an operation with ``used`` bytes of DATA. File 0 follows the
    last file.
    """
    file, place = address >> 32, (address & 0xFFFFFFFF) + _HEADER + used
    return first_address((file + 1) % _FILES) if place >= _FILE_SIZE else file << 32 | place


class SystemLog:
    """The emulated system log; ``address`` is the address of the next operation.

    ``continuation_lengths`` is the value of the option with this name. Raises NotExpressible for a
    name that is wider than its column.
    """

    def __init__(
        self, dbnode: str, continuation_lengths: str = "per_row", address: int = first_address()
    ) -> None:
        _check_width("DBNODE", dbnode)
        self.address = address
        self._dbnode = dbnode
        self._has_totals = continuation_lengths == "total"

    def operation(
        self,
        transact_id: int,
        channel: int,
        oper_date: bytes,
        typ: int,
        tabnum: int,
        rowid: int,
        parts: Sequence[bytes],
        destinations: Sequence[Destination],
        blobatr: int = 0,
    ) -> Iterator[DispatchRow]:
        """Yield the rows of an operation that has one or two ``parts``. There is a full set of rows
        for each destination, and all rows have the same address.
        """
        old, both = len(parts[0]), b"".join(parts)
        for destination in destinations:
            for number, start in enumerate(range(0, len(both) or 1, DATA_SIZE)):
                end = min(start + DATA_SIZE, len(both))
                own_old = max(0, min(end, old) - start)
                lengths = (
                    (old, len(both) - old) if self._has_totals else (own_old, end - start - own_old)
                )
                data = both[start:end].ljust(DATA_SIZE, b"\0")
                yield DispatchRow(
                    oper_date, number, self._dbnode, transact_id, self.address, typ, blobatr,
                    channel, tabnum, rowid, *lengths, destination, data,
                )  # fmt: skip
        self.address = next_address(self.address, len(both))

    def end(
        self, transact_id: int, channel: int, oper_date: bytes, *, committed: bool = True
    ) -> DispatchRow:
        """Return the row that ends a transaction."""
        row = DispatchRow(
            oper_date, 0, self._dbnode, transact_id, self.address,
            COMMIT if committed else ROLLBACK, 0, channel, 0, 0, 0, 0, _NOWHERE, bytes(DATA_SIZE),
        )  # fmt: skip
        self.address = next_address(self.address, 0)
        return row


def _check_width(column: str, text: str) -> None:
    """Check that text fits a CHAR column of the queue. Raises NotExpressible."""
    _, size = QUEUE_TYPES[column]
    if len(text.encode("utf-8", "surrogatepass")) > size:
        raise NotExpressible(
            f"{text!r} has more than the {size} bytes of {column}", code="value_range"
        )


def _parse_destinations(value: Any) -> Sequence[Sequence[str | None]]:
    if not isinstance(value, list | tuple) or not value:
        raise ValueError
    return [parse_place(one) for one in value]


@dataclass(frozen=True, slots=True)
class WriterOptions(CheckedOptions):
    """Options of the writer, with the names of formats/linter-queue.md 8. Raises ConfigError."""

    codec: RowCodec | str = option(EMULATOR_CODEC, ANY, "codec of the row images")
    charset: str = shared(CODEC_CHARSET)
    time_zone: str = shared(TIME_ZONE)
    continuation_lengths: str = option(
        "per_row", choice("per_row", "total"), "meaning of LEN1 and LEN2 in continuation rows"
    )
    truncate: str = option("error", choice("error", "deletes"), "what is written for a TRUNCATE")
    complete: Complete | None = option(
        None, FUNCTION, "function that gets schema, table and key, and returns the whole row"
    )
    dispatch_attrs: Mapping[int, TableAttrs] = shared(DISPATCH_ATTRS)
    """The descriptions of the tables that ``tables`` names."""
    tables: Mapping[int, TableName] = shared(TABLES)
    """The names of the tables by number."""
    catalog: CatalogOption = shared(CATALOG)
    """The descriptions of the other tables. The numbers of these tables come from ``tables``, or
    follow the highest number in ``tables``.
    """
    destinations: Sequence[Sequence[str | None]] = option(
        (("", None, None),),
        OptionKind(_parse_destinations, "a list of lists of server, owner and table"),
        "targets of changes: server, owner and table; null = as in the change",
    )
    dbnode: str = option("EVENTLOG", STRING, "value of the column DBNODE")
    channel: int = option(0, integer(), "value of the column CHANNEL")


_Target = tuple[TableAttrs, tuple[Destination, ...]]
"""The target of a change: the description of its table, and the destinations of its rows."""


class QueueWriter:
    """A writer of changes as rows. ``attrs`` are the tables by number; ``address`` is the address
    of the next operation.

    Changes that cannot be written go to ``report.skip``. Without a report, the first change that
    cannot be written raises its error. Raises ConfigError.
    """

    def __init__(
        self,
        options: WriterOptions | None = None,
        report: Report | None = None,
        address: int = first_address(),
    ) -> None:
        self.options = options = options or WriterOptions()
        self._report = report or Report(strict=True)
        codec = row_codec(options.codec, options.charset)
        if codec is None:
            raise ConfigError(
                f"codec = none cannot write rows; use {EMULATOR_CODEC} or an object with the "
                "method encode"
            )
        self._encode = codec.encode
        self._zone = time_zone_named(options.time_zone)
        self._log = SystemLog(options.dbnode, options.continuation_lengths, address)
        self._names = _described(options)
        self.attrs = {attrs.tabnum: attrs for attrs in self._names.values()}
        self._target = lru_cache(maxsize=None)(self._target_of)
        self._used: set[int] = set()
        self._next_number = 1
        self._known: dict[int, dict[Key, RowDict]] = {}

    def rows(self, changes: Iterable[Change]) -> Iterator[DispatchRow]:
        """Yield the rows of ``changes``, which must be all changes. The rows of a transaction
        follow when its last change is known.

        Raises FormatError.
        """
        for transaction in transactions(changes):
            yield from self._transaction(list(transaction))
        self._report.refuse_nothing()

    def _transaction(self, changes: Sequence[Change]) -> Iterator[DispatchRow]:
        last, channel = changes[-1], self.options.channel
        number = None
        for change in changes:
            try:
                oper_date = from_utc(last.commit_time, self._zone)
                attrs, destinations = self._target(change.schema, change.table)
                truncates = change.op is ChangeOp.TRUNCATE
                operations = (
                    self._deletes(change, attrs) if truncates else [self._operation(change, attrs)]
                )
            except FormatError as error:
                self._report.skip(error)
                continue
            if number is None:
                number = self._transact_id(last.transaction_id)
            row_id = change.extras.get("row_id")
            row_id = row_id if isinstance(row_id, int) else 0
            for typ, parts in operations:
                yield from self._log.operation(
                    number, channel, oper_date, typ, attrs.tabnum, row_id, parts, destinations
                )
            self._report.written += 1
        if number is not None:
            yield self._log.end(number, channel, oper_date)

    def _transact_id(self, transaction_id: str | None) -> int:
        """Return the low 64 bits of a transaction id if this run has not used this number,
        otherwise a free number.
        """
        if transaction_id is not None and _HEX.fullmatch(transaction_id):
            number = int(transaction_id, 16) & MASK_64
            if number not in self._used:
                self._used.add(number)
                return number
        while self._next_number in self._used:
            self._next_number += 1
        self._used.add(self._next_number)
        return self._next_number

    def _target_of(self, schema: str | None, name: str) -> _Target:
        attrs = self._described_as(schema, name)
        if attrs is None:
            raise FormatError(
                f"table {full_name(schema, name)} is not described; give its columns with "
                "dispatch_attrs and tables, or with catalog",
                code="schema_missing",
            )
        destinations = [
            Destination(
                server or "",
                (schema or "") if owner is None else owner,
                name if table is None else table,
            )
            for server, owner, table in self.options.destinations
        ]
        for destination in destinations:
            for column, text in zip(
                ("DST_SERVER", "DST_OWNER", "DST_TABLE"), destination, strict=True
            ):
                _check_width(column, text)
        return attrs, tuple(dict.fromkeys(destinations))

    def _described_as(self, schema: str | None, name: str) -> TableAttrs | None:
        """Return the description of a table, None if there is none.

        The description is found by schema and name. The description is found by the name alone if
        one of the two schemas is unknown and the name is unique.
        """
        attrs = self._names.get((schema, name)) or self._names.get((None, name))
        if attrs is None and schema is None:
            alike = [attrs for (_, table), attrs in self._names.items() if table == name]
            attrs = alike[0] if len(alike) == 1 else None
        return attrs

    # --- rows -------------------------------------------------------------------------------------

    def _operation(self, change: Change, attrs: TableAttrs) -> tuple[int, list[bytes]]:
        """Return TYP and parts of a change."""
        images = whole_images(
            change, attrs.names, self.options.complete, needs_before=True, count=self._report.count
        )
        rows = [self._row(image, change, attrs) for image in images]
        parts = [self._image(row, change, attrs) for row in rows]
        typ = _TYPS[change.op]
        self._remember(
            attrs, None if typ == INSERT else rows[0], None if typ == DELETE else rows[-1]
        )
        return typ, parts

    def _row(self, row: Row, change: Change, attrs: TableAttrs) -> RowDict:
        """Return the row with its values converted to what its columns hold."""

        def truncated(column: str) -> None:
            self._report.count(f"truncated {column_name(change, column)}")

        values = {}
        for column in attrs.columns:
            try:
                values[column.name] = column_value(row[column.name], column, truncated)
            except NotExpressible as error:
                error.column = column_name(change, column.name)
                raise
        return values

    def _image(self, row: Row, change: Change, attrs: TableAttrs) -> bytes:
        try:
            image = self._encode(attrs, row)
        except RowEncodeError as error:
            column = None if error.column is None else column_name(change, error.column)
            raise RowEncodeError(
                f"{change.op} of {full_name(change.schema, change.table)}: {error}", column
            ) from error
        check_result(self._encode, image, bytes, "bytes")
        return image

    # --- TRUNCATE ---------------------------------------------------------------------------------

    def _deletes(self, change: Change, attrs: TableAttrs) -> list[tuple[int, list[bytes]]]:
        """Return TYP and parts of each DELETE that is written for a TRUNCATE."""
        if self.options.truncate == "error":
            raise NotExpressible(
                f"TRUNCATE of {full_name(change.schema, change.table)}: a Linter queue has no such "
                "operation; set truncate = deletes to write one DELETE for each row that was "
                "written before"
            )
        rows = self._known.pop(attrs.tabnum, {})
        return [(DELETE, [self._image(row, change, attrs)]) for row in rows.values()]

    def _remember(self, attrs: TableAttrs, old: Row | None, new: RowDict | None) -> None:
        """Remember the rows that exist, for the DELETEs of a later TRUNCATE."""
        if self.options.truncate != "deletes":
            return
        rows = self._known.setdefault(attrs.tabnum, {})
        key = attrs.key or tuple(sorted(attrs.names))
        if old is not None:
            rows.pop(tuple((name, old[name]) for name in key), None)
        if new is not None:
            rows[tuple((name, new[name]) for name in key)] = new


_HEX: Final = re.compile("[0-9A-Fa-f]{1,32}")
_TYPS: Final = {
    ChangeOp.INSERT: INSERT,
    ChangeOp.REFRESH: INSERT,
    ChangeOp.UPDATE: UPDATE,
    ChangeOp.DELETE: DELETE,
}


# --- tables and values ----------------------------------------------------------------------------


def _described(options: WriterOptions) -> dict[TableName, TableAttrs]:
    """Return the described tables by schema (None = unknown) and name. Raises ConfigError."""
    names = options.tables
    tables = {}
    for tabnum, attrs in options.dispatch_attrs.items():
        if tabnum not in names:
            raise ConfigError(
                f"table {tabnum} of dispatch_attrs has no name; add it to tables as owner.table"
            )
        tables[names[tabnum]] = attrs
    database = database_of(options.catalog)
    if database is not None:
        numbers = {name: tabnum for tabnum, name in names.items()}
        free = max(names, default=0)
        for table in database.tables:
            name = (database.schema, table.name)
            if name not in tables:
                if name not in numbers:
                    free += 1
                tables[name] = _attrs_of_table(numbers.get(name, free), table)
    return tables


_BYTES_A_CHARACTER: Final = 4  # in UTF-8


def _attrs_of_table(tabnum: int, table: Table) -> TableAttrs:
    """Return the description of a catalogue's table (spec/change-model.md 5.1, column L).

    Text has four bytes for each character, up to 4000 bytes. Raises NotExpressible for a column of
    times of day, for which the queue has no type.
    """
    columns = []
    for number, column in enumerate(table.columns, 1):
        typ, length = _typ_and_length(column)
        pkey = table.primary_key.index(column.name) + 1 if column.name in table.primary_key else 0
        columns.append(ColumnAttrs(column.name, number, typ, pkey, length))
    return TableAttrs(tabnum, tuple(columns))


def _typ_and_length(column: Column) -> tuple[int, int]:
    bits, sizes = column.type.bits, column.type.sizes
    size = sizes[0] if sizes else LONGEST
    match column.type.kind:
        case Kind.INTEGER if bits:
            return Typ.INTEGER, bits // 8
        case Kind.INTEGER | Kind.EXACT:
            return Typ.DECIMAL, 16
        case Kind.APPROXIMATE:
            return Typ.REAL, bits // 8
        case Kind.BOOLEAN:
            return Typ.BOOLEAN, 1
        case Kind.DATE | Kind.TIMESTAMP | Kind.TIMESTAMPTZ:
            return Typ.DATE, 16
        case Kind.UUID:
            return Typ.CHAR, 36
        case Kind.BINARY:
            return Typ.VARBYTE, min(size, LONGEST)
        case Kind.FIXED:
            return Typ.CHAR, min((sizes[0] if sizes else 1) * _BYTES_A_CHARACTER, LONGEST)
        case Kind.CHARACTER | Kind.OTHER:
            return Typ.VARCHAR, min(size * _BYTES_A_CHARACTER, LONGEST)
        case Kind.TIME:
            raise NotExpressible(
                f"column {column.name!r} contains times of day, for which a Linter queue has no "
                "type"
            )


Truncated = Callable[[str], None]
"""A function that is called with the name of a column if its value loses digits."""


def column_value(value: Value, column: ColumnAttrs, truncated: Truncated) -> Value:
    """Return the value as the row codec expects it. Text is parsed by the type of the column, and
    times are truncated to 1/100 s.

    Raises NotExpressible for a value that the column cannot hold.
    """
    if value is None:
        return None
    try:
        if column.typ == Typ.DATE:
            return _date(value, column.name, truncated)
        types, convert = _CONVERSIONS.get(column.typ, _UNCHANGED)
        if isinstance(value, types):
            return convert(value)
    except (TypeError, ValueError, LookupError, ArithmeticError, BadValue):
        pass
    kind = type(value).__name__
    raise NotExpressible(
        f"column {column.name!r} of type code {column.typ} cannot hold the {kind} {value!r:.60} "
        "in a Linter queue"
    )


def _date(value: Value, column: str, truncated: Truncated) -> datetime:
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    elif isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)
    if not isinstance(value, datetime):
        raise TypeError
    value = naive_utc(value)
    whole = value.replace(microsecond=value.microsecond // 10_000 * 10_000)
    if whole != value:
        truncated(column)
    return whole


def _integer(value: int | str | Decimal) -> int:
    number = whole_number(value) if isinstance(value, Decimal) else int(value)
    if number is None:
        raise ValueError
    return number


_TRUTH: Final[Mapping[Any, bool]] = {"true": True, "false": False, 1: True, 0: False}


def _text(value: Any) -> str:
    match value:
        case str():
            return value
        case datetime():
            return value.isoformat(" ")
        case date():
            return value.isoformat()
        case bool():
            return "true" if value else "false"
        case Decimal():
            return decimal_text(value)
        case _:
            return repr(value)


_Conversion = tuple[tuple[type, ...], Callable[[Any], Value]]
_UNCHANGED: Final[_Conversion] = (object,), lambda value: value
_TO_TEXT: Final[_Conversion] = (str, date, int, Decimal, float), _text
_TO_BYTES: Final[_Conversion] = (bytes, Lob), bytes_of
_CONVERSIONS: Final[Mapping[int, _Conversion]] = {
    Typ.CHAR: _TO_TEXT,
    Typ.VARCHAR: _TO_TEXT,
    Typ.NCHAR: _TO_TEXT,
    Typ.NVARCHAR: _TO_TEXT,
    Typ.BYTE: _TO_BYTES,
    Typ.VARBYTE: _TO_BYTES,
    Typ.BLOB: _TO_BYTES,
    Typ.INTEGER: ((int, str, Decimal), _integer),
    Typ.REAL: ((float, int, str, Decimal), float),
    Typ.DECIMAL: ((Decimal, int, str), Decimal),
    Typ.BOOLEAN: ((str, int), _TRUTH.__getitem__),
}
"""By the type of a column, the Python types of the values that it accepts, and the function that
converts these values.
"""
