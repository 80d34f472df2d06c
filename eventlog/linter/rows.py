"""A row of DISPATCH_QUEUE, from columns of any order and case, and back (spec/linter-queue.md 1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

from eventlog.errors import FormatError, with_location
from eventlog.linter.errors import BadColumnValue, MissingColumn
from eventlog.linter.fields import DATA_SIZE, MASK_64, data_bytes, integer, oper_date_bytes, signed, stripped

COLUMNS: Final = (
    "OPER_DATE", "EXTDATA", "DBNODE", "TRANSACT_ID", "SYSLOG_ADDR", "TYP", "BLOBATR", "CHANNEL", "TABNUM_SRC",
    "ROWID_SRC", "LEN1", "LEN2", "DST_SERVER", "DST_OWNER", "DST_TABLE", "DATA",
)  # fmt: skip
"""The columns of DISPATCH_QUEUE in the order of the manual."""

OPTIONAL_COLUMNS: Final = frozenset({"CHANNEL", "ROWID_SRC"})

CHAR_WIDTHS: Final = {"DBNODE": 8, "DST_SERVER": 8, "DST_OWNER": 66, "DST_TABLE": 66}


class Destination(NamedTuple):
    """Where a row goes: server, owner and table, without padding."""

    server: str
    owner: str
    table: str


class QueueRow(NamedTuple):
    """One row. ``transact_id`` and ``syslog_addr`` are unsigned; ``channel`` and ``rowid_src`` None = not known.

    ``blobatr``, ``tabnum_src``, ``rowid_src``, ``destination`` and ``data`` of COMMIT and ROLLBACK are not looked
    at (spec/linter-queue.md 5), so they may hold anything there; ``data`` may still be hex digits.
    """

    oper_date: bytes
    extdata: int
    dbnode: str
    transact_id: int
    syslog_addr: int
    typ: int
    blobatr: Any
    channel: int | None
    tabnum_src: Any
    rowid_src: Any
    len1: int
    len2: int
    destination: Destination
    data: Any

    @property
    def identity(self) -> tuple[Any, ...]:
        """What a row is known by when it is read again (spec/linter-queue.md 5)."""
        identity: tuple[Any, ...] = _IDENTITY(self)
        return identity


_IDENTITY = itemgetter(2, 4, 5, 8, 9, 12, 1)


def column_positions(
    names: Sequence[str], wanted: Sequence[str], optional: Iterable[str] = (), *, table: str
) -> list[int | None]:
    """Where each wanted column stands among ``names``, which are matched without case; None: optional and absent.

    Raises MissingColumn naming the column.
    """
    places = {name.casefold(): position for position, name in reversed(list(enumerate(names)))}
    positions = [places.get(name.casefold()) for name in wanted]
    for name, position in zip(wanted, positions, strict=True):
        if position is None and name not in optional:
            raise MissingColumn(f"column {name} of {table} is missing; there are {', '.join(names) or 'none'}")
    return positions


def queue_rows(
    names: Sequence[str], values: Iterable[Sequence[Any]], place: Callable[[int], str] | None = None
) -> Iterator[QueueRow]:
    """The rows of a table or an export whose columns are ``names``, in its order; DATA without its padding.

    ``place`` says where the row of an index stands, for errors. Raises MissingColumn at once, and, when the rows are
    asked for, BadOperDate, BadColumnValue.
    """
    positions = column_positions(names, COLUMNS, OPTIONAL_COLUMNS, table="DISPATCH_QUEUE")
    return _queue_rows(len(names), positions, values, place)


def _queue_rows(
    width: int,
    positions: list[int | None],
    values: Iterable[Sequence[Any]],
    place: Callable[[int], str] | None,
) -> Iterator[QueueRow]:
    absent = None in positions
    pick = itemgetter(*(width if position is None else position for position in positions))
    text = _Texts()
    destination = _Destinations()
    make, row_type = tuple.__new__, QueueRow
    for index, row in enumerate(values):
        try:
            (
                oper_date, extdata, dbnode, transact_id, address, typ, blobatr, channel, tabnum, rowid, len1, len2,
                server, owner, table, data,
            ) = pick((*row, None) if absent else row)  # fmt: skip
            if not (type(oper_date) is bytes and len(oper_date) == 6):
                oper_date = oper_date_bytes(oper_date)
            if not (
                type(extdata) is int is type(transact_id) is type(address) is type(typ) is type(len1) is type(len2)
                is type(tabnum) is type(blobatr)
                and (rowid is None or type(rowid) is int) and (channel is None or type(channel) is int)
            ):  # fmt: skip
                extdata, typ = integer("EXTDATA", extdata), integer("TYP", typ)
                transact_id, address = integer("TRANSACT_ID", transact_id), integer("SYSLOG_ADDR", address)
                len1, len2 = integer("LEN1", len1), integer("LEN2", len2)
                blobatr, channel, tabnum, rowid = map(_unchecked_integer, (blobatr, channel, tabnum, rowid))
            try:
                dbnode, going_to = text[dbnode], destination[server, owner, table]
            except TypeError:
                raise BadColumnValue(f"a CHAR column of {(dbnode, server, owner, table)!r:.80} holds no text") from None
            if extdata == 0 and 0 <= len1 + len2 <= DATA_SIZE:
                # No more of it is looked at, and rows are kept in memory.
                if type(data) is bytes:
                    data = data[: len1 + len2]
                elif type(data) is str:
                    data = data[: 2 * (len1 + len2)]
            yield make(
                row_type,
                (
                    oper_date, extdata, dbnode, transact_id & MASK_64, address & MASK_64, typ, blobatr, channel,
                    tabnum, rowid, len1, len2, going_to, data,
                ),
            )  # fmt: skip
        except FormatError as error:
            raise error if place is None else with_location(error, place(index)) from None


def _unchecked_integer(value: Any) -> Any:
    """A number where there is one: whether it is looked at depends on the operation. NULL may be empty text."""
    if value is None or value == "":
        return None
    try:
        return integer("", value)
    except BadColumnValue:
        return repr(value)


class _Texts(dict[Any, str]):
    """CHAR values without their padding, each stripped once: a queue has few of them."""

    def __missing__(self, value: Any) -> str:
        text = self[value] = stripped(value)
        return text


class _Destinations(dict[Any, Destination]):
    def __missing__(self, value: tuple[Any, Any, Any]) -> Destination:
        destination = self[value] = Destination(*map(stripped, value))
        return destination


def queue_rows_of_mappings(rows: Iterable[Mapping[str, Any]]) -> Iterator[QueueRow]:
    """Rows given as objects whose members are the columns; each names all of them.

    Raises MissingColumn, BadOperDate, BadColumnValue.
    """
    for names, alike in groupby(rows, key=tuple):
        yield from queue_rows(names, (tuple(row.values()) for row in alike))


def column_values(row: QueueRow) -> tuple[Any, ...]:
    """The values of COLUMNS as a table holds them: numbers signed, text and DATA padded (spec/linter-queue.md 8)."""
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
