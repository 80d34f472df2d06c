"""Receivers that behave and receivers that do not: spec/event-log.md 8.4 over HTTP."""

from __future__ import annotations

import base64
import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import trustme
from receiver import CUT, Receiver, Request, Script, accept, answer, in_turn, reply, status

from eventlog.errors import ConfigError, ReceiverAway
from eventlog.model import Answer, Level, Verdict
from eventlog.publisher.sinks import Document
from eventlog.publisher.sinks.http import HttpSink

PATIENCE = 20.0
"""Seconds that a test would wait for what is to come at once."""


def document(*event_ids: str, body: str = "<nds>Ünï</nds>\n") -> Document:
    return Document(12, 3, event_ids or ("1", "2"), body)


@contextlib.contextmanager
def sink_to(receiver: Receiver, **options: object) -> Iterator[HttpSink]:
    with contextlib.closing(HttpSink(receiver.url, **{"timeout": PATIENCE, **options})) as sink:  # type: ignore[arg-type]
        yield sink


def answered(script: Script, *event_ids: str) -> Answer:
    with Receiver(script) as receiver, sink_to(receiver) as sink:
        return sink.send(document(*event_ids))


def away(script: Script, **options: object) -> str:
    """The message of the error that a document meets."""
    with Receiver(script) as receiver, sink_to(receiver, **options) as sink:
        with pytest.raises(ReceiverAway) as caught:
            sink.send(document())
        assert str(caught.value).startswith(receiver.url)
        return str(caught.value)


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
    assert (request.headers["Eventlog-Flight"], request.headers["Eventlog-Envelope"]) == ("12", "3")


def test_no_key_names_a_request_since_the_rest_of_an_envelope_goes_under_its_old_numbers() -> None:
    with Receiver() as receiver, sink_to(receiver) as sink:
        sink.send(document())
    assert "Idempotency-Key" not in receiver.requests[0].headers


@pytest.mark.parametrize("level", list(Level))
def test_level_of_one_event_leaves_the_others(level: Level) -> None:
    read = answered(lambda _: reply(200, answer(status(level.name.lower(), "2", "why"))), "1", "2", "3")
    assert [read.verdict(name) for name in "123"] == [Verdict(Level.SUCCESS), Verdict(level, "why"), Verdict(Level(0))]
    assert read.general is None


def test_retry_without_event_id_is_for_all() -> None:
    read = answered(lambda _: reply(200, answer(status("retry"))))
    assert read.general == Verdict(Level.RETRY)


def test_event_ids_that_were_not_sent_are_named_and_change_nothing() -> None:
    read = answered(lambda _: reply(200, answer(status("fatal", "99"), status("error", "2"))))
    assert read.unknown_ids == ("99",)
    assert [read.verdict(name).level for name in "12"] == [Level.SUCCESS, Level.ERROR]


def chunked(*pieces: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (*pieces, b""))


WARNING = answer(status("warning", "1"))


@pytest.mark.parametrize(
    "response",
    [
        reply(200, WARNING),
        reply(202, WARNING, "Content-Type: text/plain"),
        reply(200, WARNING, "Content-Encoding: identity"),
        chunked(WARNING[:7], WARNING[7:]),
        b"HTTP/1.1 100 Continue\r\n\r\n" + reply(200, WARNING),
        reply(200, b'<?xml version="1.0" encoding="ISO-8859-1"?>' + answer(status("warning", "1", "\xfc"))),
    ],
)
def test_any_2xx_with_an_xds_body_is_an_answer(response: bytes) -> None:
    assert answered(lambda _: response).verdict("1").level is Level.WARNING


