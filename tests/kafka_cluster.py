"""The mock cluster of librdkafka, which speaks the protocol over TCP, in a process that can be
stopped and killed.

What a broker has not read from its sockets when it is stopped, it reads when it goes on: as after a
long pause.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition

from eventlog.model import KafkaRecord
from eventlog.transport import kafka

QUICK = {"fetch.wait.max.ms": 10, "fetch.error.backoff.ms": 10}
"""Settings for a reader. A reader that is given other partitions first waits for the answer to its
last request, which the brokers keep back for half a second if nothing comes.
"""

HOST = """
import ctypes, sys
from ctypes import c_char_p, c_size_t, c_void_p
library, *errors = sys.argv[1:]
kafka = ctypes.CDLL(library)
for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
    getattr(kafka, name).restype = c_void_p
kafka.rd_kafka_mock_cluster_bootstraps.restype = c_char_p
settings = c_void_p(kafka.rd_kafka_conf_new())
kafka.rd_kafka_conf_set(settings, b"log_level", b"0", None, c_size_t(0))
host = c_void_p(kafka.rd_kafka_new(0, settings, None, c_size_t(0)))
cluster = c_void_p(kafka.rd_kafka_mock_cluster_new(host, 1))
for topic, code in zip(errors[::2], errors[1::2]):
    kafka.rd_kafka_mock_topic_set_error(cluster, topic.encode(), int(code))
print(kafka.rd_kafka_mock_cluster_bootstraps(cluster).decode(), flush=True)
sys.stdin.read()
"""
"""Calls the C library: only it can set the error of a topic, and it starts sooner than its Python package."""


@dataclass
class Cluster:
    """``brokers`` for clients. Topics are made when they are asked for, with four partitions."""

    brokers: str
    process: subprocess.Popen[str]

    def kill(self) -> None:
        """The brokers are gone, and all that they have stored."""
        self.process.kill()
        self.process.wait()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """The brokers hang while the block runs."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)  # until they do
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def records(self, *topics: str) -> list[kafka.Record]:
        """What is stored, partition by partition."""
        place = kafka.TopicUrl(self.brokers, topics, None)
        return [record for record in kafka.read_topics(place, QUICK) if record is not None]

    def write(self, records: Iterable[KafkaRecord]) -> None:
        """Store records. Unlike the product's producer, which is idempotent, this one does not wait
        half a second for an id.
        """
        producer = Producer({"bootstrap.servers": self.brokers, "linger.ms": 0})
        for topic, key, value, headers in records:
            assert topic is not None
            producer.produce(topic, value, key, headers=list(headers))
        assert producer.flush(60) == 0

    def messages(self, topic: str, number: int) -> list[Message]:
        """The first messages of a topic, with their headers."""
        settings = {"bootstrap.servers": self.brokers, "group.id": "test", **QUICK}
        with closing(Consumer(settings)) as consumer:
            # Not subscribed: brokers take three seconds to make a group.
            partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
            consumer.assign([TopicPartition(topic, one, OFFSET_BEGINNING) for one in partitions])
            return consumer.consume(number, timeout=30)


@contextmanager
def cluster(**errors: int) -> Iterator[Cluster]:
    """A cluster of one broker. ``errors`` are codes of Kafka by the topics that answer with them."""
    (library,) = Path(confluent_kafka.__file__).parents[1].glob("confluent_kafka.libs/librdkafka*")
    given = [part for topic, code in errors.items() for part in (topic, str(code))]
    command = [sys.executable, "-I", "-S", "-c", HOST, str(library), *given]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield Cluster(process.stdout.readline().strip(), process)
        finally:
            process.kill()


def quiet_clients() -> None:
    """What librdkafka says of brokers that are gone is not news here."""
    logging.getLogger("eventlog.kafka").setLevel(logging.CRITICAL)
