"""The records of an open transaction, which are in memory or, above a limit, in a file; and the
operations that remain when savepoints and update pairs are resolved (formats/gbase-cdc.md 4).

Memory is bounded and the loop is fast: an UPDBEF is paired when its UPDAFT arrives, entries beyond
the limit go to one file, and blocks of entries are read back together. The price: ``pair``,
``discard`` and ``move_to_file`` maintain places and sequences by hand.
"""

from __future__ import annotations

import struct
import tempfile
from array import array
from collections import Counter
from collections.abc import Iterator
from heapq import merge
from itertools import chain
from typing import IO, Final, NamedTuple

from eventlog.errors import FormatError
from eventlog.gbase.layout import Layout
from eventlog.gbase.records import DELETE, INSERT, TRUNCATE, UPDAFT, UPDBEF
from eventlog.model import ChangeOp


class Entry(NamedTuple):
    """A row record or TRUNCATE of a transaction."""

    number: int
    sequence: int
    label: int
    layout: Layout | None
    """The layout of the row, None for a TRUNCATE."""
    header_size: int
    record: bytes
    offset: int
    """The place of the record in the stream."""
    before_at: int = -1
    """For a paired UPDAFT, the place of the entry of its UPDBEF."""
    before: Entry | None = None
    """For a paired UPDAFT, its UPDBEF."""


Operation = tuple[ChangeOp, Entry, Entry | None]
"""The records of one change: the record that has the position and the row of the change, and for an
update the record with the old row.
"""

_OPERATIONS: Final = {
    INSERT: ChangeOp.INSERT,
    DELETE: ChangeOp.DELETE,
    UPDBEF: ChangeOp.DELETE,  # an UPDBEF that belongs to no update
    TRUNCATE: ChangeOp.TRUNCATE,
}

ENTRY_OVERHEAD: Final = 240
"""The number of bytes that an entry takes in memory in addition to its record."""

_MOST_CHECKS: Final = 100  # how often all records of a transaction are checked
_BLOCK_ENTRIES: Final = 1000
_BLOCK_BYTES: Final = 1 << 20
_BUFFER: Final = 8192
_ENTRY: Final = struct.Struct("<BQIiIIQq?")


def weight(entry: Entry) -> int:
    """Return the number of bytes that an entry takes in memory, including the UPDBEF of a pair."""
    return (
        len(entry.record)
        + ENTRY_OVERHEAD
        + (0 if entry.before is None else len(entry.before.record))
    )


class _Block(NamedTuple):
    """Entries of the file that are read together. The fields are the offset of the block, the place
    of its first entry, the number of its entries, and the highest sequence of its entries.
    """

    offset: int
    first: int
    length: int
    highest: int


