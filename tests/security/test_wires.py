"""A URL or an option that asks for TLS sends no secret and no value without it, and verifies names
(spec/event-log.md 8.4, *TLS*).
"""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kafka_cluster import cluster
from wires import SECRET, VALUE, Authority, Wire, redirect_to, relay_to, wire

from eventlog.config.load import Config, load
from eventlog.core.oauth import OAuthOptions
from eventlog.errors import EventlogError, ReceiverUnavailable
from eventlog.model import Document, KafkaRecord
from eventlog.publisher.declared.configured_sink import open_sink
from eventlog.qlik.messages.envelope import HttpRegistry
from eventlog.transport.http import HttpFailed
from eventlog.transport.oauth import ClientTokens

logging.getLogger("eventlog.kafka").setLevel(logging.CRITICAL)

Try = Callable[[int, Path], None]
"""A function that sends a secret, and perhaps a value, to a port where it expects TLS."""

USER = {"EVENTLOG_SINK_USER": "user", "EVENTLOG_SINK_PASSWORD": SECRET}
KEYS = {"EVENTLOG_SINK_ACCESS_KEY": "AKIA", "EVENTLOG_SINK_SECRET_KEY": SECRET}


def document() -> Document:
    records = [(KafkaRecord("hr.usr", b"usr,id=1", VALUE.encode()),)]
    return Document(1, 1, ("e1",), VALUE.encode(), records)


def send(config: Config) -> None:
    with closing(open_sink(config, io.StringIO())) as sink:
        sink.send(document())
        sink.flush()


def by_sink(type: str, environ: dict[str, str], **options: str) -> Try:
    """A sink whose options have PORT in place of the port."""

    def try_once(port: int, authority: Path) -> None:
        given = {name: text.replace("PORT", str(port)) for name, text in options.items()}
        trust = {} if type == "objects" else {"ca_file": str(authority)}
        send(load({"sink": {"type": type, "timeout": 1, **trust, **given}}, environ))

    return try_once


def kafka_config(port: int, authority: Path, **more: str) -> Config:
    properties = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN",
                  "ssl.ca.location": str(authority), **more}  # fmt: skip
    sink = {"type": "kafka", "brokers": f"127.0.0.1:{port}", "timeout": 2, "properties": properties}
    return load({"sink": sink}, USER)


def kafka_sink(port: int, authority: Path) -> None:
    send(kafka_config(port, authority))


def dead_letters(port: int, authority: Path) -> None:
    letters = {"type": "redis", "redis_url": f"rediss://127.0.0.1:{port}", "timeout": 1,
               "ca_file": str(authority)}  # fmt: skip
    config = load({"dead_letter": letters}, {"EVENTLOG_DEAD_LETTER_PASSWORD": SECRET}).of_letters
    assert config is not None
    send(config)


def registry(port: int, authority: Path) -> None:
    HttpRegistry(f"https://127.0.0.1:{port}", f"user:{SECRET}").register("subject", VALUE)


def token_endpoint(port: int, authority: Path) -> None:
    options = OAuthOptions(f"https://127.0.0.1:{port}/token", "user", ca_file=authority)
    with closing(ClientTokens(options, SECRET, "sink.oauth", timeout=1)) as tokens:
        tokens.current()


QUEUE = "https://127.0.0.1:PORT/1/hr.fifo"
TRIES: dict[str, Try] = {
    "http": by_sink("http", USER, url="https://127.0.0.1:PORT/"),
    "nats": by_sink("nats", USER, nats_url="tls://127.0.0.1:PORT"),
    "nats in capital letters": by_sink("nats", USER, nats_url="TLS://127.0.0.1:PORT"),
    "nats with a token": by_sink(
        "nats", {"EVENTLOG_SINK_TOKEN": SECRET}, nats_url="tls://127.0.0.1:PORT"
    ),
    "rabbitmq": by_sink("rabbitmq", USER, amqp_url="amqps://127.0.0.1:PORT/"),
    "redis": by_sink("redis", USER, redis_url="rediss://127.0.0.1:PORT/0"),
    "sqs": by_sink(
        "sqs", KEYS, queue_url=QUEUE, endpoint="https://127.0.0.1:PORT", region="us-east-1"
    ),
    "objects": by_sink(
        "objects", KEYS, bucket_url="s3://b/hr", endpoint="https://127.0.0.1:PORT", region="r"
    ),
    "kafka": kafka_sink,
    "dead letters": dead_letters,
    "registry": registry,
    "token endpoint": token_endpoint,
}


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """An authority that all clients trust."""
    fs = pytest.importorskip("pyarrow.fs")
    made = Authority(tmp_path)
    # Sinks without an option for it.
    monkeypatch.setenv("SSL_CERT_FILE", str(made.file))
    monkeypatch.setattr(
        fs, "S3FileSystem", partial(fs.S3FileSystem, tls_ca_file_path=str(made.file))
    )
    return made


