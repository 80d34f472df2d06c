"""Combine the records of a stream into committed transactions, and convert the transactions to
Changes (formats/gbase-cdc.md 4).

Both loops are a hot path: ``StreamReader.transactions`` runs once for each record, the function of
``_maker`` once for each change. Both loops keep methods in local names, make tuples by
``tuple.__new__`` with fields by position, and handle unusual records in ``_unusual``. The price:
the order of fields in ``Entry`` and ``Change`` is repeated here, and the checks of ``Change`` are
skipped because this code ensures what they check.
"""

from __future__ import annotations

import logging
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final

from eventlog.errors import ConfigError, FormatError
from eventlog.gbase.layout import Layout, Layouts
from eventlog.gbase.open_transaction import (
    ENTRY_OVERHEAD,
    Entry,
    OpenTransaction,
    Operation,
    weight,
)
from eventlog.gbase.options import ReadOptions, Token
from eventlog.gbase.records import (
    BEGINTX,
    COMMTX,
    DISCARD,
    ERROR,
    FIELDS,
    RBTX,
    RECORD_NAMES,
    ROWS,
    SESSION_DEAD,
    TABSCHEM,
    TRUNCATE,
    UPDAFT,
    UPDBEF,
    ColumnError,
    Framer,
    at_offset,
    fields_of,
    moment,
)
from eventlog.gbase.session import SessionDead, error_name
from eventlog.model import Change, ChangeOp, Row, Value, differing

_log = logging.getLogger(__name__)

_ROW: Final = struct.Struct(">QII")  # fields at the start of row records and TRUNCATE
_LAST: Final = Change._fields.index("last_in_transaction")