def test_body_without_length_ends_with_the_connection() -> None:
    read = answered(lambda _: [b"HTTP/1.0 200 OK\r\n\r\n" + WARNING, CUT])
    assert read.verdict("1").level is Level.WARNING


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (reply(200), "answer is empty"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "answer is empty"),
        (reply(200, b"OK"), "answer cannot be read: line 1: not well-formed"),
        (reply(200, b"<html><body>welcome</body></html>"), "no XDS answer: root element html"),
        (reply(200, b"<!DOCTYPE nds>" + answer()), "a DOCTYPE is not accepted"),
        (reply(200, answer()[:-9]), "not well-formed"),
        (reply(200, answer(), "Content-Encoding: gzip"), "Content-Encoding gzip, which was not asked for"),
        (
            reply(400, b"line 1:\r\n\x1b[31m no\t such class"),
            "answers 400 Bad Request; line 1: \ufffd[31m no such class",
        ),
        (reply(401), "answers 401 Unauthorized; credentials are needed: EVENTLOG_SINK_TOKEN"),
        (reply(404, b"nothing here"), "answers 404 Not Found; see sink.url; nothing here"),
        (reply(413), "see publisher.batch_size"),
        (reply(429, b"", "Retry-After: 120"), "answers 429 Too Many Requests; Retry-After: 120"),
        (reply(500, WARNING), "answers 500 Internal Server Error; <nds"),
        (reply(503, b"", "Retry-After: soon"), "answers 503 Service Unavailable; Retry-After: soon"),
        (b"HTTP/1.1 299\r\nContent-Length: 0\r\n\r\n", "answer is empty"),
        (b"HTTP/1.1 666 Beast\r\nContent-Length: 0\r\n\r\n", "answers 666"),
    ],
)
def test_response_that_is_no_answer_means_that_the_receiver_is_away(response: bytes, message: str) -> None:
    assert message in away(lambda _: response)


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ([CUT], "closed the connection without an answer"),
        ([b"HTTP/1.1 200 OK\r\nContent-", CUT], "answer is empty"),
        ([reply(200, WARNING)[:-10], CUT], "ended in the middle of the answer"),
        ([chunked(WARNING)[:-12], CUT], "ended in the middle of the answer"),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", CUT], "ended in the middle of the answer"),
        ([b"HTTP/1.1 200 OK\r\n\r\n" + WARNING[:-10], CUT], "not well-formed"),
        ([b"220 mail.example.com ESMTP\r\n", CUT], "no HTTP response: BadStatusLine"),
        ([b"\x15\x03\x01\x00\x02\x02\x16", CUT], "no HTTP response: BadStatusLine"),
        ([b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200, CUT], "no HTTP response: HTTPException: got more than 100"),
        ([b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000, CUT], "no HTTP response: LineTooLong"),
    ],
)
def test_connection_that_is_cut_or_speaks_otherwise_means_that_the_receiver_is_away(
    pieces: list[bytes], message: str
) -> None:
    assert message in away(lambda _: pieces)


def test_message_shows_only_the_beginning_of_a_long_page() -> None:
    message = away(lambda _: reply(502, b"<p>" + b"x" * 1_000_000))
    assert "502 Bad Gateway" in message
    assert len(message) < 400


