"""``qlik.json``, messages and keys: JSON of Kafka records to changes and back, texts of keys
(formats/qlik.md 5).
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from vector_cases import code_of, known_members

from eventlog.changes.format import Report
from eventlog.changes.json_form import from_json, to_json
from eventlog.errors import EventlogError
from eventlog.qlik.messages.envelope import Message
from eventlog.qlik.messages.message_reader import MessageReader
from eventlog.qlik.messages.message_tables import ReadOptions, WriteOptions
from eventlog.qlik.messages.message_writer import MessageWriter

Case = dict[str, Any]


def columns_of(case: Case) -> dict[str, Any]:
    """The option ``columns``: by the names in the options, and by those that the change bears."""
    if not case.get("columns"):
        return {}
    names = [(named["schema"], named["table"]) for named in (case, case.get("change", case))]
    return {
        table if schema is None else f"{schema}.{table}": case["columns"]
        for schema, table in names
        if table
    }


def in_binary(value: Any) -> Any:
    """JSON whose numbers with a fraction are floats, as they are in changes."""
    return json.loads(json.dumps(value, default=float))


def read(case: Case, report: Report) -> list[Case]:
    options = ReadOptions(case["schema"], case["table"], columns=columns_of(case), metadata_wait=0)
    reader = MessageReader(options, report)
    changes = [to_json(change) for change in reader.changes(Message(None, None, case["message"]))]
    reader.finish()
    return changes


def test_message(qlik_messages: Case) -> None:
    case = qlik_messages
    known_members(
        "message", case, {"schema", "table", "message"},
        {"name", "note", "columns", "change", "error", "skipped", "write"},
    )  # fmt: skip
    report = Report()
    if "error" in case:
        with pytest.raises(EventlogError) as caught:
            read(case, report)
        assert caught.value.code == code_of(case["error"])
    elif "skipped" in case:
        assert read(case, report) == []
        assert report.counters == {case["skipped"]: 1}
    else:
        assert read(case, report) == [in_binary(case["change"])]


def test_message_is_written_again(qlik_messages: Case) -> None:
    case = in_binary(qlik_messages)
    if not case.get("write"):
        return
    options = WriteOptions(metadata="none", names="off", columns=columns_of(case))
    (written,) = MessageWriter(options).messages(from_json(case["change"]))
    assert json.loads(written.value) == case["message"]


def test_key(qlik_keys: Case) -> None:
    case = qlik_keys
    known_members(
        "key", case, {"key", "columns", "schema", "table", "row", "text"}, {"name", "note"}
    )
    options = WriteOptions(metadata="none", key=case["key"], columns=columns_of(case))
    change = {
        "schema": case["schema"],
        "table": case["table"],
        "op": "INSERT",
        "after": case["row"],
    }
    (written,) = MessageWriter(options).messages(from_json(change))
    assert (None if written.key is None else written.key.decode()) == case["text"]
