"""What responses say of a document, and what says nothing (spec/event-log.md 8.4)."""

from __future__ import annotations

import base64
import json
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import flask
import pytest
from http_sinks import (
    PATIENCE,
    WARNING,
    answered,
    away,
    chunked,
    document,
    failure_of,
    http_sink,
    served,
    sink_to,
)
from receiver import CUT, Receiver, Request, Script, answer, reply, status

from eventlog.config.load import load
from eventlog.errors import ConfigError, ReceiverUnavailable
from eventlog.model import Answer, EventResult, Level
from eventlog.publisher.declared.configured_sink import open_sink


@pytest.mark.parametrize("level", list(Level))
def test_level_of_one_event_leaves_the_others(level: Level) -> None:
    read = answered(
        lambda _: reply(200, answer(status(level.name.lower(), "2", "why"))), "1", "2", "3"
    )
    assert [read.result(name) for name in "123"] == [
        EventResult(Level.SUCCESS),
        EventResult(level, "why"),
        EventResult(Level(0)),
    ]
    assert read.general is None


def test_retry_without_event_id_is_for_all() -> None:
    read = answered(lambda _: reply(200, answer(status("retry"))))
    assert read.general == EventResult(Level.RETRY)


def test_event_ids_that_were_not_sent_are_named_and_change_nothing() -> None:
    read = answered(lambda _: reply(200, answer(status("fatal", "99"), status("error", "2"))))
    assert read.unknown_ids == ("99",)
    assert [read.result(name).level for name in "12"] == [Level.SUCCESS, Level.ERROR]


@pytest.mark.parametrize(
    "response",
    [
        reply(200, WARNING),
        reply(202, WARNING, "Content-Type: text/plain"),
        reply(200, WARNING, "Content-Encoding: identity"),
        chunked(WARNING[:7], WARNING[7:]),
        b"HTTP/1.1 100 Continue\r\n\r\n" + reply(200, WARNING),
        reply(
            200,
            b'<?xml version="1.0" encoding="ISO-8859-1"?>' + answer(status("warning", "1", "\xfc")),
        ),
    ],
)
def test_any_2xx_with_an_xds_body_is_an_answer(response: bytes) -> None:
    assert answered(lambda _: response).result("1").level is Level.WARNING


def test_body_without_length_ends_with_the_connection() -> None:
    read = answered(lambda _: [b"HTTP/1.0 200 OK\r\n\r\n" + WARNING, CUT])
    assert read.result("1").level is Level.WARNING


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (reply(200), "answer is empty"),
        (
            b"HTTP/1.1 204 No Content\r\n\r\n",
            'by its status alone, set sink.response_format = "status"',
        ),
        (reply(410), "answers 410 Gone"),
        (reply(422), "answers 422 Unprocessable"),
        (reply(200, b"OK"), "answer cannot be read: line 1: not well-formed"),
        (reply(200, b"<p>welcome</p>"), "not an XDS answer: root element p"),
        (reply(200, b"<!DOCTYPE nds>" + answer()), "a DOCTYPE is not accepted"),
        (reply(200, answer()[:-9]), "not well-formed"),
        (
            reply(200, answer(), "Content-Encoding: gzip"),
            "Content-Encoding gzip, which was not asked for",
        ),
        (
            reply(400, b"line 1:\r\n\x1b[31m no\t such class"),
            "answers 400 Bad Request; line 1: \ufffd[31m no such class",
        ),
        (reply(401), "answers 401 Unauthorized; check the credentials: EVENTLOG_SINK_TOKEN"),
        (
            reply(404, b"nothing here"),
            "nothing receives at this path; check sink.url; nothing here",
        ),
        (reply(413), "reduce publisher.batch_size"),
        (reply(500, WARNING), "answers 500 Internal Server Error; <nds"),
        (b"HTTP/1.1 299\r\nContent-Length: 0\r\n\r\n", "answer is empty"),
        (b"HTTP/1.1 666 Beast\r\nContent-Length: 0\r\n\r\n", "answers 666"),
    ],
)
def test_response_that_is_no_answer_means_that_the_receiver_is_unavailable(
    response: bytes, message: str
) -> None:
    assert message in away(lambda _: response)


