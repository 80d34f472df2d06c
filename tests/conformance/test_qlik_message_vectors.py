"""``qlik.json``, messages and keys: JSON values of Kafka records to changes and back, texts of keys (qlik.md 5)."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from vector_cases import known_members

from eventlog import errors
from eventlog.change_json import from_json, to_json
from eventlog.formats import Report
from eventlog.qlik import errors as qlik_errors
from eventlog.qlik.columns import columns_from_json
from eventlog.qlik.message import Message
from eventlog.qlik.message_key import primary_key, table_key
from eventlog.qlik.message_options import ReadOptions, WriteOptions
from eventlog.qlik.message_reader import MessageReader
from eventlog.qlik.message_table import MessageTable
from eventlog.qlik.message_writer import MessageWriter

Case = dict[str, Any]


def full_name(case: Case) -> str:
    return case["table"] if case["schema"] is None else f"{case['schema']}.{case['table']}"


@pytest.fixture
def message(qlik_messages: Case, request: pytest.FixtureRequest) -> Any:
    """The message as a reader of JSON hands it over: its numbers are not rounded to binary."""
    place = int(request.node.callspec.id.rpartition("-")[2])
    given = request.config.getoption("--vectors", default=None)
    directory = Path(__file__).parent / "vectors" if given is None else request.config.invocation_params.dir / given
    text = (directory / "qlik.json").read_text(encoding="utf-8")
    return json.loads(text, parse_float=Decimal)["messages"][place]["message"]


def read(case: Case, message: Any, report: Report) -> list[Case]:
    options = ReadOptions(schema=case["schema"], table=case["table"], columns={full_name(case): case["columns"]},
                          metadata_wait=0)  # fmt: skip
    reader = MessageReader(options, report)
    changes = [to_json(change) for change in reader.changes(Message(None, None, message))]
    reader.finish()
    return changes


def test_message(qlik_messages: Case, message: Any) -> None:
    case = qlik_messages
    known_members(
        "message", case, {"columns", "schema", "table", "message"},
        {"name", "note", "change", "error", "skipped", "write"},
    )  # fmt: skip
    report = Report()
    if "error" in case:
        kind = getattr(qlik_errors, case["error"], None) or getattr(errors, case["error"])
        with pytest.raises(kind) as caught:
            read(case, message, report)
        assert type(caught.value).__name__ == case["error"]
    elif "skipped" in case:
        assert read(case, message, report) == []
        assert report.counters == {case["skipped"]: 1}
    else:
        assert read(case, message, report) == [case["change"]]


def test_message_is_written_again(qlik_messages: Case) -> None:
    case = qlik_messages
    if not case.get("write"):
        return
    options = WriteOptions(metadata="none", names="off", columns={full_name(case): case["columns"]})
    (written,) = MessageWriter(options).messages(from_json(case["change"]))
    assert json.loads(written.value) == case["message"]


def test_key(qlik_keys: Case) -> None:
    case = qlik_keys
    known_members("key", case, {"key", "columns", "schema", "table", "row", "text"}, {"name", "note"})
    table = MessageTable(case["schema"], case["table"], columns_from_json(case["columns"], what=case["table"]))
    makers = {"primary_key": primary_key, "table": table_key, "none": lambda table: lambda row: None}
    key = makers[case["key"]](table)(case["row"])
    assert (None if key is None else key.decode()) == case["text"]
