"""``gbase.json``: values, records, streams and framing errors of the CDC record stream
(formats/gbase-cdc.md).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any

import pytest
from vector_cases import code_of, known_members

from eventlog.changes.json_form import to_json, value_to_json
from eventlog.errors import FormatError
from eventlog.gbase import records
from eventlog.gbase.format import Record, read_record
from eventlog.gbase.layout import Layouts, parse_columns, tabschem
from eventlog.gbase.options import ReadOptions
from eventlog.gbase.packed import datetime_text
from eventlog.gbase.reader import StreamReader
from eventlog.gbase.records import RECORD_NAMES, Framer
from eventlog.gbase.values import ColumnType, Encoding, codec
from eventlog.model import Value

Case = dict[str, Any]
COMMENTS = {"name", "note"}
LABEL = 1
EPOCH = datetime(1970, 1, 1)
CHANGE = {
    "schema", "table", "op", "key", "before", "after", "changed", "position", "transaction_id",
    "event_number", "last_in_transaction", "commit_time", "user",
}  # fmt: skip


def as_decoded(value: Value, column_type: ColumnType) -> Any:
    """A value as the vectors write it: decimals, dates, datetimes and intervals as text."""
    if column_type.qualifier is not None and value is not None:
        return datetime_text(value, column_type.qualifier)
    return value_to_json(value)


def read_options(case: Case) -> ReadOptions:
    given = dict(case.get("options", {}))
    restart = given.pop("restart", None)
    if (
        isinstance(restart, str) or "restart_commit" in given
    ):  # the parts of the token, each as an option
        restart = {"restart": restart, "commit": given.pop("restart_commit", None)}
    return ReadOptions(**given, restart=restart)


def described(columns: str, options: ReadOptions, label: int = LABEL) -> Layouts:
    layouts = Layouts(options, Counter())
    layouts.define(tabschem(label, parse_columns(columns, options.decimal_no_scale)), 36)
    return layouts


def test_value_is_read_and_written(gbase_values: Case) -> None:
    known_members(
        "value", gbase_values, {"type", "hex", "decoded"}, {*COMMENTS, "size_entry", "options"}
    )
    options = read_options(gbase_values)
    slot = bytes.fromhex(gbase_values["hex"])
    sizes = [gbase_values["size_entry"]] if "size_entry" in gbase_values else []
    layouts = described(f"c {gbase_values['type']}", options)
    record = records.row(
        40, 1, 1, LABEL, sizes, slot, "big" if options.size_order == "big" else "little"
    )
    layout = layouts[LABEL]
    (value,) = layout.decode(record, len(record) - len(slot))
    column_type = layout.columns[0].type
    assert as_decoded(value, column_type) == gbase_values["decoded"]
    prefix = options.varchar_prefix if isinstance(options.varchar_prefix, int) else 2
    null, write, _ = codec(column_type, options.charset, prefix)
    if value is None:
        assert null == slot
    elif column_type.kind is not Encoding.LOB:
        assert write(value) == slot
        assert write(gbase_values["decoded"]) == slot


def name_of(record: Record) -> str | int:
    return RECORD_NAMES.get(record.number, record.number)


def fields_of(record: Record) -> Case:
    """A record in the form of the vectors."""
    kind = name_of(record)
    found: Case = {
        "record": kind,
        "header_size": record.header_size,
        "payload_size": len(record.data) - record.header_size,
        **{
            name: value
            for name, value in record.fields.items()
            if name != "flags" or kind == "ERROR"
        },
    }
    if "seq" in found:
        found["seq"] = f"{found['seq']:016x}"
    if "time" in found:
        found["time"] = (EPOCH + timedelta(seconds=found["time"])).isoformat() + "Z"
    if record.layout is not None and kind == "TABSCHEM":
        found["columns"] = [[column.name, column.type.spelled] for column in record.layout.columns]
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
    framer = Framer(options.max_record)
    (frame,) = framer.feed(data)
    framer.finish()
    layouts = Layouts(options, Counter())
    if "columns" in gbase_records:
        layouts = described(gbase_records["columns"], options, gbase_records["decoded"]["label"])
    assert fields_of(read_record(frame, layouts)) == gbase_records["decoded"]


def fragments(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


@pytest.mark.parametrize("size", [1, 7, 1 << 30])
def test_stream_is_read_in_any_fragments(gbase_streams: Case, size: int) -> None:
    known_members(
        "stream",
        gbase_streams,
        {"hex", "records", "changes", "counters", "restart_token"},
        {*COMMENTS, "options"},
    )
    data, options = bytes.fromhex(gbase_streams["hex"]), read_options(gbase_streams)
    framer, reader = Framer(options.max_record), StreamReader(options)
    layouts = Layouts(options, Counter())
    names, changes = [], []
    for fragment in fragments(data, size):
        for frame in framer.feed(fragment):
            record = read_record(frame, layouts)
            names.append(name_of(record))
        changes += [to_json(change) for change in reader.feed(fragment)]
    token = reader.token.to_json()
    reader.close()  # no declared end: a stream may stop inside a record
    for expected in gbase_streams["changes"]:
        known_members("change", expected, CHANGE)
    assert names == gbase_streams["records"]
    assert [{name: change[name] for name in CHANGE} for change in changes] == gbase_streams[
        "changes"
    ]
    assert {name: count for name, count in reader.counters.items() if count} == gbase_streams[
        "counters"
    ]
    assert token == gbase_streams["restart_token"]


@pytest.mark.parametrize("size", [1, 7, 1 << 30])
def test_framing_error_comes_after_the_complete_records(
    gbase_framing_errors: Case, size: int
) -> None:
    known_members(
        "framing error",
        gbase_framing_errors,
        {"hex", "error"},
        {*COMMENTS, "complete_records", "remainder", "options"},
    )
    data, options = bytes.fromhex(gbase_framing_errors["hex"]), read_options(gbase_framing_errors)
    complete: list[Record] = []
    with pytest.raises(FormatError) as caught:
        read_to_the_end(fragments(data, size), options, complete)
    error = caught.value
    assert error.code == code_of(gbase_framing_errors["error"])
    assert len(complete) == gbase_framing_errors.get("complete_records", len(complete))
    if "remainder" in gbase_framing_errors:
        assert error.offset is not None
        assert len(data) - error.offset == gbase_framing_errors["remainder"]


def read_to_the_end(data: Iterator[bytes], options: ReadOptions, complete: list[Record]) -> None:
    """Read a stream to its declared end; ``complete`` takes the records up to the one that is
    wrong.
    """
    framer, layouts = Framer(options.max_record), Layouts(options, Counter())
    with closing(StreamReader(options)) as reader:
        for fragment in data:
            for frame in framer.feed(fragment):
                record = read_record(frame, layouts)
                deque(reader.feed(frame[3]), maxlen=0)  # for the errors that the transactions see
                complete.append(record)
        framer.finish()
