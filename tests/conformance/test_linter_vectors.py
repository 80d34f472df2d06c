"""``linter.json``: dates, addresses, images, assembly and whole queues
(formats/linter-queue.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from shared import rows_of_objects
from vector_cases import code_of, known_members

from eventlog.changes.format import Report
from eventlog.changes.json_form import to_json, value_from_json, value_to_json
from eventlog.core.options import parse_options
from eventlog.errors import EventlogError, FormatError
from eventlog.linter.codec import Typ
from eventlog.linter.dispatch_tables import (
    DispatchRow,
    TableAttrs,
    attrs_of_option,
    blob_attr,
    decode_oper_date,
    encode_oper_date,
    oper_date_bytes,
    syslog_addr,
)
from eventlog.linter.operations import FIELDS, check_code, parts
from eventlog.linter.reader import QueueReader, ReaderOptions
from eventlog.model import Change
from eventlog.testing.linter_codec import EmulatorCodec

Case = dict[str, Any]

COMMENTS = {"name", "note"}
COLUMNS = {
    "OPER_DATE", "EXTDATA", "DBNODE", "TRANSACT_ID", "SYSLOG_ADDR", "TYP", "BLOBATR", "CHANNEL",
    "TABNUM_SRC", "ROWID_SRC", "LEN1", "LEN2", "DST_SERVER", "DST_OWNER", "DST_TABLE", "DATA",
}  # fmt: skip
CHANGE = {
    "schema", "table", "op", "key", "before", "after", "changed", "position", "transaction_id",
    "event_number", "last_in_transaction", "commit_time", "user",
}  # fmt: skip


def described(columns: list[Case]) -> TableAttrs:
    for column in columns:
        known_members("column", column, {"name", "atrnum", "typ", "len", "pkey"})
    return attrs_of_option({"1": columns})[1]


def row_of(case: Case, table: TableAttrs) -> dict[str, Any]:
    typed = {Typ.DECIMAL: Decimal, Typ.DATE: datetime.fromisoformat}
    row = {}
    for column in table.columns:
        value = value_from_json(case[column.name])
        row[column.name] = (
            value if value is None else typed.get(column.typ, lambda same: same)(value)
        )
    return row


def test_oper_date(linter_oper_date: Case) -> None:
    case = known_members("oper_date", linter_oper_date, {"hex", "decoded"}, {"encode", *COMMENTS})
    assert decode_oper_date(oper_date_bytes(case["hex"])) == datetime.fromisoformat(case["decoded"])
    if "encode" in case:
        assert encode_oper_date(datetime.fromisoformat(case["encode"])).hex() == case["hex"]


def test_syslog_addr(linter_syslog_addr: Case) -> None:
    case = known_members("syslog_addr", linter_syslog_addr, {"value", "file", "address"}, COMMENTS)
    assert syslog_addr(case["value"]) == (case["file"], case["address"])


def test_blobatr(linter_blobatr: Case) -> None:
    case = known_members("blobatr", linter_blobatr, {"value", "column", "blob_type"}, COMMENTS)
    assert blob_attr(case["value"]) == (case["column"], case["blob_type"])


def test_image(linter_images: Case) -> None:
    case = known_members("image", linter_images, {"columns", "hex", "decoded"}, {"row", *COMMENTS})
    table = described(case["columns"])
    codec = EmulatorCodec()
    if "row" in case:
        assert codec.encode(table, row_of(case["row"], table)).hex() == case["hex"].lower()
    decoded = codec.decode(table, bytes.fromhex(case["hex"]))
    assert {name: value_to_json(value) for name, value in decoded.items()} == case["decoded"]


def test_image_that_is_refused(linter_image_errors: Case) -> None:
    case = known_members(
        "image error", linter_image_errors, {"columns", "hex", "error", "column"}, COMMENTS
    )
    table = described(case["columns"])
    with pytest.raises(FormatError) as caught:
        EmulatorCodec().decode(table, bytes.fromhex(case["hex"]))
    assert caught.value.code == code_of(case["error"])
    assert caught.value.column == case["column"]


def assembled(rows: list[DispatchRow]) -> tuple[bytes, bytes]:
    for row in rows:
        check_code(row, FIELDS)
    return parts(rows)


def test_assembly(linter_assembly: Case) -> None:
    lengths = {"part1_len", "part2_len", "part1_sha256", "part2_sha256"}
    case = known_members("assembly", linter_assembly, {"rows"}, {"error", *lengths, *COMMENTS})
    assert ("error" in case) is not (lengths <= case.keys())
    same = dict.fromkeys(COLUMNS, 0) | {"OPER_DATE": "000000000000", "DBNODE": "N"}
    same |= dict.fromkeys(("DST_SERVER", "DST_OWNER", "DST_TABLE"), "")
    given = [same | known_members("row", row, (), COLUMNS) for row in case["rows"]]
    rows = sorted(rows_of_objects(given), key=lambda row: row.extdata)
    if "error" in case:
        with pytest.raises(EventlogError) as caught:
            assembled(rows)
        assert caught.value.code == code_of(case["error"])
        return
    for number, part in enumerate(assembled(rows), 1):
        assert len(part) == case[f"part{number}_len"]
        assert hashlib.sha256(part).hexdigest() == case[f"part{number}_sha256"]


def test_queue(linter_queues: Case) -> None:
    expected = {"changes", "counters", "restart_token"}
    case = known_members(
        "queue",
        linter_queues,
        {"options", "dispatch_attrs", "rows"},
        {"error", *expected, *COMMENTS},
    )
    assert ("error" in case) is not (expected <= case.keys())
    for columns in case["dispatch_attrs"].values():
        described(columns)
    for row in case["rows"]:
        known_members("row", {name.upper(): value for name, value in row.items()}, (), COLUMNS)
    report = Report()
    if "error" in case:
        with pytest.raises(EventlogError) as caught:
            list(read(reader_of(case, report), case))
        assert caught.value.code == code_of(case["error"])
        return
    reader = reader_of(case, report)
    changes = [to_json(change) for change in read(reader, case)]
    for change in case["changes"]:
        known_members("change", change, CHANGE, {"extras"})
    assert [{name: change[name] for name in CHANGE} for change in changes] == [
        {name: change[name] for name in CHANGE} for change in case["changes"]
    ]
    for change, wanted in zip(changes, case["changes"], strict=True):
        extras = wanted.get("extras", {})
        assert {name: change["extras"].get(name) for name in extras} == extras
    assert dict(report.counters) == case["counters"]
    assert reader.restart_token == case["restart_token"]


def reader_of(case: Case, report: Report) -> QueueReader:
    options = {name: value for name, value in case["options"].items() if name != "final"}
    chosen = parse_options(ReaderOptions, options, "a case")
    return QueueReader(attrs_of_option(case["dispatch_attrs"]), chosen, report)


def read(reader: QueueReader, case: Case) -> Iterator[Change]:
    return reader.read(rows_of_objects(case["rows"]), final=case["options"].get("final", False))
