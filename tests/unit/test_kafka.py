"""Producing to topics and reading them, with the mock cluster of librdkafka; the converter's
messages on Kafka.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from kafka_cluster import Cluster, cluster, quiet_clients
from message_samples import COLUMNS, UPDATE

from eventlog.changes.format import Report
from eventlog.errors import ConfigError, FormatError
from eventlog.qlik.messages.envelope import UnknownSchema
from eventlog.qlik.messages.message_format import FORMAT
from eventlog.transport import kafka


@pytest.fixture(scope="module")
def brokers() -> Iterator[Cluster]:
    quiet_clients()
    with cluster() as made:
        yield made


def send(brokers: Cluster, topic: str, *values: bytes | None) -> None:
    transmitter = kafka.Transmitter(brokers.brokers)
    for number, value in enumerate(values):
        transmitter.send(topic, b"k%d" % (number % 7), value)  # type: ignore[arg-type]
    assert transmitter.flush() == {}
    transmitter.close()


def test_records_come_in_the_order_of_their_keys(brokers: Cluster) -> None:
    send(brokers, "order", *(b"%d" % number for number in range(5000)))
    found = brokers.records("order")
    assert len(found) == 5000
    for key in {record.key for record in found}:
        values = [int(record.value or b"") for record in found if record.key == key]
        assert values == sorted(values)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("kafka://h:9092/t", (("h:9092"), ("t",), None)),
        ("kafka://h:1,g:2/a.b,c?offset=12", ("h:1,g:2", ("a.b", "c"), 12)),
        ("kafka://h:9092", ("h:9092", (), None)),
        ("kafka://h:9092/t?offset=earliest", ("h:9092", ("t",), None)),
    ],
)
def test_a_topic_is_named_by_a_url(url: str, place: Any) -> None:
    assert kafka.parse_url(url) == place


@pytest.mark.parametrize(
    "url",
    ["kafka:///t", "http://h/t", "kafka://h/a b", "kafka://u:hush@h/t", "kafka://h/t?offset=latest",
     "kafka://h/t?of=1", "kafka://h/t?offset=-1"],
)  # fmt: skip
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        kafka.parse_url(url)
    assert "hush" not in str(refused.value)


def test_reading_begins_at_an_offset_and_ends_where_the_topic_ended(brokers: Cluster) -> None:
    send(brokers, "offsets", *[b"x"] * 400)
    place = kafka.parse_url(f"kafka://{brokers.brokers}/offsets?offset=10")
    found = kafka.read_topics(place)
    first = next(record for record in found if record is not None)
    assert first.topic == "offsets"
    send(brokers, "offsets", *[b"later"] * 100)
    rest = [record for record in found if record is not None]
    partitions = 4
    assert 400 - 10 * partitions <= 1 + len(rest) <= 500
    assert list(kafka.read_topics(place._replace(offset=10**6))) == []


def test_following_continues_after_the_end(brokers: Cluster) -> None:
    send(brokers, "follow", b"1")
    found = kafka.read_topics(kafka.parse_url(f"kafka://{brokers.brokers}/follow"), follow=True)
    values = []
    for record in found:
        if record is None:
            continue
        values.append(record.value)
        if len(values) == 1:
            send(brokers, "follow", b"2")
        else:
            break
    found.close()  # type: ignore[attr-defined]
    assert values == [b"1", b"2"]


def test_a_topic_or_broker_that_is_not_there_is_an_error(brokers: Cluster) -> None:
    with pytest.raises(kafka.KafkaUnavailable, match="topic none"):
        list(kafka.read_topics(kafka.TopicUrl(brokers.brokers, ("none",), None)))
    with pytest.raises(kafka.KafkaUnavailable):
        list(kafka.read_topics(kafka.TopicUrl("127.0.0.1:1", ("t",), None), timeout=0.5))


def test_what_librdkafka_repeats_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    log, record_of = logging.getLogger("eventlog.kafka"), logging.LogRecord
    said = (
        "%s [rdkafka#consumer-%d] [thrd:h:1/1]: h:1/1: Connect failed (after %dms in state CONNECT)"
    )
    log.handle(record_of(log.name, logging.ERROR, "", 0, said, ("FAIL", 1, 0), None))
    for client in (1, 2):
        log.handle(record_of(log.name, logging.ERROR, "", 0, said, ("FAIL", client, 4), None))
    log.handle(record_of(log.name, logging.ERROR, "", 0, said, ("MAXPOLL", 1, 0), None))
    late = record_of(log.name, logging.ERROR, "", 0, said, ("FAIL", 1, 0), None)
    late.created += 61
    log.handle(late)
    assert [record.args[0] for record in caplog.records if record.args] == [
        "FAIL",
        "MAXPOLL",
        "FAIL",
    ]  # type: ignore[index]


def test_settings_that_are_ours_or_wrong_are_refused() -> None:
    with pytest.raises(ConfigError, match="is set by eventlog"):
        kafka.Transmitter("h", {"enable.idempotence": False})
    for properties in ({"no.such": "hush"}, {"linger.ms": "hush"}, {"acks": "hush"}):
        with pytest.raises(ConfigError) as refused:
            kafka.Transmitter("h", properties)
        assert "hush" not in str(refused.value)


def test_a_record_that_is_too_large_is_refused_alone(brokers: Cluster) -> None:
    transmitter = kafka.Transmitter(brokers.brokers, {"message.max.bytes": 2000})
    assert transmitter.send("large", None, b"small") == 0
    with pytest.raises(kafka.RecordRefused, match="too large"):
        transmitter.send("large", None, b"x" * 3000)
    assert transmitter.send("large", None, b"small") == 1
    assert transmitter.flush() == {}
    transmitter.close()
    assert len(brokers.records("large")) == 2


def test_records_that_no_broker_takes_are_abandoned() -> None:
    transmitter = kafka.Transmitter("127.0.0.1:1", {"queue.buffering.max.messages": 2}, timeout=0.5)
    for _ in range(2):
        transmitter.send("t", None, b"x")
    with pytest.raises(kafka.KafkaUnavailable):
        transmitter.flush()
    assert transmitter.flush() == {}  # nothing is left


def test_what_does_not_fit_into_the_queue_is_abandoned_too() -> None:
    transmitter = kafka.Transmitter("127.0.0.1:1", {"queue.buffering.max.messages": 2}, timeout=0.5)

    def send_many() -> None:
        for _ in range(10):
            transmitter.send("t", None, b"x")
        transmitter.flush()

    with pytest.raises(kafka.KafkaUnavailable):
        send_many()
    transmitter.close()


def test_what_was_abandoned_is_fenced_by_what_is_sent_again(
    brokers: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Real brokers take no record of an epoch that is over; the mock ones do not look, so the
    epochs are looked at.
    """
    transmitter = kafka.Transmitter(brokers.brokers, {"debug": "eos"}, timeout=1)

    def deliver(*values: bytes) -> None:
        for value in values:
            transmitter.send("fenced", b"k", value)
        assert transmitter.flush() == {}

    def deliver_again(*values: bytes) -> None:
        while True:
            with suppress(kafka.KafkaUnavailable):
                return deliver(*values)

    with caplog.at_level(logging.DEBUG, "eventlog.kafka"):
        deliver_again(b"1")
        with brokers.stopped(), pytest.raises(kafka.KafkaUnavailable):
            deliver(b"2")
        deliver_again(b"2", b"3")
        transmitter.close()
    used = re.findall(r"changed PID.* -> PID\{Id:(\d+),Epoch:(\d+)\}", caplog.text)
    assert len({producer for producer, _ in used}) == 1
    epochs = [int(epoch) for _, epoch in used]
    assert epochs == sorted({*epochs})
    assert len(epochs) > 1
    values = [record.value for record in brokers.records("fenced")]
    # On a slow machine what is sent again is abandoned, too, and these brokers may have kept it.
    assert values[0] == b"1"
    assert values[-2:] == [b"2", b"3"]