@pytest.mark.parametrize(
    ("fragments", "message"),
    [
        ([CUT], "closed the connection without an answer, as a port for https:// may do"),
        ([b"HTTP/1.1 200 OK\r\nContent-", CUT], "answer is empty"),
        ([reply(200, WARNING)[:-10], CUT], "ended in the middle of the answer"),
        ([chunked(WARNING)[:-12], CUT], "ended in the middle of the answer"),
        (
            [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", CUT],
            "ended in the middle of the answer",
        ),
        ([b"HTTP/1.1 200 OK\r\n\r\n" + WARNING[:-10], CUT], "not well-formed"),
        ([b"220 mail.example.com ESMTP\r\n", CUT], "not an HTTP response: BadStatusLine"),
        ([b"\x15\x03\x01\x00\x02\x02\x16", CUT], "not an HTTP response, but an alert of TLS"),
        (
            [b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200, CUT],
            "not an HTTP response: HTTPException: got more than 100",
        ),
        ([b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000, CUT], "not an HTTP response: LineTooLong"),
    ],
)
def test_connection_that_is_cut_or_speaks_otherwise_means_that_the_receiver_is_unavailable(
    fragments: list[bytes], message: str
) -> None:
    assert message in away(lambda _: fragments)


def test_message_shows_only_the_beginning_of_a_long_page() -> None:
    message = away(lambda _: reply(502, b"<p>" + b"x" * 1_000_000))
    assert "502 Bad Gateway" in message
    assert len(message) < 400


def test_redirect_is_not_followed() -> None:
    with Receiver() as elsewhere:
        location = f"Location: {elsewhere.url}?ticket=t0p"
        message = away(lambda _: reply(307, b"", location), token="s3cret")
        assert (
            "answers 307 Temporary Redirect; redirects are not followed; set sink.url to the "
            "final address: "
        ) in message
        assert elsewhere.url in message
        assert "t0p" not in message
    assert elsewhere.requests == []


@pytest.mark.parametrize(
    "fragments",
    [
        pytest.param([reply(200, b"x" * 2000)], id="length"),
        pytest.param([chunked(b"x" * 2000)], id="chunks"),
        pytest.param([b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 2000, CUT], id="until-closed"),
        pytest.param(
            [b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n<nds", CUT], id="announced"
        ),
        pytest.param(
            [
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffff\r\n"
                + b"x" * 99_999,
                CUT,
            ],
            id="chunk",
        ),
    ],
)
def test_answer_beyond_the_limit_is_not_taken(fragments: list[bytes]) -> None:
    assert "more than 1000 bytes (sink.max_response_bytes)" in away(
        lambda _: fragments, max_response_bytes=1000
    )


def test_answer_as_large_as_the_limit_is_taken() -> None:
    body = answer(status("success", "1", "x" * 900))
    with (
        Receiver(lambda _: reply(200, body)) as receiver,
        sink_to(receiver, max_response_bytes=len(body)) as sink,
    ):
        assert sink.send(document()).result("1").level is Level.SUCCESS


def test_endless_answer_is_left_at_the_limit() -> None:
    def endless() -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\n\r\n"
        while True:
            yield b"x" * 65_536

    assert "more than 1000000 bytes" in away(lambda _: endless(), max_response_bytes=1_000_000)


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
        assert answering.result(PATIENCE).result("1").level is Level.WARNING


@pytest.mark.parametrize(
    "location", ["", "/login", "//[", "http://[::1", "https://hr:pw@elsewhere:99999/x?y#z", "\xff"]
)
def test_redirect_to_anything_means_that_the_receiver_is_unavailable(location: str) -> None:
    message = away(lambda _: reply(302, b"", f"Location: {location}"))
    assert "answers 302 Found; redirects are not followed" in message
    assert "pw" not in message


# --- a receiver that is busy ----------------------------------------------------------------------

FORMS = ("xds", "status", "json")
DATE = "Date: Tue, 15 Nov 1994 08:12:31 GMT"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("code", [429, 503])
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        (("Retry-After: 120",), 120),
        (("Retry-After: 0",), 0),
        ((DATE, "Retry-After: Tue, 15 Nov 1994 08:13:01 GMT"), 30),
        ((DATE, "Retry-After: Tuesday, 15-Nov-94 08:13:01 GMT"), 30),
        ((DATE, "Retry-After: Tue Nov 15 08:13:01 1994"), 30),
        ((DATE, "Retry-After: Tue, 15 Nov 1994 08:00:00 GMT"), 0),
        (("Retry-After: soon",), None),
        (("Retry-After: -5",), None),
        (("Retry-After: 99999999999999999999",), None),
        ((), None),
    ],
)
def test_busy_receiver_gets_all_of_the_document_again_after_the_time_that_it_names(
    form: str, code: int, headers: tuple[str, ...], seconds: float | None
) -> None:
    read = answered(lambda _: reply(code, b"full", *headers), form=form)
    assert read.general is not None
    assert read.general.level is Level.RETRY
    assert f"answers {code}" in read.general.message
    assert read.general.message.endswith("; full")
    assert (read.retry_after, read.culprit_unknown) == (seconds, False)


