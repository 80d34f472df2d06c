"""A proxy before any server that speaks TCP: it swallows what the server sends, and then ends the
connection.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class AnswerCutter:
    """Counts the pieces that the server sends, over all connections. It swallows the piece that it
    counts to, and ends the connection.

    ``left``: pieces until then, None = nothing is cut. ``cuts``: how often it has cut.
    """

    server: int
    port: int = 0
    left: int | None = None
    cuts: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def is_swallowed(self) -> bool:
        with self._lock:
            if self.left is None:
                return False
            self.left -= 1
            if self.left:
                return False
            self.left, self.cuts = None, self.cuts + 1
            return True

    def serve(self, client: socket.socket) -> None:
        with (
            client,
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self.server)) as server,
        ):
            upward = threading.Thread(target=_forward, args=(client, server))
            upward.start()
            while (piece := server.recv(65536)) and not self.is_swallowed():
                client.sendall(piece)
            for one in (client, server):
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            upward.join()


def _forward(client: socket.socket, server: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := client.recv(65536):
            server.sendall(piece)
        server.shutdown(socket.SHUT_WR)


@contextmanager
def answer_cutter(server: int) -> Iterator[AnswerCutter]:
    """A proxy before the server at this port."""
    proxy = AnswerCutter(server)
    listener = socket.create_server(("127.0.0.1", 0))
    proxy.port = listener.getsockname()[1]
    threads: list[threading.Thread] = []

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client = listener.accept()[0]
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threads.append(threading.Thread(target=proxy.serve, args=(client,)))
                threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield proxy
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join()
        for thread in threads:
            thread.join()
