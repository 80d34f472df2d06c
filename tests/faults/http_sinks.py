"""An ``HttpSink`` with short options, its documents, and certificates, for tests next to
``receiver``.
"""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import flask
import pytest
import trustme
from receiver import Receiver, Script, answer, status
from werkzeug.serving import make_server

from eventlog.errors import ReceiverUnavailable
from eventlog.model import Answer, Document
from eventlog.publisher.sinks.http import HttpOptions, HttpSink, answer_form

PATIENCE = 20.0
"""Seconds that a test would wait for what is to come at once."""

WARNING = answer(status("warning", "1"))


def document(*event_ids: str, body: str = "<nds>Ünï</nds>\n") -> Document:
    return Document(12, 3, event_ids or ("1", "2"), body.encode())


def http_sink(url: str, *, form: str = "xds", **options: Any) -> HttpSink:
    """A sink with these options of ``[sink]``; ``form``: that of the answer."""
    return HttpSink(HttpOptions(url, **{"timeout": PATIENCE, **options}), answer_form(form))


@contextlib.contextmanager
def sink_to(receiver: Receiver, **options: Any) -> Iterator[HttpSink]:
    with contextlib.closing(http_sink(receiver.url, **options)) as sink:
        yield sink


def answered(script: Script, *event_ids: str, form: str = "xds") -> Answer:
    with Receiver(script) as receiver, sink_to(receiver, form=form) as sink:
        return sink.send(document(*event_ids))


def failure_of(script: Script, **options: Any) -> ReceiverUnavailable:
    """The error that a document meets."""
    with Receiver(script) as receiver, sink_to(receiver, **options) as sink:
        with pytest.raises(ReceiverUnavailable) as caught:
            sink.send(document())
        assert str(caught.value).startswith(receiver.url)
        return caught.value


def away(script: Script, **options: Any) -> str:
    """The message of the error that a document meets."""
    return str(failure_of(script, **options))


def chunked(*fragments: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(
        b"%x\r\n%b\r\n" % (len(fragment), fragment) for fragment in (*fragments, b"")
    )


@contextlib.contextmanager
def served(app: flask.Flask) -> Iterator[str]:
    """The URL at which an application of Flask answers while the block runs."""
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@cache
def authority() -> trustme.CA:
    return trustme.CA()


def server_context(name: str = "127.0.0.1") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority().issue_cert(name).configure_cert(context)
    return context


def ca_file(directory: Path) -> Path:
    path = directory / "ca.pem"
    authority().cert_pem.write_to_path(path)
    return path
