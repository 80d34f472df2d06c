"""Combine the rows of the queue into committed transactions, and convert the transactions to
Changes (formats/linter-queue.md 5, 6; spec/change-model.md 2, 3.4).

``QueueReader._committed`` runs once for each row and ``_transaction_changes`` once for each change.
So both functions unpack rows by position and keep their state in local names, and a change is made
from its fields by position. The price: the same loop checks the order of rows and collects
transactions, and the code relies on the positions of the fields of DispatchRow and Change.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import chain
from operator import attrgetter
from typing import Any, Final, NamedTuple

from eventlog.changes.format import Report
from eventlog.core.options import (
    CHARSET,
    OBJECT,
    STRING,
    ZONE,
    CheckedOptions,
    Option,
    OptionKind,
    choice,
    number,
    option,
    shared,
)
from eventlog.core.values.moments import time_zone_named
from eventlog.errors import ConfigError, FormatError, NotExpressible, check_result
from eventlog.linter.codec import EMULATOR_CODEC, RowCodec, RowDecodeError, row_codec
from eventlog.linter.dispatch_tables import (
    Destination,
    DispatchRow,
    TableAttrs,
    attrs_of_option,
    blob_attr,
    stripped,
    to_utc,
)
from eventlog.linter.operations import (
    BLOB_OPERATIONS,
    DELETE,
    INSERT,
    PROSE,
    TYP_TABLES,
    UPDATE,
    Operation,
    check_code,
    table_number,
    transaction_operations,
    where,
)
from eventlog.model import Change, ChangeOp, Names, RowDict, TableName, differing, full_name

_log = logging.getLogger(__name__)


def parse_place(value: Any) -> Sequence[str | None]:
    """Return a list of server, owner and table after checking that each of the three is a text or
    None.

    Raises ValueError.
    """
    if (
        isinstance(value, list | tuple)
        and len(value) == 3
        and all(isinstance(one, str | None) for one in value)
    ):
        return value
    raise ValueError


def _parse_tables(value: Any) -> dict[int, TableName]:
    """Return schema and table by the number of the table. Each value is ``owner.table``, or the
    result of an earlier parse.

    Raises ConfigError, ValueError.
    """
    tables: dict[int, TableName] = {}
    for tabnum, name in OBJECT.parse(value).items():
        if not isinstance(name, tuple):
            owner, dot, table = STRING.parse(name).partition(".")
            name = (owner or None, table) if dot else (None, owner)
        try:
            tables[int(tabnum)] = name
        except (TypeError, ValueError):
            raise ConfigError(
                f"tables has the member {tabnum!r}; name each member by the number of a table"
            ) from None
    return tables


def _parse_codec(value: Any) -> RowCodec | str:
    row_codec(value)
    codec: RowCodec | str = value
    return codec


TIME_ZONE: Final = Option("UTC", ZONE, "zone of the server's clock")
TABLES: Final = Option(
    {},
    OptionKind(_parse_tables, 'an object such as {"7": "app.item"}'),
    "owner.table by the number of the table",
)
DISPATCH_ATTRS: Final = Option(
    {},
    OptionKind(attrs_of_option, "an object: number of the table -> list of columns"),
    "descriptions of the tables, instead of a file of DISPATCH_ATTRS",
)
CODEC_CHARSET: Final = Option("utf-8", CHARSET, "character set of the emulator's codec")

_ORDERS: Final = {
    "syslog": ("syslog_addr", "extdata"),
    "oper_date": ("oper_date", "syslog_addr", "extdata"),
}
_TOKEN: Final = re.compile("(?:([0-9a-f]{12}):)?([0-9a-f]{16})")


def place_of_token(token: str, order_by: str) -> tuple[bytes, int]:
    """Return the pair in a token that the places of COMMIT rows are compared with: OPER_DATE (empty
    under ``syslog``) and address. Raises ConfigError.
    """
    match = _TOKEN.fullmatch(token)
    if match is None or (match[1] is None) is not (order_by == "syslog"):
        shape = (
            "16 hex digits" if order_by == "syslog" else "12 hex digits, a colon and 16 hex digits"
        )
        raise ConfigError(
            f"restart token {token!r} does not match order_by = {order_by}: it must have {shape}"
        )
    return bytes.fromhex(match[1] or ""), int(match[2], 16)


def _place(commit: DispatchRow, order_by: str) -> tuple[bytes, int]:
    """Return the place of a COMMIT row, which is compared with the place of a token."""
    return b"" if order_by == "syslog" else commit.oper_date, commit.syslog_addr


def _restart_token(commit: DispatchRow, order_by: str) -> str:
    """Return the restart token of a transaction from its COMMIT row."""
    address = f"{commit.syslog_addr:016x}"
    return address if order_by == "syslog" else f"{commit.oper_date.hex()}:{address}"


def _in_order(rows: Iterable[DispatchRow], order_by: str) -> list[DispatchRow]:
    """Return the rows in the order of the option ``order_by`` (formats/linter-queue.md 5)."""
    ordered = list(rows)
    # One sort for each column, so that no row needs a tuple as its key.
    for column in reversed(_ORDERS[order_by]):
        ordered.sort(key=attrgetter(column))
    return ordered


@dataclass(frozen=True, slots=True)
class ReaderOptions(CheckedOptions):
    """Options of the reader, with the names of formats/linter-queue.md. Raises ConfigError."""

    typ_table: str = option(
        "fields", choice(*TYP_TABLES), "table of operation codes (TYP) that the server uses"
    )
    time_zone: str = shared(TIME_ZONE)
    order_by: str = option(
        "syslog", choice(*_ORDERS), "the column that determines the order of operations"
    )
    order_tolerance: float = option(
        7200,
        number(0),
        "with order_by = syslog: seconds by which OPER_DATE may go back without a warning",
    )
    restart: str | None = option(None, STRING, "token of an earlier read, from which to continue")
    dbnode: str | None = option(None, STRING, "read only the changes of this node")
    destinations: str = option(
        "first",
        choice("first", "all"),
        "read a change for several destinations once, or once per destination",
    )
    destination: Sequence[str | None] | None = option(
        None,
        OptionKind(parse_place, "a list of server, owner and table, null for any"),
        "read only changes for this destination: server, owner, table",
    )
    tables: Mapping[int, TableName] = shared(TABLES)
    codec: RowCodec | str = option(
        "none",
        OptionKind(_parse_codec, f"none, {EMULATOR_CODEC}, or an object"),
        "codec of the row images",
    )
    charset: str = shared(CODEC_CHARSET)
    on_row_error: str = option(
        "error", choice("error", "raw"), "what happens to a row that cannot be decoded"
    )
    blob_operations: str = option(
        "skip", choice("skip", "error"), "what happens to operations that only change a BLOB"
    )

    def __post_init__(self) -> None:
        CheckedOptions.__post_init__(self)
        if self.restart is not None:
            place_of_token(self.restart, self.order_by)


class _ReadTable(NamedTuple):
    """The values that all changes of one table to one destination share."""

    schema: str | None
    table: str
    destination: tuple[str, str, str]
    attrs: TableAttrs | None
    key: Names


class QueueReader:
    """A reader of a queue. ``read`` accepts the present rows of the queue and returns the new
    changes; it may be called repeatedly.

    ``attrs`` are the tables by number. ``restart_token`` is the token of the last transaction whose
    changes were all yielded; a later reader accepts this token as ``restart``. Rows of transactions
    that are open at the end of a read are kept for the next read. ``seen`` holds the identities of
    the rows that are not read again.

    After an error, or after a read that was not finished, continue with a new reader and the token.
    """

    def __init__(
        self,
        attrs: Mapping[int, TableAttrs],
        options: ReaderOptions | None = None,
        report: Report | None = None,
    ) -> None:
        self._options = options = options or ReaderOptions()
        self._attrs = attrs
        self._count = (report or Report()).count
        self._codec = row_codec(options.codec, options.charset)
        self._zone = time_zone_named(options.time_zone)
        self._targets: dict[tuple[int, Destination], _ReadTable] = {}
        self._typ_table = TYP_TABLES[options.typ_table]
        self._dbnode = None if options.dbnode is None else stripped(options.dbnode)
        self.restart_token = options.restart
        self.seen: set[tuple[Any, ...]] = set()
        self._present: set[tuple[Any, ...]] = set()
        self._open_rows: list[DispatchRow] = []  # rows of open transactions
        self._nodes: set[str] = set()
        self._greatest = bytes(6)  # greatest OPER_DATE so far
        self._warned_of_order = self._warned_of_prose = False

    def read(self, rows: Iterable[DispatchRow], *, final: bool = False) -> Iterator[Change]:
        """Return the changes of the transactions whose ends are among the rows. The rows may come
        in any order.

        ``final`` has the same meaning as in ``changes``. Raises FormatError.
        """
        ordered = _in_order(rows if final else self.fresh(rows), self._options.order_by)
        return self.changes(ordered, final=final)

    def fresh(self, rows: Iterable[DispatchRow]) -> Iterator[DispatchRow]:
        """Yield the rows that no earlier read has seen.

        Exhaust the iterator before calling ``changes``.
        """
        seen, present = self.seen, set()
        for row in rows:
            identity = row.identity
            present.add(identity)
            if identity not in seen:
                yield row
        self._present = present

    def describe(self, attrs: Mapping[int, TableAttrs]) -> None:
        """Replace the descriptions of the tables by ``attrs``."""
        if attrs != self._attrs:
            self._attrs = attrs
            self._targets.clear()

    def attrs_of(self, tabnum: int) -> TableAttrs | None:
        """Return the description of a table, None if it has none."""
        return self._attrs.get(tabnum)

    def changes(self, rows: Iterable[DispatchRow], *, final: bool) -> Iterator[Change]:
        """Yield the changes of the transactions whose ends are among the rows. The rows are
        ``fresh``, and in the order of ``order_by``.

        With ``final`` no row is kept for another read. Raises FormatError.
        """
        order_by = self._options.order_by
        every_destination = self._options.destinations == "all"
        for commit, before in self._committed(rows, final=final):
            done = transaction_operations(
                before, self._typ_table, every_destination=every_destination
            )
            changes = self._transaction_changes(commit, done)
            if changes:
                yield from changes
                self.restart_token = _restart_token(commit, order_by)

    def _committed(
        self, rows: Iterable[DispatchRow], *, final: bool
    ) -> Iterator[tuple[DispatchRow, list[DispatchRow]]]:
        """Yield the committed transactions of rows that are in order. A transaction is its COMMIT
        row, and its other rows.

        Transactions up to the restart token, if there is one, are left out. With ``final`` no row
        is kept. Raises FormatError and the errors of ``check_code``.
        """
        table, token = self._typ_table, self.restart_token
        order_by = self._options.order_by
        by_syslog = order_by == "syslog"
        behind = None if token is None else place_of_token(token, order_by)
        is_operation, commit = table.operations, table.commit
        open_rows: dict[tuple[str, int], list[DispatchRow]] = {}
        greatest = self._greatest
        for row in self._chosen(rows, token):
            oper_date, _, node, transact_id, _, typ, _, _, _, _, _, _, _, _ = row
            operation = typ in is_operation
            if not operation or typ == 4:
                check_code(row, table)
            if oper_date >= greatest:
                greatest = oper_date
            elif by_syslog:
                self._late(row, greatest)
            transaction = (node, transact_id)
            if operation:
                if transaction in open_rows:
                    open_rows[transaction].append(row)
                else:
                    open_rows[transaction] = [row]
                continue
            if table is PROSE:
                self._warn_of_prose(typ)
            its_rows = open_rows.pop(transaction, None)
            if its_rows is None or typ != commit:  # rows that are rolled back are not checked
                continue
            if behind is None or _place(row, order_by) > behind:
                yield row, its_rows
        self._greatest = greatest
        if final:
            self._count_open(open_rows.values())
            open_rows = {}
        self._keep(open_rows.values())

    def _chosen(self, rows: Iterable[DispatchRow], token: str | None) -> Iterator[DispatchRow]:
        """Yield the rows that the options ``dbnode`` and ``destination`` select from the kept rows
        and the new rows, in order. The end of a transaction concerns every destination, so
        ``destination`` does not leave it out. Raises FormatError.
        """
        dbnode, destination, ends = self._dbnode, self._options.destination, self._typ_table.ends
        if self._open_rows:
            rows = merge(self._open_rows, rows, key=attrgetter(*_ORDERS[self._options.order_by]))
        last_node = None
        for row in rows:
            node = row[2]
            if node != last_node:
                if dbnode is not None and node != dbnode:
                    continue
                last_node = node
                self._meet(row, token)
            if destination is None or row.typ in ends or _is_for(destination, row):
                yield row

    def _keep(self, transactions: Iterable[list[DispatchRow]]) -> None:
        """Keep the rows of the open transactions, and their identities, for the next read."""
        self._open_rows = _in_order(chain.from_iterable(transactions), self._options.order_by)
        self.seen = self._present.union(row.identity for row in self._open_rows)

    def _count_open(self, transactions: Iterable[list[DispatchRow]]) -> None:
        """Count the transactions that no row ends. Warn about each transaction that would have an
        end under the other table of operation codes.
        """
        for rows in transactions:
            self._count("open_transactions")
            if self._typ_table is PROSE and any(
                row.typ == 4 and row.len1 == 0 == row.len2 for row in rows
            ):
                _log.warning(
                    "%s: the transaction of this row has no end. It has operations TYP 4 without "
                    "data, which mean COMMIT if typ_table = fields; check that typ_table = prose "
                    "is right",
                    where(rows[0]),
                )

    def _warn_of_prose(self, typ: int) -> None:
        if not self._warned_of_prose:
            self._warned_of_prose = True
            _log.warning(
                "with typ_table = prose, TYP %d is ambiguous: each row of this TYP is read as "
                "COMMIT, but may be a ROLLBACK",
                typ,
            )

    def _meet(self, row: DispatchRow, token: str | None) -> None:
        self._nodes.add(row.dbnode)
        if token is not None and len(self._nodes) > 1:
            raise FormatError(
                f"{where(row)}: there are rows of {', '.join(map(repr, sorted(self._nodes)))}, "
                f"whose addresses cannot be compared with the restart token {token}; choose a "
                "node with the option dbnode",
                code="several_nodes",
            )

    def _late(self, row: DispatchRow, greatest: bytes) -> None:
        late = int.from_bytes(greatest, "big") - int.from_bytes(row.oper_date, "big")
        if late > self._options.order_tolerance * 65536:
            self._count("log_order")
            if not self._warned_of_order:
                self._warned_of_order = True
                _log.warning(
                    "%s: OPER_DATE goes back %d s. If file numbers have wrapped around, set "
                    "order_by = oper_date",
                    where(row),
                    late >> 16,
                )

    def _transaction_changes(self, commit: DispatchRow, done: list[Operation]) -> list[Change]:
        done = self._row_operations(done)
        commit_address = f"{commit.syslog_addr:016x}:"
        transaction_id = f"{commit.transact_id:032X}"
        commit_time = to_utc(commit.oper_date, self._zone)
        last = len(done)
        changes = []
        target: _ReadTable | None = None
        same: tuple[Any, Any] = None, None
        for ordinal, (row, part1, part2) in enumerate(done, 1):
            (
                oper_date,
                _,
                dbnode,
                _,
                address,
                typ,
                _,
                channel,
                tabnum,
                row_id,
                _,
                _,
                destination,
                _,
            ) = row
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
                key = (
                    tuple([(name, image[name]) for name in target.key])
                    if image and target.key
                    else None
                )
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

    def _row_operations(self, done: list[Operation]) -> list[Operation]:
        """Return the operations that change rows. Operations that only concern BLOBs are left out,
        or raise NotExpressible (option ``blob_operations``).
        """
        of_blobs = [row for row, _, _ in done if row.typ in BLOB_OPERATIONS]
        if not of_blobs:
            return done
        if self._options.blob_operations == "error":
            row = of_blobs[0]
            raise NotExpressible(
                f"{where(row)}: the BLOB operation TYP {row.typ} is not a change of a row; set "
                "blob_operations = skip to leave such operations out"
            )
        for _ in of_blobs:
            self._count("blob_operations")
        return [operation for operation in done if operation[0].typ not in BLOB_OPERATIONS]

    def _target(self, row: DispatchRow) -> _ReadTable:
        tabnum, destination = table_number(row), row.destination
        schema, table = self._options.tables.get(tabnum) or (
            destination.owner or None,
            destination.table,
        )
        attrs = None
        if self._codec is not None:
            attrs = self._attrs.get(tabnum)
            if attrs is None:
                raise FormatError(
                    f"{where(row)}: table {tabnum} ({destination.table}) is not described by "
                    "DISPATCH_ATTRS",
                    code="schema_missing",
                )
        target = self._targets[tabnum, destination] = _ReadTable(
            schema,
            table,
            (destination.server, destination.owner, destination.table),
            attrs,
            () if attrs is None else attrs.key,
        )
        return target

    def _images(
        self, row: DispatchRow, part1: bytes, part2: bytes, target: _ReadTable
    ) -> _Images | None:
        """Return ``before``, ``after`` and ``changed`` of an operation. Return None if its row
        images cannot be decoded, so that the change has them only in raw form.
        """
        assert self._codec is not None
        assert target.attrs is not None
        decode = self._codec.decode
        typ = row.typ
        try:
            old = values_of(decode, target.attrs, part1)
            new = values_of(decode, target.attrs, part2) if typ == UPDATE else None
        except Exception as error:
            if self._options.on_row_error == "error":
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


def values_of(
    decode: Callable[[TableAttrs, bytes], RowDict], attrs: TableAttrs, image: bytes
) -> RowDict:
    """Return the values that a codec reads from an image. Raises WrongResult."""
    values = decode(attrs, image)
    check_result(decode, values, dict, "a dict of the values by column")
    return values


_Image = RowDict | None
_Images = tuple[_Image, _Image, frozenset[str] | None]

# CLEAR BLOB is not in this list, and becomes an UPDATE, too.
_OPS: Mapping[int, ChangeOp] = {DELETE: ChangeOp.DELETE, INSERT: ChangeOp.INSERT}


def _blob_column(row: DispatchRow, attrs: TableAttrs) -> str:
    number, _ = blob_attr(row.blobatr if isinstance(row.blobatr, int) else 0)
    for column in attrs.columns:
        if column.atrnum == number:
            return column.name
    raise FormatError(
        f"{where(row)}: BLOBATR names column {number}, which DISPATCH_ATTRS does not describe",
        code="schema_missing",
    )


def _is_for(destination: Sequence[str | None], row: DispatchRow) -> bool:
    return all(
        wanted in (None, named) for wanted, named in zip(destination, row.destination, strict=True)
    )
