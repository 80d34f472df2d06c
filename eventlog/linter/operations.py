"""Combine the rows of a transaction into operations. Each operation has two parts
(formats/linter-queue.md 3 to 5).

``transaction_operations`` is a hot path: most rows are a whole, valid operation, and
``_single_row_operation`` recognizes such a row by one comparison. The price: this function repeats
the rules of lengths in brief. All other rows go to ``parts``, which has the full rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from eventlog.errors import FormatError
from eventlog.linter.dispatch_tables import (
    DATA_SIZE,
    DispatchRow,
    data_bytes,
    syslog_addr,
)

DELETE: Final = 1
INSERT: Final = 2
UPDATE: Final = 3
COMMIT: Final = 4
CREATE_BLOB: Final = 7
INSERT_BLOB: Final = 8
CLEAR_BLOB: Final = 9
ROLLBACK: Final = 10

BLOB_OPERATIONS: Final = frozenset({CREATE_BLOB, INSERT_BLOB})
"""Operations on the parts of a BLOB, which change no row."""


class TypTable(NamedTuple):
    """The meanings of operation codes: ``operations`` has the codes within a transaction, ``ends``
    the codes of COMMIT and ROLLBACK.
    """

    name: str
    operations: Mapping[int, str]
    ends: Mapping[int, str]
    commit: int


_OF_ROWS: Final = {DELETE: "DELETE", INSERT: "INSERT", UPDATE: "UPDATE"}
_OF_BLOBS: Final = {
    CREATE_BLOB: "CREATE BLOB",
    INSERT_BLOB: "INSERT BLOB",
    CLEAR_BLOB: "CLEAR BLOB",
}
# The manual contradicts itself: its field table gives 4 COMMIT, 9 CLEAR BLOB and 10 ROLLBACK, its
# text under DATA numbers 4 DELETE BLOB, 5 COMMIT and ROLLBACK. The field table holds: one number
# for two opposite operations cannot be a code, the second list has no gaps where the first has
# those of an enumeration, and BLOB CLEAR is the statement that deletes the data of a BLOB, so that
# the text's DELETE BLOB is code 9. ``PROSE`` is for a server that follows the text.
FIELDS: Final = TypTable(
    "fields", {**_OF_ROWS, **_OF_BLOBS}, {COMMIT: "COMMIT", ROLLBACK: "ROLLBACK"}, COMMIT
)
PROSE: Final = TypTable("prose", {**_OF_ROWS, 4: "CLEAR BLOB"}, {5: "COMMIT"}, 5)
TYP_TABLES: Final = {table.name: table for table in (FIELDS, PROSE)}
"""The tables of operation codes by the value of the option ``typ_table`` (formats/linter-queue.md
3).
"""


Operation = tuple[DispatchRow, bytes, bytes]
"""An operation: its first row, the first part and the second part. The parts are the old and the
new row image; for INSERT the first part is the new image.
"""


def check_code(row: DispatchRow, table: TypTable) -> None:
    """Check the code of a row, and the lengths of COMMIT and ROLLBACK, as soon as it is read.

    Raises FormatError.
    """
    typ, len1, len2 = row.typ, row.len1, row.len2
    if typ in table.operations:
        return
    if typ not in table.ends:
        raise FormatError(
            f"{where(row)}: TYP {typ} is not an operation if typ_table = {table.name}",
            code="unknown_operation",
        )
    if table is PROSE and (len1 > 0 or len2 > 0):
        raise FormatError(
            f"{where(row)}: TYP {typ} with data is not an operation if typ_table = prose; set "
            "typ_table = fields",
            code="unknown_operation",
        )
    if len1 < 0 or len2 < 0:
        raise FormatError(f"{where(row)}: LEN1 {len1}, LEN2 {len2} are negative", code="bad_length")
    if len1 or len2:
        raise FormatError(
            f"{where(row)}: TYP {typ} ends a transaction and must have no data, but LEN1 is {len1} "
            f"and LEN2 {len2}; check that typ_table = fields is right",
            code="typ_contradiction",
        )


def parts(rows: Sequence[DispatchRow], table: TypTable = FIELDS) -> tuple[bytes, bytes]:
    """Return the two parts of an operation from its rows, which are in order of EXTDATA
    (formats/linter-queue.md 4).

    Raises FormatError.
    """
    first = rows[0]
    for number, row in enumerate(rows):
        if row.extdata != number:
            raise FormatError(
                f"{where(first)}: part {number} is missing, and part {row.extdata} is in its place",
                code="missing_part",
            )
    are_totals = first.len1 + first.len2 > DATA_SIZE
    counting = rows[:1] if are_totals else rows
    if any(row.len1 < 0 or row.len2 < 0 for row in counting):
        raise FormatError(
            f"{where(first)}: a length of the operation is negative", code="bad_length"
        )
    len1, len2 = sum(row.len1 for row in counting), sum(row.len2 for row in counting)
    _check_lengths(first, len1, len2, table)
    if are_totals:
        return _parts_by_totals(rows)
    cut = [_own_parts(row) for row in rows]
    return b"".join([old for old, _ in cut]), b"".join([new for _, new in cut])


def _parts_by_totals(rows: Sequence[DispatchRow]) -> tuple[bytes, bytes]:
    """Return the two parts of an operation whose first row has the lengths of both whole parts."""
    first, len1, end = rows[0], rows[0].len1, rows[0].len1 + rows[0].len2
    chunks = [data_bytes(row.data) for row in rows]
    data = b"".join([*(chunk.ljust(DATA_SIZE, b"\0") for chunk in chunks[:-1]), chunks[-1]])
    if end > len(data):
        raise FormatError(
            f"{where(first)}: LEN1 {len1} + LEN2 {first.len2} is more than the {len(data)} bytes "
            "of the operation",
            code="bad_length",
        )
    return data[:len1], data[len1:end]


def _own_parts(row: DispatchRow) -> tuple[bytes, bytes]:
    """Return the fragments of both parts that a row holds, cut at the row's own lengths."""
    data, len1, end = row.data, row.len1, row.len1 + row.len2
    if type(data) is not bytes:
        data = data_bytes(data)
    if end > DATA_SIZE:
        raise FormatError(
            f"{where(row)}: LEN1 {len1} + LEN2 {row.len2} of part {row.extdata} is more than "
            f"{DATA_SIZE} bytes",
            code="bad_length",
        )
    if end > len(data):
        raise FormatError(
            f"{where(row)}: LEN1 {len1} + LEN2 {row.len2} is more than the row's {len(data)} bytes",
            code="bad_length",
        )
    return data[:len1], data[len1:end]


