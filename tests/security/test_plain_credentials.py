"""Credentials that go to another machine without TLS: what is refused, and what the start of a
publisher and ``doctor`` report (spec/event-log.md 8.4, *TLS*).
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from shared import Run

from eventlog.config.load import load
from eventlog.config.publishing import plain_credentials
from eventlog.core.oauth import OAuthOptions
from eventlog.errors import ConfigError
from eventlog.publisher.sinks.kafka import KafkaSink, KafkaSinkOptions
from eventlog.publisher.sinks.sqs import SqsOptions, SqsSink
from eventlog.qlik.messages.envelope import HttpRegistry
from eventlog.transport.oauth import ClientTokens

USER = {"EVENTLOG_SINK_USER": "user", "EVENTLOG_SINK_PASSWORD": "hush"}
PLAINTEXT = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
QUEUE = {"type": "sqs", "queue_url": "https://sqs.example.org/1/hr.fifo"}
PLAIN: dict[str, dict[str, Any]] = {
    "redis": {"type": "redis", "redis_url": "redis://{}:6379/0"},
    "rabbitmq": {"type": "rabbitmq", "amqp_url": "amqp://{}:5672"},
    "nats": {"type": "nats", "nats_url": "nats://localhost:4222,nats://{}:4222"},
    "kafka": {"type": "kafka", "brokers": "localhost:9092,{}:9092", "properties": PLAINTEXT},
    "sqs": {**QUEUE, "endpoint": "http://{}:9324"},
    "objects": {"type": "objects", "bucket_url": "s3://b", "endpoint": "http://{}:9000"},
    "objects of Google": {
        "type": "objects",
        "bucket_url": "gs://b/p?scheme=http&endpoint_override={}:4443",
    },
    "objects of Azure": {
        "type": "objects",
        "bucket_url": "abfs://b/p?enable_tls=false&blob_storage_authority={}:10000",
    },
}
SECURE: dict[str, dict[str, Any]] = {
    "redis": {"type": "redis", "redis_url": "rediss://host:6379/0"},
    "rabbitmq": {"type": "rabbitmq", "amqp_url": "amqps://host"},
    "nats": {"type": "nats", "nats_url": "tls://host:4222"},
    "kafka": {
        "type": "kafka",
        "brokers": "host:9092",
        "properties": {**PLAINTEXT, "security.protocol": "SASL_SSL"},
    },
    "sqs": QUEUE,
    "objects": {"type": "objects", "bucket_url": "s3://b", "endpoint": "https://host:9000"},
}


def at(name: str, host: str, **more: Any) -> dict[str, Any]:
    """The settings of a sink at a host."""
    return {
        key: value.replace("{}", host) if isinstance(value, str) else value
        for key, value in PLAIN[name].items()
    } | more


def found(settings: dict[str, Any], environ: dict[str, str] = USER) -> list[str]:
    return ["; ".join(one) for one in plain_credentials(load(settings, environ))]


@pytest.mark.parametrize("name", PLAIN)
def test_credentials_to_another_machine_are_reported_with_its_name(name: str) -> None:
    (warning,) = found({"sink": at(name, "other")})
    assert warning.startswith("[sink] sends credentials and documents to other without TLS; set ")
    assert "or sink.allow_plain = true" in warning


@pytest.mark.parametrize("name", PLAIN)
def test_allow_plain_ends_the_report(name: str) -> None:
    assert found({"sink": at(name, "other", allow_plain=True)}) == []


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
@pytest.mark.parametrize("name", PLAIN)
def test_credentials_may_go_to_this_machine(name: str, host: str) -> None:
    assert found({"sink": at(name, host)}) == []


@pytest.mark.parametrize("name", SECURE)
def test_credentials_may_go_over_tls(name: str) -> None:
    assert found({"sink": SECURE[name]}) == []


@pytest.mark.parametrize("name", ["redis", "rabbitmq", "nats"])
def test_a_sink_without_credentials_may_go_without_tls(name: str) -> None:
    assert found({"sink": at(name, "other")}, {}) == []


def test_the_second_sink_and_a_followed_topic_are_reported_too() -> None:
    letters = {"EVENTLOG_DEAD_LETTER_PASSWORD": "hush"}
    (warning,) = found({"dead_letter": at("redis", "other")}, letters)
    assert warning.startswith("[dead_letter] sends credentials and documents to other without TLS")
    assert "set rediss:// in dead_letter.redis_url, or dead_letter.allow_plain = true" in warning
    source = {**at("kafka", "other"), "type": "qlik-messages", "topics": ["a"]}
    reader = {"EVENTLOG_SOURCE_USER": "user", "EVENTLOG_SOURCE_PASSWORD": "hush"}
    (warning,) = found({"source": source}, reader)
    assert '"security.protocol" = "SASL_SSL" in source.properties, or source.allow' in warning


def test_token_endpoints_and_registries_get_no_credentials_without_tls() -> None:
    refused = "credentials are not sent over plain http to another machine; use https"
    with pytest.raises(ConfigError, match=refused):
        HttpRegistry("http://other:8081", "user:hush")
    with pytest.raises(ConfigError, match=refused):
        ClientTokens(OAuthOptions("http://other/t", "me"), "hush", "sink.oauth", timeout=1)
    properties = {"sasl.oauthbearer.token.endpoint.url": "http://other/token"}
    with pytest.raises(ConfigError, match=refused):
        KafkaSink.open(KafkaSinkOptions("localhost:9092", properties=properties), None)  # type: ignore[arg-type]


def test_the_environment_takes_no_tls_from_the_url_of_a_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_SQS", "http://other:9324")
    with pytest.raises(ConfigError, match="names an endpoint without TLS; remove it, or set"):
        SqsSink(SqsOptions(QUEUE["queue_url"], region="r", access_key="k", secret_key="hush"))


def test_the_start_of_a_publisher_and_doctor_report_it(
    run: Run, empty_home: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(sqlite3.connect("app.db")) as conn:
        conn.execute("CREATE TABLE usr (idu integer PRIMARY KEY)")
    monkeypatch.setenv("EVENTLOG_SINK_PASSWORD", "hush")
    Path("eventlog.toml").write_text(
        '[database]\nurl = "sqlite:///app.db"\n[[watch]]\ntable = "usr"\n[sink]\ntype = "redis"\n'
        'redis_url = "redis://other.invalid"\n'
    )
    assert run("db", "upgrade")[0] == run("triggers", "apply")[0] == 0
    run("publish", "--once")
    what = "[sink] sends credentials and documents to other.invalid without TLS"
    to_do = "set rediss:// in sink.redis_url, or sink.allow_plain = true if the network is trusted"
    (line,) = (one for one in caplog.records if what in one.getMessage())
    assert (line.levelname, line.getMessage()) == ("WARNING", f"{what}; {to_do}")
    findings = json.loads(run("doctor", "--json")[1])["findings"]
    (finding,) = (one for one in findings if one["code"] == "plain_credentials")
    assert (finding["severity"], finding["text"], finding["fix"]) == ("warning", what, [to_do])
