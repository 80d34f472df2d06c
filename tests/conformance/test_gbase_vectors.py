"""``gbase.json``: values, records, streams and framing errors of the CDC record stream (spec/gbase-cdc.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from vector_cases import known_members

from eventlog.change_json import to_json, value_to_json
from eventlog.errors import FormatError
from eventlog.gbase import records
from eventlog.gbase.column_types import ColumnType, Kind
from eventlog.gbase.column_writers import writer
from eventlog.gbase.datetimes import datetime_text
from eventlog.gbase.encodings import TextOptions
from eventlog.gbase.errors import TruncatedStream
from eventlog.gbase.framing import Framer
from eventlog.gbase.layout import Layouts, TabSchem, parse_columns
from eventlog.gbase.options import ReadOptions
from eventlog.gbase.reader import StreamReader
from eventlog.gbase.records import Record, read_record
from eventlog.gbase.row_writer import tabschem
from eventlog.model import Value

Case = dict[str, Any]
COMMENTS = {"name", "note"}
LABEL = 1
EPOCH = datetime(1970, 1, 1)
CHANGE = {
    "schema", "table", "op", "key", "before", "after", "changed", "position", "transaction_id", "event_number",
    "last_in_transaction", "commit_time", "user",
}  # fmt: skip


def as_decoded(value: Value, column_type: ColumnType) -> Any:
    """A value as the vectors write it: decimals, dates, datetimes and intervals as text."""
    if column_type.qualifier is not None and value is not None:
        return datetime_text(value, column_type.qualifier)
    return value_to_json(value)


def read_options(case: Case) -> ReadOptions:
    given = dict(case.get("options", {}))
    if "restart_commit" in given:
        given["restart"] = {"restart": given.get("restart"), "commit": given.pop("restart_commit")}
    return ReadOptions(**given)


def described(columns: str, options: ReadOptions, label: int = LABEL) -> Layouts:
    layouts = Layouts(options, Counter())
    layouts.define(tabschem(label, parse_columns(columns, options.decimal_no_scale)), 36)
    return layouts


def test_value_is_read_and_written(gbase_values: Case) -> None:
    known_members("value", gbase_values, {"type", "hex", "decoded"}, {*COMMENTS, "size_entry", "options"})
    options = read_options(gbase_values)
    slot = bytes.fromhex(gbase_values["hex"])
    sizes = [gbase_values["size_entry"]] if "size_entry" in gbase_values else []
    layouts = described(f"c {gbase_values['type']}", options)
    record = records.row(40, 1, 1, LABEL, sizes, slot, "big" if options.size_order == "big" else "little")
    layout = layouts[LABEL]
    (value,) = layout.decode(record, len(record) - len(slot))
    column_type = layout.columns[0].type
    assert as_decoded(value, column_type) == gbase_values["decoded"]
    prefix = options.varchar_prefix if isinstance(options.varchar_prefix, int) else 2
    write = writer(column_type, TextOptions(options.charset), prefix)
    assert write(value) == slot
    if not (column_type.kind is Kind.LOB and value is not None):
        assert write(gbase_values["decoded"]) == slot


def fields_of(record: Record) -> Case:
    """A record in the form of the vectors."""
    found: Case = {
        "record": record.name or record.number,
        "header_size": record.header_size,
        "payload_size": record.payload_size,
        **{name: value for name, value in record.fields.items() if name != "flags" or record.name == "ERROR"},
    }
    if "seq" in found:
        found["seq"] = f"{found['seq']:016x}"
    if "time" in found:
        found["time"] = (EPOCH + timedelta(seconds=found["time"])).isoformat() + "Z"
    if record.layout is not None and record.name == "TABSCHEM":
        schem: TabSchem = record.layout.described
        found["columns"] = [[column.name, column.type.spelled] for column in schem.columns]
    elif record.layout is not None:
        found["sizes"] = list(record.sizes)
        found["row"] = {
            column.name: as_decoded(value, column.type)
            for column, value in zip(record.layout.columns, record.values, strict=True)
        }
    return found


def test_record_is_read(gbase_records: Case) -> None:
    known_members("record", gbase_records, {"hex", "decoded"}, {*COMMENTS, "columns", "options"})
    data = bytes.fromhex(gbase_records["hex"])
    options = read_options(gbase_records)
    framer = Framer()
    (frame,) = framer.feed(data)
    framer.finish()
    layouts = Layouts(options, Counter())
    if "columns" in gbase_records:
        layouts = described(gbase_records["columns"], options, gbase_records["decoded"]["label"])
    assert fields_of(read_record(frame, layouts)) == gbase_records["decoded"]


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


@pytest.mark.parametrize("size", [1, 7, 1 << 30])
def test_stream_is_read_in_any_pieces(gbase_streams: Case, size: int) -> None:
    known_members(
        "stream",
        gbase_streams,
        {"hex", "options", "records", "changes", "counters", "restart_token"},
        COMMENTS,
    )
    data = bytes.fromhex(gbase_streams["hex"])
    framer, reader = Framer(), StreamReader(read_options(gbase_streams))
    layouts = Layouts(read_options(gbase_streams), Counter())
    names, changes = [], []
    for piece in pieces(data, size):
        for frame in framer.feed(piece):
            record = read_record(frame, layouts)
            names.append(record.name or record.number)
        changes += [to_json(change) for change in reader.feed(piece)]
    token = reader.token.to_json()
    reader.finish()
    for expected in gbase_streams["changes"]:
        known_members("change", expected, CHANGE)
    assert names == gbase_streams["records"]
    assert [{name: change[name] for name in CHANGE} for change in changes] == gbase_streams["changes"]
    assert {name: count for name, count in reader.counters.items() if count} == gbase_streams["counters"]
    assert token == gbase_streams["restart_token"]


@pytest.mark.parametrize("size", [1, 7, 1 << 30])
def test_framing_error_comes_after_the_complete_records(gbase_framing_errors: Case, size: int) -> None:
    known_members(
        "framing error", gbase_framing_errors, {"hex", "error"}, {*COMMENTS, "complete_records", "remainder", "options"}
    )
    options = read_options(gbase_framing_errors)
    data = bytes.fromhex(gbase_framing_errors["hex"])
    framer, layouts, complete = Framer(options.max_record), Layouts(options, Counter()), 0
    error: FormatError | None = None
    try:
        for piece in pieces(data, size):
            for frame in framer.feed(piece):
                read_record(frame, layouts)
                complete += 1
        framer.finish()
    except FormatError as raised:
        error = raised
    if error is None:  # one that the transactions see
        with pytest.raises(FormatError) as caught:
            feed_all(data, size, options)
        error = caught.value
    assert type(error).__name__ == gbase_framing_errors["error"]
    assert complete == gbase_framing_errors.get("complete_records", complete)
    if "remainder" in gbase_framing_errors:
        assert isinstance(error, TruncatedStream)
        assert error.remainder == gbase_framing_errors["remainder"]


def feed_all(data: bytes, size: int, options: ReadOptions) -> None:
    reader = StreamReader(options)
    for piece in pieces(data, size):
        for _ in reader.feed(piece):
            pass
    reader.finish()
