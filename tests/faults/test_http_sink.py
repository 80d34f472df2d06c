"""What the HTTP sink sends: its headers, credentials and settings (spec/event-log.md 8.4)."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest
from http_sinks import (
    away,
    document,
    http_sink,
    sink_to,
)
from receiver import CUT, Receiver, Request, reply
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from eventlog.config.effective import effective
from eventlog.config.load import load
from eventlog.errors import ConfigError, ReceiverUnavailable
from eventlog.model import Answer
from eventlog.publisher.sinks.http import HttpSink, answer_form

SIGNING = "whsec_" + base64.b64encode(bytes(range(32))).decode()


@pytest.mark.promise("sink http")
def test_document_is_posted_as_it_is_with_its_numbers() -> None:
    with Receiver() as receiver, sink_to(receiver) as sink:
        assert sink.send(document()) == Answer()
        sink.flush()
    (request,) = receiver.requests
    assert request.path == "/xds"
    assert request.body == "<nds>Ünï</nds>\n"
    assert request.headers["Content-Type"] == "application/xml; charset=utf-8"
    assert request.headers["Accept"] == "application/xml"
    assert request.headers["Host"] == f"127.0.0.1:{receiver.port}"
    assert (request.headers["Eventlog-Delivery"], request.headers["Eventlog-Document"]) == (
        "12",
        "3",
    )


def test_no_key_names_a_request_since_the_rest_of_a_document_goes_under_its_old_numbers() -> None:
    with Receiver() as receiver, sink_to(receiver) as sink:
        sink.send(document())
    assert "Idempotency-Key" not in receiver.requests[0].headers


def test_bearer_token_is_sent() -> None:
    with Receiver() as receiver, sink_to(receiver, token="s3cret") as sink:
        sink.send(document())
    assert receiver.requests[0].headers["Authorization"] == "Bearer s3cret"


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """What env:SECRET leads to."""
    monkeypatch.setenv("SECRET", "s3cret")


def test_headers_are_sent_with_each_document(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("k3y\n")
    options = {
        "headers": {"X-Tenant": "hr"},
        "secret_headers": {"X-Api-Key": f"file:{file}", "X-Pass": "env:SECRET"},
    }
    with Receiver() as receiver, sink_to(receiver, **options) as sink:
        sink.send(document())
        sink.send(document())
    sent = [
        [request.headers[name] for name in ("X-Tenant", "X-Api-Key", "X-Pass")]
        for request in receiver.requests
    ]
    assert sent == [["hr", "k3y", "s3cret"]] * 2


def test_headers_come_by_the_environment_a_line_each() -> None:
    settings = load(
        None,
        {
            "EVENTLOG_SINK_TYPE": "http",
            "EVENTLOG_SINK_URL": "https://receiver/",
            "EVENTLOG_SINK_HEADERS": "X-Tenant: hr\nX-Trace: a:b \n",
            "EVENTLOG_SINK_SECRET_HEADERS": "X-Api-Key: env:SECRET",
        },
    ).sink.options
    assert settings.headers == {"X-Tenant": "hr", "X-Trace": "a:b"}
    assert settings.secret_headers == {"X-Api-Key": "env:SECRET"}


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        (
            {"X-Api-Key": "s3cret"},
            '"X-Api-Key" = "env:VARIABLE" or "file:/PATH" in sink.secret_headers',
        ),
        ({"Authorization": "Bearer s3cret"}, "Authorization is a secret"),
        ({"Cookie": "s3cret"}, "Cookie is a secret"),
        (
            {"Content-Type": "text/plain"},
            "the publisher sets the header Content-Type itself; remove it",
        ),
        ({"host": "elsewhere"}, "the publisher sets the header host itself; remove it"),
        ({"Webhook-Id": "7"}, "the publisher sets the header Webhook-Id itself; remove it"),
        ({"X Tenant": "hr"}, "'X Tenant' is not a valid header name"),
        ({"X-Tenant": ""}, "the value of X-Tenant is empty"),
        ({"X-Tenant": "hr\r\nX: y"}, "or has line breaks"),
        ({"X-Tenant": 7}, "is not allowed"),
    ],
)
def test_wrong_headers_are_refused(headers: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load({"sink": {"headers": headers}}, {})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({"X-Api-Key": "s3cret"}, "X-Api-Key is neither env:VARIABLE nor file:/PATH"),
        (
            {"Content-Type": "env:SECRET"},
            "the publisher sets the header Content-Type itself; remove it",
        ),
        (
            {"X-Api-Key": "env:NOBODY"},
            "sink.secret_headers, X-Api-Key: the environment variable NOBODY is not set",
        ),
        (
            {"X-Api-Key": "env:LINES"},
            "sink.secret_headers, X-Api-Key: the value of env:LINES has line ends",
        ),
        ({"X-Api-Key": "file:/nowhere/key"}, "/nowhere/key cannot be read"),
    ],
)
def test_wrong_places_of_secrets_are_refused(
    headers: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINES", "s3cret\r\nX: y")
    with pytest.raises(ConfigError) as caught:
        HttpSink(
            load(
                {"sink": {"type": "http", "url": "https://receiver/", "secret_headers": headers}},
                {},
            ).sink.options,
            answer_form("xds"),
        )
    assert message in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_the_secret_of_signatures_is_masked() -> None:
    config = load(None, {"EVENTLOG_SINK_SIGNING_SECRET": SIGNING})
    assert SIGNING not in f"{config} {list(effective(config))}"


# --- compression, signature -----------------------------------------------------------------------


def test_request_is_compressed_where_that_is_set() -> None:
    body = "<nds>Ünï</nds>" * 1000
    with Receiver() as receiver, sink_to(receiver, compression="gzip") as sink:
        assert sink.send(document(body=body)) == Answer()
    (request,) = receiver.requests
    assert request.headers["Content-Encoding"] == "gzip"
    assert int(request.headers["Content-Length"]) == len(request.raw) < len(body) / 10
    assert request.body == body


def verified(request: Request, secret: str) -> None:
    """Raises if the library of Standard Webhooks does not take the request for ours."""
    Webhook(secret).verify(request.body, dict(request.headers), json_parse=False)


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_signature_is_taken_by_the_library_of_standard_webhooks(compression: str) -> None:
    with (
        Receiver() as receiver,
        sink_to(receiver, signing_secret=SIGNING, compression=compression) as sink,
    ):
        sink.send(document())
    (request,) = receiver.requests
    verified(request, SIGNING)
    with pytest.raises(WebhookVerificationError, match="No matching signature"):
        verified(request._replace(body=request.body + " "), SIGNING)
    with pytest.raises(WebhookVerificationError, match="No matching signature"):
        verified(request, "whsec_" + base64.b64encode(bytes(32)).decode())


def test_during_a_change_of_secrets_each_of_the_two_takes_the_signature() -> None:
    newer = "whsec_" + base64.b64encode(bytes(24)).decode()
    with Receiver() as receiver, sink_to(receiver, signing_secret=f"{newer} {SIGNING}") as sink:
        sink.send(document())
    for secret in (newer, SIGNING):
        verified(receiver.requests[0], secret)


def test_message_that_comes_again_has_its_id_and_the_rest_of_a_document_another() -> None:
    """A receiver may pass over a message whose id it knows: what is left of a document must not be
    lost so.
    """
    sent = [document(), document(), document("2", body="<nds/>"), document("1", body="<nds/>")]
    with Receiver() as receiver, sink_to(receiver, signing_secret=SIGNING) as sink:
        for each in sent:
            sink.send(each)
    first, again, left, other = (request.headers["webhook-id"] for request in receiver.requests)
    assert first == again
    assert len({first, left, other}) == 3
    assert all(re.fullmatch("msg_[A-Za-z0-9_-]{24}", name) for name in (first, left, other))


def test_without_a_secret_nothing_is_signed() -> None:
    with Receiver() as receiver, sink_to(receiver) as sink:
        sink.send(document())
    assert not [name for name in receiver.requests[0].headers if name.lower().startswith("webhook")]


# --- credentials, settings ------------------------------------------------------------------------


def test_basic_credentials_are_sent() -> None:
    with Receiver() as receiver, sink_to(receiver, user="hr", password="geheim:ü") as sink:
        sink.send(document())
    scheme, encoded = receiver.requests[0].headers["Authorization"].split()
    assert (scheme, base64.b64decode(encoded).decode()) == ("Basic", "hr:geheim:ü")


@pytest.mark.parametrize(
    "credentials",
    [
        {"token": "s3cret"},
        {"user": "hr", "password": "s3cret"},
        {"secret_headers": {"Authorization": "env:SECRET"}},
    ],
)
@pytest.mark.parametrize(
    "echo",
    [
        lambda said: reply(403, said),
        lambda said: reply(502, b"", f"Retry-After: {said.decode()}"),
        lambda said: reply(302, b"", f"Location: https://elsewhere/{said.decode()}"),
        lambda said: reply(200, said),
        lambda said: reply(200, b"<" + said.split()[-1].rstrip(b"=") + b"/>"),
        lambda said: [said + b"\r\n", CUT],
    ],
)
def test_credentials_that_a_receiver_repeats_are_not_shown(
    credentials: dict[str, str], echo: object
) -> None:
    message = away(lambda request: echo(request.headers["Authorization"].encode()), **credentials)  # type: ignore[operator]
    assert "s3cret" not in message
    assert base64.b64encode(b"hr:s3cret").decode().rstrip("=") not in message


@pytest.mark.parametrize(
    ("url", "options", "message"),
    [
        (
            "http://receiver/xds",
            {"secret_headers": {"X-Api-Key": "env:SECRET"}},
            "credentials are not sent over plain http",
        ),
        (
            "https://receiver/",
            {"signing_secret": "whsec_s3cret"},
            "EVENTLOG_SINK_SIGNING_SECRET must be whsec_",
        ),
        (
            "https://receiver/",
            {"signing_secret": "no base64!"},
            "EVENTLOG_SINK_SIGNING_SECRET must be whsec_",
        ),
        (
            "https://receiver/",
            {"signing_secret": " "},
            "EVENTLOG_SINK_SIGNING_SECRET must be whsec_",
        ),
        ("https://receiver/", {"signing_secret": SIGNING + " c2hvcnQ="}, "24 to 64 random bytes"),
        ("", {}, "sink.url = '': write a URL like https://HOST/PATH"),
        ("receiver/xds?k=s3cret", {}, "sink.url = 'receiver/xds': write a URL like"),
        ("hr:s3cret@receiver", {}, "sink.url = '***@receiver': write a URL like"),
        ("ftp://receiver/xds", {}, "write a URL like"),
        ("https:///xds", {}, "write a URL like"),
        ("https://receiver:x/xds", {}, "'https://receiver:x/xds' is not a URL"),
        ("https://[::1/xds", {}, "is not a URL"),
        ("https://hr:s3cret@receiver/xds", {}, "contains a user or a password"),
        (f"https://{'x' * 64}.example.com/xds", {}, "not a host name"),
        ("https://receiver..example.com/xds", {}, "not a host name"),
        ("https://receiver/a b", {}, "percent-encode"),
        ("https://receiver/ü", {}, "percent-encode"),
        ("http://receiver/xds", {"token": "s3cret"}, "credentials are not sent over plain http"),
        (
            "http://192.0.2.1/xds",
            {"user": "hr", "password": "s3cret"},
            "credentials are not sent over plain http",
        ),
        (
            "http://127.0.0.1.example.com/",
            {"token": "s3cret"},
            "credentials are not sent over plain http",
        ),
        (
            "https://receiver/",
            {"token": "s3cret", "user": "hr"},
            "EVENTLOG_SINK_TOKEN cannot be used with",
        ),
        (
            "https://receiver/",
            {"token": "s3cret", "secret_headers": {"authorization": "env:SECRET"}},
            "both set Authorization",
        ),
        ("https://receiver/", {"token": "s3cret\n"}, "EVENTLOG_SINK_TOKEN must not be empty"),
        ("https://receiver/", {"token": ""}, "EVENTLOG_SINK_TOKEN must not be empty"),
        ("https://receiver/", {"user": "hr"}, "set both"),
        ("https://receiver/", {"password": "s3cret"}, "set both"),
        ("https://receiver/", {"user": "h:r", "password": "s3cret"}, "must not contain a colon"),
        ("https://receiver/", {"user": "hr", "password": "s3cret\r\nX: y"}, "control character"),
        ("http://127.0.0.1/", {"ca_file": Path("ca.pem")}, "need https"),
        (
            "https://receiver/",
            {"ca_file": Path("/nowhere/ca.pem")},
            "/nowhere/ca.pem: No such file",
        ),
        ("https://receiver/", {"ca_file": Path(__file__)}, "must contain PEM certificates"),
        (
            "https://receiver/",
            {"client_certificate": Path("/nowhere/c.pem")},
            "/nowhere/c.pem: No such file",
        ),
        (
            "https://receiver/",
            {"client_certificate": Path(__file__)},
            "a PEM certificate and its key are needed",
        ),
        ("https://receiver/", {"client_key": Path("k.pem")}, "needs sink.client_certificate"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_sent(
    url: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        http_sink(url, **options)
    assert message in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "[::1]"])
def test_credentials_may_go_over_plain_http_to_this_machine(host: str) -> None:
    http_sink(f"http://{host}:8080/xds", token="s3cret")


def test_query_of_the_url_is_sent_and_not_shown() -> None:
    with Receiver(lambda _: reply(500)) as receiver:
        sink = http_sink(f"{receiver.url}?key=s3cret")
        with pytest.raises(ReceiverUnavailable) as caught:
            sink.send(document())
    assert receiver.requests[0].path == "/xds?key=s3cret"
    assert "s3cret" not in str(caught.value)
