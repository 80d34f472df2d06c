"""What the sinks of queues and streams share, without a server: messages of an event, rounds, sizes,
settings (spec/event-log.md 8.4, *Messages*).
"""

from __future__ import annotations

import io
import itertools
import subprocess
import sys
from collections.abc import Collection, Sequence
from typing import Any

import pytest
from message_servers import GUIDE, example, records

from eventlog.config.load import load
from eventlog.errors import ConfigError, ReceiverUnavailable
from eventlog.model import SUCCESS, Document, EventResult, KafkaRecord, Level
from eventlog.publisher.declared.configured_sink import open_sink
from eventlog.publisher.sinks.messages import (
    Message,
    MessageSink,
    Outcome,
    PlaceWaits,
    header_text,
    messages_of,
    rounds,
)
from eventlog.registry import sink_named

SINKS = ("nats", "rabbitmq", "redis", "sqs")
CLIENTS = ("nats", "pika", "redis", "boto3")


IDS = itertools.count()


def message(key: str, topic: str | None = None) -> Message:
    return Message(event_id := str(next(IDS)), event_id, topic, key.encode(), b"", ())


class Server(MessageSink):
    """A sink whose server takes what is in no ``bad`` topic. The records of ``lost`` topics break the
    connection.
    """

    has_one_place = False
    bad: Collection[str] = ()
    lost: Collection[str] = ()

    def __init__(self, options: object = None) -> None:
        self.taken: list[bytes] = []
        self.tried: list[bytes] = []

    def found(self) -> str:
        return "answers"

    def limit(self) -> tuple[int, str]:
        return 1000, "limit"

    def deliver(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        return list(map(self._take, messages))

    def _take(self, one: Message) -> Outcome:
        self.tried.append(one.body)
        if one.topic in self.lost:
            return ReceiverUnavailable("the connection ended")
        if one.topic in self.bad:
            return PlaceWaits(f"{one.topic} is full")
        self.taken.append(one.body)
        return None


def events(*several: str) -> Document:
    """Events, each given as its records: topic, key and body in three letters."""
    return records(
        **{
            f"e{number}": tuple(
                KafkaRecord(one[0], one[1].encode(), one[2].encode()) for one in event.split()
            )
            for number, event in enumerate(several, 1)
        }
    )


def test_an_event_whose_place_takes_nothing_waits_and_all_others_are_a_success() -> None:
    server = Server()
    server.bad = "b"
    answer = server.send(events("a1x", "b1y", "a2z"))
    assert answer.results == {"2": EventResult(Level.RETRY, "b is full", place="b")}
    assert server.taken == [b"x", b"z"]


def test_no_later_message_of_an_object_is_sent_after_one_that_was_not_taken() -> None:
    server = Server()
    server.bad = "b"
    answer = server.send(events("b1x", "b1y", "a1z"))
    assert [answer.result(one).level for one in "123"] == [Level.RETRY, Level.RETRY, Level.SUCCESS]
    assert server.tried == [b"x", b"z"]


def test_an_event_is_a_success_only_if_all_of_its_messages_are() -> None:
    server = Server()
    server.bad = "b"
    answer = server.send(events("b0d a1x", "a1y", "c1z"))
    assert [answer.result(one).level for one in "123"] == [Level.RETRY, Level.RETRY, Level.SUCCESS]
    assert server.taken == [b"z"], "nothing follows a description that was not taken"


def test_what_was_confirmed_before_a_failure_is_a_success() -> None:
    server = Server()
    server.lost = "b"
    with pytest.raises(ReceiverUnavailable) as caught:
        server.send(events("a1x", "b1y", "a2z a3z", "a1v"))
    assert caught.value.answered == dict.fromkeys("1", SUCCESS)
    assert server.taken == [b"x", b"z"], "the last message of the third event was not sent"


@pytest.mark.parametrize("topic", [None, "b"])
def test_the_only_place_of_a_sink_stops_the_cycle_if_it_takes_nothing(topic: str | None) -> None:
    server = Server()
    server.bad, server.has_one_place = [topic], topic is not None  # type: ignore[list-item]
    with pytest.raises(PlaceWaits, match="is full"):
        server.send(records(e1=(KafkaRecord(topic, b"1", b"x"),)))


@pytest.mark.parametrize("size", [999, 1000, 1001])
def test_a_message_of_exactly_the_limit_is_sent_and_one_byte_more_is_an_error(size: int) -> None:
    """Names and values that go with the body count, too."""
    server = Server()
    with_it = len("event_id" + "1" + "topic" + "hr.usr" + "key" + "k" + "trace" + "7")
    body = bytes(size - with_it)
    large = KafkaRecord("hr.usr", b"k", body, (("trace", b"7"),))
    answer = server.send(records(e1=(large,), e2=(KafkaRecord("hr.usr", b"k2", b"small"),)))
    why = "the message has more bytes ('1001') than the server takes (1000, limit)"
    refused = {"1": EventResult(Level.ERROR, why, code="too_large")}
    assert answer.results == ({} if size <= 1000 else refused)
    assert server.taken == ([body, b"small"] if size <= 1000 else [b"small"])


def test_no_round_has_two_messages_of_one_object() -> None:
    divided = [
        "".join((one.key or b"").decode() for one in together)
        for together in rounds(map(message, "abcbbad"))
    ]
    assert divided == ["abc", "b", "bad"]


def test_the_same_key_in_two_topics_is_two_objects() -> None:
    assert len(list(rounds([message("a", "usr"), message("a", "grp")]))) == 1


def test_a_round_has_a_greatest_number_of_messages() -> None:
    assert [len(one) for one in rounds(map(message, "abcde"), 2)] == [2, 2, 1]


def test_the_last_message_of_an_event_has_its_event_id() -> None:
    described, changed = KafkaRecord("meta", None, b"m"), KafkaRecord("hr.usr", b"k", b"c")
    assert [
        (one.message_id, one.topic, one.body) for one in messages_of("7", [described, changed])
    ] == [("7-1", "meta", b"m"), ("7", "hr.usr", b"c")]
    assert [one.message_id for one in messages_of("7", [changed])] == ["7"]


def test_the_deduplication_id_has_the_event_id_the_nonce_and_the_place() -> None:
    records = [KafkaRecord("meta", None, b"m"), KafkaRecord("hr.usr", b"k", b"c")]
    made = messages_of("7-1", records, "5f0c")
    assert [one.deduplication_id for one in made] == ["7-1.5f0c-1", "7-1.5f0c"]
    assert [one.message_id for one in made] == ["7-1-1", "7-1"]
    assert [one.deduplication_id for one in messages_of("7", records)] == ["7-1", "7"]


def test_a_tombstone_becomes_no_message() -> None:
    deleted = KafkaRecord(None, b"k", b"d")
    made = messages_of("7", [deleted, deleted._replace(value=None)])
    assert [(one.message_id, one.body) for one in made] == [("7", b"d")]


def test_a_header_is_ascii_without_line_breaks() -> None:
    assert header_text("usr,id=Ü 100%\n".encode()) == "usr,id=%C3%9C 100%25%0A"


@pytest.mark.promise("option sink.amqp_url")
@pytest.mark.parametrize("name", SINKS)
def test_the_example_of_the_guide_is_a_whole_configuration(name: str) -> None:
    assert load({"sink": example(name)}, {}).sink.type == name


def test_each_target_has_at_most_200_words_in_the_guide() -> None:
    sections = GUIDE.read_text(encoding="utf-8").split("\n## ")[2:]
    words = {one.partition("\n")[0]: len(one.split()) for one in sections}
    assert [title for title, count in words.items() if count > 200] == []


@pytest.mark.promise("option sink.nats_url", "option sink.subject")
@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("nats", {}, "nats needs sink.nats_url"),
        ("nats", {"nats_url": "nats://u:hush@h"}, "contains a user, a password or a token; set"),
        ("nats", {"nats_url": "nats://h,http://h"}, "must be like nats://HOST:4222"),
        ("nats", {"nats_url": "nats://h,tls://g"}, "has URLs with and without TLS; write tls://"),
        ("nats", {"nats_url": "nats://h", "subject": "hr.>"}, 'hr.>" cannot be published to'),
        ("nats", {"nats_url": "nats://h", "subject": "hr.*.a"}, "no part that is * or >"),
        ("nats", {"nats_url": "nats://h", "subject": "hr.a b"}, "has no blanks"),
        ("nats", {"nats_url": "nats://h", "subject": "hr..a"}, "no empty parts between dots"),
        ("nats", {"nats_url": "nats://h", "subject": "hr."}, "no empty parts between dots"),
        ("nats", {"nats_url": "nats://h", "ca_file": "ca"}, "needs tls:// in sink.nats_url"),
        ("nats", {"nats_url": "nats://h", "user": "u"}, "set both EVENTLOG_SINK_USER and"),
        (
            "nats",
            {"nats_url": "nats://h", "token": "hush", "credentials_file": "c"},
            "exclude each other",
        ),
        ("rabbitmq", {}, "rabbitmq needs sink.amqp_url"),
        ("rabbitmq", {"amqp_url": "amqp://u:hush@h"}, "contains a user or a password; set"),
        ("rabbitmq", {"amqp_url": "http://h"}, "must be like amqp://HOST:5672/VHOST"),
        ("rabbitmq", {"amqp_url": "amqp://h/a/b"}, "must be like amqp://HOST:5672/VHOST"),
        ("rabbitmq", {"amqp_url": "amqp://h", "ca_file": "ca"}, "needs amqps:// in sink.amqp_url"),
        ("rabbitmq", {"amqp_url": "amqp://h", "user": "u"}, "set both EVENTLOG_SINK_USER and"),
        ("redis", {}, "redis needs sink.redis_url"),
        (
            "redis",
            {"redis_url": "redis://u:hush@h"},
            "contains a user or a password; set EVENTLOG_",
        ),
        ("redis", {"redis_url": "http://h"}, "must be like redis://HOST:6379/0"),
        ("redis", {"redis_url": "redis://h/x"}, "must be like redis://HOST:6379/0"),
        ("redis", {"redis_url": "redis://h", "ca_file": "ca"}, "needs rediss:// in sink.redis_url"),
        ("sqs", {}, "sqs needs sink.queue_url"),
        ("sqs", {"queue_url": "arn:aws:sqs:eu-central-1:1:hr.fifo"}, "queue_url must be the URL"),
        ("sqs", {"queue_url": "https://sqs/1/hr"}, "is not a FIFO queue; other queues do not keep"),
        (
            "sqs",
            {"queue_url": "https://s/1/h.fifo", "access_key": "k"},
            "set both EVENTLOG_SINK_AC",
        ),
        ("redis", {"redis_url": "redis://h", "user": "u"}, "set EVENTLOG_SINK_PASSWORD too"),
    ],
)
def test_wrong_settings_are_refused(name: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load({"sink": {"type": name, **settings}}, {})
    assert message in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.promise("option format.cloudevents.mode")
@pytest.mark.parametrize("mode", ["binary", "batched"])
@pytest.mark.parametrize("name", SINKS)
def test_cloudevents_are_structured(name: str, mode: str) -> None:
    format = {"type": "cloudevents", "cloudevents": {"mode": mode}}
    with pytest.raises(
        ConfigError, match=r"a message of the sink is one event, .*: set structured"
    ):
        load({"sink": example(name), "format": format}, {})


def test_a_configuration_loads_no_client() -> None:
    modules = ", ".join(sink_named(name).__module__ for name in SINKS)
    program = f"import sys, {modules}; sys.exit(any(map(sys.modules.get, {CLIENTS})))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.promise("option sink.credentials_file")
def test_a_file_of_credentials_needs_a_package_that_the_extra_has_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("nats", reason="the package nats-py is not installed")
    monkeypatch.setitem(sys.modules, "nkeys", None)
    sink = {**example("nats"), "credentials_file": "/etc/nats.creds"}
    with pytest.raises(ConfigError, match="needs the package nkeys: pip install nkeys"):
        open_sink(load({"sink": sink}, {}), io.StringIO())


@pytest.mark.parametrize(("name", "client"), [*zip(SINKS, CLIENTS, strict=True)])
def test_without_its_client_a_sink_names_the_command_that_installs_it(
    name: str, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, client, None)
    with pytest.raises(ConfigError, match=rf"needs the package .*: pip install .*\[{name}\]"):
        open_sink(load({"sink": example(name)}, {}), io.StringIO())
