"""A server on this machine whose every answer is the given bytes."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from functools import cache


class Answering:
    """``url`` is where the server is; ``data`` are the bytes that it answers before it closes the
    connection.
    """

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        self.data = b""
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            client, _ = self._server.accept()
            with client, suppress(OSError):
                client.recv(65536)
                client.sendall(self.data)
                client.shutdown(socket.SHUT_WR)
                client.recv(65536)


@cache
def server() -> Answering:
    """The server of this process."""
    return Answering()


def response(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    """A whole answer of HTTP."""
    head = [b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join(head) + b"\r\n\r\n" + body
