"""The rows of an exported DISPATCH_QUEUE as text, each with its place (spec/linter-queue.md 1, 3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from eventlog.errors import FormatError, with_location
from eventlog.linter.format import export_files, read_queue
from eventlog.linter.rows import QueueRow, blob_attr, data_bytes, decode_oper_date, syslog_addr
from eventlog.linter.transactions import (
    BLOB_OPERATIONS,
    CREATE_BLOB,
    DELETE,
    INSERT,
    INSERT_BLOB,
    UPDATE,
    TypTable,
    typ_table,
)

_SHOWN = 32  # bytes a line


def queue_listing(source: str, options: Mapping[str, Any]) -> Iterator[str]:
    """The lines of a file or directory, row by row in the order of the files. Raises FormatError."""
    table = typ_table(options.get("typ_table", "fields"))
    files, _ = export_files(Path(source))
    for number, row in enumerate(read_queue(files), 1):
        try:
            yield from _row(number, row, table)
        except FormatError as error:
            raise with_location(error, f"{source}, row {number} of the listing") from None


def _row(number: int, row: QueueRow, table: TypTable) -> Iterator[str]:
    file, address = syslog_addr(row.syslog_addr)
    yield f"row {number}  SYSLOG_ADDR {file}:{address}  {_operation(row.typ, table)}  transaction {row.transact_id:X}"
    time = decode_oper_date(row.oper_date)
    yield f"    OPER_DATE   {row.oper_date.hex().upper()}  {time} of the server {row.dbnode!r}"
    if row.typ in (table.commit, table.rollback):
        return
    destination = ".".join(part for part in row.destination if part)
    yield f"    table       {row.tabnum_src} -> {destination!r}, row id {row.rowid_src}, channel {row.channel}"
    yield f"    lengths     {row.len1} + {row.len2}, piece {row.extdata}"
    if row.blobatr:
        column, blob_type = blob_attr(row.blobatr)
        yield f"    BLOBATR     column {column}, type {blob_type}"
    data = data_bytes(row.data)
    for at in range(0, len(data), _SHOWN):
        yield f"    {at:08x}    {data[at : at + _SHOWN].hex().upper()}"


def _operation(typ: int, table: TypTable) -> str:
    names: dict[int | None, str] = {
        DELETE: "DELETE",
        INSERT: "INSERT",
        UPDATE: "UPDATE",
        table.clear_blob: "CLEAR BLOB",
        table.commit: "COMMIT",
        table.rollback: "ROLLBACK",
    }
    if table.operations & BLOB_OPERATIONS:
        names |= {CREATE_BLOB: "CREATE BLOB", INSERT_BLOB: "INSERT BLOB"}
    return f"TYP {typ} {names.get(typ, '(unknown)')}"
