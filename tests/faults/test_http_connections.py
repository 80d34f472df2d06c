"""Connections of the HTTP sink: slow receivers, kept connections, TLS; one deadline holds for all
of it.
"""

from __future__ import annotations

import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import flask
import pytest
from http_sinks import (
    PATIENCE,
    WARNING,
    answered,
    authority,
    ca_file,
    chunked,
    document,
    http_sink,
    served,
    server_context,
    sink_to,
)
from receiver import CUT, Receiver, Request, accept, answer, in_turn, reply, status

from eventlog.errors import ConfigError, ReceiverUnavailable
from eventlog.model import Answer, EventResult, Level
from eventlog.publisher.sinks import Opening
from eventlog.publisher.sinks.http import HttpOptions, HttpSink
from eventlog.registry import format_named
from eventlog.transport.http import HttpClient


def accept_all(request: Request) -> bytes:
    """The script of a receiver that reads, and is content."""
    request.stream.read(int(request.headers["Content-Length"]))
    return accept(request)


def connected(sink: HttpSink) -> None:
    """Connect with patience, as a busy machine needs it; from then on half a second is all that
    there is.
    """
    sink.send(document())
    sink.client.timeout = 0.5


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(WARNING)


@pytest.mark.parametrize(
    "misbehave",
    [
        pytest.param(lambda receiver: receiver.silence(), id="silent"),
        pytest.param(lambda receiver: receiver.drip(HEAD + WARNING, 0.05), id="head-dripped"),
        pytest.param(
            lambda receiver: (p for part in ([HEAD], receiver.drip(WARNING, 0.05)) for p in part),
            id="body-dripped",
        ),
        pytest.param(
            lambda receiver: (p for part in ([HEAD], receiver.silence()) for p in part),
            id="body-missing",
        ),
        pytest.param(
            lambda receiver: receiver.drip(b"HTTP/1.1 100 Continue\r\n\r\n" * 10, 0.05),
            id="continue-dripped",
        ),
    ],
)
@pytest.mark.parametrize("tls", [False, True])
def test_receiver_that_is_slow_holds_the_publisher_no_longer_than_the_time_out(
    misbehave: object, tls: bool, tmp_path: Path
) -> None:
    options = {"ca_file": ca_file(tmp_path)} if tls else {}
    with (
        Receiver(tls=server_context() if tls else None) as receiver,
        sink_to(receiver, **options) as sink,
    ):
        connected(sink)
        receiver.script = lambda _: misbehave(receiver)  # type: ignore[operator]
        with pytest.raises(ReceiverUnavailable, match=r"no complete answer within 0\.5 s"):
            sink.send(document())


def read_slowly(receiver: Receiver, request: Request) -> Iterator[bytes]:
    """Read on for 15 seconds and answer, if nobody minds."""
    for _ in range(300):
        request.stream.read(100_000)
        receiver.closing.wait(0.05)
    yield reply(200, answer())


@pytest.mark.parametrize(
    "misbehave",
    [
        pytest.param(lambda receiver, _: receiver.silence(), id="reads-nothing"),
        pytest.param(read_slowly, id="reads-slowly"),
    ],
)
@pytest.mark.parametrize("tls", [False, True])
def test_receiver_that_does_not_read_holds_the_publisher_no_longer_than_the_time_out(
    misbehave: object, tls: bool, tmp_path: Path
) -> None:
    options = {"ca_file": ca_file(tmp_path)} if tls else {}
    with (
        Receiver(accept_all, tls=server_context() if tls else None, reads=False) as receiver,
        sink_to(receiver, **options) as sink,
    ):
        connected(sink)
        receiver.script = lambda request: misbehave(receiver, request)  # type: ignore[operator]
        with pytest.raises(ReceiverUnavailable, match=r"no complete answer within 0\.5 s"):
            sink.send(document(body="x" * 30_000_000))


def test_receiver_that_accepts_and_speaks_no_tls_holds_the_publisher_no_longer_than_the_time_out() -> (
    None
):
    with socket.create_server(("127.0.0.1", 0)) as server:
        sink = http_sink(f"https://127.0.0.1:{server.getsockname()[1]}/", timeout=0.3)
        with pytest.raises(ReceiverUnavailable, match="no connection within the time-out"):
            sink.send(document())


def test_an_answer_that_comes_before_the_document_was_sent_is_read() -> None:
    with (
        Receiver(lambda _: [reply(413, b"too much"), CUT], reads=False) as receiver,
        sink_to(receiver) as sink,
        pytest.raises(ReceiverUnavailable, match=r"answers 413 .*; too much"),
    ):
        sink.send(document(body="x" * 5_000_000))


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port where nobody listens, and that nobody else is given meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])


