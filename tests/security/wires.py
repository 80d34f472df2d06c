"""Hostile servers at the ends of wires: each keeps what it got in plain text."""

from __future__ import annotations

import base64
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread, local

import trustme

SECRET, VALUE = "SECRET-OF-THE-SINK", "salary-900000"
PATIENCE = 5.0

Answer = Callable[[bytes], bytes]


class Wire:
    """A server at 127.0.0.1 that greets each client. The clients have TLS by the contexts in their
    order, None = plain text; those after the last context have plain text too. ``answer`` makes the
    answer to some bytes, empty = the connection ends.
    """

    def __init__(
        self, contexts: list[ssl.SSLContext | None], greeting: bytes, answer: Answer
    ) -> None:
        self._contexts, self._greeting, self._answer = contexts, greeting, answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._first_greeting: bytes | None = None
        self.in_plain_text, self.over_tls, self.clients = b"", b"", 0
        Thread(target=self._accept, daemon=True).start()

    @property
    def leaked(self) -> list[str]:
        """What must never be in plain text, and was."""
        encoded = (base64.b64encode(f"user:{SECRET}".encode()).decode(), SECRET, VALUE)
        return [one for one in encoded if one.encode() in self.in_plain_text]

    def greet_first_with(self, greeting: bytes) -> None:
        """Greet the first client otherwise than all others."""
        self._first_greeting = greeting

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                context = self._contexts.pop(0) if self._contexts else None
                greeting, self._first_greeting = self._first_greeting or self._greeting, None
                self.clients += 1
                given = (client, context, greeting)
                Thread(target=self._serve, args=given, daemon=True).start()

    def _serve(
        self, client: socket.socket, context: ssl.SSLContext | None, greeting: bytes
    ) -> None:
        client.settimeout(PATIENCE)
        with suppress(OSError), client:
            client.sendall(greeting)
            spoken = client if context is None else context.wrap_socket(client, server_side=True)
            with spoken:
                while got := spoken.recv(65536):
                    if context is None:
                        self.in_plain_text += got
                    else:
                        self.over_tls += got
                    if not (answer := self._answer(got)):
                        break
                    spoken.sendall(answer)


@contextmanager
def wire(
    *contexts: ssl.SSLContext | None, greeting: bytes = b"", answer: Answer = lambda _: b""
) -> Iterator[Wire]:
    made = Wire(list(contexts), greeting, answer)
    try:
        yield made
    finally:
        made.close()


class Authority:
    """An authority that a client trusts by ``file``."""

    def __init__(self, directory: Path) -> None:
        self._authority = trustme.CA()
        self.file = directory / "ca.pem"
        self._authority.cert_pem.write_to_path(self.file)

    def of(self, host: str) -> ssl.SSLContext:
        """The context of a server whose certificate names a host."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._authority.issue_cert(host).configure_cert(context)
        return context


@contextmanager
def relay_to(address: str) -> Iterator[Answer]:
    """Yield a function that returns the answers of another server, at host:port."""
    host, _, port = address.partition(":")
    of_client = local()
    servers: list[socket.socket] = []

    def answer(got: bytes) -> bytes:
        if not hasattr(of_client, "server"):
            of_client.server = socket.create_connection((host, int(port)), 0.2)
            servers.append(of_client.server)
        of_client.server.sendall(got)
        answers = b""
        with suppress(TimeoutError):
            while more := of_client.server.recv(65536):
                answers += more
        return answers

    try:
        yield answer
    finally:
        for server in servers:
            server.close()


@contextmanager
def network_to(path: str) -> Iterator[int]:
    """Yield the port of 127.0.0.1 that leads to a server at a Unix socket."""
    open_sockets: list[socket.socket] = []

    def lead() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.socket(socket.AF_UNIX)
                open_sockets.extend((client, server))
                server.connect(path)
                for ends in ((client, server), (server, client)):
                    Thread(target=_copy, args=ends, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        Thread(target=lead, daemon=True).start()
        yield listener.getsockname()[1]
    for one in open_sockets:
        one.close()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while got := source.recv(65536):
            target.sendall(got)
        target.shutdown(socket.SHUT_RDWR)


def redirect_to(port: int) -> Answer:
    """The answer that sends a client of HTTP to a server without TLS."""
    head = f"HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.1:{port}/\r\nContent-Length: 0\r\n\r\n"
    return lambda _: head.encode()
