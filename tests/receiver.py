"""A receiver of documents for tests: a real HTTP server on the loopback address, scripted request
by request.

::

    with Receiver(lambda request: reply(200, answer(status("retry", "7")))) as receiver:
        HttpSink(HttpOptions(receiver.url), answer_form("xds")).send(document)

A script returns the bytes of the response, or fragments of them: a generator may wait between two
fragments, or for ``receiver.closing`` in order to say nothing at all. Each connection has its own
thread.
"""

from __future__ import annotations

import contextlib
import gzip
import itertools
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import SHUT_RDWR, SO_RCVBUF, SOL_SOCKET, socket
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple, cast


class Request(NamedTuple):
    """One POST. ``connection``: the number of the connection it came on, from 1. ``stream``: what
    follows it there.

    ``body`` is the text after decompression, ``raw`` what came.
    """

    connection: int
    path: str
    headers: Message
    body: str
    stream: BinaryIO
    raw: bytes = b""


Script = Callable[[Request], bytes | Iterable[bytes]]


def status(level: str, event_id: str | None = None, text: str = "") -> str:
    named = "" if event_id is None else f' event-id="{event_id}"'
    return f'<status level="{level}"{named}>{text}</status>'


def answer(*statuses: str) -> bytes:
    """An XDS answer; without statuses it is success for all."""
    return f'<nds dtdversion="2.0"><output>{"".join(statuses)}</output></nds>'.encode()


def reply(code: int = 200, body: bytes = b"", *headers: str) -> bytes:
    """A whole response of HTTP/1.1 after which the connection stays open."""
    lines = [
        f"HTTP/1.1 {code} {HTTPStatus(code).phrase}",
        f"Content-Length: {len(body)}",
        *headers,
        "",
        "",
    ]
    return "\r\n".join(lines).encode("latin-1") + body


def accept(_request: Request) -> bytes:
    """The script of a receiver that is content."""
    return reply(200, answer())


def in_turn(*scripts: Script) -> Script:
    """One script for each request in the order of their arrival; the last goes on."""
    following = itertools.chain(scripts, itertools.repeat(scripts[-1]))
    lock = threading.Lock()

    def script(request: Request) -> bytes | Iterable[bytes]:
        with lock:
            chosen = next(following)
        return chosen(request)

    return script


class Receiver:
    """Serves while its ``with`` block runs. ``requests`` are those that were read whole, in the
    order of arrival.

    ``port`` 0 = a free one. ``tls``: the server's context, None = plain. ``reads``: False = bodies
    are left to the script. A response after which nothing more can be sent (too short, without
    length) is to end with ``CUT``.
    """

    def __init__(
        self,
        script: Script = accept,
        *,
        tls: ssl.SSLContext | None = None,
        reads: bool = True,
        port: int = 0,
    ) -> None:
        self.script = script
        self.reads = reads
        self.requests: list[Request] = []
        self.closing = threading.Event()
        self.connections = itertools.count(1)
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.receiver = self
        self._server.tls = tls
        if not reads:  # what is not read is not to vanish in buffers
            self._server.socket.setsockopt(SOL_SOCKET, SO_RCVBUF, 65_536)
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.01},
            name="receiver",
            daemon=True,
        )
        self.port = self._server.server_address[1]
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self.port}/xds"

    def __enter__(self) -> Receiver:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.closing.set()
        self._server.shutdown()
        self._thread.join()
        self.hang_up()
        self._server.server_close()

    def hang_up(self) -> None:
        """Close every connection."""
        for connection in list(self._server.open):
            with contextlib.suppress(OSError):
                connection.shutdown(SHUT_RDWR)

    def drip(self, data: bytes, seconds: float) -> Iterator[bytes]:
        """Byte after byte with a rest between them."""
        for value in data:
            yield bytes([value])
            if self.closing.wait(seconds):
                return

    def silence(self) -> Iterator[bytes]:
        """Nothing until the receiver closes."""
        self.closing.wait()
        yield CUT


CUT = b"\0cut"
"""A fragment that stands for the end of the connection."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    receiver: Receiver
    tls: ssl.SSLContext | None

    def __init__(self, *arguments: Any) -> None:
        self.open: set[socket] = set()
        super().__init__(*arguments)

    def finish_request(self, request: Any, client_address: Any) -> None:
        if self.tls is not None:
            try:
                request = self.tls.wrap_socket(request, server_side=True)
            except OSError:  # the client did not like our certificate
                return
        self.open.add(request)
        try:
            with contextlib.suppress(OSError):
                super().finish_request(request, client_address)
        finally:
            self.open.discard(request)
            request.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.connection_number = next(cast(_Server, self.server).receiver.connections)

    def do_POST(self) -> None:
        receiver = cast(_Server, self.server).receiver
        body = self.rfile.read(int(self.headers["Content-Length"])) if receiver.reads else b""
        text = gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body
        request = Request(
            self.connection_number, self.path, self.headers, text.decode(), self.rfile, body
        )
        receiver.requests.append(request)
        fragments = receiver.script(request)
        for fragment in [fragments] if isinstance(fragments, bytes) else fragments:
            if fragment == CUT:
                self.close_connection = True
                return
            self.wfile.write(fragment)
            self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""