def test_date_without_the_clock_of_the_receiver_is_measured_by_ours() -> None:
    moment = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    read = answered(lambda _: reply(503, b"", f"Retry-After: {moment}"))
    assert read.retry_after == pytest.approx(100, abs=PATIENCE)


# --- the status alone -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "response",
    [
        reply(200, b"ok"),
        reply(201, b"{}"),
        reply(202),
        b"HTTP/1.1 204 No Content\r\n\r\n",
        reply(200, answer(status("fatal"))),
        reply(200, b"\x00\xff" * 100),
    ],
)
def test_status_2xx_is_success_regardless_of_the_body(response: bytes) -> None:
    assert answered(lambda _: response, form="status") == Answer()


@pytest.mark.parametrize("form", ["status", "json"])
@pytest.mark.parametrize("code", [400, 409, 413, 422])
def test_refusal_is_an_error_of_an_event_that_is_not_named(form: str, code: int) -> None:
    read = answered(lambda _: reply(code, b'{"detail": "no such\n container"}'), form=form)
    assert read.culprit_unknown
    assert read.general is not None
    assert read.general.level is Level.ERROR
    assert read.general.message.startswith(f"the receiver answers {code}")
    assert read.general.message.endswith('{"detail": "no such container"}')


@pytest.mark.parametrize("form", ["status", "json"])
def test_receiver_that_is_gone_for_good_stops_the_publisher(form: str) -> None:
    read = answered(lambda _: reply(410, b"switched off"), form=form)
    assert read.general == EventResult(Level.FATAL, "the receiver answers 410 Gone; switched off")


@pytest.mark.parametrize("form", ["status", "json"])
@pytest.mark.parametrize(
    ("response", "message"),
    [
        (
            reply(301, b"", "Location: https://elsewhere/"),
            "redirects are not followed; set sink.url to the final address",
        ),
        (reply(304), "redirects are not followed"),
        (reply(401), "check the credentials: EVENTLOG_SINK_TOKEN"),
        (
            reply(403),
            "check the rights of the credentials, and that the receiver has the same signing secret",
        ),
        (reply(404), "nothing receives at this path; check sink.url"),
        (reply(405), "POST is not accepted at this path; check sink.url"),
        (reply(415), "check format.type and sink.compression"),
        (reply(418), "answers 418"),
        (reply(500, b"boom"), "answers 500 Internal Server Error; boom"),
        (reply(502), "answers 502"),
        (reply(504), "answers 504"),
    ],
)
def test_other_status_means_that_the_receiver_is_unavailable_and_names_the_likely_mistake(
    form: str, response: bytes, message: str
) -> None:
    assert message in away(lambda _: response, form=form)


