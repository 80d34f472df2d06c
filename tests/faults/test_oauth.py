"""Tokens of OAuth 2 for the HTTP sink and the schema registry, from a token endpoint that answers
well, late, wrongly or not at all (spec/event-log.md 8.4, *Tokens*).
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import logging
import re
import socket
import ssl
import threading
import tomllib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from http_sinks import PATIENCE, authority, ca_file, document, server_context
from receiver import CUT, Receiver, Request, Script, accept, answer, in_turn, reply

from eventlog import __version__
from eventlog.config.effective import effective
from eventlog.config.load import load
from eventlog.core.clock import monotonic
from eventlog.core.oauth import OAuthOptions
from eventlog.errors import ConfigError, ReceiverUnavailable
from eventlog.model import Answer, Level
from eventlog.publisher.declared.configured_sink import open_sink, try_receiver
from eventlog.publisher.sinks import Sink
from eventlog.qlik.messages.envelope import RegistryError, open_registry
from eventlog.transport import oauth

SECRET = "s3cr et/+"


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLIENT_SECRET", SECRET)


def issued(token: str, **more: Any) -> bytes:
    content = {"access_token": token, "token_type": "bearer", **more}
    return reply(200, json.dumps(content).encode(), "Content-Type: application/json")


def rotating(**more: Any) -> Script:
    """Another token for each request: t1, t2, .."""
    numbers = itertools.count(1)
    return lambda request: issued(f"t{next(numbers)}", **more)


def refusing(error: str, status: int = 400, description: str = "as ever") -> Script:
    body = json.dumps({"error": error, "error_description": description}).encode()
    return lambda request: reply(status, body)


def settings(receiver: Receiver, endpoint: Receiver | str, **oauth: Any) -> dict[str, Any]:
    url = endpoint if isinstance(endpoint, str) else endpoint.url
    client = {"token_url": url, "client_id": "publisher", "client_secret": "env:CLIENT_SECRET"}
    own = oauth.pop("sink", {})
    return {
        "type": "http", "url": receiver.url, "timeout": PATIENCE, "oauth": {**client, **oauth},
        **own,
    }  # fmt: skip


def opened(sink: dict[str, Any]) -> Sink:
    return open_sink(load({"sink": sink}, {}), io.StringIO())


@contextmanager
def to(receiver: Receiver, endpoint: Receiver | str, **oauth: Any) -> Iterator[Sink]:
    with closing(opened(settings(receiver, endpoint, **oauth))) as sink:
        yield sink


def bearers(receiver: Receiver) -> list[str]:
    return [
        request.headers["Authorization"].removeprefix("Bearer ") for request in receiver.requests
    ]


def whole(receiver: Receiver) -> list[tuple[str, dict[str, str], bytes]]:
    """Path, headers and body of each request."""
    return [(one.path, dict(one.headers.items()), one.raw) for one in receiver.requests]


def test_a_document_goes_with_a_token_that_the_clients_credentials_get() -> None:
    with (
        Receiver() as receiver,
        Receiver(rotating(expires_in=3600)) as endpoint,
        to(receiver, endpoint, scope="events write", audience="https://receiver") as sink,
    ):
        assert sink.send(document()) == Answer()
        sink.send(document())
    ((path, headers, body),) = whole(endpoint)
    assert path == "/xds"
    assert headers == {
        "Host": f"127.0.0.1:{endpoint.port}",
        "Accept-Encoding": "identity",
        "Content-Length": str(len(body)),
        "User-Agent": f"eventlog/{__version__}",
        "Accept": "application/json",
        "Content-Type": "application/x-www-form-urlencoded",
        "Authorization": f"Basic {b64encode(b'publisher:s3cr+et%2F%2B').decode()}",
    }
    assert parse_qs(body.decode()) == {
        "grant_type": ["client_credentials"],
        "scope": ["events write"],
        "audience": ["https://receiver"],
    }
    assert bearers(receiver) == ["t1", "t1"]


@pytest.mark.parametrize(
    ("scope", "granted"),
    [("events write", "events"), ("events", "profile events"), ("events write", "write events")],
)
def test_a_token_of_another_scope_is_used(
    caplog: pytest.LogCaptureFixture, scope: str, granted: str
) -> None:
    caplog.set_level(logging.DEBUG, "eventlog.transport.oauth")
    with (
        Receiver() as receiver,
        Receiver(lambda _: issued("t1", scope=granted)) as endpoint,
        to(receiver, endpoint, scope=scope) as sink,
    ):
        assert sink.send(document()) == Answer()
    assert bearers(receiver) == ["t1"]
    told = f"sink.oauth: granted scope {granted}, asked for {scope}"
    is_same = {*scope.split()} == {*granted.split()}
    assert [one.getMessage() for one in caplog.records] == ([] if is_same else [told])


def test_the_example_of_the_guide_gets_a_token() -> None:
    page = (Path(__file__).parents[2] / "docs/guides/receivers.md").read_text(encoding="utf-8")
    (block,) = (one for one in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if "oauth]" in one)
    shown = tomllib.loads(block)["sink"]["oauth"]
    with Receiver() as receiver, Receiver(rotating(expires_in=3600)) as endpoint:
        own = {**shown, "token_url": endpoint.url, "client_secret": "env:CLIENT_SECRET"}
        with to(receiver, endpoint, **own) as sink:
            sink.send(document())
    (asked,) = endpoint.requests
    assert parse_qs(asked.body)["scope"] == [shown["scope"]]
    assert bearers(receiver) == ["t1"]


def test_the_secret_goes_in_the_body_where_the_server_takes_it_there() -> None:
    with (
        Receiver() as receiver,
        Receiver(rotating()) as endpoint,
        to(receiver, endpoint, auth="post") as sink,
    ):
        sink.send(document())
    (asked,) = endpoint.requests
    assert parse_qs(asked.body) == {
        "grant_type": ["client_credentials"],
        "client_id": ["publisher"],
        "client_secret": [SECRET],
    }
    assert "Authorization" not in asked.headers


def test_one_of_all_threads_gets_the_token() -> None:
    with (
        Receiver() as receiver,
        Receiver(rotating(expires_in=60)) as endpoint,
        to(receiver, endpoint) as sink,
        ThreadPoolExecutor(8) as threads,
    ):
        list(threads.map(lambda _: sink.send(document()), range(8)))
    assert len(endpoint.requests) == 1
    assert bearers(receiver) == ["t1"] * 8


def test_threads_that_waited_for_a_token_in_vain_do_not_ask_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = threading.Semaphore(0)

    def clock() -> float:
        looked.release()
        return monotonic()

    def late(request: Request) -> bytes:
        for _ in range(5):  # each of the four at its beginning, and the one that asks here
            assert looked.acquire(timeout=PATIENCE)
        return reply(500)

    def failure(sink: Sink) -> str:
        with pytest.raises(ReceiverUnavailable) as caught:
            sink.send(document())
        return str(caught.value)

    monkeypatch.setattr(oauth, "monotonic", clock)
    with (
        Receiver() as receiver,
        Receiver(late) as endpoint,
        to(receiver, endpoint) as sink,
        ThreadPoolExecutor(4) as threads,
    ):
        failures = list(threads.map(lambda _: failure(sink), range(4)))
    assert len(endpoint.requests) == 1
    assert len(set(failures)) == 1


@pytest.mark.parametrize(
    ("lifetime", "until"),
    [
        (3600, 3570),
        ("3600", 3570),
        ("3600.0", 3570),
        (121, 91),
        (120, 90),
        (119, 89.25),
        (60, 45),
        (8, 6),
    ],
)
def test_a_token_is_renewed_before_it_ends_by_our_own_clock(
    monkeypatch: pytest.MonkeyPatch, lifetime: float | str, until: float
) -> None:
    now = [1000.0]
    monkeypatch.setattr(oauth, "monotonic", lambda: now[0])
    with (
        Receiver() as receiver,
        Receiver(rotating(expires_in=lifetime)) as endpoint,
        to(receiver, endpoint) as sink,
    ):
        for seconds in (0, until - 0.5, until):
            now[0] = 1000 + seconds
            sink.send(document())
    assert bearers(receiver) == ["t1", "t1", "t2"]


def test_the_lifetime_of_a_token_begins_with_the_request_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    monkeypatch.setattr(oauth, "monotonic", lambda: now[0])
    issue = rotating(expires_in=3600)

    def late(request: Request) -> bytes | Iterable[bytes]:
        now[0] += 100
        return issue(request)

    with Receiver() as receiver, Receiver(late) as endpoint, to(receiver, endpoint) as sink:
        for seconds in (0, 3569, 3570):
            now[0] = 1000 + seconds
            sink.send(document())
    assert bearers(receiver) == ["t1", "t1", "t2"]


def test_a_token_that_is_refused_late_does_not_take_the_newer_one_with_it() -> None:
    with Receiver(rotating(expires_in=3600)) as endpoint:
        tokens = oauth.ClientTokens(client_of(endpoint), SECRET, "sink.oauth", timeout=PATIENCE)
        used = [tokens.current()]
        for refused in ("t1", "t1", "t2"):
            tokens.forget_if_refused(refused, 401)
            used.append(tokens.current())
    assert used == ["t1", "t2", "t2", "t3"]
    assert len(endpoint.requests) == 3
    encoded = b64encode(b"publisher:s3cr+et%2F%2B").decode()
    assert list(tokens.secrets) == [SECRET, encoded, "t3", "t2"]


@pytest.mark.parametrize("more", [{}, {"expires_in": None}, {"expires_in": 0}])
def test_a_token_without_an_end_is_used_until_it_is_refused(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    now = [1000.0]
    monkeypatch.setattr(oauth, "monotonic", lambda: now[0])
    with (
        Receiver() as receiver,
        Receiver(rotating(**more)) as endpoint,
        to(receiver, endpoint) as sink,
    ):
        sink.send(document())
        now[0] += 10**7
        sink.send(document())
    assert bearers(receiver) == ["t1", "t1"]


def test_after_a_token_that_ended_early_the_document_goes_again_with_a_new_one() -> None:
    script = in_turn(lambda request: reply(200, answer()), lambda request: reply(401), accept)
    with (
        Receiver(script) as receiver,
        Receiver(rotating(expires_in=3600)) as endpoint,
        to(receiver, endpoint) as sink,
    ):
        assert [sink.send(document()) for _ in range(3)] == [Answer()] * 3
    assert bearers(receiver) == ["t1", "t1", "t2", "t2"]
    path, headers, body = whole(receiver)[1]
    assert whole(receiver)[2] == (path, {**headers, "Authorization": "Bearer t2"}, body)


@pytest.mark.parametrize(("age", "tokens"), [(59.9, ["t1"] * 3), (60.0, ["t1", "t1", "t2"])])
def test_a_403_gets_a_new_token_if_the_token_is_a_minute_old(
    monkeypatch: pytest.MonkeyPatch, age: float, tokens: list[str]
) -> None:
    now = [1000.0]
    monkeypatch.setattr(oauth, "monotonic", lambda: now[0])
    script = in_turn(accept, lambda _: reply(403), accept)
    with (
        Receiver(script) as receiver,
        Receiver(rotating(expires_in=3600)) as endpoint,
        to(receiver, endpoint) as sink,
    ):
        sink.send(document())
        now[0] += age
        for _ in range(2 if age < 60 else 1):
            with contextlib.suppress(ReceiverUnavailable):
                sink.send(document())
    assert bearers(receiver) == tokens
    first, second = (request.body for request in receiver.requests[1:])
    assert first == second


def test_no_403_gets_a_second_new_token_before_another_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    monkeypatch.setattr(oauth, "monotonic", lambda: now[0])
    forbidden = lambda _: reply(403)  # noqa: E731
    script = in_turn(accept, forbidden, forbidden, forbidden, accept, forbidden, accept)
    with (
        Receiver(script) as receiver,
        Receiver(rotating(expires_in=10**6)) as endpoint,
        to(receiver, endpoint) as sink,
    ):
        shown = []
        for _ in range(5):
            now[0] += 100
            try:
                sink.send(document())
            except ReceiverUnavailable as unavailable:
                shown.append(str(unavailable))
    assert bearers(receiver) == ["t1", "t1", "t2", "t2", "t2", "t2", "t3"]
    advice = "check the rights of this client, and sink.oauth.scope and audience"
    assert [advice in message for message in shown] == [True, True]


def test_a_receiver_that_refuses_the_new_token_too_is_unavailable() -> None:
    with (
        Receiver(lambda request: reply(401)) as receiver,
        Receiver(rotating()) as endpoint,
        to(receiver, endpoint) as sink,
        pytest.raises(ReceiverUnavailable) as caught,
    ):
        sink.send(document())
    assert bearers(receiver) == ["t1", "t2"]
    assert "refuses a new token; check sink.oauth.scope and audience" in str(caught.value)


def test_a_token_endpoint_that_is_busy_sets_the_pause() -> None:
    busy = lambda request: reply(429, b"", "Retry-After: 7")  # noqa: E731
    with Receiver() as receiver, Receiver(busy) as endpoint, to(receiver, endpoint) as sink:
        read = sink.send(document())
    assert (read.general and read.general.level, read.retry_after) == (Level.RETRY, 7)
    assert receiver.requests == []


PAGE = b"<!DOCTYPE html><title>Sign in</title>"


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (
            lambda request: reply(200, PAGE, "Content-Type: text/html"),
            "answers 200 without a token",
        ),
        (lambda request: reply(403, PAGE), "answers 403 without a token"),
        (lambda request: reply(302, b"", "Location: http://127.0.0.1/"), "answers 302 without"),
        (lambda request: reply(200), "answers 200 without a token"),
        (lambda request: reply(200, b"[1]"), "answers 200 without a token"),
        (lambda request: reply(200, b'{"access_token": 7}'), "answers 200 without a token"),
        (lambda request: reply(200, b'{"access_token": "a\\nb"}'), "answers 200 without a token"),
        (lambda request: reply(500, b"t1"), "answers 500 without a token"),
        (lambda request: CUT, "closed the connection without an answer"),
        (refusing("invalid_request"), "answers 400 without a token (invalid_request)"),
        (lambda request: issued("t1", token_type="mac"), "the type of its token is not Bearer"),
        (lambda request: reply(429), "answers 429"),
    ],
)
def test_without_a_usable_token_the_receiver_is_unavailable_and_gets_nothing(
    script: Script, why: str
) -> None:
    with (
        Receiver() as receiver,
        Receiver(script) as endpoint,
        to(receiver, endpoint) as sink,
        pytest.raises(ReceiverUnavailable) as caught,
    ):
        sink.send(document())
    message = str(caught.value)
    assert message.startswith(f"{receiver.url}: no token from {endpoint.url}")
    assert why in message
    assert not caught.value.is_suspicious
    assert receiver.requests == []


def test_a_token_endpoint_that_never_answers_is_given_up_after_the_timeout() -> None:
    with Receiver() as receiver, Receiver() as endpoint:
        endpoint.script = lambda request: endpoint.silence()
        with (
            to(receiver, endpoint, sink={"timeout": 0.2}) as sink,
            pytest.raises(ReceiverUnavailable, match=r"no complete answer within 0\.2 s"),
        ):
            sink.send(document())


@pytest.mark.parametrize(
    ("error", "check"),
    [
        ("invalid_client", "check sink.oauth.client_id and sink.oauth.client_secret, and whether"),
        ("invalid_scope", "check sink.oauth.scope"),
        ("unauthorized_client", "allow this client the grant client_credentials at the server"),
    ],
)
@pytest.mark.parametrize("status", [400, 401])
def test_a_refused_client_gets_a_sentence_with_the_option_to_check(
    error: str, check: str, status: int
) -> None:
    with (
        Receiver() as receiver,
        Receiver(refusing(error, status)) as endpoint,
        to(receiver, endpoint) as sink,
        pytest.raises(ReceiverUnavailable) as caught,
    ):
        sink.send(document())
    assert f"{error} (as ever); {check}" in str(caught.value)
    assert check in caught.value.in_short
    assert "as ever" not in caught.value.in_short
    assert caught.value.code == "receiver_misconfigured"
    assert caught.value.advice.startswith(check)


def test_neither_token_nor_secret_is_shown_by_a_server_that_repeats_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)

    def repeating(request: Request) -> bytes:
        sent = f"{request.headers['Authorization']} {request.body}"
        return refusing("invalid_client", 401, sent)(request)

    shown = []
    with Receiver() as receiver, Receiver() as endpoint:
        receiver.script = lambda request: reply(500, request.headers["Authorization"].encode())
        for auth in ("basic", "post"):
            for script in (repeating, rotating()):
                endpoint.script = script
                with (
                    to(receiver, endpoint, auth=auth) as sink,
                    pytest.raises(ReceiverUnavailable) as caught,
                ):
                    sink.send(document())
                shown += [str(caught.value), caught.value.in_short]
    text = "\n".join([*shown, caplog.text])
    sent = {
        request.headers["Authorization"] for request in (*endpoint.requests, *receiver.requests)
    }
    secrets = {one.partition(" ")[2] for one in sent if one} | {SECRET, "s3cr+et%2F%2B"}
    assert "***" in text
    assert [one for one in secrets if one in text] == []


def test_a_client_without_a_secret_identifies_itself_by_its_certificate(tmp_path: Path) -> None:
    own = tmp_path / "client.pem"
    authority().issue_cert("publisher").private_key_and_cert_chain_pem.write_to_path(own)
    server = server_context()
    server.verify_mode = ssl.CERT_REQUIRED
    authority().configure_trust(server)
    trusted = str(ca_file(tmp_path))
    with (
        Receiver(tls=server_context()) as receiver,
        Receiver(rotating(), tls=server) as endpoint,
        to(
            receiver, endpoint, client_secret=None, ca_file=trusted,
            sink={"ca_file": trusted, "client_certificate": str(own)},
        ) as sink,
    ):  # fmt: skip
        sink.send(document())
    (asked,) = endpoint.requests
    assert parse_qs(asked.body) == {
        "grant_type": ["client_credentials"],
        "client_id": ["publisher"],
    }
    assert bearers(receiver) == ["t1"]


def test_the_token_endpoint_may_be_behind_a_proxy(tmp_path: Path) -> None:
    with (
        Receiver() as receiver,
        Receiver(rotating(), tls=server_context()) as endpoint,
        connecting_proxy() as (proxy, connected),
        to(receiver, endpoint, ca_file=str(ca_file(tmp_path)), proxy=proxy) as sink,
    ):
        sink.send(document())
    assert connected == [f"127.0.0.1:{endpoint.port}"]
    assert bearers(receiver) == ["t1"]


def test_a_proxy_that_refuses_to_connect_is_named(tmp_path: Path) -> None:
    with (
        Receiver() as receiver,
        connecting_proxy(status=407) as (proxy, _),
        to(receiver, "https://login.example.org/token", proxy=proxy) as sink,
        pytest.raises(ReceiverUnavailable, match="the proxy answers 407, not a connection"),
    ):
        sink.send(document())


@contextmanager
def connecting_proxy(status: int = 200) -> Iterator[tuple[str, list[str]]]:
    """A proxy that connects to what CONNECT names, and the names."""
    connected: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_CONNECT(self) -> None:
            connected.append(self.path)
            self.send_response(status)
            self.end_headers()
            if status != 200:
                return
            host, _, port = self.path.rpartition(":")
            with socket.create_connection((host, int(port))) as server:
                back = threading.Thread(target=pump, args=(server, self.connection))
                back.start()
                pump(self.connection, server)
                back.join(PATIENCE)

        def log_message(self, *_: object) -> None:
            pass

    def pump(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", connected
        finally:
            server.shutdown()


def test_a_new_secret_in_the_file_is_used_for_the_next_token(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("old\n")
    with (
        Receiver() as receiver,
        Receiver(rotating()) as endpoint,
        to(receiver, endpoint, client_secret=f"file:{file}") as sink,
    ):
        sink.send(document())
        sink.flush()
        file.write_text("newer\n")
        sink.send(document())
    sent = [
        b64decode(request.headers["Authorization"].removeprefix("Basic "))
        for request in endpoint.requests
    ]
    assert sent == [b"publisher:old", b"publisher:newer"]


def test_a_try_of_the_receiver_names_what_is_wrong_with_the_client() -> None:
    with Receiver() as receiver, Receiver(refusing("invalid_scope")) as endpoint:
        config = load({"sink": settings(receiver, endpoint)}, {})
        with pytest.raises(ReceiverUnavailable, match=r"check sink\.oauth\.scope"):
            try_receiver(config, io.StringIO())


# --- settings -------------------------------------------------------------------------------------

CLIENT = {"token_url": "https://login/token", "client_id": "publisher"}


@pytest.mark.parametrize(
    ("oauth", "sink", "message"),
    [
        ({"token_url": "http://login.example.org/token"}, {}, "use https"),
        ({"client_secret": None}, {}, "sink.oauth needs client_secret, or the client certificate"),
        ({}, {"token": "t"}, "sink.oauth cannot be used with EVENTLOG_SINK_TOKEN"),
        ({"proxy": "https://proxy:3128"}, {}, "proxy: write it like http://HOST:PORT"),
        ({"token_url": "http://localhost/", "proxy": "http://p:1"}, {}, "only an https:// URL"),
        ({"client_secret": "s3cret"}, {}, "legal: env:VARIABLE or file:/PATH"),
        ({"client_secret": "env:NOT_SET"}, {}, "the environment variable NOT_SET is not set"),
        ({"auth": "jwt"}, {}, "basic | post"),
        ({"ca_file": "ca.pem"}, {}, "an absolute path"),
        ({"client": "x"}, {}, "client is not known"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_sent(
    oauth: dict[str, Any], sink: dict[str, Any], message: str
) -> None:
    client = {**CLIENT, "client_secret": "env:CLIENT_SECRET", **oauth}
    with pytest.raises(ConfigError) as caught:
        opened({"type": "http", "url": "https://receiver/", "oauth": client, **sink})
    assert message in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_the_section_is_read_from_the_file_and_shown_without_a_secret(tmp_path: Path) -> None:
    file = tmp_path / "eventlog.toml"
    file.write_text(
        """
