"""Events on RabbitMQ, on a real server: what a message has, what is confirmed, and what a user must
do (spec/event-log.md 8.4, *Messages*).
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import subprocess
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from killed_servers import (
    CutAnswers,
    assert_few_copies,
    assert_once_and_in_order,
    assert_whole_and_in_order,
    publish_beside_a_place_that_waits,
    publish_through_cuts,
    publish_through_kills,
)
from message_servers import (
    Server,
    accepts,
    example,
    free_port,
    program,
    records,
    running,
    server_files,
)

from eventlog.config.load import load
from eventlog.errors import ReceiverUnavailable
from eventlog.model import SUCCESS, Answer, KafkaRecord, Level
from eventlog.publisher.declared.configured_sink import open_sink, try_receiver
from eventlog.publisher.sinks.rabbitmq import RabbitOptions, RabbitSink
from eventlog.testing.sink_kit import *  # noqa: F403
from eventlog.testing.sink_kit import SinkCase

pika = pytest.importorskip("pika", reason="the package pika is not installed")
pytestmark = pytest.mark.night

MOST = 1_000_000
TLS_PORT = free_port()


def user(name: str, password: str, **more: Any) -> dict[str, Any]:
    digest = b"salt" + hashlib.sha256(b"salt" + password.encode()).digest()
    return {
        "name": name, "password_hash": b64encode(digest).decode(), "tags": [],
        "hashing_algorithm": "rabbit_password_hashing_sha256", **more,
    }  # fmt: skip


def permission(user: str, write: str, other: str = "^$") -> dict[str, str]:
    return {"user": user, "vhost": "/", "configure": other, "write": write, "read": other}


DEFINITIONS = {
    "users": [user("guest", "guest"), user("publisher", "hush"), user("other", "hush")],
    "vhosts": [{"name": "/"}],
    "permissions": [
        permission("guest", ".*", ".*"), permission("publisher", "^hr$"), permission("other", "^x$"),
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("rabbitmq")
    files = server_files(directory)
    (directory / "definitions.json").write_text(json.dumps(DEFINITIONS))
    (directory / "rabbitmq.conf").write_text(
        f"load_definitions = {directory}/definitions.json\nmax_message_size = {MOST}\n"
        f"heartbeat = 2\nlisteners.ssl.default = {TLS_PORT}\n"
        f"ssl_options.certfile = {files.certificate}\nssl_options.keyfile = {files.certificate}\n"
    )
    with rabbitmq_server(directory) as server:
        yield server


@contextmanager
def rabbitmq_server(directory: Path) -> Iterator[Server]:
    """A server with the configuration rabbitmq.conf of a directory."""
    path, names = program("rabbitmq-server"), free_port()
    (directory / "plugins").write_text("[].\n")

    def environment(port: int, directory: Path) -> dict[str, str]:
        return {
            **os.environ, "HOME": str(directory), "RABBITMQ_NODENAME": f"test{port}@localhost",
            "RABBITMQ_MNESIA_BASE": str(directory), "RABBITMQ_LOG_BASE": str(directory),
            "RABBITMQ_NODE_PORT": str(port), "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_DIST_PORT": str(free_port()), "ERL_EPMD_PORT": str(names),
            "ERL_EPMD_ADDRESS": "127.0.0.1", "RABBITMQ_CONFIG_FILE": f"{directory}/rabbitmq.conf",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{directory}/plugins",
            "RABBITMQ_CONF_ENV_FILE": f"{directory}/none",
        }  # fmt: skip

    def command(port: int, directory: Path) -> list[str]:
        return [path]

    # A server that starts this by itself does not end it.
    command_of_names = [program("epmd"), "-port", str(names), "-address", "127.0.0.1"]
    with subprocess.Popen(command_of_names) as epmd:
        try:
            with running(command, directory, accepts, environment) as server:
                yield server
        finally:
            epmd.kill()


def connected(port: int) -> Any:
    parameters = pika.ConnectionParameters("127.0.0.1", port, connection_attempts=1)
    return pika.BlockingConnection(parameters)


@contextmanager
def admin(server: Server) -> Iterator[Any]:
    connection = connected(server.port)
    try:
        yield connection.channel()
    finally:
        connection.close()


@pytest.fixture(autouse=True)
def queue(server: Server) -> None:
    """An empty queue ``eventlog``, bound to the exchange ``hr`` for hr.#."""
    with admin(server) as channel:
        channel.queue_delete("eventlog")
        channel.queue_delete("full")
        channel.exchange_declare("hr", "topic", durable=True)
        channel.queue_declare("eventlog", durable=True)
        channel.queue_bind("eventlog", "hr", "hr.#")