@pytest.mark.parametrize(
    ("response", "option"),
    [
        (reply(301, b"", "Location: https://elsewhere/"), "sink.url"),
        (reply(401), "EVENTLOG_SINK_TOKEN"),
        (reply(403), "EVENTLOG_SINK_SIGNING_SECRET"),
        (reply(404), "sink.url"),
        (reply(405), "sink.url"),
        (reply(413), "publisher.batch_size"),
        (reply(415), "sink.compression"),
        (reply(200, b"<!DOCTYPE html><html>Log in</html>"), "sink.url"),
        (reply(200, b"OK"), "sink.response_format"),
    ],
)
def test_an_answer_that_is_about_an_option_means_that_the_receiver_is_misconfigured(
    response: bytes, option: str
) -> None:
    failure = failure_of(lambda _: response)
    assert failure.code == "receiver_misconfigured"
    assert option in failure.advice


@pytest.mark.parametrize("status", [408, 418, 500, 502, 504])
def test_any_other_status_is_a_matter_of_the_receiver(status: int) -> None:
    failure = failure_of(lambda _: reply(status))
    assert (failure.code, failure.advice) == ("receiver_unavailable", "")


def test_a_refused_request_names_the_credentials_that_are_set_among_them_the_signature() -> None:
    with Receiver(lambda _: reply(401)) as receiver:
        secret = f"whsec_{base64.b64encode(bytes(24)).decode()}"
        sink = http_sink(receiver.url, user="u", password="p", signing_secret=secret)
        with closing(sink), pytest.raises(ReceiverUnavailable) as caught:
            sink.send(document())
    assert caught.value.advice == (
        "check the credentials: EVENTLOG_SINK_USER and EVENTLOG_SINK_PASSWORD, "
        "EVENTLOG_SINK_SIGNING_SECRET"
    )


@pytest.mark.parametrize("form", ["status", "json"])
@pytest.mark.parametrize(
    ("fragments", "message"),
    [
        ([CUT], "closed the connection without an answer"),
        ([reply(200, b"0123456789")[:-5], CUT], "ended in the middle of the answer"),
        ([chunked(b"ok")[:-6], CUT], "ended in the middle of the answer"),
        ([b"220 mail.example.com ESMTP\r\n", CUT], "not an HTTP response"),
        ([reply(200, b"x" * 2000)], "more than 1000 bytes"),
    ],
)
def test_half_an_answer_is_none_whatever_its_status(
    form: str, fragments: list[bytes], message: str
) -> None:
    assert message in away(lambda _: fragments, form=form, max_response_bytes=1000)


@pytest.mark.parametrize("form", ["status", "json"])
def test_answer_that_comes_too_late_is_none(form: str) -> None:
    with Receiver() as receiver, sink_to(receiver, form=form, timeout=0.3) as sink:
        receiver.script = lambda _: receiver.silence()
        with pytest.raises(
            ReceiverUnavailable,
            match=r"no complete answer within 0\.3 s|no connection within the time-out",
        ):
            sink.send(document())


# --- results in JSON ------------------------------------------------------------------------------


def results(*found: object) -> bytes:
    return reply(200, json.dumps({"results": found}).encode())


@pytest.mark.parametrize("level", list(Level))
def test_result_of_one_event_leaves_the_others(level: Level) -> None:
    named = {"event_id": "2", "status": level.name.lower(), "message": " why "}
    read = answered(lambda _: results(named), "1", "2", "3", form="json")
    assert [read.result(name) for name in "123"] == [
        EventResult(Level.SUCCESS),
        EventResult(level, "why"),
        EventResult(Level(0)),
    ]
    assert (read.general, read.culprit_unknown) == (None, False)


def test_message_of_a_result_is_fit_for_a_table_and_a_line_of_a_log() -> None:
    named = {
        "event_id": "1",
        "status": "error",
        "message": "no\x00such\r\n container \ud800" + "x" * 10_000,
    }
    message = answered(lambda _: results(named), form="json").result("1").message
    assert message.startswith("no\ufffdsuch container \ufffdxxx")
    assert message.isprintable()
    assert len(message) < 300


def test_of_several_results_for_one_event_the_worst_counts_and_an_unknown_word_is_an_error() -> (
    None
):
    found = (
        {"event_id": "1", "status": "warning"},
        {"event_id": 1, "status": "splendid", "message": None},
    )
    read = answered(lambda _: results(*found, {"event_id": "1", "status": "success"}), form="json")
    assert read.results == {"1": EventResult(Level.ERROR)}


