"""What each format shows of the transaction of an event, by the table of spec/event-log.md 1.5."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest

from eventlog.changes.publishing import Publishing
from eventlog.core.rows.events import Outgoing
from eventlog.model import KafkaRecord, Origins
from eventlog.registry import format_named
from eventlog.testing import samples

SPECIFICATION: Final = Path(__file__).parents[2] / "docs/spec/event-log.md"
FIRST: Final = "20261121204500900000000000000000001"


def cases() -> list[tuple[str, ...]]:
    """The rows of the table: last row, epoch, Qlik, CloudEvents, Debezium."""
    text = SPECIFICATION.read_text("utf-8")
    section = text[text.index("### 1.5") : text.index("## 2 ")]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return [tuple(cell.strip(" `") for cell in row) for row in rows[2:]]


def written(format: str, event: Outgoing, origins: Origins) -> dict[str, Any]:
    """The document that a publisher writes of the event in JSON."""
    one = format_named(format)
    catalog = samples.catalog()
    publishing = Publishing(catalog=catalog, in_records=format != "cloudevents")
    assert one.publish is not None
    writer = one.publish(one.publish_options(), publishing)
    delivery = samples.DeliverySample(1, FIRST, origins)
    document = writer.document(catalog, delivery, 1, [event])
    if document.records:
        records = document.records[0]
        assert isinstance(records, tuple)
        record: KafkaRecord = records[-1]
        found = json.loads(record.value or b"")
    else:
        found = json.loads(document.body)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(("row", "epoch", "qlik", "cloudevents", "debezium"), cases())
def test_each_format_shows_what_the_table_has(
    row: str, epoch: str, qlik: str, cloudevents: str, debezium: str
) -> None:
    (event,) = samples.events(samples.catalog(), number=1)
    number = re.search(r"of transaction (\d+)", row)
    event = event._replace(
        ids=[1, 2], event_id="1" if epoch in ("the first", "any") else f"1.e{epoch}"
    )
    last = None if number is None else number[1]
    origins = Origins({}, {}, {1: "99", 2: last})
    message = written("qlik-messages", event, origins)
    assert message["message"]["headers"]["transactionId"] == qlik
    data = written("cloudevents", event, origins)["data"]
    shown = "missing" if "transaction" not in data else json.dumps(data["transaction"])
    assert shown == cloudevents
    source = written("debezium", event, origins)["payload"]["source"]
    assert json.dumps(source["txId"]) == debezium