class OpenTransaction:
    """The records of an open transaction in order of arrival. The place of a record never changes.

    Callers that append to ``entries`` add the entry's ``weight`` to ``bytes_in_memory``.
    """

    __slots__ = (
        "_blocks", "_checks", "_file", "_gone", "_highest", "_in_file", "_layouts", "_numbers",
        "_offsets", "_ordered", "_seen", "_unpaired", "begin_seq", "bytes_in_memory", "entries",
        "os_user",
    )  # fmt: skip

    def __init__(self, begin_seq: int, os_user: int) -> None:
        self.begin_seq = begin_seq
        self.os_user = os_user
        self.entries: list[Entry] = []
        self.bytes_in_memory = 0
        self._in_file = 0  # number of entries in the file, which is the place of entries[0]
        self._unpaired: dict[int, array[int]] = {}  # places of UPDBEFs without UPDAFT, by label
        self._file: IO[bytes] | None = None
        self._blocks: list[_Block] = []
        self._offsets = array("Q")  # the offsets of the entries in the file
        self._layouts: list[Layout | None] = []
        self._numbers: dict[Layout | None, int] = {}  # places in _layouts
        self._gone: set[int] = set()
        self._checks = 0
        # Sequences normally rise within a transaction. If they do not, DISCARD checks every record.
        self._ordered = True
        self._seen = 0
        self._highest = 0

    def pair(self, entry: Entry) -> Entry:
        """Return the entry. An UPDAFT is paired with the nearest unpaired UPDBEF of its label.

        An UPDBEF is recorded as unpaired; the caller must append it next.
        """
        label = entry.label
        if entry.number == UPDBEF:
            places = self._unpaired.get(label)
            if places is None:
                places = self._unpaired[label] = array("Q")
            places.append(self._in_file + len(self.entries))
            return entry
        places = self._unpaired.get(label)
        if not places:
            return entry
        place = places.pop()
        return entry._replace(before_at=place, before=self._entry_at(place))

    def discard(self, seq: int) -> None:
        """Drop the records from the sequence ``seq`` on, and the UPDBEF of each dropped UPDAFT.

        Raises FormatError if records are out of order and too many DISCARDs have checked them.
        """
        self._check_order()
        self._drop_from(seq)
        self._seen = min(self._seen, self._in_file + len(self.entries))
        if not self._ordered:
            self._checks += 1
            if self._checks > _MOST_CHECKS:
                raise FormatError(
                    f"a transaction whose sequences do not rise has more than {_MOST_CHECKS} "
                    "DISCARD records",
                    code="framing",
                )
            for place, entry in self._left():
                if entry.sequence >= seq:
                    self._gone.update(place for place in (place, entry.before_at) if place >= 0)
            self._unpaired = {
                label: array("Q", [place for place in places if place not in self._gone])
                for label, places in self._unpaired.items()
            }

    def _drop_from(self, seq: int) -> None:
        """Drop records from the end, up to the first record that stays. Records that are out of
        order are dropped only in memory.
        """
        while True:
            while self.entries and self.entries[-1].sequence >= seq:
                dropped = self.entries.pop()
                self.bytes_in_memory -= weight(dropped)
                place = self._in_file + len(self.entries)
                self._gone.discard(place)
                unpaired = self._unpaired.get(dropped.label)
                if unpaired and unpaired[-1] == place:
                    unpaired.pop()
                if dropped.before is not None:
                    self._gone.add(dropped.before_at)
            if (
                not self._in_file
                or not self._ordered
                or self.entries
                or self._blocks[-1].highest < seq
            ):
                return
            self._load_last_block()

    def operations(self, counters: Counter[str]) -> Iterator[Operation]:
        """Yield the operations of the remaining records in order of arrival, and count
        ``unpaired_updaft`` and ``unpaired_updbef`` in ``counters``.
        """
        if self._in_file or self._gone or any(self._unpaired.values()):
            yield from self._resolved(counters)
            return
        # All entries are in memory, none is dropped, and every UPDBEF is paired.
        for entry in self.entries:
            number = entry.number
            if number == UPDAFT:
                if entry.before is None:
                    counters["unpaired_updaft"] += 1
                yield ChangeOp.UPDATE, entry, entry.before
            elif number != UPDBEF:
                yield _OPERATIONS[number], entry, None

    def _resolved(self, counters: Counter[str]) -> Iterator[Operation]:
        """Yield the operations of a transaction that has an unpaired UPDBEF (formats/gbase-cdc.md
        4).

        An unpaired UPDBEF and an INSERT of its label next to it are an update; otherwise the UPDBEF
        is a delete. Each of these records waits for the record that follows it.
        """
        waiting: Entry | None = None  # the record that may be the first half of an update
        for entry, lone in self._with_unpaired():
            number = entry.number
            if lone:
                counters["unpaired_updbef"] += 1
            is_half = lone or number == INSERT
            if waiting is not None:
                half, waiting = waiting, None
                if is_half and entry.label == half.label and number != half.number:
                    yield (
                        (ChangeOp.UPDATE, entry, half)
                        if number == INSERT
                        else (ChangeOp.UPDATE, half, entry)
                    )
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

    def _with_unpaired(self) -> Iterator[tuple[Entry, bool]]:
        """Yield the remaining records in order of arrival, each with True if it is an unpaired
        UPDBEF.
        """
        unpaired = merge(*self._unpaired.values())
        next_unpaired = next(unpaired, None)
        for place, entry in self._left():
            while next_unpaired is not None and next_unpaired < place:
                next_unpaired = next(unpaired, None)
            yield entry, place == next_unpaired

    def _left(self) -> Iterator[tuple[int, Entry]]:
        """Yield the remaining records with their places, in order of arrival."""
        in_file = (entry for block in self._blocks for entry in self._read(block))
        for place, entry in enumerate(chain(in_file, self.entries)):
            if place not in self._gone:
                yield place, entry

    def move_to_file(self) -> None:
        """Move the entries from memory to the file."""
        self._check_order()
        if self._file is None:
            # Closed by close(). Python's own buffer has 128 KiB from 3.14 on, in each transaction.
            self._file = tempfile.TemporaryFile(prefix="eventlog-gbase-", buffering=_BUFFER)  # noqa: SIM115
        file = self._file
        at = file.seek(0, 2)
        for place, entry in enumerate(self.entries, self._in_file):
            data = self._to_bytes(entry)
            file.write(data)
            self._offsets.append(at)
            last = self._blocks[-1] if self._blocks else None
            if (
                last is None
                or last.length >= _BLOCK_ENTRIES
                or at + len(data) - last.offset > _BLOCK_BYTES
            ):
                self._blocks.append(_Block(at, place, 1, entry.sequence))
            else:
                highest = max(last.highest, entry.sequence)
                self._blocks[-1] = last._replace(length=last.length + 1, highest=highest)
            at += len(data)
        self._in_file += len(self.entries)
        self.entries.clear()
        self.bytes_in_memory = 0

    def close(self) -> None:
        """Close the file if one is open."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _check_order(self) -> None:
        for entry in self.entries[self._seen - self._in_file :]:
            self._ordered = self._ordered and entry.sequence >= self._highest
            self._highest = max(self._highest, entry.sequence)
        self._seen = self._in_file + len(self.entries)

    def _entry_at(self, place: int) -> Entry:
        if place >= self._in_file:
            return self.entries[place - self._in_file]
        assert self._file is not None
        self._file.seek(self._offsets[place])
        return self._from_file(self._file)

    def _load_last_block(self) -> None:
        block = self._blocks.pop()
        loaded = self._read(block)
        self.entries[:0] = loaded
        self.bytes_in_memory += sum(map(weight, loaded))
        assert self._file is not None
        self._file.truncate(block.offset)
        del self._offsets[block.first :]
        self._in_file = block.first

    def _read(self, block: _Block) -> list[Entry]:
        file = self._file
        assert file is not None
        file.seek(block.offset)
        # The block is read whole, since the file may be read elsewhere before
        # the next entry is used.
        return [self._from_file(file) for _ in range(block.length)]

    def _to_bytes(self, entry: Entry) -> bytes:
        number, seq, label, layout, header_size, record, offset, before_at, before = entry
        at = self._numbers.setdefault(layout, len(self._layouts))
        if at == len(self._layouts):
            self._layouts.append(layout)
        size, paired = len(record), before is not None
        head = _ENTRY.pack(number, seq, label, at, header_size, size, offset, before_at, paired)
        return head + record + (self._to_bytes(before) if before is not None else b"")

    def _from_file(self, file: IO[bytes]) -> Entry:
        number, seq, label, layout, header_size, size, offset, before_at, paired = _ENTRY.unpack(
            file.read(_ENTRY.size)
        )
        record = file.read(size)
        before = self._from_file(file) if paired else None
        return Entry(
            number,
            seq,
            label,
            self._layouts[layout],
            header_size,
            record,
            offset,
            before_at,
            before,
        )