def test_result_of_an_event_that_was_not_sent_changes_nothing() -> None:
    read = answered(lambda _: results({"event_id": "99", "status": "fatal"}), form="json")
    assert (read.unknown_ids, read.results) == (("99",), {})


def test_no_results_are_success_for_all() -> None:
    assert answered(lambda _: results(), form="json") == Answer()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "answer is empty"),
        (b"ok", "answer is not JSON"),
        (b'{"results": [', "answer is not JSON"),
        (b"\xff\xfe\x00", "answer is not JSON"),
        (b"[" * 100_000, "answer is not JSON"),
        (b"[]", "has no list of results"),
        (b"{}", "has no list of results"),
        (b'{"results": {"1": "success"}}', "has no list of results"),
        (b'{"results": ["1"]}', "result 1 of the receiver's answer lacks an event_id or a status"),
        (b'{"results": [{"status": "error"}]}', "result 1 of"),
        (
            b'{"results": [{"event_id": "1", "status": "success"}, {"event_id": "2"}]}',
            "result 2 of",
        ),
        (b'{"results": [{"event_id": true, "status": "error"}]}', "result 1 of"),
        (b'{"results": [{"event_id": "1", "status": "error", "message": 7}]}', "result 1 of"),
    ],
)
def test_json_that_is_no_answer_means_that_the_receiver_is_unavailable(
    body: bytes, message: str
) -> None:
    told = away(lambda _: reply(200, body), form="json")
    assert message in told
    assert 'by its status alone, set sink.response_format = "status"' in told


# --- which of them --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "body", "level"),
    [
        ({}, WARNING, Level.WARNING),
        ({"format.type": "cloudevents"}, WARNING, Level.SUCCESS),
        ({"sink.response_format": "status"}, WARNING, Level.SUCCESS),
        ({"format.type": "cloudevents", "sink.response_format": "xds"}, WARNING, Level.WARNING),
        (
            {"sink.response_format": "json"},
            b'{"results": [{"event_id": "1", "status": "error"}]}',
            Level.ERROR,
        ),
    ],
)
def test_xds_is_answered_in_xds_and_other_formats_by_status_unless_the_option_specifies_otherwise(
    settings: dict[str, str], body: bytes, level: Level
) -> None:
    with Receiver(lambda _: reply(200, body)) as receiver:
        config = load(None, {}, {"sink.type": "http", "sink.url": receiver.url, **settings})
        with closing(open_sink(config, sys.stdout)) as sink:
            assert sink.send(document()).result("1").level is level


# --- whether the document may be the cause --------------------------------------------------------


def is_suspicious(script: Script, form: str = "status", **options: Any) -> bool:
    with Receiver(script) as receiver, sink_to(receiver, form=form, **options) as sink:
        with pytest.raises(ReceiverUnavailable) as caught:
            sink.send(document())
        return caught.value.is_suspicious