def greeting(name: str, **more: Any) -> bytes:
    """The greeting of a server: one of NATS does not ask for TLS."""
    if not name.startswith("nats"):
        return b""
    info = {"server_id": "X", "version": "2.10.0", "proto": 1, "headers": True, "jetstream": True,
            "max_payload": 1048576, "auth_required": True, "tls_available": True, **more}  # fmt: skip
    return b"INFO " + json.dumps(info).encode() + b"\r\n"


def pong(got: bytes) -> bytes:
    return b"PONG\r\n" if b"PING" in got else b""


def refused(name: str, server: Wire, authority: Authority) -> None:
    with pytest.raises((EventlogError, HttpFailed)):
        TRIES[name](server.port, authority.file)


@pytest.mark.parametrize("name", TRIES)
def test_nothing_goes_to_a_server_that_does_not_ask_for_tls(
    name: str, authority: Authority
) -> None:
    with wire(greeting=greeting(name), answer=pong) as server:
        refused(name, server, authority)
    assert server.clients
    assert server.leaked == []


@pytest.mark.parametrize("name", TRIES)
def test_nothing_goes_to_a_server_with_the_certificate_of_another_host(
    name: str, authority: Authority
) -> None:
    other = [authority.of("other.example.org")] * 20
    with wire(*other, greeting=greeting(name, tls_required=True)) as server:
        refused(name, server, authority)
    assert server.clients
    assert server.over_tls == b""


@pytest.mark.parametrize("name", TRIES)
def test_a_later_connection_without_tls_gets_nothing(name: str, authority: Authority) -> None:
    """The first connection ends after its first bytes."""
    ours = authority.of("127.0.0.1")
    with wire(ours, greeting=greeting(name), answer=pong) as server:
        server.greet_first_with(greeting(name, tls_required=True))
        for _ in range(2):
            refused(name, server, authority)
    assert server.over_tls != b""
    assert server.clients > 1
    assert server.leaked == []


def test_a_session_of_nats_that_broke_is_not_continued_without_tls(authority: Authority) -> None:
    """Not with the same server, nor with one that the server has named."""
    with wire(greeting=greeting("nats"), answer=pong) as named:
        urls = [f"127.0.0.1:{named.port}"]
        plain = greeting("nats", connect_urls=urls)
        with wire(authority.of("127.0.0.1"), greeting=plain, answer=pong) as server:
            server.greet_first_with(greeting("nats", tls_required=True, connect_urls=urls))
            settings = {"type": "nats", "nats_url": f"tls://127.0.0.1:{server.port}", "timeout": 1,
                        "ca_file": str(authority.file)}  # fmt: skip
            with closing(open_sink(load({"sink": settings}, USER), io.StringIO())) as sink:
                for _ in range(3):
                    with pytest.raises(ReceiverUnavailable):
                        sink.send(document())
    assert SECRET.encode() in server.over_tls
    assert (server.leaked, named.leaked) == ([], [])


def test_no_server_that_redis_names_gets_anything(authority: Authority) -> None:
    with wire() as named:
        moved = f"-MOVED 1 127.0.0.1:{named.port}\r\n".encode()
        ours = authority.of("127.0.0.1")
        with wire(ours, answer=lambda got: moved * got.count(b"*")) as server:
            refused("redis", server, authority)
    assert server.over_tls != b""
    assert named.clients == 0


@pytest.mark.parametrize("name", ["http", "sqs", "registry", "token endpoint"])
def test_no_redirect_to_a_server_without_tls_is_followed(name: str, authority: Authority) -> None:
    with wire() as named:
        ours = [authority.of("127.0.0.1")] * 20
        with wire(*ours, answer=redirect_to(named.port)) as server:
            refused(name, server, authority)
    assert server.over_tls != b""
    assert named.clients == 0


def test_brokers_that_kafka_names_get_nothing_without_tls(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "eventlog.kafka")
    ours = [authority.of("127.0.0.1")] * 20
    with cluster() as brokers, relay_to(brokers.brokers) as answer:
        brokers.write([KafkaRecord("hr.usr", None, b"first")])
        with wire(*ours, answer=answer) as first, pytest.raises(ReceiverUnavailable):
            send(kafka_config(first.port, authority.file, **{"security.protocol": "SSL"}))
        assert re.search(f"ssl://{brokers.brokers}/1: .*SSL_HANDSHAKE", caplog.text)
        assert [one.value for one in brokers.records("hr.usr")] == [b"first"]
