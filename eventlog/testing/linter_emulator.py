"""A queue from a seeded workload, for tests and for users without a server (formats/linter-queue.md
7, 8).

The workload has interleaved transactions, rollbacks, reused transaction numbers, rows of several
parts, BLOB operations, several destinations, and log files that wrap around. Its row images are the
invented images of ``linter_codec``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Final, NamedTuple

from eventlog.linter.codec import Typ
from eventlog.linter.dispatch_tables import (
    ColumnAttrs,
    Destination,
    DispatchRow,
    TableAttrs,
    from_utc,
    table_attrs,
    to_utc,
)
from eventlog.linter.operations import (
    BLOB_OPERATIONS,
    CLEAR_BLOB,
    CREATE_BLOB,
    DELETE,
    INSERT,
    INSERT_BLOB,
    UPDATE,
)
from eventlog.linter.writer import SystemLog, first_address
from eventlog.model import Change, ChangeOp, Value, differing
from eventlog.testing.linter_codec import EmulatorCodec

Row = dict[str, Value]

ITEM: Final = table_attrs(
    7,
    (
        ColumnAttrs("ID", 1, Typ.INTEGER, 1, 4),
        ColumnAttrs("NAME", 2, Typ.VARCHAR, 0, 20),
        ColumnAttrs("PRICE", 3, Typ.DECIMAL, 0, 16),
        ColumnAttrs("NOTE", 4, Typ.CHAR, 0, 5),
    ),
)
READING: Final = table_attrs(
    8,
    (
        ColumnAttrs("K1", 1, Typ.INTEGER, 2, 8),
        ColumnAttrs("K2", 2, Typ.CHAR, 1, 6),
        ColumnAttrs("SMALL", 3, Typ.INTEGER, 0, 2),
        ColumnAttrs("SINGLE", 4, Typ.REAL, 0, 4),
        ColumnAttrs("DOUBLE", 5, Typ.REAL, 0, 8),
        ColumnAttrs("TAKEN", 6, Typ.DATE, 0, 16),
        ColumnAttrs("RAW", 7, Typ.BYTE, 0, 4),
        ColumnAttrs("VARRAW", 8, Typ.VARBYTE, 0, 10),
        ColumnAttrs("VALID", 9, Typ.BOOLEAN, 0, 1),
        ColumnAttrs("PLACE", 10, Typ.NCHAR, 0, 8),
        ColumnAttrs("REMARK", 11, Typ.NVARCHAR, 0, 20),
    ),
)
DOCUMENT: Final = table_attrs(
    9,
    (
        ColumnAttrs("ID", 1, Typ.INTEGER, 1, 4),
        ColumnAttrs("TITLE", 2, Typ.VARCHAR, 0, 40),
        ColumnAttrs("BODY", 3, Typ.VARCHAR, 0, 4000),
        ColumnAttrs("APPENDIX", 4, Typ.VARCHAR, 0, 4000),
        ColumnAttrs("SCAN", 5, Typ.BLOB, 0, 16),
    ),
)

TABLES: Final[Mapping[str, TableAttrs]] = {"ITEM": ITEM, "READING": READING, "DOCUMENT": DOCUMENT}
"""The tables of the workload by name."""

ATTRS: Final = {table.tabnum: table for table in TABLES.values()}
"""The content of DISPATCH_ATTRS for these tables."""

OWNER: Final = "APP"
_OPS: Final = {
    INSERT: ChangeOp.INSERT,
    UPDATE: ChangeOp.UPDATE,
    DELETE: ChangeOp.DELETE,
    CLEAR_BLOB: ChangeOp.UPDATE,
}


@dataclass(frozen=True, slots=True)
class Workload:
    """A seeded workload."""

    seed: int
    transactions: int = 100
    """The total number of transactions."""
    at_once: int = 4
    """The maximum number of transactions that are open at the same time."""
    operations: int = 8
    """The maximum number of operations of a transaction."""
    rolled_back: float = 0.2
    """The share of transactions that end with ROLLBACK."""
    servers: Sequence[str] = ("DSTSRV",)
    """The destinations of each row."""
    tables: Sequence[str] = tuple(TABLES)
    """Names of TABLES."""
    unfinished: bool = False
    """True if the last open transactions stay open."""
    continuation_lengths: str = "per_row"
    address: int = first_address()
    """The address where the log begins."""


class Step(NamedTuple):
    """The result of one step of the workload: its rows, and the changes that these rows commit. A
    reader must return these changes.
    """

    rows: list[DispatchRow]
    changes: list[Change]


@dataclass(slots=True)
class _Transaction:
    """An open transaction.

    ``done`` has the changes that a reader makes from the transaction's operations. The positions of
    the changes are the addresses of the operations. ``undo`` has the rows as they were before the
    transaction.
    """

    number: int
    channel: int
    length: int
    done: list[Change] = field(default_factory=list)
    undo: list[tuple[str, int, Row | None]] = field(default_factory=list)


def emulate(workload: Workload) -> Iterator[Step]:
    """Yield the steps of a workload; equal workloads have equal steps."""
    random = Random(workload.seed)  # noqa: S311 - not for secrets
    emulation = _Emulation(workload, random)
    started, running = 0, list[_Transaction]()
    while started < workload.transactions or (running and not workload.unfinished):
        begin = started < workload.transactions and len(running) < workload.at_once
        if begin and (not running or random.random() < 0.3):
            started += 1
            free = set(range(1, 2 * workload.at_once + 1)) - {one.number for one in running}
            length = random.randint(0, workload.operations)
            running.append(_Transaction(random.choice(sorted(free)), random.randint(1, 9), length))
            continue
        one = random.choice(running)
        if len(one.undo) < one.length:
            yield emulation.operation(one)
        else:
            running.remove(one)
            yield emulation.end(one, committed=random.random() >= workload.rolled_back)


class _Emulation:
    """The state of an emulation: contents of the tables, clock and log."""

    def __init__(self, workload: Workload, random: Random) -> None:
        self._workload = workload
        self._random = random
        self._log = SystemLog("SRCDB", workload.continuation_lengths, workload.address)
        self._codec = EmulatorCodec()
        self._now = datetime(2025, 3, 23, 10, 57, 51, tzinfo=UTC)
        self._contents: dict[str, dict[int, Row]] = {table: {} for table in workload.tables}
        self._locked: set[tuple[str, int]] = set()
        self._row_ids = 0

    def operation(self, transaction: _Transaction) -> Step:
        """Run one operation on a row that no other open transaction has touched."""
        random = self._random
        table = random.choice(self._workload.tables)
        touched = {(name, row_id) for name, row_id, _ in transaction.undo}
        rows = self._contents[table]
        locked = self._locked - touched
        free = [row_id for row_id in rows if (table, row_id) not in locked]
        typ = (
            random.choice((INSERT, UPDATE, UPDATE, DELETE, CLEAR_BLOB, CREATE_BLOB))
            if free
            else INSERT
        )
        if typ in (CLEAR_BLOB, CREATE_BLOB) and table != "DOCUMENT":
            typ = UPDATE
        if typ == INSERT:
            self._row_ids += 1
            return self._write(
                transaction, typ, table, self._row_ids, None, self._row(table, self._row_ids)
            )
        row_id = random.choice(free)
        old = rows[row_id]
        new: Row | None = None
        if typ == UPDATE:
            new = self._changed(table, old)
        elif typ == CLEAR_BLOB:
            new = {**old, "SCAN": None}
        elif typ == CREATE_BLOB:
            typ, new = random.choice((CREATE_BLOB, INSERT_BLOB)), old
        return self._write(transaction, typ, table, row_id, old, new)

    def _write(
        self,
        transaction: _Transaction,
        typ: int,
        table: str,
        row_id: int,
        old: Row | None,
        new: Row | None,
    ) -> Step:
        transaction.undo.append((table, row_id, old))
        self._locked.add((table, row_id))
        self._put(table, row_id, new)
        attrs = TABLES[table]
        images = [row for row in (old, new) if row is not None]
        if typ in BLOB_OPERATIONS:
            parts = [self._random.randbytes(self._random.randint(0, 200))]
        else:
            parts = [
                self._codec.encode(attrs, image)
                for image in (images[:1] if typ == CLEAR_BLOB else images)
            ]
            changed = (
                frozenset({"SCAN"})
                if typ == CLEAR_BLOB
                else differing(*images)
                if typ == UPDATE
                else None
            )
            key = tuple((name, images[-1][name]) for name in attrs.key)
            position = f"{self._log.address:016x}"
            transaction.done.append(
                Change(OWNER, table, _OPS[typ], key, old, new, changed, position)
            )
        blobatr = 0x0300 | 5 if typ in (CLEAR_BLOB, *BLOB_OPERATIONS) else 0
        destinations = [Destination(server, OWNER, table) for server in self._workload.servers]
        oper_date = self._oper_date()
        rows = self._log.operation(
            transaction.number,
            transaction.channel,
            oper_date,
            typ,
            attrs.tabnum,
            row_id,
            parts,
            destinations,
            blobatr,
        )
        return Step(list(rows), [])

    def end(self, transaction: _Transaction, *, committed: bool) -> Step:
        """End a transaction with COMMIT or ROLLBACK."""
        for table, row_id, old in reversed(transaction.undo):
            if not committed:
                self._put(table, row_id, old)
            self._locked.discard((table, row_id))
        oper_date = self._oper_date()
        row = self._log.end(transaction.number, transaction.channel, oper_date, committed=committed)
        if not committed:
            return Step([row], [])
        changes = [
            change._replace(
                position=f"{row.syslog_addr:016x}:{change.position}",
                transaction_id=f"{transaction.number:032X}",
                event_number=number,
                last_in_transaction=number == len(transaction.done),
                commit_time=to_utc(row.oper_date, UTC),
            )
            for number, change in enumerate(transaction.done, 1)
        ]
        return Step([row], changes)

    def _put(self, table: str, row_id: int, row: Row | None) -> None:
        if row is None:
            self._contents[table].pop(row_id, None)
        else:
            self._contents[table][row_id] = row

    def _oper_date(self) -> bytes:
        # Each time is unique, since order_by oper_date orders the operations by it.
        self._now += timedelta(seconds=0.001 + self._random.random() / 10)
        return from_utc(self._now, UTC)

    def _row(self, table: str, row_id: int) -> Row:
        return {
            column.name: _key_value(column, row_id)
            if column.pkey
            else _random_value(column, self._random)
            for column in TABLES[table].columns
        }

    def _changed(self, table: str, old: Row) -> Row:
        """Return the row with changed columns: sometimes with none, sometimes with the key."""
        new = dict(old)
        for column in TABLES[table].columns:
            if not column.pkey and self._random.random() < 0.4:
                new[column.name] = _random_value(column, self._random)
        if self._random.random() < 0.1:
            self._row_ids += 1
            key = next(column for column in TABLES[table].columns if column.pkey)
            new[key.name] = _key_value(key, self._row_ids)
        return new


def _key_value(column: ColumnAttrs, number: int) -> Value:
    return number if column.typ == Typ.INTEGER else f"K{number % 97}"


_LETTERS: Final = "abcdefghijklmnopqrstuvwxyzäßéдж漢 -"


def _random_value(column: ColumnAttrs, random: Random) -> Value:
    """Return a random value that the row image preserves."""
    if random.random() < 0.1:
        return None
    length = column.length
    match column.typ:
        case Typ.INTEGER:
            return random.randrange(-(1 << 8 * length - 1), 1 << 8 * length - 1)
        case Typ.REAL:
            return random.randrange(-1000, 1000) / 8
        case Typ.DATE:
            moment = datetime(1990, 1, 1) + timedelta(
                days=random.randrange(20_000), seconds=random.randrange(86_400)
            )
            return moment.replace(microsecond=random.randrange(100) * 10_000)
        case Typ.DECIMAL:
            return Decimal(random.randrange(-(10**12), 10**12)).scaleb(-random.randrange(8))
        case Typ.BYTE | Typ.BLOB:
            return random.randbytes(length)
        case Typ.VARBYTE:
            return random.randbytes(random.randint(0, length))
        case Typ.BOOLEAN:
            return random.random() < 0.5
        case Typ.NCHAR | Typ.NVARCHAR:
            return _text(random, random.randint(0, length // 2)).rstrip()
        case _:
            return (
                _text(random, random.randint(0, length))
                .encode()[:length]
                .decode(errors="ignore")
                .rstrip()
            )


def _text(random: Random, length: int) -> str:
    # Long texts repeat a short text, since tests need only their length.
    short = "".join(random.choices(_LETTERS, k=min(length, 40)))
    return (short * (length // 40 + 1))[:length]