_MOST_OPEN: Final = 100_000
"""The number of transactions that may be open at the same time: each takes about a kilobyte."""


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed transaction."""

    begin_seq: int
    """The sequence of the BEGINTX record, which identifies the transaction."""
    commit_seq: int
    commit_time: int
    """The seconds since 1970."""
    os_user: int
    offset: int
    """The offset of the COMMTX record."""
    operations: Iterator[Operation]
    """The operations, which can be read once, and only before the next transaction is requested."""


class StreamReader:
    """A reader of one stream: ``feed`` accepts bytes in fragments of any size, ``finish`` declares
    the end of the stream.

    ``counters`` has the numbers of skipped and unusual records, under the names of the
    specification. ``on_idle`` is called at each TIMEOUT record with the sequence of the last data.
    ``on_invalid_row`` is called with the error of a row that cannot be read, and the row is left
    out; without this function the error is raised. A reader that continues in the middle of a
    stream must be given ``layouts.size_order`` of the previous reader.
    """

    def __init__(
        self,
        options: ReadOptions | None = None,
        on_idle: Callable[[int], None] | None = None,
        on_invalid_row: Callable[[ColumnError], None] | None = None,
    ) -> None:
        self._options = options = options or ReadOptions()
        self._on_idle = on_idle
        self._on_invalid_row = on_invalid_row
        self.counters: Counter[str] = Counter()
        self.layouts = Layouts(options, self.counters)
        self._framer = Framer(options.max_record)
        self._open: dict[int, OpenTransaction] = {}
        self._delivering: OpenTransaction | None = None
        self._bytes_in_memory = 0
        self._restarted = options.restart is not None
        self._last_end, self._commit = options.token
        self._dead: SessionDead | None = None

    @property
    def token(self) -> Token:
        """The token with which a later reader continues after the changes that the caller has taken
        from ``feed``.

        Save the token once these changes are delivered (formats/gbase-cdc.md 4.1).
        """
        begun = [transaction.begin_seq for transaction in self._open.values()]
        if self._delivering is not None:
            begun.append(self._delivering.begin_seq)
        restart = min(begun, default=self._last_end)
        return Token(restart, self._commit)

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[Change]:
        """Yield the changes that are committed with ``data``, in the order of their COMMTX records.

        Raises FormatError for a record or row that cannot be read, and for a row of an unknown
        table.
        """
        for committed in self.transactions(data):
            yield from self.changes(committed)

    def finish(self) -> None:
        """Declare the end of the stream: open transactions are dropped.

        Raises FormatError if the stream ends inside a record.
        """
        self.close()
        self._framer.finish()

    def close(self) -> None:
        """Drop the open transactions without declaring the end of the stream; ``token`` stays."""
        self._last_end = self.token.restart
        for transaction in self._open.values():
            transaction.close()
        self._open.clear()
        self._delivering = None

    # --- from records to transactions

    def transactions(self, data: bytes | bytearray | memoryview) -> Iterator[Committed]:
        """Yield the transactions that are committed with ``data``. Empty transactions are included
        only with ``empty_transactions``.

        For ``token``, a transaction counts as delivered when the next transaction is requested.
        Raises FormatError.
        """
        if self._dead is not None:
            raise self._dead
        layouts, open_transactions = self.layouts, self._open
        unpack_row = _ROW.unpack_from
        make = tuple.__new__
        max_open_bytes = self._options.max_open_bytes
        offset = 0
        layout: Layout | None
        try:
            for offset, number, header_size, record in self._framer.feed(data):
                if number in ROWS:
                    seq, tx, label = unpack_row(record, 16)
                    layout = layouts[label]
                    if header_size < layout.header_size:
                        layout.check_header(header_size, offset)
                elif number == TRUNCATE:
                    (seq, tx, label), layout = unpack_row(record, 16), None
                elif number == COMMTX:
                    yield from self._deliver(offset, *fields_of(number, record))
                    continue
                else:
                    self._unusual(offset, number, header_size, record)
                    continue
                transaction = open_transactions.get(tx)
                if transaction is None:
                    self._orphan(number, tx)
                    continue
                entry = make(
                    Entry, (number, seq, label, layout, header_size, record, offset, -1, None)
                )
                if UPDBEF <= number <= UPDAFT:
                    entry = transaction.pair(entry)
                transaction.entries.append(entry)
                size = len(record) + ENTRY_OVERHEAD if entry.before is None else weight(entry)
                transaction.bytes_in_memory += size
                self._bytes_in_memory += size
                if self._bytes_in_memory > max_open_bytes:
                    self._free_memory()
        except FormatError as error:
            raise at_offset(error, offset) from None

    def _unusual(self, offset: int, number: int, header_size: int, record: bytes) -> None:
        """Handle a record that is not a row, a TRUNCATE or a COMMTX."""
        if number not in FIELDS:
            self.counters["unknown_records"] += 1
            return
        if number == TABSCHEM:
            self.layouts.define(record, header_size)
            return
        fields = fields_of(number, record)
        if number == BEGINTX:
            self._begin(*fields)
        elif number == RBTX:
            seq, tx = fields
            transaction = self._end(tx)
            if transaction is not None:
                transaction.close()
                self._last_end = seq
        elif number == DISCARD:
            seq, tx = fields
            transaction = self._open.get(tx)
            if transaction is None:
                self._orphan(number, tx)
            else:
                self._bytes_in_memory -= transaction.bytes_in_memory
                transaction.discard(seq)
                self._bytes_in_memory += transaction.bytes_in_memory
        elif number == ERROR:
            flags, code = fields
            if flags & SESSION_DEAD:
                self._dead = SessionDead(code)
                raise self._dead
            _log.warning(
                "ERROR record at offset %d: code %d (%s), flags %d",
                offset,
                code,
                error_name(code),
                flags,
            )
        elif self._on_idle is not None:
            self._on_idle(*fields)

    def _begin(self, seq: int, tx: int, _time: int, os_user: int) -> None:
        transaction = self._open.get(tx)
        if transaction is not None:
            if transaction.begin_seq == seq:
                return
            if self._options.duplicate_begin == "error":
                raise FormatError(
                    f"transaction id {tx} began at sequence {transaction.begin_seq:016x}, has no "
                    f"end, and begins again at {seq:016x}; to drop the first transaction, set "
                    "duplicate_begin = replace",
                    code="duplicate_begin",
                )
            self._bytes_in_memory -= transaction.bytes_in_memory
            transaction.close()
        elif len(self._open) >= _MOST_OPEN:
            raise FormatError(
                f"more than {_MOST_OPEN} transactions are open: the stream lacks their ends",
                code="framing",
            )
        self._open[tx] = OpenTransaction(seq, os_user)

    def _deliver(self, offset: int, seq: int, tx: int, time: int) -> Iterator[Committed]:
        transaction = self._end(tx)
        if transaction is None:
            return
        delivered_before = self._options.token.commit
        # Until the caller has read the transaction whole, a restart has to begin at its BEGINTX.
        self._delivering = transaction
        try:
            if delivered_before is None or seq > delivered_before:
                operations = transaction.operations(self.counters)
                first = next(operations, None)
                if first is not None or self._options.empty_transactions:
                    whole = operations if first is None else chain((first,), operations)
                    yield Committed(
                        transaction.begin_seq, seq, time, transaction.os_user, offset, whole
                    )
                self._commit = seq if self._commit is None else max(seq, self._commit)
        finally:
            transaction.close()
        self._delivering = None
        self._last_end = seq

    def _end(self, tx: int) -> OpenTransaction | None:
        transaction = self._open.pop(tx, None)
        # The transaction had no rows, or its rows were counted or refused as orphans.
        if transaction is None:
            self.counters["orphan_records"] += 1
            return None
        self._bytes_in_memory -= transaction.bytes_in_memory
        return transaction

    def _orphan(self, number: int, tx: int) -> None:
        if self._options.orphans == "error" and not self._restarted:
            raise FormatError(
                f"{RECORD_NAMES[number]} belongs to transaction {tx}, which has not begun: read "
                "the stream from its start, or set orphans = skip",
                code="orphan_record",
            )
        self.counters["orphan_records"] += 1

    def _free_memory(self) -> None:
        # Move the largest transactions to files until half of the memory is free.
        for transaction in sorted(
            self._open.values(), key=lambda transaction: transaction.bytes_in_memory, reverse=True
        ):
            self._bytes_in_memory -= transaction.bytes_in_memory
            try:
                transaction.move_to_file()
            except OSError as error:
                raise ConfigError(
                    f"open transactions cannot be moved to temporary files: {error.strerror}; "
                    "raise max_open_bytes, or make room for files"
                ) from error
            if self._bytes_in_memory <= self._options.max_open_bytes // 2:
                break

    # --- transactions to changes

    def changes(self, committed: Committed) -> Iterator[Change]:
        """Yield the changes of a transaction (formats/gbase-cdc.md 4.2)."""
        make, on_invalid_row = _maker(self._options, committed), self._on_invalid_row
        event_number = 1
        waiting: Change | None = None
        for operation in committed.operations:
            try:
                change = make(operation, event_number)
            except ColumnError as error:
                at_offset(error, _offset(error, operation))
                if on_invalid_row is None:
                    raise
                on_invalid_row(error)
                continue
            if waiting is not None:
                yield waiting
            waiting = change
            event_number += 1
        if waiting is not None:
            yield tuple.__new__(Change, (*waiting[:_LAST], True, *waiting[_LAST + 1 :]))


def _maker(options: ReadOptions, committed: Committed) -> Callable[[Operation, int], Change]:
    """Return the function that makes a change from an operation and its event number.

    All changes of a transaction share the prepared values of the transaction.
    ``last_in_transaction`` is False in each change.
    """
    os_user, begin_seq = committed.os_user, committed.begin_seq
    position = f"{committed.commit_seq:016x}:%016x"
    time = moment(committed.commit_time, committed.offset)
    transaction_id = f"{begin_seq:032X}"
    user = str(os_user)
    extras: dict[int, Mapping[str, str | int]] = {}
    delete, make = ChangeOp.DELETE, tuple.__new__

    def change(operation: Operation, event_number: int) -> Change:
        op, entry, old = operation
        label, layout = entry.label, entry.layout
        if label not in extras:
            extras[label] = {"os_user": os_user, "label": label, "begin_seq": f"{begin_seq:016x}"}
        key = changed = None
        before: Row | None = None
        after: Row | None = None
        if layout is None:
            schema, table = options.name_of(label)
        else:
            schema, table = layout.schema, layout.table
            values = layout.decode(entry.record, entry.header_size)
            # Both have the same length; checking it would take a third of the time.
            row = dict(zip(layout.names, values))  # noqa: B905
            if layout.key_of is not None:
                key = layout.key_of(row)
            if op is delete:
                before = row
            else:
                after = row
                if old is not None:
                    before, changed = _updated(layout, values, row, old)
        # The checks of Change are skipped: the lines above ensure them, and they cost a tenth of
        # the reading time.
        return make(
            Change,
            (
                schema, table, op, key, before, after, changed, position % entry.sequence,
                transaction_id, event_number, False, time, user, extras[label],
            ),
        )  # fmt: skip

    return change


def _updated(
    layout: Layout, values: list[Value], row: Row, old: Entry
) -> tuple[Row, frozenset[str] | None]:
    """Return the row before an update, and the columns whose values the update changes."""
    old_layout = old.layout
    assert old_layout is not None
    before = dict(
        zip(old_layout.names, olds := old_layout.decode(old.record, old.header_size), strict=True)
    )
    if old_layout is not layout:
        return before, differing(before, row)
    if olds == values:
        return before, frozenset()
    names = [name for name, was, now in zip(layout.names, olds, values, strict=True) if was != now]
    return before, frozenset(names)


def _offset(error: ColumnError, operation: Operation) -> int:
    """Return the offset of the record that the error is about: the record of the old row, or the
    record of the row itself.
    """
    _, entry, old = operation
    return (
        old.offset
        if old is not None and error.sequence == old.sequence != entry.sequence
        else entry.offset
    )
