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
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from confluent_kafka import Consumer, Message

from eventlog.transport import kafka

HOST = """
import sys
from confluent_kafka import Producer
host = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 0})
broker = next(iter(host.list_topics(timeout=30).brokers.values()))
print(f"{broker.host}:{broker.port}", flush=True)
sys.stdin.read()
"""


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
        return [record for record in kafka.read_topics(place) if record is not None]

    def messages(self, topic: str, number: int) -> list[Message]:
        """The first messages of a topic, with their headers."""
        settings = {
            "bootstrap.servers": self.brokers,
            "group.id": "test",
            "auto.offset.reset": "earliest",
        }
        with closing(Consumer(settings)) as consumer:
            consumer.subscribe([topic])
            return consumer.consume(number, timeout=30)


@contextmanager
def cluster() -> Iterator[Cluster]:
    command = [sys.executable, "-c", HOST]
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