def test_redirect_is_not_followed() -> None:
    with Receiver() as elsewhere:
        location = f"Location: {elsewhere.url}?ticket=t0p"
        message = away(lambda _: reply(307, b"", location), token="s3cret")
        assert (
            "answers 307 Temporary Redirect; redirects are not followed, sink.url is to name the place itself: "
            in message
        )
        assert elsewhere.url in message
        assert "t0p" not in message
    assert elsewhere.requests == []


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([reply(200, b"x" * 2000)], id="length"),
        pytest.param([chunked(b"x" * 2000)], id="chunks"),
        pytest.param([b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 2000, CUT], id="until-closed"),
        pytest.param([b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n<nds", CUT], id="announced"),
        pytest.param(
            [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffff\r\n" + b"x" * 99_999, CUT], id="chunk"
        ),
    ],
)
def test_answer_beyond_the_limit_is_not_taken(pieces: list[bytes]) -> None:
    assert "more than 1000 bytes (sink.max_answer_bytes)" in away(lambda _: pieces, max_answer_bytes=1000)


def test_answer_as_large_as_the_limit_is_taken() -> None:
    body = answer(status("success", "1", "x" * 900))
    with Receiver(lambda _: reply(200, body)) as receiver, sink_to(receiver, max_answer_bytes=len(body)) as sink:
        assert sink.send(document()).verdict("1").level is Level.SUCCESS


def test_endless_answer_is_left_at_the_limit() -> None:
    def endless() -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\n\r\n"
        while True:
            yield b"x" * 65_536

    assert "more than 1000000 bytes" in away(lambda _: endless(), max_answer_bytes=1_000_000)


def test_late_answer_within_the_time_counts() -> None:
    sent = threading.Event()

    def late(_request: Request) -> Iterator[bytes]:
        sent.set()
        released.wait(PATIENCE)
        yield reply(200, WARNING)

    released = threading.Event()
    with Receiver(late) as receiver, sink_to(receiver) as sink, ThreadPoolExecutor(1) as threads:
        answering = threads.submit(sink.send, document())
        assert sent.wait(PATIENCE)
        assert not answering.done()
        released.set()
        assert answering.result(PATIENCE).verdict("1").level is Level.WARNING


def accept_all(request: Request) -> bytes:
    """The script of a receiver that reads, and is content."""
    request.stream.read(int(request.headers["Content-Length"]))
    return accept(request)


def connected(sink: HttpSink) -> None:
    """Connect with patience, as a busy machine needs it; from then on half a second is all that there is."""
    sink.send(document())
    sink._client._timeout = 0.5


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(WARNING)


@pytest.mark.parametrize(
    "misbehave",
    [
        pytest.param(lambda receiver: receiver.silence(), id="silent"),
        pytest.param(lambda receiver: receiver.drip(HEAD + WARNING, 0.05), id="head-dripped"),
        pytest.param(
            lambda receiver: (p for part in ([HEAD], receiver.drip(WARNING, 0.05)) for p in part), id="body-dripped"
        ),
        pytest.param(lambda receiver: (p for part in ([HEAD], receiver.silence()) for p in part), id="body-missing"),
        pytest.param(
            lambda receiver: receiver.drip(b"HTTP/1.1 100 Continue\r\n\r\n" * 10, 0.05), id="continue-dripped"
        ),
    ],
)
@pytest.mark.parametrize("tls", [False, True])
def test_receiver_that_is_slow_holds_the_publisher_no_longer_than_the_time_out(
    misbehave: object, tls: bool, authority: trustme.CA, tmp_path: Path
) -> None:
    options = {"ca_file": ca_file(authority, tmp_path)} if tls else {}
    with Receiver(tls=server_context(authority) if tls else None) as receiver, sink_to(receiver, **options) as sink:
        connected(sink)
        receiver.script = lambda _: misbehave(receiver)  # type: ignore[operator]
        with pytest.raises(ReceiverAway, match=r"no whole answer within 0\.5 s"):
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
    misbehave: object, tls: bool, authority: trustme.CA, tmp_path: Path
) -> None:
    options = {"ca_file": ca_file(authority, tmp_path)} if tls else {}
    with (
        Receiver(accept_all, tls=server_context(authority) if tls else None, reads=False) as receiver,
        sink_to(receiver, **options) as sink,
    ):
        connected(sink)
        receiver.script = lambda request: misbehave(receiver, request)  # type: ignore[operator]
        with pytest.raises(ReceiverAway, match=r"no whole answer within 0\.5 s"):
            sink.send(document(body="x" * 30_000_000))


def test_receiver_that_accepts_and_speaks_no_tls_holds_the_publisher_no_longer_than_the_time_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        sink = HttpSink(f"https://127.0.0.1:{server.getsockname()[1]}/", timeout=0.3)
        with pytest.raises(ReceiverAway, match="no connection within the time-out"):
            sink.send(document())


