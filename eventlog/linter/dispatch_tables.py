"""Read and write rows of DISPATCH_QUEUE and DISPATCH_ATTRS (formats/linter-queue.md 1, 2). Columns
are read in any order, and their names in any case.

``_dispatch_rows`` is a hot path: it picks all columns of a row by one ``itemgetter``, tests the
common types together, strips each distinct text once, and makes the row by ``tuple.__new__``. The
price: the function repeats the order of DispatchRow's fields, and a row of uncommon types is
converted more slowly, by the code after the test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from functools import cached_property
from operator import itemgetter
from typing import Any, Final, NamedTuple

from eventlog.core.values.typed_values import whole_number
from eventlog.errors import ConfigError, FormatError, NotExpressible, with_location
from eventlog.model import JsonObject, Names

DATA_SIZE: Final = 3400
"""The number of bytes of DATA in one row of the queue."""

MASK_64: Final = (1 << 64) - 1

_NO_DATE: Final = bytes(6)
"""The OPER_DATE of a commit whose time is unknown."""

_EPOCH: Final = datetime(1990, 1, 1)
_MICROSECONDS: Final = 1_000_000


class MissingColumn(FormatError):
    """A column that DISPATCH_QUEUE or DISPATCH_ATTRS lacks (formats/linter-queue.md 1)."""

    code = "missing_column"


def oper_date_bytes(value: Any) -> bytes:
    """Return the six bytes of an OPER_DATE that is given as bytes or as twelve hex digits.

    Raises FormatError.
    """
    if isinstance(value, str):
        text = value.strip()
        try:
            if len(text) == 12 and text.isalnum():
                return bytes.fromhex(text)
        except ValueError:
            pass
    elif isinstance(value, bytes | bytearray | memoryview) and len(value) == 6:
        return bytes(value)
    shown = value.hex() if isinstance(value, bytes | bytearray | memoryview) else repr(value)
    raise FormatError(
        f"OPER_DATE {shown[:60]} is neither six bytes nor twelve hex digits", code="bad_oper_date"
    )


def decode_oper_date(value: bytes) -> datetime:
    """Return the local time of the server, without a zone, from the six bytes of an OPER_DATE. The
    time is rounded half up to the microsecond.
    """
    number = int.from_bytes(value, "big")
    seconds, fraction = number >> 16, number & 0xFFFF
    return _EPOCH + timedelta(0, seconds, (fraction * _MICROSECONDS + 0x8000) >> 16)


def encode_oper_date(local: datetime) -> bytes:
    """Return the OPER_DATE of a local time without a zone. The fraction is rounded half up, to at
    most 65535/65536 s.

    Raises NotExpressible outside 1990-01-01 to 2126-02-07.
    """
    since = local - _EPOCH
    seconds = since.days * 86400 + since.seconds
    if not 0 <= seconds < 1 << 32:
        raise NotExpressible(
            f"{local} cannot be an OPER_DATE, which counts seconds from 1990-01-01 in 32 bits",
            code="value_range",
        )
    fraction = min((since.microseconds * 65536 + 500_000) // _MICROSECONDS, 0xFFFF)
    return (seconds << 16 | fraction).to_bytes(6, "big")


def to_utc(oper_date: bytes, zone: tzinfo) -> datetime | None:
    """Return the moment of an OPER_DATE in UTC, None for six zero bytes.

    A local time that occurs twice is taken as its first occurrence.
    """
    if oper_date == _NO_DATE:
        return None
    return decode_oper_date(oper_date).replace(tzinfo=zone).astimezone(UTC)


def from_utc(moment: datetime | None, zone: tzinfo) -> bytes:
    """Return the OPER_DATE of a moment, six zero bytes for None. Raises NotExpressible."""
    return (
        _NO_DATE
        if moment is None
        else encode_oper_date(moment.astimezone(zone).replace(tzinfo=None))
    )


def syslog_addr(value: int) -> tuple[int, int]:
    """Split a SYSLOG_ADDR, a place in the system log, into file number and address.

    SQL may return it as a negative number.
    """
    value &= MASK_64
    return value >> 32, value & 0xFFFFFFFF


def blob_attr(value: int) -> tuple[int, int]:
    """Split a BLOBATR into the ATRNUM of the BLOB's column and the type of the BLOB.

    SQL may return it as a negative number.
    """
    value &= 0xFFFF
    return value & 0xFF, value >> 8


def signed(value: int, bits: int) -> int:
    """Return the value that a signed SQL column of this many bits has for an unsigned number."""
    return value - (1 << bits) if value >> (bits - 1) else value


def stripped(value: Any) -> str:
    """Return the text of a CHAR column without trailing blanks and NUL bytes. NULL becomes the
    empty text.

    Raises FormatError.
    """
    if value is None:
        return ""
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError as error:
            raise FormatError(
                f"a CHAR column contains bytes that are not UTF-8: {error}", code="bad_column_value"
            ) from None
    if not isinstance(value, str):
        raise FormatError(
            f"a CHAR column contains {value!r:.60}, which is not text", code="bad_column_value"
        )
    return value.rstrip(" \0")


def data_bytes(value: Any) -> bytes:
    """Return as bytes DATA that is given as bytes or as hex digits. NULL becomes empty bytes.

    Raises FormatError.
    """
    if value is None:
        return b""
    if isinstance(value, str):
        try:
            return bytes.fromhex(value)
        except ValueError as error:
            raise FormatError(
                f"DATA is text but not hex digits: {error}", code="bad_column_value"
            ) from None
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise FormatError(
        f"DATA contains {value!r:.60}, which is neither bytes nor hex digits",
        code="bad_column_value",
    )


def integer(name: str, value: Any) -> int:
    """Return a whole number that is given as a number or as decimal text.

    Raises FormatError, which names the column.
    """
    try:
        number = whole_number(value) if isinstance(value, Decimal) else int(value)
        if number is not None and (isinstance(value, str) or number == value):
            return number
    except (TypeError, ValueError, OverflowError):
        pass
    raise FormatError(
        f"column {name} contains {value!r:.60}, which is not a whole number",
        code="bad_column_value",
    )


QUEUE_TYPES: Final = {
    "OPER_DATE": ("binary", 6), "EXTDATA": ("int16", 2), "DBNODE": ("string", 8),
    "TRANSACT_ID": ("int64", 8), "SYSLOG_ADDR": ("int64", 8), "TYP": ("int16", 2),
    "BLOBATR": ("int16", 2), "CHANNEL": ("int32", 4), "TABNUM_SRC": ("int32", 4),
    "ROWID_SRC": ("int32", 4), "LEN1": ("int32", 4), "LEN2": ("int32", 4), "DST_SERVER": ("string",
    8), "DST_OWNER": ("string", 66), "DST_TABLE": ("string", 66), "DATA": ("binary", DATA_SIZE),
}  # fmt: skip
"""The columns of DISPATCH_QUEUE in the order of the manual. Each has the Arrow name of its type,
and its number of bytes.
"""

QUEUE_COLUMNS: Final = tuple(QUEUE_TYPES)
_OPTIONAL_COLUMNS: Final = frozenset({"CHANNEL", "ROWID_SRC"})

Where = Callable[[], str]


class Destination(NamedTuple):
    """The destination of a row: server, owner and table, without padding."""

    server: str
    owner: str
    table: str


class DispatchRow(NamedTuple):
    """A row of DISPATCH_QUEUE.

    In a COMMIT or ROLLBACK ``blobatr``, ``tabnum_src``, ``rowid_src``, ``destination`` and ``data``
    are never read (formats/linter-queue.md 5), so they may contain anything.
    """

    oper_date: bytes
    extdata: int
    dbnode: str
    transact_id: int
    syslog_addr: int
    """The address, unsigned. The transaction's id is unsigned, too."""
    typ: int
    blobatr: Any
    channel: int | None
    """The channel, None if unknown."""
    tabnum_src: Any
    rowid_src: Any
    """The row id, None if unknown."""
    len1: int
    len2: int
    destination: Destination
    data: Any
    """The data, which may still be hex digits."""

    @property
    def identity(self) -> tuple[Any, ...]:
        """The fields that identify this row if it is read again (formats/linter-queue.md 5)."""
        identity: tuple[Any, ...] = _IDENTITY(self)
        return identity


