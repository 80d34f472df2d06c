"""Rows of the queue -> Change (spec/linter-queue.md 5, 6; spec/change-model.md 2, 3.4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from eventlog.changes.format import Report
from eventlog.core.moments import time_zone_named
from eventlog.core.options import (
    CHARSET,
    OBJECT,
    STRING,
    CheckedOptions,
    Kind,
    Option,
    choice,
    number,
    option,
    shared,
)
from eventlog.errors import ConfigError, NotExpressible, SchemaMissing
from eventlog.linter.codec import RowCodec, RowDecodeError, row_codec
from eventlog.linter.rows import (
    ColumnAttrs,
    Destination,
    QueueRow,
    TableAttrs,
    blob_attr,
    stripped,
    table_attrs,
    to_utc,
)
from eventlog.linter.transactions import (
    BLOB_OPERATIONS,
    DELETE,
    INSERT,
    ORDERS,
    TYP_TABLES,
    UPDATE,
    Operation,
    Transactions,
    in_order,
    of_transaction,
    place_of_token,
    restart_token,
    table_number,
    where,
)
from eventlog.model import Change, ChangeOp, Value, differing, full_name


def parse_place(value: Any) -> Sequence[str | None]:
    """Server, owner and table, each a text or None. Raises ValueError."""
    if isinstance(value, list | tuple) and len(value) == 3 and all(isinstance(one, str | None) for one in value):
        return value
    raise ValueError


def _parse_tables(value: Any) -> dict[int, tuple[str | None, str]]:
    """Schema and table by number, of ``owner.table`` or as they are returned. Raises ConfigError, ValueError."""
    tables: dict[int, tuple[str | None, str]] = {}
    for tabnum, name in OBJECT.parse(value).items():
        if not isinstance(name, tuple):
            owner, dot, table = STRING.parse(name).partition(".")
            name = (owner or None, table) if dot else (None, owner)
        try:
            tables[int(tabnum)] = name
        except (TypeError, ValueError):
            raise ConfigError(f"tables has {tabnum!r} where the number of a table belongs") from None
    return tables


def _parse_codec(value: Any) -> RowCodec | str:
    row_codec(value)
    codec: RowCodec | str = value
    return codec


def attrs_of_option(option: Any) -> dict[int, TableAttrs]:
    """The tables of an option ``dispatch_attrs``: by number, a TableAttrs or a list of objects with name, typ, len and,
    where they are not the place in the list and 0, atrnum and pkey.

    Raises ConfigError.
    """
    if not isinstance(option, Mapping):
        raise ConfigError("dispatch_attrs is no object of lists of columns by the number of the table")
    tables = {}
    for tabnum, columns in option.items():
        try:
            if not isinstance(columns, TableAttrs):
                described = (_column_of_option(number, column) for number, column in enumerate(columns, 1))
                columns = table_attrs(int(tabnum), described)
            tables[int(tabnum)] = columns
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise ConfigError(
                f"dispatch_attrs of table {tabnum!r} cannot be read ({error!r}); "
                "give a list of objects with name, typ, len, atrnum and pkey under the number of the table"
            ) from None
    return tables


def _column_of_option(number: int, column: Mapping[str, Any]) -> ColumnAttrs:
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


TIMEZONE: Final = Option("UTC", STRING, "zone of the server's clock")
TABLES: Final = Option(
    {}, Kind(_parse_tables, 'an object such as {"7": "app.item"}'), "owner.table by the number of the table"
)
DISPATCH_ATTRS: Final = Option(
    {}, Kind(attrs_of_option, "an object: number of the table -> list of columns"), "tables, in place of attrs"
)
CODEC_CHARSET: Final = Option("utf-8", CHARSET, "character set of the emulator's codec")


@dataclass(frozen=True, slots=True)
class ReaderOptions(CheckedOptions):
    """The reader's options under the names of spec/linter-queue.md. Raises ConfigError."""

    typ_table: str = option("fields", choice(*TYP_TABLES), "table of TYP that the server uses")
    timezone: str = shared(TIMEZONE)
    order_by: str = option("syslog", choice(*ORDERS), "what orders operations")
    order_tolerance: float = option(7200, number(0), "with order_by = oper_date: seconds that rows may come late")
    restart: str | None = option(None, STRING, "token of an earlier read, to go on from")
    dbnode: str | None = option(None, STRING, "read the changes of this node alone")
    destinations: str = option(
        "first", choice("first", "all"), "read a change for several destinations once, or for each"
    )
    destination: Sequence[str | None] | None = option(
        None,
        Kind(parse_place, "a list of server, owner and table, null for any"),
        "read only what goes to this destination: server, owner, table",
    )
    tables: Mapping[int, tuple[str | None, str]] = shared(TABLES)
    codec: RowCodec | str = option(
        "none", Kind(_parse_codec, "none, eventlog-emulator-1 or an object"), "codec of the row images"
    )
    charset: str = shared(CODEC_CHARSET)
    on_row_error: str = option("raise", choice("raise", "raw"), "what happens to a row that cannot be decoded")
    blob_operations: str = option("skip", choice("skip", "raise"), "what happens to operations on a BLOB alone")

    def __post_init__(self) -> None:
        CheckedOptions.__post_init__(self)
        if self.restart is not None:
            place_of_token(self.restart, self.order_by)


