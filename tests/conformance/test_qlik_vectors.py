"""``qlik.json``: masks, sequences, partitions, rows of change tables and the messages of them
(formats/qlik.md).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import pytest
from qlik_layouts import read_layout, row_writer
from vector_cases import code_of, known_members

from eventlog.changes.format import Report
from eventlog.changes.json_form import value_from_json
from eventlog.errors import EventlogError
from eventlog.model import Change, ChangeOp
from eventlog.qlik import masks, sequence
from eventlog.qlik.columns import ColumnsSeen, QlikColumn, columns_from_json, lobs_of
from eventlog.qlik.messages.envelope import Message
from eventlog.qlik.messages.message_reader import MessageReader
from eventlog.qlik.messages.message_tables import ReadOptions, WriteOptions
from eventlog.qlik.messages.message_writer import MessageWriter
from eventlog.qlik.sequence import (
    WriterState,
    count_events,
    partition_at,
    partition_name,
    partition_of,
)
from eventlog.qlik.tables.change_rows import DEFAULT_HEADERS, ChangeRow, TableLayout, row_reader
from eventlog.qlik.tables.change_tables import (
    SourceTable,
    TargetTable,
    changes_of_rows,
    live_view,
    rows_of,
)
from eventlog.qlik.tables.stored_tables import WriteOptions as TableOptions

Case = dict[str, Any]

COMMENTS = {"name", "note"}
FORMS = {"message_text", "message_avro", "table_text", "table_binary"}


def written(form: str, layout: masks.MaskLayout, columns: frozenset[str]) -> str:
    value = layout.bits(columns)
    match form:
        case "message_text":
            return masks.message_text(layout, value)
        case "message_avro":
            return masks.message_bytes(layout, value).hex().upper()
        case "table_text":
            return masks.table_text(layout, value)
        case _:
            return masks.table_bytes(layout, value).hex().upper()


def read(
    form: str, layout: masks.MaskLayout, value: str | None, byteorder: masks.ByteOrder = "little"
) -> masks.Mask:
    if form.endswith("text"):
        return masks.read_text(layout, value)
    return masks.read_bytes(layout, None if value is None else bytes.fromhex(value), byteorder)


def test_mask(qlik_masks: Case) -> None:
    case = known_members("mask", qlik_masks, {"columns", "headers", "set"}, COMMENTS | FORMS)
    layout = masks.layout(case["columns"], case["headers"])
    for form in FORMS & case.keys():
        assert written(form, layout, frozenset(case["set"])) == case[form], form
        assert read(form, layout, case[form]) == (frozenset(case["set"]), 0), form


def test_mask_read(qlik_mask_reads: Case) -> None:
    members = {"columns", "headers", "form", "value", "byteorder", "set", "mask_extra_bits"}
    case = known_members("mask read", qlik_mask_reads, members, COMMENTS)
    layout = masks.layout(case["columns"], case["headers"])
    found = read(case["form"], layout, case["value"], case["byteorder"])
    assert found == (frozenset(case["set"]), case["mask_extra_bits"])


def test_mask_error(qlik_mask_errors: Case) -> None:
    case = known_members(
        "mask error",
        qlik_mask_errors,
        {"error"},
        {"form", "value", "byteorder", "columns", "headers", "set"} | COMMENTS,
    )
    layout = masks.layout(case.get("columns", ["a"]), case.get("headers", 0))
    if "form" in case:
        with pytest.raises(EventlogError) as caught:
            read(case["form"], layout, case["value"], case.get("byteorder", "little"))
        assert caught.value.code == code_of(case["error"])
    else:
        for form in sorted(FORMS):
            with pytest.raises(EventlogError) as caught:
                written(form, layout, frozenset(case["set"]))
            assert caught.value.code == code_of(case["error"]), form


def test_sequence(qlik_sequences: Case) -> None:
    case = known_members(
        "sequence", qlik_sequences, {"text"}, {"time", "number", "error"} | COMMENTS
    )
    if "error" in case:
        with pytest.raises(EventlogError) as caught:
            sequence.parse(case["text"])
        assert caught.value.code == code_of(case["error"])
    else:
        assert sequence.parse(case["text"]) == (
            datetime.fromisoformat(case["time"]),
            case["number"],
        )


TAKES_NO_NUMBER = {"NOOP", "REFRESH", "TRUNCATE_IN_MESSAGES"}
TAKES_NUMBER = {"INSERT", "UPDATE", "UPDATE_WITH_BEFORE", "DELETE", "TRUNCATE"}


def test_sequence_writer(qlik_sequence_writer: Case) -> None:
    case = known_members(
        "sequence writer", qlik_sequence_writer, {"start", "steps"}, {"end"} | COMMENTS
    )
    state = WriterState(*case["start"])
    for given in case["steps"]:
        step = known_members(
            "step", given, {"change"}, {"commit_time", "change_seq", "error"} | COMMENTS
        )
        if step["change"] in TAKES_NO_NUMBER:
            assert step.get("change_seq") is None
            continue
        assert step["change"] in TAKES_NUMBER
        time = (
            None if step.get("commit_time") is None else datetime.fromisoformat(step["commit_time"])
        )
        prefix = sequence.time_prefix(time)
        with_before = step["change"] == "UPDATE_WITH_BEFORE"
        if "error" in step:
            with pytest.raises(EventlogError) as caught:
                sequence.next_sequence(state, prefix, with_before=with_before)
            assert caught.value.code == code_of(step["error"])
        else:
            state, change_seq = sequence.next_sequence(state, prefix, with_before=with_before)
            assert change_seq == step["change_seq"]
    if "end" in case:
        assert state == tuple(case["end"])


def test_partition(qlik_partitions: Case) -> None:
    members = {"seq_time", "partition_seconds", "partition_base", "partition_name"}
    case = known_members("partition", qlik_partitions, members, COMMENTS)
    partitioning = case["partition_seconds"], datetime.fromisoformat(case["partition_base"])
    time = datetime.fromisoformat(case["seq_time"])
    assert partition_name(partition_at(time, *partitioning)) == case["partition_name"]
    assert (
        partition_of(sequence.time_prefix(time) + "7".zfill(19), *partitioning)
        == case["partition_name"]
    )


# --- change tables --------------------------------------------------------------------------------

STORED: dict[str, Callable[[str], Any]] = {
    "timestamp": datetime.fromisoformat,
    "change_mask": bytes.fromhex,
}


def headers_of(case: Case) -> list[str]:
    """The header columns that the case's rows have, in the order of the table; without rows the
    first seven.
    """
    return [name for name in DEFAULT_HEADERS if not case["rows"] or name in case["rows"][0]]


def layout_of(case: Case) -> TableLayout:
    names = headers_of(case)
    assert case["headers"] == len(names), (
        "the rows of a case have as many header columns as it says"
    )
    return read_layout([*(f"header__{name}" for name in names), *case["columns"]], what="case")


def stored_rows(case: Case) -> list[list[Any]]:
    """The rows as a database has them."""
    rows = []
    for given in case["rows"]:
        # partition_name, which is lost, stands after the data columns and moves no bit.
        row = known_members("row", given, {*headers_of(case), "row"}, {"partition_name"} | COMMENTS)
        values = {
            name: None if row[name] is None else STORED.get(name, str)(row[name])
            for name in headers_of(case)
        }
        known_members("data", row["row"], case["columns"])
        rows.append(
            [*values.values(), *(value_from_json(row["row"][name]) for name in case["columns"])]
        )
    return rows


def change_rows(case: Case) -> list[ChangeRow]:
    read_row = row_reader(layout_of(case), counters=Counter(), what="case")
    return [read_row(values) for values in stored_rows(case)]


def test_live_view(qlik_live_views: Case) -> None:
    members = {"columns", "key", "headers", "base", "rows", "as_of", "result"}
    case = known_members("live view", qlik_live_views, members, COMMENTS)
    as_of = None if case["as_of"] is None else datetime.fromisoformat(case["as_of"])
    base, result = (list(map(row_from_json, case[member])) for member in ("base", "result"))
    view = live_view(base, change_rows(case), as_of, key=case["key"])
    assert [row for _, row in sorted(view.items())] == result
    if as_of is not None and as_of.tzinfo is None:
        assert (
            live_view(base, change_rows(case), as_of.replace(tzinfo=UTC), key=case["key"]) == view
        )


def row_from_json(row: Case) -> Case:
    return {name: value_from_json(value) for name, value in row.items()}


# --- rows and messages ----------------------------------------------------------------------------


def case_columns(case: Case) -> tuple[QlikColumn, ...]:
    """The columns as the values of the rows show them, LOBs and key as the case specifies."""
    lobs, key = case.get("lobs", []), case["key"]
    seen = ColumnsSeen()
    for row in change_rows(case):
        seen.see(Change(None, "t", ChangeOp.INSERT, None, None, row.data))
    types = {column.name: column.type for column in seen.columns()}
    large = {"BYTES": "BLOB"}
    given = [
        {
            "name": name,
            "type": large.get(types.get(name), "CLOB")
            if name in lobs
            else types.get(name, "STRING"),
        }
        for name in case["columns"]
    ]
    return columns_from_json(given, key, what="case")


def messages_of(case: Case, report: Report) -> list[Case]:
    columns = case_columns(case)
    source = SourceTable("app", "item", tuple(case["key"]), lobs_of(columns), absent_nulls="null")
    complete = case["input_complete"]
    rows = changes_of_rows(change_rows(case), source, input_complete=complete)
    changes = count_events(rows, input_complete=complete)
    writer = MessageWriter(
        WriteOptions(metadata="none", names="off"), report, columns={"app.item": columns}
    )
    return [
        json.loads(message.value)["message"]
        for change in changes
        for message in writer.messages(change)
    ]


def rows_of_messages(case: Case) -> list[list[Any]]:
    columns = case_columns(case)
    options = ReadOptions(
        "app", "item", columns={"app.item": [asdict(column) for column in columns]}
    )
    target = TargetTable("item", columns, TableOptions())
    write = row_writer(layout_of(case), mask_form="binary", what="case")
    reader, state, stored = MessageReader(options), WriterState(), []
    for message in case["messages"]:
        for change in reader.changes(Message(None, None, message)):
            state, rows = rows_of(change, target, state, Counter())
            stored += map(write, rows)
    return stored


def test_conversion(qlik_conversions: Case) -> None:
    members = {"columns", "key", "headers", "rows", "input_complete"}
    expected = {"messages", "messages_to_rows", "truncate_skipped"}
    case = known_members(
        "conversion", qlik_conversions, members, expected | {"lobs", "error"} | COMMENTS
    )
    report = Report()
    if "error" in case:
        with pytest.raises(EventlogError) as caught:
            messages_of(case, report)
        assert caught.value.code == code_of(case["error"])
        return
    assert messages_of(case, report) == case["messages"]
    assert report.counters["truncate_skipped"] == case["truncate_skipped"]


def test_conversion_back(qlik_conversions: Case) -> None:
    if qlik_conversions.get("messages_to_rows"):
        expected = stored_rows(qlik_conversions)
        mask = headers_of(qlik_conversions).index("change_mask")
        for row in expected:  # a binary mask that is NULL is an empty one
            row[mask] = row[mask] or b""
        assert rows_of_messages(qlik_conversions) == expected