@pytest.mark.parametrize(
    ("url", "message", "code"),
    [
        ("http://127.0.0.1:{port}/xds", "no connection: Connection refused", "unavailable"),
        ("https://127.0.0.1:{port}/xds", "no connection: Connection refused", "unavailable"),
        (
            "http://receiver.invalid/xds",
            "the host name receiver.invalid cannot be resolved",
            "misconfigured",
        ),
    ],
)
def test_receiver_that_is_not_there_is_unavailable_and_a_name_that_nobody_has_is_a_mistake(
    url: str, message: str, code: str, closed_port: int
) -> None:
    url = url.format(port=closed_port)
    with pytest.raises(ReceiverUnavailable) as caught:
        http_sink(url).send(document())
    assert str(caught.value).startswith(f"{url}: {message}")
    assert caught.value.code == f"receiver_{code}"


def test_proxies_of_the_environment_are_not_used(
    monkeypatch: pytest.MonkeyPatch, closed_port: int
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{closed_port}")
    assert answered(accept) == Answer()


def test_publisher_comes_back_to_a_receiver_that_was_unavailable() -> None:
    script = in_turn(lambda _: reply(500), lambda _: [CUT], lambda _: reply(200, b"?"), accept)
    with Receiver(script) as receiver, sink_to(receiver) as sink:
        for _ in range(3):
            with pytest.raises(ReceiverUnavailable):
                sink.send(document())
        assert sink.send(document()) == Answer()


def test_connection_is_kept_for_the_next_document() -> None:
    with (
        Receiver(in_turn(accept, lambda _: chunked(WARNING), accept)) as receiver,
        sink_to(receiver) as sink,
    ):
        for _ in range(3):
            sink.send(document())
    assert [request.connection for request in receiver.requests] == [1, 1, 1]


@pytest.mark.parametrize(("size", "is_whole"), [(1000, True), (30_000, True), (5_000_000, False)])
def test_a_short_document_comes_together_with_the_head_of_its_request(
    size: int, is_whole: bool
) -> None:
    read: list[bytes] = []

    def receive(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            read.append(connection.recv(1 << 20))
            rest = size - len(read[0].partition(b"\r\n\r\n")[2])
            while rest:
                rest -= len(connection.recv(min(rest, 1 << 20)))
            connection.sendall(HEAD + WARNING)

    with socket.create_server(("127.0.0.1", 0)) as server:
        receiver = threading.Thread(target=receive, args=(server,))
        receiver.start()
        with closing(http_sink(f"http://127.0.0.1:{server.getsockname()[1]}/")) as sink:
            sink.send(document("1", body="x" * size))
        receiver.join()
    head, _, body = read[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST / HTTP/1.1\r\n")
    assert (len(body) == size) is is_whole


def test_a_connection_is_closed_when_the_receiver_asks_for_it() -> None:
    with (
        Receiver(lambda _: [reply(200, answer(), "Connection: close"), CUT]) as receiver,
        sink_to(receiver) as sink,
    ):
        for _ in range(2):
            sink.send(document())
    assert [request.connection for request in receiver.requests] == [1, 2]


def test_connection_that_the_receiver_closed_in_between_is_replaced() -> None:
    with Receiver() as receiver, sink_to(receiver) as sink:
        sink.send(document())
        receiver.hang_up()
        assert sink.send(document()) == Answer()
    assert [request.connection for request in receiver.requests] == [1, 2]


def test_kept_connection_that_is_closed_without_an_answer_is_replaced_once() -> None:
    with Receiver(in_turn(accept, lambda _: [CUT], accept)) as receiver, sink_to(receiver) as sink:
        sink.send(document())
        assert sink.send(document()) == Answer()
    assert [request.connection for request in receiver.requests] == [1, 1, 2]


def test_what_comes_between_two_documents_is_no_answer() -> None:
    """Some servers send 408 on a connection that was idle for long, and close it."""
    idle, closed = threading.Event(), threading.Event()

    def impatient(_request: Request) -> Iterator[bytes]:
        yield reply(200, answer())
        idle.wait(PATIENCE)
        yield reply(408, b"", "Connection: close")
        closed.set()
        yield CUT

    with Receiver(in_turn(impatient, accept)) as receiver, sink_to(receiver) as sink:
        sink.send(document())
        idle.set()
        assert closed.wait(PATIENCE)
        assert sink.send(document()) == Answer()
    assert [request.connection for request in receiver.requests] == [1, 2]


def test_kept_connection_that_is_cut_within_an_answer_is_not_tried_again() -> None:
    script = in_turn(accept, lambda _: [reply(200, WARNING)[:-10], CUT], accept)
    with Receiver(script) as receiver, sink_to(receiver) as sink:
        sink.send(document())
        with pytest.raises(ReceiverUnavailable, match="in the middle of the answer"):
            sink.send(document())
    assert len(receiver.requests) == 2


def test_documents_of_several_threads_are_in_the_air_at_once_and_get_their_own_answers() -> None:
    together = threading.Barrier(8)

    def script(request: Request) -> bytes:
        together.wait(PATIENCE)
        return reply(200, answer(status("error", request.body, request.body)))

    def send(number: int) -> EventResult:
        return sink.send(document(str(number), body=str(number))).result(str(number))

    with Receiver(script) as receiver, sink_to(receiver) as sink:
        for _ in range(3):  # new threads each time, as a delivery has
            with ThreadPoolExecutor(8) as threads:
                found = list(threads.map(send, range(8)))
            assert found == [EventResult(Level.ERROR, str(number)) for number in range(8)]
    assert {request.connection for request in receiver.requests} == set(range(1, 9))


def test_documents_go_over_tls_to_a_receiver_of_a_trusted_authority(tmp_path: Path) -> None:
    with (
        Receiver(tls=server_context()) as receiver,
        sink_to(receiver, ca_file=ca_file(tmp_path), token="s3cret") as sink,
    ):
        for _ in range(3):
            assert sink.send(document()) == Answer()
        receiver.hang_up()
        assert sink.send(document()) == Answer()
    assert [request.connection for request in receiver.requests] == [1, 1, 1, 2]
    assert receiver.requests[0].headers["Authorization"] == "Bearer s3cret"


def test_kept_tls_connection_that_is_closed_without_an_answer_is_replaced_once(
    tmp_path: Path,
) -> None:
    with (
        Receiver(in_turn(accept, lambda _: [CUT], accept), tls=server_context()) as receiver,
        sink_to(receiver, ca_file=ca_file(tmp_path)) as sink,
    ):
        sink.send(document())
        assert sink.send(document()) == Answer()
    assert [request.connection for request in receiver.requests] == [1, 1, 2]


def test_certificate_of_an_unknown_authority_is_refused() -> None:
    with (
        Receiver(tls=server_context()) as receiver,
        sink_to(receiver, token="s3cret") as sink,
        pytest.raises(
            ReceiverUnavailable,
            match=r"certificate is not trusted: .*; set sink\.ca_file to the authorities to trust",
        ),
    ):
        sink.send(document())
    assert receiver.requests == []


def test_a_token_that_is_cut_off_with_the_body_is_not_shown_in_part() -> None:
    token = "a-token-of-some-length"
    sizes = range(1, len(token) + 1)
    bodies = (b" " * (4096 - size) + token.encode() + b" and more" for size in sizes)
    with Receiver(lambda _: reply(422, next(bodies))) as receiver:
        client = HttpClient(receiver.url, timeout=9, max_response_bytes=9999, secrets=(token,))
        with closing(client):
            shown = {client.excerpt(client.request("POST", {}, b"").body) for _ in sizes}
    assert shown == {"", "***"}


def test_certificate_of_another_host_is_refused(tmp_path: Path) -> None:
    with (
        Receiver(tls=server_context("receiver.example.com")) as receiver,
        sink_to(receiver, ca_file=ca_file(tmp_path)) as sink,
        pytest.raises(
            ReceiverUnavailable,
            match=r"the certificate is not for the name 127\.0\.0\.1 but for "
            r"receiver\.example\.com; put one of these names into sink\.url$",
        ) as caught,
    ):
        sink.send(document())
    assert receiver.requests == []
    assert caught.value.code == "receiver_misconfigured"
    assert caught.value.advice == "put one of these names into sink.url"


@pytest.mark.parametrize("separate", [False, True])
def test_client_certificate_is_shown_to_a_receiver_that_asks(
    separate: bool, tmp_path: Path
) -> None:
    context = server_context()
    authority().configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    issued = authority().issue_cert("publisher@example.com")
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    if separate:
        issued.cert_chain_pems[0].write_to_path(certificate)
        issued.private_key_pem.write_to_path(key)
    else:
        issued.private_key_and_cert_chain_pem.write_to_path(certificate)
    options = {"ca_file": ca_file(tmp_path), "client_certificate": certificate}
    with Receiver(tls=context) as receiver:
        with sink_to(receiver, **options, client_key=key if separate else None) as sink:
            assert sink.send(document()) == Answer()
        with (
            sink_to(receiver, ca_file=options["ca_file"]) as sink,
            pytest.raises(ReceiverUnavailable),
        ):
            sink.send(document())
    assert len(receiver.requests) == 1


def test_key_with_a_passphrase_is_refused_and_not_asked_for(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    issued = authority().issue_cert("publisher@example.com")
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    locked = tmp_path / "client.pem"
    encryption = serialization.BestAvailableEncryption(b"s3cret")
    locked.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        + issued.cert_chain_pems[0].bytes()
    )
    with pytest.raises(ConfigError, match="client_certificate is encrypted"):
        http_sink("https://receiver/", client_certificate=locked)


def test_a_plain_receiver_at_an_https_url_is_unavailable() -> None:
    with Receiver() as receiver:
        sink = http_sink(receiver.url.replace("http:", "https:"))
        with pytest.raises(
            ReceiverUnavailable, match=r"no TLS connection: .*the port does not use TLS"
        ):
            sink.send(document())


def test_a_tls_receiver_at_an_http_url_is_recognized_by_its_alert() -> None:
    alert = b"\x15\x03\x03\x00\x02\x02\x50"
    with (
        Receiver(lambda _: [alert, CUT]) as receiver,
        sink_to(receiver) as sink,
        pytest.raises(ReceiverUnavailable, match="an alert of TLS, as a port for https"),
    ):
        sink.send(document())


def test_a_receiver_is_tried_without_a_document() -> None:
    opening = Opening(format_named("xds"), sys.stdout)
    with Receiver() as receiver:
        told = HttpSink.try_out(HttpOptions(url=receiver.url), opening)
        assert receiver.requests == []
    assert told is not None
    assert told.startswith(
        f"{receiver.url} answers OPTIONS with 501, text/html;charset=utf-8: <!DOC"
    )
    assert told.endswith("; this does not show whether it accepts the credentials")
    with pytest.raises(ReceiverUnavailable, match="Connection refused"):
        HttpSink.try_out(HttpOptions(url=receiver.url), opening)


@pytest.mark.parametrize(
    ("body", "shown"),
    [("ok\n", ", text/plain: ok"), ("", "")],
)
def test_trying_a_receiver_shows_the_type_and_the_beginning_of_its_answer(
    body: str, shown: str
) -> None:
    opening = Opening(format_named("xds"), sys.stdout)
    app = flask.Flask("receiver")
    app.route("/", methods=["OPTIONS"])(lambda: (body, {"Content-Type": "text/plain"}))
    with served(app) as url:
        told = HttpSink.try_out(HttpOptions(url=url), opening)
    assert told == f"{url} answers OPTIONS with 200{shown}"


def test_trying_a_receiver_that_returns_a_login_page_fails() -> None:
    opening = Opening(format_named("xds"), sys.stdout)
    app = flask.Flask("proxy")
    app.route("/", methods=["OPTIONS"])(lambda: "<!doctype html>\n<title>Log in</title>")
    with (
        served(app) as url,
        pytest.raises(
            ReceiverUnavailable, match=r"a page of HTML, .*: <!doctype html> <title>Log in"
        ),
    ):
        HttpSink.try_out(HttpOptions(url=url), opening)


def test_trying_a_receiver_of_flask_shows_what_is_allowed() -> None:
    opening = Opening(format_named("xds"), sys.stdout)
    app = flask.Flask("receiver")
    app.post("/xds")(lambda: "ok")
    with served(app) as url:
        told = HttpSink.try_out(HttpOptions(url=f"{url}/xds"), opening)
    assert told is not None
    assert told.endswith(("allowed: OPTIONS, POST", "allowed: POST, OPTIONS"))


def test_a_short_token_is_not_shown_directly_after_a_letter() -> None:
    body = b"\x1b[2Jt0ken"
    with (
        Receiver(lambda _: reply(500, body)) as receiver,
        sink_to(receiver, token="t0ken") as sink,
        pytest.raises(ReceiverUnavailable, match=r"Error; .\[2J\*\*\*$"),
    ):
        sink.send(document())


def test_a_token_of_one_character_is_sent() -> None:
    with Receiver() as receiver, sink_to(receiver, token="x") as sink:
        sink.send(document())
    assert [request.headers["Authorization"] for request in receiver.requests] == ["Bearer x"]