def stored(server: Server) -> list[tuple[Any, Any, bytes]]:
    """What is in the queue, which keeps it."""
    found = []
    with admin(server) as channel:
        while (one := channel.basic_get("eventlog"))[0] is not None:
            found.append(one)
    return found


def bodies(server: Server) -> list[bytes]:
    return [body for *_, body in stored(server)]


def url(server: Server) -> str:
    return f"amqp://127.0.0.1:{server.port}/"


@contextmanager
def to(server: Server, environ: dict[str, str] | None = None, **options: Any) -> Iterator[Any]:
    settings = {"type": "rabbitmq", "amqp_url": url(server), "timeout": 5, **options}
    with closing(open_sink(load({"sink": settings}, environ or {}), io.StringIO())) as sink:
        yield sink


@pytest.fixture
def sink_case(server: Server) -> SinkCase:
    def received() -> list[str]:
        ids = [
            one
            for body in bodies(server)
            for one in re.findall(r'event-id="([^"]+)"', body.decode())
        ]
        return list(dict.fromkeys(ids))

    return SinkCase(RabbitSink, RabbitOptions(url(server), timeout=1), received, server.stopped)


def test_a_message_has_the_event_id_the_key_the_headers_and_the_body(server: Server) -> None:
    headers = (("content-type", b"application/json"), ("traceparent", b"00-1"))
    record = KafkaRecord("hr.usr", "usr,id=Ü".encode(), b"{}", headers)
    with to(server, exchange="hr") as sink:
        assert sink.send(records(e7=(record,))) == Answer()
    ((method, properties, body),) = stored(server)
    assert (method.exchange, method.routing_key, body) == ("hr", "hr.usr", b"{}")
    assert (properties.message_id, properties.delivery_mode) == ("7", 2)
    assert properties.content_type == "application/json"
    assert properties.headers == {
        "event_id": "7", "topic": "hr.usr", "key": "usr,id=Ü", "traceparent": "00-1",
    }  # fmt: skip


def test_an_event_id_that_is_too_long_for_a_property_stands_in_its_header(server: Server) -> None:
    long = "é" * 200
    with to(server) as sink:
        sink.send(records(e1=b"x")._replace(event_ids=[long]))
    ((_, properties, _),) = stored(server)
    assert properties.headers["event_id"] == long
    assert properties.message_id == hashlib.sha256(long.encode()).hexdigest()


def test_the_example_of_the_guide_publishes(server: Server) -> None:
    settings = {**example("rabbitmq"), "amqp_url": url(server)}
    with closing(open_sink(load({"sink": settings}, {}), io.StringIO())) as sink:
        sink.send(records(e1=b"a"))
    assert [method.routing_key for method, *_ in stored(server)] == ["hr.changes"]


def test_events_of_one_object_keep_their_order(server: Server) -> None:
    made = {f"e{number}": (KafkaRecord(None, b"k", b"%d" % number),) for number in range(50)}
    with to(server) as sink:
        sink.send(records(**made))
    assert bodies(server) == [b"%d" % number for number in range(50)]


def test_a_message_that_is_too_large_is_an_error_of_its_event_and_never_sent(
    server: Server,
) -> None:
    with to(server, max_message_bytes=MOST) as sink:
        answer = sink.send(records(e1=b"x" * (MOST + 1), e2=b"y" * MOST))
    assert [answer.result(one).level for one in ("1", "2")] == [Level.ERROR, Level.SUCCESS]
    assert "1000000, max_message_size; sink.max_message_bytes" in answer.result("1").message
    assert [len(body) for body in bodies(server)] == [MOST]


def test_the_lower_limit_of_the_server_is_learnt_from_its_refusal(server: Server) -> None:
    with to(server) as sink:
        for _ in range(2):
            answer = sink.send(records(e1=b"x" * (MOST + 1), e2=b"y"))
            levels = [answer.result(one).level for one in ("1", "2")]
            assert levels == [Level.ERROR, Level.SUCCESS]
            assert answer.result("1").code == "too_large"
    assert set(bodies(server)) == {b"y"}


def test_what_was_confirmed_outlives_a_kill_of_the_server_and_later_events_follow(
    server: Server,
) -> None:
    with to(server) as sink:
        sink.send(records(e1=b"a"))
        with server.killed(), pytest.raises(ReceiverUnavailable):
            sink.send(records(e2=b"b"))
        sink.send(records(e2=b"b"))
    assert bodies(server) == [b"a", b"b"]


def test_the_connection_outlives_a_long_wait_for_the_database(server: Server) -> None:
    with to(server) as sink:
        sink.send(records(e1=b"a"))
        threads = {thread for thread in threading.enumerate() if thread.name == "rabbitmq"}
        time.sleep(7)  # the server closes a connection without heartbeats for twice 2 s
        sink.send(records(e2=b"b"))
        assert {one for one in threading.enumerate() if one.name == "rabbitmq"} == threads
    assert bodies(server) == [b"a", b"b"]