class _ReadTable(NamedTuple):
    """What the changes of one table to one destination have in common."""

    schema: str | None
    table: str
    destination: tuple[str, str, str]
    attrs: TableAttrs | None
    key: tuple[str, ...]


class QueueReader:
    """Reads a queue, once or again and again: ``read`` takes what the queue holds and gives what is new.

    ``attrs`` are the tables by number. ``restart_token`` is what a later reader is given as ``restart``: that of the
    last transaction whose changes were handed out whole.

    After an error, or a read that was left half-way, go on with a new reader and the token.
    """

    def __init__(
        self, attrs: Mapping[int, TableAttrs], options: ReaderOptions | None = None, report: Report | None = None
    ) -> None:
        self._options = options = options or ReaderOptions()
        self._attrs = attrs
        self._count = (report or Report()).count
        self._codec = row_codec(options.codec, options.charset)
        self._zone = time_zone_named(options.timezone, "timezone")
        self._targets: dict[tuple[int, Destination], _ReadTable] = {}
        self._typ_table = TYP_TABLES[options.typ_table]
        self.transactions = Transactions(
            self._typ_table,
            options.order_by,
            options.order_tolerance,
            None if options.dbnode is None else stripped(options.dbnode),
            options.destination,
            self._count,
        )
        self.restart_token = None if options.restart is None else str(options.restart)

    def read(self, rows: Iterable[QueueRow], *, final: bool = False) -> Iterator[Change]:
        """The changes of the transactions that end among the rows, which may come in any order; ``final`` as of
        ``changes``. Raises FormatError.
        """
        ordered = in_order(rows if final else self.transactions.fresh(rows), self._options.order_by)
        return self.changes(ordered, final=final)

    def describe(self, attrs: Mapping[int, TableAttrs]) -> None:
        """Put ``attrs`` in the place of those given before."""
        if attrs != self._attrs:
            self._attrs = attrs
            self._targets.clear()

    def changes(self, rows: Iterable[QueueRow], *, final: bool) -> Iterator[Change]:
        """The changes of the transactions that end among the rows, ``transactions.fresh`` ones in the order in force.

        ``final``: nothing is kept for another read. Raises FormatError.
        """
        order_by = self._options.order_by
        every_destination = self._options.destinations == "all"
        for commit, before in self.transactions.committed(rows, self.restart_token, final=final):
            done = of_transaction(before, self._typ_table, every_destination=every_destination)
            changes = self._of_transaction(commit, done)
            if changes:
                yield from changes
                self.restart_token = restart_token(commit, order_by)

    def _of_transaction(self, commit: QueueRow, done: list[Operation]) -> list[Change]:
        if any(row.typ in BLOB_OPERATIONS for row, _, _ in done):
            done = [operation for operation in done if self._makes_change(operation[0])]
        commit_address = f"{commit.syslog_addr:016x}:"
        transaction_id = f"{commit.transact_id:032X}"
        commit_time = to_utc(commit.oper_date, self._zone)
        last = len(done)
        changes = []
        target: _ReadTable | None = None
        same: tuple[Any, Any] = None, None
        for ordinal, (row, part1, part2) in enumerate(done, 1):
            oper_date, _, dbnode, _, address, typ, _, channel, tabnum, row_id, _, _, destination, _ = row
            if target is None or tabnum is not same[0] or destination is not same[1]:
                same = tabnum, destination
                target = self._targets.get(same) or self._target(row)
            extras: dict[str, Any] = {
                "dbnode": dbnode,
                "oper_date": oper_date.hex(),
                "table_number": tabnum,
                "destination": target.destination,
                "syslog_addr": address,
            }
            if channel is not None:
                extras["channel"] = channel
            if row_id is not None:
                extras["row_id"] = row_id
            images = None if target.attrs is None else self._images(row, part1, part2, target)
            if images is None:
                extras["part1"], extras["part2"] = part1, part2
                key = before = after = changed = None
            else:
                before, after, changed = images
                image = before if after is None else after
                key = tuple([(name, image[name]) for name in target.key]) if image and target.key else None
            changes.append(
                Change(
                    target.schema,
                    target.table,
                    _OPS.get(typ, ChangeOp.UPDATE),
                    key,
                    before,
                    after,
                    changed,
                    f"{commit_address}{address:016x}",
                    transaction_id,
                    ordinal,
                    ordinal == last,
                    commit_time,
                    None,
                    extras,
                )
            )
        return changes

    def _makes_change(self, row: QueueRow) -> bool:
        if row.typ not in BLOB_OPERATIONS:
            return True
        if self._options.blob_operations == "raise":
            raise NotExpressible(
                f"{where(row)}: the BLOB operation TYP {row.typ} is no change of a row; "
                "set blob_operations to skip to leave such operations out"
            )
        self._count("blob_operations")
        return False

    def _target(self, row: QueueRow) -> _ReadTable:
        tabnum, destination = table_number(row), row.destination
        schema, table = self._options.tables.get(tabnum) or (destination.owner or None, destination.table)
        attrs = None
        if self._codec is not None:
            attrs = self._attrs.get(tabnum)
            if attrs is None:
                raise SchemaMissing(
                    f"{where(row)}: table {tabnum} ({destination.table}) is not described by DISPATCH_ATTRS"
                )
        target = self._targets[tabnum, destination] = _ReadTable(
            schema,
            table,
            (destination.server, destination.owner, destination.table),
            attrs,
            () if attrs is None else attrs.key,
        )
        return target

    def _images(self, row: QueueRow, part1: bytes, part2: bytes, target: _ReadTable) -> _Images | None:
        """Before, after and changed of an operation; None for a row that goes on as raw parts."""
        assert self._codec is not None
        assert target.attrs is not None
        decode = self._codec.decode
        typ = row.typ
        try:
            old = decode(target.attrs, part1)
            new = decode(target.attrs, part2) if typ == UPDATE else None
        except Exception as error:
            if self._options.on_row_error == "raise":
                name = full_name(target.schema, target.table)
                column = error.column if isinstance(error, RowDecodeError) else None
                raise RowDecodeError(
                    f"{where(row)}: row of {name} (table {row.tabnum_src}): {error}",
                    None if column is None else f"{name}.{column}",
                ) from error
            self._count("row_errors")
            return None
        if new is not None:
            return old, new, differing(old, new)
        if typ == INSERT:
            return None, old, None
        if typ == DELETE:
            return old, None, None
        name = _blob_column(row, target.attrs)
        return old, {**old, name: None}, frozenset({name})


_Image = dict[str, Value] | None
_Images = tuple[_Image, _Image, frozenset[str] | None]

# CLEAR BLOB is an update too.
_OPS: Mapping[int, ChangeOp] = {DELETE: ChangeOp.DELETE, INSERT: ChangeOp.INSERT}


def _blob_column(row: QueueRow, attrs: TableAttrs) -> str:
    number, _ = blob_attr(row.blobatr if isinstance(row.blobatr, int) else 0)
    for column in attrs.columns:
        if column.atrnum == number:
            return column.name
    raise SchemaMissing(f"{where(row)}: BLOBATR names column {number}, which DISPATCH_ATTRS does not describe")
