"""Operations -> rows of the queue, with rising addresses of the system log (spec/linter-queue.md 8)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from eventlog.errors import ConfigError, ValueRange
from eventlog.linter.fields import DATA_SIZE
from eventlog.linter.operations import COMMIT, ROLLBACK
from eventlog.linter.rows import CHAR_WIDTHS, Destination, QueueRow

_FIRST_ADDRESS: Final = 24
_HEADER: Final = 64
_FILE_SIZE: Final = 1 << 31
_FILES: Final = 1 << 32
_NOWHERE: Final = Destination("", "", "")


def first_address(file: int = 1) -> int:
    """The address of the first operation of a log file, as SYSLOG_ADDR."""
    return file << 32 | _FIRST_ADDRESS


def next_address(address: int, used: int) -> int:
    """The address behind an operation of ``used`` bytes of DATA; behind the last file comes file 0."""
    file, place = address >> 32, (address & 0xFFFFFFFF) + _HEADER + used
    return first_address((file + 1) % _FILES) if place >= _FILE_SIZE else file << 32 | place


class Written(NamedTuple):
    """One operation to be written: TYP, BLOBATR, number of the table, row id, and the two parts."""

    typ: int
    blobatr: int
    tabnum: int
    rowid: int
    part1: bytes
    part2: bytes


@dataclass(slots=True)
class SystemLog:
    """Where the next operation goes. ``continuation_lengths`` as the option of that name.

    Raises ConfigError, ValueRange for a name that is wider than its column.
    """

    dbnode: str
    continuation_lengths: str = "per_row"
    address: int = first_address()

    def __post_init__(self) -> None:
        if self.continuation_lengths not in ("per_row", "total"):
            raise ConfigError(f"continuation_lengths {self.continuation_lengths!r} is unknown; use per_row or total")
        check_width("DBNODE", self.dbnode)

    def operation(
        self,
        transact_id: int,
        channel: int,
        oper_date: bytes,
        written: Written,
        destinations: Sequence[Destination],
    ) -> Iterator[QueueRow]:
        """The rows of an operation, a full set for each destination, all with one address."""
        typ, blobatr, tabnum, rowid, part1, part2 = written
        old, both = len(part1), part1 + part2
        totals = self.continuation_lengths == "total"
        for destination in destinations:
            for number, start in enumerate(range(0, len(both) or 1, DATA_SIZE)):
                end = min(start + DATA_SIZE, len(both))
                own = max(0, min(end, old) - start)
                lengths = (old, len(part2)) if totals else (own, end - start - own)
                data = both[start:end].ljust(DATA_SIZE, b"\0")
                yield QueueRow(
                    oper_date, number, self.dbnode, transact_id, self.address, typ, blobatr, channel, tabnum, rowid,
                    *lengths, destination, data,
                )  # fmt: skip
        self.address = next_address(self.address, len(both))

    def end(self, transact_id: int, channel: int, oper_date: bytes, *, committed: bool = True) -> QueueRow:
        """The row that ends a transaction."""
        row = QueueRow(
            oper_date, 0, self.dbnode, transact_id, self.address, COMMIT if committed else ROLLBACK, 0, channel, 0, 0,
            0, 0, _NOWHERE, bytes(DATA_SIZE),
        )  # fmt: skip
        self.address = next_address(self.address, 0)
        return row


def checked_destination(server: str, owner: str, table: str) -> Destination:
    """A destination whose names fit their columns. Raises ValueRange."""
    check_width("DST_SERVER", server)
    check_width("DST_OWNER", owner)
    check_width("DST_TABLE", table)
    return Destination(server, owner, table)


def check_width(column: str, text: str) -> None:
    """Whether text fits a CHAR column of the queue. Raises ValueRange."""
    if len(text.encode("utf-8", "surrogatepass")) > CHAR_WIDTHS[column]:
        raise ValueRange(f"{text!r} has more than the {CHAR_WIDTHS[column]} bytes of {column}")