_IDENTITY = itemgetter(2, 4, 5, 8, 9, 12, 1)


def column_positions(
    names: Sequence[str], wanted: Sequence[str], optional: Iterable[str] = (), *, table: str
) -> list[int | None]:
    """Return the position of each wanted column among ``names``, which are matched without case.
    The position of an optional column that is absent is None.

    Raises MissingColumn, which names the column.
    """
    places = {name.casefold(): position for position, name in reversed(list(enumerate(names)))}
    positions = [places.get(name.casefold()) for name in wanted]
    for name, position in zip(wanted, positions, strict=True):
        if position is None and name not in optional:
            raise MissingColumn(
                f"column {name} of {table} is missing; the columns are {', '.join(names) or 'none'}"
            )
    return positions


def dispatch_rows(
    names: Sequence[str], values: Iterable[Sequence[Any]], where: Where | None = None
) -> Iterator[DispatchRow]:
    """Read the rows of a table or an export, in its order. ``names`` are its columns. DATA loses
    its padding.

    ``where`` returns the place of the last row that was read; errors name this place. Raises
    MissingColumn immediately, and FormatError when the rows are read.
    """
    positions = column_positions(names, QUEUE_COLUMNS, _OPTIONAL_COLUMNS, table="DISPATCH_QUEUE")
    width = len(names)
    pick = itemgetter(*(width if position is None else position for position in positions))
    if None in positions:
        values = ((*row, None) for row in values)
    return _dispatch_rows(map(pick, values), where)