@pytest.mark.parametrize("form", FORMS)
def test_failure_of_a_receiver_that_got_the_document_is_suspicious(form: str) -> None:
    assert is_suspicious(lambda _: reply(500), form)
    assert is_suspicious(lambda _: reply(501), form)
    assert is_suspicious(lambda _: [CUT], form)
    assert is_suspicious(
        lambda _: [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n<nds>", CUT], form
    )
    assert is_suspicious(lambda _: [b"garbage\r\n\r\n", CUT], form)


def test_time_out_after_the_request_is_suspicious() -> None:
    with Receiver() as receiver, sink_to(receiver, form="status", timeout=0.3) as sink:
        receiver.script = lambda _: receiver.silence()
        with pytest.raises(ReceiverUnavailable) as caught:
            sink.send(document())
        assert caught.value.is_suspicious


@pytest.mark.parametrize("code", [400, 409, 413, 422])
def test_refusal_of_a_document_is_suspicious_where_xds_answers(code: int) -> None:
    assert is_suspicious(lambda _: reply(code), "xds")


@pytest.mark.parametrize("body", [b"", b"<nds>", b"ok", b"[]"])
def test_answer_that_cannot_be_read_is_suspicious(body: bytes) -> None:
    assert is_suspicious(lambda _: reply(200, body), "xds")
    assert is_suspicious(lambda _: reply(200, body), "json")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("code", [301, 401, 403, 404, 405, 502, 504])
def test_status_of_a_receiver_that_is_not_there_is_not_suspicious(form: str, code: int) -> None:
    assert not is_suspicious(lambda _: reply(code), form)


def test_receiver_without_a_connection_is_not_suspicious() -> None:
    with Receiver() as receiver:
        pass
    with closing(http_sink(receiver.url)) as sink, pytest.raises(ReceiverUnavailable) as caught:
        sink.send(document())
    assert not caught.value.is_suspicious


# --- pages in place of an answer ------------------------------------------------------------------

LOGIN = (
    b"HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Mon, 23 Nov 2026 23:26:44 GMT\r\n"
    b"Content-Type: text/html\r\nContent-Length: 124\r\n"
    b"Last-Modified: Mon, 23 Nov 2026 23:26:43 GMT\r\nConnection: keep-alive\r\n"
    b'ETag: "6b04cbb3-7c"\r\nAccept-Ranges: bytes\r\n\r\n'
    b"\n<!DOCTYPE html>\n<html>\n<head><title>Log in</title></head>\n"
    b'<body><form method="post" action="/login"></form></body>\n</html>\n'
)
"""What nginx 1.22.1 answers to a POST under ``error_page 401 =200 /login.html``."""


@pytest.mark.parametrize("form", FORMS)
def test_login_page_of_a_proxy_is_a_suspicious_failure(form: str) -> None:
    assert is_suspicious(lambda _: LOGIN, form)
    message = away(lambda _: LOGIN, form=form)
    assert "check sink.url and the credentials: text/html: <!DOCTYPE html>" in message


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "body",
    [
        b"<!doctype html><p>welcome",
        b"<!DocType\thtml>",
        b"<HTML lang=en>welcome</HTML>",
        b" \t\r\n\f<html>",
        b"\xef\xbb\xbf\n<html>",
        "\ufeff<html>".encode("utf-16"),
        "\ufeff<!DOCTYPE html>".encode("utf-16-be"),
        b" " * 100_000 + b"<html>",
        b"<html>" + b"x" * 100_000,
    ],
    ids=range(9),
)
def test_body_that_begins_as_a_page_is_a_suspicious_failure_whatever_its_type(
    form: str, body: bytes
) -> None:
    page = reply(200, body, "Content-Type: application/json")
    assert is_suspicious(lambda _: page, form)
    message = away(lambda _: page, form=form)
    assert "a page of HTML" in message
    assert len(message) < 500


@pytest.mark.parametrize(
    "body", [b"ok", b"<p>ok</p>", b"see <html>", b"<!-- <html> -->", b'"<!doctype html>"', b""]
)
def test_another_body_of_type_html_is_an_answer(body: bytes) -> None:
    plain = reply(200, body, "Content-Type: text/html; charset=utf-8")
    assert answered(lambda _: plain, form="status") == Answer()


def test_reason_without_the_words_of_the_receiver_has_no_part_of_the_page() -> None:
    with (
        Receiver(lambda _: LOGIN) as receiver,
        sink_to(receiver, form="status") as sink,
        pytest.raises(ReceiverUnavailable) as caught,
    ):
        sink.send(document())
    assert caught.value.in_short.endswith(
        "page of HTML, perhaps the login page of a proxy; check sink.url and the credentials"
    )


def test_secrets_in_a_page_are_not_shown() -> None:
    page = reply(200, b"<html>t0ken-of-ours<p>" + b"x" * 300)
    assert "<html>***<p>xxx" in away(lambda _: page, form="status", token="t0ken-of-ours")


