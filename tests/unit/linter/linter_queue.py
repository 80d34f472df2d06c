"""Rows of a small queue, for the tests of Linter."""

from __future__ import annotations

from typing import Any

from eventlog.changes.format import Report
from eventlog.linter.dispatch_tables import Destination, DispatchRow
from eventlog.linter.reader import QueueReader, ReaderOptions
from eventlog.model import Change
from eventlog.testing.linter_emulator import ATTRS

DATE = bytes.fromhex("42414baf0000")
TO = Destination("DSTSRV", "APP", "ITEM")


def row(
    typ: int, address: int, part1: bytes = b"", *, transaction: int = 1, **given: Any
) -> DispatchRow:
    """A row of table 7; DATA is part 1 unless columns are given."""
    made = DispatchRow(
        DATE, 0, "SRCDB", transaction, address, typ, 0, 3, 7, 1, len(part1), 0, TO, part1
    )
    return made._replace(**given)


def commit(address: int, typ: int = 4, **given: Any) -> DispatchRow:
    return row(typ, address, **{"tabnum_src": 0, "destination": Destination("", "", ""), **given})


def rollback(address: int, **given: Any) -> DispatchRow:
    return row(10, address, **given)


def read(*rows: DispatchRow, **options: Any) -> list[Change]:
    """One final read without a codec, if the options do not say otherwise."""
    return list(QueueReader(ATTRS, ReaderOptions(**options)).read(rows, final=True))


def counted(*rows: DispatchRow, **options: Any) -> dict[str, int]:
    report = Report()
    list(QueueReader(ATTRS, ReaderOptions(**options), report).read(rows, final=True))
    return dict(report.counters)


def addresses(changes: list[Change]) -> list[int]:
    return [change.extras["syslog_addr"] for change in changes]
