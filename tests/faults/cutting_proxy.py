"""A proxy before a PostgreSQL server that cuts a connection behind a message that the server
sent.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import sqlalchemy as sa
from transaction_pool import Peer, server_socket

_COUNTED = (b"R", b"C")
"""Authentication, and that a statement is complete: of all else that a server sends a client awaits
one of these.
"""


@dataclass
class CuttingProxy:
    """Counts what the server sends, over all connections, and ends the connection of the message
    that it counts to.

    ``left``: messages until the cut, None = nothing is cut. ``has_cut``: whether it has come to
    that.
    """

    url: sa.URL
    left: int | None = None
    has_cut: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _clients: list[Peer] = field(default_factory=list)

    def cut_now(self, again_after: int) -> None:
        """Cut all connections, and the one that sends this message from now on."""
        with self._lock:
            self.left, self.has_cut = again_after, False
        for client in self._clients:
            client.close()
        self._clients.clear()

    def _is_last(self, kind: bytes) -> bool:
        with self._lock:
            if self.left is None or kind not in _COUNTED:
                return False
            self.left -= 1
            if self.left:
                return False
            self.left, self.has_cut = None, True
            return True

    def _serve(self, client: Peer) -> None:
        server = Peer(server_socket(self.url))
        forwarding = threading.Thread(target=_forward, args=(client, server))
        try:
            server.sock.sendall(client.read_startup())
            forwarding.start()
            while True:
                kind, message = server.read()
                client.sock.sendall(message)
                if self._is_last(kind):
                    return
        except (EOFError, OSError, ValueError):
            pass
        finally:
            client.close()
            server.close()
            if forwarding.is_alive():
                forwarding.join()


def _forward(client: Peer, server: Peer) -> None:
    with contextlib.suppress(EOFError, OSError, ValueError):
        while True:
            _, message = client.read()
            server.sock.sendall(message)
    with contextlib.suppress(OSError):
        server.sock.shutdown(socket.SHUT_RDWR)


@contextmanager
def cutting_proxy(url: sa.URL, port: int = 0) -> Iterator[tuple[CuttingProxy, sa.URL]]:
    """The proxy, at a port (0 = a free one), and the URL that leads through it."""
    proxy = CuttingProxy(url)
    listener = socket.create_server(("127.0.0.1", port))
    threads: list[threading.Thread] = []

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client = Peer(listener.accept()[0])
                # Message by message, or each answer waits for the client's acknowledgement of the
                # one before.
                client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                proxy._clients.append(client)
                threads.append(threading.Thread(target=proxy._serve, args=(client,)))
                threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield (
            proxy,
            sa.URL.create(
                "postgresql+psycopg",
                url.username,
                url.password,
                "127.0.0.1",
                listener.getsockname()[1],
                url.database,
            ),
        )
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join()
        for client in proxy._clients:
            with contextlib.suppress(ValueError):
                client.close()
        for thread in threads:
            thread.join()
