"""Qlik messages as DataFrames of changes, and back (formats/qlik.md 5): each file of records, or
each topic, is read by one task.

No Spark connector is needed: a task reads its topic with confluent-kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from eventlog.changes.format import Report
from eventlog.core.arguments import OPTIONS, PATH_OR_URL, check_arguments
from eventlog.core.clock import utc_now
from eventlog.core.options import parse_options
from eventlog.errors import ConfigError, FormatError
from eventlog.model import KafkaRecord
from eventlog.qlik.messages.envelope import MAGIC, METADATA, Message, registry_of_writer
from eventlog.qlik.messages.message_files import (
    line_of,
    metadata_place,
    open_reader,
    read_lines,
    send,
    with_password,
)
from eventlog.qlik.messages.message_tables import ReadOptions, WriteOptions
from eventlog.qlik.messages.message_writer import MessageWriter
from eventlog.qlik.tables.change_tables import refuse
from eventlog.spark.frames.change_frame import SCHEMA, batches_of, change_of
from eventlog.spark.frames.sorting import numbered_tasks
from eventlog.spark.session.arguments import FRAME, SESSION, check_columns, check_pandas
from eventlog.spark.session.in_tasks import Batches, task_numbers, tune_collector

RECORDS: Final = t.StructType([
    t.StructField("topic", t.StringType()),
    t.StructField("key", t.BinaryType()),
    t.StructField("value", t.BinaryType()),
])  # fmt: skip
"""The columns of records of topics, as Spark's own Kafka sink takes them."""

_CHANGE_SEQUENCE: Final = r"^[0-9]{35}$"
_AVRO_METADATA: Final = (MAGIC + "\x04" + METADATA).encode()


def read_messages(
    spark: SparkSession, source: str | Path, options: Mapping[str, Any] | None = None
) -> DataFrame:
    """Return the changes of a file of messages, of the files of a directory in the order of their
    names, or of the topics of ``kafka://host:port/topic,topic`` (spec/change-model.md 1.2). Topics
    are read to their present end.

    ``options`` are the options of the reader of ``qlik-messages``. All tasks have the metadata
    messages of all files, or of the metadata topic. The changes of a file or topic are in the order
    of the file or topic. Raises ConfigError, FormatError; a query fails with FormatError, or
    KafkaUnavailable.
    """
    check_pandas()
    check_arguments(
        "read_messages",
        spark=(spark, SESSION),
        source=(source, PATH_OR_URL),
        options=(options, OPTIONS),
    )
    source = str(source)
    chosen = parse_options(ReadOptions, options or {}, "the reader of Qlik messages")
    if chosen.follow:
        raise ConfigError(
            "the option `follow` works only when messages are read one by one, but Spark reads to "
            "the present end. Remove the option"
        )
    if source.startswith("kafka:"):
        return _read_topics(spark, source, chosen)
    files = _files(source)
    described = _metadata_of(spark, files)

    def messages(number: int) -> Iterator[Message]:
        # The files count as one: metadata from other files come before or after the file's own
        # messages.
        yield from (message for at, message in described if at < number)
        yield from read_lines(files[number], refuse)
        yield from (message for at, message in described if at > number)

    return _read(spark, len(files), messages, chosen)


def _files(source: str) -> list[Path]:
    place = Path(source)
    if place.is_file():
        return [place]
    files = sorted(
        path for path in place.glob("*") if path.is_file() and not path.name.startswith(("_", "."))
    )
    if not files:
        raise FormatError(f"{source} is neither a file of messages nor a directory of such files")
    return files


def _metadata_of(spark: SparkSession, files: Sequence[Path]) -> list[tuple[int, Message]]:
    """Return the metadata messages of all files, each with the number of its file."""

    def find(batches: Batches) -> Batches:
        for number in task_numbers(batches):
            lines = [line for line, message in _lines(files[number]) if _is_metadata(message)]
            yield pa.RecordBatch.from_pydict(
                {"file": [number] * len(lines), "line": pa.array(lines, pa.int64())}
            )

    found = numbered_tasks(spark, len(files)).mapInArrow(find, "file long, line long").collect()
    wanted: dict[int, set[int]] = {}
    for row in found:
        wanted.setdefault(row["file"], set()).add(row["line"])
    return [
        (number, message)
        for number in sorted(wanted)
        for line, message in _lines(files[number], max(wanted[number]))
        if line in wanted[number]
    ]


def _lines(path: Path, last: int | None = None) -> Iterator[tuple[int, Message]]:
    return enumerate(islice(read_lines(path, refuse), None if last is None else last + 1))


def _is_metadata(message: Message) -> bool:
    value = message.value
    if isinstance(value, bytes):
        return value.startswith(_AVRO_METADATA) or (value[:1] == b"{" and b'"MD"' in value)
    return isinstance(value, Mapping) and value.get("type") == METADATA