[sink]
type = "http"
url = "https://receiver/"

[sink.oauth]
token_url = "https://login/token?key=hush"
client_id = "publisher"
client_secret = "file:/run/secrets/client"
"""
    )
    config = load(file, {})
    (shown,) = (one for one in effective(config) if (one.section, one.key) == ("sink", "oauth"))
    assert shown.value == {**CLIENT, "client_secret": "file:/run/secrets/client"}


def test_the_section_comes_from_the_environment_as_a_table() -> None:
    text = '{ token_url = "https://login/token", client_id = "publisher" }'
    config = load(
        None,
        {"EVENTLOG_SINK_TYPE": "http", "EVENTLOG_SINK_URL": "https://r/", "EVENTLOG_SINK_OAUTH": text},
    )  # fmt: skip
    assert config.sink.options.oauth == OAuthOptions(**CLIENT)


# --- the schema registry --------------------------------------------------------------------------


def client_of(endpoint: Receiver) -> OAuthOptions:
    return OAuthOptions(endpoint.url, "publisher", "env:CLIENT_SECRET")


def test_a_schema_registry_gets_a_token_too() -> None:
    script = in_turn(lambda request: reply(401), lambda request: reply(200, b'{"id": 7}'))
    with Receiver(script) as registry, Receiver(rotating()) as endpoint:
        assert open_registry(registry.url, client_of(endpoint)).register("s", '"string"') == 7
    first, second = whole(registry)
    path, headers, body = first
    assert path == "/xds/subjects/s/versions"
    assert headers["Authorization"] == "Bearer t1"
    assert json.loads(body) == {"schema": '"string"'}
    assert second == (path, {**headers, "Authorization": "Bearer t2"}, body)


def test_a_registry_whose_client_is_refused_names_the_option() -> None:
    with (
        Receiver() as registry,
        Receiver(refusing("invalid_client")) as endpoint,
        pytest.raises(RegistryError, match=r"check registry_oauth\.client_id"),
    ):
        open_registry(registry.url, client_of(endpoint)).register("s", '"string"')


# --- Kafka ----------------------------------------------------------------------------------------


def kafka(**properties: Any) -> dict[str, Any]:
    return {
        "sink": {
            "type": "kafka", "brokers": "broker:9092",
            "properties": {"sasl.mechanisms": "OAUTHBEARER", **properties},
        }
    }  # fmt: skip


def test_kafka_gets_its_tokens_by_librdkafka_or_is_refused() -> None:
    with pytest.raises(ConfigError, match=r'"sasl\.oauthbearer\.method" = "oidc"'):
        load(kafka(), {})
    with_oidc = kafka(**{
        "security.protocol": "SASL_SSL",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "publisher",
        "sasl.oauthbearer.token.endpoint.url": "https://127.0.0.1:1/token",
    })  # fmt: skip
    with_oidc["sink"]["secret_properties"] = {"sasl.oauthbearer.client.secret": "env:CLIENT_SECRET"}
    opened(with_oidc["sink"]).close()
