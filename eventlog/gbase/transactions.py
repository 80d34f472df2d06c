"""Records to committed transactions: interleaving, rollback, savepoints, update pairs (spec/gbase-cdc.md 4)."""

from __future__ import annotations

import logging
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import chain
from typing import Final

from eventlog.errors import FormatError
from eventlog.gbase.layout import Layout, Layouts
from eventlog.gbase.open_transaction import ENTRY_OVERHEAD, Entry, OpenTransaction, weight
from eventlog.gbase.options import ReadOptions, Token
from eventlog.gbase.records import (
    BEGINTX,
    COMMTX,
    DELETE,
    DISCARD,
    ERROR,
    FIELDS,
    INSERT,
    RBTX,
    RECORD_NAMES,
    ROWS,
    TABSCHEM,
    TRUNCATE,
    UPDAFT,
    UPDBEF,
    Frame,
    at_offset,
    fields_of,
)
from eventlog.gbase.session import SessionDead, error_name
from eventlog.model import ChangeOp

_log = logging.getLogger(__name__)

_ROW: Final = struct.Struct(">QII")  # what row records and TRUNCATE begin with
_DEAD: Final = 1

Operation = tuple[ChangeOp, Entry, Entry | None]
"""What one change is made of: the record that gives its place and row, and of an update the one with the old row."""

_OPERATIONS: Final = {
    INSERT: ChangeOp.INSERT,
    DELETE: ChangeOp.DELETE,
    UPDBEF: ChangeOp.DELETE,  # one that is no half of an update
    TRUNCATE: ChangeOp.TRUNCATE,
}


class DuplicateBegin(FormatError):
    """A transaction that begins while one with its id is open (spec/gbase-cdc.md 4)."""

    code = "duplicate_begin"
    cure = 'Read the capture once and from its start, or set `duplicate_begin = "replace"`.'


class OrphanRecord(FormatError):
    """A record of a transaction that did not begin, with ``orphans = "raise"`` (spec/gbase-cdc.md 4)."""

    code = "orphan_record"
    cure = 'Begin the capture before the transaction begins, or set `orphans = "skip"`.'


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed transaction. ``begin_seq`` names it; ``commit_time`` in seconds since 1970; ``offset`` is that of its
    COMMTX record. ``operations`` can be read once, while the transaction is the last that was handed out.
    """

    begin_seq: int
    commit_seq: int
    commit_time: int
    os_user: int
    offset: int
    operations: Iterator[Operation]


class Transactions:
    """Collects records per transaction and hands a transaction out at its COMMTX.

    ``counters``: orphan_records, unknown_records, unpaired_updaft, unpaired_updbef. ``on_idle`` is called at a TIMEOUT
    with the sequence of the last data.
    """

    def __init__(
        self, options: ReadOptions, layouts: Layouts, counters: Counter[str], on_idle: Callable[[int], None] | None
    ) -> None:
        self._options = options
        self._layouts = layouts
        self._counters = counters
        self._on_idle = on_idle
        self._open: dict[int, OpenTransaction] = {}
        self._delivering: OpenTransaction | None = None
        self._bytes_in_memory = 0
        self._restarted = options.restart is not None
        self._last_end, self._commit = options.token
        self._dead: SessionDead | None = None

    @property
    def token(self) -> Token:
        """From where to read again after all that was handed out so far."""
        begun = [transaction.begin_seq for transaction in self._open.values()]
        if self._delivering is not None:
            begun.append(self._delivering.begin_seq)
        restart = min(begun, default=self._last_end)
        return Token(restart, self._commit)

    def take(self, frames: Iterator[Frame]) -> Iterator[Committed]:
        """The transactions that the records commit. Raises FormatError.

        A transaction counts as delivered, for ``token``, when the next one is asked for.
        """
        if self._dead is not None:
            raise self._dead
        layouts, open_transactions = self._layouts, self._open
        unpack_row, make, max_open_bytes = _ROW.unpack_from, tuple.__new__, self._options.max_open_bytes
        offset = 0
        layout: Layout | None
        try:
            for offset, number, header_size, record in frames:
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
                    self._other(offset, number, header_size, record)
                    continue
                transaction = open_transactions.get(tx)
                if transaction is None:
                    self._orphan(number, tx)
                    continue
                entry = make(Entry, (number, seq, label, layout, header_size, record, offset, -1, None))
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

    def close(self) -> None:
        """Drop what is open; ``token`` stays."""
        self._last_end = self.token.restart
        for transaction in self._open.values():
            transaction.close()
        self._open.clear()
        self._delivering = None

    def _other(self, offset: int, number: int, header_size: int, record: bytes) -> None:
        """Take a record that neither belongs to a transaction's rows nor commits it."""
        if number not in FIELDS:
            self._counters["unknown_records"] += 1
            return
        if number == TABSCHEM:
            self._layouts.define(record, header_size)
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
            self._error(offset, *fields)
        elif self._on_idle is not None:
            self._on_idle(*fields)

    def _begin(self, seq: int, tx: int, _time: int, os_user: int) -> None:
        transaction = self._open.get(tx)
        if transaction is not None:
            if transaction.begin_seq == seq:
                return
            if self._options.duplicate_begin == "raise":
                raise DuplicateBegin(
                    f"transaction id {tx} begins with sequence {seq:016x} while the one begun with "
                    f"{transaction.begin_seq:016x} is open; to drop that one set duplicate_begin = replace"
                )
            self._bytes_in_memory -= transaction.bytes_in_memory
            transaction.close()
        self._open[tx] = OpenTransaction(seq, os_user)

    def _end(self, tx: int) -> OpenTransaction | None:
        transaction = self._open.pop(tx, None)
        if transaction is None:  # nothing of it is lost, or its rows have raised
            self._counters["orphan_records"] += 1
            return None
        self._bytes_in_memory -= transaction.bytes_in_memory
        return transaction

    def _deliver(self, offset: int, seq: int, tx: int, time: int) -> Iterator[Committed]:
        transaction = self._end(tx)
        if transaction is None:
            return
        delivered_before = self._options.token.commit
        # Until it was taken whole, a restart has to begin at its BEGINTX.
        self._delivering = transaction
        try:
            if delivered_before is None or seq > delivered_before:
                operations: Iterator[Operation] = _operations(transaction, self._counters)
                first = next(operations, None)
                if first is not None or self._options.empty_transactions:
                    whole = operations if first is None else chain((first,), operations)
                    yield Committed(transaction.begin_seq, seq, time, transaction.os_user, offset, whole)
                self._commit = seq if self._commit is None else max(seq, self._commit)
        finally:
            transaction.close()
        self._delivering = None
        self._last_end = seq

    def _orphan(self, number: int, tx: int) -> None:
        if self._options.orphans == "raise" and not self._restarted:
            raise OrphanRecord(
                f"{RECORD_NAMES[number]} is of transaction {tx}, which has not begun: "
                "read the capture from its start, or set orphans = skip"
            )
        self._counters["orphan_records"] += 1

    def _error(self, offset: int, flags: int, code: int) -> None:
        if flags & _DEAD:
            self._dead = SessionDead(code)
            raise self._dead
        _log.warning("ERROR record at offset %d: code %d (%s), flags %d", offset, code, error_name(code), flags)

    def _free_memory(self) -> None:
        # The largest ones, until half of the room is free again.
        for transaction in sorted(
            self._open.values(), key=lambda transaction: transaction.bytes_in_memory, reverse=True
        ):
            self._bytes_in_memory -= transaction.bytes_in_memory
            transaction.move_to_file()
            if self._bytes_in_memory <= self._options.max_open_bytes // 2:
                break


