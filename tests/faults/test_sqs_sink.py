"""Events in a FIFO queue of Amazon SQS, on moto's server: what a message has, what a batch that fails
in part does, and what a user must do (spec/event-log.md 8.4, *Messages*).
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.request import Request, urlopen

import pytest
import sqlalchemy as sa
from message_servers import example, free_port, records
from publishers import install, write_config
from shared import fetch, url_of

from eventlog.config.load import load
from eventlog.errors import ReceiverUnavailable
from eventlog.model import SUCCESS, Answer, KafkaRecord, Level
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.configured_sink import open_sink, try_receiver
from eventlog.publisher.declared.opening import open_context
from eventlog.publisher.run.daemon import publish_once
from eventlog.publisher.sinks.sqs import SqsOptions, SqsSink
from eventlog.sql.log.errors import count_failed
from eventlog.testing import sink_kit
from eventlog.testing.sink_kit import *  # noqa: F403
from eventlog.testing.sink_kit import SinkCase

moto_server = pytest.importorskip("moto.server", reason="moto[server] is not installed")
boto3 = pytest.importorskip("boto3", reason="boto3 is not installed")

KEYS = {"EVENTLOG_SINK_ACCESS_KEY": "AKIAEVENTLOG", "EVENTLOG_SINK_SECRET_KEY": "s3cr/et+key"}
ACCOUNT = "123456789012"
QUEUES = count(1)


class Service:
    def __init__(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.WARNING)  # it reports each request
        self.port = free_port()
        self.start()
        self.client = boto3.client(
            "sqs", endpoint_url=self.url, region_name="us-east-1", aws_access_key_id="a",
            aws_secret_access_key="b",
        )  # fmt: skip

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.server = moto_server.ThreadedMotoServer("127.0.0.1", self.port, verbose=False)
        self.server.start()

    @contextmanager
    def killed(self) -> Iterator[None]:
        """The server is not there; its queues are in this process, and stay."""
        self.server.stop()
        yield
        self.start()

    def queue(self, **attributes: str) -> str:
        """The URL of a new FIFO queue."""
        made = self.client.create_queue(
            QueueName=f"q{next(QUEUES)}.fifo", Attributes={"FifoQueue": "true", **attributes}
        )
        url: str = made["QueueUrl"]
        return url

    def messages(self, queue: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while batch := self.client.receive_message(
            QueueUrl=queue, MaxNumberOfMessages=10, MessageAttributeNames=["All"],
            AttributeNames=["All"], VisibilityTimeout=0,
        ).get("Messages", []):  # fmt: skip
            found += batch
            for one in batch:
                self.client.delete_message(QueueUrl=queue, ReceiptHandle=one["ReceiptHandle"])
        return found

    def count_keys_after(self, requests: int) -> None:
        """From then on the server refuses every key, since none has been made there."""
        text = {"Content-Type": "text/plain"}
        url = f"{self.url}/moto-api/reset-auth"
        urlopen(Request(url, str(requests).encode(), text, method="POST")).close()


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    made = Service()
    yield made
    made.client.close()
    made.server.stop()


@contextmanager
def to(endpoint: str, queue: str, environ: dict[str, str] = KEYS, **options: Any) -> Iterator[Any]:
    settings = {
        "type": "sqs", "queue_url": queue, "endpoint": endpoint, "region": "us-east-1",
        "timeout": 3, **options,
    }  # fmt: skip
    with closing(open_sink(load({"sink": settings}, environ), io.StringIO())) as sink:
        yield sink


@pytest.fixture
def sink_case(service: Service) -> SinkCase:
    queue, received = service.queue(), []

    def event_ids() -> list[str]:
        received.extend(
            one
            for message in service.messages(queue)
            for one in re.findall(r'event-id="([^"]+)"', message["Body"])
        )
        return received

    options = SqsOptions(
        queue, service.url, "us-east-1", KEYS["EVENTLOG_SINK_ACCESS_KEY"],
        KEYS["EVENTLOG_SINK_SECRET_KEY"], timeout=3,
    )  # fmt: skip
    return SinkCase(SqsSink, options, event_ids, service.killed)


@pytest.mark.night
def test_memory_is_bounded_if_each_document_is_flushed(sink_case: SinkCase) -> None:
    """As in the kit: the server takes eight seconds for it."""
    sink_kit.test_memory_is_bounded_if_each_document_is_flushed(sink_case)


@pytest.mark.promise("sink sqs")
def test_a_message_has_the_event_id_the_key_the_attributes_and_the_body(service: Service) -> None:
    queue = service.queue()
    record = KafkaRecord("hr.usr", "usr,id=Ü".encode(), b"<nds/>", (("traceparent", b"00-1"),))
    with to(service.url, queue) as sink:
        assert sink.send(records(e7=(record,))) == Answer()
    (message,) = service.messages(queue)
    attributes = {name: one["StringValue"] for name, one in message["MessageAttributes"].items()}
    assert message["Body"] == "<nds/>"
    assert attributes == {
        "event_id": "7", "topic": "hr.usr", "key": "usr,id=%C3%9C", "traceparent": "00-1",
    }  # fmt: skip
    own = message["Attributes"]
    assert own["MessageDeduplicationId"] == hashlib.sha256(b"7").hexdigest()
    assert own["MessageGroupId"] == hashlib.sha256("hr.usr\0usr,id=Ü".encode()).hexdigest()


def test_the_example_of_the_guide_publishes(service: Service) -> None:
    queue = service.queue()
    assert load({"sink": example("sqs")}, {}).sink.type == "sqs"
    with to(service.url, **{**example("sqs"), "queue": queue, "queue_url": queue}) as sink:
        sink.send(records(e1=b"a"))
    assert len(service.messages(queue)) == 1


def test_a_message_that_comes_again_is_stored_once(service: Service) -> None:
    queue = service.queue()
    for _ in range(2):
        with to(service.url, queue) as sink:
            sink.send(records(e1=b"a", e2=b"b"))
    assert len(service.messages(queue)) == 2


@pytest.mark.parametrize("body", [b"\0\1\2", b"\xff", "a\ufffe".encode()])
def test_a_body_that_is_no_text_goes_in_base64(service: Service, body: bytes) -> None:
    from base64 import b64decode

    queue = service.queue()
    with to(service.url, queue) as sink:
        sink.send(records(e1=body))
    (message,) = service.messages(queue)
    assert b64decode(message["Body"]) == body
    assert message["MessageAttributes"]["content-encoding"]["StringValue"] == "base64"


def test_a_message_that_is_too_large_is_an_error_of_its_event_and_never_sent(
    service: Service,
) -> None:
    queue = service.queue(MaximumMessageSize="2048")
    with to(service.url, queue) as sink:
        answer = sink.send(records(e1=b"x" * 2048, e2=b"y" * 2000))
    assert [answer.result(one).level for one in ("1", "2")] == [Level.ERROR, Level.SUCCESS]
    assert answer.result("1").code == "too_large"
    assert "2048, MaximumMessageSize of the queue" in answer.result("1").message
    assert len(service.messages(queue)) == 1


def test_messages_that_are_too_large_together_go_in_several_batches(service: Service) -> None:
    queue = service.queue()
    with to(service.url, queue) as sink:
        sink.send(records(**{f"e{number}": b"x" * 100_000 for number in range(6)}))
    assert len(service.messages(queue)) == 6


def test_what_was_sent_outlives_a_restart_of_the_server_and_later_events_follow(
    service: Service,
) -> None:
    queue = service.queue()
    with to(service.url, queue) as sink:
        sink.send(records(e1=b"a"))
        with (
            service.killed(),
            pytest.raises(ReceiverUnavailable, match=r"sink\.endpoint and sink\.region, and"),
        ):
            sink.send(records(e2=b"b"))
        sink.send(records(e2=b"b"))
    assert {message["Body"] for message in service.messages(queue)} == {"a", "b"}


def test_a_missing_queue_names_what_to_do(service: Service) -> None:
    with (
        to(service.url, f"{service.url}/{ACCOUNT}/none.fifo") as sink,
        pytest.raises(ReceiverUnavailable, match=r"create-queue --queue-name none\.fifo"),
    ):
        sink.send(records(e1=b"val7e"))


def test_wrong_keys_name_what_to_do_and_no_secret(service: Service) -> None:
    queue = service.queue()
    service.count_keys_after(0)
    try:
        with to(service.url, queue) as sink, pytest.raises(ReceiverUnavailable) as caught:
            sink.send(records(e1=b"val7e"))
    finally:
        service.count_keys_after(10**9)
    assert "check EVENTLOG_SINK_ACCESS_KEY and EVENTLOG_SINK_SECRET_KEY" in str(caught.value)
    assert "s3cr" not in str(caught.value)
    assert "val7e" not in str(caught.value)


def test_a_trial_counts_the_messages(service: Service) -> None:
    queue = service.queue()
    sink = {"type": "sqs", "queue_url": queue, "endpoint": service.url, "region": "us-east-1"}
    assert (
        try_receiver(load({"sink": sink}, KEYS), io.StringIO()) == f"{queue} has about 0 messages"
    )


def test_a_row_whose_message_is_too_large_gets_e_and_all_others_are_published(
    service: Service, database: sa.Engine, tmp_path: Path
) -> None:
    queue = service.queue(MaximumMessageSize="2048")
    sink = {
        "type": "sqs", "queue_url": queue, "endpoint": service.url, "region": "us-east-1",
    }  # fmt: skip
    with database.begin() as connection:
        connection.execute(sa.text("CREATE TABLE usr (id int PRIMARY KEY, name text)"))
    publisher = {"allow_loopback": True}
    path = write_config(
        tmp_path, url_of(database), [{"table": "usr"}], sink=sink, publisher=publisher
    )
    config = load(path, KEYS)
    install(config)
    with database.begin() as connection:
        connection.execute(
            sa.text("INSERT INTO usr SELECT n, repeat('x', n * 800) FROM generate_series(1, 3) n")
        )
    with (
        open_context(config, Counters()) as context,
        closing(open_sink(config, io.StringIO())) as opened,
    ):
        publish_once(context, opened)
        assert count_failed(context.log, 10).refused == 1
    statuses = fetch(database, "SELECT status FROM eventlog ORDER BY record_id")
    assert [status for (status,) in statuses] == ["S", "S", "E"]
    ((code, message),) = fetch(database, "SELECT code, message FROM eventlog_error")
    assert code == "too_large"
    assert "2048, MaximumMessageSize of the queue" in message
    assert len(service.messages(queue)) == 2


# --- batches that fail in part --------------------------------------------------------------------

Failures = Callable[[int, list[dict[str, Any]]], list[dict[str, Any]]]


@contextmanager
def failing(
    failures: Failures, size: str | None = "262144", lacks: str = ""
) -> Iterator[tuple[str, list[Any]]]:
    """A server with SQS's protocol, and the bodies of each batch. ``failures`` returns the failed
    entries of a batch, by its number from 0; ``size`` None = the user may not ask for attributes.
    Its answers lack the member ``lacks``.
    """
    batches: list[list[str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer: dict[str, Any] = {"Attributes": {"MaximumMessageSize": size}}
            status = 200
            if "Entries" in asked:
                failed = failures(len(batches), asked["Entries"])
                batches.append([one["MessageBody"] for one in asked["Entries"]])
                lost = {one["Id"] for one in failed}
                sent = [one for one in asked["Entries"] if one["Id"] not in lost]
                answer = {
                    "Successful": [
                        {"Id": one["Id"], "MessageId": "m", "MD5OfMessageBody": "d"} for one in sent
                    ],
                    "Failed": failed,
                }  # fmt: skip
            elif size is None:
                status = 403
                answer = {
                    "__type": "com.amazon.coral.service#AccessDeniedException",
                    "message": "no",
                }
            answer.pop(lacks, None)
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.0")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", batches
        server.shutdown()


def failed(entry: dict[str, Any], code: str, text: str, *, sender: bool) -> dict[str, Any]:
    return {"Id": entry["Id"], "Code": code, "Message": text, "SenderFault": sender}


def events_of(*keys: str) -> dict[str, tuple[KafkaRecord, ...]]:
    return {
        f"e{number}": (KafkaRecord(None, key.encode(), f"{key}{number}".encode()),)
        for number, key in enumerate(keys)
    }


def sent(failures: Failures, *keys: str, size: str | None = "262144") -> tuple[Answer, list[Any]]:
    with failing(failures, size) as (url, batches), to(url, f"{url}/{ACCOUNT}/hr.fifo") as sink:
        return sink.send(records(**events_of(*keys))), batches


def test_what_fails_in_a_batch_goes_again_before_any_later_message_of_its_object() -> None:
    def busy_once(number: int, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return (
            [failed(entries[1], "ServiceUnavailable", "busy", sender=False)] if not number else []
        )

    answer, batches = sent(busy_once, "a", "b", "c", "b", "a")
    assert answer == Answer()
    assert batches == [["a0", "b1", "c2"], ["b1"], ["b3", "a4"]]


def test_a_message_that_is_refused_itself_is_an_error_of_its_event() -> None:
    def refusing(number: int, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            failed(entries[0], "InvalidMessageContents", "a bad character", sender=True),
            failed(
                entries[1], "InvalidParameterValue",
                "One or more parameters are invalid. Reason: Message must be shorter than 1 bytes.",
                sender=True,
            ),
        ]  # fmt: skip

    answer, batches = sent(refusing, "a", "b", "c")
    levels = [answer.result(one).level for one in ("0", "1", "2")]
    assert levels == [Level.ERROR, Level.ERROR, Level.SUCCESS]
    assert [answer.result(one).code for one in ("0", "1")] == ["receiver", "too_large"]
    assert len(batches) == 1


def test_a_batch_that_keeps_failing_makes_everything_wait() -> None:
    def busy(number: int, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [failed(one, "InternalError", "busy", sender=False) for one in entries]

    with pytest.raises(ReceiverUnavailable, match="InternalError: busy") as caught:
        sent(busy, "a", "a")
    assert caught.value.code == "receiver_unavailable"


@pytest.mark.parametrize("member", ["Successful", "Attributes"])
def test_a_message_without_a_result_is_not_confirmed(member: str) -> None:
    with (
        failing(lambda number, entries: [], lacks=member) as (url, _),
        to(url, f"{url}/{ACCOUNT}/hr.fifo") as sink,
        pytest.raises(ReceiverUnavailable, match="the answer lacks the"),
    ):
        sink.send(records(e1=b"a"))


def test_what_a_batch_has_stored_is_confirmed_although_another_message_keeps_failing() -> None:
    def busy(number: int, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            failed(one, "InternalError", "busy", sender=False)
            for one in entries
            if one["MessageBody"].startswith("b")
        ]

    with pytest.raises(ReceiverUnavailable, match="InternalError: busy") as caught:
        sent(busy, "a", "b", "c", "b")
    assert caught.value.answered == dict.fromkeys("02", SUCCESS)


def test_a_lost_right_names_what_to_grant() -> None:
    def denied(number: int, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [failed(one, "AccessDenied", "no", sender=True) for one in entries]

    with pytest.raises(ReceiverUnavailable, match="grant the user sqs:SendMessage and") as caught:
        sent(denied, "a")
    assert caught.value.code == "receiver_misconfigured"
    assert caught.value.reply is not None
    assert (caught.value.reply.status, caught.value.reply.text) == ("AccessDenied", "no")


def test_without_the_right_to_ask_for_it_the_limit_is_what_every_queue_takes() -> None:
    answer, batches = sent(lambda number, entries: [], "a", size=None)
    assert (answer, batches) == (Answer(), [["a0"]])