def _dispatch_rows(values: Iterable[tuple[Any, ...]], where: Where | None) -> Iterator[DispatchRow]:
    """Yield the rows whose values come in the order of ``QUEUE_COLUMNS``.

    Raises as ``dispatch_rows`` does.
    """
    text = _Texts()
    destination = _Destinations()
    make, row_type = tuple.__new__, DispatchRow
    for (
        oper_date, extdata, dbnode, transact_id, address, typ, blobatr, channel, tabnum,
        rowid, len1, len2, server, owner, table, data,
    ) in values:  # fmt: skip
        try:
            if not (type(oper_date) is bytes and len(oper_date) == 6):
                oper_date = oper_date_bytes(oper_date)
            if not (
                type(extdata) is int is type(transact_id) is type(address) is type(typ)
                is type(len1) is type(len2) is type(tabnum) is type(blobatr)
                and (rowid is None or type(rowid) is int)
                and (channel is None or type(channel) is int)
            ):  # fmt: skip
                extdata, typ = integer("EXTDATA", extdata), integer("TYP", typ)
                transact_id = integer("TRANSACT_ID", transact_id)
                address = integer("SYSLOG_ADDR", address)
                len1, len2 = integer("LEN1", len1), integer("LEN2", len2)
                blobatr, channel, tabnum, rowid = map(
                    _unchecked_integer, (blobatr, channel, tabnum, rowid)
                )
            try:
                dbnode, going_to = text[dbnode], destination[server, owner, table]
            except TypeError:
                raise FormatError(
                    "DBNODE, DST_SERVER, DST_OWNER or DST_TABLE is not text: "
                    f"{(dbnode, server, owner, table)!r:.80}",
                    code="bad_column_value",
                ) from None
            if extdata == 0 and 0 <= len1 + len2 <= DATA_SIZE:
                # The rest of DATA is never read, and rows stay in memory.
                if type(data) is bytes:
                    data = data[: len1 + len2]
                elif type(data) is str:
                    data = data[: 2 * (len1 + len2)]
            yield make(
                row_type,
                (
                    oper_date, extdata, dbnode, transact_id & MASK_64, address & MASK_64, typ,
                    blobatr, channel, tabnum, rowid, len1, len2, going_to, data,
                ),
            )  # fmt: skip
        except FormatError as error:
            raise error if where is None else with_location(error, where()) from None


def _unchecked_integer(value: Any) -> Any:
    """Return the value of a column of numbers that only some operations read. For a value that is
    not a number, return a text that shows the value.

    NULL may be given as empty text. The operation decides whether the column is used.
    """
    if value is None or value == "":
        return None
    try:
        return integer("", value)
    except FormatError:
        return repr(value)


class _Texts(dict[Any, str]):
    """The CHAR values without their padding. Each distinct text is stripped only once, since a
    queue has few distinct texts.
    """

    def __missing__(self, value: Any) -> str:
        text = self[value] = stripped(value)
        return text


class _Destinations(dict[Any, Destination]):
    def __missing__(self, value: tuple[Any, Any, Any]) -> Destination:
        destination = self[value] = Destination(*map(stripped, value))
        return destination


def column_values(row: DispatchRow) -> tuple[Any, ...]:
    """Return the row as a table holds it, with signed numbers and with padded text and DATA
    (formats/linter-queue.md 8).
    """
    server, owner, table = row.destination
    return (
        row.oper_date,
        row.extdata,
        row.dbnode.ljust(8),
        signed(row.transact_id, 64),
        signed(row.syslog_addr, 64),
        row.typ,
        signed(row.blobatr & 0xFFFF, 16),
        row.channel,
        row.tabnum_src,
        row.rowid_src,
        row.len1,
        row.len2,
        server.ljust(8),
        owner.ljust(66),
        table.ljust(66),
        data_bytes(row.data).ljust(DATA_SIZE, b"\0"),
    )


# --- DISPATCH_ATTRS -------------------------------------------------------------------------------