# The converter's format.


@pytest.mark.promise("option format.qlik-messages.metadata_topic")
def test_changes_go_to_topics_and_come_back(brokers: Cluster) -> None:
    for encoding in ("json", "avro"):
        report = Report()
        options = {"encoding": encoding, "columns": COLUMNS, "metadata_topic": f"about.{encoding}"}
        FORMAT.write([UPDATE, UPDATE], f"kafka://{brokers.brokers}/one.{encoding}", options, report)
        assert report.written == 2
        url = f"kafka://{brokers.brokers}/one.{encoding}"
        read = list(FORMAT.read(url, {"metadata_topic": f"about.{encoding}"}, report))
        assert read == [UPDATE, UPDATE]
        assert report.read == 2


def test_a_message_that_cannot_be_read_is_named_by_its_topic_partition_and_offset(
    brokers: Cluster,
) -> None:
    send(brokers, "nonsense", b"nonsense")
    report = Report()
    assert list(FORMAT.read(f"kafka://{brokers.brokers}/nonsense", {}, report)) == []
    (problem,) = report.problems
    assert re.match(r"topic nonsense, partition [0-9], offset 0: ", problem)


def test_messages_without_their_metadata_are_waited_for_and_then_unknown(brokers: Cluster) -> None:
    FORMAT.write(
        [UPDATE],
        f"kafka://{brokers.brokers}",
        {"columns": COLUMNS, "metadata_topic": "about"},
        Report(),
    )
    url = f"kafka://{brokers.brokers}/app.item"
    with pytest.raises(UnknownSchema):
        list(FORMAT.read(url, {"metadata_topic": None}, Report(strict=True)))
    with pytest.raises(UnknownSchema, match="metadata_wait"):
        list(
            FORMAT.read(
                url,
                {"metadata_topic": "order_of_metadata", "metadata_wait": 0},
                Report(strict=True),
            )
        )
    assert list(FORMAT.read(url, {"metadata_topic": "about"}, Report())) == [UPDATE]


@pytest.mark.promise("option qlik-messages.reader.properties")
def test_a_message_that_kafka_refuses_is_an_error(brokers: Cluster) -> None:
    large = UPDATE._replace(after={**(UPDATE.after or {}), "name": "x" * 5000})
    options = {"columns": COLUMNS, "properties": {"message.max.bytes": 4000}, "metadata": "none"}
    with pytest.raises(FormatError, match="Kafka refuses a message"):
        FORMAT.write([large], f"kafka://{brokers.brokers}", options, Report())


def test_a_url_that_names_no_topic_to_read_or_two_to_write_is_refused() -> None:
    with pytest.raises(ConfigError):
        list(FORMAT.read("kafka://h:1", {}, Report()))
    with pytest.raises(ConfigError):
        FORMAT.write([], "kafka://h:1/a,b", {}, Report())
