"""Messages by hand, and what reading and writing them gives, for the tests of Qlik messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from eventlog.changes.format import Report
from eventlog.model import Change, ChangeOp, KafkaRecord
from eventlog.qlik.messages.envelope import HttpRegistry, Message, UnknownSchema
from eventlog.qlik.messages.message_reader import MessageReader
from eventlog.qlik.messages.message_tables import ReadOptions, WriteOptions
from eventlog.qlik.messages.message_writer import MessageWriter

SEQUENCE = "20240510120000000000000000000000012"
ITEM = (
    {"name": "id", "type": "INT4", "pk": 1},
    {"name": "name", "type": "STRING"},
    {"name": "price", "type": "NUMERIC", "precision": 9, "scale": 2},
)
COLUMNS = {"app.item": ITEM}
NOW = datetime(2024, 5, 10, 12, tzinfo=UTC)

UPDATE = Change(
    "app",
    "item",
    ChangeOp.UPDATE,
    (("id", 7),),
    {"id": 7, "name": "nut", "price": Decimal("1.50")},
    {"id": 7, "name": "nut", "price": Decimal("1.75")},
    frozenset({"price"}),
    SEQUENCE,
    "000000000000000000000000000000A1",
    1,
    True,
    datetime(2024, 5, 10, 12, tzinfo=UTC),
    extras={"stream_position": "p:12"},
)
HEADERS: Mapping[str, Any] = {
    "operation": "UPDATE",
    "changeSequence": SEQUENCE,
    "timestamp": "2024-05-10T12:00:00.000",
    "streamPosition": "p:12",
    "transactionId": "000000000000000000000000000000A1",
    "changeMask": "04",
    "columnMask": "07",
    "transactionEventCounter": 1,
    "transactionLastEvent": True,
}
DATA: Mapping[str, Any] = {"id": 7, "name": "nut", "price": "1.75"}
BEFORE: Mapping[str, Any] = {"id": 7, "name": "nut", "price": "1.50"}


def envelope(message: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"magic": "atMSG", "type": "DT", "headers": None, "messageSchemaId": None,
            "messageSchema": None, "message": message, **more}  # fmt: skip


def read(
    *values: Any,
    report: Report | None = None,
    registry: HttpRegistry | MemoryRegistry | None = None,
    topic: str | None = None,
    **options: Any,
) -> list[Change]:
    """The changes of records by their values; nothing more comes."""
    reader = MessageReader(ReadOptions(**options), report, registry, clock=lambda: 0.0)
    messages = [
        value if isinstance(value, Message | KafkaRecord) else Message(topic, None, value)
        for value in values
    ]
    changes = [change for message in messages for change in reader.changes(Message(*message[:3]))]
    reader.finish()
    return changes


def read_item(*values: Any, **options: Any) -> list[Change]:
    return read(*values, **{"schema": "app", "table": "item", "columns": COLUMNS, **options})


def write(
    changes: Iterable[Change],
    report: Report | None = None,
    registry: HttpRegistry | MemoryRegistry | None = None,
    **options: Any,
) -> list[KafkaRecord]:
    writer = MessageWriter(WriteOptions(**options), report, registry, utc_now=lambda: NOW)
    return [message for change in changes for message in writer.messages(change)]


def records(written: Sequence[KafkaRecord]) -> list[dict[str, Any]]:
    return [json.loads(message.value) for message in written]


def data_records(written: Sequence[KafkaRecord]) -> list[dict[str, Any]]:
    """The payloads of the data messages, in JSON."""
    return [record["message"] for record in records(written) if record["type"] == "DT"]


@dataclass(slots=True)
class MemoryRegistry:
    """A registry in memory. A schema has one id, whatever its subjects."""

    schemas: list[str] = field(default_factory=list)
    subjects: dict[str, list[int]] = field(default_factory=dict)

    def register(self, subject: str, schema: str) -> int:
        if schema not in self.schemas:
            self.schemas.append(schema)
        schema_id = self.schemas.index(schema) + 1
        versions = self.subjects.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return schema_id

    def schema(self, schema_id: int) -> str:
        if not 1 <= schema_id <= len(self.schemas):
            raise UnknownSchema(f"the registry has no schema {schema_id}")
        return self.schemas[schema_id - 1]