def test_a_server_that_is_short_of_memory_makes_everything_wait(server: Server) -> None:
    with to(server, timeout=2) as sink:
        sink.send(records(e1=b"a"))
        control(server, "set_vm_memory_high_watermark", "absolute", "1")
        try:
            refusals = [refusal(sink, f"e{number}") for number in range(2)]
        finally:
            control(server, "set_vm_memory_high_watermark", "0.4")
        assert "its memory or disk is short; free them" in refusals[-1]
        sink.send(records(e2=b"b"))
    assert bodies(server)[-1] == b"b"


def control(server: Server, *command: str) -> None:
    subprocess.run(
        [program("rabbitmqctl"), "-n", f"test{server.port}@localhost", *command],
        env=server.environment, check=True, capture_output=True,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_queue_that_is_full_makes_everything_wait(server: Server, kind: str) -> None:
    limits = {"x-max-length": 1, "x-overflow": "reject-publish", "x-queue-type": kind}
    with admin(server) as channel:
        channel.queue_declare("full", durable=True, arguments=limits)
    with to(server, routing_key="full") as sink:
        refusals = [refusal(sink, f"e{number}") for number in range(10)]
    assert "see whether a queue is full" in refusals[-1]


def refusal(sink: Any, event_id: str) -> str:
    """Why the server does not take an event, empty if it does."""
    try:
        sink.send(records(**{event_id: b"a"}))
    except ReceiverUnavailable as unavailable:
        return str(unavailable)
    return ""


@pytest.mark.parametrize(
    ("options", "environ", "advice"),
    [
        ({"routing_key": "nowhere"}, {}, "declare the queue nowhere, durable"),
        (
            {"exchange": "hr", "routing_key": "x"}, {},
            "no queue takes a message with routing key x (312 NO_ROUTE); bind a queue to the exchange hr",
        ),
        ({"exchange": "none"}, {}, "declare the exchange none, durable, and bind a queue"),
        ({}, {"USER": "publisher", "PASSWORD": "wr0ng"}, "check EVENTLOG_SINK_USER and"),
        (
            {"exchange": "hr", "routing_key": "hr.x"}, {"USER": "other", "PASSWORD": "hush"},
            "permit the user: rabbitmqctl set_permissions -p '/' other '' '^hr$' ''",
        ),
        ({}, {"USER": "other", "PASSWORD": "hush"}, r"'^amq\.default$'"),
        ({"amqp_url": "vhost"}, {}, "check the virtual host of sink.amqp_url"),
    ],
)  # fmt: skip
def test_a_refusal_of_the_server_names_what_to_do_and_no_secret(
    server: Server, options: dict[str, Any], environ: dict[str, str], advice: str
) -> None:
    if options.get("amqp_url") == "vhost":
        options = {"amqp_url": f"{url(server)}nowhere"}
    variables = {f"EVENTLOG_SINK_{name}": value for name, value in environ.items()}
    with to(server, variables, **options) as sink, pytest.raises(ReceiverUnavailable) as caught:
        sink.send(records(e1=b"val7e"))
    message = str(caught.value)
    assert advice in message
    assert not any(secret in message for secret in ("wr0ng", "hush", "val7e"))
    assert caught.value.code == "receiver_misconfigured", "an option is wrong"
    if "NO_ROUTE" in message:
        assert caught.value.reply is not None
        assert caught.value.reply.status == "312 NO_ROUTE"
    assert not caught.value.is_suspicious


def test_a_user_with_the_permission_that_the_message_names_can_publish(server: Server) -> None:
    environ = {"EVENTLOG_SINK_USER": "publisher", "EVENTLOG_SINK_PASSWORD": "hush"}
    with to(server, environ, exchange="hr", routing_key="hr.x") as sink:
        sink.send(records(e1=b"a"))
    assert bodies(server) == [b"a"]


def test_an_encrypted_server_is_verified(server: Server) -> None:
    secret = {"amqp_url": f"amqps://127.0.0.1:{TLS_PORT}/"}
    with to(server, **secret, ca_file=str(server.directory / "ca.pem")) as sink:
        sink.send(records(e1=b"a"))
    assert bodies(server) == [b"a"]
    with (
        to(server, **secret) as sink,
        pytest.raises(ReceiverUnavailable, match=r"set sink\.ca_file to the authorities"),
    ):
        sink.send(records(e1=b"a"))


def test_a_publisher_loses_nothing_and_turns_no_order_while_its_server_is_killed(
    server: Server, database: sa.Engine, tmp_path: Path
) -> None:
    sink = {"type": "rabbitmq", "amqp_url": url(server), "timeout": 5}
    publish_through_kills(database, tmp_path, sink, server)
    assert_whole_and_in_order(bodies(server))


def test_a_trial_finds_the_exchange_or_the_queue(server: Server) -> None:
    def trial(**options: Any) -> str | None:
        sink = {"type": "rabbitmq", "amqp_url": url(server), **options}
        return try_receiver(load({"sink": sink}, {}), io.StringIO())

    assert trial() == f"{url(server)} answers; queue eventlog is there"
    assert trial(exchange="hr") == f"{url(server)} answers; exchange hr is there"
    with pytest.raises(ReceiverUnavailable, match="declare the queue x, durable"):
        trial(routing_key="x")


def test_a_message_that_no_queue_takes_leaves_all_others_confirmed(server: Server) -> None:
    made = {"e1": "eventlog", "e2": "nowhere", "e3": "eventlog"}
    with to(server) as sink:
        answer = sink.send(
            records(
                **{
                    name: (KafkaRecord(key, name.encode(), name.encode()),)
                    for name, key in made.items()
                }
            )
        )
    assert [answer.result(one).place for one in "123"] == ["", "nowhere", ""]
    assert "declare the queue nowhere, durable" in answer.result("2").message
    assert bodies(server) == [b"e1", b"e3"]


def test_a_full_queue_leaves_what_it_has_confirmed(server: Server) -> None:
    limits = {"x-max-length": 3, "x-overflow": "reject-publish"}
    with admin(server) as channel:
        channel.queue_declare("full", durable=True, arguments=limits)
    with to(server, routing_key="full") as sink, pytest.raises(ReceiverUnavailable) as caught:
        sink.send(records(**{f"e{number}": b"a" for number in range(1, 9)}))
    with admin(server) as channel:
        stored_now = channel.queue_declare("full", passive=True).method.message_count
    assert list(caught.value.answered.values()) == [SUCCESS] * stored_now
    assert stored_now >= 3


def test_a_routing_key_without_permission_leaves_all_others_confirmed(server: Server) -> None:
    control(server, "set_topic_permissions", "publisher", "hr", r"^hr\.good$", "")
    environ = {"EVENTLOG_SINK_USER": "publisher", "EVENTLOG_SINK_PASSWORD": "hush"}
    made = {"e1": "hr.good", "e2": "hr.bad", "e3": "hr.good"}
    with to(server, environ, exchange="hr") as sink:
        answer = sink.send(
            records(
                **{
                    name: (KafkaRecord(key, name.encode(), name.encode()),)
                    for name, key in made.items()
                }
            )
        )
    control(server, "clear_topic_permissions", "publisher")
    assert [answer.result(one).place for one in "123"] == ["", "hr.bad", ""]
    assert set(bodies(server)) == {b"e1", b"e3"}


def test_a_routing_key_that_is_too_long_is_named_and_waits_alone(server: Server) -> None:
    long = "k" * 300
    made = {"e1": "eventlog", "e2": long, "e3": "eventlog"}
    with to(server) as sink:
        answer = sink.send(
            records(
                **{
                    name: (KafkaRecord(key, name.encode(), name.encode()),)
                    for name, key in made.items()
                }
            )
        )
    assert [answer.result(one).place for one in "123"] == ["", long, ""]
    assert "has more than 255 bytes; shorten sink.routing_key" in answer.result("2").message
    assert set(bodies(server)) == {b"e1", b"e3"}


def test_a_missing_queue_makes_only_its_own_classes_wait(
    server: Server, database: sa.Engine, tmp_path: Path
) -> None:
    with admin(server) as channel:
        channel.exchange_delete("hr")
        channel.exchange_declare("hr", "topic", durable=True)
        channel.queue_bind("eventlog", "hr", "hr.public.a")
        channel.queue_delete("b")

    def bind() -> None:
        with admin(server) as channel:
            channel.queue_declare("b", durable=True)
            channel.queue_bind("b", "hr", "hr.public.b")

    sink = {"type": "rabbitmq", "amqp_url": url(server), "exchange": "hr"}
    publish_beside_a_place_that_waits(database, tmp_path, sink, bind)
    assert_once_and_in_order(bodies(server))
    with admin(server) as channel:
        found = []
        while (one := channel.basic_get("b"))[0] is not None:
            found.append(one[2])
    assert_once_and_in_order(found)


def test_answers_that_are_cut_lose_nothing_and_repeat_only_what_is_in_flight(
    server: Server, database: sa.Engine, tmp_path: Path
) -> None:
    cuts = CutAnswers(server.port, 4)
    sink = {"type": "rabbitmq", "amqp_url": f"amqp://127.0.0.1:{cuts.port}/", "timeout": 3}
    most = publish_through_cuts(database, tmp_path, sink, cuts)
    assert_few_copies(bodies(server), most)