def test_first_answer_of_type_html_is_a_warning_that_names_the_option(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plain = reply(200, b"ok", "Content-Type: text/html; charset=utf-8")
    with Receiver(lambda _: plain) as receiver, sink_to(receiver, form="status") as sink:
        assert [sink.send(document()) for _ in range(2)] == [Answer(), Answer()]
    assert [line.getMessage().count("sink.expected_content_type") for line in caplog.records] == [1]


def test_flask_answers_ok_in_html_and_its_pages_are_none() -> None:
    """Flask's default media type is ``text/html``, whatever a view returns."""
    app = flask.Flask("receiver")
    views: dict[str, Callable[[], Any]] = {
        "ok": lambda: "ok",
        "nothing": lambda: ("", 204),
        "json": lambda: {"results": []},
        "page": lambda: flask.render_template_string("<!doctype html>{{ t }}", t="Hi"),
    }
    for name, view in views.items():
        app.add_url_rule(f"/{name}", name, view, methods=["POST"])
    with served(app) as url:
        for form, path in (("status", "/ok"), ("status", "/nothing"), ("json", "/json")):
            with closing(http_sink(f"{url}{path}", form=form)) as sink:
                assert sink.send(document()) == Answer()
        for form in FORMS:
            with (
                closing(http_sink(f"{url}/page", form=form)) as sink,
                pytest.raises(
                    ReceiverUnavailable, match=r"html; charset=utf-8: <!doctype html>"
                ) as page,
            ):
                sink.send(document())
            assert page.value.is_suspicious


def test_answer_of_another_media_type_than_expected_means_that_the_receiver_is_unavailable() -> (
    None
):
    message = away(lambda _: LOGIN, form="status", expected_content_type="application/json")
    assert "sink.expected_content_type): text/html" in message
    untyped = reply(200, b"ok")
    assert message.partition(":")[2] != away(
        lambda _: untyped, form="status", expected_content_type="application/json"
    )


def test_expected_media_type_decides_before_the_body() -> None:
    assert not is_suspicious(lambda _: LOGIN, expected_content_type="application/json")
    assert is_suspicious(lambda _: LOGIN, expected_content_type="text/html")


@pytest.mark.parametrize(
    "response",
    [
        reply(200, b"{}", "Content-Type: Application/JSON; charset=utf-8"),
        b"HTTP/1.1 204 No Content\r\n\r\n",
        # Flask sends its default type with a 204, too.
        b"HTTP/1.1 204 No Content\r\nContent-Type: text/html; charset=utf-8\r\n\r\n",
        reply(200),
    ],
)
def test_answer_of_the_expected_media_type_or_without_a_body_counts(response: bytes) -> None:
    with (
        Receiver(lambda _: response) as receiver,
        sink_to(receiver, form="status", expected_content_type="application/json") as sink,
    ):
        assert sink.send(document()) == Answer()


def bare(status: int) -> bytes:
    """A response with a status that may have no name."""
    return f"HTTP/1.1 {status} Unnamed\r\nContent-Length: 0\r\n\r\n".encode()


@pytest.mark.parametrize(("status", "is_success"), [(199, False), (200, True), (299, True)])
def test_success_is_200_to_299(status: int, is_success: bool) -> None:
    if is_success:
        assert answered(lambda _: bare(status), form="status") == Answer()
    else:
        assert not is_suspicious(lambda _: bare(status))


@pytest.mark.parametrize(
    ("status", "is_named"), [(299, False), (300, True), (399, True), (400, False)]
)
def test_a_redirect_is_300_to_399(status: int, is_named: bool) -> None:
    form = "xds"  # where 400 is no answer
    failure = failure_of(lambda _: bare(status), form=form)
    assert ("redirects are not followed" in str(failure)) is is_named
    assert ("final address" in failure.advice) is is_named


@pytest.mark.parametrize(
    ("status", "expected"), [(499, False), (500, True), (599, True), (600, False)]
)
def test_a_failure_that_a_document_may_cause_is_500_to_599(status: int, expected: bool) -> None:
    assert is_suspicious(lambda _: bare(status)) is expected


@pytest.mark.parametrize(("length", "is_taken"), [(23, False), (24, True), (64, True), (65, False)])
def test_a_key_that_signs_has_24_to_64_bytes(length: int, is_taken: bool) -> None:
    secret = "whsec_" + base64.b64encode(bytes(length)).decode()
    if is_taken:
        http_sink("http://127.0.0.1:1", signing_secret=secret).close()
    else:
        with pytest.raises(ConfigError, match="24 to 64 random bytes"):
            http_sink("http://127.0.0.1:1", signing_secret=secret)
