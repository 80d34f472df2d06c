"""Rows in order -> transactions as they are committed (spec/linter-queue.md 5).

What is open at the end of one read is kept for the next, which takes no row twice.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import merge
from operator import attrgetter
from typing import Any, Final, NamedTuple

from eventlog.errors import ConfigError
from eventlog.linter.errors import SeveralNodes
from eventlog.linter.operations import PROSE, TypTable, check_code, where
from eventlog.linter.rows import QueueRow

_log = logging.getLogger(__name__)

_TOKEN: Final = re.compile("(?:([0-9a-f]{12}):)?([0-9a-f]{16})")
_ORDERS: Final = {"syslog": ("syslog_addr", "extdata"), "oper_date": ("oper_date", "syslog_addr", "extdata")}


def check_order_by(order_by: str) -> None:
    """Whether the option ``order_by`` is ``syslog`` or ``oper_date``. Raises ConfigError."""
    if order_by not in ("syslog", "oper_date"):
        raise ConfigError(f"order_by {order_by!r} is unknown; use syslog or oper_date (spec/linter-queue.md 5)")


def in_order(rows: Iterable[QueueRow], order_by: str) -> list[QueueRow]:
    """The rows in the order of the option ``order_by`` (spec/linter-queue.md 5)."""
    ordered = list(rows)
    for column in reversed(_ORDERS[order_by]):  # one after the other: no tuple a row
        ordered.sort(key=attrgetter(column))
    return ordered


def restart_token(commit: QueueRow, order_by: str) -> str:
    """The token of a transaction by its COMMIT row."""
    address = f"{commit.syslog_addr:016x}"
    return address if order_by == "syslog" else f"{commit.oper_date.hex()}:{address}"


def place_of_token(token: str, order_by: str) -> tuple[bytes, int]:
    """What places of COMMIT rows are compared with: OPER_DATE (``syslog``: empty) and address. Raises ConfigError."""
    found = _TOKEN.fullmatch(token)
    if found is None or (found[1] is None) is not (order_by == "syslog"):
        form = "16 hex digits" if order_by == "syslog" else "12 hex digits, a colon and 16 hex digits"
        raise ConfigError(f"restart token {token!r} is none of order_by {order_by}: it has {form}")
    return bytes.fromhex(found[1] or ""), int(found[2], 16)


class Selection(NamedTuple):
    """Which rows are read: of one source database, for some destinations; None = any."""

    dbnode: str | None = None
    destination: tuple[str | None, str | None, str | None] | None = None

    def takes_destination(self, row: QueueRow) -> bool:
        """Whether the row goes to a destination that is asked for."""
        assert self.destination is not None
        return all(wanted in (None, given) for wanted, given in zip(self.destination, row.destination, strict=True))


class Ended(NamedTuple):
    """A transaction that has ended, its rows in order. Of one rolled back nothing is handed out."""

    commit: QueueRow
    rows: list[QueueRow]
    committed: bool


@dataclass(slots=True)
class Transactions:
    """What one read leaves for the next: rows of open transactions, what was seen, and the greatest OPER_DATE.

    ``count`` takes the counters ``log_order`` and ``open_transactions``.
    """

    table: TypTable
    order_by: str
    order_tolerance: float
    selection: Selection
    count: Callable[[str], None]
    kept: list[QueueRow] = field(default_factory=list)
    taken: set[tuple[Any, ...]] = field(default_factory=set)
    present: set[tuple[Any, ...]] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)
    greatest: bytes = bytes(6)
    warned_of_order: bool = False
    warned_of_prose: bool = False

    def fresh(self, rows: Iterable[QueueRow]) -> Iterator[QueueRow]:
        """The rows that no earlier read has taken. To be consumed whole before ``ended``."""
        taken, present = self.taken, set()
        for row in rows:
            identity = row.identity
            present.add(identity)
            if identity not in taken:
                yield row
        self.present = present

    def ended(self, rows: Iterable[QueueRow], token: str | None, *, final: bool) -> Iterator[Ended]:
        """The transactions of a read whose rows are in order, in order of their COMMIT and ROLLBACK rows.

        With a ``token`` in force those that are not behind it are left out. ``final``: nothing is kept. Raises
        SeveralNodes, and what ``check_code`` raises.
        """
        by_syslog = self.order_by == "syslog"
        behind = None if token is None else place_of_token(token, self.order_by)
        if self.kept:
            key = attrgetter(*_ORDERS[self.order_by])
            rows = merge(self.kept, rows, key=key)
        is_operation, commit = self.table.operations, self.table.commit
        ends = (commit, self.table.rollback)
        dbnode, destination = self.selection
        open_rows: dict[tuple[str, int], list[QueueRow]] = {}
        node, greatest = None, self.greatest
        for row in rows:
            oper_date, _, own_node, transact_id, _, typ, _, _, _, _, _, _, _, _ = row
            if own_node != node:
                if dbnode is not None and own_node != dbnode:
                    continue
                node = own_node
                self._meet(row, token)
            operation = typ in is_operation
            if destination is not None and typ not in ends and not self.selection.takes_destination(row):
                continue
            if not operation or typ == 4:
                check_code(row, self.table)
            if by_syslog:
                if oper_date >= greatest:
                    greatest = oper_date
                else:
                    self._late(row, greatest)
            transaction = (own_node, transact_id)
            if operation:
                if transaction in open_rows:
                    open_rows[transaction].append(row)
                else:
                    open_rows[transaction] = [row]
                continue
            if self.table.rollback is None and not self.warned_of_prose:
                self.warned_of_prose = True
                _log.warning("typ_table prose: every TYP %d is taken as COMMIT, ROLLBACK cannot be told from it", typ)
            own = open_rows.pop(transaction, None)
            if own is not None and (behind is None or (b"" if by_syslog else oper_date, row.syslog_addr) > behind):
                yield Ended(row, own, typ == commit)
        self.greatest = greatest
        if final:
            for own in open_rows.values():
                self.count("open_transactions")
                if self.table is PROSE and any(row.typ == 4 and row.len1 == 0 == row.len2 for row in own):
                    _log.warning(
                        "%s: its transaction has no end and operations TYP 4 without data, which are COMMITs of the "
                        "table fields: is typ_table prose right here?",
                        where(own[0]),
                    )
            open_rows = {}
        self.kept = in_order((row for own in open_rows.values() for row in own), self.order_by)
        self.taken = self.present.union(row.identity for row in self.kept)

    def _meet(self, row: QueueRow, token: str | None) -> None:
        self.nodes.add(row.dbnode)
        if token is not None and len(self.nodes) > 1:
            raise SeveralNodes(
                f"{where(row)}: there are rows of {', '.join(map(repr, sorted(self.nodes)))}, whose addresses cannot "
                f"be compared with the restart token {token}; choose one with the option dbnode"
            )

    def _late(self, row: QueueRow, greatest: bytes) -> None:
        late = int.from_bytes(greatest, "big") - int.from_bytes(row.oper_date, "big")
        if late > self.order_tolerance * 65536:
            self.count("log_order")
            if not self.warned_of_order:
                self.warned_of_order = True
                _log.warning(
                    "%s: OPER_DATE lies %d s behind one before it; if file numbers have wrapped, read with order_by "
                    "oper_date",
                    where(row),
                    late >> 16,
                )