def _check_lengths(row: DispatchRow, len1: int, len2: int, table: TypTable) -> None:
    typ = row.typ
    if typ in BLOB_OPERATIONS:
        return
    if table is PROSE and typ == 4 and not len1 and not len2:
        raise FormatError(
            f"{where(row)}: TYP 4 must have data to be a CLEAR BLOB; check that typ_table = prose "
            "is right",
            code="typ_contradiction",
        )
    if not len1 or bool(len2) is not (typ == UPDATE):
        wanted = "a first and a second part" if typ == UPDATE else "a first part only"
        raise FormatError(
            f"{where(row)}: TYP {typ} must have {wanted}, but LEN1 is {len1} and LEN2 {len2}",
            code="typ_contradiction",
        )


def transaction_operations(
    rows: Sequence[DispatchRow], table: TypTable, *, every_destination: bool
) -> list[Operation]:
    """Return the operations of a transaction, whose rows are in order.

    With ``every_destination``, an operation is returned once for each of its destinations;
    otherwise only for the smallest destination in byte order (option ``destinations``,
    formats/linter-queue.md 5). Raises FormatError and the errors of ``parts``.
    """
    operations = []
    number, end = 0, len(rows)
    while number < end:
        first = rows[number]
        address = first.syslog_addr
        after = number + 1
        while after < end and rows[after].syslog_addr == address:
            after += 1
        if after == number + 1:
            operations.append(_single_row_operation(first, table))
        else:
            operations += _operations_at_address(rows[number:after], table, every_destination)
        number = after
    return operations


def _single_row_operation(row: DispatchRow, table: TypTable) -> Operation:
    _, extdata, _, _, _, typ, _, _, _, _, len1, len2, _, data = row
    end = len1 + len2
    # Most rows are one whole and valid operation; ``parts`` handles all others.
    if type(data) is bytes and extdata == 0 < len1 <= end <= len(data) and end <= DATA_SIZE:
        if len2 == 0:
            if typ in _OF_ONE_PART:
                return row, data[:len1], b""
        elif typ == UPDATE:
            return row, data[:len1], data[len1:end]
    return row, *parts((row,), table)


_OF_ONE_PART: Final = frozenset({INSERT, DELETE, CLEAR_BLOB})


def _operations_at_address(
    rows: Sequence[DispatchRow], table: TypTable, every_destination: bool
) -> list[Operation]:
    groups: dict[tuple[object, ...], list[DispatchRow]] = {}
    for row in rows:
        groups.setdefault((row.typ, row.blobatr, row.tabnum_src, row.rowid_src), []).append(row)
    operations_found: list[Operation] = []
    for group in groups.values():
        group.sort(key=_destination_order)
        by_destination = []
        for _, same in groupby(group, key=lambda row: row.destination):
            fragments = list(same)
            by_destination.append((fragments[0], *parts(fragments, table)))
        if every_destination:
            operations_found += by_destination
            continue
        row, *images = by_destination[0]
        for other, *its_images in by_destination[1:]:
            if its_images != images:
                raise FormatError(
                    f"{where(other)}: the data of the operation for {'.'.join(other.destination)} "
                    f"differ from the data for {'.'.join(row.destination)}; choose a destination "
                    "with the option destination",
                    code="destinations_differ",
                )
        operations_found.append(by_destination[0])
    return operations_found


def _destination_order(row: DispatchRow) -> tuple[list[bytes], int]:
    return [part.encode("utf-8", "surrogatepass") for part in row.destination], row.extdata


def table_number(row: DispatchRow) -> int:
    """Return the TABNUM_SRC of an operation. Raises FormatError."""
    if not isinstance(row.tabnum_src, int):
        raise FormatError(
            f"{where(row)}: TABNUM_SRC is {row.tabnum_src}, which is not a whole number",
            code="bad_column_value",
        )
    return row.tabnum_src


def where(row: DispatchRow) -> str:
    """Return the place of a row in words, for messages."""
    file, address = syslog_addr(row.syslog_addr)
    return f"SYSLOG_ADDR {file}:{address} of {row.dbnode!r}"
