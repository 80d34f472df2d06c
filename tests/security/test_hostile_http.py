"""Answers of receivers and of token endpoints: whatever they send, the sink has an answer or
ReceiverUnavailable, and a client of OAuth a token or HttpFailed.
"""

from __future__ import annotations

import json
from contextlib import closing
from random import Random

import hostile
from answering import response, server
from fuzzing import ODD, changed, damaged, dumped
from hostile import Border

from eventlog.core.oauth import OAuthOptions
from eventlog.errors import EventlogError
from eventlog.model import Answer, Document
from eventlog.publisher.sinks.http import HttpOptions, HttpSink, answer_form
from eventlog.transport.http import HttpFailed
from eventlog.transport.oauth import ClientTokens

HEADS = (
    b"Content-Type: application/xml",
    b"Content-Type: text/html",
    b"Content-Encoding: gzip",
    b"Transfer-Encoding: chunked",
    b"Retry-After: 9999999999",
    b"Retry-After: Fri, 31 Dec 9999 23:59:59 -2359",
    b"Retry-After: 30 Feb 0 99:99 +99999999",
    b"Date: Mon, 01 Jan 0001 00:00:00 +2359",
    b"Content-Length: -1",
    b"Content-Length: 99999999999999999999999",
    b"Location: http://a@[::1",
    b"Connection: close",
    b" folded",
    b"X: " + b"a" * 70_000,
    b"\xff\0: \xff",
)
STATUSES = (b"200 OK", b"200", b"204 x", b"100 x", b"101 x", b"302 Found", b"401 x", b"429 x",
            b"503 x", b"999 x", b"-1 x", b"2e2 x", b"200 \xff\0")  # fmt: skip
XML = (
    b'<nds><output><status level="success" event-id="1"/>'
    b'<status level="retry" event-id="2">later</status></output></nds>'
)
JSON = b'{"results": [{"event_id": "1", "status": "retry", "message": "later"}]}'
SIZES = (b"5", b"-5", b"0", b"FFFFFFFFFFFFFFFF", b"1_0", b"+3", b"0x5", b"\xc2\xb2", b"", b"5;a=b")


def chunks(rnd: Random, body: bytes) -> bytes:
    size = b"%x" % len(body) if rnd.random() < 0.3 else rnd.choice(SIZES)
    parts = [size, b"\r\n", body, b"\r\n", rnd.choice((b"0", *SIZES)), b"\r\n\r\n"]
    return b"".join(parts)


def body_of(rnd: Random) -> bytes:
    match rnd.randrange(6):
        case 0:
            return rnd.choice((XML, JSON))
        case 1:
            return dumped(changed(rnd, json.loads(JSON)))
        case 2:
            return rnd.choice((b"[", b"<a>", b"<!--", b"{")) * rnd.choice((1, 50_000))
        case _:
            return damaged(rnd, rnd.choice((XML, JSON)))


def answer_of(rnd: Random) -> bytes:
    body = body_of(rnd)
    if rnd.random() < 0.3:
        return response(body)
    status = rnd.choice(STATUSES)
    heads = rnd.sample(HEADS, rnd.randrange(3))
    if rnd.random() < 0.3:
        head = b"\r\n".join([b"HTTP/1.1 " + status, *heads, b"Transfer-Encoding: chunked"])
        return head + b"\r\n\r\n" + chunks(rnd, body)
    whole = response(body, *heads, status=status)
    return damaged(rnd, whole) if rnd.random() < 0.4 else whole


def send(data: bytes) -> Answer:
    """The answer of the receiver to a document, to a reader of XDS and to one of JSON."""
    server().data = data
    answers = []
    for form in ("xds", "json"):
        options = HttpOptions(url=server().url, timeout=5.0)
        with closing(HttpSink(options, answer_form(form))) as sink:
            try:
                answers.append(sink.send(Document(1, 1, ("1", "2"), b"<nds/>")))
            except EventlogError as error:
                refused = error
    if not answers:
        raise refused
    return answers[0]


def chunked(*parts: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(parts)


RECEIVERS = Border(
    case=answer_of,
    read=send,
    limit=12 << 20,
    factor=40,
    seconds=5.0,
    known={
        "a chunk of a negative size": lambda: chunked(b"-5\r\nx"),
        "a refusal in a chunk of a negative size": lambda: (
            b"HTTP/1.1 500 x\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nx"
        ),
        "a huge chunk": lambda: chunked(b"FFFFFFFFFFFFFFFFF\r\nx"),
        "many chunks": lambda: chunked(b"1\r\nx\r\n" * 200_000, b"0\r\n\r\n"),
        "deep JSON": lambda: response(b"[" * 200_000),
        "deep XML": lambda: response(b"<a>" * 200_000),
        "1 MB of elements": lambda: response(
            b"<nds><output>" + b"<a/>" * 250_000 + b"</output></nds>"
        ),
        "1 MB of attributes": lambda: response(
            b"<nds><output><a "
            + b" ".join(b'a%x=""' % number for number in range(60_000))
            + b"/></output></nds>"
        ),
        "1 MB of texts": lambda: response(b"<nds><output>" + b"x<a/>" * 200_000),
        "1 MB of objects": lambda: response(b'{"results":[' + b"{}," * 330_000 + b"{}]}"),
        "1 MB of lists": lambda: response(b"[" + b"[]," * 330_000 + b"[]]"),
    },
)


def test_no_answer_of_a_receiver_ends_the_process() -> None:
    hostile.generate(f"{__name__}.RECEIVERS")


# --- token endpoints ------------------------------------------------------------------------------

TOKEN = {"access_token": "abc", "token_type": "Bearer", "expires_in": 3600, "scope": "a"}


def token_of(rnd: Random) -> bytes:
    match rnd.randrange(4):
        case 0:
            return answer_of(rnd)
        case 1:
            body = dumped({**TOKEN, rnd.choice([*TOKEN, "error", "expires_at"]): rnd.choice(ODD)})
        case 2:
            body = dumped(changed(rnd, dict(TOKEN)))
        case _:
            body = damaged(rnd, dumped(TOKEN))
    return response(body, status=rnd.choice((b"200 OK", b"400 Bad Request")))


def ask(data: bytes) -> str:
    """The token that a client gets."""
    server().data = data
    options = OAuthOptions(token_url=server().url, client_id="eventlog", scope="a b")
    with closing(ClientTokens(options, "secret", "sink.oauth", timeout=5.0)) as tokens:
        return tokens.current()


TOKENS = Border(
    case=token_of,
    read=ask,
    refusals=(HttpFailed,),
    limit=8 << 20,
    factor=40,
    known={
        "200,000 brackets": lambda: response(b"[" * 200_000),
        "80,000 lists": lambda: response(b"[" + b"[]," * 80_000 + b"[]]"),
        "a token of a smaller scope": lambda: response(dumped(TOKEN)),
        "a token that never ends": lambda: response(
            b'{"access_token": "a", "token_type": "Bearer", "expires_in": 1e999}'
        ),
        "a token that ends after all time": lambda: response(
            b'{"access_token": "a", "token_type": "Bearer", "expires_in": %b}' % (b"9" * 4000)
        ),
        "a token with more digits than Python reads": lambda: response(
            b'{"access_token": "a", "token_type": "Bearer", "expires_in": %b}' % (b"9" * 400_000)
        ),
    },
)


def test_no_answer_of_a_token_endpoint_ends_the_process() -> None:
    hostile.generate(f"{__name__}.TOKENS")
