"""Changes of two tables with columns of every type, written to change tables in files and read from
them.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from eventlog.changes.format import Report
from eventlog.model import Change, ChangeOp, Row
from eventlog.qlik.tables.change_table_format import FORMAT

NOON = datetime(2024, 5, 10, 12, 0, 0, 123456, UTC)
FULL: Row = {
    "id": 7,
    "name": 'nut, "M3"\nsteel',
    "price": Decimal("1.50"),
    "made": datetime(2024, 1, 2, 3, 4, 5, 6000),
    "day": date(2024, 1, 2),
    "at": time(3, 4, 5, 6),
    "raw": b"\x00\xff",
    "weight": 0.1,
    "sold": True,
}
NULLS: Row = dict.fromkeys(FULL) | {"id": 7, "name": ""}
TYPES = {
    "id": "INT4", "name": "STRING", "price": "NUMERIC", "made": "DATETIME", "day": "DATE",
    "at": "TIME", "raw": "BYTES", "weight": "REAL8", "sold": "BOOLEAN",
}  # fmt: skip
TABLES = {
    "app.item": {
        "columns": [{"name": name, "type": type} for name, type in TYPES.items()],
        "key": ["id"],
    },
    "app.tag": {"columns": ["id"], "key": ["id"]},
}
FILE_FORMATS = ["csv", "json", "parquet"]


def item(
    op: ChangeOp, before: Row | None = None, after: Row | None = None, **fields: Any
) -> Change:
    image = after or before
    key = None if image is None else (("id", image["id"]),)
    fields = {"key": key, "transaction_id": "A1".zfill(32), "commit_time": NOON} | fields
    return Change("app", "item", op, before=before, after=after, **fields)


def tag(hours: int, **fields: Any) -> Change:
    time = NOON + timedelta(hours=hours)
    return Change(
        "app", "tag", ChangeOp.INSERT, (("id", "x"),), None, {"id": "x"}, commit_time=time, **fields
    )


CHANGES = [
    item(ChangeOp.INSERT, after=FULL),
    item(ChangeOp.UPDATE, FULL, NULLS, changed=frozenset(FULL.keys() - {"id"})),
    tag(0),
    item(ChangeOp.UPDATE, NULLS, {**NULLS, "id": 8}, changed=frozenset({"id"})),
    item(ChangeOp.TRUNCATE, transaction_id="A2".zfill(32)),
    item(ChangeOp.DELETE, {**FULL, "id": 8}, transaction_id="A2".zfill(32)),
]
"""Every operation, every type, a key that moves, two tables."""

COUNTED = [(1, False), (2, True), (None, None), (1, True), (None, None), (1, True)]


def put(target: Path | str, changes: list[Change] = CHANGES, **options: Any) -> Report:
    report = Report(strict=True)
    FORMAT.write(changes, str(target), {"tables": TABLES} | options, report)
    return report


def get(source: Path | str, **options: Any) -> list[Change]:
    return list(FORMAT.read(str(source), {"tables": TABLES} | options, Report(strict=True)))


def expected(changes: list[Change]) -> list[Change]:
    """The changes as they are read: numbered, and with the event counters of their transactions."""
    return [
        one._replace(position=None, event_number=number, last_in_transaction=last)
        for one, (number, last) in zip(changes, COUNTED, strict=True)
    ]


def unnumbered(changes: list[Change]) -> list[Change]:
    return [one._replace(position=None) for one in changes]


def files(directory: Path) -> list[str]:
    return sorted(
        str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()
    )