ATTRS_TYPES: Final = {
    "TABNUM_SRC": ("int32", 4), "NAME": ("string", 66), "ATRNUM": ("int16", 2), "TYP": ("int16", 2),
    "PKEY": ("int16", 2), "LEN": ("int32", 4),
}  # fmt: skip
"""The columns of DISPATCH_ATTRS in the order of the manual, described as in ``QUEUE_TYPES``."""

ATTRS_COLUMNS: Final = tuple(ATTRS_TYPES)


class ColumnAttrs(NamedTuple):
    """A replicated column.

    ``pkey`` is the place of the column in the key, 0 if it is not in the key; ``length`` is in
    bytes.
    """

    name: str
    atrnum: int
    typ: int
    pkey: int
    length: int


@dataclass(frozen=True)
class TableAttrs:
    """A replicated table: its number at the source, and its columns by ATRNUM."""

    tabnum: int
    columns: tuple[ColumnAttrs, ...]

    def __hash__(self) -> int:
        # Codecs cache what they prepare for a table in a dictionary, with a look-up for every row.
        return self.tabnum

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of the columns."""
        return frozenset(column.name for column in self.columns)

    @cached_property
    def key(self) -> Names:
        """The key columns in key order. If every PKEY is 1, this is the order of ATRNUM."""
        return tuple(
            column.name for column in sorted(self.columns, key=lambda one: one.pkey) if column.pkey
        )


def table_attrs(tabnum: int, columns: Iterable[ColumnAttrs]) -> TableAttrs:
    """Return a table of columns that are given in any order."""
    return TableAttrs(tabnum, tuple(sorted(columns, key=lambda column: column.atrnum)))


def attrs_of_rows(
    names: Sequence[str], values: Iterable[Sequence[Any]], where: Where | None = None
) -> dict[int, TableAttrs]:
    """Return the tables, by number, that rows of DISPATCH_ATTRS describe. ``names`` are the columns
    of the rows.

    ``where`` returns the place of the last row that was read; errors name this place. Raises
    MissingColumn, FormatError.
    """
    positions = [
        position or 0 for position in column_positions(names, ATTRS_COLUMNS, table="DISPATCH_ATTRS")
    ]
    columns: dict[int, list[ColumnAttrs]] = {}
    for row in values:
        tabnum, name, atrnum, typ, pkey, length = (row[position] for position in positions)
        try:
            columns.setdefault(integer("TABNUM_SRC", tabnum), []).append(
                ColumnAttrs(
                    stripped(name),
                    integer("ATRNUM", atrnum),
                    integer("TYP", typ),
                    integer("PKEY", pkey or 0),
                    integer("LEN", length),
                )
            )
        except FormatError as error:
            raise error if where is None else with_location(error, where()) from None
    return {tabnum: table_attrs(tabnum, described) for tabnum, described in columns.items()}


def attrs_of_option(option: Any) -> dict[int, TableAttrs]:
    """Return the tables, by number, that an option ``dispatch_attrs`` describes.

    The option maps each number to a TableAttrs, or to a list of objects with name, typ, len and
    optionally atrnum (default: the place in the list) and pkey (default: 0). Raises ConfigError.
    """
    if not isinstance(option, Mapping):
        raise ConfigError(
            "dispatch_attrs must map the number of each table to a list of its columns"
        )
    tables = {}
    for tabnum, columns in option.items():
        try:
            if not isinstance(columns, TableAttrs):
                described = (
                    _column_of_option(number, column) for number, column in enumerate(columns, 1)
                )
                columns = table_attrs(int(tabnum), described)
            tables[int(tabnum)] = columns
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise ConfigError(
                f"dispatch_attrs[{tabnum!r}] cannot be read ({error!r}); set it to a list of "
                "objects, each with name, typ, len, atrnum and pkey"
            ) from None
    return tables


def _column_of_option(number: int, column: JsonObject) -> ColumnAttrs:
    unknown = column.keys() - {"name", "atrnum", "typ", "pkey", "len"}
    if unknown:
        raise ConfigError(f"a column of dispatch_attrs has the unknown member {min(unknown)!r}")
    return ColumnAttrs(
        str(column["name"]),
        int(column.get("atrnum", number)),
        int(column["typ"]),
        int(column.get("pkey", 0)),
        int(column["len"]),
    )


def attrs_values(table: TableAttrs) -> Iterator[tuple[Any, ...]]:
    """Yield the rows that DISPATCH_ATTRS has for a table, with values in the order of ATTRS_COLUMNS
    (formats/linter-queue.md 8).
    """
    for column in table.columns:
        yield (
            table.tabnum,
            column.name.ljust(66),
            column.atrnum,
            column.typ,
            column.pkey,
            column.length,
        )