def _read(
    spark: SparkSession,
    number: int,
    messages: Callable[[int], Iterator[Message]],
    options: ReadOptions,
) -> DataFrame:
    def read(batches: Batches) -> Batches:
        tune_collector()
        for each in task_numbers(batches):
            reader = open_reader(options, Report(strict=True), clock=lambda: 0.0)
            yield from batches_of(
                change for message in messages(each) for change in reader.changes(message)
            )
            reader.finish()

    return numbered_tasks(spark, number).mapInArrow(read, SCHEMA)


def _read_topics(spark: SparkSession, url: str, options: ReadOptions) -> DataFrame:
    from eventlog.transport import kafka

    place, properties = kafka.parse_url(url), with_password(options.properties)
    if not place.topics:
        raise ConfigError("the URL has no topic to read. Give kafka://host:port/topic")
    about = metadata_place(place, options, properties)
    records = () if about is None else kafka.read_topics(about, properties)
    described = [Message(*record[:3]) for record in records if record is not None]

    def messages(number: int) -> Iterator[Message]:
        yield from described
        topic = place._replace(topics=(place.topics[number],))
        # The workers get secrets from their environment, as this process does.
        for record in kafka.read_topics(topic, with_password(options.properties)):
            if record is not None:
                yield Message(*record[:3])

    return _read(spark, len(place.topics), messages, options)


# --- and back -------------------------------------------------------------------------------------


def to_records(changes: DataFrame, options: Mapping[str, Any] | None = None) -> DataFrame:
    """Return changes as the records of messages, in the order of their positions: columns topic,
    key, value.

    ``options`` are the options of the writer of ``qlik-messages``. Changes whose position is a
    change sequence keep this sequence, and are written in parallel if the option ``columns`` lists
    the columns of their tables. One task numbers all other changes. Every task describes its tables
    before their first message. Raises ConfigError; a query fails with FormatError.
    """
    chosen = parse_options(WriteOptions, options or {}, "the writer of Qlik messages")
    registry_of_writer(chosen)  # raises here, before any task
    now = utc_now()

    def write(batches: Batches) -> Batches:
        tune_collector()
        writer = MessageWriter(chosen, registry=registry_of_writer(chosen), utc_now=lambda: now)
        for batch in batches:
            written = [
                message for row in batch.to_pylist() for message in writer.messages(change_of(row))
            ]
            columns = list(zip(*written, strict=True))[:3] or [(), (), ()]
            kinds = (pa.string(), pa.binary(), pa.binary())
            arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, names=RECORDS.names)

    is_numbered = f.coalesce(f.col("position").rlike(_CHANGE_SEQUENCE), f.lit(False))
    numbered = changes.where(~is_numbered).isEmpty()
    if numbered and chosen.columns:
        in_order = changes.orderBy("position", "event_number")
    else:
        order = [f.col("position")]
        if not numbered:
            order.insert(0, f.expr("try_cast(position AS decimal(38, 0))"))
        in_order = changes.coalesce(1).sortWithinPartitions(*order, "event_number")
    return in_order.mapInArrow(write, RECORDS)


def write_messages(
    changes: DataFrame, target: str | Path, options: Mapping[str, Any] | None = None
) -> None:
    """Write changes as messages to the files of a new directory, or to ``kafka://host:port`` (to
    the topic in the option ``topic``, otherwise to one topic per table). Raises ConfigError; the
    query fails with FormatError, or KafkaUnavailable.
    """
    check_pandas()
    check_arguments(
        "write_messages",
        changes=(changes, FRAME),
        target=(target, PATH_OR_URL),
        options=(options, OPTIONS),
    )
    check_columns("write_messages", "changes", changes, SCHEMA.names)
    target = str(target)
    chosen = parse_options(WriteOptions, options or {}, "the writer of Qlik messages")
    records = to_records(changes, options)
    if not target.startswith("kafka:"):
        as_line = f.udf(lambda *fields: line_of(_record(*fields)).decode().rstrip("\n"))
        records.select(as_line(*RECORDS.names).alias("value")).write.text(target)
        return
    from eventlog.transport import kafka

    place = kafka.parse_url(target)
    if place.topics:
        raise ConfigError(
            "the URL to write to cannot contain a topic. Set the option topic, or leave it out for "
            "one topic per table"
        )
    brokers, properties = place.brokers, chosen.properties
    # The workers get secrets from their environment, as this process does.
    records.foreachPartition(
        lambda rows: send((_record(*row) for row in rows), brokers, properties)
    )


def _record(topic: str, key: Any, value: Any) -> KafkaRecord:
    return KafkaRecord(topic, None if key is None else bytes(key), bytes(value))