def test_refusal_before_the_document_was_read_is_heard() -> None:
    with (
        Receiver(lambda _: [reply(413, b"too much"), CUT], reads=False) as receiver,
        sink_to(receiver) as sink,
        pytest.raises(ReceiverAway, match=r"answers 413 .*; too much"),
    ):
        sink.send(document(body="x" * 5_000_000))


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port where nobody listens, and that nobody else is given meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://127.0.0.1:{port}/xds", "no connection: Connection refused"),
        ("https://127.0.0.1:{port}/xds", "no connection: Connection refused"),
        ("http://receiver.invalid/xds", "the host name receiver.invalid cannot be resolved"),
    ],
)
def test_receiver_that_is_not_there_is_away(url: str, message: str, closed_port: int) -> None:
    url = url.format(port=closed_port)
    with pytest.raises(ReceiverAway) as caught:
        HttpSink(url, timeout=PATIENCE).send(document())
    assert str(caught.value).startswith(f"{url}: {message}")


def test_publisher_comes_back_to_a_receiver_that_was_away() -> None:
    script = in_turn(lambda _: reply(500), lambda _: [CUT], lambda _: reply(200, b"?"), accept)
    with Receiver(script) as receiver, sink_to(receiver) as sink:
        for _ in range(3):
            with pytest.raises(ReceiverAway):
                sink.send(document())
        assert sink.send(document()) == Answer()


def test_connection_is_kept_for_the_next_document() -> None:
    with Receiver(in_turn(accept, lambda _: chunked(WARNING), accept)) as receiver, sink_to(receiver) as sink:
        for _ in range(3):
            sink.send(document())
    assert [request.connection for request in receiver.requests] == [1, 1, 1]


def test_connection_is_not_kept_when_the_receiver_says_so() -> None:
    with Receiver(lambda _: [reply(200, answer(), "Connection: close"), CUT]) as receiver, sink_to(receiver) as sink:
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
        with pytest.raises(ReceiverAway, match="in the middle of the answer"):
            sink.send(document())
    assert len(receiver.requests) == 2


def test_documents_of_several_threads_are_in_the_air_at_once_and_get_their_own_answers() -> None:
    together = threading.Barrier(8)

    def script(request: Request) -> bytes:
        together.wait(PATIENCE)
        return reply(200, answer(status("error", request.body, request.body)))

    def send(number: int) -> Verdict:
        return sink.send(document(str(number), body=str(number))).verdict(str(number))

    with Receiver(script) as receiver, sink_to(receiver) as sink:
        for _ in range(3):  # new threads each time, as a flight has
            with ThreadPoolExecutor(8) as threads:
                found = list(threads.map(send, range(8)))
            assert found == [Verdict(Level.ERROR, str(number)) for number in range(8)]
    assert {request.connection for request in receiver.requests} == set(range(1, 9))


def test_bearer_token_is_sent() -> None:
    with Receiver() as receiver, sink_to(receiver, token="s3cret") as sink:
        sink.send(document())
    assert receiver.requests[0].headers["Authorization"] == "Bearer s3cret"


def test_basic_credentials_are_sent() -> None:
    with Receiver() as receiver, sink_to(receiver, user="hr", password="geheim:ü") as sink:
        sink.send(document())
    scheme, encoded = receiver.requests[0].headers["Authorization"].split()
    assert (scheme, base64.b64decode(encoded).decode()) == ("Basic", "hr:geheim:ü")


@pytest.mark.parametrize("credentials", [{"token": "s3cret"}, {"user": "hr", "password": "s3cret"}])
@pytest.mark.parametrize(
    "echo",
    [
        lambda said: reply(403, said),
        lambda said: reply(503, b"", f"Retry-After: {said.decode()}"),
        lambda said: reply(302, b"", f"Location: https://elsewhere/{said.decode()}"),
        lambda said: reply(200, said),
        lambda said: reply(200, b"<" + said.split()[-1].rstrip(b"=") + b"/>"),
        lambda said: [said + b"\r\n", CUT],
    ],
)
def test_credentials_that_a_receiver_repeats_are_not_shown(credentials: dict[str, str], echo: object) -> None:
    message = away(lambda request: echo(request.headers["Authorization"].encode()), **credentials)  # type: ignore[operator]
    assert "s3cret" not in message
    assert base64.b64encode(b"hr:s3cret").decode().rstrip("=") not in message


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch, closed_port: int) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{closed_port}")
    assert answered(accept) == Answer()