def _operations(transaction: OpenTransaction, counters: Counter[str]) -> Iterator[Operation]:
    if not transaction.plain:
        yield from _resolved(transaction, counters)
        return
    for entry in transaction.entries:
        number = entry.number
        if number == UPDAFT:
            if entry.before is None:
                counters["unpaired_updaft"] += 1
            yield ChangeOp.UPDATE, entry, entry.before
        elif number != UPDBEF:
            yield _OPERATIONS[number], entry, None


def _resolved(transaction: OpenTransaction, counters: Counter[str]) -> Iterator[Operation]:
    """The operations where an UPDBEF is left without its UPDAFT: with an INSERT beside it it is an update, else a
    delete (spec/gbase-cdc.md 4). Both wait for the record that follows them.
    """
    unpaired = merge(*transaction.unpaired.values())
    next_unpaired = next(unpaired, None)
    waiting: Entry | None = None  # the first half of what may be an update
    for place, entry in transaction.kept():
        number = entry.number
        while next_unpaired is not None and next_unpaired < place:
            next_unpaired = next(unpaired, None)
        lone = place == next_unpaired
        if lone:
            counters["unpaired_updbef"] += 1
        is_half = lone or number == INSERT
        if waiting is not None:
            half, waiting = waiting, None
            if is_half and entry.label == half.label and number != half.number:
                yield (ChangeOp.UPDATE, entry, half) if number == INSERT else (ChangeOp.UPDATE, half, entry)
                continue
            yield _OPERATIONS[half.number], half, None
        if is_half:
            waiting = entry
        elif number == UPDAFT:
            if entry.before is None:
                counters["unpaired_updaft"] += 1
            yield ChangeOp.UPDATE, entry, entry.before
        elif number != UPDBEF:
            yield _OPERATIONS[number], entry, None
    if waiting is not None:
        yield _OPERATIONS[waiting.number], waiting, None
