"""Reads Qlik messages from Kafka with nothing of eventlog: fastavro and confluent-kafka alone.

    python qlik_consumer.py localhost:9092 hr.usr [hr.grp ...]

Prints one line per change: sequence, operation, table, the present row, the changed columns. Reads
JSON and Avro. Ends when the topics have been read to their ends; ``--follow`` goes on.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
from typing import Any

import fastavro
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

DOCUMENT = fastavro.parse_schema(
    {
        "type": "record",
        "name": "MessageEnvelope",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "Magic", "size": 5}},
            {"name": "type", "type": "string"},
            {"name": "headers", "type": ["null", {"type": "map", "values": "string"}]},
            {"name": "messageSchemaId", "type": ["null", "string"]},
            {"name": "messageSchema", "type": ["null", "string"]},
            {"name": "message", "type": "bytes"},
        ],
    }
)


def decode(value: bytes, metadata: dict[str, Any]) -> dict[str, Any]:
    """Return the document with its payload as an object, whether JSON or Avro."""
    if value.startswith(b"{"):
        return json.loads(value)
    document_no = fastavro.schemaless_reader(io.BytesIO(value), DOCUMENT, None)
    schema = document_no["messageSchema"] or metadata[document_no["messageSchemaId"]]["dataSchema"]
    parsed = fastavro.parse_schema(json.loads(schema))
    document_no["message"] = fastavro.schemaless_reader(
        io.BytesIO(document_no["message"]), parsed, None
    )
    return document_no


def bits(mask: str | bytes | None) -> int:
    """Hex text has its most significant byte first, Avro's bytes have it last."""
    return int.from_bytes(mask, "little") if isinstance(mask, bytes) else int(mask or "0", 16)


def line_of(message: dict[str, Any], columns: dict[str, Any]) -> str:
    """Return a line of what one change did. Bit ``ordinal - 1`` of a mask is the column's."""
    headers = message["headers"]
    changed, present = bits(headers["changeMask"]), bits(headers["columnMask"])
    names = sorted(columns, key=lambda name: columns[name]["ordinal"])
    known = [
        name
        for name in names
        if headers["columnMask"] is None or present >> columns[name]["ordinal"] - 1 & 1
    ]
    row = {name: message["data"][name] for name in known}
    marked = [name for name in names if changed >> columns[name]["ordinal"] - 1 & 1]
    table = f"{message['schema']}.{message['table']}"
    return (
        f"{headers['changeSequence']} {headers['operation']} {table} "
        f"{json.dumps(row, default=str)} {marked}"
    )


def read(consumer: Consumer, topics: list[str], follow: bool) -> Any:
    """Yield the values of topics from their beginning to their end, or for ever."""
    partitions = []
    for topic in topics:
        about = consumer.list_topics(topic, timeout=30).topics[topic]
        partitions += [
            TopicPartition(topic, number, OFFSET_BEGINNING) for number in about.partitions
        ]
    consumer.assign(partitions)
    open_partitions = len(partitions)
    while open_partitions or follow:
        record = consumer.poll(1.0)
        if record is None:
            continue
        if record.error() is None:
            yield record.value()
        elif record.error().code() == KafkaError._PARTITION_EOF:
            open_partitions -= 1
        else:
            sys.exit(str(record.error()))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("brokers")
    parser.add_argument("topics", nargs="+")
    parser.add_argument("--metadata-topic", default="eventlog.metadata")
    parser.add_argument("--follow", action="store_true")
    options = parser.parse_args()
    consumer = Consumer(
        {
            "bootstrap.servers": options.brokers,
            "group.id": "qlik-consumer",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    metadata: dict[str, Any] = {}
    waiting: list[bytes] = []
    try:
        for value in read(consumer, [options.metadata_topic], follow=False):
            message = decode(value, metadata)["message"]
            metadata[message["schemaId"]] = message
        for value in read(consumer, [options.metadata_topic, *options.topics], options.follow):
            waiting.append(value)
            while waiting:  # a message may come before the metadata that it names
                try:
                    document_no = decode(waiting[0], metadata)
                    if document_no["type"] == "MD":
                        metadata[document_no["message"]["schemaId"]] = document_no["message"]
                    else:
                        about = metadata[document_no["messageSchemaId"]]
                        print(
                            line_of(
                                document_no["message"], about["tableStructure"]["tableColumns"]
                            ),
                            flush=True,
                        )
                except KeyError:
                    break
                del waiting[0]
    finally:
        consumer.close()
    if waiting:
        sys.exit(
            f"{len(waiting)} messages wait for metadata that are not in {options.metadata_topic}"
        )


if __name__ == "__main__":
    main()