@pytest.mark.parametrize(
    ("url", "options", "message"),
    [
        ("", {}, "is to be a URL like"),
        ("receiver/xds", {}, "is to be a URL like"),
        ("ftp://receiver/xds", {}, "is to be a URL like"),
        ("https:///xds", {}, "is to be a URL like"),
        ("https://receiver:x/xds", {}, "is no URL"),
        ("https://[::1/xds", {}, "is no URL"),
        ("https://hr:s3cret@receiver/xds", {}, "holds a user or a password"),
        (f"https://{'x' * 64}.example.com/xds", {}, "no host name"),
        ("https://receiver..example.com/xds", {}, "no host name"),
        ("https://receiver/a b", {}, "percent-encode"),
        ("https://receiver/ü", {}, "percent-encode"),
        ("http://receiver/xds", {"token": "s3cret"}, "credentials are not sent over plain http"),
        ("http://192.0.2.1/xds", {"user": "hr", "password": "s3cret"}, "credentials are not sent over plain http"),
        ("http://127.0.0.1.example.com/", {"token": "s3cret"}, "credentials are not sent over plain http"),
        ("https://receiver/", {"token": "s3cret", "user": "hr"}, "EVENTLOG_SINK_TOKEN excludes"),
        ("https://receiver/", {"token": "s3cret\n"}, "EVENTLOG_SINK_TOKEN is empty or holds"),
        ("https://receiver/", {"token": ""}, "EVENTLOG_SINK_TOKEN is empty or holds"),
        ("https://receiver/", {"user": "hr"}, "needed both"),
        ("https://receiver/", {"password": "s3cret"}, "needed both"),
        ("https://receiver/", {"user": "h:r", "password": "s3cret"}, "holds a colon"),
        ("https://receiver/", {"user": "hr", "password": "s3cret\r\nX: y"}, "control character"),
        ("http://127.0.0.1/", {"ca_file": Path("ca.pem")}, "need https"),
        ("https://receiver/", {"ca_file": Path("/nowhere/ca.pem")}, "/nowhere/ca.pem: No such file"),
        ("https://receiver/", {"ca_file": Path(__file__)}, "PEM certificates needed"),
        ("https://receiver/", {"client_certificate": Path("/nowhere/c.pem")}, "/nowhere/c.pem: No such file"),
        ("https://receiver/", {"client_certificate": Path(__file__)}, "a PEM certificate and its key needed"),
        ("https://receiver/", {"client_key": Path("k.pem")}, "needs sink.client_certificate"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_sent(url: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        HttpSink(url, **options)  # type: ignore[arg-type]
    assert message in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "[::1]"])
def test_credentials_may_go_over_plain_http_to_this_machine(host: str) -> None:
    HttpSink(f"http://{host}:8080/xds", token="s3cret")


@pytest.mark.parametrize(
    "location", ["", "/login", "//[", "http://[::1", "https://hr:pw@elsewhere:99999/x?y#z", "\xff"]
)
def test_redirect_to_anything_means_that_the_receiver_is_away(location: str) -> None:
    message = away(lambda _: reply(302, b"", f"Location: {location}"))
    assert "answers 302 Found; redirects are not followed" in message
    assert "pw" not in message


def test_query_of_the_url_is_sent_and_not_shown() -> None:
    with Receiver(lambda _: reply(500)) as receiver:
        sink = HttpSink(f"{receiver.url}?key=s3cret", timeout=PATIENCE)
        with pytest.raises(ReceiverAway) as caught:
            sink.send(document())
    assert receiver.requests[0].path == "/xds?key=s3cret"
    assert "s3cret" not in str(caught.value)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def server_context(authority: trustme.CA, name: str = "127.0.0.1") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


def ca_file(authority: trustme.CA, directory: Path) -> Path:
    path = directory / "ca.pem"
    authority.cert_pem.write_to_path(path)
    return path


def test_documents_go_over_tls_to_a_receiver_of_a_trusted_authority(authority: trustme.CA, tmp_path: Path) -> None:
    with (
        Receiver(tls=server_context(authority)) as receiver,
        sink_to(receiver, ca_file=ca_file(authority, tmp_path), token="s3cret") as sink,
    ):
        for _ in range(3):
            assert sink.send(document()) == Answer()
        receiver.hang_up()
        assert sink.send(document()) == Answer()
    assert [request.connection for request in receiver.requests] == [1, 1, 1, 2]
    assert receiver.requests[0].headers["Authorization"] == "Bearer s3cret"


def test_kept_tls_connection_that_is_closed_without_an_answer_is_replaced_once(
    authority: trustme.CA, tmp_path: Path
) -> None:
    with (
        Receiver(in_turn(accept, lambda _: [CUT], accept), tls=server_context(authority)) as receiver,
        sink_to(receiver, ca_file=ca_file(authority, tmp_path)) as sink,
    ):
        sink.send(document())
        assert sink.send(document()) == Answer()
    assert [request.connection for request in receiver.requests] == [1, 1, 2]


def test_certificate_of_an_unknown_authority_is_refused(authority: trustme.CA) -> None:
    with (
        Receiver(tls=server_context(authority)) as receiver,
        sink_to(receiver, token="s3cret") as sink,
        pytest.raises(ReceiverAway, match=r"certificate is not trusted: .*; sink\.ca_file names further"),
    ):
        sink.send(document())
    assert receiver.requests == []


def test_certificate_of_another_host_is_refused(authority: trustme.CA, tmp_path: Path) -> None:
    with (
        Receiver(tls=server_context(authority, "receiver.example.com")) as receiver,
        sink_to(receiver, ca_file=ca_file(authority, tmp_path)) as sink,
        pytest.raises(ReceiverAway, match=r"certificate is not trusted: .*127\.0\.0\.1"),
    ):
        sink.send(document())
    assert receiver.requests == []


@pytest.mark.parametrize("separate", [False, True])
def test_client_certificate_is_shown_to_a_receiver_that_asks(
    separate: bool, authority: trustme.CA, tmp_path: Path
) -> None:
    context = server_context(authority)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    issued = authority.issue_cert("publisher@example.com")
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    if separate:
        issued.cert_chain_pems[0].write_to_path(certificate)
        issued.private_key_pem.write_to_path(key)
    else:
        issued.private_key_and_cert_chain_pem.write_to_path(certificate)
    options = {"ca_file": ca_file(authority, tmp_path), "client_certificate": certificate}
    with Receiver(tls=context) as receiver:
        with sink_to(receiver, **options, client_key=key if separate else None) as sink:
            assert sink.send(document()) == Answer()
        with sink_to(receiver, ca_file=options["ca_file"]) as sink, pytest.raises(ReceiverAway):
            sink.send(document())
    assert len(receiver.requests) == 1


def test_key_with_a_passphrase_is_refused_and_not_asked_for(authority: trustme.CA, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    issued = authority.issue_cert("publisher@example.com")
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    locked = tmp_path / "client.pem"
    encryption = serialization.BestAvailableEncryption(b"s3cret")
    locked.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        + issued.cert_chain_pems[0].bytes()
    )
    with pytest.raises(ConfigError, match="client_certificate has a passphrase"):
        HttpSink("https://receiver/", client_certificate=locked)


def test_plain_receiver_behind_an_https_url_is_away() -> None:
    with Receiver() as receiver:
        sink = HttpSink(receiver.url.replace("http:", "https:"), timeout=PATIENCE)
        with pytest.raises(ReceiverAway, match="no TLS connection"):
            sink.send(document())
