"""Where in the bytes of a CDC stream its oldest open transaction begins, and how the tables are described there.

The restart of a position (spec/gbase-cdc.md 4.1) is a sequence, which a server can be asked for. A file is read again
from a byte, and what was described before that byte has to be known.
"""

from __future__ import annotations

import struct
from typing import Final

from eventlog.gbase.records import BEGINTX, COMMTX, RBTX, TABSCHEM, Framer

_BEGIN: Final = struct.Struct(">QI")
_LABEL: Final = struct.Struct(">I")


class Landmarks:
    """Is given the bytes of a stream that its reader has taken without error; offsets count from the first of them."""

    def __init__(self, max_record: int) -> None:
        self._framer = Framer(max_record)
        self._open: dict[int, tuple[int, int]] = {}
        """By transaction id: sequence and offset of its BEGINTX."""
        self._tables: list[tuple[int, int, bytes]] = []
        """Offset, label and record of each TABSCHEM that may be in force at ``restart``."""

    def take(self, data: bytes) -> None:
        """The next bytes, in any cut."""
        for offset, number, _, record in self._framer.feed(data):
            if number == BEGINTX:
                sequence, transaction = _BEGIN.unpack_from(record, 16)
                if self._open.get(transaction, (None, 0))[0] != sequence:
                    self._open[transaction] = sequence, offset
            elif number in (COMMTX, RBTX):
                self._open.pop(_BEGIN.unpack_from(record, 16)[1], None)
            elif number == TABSCHEM:
                self._tables.append((offset, _LABEL.unpack_from(record, 16)[0], record))

    @property
    def restart(self) -> int:
        """The offset of the BEGINTX of the oldest open transaction; without one, that behind the last record."""
        return min((offset for _, offset in self._open.values()), default=self._framer.offset)

    def tables(self) -> bytes:
        """The TABSCHEM records in force at ``restart``, one after the other."""
        restart = self.restart
        last = {label: offset for offset, label, _ in self._tables if offset < restart}
        self._tables = [one for one in self._tables if one[0] >= last.get(one[1], 0)]
        return b"".join(record for offset, _, record in self._tables if offset < restart)
